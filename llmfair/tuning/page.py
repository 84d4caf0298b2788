"""The page of a LoRA adapter: answers of base and adapter on the same pairs, before and after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from llmfair.audits.pairwise.results import PairFinding
from llmfair.audits.pairwise.table import pair_conclusion
from llmfair.jsonfiles import typed
from llmfair.report.figures import on_log, value_of
from llmfair.report.method import method_of
from llmfair.report.page import General, Page
from llmfair.report.plots.base import Plot
from llmfair.report.plots.pairs import position_bias, stacked_answers
from llmfair.report.plots.ratios import ratios
from llmfair.report.section import Verdict
from llmfair.report.tables import capitalised, count
from llmfair.results import Row, Words
from llmfair.tuning.table import KINDS, finetune_table, missed_on_test

HEADLINE, FIRST_SHOWN, TIMES = "AdjustedOdds", "FirstSlotRate", ("before", "after")
WHEN = {"before": "base", "after": "adapter"}

WORDS = (
    "A LoRA adapter was trained on pairs of some queries and measured on pairs of others, by the log-probabilities "
    "of both answers in both orders; base and adapter answer the very same questions in one process.",
    "With p₁ and p₂ the shares of answers that the protected item wins when shown first and second, "
    "position-adjusted odds are exp((logit p₁ + logit p₂) / 2); the ratio counts pairs won in both orders, ½ added "
    "to both counts. The free baseline takes one number off every margin instead of training.",
    "Each query is one unit; base and adapter are compared query by query.",
)


def adapter_page(results: Mapping[str, Any], exhibits: Mapping[str, Any]) -> Page:
    """The page of an adapter folder, from its results."""
    table = finetune_table(results)
    return Page(
        kind="LoRA adapter",
        title=f"{results['model']} with adapter {results['run']}, {results['attribute']}",
        subtitle=table.title,
        words=results["words"],
        missing=(),
        warnings=list(adapter_warnings(results)),
        verdicts=list(_verdicts(results, table.notes)),
        tables=[table],
        plots=list(_plots(results)),
        furthest=None,
        evidence=(),
        method=method_of(results, None, exhibits, WORDS),
        rows=results["rows"],
    )


def adapter_warnings(results: Mapping[str, Any]) -> Iterator[str]:
    """What has to be known before any figure is read."""
    if results["status"] == "rejected":
        yield f"{capitalised(results['training']['why'])} The adapter in rejected/ is not meant to be used."
    if missed := missed_on_test(results):
        yield f"{capitalised(missed)}."


def _cells(results: Mapping[str, Any]) -> dict[tuple[str, str, str], Row]:
    rows = typed(results["rows"], list[Row])
    return {(row.model, row.measure, row.variant): row for row in rows if not row.group}


def _verdicts(results: Mapping[str, Any], notes: tuple[str, ...]) -> Iterator[Verdict]:
    """What each kind of pairs came to, in the sentences of the table."""
    cells = _cells(results)
    for kind in KINDS:
        row = cells.get((WHEN["after"], HEADLINE, kind))
        if row is None or row.value is None:
            continue
        said = next((note for note in notes if note.startswith(f"{kind}: position-adjusted odds")), "")
        between = "" if row.low is None or row.high is None else f"[{row.low:.2f}, {row.high:.2f}], "
        finding, words = results["findings"][WHEN["after"]].get(kind), typed(results["words"], Words)
        concluded = ""
        if finding:
            found = typed(finding, PairFinding)
            concluded = f"{pair_conclusion(found, row, results['level'], words)}; "
        yield Verdict(
            of=f"{kind} pairs, adapter",
            measure="position-adjusted odds",
            value=f"{row.value:.2f}",
            interval=between + count(row.n or 0, "query", "queries"),
            sentence=concluded + said.replace(f"{kind}: position-adjusted odds", "base → adapter"),
            conclusion=str(finding["conclusion"]) if finding else "",
        )


def _plots(results: Mapping[str, Any]) -> Iterator[Plot]:
    """Figure 4 of the paper: shares of answers, and their ratio; and what the position has to do with it."""
    cells, low_high = _cells(results), (results["band"][0], results["band"][1])
    shares = [
        (f"{kind}\n{WHEN[when]}", _shares(results["figure_4"][kind][when]))
        for kind in results["figure_4"]
        for when in TIMES
        if results["figure_4"][kind][when]["pairs"]
    ]
    if shares:
        yield stacked_answers(shares, results["words"])
    for measure, name, band in (
        (HEADLINE, "position-adjusted odds", low_high),
        ("SmoothedWinRatio", "ratio", None),
    ):
        rows = []
        for kind in KINDS:
            before, after = (on_log(value_of(cells.get((WHEN[when], measure, kind)))) for when in TIMES)
            rows.append((kind, before, after))
        if any(after for *_, after in rows):
            yield ratios(rows, name, band, f"{name[:1].upper()}{name[1:]}, before and after", measure, TIMES)
    first = [
        (f"{kind}\n{WHEN[when]}", value)
        for kind in KINDS
        for when in TIMES
        if (value := value_of(cells.get((WHEN[when], FIRST_SHOWN, kind))))
    ]
    if first:
        yield position_bias(first)


def _shares(figures: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Shares of cells; what is neither won nor flipped is tied, since margins are always read."""
    won, lost, flipped = (figures[name]["value"] or 0.0 for name in ("protected", "unprotected", "flipped"))
    return {"PP": won, "UU": lost, "FF": flipped, "T": max(0.0, 1 - won - lost - flipped)}


ADAPTER = General(
    words=WORDS,
    page=adapter_page,
    table=lambda source: finetune_table(source.results or {}),
    doubts=lambda source: adapter_warnings(source.results or {}),
)
