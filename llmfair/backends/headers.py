"""What a server's headers say about its limits: when to come again, and what it will still take."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.utils import mktime_tz, parsedate_tz

_REMAINING, _RESET = "x-ratelimit-remaining-", "x-ratelimit-reset-"
_PART = r"(\d+(?:\.\d+)?)(ms|s|m|h|d)"
_PARTS, _SPAN = re.compile(_PART), re.compile(f"(?:{_PART})+")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST = _SECONDS["d"]


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a server will still take, a second, until it counts anew; None for what it does not say."""

    requests: float | None
    tokens: float | None


def allowance(headers: Mapping[str, str]) -> Allowance | None:
    """What remains of the quota, spread over the time until it is whole again; None without such headers.

    Right for quotas that start anew and for those that refill all the time: of these the rate comes to rest at the
    quota, with half of it in hand.
    """
    if _REMAINING + "requests" not in headers and _REMAINING + "tokens" not in headers:
        return None
    return Allowance(_rate(headers, "requests"), _rate(headers, "tokens"))


def _rate(headers: Mapping[str, str], unit: str) -> float | None:
    seconds = _seconds(headers.get(_RESET + unit, "").strip())
    with suppress(ValueError):
        remaining = float(headers.get(_REMAINING + unit, ""))
        if seconds and 0 <= remaining < math.inf:
            return max(remaining, 1.0) / seconds
    return None


def _seconds(text: str) -> float | None:
    """`6m0s`, `120ms` or `7.5` as seconds; None for anything else, such as a moment in seconds since 1970."""
    seconds = math.nan
    if _SPAN.fullmatch(text):
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PARTS.findall(text))
    with suppress(ValueError):
        seconds = float(text)
    return seconds if 0 <= seconds <= _LONGEST else None


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds the server asks to wait; None where it says nothing that can be read.

    Until a moment it is reckoned from the one of its own `Date`, else from the Unix time `now`: clocks differ.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        with suppress(KeyError, ValueError):
            seconds = float(headers[name]) / unit
            if 0 <= seconds < math.inf:
                return seconds
    until, said = (_moment(headers.get(name, "")) for name in ("retry-after", "date"))
    return None if until is None else max(0.0, until - (now if said is None else said))


def _moment(text: str) -> float | None:
    """A date as HTTP has it, in Unix time."""
    with suppress(ValueError, OverflowError):
        if date := parsedate_tz(text):
            return mktime_tz((*date[:9], date[9] or 0))
    return None
