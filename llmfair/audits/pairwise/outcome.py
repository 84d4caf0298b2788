"""What a pairwise audit found, as the files of its run folder: made from the verdicts alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import log, sqrt
from pathlib import Path
from sys import intern
from typing import Any, get_args

import numpy as np
from msgspec import structs

from llmfair.audits.aggregates import ALL, Inference, aggregate, joined, summarise, tallied_p, weights_of
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
from llmfair.audits.design import Outcome
from llmfair.audits.documents import ChangeRow
from llmfair.audits.pairwise.design import PairwiseDesign
from llmfair.audits.pairwise.findings import concluded, judged_of, settled, useless
from llmfair.audits.pairwise.results import (
    ByOrder,
    CellCounts,
    CellShares,
    OddsPower,
    PairAnswers,
    PairFinding,
    PairwiseResults,
)
from llmfair.audits.readable import EQUAL_SCORES, as_readable
from llmfair.audits.runs.stopping import Stopping
from llmfair.backends.python import SCORES
from llmfair.errors import UsageError
from llmfair.io.files import number, read_csv
from llmfair.metrics.base import Column, Measure, Tally, Value, measure_all
from llmfair.metrics.names import parse_measures
from llmfair.metrics.pairs import KAPPA, JudgedPairs, tally
from llmfair.nouns import (
    Cell,
    Failure,
    Measurement,
    PairAnswer,
    PairStratum,
    PairVerdict,
    Side,
    by_query,
    pair_answer,
)
from llmfair.results import Family, ProbeCounts
from llmfair.rundir import csv_lines
from llmfair.settings import band_of
from llmfair.stats.intervals import Conclusion, Estimate, mean
from llmfair.stats.paired import Change, change_of_pairs
from llmfair.stats.pairs import Weights, intraclass
from llmfair.stats.power import FEWEST_TESTED, power, queries_needed
from llmfair.stats.sequential import Decision
from llmfair.stats.significance import holm

# `verdicts.csv`, written and read back: every figure of a pairwise audit follows from it.


COLUMNS = (
    "query_id", "condition", "pair", "draw", "protected_doc_id", "unprotected_doc_id", "first_answer", "second_answer",
    "first_problem", "second_problem", "first_margin", "second_margin", "cell", "verdict",
)  # fmt: skip


def verdicts_lines(by_stratum: Mapping[str, Sequence[PairVerdict]]) -> Iterator[str]:
    """The file's lines: both answers on every pair, by stratum, query, pair and draw."""
    ordered = (
        v for _, verdicts in sorted(by_stratum.items()) for _, of_it in by_query(verdicts) for v in of_it
    )
    rows = (
        [
            v.query_id, v.stratum, v.number, v.draw, v.protected, v.unprotected,
            v.first.winner and v.first.winner.value, v.second.winner and v.second.winner.value,
            v.first.problem, v.second.problem, v.first.margin, v.second.margin, v.cell.value, v.outcome.value,
        ]
        for v in ordered
    )  # fmt: skip
    return csv_lines(COLUMNS, rows)


def read_verdicts(path: Path) -> list[PairVerdict]:
    """The verdicts of a run folder's file, in its order. Raises UsageError naming the line that cannot be read."""
    known = set[tuple[object, ...]]()

    def verdict(row: dict[str, str]) -> PairVerdict:
        found = _verdict(row)
        asked = found.query_id, found.stratum, found.number, found.draw
        if asked in known:
            raise ValueError("it is there twice")
        known.add(asked)
        return found

    return read_csv(path, "a verdict", verdict)


def _verdict(row: dict[str, str]) -> PairVerdict:
    strata: dict[str, PairStratum] = {stratum: stratum for stratum in get_args(PairStratum)}
    return PairVerdict(
        query_id=intern(row["query_id"]),
        stratum=strata[row["condition"]],
        number=_count(row["pair"]),
        draw=_count(row["draw"]),
        protected=intern(row["protected_doc_id"]),
        unprotected=intern(row["unprotected_doc_id"]),
        first=_answer(row, "first"),
        second=_answer(row, "second"),
    )


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"'{text[:20]}' is no number of pairs or draws")
    return int(text)


def _answer(row: dict[str, str], order: str) -> PairAnswer:
    winner, problem, margin = (row[f"{order}_{column}"] for column in ("answer", "problem", "margin"))
    if not winner and not problem:
        raise ValueError(f"{order}_answer and {order}_problem are empty")
    return pair_answer(
        winner=Side(winner) if winner else None,
        problem=problem or None,
        margin=number(margin) if margin else None,
    )


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
    rows, family = _with_family(
        [replace(row, stratum=row.condition) for row in summarise(columns, asked.inference)], findings
    )
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


# What changed from one pairwise run to another, over the pairs that both were asked.


MEASURES = ("AdjustedOdds", "BalancedRatio", "WinRatio", "FlipRate", "InvalidRate")
Question = tuple[str, str, int, int, str, str]


def pair_changes(
    base: ComparedRun, other: ComparedRun, chosen: Sequence[Measure] | None
) -> Iterator[ChangeRow]:
    """Of two pairwise runs, from the verdicts on the pairs that both were asked.

    Raises UsageError where there are none.
    """
    common = answered(base).keys() & answered(other).keys()
    if not common:
        raise UsageError(
            f"{base.name} and {other.name} have no pair in common.",
            "run both with the same --seed and --conditions",
        )
    weighted = (f"{name}(agg={base.setting('weights')})" for name in MEASURES)
    measures = chosen or parse_measures(",".join(weighted))
    headlines, level = headlines_of(measures), base.results.level
    strata = [stratum for stratum in base.conditions if stratum in {k for k, *_ in common}]
    repeats = min(run.results.design.repeats for run in (base, other))
    judged = [
        {stratum: _judged(run, common, stratum, repeats) for stratum in strata} for run in (base, other)
    ]
    before, after = (_tallies(of_run, measures) for of_run in judged)
    barred = {stratum: _useless(judged[1][stratum], base.setting("weights")) for stratum in strata}
    check_paired(chosen, [measure for measure, _ in before], f"try {','.join(MEASURES)}")
    for measure in measures:
        for stratum in strata:
            row = structs.replace(row_of(other, stratum, measure, headlines), useless=barred[stratum])
            values = before[measure, stratum], after[measure, stratum]
            yield assessed(_pooled(row, measure, *values, level, base.name), measure, base, other)


@lru_cache(maxsize=4)
def answered(run: ComparedRun) -> Mapping[Question, PairVerdict]:
    """The verdicts of a run by what makes two of them the same question: the pair, and which time it was asked."""
    found = read_verdicts(run.run.path / "verdicts.csv")
    return {(v.stratum, v.query_id, v.number, v.draw, v.protected, v.unprotected): v for v in found}


def described_pairs(run: ComparedRun, base: ComparedRun) -> dict[str, Any]:
    """What a comparison says of a run beside the base: its pairs, however often they were asked."""
    of_run, of_base = ({(*asked[:3], *asked[4:]) for asked in answered(one)} for one in (run, base))
    return {
        "sequential": run.results.design.sequential,
        "pairs": len(of_run),
        "pairs_in_common": len(of_base & of_run),
    }


def _judged(run: ComparedRun, common: Collection[Question], stratum: str, repeats: int) -> list[JudgedPairs]:
    """The queries of a stratum, with the pairs in common."""
    verdicts = answered(run)
    return list(judged_of([verdicts[key] for key in common if key[0] == stratum], repeats))


def _useless(judged: Sequence[JudgedPairs], weights: Weights) -> str | None:
    """Why nothing says that the model compares the items of these pairs."""
    counted = joined([tally(pairs, KAPPA) for pairs in judged], weights)
    return None if counted is None else useless(counted)


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
    one, two = (aggregate(measure.aggregate, values, inference) for values in (before, after))
    counted, counted_after = joined(before, weights), joined(after, weights)
    assert one is not None and two is not None  # there are tallies
    row = because(with_figures(row, one, two), {base: one.reason, row.run: two.reason})
    if one.value is None or two.value is None or counted is None or counted_after is None:
        return row
    formula = next(value.formula for value in before if isinstance(value, Tally))
    change = change_of_pairs(formula, counted, counted_after, level, formula.logarithmic)
    found, p = change.estimate, change.p
    if one.low is None or two.low is None:
        found, p = replace(found, low=None, high=None), None
    return changed(row, Change(replace(found, reason=found.reason or row.reason), p))
