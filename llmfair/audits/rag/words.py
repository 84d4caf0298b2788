"""An audit of a generator in a table, sentences and plots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum
from pathlib import Path
from shlex import quote
from typing import Any

from msgspec import structs

from llmfair.asking.journal import completion_of
from llmfair.audits.documents import ComparisonRun
from llmfair.audits.rag.design import DETERMINISTIC, DISPARITY, GOLD, SPREAD, queries_for
from llmfair.audits.rag.measure import OF_SLOTS, of_points
from llmfair.audits.rag.results import Curve, CurvePoint, Intervals, RagFinding, RagResults
from llmfair.io.text import count, p_text
from llmfair.metrics.base import plain_name
from llmfair.metrics.names import in_words
from llmfair.nouns import Conclusion
from llmfair.rankers.reader import read_support
from llmfair.report.figures import COST, value_of
from llmfair.report.groups import Group
from llmfair.report.plots.base import Plot, palette
from llmfair.report.plots.ratios import Line, Value, curves, scattered
from llmfair.report.section import Section
from llmfair.report.tables import FEWEST_QUERIES, Table, cell, conclusion_text, filled, percent
from llmfair.report.verdict import (
    ADVICE,
    ANSWERED,
    LOOK,
    UNFINISHED,
    UNREADABLE,
    Case,
    advice_of,
    by_way,
    cases_of,
)
from llmfair.report.words import Wording, before_text, table_of
from llmfair.results import (
    Band,
    Conclusions,
    Declared,
    Exhibits,
    Figure,
    RunVerdict,
    Words,
    absent_row,
    query_figures,
)
from llmfair.stats.betting import fewest_queries
from llmfair.stats.significance import holm
from llmfair.stats.tradeoff import ANCHORS, INTERVALS, STARRED

# How an audit of a generator is made and concluded, in the report's words.


METHOD = (
    "A retriever scores every item of a query. Instead of always showing the same best k, lists are drawn from a "
    "Plackett-Luce model of its scores: alpha 0 shows every item alike often, a large alpha nearly always the best k. "
    "The generator answers each distinct list once.",
    "An item is useful where the answer is better with it alone than without any (its gain), or where it is judged "
    "relevant. Expected exposure is the exact probability that an item is shown. EE-D says how unequally exposure is "
    "spread over items (1: always the same ones, 0: all alike), EE-R how much of it useful items get.",
    "EU is the mean utility of the answers over the lists drawn, EU-change the same less that of the retriever's one "
    "list by score, paired by query. Utility is kept where a mean loss of more than the margin is ruled out by a bound "
    "that holds at any number of queries, however rare and large losses are (betting, Waudby-Smith and Ramdas 2024), "
    "and lost where a smaller one is. Alphas are tested from the largest to the first that is not kept.",
    "An answer is credited to shown items that hold it, or that it cites: EAR is their share of the slots, EAE-D how "
    "unequally credit is spread over items.",
)


# What an audit of a generator found as a table: a line a setting, from one list by score to lists by usefulness.


SAID = {
    Conclusion.WITHIN: "utility kept",
    Conclusion.INCONCLUSIVE: "inconclusive",
    Conclusion.OUTSIDE: "utility lost",
}


def rag_table(results: RagResults) -> Table:
    """One row a setting, one column a measure."""
    table = table_of(results, "outputs")
    said = {name: in_table(finding) for name, finding in results.findings.items()}
    rows = tuple((*row[:-1], said.get(row[0], row[-1])) for row in table.rows)
    said_of_all = {name: said.get(name, text) for name, text in table.said.items()}
    return replace(table, rows=rows, said=said_of_all, notes=(*notes(results), *table.notes))


def conclusion(finding: RagFinding, row: Figure | None, level: float, band: Band, words: Words) -> str:
    """A conclusion in the table of measured runs."""
    return in_table(finding)


def in_table(finding: RagFinding) -> str:
    """A conclusion with the largest mean loss that is not ruled out."""
    if finding.conclusion not in SAID or finding.lower is None:
        return conclusion_text(finding)
    return f"{SAID[finding.conclusion]}, loss at most {max(-finding.lower, 0.0):.3f}"


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
    of, design, judged = results.collection, results.design, results.judged
    dropped = sum(of.dropped.values())
    if of.kept:
        more = f"; {dropped} more dropped with fewer than 2 useful items" * bool(dropped)
        yield (
            f"{count(of.kept, 'query', 'queries')} of {of.items:.0f} items, {of.useful:.1f} of them useful "
            f"({100 * (of.useful_share or 0):.0f} %){more}"
        )
    elif dropped:
        yield f"no query has 2 useful items: all {dropped} are dropped"
    yield (
        f"the generator reads {count(design.k, 'item')} of {count(design.samples, 'list')} drawn a query; EE-D is 1 "
        "where a query always shows the same items, and 0 where it shows all alike"
    )
    yield (
        f"utility: {design.utility}; kept where a mean loss of more than {design.margin:g} is ruled out, rare large "
        "losses included"
    )
    if judged is not None and judged.asked:
        neither = (
            f"; {count(judged.unparseable, 'answer is', 'answers are')} neither yes nor no, and the lists they are of "
            "have no EAR and no EAE-D"
        )
        yield (
            f"by={judged.by}: {judged.model} was asked of {count(judged.asked, 'pair')} of item and output whether the "
            f"item supports it, and says so of {percent(judged.supported, judged.asked)}"
            f"{neither * bool(judged.unparseable)}"
        )
    if design.uncredited:
        yield (
            f"EAR and EAE-D are not assessable: {in_words(design.uncredited, 'EAR')}; --hypothesis prompt has it claim "
            "what the prompt makes of it"
        )


# Tables of what fairer lists cost, in the layout of Kim & Diaz, "Towards Fair RAG", ICTIR 2025, Tables 1 and 2.


Named = tuple[str, ...]
"""What a row is of: a retriever; of several runs the data set and the generator, too."""
NONE = "–"
APART = 0.01
"""Of the paper's tests of alphas."""


def number_text(value: float | None, form: str = ".4f") -> str:
    return NONE if value is None else format(value, form)


def collection_table(results: RagResults) -> Table:
    """Which queries the figures speak of; beside the share of useful items what lists drawn at random have of them."""
    of, figures = results.collection, results.by_key()
    dropped = (f"{of.dropped.get(useful, 0):,}" for useful in ("0", "1"))
    means = ((of.items, ".1f"), (of.useful, ".1f"), (of.useful_share, ".3f"))
    uniform = [name for name, varied in (results.design.factors or {}).items() if varied["alpha"] == 0]
    header = ("queries kept", "dropped: no useful item", "dropped: one", "items n", "useful m", "m/n")
    cells = (
        f"{of.kept:,}",
        *dropped,
        *(number_text(*mean) for mean in means),
        *(cell(figures.get(("EE-R", name))) for name in uniform),
    )
    notes: list[str] = []
    for retriever, tests in results.alpha_tests.items():
        tested = [one.p for one in tests if one.p is not None]
        apart, pairs = sum(p < APART for p in tested), count(len(tested), "pair")
        said = f"{apart} of {pairs} of alphas differ in disparity (t test paired by query, p below {APART:g})"
        few = "too few queries to test whether alphas differ in disparity"
        notes += [f"{retriever}: {said if tested else few}"] * bool(tests)
    title = "Collection: means over the queries kept"
    return Table(title, (*header, *(f"EE-R of {name}" for name in uniform)), (cells,), tuple(notes))


def tradeoff_tables(
    rows: Mapping[Named, tuple[Intervals, Sequence[Curve]]], named: Sequence[str]
) -> Iterator[Table]:
    """Tables 2 and 1 of these retrievers, of those that drew anything."""
    intervals = {name: table for name, (table, _) in rows.items() if table.cells}
    if intervals:
        yield intervals_table(intervals, named)
        paired = paired_table(intervals, named)
        yield from [paired] if paired.rows else []
    first = {name: of[0] for name, (_, of) in rows.items() if of and of[0].points}
    if first:
        yield slopes_table(first, named)


def intervals_table(rows: Mapping[Named, Intervals], named: Sequence[str]) -> Table:
    """Table 2: utility by interval of disparity, less that of the one list by score, pooled and unpaired."""
    tables = [*rows.values()]
    disparity, utility = tables[0].disparity, tables[0].utility
    pooled = []
    for name, of in rows.items():
        cells = dict.fromkeys(INTERVALS, NONE)
        for one in of.cells:
            if one.difference is not None:
                counted = f"({one.observations:,}, {count(one.queries, 'query', 'queries')})"
                cells[one.interval] = f"{one.difference:+z.3f}{'*' * one.starred} {counted}"
        pooled.append((*name, number_text(of.baseline, ".3f"), *cells.values()))
    paired = [one.paired for of in tables for one in of.cells if one.paired is not None]
    tested = [change for change in paired if change.p_adjusted is not None]
    differ = [change.value or 0 for change in tested if (change.p_adjusted or 0) < STARRED]
    ways = f" ({sum(value > 0 for value in differ)} up, {sum(value < 0 for value in differ)} down)"
    said = (
        f"{len(differ)} of {count(len(tested), 'interval differs', 'intervals differ')}{ways * bool(differ)}"
        if tested
        else "nothing can be tested"
    )
    return Table(
        f"Change of {utility} by interval of {disparity}, pooled as in the paper; paired by query {said}",
        (*named, f"{utility} of the one list", *INTERVALS),
        tuple(pooled),
        (
            f"mean {utility} of the observations in the interval less that of the one list by score, over all queries; "
            f"* unpaired p below {STARRED:g} (Student), which takes observations of one query for independent; in "
            "brackets observations and their queries",
        ),
    )


def paired_table(rows: Mapping[Named, Intervals], named: Sequence[str]) -> Table:
    """The same, each query beside itself; a row an interval that has observations."""
    lines = []
    for name, one in ((name, one) for name, of in rows.items() for one in of.cells):
        if (change := one.paired) is not None:
            interval = "" if change.low is None else f" [{change.low:+z.3f}, {change.high:+z.3f}]"
            paired = number_text(change.value, "+z.3f") + interval
            tests = (change.p, change.p_adjusted, one.p_welch, one.p_student)
            p_values = ("" if p is None else p_text(p) for p in tests)
            lines.append(
                (*name, one.interval, f"{one.observations:,}", f"{one.queries:,}", paired, *p_values)
            )
    header = (
        *named, "interval", "observations", "queries", "paired change", "p", "p (Holm)", "p (Welch)", "p (Student)",
    )  # fmt: skip
    note = "paired change: mean over the interval's queries of their own mean in it less their own one list by score"
    return filled(Table("The same changes paired by query", header, tuple(lines), (note,)))


def slopes_table(rows: Mapping[Named, Curve], named: Sequence[str]) -> Table:
    """Table 1: how one measure rises with another, and the area below it."""
    across, up = next((one.across, one.up) for one in rows.values())
    lines = tuple(
        (
            *name,
            *map(number_text, (one.slope, one.area, one.slope_of_points, one.area_observed)),
            "" if one.low is None else f"{one.low:g}–{one.high:g}",
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


# The verdict of an audit of a generator: the fairest setting whose utility is kept, and what fairness costs.


LOST, NOT_ASSESSABLE, INCONCLUSIVE, KEPT = STATUSES = ("lost", "not assessable", "inconclusive", "kept")
ADDED = {
    **ADVICE,
    **dict.fromkeys(UNREADABLE, ANSWERED),
    "beyond_worst_loss": "leave --worst-loss out, or give a larger one",
    "too_few_queries": "more queries: fewer than 5 with two useful items say nothing",
    "no_useful_items": "a generator that answers better with items than without, or --useful qrels and judgements",
}
"""What to change where nothing can be said, by the reason."""


def rag_verdict(found: Conclusions) -> RunVerdict:
    """Of the settings whose utility is kept the fairest; where there is none, what stands in the way."""
    cases = [
        SettingCase(found, case.key, case.finding)
        for case in cases_of(found)
        if isinstance(case.finding, RagFinding)
    ]
    kept, undecided, lost = (
        [case for case in cases if case.finding.conclusion == conclusion]
        for conclusion in (Conclusion.WITHIN, Conclusion.INCONCLUSIVE, Conclusion.OUTSIDE)
    )
    if kept:
        fairest = min(kept, key=lambda case: case.disparity)
        return fairest.verdict(KEPT, "{} is the fairest setting whose utility is kept")
    if undecided:
        nearest = max(undecided, key=lambda case: (case.finding.reason != "larger_alpha", case.finding.lower))
        reason = nearest.finding.reason
        why = in_words(reason, nearest.finding.measure) if reason else "more than the margin may be lost"
        return nearest.verdict(INCONCLUSIVE, f"whether {{}} keeps its utility is open, as {why}")
    if lost:
        what = "{} is the least fair of the settings drawn, and loses utility even so"
        return max(lost, key=lambda case: case.disparity).verdict(LOST, what)
    if not cases and found.run is None:
        return RunVerdict(
            status=NOT_ASSESSABLE,
            sentence="a log says how unequally items were shown, not what fairer lists would have cost",
            next="llmfair rag asks the generator about fairer lists of the same items",
        )
    if not cases and not found.complete:
        why, advice = "not all questions are answered yet", by_way(found, UNFINISHED, "unfinished")
    else:
        reason = str(cases[0].finding.reason if cases else "no_useful_items")
        why, advice = in_words(reason, "EU-change"), advice_of(found, ADDED.get(reason, LOOK))
    return RunVerdict(
        status=NOT_ASSESSABLE,
        sentence=f"nothing can be said of what fairness costs: {why}",
        next=advice,
    )


@dataclass(frozen=True)
class SettingCase(Case):
    """One alpha of a retriever with what is concluded of its utility."""

    finding: RagFinding

    @property
    def disparity(self) -> float:
        return self.finding.disparity or 0.0

    @property
    def spread(self) -> str:
        """How unequally items are shown beside the one list by score, by the measure that the table has."""
        measure = next((name for name in self.found.measures if _name(name) == DISPARITY), DISPARITY)
        baseline = f"{self.key.rpartition('-')[0]}-{DETERMINISTIC}"
        of_baseline = value_of(self.found.figures.get((measure, baseline)))
        beside = f", where the one list by score has {of_baseline.value:g}" if of_baseline else ""
        return f"expected exposure disparity {measure} {self.disparity:.3f}{beside}"

    @property
    def change(self) -> str:
        """The estimate with its interval, how many queries lost more than the margin, and which loss is ruled out."""
        figure, finding = self.figure, self.finding
        if figure is None or figure.value is None or finding.lower is None:
            return ""
        margin, level = finding.margin, f"{self.found.level * 100:g} %"
        change = f"; utility changes by {figure.value:+.3f}"
        if figure.low is not None and figure.high is not None and figure.low < figure.high:
            change += f" ({level} CI {figure.low:+.3f} to {figure.high:+.3f})"
        change += f"; {finding.losers or 'none'} of {self.counted} lost more than {margin:g}"
        if finding.conclusion == Conclusion.OUTSIDE:
            return change
        if finding.lower < -margin:
            return f"{change}, and a mean loss of {-finding.lower:.3f} is not ruled out"
        more = f"of more than {-finding.lower:.3f} " if finding.lower < 0 else ""
        return f"{change}, and a mean loss {more}is ruled out at {level}"

    @property
    def next(self) -> str:
        """How to hold a build to it, or what would settle it."""
        found, finding, margin = self.found, self.finding, self.finding.margin
        if not found.complete:
            return by_way(found, UNFINISHED, "unfinished")
        if finding.conclusion == Conclusion.WITHIN:
            gate = quote(f"{finding.measure}:{self.key}>={-margin:g}")
            again = found.ways.get("again", "llmfair rag")
            return f"hold a build to it: {again} --require {gate} --require-interval"
        closer = "larger --alpha cost less utility"
        if finding.conclusion == Conclusion.INCONCLUSIVE:
            closer = f"{self.queries_wanted}; {closer}"
        return by_way(found, closer, "alpha")

    @property
    def queries_wanted(self) -> str:
        """How many queries it takes, where there are fewer."""
        margin, worst_loss, level = self.finding.margin, self.finding.worst_loss, self.found.level
        enough = fewest_queries(margin, worst_loss, 1 - level, SPREAD * worst_loss)
        if enough is not None and self.figure is not None and (self.figure.n or 0) >= enough:
            return "more queries rule smaller losses out"
        return queries_for(margin, worst_loss, level)

    def verdict(self, status: str, what: str) -> RunVerdict:
        figure = self.figure or absent_row(self.finding.measure, self.key)
        unfinished = "" if self.found.complete else "; not all questions are answered yet"
        return RunVerdict(
            status=status,
            sentence=f"{what.format(self.key)}: {self.spread}{self.change}{unfinished}",
            next=self.next,
            condition=self.key.condition,
            measure=self.finding.measure,
            estimate=figure.value,
            low=figure.low,
            high=figure.high,
            n=figure.n,
        )


# The figures of audits of generators: disparity by alpha, what fairer lists cost, and where credit goes. Kim & Diaz,
# "Towards Fair RAG", ICTIR 2025, Figures 3 to 5: one colour a retriever, or a generator where several are side by
# side.


Curves = Mapping[str, Sequence[Curve]]
"""By retriever, or by what else the lines of a figure are."""
FIGURES: Mapping[tuple[str, str], tuple[str, str, str]] = {
    ("EE-D", "EU"): (COST, "What fairer lists cost", "Utility of the answers"),
    ("EE-D", "EE-R"): ("useful-shown", "Useful items shown", "Exposure of useful items"),
    ("EE-R", "EU"): ("useful-utility", "What useful items bring", "Utility of the answers"),
    ("EE-D", "EAR"): ("credited-share", "Items that answers rest on", "Share of slots that answers are credited to"),
    ("EE-R", "EAR"): ("useful-credited", "Useful items and credit", "Share of slots that answers are credited to"),
    ("EE-D/k'", "EAE-D"): ("credited-disparity", "Credit beside exposure", "How unequally credit is spread"),
}  # fmt: skip
"""The name, the title and the beginning of the sentence of a figure, by what it shows."""
WITH_INTERVALS = "with intervals over queries"


def rag_plots(results: RagResults, folder: Path) -> Iterator[Plot]:
    """Every figure of one run; the cost first."""
    yield from curve_plots(results.tradeoff, WITH_INTERVALS)
    yield from _disparities(results, folder)
    yield from _slots(results)


def curve_plots(of_names: Curves, says_of_means: str, by: str = "", ending: str = "") -> Iterator[Plot]:
    """A figure for each two measures, a line for each name; `ending` of the figures' names keeps groups apart.

    `by`: what the lines are, where titles have to say so.
    """
    looks = palette([*of_names])
    for pair, (file, title, beginning) in FIGURES.items():
        drawn = [
            (name, curve)
            for name, of in of_names.items()
            for curve in of
            if curve.points and (_name(curve.across), _name(curve.up)) == pair
        ]
        if drawn:
            first, diagonal = drawn[0][1], pair[0] == OF_SLOTS
            lines = [
                Line(
                    name,
                    looks[name],
                    _points((point.at, point.mean) for point in curve.points if _enough(point)),
                    curve.deterministic,
                    _points((point.at, point.mean) for point in curve.points if not _enough(point)),
                )
                for name, curve in drawn
            ]  # fmt: skip
            marks = " Dashed: credit as unequal as exposure." * diagonal + " Hollow: the one list by score."
            sentence = (
                f"{beginning} ({first.up}) by {first.across}: means of the observations (a query under an alpha) "
                f"nearest to 0, 0.2 … 1, {says_of_means}; off the line: of fewer than {FEWEST_QUERIES} queries.{marks}"
            )
            axes = (first.across, first.up)
            yield curves(lines, axes, title + by, sentence, file + ending, ANCHORS, diagonal)


def _enough(point: CurvePoint) -> bool:
    """Whether a line may go through a mean; of means over several retrievers or generators it does."""
    return point.mean.n is None or point.mean.n >= FEWEST_QUERIES


def _name(measure: str) -> str:
    return measure.partition("(")[0]


def _points(figures: Iterable[tuple[float, Figure | None]]) -> list[tuple[float, Value]]:
    return [(at, value) for at, figure in figures if (value := value_of(figure)) is not None]


def _disparities(results: RagResults, folder: Path) -> Iterator[Plot]:
    """A point a query, as in Figure 3 of the paper."""
    tables, factors = list(results.intervals.values()), results.design.factors or {}
    values: dict[str, dict[str, list[float]]] = {}
    for row in query_figures(folder) if tables else ():
        if row.measure == tables[0].disparity and row.value is not None and not row.reason:
            of = factors.get(row.condition)
            if of and of["alpha"] != DETERMINISTIC and row.condition != GOLD:
                by_alpha = values.setdefault(of["retriever"], {})
                by_alpha.setdefault(f"{of['alpha']:g}", []).append(row.value)
    if values:
        measure = tables[0].disparity
        alphas = sorted({alpha for by_alpha in values.values() for alpha in by_alpha}, key=float)
        ordered = {
            name: {alpha: values[name].get(alpha, []) for alpha in alphas}
            for name in results.tradeoff
            if name in values
        }
        sentence = f"{measure} of every query by alpha: 0 where all its items are shown alike, 1 where always the same."
        looks, axes = palette([*results.tradeoff]), ("alpha", measure)
        yield scattered(ordered, looks, axes, "Disparity by alpha", sentence, "disparity")


def _slots(results: RagResults) -> Iterator[Plot]:
    """Credit by slot under the smallest alpha, where all slots hold much the same items."""
    rows = {
        (row.condition, row.group): row for row in results.of_all() if _name(row.measure) == "AttributionAt"
    }
    looks, lines, alphas = palette([*results.tradeoff]), [], set[str]()
    slots = list(range(1, results.design.k + 1))
    for retriever in results.tradeoff:
        drawn = {
            of["alpha"]: condition
            for condition, of in (results.design.factors or {}).items()
            if of["retriever"] == retriever and of["alpha"] != DETERMINISTIC
        }
        if drawn:
            least = min(drawn)
            if points := _points((slot, rows.get((drawn[least], str(slot)))) for slot in slots):
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
        (retriever,): (table, results.tradeoff.get(retriever, ()))
        for retriever, table in results.intervals.items()
    }
    return Section(
        table=rag_table(results),
        more=[collection_table(results), *tradeoff_tables(rows, ("retriever",))],
        plots=list(rag_plots(results, folder)),
        words=METHOD,
        facts=[
            ("shown", f"{design.k} items, {design.samples} lists a query and setting"),
            ("useful items", design.useful),
            ("utility", design.utility),
            ("attribution", design.attribution),
        ],
    )


# Several audits of generators side by side: the paper's tables, a row a generator, and curves averaged as there.


def group_plots(group: Group, declared: Declared, number: int) -> Iterator[Plot]:
    """A line a generator, and where there are several retrievers a line a retriever: means of the others' means."""
    of_runs = {name: of.tradeoff for name, of in _audits(group).items()}
    retrievers = list(dict.fromkeys(retriever for of in of_runs.values() for retriever in of))
    several = len(retrievers) > 1
    means = "averaged over retrievers" if several else WITH_INTERVALS
    drawn = {name: averaged([*of.values()]) for name, of in of_runs.items() if name in group.drawn}
    yield from curve_plots(drawn, means, " by generator" * several, f"-{number}")
    if several:
        by_retriever = {
            one: averaged([of[one] for of in of_runs.values() if one in of]) for one in retrievers
        }
        means = "averaged over generators" if len(of_runs) > 1 else WITH_INTERVALS
        yield from curve_plots(by_retriever, means, " by retriever", f"-{number}-retrievers")


def group_tables(group: Group) -> Iterator[Table]:
    """Tables 2 and 1, a row a retriever and generator; p adjusted over all of them."""
    audits = _audits(group)
    retrievers = dict.fromkeys(retriever for of in audits.values() for retriever in of.intervals)
    pairs = [
        (retriever, name)
        for retriever in retrievers
        for name, of in audits.items()
        if retriever in of.intervals
    ]
    tables = [audits[name].intervals[retriever] for retriever, name in pairs]
    adjusted = iter(holm([cell.paired.p if cell.paired else None for of in tables for cell in of.cells]))
    rows: dict[Named, tuple[Intervals, Sequence[Curve]]] = {}
    for (retriever, name), table in zip(pairs, tables, strict=True):
        cells = [
            structs.replace(cell, paired=cell.paired and structs.replace(cell.paired, p_adjusted=p))
            for cell, p in zip(table.cells, adjusted, strict=False)
        ]
        curves_of = audits[name].tradeoff.get(retriever, ())
        rows[retriever, name] = (structs.replace(table, cells=cells), curves_of)
    own = "useful is what helps the generator of the row, so EE-R of two generators is not of the same items"
    for shown in tradeoff_tables(rows, ("retriever", "generator")):
        relevant = len(audits) > 1 and shown.title.startswith("EE-R")
        yield replace(shown, notes=(*shown.notes, *[own] * relevant))


def _audits(group: Group) -> dict[str, RagResults]:
    """The results by what the rows of a group are called."""
    return {
        name: audited.results
        for name, runs in group.rows.items()
        for audited in runs.values()
        if isinstance(audited.results, RagResults)
    }


def averaged(of_names: Sequence[Sequence[Curve]]) -> list[Curve]:
    """Curves of the same two measures as one, the points of one place averaged; one alone as it is."""
    by_pair: dict[tuple[str, str], list[Curve]] = {}
    for curve in (curve for of in of_names for curve in of):
        by_pair.setdefault((curve.across, curve.up), []).append(curve)
    return [of[0] if len(of) == 1 else _mean(of) for of in by_pair.values()]


def _mean(of: Sequence[Curve]) -> Curve:
    values: dict[float, list[float]] = {}
    for point in (point for curve in of for point in curve.points):
        if point.mean.value is not None:
            values.setdefault(point.at, []).append(point.mean.value)
    means = {at: fsum(values[at]) / len(values[at]) for at in sorted(values)}
    ends = [curve.deterministic for curve in of if curve.deterministic is not None]
    across, up = (fsum(end[axis] for end in ends) / max(len(ends), 1) for axis in (0, 1))
    return structs.replace(
        of[0],
        observations=sum(curve.observations for curve in of),
        slope=None,
        **of_points([*means], [*means.values()]),
        deterministic=(across, up) if ends else None,
        points=[
            CurvePoint(at=at, observations=0, mean=Figure(mean, None, None, None, None, None, None, None))
            for at, mean in means.items()
        ],
    )


def labels_notes(runs: Sequence[ComparisonRun]) -> list[str]:
    """What is left out of a comparison of these runs, as described."""
    named = ", ".join(run.name for run in runs[1:] if run.own["other_labels"])
    return [
        f"{named}: other items are useful than for {runs[0].name}, so what hangs on them is left out (EE-R, EE-L, "
        f"EU(norm=ceiling), the setting {GOLD}); the rest is of the queries that both kept"
    ] * bool(named)


WORDS = Wording(
    title="Retrieval-augmented generation",
    condition="setting",
    unit="queries",
    statuses=STATUSES,
    method=METHOD,
    limits=(
        "An equal chance is one among the items that are useful to this generator for a question, whoever made them.",
        "What a setting keeps or loses is a fact about these questions, this generator and this score of answers. It "
        "names no cause, and passes no judgement.",
    ),
    before=lambda planned: f"{before_text(planned)}\n{planned['fewest']}",
    verdict=rag_verdict,
    table=rag_table,
    section=rag_section,
    group_plots=group_plots,
    group_tables=group_tables,
    how_ended=how_ended,
    what_was_shown=what_was_shown,
    concluded=conclusion,
    compared_notes=labels_notes,
)
