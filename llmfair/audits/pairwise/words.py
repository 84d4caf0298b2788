"""A pairwise audit in tables, sentences and plots: of a run, of a plan, of a calibration."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import fsum
from pathlib import Path
from typing import Any

from msgspec import convert
from msgspec.structs import asdict, replace

from llmfair.audits.documents import ComparisonRun
from llmfair.audits.label_error import odds_text
from llmfair.audits.lists import NOT_JUDGED, UNJUDGED_TEXT
from llmfair.audits.pairwise.design import UNJUDGED, PairwiseFindable, Prospect
from llmfair.audits.pairwise.measure import how_ended
from llmfair.audits.pairwise.results import PairFinding, PairwiseFacts, PairwiseResults, read_verdicts
from llmfair.audits.runs.stopping import settled_text
from llmfair.io.text import count, p_text
from llmfair.metrics.base import POOLED
from llmfair.metrics.names import in_words
from llmfair.nouns import Cell, Conclusion, Key, PairOutcome, PairVerdict, by_query
from llmfair.report import groups, phrases, plan
from llmfair.report.figures import headline_plots, ratio_of
from llmfair.report.groups import Furthest, FurthestQuery, Section, Values
from llmfair.report.phrases import few_queries, percent
from llmfair.report.plan import Record, spread
from llmfair.report.plots import stacked_answers
from llmfair.report.table import Column, Table
from llmfair.report.verdict import Case, VerdictWords
from llmfair.report.words import Wording
from llmfair.results import MOST_CONTRASTS, Band, Exhibits, Figure, Row, Words
from llmfair.stats.intervals import FEWEST_QUERIES

Rows = Mapping[tuple[str, str], Row]
"""Rows of all queries by measure and key; measures that pool pairs by their bare names."""
METHOD = (
    "The model is shown one protected and one unprotected item of a query, of one grade of relevance where any was "
    "given, and asked which is the more relevant; then the same two in the other order. An answer that changes with "
    "the order is a flip.",
    "With p₁ and p₂ the shares of answers that the protected item wins when shown first and second, the "
    "preference odds (adjusted for position) are exp((logit p₁ + logit p₂) / 2): 1 at parity, with the pull of the "
    "position taken out.",
    "Of the pairs answered alike in both orders, PP went to the protected item and UU to the other; FF and SS"
    " are flips to the item shown first and second. WinRatio is PP / UU, as in the paper.",
    "Each query is one unit, and items that recur in several pairs are taken into account. p is adjusted "
    "(Holm) over the relevance strata.",
)
OF_CONTRASTS = (
    "A contrast A:B asks one item of A and one of B: where protected is said, read A, and B for the other. "
    "p is adjusted over strata and contrasts together."
)
OF_PAIRS = "every pair weighs the same, not every query (--weights pooled)"
LITTLE_MASS = 0.5
FLIPS = Cell.FF, Cell.SS
"""To the item shown first, and second."""


def pairwise_table(results: PairwiseResults) -> Table:
    """One row a stratum and contrast: what the pairs came to, the odds without the position, the conclusion."""
    rows, design, (low, high) = _rows(results), results.design, results.band
    conclusions: dict[str, str] = {}
    for key in told(results):
        finding, chains = results.findings.get(key), results.chains[key]
        conclusion = phrases.unparseable_text(key, results)
        if finding is not None and not conclusion:
            row = rows.get(("AdjustedOdds", key))
            conclusion = pair_conclusion(finding, row, results.band, results.words)
        part = f"{chains.ranked:,} of {count(chains.asked, 'probe')}" * (chains.ranked < chains.asked)
        conclusions[key] = "; ".join(filter(None, (part, conclusion)))
    forced = design.constrained and not any(counts.unformed for counts in results.answers.values())
    ties = any(cells[Cell.T] for cells in results.cells.values())

    def of(*cells: Cell) -> Callable[[str], str]:
        return lambda key: (
            f"{100 * fsum(map(shares.__getitem__, cells)):.1f} %" if (shares := results.shares[key]) else ""
        )

    def flips(key: str) -> str:
        each = [of(*cells)(key) for cells in (FLIPS, FLIPS[:1], FLIPS[1:])]
        return "{} ({} / {})".format(*each) * bool(results.shares[key])

    first, second = ("first group", "second group") if design.contrasts else ("protected", "unprotected")
    columns: list[Column[str]] = [
        ("pairs", str),
        (f"preference odds [{results.level * 100:g} %]", lambda key: rows.get(("AdjustedOdds", key))),
        (first, of(Cell.PP)),
        (second, of(Cell.UU)),
        ("flips (first / second)", flips),
        ("tied", of(Cell.T) if ties else lambda key: ""),
        ("unparseable", (lambda key: "forced") if forced else of(Cell.M1, Cell.M2)),
        ("WinRatio", lambda key: (row := rows.get(("WinRatio", key))) and replace(row, low=None, high=None)),
        (f"conclusion ({low:g}–{high:g})", conclusions.get),
    ]
    asked = f"{count(design.pairs or 0, 'pair')} {'a contrast' if design.contrasts else 'each'}"
    calls = f"{phrases.calls_of(results)} calls"
    if design.sequential:
        asked, calls = f"up to {count(design.max_pairs or 0, 'pair')} a stratum", "stopping when settled"
    size = f"{count(design.queries, 'query', 'queries')}, {asked}, both orders"
    preset = f"preset {design.preset}" * bool(design.preset)
    title = ["Pairwise", *phrases.audited_note(results), size, calls, preset]
    notes = _notes(results, rows)
    return Table.of(title, columns, [*conclusions], notes, results.band, said=conclusions, sees=results.sees)


def told(results: PairwiseResults) -> list[Key]:
    """The strata and contrasts that have a row: all of them, or of many those outside the band, else the first."""
    keys, findings = results.design.keys, results.findings
    if len(results.design.contrasts) <= MOST_CONTRASTS:
        return keys
    outside = [key for key in keys if key in findings and findings[key].conclusion == "outside"]
    return outside or keys[:MOST_CONTRASTS]


def _rows(results: PairwiseResults) -> Rows:
    pooled = POOLED * (results.design.weights == "pooled")
    return {
        (measure.removesuffix(pooled), key): row
        for (measure, key), row in results.by_key().items()
        if measure.endswith(pooled) or measure == "NoiseRate"
    }


def pair_conclusion(finding: PairFinding, row: Figure | None, band: Band, words: Words) -> str:
    """Where the odds of a relevance stratum and contrast lie."""
    if isinstance(row, Row) and not words.protected:
        first, second = row.key({row.contrast}).groups
        words = Words(first, "other" if second == "others" else second)
    text, why = finding.conclusion.replace("_", " "), in_words(finding.reason, finding.measure)
    if finding.reason is not None and finding.bound is None:
        text += f": {why}"
    elif finding.conclusion == "outside" and row is not None and row.value is not None:
        text += f": {words.protected if row.value > 1 else words.unprotected} items are preferred"
    if finding.bound is not None:
        text += f", odds {phrases.bound_text(*finding.bound.limits, band)} ({why})"
    return text


def _notes(results: PairwiseResults, rows: Rows) -> Iterator[str]:
    """What has to be known to read the table, the weightiest first."""
    design, strata, findings = results.design, told(results), results.findings
    by_stratum = [] if design.contrasts else strata
    if others := len(design.keys) - len(strata):
        yield f"{count(others, 'more contrast')} of strata, none outside the band: metrics.csv has them"
    yield from [NOT_JUDGED] * (UNJUDGED in design.strata)
    yield from phrases.passed_over("the labels", results.answers.values())
    for stratum in strata:
        if (mass := results.answers[stratum].mass) is not None:
            yield (
                f"{stratum}: both labels together hold {mass * 100:.0f} % of the first token's probability"
                + ": this model does not answer in this form; compare with --answers text"
                * (mass < LITTLE_MASS)
            )
    if design.label_error is not None and design.odds_of_label_error is not None:
        odds = ", ".join(f"{value:.3f} of {stratum}" for stratum, value in design.odds_of_label_error.items())
        yield odds_text(design.label_error, f"{odds} pairs (one that puts every more relevant item ahead)")
    yield from results.warnings
    yield from few_queries(design.queries)
    for stratum in strata:
        if (stopped := results.stopping.get(stratum)) is not None:
            aside = ""
            if stopped.confidence:
                first, last = stopped.confidence
                level = f"{results.level * 100:g} %"
                aside = f" ({level} confidence sequence of BalancedRatio {first:.2f} … {last:.2f})"
            yield settled_text(stratum, stopped, results.band, "pair", aside)
    for stratum in by_stratum:  # how much of the answers is position, how much noise, where any can be read
        shares, finding = results.shares[stratum], findings.get(stratum)
        first_slot, noise, balanced = (
            row.value if (row := rows.get((name, stratum))) else None
            for name in ("FirstSlotRate", "NoiseRate", "BalancedRatio")
        )
        if not shares or first_slot is None:
            continue
        flips = 100 * fsum(map(shares.__getitem__, FLIPS))
        text = (
            f"{stratum}: {flips:.0f} % of pairs flip with the order (the item shown first wins "
            f"{first_slot * 100:.0f} % of answers)"
        )
        text += "" if noise is None else f"; test–retest disagreement {noise * 100:.0f} %"
        text += "" if balanced is None else f"; BalancedRatio {balanced:.3f}"
        if finding is not None and finding.icc is not None:
            text += f"; icc {finding.icc:.2f}, design effect {finding.design_effect:.1f}"
        yield text
    tests = [
        f"{stratum} {p_text(row.p_adjusted)} ({findings[stratum].test})"
        for stratum in strata
        if stratum in findings and (row := rows.get(("AdjustedOdds", stratum)))
        if row.p_adjusted is not None
    ]
    if tests:
        yield f"test of no preference (Holm over {results.family.size}), p: {', '.join(tests)}"
    if not design.contrasts:
        yield from phrases.found_with(findings.values(), "queries like these", "pairwise")
    if any(measure == "WinRatio" for measure, _ in rows):
        yield "WinRatio counts only pairs that do not flip: the square of the odds when answers are independent"
    yield from [OF_PAIRS] * (design.weights == "pooled")
    for stratum in by_stratum:  # how many answers say nothing, and what difference they could make
        answers, finding = results.answers[stratum], findings.get(stratum)
        if not answers.problems:
            continue
        text = f"{stratum}: unparseable answers {percent(answers.unparseable, answers.answers)}"
        if problems := ", ".join(f"{name} {n:,}" for name, n in answers.problems.items() if name != "tie"):
            text += f" ({problems})"
        if ties := answers.problems.get("tie"):
            text += f", tied ones {percent(ties, answers.answers)}"
        if finding and finding.worst_case:
            low, high = (100 * end for end in finding.worst_case)
            text += f"; whatever they were, the protected group wins {low:.1f}–{high:.1f} % of answers"
        yield text
    yield from pairs_notes(design)
    for name, grades in (design.grades or {}).items():
        if name in strata and not grades.matched and grades.difference:
            higher = "higher" if grades.difference > 0 else "lower"
            ours = "the first group's" if design.contrasts else "protected"
            yield (
                f"{name}: {ours} items are graded {abs(grades.difference):.2f} {higher} on average than those "
                "they are asked against, which the odds do not take out; --grades match does"
            )
    yield from phrases.drawn_note(design.drawn)


def pairs_notes(design: PairwiseFacts) -> Iterator[str]:
    """Queries without pairs of a stratum, unless contrasts are many."""
    for key, queries in design.without_pairs.items():
        if queries and len(design.contrasts) <= MOST_CONTRASTS:
            yield f"{key}: {count(len(queries), 'query', 'queries')} without such pairs"


def before_text(planned: Mapping[str, Any]) -> str:
    """Said before the first question."""
    design = planned["design"]
    most = "at most " * design.sequential
    pairs = " and ".join(f"{n:,} {stratum}" for stratum, n in asked_of(design).items())
    return f"{most}{count(planned['calls'], 'call')}: {pairs} pairs in both orders{phrases.on_disk(planned)}"


def asked_of(design: PairwiseFacts) -> dict[str, int]:
    """How many pairs of each stratum are asked, of all contrasts together."""
    keys = design.keys
    return {name: sum(design.pairs_asked[k] for k in keys if k.stratum == name) for name in design.strata}


# The verdict of a pairwise audit: whose items lose pairs, and how many.


class PairWords(VerdictWords):
    """In pairs won for every hundred that the other group wins, with the position taken out."""

    def __init__(self) -> None:
        super().__init__("pairs")
        self.of = self.of_several = "of {} pairs"

    def of_groups(self, gravest: Conclusion, case: Case, cases: Sequence[Case]) -> str:
        """A sentence of every stratum that shares the status."""
        sentences = list[str]()
        for stratum in dict.fromkeys(each.key.stratum for each in cases):
            pairs = [each for each in cases if each.key.stratum == stratum]
            of_it = [each for each in pairs if each.finding.conclusion == gravest]
            items = "items" if stratum == UNJUDGED else f"{stratum} items"
            if of_it and gravest == Conclusion.OUTSIDE:
                sentences.append(f"of two {items} {self.put_behind(of_it, pairs)}")
            elif of_it:
                sentences.append(f"of {items} {self.by_pair(pairs)}")
        return "; ".join(sentences)

    def disparity(self, case: Case) -> str:
        figure, groups = case.figure, case.groups
        if figure is None or groups is None:
            return super().disparity(case)
        low, value, high = figure.ends
        if not case.protected_behind:
            high, value, low = (end and 1 / end for end in figure.ends)
        if value is not None and low is not None and high is not None:
            won, least, most = phrases.numbers([100 * odds for odds in (value, low, high)], (100,), 0)
            times, of = f"{won} times", f"{case.facts.level * 100:g} % CI {least} to {most}, {case.counted}"
        elif high:
            times = f"at most {phrases.outward(100 * high, True, (100,))} times"
            of = f"{case.queries}; only a bound is known: {in_words(case.finding.reason, case.finding.measure)}"
        else:
            return super().disparity(case)
        (behind, ahead), alike = groups, "" if case.key.stratum == UNJUDGED else "equally relevant "
        return (
            f"{self.where(case)}{behind} items win {times} for every 100 wins of {alike}{ahead} ones ({of}); "
            f"{case.measured}, outside {case.band}"
        )

    def caution(self, case: Case) -> str:
        return UNJUDGED_TEXT * (case.key.stratum == UNJUDGED) + super().caution(case)

    def settle(self, case: Case) -> str:
        facts = case.facts
        if facts.planned and facts.run:  # these answers say how the next will be
            facts = dataclasses.replace(facts, planned=f"{facts.planned} --pilot {case.run}")
        return super().settle(dataclasses.replace(case, facts=facts))

    def look(self, case: Case) -> str:
        return f"llmfair runs show {case.run} --furthest{case.mitigation}"


def compared_notes(runs: Sequence[ComparisonRun]) -> Iterator[str]:
    """What is compared where one run was asked other pairs, too; that figures are not adjusted for stopping."""
    base, *others = runs
    for run in others:
        common, asked = run.own["pairs_in_common"], (base.own["pairs"], run.own["pairs"])
        if common < max(asked):
            in_common = count(common, "answered pair")
            yield f"{run.name}: compared on {in_common} in common, of {asked[0]:,} and {asked[1]:,}"
    if any(run.own["sequential"] for run in runs):
        yield "an audit that stopped when settled: its figures are not adjusted for stopping"


# A planned pairwise audit: what it takes and what it can find.


FINDS = "what it can find, and its cost: llmfair plan pairwise, with the same flags"
OF_TWO = "what it can find is planned for two groups only"
NOTHING = {
    "sequential": "--sequential asks until each stratum is settled, so what it finds is not planned; leave it out to "
    "see what a fixed number of pairs finds",
    "no_pairs": "no pairs: nothing can be found",
    "too_few_queries": f"no interval, which needs {FEWEST_QUERIES} queries",
}


def plan_pairs_table(planned: Mapping[str, Any]) -> Table | None:
    """How audits of each relevance stratum end, with everything else below; None where nobody knows."""
    if planned["findable"] is None:
        return None
    findable = convert(planned["findable"], dict[str, PairwiseFindable])
    odds = next(iter(findable.values())).ratio

    def ends(text: Callable[[Prospect], str]) -> Callable[[str], str]:
        return lambda stratum: spread(map(text, findable[stratum].prospects))

    columns: list[Column[str]] = [
        ("pairs", str),
        ("queries", lambda stratum: findable[stratum].queries),
        ("pairs a query", lambda stratum: f"{findable[stratum].pairs:,.1f}".removesuffix(".0")),
        (f"disparity at {odds:g}", ends(lambda each: plan.share(each.disparity))),
        ("queries for disparity", ends(lambda each: _queries(each.queries_for_disparity))),
        ("parity at 1", ends(lambda each: plan.share(each.parity))),
        ("queries for parity", ends(lambda each: _queries(each.queries_for_parity))),
        (
            "smallest odds found",
            ends(lambda each: "none" if each.smallest is None else f"{each.smallest:.3f}"),
        ),
    ]
    title, lines = _planned(planned, _findable_lines(findable))
    return Table.of(title, columns, findable, (*lines, "Nothing was asked."))


def _queries(number: int | None) -> str:
    return "never" if number is None else f"{number:,}"


def _planned(planned: Mapping[str, Any], finds: Sequence[str]) -> tuple[str, list[str]]:
    """Queries × pairs × strata × orders with the calls that they come to, and the lines below."""
    design, models = convert(planned["design"], PairwiseFacts), planned["models"]
    factors = [f"up to {count(design.max_pairs or 0, 'pair')}"]
    if not design.sequential:
        factors = [count(design.queries, "query", "queries"), count(design.pairs or 0, "pair")]
    factors += [count(len(design.strata), "stratum", "strata")]
    factors += [count(len(design.contrasts), "contrast")] * bool(design.contrasts) + ["2 orders"]
    factors += [f"{design.repeats} times"] * (design.repeats > 1) + [f"{models} models"] * (models > 1)
    most, noise = "at most " * design.sequential, planned["noise_calls"]
    again = f", {noise:,} of them to ask again" if noise else ""
    title = f"{' × '.join(factors)}: {most}{count(planned['calls'], 'call')}{again}"
    unjudged = [NOT_JUDGED] if UNJUDGED in design.strata else []
    notes = [*unjudged, *phrases.drawn_note(design.drawn), *pairs_notes(design), *finds]
    return title, plan.plan_lines(planned, notes)


def _findable_lines(findable: Mapping[str, PairwiseFindable]) -> list[str]:
    """How the table's figures are to be read, and plainly what cannot be found."""
    texts: dict[str, list[str]] = {}
    for stratum, of in findable.items():
        consistent = " to ".join(f"{100 * each.consistent:.3g} %" for each in of.prospects)
        lines = [] if of.reason is None else [NOTHING[of.reason]]
        if of.prospects:
            first = of.prospects[0]
            lines.append(
                f"chances of a verdict, and what gives {100 * of.target:g} %, where {consistent} of pairs do not flip, "
                f"the item shown first wins {100 * first.first_slot:.3g} % of answers, icc {first.icc:.2g}; odds above "
                "1: their inverse"
            )
        if len(of.prospects) > 1:
            lines.append("a small run says how many pairs do not flip: llmfair plan pairwise --pilot RUN")
        if any(each.agreement <= 0 for each in of.prospects):
            lines.append(
                "parity cannot be had with any number of queries: answers that agree with themselves no better than "
                "coins are no evidence of it"
            )
        if of.items_recur and of.prospects:
            lines.append("items stand in pairs of several queries, so chances are lower than planned")
        for text in lines:
            texts.setdefault(text, []).append(stratum)
    together = "a run ends in disparity where one stratum does, in parity where every one does"
    several = sum(bool(of.prospects) for of in findable.values()) > 1
    queries = max(of.queries for of in findable.values())
    return [
        *(f"{', '.join(strata)}: {text}" for text, strata in texts.items()),
        *[together] * several,
        *(few_queries(queries) if queries >= FEWEST_QUERIES else []),
    ]


# A pairwise calibration: what simulated audits of injected odds found.


NO_TEST = "too few queries or items for a test"


def calibrate_pairs_table(results: Mapping[str, Any]) -> Table:
    """One row a stratum and injected preference: what was recovered, how intervals and tests did, the conclusion."""
    asked, design = results["settings"], results["design"]
    queries, strata = design["queries"], design["strata"]
    pairs = ", ".join(f"{counts['pairs']:,} {stratum}" for stratum, counts in strata.items())
    columns: list[Column[Record]] = [
        ("pairs", lambda row: str(row["stratum"])),
        ("injected odds", plan.injected),
        ("over queries", lambda row: f"{row['marginal_odds']:.3f}"),
        ("recovered", lambda row: "none" if row["odds"] is None else f"{row['odds']:.3f}"),
        (plan.held(results), lambda row: plan.share_with_error(row, "covered")),
    ]
    notes = [
        f"injected: log odds of the protected item in the typical query, beside {asked['position']:+g} for the item "
        f"shown first; standard deviation {asked['query_sd']:g} over queries, {asked['pair_sd']:g} over the pairs of "
        f"one; {100 * asked['malformed']:g} % of answers unparseable",
        "over queries: the preference odds of all pairs together, which intervals are held against; "
        "recovered: their median; ± Monte Carlo error",
    ]
    for stratum in strata:
        rows = [row for row in results["injected"] if row["stratum"] == stratum]
        alarms = plan.false_alarms(
            rows,
            results["level"],
            lambda row: f"; {percent(row['consistent_share'])} of pairs do not flip",
            NO_TEST,
        )
        notes += [f"{stratum}: {alarms}", f"{stratum}: {_smallest_odds(results['smallest'][stratum])}"]
        notes += plan.undefined_notes(rows, results["runs"], f"{stratum}, ")
    notes += [f"{stratum}: no such pairs, left out" for stratum in design["without_pairs"]]
    notes += [OF_PAIRS] * (asked["weights"] == "pooled")
    notes += few_queries(min(counts["queries"] for counts in strata.values()))
    size = f"{count(queries, 'query', 'queries')}, {pairs} pairs, both orders"
    return plan.calibration_table(results, size, columns, notes)


def _smallest_odds(smallest: Record) -> str:
    """The smallest detectable odds, either way."""
    text = f"smallest odds found with {100 * smallest['power']:g} % power"
    if not smallest["tested"]:
        return f"{text}: {NO_TEST}"
    if not any(smallest["odds"]):
        return f"{text}: none of those injected; --injected takes more extreme ones"
    sides = zip(("below", "above"), smallest["odds"], strict=True)
    odds = [f"{value:.3f}" if value else f"none of those injected {side} parity" for side, value in sides]
    return f"{text}: {' or '.join(odds)} (between injected ones)"


# What the report of a pairwise audit has of its own.


SHOWN_PAIRS = 60
WON = (PairOutcome.PROTECTED, PairOutcome.UNPROTECTED)


def furthest_pairs(folder: Path, results: PairwiseResults, exhibits: Exhibits, by: str) -> Furthest | None:
    """The queries whose own value of the measure `by` is furthest from parity on some relevance stratum."""
    keys, titles, queries = results.design.keys, exhibits.titles, exhibits.queries
    every = read_verdicts(folder / "verdicts.csv")
    verdicts_of = dict(by_query(verdict for verdict in every if verdict.draw == 0 and verdict.key in keys))

    def of(verdict: PairVerdict, word: str | None) -> str:
        """A winner by its group, where there are several; any other word."""
        won = [str(of) for of in WON]
        return verdict.key.groups[won.index(word)] if verdict.contrast and word in won else word or ""

    def show(query_id: str, values: Values) -> FurthestQuery:
        # those that do not flip first: they are what a ratio is made of
        verdicts = sorted(
            verdicts_of.get(query_id, ()), key=lambda v: (v.outcome not in WON, keys.index(v.key), v.number)
        )
        pairs = [
            (
                v.key,
                *(titles.get(doc_id, doc_id) for doc_id in (v.protected, v.unprotected)),
                *(of(v, answer.winner.value if answer.winner else answer.problem) for answer in v.answers),
                of(v, v.outcome.value),
            )
            for v in verdicts[:SHOWN_PAIRS]
        ]
        ordered: dict[str, float] = {key: values[key] for key in keys if key in values}
        figures = groups.figures_text(ordered, groups.named(by, results), {})
        return FurthestQuery(
            queries.get(query_id, query_id), figures, pairs=pairs, left_out=len(verdicts) - len(pairs)
        )

    return groups.furthest_from_parity(folder, results, keys, by, "relevance strata", show)


def pairwise_section(results: PairwiseResults, folder: Path, exhibits: Exhibits) -> Section:
    """Odds of every relevance stratum, how often answers flip, and the queries whose pairs are furthest from parity."""
    table, declared = pairwise_table(results), exhibits.measures
    by = ratio_of(results.measures, declared, of_queries=True)
    asked = ", ".join(f"{n:,} {stratum}" for stratum, n in asked_of(results.design).items())
    shares = [
        (key, {str(cell): share for cell, share in of_it.items()})
        for key in told(results)
        if (of_it := results.shares[key])
    ]
    words = Words("first group", "second group") if results.design.contrasts else results.words
    answers = [stacked_answers(shares, asdict(words))] if shares else []
    return Section(
        table=table,
        plots=[*answers, *headline_plots(results, told(results), declared, {})],
        furthest=furthest_pairs(folder, results, exhibits, by) if by else None,
        words=[*METHOD, *[OF_CONTRASTS] * bool(results.design.contrasts)],
        facts=[("pairs", asked)],
    )


WORDS = Wording(
    title="Pairwise audit",
    condition="pairs",
    method=METHOD,
    before=before_text,
    plan_table=plan_pairs_table,
    plan_text=lambda planned: plan.told(
        *_planned(planned, [OF_TWO if planned["design"].get("contrasts") else FINDS])
    ),
    calibration_table=calibrate_pairs_table,
    verdict=PairWords().verdict,
    table=pairwise_table,
    section=pairwise_section,
    how_ended=how_ended,
    what_was_shown=lambda about: f"{about.get('groups', about['sides'])[0]} first",
    concluded=pair_conclusion,
    tells_undefined=False,  # single queries alone lack figures, and those of all count their pairs
    compared_notes=compared_notes,
)
