"""Runs killed at random moments against a server that outlives them, and what must hold afterwards."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmfair.asking.journal import chat_sampling, read_rows
from llmfair.backends.chat_completions import encode_body
from llmfair.nouns import Chat, Expects, Labels, Message, Sampling, Text
from llmfair.rankers.questions import Question
from tests.cli.command import llmfair, process
from tests.folders import balanced, write_folder
from tests.rankers.asking import made
from tests.shared import SHARED, mockllm

ROOT = Path(__file__).resolve().parents[2]
JOURNALS = ("journal.jsonl", "attribution.jsonl")
FAULTS = {"rate_malformed": 0.05, "rate_429": 0.03, "rate_500": 0.02, "rate_reset": 0.01}


@dataclass(frozen=True)
class Audited:
    """An audit of the folder `lists`, or of other `data`: its command, how many answers it needs, and the files that must be equal.

    `answers` None: a sequential audit, whose answers past its stop depend on what was in flight. `strategy`: how lists
    are ordered.
    """

    command: tuple[str, ...]
    answers: int | None
    same: tuple[str, ...]
    data: str = "lists"
    strategy: str = "windows"


LISTWISE = Audited(
    tuple("listwise --window 5 --step 2 --passes 1 --orders 1 --conditions neutral --no-repeat".split()),
    190,  # 10 queries × 40 items at 5/2, one pass, one condition, one order
    (
        "results.json", "metrics.csv", "per_query.csv", "candidates.jsonl", "qrels.txt", "groups.tsv",
        "failures.csv", "texts.jsonl", "rankings/neutral.run",
    ),
)  # fmt: skip
STRATEGIES = {
    name: Audited(
        ("listwise", "--orders", "1", "--conditions", "neutral", "--no-repeat", *flags), answers, LISTWISE.same,
        strategy=name,
    )
    for name, flags, answers in (
        ("pointwise", (), 400),  # 10 queries × 40 items
        ("setwise:k=5", (), None),  # as many as the answers call for
        ("pairwise-sort:k=5", (), None),
        ("first", ("--window", "5", "--step", "2", "--passes", "1"), 190),
        ("tournament:group=10,best=5", (), None),  # small groups of two rounds may be the same
    )
}  # fmt: skip
PAIRWISE = Audited(
    ("pairwise", "--pairs", "10", "--conditions", "relevant"),
    220,  # 10 queries × 10 pairs and one of them twice, both orders
    ("results.json", "metrics.csv", "per_query.csv", "verdicts.csv", "failures.csv", "texts.jsonl"),
)


SEQUENTIAL = Audited(
    ("pairwise", "--sequential", "--conditions", "relevant", "--band", "0.5..2", "--max-pairs", "400"),
    None,
    PAIRWISE.same,
)

PARTITION = Audited(
    ("listwise", "--design", "partition", "--window", "5", "--orders", "2", "--conditions", "neutral"),
    160,  # 10 queries × 40 items in eights, two orders
    ("results.json", "metrics.csv", "per_query.csv", "failures.csv", "texts.jsonl"),
)

RAG = Audited(
    ("rag", "-n", "4", "--alpha", "1", "--samples", "8", "--utility", "contains"),
    None,  # as many as labels call for
    (
        "results.json", "metrics.csv", "per_query.csv", "outputs.csv", "gains.tsv", "scores.csv", "qrels.txt",
        "failures.csv", "texts.jsonl", "rankings/bm25.run", "samples/bm25-1.tsv", "samples/gold.tsv",
    ),
)  # fmt: skip

JUDGED = Audited(
    tuple("rag -n 3 --alpha 1 --samples 4 --utility contains --attribution openai:any".split()),
    None,
    RAG.same,
)

REFINE = Audited(
    ("refine", "-a", "location"),
    None,  # as many as there are rounds
    (
        "results.json", "metrics.csv", "per_query.csv", "trail.jsonl", "queries/original.tsv", "queries/refined.tsv",
        "qrels.txt", "groups.tsv", "failures.csv", "texts.jsonl", "rankings/bm25.run", "rankings/refined.run",
        "rankings/fair-qr.run",
    ),
    "refine-sample",
)  # fmt: skip


@dataclass(frozen=True)
class ServerKind:
    """A server that runs as a process of its own: its module, its digest of a body, where it is imported from."""

    module: str
    digest: Callable[[bytes], str]
    path: Path = ROOT
    reset: str = ""
    settle: float = 0.1

    def started(self, log: Path, *arguments: str) -> tuple[subprocess.Popen[str], int]:
        """The server's process and its port, which it chose and says in its first line."""
        server = subprocess.Popen(
            [sys.executable, "-m", self.module, "--log", str(log), "--port", "0", *arguments],
            cwd=self.path,
            env={**os.environ, "PYTHONPATH": str(self.path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert server.stdout is not None
        return server, int(server.stdout.readline().strip().removesuffix("/v1").rpartition(":")[2])

    @contextmanager
    def running(self, log: Path, *arguments: str) -> Iterator[int]:
        """The server's port, for as long as it runs."""
        server, port = self.started(log, *arguments)
        try:
            yield port
        finally:
            server.terminate()
            server.communicate(timeout=60)

    def forget(self, port: int) -> None:
        """Makes answers a function of the question alone again: attempts before a kill are forgotten."""
        if self.reset:
            post = urllib.request.Request(f"http://127.0.0.1:{port}{self.reset}", method="POST")
            with urllib.request.urlopen(post, timeout=60):
                pass


OWN = ServerKind("tests.servers", lambda raw: hashlib.sha256(raw).hexdigest())
MOCKLLM = ServerKind(
    "mockllm", lambda raw: _mock_digest(raw), path=SHARED / "mockllm", reset="/mock/reset", settle=0.4
)


def _mock_digest(raw: bytes) -> str:
    digest: bytes = mockllm("faults").body_digest(raw)
    return digest.hex()


def command(audited: Audited, port: int, output: Path) -> list[str]:
    return [
        *audited.command, *([] if audited.strategy == "windows" else ["--strategy", audited.strategy]),
        "-d", audited.data, "-m", "openai:any", "-o", str(output), *"-j 8 --base-url".split(), f"http://127.0.0.1:{port}/v1", "--server-name", "test", "--max-invalid", "1", "--no-cache",
    ]  # fmt: skip


def journalled(folder: Path, server: ServerKind, strategy: str = "windows") -> set[str]:
    """Digests of the requests whose answers the journals below a folder hold."""
    journals = [path for name in JOURNALS for path in folder.rglob(name)]
    question = made(strategy).question
    return {
        server.digest(_body_of(row, question)) for path in journals for row in read_rows(path) if "key" in row
    }


def _body_of(row: dict[str, Any], question: Question) -> bytes:
    messages = tuple(Message(role, text) for role, text in row["chat"])
    about = row["about"]
    of_task: dict[str, Expects] = {"rag": Text(), "refine": Text(), "support": Labels(("yes", "no"))}
    expects = of_task.get(about["task"]) or question.expects(len(about["doc_ids"]))
    chat = Chat(messages, expects, row["draw"])
    margins = question.margins != "none"
    sampling = Sampling(margins=margins, max_tokens=1 if question.margins == "needed" else 0)
    return encode_body("any", messages, chat_sampling(chat, sampling))


def asked(log: Path) -> list[str]:
    """Digests of all requests that reached the server, in order."""
    return [row["body"] for row in _logged(log)]


def answered(log: Path, since: int = 0) -> set[str]:
    """Digests of the requests that were answered, but for the first `since`."""
    return {row["body"] for row in _logged(log)[since:] if row["status"] == 200}


def _logged(log: Path) -> list[dict[str, Any]]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [row for row in map(json.loads, lines) if "body" in row]


def give_answers(lists: Path) -> None:
    """What a generator needs beside queries and titles: texts, and right answers."""
    documents = [json.loads(line) for line in (lists / "docs.jsonl").read_text().splitlines()]
    told = [json.dumps({**document, "text": document["title"]}) + "\n" for document in documents]
    (lists / "docs.jsonl").write_text("".join(told))
    queries = [line.split("\t")[0] for line in (lists / "queries.tsv").read_text().splitlines()]
    answers = [json.dumps({"query_id": query_id, "gold": "1"}) + "\n" for query_id in queries]
    (lists / "answers.jsonl").write_text("".join(answers))


def outage(folder: Path, seconds: float) -> None:
    """A server that goes away in the middle of a run, and comes back after a while.

    Asserts that the run comes to its end by itself, that nothing it has an answer to was asked again, and that
    everything equals a run without an outage, byte for byte.
    """
    write_folder(Path("lists"), balanced(10, 20, 20))
    folder.mkdir()
    log, disturbed, calm = folder / "requests.jsonl", folder / "a" / "run", folder / "b" / "run"
    with OWN.running(log, "--latency-ms", "20") as port:
        running = process(*command(LISTWISE, port, disturbed))
        while len(journalled(disturbed, OWN)) < 30:
            assert running.poll() is None
            time.sleep(0.02)
    time.sleep(seconds)
    known, before = journalled(disturbed, OWN), len(asked(log))
    with OWN.running(log, "--latency-ms", "20", "--port", str(port)):
        _, errors = running.communicate(timeout=60)
        assert running.returncode == 0, errors
        assert not known & set(asked(log)[before:]), "an answered chat was asked again"
        assert llmfair(*command(LISTWISE, port, calm)).code == 0
    for name in LISTWISE.same:
        assert (disturbed / name).read_bytes() == (calm / name).read_bytes(), name
