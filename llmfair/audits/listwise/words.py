"""A listwise audit in a table, sentences and plots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import fsum, log
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from llmfair.audits.listwise.results import (
    Excess,
    ListwiseFacts,
    ListwiseFinding,
    ListwiseResults,
    Odds,
    WindowAnswers,
)
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.runs.exhibits import declared
from llmfair.audits.runs.stopping import settled_text
from llmfair.audits.verdict import ADVICE, Case, VerdictWords
from llmfair.backends.python import SCORES
from llmfair.errors import UsageError
from llmfair.io.files import read_lines
from llmfair.io.trec import read_run
from llmfair.manifest import Manifest
from llmfair.metrics.base import CONTROLLED, plain_name
from llmfair.nouns import Attribute, Candidates, Conclusion, Document, Query
from llmfair.probes import REPEAT, initial_orders
from llmfair.report.exhibits import Declared, Exhibits
from llmfair.report.figures import (
    headline_plots,
    on_log,
    ratio_of,
    reach_of,
    utility_of,
    value_of,
)
from llmfair.report.groups import (
    DRAWN,
    AuditedRun,
    Furthest,
    FurthestQuery,
    Group,
    Item,
    Values,
    distance,
    figures_text,
    furthest_from_parity,
    named,
)
from llmfair.report.plots.base import MARKS, Look, Plot, palette
from llmfair.report.plots.ratios import Point, exposure_curve, rank_boxes, utility_and_ratio
from llmfair.report.section import SHOWN_VERDICTS, Section, VerdictCard, condition_verdicts, verdict
from llmfair.report.tables import (
    Table,
    audited_note,
    calls_of,
    cell,
    columns_of,
    count,
    differs_text,
    drawn_note,
    few_queries,
    filled,
    found_with,
    headings,
    held_note,
    in_words,
    interval_text,
    numbers,
    on_disk,
    p_text,
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
from llmfair.results import Figure, Reach, Row
from llmfair.rundir import ONE_OF_SEVERAL, RunDir

# What a report says of listwise audits.


TITLES = {"initial": "initial ranking"}
"""Conditions that are not called by their names."""
WORDS = (
    "The model orders every candidate list under a neutral prompt and under prompts that name each group. A "
    "window slides from the end of the list to its head; what the model puts first in one window is carried "
    "into the next.",
    "Exposure of the item at rank a is 1 / ln(1 + a): the head weighs most. Each group's exposure is the mean "
    "over its items; the ratio of the protected group's to the other's is 1 at parity, wherever relevance is "
    "spread alike.",
    "Conclusions speak of preference odds: those with which the model puts a protected item ahead of an equally "
    "relevant other one where it sees both for the first time at once, whatever slots they stand in. They are "
    "fitted by a logistic model with a smooth effect of the slot, each query weighing alike; what later windows "
    "show together was chosen by earlier answers, so it does not count. That the odds lie within the band is said "
    "only of a ranker that orders by relevance better than its initial order does.",
    "Each query is one unit: intervals and tests go over queries. p is adjusted (Holm) over the family that "
    "the notes below the table name.",
)


def by_places(results: ListwiseResults, condition: str) -> str:
    """What it is that answers follow the position, counted."""
    first = results.answers[condition].first_pass
    return (
        f"{first.same:,} of {count(first.windows, 'answer')} of the first pass put the places in the same order, "
        "whatever stood there, so a ratio near 1 is no parity"
    )


# What was found, in sentences: conclusions, both tests, the gap between prompts, what the design could show. Nothing
# here is computed but percentages; no sentence judges, it states a distance from parity.


TELLING = 0.05
"""An input order nearer to parity than this has nothing to hand on."""
UNEVEN = 0.01
"""From this share on, what relevance alone gives the sides is told."""
RATIO, PRECISION = "ExpRatio", "P@20"
"""The measures whose attainable range a design knows (`reach_of`)."""
Cells = Mapping[tuple[str, str], Row]


def conclusion(finding: ListwiseFinding, row: Figure | None, band: tuple[float, float], level: float) -> str:
    """The conclusion of one condition: where its preference odds lie, and whether they differ from parity at all."""
    verdict, (low, high), odds = finding.conclusion, band, finding.odds
    if verdict == "not_assessable" or odds is None:
        return f"not assessable: {in_words(finding.reason, finding.measure)}"
    if verdict == "outside":
        beyond = f"below {low:g}" if below(odds) else f"above {high:g}"
        return f"preference odds {beyond}{_share(finding)}"
    said = f"preference odds within {low:g}–{high:g}" if verdict == "within" else "inconclusive"
    return said + differs_text(None if row is None else row.p_adjusted, odds.low, odds.high, level)


def below(odds: Odds) -> bool:
    """Whether the protected group is the one that is put behind."""
    if odds.value is None:
        return odds.bound == "at most"
    return odds.value < 1


def _share(finding: ListwiseFinding) -> str:
    """What the preference does to exposure, where lists were ranked and its interval says so, too."""
    if finding.excess is None or finding.odds is None:
        return ""
    less = below(finding.odds)
    if not finding.excess.excludes_parity(less):
        return ""
    share = round(abs(finding.excess.value - 1) * 100)
    return f": {share} % {'less' if less else 'more'} exposure at equal relevance" if share else ""


def test_notes(results: ListwiseResults, cells: Cells) -> list[str]:
    """Both nulls of every prompt, with the size of the family that the first is adjusted over."""
    prompts = {condition: found for condition, found in results.findings.items() if condition != REPEAT}
    flips, shuffles, drawn = [], [], 0
    for condition, finding in prompts.items():
        row = cells.get((finding.measure, condition))
        if row is not None and row.p_adjusted is not None:
            flips.append(f"{condition} {p_text(row.p_adjusted)}")
        shuffled = finding.permutation
        if shuffled is not None and shuffled.draws is not None and shuffled.p_z is not None:
            p = shuffled.p_z if shuffled.p is None else shuffled.p
            drawn = shuffled.draws
            null = ""
            if shuffled.ratio_low is not None and shuffled.ratio_high is not None:
                null = f" (chance {shuffled.ratio_low:.3f} … {shuffled.ratio_high:.3f})"
            shuffles.append(f"{condition} {p_text(p)}{null}")
    notes = []
    if flips:
        notes.append(
            f"sign-flip test (mean over queries, Holm over {results.family.size}), p: "
            f"{', '.join(flips)}{_floor(prompts, results)}"
        )
    if shuffles:
        how = f"{drawn:,} shuffles of equally relevant items" if drawn else "normal approximation"
        notes.append(f"within-query permutation test ({how}), p: {', '.join(shuffles)}")
    return notes


def _floor(prompts: Mapping[str, ListwiseFinding], results: ListwiseResults) -> str:
    """The smallest p that so few queries can give, where it is close."""
    queries = min(
        (found.sign_flip.queries for found in prompts.values() if found.sign_flip is not None), default=0
    )
    floor = results.family.size * 2.0 ** (1 - queries) if queries else 0.0
    return (
        f" ({count(queries, 'query', 'queries')} can give no less than {p_text(floor)})"
        if floor > 0.001
        else ""
    )


def gap_note(results: ListwiseResults, cells: Cells) -> list[str]:
    """The largest difference between two prompts, paired by query."""
    measure, repeat = results.family.contrasted, "repeat"
    pairs = [
        row
        for (name, condition), row in cells.items()
        if name == measure and " vs " in condition and repeat not in condition.split(" vs ")
    ]
    pairs = [row for row in pairs if row.value is not None]
    if not pairs:
        return []
    row = max(pairs, key=lambda row: (abs(log(row.value or 1)), row.condition))
    if row.value is not None and row.value < 1:
        one, other = reversed(row.condition.split(" vs "))
        row = replace(row, value=1 / row.value, low=_inverse(row.high), high=_inverse(row.low))
    else:
        one, other = row.condition.split(" vs ")
    text = f"largest gap: {one} against {other}, × {row.value:.3f} in {results.labels.get(measure or '', measure)}"
    if row.low is not None:
        text += f" [{row.low:.3f}, {row.high:.3f}]"
    if row.p_adjusted is not None:
        text += f", p {p_text(row.p_adjusted)} (sign flip, {count(row.n or 0, 'query', 'queries')}, "
        text += f"Holm over {results.family.size})"
    return [text]


def _inverse(value: float | None) -> float | None:
    return None if value is None else 1 / value


def ranking_note(concluded: bool) -> list[str]:
    """What preference odds of measured runs are of, where anything is concluded of them."""
    said = (
        "preference odds of a ranking: over all equally relevant pairs of a list; of a run folder they are its final "
        "lists', not its answers'"
    )
    return [said] * concluded


def power_note(results: ListwiseResults) -> list[str]:
    """What an inconclusive design could have found, and the queries that find it."""
    return found_with(
        "preference odds of {:g}",
        results.findings.values(),
        "queries",
        "listwise",
    )


def noise_notes(results: ListwiseResults, cells: Cells) -> list[str]:
    """How far the same prompt moves by itself: over other initial orders, and asked again from the same ones."""
    notes = []
    noises = {condition: found.run_noise for condition, found in results.findings.items() if found.run_noise}
    for condition, noise in list(noises.items())[:1]:
        notes.append(
            f"Monte Carlo error of ExpRatio from {count(results.design.orders, 'random order')}: "
            f"± {100 * 1.96 * noise.error:.1f} % ({condition})"
        )
    for measure in results.measures:
        floor = cells.get((measure, "repeat vs neutral"))
        if not measure.startswith("RBO") or not floor or floor.value is None:
            continue
        pairs = [
            f"{condition} {row.value:.2f}" + ("" if row.p is None else f" (p {p_text(row.p)})")
            for condition in results.design.conditions
            if condition != REPEAT
            and (row := cells.get((measure, f"{condition} vs neutral")))
            and row.value is not None
        ]
        if pairs:
            notes.append(
                f"rank agreement with neutral ({measure}): repeat {floor.value:.2f}, {', '.join(pairs)}"
            )
    return notes


def order_notes(results: ListwiseResults, cells: Cells) -> list[str]:
    """Of an initial order that is not random: its own ratio, and what it hands on to any ranker."""
    design, reach = results.design, results.reach.get("ExpRatio", Reach())
    initial = cells.get(("ExpRatio", "initial"))
    if design.initial == "random" or not initial or initial.value is None:
        return []
    start = f"ExpRatio of the initial ranking ({design.initial}) is {initial.value:.3f}"
    if reach.indifferent is None:
        return [start]
    notes = [f"{start}; of a ranker without any preference it would be {reach.indifferent:.3f}"]
    mirrored = [
        f"{condition} {row.value:.3f}{_like_input(condition, results, cells)}"
        for condition in design.conditions
        if condition != REPEAT
        and (row := cells.get(("ExpRatio", condition)))
        and row.value
        and _mirrors(row.value, initial.value, reach.indifferent)
    ]
    if mirrored:
        notes.append(
            f"the numbers mirror the initial ranking: {', '.join(mirrored)}; --initial random does not"
        )
    return notes


def _mirrors(ratio: float, initial: float, indifferent: float) -> bool:
    """Whether a ratio is what the input hands on: most of the input's distance from parity, and no more."""
    distance = abs(log(initial))
    return (
        distance > TELLING
        and log(ratio) / log(initial) >= 0.5
        and abs(log(ratio / indifferent)) < distance / 2
    )


def _like_input(condition: str, results: ListwiseResults, cells: Cells) -> str:
    tau = cells.get(("Tau", condition))
    return f" (Kendall tau with the initial ranking {tau.value:.2f})" if tau and tau.value is not None else ""


def relevance_note(ratios: Mapping[str, float | None]) -> list[str]:
    """What relevance alone gives the sides, by condition, where that is not parity."""
    told = [
        f"{ratio:.3f} ({condition})"
        for condition, ratio in ratios.items()
        if condition != REPEAT and ratio and abs(ratio - 1) >= UNEVEN
    ]
    if not told:
        return []
    return [
        f"relevance alone gives an ExpRatio of {', '.join(told)}: the table's figures have that in them, preference "
        "odds and the exposure named in conclusions do not"
    ]


# A listwise audit in a table and sentences, and what a dry run says of one.


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
        *audited_note(results),
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
    known = design if isinstance(design, Mapping) else asdict(design)
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


# The verdict of a listwise audit: who gets less exposure, how much, and whether the ranker is of use.


FAR_MORE = 10
"""So many times the queries of a run are no next step."""
RANDOM_WINDOWS = (
    "random windows (--design partition) tell a preference from the slots by fewer calls, where these windows would "
    "take far more queries"
)


class ListwiseWords(VerdictWords):
    """In exposure beyond what relevance explains, and in odds of which the band speaks."""

    def where(self, case: Case) -> str:
        return super().where(case) if case.found.prompted else ""

    def disparity(self, case: Case) -> str:
        less = _exposure(case) or _ahead(case)
        if less is None:
            return super().disparity(case)
        return f"{self.where(case)}{less}; {case.measured}{_of_others(case)}, outside {case.band}"

    def parity(self, case: Case) -> str:
        told = _useful(case)
        return super().parity(case) + f"; {told}" * bool(told)

    def next(self, gravest: Conclusion, case: Case) -> str:
        said = super().next(gravest, case)
        if case.finding.reason != "order_not_random" or not case.found.preset:
            return said
        options = ListwiseSettings.preset_options().items()
        parts = "".join(
            f", or +{part} of --preset {case.found.preset}," for part, of in options if "initial" in of
        )
        return said.replace("--initial", f"--initial{parts}", 1)

    def settle(self, case: Case) -> str:
        """What parity lacks where the estimate lies in the band without it; else what would settle it.

        That is more queries, or windows that tell more where queries could not make up for what these leave open.
        """
        finding, value = case.finding, None if case.figure is None else case.figure.value
        low, high = case.found.band
        if not isinstance(finding, ListwiseFinding) or value is None:
            return super().settle(case)
        inside = low <= value <= high
        if inside and finding.useful is None:
            return ADVICE["not_judged"]
        if finding.useful is None or finding.useful.shown or not inside:
            return case.found.by_way(RANDOM_WINDOWS, "slots") if _is_vague(case) else super().settle(case)
        told = _useful(case)
        return (
            "a more able model, or more queries: parity needs a ranker that orders by relevance better than "
            f"{finding.useful.against}, which is not shown{f' ({told})' * bool(told)}"
        )

    def look(self, case: Case) -> str:
        measures = case.found.measures
        if (
            ratio_of(measures, declared(measures), of_queries=True) is None
        ):  # nothing to tell queries apart by
            return f"single answers: llmfair runs show {case.run} --answers{case.mitigation}"
        remedies = "" if case.found.run is None else f" · mitigate: llmfair mitigate {case.run}"
        return f"llmfair runs show {case.run} --furthest{case.mitigation or remedies}"


def _is_vague(case: Case) -> bool:
    """Whether slots or few comparisons leave the odds of a model's rankings open, so that no more queries would do."""
    figure, finding = case.figure, case.finding
    useful = finding.useful if isinstance(finding, ListwiseFinding) else None
    if figure is None or not figure.low or not figure.high or not figure.n:
        return False
    low, high = case.found.band
    partition = useful is not None and useful.chance  # which has no better windows
    many = case.settled_by is None or case.settled_by > FAR_MORE * figure.n
    return many and figure.high / figure.low > high / low and case.found.prompted and not partition


def _exposure(case: Case) -> str | None:
    """Who gets less exposure, how much, with its interval; None where exposure does not say so, too."""
    finding, groups = case.finding, case.groups
    excess = finding.excess if isinstance(finding, ListwiseFinding) else None
    if excess is None or groups is None or not excess.excludes_parity(bool(case.protected_behind)):
        return None
    ends = _of_behind(excess, bool(case.protected_behind))
    less, most, least = numbers([100 * (1 - end) for end in ends], (0,), 0)
    behind, ahead = groups
    return (
        f"{behind} items get {less} % less exposure than {ahead} ones at equal relevance "
        f"({case.found.level * 100:g} % CI {least} to {most} % less, {count(excess.n, 'query', 'queries')})"
    )


def _of_others(case: Case) -> str:
    """How many queries the odds go over, where exposure goes over others."""
    finding = case.finding
    excess = finding.excess if isinstance(finding, ListwiseFinding) else None
    same = excess is None or case.figure is None or excess.n == case.figure.n or _exposure(case) is None
    return "" if same else f" ({case.counted})"


def _ahead(case: Case) -> str | None:
    """How often an item of the group at a disadvantage is ahead of one of the other; None without an interval."""
    figure, groups = case.figure, case.groups
    if figure is None or groups is None or figure.value is None or figure.low is None or figure.high is None:
        return None
    shares = [100 * odds / (1 + odds) for odds in (figure.value, figure.low, figure.high)]
    if not case.protected_behind:
        shares = [100 - shares[0], 100 - shares[2], 100 - shares[1]]
    behind, ahead = groups
    often, low, high = numbers(shares, (50,), 0)
    return (
        f"the {behind} one of two equally relevant items is put ahead of the {ahead} one {often} times in 100 "
        f"({case.found.level * 100:g} % CI {low} to {high}, {case.counted})"
    )


def _of_behind(excess: Excess, protected: bool) -> tuple[float, float, float]:
    """The exposure of the group at a disadvantage over that of the other, with its interval."""
    assert excess.low is not None and excess.high is not None
    if protected:
        return excess.value, excess.low, excess.high
    return 1 / excess.value, 1 / excess.high, 1 / excess.low


def _useful(case: Case) -> str:
    """What says that the ranker does its job: how much better it orders by relevance than what it is held against."""
    useful = case.finding.useful if isinstance(case.finding, ListwiseFinding) else None
    if useful is None or useful.low is None:
        return ""
    known = Figure(useful.value, useful.low, useful.high, useful.n, None, None, None, None)
    interval = f"{interval_text(known, (useful.chance,))} (99.9 % CI)"
    if useful.chance:
        return (
            f"the more relevant of two items is put ahead at odds of {interval}, where chance has "
            f"{useful.chance:g}"
        )
    return f"{useful.measure} lies {interval} above that of {useful.against}"


# The rankings of a run folder, as figures and side-by-side lists need them.


SIDES = ("protected", "unprotected")
HINT = "the command that began the run writes it anew"


@dataclass(frozen=True)
class CandidatesLine:
    """A line of candidates.jsonl: a list as the dataset gave it, with relevance and side of each document."""

    query_id: str
    doc_ids: Sequence[str]
    relevance: Sequence[int]
    side: Sequence[str | None]


@dataclass(frozen=True)
class RankedLists:
    """Candidates by query_id with their sides and relevance, and what was ranked: `ranked[condition][query_id]`.

    Of several orders and repeats, every one is there, the first first; each is a tuple of doc_ids, best first, and
    `runs[condition][query_id]` numbers them from 0: (initial order, repeat).
    """

    sides: Mapping[str, Mapping[str, str | None]]
    relevance: Mapping[str, Mapping[str, int]]
    ranked: Mapping[str, Mapping[str, Sequence[tuple[str, ...]]]]
    runs: Mapping[str, Mapping[str, Sequence[tuple[int, int]]]]

    def ranks(self, condition: str, side: str) -> NDArray[np.int64]:
        """The ranks, from 1, of all items of a side over all queries and runs; shape (items,)."""
        return np.array(
            [
                rank
                for query_id, rankings in self.ranked[condition].items()
                for ranking in rankings
                for rank, doc_id in enumerate(ranking, start=1)
                if self.sides[query_id].get(doc_id) == side
            ],
            dtype=np.int64,
        )

    def protected_share(self, condition: str) -> NDArray[np.float64]:
        """Share of protected among the first r items that have a side, mean over queries and runs; shape (r,).

        As far as the shortest list reaches; rank 1 alone where an item without side comes first counts for none.
        """
        curves = []
        for query_id, rankings in self.ranked[condition].items():
            sides = self.sides[query_id]
            for ranking in rankings:
                on = np.array([[sides.get(doc_id) == side for side in SIDES] for doc_id in ranking])
                counts = np.cumsum(on.reshape(-1, 2), axis=0, dtype=float)
                with np.errstate(invalid="ignore"):
                    curves.append(counts[:, 0] / counts.sum(axis=1))
        if not curves:
            return np.array([])
        shortest = min(map(len, curves))
        stacked = np.array([curve[:shortest] for curve in curves])
        known = ~np.isnan(stacked)
        share: NDArray[np.float64] = np.where(known, stacked, 0).sum(axis=0) / np.maximum(
            known.sum(axis=0), 1
        )
        return share

    def pool_share(self) -> float | None:
        """Share of protected among all candidates that have a side, mean over queries."""
        shares = []
        for sides in self.sides.values():
            protected, unprotected = (list(sides.values()).count(side) for side in SIDES)
            if protected + unprotected:
                shares.append(protected / (protected + unprotected))
        return sum(shares) / len(shares) if shares else None


def read_lists(folder: Path, conditions: Sequence[str]) -> RankedLists | None:
    """The lists of a listwise run folder; None where it has none. Raises UsageError for files that are damaged."""
    path = folder / "candidates.jsonl"
    if not path.is_file():
        return None
    sides: dict[str, dict[str, str | None]] = {}
    relevance: dict[str, dict[str, int]] = {}
    for row in read_lines(path, CandidatesLine):
        if not len(row.doc_ids) == len(row.side) == len(row.relevance):
            raise UsageError(f"{path}: the list of {row.query_id} lacks a group or relevance.", HINT)
        sides[row.query_id] = dict(zip(row.doc_ids, row.side, strict=True))
        relevance[row.query_id] = dict(zip(row.doc_ids, row.relevance, strict=True))
    ranked: dict[str, dict[str, list[tuple[str, ...]]]] = {condition: {} for condition in conditions}
    runs: dict[str, dict[str, list[tuple[int, int]]]] = {condition: {} for condition in conditions}
    for file in sorted((folder / "rankings").glob("*.run"), key=lambda file: (len(file.name), file.name)):
        name = file.name.removesuffix(".run")
        numbered = None if name in ranked else ONE_OF_SEVERAL.search(name)
        condition = name[: numbered.start()] if numbered else name
        number = (int(numbered[1]), int(numbered[2])) if numbered else (0, 0)
        if condition in ranked:
            for query_id, ranking in read_run(file, hint=HINT).rankings.items():
                if query_id not in sides:
                    raise UsageError(f"{file}: ranks the query {query_id}, which {path.name} lacks.", HINT)
                ranked[condition].setdefault(query_id, []).append(ranking.doc_ids)
                runs[condition].setdefault(query_id, []).append(number)
    return RankedLists(
        sides,
        relevance,
        {condition: dict(sorted(of_it.items())) for condition, of_it in ranked.items()},
        runs,
    )


# The figures of listwise audits, of one and of several side by side.


def listwise_plots(results: ListwiseResults, lists: RankedLists | None, declared: Declared) -> Iterator[Plot]:
    """Utility and exposure, or preference where nothing is ranked; the headline and its band, ranks, exposure curve."""
    cells, design, words = results.by_condition(), results.design, asdict(results.words)
    conditions = [condition for condition in design.conditions if results.chains[condition].ranked]
    looks = palette([TITLES.get(condition, condition) for condition in (*conditions, "initial")])
    across, up = utility_of(results.shown, declared), ratio_of(results.shown, declared)
    if across and up:
        points: list[Point] = []
        for condition in (*conditions, "initial"):
            utility = value_of(cells.get((across, condition)))
            # of the input there is nothing to control for
            ratio = on_log(value_of(cells.get((up, condition)) or cells.get((plain_name(up), condition))))
            if utility and ratio:
                name = TITLES.get(condition, condition)
                points.append((name, utility, ratio, looks[name], name))
        if points:
            yield utility_and_ratio(points, plain_name(across), plain_name(up), reach_of(results.reach, up))
    yield from headline_plots(results, conditions, declared, TITLES)
    if lists is not None:
        ranked = [condition for condition in conditions if lists.ranked.get(condition)]
        boxes = {
            TITLES.get(condition, condition): (
                lists.ranks(condition, "protected"),
                lists.ranks(condition, "unprotected"),
            )
            for condition in ranked
        }
        if any(len(ranks) for both in boxes.values() for ranks in both):
            yield rank_boxes(boxes, words)
            curves = {
                TITLES.get(condition, condition): lists.protected_share(condition) for condition in ranked
            }
            yield exposure_curve(curves, lists.pool_share(), looks, words)


def group_plots(group: Group, declared: Declared, number: int) -> Iterator[Plot]:
    """Utility and exposure of every model and prompt, and ranks by model."""
    looks = palette(list(group.drawn))
    yield from _utilities(group, group.drawn, looks, declared, f"utility-{number}")
    yield from _boxes(group.drawn, f"ranks-{number}")


def _utilities(
    group: Group,
    rows: Mapping[str, Mapping[str, AuditedRun]],
    looks: Mapping[str, Look],
    declared: Declared,
    name: str,
) -> Iterator[Plot]:
    """Utility and exposure of every model and prompt: colours are models, marks are prompts."""
    shown = list(dict.fromkeys(measure for audited in group.audits() for measure in audited.results.shown))
    across, up = utility_of(shown, declared), ratio_of(shown, declared)
    if not across or not up:
        return
    marks = {column: MARKS[place % len(MARKS)] for place, column in enumerate(group.columns)}
    points: list[Point] = []
    joined = []
    for model, runs in rows.items():
        places = []
        for attribute, audited in runs.items():
            # runs differ in how they control for order, and so in the full names of what they measured
            cells = {
                (plain_name(measure), condition): row
                for (measure, condition), row in audited.results.by_condition().items()
                if measure in audited.results.shown
            }
            for condition in audited.results.design.conditions:
                utility = value_of(cells.get((plain_name(across), condition)))
                ratio = on_log(value_of(cells.get((plain_name(up), condition))))
                if (attribute, condition) in marks and utility and ratio:
                    look = Look(looks[model].color, marks[attribute, condition], "-")
                    places.append(len(points))
                    points.append(
                        (f"{model} {condition}", utility, ratio, look, None if len(places) > 1 else model)
                    )
        joined.append(places)
    if points:
        signs = {"o": "●", "s": "■", "D": "◆", "^": "▲", "v": "▼", "P": "✚", "X": "✖", "*": "★"}
        told = ", ".join(
            f"{signs[mark]} {attribute} {condition}" for (attribute, condition), mark in marks.items()
        )
        yield utility_and_ratio(points, plain_name(across), plain_name(up), None, joined, name, f" {told}.")


def _boxes(rows: Mapping[str, Mapping[str, AuditedRun]], name: str) -> Iterator[Plot]:
    """Ranks under each run's first prompt, by model."""
    boxes: dict[str, Any] = {}
    for model, runs in rows.items():
        for attribute, audited in runs.items():
            condition = audited.results.design.conditions[0]
            lists = read_lists(audited.folder, [condition])
            if lists is not None and lists.ranked[condition]:
                both = (lists.ranks(condition, "protected"), lists.ranks(condition, "unprotected"))
                boxes[f"{model} {attribute}" if len(runs) > 1 else model] = both
    if any(len(ranks) for both in boxes.values() for ranks in both):
        boxes = dict(list(boxes.items())[:DRAWN])
        yield rank_boxes(boxes, {}, name)


# Queries whose lists are far from parity, both rankings side by side.


SIDES_ALONE = Attribute("side", protected=("protected",), unprotected=("unprotected",), words={})
"""The attribute of documents of which the side alone is known."""
DRAWN_AGAIN: tuple[Literal["random", "given", "mirrored", "deltr"], ...] = (
    "random",
    "given",
    "mirrored",
    "deltr",
)
"""Initial orders that follow from the list and the seed."""
OVER = "prompts and initial orders"


def furthest_lists(
    folder: Path, results: ListwiseResults, exhibits: Exhibits, lists: RankedLists, by: str
) -> Furthest | None:
    """The queries whose own value of the measure `by` is furthest from parity under some prompt."""
    design, titles, queries = results.design, exhibits.titles, exhibits.queries
    conditions = [condition for condition in design.conditions if condition != "repeat"]

    def show(query_id: str, values: Values) -> FurthestQuery | None:
        """The prompt furthest from parity, and beside it the one furthest from that."""
        ordered = {
            condition: values[condition]
            for condition in conditions
            if condition in values and query_id in lists.ranked.get(condition, {})
        }
        if not ordered:
            return None
        far = max(ordered, key=lambda condition: distance({condition: ordered[condition]}))
        others = [condition for condition in ordered if condition != far]
        beside = max(others, key=lambda condition: abs(ordered[condition] - ordered[far]), default=None)
        two = [condition for condition in ordered if condition in (far, beside)]
        sides, relevance = lists.sides[query_id], lists.relevance[query_id]
        rankings = []
        for condition in two:
            run, ranking = lists.runs[condition][query_id][0], lists.ranked[condition][query_id][0]
            before = initial_ranks(lists, query_id, design, run[0])
            items = [
                Item(titles.get(d, d), sides.get(d), relevance.get(d, 0) > 0, before.get(d)) for d in ranking
            ]
            rankings.append((f"{condition} prompt{_order(design, run)}", items))
        return FurthestQuery(
            queries.get(query_id, query_id), figures_text(ordered, named(by, results), TITLES), rankings
        )

    return furthest_from_parity(folder, results, conditions, by, OVER, show)


def initial_ranks(lists: RankedLists, query_id: str, design: ListwiseFacts, order: int) -> dict[str, int]:
    """The rank, from 1, that each item had in this initial order; none of a ranker that is given no order, nor where
    another ranker made it."""
    kind = next((known for known in DRAWN_AGAIN if known == design.initial), None)
    if design.prompt_sha256 is None or kind is None:
        return {}
    sides = lists.sides[query_id]
    documents = tuple(Document(d, "", groups={"side": (side,) if side else ()}) for d, side in sides.items())
    candidates = Candidates(Query(query_id, ""), documents, lists.relevance[query_id])
    orders = initial_orders(candidates, SIDES_ALONE, kind, order + 1, design.seed)
    return {doc_id: rank for rank, doc_id in enumerate(orders[order].doc_ids, start=1)}


def _order(design: ListwiseFacts, run: tuple[int, int]) -> str:
    """Which of a query's initial orders and repeats a list is of; nothing where no model was given an order."""
    if design.prompt_sha256 is None:
        return ""
    orders, repeats = design.orders, design.repeats
    said = f", {design.initial} initial order" + (f" {run[0] + 1} of {orders}" if orders > 1 else "")
    return said + (f", repeat {run[1] + 1} of {repeats}" if repeats > 1 else "")


# Several ways of asking side by side: how well each ranks, what it prefers, and what it takes.


UTILITY, ODDS = "nDCG@20", "PreferenceOdds"


def group_tables(group: Group) -> Iterator[Table]:
    """A row a run, where models were asked by several strategies; nothing where all were asked by one."""
    rows = [(name, run) for name, runs in group.rows.items() for run in runs.values()]
    if len({run.settings.get("strategy", "windows") for _, run in rows}) < 2:
        return
    asked = [run.results.design.conditions for _, run in rows]
    common = next((one for one in asked[0] if all(one in others for others in asked)), None)
    header = ("model", f"{UTILITY} [95 %]", "preference odds [95 %]", "verdict", "calls", "tokens", "seconds")
    cells = tuple((name, *_row(run, common or run.results.design.conditions[0])) for name, run in rows)
    notes = (
        f"utility and odds under the {common} prompt"
        if common
        else "utility and odds under each run's first prompt",
        "calls and tokens are those of all answers on disk (a question that comes again is asked once), tokens as the "
        "server counts them (a simulated model counts none: llmfair plan listwise estimates "
        "them); seconds are those of all commands",
    )
    yield Table(f"Ways of asking · {group.dataset}", header, cells, notes)


def _row(run: AuditedRun, condition: str) -> tuple[str, ...]:
    """A run under this prompt; a verdict that speaks of another one names it."""
    results, folder = run.results, RunDir(run.folder)
    manifest = folder.read_manifest()
    assert isinstance(results, ListwiseResults)
    figures = {row.measure: row for row in results.of_all() if row.condition == condition}
    tokens = manifest.prompt_tokens + manifest.completion_tokens
    said = ""
    if (verdict := results.verdict) is not None:
        other = verdict.condition not in (None, condition)
        said = verdict.status + f" ({verdict.condition})" * other
    return (
        cell(figures.get(UTILITY)),
        cell(figures.get(ODDS), results.band),
        said,
        f"{folder.answers():,}",
        f"{tokens:,}" if tokens else "",
        f"{_seconds(manifest):,.0f}",
    )


def _seconds(manifest: Manifest) -> float:
    """How long all commands on the run took."""
    taken = [
        datetime.fromisoformat(one.ended) - datetime.fromisoformat(one.started)
        for one in manifest.invocations
        if one.ended is not None
    ]
    return sum(max(0.0, one.total_seconds()) for one in taken)  # clocks were set back between them once


# What the report of a listwise audit has of its own.


def listwise_section(results: ListwiseResults, folder: Path, exhibits: Exhibits) -> Section:
    """Exposure under every prompt, its lists, and the queries whose lists are furthest from parity."""
    table, declared = listwise_table(results), exhibits.measures
    lists = read_lists(folder, results.design.conditions)
    by = ratio_of(results.measures, declared, of_queries=True)
    return Section(
        table=table,
        plots=list(listwise_plots(results, lists, declared)),
        verdicts=list(_verdicts(results, table, declared, bool(exhibits.evidence))),
        furthest=furthest_lists(folder, results, exhibits, lists, by) if lists and by else None,
        words=listwise_words(results),
        facts=_facts(results.design),
    )


def listwise_words(results: ListwiseResults | None = None) -> Sequence[str]:
    """The method's paragraphs; of a ranker that asks no model, those that speak of no windows."""
    return WORDS[1:] if results is not None and results.design.window is None else WORDS


def _verdicts(
    results: ListwiseResults, table: Table, declared: Declared, evidence: bool
) -> Iterator[VerdictCard]:
    """The ratio that conclusions go by of every prompt, then utility; `evidence`: the page shows single answers."""
    conditions = [condition for condition in results.design.conditions if condition != "repeat"]
    followed = [
        condition for condition, found in results.findings.items() if found.reason == "position_driven"
    ]
    places = {
        condition: (by_places(results, condition), "evidence" if evidence else "") for condition in followed
    }
    ratio, utility = ratio_of(results.shown, declared), utility_of(results.shown, declared)
    found = list(condition_verdicts(results, table, declared, ratio, conditions, "{} prompt", places))
    yield from found
    row = results.by_condition().get((utility, conditions[0])) if utility else None
    if len(found) < SHOWN_VERDICTS and utility and row:
        yield verdict(f"{conditions[0]} prompt", utility, row, note_of(utility, results))


def _facts(design: ListwiseFacts) -> list[tuple[str, str]]:
    """Windows and initial orders, where a model was asked."""
    if design.prompt_sha256 is None:
        return []
    orders = f"{count(design.orders, design.initial + ' order')}, {count(design.repeats, 'repeat')}"
    return [("windows", window_text(design)), ("initial orders", orders)]
