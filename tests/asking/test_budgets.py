"""A budget of money: nothing leaves that could cost more, and what is left over continues."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmfair.asking.dispatch import Program, dispatch
from llmfair.asking.journal import Journal
from llmfair.asking.limits import Budget, Limits, Progress
from llmfair.errors import Incomplete
from llmfair.nouns import Chat, Completion, Finish, Message, Request, Sampling, Steps, Text
from tests.asking.scripted import Scripted, run
from tests.coroutines import asynchronous

WORDS = "x" * 400  # 100 tokens at four characters each
REQUEST = Request(Chat((Message("user", WORDS),), Text()), Sampling(max_tokens=50), "key", "probe")
PRICES = (1e4, 2e4)  # a token costs 0.01 and 0.02: at most 1 + 1 a request


def answer(prompt_tokens: int | None = 100, completion_tokens: int | None = 10) -> Completion:
    return Completion("y" * 80, Finish.STOP, prompt_tokens, completion_tokens)


@pytest.mark.parametrize(
    ("completion", "spent"),
    [
        (answer(), 1.2),
        (answer(90, 50), 1.9),
        (answer(None, None), 1.0 + 0.4),
        (answer(0, 0), 0.0),
        (None, 0.0),
    ],
)
@asynchronous
async def test_what_a_call_has_cost_takes_the_place_of_what_it_reserved(
    completion: Completion | None, spent: float
) -> None:
    budget = Budget(Limits(max_cost=10, price_in=PRICES[0], price_out=PRICES[1]))
    reserved = await budget.call(REQUEST)
    assert reserved == pytest.approx(2.0) and budget.spent == 0
    budget.settle(reserved, REQUEST, completion)
    assert budget.spent == pytest.approx(spent)


@asynchronous
async def test_a_call_waits_for_what_those_in_flight_really_cost() -> None:
    budget = Budget(Limits(max_cost=5, price_in=PRICES[0], price_out=PRICES[1]))
    reserved = [await budget.call(REQUEST), await budget.call(REQUEST)]
    third = asyncio.create_task(budget.call(REQUEST))
    await asyncio.sleep(0.01)
    assert not third.done()
    budget.settle(reserved[0], REQUEST, answer())  # 1.2 + 2 + 2 are too much still
    await asyncio.sleep(0.01)
    assert not third.done()
    budget.settle(reserved[1], REQUEST, answer())
    assert await third == pytest.approx(2.0) and budget.calls == 3
    budget.settle(2.0, REQUEST, answer())
    with pytest.raises(
        Incomplete, match=r"budget of 5 has no room for another call: 3\.6 is spent, and the next may cost 2"
    ):
        await budget.call(REQUEST)


@asynchronous
async def test_a_server_that_counts_more_tokens_is_reserved_for() -> None:
    budget = Budget(Limits(max_cost=100, price_in=PRICES[0], price_out=PRICES[1]))
    budget.settle(await budget.call(REQUEST), REQUEST, answer(prompt_tokens=300))
    assert await budget.call(REQUEST) == pytest.approx(3 + 1)


class Counting(Scripted):
    """Answers after a moment, and counts as a provider does what it is owed."""

    identity = "counting"
    owed = 0.0

    async def complete(self, request: Request) -> Completion:
        await asyncio.sleep(0.002)
        text = request.chat.messages[0].content
        self.asked[text] += 1
        answered = 5 + len(self.asked) % 40
        self.owed += len(text) * 0.25 * 0.01 + answered * 0.02
        return Completion("y", Finish.STOP, len(text) // 4, answered)


def programs(threaded: bool = False) -> Iterator[Program]:
    def start(chain: int) -> Program:
        def steps() -> Steps[None]:
            for number in range(5):
                yield [Chat((Message("user", f"{chain:04}-{number:04}{'x' * 391}"),), Text())]

        return Program(str(chain), steps, threaded)

    return (start(chain) for chain in range(20))


@pytest.mark.parametrize("threaded", [False, True])
def test_a_run_holds_its_budget_and_the_same_command_continues(threaded: bool, tmp_path: Path) -> None:
    """100 calls of 1 + 0.1 to 0.9 in all about 150: three invocations at 60."""
    journal = Journal(tmp_path / "journal.jsonl", "run", "counting")
    counts, sampling, limits = (
        [],
        Sampling(max_tokens=50),
        Limits(workers=16, max_cost=60, price_in=PRICES[0], price_out=PRICES[1]),
    )
    for invocation in range(3):
        backend, progress = Counting(), Progress()
        run = dispatch(programs(threaded), backend, journal, sampling, limits, progress)
        if invocation < 2:
            with pytest.raises(Incomplete, match="budget of 60 has no room") as caught:
                list(run)
            assert caught.value.exit_code == 3
            assert 60 - 2 < backend.owed <= 60, "neither more, nor a whole call less than could be paid"
        else:
            assert len(list(run)) == 20
        assert progress.cost == pytest.approx(backend.owed)
        assert set(backend.asked.values()) == {1}
        counts.append(sum(backend.asked.values()))
        assert len(journal) == sum(counts)
    journal.close()
    assert sum(counts) == 100


def test_prices_alone_only_count(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl", "run", "counting")
    progress, backend = Progress(), Counting()
    run(programs(), backend, journal, Limits(price_in=PRICES[0], price_out=PRICES[1]), progress)
    assert progress.cost == pytest.approx(backend.owed) and progress.calls == 100
    journal.close()


@pytest.mark.parametrize(
    "limits", [Limits(4, max_calls=130), Limits(4, max_cost=200, price_in=PRICES[0], price_out=PRICES[1])]
)
def test_what_an_invocation_asks_of_another_model_is_taken_off_the_same_budget(
    limits: Limits, tmp_path: Path
) -> None:
    """A second list of programs, with a journal of its own; 100 calls of each come to about 150."""
    progress, backends = Progress(), (Counting(), Counting())
    for number, backend in enumerate(backends):
        journal = Journal(tmp_path / f"{number}.jsonl", "run", "counting")
        run = dispatch(programs(), backend, journal, Sampling(max_tokens=50), limits, progress)
        if number:
            with pytest.raises(Incomplete, match=r"the budget of (130 calls|200)"):
                list(run)
        else:
            assert len(list(run)) == 20
        journal.close()
    first, second = (sum(backend.asked.values()) for backend in backends)
    assert first == 100 and progress.calls == first + second
    if limits.max_calls is not None:
        assert progress.calls == 130
    else:
        assert 200 - 2 < sum(backend.owed for backend in backends) <= 200
        assert progress.cost == pytest.approx(sum(backend.owed for backend in backends))
