"""Limits by betting, plans of pairs and wrong labels: known answers, hand-worked cases, properties."""

from __future__ import annotations

import numpy as np
import pytest

from llmfair.stats.betting import fewest_queries, lower_limit, p_value, wealth
from llmfair.stats.label_error import Judgements, explaining_share, largest_wrong, odds_of_a_fair_ranker
from llmfair.stats.pair_plan import plan_pairs
from tests.shared import vectors


def test_known_limits() -> None:
    for case in vectors("measuring")["kept"]:
        limit = lower_limit(case["changes"], case["worst_loss"], case["alpha"])
        assert limit == pytest.approx(case["lower"], rel=1e-8)


def test_known_plans_of_pairs() -> None:
    names = ("queries", "pairs", "odds", "first_slot", "consistent", "icc")
    for case in vectors("measuring")["plan_pairwise"]:
        plan = plan_pairs(*(case[name] for name in names))
        figures = (plan.gamma, plan.agreement, plan.error, plan.power, plan.disparity, plan.in_band)
        expected = ("gamma", "r", "se", "power", "disparity", "in_band", "kappa_gate", "parity")
        known = [case[f"expected_{name}"] for name in expected]
        assert [*figures, plan.consistent, plan.parity] == pytest.approx(known, rel=1e-6, abs=1e-12)


def test_known_odds_of_a_fair_ranker_under_wrong_labels() -> None:
    for case in vectors("measuring")["label_error"]:
        groups = Judgements(*case["protected"]), Judgements(*case["other"])
        odds = odds_of_a_fair_ranker(*groups, case["better_ahead"], case["wrong"])
        known = case["odds_of_a_fair_ranker"]
        assert odds == pytest.approx((known["relevant"], known["irrelevant"]), rel=1e-8)


def test_a_fair_ranker_is_never_right_more_often_than_always() -> None:
    groups = Judgements(240, 36), Judgements(240, 84)
    assert odds_of_a_fair_ranker(*groups, 0.95, 0.14) == odds_of_a_fair_ranker(*groups, None, 0.14)
    assert odds_of_a_fair_ranker(*groups[::-1], 0.95, 0.14).relevant > 1


@pytest.mark.parametrize(("margin", "queries"), [(0.05, 68), (0.1, 33)])
def test_how_many_queries_without_a_loss_rule_one_out(margin: float, queries: int) -> None:
    assert fewest_queries(margin, 1.0) == queries
    assert lower_limit(np.zeros(queries), 1.0) >= -margin > lower_limit(np.zeros(queries - 1), 1.0)


@pytest.mark.parametrize(("margin", "queries"), [(0.05, 92), (0.1, 40)])
def test_four_in_five_audits_of_so_many_scattered_changes_exclude_a_loss(margin: float, queries: int) -> None:
    assert fewest_queries(margin, 1.0, spread=0.1) == queries
    rng = np.random.default_rng(5)
    ruled_out = [p_value(rng.normal(0, 0.1, queries), 1.0, -margin) <= 0.05 for _ in range(300)]
    assert 0.72 < np.mean(ruled_out) < 0.88


def test_betting_by_hand() -> None:
    """One change of 0 against a mean of −½ where nothing is lost below −1: the odds are doubled at the full share."""
    shares = np.arange(1, 10) / 10
    assert wealth([0.0], 1.0, -0.5) == pytest.approx(0.5 * 2 + (1 + shares).sum() / 18)


@pytest.mark.parametrize("changes", [[-1.5], [0.0, -1.1]])
def test_no_change_is_below_the_worst(changes: list[float]) -> None:
    with pytest.raises(ValueError, match="below the worst loss"):
        lower_limit(changes, 1.0)


def test_a_rare_large_loss_is_seldom_called_kept() -> None:
    """The mean is just below −.05: of changes of 0 but for one in twenty of −1."""
    rng = np.random.default_rng(1)
    kept = [lower_limit(-(rng.random(100) < 0.051).astype(float), 1.0) >= -0.05 for _ in range(400)]
    assert np.mean(kept) <= 0.05


def test_the_share_that_explains_a_disparity_gives_its_odds() -> None:
    groups = Judgements(100, 15), Judgements(100, 35)

    def odds(wrong: float) -> float:
        return odds_of_a_fair_ranker(*groups, 0.75, wrong).relevant

    share = explaining_share(odds, 0.9, largest_wrong(*groups))
    assert share is not None and odds(share) == pytest.approx(0.9, rel=1e-6)
