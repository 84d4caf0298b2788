"""What a pairwise audit found, besides what every audit has."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from sys import intern
from typing import Annotated, Literal, Self, get_args

from msgspec import Meta
from msgspec.structs import replace

from llmfair.audits.runs.stopping import StoppingPoint
from llmfair.backends.python import SCORES
from llmfair.io.files import integer, number, read_csv
from llmfair.nouns import Cell, Key, PairAnswer, PairStratum, PairVerdict, Side, by_query, pair_answer
from llmfair.results import (
    AnswerCounts,
    Count,
    Counts,
    DesignFacts,
    Finding,
    JsonObject,
    OddsPower,
    Results,
    Sha256,
    Share,
)
from llmfair.rundir import csv_lines


class PairGrades(JsonObject, frozen=True):
    """Of a relevance stratum with several grades: whether pairs are of one, else how much higher the protected item
    of a pair is graded, on average over queries."""

    matched: bool
    difference: float | None


class PairwiseFacts(DesignFacts, frozen=True, kw_only=True):
    """What was asked; `pairs` of a query and stratum, at most `max_pairs` of a stratum where it stops when settled.

    `judged`: items of each group, and how many are relevant; `odds_of_label_error`: those of a fair ranker by stratum,
    with the share `label_error` of grades wrong.
    """

    pairs: Count | None
    form: Literal["order", "letter", "scores"]
    answers: Literal["text", "margin"]
    constrained: bool
    noise_share: Share
    repeats: Count
    weights: Literal["macro", "pooled"]
    adjust: Literal["holm", "bh"] = "holm"
    sequential: bool
    max_pairs: Count | None
    judged: Mapping[str, tuple[Count, Count]] = {}
    label_error: Share | None = None
    odds_of_label_error: Mapping[str, float] | None = None
    prompt_sha256: Sha256
    pairs_asked: Counts = {}
    without_pairs: Mapping[str, Sequence[str]] = {}
    grades: Mapping[str, PairGrades] | None = None

    @property
    def prompted(self) -> bool:
        return self.form != SCORES


CellCounts = Mapping[Cell, Count]
"""Pairs by what both answers came to."""
CellShares = Mapping[Cell, Share]
"""Of a query on average; they sum to 1."""


class PairAnswers(AnswerCounts, frozen=True, kw_only=True):
    """Answers on one relevance stratum; `mass`: of the first token's probability, what both labels hold together."""

    answers: Count
    problems: Counts
    mass: Share | None = None

    @property
    def asked(self) -> int:
        return self.answers

    @property
    def readable(self) -> int:
        return self.answers - self.unparseable

    @property
    def problem(self) -> str | None:
        problems = (name for name in self.problems if name != "tie")
        return max(problems, key=self.problems.__getitem__, default=None)


class Bound(JsonObject, frozen=True):
    """All that is known of the size of odds whose answers nearly all follow the position, or favour one group."""

    side: Literal["at most", "at least"]
    odds: float

    @property
    def limits(self) -> tuple[float | None, float | None]:
        """The odds' low and high end, of which one is known."""
        return (None, self.odds) if self.side == "at most" else (self.odds, None)


class PairFinding(Finding, frozen=True, kw_only=True):
    """What is concluded of a relevance stratum; where no odds are defined, nothing stands behind it.

    `bound` stands in the place of an interval where the odds have no size; `reason` then says why.
    """

    p: Share | None = None
    test: str | None = None
    queries: Count | None = None
    error: float | None = None
    power: OddsPower | None = None
    consistent_share: Share | None = None
    icc: float | None = None
    design_effect: float | None = None
    worst_case: tuple[Share, Share] | None = None
    bound: Bound | None = None

    def barred(self, reason: str) -> Self:
        return replace(super().barred(reason), bound=None)


class PairwiseResults(Results, frozen=True, kw_only=True):
    """llmfair pairwise; results.json of its run folder."""

    task: Literal["pairwise"]
    design: PairwiseFacts
    headline: Annotated[str | None, Meta(description="The measure that conclusions are drawn of.")]
    cells: Mapping[str, CellCounts]
    shares: Mapping[str, CellShares | None]
    answers: Mapping[str, PairAnswers]
    stopping: Mapping[str, StoppingPoint]
    findings: Mapping[str, PairFinding]

    def of_conditions(self) -> Mapping[str, Collection[str]]:
        stopped = {"stopping": self.stopping} if self.design.sequential else {}
        return {**super().of_conditions(), "shares": self.shares, "answers": self.answers, **stopped}


# `verdicts.csv`, written and read back: every figure of a pairwise audit follows from it.


COLUMNS = (
    "query_id", "stratum", "pair", "draw", "protected_doc_id", "unprotected_doc_id", "first_answer", "second_answer",
    "first_problem", "second_problem", "first_margin", "second_margin", "cell", "verdict",
)  # fmt: skip


def verdicts_lines(by_key: Mapping[Key, Sequence[PairVerdict]]) -> Iterator[str]:
    """The file's lines: both answers on every pair, by stratum, contrast, query, pair and draw; a last column says of
    which contrast, where there are several."""
    several = any(key.contrast for key in by_key)
    rows = (
        [
            v.query_id, v.stratum, v.number, v.draw, v.protected, v.unprotected,
            *(of.winner for of in v.answers), *(of.problem for of in v.answers), *(of.margin for of in v.answers),
            v.cell, v.outcome,
            *[v.contrast] * several
        ]
        for _, verdicts in sorted(by_key.items())
        for _, of_query in by_query(verdicts)
        for v in of_query
    )  # fmt: skip
    return csv_lines((*COLUMNS, *["contrast"] * several), rows)


def read_verdicts(path: Path) -> list[PairVerdict]:
    """The verdicts of a run folder's file, in its order. Raises UsageError naming the line that cannot be read."""
    strata: dict[str, PairStratum] = {stratum: stratum for stratum in get_args(PairStratum)}
    places = set[tuple[str, str, str, int, int]]()

    def answer(row: dict[str, str], order: str) -> PairAnswer:
        winner, problem, margin = (row[f"{order}_{column}"] for column in ("answer", "problem", "margin"))
        if not winner and not problem:
            raise ValueError(f"{order}_answer and {order}_problem are empty")
        side, size = Side(winner) if winner else None, number(margin) if margin else None
        return pair_answer(side, problem or None, size)

    def verdict(row: dict[str, str]) -> PairVerdict:
        contrast = intern(row.get("contrast", ""))
        place = (row["query_id"], row["stratum"], contrast, integer(row["pair"]), integer(row["draw"]))
        if place in places:
            raise ValueError("it is there twice")
        places.add(place)
        query_id, stratum, _, number, draw = place
        protected, unprotected = (intern(row[f"{side}_doc_id"]) for side in Side)
        first, second = (answer(row, order) for order in ("first", "second"))
        return PairVerdict(
            intern(query_id), strata[stratum], number, draw, protected, unprotected, first, second, contrast
        )

    return read_csv(path, "a verdict", verdict)
