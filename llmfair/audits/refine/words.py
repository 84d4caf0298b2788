"""An audit of query refinement in a table, sentences and plots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmfair.asking.journal import completion_of
from llmfair.audits.refine.design import FAIR_QR, NAME, NAME_ALONE, REFINED
from llmfair.audits.refine.measure import (
    FEW_CHANGED,
    SYMBOLS,
    TrailLine,
    compared,
    held_against,
    read_trail,
    trail_text,
)
from llmfair.audits.refine.results import RefineFinding, RefineResults
from llmfair.audits.refine.settings import BASELINE
from llmfair.io.text import count, p_text, plural
from llmfair.metrics.names import in_words, parse_measure
from llmfair.nouns import Conclusion, Key
from llmfair.rankers.fair_qr import read_keywords
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
from llmfair.report.tables import FEW_QUERIES, Table, cell, conclusion_text, percent
from llmfair.report.verdict import ADVICE, UNFINISHED, advice_of
from llmfair.report.words import Wording, before_text, table_of
from llmfair.results import (
    UNPARSEABLE,
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

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes


# How an audit of query refinement is made and concluded, in the report's words.


METHOD = (
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
    "Conclusions are paired by query, fair-qr less bm25 and less greedy (and fake:name, where it is asked for), which "
    "aims at the same target and asks no model: the loop keeps what comes nearer by chance, so that any words bring "
    "pages nearer. A change is certain with the whole of its interval, with flipped signs, and in at least six changed "
    "queries. Nearer where the objective and AWRF are certainly better than bm25's, and the objective certainly better "
    "than without a model, AWRF not certainly worse. At a loss where nDCG certainly falls, at open cost where its "
    "interval goes below minus the margin or fewer than six queries' nDCG changed. "
    "p-values flip the signs of the queries' changes, adjusted (Holm) over all that the run tests.",
)


# The verdict of an audit of query refinement: is the page nearer its target, and what does that cost?


STATUSES = (
    "no nearer",
    "no nearer than without a model",
    "not assessable",
    "inconclusive",
    "nearer at a loss",
    "nearer at open cost",
    "nearer",
)
NO_NEARER, NEEDS_NO_MODEL, NOT_ASSESSABLE, INCONCLUSIVE, AT_A_LOSS, AT_OPEN_COST, NEARER = STATUSES
SAID = {
    NEARER: "refined queries bring the page nearer its target than {without} does, at a loss of at most {margin:g}",
    AT_A_LOSS: "refined queries bring the page nearer its target than {without} does, but lose relevance",
    AT_OPEN_COST: "refined queries bring the page nearer its target than {without} does; whether they lose more "
    "than {margin:g} of relevance stays open",
    NO_NEARER: "refined queries bring the page no nearer its target",
    NEEDS_NO_MODEL: "refined queries bring the page no nearer its target than {without} does, which asks no model",
    INCONCLUSIVE: "it stays open whether refined queries bring the page nearer its target",
}
BEYOND_OPEN = (
    "pages come nearer their target; whether nearer than with {without}, which asks no model, stays open"
)
ONLY_CHANGED = "; only {changed} of {n} pages changed, and less than six say nothing"
TO_CHANGE = {
    **ADVICE,
    UNPARSEABLE: "another model, or --form json; what was said: llmfair runs show {run} --invalid",
    "no_query_measured": "queries that share words with documents; which found none: llmfair runs show {run} --trail",
}
"""What to change where nothing can be said, by the reason."""


def status_of(finding: RefineFinding | None) -> str:
    """Of the statuses of this kind."""
    if finding is None or finding.conclusion == Conclusion.NOT_ASSESSABLE:
        return NOT_ASSESSABLE
    if finding.conclusion == Conclusion.OUTSIDE:
        return NO_NEARER if finding.nearer is False else NEEDS_NO_MODEL
    if finding.conclusion == Conclusion.INCONCLUSIVE:
        return INCONCLUSIVE
    return {True: AT_A_LOSS, False: NEARER, None: AT_OPEN_COST}[finding.loss]


def conclusion(finding: RefineFinding, row: Figure | None, level: float, band: Band, words: Words) -> str:
    """A conclusion in the table of measured runs."""
    status = status_of(finding)
    return conclusion_text(finding) if status == NOT_ASSESSABLE else status


def how_ended(row: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """How the reply was read."""
    plain = settings.get("form") == "paper"
    return str(read_keywords(completion_of(row), row["about"]["query"], plain).reply_class)


def refine_verdict(found: Conclusions) -> RunVerdict:
    """What becomes of the objective, of AWRF and of nDCG, paired by topic."""
    finding: Any = found.findings.get(FAIR_QR)
    status = status_of(finding)
    if status == NOT_ASSESSABLE:
        reason = finding and finding.reason
        advice = TO_CHANGE.get(str(reason), "ask about at least 5 topics with judgements")
        why = in_words(reason, finding.measure) if reason else "nothing was measured"
        return RunVerdict(
            status=status,
            sentence=f"nothing can be said of refinement: {why}",
            next=advice_of(found, advice) if found.complete else UNFINISHED,
        )
    goals, control = dict.fromkeys((finding.measure, finding.aimed, finding.utility)), str(finding.control)
    changes = {name: found.figures.get((name, compared(BASELINE))) for name in goals}
    told = [
        _change(name, row) + _of_control(row, found.figures.get((name, compared(control))), control)
        for name, row in changes.items()
        if row is not None and row.value is not None
    ]
    figure = changes[finding.measure] or absent_row(finding.measure, Key(FAIR_QR))
    n = figure.n
    queries = f" ({found.level * 100:g} % CI, {count(n or 0, 'query', 'queries')})" * bool(told)
    few = "; few queries, so read the intervals with care" * (n is not None and n < FEW_QUERIES)
    unfinished = "" if found.complete else "; not all questions are answered yet"
    advice = advice_of(found, "the words of every round: llmfair runs show {run} --trail")
    if status in (INCONCLUSIVE, AT_OPEN_COST):
        advice = f"more topics narrow the intervals · {advice}"
    elif NAME_ALONE not in found.model and NAME not in found.keys:
        advice += " · beside a model that knows nothing: llmfair refine --baseline fake:name"
    said = BEYOND_OPEN if status == INCONCLUSIVE and finding.nearer else SAID[status]
    said = said.format(without=finding.control or "the original query", margin=finding.margin)
    if finding.reason == FEW_CHANGED:
        few = ONLY_CHANGED.format(changed=finding.changed, n=n)
    return RunVerdict(
        status=status,
        sentence=f"{said}: {', '.join(told)}{queries}{few}{unfinished}",
        next=advice if found.complete else UNFINISHED,
        condition=FAIR_QR,
        measure=finding.measure,
        estimate=figure.value,
        low=figure.low,
        high=figure.high,
        n=n,
    )


def _change(measure: str, figure: Figure) -> str:
    value = figure.value or 0.0
    between = "" if figure.low is None or figure.high is None else f" [{figure.low:+.3f}, {figure.high:+.3f}]"
    if value == figure.low == figure.high == 0:
        return f"{measure} stays"
    how = "stays" if value == 0 else f"{'rises' if value > 0 else 'falls'} by {abs(value):.3f}"
    return f"{measure} {how}{between}"


def _of_control(change: Figure, beyond: Figure | None, control: str) -> str:
    """By how much the control changes the page, which is what needs no model."""
    if beyond is None or beyond.value is None or change.value is None:
        return ""
    return f" ({control} {change.value - beyond.value:+.3f})"


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
    several, utility = len(blocks) > 1, HEADINGS[UTILITY].format(k=k)
    columns: list[tuple[str, Sequence[str], str]] = [(utility, [*blocks], UTILITY)]
    columns += [
        (f"{attribute}: " * several + heading.format(k=k), [attribute], kind)
        for attribute, block in blocks.items()
        for kind, heading in HEADINGS.items()
        if kind != UTILITY and any(kind in means for means in block.values())
    ]
    cells: dict[tuple[int, int], list[Mean]] = {}
    for row, name in enumerate(methods):
        for column, (_, attributes, kind) in enumerate(columns, start=1):
            means = [blocks[attribute].get(name, {}).get(kind) for attribute in attributes]
            # one where all are shown alike, else each
            if alike := {str(mean): mean for mean in means if mean is not None}:
                cells[row, column] = [*alike.values()]
    values = {place: fsum(mean.value for mean in means) / len(means) for place, means in cells.items()}
    best = {column: max(value for (_, at), value in values.items() if at == column) for _, column in values}
    signs = "".join(mean.signs for means in cells.values() for mean in means)
    of_each = f"{utility} of two figures: of {' / '.join(blocks)}; the best by their mean"
    notes = (
        "bold: the best of a column",
        of_each * any(len(means) > 1 for means in cells.values()),
        signs_text(signs),
    )
    return Table(
        title,
        ("method", *(heading for heading, _, _ in columns)),
        tuple(
            (name, *(" / ".join(map(str, cells.get((row, at), ()))) for at in range(1, len(columns) + 1)))
            for row, name in enumerate(methods)
        ),
        tuple(filter(None, notes)),
        strong=frozenset(place for place, value in values.items() if value == best[place[1]]),
    )


def signs_text(signs: str) -> str:
    """What the signs say that stand in a table; nothing without any."""
    methods = ", ".join(f"{sign} {method}" for method, sign in SYMBOLS.items() if sign in signs)
    said = f"better than {methods} by a paired t test, p < 0.05, not adjusted, as in the paper's Table 1"
    return said * bool(methods)


def block_of(results: RefineResults) -> Block:
    """The methods of a run."""
    design, signs = results.design, signs_of(results)
    kinds = {design.utility: UTILITY, design.aimed: FAIRNESS}
    for measure in map(parse_measure, results.measures):
        if measure.name == "nDCGxAWRF" and measure.cutoff == design.k:
            of_means = measure.arguments["agg"] == "product-of-means"
            kinds[str(measure)] = PRODUCT if of_means else MEAN_PRODUCT
    block: dict[str, dict[str, Mean]] = {name: {} for name in design.conditions}
    for row in results.of_all():
        if row.measure in kinds and row.condition in block and row.value is not None:
            mean = Mean(row.value, signs.get((row.condition, row.measure), ""))
            block[row.condition][kinds[row.measure]] = mean
    return {name: means for name, means in block.items() if means}


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
        about = f"{group.dataset} · {name}"
        if results:
            k = next(iter(results.values())).design.k
            blocks = {attribute: block_of(of) for attribute, of in results.items()}
            yield paper_table(blocks, f"Table 1 of the paper · {about}", k)
        for attribute, of in results.items():
            yield from contrasts_tables(of, f" · {about}, {attribute}")


# fair-qr less every method that it is held against, in words and as a table.


def changes_text(results: RefineResults) -> Iterator[str]:
    """A sentence a method, of the measures that the table shows and those that are concluded of."""
    design = results.design
    shown = {*results.shown, design.objective, design.aimed, design.utility}
    for method in held_against(design.conditions):
        changes = []
        for row in results.of_all():
            if row.condition == compared(method) and row.measure in shown and row.value is not None:
                p = row.p_adjusted
                changes.append(f"{row.measure} {row.value:+.3f}" + ("" if p is None else f" (p {p_text(p)})"))
        if changes:
            holm = f", p adjusted (Holm) over {results.family.size} tests" * bool(results.family.size)
            how = f", paired by query, signs flipped{holm}" * (method == BASELINE)
            yield f"{FAIR_QR} less {method}{how}: {', '.join(changes)}"


def contrasts_tables(results: RefineResults, about: str = "") -> Iterator[Table]:
    """Every method in every measure, with p before and after Holm, and the paper's; nothing where bm25 is alone."""
    methods = held_against(results.design.conditions)
    if len(methods) < 2:
        return
    changes = {(row.condition, row.measure): row for row in results.of_all()}
    paired_t = {(one.against, one.measure): one.p for one in results.paper if one.method == FAIR_QR}
    rows = []
    for measure in results.measures:
        for method in methods:
            if (row := changes.get((compared(method), measure))) is not None:
                tests = (row.p, row.p_adjusted, paired_t.get((method, measure)))
                p_values = ("–" if p is None else p_text(p) for p in tests)
                rows.append((measure if method == methods[0] else "", method, cell(row), *p_values))
    header = ("measure", "method", f"change [{results.level * 100:g} %]", "p", "p (Holm)", "p (paired t)")
    said = (
        f"p by signs flipped; adjusted (Holm) over all {results.family.size} tests of the run; paired t as in the "
        "paper, not adjusted"
    )
    yield Table(f"{FAIR_QR} less each method, paired by query{about}", header, tuple(rows), (said,))


# What an audit of query refinement found as a table: the original query, the refined one, and its page in order.


FACTOR = "target_known"
OF_JUDGEMENTS = (
    ": a target from elsewhere (--target trec2022, or a file) and --baseline fake:name, a model that knows nothing, "
    "show what that is worth"
)
SHOWN_LEFT_OUT = 5
STOPS = {
    "attained": "no page could be nearer",
    "no_underrepresented_group": "no group was below its target",
    "unknown_underrepresented": "unknown is furthest below its target, and no query can ask for it",
    "unparseable": "two replies in a row named no keywords",
    "no_keywords": "all keywords stood in the query already",
    "no_result": "the query finds nothing",
    "no_decrease": "a round came no nearer, and was dropped",
    "max_iterations": "all rounds were used",
}
LEFT_OUT = {**STOPS, "no_target": "no relevant document whose groups could be aimed at"}


def refine_table(results: RefineResults) -> Table:
    """One row a method, one column a measure, and whether the method is told the target."""
    table = table_of(results, "replies")
    factors, signs = results.design.factors or {}, signs_of(results)
    status = status_of(results.findings.get(FAIR_QR))
    said = dict.fromkeys(results.design.conditions, "")
    said[FAIR_QR] = table.said[FAIR_QR] if status == NOT_ASSESSABLE else status
    measures = [name.partition(" [")[0] for name in table.header]
    rows = tuple(
        (
            *(
                text + signs.get((row[0], measure), "")
                for measure, text in zip(measures[:-1], row[:-1], strict=True)
            ),
            str(factors.get(row[0], {}).get(FACTOR, "")),
            said[row[0]],
        )
        for row in table.rows
    )
    header = (*table.header[:-1], "target known", "conclusion")
    strong = _best(results, measures) if results.design.preset == PRESET else ()
    notes_of = (*notes(results), *table.notes)
    return replace(table, header=header, rows=rows, said=said, notes=notes_of, strong=frozenset(strong))


def _best(results: RefineResults, measures: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The cells of the best methods in every measure that has a better direction, as in the paper."""
    figures = results.by_key()
    for column, measure in enumerate(measures):
        better = parse_measure(measure).definition.better if measure in results.measures else None
        rows = [figures.get((measure, condition)) for condition in results.design.conditions]
        values = {place: row.value for place, row in enumerate(rows) if row and row.value is not None}
        if values and better in ("higher", "lower"):
            best = max(values.values()) if better == "higher" else min(values.values())
            yield from ((place, column) for place, value in values.items() if value == best)


def notes(results: RefineResults) -> Iterator[str]:
    """How the loops went, what the page changed, and what has to be known to read that."""
    design, stops = results.design, results.stops
    topics = sum(stops.values())
    refined = sum(n for rounds, n in results.iterations.items() if rounds != "0")
    if refined:
        ended = ", ".join(f"{name} {n} ({STOPS[name]})" for name, n in stops.items())
        yield (
            f"{refined} of {count(topics, 'query', 'queries')} {plural(refined, 'was', 'were')} refined, "
            f"in pages of {design.k} of {design.documents:,} documents; loops ended with {ended}"
        )
    elif not design.max_iterations:
        yield "nothing was refined: no round was allowed (--max-iterations 0)"
    elif stops:
        reason = max(stops, key=lambda name: stops[name])
        yield f"nothing was refined: of {stops[reason]} of {topics} original queries {STOPS[reason]}"
    if design.query_text:
        yield f"queries are the topics' {searched_text(design.query_text)}"
    yield _who_knows(results) + OF_JUDGEMENTS * (design.target == "empirical")
    for reason, queries in results.left_out.items():
        first = ", ".join(queries[:SHOWN_LEFT_OUT]) + ", …" * (len(queries) > SHOWN_LEFT_OUT)
        yield f"{count(len(queries), 'query', 'queries')} left out, {LEFT_OUT[reason]}: {first}"
    yield from filter(None, [signs_text("".join(signs_of(results).values()))])
    counted = results.answers[FAIR_QR]
    classes = ", ".join(f"{name} {n}" for name, n in counted.classes.items() if name != "ok")
    if classes:
        other = percent(counted.replies - counted.classes.get("ok", 0), counted.replies)
        again = f"; {counted.asked_again} asked again" * bool(counted.asked_again)
        yield f"{other} of {counted.replies:,} replies are not in the form asked for: {classes}{again}"
    yield from changes_text(results)
    yield from results.remarks or ()
    for measure, reach in results.reach.items():
        yield f"the least {measure} that pages of {design.k} whole documents can have is {reach.low:.3f} on average"


def _who_knows(results: RefineResults) -> str:
    """Which methods know what they are measured against."""
    factors = results.design.factors or {}
    known = {
        name: str(factors.get(name, {}).get(FACTOR, "no")) for name in held_against(results.design.conditions)
    }
    told = ["the loop", *(name for name, of in known.items() if of == "yes")]
    learnt = [f", {name} those of {of}" for name, of in known.items() if of not in ("yes", "no")]
    return (
        f"{', '.join(told[:-1])} and {told[-1]} are told the target that their figures are measured against"
        f"{''.join(learnt)}, which other methods are not"
    )


def searched_text(query_text: Mapping[str, int]) -> str:
    """What is searched of topics, and of how many where it differs."""
    return " and ".join(
        f"{name} ({n})" if len(query_text) > 1 else name if name == "keywords" else f"{name}s"
        for name, n in query_text.items()
    )


# The figures of an audit of query refinement: AWRF of every topic from step to step, beside nDCG, and by round. Chen
# & Fang, "FAIR-QR", arXiv 2503.21092, Figure 2: each topic before refinement, after it, and in its last order.


STEPS = {BASELINE: "original query", REFINED: "refined", FAIR_QR: "refined, in the original query's order"}
MARKS = {BASELINE: "o", REFINED: "s", FAIR_QR: "D"}
ROW = 16
Place = tuple[RefineResults, str]
"""A method in the results of a run."""


def refine_plots(results: RefineResults, folder: Path) -> Iterator[Plot]:
    """Every figure of one run; that of the first screen first."""
    yield from steps_plot(folder, results.design.aimed)
    yield from beside_plots({name: (results, name) for name in results.design.conditions})
    yield from round_plots(results)


def group_plots(group: Group, declared: Declared, number: int) -> Iterator[Plot]:
    """Of several audits side by side a panel each, as the paper has one for each attribute; and models in one."""
    by_attribute: dict[str, dict[str, Place]] = {}
    for name, runs in group.drawn.items():
        for attribute, audited in runs.items():
            results = audited.results
            if isinstance(results, RefineResults):
                ending = f"-{number}-{audited.folder.resolve().name}"
                yield from steps_plot(audited.folder, results.design.aimed, ending, f", {attribute}, {name}")
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
    rows, design = results.by_key(), results.design
    return value_of(rows.get((design.utility, condition))), value_of(rows.get((design.aimed, condition)))


def _beside(marks: Mapping[str, tuple[Value, Value]], names: tuple[str, str], axes: Axes) -> None:
    looks = palette([*marks])
    for name, (across, up) in marks.items():
        look = looks[name]
        line: dict[str, Any] = {"color": look.color, "linewidth": 1.4, "alpha": 0.6, "zorder": 2}
        if across.interval:
            axes.plot(across.interval, [up.value] * 2, **line)
        if up.interval:
            axes.plot([across.value] * 2, up.interval, **line)
        axes.plot([across.value], [up.value], color=look.color, marker=look.mark, markersize=7, linestyle="none",
                  zorder=3, clip_on=False, label=folded(name, LEGEND),
                  gid=tip(f"{name}: {across} across, {up} up"))  # fmt: skip
    axes.margins(0.08)
    axes.set_xlabel(names[0])
    axes.set_ylabel(names[1])
    below(axes, [*marks])


def steps_plot(folder: Path, measure: str, ending: str = "", of: str = "") -> Iterator[Plot]:
    """A row a topic, sorted by the original query; a step that improves is solid, one that does not dashed.

    Of topics whose measure has a value at every step. `ending` of its name and `of` of its title tell it from others.
    """
    values: dict[str, dict[str, float]] = {}
    for row in query_figures(folder):
        if row.measure == measure and row.condition in STEPS and row.value is not None:
            values.setdefault(row.query_id, {})[row.condition] = row.value
    topics = [(query, steps) for query, steps in values.items() if len(steps) == len(STEPS)]
    topics.sort(key=lambda topic: (topic[1][BASELINE], topic[0]))
    if not topics:
        return
    better = sum(steps[FAIR_QR] > steps[BASELINE] for _, steps in topics)
    sentence = (
        f"{measure} of every query's page: of the original query, after refinement, and in its last order. Solid and "
        f"filled where a step improves on the one before, dashed and hollow where it does not. {better} of "
        f"{len(topics)} queries end higher than they began."
    )
    numbers = "; ".join(
        f"{query}: " + ", ".join(f"{steps[step]:.3f}" for step in STEPS) for query, steps in topics
    )
    height = 70 + ROW * len(topics) + legend_height([*STEPS.values()])
    draw = partial(_steps, topics, measure)
    yield Plot(f"cost-steps{ending}", f"Query by query{of}", sentence, f"{numbers}.", draw, height)


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
    for measure, title, file, values in (
        (design.objective, "The objective", "objective", [means.objective for means in rounds]),
        (design.aimed, "AWRF", "awrf", [means.aimed for means in rounds]),
    ):
        points = [
            (float(at), Value(value)) for at, value in zip(ticks, values, strict=True) if value is not None
        ]
        if points:
            sentence = (
                f"Mean {measure} of all queries by rounds; a query whose loop ended keeps its page ({asked})."
            )
            axes, name = ("rounds", measure), f"rounds-{file}"
            yield curves(
                [Line("mean", look, points)], axes, f"{title}, round by round", sentence, name, ticks
            )


# What the report of an audit of query refinement has of its own.


SHOWN = 200
"""Letters of a reply."""


def refine_section(results: RefineResults, folder: Path, exhibits: Exhibits) -> Section:
    """The methods, why loops ended, the trail, and the figures."""
    design, trail = results.design, read_trail(folder)
    stops = tuple((name, str(n), STOPS[name]) for name, n in results.stops.items())
    kept = ", ".join(f"{rounds}: {n}" for rounds, n in results.iterations.items())
    said = f"queries by rounds kept: {kept}"
    unknown = ", unknown asked for" * design.allow_unknown
    return Section(
        table=refine_table(results),
        more=[
            *contrasts_tables(results),
            Table("Why loops ended", ("stop", "queries", "what it means"), stops, (said,)),
            *([_trail(trail, design.objective)] if trail else []),
        ],
        plots=list(refine_plots(results, folder)),
        words=METHOD,
        facts=[
            ("collection", f"{design.documents:,} documents, {design.analyzer} terms"),
            ("query", searched_text(design.query_text or {"title": design.queries})),
            ("page", f"{design.k} documents"),
            ("objective", design.objective),
            ("target", design.target),
            (
                "rounds",
                f"at most {design.max_iterations}, words {design.keep}, weight {design.weight:g}{unknown}",
            ),
            (
                "last page",
                "as it was found" if design.rerank == "none" else f"by the original query, {design.rerank}",
            ),
        ],
    )


def _trail(trail: Sequence[TrailLine], objective: str) -> Table:
    """Every round of every query; words that a round adds have a plus and weight."""
    measures, rows = [*trail[0].measures], list[tuple[str, ...]]()
    for line in trail:
        became = "" if line.iteration == 0 else "kept" if line.accepted else "dropped"
        figures = (line.objective, *(line.measures[name] for name in measures))
        replies = [(reply.reply_class, " ".join(reply.text.split())) for reply in line.replies]
        rows.append((
            line.query_id if line.iteration == 0 else "",
            str(line.iteration),
            line.subgroup or "",
            _words(line),
            *("–" if value is None else f"{value:.3f}" for value in figures),
            became + (f" · {line.stop}" if line.stop else ""),
            " · ".join(f"{name}: {text[:SHOWN]}{'…' * (len(text) > SHOWN)}" for name, text in replies),
        ))  # fmt: skip
    header = ("query", "round", "for", "words", objective, *measures, "what became of it", "reply")
    return Table("Round by round", header, tuple(rows), ("words behind a + are those that the round adds",))


def _words(line: TrailLine) -> Markup:
    """The words that are searched, the new ones strong; whatever they hold is text."""
    from markupsafe import Markup, escape

    standing = [word for word in line.added if word not in line.new]
    said = escape(" ".join([line.original if line.iteration == 0 else "…", *standing]))
    return said + Markup("").join(Markup(" <b>+ {}</b>").format(word) for word in line.new)


WORDS = Wording(
    title="Query refinement",
    condition="method",
    unit="topics",
    statuses=STATUSES,
    method=METHOD,
    before=lambda planned: f"at most {before_text(planned)}",
    verdict=refine_verdict,
    table=refine_table,
    section=refine_section,
    group_plots=group_plots,
    group_tables=group_tables,
    how_ended=how_ended,
    what_was_shown=lambda about: f"round {about['iteration']}, for {about['subgroup']}",
    trail=trail_text,
    concluded=conclusion,
)
