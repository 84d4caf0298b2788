"""A model that is an object of the caller's own: anything with `async complete(request)`."""

from __future__ import annotations

import hashlib
from inspect import getsource, isawaitable, isfunction, ismethod
from typing import Any

from llmfair.errors import UsageError
from llmfair.nouns import Completion, Finish, Request

PREFIX = "object"
"""Before the object's name, where a spec has the name of a backend: `object:NAME`."""


class CallerModel:
    """The object as a Backend. Its `name` goes into the run folder's name and, without an `identity`, into every key,
    together with a digest of its source: edited, it is another model.

    `complete` returns a Completion, or just the text of an answer that came to its end. `open` and `close`,
    `identity`, `capabilities`, `max_workers` and `reads_about` are taken where the object has them. All of it is
    awaited on dispatch's own loop, not on the caller's.
    """

    def __init__(self, model: Any) -> None:
        """Raises UsageError for an object without `complete` or `name`."""
        kind, name = type(model).__name__, getattr(model, "name", None)
        if not (callable(getattr(model, "complete", None)) and isinstance(name, str) and name):
            raise UsageError(
                f"an object of class {kind} is no model: it lacks async complete(request), or a name.",
                "a model is a text such as 'openai:gpt-4o-mini', or an object with both",
            )
        self.model = model
        self.spec = f"{PREFIX}:{name}"
        self.identity: str = getattr(model, "identity", f"{PREFIX} {name}{source_of(model, model.complete)}")
        self.capabilities: frozenset[str] = frozenset(getattr(model, "capabilities", ()))
        self.max_workers: int = getattr(model, "max_workers", 16)
        self.reads_about: bool = getattr(model, "reads_about", False)

    async def open(self) -> None:
        if hasattr(self.model, "open"):
            await self.model.open()

    async def complete(self, request: Request) -> Completion:
        """The object's answer. Raises UsageError, which ends the run, where it is no answer."""
        coroutine = self.model.complete(request)
        answer = await coroutine if isawaitable(coroutine) else None
        if isinstance(answer, str):
            return Completion(answer, Finish.STOP if answer else Finish.EMPTY)
        if not isinstance(answer, Completion):
            raise UsageError(
                f"complete of {self.spec} is no async function that returns a text or an llmfair.Completion.",
                "async def complete(self, request): return llmfair.Completion(text, llmfair.Finish.STOP)",
            )
        return answer

    async def close(self) -> None:
        if hasattr(self.model, "close"):
            await self.model.close()


def source_of(*things: Any) -> str:
    """A space and 12 hex of SHA-256 over the source of functions, or of the classes of objects; "" without any."""
    written = []
    for thing in things:
        try:
            written.append(getsource(thing if isfunction(thing) or ismethod(thing) else type(thing)))
        except (OSError, TypeError):  # of a class in a notebook its method can still be read
            continue
    return f" {hashlib.sha256(repr(written).encode()).hexdigest()[:12]}" if written else ""
