"""Locks between processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmfair.errors import RunConflict
from llmfair.rundir import RunDir


def test_only_a_lock_that_another_holds_is_in_use(tmp_path: Path) -> None:
    folder = RunDir(tmp_path)
    with folder.locked():
        assert RunDir(tmp_path).is_locked()
        with pytest.raises(RunConflict, match="is in use by process"), RunDir(tmp_path).locked():
            pass
    assert not folder.is_locked()


def test_a_lock_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("mine")
    (tmp_path / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunConflict, match="cannot be locked: a link"), RunDir(tmp_path).locked():
        pass
    assert (tmp_path / "elsewhere").read_text() == "mine"
