"""A pairwise audit in a table and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import asdict, replace

from llmfair.audits.pairwise.outcome import read_verdicts
from llmfair.audits.pairwise.results import PairFinding, PairwiseFacts, PairwiseResults
from llmfair.audits.runs.stopping import settled_text
from llmfair.audits.verdict import Case, VerdictWords
from llmfair.metrics.base import POOLED, plain_name
from llmfair.nouns import PairAnswer, PairOutcome, PairVerdict
from llmfair.report.exhibits import Declared, Exhibits
from llmfair.report.figures import headline_plots, on_log, ratio_of, value_of
from llmfair.report.groups import (
    AuditedRun,
    Furthest,
    FurthestQuery,
    Group,
    Values,
    figures_text,
    furthest_from_parity,
    named,
)
from llmfair.report.plots.base import Plot
from llmfair.report.plots.ratios import position_bias, ratios, stacked_answers
from llmfair.report.section import (
    SHOWN_VERDICTS,
    Section,
    VerdictCard,
    condition_verdicts,
    queries_of,
)
from llmfair.report.tables import (
    Record,
    Table,
    audited_note,
    bound_text,
    calibration_table,
    calls_line,
    calls_of,
    cell,
    count,
    differs_text,
    drawn_note,
    false_alarms,
    few_queries,
    filled,
    folder_lines,
    found_with,
    held,
    held_note,
    in_words,
    injected,
    interval_text,
    numbers,
    on_disk,
    outward,
    p_text,
    percent,
    percent_of,
    planned_note,
    plural,
    queries_lines,
    share,
    share_with_error,
    time_line,
    told,
    undefined_notes,
    unparseable_text,
)
from llmfair.results import Band, Figure, Row, Words
from llmfair.stats.power import FEWEST_TESTED

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
        *audited_note(results),
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


# The verdict of a pairwise audit: whose items lose pairs, and how many.


class PairWords(VerdictWords):
    """In pairs won for every hundred that the other group wins, with the position taken out."""

    def __init__(self) -> None:
        super().__init__("pairs")
        self.of = self.of_several = "of {} pairs"

    def disparity(self, case: Case) -> str:
        figure, groups = case.figure, case.groups
        if figure is None or groups is None:
            return super().disparity(case)
        behind, ahead = groups
        edge = figure.high if case.protected_behind else figure.low
        if figure.value is None or figure.low is None or figure.high is None:
            if not edge:
                return super().disparity(case)
            most = outward(100 * (edge if case.protected_behind else 1 / edge), True, (100,))
            why = in_words(case.finding.reason, case.finding.measure)
            return (
                f"{self.where(case)}{behind} items win at most {most} times for every 100 wins of equally relevant "
                f"{ahead} ones ({case.queries}; a bound alone, since {why}); "
                f"{case.measured}, outside {case.band}"
            )
        ends = [figure.value, figure.low, figure.high]
        if not case.protected_behind:
            ends = [1 / figure.value, 1 / figure.high, 1 / figure.low]
        won, low, high = _in_a_hundred(*ends)
        return (
            f"{self.where(case)}{behind} items win {won} times for every 100 wins of equally relevant {ahead} ones "
            f"({case.found.level * 100:g} % CI {low} to {high}, {case.counted}); {case.measured}, outside {case.band}"
        )

    def parity(self, case: Case) -> str:
        found = case.found
        kappa = found.figures.get(("Kappa", case.condition)) or found.figures.get(
            (f"Kappa{POOLED}", case.condition)
        )
        agree = (
            ""
            if kappa is None or kappa.value is None
            else f"; both orders agree with kappa {interval_text(kappa, (0.0,))}"
        )
        return super().parity(case) + agree

    def look(self, case: Case) -> str:
        return f"llmfair runs show {case.run} --furthest{case.mitigation}"


def _in_a_hundred(*odds: float) -> list[str]:
    return numbers([100 * one for one in odds], (100,), 0)


# A planned pairwise audit in words, before anything is asked: what it takes and what it can find.


Found = Mapping[str, Any]
HEADER = (
    "pairs",
    "queries",
    "pairs a query",
    "smallest odds found",
    "power for",
    "pairs needed",
    "queries needed",
)
UNKNOWN = {
    "sequential": "--sequential asks until each stratum is settled, so what it finds is not planned; leave it out to "
    "see what a fixed number of pairs finds",
    "no_pairs": "no pairs: nothing can be found",
}


def plan_pairs_text(planned: Mapping[str, Any]) -> str:
    """What a dry run says."""
    return told(_design(planned), _lines(planned))


def plan_pairs_table(planned: Mapping[str, Any]) -> Table:
    """The odds that each relevance stratum can find, with everything else below them."""
    findable = planned["findable"]
    ratio = next(iter(findable.values()))["ratio"]
    header = tuple(f"{name} {ratio:g}" if name == "power for" else name for name in HEADER)
    rows = [_plan_row(stratum, found) for stratum, found in findable.items()]
    kept = [place for place in range(len(header)) if any(row[place] for row in rows)]
    header, *rows = (tuple(row[place] for place in kept) for row in (header, *rows))
    return Table(_design(planned), header, tuple(rows), (*_lines(planned), "Nothing was asked."))


def _plan_row(stratum: str, found: Found) -> tuple[str, ...]:
    known, nothing = found["power"] is not None, found["reason"] in UNKNOWN
    no = "" if nothing else "no test"
    return (
        stratum,
        f"{found['queries']:,}",
        "" if found["reason"] == "sequential" else _number(found["pairs"]),
        _odds(found["smallest"]) if known else no,
        share(found["power"]) if known else no,
        _needed(found["pairs_needed"], "not with these queries") if known else no,
        "" if nothing else _needed(found["queries_needed"], "beyond any number"),
    )


def _design(planned: Mapping[str, Any]) -> str:
    """Queries × pairs × strata × orders = calls, where every query has all its pairs."""
    strata = len(planned["conditions"])
    asked = planned["calls"] - planned["noise_calls"]
    factors = [count(planned["queries"], "query", "queries"), count(planned["pairs"] or 0, "pair")]
    whole = 2 * planned["queries"] * (planned["pairs"] or 0) * strata * planned["repeats"] * planned["models"]
    if planned["sequential"]:
        factors = [f"up to {count(planned['max_pairs'], 'pair')}"]
    factors += [count(strata, "stratum", "strata"), "2 orders"]
    if planned["repeats"] > 1 and not planned["sequential"]:
        factors.append(f"{planned['repeats']} times")
    if planned["models"] > 1:
        factors.append(f"{planned['models']} models")
    product = " × ".join(factors)
    if planned["sequential"]:
        return f"{product}: at most {count(asked, 'call')}"
    told = f"{product} = {count(asked, 'call')}"
    if asked != whole:
        told = f"{product}, less what queries lack: {count(asked, 'call')}"
    noise = planned["noise_calls"]
    return f"{told} + {noise:,} ({100 * noise / asked:.3g} % of pairs asked twice)" if noise else told


def _lines(planned: Mapping[str, Any]) -> list[str]:
    return [
        *filter(None, [planned["sees"]]),
        *planned_note(planned["design"]),
        *queries_lines(planned),
        calls_line(planned),
        time_line(planned),
        *_pairs_lines(planned),
        *_findable_lines(planned),
        *folder_lines(planned),
        *planned["unready"],
    ]


def _pairs_lines(planned: Mapping[str, Any]) -> list[str]:
    """Queries without pairs of a stratum, or with fewer than asked for."""
    design, lines = planned["design"], []
    for stratum in planned["conditions"]:
        if without := len(design["without_pairs"][stratum]):
            lines.append(f"{stratum}: {count(without, 'query', 'queries')} without such pairs")
        if (fewer := design["fewer_pairs"][stratum]) and not planned["sequential"]:
            lines.append(f"{stratum}: {count(fewer, 'query', 'queries')} with fewer pairs than asked")
    return lines


def _findable_lines(planned: Mapping[str, Any]) -> list[str]:
    """What each relevance stratum finds; said once where it is the same for all."""
    if "findable" not in planned:
        return ["what it can find, and its cost: llmfair plan pairwise, with the same flags"]
    same: dict[tuple[str, ...], list[str]] = {}
    for stratum, found in planned["findable"].items():
        same.setdefault(tuple(_sentences(found)), []).append(stratum)
    lines = [
        (f"{', '.join(strata)}: " if len(same) > 1 else "") + sentence
        for sentences, strata in same.items()
        for sentence in sentences
    ]
    recurring = [
        stratum
        for stratum, found in planned["findable"].items()
        if found["items_recur"] and found["reason"] not in UNKNOWN
    ]
    if recurring:
        lines.append(
            f"{', '.join(recurring)}: items stand in pairs of several queries, so intervals will be wider than planned"
        )
    few = max(found["queries"] for found in planned["findable"].values())
    return [*lines, *(few_queries(few) if few >= FEWEST_TESTED else [])]


def _sentences(found: Found) -> list[str]:
    if found["reason"] in UNKNOWN:
        return [UNKNOWN[found["reason"]]]
    percent = f"{100 * found['target']:g} % power"
    consistent = f"a share of {found['consistent']:g} of the pairs consistent"
    expected = f"p < {1 - found['level']:.3g}, icc {found['icc']:g}, {consistent}"
    queries, odds = found["queries_needed"], f"odds of {found['ratio']:g}"
    needs = "are beyond any number of queries" if queries is None else f"need about {queries:,} queries"
    needs += f" of {_number(found['pairs'])} {plural(found['pairs'], 'pair')}"
    if found["reason"] == "too_few_queries":
        few = f"{count(found['queries'], 'query', 'queries')}: no test at all, which needs {FEWEST_TESTED}"
        return [few, f"with {percent}, preference {odds} {needs} ({expected})"]
    return [
        f"{_smallest(found, percent)} ({expected})",
        f"{odds}: power {share(found['power'])}; with {percent} they {needs}{_or_pairs(found)}",
        *_more_pairs(found),
    ]


def _smallest(found: Found, percent: str) -> str:
    if found["smallest"] is None:
        return f"no preference odds are found with {percent}, however extreme"
    below = found["smallest"]
    return f"smallest preference odds found with {percent}: {below:.3f} or {1 / below:.3f}"


def _or_pairs(found: Found) -> str:
    """The other way to find the odds: more pairs (or fewer) of the queries there are."""
    if found["pairs_needed"] is None:
        return ""
    return f", or {count(found['pairs_needed'], 'pair')} of each of these {found['queries']:,}"


def _more_pairs(found: Found) -> list[str]:
    """Plainly, that pairs of the same queries cannot make up for queries."""
    if found["pairs_needed"] is not None:
        return []
    every, smallest = _number(found["all_pairs"]), found["smallest_with_all"]
    detect = "find no odds" if smallest is None else f"find {smallest:.3f}"
    return [f"more pairs alone are not enough: all {every} a query {detect}"]


def _odds(odds: float | None) -> str:
    return "none" if odds is None else f"{odds:.3f}"


def _needed(number: int | None, never: str) -> str:
    return never if number is None else f"{number:,}"


def _number(pairs: float) -> str:
    """Pairs a query, which on average need not be whole."""
    return f"{pairs:,.1f}".removesuffix(".0")


# A pairwise calibration in a table and sentences: what simulated audits of injected odds found.


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
        held(results): lambda row: share_with_error(row, "covered"),
    }
    size = f"{count(queries, 'query', 'queries')}, {pairs} pairs, both orders"
    return calibration_table(results, size, columns, _calibration_notes(results))


def _calibration_notes(results: Mapping[str, Any]) -> list[str]:
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
        notes += [f"{stratum}: {alarms}", f"{stratum}: {_smallest_odds(results['smallest'][stratum])}"]
        notes += undefined_notes(rows, results["runs"], f"{stratum}, ")
    notes += [f"{stratum}: no such pairs, left out" for stratum in design["without_pairs"]]
    if asked["weights"] == "pooled":
        notes.append("every pair weighs the same, not every query (--weights pooled)")
    return [*notes, *few_queries(min(one["queries"] for one in design["conditions"].values()))]


def _consistent(row: Record) -> str:
    return f"; {percent_of(row['consistent_share'])} of pairs do not flip"


def _smallest_odds(smallest: Record) -> str:
    """The smallest detectable odds, either way."""
    told = f"smallest odds found with {100 * smallest['power']:g} % power"
    if not smallest["tested"]:
        return f"{told}: {NO_TEST}"
    sides = zip(("below", "above"), smallest["odds"], strict=True)
    odds = [f"none of those injected {side} parity" if one is None else f"{one:.3f}" for side, one in sides]
    if smallest["odds"] == [None, None]:
        return f"{told}: none of those injected; --injected takes more extreme ones"
    return f"{told}: {' or '.join(odds)} (between injected ones)"


# The figures of pairwise audits, of one and of several side by side.


def pairwise_plots(results: PairwiseResults, declared: Declared) -> Iterator[Plot]:
    """Answers on pairs, every ratio against parity, position bias."""
    cells, strata = results.by_condition(), results.design.conditions
    answered = [(stratum, asdict(shares)) for stratum in strata if (shares := results.shares.get(stratum))]
    if answered:
        yield stacked_answers(answered, asdict(results.words))
    yield from headline_plots(results, strata, declared, {})
    first = [
        (stratum, value)
        for stratum in strata
        for (measure, condition), row in cells.items()
        if measure in declared
        and declared[measure].shows == "position bias"
        and condition == stratum
        and (value := value_of(row))
    ]
    if first:
        yield position_bias(first)
    headlines = {finding.measure for finding in results.findings.values()}
    others = [
        (f"{plain_name(measure)}\n{stratum}" if len(strata) > 1 else plain_name(measure), None, value)
        for measure in results.measures
        if measure not in headlines and measure in declared and declared[measure].better == "parity"
        for stratum in strata
        if (value := on_log(value_of(cells.get((measure, stratum)))))
    ]
    if others:
        yield ratios(others, "ratio", None, "Other ratios of the same answers", "other-ratios")


def group_plots(group: Group, number: int) -> Iterator[Plot]:
    """Answers of every model on every relevance stratum."""
    answered = [
        (f"{name}\n{audited.results.attribute}: {stratum}", asdict(shares))
        for name, runs in group.drawn.items()
        for audited in runs.values()
        for stratum, shares in _found(audited).shares.items()
        if shares
    ]
    if answered:
        words = asdict(group.audits()[0].results.words) if len({a for a, _ in group.columns}) == 1 else {}
        yield stacked_answers(answered, words, f"answers-{number}")


def _found(audited: AuditedRun) -> PairwiseResults:
    assert isinstance(audited.results, PairwiseResults)
    return audited.results


# Queries whose pairs are far from parity, with both answers on each pair.


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


# What the report of a pairwise audit has of its own.


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
