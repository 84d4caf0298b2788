"""What is concluded of changes from the original query and from controls: cases by hand, and what holds of any."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from llmfair.audits.aggregates import Inference
from llmfair.audits.refine.measure import Contrasts, Rule, contrast, controls_of, finding_of
from llmfair.audits.refine.results import RefineFinding
from llmfair.audits.refine.words import status_of

GOALS = ("KL@20", "AWRF@20", "nDCG@20")
EVEN = (0.9, 1.1, 0.95, 1.05, 0.98, 1.02, 1.0, 1.0)
"""Eight topics' changes as multiples of their mean, which is 1."""


def contrasts(**changes: Sequence[Sequence[float]]) -> Contrasts:
    """Of the topics' changes in KL, AWRF and nDCG, by method."""
    return {
        (measure, method): contrast(measure, method, [(0.0, change) for change in of], Inference())
        for method, by_measure in changes.items()
        for measure, of in zip(GOALS, by_measure, strict=True)
    }


def concluded(**changes: Sequence[Sequence[float]]) -> RefineFinding:
    controls = [name for name in changes if name != "bm25"]
    return finding_of(Rule(*GOALS, 0.05, controls), contrasts(**changes), 0.95)


def each(*means: float) -> list[list[float]]:
    return [[mean * of for of in EVEN] for mean in means]


def test_a_change_has_its_interval_its_test_and_the_topics_that_differ() -> None:
    found = contrast("AWRF@20", "bm25", [(0.5, 0.7), (0.5, 0.6), (0.5, 0.5), (0.5, 0.5 + 1e-12)], Inference())
    assert found.changed == 2 and found.row.condition == "fair-qr vs bm25"
    assert found.row.value == pytest.approx(0.075) and found.row.p is None  # no test of fewer than six
    six = contrast("AWRF@20", "bm25", [(0.0, of) for of in (1, 2, 3, 4, 5, 6)], Inference())
    assert six.row.p == pytest.approx(2 / 64)  # all signs alike, or all turned
    assert six.row.low == pytest.approx(3.5 - 2.5706 * 3.5**0.5 / 6**0.5, abs=1e-4)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"bm25": each(-0.2, 0.05, 0.01)}, "nearer"),  # a folder without controls
        ({"bm25": each(-0.2, 0.05, 0.01), "greedy": each(-0.1, 0.02, 0)}, "nearer"),
        ({"bm25": each(-0.2, 0.05, -0.03), "greedy": each(-0.1, 0.02, 0)}, "nearer at a loss"),
        (
            {"bm25": each(-0.2, 0.05, 0), "greedy": each(-0.1, 0.02, 0)},
            "nearer at open cost",
        ),  # nothing judged
        ({"bm25": each(-0.2, 0.05, 0.01), "greedy": each(0.1, 0.02, 0)}, "no nearer than without a model"),
        ({"bm25": each(-0.2, 0.05, 0.01), "greedy": each(-0.1, 0, 0)}, "nearer"),
        ({"bm25": each(-0.2, 0.05, 0.01), "greedy": each(-0.1, -0.02, 0)}, "no nearer than without a model"),
        ({"bm25": each(-0.2, 0.05, 0.01), "greedy": each(0, 0.02, 0)}, "inconclusive"),
        ({"bm25": each(-0.2, 0, 0.01), "greedy": each(-0.1, 0.02, 0)}, "inconclusive"),
        (
            {"bm25": each(-0.2, 0.05, 0.01), "greedy": each(-0.1, 0.02, 0), "name": each(0, 0, 0)},
            "inconclusive",
        ),
        ({"bm25": each(-0.2, -0.05, 0.01), "greedy": each(-0.1, 0.02, 0)}, "no nearer"),
        ({"bm25": each(0, 0, 0), "greedy": each(0.1, -0.02, 0)}, "no nearer than without a model"),
        ({"bm25": each(0, 0, 0), "greedy": each(0, 0, 0)}, "inconclusive"),
    ],
)
def test_the_status_follows_from_both_goals_every_control_and_the_cost(
    changes: dict[str, list[list[float]]], status: str
) -> None:
    assert status_of(concluded(**changes)) == status


def test_losses_that_reach_the_margin_leave_the_cost_open() -> None:
    losses = [0.02, -0.09, 0.03, -0.1, 0.05, -0.08, 0.04, 0.06]
    finding = concluded(bm25=[*each(-0.2, 0.05), losses])
    assert finding.loss is None and status_of(finding) == "nearer at open cost"


def test_of_several_controls_the_nearest_is_named() -> None:
    finding = concluded(bm25=each(-0.2, 0.05, 0.01), name=each(-0.15, 0.03, 0), greedy=each(-0.1, 0.02, 0))
    assert finding.control == "greedy" and finding.beyond is True
    assert controls_of({"a": "greedy:lambda=0.9", "name": "fake:name", "mmr": "mmr"}) == ["a", "name"]


def test_five_changed_topics_say_nothing_however_large_and_alike_their_changes_are() -> None:
    five = [1.0] * 5 + [0.0] * 7
    finding = concluded(bm25=[[-of for of in five], five, five])
    assert status_of(finding) == "inconclusive" and finding.reason == "few_changed" and finding.changed == 5


def test_a_claim_never_goes_without_interval_and_test() -> None:
    rng = np.random.default_rng(9)
    for _ in range(300):
        n, skew = int(rng.integers(5, 16)), rng.exponential(size=(2, 3, 15)) ** 3 - 1
        changes = {
            name: [[*map(float, of[:n])] for of in by]
            for name, by in zip(("bm25", "greedy"), skew, strict=True)
        }
        made, finding = contrasts(**changes), concluded(**changes)
        for claim, method in ((finding.nearer, "bm25"), (finding.beyond, "greedy")):
            rows = [made[name, method].row for name in GOALS[:2]]
            certain = [
                row.low is not None
                and row.high is not None
                and row.low * row.high > 0
                and (row.p or 1) <= 0.05
                for row in rows
            ]
            assert claim is not True or (all(certain) if method == "bm25" else certain[0])
            assert claim is not False or any(certain)
