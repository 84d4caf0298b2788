"""Commands that take long enough to be stopped, how to stop them, and what must hold afterwards."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pty
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from llmfair.asking.journal import chat_sampling, read_rows
from llmfair.backends.base import BackendOptions
from llmfair.backends.openai import OpenAI
from llmfair.nouns import Chat, Expects, Labels, Message, Request, Sampling, Text
from llmfair.rankers.questions import Question
from tests.batch_server import BatchServer
from tests.cli.command import llmfair, ran, words_of
from tests.datasets.trec_sources import FileServer, downloads, large_2022, process_environment
from tests.folders import balanced, content, write, write_folder
from tests.rankers.asking import made

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
PAIRWISE_SORT = Audited(
    ("listwise", "--orders", "1", "--conditions", "neutral", "--no-repeat"),
    None,  # as many as the answers call for
    LISTWISE.same,
    strategy="pairwise-sort:k=5",
)
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


def digest(raw: bytes) -> str:
    """That of a body, as the server logs it."""
    return hashlib.sha256(raw).hexdigest()


@contextmanager
def running(log: Path, *arguments: str) -> Iterator[int]:
    """The port of a chat server in a process of its own, which it chose and says in its first line."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.servers", "--log", str(log), "--port", "0", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert server.stdout is not None
    try:
        yield int(server.stdout.readline().strip().removesuffix("/v1").rpartition(":")[2])
    finally:
        server.terminate()
        server.communicate(timeout=60)


def journalled(folder: Path, strategy: str = "windows") -> set[str]:
    """Digests of the requests whose answers the journals below a folder hold."""
    journals = [path for name in JOURNALS for path in folder.rglob(name)]
    question = made(strategy).question
    return {digest(_body_of(row, question)) for path in journals for row in read_rows(path) if "key" in row}


def _body_of(row: dict[str, Any], question: Question) -> bytes:
    messages = tuple(Message(role, text) for role, text in row["chat"])
    about = row["about"]
    of_task: dict[str, Expects] = {"rag": Text(), "refine": Text(), "support": Labels(("yes", "no"))}
    expects = of_task.get(about["task"]) or question.expects(len(about["doc_ids"]))
    chat = Chat(messages, expects, row["draw"])
    margins = question.margins != "none"
    sampling = Sampling(margins=margins, max_tokens=1 if question.margins == "needed" else 0)
    backend = OpenAI("any", BackendOptions(base_url="http://127.0.0.1:1/v1"))
    return backend.body(Request(chat, chat_sampling(chat, sampling), "key", "probe"))


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
    write(lists / "docs.jsonl", (json.dumps({**one, "text": one["title"]}) for one in documents))
    queries = [line.split("\t")[0] for line in (lists / "queries.tsv").read_text().splitlines()]
    write(lists / "answers.jsonl", (json.dumps({"query_id": name, "gold": "1"}) for name in queries))


ITS_TERMINAL = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
"""Makes stdin the terminal of a new session: it gets SIGHUP when the other end is closed."""
LEFT_OVER = ("*.tmp", "*.partial")


@dataclass(frozen=True)
class Ending:
    """A way to stop a command, by a signal or by closing its `terminal`, and the exit code it then has."""

    name: str
    number: signal.Signals
    code: int
    terminal: bool = False

    @property
    def orderly(self) -> bool:
        """Whether the command has a say in it."""
        return self.code > 0


TERM = Ending("TERM", signal.SIGTERM, 143)
INT = Ending("INT", signal.SIGINT, 130)
HUP = Ending("HUP", signal.SIGHUP, 129)
KILL = Ending("KILL", signal.SIGKILL, -signal.SIGKILL)
CLOSED = Ending("terminal closed", signal.SIGHUP, 129, terminal=True)
ENDINGS = (TERM, INT, HUP, KILL, CLOSED)


class Watch:
    """Whom a command asks, what it is told to find them, and what it may not ask again."""

    words: Sequence[str] = ()
    environment: Mapping[str, str] = {}

    def before(self, folder: Path) -> None:
        """Notes what is answered before a command begins."""

    def after(self, folder: Path, orderly: bool) -> None:
        """Asserts that it was not asked again, and that what was asked was kept where the command ended `orderly`."""

    def through(self, folder: Path) -> None:
        """Asserts what a command has that came to its end."""

    def answers(self, folder: Path) -> int:
        """How many answers are on disk."""
        return 0


@dataclass(frozen=True)
class Long:
    """A command that takes a while: its words, what it reads, who is asked, and the files that must be equal.

    `same`: patterns below its folder; what it `prints` must be equal, too. It is stopped once it has written up to `step` bytes more below `grows`, and up
    to `seconds` later.
    """

    words: tuple[str, ...]
    same: tuple[str, ...]
    prepare: Callable[[Path], object] = lambda folder: None
    watched: Callable[[Path], AbstractContextManager[Watch]] = lambda scratch: contextlib.nullcontext(Watch())
    start: tuple[str, ...] = ("-m", "llmfair")
    prints: bool = True
    grows: str = "**/*.jsonl"
    step: int = 30_000
    seconds: float = 0.3

    def written(self, folder: Path) -> int:
        """Bytes of what grows while it runs."""
        total = 0
        for path in folder.glob(self.grows):
            with contextlib.suppress(OSError):  # renamed meanwhile
                total += path.stat().st_size
        return total


@dataclass
class Started:
    """A command as a process, on a terminal of its own or with pipes."""

    long: Long
    folder: Path
    watch: Watch
    terminal: bool = False
    _master: int = field(init=False, default=-1)
    _process: subprocess.Popen[Any] = field(init=False)

    def __post_init__(self) -> None:
        words = [sys.executable, *self.long.start, *self.long.words, *self.watch.words]
        environment = {"PYTHONPATH": str(ROOT), **os.environ, **self.watch.environment}
        if not self.terminal:
            self._process = subprocess.Popen(
                words, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            return
        self._master, slave = pty.openpty()
        words = [sys.executable, "-c", ITS_TERMINAL, *words]
        self._process = subprocess.Popen(
            words, cwd=self.folder, env=environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        os.set_blocking(self._master, False)

    def handles_signals(self) -> bool:
        """Whether it has said what is to become of SIGHUP: before that no command has begun."""
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text()
        except OSError:
            return False
        caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")), "0")
        return bool(int(caught, 16) >> (signal.SIGHUP - 1) & 1)

    def runs(self) -> bool:
        if self._master >= 0:
            with contextlib.suppress(OSError):
                os.read(self._master, 1 << 16)  # or it would wait for a reader
        return self._process.poll() is None

    def wait_for_a_moment(self, moments: random.Random) -> None:
        """Anywhere in a run, however fast the machine is; some are before the first answer, most after a few."""
        while self.runs() and not self.handles_signals():
            time.sleep(0.002)
        early = moments.random() < 0.2
        enough = self.long.written(self.folder) + (0 if early else moments.uniform(0, self.long.step))
        while self.runs() and self.long.step and not early and self.long.written(self.folder) <= enough:
            time.sleep(0.002)
        until = time.monotonic() + moments.uniform(0, self.long.seconds)
        while self.runs() and time.monotonic() < until:
            time.sleep(0.002)

    def stop(self, ending: Ending) -> None:
        if self.terminal:
            os.close(self._master)
            self._master = -1
        else:
            self._process.send_signal(ending.number)

    def end(self) -> tuple[int, str, str]:
        """Its exit code and what it said."""
        try:
            out, err = self._process.communicate(timeout=100)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        return self._process.returncode, out or "", err or ""


def stop_again_and_again(long: Long, endings: Sequence[Ending], seed: int, scratch: Path) -> list[int]:
    """Stops a command in these ways, going on each time, and anew where it is through; returns the answers at each stop.

    Asserts the exit codes, that no answered question is asked again, that an orderly end leaves nothing half-written,
    and that everything equals an undisturbed run, byte for byte.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    moments, left, answers, disturbed = random.Random(seed), [*endings], list[int](), list[Path]()
    moments.shuffle(left)
    outs: list[str] = []
    with long.watched(scratch) as watch:
        while left:
            folder = new_folder(long, scratch / f"run{len(disturbed)}")
            disturbed.append(folder)
            assert len(disturbed) <= 3 * len(endings), "it is always through before it is stopped"
            while left and stopped(long, watch, folder, left[0], moments):
                left.pop(0)
                answers.append(watch.answers(folder))
            outs += [through(long, watch, folder), through(long, watch, folder)]
        calm = new_folder(long, scratch / "calm")
        outs.append(through(long, watch, calm))
    assert not long.prints or set(outs) == {outs[-1]}
    for folder in disturbed:
        same_files(long, folder, calm)
        shutil.rmtree(folder)
    return answers


def same_files(long: Long, folder: Path, calm: Path) -> None:
    """Asserts that what a command wrote equals what it writes undisturbed, and that nothing half-written is left."""
    names = sorted({str(p.relative_to(calm)) for one in long.same for p in calm.glob(one) if p.is_file()})
    assert names or not long.same
    for name in names:
        assert content(folder / name) == content(calm / name), name
    assert not left_over(folder)


def new_folder(long: Long, folder: Path) -> Path:
    """A folder with what the command reads."""
    folder.mkdir()
    long.prepare(folder)
    return folder


def stopped(long: Long, watch: Watch, folder: Path, ending: Ending, moments: random.Random) -> bool:
    """Whether the command was stopped before it was through."""
    watch.before(folder)
    started = Started(long, folder, watch, ending.terminal)
    started.wait_for_a_moment(moments)
    started.stop(ending)
    code, _, err = started.end()
    watch.after(folder, ending.orderly and code == ending.code)
    if ending.orderly and code == -ending.number:
        return False  # it was through: Python lets go of signals when it takes itself down
    assert code in (0, ending.code), (ending.name, code, err)
    assert "Traceback" not in err and "Exception ignored" not in err, (ending.name, err)
    if code == ending.code and ending.orderly:
        assert ending.terminal or "Stopped" in err, (ending.name, err)
        assert not left_over(folder), ending.name
    return code != 0


def through(long: Long, watch: Watch, folder: Path) -> str:
    """Lets the command come to its end; returns what it prints."""
    watch.before(folder)
    if long.start == Long.start and not watch.environment:  # no process is needed where none is stopped
        with contextlib.chdir(folder):
            found = llmfair(*long.words, *watch.words)
        code, out, err = found.code, found.out, found.err
    else:
        code, out, err = Started(long, folder, watch).end()
    assert code == 0, err
    watch.after(folder, orderly=True)
    watch.through(folder)
    return out


def left_over(folder: Path) -> list[str]:
    """Files that were not written to their end; the folder of an index is gone on with."""
    return [str(path) for pattern in LEFT_OVER for path in folder.rglob(pattern) if path.is_file()]


# Audits of a server


class Asked(Watch):
    """A chat server that logs what reaches it."""

    def __init__(self, audited: Audited, port: int, log: Path) -> None:
        self.audited, self.log = audited, log
        self.words = ("--base-url", f"http://127.0.0.1:{port}/v1")

    def before(self, folder: Path) -> None:
        self.known, self.sent = self.kept(folder), len(asked(self.log))

    def after(self, folder: Path, orderly: bool) -> None:
        time.sleep(0.1)
        assert not self.known & set(asked(self.log)[self.sent :]), "an answered chat was asked again"
        kept = self.kept(folder)
        if orderly:
            assert answered(self.log, self.sent) <= kept, "what was asked was paid for, and kept"

    def through(self, folder: Path) -> None:
        if self.audited.answers is not None:
            assert self.answers(folder) == self.audited.answers

    def kept(self, folder: Path) -> set[str]:
        return journalled(folder, self.audited.strategy)

    def answers(self, folder: Path) -> int:
        return len(self.kept(folder))


def audit(audited: Audited, output: str = "run", below: str = "run/") -> Long:
    """An audit's command; the files that must be equal lie `below` its folder."""

    @contextmanager
    def watched(scratch: Path) -> Iterator[Watch]:
        log = scratch / "requests.jsonl"
        rates = [f"--{name.replace('_', '-')}={rate}" for name, rate in FAULTS.items()]
        with running(log, "--latency-ms", "20", *rates) as port:
            yield Asked(audited, port, log)

    strategy = () if audited.strategy == "windows" else ("--strategy", audited.strategy)
    words = (
        *audited.command, *strategy, "-d", audited.data, "-m", "openai:any", "-o", output, *"-j 8 --server-name test --max-invalid 1 --no-cache".split()
    )  # fmt: skip
    same = tuple(f"{below}{name}" for name in audited.same)
    return Long(words, same, partial(_lists, audited), watched, grows="**/journal.jsonl")


def _lists(audited: Audited, folder: Path) -> None:
    write_folder(folder / "lists", balanced(10, 20, 20))
    if audited.command[0] == "rag":
        give_answers(folder / "lists")


STUDY = Audited(
    (
        "study", "windows", "--settings", "5/2,10/5", "--orders", "1", "--conditions", "neutral", "--runs-dir", "runs",
    ),
    None,
    ("study/study.json", "study/study.csv", "runs/*/results.json", "runs/*/metrics.csv", "runs/*/candidates.jsonl"),
)  # fmt: skip


def stoppable(code: str) -> str:
    """A program that ends as `python -m llmfair` does, wherever it is stopped."""
    return f"from llmfair.beginning import carry_out\ncarry_out(lambda: exec({code!r}, {{}}))"


QUICK = stoppable(
    "import llmfair.asking.batch as b; b.FIRST_POLL = b.LONGEST_POLL = 0.02; "
    "b.SETTLE_SECONDS = 0.02; b.MOST_LINES = 40; from llmfair.cli.app import main; main()"
)


class Submitted(Watch):
    """A server of batches: every question is submitted once."""

    def __init__(self, server: BatchServer) -> None:
        self.server = server
        self.words = ("--base-url", server.base_url)

    def before(self, folder: Path) -> None:
        if not (folder / "run").exists():
            self.server.submitted.clear()

    def after(self, folder: Path, orderly: bool) -> None:
        assert set(self.server.submitted.values()) <= {1}, "a question was submitted again"

    def answers(self, folder: Path) -> int:
        path = folder / "run" / "journal.jsonl"
        return sum("key" in row for row in read_rows(path)) if path.exists() else 0


@contextmanager
def _batches(scratch: Path) -> Iterator[Watch]:
    with BatchServer(looks=20) as server:
        yield Submitted(server)


BATCHED = (
    "pairwise", "-d", "lists", "--pairs", "10", "--conditions", "relevant", "-m", "openai:any",
    "--server-name", "test", "--max-invalid", "1", "--no-cache",
)  # fmt: skip
OF_BATCHED = ("results.json", "metrics.csv", "per_query.csv", "verdicts.csv", "failures.csv")
BATCH = Long(
    (*BATCHED, "--batch", "-o", "run"),
    tuple(f"run/{name}" for name in OF_BATCHED),
    lambda folder: write_folder(folder / "lists", balanced(3, 20, 20)),
    _batches,
    start=("-c", QUICK),
    step=0,  # its answers come all at once, at the end
    seconds=3.0,
)  # fmt: skip


class Downloaded(Watch):
    """A server of files: each is asked for from where the part that is here ends."""

    def __init__(self, server: FileServer, scratch: Path) -> None:
        self.server = server
        self.environment = process_environment(scratch / "pointer", downloads(server)) | {
            "LLMFAIR_CACHE_DIR": "cache",
            "IR_DATASETS_HOME": "cache/ir_datasets",
        }

    def before(self, folder: Path) -> None:
        self.seen = len(self.server.requests)
        self.here = {path.name: path.stat().st_size for path in folder.glob("cache/downloads/**/*.part")}
        record = folder / "cache/datasets/trec-fair-2022-train/fetch.json"
        self.done = {*json.loads(record.read_text())} if record.exists() else set[str]()

    def after(self, folder: Path, orderly: bool) -> None:
        steps = {"2022/train/topics": "topics", "2022/metadata": "metadata", "2022/docs": "pages"}
        for request in self.server.requests[self.seen :]:
            assert steps.get(request.name) not in self.done, "what is whole was fetched again"
        starts = [r.start for r in self.server.requests[self.seen :] if r.name == "2022/docs"]
        held = [size for name, size in self.here.items() if "corpus" in name or "docs" in name]
        assert not (starts and held) or starts[0] == held[0], (starts, self.here)

    def answers(self, folder: Path) -> int:
        return sum(path.stat().st_size for path in folder.glob("cache/downloads/**/*.part"))


@contextmanager
def _files(scratch: Path) -> Iterator[Watch]:
    with FileServer(large_2022(1500, seed=5), pause=0.004).running() as server:
        yield Downloaded(server, scratch)


FETCH = Long(
    ("datasets", "fetch", "trec-fair/2022", "--yes", "--index", "full"),
    tuple(f"cache/datasets/trec-fair-2022-train/{pattern}" for pattern in ("*.json", "*.db", "index-full/*.db")),
    watched=_files,
    prints=False,  # what it did
    grows="cache/**/*.part",
    step=500_000,
)  # fmt: skip


NOTING = stoppable(
    "from llmfair.tuning.words import TrainingProgress as p; stage = p.stage\n"
    "def noted(self, name, *rest):\n"
    "    open('stages', 'a').write(name + '\\n')\n"
    "    return stage(self, name, *rest)\n"
    "p.stage = noted\n"
    "from llmfair.cli.app import main; main()"
)
"""The command, which notes what it begins."""


class Trained(Watch):
    """The base model's answers, which are asked once."""

    def before(self, folder: Path) -> None:
        self.answered = (folder / "out" / "pairs.jsonl").exists()
        self.begun = self._asking(folder)

    def after(self, folder: Path, orderly: bool) -> None:
        assert not self.answered or self._asking(folder) == self.begun, "the base model was asked again"

    def _asking(self, folder: Path) -> int:
        path = folder / "stages"
        return path.read_text().count("Asking ") if path.exists() else 0

    def through(self, folder: Path) -> None:
        assert self._asking(folder) > 0


@contextmanager
def _model(scratch: Path) -> Iterator[Watch]:
    from tests.tuning.biased import biased_model, marked_data

    biased_model(scratch / "model", steps=120)
    marked_data(scratch / "data", 12)
    yield Trained()


TRAINING = {
    "--pairs": "6", "--pairs-per-query": "40", "--group-size": "32", "--prompts-per-step": "64",
    "--max-prompts": "256", "--eval-every": "128", "--learning-rate": "1e-2", "--prompt": "wikiproject",
    "--train-share": "0.8",
}  # fmt: skip
FINETUNE = Long(
    ("finetune-lora", "-d", "../data", "-m", "../model", *words_of(TRAINING), "-o", "out"),
    ("out/adapter_model.safetensors", "out/metrics.csv", "out/pairs.jsonl", "out/split.json", "out/test-queries.txt"),
    watched=_model,
    start=("-c", NOTING),
    grows="out/*.jsonl",
    step=1,
    seconds=2.0,
)  # fmt: skip


@contextmanager
def run_to_draw(scratch: Path) -> Iterator[Watch]:
    """A complete run beside the folder of the command."""
    ran("listwise", "-n", "4", "--orders", "1", "--no-report", "-o", scratch / "drawn", "-q")
    yield Watch()


def on_a_copy(words: tuple[str, ...], same: tuple[str, ...], grows: str) -> Long:
    """A command that writes into the folder of a run."""

    def copy(folder: Path) -> None:
        shutil.copytree(folder.parent / "drawn", folder / "run")

    return Long(words, same, copy, run_to_draw, grows=grows, step=0, seconds=0.6)


REPORT = on_a_copy(("report", "run"), ("run/report.html",), "run/report.html")
MITIGATE = on_a_copy(
    ("mitigate", "run", "--free", "--no-report"),
    ("run/mitigation/**/*.csv", "run/mitigation/**/*.run", "run/mitigation/results.json"),
    "run/mitigation/**/*",
)
CALIBRATE = Long(("calibrate", "listwise", "--runs", "60", "--injected", "-0.5"), (), step=0, seconds=3.0)

COMMANDS = {
    "listwise": audit(LISTWISE),
    "pairwise": audit(PAIRWISE),
    "sequential": audit(SEQUENTIAL),
    "rag": audit(RAG),
    "refine": audit(REFINE),
    "study": audit(STUDY, output="study", below=""),
    "calibrate": CALIBRATE,
    "fetch": FETCH,
    "finetune": FINETUNE,
    "batch": BATCH,
    "report": REPORT,
    "mitigate": MITIGATE,
    "pairwise-sort": audit(PAIRWISE_SORT),
}
