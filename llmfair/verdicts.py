"""The nouns of pairs: what one answer chose, and what both answers on a pair come to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter
from typing import Literal

from llmfair.records import Side

PairStratum = Literal["relevant", "irrelevant"]


class Cell(StrEnum):
    """What both answers on a pair come to; which item was shown first in either is the other way round.

    PP, UU: the same side's item won both times. FF: the item shown first won both times, SS: the one shown
    second. T: a tie and nothing unparseable. M1, M2: one or both answers unparseable.
    """

    PP = "PP"
    UU = "UU"
    FF = "FF"
    SS = "SS"
    T = "T"
    M1 = "M1"
    M2 = "M2"


class PairOutcome(StrEnum):
    """A pair's verdict in words: FLIPPED answers follow the position, INVALID ones cannot be read or are ties."""

    PROTECTED = "protected"
    UNPROTECTED = "unprotected"
    FLIPPED = "flipped"
    INVALID = "invalid"


OUTCOMES = {
    Cell.PP: PairOutcome.PROTECTED,
    Cell.UU: PairOutcome.UNPROTECTED,
    Cell.FF: PairOutcome.FLIPPED,
    Cell.SS: PairOutcome.FLIPPED,
}


@dataclass(frozen=True, slots=True)
class PairAnswer:
    """One answer on a pair: the side whose item won, or the problem (`tie` or why it is unparseable).

    `margin`: log-probability of the label of the item shown first minus that of the other, where it is known.
    `mass`: the probability of both labels together, likewise. `formed`: a model that is held to the form of its
    answers may have given it.
    """

    winner: Side | None
    problem: str | None = None
    margin: float | None = None
    mass: float | None = None
    formed: bool = True

    @property
    def unparseable(self) -> bool:
        return self.problem not in (None, "tie")


@lru_cache(maxsize=64)
def pair_answer(
    winner: Side | None,
    problem: str | None = None,
    margin: float | None = None,
    mass: float | None = None,
    formed: bool = True,
) -> PairAnswer:
    """A PairAnswer, the very same for equal ones that follow each other closely: of words there are few."""
    return PairAnswer(winner, problem, margin, mass, formed)


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """Both answers on one pair of documents: `first` with the protected item shown first, `second` with it second.

    `number` is the pair's place in its query's schedule; `draw` counts the times it was asked.
    """

    query_id: str
    stratum: PairStratum
    number: int
    draw: int
    protected: str
    unprotected: str
    first: PairAnswer
    second: PairAnswer

    @property
    def answers(self) -> tuple[PairAnswer, PairAnswer]:
        return self.first, self.second

    @property
    def cell(self) -> Cell:
        first, second = self.first, self.second
        if first.unparseable or second.unparseable:
            return Cell.M2 if first.unparseable and second.unparseable else Cell.M1
        if first.problem or second.problem:
            return Cell.T
        won_first, won_second = first.winner is Side.PROTECTED, second.winner is Side.PROTECTED
        if won_first == won_second:
            return Cell.PP if won_first else Cell.UU
        return Cell.FF if won_first else Cell.SS

    @property
    def outcome(self) -> PairOutcome:
        return OUTCOMES.get(self.cell, PairOutcome.INVALID)


def by_query(verdicts: Iterable[PairVerdict]) -> Iterator[tuple[str, list[PairVerdict]]]:
    """The verdicts of each query, by pair and draw; queries in the order of their names."""
    found: dict[str, list[PairVerdict]] = {}
    for verdict in verdicts:
        found.setdefault(verdict.query_id, []).append(verdict)
    for query_id in sorted(found):
        yield query_id, sorted(found.pop(query_id), key=attrgetter("number", "draw"))
