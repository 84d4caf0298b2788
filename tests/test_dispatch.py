"""Dispatch: every chat answered once, failures isolated, nothing lost when it stops."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmfair.asking.dispatch import Program, _Driver, dispatch
from llmfair.asking.journal import Journal
from llmfair.asking.limits import Limits, Progress
from llmfair.asking.one_chat import Asker, chat_sampling
from llmfair.backends.base import RateLimited, Transient
from llmfair.backends.headers import Allowance
from llmfair.errors import BackendError, Incomplete, MissingKey, Rejected, Unavailable, UsageError
from llmfair.records import (
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
from tests.scripted import Scripted, chain, chat, single
from tests.virtual import Clock, virtual_time


def interrupt(seconds: float) -> None:
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()


@pytest.fixture(autouse=True)
def interrupts_as_on_a_terminal() -> Iterator[None]:
    """A test runner in the background may ignore Ctrl-C; the tests send it to themselves."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """Dispatch in virtual time, which backends note too."""
    with virtual_time(monkeypatch) as clock:
        monkeypatch.setattr("tests.scripted.time", clock)
        yield clock


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once dispatch knows of an interrupt."""
    event, interrupt = threading.Event(), _Driver.interrupt

    def interrupt_and_tell(driver: _Driver) -> None:
        interrupt(driver)
        event.set()

    monkeypatch.setattr(_Driver, "interrupt", interrupt_and_tell)
    return event


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "journal.jsonl", "run", "scripted")
    yield journal
    journal.close()


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

    dict(dispatch([program(name) for name in "abc"], Connecting(latency=0.5), journal, Sampling()))
    assert seen == [f"{what} {name}" for name in "abc" for what in ("made", "asked")]


def test_chains_overlap_and_each_waits_only_for_its_own_answers(journal: Journal, clock: Clock) -> None:
    backend = Scripted(latency=0.02)
    chains = [chain(f"c{i}", 5) for i in range(20)]
    started = clock.now
    results = dict(dispatch(chains, backend, journal, Sampling()))
    seconds = clock.now - started
    assert results == {f"c{i}": f"C{i}....." for i in range(20)}
    assert sum(backend.asked.values()) == 100 and set(backend.asked.values()) == {1}
    assert backend.peak == 20
    assert seconds == pytest.approx(5 * 0.02), "twenty chains take as long as one"
    assert (backend.opened, backend.closed) == (1, 1)


def test_workers_cap_what_is_in_flight_and_programs_start_lazily(journal: Journal) -> None:
    backend, started = Scripted(latency=0.001), []

    def programs() -> Iterator[Program]:
        for i in range(100):
            started.append(i)
            yield chain(f"c{i}", 2)

    running = dispatch(programs(), backend, journal, Sampling(), Limits(workers=3))
    next(running)
    assert len(started) < 20
    assert len(list(running)) == 99
    assert backend.peak == 3


def test_all_chats_of_a_step_are_in_flight_together(journal: Journal) -> None:
    backend = Scripted(latency=0.02)

    def steps() -> Steps[list[str]]:
        answers = yield [chat(text) for text in "abcd"]
        return [answer.text for answer in answers]

    assert list(dispatch([Program("p", steps)], backend, journal, Sampling())) == [("p", list("ABCD"))]
    assert backend.peak == 4


def test_a_second_run_is_replayed_without_a_call(journal: Journal) -> None:
    first = dict(dispatch([chain("c", 3)], Scripted(), journal, Sampling()))
    backend, progress = Scripted(), Progress()
    assert dict(dispatch([chain("c", 3)], backend, journal, Sampling(), progress=progress)) == first
    assert not backend.asked and (progress.calls, progress.replayed, progress.answered) == (0, 3, 3)
    assert (backend.opened, backend.closed) == (0, 1)  # no model is loaded for it


def test_a_run_that_goes_on_opens_the_backend_once_and_asks_twins_once(journal: Journal) -> None:
    dict(dispatch([chain("c", 3)], Scripted(), journal, Sampling()))
    backend = Scripted()
    more = [chain("c", 4), *(single(name, "x") for name in "xyz")]
    assert dict(dispatch(more, backend, journal, Sampling())) == {"c": "C....", "x": "X", "y": "X", "z": "X"}
    assert backend.opened == 1 and backend.asked == {"C....": 1, "x": 1}


@pytest.mark.parametrize("answered", [False, True])
def test_a_backend_that_cannot_be_opened_is_tried_once(journal: Journal, answered: bool) -> None:
    class Shut(Scripted):
        async def open(self) -> None:
            self.opened += 1
            raise MissingKey("no key.")

    if answered:
        dict(dispatch([chain("c", 3)], Scripted(), journal, Sampling()))
    backend = Shut()
    programs = [chain("c", 3), *(single(f"p{number}", f"{number}") for number in range(20))]
    with pytest.raises(Incomplete if answered else MissingKey, match=r"no key\."):
        list(dispatch(programs, backend, journal, Sampling()))
    assert (backend.opened, backend.closed, len(backend.asked)) == (1, 1, 0)


def test_the_same_chat_in_flight_twice_is_asked_once(journal: Journal) -> None:
    backend = Scripted(latency=0.02)
    results = dict(dispatch([single("a", "x"), single("b", "x")], backend, journal, Sampling()))
    assert results == {"a": "X", "b": "X"} and backend.asked == {"x": 1}


def test_a_backend_that_answers_with_no_completion_is_told_so(journal: Journal) -> None:
    class Careless(Scripted):
        async def complete(self, request: Request) -> Any:
            return "[1] > [2]"

    with pytest.raises(UsageError, match="scripted answers with a str, not a Completion"):
        list(dispatch([single("a", "x"), single("b", "y")], Careless(), journal, Sampling()))


def test_another_draw_is_another_question(journal: Journal) -> None:
    seeds = []

    class Seeded(Scripted):
        async def complete(self, request: Request) -> Completion:
            seeds.append(request.sampling.seed)
            return await super().complete(request)

    def steps() -> Steps[None]:
        yield [chat("x", 0), chat("x", 1), chat("x", 100)]

    list(dispatch([Program("p", steps)], Seeded(), journal, Sampling(seed=7)))
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
    results = dict(dispatch(programs, Scripted(answer), journal, Sampling(), Limits(workers=1)))
    assert results["first"] == "OK" and results["last"] == "Z"
    assert results["broken"] == Failure("broken", "ValueError", "a bug in a program")
    assert results["rejected"] == Failure("rejected", "Rejected", "the server refuses this")


def test_passing_faults_are_tried_again_and_no_answer_is_lost(journal: Journal) -> None:
    def answer(text: str, attempt: int) -> Any:
        return [Transient("HTTP 500"), RateLimited(), text.upper()][min(attempt, 3) - 1]

    backend, progress = Scripted(answer), Progress()
    results = dict(
        dispatch(
            [single(f"p{i}", f"t{i}") for i in range(20)], backend, journal, Sampling(), progress=progress
        )
    )
    assert results == {f"p{i}": f"T{i}" for i in range(20)}
    assert set(backend.asked.values()) == {3} and progress.retries == 40


def test_retry_after_is_obeyed_and_holds_the_others(journal: Journal, clock: Clock) -> None:
    def answer(text: str, attempt: int) -> Any:
        return RateLimited(0.3) if text == "limited" and attempt == 1 else text.upper()

    backend = Scripted(answer)
    programs = [single("limited", "limited"), *(single(f"p{i}", f"t{i}") for i in range(3))]
    results = dict(dispatch(programs, backend, journal, Sampling(), Limits(workers=1)))
    assert len(results) == 4
    gaps = [later - earlier for earlier, later in zip(backend.times, backend.times[1:], strict=False)]
    assert gaps[0] == pytest.approx(0.3)
    assert backend.asked["limited"] == 2


def test_a_rate_limit_without_end_is_unavailable(journal: Journal) -> None:
    backend = Scripted(lambda text, attempt: RateLimited())
    with pytest.raises(Unavailable, match="rate limited"):
        list(dispatch([single("p", "t")], backend, journal, Sampling(), Limits(max_wait=0.2)))


def test_a_server_that_never_answers_ends_the_run_early(journal: Journal, clock: Clock) -> None:
    backend = Scripted(lambda text, attempt: Transient("connection refused by 127.0.0.1:9"))
    started = clock.now
    with pytest.raises(Unavailable, match="connection refused") as caught:
        list(dispatch([single(f"p{i}", f"t{i}") for i in range(50)], backend, journal, Sampling()))
    assert caught.value.exit_code == 1
    assert clock.now - started < 5
    assert max(backend.asked.values()) == 4


def test_a_dead_server_after_the_first_answer_leaves_the_run_incomplete(journal: Journal) -> None:
    list(dispatch([single("before", "x")], Scripted(), journal, Sampling()))
    backend = Scripted(lambda text, attempt: Transient("HTTP 500"))
    with pytest.raises(Incomplete, match="HTTP 500"):
        list(dispatch([single("p", "t")], backend, journal, Sampling()))


def test_a_refused_key_stops_everything(journal: Journal) -> None:
    backend = Scripted(lambda text, attempt: MissingKey("the key was refused"), latency=0.001)
    with pytest.raises(MissingKey):
        list(
            dispatch(
                [single(f"p{i}", f"t{i}") for i in range(200)],
                backend,
                journal,
                Sampling(),
                Limits(workers=8),
            )
        )
    assert sum(backend.asked.values()) <= 16


def test_five_rejections_before_any_success_stop_the_run(journal: Journal) -> None:
    backend = Scripted(lambda text, attempt: Rejected("no system role"))
    with pytest.raises(BackendError, match="no system role"):
        list(
            dispatch(
                [single(f"p{i}", f"t{i}") for i in range(99)], backend, journal, Sampling(), Limits(workers=1)
            )
        )
    assert 5 <= sum(backend.asked.values()) <= 7


def test_one_rejected_request_is_one_rejection_however_many_programs_wait_for_it(journal: Journal) -> None:
    backend = Scripted(lambda text, attempt: Rejected("no") if text == "bad" else text, latency=0.01)
    programs = [single(f"b{i}", "bad") for i in range(8)] + [single(f"p{i}", f"t{i}") for i in range(20)]
    found = dict(dispatch(programs, backend, journal, Sampling(), Limits(workers=8)))
    assert sum(isinstance(result, Failure) for result in found.values()) == 8
    assert len(found) == 28


def test_a_server_that_tells_of_next_to_nothing_left_is_asked_once_a_minute_at_least(
    journal: Journal,
) -> None:
    """A longer pause is its refusals' to say: those are shown, and count towards --max-wait."""
    backend = Scripted()
    backend.capabilities = frozenset({"adaptive"})
    backend.allowance = Allowance(1e-6, None)  # type: ignore[attr-defined]
    asker = Asker(backend, journal, None, Sampling(), Limits(workers=2), Progress())
    assert asker.adaptive is not None
    asker._heed_allowance(asker.adaptive)
    assert [bucket.rate for bucket in asker.slots.requests] == [1 / 60]


def test_a_budget_of_calls_is_exact_and_the_same_run_goes_on(journal: Journal) -> None:
    programs = [chain(f"c{i}", 4) for i in range(10)]
    backend = Scripted(latency=0.001)
    with pytest.raises(Incomplete, match="budget of 13 calls"):
        list(dispatch(programs, backend, journal, Sampling(), Limits(workers=4, max_calls=13)))
    assert sum(backend.asked.values()) == 13 == len(journal)
    rest = Scripted()
    assert len(list(dispatch(programs, rest, journal, Sampling()))) == 10
    assert sum(rest.asked.values()) == 27


def test_a_thinking_model_without_room_stops_the_run(journal: Journal) -> None:
    backend = Scripted(lambda text, attempt: Completion("<think>", Finish.UNFINISHED_THINKING))
    with pytest.raises(Incomplete, match="thinking") as caught:
        list(
            dispatch(
                [single(f"p{i}", f"t{i}") for i in range(99)], backend, journal, Sampling(), Limits(workers=1)
            )
        )
    assert "--thinking" in caught.value.hint
    assert sum(backend.asked.values()) == 20


def test_ctrl_c_takes_the_answers_in_flight_and_sends_nothing_new(
    journal: Journal, heard: threading.Event
) -> None:
    backend = Scripted(on_peak=lambda peak: interrupt(0.1) if peak == 4 else None, until=heard.is_set)
    programs = [chain(f"c{i}", 5) for i in range(4)]
    with pytest.raises(KeyboardInterrupt):
        list(dispatch(programs, backend, journal, Sampling()))
    assert sum(backend.asked.values()) == 4 == len(journal)
    assert len(list(dispatch(programs, rest := Scripted(), journal, Sampling()))) == 4
    assert sum(rest.asked.values()) == 16


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
        list(dispatch([single("p", "t")], backend, journal, Sampling()))
    assert time.monotonic() - started < 30, "one alone waits a minute for answers in flight"


def test_it_works_inside_a_running_event_loop(journal: Journal) -> None:
    async def notebook() -> dict[str, Any]:
        return dict(dispatch([chain("c", 2)], Scripted(), journal, Sampling()))

    assert asyncio.run(notebook()) == {"c": "C.."}


def test_a_full_disk_ends_the_run_with_a_sentence(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("llmfair.asking.journal.os.write", full)
    with pytest.raises(Exception, match="No space left on device") as caught:
        list(dispatch([single("p", "t")], Scripted(), journal, Sampling()))
    assert type(caught.value).__name__ == "LlmfairError"
    monkeypatch.undo()


def test_a_budget_finishes_chains_before_it_begins_others(journal: Journal) -> None:
    """Six chains of three at four in flight: thirteen calls are four whole chains, where all begun would be none."""
    finished: list[str] = []
    with pytest.raises(Incomplete):
        for probe_id, _ in dispatch(
            [chain(f"c{i}", 3) for i in range(6)],
            Scripted(latency=0.001),
            journal,
            Sampling(),
            Limits(workers=4, max_calls=13),
        ):
            finished.append(probe_id)  # what came before the stop counts
    assert len(finished) == 4


def test_a_spent_budget_waits_for_slow_answers(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmfair.asking.dispatch.GRACE_SECONDS", 0.05)
    backend = Scripted(latency=0.4)
    with pytest.raises(Incomplete):
        list(
            dispatch(
                [chain(f"c{i}", 3) for i in range(8)], backend, journal, Sampling(), Limits(4, max_calls=4)
            )
        )
    assert sum(backend.asked.values()) == 4 == len(journal)


def test_after_a_failed_write_nothing_goes_on_behind_the_run_s_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        list(
            dispatch([chain(f"c{i}", 50) for i in range(8)], backend, journal, Sampling(), Limits(workers=8))
        )
    monkeypatch.undo()
    journal.close()
    with (tmp_path / "next.json").open("w") as later:
        asked = sum(backend.asked.values())
        time.sleep(0.2)
        assert sum(backend.asked.values()) == asked
        later.flush()
        assert (tmp_path / "next.json").read_bytes() == b""


def test_waits_grow_also_under_a_retry_after_of_nothing(journal: Journal, clock: Clock) -> None:
    backend = Scripted(lambda text, attempt: RateLimited(0.0) if attempt < 5 else "done")
    list(dispatch([single("p", "t")], backend, journal, Sampling()))
    gaps = [later - earlier for earlier, later in zip(backend.times, backend.times[1:], strict=False)]
    assert sum(gaps) > 0.25 and gaps[-1] > 3 * gaps[0]


def test_only_time_without_any_answer_counts_against_max_wait(journal: Journal, clock: Clock) -> None:
    def answer(text: str, attempt: int) -> Any:
        return RateLimited() if text == "late" and attempt == 1 else text

    def steps() -> Steps[None]:
        for i in range(8):
            yield [chat(f"step {i}")]
        yield [chat("late")]

    results = dict(
        dispatch([Program("p", steps)], Scripted(answer, 0.05), journal, Sampling(), Limits(max_wait=0.3))
    )
    assert results == {"p": None}


def test_one_probe_given_up_after_answers_ends_alone(journal: Journal) -> None:
    def answer(text: str, attempt: int) -> Any:
        return Transient("HTTP 500") if text == "bad" else text

    programs = [single("a", "x"), single("b", "bad"), *(single(f"c{i}", f"y{i}") for i in range(9))]
    results = dict(dispatch(programs, Scripted(answer), journal, Sampling(), Limits(workers=1, retries=1)))
    assert isinstance(results["b"], Failure) and len(results) == 11


def test_a_server_that_dies_in_mid_run_is_not_asked_to_exhaustion(journal: Journal) -> None:
    served = []

    def answer(text: str, attempt: int) -> Any:
        served.append(text)
        return text if len(served) <= 5 else Transient("connection refused")

    backend = Scripted(answer, 0.001)
    with pytest.raises(Incomplete, match="connection refused"):
        list(
            dispatch(
                [single(f"p{i}", f"t{i}") for i in range(300)], backend, journal, Sampling(), Limits(8, 2)
            )
        )
    assert sum(backend.asked.values()) < 100


def test_an_interrupt_does_not_wait_for_ever(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmfair.asking.dispatch.GRACE_SECONDS", 0.2)
    backend = Scripted(latency=60, on_peak=lambda _: interrupt(0.1))
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        list(dispatch([single("p", "t")], backend, journal, Sampling()))
    assert time.monotonic() - started < 30 and backend.in_flight == 0


def test_an_interrupt_is_heard_while_every_answer_is_known(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs that never wait must not keep the loop to themselves; these would go on for ever."""
    monkeypatch.setattr("llmfair.asking.dispatch.GRACE_SECONDS", 60)
    list(dispatch([single("p", "t")], Scripted(), journal, Sampling()))
    endless = (single(f"p{number}", "t") for number in itertools.count())
    started = time.monotonic()
    results = dispatch(endless, Scripted(), journal, Sampling())
    assert next(results) == ("p0", "T")
    results.close()
    assert time.monotonic() - started < 30


def test_a_retried_request_goes_before_those_that_wait(journal: Journal) -> None:
    order: list[str] = []

    def answer(text: str, attempt: int) -> Any:
        order.append(text)
        return Transient("HTTP 500") if text == "first" and attempt == 1 else text

    programs = [single("first", "first"), *(single(f"p{i}", f"t{i}") for i in range(40))]
    list(dispatch(programs, Scripted(answer, 0.02), journal, Sampling(), Limits(workers=2)))
    assert order.index("first", 1) < 30


def test_a_bug_in_a_program_is_kept_for_whoever_wants_its_traceback(journal: Journal) -> None:
    def broken() -> Steps[None]:
        yield [chat("fine")]
        raise TypeError("a bug")

    progress = Progress()
    list(dispatch([Program("p", broken)], Scripted(), journal, Sampling(), progress=progress))
    assert isinstance(progress.bug, TypeError) and progress.bug.__traceback__ is not None


def test_a_failing_chat_of_a_step_waits_for_its_neighbours(journal: Journal) -> None:
    def steps() -> Steps[None]:
        yield [chat("bad"), chat("slow"), chat("slower")]

    def answer(text: str, attempt: int) -> Any:
        return Rejected("no") if text == "bad" else text

    class Slow(Scripted):
        async def complete(self, request: Request) -> Completion:
            if request.chat.messages[0].content != "bad":
                await asyncio.sleep(0.1)
            return await super().complete(request)

    results = dict(dispatch([Program("p", steps), single("q", "fine")], Slow(answer), journal, Sampling()))
    assert isinstance(results["p"], Failure) and results["q"] == "fine"
    assert len(journal) == 3


def test_a_rate_that_is_set_makes_requests_wait_and_fails_none(journal: Journal, clock: Clock) -> None:
    backend = Scripted()
    started = clock.now
    programs = [single(f"p{i}", f"t{i}") for i in range(30)]
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
    list(dispatch(programs, backend, journal, Sampling(max_tokens=100), Limits(tpm=60_000)))
    assert 5 <= sent[0] <= 6 and clock.now - started < 3.0, "unsettled they would take as long"


def test_a_stop_reaches_requests_that_wait_for_their_rate(journal: Journal, clock: Clock) -> None:
    def answer(text: str, attempt: int) -> Any:
        return MissingKey("the key was refused") if attempt else text

    started = clock.now
    programs = [single(f"p{i}", f"t{i}") for i in range(50)]
    with pytest.raises(MissingKey):
        list(dispatch(programs, Scripted(answer), journal, Sampling(), Limits(rpm=60)))
    assert clock.now - started < 2


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
    list(dispatch([single(f"p{i}", f"t{i}") for i in range(40)], asking, journal, Sampling(), limits))
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
    assert len(list(dispatch(map(start, range(44)), Adapting(answer, 0.05), journal, Sampling()))) == 44
    assert (clock.now - before) / (56 * 0.05) <= ratio
