"""The pair odds behind an exposure ratio: read off rankers with planted preferences, on the audit's own lists.

Exposure compresses preference: how much depends on the lengths of lists and windows, and on how well a ranker
tells relevant documents from others, for where relevance decides there is less left to prefer. So the planted
rankers see the same lists through the same windows, and are as useful as the ranker that was audited.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, log

import numpy as np
from numpy.typing import NDArray

from llmfair.stats.planted import kind_exposures, random_lists, rank_exposures, rank_planted
from llmfair.stats.reach import Plan

Floats = NDArray[np.float64]
Cells = tuple[tuple[int, int, int], ...]
"""A list's documents as (side, grade, how many), sorted; side 0 is protected, 1 unprotected, 2 neither."""

_STEPS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
BETAS = (*(-beta for beta in reversed(_STEPS)), 0.0, *_STEPS)
"""The planted log pair odds of a curve, rising and symmetric about 0."""
_MIDDLE = len(_STEPS)
ALPHAS = (-2.0, -1.0, 0.0, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
"""The planted log-weights of each grade of relevance."""
CERTAIN = 50.0
"""Log-weights of relevance are cut to ± this: farther apart no order is ever lost."""
FLAT = 1.01
"""Where all ratios lie within this factor, no preference can be told: the sides share no grade."""
BLOCK = 100
"""Draws simulated at once."""


@dataclass(frozen=True, slots=True)
class OddsCurve:
    """The exposure ratio that a planted preference of e^β in every pair shows; `ratios` never fall over `betas`."""

    betas: tuple[float, ...]
    ratios: tuple[float, ...]

    @property
    def low(self) -> float:
        """The lowest ratio that has pair odds."""
        return self.ratios[0]

    @property
    def high(self) -> float:
        """The highest ratio that has pair odds."""
        return self.ratios[-1]

    @property
    def flat(self) -> bool:
        """Whether no preference shows at all."""
        return self.high < FLAT * self.low

    def odds(self, ratio: float) -> float | None:
        """The pair odds behind an exposure ratio, β linear in ln R between grid points; None: out of reach.

        Where the curve is flat these are the odds nearest to 1, so a ratio of 1 always means odds of 1.
        """
        if not self.low <= ratio <= self.high:
            return None
        sign = 1 if ratio >= 1 else -1
        points = zip(self.betas, self.ratios, strict=True)
        nearest: dict[float, float] = {}
        for beta, level in sorted((sign * b, sign * log(r)) for b, r in points):
            if beta >= 0:
                nearest.setdefault(level, beta)
        return exp(sign * float(np.interp(sign * log(ratio), [*nearest], [*nearest.values()])))

    def ratio(self, odds: float) -> float:
        """The exposure ratio that pair odds show. Raises ValueError for odds beyond the grid."""
        if not exp(self.betas[0]) <= odds <= exp(self.betas[-1]):
            raise ValueError(f"pair odds of {odds} lie beyond the curve")
        return exp(float(np.interp(log(odds), self.betas, np.log(self.ratios))))


@dataclass(frozen=True, slots=True)
class OddsSurface:
    """The excess ratio of a ranker with preference β, and how useful it is, for every weight of relevance α.

    Usefulness is the mean exposure of relevant documents over that of others (ratio of means), 1 by chance.
    `ratios` and `usefulness` have one row for each of `alphas`, one column for each of `betas`.
    """

    betas: tuple[float, ...]
    alphas: tuple[float, ...]
    ratios: tuple[tuple[float, ...], ...]
    usefulness: tuple[tuple[float, ...], ...]

    def curve(self, usefulness: float | None = None, ratio: float = 1.0) -> OddsCurve:
        """The curve of rankers as useful as one that shows this ratio; None: of rankers blind to relevance.

        For every α the ratio gives a β, and both a usefulness: α is where that is the one observed.
        """
        place = float(self.alphas.index(0.0))
        if usefulness is not None:
            levels = []
            for ratios, useful in zip(self.ratios, self.usefulness, strict=True):
                beta = np.interp(log(ratio), np.log(ratios), self.betas)
                levels.append(float(np.interp(beta, self.betas, np.log(useful))))
            place = float(np.interp(log(usefulness), np.maximum.accumulate(levels), range(len(levels))))
        rows = np.log(np.array(self.ratios))
        found = [np.interp(place, range(len(self.alphas)), column) for column in rows.T]
        return OddsCurve(self.betas, tuple(np.exp(found).tolist()))


def odds_surface(
    lists: Sequence[Cells], windows: Plan, passes: int, draws: int = 1200, *, rng: np.random.Generator
) -> OddsSurface:
    """The excess ratios (ratio of means) of rankers with log-weights α on each grade and ±β/2 on the sides.

    Documents of neither side weigh between the two, so that swapping the sides inverts the odds, and enter no
    mean; a list that lacks a side counts for nothing (no list left: ValueError). `draws` lists per ranker are
    shared out over the shapes; all rankers see the same initial lists and the same noise.

    Two exposures of each draw have a known mean: the initial one, v̄ of its list, and that at β = 0, the mean M_g
    of the side's grades. Both are control variates, E_g* = E_g − λ_g x, λ_g by least squares over all draws.
    """
    shapes = Counter(filter(two_sided, lists))
    if not shapes:
        raise ValueError("no list has documents of both sides")
    alphas = ALPHAS if any(parts[:, 4].any() for parts in map(_parts, shapes)) else (0.0,)
    # Axes: α, β, side g, control. Σ over lists of means; Σ over draws of centred E_g x and x xᵀ.
    sums = np.zeros((len(alphas), len(BETAS), 6))
    shift = np.zeros((len(alphas), 2, 2))
    cross, gram = np.zeros((len(alphas), len(BETAS), 2, 2)), np.zeros((len(alphas), 2, 2, 2))
    for cells, count in shapes.items():
        n, share = length(cells), ceil(draws * count / shapes.total())
        kinds, log_weights = random_lists([k[2] for k in cells], share, rng=rng), _log_weights(cells, alphas)
        blocks = [kinds[first : first + BLOCK] for first in range(0, share, BLOCK)]
        parts = _parts(cells)
        found = np.concatenate(
            [_ranked(block, log_weights, windows(n), passes, rng) @ parts for block in blocks], axis=2
        )
        mean = np.mean(rank_exposures(n))
        initial = (kind_exposures(kinds, len(cells)) @ parts)[..., :2] - mean
        controls = np.empty((len(alphas), share, 2, 2))
        controls[..., 0], controls[..., 1] = initial, found[:, _MIDDLE, :, :2] - found[:, _MIDDLE, :, 2:4]
        centred = controls - controls.mean(axis=1, keepdims=True)
        sums += count * found.mean(axis=2)
        shift += count * controls.mean(axis=1)
        cross += np.einsum("abdg,adgc->abgc", found[..., :2], centred)
        gram += np.einsum("adgc,adgk->agck", centred, centred)
    slopes = np.einsum("abgc,agck->abgk", cross, np.linalg.pinv(gram, rcond=1e-9))
    sides = sums[..., :2] - (slopes * shift[:, None]).sum(axis=-1)
    logs = np.log(sides[..., 0] / sides[..., 1]) - np.log(sums[..., 2] / sums[..., 3])
    useful = sums[..., 4] / sums[..., 5] if len(alphas) > 1 else np.ones_like(logs)
    return OddsSurface(BETAS, alphas, tuple(map(_monotone, logs)), tuple(map(tuple, useful.tolist())))


def length(cells: Cells) -> int:
    """How many documents a list has."""
    return sum(count for _, _, count in cells)


def two_sided(cells: Cells) -> bool:
    """Whether a list has documents of both sides."""
    return {0, 1} <= {side for side, _, _ in cells}


def _log_weights(cells: Cells, alphas: Sequence[float]) -> Floats:
    """α·grade, and ±β/2 by side, of every ranker and kind; shape (α, β, 1, kinds)."""
    grades = np.array([grade for _, grade, _ in cells])
    sides = np.array([(0.5, -0.5, 0.0)[side] for side, _, _ in cells])
    relevance = np.clip(np.multiply.outer(np.array(alphas), grades), -CERTAIN, CERTAIN)
    weights: Floats = (
        relevance[:, None, None, :] + np.multiply.outer(np.array(BETAS), sides)[None, :, None, :]
    )
    return weights


def _ranked(
    kinds: NDArray[np.uint8],
    log_weights: Floats,
    windows: Sequence[tuple[int, int]],
    passes: int,
    rng: np.random.Generator,
) -> Floats:
    """Mean exposures of the kinds in the final lists of every ranker; shape (α, β, draws, kinds)."""
    rankers = np.broadcast_to(kinds, (*log_weights.shape[:2], *kinds.shape))
    ranked = rank_planted(rankers, log_weights, windows, passes, rng=rng)
    return kind_exposures(ranked, log_weights.shape[-1])


def _parts(cells: Cells) -> Floats:
    """What exposures of kinds are multiplied with to give E1, E0, M1, M0, and those of relevant and other ones."""
    sides, grades, counts = np.array(cells).T
    parts = np.zeros((len(cells), 6))
    for side in (0, 1):
        own = np.where(sides == side, counts, 0)
        parts[:, side] = own / own.sum()
        for grade in set(grades.tolist()):  # each of the side's documents as the mean of its grade
            members = np.where((grades == grade) & (sides != 2), counts, 0)
            parts[:, 2 + side] += own[grades == grade].sum() / own.sum() * members / max(members.sum(), 1)
    relevant, others = (
        np.where((sides != 2) & (grades >= 1), counts, 0),
        np.where((sides != 2) & (grades < 1), counts, 0),
    )
    if relevant.any() and others.any():  # else the list knows no usefulness
        parts[:, 4], parts[:, 5] = relevant / relevant.sum(), others / others.sum()
    return parts


def _monotone(log_ratios: Floats) -> tuple[float, ...]:
    """exp of ln R by β: exactly 1 at β = 0, and never falling by a running maximum."""
    pinned = log_ratios - log_ratios[_MIDDLE]
    pinned[:_MIDDLE] = np.minimum(pinned[:_MIDDLE], 0)
    return tuple(np.exp(np.maximum.accumulate(pinned)).tolist())
