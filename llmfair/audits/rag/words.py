"""An audit of a generator in a table, sentences and plots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

from msgspec import structs

from llmfair.asking.journal import completion_of
from llmfair.audits.aggregates import mean_of
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
from llmfair.report.phrases import FEWEST_QUERIES, cell, conclusion_text, percent
from llmfair.report.plots.base import Plot, palette
from llmfair.report.plots.ratios import Line, Value, curves, scattered
from llmfair.report.section import Section
from llmfair.report.table import Table
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
    Conclusions,
    Declared,
    Exhibits,
    Figure,
    RunVerdict,
    absent_row,
    query_figures,
)
from llmfair.stats.betting import fewest_queries
from llmfair.stats.significance import holm
from llmfair.stats.tradeoff import ANCHORS, STARRED

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
"""How an audit of a generator is made and concluded."""
IN_TABLE = {
    Conclusion.WITHIN: "utility kept",
    Conclusion.INCONCLUSIVE: "inconclusive",
    Conclusion.OUTSIDE: "utility lost",
}


def rag_table(results: RagResults) -> Table:
    """One row a setting, from one list by score to lists by usefulness; one column a measure."""
    table = table_of(results, "outputs")
    conclusions = {**table.said, **{name: conclusion(of) for name, of in results.findings.items()}}
    # where nothing is concluded the last column is a measure
    rows = tuple((*row[:-1], conclusions[row[0]] or row[-1]) for row in table.rows)
    return replace(table, rows=rows, said=conclusions, notes=(*notes(results), *table.notes))


def conclusion(finding: RagFinding, *about: object) -> str:
    """A conclusion in a table, with the largest mean loss that is not ruled out."""
    if finding.conclusion not in IN_TABLE or finding.lower is None:
        return conclusion_text(finding)
    return f"{IN_TABLE[finding.conclusion]}, loss at most {max(-finding.lower, 0.0):.3f}"


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
    queries, design, judged = results.collection, results.design, results.judged
    dropped = sum(queries.dropped.values())
    if queries.kept:
        yield (
            f"{count(queries.kept, 'query', 'queries')} of {queries.items:.0f} items, {queries.useful:.1f} of them "
            f"useful ({100 * (queries.useful_share or 0):.0f} %)"
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
        f"utility: {design.utility}; kept where a mean loss of more than {design.margin:g} is ruled out, rare large "
        "losses included"
    )
    if judged is not None and judged.asked:
        unclear = count(judged.unparseable, "answer is", "answers are")
        yield (
            f"by={judged.by}: {judged.model} was asked of {count(judged.asked, 'pair')} of item and output whether the "
            f"item supports it, and says so of {percent(judged.supported, judged.asked)}"
            + f"; {unclear} neither yes nor no, and the lists they are of have no EAR and no EAE-D"
            * bool(judged.unparseable)
        )
    if design.uncredited:
        yield (
            f"EAR and EAE-D are not assessable: {in_words(design.uncredited, 'EAR')}; --hypothesis prompt has it claim "
            "what the prompt makes of it"
        )


# Tables of what fairer lists cost, in the layout of Kim & Diaz, "Towards Fair RAG", ICTIR 2025, Tables 1 and 2.

Named = dict[str, str]
"""What a row is of, by the head of its column: a retriever; of several runs the generator, too."""
Costs = Sequence[tuple[Named, Intervals, Sequence[Curve]]]
NONE = "–"
APART = 0.01
"""Of the paper's tests of alphas."""


def number_text(value: float | None, form: str = ".4f") -> str:
    return NONE if value is None else format(value, form)


def collection_table(results: RagResults) -> Table:
    """Which queries the figures speak of; beside the share of useful items what lists drawn at random have of them."""
    queries, figures = results.collection, results.by_key()
    tests = {
        name: [of.p for of in tests if of.p is not None]
        for name, tests in results.alpha_tests.items()
        if tests
    }
    sentences = (
        f"{name}: {sum(p < APART for p in of)} of {count(len(of), 'pair')} of alphas differ in disparity (t test "
        f"paired by query, p below {APART:g})"
        if of
        else f"{name}: too few queries to test whether alphas differ in disparity"
        for name, of in tests.items()
    )
    row = {
        "queries kept": f"{queries.kept:,}",
        "dropped: no useful item": f"{queries.dropped.get('0', 0):,}",
        "dropped: one": f"{queries.dropped.get('1', 0):,}",
        "items n": number_text(queries.items, ".1f"),
        "useful m": number_text(queries.useful, ".1f"),
        "m/n": number_text(queries.useful_share, ".3f"),
        **{
            f"EE-R of {name}": cell(figures.get(("EE-R", name)))
            for name, factors in (results.design.factors or {}).items()
            if factors["alpha"] == 0
        },
    }
    return Table.of_texts("Collection: means over the queries kept", [row], *sentences)


def tradeoff_tables(costs: Costs) -> Iterator[Table]:
    """Tables 2 and 1 of these retrievers, of those that drew anything."""
    intervals = [(name, of) for name, of, _ in costs if of.cells]
    if intervals:
        disparity, utility = intervals[0][1].disparity, intervals[0][1].utility
        paired = [interval.paired for _, of in intervals for interval in of.cells]
        tested = [change for change in paired if change is not None and change.p_adjusted is not None]
        differ = [change.value or 0 for change in tested if (change.p_adjusted or 0) < STARRED]
        ups, downs = sum(value > 0 for value in differ), sum(value < 0 for value in differ)
        of_all = count(len(tested), "interval differs", "intervals differ")
        ways = f" ({ups} up, {downs} down)" * bool(differ)
        yield Table.of_texts(
            f"Change of {utility} by interval of {disparity}; paired by query "
            + (f"{len(differ)} of {of_all}{ways}" if tested else "nothing can be tested"),
            (name | change for name, of in intervals for change in interval_rows(of)),
            f"pooled, as in the paper: mean {utility} of the observations in the interval less that of the one list by "
            f"score, over all queries; * unpaired p below {STARRED:g} (Student), which takes observations of one query "
            "for independent",
            "paired: mean over the interval's queries of their own mean in it less their own one list by score",
        )
    curves = [(name, of[0]) for name, _, of in costs if of and of[0].points]
    if curves:
        across, up = curves[0][1].across, curves[0][1].up
        yield Table.of_texts(
            f"{up} over {across}: slope and area",
            (name | slopes(curve) for name, curve in curves),
            "observation: a query under an alpha, without the one list by score; slope: of the least-squares line over "
            "all",
            f"means: of the observations nearest to 0, 0.2 … 1 of {across}; area: below them by trapezoid, from 0 to 1 "
            "with constant ends, and over the range of those that are there; the paper defines neither slope nor area",
        )


def interval_rows(of: Intervals) -> Iterator[Named]:
    """Table 2, a row an interval that has observations: pooled and unpaired as in the paper, and paired by query."""
    for row in of.cells:
        if row.difference is not None and (change := row.paired) is not None:
            limits = "" if change.low is None else f" [{change.low:+z.3f}, {change.high:+z.3f}]"
            tests = {
                "p": change.p,
                "p (Holm)": change.p_adjusted,
                "p (Welch)": row.p_welch,
                "p (Student)": row.p_student,
            }
            yield {
                f"{of.utility} of the one list": number_text(of.baseline, ".3f"),
                "interval": row.interval,
                "observations": f"{row.observations:,}",
                "queries": f"{row.queries:,}",
                "pooled": f"{row.difference:+z.3f}{'*' * row.starred}",
                "paired": number_text(change.value, "+z.3f") + limits,
                **{head: "" if p is None else p_text(p) for head, p in tests.items()},
            }


def slopes(curve: Curve) -> Named:
    """Table 1: how one measure rises with another, and the area below it."""
    queries = count(curve.queries, "query", "queries")
    return {
        "slope": number_text(curve.slope),
        "area": number_text(curve.area),
        "slope of means": number_text(curve.slope_of_points),
        "area observed": number_text(curve.area_observed),
        "range": "" if curve.low is None else f"{curve.low:g}–{curve.high:g}",
        "observations": f"{curve.observations:,} ({queries})" if curve.observations else "",
    }


# The verdict of an audit of a generator: the fairest setting whose utility is kept, and what fairness costs.

LOST, NOT_ASSESSABLE, INCONCLUSIVE, KEPT = STATUSES = ("lost", "not assessable", "inconclusive", "kept")
TO_CHANGE = {
    **ADVICE,
    **dict.fromkeys(UNREADABLE, ANSWERED),
    "beyond_worst_loss": "leave --worst-loss out, or give a larger one",
    "too_few_queries": "more queries: fewer than 5 with two useful items say nothing",
    "no_useful_items": "a generator that answers better with items than without, or --useful qrels and judgements",
}
"""What to change where nothing can be said, by the reason."""


def rag_verdict(conclusions: Conclusions) -> RunVerdict:
    """Of the settings whose utility is kept the fairest; where there is none, what stands in the way."""
    cases = [(case, case.finding) for case in cases_of(conclusions) if isinstance(case.finding, RagFinding)]
    by_conclusion = {
        conclusion: [case for case in cases if case[1].conclusion == conclusion] for conclusion in Conclusion
    }
    if within := by_conclusion[Conclusion.WITHIN]:
        fairest = min(within, key=lambda case: case[1].disparity or 0.0)
        return verdict_on(*fairest, KEPT, "{} is the fairest setting whose utility is kept")
    if inconclusive := by_conclusion[Conclusion.INCONCLUSIVE]:
        case, finding = max(inconclusive, key=lambda case: (case[1].reason != "larger_alpha", case[1].lower))
        why = (
            in_words(finding.reason, finding.measure)
            if finding.reason
            else "more than the margin may be lost"
        )
        return verdict_on(case, finding, INCONCLUSIVE, f"whether {{}} keeps its utility is open, as {why}")
    if outside := by_conclusion[Conclusion.OUTSIDE]:
        least = max(outside, key=lambda case: case[1].disparity or 0.0)
        return verdict_on(
            *least, LOST, "{} is the least fair of the settings drawn, and loses utility even so"
        )
    if not cases and conclusions.run is None:
        sentence = "a log says how unequally items were shown, not what fairer lists would have cost"
        advice = "llmfair rag asks the generator about fairer lists of the same items"
        return RunVerdict(status=NOT_ASSESSABLE, sentence=sentence, next=advice)
    reason = str(cases[0][1].reason if cases else "no_useful_items")
    why, advice = in_words(reason, "EU-change"), advice_of(conclusions, TO_CHANGE.get(reason, LOOK))
    if not cases and not conclusions.complete:
        why, advice = "not all questions are answered yet", by_way(conclusions, UNFINISHED, "unfinished")
    sentence = f"nothing can be said of what fairness costs: {why}"
    return RunVerdict(status=NOT_ASSESSABLE, sentence=sentence, next=advice)


def verdict_on(case: Case, finding: RagFinding, status: str, sentence: str) -> RunVerdict:
    """The verdict that speaks of one alpha of a retriever, which the sentence has a place for."""
    conclusions, figure = case.facts, case.figure or absent_row(finding.measure, case.key)
    unfinished = "" if conclusions.complete else "; not all questions are answered yet"
    figures = f"{spread_text(case, finding)}{change_text(case, finding)}"
    return RunVerdict(
        status=status,
        sentence=f"{sentence.format(case.key)}: {figures}{unfinished}",
        next=next_step(case, finding),
        condition=case.key.condition,
        measure=finding.measure,
        estimate=figure.value,
        low=figure.low,
        high=figure.high,
        n=figure.n,
    )


def spread_text(case: Case, finding: RagFinding) -> str:
    """How unequally items are shown beside the one list by score, by the measure that the table has."""
    conclusions = case.facts
    measure = next((name for name in conclusions.measures if _name(name) == DISPARITY), DISPARITY)
    baseline = value_of(conclusions.figures.get((measure, f"{case.key.rpartition('-')[0]}-{DETERMINISTIC}")))
    beside = f", where the one list by score has {baseline.value:g}" if baseline else ""
    return f"expected exposure disparity {measure} {finding.disparity or 0.0:.3f}{beside}"


def change_text(case: Case, finding: RagFinding) -> str:
    """The estimate with its interval, how many queries lost more than the margin, and which loss is ruled out."""
    figure = case.figure
    if figure is None or figure.value is None or finding.lower is None:
        return ""
    margin, level = finding.margin, f"{case.facts.level * 100:g} %"
    change = f"; utility changes by {figure.value:+.3f}"
    if figure.low is not None and figure.high is not None and figure.low < figure.high:
        change += f" ({level} CI {figure.low:+.3f} to {figure.high:+.3f})"
    change += f"; {finding.losers or 'none'} of {case.counted} lost more than {margin:g}"
    if finding.conclusion == Conclusion.OUTSIDE:
        return change
    if finding.lower < -margin:
        return f"{change}, and a mean loss of {-finding.lower:.3f} is not ruled out"
    more = f"of more than {-finding.lower:.3f} " if finding.lower < 0 else ""
    return f"{change}, and a mean loss {more}is ruled out at {level}"


def next_step(case: Case, finding: RagFinding) -> str:
    """How to hold a build to it, or what would settle it."""
    conclusions = case.facts
    margin, worst, alpha = finding.margin, finding.worst_loss, 1 - conclusions.level
    if not conclusions.complete:
        return by_way(conclusions, UNFINISHED, "unfinished")
    if finding.conclusion == Conclusion.WITHIN:
        gate = quote(f"{finding.measure}:{case.key}>={-margin:g}")
        again = conclusions.ways.get("again", "llmfair rag")
        return f"hold a build to it: {again} --require {gate} --require-interval"
    closer = "larger --alpha cost less utility"
    if finding.conclusion == Conclusion.INCONCLUSIVE:
        enough, n = (
            fewest_queries(margin, worst, alpha, SPREAD * worst),
            None if case.figure is None else case.figure.n,
        )
        settled = enough is not None and n is not None and n >= enough
        more = (
            "more queries rule smaller losses out"
            if settled
            else queries_for(margin, worst, conclusions.level)
        )
        closer = f"{more}; {closer}"
    return by_way(conclusions, closer, "alpha")


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


def curve_plots(of_names: Curves, means: str, by: str = "", ending: str = "") -> Iterator[Plot]:
    """A figure for each two measures, a line for each name; `ending` of the figures' names keeps groups apart.

    `means`: what the sentence says of them. `by`: what the lines are, where titles have to say so.
    """
    looks = palette([*of_names])
    for pair, (file, title, beginning) in FIGURES.items():
        curves_of = {
            name: curve
            for name, of in of_names.items()
            for curve in of
            if curve.points and (_name(curve.across), _name(curve.up)) == pair
        }
        if curves_of:
            axes = next((curve.across, curve.up) for curve in curves_of.values())
            lines = [
                Line(
                    name,
                    looks[name],
                    _points((of.at, of.mean) for of in curve.points if _enough(of)),
                    curve.deterministic,
                    _points((of.at, of.mean) for of in curve.points if not _enough(of)),
                )
                for name, curve in curves_of.items()
            ]  # fmt: skip
            diagonal = pair[0] == OF_SLOTS
            marks = " Dashed: credit as unequal as exposure." * diagonal + " Hollow: the one list by score."
            sentence = (
                f"{beginning} ({axes[1]}) by {axes[0]}: means of the observations (a query under an alpha) nearest to "
                f"0, 0.2 … 1, {means}; off the line: of fewer than {FEWEST_QUERIES} queries.{marks}"
            )
            yield curves(lines, axes, title + by, sentence, file + ending, ANCHORS, diagonal)


def _enough(point: CurvePoint) -> bool:
    """Whether a line may go through a mean; of means over several retrievers or generators it does."""
    return point.mean.n is None or point.mean.n >= FEWEST_QUERIES


def _name(measure: str) -> str:
    return measure.partition("(")[0]


def _points(figures: Iterable[tuple[float, Figure | None]]) -> list[tuple[float, Value]]:
    return [(at, value) for at, figure in figures if (value := value_of(figure)) is not None]


def _alphas(results: RagResults) -> dict[str, dict[float, str]]:
    """The conditions that draw from a retriever's scores, by retriever and alpha."""
    conditions: dict[str, dict[float, str]] = {name: {} for name in results.tradeoff}
    for condition, of in (results.design.factors or {}).items():
        if condition != GOLD and not isinstance(of["alpha"], str):
            conditions.setdefault(of["retriever"], {})[of["alpha"]] = condition
    return conditions


def _disparities(results: RagResults, folder: Path) -> Iterator[Plot]:
    """A point a query, as in Figure 3 of the paper."""
    measure = next((of.disparity for of in results.intervals.values()), None)
    values: dict[str, list[float]] = {}
    for row in query_figures(folder):
        if row.measure == measure and row.value is not None and not row.reason:
            values.setdefault(row.condition, []).append(row.value)
    conditions = _alphas(results)
    alphas = sorted({alpha for of in conditions.values() for alpha, name in of.items() if name in values})
    scattering = {
        retriever: {f"{alpha:g}": values.get(of.get(alpha, ""), []) for alpha in alphas}
        for retriever, of in conditions.items()
        if any(name in values for name in of.values())
    }
    if scattering and measure:
        sentence = f"{measure} of every query by alpha: 0 where all its items are shown alike, 1 where always the same."
        looks, axes = palette([*results.tradeoff]), ("alpha", measure)
        yield scattered(scattering, looks, axes, "Disparity by alpha", sentence, "disparity")


def _slots(results: RagResults) -> Iterator[Plot]:
    """Credit by slot under the smallest alpha, where all slots hold much the same items."""
    rows = {
        (row.condition, row.group): row for row in results.of_all() if _name(row.measure) == "AttributionAt"
    }
    looks, slots = palette([*results.tradeoff]), list(range(1, results.design.k + 1))
    smallest = {retriever: min(of.items()) for retriever, of in _alphas(results).items() if of}
    points = {
        retriever: _points((slot, rows.get((condition, str(slot)))) for slot in slots)
        for retriever, (_, condition) in smallest.items()
    }
    lines = [Line(retriever, looks[retriever], of) for retriever, of in points.items() if of]
    if lines:
        measure = plain_name(next(row.measure for row in rows.values()))
        alphas = ", ".join(sorted({f"{smallest[line.name][0]:g}" for line in lines}))
        sentence = (
            f"Share of answers credited to the item shown in each slot ({measure}), alpha {alphas}, with intervals: "
            "where lists are nearly random, a line that falls or rises is the generator's attention."
        )
        yield curves(lines, ("slot", measure), "Credit by slot", sentence, "credit-by-slot", slots)


def rag_section(results: RagResults, folder: Path, exhibits: Exhibits) -> Section:
    """Every setting, the queries, utility by interval of disparity, slope and area; and the figures."""
    design = results.design
    costs = [
        ({"retriever": name}, of, results.tradeoff.get(name, ())) for name, of in results.intervals.items()
    ]
    return Section(
        table=rag_table(results),
        more=[collection_table(results), *tradeoff_tables(costs)],
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
    of_runs = {name: of.tradeoff for name, of in _results(group).items()}
    retrievers = list(dict.fromkeys(retriever for of in of_runs.values() for retriever in of))
    several = len(retrievers) > 1
    means = "averaged over retrievers" if several else WITH_INTERVALS
    by_generator = {name: averaged([*of.values()]) for name, of in of_runs.items() if name in group.drawn}
    yield from curve_plots(by_generator, means, " by generator" * several, f"-{number}")
    if several:
        by_retriever = {
            name: averaged([of[name] for of in of_runs.values() if name in of]) for name in retrievers
        }
        means = "averaged over generators" if len(of_runs) > 1 else WITH_INTERVALS
        yield from curve_plots(by_retriever, means, " by retriever", f"-{number}-retrievers")


def group_tables(group: Group) -> Iterator[Table]:
    """Tables 2 and 1, a row a retriever and generator; p adjusted over all of them."""
    of_runs = _results(group)
    retrievers = dict.fromkeys(retriever for of in of_runs.values() for retriever in of.intervals)
    pairs = [(of, name) for of in retrievers for name, run in of_runs.items() if of in run.intervals]
    tables = [of_runs[name].intervals[retriever] for retriever, name in pairs]
    adjusted = iter(holm([cell.paired.p if cell.paired else None for of in tables for cell in of.cells]))
    costs = []
    for (retriever, name), table in zip(pairs, tables, strict=True):
        cells = [
            structs.replace(cell, paired=cell.paired and structs.replace(cell.paired, p_adjusted=p))
            for cell, p in zip(table.cells, adjusted, strict=False)
        ]
        row = {"retriever": retriever, "generator": name}
        costs.append((row, structs.replace(table, cells=cells), of_runs[name].tradeoff.get(retriever, ())))
    note = "useful is what helps the generator of the row, so EE-R of two generators is not of the same items"
    for of_group in tradeoff_tables(costs):
        relevance = len(of_runs) > 1 and of_group.title.startswith("EE-R")
        yield replace(of_group, notes=(*of_group.notes, *[note] * relevance))


def _results(group: Group) -> dict[str, RagResults]:
    """The results by what the rows of a group are called."""
    runs = ((name, audited.results) for name, of in group.rows.items() for audited in of.values())
    return {name: results for name, results in runs if isinstance(results, RagResults)}


def averaged(of_names: Sequence[Sequence[Curve]]) -> list[Curve]:
    """Curves of the same two measures as one, the points of one place averaged; one alone as it is."""
    by_pair: dict[tuple[str, str], list[Curve]] = {}
    for curve in (curve for of in of_names for curve in of):
        by_pair.setdefault((curve.across, curve.up), []).append(curve)
    return [of[0] if len(of) == 1 else _mean(of) for of in by_pair.values()]


def _mean(of: Sequence[Curve]) -> Curve:
    points = [(point.at, point.mean.value) for curve in of for point in curve.points]
    places = (
        (at, mean_of(value for place, value in points if place == at)) for at in sorted({*dict(points)})
    )
    means = {at: mean for at, mean in places if mean is not None}
    ends = [curve.deterministic for curve in of if curve.deterministic is not None]
    across, up = (mean_of(end[axis] for end in ends) for axis in (0, 1))
    return structs.replace(
        of[0],
        observations=sum(curve.observations for curve in of),
        slope=None,
        **of_points([*means], [*means.values()]),
        deterministic=None if across is None or up is None else (across, up),
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
