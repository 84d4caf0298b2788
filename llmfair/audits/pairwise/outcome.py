"""What a pairwise audit found, as the files of its run folder: made from the verdicts alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log, sqrt

import numpy as np

from llmfair.audits.aggregates.pairs import joined, tallied_p, weights_of
from llmfair.audits.design import Outcome
from llmfair.audits.pairwise.concluding import concluded, settled
from llmfair.audits.pairwise.design import PairwiseDesign
from llmfair.audits.pairwise.results import (
    ByOrder,
    CellCounts,
    CellShares,
    OddsPower,
    PairAnswers,
    PairFinding,
    PairwiseResults,
)
from llmfair.audits.pairwise.seen import judged_of
from llmfair.audits.pairwise.verdict_files import verdicts_lines
from llmfair.audits.readable import EQUAL_SCORES, as_readable
from llmfair.audits.runs.stopping import Stopping
from llmfair.audits.summary import ALL, Inference, aggregate, summarise
from llmfair.backends.scored import SCORES
from llmfair.metrics.base import Measure
from llmfair.metrics.columns import Column, measure_all
from llmfair.nouns import Cell, Failure, Measurement, PairStratum, PairVerdict
from llmfair.results import Family, ProbeCounts
from llmfair.settings import band_of
from llmfair.stats.conclusions import Conclusion
from llmfair.stats.intervals import Estimate, mean
from llmfair.stats.pairs import Weights, intraclass
from llmfair.stats.power import FEWEST_TESTED, power, queries_needed
from llmfair.stats.sequential import Decision
from llmfair.stats.significance import holm

HEADLINE = "AdjustedOdds"


def outcome_of(
    design: PairwiseDesign,
    run: str,
    verdicts: Iterable[PairVerdict],
    failures: Sequence[Failure],
    stopping: Mapping[PairStratum, Stopping[PairVerdict]],
) -> Outcome:
    """Measures the pairs that have a verdict."""
    settings = design.settings
    by_stratum: dict[str, list[PairVerdict]] = {stratum: [] for stratum in design.strata}
    for verdict in verdicts:
        by_stratum[verdict.stratum].append(verdict)
    decided = {stratum: one.process.decision for stratum, one in stopping.items()} if stopping else None
    measured = measure_verdicts(
        design.measures,
        by_stratum,
        HowAsked(
            Inference(level=settings.level, seed=settings.seed),
            band_of(settings.band),
            settings.repeats,
            settings.constrain
            and all(a.formed for of_it in by_stratum.values() for v in of_it for a in v.answers),
            decided,
            settings.max_invalid,
            settings.form == SCORES,
        ),
    )
    planned: dict[str, int] = {
        stratum: sum(map(len, design.pairs[stratum].values())) for stratum in design.strata
    }
    asked = {str(stratum): len(one.counted()) for stratum, one in stopping.items()} or planned
    ended: dict[str, ProbeCounts] = {
        stratum: ProbeCounts(asked[stratum], len(by_stratum[stratum])) for stratum in design.strata
    }
    results = PairwiseResults(
        **design.told(run, ended, failures, measured.columns),
        reach={},
        headline=measured.headline,
        cells={stratum: cell_counts(of_it, settings.repeats) for stratum, of_it in by_stratum.items()},
        shares={
            stratum: _shares(of_it, settings.repeats, settings.weights)
            for stratum, of_it in by_stratum.items()
        },
        answers={stratum: answer_counts(of_it, settings.constrain) for stratum, of_it in by_stratum.items()},
        stopping={stratum: one.settled("pairs") for stratum, one in stopping.items()},
        findings=measured.findings,
        family=Family(measured.family, None),
    )
    documents, all_of = design.dataset.documents, by_stratum.values()
    queries = {verdict.query_id for of_it in all_of for verdict in of_it}
    shown = {doc_id for of_it in all_of for v in of_it for doc_id in (v.protected, v.unprotected)}
    return design.laid_out(
        results,
        measured.rows,
        {"verdicts.csv": verdicts_lines(by_stratum)},
        failures,
        queries=(query for query in design.queries if query.query_id in queries),
        documents=(documents[doc_id] for doc_id in shown),
    )


@dataclass(frozen=True)
class HowAsked:
    """How the verdicts came about, as far as conclusions depend on it.

    `forced`: no answer could be unparseable. `decided`: of a sequential audit, what was settled of each stratum.
    `max_invalid`: the share of answers that may be unparseable. `scored`: they are scores.
    """

    inference: Inference
    band: tuple[float, float]
    repeats: int = 1
    forced: bool = False
    decided: Mapping[PairStratum, Decision | None] | None = None
    max_invalid: float | None = None
    scored: bool = False


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
    judged = {
        stratum: list(judged_of(of_it, asked.repeats, asked.forced)) for stratum, of_it in by_stratum.items()
    }
    columns = measure_all(measures, judged)
    # the first: what a gate asks of is measured beside it
    headline = next((measure for measure in measures if measure.definition.headline), None)
    findings = {
        column.condition: finding_of(column, by_stratum[column.condition], asked)
        for column in columns
        if column.measure == headline
    }
    answers = {stratum: answer_counts(of_it) for stratum, of_it in by_stratum.items()}
    for stratum, finding in findings.items():
        if asked.scored and 0 < answers[stratum].problems.get("tie", 0) == answers[stratum].readable:
            findings[stratum] = finding.barred(EQUAL_SCORES)
    findings = as_readable(findings, answers, asked.max_invalid)
    rows, family = _with_family(summarise(columns, asked.inference), findings)
    return PairMeasurements(None if headline is None else str(headline), columns, findings, rows, family)


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
    found = concluded(odds, counted, asked.band, inference.level)
    p: float | None = None
    if asked.decided is None:
        p = tallied_p(values, weights, np.random.default_rng(inference.seed))
    else:  # no fixed sample: what was settled is the conclusion, and p would not hold
        found = settled(found, asked.decided[column.condition], counted, asked.band)  # type: ignore[index]
    alike = intraclass(counted)
    return PairFinding(
        measure=str(column.measure),
        conclusion=found.conclusion,
        reason=found.reason,
        p=p,
        test="three-way t" if counted.items_recur else "sign flip",
        queries=odds.n,
        error=odds.error,
        power=_power(odds, asked.band, inference.level)
        if asked.decided is None and not found.bound
        else None,
        consistent_share=float(counted.shares[:2].sum()),
        icc=None if alike is None else alike.correlation,
        design_effect=None if alike is None else alike.design_effect,
        worst_case=_worst_case(verdicts),
        unparseable_by_order=_by_order(verdicts, inference.level),
        bound=found.bound,
    )


def _power(odds: Estimate, band: tuple[float, float], level: float) -> OddsPower | None:
    """With what power odds at the nearer edge of the band are told from 1, and the queries for 80 %."""
    if odds.low is None or odds.n < FEWEST_TESTED or not odds.error:
        return None
    nearer = min(band, key=lambda edge: abs(log(edge)))
    if nearer == 1:
        return None
    return OddsPower(
        odds=nearer,
        power=power(log(nearer), odds.error, odds.n, level),
        queries_needed=queries_needed(nearer, odds.error * sqrt(odds.n), level=level),
    )


def _with_family(
    rows: Sequence[Measurement], findings: Mapping[str, PairFinding]
) -> tuple[list[Measurement], int]:
    """The rows with p, conclusion, and p adjusted (Holm) over the relevance strata; and how many were tested."""
    told = []
    for row in rows:
        finding = findings.get(row.condition)
        if finding is not None and row.query_id == ALL and row.measure == finding.measure:
            row = replace(
                row, p=finding.p, conclusion=finding.conclusion, reason=finding.reason or row.reason
            )
            if finding.bound is not None:
                low, high = finding.bound.limits
                row = replace(row, low=low, high=high)
        told.append(row)
    family = [place for place, row in enumerate(told) if row.conclusion is not None]
    for place, adjusted in zip(family, holm([told[place].p for place in family]), strict=True):
        told[place] = replace(told[place], p_adjusted=adjusted)
    return told, sum(told[place].p is not None for place in family)


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
    change = mean(rates[:, 0] - rates[:, 1], level)
    first, second = rates.mean(axis=0).tolist()
    return ByOrder(first=first, second=second, difference=(change.value, change.low, change.high))


def cell_counts(verdicts: Sequence[PairVerdict], repeats: int = 1) -> CellCounts:
    """How many pairs came to each cell, in their first `repeats` draws."""
    found = Counter(verdict.cell for verdict in verdicts if verdict.draw < repeats)
    return CellCounts(**{cell.value: found[cell] for cell in Cell})


def _shares(verdicts: Sequence[PairVerdict], repeats: int, weights: Weights) -> CellShares | None:
    """The share of each cell among all pairs; queries weigh alike, or pairs do. They sum to 1."""
    by_query: dict[str, Counter[Cell]] = {}
    for verdict in verdicts:
        if verdict.draw < repeats:
            by_query.setdefault(verdict.query_id, Counter())[verdict.cell] += 1
    if not by_query:
        return None
    counts = np.array([[found[cell] for cell in Cell] for found in by_query.values()], dtype=float)
    if weights == "macro":
        counts /= counts.sum(axis=1, keepdims=True)
    shares = counts.sum(axis=0) / counts.sum()
    return CellShares(**{cell.value: share for cell, share in zip(Cell, shares.tolist(), strict=True)})


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
