"""What an invocation may spend: calls, and money at the prices it was told."""

from __future__ import annotations

import asyncio

from llmfair.errors import Incomplete
from llmfair.nouns import Completion, Request

CHARACTERS_PER_TOKEN = 4
GO_ON = "the same command continues"


def characters(request: Request) -> int:
    """The length of what is sent."""
    return sum(len(message.content) for message in request.chat.messages)


class Budget:
    """Counts calls and cost of one invocation; `price_in`, `price_out` are per million tokens.

    A request leaves only if what is spent, what requests in flight may cost and what it may cost itself stay within
    `max_cost`. It may cost its whole `max_tokens`, and a token for every four characters, or as many as the server
    has been seen to count. A reply without token counts is charged by its characters, a failure nothing.
    """

    def __init__(
        self,
        max_calls: int | None = None,
        max_cost: float | None = None,
        price_in: float | None = None,
        price_out: float | None = None,
    ) -> None:
        self.calls = 0
        self.spent = 0.0
        self.priced = price_in is not None and price_out is not None
        self._max_calls, self._max_cost = max_calls, max_cost
        self._price_in, self._price_out = (price_in or 0.0) / 1e6, (price_out or 0.0) / 1e6
        self._reserved, self._in_flight = 0.0, 0
        self._tokens_per_character = 1 / CHARACTERS_PER_TOKEN
        self._settled = asyncio.Event()

    async def call(self, request: Request) -> float:
        """Takes one call and returns the cost it reserves. Raises Incomplete when the budget is spent.

        While only requests in flight stand in the way, waits for what they really cost.
        """
        while True:
            if self._max_calls is not None and self.calls >= self._max_calls:
                raise Incomplete(f"the budget of {self._max_calls} calls is spent.", GO_ON)
            own = self._most(request) if self._max_cost is not None else 0.0
            if self._max_cost is None or self.spent + self._reserved + own <= self._max_cost:
                self.calls += 1
                self._in_flight += 1
                self._reserved += own
                return own
            if not self._in_flight:
                raise Incomplete(
                    f"the budget of {self._max_cost:g} has no room for another call: {self.spent:.4g} is spent, "
                    f"and the next may cost {own:.2g}.",
                    GO_ON,
                )
            await self._settled.wait()

    def settle(self, reserved: float, request: Request, completion: Completion | None) -> None:
        """Puts what a call has cost, nothing for a failed one, in the place of what it reserved."""
        self._in_flight -= 1
        self._reserved -= reserved
        if completion is not None and self.priced:
            sent, answered = completion.prompt_tokens, completion.completion_tokens
            if sent is None:
                sent = characters(request) // CHARACTERS_PER_TOKEN
            elif self._max_cost is not None:
                seen = sent / max(characters(request), 1)
                self._tokens_per_character = max(self._tokens_per_character, seen)
            if answered is None:
                answered = len(completion.text) // CHARACTERS_PER_TOKEN
            self.spent += sent * self._price_in + answered * self._price_out
        if self._max_cost is not None:  # else nobody waits
            self._settled.set()
            self._settled.clear()

    def _most(self, request: Request) -> float:
        tokens = characters(request) * self._tokens_per_character
        return tokens * self._price_in + request.sampling.max_tokens * self._price_out
