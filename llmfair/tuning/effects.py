"""What an adapter does to a model's answers: the pairwise audit's own figures, before and after, and what else moved.

Everything follows from the margins z1, z2 of the measured pairs (`head.py`), as the audit reads them: z > 0 the
item shown first wins, z = 0 exactly is a tie and nobody's win.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import log
from typing import Any

import numpy as np

from llmfair import nouns
from llmfair.audits.aggregates import ALL, Inference, joined, mean_of, row_of, tallied
from llmfair.audits.pairwise.measure import HowAsked, cell_counts, judged_of, measure_verdicts
from llmfair.audits.pairwise.results import CellCounts, PairFinding
from llmfair.metrics.base import Formula
from llmfair.metrics.names import parse_measures
from llmfair.metrics.pairs import ADJUSTED_ODDS, CELLS, KINDS, JudgedPairs, tally
from llmfair.nouns import JUDGED_STRATA, PAIRS, Side
from llmfair.results import Figure, rows_of
from llmfair.stats import intervals
from llmfair.stats.intervals import Estimate
from llmfair.stats.paired import change_of_pairs
from llmfair.tuning import drawing
from llmfair.tuning.results import FinetuneResults, Safeguard, TrainingFacts, Validation

PAIR_STRATA = JUDGED_STRATA
MEASURED = "AdjustedOdds,BalancedRatio,WinRatio,WinShare,FlipRate,FirstSlotRate,TieRate"
SMOOTHED, SOFT, CONSISTENCY, ORDER, RELEVANT_FIRST, SLOT_EFFECT = (
    "SmoothedWinRatio", "SoftRatio", "Consistency", "OrderKept", "RelevantFirst", "SlotEffect",
)  # fmt: skip


def _undefined(cells: drawing.Floats) -> str | None:
    return None if cells.any() else "no_valid_answer"


FORMULAS = {
    # (PP + ½)/(UU + ½): defined for any readable pairs, even where no side wins consistently
    SMOOTHED: Formula(
        CELLS, lambda cells: np.log(cells[0] + 0.5) - np.log(cells[1] + 0.5), _undefined, logarithmic=True
    ),
    # (PP + UU)/N: both answers on a pair name the same item; a tie is no such answer
    CONSISTENCY: Formula(KINDS, lambda cells: (cells[0] + cells[1]) / cells.sum(), _undefined),
}


@dataclass(frozen=True, eq=False)
class AnsweredPairs:
    """One model's answers on the measured pairs: `margins` has shape (pairs, 2)."""

    pairs: Sequence[drawing.TrainingPair]
    margins: drawing.Floats
    attribute: nouns.Attribute

    def verdicts(self, stratum: nouns.PairStratum) -> list[nouns.PairVerdict]:
        """The answers as the pairwise audit reads them."""

        def answer(margin: float, first: Side, second: Side) -> nouns.PairAnswer:
            if margin == 0:
                return nouns.PairAnswer(None, "tie", margin)
            return nouns.PairAnswer(first if margin > 0 else second, None, margin)

        protected, unprotected = Side
        return [
            nouns.PairVerdict(
                pair.query.query_id, stratum, int(pair.pair_id.rpartition("/")[2]), 0, *pair.doc_ids,
                first=answer(z1, protected, unprotected), second=answer(z2, unprotected, protected),
            )
            for pair, (z1, z2) in zip(self.pairs, self.margins.tolist(), strict=True)
            if pair.stratum == stratum
        ]  # fmt: skip

    def preferences(self, stratum: str, sides: tuple[Side, Side] | None = None) -> list[drawing.Floats]:
        """g of a stratum's pairs, by query; of those alone whose items are of these sides."""
        g, queries = drawing.preference(self.margins).tolist(), dict[str, list[float]]()
        for pair, preference in zip(self.pairs, g, strict=True):
            if pair.stratum == stratum and sides in (None, drawing.combination(pair, self.attribute)):
                queries.setdefault(pair.query.query_id, []).append(preference)
        return [*map(np.array, queries.values())]

    def shifted_by(self, offset: float) -> AnsweredPairs:
        """The logit offset: `offset` off every protected item's margin over an unprotected one."""
        signs = np.array([drawing.group_sign(pair, self.attribute) for pair in self.pairs])
        margins = self.margins - offset * np.stack([signs, -signs], axis=1)
        return AnsweredPairs(self.pairs, margins, self.attribute)


def offset_of(answers: AnsweredPairs) -> float:
    """The logit offset's one number: the median of g, strata and queries within them weighing the same. The weighted
    median is the least g with half of the weight at or below it."""
    queries = [
        (values, len(by_query)) for by_query in map(answers.preferences, PAIR_STRATA) for values in by_query
    ]
    g = np.concatenate([values for values, _ in queries])
    weights = np.concatenate([np.full(len(values), 1 / (n * len(values))) for values, n in queries])
    return float(np.quantile(g, 0.5 - 1e-12, weights=weights, method="inverted_cdf"))


@dataclass(frozen=True)
class Figures:
    """One model's figures on the measured pairs, as tidy rows, with the audit's conclusions by relevance stratum."""

    rows: Sequence[nouns.Measurement]
    findings: Mapping[str, PairFinding]
    cells: Mapping[str, CellCounts]

    def value(self, measure: str, stratum: str, group: str = "") -> float | None:
        """The figure of all queries; None where there is none."""
        key = (measure, stratum, group)
        return next((row.value for row in self.rows if (row.measure, row.stratum, row.group) == key), None)

    @property
    def objective(self) -> float | None:
        """|ln ratio_relevant| + |ln ratio_irrelevant| of the ratios with ½ added; 0 is parity, None not known."""
        ratios = [self.value(SMOOTHED, stratum) for stratum in PAIR_STRATA]
        return sum(abs(log(ratio)) for ratio in ratios if ratio) if all(ratios) else None


def measure(
    answers: AnsweredPairs, base: AnsweredPairs, inference: Inference, band: tuple[float, float]
) -> Figures:
    """All figures of `answers`; the order of items is compared with that of `base`, the same pairs before."""
    from scipy.stats import rankdata

    level = inference.level
    by_stratum: dict[str, list[nouns.PairVerdict]] = {
        stratum: answers.verdicts(stratum) for stratum in PAIR_STRATA
    }
    by_key = {nouns.Key(PAIRS, stratum): verdicts for stratum, verdicts in by_stratum.items()}
    measures, how = parse_measures(MEASURED, JudgedPairs), HowAsked(inference, band)
    _, measured, findings, _ = measure_verdicts(measures, by_key, how)
    rows = [row for row in measured if row.query_id == ALL]

    def add(name: str, stratum: str, estimate: Estimate | None, group: str = "") -> None:
        if estimate is not None:
            rows.append(dataclasses.replace(row_of(name, PAIRS, estimate, group), stratum=stratum))

    for stratum, verdicts in by_stratum.items():
        for name, formula in FORMULAS.items():
            tallies = [tally(judged, formula) for judged in judged_of(verdicts, 1)]
            add(name, stratum, tallied(tallies, "macro", level))
        g, before = answers.preferences(stratum), base.preferences(stratum)
        # rank correlations of g with the base's; equal preferences have none
        rhos = [
            float(np.corrcoef(*map(rankdata, both))[0, 1])
            for both in zip(g, before, strict=True)
            if all(map(np.ptp, both))
        ]
        add(ORDER, stratum, intervals.mean(rhos, level, (-1.0, 1.0)) if rhos else None)
        if g:
            # Σσ(g)/Σσ(−g), every query weighing the same
            won, lost = ([float(np.mean(drawing.sigmoid(sign * values))) for values in g] for sign in (1, -1))
            add(SOFT, stratum, intervals.ratio_of_means(won, lost, level))
            of_stratum = [pair.stratum == stratum for pair in answers.pairs]
            slot = float(np.median(drawing.slot_bias(answers.margins[of_stratum])))
            add(SLOT_EFFECT, stratum, Estimate(slot, None, None, len(g)))
    # the share of mixed pairs whose relevant item is preferred: overall, and by the sides of its two items
    for sides in (None, *drawing.COMBINATIONS):
        group = "" if sides is None else " over ".join(sides)
        shares = [float(np.mean(values > 0)) for values in answers.preferences("mixed", sides)]
        add(RELEVANT_FIRST, "mixed", intervals.mean(shares, level, (0.0, 1.0)) if shares else None, group)
    cells = {stratum: cell_counts(verdicts) for stratum, verdicts in by_stratum.items()}
    return Figures(rows, findings, cells)


def changes(before: AnsweredPairs, after: AnsweredPairs, level: float) -> dict[str, Figure]:
    """The position-adjusted odds after over those before, by relevance stratum, paired."""
    odds = dict[str, Figure]()
    for stratum in PAIR_STRATA:
        base, adapter = (
            joined([tally(judged, ADJUSTED_ODDS) for judged in judged_of(answers.verdicts(stratum), 1)])
            for answers in (before, after)
        )
        if base is not None and adapter is not None:
            change = change_of_pairs(ADJUSTED_ODDS, base, adapter, level)
            of = change.estimate
            odds[stratum] = Figure(of.value, of.low, of.high, of.n, change.p, None, None, of.reason)
    return odds


# What parity must not be bought with: a model that always names the first item has it too, and ranks nothing. A
# checkpoint is the best only if it keeps every safeguard (a gate, to users), and gains something. A strong preference
# makes answers agree over both orders; so agreement is held against the base without its preference (the logit offset),
# and slots by their effect in logits, which no preference changes.

CONSISTENCY_LOST, RELEVANCE_LOST = 0.05, 0.01
SLOT_GROWTH, SLOT_ALLOWED = 1.25, 0.2
"""The slot effect may grow by a quarter, and always to .2, at which the first of two equal items wins in 55 %."""
ROUNDING = 1e-12

SAFEGUARDS: Mapping[str, tuple[str, str]] = {
    "consistency": ("same answer in both orders", "≥"),
    "relevance": ("relevant item preferred", "≥"),
    "first_slot": ("slot's effect in logits", "≤"),
    "gain": ("distance from parity", "<"),
}
"""What each of them is of, and on which side of its limit it has to be."""


def gates_text(gates: Mapping[str, Safeguard], missed: bool = False) -> str:
    """Figures beside their limits, `relevant item preferred 0.412 (not ≥ 0.450)`: of all gates, or those not kept."""
    texts = []
    for name, gate in gates.items():
        words, sign = SAFEGUARDS[name]
        value, limit = ("not known" if of is None else f"{of:.3f}" for of in (gate.value, gate.limit))
        if not (missed and gate.met):
            texts.append(f"{words} {value} ({'' if gate.met else 'not '}{sign} {limit})")
    return ", ".join(texts)


def safeguards_of(base: Figures, offset: Figures, after: Figures) -> dict[str, Safeguard]:
    """Consistency ≥ that of base or `offset`, the base less its preference, − 0.05, relevant-beats-irrelevant ≥ base −
    0.01, slot effect ≤ the greater of 1.25 × the base's and 0.2.

    A gate whose figure the base does not have holds; one whose figure was lost does not.
    """

    def of_strata(figures: Figures, measure: str) -> list[float]:
        values = (figures.value(measure, stratum) for stratum in PAIR_STRATA)
        return [value for value in values if value is not None]

    def at_least(before: float | None, value: float | None, lost: float) -> Safeguard:
        limit = None if before is None else before - lost
        return Safeguard(value, limit, limit is None or (value is not None and value >= limit - ROUNDING))

    *before, alike = (mean_of(of_strata(figures, CONSISTENCY)) for figures in (base, offset, after))
    least = min((share for share in before if share is not None), default=None)
    relevant, relevant_after = (figures.value(RELEVANT_FIRST, "mixed") for figures in (base, after))
    was, slot = (max(map(abs, of_strata(figures, SLOT_EFFECT)), default=None) for figures in (base, after))
    most = max(SLOT_GROWTH * (was or 0.0), SLOT_ALLOWED)
    return {
        "consistency": at_least(least, alike, CONSISTENCY_LOST),
        "relevance": at_least(relevant, relevant_after, RELEVANCE_LOST),
        "first_slot": Safeguard(slot, most, slot is not None and slot <= most + ROUNDING),
    }


def validate(base: Figures, offset: Figures, after: Figures) -> Validation:
    """A checkpoint as its validation pairs show it; one that fails a gate, or gains nothing, is never the best."""
    gains = after.objective is not None and (base.objective is None or after.objective < base.objective)
    gates = safeguards_of(base, offset, after) | {"gain": Safeguard(after.objective, base.objective, gains)}
    return Validation(after.objective, gates)


BASE, ADAPTER, BASELINE = "base", "adapter", "logit offset"
"""The three that are measured on the same pairs, as `model` of a row names them."""


def results_of(
    design: Mapping[str, Any],
    figures: Mapping[str, Figures],
    changes: Mapping[str, Figure],
    final: Validation,
    training: TrainingFacts,
) -> FinetuneResults:
    """What --json prints; `design` has the fields of `OfTraining`, `final` judges the adapter on the test queries."""
    named = {name: design[name] for name in ("run", "dataset", "attribute")}
    rows = (rows_of(its.rows, {**named, "model": model}, design["words"]) for model, its in figures.items())
    return FinetuneResults(
        **design,
        status="rejected" if training.rejected else "complete",
        rows=[*chain(*rows)],
        findings={model: its.findings for model, its in figures.items()},
        cells={model: its.cells for model, its in figures.items()},
        objective={model: its.objective for model, its in figures.items()},
        changes=changes, gates_on_test=final.gates, training=training,
    )  # fmt: skip
