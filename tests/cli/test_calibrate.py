"""`llmfair calibrate`: what it knows of what it injected, twice the same, and what it cannot simulate."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import llmfair, ran
from tests.folders import write_folder

pytestmark = pytest.mark.whole

LISTWISE = ("calibrate", "listwise", "--runs", "10", "--injected", "-0.5")
PAIRWISE = ("calibrate", "pairwise", "--runs", "10", "--injected", "-0.3", "--conditions", "relevant")


@pytest.mark.parametrize(
    ("command", "injected", "settings", "first"),
    [
        (LISTWISE, -0.5, {"window": 20}, ["injected", "injected_odds", "odds"]),
        (PAIRWISE, -0.3, {"query_sd": 0.3}, ["condition", "injected", "injected_odds"]),
    ],
    ids=["listwise", "pairwise"],
)
def test_json_has_it_all_and_tsv_its_rows(
    command: tuple[str, ...], injected: float, settings: dict[str, float], first: list[str]
) -> None:
    found = llmfair(*command, "--json")
    results = found.json
    assert [row["injected"] for row in results["injected"]] == [injected, 0.0]
    assert (results["seed"], results["runs"]) == (0, 10) and results["settings"].items() >= settings.items()
    assert llmfair(*command, "--json").out == found.out, "twice the same"
    assert llmfair(*command, "--seed", "1", "--json").json["injected"] != results["injected"]
    header, *rows = [line.split("\t") for line in llmfair(*command, "--format", "tsv").out.splitlines()]
    assert header[:3] == first and [row[header.index("injected")] for row in rows] == [str(injected), "0.0"]
    if command == PAIRWISE:
        assert {row["condition"] for row in results["injected"]} == {"relevant"}
    assert not Path("runs").exists()


def test_the_audit_s_configuration_is_simulated() -> None:
    Path("llmfair.toml").write_text("[pairwise]\npairs = 7\n[calibrate]\nposition = 1\nslots = 1\n")
    settings = llmfair(*PAIRWISE, "--json").json["settings"]
    assert (settings["pairs"], settings["position"]) == (7, 1.0)


def test_no_pairs() -> None:
    """No query has relevant items of both sides, nor others."""
    apart = {f"q{q}": [(f"f{q}", "female", 1), (f"m{q}", "male", 0)] for q in range(8)}
    found = llmfair(*PAIRWISE, "-d", write_folder(Path("apart"), apart))
    assert found.code == 2
    assert found.err.startswith("Error: no query has pairs of a protected and an unprotected item.")


def test_lists_of_one_side_are_left_out_and_counted() -> None:
    two: list[tuple[str, str | None, int]] = [(f"f{i}", "female", i % 2) for i in range(4)]
    two += [(f"m{i}", "male", i % 2) for i in range(4)]
    one: list[tuple[str, str | None, int]] = [(f"f{i}", "female", 0) for i in range(4)]
    folder = write_folder(Path("mine"), {**{f"q{i}": two for i in range(6)}, "q6": one})
    assert (
        "1 query without equally relevant items of both groups left out" in ran(*LISTWISE, "-d", folder).out
    )
    alone = llmfair(*LISTWISE, "-d", folder, "--queries", "q6")
    assert alone.code == 2 and alone.err.startswith(
        "Error: no list has items of both groups with the same grade of relevance."
    )
