"""What the answers of a listwise audit come to: findings, rows and files, made from the rankings alone.

Two nulls are tested, and both told: that queries prefer no side on average (signs flipped by query), and that no
query prefers one (labels shuffled among equally relevant documents). The conclusion lays a band on the preference
odds. That they lie within it is said only of a ranker that does its job, since noise prefers nobody either.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import combinations, compress, product
from math import log
from operator import itemgetter
from statistics import fmean, median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from llmfair.audits import aggregates
from llmfair.audits.aggregates import ALL, Inference, Preference
from llmfair.audits.design import RELEVANT, relevant_lines
from llmfair.audits.label_error import Judged as GradedItems
from llmfair.audits.label_error import label_error, odds_with
from llmfair.audits.listwise import results
from llmfair.audits.listwise.results import (
    INITIAL,
    SEPARATOR,
    ListwiseFinding,
    PermutationResult,
    Usefulness,
    WindowAnswers,
)
from llmfair.audits.runs.stopping import Stopping
from llmfair.io.trec import groups_lines, qrels_lines, run_lines, scores_lines
from llmfair.metrics.base import (
    Column,
    Judged,
    Measure,
    QueryComparisons,
    Sides,
    Value,
    measure_all,
    measure_each,
)
from llmfair.metrics.exposure import exposures
from llmfair.metrics.names import parse_measure
from llmfair.metrics.utility import TREC_EVAL
from llmfair.nouns import Attribute, Conclusion, Failure, Key, Measurement, Probe, Ranking, Side, condition_of
from llmfair.probes import REPEAT
from llmfair.rankers.base import Ranker
from llmfair.rankers.strategies import Ranked, are_places
from llmfair.results import EQUAL_SCORES, OUTSIDE_ALONE, Band, Family, ProbeCounts, as_readable
from llmfair.stats import intervals
from llmfair.stats.intervals import FEWEST_QUERIES
from llmfair.stats.power import FEWEST_TESTED
from llmfair.stats.sequential import FEW_INSIDE, FEWEST_INSIDE, Decision, look_level
from llmfair.stats.significance import LabelledItems, benjamini_hochberg, holm, permutations, sign_flip
from llmfair.stats.strata import GUARD, Strata, Stratum, together

if TYPE_CHECKING:
    from llmfair.audits.design import Outcome
    from llmfair.audits.listwise.design import ListwiseDesign

Findings = dict[str, ListwiseFinding]
"""By prompt, or by key where contrasts are several."""
Queries = Sequence[Judged]
ByCondition = Mapping[str, Queries]
SCORED = f"P@20,nDCG@20,ExpRatio,{results.OF_RANKINGS}"
"""What is measured of rankings that exist."""

# One condition against another, paired by query: what a prompt changes, how far the same one differs from itself.
# Rows of two conditions bear both names as their condition, `female vs male`: a quotient for measures on a log scale,
# a difference for others. Rank agreement of two conditions is measured order by order, since both started from the
# same.


NEUTRAL = "neutral"
ADJUSTED = {"holm": holm, "bh": benjamini_hochberg}
OF_ODDS = "preference-odds"
"""The aggregate of figures that are odds over all comparisons."""


def pairs_of(conditions: Sequence[str]) -> list[tuple[str, str]]:
    """Every later condition against every earlier one; neutral asked again against neutral only."""
    return [(b, a) for a, b in combinations(conditions, 2) if b != REPEAT or a == NEUTRAL]


def contrasts(
    columns: Sequence[Column], judged: ByCondition, conditions: Sequence[str], inference: Inference
) -> Iterator[Measurement]:
    """The rows of every pair of conditions, for every measure that has a direction and values of single queries."""
    values = {(column.measure, column.condition): column for column in columns if column.group == ""}
    for measure, (later, earlier) in product(dict.fromkeys(of for of, _ in values), pairs_of(conditions)):
        # a figure that is neither better nor worse is no effect of a prompt
        if not measure.definition.better or (measure.of_all and measure.aggregate != OF_ODDS):
            continue
        if measure.definition.agreement:
            if earlier == NEUTRAL:
                yield from _agreement(measure, later, judged, inference)
        elif (measure, later) in values and (measure, earlier) in values:
            alike = {query.query_id for query, _ in _alike(judged[later], judged[earlier])}
            yield from paired(measure, values[measure, later], values[measure, earlier], alike, inference)


def _alike(later: Queries, earlier: Queries) -> Iterator[tuple[Judged, Judged]]:
    """The queries that both conditions ranked from the same initial orders, as often."""
    twins = {query.query_id: query for query in earlier}
    pairs = ((query, twins.get(query.query_id)) for query in later)
    return ((query, twin) for query, twin in pairs if twin is not None and twin.runs == query.runs)


def paired(
    measure: Measure, later: Column, earlier: Column, alike: set[str], inference: Inference
) -> Iterator[Measurement]:
    """One measure of two conditions, over the queries alike where both have a value."""
    condition = f"{later.condition}{SEPARATOR}{earlier.condition}"
    queries = sorted(later.values.keys() & earlier.values.keys() & alike)
    if measure.aggregate != OF_ODDS:
        a, b = (aggregates.numbers_of(column.values) for column in (later, earlier))
        both, quotients = a.keys() & b.keys(), measure.definition.scale == "log"
        changes = {of: a[of] / b[of] if quotients else a[of] - b[of] for of in queries if of in both}
        bounds = intervals.of_changes(measure.bounds)
        yield from _rows(measure, condition, changes, changes, inference, bounds, quotients)
        return
    # all queries together have odds; each one's part of the change is tested
    first, second = ({q: column.values[q] for q in queries} for column in (later, earlier))
    change = aggregates.preference_change(first, second, inference.level)
    if change is None:
        reason = "no_finite_odds" if queries else "no_common_query"
        yield Measurement(ALL, str(measure), None, condition, n=0, reason=reason)
    else:
        estimate, parts, p = change
        row = aggregates.row_of(str(measure), condition, estimate)
        yield _tested(row, parts, inference) if p is None else replace(row, p=p)


def _agreement(
    measure: Measure, later: str, judged: ByCondition, inference: Inference
) -> Iterator[Measurement]:
    """Rank agreement of a condition with neutral, tested against that of neutral with itself."""

    def agreed(condition: str) -> dict[str, float]:
        twins = _alike(judged.get(condition, ()), judged.get(NEUTRAL, ()))
        return _numbers(measure, (replace(query, beside=twin.rankings) for query, twin in twins))

    values, floor = agreed(later), {} if later == REPEAT else agreed(REPEAT)
    below = {query_id: values[query_id] - floor[query_id] for query_id in values.keys() & floor.keys()}
    condition = f"{later}{SEPARATOR}{NEUTRAL}"
    yield from _rows(measure, condition, values, below, inference, measure.bounds, quotients=False)


def _numbers(measure: Measure, queries: Iterable[Judged]) -> dict[str, float]:
    """The values of a measure with one figure, by query; those without are absent."""
    return aggregates.numbers_of(
        {query.query_id: value for query in queries for value in measure.values(query).values()}
    )


def _rows(
    measure: Measure,
    condition: str,
    values: Mapping[str, float],
    tested: Mapping[str, float],
    inference: Inference,
    bounds: intervals.Bounds,
    quotients: bool,
) -> Iterator[Measurement]:
    """A row per query and one of all, with the p of a sign flip of `tested` (of quotients: their logarithms)."""
    for query_id, value in sorted(values.items()):
        yield Measurement(query_id, str(measure), value, condition)
    if not values:
        yield Measurement(ALL, str(measure), None, condition, n=0, reason="no_common_query")
        return
    numbers, level = [*values.values()], inference.level
    mean = intervals.geometric_mean if quotients else partial(intervals.mean, bounds=bounds)
    changes = np.array([tested[query_id] for query_id in sorted(tested)])
    row = aggregates.row_of(str(measure), condition, mean(numbers, level))
    yield _tested(row, np.log(changes) if quotients else changes, inference)


def _tested(row: Measurement, changes: NDArray[np.float64], inference: Inference) -> Measurement:
    """The row with the p of a sign flip of the queries' changes, where there are enough."""
    if len(changes) < FEWEST_TESTED:
        return row
    return replace(row, p=sign_flip(changes, rng=np.random.default_rng(inference.seed)))


# How answers ended, counted per condition: nothing unparseable, repaired or left out stays silent.


FEWEST_WINDOWS, NEARLY_ALL = 10, 0.9


def answer_counts(
    ranked: Iterable[tuple[str, Ranked]], sides: Sides | None, constrained: bool = False
) -> dict[str, WindowAnswers]:
    """Per condition, of `(condition, result)` pairs: classes, repaired, unparseable, identity, omissions by side.

    `first_pass.same`: windows of the first pass whose answer orders the places as most answers do, whatever stands
    there. `classes` are those of the answers that counted; `asked_again` those of bad answers that another replaced.
    `equal_scores` where there are some; `unformed` where answers were `constrained` to a form, and some have another.
    `omitted.protected_expected` is what the omitted items would hold if sides were left out alike; of several groups,
    where `sides` is None, it is None.
    """
    lists: dict[str, list[Ranked]] = {}
    for condition, result in ranked:
        lists.setdefault(condition, []).append(result)
    return {condition: _counts(of_it, sides, constrained) for condition, of_it in sorted(lists.items())}


def _counts(lists: list[Ranked], sides: Sides | None, constrained: bool) -> WindowAnswers:
    windows = [window for result in lists for window in result.windows]
    # of a list that is in order already, later passes rightly change nothing; an item alone has but one order
    first = [window for window in windows if window.pass_number == 1 and len(window.shown) > 1]
    orders = Counter(window.permutation for window in first if window.permutation is not None)
    most = {len(order): n for order, n in reversed(orders.most_common())}  # of windows of each length
    scores = [[s for w in result.windows for s in w.scores or () if s is not None] for result in lists]
    equal = [len({*of_list}) == 1 for of_list in scores if len(of_list) > 1]
    omitted = results.OmittedItems(
        items=sum(len(window.omitted) for window in windows),
        of=sum(len(window.omitted) + len(window.named) for window in windows if window.named),
    )
    if sides is not None:
        protected = {doc_id for doc_id, side in sides.items() if side is Side.PROTECTED}
        expected = (
            len(window.omitted) * len(protected & {*window.shown}) / len(window.shown)
            for window in windows
            if window.omitted
        )
        omitted = structs.replace(
            omitted,
            protected=sum(len(protected & {*window.omitted}) for window in windows),
            protected_expected=round(sum(expected, 0.0), 6),
        )
    return WindowAnswers(
        windows=len(windows),
        classes=dict(sorted(Counter(str(window.answer_class) for window in windows).items())),
        repaired=sum(window.repaired for window in windows),
        unparseable=sum(window.unparseable for window in windows),
        first_pass=results.FirstPass(len(first), sum(w.identity for w in first), sum(most.values())),
        asked_again=dict(sorted(Counter(str(bad) for window in windows for bad in window.replaced).items())),
        omitted=omitted,
        equal_scores=results.EqualScores(sum(equal), len(equal)) if any(equal) else None,
        unformed=(constrained and sum(not window.formed for window in windows)) or None,
    )


HEADLINE = "PreferenceOdds"
"""The measure that conclusions speak of."""
EXCESS = "ExcessRatio"
"""What the preference does to exposure, told beside it."""
TOO_FEW = "too_few_queries"
OF_SOME = {"no_encounter": "few_encounters", "no_common_grade": "few_common_grades"}
"""Why fewer than 5 queries compare anything, where enough were asked: by the reason of most of the others."""
SHUFFLES = 1000
"""The stream of a query's seed that label shuffles are drawn from."""


@dataclass(frozen=True)
class HowRanked:
    """What findings need to know of how the rankings came about, and of how to judge them.

    `initial`: the kind of initial order; rankers without windows and run files inherit none, so theirs count as random.
    `judged`: how many items of each group there are, and how many are relevant; `label_error`: the share of these
    grades that is taken to be wrong.
    """

    band: Band = (0.8, 1.25)
    guard: Band = GUARD
    strata: Sequence[Stratum] = ()
    level: float = 0.95
    permutations: int = 9999
    seed: int = 0
    initial: str = "random"
    unjudged: bool = False
    judged: GradedItems = field(default_factory=dict)
    label_error: float | None = None


def findings_of(
    columns: Sequence[Column],
    judged: ByCondition,
    useful: Mapping[str, Usefulness | None],
    inference: Inference,
    rule: HowRanked,
    left_out: Mapping[str, float] = {},
) -> Findings:
    """One finding per condition of the first measure of preference odds, by condition, as if none were a disparity.

    A condition that `judged` lacks (a run file, of which too much would be held) has no permutation test. `left_out`:
    the share of items that its answers leave out.
    """
    headline = next((c.measure for c in columns if c.measure.name == HEADLINE), None)
    ratios = {c.condition: [*c.values.values()] for c in reversed(columns) if c.measure.name == EXCESS}
    ranked = {name: queries for name, queries in judged.items() if any(query.rankings for query in queries)}
    shuffled, findings = _shuffled(ranked, rule), Findings()
    for column in columns:
        if column.measure != headline or not column.values:
            continue
        name, values = column.condition, [*column.values.values()]
        missing, use = left_out.get(name, 0.0), useful.get(name)
        odds = list_odds(values, rule, missing)
        undefined = aggregates.most_frequent(values)
        if odds is None:
            reason = "order_not_random" if rule.initial != "random" else undefined
            findings[name] = unassessable(str(headline), reason)
            continue
        conclusion, reason = concluded(odds, rule, "not_judged" if use is None else use.useless)
        if reason == TOO_FEW and len(values) >= FEWEST_QUERIES:  # were asked, of which some compare nothing
            reason = OF_SOME.get(str(undefined), reason)
        excess = aggregates.aggregate("ratio-of-means", ratios.get(name, []), inference)
        findings[name] = ListwiseFinding(
            measure=str(headline),
            conclusion=conclusion,
            reason=reason,
            odds=_odds(odds.pooled, rule),
            strata={str(stratum): _odds(of_it, rule) for stratum, of_it in odds.strata.items()},
            p_outside=odds.figures.outside(rule.band) if rule.initial == "random" else None,
            left_out=missing,
            unjudged=rule.unjudged,
            useful=use,
            excess=None
            if excess is None or excess.value is None
            else results.Excess(excess.value, excess.low, excess.high, excess.n),
            permutation=shuffled.get(name),
            power=aggregates.odds_power(odds.pooled.estimate, rule.band, rule.level),
        )
    return findings


def with_family(
    rows: Sequence[Measurement], findings: Findings, contrasted: str | None
) -> tuple[list[Measurement], int]:
    """The rows with the findings' p and conclusion, and p adjusted over the family; and the family's size.

    The family (Holm): the headline of every prompt, and every pair of prompts in the measure `contrasted`. The
    control condition shows noise and claims nothing, so it is none of them.
    """
    rows, family = list(rows), list[int]()
    headlines = {finding.measure for finding in findings.values()}
    for place, row in enumerate(rows):
        if row.query_id != ALL:
            continue
        if (finding := findings.get(Key(row.condition, contrast=row.contrast))) is not None:
            p_of = {
                results.of_stratum(finding.measure, name): odds.p for name, odds in finding.by_stratum.items()
            }
            row = replace(row, p=p_of.get(row.measure, row.p))
            if row.measure == finding.measure:
                row = replace(row, conclusion=finding.conclusion, reason=row.reason or finding.reason)
            rows[place] = row
        contrast = row.measure == contrasted and SEPARATOR in row.condition
        if (contrast or row.measure in headlines) and REPEAT not in row.condition.split(SEPARATOR):
            family.append(place)
    for place, adjusted in zip(family, holm([rows[place].p for place in family]), strict=True):
        rows[place] = replace(rows[place], p_adjusted=adjusted)
    return rows, sum(rows[place].p is not None for place in family)


def with_disparities(findings: Findings, level: float = 0.95, adjust: str = "holm") -> Findings:
    """The findings, a disparity where the odds of a prompt and contrast are outside the band by p adjusted over all
    prompts and contrasts (Holm, or Benjamini and Hochberg).

    Each p is one-sided, so it is held against half of what the level leaves. The control condition claims nothing, and
    stands by its own p. Odds that are outside by their own p alone are the reason why nothing else is concluded.
    """
    most, changed = (1 - level) / 2, Findings()
    claims = [name for name in findings if condition_of(name) != REPEAT]
    p_values = [findings[name].p_outside for name in claims]
    adjusted = dict(zip(claims, ADJUSTED[adjust](p_values), strict=True))
    for name, finding in findings.items():
        p = adjusted.get(name, finding.p_outside)
        alone = [odds.p_outside for odds in finding.by_stratum.values() if odds.p_outside is not None]
        finding = structs.replace(finding, p_outside_adjusted=p)
        if p is not None and p <= most:
            finding = structs.replace(finding, conclusion=Conclusion.OUTSIDE)
            odds = finding.by_stratum.get(finding.decisive)
            finding = structs.replace(finding, reason=None if odds is None else odds.reason)
        elif finding.conclusion is Conclusion.INCONCLUSIVE and min(alone, default=1.0) <= most:
            finding = structs.replace(finding, reason=OUTSIDE_ALONE)
        changed[name] = finding
    return changed


def final_findings(
    findings: Findings,
    columns: Sequence[Column],
    rules: Mapping[str, HowRanked],
    answers: Mapping[str, WindowAnswers],
    max_invalid: float | None,
    adjust: str = "holm",
) -> Findings:
    """The findings with disparities, with what wrong grades would make of a ranker without preference that is of as
    much use, and as far as the answers bear them; `rules` by their keys, `answers` by condition."""
    level = next((rule.level for rule in rules.values()), 0.95)
    of_relevance = {c.condition: c.values.values() for c in columns if c.measure.name == "RelevanceOdds"}
    changed = with_disparities(findings, level, adjust)
    for name, finding in changed.items():
        condition, rule = condition_of(name), rules[name]
        odds = finding.by_stratum.get(finding.decisive)
        shares = [v.ahead for v in of_relevance.get(condition, ()) if isinstance(v, QueryComparisons)]
        better_ahead = fmean(shares) if shares else None
        if rule.label_error is not None:
            with_errors = odds_with(rule.label_error, rule.judged, better_ahead)
            finding = structs.replace(finding, odds_of_label_error=with_errors)
        if odds is not None and finding.conclusion is Conclusion.OUTSIDE:
            nearer = min((end for end in (odds.low, odds.high) if end), key=lambda end: abs(log(end)))
            explaining = label_error(rule.judged, better_ahead, finding.decisive, nearer)
            finding = structs.replace(finding, label_error=explaining)
        changed[name] = assessed(finding, answers[condition]) if condition in answers else finding
    return as_readable(changed, answers, max_invalid)


class ListOdds(NamedTuple):
    """The preference odds of a condition: over all items, and over those of each stratum that both groups have."""

    pooled: Preference
    strata: Mapping[Stratum, Preference]
    left_out: float

    @property
    def figures(self) -> Strata:
        strata = {stratum: odds.figure for stratum, odds in self.strata.items()}
        return Strata(self.pooled.figure, strata, self.left_out)


def list_odds(values: Iterable[Value], rule: HowRanked, left_out: float = 0.0) -> ListOdds | None:
    """From the queries' values, of all items and of those of each stratum; None without any comparison."""
    compared = [value for value in values if isinstance(value, QueryComparisons)]
    if (pooled := aggregates.preference(compared, rule.level)) is None:
        return None
    odds = dict[Stratum, Preference]()
    for stratum in rule.strata:
        of_it = aggregates.preference([replace(value, stratum=stratum) for value in compared], rule.level)
        if of_it is not None:
            odds[stratum] = of_it
    return ListOdds(pooled, odds, left_out)


def _odds(odds: Preference, rule: HowRanked) -> results.Odds:
    estimate, figure = odds.estimate, odds.figure
    return results.Odds(
        estimate.value, estimate.low, estimate.high, estimate.n, figure.comparisons, odds.bound, estimate.reason,
        no_preference(odds, rule), figure.outside(rule.band), figure.recurring, figure.clusters,
    )  # fmt: skip


def assessed(finding: ListwiseFinding, answers: WindowAnswers) -> ListwiseFinding:
    """The finding as far as the answers bear it, with the share of windows that they left as they were.

    Of answers that follow the position it is said only that the odds are outside. A model that always gives the same
    order of places, the window's own or another, reads nothing: its lists are the random ones it was shown, which are
    at parity.
    """
    first, equal, reason = answers.first_pass, answers.equal_scores, None
    if first.windows:
        finding = structs.replace(finding, left_as_shown=first.identity / first.windows)
    if 0 < answers.windows == answers.unparseable:
        reason = "no_readable_answer"
    elif equal and equal.lists == equal.of:
        reason = EQUAL_SCORES
    elif first.windows >= FEWEST_WINDOWS and first.same >= NEARLY_ALL * first.windows:
        reason = "position_driven"
    if reason is None or finding.conclusion is Conclusion.OUTSIDE:
        return finding
    return unassessable(finding.measure, reason)


def settled(finding: ListwiseFinding, decision: Decision | None) -> ListwiseFinding:
    """The finding of a sequential audit: nothing that was not settled, and no p, which speaks of fixed samples."""
    settles = {Conclusion.WITHIN: [Decision.INSIDE], Conclusion.OUTSIDE: [Decision.ABOVE, Decision.BELOW]}
    if decision not in settles.get(finding.conclusion, [decision]):
        few = finding.odds is not None and finding.odds.n < FEWEST_INSIDE
        reason = FEW_INSIDE if few and finding.conclusion is Conclusion.WITHIN else None
        finding = structs.replace(finding, conclusion=Conclusion.INCONCLUSIVE, reason=reason)
    odds = {name: structs.replace(of_it, p=None) for name, of_it in finding.by_stratum.items()}
    return structs.replace(finding, odds=odds.pop("all", None), strata=odds, power=None)


def unassessable(measure: str, reason: str | None) -> ListwiseFinding:
    """The finding of a condition of which nothing can be said."""
    return ListwiseFinding(measure=measure, conclusion=Conclusion.NOT_ASSESSABLE, reason=reason)


def concluded(odds: ListOdds, rule: HowRanked, useless: str | None = None) -> tuple[Conclusion, str | None]:
    """What the odds come to where they are no disparity, and why nothing more can be said.

    `useless`: why nothing says that the ranker does its job; None where it does. Parity is not said of a
    ranker that does not order by relevance, nor of one whose ties keep any odds in the band. Where slots alone decide
    between equally relevant items, no preference for a group shows: the interval of the odds without them is judged
    as any other.
    """
    pooled, estimate = odds.pooled, odds.pooled.estimate
    if rule.initial != "random":
        return Conclusion.NOT_ASSESSABLE, "order_not_random"
    if (estimate.low is None) != (estimate.high is None):
        return Conclusion.INCONCLUSIVE, estimate.reason
    if estimate.low is None or estimate.high is None:
        return Conclusion.NOT_ASSESSABLE, estimate.reason
    if not pooled.could_leave(rule.band):
        return Conclusion.NOT_ASSESSABLE, "tied"
    if pooled.bound is not None and not pooled.slots_decide:  # odds farther from 1 by nobody knows how much
        return Conclusion.NOT_ASSESSABLE, estimate.reason
    if intervals.conclude(estimate.low, estimate.high, rule.band) is not Conclusion.WITHIN:
        return Conclusion.INCONCLUSIVE, None
    if any(each.figure.few_items for each in (pooled, *odds.strata.values())):
        return Conclusion.INCONCLUSIVE, "few_items"
    parity, reason = odds.figures.parity(rule.band, rule.guard, rule.level)
    if not parity:
        return Conclusion.INCONCLUSIVE, reason or "stratum_open"
    return (Conclusion.NOT_ASSESSABLE if useless else Conclusion.WITHIN), useless


def no_preference(odds: Preference, rule: HowRanked) -> float | None:
    """p of no mean preference: by t where items recur or groups are several, else by sign flips of scores at odds of 1.

    None for too few queries or a given order.
    """
    figure, scores = odds.figure, odds.null_scores
    if figure.queries < FEWEST_TESTED or rule.initial not in ("random", "mirrored"):
        return None
    if figure.recurs or not len(scores):
        return figure.differs()
    return sign_flip(scores, rng=np.random.default_rng(rule.seed)) if len(scores) >= FEWEST_TESTED else None


def _shuffled(judged: ByCondition, rule: HowRanked) -> dict[str, PermutationResult]:
    """The stratified test of no effect in any query, by condition; those that ranked the same lists are shuffled at
    once. It needs random initial orders, and lists that have items of both sides."""
    if rule.initial != "random":
        return dict.fromkeys(judged, PermutationResult(reason="order_not_random"))
    alike: dict[Hashable, dict[str, dict[str, LabelledItems]]] = {}
    for condition, queries in judged.items():
        labelled = dict[str, LabelledItems]()
        for query in queries:
            protected = query.on_side[Side.PROTECTED]
            sided = protected | query.on_side[Side.UNPROTECTED]
            if query.rankings and protected.any() and not protected[sided].all():
                doc_ids = tuple(compress(query.doc_ids, sided))
                items = exposures(query)[sided], protected[sided], query.grades[sided]
                labelled[query.query_id] = LabelledItems(*items, doc_ids)
        lists = tuple((query_id, *items.labels()) for query_id, items in labelled.items())
        alike.setdefault(lists, {})[condition] = labelled
    shuffled: dict[str, PermutationResult] = {}
    for conditions in alike.values():
        names = next(iter(conditions.values()))
        if len(names) < FEWEST_TESTED:
            shuffled |= dict.fromkeys(conditions, PermutationResult(reason="too_few_queries"))
            continue
        rngs = [np.random.default_rng([rule.seed, zlib.crc32(name.encode()), SHUFFLES]) for name in names]
        tested = permutations([[*of.values()] for of in conditions.values()], rngs, rule.permutations)
        for condition, result in zip(conditions, tested, strict=True):
            shuffled[condition] = PermutationResult(**asdict(result))
    return shuffled


# Whether a ranker does its job at all: without that, being near parity says nothing, since noise is near it too.


CUTOFF = 20
SURE = 0.999
"""The level of these intervals: at 95 % one in forty rankers that order by chance would pass for one of use."""
UTILITY = f"nDCG@{CUTOFF}"
"""What says how well a list is ordered by relevance."""


def gain_on_chance(judged: Judged) -> float | None:
    """nDCG@20 of a query's rankings less what a random order of its list is expected to have.

    That is the mean gain of the list, discounted over its first 20 ranks, over the best that the judgements allow.
    None without a judged relevant document.
    """
    utility = _utility([judged]).get(judged.query_id)
    gains = np.clip(judged.grades, 0, None)
    best = sorted((gain for gain in judged.candidates.relevance.values() if gain > 0), reverse=True)[:CUTOFF]
    if utility is None or not len(gains):
        return None
    discounts = 1 / np.log2(np.arange(2, CUTOFF + 2))
    expected = gains.mean() * discounts[: len(gains)].sum() / (np.array(best) @ discounts[: len(best)])
    return utility - float(expected)


def of_answers(values: Iterable[Value]) -> Usefulness | None:
    """From answers alone, where nothing is ranked: RelevanceOdds; None without items of different grades."""
    if (relevance := aggregates.preference(values, SURE)) is None:
        return None
    of = relevance.estimate
    odds = of.low if of.value is None else of.value
    return None if odds is None else Usefulness("RelevanceOdds", 1.0, odds, of.low, of.high, of.n, "chance")


def _utility(queries: Queries) -> dict[str, float]:
    judged = (q for q in queries if any(grade > 0 for grade in q.candidates.relevance.values()))
    return _numbers(parse_measure(UTILITY), judged)


def mean_gain(gains: Mapping[str, float], against: str = "the initial ranking") -> Usefulness | None:
    """From each query's gain in nDCG@20 on what it is held against; None without any."""
    if not gains:
        return None
    gain = intervals.mean([gains[query_id] for query_id in sorted(gains)], SURE, (-1.0, 1.0))
    assert gain.value is not None
    return Usefulness(UTILITY, 0.0, gain.value, gain.low, gain.high, gain.n, against)


# What a sequential listwise audit sees of the windows so far: who is ahead, and where the odds lie.


ODDS = parse_measure("PreferenceOdds")


class WindowShare(NamedTuple):
    """A window of a query, and what it says of the preference."""

    query_id: str
    value: Value


def share(window: WindowShare) -> float:
    """X of a window: the share of its comparisons that the protected item won, ½ where it has none."""
    return window.value.ahead if isinstance(window.value, QueryComparisons) else 0.5


def look(windows: Sequence[WindowShare], rule: HowRanked, level: float) -> Decision | None:
    """Where the odds of these windows lie by their interval, at the level of one look of several, whether or not the
    ranker does its job; None if nowhere."""
    values, rule = [*joined_windows(windows)], replace(rule, level=look_level(level))
    odds = list_odds(values, rule)
    if odds is None:
        return None
    p = odds.figures.outside(rule.band)
    if p is not None and p <= (1 - rule.level) / 2:
        each = [
            (of.figure.outside(rule.band), of.estimate.low) for of in (odds.pooled, *odds.strata.values())
        ]
        _, low = min((of for of in each if of[0] is not None), key=itemgetter(0))
        return Decision.BELOW if low is None or low < rule.band[0] else Decision.ABOVE
    conclusion, _ = concluded(odds, rule)
    enough = odds.pooled.estimate.n >= FEWEST_INSIDE
    return Decision.INSIDE if enough and conclusion is Conclusion.WITHIN else None


def joined_windows(windows: Iterable[WindowShare]) -> Iterator[QueryComparisons]:
    """What all windows of a query compare, for every query that has something."""
    by_query: dict[str, list[QueryComparisons]] = {}
    for query_id, value in windows:
        if isinstance(value, QueryComparisons):
            by_query.setdefault(query_id, []).append(value)
    for values in by_query.values():
        numbers, pairs_shown = dict[str, int](), Counter[tuple[int, Stratum]]()
        outcomes = together([(value.outcomes, value.doc_ids) for value in values], numbers)
        for (_, stratum), pairs in outcomes.shown.items():
            pairs_shown[0, stratum] += pairs
        query = np.zeros(len(outcomes.query), np.intp)
        yield QueryComparisons(replace(outcomes, query=query, shown=pairs_shown), [*numbers])


# What the chains of a run come to, as the files of its folder.


Chains = Sequence[tuple[Probe, Ranked]]
ALIKE_IN_ALL = ("SlotOdds", "RelevanceOdds", "GroupOdds")
"""Odds that are the same whichever groups are compared."""
POSITIONS = (
    "the scores of every list are 0 to n - 1, each once: if these are positions, best first, as argsort gives them, "
    "return the documents themselves in that order"
)


def outcome_of(
    design: ListwiseDesign,
    run: str,
    chains: Chains,
    failures: Sequence[Failure],
    stopping: Mapping[str, Stopping[WindowShare]],
) -> Outcome:
    """Measures the chains that have a ranking, in the design's order; the others are counted and named."""
    settings, names = design.settings, design.condition_names
    judged = _judged(design, chains, names)
    conditions, initial = {name: judged[name] for name in names}, judged[INITIAL]
    documents = median(items.n for items in design.lists)
    inference = Inference(settings.level, settings.ci, settings.seed, documents=documents)
    alike, of_two = by_contrast(design.measures, design.attribute)
    columns = measure_all(alike, judged)
    if of_two:
        observed = ((name, query) for name, queries in judged.items() for query in queries)
        columns += columns_of_contrasts(of_two, [*design.rules], design.between, observed)
    before, useful = _utility(initial), dict[str, Usefulness | None]()
    for name in names:  # paired by query with the initial orders
        after = _utility(judged[name])
        useful[name] = mean_gain({of: after[of] - before[of] for of in after.keys() & before})
    for column in columns:  # by its answers, where a condition's make no ranking
        if column.measure.name == "RelevanceOdds" and not any(q.rankings for q in judged[column.condition]):
            useful[column.condition] = of_answers(column.values.values())
    answered = ((probe.condition, result) for probe, result in chains if result.asked)
    sides = None if design.attribute.groups else design.sides
    answers = answer_counts(answered, sides, settings.constrain)
    left_out = {name: counts.omitted.share for name, counts in answers.items()}
    findings, rules = Findings(), dict[str, HowRanked]()
    for contrast, rule in design.rules.items():
        of_it = [of for of in columns if of.contrast == contrast and of.condition in conditions]
        queries = {name: [design.between(query, contrast) for query in of] for name, of in conditions.items()}
        concluded_of = findings_of(of_it, queries, useful, inference, rule, left_out)
        findings |= {Key(name, contrast=contrast): finding for name, finding in concluded_of.items()}
        rules |= {Key(name, contrast=contrast): rule for name in names}
    findings = final_findings(findings, columns, rules, answers, settings.max_invalid, settings.adjust)
    for name in findings.keys() & stopping:
        findings[name] = settled(findings[name], stopping[name].process.decision)
    contrasted = next((str(m) for m in design.measures if m.name == HEADLINE), None)
    rows = aggregates.summarise(columns, inference)
    # what each query contributes to preference odds, so that prompts and runs can be paired by query
    rows += (
        Measurement(
            query_id, str(of.measure), part, of.condition, reason="pseudo_value", contrast=of.contrast
        )
        for of in columns
        if of.measure.name == HEADLINE
        for query_id, part in aggregates.odds_by_query(of.values).items()
    )
    compared = (
        replace(row, contrast=contrast)
        for contrast in ({"": None} if design.many_contrasts else {"": None, **design.rules})
        for row in contrasts([of for of in columns if of.contrast == contrast], conditions, names, inference)
    )
    # of what stopped by what was seen no p would hold
    rows += (replace(row, p=None) for row in compared) if stopping else compared
    rows, family = with_family(rows, findings, contrasted)
    rows += _rows_of_files(design, chains, inference)
    planned = dict.fromkeys(names, len(design.queries) * settings.orders * settings.repeats)
    planned |= {name: len(stopped.counted()) for name, stopped in stopping.items()}
    ranked = Counter(probe.condition for probe, _ in chains)
    counts = {name: ProbeCounts(of, ranked[name]) for name, of in planned.items()}
    scores = [window.scores for _, of in chains for window in of.windows if window.scores is not None]
    places = design.subject.scores_lists and bool(scores) and all(map(are_places, scores))
    measured = results.ListwiseResults(
        **design.told(run, counts, failures, columns),
        intervals=_intervals(columns, inference),
        controlled=any(aggregates.of_known_orders([*column.values.values()]) for column in columns),
        reach=design.reach,
        answers=answers,
        stopping={name: stopped.settled("windows") for name, stopped in stopping.items()},
        findings=findings,
        family=Family(family, contrasted),
        warnings=[POSITIONS] * places,
    )
    where = windows_of(measured.design)
    return design.laid_out(measured, rows, dict(_files(design, chains)), failures, where=where)


def in_groups(judged: Judged, attribute: Attribute, sides_of: Mapping[str, Sides]) -> Judged:
    """The query with the group of every item, where several are compared: candidates, and those a cut ranking lacks;
    its items on the sides of the first contrast."""
    if not attribute.groups:
        return judged
    missing = (judged.groups.documents[of] for of in judged.missing if of in judged.groups.documents)
    items = (*judged.candidates.documents, *missing)
    members = {document.doc_id: attribute.group(document) for document in items}
    grouped = replace(judged, members=members, names=attribute.groups)
    return grouped.between(attribute, next(iter(sides_of)), sides_of)


def by_contrast(measures: Sequence[Measure], attribute: Attribute) -> tuple[list[Measure], list[Measure]]:
    """The measures that are made once, and those made once a contrast: of several groups those that compare two."""
    of_two = (m for m in measures if m.definition.parity is not None and m.name not in ALIKE_IN_ALL)
    compared = [*of_two] if attribute.groups else []
    return [measure for measure in measures if measure not in compared], compared


def columns_of_contrasts(
    measures: Sequence[Measure],
    contrasts: Sequence[str],
    between: Callable[[Judged, str], Judged],
    observed: Iterable[tuple[str, Judged]],
) -> list[Column]:
    """The columns of measures that compare two groups, contrast by contrast."""
    keyed = (
        (Key(condition, contrast=contrast), between(judged, contrast))
        for condition, judged in observed
        for contrast in contrasts
    )
    columns = [
        replace(column, condition=column.condition.condition, contrast=column.condition.contrast)
        for column in measure_each(measures, keyed)
        if isinstance(column.condition, Key)
    ]
    return sorted(columns, key=lambda column: contrasts.index(column.contrast))


def _judged(design: ListwiseDesign, chains: Chains, names: Sequence[str]) -> dict[str, list[Judged]]:
    """Every query's rankings by condition, orders and repeats together, with the orders that they began with and what
    the answers compared; the initial orders are a condition of their own. A ranker forgets the order it is given."""
    by_query: dict[tuple[str, str], list[tuple[Probe, Ranked]]] = {}
    for probe, ranked in chains:
        by_query.setdefault((probe.condition, probe.candidates.query.query_id), []).append((probe, ranked))
    reached = {query_id for _, query_id in by_query}
    judged: dict[str, list[Judged]] = {name: [] for name in (*names, INITIAL)}
    for query in design.queries:
        query_id, candidates = query.query_id, design.dataset.candidates(query)
        for name in names:
            if not (of_query := by_query.get((name, query_id))):
                continue
            begun = [(probe, ranked.ranking) for probe, ranked in of_query if ranked.ranking is not None]
            of_it = design.judged(candidates, [ranking for _, ranking in begun])
            if not isinstance(design.ranker, Ranker):
                beside = tuple(Ranking(query_id, probe.candidates.doc_ids) for probe, _ in begun)
                encounters = tuple(e for _, ranked in of_query for e in ranked.encounters)
                of_it = replace(of_it, beside=beside, encounters=encounters)
            runs = tuple(dict.fromkeys((probe.order, probe.repeat) for probe, _ in of_query))
            judged[name].append(replace(of_it, runs=runs))
        if query_id in reached:  # of an incomplete run the input speaks of the same queries as the conditions
            orders = [Ranking(query_id, order.doc_ids) for order in design.orders[query_id]]
            judged[INITIAL].append(design.judged(candidates, orders))
    return judged


def _rows_of_files(design: ListwiseDesign, chains: Chains, inference: Inference) -> list[Measurement]:
    """Utility of each run file by itself, where a condition has several: what ir_measures prints for that file."""
    utility = [measure for measure in design.measures if measure.definition.cite == TREC_EVAL]
    judged: dict[str, list[Judged]] = {}
    for probe, ranked in chains if design.settings.orders * design.settings.repeats > 1 else ():
        if ranked.ranking is not None:
            file = f"{probe.condition}.o{probe.order}.r{probe.repeat}"
            judged.setdefault(file, []).append(design.judged(probe.candidates, [ranked.ranking]))
    return [
        row for row in aggregates.summarise(measure_all(utility, judged), inference) if row.query_id == ALL
    ]


def windows_of(design: results.ListwiseFacts) -> str:
    """How lists were ranked, as a gate says it that no ranker could fail."""
    return "on these lists" if design.window is None else f"at window {design.window}, step {design.step}"


def _intervals(columns: Sequence[Column], inference: Inference) -> dict[str, intervals.Method]:
    """How the intervals of exposure ratios were made, by measure; those without interval are absent."""
    methods: dict[str, intervals.Method] = {}
    for column in columns:
        measure = column.measure
        if measure.definition.better == "parity" and str(measure) not in methods:
            estimate = aggregates.aggregate(measure.aggregate, list(column.values.values()), inference)
            if estimate is not None and estimate.low is not None:
                methods[str(measure)] = estimate.method
    return methods


def _files(design: ListwiseDesign, chains: Chains) -> Iterator[tuple[str, str]]:
    """What rankings can be measured from again, by file name."""
    runs: dict[str, list[Ranking]] = {}
    for probe, ranked in chains:
        if ranked.ranking is not None:  # `neutral.run`, further orders and repeats beside it
            further = f".o{probe.order}.r{probe.repeat}" * (probe.order > 0 or probe.repeat > 0)
            runs.setdefault(f"{probe.condition}{further}.run", []).append(ranked.ranking)
    for name, rankings in runs.items():
        yield f"rankings/{name}", "".join(run_lines(rankings, tag="llmfair"))
    scored = [ranked.ranking for _, ranked in chains if ranked.ranking and ranked.ranking.scores is not None]
    if scored:
        yield "scores.tsv", "".join(scores_lines(scored))
    # Judgements of the queries that were ranked, so that other tools read our files as we do.
    reached = {probe.candidates.query.query_id for probe, _ in chains}
    qrels = {q: judged for q, judged in design.dataset.qrels.items() if q in reached}
    yield "qrels.txt", "".join(qrels_lines(qrels))
    # Documents outside the lists too: targets and the axis of groups are made of them.
    yield "groups.tsv", "".join(groups_lines({d: doc.groups for d, doc in design.dataset.documents.items()}))
    if design.groups.relevant:
        yield RELEVANT, "".join(relevant_lines(design.groups))
    yield "candidates.jsonl", "".join(design.candidates_lines())
