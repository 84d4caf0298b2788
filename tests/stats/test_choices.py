"""Choices among several items, as a conditional logit: against plain likelihoods, and against comparisons of two."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from llmfair.stats.preference import Alternatives, Comparisons, preference_fit

Floats = NDArray[np.float64]


def drawn(
    rng: np.random.Generator, beta: float, gamma: float, sizes: tuple[int, int], sets: int
) -> Comparisons:
    """A query's choices by an injected ranker; the chosen item stands first in its set."""
    first, slots, starts = list[float](), list[float](), list[int]()
    for _ in range(sets):
        n = int(rng.integers(*sizes))
        groups = np.zeros(n)
        groups[: int(rng.integers(1, n))] = 1
        z = np.linspace(-1, 1, n)[rng.permutation(n)]
        best = int(np.argmax(beta * groups + gamma * z + rng.gumbel(size=n)))
        order = [best, *(place for place in range(n) if place != best)]
        starts.append(len(first))
        first += groups[order].tolist()
        slots += z[order].tolist()
    chosen = Alternatives(np.array(first), np.array(slots), np.array(starts))
    return Comparisons(chosen.first[chosen.starts], np.ones(sets), chosen=chosen)


def test_it_maximises_the_likelihood_of_the_choices() -> None:
    rng = np.random.default_rng(4)
    queries = [drawn(rng, -0.7, 0.8, (3, 6), 12) for _ in range(9)]
    fit = preference_fit(queries, 5)
    assert fit is not None

    def unlikely(coefficients: Floats) -> float:
        total = 0.0
        for query in queries:
            assert query.chosen is not None and query.chosen.slots is not None
            ends = [*query.chosen.starts[1:], len(query.chosen.first)]
            for start, end in zip(query.chosen.starts, ends, strict=True):
                z = query.chosen.slots[start:end]
                design = np.stack([query.chosen.first[start:end], z, z**2, z**3, z**4], axis=1)
                logs = design @ coefficients
                total += (np.log(np.exp(logs).sum()) - logs[0]) / len(query.total)
        return total

    found = minimize(unlikely, np.zeros(5), method="BFGS", options={"gtol": 1e-9})
    assert fit.coefficients == pytest.approx(found.x, abs=1e-5)
    assert fit.comparisons == 9 * 12
    # leaving a query out moves the maximum by about one Newton step
    least = [
        minimize(lambda c, out=out: unlikely_without(queries, out, c), fit.coefficients).x[0]
        for out in range(2)
    ]
    assert fit.log_odds - np.array(least) == pytest.approx(fit.changes[:2, 0], abs=0.05)


def unlikely_without(queries: list[Comparisons], out: int, coefficients: Floats) -> float:
    total = 0.0
    for query in (one for number, one in enumerate(queries) if number != out):
        assert query.chosen is not None and query.chosen.slots is not None
        sets = np.split(np.arange(len(query.chosen.first)), query.chosen.starts[1:])
        for places in sets:
            z = query.chosen.slots[places]
            logs = np.stack([query.chosen.first[places], z, z**2, z**3, z**4], axis=1) @ coefficients
            total += float(np.log(np.exp(logs).sum()) - logs[0]) / len(query.total)
    return total


def test_choices_among_two_are_comparisons() -> None:
    rng = np.random.default_rng(5)
    choices = [drawn(rng, 0.5, 0.4, (2, 3), 15) for _ in range(8)]
    pairs = []
    for query in choices:
        assert query.chosen is not None and query.chosen.slots is not None
        z = query.chosen.slots.reshape(-1, 2)
        won = query.ahead.astype(bool)
        slots = np.where(won[:, None], z, z[:, ::-1])
        pairs.append(Comparisons(query.ahead, query.total, slots))
    one, other = preference_fit(choices, 2), preference_fit(pairs, 2)
    assert one is not None and other is not None
    assert one.coefficients == pytest.approx(other.coefficients, abs=1e-9)
    assert one.changes == pytest.approx(other.changes, abs=1e-9)
    assert one.null_scores == pytest.approx(other.null_scores, abs=1e-9)


def test_one_group_that_is_always_chosen_has_no_finite_odds() -> None:
    one = Alternatives(np.array([1.0, 0, 0] * 5), None, np.arange(0, 15, 3))
    assert preference_fit([Comparisons(np.ones(5), np.ones(5), chosen=one)] * 6) is None
