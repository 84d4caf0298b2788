"""What there is to choose from: strategies with their cost, and measures with their parameters."""

from __future__ import annotations

import pytest

from llmfair import registry
from tests.cli.command import llmfair, ran


def test_strategies_are_listed_with_their_cost() -> None:
    found = {one["strategy"]: one for one in ran("strategies", "list", "--json").json["strategies"]}
    assert set(found) >= {"windows", "pointwise", "pairwise-sort", "setwise", "first", "tournament"}
    assert found["pointwise"]["plans"][0] == {"items": 40, "calls": 40, "rounds": 1, "at_most": False}
    assert found["setwise"]["parameters"] == {"c": 4, "k": 20} and found["setwise"]["plans"][0]["at_most"]
    assert found["first"]["reads"] == "log-probabilities"
    told = ran("strategies", "list").out
    assert "c=4,k=20" in told and "≤ 75 (75)" in told


def test_measures_are_listed_with_their_parameters() -> None:
    found = {one["measure"]: one for one in ran("measures", "list", "--json").json["measures"]}
    assert set(found) == {*registry.names("measure")}
    assert found["PreferenceOdds"]["parameters"] == {"of": ["answers", "ranking"]}
    assert found["overlap"]["cutoff"] == "required"
    assert "of=answers|ranking" in ran("measures", "list").out


@pytest.mark.whole
def test_strategies_are_planned_side_by_side() -> None:
    asked = tuple("listwise -n 6 --conditions neutral --strategy windows --strategy setwise:c=3".split())
    planned = llmfair("plan", *asked, "--json").json
    windows, setwise = planned["strategies"]
    assert (windows["calls"], windows["longest_chain"], windows["at_most"]) == (6 * 2 * 3 * 9, 9, False)
    assert setwise["strategy"] == "setwise:c=3,k=20" and setwise["at_most"] and planned["at_most"]
    assert planned["calls"] == windows["calls"] + setwise["calls"]
    assert 0 < windows["error"] < setwise["error"] and setwise["reach"]["low"] < 1 < setwise["reach"]["high"]
    table = llmfair("plan", *asked)
    assert table.code == 0 and "windows 20/10x3" in table.out and "together: at most" in table.out, table.err
    dry = llmfair(*asked, "--dry-run")
    assert dry.code == 0 and "setwise:c=3,k=20: at most" in dry.out
