"""Measured runs in a table and sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from llmfair.audits.kind import kind_of
from llmfair.audits.runs.exhibits import declared
from llmfair.audits.scoring.score_results import ScoredRun, ScoreResults
from llmfair.report.groups import about
from llmfair.report.lead import Lead, lead_of
from llmfair.report.source import missing_of
from llmfair.report.tables import (
    Table,
    cell,
    columns_of,
    count,
    few_queries,
    filled,
    headings,
    uncut_notes,
    with_interval,
)
from llmfair.results import Row, RunVerdict
from llmfair.rundir import ONE_OF_SEVERAL

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
    row = figures.get((known["measure"], ""))
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
