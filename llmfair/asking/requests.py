"""Chats made requests: with which sampling each is asked, and what its answer is filed under."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from llmfair.asking.journal import request_keys
from llmfair.backends.base import Backend
from llmfair.nouns import Chat, Expects, Labels, Permutation, Request, Sampling


class Requests:
    """Requests to a backend; what chats of one shape and draw have in common is made once."""

    def __init__(self, backend: Backend, sampling: Sampling) -> None:
        self._backend, self._sampling = backend, sampling
        self._shapes: dict[tuple[Expects, int], tuple[Sampling, Callable[[Chat], str]]] = {}

    def __call__(self, probe_id: str, chat: Chat) -> Request:
        shape = (chat.expects, chat.draw)
        if (known := self._shapes.get(shape)) is None:
            sampling = chat_sampling(chat, self._sampling)
            key_of = request_keys(self._backend.identity, *shape, sampling, self._backend.reads_about)
            known = self._shapes[shape] = sampling, key_of
        sampling, key_of = known
        return Request(chat, sampling, key_of(chat), probe_id)


def chat_sampling(chat: Chat, sampling: Sampling) -> Sampling:
    """The sampling of one chat: repeats must not share a seed, and `max_tokens` 0 goes by the answer's shape.

    Room for an answer: 16 + 8 n tokens for a permutation of n, 16 for a label, 256 for text, and what the
    model may spend on thinking beside it.
    """
    match chat.expects:
        case Permutation(n, best):
            room = 16 + 8 * (best or n)
        case Labels():
            room = 16
        case _:
            room = 256
    return replace(
        sampling,
        seed=sampling.seed + chat.draw,
        max_tokens=(sampling.max_tokens or room) + sampling.thinking_tokens,
        thinking_tokens=0,
    )
