"""The page of an adapter folder, from margins made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llmfair.rundir import json_text
from llmfair.tuning.effects import changes
from llmfair.tuning.gates import validate
from llmfair.tuning.outcome import results_of
from tests.cli.command import llmfair
from tests.report.reading import read
from tests.tuning.test_effects import biased, figures

DESIGN = {
    "preset": None, "queries": 40, "split": {"train": 29, "validation": 3, "test": 8, "unused": 0},
    "labels": "shifted", "anchor": "relevance", "rank": 1, "form": "letter", "seed": 3, "max_prompts": 1024,
}  # fmt: skip
FACTS = {
    "words": {"protected": "female", "unprotected": "male"}, "level": 0.95, "band": [0.8, 1.25], "design": DESIGN,
    "counts": {"test": {"mixed": {"queries": 8, "pairs": 288}}},
    "overlap": {"items": 0, "train_items": 384, "pairs": 0, "dropped_items": 0, "strict": False},
}  # fmt: skip


def results(passed: bool) -> dict[str, Any]:
    before, after = biased(-1.5), biased(-0.1)
    base, adapter = figures(before, before), figures(after, before)
    training = {
        "offset": -1.5, "stopped_early": False, "steps": 4, "prompts": 1024, "best_step": 4, "modules": 8,
        "why": "no checkpoint kept the gates.", "layout": "padded", "layout_why": "as asked", "validation": validate(base, adapter).as_json(),
    }  # fmt: skip
    named = {"run": "small", "dataset": "data", "attribute": "gender", "model": "hf:org/model"}
    of = {"base": base, "adapter": adapter, "free baseline": figures(before.shifted_by(-1.5), before)}
    change = changes(before, after, 0.95)
    return results_of(named, passed, FACTS, of, change, validate(base, adapter), training)


def adapter(folder: Path, passed: bool = True) -> Path:
    """An adapter folder as far as its report reads it."""
    folder.mkdir()
    (folder / "results.json").write_text(json_text(results(passed)), encoding="utf-8")
    return folder


@pytest.mark.parametrize("passed", [True, False])
def test_before_and_after_stand_side_by_side(passed: bool) -> None:
    found = json.loads((adapter(Path("small"), passed) / "results.json").read_text("utf-8"))
    told = llmfair("report", "small")
    assert (told.code, told.out) == (0, "small/report.html\n"), told.err
    page = read(Path("small/report.html"))
    text = "".join(page.text)
    rows = {(r["model"], r["measure"], r["variant"], r["group"]): r for r in found["rows"]}
    for model in ("base", "adapter", "free baseline"):
        for kind in ("relevant", "irrelevant"):
            assert f"{rows[model, 'AdjustedOdds', kind, '']['value']:.3f}" in text
    for title in ("Answers on pairs", "Position-adjusted odds, before and after", "Position bias"):
        assert title in text
    assert ("No checkpoint kept the gates" in text) is not passed
    gates = [*found["gates_on_test"].values(), *found["training"]["validation"]["gates"].values()]
    assert {gate["met"] for gate in gates} == {True, False}
    for gate in gates:
        assert gate["text"] in text and ("(not " in gate["text"]) is not gate["met"]
    assert found["gates_on_test"]["gain"][
        "text"
    ] == "distance from parity {value:.3f} (< {limit:.3f})".format_map(found["gates_on_test"]["gain"])
    assert len(page.named("svg")) == 4 and all("scope" in header for header in page.named("th"))
    drawings = " ".join(drawing["aria-label"] for drawing in page.named("svg"))
    ratio = found["figure_4"]["relevant"]
    assert f"before {ratio['before']['ratio']['value']:.2f}" in drawings
    assert f"after {ratio['after']['ratio']['value']:.2f}" in drawings
    assert json.loads("".join(page.scripts)) == json.loads(json_text(found))["rows"]
