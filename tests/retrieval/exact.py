"""BM25 exactly as Lucene computes it, in numpy: what engines are held against."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from llmfair.nouns import Document
from llmfair.retrieval.analysis import Analyzer
from llmfair.retrieval.engine import Hit

K1, B = 1.2, 0.75


class Exact:
    """score(q, d) = Σ over query terms (repeats count) of idf · f / (f + k1 (1 − b + b · L / avgL)), without k1 + 1.

    idf = ln(1 + (N − n + ½) / (n + ½)); L is the document's length as Lucene keeps it in one byte, avgL the mean of
    lengths as they are.
    """

    def __init__(self, documents: Sequence[Document], analyzer: Analyzer) -> None:
        self.doc_ids = [document.doc_id for document in documents]
        self._analyzer = analyzer
        texts = [analyzer.terms(f"{document.title}\n{document.text}") for document in documents]
        lengths = np.array([len(text) for text in texts], dtype=float)
        kept = np.array([decoded(encoded(len(text))) for text in texts], dtype=float)
        self._norms = K1 * (1 - B + B * kept / lengths.mean())
        self._often: dict[str, dict[int, int]] = {}
        for place, text in enumerate(texts):
            for term, often in Counter(text).items():
                self._often.setdefault(term, {})[place] = often

    def scores(self, text: str, added: str = "", weight: float = 1.0) -> dict[str, float]:
        """The score of every document."""
        found = np.zeros(len(self.doc_ids))
        counts: dict[str, float] = {}
        for part, times in ((text, 1.0), (added, weight)):
            for term in self._analyzer.terms(part):
                counts[term] = counts.get(term, 0.0) + times
        for term, times in counts.items():
            holding = self._often.get(term, {})
            places = np.fromiter(holding, dtype=int, count=len(holding))
            often = np.fromiter(holding.values(), dtype=float, count=len(holding))
            idf = math.log(1 + (len(found) - len(holding) + 0.5) / (len(holding) + 0.5))
            found[places] += times * idf * often / (often + self._norms[places])
        return dict(zip(self.doc_ids, found.tolist(), strict=True))

    def search(self, text: str, k: int, added: str = "", weight: float = 1.0) -> list[Hit]:
        """The best k documents with a word of the query, ties by doc id."""
        hits = [Hit(doc_id, score) for doc_id, score in self.scores(text, added, weight).items() if score > 0]
        return sorted(hits, key=lambda hit: (-round(hit.score, 9), hit.doc_id))[:k]


def encoded(length: int) -> int:
    """A length as Lucene's SmallFloat.intToByte4 keeps it: exact below 40, then with four bits."""
    return length if length < 24 else 24 + _int4(length - 24)


def decoded(byte: int) -> int:
    """The length that stands for those of one byte: the least of them."""
    if byte < 24:
        return byte
    exponent, bits = ((byte - 24) >> 3) - 1, (byte - 24) & 7
    return 24 + (bits if exponent == -1 else (bits | 8) << exponent)


def _int4(number: int) -> int:
    width = number.bit_length()
    return number if width < 4 else ((number >> (width - 4)) & 7) | ((width - 3) << 3)
