"""Many runs on one page: models down, attributes and prompts (or relevance strata) across, as in the papers' tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from llmfair.audits.kind import kind_of, kinds
from llmfair.io.text import count
from llmfair.metrics.base import plain_name
from llmfair.report.groups import DRAWN, AuditedRun, Group, groups_of
from llmfair.report.page import (
    General,
    Method,
    Page,
    Source,
    cost_of,
    formulas_of,
    limits_of,
    unfinished,
    warnings_of,
)
from llmfair.report.phrases import capitalised, few_queries
from llmfair.report.table import Cell, Column, Place, Table, headings, places_of
from llmfair.results import Declared, Row
from llmfair.rundir import PromptRecord


def many_page(sources: Sequence[Source], measures: Declared, general: Callable[[Source], General]) -> Page:
    """The page of several runs; those without results are named, and left out."""
    groups = _groups(sources)
    parts = [(source, general(source)) for source in sources if source.results is not None]
    others = [(source, of) for source, of in parts if not source.is_audit]
    words = dict.fromkeys(
        [tuple(kind_of(group.task).words.method) for group in groups] + [tuple(of.words) for _, of in others]
    )
    results = [source.results for source, _ in parts]
    attributes = dict.fromkeys(
        run.attribute for of_run in results for run in (of_run.runs if of_run.task == "score" else [of_run])
    )
    outcome = [
        (f"{source.name} {name}".strip(), verdict)
        for source, of in parts
        for name, verdict in of.outcome(source)
    ]
    gravity = [*dict.fromkeys(status for kind in kinds() for status in kind.words.statuses)]
    verdicts = [verdict for _, verdict in outcome if verdict.status in gravity]
    gravest = min(verdicts, key=lambda verdict: gravity.index(verdict.status), default=None)
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
            *(unfinished(source) for source in sources if source.results is None),
            *(f"{source.name}: {line}" for source, of in parts for line in of.missing(source)),
        ],
        warnings=[*warnings_of(getattr(each, "model", "") for each in results), *_warnings(groups, parts)],
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
            words=[paragraph for paragraphs in words for paragraph in paragraphs],
            formulas=formulas_of(measures),
            facts=[
                *((source.name, _fact(source, of)) for source, of in parts),
                *((source.name, "no results yet") for source in sources if source.results is None),
            ],
            prompt="",
            command="llmfair report " + " ".join(source.name for source in sources),
            limits=limits_of(results),
        ),
        outcome=outcome,
        following="" if gravest is None else gravest.next,
    )


def _groups(sources: Sequence[Source]) -> list[Group]:
    audited = [(source, source.manifest) for source in sources if source.manifest and source.is_audit]
    prompts = prompt_names(manifest.prompt for _, manifest in audited)
    audits = []
    for source, of in audited:
        named = {"prompt": prompts[of.prompt.sha256]} if of.prompt else {}
        audits.append(AuditedRun(source.run.path, {**named, **of.settings}, of.flags, source.results))
    return groups_of(audits, {kind.name: kind for kind in kinds()})


def prompt_names(prompts: Iterable[PromptRecord | None]) -> dict[str, str]:
    """What each prompt is called, by its SHA-256; where two have one name, with the beginning of that."""
    files = {prompt.sha256: prompt.file for prompt in prompts if prompt is not None}
    shared = Counter(files.values())
    return {sha256: file + f" {sha256[:8]}" * (shared[file] > 1) for sha256, file in files.items()}


def _warnings(groups: Sequence[Group], parts: Sequence[tuple[Source, General]]) -> Iterator[str]:
    """What has to be known before figures are read: of tables that are apart, of single runs, of few queries."""
    for task, dataset in dict.fromkeys((group.task, group.dataset) for group in groups if group.lists):
        yield (
            f"Runs of {task} on {dataset} were asked about different lists: each table is of one of them, and figures "
            "of different tables do not compare."
        )
    few = dict[str, list[str]]()
    for source, of in parts:
        yield from (f"{source.name}: {warning}" for warning in of.warnings(source))
        for warning in few_queries(source.results.design.queries) if source.is_audit else ():
            few.setdefault(capitalised(warning), []).append(source.name)
    for warning, names in few.items():
        every = len(names) == sum(source.is_audit for source, _ in parts)
        yield f"{', '.join(names)}: {warning}." if not every else f"{warning}."
    if any(len(group.rows) > DRAWN for group in groups):
        yield f"Figures show the first {DRAWN} models, tables all of them."


def _about(group: Group, between: str = " · ") -> str:
    return between.join([group.dataset, " and ".join(group.attributes)])


def _of_lists(title: str, group: Group) -> str:
    """The title with the lists that it is of, where those of other tables differ."""
    return " · ".join(filter(None, [title, group.lists]))


Of = tuple[str, str, str]
"""A model, an attribute and a condition."""


def _tables(group: Group) -> Iterator[Table]:
    """A matrix for every measure shown, and one of the conclusions."""
    words, columns = kind_of(group.task).words, group.columns
    several = len({attribute for attribute, _ in columns}) > 1
    titles: dict[Place, str] = {}
    figures: dict[Place, dict[Of, Row]] = {}
    texts: dict[Of, str] = {}
    for name, runs in group.rows.items():
        for attribute, run in runs.items():
            results = run.results
            rows = [row for row in results.of_all() if (attribute, row.key) in columns]
            places = places_of(results.shown, {(row.measure, row.group): None for row in rows})
            intervals = {(row.measure, row.group) for row in rows if row.low is not None}
            # by plain names: runs differ in how they control for order
            for (measure, of), heading in zip(places, headings(places, results, intervals), strict=True):
                titles.setdefault((plain_name(measure), of), heading)
            for row in rows:
                if (row.measure, row.group) in places:
                    place = plain_name(row.measure), row.group
                    figures.setdefault(place, {})[name, attribute, row.key] = row
            if results.findings:  # what the run's own table concludes
                concluded = words.table(results).said.items()
                texts |= {(name, attribute, condition): text for condition, text in concluded}

    def cells(of: Mapping[Of, Cell]) -> list[Column[str]]:
        """The model, and what it has under each attribute and condition."""
        return [
            ("model", str),
            *(
                (
                    f"{attribute}: {condition}" if several else condition,
                    lambda name, attribute=attribute, condition=condition: of.get(
                        (name, attribute, condition)
                    ),
                )
                for attribute, condition in columns
            ),
        ]

    for place, heading in titles.items():
        numbers: dict[str, set[int]] = {}
        for (name, *_), row in figures[place].items():
            numbers.setdefault(name, set()).update(() if row.n is None else [row.n])
        # the fewest and the most of figures that are of any
        ordered = {name: sorted(of - {0} or of) for name, of in numbers.items()}
        queries = {name: "–".join(dict.fromkeys(map(str, of[:1] + of[-1:]))) for name, of in ordered.items()}
        title = f"{heading} · {_about(group)} · by model and {words.condition}"
        yield Table.of(title, [*cells(figures[place]), ("queries", queries.get)], numbers)
    if any(texts.values()):
        yield Table.of(f"Conclusions · {_about(group)} · {group.task}", cells(texts), group.rows)


def _fact(source: Source, of: General) -> str:
    """What was run, in a line."""
    results = source.results
    if not source.is_audit:
        return str(results.task)
    cost = f" · cost {text}" if (text := cost_of(source.manifest)) else ""
    return f"{of.table(source).title}{cost} · seed {results.design.seed} · {results.status}"
