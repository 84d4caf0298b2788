"""How much attention each side gets: mean exposure of protected and unprotected documents, and its ratio.

Notation [paper A: Wang et al. 2024, "Do Large Language Models Rank Fairly?", Eq. 1-2]: v_a = 1/ln(1 + a) for
rank a = 1..n; Exposure(i) = Σ_a P(i at a) v_a, P the share of the query's runs; E1, E0 = mean exposure of the
protected and of the unprotected documents.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from llmfair.metrics.base import Judged, Ratio, Undefined, Value, measure
from llmfair.records import Ranking, Side

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def position_weights(n: int, cutoff: int | None = None) -> Floats:
    """v_a = 1/ln(1 + a) for the ranks a = 1..n, and 0 beyond the cutoff; shape (n,)."""
    weights = 1 / np.log1p(np.arange(1, n + 1))
    if cutoff is not None:
        weights[cutoff:] = 0
    return weights


def reach(
    n: int, n_protected: int, n_unprotected: int, cutoff: int | None = None
) -> tuple[Ratio | Undefined, Ratio | Undefined]:
    """Lowest and highest exposure ratio of a list of n; documents of neither side stand in the middle.

    Highest: mean(v_1..v_n1) / mean(v_{n−n0+1}..v_n); lowest: mean(v_{n−n1+1}..v_n) / mean(v_1..v_n0).
    """
    absent = _absent(n_protected, n_unprotected)
    if absent:
        return Undefined(absent), Undefined(absent)
    v = position_weights(n, cutoff)
    return (
        _ratio(v[n - n_protected :].mean(), v[:n_unprotected].mean()),
        _ratio(v[:n_protected].mean(), v[n - n_unprotected :].mean()),
    )


def _ratio(protected: float, unprotected: float) -> Ratio:
    reason = None if protected > 0 and unprotected > 0 else "zero_exposure"
    return Ratio(float(protected), float(unprotected), reason)


def _absent(n_protected: int, n_unprotected: int) -> str | None:
    """The reason when a side has no document."""
    if not n_protected:
        return "no_protected" if n_unprotected else "no_group"
    return None if n_unprotected else "no_unprotected"


def _compared(judged: Judged, unknown: str, stratum: str) -> tuple[Flags, Flags]:
    """Which candidates are compared: protected and unprotected, each of shape (n,)."""
    protected, unprotected = judged.on_side(Side.PROTECTED), judged.on_side(Side.UNPROTECTED)
    if unknown == "unprotected":
        unprotected = ~protected
    if stratum == "none":
        return protected, unprotected
    inside = (judged.grades >= 1) == (stratum == "relevant")
    return protected & inside, unprotected & inside


def _exposures(judged: Judged, cutoff: int | None, missing: str, ranked: Flags, weight: str) -> Floats:
    """Exposure of every candidate, averaged over the query's runs; shape (n,) [A Eq. 1].

    `missing=zero` gives nothing to what a run did not rank; who is not in `ranked` leaves, ranks are closed.
    """
    exposures = np.zeros(len(judged.doc_ids))
    for order, answered, ranking in zip(judged.orders, judged.answered, judged.rankings, strict=True):
        places = order[: answered if missing == "zero" else None]
        places = places[ranked[places]]
        if weight == "top1" and judged.log_weights and ranking.scores is not None:
            exposures[places] += position_weights(1) * _chances_of_first(judged, ranking, places)
        else:
            exposures[places] += position_weights(len(places), 1 if weight == "top1" else cutoff)
    return exposures / len(judged.rankings)


def _chances_of_first(judged: Judged, ranking: Ranking, places: NDArray[np.intp]) -> Floats:
    """P(i at 1) of a Plackett-Luce model: the softmax of its log-weights; what has no score has no chance."""
    scores = dict(zip(reversed(ranking.doc_ids), reversed(ranking.scores or ()), strict=True))
    log_weights = np.array([scores.get(judged.doc_ids[place], -np.inf) for place in places])
    if not np.isfinite(log_weights).any():
        return np.zeros(len(places))
    weights = np.exp(log_weights - log_weights.max())
    chances: Floats = weights / weights.sum()
    return chances


@measure("Exposure", params={"log": ("e", "2")}, label="mean exposure", cite="Wang et al. 2024, Eq. 2")
def exposure(judged: Judged, cutoff: int | None, log: str) -> Mapping[str, Value]:
    """E1 and E0, in natural or binary logarithms (log2 figures = ln figures × ln 2) [A Eq. 2]."""
    if not judged.rankings:
        return dict.fromkeys(Side, Undefined("not_ranked"))
    sides = dict(zip(Side, _compared(judged, "keep", "none"), strict=True))
    exposures = _exposures(judged, cutoff, "append", np.ones(len(judged.doc_ids), bool), "log")
    if log == "2":
        exposures *= np.log(2)
    reason = _absent(*(int(members.sum()) for members in sides.values()))
    return {
        side: float(exposures[members].mean()) if members.any() else Undefined(str(reason))
        for side, members in sides.items()
    }


def _list_reach(
    judged: Judged, cutoff: int | None, unknown: str, weight: str, stratum: str, **_: str
) -> tuple[Value, Value]:
    """The reach of a ranker that ranks every candidate of this query."""
    protected, unprotected = (int(members.sum()) for members in _compared(judged, unknown, stratum))
    known = judged.on_side(Side.PROTECTED) | judged.on_side(Side.UNPROTECTED)
    n = int(known.sum()) if unknown == "close" else len(judged.doc_ids)
    return reach(n, protected, unprotected, 1 if weight == "top1" else cutoff)


@measure(
    "ExpRatio",
    params={
        "agg": ("ratio-of-means", "mean-of-ratios", "geometric"),
        "missing": ("append", "zero"),
        "unknown": ("keep", "unprotected", "close"),
        "weight": ("log", "top1"),
        "stratum": ("none", "relevant", "irrelevant"),
    },
    parity=1.0,
    scale="log",
    better="parity",
    aggregate="ratio-of-means",
    reach=_list_reach,
    label="exposure ratio",
    cite="Wang et al. 2024, Eq. 1-2",
)
def exposure_ratio(
    judged: Judged, cutoff: int | None, agg: str, missing: str, unknown: str, weight: str, stratum: str
) -> Mapping[str, Value]:
    """E1/E0 over the whole list: 1 at parity, above it the protected side gets more exposure per document.

    A document of neither side keeps its rank and belongs to neither mean, unless `unknown` says otherwise.
    The ratio does not depend on the base of the logarithm.
    """
    if not judged.rankings:
        return {"": Undefined("not_ranked")}
    protected, unprotected = _compared(judged, unknown, stratum)
    reason = _absent(int(protected.sum()), int(unprotected.sum()))
    if reason:
        return {"": Undefined(reason)}
    everyone = np.ones(len(judged.doc_ids), bool)
    ranked = ~judged.on_side(None) if unknown == "close" else everyone
    exposures = _exposures(judged, cutoff, missing, ranked, weight)
    return {"": _ratio(exposures[protected].mean(), exposures[unprotected].mean())}
