"""Lists, the pairs drawn from them, and answers to those with a known bias."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import numpy as np

from llmfair.audits.aggregates import Inference
from llmfair.nouns import Attribute, Candidates, Document, Query, Side
from llmfair.tuning.drawing import (
    STRATA,
    TrainingPair,
    group_sign,
    stratum_pairs,
)
from llmfair.tuning.effects import AnsweredPairs, Figures, measure

GENDER = Attribute("gender", ("female",), ("male",), {Side.PROTECTED: "female", Side.UNPROTECTED: "male"})
BAND = (0.8, 1.25)
QUERIES = 8


def listed(query_id: str, sizes: tuple[int, int, int, int] = (6, 6, 6, 6), shared: int = 0) -> Candidates:
    """Protected and unprotected relevant items, then irrelevant ones; `shared` of the last recur in every query."""
    documents, relevance = [], {}
    names = ("relevant-female", "relevant-male", "other-female", "other-male")
    for name, size in zip(names, sizes, strict=True):
        for place in range(size):
            own = "" if name.startswith("other") and place < shared else f"{query_id}-"
            document = Document(
                f"{own}{name}{place}", f"Title {own}{name}{place}", "", {"gender": (name.partition("-")[2],)}
            )
            documents.append(document)
            relevance[document.doc_id] = int(name.startswith("relevant"))
    return Candidates(Query(query_id, f"Topic {query_id}"), tuple(documents), relevance)


def shown(document: Document) -> str:
    return document.title


def pairs(queries: int = QUERIES) -> list[TrainingPair]:
    return [
        *chain(
            *(
                stratum_pairs(listed(f"q{number}"), GENDER, stratum, 36, 0, shown)
                for number in range(queries)
                for stratum in STRATA
            )
        )
    ]


def answers(margins: Callable[[TrainingPair], tuple[float, float]], queries: int = QUERIES) -> AnsweredPairs:
    asked = pairs(queries)
    return AnsweredPairs(asked, np.array([margins(pair) for pair in asked]), GENDER)


def biased(bias: float, relevance: float = 4.0, slot: float = 0.2, seed: int = 0) -> AnsweredPairs:
    """Items differ in ways that the group does not explain, the same for every bias."""
    rng = np.random.default_rng(seed)

    def margins(pair: TrainingPair) -> tuple[float, float]:
        g = bias * group_sign(pair, GENDER) + relevance * (pair.stratum == "mixed") + 1.5 * rng.normal()
        return g + slot, slot - g

    return answers(margins)


def figures(of: AnsweredPairs, base: AnsweredPairs) -> Figures:
    return measure(of, base, Inference(), BAND)
