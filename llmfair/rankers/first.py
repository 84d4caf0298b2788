"""Single-token listwise ranking: a window is ordered by its items' letters, how likely each is where the answer begins.

Reddy et al. (2024), FIRST: Faster Improved Listwise Reranking with Single Token Decoding. Windows slide as elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from llmfair.errors import UsageError
from llmfair.nouns import Completion, Labels
from llmfair.rankers.answers import BY_FINISH, AnswerClass, ReaderName, Reading
from llmfair.rankers.questions import ANSWERED, MOST_LABELS, Margins, Question, by_margin, letters
from llmfair.rankers.strategy import StrategyOptions
from llmfair.rankers.windows import Windows
from llmfair.registry import register


@dataclass(frozen=True)
class Letters(Question):
    """All items, by how likely each one's letter is as the first token; letters out of sight come last, as shown."""

    prompt: str = "first"
    margins: ClassVar[Margins] = "needed"

    def label(self, place: int) -> str:
        return letters(place + 1)[place]

    def expects(self, n: int) -> Labels:
        return Labels(letters(n))

    def read(self, completion: Completion, n: int, reader: ReaderName) -> Reading:
        if completion.finish not in ANSWERED:
            return Reading(BY_FINISH[completion.finish])
        order, _ = by_margin(completion, letters(n))
        if not order:
            return Reading(AnswerClass.NO_IDS)
        behind = [place for place in range(n) if place not in order]
        return Reading(AnswerClass.MISSING if behind else AnswerClass.OK, (*order, *behind), len(order))


QUESTION = Letters()


@dataclass(frozen=True)
class First(Windows):
    """Windows of one token each."""

    question: Question = QUESTION


@register("strategy", "first")
def first(options: StrategyOptions) -> First:
    """Windows in one token each, by how likely each item's letter is.

    Raises UsageError for more items than there are letters.
    """
    if options.window > MOST_LABELS:
        raise UsageError(
            f"--strategy first has letters for {MOST_LABELS} items, but --window is {options.window}.",
            "servers tell the log-probabilities of 20: --window 20",
        )
    return First(options.window, options.step, options.passes, options.depth, options.windows)
