"""How well three servers of one model are kept busy while one is killed: `python -m benchmarks.fleet`, from the root.

Each server is a process that works on a few requests at a time, as a GPU does, and takes as long for each; the client
asks all of them in another. Once calmly; once with one killed (SIGKILL) after a third of the answers and started again
two seconds later; once without its return. Beside the wall time the ideal: all there is to do, spread evenly over the
servers that are up, with nothing lost. `busiest`: how many times an equal share CRC-32 dealt to one server; `again`:
attempts that were lost with the server or met it down. Exits with 1 for an answer lost, or more of these than were in
flight.

`--mockllm FOLDER`: servers of mockllm, which lies there, instead of `benchmarks.loopback`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from benchmarks.dispatch import Shape, programs

SERVERS, SLOTS, LATENCY = 3, 8, 0.1
SHAPE = Shape("600 chains of 5", 600, 30, 10, 5, 5, LATENCY)
DOWN_SECONDS = 2.0


@dataclass
class Process:
    """A server as a process; `mockllm`: the folder it is run from, if it is that one."""

    mockllm: Path | None
    port: int = 0
    slots: int = SLOTS
    latency: float = LATENCY

    @property
    def model(self) -> str:
        return "mock-1" if self.mockllm else "loopback"

    def start(self) -> None:
        common = ["--slots", str(self.slots), "--port", str(self.port)]
        command = ["benchmarks.loopback", "--latency", str(self.latency), *common]
        if self.mockllm is not None:
            command = ["mockllm", "--latency-ms", str(1000 * self.latency), "--policy", "shuffle", *common]
        self.process = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=self.mockllm, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        self.port = int(said.strip().removesuffix("/v1").rpartition(":")[2])

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def three(mockllm: Path | None) -> Iterator[list[Process]]:
    with ExitStack() as stack:
        servers = [Process(mockllm) for _ in range(SERVERS)]
        for server in servers:
            server.start()
            stack.callback(server.kill)
        yield servers


def run(name: str, mockllm: Path | None, killed: bool = False, returns: bool = True) -> bool:
    """Asks all of it, prints a line; whether nothing was lost, and nothing that was answered asked again."""
    from llmfair.asking.dispatch import dispatch
    from llmfair.asking.journal import Journal
    from llmfair.asking.limits import Limits, Progress
    from llmfair.backends.base import BackendOptions
    from llmfair.backends.openai import OpenAI
    from llmfair.backends.server import Fleet
    from llmfair.nouns import Failure, Sampling

    shape, progress, away = SHAPE, Progress(), [0.0, 0.0, 0.0]  # killed, up again, answers in flight then
    with three(mockllm) as servers, tempfile.TemporaryDirectory() as folder:
        urls = [f"http://127.0.0.1:{server.port}/v1" for server in servers]
        backend = Fleet(
            [OpenAI(servers[0].model, BackendOptions(base_url=url, server_name=name)) for url in urls]
        )
        journal = Journal(Path(folder) / "journal.jsonl", "benchmark", backend.identity)
        asked = list(programs(shape))

        def kill() -> None:
            while progress.answered < shape.requests / 3:
                time.sleep(0.01)
            away[0], away[2] = time.perf_counter(), progress.in_flight
            servers[1].kill()
            if returns:
                time.sleep(DOWN_SECONDS)
                servers[1].start()
                away[1] = time.perf_counter()

        thread = threading.Thread(target=kill)
        started = time.perf_counter()
        if killed:
            thread.start()
        lost = sum(
            isinstance(result, Failure)
            for _, result in dispatch(asked, backend, journal, Sampling(), Limits(), progress)
        )
        ended = time.perf_counter()
        if killed:
            thread.join()
        answers, by = len(journal), sorted(journal.servers.values(), reverse=True)
        journal.close()
    work = shape.requests * LATENCY / SLOTS  # seconds of one server
    ideal = work / SERVERS
    if killed:
        ideal = (work + away[1] - away[0]) / SERVERS
        if not returns:  # two go on alone
            up = away[0] - started
            ideal = up + (work - SERVERS * up) / (SERVERS - 1)
    again = progress.calls - answers
    shares = Counter(crc32(f"q{number}".encode()) % SERVERS for number in range(shape.chains))
    print(
        f"{name:34} {answers:8,} {ideal:7.2f} {ended - started:7.2f} {(ended - started) / ideal:7.2f}"
        f" {max(shares.values()) * SERVERS / shape.chains:8.2f} {again:6} {lost:5}  {' '.join(map(str, by))}",
        flush=True,
    )
    return not lost and answers == shape.requests and again <= max(away[2], 0) + SERVERS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=__doc__)
    parser.add_argument("--mockllm", type=Path)
    mockllm = parser.parse_args().mockllm
    load = os.getloadavg()[0]
    print(f"{SERVERS} servers, {SLOTS} requests at a time of {LATENCY:g} s each; load {load:.1f}")
    print(
        f"{'':34} {'answers':>8} {'ideal s':>7} {'wall s':>7} {'ratio':>7} {'busiest':>8} {'again':>6} {'lost':>5}",
        end="",
    )
    print("  answers by server")
    well = [
        run("calm", mockllm),
        run("one killed, back after 2 s", mockllm, killed=True),
        run("one killed for good", mockllm, killed=True, returns=False),
    ]
    raise SystemExit(not all(well))


if __name__ == "__main__":
    main()
