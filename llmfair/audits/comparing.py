"""Runs side by side: every other run compared with the first, measure by measure, over what both were asked."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import isclose
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from llmfair.asking.journal import read_rows
from llmfair.audits.commands import continuing
from llmfair.audits.documents import ChangeRow, Comparison, ComparisonRun
from llmfair.audits.gates import as_shown, refused
from llmfair.audits.kind import Kind, kind_of, results_of
from llmfair.audits.lists import asked_of_lists
from llmfair.errors import RequirementFailed, UsageError
from llmfair.io.files import SCHEMA, plain
from llmfair.io.text import setting_text
from llmfair.metrics.base import Measure
from llmfair.metrics.names import parse_measure, parse_measures
from llmfair.nouns import Conclusion, Key, is_of, picked
from llmfair.results import PARITY_OPEN, Figure, Reach, Results, absent_row, query_figures, stratum_of
from llmfair.rundir import RUNS_HINT, Manifest, RunDir
from llmfair.settings.declaration import band_of, default_of, flag_of
from llmfair.stats.intervals import OTHER_DESIGN, OTHER_REACH, SAME_ANSWERS, Estimate
from llmfair.stats.paired import Change, at_figure, change_by_query
from llmfair.stats.significance import holm

USELESS = (
    "chance_answers", "no_better_than_input", "no_better_than_random", "no_better_than_chance", "not_judged",
)  # fmt: skip
"""Why nothing says that a ranker does its job: its odds are odds, but nearness to parity is noise, or may be."""


@dataclass(frozen=True, eq=False)
class ComparedRun:
    """A complete run, `name` as the comparison calls it; `results` of the class of its kind."""

    name: str
    run: RunDir
    manifest: Manifest
    results: Any

    def setting(self, name: str) -> Any:
        """A setting that names the run, or else one of how its answers are counted; None where it has neither."""
        return self.manifest.settings.get(name, getattr(self.results.design, name, None))

    @property
    def keys(self) -> list[Key]:
        """What figures are of, without conditions that only repeat another."""
        aside = kind_of(self.results.task).measure.aside
        return [key for key in self.results.design.keys if not is_of(key, aside)]

    @cached_property
    def values(self) -> dict[tuple[str, Key], dict[str, float]]:
        """The queries' own values by measure and key. Raises UsageError naming a line that cannot be read."""
        values: dict[tuple[str, Key], dict[str, float]] = {}
        contrasts = self.results.design.contrasts
        for row in query_figures(self.run.path, needed=True):
            if row.value is not None and not row.group:
                values.setdefault((row.measure, row.key(contrasts)), {})[row.query_id] = row.value
        return values

    @cached_property
    def answers(self) -> dict[str, tuple[Any, ...]]:
        """What was answered, by the key of the question: whom it was put to, and how, among it."""
        answers: dict[str, tuple[Any, ...]] = {}
        for journal in filter(Path.is_file, self.run.journals(self.manifest)):
            for row in read_rows(journal):
                if "key" in row:
                    answers.setdefault(row["key"], (row["text"], row["finish"], row.get("logprobs")))
        return answers

    def figure(self, measure: str, key: Key) -> Figure:
        """The figure of all queries, as the run's own table has it; one without a value where it has none."""
        figure: Figure | None = self.results.by_key().get((measure, key))
        return figure or absent_row(measure, key)


def headlines_of(measures: Sequence[Measure]) -> set[Measure]:
    """The figure that speaks of the sides, and the first of utility, one of the headlines before others."""
    of = [(measure, measure.definition) for measure in measures]
    headlines = [measure for measure, its in of if its.better == "parity" and its.headline]
    useful = sorted((not its.headline, place) for place, (_, its) in enumerate(of) if its.better == "higher")
    return {*headlines[:1], *(measures[place] for _, place in useful[:1])}


def check_paired(chosen: Sequence[Measure] | None, paired: Collection[Measure], otherwise: str = "") -> None:
    """Raises UsageError for a measure that cannot be paired; where no other can, `otherwise` says what to try."""
    missing = [str(measure) for measure in chosen or () if measure not in paired]
    if missing:
        hint = f"both have: {', '.join(map(str, dict.fromkeys(paired)))}" if paired else otherwise
        raise UsageError(f"{missing[0]} has no values that can be paired by query in these runs.", hint)


def row_of(other: ComparedRun, key: Key, measure: Measure, headlines: Collection[Measure]) -> ChangeRow:
    """The row of a measure, without any figure."""
    name, of = str(measure), measure.definition
    named = other.name, key.condition, stratum_of(name, key.stratum), name
    return ChangeRow(*named, of.scale, of.better, measure in headlines, None, None, contrast=key.contrast)


def with_figures(row: ChangeRow, before: Figure | Estimate, after: Figure | Estimate) -> ChangeRow:
    """The row with both runs' own figures, of those that speak of the sides with their intervals."""
    row = replace(row, base=before.value, other=after.value)
    if row.better != "parity":
        return row
    return replace(
        row, base_low=before.low, base_high=before.high, other_low=after.low, other_high=after.high
    )


def changed(row: ChangeRow, change: Change) -> ChangeRow:
    """The row with the change."""
    of = change.estimate
    return replace(row, change=of.value, low=of.low, high=of.high, n=of.n, p=change.p, reason=of.reason)


def assessed(row: ChangeRow, measure: Measure, base: ComparedRun, other: ComparedRun) -> ChangeRow:
    """The row with both runs' conclusions; nothing is concluded from a run of which nothing can be said, nor from a
    headline that is but a bound; what is assessed by it stands, and so do figures of a ranker of no use (`useless`)."""
    if not measure.definition.assessed_by:
        return row
    findings = [run.results.findings.get(row.of) for run in (base, other)]
    before, after = (None if finding is None else str(finding.conclusion) for finding in findings)
    useless = row.useless or (findings[1] and findings[1].useless)
    row = replace(row, base_conclusion=before, other_conclusion=after, useless=useless)
    barred = {
        run.name: finding.reason
        for run, finding in zip((base, other), findings, strict=True)
        if finding is not None and finding.reason not in (None, *USELESS, *PARITY_OPEN)
        if finding.conclusion == Conclusion.NOT_ASSESSABLE
        or (finding.conclusion != Conclusion.WITHIN and finding.measure == str(measure))
    }
    if not barred:
        return row
    row = replace(row, low=None, high=None, p=None)
    return row if row.change is None and row.reason_of else because(row, barred)


def because(row: ChangeRow, reasons: Mapping[str, str | None]) -> ChangeRow:
    """The row with the first of the runs' reasons, and which runs have it."""
    reason = next(filter(None, reasons.values()), None)
    of = [name for name, its in reasons.items() if reason and its == reason]
    return replace(row, reason=reason, reason_of=of)


def changes_by_query(
    base: ComparedRun, other: ComparedRun, chosen: Sequence[Measure] | None
) -> Iterator[ChangeRow]:
    """From the queries' own values, paired: those with a direction, or chosen. Raises UsageError without any."""
    keys = [key for key in base.keys if key in other.keys]
    if not keys:
        raise UsageError(
            f"{base.name} and {other.name} have no {kind_of(base.results.task).words.condition} in common.",
            f"llmfair runs show {base.run.path} names its own",
        )
    # what compares no groups is one figure for all contrasts
    alike = [*dict.fromkeys(key.of_all_contrasts for key in keys)]
    both = {name for name, key in base.values.keys() & other.values.keys() if key in (*keys, *alike)}
    findings = (finding for run in (base, other) for finding in run.results.findings.values())
    both |= {finding.measure for finding in findings} & {*other.results.measures}
    listed = ",".join(name for name in base.results.measures if name in both)
    paired = parse_measures(listed) if listed else ()
    check_paired(chosen, paired)
    # rank agreement is with the initial order, which is no figure of the ranker alone
    directed = [m for m in paired if m.definition.better and not m.definition.agreement and m.of_all_items]
    headlines = headlines_of(measures := chosen or directed)
    shown = [name for name in base.results.shown if name in other.results.shown]
    of_groups = {of for of, key in base.values if key.contrast}
    asked = [(of, key) for of in measures for key in (keys if str(of) in of_groups else alike)]
    for measure, key in asked:
        name, on_log_scale = as_shown(str(measure), shown), measure.definition.scale == "log"
        before, after = (run.values.get((str(measure), key), {}) for run in (base, other))
        queries = sorted(before.keys() & after.keys())
        if on_log_scale:
            queries = [query for query in queries if min(before[query], after[query]) > 0]
        figures = {run.name: run.figure(name, key) for run in (base, other)}
        was, now = figures.values()
        row = with_figures(replace(row_of(other, key, measure, headlines), measure=name), was, now)
        if queries:
            first, second = ([of_it[query] for query in queries] for of_it in (before, after))
            if on_log_scale:
                first, second = at_figure(first, was.value), at_figure(second, now.value)
            rng, level = np.random.default_rng(base.results.design.seed), base.results.level
            row = changed(row, change_by_query(first, second, on_log_scale, level, rng, measure.bounds))
        elif before and after:
            row = replace(row, reason="no_common_query")
        else:  # why, of the run that has no values
            lacking = [name for name, of_it in ((base.name, before), (other.name, after)) if not of_it]
            row = because(row, {name: figures[name].reason or "no_finite_odds" for name in lacking})
        yield assessed(row, measure, base, other)


SAME_LISTS = "give both the same -d, -a, --limit, --queries and the same draw of lists"
REFUSED = {
    "task": ("are runs of different tasks", "name runs of one kind"),
    "attribute": ("audit different attributes", SAME_LISTS),
    "lists_sha256": ("asked about different lists", SAME_LISTS),
}
"""Settings that must agree whatever the kind of audit, what it means where they do not, and the way out."""
ALIKE = 0.01
"""Ends of attainable ranges that differ by less are the same: they are simulated."""


def compare(runs: Sequence[RunDir], measures: str | None = None, margin: str | None = None) -> Comparison:
    """The comparison; a change within `margin`, such as 0.9..1.1, is none that matters, by default one within the band.

    Runs are called by their labels or models where these differ, else by both, by strategy, or by their folders. Raises
    UsageError for runs that cannot be compared, an incomplete one too (what it lacks is not missing by chance), and for
    no such margin.
    """
    if len({run.path.resolve() for run in runs}) < max(2, len(runs)):
        raise UsageError("a comparison needs two runs or more, each named once.", RUNS_HINT)
    opened = list[ComparedRun]()
    names = list[tuple[str, ...]]()
    for run in runs:
        manifest, path = run.read_manifest(), run.path
        results: Results = results_of(run, manifest)
        if results.status != "complete":
            hint = f"{continuing(run) or 'the call that began it'}    completes it"
            raise UsageError(f"{path} is incomplete.", hint)
        opened.append(ComparedRun("", run, manifest, results))
        asked = " ".join(filter(None, (results.short_name, getattr(results.design, "strategy", None))))
        names.append((results.short_name, results.named_model, asked, path.resolve().name, str(path)))
    apart = next(each for each in zip(*names, strict=True) if len({*each}) == len(runs))
    base, *others = [dataclasses.replace(of, name=name) for of, name in zip(opened, apart, strict=True)]
    kind = kind_of(base.results.task)
    for other in others:
        of_kind = {
            name: (of, f"run both with the same --{flag_of(name)}") for name, of in kind.measure.agree.items()
        }
        for name, (differ, hint) in (REFUSED | of_kind).items():
            if base.setting(name) != other.setting(name):
                settings = "; ".join(_setting_text(name, run) for run in (base, other))
                raise UsageError(f"{base.name} and {other.name} {differ} ({settings}).", hint)
    chosen = parse_measures(measures, kind.measure.reads) if measures else None
    try:
        within = base.results.band if margin is None else band_of(margin)
    except ValueError:
        hint = "it takes quotients of odds from 0.01 to 1, then from 1 to 100, as in 0.8..1.25"
        raise UsageError(f"--margin '{margin}' is no margin.", hint) from None
    rows = list[ChangeRow]()
    for other in others:
        for row in kind.measure.changes(base, other, chosen):
            # without interval and test where the two runs give no two figures that could differ or be compared
            reason = _incomparable(row, base, other, kind)
            bare = replace(row, low=None, high=None, p=None, reason=reason, reason_of=())
            rows.append(bare if reason else row)
    adjusted = holm([row.p if row.headline else None for row in rows])
    rows = [replace(row, p_adjusted=p) for row, p in zip(rows, adjusted, strict=True)]
    shared = ("task", "dataset", "attribute", "words", "level", "band")
    compared = Comparison(
        schema=SCHEMA, status="complete", **picked(base.results, shared),
        margin=within, seed=base.results.design.seed, queries=base.results.design.queries,
        runs=[_described(run, base, kind) for run in (base, *others)],
        family=sum(p is not None for p in adjusted), rows=rows,
    )  # fmt: skip
    verdicts = [verdict for _, verdict in kind.words.compared(compared)]
    statuses = [*kind.words.compared_statuses]
    gravest = min(verdicts, key=lambda verdict: statuses.index(verdict.status), default=None)
    return replace(compared, verdict=gravest)


def _incomparable(row: ChangeRow, base: ComparedRun, other: ComparedRun, kind: Kind) -> str | None:
    """Why the two figures of a row could not differ, or say nothing beside each other; None where they do."""
    if _same_answers(base, other):
        return SAME_ANSWERS
    if not (bounding := parse_measure(row.measure).definition.reach):
        return None
    first, second = (plain(run.results.reach.get(bounding[0], Reach())) for run in (base, other))
    if first.keys() != second.keys() or not all(
        isclose(first[end], second[end], rel_tol=ALIKE) for end in first
    ):
        return OTHER_REACH  # distances from parity would tell of the windows, not of the rankers alone
    # how far a preference moves the exposures hangs on the way in which a model is asked
    prompted = all(run.manifest.prompt is not None for run in (base, other))
    same = all(base.setting(name) == other.setting(name) for name in kind.measure.asked_by)
    return OTHER_DESIGN if prompted and not same else None


def _same_answers(base: ComparedRun, other: ComparedRun) -> bool:
    """Whether all that was asked for one run is known from the other, and answered alike."""
    if base.setting("identity") != other.setting("identity"):
        return False
    fewer, more = sorted((base.answers, other.answers), key=len)
    return bool(fewer) and all(more.get(key) == answer for key, answer in fewer.items())


def _setting_text(name: str, run: ComparedRun) -> str:
    """One of these settings in words."""
    value = run.setting(name)
    if name == "attribute":
        of = asked_of_lists(run.run, run.manifest.settings).attribute
        return f"{of.name}, {'+'.join(of.protected)} against {'+'.join(of.unprotected)}"
    if name == "lists_sha256":
        return f"{run.results.dataset}, {run.results.design.queries} queries, {str(value)[:6]}"
    return setting_text(name, value)


def unlike(key: str, before: Any, after: Any) -> tuple[str, str]:
    """Two values of a setting in words; of values by name those that differ."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        differ = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        before, after = ({name: of[name] for name in differ if name in of} for of in (before, after))
    return setting_text(key, before), setting_text(key, after)


def _described(run: ComparedRun, base: ComparedRun, kind: Kind) -> ComparisonRun:
    """A run, with the settings in which it differs from the base."""
    alike = {*REFUSED, *kind.measure.agree, "identity", "queries"}
    alike |= {*base.manifest.unused, *run.manifest.unused}
    # what is left as it is names no run
    usual = {item.name: default_of(item) for item in dataclasses.fields(kind.settings)}
    settings = [
        {**each.manifest.settings, "system": each.manifest.flags.get("system")} for each in (base, run)
    ]
    names = sorted({*chain(*settings)} - alike)
    differs = {name: tuple(of.get(name, usual.get(name)) for of in settings) for name in names}
    return ComparisonRun(
        name=run.name,
        run=str(run.run.path),
        model=run.results.model,
        differs={name: (before, after) for name, (before, after) in differs.items() if before != after},
        same_answers=run is not base and _same_answers(base, run),
        reach=run.results.reach,
        own=kind.measure.described(run, base),
    )


def failed_of(compared: Comparison, fail_on: Collection[str]) -> RequirementFailed | None:
    """What ends a command whose runs have a verdict of these statuses."""
    verdicts = (verdict for _, verdict in kind_of(compared.task).words.compared(compared))
    refusals = [*filter(None, (refused(verdict, fail_on) for verdict in verdicts))]
    if compared.verdict is None or not refusals:
        return None
    return RequirementFailed("; ".join(refusals), compared.verdict.next)
