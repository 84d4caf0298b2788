"""Queries whose pairs are far from parity, with both answers on each pair."""

from __future__ import annotations

from pathlib import Path

from llmfair.audits.pairwise.results import PairwiseResults
from llmfair.audits.pairwise.verdict_files import read_verdicts
from llmfair.nouns import PairAnswer, PairOutcome, PairVerdict
from llmfair.report.exhibits import Exhibits
from llmfair.report.furthest import (
    Furthest,
    FurthestQuery,
    Values,
    figures_text,
    furthest_from_parity,
    named,
)

SHOWN_PAIRS = 60
WON = (PairOutcome.PROTECTED, PairOutcome.UNPROTECTED)


def furthest_pairs(folder: Path, results: PairwiseResults, exhibits: Exhibits, by: str) -> Furthest | None:
    """The queries whose own value of the measure `by` is furthest from parity on some relevance stratum."""
    strata, titles, queries = results.design.conditions, exhibits.titles, exhibits.queries
    by_query: dict[str, list[PairVerdict]] = {}
    path = folder / "verdicts.csv"
    for verdict in read_verdicts(path) if path.is_file() else ():
        by_query.setdefault(verdict.query_id, []).append(verdict)

    def show(query_id: str, values: Values) -> FurthestQuery | None:
        rows = [one for one in by_query.get(query_id, []) if one.draw == 0 and one.stratum in strata]
        if not rows:
            return None
        # those that do not flip first: they are what a ratio is made of
        rows.sort(key=lambda one: (one.outcome not in WON, strata.index(one.stratum), one.number))
        pairs = [
            (
                one.stratum,
                titles.get(one.protected, one.protected),
                titles.get(one.unprotected, one.unprotected),
                _answered(one.first),
                _answered(one.second),
                one.outcome.value,
            )
            for one in rows[:SHOWN_PAIRS]
        ]
        ordered = {stratum: values[stratum] for stratum in strata if stratum in values}
        return FurthestQuery(
            queries.get(query_id, query_id),
            figures_text(ordered, named(by, results), {}),
            pairs=pairs,
            left_out=len(rows) - len(pairs),
        )

    return furthest_from_parity(folder, results, strata, by, "relevance strata", show)


def _answered(answer: PairAnswer) -> str:
    """Which group's item won, or why none did."""
    return answer.winner.value if answer.winner else answer.problem or ""
