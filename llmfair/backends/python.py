"""Models and rankers in the user's own code.

`python:MODULE:FUNCTION` is a ranker `fn(query, documents)`, plain or async; an object with `rerank` or `rank` is taken
as it is (sentence-transformers, the package rerankers). Plain ones run in threads, so that a slow one holds up no other
list. From Python a model can be any object with `async complete(request)`.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import sys
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import cached_property, partial
from inspect import getsource, isawaitable, isclass, iscoroutinefunction, isfunction, ismethod
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Final

from llmfair.backends.base import BackendOptions
from llmfair.checkpoints import Checkpoint, find_checkpoint, loading, require_local
from llmfair.errors import LlmfairError, Rejected, UsageError, line_of
from llmfair.io import files
from llmfair.io.text import aside
from llmfair.nouns import Completion, Finish, Request, Scores
from llmfair.registry import register

GIVEN = "object"
"""Before an object's name, where a spec has the name of a backend: `object:NAME`."""
SCORES: Final = "scores"
"""The capability of a backend that scores lists, and the strategy that asks it."""
FORMS = "return a score for each document, the documents themselves best first, or rows of index and score"
METHODS = ("rerank", "rank")
FUNCTION_WORKERS, ASYNC_WORKERS = 8, 64
SCORERS = {"cross-encoder", "pyterrier", "python", "rerank"}
"""The backends that score lists: to know that takes no model, nor the extra that a model needs."""
_INDEX = ("index", "corpus_id", "doc_id")
_SCORE = ("relevance_score", "score")
Scored = tuple[int, float | None]
"""The place of a document, and its score if there is one."""


def source_of(*things: Any) -> str:
    """A space and 12 hex of SHA-256 over the source of functions, or of the classes of objects; "" without any."""
    written = []
    for thing in things:
        try:
            written.append(getsource(thing if isfunction(thing) or ismethod(thing) else type(thing)))
        except (OSError, TypeError):  # of a class in a notebook its method can still be read
            continue
    return f" {hashlib.sha256(repr(written).encode()).hexdigest()[:12]}" if written else ""


class CallerModel:
    """The caller's object as a Backend. Its `name` goes into the run folder's name and, without an `identity`, into
    every key, together with a digest of its source: edited, it is another model.

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
        self.spec = f"{GIVEN}:{name}"
        self.identity: str = getattr(model, "identity", f"{GIVEN} {name}{source_of(model, model.complete)}")
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


# Lists and their scores: what a request for them shows, and how a ranker's own result becomes an answer.


def is_scorer(spec: str) -> bool:
    """Whether the backend that a model spec names scores lists, and answers no questions."""
    return spec.partition(":")[0] in SCORERS


def shown(request: Request, spec: str) -> tuple[str, list[str]]:
    """The query and the documents of a request. Raises UsageError for one that asks for no scores."""
    if not isinstance(request.chat.expects, Scores):
        raise UsageError(f"{spec} scores lists; it answers no questions.", "leave --strategy out")
    query, *documents = (message.content for message in request.chat.messages)
    return query, documents


def answer(scores: Iterable[Scored], tokens: int | None = None, seconds: float = 0.0) -> Completion:
    """Places and scores as an answer, as they came; a score that is no number is null."""
    pairs = [(place, None if score is None or not math.isfinite(score) else score) for place, score in scores]
    if not pairs:
        return Completion("", Finish.EMPTY, tokens, seconds=seconds)
    return Completion(files.encode(pairs).decode(), Finish.STOP, tokens, seconds=seconds)


def rows_of(rows: Iterable[Any]) -> Iterator[Scored]:
    """Places and scores of rows as endpoints and packages name them. Raises ValueError, TypeError without a place."""
    for row in rows:
        place = _field(row, _INDEX)
        if place is None:
            place = _field(_field(row, ("document",)), _INDEX)  # the package rerankers
        if not isinstance(place, int) or isinstance(place, bool):
            raise ValueError(row)
        score = _field(row, _SCORE)
        yield place, float(score) if isinstance(score, int | float) and not isinstance(score, bool) else None


def _field(row: Any, names: Sequence[str]) -> Any:
    for name in names:
        value = row.get(name) if isinstance(row, Mapping) else getattr(row, name, None)
        if value is not None:
            return value.item() if hasattr(value, "item") else value
    return None


def scores_of(result: Any, documents: Sequence[str], spec: str) -> list[Scored]:
    """What a ranker of the user's own makes of documents, in any of its FORMS. Raises UsageError for another."""
    result = getattr(result, "results", result)
    if hasattr(result, "tolist"):
        result = result.tolist()
    if isinstance(result, Iterable) and not isinstance(result, str | bytes | Mapping):
        items = list(result)
        if items and all(isinstance(item, str) for item in items):  # an order, as falling scores
            places: dict[str, deque[int]] = defaultdict(deque)
            for place, document in enumerate(documents):
                places[document].append(place)
            # a document that was not shown has a place that there is not
            return [
                (places[document].popleft() if places[document] else len(documents), float(len(items) - rank))
                for rank, document in enumerate(items)
            ]
        if len(items) == len(documents) and all(
            hasattr(item, "__float__") and not isinstance(item, str | bytes | bool) for item in items
        ):
            return [(place, float(item)) for place, item in enumerate(items)]
        try:
            return list(rows_of(items))
        except (TypeError, ValueError):
            pass
    size = f" of {len(result)}" if hasattr(result, "__len__") else ""
    raise UsageError(
        f"{spec} returned a {type(result).__name__}{size} for {len(documents)} documents.", FORMS
    )


class Function:
    """A function of a query and documents, or an object with such a method. `identity` has a digest of its source.

    Functions answer several lists at a time, objects, which may hold a model, one.
    """

    reads_about = False
    capabilities = frozenset({SCORES})

    def __init__(self, ranker: Any, spec: str = "") -> None:
        """Raises UsageError for what cannot be called with a query and documents."""
        name = getattr(ranker, "__qualname__", type(ranker).__name__).replace("<lambda>", "lambda")
        self.spec = spec or f"{GIVEN}:{name}"
        try:
            with aside(), files.usual():
                target = ranker() if isclass(ranker) else ranker
        except (Exception, SystemExit) as error:  # whatever the user's class does
            raise UsageError(
                f"{self.spec} cannot be made: {type(error).__name__}: {line_of(error)}.",
                "name an object of this class, which your module makes",
            ) from None
        methods = [of for name in METHODS if callable(of := getattr(target, name, None))]
        if not methods and not callable(target):
            raise UsageError(
                f"{self.spec} is a {type(target).__name__}, which ranks nothing.",
                "a function of (query, documents), or an object with a method rerank or rank",
            )
        self.call: Any = methods[0] if methods else target
        self.identity = f"{self.spec.replace(':', ' ')}{source_of(target, self.call)}"
        at_once = 1 if methods else FUNCTION_WORKERS
        self.max_workers = ASYNC_WORKERS if iscoroutinefunction(self.call) else at_once
        self._threads: ThreadPoolExecutor | None = None

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
            with aside():
                if iscoroutinefunction(self.call):
                    result = await self.call(query, [*documents])
                else:
                    work = partial(copy_context().run, self.call, query, [*documents])
                    result = await asyncio.get_running_loop().run_in_executor(self._threads, work)
                    result = await result if isawaitable(result) else result
        except LlmfairError:
            raise
        except (Exception, SystemExit) as error:
            raise Rejected(
                f"{self.spec} fails: {type(error).__name__}: {line_of(error)}.", "see the ranker"
            ) from None
        return answer(scores_of(result, documents, self.spec), seconds=time.perf_counter() - began)


@register("backend", "python")
def python(name: str, options: BackendOptions) -> Function:
    """The function or object that a spec names. Raises UsageError for one that cannot be imported or called."""
    return Function(imported(name, "python"), f"python:{name}")


def imported(name: str, prefix: str) -> Any:
    """MODULE:NAME as an object; the module may stand in the current folder. Raises UsageError."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        with aside(), files.usual():  # it may download weights
            return resolve_name(name)
    except (Exception, SystemExit) as error:  # whatever the user's module does when it is imported
        raise UsageError(
            f"{prefix}:{name} cannot be imported: {line_of(error)}.",
            f"for example {prefix}:my_ranker:rank, of my_ranker.py in this folder",
        ) from None


@register("backend", "pyterrier")
def pyterrier(name: str, options: BackendOptions) -> Function:
    """`pyterrier:MODULE:TRANSFORMER`, over frames of qid, query, docno and text. Raises UsageError."""
    transformer = imported(name, "pyterrier")
    if not callable(getattr(transformer, "transform", None)):
        raise UsageError(f"pyterrier:{name} has no method transform.", "name a transformer that re-ranks")
    return Function(Transformed(transformer), f"pyterrier:{name}")


@dataclass
class Transformed:
    """A transformer that ranks a query's documents."""

    transformer: Any

    def rank(self, query: str, documents: Sequence[str]) -> list[dict[str, Any]]:
        """Rows of index and score; a document that the transformer leaves out has none."""
        import pandas

        places = range(len(documents))
        columns = {"qid": "1", "query": query, "docno": list(map(str, places)), "text": list(documents)}
        ranked = self.transformer.transform(pandas.DataFrame({**columns, "score": 0.0, "rank": places}))
        return [
            {"index": int(docno), "score": float(score)}
            for docno, score in zip(ranked["docno"], ranked["score"], strict=True)
        ]


@register("backend", "cross-encoder")
def cross_encoder(name: str, options: BackendOptions) -> Function:
    """A CrossEncoder by folder or repository. Raises MissingExtra, UsageError, BackendError."""
    require_local("sentence_transformers")
    checkpoint = find_checkpoint(name)
    ranker = Function(CrossEncoder(checkpoint), f"cross-encoder:{name}")
    ranker.identity = f"cross-encoder {checkpoint.identity}"
    return ranker


@dataclass
class CrossEncoder:
    """It is loaded for the first list, so that a finished run loads none."""

    checkpoint: Checkpoint

    @cached_property
    def model(self) -> Any:
        import sentence_transformers

        with loading(self.checkpoint.name, hint="name a cross-encoder"):
            return sentence_transformers.CrossEncoder(
                self.checkpoint.source, revision=self.checkpoint.revision
            )

    def rank(self, query: str, documents: Sequence[str]) -> list[float]:
        pairs = [(query, document) for document in documents]
        return [float(score) for score in self.model.predict(pairs, show_progress_bar=False)]
