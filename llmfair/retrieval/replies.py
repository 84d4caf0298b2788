"""What search servers answer, as far as it is read: of these types, or refused in a sentence with server and field."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from llmfair.errors import UsageError

T = TypeVar("T")
LONGEST_ID = 512
"""Bytes of a document's id, in Elasticsearch as in OpenSearch."""
MOST_FIELDS = 100_000

Count = Annotated[int, Meta(ge=0, le=1 << 53)]
Word = Annotated[str, Meta(max_length=100, pattern=r"^[ -~]+$")]
"""What is written down of a server or an index."""


class Version(Struct):
    number: Word
    distribution: Word = "elasticsearch"


class Root(Struct):
    """Of the server itself."""

    version: Version


class Shape(Struct):
    uuid: Word | UnsetType = UNSET
    number_of_shards: Annotated[str, Meta(pattern=r"^[0-9]{1,6}$")] | Count = 1


class Settings(Struct):
    index: Shape = msgspec.field(default_factory=Shape)


class MadeOf(Struct):
    """What llmfair wrote of an index that it filled; `documents`, when it was whole."""

    source: Word
    tokenizer: Word
    documents: Count | UnsetType = UNSET


class Remarks(Struct):
    llmfair: MadeOf | None = None


class Property(Struct):
    """A field, those below it, and those that hold the same in another form."""

    type: str | UnsetType = UNSET
    properties: dict[str, Property] = {}
    fields: dict[str, Property] = {}

    def named(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        """The fields below by their full names, with their types."""
        for name, one in (*self.properties.items(), *self.fields.items()):
            if one.type is not UNSET:
                yield prefix + name, one.type
            yield from one.named(f"{prefix}{name}.")


class Mappings(Property, rename={"meta": "_meta"}):
    meta: Remarks = msgspec.field(default_factory=Remarks)


class Described(Struct):
    """Of an index."""

    settings: Settings = msgspec.field(default_factory=Settings)
    mappings: Mappings = msgspec.field(default_factory=Mappings)


class Counted(Struct):
    count: Count


class Refused(Struct, rename={"doc_id": "_id"}):
    status: Count
    doc_id: str = ""
    error: Any = None


class Sent(Struct):
    create: Refused


class Bulk(Struct):
    """Of documents that were sent together."""

    errors: bool = False
    items: list[Sent] = []


class Shards(Struct):
    failed: Count = 0


class One(Struct, rename={"doc_id": "_id", "score": "_score"}):
    doc_id: Annotated[str, Meta(min_length=1, max_length=LONGEST_ID)]
    score: float | None = None


class Hits(Struct):
    hits: list[One]


class Found(Struct, rename={"shards": "_shards"}):
    """Of a search."""

    hits: Hits
    timed_out: bool = False
    shards: Shards = msgspec.field(default_factory=Shards)


def read(server: str, answer: Any, of: type[T]) -> T:
    """An answer as this type; what is beside it is passed over. Raises UsageError."""
    try:
        return msgspec.convert(answer, of)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        field, missing = where.strip(".`"), what.removeprefix("Object missing required field ")
        if missing != what:
            raise odd(server, f"lacks {'.'.join(filter(None, (field, missing.strip('`'))))}") from None
        raise odd(server, f"is odd{f' at {field}' if field else ''}: {what[:1].lower()}{what[1:]}") from None
    except UnicodeEncodeError:
        raise odd(server, "holds half a character") from None
    except RecursionError:
        raise odd(server, "is nested too deep") from None


def hits_of(server: str, found: Found, most: int) -> Sequence[One]:
    """The documents of a search for so many at most, each once and with a score. Raises UsageError."""
    hits = found.hits.hits
    if len(hits) > most:
        raise odd(server, f"has {len(hits):,} hits, where {most:,} were asked for")
    if len({hit.doc_id for hit in hits}) < len(hits):
        raise odd(server, "has one _id twice among its hits")
    if not all(math.isfinite(hit.score or 0.0) for hit in hits):
        raise odd(server, "has a _score among its hits that is no finite number")
    return hits


def fields_of(server: str, mappings: Mappings) -> Mapping[str, str]:
    """The fields of an index by their full names, with their types. Raises UsageError."""
    try:
        return dict(islice(mappings.named(), MOST_FIELDS))
    except RecursionError:
        raise odd(server, "is nested too deep") from None


def odd(server: str, said: str) -> UsageError:
    """Of an answer of another form than search servers give."""
    return UsageError(f"an answer of {server} {said}.", "check --engine-url: search servers answer otherwise")
