"""A measure of pairs and an aggregate of another package, installed, through the command line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.cli.command import Outcome, process

MODULE = '''
from llmfair.metrics.base import measure
from llmfair.metrics.pairs import JudgedPairs
from llmfair.metrics.base import Undefined
from llmfair.registry import register
from llmfair.stats.intervals import Estimate


@measure("Asked", reads=JudgedPairs, params={"agg": ("most", "mean")}, undefined={"none": "nothing was asked"})
def asked(pairs, cutoff, agg):
    """How many pairs of a query have a verdict that counts."""
    counted = int((pairs.draws < pairs.repeats).sum())
    return {"": float(counted) if counted else Undefined("none")}


@register("aggregate", "most")
def most(values, inference):
    """The greatest of all queries."""
    return Estimate(max(values), None, None, len(values), "no_interval")
'''


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package on the path of new processes, as pip leaves it."""
    site = tmp_path / "site"
    info = site / "theirs-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "theirs.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[llmfair.measures]\nAsked = theirs:asked\n\n[llmfair.aggregates]\nmost = theirs:most\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), *sys.path]))


def asked(*arguments: str) -> Outcome:
    with process(*arguments) as running:
        out, err = running.communicate()
    return Outcome(running.returncode, out, err)


@pytest.mark.whole
@pytest.mark.usefixtures("installed")
def test_they_are_measured_gated_and_refused_for_lists() -> None:
    found = asked(
        *("pairwise", "-n", "6", "--pairs", "4", "--measures", "Asked,asked(agg=mean)"),
        *("--require", "Asked>=4", "--require", "Asked(agg=mean)<=3", "--json"),
    )
    results = found.json
    rows = {row["measure"]: row for row in results["rows"] if row["condition"] == "relevant"}
    assert results["measures"] == ["Asked", "Asked(agg=mean)", "AdjustedOdds"]
    assert rows["Asked"]["value"] == 4 and rows["Asked"]["reason"] == "no_interval"
    assert rows["Asked(agg=mean)"]["value"] <= 4
    assert found.code == 4 and [entry["holds"] for entry in results["requirements"]][:2] == [True, True]
    assert "Asked(agg=mean) (relevant pairs)" in found.err
    refused = asked("listwise", "--measures", "Asked")
    assert refused.code == 2
    assert "Asked is a measure of pairs, but this audit asks about lists." in refused.err
