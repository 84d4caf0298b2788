"""`pyterrier:MODULE:TRANSFORMER`: a re-ranking transformer over a frame of qid, query, docno and text."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from llmfair.backends.base import BackendOptions
from llmfair.backends.python import Function, imported
from llmfair.backends.scored import scores_lists
from llmfair.errors import MissingExtra, UsageError
from llmfair.registry import register


@register("backend", "pyterrier")
@scores_lists
def pyterrier(name: str, options: BackendOptions) -> Function:
    """The transformer that a spec names. Raises UsageError, and MissingExtra without pandas."""
    module, _, attribute = name.partition(":")
    if find_spec("pandas") is None:
        raise MissingExtra("a transformer of PyTerrier ranks a frame.", "pip install 'llmfair[pandas]'")
    transformer = imported(module, attribute, "pyterrier")
    if not callable(getattr(transformer, "transform", None)):
        raise UsageError(f"pyterrier:{name} has no method transform.", "name a transformer that re-ranks")
    return Function(Transformed(transformer), f"pyterrier:{name}")


class Transformed:
    """A transformer that ranks a query's documents."""

    def __init__(self, transformer: Any) -> None:
        self.transformer = transformer

    def rank(self, query: str, documents: Sequence[str]) -> list[dict[str, Any]]:
        """Rows of index and score; a document that the transformer leaves out has none."""
        import pandas

        frame = pandas.DataFrame(
            {
                "qid": "1",
                "query": query,
                "docno": [str(place) for place in range(len(documents))],
                "text": list(documents),
                "score": 0.0,
                "rank": range(len(documents)),
            }
        )
        found = self.transformer.transform(frame)
        return [
            {"index": int(docno), "score": float(score)}
            for docno, score in zip(found["docno"], found["score"], strict=True)
        ]
