"""Many runs on one page: models down, attributes and prompts (or kinds of pairs) across, as in the papers' tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llmfair.audits.listwise.table import listwise_table
from llmfair.audits.pairwise.table import pairwise_table
from llmfair.report.adapter import adapter_warnings
from llmfair.report.figures import plain
from llmfair.report.finetune import finetune_table
from llmfair.report.groups import Group, groups_of
from llmfair.report.matrix_plots import DRAWN, group_plots
from llmfair.report.method import LIMITS, SIMULATED, WORDS, Method, cost_of, formulas_of, lopsided
from llmfair.report.page import Page, missing_settings
from llmfair.report.score import lacking, score_table
from llmfair.report.source import Source, missing_of, unfinished
from llmfair.report.study import study_table
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
from llmfair.results import Row
from llmfair.results import plain as as_json


def many_page(sources: Sequence[Source], measures: Mapping[str, Mapping[str, Any]]) -> Page:
    """The page of several runs; those without results are named, and left out."""
    groups = groups_of(sources)
    others = [source for source in sources if source.results is not None and not source.is_audit]
    tasks = list(dict.fromkeys([*(group.task for group in groups), *(_task(one) for one in others)]))
    attributes = dict.fromkeys(name for source in sources for name in _attributes(source))
    simulated = any(str(one.results.get("model", "")).startswith("fake:") for one in sources if one.results)
    return Page(
        kind="Report",
        title=", ".join([count(len(sources), "run"), *([" and ".join(attributes)] if attributes else [])]),
        subtitle=" · ".join(
            [
                *(f"{group.task} on {group.dataset}, {' and '.join(group.attributes)}" for group in groups),
                *(o.name for o in others),
            ]
        ),
        words={},
        missing=missing_runs(sources),
        warnings=[
            *["Simulated models answer as planted: they test the instrument, not the world."] * simulated,
            *_doubts(sources),
            *[f"Figures show the first {DRAWN} models, tables all of them."]
            * any(len(g.rows) > DRAWN for g in groups),
        ],
        verdicts=(),
        tables=many_tables(sources),
        plots=[plot for number, group in enumerate(groups) for plot in group_plots(group, measures, number)],
        furthest=None,
        evidence=(),
        method=Method(
            words=[
                *(paragraph for task in tasks for paragraph in WORDS[task]),
                *lopsided(one.results for one in sources if one.results),
            ],
            formulas=formulas_of(measures),
            facts=[(source.name, _about(source)) for source in sources],
            prompt="",
            command="llmfair report " + " ".join(source.name for source in sources),
            limits=[*LIMITS, *[SIMULATED] * simulated],
        ),
        rows=[row for group in groups for source in group.sources() for row in _shown_rows(source)],
    )


def _attributes(source: Source) -> list[str]:
    """What a run was about; several of measured runs."""
    results = source.results or {}
    return [run["attribute"] for run in results.get("runs", [results]) if "attribute" in run]


def _doubts(sources: Sequence[Source]) -> Iterator[str]:
    """What has to be known of single runs before their figures are read, and where there are few queries."""
    for source in sources:
        results = source.results or {}
        doubts = (
            adapter_warnings(results) if results.get("task") == "finetune-lora" else results.get("doubts", ())
        )
        yield from (f"{source.name}: {doubt}" for doubt in doubts)
    audits, few = [source for source in sources if source.is_audit], dict[str, list[str]]()
    for source in audits:
        for warning in few_queries(source.audit.design.queries):
            few.setdefault(capitalised(warning), []).append(source.name)
    for warning, names in few.items():
        yield f"{warning}." if len(names) == len(audits) else f"{', '.join(names)}: {warning}."


def many_tables(sources: Sequence[Source]) -> list[Table]:
    """A matrix for every measure shown, and one of the conclusions; studies and measured runs as they are."""
    tables = [table for group in groups_of(sources) for table in _tables(group)]
    return tables + [
        _other_table(one) for one in sources if not one.is_audit and (one.results or {}).get("rows")
    ]


def _task(source: Source) -> str:
    return "" if source.results is None else str(source.results["task"])


def _other_table(source: Source) -> Table:
    """What is no audit, in its own table."""
    if source.results is not None and _task(source) == "finetune-lora":
        return finetune_table(source.results)
    return score_table(source.found) if _task(source) == "score" else study_table(source.found)


def _own_table(source: Source) -> Table:
    """An audit in its own table."""
    return listwise_table(source.found) if source.audit.task == "listwise" else pairwise_table(source.found)


def missing_runs(sources: Sequence[Source]) -> list[str]:
    """What half-finished runs lack, run by run."""
    said = []
    for source in sources:
        if source.results is None:
            said.append(unfinished(source))
        elif source.is_audit:
            said += [
                f"{source.name}: {line}" for line in missing_of(source.manifest["status"], source.audit)[:-1]
            ]
        elif _task(source) == "study windows":
            said += [f"{source.name}: {line}" for line in missing_settings(source.found)]
        elif _task(source) == "score":
            said += [f"{source.name}: {line}" for line in lacking(source.found)]
    return said


def _tables(group: Group) -> Iterator[Table]:
    columns, about = group.columns, " · ".join([group.dataset, " and ".join(group.attributes)])
    several = len({attribute for attribute, _ in columns}) > 1
    header = tuple(f"{attribute}: {arm}" if several else arm for attribute, arm in columns)
    named = "prompt" if group.task == "listwise" else "pairs"
    cells = {source.run.path: _own_cells(source) for source in group.sources()}
    for measure, side in dict.fromkeys((key[0], key[2]) for of_it in cells.values() for key in of_it):
        rows = []
        for name, runs in group.rows.items():
            found = [
                cells[runs[attribute].run.path].get((measure, arm, side)) if attribute in runs else None
                for attribute, arm in columns
            ]
            if any(found):
                rows.append((name, *map(cell, found), _queries(found)))
        title = " · ".join([_heading(measure, side, group), about, f"by model and {named}"])
        yield filled(Table(title, ("model", *header, "queries"), tuple(rows), ()))
    concluded = {name: {a: _conclusions(s) for a, s in runs.items()} for name, runs in group.rows.items()}
    if any(text for by in concluded.values() for said in by.values() for text in said.values()):
        told = tuple(
            (name, *(by.get(attribute, {}).get(arm, "") for attribute, arm in columns))
            for name, by in concluded.items()
        )
        yield filled(Table(f"Conclusions · {about} · {group.task}", ("model", *header), told, ()))


def _own_cells(source: Source) -> dict[tuple[str, str, str], Row]:
    """Rows of the measures shown, by their plain name, variant and group: runs differ in how they control for order."""
    results = source.audit
    rows = [
        row for row in results.of_all() if row.variant in results.design.arms and row.variant != "control"
    ]
    return {
        (plain(measure), row.variant, group): row
        for measure, group in columns_of(results.shown, rows)
        for row in rows
        if (row.measure, row.group) == (measure, group)
    }


def _heading(measure: str, side: str, group: Group) -> str:
    """The measure, and its group, as the runs' own tables name them, with the level of the intervals."""
    for source in group.sources():
        results = source.audit
        for own in results.shown:
            if plain(own) == measure:
                return headings([(own, side)], results, with_interval(results.rows))[0]
    return measure


def _queries(found: Sequence[Row | None]) -> str:
    numbers = sorted({row.n for row in found if row and row.n is not None})
    return "" if not numbers else f"{numbers[0]}" + (f"–{numbers[-1]}" if len(numbers) > 1 else "")


def _conclusions(source: Source) -> dict[str, str]:
    """What the run's own table says at the end of each row."""
    results = source.audit
    return {row[0]: row[-1] for row in _own_table(source).rows} if results.findings else {}


def _shown_rows(source: Source) -> list[Mapping[str, Any]]:
    results = source.audit
    return [as_json(row) for row in results.rows if row.measure in results.shown]


def _about(source: Source) -> str:
    if source.results is None:
        return "no results yet"
    if source.is_audit:
        table, results = _own_table(source), source.audit
        cost = f" · cost {told}" if (told := cost_of(source.manifest)) else ""
        return f"{table.title}{cost} · seed {results.design.seed} · {results.status}"
    return _task(source)
