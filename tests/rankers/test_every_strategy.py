"""What holds of every strategy there is: whatever the answers, a permutation, and no more calls than planned."""

from __future__ import annotations

import random
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfair import registry
from llmfair.nouns import Chat, Completion, Finish, Scores
from tests.rankers.asking import as_shown, driven, made, order_of, perfect, probe_of, ranker_of, said

NAMES = [
    name
    for name in registry.names("strategy")
    if not isinstance(made(name).question.expects(2), Scores)  # put to rankers, which answer with numbers
]

HEAPS = ("pairwise-sort", "setwise")


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


@pytest.mark.parametrize(
    ("spec", "k"),
    [
        ("windows", 20),
        ("first", 20),
        ("pointwise", 40),
        ("setwise:k=10", 10),
        ("pairwise-sort:k=10", 10),
        ("pairwise-sort:method=allpairs", 40),
    ],
)
def test_a_perfect_model_gives_the_perfect_top(spec: str, k: int) -> None:
    strategy = made(spec, passes=3)
    margins = strategy.question.margins == "needed" or spec == "pointwise"
    grades = random.Random(3).sample(range(40), 40)
    ranked, _ = driven(ranker_of(strategy).steps(probe_of(grades)), partial(said, margins=margins))
    assert [grades[item] for item in order_of(ranked)[:k]] == list(range(39, 39 - k, -1))


def test_a_perfect_model_sends_the_best_to_every_stage_of_a_tournament() -> None:
    """Of 40, groups of 20 send on ten each, and then the best 10, 5, 3, 2 and 1 of all: the top up to order within."""
    grades = random.Random(3).sample(range(40), 40)
    ranked, _ = driven(ranker_of(made("tournament")).steps(probe_of(grades)), said)
    top = [grades[item] for item in order_of(ranked)]
    for k in (1, 2, 3, 5, 10):
        assert {*top[:k]} == {*range(40 - k, 40)}


@pytest.mark.parametrize("name", NAMES)
def test_a_model_that_sees_no_difference_leaves_the_documented_order(name: str) -> None:
    """The order shown, the first label or yes to all: the initial ranking, but that a heap's next is its last item."""
    ranked, _ = driven(
        ranker_of(made(f"{name}:k=4" if name in HEAPS else name)).steps(probe_of([0] * 10)),
        partial(said, chosen=as_shown, margins=needs_margins(name)),
    )
    if name == "tournament":  # the first of random groups advance: who they are, is in its seed
        again, _ = driven(ranker_of(made(name)).steps(probe_of([0] * 10)), partial(said, chosen=as_shown))
        assert order_of(ranked) == order_of(again)
    else:
        assert order_of(ranked) == ([0, 9, 8, 7, 1, 2, 3, 4, 5, 6] if name in HEAPS else [*range(10)])
