"""What ends a run of dispatch, and what it leaves behind: answers that were paid for, and nothing after them."""

from __future__ import annotations

import itertools
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from llmfair.asking.dispatch import dispatch
from llmfair.asking.journal import Journal
from llmfair.asking.limits import Limits
from llmfair.backends.base import RateLimited, Transient
from llmfair.errors import BackendError, Incomplete, MissingKey, Rejected, Unavailable
from llmfair.records import (
    Completion,
    Failure,
    Finish,
    Sampling,
)
from tests.asking.scripted import Scripted, chain, interrupt, single
from tests.virtual import Clock


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


def test_a_stop_reaches_requests_that_wait_for_their_rate(journal: Journal, clock: Clock) -> None:
    def answer(text: str, attempt: int) -> Any:
        return MissingKey("the key was refused") if attempt else text

    started = clock.now
    programs = [single(f"p{i}", f"t{i}") for i in range(50)]
    with pytest.raises(MissingKey):
        list(dispatch(programs, Scripted(answer), journal, Sampling(), Limits(rpm=60)))
    assert clock.now - started < 2
