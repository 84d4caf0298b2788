"""Every kind of broken folder: a clear error with file and line and exit 2, or a stated tolerance. No traceback."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import llmfair, ran, refuses
from tests.folders import balanced, write, write_folder

FILES = ("docs.jsonl", "queries.tsv", "qrels.txt", "groups.tsv", "candidates.run")
ROWS = [
    f"q{q} Q0 q{q}{s}{i} {1 + i + 3 * (s == 'm')} {9 - i} x" for q in range(2) for s in "fm" for i in range(3)
]
Damage = Callable[[bytes], bytes]


def line(number: int, change: Callable[[bytes], bytes]) -> Damage:
    """Changes one line of a file."""

    def damage(content: bytes) -> bytes:
        lines = content.splitlines()
        lines[number - 1] = change(lines[number - 1])
        return b"\n".join(lines) + b"\n"

    return damage


def last_word(new: bytes) -> Callable[[bytes], bytes]:
    return lambda text: re.sub(rb"\S+$", new, text)


EVERY_FILE: dict[str, tuple[Damage, str]] = {
    "non-UTF-8": (line(2, lambda text: text + b"\xe9\xff"), ":2: not UTF-8"),
    "UTF-16": (lambda content: content.decode().encode("utf-16"), ":1: not UTF-8"),
    "empty file": (lambda content: b"", ": is empty"),
    "huge line": (line(2, lambda text: text + b"x" * (17 << 20)), ":2: longer than 16 MB"),
    "binary": (line(1, lambda text: bytes(range(128, 256))), ":1: not UTF-8"),
    "one word": (line(2, lambda text: b"word"), ":2: "),
}
TABLES: dict[str, tuple[Damage, str]] = {
    "missing column": (
        line(2, lambda text: text.rsplit(b"\t" if b"\t" in text else None, 1)[0]),
        ":2: expected",
    ),
    "one column too many": (line(2, lambda text: text + b"\tmore"), ":2: expected"),
}
ONE_FILE: list[tuple[str, str, Damage, str]] = [
    ("docs.jsonl", "truncated JSON", line(3, lambda text: text[:-2]), ":3: not a JSON object: "),
    ("docs.jsonl", "single quotes", line(3, lambda text: text.replace(b'"', b"'")), ":3: not a JSON object"),
    ("docs.jsonl", "a list", line(1, lambda text: b"[" + text + b"]"), ":1: not a JSON object but list"),
    ("docs.jsonl", "a number", line(1, lambda text: b"5"), ":1: not a JSON object but int"),
    ("docs.jsonl", "null", line(1, lambda text: b"null"), ":1: not a JSON object but NoneType"),
    ("docs.jsonl", "nested deeply", line(1, lambda text: b"[" * 100_000), ":1: not a JSON object"),
    ("docs.jsonl", "float id", line(1, lambda text: text.replace(b'"q0f0"', b"1.5")), ":1: doc_id: is not a string without white space, or an integer"),
    ("docs.jsonl", "NaN id", line(1, lambda text: text.replace(b'"q0f0"', b"NaN")), ":1: doc_id"),
    ("docs.jsonl", "no id", line(2, lambda text: b'{"title": "t"}'), ":2: doc_id: is missing"),
    ("docs.jsonl", "no title", line(2, lambda text: b'{"doc_id": "x"}'), ":2: title: is missing"),
    ("docs.jsonl", "boolean id", line(1, lambda text: text.replace(b'"q0f0"', b"true")), ":1: doc_id: is not a string"),
    ("docs.jsonl", "null id", line(1, lambda text: text.replace(b'"q0f0"', b"null")), ":1: doc_id"),
    ("docs.jsonl", "list id", line(1, lambda text: text.replace(b'"q0f0"', b"[1]")), ":1: doc_id"),
    ("docs.jsonl", "empty id", line(1, lambda text: text.replace(b'"q0f0"', b'""')), ":1: doc_id"),
    ("docs.jsonl", "id with a space", line(1, lambda text: text.replace(b'"q0f0"', b'"q0 f0"')), ":1: doc_id: is not a string without white"),
    ("docs.jsonl", "id with a newline", line(1, lambda text: text.replace(b'"q0f0"', b'"q0\\nf0"')), ":1: doc_id"),
    ("docs.jsonl", "duplicate document", line(2, lambda text: text.replace(b"q0f1", b"q0f0")), ":2: doc_id: 'q0f0' was already given on line 1"),
    ("docs.jsonl", "blank title", line(1, lambda text: text.replace(b"Title q0f0", b"  ")), ":1: title: is not a text"),
    ("docs.jsonl", "title a number", line(1, lambda text: text.replace(b'"Title q0f0"', b"7")), ":1: title: is not a text"),
    ("docs.jsonl", "text a number", line(1, lambda text: text.replace(b"}", b', "text": 7}')), ":1: text"),
    ("docs.jsonl", "a number in words", line(1, lambda text: text.replace(b"}", b', "pred_qual": "0.5"}')), ":1: pred_qual: is not a number from 0"),
    ("docs.jsonl", "a number below 0", line(1, lambda text: text.replace(b"}", b', "num_sitelinks": -1}')), ":1: num_sitelinks: is not a number from 0"),
    ("docs.jsonl", "an endless number", line(1, lambda text: text.replace(b"}", b', "num_sitelinks": 1' + b"0" * 400 + b"}")), ":1: num_sitelinks: is not a number from 0"),
    ("docs.jsonl", "a title twice", line(2, lambda text: text.replace(b"}", b', "title": "Another"}')), ":2: title: is given twice"),
    ("docs.jsonl", "a name twice, written otherwise", line(2, lambda text: text.replace(b"}", b', "titl\\u0065": "Another"}')), ":2: title: is given twice"),
    ("queries.tsv", "blank text", line(1, lambda text: b"q0\t  "), ":1: text: is empty"),
    ("queries.tsv", "blank id", line(1, lambda text: b" \tTopic"), ":1: query_id"),
    ("queries.tsv", "id with a space", line(1, lambda text: b"q 0\tTopic"), ":1: query_id"),
    ("queries.tsv", "duplicate query", line(2, lambda text: b"q0\tTopic"), ":2: query_id: 'q0' was already given on line 1"),
    ("queries.tsv", "a header", lambda content: b"query_id text\n" + content, ":1: expected 2 columns"),
    ("qrels.txt", "word for a grade", line(3, last_word(b"high")), ":3: relevance: 'high' is not an integer"),
    ("qrels.txt", "underscored grade", line(1, last_word(b"1_0")), ":1: relevance: '1_0' is not an integer"),
    ("qrels.txt", "fraction for a grade", line(3, last_word(b"0.5")), ":3: relevance"),
    ("qrels.txt", "NaN for a grade", line(3, last_word(b"nan")), ":3: relevance"),
    ("qrels.txt", "endless grade", line(3, last_word(b"9" * 5000)), ":3: relevance"),
    ("qrels.txt", "endless id", line(3, lambda text: text.replace(b"q0f2", b"z" * 200_000)), ":3: doc_id: 'zzz"),
    ("queries.tsv", "endless words", lambda content: content + b"q \xc3\xa9 " * 50_000 + b"\n", ":3: expected 2 columns"),
    ("groups.tsv", "endless group", line(2, lambda text: b"q0f1\tgender\t" + b"a b " * 50_000), ":2: group: 'a b a b"),
    ("qrels.txt", "unknown document", line(3, lambda text: text.replace(b"q0f2", b"zz")), ":3: doc_id: 'zz' is not in docs.jsonl"),
    ("qrels.txt", "unknown query", line(3, lambda text: text.replace(b"q0 ", b"q7 ")), ":3: query_id: 'q7' is not in queries.tsv"),
    ("qrels.txt", "judged twice", lambda content: content + b"q0 0 q0f0 5\n", ":13: doc_id: 'q0f0' was judged 1 on line 1 and 5 here"),
    ("groups.tsv", "spaces for tabs", line(2, lambda text: text.replace(b"\t", b" ")), ":2: expected 3 columns separated by a tab (doc_id, attribute, group), found 1 (spaces are not tabs)"),
    ("groups.tsv", "unknown attribute", line(2, lambda text: text.replace(b"gender", b"age")), ":2: attribute"),
    ("groups.tsv", "empty group", line(2, lambda text: b"q0f1\tgender\t "), ":2: group: '' is not a group of gender"),
    ("groups.tsv", "misspelt attribute", line(2, lambda text: text.replace(b"gender", b"gendr")), ":2: attribute: 'gendr' is not declared; did you mean 'gender'?"),
    ("groups.tsv", "misspelt group", line(2, lambda text: text.replace(b"female", b"Femal")), ":2: group: 'Femal' is not a group of gender; did you mean"),
    ("groups.tsv", "unknown document", line(2, lambda text: b"zz\tgender\tmale"), ":2: doc_id: 'zz' is not in docs.jsonl"),
    ("candidates.run", "word for a rank", line(2, lambda text: text.replace(b" 2 ", b" two ")), ":2: rank: 'two' is not an integer"),
    ("candidates.run", "rank twice", line(2, lambda text: text.replace(b" 2 ", b" 1 ")), ":2: rank: 1 was already given on line 1"),
    ("candidates.run", "document twice", line(2, lambda text: text.replace(b"q0f1", b"q0f0")), ":2: doc_id: 'q0f0' was already ranked on line 1"),
    ("candidates.run", "unknown document", line(2, lambda text: text.replace(b"q0f1", b"zz")), ":2: doc_id: 'zz' is not in docs.jsonl"),
    ("candidates.run", "unknown query", line(2, lambda text: text.replace(b"q0 ", b"q7 ")), ":2: query_id"),
]  # fmt: skip
CASES = [
    *((file, name, *case) for file in FILES for name, case in EVERY_FILE.items()),
    *((file, name, *case) for file in FILES[1:] for name, case in TABLES.items()),
    *ONE_FILE,
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = write_folder(tmp_path / "mine", balanced(2, 3, 3))
    write(made / "candidates.run", ROWS)
    return made


def test_there_are_sixty_kinds_and_the_whole_folder_is_sound(folder: Path) -> None:
    assert len(CASES) >= 60
    ran("datasets", "show", folder)


@pytest.mark.parametrize(("file", "name", "damage", "place"), CASES, ids=[f"{c[0]}: {c[1]}" for c in CASES])
def test_a_broken_folder_says_where(folder: Path, file: str, name: str, damage: Damage, place: str) -> None:
    path = folder / file
    path.write_bytes(damage(path.read_bytes()))
    found = llmfair("datasets", "show", folder)
    assert found.code == 2, found.out
    assert f"{file}{place}" in found.err, found.err
    assert "Traceback" not in found.err and found.out == ""
    assert len(found.err.splitlines()) <= 7 and max(map(len, found.err.splitlines())) < 2_100
    assert found.err.splitlines()[-1].startswith("  "), "a hint"


@pytest.mark.parametrize("file", FILES)
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
def test_what_editors_do_to_files_is_accepted(folder: Path, file: str, harmless: Damage) -> None:
    before = llmfair("datasets", "show", folder, "--json").json["fingerprint"]
    path = folder / file
    path.write_bytes(harmless(path.read_bytes()))
    found = llmfair("datasets", "show", folder, "--json")
    assert found.code == 0 and found.json["fingerprint"] == before


def test_a_folder_in_place_of_a_file(folder: Path) -> None:
    (folder / "docs.jsonl").unlink()
    (folder / "docs.jsonl").mkdir()
    refuses("docs.jsonl", "listwise", "-d", folder)
