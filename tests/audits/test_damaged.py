"""Run folders whose files contradict each other: no figure of other pairs, seeds or sides than those that were asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import copied, refuses

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
        (lambda lines: lines[:-1], "verdicts on relevant pairs"),
        (lambda lines: [*lines, lines[-1]], "is not a verdict: it is there twice"),
    ],
)
def test_verdicts_that_are_lost_or_come_twice_are_said(
    kind: str, change: Callable[[Lines], Lines], says: str
) -> None:
    path = copied(kind, "run") / "verdicts.csv"
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))
    refuses(says, "score", "run")


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


def test_a_target_of_many_groups_is_read_in_no_time() -> None:
    shares = dict.fromkeys((f"g{number}" for number in range(50_000)), 1 / 50_000)
    Path("shares.json").write_text(json.dumps(shares))
    refuses("shares.json: 'g0' is no group of gender", "refine", "-n", "1", "--target", "./shares.json")
