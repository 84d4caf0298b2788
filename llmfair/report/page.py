"""A report's content before it is a page: what one run found, what stands behind it, how it was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from llmfair.audits.kind import found_of, kind_of
from llmfair.audits.studies.study import Study
from llmfair.manifest import Manifest
from llmfair.report.exhibits import Evidence, Exhibits
from llmfair.report.figures import COST, HEADLINES
from llmfair.report.furthest import Furthest
from llmfair.report.lead import Lead, lead_of
from llmfair.report.method import Method, method_of
from llmfair.report.plots.base import Plot
from llmfair.report.queries import queries_table
from llmfair.report.section import Section, VerdictCard
from llmfair.report.source import Source, missing_of
from llmfair.report.tables import Table, calls_of, capitalised
from llmfair.results import Reach, Requirement, Results, RunVerdict

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Page:
    """All that a report shows, in its order; `outcome` are verdicts by run ("" of a single one)."""

    kind: str
    title: str
    subtitle: str
    words: Mapping[str, str]
    missing: Sequence[str]
    warnings: Sequence[str]
    verdicts: Sequence[VerdictCard]
    tables: Sequence[Table]
    plots: Sequence[Plot]
    furthest: Furthest | None
    queries: Table | None
    evidence: Sequence[Evidence]
    method: Method
    rows: Sequence[Row]
    outcome: Sequence[tuple[str, RunVerdict]] = ()
    following: str = ""
    sees: str = ""

    @property
    def first(self) -> Plot | None:
        """The figure of the first screen: headlines against their band, or what fairness costs."""
        return next((plot for plot in self.plots if plot.name.startswith((HEADLINES, COST))), None)

    @property
    def lead(self) -> Lead:
        """The verdict of each run, and the next step."""
        return lead_of(self.outcome, self.following)


@dataclass(frozen=True)
class General:
    """What reports know of a command that is neither an audit nor a study of audits, from a folder with its results.

    `words` are its method's paragraphs; `missing` and `warnings` what is said of it among several runs, `outcome` its
    verdicts by name.
    """

    words: Sequence[str]
    page: Callable[[Source, Exhibits], Page]
    table: Callable[[Source], Table]
    missing: Callable[[Source], Iterable[str]] = lambda source: ()
    warnings: Callable[[Source], Iterable[str]] = lambda source: ()
    outcome: Callable[[Source], Iterable[tuple[str, RunVerdict]]] = lambda source: ()


def run_page(folder: Path, manifest: Manifest, document: Mapping[str, Any], exhibits: Exhibits) -> Page:
    """The page of an audit's run folder; `exhibits` is what the command found beside the folder."""
    results: Results = found_of(document, folder / "results.json")
    kind = kind_of(results.task)
    section = kind.section(results, folder, exhibits)
    names = {condition: kind.titles.get(condition, condition) for condition in results.design.conditions}
    calls = [("calls", calls_of(results))] * bool(results.design.calls)
    return Page(
        kind=kind.title,
        title=f"{results.short_name} on {results.dataset}"
        + f", {results.attribute}" * bool(results.words.protected),
        subtitle=section.table.title,
        words=asdict(results.words),
        missing=missing_of(manifest.status, results, kind.titles),
        warnings=warnings_of([results.model], results.requirements, results.warnings),
        verdicts=section.verdicts,
        tables=[with_reach(section.table, results.reach), *section.more],
        plots=section.plots,
        furthest=section.furthest,
        queries=queries_table(
            folder, kind.condition, lambda row: names.get(row.condition), results, results.shown, exhibits
        ),
        evidence=exhibits.evidence,
        method=method_of(document, manifest, exhibits, section.words, [*section.facts, *calls]),
        rows=document["rows"],
        outcome=[("", results.verdict)] if results.verdict is not None else [],
        following="" if results.verdict is None else results.verdict.next,
        sees=results.sees,
    )


def study_page(study: Study, document: Mapping[str, Any], exhibits: Exhibits) -> Page:
    """The page of a study of several audits."""
    found = found_of(document)
    plots = list(study.plots(found, exhibits.measures)) if found.rows else []
    title = f"{found.model} on {found.dataset}, {found.attribute}" if found.rows else "no results yet"
    page = plain_page(
        document, exhibits, Section(study.table(found), plots, words=study.words), study.title, title,
        {} if found.words is None or not found.rows else asdict(found.words), found.missing,
        warnings_of([found.model] * bool(found.rows)),
    )  # fmt: skip
    if found.verdict is None:
        return page
    return replace(page, outcome=[("", found.verdict)], following=found.verdict.next)


def plain_page(
    document: Mapping[str, Any],
    exhibits: Exhibits,
    section: Section,
    kind: str,
    title: str,
    words: Mapping[str, str],
    missing: Sequence[str],
    warnings: Sequence[str],
    queries: Table | None = None,
) -> Page:
    """A page of figures alone: no one run folder stands behind it."""
    return Page(
        kind=kind, title=title, subtitle=section.table.title, words=words, missing=missing, warnings=warnings,
        verdicts=section.verdicts, tables=[section.table], plots=section.plots, furthest=section.furthest,
        queries=queries, evidence=(), method=method_of(document, None, exhibits, section.words), rows=document["rows"],
    )  # fmt: skip


def warnings_of(
    models: Iterable[str], requirements: Iterable[Requirement] = (), warnings: Iterable[str] = ()
) -> list[str]:
    """What has to be known before any figure is read: simulated models, warnings, gates that do not hold."""
    said = []
    if any(model.startswith("fake:") for model in models):
        said.append(
            "A simulated model with an injected preference: its figures test the audit procedure, no real model."
        )
    unmet = dict.fromkeys(entry.reason for entry in requirements if not entry.holds)
    told = (f"{capitalised(warning)}." for warning in warnings)
    return [*said, *told, *(f"Requirement not met: {reason}" for reason in unmet)]


def with_reach(table: Table, reach: Mapping[str, Reach]) -> Table:
    """The table with a last row: what each measure can be in this setting at all."""

    def attainable(heading: str) -> str:
        found = reach.get(heading.split(" [")[0], Reach())
        if found.low is not None and found.high is not None:
            return f"{found.low:.3f} … {found.high:.3f}"
        return "" if found.high is None else f"about {found.high:.3f}"

    row = tuple(attainable(heading) for heading in table.header[1:-1])
    if not any(row):
        return table
    last = ("attainable", *row, "by rankers that always put one group first, by a perfect one on average")
    return replace(table, rows=(*table.rows, last))
