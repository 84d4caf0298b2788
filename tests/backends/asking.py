"""A backend opened, asked, and closed whatever comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from llmfair.nouns import Completion, Request


def answers_of(backend: Any, requests: Iterable[Request], *, alone: bool = False) -> list[Completion]:
    """What it answers, all at once or one after the other."""

    async def ask() -> list[Completion]:
        await backend.open()
        try:
            if alone:
                return [await backend.complete(one) for one in requests]
            return list(await asyncio.gather(*map(backend.complete, requests)))
        finally:
            await backend.close()

    return asyncio.run(ask())
