"""What every plan tells in words: queries left out, calls, tokens, cost, time, and what is answered already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any

from llmfair.report.tables import count

SHOWN_LEFT_OUT = 3
MINUTE, HOUR = 60, 3600


def plan_text(planned: Mapping[str, Any]) -> str:
    """A plan of which nothing but its calls is known."""
    lines = [
        *filter(None, [planned["sees"]]),
        *queries_lines(planned),
        calls_line(planned),
        time_line(planned),
        *folder_lines(planned),
        *planned["unready"],
    ]
    return told(count(planned["queries"], "query", "queries"), lines)


def told(design: str, lines: Iterable[str]) -> str:
    """What a dry run says: the design, and indented what it takes and finds."""
    return "\n".join([design, *(f"  {line}" for line in lines), "Nothing was asked.", ""])


def queries_lines(planned: Mapping[str, Any]) -> list[str]:
    """Queries that the dataset could not make a list for, and those that cannot be assessed."""
    reasons, remarks = list(planned.get("left_out", {}).values()), list(planned.get("remarks", ()))
    if not reasons:
        return remarks
    more = f"; and {len(reasons) - SHOWN_LEFT_OUT:,} more" * (len(reasons) > SHOWN_LEFT_OUT)
    left_out = count(len(reasons), "query has", "queries have")
    return [f"{left_out} no list: {'; '.join(reasons[:SHOWN_LEFT_OUT])}{more}", *remarks]


def calls_line(planned: Mapping[str, Any]) -> str:
    bound = planned.get("sequential") or planned.get("at_most")
    calls = ("at most " if bound else "") + count(planned["calls"], "call")
    if planned["prompt_tokens"] is None:
        return f"{calls} · tokens are not counted, nor is their cost"
    tokens = f"about {_about(planned['prompt_tokens'])} tokens in, {_about(planned['completion_tokens'])} out"
    line = f"{calls} · {tokens}"
    if "cost" not in planned:
        return line
    if planned["cost"] is None:
        return f"{line} · no price given (--price-in, --price-out)"
    prices = f"{planned['price_in']:g} and {planned['price_out']:g} a million tokens"
    cost = "less than 0.01" if 0 < planned["cost"] < 0.01 else f"about {planned['cost']:,.2f}"
    return f"{line} · costs {cost} at {prices}"


def time_line(planned: Mapping[str, Any]) -> str:
    latency = planned.get("latency", 1.0)
    shortest = _time(ceil(planned["seconds_at_1s_a_call"] * latency))
    return f"at least {shortest} at {latency:g} s a call and {count(planned['workers'], 'worker')}"


def folder_lines(planned: Mapping[str, Any]) -> list[str]:
    """How much is answered already, in the run's own folder and by other runs."""
    lines = []
    if planned["answered"]:
        lines.append(f"{count(planned['answered'], 'answer')} of them in {planned['folder']} already")
    if planned["cached"]:
        beside = "more " * bool(planned["answered"])
        lines.append(
            f"{count(planned['cached'], 'answer')} {beside}known from other runs, which leaves at most "
            f"{count(planned['left'], 'call')} (--no-cache asks them, too)"
        )
    return lines


def share(power: float) -> str:
    """A power to two places, but never 1."""
    return "> 0.99" if power > 0.99 else f"{power:.2f}"


def _about(tokens: int) -> str:
    if tokens < 1000:
        return str(tokens)
    return f"{tokens / 1e6:.1f} M" if tokens >= 1e6 else f"{tokens / 1e3:.1f} k"


def _time(seconds: int) -> str:
    hours, minutes, rest = seconds // HOUR, seconds % HOUR // MINUTE, seconds % MINUTE
    parts = ((hours, "h"), (minutes, "min"), (rest, "s"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number) or "0 s"
