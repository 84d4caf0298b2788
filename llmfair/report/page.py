"""A report's content before it is a page: what runs found, what stands behind it, how figures came about."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import isfunction
from itertools import chain, starmap
from math import inf
from pathlib import Path
from typing import Any

from llmfair import registry
from llmfair.audits.kind import Study, found_of, kind_of, kinds, results_of, study_of
from llmfair.errors import UsageError
from llmfair.io.files import read_document
from llmfair.io.text import count
from llmfair.metrics.base import plain_name
from llmfair.report.figures import COST, HEADLINES, ratio_of
from llmfair.report.groups import DRAWN, AuditedRun, Fact, Furthest, Group, Section, distance, groups_of
from llmfair.report.phrases import calls_of, capitalised, few_queries, span
from llmfair.report.plots import Plot
from llmfair.report.table import Cell, Column, Place, Table, figure_columns, headings, places_of
from llmfair.report.words import LIMITS, OF_GROUPS
from llmfair.results import (
    Declared,
    Evidence,
    Exhibits,
    ProbeCounts,
    Requirement,
    Row,
    RunVerdict,
    Words,
    query_figures,
)
from llmfair.rundir import RUNS_HINT, Manifest, RunDir

# How figures came about: in words, in formulas, in settings; and what they cannot say.


MARKUP = re.compile(r"(`+)(.*?)\1")
SIMULATED = "A simulated model: its figures test the audit procedure, no real model."
TITLES_ONLY = "The model saw titles only: it judged by these, and by what it remembers of the items."


@dataclass(frozen=True)
class Method:
    """What stands under Method.

    `words` in paragraphs, `formulas` as (name, label, what it is), `facts` as (name, value), the rest as it is.
    """

    words: Sequence[str]
    formulas: Sequence[tuple[str, str, str]]
    facts: Sequence[Fact]
    prompt: str
    command: str
    limits: Sequence[str]


def limits_of(runs: Sequence[Any]) -> list[str]:
    """What figures of these results cannot say; those of studies, adapters and rankings are of lists and pairs."""
    tasks = [results.task for results in runs]
    limits = [kind_of(task).words.limits if registry.has("audit", task) else LIMITS for task in tasks]
    several = any(getattr(getattr(results, "design", None), "contrasts", ()) for results in runs)
    of_all = dict.fromkeys(sentence for of_kind in limits for sentence in of_kind)
    return [OF_GROUPS if several and sentence == LIMITS[0] else sentence for sentence in of_all]


def cost_of(manifest: Manifest | None) -> str:
    """What all commands on a run have cost, and the calls of them that were made without prices."""
    if manifest is None or manifest.cost is None:
        return ""
    unpriced = sum(command.calls or 0 for command in manifest.invocations if command.cost is None)
    return f"{manifest.cost:,.4f}" + f", and {count(unpriced, 'call')} made without prices" * bool(unpriced)


def formulas_of(measures: Declared) -> list[tuple[str, str, str]]:
    """Name, label and definition of every measure, as it declares them: what it is, and where it is from."""
    formulas = []
    for name, measure in measures.items():
        of = measure.definition
        # functions of ours say in their first line what they give; a partial of another's would speak of itself
        says = of.says or (isfunction(of.values) and of.values.__doc__) or ""
        says = MARKUP.sub(r"\2", says.partition("\n")[0].strip())
        both = f"{says.rstrip('.')}. {capitalised(of.cite)}" if says and of.cite else says or of.cite
        formulas.append((name, measure.label, both))
    return formulas


def facts_of(results: Any, manifest: Manifest | None, of_kind: Sequence[Fact]) -> list[Fact]:
    """The settings of a run by name, those `of_kind` among those of every run; without those that it has not."""

    def of(name: str) -> Any:
        """A field of the results, or of their design, where they have it."""
        return getattr(results, name, getattr(getattr(results, "design", None), name, ""))

    versions = manifest.versions if manifest else of("versions") or {}
    settings, prompt = (manifest.used(), manifest.prompt) if manifest else ({}, None)
    facts: list[tuple[str, Any]] = [
        *((("run", of("run")),) if results.task != "score" else _measured(results)),
        ("data set", of("dataset")),
        ("attribute", _sided(of("attribute"), of("words"))),
        *((name, of(name)) for name in ("label", "model", "server")),
        ("reported as", ", ".join(manifest.models_reported) if manifest else ""),
        ("queries", of("queries")),
        *of_kind,
        ("cost", cost_of(manifest)),
        ("temperature", str(settings["temperature"]) if "temperature" in settings else ""),
        ("seed", str(of("seed"))),
        ("interval level", f"{100 * results.level:g} %"),
        ("band of conclusions", "{:g} to {:g}".format(*results.band) if of("findings") else ""),
        ("the model sees", manifest.sees if manifest else ""),
        ("prompt", f"{prompt.file}, SHA-256 {prompt.sha256}" if prompt else ""),
        ("lists, SHA-256", settings.get("lists_sha256")),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
    ]
    return [(name, str(value)) for name, value in facts if value]


def _sided(attribute: str, words: Any) -> str:
    """An attribute, with both sides where there are sides."""
    if not (words and words.protected):
        return attribute
    return f"{attribute}: {words.protected} (protected), {words.unprotected}"


def _measured(results: Any) -> list[tuple[str, Any]]:
    """Of rankings that exist: which ones, and what they were measured against, as the user named them."""
    named, runs = results.settings, results.runs
    return [
        ("runs", ", ".join(named.get("runs", ()))),
        ("data set", "" if "qrels" in named else ", ".join(dict.fromkeys(run.dataset for run in runs))),
        *((name, named.get(name, "")) for name in ("qrels", "groups", "attributes")),
        ("attribute", ", ".join(dict.fromkeys(_sided(run.attribute, run.words) for run in runs))),
        ("model", ", ".join(dict.fromkeys(run.model for run in runs))),
    ]


# Every query in a table: a row for each condition it was asked under, with its own values of the measures shown.


MOST = 2000
"""Rows of the table; a page of more opens slowly."""


def queries_table(
    folder: Path,
    condition: str,
    named: Callable[[Row], str | None],
    results: Any,
    measures: Sequence[str],
    exhibits: Exhibits,
) -> Table | None:
    """The figures of a folder's per_query.csv, furthest from parity first by the first ratio that queries have; None
    where they have none. Raises UsageError.

    `condition` says what varies between the rows of a query, `named` what it is called in a row, None where that is not
    shown; `measures` are columns in their order, under their own names or with what only whole runs take into account;
    those are left out of which a query has no figure, but a part of that of all.
    """
    parts = {name for name, measure in exhibits.measures.items() if measure.definition.of_all is True}
    wanted = dict.fromkeys(plain_name(measure) for measure in measures if measure not in parts)
    values: dict[tuple[str, str], dict[Place, float]] = {}
    for row in query_figures(folder):
        if row.measure in wanted and row.value is not None and (of := named(row)) is not None:
            values.setdefault((row.query_id, of), {})[row.measure, row.group] = row.value
    if not values:
        return None
    plainly = {plain_name(name): says for name, says in reversed([*exhibits.measures.items()])}
    by = ratio_of([*wanted], plainly)

    def far(key: tuple[str, str]) -> float:
        """What is undefined comes last."""
        return distance([values[key][by, ""]]) if by and (by, "") in values[key] else -inf

    texts = ((place, key, f"{value:.3f}") for key, of in values.items() for place, value in of.items())
    columns: list[Column[tuple[str, str]]] = [
        ("query", lambda key: exhibits.queries.get(key[0], key[0])),
        ("id", lambda key: key[0] if key[0] in exhibits.queries else ""),
        (condition, lambda key: key[1]),
        *figure_columns(results, [*wanted], texts),
    ]
    rows = sorted(values, key=far, reverse=True)
    left_out = [f"{len(rows) - MOST:,} more rows in per_query.csv"] * (len(rows) > MOST)
    title = f"By query and {condition}" + ", furthest from parity first" * (by is not None)
    return Table.of(title, columns, rows[:MOST], left_out)


# What a report is made of: a run folder, a study, measured runs, read back.


TRAINING = "split.json"
"""What a training leaves from its first moment on (`tuning/results.py`)."""


@dataclass(frozen=True)
class Source:
    """A folder with results: `manifest` None where no model was asked, `results` None where there are none yet.

    The results are of the class of their task.
    """

    run: RunDir
    manifest: Manifest | None
    results: Any

    @property
    def name(self) -> str:
        return self.run.path.resolve().name

    @property
    def is_audit(self) -> bool:
        return self.results is not None and registry.has("audit", self.results.task)

    @property
    def study(self) -> Study | None:
        """The study that these are results of, if they are of one."""
        return None if self.results is None else study_of(self.results.task)

    def finished(self) -> Source:
        """The same. Raises UsageError where there are no results yet."""
        if self.results is None:
            raise UsageError(f"{unfinished(self)}.", "the command that began the run completes it")
        return self


def read_source(run: RunDir) -> Source:
    """A run folder, also a half-finished one; a folder of a study, of `score`, of an adapter. Raises UsageError."""
    study = run.path / "study.json"
    if study.is_file():
        found = found_of(read_document(study, dict[str, Any], "the study's command writes it anew"), study)
        return Source(run, None, found)
    manifest = run.read_manifest() if run.manifest.is_file() else None
    if not run.results.is_file():
        if manifest is None and not (run.path / TRAINING).is_file():
            raise UsageError(
                f"{run.path} holds neither a run nor a study: no manifest.json, results.json or study.json.",
                RUNS_HINT,
            )
        return Source(run, manifest, None)
    source = Source(run, manifest, results_of(run, manifest))
    if source.is_audit and manifest is None:
        run.read_manifest()  # without which nobody knows what was asked
    return source


def unfinished(source: Source) -> str:
    """What a run without results lacks, in a sentence."""
    if source.manifest is None:
        status = "running" if source.run.is_locked() else "interrupted"
        return f"{source.name} has no results yet ({status})"
    summary, planned = source.run.summary(), source.manifest.planned_calls
    answers = f"{summary['answers']:,}" + (f" of {planned:,}" if planned else "") + " answers are on disk"
    return f"{source.name} has no results yet ({summary['status']}; {answers})"


def missing_of(
    status: str, chains: Mapping[str, ProbeCounts], failures: Mapping[str, int], titles: Mapping[str, str]
) -> list[str]:
    """What a half-finished run lacks, in sentences; none for a complete one. `status` is its manifest's."""
    lacking = [
        f"{titles.get(condition, condition)}: {of.asked - of.ranked:,} of {of.asked:,} have no answer yet"
        for condition, of in chains.items()
        if of.ranked < of.asked
    ]
    if failures:
        lacking.append("failed: " + ", ".join(f"{name} {n:,}" for name, n in failures.items()))
    if status != "complete" and not lacking:
        lacking.append("the last command on this run did not come to its end; figures are of the one before")
    return [*lacking, "the command that began the run completes it"] if lacking else []


TALLEST = 700
"""The height of a figure of the first screen at most, that of the pairs of six groups."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """All that a report shows; `outcome` are verdicts by run ("" of a single one)."""

    kind: str
    title: str
    subtitle: str
    tables: Sequence[Table]
    plots: Sequence[Plot]
    method: Method
    words: Words | None = None
    missing: Sequence[str] = ()
    warnings: Sequence[str] = ()
    furthest: Furthest | None = None
    queries: Table | None = None
    evidence: Sequence[Evidence] = ()
    outcome: Sequence[tuple[str, RunVerdict]] = ()
    following: str = ""
    sees: str = ""

    @property
    def first(self) -> Plot | None:
        """The figure of the first screen, where one has room there: headlines against their band, or what fairness
        costs."""
        fit = (plot for plot in self.plots if plot.height <= TALLEST)
        return next((plot for plot in fit if plot.name.startswith((HEADLINES, COST))), None)


def outcome_of(results: Any) -> list[tuple[str, RunVerdict]]:
    """The verdict of a single run."""
    return [] if results.verdict is None else [("", results.verdict)]


def lacking_of(source: Source) -> list[str]:
    """What an audit that is not through lacks, in sentences."""
    results, manifest = source.results, source.manifest
    assert manifest is not None
    titles = kind_of(results.task).words.titles
    return missing_of(manifest.status, results.chains, results.failures, titles)


def run_page(source: Source, exhibits: Exhibits) -> Page:
    """The page of an audit's run folder; `exhibits` is what the command found beside the folder."""
    folder, results, manifest = source.run.path, source.results, source.manifest
    words = kind_of(results.task).words
    section = words.section(results, folder, exhibits)
    names = {condition: words.titles.get(condition, condition) for condition in results.design.keys}
    calls = [("calls", calls_of(results))] * bool(results.design.calls)
    return plain_page(
        results, exhibits, replace(section, facts=[*section.facts, *calls]), words.title,
        f"{results.short_name} on {results.dataset}"
        + f", {results.attribute}" * results.compares_groups,
        manifest,
        missing=lacking_of(source),
        warnings=warnings_of([results.model], results.requirements, results.warnings),
        queries=queries_table(
            folder, words.condition, lambda row: names.get(row.key(results.design.contrasts)), results, results.shown,
            exhibits
        ),
        evidence=exhibits.evidence, sees=results.sees,
    )  # fmt: skip


def study_page(source: Source, exhibits: Exhibits) -> Page:
    results = source.results
    assert source.study is not None
    words, title, plots = source.study.words, "no results yet", list[Plot]()
    if results.rows:
        title = f"{results.model} on {results.dataset}, {results.attribute}"
        plots = [*words.plots(results, exhibits.measures)]
    return plain_page(
        results, exhibits, Section(words.table(results), plots, words=words.method),
        f"{source.study.name.capitalize()} study", title, missing=results.missing,
        warnings=warnings_of([results.model] * bool(results.rows)),
    )  # fmt: skip


def plain_page(
    results: Any,
    exhibits: Exhibits,
    section: Section,
    kind: str,
    title: str,
    manifest: Manifest | None = None,
    **more: Any,
) -> Page:
    """A page of figures, with `more` of its fields; without a manifest no one run folder stands behind them."""
    limits = limits_of([results])
    # a ranker that asks nothing reads titles and texts, whatever a model would be shown
    ranks = registry.has("ranker", getattr(results, "model", "").partition(":")[0])
    if manifest is not None and manifest.used().get("input") == "title" and not ranks:
        limits.append(TITLES_ONLY)
    method = Method(
        words=section.words,
        formulas=formulas_of(exhibits.measures),
        facts=facts_of(results, manifest, section.facts),
        prompt=manifest.prompt.text if manifest and manifest.prompt else "",
        command=exhibits.command or "",
        limits=limits,
    )
    parts: dict[str, Any] = {"words": getattr(results, "words", None), "outcome": outcome_of(results)}
    return Page(
        kind=kind, title=title, subtitle=section.table.title, method=method, plots=section.plots,
        tables=[*filter(None, (section.table, section.table.below)), *section.more], furthest=section.furthest,
        following="" if results.verdict is None else results.verdict.next, **parts | more,
    )  # fmt: skip


def warnings_of(
    models: Iterable[str], requirements: Iterable[Requirement] = (), warnings: Iterable[str] = ()
) -> list[str]:
    """What has to be known before any figure is read: simulated models, warnings, gates that do not hold."""
    simulated = any(model.startswith("fake:") for model in models)
    unmet = dict.fromkeys(entry.reason for entry in requirements if not entry.holds)
    return [
        *[SIMULATED] * simulated,
        *(f"{capitalised(warning)}." for warning in warnings),
        *(f"Requirement not met: {reason}" for reason in unmet),
    ]


# Many runs on one page: models down, attributes and prompts (or relevance strata) across, as in the papers' tables


def many_page(sources: Sequence[Source], measures: Declared, page_of: Callable[[Source], Page]) -> Page:
    """The page of several runs; those without results are named, and left out. `page_of`: that of what is no audit."""
    groups = _groups(sources)
    parts = [(of, None if of.is_audit else page_of(of)) for of in sources if of.results is not None]
    others = [(source, page) for source, page in parts if page is not None]
    unfinished_runs = [source for source in sources if source.results is None]
    missing = [unfinished(source) for source in unfinished_runs]
    attributes, facts, outcome = dict[str, None](), list[Fact](), list[tuple[str, RunVerdict]]()
    for source, page in parts:
        name, results = source.name, source.results
        measured = results.runs if results.task == "score" else [results]
        attributes |= dict.fromkeys(of.attribute for of in measured)
        missing += [f"{name}: {line}" for line in (page.missing if page else lacking_of(source)[:-1])]
        for run, verdict in page.outcome if page else outcome_of(results):
            outcome.append((f"{name} {run}".strip(), verdict))
        fact = str(results.task)
        if source.is_audit:
            cost = f" · cost {text}" if (text := cost_of(source.manifest)) else ""
            title = kind_of(results.task).words.table(results).title
            fact = f"{title}{cost} · seed {results.design.seed} · {results.status}"
        facts.append((name, fact))
    facts += [(source.name, "no results yet") for source in unfinished_runs]
    paragraphs = [kind_of(group.task).words.method for group in groups] + [
        page.method.words for _, page in others
    ]
    gravity = [*dict.fromkeys(status for kind in kinds() for status in kind.words.statuses)]
    verdicts = [verdict for _, verdict in outcome if verdict.status in gravity]
    gravest = min(verdicts, key=lambda verdict: gravity.index(verdict.status), default=None)
    tables, plots, named = list[Table](), list[Plot](), list[str]()
    for number, group in enumerate(groups):
        words, ending = kind_of(group.task).words, f" · {group.lists}" * bool(group.lists)
        of_group = (*_tables(group), *words.group_tables(group))
        tables += [replace(table, title=table.title + ending) for table in of_group]
        of_it = words.group_plots(group, measures, number)
        plots += [replace(plot, title=plot.title + ending) for plot in of_it]
        named.append(f"{group.task} on {_about(group, ', ')}{ending}")
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
    return groups_of(audits)


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
            contrasts = results.design.contrasts
            rows = [row for row in results.of_all() if (attribute, row.key(contrasts)) in columns]
            places = places_of(results.shown, {(row.measure, row.group): None for row in rows})
            intervals = {(row.measure, row.group) for row in rows if row.low is not None}
            # by plain names: runs differ in how they control for order
            for (measure, of), heading in zip(places, headings(places, results, intervals), strict=True):
                titles.setdefault((plain_name(measure), of), heading)
            for row in rows:
                if (row.measure, row.group) in places:
                    place = plain_name(row.measure), row.group
                    figures.setdefault(place, {})[name, attribute, row.key(contrasts)] = row
            if results.findings:  # what the run's own table concludes
                concluded = words.table(results).said.items()
                texts |= {(name, attribute, condition): text for condition, text in concluded}

    def cells(of: Mapping[Of, Cell]) -> list[Column[str]]:
        """The model, and what it has under each attribute and condition."""

        def column(attribute: str, condition: str) -> Column[str]:
            heading = f"{attribute}: " * several + condition
            return heading, lambda name: of.get((name, attribute, condition))

        return [("model", str), *starmap(column, columns)]

    for place, heading in titles.items():
        numbers: dict[str, list[int]] = {}
        for (name, *_), row in figures[place].items():
            numbers.setdefault(name, []).extend(filter(None, [row.n]))
        queries = {name: span(min(of), max(of)) for name, of in numbers.items() if of}
        title = f"{heading} · {_about(group)} · by model and {words.condition}"
        yield Table.of(title, [*cells(figures[place]), ("queries", queries.get)], numbers)
    if any(texts.values()):
        yield Table.of(f"Conclusions · {_about(group)} · {group.task}", cells(texts), group.rows)
