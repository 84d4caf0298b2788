"""The page of a mitigation: the front of remedies, their figures and changes, and what each of them is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from llmfair.io.files import typed
from llmfair.mitigation.results import ODDS, UTILITY, MitigationResults
from llmfair.mitigation.table import changes_table, missing_lines, mitigation_table
from llmfair.report.exhibits import Exhibits
from llmfair.report.figures import COST, favoured_of, on_log, value_of
from llmfair.report.page import General, Page, plain_page
from llmfair.report.plots.base import Plot
from llmfair.report.plots.front import Remedied, front_plot
from llmfair.report.plots.ratios import ratios
from llmfair.report.section import Section

if TYPE_CHECKING:
    from llmfair.report.source import Source

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
    found = _found(source)
    tables = [changes_table(found)] if found.tried else []
    section = Section(mitigation_table(found), [*_plots(found)], words=_words(found))
    page = plain_page(
        source.document, exhibits, section, "Mitigation",
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


def _found(source: Source) -> MitigationResults:
    return typed(source.results, MitigationResults, source.run.results)


MITIGATION_PAGE = General(
    words=WORDS,
    page=mitigation_page,
    table=lambda source: mitigation_table(_found(source)),
    warnings=lambda source: missing_lines(_found(source)),
    outcome=lambda source: [("", verdict)] if (verdict := _found(source).verdict) else [],
)
