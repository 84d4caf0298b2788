"""Tests that are coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

from tests.virtual import finish

P = ParamSpec("P")


def asynchronous(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Runs it to its end, which must come within 20 seconds."""

    @wraps(test)
    def run(*given: P.args, **named: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*given, **named), 20))

    return run


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Runs it to its end by the fixture `clock`, which jumps to whatever is waited for."""

    @wraps(test)
    def run(*given: P.args, **named: P.kwargs) -> None:
        finish(test(*given, **named), named["clock"])  # type: ignore[arg-type]

    return run
