"""A pairwise audit in a table and sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from llmfair.audits.pairwise.results import PairFinding, PairwiseFacts, PairwiseResults
from llmfair.audits.runs.settled import settled_text
from llmfair.metrics.base import POOLED
from llmfair.report.decimals import bound_text
from llmfair.report.reasons import in_words
from llmfair.report.tables import (
    Table,
    audited,
    calls_of,
    cell,
    count,
    differs_text,
    drawn_note,
    few_queries,
    filled,
    found_with,
    held_note,
    on_disk,
    p_text,
    percent,
    plural,
    unparseable_text,
)
from llmfair.results import Band, Figure, Row, Words

Rows = Mapping[tuple[str, str, str], Row]
SHOWN_QUERIES = 5
LITTLE_MASS = 0.5


def pairwise_table(results: PairwiseResults) -> Table:
    """One row a stratum of pair: what the pairs came to, the odds with the position removed, the conclusion."""
    rows = _rows(results)
    low, high = results.band
    header = (
        "pairs",
        f"preference odds [{results.level * 100:g} %]",
        "protected",
        "unprotected",
        "flips (first / second)",
        *(["tied"] if _ties(results) else []),
        "unparseable",
        "WinRatio",
        f"conclusion ({low:g}–{high:g})",
    )
    said = {stratum: _conclusion(stratum, results, rows) for stratum in results.design.conditions}
    table = [(*_row(stratum, results, rows), said[stratum]) for stratum in results.design.conditions]
    return filled(
        Table(_title(results), header, tuple(table), tuple(_notes(results, rows)), said, sees=results.sees)
    )


def _rows(results: PairwiseResults) -> Rows:
    """The rows of all queries by measure, stratum and group; measures that pool pairs by their bare names."""
    pooled = POOLED if results.design.weights == "pooled" else ""
    return {
        (r.measure.removesuffix(pooled), r.condition, r.group): r
        for r in results.of_all()
        if (r.measure.endswith(pooled) or r.measure == "NoiseRate")
    }


def _ties(results: PairwiseResults) -> bool:
    return any(cells.T for cells in results.cells.values())


def _unformed(results: PairwiseResults) -> bool:
    """Whether answers that were to be held to a form have others."""
    return any(answers.unformed for answers in results.answers.values())


def _row(stratum: str, results: PairwiseResults, rows: Rows) -> tuple[str, ...]:
    shares = results.shares[stratum]

    def share(*names: str) -> str:
        return f"{100 * shares.of(*names):.1f} %" if shares else ""

    win_ratio = rows.get(("WinRatio", stratum, ""))
    return (
        stratum,
        cell(rows.get(("AdjustedOdds", stratum, "")), results.band),
        share("PP"),
        share("UU"),
        f"{share('FF', 'SS')} ({share('FF')} / {share('SS')})" if shares else "",
        *([share("T")] if _ties(results) else []),
        "forced" if results.design.constrained and not _unformed(results) else share("M1", "M2"),
        cell(None if win_ratio is None else replace(win_ratio, low=None, high=None)),
    )


def _conclusion(stratum: str, results: PairwiseResults, rows: Rows) -> str:
    """What a relevance stratum comes to, in words."""
    finding, chains = results.findings.get(stratum), results.chains[stratum]
    said = unparseable_text(stratum, results)
    if finding is not None and not said:
        row = rows.get(("AdjustedOdds", stratum, ""))
        said = pair_conclusion(finding, row, results.level, results.band, results.words)
    if chains.ranked < chains.asked:
        said = f"{chains.ranked:,} of {count(chains.asked, 'probe')}" + (f"; {said}" if said else "")
    return said


def pair_conclusion(finding: PairFinding, row: Figure | None, level: float, band: Band, words: Words) -> str:
    """Where the odds of a relevance stratum lie."""
    said = finding.conclusion.replace("_", " ")
    if finding.conclusion == "not_assessable":
        said += f": {in_words(finding.reason, finding.measure)}"
    elif finding.conclusion == "outside" and row is not None and row.value is not None:
        side = words.protected if row.value > 1 else words.unprotected
        said += f": {side} items are preferred"
    if finding.bound is not None:
        said += (
            f", odds {bound_text(*finding.bound.limits, band)} ({in_words(finding.reason, finding.measure)})"
        )
    differs = "" if row is None else differs_text(row.p_adjusted, row.low, row.high, level)
    if finding.conclusion in ("within", "inconclusive"):
        said += differs
    worst = finding.worst_case
    if worst and worst[0] < 0.5 < worst[1] and (finding.conclusion == "outside" or differs):
        said += ", if unparseable answers are like the others"
    return said


def _title(results: PairwiseResults) -> str:
    design = results.design
    asked = f"{count(design.pairs or 0, 'pair')} each"
    if design.sequential:
        asked = f"up to {count(design.max_pairs or 0, 'pair')} a stratum"
    parts = [
        "Pairwise",
        *audited(results),
        f"{design.queries} {plural(design.queries, 'query', 'queries')}, {asked}, both orders",
        f"{calls_of(results)} calls" if not design.sequential else "stopping when settled",
    ]
    return " · ".join([*parts, *([f"preset {design.preset}"] if design.preset else [])])


def _notes(results: PairwiseResults, rows: Rows) -> list[str]:
    design, notes = results.design, []
    if design.constrained:
        notes.append(held_note("the labels", results.answers.values()))
    for stratum in design.conditions:
        notes += _mass_note(stratum, results)
    notes += [*results.warnings, *few_queries(design.queries)]
    for stratum in design.conditions:
        notes += _stopping_note(stratum, results)
    for stratum in design.conditions:
        notes += _position_note(stratum, results, rows)
    notes += _test_note(results, rows)
    notes += found_with("odds of {:g}", results.findings.values(), "queries like these", "pairwise")
    if any(measure in ("WinRatio", "AdjustedOdds") for measure, _, _ in rows):
        notes.append(
            "WinRatio counts only pairs that do not flip (the paper's ratio: the square of the odds when answers are "
            "independent); preference odds (adjusted for position) take the position out of all parseable ones"
        )
    if design.weights == "pooled":
        notes.append("every pair weighs the same, not every query (--weights pooled)")
    for stratum in design.conditions:
        notes += _unparseable_note(stratum, results)
        notes += _dropped_note(stratum, design)
        notes += _grades_note(stratum, design)
    return [*notes, *drawn_note(design.drawn), *own_figures_note(results.undefined)]


def own_figures_note(undefined: Mapping[str, Mapping[str, Mapping[str, int]]]) -> list[str]:
    """Queries whose own figures are missing from per_query.csv; the figure of all counts their pairs."""
    reasons: dict[str, int] = {}
    for measure, strata in undefined.items():
        for found in strata.values():
            for reason, queries in found.items():
                said = in_words(reason, measure)
                reasons[said] = max(queries, reasons.get(said, 0))
    if not reasons:
        return []
    told = ", ".join(f"{reason} in up to {queries}" for reason, queries in reasons.items())
    return [
        f"no figure of their own in per_query.csv for some queries ({told}); those of all count their pairs"
    ]


def flips_text(stratum: str, results: PairwiseResults, rows: Rows | None = None) -> str:
    """How often answers follow the order, and which item that favours; nothing where no answer can be read."""
    shares, first = results.shares[stratum], (rows or _rows(results)).get(("FirstSlotRate", stratum, ""))
    if not shares or not first or first.value is None:
        return ""
    return (
        f"{100 * shares.of('FF', 'SS'):.0f} % of pairs flip with the order (the item shown first "
        f"wins {first.value * 100:.0f} % of answers)"
    )


def _position_note(stratum: str, results: PairwiseResults, rows: Rows) -> list[str]:
    """How much of the answers is position, how much noise."""
    flips = flips_text(stratum, results, rows)
    if not flips:
        return []
    text = f"{stratum}: {flips}"
    noise, balanced = rows.get(("NoiseRate", stratum, "")), rows.get(("BalancedRatio", stratum, ""))
    if noise and noise.value is not None:
        text += f"; test–retest disagreement {noise.value * 100:.0f} %"
    if balanced and balanced.value is not None:
        text += f"; BalancedRatio {balanced.value:.3f}"
    finding = results.findings.get(stratum)
    if finding is not None and finding.icc is not None:
        text += f"; icc {finding.icc:.2f}, design effect {finding.design_effect:.1f}"
    return [text]


def _test_note(results: PairwiseResults, rows: Rows) -> list[str]:
    told = [
        f"{stratum} {p_text(row.p_adjusted)} ({finding.test})"
        for stratum, finding in results.findings.items()
        if (row := rows.get(("AdjustedOdds", stratum, ""))) and row.p_adjusted is not None
    ]
    if not told:
        return []
    return [f"test of no preference (Holm over {results.family.size}), p: {', '.join(told)}"]


def _stopping_note(stratum: str, results: PairwiseResults) -> list[str]:
    """Where a sequential audit stopped, what it spared, and how sure its conclusion is."""
    stopped, finding = results.stopping.get(stratum), results.findings.get(stratum)
    if not stopped:
        return []
    aside = ""
    if finding is not None and finding.reason == "position_driven" and stopped.decision is None:
        aside = ": pairs that flip say nothing of it, and nearly all do"
    elif stopped.confidence:
        first, last = stopped.confidence
        level = f"{results.level * 100:g} %"
        aside = f" ({level} confidence sequence of BalancedRatio {first:.2f} … {last:.2f})"
    return [settled_text(stratum, stopped, results.band, results.level, "pair", aside)]


def _unparseable_note(stratum: str, results: PairwiseResults) -> list[str]:
    answers, finding = results.answers[stratum], results.findings.get(stratum)
    if not answers.problems:
        return []
    words = {} if results.design.prompted else OF_SCORES
    told = ", ".join(
        f"{words.get(name, name)} {n:,}" for name, n in answers.problems.items() if name != "tie"
    )
    text = f"{stratum}: unparseable answers {percent(answers.unparseable, answers.answers)}"
    text += f" ({told})" if told else ""
    if ties := answers.problems.get("tie"):
        text += f", tied ones {percent(ties, answers.answers)}"
    by_order = finding and finding.unparseable_by_order
    if by_order and by_order.first is not None and by_order.second is not None:
        text += f"; protected item first {by_order.first * 100:.1f} %, second {by_order.second * 100:.1f} %"
    if finding and finding.worst_case:
        low, high = finding.worst_case
        text += (
            f"; whatever they were, the protected group wins {low * 100:.1f}–{high * 100:.1f} % of answers"
        )
    return [text]


OF_SCORES = {
    "duplicate": "an item with two scores",
    "empty": "no score at all",
    "no_order": "an item without a score",
    "out_of_range": "a score of an item not shown",
}
"""Problems of answers that are scores, in words."""


def _mass_note(stratum: str, results: PairwiseResults) -> list[str]:
    """How much of the model's probability the labels hold, of answers read by log-probabilities."""
    mass = results.answers[stratum].mass
    if mass is None:
        return []
    text = f"{stratum}: both labels together hold {mass * 100:.0f} % of the first token's probability"
    if mass < LITTLE_MASS:
        text += ": this model does not answer in this form; compare with --answers text"
    return [text]


def _dropped_note(stratum: str, design: PairwiseFacts) -> list[str]:
    """Queries without pairs of a stratum, with fewer than asked, and pairs with nothing to choose."""
    notes, without = [], design.without_pairs.get(stratum, ())
    if without:
        named = ", ".join(without[:SHOWN_QUERIES]) + ", …" * (len(without) > SHOWN_QUERIES)
        matched = stratum in (design.grades or {}) and (design.grades or {})[stratum].matched
        said = f"{stratum}: {count(len(without), 'query', 'queries')} without such pairs ({named})"
        notes.append(said + "; --grades any asks pairs of unequal grade, too" * matched)
    if design.fewer_pairs.get(stratum, 0) and not design.sequential:
        notes.append(
            f"{stratum}: {count(design.fewer_pairs.get(stratum, 0), 'query', 'queries')} with fewer pairs than asked"
        )
    if design.passed_over.get(stratum, 0):
        notes.append(
            f"{stratum}: {count(design.passed_over.get(stratum, 0), 'pair')} of equal texts passed over"
        )
    return notes


def _grades_note(stratum: str, design: PairwiseFacts) -> list[str]:
    """Whether the items of a pair are equally relevant, where a stratum has several grades."""
    grades = (design.grades or {}).get(stratum)
    if grades is None:
        return []
    among = f"grades {grades.lowest} to {grades.highest}"
    if grades.matched:
        return [f"{stratum}: both items of a pair have the same relevance grade ({among})"]
    if not grades.difference:
        return [f"{stratum}: pairs are of any {among}, on average the same for both groups"]
    higher = "higher" if grades.difference > 0 else "lower"
    return [
        f"{stratum}: protected items are graded {abs(grades.difference):.2f} {higher} on average than those they are "
        f"asked against ({among}), which the odds do not take out; --grades match does"
    ]


def before_text(planned: Mapping[str, Any]) -> str:
    """Said before the first question."""
    design = planned["design"]
    most = "at most " if design.sequential else ""
    pairs = " and ".join(f"{n:,} {stratum}" for stratum, n in design.pairs_asked.items())
    twice = sum(design.probes.values()) - design.repeats * sum(design.pairs_asked.values())
    often = "" if design.repeats == 1 else f", {design.repeats} times each"
    again = f", {twice:,} of them once more" if twice > 0 else ""
    text = f"{most}{count(planned['calls'], 'call')}: {pairs} pairs in both orders{often}{again}"
    return text + on_disk(planned)
