"""What is said of a ratio that may not be 1."""

from __future__ import annotations

import pytest

from llmfair.audits.listwise.sentences import differs_text


@pytest.mark.parametrize(
    ("p", "low", "high", "said"),
    [
        (0.031, 1.02, 1.6, "; differs from parity, p 0.031"),
        (0.031, 0.97, 1.6, ""),  # the interval does not say so
        (0.07, 1.02, 1.6, ""),  # the test does not
        (None, 1.02, 1.6, ""),
        (0.031, None, None, ""),
    ],
)
def test_interval_and_test_have_to_agree(
    p: float | None, low: float | None, high: float | None, said: str
) -> None:
    assert differs_text(p, low, high, 0.95) == said
