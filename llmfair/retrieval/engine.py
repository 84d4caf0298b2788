"""What searches a collection, whatever stands behind it: programs are given an engine and know no more than this;
and how text becomes terms."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from llmfair.errors import RunConflict, warn
from llmfair.nouns import Document, Fill, StoredIndex

if TYPE_CHECKING:
    import tantivy

T = TypeVar("T")

# How text becomes terms, of documents and of queries: letters and digits in lower case, with stems or without.


@dataclass(frozen=True)
class Analyzer:
    """Cuts text at whatever is neither letter nor digit.

    `tokenizer`: its name in an index. `longest`: longer words are left out, bytes. `stems`: of which language endings
    are cut (Snowball), or none.
    """

    name: str
    tokenizer: str
    longest: int
    stems: str = ""

    def terms(self, text: str) -> list[str]:
        """The terms of a text, in its order, repeated as there."""
        return self.built().analyze(plain(text))

    def built(self) -> tantivy.TextAnalyzer:
        """What tantivy calls an analyzer: one for each thread."""
        from tantivy import Filter, TextAnalyzerBuilder, Tokenizer

        builder = TextAnalyzerBuilder(Tokenizer.simple()).filter(Filter.remove_long(self.longest))
        builder = builder.filter(Filter.lowercase())
        return (builder.filter(Filter.stemmer(self.stems)) if self.stems else builder).build()


ENGLISH = Analyzer("english", "en_stem", 40, "english")
STANDARD = Analyzer("standard", "standard", 255)
"""Nearest to Lucene's StandardTokenizer, which keeps "don't", "U.S.A.", "3.14" and "foo_bar" whole."""
ANALYZERS = {analyzer.name: analyzer for analyzer in (ENGLISH, STANDARD)}


def plain(text: str) -> str:
    """Composed characters, since a combining accent would end a word; half a surrogate pair becomes `?`."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", text).encode("utf-8", "replace").decode("utf-8")


# What searches a collection


SHOWN_WAIT = 1.0
"""Seconds that whoever waits is told of."""


SPARE = 50
"""Documents fetched past the k-th, so that most ties are whole at once."""


class Hit(NamedTuple):
    """A document that shares a word with the query, and its score."""

    doc_id: str
    score: float


def best(
    k: int, most: int, hits_of: Callable[[int], list[tuple[float, T]]], doc_id: Callable[[T], str]
) -> list[Hit]:
    """The best k of what an engine finds, ties by doc id, which engines have in the order of their segments.

    `hits_of(n)`: the best n, best first, `most` of them at most, as score and what `doc_id` makes an id of.
    """
    fetched = min(k + SPARE, most)
    while len(hits := hits_of(fetched)) == fetched < most and hits[-1][0] == hits[k - 1][0]:
        fetched = min(4 * fetched, most)
    least = min((score for score, _ in hits[:k]), default=0.0)
    ranked = sorted((-score, doc_id(hit)) for score, hit in hits if score >= least)
    return [Hit(name, -score) for score, name in ranked[:k]]


class Engine(Protocol):
    """BM25 over one collection. Text is words, never query syntax; threads may share an engine.

    Scores of two engines may differ by a constant factor (k1 + 1), which changes no order.
    """

    @property
    def identity(self) -> str:
        """All that can change a score, in words."""

    def search(self, text: str, k: int, added: str = "", weight: float = 1.0) -> Sequence[Hit]:
        """The best k documents, best first, ties by doc id; fewer when fewer share a word with the query.

        The query is the words of `text` and those of `added`, a repeated word as often as it stands there; what a
        word of `added` adds to a score counts `weight` times.
        """

    def scores(self, text: str, doc_ids: Collection[str]) -> Mapping[str, float]:
        """The score of each of these documents as a search of everything has it; 0 where no word of `text` stands.

        Raises KeyError or UsageError for an unknown document.
        """

    def count(self) -> int:
        """How many documents the collection has."""


def refuse_other(index: object, there: Mapping[str, Any], wanted: Mapping[str, Any], hint: str) -> None:
    """Raises RunConflict for an index that was made of something else than what is wanted, with each fact by name."""
    others = ((name, of, there.get(name)) for name, of in wanted.items() if there.get(name) != of)
    if differences := [f"{name} is {str(other)[:12]}, not {str(of)[:12]}" for name, of, other in others]:
        raise RunConflict(f"the index {index} is another one: {', '.join(differences)}.", hint)


def _say(cause: str, seconds: float) -> None:
    if seconds >= SHOWN_WAIT:
        warn(f"{cause}, waiting {seconds:,.0f} s")


@dataclass
class Patience:
    """How long a search server is waited for, as `asking.limits` has it of models; `timeout` seconds for one reply.

    `waits(cause, seconds)` hears of each pause: whoever runs the command, until a run that shows its progress begins.
    """

    timeout: float = 120.0
    retries: int = 8
    max_wait: float = 1800.0
    outage: float = 60.0
    waits: Callable[[str, float], None] = _say


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """What an engine searches. `collection` names it; its `documents` are at hand, unless an index was `made` of them.

    `index` is what the engine's spec names after a colon; `url` and `fields`, the searched ones of an index that
    somebody else made, and `patience` are of servers. `cache` is a folder that outlives the run.
    """

    collection: str
    documents: Mapping[str, Document]
    analyzer: Analyzer
    cache: Path
    made: StoredIndex | None = None
    index: str = ""
    url: str | None = None
    fields: tuple[str, ...] = ()
    patience: Patience = field(default_factory=Patience)


class EngineKind(Protocol):
    """What is registered as an engine (`@register("engine", NAME)`): `--engine NAME` or `NAME:INDEX`."""

    def open(self, options: EngineOptions) -> Engine:
        """Over an index that exists, or over documents at hand. Raises UsageError, RunConflict, BackendError."""

    def filler(self, index: str, url: str | None, analyzer: Analyzer) -> Fill:
        """What fills an index of this name. Raises UsageError, MissingKey or Unavailable where none can be made."""
