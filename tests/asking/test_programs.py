"""Dispatch of programs with much to ask at once, and of those that work between their questions."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from llmfair.asking.dispatch import Program, dispatch
from llmfair.asking.journal import Journal
from llmfair.asking.limits import Limits, Progress
from llmfair.asking.one_chat import Asker
from llmfair.errors import Rejected, UsageError
from llmfair.nouns import Chat, Completion, Failure, Request, Sampling, Steps
from tests.asking.scripted import Scripted, chain, chat, interrupt, run, single

# Steps of many chats


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
    texts = [f"t{number}" for number in range(5_000)]

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
    assert sum(backend.asked.values()) == len(journal) + 2 <= 2 + 16, (
        "each that was begun is answered and kept"
    )


def test_an_interrupt_within_a_step_of_many_chats_sends_nothing_new(
    journal: Journal, heard: threading.Event
) -> None:
    def steps() -> Steps[int]:
        return len((yield [chat(f"t{number}") for number in range(1_000)]))

    backend = Scripted(on_peak=lambda peak: interrupt(0.1) if peak == 4 else None, until=heard.is_set)
    with pytest.raises(KeyboardInterrupt):
        run([Program("p", steps)], backend, journal, Limits(workers=4))
    assert sum(backend.asked.values()) == 4 == len(journal)
    rest = Scripted()
    assert list(dispatch([Program("p", steps)], rest, journal, Sampling())) == [("p", 1_000)]
    assert sum(rest.asked.values()) == 996


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
    few, many = zip(*[(rounds(8, True), rounds(64, True)) for _ in range(5)], strict=True)
    assert min(many) < 2 * min(few), (few, many)
    assert rounds(8, False) > 8 * 2 * 0.04, "on the loop one waits for all others"


def test_threads_end_with_the_run(journal: Journal) -> None:
    run([chain(f"c{i}", 2, threaded=True) for i in range(20)], Scripted(), journal)
    deadline = time.monotonic() + 10
    while any(thread.name == "llmfair-program" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_failure_within_a_thread_ends_its_program_only(journal: Journal) -> None:
    def broken() -> Steps[None]:
        yield [chat("fine")]
        raise TypeError("a bug")

    def refused() -> Steps[None]:
        yield [chat("fine")]
        raise Rejected("no")

    progress = Progress()
    programs = [Program("a", broken, True), Program("b", refused, True), chain("c", 2, 0.01, True)]
    found = run(programs, Scripted(), journal, progress=progress)
    assert found["a"] == Failure("a", "TypeError", "a bug") and found["b"] == Failure("b", "Rejected", "no")
    assert found["c"] == "C.."
    assert isinstance(progress.bug, TypeError) and progress.bug.__traceback__ is not None


@pytest.mark.parametrize("threaded", [False, True])
def test_a_search_that_nobody_can_make_ends_the_run_with_its_own_sentence(
    threaded: bool, journal: Journal
) -> None:
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


def test_an_interrupt_during_a_search_waits_for_it_and_asks_nothing(journal: Journal) -> None:
    backend, ended = Scripted(), threading.Event()

    def steps() -> Steps[None]:
        interrupt(0.1)
        time.sleep(0.3)
        ended.set()
        yield [chat("x")]

    with pytest.raises(KeyboardInterrupt):
        run([Program("p", steps, True)], backend, journal)
    assert ended.is_set() and not backend.asked


def test_a_search_that_outlasts_an_interrupt_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its end nor its failure is written anywhere; its program is closed once it lets go."""
    monkeypatch.setattr("llmfair.asking.dispatch.GRACE_SECONDS", 0.1)
    journal = Journal(tmp_path / "journal.jsonl", "run", "scripted")
    searched, closed = threading.Event(), threading.Event()

    def steps() -> Steps[None]:
        try:
            interrupt(0.1)
            searched.wait()
            yield [chat("x")]
        finally:
            closed.set()

    def failing() -> Steps[None]:
        searched.wait()
        raise TypeError("a bug")
        yield []

    backend, progress = Scripted(), Progress()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        programs = [Program("p", steps, True), Program("q", failing, True)]
        run(programs, backend, journal, progress=progress)
    assert time.monotonic() - started < 30 and backend.closed == 1
    journal.close()
    before = (tmp_path / "journal.jsonl").read_bytes()
    searched.set()
    assert closed.wait(10)
    assert (tmp_path / "journal.jsonl").read_bytes() == before
    assert not backend.asked and progress.bug is None


HANGS = """
import sys, time
from pathlib import Path
from llmfair.asking import dispatch as module
from llmfair.asking.dispatch import Program, dispatch
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
