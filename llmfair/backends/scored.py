"""Lists and their scores: what a request for them shows, and how a ranker's own result becomes an answer."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from llmfair import registry
from llmfair.errors import UsageError
from llmfair.io.files import encode
from llmfair.nouns import Completion, Finish, Request, Scores

F = TypeVar("F")

SCORES: Final = "scores"
"""The capability of a backend that scores lists, and the strategy that asks it."""
FORMS = "return a score for each document, the documents themselves best first, or rows of index and score"
_SCORERS: set[Any] = set()
_INDEX = ("index", "corpus_id", "doc_id")
_SCORE = ("relevance_score", "score")


def scores_lists(factory: F) -> F:
    """Marks a backend's factory: it scores lists. To know that takes no model, nor the extra that a model needs."""
    _SCORERS.add(factory)
    return factory


def is_scorer(spec: str) -> bool:
    """Whether the backend that a model spec names scores lists, and answers no questions."""
    prefix = spec.partition(":")[0]
    return registry.has("backend", prefix) and registry.lookup("backend", prefix) in _SCORERS


def shown(request: Request, spec: str) -> tuple[str, list[str]]:
    """The query and the documents of a request. Raises UsageError for one that asks for no scores."""
    if not isinstance(request.chat.expects, Scores):
        raise UsageError(f"{spec} scores lists; it answers no questions.", "leave --strategy out")
    query, *documents = (message.content for message in request.chat.messages)
    return query, documents


def answer(
    scores: Iterable[tuple[int, float | None]], tokens: int | None = None, seconds: float = 0.0
) -> Completion:
    """Places and scores as an answer, as they came; a score that is no number is null."""
    pairs = [
        [place, score if score is not None and math.isfinite(score) else None] for place, score in scores
    ]
    finish = Finish.STOP if pairs else Finish.EMPTY
    return Completion(encode(pairs).decode() if pairs else "", finish, tokens, seconds=seconds)


def rows_of(rows: Iterable[Any]) -> Iterator[tuple[int, float | None]]:
    """Places and scores of rows that hold them under the names of rerank endpoints and packages.

    Raises ValueError, TypeError for a row without a place; a score that is none is None.
    """
    for row in rows:
        place = _field(row, _INDEX)
        if place is None:
            place = _field(_field(row, ("document",)), _INDEX)  # the package rerankers
        if not isinstance(place, int) or isinstance(place, bool):
            raise ValueError(row)
        score = _field(row, _SCORE)
        yield place, float(score) if isinstance(score, int | float) and not isinstance(score, bool) else None


def scores_of(found: Any, documents: Sequence[str], spec: str) -> list[tuple[int, float | None]]:
    """What a ranker of the user's own makes of documents, in any of its FORMS. Raises UsageError for another."""
    found = getattr(found, "results", found)
    if hasattr(found, "tolist"):
        found = found.tolist()
    if isinstance(found, Iterable) and not isinstance(found, str | bytes | Mapping):
        items = list(found)
        if items and all(isinstance(item, str) for item in items):
            return _ranks(items, documents)
        if len(items) == len(documents) and all(_number(item) for item in items):
            return [(place, float(item)) for place, item in enumerate(items)]
        try:
            return list(rows_of(items))
        except (TypeError, ValueError):
            pass
    raise UsageError(f"{spec} returned {_described(found)} for {len(documents)} documents.", FORMS)


def _ranks(order: Sequence[str], documents: Sequence[str]) -> list[tuple[int, float | None]]:
    """An order as falling scores; a document that was not shown has a place that there is not."""
    places: dict[str, deque[int]] = defaultdict(deque)
    for place, document in enumerate(documents):
        places[document].append(place)
    return [
        (places[document].popleft() if places[document] else len(documents), float(len(order) - rank))
        for rank, document in enumerate(order)
    ]


def _number(item: Any) -> bool:
    """Whether it is one, also of numpy or torch."""
    return not isinstance(item, str | bytes | bool) and hasattr(item, "__float__")


def _field(row: Any, names: Sequence[str]) -> Any:
    for name in names:
        value = row.get(name) if isinstance(row, Mapping) else getattr(row, name, None)
        if value is not None:
            return value.item() if hasattr(value, "item") else value
    return None


def _described(found: Any) -> str:
    kind = type(found).__name__
    if not hasattr(found, "__len__"):
        return f"a {kind}"
    items = list(found) if isinstance(found, list | tuple) else []
    wrong = next((item for item in items if not _number(item)), items)
    return f"{kind} of {len(found)}" + (f" with a {type(wrong).__name__} in it" if wrong is not items else "")
