"""What was found, in sentences: conclusions, both tests, the gap between prompts, what the design could show.

Nothing here is computed but percentages; no sentence judges, it states a distance from parity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import log

from llmfair.audits.listwise.results import ListwiseFinding, ListwiseResults, Odds
from llmfair.probes import REPEAT
from llmfair.report.reasons import in_words
from llmfair.report.tables import count, differs_text, found_with, p_text
from llmfair.results import Figure, Reach, Row

TELLING = 0.05
"""An input order nearer to parity than this has nothing to hand on."""
UNEVEN = 0.01
"""From this share on, what relevance alone gives the sides is told."""
RATIO, PRECISION = "ExpRatio", "P@20"
"""The measures whose attainable range a design knows (`reach_of`)."""
Cells = Mapping[tuple[str, str], Row]


def conclusion(finding: ListwiseFinding, row: Figure | None, band: tuple[float, float], level: float) -> str:
    """The conclusion of one condition: where its preference odds lie, and whether they differ from parity at all."""
    verdict, (low, high), odds = finding.conclusion, band, finding.odds
    if verdict == "not_assessable" or odds is None:
        return f"not assessable: {in_words(finding.reason, finding.measure)}"
    if verdict == "outside":
        beyond = f"below {low:g}" if below(odds) else f"above {high:g}"
        return f"preference odds {beyond}{_share(finding)}"
    said = f"preference odds within {low:g}–{high:g}" if verdict == "within" else "inconclusive"
    return said + differs_text(None if row is None else row.p_adjusted, odds.low, odds.high, level)


def below(odds: Odds) -> bool:
    """Whether the protected group is the one that is put behind."""
    if odds.value is None:
        return odds.bound == "at most"
    return odds.value < 1


def _share(finding: ListwiseFinding) -> str:
    """What the preference does to exposure, where lists were ranked and its interval says so, too."""
    if finding.excess is None or finding.odds is None:
        return ""
    less = below(finding.odds)
    if not finding.excess.excludes_parity(less):
        return ""
    share = round(abs(finding.excess.value - 1) * 100)
    return f": {share} % {'less' if less else 'more'} exposure at equal relevance" if share else ""


def test_notes(results: ListwiseResults, cells: Cells) -> list[str]:
    """Both nulls of every prompt, with the size of the family that the first is adjusted over."""
    prompts = {condition: found for condition, found in results.findings.items() if condition != REPEAT}
    flips, shuffles, drawn = [], [], 0
    for condition, finding in prompts.items():
        row = cells.get((finding.measure, condition))
        if row is not None and row.p_adjusted is not None:
            flips.append(f"{condition} {p_text(row.p_adjusted)}")
        shuffled = finding.permutation
        if shuffled is not None and shuffled.draws is not None and shuffled.p_z is not None:
            p = shuffled.p_z if shuffled.p is None else shuffled.p
            drawn = shuffled.draws
            null = ""
            if shuffled.ratio_low is not None and shuffled.ratio_high is not None:
                null = f" (chance {shuffled.ratio_low:.3f} … {shuffled.ratio_high:.3f})"
            shuffles.append(f"{condition} {p_text(p)}{null}")
    notes = []
    if flips:
        notes.append(
            f"sign-flip test (mean over queries, Holm over {results.family.size}), p: "
            f"{', '.join(flips)}{_floor(prompts, results)}"
        )
    if shuffles:
        how = f"{drawn:,} shuffles of equally relevant items" if drawn else "normal approximation"
        notes.append(f"within-query permutation test ({how}), p: {', '.join(shuffles)}")
    return notes


def _floor(prompts: Mapping[str, ListwiseFinding], results: ListwiseResults) -> str:
    """The smallest p that so few queries can give, where it is close."""
    queries = min(
        (found.sign_flip.queries for found in prompts.values() if found.sign_flip is not None), default=0
    )
    floor = results.family.size * 2.0 ** (1 - queries) if queries else 0.0
    return (
        f" ({count(queries, 'query', 'queries')} can give no less than {p_text(floor)})"
        if floor > 0.001
        else ""
    )


def gap_note(results: ListwiseResults, cells: Cells) -> list[str]:
    """The largest difference between two prompts, paired by query."""
    measure, repeat = results.family.contrasted, "repeat"
    pairs = [
        row
        for (name, condition), row in cells.items()
        if name == measure and " vs " in condition and repeat not in condition.split(" vs ")
    ]
    pairs = [row for row in pairs if row.value is not None]
    if not pairs:
        return []
    row = max(pairs, key=lambda row: (abs(log(row.value or 1)), row.condition))
    if row.value is not None and row.value < 1:
        one, other = reversed(row.condition.split(" vs "))
        row = replace(row, value=1 / row.value, low=_inverse(row.high), high=_inverse(row.low))
    else:
        one, other = row.condition.split(" vs ")
    text = f"largest gap: {one} against {other}, × {row.value:.3f} in {results.labels.get(measure or '', measure)}"
    if row.low is not None:
        text += f" [{row.low:.3f}, {row.high:.3f}]"
    if row.p_adjusted is not None:
        text += f", p {p_text(row.p_adjusted)} (sign flip, {count(row.n or 0, 'query', 'queries')}, "
        text += f"Holm over {results.family.size})"
    return [text]


def _inverse(value: float | None) -> float | None:
    return None if value is None else 1 / value


def ranking_note(concluded: bool) -> list[str]:
    """What preference odds of measured runs are of, where anything is concluded of them."""
    said = (
        "preference odds of a ranking: over all equally relevant pairs of a list; of a run folder they are its final "
        "lists', not its answers'"
    )
    return [said] * concluded


def power_note(results: ListwiseResults) -> list[str]:
    """What an inconclusive design could have found, and the queries that find it."""
    return found_with(
        "preference odds of {:g}",
        results.findings.values(),
        "queries",
        "listwise",
    )


def noise_notes(results: ListwiseResults, cells: Cells) -> list[str]:
    """How far the same prompt moves by itself: over other initial orders, and asked again from the same ones."""
    notes = []
    noises = {condition: found.run_noise for condition, found in results.findings.items() if found.run_noise}
    for condition, noise in list(noises.items())[:1]:
        notes.append(
            f"Monte Carlo error of ExpRatio from {count(results.design.orders, 'random order')}: "
            f"± {100 * 1.96 * noise.error:.1f} % ({condition})"
        )
    for measure in results.measures:
        floor = cells.get((measure, "repeat vs neutral"))
        if not measure.startswith("RBO") or not floor or floor.value is None:
            continue
        pairs = [
            f"{condition} {row.value:.2f}" + ("" if row.p is None else f" (p {p_text(row.p)})")
            for condition in results.design.conditions
            if condition != REPEAT
            and (row := cells.get((measure, f"{condition} vs neutral")))
            and row.value is not None
        ]
        if pairs:
            notes.append(
                f"rank agreement with neutral ({measure}): repeat {floor.value:.2f}, {', '.join(pairs)}"
            )
    return notes


def order_notes(results: ListwiseResults, cells: Cells) -> list[str]:
    """Of an initial order that is not random: its own ratio, and what it hands on to any ranker."""
    design, reach = results.design, results.reach.get("ExpRatio", Reach())
    initial = cells.get(("ExpRatio", "initial"))
    if design.initial == "random" or not initial or initial.value is None:
        return []
    start = f"ExpRatio of the initial ranking ({design.initial}) is {initial.value:.3f}"
    if reach.indifferent is None:
        return [start]
    notes = [f"{start}; of a ranker without any preference it would be {reach.indifferent:.3f}"]
    mirrored = [
        f"{condition} {row.value:.3f}{_like_input(condition, results, cells)}"
        for condition in design.conditions
        if condition != REPEAT
        and (row := cells.get(("ExpRatio", condition)))
        and row.value
        and _mirrors(row.value, initial.value, reach.indifferent)
    ]
    if mirrored:
        notes.append(
            f"the numbers mirror the initial ranking: {', '.join(mirrored)}; --initial random does not"
        )
    return notes


def _mirrors(ratio: float, initial: float, indifferent: float) -> bool:
    """Whether a ratio is what the input hands on: most of the input's distance from parity, and no more."""
    distance = abs(log(initial))
    return (
        distance > TELLING
        and log(ratio) / log(initial) >= 0.5
        and abs(log(ratio / indifferent)) < distance / 2
    )


def _like_input(condition: str, results: ListwiseResults, cells: Cells) -> str:
    tau = cells.get(("Tau", condition))
    return f" (Kendall tau with the initial ranking {tau.value:.2f})" if tau and tau.value is not None else ""


def relevance_note(ratios: Mapping[str, float | None]) -> list[str]:
    """What relevance alone gives the sides, by condition, where that is not parity."""
    told = [
        f"{ratio:.3f} ({condition})"
        for condition, ratio in ratios.items()
        if condition != REPEAT and ratio and abs(ratio - 1) >= UNEVEN
    ]
    if not told:
        return []
    return [
        f"relevance alone gives an ExpRatio of {', '.join(told)}: the table's figures have that in them, preference "
        "odds and the exposure named in conclusions do not"
    ]
