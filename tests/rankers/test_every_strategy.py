"""What holds of every strategy there is: whatever the answers, a permutation, and no more calls than planned."""

from __future__ import annotations

import random
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfair import registry
from llmfair.records import Chat, Completion, Finish, Scores
from tests.rankers.asking import as_shown, driven, made, order_of, perfect, probe_of, ranker_of, said

NAMES = [
    name
    for name in registry.names("strategy")
    if not isinstance(made(name).question.expects(2), Scores)  # put to rankers, which answer with numbers
]


def needs_margins(name: str) -> bool:
    return made(name).question.margins == "needed"


@pytest.mark.parametrize("name", NAMES)
@given(st.integers(1, 24), st.randoms(use_true_random=False), st.booleans())
def test_any_answers_give_a_permutation(name: str, n: int, chance: random.Random, margins: bool) -> None:
    def answer(chat: Chat) -> Completion:
        if chance.random() < 0.1:
            damaged = ("", "Sorry, I cannot.", "[99] > [1] > [1]", "Passage Z", "A", "yes and no", "[2], [1]")
            return Completion(chance.choice(damaged), chance.choice([Finish.STOP, Finish.LENGTH]))
        return said(chat, lambda grades: chance.sample(range(len(grades)), len(grades)), margins)

    strategy = made(name)
    ranked, told = driven(ranker_of(strategy).steps(probe_of([0] * n)), answer)
    assert sorted(order_of(ranked)) == list(range(n))
    plan = strategy.plan(n)
    assert len(told.asked) <= plan.calls and len(told.rounds) <= plan.rounds
    shown = [set(one.shown) for one in ranked.encounters]
    assert all({*one.ranked, *one.behind} <= {*one.shown} or one.scores for one in ranked.encounters), shown


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [2, 7, 20, 41])
def test_as_many_calls_as_planned(name: str, n: int) -> None:
    strategy, margins = made(name), needs_margins(name)
    for chosen in (perfect, as_shown):
        grades = random.Random(n).sample(range(n), n)
        _, told = driven(
            ranker_of(strategy).steps(probe_of(grades)), partial(said, chosen=chosen, margins=margins)
        )
        plan = strategy.plan(n)
        assert (len(told.asked) == plan.calls) >= plan.exact and len(told.asked) <= plan.calls
        assert (len(told.rounds) == plan.rounds) >= plan.exact and len(told.rounds) <= plan.rounds


@pytest.mark.parametrize("name", NAMES)
def test_a_perfect_model_puts_the_best_item_first(name: str) -> None:
    margins = needs_margins(name) or name == "pointwise"
    for seed in range(5):
        grades = random.Random(seed).sample(range(30), 30)
        ranked, _ = driven(ranker_of(made(name)).steps(probe_of(grades)), partial(said, margins=margins))
        assert order_of(ranked)[0] == grades.index(29)
