"""Reasons in words: those of the measure that gives them, of statistics, of others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from llmfair import registry
from llmfair.audits.gates import assessing, parse_gate
from llmfair.metrics.base import measure
from llmfair.metrics.names import parse_measure
from llmfair.report.tables import differs_text, in_words


@pytest.fixture
def own() -> Iterator[None]:
    measure("Own", undefined={"degenerate": "all are alike", "too_dull": "nothing happened"})(
        lambda judged, cutoff: {}
    )
    yield
    del registry._found["measure"]["Own"]


@pytest.mark.usefixtures("own")
def test_a_measure_has_words_of_its_own_and_lends_them() -> None:
    assert in_words("degenerate", "Own@20") == "all are alike"
    assert (
        in_words("degenerate", "AdjustedOdds(agg=pooled)")
        == in_words("degenerate")
        == "the answers do not vary"
    )
    assert in_words("too_dull") == "nothing happened"  # a conclusion bars other figures, too
    assert in_words("order_not_random", "ExpRatio") == "the initial ranking is not random"
    assert in_words("unheard_of", "Own") == "unheard of" and in_words(None) == "None"


def test_what_says_whether_gated_figures_can_be_assessed() -> None:
    gates = [parse_gate(f"{name}>=0") for name in ("P@20", "ExpRatio", "ExcessRatio", "WinRatio(agg=pooled)")]
    assert assessing(gates) == ["PreferenceOdds", "AdjustedOdds"] and assessing(gates[:1]) == []


@pytest.mark.parametrize(
    ("name", "bounding"),
    [
        ("ExpRatio", "ExpRatio"),
        ("ExpRatio(agg=geometric,control=order,missing=zero)", "ExpRatio"),
        ("ExcessRatio(control=order)", "ExpRatio"),
        ("ExpRatio@20", ""),
        ("ExpRatio(stratum=relevant)", ""),
        ("P@20", ""),
        ("WinRatio", ""),
    ],
)
def test_the_attainable_range_bounds_exposure_over_the_whole_list(name: str, bounding: str) -> None:
    assert parse_measure(name).reach == bounding


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
