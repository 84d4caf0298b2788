"""The t test paired by query is scipy's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import ttest_rel

from llmfair.stats.paired import paired_t
from llmfair.stats.tradeoff import paired_p


@pytest.mark.parametrize("seed", range(20))
def test_t_and_p_are_those_of_scipy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(6, 60))
    before, after = rng.normal(0, rng.uniform(0.01, 10), (2, n)) + rng.normal(0, 1, (2, 1))
    expected = ttest_rel(after, before)
    found = paired_t(after - before)
    assert found == pytest.approx((expected.statistic, expected.pvalue), rel=1e-9)
    assert found is not None and paired_p(after - before) == found[1]


def test_what_cannot_be_tested() -> None:
    assert paired_t([0.1] * 5) is None, "fewer than six"
    assert paired_t([0.0] * 6) == (0.0, 1.0)
    assert paired_t([0.5] * 6) == (math.inf, 0.0) and paired_t([-0.5] * 6) == (-math.inf, 0.0)
