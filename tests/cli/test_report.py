"""`llmfair report`, and the report that audits leave behind, on the command line."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import pytest

from llmfair import api
from llmfair.rundir import RunDir
from tests.cli.command import llmfair, only_run, process, ran, refuses
from tests.folders import balanced, write_folder
from tests.report.reading import read
from tests.report.runs import reports as reports

pytestmark = pytest.mark.whole

SMALL = ("listwise", "-n", "3", "--orders", "1", "--passes", "1", "-q")


undrawn = pytest.mark.usefixtures("undrawn")


@undrawn
def test_a_report_that_cannot_be_written_is_refused() -> None:
    ran(*SMALL, "--no-report")
    (only_run() / "report.html").mkdir()
    refuses("cannot write", "report", only_run())


def test_drawing_that_fails_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(api, "page_of", fails)
    found = llmfair(*SMALL)
    assert found.code == 0 and found.out.splitlines()[-1] == str(only_run())
    assert "Warning: no report was written, everything else was: MemoryError: no room" in found.err
    assert "Traceback" not in found.err and 'raise MemoryError("no room")' in llmfair(*SMALL, "-v").err
    assert RunDir(only_run()).read_manifest().status == "complete"


@undrawn
def test_open_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def browser(address: str) -> bool:
        opened.append(address)
        return True

    monkeypatch.setattr("webbrowser.open", browser)
    ran(*SMALL, "--open")
    ran("report", only_run(), "--open")
    assert opened == [(only_run() / "report.html").resolve().as_uri()] * 2
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    assert "no browser could be opened" in llmfair(*SMALL, "--open").err


@undrawn
def test_all_figures_of_several_runs_as_csv() -> None:
    ran(*SMALL, "--no-report", "-o", "one")
    ran(*SMALL, "--no-report", "-m", "fake:oracle", "-o", "two")
    first, second = (Path(name, "metrics.csv").read_text().splitlines() for name in ("one", "two"))
    found = ran("report", "one", "two", "--runs-dir", ".", "--format", "csv").out
    assert found.splitlines() == [*first, *second[1:]]
    study = ("study", "windows", *SMALL[1:5], "--settings", "5/3,20/10", "-q", "-o", "study", "--no-report")
    ran(*study)
    printed = ran("report", "one", "study", "--runs-dir", ".", "--format", "csv").out
    rows = [*csv.DictReader(printed.splitlines())]
    assert len(rows) == len(first) - 1 + len(Path("study", "study.csv").read_text().splitlines()) - 1
    last = rows[-1]
    assert (last["setting"], last["model"], last["query_id"]) == ("20/10", "fake:biased", "all")
    assert rows[0]["setting"] == ""


@undrawn
def test_one_run_again_elsewhere_and_with_figures_as_files() -> None:
    ran(*SMALL)
    before = (only_run() / "report.html").read_bytes()
    (only_run() / "report.html").unlink()
    found = llmfair("report", only_run(), "-o", "elsewhere/page.html", "--json")
    assert found.json == {"schema": 5, "status": "complete", "report": "elsewhere/page.html", "missing": []}
    assert Path("elsewhere/page.html").is_file() and not (only_run() / "report.html").exists()
    found = llmfair("report", only_run().name[:20], "--figures", "svg,pdf,png")
    assert (found.code, found.out) == (0, f"{only_run() / 'report.html'}\n")
    assert (only_run() / "report.html").read_bytes() == before
    files = {path.name for path in (only_run() / "plots").iterdir()}
    assert files >= {f"utility-and-exposure.{ending}" for ending in ("svg", "pdf", "png")}
    refuses("known: svg, pdf, png", "report", only_run(), "--figures", "gif")


def test_many_runs_are_a_matrix_of_models_attributes_and_prompts() -> None:
    write_folder(Path("lists"), balanced(6, 6, 6))
    asked = ("-n", "5", "--orders", "1", "--passes", "1", "--no-report", "-q", "--max-invalid", "1")
    ran("listwise", *asked, "-a", "gender", "-m", "fake:biased", "-m", "bm25")
    ran("listwise", *asked, "-a", "location", "-m", "fake:biased")
    ran("listwise", "--window", "10", "--step", "5", *asked, "-a", "gender")
    ran("pairwise", "--pairs", "4", "--no-report", "-q")
    runs = sorted(Path("runs").iterdir())
    assert ran("report", *runs, "--figures", "svg").out == f"{Path.cwd() / 'report.html'}\n"
    assert {path.suffix for path in Path("plots").iterdir()} == {".svg"}
    page = read(Path("report.html"))
    text = "".join(page.text)
    for said in ("5 runs", "location: non-european", "bm25", "fake:biased 10/5x1"):
        assert said in text
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    printed = llmfair("report", *runs, "--format", "md").out
    assert printed.count("| model |") == text.count("by model and") + 2  # and the conclusions of both tasks


@undrawn
def test_a_run_without_results_is_named_and_left_out() -> None:
    assert llmfair(*SMALL, "-o", "killed", "--max-calls", "9").code == 3
    for path in Path("killed").glob("results.json"):
        path.unlink()
    planned = RunDir(Path("killed")).read_manifest().planned_calls
    lacks = f"killed has no results yet (incomplete; 9 of {planned:,} answers are on disk)"
    found = refuses(f"Error: {lacks}.", "report", "killed")
    assert "the command that began the run completes it" in found.err
    ran(*SMALL, "--no-report", "-o", "whole")
    found = llmfair("report", "killed", "whole")
    assert found.code == 0 and f"Not complete: {lacks}" in found.err
    assert lacks in "".join(read(Path("report.html")).text)


@undrawn
def test_a_training_that_is_not_finished_has_no_results_yet() -> None:
    training = Path("adapters/half")
    training.mkdir(parents=True)
    split = {"schema": 1, "settings": {"max_prompts": 40_000}, "split": {}}
    (training / "split.json").write_text(json.dumps(split))
    refuses("Error: half has no results yet (interrupted).", "report", training)
    with RunDir(training).locked():
        assert "half has no results yet (running)" in llmfair("report", training).err
    ran(*SMALL, "--no-report", "-o", "whole")
    found = llmfair("report", training, "whole")
    assert found.code == 0 and "Not complete: half has no results yet (interrupted)" in found.err


@undrawn
def test_studies_and_scores_have_pages_too() -> None:
    swept = ("--settings", "10/5,20/10", "-n", "6", "--orders", "1")
    study = llmfair("study", "windows", *swept, "-o", "table", "-q")
    assert study.code == 0 and study.out.splitlines()[-1] == "table/report.html"
    text = "".join(read(Path("table/report.html")).text)
    assert "Windows study" in text and "ExpRatio" in text
    assert not list(Path("runs").glob("*/report.html"))
    runs = sorted(Path("runs").iterdir())
    scored = llmfair("score", *runs, "-o", "scored")
    assert scored.code == 0 and scored.out.splitlines()[-1] == "scored/report.html"
    assert "Utility and exposure" in "".join(read(Path("scored/report.html")).text)
    before = Path("table/report.html").read_bytes()
    assert llmfair("report", "table").code == 0 and Path("table/report.html").read_bytes() == before
    both = llmfair("report", "table", "scored", *runs, "--format", "md")
    assert both.code == 0 and "Windows · sample" in both.out and "Score · sample" in both.out


def test_an_unwritable_home_is_no_matter(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    nowhere = home / "file" / "config"  # below a file no folder can be made, not even by root
    (home / "file").write_text("")
    environment = {**os.environ, "HOME": str(nowhere), "MPLCONFIGDIR": str(nowhere), "TERM": "dumb"}
    environment |= {"XDG_CACHE_HOME": str(nowhere), "XDG_CONFIG_HOME": str(nowhere)}
    running = process(*SMALL, env=environment)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 0, err
    assert out.splitlines()[-1].endswith("report.html")
    assert not [line for line in err.splitlines() if "atplotlib" in line or "Warning" in line], err
