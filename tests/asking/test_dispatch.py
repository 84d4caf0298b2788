"""Dispatch: every chat answered once, failures isolated, nothing lost when it stops, and programs that work themselves."""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from llmfair.asking.dispatch import Asker, Program, dispatch
from llmfair.asking.journal import Journal, chat_sampling
from llmfair.asking.limits import Limits, Progress
from llmfair.backends.base import RateLimited, Transient
from llmfair.errors import (
    BackendError,
    Incomplete,
    LlmfairError,
    MissingKey,
    Rejected,
    Unavailable,
    UsageError,
)
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
from tests.asking.scripted import Scripted, chain, chat, interrupt, run, single, singles
from tests.virtual import Clock


def test_a_key_in_an_error_of_somebodys_own_is_kept_nowhere(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKER_API_KEY", "a-key-of-a-ranker")
    for error in (ValueError("401 for a-key-of-a-ranker"), Rejected("401 for a-key-of-a-ranker", "x")):
        with suppress(LlmfairError, ValueError):
            run(singles(2), Scripted(lambda text, attempt, e=error: e), journal)  # type: ignore[misc]
    written = (tmp_path / "journal.jsonl").read_text()
    assert "401 for ***" in written and "a-key-of-a-ranker" not in written


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


def test_a_backend_that_answers_with_no_completion_is_told_so_once(journal: Journal) -> None:
    class Careless(Scripted):
        async def complete(self, request: Request) -> Any:
            return (await super().complete(request)).text

    backend, limits = Careless(), Limits(workers=1, price_in=1.0, price_out=1.0)
    with pytest.raises(UsageError, match="scripted answers with a str, not a Completion"):
        run(singles(9), backend, journal, limits)
    assert backend.asked.total() == 1


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

    programs = [single("first", "ok"), Program("broken", broken)]
    programs += [single("rejected", "bad"), single("last", "z")]
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


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # warned of is what is tested
def test_a_process_forked_after_asking_asks_too(journal: Journal) -> None:
    run(singles(2), Scripted(), journal)
    child = multiprocessing.get_context("fork").Process(target=lambda: run(singles(4), Scripted(), journal))
    child.start()
    child.join(10)
    child.kill()
    assert child.exitcode == 0


def test_only_time_without_any_answer_counts_against_max_wait(journal: Journal, clock: Clock) -> None:
    def answer(text: str, attempt: int) -> Any:
        return RateLimited() if text == "late" and attempt == 1 else text

    def steps() -> Steps[None]:
        for i in range(8):
            yield [chat(f"step {i}")]
        yield [chat("late")]

    assert run([Program("p", steps)], Scripted(answer, 0.05), journal, Limits(max_wait=0.3)) == {"p": None}


def test_a_retried_request_goes_before_those_that_wait(journal: Journal, clock: Clock) -> None:
    order: list[str] = []

    def answer(text: str, attempt: int) -> Any:
        order.append(text)
        return Transient("HTTP 500") if text == "t0" and attempt == 1 else text

    run(singles(9), Scripted(answer), journal, Limits(rpm=60))
    assert order[1] == "t0"


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


@pytest.mark.parametrize("answered", [False, True])
def test_a_backend_that_cannot_be_opened_is_tried_once(journal: Journal, answered: bool) -> None:
    class Shut(Scripted):
        async def open(self) -> None:
            self.opened += 1
            raise MissingKey("no key.")

    if answered:
        run([chain("c", 3)], Scripted(), journal)
    backend = Shut()
    programs = [chain("c", 3), *(single(f"p{number}", f"{number}") for number in range(20))]
    with pytest.raises(Incomplete if answered else MissingKey, match=r"no key\."):
        run(programs, backend, journal)
    assert (backend.opened, backend.closed, len(backend.asked)) == (1, 1, 0)


def test_an_interrupt_does_not_wait_for_a_backend_that_is_being_opened(journal: Journal) -> None:
    class Opening(Scripted):
        async def open(self) -> None:
            interrupt(0.1)
            await asyncio.sleep(60)

    backend, began = Opening(), time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(singles(9), backend, journal)
    assert time.monotonic() - began < 3 and (backend.closed, len(backend.asked)) == (1, 0)


def test_a_server_that_never_answers_ends_the_run_early(journal: Journal, clock: Clock) -> None:
    backend = Scripted(lambda text, attempt: Transient("connection refused by 127.0.0.1:9"))
    started = clock.now
    with pytest.raises(Unavailable, match="connection refused") as caught:
        run(singles(50), backend, journal)
    assert caught.value.exit_code == 1
    assert clock.now - started < 5
    assert max(backend.asked.values()) == 4


@pytest.mark.parametrize(
    ("answer", "ends", "says", "limits", "fewest", "most"),
    [
        (RateLimited(None, ": 3 a minute"), Unavailable, "answer: 3 a minute.", Limits(max_wait=0.2), 1, 999),
        (MissingKey("the key was refused"), MissingKey, "the key was refused", Limits(workers=8), 1, 16),
        (Rejected("no system role"), BackendError, "no system role", Limits(workers=1), 5, 7),
        (Completion("", Finish.UNFINISHED_THINKING), Incomplete, "--thinking", Limits(workers=1), 20, 20),
    ],
    ids=["no end of refusals", "key", "five rejections before any success", "thinking without room"],
)
def test_what_every_question_meets_stops_the_run(
    answer: Any, ends: type[LlmfairError], says: str, limits: Limits, fewest: int, most: int, journal: Journal
) -> None:
    backend = Scripted(lambda text, attempt: answer, latency=0.001)
    with pytest.raises(ends) as caught:
        run(singles(99), backend, journal, limits)
    assert says in f"{caught.value.message} {caught.value.hint}"
    assert fewest <= sum(backend.asked.values()) <= most


def test_a_short_outage_is_waited_out(journal: Journal, clock: Clock) -> None:
    """20 s, where attempts alone end after 3: latencies of 50 ms make for short waits."""
    began = clock.now

    def answer(text: str, attempt: int) -> Any:
        down = 1 <= clock.now - began < 21
        return Transient("connection refused by 127.0.0.1:9") if down else text

    backend = Scripted(answer, latency=0.05)
    progress = Progress()
    programs = [chain(f"c{number}", 60) for number in range(8)]
    found = dict(dispatch(programs, backend, journal, Sampling(), Limits(workers=8), progress))
    assert len(found) == 8 and not any(isinstance(one, Failure) for one in found.values())
    assert clock.now - began < 21 + 5 + 60 * 0.05
    assert progress.waiting_for == "connection refused by 127.0.0.1:9", "as the bar says"
    assert len(backend.asked) == 8 * 60 == len(journal)


def test_what_fails_alone_is_given_up_by_its_attempts(journal: Journal, clock: Clock) -> None:
    """Others are answered meanwhile, so no outage is waited for."""
    began = clock.now
    backend = Scripted(lambda text, attempt: Transient("HTTP 500") if text == "bad" else text, 0.05)
    programs = [single("b", "bad"), *(chain(f"c{number}", 400) for number in range(3))]
    found = run(programs, backend, journal, Limits(workers=8))
    assert isinstance(found["b"], Failure) and backend.asked["bad"] == 9
    assert clock.now - began < 30


@pytest.mark.parametrize("failure", [RateLimited(1e9), Transient("HTTP 503", 1e9)])
@pytest.mark.parametrize("answered", [False, True])
def test_too_long_a_wait_ends_it(answered: bool, failure: Exception, journal: Journal, clock: Clock) -> None:
    began = clock.now
    backend = Scripted(lambda text, attempt: text if answered and text == "t0" else failure, 0.05)
    with pytest.raises(
        Incomplete if answered else Unavailable, match="asks to wait 1,000,000,000 s"
    ) as caught:
        run(singles(99), backend, journal, Limits(workers=4, max_wait=4))
    assert "--max-wait" in f"{caught.value.message} {caught.value.hint}"
    assert ("HTTP 503" if isinstance(failure, Transient) else "(429)") in caught.value.message
    assert clock.now - began < 4


def test_a_budget_of_calls_is_exact_and_the_same_run_goes_on(journal: Journal) -> None:
    programs = [chain(f"c{i}", 4) for i in range(10)]
    backend = Scripted(latency=0.001)
    with pytest.raises(Incomplete, match="budget of 13 calls"):
        run(programs, backend, journal, Limits(workers=4, max_calls=13))
    assert sum(backend.asked.values()) == 13 == len(journal)
    rest = Scripted()
    assert len(run(programs, rest, journal)) == 10
    assert sum(rest.asked.values()) == 27


def test_ctrl_c_takes_answers_in_flight_and_sends_no_more(journal: Journal, heard: threading.Event) -> None:
    backend = Scripted(on_peak=lambda peak: interrupt(0.1) if peak == 4 else None, until=heard.is_set)
    programs = [chain(f"c{i}", 5) for i in range(4)]
    with pytest.raises(KeyboardInterrupt):
        run(programs, backend, journal)
    assert sum(backend.asked.values()) == 4 == len(journal)
    assert len(run(programs, rest := Scripted(), journal)) == 4
    assert sum(rest.asked.values()) == 16


@pytest.mark.parametrize("asked", [0, 4])
def test_ctrl_c_as_work_is_handed_over(journal: Journal, monkeypatch: pytest.MonkeyPatch, asked: int) -> None:
    """The first questions may be out before the call that hands over returns."""
    backend, hand_over = Scripted(latency=0.1), asyncio.run_coroutine_threadsafe

    def interrupted(work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> Any:
        if asked:
            hand_over(work, loop)
            while backend.in_flight < asked:
                time.sleep(0.001)
        else:
            work.close()
        raise KeyboardInterrupt

    monkeypatch.setattr("asyncio.run_coroutine_threadsafe", interrupted)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run([chain(f"c{i}", 5) for i in range(4)], backend, journal)
    assert sum(backend.asked.values()) == asked == len(journal) and time.monotonic() - began < 3


def test_an_interrupt_waits_no_longer_than_its_patience(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmfair.asking.dispatch.GRACE_SECONDS", 0.05)
    backend = Scripted(latency=60, on_peak=lambda peak: interrupt(0.1))
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run([single("p", "t")], backend, journal)
    assert time.monotonic() - began < 1 and backend.closed == 1 and not len(journal)


def test_a_second_ctrl_c_does_not_wait(
    journal: Journal, heard: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmfair.asking.dispatch.GRACE_SECONDS", 60)

    def once_more() -> None:
        heard.wait()
        interrupt(0.1)

    def interrupt_twice(_: int) -> None:
        interrupt(0.1)
        threading.Thread(target=once_more, daemon=True).start()

    backend = Scripted(latency=60, on_peak=interrupt_twice)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run([single("p", "t")], backend, journal)
    assert time.monotonic() - started < 30, "one alone waits a minute for answers in flight"


def test_a_budget_finishes_chains_before_it_begins_others(journal: Journal) -> None:
    """Six chains of three at four in flight: thirteen calls are four whole chains, where all begun would be none."""
    finished: list[str] = []
    with pytest.raises(Incomplete):
        chains, limits = [chain(f"c{i}", 3) for i in range(6)], Limits(workers=4, max_calls=13)
        for probe_id, _ in dispatch(chains, Scripted(latency=0.001), journal, Sampling(), limits):
            finished.append(probe_id)  # what came before the stop counts
    assert len(finished) == 4


def test_a_spent_budget_waits_for_slow_answers(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmfair.asking.dispatch.GRACE_SECONDS", 0.05)
    backend = Scripted(latency=0.4)
    with pytest.raises(Incomplete):
        run([chain(f"c{i}", 3) for i in range(8)], backend, journal, Limits(4, max_calls=4))
    assert sum(backend.asked.values()) == 4 == len(journal)


def test_after_a_failed_write_nothing_goes_on_unseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path / "journal.jsonl", "run", "scripted")
    real, writes = os.write, []

    def full_after_ten(file: int, data: Any) -> int:
        writes.append(file)
        if len(writes) > 10:
            raise OSError(28, "No space left on device")
        return real(file, data)

    monkeypatch.setattr("llmfair.asking.journal.os.write", full_after_ten)
    backend = Scripted(latency=0.02)
    with pytest.raises(Exception, match="No space left"):
        run([chain(f"c{i}", 50) for i in range(8)], backend, journal, Limits(workers=8))
    monkeypatch.undo()
    journal.close()
    with (tmp_path / "next.json").open("w") as later:
        asked = sum(backend.asked.values())
        time.sleep(0.2)
        assert sum(backend.asked.values()) == asked
        later.flush()
        assert (tmp_path / "next.json").read_bytes() == b""


def test_an_interrupt_is_heard_among_known_answers(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that never wait must not keep the loop to themselves; these would go on for ever."""
    monkeypatch.setattr("llmfair.asking.dispatch.GRACE_SECONDS", 60)
    run([single("p", "t")], Scripted(), journal)
    endless = (single(f"p{number}", "t") for number in itertools.count())
    started = time.monotonic()
    results = dispatch(endless, Scripted(), journal, Sampling())
    assert next(results) == ("p0", "T")
    results.close()
    assert time.monotonic() - started < 30


@pytest.mark.whole
def test_a_step_of_many_chats_begins_a_few_at_a_time_and_answers_in_order(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = most = 0
    answer = Asker.answer

    async def counting(asker: Asker, probe_id: str, chat: Chat) -> Completion:
        nonlocal begun, most
        begun += 1
        most = max(most, begun)
        try:
            return await answer(asker, probe_id, chat)
        finally:
            begun -= 1

    monkeypatch.setattr(Asker, "answer", counting)
    texts = [f"t{number}" for number in range(1_000)]

    def steps() -> Steps[list[str]]:
        answers = yield [chat(text) for text in texts]
        return [answer.text for answer in answers]

    class Uneven(Scripted):
        async def complete(self, request: Request) -> Completion:
            self.latency = 0.001 * (sum(self.asked.values()) % 3)
            return await super().complete(request)

    backend = Uneven()
    limits = Limits(workers=8)
    (found,) = dispatch([Program("p", steps)], backend, journal, Sampling(), limits)
    assert found == ("p", [text.upper() for text in texts])
    assert most == 16 and backend.peak == 8
    (again,) = dispatch([Program("p", steps)], Scripted(), journal, Sampling(), limits)
    assert again == found and most == 16


def test_after_a_failure_in_a_step_of_many_chats_no_other_is_begun(journal: Journal) -> None:
    def steps() -> Steps[None]:
        yield [chat(f"t{number}") for number in range(1_000)]

    def answer(text: str, attempt: int) -> Any:
        return Rejected(f"not {text}") if text in ("t5", "t6") else text

    class Slow(Scripted):
        async def complete(self, request: Request) -> Completion:
            self.latency = 0.2 if request.chat.messages[0].content == "t5" else 0.05
            return await super().complete(request)

    backend = Slow(answer)
    programs = [single("first", "fine"), Program("p", steps), single("last", "fine, too")]
    found = run(programs, backend, journal, Limits(workers=4))
    assert isinstance(found["p"], Failure) and "not t5" in found["p"].message, "the first in their order"
    assert (found["first"], found["last"]) == ("fine", "fine, too")
    assert sum(backend.asked.values()) == len(journal) + 2 <= 2 + 16, "each that was begun is answered"


# Programs that work between their questions


@pytest.mark.whole
def test_searches_of_many_chains_overlap(journal: Journal) -> None:
    tries = itertools.count()

    def rounds(chains: int, threaded: bool) -> float:
        """Seconds for two rounds of 40 ms of search and 20 ms of answering."""
        number = next(tries)  # so that nothing is known
        programs = [chain(f"c{number}-{i}", 2, 0.04, threaded) for i in range(chains)]
        started = time.perf_counter()
        found = run(programs, Scripted(latency=0.02), journal)
        seconds = time.perf_counter() - started
        assert found == {f"c{number}-{i}": f"C{number}-{i}.." for i in range(chains)}
        return seconds

    # Eight times the chains take no longer, but for what a busy machine adds to both; the fastest of each counts.
    few, many = zip(*[(rounds(8, True), rounds(64, True)) for _ in range(2)], strict=True)
    assert min(many) < 2.5 * min(few), (few, many)
    assert rounds(8, False) > 8 * 2 * 0.04, "on the loop one waits for all others"


@pytest.mark.parametrize("threaded", [False, True])
def test_a_search_that_nobody_can_make_ends_the_run_in_its_words(threaded: bool, journal: Journal) -> None:
    def steps() -> Steps[None]:
        raise UsageError("the index cannot be made: no space left.", "free its place")
        yield []

    backend = Scripted(latency=0.02)
    with pytest.raises(UsageError, match="no space left"):
        run([Program("p", steps, threaded), *(chain(f"c{i}", 50) for i in range(4))], backend, journal)
    assert sum(backend.asked.values()) < 20


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_that_a_program_raises_ends_the_run_and_not_the_loop(
    raised: type[BaseException], threaded: bool, journal: Journal
) -> None:
    def steps() -> Steps[None]:
        yield [chat("x")]
        raise raised("enough")

    programs = [Program("p", steps, threaded), *(chain(f"c{i}", 50) for i in range(4))]
    with pytest.raises(raised, match="enough"):
        run(programs, Scripted(latency=0.05), journal)
    assert list(dispatch([chain("q", 2, threaded=True)], Scripted(), journal, Sampling())) == [("q", "Q..")]


HANGS = """
import sys, time
from pathlib import Path
from llmfair.asking import dispatch as module
from llmfair.asking.dispatch import Asker, Program, dispatch
from llmfair.asking.journal import Journal
from llmfair.backends.base import NoBackend
from llmfair.nouns import Sampling

module.GRACE_SECONDS = 0.1

def steps():
    print("searching", flush=True)
    time.sleep(600)
    yield []

try:
    list(dispatch([Program("p", steps, True)], NoBackend("none"), Journal(Path(sys.argv[1]), "run", "none"), Sampling()))
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_a_search_that_never_returns_does_not_keep_the_process_from_ending(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HANGS, str(tmp_path / "journal.jsonl")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "searching\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
