"""What is said of a run while it is asked."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from llmfair import terminal
from llmfair.asking.limits import Progress
from tests.virtual import Clock


def test_a_line_says_how_far_how_fast_at_what_cost_and_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("llmfair.terminal.time", clock)
    progress = Progress()
    state = terminal.Bar("Asking a model", 1000, progress, 64)
    assert state.line() == "0/1,000  0 unparseable  0 from the journal  0 cached  0/64 in flight"
    clock.now += 10
    progress.answered, progress.replayed, progress.cached, progress.unparseable = 200, 90, 10, 3
    progress.in_flight, progress.limit, progress.retries, progress.cost = 31, 32, 7, 0.01234
    assert state.line() == (
        "200/1,000  3 unparseable  90 from the journal  10 cached  31/32 in flight  10.0/s  7 tried again  "
        "cost 0.0123  1:20 left"
    )
    progress.waiting_until, progress.waiting_for = clock.now + 12, "rate limited"
    assert state.line().endswith("rate limited, waiting 12 s")
    progress.waiting_until, clock.now = 0.0, clock.now + 300
    state.line()
    progress.answered, clock.now = 500, clock.now + 60
    assert "  5.0/s  " in state.line() and state.line().endswith("  1:40 left"), "of the last minute"


def drawn(state: terminal.Line, width: int) -> str:
    """What a terminal so wide shows."""
    shown = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    with shown.capture() as captured:
        shown.print(state)
    return captured.get()


@pytest.mark.parametrize("width", [20, 80, 200])
def test_on_a_terminal_it_is_one_line_that_fits(width: int) -> None:
    model = "Asking openai:mistralai/Mistral-7B-Instruct-v0.2"
    busy = Progress(
        answered=18_204, unparseable=62, replayed=90, cached=10, in_flight=31, limit=32, retries=7
    )
    states = [terminal.Bar(name, 30_096, busy, 64) for name in (model, "Asking a model")]
    waiting = Progress(waiting_until=time.monotonic() + 100, waiting_for="rate limited")
    states.append(terminal.Bar(model, 30_096, waiting, 64))
    for state in states:
        (line,) = drawn(state, width).splitlines()
        assert len(line) <= width
    (line,) = drawn(terminal.Count(model, 1000, "lists", lambda: 7), width).splitlines()
    assert len(line) <= width


def test_without_a_terminal_lines_come_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("llmfair.terminal.PLAIN_EVERY", 0.02)
    with terminal.drawn(terminal.Bar("Asking a model", 10, Progress(answered=4), 64)):
        lines, deadline = list[str](), time.monotonic() + 30
        while not lines and time.monotonic() < deadline:
            time.sleep(0.01)
            lines = capsys.readouterr().err.splitlines()
    assert lines and all(line.startswith("Asking a model  4/10  0 unparseable") for line in lines)


def test_a_count_says_how_far_and_how_long_still_without_what_an_earlier_command_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, done = Clock(), 0
    monkeypatch.setattr("llmfair.terminal.time", clock)
    state = terminal.Count("Training", 1000, "prompts", lambda: done)
    assert state.line() == "0/1,000 prompts"
    clock.now, done = clock.now + 5, 600
    assert state.line() == "600/1,000 prompts"
    clock.now, done, state.words = clock.now + 10, 800, "loss 0.500"
    assert state.line() == "800/1,000 prompts  20.0/s  0:10 left  loss 0.500"
