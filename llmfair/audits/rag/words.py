"""An audit of a generator in a table, sentences and plots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import log
from pathlib import Path
from shlex import quote
from typing import Any

from msgspec import structs

from llmfair.asking.journal import completion_of
from llmfair.audits.aggregates import ALL
from llmfair.audits.documents import ComparisonRun
from llmfair.audits.rag.design import queries_for
from llmfair.audits.rag.measure import OF_SLOTS
from llmfair.audits.rag.results import Curve, Intervals, RagFinding, RagResults
from llmfair.audits.rag.settings import CHANGE, DETERMINISTIC, DISPARITY, GOLD
from llmfair.audits.scoring import ScoreResults
from llmfair.io.text import count, listed, p_text
from llmfair.metrics.names import in_words
from llmfair.nouns import Conclusion
from llmfair.rankers.reader import read_support
from llmfair.report import verdict
from llmfair.report.figures import COST, value_of
from llmfair.report.groups import Group, Section
from llmfair.report.phrases import FEWEST_QUERIES, conclusion_text, interval_text, percent
from llmfair.report.plots import Line, Plot, Value, curves, palette
from llmfair.report.table import Cell, Column, Table
from llmfair.report.words import Wording, before_text, table_of
from llmfair.results import Conclusions, Declared, Exhibits, Row, RunVerdict, absent_row
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
    return replace(table, notes=(*notes(results), *table.notes), below=groups_table(results))


def conclusion(finding: RagFinding, *about: object) -> str:
    """A conclusion in a table, with the largest mean loss that is not ruled out."""
    if finding.lower is None:
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


# Groups of items: what each gets of exposure and credit over its share of useful items.

SHARES = {"EE": "exposure", "Credit": "credit"}
"""What measures by group are of, by their names."""
MOST_NAMED = 6
"""Groups that a sentence names of which the same is said."""


def by_name(n: int, attribute: str) -> str:
    """How many groups there are, called by the attribute where that is a word: `12 sources`."""
    if not attribute.isalpha():
        return f"{n} groups of {attribute}"
    return count(n, attribute, f"{attribute[:-1]}ies" if attribute.endswith("y") else "")


def of_groups(rows: Iterable[Row]) -> list[Row]:
    return [
        row for row in rows if row.query_id == ALL and row.group and _name(row.measure) in (*SHARES, "Useful")
    ]


def settings_of_groups(rows: Sequence[Row], setting: str | None) -> list[str]:
    """The setting that the verdict speaks of, or else one list by score, which comes second where it is another."""
    conditions = sorted(
        {row.condition for row in rows}, key=lambda name: not name.endswith(f"-{DETERMINISTIC}")
    )
    first = setting if setting in conditions else conditions[0]
    alone = f"{first.rpartition('-')[0]}-{DETERMINISTIC}"
    return [*dict.fromkeys((first, *[alone] * (alone in conditions)))]


def more_or_less(row: Row) -> str:
    return "more" if (row.value or 0.0) > 1 else "less"


def groups_sentence(facts: Conclusions, setting: str | None = None) -> str:
    """Which groups get more or less than their share; nothing where items have none."""
    if not (rows := of_groups(facts.by_group)):
        return ""
    setting, *_ = settings_of_groups(rows, setting)
    rows = [row for row in rows if row.condition == setting and _name(row.measure) in SHARES]
    number, said = by_name(len({row.group for row in rows}), facts.attribute), list[str]()
    outside = [row for row in rows if row.conclusion == Conclusion.OUTSIDE]
    outside.sort(key=lambda row: abs(log(max(row.value or 0.0, 1e-9))), reverse=True)
    for (name, what), which in product(SHARES.items(), ("more", "less")):
        of = [row for row in outside if _name(row.measure) == name and more_or_less(row) == which]
        named = [f"{row.group} ({interval_text(row, facts.band)})" for row in of[:MOST_NAMED]]
        named += [f"{len(of) - MOST_NAMED} others"] * (len(of) > MOST_NAMED)
        if of:
            verb, whose = ("gets", "its") if len(of) == 1 else ("get", "their")
            said.append(f"{listed(named)} {verb} {which} than {whose} share of {what}")
    if said:
        return f". Among {number}, {'; '.join(said)}"
    if any(row.conclusion == Conclusion.INCONCLUSIVE for row in rows):
        return f". None of {number} is shown to get more or less than its share"
    needed = f"{FEWEST_QUERIES} useful items of each, in {FEWEST_QUERIES} queries"
    return f". Nothing can be said of {number}: it takes {needed}"


def groups_table(results: RagResults | ScoreResults) -> Table | None:
    """A row a group, of the settings that matter; None where items have no groups."""
    if not (rows := of_groups(results.rows)):
        return None
    figures = {(row.run, row.condition, _name(row.measure), row.group): row for row in rows}
    runs = [results] if isinstance(results, RagResults) else results.runs
    places = [
        (of.run, name)
        for of in runs
        if (of_run := [row for row in rows if row.run == of.run])
        for name in settings_of_groups(of_run, of.verdict.condition if of.verdict else None)
    ]
    first, level = places[0], f" [{results.level * 100:g} %]"
    items, unknown = dict[str, int](), 0
    if isinstance(results, RagResults):
        items, unknown = {**results.design.groups}, results.design.unknown

    def figure(place: tuple[str, str], name: str) -> Callable[[str], Cell]:
        return lambda group: figures.get((*place, name, group))

    def concluded(group: str) -> str:
        of = {what: figures.get((*first, name, group)) for name, what in SHARES.items()}
        outside = {what: row for what, row in of.items() if row and row.conclusion == Conclusion.OUTSIDE}
        return ", ".join(f"{more_or_less(row)} {what}" for what, row in outside.items())

    columns: list[Column[str]] = [
        (rows[0].attribute, str), ("items", items.get), (f"useful{level}", figure(first, "Useful")),
        *(
            (", ".join((what, *named)) + level, figure(place, name))
            for place in places
            for named in [dict.fromkeys(place[len(runs) == 1 :]) if len(places) > 1 else ()]
            for name, what in SHARES.items()
        ),
        ("conclusion", concluded),
    ]  # fmt: skip
    notes = [
        "share of exposure, or credit, over share of useful items: 1 is parity; sums of each query's shares; concluded "
        f"where the interval is outside {results.band[0]:g} to {results.band[1]:g}, p adjusted (Holm) over settings, "
        "groups and measures"
    ]
    notes += [f"{count(unknown, 'item')} of no group, or of several: in no row"] * bool(unknown)
    groups = sorted({row.group for row in rows})
    title = f"By {rows[0].attribute}: {by_name(len(groups), rows[0].attribute)}"
    return Table.of(title, columns, groups, notes, results.band)


# Tables of what fairer lists cost, in the layout of Kim & Diaz, "Towards Fair RAG", ICTIR 2025, Tables 1 and 2.

Named = dict[str, str]
"""What a row is of, by the head of its column: a retriever; of several runs the generator, too."""


def number_text(value: float | None, form: str = ".4f") -> str:
    return "–" if value is None else format(value, form)


def tradeoff_tables(costs: Sequence[tuple[Named, Intervals, Sequence[Curve]]]) -> Iterator[Table]:
    """Tables 2 and 1 of these retrievers, of those that drew anything."""
    intervals = [(name, of) for name, of, _ in costs if of.cells]
    if intervals:
        first = intervals[0][1]
        yield Table.of_texts(
            f"Change of {first.utility} by interval of {first.disparity}; paired by query",
            (name | row for name, of in intervals for row in interval_rows(of)),
            f"pooled, as in the paper: mean {first.utility} of the observations in the interval less that of the one "
            f"list by score, over all queries; * unpaired p below {STARRED:g} (Student), which takes observations of "
            "one query for independent",
            "paired: mean over the interval's queries of their own mean in it less their own one list by score",
        )
    curves = [(name, of[0]) for name, _, of in costs if of and of[0].points]
    if curves:
        across, up = curves[0][1].across, curves[0][1].up
        rows = (
            name
            | {
                "slope": number_text(curve.slope),
                "area": number_text(curve.area),
                "observations": f"{curve.observations:,} ({count(curve.queries, 'query', 'queries')})",
            }
            for name, curve in curves
        )
        yield Table.of_texts(
            f"{up} over {across}: slope and area",
            rows,
            "observation: a query under an alpha, without the one list by score; slope: of the least-squares line over "
            f"all; area: by trapezoid below the means of the observations nearest to 0, 0.2 … 1 of {across}, with "
            "constant ends; the paper defines neither",
            "useful is what helps the generator of the row, so EE-R of two generators is not of the same items",
        )


def interval_rows(of: Intervals) -> Iterator[Named]:
    """Table 2, a row an interval that has observations: pooled and unpaired as in the paper, and paired by query."""
    for each in of.cells:
        if each.difference is not None and (change := each.paired) is not None:
            limits = "" if change.low is None else f" [{change.low:+z.3f}, {change.high:+z.3f}]"
            tests = {"p": change.p, "p (Holm)": change.p_adjusted, "p (Student)": each.p_student}
            yield {
                f"{of.utility} of the one list": number_text(of.baseline, ".3f"),
                "interval": each.interval,
                "observations": f"{each.observations:,}",
                "queries": f"{each.queries:,}",
                "pooled": f"{each.difference:+z.3f}{'*' * each.starred}",
                "paired": number_text(change.value, "+z.3f") + limits,
                **{head: "" if p is None else p_text(p) for head, p in tests.items()},
            }


# The verdict of an audit of a generator: the fairest setting whose utility is kept, and what fairness costs.

LOST, NOT_ASSESSABLE, INCONCLUSIVE, KEPT = STATUSES = ("lost", "not assessable", "inconclusive", "kept")
TO_CHANGE = {
    **verdict.ADVICE,
    **dict.fromkeys(verdict.UNREADABLE, verdict.ANSWERED),
    "beyond_worst_loss": "leave --worst-loss out, or give a larger one",
    "too_few_queries": "more queries: fewer than 5 with two useful items say nothing",
    "no_useful_items": "a generator that answers better with items than without, or --useful qrels and judgements",
}
"""What to change where nothing can be said, by the reason."""


def rag_verdict(conclusions: Conclusions) -> RunVerdict:
    """Of the settings whose utility is kept the fairest, and which groups of items get more or less than their share
    under it; where there is none, what stands in the way."""
    cases: dict[Conclusion, list[Any]] = {of: [] for of in Conclusion}
    for case in verdict.cases_of(conclusions):
        cases[case.finding.conclusion].append(case)

    def disparity(case: Any) -> float:
        return case.finding.disparity or 0.0

    if within := cases[Conclusion.WITHIN]:
        sentence = "{} is the fairest setting whose utility is kept"
        return verdict_on(min(within, key=disparity), KEPT, sentence)
    if inconclusive := cases[Conclusion.INCONCLUSIVE]:
        lost = max(inconclusive, key=lambda of: (of.finding.reason != "larger_alpha", of.finding.lower))
        reason = lost.finding.reason
        why = in_words(reason, CHANGE) if reason else "more than the margin may be lost"
        return verdict_on(lost, INCONCLUSIVE, f"whether {{}} keeps its utility is open, as {why}")
    if outside := cases[Conclusion.OUTSIDE]:
        sentence = "{} is the least fair of the settings drawn, and loses utility even so"
        return verdict_on(max(outside, key=disparity), LOST, sentence)
    barred = cases[Conclusion.NOT_ASSESSABLE]
    reason = str(barred[0].finding.reason if barred else "no_useful_items")
    sentence = f"nothing can be said of what fairness costs: {in_words(reason, CHANGE)}"
    advice = verdict.advice_of(conclusions, TO_CHANGE.get(reason, verdict.LOOK))
    if not barred and conclusions.run is None:
        sentence = "a log says how unequally items were shown, not what fairer lists would have cost"
        advice = "llmfair rag asks the generator about fairer lists of the same items"
    elif not conclusions.complete:
        sentence = "nothing can be said of what fairness costs: not all questions are answered yet"
        advice = verdict.by_way(conclusions, verdict.UNFINISHED, "unfinished")
    return RunVerdict(status=NOT_ASSESSABLE, sentence=sentence + groups_sentence(conclusions), next=advice)


def verdict_on(case: verdict.Case, status: str, sentence: str) -> RunVerdict:
    """The verdict that speaks of one alpha of a retriever, which the sentence has a place for: how unequally items are
    shown beside the one list by score, how utility changes, and which loss is ruled out; then how to hold a build to
    it, or what would settle it."""
    finding: Any = case.finding
    facts, figure = case.facts, case.figure or absent_row(finding.measure, case.key)
    margin, within = finding.margin, finding.conclusion == Conclusion.WITHIN
    measure = next((name for name in facts.measures if _name(name) == DISPARITY), DISPARITY)
    text = (
        f"{sentence.format(case.key)}: expected exposure disparity {measure} {finding.disparity or 0.0:.3f}"
    )
    alone = facts.figures.get((measure, f"{case.key.rpartition('-')[0]}-{DETERMINISTIC}"))
    if (baseline := value_of(alone)) is not None:
        text += f", where the one list by score has {baseline.value:g}"
    if figure.value is not None and finding.lower is not None:
        level = f"{facts.level * 100:g} %"
        text += f"; utility changes by {figure.value:+.3f}"
        if figure.low is not None and figure.high is not None:
            text += f" ({level} CI {figure.low:+.3f} to {figure.high:+.3f})"
        text += f"; {finding.losers or 'none'} of {case.counted} lost more than {margin:g}"
        if finding.conclusion != Conclusion.OUTSIDE:
            more = f" of more than {-finding.lower:.3f}" if finding.lower < 0 else ""
            ruled_out = f", and a mean loss{more} is ruled out at {level}"
            open_ = f", and a mean loss of {-finding.lower:.3f} is not ruled out"
            text += open_ if finding.lower < -margin else ruled_out
    advice = "larger --alpha cost less utility"
    if not facts.complete:
        text, advice = f"{text}; not all questions are answered yet", verdict.UNFINISHED
    elif within:
        gate = quote(f"{finding.measure}:{case.key}>={-margin:g}")
        again = facts.ways.get("again", "llmfair rag")
        advice = f"hold a build to it: {again} --require {gate} --require-interval"
    elif finding.conclusion == Conclusion.INCONCLUSIVE:
        advice = f"{queries_for(margin, finding.worst_loss, facts.level)}; {advice}"
    if not (facts.complete and within):
        advice = verdict.by_way(facts, advice, "alpha" if facts.complete else "unfinished")
    return RunVerdict(
        status=status, sentence=text + groups_sentence(facts, case.key.condition), next=advice,
        condition=case.key.condition, measure=finding.measure, estimate=figure.value, low=figure.low,
        high=figure.high, n=figure.n,
    )  # fmt: skip


# The figures of audits of generators: disparity by alpha, what fairer lists cost, and where credit goes. Kim & Diaz,
# "Towards Fair RAG", ICTIR 2025, Figures 3 to 5: one colour a retriever, or a generator where several are side by
# side.

FIGURES: Mapping[tuple[str, str], tuple[str, str, str]] = {
    ("EE-D", "EU"): (COST, "What fairer lists cost", "Utility of the answers"),
    ("EE-D", "EE-R"): ("useful-shown", "Useful items shown", "Exposure of useful items"),
    ("EE-R", "EU"): ("useful-utility", "What useful items bring", "Utility of the answers"),
    ("EE-D", "EAR"): ("credited-share", "Items that answers rest on", "Share of slots that answers are credited to"),
    ("EE-R", "EAR"): ("useful-credited", "Useful items and credit", "Share of slots that answers are credited to"),
    ("EE-D/k'", "EAE-D"): ("credited-disparity", "Credit beside exposure", "How unequally credit is spread"),
}  # fmt: skip
"""The name, the title and the beginning of the sentence of a figure, by what it shows."""


def curve_plots(of_names: Mapping[str, Sequence[Curve]], ending: str = "") -> Iterator[Plot]:
    """A figure for each two measures, a line for each name, that of a retriever or of what else is compared; `ending`
    of the figures' names keeps groups apart."""
    looks = palette([*of_names])
    for pair, (file, title, beginning) in FIGURES.items():
        lines, axes = list[Line](), pair
        for name, curve in ((name, curve) for name, of in of_names.items() for curve in of):
            if curve.points and (_name(curve.across), _name(curve.up)) == pair:
                through, off = list[tuple[float, Value]](), list[tuple[float, Value]]()
                for point in curve.points:
                    if (value := value_of(point.mean)) is not None:
                        few = (point.mean.n or 0) < FEWEST_QUERIES
                        (off if few else through).append((point.at, value))
                lines.append(Line(name, looks[name], through, curve.deterministic, off))
                axes = axes if len(lines) > 1 else (curve.across, curve.up)
        if lines:
            diagonal = pair[0] == OF_SLOTS
            marks = " Dashed: credit as unequal as exposure." * diagonal + " Hollow: the one list by score."
            sentence = (
                f"{beginning} ({axes[1]}) by {axes[0]}: means of the observations (a query under an alpha) nearest to "
                f"0, 0.2 … 1, with intervals over queries; off the line: of fewer than {FEWEST_QUERIES} queries.{marks}"
            )
            yield curves(lines, axes, title, sentence, file + ending, ANCHORS, diagonal)


def _name(measure: str) -> str:
    return measure.partition("(")[0]


def rag_section(results: RagResults, folder: Path, exhibits: Exhibits) -> Section:
    """Every setting, utility by interval of disparity, slope and area; and the figures."""
    design = results.design
    costs = [
        ({"retriever": name}, of, results.tradeoff.get(name, ())) for name, of in results.intervals.items()
    ]
    return Section(
        table=rag_table(results),
        more=[*tradeoff_tables(costs)],
        plots=[*curve_plots(results.tradeoff)],
        words=METHOD,
        facts=[
            ("shown", f"{design.k} items, {design.samples} lists a query and setting"),
            ("useful items", design.useful),
            ("utility", design.utility),
            ("attribution", design.attribution),
        ],
    )


# Several audits of generators side by side: the paper's tables, a row a generator, and their curves.


def group_plots(group: Group, declared: Declared, number: int) -> Iterator[Plot]:
    """A line a generator, or of several retrievers a line for each two."""
    runs = {name: of.tradeoff for name, of in _results(group).items() if name in group.drawn}
    several = len({retriever for of in runs.values() for retriever in of}) > 1
    lines = {
        f"{name}, {retriever}" if several else name: curves
        for name, of in runs.items()
        for retriever, curves in of.items()
    }
    yield from curve_plots(lines, f"-{number}")


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
    yield from tradeoff_tables(costs)


def _results(group: Group) -> dict[str, Any]:
    """The results by what the rows of a group are called."""
    return {name: audited.results for name, of in group.rows.items() for audited in of.values()}


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
    scored_below=groups_table,
)
