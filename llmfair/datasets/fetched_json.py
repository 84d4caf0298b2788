"""The JSON files that a fetch of TREC Fair leaves, and what they have to say: one that was damaged since is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

from llmfair.datasets.page_store import damaged
from llmfair.io import files

Source = TypedDict("Source", {"from": str})


class Step(TypedDict):
    """A step that is done."""

    sources: list[Source]


class Metadata(Step):
    full: NotRequired[bool]


class Index(TypedDict):
    scope: Literal["pool", "full"]
    engine: str
    analyzer: str
    source: str
    documents: int


class Pages(Step):
    text_words: int
    sha256: str
    index: NotRequired[Index]


class Record(TypedDict, total=False):
    """`fetch.json`."""

    topics: Step
    metadata: Metadata
    pages: Pages


class Topic(TypedDict):
    """One of `topics.json`."""

    query_id: str
    text: str
    relevant: int
    keywords: NotRequired[list[str]]


def read_fetched(path: Path, of: Any) -> Any:
    """All that such a file says, of this type and perhaps more. Raises UsageError."""
    import msgspec

    try:
        document = msgspec.json.decode(files.document(path))
        msgspec.convert(document, of)
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path, error) from None
    return document
