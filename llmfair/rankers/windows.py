"""Sliding windows: which ranks of a list are shown together, from its end to its head.

A window is half-open, `(start, end)` in 0-based ranks; a plan is one pass, in the order of the questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from llmfair.errors import UsageError

Window = tuple[int, int]
Plan = Callable[[int, int, int, int, int | None], list[Window]]


def check_window(window: int, step: int, rank_start: int = 0) -> None:
    """Raises UsageError for settings under which windows rank nothing, leave gaps or never end."""
    if window < 2:
        raise UsageError(
            f"--window {window} shows nothing to compare.", "a window holds 2 or more items: --window 20"
        )
    if step < 1:
        raise UsageError(f"--step {step} never reaches the head of the list.", "use --step 1 or more")
    if step > window:
        raise UsageError(
            f"--step {step} is larger than --window {window}: items between two windows would be skipped.",
            f"use --step {max(1, window // 2)}",
        )
    if rank_start < 0:
        raise UsageError(f"rank_start {rank_start} lies before the list.", "use 0 or more")


def covering(
    n: int, window: int, step: int, rank_start: int = 0, rank_end: int | None = None
) -> list[Window]:
    """Windows that hold every rank in range; the last begins at `rank_start` and may be shorter.

    With m = min(rank_end, n) − rank_start these are 0 windows for m < 2, 1 for m ≤ window, else
    1 + ⌈(m − window) / step⌉. Raises UsageError where check_window does.
    """
    check_window(window, step, rank_start)
    end = n if rank_end is None else min(rank_end, n)
    if end - rank_start < 2:
        return []
    plan = []
    while True:
        start = max(end - window, rank_start)
        plan.append((start, end))
        if start == rank_start:
            return plan
        end = max(end - step, rank_start + 2)


def rankgpt(n: int, window: int, step: int, rank_start: int = 0, rank_end: int | None = None) -> list[Window]:
    """The original arithmetic of RankGPT (Sun et al. 2023): whole windows only, so a head may stay unranked.

    `rank_end` is not cut to n, so windows may lie past the list; any window and step ≥ 1 are accepted.
    Raises ValueError for step < 1, on which the original never ends.
    """
    if step < 1:
        raise ValueError(f"step {step}: the windows never end")
    end = n if rank_end is None else rank_end
    return [(start, start + window) for start in range(end - window, rank_start - 1, -step)]


PLANS: Mapping[str, Plan] = {"covering": covering, "rankgpt": rankgpt}


def sent(windows: Iterable[Window], n: int) -> list[Window]:
    """The windows that are asked for a list of n: cut to the list, and only those that hold 2 or more."""
    return [(start, min(end, n)) for start, end in windows if min(end, n) - start >= 2]


def never_ranked(
    windows: Iterable[Window], n: int, rank_start: int = 0, rank_end: int | None = None
) -> list[int]:
    """Ranks in range that no window holds."""
    held = {rank for start, end in windows for rank in range(start, end)}
    end = n if rank_end is None else min(rank_end, n)
    return [rank for rank in range(rank_start, end) if rank not in held]
