"""Many runs on one page: models down, attributes and prompts (or relevance strata) across, as in the papers' tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from llmfair.audits.kind import kind_of, kinds
from llmfair.io.text import count
from llmfair.metrics.base import plain_name
from llmfair.report.groups import DRAWN, AuditedRun, Group, groups_of
from llmfair.report.page import (
    SIMULATED,
    Method,
    Page,
    Source,
    cost_of,
    formulas_of,
    lacking_of,
    limits_of,
    outcome_of,
    unfinished,
    warnings_of,
)
from llmfair.report.phrases import few_queries
from llmfair.report.table import Cell, Column, Place, Table, headings, places_of
from llmfair.results import Declared, Row, RunVerdict


def many_page(sources: Sequence[Source], measures: Declared, page_of: Callable[[Source], Page]) -> Page:
    """The page of several runs; those without results are named, and left out. `page_of`: that of what is no audit."""
    groups = _groups(sources)
    parts = [(of, None if of.is_audit else page_of(of)) for of in sources if of.results is not None]
    others = [(source, page) for source, page in parts if page is not None]
    unfinished_runs = [source for source in sources if source.results is None]
    missing = [unfinished(source) for source in unfinished_runs]
    attributes, facts, outcome = dict[str, None](), list[tuple[str, str]](), list[tuple[str, RunVerdict]]()
    for source, page in parts:
        name, results = source.name, source.results
        measured = results.runs if results.task == "score" else [results]
        attributes |= dict.fromkeys(of.attribute for of in measured)
        missing += [f"{name}: {line}" for line in (page.missing if page else lacking_of(source)[:-1])]
        for run, verdict in page.outcome if page else outcome_of(results):
            outcome.append((f"{name} {run}".strip(), verdict))
        facts.append((name, _fact(source)))
    facts += [(source.name, "no results yet") for source in unfinished_runs]
    paragraphs = [kind_of(group.task).words.method for group in groups] + [
        page.method.words for _, page in others
    ]
    gravity = [*dict.fromkeys(status for kind in kinds() for status in kind.words.statuses)]
    verdicts = [verdict for _, verdict in outcome if verdict.status in gravity]
    gravest = min(verdicts, key=lambda verdict: gravity.index(verdict.status), default=None)
    tables = [
        replace(table, title=_of_lists(table.title, group))
        for group in groups
        for table in (*_tables(group), *kind_of(group.task).words.group_tables(group))
    ]
    plots = [
        replace(plot, title=_of_lists(plot.title, group))
        for number, group in enumerate(groups)
        for plot in kind_of(group.task).words.group_plots(group, measures, number)
    ]
    named = [_of_lists(f"{group.task} on {_about(group, ', ')}", group) for group in groups]
    results_of_all = [source.results for source, _ in parts]
    return Page(
        kind="Report",
        title=", ".join(filter(None, [count(len(sources), "run"), " and ".join(attributes)])),
        subtitle=" · ".join([*named, *(source.name for source, _ in others)]),
        missing=missing,
        warnings=[
            *warnings_of(getattr(each, "model", "") for each in results_of_all),
            *_warnings(groups, parts),
        ],
        tables=[
            *tables,
            *(page.tables[0] for source, page in others if getattr(source.results, "rows", None)),
        ],
        plots=plots,
        method=Method(
            words=[*dict.fromkeys(chain(*paragraphs))],
            formulas=formulas_of(measures),
            facts=facts,
            prompt="",
            command="llmfair report " + " ".join(source.name for source in sources),
            limits=limits_of(results_of_all),
        ),
        outcome=outcome,
        following="" if gravest is None else gravest.next,
    )


def _groups(sources: Sequence[Source]) -> list[Group]:
    """The audits in tables; a prompt's name that two prompts have stands with the beginning of its SHA-256."""
    audited = [(source, source.manifest) for source in sources if source.manifest and source.is_audit]
    files = {of.prompt.sha256: of.prompt.file for _, of in audited if of.prompt}
    shared = Counter(files.values())
    audits = []
    for source, of in audited:
        prompt = of.prompt
        named = (
            {"prompt": prompt.file + f" {prompt.sha256[:8]}" * (shared[prompt.file] > 1)} if prompt else {}
        )
        audits.append(AuditedRun(source.run.path, {**named, **of.settings}, of.flags, source.results))
    return groups_of(audits, {kind.name: kind for kind in kinds()})


def _warnings(groups: Sequence[Group], parts: Sequence[tuple[Source, Page | None]]) -> Iterator[str]:
    """What has to be known before figures are read: of tables that are apart, of single runs, of few queries."""
    for task, dataset in dict.fromkeys((group.task, group.dataset) for group in groups if group.lists):
        yield (
            f"Runs of {task} on {dataset} were asked about different lists: each table is of one of them, and figures "
            "of different tables do not compare."
        )
    named: dict[str, list[str]] = {}
    for source, page in parts:
        warnings = page.warnings if page else source.results.warnings
        if source.is_audit:
            warnings = [*warnings, *few_queries(source.results.design.queries)]
        for warning in warnings:
            named.setdefault(warning, []).append(source.name)
    yield from (f"{', '.join(names)}: {warning}" for warning, names in named.items() if warning != SIMULATED)
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


def _fact(source: Source) -> str:
    """What was run, in a line."""
    results = source.results
    if not source.is_audit:
        return str(results.task)
    cost = f" · cost {text}" if (text := cost_of(source.manifest)) else ""
    title = kind_of(results.task).words.table(results).title
    return f"{title}{cost} · seed {results.design.seed} · {results.status}"
