"""What simulated models may know of a collection: the words that distinguish a group's documents from the rest."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping

from llmfair.nouns import Document
from llmfair.rankers.keywords import parts_of

HINTS, FEWEST = 3, 5
"""How many words are told, and in how many of the group's documents each stands at least."""
_STOP_WORDS = """
    a about after all also an and any are as at be been before but by can did do during for from had has have if in
    into is it its more most no not of on once one only or other over same since so some such than that the then
    there these this those through to under until up was were what when where which while who whose will with
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Words of no content. Pronouns are left: they tell a gender."""


def terms_of(document: Document) -> frozenset[str]:
    """The words of title and text in lower case, as they stand there, each once."""
    return parts_of(f"{document.title} {document.text}") - STOP_WORDS


def distinguishing(
    groups: Mapping[str, Collection[str]], terms: Mapping[str, Collection[str]], group: str, query: str
) -> list[str]:
    """The words, none of the query's, by which documents of a group are told from the others, the best first.

    `groups` and `terms` of the documents that the query finds. By the log odds ratio of standing in a document of the
    group and in another, each count with a half added; ties by the alphabet.
    """
    inside = [terms[doc_id] for doc_id, names in groups.items() if group in names]
    outside = [terms[doc_id] for doc_id, names in groups.items() if group not in names]
    within, without = (Counter(term for of in held for term in of) for held in (inside, outside))
    known = parts_of(query)

    def log_odds(term: str) -> float:
        one = (within[term] + 0.5) / (len(inside) - within[term] + 0.5)
        return math.log(one) - math.log((without[term] + 0.5) / (len(outside) - without[term] + 0.5))

    found = [term for term, held in within.items() if held >= FEWEST and term not in known]
    return sorted(found, key=lambda term: (-log_odds(term), term))[:HINTS]
