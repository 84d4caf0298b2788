"""Run folders whose files contradict each other: no figure of other pairs, seeds or sides than those that were asked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import copied, llmfair, ran, refuses

Lines = list[str]


def changed(path: Path, name: str, value: Any) -> None:
    """The value at a path of names such as `settings.seed`."""
    document = json.loads(path.read_text())
    *outer, last = name.split(".")
    holder = document
    for one in outer:
        holder = holder[one]
    holder[last] = value
    path.write_text(json.dumps(document))


@pytest.mark.parametrize("kind", ["pairwise", "sequential"])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda lines: lines[: len(lines) // 2], "verdicts.csv has "),
        (lambda lines: lines[:-1], "verdicts on relevant pairs"),
        (lambda lines: [*lines, lines[-1]], "is not a verdict: it is there twice"),
        (
            lambda lines: [*lines[:-1], lines[-1].replace(",0,", ",0_0,")],
            "is not a verdict: '0_0' is not an integer",
        ),
    ],
)
def test_verdicts_that_are_lost_or_come_twice_are_said(
    kind: str, change: Callable[[Lines], Lines], says: str
) -> None:
    path = copied(kind, "run") / "verdicts.csv"
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))
    refuses(says, "score", "run")


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [("pairwise", "seed", 7), ("pairwise", "repeats", 2), ("listwise", "seed", 7)],
)
def test_results_that_say_otherwise_than_the_manifest_how_was_asked_are_refused(
    kind: str, name: str, value: int
) -> None:
    changed(copied(kind, "run") / "results.json", f"design.{name}", value)
    refuses(f"results.json: `design.{name}` is {value}, but manifest.json has ", "score", "run")


@pytest.mark.whole
@pytest.mark.parametrize("seed", [None, "x", [], 1e999, 2**70])
def test_a_report_draws_its_evidence_by_the_seed_of_the_results(seed: Any) -> None:
    changed(copied("listwise", "run") / "manifest.json", "settings.seed", seed)
    found = llmfair("report", "run")
    assert found.code in (0, 2) and "unexpected" not in found.err, found.err


BROKEN = [
    {"x": 1},
    {"name": "gender", "protected": ["female"], "unprotected": ["male"], "other": [], "words": {}},
]


@pytest.mark.parametrize("attribute", BROKEN)
def test_an_attribute_of_a_manifest_that_is_none_is_named(attribute: dict[str, Any]) -> None:
    whole = copied("listwise", "whole")
    changed(copied("listwise", "run") / "manifest.json", "settings.attribute", attribute)
    refuses("run/manifest.json: settings: ", "compare", whole, "run")
    refuses("run/manifest.json: settings: ", "score", "run")


def test_of_refinement_too() -> None:
    ran("refine", "-n", "1", "-o", "whole", "--no-report", "--no-cache")
    for attribute in BROKEN:
        shutil.rmtree("run", ignore_errors=True)
        shutil.copytree("whole", "run")
        changed(Path("run/manifest.json"), "settings.attribute", attribute)
        refuses("run/manifest.json: settings: ", "compare", "whole", "run")
        refuses("run/manifest.json: settings: ", "score", "run")


def test_a_target_of_many_groups_is_read_in_no_time() -> None:
    shares = dict.fromkeys((f"g{number}" for number in range(50_000)), 1 / 50_000)
    Path("shares.json").write_text(json.dumps(shares))
    refuses("shares.json: 'g0' is no group of gender", "refine", "-n", "1", "--target", "./shares.json")
