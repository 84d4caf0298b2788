"""What a listwise audit found, besides what every audit has."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from llmfair.audits.runs.stopping import StoppingPoint
from llmfair.backends.python import SCORES
from llmfair.results import (
    OUTSIDE_ALONE,
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

OF_RANKINGS = "PreferenceOdds(of=ranking)"
INITIAL = "initial"
"""The condition of the orders that all others began with."""
SEPARATOR = " vs "
"""Between the names of two conditions in the condition of their rows."""


class ListwiseFacts(DesignFacts, frozen=True, kw_only=True):
    """What was asked; windows and prompt are None for a ranker that asks no model.

    `label_error`: the share of grades taken to be wrong.
    """

    label_error: Share | None = None
    left_out: Mapping[str, str]
    shrunk: Mapping[str, Any]
    candidates: Annotated[
        tuple[Count, Count], Meta(description="Items of the shortest and the longest list.")
    ]
    initial: str
    orders: Count
    repeats: Count
    design: str | None = None
    sequential: bool | None = None
    strategy: str | None = None
    answers: str | None = None
    window: Count | None
    step: Count | None
    passes: Count | None
    windows: str | None
    prompt_sha256: Sha256 | None
    constrained: bool | None
    at_most: bool | None = None
    chains: Count
    never_ranked: Annotated[
        Sequence[Count], Meta(description="Positions (0 is the head) that no window holds in some list.")
    ]

    @property
    def prompted(self) -> bool:
        return self.prompt_sha256 is not None and self.strategy != SCORES


class FirstPass(JsonObject, omit_defaults=False, frozen=True):
    """Answers of the first pass: those that left the window as it was, those in the commonest order of places."""

    windows: Count = 0
    identity: Count = 0
    same: Count = 0


class OmittedItems(JsonObject, omit_defaults=False, frozen=True):
    """Items left out of readable answers, of so many that these should have named.

    `protected_expected`: how many protected ones, were sides left out alike. None each of several groups.
    """

    items: Count = 0
    of: Count = 0
    protected: Count | None = None
    protected_expected: float | None = None

    @property
    def share(self) -> float:
        return self.items / self.of if self.of else 0.0


class EqualScores(JsonObject, frozen=True):
    """Of so many lists whose items were scored those in which all scores are equal, so that nothing is ranked."""

    lists: Count
    of: Count


class WindowAnswers(AnswerCounts, omit_defaults=False, frozen=True, kw_only=True):
    """Answers of one prompt: how many, and what was wrong with them."""

    windows: Count
    classes: Counts
    repaired: Count
    unparseable: Count
    first_pass: FirstPass = FirstPass()
    asked_again: Counts
    omitted: OmittedItems = OmittedItems()
    equal_scores: EqualScores | None = None

    @property
    def asked(self) -> int:
        return self.windows

    @property
    def problem(self) -> str | None:
        useful = ("ok", "missing", "duplicate")  # of which something is used
        classes = {name: n for name, n in self.classes.items() if name not in useful}
        return max(classes, key=classes.__getitem__, default=None)


class Excess(JsonObject, frozen=True):
    """The exposure ratio beyond what relevance gives the sides."""

    value: float
    low: float | None
    high: float | None
    n: Count

    def less(self, below: bool) -> list[float]:
        """By how many % the group at a disadvantage (the protected one, if `below`) gets less exposure than the other,
        at most and at least; nothing where the interval holds parity, or lies on its other side."""
        if self.low is None or self.high is None or not (self.high < 1 if below else self.low > 1):
            return []
        shares = (self.value, self.low, self.high) if below else (1 / self.value, 1 / self.high, 1 / self.low)
        return [100 * (1 - share) for share in shares]


class PermutationResult(JsonObject, frozen=True, kw_only=True):
    """No preference in any query, by labels shuffled among equally relevant items; `reason`: why it has no p."""

    statistic: float | None = None
    z: float | None = None
    p_z: Share | None = None
    p: Share | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    draws: Count | None = None
    reason: str | None = None


class Odds(JsonObject, frozen=True):
    """Preference odds with their interval, over `n` queries with so many comparisons of two items.

    `bound`: outcomes are decided by groups or slots, so that the odds are at most, or at least, what stands here.
    `p`: of no preference, by the t of the interval where items recur in several queries, else by sign flips over
    queries. `p_outside`: that the odds lie in the band, one-sided, against its nearer edge. `recurring`: items of the
    comparisons that are in several queries; `clusters`: effective ones of the queries, or of the items of either group,
    whichever are fewest.
    """

    value: float | None
    low: float | None
    high: float | None
    n: Count
    comparisons: Count
    bound: Literal["at most", "at least"] | None = None
    reason: str | None = None
    p: Share | None = None
    p_outside: Share | None = None
    recurring: Count = 0
    clusters: float | None = None


class Usefulness(JsonObject, frozen=True):
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
    def useless(self) -> str | None:
        """The reason why nothing says that the ranker does its job; None where the whole interval lies above chance."""
        if self.low is not None and self.low > self.chance:
            return None
        return {"a random order": "no_better_than_random", "chance": "no_better_than_chance"}.get(
            self.against, "no_better_than_input"
        )


def of_stratum(measure: str, stratum: str) -> str:
    """The name of preference odds over the items of one stratum; of "all" their own."""
    if stratum == "all":
        return measure
    return f"{measure[:-1]},stratum={stratum})" if measure.endswith(")") else f"{measure}(stratum={stratum})"


class ListwiseFinding(Finding, frozen=True, kw_only=True):
    """What is concluded of a prompt; without comparisons, or readable answers, nothing stands behind it.

    `odds`: over all items; `strata`: over relevant and irrelevant ones apart, where both groups have both.
    `p_outside`: that none of these lies outside the band (Simes); `p_outside_adjusted` over the prompts (Holm).
    `left_out`: the share of items that answers should have named and did not. `unjudged`: no relevance was given.
    `left_as_shown`: the share of windows of the first pass that answers left as they were.
    `odds_of_label_error`: by stratum those of a ranker without preference with the share `label_error` of grades wrong.
    """

    odds: Odds | None = None
    strata: Mapping[str, Odds] = {}
    p_outside: Share | None = None
    p_outside_adjusted: Share | None = None
    left_out: Share = 0.0
    left_as_shown: Share = 0.0
    unjudged: bool = False
    odds_of_label_error: Mapping[str, float] | None = None
    useful: Usefulness | None = None
    excess: Excess | None = None
    permutation: PermutationResult | None = None
    power: OddsPower | None = None

    @property
    def by_stratum(self) -> dict[str, Odds]:
        """The odds of all items, and of each stratum."""
        return {**({} if self.odds is None else {"all": self.odds}), **self.strata}

    @property
    def decisive(self) -> str:
        """The stratum of the smallest p where odds are outside the band, be it by themselves alone; else "all"."""
        outside = self.conclusion == "outside" or self.reason == OUTSIDE_ALONE
        p_of = {name: odds.p_outside for name, odds in self.by_stratum.items() if odds.p_outside is not None}
        return min(p_of, key=p_of.__getitem__, default="all") if outside else "all"

    @property
    def spoken_of(self) -> str:
        """The measure of that stratum."""
        return of_stratum(self.measure, self.decisive)

    @property
    def useless(self) -> str | None:
        if self.odds is None:
            return None
        return "not_judged" if self.useful is None else self.useful.useless


class ListwiseResults(Results, frozen=True, kw_only=True):
    """llmfair listwise; results.json of its run folder."""

    task: Literal["listwise"]
    intervals: Mapping[str, Literal["linear-t", "boot-t"]]
    controlled: bool
    design: ListwiseFacts
    answers: Mapping[str, WindowAnswers]
    findings: Mapping[str, ListwiseFinding]
    stopping: Mapping[str, StoppingPoint] = {}

    def of_conditions(self) -> Mapping[str, Collection[str]]:
        stopped = {"stopping": self.stopping} if self.design.sequential else {}
        return {**super().of_conditions(), **stopped}
