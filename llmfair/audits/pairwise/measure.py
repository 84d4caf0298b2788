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
from math import inf, log
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from llmfair.asking.journal import completion_of
from llmfair.audits.aggregates import (
    ALL,
    Inference,
    aggregate,
    joined,
    odds_power,
    summarise,
    tallied,
    tallied_p,
    weights_of,
)
from llmfair.audits.comparing import (
    ComparedRun,
    assessed,
    because,
    changed,
    check_paired,
    headlines_of,
    row_of,
    with_figures,
)
from llmfair.audits.documents import ChangeRow
from llmfair.audits.kind import results_of
from llmfair.audits.label_error import Judged, label_error
from llmfair.audits.measuring import Measuring
from llmfair.audits.pairwise.results import (
    Bound,
    ByOrder,
    CellCounts,
    CellShares,
    PairAnswers,
    PairFinding,
    PairwiseFacts,
    PairwiseResults,
)
from llmfair.audits.pairwise.settings import PairwiseSettings
from llmfair.audits.run_files import Announce
from llmfair.audits.runs.stopping import Stopping, StoppingPoint
from llmfair.audits.scoring import (
    RemeasuredRun,
    ScoreFacts,
    check_attribute,
    check_settings,
    facts_of,
    measures_of,
)
from llmfair.errors import UsageError
from llmfair.io.files import AGAIN, integer, number, read_csv
from llmfair.metrics.base import Column, Measure, Tally, Value, measure_all
from llmfair.metrics.names import parse_measures
from llmfair.metrics.pairs import ADJUSTED_ODDS, KAPPA, JudgedPairs, tally
from llmfair.nouns import (
    PAIRS,
    Cell,
    Conclusion,
    Failure,
    Key,
    Measurement,
    PairAnswer,
    PairStratum,
    PairVerdict,
    Side,
    by_query,
    pair_answer,
)
from llmfair.rankers.answers import AnswerClass
from llmfair.rankers.pairwise import read_answer
from llmfair.results import EQUAL_SCORES, OUTSIDE_ALONE, Family, ProbeCounts, as_readable
from llmfair.rundir import RunDir, csv_lines
from llmfair.settings import ScoreSettings, band_of
from llmfair.stats.intervals import Estimate, conclude, mean
from llmfair.stats.paired import Change, change_of_pairs
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


def concluded(
    odds: Estimate, counted: PairContributions, band: tuple[float, float], level: float
) -> PairConclusion:
    """Where the odds lie by their interval or, where they have no size, by their bound."""
    reason = _unmeasured(counted.shares)
    if reason is None:
        if odds.low is None or odds.high is None:
            return PairConclusion(Conclusion.NOT_ASSESSABLE, odds.reason)
        return _answering(PairConclusion(conclude(odds.low, odds.high, band)), counted)
    bound = bound_of(counted, level)
    if bound is None:
        return PairConclusion(Conclusion.NOT_ASSESSABLE, reason)
    low, high = (0.0, bound.odds) if bound.side == "at most" else (bound.odds, inf)
    return PairConclusion(conclude(low, high, band), reason, bound)


def settled(
    fixed: PairConclusion, decision: Decision | None, counted: PairContributions, band: tuple[float, float]
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
        return _answering(PairConclusion(Conclusion.WITHIN), counted)
    if fixed.conclusion is not Conclusion.OUTSIDE:
        return fixed if unmeasured else PairConclusion(Conclusion.INCONCLUSIVE)
    if not unmeasured:
        return fixed
    below = decision is Decision.BELOW
    bound = Bound("at most", band[0]) if below else Bound("at least", band[1])
    return PairConclusion(Conclusion.OUTSIDE, fixed.reason, bound)


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
        return (
            sum(
                np.log(least + (1 - 2 * least) * wins) - np.log(least + (1 - 2 * least) * losses)
                for wins, losses in ((pp + ff, uu + ss), (pp + ss, uu + ff))
            )
            / 2
        )

    odds = estimate(drawn_in, counted, level)
    if odds.low is None or odds.high is None:
        return None
    return Bound("at most", odds.high) if pp < uu else Bound("at least", odds.low)


def _unmeasured(shares: NDArray[np.float64]) -> str | None:
    """Why odds of these shares of PP, UU, FF, SS have no size."""
    pp, uu, ff, ss = shares
    if min(max(pp + ff, pp + ss), max(uu + ff, uu + ss)) <= NEAR_CERTAIN:
        return "one_sided"
    certain = min(pp + ff, uu + ss, pp + ss, uu + ff)
    return "position_driven" if pp + uu < FEWEST_CONSISTENT_SHARE or certain <= NEAR_CERTAIN else None


def _answering(conclusion: PairConclusion, counted: PairContributions) -> PairConclusion:
    """Parity needs answers that agree over both orders beyond chance: the lower limit of Kappa is above 0."""
    if conclusion.conclusion is not Conclusion.WITHIN or (reason := useless(counted)) is None:
        return conclusion
    return PairConclusion(Conclusion.NOT_ASSESSABLE, reason)


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
    verdicts: Sequence[PairVerdict], band: tuple[float, float], level: float, weights: Weights = "macro"
) -> Decision | None:
    """Where the odds of these pairs lie by their interval, at the level of one look of several; None if nowhere."""
    if len(verdicts) < FEWEST_UNITS:
        return None
    values = [tally(judged, ADJUSTED_ODDS) for judged in judged_of(verdicts, repeats=1)]
    odds, counted = tallied(values, weights, look_level(level)), joined(values, weights)
    if odds is None or odds.value is None or counted is None:
        return None
    look = concluded(odds, counted, band, look_level(level))
    within = look.conclusion is Conclusion.WITHIN or look.reason == "chance_answers"
    if within and odds.n >= FEWEST_INSIDE:
        return Decision.INSIDE
    if look.conclusion is Conclusion.OUTSIDE:
        return Decision.BELOW if odds.value < 1 else Decision.ABOVE
    return None


# `verdicts.csv`, written and read back: every figure of a pairwise audit follows from it.


COLUMNS = (
    "query_id", "stratum", "pair", "draw", "protected_doc_id", "unprotected_doc_id", "first_answer", "second_answer",
    "first_problem", "second_problem", "first_margin", "second_margin", "cell", "verdict",
)  # fmt: skip


def verdicts_lines(by_stratum: Mapping[str, Sequence[PairVerdict]]) -> Iterator[str]:
    """The file's lines: both answers on every pair, by stratum, query, pair and draw."""
    rows = (
        [
            v.query_id, v.stratum, v.number, v.draw, v.protected, v.unprotected,
            v.first.winner and v.first.winner.value, v.second.winner and v.second.winner.value,
            v.first.problem, v.second.problem, v.first.margin, v.second.margin, v.cell.value, v.outcome.value,
        ]
        for _, verdicts in sorted(by_stratum.items())
        for _, of_query in by_query(verdicts)
        for v in of_query
    )  # fmt: skip
    return csv_lines(COLUMNS, rows)


def read_verdicts(path: Path) -> list[PairVerdict]:
    """The verdicts of a run folder's file, in its order. Raises UsageError naming the line that cannot be read."""
    strata: dict[str, PairStratum] = {stratum: stratum for stratum in get_args(PairStratum)}
    questions = set[tuple[object, ...]]()

    def verdict(row: dict[str, str]) -> PairVerdict:
        read = PairVerdict(
            query_id=intern(row["query_id"]),
            stratum=strata[row["stratum"]],
            number=integer(row["pair"]),
            draw=integer(row["draw"]),
            protected=intern(row["protected_doc_id"]),
            unprotected=intern(row["unprotected_doc_id"]),
            first=_answer(row, "first"),
            second=_answer(row, "second"),
        )
        question = read.query_id, read.stratum, read.number, read.draw
        if question in questions:
            raise ValueError("it is there twice")
        questions.add(question)
        return read

    return read_csv(path, "a verdict", verdict)


def _answer(row: dict[str, str], order: str) -> PairAnswer:
    winner, problem, margin = (row[f"{order}_{column}"] for column in ("answer", "problem", "margin"))
    if not winner and not problem:
        raise ValueError(f"{order}_answer and {order}_problem are empty")
    return pair_answer(
        winner=Side(winner) if winner else None,
        problem=problem or None,
        margin=number(margin) if margin else None,
    )


@dataclass(frozen=True)
class HowAsked:
    """How the verdicts came about, as far as conclusions depend on it.

    `forced`: no answer could be unparseable. `decided`: of a sequential audit, what was settled of each stratum.
    `max_invalid`: the share of answers that may be unparseable. `scored`: they are scores. `judged`: items of each
    group, and how many are relevant.
    """

    inference: Inference
    band: tuple[float, float]
    repeats: int = 1
    forced: bool = False
    decided: Mapping[str, Decision | None] | None = None
    max_invalid: float | None = None
    scored: bool = False
    judged: Judged = field(default_factory=dict)


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
    )


@dataclass(frozen=True)
class PairMeasurements:
    """What verdicts come to: every measure of every query, the finding on each relevance stratum, the tidy rows.

    `headline` is the measure that conclusions speak of; `family` counts the tests that p is adjusted over.
    """

    headline: str | None
    columns: Sequence[Column]
    findings: Mapping[str, PairFinding]
    rows: Sequence[Measurement]
    family: int


def measure_verdicts(
    measures: Sequence[Measure],
    by_stratum: Mapping[str, Sequence[PairVerdict]],
    asked: HowAsked,
) -> PairMeasurements:
    """All figures of a pairwise audit, from its verdicts alone."""
    judged = {stratum: judged_of(of_it, asked.repeats, asked.forced) for stratum, of_it in by_stratum.items()}
    columns = measure_all(measures, judged)
    # the first: what a gate asks of is measured beside it
    headline = next((measure for measure in measures if measure.definition.headline), None)
    concluded_of = {column.condition: column for column in columns if column.measure == headline}
    findings = {
        stratum: finding_of(column, by_stratum[stratum], asked) for stratum, column in concluded_of.items()
    }
    if asked.decided is None:
        findings = beside_each_other(
            findings,
            lambda stratum, level: conclusion_at(concluded_of[stratum], asked, level),
            asked.inference.level,
        )
    answers = {stratum: answer_counts(of_it) for stratum, of_it in by_stratum.items()}
    for stratum, finding in findings.items():
        findings[stratum] = explained(finding, concluded_of[stratum], asked)
        if asked.scored and 0 < answers[stratum].problems.get("tie", 0) == answers[stratum].readable:
            findings[stratum] = findings[stratum].barred(EQUAL_SCORES)
    findings = as_readable(findings, answers, asked.max_invalid)
    rows, family = _with_family(
        [replace(row, condition=PAIRS, stratum=row.condition) for row in summarise(columns, asked.inference)],
        findings,
    )
    return PairMeasurements(None if headline is None else str(headline), columns, findings, rows, family)


def outcome_of(
    design: PairwiseDesign,
    run: str,
    verdicts: Iterable[PairVerdict],
    failures: Sequence[Failure],
    stopping: Mapping[PairStratum, Stopping[PairVerdict]],
) -> Outcome:
    """Results and files of a run folder, from the pairs that have a verdict."""
    settings, facts = design.settings, design.facts()
    by_stratum: dict[str, list[PairVerdict]] = {stratum: [] for stratum in design.strata}
    for verdict in verdicts:
        by_stratum[verdict.stratum].append(verdict)
    answers = {stratum: answer_counts(of_it, settings.constrain) for stratum, of_it in by_stratum.items()}
    stopped: dict[str, StoppingPoint] = {
        stratum: process.settled("pairs") for stratum, process in stopping.items()
    }
    how = how_asked(settings, facts, answers, stopped, settings.max_invalid)
    measured = measure_verdicts(design.measures, by_stratum, how)
    asked = {**facts.probes, **{stratum: point.units for stratum, point in stopped.items()}}
    ended = {stratum: ProbeCounts(asked[stratum], len(of_it)) for stratum, of_it in by_stratum.items()}
    results = PairwiseResults(
        **design.told(run, ended, failures, measured.columns),
        reach={},
        headline=measured.headline,
        cells={stratum: cell_counts(of_it, settings.repeats) for stratum, of_it in by_stratum.items()},
        shares={
            stratum: _shares(of_it, settings.repeats, settings.weights)
            for stratum, of_it in by_stratum.items()
        },
        answers=answers,
        stopping=stopped,
        findings=measured.findings,
        family=Family(measured.family, None),
    )
    every = [verdict for of_it in by_stratum.values() for verdict in of_it]
    queries = {verdict.query_id for verdict in every}
    shown = {doc_id for verdict in every for doc_id in (verdict.protected, verdict.unprotected)}
    return design.laid_out(
        results,
        measured.rows,
        {"verdicts.csv": verdicts_lines(by_stratum)},
        failures,
        queries=(query for query in design.queries if query.query_id in queries),
        documents=(design.dataset.documents[doc_id] for doc_id in shown),
    )


def score_pairs(run: RunDir, settings: ScoreSettings, announce: Announce) -> RemeasuredRun:
    """A folder of pairs from its verdicts: its audit's figures, unless others are asked for. Raises UsageError."""
    results = results_of(run)
    check_settings(run, results, ("seed", "repeats"))
    check_attribute(run, results, settings)
    path = run.path / "verdicts.csv"
    announce(path)
    by_stratum: dict[str, list[PairVerdict]] = {stratum: [] for stratum in results.design.strata}
    for verdict in read_verdicts(path):
        by_stratum.setdefault(verdict.stratum, []).append(verdict)
    for stratum, verdicts in by_stratum.items():
        pairs = results.chains[stratum].ranked if stratum in results.chains else 0
        if len(verdicts) != pairs:
            raise UsageError(
                f"{path} has {len(verdicts)} of the run's {pairs} verdicts on {stratum} pairs.", AGAIN
            )
    concluded_of = with_weights(HEADLINE, results.design.weights)
    measures, shown = measures_of(settings, results, JudgedPairs, [concluded_of])
    how = how_asked(settings, results.design, results.answers, results.stopping, results.max_invalid)
    measured = measure_verdicts(measures, by_stratum, how)
    conditions = {
        stratum: ScoreFacts(queries=len({verdict.query_id for verdict in verdicts}), pairs=len(verdicts))
        for stratum, verdicts in by_stratum.items()
    }
    facts = facts_of(run, results, shown, conditions, measured.columns, measured.findings, measured.family)
    return RemeasuredRun(facts, measured.rows, [Key(PAIRS, stratum) for stratum in by_stratum])


def with_weights(names: str, weights: str) -> str:
    """The measures with the weights asked for; how often answers change is a mean over queries anyway."""
    if weights == "macro":
        return names
    return ",".join(name if name == "NoiseRate" else f"{name}(agg={weights})" for name in names.split(","))


def how_ended(row: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """`ok`, or what is wrong with an answer of the journal, by the settings of its run."""
    choice = read_answer(completion_of(row), settings["form"], settings["answers"])
    return str(choice.problem or AnswerClass.OK)


def explained(finding: PairFinding, column: Column, asked: HowAsked) -> PairFinding:
    """A disparity, with the share of wrong grades that alone would explain it."""
    stratum = column.condition
    if finding.conclusion is not Conclusion.OUTSIDE or stratum not in ("relevant", "irrelevant"):
        return finding
    odds = aggregate(column.measure.aggregate, list(column.values.values()), asked.inference)
    assert odds is not None
    limits = (odds.low, odds.high) if finding.bound is None else finding.bound.limits
    nearer = min((abs(log(limit)), limit) for limit in limits if limit)[1]
    return structs.replace(finding, label_error=label_error(asked.judged, None, stratum, nearer))


def conclusion_at(column: Column, asked: HowAsked, level: float) -> Conclusion:
    """Where the odds of a stratum lie by their interval at this level."""
    values, how = list(column.values.values()), column.measure.aggregate
    odds, counted = (
        aggregate(how, values, replace(asked.inference, level=level)),
        joined(values, weights_of(how)),
    )
    assert odds is not None and counted is not None
    return concluded(odds, counted, asked.band, level).conclusion


def beside_each_other(
    findings: Mapping[str, PairFinding], at: Callable[[str, float], Conclusion], level: float
) -> dict[str, PairFinding]:
    """The findings, those outside the band by themselves alone, and not among all strata, as inconclusive.

    Of m strata k are outside where so many are at a level of 1 − α/(m − k + 1) (Hochberg 1988).
    """
    tested = [name for name, each in findings.items() if each.conclusion is not Conclusion.NOT_ASSESSABLE]
    outside = [name for name in tested if findings[name].conclusion is Conclusion.OUTSIDE]
    left = outside
    for tests in range(1, len(tested) + 1):
        passed = [name for name in outside if at(name, 1 - (1 - level) / tests) is Conclusion.OUTSIDE]
        if len(passed) > len(tested) - tests:
            left = [name for name in outside if name not in passed]
            break
    alone = {"conclusion": Conclusion.INCONCLUSIVE, "reason": OUTSIDE_ALONE}
    return {name: structs.replace(each, **(alone if name in left else {})) for name, each in findings.items()}


def finding_of(column: Column, verdicts: Sequence[PairVerdict], asked: HowAsked) -> PairFinding:
    """The conclusion on one relevance stratum, with what has to be known to trust it."""
    values, inference = list(column.values.values()), asked.inference
    verdicts = [verdict for verdict in verdicts if verdict.draw < asked.repeats]
    odds = aggregate(column.measure.aggregate, values, inference)
    weights = weights_of(column.measure.aggregate)
    counted = joined(values, weights)
    if odds is None or counted is None or odds.value is None:
        reason = odds.reason if odds is not None else "no_pairs"
        return PairFinding(measure=str(column.measure), conclusion=Conclusion.NOT_ASSESSABLE, reason=reason)
    conclusion, alike = concluded(odds, counted, asked.band, inference.level), intraclass(counted)
    p, power = None, None
    if asked.decided is None:
        p = tallied_p(values, weights, np.random.default_rng(inference.seed))
        if odds.low is not None and not conclusion.bound:
            power = odds_power(odds, asked.band, inference.level)
    else:  # no fixed sample: what was settled is the conclusion, and p would not hold
        conclusion = settled(conclusion, asked.decided[column.condition], counted, asked.band)
    return PairFinding(
        measure=str(column.measure),
        conclusion=conclusion.conclusion,
        reason=conclusion.reason,
        p=p,
        test="three-way t" if counted.items_recur else "sign flip",
        queries=odds.n,
        error=odds.error,
        power=power,
        consistent_share=float(counted.shares[:2].sum()),
        icc=None if alike is None else alike.correlation,
        design_effect=None if alike is None else alike.design_effect,
        worst_case=_worst_case(verdicts),
        unparseable_by_order=_by_order(verdicts, inference.level),
        bound=conclusion.bound,
    )


def _with_family(
    rows: Sequence[Measurement], findings: Mapping[str, PairFinding]
) -> tuple[list[Measurement], int]:
    """The rows with p, conclusion, and p adjusted (Holm) over the relevance strata; and how many were tested."""
    rows, family = list(rows), list[int]()
    for place, row in enumerate(rows):
        finding = findings.get(row.stratum)
        if finding is None or row.query_id != ALL or row.measure != finding.measure:
            continue
        family.append(place)
        reason, bound = finding.reason or row.reason, finding.bound
        low, high = (row.low, row.high) if bound is None else bound.limits
        rows[place] = replace(
            row, p=finding.p, conclusion=finding.conclusion, reason=reason, low=low, high=high
        )
    for place, adjusted in zip(family, holm([rows[place].p for place in family]), strict=True):
        rows[place] = replace(rows[place], p_adjusted=adjusted)
    return rows, sum(rows[place].p is not None for place in family)


def _worst_case(verdicts: Sequence[PairVerdict]) -> tuple[float, float] | None:
    """Bounds of the protected items' share of answers, whatever the unparseable and tied ones would have been."""
    answers = [answer for verdict in verdicts for answer in verdict.answers]
    if not answers:
        return None
    won = sum(answer.winner == "protected" for answer in answers)
    unread = sum(answer.winner is None for answer in answers)
    return won / len(answers), (won + unread) / len(answers)


def _by_order(verdicts: Sequence[PairVerdict], level: float) -> ByOrder:
    """Unparseable answers with the protected item first and second, and the difference over queries."""
    by_query: dict[str, list[int]] = {}
    for verdict in verdicts:
        counts = by_query.setdefault(verdict.query_id, [0, 0, 0])
        counts[0] += verdict.first.unparseable
        counts[1] += verdict.second.unparseable
        counts[2] += 1
    rates = np.array([(first / n, second / n) for first, second, n in by_query.values()]).reshape(-1, 2)
    if not len(rates):
        return ByOrder()
    change = mean(rates[:, 0] - rates[:, 1], level, (-1.0, 1.0))
    first, second = rates.mean(axis=0).tolist()
    return ByOrder(first=first, second=second, difference=(change.value, change.low, change.high))


def cell_counts(verdicts: Sequence[PairVerdict], repeats: int = 1) -> CellCounts:
    """How many pairs came to each cell, in their first `repeats` draws."""
    counts = Counter(verdict.cell for verdict in verdicts if verdict.draw < repeats)
    return CellCounts(**{cell.value: counts[cell] for cell in Cell})


def _shares(verdicts: Sequence[PairVerdict], repeats: int, weights: Weights) -> CellShares | None:
    """The share of each cell among all pairs; queries weigh alike, or pairs do. They sum to 1."""
    by_query: dict[str, Counter[Cell]] = {}
    for verdict in verdicts:
        if verdict.draw < repeats:
            by_query.setdefault(verdict.query_id, Counter())[verdict.cell] += 1
    if not by_query:
        return None
    counts = np.array([[cells[cell] for cell in Cell] for cells in by_query.values()], dtype=float)
    if weights == "macro":
        counts /= counts.sum(axis=1, keepdims=True)
    shares = counts.sum(axis=0) / counts.sum()
    return CellShares(*shares.tolist())


def answer_counts(verdicts: Sequence[PairVerdict], constrained: bool = False) -> PairAnswers:
    """How answers ended: none unparseable is silent."""
    answers = [answer for verdict in verdicts for answer in verdict.answers]
    problems = Counter(a.problem for a in answers if a.problem is not None)
    unparseable = sum(n for problem, n in problems.items() if problem != "tie")
    masses = [a.mass for a in answers if a.mass is not None]
    unformed = sum(not a.formed for a in answers) if constrained else 0
    return PairAnswers(
        answers=len(answers),
        unparseable=unparseable,
        problems=dict(sorted(problems.items())),
        mass=sum(masses) / len(masses) if masses else None,
        unformed=unformed or None,
    )


# What changed from one pairwise run to another, over the pairs that both were asked.


MEASURES = ("AdjustedOdds", "BalancedRatio", "WinRatio", "FlipRate", "InvalidRate")
Question = tuple[str, str, int, int, str, str]


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
    weighted = (f"{name}(agg={base.setting('weights')})" for name in MEASURES)
    measures = chosen or parse_measures(",".join(weighted))
    headlines, level = headlines_of(measures), base.results.level
    keys = [key for key in base.keys if key in {stratum for stratum, *_ in common}]
    repeats = min(run.results.design.repeats for run in (base, other))
    judged: list[dict[str, Sequence[JudgedPairs]]] = [
        {
            key: judged_of((answered(run)[asked] for asked in common if asked[0] == key), repeats)
            for key in keys
        }
        for run in (base, other)
    ]
    before, after = (_tallies(of_run, measures) for of_run in judged)
    barred: dict[str, str | None] = {}
    for stratum, of_it in judged[1].items():
        counted = joined([tally(pairs, KAPPA) for pairs in of_it], base.setting("weights"))
        barred[stratum] = None if counted is None else useless(counted)
    check_paired(chosen, [measure for measure, _ in before], f"try {','.join(MEASURES)}")
    for measure in measures:
        for key in keys:
            row = structs.replace(row_of(other, key, measure, headlines), useless=barred[key])
            values = before[measure, key], after[measure, key]
            yield assessed(_pooled(row, measure, *values, level, base.name), measure, base, other)


@lru_cache(maxsize=4)
def answered(run: ComparedRun) -> Mapping[Question, PairVerdict]:
    """The verdicts of a run by what makes two of them the same question: the pair, and which time it was asked."""
    verdicts = read_verdicts(run.run.path / "verdicts.csv")
    return {(v.stratum, v.query_id, v.number, v.draw, v.protected, v.unprotected): v for v in verdicts}


def described_pairs(run: ComparedRun, base: ComparedRun) -> dict[str, Any]:
    """What a comparison says of a run beside the base: its pairs, however often they were asked."""
    of_run, of_base = ({(*asked[:3], *asked[4:]) for asked in answered(each)} for each in (run, base))
    return {
        "sequential": run.results.design.sequential,
        "pairs": len(of_run),
        "pairs_in_common": len(of_base & of_run),
    }


def _tallies(
    judged: Mapping[str, Sequence[JudgedPairs]], measures: Sequence[Measure]
) -> dict[tuple[Measure, str], list[Value]]:
    """The pairs in common as each measure that pools them counts them, a tally for every query."""
    return {
        (column.measure, column.condition): list(column.values.values())
        for column in measure_all(measures, judged)
        if column.group == "" and all(isinstance(value, Tally) for value in column.values.values())
    }


def _pooled(
    row: ChangeRow,
    measure: Measure,
    before: Sequence[Value],
    after: Sequence[Value],
    level: float,
    base: str,
) -> ChangeRow:
    """The row with both figures and their change; without interval and test where either figure has no interval."""
    inference, weights = Inference(level), weights_of(measure.aggregate)
    figure, other = (aggregate(measure.aggregate, values, inference) for values in (before, after))
    counted, counted_after = joined(before, weights), joined(after, weights)
    assert figure is not None and other is not None  # there are tallies
    row = because(with_figures(row, figure, other), {base: figure.reason, row.run: other.reason})
    if figure.value is None or other.value is None or counted is None or counted_after is None:
        return row
    formula = next(value.formula for value in before if isinstance(value, Tally))
    change = change_of_pairs(formula, counted, counted_after, level, formula.logarithmic)
    quotient, p = replace(change.estimate, reason=change.estimate.reason or row.reason), change.p
    if figure.low is None or other.low is None:
        quotient, p = replace(quotient, low=None, high=None), None
    return changed(row, Change(quotient, p))


MEASURING = Measuring(
    reads=JudgedPairs,
    agree={
        "form": ("asked in different forms", "run both with the same --form"),
        "answers": ("were read in different ways", "run both with the same --answers"),
        "grades": ("pair items of other relevance grades", "run both with the same --grades"),
        "weights": ("weigh pairs differently", "run both with the same --weights; the answers serve again"),
    },
    how_changed="change: of the figures of all queries (× for ratios); t over the clusters of both runs together",
    score=score_pairs,
    changes=pair_changes,
    described=described_pairs,
)
