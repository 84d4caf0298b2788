"""What an adapter does to a model's answers: the pairwise audit's own figures, before and after, and what else moved.

Everything follows from the margins z1, z2 of the measured pairs (`margins.py`), as the audit reads them: z > 0 the
item shown first wins, z = 0 exactly is a tie and nobody's win.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import log
from typing import Any

import numpy as np
from msgspec.structs import asdict, astuple, replace

from llmfair.audits.aggregates import ALL, Inference, joined, row_of, tallied
from llmfair.audits.pairwise.measure import HEADLINE, HowAsked, cell_counts, judged_of, measure_verdicts
from llmfair.audits.pairwise.results import CellCounts, PairFinding
from llmfair.metrics.base import Formula
from llmfair.metrics.names import parse_measures
from llmfair.metrics.pairs import ADJUSTED_ODDS, CELLS, KINDS, JudgedPairs, tally
from llmfair.nouns import Attribute, Measurement, PairAnswer, PairStratum, PairVerdict, Side
from llmfair.results import Row, Words, lines_of, rows_of
from llmfair.rundir import COLUMNS, csv_text
from llmfair.stats import intervals
from llmfair.stats.intervals import Estimate
from llmfair.stats.paired import change_of_pairs
from llmfair.tuning.drawing import (
    COMBINATIONS,
    Floats,
    PairGroup,
    TrainingPair,
    combination,
    group_sign,
    preference,
    sigmoid,
)
from llmfair.tuning.results import (
    AnswersOnPairs,
    FinetuneResults,
    Interval,
    OddsChange,
    RatioOfPairs,
    Safeguard,
    TrainingFacts,
    Validation,
)

PAIR_STRATA: tuple[PairStratum, ...] = ("relevant", "irrelevant")
MEASURED = "AdjustedOdds,BalancedRatio,WinRatio,WinShare,FlipRate,FirstSlotRate,TieRate"
SMOOTHED, SOFT, CONSISTENCY, ORDER, RELEVANT_FIRST = (
    "SmoothedWinRatio", "SoftRatio", "Consistency", "OrderKept", "RelevantFirst",
)  # fmt: skip


def _known(cells: Floats) -> str | None:
    return None if cells.any() else "no_valid_answer"


SMOOTHED_WIN_RATIO = Formula(
    CELLS,
    lambda cells: np.log(cells[0] + 0.5) - np.log(cells[1] + 0.5),
    _known,
    logarithmic=True,
)
"""(PP + ½)/(UU + ½): defined for any readable pairs, even where no side wins consistently."""
CONSISTENT = Formula(KINDS, lambda cells: (cells[0] + cells[1]) / cells.sum(), _known)
"""(PP + UU)/N: both answers on a pair name the same item; a tie is no such answer."""


@dataclass(frozen=True, eq=False)
class AnsweredPairs:
    """What one model said on the measured pairs: `margins` has shape (pairs, 2)."""

    pairs: Sequence[TrainingPair]
    margins: Floats
    attribute: Attribute

    @classmethod
    def of(
        cls, groups: Sequence[PairGroup], margins: Sequence[Floats], attribute: Attribute
    ) -> AnsweredPairs:
        pairs = tuple(chain(*groups))
        return cls(pairs, np.concatenate([*margins]).reshape(-1, 2).astype(np.float64), attribute)

    def places(self, stratum: str) -> list[int]:
        return [place for place, pair in enumerate(self.pairs) if pair.stratum == stratum]

    def verdicts(self, stratum: PairStratum) -> list[PairVerdict]:
        return [_verdict(self.pairs[place], stratum, self.margins[place]) for place in self.places(stratum)]

    def shifted_by(self, offset: float) -> AnsweredPairs:
        """The free baseline: `offset` off every protected item's margin over an unprotected one."""
        signs = np.array([group_sign(pair, self.attribute) for pair in self.pairs])
        return AnsweredPairs(
            self.pairs, self.margins - offset * np.stack([signs, -signs], axis=1), self.attribute
        )


def _verdict(pair: TrainingPair, stratum: PairStratum, margins: Floats) -> PairVerdict:
    z1, z2 = margins.tolist()
    return PairVerdict(
        query_id=pair.query.query_id,
        stratum=stratum,
        number=int(pair.pair_id.rpartition("/")[2]),
        draw=0,
        protected=pair.a.doc_id,
        unprotected=pair.b.doc_id,
        first=_answer(z1, Side.PROTECTED, Side.UNPROTECTED),
        second=_answer(z2, Side.UNPROTECTED, Side.PROTECTED),
    )


def _answer(margin: float, first: Side, second: Side) -> PairAnswer:
    if margin == 0:
        return PairAnswer(None, "tie", margin)
    return PairAnswer(first if margin > 0 else second, None, margin)


# One model's figures


@dataclass(frozen=True)
class Figures:
    """One model's figures on the measured pairs, as tidy rows, with the audit's conclusions by relevance stratum."""

    rows: Sequence[Measurement]
    findings: Mapping[str, PairFinding]
    cells: Mapping[str, CellCounts]

    def value(self, measure: str, condition: str, group: str = "") -> float | None:
        return self.row(measure, condition, group).value

    def row(self, measure: str, condition: str, group: str = "") -> Measurement:
        """The figure of all queries; one without value where there is none."""
        for row in self.rows:
            if (row.query_id, row.measure, row.condition, row.group) == (ALL, measure, condition, group):
                return row
        return Measurement(ALL, measure, None, condition, group, n=0, reason="no_pairs")

    def mean_over_strata(self, measure: str) -> float | None:
        found = [self.value(measure, stratum) for stratum in PAIR_STRATA]
        known = [value for value in found if value is not None]
        return sum(known) / len(known) if known else None

    @property
    def objective(self) -> float | None:
        """|ln ratio_relevant| + |ln ratio_irrelevant| of the ratios with ½ added; 0 is parity, None not known."""
        ratios = [self.value(SMOOTHED, stratum) for stratum in PAIR_STRATA]
        known = [abs(log(ratio)) for ratio in ratios if ratio]
        return sum(known) if len(known) == len(ratios) else None

    def first_slot_distance(self) -> float | None:
        """How far the share of answers that name the item shown first is from one half, where it is farthest."""
        found = [self.value("FirstSlotRate", stratum) for stratum in PAIR_STRATA]
        return max((abs(value - 0.5) for value in found if value is not None), default=None)


def measure(
    answers: AnsweredPairs, base: AnsweredPairs, inference: Inference, band: tuple[float, float]
) -> Figures:
    """All figures of `answers`; the order of items is compared with that of `base`, the same pairs before."""
    by_stratum: dict[str, list[PairVerdict]] = {stratum: answers.verdicts(stratum) for stratum in PAIR_STRATA}
    audited = measure_verdicts(parse_measures(MEASURED, JudgedPairs), by_stratum, HowAsked(inference, band))
    rows = [row for row in audited.rows if row.query_id == ALL]
    for stratum, verdicts in by_stratum.items():
        places, level = answers.places(stratum), inference.level
        for name, formula in ((SMOOTHED, SMOOTHED_WIN_RATIO), (CONSISTENCY, CONSISTENT)):
            found = tallied([tally(judged, formula) for judged in judged_of(verdicts, 1)], "macro", level)
            rows += _row(name, stratum, found)
        g, before = preference(answers.margins[places]), preference(base.margins[places])
        queries = [answers.pairs[place].query.query_id for place in places]
        rows += _row(SOFT, stratum, _soft_ratio(g, queries, level))
        rows += _row(ORDER, stratum, _order_kept(g, before, queries, level))
    rows += _relevant_first(answers, inference.level)
    cells = {stratum: cell_counts(verdicts) for stratum, verdicts in by_stratum.items()}
    return Figures(rows, audited.findings, cells)


def _row(measure: str, condition: str, found: Estimate | None, group: str = "") -> list[Measurement]:
    return [] if found is None else [row_of(measure, condition, found, group)]


def _soft_ratio(g: Floats, queries: Sequence[str], level: float) -> Estimate | None:
    """Σσ(g)/Σσ(−g), every query weighing the same."""
    won, lost = _by_query(sigmoid(g), queries), _by_query(sigmoid(-g), queries)
    if not won:
        return None
    return intervals.ratio_of_means([*map(np.mean, won)], [*map(np.mean, lost)], level)


def _order_kept(g: Floats, before: Floats, queries: Sequence[str], level: float) -> Estimate | None:
    """The mean over queries of the rank correlation of g with the base's; equal preferences have none."""
    from scipy.stats import rankdata

    found = [
        float(np.corrcoef(rankdata(one), rankdata(two))[0, 1])
        for one, two in zip(_by_query(g, queries), _by_query(before, queries), strict=True)
        if np.ptp(one) > 0 and np.ptp(two) > 0
    ]
    return intervals.mean(found, level) if found else None


def _relevant_first(answers: AnsweredPairs, level: float) -> list[Measurement]:
    """The share of mixed pairs whose relevant item is preferred: overall, and by the sides of its two items."""
    places = answers.places("mixed")
    wins = (preference(answers.margins[places]) > 0).astype(np.float64)
    queries = [answers.pairs[place].query.query_id for place in places]
    sides = [combination(answers.pairs[place], answers.attribute) for place in places]
    rows = []
    for name, chosen in (
        ("", np.ones(len(places), dtype=bool)),
        *(
            (f"{ours.value} over {theirs.value}", np.array([pair == (ours, theirs) for pair in sides], bool))
            for ours, theirs in COMBINATIONS
        ),
    ):
        means = [np.mean(of_it) for of_it in _by_query(wins[chosen], _chosen(queries, chosen))]
        rows += _row(RELEVANT_FIRST, "mixed", intervals.mean(means, level) if means else None, name)
    return rows


def _chosen(names: Sequence[str], chosen: Any) -> list[str]:
    return [name for name, kept in zip(names, chosen.tolist(), strict=True) if kept]


def _by_query(values: Floats, queries: Sequence[str]) -> list[Floats]:
    found: dict[str, list[float]] = {}
    for query_id, value in zip(queries, values.tolist(), strict=True):
        found.setdefault(query_id, []).append(value)
    return [np.array(of_it) for of_it in found.values()]


def changes(before: AnsweredPairs, after: AnsweredPairs, level: float) -> dict[str, OddsChange]:
    """The position-adjusted odds after over those before, by relevance stratum: paired, so that what queries and items
    do to both cancels."""
    found = dict[str, OddsChange]()
    for stratum in PAIR_STRATA:
        one, two = (
            joined([tally(judged, ADJUSTED_ODDS) for judged in judged_of(answers.verdicts(stratum), 1)])
            for answers in (before, after)
        )
        if one is None or two is None:
            continue
        change = change_of_pairs(ADJUSTED_ODDS, one, two, level)
        of = change.estimate
        found[stratum] = OddsChange(HEADLINE, of.value, of.low, of.high, of.n, of.reason, change.p)
    return found


def offset_of(pairs: Sequence[TrainingPair], margins: Floats) -> float:
    """The free baseline's one number: the median of g, strata and queries within them weighing the same.

    The weighted median is the least g with half of the weight at or below it.
    """
    g, weights = preference(margins), np.zeros(len(pairs))
    for stratum in PAIR_STRATA:
        queries: dict[str, list[int]] = {}
        for place, pair in enumerate(pairs):
            if pair.stratum == stratum:
                queries.setdefault(pair.query.query_id, []).append(place)
        for places in queries.values():
            weights[places] = 1 / (len(queries) * len(places))
    order = np.argsort(g, kind="stable")
    passed = np.cumsum(weights[order])
    return float(g[order][np.searchsorted(passed, passed[-1] / 2 - 1e-12)])


# What parity must not be bought with: a model that always names the first item has it too, and ranks nothing. A
# checkpoint is the best only if it keeps every safeguard (a gate, to users), and gains something.


REJECTED = 1e6
"""The objective of a checkpoint that fails a gate; added to what it is, so that the nearest of these is known, too."""
CONSISTENCY_LOST, RELEVANCE_LOST, SLOT_ALLOWED = 0.05, 0.01, 0.05

SAFEGUARDS: Mapping[str, tuple[str, str]] = {
    "consistency": ("same answer in both orders", "≥"),
    "relevance": ("relevant item preferred", "≥"),
    "first_slot": ("first slot's distance from one half", "≤"),
    "gain": ("distance from parity", "<"),
}
"""What each of them is of, and on which side of its limit it has to be."""


def with_text(gates: Mapping[str, Safeguard]) -> dict[str, Safeguard]:
    """Safeguards as results have them, each with a `text` that says it whole."""
    return {name: replace(gate, text=_text(name, gate)) for name, gate in gates.items()}


def missed(gates: Mapping[str, Safeguard]) -> str:
    """The gates that are not kept, in words."""
    return ", ".join(_text(name, gate) for name, gate in gates.items() if not gate.met)


def _text(name: str, gate: Safeguard) -> str:
    """`same answer in both orders 0.412 (not ≥ 0.450)`: the figure of a gate beside its limit."""
    words, sign = SAFEGUARDS[name]
    value = "no value" if gate.value is None else f"{gate.value:.3f}"
    limit = "no limit" if gate.limit is None else f"{'' if gate.met else 'not '}{sign} {gate.limit:.3f}"
    return f"{words} {value} ({limit})"


def safeguards_of(base: Figures, after: Figures) -> dict[str, Safeguard]:
    """Consistency ≥ base − 0.05, relevant-beats-irrelevant ≥ base − 0.01, |P(first) − ½| ≤ max(base's, 0.05).

    A gate whose figure the base does not have holds; one whose figure was lost does not.
    """
    consistency = [figures.mean_over_strata(CONSISTENCY) for figures in (base, after)]
    relevance = [figures.value(RELEVANT_FIRST, "mixed") for figures in (base, after)]
    off = [figures.first_slot_distance() for figures in (base, after)]
    return {
        "consistency": _at_least(consistency[0], consistency[1], CONSISTENCY_LOST),
        "relevance": _at_least(relevance[0], relevance[1], RELEVANCE_LOST),
        "first_slot": _at_most(off[0], off[1]),
    }


def _at_least(before: float | None, after: float | None, lost: float) -> Safeguard:
    if before is None:
        return Safeguard(after, None, True)
    limit = before - lost
    return Safeguard(after, limit, after is not None and after >= limit - 1e-12)


def _at_most(before: float | None, after: float | None) -> Safeguard:
    limit = max(before or 0.0, SLOT_ALLOWED)
    return Safeguard(after, limit, after is not None and after <= limit + 1e-12)


def validate(base: Figures, after: Figures) -> Validation:
    """A checkpoint as its validation pairs show it; one that fails a gate, or gains nothing, is never the best."""
    objective = REJECTED if after.objective is None else after.objective
    gains = base.objective is None or objective < base.objective
    gates = safeguards_of(base, after) | {"gain": Safeguard(after.objective, base.objective, gains)}
    figures = {
        "objective": objective,
        **{f"{SMOOTHED}/{kind}": after.value(SMOOTHED, kind) for kind in PAIR_STRATA},
    }
    met = all(gate.met for gate in gates.values())
    return Validation(objective if met else REJECTED, gates, figures)


# What a finished training comes to: `results.json`, `metrics.csv` and the manifest, from figures alone.


BASE, ADAPTER, BASELINE = "base", "adapter", "logit offset"
"""The three that are measured on the same pairs, as `model` of a row names them."""


def tidy_rows(figures: Mapping[str, Figures], named: Mapping[str, str], words: Words) -> tuple[Row, ...]:
    """Every figure of all test queries, tidy; `model` says whose it is."""
    return tuple(
        row
        for model, of_it in figures.items()
        for row in rows_of(of_it.rows, {**named, "model": model}, words)
    )


def metrics_csv(rows: Iterable[Row]) -> str:
    return csv_text(COLUMNS, lines_of(rows))


def figure_4(before: Figures, after: Figures) -> dict[str, dict[str, AnswersOnPairs]]:
    """The numbers of the paper's Figure 4: shares of answers and their ratio, before and after, by stratum."""
    both = {"before": before, "after": after}
    return {
        stratum: {when: _answers(figures, stratum) for when, figures in both.items()}
        for stratum in PAIR_STRATA
    }


def _answers(figures: Figures, stratum: PairStratum) -> AnswersOnPairs:
    cells, ratio = figures.cells[stratum], _interval(figures.row(SMOOTHED, stratum))
    return AnswersOnPairs(
        **{side.value: _interval(figures.row("WinShare", stratum, side)) for side in Side},
        flipped=_interval(figures.row("FlipRate", stratum)),
        ratio=RatioOfPairs(**asdict(ratio), protected=cells.PP, unprotected=cells.UU),
        pairs=sum(astuple(cells)),
    )


def _interval(row: Measurement) -> Interval:
    return Interval(row.value, row.low, row.high, row.n, row.reason)


def relevance_gap(figures: Figures) -> float | None:
    """How far the four combinations of sides differ in how often the relevant item is preferred."""
    names = (f"{ours.value} over {theirs.value}" for ours, theirs in COMBINATIONS)
    found = [figures.value(RELEVANT_FIRST, "mixed", name) for name in names]
    known = [value for value in found if value is not None]
    return max(known) - min(known) if len(known) == len(COMBINATIONS) else None


def results_of(
    told: Mapping[str, Any],
    figures: Mapping[str, Figures],
    changes: Mapping[str, OddsChange],
    final: Validation,
    training: TrainingFacts,
) -> FinetuneResults:
    """What --json prints. `told` is what the design tells; `final` is the test queries' own verdict on safeguards."""
    return FinetuneResults(
        **told,
        status="rejected" if training.rejected else "complete",
        rows=tidy_rows(
            figures, {name: told[name] for name in ("run", "dataset", "attribute")}, told["words"]
        ),
        findings={model: of_it.findings for model, of_it in figures.items()},
        cells={model: of_it.cells for model, of_it in figures.items()},
        objective={model: of_it.objective for model, of_it in figures.items()},
        relevance_gap={model: relevance_gap(of_it) for model, of_it in figures.items()},
        changes=changes,
        gates_on_test=with_text(final.gates),
        figure_4=figure_4(figures[BASE], figures[ADAPTER]),
        training=training,
    )


def target_counts(pairs: Sequence[TrainingPair]) -> dict[str, dict[str, dict[str, int]]]:
    """Pairs by query, stratum and target; `weight 0` does not count in the loss, `other` is a probability."""
    found: dict[str, dict[str, Counter[str]]] = {}
    for pair in pairs:
        known = pair.target in (0.0, 0.5, 0.9, 1.0)
        name = "weight 0" if not pair.weight else f"{pair.target:g}" if known else "other"
        of_it = found.setdefault(pair.query.query_id, {}).setdefault(pair.stratum, Counter())
        of_it[name] += 1
    return {
        query_id: {stratum: dict(sorted(counts.items())) for stratum, counts in strata.items()}
        for query_id, strata in found.items()
    }
