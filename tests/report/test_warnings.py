"""What an adapter's figures leave open stands wherever they stand: on stderr, below the table, on the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import models
from tests.cli.command import llmfair, ran
from tests.folders import balanced, write_folder
from tests.report.reading import read

models.needs_local()
UNKNOWN = "othing is known of the queries that made-elsewhere was trained on (it has no llmfair.json)"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.causal(tmp_path_factory.mktemp("models") / "base")


@pytest.mark.whole
def test_nothing_is_known_of_the_training_of_an_adapter_made_elsewhere(base: Path) -> None:
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
