"""What may be said of each condition: how far from parity, whether beyond chance, and what the design could have shown.

Two nulls are tested, and both told: that queries prefer no side on average (signs flipped by query), and that no
query prefers one (labels shuffled among equally relevant documents). The conclusion lays a band on the preference
odds. That they lie within it is said only of a ranker that does its job, since noise prefers nobody either.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from llmfair.audits.aggregates.preference import Preference, preference
from llmfair.audits.listwise.answers import missing_unevenly, unassessed
from llmfair.audits.listwise.contrasts import SEPARATOR
from llmfair.audits.listwise.results import (
    Excess,
    ListwiseFinding,
    Odds,
    OddsPower,
    OrderNoise,
    PermutationResult,
    SignFlip,
    Usefulness,
    WindowAnswers,
)
from llmfair.audits.summary import ALL, Inference, aggregate, most_frequent, value_of
from llmfair.metrics.base import Judged
from llmfair.metrics.columns import Column
from llmfair.metrics.exposure import exposures
from llmfair.metrics.names import parse_measure
from llmfair.metrics.values import ControlledExposures, Quotient, Ratio, Value
from llmfair.nouns import Conclusion, Measurement, Side
from llmfair.probes import REPEAT
from llmfair.stats.conclusions import conclude
from llmfair.stats.control import run_noise, slope_on_initial, without_favour
from llmfair.stats.intervals import FEWEST_QUERIES, Estimate
from llmfair.stats.power import FEWEST_TESTED, power, queries_needed
from llmfair.stats.sequential import Decision
from llmfair.stats.significance import MOST_ENUMERATED, LabelledItems, holm, permutations, sign_flip

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

    `initial` is the kind of initial order; only random ones allow a conclusion. Rankers without windows and
    run files inherit no order, so theirs count as random.
    """

    band: tuple[float, float] = (0.8, 1.25)
    permutations: int = 9999
    seed: int = 0
    initial: str = "random"


def findings_of(
    columns: Sequence[Column],
    judged: Mapping[str, Sequence[Judged]],
    useful: Mapping[str, Usefulness | None],
    inference: Inference,
    asked: HowRanked,
) -> dict[str, ListwiseFinding]:
    """One finding per condition of the first measure of preference odds, by condition.

    A condition that `judged` lacks (a run file, of which too much would be held) has no permutation test.
    """
    headline = next((c.measure for c in columns if c.measure.name == HEADLINE), None)
    excess = {c.condition: c for c in reversed(columns) if c.measure.name == EXCESS}
    ranked = {
        condition: queries
        for condition, queries in judged.items()
        if any(query.rankings for query in queries)
    }
    shuffled = _shuffled(ranked, asked)
    return {
        column.condition: _finding(
            column,
            excess.get(column.condition),
            judged.get(column.condition),
            shuffled.get(column.condition),
            useful.get(column.condition),
            inference,
            asked,
        )
        for column in columns
        if column.measure == headline and column.values
    }


def with_family(
    rows: Sequence[Measurement], findings: Mapping[str, ListwiseFinding], contrasted: str | None
) -> tuple[list[Measurement], int]:
    """The rows with the findings' p and conclusion, and p adjusted over the family; and the family's size.

    The family (Holm): the headline of every prompt, and every pair of prompts in the measure `contrasted`. The
    control condition shows noise and claims nothing, so it is none of them.
    """
    told = [_told(row, findings.get(row.condition)) for row in rows]
    headlines = {finding.measure for finding in findings.values()}
    family = [
        place
        for place, row in enumerate(told)
        if row.query_id == ALL
        and REPEAT not in row.condition.split(SEPARATOR)
        and (row.measure in headlines or (row.measure == contrasted and SEPARATOR in row.condition))
    ]
    for place, adjusted in zip(family, holm([told[place].p for place in family]), strict=True):
        told[place] = replace(told[place], p_adjusted=adjusted)
    return told, sum(told[place].p is not None for place in family)


def _told(row: Measurement, finding: ListwiseFinding | None) -> Measurement:
    if finding is None or row.query_id != ALL or row.measure != finding.measure:
        return row
    p = None if finding.sign_flip is None else finding.sign_flip.p
    return replace(row, p=p, conclusion=finding.conclusion, reason=row.reason or finding.reason)


def _finding(
    column: Column,
    exposure: Column | None,
    judged: Sequence[Judged] | None,
    shuffled: PermutationResult | None,
    useful: Usefulness | None,
    inference: Inference,
    asked: HowRanked,
) -> ListwiseFinding:
    values = list(column.values.values())
    found = preference(values, inference.level)
    missing = most_frequent(reason for value in values if (reason := value_of(value)[1]))
    if found is None:
        given = "order_not_random" if asked.initial != "random" else missing
        return unassessable(str(column.measure), given)
    useless = "not_judged" if useful is None else useful.unshown
    conclusion, reason = concluded(found, useful is not None and useful.shown, asked, useless)
    if reason == TOO_FEW and len(values) >= FEWEST_QUERIES:  # were asked, of which some compare nothing
        reason = OF_SOME.get(str(missing), reason)
    ratios = [] if exposure is None else list(exposure.values.values())
    excess, runs = aggregate("ratio-of-means", ratios, inference), _runs(judged or ())
    estimate = found.estimate
    return ListwiseFinding(
        measure=str(column.measure),
        conclusion=conclusion,
        reason=reason,
        odds=Odds(estimate.value, estimate.low, estimate.high, estimate.n, found.comparisons, found.bound),
        useful=useful,
        excess=None
        if excess is None or excess.value is None
        else Excess(excess.value, excess.low, excess.high, excess.n),
        sign_flip=SignFlip(
            mean_preference(found.null_scores, asked), estimate.n, estimate.n <= MOST_ENUMERATED
        ),
        permutation=shuffled,
        run_noise=_run_noise(ratios, runs),
        slope=_slope(runs),
        power=_power(estimate, asked.band),
    )


def assessed(finding: ListwiseFinding, answers: WindowAnswers) -> ListwiseFinding:
    """The finding as far as the answers bear it: of answers that follow the position, only that it is outside."""
    reason = unassessed(answers)
    if reason is None and finding.conclusion is Conclusion.WITHIN and missing_unevenly(answers):
        reason = "items_missing"
    if reason is None or finding.conclusion is Conclusion.OUTSIDE:
        return finding
    return unassessable(finding.measure, reason)


def settled(finding: ListwiseFinding, decision: Decision | None) -> ListwiseFinding:
    """The finding of a sequential audit: nothing that was not settled, and no p, which speaks of fixed samples."""
    settles = {Conclusion.WITHIN: [Decision.INSIDE], Conclusion.OUTSIDE: [Decision.ABOVE, Decision.BELOW]}
    conclusion, reason = finding.conclusion, finding.reason
    if decision not in settles.get(conclusion, [decision]):
        conclusion, reason = Conclusion.INCONCLUSIVE, None
    return replace(finding, conclusion=conclusion, reason=reason, sign_flip=None, power=None)


def unassessable(measure: str, reason: str | None) -> ListwiseFinding:
    """The finding of a condition of which nothing can be said."""
    return ListwiseFinding(measure=measure, conclusion=Conclusion.NOT_ASSESSABLE, reason=reason)


def concluded(
    found: Preference, useful: bool, asked: HowRanked, useless: str = "not_judged"
) -> tuple[Conclusion, str | None]:
    """Where the interval lies, and why nothing more can be said.

    `useful`: whether the ranker does its job; `useless`: the reason where nothing says so.

    A ranker that does not order by relevance can be outside, never within; nor is one whose ties keep any odds in
    the band. Where one group always wins, the bound lies beyond the band or says too little. Where slots alone decide
    between equally relevant items, no preference for a group shows: the interval of the odds without them is judged
    as any other.
    """
    estimate, (low, high) = found.estimate, asked.band
    if asked.initial != "random":
        return Conclusion.NOT_ASSESSABLE, "order_not_random"
    if (estimate.low is None) != (estimate.high is None):
        beyond = (estimate.high or high) < low or (estimate.low or low) > high
        return (Conclusion.OUTSIDE if beyond else Conclusion.INCONCLUSIVE), estimate.reason
    if estimate.low is None or estimate.high is None:
        return Conclusion.NOT_ASSESSABLE, estimate.reason
    conclusion = conclude(estimate.low, estimate.high, asked.band)
    if conclusion is Conclusion.OUTSIDE:
        return conclusion, estimate.reason
    if not found.could_leave(asked.band):
        return Conclusion.NOT_ASSESSABLE, "tied"
    if found.bound is not None and not found.slots_decide:  # odds farther from 1 by nobody knows how much
        return Conclusion.NOT_ASSESSABLE, estimate.reason
    if conclusion is Conclusion.WITHIN and not useful:
        return Conclusion.NOT_ASSESSABLE, useless
    return conclusion, None


def mean_preference(scores: NDArray[np.float64], asked: HowRanked) -> float | None:
    """p of no mean preference over queries, by their scores at odds of 1; None for too few or a given order."""
    if len(scores) < FEWEST_TESTED or asked.initial not in ("random", "mirrored"):
        return None
    return sign_flip(scores, rng=np.random.default_rng(asked.seed))


def _shuffled(judged: Mapping[str, Sequence[Judged]], asked: HowRanked) -> dict[str, PermutationResult]:
    """The stratified test of no effect in any query, by condition.

    Conditions that ranked the same lists are shuffled at once. It needs initial orders that ignore the sides.
    """
    if asked.initial != "random":
        return dict.fromkeys(judged, PermutationResult(reason="order_not_random"))
    alike: dict[object, dict[str, dict[str, LabelledItems]]] = {}
    for condition, queries in judged.items():
        labelled = {query.query_id: found for query in queries if (found := _labelled(query)) is not None}
        lists = tuple((query_id, *found.labels()) for query_id, found in labelled.items())
        alike.setdefault(lists, {})[condition] = labelled
    shuffled: dict[str, PermutationResult] = {}
    for conditions in alike.values():
        of_conditions = list(conditions.values())
        if len(of_conditions[0]) < FEWEST_TESTED:
            shuffled |= dict.fromkeys(conditions, PermutationResult(reason="too_few_queries"))
            continue
        rngs = [
            np.random.default_rng([asked.seed, zlib.crc32(name.encode()), SHUFFLES])
            for name in of_conditions[0]
        ]
        tested = permutations(
            [list(labelled.values()) for labelled in of_conditions], rngs, asked.permutations
        )
        shuffled |= {
            condition: PermutationResult(**asdict(found))
            for condition, found in zip(conditions, tested, strict=True)
        }
    return shuffled


def _labelled(query: Judged) -> LabelledItems | None:
    """The items of either group with their exposures; None where one group has none, or nothing is ranked."""
    protected = query.on_side(Side.PROTECTED)
    sided = protected | query.on_side(Side.UNPROTECTED)
    if not query.rankings or not protected.any() or protected[sided].all():
        return None
    return LabelledItems(exposures(query)[sided], protected[sided], query.grades[sided])


def _runs(judged: Sequence[Judged]) -> list[tuple[ControlledExposures, ...]]:
    """Both sides' exposures from every initial order, by query; none where orders are not known."""
    measure = parse_measure("ExpRatio(control=order)")
    ratios = [value for query in judged for value in measure.values(query).values()]
    return [ratio.controlled for ratio in ratios if isinstance(ratio, Ratio)]


def _run_noise(values: Sequence[Value], runs: Sequence[tuple[ControlledExposures, ...]]) -> OrderNoise | None:
    """How far other initial orders would move ln R on these very queries; None from a single order."""
    if len({len(found) for found in runs}) != 1:
        return None
    sides = []
    with_control = any(isinstance(value, Quotient) and value.ratio.controlled for value in values)
    for side in (0, 1):
        final = [np.array([run.final[side] for run in found]) for found in runs]
        favour = [np.array([run.favour(side) for run in found]) for found in runs]
        sides.append(np.array(without_favour(final, favour) if with_control else final).T)
    noise = run_noise(*sides)
    return None if noise is None else OrderNoise(noise.error, noise.df)


def _slope(runs: Sequence[tuple[ControlledExposures, ...]]) -> float | None:
    """Slope of ln(E1/E0) of the rankings on that of their initial orders: 1 mirrors the input, 0 forgets it."""
    found = [
        (log(run.final[0] / run.final[1]), log(run.initial[0] / run.initial[1]))
        for orders in runs
        for run in orders
    ]
    if not found:
        return None
    final, initial = np.array(found).T
    return slope_on_initial(final, initial)


def _power(estimate: Estimate, band: tuple[float, float]) -> OddsPower | None:
    """With what power this design finds odds at the nearer edge of the band, and the queries for 80 %."""
    nearer = min(band, key=lambda odds: abs(log(odds)))
    if estimate.n < FEWEST_TESTED or not estimate.error or nearer == 1:
        return None
    return OddsPower(
        odds=nearer,
        power=power(log(nearer), estimate.error, estimate.n),
        queries_needed=queries_needed(nearer, estimate.error * sqrt(estimate.n)),
    )
