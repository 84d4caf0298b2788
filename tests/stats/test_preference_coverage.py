"""A miniature of the benchmark of preference odds: intervals hold the truth, whatever the noise and the slots."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest

from benchmarks.preference import (
    BAND,
    NOISES,
    SLOTS,
    Found,
    Row,
    found_in,
    mean_log_odds,
    rows,
    true_log_odds,
)
from llmfair.nouns import Conclusion


def share(found: list[Found], conclusion: Conclusion) -> float:
    return float(np.mean([one.conclusion is conclusion for one in found]))


def test_the_true_odds_are_those_of_all_queries_together() -> None:
    """Without slots by hand: the log odds of the mean share, which queries that differ draw nearer to parity."""
    row = Row(8, 40, True, "fresh", "none", 0.5)
    mean = mean_log_odds(row)
    draws = 1 / (1 + np.exp(-(mean + 0.3 * np.random.default_rng(0).standard_normal(400_000))))
    assert draws.mean() / (1 - draws.mean()) == pytest.approx(0.5, abs=0.001)
    assert 0.49 < exp(mean) < 0.5
    assert all(true_log_odds(0.0, slots) == pytest.approx(0, abs=1e-6) for slots in SLOTS)
    assert len(rows()) == 3 * 2 * 3 * 3 * 5


@pytest.mark.parametrize("windows", [True, False], ids=["windows", "partition"])
def test_a_row_of_the_benchmark_in_few_audits(windows: bool) -> None:
    found = found_in(Row(12, 40, windows, "the same", "middle", 0.7), 40, [1])
    logs = [one.log_odds for one in found if one.log_odds is not None]
    assert np.mean(logs) == pytest.approx(log(0.7), abs=4 * np.std(logs) / 40**0.5)
    assert np.mean([one.held for one in found]) >= 0.85
    assert share(found, Conclusion.WITHIN) <= 0.1


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("windows", [True, False], ids=["windows", "partition"])
def test_intervals_hold_the_truth(windows: bool, noise: str) -> None:
    """Two Monte Carlo errors of 400 audits, 2.2 %, beside the bars."""
    for queries, odds in ((8, BAND[1]), (12, 1.0)):
        found = found_in(Row(queries, 40, windows, noise, "middle", odds), 400, [2])
        assert 0.93 - 0.022 <= np.mean([one.held for one in found if one.held is not None]) <= 0.97 + 0.022
        if odds == BAND[1]:
            assert share(found, Conclusion.WITHIN) <= 0.025 + 0.02
        else:
            assert np.mean([one.p is not None and one.p < 0.05 for one in found]) <= 0.05 + 0.022
