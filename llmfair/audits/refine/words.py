"""An audit of query refinement in a table, sentences and plots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmfair.asking.journal import completion_of
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
from llmfair.audits.refine.settings import BASELINE, FAIR_QR, REFINED
from llmfair.io.text import count, p_text, plural
from llmfair.metrics.names import in_words, parse_measure
from llmfair.nouns import Conclusion, Key
from llmfair.rankers.fair_qr import read_keywords
from llmfair.report import plots as base
from llmfair.report.figures import value_of
from llmfair.report.groups import Group, Section
from llmfair.report.phrases import FEW_QUERIES, cell, conclusion_text, percent
from llmfair.report.plots import point
from llmfair.report.table import Table
from llmfair.report.verdict import ADVICE, UNFINISHED, advice_of
from llmfair.report.words import Wording, before_text, table_of
from llmfair.results import (
    UNPARSEABLE,
    Conclusions,
    Declared,
    Exhibits,
    Figure,
    RunVerdict,
    absent_row,
    query_figures,
)

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes

METHOD = (
    "Each topic's query finds a first page by BM25. The shares of the groups on it are held against a target; a model "
    "is asked for keywords about the group that is furthest below, the query with these words finds the next page, and "
    "so on while the objective improves [Chen & Fang 2025, FAIR-QR]. The page before the first that does not improve "
    "is kept. bm25 is the page of the original query, refined the page that was kept, fair-qr the documents of that "
    "page in the order of the original query.",
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
"""How an audit of query refinement is made and concluded."""


# The verdict of an audit of query refinement: is the page nearer its target, and what does that cost?

NO_NEARER, NEEDS_NO_MODEL, NOT_ASSESSABLE, INCONCLUSIVE, AT_A_LOSS, AT_OPEN_COST, NEARER = STATUSES = (
    "no nearer",
    "no nearer than without a model",
    "not assessable",
    "inconclusive",
    "nearer at a loss",
    "nearer at open cost",
    "nearer",
)
SENTENCES = {
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
TO_CHANGE = {
    **ADVICE,
    UNPARSEABLE: "another model, or --form json; what was said: llmfair runs show {run} --invalid",
    "no_query_measured": "queries that share words with documents; which found none: llmfair runs show {run} --trail",
}
"""What to change where nothing can be said, by the reason."""
COSTS = {True: AT_A_LOSS, False: NEARER, None: AT_OPEN_COST}


def status_of(finding: RefineFinding) -> str:
    """Of the statuses of this kind."""
    if finding.conclusion == Conclusion.NOT_ASSESSABLE:
        return NOT_ASSESSABLE
    if finding.conclusion == Conclusion.OUTSIDE:
        return NO_NEARER if finding.nearer is False else NEEDS_NO_MODEL
    return INCONCLUSIVE if finding.conclusion == Conclusion.INCONCLUSIVE else COSTS[finding.loss]


def how_ended(row: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """How the reply was read."""
    plain = settings.get("form") == "paper"
    return str(read_keywords(completion_of(row), row["about"]["query"], plain).reply_class)


def refine_verdict(conclusions: Conclusions) -> RunVerdict:
    """What becomes of the objective, of AWRF and of nDCG, paired by topic."""
    finding: Any = conclusions.findings[FAIR_QR]
    status, figures = status_of(finding), conclusions.figures
    if status == NOT_ASSESSABLE:
        why = in_words(finding.reason, finding.measure)
        advice = TO_CHANGE.get(str(finding.reason), "ask about at least 5 topics with judgements")
        following = advice_of(conclusions, advice) if conclusions.complete else UNFINISHED
        return RunVerdict(status=status, sentence=f"nothing can be said of refinement: {why}", next=following)
    changes = {
        name: row
        for name in (finding.measure, finding.aimed, finding.utility)
        if (row := figures.get((name, compared(BASELINE)))) and row.value is not None
    }
    texts = [
        change_text(name, row, figures.get((name, compared(str(finding.control)))), finding.control)
        for name, row in changes.items()
    ]
    figure = changes.get(finding.measure) or absent_row(finding.measure, Key(FAIR_QR))
    n = figure.n or 0
    sentence = BEYOND_OPEN if status == INCONCLUSIVE and finding.nearer else SENTENCES[status]
    sentence = sentence.format(without=finding.control or "the original query", margin=finding.margin)
    caution = "; few queries, so read the intervals with care" * (n < FEW_QUERIES)
    if finding.reason == FEW_CHANGED:
        caution = f"; only {finding.changed} of {n} pages changed, and less than six say nothing"
    advice = advice_of(conclusions, "the words of every round: llmfair runs show {run} --trail")
    if status in (INCONCLUSIVE, AT_OPEN_COST):
        advice = f"more topics narrow the intervals · {advice}"
    queries = f"{conclusions.level * 100:g} % CI, {count(n, 'query', 'queries')}"
    return RunVerdict(
        status=status, sentence=f"{sentence}: {', '.join(texts)} ({queries}){caution}",
        next=advice if conclusions.complete else UNFINISHED, condition=FAIR_QR, measure=finding.measure,
        estimate=figure.value, low=figure.low, high=figure.high, n=figure.n,
    )  # fmt: skip


def change_text(measure: str, change: Figure, beyond: Figure | None, control: str | None) -> str:
    """How a measure changes, and by how much the control changes the page, which is what needs no model."""
    value, limits = change.value or 0.0, ""
    if change.low is not None and change.high is not None and (change.low, change.high) != (value, value):
        limits = f" [{change.low:+.3f}, {change.high:+.3f}]"
    how = "stays" if value == 0 else f"{'rises' if value > 0 else 'falls'} by {abs(value):.3f}"
    of_control = "" if beyond is None or beyond.value is None else f" ({control} {value - beyond.value:+.3f})"
    return f"{measure} {how}{limits}{of_control}"


# The paper's Table 1, attribute by attribute: relevance, fairness, and their products. Chen & Fang, "FAIR-QR", arXiv
# 2503.21092, Table 1: best of a column in bold, and behind refinement's figures a sign for each method that they are
# better than, by a t test paired by query, p < 0.05. Beside it fair-qr less every method, by the tests of this house.

PRESET = "paper"
Means = Mapping[str, Mapping[str, tuple[float, str]]]
"""By column the mean of each method that has any, with the signs of the methods that it is better than."""


def paper_table(means: Means, title: str) -> Table:
    """Methods down, columns across."""
    methods = [*dict.fromkeys(name for of in means.values() for name in of)]
    rows, signed, strong = {name: {"method": name} for name in methods}, set[str](), set[tuple[str, str]]()
    for head, of in means.items():
        best = max((mean for mean, _ in of.values()), default=None)
        for name, (mean, signs) in of.items():
            rows[name][head] = f"{mean:.4f}{signs}"
            signed |= {*signs}
            strong |= {(name, head)} if mean == best else set()
    signs = ", ".join(f"{sign} {method}" for method, sign in SYMBOLS.items() if sign in signed)
    better = f"better than {signs} by a paired t test, p < 0.05, not adjusted, as in the paper's Table 1"
    table = Table.of_texts(title, rows.values(), "bold: the best of a column", better if signs else "")
    places = ((methods.index(name), table.header.index(head)) for name, head in strong)
    return replace(table, strong=frozenset(places))


def means_of_columns(results: RefineResults) -> Means:
    """The means of a run's methods in the columns of the paper."""
    design, figures = results.design, results.by_key()
    starred = {(test.method, test.measure, test.symbol) for test in results.paper}
    heads = {design.utility: design.utility, design.aimed: design.aimed}
    for measure in map(parse_measure, results.measures):
        if measure.name == "nDCGxAWRF" and measure.cutoff == design.k:
            heads[str(measure)] = str(measure.arguments["agg"]).replace("-", " ")
    return {
        head: {
            name: (row.value, "".join(of for of in SYMBOLS.values() if (name, measure, of) in starred))
            for name in design.conditions
            if (row := figures.get((measure, name))) and row.value is not None
        }
        for measure, head in heads.items()
    }


def group_tables(group: Group) -> Iterator[Table]:
    """Of runs under the paper's preset its Table 1, attributes side by side, and the tests of this house beside it."""
    for name, runs in group.rows.items():
        results: dict[str, Any] = {
            attribute: of.results for attribute, of in runs.items() if of.results.design.preset == PRESET
        }
        means, about = dict[str, Mapping[str, tuple[float, str]]](), f"{group.dataset} · {name}"
        for attribute, of in results.items():
            first = f"{attribute}: " * (len(results) > 1)
            means |= {first + head: column for head, column in means_of_columns(of).items()}
        if results:
            yield paper_table(means, f"Table 1 of the paper · {about}")
        for attribute, of in results.items():
            yield from contrasts_tables(of, f" · {about}, {attribute}")


def contrasts_tables(results: RefineResults, about: str = "") -> Iterator[Table]:
    """Every method in every measure, with p before and after Holm, and the paper's; nothing where bm25 is alone."""
    paired_t = {(test.measure, test.against): test.p for test in results.paper if test.method == FAIR_QR}
    figures, methods, rows = results.by_key(), held_against(results.design.conditions), []
    for measure, method in product(results.measures, methods):
        if row := figures.get((measure, compared(method))):
            tests = {"p": row.p, "p (Holm)": row.p_adjusted, "p (paired t)": paired_t.get((measure, method))}
            rows.append({
                "measure": measure * (method == BASELINE), "method": method,
                f"change [{results.level * 100:g} %]": cell(row),
                **{head: "–" if p is None else p_text(p) for head, p in tests.items()},
            })  # fmt: skip
    if len(methods) > 1:
        note = f"p by signs flipped; adjusted (Holm) over all {results.family.size} tests of the run; paired t as in "
        title = f"{FAIR_QR} less each method, paired by query{about}"
        yield Table.of_texts(title, rows, f"{note}the paper, not adjusted")


# What an audit of query refinement found as a table: the original query, the refined one, and its page in order.

OF_JUDGEMENTS = (
    "methods that know the target are measured against what they aim at: a target from elsewhere (--target trec2022, "
    "or a file) and --baseline fake:name, a model that knows nothing, show what that is worth"
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
    table, factors = table_of(results, "replies"), results.design.factors or {}
    return replace(
        table,
        header=(*table.header[:-1], "target known", "conclusion"),
        rows=tuple(
            (*row[:-1], str(factors.get(row[0], {}).get("target_known", "")), row[-1]) for row in table.rows
        ),
        notes=(*notes(results), *table.notes),
    )


def notes(results: RefineResults) -> Iterator[str]:
    """How the loops went, what the page changed, and what has to be known to read that."""
    design, stops, replies = results.design, results.stops, results.answers[FAIR_QR]
    topics = sum(stops.values())
    refined = sum(n for rounds, n in results.iterations.items() if rounds != "0")
    if stops:
        ended = ", ".join(f"{name} {n} ({STOPS[name]})" for name, n in stops.items())
        yield (
            f"{refined} of {count(topics, 'query', 'queries')} {plural(refined, 'was', 'were')} refined, in pages of "
            f"{design.k} of {design.documents:,} documents; loops ended with {ended}"
        )
    if "keywords" in design.query_text:
        yield f"queries are the topics' {' and '.join(design.query_text)}"
    if design.target == "empirical":
        yield OF_JUDGEMENTS
    for reason, queries in results.left_out.items():
        first = ", ".join(queries[:SHOWN_LEFT_OUT]) + ", …" * (len(queries) > SHOWN_LEFT_OUT)
        yield f"{count(len(queries), 'query', 'queries')} left out, {LEFT_OUT[reason]}: {first}"
    if classes := {name: n for name, n in replies.classes.items() if name != "ok"}:
        other = percent(sum(classes.values()), replies.replies)
        listed = ", ".join(f"{name} {n}" for name, n in classes.items())
        yield f"{other} of {replies.replies:,} replies are not in the form asked for: {listed}"
    yield from results.remarks
    for measure, reach in results.reach.items():
        yield f"the least {measure} that pages of {design.k} whole documents can have is {reach.low:.3f} on average"


# The figures of an audit of query refinement: AWRF of every topic from step to step, beside nDCG, and by round. Chen
# & Fang, "FAIR-QR", arXiv 2503.21092, Figure 2: each topic before refinement, after it, and in its last order.

STEPS = {BASELINE: "original query", REFINED: "refined", FAIR_QR: "refined, in the original query's order"}
MARKS = {BASELINE: "o", REFINED: "s", FAIR_QR: "D"}
ROW = 16


def group_plots(group: Group, declared: Declared, number: int) -> Iterator[base.Plot]:
    """Of several audits side by side a panel each, as the paper has one for each attribute."""
    for name, runs in group.drawn.items():
        for attribute, audited in runs.items():
            design: Any = audited.results.design
            ending = f"-{number}-{audited.folder.resolve().name}"
            yield from steps_plot(audited.folder, design.aimed, ending, f", {attribute}, {name}")


def beside_plot(results: RefineResults) -> Iterator[base.Plot]:
    """Relevance across and fairness up, a mark a method: what is nearer, and at what cost. Undefined ones lack."""
    rows, design, marks = results.by_key(), results.design, {}
    for name in design.conditions:
        across, up = (value_of(rows.get((measure, name))) for measure in (design.utility, design.aimed))
        if across and up:
            marks[name] = (across, up)
    if len(marks) < 2:
        return
    sentence = (
        f"Mean {design.utility} across and {design.aimed} up, with intervals over queries: up is nearer the target, to "
        "the right more relevant. Changes are paired by query, so that marks whose intervals overlap may differ."
    )

    def draw(axes: Axes) -> None:
        looks = base.palette([*marks])
        for name, (across, up) in marks.items():
            look, says = looks[name], f"{name}: {across} across, {up} up"
            label = base.folded(name, base.LEGEND)
            point(axes, across, up, says, look.color, 1.4, marker=look.mark, label=label)
        axes.margins(0.08)
        axes.set_xlabel(design.utility)
        axes.set_ylabel(design.aimed)
        base.below(axes, [*marks])

    height = 285 + base.legend_height([*marks])
    yield base.Plot("beside", "Fairness beside relevance", sentence, draw, height)


def steps_plot(folder: Path, measure: str, ending: str = "", of: str = "") -> Iterator[base.Plot]:
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

    def draw(axes: Axes) -> None:
        colors = dict(zip(STEPS, (base.INK, *base.COLORS[1:]), strict=False))
        for row, (query, steps) in enumerate(topics):
            for before, step in pairwise((BASELINE, *STEPS)):
                ends, color = [steps[before], steps[step]], colors[step]
                improves = before == step or ends[1] > ends[0]
                line = "-" if improves else (0, (2, 2))
                axes.plot(ends, [row, row], color=color, linewidth=1.4, linestyle=line, zorder=2)
                axes.plot(ends[1:], [row], marker=MARKS[step], color=color, markersize=6, linestyle="none", zorder=3,
                          clip_on=False, markerfacecolor=color if improves else "none",
                          gid=base.tip(f"{query}, {STEPS[step]}: {ends[1]:.3f}"))  # fmt: skip
        for step, name in STEPS.items():
            axes.plot([], [], marker=MARKS[step], color=colors[step], linestyle="none", label=name)
        axes.set_yticks(range(len(topics)), [base.clipped(query, 22) for query, _ in topics])
        axes.set_ylim(len(topics) - 0.4, -0.6)
        axes.set_xlabel(measure)
        axes.margins(x=0.06)
        base.below(axes, [*STEPS.values()])

    height = 70 + ROW * len(topics) + base.legend_height([*STEPS.values()])
    yield base.Plot(f"cost-steps{ending}", f"Query by query{of}", sentence, draw, height)


REPLY = 200
"""Letters of a reply and its class that the page shows."""


def refine_section(results: RefineResults, folder: Path, exhibits: Exhibits) -> Section:
    """The methods, why loops ended, the trail, and the figures."""
    design, trail = results.design, read_trail(folder)
    unknown = ", unknown asked for" * design.allow_unknown
    order = "as it was found" if design.rerank == "none" else f"by the original query, {design.rerank}"
    return Section(
        table=refine_table(results),
        more=[*contrasts_tables(results), *([trail_table(trail, design.objective)] if trail else [])],
        plots=[*steps_plot(folder, design.aimed), *beside_plot(results)],
        words=METHOD,
        facts=[
            ("collection", f"{design.documents:,} documents, {design.analyzer} terms"),
            ("query", " and ".join(f"{name} ({n})" for name, n in design.query_text.items())),
            ("page", f"{design.k} documents"),
            ("objective", design.objective),
            ("target", design.target),
            ("rounds", f"at most {design.max_iterations}, words {design.keep}, weight {design.weight:g}{unknown}"),
            ("last page", order)
        ],
    )  # fmt: skip


def trail_table(trail: Sequence[TrailLine], objective: str) -> Table:
    """Every round of every query; words that a round adds have a plus and weight."""
    rows = []
    for line in trail:
        texts = [f"{reply['reply_class']}: {' '.join(reply['text'].split())}" for reply in line.replies]
        became = "" if line.iteration == 0 else "kept" if line.accepted else "dropped"
        figures = {objective: line.objective, **line.measures}
        rows.append({
            "query": line.query_id if line.iteration == 0 else "",
            "round": str(line.iteration),
            "for": line.subgroup or "",
            "words": words_of(line),
            **{name: "–" if value is None else f"{value:.3f}" for name, value in figures.items()},
            "what became of it": became + (f" · {line.stop}" if line.stop else ""),
            "reply": " · ".join(text[:REPLY] + "…" * (len(text) > REPLY) for text in texts),
        })  # fmt: skip
    return Table.of_texts("Round by round", rows, "words behind a + are those that the round adds")


def words_of(line: TrailLine) -> Markup:
    """The words that are searched, the new ones strong; whatever they hold is text."""
    from markupsafe import Markup, escape

    standing = [word for word in line.added if word not in line.new]
    text = escape(" ".join([line.original if line.iteration == 0 else "…", *standing]))
    return text + Markup("").join(Markup(" <b>+ {}</b>").format(word) for word in line.new)


WORDS = Wording(
    title="Query refinement", condition="method", unit="topics", statuses=STATUSES, method=METHOD,
    before=lambda planned: f"at most {before_text(planned)}", verdict=refine_verdict, table=refine_table,
    section=refine_section, group_plots=group_plots, group_tables=group_tables, how_ended=how_ended,
    what_was_shown=lambda about: f"round {about['iteration']}, for {about['subgroup']}", trail=trail_text,
    concluded=lambda finding, *_: (
        conclusion_text(finding) if status_of(finding) == NOT_ASSESSABLE else status_of(finding)
    ),
)  # fmt: skip
