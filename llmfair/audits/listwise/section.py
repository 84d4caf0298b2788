"""What the report of a listwise audit has of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from llmfair.audits.listwise.figures import listwise_plots
from llmfair.audits.listwise.furthest import furthest_lists
from llmfair.audits.listwise.lists import read_lists
from llmfair.audits.listwise.results import ListwiseFacts, ListwiseResults
from llmfair.audits.listwise.table import listwise_table, note_of, window_text
from llmfair.audits.listwise.words import WORDS, by_places
from llmfair.report.exhibits import Declared, Exhibits
from llmfair.report.figures import ratio_of, utility_of
from llmfair.report.section import SHOWN_VERDICTS, Section, VerdictCard, condition_verdicts, verdict
from llmfair.report.tables import Table, count


def listwise_section(results: ListwiseResults, folder: Path, exhibits: Exhibits) -> Section:
    """Exposure under every prompt, its lists, and the queries whose lists are furthest from parity."""
    table, declared = listwise_table(results), exhibits.measures
    lists = read_lists(folder, results.design.conditions)
    by = ratio_of(results.measures, declared, of_queries=True)
    return Section(
        table=table,
        plots=list(listwise_plots(results, lists, declared)),
        verdicts=list(_verdicts(results, table, declared, bool(exhibits.evidence))),
        furthest=furthest_lists(folder, results, exhibits, lists, by) if lists and by else None,
        words=listwise_words(results),
        facts=_facts(results.design),
    )


def listwise_words(results: ListwiseResults | None = None) -> Sequence[str]:
    """The method's paragraphs; of a ranker that asks no model, those that speak of no windows."""
    return WORDS[1:] if results is not None and results.design.window is None else WORDS


def _verdicts(
    results: ListwiseResults, table: Table, declared: Declared, evidence: bool
) -> Iterator[VerdictCard]:
    """The ratio that conclusions go by of every prompt, then utility; `evidence`: the page shows single answers."""
    conditions = [condition for condition in results.design.conditions if condition != "repeat"]
    followed = [
        condition for condition, found in results.findings.items() if found.reason == "position_driven"
    ]
    places = {
        condition: (by_places(results, condition), "evidence" if evidence else "") for condition in followed
    }
    ratio, utility = ratio_of(results.shown, declared), utility_of(results.shown, declared)
    found = list(condition_verdicts(results, table, declared, ratio, conditions, "{} prompt", places))
    yield from found
    row = results.by_condition().get((utility, conditions[0])) if utility else None
    if len(found) < SHOWN_VERDICTS and utility and row:
        yield verdict(f"{conditions[0]} prompt", utility, row, note_of(utility, results))


def _facts(design: ListwiseFacts) -> list[tuple[str, str]]:
    """Windows and initial orders, where a model was asked."""
    if design.prompt_sha256 is None:
        return []
    orders = f"{count(design.orders, design.initial + ' order')}, {count(design.repeats, 'repeat')}"
    return [("windows", window_text(design)), ("initial orders", orders)]
