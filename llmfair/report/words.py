"""What people read of a kind of audits, as one value: every part serves any kind, unless the kind has its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmfair import registry
from llmfair.io.text import count, plural, setting_text
from llmfair.report import phrases
from llmfair.report.figures import against_the_band, headline_plots, ratio_of
from llmfair.report.groups import Group, Section, headlines
from llmfair.report.plan import calibration_table, plan_text, planned_note
from llmfair.report.plots import Plot
from llmfair.report.table import Column, Table, figure_columns
from llmfair.report.verdict import COMPARED_STATUSES, STATUSES, VerdictWords, compared_verdicts
from llmfair.results import Band, Conclusions, Declared, Exhibits, Figure, RunVerdict, Words

if TYPE_CHECKING:
    from llmfair.audits.documents import Comparison
    from llmfair.rundir import RunDir

METHOD = ("Each condition is measured alike, and each query is one unit: intervals go over queries.",)
LIMITS = (
    "The attribute is binary here: items that are in neither the protected nor the reference group, or in both, "
    "are left out of the ratios. Groups are what the data set records, not what people say of themselves.",
    "A distance from parity is a fact about these lists, prompts and answers. It names no cause, and passes no "
    "judgement.",
)


OF_GROUPS = (
    "Items whose group is not known, that are in several groups, or whose group is too small to be compared "
    "(--min-group) are in no pair. Groups are what the data set records, not what people say of themselves."
)
"""The first of LIMITS where several groups are compared."""


def wording(task: str) -> Wording:
    """That of the kind of this name."""
    words: Wording = registry.lookup("audit", task).words
    return words


def before_text(planned: Mapping[str, Any]) -> str:
    """Calls, and answers that are on disk."""
    return count(planned["calls"], "call") + phrases.on_disk(planned)


def verdict_of(conclusions: Conclusions) -> RunVerdict:
    """By the band around parity."""
    words = wording(conclusions.task)
    return VerdictWords(words.condition, words.titles).verdict(conclusions)


def table_of(results: Any, answers: str = "") -> Table:
    """Any audit as a table: one row a condition, one column a measure shown, and what is concluded.

    `answers` is what could be parsed or not, unless that is the unit of which all answers are needed.
    """
    words, design = wording(results.task), results.design
    concluded: dict[str, str] = {
        condition: phrases.unparseable_text(condition, results)
        or (words.concluded(of, None, results.band, results.words) if of else "")
        for condition in design.keys
        for of in [results.findings.get(condition)]
    }
    figures = (((row.measure, row.group), row.key(design.contrasts), row) for row in results.of_all())
    columns: list[Column[str]] = [
        (words.condition, lambda condition: words.titles.get(condition, condition)),
        *figure_columns(results, results.shown, figures, results.verdict),
        ("conclusion", concluded.get),
    ]
    queries, calls = count(design.queries, "query", "queries"), plural(design.calls, "call")
    parts = [words.title, *phrases.audited_note(results), queries, f"{phrases.calls_of(results)} {calls}"]
    notes = [f"{measure}: {note}" for measure, note in results.measure_notes.items()]
    for condition, of in results.chains.items():
        if of.ranked < of.asked:
            name = words.titles.get(condition, condition)
            notes.append(f"{name}: {of.ranked:,} of {of.asked:,} {words.unit} have all their answers")
    for condition, of in results.answers.items():
        if of.unparseable:
            name, share = words.titles.get(condition, condition), phrases.percent(of.unparseable, of.asked)
            notes.append(f"{name}: {share} of {of.asked:,} {answers or words.unit} cannot be parsed")
    notes += [
        *phrases.drawn_note(design.drawn),
        *results.warnings,
        *phrases.few_queries(max((row.n or 0 for row in results.of_all()), default=0) or design.queries),
    ]
    return Table.of(parts, columns, design.keys, notes, results.band, said=concluded, sees=results.sees)


def section_of(results: Any, folder: Path, exhibits: Exhibits) -> Section:
    """The table, and the headlines or the first ratio as figures."""
    words, conditions, measures = wording(results.task), results.design.keys, exhibits.measures
    drawn = headline_plots(results, conditions, measures, words.titles)
    if not results.findings and (measure := ratio_of(results.shown, measures)):
        cells = results.by_key()
        rows = [(measure, words.titles.get(of, of), cells.get((measure, of))) for of in conditions]
        drawn = against_the_band(rows, measures, None, None, "ratio")  # of which nothing is concluded
    return Section(table=words.table(results), plots=list(drawn), words=words.method)


def by_name(settings: Mapping[str, Any], differ: Sequence[str]) -> list[str]:
    """The first two settings."""
    return [f"{name} {setting_text(name, settings[name])}" for name in differ if name in settings][:2]


def how_ended(row: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    return "ok" if row["finish"] == "stop" else str(row["finish"])


@dataclass(frozen=True, kw_only=True)
class Wording:
    """What is said of audits of a kind.

    `condition` is what is compared, `unit` what has to be answered whole for there to be a figure, `titles` what
    conditions are called that are not called by their names. `statuses` of verdicts, the gravest first; the last, which
    `--fail-on` does not take, is hoped for. `method`: how audits are made and concluded, a paragraph each; `limits`:
    what figures cannot say.
    """

    title: str
    condition: str = "condition"
    unit: str = "probes"
    titles: Mapping[str, str] = field(default_factory=dict)
    statuses: Sequence[str] = tuple(STATUSES.values())
    method: Sequence[str] = METHOD
    limits: Sequence[str] = LIMITS

    before: Callable[[Mapping[str, Any]], str] = before_text
    """Of what is planned, before the first question."""
    plan_text: Callable[[Mapping[str, Any]], str] = plan_text
    """A dry run; and a plan without table."""
    plan_table: Callable[[Mapping[str, Any]], Table | None] = lambda planned: None
    """A plan; None where nothing can be tabled, so that its text says all."""
    calibration_table: Callable[[Mapping[str, Any]], Table] = calibration_table
    """Simulated audits, where the kind has them."""

    verdict: Callable[[Conclusions], RunVerdict] = verdict_of
    """What a run comes to: one of the `statuses`, one sentence, one next step."""
    table: Callable[[Any], Table] = table_of
    """A run, from its results."""
    section: Callable[[Any, Path, Exhibits], Section] = section_of
    """What the page of a run has of its kind, from its results, folder and exhibits."""
    group_plots: Callable[[Group, Declared, int], Iterable[Plot]] = lambda group, declared, number: headlines(
        group, declared, number, wording(group.task).titles
    )
    """Several audits side by side; the number keeps names of figures apart from other groups'."""
    group_tables: Callable[[Group], Iterable[Table]] = lambda group: ()
    """The same, beside tables of measures and conclusions."""
    differences: Callable[[Mapping[str, Any], Sequence[str]], Sequence[str]] = by_name
    """Of the settings of a run those in which runs of one model differ, in short."""

    how_ended: Callable[[Mapping[str, Any], Mapping[str, Any]], str] = how_ended
    """An answer of the journal, by the run's settings: `ok`, or what was wrong with it."""
    what_was_shown: Callable[[Mapping[str, Any]], str] = lambda about: ""
    """What a question is about, in a word."""
    trail: Callable[[RunDir, str | None], Iterable[str]] | None = None
    """How a run went about its queries, or one of them, a line a step. Raises UsageError."""

    concluded: Callable[[Any, Figure | None, Band, Words], str] = lambda finding, *_: phrases.conclusion_text(
        finding
    )
    """A finding in the table of measured runs: with its figure and band, and the words of the groups."""
    tells_undefined: bool = True
    """Whether tables of measured runs say which figures have no value."""
    scored_below: Callable[[Any], Table | None] = lambda results: None
    """A further table of measured runs (`ScoreResults`)."""
    scored_notes: Callable[[Sequence[Any]], Iterable[str]] = lambda rows: ()
    """Below a table of measured runs; a row is a `ScoredRun`, a condition and its name there."""
    compared_statuses: Sequence[str] = COMPARED_STATUSES
    compared: Callable[[Comparison], Iterable[tuple[str, RunVerdict]]] = compared_verdicts
    """What every run comes to beside the base, by name: one of these statuses, the gravest first."""
    compared_notes: Callable[[Sequence[Any]], Iterable[str]] = lambda runs: ()
    """Below a comparison of these runs (`ComparisonRun`), the base first."""


# Several audits under one study.


def study_plan_table(
    planned: Mapping[str, Any], more: Callable[[Mapping[str, Any]], Mapping[str, str]] = lambda setting: {}
) -> Table:
    """Calls of each setting, how many are answered already, and `more` of its plan, by column."""
    first, *_ = settings = planned["settings"]
    columns: list[Column[Mapping[str, Any]]] = [
        ("setting", itemgetter("setting")),
        ("calls", itemgetter("calls")),
        ("answered already", itemgetter("answered")),
        *((name, lambda setting, name=name: more(setting)[name]) for name in more(first)),
        ("run folder", itemgetter("folder")),
    ]
    size, calls = count(len(settings), "setting"), count(planned["calls"], "call")
    title = (name_of(planned["task"]), size, ", ".join(first.get("conditions", ())), calls)
    return Table.of(title, columns, settings, (*planned_note(first), "Nothing was asked."))


def study_table(results: Any) -> Table:
    """One row a setting and condition; also where no setting has results yet."""
    name = name_of(results.task)
    if not results.rows:
        return Table(name, ("setting",), (), ("no setting has results yet",))
    figures = [((row.measure, row.group), (row.setting, row.key()), row) for row in results.rows]
    conclusions = {
        (row.setting, row.key()): row.conclusion.replace("_", " ") for row in results.rows if row.conclusion
    }
    columns: list[Column[tuple[str, str]]] = [
        ("setting", itemgetter(0)),
        ("condition", itemgetter(1)),
        *figure_columns(results, results.shown, figures),
        ("conclusion", lambda of: conclusions.get(of, "")),
    ]
    title = (name, *results.about, count(results.queries, "query", "queries"))
    alone = "each setting is concluded by itself: p is not adjusted over settings"
    notes = (*phrases.drawn_note(results.drawn), *phrases.few_queries(results.queries), alone)
    return Table.of(title, columns, dict.fromkeys(row for _, row, _ in figures), notes)


def name_of(task: str) -> str:
    """What a table calls a study."""
    return task.removeprefix("study ").capitalize()


@dataclass(frozen=True, kw_only=True)
class StudyWording:
    """What is said of a study: how it is made (`method`), its dry run, its results, its figures."""

    method: Sequence[str] = ("The same model is asked under several settings; each is an audit of its own.",)
    plan_table: Callable[[Mapping[str, Any]], Table] = study_plan_table
    table: Callable[[Any], Table] = study_table
    plots: Callable[[Any, Declared], Iterable[Plot]] = lambda results, declared: ()


STUDY = StudyWording()
