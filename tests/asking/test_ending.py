"""What ends a run of dispatch, and what it leaves behind: answers that were paid for, and nothing after them."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from llmfair.asking.dispatch import dispatch
from llmfair.asking.journal import Journal
from llmfair.asking.limits import Limits, Progress
from llmfair.backends.base import RateLimited, Transient
from llmfair.errors import BackendError, Incomplete, LlmfairError, MissingKey, Rejected, Unavailable
from llmfair.nouns import Completion, Failure, Finish, Sampling
from tests.asking.scripted import Scripted, chain, interrupt, run, single, singles
from tests.virtual import Clock


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


def test_a_dead_server_after_the_first_answer_leaves_the_run_incomplete(journal: Journal) -> None:
    run([single("before", "x")], Scripted(), journal)
    with pytest.raises(Incomplete, match="HTTP 500"):
        run([single("p", "t")], Scripted(lambda text, attempt: Transient("HTTP 500")), journal)


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


def test_an_outage_without_end_breaks_the_run_off_after_a_minute(journal: Journal, clock: Clock) -> None:
    began = clock.now
    backend = Scripted(lambda text, attempt: text if clock.now < began + 1 else Transient("HTTP 502"), 0.05)
    with pytest.raises(Incomplete, match="HTTP 502"):
        run([chain(f"c{number}", 60) for number in range(8)], backend, journal, Limits(workers=8))
    assert 60 <= clock.now - began < 70


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
def test_a_wait_that_does_not_fit_ends_at_once(
    answered: bool, failure: Exception, journal: Journal, clock: Clock
) -> None:
    began = clock.now
    backend = Scripted(lambda text, attempt: text if answered and text == "t0" else failure, 0.05)
    with pytest.raises(
        Incomplete if answered else Unavailable, match="asks to wait 1,000,000,000 s"
    ) as caught:
        run(singles(99), backend, journal, Limits(workers=4, max_wait=4))
    assert "--max-wait" in f"{caught.value.message} {caught.value.hint}"
    assert ("HTTP 503" if isinstance(failure, Transient) else "(429)") in caught.value.message
    assert clock.now - began < 4


def test_one_rejected_request_is_one_rejection_however_many_programs_wait_for_it(journal: Journal) -> None:
    backend = Scripted(lambda text, attempt: Rejected("no") if text == "bad" else text, latency=0.01)
    programs = [single(f"b{i}", "bad") for i in range(8)] + singles(20)
    found = run(programs, backend, journal, Limits(workers=8))
    assert sum(isinstance(result, Failure) for result in found.values()) == 8
    assert len(found) == 28


def test_a_budget_of_calls_is_exact_and_the_same_run_goes_on(journal: Journal) -> None:
    programs = [chain(f"c{i}", 4) for i in range(10)]
    backend = Scripted(latency=0.001)
    with pytest.raises(Incomplete, match="budget of 13 calls"):
        run(programs, backend, journal, Limits(workers=4, max_calls=13))
    assert sum(backend.asked.values()) == 13 == len(journal)
    rest = Scripted()
    assert len(run(programs, rest, journal)) == 10
    assert sum(rest.asked.values()) == 27


def test_ctrl_c_takes_the_answers_in_flight_and_sends_nothing_new(
    journal: Journal, heard: threading.Event
) -> None:
    backend = Scripted(on_peak=lambda peak: interrupt(0.1) if peak == 4 else None, until=heard.is_set)
    programs = [chain(f"c{i}", 5) for i in range(4)]
    with pytest.raises(KeyboardInterrupt):
        run(programs, backend, journal)
    assert sum(backend.asked.values()) == 4 == len(journal)
    assert len(run(programs, rest := Scripted(), journal)) == 4
    assert sum(rest.asked.values()) == 16


@pytest.mark.parametrize("asked", [0, 4])
def test_ctrl_c_as_the_work_is_handed_over(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, asked: int
) -> None:
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
        run([chain(f"c{i}", 3) for i in range(8)], backend, journal, Limits(4, max_calls=4))
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
        run([chain(f"c{i}", 50) for i in range(8)], backend, journal, Limits(workers=8))
    monkeypatch.undo()
    journal.close()
    with (tmp_path / "next.json").open("w") as later:
        asked = sum(backend.asked.values())
        time.sleep(0.2)
        assert sum(backend.asked.values()) == asked
        later.flush()
        assert (tmp_path / "next.json").read_bytes() == b""


def test_a_server_that_dies_in_mid_run_is_not_asked_to_exhaustion(journal: Journal) -> None:
    served = []

    def answer(text: str, attempt: int) -> Any:
        served.append(text)
        return text if len(served) <= 5 else Transient("connection refused")

    backend = Scripted(answer, 0.001)
    with pytest.raises(Incomplete, match="connection refused"):
        run(singles(300), backend, journal, Limits(8, 2, outage=0))
    assert sum(backend.asked.values()) < 100


def test_an_interrupt_does_not_wait_for_ever(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmfair.asking.dispatch.GRACE_SECONDS", 0.2)
    backend = Scripted(latency=60, on_peak=lambda _: interrupt(0.1))
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run([single("p", "t")], backend, journal)
    assert time.monotonic() - started < 30 and backend.in_flight == 0


def test_an_interrupt_is_heard_while_every_answer_is_known(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs that never wait must not keep the loop to themselves; these would go on for ever."""
    monkeypatch.setattr("llmfair.asking.dispatch.GRACE_SECONDS", 60)
    run([single("p", "t")], Scripted(), journal)
    endless = (single(f"p{number}", "t") for number in itertools.count())
    started = time.monotonic()
    results = dispatch(endless, Scripted(), journal, Sampling())
    assert next(results) == ("p0", "T")
    results.close()
    assert time.monotonic() - started < 30


def test_a_stop_reaches_requests_that_wait_for_their_rate(journal: Journal, clock: Clock) -> None:
    def answer(text: str, attempt: int) -> Any:
        return MissingKey("the key was refused") if attempt else text

    started = clock.now
    programs = singles(50)
    with pytest.raises(MissingKey):
        run(programs, Scripted(answer), journal, Limits(rpm=60))
    assert clock.now - started < 2
