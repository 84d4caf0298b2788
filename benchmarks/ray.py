"""What asking through processes of a Ray cluster costs and gains: `python -m benchmarks.ray`, from the root.

A cluster of this command's own, with llmfair[ray]; seconds are from the first question, when all processes stand, to
the last answer. `overhead`: a model that works on 8 lists at a time for 50 ms each, as a GPU would, asked 2,000 here,
2,000 in a process, and 2,000 in each of two, in turns, medians of three. `trip`: 2,000 questions of 50 ms, and of
200 ms, to a model that takes all that come, so many in flight: what each one's way there and back adds. `ceiling`:
answers that come at once: what is left is the one process that asks and keeps the journal. `slots`: the model of
`overhead` in up to four processes. `server`: a server of chat completions that answers after 50 ms, asked by the
processes, 8 at a time each, and 32 at a time from here. Beside the wall time the ideal: all there is to do, spread
evenly and with nothing lost.

`--calls N`: of the longest rows (100,000). `--mockllm FOLDER`: the server is mockllm, which lies there, instead of
`benchmarks.loopback`. Exits with 1 for an answer lost, or an `overhead` of more than 5 %.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.dispatch import Shape, cpu_seconds, programs
from benchmarks.fleet import Process
from llmfair.on_ray import AHEAD

LATENCY, SLOTS, TURNS, MOST_OVERHEAD = 0.05, 8, 3, 1.05


def model(query: str, documents: list[str]) -> list[float]:
    """A ranker that takes its time; `python:` has it answer 8 lists at a time."""
    time.sleep(LATENCY)
    return [float(len(document)) for document in documents]


@dataclass(frozen=True)
class Row:
    """`calls` questions to a model in so many processes (0: without Ray), of which `at_once` are worked on at a time,
    and `ahead` wait; `latency` in seconds."""

    name: str
    model: str
    processes: int
    calls: int
    at_once: int
    latency: float = LATENCY
    ahead: int = 0

    @property
    def ideal(self) -> float:
        return self.calls * self.latency / self.at_once


@dataclass(frozen=True)
class Found:
    """Seconds by the clock and of this process's CPU."""

    wall: float
    cpu: float


class Opened:
    """A backend that notes when it can be asked."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)

    async def open(self) -> None:
        await self.backend.open()
        self.began = clocks()


def clocks() -> tuple[float, float]:
    """Seconds by the clock and of this process's CPU."""
    return time.perf_counter(), cpu_seconds()


def lists(calls: int) -> Iterator[Any]:
    """Programs that have a list of two scored, each."""
    from llmfair.asking.dispatch import Program
    from llmfair.nouns import Chat, Message, Scores

    def program(number: int) -> Program:
        words = ("a query", f"Item {number}", "another")
        chat = Chat(
            tuple(Message("user", text) for text in words), Scores(2), about={"query_id": f"q{number}"}
        )

        def steps() -> Any:
            yield [chat]

        return Program(f"q{number}", steps)

    return map(program, range(calls))


def asked(row: Row, url: str | None = None) -> Found:
    """Asks all of a row. Raises SystemExit for an answer lost."""
    from llmfair import registry
    from llmfair.asking.dispatch import dispatch
    from llmfair.asking.journal import Journal
    from llmfair.asking.limits import Limits
    from llmfair.backends.base import BackendOptions
    from llmfair.nouns import Failure, Sampling
    from llmfair.on_ray import ModelOnRay

    prefix, _, name = row.model.partition(":")
    options = BackendOptions(base_url=url)
    here = registry.lookup("backend", prefix)(name, options)
    backend = Opened(ModelOnRay(row.model, options, here, row.processes, "local") if row.processes else here)
    pairs = Shape(row.name, row.calls // 2, 2, 0, 1, 5, row.latency)
    questions: Iterable[Any] = lists(row.calls) if prefix == "python" else programs(pairs)
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "journal.jsonl", "benchmark", backend.identity)
        limits = Limits(row.at_once + row.ahead, adaptive=False)
        lost, ended = 0, (0.0, 0.0)
        for _, result in dispatch(questions, backend, journal, Sampling(), limits):
            lost += isinstance(result, Failure)
            ended = clocks()
        wall, cpu = (end - begin for begin, end in zip(backend.began, ended, strict=True))
        lost += row.calls - len(journal)
        journal.close()
    if lost:
        raise SystemExit(f"{row.name}: {lost:,} questions have no answer")
    return Found(wall, cpu)


def show(row: Row, found: Found) -> None:
    ratio = f"{found.wall / row.ideal:7.2f}" if row.latency else f"{'':7}"
    print(
        f"{row.name:10} {row.processes or 'none':>9} {row.at_once:7} {row.calls:8,} {row.ideal:8.2f} {found.wall:8.2f}"
        f" {ratio} {row.calls / found.wall:8,.0f} {1000 * found.cpu / row.calls:9.3f} {found.cpu / found.wall:7.2f}",
        flush=True,
    )


def overhead(rows: Sequence[Row]) -> float:
    """How much longer the worst row takes than the first, for its share of what there is to do."""
    turns = [[asked(row) for row in rows] for _ in range(TURNS)]
    shares: list[float] = []
    for row, found in zip(rows, zip(*turns, strict=True), strict=True):
        wall, cpu = (statistics.median(getattr(one, name) for one in found) for name in ("wall", "cpu"))
        show(row, Found(wall, cpu))
        shares.append(wall / row.ideal)
    over = [share / shares[0] for share in shares[1:]]
    print(f"  over none: {', '.join(f'{one:.3f}' for one in over)}", flush=True)
    return max(over)


def several(rows: Iterable[Row], url: str | None = None) -> None:
    for row in rows:
        show(row, asked(row, url))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray", description=__doc__)
    parser.add_argument("--mockllm", type=Path)
    parser.add_argument("--calls", type=int, default=100_000)
    given = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} of {os.cpu_count()} cores; CPU is of the process that asks")
    print(
        f"{'':10} {'processes':>9} {'at once':>7} {'calls':>8} {'ideal s':>8} {'wall s':>8} {'ratio':>7} {'calls/s':>8}"
        f" {'CPU ms':>9} {'cores':>7}"
    )
    here = Row("overhead", "python:benchmarks.ray:model", 0, 2000, SLOTS, ahead=AHEAD)
    there = [replace(here, processes=n, calls=2000 * n, at_once=SLOTS * n, ahead=AHEAD * n) for n in (1, 2)]
    over = overhead([here, *there])
    for latency, at_once in ((LATENCY, 16), (4 * LATENCY, 64)):
        row = Row("trip", f"fake:oracle,latency={latency}", 0, 2000, at_once, latency)
        overhead([replace(row, processes=n) for n in (0, 1, 2)])
    several(Row("ceiling", "fake:oracle", n, 20_000, 64 * max(n, 1), 0.0) for n in (0, 1, 2, 4))
    several(
        Row("slots", "python:benchmarks.ray:model", n, given.calls // 25 * n, SLOTS * n, ahead=AHEAD * n)
        for n in (1, 2, 4)
    )
    server = Process(given.mockllm, slots=0, latency=LATENCY)
    server.start()
    try:
        served, url = f"openai:{server.model}", f"http://127.0.0.1:{server.port}/v1"
        rows = [(1, given.calls // 4, SLOTS), (4, given.calls, 4 * SLOTS), (0, given.calls, 4 * SLOTS)]
        several((Row("server", served, n, calls, most) for n, calls, most in rows), url)
    finally:
        server.kill()
    raise SystemExit(over > MOST_OVERHEAD)


if __name__ == "__main__":
    main()
