"""Run and groups files: the order trec_eval reads, every mistake by file and line, whatever the file's packing."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfair.errors import UsageError
from llmfair.io.trec import DECLARATION, RunFile, read_groups, read_run
from llmfair.nouns import Attribute, Side

SIX = "6 columns separated by white space (query_id, Q0, doc_id, rank, score, tag)"
RUN = b"""\
q1 Q0 d1 1 0.5 mine
q1 Q0 d2 2 2.5 mine
q2 Q0 d1 1 1 mine
q1 Q0 d3 3 1.5 mine
"""
GENDER = {"gender": Attribute("gender", ("female",), ("male",), dict.fromkeys(Side, "x"), ("nonbinary",))}


def read(content: bytes, name: str = "my.run") -> RunFile:
    Path(name).write_bytes(content)
    return read_run(Path(name))


def lists(found: RunFile) -> dict[str, tuple[str, ...]]:
    return {query_id: ranking.doc_ids for query_id, ranking in found.rankings.items()}


def refusal(content: bytes, name: str = "my.run") -> str:
    with pytest.raises(UsageError) as caught:
        read(content, name)
    return caught.value.message


def test_scores_order_a_run_and_the_rank_column_does_not() -> None:
    found = read(RUN)
    assert lists(found) == {"q1": ("d2", "d3", "d1"), "q2": ("d1",)}
    assert (found.tag, found.tied) == ("mine", {})


def test_ties_of_32_bits_are_counted_per_query() -> None:
    found = read(
        b"q Q0 a 1 1 t\nq Q0 b 2 1.00000000001 t\nq Q0 c 3 1e39 t\nq Q0 d 4 2e39 t\nq Q0 e 5 0 t\np Q0 a 1 1 t\n"
    )
    assert found.tied == {"q": 4}
    assert lists(found)["q"] == ("d", "c", "b", "a", "e")


@pytest.mark.parametrize(
    "content",
    [
        RUN.replace(b" ", b"\t").replace(b"\n", b"\n\n"),
        RUN[:-1],
        gzip.compress(RUN[:40], mtime=0) + gzip.compress(RUN[40:], mtime=0),
        gzip.compress(b"\xef\xbb\xbf" + RUN.replace(b"\n", b"\r\n"), mtime=0),
    ],
    ids=["tabs and blank lines", "no last line end", "two gzip members", "all"],
)
def test_packing_changes_nothing(content: bytes) -> None:
    assert read(content) == read(RUN)
    assert read(content, "no-suffix") == read(RUN)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"q1 Q0 d9 4 1.0", f"my.run:3: expected {SIX}, found 5"),
        (b"q1 Q0 d9 4 1.0 my tag", f"my.run:3: expected {SIX}, found 7"),
        (b"q1 Q0 d9 four 1.0 mine", "my.run:3: rank: 'four' is not a finite number"),
        (b"q1 Q0 d9 4 nan mine", "my.run:3: score: 'nan' is not a finite number"),
        (b"q1 Q0 d9 4 1e999 mine", "my.run:3: score: '1e999' is not a finite number"),
        (b"q1 Q0 d9 4 1_0 mine", "my.run:3: score: '1_0' is not a finite number"),
        ("q1 Q0 d9 4 ١ mine".encode(), "my.run:3: score: '١' is not a finite number"),
        (b"q1 Q0 d2 4 1.0 mine", "my.run:3: doc_id: 'd2' was already ranked in query 'q1'"),
        (b"q1 Q0 d\xff 4 1.0 mine", "my.run:3: not UTF-8 (byte 8 of the line)"),
        (b"q1 Q0 " + random.Random(0).randbytes(17 << 19).hex().encode(), "my.run:3: longer than 16 MB"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_each_mistake_names_file_line_and_field(line: bytes, message: str) -> None:
    lines = RUN.splitlines(keepends=True)
    lines.insert(2, line + b"\n")
    assert refusal(b"".join(lines)) == message
    assert refusal(gzip.compress(b"".join(lines), 1)) == message


def test_a_truncated_gzip_file_says_where_it_ends() -> None:
    draw = random.Random(0)
    whole = b"".join(b"q Q0 d%d 1 %r mine\n" % (line, draw.random()) for line in range(5000))
    packed = gzip.compress(whole)
    message = refusal(packed[: len(packed) // 2], "my.run.gz")
    place, _, rest = message.partition(": ")
    assert rest == "the packed file is damaged or cut off here"
    assert 1000 < int(place.removeprefix("my.run.gz:")) < 4000
    assert "damaged or cut off" in refusal(b"\x1f\x8b rubbish")
    assert refusal(packed[:-8] + b"wrongsum") == "my.run:5001: the packed file is damaged or cut off here"


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("d3\tgendr\tfemale", "attribute: 'gendr' is not declared; did you mean 'gender'?", f"declare [gendr] in attributes.toml: {DECLARATION}"),
        ("d3\tgender\tfemal", "group: 'femal' is not a group of gender; did you mean 'female'?", 'other = ["femal"]'),
        ("d3\tgender\twoman", "group: 'woman' is not a group of gender; it has female, male, nonbinary", 'other = ["woman"]'),
        ("d3\tgender\t ", "group: '' is not a group of gender", "attributes.toml"),
    ],
)  # fmt: skip
def test_groups_lines(line: str, message: str, hint: str) -> None:
    Path("groups.tsv").write_text("d1\tgender\tfemale\n d2 \tgender\t@UNKNOWN\n")
    found = list(read_groups(Path("groups.tsv"), GENDER))
    assert found == [(1, "d1", "gender", "female"), (2, "d2", "gender", "@UNKNOWN")]
    with Path("groups.tsv").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(UsageError) as caught:
        list(read_groups(Path("groups.tsv"), GENDER))
    assert message in caught.value.message and caught.value.message.startswith("groups.tsv:3: ")
    assert hint in caught.value.hint


@given(st.binary(max_size=300))
def test_any_bytes_read_or_are_refused(content: bytes) -> None:
    try:
        assert read(content).rankings is not None
    except UsageError as error:
        assert "my.run" in error.message
