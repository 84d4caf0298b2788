"""What servers say of their limits in headers, in every spelling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfair.backends.headers import Allowance, allowance, retry_after

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "3600"}, 3600.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:50 GMT"}, 30.0),
        ({"retry-after": "Tue Nov 14 22:13:50 2023"}, 30.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:00:00 GMT"}, 0.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:00:00 GMT", "date": "Tue, 14 Nov 2023 21:59:00 GMT"}, 60.0),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


@given(st.text() | st.from_regex(r"[A-Z][a-z]{2}, \d+ (Nov|Jan) \d+ \d+:\d+:\d+ GMT", fullmatch=True))
def test_any_retry_after_is_read_or_ignored(value: str) -> None:
    seconds = retry_after({"retry-after": value}, NOW)
    assert seconds is None or seconds >= 0


@pytest.mark.parametrize(
    ("requests", "tokens", "found"),
    [
        (("59", "1s"), ("149984", "6m0s"), Allowance(59.0, 149984 / 360)),
        (("30", "20s"), None, Allowance(1.5, None)),
        (("0", "12"), None, Allowance(1 / 12, None)),
        (None, ("1000", "120ms"), Allowance(None, 1000 / 0.12)),
        (("9", "1h2m3.5s"), None, Allowance(9 / 3723.5, None)),
        (("10", "soon"), None, Allowance(None, None)),
        (("29", "1760000000"), ("29", "1760000000.5s"), Allowance(None, None)),  # a moment, not a span
        (("29", "9" * 400 + "s"), ("29", "9" * 400), Allowance(None, None)),
        (("10", "0s"), None, Allowance(None, None)),
        (("-1", "5s"), ("nan", "5s"), Allowance(None, None)),
        (None, None, None),
    ],
)
def test_allowance(
    requests: tuple[str, str] | None, tokens: tuple[str, str] | None, found: Allowance | None
) -> None:
    headers: dict[str, str] = {}
    for unit, said in (("requests", requests), ("tokens", tokens)):
        if said is not None:
            headers |= {f"x-ratelimit-remaining-{unit}": said[0], f"x-ratelimit-reset-{unit}": said[1]}
    assert allowance(headers) == found


@given(st.text(), st.text())
def test_any_allowance_is_read_or_ignored(remaining: str, reset: str) -> None:
    found = allowance({"x-ratelimit-remaining-requests": remaining, "x-ratelimit-reset-requests": reset})
    assert found is not None
    assert found.requests is None or found.requests > 0
