"""Files told from what they were: by size and time in a moment, by content where the time alone differs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from llmfair.io.files import TABLE, check, decode, note


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"content of {name}")
    note(tmp_path, ("a", "b", "none"))
    return tmp_path


def test_what_is_told_is_kept_beside_what_is_known(folder: Path) -> None:
    assert {*decode((folder / TABLE).read_bytes())} == {"a", "b"}
    (folder / "c").write_text("of c")
    (folder / "a").unlink()
    note(folder, ("a", "c"))
    assert {*decode((folder / TABLE).read_bytes())} == {"b", "c"}
    check(folder)
    (folder / "c").write_text("or c")
    check(folder, ["b", "not told of"])
    with pytest.raises(ValueError, match="c is another file"):
        check(folder, ["c"])


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda path: path.write_text("content of A"), "a is another file"),
        (lambda path: path.write_text("longer content of a"), "a is another file"),
        (lambda path: path.unlink(), "No such file"),
    ],
)
def test_another_file_is_found(folder: Path, harm: Callable[[Path], object], said: str) -> None:
    harm(folder / "a")
    for _ in range(2):
        with pytest.raises((OSError, ValueError), match=said):
            check(folder)
    check(folder, ["b"])


def test_another_time_is_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.utime(folder / "a", (1, 1))
    check(folder)
    monkeypatch.delattr("llmfair.io.files.told")
    check(folder)


@pytest.mark.parametrize(
    "table", ["", "[]", "1", "[" * 100_000, '{"a": 1}', '{"a": [1]}', '{"a": [1, 2, 3]}']
)
def test_a_damaged_table_is_said_and_made_anew(folder: Path, table: str) -> None:
    (folder / TABLE).write_text(table)
    with pytest.raises(ValueError, match=r"damaged|a is another file"):
        check(folder)
    note(folder, ("a", "b"))
    check(folder)


def test_a_folder_of_which_nothing_is_known_is_not_trusted(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=TABLE):
        check(tmp_path)
