"""What changed from one pairwise run to another, over the pairs that both were asked."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from llmfair.audits.aggregates.pairs import joined, weights_of
from llmfair.audits.comparing.changes import (
    ChangeRow,
    ComparedRun,
    assessed,
    because,
    changed,
    check_paired,
    headlines_of,
    row_of,
    with_figures,
)
from llmfair.audits.pairwise.concluding import useless
from llmfair.audits.pairwise.seen import judged_of
from llmfair.audits.pairwise.verdict_files import read_verdicts
from llmfair.audits.summary import Inference, aggregate
from llmfair.errors import UsageError
from llmfair.metrics.base import Measure
from llmfair.metrics.columns import measure_all
from llmfair.metrics.names import parse_measures
from llmfair.metrics.pairs import KAPPA, JudgedPairs, tally
from llmfair.metrics.values import Tally, Value
from llmfair.nouns import PairVerdict
from llmfair.stats.paired import Change, change_of_pairs
from llmfair.stats.pairs import Weights

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
            row = replace(row_of(other, stratum, measure, headlines), useless=barred[stratum])
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
