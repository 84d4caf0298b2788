"""Queries whose pairs are far from parity, with both answers on each pair."""

from __future__ import annotations

from pathlib import Path

from llmfair.audits.pairwise.results import PairwiseResults
from llmfair.report.exhibits import Exhibits
from llmfair.report.furthest import (
    Furthest,
    FurthestQuery,
    Values,
    figures_text,
    furthest_from_parity,
    named,
    read_csv,
)

SHOWN_PAIRS = 60
WON = ("protected", "unprotected")


def furthest_pairs(folder: Path, results: PairwiseResults, exhibits: Exhibits, by: str) -> Furthest | None:
    """The queries whose own value of the measure `by` is furthest from parity on some relevance stratum."""
    strata, titles, queries = results.design.conditions, exhibits.titles, exhibits.queries
    by_query: dict[str, list[dict[str, str]]] = {}
    for row in read_csv(folder / "verdicts.csv"):
        by_query.setdefault(row["query_id"], []).append(row)

    def show(query_id: str, values: Values) -> FurthestQuery | None:
        rows = [row for row in by_query.get(query_id, []) if row["draw"] == "0"]
        if not rows:
            return None
        # those that do not flip first: they are what a ratio is made of
        rows.sort(
            key=lambda row: (row["verdict"] not in WON, strata.index(row["condition"]), int(row["pair"]))
        )
        pairs = [
            (
                row["condition"],
                titles.get(row["protected_doc_id"], row["protected_doc_id"]),
                titles.get(row["unprotected_doc_id"], row["unprotected_doc_id"]),
                row["first_answer"] or row["first_problem"],
                row["second_answer"] or row["second_problem"],
                row["verdict"],
            )
            for row in rows[:SHOWN_PAIRS]
        ]
        ordered = {stratum: values[stratum] for stratum in strata if stratum in values}
        return FurthestQuery(
            queries.get(query_id, query_id),
            figures_text(ordered, named(by, results), {}),
            pairs=pairs,
            left_out=len(rows) - len(pairs),
        )

    return furthest_from_parity(folder, results, strata, by, "relevance strata", show)
