"""Injected preference odds are found by every strategy, whether its ranker's noise is fresh or an item's own.

`python -m benchmarks.strategies` has 200 audits a row; here are 40, enough to see an estimate that is off.
"""

from __future__ import annotations

from math import log, sqrt

import numpy as np
import pytest

from benchmarks.strategies import row
from llmfair.audits.listwise.simulate import Noise

SPECS = (
    "windows", "pointwise", "pointwise yes or no", "setwise", "pairwise-sort", "pairwise-sort:method=allpairs", "first",
    "tournament",
)  # fmt: skip


@pytest.mark.whole
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("alike", [0.0, 1.0])
def test_injected_odds_are_recovered(spec: str, alike: float) -> None:
    audits = 15 if "allpairs" in spec else 40
    # a heap's first comparisons are few: those of two children that nobody has seen before
    queries, sizes, orders = (30, (30, 40), 3) if spec == "pairwise-sort" else (20, (14, 20), 2)
    found, covered, _ = row(spec, 0.5, Noise(alike, 2.0), audits, queries, sizes, orders)
    logs = np.log(found)
    assert len(found) > 0.9 * audits
    assert abs(logs.mean() - log(0.5)) < 3 * logs.std(ddof=1) / sqrt(len(logs)) + 0.03
    assert sum(covered) >= 0.8 * len(covered)
