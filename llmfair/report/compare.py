"""Runs side by side for people: a table of changes, and a sentence for each that matters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from math import log

from msgspec.structs import asdict

from llmfair.audits.comparing import unlike
from llmfair.audits.documents import ChangeRow, Comparison
from llmfair.audits.kind import kind_of
from llmfair.audits.runs.exhibits import declared
from llmfair.audits.scoring import ScoredRun, ScoreResults
from llmfair.io.text import count, p_text
from llmfair.metrics.base import POOLED, plain_name
from llmfair.metrics.names import in_words
from llmfair.nouns import Key, Side, condition_of, is_of
from llmfair.report import figures
from llmfair.report.groups import Section
from llmfair.report.page import Page, Source, missing_of, plain_page, queries_table, warnings_of
from llmfair.report.phrases import about, few_queries, reasons
from llmfair.report.plots import Plot, Point, utility_and_ratio
from llmfair.report.table import Column, Table, figure_columns, lead_of
from llmfair.report.verdict import CLOSER, NO_DIFFERENCE, NOT_ASSESSABLE, change_of, crosses, way_of, why
from llmfair.results import MOST_CONTRASTS, Declared, Exhibits, Figure, Row, RunVerdict, Words
from llmfair.rundir import ONE_OF_SEVERAL
from llmfair.stats.intervals import OTHER_DESIGN, OTHER_REACH

COLUMNS = (
    "run", "condition", "stratum", "measure", "scale", "base", "other", "change", "low", "high", "n", "p", "p_adjusted",
    "base_conclusion", "other_conclusion", "reason",
)  # fmt: skip


def compare_table(compared: Comparison) -> Table:
    """One row a measure and condition; below them what the changes come to."""
    base, *others = compared.runs
    words, several = kind_of(compared.task).words, len(others) > 1
    uneven = any(row.n != compared.queries for row in compared.rows)

    def figure(value: float | None) -> str:
        return "undefined" if value is None else f"{value:.3f}"

    def change(row: ChangeRow) -> str:
        if row.change is None:
            return f"undefined ({in_words(row.reason or 'too_few_queries')})"
        text = f"× {row.change:.3f}" if row.scale == "log" else f"{row.change:+z.3f}"
        interval = "" if row.low is None else f" [{row.low:z.3f}, {row.high:z.3f}]"
        if row.reason in (OTHER_REACH, OTHER_DESIGN):  # so that it says nothing of parity
            interval = f" ({in_words(row.reason)})"
        return text.replace("+0.000", "0.000") + interval

    same = {run.name for run in compared.runs if run.same_answers}

    def conclusion(row: ChangeRow) -> str | None:
        if not row.headline or row.run in same or row.reason in (OTHER_REACH, OTHER_DESIGN):
            return None
        if row.better == "parity":
            way, why_not = change_of(row, compared)
            return f"{way}: {why_not}" if way == NOT_ASSESSABLE else way
        if row.change is None or row.base is None or row.other is None:
            return f"{NOT_ASSESSABLE}: {why(row)}"
        if row.p_adjusted is None or row.p_adjusted >= 1 - compared.level:
            return NO_DIFFERENCE
        return "higher" if row.other > row.base else "lower"

    columns: list[Column[ChangeRow]] = [
        ("measure", _label),
        (words.condition, lambda row: row.of),
        ("run", lambda row: row.run * several),
        (f"base {base.name}", lambda row: figure(row.base)),
        ("other" if several else others[0].name, lambda row: figure(row.other)),
        (f"change [{compared.level * 100:g} %]", change),
        ("queries", lambda row: row.n if uneven else None),
        ("p (Holm)", lambda row: None if row.p_adjusted is None else p_text(row.p_adjusted)),
        ("conclusion", conclusion),
    ]
    protected, queries = compared.words.protected, count(compared.queries, "query", "queries")
    title = (f"Compare {compared.task}", compared.dataset, about(compared.attribute, protected), queries)
    verdicts = [("", verdict) for _, verdict in words.compared(compared)]
    lead = lead_of(verdicts, "" if compared.verdict is None else compared.verdict.next)
    return Table.of(title, columns, compared.rows, _notes(compared), lead=lead)


def _label(row: ChangeRow) -> str:
    measure = declared([row.measure]).get(row.measure)
    return measure.label if measure and measure.definition.worded else plain_name(row.measure)


def _notes(compared: Comparison) -> Iterator[str]:
    """What else differs between runs, so that a change may come of it; what weakens one; how changes were made."""
    base, *others = compared.runs
    kind = kind_of(compared.task)
    for run in others:
        if run.same_answers:
            yield (
                f"{base.name} and {run.name} hold the same answers: they differ in how these were measured, and "
                "nothing is tested"
            )
        if run.differs:
            changed = (f"{key}: {' → '.join(unlike(key, *values))}" for key, values in run.differs.items())
            yield f"{run.name} also differs in {'; '.join(changed)}"
    headlines = {(row.run, row.of): row for row in compared.rows if row.better == "parity" and row.headline}
    for row in compared.rows:
        measure = declared([row.measure]).get(row.measure)
        if measure and measure.definition.shows == "order dependence" and row.low and row.low > 0:
            of = f"{_label(row)}, {row.of}" + f", {row.run}" * (len(others) > 1)
            bought = _bought(headlines.get((row.run, row.of)), compared)
            yield f"{of}: more answers now depend on the order{bought}"
    yield kind.measure.how_changed or (
        "base and other: each run's own figures; change: their quotient (×), else the mean over the queries of both; "
        f"intervals and sign flips (seed {compared.seed}) are paired by query"
    )
    if any(POOLED in row.measure for row in compared.rows):
        yield "every pair weighs the same, not every query (--weights pooled)"
    if compared.family:
        yield f"p adjusted (Holm) over {count(compared.family, 'headline comparison')}"
    yield from kind.words.compared_notes(compared.runs)
    yield from few_queries(compared.queries)


def _bought(odds: ChangeRow | None, compared: Comparison) -> str:
    """The warning where the odds came closer to parity, or can no longer be told, while flips rose."""
    if odds is None or odds.base is None or odds.other is None or abs(log(odds.other)) >= abs(log(odds.base)):
        return ""
    closer = way_of(odds, compared) == CLOSER and not crosses(odds.base, odds.other, compared.band)
    return ": parity may have been bought with indecision" * (odds.p_adjusted is None or closer)


# Measured runs in a table and sentences.


def score_table(results: ScoreResults) -> Table:
    """Measured runs as a table: one row a run (in a run folder, a condition), one column a measure or group of one; of
    several groups a row each of them and of their contrasts."""
    conditions, rows, runs = named_conditions(results), named_keys(results), results.runs
    ranked = [run.conditions[condition].queries for run, condition, _ in conditions]
    uneven = len({*ranked}) > 1
    contrasts = {run.run: run.contrasts for run in runs}
    cells: dict[tuple[str, str, str, str], Row] = {
        (row.run, row.key(contrasts[row.run]), row.measure, row.group): row for row in results.rows
    }
    words = {Words("first group", "second group") if run.contrasts else run.words for run in runs}
    sides = asdict(*words) if len(words) == 1 else {}
    of_rows = (
        ((m, ""), (run, Key(key, contrast=group)), row)
        if contrasts[run] and group not in ("", *Side)
        else ((m, sides.get(group, group)), (run, key), row)
        for (run, key, m, group), row in cells.items()
    )

    def conclusion(row: NamedCondition) -> str:
        run, key, _ = row
        if (finding := run.findings.get(key)) is None:
            return ""
        figure = cells.get((run.run, key, finding.measure, ""))
        words = Words(*key.groups) if isinstance(key, Key) and key.contrast else run.words
        return kind_of(run.task).words.concluded(finding, figure, results.band, words)

    columns: list[Column[NamedCondition]] = [
        ("run", lambda row: row[2]),
        ("queries ranked", lambda row: row[0].conditions[condition_of(row[1])].queries if uneven else None),
        *figure_columns(
            results, results.measures, of_rows, results.verdict, lambda row: (row[0].run, row[1])
        ),
        ("conclusion", conclusion),
    ]
    notes = score_warnings(results)
    notes += few_queries(min(ranked))
    shown = {(run.run, key) for run, key, _ in rows}
    if left := sum((run.run, key) not in shown for run in runs for key in run.findings if run.contrasts):
        notes.append(f"{count(left, 'further pair')} of groups, none outside the band: --json has them")
    for task in dict.fromkeys(run.task for run in runs):
        notes += kind_of(task).words.scored_notes([row for row in rows if row[0].task == task])
    notes += [f"{results.labels.get(name, name)}: {note}" for name, note in results.measure_notes.items()]
    title = (
        "Score",
        *dict.fromkeys(run.dataset for run in runs),
        *dict.fromkeys(about(run.attribute, run.words.protected) for run in runs),
        f"{min(ranked):,} to " * uneven + count(max(ranked), "query", "queries"),
        count(len(conditions), "ranking"),
    )
    lead = lead_of(score_outcome(results), "" if results.verdict is None else results.verdict.next)
    below = kind_of(runs[0].task).words.scored_below(results)
    return Table.of(title, columns, rows, notes, results.band, lead=lead, below=below)


def score_outcome(results: ScoreResults) -> list[tuple[str, RunVerdict]]:
    """The verdict of every run by its name, of a single one by none."""
    several = len(results.runs) > 1
    return [(run.run if several else "", run.verdict) for run in results.runs if run.verdict is not None]


NamedCondition = tuple[ScoredRun, str, str]
"""A run, a condition of it, and what tells it from the others."""


def named_conditions(results: ScoreResults) -> list[NamedCondition]:
    """Every run and condition of it, orders and repeats together."""
    conditions = [
        (run, condition)
        for run in results.runs
        for condition in run.conditions
        if not {ONE_OF_SEVERAL.sub("", condition)} & {*run.conditions} - {condition}
    ]
    distinct = len({condition for _, condition in conditions}) == len(conditions)
    of_runs = Counter(run.run for run, _ in conditions)
    named = []
    for run, condition in conditions:
        kind, name = kind_of(run.task), condition
        if is_of(condition, kind.measure.aside):
            name = kind.words.titles.get(condition, condition)
        if not distinct:
            name = f"{run.run} {name}" if of_runs[run.run] > 1 else run.run
        named.append((run, condition, name))
    return named


def named_keys(results: ScoreResults) -> list[NamedCondition]:
    """The same, of several groups with each of them and of their contrasts."""
    rows = list[NamedCondition]()
    for run, condition, name in named_conditions(results):
        of_it = [row for row in results.rows if row.run == run.run and row.condition == condition]
        groups = dict.fromkeys(row.group for row in of_it if row.group and row.measure in run.measures)
        findings = {of: run.findings.get(Key(condition, contrast=of)) for of in run.contrasts}
        few = len(run.contrasts) <= MOST_CONTRASTS
        pairs = [
            of for of, finding in findings.items() if finding and (few or finding.conclusion == "outside")
        ]
        several = [*groups, *pairs] if run.contrasts else []
        rows += [
            (run, Key(condition), name),
            *((run, Key(condition, contrast=of), f"{name}, {of}") for of in several),
        ]
    return rows


def score_warnings(results: ScoreResults) -> list[str]:
    """Runs that are not through; where runs and judgements do not meet, counted; where a measure has no value."""
    warnings = [f"Not complete: {line}" for line in lacking(results)]
    for run, condition, name in named_conditions(results):
        warnings += [f"{name}: {warning}" for warning in _warnings(run, condition)]
    return warnings


def lacking(results: ScoreResults) -> list[str]:
    """What run folders lack that are not through, a sentence each."""
    several, sentences = len(results.runs) > 1, dict[str, str]()
    for run in results.runs:
        if (of := run.incomplete) is not None:
            missing = missing_of(of.status, of.chains, of.failures, kind_of(run.task).words.titles)
            sentences[run.run] = f"{run.run}: " * several + "; ".join(missing)
    return [*sentences.values()]


def _warnings(run: ScoredRun, condition: str) -> Iterator[str]:
    facts, complete = run.conditions[condition], run.incomplete is None
    if facts.tied.documents:
        yield (
            f"{facts.tied.documents:,} of {count(facts.documents, 'document')} tied in score: exposure and utility "
            "follow the ids there (trec_eval's order), odds of rankings count ties half"
        )
    if facts.upside_down:
        yield (
            "in every query the score rises with the rank; the highest score counts as best, as in trec_eval, so if "
            "the ranks are right give each document the score minus its rank"
        )
    cut = (
        "judged but not in the run, which is cut before them: odds of rankings count them behind all that it lists, "
        "compare no two of them, and nothing unjudged; exposure is that of the listed alone"
    )
    for documents, meaning in (
        (facts.unlisted, "in neither groups nor qrels: rank kept, in neither group, not relevant"),
        (facts.missing, cut),
    ):
        if documents.documents:
            of = count(documents.queries, "query", "queries")
            yield f"{count(documents.documents, 'document')} in {of} {meaning}"
    absent = "in the run: 0 in the measures of trec_eval" if complete else "ranked yet, left out"
    for queries, meaning in (
        (facts.unjudged, "of the run without judgement, left out of utility"),
        (facts.not_ranked, f"of the qrels not {absent}"),
    ):
        if queries.queries:
            first = ", ".join(queries.first) + ", …" * (queries.queries > len(queries.first))
            yield f"{count(queries.queries, 'query', 'queries')} {meaning} ({first})"
    if kind_of(run.task).words.tells_undefined:
        for measure, counts in run.undefined.items():
            if condition in counts:
                yield f"{measure} undefined: {reasons(counts[condition], measure)}"


# The page of measured runs.


WORDS = (
    "Rankings that exist, measured as they stand, in the order trec_eval reads them; no model was asked.",
    "Exposure of the item at rank a is 1 / ln(1 + a). Each group's exposure is the mean over its items; the "
    "ratio of the protected group's to the other's is 1 at parity, wherever relevance is spread alike.",
)


def score_page(source: Source, exhibits: Exhibits) -> Page:
    results: ScoreResults = source.results
    table, runs = score_table(results), results.runs
    datasets = " and ".join(dict.fromkeys(run.dataset for run in runs))
    attributes = " and ".join(dict.fromkeys(run.attribute for run in runs))
    contrasts = {run.run: run.contrasts for run in runs}
    names = {(run.run, key): name for run, key, name in named_keys(results)}
    return plain_page(
        source.results, replace(exhibits, command=results.command),
        Section(table, list(_plots(results, exhibits.measures)), words=WORDS), "Measured runs",
        f"{count(len(named_conditions(results)), 'ranking')} of {datasets}, {attributes}", words=runs[0].words,
        missing=lacking(results), warnings=warnings_of([row.model for row in results.rows], results.requirements),
        queries=queries_table(
            source.run.path, "run", lambda row: names.get((row.run, row.key(contrasts[row.run]))), results,
            results.measures, exhibits,
        ),
        outcome=score_outcome(results),
    )  # fmt: skip


def _plots(results: ScoreResults, measures: Declared) -> Iterator[Plot]:
    """Utility and exposure of measured runs, and the headline of each against the band."""
    rows = [row for row in results.rows if row.query_id == "all" and row.group == ""]
    concluded = {finding.measure for run in results.runs for finding in run.findings.values()}
    others = [name for name in results.measures if name not in concluded]
    across, up = figures.utility_of(others, measures) or "", figures.ratio_of(others, measures) or ""
    points, headlines = list[Point](), []
    for run, condition, name in named_keys(results):
        cells: dict[tuple[str, str], Figure] = {
            (row.measure, row.key(run.contrasts)): row for row in rows if row.run == run.run
        }
        utility, ratio = (figures.value_of(cells.get((measure, condition))) for measure in (across, up))
        ratio = figures.on_log(ratio)
        if utility and ratio:
            points.append((name, utility, ratio))
        if finding := run.findings.get(condition):
            headlines.append(figures.spoken_of(finding, name, condition, cells))
    if points:
        yield utility_and_ratio(points, plain_name(across), plain_name(up), None)
    favoured = figures.favoured_of(results.runs[0].words)
    yield from figures.against_the_band(headlines, measures, results.band, favoured, figures.HEADLINES)
