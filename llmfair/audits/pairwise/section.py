"""What the report of a pairwise audit has of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from llmfair.audits.pairwise.figures import pairwise_plots
from llmfair.audits.pairwise.furthest import furthest_pairs
from llmfair.audits.pairwise.results import PairwiseResults
from llmfair.audits.pairwise.table import flips_text, pairwise_table
from llmfair.report.exhibits import Declared, Exhibits
from llmfair.report.figures import ratio_of
from llmfair.report.section import (
    SHOWN_VERDICTS,
    Section,
    VerdictCard,
    condition_verdicts,
    queries_of,
)
from llmfair.report.tables import Table

WORDS = (
    "The model is shown one protected and one unprotected item of a query, equally relevant, and asked which "
    "is the more relevant; then the same two in the other order. An answer that changes with the order is a "
    "flip.",
    "With p₁ and p₂ the shares of answers that the protected item wins when shown first and second, the "
    "preference odds (adjusted for position) are exp((logit p₁ + logit p₂) / 2): 1 at parity, with the pull of the "
    "position taken out.",
    "Of the pairs answered alike in both orders, PP went to the protected item and UU to the other; FF and SS"
    " are flips to the item shown first and second.",
    "Each query is one unit, and items that recur in several pairs are taken into account. p is adjusted "
    "(Holm) over the relevance strata.",
)


def pairwise_section(results: PairwiseResults, folder: Path, exhibits: Exhibits) -> Section:
    """Odds of every relevance stratum, how often answers flip, and the queries whose pairs are furthest from parity."""
    table, declared = pairwise_table(results), exhibits.measures
    by = ratio_of(results.measures, declared, of_queries=True)
    asked = ", ".join(f"{n:,} {stratum}" for stratum, n in results.design.pairs_asked.items())
    return Section(
        table=table,
        plots=list(pairwise_plots(results, declared)),
        verdicts=list(_verdicts(results, table, declared)),
        furthest=furthest_pairs(folder, results, exhibits, by) if by else None,
        words=WORDS,
        facts=[("pairs", asked)],
    )


def _verdicts(results: PairwiseResults, table: Table, declared: Declared) -> Iterator[VerdictCard]:
    """The odds of every relevance stratum, then how many pairs flip."""
    strata, cells = results.design.conditions, results.by_condition()
    followed = [stratum for stratum, found in results.findings.items() if found.reason == "position_driven"]
    places = {stratum: (_by_places(results, stratum), "figures") for stratum in followed}
    ratio = ratio_of(results.shown, declared)
    found = list(condition_verdicts(results, table, declared, ratio, strata, "{} pairs", places))
    yield from found
    flips = (
        row
        for (name, stratum), row in cells.items()
        if stratum == strata[0] and name in declared and declared[name].shows == "order dependence"
    )
    row = next(flips, None)
    said = flips_text(strata[0], results)  # nothing where no answer could be read, and none flips
    if len(found) < SHOWN_VERDICTS and row is not None and row.value is not None and said:
        yield VerdictCard(f"{strata[0]} pairs", "flips", f"{100 * row.value:.0f} %", queries_of(row), said)


def _by_places(results: PairwiseResults, stratum: str) -> str:
    """What it is that answers follow the position, counted."""
    shares = results.shares[stratum]
    assert shares is not None  # or nothing would follow the position
    return (
        f"{100 * shares.of('FF', 'SS'):.0f} % of pairs have another winner when their items change places, "
        "so odds near 1 are no parity"
    )
