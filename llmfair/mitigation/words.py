"""Remedies in a table, a verdict and a page: what each buys and costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from shlex import quote

from llmfair.audits.documents import ChangeRow
from llmfair.io.text import count, listed, p_text
from llmfair.metrics.names import in_words
from llmfair.mitigation import ANSWERS, CONSISTENCY, ODDS, PAGE, RATIO, UTILITY
from llmfair.mitigation.results import MitigationPlan, MitigationResults, RemedyPlanned, RemedyRow
from llmfair.nouns import Conclusion
from llmfair.report.figures import COST, favoured_of, on_log, value_of
from llmfair.report.groups import Section
from llmfair.report.page import Page, Source, plain_page, warnings_of
from llmfair.report.phrases import capitalised, cell, few_queries, interval_text
from llmfair.report.plots import Plot, front_plot
from llmfair.report.table import Column, Table, headed
from llmfair.report.verdict import OTHER_GROUP, away, crosses
from llmfair.results import Exhibits, RunVerdict
from llmfair.stats.pair_plan import MOST_QUERIES
from llmfair.stats.tradeoff import keeping

# The verdict over remedies: whether one brings the rankings nearer to parity, and at what loss of relevance.

NOT_MITIGATED, NOT_ASSESSABLE, INCONCLUSIVE, PARTLY, NEARER, LOSS, NO_LOSS, PARITY = STATUSES = (
    "not mitigated",
    "not assessable",
    "inconclusive",
    "partly mitigated",
    "nearer to parity, whether into the band is open",
    "mitigated at a loss",
    "mitigated at no loss",
    "parity",
)
"""The gravest first."""
BROUGHT = {
    NO_LOSS: "into the parity band at no loss of relevance",
    LOSS: "into the parity band at a loss of relevance",
    NEARER: "nearer to parity",
    PARTLY: "nearer to parity, and not into the parity band",
    INCONCLUSIVE: "into the parity band, and whether relevance is lost is open",
}


def closer(row: RemedyRow, results: MitigationResults) -> bool:
    """Whether a remedy's rankings are nearer to parity beyond chance, by its adjusted p."""
    change, p = row.changes[ODDS], row.changes[ODDS].p_adjusted
    return change.change is not None and p is not None and p < 1 - results.level and away(change) < 0


def inside(row: RemedyRow, results: MitigationResults) -> bool:
    """Whether the odds of its rankings are shown to lie in the band."""
    return row.p_inside is not None and row.p_inside <= (1 - results.level) / 2


def verdict_of(results: MitigationResults, folder: Path) -> RunVerdict:
    """What the best remedy buys and costs; where there is none, what stands in the way."""
    status, row, sentence, following = _concluded(results, folder)
    figure, base = row.figures[ODDS], results.base.figures[ODDS].value
    words = results.words
    return RunVerdict(
        status=status, sentence=sentence, next=following, condition=row.remedy, measure=ODDS,
        group=None if base is None else words.protected if base < 1 else words.unprotected,
        estimate=figure.value, low=figure.low, high=figure.high, n=figure.n,
    )  # fmt: skip


def _concluded(results: MitigationResults, folder: Path) -> tuple[str, RemedyRow, str, str]:
    """The status, the row that the sentence speaks of, the sentence, and what to do next."""
    report = f"llmfair report {quote(str(folder))}"
    beside, unmitigated, (low, high) = f"all side by side: {report}", results.base, results.band
    base, queries = unmitigated.figures[ODDS], count(results.queries, "query", "queries")
    if base.value is None:
        why = f"nothing can be said of the run's rankings: {in_words(base.reason, ODDS)}"
        return NOT_ASSESSABLE, unmitigated, why, beside
    odds = f"the unmitigated rankings have odds of {interval_text(base)}"
    if inside(unmitigated, results):
        within = f"{odds}, within the parity band {low:g}–{high:g}"
        if results.conclusion == Conclusion.WITHIN:
            return PARITY, unmitigated, f"{within}, as have the answers: nothing is to be mitigated", beside
        why = "too little of them is in the rankings for a remedy to show what it does"
        sentence = f"{within}, though the audit finds no parity in the answers: {why}"
        ways = "rankings that follow the answers: more --passes, or a larger --window; "
        return INCONCLUSIVE, unmitigated, sentence, ways + beside
    if better := [row for row in results.tried if closer(row, results)]:
        return _mitigated(better, results, report, folder)
    tested = [row for row in results.tried if row.changes[ODDS].p is not None]
    if not tested:
        paired = f"that could be paired with the unmitigated {interval_text(base)} ({queries})"
        return NOT_ASSESSABLE, unmitigated, f"no remedy has odds of rankings {paired}", beside
    nearest, more = _nearest(tested), f"more queries, or fewer remedies at once (--remedy); {beside}"
    change = f"nearest to parity is {nearest.title}, {_odds_change(nearest)}"
    if results.family * 2.0 ** (1 - results.queries) >= 1 - results.level:  # the least p, adjusted
        few = f"{queries} are too few to tell {len(tested)} remedies from chance; {change}"
        return INCONCLUSIVE, nearest, few, more
    if base.low and base.low <= 1 <= (base.high or inf) < inf:
        why = "which include 1: no preference is shown that a remedy could lessen"
        return INCONCLUSIVE, unmitigated, f"{odds}, {why}; {change}", more
    sentence = f"no remedy is shown to bring the rankings nearer to parity; {change}"
    return NOT_MITIGATED, nearest, sentence, f"another remedy, or more queries; {beside}"


def _mitigated(
    better: Sequence[RemedyRow], results: MitigationResults, report: str, folder: Path
) -> tuple[str, RemedyRow, str, str]:
    """The nearest of the best, what it buys and costs, and the others that bring rankings nearer, too."""
    mitigated, (least, most) = [row for row in better if inside(row, results)], results.band
    changes = [row.changes[UTILITY] for row in mitigated]
    keeps = [keeping(change.low, change.high, results.margin) for change in changes]
    useful = [row for row, kept in zip(mitigated, keeps, strict=True) if kept == "kept"]
    odds = [row.figures[ODDS] for row in better]
    if mitigated:
        status = NO_LOSS if useful else LOSS if {*keeps} == {"lost"} else INCONCLUSIVE
    elif all((figure.high or inf) < least or (figure.low or 0) > most for figure in odds):
        status = PARTLY
    else:
        status = NEARER
    best = _nearest(useful or mitigated or better)
    less, more = results.words.protected, results.words.unprotected
    if (results.base.figures[ODDS].value or 1) >= 1:
        less, more = more, less
    others = [row.title for row in better if row is not best]
    also = f"; nearer to parity, too: {listed(others)}" if others else ""
    change, utility = best.changes[UTILITY], "undefined"
    if change.base is not None and change.other is not None:
        utility = f"{change.base:.3f} → {change.other:.3f} ({change_text(change)})"
    before, after = (row.figures[ODDS].value for row in (results.base, best))
    other_group = OTHER_GROUP * crosses(before, after, results.band)
    in_the_band, settle = "", "more items, shared by fewer lists, would settle it"
    if best.p_inside is not None:
        asked = "" if inside(best, results) else f" ({(1 - results.level) / 2:g} or less shows it)"
        in_the_band = f", inside the band {least:g}–{most:g} at p {p_text(best.p_inside)}{asked}"
        settle = "its odds are too near an edge of the band for more lists to settle it"
        if best.lists_needed is not None and best.lists_needed <= MOST_QUERIES:
            settle = f"about {best.lists_needed:,} lists would settle it, if the odds stay as they are"
    sentence = (
        f"the rankings put {less} items behind {more} ones of the same relevance; {best.title} brings them "
        f"{BROUGHT[status]}: {_odds_change(best)}{other_group}{in_the_band}, nDCG@20 {utility}, "
        f"{count(best.calls or 0, 'further call')}{also}"
    )
    place = f"its rankings: {folder / best.rankings[0]} · {report}"
    return status, best, sentence, f"{settle} · " * (status == NEARER) + place


def _nearest(rows: Sequence[RemedyRow]) -> RemedyRow:
    return min(rows, key=lambda row: row.distance if row.distance is not None else inf)


def _odds_change(row: RemedyRow) -> str:
    change = row.changes[ODDS]
    return f"odds of rankings {change.base:.2f} → {interval_text(row.figures[ODDS])} ({change_text(change)})"


def change_text(change: ChangeRow) -> str:
    """A paired change with its interval and p; why there is none."""
    if change.change is None:
        return SHORT.get(str(change.reason), in_words(change.reason, change.measure))
    number = "{:.2f}" if change.scale == "log" else "{:+.3f}"
    text = "× " * (change.scale == "log") + number.format(change.change)
    if change.low is not None and change.high is not None:
        text += f" [{number.format(change.low)}, {number.format(change.high)}]"
    return text if change.p_adjusted is None else f"{text}, p {p_text(change.p_adjusted)}"


LABELS = {ODDS: "odds of rankings", ANSWERS: "odds of answers", CONSISTENCY: "consistency"}
SHORT = {"not_measured": "", "answers_untouched": "as unmitigated", "single_order": "one order"}
"""Reasons so short that a cell has room for them; the notes and the report say more."""


def _figure(measure: str, digits: int = 2) -> Callable[[RemedyRow], str]:
    """Figures of a narrow cell, those of the odds of rankings with their interval."""

    def text(row: RemedyRow) -> str:
        figure = row.figures[measure]
        if figure.value is None:
            return SHORT.get(str(figure.reason), cell(figure))
        return interval_text(figure) if measure == ODDS else f"{figure.value:.{digits}f}"

    return text


def _change(measure: str) -> Callable[[RemedyRow], str]:
    return lambda row: (
        change_text(row.changes[measure]) if row.changes and row.figures[measure].value is not None else ""
    )


COLUMNS: Sequence[Column[RemedyRow]] = (
    ("remedy", lambda row: row.title),
    ("odds of rankings", _figure(ODDS)),
    ("change", _change(ODDS)),
    ("odds of answers", _figure(ANSWERS)),
    ("ExpRatio", _figure(RATIO)),
    ("nDCG@20", _figure(UTILITY, 3)),
    ("change", _change(UTILITY)),
    ("consistency", _figure(CONSISTENCY)),
    ("calls", lambda row: row.calls),
    ("cost", lambda row: "" if row.cost is None else f"{row.cost:,.4f}"),
    ("front", lambda row: "●" * row.front),
)


def headed_table(results: MitigationResults) -> Table:
    """The table below its verdict."""
    return headed(mitigation_table(results), results.verdict)


def mitigation_table(results: MitigationResults) -> Table:
    """One row a remedy that has figures, the unmitigated rankings first; the others are named below."""
    parts = [
        "Mitigation", results.dataset, f"{results.attribute} (protected: {results.words.protected})",
        results.model + ", a simulated model" * results.model.startswith("fake:"),
        count(results.queries, "query", "queries"), f"{results.condition} prompt" * results.prompted,
        count(results.orders, "order of each list", "orders of each list"),
    ]  # fmt: skip
    p_values = [f"{row.title} {p_text(row.p_inside)}" for row in results.tried if row.p_inside is not None]
    alpha, (low, high) = (1 - results.level) / 2, results.band
    notes = [
        *missing_lines(results),
        *few_queries(results.queries),
        "odds of rankings: of equally relevant items of both groups in the final rankings; odds of answers: those of "
        f"the answers behind them; figures with {results.level * 100:g} % intervals",
        "changes are paired by query; p by sign flip, of odds by t where items recur; Holm over "
        f"{results.family} changes of odds and nDCG@20",
        f"odds inside the band {low:g}–{high:g}, shown from p {alpha:g} down (t, one-sided, Holm over the remedies): "
        f"{', '.join(p_values) or 'of none'}",
        "front: no other is nearer to parity at no less nDCG@20 (by the estimates)",
        *(f"{row.title}: {remark}" for row in results.tried for remark in row.remarks),
        *(f"{measure}: {note}" for measure, note in results.measure_notes.items() if measure != PAGE),
    ]
    return Table.of(parts, COLUMNS, (results.base, *results.tried), notes)


def missing_lines(results: MitigationResults) -> list[str]:
    """The remedies without figures, why, and the way out."""
    return [
        f"{row.title} is not here: {error.message.rstrip('.')}" + f": {error.hint}" * bool(error.hint)
        for row in results.missing
        if (error := row.error) is not None
    ]


def plan_table(planned: MitigationPlan) -> Table:
    """What a dry run says: calls of each remedy, or why it cannot be had."""
    columns: Sequence[Column[RemedyPlanned]] = (
        ("remedy", lambda row: row.remedy),
        ("", lambda row: row.title),
        ("calls", lambda row: row.calls),
        ("answered already", lambda row: row.answered),
        ("run folder", lambda row: f"not here: {row.error.message}" if row.error else row.folder),
    )
    title = f"Mitigation of {planned.run} · {count(planned.calls, 'call')}"
    return Table.of(title, columns, planned.remedies, ("Nothing was asked.",))


WORDS = (
    "Each remedy makes other rankings of the run's lists: from the rankings that are there, without a call, or by "
    "asking anew, in a run folder of its own. All are measured on the same queries, and every change is paired by "
    "query beside the unmitigated rankings.",
    "Odds of rankings are preference odds over all pairs of equally relevant items of both groups in the final lists "
    "(Mann–Whitney, ties counting half), every query weighing 1: they say what a reader of the ranking meets, whoever "
    "made it. Odds of answers are those of the audit, from first encounters, where the model was asked "
    "under the remedy; a remedy that orders anew what was answered leaves them as they are.",
    "Consistency is the Kendall tau between rankings of one list from different initial orders. Where a remedy merges "
    "the orders into one ranking, it is the tau between what two halves of the orders come to, averaged over the ways "
    "to halve them: rankings of half as many orders, so it rather understates that of all.",
    "The front has the remedies than which no other is nearer to parity (|ln odds| of rankings) at no less nDCG@20, by "
    "the estimates. p of a change is that of a sign flip by query, of odds by t where items recur, adjusted (Holm) "
    "over all changes of odds and nDCG.",
    "Mitigated are rankings that are nearer to parity beyond chance and whose odds are shown to lie in the band: "
    "one-sided t against both of its edges, the larger p, adjusted (Holm) over the remedies. Where that is open, the "
    "verdict says how many lists would settle it in about 80 %, if the odds stay as they are.",
)


def mitigation_page(source: Source, exhibits: Exhibits) -> Page:
    """The page of a folder that `llmfair mitigate` wrote."""
    results: MitigationResults = source.results
    words = [*WORDS, *(f"{capitalised(row.title)}: {row.does}" for row in results.remedies[1:])]
    section = Section(mitigation_table(results), [*_plots(results)], words=words)
    page = plain_page(
        results, exhibits, section, "Mitigation", f"{results.model} on {results.dataset}, {results.attribute}",
        warnings=[*warnings_of([results.model]), *missing_lines(results)],
    )  # fmt: skip
    if not results.tried:
        return page
    measures = (ODDS, ANSWERS, RATIO, UTILITY, PAGE, CONSISTENCY)
    rows = [
        {"remedy": row.title} | {LABELS.get(of, of): change_text(row.changes[of]) for of in measures}
        for row in results.tried
    ]
    title = "Changes beside the unmitigated rankings, paired by query"
    changes = Table.of_texts(title, rows, "× of ratios and odds, differences of the others")
    return replace(page, tables=[*page.tables, changes])


def _plots(results: MitigationResults) -> Iterator[Plot]:
    favoured, every = favoured_of(results.words), (results.base, *results.tried)
    odds = {row.title: on_log(value_of(row.figures[ODDS])) for row in every}
    points = [
        (row.title, utility, value, row.front)
        for row in every
        if (value := odds[row.title]) and (utility := value_of(row.figures[UTILITY]))
    ]
    if points and favoured:
        yield front_plot(points, results.band, favoured, f"{COST}-front")
