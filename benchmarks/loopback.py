"""A server of chat completions that costs little itself: `python -m benchmarks.loopback --latency 0.05`.

Loopback only; prints its port, answers POST with an order of as many passages as `max_tokens` has room for (without it:
as are numbered), or of the labels that it is constrained to with their log-probabilities, and GET with what it counted.
Faults are drawn anew for each attempt; a 429 comes at once, a 500 after the delay. `--quota N`:
N requests a minute, in a bucket as deep, refused beyond with the time until the next (`--silent`: without it).
`--slots N`: works on N at a time, the others wait, as before a GPU. Ends when stdin does.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import math
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
ROOM = re.compile(rb'"max_tokens":(\d+)')
NUMBER = re.compile(rb"\[(\d{1,3})\]")
CHOICE = re.compile(rb'"choice":(\[[^\]]*\])')
MODELS = b'{"object":"list","data":[{"id":"loopback","object":"model"}]}'
SLOW_DOWN = b'{"error":{"message":"slow down","code":"rate_limit_exceeded"}}'


@dataclass(frozen=True)
class Given:
    """What the server was told: seconds, shares of requests, requests a minute."""

    latency: float = 0.0
    rate_429: float = 0.0
    rate_500: float = 0.0
    seed: int = 0
    quota: float = 0.0
    silent: bool = False
    slots: int = 0
    port: int = 0


class Counts:
    """What arrived and what it got, by body and by second."""

    def __init__(self) -> None:
        self.started = self.last = time.monotonic()
        self.requests = self.in_flight = self.peak = 0
        self.seen: Counter[bytes] = Counter()
        self.answered: Counter[bytes] = Counter()
        self.statuses: Counter[int] = Counter()
        self.seconds: dict[int, Counter[int]] = {}
        self.free: list[float] = []  # when each slot will be, as the loop has it

    def note(self, status: int) -> None:
        self.statuses[status] += 1
        self.last = time.monotonic()
        second = int(self.last - self.started)
        self.seconds.setdefault(second, Counter())[status] += 1

    def as_json(self) -> bytes:
        """Totals; `seconds`: accepted and refused in each second since the first request.

        `first` and `last`: when a request first came, and an answer last left, by the machine's monotonic clock.
        """
        return json.dumps(
            {
                "requests": self.requests,
                "peak": self.peak,
                "first": self.started,
                "last": self.last,
                "answered": len(self.answered),
                "twice": sum(count > 1 for count in self.answered.values()),
                "statuses": self.statuses,
                "seconds": [[at, by[200], by[429]] for at, by in sorted(self.seconds.items())],
            }
        ).encode()


class Quota:
    """A bucket of one minute's requests, refilled continuously."""

    def __init__(self, per_minute: float) -> None:
        self.depth, self.rate = per_minute, per_minute / 60
        self.left, self.at = per_minute, time.monotonic()

    def wait(self) -> float:
        """Takes one and returns 0, or takes nothing and returns the seconds until there is one."""
        now = time.monotonic()
        self.left, self.at = min(self.depth, self.left + (now - self.at) * self.rate), now
        if self.left >= 1:
            self.left -= 1
            return 0.0
        return (1 - self.left) / self.rate


class Connection(asyncio.Protocol):
    """One client's connection, without pipelining."""

    def __init__(self, given: Given, counts: Counts, quota: Quota | None) -> None:
        self.given, self.counts, self.quota = given, counts, quota
        self.loop = asyncio.get_running_loop()
        self.pending = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.pending += data
        head, blank, body = self.pending.partition(b"\r\n\r\n")
        if not blank:
            return
        length = LENGTH.search(head)
        if length is not None and len(body) < int(length[1]):
            return
        self.pending = b""
        if head.startswith(b"GET"):
            self._send(200, MODELS if b"/models " in head else self.counts.as_json())
        else:
            self._answer(body)

    def _answer(self, body: bytes) -> None:
        counts, given = self.counts, self.given
        if not counts.requests:
            counts.started = time.monotonic()
        counts.requests += 1
        counts.in_flight += 1
        counts.peak = max(counts.peak, counts.in_flight)
        digest = blake2b(body, digest_size=16).digest()
        counts.seen[digest] += 1
        draw = self._draw(digest) if given.rate_429 or given.rate_500 else 1.0
        if self.quota is not None and (wait := self.quota.wait()):
            self._finish(
                429, SLOW_DOWN, "" if given.silent else f"Retry-After-Ms: {math.ceil(wait * 1000)}\r\n"
            )
        elif draw < given.rate_429:
            self._finish(429, SLOW_DOWN)
        elif draw < given.rate_429 + given.rate_500:
            self._later(500, b'{"error":{"message":"try again in 3s"}}')
        else:
            counts.answered[digest] += 1
            self._later(200, _completion(body, digest))

    def _draw(self, digest: bytes) -> float:
        attempt = b"%d %d" % (self.given.seed, self.counts.seen[digest])
        return int.from_bytes(blake2b(digest, key=attempt, digest_size=6).digest()) / 2**48

    def _later(self, status: int, body: bytes) -> None:
        at, free = self.loop.time(), self.counts.free
        if len(free) < self.given.slots:
            heapq.heappush(free, at + self.given.latency)
        elif free:
            at = max(at, free[0])
            heapq.heapreplace(free, at + self.given.latency)
        self.loop.call_at(at + self.given.latency, self._finish, status, body)

    def _finish(self, status: int, body: bytes, headers: str = "") -> None:
        self.counts.in_flight -= 1
        self.counts.note(status)
        self._send(status, body, headers)

    def _send(self, status: int, body: bytes, headers: str = "") -> None:
        if not self.transport.is_closing():
            head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{headers}Content-Length: {len(body)}"
            self.transport.write(head.encode() + b"\r\n\r\n" + body)


def _completion(body: bytes, digest: bytes) -> bytes:
    if choice := CHOICE.search(body):
        shown = json.loads(choice[1])
        labels = [shown[place] for place in _order(len(shown), digest)]
        alternatives = [{"token": label, "logprob": -0.5 - k} for k, label in enumerate(labels)]
        logprobs = {"content": [{**alternatives[0], "top_logprobs": alternatives}]}
        return _document(body, digest, labels[0], 1, logprobs)
    room = ROOM.search(body)
    n = max(2, *([(int(room[1]) - 16) // 8] if room else map(int, NUMBER.findall(body))))
    order = _order(n, digest)
    return _document(body, digest, " > ".join(f"[{place + 1}]" for place in order), 4 * n, None)


def _order(n: int, digest: bytes) -> list[int]:
    order = list(range(n))
    for place, byte in enumerate(digest[: n - 1]):  # enough chance for a benchmark
        other = place + byte % (n - place)
        order[place], order[other] = order[other], order[place]
    return order


def _document(body: bytes, digest: bytes, text: str, tokens: int, logprobs: object) -> bytes:
    document = {
        "id": digest.hex(),
        "object": "chat.completion",
        "created": 0,
        "model": "loopback",
        "system_fingerprint": "fp_loopback",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text, "refusal": None},
                "finish_reason": "stop",
                "logprobs": logprobs,
            }
        ],
        "usage": {"prompt_tokens": len(body) // 4, "completion_tokens": tokens, "total_tokens": 0},
    }
    return json.dumps(document).encode()


async def serve(given: Given) -> None:
    loop, counts = asyncio.get_running_loop(), Counts()
    quota = Quota(given.quota) if given.quota else None
    server = await loop.create_server(
        lambda: Connection(given, counts, quota), "127.0.0.1", given.port, backlog=2048
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.buffer.read)


def arguments_of(given: Mapping[str, object]) -> list[str]:
    """The command line that tells a server of its own the same."""
    words = []
    for name, value in given.items():
        if value is not False:
            words += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    return words


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loopback", description=__doc__)
    for name in ("latency", "rate-429", "rate-500", "quota"):
        parser.add_argument(f"--{name}", type=float, default=0.0)
    for name in ("seed", "slots", "port"):
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--silent", action="store_true")
    asyncio.run(serve(Given(**vars(parser.parse_args(arguments)))))
    os._exit(0)


if __name__ == "__main__":
    main()
