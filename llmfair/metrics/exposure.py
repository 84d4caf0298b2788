"""How much attention each side gets: mean exposure of protected and unprotected documents, and its ratio.

Notation [paper A: Wang et al. 2024, "Do Large Language Models Rank Fairly?", Eq. 1-2]: v_a = 1/ln(1 + a) for
rank a = 1..n; Exposure(i) = Σ_a P(i at a) v_a, P the share of the query's runs; E1, E0 = mean exposure of the
protected and of the unprotected documents.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from llmfair.metrics import base
from llmfair.metrics.base import Flags, Floats, Judged, Places, Ratio, Undefined, Values, measure, once
from llmfair.nouns import Ranking, Side
from llmfair.stats.power import rank_exposures


def position_weights(n: int, cutoff: int | None = None) -> Floats:
    """v_a = 1/ln(1 + a) for the ranks a = 1..n, and 0 beyond the cutoff; shape (n,)."""
    weights = rank_exposures(n)
    if cutoff is not None:
        weights[cutoff:] = 0
    return weights


def _absent(protected: Flags, unprotected: Flags) -> Undefined | None:
    """The reason when a side has no document."""
    if protected.any() and unprotected.any():
        return None
    some = "no_unprotected" if protected.any() else "no_protected"
    return Undefined(some if protected.any() or unprotected.any() else "no_group")


def _compared(judged: Judged, unknown: str, stratum: str) -> tuple[Flags, Flags]:
    """Which candidates are compared: protected and unprotected, each of shape (n,)."""
    protected, unprotected = judged.on_side[Side.PROTECTED], judged.on_side[Side.UNPROTECTED]
    if unknown == "unprotected":
        unprotected = ~protected
    if stratum == "none":
        return protected, unprotected
    inside = (judged.grades >= 1) == (stratum == "relevant")
    return protected & inside, unprotected & inside


@once
def exposures(judged: Judged, cutoff: int | None = None) -> Floats:
    """Exposure of every candidate, averaged over the query's runs; shape (n,) [A Eq. 1]."""
    everyone = np.ones(len(judged.doc_ids), bool)
    mean: Floats = _exposures(judged, False, cutoff, "append", everyone, "log").mean(axis=0)
    return mean


@once
def _exposures(
    judged: Judged, before: bool, cutoff: int | None, missing: str, ranked: Flags, weight: str
) -> Floats:
    """Exposure of every candidate in every run of the query, or in what is beside it (`before`); shape (runs, n).

    `missing=zero` gives nothing to what a run did not rank; who is not in `ranked` leaves, ranks are closed.
    """
    rankings = judged.beside if before else judged.rankings
    orders = judged.completed(rankings) if before else judged.orders
    table = np.zeros((len(rankings), len(judged.doc_ids)))
    for exposures, order, ranking in zip(table, orders, rankings, strict=True):
        answered = len(base.kept(ranking.doc_ids, judged.doc_ids)) if missing == "zero" else None
        places = order[:answered]
        places = places[ranked[places]]
        if weight == "top1" and judged.log_weights and ranking.scores is not None:
            exposures[places] = position_weights(1) * _chances_of_first(judged, ranking, places)
        else:
            exposures[places] = position_weights(len(places), 1 if weight == "top1" else cutoff)
    return table


@once
def _mean(judged: Judged, side: Flags, *how: Any) -> float:
    """Mean exposure of a side, over all runs."""
    return float(_exposures(judged, False, *how).mean(axis=0)[side].mean())


@once
def _by_order(judged: Judged, before: bool, side: Flags, *how: Any) -> list[float]:
    """Mean exposure of a side by initial order, of which repeats are averaged; in these orders with `before`."""
    orders = [order for order, _ in judged.runs] or [*range(len(judged.rankings))]
    order_of_run = [[*dict.fromkeys(orders)].index(order) for order in orders]
    means = _exposures(judged, before, *how)[:, side].mean(axis=1)
    of_orders: list[float] = (np.bincount(order_of_run, means) / np.bincount(order_of_run)).tolist()
    return of_orders


def _chances_of_first(judged: Judged, ranking: Ranking, places: Places) -> Floats:
    """P(i at 1) of a Plackett-Luce model: the softmax of its log-weights; what has no score has no chance."""
    scores = dict(zip(reversed(ranking.doc_ids), reversed(ranking.scores or ()), strict=True))
    log_weights = np.array([scores.get(judged.doc_ids[place], -np.inf) for place in places])
    if not np.isfinite(log_weights).any():
        return np.zeros(len(places))
    weights = np.exp(log_weights - log_weights.max())
    chances: Floats = weights / weights.sum()
    return chances


@measure(
    "Exposure", params={"log": ("e", "2")}, bounds=(0.0, math.inf), label="mean exposure",
    cite="Wang et al. 2024, Eq. 2",
)  # fmt: skip
def exposure(judged: Judged, cutoff: int | None, log: str) -> Values:
    """The mean exposure of each group, in natural or binary logarithms: of two E1 and E0 [A Eq. 2].

    log2 figures = ln figures × ln 2.
    """
    if not judged.rankings:
        return dict.fromkeys(judged.names, Undefined("not_ranked"))
    sides = _compared(judged, "keep", "none")
    mean, absent = exposures(judged, cutoff), _absent(*sides) or Undefined("no_group")
    if log == "2":
        mean = mean * np.log(2)
    return {
        group: float(mean[members].mean()) if members.any() else absent
        for group, members in judged.groups_of.items()
    }


COMPARED = {
    "missing": ("append", "zero"),
    "unknown": ("keep", "unprotected", "close"),
    "weight": ("log", "top1"),
    "stratum": ("none", "relevant", "irrelevant"),
}
CONTROL = {"control": ("none", "order")}
OF_RATIOS = {"parity": 1.0, "bounds": (0.0, math.inf), "scale": "log"}


@measure(
    "ExpRatio", params={"agg": ("ratio-of-means", "mean-of-ratios", "geometric"), **COMPARED, **CONTROL},
    **OF_RATIOS, better="parity", aggregate="ratio-of-means", label="exposure ratio",
    of_all=("control", "order"), headline=True, assessed_by="PreferenceOdds",
    reach=("ExpRatio", "agg", "control", "missing"), cite="Wang et al. 2024, Eq. 1-2",
)  # fmt: skip
def exposure_ratio(
    judged: Judged,
    cutoff: int | None,
    agg: str,
    missing: str,
    unknown: str,
    weight: str,
    stratum: str,
    control: str,
) -> Values:
    """E1/E0 over the whole list: 1 at parity, above it protected documents get more exposure each.

    A document of neither side keeps its rank and belongs to neither mean, unless `unknown` says otherwise.
    `control=order` removes what the initial order explains of the sides' exposure, over all queries (`stats.control`).
    """
    if control == "order" and not judged.beside:
        return {}
    if not judged.rankings:
        return Undefined("not_ranked")
    sides = _compared(judged, unknown, stratum)
    ranked = ~judged.on_side[None] if unknown == "close" else np.ones(len(judged.doc_ids), bool)
    return _absent(*sides) or _ratio(judged, *sides, control, cutoff, missing, ranked, weight)


@once
def _ratio(judged: Judged, protected: Flags, unprotected: Flags, control: str, *how: Any) -> Ratio:
    sides, (_, _, ranked, _) = (protected, unprotected), how
    e1, e0 = (_mean(judged, side, *how) for side in sides)
    ratio = Ratio(e1, e0, None if e1 > 0 and e0 > 0 else "zero_exposure")
    if control == "none":
        return ratio
    final, initial = (
        zip(*(_by_order(judged, before, side, *how) for side in sides), strict=True)
        for before in (False, True)
    )
    means = _by_order(judged, True, ranked, *how)
    return replace(ratio, controlled=tuple(map(base.ControlledExposures, final, initial, means)))


@measure("RelevanceRatio", cutoff="none", **OF_RATIOS, aggregate="ratio-of-means", label="relevance ratio")
def relevance_ratio(judged: Judged, cutoff: None) -> Values:
    """M1/M0, the exposure ratio that would remain if groups were shuffled within every grade of relevance.

    ē_r = mean exposure of the n_r documents of grade r that have a side, a_r of them protected:
    M1 = Σ_r a_r ē_r / n1, M0 = Σ_r (n_r − a_r) ē_r / n0. Unjudged documents are of grade 0.
    """
    if not judged.rankings:
        return Undefined("not_ranked")
    protected, unprotected = _compared(judged, "keep", "none")
    if absent := _absent(protected, unprotected):
        return absent
    return _expected(judged, protected, unprotected)


@once
def _expected(judged: Judged, protected: Flags, unprotected: Flags) -> Ratio:
    n1, n0 = int(protected.sum()), int(unprotected.sum())
    mean, sided = exposures(judged), protected | unprotected
    m1 = m0 = 0.0
    for grade in np.unique(judged.grades[sided]):
        members = sided & (judged.grades == grade)
        share = mean[members].mean()
        m1 += share * int((members & protected).sum()) / n1
        m0 += share * int((members & unprotected).sum()) / n0
    return Ratio(float(m1), float(m0))


@measure(
    "ExcessRatio", params=CONTROL, cutoff="none", **OF_RATIOS, better="parity", aggregate="ratio-of-means",
    label="excess ratio", undefined={"single_items": "on average lists have fewer than two items of one group"},
    of_all=("control", "order"), assessed_by="PreferenceOdds", reach=("ExpRatio", "control"),
)  # fmt: skip
def excess_ratio(judged: Judged, cutoff: None, control: str) -> Values:
    """ExpRatio / RelevanceRatio: what is left of the exposure ratio when relevance is accounted for."""
    compared = {name: words[0] for name, words in COMPARED.items()}
    ratio = exposure_ratio.values(judged, None, agg="ratio-of-means", control=control, **compared).get("")
    (by,) = relevance_ratio.values(judged, None).values()
    if isinstance(ratio, Ratio) and isinstance(by, Ratio):
        return base.Quotient(ratio, by, min(int(judged.on_side[side].sum()) for side in Side))
    return {} if ratio is None else ratio
