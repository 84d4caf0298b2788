"""`study windows` and `calibrate` end to end, offline: tables, files, the runs that are shared, what is injected."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.command import llmfair, ran, refuses
from tests.folders import balanced, write_folder

pytestmark = pytest.mark.whole

STUDY = ("study", "windows", "-n", "2", "--orders", "1", "--settings", "10/5,20/10")


def test_it_writes_into_no_run_folder() -> None:
    ran("listwise", "-n", "2", "--orders", "1", "-m", "fake:oracle", "-o", "run")
    before = {path: path.read_bytes() for path in Path("run").iterdir() if path.is_file()}
    refuses("run is the folder of another run", *STUDY, "-o", "run", code=1)
    assert {path: path.read_bytes() for path in Path("run").iterdir() if path.is_file()} == before
    assert not Path("runs").exists(), "refused before anything was asked"


def test_a_report_of_the_study_is_written_wherever_it_ends() -> None:
    for calls, code in (("1", 3), ("8", 3), ("99", 0)):
        shutil.rmtree("st", ignore_errors=True)
        ended = llmfair(*STUDY, "--max-calls", calls, "-o", "st", "--report")
        assert ended.code == code, ended.err
        assert "no report was written" not in ended.err and "Traceback" not in ended.err
        page = Path("st/report.html").read_text()
        assert "<h1" in page and "Windows study" in page
        assert "20/10" in page, "a setting without results is named, too"


def test_a_dry_run_asks_nothing_and_knows_what_is_answered() -> None:
    ran(*STUDY[:-1], "20/10")
    told = llmfair(*STUDY, "--dry-run").out.splitlines()
    assert [line.split()[:3] for line in told[3:5]] == [["10/5", "14", "0"], ["20/10", "6", "6"]]
    assert len([*Path("runs").iterdir()]) == 1


LISTWISE = ("calibrate", "listwise", "--runs", "10", "--injected", "-0.5")
PAIRWISE = ("calibrate", "pairwise", "--runs", "10", "--injected", "-0.3", "--conditions", "relevant")


@pytest.mark.parametrize("command", [LISTWISE, PAIRWISE], ids=["listwise", "pairwise"])
def test_a_seed_repeats_and_tsv_has_the_rows_of_json(command: tuple[str, ...]) -> None:
    results = llmfair(*command, "--json").json
    assert results["injected"] != llmfair(*command, "--seed", "1", "--json").json["injected"]
    header, *rows = [line.split("\t") for line in llmfair(*command, "--format", "tsv").out.splitlines()]
    injected = [row[header.index("injected")] for row in rows]
    assert injected == [str(row["injected"]) for row in results["injected"]] == [command[5], "0.0"]


def test_the_audit_s_configuration_is_simulated() -> None:
    Path("llmfair.toml").write_text("[pairwise]\npairs = 7\n[calibrate]\nposition = 1\nslots = 1\n")
    settings = llmfair(*PAIRWISE, "--json").json["settings"]
    assert (settings["pairs"], settings["position"]) == (7, 1.0)


def test_no_pairs() -> None:
    apart = {f"q{q}": [(f"f{q}", "female", 1), (f"m{q}", "male", 0)] for q in range(8)}
    folder = write_folder(Path("apart"), apart)
    refuses("no query has pairs of a protected and an unprotected item.", *PAIRWISE, "-d", folder)


def test_lists_of_one_side_are_left_out_and_counted() -> None:
    lists = balanced(7, 4, 4)
    lists["q6"] = [row for row in lists["q6"] if row[1] == "female"]
    folder = write_folder(Path("mine"), lists)
    told = ran(*LISTWISE, "-d", folder).out
    assert "1 query without equally relevant items of both groups left out" in told
    none = "no list has items of both groups with the same grade of relevance."
    refuses(none, *LISTWISE, "-d", folder, "--queries", "q6")
