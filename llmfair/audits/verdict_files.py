"""`verdicts.csv` read back: every figure of a pairwise audit follows from it."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from llmfair.errors import UsageError
from llmfair.records import PairAnswer, PairKind, Side, Verdict

HINT = "the command that began the run writes it anew"


def read_verdicts(path: Path) -> list[Verdict]:
    """The verdicts of a run folder's file, in its order. Raises UsageError naming the line that cannot be read."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return list(_verdicts(path, csv.DictReader(file)))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}.", HINT) from None


def _verdicts(path: Path, rows: csv.DictReader[str]) -> Iterator[Verdict]:
    try:
        yield from map(_verdict, rows)
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        raise UsageError(f"{path}:{rows.line_num}: is not a verdict: {error}.", HINT) from None


def _verdict(row: dict[str, str]) -> Verdict:
    kinds: dict[str, PairKind] = {kind: kind for kind in get_args(PairKind)}
    return Verdict(
        query_id=row["query_id"],
        kind=kinds[row["kind"]],
        number=int(row["pair"]),
        draw=int(row["draw"]),
        protected=row["protected_doc_id"],
        unprotected=row["unprotected_doc_id"],
        first=_answer(row, "first"),
        second=_answer(row, "second"),
    )


def _answer(row: dict[str, str], order: str) -> PairAnswer:
    winner, problem, margin = (row[f"{order}_{column}"] for column in ("answer", "problem", "margin"))
    if not winner and not problem:
        raise ValueError(f"{order}_answer and {order}_problem are empty")
    return PairAnswer(
        winner=Side(winner) if winner else None,
        problem=problem or None,
        margin=float(margin) if margin else None,
    )
