"""The seam between ranking programs and whatever answers them: one async method, one attempt, one answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from llmfair.errors import BackendError, ContextTooLong, Rejected
from llmfair.io.net import RateLimited as RateLimited
from llmfair.io.net import Transient as Transient
from llmfair.nouns import Completion, Message, Request


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """What a user may say about how a model is reached; a backend reads what concerns it.

    `timeout` in seconds; `max_reply`: bytes of the longest reply that is read; `wire`: the form in which a rerank
    endpoint is asked. `adapter`: the folder of a LoRA adapter; without `adapted` its base answers, in an engine started
    for both. `backend_args`: settings of an engine in this process, as they were written; `wishes`: more of them, for
    one that has such settings. `template_args`: what its chat template is given.
    """

    base_url: str | None = None
    server_name: str | None = None
    timeout: float = 120.0
    max_reply: int = 1_000_000
    wire: Literal["cohere", "voyage", "tei"] = "cohere"
    system: Literal["auto", "separate", "fold"] = "auto"
    seed: int = 0
    adapter: Path | None = None
    adapted: bool = True
    backend_args: Mapping[str, str] = field(default_factory=dict)
    wishes: Mapping[str, str] = field(default_factory=dict)
    template_args: Mapping[str, Any] = field(default_factory=dict)


class Backend(Protocol):
    """Answers requests. Made by `factory(name, options)`, registered as `@register("backend", PREFIX)`.

    `identity` says which model this is, in everything that can change an answer; it is part of every journal
    key. `max_workers` is the default cap on requests in flight. `reads_about`: a simulated model, whose answers
    depend on `Chat.about` and not on the words. `capabilities`: `adaptive` (a server, whose limits are found by
    asking), `constrain` (answers of the expected shape only), `margins` (log-probabilities of labels at an
    answer's first token), `forced_margins` (also where the labels differ further on), `seed`, `system_role`.
    `open` and `close` run on dispatch's loop. A backend may have `ready()`, too, which asks nothing, and raises what
    `open` would for what is not set, such as a key: dry runs and plans tell it. One that stands for several servers
    has them as `members`, which are asked in its stead; one that answers in this process has `gpus`, how many it takes
    where there are some.
    """

    identity: str
    capabilities: frozenset[str]
    max_workers: int
    reads_about: bool

    async def open(self) -> None: ...

    async def complete(self, request: Request) -> Completion:
        """One attempt. Raises RateLimited, Transient, or a BackendError; never returns an error as text."""
        ...

    async def close(self) -> None: ...


def members_of(backend: Backend) -> Mapping[str, Any]:
    """The servers behind a backend by name: those of its `members`, else itself, which needs no name.

    One of several has `async look()`, too, which returns from a server that is up and has the model.
    """
    return getattr(backend, "members", {"": backend})


class NoBackend:
    """Stands where a backend would: for a ranker that asks nothing, or a model that was asked before."""

    capabilities: frozenset[str] = frozenset()
    max_workers = 1

    def __init__(self, identity: str, reads_about: bool = False) -> None:
        self.identity, self.reads_about = identity, reads_about

    async def open(self) -> None:
        return None

    async def complete(self, request: Request) -> Completion:
        raise BackendError(f"{self.identity} asks no model.")

    async def close(self) -> None:
        return None


def require_room(request: Request, prompt: int, answer: int, room: int | None, model: str) -> None:
    """Raises ContextTooLong where so many tokens of a prompt and its answer are more than the model has room for."""
    if room is not None and prompt + answer > room:
        raise ContextTooLong(
            f"the prompt of {request.probe_id} has {prompt:,} tokens and its answer up to {answer:,}; "
            f"{model} has room for {room:,} in all.",
            "choose a smaller window, fewer words, or more context (of vllm: --backend-arg max_model_len=N)",
        )


BROKEN_OFF = {"error", "abort"}
"""How an answer ends that breaks off."""


def broken_off(key: str, before: set[str], who: str, hint: str) -> Transient | Rejected:
    """What such an answer to a request raises: it is asked for once more, and not again (`before`: keys)."""
    if key in before:
        return Rejected(f"{who} broke the answer off twice.", hint)
    before.add(key)
    return Transient(f"{who} broke the answer off")


def fold_system(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The same conversation for a template without a system role: its text heads the first user message."""
    if len(messages) < 2 or messages[0].role != "system":
        return messages
    system, first, *rest = messages
    return (Message(first.role, f"{system.content}\n\n{first.content}"), *rest)
