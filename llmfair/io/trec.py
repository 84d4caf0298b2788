"""TREC files: runs, qrels and groups, read with the place of every mistake and written so that nothing ties."""

from __future__ import annotations

import difflib
import gzip
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from llmfair.errors import UsageError
from llmfair.io import files
from llmfair.io.files import LONGEST_LINE
from llmfair.nouns import ANY_GROUP, Attribute, Qrels, Ranking

SHOWN_PROBLEMS = 5
MOST_PROBLEMS = 10_000
"""After so many a file is read no further: it is no slip."""
RESERVED_QUERY = "all"
QRELS = ("query_id", "0", "doc_id", "relevance")
RUN = ("query_id", "Q0", "doc_id", "rank", "score", "tag")
GROUPS = ("doc_id", "attribute", "group")
UNKNOWN = "@UNKNOWN"
"""A document's group when nobody knows it."""
DECLARATION = 'protected = ["…"], unprotected = ["…"]'
"""What attributes.toml says of an attribute: the groups of either side, and what prompts call them."""


class Problems:
    """Collects what is wrong with a user's files, so that one look mends several mistakes."""

    def __init__(self) -> None:
        self.first: list[str] = []
        self.count = 0

    def add(self, path: Path, line: int, field: str, text: str) -> None:
        self.count += 1
        if self.count <= SHOWN_PROBLEMS:  # a file of rubbish has a million
            place = f"{path}:{line}" if line else f"{path}"
            self.first.append(f"{place}: {field}: {text}" if field else f"{place}: {text}")

    def raise_any(self, hint: str) -> None:
        """Raises UsageError with the first five problems and the total number."""
        if not self.count:
            return
        more = self.count - len(self.first)
        unread = "; the rest is not read" if self.count > MOST_PROBLEMS else ""
        raise UsageError("\n".join([*self.first, *([f"and {more} more{unread}"] if more else [])]), hint)


def _raw_lines(path: Path, problems: Problems) -> Iterator[tuple[int, bytes]]:
    """The numbered lines of a file, unpacked when its content is gzip's; what cannot be read is a problem."""
    number = 0
    try:
        for number, raw in enumerate(files.lines(path), 1):
            if problems.count > MOST_PROBLEMS:
                return
            if len(raw) < LONGEST_LINE or raw.endswith(b"\n"):
                yield number, raw
            else:
                problems.add(path, number, "", f"longer than {LONGEST_LINE >> 20} MB; the rest is not read")
    except (EOFError, zlib.error, gzip.BadGzipFile):
        problems.add(path, number + 1, "", "the gzip file is damaged or cut off here")
    except OSError as error:
        problems.add(path, number, "", f"cannot be read: {error.strerror}")
    else:
        if not number:
            problems.add(path, 0, "", "is empty")


def whole_lines(path: Path, problems: Problems) -> Iterator[tuple[int, str]]:
    """The numbered lines of a UTF-8 file with their ends, gzip or not; a byte-order mark is left out."""
    for number, raw in _raw_lines(path, problems):
        try:
            yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            problems.add(path, number, "", f"not UTF-8 (byte {error.start + 1} of the line)")


def text_lines(path: Path, problems: Problems) -> Iterator[tuple[int, str]]:
    """The non-blank ones of them without their ends, be these LF or CRLF."""
    for number, whole in whole_lines(path, problems):
        line = whole.rstrip("\r\n")
        if line and not line.isspace():
            yield number, line


def columns(
    path: Path, problems: Problems, names: Sequence[str], separator: str | None
) -> Iterator[tuple[int, list[str]]]:
    """Lines split into exactly the columns of these names, by `separator` or by white space (None)."""
    for number, line in text_lines(path, problems):
        fields = line.split(separator)
        if len(fields) == len(names):
            yield number, list(map(str.strip, fields)) if separator else fields
            continue
        by = "a tab" if separator else "white space"
        note = " (spaces are not tabs)" if separator and len(fields) == 1 else ""
        expected = f"expected {len(names)} columns separated by {by} ({', '.join(names)})"
        problems.add(path, number, "", f"{expected}, found {len(fields)}{note}")


def integer(text: str) -> int | None:
    """The integer a field holds, or None; stricter than int(), which reads `1_0` and `١`."""
    body = text[1:] if text[:1] in "+-" else text
    return int(text) if body.isascii() and body.isdigit() and len(body) < 19 else None


def finite_number(text: str) -> float | None:
    """The finite number a field holds, or None; stricter than float(), which reads `1_0`, `nan` and `١`."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and text.isascii() and "_" not in text else None


def read_qrels(path: Path, problems: Problems) -> dict[str, dict[str, tuple[int, int]]]:
    """Judgements as `{query_id: {doc_id: (relevance, line)}}`; the same pair judged differently is a problem."""
    judged: dict[str, dict[str, tuple[int, int]]] = {}
    for number, (query_id, _, doc_id, text) in columns(path, problems, QRELS, None):
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
    for number, (query_id, _, doc_id, text, _, _) in columns(path, problems, RUN, None):
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


@dataclass(frozen=True, slots=True)
class RunFile:
    """A run as it stands: its tag, its rankings by query_id, and how many documents share their score.

    `tied` counts, per query that has any, the documents whose score another document of the query has too; its
    ranking keeps the scores, which alone tell where the order is that of the ids.
    `upside_down`: from line to line of every query the score rises with the rank, which speaks against the rank.
    """

    tag: str
    rankings: Mapping[str, Ranking]
    tied: Mapping[str, int]
    upside_down: bool = False


def read_run(path: Path, problems: Problems, scores_kept: bool = False) -> RunFile:
    """A six-column run in the order trec_eval gives it; the rank column has to be a number, and orders nothing.

    Rankings without ties are without scores, too, unless these are kept: a large run is held many times.
    """
    scored: dict[str, dict[str, float]] = {}
    last: dict[str, tuple[float, float]] = {}
    tag, rising, compared = "", True, False
    for number, fields in columns(path, problems, RUN, None):
        query_id, _, doc_id, rank, text, tag = fields
        place, score = finite_number(rank), finite_number(text)
        scores = scored.setdefault(query_id, {})
        if place is None:
            problems.add(path, number, "rank", f"'{rank}' is not a finite number")
        elif score is None:
            problems.add(path, number, "score", f"'{text}' is not a finite number")
        elif doc_id in scores:
            problems.add(path, number, "doc_id", f"'{doc_id}' was already ranked in query '{query_id}'")
        else:
            scores[doc_id] = score
            if rising:  # of most runs the second line says that it is not
                before, last[query_id] = last.get(query_id), (place, score)
                if before is not None:
                    rising, compared = (place - before[0]) * (score - before[1]) > 0, True
    return run_of(path, scored, tag, problems, scores_kept, upside_down=rising and compared)


def run_of(
    path: Path,
    scored: dict[str, dict[str, float]],
    tag: str,
    problems: Problems,
    scores_kept: bool,
    upside_down: bool = False,
) -> RunFile:
    """A run of the scores that a file gives the documents of every query; `scored` is emptied."""
    if RESERVED_QUERY in scored:
        problems.add(
            path, 0, "query_id", f"'{RESERVED_QUERY}' stands for all queries in results; choose another"
        )
    rankings, tied = {}, {}
    for query_id in list(scored):
        scores = scored.pop(query_id)  # a large run is not held twice
        best_first = _best_first(scores)
        stored = tuple(score for score, _ in best_first)
        _, shared = np.unique(stored, return_counts=True)
        ties = len(shared) < len(stored)
        if ties:
            tied[query_id] = int(shared[shared > 1].sum())
        rankings[query_id] = Ranking(
            query_id, tuple(doc_id for _, doc_id in best_first), stored if ties or scores_kept else None
        )
    return RunFile(tag, rankings, tied, upside_down)


def trec_order(scores: Mapping[str, float]) -> tuple[str, ...]:
    """The order trec_eval reads in a run: score falling as 32-bit float, ties by doc_id falling as text."""
    return tuple(doc_id for _, doc_id in _best_first(scores))


def _best_first(scores: Mapping[str, float]) -> list[tuple[float, str]]:
    """Documents in that order, with scores as trec_eval stores them: what is beyond the range of 32 bits ties."""
    with np.errstate(over="ignore"):
        stored = np.array(list(scores.values()), dtype=np.float64).astype(np.float32).tolist()
    return sorted(zip(stored, scores, strict=True), reverse=True)


def read_groups(
    path: Path,
    problems: Problems,
    known: Mapping[str, Attribute] | None,
    declared_in: str = "attributes.toml",
) -> Iterator[tuple[int, str, str, str]]:
    """Lines of a groups file: (line, doc_id, attribute, group); the group may be `@UNKNOWN`.

    An attribute or group that `known` does not declare is a problem at its first line only, with how to declare it
    in `declared_in`; without `known` (None) any name goes.
    """
    declared = {name: declared_groups(attribute) for name, attribute in (known or {}).items()}
    undeclared, strange = set[str](), set[tuple[str, str]]()
    for number, (doc_id, attribute, group) in columns(path, problems, GROUPS, "\t"):
        if known is None:
            yield number, doc_id, attribute, group
            continue
        if attribute in undeclared:
            continue
        if attribute not in declared:
            undeclared.add(attribute)
            if (number, attribute) == (1, "attribute"):
                problems.add(path, number, "", "names the columns; leave that line out")
                continue
            declare = f"; declare [{attribute}] in {declared_in}: {DECLARATION}"
            hint = nearest(attribute, declared) + declare
            problems.add(path, number, "attribute", f"'{attribute}' is not declared{hint}")
            continue
        groups = declared[attribute]
        if group and (groups is None or group in groups or group == UNKNOWN):
            yield number, doc_id, attribute, group
        elif (attribute, group) not in strange:
            strange.add((attribute, group))
            problems.add(path, number, "group", no_group(attribute, group, groups or (), declared_in))


def no_group(attribute: str, group: str, groups: Iterable[str], declared_in: str) -> str:
    """What is said of a group that an attribute does not declare."""
    declare = (
        f'; declare it protected, unprotected or, of neither group, other = ["{group}"] in {declared_in}'
    )
    hint = nearest(group, groups) or f"; it has {', '.join(sorted(groups))}{declare}"
    return f"'{group}' is not a group of {attribute}{hint}"


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the nearest known name, or nothing."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.7)
    return f"; did you mean '{found[0]}'?" if found else ""


def declared_groups(attribute: Attribute) -> set[str] | None:
    """All groups an attribute declares, or None when one side is open (`*`)."""
    declared = {*attribute.protected, *attribute.unprotected, *attribute.other}
    return None if ANY_GROUP in declared else declared


def run_lines(rankings: Iterable[Ranking], tag: str) -> Iterator[str]:
    """A TREC run, queries sorted: scores fall strictly (n − rank + 1), since ties would be broken by doc_id."""
    for ranking in sorted(rankings, key=lambda ranking: ranking.query_id):
        n = len(ranking.doc_ids)
        for rank, doc_id in enumerate(ranking.doc_ids, start=1):
            yield f"{ranking.query_id} Q0 {doc_id} {rank} {n - rank + 1} {tag}\n"


def read_scores(path: Path, problems: Problems) -> dict[tuple[str, tuple[str, ...]], tuple[float, ...]]:
    """A ranker's own scores as `scores_lines` writes them, by query_id and the documents best first.

    A document that comes again, or another query, begins the next ranking.
    """
    rankings: list[tuple[str, dict[str, float]]] = []
    for number, (query_id, doc_id, text) in columns(path, problems, ("query_id", "doc_id", "score"), "\t"):
        score = finite_number(text)
        if score is None:
            problems.add(path, number, "score", f"'{text}' is not a finite number")
            continue
        if not rankings or rankings[-1][0] != query_id or doc_id in rankings[-1][1]:
            rankings.append((query_id, {}))
        rankings[-1][1][doc_id] = score
    return {(query_id, tuple(scores)): tuple(scores.values()) for query_id, scores in rankings}


def scores_lines(rankings: Iterable[Ranking]) -> Iterator[str]:
    """A ranker's own scores, queries sorted, best first: query_id, doc_id, score."""
    for ranking in sorted(rankings, key=lambda ranking: ranking.query_id):
        for doc_id, score in zip(ranking.doc_ids, ranking.scores or (), strict=True):
            yield f"{ranking.query_id}\t{doc_id}\t{score!r}\n"


def qrels_lines(qrels: Qrels) -> Iterator[str]:
    """Judgements, queries and documents sorted."""
    for query_id in sorted(qrels):
        for doc_id, relevance in sorted(qrels[query_id].items()):
            yield f"{query_id} 0 {doc_id} {relevance}\n"


def groups_lines(groups: Mapping[str, Mapping[str, tuple[str, ...]]]) -> Iterator[str]:
    """Groups of documents `{doc_id: {attribute: groups}}`, sorted by document and attribute."""
    for doc_id in sorted(groups):
        for attribute in sorted(groups[doc_id]):
            for group in groups[doc_id][attribute]:
                yield f"{doc_id}\t{attribute}\t{group}\n"
