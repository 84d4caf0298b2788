"""How attention is spread over any number of groups: AWRF, shares, their divergence from a target.

Notation: m(d) = membership row of document d, t = target (`targets.py`); w(r) = attention at rank r = 1..n;
p = Σ_r w(r) m(d_r) over the first k, normalised to sum 1. Sources: metric code of TREC Fair Ranking 2021 and
2022 (AWRF); [paper C: Chen & Fang 2025, FAIR-QR] (KL, product with nDCG).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from llmfair.metrics.base import Floats, Judged, Measure, Places, Product, Undefined, Values, measure, number
from llmfair.metrics.names import parse_measure
from llmfair.metrics.targets import IMPLIES, SPREAD, SPREAD_TO_TARGET, cells, target_shares


def attention_weights(n: int, discount: str = "trec") -> Floats:
    """w(r) of the ranks 1..n: 1/log2(max(r, 2)) (`trec`) or 1/log2(r + 1) (`log2`); shape (n,)."""
    ranks = np.arange(1, n + 1)
    return 1 / np.log2(np.maximum(ranks, 2) if discount == "trec" else ranks + 1)


def kullback_leibler(p: Floats, q: Floats, eps: float = 0.0) -> float:
    """KL(p‖q) = Σ p̃ ln(p̃/q̃) in nats, x̃ = (x + eps)/(1 + G·eps) over G groups, 0·ln 0 = 0; shapes (groups,).

    Both sum to 1; where q is 0, p is too unless eps is given.
    """
    smooth_p, smooth_q = smoothed(p, eps), smoothed(q, eps)
    held = smooth_p > 0
    # a difference of logarithms, since the quotient of tiny shares overflows
    return float(smooth_p[held] @ (np.log(smooth_p[held]) - np.log(smooth_q[held])))


def smoothed(shares: Floats, eps: float) -> Floats:
    """(x + eps)/(1 + G·eps) of shares over G groups, the last axis: none is 0."""
    smooth: Floats = (shares + eps) / (1 + shares.shape[-1] * eps)
    return smooth


def jensen_shannon(p: Floats, q: Floats) -> float:
    """JSD = ½KL(p‖h) + ½KL(q‖h), h = (p + q)/2, in nats: 0 when equal, ln 2 when disjoint; shapes (groups,)."""
    middle = (p + q) / 2
    divergence_mean = (kullback_leibler(p, middle) + kullback_leibler(q, middle)) / 2
    return min(max(divergence_mean, 0.0), math.log(2))  # rounding alone leaves the range


UNITS = {"e": 1.0, "2": math.log(2)}


def _mean(
    judged: Judged, of: Mapping[str, Any], measured: Callable[[Floats, Floats], float | None]
) -> float | Undefined:
    """The mean over the query's runs of what is measured of membership rows, best first, and target."""
    spread = cells(judged.groups, of["over"], of["unknown"])
    target = target_shares(judged, spread, of["target"], of["membership"])
    if isinstance(target, Undefined):
        return target
    rows = spread.rows(judged.doc_ids, of["membership"], of["unlisted"])[:, spread.kept]
    values = [value for order in judged.orders if (value := measured(rows[order], target)) is not None]
    return float(np.mean(values)) if values else _unmeasured(judged)


def _unmeasured(judged: Judged) -> Undefined:
    return Undefined("no_known_group" if judged.rankings else "not_ranked")


@measure(
    "AWRF", params={"log": ("e", "2"), "discount": ("trec", "log2"), **SPREAD_TO_TARGET}, implies=IMPLIES,
    bounds=(0.0, 1.0), better="higher", label="attention-weighted rank fairness",
    note="target {target}, @UNKNOWN {unknown}, logarithms to base {log}, discount {discount}",
    cite="TREC Fair Ranking 2021, 2022, metric code",
)  # fmt: skip
def awrf(judged: Judged, cutoff: int | None, log: str, discount: str, **spread: Any) -> Values:
    """1 − JSD(p, t), in [1 − ln 2, 1], or in [0, 1] with `log=2`; 1 when attention is spread as the target says.

    `no_target`: no listed relevant document, or no mass in t; `no_known_group`: none in the first k of any run.
    Runs are averaged.
    """

    def fairness(rows: Floats, target: Floats) -> float | None:
        mass = attention_weights(len(rows), discount)[:cutoff] @ rows[:cutoff]
        return 1 - jensen_shannon(mass / mass.sum(), target) / UNITS[log] if mass.any() else None

    return _mean(judged, spread, fairness)


def shares_of(rows: Floats) -> Floats | None:
    """Mean membership of the documents with mass, unweighted; shape (groups,). None when none has any."""
    held = rows[rows.any(axis=1)]
    return held.mean(axis=0) if len(held) else None


@measure(
    "Share", params=SPREAD, bounds=(0.0, 1.0), label="share of the list", cite="Chen & Fang 2025, FAIR-QR"
)
def share(
    judged: Judged, cutoff: int | None, unknown: str, over: str | None, membership: str, unlisted: str
) -> Values:
    """Mean membership of the first k documents, by group; unweighted, averaged over runs [paper C].

    With `membership=count` a document counts in full in each of its groups, so shares may sum to more than 1.
    `no_known_group`: no document with mass among the first k.
    """
    spread = cells(judged.groups, over, unknown)
    rows = spread.rows(judged.doc_ids, membership, unlisted)[:, spread.kept]
    runs = [mean for order in judged.orders if (mean := shares_of(rows[order[:cutoff]])) is not None]
    if not runs:
        return dict.fromkeys(spread.names, _unmeasured(judged))
    return dict(zip(spread.names, np.mean(runs, axis=0).tolist(), strict=True))


def least_divergence(target: Floats, k: int, direction: str = "current-target", eps: float = 1e-6) -> float:
    """The least KL that a page of k documents of one group each can have, in nats; target of shape (groups,).

    Exact: KL is a sum over groups of convex terms of each group's share, so that giving documents out one by one,
    each to the group whose term grows least, ends at the minimum.
    """
    smooth = smoothed(target, eps)

    def terms(held: Places) -> Floats:
        shares = smoothed(held / k, eps)
        logarithms = np.log(shares) - np.log(smooth)
        parts: Floats = shares * logarithms if direction == "current-target" else -smooth * logarithms
        return parts

    held = np.zeros(target.size, dtype=np.intp)
    for _ in range(k):
        held[np.argmin(terms(held + 1) - terms(held))] += 1
    pair = (held / k, target) if direction == "current-target" else (target, held / k)
    return kullback_leibler(*pair, eps)


@measure(
    "KL", implies=IMPLIES, bounds=(0.0, math.inf), better="lower", label="divergence from the target",
    params={
        "direction": ("current-target", "target-current"), "eps": number(1e-6, 0, 1, ends=False),
        **SPREAD_TO_TARGET,
    },
    note="{direction}, target {target}, @UNKNOWN {unknown}, natural logarithms, eps {eps:g}",
    cite="Chen & Fang 2025, FAIR-QR",
)  # fmt: skip
def divergence(judged: Judged, cutoff: int | None, direction: str, eps: float, **spread: Any) -> Values:
    """KL of the shares of the first k and the target, in nats, both smoothed by eps; 0 when equal [paper C].

    The paper states neither direction nor smoothing; in `target-current` eps decides the value where a group is
    missing. Undefined as `AWRF`; runs are averaged.
    """

    def divergence_of(rows: Floats, target: Floats) -> float | None:
        shares = shares_of(rows[:cutoff])
        if shares is None:
            return None
        current = shares / shares.sum()
        if direction == "current-target":
            return kullback_leibler(current, target, eps)
        return kullback_leibler(target, current, eps)

    return _mean(judged, spread, divergence_of)


@cache
def _ndcg(discount: str, ideal: int | None, cutoff: int | None) -> Measure:
    written = ["discount=trec"] * (discount == "trec") + [f"ideal={ideal}"] * (ideal is not None)
    return parse_measure(f"nDCG({','.join(written)})" + ("" if cutoff is None else f"@{cutoff}"))


@measure(
    "nDCGxAWRF",
    params={
        "agg": ("product-of-means", "mean-of-products"), "discount": ("own", "trec", "log2"), "ideal": None,
        "log": ("e", "2"), **SPREAD_TO_TARGET,
    },
    implies=IMPLIES, bounds=(0.0, 1.0), better="higher", aggregate="product-of-means", label="nDCG × AWRF",
    lifted_by="ideal",  # which may be less than the cutoff
    note="{agg}, target {target}, @UNKNOWN {unknown}, logarithms to base {log}, discount {discount}",
    cite="Chen & Fang 2025, FAIR-QR, Table 1; TREC Fair Ranking 2021, 2022",
)  # fmt: skip
def ndcg_awrf(
    judged: Judged, cutoff: int | None, agg: str, discount: str, ideal: int | None, **spread: Any
) -> Values:
    """nDCG · AWRF of each query; by default both are averaged first, over the queries that have both [paper C].

    `discount=own` leaves each factor its default (nDCG that of trec_eval, AWRF that of the track). The official
    score is `agg=mean-of-products,discount=trec`. Undefined where a factor is, for its reason.
    """
    weights = "trec" if discount == "own" else discount
    fairness = awrf.values(judged, cutoff, discount=weights, **spread)[""]
    utility = _ndcg(discount, ideal, cutoff).values(judged)[""]
    for factor in (utility, fairness):
        if isinstance(factor, Undefined):
            return factor
    assert isinstance(utility, float) and isinstance(fairness, float)
    return Product(utility, fairness)
