"""Runs side by side for people: a table of changes, and a sentence for each that matters."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from llmfair.audits.comparing import (
    NO_DIFFERENCE,
    distances,
    floor_of,
    gravest,
    is_across,
    of_no_use,
    verdicts_of,
    way_of,
    why,
)
from llmfair.audits.documents import ChangeRow, Comparison
from llmfair.audits.kind import kind_of
from llmfair.audits.runs.exhibits import declared
from llmfair.audits.scoring import ScoredRun, ScoreResults
from llmfair.metrics.base import CONTROLLED, POOLED, plain_name
from llmfair.report.exhibits import Declaration, Declared, Exhibits
from llmfair.report.figures import HEADLINES, favoured_of, on_log, ratio_of, utility_of, value_of
from llmfair.report.groups import about
from llmfair.report.page import General, Page, Source, missing_of, plain_page, queries_table, warnings_of
from llmfair.report.plots.base import Plot, palette
from llmfair.report.plots.ratios import Point, ratios, utility_and_ratio
from llmfair.report.section import Section
from llmfair.report.tables import (
    Lead,
    Table,
    cell,
    columns_of,
    count,
    few_queries,
    filled,
    headings,
    in_words,
    lead_of,
    p_text,
    uncut_notes,
    with_interval,
)
from llmfair.results import Reach, Row, RunVerdict
from llmfair.rundir import ONE_OF_SEVERAL
from llmfair.stats.intervals import OTHER_DESIGN, OTHER_REACH

COLUMNS = (
    "run", "condition", "measure", "scale", "base", "other", "change", "low", "high", "n", "p", "p_adjusted",
    "base_conclusion", "other_conclusion", "reason",
)  # fmt: skip


def compare_table(compared: Comparison) -> Table:
    """One row a measure and condition; below them what the changes come to."""
    base, *others = compared.runs
    kind, several = kind_of(compared.task), len(others) > 1
    common = {f", on {on[0]} in common" for one in others if (on := kind.compared_on(base, one))}
    uneven = any(row.n != compared.queries for row in compared.rows)
    header = (
        "measure",
        kind.condition,
        *(("run",) * several),
        f"base {base.name}" + "".join(common),
        "other" if several else others[0].name,
        f"change [{compared.level * 100:g} %]",
        *(("queries",) * uneven),
        "p (Holm)",
    )
    rows = tuple(
        (
            _label(row),
            row.condition,
            *((row.run,) * several),
            _figure(row.base),
            _figure(row.other),
            _change(row),
            *((f"{row.n:,}",) * uneven),
            "" if row.p_adjusted is None else p_text(row.p_adjusted),
        )
        for row in compared.rows
    )
    title = " · ".join(
        [
            f"Compare {compared.task}",
            compared.dataset,
            about(compared.attribute, compared.words.protected),
            count(compared.queries, "query", "queries"),
        ]
    )
    worst = gravest(compared)
    lead = lead_of(
        [("", verdict) for _, verdict in verdicts_of(compared)], "" if worst is None else worst.next
    )
    notes = (*_differing(compared), *_sentences(compared), *_notes(compared))
    return filled(Table(title, header, rows, notes, lead=lead))


def compare_tsv(compared: Comparison) -> str:
    """The rows for programs: figures as they are, undefined ones empty."""
    text = io.StringIO()
    lines = ([getattr(row, column) for column in COLUMNS] for row in compared.rows)
    csv.writer(text, "excel-tab", lineterminator="\n").writerows([COLUMNS, *lines])
    return text.getvalue()


def _shows(row: ChangeRow) -> str:
    says = _declared(row)
    return says.shows if says else ""


def _declared(row: ChangeRow) -> Declaration | None:
    """What the measure of a row declares of itself."""
    return declared([row.measure]).get(row.measure)


def _label(row: ChangeRow) -> str:
    says = _declared(row)
    return str(says.label if says and says.worded else plain_name(row.measure, POOLED))


def _figure(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"


def _change(row: ChangeRow) -> str:
    if row.change is None:
        return f"undefined ({_reason(row)})"
    shown = "× {:.3f}" if row.scale == "log" else "{:+z.3f}"
    text = shown.format(row.change).replace("+0.000", "0.000")
    if row.low is None:
        return text
    return f"{text} [{row.low:z.3f}, {row.high:z.3f}]"


def _differing(compared: Comparison) -> Iterator[str]:
    """What else differs between each run and the base, so that a change may come of it."""
    base, *others = compared.runs
    for run in others:
        if run.same_answers:
            yield (
                f"{base.name} and {run.name} hold the same answers: they differ in how these were measured, and "
                "nothing is tested"
            )
        if differs := run.differs:
            told = (
                f"{key}: {_value(key, before)} → {_value(key, after)}"
                for key, (before, after) in differs.items()
            )
            yield f"{run.name} also differs in {'; '.join(told)}"


def _sentences(compared: Comparison) -> Iterator[str]:
    """What became of every headline, and of the answers that follow the order."""
    alpha = 1 - compared.level
    several = len(compared.runs) > 2
    headlines = {
        (row.run, row.condition): row for row in compared.rows if row.better == "parity" and row.headline
    }
    untold: list[float] = []
    same = [run.name for run in compared.runs if run.same_answers]
    yield from _unbounded(compared)
    for row in (row for row in compared.rows if row.run not in same):
        about = f"{_label(row)}, {row.condition}" + f", {row.run}" * several
        if row.reason in (OTHER_REACH, OTHER_DESIGN):
            continue
        if row.headline and (row.change is None or None not in (row.base, row.other)):
            unassessed, floor = _unassessed(row), floor_of(compared, row)
            if not unassessed and row.p_adjusted is not None and floor >= alpha:
                untold.append(floor)
                continue
            yield f"{about}: {unassessed or _became(row, compared)}"
        elif _shows(row) == "order dependence" and row.low is not None and row.low > 0:
            odds = headlines.get((row.run, row.condition))
            yield f"{about}: more answers now depend on the order" + _bought(odds, alpha, compared.band)
    if untold:
        yield (
            f"{count(len(untold), 'headline')}: too few queries for so many comparisons (p can be no less than "
            f"{p_text(min(untold))}), so no difference can be shown"
        )


def _unassessed(row: ChangeRow) -> str:
    """That nothing can be said of a headline, and of which run; nothing where it can."""
    barred = row.change is None or (row.low is None and row.reason_of)
    return f"cannot be assessed: {why(row)}" if barred else ""


def _unbounded(compared: Comparison) -> Iterator[str]:
    """Which measures hang on what the settings let a run reach, where that differs from the base."""
    base, *others = compared.runs
    for run in others:
        bounded: dict[tuple[str, str], list[str]] = {}
        for row in compared.rows:
            says = _declared(row)
            if says is not None and row.run == run.name and row.reason in (OTHER_REACH, OTHER_DESIGN):
                bounded.setdefault((says.reach, row.reason), []).append(_label(row))
        for (bounding, reason), labels in bounded.items():
            why = in_words(reason)
            if reason == OTHER_REACH:
                ranges = (f"{one.name} {_range(one.reach.get(bounding, Reach()))}" for one in (base, run))
                why = f"the attainable ranges of {bounding} differ ({', '.join(ranges)})"
            beside = f" ({run.name}; preference odds do)" * (reason == OTHER_DESIGN)
            yield f"{', '.join(dict.fromkeys(labels))}: closer to parity or not cannot be told, since {why}{beside}"


def _range(reach: Reach) -> str:
    ends = (reach.low, reach.high, reach.indifferent)
    return "–".join(f"{end:.2f}" for end in ends if end is not None) or "unknown"


def _became(row: ChangeRow, compared: Comparison) -> str:
    """The change of a headline in words, with its test."""
    alpha, p = 1 - compared.level, row.p_adjusted
    tested = f"({count(row.n, 'query', 'queries')}, paired)"
    test = f"{_p(p)} {tested}" if p is not None else f"no test: {_reason(row)}"
    figures = f"{row.base:.3f} → {row.other:.3f}"
    if row.better != "parity":
        way = "higher" if (row.other or 0) > (row.base or 0) else "lower"
    else:
        way = of_no_use(row, compared) or way_of(row, compared.band)
        figures += " (parity is 1)"
    found = way if p is not None and p < alpha else NO_DIFFERENCE
    return f"{found}: {figures}, {test}"


def _bought(odds: ChangeRow | None, alpha: float, band: tuple[float, float]) -> str:
    """The warning where the odds came closer to parity, or can no longer be told, while flips rose."""
    if odds is None or odds.base is None or odds.other is None:
        return ""
    before, after = distances(odds)
    p, (low, high) = odds.p_adjusted, band
    near = p is None or (p < alpha and (not is_across(odds, band) or low <= odds.other <= high))
    return ": parity may have been bought with indecision" if near and after < before else ""


def _p(p: float) -> str:
    return f"p {p_text(p)}"


def _reason(row: ChangeRow) -> str:
    return in_words(row.reason or "too_few_queries")


def _notes(compared: Comparison) -> Iterator[str]:
    """How changes were made, and on what."""
    kind, (base, *others) = kind_of(compared.task), compared.runs
    if kind.how_changed:
        yield kind.how_changed
    else:
        yield (
            "base and other: each run's own figures; change: mean over the queries of both, of quotients (×) the "
            f"geometric mean; sign flips (seed {compared.seed})"
        )
        for measure in dict.fromkeys(
            row.measure for row in compared.rows if (says := _declared(row)) and says.headline
        ):
            if declared([f"{measure}{CONTROLLED}"]):
                yield (
                    f"{measure} is the plain one, which every query has; a run's own table shows it with what random "
                    "initial orders explain taken out"
                )
    if any(POOLED in row.measure for row in compared.rows):
        yield "every pair weighs the same, not every query (--weights pooled)"
    if compared.family:
        yield f"p adjusted (Holm) over {count(compared.family, 'headline comparison')}"
    for run in others:
        if on := kind.compared_on(base, run):
            yield f"{run.name}: compared on {on[1]}"
    yield from kind.compared_notes(compared.runs)
    yield from few_queries(compared.queries)


def _value(key: str, value: Any) -> str:
    if key == "prompt_sha256" and value:
        return str(value)[:6]
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


# Measured runs in a table and sentences.


MUCH_TIED = 0.01
"""From this share of documents on, ties may move exposure as much as a preference does: they are told first."""


def score_table(results: ScoreResults) -> Table:
    """Measured runs as a table: one row a run (in a run folder, a condition), one column a measure or group of one."""
    cells = {(row.run, row.condition, row.measure, row.group): row for row in results.rows}
    columns = columns_of(results.measures, results.rows, results.verdict)
    named = named_conditions(results)
    ranked = [run.conditions[condition].queries for run, condition, _ in named]
    uneven = len({*ranked}) > 1
    header = (
        "run",
        *(("queries ranked",) * uneven),
        *headings(columns, results, with_interval(results.rows)),
        "conclusion",
    )
    rows: list[tuple[str, ...]] = []
    notes: list[str] = []
    for (run, condition, name), queries in zip(named, ranked, strict=True):
        of_it = {column: cells.get((run.run, condition, *column)) for column in columns}
        said = _conclusion(run, condition, of_it, results)
        told = (cell(row, results.band) for row in of_it.values())
        rows.append((name, *((f"{queries:,}",) * uneven), *told, said))
    for task in dict.fromkeys(run.task for run in results.runs):
        notes += kind_of(task).scored_notes([row for row in named if row[0].task == task])
    if sum(len(run.conditions) for run in results.runs) > len(named):
        notes.append("a prompt's orders and repeats are taken together; --json has each by itself, too")
    notes += [f"{measure}: {note}" for measure, note in results.of_measures.items()]
    longest = max(run.conditions[condition].longest for run, condition, _ in named)
    notes += [f"{measure}: {note}" for measure, note in uncut_notes(declared(results.measures), longest)]
    few = [
        f"{name}: {said}" if uneven else said
        for (*_, name), queries in zip(named, ranked, strict=True)
        for said in few_queries(queries)
    ]
    notes = [*score_warnings(results), *dict.fromkeys(few), *notes]
    attributes = {about(run.attribute, run.words.protected): None for run in results.runs}
    datasets = {run.dataset: None for run in results.runs}
    most = count(max(ranked), "query", "queries")
    asked = f"{min(ranked):,} to {most}" if uneven else most
    title = " · ".join(["Score", *datasets, *attributes, asked, count(len(rows), "ranking")])
    return filled(Table(title, header, tuple(rows), tuple(notes), lead=score_lead(results)))


def score_lead(results: ScoreResults) -> Lead:
    """The verdict of every run, and the next step of the gravest."""
    return lead_of(score_outcome(results), "" if results.verdict is None else results.verdict.next)


def score_outcome(results: ScoreResults) -> list[tuple[str, RunVerdict]]:
    """The verdict of every run by its name, of a single one by none."""
    several = len(results.runs) > 1
    return [(run.run if several else "", run.verdict) for run in results.runs if run.verdict is not None]


def _conclusion(
    run: ScoredRun, condition: str, figures: Mapping[tuple[str, str], Row | None], results: ScoreResults
) -> str:
    """What a condition of a run comes to, in the words of its kind of audit."""
    known = run.findings.get(condition)
    if known is None:
        return ""
    row = figures.get((known.measure, ""))
    return kind_of(run.task).concluded(known, row, results.level, results.band, run.words)


def named_conditions(results: ScoreResults) -> list[tuple[ScoredRun, str, str]]:
    """Every run and condition of it, orders and repeats together, with what tells it from the others."""
    conditions = [
        (run, condition)
        for run in results.runs
        for condition in run.conditions
        if not {ONE_OF_SEVERAL.sub("", condition)} & {*run.conditions} - {condition}
    ]
    distinct = len({condition for _, condition in conditions}) == len(conditions)
    named = []
    for run, condition in conditions:
        name = (
            kind_of(run.task).titles.get(condition, condition)
            if condition in kind_of(run.task).aside
            else condition
        )
        whole = f"{run.run} {name}" if Counter(one.run for one, _ in conditions)[run.run] > 1 else run.run
        named.append((run, condition, name if distinct else whole))
    return named


def score_warnings(results: ScoreResults) -> list[str]:
    """Runs that are not through; where runs and judgements do not meet, counted; where a measure has no value."""
    tied, share = _tied(results)
    warnings = [f"Not complete: {line}" for line in lacking(results)]
    warnings = [*tied, *warnings] if share >= MUCH_TIED else [*warnings, *tied]
    warnings += [
        f"{name}: {warning}"
        for run, condition, name in named_conditions(results)
        for warning in _warnings(run, condition)
    ]
    for run in results.runs:
        warnings += [said for of, said in kind_of(run.task).without_value(run.undefined) if not of]
    return warnings


def _tied(results: ScoreResults) -> tuple[list[str], float]:
    """What is tied in score, of all runs in one sentence, and the greatest share of a run's documents that is."""
    tied = {
        name: facts
        for run, condition, name in named_conditions(results)
        if (facts := run.conditions[condition]).tied.documents
    }
    if not tied:
        return [], 0.0
    counted = ", ".join(
        f"{name}: {facts.tied.documents:,} of {count(facts.documents, 'document')}"
        for name, facts in tied.items()
    )
    means = "exposure and utility follow the ids there (trec_eval's order), preference odds count ties half"
    return [f"{counted} tied in score: {means}"], max(
        facts.tied.documents / facts.documents for facts in tied.values()
    )


def lacking(results: ScoreResults) -> list[str]:
    """What run folders lack that are not through, a sentence each."""
    halves = {
        run.run: (run.incomplete, kind_of(run.task)) for run in results.runs if run.incomplete is not None
    }
    several = len(results.runs) > 1
    return [
        f"{name}: " * several + "; ".join(missing_of(half.status, half, kind.titles))
        for name, (half, kind) in halves.items()
    ]


def _warnings(run: ScoredRun, condition: str) -> list[str]:
    facts = run.conditions[condition]
    notes = []
    if facts.upside_down:
        notes.append(
            "in every query the score rises with the rank; the highest score counts as best, as in trec_eval, so if "
            "the ranks are right give each document the score minus its rank"
        )
    for counted, meaning in (
        (facts.unlisted, "in neither groups nor qrels: rank kept, in neither group, not relevant"),
        (
            facts.missing,
            "judged but not in the run, which is cut before them: preference odds count them behind all that it lists, "
            "compare no two of them, and nothing unjudged; exposure is that of the listed alone",
        ),
    ):
        if counted.documents:
            notes.append(
                f"{count(counted.documents, 'document')} in {count(counted.queries, 'query', 'queries')} {meaning}"
            )
    for counted, meaning in (
        (facts.unjudged, "of the run without judgement, left out of utility"),
        (
            facts.not_ranked,
            "of the qrels not ranked yet, left out"
            if run.incomplete is not None
            else "of the qrels not in the run: 0 in the measures of trec_eval",
        ),
    ):
        if counted.queries:
            first = ", ".join(counted.first) + ", …" * (counted.queries > len(counted.first))
            notes.append(f"{count(counted.queries, 'query', 'queries')} {meaning} ({first})")
    notes += [said for of, said in kind_of(run.task).without_value(run.undefined) if of == condition]
    return notes


# The page of measured runs.


WORDS = (
    "Rankings that exist, measured as they stand, in the order trec_eval reads them; no model was asked.",
    "Exposure of the item at rank a is 1 / ln(1 + a). Each group's exposure is the mean over its items; the "
    "ratio of the protected group's to the other's is 1 at parity, wherever relevance is spread alike.",
)


def score_page(source: Source, exhibits: Exhibits) -> Page:
    """The page of measured runs."""
    results: ScoreResults = source.results
    table = score_table(results)
    datasets, attributes = (
        " and ".join(dict.fromkeys(getattr(run, name) for run in results.runs))
        for name in ("dataset", "attribute")
    )
    section = Section(table, list(score_plots(results, exhibits.measures)), words=WORDS)
    page = plain_page(
        source.results, replace(exhibits, command=results.command), section, "Measured runs",
        f"{count(len(table.rows), 'ranking')} of {datasets}, {attributes}", asdict(results.runs[0].words),
        lacking(results),
        warnings_of([row.model for row in results.rows], results.requirements),
        score_queries(source.run.path, results, exhibits),
    )  # fmt: skip
    following = "" if results.verdict is None else results.verdict.next
    return replace(page, outcome=score_outcome(results), following=following)


def score_queries(folder: Path, results: ScoreResults, exhibits: Exhibits) -> Table | None:
    """Every query of every ranking that the table names."""
    names = {(run.run, condition): name for run, condition, name in named_conditions(results)}
    return queries_table(
        folder,
        "run",
        lambda row: names.get((row.run, row.condition)),
        results,
        results.measures,
        exhibits,
    )


def score_plots(results: ScoreResults, declared: Declared) -> Iterator[Plot]:
    """Utility and exposure of measured runs, and the headline of each against the band."""
    rows = [row for row in results.rows if row.query_id == "all" and row.group == ""]
    named = named_conditions(results)
    looks = palette([name for *_, name in named])
    across, up = utility_of(results.measures, declared), ratio_of(results.measures, declared)
    points: list[Point] = []
    odds = []
    for run, condition, name in named:
        of_it = {row.measure: row for row in rows if (row.run, row.condition) == (run.run, condition)}
        if across and up:
            utility, ratio = value_of(of_it.get(across)), on_log(value_of(of_it.get(up)))
            if utility and ratio:
                points.append((name, utility, ratio, looks[name], name))
        if finding := run.findings.get(condition):
            odds.append((name, None, on_log(value_of(of_it.get(finding.measure)))))
    if across and up and points:
        yield utility_and_ratio(points, plain_name(across), plain_name(up), None)
    if any(value for _, _, value in odds):
        yield ratios(
            odds,
            "odds of the conclusions",
            results.band,
            "Odds against the band",
            HEADLINES,
            favoured=favoured_of(results.runs[0].words),
        )


SCORE = General(
    words=WORDS,
    page=score_page,
    table=lambda source: score_table(source.results),
    missing=lambda source: lacking(source.results),
    outcome=lambda source: score_outcome(source.results),
)
