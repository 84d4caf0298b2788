"""Remedies in a table, a verdict and a page: what each buys and costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from llmfair.audits.comparing import CLOSER, way_of
from llmfair.audits.documents import ChangeRow
from llmfair.audits.verdict import listed
from llmfair.mitigation.results import (
    ANSWERS,
    CONSISTENCY,
    ODDS,
    PAGE,
    RATIO,
    UTILITY,
    MitigationPlan,
    MitigationResults,
    RemedyRow,
)
from llmfair.nouns import Conclusion
from llmfair.report.exhibits import Exhibits
from llmfair.report.figures import COST, favoured_of, on_log, value_of
from llmfair.report.page import General, Page, plain_page
from llmfair.report.plots.base import Plot
from llmfair.report.plots.ratios import Remedied, front_plot, ratios
from llmfair.report.section import Section
from llmfair.report.tables import (
    FEW_QUERIES,
    Table,
    cell,
    count,
    few_queries,
    filled,
    headed,
    in_words,
    p_text,
)
from llmfair.results import Figure, RunVerdict
from llmfair.stats.tradeoff import keeping

if TYPE_CHECKING:
    from llmfair.report.page import Source


# The verdict over remedies: whether one brings the rankings nearer to parity, and at what loss of relevance.


NO_LOSS, LOSS, PARTLY = "mitigated at no loss", "mitigated at a loss", "partly mitigated"
NOT_MITIGATED, INCONCLUSIVE, NOT_ASSESSABLE, PARITY = (
    "not mitigated",
    "inconclusive",
    "not assessable",
    "parity",
)
STATUSES = (NOT_MITIGATED, NOT_ASSESSABLE, INCONCLUSIVE, PARTLY, LOSS, NO_LOSS, PARITY)
"""The gravest first."""
LOSSES = {
    NO_LOSS: "at no loss of relevance",
    LOSS: "at a loss of relevance",
    PARTLY: "and not into the parity band",
    INCONCLUSIVE: "and whether relevance is lost is open",
}


def closer(one: RemedyRow, found: MitigationResults) -> bool:
    """Whether a remedy's rankings are nearer to parity beyond chance, as adjusted over the remedies."""
    change = one.changes.get(ODDS)
    if change is None or change.change is None or change.p_adjusted is None:
        return False
    beyond_chance = change.p_adjusted < 1 - found.level
    return beyond_chance and way_of(change, found.band) == CLOSER


def kept(one: RemedyRow, found: MitigationResults) -> str | None:
    """Whether its nDCG is kept, lost, or neither is shown."""
    change = one.changes[UTILITY]
    return keeping(change.low, change.high, found.margin)


def verdict_of(found: MitigationResults, folder: Path) -> RunVerdict:
    """What the best remedy buys and costs; where there is none, what stands in the way."""
    report = f"all side by side: llmfair report {quote(str(folder))}"
    base = found.base.figures[ODDS]
    if base.value is None:
        why = in_words(base.reason, ODDS)
        return RunVerdict(
            status=NOT_ASSESSABLE, sentence=f"nothing can be said of the run's rankings: {why}", next=report
        )
    low, high = found.band
    if base.low is not None and base.high is not None and low <= base.low and base.high <= high:
        return _within(found, report)
    better = [one for one in found.tried if closer(one, found)]
    inside = [one for one in better if low <= (one.figures[ODDS].value or 0) <= high]
    useful = [one for one in inside if kept(one, found) == "kept"]
    if useful:
        return _told(NO_LOSS, useful, better, found, folder)
    if inside:
        lost = all(kept(one, found) == "lost" for one in inside)
        return _told(LOSS if lost else INCONCLUSIVE, inside, better, found, folder)
    if better:
        return _told(PARTLY, better, better, found, folder)
    tested = [one for one in found.tried if one.changes[ODDS].p is not None]
    if not tested:
        return _verdict(
            NOT_ASSESSABLE, found.base, found, "no remedy has preference odds that could be paired with the "
            f"unmitigated {_odds(found.base)} ({count(found.queries, 'query', 'queries')})", report,
        )  # fmt: skip
    nearest = min(tested, key=lambda one: one.distance if one.distance is not None else 1e9)
    least = len(tested) * 2.0 ** (1 - found.queries)
    if least >= 1 - found.level:
        return _verdict(
            INCONCLUSIVE, nearest, found,
            f"{count(found.queries, 'query', 'queries')} are too few to tell {len(tested)} remedies from chance; "
            f"nearest to parity is {nearest.title}, {_change(nearest)}",
            f"more queries, or fewer remedies at once: --remedy {nearest.remedy}; {report}",
        )  # fmt: skip
    if base.low is not None and base.high is not None and base.low <= 1 <= base.high:
        return _verdict(
            INCONCLUSIVE, found.base, found,
            f"the unmitigated rankings have preference odds of {_odds(found.base)}, which include 1: no preference is "
            f"shown that a remedy could lessen; nearest to parity is {nearest.title}, {_change(nearest)}",
            f"more queries; {report}",
        )  # fmt: skip
    return _verdict(
        NOT_MITIGATED, nearest, found,
        f"no remedy is shown to bring the rankings nearer to parity; nearest is {nearest.title}, {_change(nearest)}",
        f"{'more queries' if any(map(_moves, tested)) else 'another remedy: none of these moves any odds'}; {report}",
    )  # fmt: skip


def _within(found: MitigationResults, report: str) -> RunVerdict:
    """Rankings within the band: parity, where the audit found as much; else too little of its answers is in them."""
    low, high = found.band
    odds = _odds(found.base)
    said = f"the unmitigated rankings have preference odds of {odds}, within the parity band {low:g}–{high:g}"
    if found.conclusion == Conclusion.WITHIN:
        return _verdict(
            PARITY, found.base, found, f"{said}, as have the answers: nothing is to be mitigated", report
        )
    return _verdict(
        INCONCLUSIVE, found.base, found,
        f"{said}, though the audit finds no parity in the answers: too little of them is in the rankings for a remedy "
        "to show what it does",
        f"rankings that follow the answers: {'more --passes, or a larger --window; ' * found.prompted}{report}",
    )  # fmt: skip


def _told(
    status: str,
    best: Sequence[RemedyRow],
    better: Sequence[RemedyRow],
    found: MitigationResults,
    folder: Path,
) -> RunVerdict:
    """The nearest of the best, what it buys and costs, and the others that bring rankings nearer, too."""
    one = min(best, key=lambda row: row.distance if row.distance is not None else 1e9)
    words = found.words
    less = words.protected if (found.base.figures[ODDS].value or 1) < 1 else words.unprotected
    more = words.unprotected if less == words.protected else words.protected
    others = [row.title for row in better if row is not one]
    also = f"; nearer to parity, too: {listed(others)}" if others else ""
    caution = "; few queries, so read the intervals with care" if found.queries < FEW_QUERIES else ""
    calls = "no further call" if not one.calls else count(one.calls, "further call")
    sentence = (
        f"the rankings put {less} items behind {more} ones of the same relevance; {one.title} brings them nearer to "
        f"parity {LOSSES[status]}: {_change(one)}, nDCG@20 {_utility(one)}, {calls}{also}{caution}"
    )
    first = f"its rankings: {folder / one.rankings[0]}" if one.rankings else "its rankings are in its run"
    return _verdict(status, one, found, sentence, f"{first} · llmfair report {quote(str(folder))}")


def _verdict(
    status: str, one: RemedyRow, found: MitigationResults, sentence: str, following: str
) -> RunVerdict:
    figure = one.figures.get(ODDS)
    below = (found.base.figures[ODDS].value or 1) < 1
    return RunVerdict(
        status=status,
        sentence=sentence,
        next=following,
        condition=one.remedy,
        measure=ODDS,
        group=found.words.protected if below else found.words.unprotected,
        estimate=None if figure is None else figure.value,
        low=None if figure is None else figure.low,
        high=None if figure is None else figure.high,
        n=None if figure is None else figure.n,
    )


def _moves(one: RemedyRow) -> bool:
    """Whether it changes the odds of any query: where it does not, no more queries would show that it does."""
    change = one.changes[ODDS]
    return not change.change == change.low == change.high == 1


def _odds(one: RemedyRow) -> str:
    figure = one.figures[ODDS]
    interval = "" if figure.low is None or figure.high is None else f" [{figure.low:.2f}, {figure.high:.2f}]"
    return f"{figure.value:.2f}{interval}"


def _change(one: RemedyRow) -> str:
    change = one.changes[ODDS]
    return f"preference odds {change.base:.2f} → {change.other:.2f} ({change_text(change)})"


def _utility(one: RemedyRow) -> str:
    change = one.changes[UTILITY]
    if change.base is None or change.other is None:
        return "undefined"
    return f"{change.base:.3f} → {change.other:.3f} ({change_text(change)})"


def change_text(change: ChangeRow) -> str:
    """A paired change with its interval and p; why there is none."""
    if change.change is None:
        return in_words(change.reason, change.measure)
    sign = "× {:.2f}" if change.scale == "log" else "{:+.3f}"
    text = sign.format(change.change)
    if change.low is not None and change.high is not None:
        low, high = (sign.removeprefix("× ").format(end) for end in (change.low, change.high))
        text += f" [{low}, {high}]"
    return text if change.p_adjusted is None else f"{text}, p {p_text(change.p_adjusted)}"


# Remedies in a table: what each buys and costs, a line each.


LABELS = {ODDS: "odds of rankings", ANSWERS: "odds of answers", CONSISTENCY: "consistency"}
HEADINGS = (
    "remedy", "odds of rankings", "change", "odds of answers", "ExpRatio", "nDCG@20", "change", "consistency",
    "calls", "cost", "front",
)  # fmt: skip


def mitigation_table(found: MitigationResults) -> Table:
    """One row a remedy that has figures, the unmitigated rankings first; the others are named below."""
    rows = tuple(_line(one) for one in (found.base, *found.tried))
    simulated = ", a simulated model" * found.model.startswith("fake:")
    parts = [
        "Mitigation",
        found.dataset,
        f"{found.attribute} (protected: {found.words.protected})",
        f"{found.model}{simulated}",
        count(found.queries, "query", "queries"),
        f"{found.condition} prompt" * found.prompted,
        count(found.orders, "order of each list", "orders of each list"),
    ]
    level = f"{found.level * 100:g} %"
    notes = [
        *missing_lines(found),
        *few_queries(found.queries),
        f"odds: preference odds, of equally relevant items of both groups in the final rankings, and of the answers "
        f"behind them; figures with {level} intervals",
        "changes are paired by query; p by sign flip, Holm over the remedies, by measure",
        "front: no other is nearer to parity at no less nDCG@20 (by the estimates)",
        *(f"{one.title}: {said}" for one in found.tried for said in one.remarks),
        *(f"{measure}: {note}" for measure, note in found.measure_notes.items() if measure != PAGE),
    ]
    return filled(Table(" · ".join(filter(None, parts)), HEADINGS, rows, tuple(notes)))


def _line(one: RemedyRow) -> tuple[str, ...]:
    changes = {measure: change_text(one.changes[measure]) for measure in (ODDS, UTILITY) if one.changes}
    odds, utility = (changes.get(measure, "") for measure in (ODDS, UTILITY))
    return (
        one.title,
        short(one.figures[ODDS]),
        odds if one.figures[ODDS].value is not None else "",
        short(one.figures[ANSWERS], interval=False),
        short(one.figures[RATIO], interval=False),
        short(one.figures[UTILITY], 3, interval=False),
        utility if one.figures[UTILITY].value is not None else "",
        short(one.figures[CONSISTENCY], interval=False),
        f"{one.calls:,}" if one.calls is not None else "",
        "" if one.cost is None else f"{one.cost:,.4f}",
        "●" if one.front else "",
    )


UNSAID = {
    "not_measured": "",
    "answers_untouched": "as unmitigated",
    "other_lists": "other lists",
    "single_order": "one order",
}
"""Reasons so short that a cell has room for them; the notes and the report say more."""


def short(figure: Figure, digits: int = 2, interval: bool = True) -> str:
    """A figure of a narrow cell."""
    if figure.value is None:
        return UNSAID[reason] if (reason := figure.reason or "") in UNSAID else cell(figure)
    text = f"{figure.value:.{digits}f}"
    if not interval or figure.low is None or figure.high is None:
        return text
    return f"{text} [{figure.low:.{digits}f}, {figure.high:.{digits}f}]"


def missing_lines(found: MitigationResults) -> list[str]:
    """The remedies without figures, why, and the way out."""
    lines = []
    for one in found.missing:
        assert one.error is not None
        hint = f": {one.error.hint}" if one.error.hint else ""
        lines.append(f"{one.title} is not here: {one.error.message.rstrip('.')}{hint}")
    return lines


def changes_table(found: MitigationResults) -> Table:
    """Every measure's paired change, a line each remedy; for the report."""
    measures = (ODDS, ANSWERS, RATIO, UTILITY, PAGE, CONSISTENCY)
    rows = tuple((one.title, *(_changed(one, measure) for measure in measures)) for one in found.tried)
    names = tuple(LABELS.get(measure, measure) for measure in measures)
    title = "Changes beside the unmitigated rankings, paired by query"
    notes = ("× of ratios and odds, differences of the others",)
    return filled(Table(title, ("remedy", *names), rows, notes))


def _changed(one: RemedyRow, measure: str) -> str:
    change = one.changes.get(measure)
    if change is None:
        return ""
    if change.change is None:
        return UNSAID.get(change.reason or "", in_words(change.reason, measure))
    return change_text(change)


def headed_table(found: MitigationResults, folder: Path | None = None) -> Table:
    """The table below its verdict."""
    return headed(mitigation_table(found), found.verdict, folder)


def plan_table(planned: MitigationPlan) -> Table:
    """What a dry run says: calls of each remedy, or why it cannot be had."""
    rows: list[Sequence[str]] = []
    for one in planned.remedies:
        why = "" if one.error is None else f"not here: {one.error.message}"
        calls, answered = ("" if n is None else f"{n:,}" for n in (one.calls, one.answered))
        rows.append((one.remedy, one.title, calls, answered, why or one.folder or ""))
    header = ("remedy", "", "calls", "answered already", "run folder")
    title = f"Mitigation of {planned.run} · {count(planned.calls, 'call')}"
    return Table(title, header, tuple(tuple(row) for row in rows), ("Nothing was asked.",))


# The page of a mitigation: the front of remedies, their figures and changes, and what each of them is.


WORDS = (
    "Each remedy makes other rankings of the run's lists: from the rankings that are there, without a call, or by "
    "asking anew, in a run folder of its own. All are measured on the same queries, and every change is paired by "
    "query beside the unmitigated rankings.",
    "Preference odds of rankings are over all pairs of equally relevant items of both groups in the final lists "
    "(Mann–Whitney, ties counting half), every query weighing 1: they say what a reader of the ranking meets, whoever "
    "made it. Preference odds of answers are those of the audit, from first encounters, where the model was asked "
    "under the remedy; a remedy that orders anew what was answered leaves them as they are. Of rankings of other "
    "documents neither compares.",
    "Consistency is the Kendall tau between rankings of one list from different initial orders. Where a remedy merges "
    "the orders into one ranking, it is the tau between what two halves of the orders come to, averaged over the ways "
    "to halve them: rankings of half as many orders, so it rather understates that of all.",
    "The front has the remedies than which no other is nearer to parity (|ln odds| of rankings) at no less nDCG@20, by "
    "the estimates. p is that of a sign flip by query, adjusted (Holm) over the remedies, odds and nDCG each for "
    "themselves.",
)


def mitigation_page(source: Source, exhibits: Exhibits) -> Page:
    """The page of a folder that `llmfair mitigate` wrote."""
    found: MitigationResults = source.results
    tables = [changes_table(found)] if found.tried else []
    section = Section(mitigation_table(found), [*_plots(found)], words=_words(found))
    page = plain_page(
        source.results, exhibits, section, "Mitigation",
        f"{found.model} on {found.dataset}, {found.attribute}", asdict(found.words), (), missing_lines(found),
    )  # fmt: skip
    page = replace(page, tables=[*page.tables, *tables])
    if found.verdict is None:
        return page
    return replace(page, outcome=[("", found.verdict)], following=found.verdict.next)


def _words(found: MitigationResults) -> list[str]:
    """How remedies are held against a run, and what each one is."""
    return [*WORDS, *(f"{one.title[:1].upper()}{one.title[1:]}: {one.does}" for one in found.remedies[1:])]


def _plots(found: MitigationResults) -> Iterator[Plot]:
    points = [
        Remedied(one.title, utility, odds, one.front)
        for one in (found.base, *found.tried)
        if (odds := on_log(value_of(one.figures[ODDS]))) and (utility := value_of(one.figures[UTILITY]))
    ]
    if points:
        yield front_plot(points, found.band, favoured_of(found.words), f"{COST}-front")
    rows = [
        (one.title, on_log(value_of(found.base.figures[ODDS])), on_log(value_of(one.figures[ODDS])))
        for one in found.tried
        if one.figures[ODDS].value is not None
    ]
    if rows:
        yield ratios(
            rows, "preference odds of rankings", found.band, "Preference odds, before and after", "remedies",
            favoured=favoured_of(found.words),
        )  # fmt: skip


MITIGATION_PAGE = General(
    words=WORDS,
    page=mitigation_page,
    table=lambda source: mitigation_table(source.results),
    warnings=lambda source: missing_lines(source.results),
    outcome=lambda source: [("", verdict)] if (verdict := source.results.verdict) else [],
)
