"""The first audit of each kind, and what a first user stumbles over: mistyped names, runs that never begin."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import llmfair, only_run, process, ran
from tests.folders import balanced, write_folder
from tests.servers import Reply, Server, rank

pytestmark = pytest.mark.whole

SMALL = ("-n", "2", "--orders", "1", "--passes", "1")
ROOT = Path(__file__).resolve().parents[2]
local = pytest.mark.skipif(
    not all(map(find_spec, ("torch", "transformers"))), reason="needs pip install 'llmfair[local]'"
)


CALLS = {"listwise": 8 * 4 * 3 * 9, "pairwise": 8 * 2 * (50 + 5) * 2}
"""Queries by conditions, orders and windows; queries by kinds, pairs (a tenth of them twice) and orders."""
EVERY = {
    "manifest.json", "journal.jsonl", "failures.csv", "metrics.csv", "per_query.csv", "results.json", "texts.jsonl", "report.html",
}  # fmt: skip
FILES = {
    "listwise": {"rankings", "candidates.jsonl", "qrels.txt", "groups.tsv"},
    "pairwise": {"verdicts.csv"},
}
"""Of a run folder, beside those that every one has."""


@pytest.mark.parametrize("kind", CALLS)
def test_the_first_contact(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole audit through the installed command, as a user runs it: asked, not asked again, checked, reported."""
    monkeypatch.delenv("LLMFAIR_REPORT")

    def console(*arguments: str) -> subprocess.CompletedProcess[str]:
        program = Path(sys.executable).parent / "llmfair"
        return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=100)

    first = console(kind)
    assert first.returncode == 0, first.stderr
    run = only_run()
    manifest = json.loads((run / "manifest.json").read_text())
    assert (manifest["status"], manifest["calls"]) == ("complete", CALLS[kind])
    assert first.stdout.splitlines()[-1] == str(run / "report.html")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.name != ".lock" and path.is_file()}
    assert {path.name for path in run.iterdir() if not path.name.startswith(".")} == FILES[kind] | EVERY
    again = console(kind)
    assert (again.returncode, again.stdout) == (0, first.stdout)
    assert before == {path: path.read_bytes() for path in before}
    assert console("runs", "check", run.name).returncode == 0


def refused(body: dict[str, Any], attempt: int) -> Reply:
    return Reply(status=404, body={"error": {"message": "the model does not exist"}})


def at(server: Server) -> tuple[str, ...]:
    return (*server.flags, "--no-cache")


@local
def test_a_mistyped_folder_is_said_before_anything_heavy_is_imported() -> None:
    names = ["./mdoel", "../mdoel", "/no/mdoel", "~/mdoel", "a/b/mdoel"]
    code = (
        "import sys; from llmfair.cli.app import run\n"
        f"codes = {{run(['listwise', '-m', f'hf:{{name}}']) for name in {names}}}\n"
        "assert codes == {2} and not {'torch', 'transformers', 'huggingface_hub'} & {*sys.modules}"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (0, ""), found.stderr
    assert found.stderr.splitlines()[::2] == [f"Error: there is no folder {name}." for name in names]


@pytest.mark.parametrize("output", [(), ("-o", "deep/run")])
def test_a_run_without_an_answer_leaves_nothing_behind(output: tuple[str, ...]) -> None:
    before = {*Path().iterdir()}
    with Server(refused) as server:
        for model in (
            ("-m", "openai:x"),
            ("-m", "openai:x", "--base-url", "http://127.0.0.1:9/v1"),
            at(server),
        ):
            found = llmfair("listwise", *SMALL, *model, *output)
            assert found.code == 1 and found.err.count("Error: ") == 1
            assert {*Path().iterdir()} <= before | {Path("cache")}, model


def test_a_run_with_an_answer_stays() -> None:
    def once(body: dict[str, Any], attempt: int) -> Reply:
        return refused(body, attempt) if len(server.requests) > 1 else rank(body, attempt)

    with Server(once) as server:
        assert llmfair("listwise", *SMALL, *at(server), "-j", "1").code == 3
        assert llmfair("listwise", *SMALL, *at(server), "-j", "1").code == 3, "nor when continued"
    assert {"manifest.json", "journal.jsonl"} <= {path.name for path in only_run().iterdir()}
    assert llmfair("runs", "list", "--json").json["runs"][0]["answers"] == 1


@pytest.mark.slow
def test_an_interrupt_before_the_first_answer_leaves_nothing_behind() -> None:
    with process("listwise", *SMALL, "-m", "fake:biased,latency=60", "--json") as running:
        while not [*Path("runs").glob("*/journal.jsonl")]:
            assert running.poll() is None
            time.sleep(0.01)
        time.sleep(0.3)  # asked by now
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 130 == json.loads(out)["exit_code"]
    assert json.loads(out)["run"] is None and not Path("runs").exists()
    assert "Stopped before the first answer. The same command begins again." in err


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("listwise", *SMALL), "No result: none of the chains has all its answers."),
        (("rag", "-n", "2"), "No result: none of the queries has all its answers."),
        (("study", "windows", "-n", "2", "--orders", "1"), "No result: no setting has a chain with all its answers."),
    ],
    ids=lambda case: case[0] if isinstance(case, tuple) else "",
)  # fmt: skip
def test_no_table_of_blanks(command: tuple[str, ...], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMFAIR_REPORT", "1")
    for style in ((), ("--format", "md")):
        found = llmfair(*command, "--max-calls", "1", *style, "--fresh")
        assert (found.code, found.out) == (3, f"{says}\n")
        assert "the budget of 1 calls is spent." in found.err and "Simulated;" not in found.err
    assert not [*Path("runs").glob("*/report.html")]
    document = llmfair(*command, "--max-calls", "1", "--json", "--fresh").json
    assert document["status"] == "incomplete" and "rows" in document


@pytest.mark.usefixtures("undrawn")
def test_a_command_without_a_report_leaves_none_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMFAIR_REPORT", "1")
    ran("listwise", *SMALL, "-o", "run")
    Path("run/plots").mkdir(exist_ok=True)
    Path("run/plots/mine.svg").touch()
    assert ran("listwise", *SMALL, "-o", "run", "--no-report").out.splitlines()[-1] == "run"
    assert not Path("run/report.html").exists() and Path("run/plots/mine.svg").is_file()
    for more, there in (((), True), (("--no-report",), False)):
        ran("score", "run/rankings/neutral.run", "-d", "sample", "-o", "scored", *more)
        assert Path("scored/report.html").is_file() is there


def test_a_mistyped_variable_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMFAIR_MAX_CALL", "3")
    monkeypatch.setenv("LLMFAIR_CACHE_DIR", "cache")
    warned = [
        "Warning: LLMFAIR_MAX_CALL is no setting, so nothing reads it. Did you mean 'LLMFAIR_MAX_CALLS'?"
    ]
    assert llmfair("plan", "listwise", *SMALL, "--json").err.splitlines()[:1] == warned
    assert llmfair("listwise", "--help").err == ""


@pytest.mark.parametrize(
    "command",
    [
        ("listwise", *SMALL),
        pytest.param(("listwise", *SMALL, "--json"), marks=pytest.mark.slow),  # printed as the table is
        ("listwise", "--help"),
        (),
    ],
    ids=["table", "json", "help", "first steps"],
)
def test_a_closed_pipe_ends_the_command_quietly(command: tuple[str, ...]) -> None:
    with process(*command) as running:
        assert running.stdout is not None and running.stderr is not None
        running.stdout.close()
        err = running.stderr.read()
    assert running.returncode == 128 + signal.SIGPIPE
    assert "Broken" not in err and "Traceback" not in err and "Error" not in err


def configured(text: str) -> Path:
    """A project with such a file, its data beside it, and a folder below to work in."""
    project = Path("project")
    write_folder(project / "mine", balanced(4, 6, 6))
    (project / "llmfair.toml").write_text(text)
    (project / "below").mkdir()
    return project


def test_paths_in_the_file_are_relative_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    project = configured(
        'dataset = "mine"\nruns_dir = "audits"\nprompt = "own.toml"\nqueries = "@some.txt"\n'
    )
    (project / "own.toml").write_text(llmfair("prompts", "show", "listwise").out)
    (project / "some.txt").write_text("\ufeffq0\r\nq1\r\n", newline="")  # as Windows has it
    asked = ("listwise", "--orders", "1", "--passes", "1")
    ran(*asked, "--config", project / "llmfair.toml")
    (run,) = (project / "audits").iterdir()
    monkeypatch.chdir(project / "below")
    below = llmfair(*asked)
    assert below.code == 0 and "2 queries" in below.out, below.err
    assert [*Path("..", "audits").iterdir()] == [Path("..", "audits", run.name)]
    assert f"../audits/{run.name}" in below.out
    monkeypatch.chdir("..")
    assert f"\naudits/{run.name}" in llmfair(*asked).out


def test_the_file_that_the_documentation_shows_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "own-model.md").read_text("utf-8")
    (text,) = re.findall(r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    text = re.sub(r"(?m)^require = .*\n", "", text)  # four queries are too few for any gate
    monkeypatch.chdir(configured(text) / "below")
    for command in ("listwise", "pairwise"):
        found = llmfair(command, "-m", "fake:biased", "--dry-run", "--json")
        assert found.code == 0 and found.json["queries"] == 4, found.err
        assert found.json["folder"].startswith("../audits/")
