"""What the initial orders did to the exposure of both sides: taken out, and how much is left of it.

A ranking keeps part of the order it started from. Over random orders that adds noise and no bias, and since the
initial orders are known, most of that noise can be subtracted: a control variate. What remains between runs of
one query is run noise: how far other orders would have moved the figure, on this very benchmark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RunNoise:
    """Standard error of ln R over other initial orders of the same queries, with its degrees of freedom."""

    error: float
    df: int


def without_favour(sides: Sequence[Floats], favour: Sequence[Floats]) -> list[Floats]:
    """E* = E − λ x for each query's runs, λ = Σ x (E − Ē)/Σ x² over all queries' runs (0 where no x varies).

    `sides` holds, per query, a side's mean exposure in every run, shape (runs,); `favour` x, alike, that side's
    exposure in the initial order minus the list's mean.
    """
    x, e = np.concatenate(favour), np.concatenate(sides)
    spread = float(x @ x)
    slope = float(x @ (e - e.mean())) / spread if spread else 0.0
    return [final - slope * initial for final, initial in zip(sides, favour, strict=True)]


def run_noise(over: Floats, under: Floats) -> RunNoise | None:
    """√(Σ (d_kq − d̄_q)²/(Q(K−1))/(KQ)), d_kq = E1_kq/Ē1 − E0_kq/Ē0; arrays of shape (K runs, Q queries).

    None with fewer than two runs of a query.
    """
    runs, queries = over.shape
    if runs < 2:
        return None
    scores = over / over.mean() - under / under.mean()
    df = queries * (runs - 1)
    within = np.sum((scores - scores.mean(axis=0)) ** 2) / df
    return RunNoise(float(np.sqrt(within / (runs * queries))), df)


def slope_on_initial(final: Floats, initial: Floats) -> float | None:
    """Least-squares slope of ln(E1/E0) of final on initial lists over all runs; None where no input varies.

    Near 1 the figure mirrors the input, near 0 it has forgotten it. Arrays of shape (runs,).
    """
    x = initial - initial.mean()
    spread = float(x @ x)
    return float(x @ (final - final.mean())) / spread if spread > 1e-12 else None
