"""What the numbers of stochastic retrieval cost: `python -m benchmarks.rag`, seconds of CPU on one core.

Draws and sampled exposure of 1,000 queries × 4 alphas × 100 lists of 5 out of 190 items, and the exact exposure of the
same policies, beside a plain loop over lists that draws item by item, as many of them as fit into a second or so.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from numpy.typing import NDArray

from llmfair.rankers.plackett_luce import draws, inclusion, log_weights, noise

Floats = NDArray[np.float64]

ALPHAS = (1.0, 2.0, 4.0, 8.0)
ITEMS, SHOWN, SAMPLES = 190, 5, 100
PLAIN = 40
"""Policies that the plain loop draws from."""


def scores_of(queries: int) -> list[Floats]:
    """Scores as BM25 gives them: a third of the items share no word with the query."""
    rng = np.random.default_rng(5)
    matched = rng.random((queries, ITEMS)) < 2 / 3
    return list(np.where(matched, rng.gamma(2.0, 3.0, (queries, ITEMS)), 0.0))


def sampled(scores: list[Floats]) -> Floats:
    """Shares of samples, shape (queries, alphas, items)."""
    found = np.empty((len(scores), len(ALPHAS), ITEMS))
    for query, of_query in enumerate(scores):
        shared = noise(0, f"q{query}", SAMPLES, ITEMS)
        for place, alpha in enumerate(ALPHAS):
            lists = draws(log_weights(of_query, alpha), SHOWN, shared)
            found[query, place] = np.bincount(lists.ravel(), minlength=ITEMS) / SAMPLES
    return found


def exact(scores: list[Floats]) -> Floats:
    """Inclusion probabilities, shape (queries, alphas, items)."""
    return np.array([[inclusion(log_weights(one, alpha), SHOWN) for alpha in ALPHAS] for one in scores])


def plain(scores: list[Floats], policies: int) -> None:
    """Draws list by list and item by item."""
    rng = np.random.default_rng(0)
    for place in range(policies):
        weights = log_weights(scores[place // len(ALPHAS)], ALPHAS[place % len(ALPHAS)])
        shown = np.zeros(ITEMS)
        for _ in range(SAMPLES):
            left = np.exp(weights - weights.max())
            for _ in range(SHOWN):
                first = rng.choice(ITEMS, p=left / left.sum()) if left.any() else int(np.argmax(weights))
                left[first] = 0.0
                shown[first] += 1 / SAMPLES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=1000)
    queries = parser.parse_args().queries
    scores, policies = scores_of(queries), queries * len(ALPHAS)

    started, walled = time.process_time(), time.perf_counter()
    shares = sampled(scores)
    drawn, walled = time.process_time() - started, time.perf_counter() - walled
    started = time.process_time()
    plain(scores, min(PLAIN, policies))
    looped = (time.process_time() - started) / min(PLAIN, policies) * policies
    print(
        f"draws and sampled exposure, {queries:,} × {len(ALPHAS)} × {SAMPLES}, n {ITEMS}: {drawn:.1f} s of CPU "
        f"({walled:.1f} s by the clock), a plain loop {looped / drawn:.0f} times as long"
    )
    started, walled = time.process_time(), time.perf_counter()
    chances = exact(scores)
    took, walled = time.process_time() - started, time.perf_counter() - walled
    off = float(np.abs(chances.sum(axis=-1) - SHOWN).max())
    error = np.sqrt(chances * (1 - chances) / SAMPLES)
    far = float(np.mean(np.abs(shares - chances) > 2 * error + 1e-9))
    print(
        f"exact exposure of the same: {took:.1f} s of CPU ({walled:.1f} s by the clock), "
        f"{took / policies * 1000:.1f} ms a policy; sums within {off:.0e} of {SHOWN}; "
        f"{far:.1%} of shares beyond two standard errors"
    )
    for place, alpha in enumerate(ALPHAS):
        both = [float((of[:, place] ** 2).sum(axis=-1).mean()) / SHOWN for of in (chances, shares)]
        print(f"alpha {alpha:g}: EE-D/k {both[0]:.3f}, of {SAMPLES} samples {both[1]:.3f}")


if __name__ == "__main__":
    main()
