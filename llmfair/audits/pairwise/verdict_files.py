"""`verdicts.csv`, written and read back: every figure of a pairwise audit follows from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from sys import intern
from typing import get_args

from llmfair.io.files import number, read_csv
from llmfair.nouns import PairAnswer, PairStratum, PairVerdict, Side, by_query, pair_answer
from llmfair.rundir import csv_lines

COLUMNS = (
    "query_id", "condition", "pair", "draw", "protected_doc_id", "unprotected_doc_id", "first_answer", "second_answer",
    "first_problem", "second_problem", "first_margin", "second_margin", "cell", "verdict",
)  # fmt: skip


def verdicts_lines(by_stratum: Mapping[str, Sequence[PairVerdict]]) -> Iterator[str]:
    """The file's lines: both answers on every pair, by stratum, query, pair and draw."""
    ordered = (
        v for _, verdicts in sorted(by_stratum.items()) for _, of_it in by_query(verdicts) for v in of_it
    )
    rows = (
        [
            v.query_id, v.stratum, v.number, v.draw, v.protected, v.unprotected,
            v.first.winner and v.first.winner.value, v.second.winner and v.second.winner.value,
            v.first.problem, v.second.problem, v.first.margin, v.second.margin, v.cell.value, v.outcome.value,
        ]
        for v in ordered
    )  # fmt: skip
    return csv_lines(COLUMNS, rows)


def read_verdicts(path: Path) -> list[PairVerdict]:
    """The verdicts of a run folder's file, in its order. Raises UsageError naming the line that cannot be read."""
    known = set[tuple[object, ...]]()

    def verdict(row: dict[str, str]) -> PairVerdict:
        found = _verdict(row)
        asked = found.query_id, found.stratum, found.number, found.draw
        if asked in known:
            raise ValueError("it is there twice")
        known.add(asked)
        return found

    return read_csv(path, "a verdict", verdict)


def _verdict(row: dict[str, str]) -> PairVerdict:
    strata: dict[str, PairStratum] = {stratum: stratum for stratum in get_args(PairStratum)}
    return PairVerdict(
        query_id=intern(row["query_id"]),
        stratum=strata[row["condition"]],
        number=_count(row["pair"]),
        draw=_count(row["draw"]),
        protected=intern(row["protected_doc_id"]),
        unprotected=intern(row["unprotected_doc_id"]),
        first=_answer(row, "first"),
        second=_answer(row, "second"),
    )


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"'{text[:20]}' is no number of pairs or draws")
    return int(text)


def _answer(row: dict[str, str], order: str) -> PairAnswer:
    winner, problem, margin = (row[f"{order}_{column}"] for column in ("answer", "problem", "margin"))
    if not winner and not problem:
        raise ValueError(f"{order}_answer and {order}_problem are empty")
    return pair_answer(
        winner=Side(winner) if winner else None,
        problem=problem or None,
        margin=number(margin) if margin else None,
    )
