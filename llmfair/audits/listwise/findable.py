"""What a listwise design can find of preference odds, counted from its lists and windows before anything is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, fsum, inf, log, sqrt
from typing import Literal, NamedTuple, Protocol

import numpy as np

from llmfair.audits.aggregates.preference import preference
from llmfair.audits.listwise.design import ListwiseDesign
from llmfair.audits.listwise.encounters import Items, Noise, items_of
from llmfair.audits.listwise.played import PlayedAudits
from llmfair.audits.listwise.settings import ListwiseSettings, PlanSettings
from llmfair.audits.listwise.shapes import Shape
from llmfair.audits.listwise.simulate import kinds_of, simulate
from llmfair.probes import REPEAT
from llmfair.rankers.base import Ranker
from llmfair.rankers.partition import Partition
from llmfair.rankers.strategy import Strategy, strategy_of
from llmfair.results import Count, Share
from llmfair.stats.encounters import Meeting, first_shown, query_sd
from llmfair.stats.power import FEWEST_TESTED, power, queries_needed, smallest_ratio
from llmfair.stats.reach import Plan

RELEVANCE = 2.0
"""The log-weight of each grade of the simulated ranker that orders by relevance."""
PLAYED_CALLS, FEWEST_AUDITS, MOST_AUDITS = 60_000, 2, 20
"""Questions that are answered in all where a program is simulated, and audits at least and at most."""
FEWEST_LISTS = 8
"""Lists at least that stand for all of them, where one audit of all would take more questions."""
MOST_ITEMS = 1_000_000
EXPECTED_DRAWS = 1000
"""Lists ranked in all, for each ratio that is expected."""
UNKNOWN = (
    "reason", "comparisons", "sd", "error", "error_fresh", "error_alike", "error_alike_thrice", "power",
    "queries_needed", "other_design", "expected",
)  # fmt: skip
"""What a plan cannot tell of a design of which nothing is known."""


@dataclass(frozen=True, slots=True)
class OtherDesign:
    """What the other design takes of one model, all prompts together, and how precise it is."""

    design: Literal["ranking", "partition"]
    orders: Count
    calls: Count
    error: float
    power: Share | None


@dataclass(frozen=True, slots=True)
class ExpectedRatio:
    """The ExpRatio to expect of preference odds if noise is fresh, of two simulated rankers.

    `agnostic` does not look at relevance, `relevant` gives every grade a log-weight of 2.
    """

    odds: float
    agnostic: float
    relevant: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ListwiseFindable:
    """What a t test over queries finds of preference odds; without `sd` nothing is known, and `reason` says why.

    `queries` have items to compare, on average `comparisons` first encounters each. `error` is the standard error
    of ln odds, `sd` that of one query, with the intra-item correlation `item_icc`: with fresh noise it is
    `error_fresh`, of a model that answers alike every time `error_alike`, and `error_alike_thrice`
    from three times the orders (None of a strategy that asks in one order only).
    `power` is that of finding `odds`, None where no test is made; `queries_needed` find them with power `target`,
    None: never. `smallest`: the least odds below and above 1 that are found so.
    """

    queries: Count
    target: float
    odds: float
    tau: float
    item_icc: float
    reason: str | None
    comparisons: float | None
    sd: float | None
    error: float | None
    error_fresh: float | None
    error_alike: float | None
    error_alike_thrice: float | None
    power: Share | None
    queries_needed: Count | None
    smallest: tuple[float, ...]
    other_design: OtherDesign | None
    expected: tuple[ExpectedRatio, ...] | None


class Precision(NamedTuple):
    """Expected first encounters a query, and the standard error of ln odds."""

    comparisons: float
    error: float


class Comparable(Protocol):
    """The lists of a design that have something to compare."""

    @property
    def queries(self) -> int: ...

    def precision(self, orders: int, icc: float) -> Precision:
        """That of so many initial orders, of a model with this intra-item correlation."""
        ...


@dataclass(frozen=True)
class CountedLists:
    """Counted from windows that are known beforehand; `spread` is the standard deviation of ln odds over queries."""

    meetings: tuple[Meeting, ...]
    spread: float

    @property
    def queries(self) -> int:
        return len(self.meetings)

    def precision(self, orders: int, icc: float) -> Precision:
        comparisons = fsum(one.comparisons(orders) for one in self.meetings) / self.queries
        return Precision(comparisons, query_sd(self.meetings, orders, icc, self.spread) / sqrt(self.queries))


@dataclass(frozen=True)
class PlayedLists:
    """Simulated by the strategy's own program, at parity, where its questions hang on the answers."""

    lists: tuple[Items, ...]
    strategy: Strategy
    spread: float
    seed: int

    @property
    def queries(self) -> int:
        return len(self.lists)

    def precision(self, orders: int, icc: float) -> Precision:
        """Over a few audits, of lists that stand for all; the error is infinite where no odds are finite."""
        strategy, noise = self.strategy, Noise(icc)
        calls = orders * sum(strategy.plan(one.n).calls for one in self.lists)
        lists = self.lists[:: max(1, min(calls // PLAYED_CALLS, self.queries // FEWEST_LISTS))]
        audits = min(MOST_AUDITS, max(FEWEST_AUDITS, PLAYED_CALLS // max(1, calls)))
        played = [
            PlayedAudits(one, strategy, orders, 1, noise, (self.seed, k)) for k, one in enumerate(lists)
        ]
        counts, squares = list[int](), list[float]()
        for audit in range(audits):
            found = preference([one.value(0.0, audit) for one in played])
            counts.append(0 if found is None else found.comparisons)
            if found is not None and found.estimate.error:
                squares.append(found.estimate.error**2 * len(lists))
        error = sqrt((float(np.mean(squares)) + self.spread**2) / self.queries) if squares else inf
        return Precision(float(np.mean(counts)) / len(lists), error)


def power_of(lists: Comparable, odds: float, error: float) -> float | None:
    """The power to find these odds; None where no test is made."""
    return power(log(odds), error, lists.queries) if lists.queries >= FEWEST_TESTED else None


def findable_of(design: ListwiseDesign, settings: PlanSettings) -> ListwiseFindable:
    """Power and smallest odds of the test at the 5 % level, from the expected first encounters and --tau."""
    strategy = _strategy(design)
    lists = _lists(design, strategy, settings)
    unknown = ListwiseFindable(
        queries=lists.queries,
        target=settings.power,
        odds=settings.odds,
        tau=settings.tau,
        item_icc=settings.item_icc,
        smallest=(),
        **dict.fromkeys(UNKNOWN),
    )
    if reason := _unknown(design, lists.queries):
        return replace(unknown, reason=reason)
    orders, icc = design.settings.orders, settings.item_icc
    found = {one: lists.precision(orders, one) for one in (icc, 0.0, 1.0)}
    error = found[icc].error
    sd = error * sqrt(lists.queries)
    below = smallest_ratio(sd, lists.queries, settings.power) if lists.queries >= FEWEST_TESTED else None
    smallest = () if below is None else (below, 1 / below)
    return replace(
        unknown,
        comparisons=found[icc].comparisons,
        sd=sd,
        error=error,
        error_fresh=found[0.0].error,
        error_alike=found[1.0].error,
        error_alike_thrice=None if strategy.orderless else lists.precision(3 * orders, 1).error,
        power=power_of(lists, settings.odds, error),
        queries_needed=queries_needed(settings.odds, sd, settings.power),
        smallest=smallest,
        other_design=_other_design(design, settings),
        expected=_expected(design, [settings.odds, *smallest]) if settings.expected_ratio else None,
    )


def _unknown(design: ListwiseDesign, queries: int) -> str | None:
    """Why nothing is known of a design."""
    if isinstance(design.ranker, Ranker):
        return "no_model_asked"
    if design.settings.initial != "random":
        return "order_not_random"
    if not any(shape.protected and shape.unprotected for shape in design.shapes):
        return "no_list_of_both_sides"
    return None if queries else "no_common_grade"


def _strategy(design: ListwiseDesign) -> Strategy:
    """How it asks; whole lists of a ranker that asks nothing."""
    return Partition(MOST_ITEMS) if isinstance(design.ranker, Ranker) else design.ranker.strategy


def _lists(design: ListwiseDesign, strategy: Strategy, settings: PlanSettings) -> Comparable:
    listed = [items_of(design.dataset.candidates(query), design.sides) for query in design.queries]
    if any(strategy.one_pass(one.n) is None for one in listed):
        compared = tuple(one for one in listed if one.compared)
        return PlayedLists(compared, strategy, settings.tau, settings.seed)
    meetings = (_meeting(shape, lambda n: strategy.one_pass(n) or ()) for shape in design.shapes)
    return CountedLists(tuple(one for one in meetings if one.comparisons()), settings.tau)


def _meeting(shape: Shape, windows: Plan) -> Meeting:
    counts: dict[int, list[int]] = {}
    for side, grade, count in shape.cells:
        if side < 2:
            counts.setdefault(grade, [0, 0])[side] = count
    groups = tuple(len(ranks) for ranks in first_shown(windows(shape.n)))
    return Meeting(shape.n, tuple((protected, other) for protected, other in counts.values()), groups)


def _other_design(design: ListwiseDesign, settings: PlanSettings) -> OtherDesign:
    """One partition beside rankings, and rankings from as many orders as by default beside partitions."""
    prompts = sum(condition.name != REPEAT for condition in design.prompts)
    strategy: Strategy = Partition(settings.window)
    name: Literal["ranking", "partition"] = "partition"
    orders, chains = 1, prompts
    if design.partition:
        name, orders, strategy = "ranking", ListwiseSettings.orders, strategy_of("windows", vars(settings))
        chains = orders * (prompts + ListwiseSettings.repeat)
    lists = _lists(design, strategy, settings)
    error = lists.precision(orders, settings.item_icc).error
    calls = chains * sum(strategy.plan(shape.n).calls for shape in design.shapes)
    return OtherDesign(name, orders, calls, error, power_of(lists, settings.odds, error))


def _expected(design: ListwiseDesign, odds: Sequence[float]) -> tuple[ExpectedRatio, ...] | None:
    """The ratio of means over all lists in their windows, of simulated rankers; None where nothing is
    ranked, or questions hang on the answers."""
    if design.partition or any(design.windows(shape.n) is None for shape in design.shapes):
        return None
    listed = [kinds_of(design.dataset.candidates(query), design.sides) for query in design.queries]
    shapes = Counter(replace(one, query_id="") for one in listed if one.two_sided)
    betas, rng = [log(one) for one in odds], np.random.default_rng(design.settings.seed)
    found = []
    for relevance in (0.0, RELEVANCE):
        sides = np.zeros((len(betas), 2))
        for kinds, count in shapes.items():
            draws = ceil(EXPECTED_DRAWS * count / shapes.total())
            weights, windows = kinds.log_weights(betas, relevance), design.windows(kinds.n) or ()
            ranked = simulate(kinds, weights, windows, design.passes, draws, 1, rng=rng)
            sides += count * ranked.final.mean(axis=(1, 2))
        found.append((sides[:, 0] / sides[:, 1]).tolist())
    return tuple(ExpectedRatio(*one) for one in zip(odds, *found, strict=True))
