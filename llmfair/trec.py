"""TREC files: runs, qrels and groups, read with the place of every mistake and written so that nothing ties."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from llmfair.errors import UsageError
from llmfair.records import Qrels, Ranking

SHOWN_PROBLEMS = 5
LONGEST_LINE = 16 << 20


class Problems:
    """Collects what is wrong with a user's files, so that one look mends several mistakes."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def add(self, path: Path, line: int, field: str, text: str) -> None:
        place = f"{path}:{line}" if line else f"{path}"
        self.found.append(f"{place}: {field}: {text}" if field else f"{place}: {text}")

    def raise_any(self, hint: str) -> None:
        """Raises UsageError with the first five problems and the total number."""
        if not self.found:
            return
        shown = self.found[:SHOWN_PROBLEMS]
        more = len(self.found) - len(shown)
        raise UsageError("\n".join([*shown, *([f"and {more} more"] if more else [])]), hint)


def text_lines(path: Path, problems: Problems) -> Iterator[tuple[int, str]]:
    """The numbered non-blank lines of a UTF-8 file; a byte-order mark and CRLF are accepted."""
    found = False
    with path.open("rb") as file:
        for number in itertools.count(1):
            raw = file.readline(LONGEST_LINE)
            if not raw:
                break
            found = True
            if len(raw) == LONGEST_LINE and not raw.endswith(b"\n"):
                problems.add(path, number, "", f"longer than {LONGEST_LINE >> 20} MB")
                while (rest := file.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
                    pass
                continue
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                problems.add(path, number, "", f"not UTF-8 (byte {error.start + 1} of the line)")
                continue
            if line.strip():
                yield number, line
    if not found:
        problems.add(path, 0, "", "is empty")


def columns(
    path: Path, problems: Problems, count: int, separator: str | None
) -> Iterator[tuple[int, list[str]]]:
    """Lines split into exactly `count` columns, by `separator` or by white space (None)."""
    for number, line in text_lines(path, problems):
        fields = [field.strip() for field in line.split(separator)]
        if len(fields) == count:
            yield number, fields
            continue
        by = "a tab" if separator else "white space"
        note = " (spaces are not tabs)" if separator and len(fields) == 1 else ""
        problems.add(
            path, number, "", f"expected {count} columns separated by {by}, found {len(fields)}{note}"
        )


def integer(text: str) -> int | None:
    """The integer a field holds, or None; stricter than int(), which reads `1_0` and `١`."""
    body = text[1:] if text[:1] in "+-" else text
    return int(text) if body.isascii() and body.isdigit() and len(body) < 19 else None


def read_qrels(path: Path, problems: Problems) -> dict[str, dict[str, tuple[int, int]]]:
    """Judgements as `{query_id: {doc_id: (relevance, line)}}`; the same pair judged differently is a problem."""
    judged: dict[str, dict[str, tuple[int, int]]] = {}
    for number, (query_id, _, doc_id, text) in columns(path, problems, 4, None):
        relevance = integer(text)
        if relevance is None:
            problems.add(path, number, "relevance", f"'{text}' is not an integer")
            continue
        earlier = judged.setdefault(query_id, {}).setdefault(doc_id, (relevance, number))
        if earlier[0] != relevance:
            problems.add(
                path,
                number,
                "doc_id",
                f"'{doc_id}' was judged {earlier[0]} on line {earlier[1]} and {relevance} here",
            )
    return judged


def read_ranks(path: Path, problems: Problems) -> dict[str, dict[str, tuple[int, int]]]:
    """Candidate lists of a six-column run as `{query_id: {doc_id: (rank, line)}}`, ranks distinct in a query."""
    ranked: dict[str, dict[str, tuple[int, int]]] = {}
    places: dict[tuple[str, int], int] = {}
    for number, (query_id, _, doc_id, text, _, _) in columns(path, problems, 6, None):
        rank = integer(text)
        if rank is None:
            problems.add(path, number, "rank", f"'{text}' is not an integer")
            continue
        if doc_id in ranked.setdefault(query_id, {}):
            problems.add(
                path,
                number,
                "doc_id",
                f"'{doc_id}' was already ranked on line {ranked[query_id][doc_id][1]}",
            )
        elif (earlier := places.setdefault((query_id, rank), number)) != number:
            problems.add(path, number, "rank", f"{rank} was already given on line {earlier}")
        else:
            ranked[query_id][doc_id] = (rank, number)
    return ranked


def run_lines(rankings: Iterable[Ranking], tag: str) -> Iterator[str]:
    """A TREC run, queries sorted: scores fall strictly (n − rank + 1), since ties would be broken by doc_id."""
    for ranking in sorted(rankings, key=lambda ranking: ranking.query_id):
        n = len(ranking.doc_ids)
        for rank, doc_id in enumerate(ranking.doc_ids, start=1):
            yield f"{ranking.query_id} Q0 {doc_id} {rank} {n - rank + 1} {tag}\n"


def qrels_lines(qrels: Qrels) -> Iterator[str]:
    """Judgements, queries and documents sorted."""
    for query_id in sorted(qrels):
        for doc_id in sorted(qrels[query_id]):
            yield f"{query_id} 0 {doc_id} {qrels[query_id][doc_id]}\n"


def groups_lines(groups: Mapping[str, Mapping[str, tuple[str, ...]]]) -> Iterator[str]:
    """Groups of documents `{doc_id: {attribute: groups}}`, sorted by document and attribute."""
    for doc_id in sorted(groups):
        for attribute in sorted(groups[doc_id]):
            for group in groups[doc_id][attribute]:
                yield f"{doc_id}\t{attribute}\t{group}\n"


def write_whole(path: Path, lines: Iterable[str]) -> None:
    """Writes beside and renames, so that a half-written file is never read."""
    beside = path.with_name(path.name + ".tmp")
    with beside.open("w", encoding="utf-8", errors="surrogatepass", newline="\n") as file:
        file.writelines(lines)
    beside.replace(path)
