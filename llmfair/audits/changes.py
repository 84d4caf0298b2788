"""What changed from one run to another: measure by measure, over the queries or pairs that both were asked."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from llmfair.audits.gates import RATIO
from llmfair.audits.pairwise.stopping import judged_of
from llmfair.audits.pairwise.verdict_files import read_verdicts
from llmfair.audits.tallies import joined, tallied
from llmfair.errors import UsageError
from llmfair.metrics.base import Measure, measure_all
from llmfair.metrics.names import parse_measures
from llmfair.metrics.values import Tally, Value
from llmfair.probes import CONTROL
from llmfair.records import Verdict
from llmfair.rundir import RunDir
from llmfair.stats.conclusions import Conclusion
from llmfair.stats.paired import Change, change_by_query, change_of_pairs
from llmfair.stats.pairs import Weights

PAIR_MEASURES = ("AdjustedOdds", "BalancedRatio", "WinRatio", "FlipRate", "InvalidRate")
OF_ODDS_ALONE = "out_of_reach"
"""Why implied odds cannot be assessed though the exposures that they are read off can."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measure of one prompt or kind of pairs, in the base and in another run.

    `change` is other/base on a log `scale`, else other − base. Headlines are tested together: `p_adjusted`. Of a
    figure that speaks of the sides both runs' conclusions stand beside; where one cannot be assessed there is
    neither interval nor test, and its `reason`.
    """

    run: str
    variant: str
    measure: str
    scale: str
    better: str | None
    headline: bool
    base: float | None
    other: float | None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    p: float | None = None
    p_adjusted: float | None = None
    base_conclusion: str | None = None
    other_conclusion: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Compared:
    """A complete run, `name` as the comparison calls it."""

    name: str
    run: RunDir
    manifest: Mapping[str, Any]
    results: Mapping[str, Any]

    @property
    def settings(self) -> Mapping[str, Any]:
        """What names the run, and the weights of its figures."""
        return {**self.manifest["settings"], "weights": self.results["design"].get("weights")}

    @property
    def arms(self) -> list[str]:
        """The prompts or kinds of pairs; neutral asked again is no prompt of its own."""
        return [arm for arm in self.results["design"]["arms"] if arm != CONTROL]

    @cached_property
    def verdicts(self) -> dict[tuple[Any, ...], Verdict]:
        """By what makes two of them the same question: the pair, and which time it was asked."""
        found = read_verdicts(self.run.path / "verdicts.csv")
        return {(v.kind, v.query_id, v.number, v.draw, v.protected, v.unprotected): v for v in found}

    @property
    def pairs(self) -> set[tuple[Any, ...]]:
        """The pairs with a verdict, however often they were asked."""
        return {(kind, *named[:2], *named[3:]) for kind, *named in self.verdicts}

    @cached_property
    def values(self) -> dict[tuple[str, str], dict[str, float]]:
        """The queries' own values by measure and variant."""
        found: dict[tuple[str, str], dict[str, float]] = {}
        with (self.run.path / "per_query.csv").open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if row["value"] and not row["group"]:
                    of_it = found.setdefault((row["measure"], row["variant"]), {})
                    of_it[row["query_id"]] = float(row["value"])
        return found

    def figure(self, measure: str, variant: str) -> float | None:
        """The figure of all queries, as the run's own table has it."""
        figures: dict[tuple[str, str, str], float | None] = {
            (row["measure"], row["variant"], row["group"]): row["value"] for row in self.results["rows"]
        }
        return figures.get((measure, variant, ""))


def list_changes(base: Compared, other: Compared, chosen: Sequence[Measure] | None) -> Iterator[Row]:
    """Of two listwise runs, from the queries' own values: every measure with a direction, or those chosen.

    Raises UsageError where there is nothing in common.
    """
    arms = [arm for arm in base.arms if arm in other.arms]
    if not arms:
        raise UsageError(
            f"{base.name} and {other.name} have no prompt in common.", "run both with the same --variants"
        )
    both = {name for name, arm in base.values.keys() & other.values.keys() if arm in arms}
    listed = ",".join(name for name in base.results["measures"] if name in both)
    known = parse_measures(listed) if listed else ()
    _check(chosen, known)
    # rank agreement is with the initial order, which is no figure of the ranker alone
    directed = [m for m in known if m.definition.better and not m.definition.agreement]
    measures = chosen or directed
    headlines = _headlines(measures)
    level, seed = base.results["level"], base.settings["seed"]
    for measure in measures:
        for arm in arms:
            key, on_log_scale = (str(measure), arm), measure.definition.scale == "log"
            before, after = base.values.get(key, {}), other.values.get(key, {})
            queries = [
                query
                for query in sorted(before.keys() & after.keys())
                if not on_log_scale or min(before[query], after[query]) > 0
            ]
            row = _row(other, arm, measure, headlines, base.figure(*key), other.figure(*key))
            if not queries:
                yield replace(row, reason="no_common_query")
                continue
            one, two = ([of_it[query] for query in queries] for of_it in (before, after))
            rng = np.random.default_rng(seed)
            yield _assessed(_changed(row, change_by_query(one, two, on_log_scale, level, rng)), base, other)


def pair_changes(base: Compared, other: Compared, chosen: Sequence[Measure] | None) -> Iterator[Row]:
    """Of two pairwise runs, from the verdicts on the pairs that both were asked.

    Raises UsageError where there are none.
    """
    common = base.verdicts.keys() & other.verdicts.keys()
    if not common:
        raise UsageError(
            f"{base.name} and {other.name} have no pair in common.",
            "run both with the same --seed and --kind",
        )
    weighted = (f"{name}(agg={base.settings['weights']})" for name in PAIR_MEASURES)
    measures = chosen or parse_measures(",".join(weighted))
    headlines, level = _headlines(measures), base.results["level"]
    kinds = [kind for kind in base.arms if kind in {k for k, *_ in common}]
    repeats = min(run.results["design"]["repeats"] for run in (base, other))
    before, after = (_tallies(run, common, kinds, measures, repeats) for run in (base, other))
    _check(chosen, [measure for measure, _ in before])
    for measure in measures:
        for kind in kinds:
            row = _row(other, kind, measure, headlines)
            values = before[measure, kind], after[measure, kind]
            weights: Weights = "pooled" if measure.aggregate == "pooled" else "macro"
            yield _assessed(_pooled(row, *values, weights, level), base, other)


def _tallies(
    run: Compared,
    common: Collection[tuple[Any, ...]],
    kinds: Sequence[str],
    measures: Sequence[Measure],
    repeats: int,
) -> dict[tuple[Measure, str], list[Value]]:
    """The pairs in common as each measure that pools them counts them, a tally for every query."""
    judged = {
        kind: list(judged_of([run.verdicts[key] for key in common if key[0] == kind], repeats))
        for kind in kinds
    }
    return {
        (column.measure, column.variant): list(column.values.values())
        for column in measure_all(measures, judged)
        if column.group == "" and all(isinstance(value, Tally) for value in column.values.values())
    }


def _pooled(row: Row, before: Sequence[Value], after: Sequence[Value], weights: Weights, level: float) -> Row:
    """The row with both figures and their change; without interval and test where either figure has no interval."""
    one, two = (tallied(values, weights, level) for values in (before, after))
    counted, counted_after = joined(before, weights), joined(after, weights)
    assert one is not None and two is not None  # there are tallies
    reason = one.reason or two.reason
    row = replace(row, base=one.value, other=two.value, reason=reason)
    if one.value is None or two.value is None or counted is None or counted_after is None:
        return row
    formula = next(value.formula for value in before if isinstance(value, Tally))
    change = change_of_pairs(formula, counted, counted_after, level, formula.logarithmic)
    found, p = change.estimate, change.p
    if one.low is None or two.low is None:
        found, p = replace(found, low=None, high=None), None
    return _changed(row, Change(replace(found, reason=found.reason or reason), p))


def _headlines(measures: Sequence[Measure]) -> set[Measure]:
    """The figure that speaks of the sides, and the first of utility, P@20 before others."""
    parity = [measure for measure in measures if measure.name in ("ExpRatio", "AdjustedOdds")]
    useful = [measure for measure in measures if measure.definition.better == "higher"]
    return {*parity[:1], *sorted(useful, key=lambda measure: str(measure) != "P@20")[:1]}


def _check(chosen: Sequence[Measure] | None, known: Collection[Measure]) -> None:
    """Raises UsageError for a measure that cannot be paired."""
    missing = [str(measure) for measure in chosen or () if measure not in known]
    if missing:
        hint = (
            f"both have: {', '.join(map(str, dict.fromkeys(known)))}"
            if known
            else f"try {','.join(PAIR_MEASURES)}"
        )
        raise UsageError(f"{missing[0]} has no values that can be paired by query in these runs.", hint)


def _row(
    other: Compared,
    variant: str,
    measure: Measure,
    headlines: Collection[Measure],
    before: float | None = None,
    after: float | None = None,
) -> Row:
    declared = measure.definition
    headline = measure in headlines
    return Row(other.name, variant, str(measure), declared.scale, declared.better, headline, before, after)


def _changed(row: Row, change: Change) -> Row:
    found = change.estimate
    return replace(
        row,
        change=found.value,
        low=found.low,
        high=found.high,
        n=found.n,
        p=change.p,
        reason=found.reason,
    )


def _assessed(row: Row, base: Compared, other: Compared) -> Row:
    """The row with both runs' conclusions; nothing is concluded from a run that draws none itself."""
    if not RATIO.match(row.measure):
        return row
    found = [run.results["findings"].get(row.variant, {}) for run in (base, other)]
    before, after = (finding.get("conclusion") for finding in found)
    row = replace(row, base_conclusion=before, other_conclusion=after)
    reasons = [f["reason"] for f in found if f.get("conclusion") == Conclusion.NOT_ASSESSABLE]
    barred = [reason for reason in reasons if reason != OF_ODDS_ALONE]
    return replace(row, low=None, high=None, p=None, reason=barred[0]) if barred else row
