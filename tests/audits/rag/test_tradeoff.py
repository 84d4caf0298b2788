"""Intervals of disparity and curves of a run: worked by hand on queries of two items, of which one is shown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from llmfair.audits.rag.design import conditions_of
from llmfair.audits.rag.measure import lacking, traded
from llmfair.audits.rag.results import Curve, Intervals
from llmfair.metrics.base import measure_all
from llmfair.metrics.expected import ListSample, Retrieved
from llmfair.metrics.names import parse_measures
from tests.cli.command import llmfair

QUERIES = [f"q{number}" for number in range(6)]
BASELINE = (1.0, 1.0, 1.0, 0.0, 0.0, 0.0)
"""Utilities of the one list by score."""


def one(query_id: str, shown: float, utility: float) -> Retrieved:
    """A query whose useful item has this exposure: EE-D is (2ε − 1)², EE-R is ε."""
    return Retrieved(
        query_id=query_id,
        doc_ids=("a", "b"),
        useful=frozenset("a"),
        k=1,
        exposure={"a": shown, "b": 1 - shown},
        lists=(ListSample(("a",), 1, "answer", utility, frozenset("a")),),
    )


def found(
    of: Mapping[str, list[tuple[float, float]]], measures: str = "EE-D,EE-R,EU"
) -> tuple[Intervals, Sequence[Curve]]:
    """Of exposure and utility by query, under every alpha."""
    cost = traded_of(of, measures)
    return cost["intervals"]["bm25"], cost["tradeoff"]["bm25"]


def traded_of(of: Mapping[str, list[tuple[float, float]]], measures: str = "EE-D") -> dict[str, Any]:
    conditions = conditions_of(["bm25"], [float(alpha) for alpha in of])
    observations = {
        "bm25-deterministic": [one(*of_it) for of_it in zip(QUERIES, [1.0] * 6, BASELINE, strict=True)],
        "gold": [one(query, 1.0, 1.0) for query in QUERIES],
        **{
            f"bm25-{alpha}": [one(query, *drawn) for query, drawn in zip(QUERIES, by_query, strict=True)]
            for alpha, by_query in of.items()
        },
    }
    asked = parse_measures(measures)
    columns = measure_all([*asked, *lacking(asked)], observations)
    return traded(conditions, columns, dict.fromkeys(QUERIES, 1), 0.95)


def test_slopes_and_areas_over_observations_and_over_the_nearest_places() -> None:
    """EE-R is .5, .75, 1 at an EE-D of 0, .25, 1: .25 is nearest to .2."""
    of_relevance, of_utility, _ = found(
        {"1": [(0.5, 0.2)] * 6, "2": [(0.75, 0.2)] * 6, "8": [(1.0, 0.4)] * 6}
    )[1]
    assert (of_relevance.across, of_relevance.up) == ("EE-D", "EE-R")
    assert (of_relevance.observations, of_relevance.queries) == (18, 6)
    assert of_relevance.slope == pytest.approx(6 / 13)
    assert of_relevance.slope_of_points == pytest.approx(25 / 56)
    assert of_relevance.area == of_relevance.area_observed == pytest.approx(0.2 * 0.625 + 0.8 * 0.875)
    assert (of_relevance.low, of_relevance.high) == (0, 1)
    assert of_relevance.deterministic == (1, 1) and of_utility.deterministic == (1, 0.5)
    assert [point.at for point in of_utility.points] == [0.0, 0.2, 1.0]
    assert [point.mean.value for point in of_utility.points] == pytest.approx([0.2, 0.2, 0.4])


def test_a_pooled_cell_is_held_against_all_queries_and_a_paired_one_against_its_own() -> None:
    table, _ = found({"1": [(0.5, 0.25)] * 5 + [(0.75, 0.25)], "8": [(1.0, 0.3), (1.0, 0.5)] * 3})
    low, second, empty, _, high = table.cells
    assert (table.disparity, table.utility, table.baseline) == ("EE-D", "EU", 0.5)
    assert [cell.observations for cell in table.cells] == [5, 1, 0, 0, 6]
    assert (empty.difference, empty.starred, empty.paired) == (None, False, None)
    assert low.paired and second.paired and high.paired
    assert low.difference == pytest.approx(0.25 - 0.5) and low.paired.value == pytest.approx(0.25 - 0.6)
    assert second.p_student is None and second.paired.value == pytest.approx(0.25)
    assert (high.difference, high.paired.value) == pytest.approx((-0.1, -0.1))


def test_the_first_measure_of_a_name_counts_and_raw_ones_lie_nowhere() -> None:
    of = {"8": [(1.0, 0.4)] * 6}
    table, (first, *_) = found(of, "EE-D(norm=raw),EE-D(norm=fair-rag),EE-D,EU(norm=ceiling),EU")
    assert (table.disparity, table.utility) == ("EE-D(norm=fair-rag)", "EU(norm=ceiling)")
    assert table.baseline is None and table.cells == [], "no ceiling is known here"
    assert first.up == "EE-R", "measured where nobody asked for it"


def test_credit_stands_over_disparity_of_the_same_greatest_value() -> None:
    curves = found({"8": [(1.0, 0.4)] * 6}, "EE-D,EE-R,EU,EAR(by=cited),EAE-D(by=cited)")[1]
    assert [(one.across, one.up) for one in curves[3:]] == [
        ("EE-D", "EAR(by=cited)"), ("EE-R", "EAR(by=cited)"), ("EE-D/k'", "EAE-D(by=cited)"),
    ]  # fmt: skip
    assert curves[4].deterministic == (1, 1)


def test_every_two_alphas_are_held_against_each_other_by_query() -> None:
    """EE-D is 0 at an exposure of .5, .25 at .75, .04 at .6, 1 at 1."""
    fair, fairly, none = [(0.5, 0.2)] * 6, [(0.75, 0.2), (0.6, 0.2)] * 3, [(1.0, 0.2)] * 6
    first, second, third = traded_of({"1": fair, "2": fairly, "8": none})["alpha_tests"]["bm25"]
    assert first.conditions == ("bm25-1", "bm25-2") and first.difference == pytest.approx(0.145)
    assert first.p == pytest.approx(stats.ttest_1samp([0.25, 0.04] * 3, 0).pvalue) and first.queries == 6
    assert second.conditions == ("bm25-1", "bm25-8") and (second.difference, second.p) == (1, 0)
    assert third.difference == pytest.approx(0.855)


@pytest.mark.whole
def test_a_run_says_what_fairer_lists_cost_and_of_which_measures() -> None:
    norms = "EE-D(norm=fair-rag,of=samples),EE-R(norm=fair-rag,of=samples),EU(norm=ceiling)"
    ran = llmfair("rag", "-q", "--no-report", "--no-cache", "-o", "run", "--measures", norms)
    assert ran.code == 0, ran.err
    results = json.loads(Path("run/results.json").read_text())
    assert results["intervals"]["bm25"]["disparity"] == "EE-D(norm=fair-rag,of=samples)"
    shown = {row["condition"]: row["value"] for row in results["rows"]
             if (row["measure"], row["query_id"]) == ("EE-D(norm=fair-rag,of=samples)", "all")}  # fmt: skip
    findings, verdict = results["findings"], results["verdict"]
    assert {name: finding["disparity"] for name, finding in findings.items()} == {
        name: shown[name] for name in findings
    }
    assert f"EE-D(norm=fair-rag,of=samples) {shown[verdict['condition']]:.3f}" in verdict["sentence"]
    assert sum(cell["observations"] for cell in results["intervals"]["bm25"]["cells"]) == 8 * 4
    assert llmfair("runs", "check", "run").code == 0
