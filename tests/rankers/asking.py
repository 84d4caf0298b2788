"""Strategies driven without a server: probes of numbered items, and models that answer them in a known way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.nouns import (
    Candidates,
    Chat,
    Completion,
    Document,
    Finish,
    Labels,
    Permutation,
    Probe,
    Query,
    Steps,
)
from llmfair.prompts import load_prompt
from llmfair.rankers.listwise import ListwiseRanker
from llmfair.rankers.strategies import Ranked, Strategy, strategy_of
from tests.rankers.test_listwise import GENDER

Chosen = Callable[[Sequence[int]], Sequence[int]]
"""Places of the shown items (by their grades), best first."""


def made(spec: str, **settings: object) -> Strategy:
    return strategy_of(spec, {**vars(ListwiseSettings()), **settings})


def probe_of(grades: Sequence[int]) -> Probe:
    """Items 0 … n − 1 in this order, with these grades."""
    documents = tuple(Document(str(number), f"Title {number}") for number in range(len(grades)))
    relevance = {str(number): grade for number, grade in enumerate(grades)}
    return Probe("q/neutral", Candidates(Query("q", "Physics"), documents, relevance), "neutral", "neutral")


def ranker_of(strategy: Strategy) -> ListwiseRanker:
    return ListwiseRanker(load_prompt(strategy.question.prompt, strategy.question.prompt), GENDER, strategy)


def perfect(grades: Sequence[int]) -> list[int]:
    return sorted(range(len(grades)), key=lambda place: -grades[place])


def as_shown(grades: Sequence[int]) -> list[int]:
    return list(range(len(grades)))


def said(chat: Chat, chosen: Chosen = perfect, margins: bool = False) -> Completion:
    """The answer of a model to a question in any form; of one item alone, whether its grade is above 0."""
    grades, expects = chat.about["relevance"], chat.expects
    order = list(chosen(grades))
    if isinstance(expects, Permutation):
        return Completion(" > ".join(f"[{place + 1}]" for place in order[: expects.best]), Finish.STOP)
    assert isinstance(expects, Labels)
    labels = expects.labels
    if len(grades) == 1:
        logprobs: Mapping[str, float] = {labels[0]: grades[0] - 9.0, labels[1]: -9.0}
        return Completion(
            labels[0 if grades[0] > 0 else 1], Finish.STOP, logprobs=logprobs if margins else None
        )
    logprobs = {labels[place]: -1.0 - rank for rank, place in enumerate(order)}
    text = labels[order[0]]
    return Completion(text, Finish.STOP, logprobs=logprobs if margins else None)


@dataclass
class Told:
    """What was asked on the way, round by round, as the items shown."""

    rounds: list[list[list[int]]] = field(default_factory=list)

    @property
    def asked(self) -> list[list[int]]:
        return [shown for one in self.rounds for shown in one]


def driven(steps: Steps[Ranked], answer: Callable[[Chat], Completion]) -> tuple[Ranked, Told]:
    """The result of a program, and what it asked."""
    told = Told()
    try:
        chats = next(steps)
        while True:
            told.rounds.append([[int(doc_id) for doc_id in chat.about["doc_ids"]] for chat in chats])
            chats = steps.send([answer(chat) for chat in chats])
    except StopIteration as end:
        return end.value, told


def ordered(
    strategy: Strategy, grades: Sequence[int], answer: Callable[[Chat], Completion] = said
) -> tuple[Ranked, Told]:
    """What a strategy makes of items of these grades, and what it asks."""
    return driven(ranker_of(strategy).steps(probe_of(grades)), answer)


def order_of(ranked: Ranked) -> list[int]:
    assert ranked.ranking is not None
    return [int(doc_id) for doc_id in ranked.ranking.doc_ids]


def by_transformers(folder: Path) -> Callable[[Chat], Completion]:
    """Answers with the log-probabilities of the labels, from transformers' own logits where the answer begins."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)

    def answer(chat: Chat) -> Completion:
        talk = [{"role": role, "content": content} for role, content in chat.messages]
        text = tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
        with torch.inference_mode():
            logprobs = model(ids).logits[0, -1].log_softmax(-1)
        assert isinstance(chat.expects, Labels)
        labels = chat.expects.labels
        first = {label: tokenizer(label, add_special_tokens=False).input_ids[0] for label in labels}
        return Completion("", Finish.STOP, logprobs={label: float(logprobs[t]) for label, t in first.items()})

    return answer
