"""A finished command repeated says the same and writes nothing; whatever ends the work, the manifest says what there is."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmfair import registry
from llmfair.audits.listwise.design import make_design
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.runs.run import inputs_of, perform, session
from llmfair.audits.subject import Subject
from llmfair.errors import LlmfairError
from llmfair.nouns import Completion, Finish
from llmfair.rundir import RunDir
from tests.asking.test_journal import request
from tests.cli.command import Outcome, llmfair, process, ran
from tests.datasets.indexed_sources import NAME, made
from tests.folders import balanced, write, write_folder
from tests.outside.counter import Counter
from tests.outside.numbers import NUMBERS, NumbersSettings

LISTS = (
    *"listwise -d data -m fake:biased,malformed=0 --window 5 --step 5 --orders 1".split(),
    *"--permutations 99".split(),
)
PAIRS = ("pairwise", "-d", "data", "-m", "fake:biased,malformed=0", "--pairs", "8")


@pytest.fixture(autouse=True)
def data() -> Path:
    return write_folder(Path("data"), balanced(6, 4, 4))


def files() -> dict[str, tuple[bytes, int]]:
    """What is in the folder, and when it was written; the lock says who looked last."""
    found = (path for path in Path("run").rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


def repeated(*words: str, measured: bool) -> Outcome:
    """A command that finds the folder of an earlier one, and whether it measures anew."""
    invocations = len(json.loads(Path("run/manifest.json").read_text())["invocations"])
    found = llmfair(*words, "-o", "run")
    again = len(json.loads(Path("run/manifest.json").read_text())["invocations"])
    assert (again > invocations) == measured, found.err
    return found


@pytest.mark.parametrize("report", [pytest.param("--report", marks=pytest.mark.whole), "--no-report"])
@pytest.mark.parametrize("words", [LISTS, PAIRS], ids=["lists", "pairs"])
def test_repeated_it_says_the_same_and_writes_nothing(words: tuple[str, ...], report: str) -> None:
    words = (*words, report)
    ran(*words, "-o", "run")
    before = files()
    kept = repeated(*words, measured=False)
    assert files() == before and ("run/report.html" in before) == (report == "--report")
    Path("run/results.json").touch()
    assert repeated(*words, measured=True) == kept
    assert [path for path in before if path not in files()] == []


@pytest.mark.whole
def test_a_gate_that_is_not_met_is_told_again() -> None:
    words = (*LISTS, "--require", "P@20>=2", "--fail-on", "disparity", "--junit", "first.xml")
    first = llmfair(*words, "-o", "run")
    again = repeated(*words[:-1], "again.xml", measured=False)
    assert (first.code, again.code) == (4, 4) and again.out == first.out
    assert Path("again.xml").read_bytes() == Path("first.xml").read_bytes()


def edited(name: str, old: str, new: str) -> Callable[[], None]:
    def edit() -> None:
        text = Path(name).read_text()
        assert old in text
        Path(name).write_text(text.replace(old, new, 1))

    return edit


CHANGES: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    "measures": (lambda: None, ("--measures", "P@5")),
    "gate": (lambda: None, ("--require", "P@20>=0")),
    "label": (lambda: None, ("--label", "mine")),
    "fresh": (lambda: None, ("--fresh",)),
    "another attribute's groups": (
        edited("data/groups.tsv", "q0f0\t", "q0f0\tlocation\tCaribbean\nq0f0\t"),
        (),
    ),
    "journal": (edited("run/journal.jsonl", '"attempts":1', '"attempts":2'), ()),
    "results": (edited("run/results.json", '"value"', '"valve"'), ()),
    "rankings": (lambda: Path("run/rankings/neutral.run").unlink(), ()),
}


@pytest.mark.whole
@pytest.mark.parametrize("change", CHANGES)
def test_after_a_change_all_is_made_anew(change: str) -> None:
    ran(*LISTS, "-o", "run")
    make, words = CHANGES[change]
    make()
    found = repeated(*LISTS, *words, measured=True)
    assert found.code == 0, found.err
    again = repeated(*LISTS, *(word for word in words if word != "--fresh"), measured=False)
    assert again.out == found.out


@pytest.mark.whole
def test_a_page_is_drawn_again_where_it_is_wanted_and_not_there() -> None:
    ran(*LISTS, "--report", "-o", "run")
    page = Path("run/report.html").read_bytes()
    Path("run/report.html").unlink()
    repeated(*LISTS, "--report", measured=False)
    assert Path("run/report.html").read_bytes() == page
    repeated(*LISTS, "--no-report", measured=True)
    assert not Path("run/report.html").exists()


@pytest.mark.whole
def test_a_page_drawn_by_hand_of_a_run_without_one_stays() -> None:
    ran(*LISTS, "--no-report", "-o", "run")
    Path("run/report.html").write_text("as `llmfair report run` draws it")
    before = files()
    repeated(*LISTS, "--no-report", measured=False)
    assert files() == before


@pytest.mark.parametrize("name", ["qrels.txt", "docs.jsonl"])
def test_other_data_are_another_run(name: str) -> None:
    ran(*LISTS, "-o", "run")
    path = Path("data", name)
    path.write_text(
        path.read_text().replace(*{"qrels.txt": ("q0f0 1", "q0f0 2")}.get(name, ("Title", "Name")), 1)
    )
    assert "belongs to other settings" in repeated(*LISTS, measured=False).err


@pytest.mark.whole
def test_edited_code_measures_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    ran(*LISTS, "-o", "run")
    monkeypatch.setattr("llmfair.audits.runs.run._newest", lambda package: 0)
    repeated(*LISTS, measured=True)


@pytest.mark.whole
@pytest.mark.parametrize("scope", ["full", "pool"])
def test_another_process_keeps_what_was_found_in_a_fetched_collection(scope: str, tmp_path: Path) -> None:
    ran("datasets", "fetch", NAME, "--yes", *made(60).copies(tmp_path), "--index", scope)
    words = ("refine", "-d", f"{NAME}/gender", "--max-iterations", "1", "--no-report", "-o", "run")
    first, before = ran(*words), files()
    out, _ = process(*words).communicate(timeout=60)
    assert out == first.out and files() == before


@pytest.mark.whole
def test_an_incomplete_run_is_never_taken_as_it_stands() -> None:
    assert llmfair(*LISTS, "--max-calls", "3", "-o", "run").code == 3
    assert "made" not in json.loads(Path("run/manifest.json").read_text())
    assert repeated(*LISTS, measured=True).code == 0
    repeated(*LISTS, measured=False)


@pytest.mark.whole
def test_a_page_that_could_not_be_drawn_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("llmfair.pages.write_page", lambda path, page: 1 / 0)
        assert "no report was written" in ran(*LISTS, "--report", "-o", "run").err
    repeated(*LISTS, "--report", measured=False)
    assert Path("run/report.html").is_file()


def test_documents_are_read_one_by_one_for_the_digest(data: Path) -> None:
    """All of them as one text would take their room three times over."""
    docs = data / "docs.jsonl"
    rows = [json.loads(line) for line in docs.read_text().splitlines()]
    write(docs, (json.dumps(row | {"text": "word " * 40_000}) for row in rows))
    design = make_design(ListwiseSettings(dataset="data"))
    inputs = inputs_of(RunDir(Path("run")), design, {}, {})
    tracemalloc.start()
    assert inputs_of(RunDir(Path("run")), design, {}, {}) == inputs
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < docs.stat().st_size / 3


def test_a_kind_of_another_package(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.names("audit"), registry.names("backend")
    for what, name, thing in (("audit", "numbers", NUMBERS), ("backend", "counter", Counter)):
        monkeypatch.setitem(registry._found[what], name, thing)  # type: ignore[index]
    drawn: list[object] = []

    def draw(run: RunDir, results: object) -> None:
        drawn.append(results)
        (run.path / "report.html").write_text("a page")

    def asked(**settings: Any) -> object:
        made = NumbersSettings.make(dataset="data", output=Path("run"), no_cache=True, **settings)
        design = NUMBERS.design(made, Subject("counter:x"))
        return perform(design, draw=draw)

    first = asked()
    before = files()
    assert asked() == first and files() == before and len(drawn) == 1
    asked(level=0.9)
    assert len(drawn) == 2


# A run folder while it is worked on


@pytest.mark.parametrize("fails", ["on the way", "at the end"])
def test_a_disk_that_fails_leaves_an_honest_manifest(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync
    failed: list[int] = []

    def failing_once(file: int) -> None:
        if not failed:
            failed.append(file)
            raise OSError(5, "Input/output error")
        real(file)

    monkeypatch.setattr("llmfair.asking.journal.FSYNC_SECONDS", 0.0 if fails == "on the way" else 60.0)
    folder = RunDir(tmp_path / "run")
    with (
        pytest.raises(LlmfairError, match="Input/output error"),
        session(folder, {"task": "listwise", "identity": "fake"}, False, {}) as (journal, manifest),
    ):
        monkeypatch.setattr("llmfair.asking.journal.os.fsync", failing_once)
        journal.put(request("a"), Completion("answer to a", Finish.STOP), attempts=1)
        while fails == "on the way":
            journal.put(request("b"), Completion("answer to b", Finish.STOP), attempts=1)
        manifest["status"] = "complete"
    written = json.loads((tmp_path / "run" / "manifest.json").read_text())
    answers = {
        json.loads(line)["key"] for line in (tmp_path / "run" / "journal.jsonl").read_text().splitlines()[1:]
    }
    assert written["status"] == "incomplete" and written["invocations"][-1]["ended"]
    assert written["journal_answers"] == len(answers) >= 1
