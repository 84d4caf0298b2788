"""What is read: regular files alone, and no more of them than their kind holds; refused before it is waited for."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llmfair.datasets import fetch
from llmfair.datasets.fetch import Origin
from llmfair.errors import RunConflict, UsageError
from llmfair.io import files
from llmfair.io.files import TABLE, check, decode, encode, note, text_lines
from llmfair.rundir import RunDir
from tests.cli.command import only_run, ran


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


@pytest.mark.parametrize("packer", [gzip, bz2, lzma])
@pytest.mark.parametrize("line", [b"\n", b"0" * 100 + b"\n"])
def test_a_packed_file_does_not_unpack_for_ever(
    packer: Any, line: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "FREELY", 1 << 18)
    path = tmp_path / "qrels.txt"
    path.write_bytes(packer.compress(line * (1 << 18)) * 99)
    assert refusal(path).endswith(": cannot be read: unpacks to more than 100 times its size")
    with pytest.raises(UsageError, match=f"{path}: unpacks to more than 100 times its size"):
        list(fetch.read_lines(Origin(path.name, path), MagicMock()))


def test_what_is_packed_in_no_known_way_is_named(tmp_path: Path) -> None:
    path = tmp_path / "corpus.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd")
    with pytest.raises(UsageError, match=f"{path}: packed by zstd"):
        list(fetch.read_lines(Origin(path.name, path), MagicMock()))
    with pytest.raises(OSError, match=f"packed by zstd.*{path}"):
        files.text(path)


def test_a_long_cell_of_a_run_folder_is_read(tmp_path: Path) -> None:
    path, cell = tmp_path / "outputs.csv", "a" * 140_000
    path.write_text(f"output\n{cell}\n")
    assert files.read_csv(path, "an output", dict) == [{"output": cell}]


def test_a_line_without_an_end_is_the_last(tmp_path: Path) -> None:
    path = tmp_path / "qrels.txt"
    with path.open("wb") as file:
        file.truncate(1 << 42)
    assert refusal(path) == f"{path}:1: longer than 16 MB"


def test_toml_without_a_bottom() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        files.toml_of("a = " + "[" * 100_000)


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


# Files told from what they were: by size and time in a moment, by content where the time alone differs


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
    monkeypatch.delattr("llmfair.io.files.sha256")
    check(folder)


@pytest.mark.parametrize("table", ["", "[" * 100_000, '{"a": [1, 2, 3]}'])
def test_a_damaged_table_is_said_and_made_anew(folder: Path, table: str) -> None:
    (folder / TABLE).write_text(table)
    with pytest.raises(ValueError, match=r"damaged|a is another file"):
        check(folder)
    note(folder, ("a", "b"))
    check(folder)


def test_a_folder_of_which_nothing_is_known_is_not_trusted(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=TABLE):
        check(tmp_path)


# JSON as bytes: what it writes is what the standard library reads, and the other way round


# Two halves side by side are one character once they are written, so a half stands alone.
TEXTS = st.text() | st.sampled_from(["\ud800", "a\udfff b"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
)


@given(VALUES)
def test_what_is_written_is_what_json_reads(value: Any) -> None:
    line = encode(value)
    assert b"\n" not in line
    assert json.loads(line) == value


@given(VALUES)
def test_what_json_writes_is_read(value: Any) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        data = text.encode("utf-8", "backslashreplace")
        assert _rounded(decode(data)) == _rounded(value)


def _rounded(value: Any) -> Any:
    """Integers of more than 64 bits come back as the nearest float."""
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


@given(TEXTS)
@example("a\udfffb")
@example("\\ud800")
@example("\x00\x1f\x7f\u2028 ü 日本 😀")
def test_every_text_is_written_as_json_writes_it(text: str) -> None:
    """Keys of answers are made of these bytes, so no other library may write them otherwise."""
    assert encode([text]) == json.dumps([text], ensure_ascii=False).encode("utf-8", "backslashreplace")
    assert decode(encode([text])) == [text]


@pytest.mark.parametrize("text", [b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 100_000])
def test_what_is_very_deep_is_an_error_and_ends_no_process(text: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        decode(text)


@pytest.mark.parametrize("beside", ["", "\ud800"])
def test_a_moment_is_iso_8601(beside: str) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 60000, UTC)
    assert decode(encode([at, beside])) == ["2026-01-02T03:04:05.060000+00:00", beside]


def test_nan_and_infinity_are_read_and_never_written() -> None:
    assert decode(b"[-Infinity, 1]") == [float("-inf"), 1]
    assert encode([float("nan"), float("-inf")]) == b"[null,null]"


@pytest.mark.parametrize("text", [b"", b"{", b"[1,]", b"\xff", b"nothing"])
def test_no_json_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError):
        decode(text)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32-le"])
def test_bytes_in_another_encoding_are_no_json(encoding: str) -> None:
    with pytest.raises(ValueError):
        decode('{"ä": "\\ud800"}'.encode(encoding))


@pytest.mark.parametrize("beside", ["", "\ud800"])
def test_what_has_no_form_is_a_type_error(beside: str) -> None:
    with pytest.raises(TypeError):
        encode([object(), beside])


# Run folders, cache and pages are their owner's alone, unless they are to be shared


AUDIT = ("listwise", "-n", "1", "--orders", "1", "--conditions", "neutral", "--no-repeat", "-q")


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def others_may(*folders: str) -> dict[str, str]:
    """What others than the owner have any right to, with its rights."""
    assert all(Path(folder).exists() for folder in folders)
    found = [path for folder in folders for path in (Path(folder), *Path(folder).rglob("*"))]
    return {str(path): oct(path.stat().st_mode & 0o777) for path in found if path.stat().st_mode & 0o077}


@pytest.mark.whole
def test_what_a_command_writes_is_private_unless_it_is_shared() -> None:
    ran(*AUDIT)
    ran("report", only_run(), "-o", "page.html", "--figures", "svg")
    assert others_may("runs", "plots", "page.html") == {}
    assert os.umask(0o022) == 0o022
    ran(*AUDIT, "--no-report", "--runs-dir", "shared", "--shared")
    folder = only_run(Path("shared"))
    assert folder.stat().st_mode & 0o777 == 0o755
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in folder.iterdir() if path.is_file())


def test_weights_that_a_backend_downloads_are_kept_as_the_user_keeps_files() -> None:
    with files.private():
        with files.usual():
            Path("weights").touch()
        Path("answers").touch()
    assert [Path(name).stat().st_mode & 0o777 for name in ("weights", "answers")] == [0o644, 0o600]


@dataclass
class Mark:
    name: str
    passed: bool
    points: float | None


@pytest.mark.parametrize("cell", ["nan", "inf", "1_0", "٣"])
def test_rows_are_read_by_their_fields(cell: str) -> None:
    path = Path("marks.csv")
    path.write_text("name,passed,points\n7,True,\n,False,1.5\n")
    assert files.read_rows(path, "a mark", Mark) == [Mark("7", True, None), Mark("", False, 1.5)]
    path.write_text(f"name,passed,points\n7,True,{cell}\n")
    with pytest.raises(UsageError, match=f"marks.csv:2: is not a mark: '{cell}' is not a finite number"):
        files.read_rows(path, "a mark", Mark)


def test_a_file_is_on_the_disk_before_it_takes_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr("os.fsync", lambda _: done.append(", ".join(map(str, tmp_path.glob("a")))))
    files.write_whole(tmp_path / "a", ["text"])
    assert done == [""] and (tmp_path / "a").read_text() == "text"
