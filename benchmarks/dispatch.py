"""How well dispatch keeps a server busy, and what that costs: `python -m benchmarks.dispatch`, from the root.

For each shape a server on loopback with a fixed delay, the client and a bare chain of aiohttp posts of the same
bodies, each a process of its own. Wall time beside the critical path (the longest chain × delay) and beside the bare
chain's, CPU per request (user and system, the client's process, journal included; also divided by how much longer a
fixed loop takes than on a quiet core), peak memory.

`--cpu`: CPU a request of 44 × 60 alone, in turns with the bare chain and with chains on the openai package, medians
of five. `--full`: 88,788 listwise requests in 453 chains and 100,000 pairwise ones, with faults; what the server
answered is compared with the journal. `--quota`: a server that allows 300 requests a minute and says so only by
refusing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.loopback import arguments_of

WORDS = ("atlas", "river", "bridge", "early", "history", "museum", "north", "painter", "railway", "festival")
QUIET_SECONDS = 0.05
LONG = 10  # words from which an item is shown by its text
FAULTS: dict[str, Any] = {"rate_429": 0.05, "rate_500": 0.02}


@dataclass(frozen=True)
class Shape:
    """Chains of windows (`window` 0: pairs) over items of so many words; `latency` in seconds."""

    name: str
    chains: int
    items: int
    window: int
    step: int
    words: int
    latency: float
    workers: int = 64
    rate_429: float = 0.0
    rate_500: float = 0.0
    seed: int = 0
    quota: float = 0.0
    silent: bool = False

    @property
    def length(self) -> int:
        """Requests of one chain, one after the other."""
        return -(-max(self.items - self.window, 0) // self.step) + 1 if self.window else 1

    @property
    def requests(self) -> int:
        return self.chains * self.length * (1 if self.window else 2)

    @property
    def critical_path(self) -> float:
        return self.length * self.latency

    @property
    def server(self) -> dict[str, object]:
        names = ("latency", "rate_429", "rate_500", "seed", "quota", "silent")
        return {name: getattr(self, name) for name in names}


A = Shape("A: 8 × 100, 20/10", 8, 100, 20, 10, 60, 0.05)
B = Shape("B: 44 × 60, 5/1", 44, 60, 5, 1, 5, 0.05)
FULL = Shape("453 × 200, 5/1, 3 % faults", 453, 200, 5, 1, 5, 0.02, 512, 0.02, 0.01)
PAIRS = Shape("50,000 pairs, 3 % faults", 50_000, 2, 0, 1, 5, 0.02, 256, 0.02, 0.01)
QUOTA = Shape("quota 300/min", 60, 20 + 10 * 24, 20, 10, 5, 0.05, quota=300)


def client(shape: Shape, port: int) -> dict[str, float]:
    """Asks all there is of a shape, as an audit does."""
    from llmfair.asking.dispatch import dispatch
    from llmfair.asking.journal import Journal
    from llmfair.asking.limits import Limits, Progress
    from llmfair.backends.base import BackendOptions
    from llmfair.backends.openai import OpenAI
    from llmfair.nouns import Failure, Sampling

    backend = OpenAI("loopback", BackendOptions(base_url=f"http://127.0.0.1:{port}/v1"))
    asyncio.run(warm(backend))  # what is loaded once is no part of a request
    asked = programs(shape)
    if shape.window:
        asked = iter(list(asked))  # an audit has its documents in memory, too
    lost, progress = 0, Progress()
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "journal.jsonl", "benchmark", backend.identity)
        limits = Limits(shape.workers, max_wait=600)
        before, started = cpu_seconds(), time.perf_counter()
        for _, result in dispatch(asked, backend, journal, Sampling(), limits, progress):
            lost += isinstance(result, Failure)
        found = {"wall": time.perf_counter() - started, "cpu": cpu_seconds() - before}
        answers = len(journal)
        journal.close()
    return found | {"lost": lost, "answers": answers, "calls": progress.calls, "peak": _peak()}


async def warm(backend: Any) -> None:
    await backend.open()
    await backend.look()
    await backend.close()


def programs(shape: Shape) -> Iterator[Any]:
    """The programs of a shape, made one by one."""
    from llmfair.asking.dispatch import Program
    from llmfair.nouns import Attribute, Candidates, Document, Probe, Query, Side
    from llmfair.prompts import load_prompt
    from llmfair.rankers.listwise import ListwiseRanker
    from llmfair.rankers.pairwise import PairwiseRanker
    from llmfair.rankers.strategies import Windows

    words = {Side.PROTECTED: "female", Side.UNPROTECTED: "male"}
    attribute = Attribute("gender", ("female",), ("male",), words)
    ranker: Any = PairwiseRanker(load_prompt("pairwise"))
    if shape.window:
        ranker = ListwiseRanker(
            load_prompt("listwise"), attribute, Windows(shape.window, shape.step, passes=1),
            input="text" if shape.words > LONG else "title", words=shape.words,
        )  # fmt: skip
    chance = Random(0)
    titles, texts = (
        [" ".join(chance.choices(WORDS, k=words)) for _ in range(500)] for words in (4, shape.words)
    )

    def program(number: int) -> Program:
        query = Query(f"q{number}", f"Query {number}")
        documents = tuple(
            Document(
                f"d{number}-{place}",
                f"Item {number}-{place} {titles[(number + place) % 500]}",
                texts[(number + place) % 500] if shape.words > LONG else "",
                {"gender": (("female", "male")[place % 2],)},
            )
            for place in range(shape.items)
        )
        candidates = Candidates(query, documents, {})
        probe = Probe(f"q{number}", candidates, "neutral", "neutral")
        return Program(probe.probe_id, lambda: ranker.steps(probe))

    return (program(number) for number in range(shape.chains))


def bare(shape: Shape, port: int) -> dict[str, float]:
    """Chains of posts that read their replies as JSON and do nothing else."""
    import aiohttp

    from llmfair.asking.journal import chat_sampling
    from llmfair.backends.base import BackendOptions
    from llmfair.backends.openai import OpenAI
    from llmfair.nouns import Request, Sampling

    chats = next(programs(replace(shape, chains=1))).start().send(None)
    backend = OpenAI("loopback", BackendOptions(base_url=f"http://127.0.0.1:{port}/v1"))
    bodies = [backend.body(Request(chat, chat_sampling(chat, Sampling()), "key", "probe")) for chat in chats]

    async def run() -> None:
        url, places = f"http://127.0.0.1:{port}/v1/chat/completions", asyncio.Semaphore(shape.workers)
        headers = {"Content-Type": "application/json"}
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=headers) as session:

            async def chain(number: int) -> None:
                async with places:
                    for window in range(shape.length):
                        for body in bodies:
                            own = body[:-1] + b',"user":"%d-%d"}' % (number, window)
                            async with session.post(url, data=own) as response:
                                json.loads(await response.read())

            await asyncio.gather(*(chain(number) for number in range(shape.chains)))

    before, started = cpu_seconds(), time.perf_counter()
    asyncio.run(run())
    return {"wall": time.perf_counter() - started, "cpu": cpu_seconds() - before, "peak": _peak()}


def package(shape: Shape, port: int) -> dict[str, float]:
    """The same chains on the openai package, as its own documentation asks one question after the other."""
    from openai import AsyncOpenAI

    chats = next(programs(replace(shape, chains=1))).start().send(None)
    messages: Any = [message._asdict() for message in chats[0].messages]

    async def run() -> None:
        async with AsyncOpenAI(
            api_key="none", base_url=f"http://127.0.0.1:{port}/v1", max_retries=0
        ) as connection:

            async def chain(number: int) -> None:
                for window in range(shape.length):
                    await connection.chat.completions.create(
                        model="loopback", messages=messages, temperature=0, user=f"{number}-{window}"
                    )

            await asyncio.gather(*(chain(number) for number in range(shape.chains)))

    before, started = cpu_seconds(), time.perf_counter()
    asyncio.run(run())
    return {"wall": time.perf_counter() - started, "cpu": cpu_seconds() - before, "peak": _peak()}


ROLES = {"client": client, "bare": bare, "package": package}


def _pace() -> float:
    """How many times as long as on a quiet core a fixed loop takes this process now, by CPU time."""
    started, total = time.thread_time(), 0
    for number in range(1_000_000):
        total += number
    return (time.thread_time() - started) / QUIET_SECONDS


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _peak() -> float:
    """Peak resident memory of this process, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@contextmanager
def server(told: Mapping[str, object]) -> Iterator[int]:
    """A server of its own, told these arguments; yields its port."""
    command = [sys.executable, "-m", "benchmarks.loopback", *arguments_of(told)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        yield int(process.stdout.readline())
        process.stdin.close()


def run(role: str, shape: Shape) -> tuple[dict[str, float], dict[str, Any]]:
    """What a role measured of itself in a process of its own, and what the server counted."""
    with server(shape.server) as port:
        command = [sys.executable, "-m", "benchmarks.dispatch", role, json.dumps(asdict(shape)), str(port)]
        environment = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as reply:
            counted = json.load(reply)
    return json.loads(done.stdout), counted


def compare(shape: Shape, plain: Shape | None = None) -> float:
    """Runs and prints one shape beside the bare chain without faults; returns wall time / critical path."""
    without, _ = run("bare", plain or shape)
    found, counted = run("client", shape)
    ratio = found["wall"] / shape.critical_path
    requests = shape.requests
    print(
        f"{shape.name:30} {requests:8,} {shape.critical_path:9.2f} {found['wall']:8.2f} {ratio:7.2f}"
        f" {without['wall'] / shape.critical_path:7.2f} {1000 * found['cpu'] / found['calls']:8.3f}"
        f" {1000 * without['cpu'] / requests:8.3f} {1000 * found['cpu'] / found['calls'] / found['pace']:8.3f}"
        f" {1000 * without['cpu'] / requests / without['pace']:8.3f} {found['peak']:8.0f} {without['peak']:6.0f}",
        flush=True,
    )
    wrong = found["lost"] or counted["twice"] or not found["answers"] == counted["answered"] == requests
    if wrong:
        raise SystemExit(f"lost or asked twice: {found}, {counted}")
    return ratio


def cpu(shape: Shape, runs: int = 5) -> None:
    """CPU milliseconds a request of every role, in turns, so that what slows the machine slows them alike."""
    found: dict[str, list[float]] = {role: [] for role in ROLES}
    for _ in range(runs):
        for role in ROLES:
            found[role].append(1000 * run(role, shape)[0]["cpu"] / shape.requests)
    here, bare, package = (statistics.median(found[role]) for role in ("client", "bare", "package"))
    print(
        f"{shape.name:30} CPU ms a request: {here:.3f} here, {bare:.3f} bare ({here / bare:.2f} times that), "
        f"{package:.3f} on the openai package (1/{package / here:.1f} of that); medians of {runs}",
        flush=True,
    )


def quota(shape: Shape) -> None:
    """How much of a quota is used, and how many requests are refused, after the first minute."""
    found, counted = run("client", shape)
    after = [row for row in counted["seconds"] if row[0] >= 60]
    last = max(row[0] for row in after) - 5  # the end has fewer chains than the quota needs
    accepted = sum(row[1] for row in after if row[0] <= last)
    refused = sum(row[2] for row in after if row[0] <= last)
    print(
        f"{shape.name:30} accepted {accepted / (last - 59) * 60 / shape.quota:.1%} of the quota, refused "
        f"{refused / (accepted + refused):.1%} of {accepted + refused:,} requests after the first minute; "
        f"{counted['statuses'].get('429', 0)} of {counted['requests']:,} in all, {found['lost']:.0f} lost",
        flush=True,
    )


def main() -> None:
    if sys.argv[1:] and sys.argv[1] in ROLES:
        shape = Shape(**json.loads(sys.argv[2]))
        before = _pace()
        found = ROLES[sys.argv[1]](shape, int(sys.argv[3]))
        print(json.dumps(found | {"pace": (before + _pace()) / 2}))
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dispatch", description=__doc__)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--quota", action="store_true")
    given = parser.parse_args()
    if given.cpu:
        cpu(B)
        return
    if given.quota:
        cases: dict[str, dict[str, Any]] = {
            "300 a minute, Retry-After": {},
            "300 a minute, silent": {"silent": True},
            "300 a minute, 2 s a call": {"latency": 2.0},
        }
        for name, changes in cases.items():
            quota(replace(QUOTA, name=name, **changes))
        return
    print(f"{'':39} {'critical':>9} {'wall':>8} {'ratio to path':>15} {'CPU ms a call':>17}", end="")
    print(f" {'at a quiet pace':>17} {'peak MB':>15}")
    print(f"{'shape':30} {'requests':>8} {'path s':>9} {'s':>8} {'here':>7} {'bare':>7}", end="")
    print(f" {'here':>8} {'bare':>8} {'here':>8} {'bare':>8} {'here':>8} {'bare':>6}", flush=True)
    if given.full:
        for shape in (FULL, PAIRS):
            compare(shape, replace(shape, rate_429=0.0, rate_500=0.0))
        return
    for once in (A, B):
        for shape in (once, replace(once, name=f"{once.name}, 100 ms", latency=2 * once.latency)):
            compare(shape)
            ratios = [
                compare(replace(shape, name=f"  5 % 429, 2 % 500, seed {seed}", seed=seed, **FAULTS), shape)
                for seed in range(5)
            ]
            print(f"  median with faults {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
