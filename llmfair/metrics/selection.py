"""What groups get, however many there are: selection rates and impact ratios, and how far lists are from a target.

Groups are those that an audit compares (`Judged.groups_of`), in binary the two sides; an item of none keeps its rank
and counts in no group. Sources: 6 RCNY 5-301 (rates and impact ratios of Local Law 144); Geyik, Ambler & Kenthapadi,
"Fairness-Aware Ranking in Search & Recommendation Systems", KDD 2019 (NDKL); Sakai, Kim & Kang, "A Versatile Framework
for Evaluating Ranked Lists in Terms of Group Fairness and Relevance", ACM TOIS 42(1), 2023 (GFR).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from llmfair.metrics.attention import jensen_shannon
from llmfair.metrics.base import Floats, Got, Judged, OfGroup, Undefined, Values, measure, number, once, whole
from llmfair.metrics.exposure import exposures, position_weights
from llmfair.stats.selection import Codes, normalised_kl, normalised_kl_range

WHY = {
    "no_one": "no list has an item of the group",
    "none_selected": "nobody of the group was selected",
    "reference": "the group is the one that others are held against",
    "reference_not_selected": "nobody of the group that others are held against was selected",
    "no_other_selected": "nobody of another group was selected",
    "one_group": "the lists have items of one group alone",
    "no_scores": "the ranker gives no scores",
    "no_interval": "no interval is known to cover; what chance gives stands beside it",
    "attainable": "it is what orders of these lists can come to, and no estimate",
    "no_relevant": "no item of the list is judged relevant",
    "unknown_items": "some items have no group, so the range is not known",
}
OF_RATES = {"bounds": (0.0, 1.0), "of_all": True, "undefined": WHY, "cite": "6 RCNY 5-301"}
OF_RATIOS = {
    "bounds": (0.0, math.inf), "scale": "log", "aggregate": "impact-ratio", "better": "higher",
}  # fmt: skip
EXPOSURE = "Wang et al. 2024, Eq. 1-2"


def _got(judged: Judged, amount: Floats, weights: Floats | None = None) -> Got:
    attribute = judged.groups.attributes.get(judged.groups.attribute)
    reference = attribute.reference if attribute is not None and attribute.compared == "reference" else ""
    return Got(judged.doc_ids, judged.groups_of, amount, judged.grades, reference, weights)


@once
def _selected(judged: Judged, cutoff: int) -> Got:
    """In which share of the runs each item was among the first k."""
    share = np.zeros(len(judged.doc_ids))
    for order in judged.orders:
        share[order[:cutoff]] += 1 / len(judged.orders)
    return _got(judged, share, (np.arange(len(share)) < cutoff).astype(float))


def _scored(judged: Judged) -> Got | Undefined:
    """Each item's score, the mean of the runs that gave it one."""
    scores = dict[str, list[float]]()
    for ranking in judged.rankings:
        for doc_id, score in zip(ranking.doc_ids, ranking.scores or (), strict=False):
            scores.setdefault(doc_id, []).append(score)
    if not scores:
        return Undefined("no_scores")
    return _got(judged, np.array([np.mean(scores.get(doc_id, math.nan)) for doc_id in judged.doc_ids]))


def _amounts(judged: Judged, cutoff: int | None) -> Got | Undefined:
    """What each item got: a place among the first k, or of a measure without @k its score."""
    return _scored(judged) if cutoff is None else _selected(judged, cutoff)


@once
def _attention(judged: Judged, cutoff: int | None) -> Got:
    """Each item's exposure over the mean of its list, so that lists of any length speak on one scale."""
    weights = position_weights(len(judged.doc_ids), cutoff)
    return _got(judged, exposures(judged, cutoff) / weights.mean(), weights / weights.mean())


def _pooled(
    name: str, got: Callable[[Judged, Any], Got | Undefined], by_group: bool, says: str, **declared: Any
) -> None:
    """Defines a measure of what items got, of each group or of all together."""

    def values(judged: Judged, cutoff: int | None) -> Values:
        of = got(judged, cutoff) if judged.rankings else Undefined("not_ranked")
        groups = judged.names if by_group else ("",)
        return {group: of if isinstance(of, Undefined) else OfGroup(of, group) for group in groups}

    measure(name, says=says, **{**OF_RATES, **declared})(values)


_pooled(
    "SelectionRate", _selected, True,
    "A group's items among the first k of all lists together, over its items in them; of several runs the mean.",
    cutoff="required", aggregate="selection-rate", label="selection rate",
)  # fmt: skip
_pooled(
    "ImpactRatio", _selected, True,
    "A group's selection rate over the highest group's, or over that of a fixed reference (`stats.selection`).",
    **OF_RATIOS, cutoff="required", label="impact ratio",
)  # fmt: skip
_pooled(
    "ImpactRatio(score)", _amounts, True,
    "The share of a group that scores above the median of all items of all lists, over the highest such share.",
    **OF_RATIOS, cutoff="none", label="impact ratio of scores",
)  # fmt: skip
_pooled(
    "ImpactRatio(chance)", _amounts, False,
    "The least impact ratio when labels are dealt at random, one a person over all lists; of scores without @k.",
    aggregate="impact-by-chance", label="least impact ratio by chance",
    note="its limits hold 95 % of what chance gives; p: of a least ratio as small as the one found",
)  # fmt: skip
_pooled(
    "ImpactRatio(least)", _selected, True,
    "The least impact ratio that a group can have in any orders of these lists.",
    cutoff="required", aggregate="least-attainable", label="least attainable impact ratio",
)  # fmt: skip
_pooled(
    "ExpRatio(worst)", _attention, False,
    "The least over the greatest mean exposure of groups, over the items of all lists: 1 where all get alike.\n\n"
    "Exposure is that of `ExpRatio`, over the mean of the item's list. p: of so small a ratio when labels are dealt at "
    "random, one a person over all lists, within grades.",
    cite=EXPOSURE, aggregate="worst-exposure", better="higher", label="worst exposure ratio",
)  # fmt: skip
_pooled(
    "ExpRatio(chance)", _attention, False,
    "`ExpRatio(worst)` when labels are dealt at random, one a person over all lists, within grades.",
    cite=EXPOSURE, aggregate="exposure-by-chance", label="worst exposure ratio by chance",
    note="its limits hold 95 % of what chance gives",
)  # fmt: skip
_pooled(
    "ExpRatio(least)", _attention, False, "The least `ExpRatio(worst)` that any orders of these lists have.",
    cite=EXPOSURE, aggregate="least-attainable", label="least attainable exposure ratio",
)  # fmt: skip


def _target(judged: Judged, target: str) -> tuple[Codes, Floats] | Undefined:
    """The group of every candidate by its place in `names`, -1 for none, shape (n,), and the share that each group
    should have, shape (groups,)."""
    codes = np.full(len(judged.doc_ids), -1)
    for code, members in enumerate(judged.groups_of.values()):
        codes[members] = code
    of = codes[judged.grades > 0] if target == "relevant" else codes
    counts = np.bincount(of[of >= 0], minlength=len(judged.names)).astype(float)
    if target == "uniform":
        counts[:] = 1
    if not judged.rankings or not counts.any() or not (codes >= 0).any():
        return Undefined("no_target" if judged.rankings else "not_ranked")
    return codes, counts / counts.sum()


OF_NDKL = {
    "params": {"target": ("list", "uniform")}, "bounds": (0.0, math.inf), "note": "target {target}",
    "undefined": WHY, "cite": "Geyik et al. 2019",
}  # fmt: skip


@measure("NDKL", **OF_NDKL, better="lower", label="normalised discounted divergence")
def ndkl(judged: Judged, cutoff: int | None, target: str) -> Values:
    """How far the shares of the first i are from the target, over i = 1..k, early ranks counting most; 0 is best.

    KL(shares ‖ target) in nats, each weighted by 1/log2(i + 1), over the sum of weights. `target=list`: the shares of
    the whole list. Ranks before the first item with a group are left out; runs are averaged.
    """
    aimed = _target(judged, target)
    if isinstance(aimed, Undefined):
        return aimed
    runs = [normalised_kl(aimed[0][order], aimed[1], cutoff) for order in judged.orders]
    defined = [value for value in runs if value is not None]
    return float(np.mean(defined)) if defined else Undefined("no_known_group")


def _attainable(end: int, judged: Judged, cutoff: int | None, target: str) -> Values:
    """The least (0) or the greatest (1) NDKL of any order of the list."""
    aimed = _target(judged, target)
    if isinstance(aimed, Undefined):
        return aimed
    codes, shares = aimed
    if (codes < 0).any():
        return Undefined("unknown_items")
    counts = np.bincount(codes, minlength=len(shares))
    return normalised_kl_range(tuple(counts.tolist()), tuple(shares.tolist()), cutoff)[end]


for place, end in enumerate(("least", "greatest")):
    says = f"The {end} NDKL of any order of the list."
    measure(f"NDKL({end})", **OF_NDKL, label=f"{end} attainable divergence", says=says)(
        partial(_attainable, place)
    )


PATIENCE = 0.99
"""What is left of the utility of iRBU for every rank further down."""


@measure(
    "GFR", bounds=(0.0, 1.0), better="higher", label="group fairness and relevance", undefined=WHY,
    params={
        "user": ("ERR", "iRBU"), "target": ("list", "relevant", "uniform"), "relevance": number(0.5, 0, 1),
        "highest": whole(None, 1000),
    },
    note="user {user}, target {target}, relevance weighs {relevance:g}", cite="Sakai, Kim & Kang 2023",
)  # fmt: skip
def group_fairness_relevance(
    judged: Judged, cutoff: int | None, user: str, target: str, relevance: float, highest: int | None
) -> Values:
    """Σ_k Decay(k) (w Utility(k) + (1 − w) Similarity(k)), in [0, 1]: a user who stops at rank k saw k items.

    Decay(k) = p_k Π_{j<k} (1 − p_j), p = (2^g − 1)/2^h of an item of grade g, h the highest grade; Utility(k) is 1/k of
    ERR or .99^k of iRBU; Similarity(k) = 1 − JSD, to base 2, of the groups' shares of the first k and the target, 0
    before the first item with a group. w is `relevance`: 0 leaves group fairness alone. `highest`: h, where it is not
    the highest grade of the query. `no_relevant`: no item judged above 0; runs are averaged.
    """
    aimed, grades = _target(judged, target), judged.grades
    if isinstance(aimed, Undefined):
        return aimed
    if not (grades > 0).any():
        return Undefined("no_relevant")
    codes, shares = aimed
    most = highest or max(judged.candidates.relevance.values())
    stop = (2.0 ** np.clip(grades, 0, most) - 1) / 2.0**most
    ranks = np.arange(1, len(codes) + 1)
    utility = 1 / ranks if user == "ERR" else PATIENCE**ranks
    values = []
    for order in judged.orders:
        decay = stop[order] * np.concatenate([[1.0], np.cumprod(1 - stop[order])[:-1]])
        held = np.cumsum(codes[order, None] == np.arange(len(shares)), axis=0)
        alike = [1 - jensen_shannon(n / n.sum(), shares) / math.log(2) if n.any() else 0.0 for n in held]
        seen = decay * (relevance * utility + (1 - relevance) * np.array(alike))
        values.append(seen[:cutoff].sum())
    return float(np.mean(values))
