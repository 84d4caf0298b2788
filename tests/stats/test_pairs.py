"""Estimates from pairs: scores, clustered variances, intervals and tests, by hand and against reference figures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from llmfair.metrics.pairs import ADJUSTED_ODDS, BALANCED_RATIO, KAPPA, POSITION_ODDS, WIN_RATIO
from llmfair.stats.intervals import Estimate
from llmfair.stats.paired import change_of_pairs
from llmfair.stats.pairs import (
    Figure,
    PairContributions,
    Weights,
    clustered_variance,
    estimate,
    intraclass,
    pair_p,
    t_p,
)
from tests.shared import vectors

PP, UU, FF, SS = range(4)


def p_of(formula: Figure, pairs: PairContributions) -> float | None:
    return t_p(float(formula(pairs.cells)), pairs.variance(formula))


FORMULAS = {
    "consistent": WIN_RATIO,
    "balanced": BALANCED_RATIO,
    "beta_marginal": ADJUSTED_ODDS,
    "gamma_marginal": POSITION_ODDS,
}
BY_QUERY = slice(0, 1)


def counted(cells: ArrayLike, *clusters: ArrayLike, weights: Weights = "macro") -> PairContributions:
    """Pairs of these cells, 0..3; without items every pair has its own two."""
    cells = np.asarray(cells)
    own = np.arange(len(cells))
    ways = [*map(np.asarray, clusters), own, own][:3]
    return PairContributions(np.eye(4)[cells], np.stack(ways).astype(np.intp), weights)


def by_query(pairs: PairContributions) -> PairContributions:
    return replace(pairs, clusters=pairs.clusters[BY_QUERY])


def of_counts(rows: ArrayLike, weights: Weights) -> PairContributions:
    """One row of PP, UU, FF, SS per query."""
    rows = np.asarray(rows)
    cells = np.concatenate([np.repeat(np.arange(4), row) for row in rows])
    return counted(cells, np.repeat(np.arange(len(rows)), rows.sum(axis=1)), weights=weights)


def of_answers(rows: ArrayLike) -> PairContributions:
    """One row per pair: query, protected item, unprotected item, the protected item's wins when first and second."""
    *clusters, first, second = np.asarray(rows).T
    cells = np.where(first == second, np.where(first == 1, PP, UU), np.where(first == 1, FF, SS))
    return counted(cells, *clusters)


def logged(found: Estimate) -> tuple[float, float, float]:
    """Value and limits on the log scale."""
    assert found.value and found.low and found.high
    value, low, high = np.log([found.value, found.low, found.high])
    return float(value), float(low), float(high)


def test_scores_are_those_of_the_closed_forms() -> None:
    rng = np.random.default_rng(1)
    cells, queries = rng.choice(4, 300, p=[0.3, 0.2, 0.4, 0.1]), np.sort(rng.integers(0, 9, 300))
    for weights in ("macro", "pooled"):
        pairs = counted(cells, queries, weights=weights)
        w = 1 / np.bincount(queries)[queries] if weights == "macro" else np.ones(300)
        pp, uu, flips = cells == PP, cells == UU, cells >= FF
        y1, y2 = (cells == PP) | (cells == FF), (cells == PP) | (cells == SS)
        p1, p2 = w @ y1 / w.sum(), w @ y2 / w.sum()
        first, second = (y1 - p1) / (p1 * (1 - p1)), (y2 - p2) / (p2 * (1 - p2))
        over, under = 2 * pp + flips, 2 * uu + flips
        expected = {
            "consistent": w * (pp / (w @ pp) - uu / (w @ uu)),
            "balanced": w * (over / (w @ over) - under / (w @ under)),
            "beta_marginal": w * (first + second) / (2 * w.sum()),
            "gamma_marginal": w * (first - second) / (2 * w.sum()),
        }
        for name, formula in FORMULAS.items():
            assert pairs.scores(formula) == pytest.approx(expected[name], rel=1e-12, abs=1e-15)


pairs_of_queries = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 3), st.integers(0, 3)),
    min_size=8,
    max_size=60,
).map(lambda rows: [(cell, 0, 0, 0) for cell in range(4)] + rows)


@given(pairs_of_queries, st.sampled_from(["macro", "pooled"]))
@settings(deadline=None)
def test_scores_sum_to_nothing_and_variances_are_never_below_a_single_way(
    rows: list[tuple[int, ...]], weights: Weights
) -> None:
    pairs = counted(*np.array(rows).T, weights=weights)
    for formula in (*FORMULAS.values(), KAPPA):
        assert pairs.scores(formula).sum() == pytest.approx(0, abs=1e-12)
        variance = pairs.variance(formula)
        assert variance.used >= max(variance.components[0,], variance.components[1,], variance.components[2,])
    assert pairs.shares.sum() == pytest.approx(1)


@pytest.mark.parametrize("name", ["golden_pairwise_counts", "golden_pairwise_counts_unequal"])
def test_intervals_by_query(name: str) -> None:
    golden = vectors("injected_bias")[name]
    for weights in ("macro", "pooled"):
        expected = golden.get(f"expected_{weights}", golden["expected_pooled"])
        pairs = of_counts(golden["counts"], weights)
        for of, formula in FORMULAS.items():
            figures, found = expected[of], estimate(formula, by_query(pairs))
            assert found.error == pytest.approx(figures["se"], rel=1e-9)
            if "ratio" in figures:
                assert (found.value, found.low, found.high) == pytest.approx(
                    (figures["ratio"], figures["lo"], figures["hi"]), rel=1e-9
                )
                assert p_of(formula, by_query(pairs)) == pytest.approx(figures["p"], rel=1e-9)
            else:
                limits = figures["est"], figures["lo"], figures["hi"]
                assert logged(found) == pytest.approx(limits, rel=1e-9)
        shares = dict(zip(("PP", "UU", "FF", "SS"), pairs.shares.tolist(), strict=True))
        assert shares == pytest.approx(expected["shares"], rel=1e-9)
        others: dict[str, Figure] = {
            "kappa": KAPPA,
            "beta_conditional": lambda c: np.log(c[0] / c[1]) / 2,
            "gamma_conditional": lambda c: np.log(c[2] / c[3]) / 2,
            "log_or": lambda c: np.log(c[0] * c[1] / (c[2] * c[3])),
            "first_position_share": lambda c: (c[2] + (c[0] + c[1]) / 2) / c.sum(),
        }
        for of, figure in others.items():
            assert estimate(figure, pairs, logarithmic=False).value == pytest.approx(expected[of], rel=1e-9)
        p = pair_p(ADJUSTED_ODDS, pairs, np.random.default_rng(0))
        assert p == expected["signflip_exact_p_query_level"]


@pytest.mark.parametrize("name", ["golden_pairwise_multiway", "golden_pairwise_multiway_floor"])
def test_three_way_intervals(name: str) -> None:
    golden = vectors("injected_bias")[name]
    pairs = of_answers(golden["rows"])
    ways = {
        (0,): "query", (1,): "pitem", (2,): "uitem", (0, 1): "qp", (0, 2): "qu", (1, 2): "pu", (0, 1, 2): "qpu",
    }  # fmt: skip
    for of in ("consistent", "balanced"):
        expected, formula = golden[of], FORMULAS[of]
        variance, found = pairs.variance(formula), estimate(formula, pairs)
        for way, called in ways.items():
            assert variance.components[way] == pytest.approx(expected["components"][called], rel=1e-12)
        assert variance.raw == pytest.approx(expected["V_raw"], rel=1e-12)
        assert variance.used == pytest.approx(expected["V_used"], rel=1e-12)
        assert variance.degrees == expected["df"]
        assert (found.value, found.error, found.low, found.high) == pytest.approx(
            (expected["ratio"], expected["se"], expected["lo"], expected["hi"]), rel=1e-12
        )
    expected, found = golden["beta_marginal"], estimate(ADJUSTED_ODDS, pairs)
    assert logged(found)[0] == pytest.approx(expected["est"], rel=1e-12)
    assert found.error**2 == pytest.approx(expected["V_used"], rel=1e-12)
    assert (found.value, found.low, found.high) == pytest.approx(
        (expected["odds"], expected["odds_lo"], expected["odds_hi"]), rel=1e-12
    )
    assert pairs.items_recur
    assert pair_p(ADJUSTED_ODDS, pairs, np.random.default_rng(0)) == p_of(ADJUSTED_ODDS, pairs)


def simulated(expected: dict[str, float], pairs: int, rng: np.random.Generator) -> np.ndarray:
    """Both answers on pairs of an injected ranker, each pair of a query of its own; shape (2, pairs)."""
    log_odds = expected["beta"] + rng.normal(0, expected["sigma_query"] or 1e-300, pairs)
    position = expected["gamma"] * np.array([[1], [-1]])
    wins = (1 - expected["lapse"]) / (1 + np.exp(-log_odds - position)) + expected["lapse"] / 2
    answers = np.where(rng.random((2, pairs)) < wins, 0, 1)
    return np.where(rng.random((2, pairs)) < expected["malformed"], 3, answers)


def test_injected_rankers_come_out() -> None:
    rng = np.random.default_rng(20)
    for expected in vectors("injected_bias")["pairwise_expected"]:
        answers = simulated(expected, 40_000, rng)
        unparseable = np.count_nonzero(answers == 3, axis=0)
        for number, name in ((1, "one_call_malformed"), (2, "both_malformed")):
            share = expected[name]
            assert np.mean(unparseable == number) == pytest.approx(share, abs=4 * np.sqrt(share / 40_000))
        counts = WIN_RATIO.things[*answers].astype(float)
        kept = counts[unparseable == 0]
        pairs = PairContributions(kept, np.arange(len(kept))[None], "pooled")
        pp, uu, ff, ss = (expected[f"cond_{cell}"] for cell in ("PP", "UU", "FF", "SS"))
        readable, p = len(pairs.counts), pp + (ff + ss) / 2
        balanced = (pp + (ff + ss) / 4 - p**2) / (p * (1 - p)) ** 2
        variances = {WIN_RATIO: 1 / pp + 1 / uu, BALANCED_RATIO: balanced}
        truths = {WIN_RATIO: expected["ratio_consistent"], BALANCED_RATIO: expected["ratio_balanced"]}
        for formula, variance in variances.items():
            found = float(formula(pairs.cells))
            assert found == pytest.approx(np.log(truths[formula]), abs=4 * np.sqrt(variance / readable))
        shares = np.array([pp, uu, ff, ss])
        assert np.all(np.abs(pairs.shares - shares) <= 4 * np.sqrt(shares * (1 - shares) / readable) + 1e-12)
        truths = {ADJUSTED_ODDS: "beta_marginal", POSITION_ODDS: "gamma_marginal", KAPPA: "kappa"}
        for formula, name in truths.items():
            error = np.sqrt(pairs.variance(formula).used)
            assert float(formula(pairs.cells)) == pytest.approx(expected[name], abs=4 * error)


def test_a_variance_by_hand() -> None:
    scores = np.array([1.0, 2.0, -1.0, -2.0])
    clusters = np.array([[0, 0, 1, 1], [0, 1, 0, 1]])
    variance = clustered_variance(scores, clusters)
    # by the first way 3² + 3², by the second 0² + 0², each times 2/1; crossed 1 + 4 + 1 + 4
    assert variance.components == {(0,): 36, (1,): 0, (0, 1): 10}
    assert (variance.raw, variance.used, variance.degrees) == (26, 36, 1)
    gaps = clustered_variance(scores, clusters * 1000)
    assert (gaps.components, gaps.clusters) == (variance.components, (2, 2))


def test_few_queries_or_a_lone_item_have_no_interval() -> None:
    cells, queries = np.tile([PP, UU, FF, SS], 12), np.arange(48) // 12
    few = estimate(ADJUSTED_ODDS, counted(cells, queries))
    assert (few.value, few.low, few.high, few.n, few.reason) == (1, None, None, 4, "too_few_queries")
    alone = estimate(ADJUSTED_ODDS, counted(cells, np.arange(48) // 6, np.zeros(48), np.arange(48)))
    assert (alone.low, alone.n, alone.reason) == (None, 8, "too_few_queries")


def test_an_interval_whose_limits_are_no_numbers_is_none() -> None:
    """Two items on a side leave one degree of freedom: at 99.99 %, t is 6,366."""
    cells, queries = np.tile([PP, PP, UU, FF, UU, SS, PP, FF], 6), np.arange(48) // 8
    two = counted(cells, queries, np.arange(48) // 3 % 2, np.arange(48) % 8)
    wide = estimate(ADJUSTED_ODDS, two, level=0.9999)
    assert (wide.low, wide.high, wide.reason) == (None, None, "interval_too_wide")
    usual = estimate(ADJUSTED_ODDS, two)
    assert wide.value == usual.value and usual.low and usual.high
    assert 0 < p_of(ADJUSTED_ODDS, two) < 1  # type: ignore[operator]
    other = replace(two, counts=two.counts[:, [1, 0, 3, 2]])
    change = change_of_pairs(ADJUSTED_ODDS, two, other, level=0.99999)
    assert (change.estimate.low, change.estimate.reason) == (None, "interval_too_wide")
    assert change.p == change_of_pairs(ADJUSTED_ODDS, two, other).p is not None


@given(pairs_of_queries)
@settings(deadline=None)
def test_swapping_the_sides_keeps_p_and_mirrors_the_interval(rows: list[tuple[int, ...]]) -> None:
    cells, queries, protected, unprotected = np.array(rows).T
    swapped = np.array([UU, PP, FF, SS])[cells]
    before = counted(cells, queries, protected, unprotected)
    after = counted(swapped, queries, unprotected, protected)
    for formula, sign in ((WIN_RATIO, -1), (BALANCED_RATIO, -1), (ADJUSTED_ODDS, -1), (POSITION_ODDS, 1)):
        one, other = estimate(formula, before), estimate(formula, after)
        if one.low is not None:
            # without spread, the limits differ from the value by a rounding error only
            assert logged(one) == pytest.approx(logged(other)[::1] if sign > 0 else mirrored(other), abs=1e-6)
        ps = [pair_p(formula, pairs, np.random.default_rng(5)) for pairs in (before, after)]
        assert ps[0] == pytest.approx(ps[1], abs=1e-6)


def mirrored(found: Estimate) -> tuple[float, float, float]:
    value, low, high = logged(found)
    return -value, -high, -low


def test_repeats_weigh_a_pair_once() -> None:
    rng = np.random.default_rng(6)
    cells, queries = rng.integers(0, 4, 80), np.arange(80) // 10
    items = np.arange(80)
    once = counted(cells, queries, items, items)
    twice = replace(
        once, counts=np.repeat(once.counts, 2, axis=0), clusters=np.repeat(once.clusters, 2, axis=1), repeats=2,
    )  # fmt: skip
    assert twice.cells == pytest.approx(once.cells)
    for formula in FORMULAS.values():
        a, b = estimate(formula, once), estimate(formula, twice)
        assert (a.value, a.low, a.high) == pytest.approx((b.value, b.low, b.high))


def test_intraclass_by_hand() -> None:
    # X = 1, 1, 0 and 1, 0, 0: means 2/3, 1/3; MSB = 3·2·(1/6)², MSW = (2/3 + 2/3)/4; m = 3
    found = intraclass(counted([PP, PP, UU, PP, UU, UU], [0, 0, 0, 1, 1, 1]))
    assert found is not None
    assert found.correlation == pytest.approx((1 / 6 - 1 / 3) / (1 / 6 + 2 / 3))
    assert found.design_effect == pytest.approx(1 + 2 * found.correlation)
    alike = intraclass(counted([PP, PP, UU, UU], [0, 0, 1, 1]))
    assert alike is not None and (alike.correlation, alike.design_effect) == (1, 2)


def test_a_pair_asked_again_is_no_further_pair() -> None:
    rng = np.random.default_rng(12)
    pairs = counted(rng.integers(0, 4, 800), np.arange(800) // 20)
    once = intraclass(pairs)
    for repeats in (2, 5):
        order = rng.permutation(np.repeat(np.arange(800), repeats))
        again = intraclass(PairContributions(pairs.counts[order], pairs.clusters[:, order], repeats=repeats))
        assert once is not None and again is not None
        assert again.design_effect == pytest.approx(once.design_effect)
        assert again.correlation == pytest.approx(once.correlation)
    # draws that differ: X is their mean, here ½ for the first pair of each query
    cells, queries = [PP, UU, PP, PP, UU, PP, UU, UU], [0, 0, 0, 0, 1, 1, 1, 1]
    items = [0, 0, 1, 1, 2, 2, 3, 3]
    drawn = intraclass(replace(counted(cells, queries, items, items), repeats=2))
    # means ¾ and ¼; MSB = 2·2·(¼)², MSW = 4·(¼)²/2; m = 2
    assert drawn is not None and drawn.correlation == pytest.approx((1 / 4 - 1 / 8) / (1 / 4 + 1 / 8))


@pytest.mark.parametrize(
    ("cells", "queries"),
    [([PP, UU, FF], [0, 0, 0]), ([PP, UU, FF], [0, 1, 2]), ([FF, SS, FF, SS], [0, 0, 1, 1])],
)
def test_intraclass_without_a_value(cells: list[int], queries: list[int]) -> None:
    assert intraclass(counted(cells, queries)) is None
