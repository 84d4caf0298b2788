"""`python:MODULE:FUNCTION`: a ranker in the user's own code, `fn(query, documents)`, plain or async.

An object with `rerank` or `rank` is taken as it is (sentence-transformers, the package rerankers). Plain ones run in
threads, so that a slow one holds up no other list.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from importlib import import_module
from inspect import isawaitable, isclass, iscoroutinefunction
from pathlib import Path
from typing import Any, cast

from llmfair.backends.base import BackendOptions
from llmfair.backends.given import PREFIX as GIVEN
from llmfair.backends.given import source_of
from llmfair.backends.scored import SCORES, answer, scores_lists, scores_of, shown
from llmfair.errors import LlmfairError, Rejected, UsageError, line_of
from llmfair.io import files
from llmfair.io.text import aside
from llmfair.nouns import Completion, Request
from llmfair.registry import register

METHODS = ("rerank", "rank")
FUNCTION_WORKERS, ASYNC_WORKERS = 8, 64
Rank = Callable[[str, list[str]], Any]


@register("backend", "python")
@scores_lists
def python(name: str, options: BackendOptions) -> Function:
    """The function or object that a spec names. Raises UsageError for one that cannot be imported or called."""
    module, _, attribute = name.partition(":")
    return Function(imported(module, attribute, "python"), f"python:{name}")


def imported(module: str, attribute: str, prefix: str) -> Any:
    """An object of a module, which may stand in the current folder. Raises UsageError."""
    example = f"for example {prefix}:my_ranker:rank, of my_ranker.py in this folder"
    if not module or not attribute:
        raise UsageError(f"{prefix}:{module} names no MODULE:NAME.", example)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        with aside(), files.usual():  # it may download weights
            found = import_module(module)
    except (Exception, SystemExit) as error:  # whatever the user's module does when it is imported
        raise UsageError(f"{module} cannot be imported: {line_of(error)}.", example) from None
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise UsageError(f"{module} has no {attribute}.", example)
        found = getattr(found, part)
    return found


class Function:
    """A function of a query and documents, or an object with such a method. `identity` has a digest of its source.

    Functions answer several lists at a time, objects, which may hold a model, one; async ones as many as there are
    workers.
    """

    reads_about = False
    capabilities = frozenset({SCORES})

    def __init__(self, ranker: Any, spec: str = "") -> None:
        """Raises UsageError for what cannot be called with a query and documents."""
        name = getattr(ranker, "__qualname__", type(ranker).__name__).replace("<lambda>", "lambda")
        self.spec = spec or f"{GIVEN}:{name}"
        made = self._made(ranker) if isclass(ranker) else ranker
        methods = (getattr(made, one, None) for one in METHODS)
        method = next((one for one in methods if callable(one)), None)
        if method is None and not callable(made):
            raise UsageError(
                f"{self.spec} is a {type(made).__name__}, which ranks nothing.",
                "a function of (query, documents), or an object with a method rerank or rank",
            )
        self.call = cast(Rank, made if method is None else method)
        self.identity = f"{self.spec.replace(':', ' ')}{source_of(made, self.call)}"
        at_once = FUNCTION_WORKERS if method is None else 1
        self.max_workers = ASYNC_WORKERS if iscoroutinefunction(self.call) else at_once
        self._threads: ThreadPoolExecutor | None = None

    def _made(self, ranker: Callable[[], Any]) -> Any:
        try:
            with aside(), files.usual():
                return ranker()
        except (Exception, SystemExit) as error:  # whatever the user's class does
            raise UsageError(
                f"{self.spec} cannot be made: {type(error).__name__}: {line_of(error)}.",
                "name an object of this class, which your module makes",
            ) from None

    async def open(self) -> None:
        self._threads = ThreadPoolExecutor(self.max_workers, "llmfair-ranker")

    async def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    async def complete(self, request: Request) -> Completion:
        """One list. Raises Rejected where the ranker fails on it, UsageError where it returns what holds no scores."""
        query, documents = shown(request, self.spec)
        began = time.perf_counter()
        try:
            found = await self.ranked(query, documents)
        except LlmfairError:
            raise
        except (Exception, SystemExit) as error:
            raise Rejected(
                f"{self.spec} fails: {type(error).__name__}: {line_of(error)}.", "see the ranker"
            ) from None
        return answer(scores_of(found, documents, self.spec), seconds=time.perf_counter() - began)

    async def ranked(self, query: str, documents: Sequence[str]) -> Any:
        """What the ranker returns; a plain one is called in a thread."""
        with aside():
            if iscoroutinefunction(self.call):
                return await self.call(query, list(documents))
            work = partial(copy_context().run, self.call, query, list(documents))
            found = await asyncio.get_running_loop().run_in_executor(self._threads, work)
            return await found if isawaitable(found) else found
