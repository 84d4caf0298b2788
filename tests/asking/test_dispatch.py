"""Dispatch: every chat answered once, failures isolated, nothing lost when it stops."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from llmfair.asking.dispatch import Program, dispatch
from llmfair.asking.journal import Journal, chat_sampling
from llmfair.asking.limits import Limits, Progress
from llmfair.asking.one_chat import Asker
from llmfair.backends.base import RateLimited, Transient
from llmfair.errors import Rejected, UsageError
from llmfair.io.net import Allowance
from llmfair.nouns import (
    Chat,
    Completion,
    Failure,
    Finish,
    Labels,
    Permutation,
    Request,
    Sampling,
    Steps,
    Text,
)
from tests.asking.scripted import Scripted, chain, chat, run, single, singles
from tests.virtual import Clock


def test_a_chain_asks_before_the_next_is_made(journal: Journal) -> None:
    seen: list[str] = []

    class Connecting(Scripted):
        capabilities = frozenset({"adaptive"})  # a server

        async def complete(self, request: Request) -> Completion:
            for _ in range(5):  # of the loop's passes, as an HTTP client takes to connect and write
                await asyncio.sleep(0)
            seen.append(f"asked {request.probe_id}")
            return await super().complete(request)

    def program(name: str) -> Program:
        def start() -> Steps[str]:
            seen.append(f"made {name}")
            return chain(name, 1).start()

        return Program(name, start)

    run([program(name) for name in "abc"], Connecting(latency=0.5), journal)
    assert seen == [f"{what} {name}" for name in "abc" for what in ("made", "asked")]


def test_chains_overlap_and_each_waits_only_for_its_own_answers(journal: Journal, clock: Clock) -> None:
    backend = Scripted(latency=0.02)
    chains = [chain(f"c{i}", 5) for i in range(20)]
    started = clock.now
    results = run(chains, backend, journal)
    seconds = clock.now - started
    assert results == {f"c{i}": f"C{i}....." for i in range(20)}
    assert sum(backend.asked.values()) == 100 and set(backend.asked.values()) == {1}
    assert backend.peak == 20
    assert seconds == pytest.approx(5 * 0.02), "twenty chains take as long as one"
    assert (backend.opened, backend.closed) == (1, 1)


def test_workers_cap_what_is_in_flight_and_programs_start_lazily(journal: Journal) -> None:
    looked, started = threading.Event(), list[int]()

    class Held(Scripted):
        async def complete(self, request: Request) -> Completion:
            while request.probe_id != "c0" and not looked.is_set():
                await asyncio.sleep(0.001)
            return await super().complete(request)

    def programs() -> Iterator[Program]:
        for i in range(100):
            started.append(i)
            yield chain(f"c{i}", 2 if i else 1)

    backend = Held(latency=0.001)
    running = dispatch(programs(), backend, journal, Sampling(), Limits(workers=3))
    assert next(running) == ("c0", "C0.")
    assert len(started) < 20
    looked.set()
    assert len(list(running)) == 99
    assert backend.peak == 3


def test_a_second_run_is_replayed_without_a_call(journal: Journal) -> None:
    first = run([chain("c", 3)], Scripted(), journal)
    backend, progress = Scripted(), Progress()
    assert run([chain("c", 3)], backend, journal, progress=progress) == first
    assert not backend.asked and (progress.calls, progress.replayed, progress.answered) == (0, 3, 3)
    assert (backend.opened, backend.closed) == (0, 1)  # no model is loaded for it


def test_a_run_that_goes_on_opens_the_backend_once_and_asks_twins_once(journal: Journal) -> None:
    run([chain("c", 3)], Scripted(), journal)
    backend = Scripted()
    more = [chain("c", 4), *(single(name, "x") for name in "xyz")]
    assert run(more, backend, journal) == {"c": "C....", "x": "X", "y": "X", "z": "X"}
    assert backend.opened == 1 and backend.asked == {"C....": 1, "x": 1}


def test_a_backend_that_answers_with_no_completion_is_told_so(journal: Journal) -> None:
    class Careless(Scripted):
        async def complete(self, request: Request) -> Any:
            return "[1] > [2]"

    with pytest.raises(UsageError, match="scripted answers with a str, not a Completion"):
        run([single("a", "x"), single("b", "y")], Careless(), journal)


def test_another_draw_is_another_question(journal: Journal) -> None:
    seeds = []

    class Seeded(Scripted):
        async def complete(self, request: Request) -> Completion:
            seeds.append(request.sampling.seed)
            return await super().complete(request)

    def steps() -> Steps[None]:
        yield [chat("x", 0), chat("x", 1), chat("x", 100)]

    run([Program("p", steps)], Seeded(), journal, sampling=Sampling(seed=7))
    assert sorted(seeds) == [7, 8, 107]


@pytest.mark.parametrize(
    ("expects", "room"), [(Permutation(20), 176), (Labels(("A", "B")), 16), (Text(), 256)]
)
def test_room_for_an_answer_goes_by_its_shape(expects: Any, room: int) -> None:
    assert chat_sampling(Chat((), expects), Sampling()).max_tokens == room
    assert chat_sampling(Chat((), expects), Sampling(thinking_tokens=4096)).max_tokens == room + 4096
    assert chat_sampling(Chat((), expects), Sampling(max_tokens=5)).max_tokens == 5


def test_one_failing_program_ends_alone(journal: Journal) -> None:
    def broken() -> Steps[None]:
        yield [chat("fine")]
        raise ValueError("a bug in a program")

    def answer(text: str, attempt: int) -> Any:
        return Rejected("the server refuses this") if text == "bad" else text.upper()

    programs = [
        single("first", "ok"),
        Program("broken", broken),
        single("rejected", "bad"),
        single("last", "z"),
    ]
    results = run(programs, Scripted(answer), journal, Limits(workers=1))
    assert results["first"] == "OK" and results["last"] == "Z"
    assert results["broken"] == Failure("broken", "ValueError", "a bug in a program")
    assert results["rejected"] == Failure("rejected", "Rejected", "the server refuses this")


def test_passing_faults_are_tried_again_and_no_answer_is_lost(journal: Journal) -> None:
    def answer(text: str, attempt: int) -> Any:
        return [Transient("HTTP 500"), RateLimited(), text.upper()][min(attempt, 3) - 1]

    backend, progress = Scripted(answer), Progress()
    assert run(singles(20), backend, journal, progress=progress) == {f"p{i}": f"T{i}" for i in range(20)}
    assert set(backend.asked.values()) == {3} and progress.retries == 40


@pytest.mark.parametrize("failure", [RateLimited(0.3), Transient("HTTP 503", 0.3)])
def test_retry_after_is_obeyed_and_holds_the_others(failure: Any, journal: Journal, clock: Clock) -> None:
    def answer(text: str, attempt: int) -> Any:
        return failure if text == "limited" and attempt == 1 else text.upper()

    backend = Scripted(answer)
    programs = [single("limited", "limited"), *singles(3)]
    assert len(run(programs, backend, journal, Limits(workers=1))) == 4
    gaps = [later - earlier for earlier, later in zip(backend.times, backend.times[1:], strict=False)]
    assert gaps[0] == pytest.approx(0.3)
    assert backend.asked["limited"] == 2


@pytest.mark.parametrize(("max_wait", "rates"), [(1800, [1 / 60]), (60, [1 / 60]), (59, [])])
def test_a_server_that_tells_of_next_to_nothing_left_is_asked_once_a_minute_at_least(
    journal: Journal, max_wait: float, rates: list[float]
) -> None:
    """A longer pause, or one that --max-wait has no room for, is its refusals' to say, which are shown."""
    backend = Scripted()
    backend.capabilities = frozenset({"adaptive"})
    backend.allowance = Allowance(1e-6, None)  # type: ignore[attr-defined]
    limits = Limits(workers=2, max_wait=max_wait)
    lane = Asker(backend, journal, None, Sampling(), limits, Progress()).lanes.all[0]
    lane.answered(0.0, 15.0)
    assert [bucket.rate for bucket in lane.slots.requests] == rates


def test_it_works_inside_a_running_event_loop(journal: Journal) -> None:
    async def notebook() -> dict[str, Any]:
        return run([chain("c", 2)], Scripted(), journal)

    assert asyncio.run(notebook()) == {"c": "C.."}


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # warned of is what is tested
def test_a_process_forked_after_asking_asks_too(journal: Journal) -> None:
    run(singles(2), Scripted(), journal)
    child = multiprocessing.get_context("fork").Process(target=lambda: run(singles(4), Scripted(), journal))
    child.start()
    child.join(10)
    child.kill()
    assert child.exitcode == 0


def test_waits_grow_also_under_a_retry_after_of_nothing(journal: Journal, clock: Clock) -> None:
    backend = Scripted(lambda text, attempt: RateLimited(0.0) if attempt < 5 else "done")
    run([single("p", "t")], backend, journal)
    gaps = [later - earlier for earlier, later in zip(backend.times, backend.times[1:], strict=False)]
    assert sum(gaps) > 0.25 and gaps[-1] > 3 * gaps[0]


def test_only_time_without_any_answer_counts_against_max_wait(journal: Journal, clock: Clock) -> None:
    def answer(text: str, attempt: int) -> Any:
        return RateLimited() if text == "late" and attempt == 1 else text

    def steps() -> Steps[None]:
        for i in range(8):
            yield [chat(f"step {i}")]
        yield [chat("late")]

    assert run([Program("p", steps)], Scripted(answer, 0.05), journal, Limits(max_wait=0.3)) == {"p": None}


def test_a_retried_request_goes_before_those_that_wait(journal: Journal) -> None:
    order: list[str] = []

    def answer(text: str, attempt: int) -> Any:
        order.append(text)
        return Transient("HTTP 500") if text == "first" and attempt == 1 else text

    programs = [single("first", "first"), *singles(40)]
    run(programs, Scripted(answer, 0.02), journal, Limits(workers=2))
    assert order.index("first", 1) < 30


def test_a_rate_that_is_set_makes_requests_wait_and_fails_none(journal: Journal, clock: Clock) -> None:
    backend = Scripted()
    started = clock.now
    programs = singles(30)
    results = list(dispatch(programs, backend, journal, Sampling(), Limits(rpm=1200)))
    assert len(results) == 30 and not any(isinstance(result, Failure) for _, result in results)
    assert clock.now - started == pytest.approx(0.5), "twenty at once, then twenty a second"
    assert sum(at == backend.times[0] for at in backend.times) == 20


def test_tokens_a_minute_are_reserved_and_settled_by_what_was_used(journal: Journal, clock: Clock) -> None:
    """Each reserves 100 + 100 tokens and uses 20: 1,000 a second let 5 go, and as they end nearly all others."""
    sent = []

    def answer(text: str, attempt: int) -> Completion:
        sent.append(sum(backend.asked.values()))
        return Completion("a", Finish.STOP, 10, 10)

    backend = Scripted(answer, latency=0.2)
    programs = [single(f"p{i}", f"{i:03}{'x' * 397}") for i in range(20)]
    started = clock.now
    run(programs, backend, journal, Limits(tpm=60_000), sampling=Sampling(max_tokens=100))
    assert 5 <= sent[0] <= 6 and clock.now - started < 3.0, "unsettled they would take as long"


class Adapting(Scripted):
    capabilities = frozenset({"adaptive"})


@pytest.mark.parametrize(
    ("backend", "limits", "peak"),
    [(Adapting, Limits(), 16), (Adapting, Limits(adaptive=False), 40), (Scripted, Limits(), 40)],
)
def test_a_server_is_asked_carefully_at_first(
    backend: type[Scripted], limits: Limits, peak: int, journal: Journal, clock: Clock
) -> None:
    sent = []

    def answer(text: str, attempt: int) -> str:
        sent.append(sum(asking.asked.values()))
        return text

    asking = backend(answer, latency=0.05)
    run(singles(40), asking, journal, limits)
    assert sent[0] == peak, "before the first answer"


@pytest.mark.parametrize(("faults", "ratio"), [(False, 1.05), (True, 1.3)])
def test_chains_cost_their_critical_path_also_under_faults(
    faults: bool, ratio: float, journal: Journal, clock: Clock
) -> None:
    """44 chains of 56 at 50 ms; with faults 5 % are refused and 2 % fail, all of them after the 50 ms."""
    draws = random.Random(0)

    def answer(text: str, attempt: int) -> Any:
        draw = draws.random() if faults else 1.0
        return RateLimited() if draw < 0.05 else Transient("HTTP 500") if draw < 0.07 else "ok"

    def start(name: int) -> Program:
        def steps() -> Steps[None]:
            for number in range(56):
                yield [chat(f"{name}-{number}")]

        return Program(str(name), steps)

    before = clock.now
    assert len(run(map(start, range(44)), Adapting(answer, 0.05), journal)) == 44
    assert (clock.now - before) / (56 * 0.05) <= ratio
