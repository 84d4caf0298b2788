"""An audit of query refinement in a table, sentences and plots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmfair.asking.journal import completion_of
from llmfair.audits.refine import REFINE
from llmfair.audits.refine.design import FAIR_QR, REFINED
from llmfair.audits.refine.measure import (
    SYMBOLS,
    TrailLine,
    changes_told,
    compared,
    contrasts_table,
    held_against,
    read_trail,
)
from llmfair.audits.refine.results import RefineFinding, RefineResults
from llmfair.audits.refine.settings import BASELINE
from llmfair.audits.verdict import ADVICE, UNFINISHED, UNPARSEABLE, Conclusions, conclusions_of
from llmfair.io.files import query_figures
from llmfair.metrics.names import parse_measure
from llmfair.nouns import Conclusion
from llmfair.rankers.fair_qr import read_keywords
from llmfair.report.exhibits import Declared, Exhibits
from llmfair.report.figures import value_of
from llmfair.report.groups import Group
from llmfair.report.plots.base import (
    COLORS,
    INK,
    LEGEND,
    Plot,
    below,
    clipped,
    folded,
    legend_height,
    palette,
    tip,
)
from llmfair.report.plots.ratios import Line, Value, curves
from llmfair.report.section import Section
from llmfair.report.tables import (
    FEW_QUERIES,
    Table,
    conclusion_text,
    conditions_table,
    count,
    in_words,
    percent,
    plural,
)
from llmfair.results import Band, Figure, RunVerdict, Words, absent_row

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes


# How an audit of query refinement is made and concluded, in the report's words.


WORDS = (
    "Each topic's query finds a first page by BM25. The shares of the groups on it are held against a target; a model "
    "is asked for keywords about the group that is furthest below, the query with these words finds the next page, and "
    "so on while the objective improves [Chen & Fang 2025, FAIR-QR]. The page before the first that does not improve "
    "is kept. bm25 is the page of the original query, refined the page that was kept, fair-qr the documents of that "
    "page in the order of the original query.",
    "The loop ends when no page of whole documents could be nearer the target (attained), when no group is below its "
    "target (no_underrepresented_group) or unknown alone is, which no word names (unknown_underrepresented; with "
    "--allow-unknown, as in the paper, it is asked for), when neither a reply nor the one asked again names keywords, "
    "when all keywords stand in the query (no_keywords), when a round comes no nearer (no_decrease), or after the last "
    "round (max_iterations).",
    "The target is told to the loop and is what its figures are measured against. The empirical one comes from the "
    "judgements of these very topics, which no search engine has.",
    "Baselines order anew what the original query finds, by documents, groups and BM25 scores; those that learn are "
    "cross-fitted by query, so that no query is ordered by a model that saw its judgements.",
    "Conclusions are paired by query, fair-qr less bm25: nearer where the objective and AWRF improve with the whole of "
    "their intervals, at a loss where the whole interval of nDCG's change lies below 0. p-values flip the signs of the "
    "queries' changes, adjusted (Holm) over the methods that fair-qr is held against.",
)


# The verdict of an audit of query refinement: is the page nearer its target, and what does that cost?


NO_NEARER, NOT_ASSESSABLE, INCONCLUSIVE, AT_A_LOSS, NEARER = REFINE.statuses


def conclusion(finding: RefineFinding, row: Figure | None, level: float, band: Band, words: Words) -> str:
    """A conclusion in the table of measured runs."""
    if finding.conclusion == Conclusion.NOT_ASSESSABLE:
        return conclusion_text(finding)
    return status_of(finding)


def status_of(finding: RefineFinding) -> str:
    """The status of what can be assessed."""
    return {True: AT_A_LOSS if finding.loss else NEARER, False: NO_NEARER, None: INCONCLUSIVE}[finding.nearer]


def how_ended(row: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """How the reply was read."""
    plain = settings.get("form") == "paper"
    return str(read_keywords(completion_of(row), row["about"]["query"], plain).reply_class)


def refine_verdict(found: Conclusions) -> RunVerdict:
    """What becomes of the objective, of AWRF and of nDCG, paired by topic."""
    finding = found.findings.get(FAIR_QR)
    if finding is None or finding.conclusion == Conclusion.NOT_ASSESSABLE:
        reason, measure = (None, "") if finding is None else (finding.reason, finding.measure)
        why = "nothing was measured" if reason is None else in_words(reason, measure)
        return RunVerdict(
            status=NOT_ASSESSABLE,
            sentence=f"nothing can be said of refinement: {why}",
            next=found.advice(
                {**ADVICE, **TO_CHANGE}.get(str(reason), "ask about at least 5 topics with judgements")
            )
            if found.complete
            else UNFINISHED,
        )
    assert isinstance(finding, RefineFinding)
    goals = (finding.measure, finding.aimed, finding.utility)
    status = status_of(finding)
    changes = {
        measure: figure
        for (measure, condition), figure in found.figures.items()
        if condition == compared(BASELINE) and figure.value is not None
    }
    figure = changes.get(finding.measure)
    told = [_change(measure, changes[measure]) for measure in dict.fromkeys(goals) if measure in changes]
    said = {
        NEARER: "refined queries bring the page nearer its target",
        AT_A_LOSS: "refined queries bring the page nearer its target, but lose relevance",
        NO_NEARER: "refined queries bring the page no nearer its target",
        INCONCLUSIVE: "it stays open whether refined queries bring the page nearer its target",
    }[status]
    figure = figure or absent_row(finding.measure, FAIR_QR)
    n = figure.n
    queries = f" ({found.level * 100:g} % CI, {count(n or 0, 'query', 'queries')})" if told else ""
    few = "; few queries, so read the intervals with care" if n is not None and n < FEW_QUERIES else ""
    unfinished = "" if found.complete else "; not all questions are answered yet"
    return RunVerdict(
        status=status,
        sentence=f"{said}: {', '.join(told)}{queries}{few}{unfinished}",
        next=_next(status, found),
        condition=FAIR_QR,
        measure=finding.measure,
        estimate=figure.value,
        low=figure.low,
        high=figure.high,
        n=n,
    )


TO_CHANGE = {
    UNPARSEABLE: "another model, or --form json; what was said: llmfair runs show {run} --invalid",
    "no_query_measured": "queries that share words with documents; which found none: llmfair runs show {run} --trail",
}
"""What to change where nothing can be said, by the reason."""


def _change(measure: str, figure: Figure) -> str:
    value = figure.value or 0.0
    between = "" if figure.low is None or figure.high is None else f" [{figure.low:+.3f}, {figure.high:+.3f}]"
    if value == figure.low == figure.high == 0:
        return f"{measure} stays"
    how = "stays" if value == 0 else f"{'rises' if value > 0 else 'falls'} by {abs(value):.3f}"
    return f"{measure} {how}{between}"


def _next(status: str, found: Conclusions) -> str:
    if not found.complete:
        return UNFINISHED
    trail = found.advice("the words of every round: llmfair runs show {run} --trail")
    if status in (NEARER, AT_A_LOSS) and not found.model.startswith("fake:name"):
        return f"{trail} · beside a model that knows nothing: llmfair refine -m fake:name"
    if status == INCONCLUSIVE:
        return f"more topics narrow the intervals · {trail}"
    return trail


# The layout of the paper's Table 1: relevance, then fairness and its products with relevance, attribute by attribute.
# Chen & Fang, "FAIR-QR", arXiv 2503.21092, Table 1: best of a column in bold, and behind refinement's figures a sign
# for each method that they are better than, by a t test paired by query, p < 0.05.


PRESET = "paper"
UTILITY, FAIRNESS, PRODUCT, MEAN_PRODUCT = "utility", "fairness", "product", "mean_product"
HEADINGS = {
    UTILITY: "nDCG@{k}",
    FAIRNESS: "AWRF@{k}",
    PRODUCT: "product of means",
    MEAN_PRODUCT: "mean of products",
}


@dataclass(frozen=True)
class Mean:
    """A method's mean in a column, with the signs of the methods that it is better than."""

    value: float
    signs: str = ""

    def __str__(self) -> str:
        return f"{self.value:.4f}{self.signs}"


Method = Mapping[str, Mean]
"""A method's means by column, of those of HEADINGS that it has."""
Block = Mapping[str, Method]
"""The methods of one attribute's run, by name."""


def of_means(utility: float, fairness: float) -> Method:
    """A method of which only the means are known."""
    return {UTILITY: Mean(utility), FAIRNESS: Mean(fairness), PRODUCT: Mean(utility * fairness)}


def paper_table(blocks: Mapping[str, Block], title: str, k: int = 20) -> Table:
    """Methods down; across nDCG once, of every attribute where that differs, and what each attribute has."""
    methods = dict.fromkeys(name for block in blocks.values() for name in block)
    columns = [*_columns(blocks, k)]
    cells = {
        (row, column): means
        for row, name in enumerate(methods)
        for column, (_, attributes, kind) in enumerate(columns, start=1)
        if (means := _means([blocks[attribute].get(name, {}).get(kind) for attribute in attributes]))
    }
    values = {place: fsum(mean.value for mean in means) / len(means) for place, means in cells.items()}
    best = {column: max(value for (_, at), value in values.items() if at == column) for _, column in values}
    rows = tuple(
        (
            name,
            *(" / ".join(map(str, cells.get((row, column), ()))) for column in range(1, len(columns) + 1)),
        )
        for row, name in enumerate(methods)
    )
    signs = "".join(mean.signs for means in cells.values() for mean in means)
    several = any(len(means) > 1 for means in cells.values())
    of_each = (
        f"{HEADINGS[UTILITY].format(k=k)} of two figures: of {' / '.join(blocks)}; the best by their mean"
    )
    notes = ("bold: the best of a column", of_each * several, signs_text(signs))
    return Table(
        title,
        ("method", *(heading for heading, _, _ in columns)),
        rows,
        tuple(filter(None, notes)),
        strong=frozenset(place for place, value in values.items() if value == best[place[1]]),
    )


def _columns(blocks: Mapping[str, Block], k: int) -> Iterator[tuple[str, Sequence[str], str]]:
    """Heading, attributes and kind of every column: relevance is of all, whatever else of one."""
    several = len(blocks) > 1
    yield HEADINGS[UTILITY].format(k=k), [*blocks], UTILITY
    for attribute, block in blocks.items():
        for kind, heading in HEADINGS.items():
            if kind != UTILITY and any(kind in means for means in block.values()):
                yield f"{attribute}: " * several + heading.format(k=k), [attribute], kind


def _means(means: Sequence[Mean | None]) -> Sequence[Mean]:
    """One where all are shown alike, else each; those that there are."""
    return [*{str(mean): mean for mean in means if mean is not None}.values()]


def signs_text(signs: str) -> str:
    """What the signs say that stand in a table; nothing without any."""
    told = ", ".join(f"{sign} {method}" for method, sign in SYMBOLS.items() if sign in signs)
    return (
        f"better than {told} by a paired t test, p < 0.05, not adjusted, as in the paper's Table 1"
        if told
        else ""
    )


def block_of(results: RefineResults) -> Block:
    """The methods of a run."""
    design, signs, found = results.design, signs_of(results), dict[str, dict[str, Mean]]()
    kinds = {design.utility: UTILITY, design.aimed: FAIRNESS}
    for measure in results.measures:
        parsed = parse_measure(measure)
        if parsed.name == "nDCGxAWRF" and parsed.cutoff == design.k:
            kinds[measure] = PRODUCT if parsed.arguments["agg"] == "product-of-means" else MEAN_PRODUCT
    for row in results.of_all():
        if row.measure in kinds and row.condition in design.conditions and row.value is not None:
            mean = Mean(row.value, signs.get((row.condition, row.measure), ""))
            found.setdefault(row.condition, {})[kinds[row.measure]] = mean
    return {name: found[name] for name in design.conditions if name in found}


def signs_of(results: RefineResults) -> dict[tuple[str, str], str]:
    """By method and measure, the signs of the paper's test; of runs under its preset alone."""
    signs: dict[tuple[str, str], str] = {}
    for test in results.paper if results.design.preset == PRESET else ():
        signs[test.method, test.measure] = signs.get((test.method, test.measure), "") + test.symbol
    order = "".join(SYMBOLS.values())
    return {place: "".join(sorted(of, key=order.index)) for place, of in signs.items()}


def group_tables(group: Group) -> Iterator[Table]:
    """Of runs under the paper's preset its Table 1, attributes side by side, and the tests of this house beside it."""
    for name, runs in group.rows.items():
        results = {
            attribute: audited.results
            for attribute, audited in runs.items()
            if isinstance(audited.results, RefineResults) and audited.results.design.preset == PRESET
        }
        if not results:
            continue
        about, k = f"{group.dataset} · {name}", next(iter(results.values())).design.k
        blocks = {attribute: block_of(of) for attribute, of in results.items()}
        yield paper_table(blocks, f"Table 1 of the paper · {about}", k)
        for attribute, of in results.items():
            yield from filter(None, [contrasts_table(of, f" · {about}, {attribute}")])


# What an audit of query refinement found as a table: the original query, the refined one, and its page in order.


KNOWN, FACTOR = "target known", "target_known"
OF_JUDGEMENTS = (
    ": a target from elsewhere (--target trec2022, or a file), -m fake:name, a model that knows nothing, and "
    "--baseline greedy, no model at all, show what that is worth"
)
SHOWN_LEFT_OUT = 5
STOPS = {
    "attained": "no page could be nearer",
    "no_underrepresented_group": "no group was below its target",
    "unknown_underrepresented": "unknown is furthest below its target, and no query can ask for it",
    "unreadable": "two replies in a row named no keywords",
    "no_keywords": "all keywords stood in the query already",
    "no_result": "the query finds nothing",
    "no_decrease": "a round came no nearer, and was dropped",
    "max_iterations": "all rounds were used",
}
LEFT_OUT = {
    "no_target": "no relevant document whose groups could be aimed at",
    "no_result": "the query finds nothing",
}


def refine_table(results: RefineResults) -> Table:
    """One row a method, one column a measure, and whether the method is told the target."""
    table = conditions_table(REFINE.title, results, REFINE.condition, {}, REFINE.unit, "replies")
    factors = results.design.factors or {}
    status = refine_verdict(conclusions_of(results, ())).status
    said = dict.fromkeys(results.design.conditions, "")
    said[FAIR_QR] = table.said[FAIR_QR] if status == NOT_ASSESSABLE else status
    signs = signs_of(results)
    rows = tuple(
        (
            *(
                cell + signs.get((row[0], name.partition(" [")[0]), "")
                for name, cell in zip(table.header[:-1], row[:-1], strict=True)
            ),
            str(factors.get(row[0], {}).get(FACTOR, "")),
            said[row[0]],
        )
        for row in table.rows
    )
    header = (*table.header[:-1], KNOWN, "conclusion")
    strong = frozenset(_best(results, table.header)) if results.design.preset == PRESET else frozenset()
    noted = (*notes(results), *table.notes)
    return replace(table, header=header, rows=rows, said=said, notes=noted, strong=strong)


def _best(results: RefineResults, header: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The cells of the best methods in every measure that has a better direction, as in the paper."""
    values = {(row.measure, row.condition): row.value for row in results.of_all() if not row.group}
    for column, name in enumerate(header):
        measure = name.partition(" [")[0]
        if measure not in results.measures:
            continue
        sign = {"higher": 1, "lower": -1}.get(str(parse_measure(measure).definition.better), 0)
        of = [values.get((measure, condition)) for condition in results.design.conditions]
        known = [value * sign for value in of if value is not None and sign]
        yield from ((row, column) for row, value in enumerate(of) if value is not None and known
                    and value * sign == max(known))  # fmt: skip


def notes(results: RefineResults) -> Iterator[str]:
    """How the loops went, what the page changed, and what has to be known to read that."""
    design, stops = results.design, results.stops
    refined = sum(n for rounds, n in results.iterations.items() if rounds != "0")
    ended = ", ".join(f"{name} {n} ({STOPS[name]})" for name, n in stops.items() if name in STOPS)
    if not refined and stops:
        yield f"nothing was refined: {_why_not(results)}"
    elif stops:
        yield (
            f"{refined} of {count(sum(stops.values()), 'query', 'queries')} {plural(refined, 'was', 'were')} refined, "
            f"in pages of {design.k} of {design.documents:,} documents; loops ended with {ended}"
        )
    if design.query_text:
        yield f"queries are the topics' {searched_text(design.query_text)}"
    yield _told(results) + OF_JUDGEMENTS * (design.target == "empirical")
    for reason, queries in results.left_out.items():
        first = ", ".join(queries[:SHOWN_LEFT_OUT]) + ", …" * (len(queries) > SHOWN_LEFT_OUT)
        yield f"{count(len(queries), 'query', 'queries')} left out, {LEFT_OUT.get(reason, reason)}: {first}"
    yield from filter(None, [signs_text("".join(signs_of(results).values()))])
    counted = results.answers[FAIR_QR]
    classes = ", ".join(f"{name} {n}" for name, n in counted.classes.items() if name != "ok")
    if classes:
        again = f"; {counted.asked_again} asked again" if counted.asked_again else ""
        yield (
            f"{percent(counted.replies - counted.classes.get('ok', 0), counted.replies)} of "
            f"{counted.replies:,} replies are not in the form asked for: {classes}{again}"
        )
    yield from changes_told(results)
    yield from results.remarks or ()
    for measure, reach in results.reach.items():
        if reach.low is not None:
            yield f"the least {measure} that pages of {design.k} whole documents can have is {reach.low:.3f} on average"
    if not design.query_text:
        yield "queries are the topics' titles: none has keywords"


def _told(results: RefineResults) -> str:
    """Which methods know what they are measured against."""
    others = held_against(results.design.conditions)
    known = {name: str((results.design.factors or {}).get(name, {}).get(FACTOR, "no")) for name in others}
    told = ["the loop", *(name for name in others if known[name] == "yes")]
    learnt = [f", {name} those of {known[name]}" for name in others if known[name] not in ("yes", "no")]
    are, their = ("is", "its") if len(told) == 1 else ("are", "their")
    return (
        f"{' and '.join(told)} {are} told the target that {their} figures are measured against{''.join(learnt)}, "
        "which other methods are not"
    )


def searched_text(query_text: Mapping[str, int]) -> str:
    """What is searched of topics, and of how many where it differs."""
    return " and ".join(
        f"{name} ({n})" if len(query_text) > 1 else name if name == "keywords" else f"{name}s"
        for name, n in query_text.items()
    )


def _why_not(results: RefineResults) -> str:
    """Why no query was refined, in one line."""
    stops, total = results.stops, sum(results.stops.values())
    if not results.design.max_iterations:
        return "no round was allowed (--max-iterations 0)"
    reason = max(stops, key=lambda name: stops[name])
    return f"of {stops[reason]} of {total} original queries {STOPS[reason]}"


# The figures of an audit of query refinement: AWRF of every topic from step to step, beside nDCG, and by round. Chen
# & Fang, "FAIR-QR", arXiv 2503.21092, Figure 2: each topic before refinement, after it, and in its last order.


STEPS = {BASELINE: "original query", REFINED: "refined", FAIR_QR: "refined, in the original query's order"}
MARKS = {BASELINE: "o", REFINED: "s", FAIR_QR: "D"}
ROW = 16
Place = tuple[RefineResults, str]
"""A method in the results of a run."""


def refine_plots(results: RefineResults, folder: Path) -> Iterator[Plot]:
    """Every figure of one run; that of the first screen first."""
    if topics := topic_values(folder, results.design.aimed):
        yield steps_plot(topics, results.design.aimed)
    yield from beside_plots({name: (results, name) for name in results.design.conditions})
    yield from round_plots(results)


def group_plots(group: Group, declared: Declared, number: int) -> Iterator[Plot]:
    """Of several audits side by side a panel each, as the paper has one for each attribute; and models in one."""
    by_attribute: dict[str, dict[str, Place]] = {}
    for name, runs in group.drawn.items():
        for attribute, audited in runs.items():
            results = audited.results
            if not isinstance(results, RefineResults):
                continue
            if topics := topic_values(audited.folder, results.design.aimed):
                ending = f"-{number}-{audited.folder.resolve().name}"
                yield steps_plot(topics, results.design.aimed, ending, f", {attribute}, {name}")
            places = by_attribute.setdefault(attribute, {STEPS[BASELINE]: (results, BASELINE)})
            places[name] = (results, FAIR_QR)
    for attribute, places in by_attribute.items():
        searched = {_place(results, BASELINE) for results, _ in places.values()}
        if len(places) > 2 and len(searched) == 1:  # models alone differ
            yield from beside_plots(places, f"-{number}-{attribute}", f", {attribute}")


def beside_plots(places: Mapping[str, Place], ending: str = "", of: str = "") -> Iterator[Plot]:
    """Relevance across and fairness up, a mark a name: what is nearer, and at what cost. Undefined ones are absent."""
    marks = {
        name: (across, up)
        for name, (results, condition) in places.items()
        for across, up in [_place(results, condition)]
        if across and up
    }
    if len(marks) < 2:
        return
    design = next(results.design for results, _ in places.values())
    sentence = (
        f"Mean {design.utility} across and {design.aimed} up, with intervals over queries: up is nearer the target, to "
        "the right more relevant. Changes are paired by query, so that marks whose intervals overlap may differ."
    )
    numbers = "; ".join(f"{name}: {across} across, {up} up" for name, (across, up) in marks.items())
    draw = partial(_beside, marks, (design.utility, design.aimed))
    height = 285 + legend_height([*marks])
    yield Plot(f"beside{ending}", f"Fairness beside relevance{of}", sentence, f"{numbers}.", draw, height)


def _place(results: RefineResults, condition: str) -> tuple[Value | None, Value | None]:
    """A method's means of relevance and of fairness."""
    rows = {row.measure: row for row in results.of_all() if row.condition == condition}
    return value_of(rows.get(results.design.utility)), value_of(rows.get(results.design.aimed))


def _beside(marks: Mapping[str, tuple[Value, Value]], names: tuple[str, str], axes: Axes) -> None:
    looks = palette([*marks])
    for name, (across, up) in marks.items():
        look, at = looks[name], (across.value, up.value)
        line: dict[str, Any] = {"color": look.color, "linewidth": 1.4, "alpha": 0.6, "zorder": 2}
        if across.low is not None and across.high is not None:
            axes.plot([across.low, across.high], [at[1], at[1]], **line)
        if up.low is not None and up.high is not None:
            axes.plot([at[0], at[0]], [up.low, up.high], **line)
        axes.plot([at[0]], [at[1]], color=look.color, marker=look.mark, markersize=7, linestyle="none", zorder=3,
                  clip_on=False, label=folded(name, LEGEND), gid=tip(f"{name}: {across} across, {up} up"))  # fmt: skip
    axes.margins(0.08)
    axes.set_xlabel(names[0])
    axes.set_ylabel(names[1])
    below(axes, [*marks])


def topic_values(folder: Path, measure: str) -> dict[str, dict[str, float]]:
    """The measure's values by query and condition, of queries that have all."""
    found: dict[str, dict[str, float]] = {}
    for row in query_figures(folder):
        if row.measure == measure and row.condition in STEPS and row.value is not None:
            found.setdefault(row.query_id, {})[row.condition] = row.value
    return {query: values for query, values in found.items() if len(values) == len(STEPS)}


def steps_plot(
    topics: Mapping[str, Mapping[str, float]], measure: str, ending: str = "", of: str = ""
) -> Plot:
    """A row a topic, sorted by the original query; a step that improves is solid, one that does not dashed.

    `ending` of its name and `of` of its title tell it from others on a page.
    """
    ordered = sorted(topics, key=lambda query: (topics[query][BASELINE], query))
    better = sum(topics[query][FAIR_QR] > topics[query][BASELINE] for query in ordered)
    sentence = (
        f"{measure} of every query's page: of the original query, after refinement, and in its last order. Solid and "
        f"filled where a step improves on the one before, dashed and hollow where it does not. {better} of "
        f"{len(ordered)} queries end higher than they began."
    )
    numbers = "; ".join(
        f"{query}: " + ", ".join(f"{topics[query][step]:.3f}" for step in STEPS) for query in ordered
    )
    height = 70 + ROW * len(ordered) + legend_height([*STEPS.values()])
    draw = partial(_steps, [(query, topics[query]) for query in ordered], measure)
    return Plot(f"cost-steps{ending}", f"Query by query{of}", sentence, f"{numbers}.", draw, height)


def _steps(topics: Sequence[tuple[str, Mapping[str, float]]], measure: str, axes: Axes) -> None:
    colors = dict(zip(STEPS, (INK, *COLORS[1:]), strict=False))
    for row, (query, values) in enumerate(topics):
        before = None
        for step in STEPS:
            value = values[step]
            improves = before is None or value > before
            if before is not None:
                axes.plot([before, value], [row, row], color=colors[step], linewidth=1.4, zorder=2,
                          linestyle="-" if improves else (0, (2, 2)))  # fmt: skip
            axes.plot([value], [row], marker=MARKS[step], color=colors[step], markersize=6, linestyle="none", zorder=3,
                      clip_on=False, markerfacecolor=colors[step] if improves else "none",
                      gid=tip(f"{query}, {STEPS[step]}: {value:.3f}"))  # fmt: skip
            before = value
    for step, name in STEPS.items():
        axes.plot([], [], marker=MARKS[step], color=colors[step], linestyle="none", label=name)
    axes.set_yticks(range(len(topics)), [clipped(query, 22) for query, _ in topics])
    axes.set_ylim(len(topics) - 0.4, -0.6)
    axes.set_xlabel(measure)
    axes.margins(x=0.06)
    below(axes, [*STEPS.values()])


def round_plots(results: RefineResults) -> Iterator[Plot]:
    """Means of the objective and of AWRF after 0, 1, … rounds."""
    design, rounds = results.design, results.rounds
    if len(rounds) < 2:
        return
    look, ticks = palette(["mean"])["mean"], [means.iteration for means in rounds]
    asked = ", ".join(f"{means.asked} in round {means.iteration}" for means in rounds[1:])
    for name, measure, title in (
        ("objective", design.objective, "The objective, round by round"),
        ("aimed", design.aimed, "AWRF, round by round"),
    ):
        values = [(float(means.iteration), getattr(means, name)) for means in rounds]
        points = [(at, Value(value)) for at, value in values if value is not None]
        if points:
            sentence = (
                f"Mean {measure} of all queries by rounds; a query whose loop ended keeps its page ({asked})."
            )
            file = "rounds-objective" if measure == design.objective else "rounds-awrf"
            yield curves([Line("mean", look, points)], ("rounds", measure), title, sentence, file, ticks)


# What the report of an audit of query refinement has of its own.


SHOWN = 200
"""Letters of a reply."""


def refine_section(results: RefineResults, folder: Path, exhibits: Exhibits) -> Section:
    """The methods, why loops ended, the trail, and the figures."""
    design, trail = results.design, read_trail(folder)
    return Section(
        table=refine_table(results),
        more=[
            *filter(None, [contrasts_table(results)]),
            _stops(results),
            *([_trail(trail, design.objective)] if trail else []),
        ],
        plots=list(refine_plots(results, folder)),
        words=WORDS,
        facts=[
            ("collection", f"{design.documents:,} documents, {design.analyzer} terms"),
            *([("query", searched_text(design.query_text))] if design.query_text else []),
            ("page", f"{design.k} documents"),
            ("objective", design.objective),
            ("target", design.target),
            (
                "rounds",
                f"at most {design.max_iterations}, words {design.keep}, weight {design.weight:g}"
                + ", unknown asked for" * design.allow_unknown,
            ),
            (
                "last page",
                "as it was found" if design.rerank == "none" else f"by the original query, {design.rerank}",
            ),
        ],
    )


def _stops(results: RefineResults) -> Table:
    """Why loops ended, and after how many rounds that were kept."""
    rows = [(name, str(n), STOPS.get(name, "")) for name, n in results.stops.items()]
    kept = ", ".join(f"{rounds}: {n}" for rounds, n in results.iterations.items())
    return Table(
        "Why loops ended",
        ("stop", "queries", "what it means"),
        tuple(rows),
        (f"queries by rounds kept: {kept}",),
    )


def _trail(trail: Sequence[TrailLine], objective: str) -> Table:
    """Every round of every query; words that a round adds have a plus and weight."""
    measures = [*trail[0].measures]
    rows = [
        row
        for _, rounds in groupby(trail, key=lambda line: line.query_id)
        for row in _rounds([*rounds], measures)
    ]
    header = ("query", "round", "for", "words", objective, *measures, "what became of it", "reply")
    return Table("Round by round", header, tuple(rows), ("words behind a + are those that the round adds",))


def _rounds(rounds: Sequence[TrailLine], measures: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for line in rounds:
        became = "" if line.iteration == 0 else "kept" if line.accepted else "dropped"
        figures = (line.objective, *(line.measures[name] for name in measures))
        yield (
            line.query_id if line.iteration == 0 else "",
            str(line.iteration),
            line.subgroup or "",
            _words(line),
            *("–" if value is None else f"{value:.3f}" for value in figures),
            became + (f" · {line.stop}" if line.stop else ""),
            " · ".join(f"{reply.reply_class}: {_shortened(reply.text)}" for reply in line.replies),
        )


def _shortened(text: str) -> str:
    """A reply on one line; the journal has it whole."""
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}…"


def _words(line: TrailLine) -> Markup:
    """The words that are searched, the new ones strong; whatever they hold is text."""
    from markupsafe import Markup, escape

    standing = [word for word in line.added if word not in line.new]
    said = escape(" ".join([line.original if line.iteration == 0 else "…", *standing]))
    return said + Markup("").join(Markup(" <b>+ {}</b>").format(word) for word in line.new)
