"""Many runs on one page: models down, attributes and prompts (or relevance strata) across, as in the papers' tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from llmfair.audits.kind import kind_of, kinds
from llmfair.io.files import plain as as_json
from llmfair.manifest import AskedWith, Manifest
from llmfair.metrics.base import plain_name
from llmfair.report.exhibits import Declared
from llmfair.report.groups import DRAWN, LISTS, AuditedRun, Group, groups_of
from llmfair.report.method import SIMULATED, Method, cost_of, formulas_of, limits_of, lopsided
from llmfair.report.page import General, Page, Source, missing_of, unfinished
from llmfair.report.tables import (
    Table,
    capitalised,
    cell,
    columns_of,
    count,
    few_queries,
    filled,
    headings,
    with_interval,
)
from llmfair.results import Results, Row, RunVerdict


def many_page(sources: Sequence[Source], measures: Declared, general: Mapping[str, General]) -> Page:
    """The page of several runs; those without results are named, and left out. `general` by task."""
    groups = _groups(sources)
    others = [source for source in sources if source.results is not None and not source.is_audit]
    words = dict.fromkeys(
        [*(tuple(kind_of(group.task).words()) for group in groups), *(_words(one, general) for one in others)]
    )
    attributes = dict.fromkeys(name for source in sources for name in _attributes(source))
    simulated = any(getattr(one.results, "model", "").startswith("fake:") for one in sources)
    outcome = list(_outcome(sources, general))
    return Page(
        kind="Report",
        title=", ".join([count(len(sources), "run"), *([" and ".join(attributes)] if attributes else [])]),
        subtitle=" · ".join(
            [
                *(_of_lists(f"{group.task} on {_about(group, ', ')}", group) for group in groups),
                *(o.name for o in others),
            ]
        ),
        words={},
        missing=_missing(sources, general),
        warnings=[
            *[
                "Simulated models with injected preferences: their figures test the audit procedure, no real model."
            ]
            * simulated,
            *_several_lists(groups),
            *_warnings(sources, general),
            *[f"Figures show the first {DRAWN} models, tables all of them."]
            * any(len(g.rows) > DRAWN for g in groups),
        ],
        verdicts=(),
        tables=_all_tables(groups, sources, general),
        plots=[
            replace(plot, title=_of_lists(plot.title, group))
            for number, group in enumerate(groups)
            for plot in kind_of(group.task).group_plots(group, measures, number)
        ],
        furthest=None,
        queries=None,
        evidence=(),
        method=Method(
            words=[
                *(paragraph for paragraphs in words for paragraph in paragraphs),
                *lopsided(one.results for one in sources if one.results),
            ],
            formulas=formulas_of(measures),
            facts=[(source.name, _told(source)) for source in sources],
            prompt="",
            command="llmfair report " + " ".join(source.name for source in sources),
            limits=[*limits_of(one.results for one in sources if one.results), *[SIMULATED] * simulated],
        ),
        rows=[row for group in groups for audited in group.audits() for row in _shown_rows(audited)],
        outcome=outcome,
        following=_following([verdict for _, verdict in outcome]),
    )


def _following(verdicts: Sequence[RunVerdict]) -> str:
    """The next step of the gravest verdict, the first of several."""
    gravity = [*dict.fromkeys(status for kind in kinds() for status in kind.statuses)]
    known = [verdict for verdict in verdicts if verdict.status in gravity]
    return min(known, key=lambda verdict: gravity.index(verdict.status)).next if known else ""


def _outcome(sources: Sequence[Source], general: Mapping[str, General]) -> Iterator[tuple[str, RunVerdict]]:
    """The verdict of every run, by its name; of measured runs those of each."""
    for source in sources:
        if (source.is_audit or source.study is not None) and source.results.verdict is not None:
            yield source.name, source.results.verdict
        elif _task(source) in general:
            for name, verdict in general[_task(source)].outcome(source):
                yield f"{source.name} {name}".strip(), verdict


def _groups(sources: Sequence[Source]) -> list[Group]:
    audited = [(source, source.manifest) for source in sources if source.manifest and source.is_audit]
    prompts = prompt_names(manifest.prompt for _, manifest in audited)
    audits = [
        AuditedRun(source.run.path, _with_prompt(manifest, prompts), manifest.flags, source.results)
        for source, manifest in audited
    ]
    return groups_of(audits, {kind.name: kind for kind in kinds()})


def _with_prompt(manifest: Manifest, names: Mapping[str, str]) -> dict[str, Any]:
    """The settings of a run, with the name of its prompt where it has one."""
    return {**({"prompt": names[manifest.prompt.sha256]} if manifest.prompt else {}), **manifest.settings}


def prompt_names(prompts: Iterable[AskedWith | None]) -> dict[str, str]:
    """What each prompt is called, by its SHA-256; where two have one name, with the beginning of that."""
    files = {prompt.sha256: prompt.file for prompt in prompts if prompt is not None}
    shared = Counter(files.values())
    return {sha256: file + f" {sha256[:8]}" * (shared[file] > 1) for sha256, file in files.items()}


def _words(source: Source, general: Mapping[str, General]) -> tuple[str, ...]:
    """The method's paragraphs of what is no audit."""
    return tuple(general[_task(source)].words if source.study is None else source.study.words)


def _attributes(source: Source) -> list[str]:
    """What a run was about; several of measured runs."""
    if source.results is None:
        return []
    runs = source.results.runs if _task(source) == "score" else [source.results]
    return [run.attribute for run in runs]


def _warnings(sources: Sequence[Source], general: Mapping[str, General]) -> Iterator[str]:
    """What has to be known of single runs before their figures are read, and where there are few queries."""
    for source in sources:
        warnings = getattr(source.results, "warnings", ())
        if _task(source) in general:
            warnings = general[_task(source)].warnings(source)
        yield from (f"{source.name}: {warning}" for warning in warnings)
    audits, few = [source for source in sources if source.is_audit], dict[str, list[str]]()
    for source in audits:
        for warning in few_queries(source.results.design.queries):
            few.setdefault(capitalised(warning), []).append(source.name)
    for warning, names in few.items():
        yield f"{warning}." if len(names) == len(audits) else f"{', '.join(names)}: {warning}."


def _about(group: Group, between: str = " · ") -> str:
    return between.join([group.dataset, " and ".join(group.attributes)])


def _of_lists(title: str, group: Group) -> str:
    """The title with the lists that it is of, where those of other tables differ."""
    return " · ".join(filter(None, [title, group.lists]))


def _several_lists(groups: Sequence[Group]) -> Iterator[str]:
    """Of which runs the tables are apart, and why."""
    for task, dataset in dict.fromkeys((group.task, group.dataset) for group in groups if group.lists):
        yield (
            f"Runs of {task} on {dataset} were asked about different lists: each table is of one of them, and figures "
            "of different tables do not compare."
        )


def _all_tables(
    groups: Sequence[Group], sources: Sequence[Source], general: Mapping[str, General]
) -> list[Table]:
    """A matrix for every measure shown, and one of the conclusions; studies and measured runs as they are."""
    tables = [
        replace(table, title=_of_lists(table.title, group))
        for group in groups
        for table in (*_tables(group), *kind_of(group.task).group_tables(group))
    ]
    return tables + [
        _other_table(one, general)
        for one in sources
        if not one.is_audit and getattr(one.results, "rows", None)
    ]


def _task(source: Source) -> str:
    return "" if source.results is None else str(source.results.task)


def _other_table(source: Source, general: Mapping[str, General]) -> Table:
    """What is no audit, in its own table."""
    if source.study is not None:
        return source.study.table(source.results)
    return general[_task(source)].table(source)


def _own_table(results: Results) -> Table:
    """An audit in its own table."""
    return kind_of(results.task).table(results)


def _missing(sources: Sequence[Source], general: Mapping[str, General]) -> list[str]:
    """What half-finished runs lack, run by run."""
    said = []
    for source in sources:
        if source.results is None:
            said.append(unfinished(source))
        elif source.manifest is not None:
            said += [
                f"{source.name}: {line}"
                for line in missing_of(
                    source.manifest.status, source.results, kind_of(source.results.task).titles
                )[:-1]
            ]
        elif source.study is not None:
            said += [f"{source.name}: {line}" for line in source.results.missing]
        else:
            said += [f"{source.name}: {line}" for line in general[_task(source)].missing(source)]
    return said


def _tables(group: Group) -> Iterator[Table]:
    columns, about = group.columns, _about(group)
    several = len({attribute for attribute, _ in columns}) > 1
    header = tuple(f"{attribute}: {condition}" if several else condition for attribute, condition in columns)
    named = kind_of(group.task).condition
    cells = {audited.folder: _own_cells(audited.results, group.aside) for audited in group.audits()}
    for measure, side in dict.fromkeys((key[0], key[2]) for of_it in cells.values() for key in of_it):
        rows = []
        for name, runs in group.rows.items():
            found = [
                cells[runs[attribute].folder].get((measure, condition, side)) if attribute in runs else None
                for attribute, condition in columns
            ]
            if any(found):
                rows.append((name, *map(cell, found), _queries(found)))
        title = " · ".join([_heading(measure, side, group), about, f"by model and {named}"])
        yield filled(Table(title, ("model", *header, "queries"), tuple(rows), ()))
    concluded = {
        name: {a: _conclusions(one.results) for a, one in runs.items()} for name, runs in group.rows.items()
    }
    if any(text for by in concluded.values() for said in by.values() for text in said.values()):
        told = tuple(
            (name, *(by.get(attribute, {}).get(condition, "") for attribute, condition in columns))
            for name, by in concluded.items()
        )
        yield filled(Table(f"Conclusions · {about} · {group.task}", ("model", *header), told, ()))


def _own_cells(results: Results, aside: Collection[str]) -> dict[tuple[str, str, str], Row]:
    """Rows of the measures shown, by plain name, condition and group: runs differ in how they control for order."""
    asked = [condition for condition in results.design.conditions if condition not in aside]
    rows = [row for row in results.of_all() if row.condition in asked]
    return {
        (plain_name(measure), row.condition, group): row
        for measure, group in columns_of(results.shown, rows)
        for row in rows
        if (row.measure, row.group) == (measure, group)
    }


def _heading(measure: str, side: str, group: Group) -> str:
    """The measure, and its group, as the runs' own tables name them, with the level of the intervals."""
    for audited in group.audits():
        results = audited.results
        for own in results.shown:
            if plain_name(own) == measure:
                return headings([(own, side)], results, with_interval(results.rows))[0]
    return measure


def _queries(found: Sequence[Row | None]) -> str:
    every = {row.n for row in found if row and row.n is not None}
    numbers = sorted(every - {0} or every)
    return "" if not numbers else f"{numbers[0]}" + (f"–{numbers[-1]}" if len(numbers) > 1 else "")


def _conclusions(results: Results) -> Mapping[str, str]:
    """What the run's own table concludes, by condition."""
    return _own_table(results).said if results.findings else {}


def _shown_rows(audited: AuditedRun) -> list[Mapping[str, Any]]:
    """With the lists that they are of: figures of others do not compare."""
    results, lists = audited.results, {LISTS: audited.settings.get(LISTS)}
    return [as_json(row) | lists for row in results.rows if row.measure in results.shown]


def _told(source: Source) -> str:
    if source.results is None:
        return "no results yet"
    if source.is_audit:
        table, results = _own_table(source.results), source.results
        cost = f" · cost {told}" if (told := cost_of(source.manifest)) else ""
        return f"{table.title}{cost} · seed {results.design.seed} · {results.status}"
    return _task(source)
