"""A model of another package that gives numbers by chance, to items of the protected side one less."""

from __future__ import annotations

import asyncio
import os
from zlib import crc32

from llmfair.backends.base import BackendOptions
from llmfair.nouns import Completion, Finish, Request, Side


class Counter:
    """`counter:NAME`; SLOW_COUNTER in the environment is how many seconds an answer takes."""

    capabilities: frozenset[str] = frozenset()
    max_workers, reads_about = 8, True

    def __init__(self, name: str, options: BackendOptions) -> None:
        self.identity = f"counter {name}"

    async def open(self) -> None: ...

    async def complete(self, request: Request) -> Completion:
        await asyncio.sleep(float(os.environ.get("SLOW_COUNTER", 0)))
        number = 3 + crc32(request.key.encode()) % 6 - (request.chat.about["side"] == Side.PROTECTED)
        return Completion(f"I say {number}.", Finish.STOP)

    async def close(self) -> None: ...
