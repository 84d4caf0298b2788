"""`--adapter`: the base and the adapter over it, one run each, side by side."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests import models
from tests.cli.command import llmfair
from tests.folders import balanced, write_folder

models.needs_local()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.causal(tmp_path_factory.mktemp("models") / "base")


@pytest.fixture(scope="module")
def fair(base: Path) -> Path:
    return models.adapter(base, base.parent / "fair")


def command(task: str, base: Path, *more: str | Path) -> list[str | Path]:
    lists = write_folder(Path("lists"), balanced(6, 8, 8))
    return [task, "-d", lists, "-m", f"hf:{base}", "--max-invalid", "1", *more]


def margins(folder: Path) -> list[str]:
    with (folder / "verdicts.csv").open() as file:
        return [row["first_margin"] for row in csv.DictReader(file)]


def test_base_and_adapter_are_asked_the_same_and_compared(base: Path, fair: Path) -> None:
    asked = ("--answers", "margin", "--pairs", "5")
    found = llmfair(*command("pairwise", base, *asked, "--adapter", fair, "--json"))
    assert found.code == 0, found.err
    assert [run["model"] for run in found.json["runs"]] == [f"hf:{base}", f"hf:{base} + fair"]
    assert {row["run"] for row in found.json["comparison"]["rows"]} == {f"hf:{base} + fair"}
    assert found.json["comparison"]["runs"][0]["model"] == f"hf:{base}"
    both = {
        json.loads((folder / "manifest.json").read_text())["model"]: folder
        for folder in Path("runs").iterdir()
    }
    plain, adapted = both[f"hf:{base}"], both[f"hf:{base} + fair"]
    assert len(margins(plain)) == len(margins(adapted)) and margins(plain) != margins(adapted)

    # The base beside an adapter is the base: an audit of it alone is this very run.
    again = llmfair(*command("pairwise", base, *asked, "--json"))
    assert again.json["run"] == plain.name and json.loads((plain / "manifest.json").read_text())["calls"] == 0
    table = llmfair(*command("pairwise", base, *asked, "--adapter", fair)).out
    assert "Compare pairwise" in table
    assert llmfair("runs", "check", adapted).code == 0


def test_the_adapter_alone(base: Path, fair: Path) -> None:
    found = llmfair(
        *command("listwise", base, "--window", "4", "--step", "2", "--passes", "1", "--orders", "1", "--variants"),
        "neutral", "--no-control", "--constrain", "--adapter", fair, "--adapter-only", "-o", "here/run", "--json",
    )  # fmt: skip
    assert found.code == 0, found.err
    assert found.json["model"] == f"hf:{base} + fair"


def test_one_folder_holds_one_run(base: Path, fair: Path) -> None:
    found = llmfair(*command("pairwise", base, "--adapter", fair, "-o", "here"))
    assert found.code == 2 and "--adapter-only" in found.err and not Path("here").exists()


def test_a_dry_run_counts_both(base: Path, fair: Path) -> None:
    alone = llmfair(*command("pairwise", base, "--dry-run", "--json")).json["calls"]
    both = llmfair(*command("pairwise", base, "--adapter", fair, "--dry-run", "--json")).json["calls"]
    assert both == 2 * alone > 0
