"""The page of an adapter folder, from margins made by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmfair.io.files import json_text
from tests import models
from tests.cli.command import llmfair, ran
from tests.folders import balanced, write_folder
from tests.report.reading import read
from tests.tuning.answered import adapter


@pytest.mark.whole
@pytest.mark.parametrize("passed", [True, False])
def test_before_and_after_stand_side_by_side(passed: bool) -> None:
    found = json.loads((adapter(Path("small"), passed) / "results.json").read_text("utf-8"))
    told = llmfair("report", "small")
    assert (told.code, told.out) == (0, "small/report.html\n"), told.err
    page = read(Path("small/report.html"))
    text = "".join(page.text)
    rows = {(r["model"], r["measure"], r["stratum"], r["group"]): r for r in found["rows"]}
    for model in ("base", "adapter", "logit offset"):
        for kind in ("relevant", "irrelevant"):
            assert f"{rows[model, 'AdjustedOdds', kind, '']['value']:.3f}" in text
    for title in ("Answers on pairs", "Preference odds, before and after"):
        assert title in text
    assert ("No checkpoint kept the gates" in text) is not passed
    gain = found["gates_on_test"]["gain"]
    assert (
        f"distance from parity {gain['value']:.3f} ({'' if gain['met'] else 'not '}< {gain['limit']:.3f})"
        in text
    )
    assert len(page.named("svg")) == 3 and all("scope" in header for header in page.named("th"))
    drawings = " ".join(drawing["aria-label"] for drawing in page.named("svg"))
    for when, model in (("before", "base"), ("after", "adapter")):
        assert f"{when} {rows[model, 'SmoothedWinRatio', 'relevant', '']['value']:.2f}" in drawings
    assert json.loads(page.scripts[0]) == json.loads(json_text(found))["rows"]


# What an adapter's figures leave open stands wherever they stand: on stderr, below the table, on the page


UNKNOWN = "othing is known of the queries that made-elsewhere was trained on (it has no llmfair.json)"


@pytest.mark.whole
def test_nothing_is_known_of_the_training_of_an_adapter_made_elsewhere(tmp_path: Path) -> None:
    models.needs_local()
    base = models.causal(tmp_path / "models" / "base")
    adapter = models.adapter(base, base.parent / "made-elsewhere")
    lists = write_folder(Path("lists"), balanced(3, 4, 4))
    asked = (
        "pairwise", "-d", lists, "-m", f"hf:{base}", "--adapter", adapter, "--adapter-only", "--answers", "margin",
        "--pairs", "2", "--max-invalid", "1", "-o", "run",
    )  # fmt: skip
    found = ran(*asked)
    assert f"Warning: n{UNKNOWN}" in found.err and f"  n{UNKNOWN}" in found.out
    assert any(UNKNOWN in doubt for doubt in llmfair(*asked, "--json").json["warnings"])
    ran("report", "run")
    text = "".join(read(Path("run/report.html")).text)
    assert text.index(f"N{UNKNOWN}") < text.index("Results") < text.index(f"n{UNKNOWN}")
    ran("runs", "check", "./run")
    plain = llmfair(*asked[:5], "--answers", "margin", "--pairs", "2", "--max-invalid", "1", "-o", "plain")
    assert plain.code == 0 and UNKNOWN not in plain.err + plain.out
    several = llmfair("report", "run", "plain", "--format", "md").out
    assert several.count(f"> run: n{UNKNOWN}") == 1 and "> plain: " not in several
