"""How text becomes terms, of documents and of queries: letters and digits in lower case, with stems or without."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tantivy


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
