"""Programs of rankers with answers by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llmfair.nouns import Chat, Completion, Finish, Probe, drive

Answer = Callable[[Chat], str | Completion]


def ask(ranker: Any, probe: Probe, answer: Answer) -> tuple[Any, list[Chat]]:
    """What the ranker's program for this probe returns, and the chats that it asked."""
    chats: list[Chat] = []

    def complete(chat: Chat) -> Completion:
        chats.append(chat)
        reply = answer(chat)
        return reply if isinstance(reply, Completion) else Completion(reply, Finish.STOP)

    return drive(ranker.steps(probe), complete), chats
