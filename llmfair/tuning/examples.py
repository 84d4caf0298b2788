"""From pairs to token ids: the chats, the prompts and the answers' tokens of the pairwise audit, and nothing else.

A model is trained on exactly what it is audited with: the ranker makes the chats, the chat template makes the ids,
and the two ids that a margin compares are those of the audit's margins (`ChatTemplate.label_ids`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llmfair.backends.templates import ChatTemplate, label_answers
from llmfair.errors import ContextTooLong, UsageError
from llmfair.nouns import Candidates, Chat, Probe
from llmfair.rankers.pairwise import PairwiseRanker
from llmfair.tuning.pairs import PairGroup, Stratum, TrainingPair

Ids = NDArray[np.int32]
"""Token ids of one prompt: (length,). An int in a tuple takes nine times the room."""


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One pair as the model sees it, in both orders, up to where the answers part.

    `first` shows item `a` first, `second` shows it second. `answers`: the ids of the answer that names the item shown
    first and of the one that names the other. `target` is the probability that `a` wins, 0.5 while unlabelled.
    """

    first: Ids
    second: Ids
    answers: tuple[int, int]
    stratum: Stratum
    target: float
    weight: float

    @property
    def prompts(self) -> tuple[Ids, Ids]:
        return self.first, self.second


ExampleGroup = tuple[Example, ...]
"""The examples of one `PairGroup`, in its order."""


def render(
    groups: Sequence[PairGroup], ranker: PairwiseRanker, template: ChatTemplate, context: int | None
) -> list[ExampleGroup]:
    """Every group's prompts as token ids. Raises ContextTooLong for a prompt of more than `context` tokens."""
    made: list[ExampleGroup] = []
    for group in groups:
        known: dict[str, Example] = {}  # a group may hold a pair twice
        for pair in group:
            if pair.pair_id not in known:
                known[pair.pair_id] = _example(pair, ranker, template, context)
        made.append(tuple(known[pair.pair_id] for pair in group))
    return made


def _example(
    pair: TrainingPair, ranker: PairwiseRanker, template: ChatTemplate, context: int | None
) -> Example:
    chats = chats_of(pair, ranker)
    found = [template.label_ids(chat.messages, label_answers(chat.expects)) for chat in chats]
    longest = max(len(ids) for ids, _ in found)
    if context is not None and longest > context:
        raise ContextTooLong(
            f"the prompt of pair {pair.pair_id} has {longest:,} tokens, and the model has room for {context:,}.",
            "choose fewer words with --words, or a model with more context",
        )
    first, second = (np.array(ids, dtype=np.int32) for ids, _ in found)
    labels = [tuple(named.values()) for _, named in found]
    return Example(
        first,
        second,
        _the_same((one, other) for one, other in labels),
        pair.stratum,
        0.5 if pair.target is None else pair.target,
        pair.weight,
    )


def chats_of(pair: TrainingPair, ranker: PairwiseRanker) -> tuple[Chat, Chat]:
    """The two questions about a pair: `a` shown first, then second."""
    candidates = Candidates(pair.query, (pair.a, pair.b), {})
    return ranker.chats(Probe(pair.pair_id, candidates, pair.stratum, "neutral"))


def answer_ids(groups: Iterable[ExampleGroup]) -> tuple[int, int]:
    """The ids of the answers that name the item shown first and second: the same two for all examples.

    Raises UsageError where they differ from prompt to prompt, so that no two rows of the output matrix are meant.
    """
    return _the_same(example.answers for group in groups for example in group)


def _the_same(found: Iterable[tuple[int, int]]) -> tuple[int, int]:
    first, *others = set(found)
    if others:
        raise UsageError(
            f"the answers have {1 + len(others)} different pairs of tokens, depending on the prompt.",
            "choose the other --form",
        )
    return first
