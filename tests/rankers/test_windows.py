from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfair.errors import UsageError
from llmfair.rankers.strategies import PLANS, check_window, covering, never_ranked, rankgpt, sent
from tests.shared import vectors

Windows = list[tuple[int, int]]


def pairs(windows: list[list[int]]) -> Windows:
    return [(start, end) for start, end in windows]


def arguments(plan: dict[str, Any]) -> tuple[int, int, int, int, int]:
    return plan["n"], plan["window"], plan["step"], plan["rank_start"], plan["rank_end"]


def test_rankgpt_equals_the_original_on_every_plan() -> None:
    for plan in vectors("rankgpt_windows")["plans"]:
        if plan.get("infinite"):
            with pytest.raises(ValueError, match="never end"):
                rankgpt(*arguments(plan))
            continue
        windows = rankgpt(*arguments(plan))
        n = plan["n"]
        assert len(windows) == plan["count"]
        assert windows[:3] == pairs(plan["first"])
        assert windows[-3:] == pairs(plan["last"])
        if "windows" in plan:
            assert windows == pairs(plan["windows"])
            held = [max(0, min(end, n) - min(start, n)) for start, end in windows]
            assert held == plan["passages_per_call"]
        assert never_ranked(windows, n, plan["rank_start"], plan["rank_end"]) == plan["never_ranked"]


def test_covering_leaves_nothing_out_on_every_plan() -> None:
    for plan in vectors("rankgpt_windows")["plans"]:
        if plan["window"] < 2 or plan["step"] < 1:
            with pytest.raises(UsageError):
                covering(*arguments(plan))
        elif plan["n"] > 1:
            assert not never_ranked(
                covering(*arguments(plan)), plan["n"], plan["rank_start"], plan["rank_end"]
            )


# The table of the specification.
@pytest.mark.parametrize(
    ("n", "window", "step", "rank_start", "rank_end", "covered", "original"),
    [
        (25, 20, 10, 0, None, [(5, 25), (0, 15)], [(5, 25)]),
        (10, 20, 10, 0, None, [(0, 10)], []),
        (9, 4, 4, 0, None, [(5, 9), (1, 5), (0, 2)], [(5, 9), (1, 5)]),
        (0, 20, 10, 0, None, [], []),
        (1, 2, 1, 0, None, [], []),
        (2, 2, 1, 0, None, [(0, 2)], [(0, 2)]),
    ],
)
def test_short_lists(
    n: int, window: int, step: int, rank_start: int, rank_end: int | None, covered: Windows, original: Windows
) -> None:
    assert covering(n, window, step, rank_start, rank_end) == covered
    assert rankgpt(n, window, step, rank_start, rank_end) == original


@pytest.mark.parametrize(("window", "step", "calls"), [(5, 1, 196), (10, 5, 39), (20, 10, 19)])
def test_calls_of_200_items(window: int, step: int, calls: int) -> None:
    assert covering(200, window, step) == rankgpt(200, window, step)
    assert len(covering(200, window, step)) == calls


def test_the_original_skips_heads_and_asks_past_the_end() -> None:
    assert len(covering(200, 10, 3)) == 65
    assert covering(200, 10, 3)[-1] == (0, 8)
    assert len(rankgpt(200, 10, 3)) == 64
    assert never_ranked(rankgpt(200, 10, 3), 200) == [0]
    assert never_ranked(rankgpt(25, 20, 10), 25) == [0, 1, 2, 3, 4]

    assert covering(70, 20, 10, 0, 100)[0] == (50, 70)
    assert len(covering(70, 20, 10, 0, 100)) == 6
    assert len(rankgpt(70, 20, 10, 0, 100)) == 9
    assert sent(rankgpt(70, 20, 10, 0, 100), 70)[0] == (60, 70)
    assert len(sent(rankgpt(70, 20, 10, 0, 100), 70)) == 7

    assert len(covering(100, 20, 10, 15)) == 8
    assert covering(100, 20, 10, 15)[-1] == (15, 30)
    assert len(rankgpt(100, 20, 10, 15)) == 7
    assert never_ranked(rankgpt(100, 20, 10, 15), 100, 15) == [15, 16, 17, 18, 19]


def test_windows_of_fewer_than_two_are_not_sent() -> None:
    assert sent([(4, 6), (3, 5), (0, 2), (8, 10)], 5) == [(3, 5), (0, 2)]


@given(n=st.integers(0, 60), window=st.integers(2, 20), step=st.integers(1, 20), rank_start=st.integers(0, 5))
def test_covering_windows_cover_every_rank(n: int, window: int, step: int, rank_start: int) -> None:
    step = min(step, window)
    windows = covering(n, window, step, rank_start)
    m = n - rank_start
    assert len(windows) == (0 if m < 2 else 1 if m <= window else 1 + math.ceil((m - window) / step))
    assert sent(windows, n) == windows
    assert all(2 <= end - start <= window for start, end in windows)
    assert windows == sorted(windows, reverse=True)
    if m >= 2:
        assert not never_ranked(windows, n, rank_start)
        assert windows[0][1] == n
        assert windows[-1][0] == rank_start
    if m >= window and (m - window) % step == 0:
        assert windows == rankgpt(n, window, step, rank_start)


@pytest.mark.parametrize(
    ("window", "step", "rank_start"), [(1, 1, 0), (0, 1, 0), (5, 0, 0), (5, -1, 0), (5, 6, 0), (5, 1, -1)]
)
def test_settings_that_cannot_rank_are_refused(window: int, step: int, rank_start: int) -> None:
    with pytest.raises(UsageError) as raised:
        check_window(window, step, rank_start)
    assert raised.value.hint
    with pytest.raises(UsageError):
        covering(10, window, step, rank_start)


def test_plans_are_known_by_name() -> None:
    assert list(PLANS) == ["covering", "rankgpt"]
    assert PLANS["rankgpt"](10, 20, 10, 0, None) == []
