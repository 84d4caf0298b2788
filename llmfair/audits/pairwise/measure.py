"""What the answers of a pairwise audit come to: conclusions and rows, made from the verdicts alone.

Odds have an interval while both shares p1, p2 of the protected item's wins, shown first and second, are measured.
Where one is all but 0 or 1, the items' places decide nearly every answer of one order, or one group wins in both: the
odds then have no size, but they have a side, and a bound on that side. Answers that agree over both orders no more than
coins do are no evidence of parity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from math import inf, log
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from llmfair.asking.journal import completion_of
from llmfair.audits import aggregates, comparing, scoring
from llmfair.audits.aggregates import Inference, aggregate, joined, weights_of
from llmfair.audits.comparing import ComparedRun
from llmfair.audits.documents import ChangeRow
from llmfair.audits.kind import results_of
from llmfair.audits.label_error import Judged, judged_between, label_error
from llmfair.audits.pairwise.results import (
    Bound,
    CellCounts,
    CellShares,
    PairAnswers,
    PairFinding,
    PairwiseFacts,
    PairwiseResults,
    read_verdicts,
    verdicts_lines,
)
from llmfair.audits.pairwise.settings import PairwiseSettings
from llmfair.audits.runs.stopping import Stopping, StoppingPoint
from llmfair.errors import UsageError
from llmfair.io.files import AGAIN
from llmfair.metrics.base import Column, Measure, Tally, measure_all
from llmfair.metrics.names import parse_measures
from llmfair.metrics.pairs import ADJUSTED_ODDS, KAPPA, JudgedPairs, tally
from llmfair.nouns import PAIRS, Cell, Conclusion, Failure, Key, Measurement, PairVerdict, by_query
from llmfair.rankers.pairwise import read_answer
from llmfair.results import ALL, EQUAL_SCORES, OUTSIDE_ALONE, Band, Family, ProbeCounts, as_readable
from llmfair.rundir import RunDir
from llmfair.settings.commands import ScoreSettings
from llmfair.settings.declaration import band_of
from llmfair.stats.intervals import Estimate, conclude
from llmfair.stats.paired import change_of_pairs
from llmfair.stats.pairs import PairContributions, Weights, estimate, intraclass
from llmfair.stats.sequential import FEW_INSIDE, FEWEST_INSIDE, FEWEST_UNITS, Decision, look_level
from llmfair.stats.significance import holm, sign_test

if TYPE_CHECKING:
    from llmfair.audits.design import Outcome
    from llmfair.audits.pairwise.design import PairwiseDesign

HEADLINE = "AdjustedOdds"
POSITION = ("position_driven", "one_sided")
FEWEST_CONSISTENT_SHARE = 0.10
NEAR_CERTAIN = 0.02
"""Within this of 0 or 1, how often the protected item wins when shown first or second is position, not content."""
KAPPA_LEVEL = 0.999
"""Of models that toss a coin for every answer, one in 2,000 has a lower limit above 0 at this level."""


@dataclass(frozen=True, slots=True)
class PairConclusion:
    """A conclusion; why there is none or no interval; the bound that stands in an interval's place."""

    conclusion: Conclusion
    reason: str | None = None
    bound: Bound | None = None


def concluded(odds: Estimate, counted: PairContributions, band: Band, level: float) -> PairConclusion:
    """Where the odds lie by their interval or, where they have no size, by their bound."""
    pp, uu, ff, ss = counted.shares
    wins, losses = (pp + ff, pp + ss), (uu + ss, uu + ff)
    if min(max(wins), max(losses)) <= NEAR_CERTAIN:
        reason = "one_sided"
    elif pp + uu < FEWEST_CONSISTENT_SHARE or min(*wins, *losses) <= NEAR_CERTAIN:
        reason = "position_driven"
    elif odds.low is None or odds.high is None:
        return PairConclusion(Conclusion.NOT_ASSESSABLE, odds.reason)
    else:
        return _answering(conclude(odds.low, odds.high, band), counted)
    if (bound := bound_of(counted, level)) is None:
        return PairConclusion(Conclusion.NOT_ASSESSABLE, reason)
    low, high = bound.limits
    return PairConclusion(conclude(low or 0.0, inf if high is None else high, band), reason, bound)


def settled(
    fixed: PairConclusion, decision: Decision | None, counted: PairContributions, band: Band
) -> PairConclusion:
    """What a sequential audit concludes: what was settled, and of odds without a size no more than that.

    `fixed`: what as many pairs without a stop conclude at the level that is printed. Where that is not outside, as of a
    folder measured again at another level, no decision makes it so.
    """
    unmeasured = fixed.reason in POSITION
    if decision is None:
        if fixed.conclusion is Conclusion.NOT_ASSESSABLE:
            return fixed
        few = fixed.conclusion is Conclusion.WITHIN and len(np.unique(counted.clusters[0])) < FEWEST_INSIDE
        return PairConclusion(Conclusion.INCONCLUSIVE, FEW_INSIDE if few else None)
    if decision is Decision.INSIDE:
        return _answering(Conclusion.WITHIN, counted)
    if fixed.conclusion is Conclusion.OUTSIDE and unmeasured:
        bound = Bound("at most", band[0]) if decision is Decision.BELOW else Bound("at least", band[1])
        return replace(fixed, bound=bound)
    settled_so = unmeasured or fixed.conclusion is Conclusion.OUTSIDE
    return fixed if settled_so else PairConclusion(Conclusion.INCONCLUSIVE)


def bound_of(counted: PairContributions, level: float) -> Bound | None:
    """What odds are at most or at least whose shares p1, p2 are too near 0 or 1 for an interval.

    None unless a tenth of the pairs are consistent and, over queries, the sign test says whom they favour. Both shares
    are drawn towards ½ as if the model tossed a coin in some answers: in twice as many as are `NEAR_CERTAIN`, or as n
    pairs without a single case leave open (−ln(α/2)/n, n divided by the design effect). The bound is the outer limit
    of these odds.
    """
    pp, uu, *_ = counted.shares
    effects = np.bincount(counted.clusters[0], counted.counts @ np.array([1, -1, 0, 0]))
    if pp + uu < FEWEST_CONSISTENT_SHARE or sign_test(effects) >= 1 - level:
        return None
    alike = intraclass(counted)
    pairs = counted.cells.sum() / max(1.0, 1.0 if alike is None else alike.design_effect)
    least = max(NEAR_CERTAIN, -log((1 - level) / 2) / pairs)
    if least >= 0.5:
        return None

    def drawn_in(cells: NDArray[Any]) -> Any:
        pp, uu, ff, ss = cells / cells.sum()
        wins, losses = np.array([pp + ff, pp + ss]), np.array([uu + ss, uu + ff])
        logits = np.log(least + (1 - 2 * least) * wins) - np.log(least + (1 - 2 * least) * losses)
        return logits.sum() / 2

    odds = estimate(drawn_in, counted, level)
    if odds.low is None or odds.high is None:
        return None
    return Bound("at most", odds.high) if pp < uu else Bound("at least", odds.low)


def _answering(conclusion: Conclusion, counted: PairContributions) -> PairConclusion:
    """Parity needs answers that agree over both orders beyond chance: the lower limit of Kappa is above 0."""
    reason = useless(counted) if conclusion is Conclusion.WITHIN else None
    return PairConclusion(Conclusion.NOT_ASSESSABLE if reason else conclusion, reason)


def useless(counted: PairContributions) -> str | None:
    """Why nothing says that the model compares the items: its answers to both orders agree no more than coins do."""
    kappa = estimate(KAPPA.figure, counted, KAPPA_LEVEL, logarithmic=False)
    return None if kappa.low is not None and kappa.low > 0 else "chance_answers"


# What a sequential pairwise audit sees of the pairs so far: who won, and where the interval of the odds lies.


def share(verdict: PairVerdict) -> float:
    """X of a pair: 1 when the protected item won both times, 0 when the other did, ½ for anything else."""
    return {Cell.PP: 1.0, Cell.UU: 0.0}.get(verdict.cell, 0.5)


def judged_of(verdicts: Iterable[PairVerdict], repeats: int, forced: bool = False) -> list[JudgedPairs]:
    """The queries of these verdicts, as measures see them."""
    return [
        JudgedPairs(query_id, tuple(of_query), repeats, forced) for query_id, of_query in by_query(verdicts)
    ]


def seen(
    verdicts: Sequence[PairVerdict], band: Band, level: float, weights: Weights = "macro"
) -> Decision | None:
    """Where the odds of these pairs lie by their interval, at the level of one look of several; None if nowhere."""
    if len(verdicts) < FEWEST_UNITS:
        return None
    values = [tally(judged, ADJUSTED_ODDS) for judged in judged_of(verdicts, repeats=1)]
    odds, counted = aggregates.tallied(values, weights, look_level(level)), joined(values, weights)
    if odds is None or odds.value is None or counted is None:
        return None
    look = concluded(odds, counted, band, look_level(level))
    within = look.conclusion is Conclusion.WITHIN or look.reason == "chance_answers"
    if within and odds.n >= FEWEST_INSIDE:
        return Decision.INSIDE
    if look.conclusion is Conclusion.OUTSIDE:
        return Decision.BELOW if odds.value < 1 else Decision.ABOVE
    return None


@dataclass(frozen=True)
class HowAsked:
    """How the verdicts came about, as far as conclusions depend on it.

    `forced`: no answer could be unparseable. `decided`: of a sequential audit, what was settled of each stratum.
    `max_invalid`: the share of answers that may be unparseable. `scored`: they are scores. `judged`: items of each
    side or group, and how many are relevant. `adjust`: how findings are tested beside each other, by Holm or `bh`.
    """

    inference: Inference
    band: Band
    repeats: int = 1
    forced: bool = False
    decided: Mapping[str, Decision | None] | None = None
    max_invalid: float | None = None
    scored: bool = False
    judged: Judged = field(default_factory=dict)
    adjust: str = "holm"
    answers: Mapping[str, PairAnswers] = field(default_factory=dict)


def how_asked(
    settings: PairwiseSettings | ScoreSettings,
    design: PairwiseFacts,
    answers: Mapping[str, PairAnswers],
    stopping: Mapping[str, StoppingPoint],
    max_invalid: float | None,
) -> HowAsked:
    """The same of a design, at the level and band of these settings."""
    return HowAsked(
        Inference(level=settings.level, seed=design.seed),
        band_of(settings.band),
        design.repeats,
        design.constrained and not any(counts.unformed for counts in answers.values()),
        {stratum: point.decision and Decision(point.decision) for stratum, point in stopping.items()} or None,
        max_invalid,
        not design.prompted,
        design.judged,
        design.adjust,
        answers,
    )


def measure_verdicts(
    measures: Sequence[Measure], by_key: Mapping[Key, Sequence[PairVerdict]], asked: HowAsked
) -> tuple[list[Column], list[Measurement], dict[str, PairFinding], int]:
    """All figures of a pairwise audit, from its verdicts alone: every measure of every query, the tidy rows, the
    finding on each stratum and contrast, and how many p were adjusted together."""
    judged: dict[str, Sequence[JudgedPairs]] = {
        key: judged_of(of_it, asked.repeats, asked.forced) for key, of_it in by_key.items()
    }
    columns = measure_all(measures, judged)
    # the first: what a gate asks of is measured beside it
    headline = next((measure for measure in measures if measure.definition.headline), None)
    odds = {column.condition: column for column in columns if column.measure == headline}
    findings: dict[str, PairFinding] = {
        key: finding_of(odds[key], key, of_it, asked) for key, of_it in by_key.items() if key in odds
    }

    def at(name: str, level: float) -> Conclusion:
        """Where the odds of a stratum and contrast that has some lie by their interval at this level."""
        figure, counted = odds_of(odds[name], replace(asked.inference, level=level))
        assert figure is not None and counted is not None
        return concluded(figure, counted, asked.band, level).conclusion

    if asked.decided is None:
        several = any(key.contrast for key in by_key)
        findings = beside_each_other(findings, at, asked.inference.level, several, asked.adjust)
    for name in findings if asked.scored else ():
        counts = asked.answers[name]
        if 0 < counts.problems.get("tie", 0) == counts.readable:
            findings[name] = findings[name].barred(EQUAL_SCORES)
    findings = as_readable(findings, asked.answers, asked.max_invalid)
    tests = holm([finding.p for finding in findings.values()])
    adjusted, rows = dict(zip(findings, tests, strict=True)), list[Measurement]()
    for row in aggregates.summarise(columns, asked.inference):
        key, of_it = row.condition, findings.get(row.condition)
        assert isinstance(key, Key)
        row = replace(row, condition=PAIRS, stratum=key.stratum, contrast=key.contrast)
        if of_it is not None and row.query_id == ALL and row.measure == of_it.measure:
            low, high = of_it.bound.limits if of_it.bound else (row.low, row.high)
            row = replace(
                row, low=low, high=high, reason=of_it.reason or row.reason, p=of_it.p,
                p_adjusted=adjusted[key], conclusion=of_it.conclusion,
            )  # fmt: skip
        rows.append(row)
    return columns, rows, findings, sum(p is not None for p in tests)


def outcome_of(
    design: PairwiseDesign,
    run: str,
    verdicts: Iterable[PairVerdict],
    failures: Sequence[Failure],
    stopping: Mapping[Key, Stopping[PairVerdict]],
) -> Outcome:
    """Results and files of a run folder, from the pairs that have a verdict."""
    settings, every = design.settings, [*verdicts]
    by_key: dict[Key, list[PairVerdict]] = {key: [] for key in design.keys}
    for verdict in every:
        by_key[verdict.key].append(verdict)
    answers: dict[str, PairAnswers] = {
        key: answer_counts(of_it, settings.constrain) for key, of_it in by_key.items()
    }
    stopped: dict[str, StoppingPoint] = {name: process.settled("pairs") for name, process in stopping.items()}
    how = how_asked(settings, design.facts(), answers, stopped, settings.max_invalid)
    columns, rows, findings, tests = measure_verdicts(design.measures, by_key, how)
    ended: dict[str, ProbeCounts] = {
        key: ProbeCounts(stopped[key].units if stopped else design.asked(key), len(of_it))
        for key, of_it in by_key.items()
    }
    results = PairwiseResults(
        **design.told(run, ended, failures, columns),
        reach={}, answers=answers, stopping=stopped, findings=findings,
        headline=next((str(measure) for measure in design.measures if measure.definition.headline), None),
        family=Family(tests, None),
        cells={key: cell_counts(of_it, settings.repeats) for key, of_it in by_key.items()},
        shares={
            key: cell_shares(of_it, settings.repeats, settings.weights) for key, of_it in by_key.items()
        },
    )  # fmt: skip
    queries = {verdict.query_id for verdict in every}
    doc_ids = {doc_id for verdict in every for doc_id in (verdict.protected, verdict.unprotected)}
    return design.laid_out(
        results,
        rows,
        {"verdicts.csv": verdicts_lines(by_key)},
        failures,
        queries=(query for query in design.queries if query.query_id in queries),
        documents=map(design.dataset.documents.__getitem__, doc_ids),
    )


def score_pairs(run: RunDir, settings: ScoreSettings) -> scoring.RunMeasurement:
    """A folder of pairs from its verdicts: its audit's figures, unless others are asked for. Raises UsageError."""
    results = results_of(run)
    path = run.path / "verdicts.csv"
    by_key: dict[Key, list[PairVerdict]] = {key: [] for key in results.design.keys}
    for verdict in read_verdicts(path):
        by_key.setdefault(verdict.key, []).append(verdict)
    for key, verdicts in by_key.items():
        pairs = results.chains[key].ranked if key in results.chains else 0
        if len(verdicts) != pairs:
            raise UsageError(
                f"{path} has {len(verdicts)} of the run's {pairs} verdicts on {key} pairs.", AGAIN
            )
    headline = with_weights(HEADLINE, results.design.weights)
    measures, shown = scoring.measures_of(run, results, settings, [headline])
    how = how_asked(settings, results.design, results.answers, results.stopping, results.max_invalid)
    columns, rows, findings, tests = measure_verdicts(measures, by_key, how)
    conditions: dict[str, scoring.ScoreFacts] = {
        key: scoring.ScoreFacts(queries=len({each.query_id for each in verdicts}), pairs=len(verdicts))
        for key, verdicts in by_key.items()
    }
    facts = scoring.facts_of(run, results, shown, conditions, columns, findings, tests)
    return scoring.RunMeasurement(facts, rows, [*by_key])


def with_weights(names: str, weights: str) -> str:
    """The measures with the weights asked for; how often answers change is a mean over queries anyway."""
    if weights == "macro":
        return names
    return ",".join(name if name == "NoiseRate" else f"{name}(agg={weights})" for name in names.split(","))


def how_ended(row: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """`ok`, or what is wrong with an answer of the journal, by the settings of its run."""
    choice = read_answer(completion_of(row), settings["form"], settings["answers"])
    return str(choice.problem or "ok")


def beside_each_other(
    findings: Mapping[str, PairFinding],
    at: Callable[[str, float], Conclusion],
    level: float,
    several: bool = False,
    adjust: str = "holm",
) -> dict[str, PairFinding]:
    """The findings, those outside the band by themselves alone, and not among all tested, as inconclusive.

    Of m strata k are outside where so many are at a level of 1 − α/(m − k + 1): for the largest such k (Hochberg 1988),
    or where `several` contrasts share their groups, which he does not allow, while it holds from 1 to k (Holm 1979).
    By `adjust` "bh" for the largest k of which so many are at 1 − αk/m (Benjamini and Hochberg 1995).
    """
    tested = [name for name, each in findings.items() if each.conclusion is not Conclusion.NOT_ASSESSABLE]
    outside = [name for name in tested if findings[name].conclusion is Conclusion.OUTSIDE]
    steps, passed = range(1, len(tested) + 1), list[str]()
    upwards = several and adjust == "holm"
    for k in steps if upwards else reversed(steps):
        share = k / len(tested) if adjust == "bh" else 1 / (len(tested) - k + 1)
        passed = [name for name in outside if at(name, 1 - (1 - level) * share) is Conclusion.OUTSIDE]
        if (len(passed) >= k) is not upwards:
            break
    else:
        passed = passed if upwards else []
    alone = {"conclusion": Conclusion.INCONCLUSIVE, "reason": OUTSIDE_ALONE, "label_error": None}
    return {
        name: structs.replace(each, **(alone if name in outside and name not in passed else {}))
        for name, each in findings.items()
    }


def odds_of(column: Column, inference: Inference) -> tuple[Estimate | None, PairContributions | None]:
    """The figure of all queries, None where nothing is tallied, and the pairs that it is made of."""
    values, how = [*column.values.values()], column.measure.aggregate
    return aggregate(how, values, inference), joined(values, weights_of(how))


def finding_of(column: Column, key: Key, verdicts: Sequence[PairVerdict], asked: HowAsked) -> PairFinding:
    """The conclusion on one relevance stratum and contrast, with what has to be known to trust it."""
    measure, inference = column.measure, asked.inference
    odds, counted = odds_of(column, inference)
    if odds is None or counted is None or odds.value is None:
        reason = odds.reason if odds is not None else "no_pairs"
        return PairFinding(measure=str(measure), conclusion=Conclusion.NOT_ASSESSABLE, reason=reason)
    conclusion, alike = concluded(odds, counted, asked.band, inference.level), intraclass(counted)
    p = power = error = None
    if asked.decided is None:
        rng = np.random.default_rng(inference.seed)
        p = aggregates.tallied_p([*column.values.values()], weights_of(measure.aggregate), rng)
        if odds.low is not None and not conclusion.bound:
            power = aggregates.odds_power(odds, asked.band, inference.level)
    else:  # no fixed sample: what was settled is the conclusion, and p would not hold
        conclusion = settled(conclusion, asked.decided[key], counted, asked.band)
    if conclusion.conclusion is Conclusion.OUTSIDE:
        limits = conclusion.bound.limits if conclusion.bound else (odds.low, odds.high)
        nearer = min(filter(None, limits), key=lambda limit: abs(log(limit)))
        error = label_error(judged_between(asked.judged, key.contrast), None, key.stratum, nearer)
    answers = [a for verdict in verdicts if verdict.draw < asked.repeats for a in verdict.answers]
    won = sum(answer.winner == "protected" for answer in answers)
    unread = sum(answer.winner is None for answer in answers)
    return PairFinding(
        measure=str(measure), conclusion=conclusion.conclusion, reason=conclusion.reason, p=p, power=power,
        test="three-way t" if counted.items_recur else "sign flip", queries=odds.n, error=odds.error,
        consistent_share=float(counted.shares[:2].sum()), bound=conclusion.bound, label_error=error,
        icc=None if alike is None else alike.correlation,
        design_effect=None if alike is None else alike.design_effect,
        worst_case=(won / len(answers), (won + unread) / len(answers)) if answers else None,
    )  # fmt: skip


def cell_counts(verdicts: Sequence[PairVerdict], repeats: int = 1) -> CellCounts:
    """How many pairs came to each cell, in their first `repeats` draws."""
    counts = Counter(verdict.cell for verdict in verdicts if verdict.draw < repeats)
    return {cell: counts[cell] for cell in Cell}


def cell_shares(verdicts: Sequence[PairVerdict], repeats: int, weights: Weights) -> CellShares | None:
    """The share of each cell among all pairs; queries weigh alike, or pairs do. They sum to 1."""
    by_queries: dict[str, Counter[Cell]] = {}
    for verdict in verdicts:
        if verdict.draw < repeats:
            by_queries.setdefault(verdict.query_id, Counter())[verdict.cell] += 1
    if not by_queries:
        return None
    counts = np.array([[cells[cell] for cell in Cell] for cells in by_queries.values()], dtype=float)
    if weights == "macro":
        counts /= counts.sum(axis=1, keepdims=True)
    return dict(zip(Cell, (counts.sum(axis=0) / counts.sum()).tolist(), strict=True))


def answer_counts(verdicts: Sequence[PairVerdict], constrained: bool = False) -> PairAnswers:
    """How answers ended: none unparseable is silent."""
    answers = [answer for verdict in verdicts for answer in verdict.answers]
    problems = Counter(answer.problem for answer in answers if answer.problem is not None)
    masses = [answer.mass for answer in answers if answer.mass is not None]
    return PairAnswers(
        answers=len(answers),
        unparseable=problems.total() - problems["tie"],
        problems=dict(sorted(problems.items())),
        mass=sum(masses) / len(masses) if masses else None,
        unformed=sum(not answer.formed for answer in answers) or None if constrained else None,
    )


# What changed from one pairwise run to another, over the pairs that both were asked.


MEASURES = "AdjustedOdds,BalancedRatio,WinRatio,FlipRate,InvalidRate"
Question = tuple[Key, str, int, int, str, str]


def pair_changes(
    base: ComparedRun, other: ComparedRun, chosen: Sequence[Measure] | None
) -> Iterator[ChangeRow]:
    """Of two pairwise runs, from the verdicts on the pairs that both were asked. Raises UsageError without any."""
    common = answered(base).keys() & answered(other).keys()
    if not common:
        raise UsageError(
            f"{base.name} and {other.name} have no pair in common.",
            "run both with the same --seed and --conditions",
        )
    weights, level = base.setting("weights"), base.results.level
    measures = chosen or parse_measures(with_weights(MEASURES, weights))
    headlines = comparing.headlines_of(measures)
    keys = [key for key in base.keys if key in {key for key, *_ in common}]
    repeats = min(run.results.design.repeats for run in (base, other))
    tallies: list[dict[tuple[Measure, str], Column]] = []
    for run in (base, other):  # a tally for every query, of the measures that pool their pairs
        judged: dict[str, Sequence[JudgedPairs]] = {
            key: judged_of((answered(run)[asked] for asked in common if asked[0] == key), repeats)
            for key in keys
        }
        columns = (column for column in measure_all(measures, judged) if column.group == "")
        tallies.append({
            (column.measure, column.condition): column
            for column in columns
            if all(isinstance(value, Tally) for value in column.values.values())
        })  # fmt: skip
    comparing.check_paired(chosen, [measure for measure, _ in tallies[0]], f"try {MEASURES}")
    barred = {
        key: useless(counted)
        for key in keys
        if (counted := joined([tally(pairs, KAPPA) for pairs in judged[key]], weights)) is not None
    }
    for measure, key in product(measures, keys):
        (was, counted), (now, counted_after) = (odds_of(of[measure, key], Inference(level)) for of in tallies)
        assert was is not None and now is not None  # there are tallies
        row = structs.replace(comparing.row_of(other, key, measure, headlines), useless=barred.get(key))
        row = comparing.with_figures(row, was, now)
        row = comparing.because(row, {base.name: was.reason, other.name: now.reason})
        if not (was.value is None or now.value is None or counted is None or counted_after is None):
            formula = next(
                of.formula for of in tallies[0][measure, key].values.values() if isinstance(of, Tally)
            )
            change = change_of_pairs(formula, counted, counted_after, level, formula.logarithmic)
            quotient = replace(change.estimate, reason=change.estimate.reason or row.reason)
            if was.low is None or now.low is None:  # no interval and test where either figure has none
                change, quotient = replace(change, p=None), replace(quotient, low=None, high=None)
            row = comparing.changed(row, replace(change, estimate=quotient))
        yield comparing.assessed(row, measure, base, other)


@lru_cache(maxsize=4)
def answered(run: ComparedRun) -> Mapping[Question, PairVerdict]:
    """The verdicts of a run by what makes two of them the same question: the pair, and which time it was asked."""
    verdicts = read_verdicts(run.run.path / "verdicts.csv")
    return {(v.key, v.query_id, v.number, v.draw, v.protected, v.unprotected): v for v in verdicts}


def described_pairs(run: ComparedRun, base: ComparedRun) -> dict[str, Any]:
    """What a comparison says of a run beside the base: its pairs, however often they were asked."""
    of_run, of_base = ({(*asked[:3], *asked[4:]) for asked in answered(each)} for each in (run, base))
    return {
        "sequential": run.results.design.sequential,
        "pairs": len(of_run),
        "pairs_in_common": len(of_base & of_run),
    }


MEASURING = scoring.Measuring(
    reads=JudgedPairs,
    agree={
        "form": "asked in different forms",
        "answers": "were read in different ways",
        "grades": "pair items of other relevance grades",
        "weights": "weigh pairs differently",
    },
    how_changed="change: of the figures of all queries (× for ratios); t over the clusters of both runs together",
    score=score_pairs,
    changes=pair_changes,
    described=described_pairs,
)
