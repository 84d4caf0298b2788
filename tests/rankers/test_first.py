"""A window is ordered by the log-probabilities of its letters at the first token."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

from llmfair.errors import UsageError
from llmfair.nouns import Chat, Completion, Finish, Labels, Request, Sampling
from llmfair.rankers.answers import AnswerClass
from llmfair.rankers.strategies import First, Letters
from tests import models
from tests.cli.command import refuses
from tests.models import one_thread as one_thread
from tests.rankers.asking import as_shown, by_transformers, driven, made, order_of, probe_of, ranker_of, said

whole = partial(said, margins=True)


def test_the_question_has_letters() -> None:
    (chat,) = next(ranker_of(First(3, 2, 1)).steps(probe_of([0, 0, 0])))
    assert (
        "I will provide you with 3 passages, each indicated by an alphabetical identifier []."
        in chat.messages[1].content
    )
    assert "[A] Title 0\n[B] Title 1\n[C] Title 2" in chat.messages[1].content
    assert chat.expects == Labels(("A", "B", "C"))


def test_windows_by_hand() -> None:
    """As windows, each put in order by its letters: (2, 6) and then (0, 4)."""
    ranked, told = driven(ranker_of(First(4, 2, 1)).steps(probe_of([0, 5, 1, 4, 3, 2])), whole)
    assert told.rounds == [[[2, 3, 4, 5]], [[0, 1, 3, 4]]]
    assert order_of(ranked) == [1, 3, 4, 0, 5, 2]
    assert [one.ranked for one in ranked.encounters] == [("3", "4", "5", "2"), ("1", "0")]
    assert First(4, 2, 1).plan(6).calls == First(4, 2, 1).plan(6).rounds == 2


def test_a_perfect_model_gives_the_perfect_top_and_a_constant_one_the_initial_ranking() -> None:
    grades = random.Random(7).sample(range(40), 40)
    ranked, _ = driven(ranker_of(First(20, 10, 3)).steps(probe_of(grades)), whole)
    assert [grades[item] for item in order_of(ranked)[:20]] == list(range(39, 19, -1))
    ranked, _ = driven(ranker_of(First(20, 10, 3)).steps(probe_of(grades)), partial(whole, chosen=as_shown))
    assert order_of(ranked) == list(range(40))


@pytest.mark.parametrize(
    ("completion", "answer_class", "order", "named"),
    [
        (
            Completion("C", Finish.LENGTH, logprobs={"A": -3.0, "B": -2.0, "C": -1.0}),
            AnswerClass.OK,
            (2, 1, 0),
            3,
        ),
        (Completion("C", Finish.STOP, logprobs={"C": -1.0, "A": -9.0}), AnswerClass.MISSING, (2, 0, 1), 2),
        (Completion("The", Finish.STOP, logprobs={"C": -9.0, "A": -9.0}), AnswerClass.NO_IDS, None, 0),
        (Completion("C > A", Finish.STOP), AnswerClass.NO_IDS, None, 0),
        (Completion("", Finish.EMPTY), AnswerClass.EMPTY, None, 0),
    ],
)
def test_what_a_first_token_says(
    completion: Completion, answer_class: AnswerClass, order: tuple[int, ...] | None, named: int
) -> None:
    reading = Letters().read(completion, 3, "strict")
    assert (reading.answer_class, reading.permutation, reading.named) == (answer_class, order, named)


def test_what_it_cannot_do_is_refused() -> None:
    with pytest.raises(UsageError, match="letters for 26 items, but --window is 30"):
        made("first", window=30)
    refuses(
        "has no log-probabilities of labels",
        "listwise",
        "--strategy",
        "first",
        "-m",
        "fake:reader",
        "-n",
        "1",
    )
    refuses("reads no text of answers", "listwise", "--strategy", "first", "--answers", "text", "-n", "1")


@pytest.mark.whole
def test_the_order_is_that_of_the_logits(tmp_path: Path) -> None:
    """A tiny model of random weights: the ranking is what transformers' own logits of the letters make of it."""
    models.needs_local()
    folder = models.causal(tmp_path / "tiny", "llama", seed=5)
    ranker, probe = ranker_of(First(6, 3, 2)), probe_of([0] * 12)
    logits, asked = by_transformers(folder), list[Chat]()

    def noted(chat: Chat) -> Completion:
        asked.append(chat)
        return logits(chat)

    expected, _ = driven(ranker.steps(probe), noted)
    requests = [
        Request(chat, Sampling(margins=True, max_tokens=1), str(k), "p") for k, chat in enumerate(asked)
    ]
    answers = iter(_answers(folder, requests))
    found, _ = driven(ranker.steps(probe), lambda chat: next(answers))
    assert order_of(found) == order_of(expected) != list(range(12))
    assert [one.permutation for one in found.windows] == [one.permutation for one in expected.windows]


def _answers(folder: Path, requests: list[Request]) -> list[Completion]:
    import asyncio

    from llmfair.backends.base import BackendOptions
    from llmfair.backends.hf import hf

    async def ask() -> list[Completion]:
        backend = hf(str(folder), BackendOptions(backend_args={"dtype": "float32"}))
        await backend.open()
        try:
            return [await backend.complete(one) for one in requests]
        finally:
            await backend.close()

    return asyncio.run(ask())
