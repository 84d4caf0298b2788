"""Files of a user's own that were damaged: read, or refused in one sentence with file, line and field; no traceback."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmfair.datasets.answers import load_answers
from llmfair.datasets.base import fingerprint, load_dataset
from llmfair.datasets.files import Folder
from llmfair.datasets.judgements import read_any_run
from llmfair.datasets.lamp import read_retrieval, read_useful
from llmfair.errors import UsageError
from tests import lamp
from tests.cli.command import refuses
from tests.folders import balanced, write, write_folder

FILES = ("docs.jsonl", "queries.tsv", "qrels.txt", "groups.tsv", "candidates.run")
ROWS = [
    f"q{q} Q0 q{q}{s}{i} {1 + i + 3 * (s == 'm')} {9 - i} x" for q in range(2) for s in "fm" for i in range(3)
]
Damage = Callable[[bytes], bytes]
Read = Callable[[Path], object]


def folder_at(path: Path) -> Path:
    made = write_folder(path, balanced(2, 3, 3))
    write(made / "candidates.run", ROWS)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_at(tmp_path / "mine")


CASES = [
    ("docs.jsonl", rb'"title"', b'"titel"', ":1: title: is missing"),
    ("docs.jsonl", rb'"Title q0f0"', b'" "', ":1: title: is empty"),
    ("docs.jsonl", rb'"q0f0"', b'"a b"', ":1: doc_id: is empty or holds white space"),
    ("docs.jsonl", rb'"q0f1"', b'"q0f0"', ":2: doc_id: 'q0f0' was already given"),
    ("docs.jsonl", rb"\}", b"", ":1: not JSON: "),
    ("queries.tsv", rb"^q0", b"all", ":1: query_id: 'all' stands for all queries"),
    ("queries.tsv", rb"\nq1", b"\nq0", ":2: query_id: 'q0' was already given"),
    ("queries.tsv", rb"\t.*", b"\t ", ":1: text: is empty"),
    ("qrels.txt", rb"q0f2", b"zz", ":3: doc_id: 'zz' is not in docs.jsonl"),
    ("qrels.txt", rb"^q0", b"q7", ":1: query_id: 'q7' is not in queries.tsv"),
    ("qrels.txt", rb"\Z", b"q0 0 q0f0 5\n", ":13: doc_id: 'q0f0' was judged 1 on line 1 and 5 here"),
    ("groups.tsv", rb"gender", b"gendr", ":1: attribute: 'gendr' is not declared; did you mean 'gender'?"),
    ("groups.tsv", rb"female", b"Femal", ":1: group: 'Femal' is not a group of gender; did you mean"),
    ("groups.tsv", rb"^q0f0", b"zz", ":1: doc_id: 'zz' is not in docs.jsonl"),
    ("candidates.run", rb" 2 ", b" 1 ", ":2: rank: 1 was already given on line 1"),
    ("candidates.run", rb"q0f1", b"q0f0", ":2: doc_id: 'q0f0' was already ranked on line 1"),
]


@pytest.mark.parametrize(("file", "old", "new", "place"), CASES)
def test_a_broken_folder_says_where(folder: Path, file: str, old: bytes, new: bytes, place: str) -> None:
    path = folder / file
    path.write_bytes(re.sub(old, lambda _: new, path.read_bytes(), count=1))
    with pytest.raises(UsageError) as caught:
        _ = Folder(folder).queries
    assert caught.value.message.startswith(f"{path}{place}") and caught.value.hint


@pytest.mark.parametrize(
    ("damage", "place"),
    [
        (lambda content: content.replace(b"\n", b"\xe9\xff\n", 1), ":1: not UTF-8"),
        (lambda content: content.decode().encode("utf-16"), ":1: not UTF-8"),
        (lambda content: b"", ": is empty"),
        (lambda content: b"x" * (17 << 20) + content, ":1: longer than 16 MB"),
    ],
)
@pytest.mark.parametrize("file", FILES)
def test_what_is_no_text_is_refused(folder: Path, file: str, damage: Damage, place: str) -> None:
    (folder / file).write_bytes(damage((folder / file).read_bytes()))
    with pytest.raises(UsageError) as caught:
        _ = Folder(folder).queries
    assert caught.value.message.startswith(f"{folder / file}{place}")


@pytest.mark.parametrize(
    "harmless",
    [
        lambda content: content.replace(b"\n", b"\r\n"),
        lambda content: b"\xef\xbb\xbf" + content,
        lambda content: content.replace(b"\n", b"\n\n"),
        lambda content: content.rstrip(b"\n"),
    ],
    ids=["CRLF", "byte-order mark", "blank lines", "no last newline"],
)
def test_what_editors_do_to_files_is_accepted(folder: Path, harmless: Damage) -> None:
    before = fingerprint(Folder(folder))
    for file in FILES:
        (folder / file).write_bytes(harmless((folder / file).read_bytes()))
    assert fingerprint(Folder(folder)) == before


def test_a_folder_in_place_of_a_file(folder: Path) -> None:
    (folder / "docs.jsonl").unlink()
    (folder / "docs.jsonl").mkdir()
    refuses("docs.jsonl", "listwise", "-d", folder)


# Any damage to any file


LISTS = {"q0": ["a", "b"]}
TABLE = "query_id,doc_id,title,gender,relevance\n" + "".join(
    f"q0,{number},t,{'fe' * (number % 2)}male,1\n" for number in range(4)
)
QUESTION: Any = {"id": "q", "input": "?", "gold": ["a"], "items": [{"id": 1, "text": "x"}]}
READERS: dict[str, tuple[str, Read]] = {
    "scores.json": (json.dumps({"q": {"d": 1.5, "e": 2}}), read_any_run),
    "scores.csv": ("q_id,doc_id,score\nq,d,1\nq,e,2\n", read_any_run),
    "my.run": ("q Q0 d 1 1 t\nq Q0 e 2 0 t\n", read_any_run),
    "bm25.json": (json.dumps({"q0": [["a", 1], ["b", 2.5]]}), lambda path: read_retrieval(path, LISTS, ["q0"])),
    "labels.tsv": ("qid\tpid\tdelta\nq0\ta\t1\nq0\tb\t0\n", lambda path: read_useful(path, LISTS)),
    "own.jsonl": (json.dumps(QUESTION) + "\n", lambda path: load_answers(str(path)).queries),
    "table.csv": (TABLE, lambda path: load_dataset(str(path)).queries),
    "table.jsonl": (
        '{"query_id": 1, "doc_id": 2, "title": "t", "gender": ["male"]}\n'
        '{"query_id": 1, "doc_id": 3, "title": "t"}\n',
        lambda path: load_dataset(str(path)).queries,
    ),
    "table.parquet": (TABLE, lambda path: load_dataset(str(path)).queries),
}  # fmt: skip
damage = st.tuples(
    st.floats(0, 1),
    st.integers(0, 30),
    st.one_of(
        st.binary(max_size=12),
        st.sampled_from([b'"', b"NaN", b"{", b"[", b",,\n", b"null", b"1e999", b'"\\ud800"', b"\0", b"\n\n", b"\t"]),
    ),
)  # fmt: skip


def of_parquet(path: Path, table: str) -> bytes:
    """The table as a file of this kind."""
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow.parquet import write_table

    write_table(pyarrow.Table.from_pylist([*csv.DictReader(table.splitlines())]), path)
    return path.read_bytes()


def harmed(content: bytes, where: float, length: int, new: bytes) -> bytes:
    at = int(where * len(content))
    return content[:at] + new + content[at + length :]


def reads_or_refuses(path: Path, read: Read, names: Path) -> None:
    try:
        read(path)
    except UsageError as error:
        assert f"{names}" in error.message and error.hint and "\n" not in error.message


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damage)
def test_any_damage_reads_or_is_refused(tmp_path: Path, name: str, harm: tuple[float, int, bytes]) -> None:
    text, read = READERS[name]
    content = of_parquet(tmp_path / name, text) if name.endswith("parquet") else text.encode()
    (tmp_path / name).write_bytes(content)
    read(tmp_path / name)
    (tmp_path / name).write_bytes(harmed(content, *harm))
    reads_or_refuses(tmp_path / name, read, tmp_path / name)


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damage)
def test_any_damage_to_a_folder(tmp_path: Path, name: str, harm: tuple[float, int, bytes]) -> None:
    folder = tmp_path / "mine"
    if not folder.exists():
        folder_at(folder)
    sound = (folder / name).read_bytes()
    (folder / name).write_bytes(harmed(sound, *harm))
    reads_or_refuses(folder, lambda path: Folder(path).queries, folder)
    (folder / name).write_bytes(sound)


@pytest.mark.parametrize("name", ["4_user_dev_inputs.json", "4_user_dev_outputs.json"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damage)
def test_any_damage_to_a_task_of_lamp(tmp_path: Path, name: str, harm: tuple[float, int, bytes]) -> None:
    lamp.write_lamp(tmp_path, 4)
    (tmp_path / name).write_bytes(harmed((tmp_path / name).read_bytes(), *harm))
    reads_or_refuses(tmp_path, lambda path: load_answers("lamp/4", path).queries, tmp_path)
