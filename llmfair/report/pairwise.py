"""A pairwise audit in a table and sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmfair.report.findings import REASONS, p_text
from llmfair.report.tables import Table, cell, count, few_queries, percent, plural, reasons

Row = Mapping[str, Any]
Rows = Mapping[tuple[str, str, str], Row]
SHOWN_QUERIES = 5


def pairwise_table(results: Mapping[str, Any]) -> Table:
    """One row a kind of pair: what the pairs came to, the odds with the position removed, the conclusion."""
    pooled = "(agg=pooled)"  # said once, in a note
    rows = {
        (r["measure"].replace(pooled, ""), r["variant"], r["group"]): r
        for r in results["rows"]
        if r["query_id"] == "all"
    }
    low, high = results["band"]
    header = (
        "pairs",
        "protected",
        "unprotected",
        "flips (first / second)",
        "unreadable",
        f"position-adjusted odds [{results['level'] * 100:g} %]",
        "WinRatio",
        f"conclusion ({low:g}–{high:g})",
    )
    table = [_row(kind, results, rows) for kind in results["design"]["arms"]]
    return Table(_title(results), header, tuple(table), tuple(_notes(results, rows)))


def _row(kind: str, results: Mapping[str, Any], rows: Rows) -> tuple[str, ...]:
    cells = results["cells"][kind]
    total = sum(cells.values())

    def share(*names: str) -> str:
        return percent(sum(cells[name] for name in names), total) if total else ""

    win_ratio = rows.get(("WinRatio", kind, ""))
    return (
        kind,
        share("PP"),
        share("UU"),
        f"{share('FF', 'SS')} ({share('FF')} / {share('SS')})" if total else "",
        share("M1", "M2"),
        cell(rows.get(("AdjustedOdds", kind, ""))),
        cell(None if win_ratio is None else {**win_ratio, "low": None, "high": None}),
        _conclusion(kind, results, rows),
    )


def _conclusion(kind: str, results: Mapping[str, Any], rows: Rows) -> str:
    """What a kind of pairs comes to, in words."""
    finding, chains = results["findings"].get(kind), results["chains"][kind]
    said = ""
    if finding is not None:
        row = rows.get(("AdjustedOdds", kind, ""), {})
        said = finding["conclusion"].replace("_", " ")
        if finding["conclusion"] == "not_assessable":
            said += f": {PROBLEMS.get(finding['reason'], finding['reason'])}"
        elif finding["conclusion"] == "outside":
            side = results["words"]["protected" if row["value"] > 1 else "unprotected"]
            said += f": {side} items are preferred"
        p = row.get("p_adjusted")
        if finding["conclusion"] in ("within", "inconclusive") and p is not None and p < 1 - results["level"]:
            said += f"; differs from parity, p {p_text(p)}"
    if chains["ranked"] < chains["asked"]:
        said = f"{chains['ranked']:,} of {count(chains['asked'], 'pair')}" + (f"; {said}" if said else "")
    return said


PROBLEMS = {
    **REASONS,
    "position_driven": "the answers follow the position",
    "too_few_consistent_pairs": "too few pairs that do not flip",
    "no_valid_answer": "no readable answer",
    "no_pairs": "no pairs",
}


def _title(results: Mapping[str, Any]) -> str:
    design = results["design"]
    asked = f"{count(design['pairs'], 'pair')} each"
    if design["sequential"]:
        asked = f"up to {count(design['max_pairs'], 'pair')} a kind"
    parts = [
        "Pairwise",
        results["dataset"],
        f"{results['attribute']} (protected: {results['words']['protected']})",
        results["model"] + (", a simulated model" if results["model"].startswith("fake:") else ""),
        f"{design['queries']} {plural(design['queries'], 'query', 'queries')}, {asked}, both orders",
        f"{design['calls']:,} calls" if not design["sequential"] else "stopping when settled",
    ]
    return " · ".join([*parts, *([f"preset {design['preset']}"] if design["preset"] else [])])


def _notes(results: Mapping[str, Any], rows: Rows) -> list[str]:
    design, notes = results["design"], []
    for kind in design["arms"]:
        notes += _stopping_note(kind, results)
        notes += _position_note(kind, results, rows)
    notes.append(
        "WinRatio counts only pairs that do not flip (the paper's ratio: the square of the odds when answers are "
        "independent); position-adjusted odds take the position out of all readable ones"
    )
    if design["weights"] == "pooled":
        notes.append("every pair weighs the same, not every query (--weights pooled)")
    notes += _test_note(results, rows)
    for kind in design["arms"]:
        notes += _unreadable_note(kind, results)
        notes += _dropped_note(kind, design)
    for measure, variants in results["undefined"].items():
        if measure in results["shown"]:
            notes += [
                f"{measure}, {kind}: single queries undefined: {reasons(found)}"
                for kind, found in variants.items()
            ]
    return [*notes, *few_queries(design["queries"])]


def _position_note(kind: str, results: Mapping[str, Any], rows: Rows) -> list[str]:
    """How much of the answers is position, how much noise."""
    flips, first = (rows.get((name, kind, "")) for name in ("FlipRate", "FirstSlotRate"))
    if not flips or not first or flips["value"] is None or first["value"] is None:
        return []
    text = (
        f"{kind}: {flips['value'] * 100:.0f} % of pairs flip with the order (first shown wins "
        f"{first['value'] * 100:.0f} %)"
    )
    noise, balanced = rows.get(("NoiseRate", kind, "")), rows.get(("BalancedRatio", kind, ""))
    if noise and noise["value"] is not None:
        text += f"; asked twice, {noise['value'] * 100:.0f} % of answers change"
    if balanced and balanced["value"] is not None:
        text += f"; BalancedRatio {balanced['value']:.3f}"
    finding = results["findings"].get(kind, {})
    if finding.get("icc") is not None:
        text += f"; icc {finding['icc']:.2f}, design effect {finding['design_effect']:.1f}"
    return [text]


def _test_note(results: Mapping[str, Any], rows: Rows) -> list[str]:
    told = [
        f"{kind} {p_text(row['p_adjusted'])} ({finding['test']})"
        for kind, finding in results["findings"].items()
        if (row := rows.get(("AdjustedOdds", kind, ""))) and row["p_adjusted"] is not None
    ]
    if not told:
        return []
    return [f"p of no preference, Holm over {results['family']['size']}: {', '.join(told)}"]


def _stopping_note(kind: str, results: Mapping[str, Any]) -> list[str]:
    """Where a sequential audit stopped, what it spared, and what its verdict speaks of."""
    stopped = results["stopping"].get(kind)
    if not stopped:
        return []
    low, high = results["band"]
    settled = {
        "above": f"the balanced ratio is above {high:g}",
        "below": f"the balanced ratio is below {low:g}",
        "inside": f"the balanced ratio is within {low:g}–{high:g}",
        None: "nothing is settled",
    }[stopped["decision"]]
    text = f"{kind}: after {count(stopped['pairs'], 'pair')} {settled}, on this benchmark"
    if stopped["confidence"]:
        text += f" (confidence sequence {stopped['confidence'][0]:.2f} … {stopped['confidence'][1]:.2f})"
    return [
        f"{text}; {stopped['saved'] * 100:.0f} % of the calls for {stopped['cap']:,} pairs saved; the interval in the "
        "table is not adjusted for stopping"
    ]


def _unreadable_note(kind: str, results: Mapping[str, Any]) -> list[str]:
    answers, finding = results["answers"][kind], results["findings"].get(kind, {})
    if not answers["unreadable"]:
        return []
    told = ", ".join(f"{name} {n:,}" for name, n in answers["problems"].items())
    text = f"{kind}: unreadable answers {percent(answers['unreadable'], answers['answers'])} ({told})"
    if finding.get("worst_case"):
        low, high = finding["worst_case"]
        text += f"; whatever they were, the protected side wins {low * 100:.1f}–{high * 100:.1f} % of answers"
    return [text]


def _dropped_note(kind: str, design: Mapping[str, Any]) -> list[str]:
    """Queries without pairs of a kind, with fewer than asked, and pairs with nothing to choose."""
    notes, without = [], design["without_pairs"][kind]
    if without:
        named = ", ".join(without[:SHOWN_QUERIES]) + ", …" * (len(without) > SHOWN_QUERIES)
        notes.append(f"{kind}: {count(len(without), 'query', 'queries')} without such pairs ({named})")
    if design["fewer_pairs"][kind] and not design["sequential"]:
        notes.append(
            f"{kind}: {count(design['fewer_pairs'][kind], 'query', 'queries')} with fewer pairs than asked"
        )
    if design["passed_over"][kind]:
        notes.append(f"{kind}: {count(design['passed_over'][kind], 'pair')} of equal texts passed over")
    return notes


def before_text(planned: Mapping[str, Any]) -> str:
    """Said before the first question."""
    design = planned["design"]
    most = "at most " if design["sequential"] else ""
    probes = ", ".join(f"{n:,} {kind}" for kind, n in design["probes"].items())
    return f"{most}{count(planned['calls'], 'call')}: {probes} pairs, each in both orders"
