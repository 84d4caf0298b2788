"""Run folders that somebody or something damaged, removed or moved: one sentence naming the file, and nothing is lost."""

from __future__ import annotations

import json
import os
import shutil
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llmfair.api import open_run
from llmfair.errors import UsageError, warn
from tests.cli.command import COMMANDS, copied, kept, llmfair, ran, refuses
from tests.servers import Reply, Server, rank


def hurt(kind: str, file: str, harm: Callable[[Any], Any]) -> None:
    shutil.rmtree("hurt", ignore_errors=True)
    copied(kind, "hurt")
    if not Path("whole").exists():
        copied(kind, "whole")
    path = Path("hurt", file)
    path.write_text(json.dumps(harm(json.loads(path.read_text()))))


def staged(found: dict[str, Any]) -> dict[str, Any]:
    name = "../secret"
    return {**found, "stages": {name: True}, "settings": {**found["settings"], "stages": {name: "x"}}}


def limited(found: dict[str, Any]) -> dict[str, Any]:
    return found | {"flags": found["flags"] | {"limit": "many"}}


@pytest.mark.parametrize(
    ("file", "harm", "says"),
    [
        ("results.json", lambda found: {**found, "chains": {}}, "Condition 'neutral' is missing in `chains`"),
        ("manifest.json", lambda found: {**found, "task": "elsewhere"}, "elsewhere"),
        ("manifest.json", staged, "`$.stages`"),
        ("manifest.json", limited, "flags.limit is 'many', but takes a whole number from 1"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(file: str, harm: Callable[[Any], Any], says: str) -> None:
    hurt("listwise", file, harm)
    command = "show" if file == "results.json" else "check"
    assert f"hurt/{file}: " in refuses(says, "runs", command, "hurt").err


@pytest.mark.whole
@pytest.mark.parametrize("file", ["manifest.json", "journal.jsonl"])
def test_a_file_of_hundreds_of_megabytes_takes_little_memory(file: str) -> None:
    hurt("listwise", "results.json", lambda document: document)
    os.truncate(Path("hurt", file), 400 << 20)
    tracemalloc.start()
    for command in (("runs", "list", "--runs-dir", "."), ("runs", "check", "hurt")):
        found = llmfair(*command)
        assert found.code in (0, 1, 2) and "unexpected" not in found.err, found.err
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 300 << 20


def test_a_journal_of_another_model_is_no_evidence() -> None:
    hurt("listwise", "results.json", lambda document: document)
    path = Path("hurt", "journal.jsonl")
    head = '{"journal":1,"run":"x","identity":"another"}'
    path.write_text("\n".join([head, *path.read_text().splitlines()[1:]]) + "\n")
    found = llmfair("runs", "check", "hurt")
    assert found.code == 1 and "journal.jsonl:1: holds answers of 'another', not of" in found.out


def test_figures_of_queries_that_are_damaged() -> None:
    hurt("listwise", "results.json", lambda document: document)
    path = Path("hurt", "per_query.csv")
    text = path.read_text()
    for broken in (text[: len(text) // 2].rpartition(",")[0], None):
        path.unlink() if broken is None else path.write_text(broken)
        refuses("hurt/per_query.csv:", "compare", "whole", "hurt")
        with pytest.raises(UsageError, match="hurt/per_query.csv:" if broken else "keeps no figures"):
            _ = open_run("hurt").per_query


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda lines: lines[:-1], "verdicts on relevant pairs"),
        (lambda lines: [*lines, lines[-1]], "is not a verdict: it is there twice"),
    ],
)
def test_lost_or_doubled_verdicts_are_said(change: Callable[[list[str]], list[str]], says: str) -> None:
    path = copied("pairwise", "run") / "verdicts.csv"
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))
    refuses(says, "score", "run")


@pytest.mark.whole
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda row: row | {"side": row["side"][1:]}, "run/candidates.jsonl: the list of"),
        (lambda row: row | {"query_id": "another"}, ", which candidates.jsonl lacks."),
    ],
)
def test_lists_that_lack_something_are_said(change: Callable[[Any], Any], says: str) -> None:
    path = copied("listwise", "run") / "candidates.jsonl"
    first, *others = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps(change(json.loads(first))), *others]) + "\n")
    refuses(says, "report", "run")


def test_an_attribute_of_a_manifest_that_is_none_is_named() -> None:
    hurt(
        "listwise", "manifest.json", lambda found: found | {"settings": found["settings"] | {"attribute": {}}}
    )
    refuses("hurt/manifest.json: settings: ", "compare", "whole", "hurt")
    refuses("hurt/manifest.json: settings: ", "score", "hurt")


def test_results_of_another_schema_are_written_anew_and_nothing_is_asked() -> None:
    hurt("listwise", "results.json", lambda found: found | {"schema": 1})
    for command in ("score hurt", "report hurt", "compare whole hurt", "runs show hurt"):
        refuses("hurt/results.json: is of schema 1", *command.split())
    ran(*COMMANDS["listwise"], "-o", "hurt")
    assert kept("manifest", "hurt")["calls"] == 0
    written = Path("hurt/results.json").read_text()
    assert written.replace("hurt", "listwise") == Path("whole/results.json").read_text()


@pytest.mark.parametrize(("kind", "manifest"), [("listwise", "{"), ("pairwise", None)])
def test_a_lost_manifest_strands_no_answer(kind: str, manifest: str | None) -> None:
    """The same command makes it anew, and asks nothing."""
    path, aside = copied(kind, "kept") / "manifest.json", Path("kept", "manifest.1.json")
    path.unlink() if manifest is None else path.write_text(manifest)
    warn.cache_clear()
    found = ran(*COMMANDS[kind], "-o", "kept")
    assert ("manifest.json" in found.err and "set aside" in found.err) is (manifest is not None)
    assert kept("manifest", "kept")["calls"] == 0 and kept("manifest", "kept")["status"] == "complete"
    assert (aside.read_text() if aside.exists() else None) == manifest


@pytest.mark.parametrize(("file", "what"), [("journal.jsonl", "pipe"), ("texts.jsonl", "folder")])
def test_what_is_no_file_is_named(file: str, what: str) -> None:
    copied("listwise", "kept")
    path = Path("kept", file)
    path.unlink(missing_ok=True)
    path.mkdir() if what == "folder" else os.mkfifo(path)
    found = llmfair(*COMMANDS["listwise"], "-o", "kept")
    assert "unexpected" not in found.err
    assert found.code == 0 or f"kept/{file}" in found.err


def test_what_nobody_expects_comes_with_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> None:
        raise ZeroDivisionError("by nobody")

    for name in ("find_run", "list_runs"):
        monkeypatch.setattr(f"llmfair.cli.runs.{name}", breaks)
    told = "Error: unexpected ZeroDivisionError: by nobody\n"
    for command in (("runs", "list"), ("runs", "check", "x"), ("compare", "x", "y")):
        assert refuses("", *command, code=1).err == f"{told}  repeat with -v for the traceback\n"
    assert "in breaks" in llmfair("runs", "list", "-v").err
    monkeypatch.setattr("llmfair.registry.names", breaks)
    assert llmfair("doctor").err == f"{told}  repeat with -v for the traceback\n"


# In the middle of a run


RUN = Path("runs/one")
ASKED = 5
"""Answers after which it happens."""
HINT = "put it back, or ask again with --fresh"


class Disturbed:
    """A server in whose run something happens, and the command that asks it."""

    def __init__(self) -> None:
        self.asked: tuple[str, ...] = tuple(
            "listwise -m openai:any -n 4 --orders 1 --passes 1 --conditions neutral --no-repeat".split()
        )
        self.happens: Callable[[], object] | None = None
        self.server = Server(self._reply)
        self.seen = 0

    def _reply(self, body: dict[str, Any], attempt: int) -> Reply:
        self.seen += 1
        if self.happens is not None and self.seen == ASKED:
            self.happens()
        return rank(body, attempt)

    @property
    def command(self) -> tuple[str, ...]:
        flags = ("--base-url", self.server.base_url, "-j", "1", "--no-cache", "--no-report", "-o", str(RUN))
        return (*self.asked, *flags)

    def asks(self, *flags: str) -> int:
        """How many questions a command asks that comes to its end."""
        self.happens, before = None, self.seen
        ran(*self.command, *flags)
        return self.seen - before

    def disturbed(self, happens: Callable[[], object], journal: str = "journal.jsonl") -> None:
        self.happens = happens
        found = refuses(f"{RUN}/{journal} was removed during the run.", *self.command, code=1)
        assert HINT in found.err


@pytest.fixture
def run() -> Iterator[Disturbed]:
    run = Disturbed()
    with run.server:
        yield run


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {".lock"}


def test_a_journal_that_is_removed(run: Disturbed) -> None:
    run.disturbed((RUN / "journal.jsonl").unlink)
    assert not RUN.exists()
    assert run.asks() == run.asks("--fresh") > ASKED


def test_a_journal_that_is_removed_as_a_run_goes_on(run: Disturbed) -> None:
    assert llmfair(*run.command, "--max-calls", str(ASKED - 3)).code == 3
    run.disturbed((RUN / "journal.jsonl").unlink)
    refuses("put the journal back, or ask again with --fresh", *run.command, code=1)
    assert run.asks("--fresh") > ASKED


@pytest.mark.whole
def test_a_folder_that_is_moved_and_put_back(run: Disturbed) -> None:
    run.disturbed(lambda: RUN.rename("moved"))
    assert not RUN.exists()
    kept = run.seen
    assert files(Path("moved")) == {"manifest.json", "journal.jsonl"}
    Path("moved").rename(RUN)
    assert run.asks() + kept == run.asks("--fresh"), "an answered question was asked again"


def test_a_folder_that_is_removed(run: Disturbed) -> None:
    run.disturbed(lambda: shutil.rmtree(RUN.parent))
    assert not RUN.exists()
    assert run.asks("--fresh") > ASKED


@pytest.mark.whole
def test_a_journal_of_a_further_stage(run: Disturbed) -> None:
    run.asked = ("rag", "-m", "fake:reader", "--attribution", "openai:any", "-n", "2", "--samples", "2")
    run.disturbed((RUN / "attribution.jsonl").unlink, "attribution.jsonl")
    assert files(RUN) == {"manifest.json", "journal.jsonl"}
    refuses("put the journal back, or ask again with --fresh", *run.command, code=1)
    assert run.asks("--fresh") > ASKED
