"""Plans of windows for simulated rankers."""

from __future__ import annotations

from llmfair.rankers.strategies import PLANS
from llmfair.stats.power import Plan


def covering(window: int, step: int) -> Plan:
    return lambda n: PLANS["covering"](n, window, step, None)


def whole(n: int) -> list[tuple[int, int]]:
    return [(0, n)]
