"""An audit of a generator in a table, sentences and plots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import fsum
from pathlib import Path
from shlex import quote
from typing import Any

from msgspec import structs

from llmfair.asking.journal import completion_of
from llmfair.audits.rag import RAG
from llmfair.audits.rag.design import DETERMINISTIC, GOLD
from llmfair.audits.rag.measure import OF_SLOTS
from llmfair.audits.rag.results import (
    AlphaTest,
    Curve,
    CurvePoint,
    IntervalCell,
    Intervals,
    RagFinding,
    RagResults,
)
from llmfair.audits.verdict import ADVICE, ANSWERED, LOOK, UNFINISHED, UNREADABLE, Case, Conclusions
from llmfair.io.files import query_figures
from llmfair.metrics.base import plain_name
from llmfair.nouns import Conclusion
from llmfair.rankers.reader import read_support
from llmfair.report.exhibits import Declared, Exhibits
from llmfair.report.figures import COST, value_of
from llmfair.report.groups import Group
from llmfair.report.plots.base import Plot, palette
from llmfair.report.plots.ratios import Line, Value, curves, scattered
from llmfair.report.section import Section
from llmfair.report.tables import (
    FEW_QUERIES,
    Table,
    cell,
    conclusion_text,
    conditions_table,
    count,
    filled,
    in_words,
    p_text,
    percent,
)
from llmfair.results import Band, Figure, RunVerdict, Words, absent_row
from llmfair.stats import tradeoff
from llmfair.stats.significance import holm
from llmfair.stats.tradeoff import ANCHORS, INTERVALS, STARRED

# How an audit of a generator is made and concluded, in the report's words.


WORDS = (
    "A retriever scores every item of a query. Instead of always showing the same best k, lists are drawn from a "
    "Plackett-Luce model of its scores: alpha 0 shows every item alike often, a large alpha nearly always the best k. "
    "The generator answers each distinct list once.",
    "An item is useful where the answer is better with it alone than without any (its gain), or where it is judged "
    "relevant. Expected exposure is the exact probability that an item is shown. EE-D says how unequally exposure is "
    "spread over items (1: always the same ones, 0: all alike), EE-R how much of it useful items get.",
    "EU is the mean utility of the answers over the lists drawn, EU-change the same less that of the retriever's one "
    "list by score, paired by query. Utility is kept where the whole interval of the change is at least minus the "
    "margin; where fewer than 5 queries change at all, it takes that the share of queries that may change could "
    "lose no more than the margin.",
    "An answer is credited to shown items that hold it, or that it cites: EAR is their share of the slots, EAE-D how "
    "unequally credit is spread over items.",
)


# What an audit of a generator found as a table: a line a setting, from one list by score to lists by usefulness.


SAID = {
    Conclusion.WITHIN: "utility kept",
    Conclusion.OUTSIDE: "utility lost",
    Conclusion.INCONCLUSIVE: "inconclusive",
}


def rag_table(results: RagResults) -> Table:
    """One row a setting, one column a measure."""
    table = conditions_table(RAG.title, results, RAG.condition, {}, RAG.unit)
    said = {
        condition: SAID.get(results.findings[condition].conclusion, text)
        if condition in results.findings
        else text
        for condition, text in table.said.items()
    }
    concludes = table.header[-1] == "conclusion"  # a column without a word is not there
    rows = tuple((*row[:-1], said[row[0]]) for row in table.rows) if concludes else table.rows
    return replace(table, rows=rows, said=said, notes=(*notes(results), *table.notes))


def conclusion(finding: RagFinding, row: Figure | None, level: float, band: Band, words: Words) -> str:
    """A conclusion in the table of measured runs."""
    return SAID.get(finding.conclusion) or conclusion_text(finding)


def what_was_shown(about: Mapping[str, Any]) -> str:
    """How many items, or which output beside which."""
    if about["task"] == "support":
        return f"'{about['output']}' beside {about['doc_ids'][0]}"
    return f"{len(about['doc_ids'])} items"


def how_ended(row: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """How an answer ended, and of a judge's whether it can be read."""
    if row["finish"] != "stop":
        return str(row["finish"])
    judging = row["about"]["task"] == "support"
    return "neither yes nor no" if judging and read_support(completion_of(row)) is None else "ok"


def notes(results: RagResults) -> Iterator[str]:
    """How many queries the figures speak of, and what their items are like."""
    of, design = results.collection, results.design
    dropped = sum(of.dropped.values())
    if of.kept and of.items is not None and of.useful is not None and of.useful_share is not None:
        yield (
            f"{count(of.kept, 'query', 'queries')} of {of.items:.0f} items, {of.useful:.1f} of them useful "
            f"({100 * of.useful_share:.0f} %)"
            + f"; {dropped} more dropped with fewer than 2 useful items"
            * bool(dropped)
        )
    elif dropped:
        yield f"no query has 2 useful items: all {dropped} are dropped"
    yield (
        f"the generator reads {count(design.k, 'item')} of {count(design.samples, 'list')} drawn a query; EE-D is 1 "
        "where a query always shows the same items, and 0 where it shows all alike"
    )
    yield (
        f"utility: {design.utility}; kept where the whole interval of its change is at least {-design.margin:g}, and "
        "enough queries change to tell"
    )
    if (judged := results.judged) is not None and judged.asked:
        yield (
            f"by={judged.by}: {judged.model} was asked of {count(judged.asked, 'pair')} of item and output whether the "
            f"item supports it, and says so of {percent(judged.supported, judged.asked)}"
            + f"; {count(judged.unparseable, 'answer is', 'answers are')} neither yes nor no, and the lists they are "
            "of have no EAR and no EAE-D" * bool(judged.unparseable)
        )
    if design.uncredited:
        yield (
            f"EAR and EAE-D are not assessable: {in_words(design.uncredited, 'EAR')}; --hypothesis prompt has it claim "
            "what the prompt makes of it"
        )
    for condition, counted in results.answers.items():
        if counted.unparseable:
            yield (
                f"{condition}: {percent(counted.unparseable, counted.outputs)} of {counted.outputs:,} outputs are no "
                "answer ("
                + ", ".join(f"{name} {n}" for name, n in counted.classes.items())
                + "); they are measured as they are"
            )


# Tables of what fairer lists cost, in the layout of Kim & Diaz, "Towards Fair RAG", ICTIR 2025, Tables 1 and 2.


Named = tuple[str, ...]
"""What a row is of: a retriever; of several runs the data set and the generator, too."""
NONE = "–"
APART = 0.01
"""Of the paper's tests of alphas."""


def collection_table(results: RagResults) -> Table:
    """Which queries the figures speak of; beside the share of useful items what lists drawn at random have of them."""
    of = results.collection
    header = ["queries kept", "dropped: no useful item", "dropped: one", "items n", "useful m", "m/n"]
    cells = [
        f"{of.kept:,}",
        *(f"{of.dropped.get(useful, 0):,}" for useful in ("0", "1")),
        *(
            NONE if value is None else f"{value:.{digits}f}"
            for value, digits in ((of.items, 1), (of.useful, 1), (of.useful_share, 3))
        ),
    ]
    figures, factors = results.by_condition(), results.design.factors or {}
    for name in (name for name, varied in factors.items() if varied["alpha"] == 0):
        header.append(f"EE-R of {name}")
        cells.append(cell(figures.get(("EE-R", name))))
    notes = (_alphas_apart(retriever, tests) for retriever, tests in results.alpha_tests.items() if tests)
    return Table("Collection: means over the queries kept", tuple(header), (tuple(cells),), tuple(notes))


def _alphas_apart(retriever: str, tests: Sequence[AlphaTest]) -> str:
    tested = [one.p for one in tests if one.p is not None]
    if not tested:
        return f"{retriever}: too few queries to test whether alphas differ in disparity"
    apart, pairs = sum(p < APART for p in tested), count(len(tested), "pair", "pairs")
    return f"{retriever}: {apart} of {pairs} of alphas differ in disparity (t test paired by query, p below {APART:g})"


def slopes_table(rows: Mapping[Named, Curve], named: Sequence[str]) -> Table:
    """Table 1: how one measure rises with another, and the area below it."""
    across, up = next((one.across, one.up) for one in rows.values())
    lines = tuple(
        (
            *name,
            _number(one.slope),
            _number(one.area),
            _number(one.slope_of_points),
            _number(one.area_observed),
            "" if one.low is None or one.high is None else f"{one.low:g}–{one.high:g}",
            f"{one.observations:,} ({count(one.queries, 'query', 'queries')})" if one.observations else "",
        )
        for name, one in rows.items()
    )
    header = (*named, "slope", "area", "slope of means", "area observed", "range", "observations")
    notes = (
        "observation: a query under an alpha, without the one list by score; slope: of the least-squares line over all",
        f"means: of the observations nearest to 0, 0.2 … 1 of {across}; area: below them by trapezoid, from 0 to 1 "
        "with constant ends, and over the range of those that are there; the paper defines neither slope nor area",
    )
    return filled(Table(f"{up} over {across}: slope and area", header, lines, notes))


def intervals_table(rows: Mapping[Named, Intervals], named: Sequence[str]) -> Table:
    """Table 2: utility by interval of disparity, less that of the one list by score, pooled and unpaired."""
    disparity, utility = next((one.disparity, one.utility) for one in rows.values())
    lines = []
    for name, one in rows.items():
        cells = {found.interval: found for found in one.cells}
        baseline = NONE if one.baseline is None else f"{one.baseline:.3f}"
        lines.append((*name, baseline, *(_pooled(cells.get(interval)) for interval in INTERVALS)))
    return Table(
        f"Change of {utility} by interval of {disparity}, pooled as in the paper; {_said(rows.values())}",
        (*named, f"{utility} of the one list", *INTERVALS),
        tuple(lines),
        (
            f"mean {utility} of the observations in the interval less that of the one list by score, over all queries; "
            f"* unpaired p below {STARRED:g} (Student), which takes observations of one query for independent; in "
            "brackets observations and their queries",
        ),
    )


def paired_table(rows: Mapping[Named, Intervals], named: Sequence[str]) -> Table | None:
    """The same, each query beside itself; None where no interval has an observation."""
    lines = tuple(
        (
            *name,
            found.interval,
            f"{found.observations:,}",
            f"{found.queries:,}",
            _paired(found.paired),
            *(
                "" if p is None else p_text(p)
                for p in (found.paired.p, found.paired.p_adjusted, found.p_welch, found.p_student)
            ),
        )
        for name, one in rows.items()
        for found in one.cells
        if found.observations and found.paired is not None
    )
    if not lines:
        return None
    header = (
        *named, "interval", "observations", "queries", "paired change", "p", "p (Holm)", "p (Welch)", "p (Student)",
    )  # fmt: skip
    note = "paired change: mean over the interval's queries of their own mean in it less their own one list by score"
    return filled(Table("The same changes paired by query", header, lines, (note,)))


def tradeoff_tables(
    rows: Mapping[Named, tuple[Intervals, Sequence[Curve]]], named: Sequence[str]
) -> Iterator[Table]:
    """Tables 2 and 1 of these retrievers, of those that drew anything."""
    intervals = {name: table for name, (table, _) in rows.items() if table.cells}
    if intervals:
        yield intervals_table(intervals, named)
        yield from filter(None, [paired_table(intervals, named)])
    first = {name: of[0] for name, (_, of) in rows.items() if of and of[0].points}
    if first:
        yield slopes_table(first, named)


def _said(tables: Iterable[Intervals]) -> str:
    """What the paired tests say of all cells together."""
    tested = [
        one.paired
        for table in tables
        for one in table.cells
        if one.paired is not None and one.paired.p_adjusted is not None
    ]
    if not tested:
        return "paired by query nothing can be tested"
    found = [one for one in tested if (one.p_adjusted or 0) < STARRED]
    ways = [
        f"{sum((one.value or 0) * sign > 0 for one in found)} {way}"
        for sign, way in ((1, "up"), (-1, "down"))
    ]
    told = f" ({', '.join(ways)})" * bool(found)
    return (
        f"paired by query {len(found)} of {count(len(tested), 'interval differs', 'intervals differ')}{told}"
    )


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.4f}"


def _pooled(found: IntervalCell | None) -> str:
    if found is None or found.difference is None:
        return NONE
    counted = f" ({found.observations:,}, {count(found.queries, 'query', 'queries')})"
    return f"{found.difference:+z.3f}{'*' * found.starred}{counted * bool(found.observations)}"


def _paired(change: Figure) -> str:
    if change.value is None:
        return NONE
    between = (
        "" if change.low is None or change.high is None else f" [{change.low:+z.3f}, {change.high:+z.3f}]"
    )
    return f"{change.value:+z.3f}{between}"


# The verdict of an audit of a generator: the fairest setting whose utility is kept, and what fairness costs.


LOST, NOT_ASSESSABLE, INCONCLUSIVE, KEPT = RAG.statuses
ADDED = {
    "too_few_queries": "more queries: fewer than 5 with two useful items say nothing",
    "no_useful_items": "a generator that answers better with items than without, or --useful qrels and judgements",
}


def rag_verdict(found: Conclusions) -> RunVerdict:
    """Of the settings whose utility is kept the fairest; where there is none, what stands in the way."""
    cases = found.cases

    def those(conclusion: Conclusion) -> list[Case]:
        return [case for case in cases if case.finding.conclusion == conclusion]

    if kept := those(Conclusion.WITHIN):
        return _told(KEPT, min(kept, key=_disparity), "{} is the fairest setting whose utility is kept")
    if open_ := those(Conclusion.INCONCLUSIVE):
        case = max(
            open_, key=lambda one: one.figure.low if one.figure and one.figure.low is not None else -1.0
        )
        reason = case.finding.reason
        why = in_words(reason, case.finding.measure) if reason else "the interval crosses the margin"
        return _told(INCONCLUSIVE, case, f"whether {{}} keeps its utility is open, as {why}")
    if lost := those(Conclusion.OUTSIDE):
        case = max(lost, key=_disparity)
        return _told(LOST, case, "{} is the least fair of the settings drawn, and loses utility even so")
    if not cases and found.run is None:
        return RunVerdict(
            status=NOT_ASSESSABLE,
            sentence="a log says how unequally items were shown, not what fairer lists would have cost",
            next="llmfair rag asks the generator about fairer lists of the same items",
        )
    if not cases and not found.complete:
        why, advice = "not all questions are answered yet", found.by_way(UNFINISHED, "unfinished")
    else:
        reason = str(cases[0].finding.reason if cases else "no_useful_items")
        why = in_words(reason, "EU-change")
        advice = found.advice(
            ANSWERED if reason in UNREADABLE else ADDED.get(reason, ADVICE.get(reason, LOOK))
        )
    return RunVerdict(
        status=NOT_ASSESSABLE,
        sentence=f"nothing can be said of what fairness costs: {why}",
        next=advice,
    )


def _disparity(case: Case) -> float:
    return float(getattr(case.finding, "disparity", None) or 0.0)


def _told(status: str, case: Case, what: str) -> RunVerdict:
    found, figure = case.found, case.figure
    figure = figure or absent_row(case.finding.measure, case.condition)
    value, low, high, n = figure.value, figure.low, figure.high, figure.n
    change = "" if value is None else f"utility changes by {value:+.3f}"
    if low is not None and high is not None and low < high:
        change += (
            f" ({found.level * 100:g} % CI {low:+.3f} to {high:+.3f}, {count(n or 0, 'query', 'queries')})"
        )
    caution = "; few queries, so read the interval with care" if n is not None and n < FEW_QUERIES else ""
    unfinished = "" if found.complete else "; not all questions are answered yet"
    return RunVerdict(
        status=status,
        sentence=f"{what.format(case.condition)}: expected exposure disparity {_disparity(case):.3f}, where the one "
        f"list by score has 1; {change}{caution}{unfinished}",
        next=_next(status, case),
        condition=case.condition,
        measure=case.finding.measure,
        estimate=value,
        low=low,
        high=high,
        n=n,
    )


def _next(status: str, case: Case) -> str:
    found = case.found
    if not found.complete:
        return found.by_way(UNFINISHED, "unfinished")
    if status == KEPT:
        margin = getattr(case.finding, "margin", 0.0)
        gate = quote(f"{case.finding.measure}:{case.condition}>={-margin:g}")
        again = found.ways.get("again", "llmfair rag")
        return f"hold a build to it: {again} --require {gate} --require-interval"
    if status == INCONCLUSIVE:
        return found.by_way("more queries narrow the interval; larger --alpha costs less", "alpha")
    return found.by_way("larger --alpha, which follow the scores more closely, cost less utility", "alpha")


# The figures of audits of generators: disparity by alpha, what fairer lists cost, and where credit goes. Kim & Diaz,
# "Towards Fair RAG", ICTIR 2025, Figures 3 to 5: one colour a retriever, or a generator where several are side by
# side.


Curves = Mapping[str, Sequence[Curve]]
"""By retriever, or by what else the lines of a figure are."""
TOLD: Mapping[tuple[str, str], tuple[str, str, str]] = {
    ("EE-D", "EU"): (COST, "What fairer lists cost", "Utility of the answers"),
    ("EE-D", "EE-R"): ("useful-shown", "Useful items shown", "Exposure of useful items"),
    ("EE-R", "EU"): ("useful-utility", "What useful items bring", "Utility of the answers"),
    ("EE-D", "EAR"): ("credited-share", "Items that answers rest on", "Share of slots that answers are credited to"),
    ("EE-R", "EAR"): ("useful-credited", "Useful items and credit", "Share of slots that answers are credited to"),
    ("EE-D/k'", "EAE-D"): ("credited-disparity", "Credit beside exposure", "How unequally credit is spread"),
}  # fmt: skip
"""The name, the title and the beginning of the sentence of a figure, by what it shows."""
AVERAGED = "of the observations (a query under an alpha) nearest to 0, 0.2 … 1"
WITH_INTERVALS = "with intervals over queries"


def rag_plots(results: RagResults, folder: Path) -> Iterator[Plot]:
    """Every figure of one run; the cost first."""
    yield from curve_plots(results.tradeoff, WITH_INTERVALS)
    yield from _disparities(results, folder)
    yield from _slots(results)


def curve_plots(found: Curves, says_of_means: str, by: str = "", ending: str = "") -> Iterator[Plot]:
    """A figure for each two measures, a line for each name; `ending` of the figures' names keeps groups apart.

    `by`: what the lines are, where titles have to say so.
    """
    looks, by_pair = palette([*found]), dict[tuple[str, str], dict[str, Curve]]()
    for name, of in found.items():
        for curve in of:
            if curve.points:
                by_pair.setdefault((_name(curve.across), _name(curve.up)), {}).setdefault(name, curve)
    for pair, (file, title, beginning) in TOLD.items():
        lines = []
        for name, curve in by_pair.get(pair, {}).items():
            points = [(point.at, value) for point in curve.points if (value := value_of(point.mean))]
            lines.append(Line(name, looks[name], points, curve.deterministic))
        if lines:
            first = next(iter(by_pair[pair].values()))
            diagonal = pair[0] == OF_SLOTS
            marks = " Dashed: credit as unequal as exposure." * diagonal + " Hollow: the one list by score."
            sentence = (
                f"{beginning} ({first.up}) by {first.across}: means {AVERAGED}, {says_of_means}.{marks}"
            )
            axes = (first.across, first.up)
            yield curves(lines, axes, title + by, sentence, file + ending, ANCHORS, diagonal)


def _name(measure: str) -> str:
    return measure.partition("(")[0]


def _disparities(results: RagResults, folder: Path) -> Iterator[Plot]:
    """A point a query, as in Figure 3 of the paper."""
    tables = list(results.intervals.values())
    if not tables:
        return
    measure, factors = tables[0].disparity, results.design.factors or {}
    values: dict[str, dict[str, list[float]]] = {}
    for row in query_figures(folder):
        of = factors.get(row.condition)
        if row.measure != measure or of is None or of["alpha"] == DETERMINISTIC or row.condition == GOLD:
            continue
        if row.value is not None and not row.reason:
            by = values.setdefault(of["retriever"], {})
            by.setdefault(f"{of['alpha']:g}", []).append(row.value)
    if values:
        retrievers = [one for one in results.tradeoff if one in values]
        alphas = sorted({alpha for by in values.values() for alpha in by}, key=float)
        ordered = {one: {alpha: values[one].get(alpha, []) for alpha in alphas} for one in retrievers}
        sentence = f"{measure} of every query by alpha: 0 where all its items are shown alike, 1 where always the same."
        names = ("alpha", measure)
        yield scattered(
            ordered, palette([*results.tradeoff]), names, "Disparity by alpha", sentence, "disparity"
        )


def _slots(results: RagResults) -> Iterator[Plot]:
    """Credit by slot under the smallest alpha, where all slots hold much the same items."""
    rows = {
        (row.condition, row.group): row for row in results.of_all() if _name(row.measure) == "AttributionAt"
    }
    looks, lines, alphas = palette([*results.tradeoff]), [], set()
    slots = list(range(1, results.design.k + 1))
    for retriever in results.tradeoff:
        drawn = {
            of["alpha"]: condition
            for condition, of in (results.design.factors or {}).items()
            if of["retriever"] == retriever and of["alpha"] != DETERMINISTIC
        }
        if not drawn:
            continue
        least = min(drawn)
        found = [(slot, value_of(rows.get((drawn[least], str(slot))))) for slot in slots]
        points: list[tuple[float, Value]] = [(slot, value) for slot, value in found if value is not None]
        if points:
            lines.append(Line(retriever, looks[retriever], points))
            alphas.add(f"{least:g}")
    if lines:
        measure = plain_name(next(row.measure for row in rows.values()))
        sentence = (
            f"Share of answers credited to the item shown in each slot ({measure}), alpha {', '.join(sorted(alphas))}, "
            "with intervals: where lists are nearly random, a line that falls or rises is the generator's attention."
        )
        yield curves(lines, ("slot", measure), "Credit by slot", sentence, "credit-by-slot", slots)


# What the report of an audit of a generator has of its own.


def rag_section(results: RagResults, folder: Path, exhibits: Exhibits) -> Section:
    """Every setting, the queries, utility by interval of disparity, slope and area; and the figures."""
    design = results.design
    rows: dict[Named, tuple[Intervals, Sequence[Curve]]] = {
        (retriever,): (table, results.tradeoff[retriever]) for retriever, table in results.intervals.items()
    }
    return Section(
        table=rag_table(results),
        more=[collection_table(results), *tradeoff_tables(rows, ("retriever",))],
        plots=list(rag_plots(results, folder)),
        words=WORDS,
        facts=[
            ("shown", f"{design.k} items, {design.samples} lists a query and setting"),
            ("useful items", design.useful),
            ("utility", design.utility),
            ("attribution", design.attribution),
        ],
    )


# Several audits of generators side by side: the paper's tables, a row a generator, and curves averaged as there.


OWN_LABELS = (
    "useful is what helps the generator of the row, so EE-R of two generators is not of the same items"
)


def group_plots(group: Group, declared: Declared, number: int) -> Iterator[Plot]:
    """A line a generator, and where there are several retrievers a line a retriever: means of the others' means."""
    found = {name: of.tradeoff for name, of in _audits(group).items()}
    retrievers = list(dict.fromkeys(retriever for of in found.values() for retriever in of))
    by_generator = {name: averaged([*of.values()]) for name, of in found.items()}
    several = len(retrievers) > 1
    told = "averaged over retrievers" if several else WITH_INTERVALS
    drawn = {name: of for name, of in by_generator.items() if name in group.drawn}
    yield from curve_plots(drawn, told, " by generator" * several, f"-{number}")
    if several:
        by_retriever = {one: averaged([of[one] for of in found.values() if one in of]) for one in retrievers}
        told = "averaged over generators" if len(found) > 1 else WITH_INTERVALS
        yield from curve_plots(by_retriever, told, " by retriever", f"-{number}-retrievers")


def group_tables(group: Group) -> Iterator[Table]:
    """Tables 2 and 1, a row a retriever and generator; p adjusted over all of them."""
    audits = _audits(group)
    retrievers = dict.fromkeys(retriever for of in audits.values() for retriever in of.intervals)
    tables: dict[Named, Intervals] = {
        (retriever, name): of.intervals[retriever]
        for retriever in retrievers
        for name, of in audits.items()
        if retriever in of.intervals
    }
    rows = {
        name: (table, audits[name[1]].tradeoff[name[0]])
        for name, table in zip(tables, _adjusted([*tables.values()]), strict=True)
    }
    for table in tradeoff_tables(rows, ("retriever", "generator")):
        relevant = table.title.startswith("EE-R")
        yield replace(table, notes=(*table.notes, *[OWN_LABELS] * relevant)) if len(audits) > 1 else table


def _audits(group: Group) -> dict[str, RagResults]:
    """The results by what the rows of a group are called."""
    return {
        name: audited.results
        for name, runs in group.rows.items()
        for audited in runs.values()
        if isinstance(audited.results, RagResults)
    }


def averaged(found: Sequence[Sequence[Curve]]) -> list[Curve]:
    """Curves of the same two measures as one, the points of one place averaged; one alone as it is."""
    named: dict[tuple[str, str], list[Curve]] = {}
    for one in (one for of in found for one in of):
        named.setdefault((one.across, one.up), []).append(one)
    return [of[0] if len(of) == 1 else _mean(of) for of in named.values()]


def _mean(found: Sequence[Curve]) -> Curve:
    values: dict[float, list[float]] = {}
    for point in (point for one in found for point in one.points):
        if point.mean.value is not None:
            values.setdefault(point.at, []).append(point.mean.value)
    means: Mapping[float, float] = {at: fsum(values[at]) / len(values[at]) for at in sorted(values)}
    whole = [one.deterministic for one in found if one.deterministic is not None]
    line, area = tradeoff.line([*means], [*means.values()]), tradeoff.area([*means], [*means.values()])
    return structs.replace(
        found[0],
        observations=sum(one.observations for one in found),
        slope=None,
        slope_of_points=None if line is None else line.slope,
        area=None if area is None else area.whole,
        area_observed=None if area is None else area.observed,
        low=None if area is None else area.low,
        high=None if area is None else area.high,
        deterministic=(fsum(x for x, _ in whole) / len(whole), fsum(y for _, y in whole) / len(whole))
        if whole
        else None,
        points=[
            CurvePoint(at=at, observations=0, mean=Figure(mean, None, None, None, None, None, None, None))
            for at, mean in means.items()
        ],
    )


def _adjusted(tables: Sequence[Intervals]) -> list[Intervals]:
    """The tables with Holm's p over all their cells."""
    adjusted = iter(
        holm([cell.paired.p if cell.paired else None for table in tables for cell in table.cells])
    )

    def with_p(cell: IntervalCell) -> IntervalCell:
        p = next(adjusted)
        return structs.replace(cell, paired=cell.paired and structs.replace(cell.paired, p_adjusted=p))

    return [structs.replace(table, cells=[*map(with_p, table.cells)]) for table in tables]
