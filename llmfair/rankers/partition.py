"""A list cut into windows that are asked at once: what a model prefers, without the ranking that it would make.

Every item is shown once, so every two items of a window meet for the first time, and no question waits for another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import Any

from llmfair.nouns import Candidates, Steps
from llmfair.rankers.strategy import WINDOW_FACTS, Ask, Plan, Strategy, Window
from llmfair.rankers.windows import sent


@dataclass(frozen=True)
class Partition(Strategy):
    """⌈n / window⌉ windows of equal size, give or take one item, in the order of the candidates.

    `only`: the number of the one window that is asked, from 0.
    """

    window: int = 20
    only: int | None = None

    def steps(self, candidates: Candidates, ask: Ask) -> Steps[None]:
        windows = self.one_pass(len(candidates.documents))
        if self.only is not None:
            windows = windows[self.only : self.only + 1]
        yield from ask.together([(candidates.documents[start:end], start) for start, end in windows])

    def one_pass(self, n: int) -> Sequence[Window]:
        """The windows of a list of n; one item alone is asked nothing."""
        count = max(1, ceil(n / self.window))
        edges = [n * number // count for number in range(count + 1)]
        return sent(pairwise(edges), n)

    def plan(self, n: int) -> Plan:
        windows = len(self.one_pass(n))
        return Plan(windows, min(1, windows))

    def facts(self) -> dict[str, Any]:
        return {**dict.fromkeys(WINDOW_FACTS), "window": self.window}
