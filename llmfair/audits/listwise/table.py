"""A listwise audit in a table and sentences, and what a dry run says of one."""

from __future__ import annotations

from collections.abc import Mapping
from math import fsum
from typing import Any

from llmfair.audits.listwise.results import ListwiseFacts, ListwiseResults, WindowAnswers
from llmfair.audits.listwise.sentences import (
    Cells,
    conclusion,
    gap_note,
    noise_notes,
    order_notes,
    power_note,
    relevance_note,
    test_notes,
)
from llmfair.audits.runs.exhibits import declared
from llmfair.audits.runs.settled import settled_text
from llmfair.backends.scored import SCORES
from llmfair.metrics.base import CONTROLLED, plain_name
from llmfair.report.tables import (
    Table,
    audited,
    calls_of,
    cell,
    columns_of,
    count,
    drawn_note,
    few_queries,
    filled,
    headings,
    held_note,
    on_disk,
    percent,
    plural,
    reasons,
    span,
    the_same,
    uncut_notes,
    unparseable_text,
    window_notes,
    with_interval,
)
from llmfair.results import Reach

SHOWN_LEFT_OUT = 3
NOTHING_CONCLUDED = "nothing is concluded from an order that is not random (--initial random)"


def listwise_table(results: ListwiseResults) -> Table:
    """The listwise audit as a table: one row a prompt, one column a measure, or one for each of its groups."""
    figures = {(row.measure, row.group, row.condition): row for row in results.of_all()}
    cells = {(measure, condition): row for (measure, group, condition), row in figures.items() if not group}
    conditions = results.design.conditions
    asked = (row for row in figures.values() if row.condition in (*conditions, "initial"))
    columns = columns_of(results.shown, asked, results.verdict)
    doubled = the_same([measure for measure, group in columns if not group], [*conditions, "initial"], cells)
    columns = [column for column in columns if column[0] not in doubled]
    header = (
        "prompt",
        *headings(columns, results, with_interval(results.rows)),
        "conclusion" if results.findings else "note",
    )
    said = {condition: _words(condition, results, cells) for condition in conditions}
    rows = [
        (
            _row_name(condition),
            *(cell(figures.get((*c, condition)), results.band) for c in columns),
            said[condition],
        )
        for condition in conditions
    ]
    # of the input there is nothing to control for: its own figure stands in the column
    inputs = [
        cell(figures.get((m, group, "initial")) or cells.get((plain_name(m), "initial")))
        for m, group in columns
    ]
    if any(inputs):
        rows.append((_row_name("initial"), *inputs, "before the model"))
    notes, concluded = tuple(_notes(results, cells, doubled)), said if results.findings else {}
    repeated = frozenset(at for at, condition in enumerate(conditions) if condition == "repeat")
    return filled(
        Table(_title(results), header, tuple(rows), notes, concluded, sees=results.sees, repeated=repeated)
    )


def _title(results: ListwiseResults) -> str:
    design = results.design
    parts = [
        "Listwise",
        *audited(results),
        f"{design.queries} {plural(design.queries, 'query', 'queries')} × {span(*design.candidates)}",
        "no model asked" if design.prompt_sha256 is None else f"{calls_of(results)} calls",
    ]
    if design.preset:
        parts.append(f"preset {design.preset}")
    return " · ".join(parts)


def _row_name(condition: str) -> str:
    return {"initial": "initial ranking"}.get(condition, condition)


def _words(condition: str, results: ListwiseResults, cells: Cells) -> str:
    """What a row comes to, in words; nothing is said of a model that gave no readable answer."""
    chains, finding = results.chains[condition], results.findings.get(condition)
    answers = results.answers.get(condition)
    said = ""
    if finding:
        said = conclusion(finding, cells.get((finding.measure, condition)), results.band, results.level)
    if condition == "repeat":
        said = "the same prompt, the same orders"
    if answers and answers.windows and answers.unparseable == answers.windows:
        said = "no parseable answer: the initial ranking"
    else:
        said = unparseable_text(condition, results) or said
    if chains.ranked < chains.asked:
        said = f"{chains.ranked} of {chains.asked} chains" + (f"; {said}" if said else "")
    return said


def _notes(results: ListwiseResults, cells: Cells, doubled: Mapping[str, str]) -> list[str]:
    design = results.design
    precision = [f"{measure}: {note}" for measure, note in _precision_notes(results)]
    notes = []
    if failed := sum(chains.asked - chains.ranked for chains in results.chains.values()):
        why = ", ".join(f"{name} {n:,}" for name, n in results.failures.items()) or "not asked yet"
        notes.append(f"{count(failed, 'chain')} without a ranking ({why}); measures speak of the others")
    if design.design == "partition":
        notes.append(
            f"{window_text(design)}, each item shown once per order ({count(design.orders, 'order')}): nothing is "
            "ranked, so there is no P@20, nDCG or ExpRatio (--design ranking orders whole lists)"
        )
    notes += [
        settled_text(condition, stopped, results.band, results.level, "window")
        for condition, stopped in results.stopping.items()
    ]
    if design.constrained:
        notes.append(
            held_note("the labels" if design.strategy else "well-formed orders", results.answers.values())
        )
    notes += relevance_note(
        {
            condition: row.value
            for condition in design.conditions
            if (row := cells.get(("RelevanceRatio", condition)))
        }
    )
    scored = design.strategy == SCORES
    some, unparseable = (
        any(of_it.unparseable or (scored and of_it.repaired) for of_it in results.answers.values()),
        _unparseable_note(results.answers, scored),
    )
    notes += _equal_scores(results.answers) or ([] if scored else _hardly_ranks(results.answers))
    notes += unparseable * some
    notes += [*results.warnings, *few_queries(design.queries), *_lists_notes(design)]
    notes += [*order_notes(results, cells), *_attainable_note(results), *gap_note(results, cells)]
    notes += [*precision, *_ratio_note(results)]
    notes += [f"{measure}: {note}" for measure, note in results.of_measures.items()]
    notes += [f"{measure} equals {other} here" for measure, other in doubled.items()]
    notes += [*power_note(results), *test_notes(results, cells), *noise_notes(results, cells)]
    notes += window_notes(design.never_ranked, design.window, design.step)
    notes += [*unparseable * (not some), *_answers_notes(results.answers)]
    return [*notes, *drawn_note(design.drawn), *_undefined_notes(results)]


def _attainable_note(results: ListwiseResults) -> list[str]:
    """What the exposure ratio can be in this setting."""
    shown = any(measure.startswith("ExpRatio") for measure in results.shown)
    return [attainable] if shown and (attainable := _attainable(results.reach)) else []


def _attainable(reach: Mapping[str, Reach]) -> str:
    """The exposure ratios between rankers that always put one group first; nothing where none is known."""
    ratio = reach.get("ExpRatio", Reach())
    if ratio.low is None or ratio.high is None:
        return ""
    return f"attainable range of ExpRatio on these lists: {ratio.low:.3f} … {ratio.high:.3f}"


def _ratio_note(results: ListwiseResults) -> list[str]:
    """How the exposure ratio is aggregated and its interval made."""
    ratios = [measure for measure in results.shown if measure.startswith("ExpRatio")]
    if not ratios:
        return []
    design = results.design
    named = {"linear-t": "t interval over queries", "boot-t": f"bootstrap-t interval (seed {design.seed})"}
    interval = results.intervals.get(ratios[0])
    how = ["ratio of means"] * ("agg=" not in ratios[0])
    how += [named[interval]] if interval is not None else []
    orders = f"{count(design.orders, design.initial + ' initial order')}"
    setting = f"{window_text(design)}, {orders}" if design.prompt_sha256 is not None else "whole lists"
    note = f"{ratios[0]}{': ' if how else ''}{', '.join(how)}; {setting}"
    few = CONTROLLED in ratios[0] and not results.controlled
    return [note, *["too few runs to take out what the initial orders explain: the plain ratio"] * few]


def before_text(planned: Mapping[str, Any]) -> str:
    """Said before the first question: how many there will be, and what the answers can show at all."""
    design, reach = planned["design"], planned["reach"].get("ExpRatio", Reach())
    most = "at most " if design.sequential or design.at_most else ""
    text = f"{most}{count(planned['calls'], 'call')}; {window_text(design)}"
    if reach.indifferent is not None:
        text += (
            f"; ExpRatio of a ranker without any preference on these lists, from initial order {design.initial}: "
            f"{reach.indifferent:.2f}; {NOTHING_CONCLUDED}"
        )
    return text + on_disk(planned)


def note_of(measure: str, results: ListwiseResults) -> str:
    """What the table says first of what a measure can show here, or of how it counts; or nothing."""
    notes = (*_precision_notes(results), *results.of_measures.items())
    return next((note for of, note in notes if of == measure), "")


def _precision_notes(results: ListwiseResults) -> list[tuple[str, str]]:
    """What precision can be in this setting: measures with a sentence each."""
    reach, longest = results.reach.get("P@20"), results.design.candidates[1]
    uncut = uncut_notes(declared(results.shown), longest)
    if reach is None or reach.high is None or "P@20" not in results.shown or longest <= 20:
        return uncut
    perfect = f"about {reach.high:.2f} on average over random orders for a perfect ranker in this setting"
    return [*uncut, ("P@20", perfect)]


def _undefined_notes(results: ListwiseResults) -> list[str]:
    """Queries without a value of the measures shown, said once where measures and rows share the reasons."""
    said: dict[tuple[str, str], list[str]] = {}
    rows = len(results.design.conditions)
    names = headings([(measure, "") for measure in results.shown], results)
    for measure, name in zip(results.shown, names, strict=True):
        by_reason: dict[str, list[str]] = {}
        for condition, found in results.undefined.get(measure, {}).items():
            if condition != "initial":
                by_reason.setdefault(reasons(found, measure), []).append(_row_name(condition))
        for why, names in by_reason.items():
            whose = "" if len(names) == rows else f" ({', '.join(names)})"
            said.setdefault((why, whose), []).append(name)
    return [f"undefined: {why}{whose}: {', '.join(names)}" for (why, whose), names in said.items()]


def window_text(design: ListwiseFacts | Mapping[str, Any]) -> str:
    """How lists are gone through: the strategy, unless it is windows, and the windows where it has any."""
    known = design if isinstance(design, Mapping) else vars(design)
    if known.get("design") == "partition":
        return f"partition into random windows of {known['window']}"
    said = [f"strategy {known['strategy']}"] if known.get("strategy") else []
    if known["window"] is not None:
        said.append(f"window {known['window']}, step {known['step']}")
        said.append(count(known["passes"], "pass", "passes"))
    return ", ".join(said)


def _lists_notes(design: ListwiseFacts) -> list[str]:
    """Queries without a list, and lists that could not be filled."""
    notes = []
    if design.left_out:
        reasons = list(design.left_out.values())
        more = f"; and {len(reasons) - SHOWN_LEFT_OUT} more" if len(reasons) > SHOWN_LEFT_OUT else ""
        notes.append(
            f"{design.queries} of {design.queries + len(reasons)} queries kept; without a list: "
            f"{'; '.join(reasons[:SHOWN_LEFT_OUT])}{more}"
        )
    if design.shrunk:
        notes.append(
            f"{count(len(design.shrunk), 'list')} with fewer relevant documents than asked, or fewer documents in all "
            "(named in results.json)"
        )
    return notes


def _hardly_ranks(answers: Mapping[str, WindowAnswers]) -> list[str]:
    """A model that leaves most windows as they were, or whose answers mostly had to be repaired."""
    asked, repaired = (
        sum(getattr(condition, key) for condition in answers.values()) for key in ("windows", "repaired")
    )
    first = sum(condition.first_pass.windows for condition in answers.values())
    identity = sum(condition.first_pass.identity for condition in answers.values())
    if identity <= first / 2 and repaired <= asked / 2:
        return []
    left, mended = percent(identity, first), percent(repaired, asked)
    return [
        f"{left} of the first pass's answers left the window as it was, {mended} of all were repaired: the model "
        "hardly ranks"
    ]


def _equal_scores(answers: Mapping[str, WindowAnswers]) -> list[str]:
    """How many lists have but one score, so that nothing is ranked in them."""
    equal = [found for condition in answers.values() if (found := condition.equal_scores) is not None]
    lists, of = sum(found.lists for found in equal), sum(found.of for found in equal)
    return [f"all scores are equal in {lists:,} of {count(of, 'list')}: they stay as they were shown"] * bool(
        equal
    )


OF_SCORES = {
    "duplicate": "an item with two scores",
    "empty": "no score at all",
    "missing": "items without a score",
    "no_ids": "no score at all",
    "out_of_range": "a score of an item not shown",
}
"""Classes of answers that are scores, in words."""


def _unparseable_note(answers: Mapping[str, WindowAnswers], scored: bool) -> list[str]:
    """The share of answers that cannot be parsed, and of those repaired, with their kinds."""
    asked = sum(condition.windows for condition in answers.values())
    if not asked:
        return []
    unparseable = sum(condition.unparseable for condition in answers.values())
    repaired = sum(condition.repaired for condition in answers.values())
    classes: dict[str, int] = {}
    for condition in answers.values():
        for name, n in condition.classes.items():
            if name != "ok":
                said = OF_SCORES.get(name, name) if scored else name
                classes[said] = classes.get(said, 0) + n
    told = ", ".join(f"{name} {n:,}" for name, n in sorted(classes.items()))
    return [
        f"unparseable answers: {percent(unparseable, asked)} ({unparseable:,} of {asked:,}); "
        f"repaired: {percent(repaired, asked)}" + (f" · {told}" if told else "")
    ]


def _answers_notes(answers: Mapping[str, WindowAnswers]) -> list[str]:
    """Bad answers that were asked again, and items that answers left out."""
    notes = []
    again = sum(n for condition in answers.values() for n in condition.asked_again.values())
    if again:
        notes.append(f"bad answers asked again: {again:,}, beside those above")
    omitted = sum(condition.omitted.items for condition in answers.values())
    if omitted:
        protected = sum(condition.omitted.protected for condition in answers.values())
        expected = fsum(condition.omitted.protected_expected for condition in answers.values())
        notes.append(
            f"items missing from answers: {omitted:,}, {protected:,} of them protected ({expected:.0f} expected by "
            "chance)"
        )
    return notes
