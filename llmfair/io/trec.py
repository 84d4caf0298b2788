"""TREC files: runs, qrels and groups, read with the place of every mistake and written so that nothing ties."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from llmfair.errors import UsageError, did_you_mean
from llmfair.io.files import integer, number, text_lines, wrong
from llmfair.nouns import ANY_GROUP, Attribute, Qrels, Ranking

T = TypeVar("T")
ByQuery = dict[str, dict[str, tuple[int, int]]]
"""By query and document: a relevance or a rank, and the line where it stands."""
RESERVED_QUERY = "all"
RESERVED = "'all' stands for all queries in results; choose another"
ONE_LINE = "one line of a query and document, each with a rank of its own"
QRELS = ("query_id", "0", "doc_id", "relevance")
RUN = ("query_id", "Q0", "doc_id", "rank", "score", "tag")
GROUPS = ("doc_id", "attribute", "group")
UNKNOWN = "@UNKNOWN"
"""A document's group when nobody knows it."""
DECLARATION = 'protected = ["…"], unprotected = ["…"]'
"""What attributes.toml says of an attribute: the groups of either side, and what prompts call them."""


def columns(
    path: Path, names: Sequence[str], separator: str | None = None, hint: str = ""
) -> Iterator[tuple[int, list[str]]]:
    """Lines split into exactly these columns, by `separator` or white space. Raises UsageError naming file and line."""
    by = "a tab" if separator else "white space"
    hint = hint or f"lines of {', '.join(names)}, separated by {by}"
    for line, text in text_lines(path, hint):
        fields = text.split(separator)
        if len(fields) != len(names):
            expected = f"expected {len(names)} columns separated by {by} ({', '.join(names)})"
            raise wrong(path, line, "", f"{expected}, found {len(fields)}", hint)
        yield line, list(map(str.strip, fields)) if separator else fields


def cell(path: Path, line: int, field: str, read: Callable[[str], T], text: str) -> T:
    """What a cell is read as. Raises UsageError naming file, line and field."""
    try:
        return read(text)
    except ValueError as error:
        raise wrong(path, line, field, str(error), f"{field} in every line") from None


def read_qrels(path: Path, hint: str = "") -> ByQuery:
    """Judgements as `{query_id: {doc_id: (relevance, line)}}`. Raises UsageError, of a pair judged in two ways too."""
    judged = ByQuery()
    for line, (query_id, _, doc_id, text) in columns(path, QRELS, hint=hint):
        relevance = cell(path, line, "relevance", integer, text)
        earlier, first = judged.setdefault(query_id, {}).setdefault(doc_id, (relevance, line))
        if earlier != relevance:
            what = f"'{doc_id}' was judged {earlier} on line {first} and {relevance} here"
            raise wrong(path, line, "doc_id", what, "one judgement of a query and document")
    return judged


def read_ranks(path: Path) -> ByQuery:
    """Candidate lists of a six-column run as `{query_id: {doc_id: (rank, line)}}`, ranks distinct in a query."""
    ranked = ByQuery()
    places = dict[tuple[str, int], int]()
    for line, (query_id, _, doc_id, text, _, _) in columns(path, RUN):
        rank = cell(path, line, "rank", integer, text)
        _, first = ranked.setdefault(query_id, {}).setdefault(doc_id, (rank, line))
        if first != line:
            raise wrong(path, line, "doc_id", f"'{doc_id}' was already ranked on line {first}", ONE_LINE)
        if (first := places.setdefault((query_id, rank), line)) != line:
            raise wrong(path, line, "rank", f"{rank} was already given on line {first}", ONE_LINE)
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


def read_run(path: Path, scores_kept: bool = False, hint: str = "") -> RunFile:
    """A six-column run in the order trec_eval gives it; the rank column has to be a number, and orders nothing.

    Rankings without ties are without scores, too, unless these are kept: a large run is held many times. Raises
    UsageError.
    """
    scored = dict[str, dict[str, float]]()
    last = dict[str, tuple[float, float]]()
    tag, rising, compared = "", True, False
    for line, (query_id, _, doc_id, rank, text, tag) in columns(path, RUN, hint=hint):  # noqa: B007
        place, score = cell(path, line, "rank", number, rank), cell(path, line, "score", number, text)
        scores = scored.setdefault(query_id, {})
        if doc_id in scores:
            raise wrong(
                path, line, "doc_id", f"'{doc_id}' was already ranked in query '{query_id}'", ONE_LINE
            )
        scores[doc_id] = score
        if rising:  # of most runs the second line says that it is not
            before, last[query_id] = last.get(query_id), (place, score)
            if before is not None:
                rising, compared = (place - before[0]) * (score - before[1]) > 0, True
    return run_of(path, scored, tag, scores_kept, upside_down=rising and compared)


def run_of(
    path: Path, scored: dict[str, dict[str, float]], tag: str, scores_kept: bool, upside_down: bool = False
) -> RunFile:
    """A run of the scores that a file gives the documents of every query; `scored` is emptied. Raises UsageError."""
    if RESERVED_QUERY in scored:
        raise wrong(path, 0, "query_id", RESERVED, "choose another")
    rankings, tied = {}, {}
    for query_id in list(scored):
        scores = scored.pop(query_id)  # a large run is not held twice
        best_first = trec_order(scores)
        stored = tuple(score for score, _ in best_first)
        _, shared = np.unique(stored, return_counts=True)
        ties = len(shared) < len(stored)
        if ties:
            tied[query_id] = int(shared[shared > 1].sum())
        rankings[query_id] = Ranking(
            query_id, tuple(doc_id for _, doc_id in best_first), stored if ties or scores_kept else None
        )
    return RunFile(tag, rankings, tied, upside_down)


def trec_order(scores: Mapping[str, float]) -> list[tuple[float, str]]:
    """Scores and documents as trec_eval orders a run: 32-bit score falling, ties by doc_id falling as text."""
    with np.errstate(over="ignore"):
        stored = np.array(list(scores.values()), dtype=np.float64).astype(np.float32).tolist()
    return sorted(zip(stored, scores, strict=True), reverse=True)


def read_groups(
    path: Path,
    attributes: Mapping[str, Attribute] | None,
    declared_in: str = "attributes.toml",
    wanted: Collection[str] = (),
) -> Iterator[tuple[int, str, str, str]]:
    """Lines of a groups file: (line, doc_id, attribute, group); the group may be `@UNKNOWN`.

    Raises UsageError for groups that `attributes`, unless None, do not declare, with how to declare them in
    `declared_in`; and for an attribute that is spelt much like one of these, unless it is `wanted`.
    """
    declared = {name: declared_groups(attribute) for name, attribute in (attributes or {}).items()}
    for line, (doc_id, attribute, group) in columns(path, GROUPS, "\t"):
        near = nearest(attribute, declared) if attribute not in declared and attribute not in wanted else ""
        if near:
            what = f"'{attribute}' is not declared{near}"
            raise wrong(
                path, line, "attribute", what, f"declare [{attribute}] in {declared_in}: {DECLARATION}"
            )
        groups = declared.get(attribute)
        if attributes is not None and not (group and (groups is None or group in groups or group == UNKNOWN)):
            raise no_group(path, line, "group", attribute, group, groups or (), declared_in)
        yield line, doc_id, attribute, group


def no_group(
    path: Path, line: int, field: str, attribute: str, group: str, groups: Collection[str], declared_in: str
) -> UsageError:
    """Of a group that an attribute does not declare."""
    names = nearest(group, groups) or f"; it has {', '.join(sorted(groups))}"
    declare = f'declare it protected, unprotected or, of neither group, other = ["{group}"] in {declared_in}'
    return wrong(path, line, field, f"'{group}' is not a group of {attribute}{names}", declare)


def nearest(name: str, names: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the nearest known name, or nothing."""
    return did_you_mean(name, names, alike=0.7).replace(" Did", "; did")


def declared_groups(attribute: Attribute) -> set[str] | None:
    """All groups an attribute declares, or None when it has any: one side is open (`*`), or it declares none."""
    declared = {*attribute.protected, *attribute.unprotected, *attribute.other}
    return None if ANY_GROUP in declared else declared or None


def run_lines(rankings: Iterable[Ranking], tag: str) -> Iterator[str]:
    """A TREC run, queries sorted: scores fall strictly (n − rank + 1), since ties would be broken by doc_id."""
    for ranking in sorted(rankings, key=lambda ranking: ranking.query_id):
        n = len(ranking.doc_ids)
        for rank, doc_id in enumerate(ranking.doc_ids, start=1):
            yield f"{ranking.query_id} Q0 {doc_id} {rank} {n - rank + 1} {tag}\n"


def read_scores(path: Path, hint: str) -> dict[tuple[str, tuple[str, ...]], tuple[float, ...]]:
    """What `scores_lines` writes, by query_id and the documents best first. Raises UsageError."""
    rankings = list[tuple[str, dict[str, float]]]()
    for line, (query_id, doc_id, text) in columns(path, ("query_id", "doc_id", "score"), "\t", hint):
        if not rankings or rankings[-1][0] != query_id or doc_id in rankings[-1][1]:
            rankings.append((query_id, {}))
        rankings[-1][1][doc_id] = cell(path, line, "score", number, text)
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
