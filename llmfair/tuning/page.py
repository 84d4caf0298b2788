"""The page of a LoRA adapter: answers of base and adapter on the same pairs, before and after."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from llmfair.audits.pairwise.outcome import HEADLINE
from llmfair.audits.pairwise.table import pair_conclusion
from llmfair.io.files import typed
from llmfair.report.exhibits import Exhibits
from llmfair.report.figures import on_log, value_of
from llmfair.report.page import General, Page, plain_page
from llmfair.report.plots.base import Plot
from llmfair.report.plots.pairs import position_bias, stacked_answers
from llmfair.report.plots.ratios import ratios
from llmfair.report.section import Section, VerdictCard, verdict
from llmfair.report.tables import capitalised
from llmfair.results import RunVerdict
from llmfair.tuning.effects import PAIR_STRATA, SMOOTHED
from llmfair.tuning.outcome import ADAPTER
from llmfair.tuning.results import AnswersOnPairs, FinetuneResults
from llmfair.tuning.table import MODELS, ODDS, finetune_table, missed_on_test, odds_change, rows_of_all

if TYPE_CHECKING:
    from llmfair.report.source import Source

FIRST_SHOWN = "FirstSlotRate"
WORDS = (
    "A LoRA adapter was trained on pairs of some queries and measured on pairs of others, by the log-probabilities "
    "of both answers in both orders; base and adapter answer the very same questions in one process.",
    "With p₁ and p₂ the shares of answers that the protected item wins when shown first and second, "
    "preference odds (adjusted for position) are exp((logit p₁ + logit p₂) / 2); the ratio counts pairs won in both "
    "orders, ½ added to both counts. The logit offset takes one number off every margin instead of training.",
    "Each query is one unit; base and adapter are compared query by query.",
)


def adapter_page(source: Source, exhibits: Exhibits) -> Page:
    """The page of an adapter folder, from its results."""
    results = _found(source)
    verdicts = [*_verdicts(results)]
    section = Section(finetune_table(results), [*_plots(results)], verdicts, words=WORDS)
    page = plain_page(
        source.document, exhibits, section, "LoRA adapter",
        f"{results.model} with adapter {results.run}, {results.attribute}", asdict(results.words), (),
        [*adapter_warnings(results)],
    )  # fmt: skip
    outcome = _outcome(results)
    return replace(page, outcome=outcome, following=outcome[0][1].next if outcome else "")


def adapter_warnings(results: FinetuneResults) -> Iterator[str]:
    """What has to be known before any figure is read."""
    if results.status == "rejected":
        yield f"{capitalised(str(results.training.why))} The adapter in rejected/ is not meant to be used."
    if missed := missed_on_test(results):
        yield f"{capitalised(missed)}."


def _verdicts(results: FinetuneResults) -> Iterator[VerdictCard]:
    """What each relevance stratum came to, in the sentences of the table."""
    rows = rows_of_all(results)
    for stratum in PAIR_STRATA:
        row = rows.get((ADAPTER, HEADLINE, stratum, ""))
        if row is None or row.value is None:
            continue
        finding = results.findings[ADAPTER].get(stratum)
        change = odds_change(stratum, results, rows) if stratum in results.changes else ""
        said = f"base → adapter {change}" if change else ""
        level, band, words = results.level, results.band, results.words
        concluded = "" if finding is None else f"{pair_conclusion(finding, row, level, band, words)}; "
        conclusion = "" if finding is None else str(finding.conclusion)
        yield verdict(f"{stratum} pairs, adapter", ODDS, row, concluded + said, conclusion, band=band)


def _plots(results: FinetuneResults) -> Iterator[Plot]:
    """Figure 4 of the paper: shares of answers, and their ratio; and what the position has to do with it."""
    rows, both = rows_of_all(results), [(stratum, model) for stratum in PAIR_STRATA for model in MODELS[:2]]
    shares = [
        (f"{stratum}\n{model}", _shares(figures))
        for stratum, of_it in results.figure_4.items()
        for figures, model in zip(of_it.values(), MODELS, strict=False)
        if figures.pairs
    ]
    if shares:
        yield stacked_answers(shares, asdict(results.words))
    for measure, name, band in ((HEADLINE, ODDS, results.band), (SMOOTHED, "ratio", None)):
        found = []
        for stratum in PAIR_STRATA:
            before, after = (
                on_log(value_of(rows.get((model, measure, stratum, "")))) for model in MODELS[:2]
            )
            found.append((stratum, before, after))
        if any(after for *_, after in found):
            title = f"{capitalised(name)}, before and after"
            yield ratios(found, name, band, title, measure, ("before", "after"))
    first = [
        (f"{stratum}\n{model}", value)
        for stratum, model in both
        if (value := value_of(rows.get((model, FIRST_SHOWN, stratum, ""))))
    ]
    if first:
        yield position_bias(first)


def _shares(figures: AnswersOnPairs) -> dict[str, float]:
    """Shares of cells; what is neither won nor flipped is tied, since margins are always read."""
    won, lost, flipped = (
        one.value or 0.0 for one in (figures.protected, figures.unprotected, figures.flipped)
    )
    return {"PP": won, "UU": lost, "FF": flipped, "T": max(0.0, 1 - won - lost - flipped)}


def _found(source: Source) -> FinetuneResults:
    return typed(source.results, FinetuneResults, source.run.results)


def _outcome(results: FinetuneResults) -> list[tuple[str, RunVerdict]]:
    return [] if results.verdict is None else [("", results.verdict)]


ADAPTER_PAGE = General(
    words=WORDS,
    page=adapter_page,
    table=lambda source: finetune_table(_found(source)),
    warnings=lambda source: adapter_warnings(_found(source)),
    outcome=lambda source: _outcome(_found(source)),
)
