"""What a listwise audit found, besides what every audit has."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from msgspec import Meta

from llmfair.audits.runs.settled import StoppingPoint
from llmfair.audits.studies.study_results import StudyResults
from llmfair.backends.python import SCORES
from llmfair.results import (
    AnswerCounts,
    Count,
    Counts,
    DesignFacts,
    Figure,
    Finding,
    ProbeCounts,
    Reach,
    Results,
    Sha256,
    Share,
    after,
    left_out_without,
)


@dataclass(frozen=True, kw_only=True)
class ListwiseFacts(DesignFacts):
    """What was asked; windows and prompt are None for a ranker that asks no model."""

    left_out: Mapping[str, str] = after("queries")
    shrunk: Mapping[str, Any] = after("left_out")
    candidates: Annotated[
        tuple[Count, Count], Meta(description="Items of the shortest and the longest list.")
    ] = after("shrunk")
    initial: str = after("conditions")
    orders: Count = after("initial")
    repeats: Count = after("orders")
    design: str | None = field(default=None, metadata={"needs": "design", "after": "repeats"})
    sequential: bool | None = field(default=None, metadata={"needs": "sequential", "after": "design"})
    strategy: str | None = field(default=None, metadata={"needs": "strategy", "after": "repeats"})
    answers: str | None = field(default=None, metadata={"needs": "answers", "after": "strategy"})
    window: Count | None = after("answers")
    step: Count | None = after("window")
    passes: Count | None = after("step")
    windows: str | None = after("passes")
    prompt_sha256: Sha256 | None = after("windows")
    constrained: bool | None = after("prompt_sha256")
    at_most: bool | None = field(default=None, metadata={"needs": "at_most", "after": "constrained"})
    chains: Count = after("at_most")
    never_ranked: Annotated[
        Sequence[Count], Meta(description="Positions (0 is the head) that no window holds in some list.")
    ] = after("calls")

    @property
    def prompted(self) -> bool:
        return self.prompt_sha256 is not None and self.strategy != SCORES


@dataclass(frozen=True)
class FirstPass:
    """Answers of the first pass: those that left the window as it was, those in the commonest order of places."""

    windows: Count = 0
    identity: Count = 0
    same: Count = 0


@dataclass(frozen=True)
class OmittedItems:
    """Items left out of answers; `protected_expected`: how many protected ones, were sides left out alike."""

    items: Count = 0
    protected: Count = 0
    protected_expected: float = 0.0


@dataclass(frozen=True)
class EqualScores:
    """Of so many lists whose items were scored those in which all scores are equal, so that nothing is ranked."""

    lists: Count
    of: Count


@dataclass(frozen=True, kw_only=True)
class WindowAnswers(AnswerCounts):
    """Answers of one prompt: how many, and what was wrong with them."""

    windows: Count
    classes: Counts
    repaired: Count
    unparseable: Count = after("repaired")
    identity: Count = 0
    first_pass: FirstPass = FirstPass()
    asked_again: Counts
    readers_differ: Count = 0
    places: Mapping[str, Counts] = field(default_factory=dict)
    omitted: OmittedItems = OmittedItems()
    equal_scores: EqualScores | None = left_out_without("equal_scores")

    @property
    def asked(self) -> int:
        return self.windows

    @property
    def problem(self) -> str | None:
        useful = ("ok", "missing", "duplicate")  # of which something is used
        classes = {name: n for name, n in self.classes.items() if name not in useful}
        return max(classes, key=classes.__getitem__, default=None)


@dataclass(frozen=True)
class Excess:
    """The exposure ratio beyond what relevance gives the sides."""

    value: float
    low: float | None
    high: float | None
    n: Count

    def excludes_parity(self, below: bool) -> bool:
        """Whether the whole interval is below 1, or above it."""
        if self.low is None or self.high is None:
            return False
        return self.high < 1 if below else self.low > 1


@dataclass(frozen=True)
class SignFlip:
    """No mean preference over queries."""

    p: Share | None
    queries: Count
    exact: bool


@dataclass(frozen=True, kw_only=True)
class PermutationResult:
    """No preference in any query, by labels shuffled among equally relevant items; `reason`: why it has no p."""

    statistic: float | None = left_out_without("draws")
    z: float | None = left_out_without("draws")
    p_z: Share | None = left_out_without("draws")
    p: Share | None = None
    ratio_low: float | None = left_out_without("draws")
    ratio_high: float | None = left_out_without("draws")
    draws: Count | None = left_out_without("draws")
    reason: str | None = left_out_without("reason")


@dataclass(frozen=True)
class OrderNoise:
    """Standard error of ln R over other initial orders of the same queries, with its degrees of freedom."""

    error: float
    df: int


@dataclass(frozen=True)
class Odds:
    """Preference odds with their interval, over `n` queries with so many comparisons of two items.

    `bound`: outcomes are decided by groups or slots, so that the odds are at most, or at least, what stands here.
    """

    value: float | None
    low: float | None
    high: float | None
    n: Count
    comparisons: Count
    bound: Literal["at most", "at least"] | None = None


@dataclass(frozen=True)
class Usefulness:
    """How well the ranker tells relevant items from others: more than `chance`, of so many queries.

    Of rankings the change of nDCG@20 from the initial order, or from what a random order is expected to have; of
    answers alone the odds that the more relevant of two items is ahead. The interval is one of 99.9 %.
    """

    measure: str
    chance: float
    value: float
    low: float | None
    high: float | None
    n: Count
    against: str = "the initial ranking"

    @property
    def shown(self) -> bool:
        """Whether the whole interval lies above chance."""
        return self.low is not None and self.low > self.chance

    @property
    def unshown(self) -> str:
        """The reason why nothing says that the ranker does its job, where it is not shown."""
        return {"a random order": "no_better_than_random", "chance": "no_better_than_chance"}.get(
            self.against, "no_better_than_input"
        )


@dataclass(frozen=True)
class OddsPower:
    """With what power odds at the nearer edge of the band are found, and the queries for 80 %."""

    odds: float
    power: Share
    queries_needed: Count | None


@dataclass(frozen=True, kw_only=True)
class ListwiseFinding(Finding):
    """What is concluded of a prompt; without comparisons, or readable answers, nothing stands behind it."""

    odds: Odds | None = left_out_without("odds")
    useful: Usefulness | None = left_out_without("odds")
    excess: Excess | None = left_out_without("excess")
    sign_flip: SignFlip | None = left_out_without("sign_flip")
    permutation: PermutationResult | None = left_out_without("sign_flip")
    run_noise: OrderNoise | None = left_out_without("sign_flip")
    slope: float | None = left_out_without("sign_flip")
    power: OddsPower | None = left_out_without("sign_flip")

    @property
    def useless(self) -> str | None:
        if self.odds is None or (self.useful is not None and self.useful.shown):
            return None
        return "not_judged" if self.useful is None else self.useful.unshown


@dataclass(frozen=True, kw_only=True)
class ListwiseResults(Results):
    """llmfair listwise; results.json of its run folder."""

    task: Literal["listwise"] = "listwise"
    intervals: Mapping[str, Literal["linear-t", "boot-t"]] = after("level")
    controlled: bool = after("intervals")
    design: ListwiseFacts
    answers: Mapping[str, WindowAnswers]
    findings: Mapping[str, ListwiseFinding]
    stopping: Mapping[str, StoppingPoint] = field(
        default_factory=dict, metadata={"needs": "stopping", "after": "answers"}
    )

    def of_conditions(self) -> Mapping[str, Collection[str]]:
        stopped = {"stopping": self.stopping} if self.design.sequential else {}
        return {**super().of_conditions(), **stopped}


# The windows study


@dataclass(frozen=True)
class Read:
    """Answers of one prompt under one setting."""

    windows: Count
    unparseable: Count
    repaired: Count


@dataclass(frozen=True, kw_only=True)
class WindowsRow:
    """One setting and prompt, or the orders that all began with ("input")."""

    setting: str
    window: Count
    step: Count
    passes: Count
    run: str
    condition: str
    calls: Count
    chains: ProbeCounts | None
    answers: Read
    never_ranked: Sequence[Count]
    reach: Mapping[str, Reach]
    finding: ListwiseFinding | None
    figures: Mapping[str, Figure]


@dataclass(frozen=True, kw_only=True)
class WindowsResults(StudyResults):
    """llmfair study windows; study.json. What all settings share is empty until one of them has results."""

    task: Literal["study windows"]
    intervals: Mapping[str, Literal["linear-t", "boot-t"]] = after("level", default_factory=dict)
    candidates: tuple[Count, Count] = after("queries", default=(0, 0))
    initial: str = after("conditions", default="")
    orders: Count = after("initial", default=0)
    repeats: Count = after("orders", default=0)
    rows: Sequence[WindowsRow]
