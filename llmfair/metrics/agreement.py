"""How alike two rankings of one query are: each run beside the one it is held against (`Judged.beside`).

A condition's rankings are held against their initial orders; between two prompts, each ranking against what the
other prompt made of the same order. Identical prompts already differ, so neutral asked twice is the floor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np

from llmfair.metrics.base import Judged, Places, Undefined, Value, Values, measure, number

_BESIDE = {"cutoff": "none", "better": "higher", "agreement": True}


def rank_biased_overlap(a: Places, b: Places, p: float) -> float:
    """RBO of two permutations of the same n items, extrapolated [Webber et al. 2010, RBO_EXT].

    (1 − p)/p Σ_{d ≤ n} A_d p^d + A_n p^n, A_d = share of the first d that both have.
    """
    n = len(a)
    ranks = np.empty((2, n), dtype=np.intp)
    ranks[0, a] = ranks[1, b] = np.arange(n)
    # an item is among the first d of both from d = its worse rank on
    shared = np.bincount(ranks.max(axis=0), minlength=n).cumsum()
    depth = np.arange(1, n + 1)
    agreement = shared / depth
    return float((1 - p) / p * (agreement @ p**depth) + agreement[-1] * p**n)


def kendall_tau(a: Places, b: Places) -> float:
    """Kendall tau of two permutations of the same n ≥ 2 items: 1 − 4 inversions / (n(n − 1))."""
    n = len(a)
    rank_in_b = np.empty(n, dtype=np.intp)
    rank_in_b[b] = np.arange(n)
    of_a = rank_in_b[a]
    return float(1 - 4 * np.triu(of_a[:, None] > of_a).sum() / (n * (n - 1)))


def _mean(judged: Judged, agreement: Callable[[Places, Places], float]) -> Values:
    """The mean agreement of the runs with what they are held against."""
    if not judged.beside:
        return {}
    if not judged.rankings or len(judged.doc_ids) < 2:
        return Undefined("too_few_common" if judged.rankings else "not_ranked")
    pairs = zip(judged.orders, judged.completed(judged.beside), strict=True)
    return float(np.mean([agreement(*pair) for pair in pairs]))


@measure(
    "RBO", params={"p": number(0.9, 0, 1, ends=False)}, bounds=(0.0, 1.0), label="rank-biased overlap",
    cite="Webber, Moffat, Zobel 2010", **_BESIDE,
)  # fmt: skip
def rbo(judged: Judged, cutoff: None, p: float) -> Values:
    """Rank-biased overlap with the ranking beside: 1 for the same order, heads weigh most."""
    return _mean(judged, lambda a, b: rank_biased_overlap(a, b, p))


@measure("Tau", bounds=(-1.0, 1.0), label="Kendall tau", cite="Kendall 1938", **_BESIDE)
def tau(judged: Judged, cutoff: None) -> Values:
    """Kendall tau with the ranking beside: 1 for the same order, −1 for its reverse."""
    return _mean(judged, kendall_tau)


@measure(
    "Consistency", cutoff="none", bounds=(-1.0, 1.0), label="consistency", worded=True, cite="Kendall 1938",
    note="Kendall tau between the rankings of one list from different initial orders, mean over pairs of them",
    undefined={
        "single_order": "the list was ranked once, so nothing says how far another order would differ",
        "too_few_common": "a list of one item has one order",
    },
)  # fmt: skip
def consistency(judged: Judged, cutoff: None) -> Value:
    """How alike the rankings of one list are: 1 where the order that it was shown in makes no difference."""
    return consistent([*combinations(judged.orders, 2)], len(judged.doc_ids))


def consistent(pairs: Sequence[tuple[Places, Places]], n: int) -> Value:
    """The mean Kendall tau of pairs of rankings of one list of n."""
    if n < 2 or not pairs:
        return Undefined("too_few_common" if pairs else "single_order")
    return float(np.mean([kendall_tau(ranking, other) for ranking, other in pairs]))
