"""A pairwise calibration in a table and sentences: what simulated audits of injected odds found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmfair.report.calibration import (
    Row,
    calibration_table,
    false_alarms,
    held,
    injected,
    percent,
    share,
    undefined_notes,
)
from llmfair.report.tables import Table, count, few_queries

NO_TEST = "too few queries or items for a test"


def calibrate_pairs_table(results: Mapping[str, Any]) -> Table:
    """One row a stratum and injected preference: what was recovered, how intervals and tests did, the conclusion."""
    queries, strata = results["design"]["queries"], results["design"]["conditions"]
    pairs = ", ".join(f"{one['pairs']:,} {stratum}" for stratum, one in strata.items())
    columns = {
        "pairs": lambda row: str(row["condition"]),
        "injected odds": injected,
        "over queries": lambda row: f"{row['marginal_odds']:.3f}",
        "recovered": lambda row: "none" if row["odds"] is None else f"{row['odds']:.3f}",
        held(results): lambda row: share(row, "covered"),
    }
    size = f"{count(queries, 'query', 'queries')}, {pairs} pairs, both orders"
    return calibration_table(results, size, columns, _notes(results))


def _notes(results: Mapping[str, Any]) -> list[str]:
    asked, design = results["settings"], results["design"]
    notes = [
        f"injected: log odds of the protected item in the typical query, beside {asked['position']:+g} for the item "
        f"shown first; standard deviation {asked['query_sd']:g} over queries, {asked['pair_sd']:g} over the pairs of "
        f"one; {100 * asked['malformed']:g} % of answers unparseable",
        "over queries: the preference odds of all pairs together, which intervals are held against; "
        "recovered: their median; ± Monte Carlo error",
    ]
    for stratum in design["conditions"]:
        rows = [row for row in results["injected"] if row["condition"] == stratum]
        alarms = false_alarms(rows, results["level"], _consistent, NO_TEST)
        notes += [f"{stratum}: {alarms}", f"{stratum}: {_smallest(results['smallest'][stratum])}"]
        notes += undefined_notes(rows, results["runs"], f"{stratum}, ")
    notes += [f"{stratum}: no such pairs, left out" for stratum in design["without_pairs"]]
    if asked["weights"] == "pooled":
        notes.append("every pair weighs the same, not every query (--weights pooled)")
    return [*notes, *few_queries(min(one["queries"] for one in design["conditions"].values()))]


def _consistent(row: Row) -> str:
    return f"; {percent(row['consistent_share'])} of pairs do not flip"


def _smallest(smallest: Row) -> str:
    """The smallest detectable odds, either way."""
    told = f"smallest odds found with {100 * smallest['power']:g} % power"
    if not smallest["tested"]:
        return f"{told}: {NO_TEST}"
    sides = zip(("below", "above"), smallest["odds"], strict=True)
    odds = [f"none of those injected {side} parity" if one is None else f"{one:.3f}" for side, one in sides]
    if smallest["odds"] == [None, None]:
        return f"{told}: none of those injected; --injected takes more extreme ones"
    return f"{told}: {' or '.join(odds)} (between injected ones)"
