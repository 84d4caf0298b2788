"""What a model sees of a title or a query: one line that looks neither like an identifier nor like a token.

The rules depend on the text alone, are idempotent and leave meaning alone: a title that reads as an
instruction stays, since a real ranker would meet it too. What is ranked is a doc_id, never this text.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

from llmfair.control_tokens import without_control_tokens
from llmfair.nouns import Document

Input = Literal["title", "text"]
UNTITLED = "(untitled)"
WORDS = 300  # as RankGPT cuts its passages (Sun et al. 2023)
WHOLE = 1_000_000  # more words than any text has

# Control characters, bidi embeddings, overrides and isolates, and lone surrogates, which cannot be encoded.
# Line separators are white space anyway.
_INVISIBLE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
# The brackets of other scripts that an answer's normal form (NFKC) turns into square ones count as square.
_OPEN, _CLOSE = "\\[\uff3b\ufe47", "\\]\uff3d\ufe48"
_SQUARE = re.compile(f"[{_OPEN}]([^{_OPEN}{_CLOSE}]*)[{_CLOSE}]")
_NUMBERS = re.compile(r"[\s,]*\d[\d\s,]*")


def passage(document: Document, field: Input = "title", words: int = WORDS) -> str:
    """What stands for a document in a prompt: its title, or title, colon and text."""
    if field == "title" or not document.text.strip():
        return clean(document.title, words)
    if not document.title.strip():
        return clean(document.text, words)
    return clean(f"{document.title}: {document.text}", words)


def clean(text: str, words: int = WORDS) -> str:
    """One line of at most `words` words without identifiers and control tokens; never empty."""
    if not (text.isascii() and text.isprintable()):  # most texts are, and there are many
        text = _INVISIBLE.sub(" ", unicodedata.normalize("NFC", text))
    text = " ".join(text.split(None, words)[:words])
    if "[" in text or "<" in text or not text.isascii():
        # `[3]` becomes `(3)`: everything that a reader of answers would take for an identifier
        text = _SQUARE.sub(_rounded, text)
        text = without_control_tokens(text)
    return text or UNTITLED


def _rounded(match: re.Match[str]) -> str:
    return f"({match[1]})" if _NUMBERS.fullmatch(unicodedata.normalize("NFKC", match[1])) else match[0]
