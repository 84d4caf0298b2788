"""Sliding windows: a few neighbouring ranks of a list are shown together, from its end to its head.

Each window stands on the result of the one before, each pass on the result of the last (Sun et al. 2023; as used by
Wang et al. 2024, 3.2.1). A plan is one pass, in the order of the questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from llmfair.errors import UsageError
from llmfair.nouns import Candidates, Ranking, Steps
from llmfair.rankers.strategy import WINDOW_FACTS, Ask, Strategy, StrategyOptions, Window
from llmfair.registry import register

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


@dataclass(frozen=True)
class Windows(Strategy):
    """Windows that slide from the tail to the head, several times over.

    `depth` ranks the first N candidates only, the others keep their place.
    """

    window: int = 20
    step: int = 10
    passes: int = 3
    depth: int | None = None
    windows: str = "covering"

    def steps(self, candidates: Candidates, ask: Ask) -> Steps[Ranking]:
        order = list(candidates.documents)
        plan = self.one_pass(len(order))
        for pass_number in range(1, self.passes + 1):
            for start, end in plan:
                order[start:end] = yield from ask(order[start:end], start, pass_number)
        return Ranking(candidates.query.query_id, tuple(document.doc_id for document in order))

    def one_pass(self, n: int) -> list[Window]:
        """The windows of one pass over n candidates that are sent to the model."""
        return sent(PLANS[self.windows](n, self.window, self.step, 0, self.depth), n)

    def facts(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in WINDOW_FACTS}


@register("strategy", "windows")
def windows(options: StrategyOptions) -> Windows:
    """Windows slide from the tail to the head, each ordered on the result of the one before."""
    return Windows(options.window, options.step, options.passes, options.depth, options.windows)
