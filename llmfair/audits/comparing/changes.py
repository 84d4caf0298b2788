"""What changed from one run to another: measure by measure, over what both were asked."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from llmfair.asking.journal_lines import read_rows
from llmfair.errors import UsageError
from llmfair.io.files import query_figures
from llmfair.manifest import Manifest
from llmfair.metrics.base import Measure
from llmfair.metrics.names import parse_measures
from llmfair.nouns import Conclusion
from llmfair.results import Figure, absent_row
from llmfair.rundir import RunDir
from llmfair.stats.paired import Change, change_by_query

USELESS = (
    "chance_answers", "no_better_than_input", "no_better_than_random", "no_better_than_chance", "not_judged",
)  # fmt: skip
"""Why nothing says that a ranker does its job: its odds are odds, but nearness to parity is noise, or may be."""


class Interval(Protocol):
    """A figure with its interval."""

    @property
    def value(self) -> float | None: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """One measure under one condition, in the base and in another run.

    `change` is other/base on a log `scale`, else other − base. Headlines are tested together: `p_adjusted`. Of a
    figure that speaks of the sides both runs' conclusions stand beside, with the intervals of either run. Where one
    cannot be assessed, or the two cannot be compared, there is neither interval nor test, and the `reason`, which is
    that of the runs named in `reason_of`. `useless`: why the other run's nearness to parity would say nothing.
    """

    run: str
    condition: str
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
    reason_of: tuple[str, ...] = ()
    base_low: float | None = None
    base_high: float | None = None
    other_low: float | None = None
    other_high: float | None = None
    useless: str | None = None


@dataclass(frozen=True, eq=False)
class ComparedRun:
    """A complete run, `name` as the comparison calls it; `results` of the class of its kind."""

    name: str
    run: RunDir
    manifest: Manifest
    results: Any
    aside: Collection[str] = ()

    @property
    def settings(self) -> Mapping[str, Any]:
        """What names the run."""
        return self.manifest.settings

    def setting(self, name: str) -> Any:
        """A setting that names the run, or else one of how its answers are counted; None where it has neither."""
        return self.settings.get(name, getattr(self.results.design, name, None))

    @property
    def conditions(self) -> list[str]:
        """The conditions, without those that only repeat another."""
        return [condition for condition in self.results.design.conditions if condition not in self.aside]

    @cached_property
    def values(self) -> dict[tuple[str, str], dict[str, float]]:
        """The queries' own values by measure and condition. Raises UsageError naming a line that cannot be read."""
        found: dict[tuple[str, str], dict[str, float]] = {}
        for row in query_figures(self.run.path, needed=True):
            if row.value is not None and not row.group:
                found.setdefault((row.measure, row.condition), {})[row.query_id] = row.value
        return found

    @cached_property
    def answers(self) -> dict[str, tuple[Any, ...]]:
        """What was answered, by the key of the question: whom it was put to, and how, among it."""
        found: dict[str, tuple[Any, ...]] = {}
        for journal in filter(Path.is_file, self.run.journals(self.manifest)):
            for row in read_rows(journal):
                if "key" in row:
                    found.setdefault(row["key"], (row["text"], row["finish"], row.get("logprobs")))
        return found

    @property
    def concluded(self) -> set[str]:
        """The measures that something is concluded of."""
        return {finding.measure for finding in self.results.findings.values()}

    def figure(self, measure: str, condition: str) -> Figure:
        """The figure of all queries, as the run's own table has it; one without a value where it has none."""
        found: Figure | None = self.results.by_condition().get((measure, condition))
        return found or absent_row(measure, condition)


def headlines_of(measures: Sequence[Measure]) -> set[Measure]:
    """The figure that speaks of the sides, and the first of utility, one of the headlines before others."""
    ratios = [measure for measure in measures if measure.definition.better == "parity"]
    useful = [measure for measure in measures if measure.definition.better == "higher"]
    told = [measure for measure in ratios if measure.definition.headline]
    return {*told[:1], *sorted(useful, key=lambda measure: not measure.definition.headline)[:1]}


def check_paired(chosen: Sequence[Measure] | None, known: Collection[Measure], otherwise: str = "") -> None:
    """Raises UsageError for a measure that cannot be paired; where no other can, `otherwise` says what to try."""
    missing = [str(measure) for measure in chosen or () if measure not in known]
    if missing:
        hint = f"both have: {', '.join(map(str, dict.fromkeys(known)))}" if known else otherwise
        raise UsageError(f"{missing[0]} has no values that can be paired by query in these runs.", hint)


def row_of(
    other: ComparedRun,
    condition: str,
    measure: Measure,
    headlines: Collection[Measure],
    before: Interval | None = None,
    after: Interval | None = None,
) -> ChangeRow:
    """The row of a measure; with both runs' own figures, where they are known."""
    declared = measure.definition
    headline = measure in headlines
    row = ChangeRow(
        other.name, condition, str(measure), declared.scale, declared.better, headline, None, None
    )
    return row if before is None or after is None else with_figures(row, before, after)


def with_figures(row: ChangeRow, before: Interval, after: Interval) -> ChangeRow:
    """The row with both runs' own figures, of those that speak of the sides with their intervals."""
    row = replace(row, base=before.value, other=after.value)
    if row.better != "parity":
        return row
    return replace(
        row, base_low=before.low, base_high=before.high, other_low=after.low, other_high=after.high
    )


def changed(row: ChangeRow, change: Change) -> ChangeRow:
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


def assessed(row: ChangeRow, measure: Measure, base: ComparedRun, other: ComparedRun) -> ChangeRow:
    """The row with both runs' conclusions; nothing is concluded from a run of which nothing can be said.

    Nor from a headline that is but a bound; what is assessed by it stands. Figures of a ranker that is of no use are
    figures; that it came closer to parity is another matter (`useless`).
    """
    if not measure.definition.assessed_by:
        return row
    findings = [run.results.findings.get(row.condition) for run in (base, other)]
    before, after = (None if finding is None else str(finding.conclusion) for finding in findings)
    useless = findings[1].useless if row.useless is None and findings[1] is not None else row.useless
    row = replace(row, base_conclusion=before, other_conclusion=after, useless=useless)
    barred = {
        run.name: finding.reason
        for run, finding in zip((base, other), findings, strict=True)
        if finding is not None and finding.reason not in (None, *USELESS)
        if finding.conclusion == Conclusion.NOT_ASSESSABLE
        or (finding.conclusion != Conclusion.WITHIN and finding.measure == str(measure))
    }
    if not barred:
        return row
    row = replace(row, low=None, high=None, p=None)
    return row if row.change is None and row.reason_of else because(row, barred)


def because(row: ChangeRow, reasons: Mapping[str, str | None]) -> ChangeRow:
    """The row with the first of the runs' reasons, and which runs have it."""
    told = {name: reason for name, reason in reasons.items() if reason}
    reason = next(iter(told.values()), None)
    return replace(row, reason=reason, reason_of=tuple(name for name in told if told[name] == reason))


def _lacking(row: ChangeRow, key: tuple[str, str], base: ComparedRun, other: ComparedRun) -> ChangeRow:
    """The row with why queries have no values that could be paired, and of which run."""
    lacking = [run for run in (base, other) if key not in run.values]
    if not lacking:
        return replace(row, reason="no_common_query")
    return because(row, {run.name: run.figure(*key).reason or "no_finite_odds" for run in lacking})


def changes_by_query(
    base: ComparedRun,
    other: ComparedRun,
    chosen: Sequence[Measure] | None,
    called: str,
    hint: str = "",
) -> Iterator[ChangeRow]:
    """From the queries' own values, paired: every measure with a direction, or those chosen.

    Raises UsageError where there is no condition, `called` so, in common.
    """
    conditions = [condition for condition in base.conditions if condition in other.conditions]
    if not conditions:
        raise UsageError(f"{base.name} and {other.name} have no {called} in common.", hint)
    both = {name for name, condition in base.values.keys() & other.values.keys() if condition in conditions}
    both |= {measure for run in (base, other) for measure in run.concluded} & {*other.results.measures}
    listed = ",".join(name for name in base.results.measures if name in both)
    known = parse_measures(listed) if listed else ()
    check_paired(chosen, known)
    # rank agreement is with the initial order, which is no figure of the ranker alone
    directed = [m for m in known if m.definition.better and not m.definition.agreement]
    measures = chosen or directed
    headlines = headlines_of(measures)
    level, seed = base.results.level, base.results.design.seed
    for measure in measures:
        for condition in conditions:
            key, on_log_scale = (str(measure), condition), measure.definition.scale == "log"
            before, after = base.values.get(key, {}), other.values.get(key, {})
            queries = [
                query
                for query in sorted(before.keys() & after.keys())
                if not on_log_scale or min(before[query], after[query]) > 0
            ]
            row = row_of(other, condition, measure, headlines, base.figure(*key), other.figure(*key))
            if not queries:
                yield assessed(_lacking(row, key, base, other), measure, base, other)
                continue
            one, two = ([of_it[query] for query in queries] for of_it in (before, after))
            rng = np.random.default_rng(seed)
            row = changed(row, change_by_query(one, two, on_log_scale, level, rng))
            yield assessed(row, measure, base, other)
