"""Injected Plackett-Luce rankers behind a window plan: what a ranker of known preferences makes of lists.

Documents of one kind (say, side × grade) are interchangeable, so a list is the kinds of its documents by rank.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Kinds = NDArray[np.uint8]
Floats = NDArray[np.float64]

WIDEST = 120.0
"""The log-weights of one list lie at most this far apart: e^±60 times a draw stays well inside single precision,
and odds of e^120 are already never lost."""


def rank_injected(
    kinds: Kinds,
    log_weights: ArrayLike,
    windows: Sequence[tuple[int, int]],
    passes: int,
    *,
    rng: np.random.Generator,
    kept: float = 0.0,
) -> Kinds:
    """The final lists of a ranker that sorts each window by log-weight + Gumbel(0,1), drawn anew per window.

    `kinds`, shape (…, draws, n), is the initial lists' kinds by rank. `log_weights`, shape (kinds,) or any that
    broadcasts to (…, draws, kinds), weighs each kind. Axes before `draws` share one draw of the noise: common
    random numbers for several rankers. `kept` is the share of windows left as they are, as by answers that
    cannot be read. Raises ValueError for a kind without weight, for weights of one list more than `WIDEST`
    apart, and for a share outside [0, 1].

    Source: Plackett-Luce as a race whose arrival times are Exp(1)/weight, the same order as the Gumbel form.
    """
    if not 0 <= kept <= 1:
        raise ValueError(f"a share of {kept} kept windows")
    delays = _delays(np.asarray(log_weights, np.float64))
    count = delays.shape[-1]
    if kinds.size and kinds.max() >= count:
        raise ValueError(f"a document of kind {kinds.max()}, but weights of {count} kinds")
    rows = count * np.arange(delays.size // count).reshape(*delays.shape[:-1], 1)
    lists = kinds.copy()
    # A kind travels in the b low bits of its arrival time: floats above 0 order as the integers of the same
    # bits, and sorting integers is many times faster than an argsort. It does no harm: only two arrivals that
    # agree in all 23 - b upper bits of the mantissa are ordered by kind, about one pair in 2^(25 - b).
    low_bits = (1 << (count - 1).bit_length()) - 1
    for start, end in [*windows] * passes:
        shown = lists[..., start:end]
        draws, size = shown.shape[-2:]
        arrivals = delays.take(rows + shown)
        arrivals *= rng.standard_exponential((draws, size), dtype=np.float32)
        keys = arrivals.view(np.int32)
        keys &= ~low_bits
        keys |= shown
        keys.sort(axis=-1)
        keys &= low_bits
        answered = rng.random((draws, 1)) >= kept if kept else True
        np.copyto(shown, keys, casting="unsafe", where=answered)
    return lists


def kind_exposures(kinds: Kinds, n_kinds: int) -> Floats:
    """The mean exposure of each kind in each list, v_a = 1/ln(1+a) at rank a; 0 for a kind that is absent.

    `kinds` has shape (…, n), the result (…, n_kinds).
    """
    weights = rank_exposures(kinds.shape[-1])
    exposures = np.zeros((*kinds.shape[:-1], n_kinds))
    for kind in range(n_kinds):
        held = kinds == kind
        exposures[..., kind] = held @ weights / np.maximum(held.sum(axis=-1), 1)
    return exposures


def random_lists(counts: Sequence[int], draws: int, *, rng: np.random.Generator) -> Kinds:
    """Independent uniform orders of a list with `counts` documents of kinds 0, 1, …; shape (draws, n)."""
    one = np.repeat(np.arange(len(counts), dtype=np.uint8), counts)
    return rng.permuted(np.tile(one, (draws, 1)), axis=1)


def _delays(log_weights: Floats) -> NDArray[np.float32]:
    """e^−log-weight, of each list about the middle of its range, so that neither end over- nor underflows."""
    top, bottom = log_weights.max(axis=-1, keepdims=True), log_weights.min(axis=-1, keepdims=True)
    if not (top - bottom <= WIDEST).all():
        raise ValueError(f"log-weights of one list more than {WIDEST:g} apart, or not numbers")
    delays: NDArray[np.float32] = np.exp((top + bottom) / 2 - log_weights).astype(np.float32)
    return delays


def rank_exposures(n: int) -> Floats:
    """v_a = 1/ln(1+a) for the ranks a = 1 … n; shape (n,). Raises ValueError for an empty list."""
    if n < 1:
        raise ValueError(f"a list of {n} documents")
    exposures: Floats = 1 / np.log1p(np.arange(1, n + 1))
    return exposures
