"""Columns of values become tidy rows, one per query, then the aggregate with its interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import exp, fsum, isnan, log, sqrt
from statistics import fmean
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from llmfair import registry
from llmfair.metrics import base
from llmfair.metrics.base import Got, OfGroup, QueryComparisons, Quotient, Ratio, Tally, Value
from llmfair.nouns import Measurement
from llmfair.registry import register
from llmfair.results import Band, OddsPower
from llmfair.stats import intervals, selection, strata
from llmfair.stats.intervals import SAME, UNBOUNDED, Bounds, Estimate, Method, without_favour
from llmfair.stats.pairs import PairContributions, Weights, estimate, pair_p
from llmfair.stats.power import FEWEST_TESTED, power, queries_needed

ALL = "all"
"""The query_id of an aggregate row."""
ENOUGH_QUERIES, ENOUGH_DOCUMENTS = 20, 50
"""From these numbers on, the plain interval of a ratio of means covers as it says."""
FEWEST_ITEMS = 2
"""With fewer items of a group a list, excess ratios are too skewed for an interval (Monte Carlo)."""
MANY_QUERIES = 150
"""From fewer queries no interval without width: rare ones that differ may be missing."""
Intervals = Literal["auto", "linear-t", "boot-t"]


@dataclass(frozen=True)
class Inference:
    """How figures of all queries are inferred from theirs. `documents` is the median length of the lists, `bounds`
    those of the values."""

    level: float = 0.95
    ci: Intervals = "auto"
    seed: int = 0
    documents: float = ENOUGH_DOCUMENTS
    bounds: Bounds = UNBOUNDED

    def method(self, queries: int) -> Method:
        """The interval of a ratio of means over so many queries."""
        if self.ci != "auto":
            return self.ci
        enough = queries >= ENOUGH_QUERIES and self.documents >= ENOUGH_DOCUMENTS
        return "linear-t" if enough else "boot-t"

    def ratio(self, over: Sequence[Sequence[float]], under: Sequence[Sequence[float]]) -> Estimate:
        """A product of ratios of sums, `over` and `under` having one sequence a factor."""
        rng = np.random.default_rng(self.seed)
        return intervals.ratio_of_means(over, under, self.level, self.method(len(over[0])), rng)


QueryValues = Sequence[Value]
Aggregate = Callable[[QueryValues, Inference], Estimate | None]
"""Makes one figure of the queries' values with its interval; None when nothing is defined.

Registered by `@register("aggregate", NAME)`, here in `aggregates/`, or an entry point `llmfair.aggregates`; a measure
names it.
"""


def value_of(value: Value) -> tuple[float | None, str | None]:
    """The number of a value, or None, and the reason; a number with a reason was had by a makeshift."""
    if isinstance(value, float | int | np.number):  # others' measures give numpy's
        return value, None
    if isinstance(value, base.Convention) and not value.counts:
        return None, value.reason
    return getattr(value, "value", None), getattr(value, "reason", None)


def numbers_of(values: Mapping[str, Value]) -> dict[str, float]:
    """The values that are numbers, by query."""
    numbers = {query_id: value_of(value)[0] for query_id, value in values.items()}
    return {query_id: number for query_id, number in numbers.items() if number is not None}


def mean_of(values: Iterable[float | None]) -> float | None:
    """The mean of those that are defined; None without any."""
    defined = [value for value in values if value is not None]
    return fsum(defined) / len(defined) if defined else None


def summarise(columns: Sequence[base.Column], inference: Inference = Inference()) -> list[Measurement]:
    """The rows of every column: its queries, then all of them together.

    In an aggregate row `n` counts the queries it is built from. Without any, `value` is None and `reason` the
    most frequent one; with fewer than five the value stands without interval (`too_few_queries`).
    """
    rows = []
    for column in columns:
        measure, condition, group = str(column.measure), column.condition, column.group
        values, (least, most) = list(column.values.values()), column.measure.bounds
        for query_id, value in () if column.measure.of_all else column.values.items():
            number, reason = value_of(value)
            number = value.value if isinstance(value, base.Convention) else number
            rows.append(
                Measurement(
                    query_id, measure, number, condition, group, reason=reason, contrast=column.contrast
                )
            )
        estimate = aggregate(column.measure.aggregate, values, replace(inference, bounds=(least, most)))
        if estimate is None:
            estimate = Estimate(None, None, None, 0, most_frequent(values))
        if estimate.low is not None and estimate.high is not None:
            low, high = max(estimate.low, least), min(estimate.high, most)
            if max(high - low, estimate.error) < SAME and estimate.n < MANY_QUERIES:
                estimate = replace(estimate, low=None, high=None, reason="all_same")
            else:
                estimate = replace(estimate, low=low, high=high)
        rows.append(replace(row_of(measure, condition, estimate, group), contrast=column.contrast))
    return rows


def row_of(measure: str, condition: str, of: Estimate, group: str = "") -> Measurement:
    """The aggregate row of an estimate."""
    limits = of.low, of.high
    return Measurement(
        ALL, measure, of.value, condition, group, *limits, of.n, of.p, of.p_adjusted, reason=of.reason
    )


def aggregate(how: str, values: Iterable[Value], inference: Inference = Inference()) -> Estimate | None:
    """One figure of the queries' values with its interval; None when nothing is defined. `how` names a function that is
    registered as an `Aggregate`. It gets the values with what the initial orders explain taken out."""
    make: Aggregate = registry.lookup("aggregate", how)
    return make(controlled(list(values)), inference)


def undefined_counts(columns: Sequence[base.Column]) -> dict[str, dict[str, dict[str, int]]]:
    """Queries without a value, `{measure: {condition: {reason: count}}}`; measures without any are left out. A query
    counts once per reason, however many groups the measure speaks of."""
    undefined = dict.fromkeys(
        (str(column.measure), column.condition, reason, query_id)
        for column in columns
        for query_id, value in column.values.items()
        for number, reason in [value_of(value)]
        if number is None and reason
    )
    counts: dict[str, dict[str, dict[str, int]]] = {}
    for (measure, condition, reason), queries in Counter(of[:3] for of in undefined).items():
        counts.setdefault(measure, {}).setdefault(condition, {})[reason] = queries
    return counts


def most_frequent(values: QueryValues) -> str | None:
    """The reason that values give most often, the alphabetically first of equals."""
    reasons = (reason for value in values if (reason := value_of(value)[1]))
    counted = Counter(sorted(reasons)).most_common(1)
    return counted[0][0] if counted else None


FEWEST_RUNS = 15
"""From fewer runs the slope on the initial orders is not taken: fitted to so few, it feigns certainty."""


def of_known_orders(values: QueryValues) -> dict[int, Ratio]:
    """By place, the ratios among the values that know their initial orders; none of fewer than FEWEST_RUNS runs."""
    every = enumerate(getattr(value, "ratio", value) for value in values)
    ratios = {place: of for place, of in every if isinstance(of, Ratio) and of.controlled}
    return ratios if sum(len(ratio.controlled) for ratio in ratios.values()) >= FEWEST_RUNS else {}


def controlled(values: QueryValues) -> list[Value]:
    """The values with what the initial orders explain of their ratios taken out: by a slope over all queries."""
    ratios = of_known_orders(values)
    if not ratios:
        return list(values)
    sides = []
    for side in (0, 1):
        final = [np.array([run.final[side] for run in ratio.controlled]) for ratio in ratios.values()]
        favour = [
            np.array([run.initial[side] - run.mean for run in ratio.controlled]) for ratio in ratios.values()
        ]
        sides.append([float(runs.mean()) for runs in without_favour(final, favour)])
    changed = list(values)
    for place, over, under in zip(ratios, *sides, strict=True):
        value, ratio = values[place], Ratio(over, under, ratios[place].reason)
        changed[place] = replace(value, ratio=ratio) if isinstance(value, Quotient) else ratio
    return changed


@register("aggregate", "mean")
@register("aggregate", "mean-of-ratios")
@register("aggregate", "mean-of-products")
def _mean(values: QueryValues, inference: Inference) -> Estimate | None:
    """The mean of the defined queries."""
    defined = [number for value in values if (number := value_of(value)[0]) is not None]
    return intervals.mean(defined, inference.level, inference.bounds) if defined else None


@register("aggregate", "geometric")
def _geometric(values: QueryValues, inference: Inference) -> Estimate | None:
    """The geometric mean of the defined queries."""
    defined = [number for value in values if (number := value_of(value)[0]) is not None]
    return intervals.geometric_mean(defined, inference.level) if defined else None


@register("aggregate", "product-of-means")
def _product_of_means(values: QueryValues, inference: Inference) -> Estimate | None:
    """Without interval: its two means move together, and no coverage is known (a mean of products has one)."""
    products = [value for value in values if isinstance(value, base.Product)]
    if not products:
        return None
    left, right = (intervals.mean([getattr(p, side) for p in products]) for side in ("left", "right"))
    assert left.value is not None and right.value is not None
    return Estimate(left.value * right.value, None, None, len(products), "no_interval")


@register("aggregate", "ratio-of-means")
def ratio_of_means(values: QueryValues, inference: Inference) -> Estimate | None:
    """Ratios, or quotients of ratios, of the queries' sums: a query with a zero side still counts."""
    factors = [
        ((value.ratio, value.by) if isinstance(value, Quotient) else (value,))
        for value in values
        if isinstance(value, Ratio | Quotient)
    ]
    over = [[ratio.numerator for ratio in factor] for factor in zip(*factors, strict=True)]
    under = [[ratio.denominator for ratio in factor] for factor in zip(*factors, strict=True)]
    if not over or not all(sum(side) > 0 for side in (*over, *under)):
        return None
    # the second ratio divides
    estimate = inference.ratio([over[0], *under[1:]], [under[0], *over[1:]])
    items = [value.items for value in values if isinstance(value, Quotient)]
    if items and fmean(items) < FEWEST_ITEMS and estimate.low is not None:
        return replace(estimate, low=None, high=None, reason="single_items")
    return estimate


@register("aggregate", "ratio-of-shares")
def _ratio_of_shares(values: QueryValues, inference: Inference) -> Estimate | None:
    """The same of what groups get: 0 where one gets nothing, no interval where few queries stand below the line."""
    ratios = [value for value in values if isinstance(value, Ratio)]
    worth = sum(ratio.denominator > 0 for ratio in ratios)
    if worth and not any(ratio.numerator for ratio in ratios):
        return Estimate(0.0, None, None, len(ratios), "no_share")
    estimate = ratio_of_means(ratios, inference)
    if estimate is not None and worth < intervals.FEWEST_QUERIES:
        return replace(estimate, low=None, high=None, reason="too_few_queries")
    return estimate


FEWEST_CONSISTENT = 10
"""From fewer pairs that do not flip, over all queries, no preference has an interval."""


def weights_of(aggregate: str) -> Weights:
    """How pairs weigh in a figure: the same each, or the same every query."""
    return "pooled" if aggregate == "pooled" else "macro"


def joined(values: Iterable[Value], weights: Weights = "macro") -> PairContributions | None:
    """The pairs that count in these tallies, one tally a query; None without any."""
    tallies = [value for value in values if isinstance(value, Tally)]
    every = np.concatenate([tally.counts.any(axis=1) for tally in tallies] or [np.zeros(0, bool)])
    if not every.any():
        return None
    counts = np.concatenate([tally.counts for tally in tallies])[every].astype(np.float64)
    clusters = [np.repeat(np.arange(len(tallies)), [len(tally.verdicts) for tally in tallies])]
    verdicts = [verdict for tally in tallies for verdict in tally.verdicts]
    for side in ("protected", "unprotected"):
        names = [getattr(verdict, side) for verdict in verdicts]
        codes = {name: code for code, name in enumerate(dict.fromkeys(names))}
        clusters.append(np.fromiter(map(codes.__getitem__, names), np.intp, len(names)))
    return PairContributions(counts, np.stack(clusters)[:, every], weights, tallies[0].repeats)


def tallied(values: QueryValues, weights: Weights, level: float) -> Estimate | None:
    """A measure's figure of all queries; None without tallies, and without a value where it has none."""
    tallies = [value for value in values if isinstance(value, Tally)]
    if not tallies:
        return None
    formula, counted = tallies[0].formula, joined(tallies, weights)
    cells = np.zeros(formula.things.shape[-1]) if counted is None else counted.cells
    reason = formula.undefined(cells)
    if counted is None or reason:
        return Estimate(None, None, None, 0, reason)
    value = estimate(formula, counted, level, formula.logarithmic)
    if formula.demanding and value.low is not None:
        few = fsum(tally.consistent / tally.repeats for tally in tallies) < FEWEST_CONSISTENT
        if few or value.low == value.high:
            return replace(
                value, low=None, high=None, reason="too_few_consistent_pairs" if few else "degenerate"
            )
    return replace(value, reason="half_added") if not value.reason and formula.adds_half(cells) else value


register("aggregate", "macro")(lambda values, inference: tallied(values, "macro", inference.level))
register("aggregate", "pooled")(lambda values, inference: tallied(values, "pooled", inference.level))


def tallied_p(values: QueryValues, weights: Weights, rng: np.random.Generator) -> float | None:
    """The two-sided p of parity, of a measure that counts PP, UU, FF, SS; None where it has no interval."""
    value, counted = tallied(values, weights, 0.95), joined(values, weights)
    if value is None or value.low is None or counted is None:
        return None
    formula = next(each.formula for each in values if isinstance(each, Tally))
    return pair_p(formula, counted, rng)


LARGEST_LOG = 700.0
"""Beyond this e to it is no number."""
Bound = Literal["at most", "at least"]


@dataclass(frozen=True, slots=True)
class Preference:
    """Odds with their interval, and what they were estimated from.

    `bound`: the odds are at most, or at least, what the estimate says, since slots or groups decide every outcome;
    `slots_decide`: slots alone do, so that no preference for items shows. `tied`: the share of comparisons, each
    query weighing alike, that neither item is ahead in. `null_scores`: the queries' where odds are 1; none where items
    recur, or of several groups.
    """

    estimate: Estimate
    figure: strata.Figure
    null_scores: NDArray[np.float64]
    bound: Bound | None = None
    slots_decide: bool = False
    tied: float = 0.0

    def could_leave(self, band: Band) -> bool:
        """Whether odds would lie beyond the band if one group were ahead wherever there is no tie."""
        least = self.tied / 2 / (1 - self.tied / 2)
        return least < band[0] or least * band[1] < 1


def preference(values: Iterable[Value], level: float = 0.95) -> Preference | None:
    """The odds that the first of two items is put ahead, over queries; None without any comparison.

    Where outcomes are separated there is a bound: if one side is always ahead, odds beyond which that is too unlikely;
    else slots decide, and the odds that leave them out are nearer to 1 than those of items in equal slots.
    """
    compared = _compared(values)
    return _preference(compared, level) if compared else None


@lru_cache(maxsize=32)
def _preference(compared: tuple[QueryComparisons, ...], level: float) -> Preference:
    """Of these very comparisons, which tables, conclusions and contrasts all ask for."""
    stratum, contrast = compared[0].stratum, compared[0].contrast
    together = _together_of_groups if contrast else _together
    outcomes = together(tuple((each.outcomes, tuple(each.doc_ids)) for each in compared))
    if contrast and contrast[0] == contrast[1]:  # of a group, against the mean of all
        value = strata.effects(outcomes, stratum).get(contrast[0]) or strata.Figure(
            0, 0, "too_few_comparisons"
        )
        return Preference(_estimate(value, level), value, np.zeros(0))
    value = strata.figure(outcomes, stratum, contrast)
    if value.always_ahead is not None:
        high = strata.one_way_bound(value.independent, level)
        limits: tuple[float | None, float | None] = (1 / high, None) if value.always_ahead else (None, high)
        sides = np.full(value.queries, 0.5 if value.always_ahead else -0.5)
        bound: Bound = "at least" if value.always_ahead else "at most"
        return Preference(Estimate(None, *limits, value.queries, value.reason), value, sides, bound)
    if value.reason != "separated":
        fit = None if value.recurs or contrast else value.fit
        scores = np.zeros(0) if fit is None else strata.null_scores(outcomes, stratum, fit)
        tied = float(np.mean([each.tied for each in compared]))
        return Preference(_estimate(value, level), value, scores, tied=tied)
    # odds that leave slots out, as a bound of those that are separated
    plain = outcomes.without_slots
    alone = strata.figure(plain, stratum, contrast)
    if alone.fit is None:
        return Preference(Estimate(None, None, None, value.queries, value.reason), value, np.zeros(0))
    decided = strata.slots_decide(outcomes, stratum)
    estimate = replace(_estimate(alone, level), reason="slots_decide" if decided else "separated")
    nearer: Bound = "at most" if alone.fit.log_odds < 0 else "at least"
    scores = np.zeros(0) if contrast else strata.null_scores(plain, stratum, alone.fit)
    return Preference(estimate, alone, scores, nearer, decided)


def _estimate(value: strata.Figure, level: float) -> Estimate:
    limits = value.interval(level)
    if limits is None or value.log_odds is None or value.error is None:
        return Estimate(None, None, None, value.queries, value.reason)
    return Estimate(exp(value.log_odds), *limits, value.queries, None, value.error)


_together = lru_cache(maxsize=16)(strata.together)
_together_of_groups = lru_cache(maxsize=64)(strata.together)
"""Contrast by contrast every prompt's are asked for, and the fit that they hold."""


@register("aggregate", "preference-odds")
def _preference_odds(values: QueryValues, inference: Inference) -> Estimate | None:
    odds = preference(values, inference.level)
    return None if odds is None else odds.estimate


def odds_power(estimate: Estimate, band: Band, level: float = 0.95) -> OddsPower | None:
    """With what power odds at the nearer edge of the band are told from 1; None where no test is made."""
    nearer = min(band, key=lambda edge: abs(log(edge)))
    if estimate.n < FEWEST_TESTED or not estimate.error or nearer == 1:
        return None
    return OddsPower(
        odds=nearer,
        power=power(log(nearer), estimate.error, estimate.n, level),
        queries_needed=queries_needed(nearer, estimate.error * sqrt(estimate.n), level=level),
    )


@register("aggregate", "slot-odds")
def _slot_odds(values: QueryValues, inference: Inference) -> Estimate | None:
    """Without a value where outcomes are separated, so that no finite odds are the likeliest; None without slots."""
    compared = _compared(values)
    if max((each.outcomes.window for each in compared), default=1) < 2:
        return None
    if compared[0].contrast:
        outcomes = _together_of_groups(tuple((each.outcomes, tuple(each.doc_ids)) for each in compared))
        if outcomes.several:
            return _estimate(strata.slots_of_groups(outcomes), inference.level)
    odds = _preference(compared, inference.level)
    value = odds.figure
    if value.fit is None or odds.bound is not None:
        return Estimate(None, None, None, len(compared), odds.estimate.reason)
    contrast = value.fit.first_slot
    moved = value.fit.spread(contrast).error
    centre = float(value.fit.coefficients @ contrast)
    return _estimate(replace(value, log_odds=round(centre, strata.DECIMALS), error=moved), inference.level)


def odds_by_query(values: Mapping[str, Value]) -> dict[str, float]:
    """Each query's part of the odds: e to its jackknife pseudo-value, whose mean over queries is near ln odds; {} where
    there are no finite odds. Where slots decide, of the odds that leave them out, as `preference` has them."""
    compared = [
        query_id
        for query_id, value in values.items()
        if isinstance(value, QueryComparisons) and value.outcomes.of(value.stratum).any()
    ]
    odds = preference(values.values())
    if odds is None or odds.figure.fit is None or len(odds.figure.fit.changes) != len(compared):
        return {}
    parts = odds.figure.fit.parts
    return {
        query_id: float(np.exp(part))
        for query_id, part in zip(compared, parts, strict=True)
        if abs(part) < LARGEST_LOG
    }


def preference_change(
    one: Mapping[str, Value], other: Mapping[str, Value], level: float = 0.95
) -> tuple[Estimate, NDArray[np.float64], float | None] | None:
    """The quotient of two odds over the same queries with its interval, each query's part of its logarithm, and p.

    The parts are jackknife pseudo-values, shape (queries,); p is that of the interval's t where items recur, else None.
    None where either has no finite odds, or no query is in both.
    """
    numbers, figures = dict[str, int](), list[strata.Figure]()
    both = (
        {of for of, value in each.items() if isinstance(value, QueryComparisons)} for each in (one, other)
    )
    shared = sorted(set.intersection(*both))
    for values in (one, other):
        compared = _compared(values[query_id] for query_id in shared)
        if not compared:
            return None
        outcomes = strata.together([(each.outcomes, each.doc_ids) for each in compared], numbers)
        figures.append(strata.figure(outcomes, compared[0].stratum, compared[0].contrast))
    fits = [each.fit for each in figures]
    if fits[0] is None or fits[1] is None or (moved := strata.change(fits[0], fits[1])) is None:
        return None
    difference, spread = moved
    freedom = max(1.0, spread.clusters - 1)
    value = replace(figures[0], log_odds=difference, error=spread.error, freedom=freedom)
    p = value.differs() if spread.recurs or fits[0].beta is not None else None
    return _estimate(value, level), fits[0].parts - fits[1].parts, p


def _compared(values: Iterable[Value]) -> tuple[QueryComparisons, ...]:
    return tuple(value for value in values if isinstance(value, QueryComparisons))


# What groups got, people pooled over queries.


Lists = tuple[Got, ...]
"""What the items of every query got."""
_Entries = tuple[selection.Entries, tuple[str, ...], str]
"""What all groups got, their names, and the group that others are held against, if one is fixed."""


@lru_cache(maxsize=16)
def _entries(values: Lists) -> _Entries:
    """All items with a group and an amount, whichever group is asked for; amounts that are scores are 1 above the
    median of all."""
    amounts = np.concatenate([got.amount for got in values])
    scored = ~np.isnan(amounts)
    if values[0].weights is None:
        amounts = (amounts > np.median(amounts[scored])).astype(float)
    names, people = tuple(values[0].groups), dict[str, int]()
    group = np.full(len(amounts), -1)
    for code, name in enumerate(names):
        group[np.concatenate([got.groups[name] for got in values])] = code
    query = np.repeat(np.arange(len(values)), [len(got.doc_ids) for got in values])
    person = np.array([people.setdefault(doc_id, len(people)) for got in values for doc_id in got.doc_ids])
    grade = np.concatenate([got.grades for got in values])
    some = scored & (group >= 0)
    person = np.unique(person[some], return_inverse=True)[1]
    of = selection.Entries(amounts[some], group[some], query[some], person, len(names), grade[some])
    return of, names, values[0].reference


def _got(values: QueryValues) -> Lists:
    """What every query's items got; nothing where no item has a group."""
    got = tuple(value.got for value in values if isinstance(value, OfGroup))
    return got if any(members.any() for each in got for members in each.groups.values()) else ()


@lru_cache(maxsize=32)
def _of_selection(ratios: bool, values: Lists, level: float) -> Mapping[str, Estimate]:
    """The selection rate of every group, or its impact ratio, by name."""
    of, names, reference = _entries(values)
    fixed = names.index(reference) if reference in names else None
    figures = selection.impact_ratios(of, fixed, level) if ratios else selection.selection_rates(of, level)
    return dict(zip(names, figures, strict=True))


@lru_cache(maxsize=32)
def _least_attainable(values: Lists, level: float) -> Mapping[str, Estimate]:
    """The least ratio of every group that orders can have, and of all together ("") the least of them.

    Without interval: it is no estimate.
    """
    weights = [got.weights for got in values if got.weights is not None]
    counts = [np.array([np.count_nonzero(of) for of in got.groups.values()]) for got in values]
    ratios = selection.least_attainable(weights, counts).tolist()
    least = dict(zip(values[0].groups, ratios, strict=True))
    least[""] = min(ratios, key=lambda ratio: (isnan(ratio), ratio))
    nobody = Estimate(None, None, None, 0, "no_one")
    return {
        name: nobody if isnan(ratio) else Estimate(ratio, None, None, len(values), "attainable")
        for name, ratio in least.items()
    }


def _of_group(
    of_all: Callable[[Lists, float], Mapping[str, Estimate]], values: QueryValues, inference: Inference
) -> Estimate | None:
    group = next((value.group for value in values if isinstance(value, OfGroup)), "")
    return of_all(got, inference.level)[group] if (got := _got(values)) else None


register("aggregate", "selection-rate")(partial(_of_group, partial(_of_selection, False)))
register("aggregate", "impact-ratio")(partial(_of_group, partial(_of_selection, True)))
register("aggregate", "least-attainable")(partial(_of_group, _least_attainable))


@lru_cache(maxsize=16)
def _chance(of: selection.Entries, seed: int, within_grades: bool) -> NDArray[np.float64]:
    """The least ratios of labels dealt at random, drawn once for a ratio and for what chance gives."""
    rng = np.random.default_rng(seed)
    return selection.by_chance(of, rng, strata=of.strata if within_grades else None)


def _least_of_all(
    values: QueryValues, inference: Inference, *, by_chance: bool, within_grades: bool
) -> Estimate | None:
    """The least rate over the greatest with its p, or what chance makes of it, with where 95 % of that lies."""
    if not (got := _got(values)):
        return None
    of = _entries(got)[0]
    least = selection.least_over_greatest(of)
    if least is None:
        return Estimate(None, None, None, of.queries, "one_group")
    chance = _chance(of, inference.seed, within_grades)
    p = selection.p_of_least(least, chance)
    if not by_chance:
        return Estimate(least, None, None, of.queries, "no_interval", p=p)
    low, high = np.quantile(chance, [(1 - inference.level) / 2, (1 + inference.level) / 2]).tolist()
    return Estimate(float(chance.mean()), low, high, of.queries, error=float(chance.std()), p=p)


register("aggregate", "worst-exposure")(partial(_least_of_all, by_chance=False, within_grades=True))
register("aggregate", "exposure-by-chance")(partial(_least_of_all, by_chance=True, within_grades=True))
register("aggregate", "impact-by-chance")(partial(_least_of_all, by_chance=True, within_grades=False))
