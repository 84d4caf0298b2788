"""The nouns of pairs: what one answer chose, and what both answers on a pair come to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
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


@dataclass(frozen=True, slots=True)
class PairAnswer:
    """One answer on a pair: the side whose item won, or the problem (`tie` or why it is unparseable).

    `margin`: log-probability of the label of the item shown first minus that of the other, where it is known.
    `mass`: the probability of both labels together, likewise.
    """

    winner: Side | None
    problem: str | None = None
    margin: float | None = None
    mass: float | None = None

    @property
    def unparseable(self) -> bool:
        return self.problem not in (None, "tie")


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
    def cell(self) -> Cell:
        answers = (self.first, self.second)
        unparseable = sum(answer.unparseable for answer in answers)
        if unparseable:
            return Cell.M1 if unparseable == 1 else Cell.M2
        if any(answer.problem == "tie" for answer in answers):
            return Cell.T
        won_first, won_second = (answer.winner is Side.PROTECTED for answer in answers)
        if won_first == won_second:
            return Cell.PP if won_first else Cell.UU
        return Cell.FF if won_first else Cell.SS

    @property
    def outcome(self) -> PairOutcome:
        known = {Cell.PP: PairOutcome.PROTECTED, Cell.UU: PairOutcome.UNPROTECTED}
        flipped = PairOutcome.FLIPPED if self.cell in (Cell.FF, Cell.SS) else PairOutcome.INVALID
        return known.get(self.cell, flipped)
