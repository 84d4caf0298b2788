"""A pairwise calibration in a table and sentences: what simulated audits of planted odds found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmfair.audits.listwise.calibrate_table import percent, share
from llmfair.report.tables import Table, count, few_queries, tsv

Row = Mapping[str, Any]
TSV = (
    "kind", "planted", "planted_odds", "marginal_odds", "odds", "log_odds", "log_odds_error", "consistent_share",
    "covered", "covered_error", "covered_n", "rejected", "rejected_error", "rejected_n", "within", "outside",
    "inconclusive", "not_assessable",
)  # fmt: skip
NO_TEST = "too few queries or items for a test"


def calibrate_pairs_table(results: Mapping[str, Any]) -> Table:
    """One row a kind and planted preference: what was recovered, how intervals and tests did, what was concluded."""
    level, (low, high) = results["level"], results["band"]
    header = (
        "pairs",
        "planted odds",
        "over queries",
        "recovered",
        f"{100 * level:g} % intervals: odds held",
        f"p < {1 - level:.3g}",
        "within",
        f"outside {low:g}–{high:g}",
        "inconclusive",
        "not assessable",
    )
    rows = tuple(
        (
            row["kind"],
            f"{row['planted_odds']:.3f} (ln {row['planted']:+g})" if row["planted"] else "1 (no preference)",
            f"{row['marginal_odds']:.3f}",
            "none" if row["odds"] is None else f"{row['odds']:.3f}",
            share(row, "covered"),
            share(row, "rejected"),
            *(percent(row[end]) for end in ("within", "outside", "inconclusive", "not_assessable")),
        )
        for row in results["planted"]
    )
    return Table(_title(results), header, rows, tuple(_notes(results)))


def calibrate_pairs_tsv(results: Mapping[str, Any]) -> str:
    """The figures for programs: one kind and planted preference a line, undefined ones empty."""
    return tsv(TSV, results["planted"])


def _title(results: Mapping[str, Any]) -> str:
    pairs = ", ".join(f"{one['pairs']:,} {kind}" for kind, one in results["design"]["kinds"].items())
    return " · ".join(
        [
            "Calibrate pairwise",
            results["dataset"],
            f"{results['attribute']} (protected: {results['words']['protected']})",
            f"{count(results['design']['queries'], 'query', 'queries')}, {pairs} pairs, both orders",
            f"{results['runs']:,} simulated audits a row",
            f"seed {results['seed']}",
            "no model asked",
        ]
    )


def _notes(results: Mapping[str, Any]) -> list[str]:
    asked, design = results["settings"], results["design"]
    notes = [
        f"planted: log odds of the protected item in the typical query, beside {asked['position']:+g} for the item "
        f"shown first; standard deviation {asked['query_sd']:g} over queries, {100 * asked['malformed']:g} % of "
        "answers unreadable",
        "over queries: the position-adjusted odds of all queries together, which intervals are held against; "
        "recovered: their median; ± Monte Carlo error",
    ]
    for kind in design["kinds"]:
        rows = [row for row in results["planted"] if row["kind"] == kind]
        none = next(row for row in rows if not row["planted"])
        notes += [
            f"{kind}: {_false_alarms(none, results)}",
            f"{kind}: {_smallest(results['smallest'][kind])}",
        ]
        for row in rows:
            if row["undefined"]:
                why = ", ".join(f"{reason} in {n:,}" for reason, n in row["undefined"].items())
                notes.append(f"{kind}, planted {row['planted']:+g}: {why} of {results['runs']:,} audits")
    notes += [f"{kind}: no such pairs, left out" for kind in design["without_pairs"]]
    if asked["weights"] == "pooled":
        notes.append("every pair weighs the same, not every query (--weights pooled)")
    return [*notes, *few_queries(min(one["queries"] for one in design["kinds"].values()))]


def _false_alarms(none: Row, results: Mapping[str, Any]) -> str:
    if none["rejected"] is None:
        return f"false alarms: {NO_TEST}"
    consistent = f"; {percent(none['consistent_share'])} of pairs do not flip"
    return (
        f"false alarms: {share(none, 'rejected')} of {none['rejected_n']:,} audits without preference have "
        f"p < {1 - results['level']:.3g}{consistent}"
    )


def _smallest(smallest: Row) -> str:
    """The smallest detectable odds, either way."""
    told = f"smallest odds found with {100 * smallest['power']:g} % power"
    if not smallest["tested"]:
        return f"{told}: {NO_TEST}"
    sides = zip(("below", "above"), smallest["odds"], strict=True)
    odds = [f"none of those planted {side} parity" if one is None else f"{one:.3f}" for side, one in sides]
    if smallest["odds"] == [None, None]:
        return f"{told}: none of those planted; --planted takes more extreme ones"
    return f"{told}: {' or '.join(odds)} (between planted ones)"
