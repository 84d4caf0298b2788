"""Many runs on one page: models down, attributes and prompts (or relevance strata) across, as in the papers' tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from llmfair.audits.kind import kind_of, kinds
from llmfair.io.files import plain as as_json
from llmfair.io.text import count
from llmfair.metrics.base import plain_name
from llmfair.report.groups import DRAWN, LISTS, AuditedRun, Group, groups_of
from llmfair.report.page import (
    General,
    Method,
    Page,
    Source,
    cost_of,
    formulas_of,
    limits_of,
    lopsided,
    missing_of,
    study_general,
    unfinished,
    warnings_of,
)
from llmfair.report.tables import (
    Table,
    capitalised,
    cell,
    columns_of,
    few_queries,
    filled,
    headings,
    with_interval,
)
from llmfair.results import Declared, Exhibits, Row
from llmfair.rundir import AskedWith


def many_page(sources: Sequence[Source], measures: Declared, general: Mapping[str, General]) -> Page:
    """The page of several runs; those without results are named, and left out. `general` by task."""
    groups = _groups(sources)
    told = [(source, _general(source, general)) for source in sources]
    others = [(source, of) for source, of in told if source.results is not None and not source.is_audit]
    words = dict.fromkeys(
        [tuple(kind_of(group.task).words.method) for group in groups] + [tuple(of.words) for _, of in others]
    )
    results = [source.results for source in sources if source.results is not None]
    attributes = dict.fromkeys(
        run.attribute for one in results for run in (one.runs if one.task == "score" else [one])
    )
    outcome = [
        (f"{source.name} {name}".strip(), verdict)
        for source, of in told
        for name, verdict in of.outcome(source)
    ]
    gravity = [*dict.fromkeys(status for kind in kinds() for status in kind.words.statuses)]
    known = [verdict for _, verdict in outcome if verdict.status in gravity]
    gravest = min(known, key=lambda verdict: gravity.index(verdict.status), default=None)
    return Page(
        kind="Report",
        title=", ".join([count(len(sources), "run"), *([" and ".join(attributes)] if attributes else [])]),
        subtitle=" · ".join(
            [
                *(_of_lists(f"{group.task} on {_about(group, ', ')}", group) for group in groups),
                *(source.name for source, _ in others),
            ]
        ),
        missing=[
            line if source.results is None else f"{source.name}: {line}"
            for source, of in told
            for line in of.missing(source)
        ],
        warnings=[*warnings_of(getattr(each, "model", "") for each in results), *_warnings(groups, told)],
        tables=[
            *(
                replace(table, title=_of_lists(table.title, group))
                for group in groups
                for table in (*_tables(group), *kind_of(group.task).words.group_tables(group))
            ),
            *(of.table(source) for source, of in others if getattr(source.results, "rows", None)),
        ],
        plots=[
            replace(plot, title=_of_lists(plot.title, group))
            for number, group in enumerate(groups)
            for plot in kind_of(group.task).words.group_plots(group, measures, number)
        ],
        method=Method(
            words=[*(paragraph for paragraphs in words for paragraph in paragraphs), *lopsided(results)],
            formulas=formulas_of(measures),
            facts=[(source.name, _fact(source, of)) for source, of in told],
            prompt="",
            command="llmfair report " + " ".join(source.name for source in sources),
            limits=limits_of(results),
        ),
        # with the lists that they are of: figures of others do not compare
        rows=[
            as_json(row) | {LISTS: audited.settings.get(LISTS)}
            for group in groups
            for audited in group.audits()
            for row in audited.results.rows
            if row.measure in audited.results.shown
        ],
        outcome=outcome,
        following="" if gravest is None else gravest.next,
    )


def _general(source: Source, general: Mapping[str, General]) -> General:
    """What is told of a source among several: of an audit, a study, another command, or nothing yet."""
    if source.study is not None:
        return study_general(source.study)
    if source.results is not None and not source.is_audit:
        return general[source.results.task]

    def page(source: Source, exhibits: Exhibits) -> Page:
        raise AssertionError("among several runs an audit has no page of its own")

    if source.results is None:
        return General((), page, lambda _: Table("", (), (), ()), missing=lambda source: [unfinished(source)])
    words, results, manifest = kind_of(source.results.task).words, source.results, source.manifest
    return General(
        words=tuple(words.method),
        page=page,
        table=lambda source: words.table(source.results),
        missing=lambda _: (
            missing_of(manifest.status, results.chains, results.failures, words.titles)[:-1]
            if manifest
            else ()
        ),
        warnings=lambda source: source.results.warnings,
        outcome=lambda _: [("", results.verdict)] if results.verdict is not None else [],
    )


def _groups(sources: Sequence[Source]) -> list[Group]:
    audited = [(source, source.manifest) for source in sources if source.manifest and source.is_audit]
    prompts = prompt_names(manifest.prompt for _, manifest in audited)
    audits = []
    for source, manifest in audited:
        named = {"prompt": prompts[manifest.prompt.sha256]} if manifest.prompt else {}
        audits.append(
            AuditedRun(source.run.path, {**named, **manifest.settings}, manifest.flags, source.results)
        )
    return groups_of(audits, {kind.name: kind for kind in kinds()})


def prompt_names(prompts: Iterable[AskedWith | None]) -> dict[str, str]:
    """What each prompt is called, by its SHA-256; where two have one name, with the beginning of that."""
    files = {prompt.sha256: prompt.file for prompt in prompts if prompt is not None}
    shared = Counter(files.values())
    return {sha256: file + f" {sha256[:8]}" * (shared[file] > 1) for sha256, file in files.items()}


def _warnings(groups: Sequence[Group], told: Sequence[tuple[Source, General]]) -> Iterator[str]:
    """What has to be known before figures are read: of tables that are apart, of single runs, of few queries."""
    for task, dataset in dict.fromkeys((group.task, group.dataset) for group in groups if group.lists):
        yield (
            f"Runs of {task} on {dataset} were asked about different lists: each table is of one of them, and figures "
            "of different tables do not compare."
        )
    few = dict[str, list[str]]()
    for source, of in told:
        yield from (f"{source.name}: {warning}" for warning in of.warnings(source))
        for warning in few_queries(source.results.design.queries) if source.is_audit else ():
            few.setdefault(capitalised(warning), []).append(source.name)
    audits = sum(source.is_audit for source, _ in told)
    for warning, names in few.items():
        yield f"{warning}." if len(names) == audits else f"{', '.join(names)}: {warning}."
    if any(len(group.rows) > DRAWN for group in groups):
        yield f"Figures show the first {DRAWN} models, tables all of them."


def _about(group: Group, between: str = " · ") -> str:
    return between.join([group.dataset, " and ".join(group.attributes)])


def _of_lists(title: str, group: Group) -> str:
    """The title with the lists that it is of, where those of other tables differ."""
    return " · ".join(filter(None, [title, group.lists]))


def _tables(group: Group) -> Iterator[Table]:
    """A matrix for every measure shown, and one of the conclusions."""
    columns, words = group.columns, kind_of(group.task).words
    several = len({attribute for attribute, _ in columns}) > 1
    header = tuple(f"{attribute}: {condition}" if several else condition for attribute, condition in columns)
    cells: dict[Path, dict[tuple[str, str, str], Row]] = {}
    titles: dict[tuple[str, str], str] = {}
    for audited in group.audits():
        results = audited.results
        of_all = [row for row in results.of_all() if row.key not in group.aside]
        shown = columns_of(results.shown, of_all)
        # by plain names: runs differ in how they control for order
        for (measure, side), heading in zip(
            shown, headings(shown, results, with_interval(results.rows)), strict=True
        ):
            titles.setdefault((plain_name(measure), side), heading)
        cells[audited.folder] = {
            (plain_name(row.measure), row.key, row.group): row
            for row in of_all
            if (row.measure, row.group) in shown
        }
    for (measure, side), heading in titles.items():
        rows = []
        for name, runs in group.rows.items():
            figures = [
                cells[runs[attribute].folder].get((measure, condition, side)) if attribute in runs else None
                for attribute, condition in columns
            ]
            if any(figures):
                every = {row.n for row in figures if row and row.n is not None}
                numbers = sorted(every - {0} or every)
                queries = "–".join(dict.fromkeys(map(str, numbers[:1] + numbers[-1:])))
                rows.append((name, *map(cell, figures), queries))
        title = f"{heading} · {_about(group)} · by model and {words.condition}"
        yield filled(Table(title, ("model", *header, "queries"), tuple(rows), ()))
    rows = []
    for name, runs in group.rows.items():
        # what the run's own table concludes, by condition
        said = {
            attribute: words.table(run.results).said
            for attribute, run in runs.items()
            if run.results.findings
        }
        rows.append((name, *(said.get(attribute, {}).get(condition, "") for attribute, condition in columns)))
    if any(text for _, *texts in rows for text in texts):
        title = f"Conclusions · {_about(group)} · {group.task}"
        yield filled(Table(title, ("model", *header), tuple(rows), ()))


def _fact(source: Source, of: General) -> str:
    """What was run, in a line."""
    results = source.results
    if results is None:
        return "no results yet"
    if not source.is_audit:
        return str(results.task)
    cost = f" · cost {text}" if (text := cost_of(source.manifest)) else ""
    return f"{of.table(source).title}{cost} · seed {results.design.seed} · {results.status}"
