"""The commands that take long enough to be stopped, and how to count what each of them asks."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from llmfair.asking.journal import read_rows
from tests.batch_server import BatchServer
from tests.cli.command import ran
from tests.cli.kills import (
    FAULTS,
    LISTWISE,
    OWN,
    PAIRWISE,
    PARTITION,
    RAG,
    REFINE,
    SEQUENTIAL,
    STRATEGIES,
    Audited,
    ServerKind,
    answered,
    asked,
    give_answers,
    journalled,
)
from tests.cli.stops import Long, Watch
from tests.datasets.trec_sources import FileServer, downloads, large_2022, process_environment
from tests.folders import balanced, write_folder

# Audits of a server


class Asked(Watch):
    """A chat server that logs what reaches it."""

    def __init__(self, audited: Audited, server: ServerKind, port: int, log: Path) -> None:
        self.audited, self.server, self.port, self.log = audited, server, port, log
        self.words = ("--base-url", f"http://127.0.0.1:{port}/v1")

    def before(self, folder: Path) -> None:
        self.server.forget(self.port)
        self.known, self.sent = self.kept(folder), len(asked(self.log))

    def after(self, folder: Path, orderly: bool) -> None:
        time.sleep(self.server.settle)
        assert not self.known & set(asked(self.log)[self.sent :]), "an answered chat was asked again"
        kept = self.kept(folder)
        if orderly:
            assert answered(self.log, self.sent) <= kept, "what was asked was paid for, and kept"

    def through(self, folder: Path) -> None:
        if self.audited.answers is not None:
            assert self.answers(folder) == self.audited.answers

    def kept(self, folder: Path) -> set[str]:
        return journalled(folder, self.server, self.audited.strategy)

    def answers(self, folder: Path) -> int:
        return len(self.kept(folder))


def audit(audited: Audited, server: ServerKind = OWN, output: str = "run", below: str = "run/") -> Long:
    """An audit's command; the files that must be equal lie `below` its folder."""

    @contextmanager
    def watched(scratch: Path) -> Iterator[Watch]:
        log = scratch / "requests.jsonl"
        rates = [f"--{name.replace('_', '-')}={rate}" for name, rate in FAULTS.items()]
        with server.running(log, "--latency-ms", "20", *rates) as port:
            yield Asked(audited, server, port, log)

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
    "import llmfair.asking.batch as b, llmfair.backends.batch as c; b.FIRST_POLL = b.LONGEST_POLL = 0.02; "
    "c.SETTLE_SECONDS = c.FIRST_WAIT = 0.02; c.MOST_LINES = 40; from llmfair.cli.app import main; main()"
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


BATCH = Long(
    (
        "pairwise", "--batch", "-d", "lists", "--pairs", "10", "--conditions", "relevant", "-m", "openai:any",
        "-o", "run", "--server-name", "test", "--max-invalid", "1", "--no-cache",
    ),
    tuple(f"run/{name}" for name in ("results.json", "metrics.csv", "per_query.csv", "verdicts.csv", "failures.csv")),
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
        starts = [
            request.start for request in self.server.requests[self.seen :] if request.name == "2022/docs"
        ]
        held = [size for name, size in self.here.items() if "corpus" in name or "docs" in name]
        assert not (starts and held) or starts[0] == held[0], (starts, self.here)

    def answers(self, folder: Path) -> int:
        return sum(path.stat().st_size for path in folder.glob("cache/downloads/**/*.part"))


@contextmanager
def _files(scratch: Path) -> Iterator[Watch]:
    with FileServer(large_2022(1500, seed=5), pause=0.004).running() as server:
        yield Downloaded(server, scratch)


FETCH = Long(
    ("datasets", "fetch", "trec-fair/2022", "--yes"),
    tuple(f"cache/datasets/trec-fair-2022-train/{pattern}" for pattern in ("*.gz", "*.json", "*.tsv", "*.jsonl", "*.npy")),
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


FINETUNE = Long(
    (
        "finetune-lora", "-d", "../data", "-m", "../model", "--pairs", "6", "--pairs-per-query", "40",
        "--group-size", "32", "--prompts-per-step", "64", "--max-prompts", "256", "--eval-every", "128",
        "--learning-rate", "1e-2", "--prompt", "wikiproject", "--train-share", "0.8", "-o", "out",
    ),
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


REPORT = Long(
    ("report", "run"),
    ("run/report.html",),
    lambda folder: shutil.copytree(folder.parent / "drawn", folder / "run"),
    run_to_draw,
    grows="run/report.html",
    step=0,
    seconds=3.0,
)
RERANK = Long(
    ("rerank", *(f"../drawn/rankings/{name}.run" for name in ("neutral", "male", "female")), "-d", "sample", "--with", "mmr", "-o", "out"),
    ("out/*.run",),
    watched=run_to_draw,
    step=0,
    seconds=2.0,
)  # fmt: skip
MITIGATE = Long(
    ("mitigate", "run", "--free", "--no-report"),
    ("run/mitigation/**/*.csv", "run/mitigation/**/*.run", "run/mitigation/results.json"),
    lambda folder: shutil.copytree(folder.parent / "drawn", folder / "run"),
    run_to_draw,
    grows="run/mitigation/**/*",
    step=0,
    seconds=3.0,
)
CALIBRATE = Long(("calibrate", "listwise", "--runs", "60", "--injected", "-0.5"), (), step=0, seconds=3.0)

COMMANDS = {
    "listwise": audit(LISTWISE),
    "pairwise": audit(PAIRWISE),
    "sequential": audit(SEQUENTIAL),
    "partition": audit(PARTITION),
    "rag": audit(RAG),
    "refine": audit(REFINE),
    "study": audit(STUDY, output="study", below=""),
    "calibrate": CALIBRATE,
    "fetch": FETCH,
    "finetune": FINETUNE,
    "batch": BATCH,
    "report": REPORT,
    "rerank": RERANK,
    "mitigate": MITIGATE,
    "pointwise": audit(STRATEGIES["pointwise"]),
    "pairwise-sort": audit(STRATEGIES["pairwise-sort:k=5"]),
}
