"""Locks between processes, and file systems that have none."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from llmfair.errors import RunConflict
from llmfair.io import files
from llmfair.rundir import RunDir


def test_only_a_lock_that_another_holds_is_in_use(tmp_path: Path) -> None:
    folder = RunDir(tmp_path)
    with folder.locked():
        assert RunDir(tmp_path).is_locked()
        with pytest.raises(RunConflict, match="is in use by process"), RunDir(tmp_path).locked():
            pass
    assert not folder.is_locked()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_told_and_worked_on(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(file: int, how: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(files, "_warned", set())
    with RunDir(tmp_path).locked(), RunDir(tmp_path).locked():
        assert not RunDir(tmp_path).is_locked()
    assert capsys.readouterr().err.count("has no locks") == 1


def test_what_else_goes_wrong_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: int, how: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="Input/output"), RunDir(tmp_path).locked():
        pass
