"""The injected Plackett-Luce ranker against exact and simulated references."""

from __future__ import annotations

from math import log, sqrt
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.strategies import row
from llmfair.audits.listwise.simulate import Noise
from llmfair.rankers.strategies import PLANS
from llmfair.stats.intervals import ratio_scores
from llmfair.stats.power import kind_exposures, random_lists, rank_by_taste, rank_exposures, rank_injected
from tests.shared import vectors
from tests.stats import whole

Case = dict[str, Any]
Kinds = NDArray[np.uint8]
PROTECTED, RELEVANT = (
    [True, False, True, False],
    [True, True, False, False],
)  # of the kinds of a reference case


def counts(case: Case) -> list[int]:
    """Documents of each kind: protected and unprotected relevant, then protected and unprotected rest."""
    relevant = [case["experts_protected"], case["experts_unprotected"]]
    sides = [case["n_protected"], case["N"] - case["n_protected"]]
    return relevant + [side - known for side, known in zip(sides, relevant, strict=True)]


def log_weights(case: Case) -> NDArray[np.float64]:
    return np.array(case["alpha"] * np.array(RELEVANT) + case["beta"] * np.array(PROTECTED), np.float64)


def sides(exposures: NDArray[np.float64], case: Case) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """E1 and E0 of every list from its mean exposure per kind."""
    held = exposures * counts(case)
    n1 = case["n_protected"]
    return held[:, PROTECTED].sum(axis=1) / n1, held[:, ~np.array(PROTECTED)].sum(axis=1) / (case["N"] - n1)


def initial_lists(case: Case, draws: int, rng: np.random.Generator) -> Kinds:
    """The initial orders of a reference case; sides and blocks come first with ties at random."""
    orders = random_lists(counts(case), draws, rng=rng)
    first: dict[str, list[int]] = {
        "prot_first": [0, 1, 0, 1],
        "unprot_first": [1, 0, 1, 0],
        "deltr": [1, 0, 3, 2],
    }
    if case["initial_order"] == "random":
        return orders
    places = np.argsort(np.array(first[case["initial_order"]])[orders], axis=1, kind="stable")
    return np.take_along_axis(orders, places, axis=1)


def assert_near(scores: NDArray[np.float64], found: float, expected: float, *more: float) -> None:
    """Within 4 standard errors of a log ratio over lists, `more` being other standard errors."""
    error = np.sqrt(np.sum(scores**2) + sum(other**2 for other in more))
    assert abs(log(found) - log(expected)) <= 4 * error + 1e-9


def test_sliding_windows_of_the_reference() -> None:
    rng = np.random.default_rng(20)
    queries = 4000
    for case in vectors("injected_bias")["listwise_sliding_window_mc"]:
        plan = PLANS["rankgpt" if case["last_partial_window"] == "dropped" else "covering"]
        windows = plan(case["N"], case["window"], case["step"], None)
        initial = initial_lists(case, queries, rng)
        final = rank_injected(
            initial, log_weights(case), windows, case["passes"], rng=rng, kept=case["malformed"]
        )
        e1, e0 = sides(kind_exposures(final, 4), case)
        tolerance = 4 * np.sqrt(
            case["sd_influence_per_query"] ** 2 / queries + (case["ratio_mc_se"] / case["ratio"]) ** 2
        )
        assert abs(log(e1.sum() / e0.sum()) - log(case["ratio"])) <= tolerance, case

        i1, i0 = sides(kind_exposures(initial, 4), case)
        scores = ratio_scores(i1, i0)
        reference_error = np.sqrt(np.sum(scores**2) * queries / case["mc_queries"])
        assert_near(scores, i1.sum() / i0.sum(), case["initial_ratio"], reference_error)

        precisions = np.array(RELEVANT)[final[:, :20]].mean(axis=1)
        error = np.sqrt(precisions.var() / queries + case["precision_mc_se"] ** 2)
        assert abs(precisions.mean() - case["precision_at_20"]) <= 4 * error + 1e-9, case


@pytest.mark.whole
def test_whole_lists_of_the_reference() -> None:
    rng = np.random.default_rng(21)
    queries = 4000
    for case in vectors("injected_bias")["listwise_full_pl"]:
        final = rank_injected(
            random_lists(counts(case), queries, rng=rng), log_weights(case), whole(case["N"]), 1, rng=rng
        )
        exposures = kind_exposures(final, 4)
        e1, e0 = sides(exposures, case)
        ratio = e1.sum() / e0.sum()
        tolerance = 4 * case["sd_influence_per_query"] / np.sqrt(queries)
        assert abs(log(ratio) - log(case["exact_ratio"])) <= tolerance, case

        documents = np.array(counts(case))
        held = exposures * documents
        by_grade = np.array([pair.sum(axis=1) for pair in (held[:, :2], held[:, 2:])])
        n_by_grade = np.array([[documents[:2].sum()], [documents[2:].sum()]])
        shares = by_grade / n_by_grade
        m1 = documents[[0, 2]] @ shares / case["n_protected"]
        m0 = documents[[1, 3]] @ shares / (case["N"] - case["n_protected"])
        relevance = m1.sum() / m0.sum()
        assert_near(ratio_scores(m1, m0), relevance, case["exact_relevance_ratio"])
        excess = ratio_scores(e1, e0) - ratio_scores(m1, m0)
        assert_near(excess, ratio / relevance, case["exact_excess_ratio"])


def test_pair_odds_are_what_is_injected() -> None:
    pairs = np.tile(np.array([0, 1], np.uint8), (40_000, 1))
    won = rank_injected(pairs, [log(3), 0], [(0, 2)], 1, rng=np.random.default_rng(8))[:, 0] == 0
    assert won.mean() == pytest.approx(0.75, abs=4 * np.sqrt(0.75 * 0.25 / 40_000))


def test_extreme_weights_sort_as_a_taste_does_and_others_are_refused() -> None:
    rng = np.random.default_rng(9)
    initial, windows = random_lists([6, 3, 7], 200, rng=rng), [(8, 99), (4, 12), (0, 8)]
    final = rank_injected(initial, [50, 0, -50], windows, 2, rng=rng)
    assert (final == rank_by_taste(initial.astype(np.int8), windows, 2)).all()
    for bad in ([61, 0, -60], [np.inf, 0, 0], [np.nan, 0, 0]):
        with pytest.raises(ValueError, match="apart"):
            rank_injected(initial, bad, windows, 1, rng=rng)


def test_a_list_has_its_own_weights_and_axes_before_the_draws_share_the_noise() -> None:
    lists = random_lists([5, 5], 300, rng=np.random.default_rng(10))
    strong = np.repeat([[30.0, 0.0], [0.0, 30.0]], 150, axis=0)
    first = rank_injected(lists, strong, [(0, 10)], 1, rng=np.random.default_rng(11))[:, :5]
    assert (first[:150] == 0).all()
    assert (first[150:] == 1).all()

    betas = np.array([[[-1.0, 0]], [[0.5, 0]]])
    together = rank_injected(
        np.stack([lists, lists]), betas, [(4, 10), (0, 6)], 2, rng=np.random.default_rng(12), kept=0.2
    )
    for beta, ranked in zip(betas, together, strict=True):
        alone = rank_injected(lists, beta, [(4, 10), (0, 6)], 2, rng=np.random.default_rng(12), kept=0.2)
        assert (ranked == alone).all()


def test_kept_windows_keep_their_order_and_the_input_is_left_alone() -> None:
    initial = random_lists([2, 3], 50, rng=np.random.default_rng(13))
    before = initial.copy()
    kept = rank_injected(initial, [9, 0], [(0, 5)], 3, rng=np.random.default_rng(14), kept=1.0)
    assert (kept == before).all()
    ranked = rank_injected(initial, [9, 0], [(0, 5)], 3, rng=np.random.default_rng(14))
    assert not (ranked == before).all()
    assert (initial == before).all()
    assert (np.sort(ranked, axis=1) == np.sort(before, axis=1)).all()


def test_exposures_of_kinds_by_hand() -> None:
    found = kind_exposures(np.array([[0, 2, 0]], np.uint8), 4)
    assert found[0].tolist() == pytest.approx([(1 / log(2) + 1 / log(4)) / 2, 0, 1 / log(3), 0])


def test_exposures_of_ranks_vary_as_the_reference_says() -> None:
    """The squared coefficient of variation of 1/ln(1+a); of two ranks by hand."""
    first, second = 1 / log(2), 1 / log(3)
    cases = [(row["N"], row["cv2_v"]) for row in vectors("injected_bias")["exposure_constants"]]
    for n, expected in [*cases, (2, ((first - second) / (first + second)) ** 2)]:
        weights = rank_exposures(n)
        assert weights.var() / weights.mean() ** 2 == pytest.approx(expected, rel=1e-9)


# Injected preference odds are found by every strategy, whether its ranker's noise is fresh or an item's own


SPECS = (
    "windows", "pointwise", "pointwise yes or no", "setwise", "pairwise-sort", "pairwise-sort:method=allpairs", "first",
    "tournament",
)  # fmt: skip
NOISY = [(spec, alike) for alike in (0.0, 1.0) for spec in SPECS if alike or "pairwise" not in spec]
"""Hundreds of pairs take long: noise of an item's own, which also decides whom it meets, is the harder of the two."""


@pytest.mark.whole
@pytest.mark.parametrize(("spec", "alike"), NOISY)
def test_injected_odds_are_recovered(spec: str, alike: float) -> None:
    audits = 15 if "allpairs" in spec else 40
    # a heap's first comparisons are few: those of two children that nobody has seen before
    queries, sizes, orders = (30, (30, 40), 3) if spec == "pairwise-sort" else (20, (14, 20), 2)
    found, covered, _ = row(spec, 0.5, Noise(alike, 2.0), audits, queries, sizes, orders)
    logs = np.log(found)
    assert len(found) > 0.9 * audits
    assert abs(logs.mean() - log(0.5)) < 3 * logs.std(ddof=1) / sqrt(len(logs)) + 0.03
    assert sum(covered) >= 0.8 * len(covered)
