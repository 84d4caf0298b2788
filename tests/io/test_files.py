"""What is read: regular files alone, and no more of them than their kind holds; refused before it is waited for."""

from __future__ import annotations

import gzip
import os
import tracemalloc
from pathlib import Path

import pytest

from llmfair.errors import UsageError
from llmfair.io import files
from llmfair.io.files import text_lines


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def refusal(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        for _ in text_lines(path, "hint"):
            pass
    return caught.value.message


def test_a_pipe_and_a_device_are_no_files(pipe: Path, tmp_path: Path) -> None:
    for path in (pipe, Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(OSError, match="no regular file, but a pipe or a device"):
            files.content(path)
    with pytest.raises(IsADirectoryError):
        files.content(tmp_path)
    assert refusal(pipe) == f"{pipe}: cannot be read: no regular file, but a pipe or a device"


def test_no_path_has_a_nul_character() -> None:
    with pytest.raises(OSError, match=r"no name of a file: .*embedded null"):
        files.text("a\0b")


def test_a_file_is_no_larger_than_its_kind(tmp_path: Path) -> None:
    path = tmp_path / "large.toml"
    path.write_text("#" * files.MOST_BY_HAND)
    assert files.toml(path) == {}
    path.write_text("#" * (files.MOST_BY_HAND + 1))
    with pytest.raises(OSError, match="larger than 1 MB"):
        files.toml(path)
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(OSError, match="larger than 4 GB"):
        files.content(tmp_path / "sparse")


def test_a_small_file_takes_no_more_room_than_it_has(tmp_path: Path) -> None:
    (tmp_path / "small").write_text("{}")
    tracemalloc.start()
    try:
        assert files.content(tmp_path / "small") == b"{}"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("line", ["", "0" * 100])
def test_a_packed_file_does_not_unpack_for_ever(
    tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "FREELY", 1 << 18)
    path = tmp_path / "qrels.txt"
    path.write_bytes(gzip.compress(f"{line}\n".encode() * (1 << 18), 9) * 9)
    assert refusal(path).endswith(": cannot be read: unpacks to more than 100 times its size")


def test_a_line_without_an_end_is_the_last(tmp_path: Path) -> None:
    path = tmp_path / "qrels.txt"
    with path.open("wb") as file:
        file.truncate(1 << 42)
    assert refusal(path) == f"{path}:1: longer than 16 MB"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a = " + "[" * 100_000, "nested too deeply"),
        ("\n" + "a." * 100_000 + "b = 1", r"a name of more than 64 parts \(at line 2\)"),
        ("x = {" + '"a" . ' * 100_000 + "b = 1}", "a name of more than 64 parts"),
    ],
)
def test_toml_without_a_bottom(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        files.toml_of(text)
    assert files.toml_of("a.b.c = '" + "." * 100 + "one. two. " * 30 + "'")


@pytest.mark.parametrize("begins", [b"{}", b"[1, 2"])
def test_a_long_document_without_an_end_is_not_held(begins: bytes) -> None:
    path = Path("long.json")
    path.write_bytes(begins)
    os.truncate(path, 1 << 40)  # more than any memory
    with pytest.raises(UsageError, match=r"long\.json: cannot be read: the JSON has no end"):
        files.read_document(path, dict[str, str], "")
