"""What a pairwise audit found, besides what every audit has."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum
from typing import Annotated, Literal, Self

from msgspec import Meta

from llmfair.audits.runs.settled import StoppingPoint
from llmfair.backends.python import SCORES
from llmfair.results import (
    AnswerCounts,
    Count,
    Counts,
    DesignFacts,
    Finding,
    HowDrawn,
    Results,
    Sha256,
    Share,
    after,
    left_out_without,
)


@dataclass(frozen=True)
class PairGrades:
    """Relevance grades of a relevance stratum that has several.

    `difference`: how much higher the protected item of a pair is graded, on average over queries.
    """

    lowest: int
    highest: int
    matched: bool
    difference: float | None


@dataclass(frozen=True, kw_only=True)
class PairwiseFacts(DesignFacts):
    """What was asked; `pairs` of a query and stratum, at most `max_pairs` of a stratum where it stops when settled."""

    pairs: Count | None = after("conditions")
    form: Literal["order", "letter", "scores"] = after("pairs")
    answers: Literal["text", "margin"] = after("form")
    constrained: bool = after("answers")
    noise_share: Share = after("constrained")
    repeats: Count = after("noise_share")
    weights: Literal["macro", "pooled"] = after("repeats")
    sequential: bool = after("weights")
    max_pairs: Count | None = after("sequential")
    prompt_sha256: Sha256 = after("max_pairs")
    probes: Counts = after("prompt_sha256", default_factory=dict)
    pairs_asked: Counts = after("probes", default_factory=dict)
    without_pairs: Mapping[str, Sequence[str]] = after("pairs_asked", default_factory=dict)
    fewer_pairs: Counts = after("without_pairs", default_factory=dict)
    passed_over: Counts = after("fewer_pairs", default_factory=dict)
    left_out: Mapping[str, str] = after("passed_over", default_factory=dict)
    grades: Mapping[str, PairGrades] | None = field(
        default=None, metadata={"needs": "grades", "after": "left_out"}
    )
    drawn: HowDrawn | None = field(default=None, metadata={"needs": "drawn", "after": "grades"})

    @property
    def prompted(self) -> bool:
        return self.form != SCORES


@dataclass(frozen=True, kw_only=True)
class PairAnswers(AnswerCounts):
    """Answers on one relevance stratum; `mass`: of the first token's probability, what both labels hold together."""

    answers: Count
    unparseable: Count = after("answers")
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
        problems = {name: n for name, n in self.problems.items() if name != "tie"}
        return max(problems, key=problems.__getitem__, default=None)


@dataclass(frozen=True)
class CellCounts:
    """Pairs by what both answers came to (verdicts.Cell)."""

    PP: Count
    UU: Count
    FF: Count
    SS: Count
    T: Count
    M1: Count
    M2: Count


@dataclass(frozen=True)
class CellShares:
    """Of a query on average; they sum to 1."""

    PP: Share
    UU: Share
    FF: Share
    SS: Share
    T: Share
    M1: Share
    M2: Share

    def of(self, *names: str) -> float:
        """The share of these cells together."""
        return fsum(getattr(self, name) for name in names)


@dataclass(frozen=True)
class OddsPower:
    """With what power odds at the nearer edge of the band are told from 1, and the queries for 80 %."""

    odds: float
    power: Share
    queries_needed: Count | None


@dataclass(frozen=True, kw_only=True)
class ByOrder:
    """Shares of unparseable answers, the protected item first and second; the difference with its interval."""

    first: Share | None = left_out_without("first")
    second: Share | None = left_out_without("first")
    difference: tuple[float | None, float | None, float | None] | None = left_out_without("first")


@dataclass(frozen=True)
class Bound:
    """All that is known of the size of odds whose answers nearly all follow the position, or favour one group."""

    side: Literal["at most", "at least"]
    odds: float

    @property
    def limits(self) -> tuple[float | None, float | None]:
        """The odds' low and high end, of which one is known."""
        return (None, self.odds) if self.side == "at most" else (self.odds, None)


@dataclass(frozen=True, kw_only=True)
class PairFinding(Finding):
    """What is concluded of a relevance stratum; where no odds are defined, nothing stands behind it.

    `bound` stands in the place of an interval where the odds have no size; `reason` then says why.
    """

    p: Share | None = left_out_without("test")
    test: str | None = left_out_without("test")
    queries: Count | None = left_out_without("test")
    error: float | None = left_out_without("test")
    power: OddsPower | None = left_out_without("test")
    consistent_share: Share | None = left_out_without("test")
    icc: float | None = left_out_without("test")
    design_effect: float | None = left_out_without("test")
    worst_case: tuple[Share, Share] | None = left_out_without("test")
    unparseable_by_order: ByOrder | None = left_out_without("test")
    bound: Bound | None = left_out_without("bound")

    def barred(self, reason: str) -> Self:
        return replace(super().barred(reason), bound=None)


@dataclass(frozen=True, kw_only=True)
class PairwiseResults(Results):
    """llmfair pairwise; results.json of its run folder."""

    task: Literal["pairwise"] = "pairwise"
    measure_notes: Mapping[str, str] = after("measures")
    design: PairwiseFacts
    headline: Annotated[str | None, Meta(description="The measure that conclusions are drawn of.")] = after(
        "failures"
    )
    cells: Mapping[str, CellCounts] = after("headline")
    shares: Mapping[str, CellShares | None] = after("cells")
    answers: Mapping[str, PairAnswers]
    stopping: Mapping[str, StoppingPoint] = after("answers")
    findings: Mapping[str, PairFinding]

    def of_conditions(self) -> Mapping[str, Collection[str]]:
        stopped = {"stopping": self.stopping} if self.design.sequential else {}
        return {**super().of_conditions(), "shares": self.shares, "answers": self.answers, **stopped}
