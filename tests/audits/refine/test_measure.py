"""What is concluded of changes from the original query and from controls, and what the paper prints of itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_rel

from llmfair.audits.aggregates import Inference
from llmfair.audits.refine.measure import Contrasts, contrast, controls_of, finding_of, paper_tests
from llmfair.audits.refine.results import RefineFinding
from llmfair.audits.refine.words import paper_table, status_of
from llmfair.metrics.base import Column
from llmfair.metrics.names import parse_measure
from llmfair.nouns import Conclusion
from llmfair.prompts import load_prompt
from tests.cli.command import ran
from tests.shared import shared

GOALS = ("KL@20", "AWRF@20", "nDCG@20")
RULE = RefineFinding(
    measure=GOALS[0], aimed=GOALS[1], utility=GOALS[2], margin=0.05, reason=None,
    conclusion=Conclusion.NOT_ASSESSABLE,
)  # fmt: skip
EVEN = (0.9, 1.1, 0.95, 1.05, 0.98, 1.02, 1.0, 1.0)
"""Eight topics' changes as multiples of their mean, which is 1."""


def contrasts(**changes: Sequence[Sequence[float]]) -> Contrasts:
    """Of the topics' changes in KL, AWRF and nDCG, by method."""
    return {
        (measure, method): contrast(measure, method, [(0.0, change) for change in of], Inference())
        for method, by_measure in changes.items()
        for measure, of in zip(GOALS, by_measure, strict=True)
    }


def concluded(**changes: Sequence[Sequence[float]]) -> RefineFinding:
    controls = [name for name in changes if name != "bm25"]
    return finding_of(RULE, controls, contrasts(**changes), 0.95)


def each(*means: float) -> list[list[float]]:
    return [[mean * of for of in EVEN] for mean in means]


def test_a_change_has_its_interval_its_test_and_the_topics_that_differ() -> None:
    found = contrast("AWRF@20", "bm25", [(0.5, 0.7), (0.5, 0.6), (0.5, 0.5), (0.5, 0.5 + 1e-12)], Inference())
    assert found.changed == 2 and found.row.condition == "fair-qr vs bm25"
    assert found.row.value == pytest.approx(0.075) and found.row.p is None  # no test of fewer than six
    six = contrast("AWRF@20", "bm25", [(0.0, of) for of in (1, 2, 3, 4, 5, 6)], Inference())
    assert six.row.p == pytest.approx(2 / 64)  # all signs alike, or all turned
    assert six.row.low == pytest.approx(3.5 - 2.5706 * 3.5**0.5 / 6**0.5, abs=1e-4)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"bm25": each(-0.2, 0.05, 0.01)}, "nearer"),  # a folder without controls
        ({"bm25": each(-0.2, 0.05, 0.01), "greedy": each(-0.1, 0.02, 0)}, "nearer"),
        ({"bm25": each(-0.2, 0.05, -0.03), "greedy": each(-0.1, 0.02, 0)}, "nearer at a loss"),
        # nothing judged
        ({"bm25": each(-0.2, 0.05, 0), "greedy": each(-0.1, 0.02, 0)}, "nearer at open cost"),
        ({"bm25": each(-0.2, 0.05, 0.01), "greedy": each(0.1, 0.02, 0)}, "no nearer than without a model"),
        ({"bm25": each(-0.2, 0.05, 0.01), "greedy": each(-0.1, 0, 0)}, "nearer"),
        ({"bm25": each(-0.2, 0.05, 0.01), "greedy": each(-0.1, -0.02, 0)}, "no nearer than without a model"),
        ({"bm25": each(-0.2, 0.05, 0.01), "greedy": each(0, 0.02, 0)}, "inconclusive"),
        ({"bm25": each(-0.2, 0, 0.01), "greedy": each(-0.1, 0.02, 0)}, "inconclusive"),
        (
            {"bm25": each(-0.2, 0.05, 0.01), "greedy": each(-0.1, 0.02, 0), "name": each(0, 0, 0)},
            "inconclusive",
        ),
        ({"bm25": each(-0.2, -0.05, 0.01), "greedy": each(-0.1, 0.02, 0)}, "no nearer"),
        ({"bm25": each(0, 0, 0), "greedy": each(0.1, -0.02, 0)}, "no nearer than without a model"),
        ({"bm25": each(0, 0, 0), "greedy": each(0, 0, 0)}, "inconclusive"),
    ],
)
def test_the_status_follows_from_both_goals_every_control_and_the_cost(
    changes: dict[str, list[list[float]]], status: str
) -> None:
    assert status_of(concluded(**changes)) == status


def test_losses_that_reach_the_margin_leave_the_cost_open() -> None:
    losses = [0.02, -0.09, 0.03, -0.1, 0.05, -0.08, 0.04, 0.06]
    finding = concluded(bm25=[*each(-0.2, 0.05), losses])
    assert finding.loss is None and status_of(finding) == "nearer at open cost"


def test_of_several_controls_the_nearest_is_named() -> None:
    finding = concluded(bm25=each(-0.2, 0.05, 0.01), name=each(-0.15, 0.03, 0), greedy=each(-0.1, 0.02, 0))
    assert finding.control == "greedy" and finding.beyond is True
    assert controls_of({"a": "greedy:lambda=0.9", "name": "fake:name", "mmr": "mmr"}) == ["a", "name"]


def test_five_changed_topics_say_nothing_however_large_and_alike_their_changes_are() -> None:
    five = [1.0] * 5 + [0.0] * 7
    finding = concluded(bm25=[[-of for of in five], five, five])
    assert status_of(finding) == "inconclusive" and finding.reason == "few_changed" and finding.changed == 5


def test_a_claim_never_goes_without_interval_and_test() -> None:
    rng = np.random.default_rng(9)
    for _ in range(300):
        n, skew = int(rng.integers(5, 16)), rng.exponential(size=(2, 3, 15)) ** 3 - 1
        changes = {
            name: [[*map(float, of[:n])] for of in by]
            for name, by in zip(("bm25", "greedy"), skew, strict=True)
        }
        made, finding = contrasts(**changes), concluded(**changes)
        for claim, method in ((finding.nearer, "bm25"), (finding.beyond, "greedy")):
            rows = [made[name, method].row for name in GOALS[:2]]
            certain = [
                bool(row.low and row.high and row.low * row.high > 0 and (row.p or 1) <= 0.05) for row in rows
            ]
            assert claim is not True or (all(certain) if method == "bm25" else certain[0])
            assert claim is not False or any(certain)


SHOWN = ("Query", "Target Exposure Distribution", "Top_K", "Current Exposure Distribution", "subgroup")
VALUES = {name: f"{{{name}}}" for name in SHOWN} | {"attribute": "gender"}


def test_the_appendix_is_sent_word_for_word() -> None:
    appendix = (
        shared("spec/refine.md").read_text("utf-8").partition("## 7. Prompt and reply")[2].split("```")[1]
    )
    (message,) = load_prompt("refine").render(VALUES, "paper")
    assert message.content.split() == appendix.split()
    (asked,) = load_prompt("refine").render(VALUES, "json")
    assert asked.content.startswith(message.content)


def test_the_best_of_every_column_stand_out() -> None:
    means = {
        "nDCG@20": {"bm25": (0.4, ""), "mmr": (0.5, ""), "fair-qr": (0.3, "*")},
        "AWRF@20": {"bm25": (0.8, ""), "fair-qr": (0.8, "‡")},
        "product": dict[str, tuple[float, str]](),
    }
    table = paper_table(means, "Table 1")
    assert table.header == ("method", "nDCG@20", "AWRF@20")
    assert [row[0] for row in table.rows] == [*means["nDCG@20"]]
    assert table.rows[2] == ("fair-qr", "0.3000*", "0.8000‡") and table.rows[1][2] == ""
    assert table.strong == {(1, 1), (0, 2), (2, 2)}
    assert "better than * bm25, ‡ mmr" in table.notes[1]


def column(measure: str, condition: str, values: Sequence[float]) -> Column:
    queries = {f"q{place}": value for place, value in enumerate(values)}
    return Column(parse_measure(measure), condition, "", queries)


def test_signs_stand_where_refinement_is_better_and_the_paired_t_says_so() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 0.05, (3, 20))
    base = np.full(20, 0.5) + noise[0]
    higher, lower, same = base + 0.1 + noise[1], base - 0.1 + noise[1], base + 0.001 + noise[2]
    for measure, better, worse in (("AWRF@20", higher, lower), ("KL@20", lower, higher)):
        for values, sign in ((better, "‡"), (worse, ""), (same, ""), (base, "")):
            columns = [column(measure, "fair-qr", values.tolist()), column(measure, "mmr", base.tolist())]
            (found,) = paper_tests(columns)
            assert (found.method, found.against, found.symbol) == ("fair-qr", "mmr", sign)
            if values is base:
                assert found.p is None
            else:
                assert found.p == pytest.approx(ttest_rel(values, base).pvalue, rel=1e-9)
    (greedy,) = paper_tests(
        [column("AWRF@20", "fair-qr", higher.tolist()), column("AWRF@20", "greedy", base.tolist())]
    )
    assert greedy.symbol == "" and greedy.p is not None and greedy.p < 0.05, "the paper has no sign of it"


@pytest.mark.whole
def test_two_attributes_stand_side_by_side_as_in_table_1() -> None:
    for attribute in ("gender", "location"):
        ran("refine", "-q", "--no-report", "--preset", "paper", "-a", attribute, "-n", "6", "-o", attribute)
    page = ran("report", "gender", "location", "--runs-dir", ".", "--format", "md").out
    rows = [line for line in page.partition("Table 1 of the paper")[2].splitlines() if line.startswith("|")]
    header, *cells = ([cell.strip() for cell in row.strip("|").split("|")] for row in (rows[0], *rows[2:6]))
    heads = ("nDCG@20", "AWRF@20", "product of means", "mean of products")
    assert header == ["method", *(f"{of}: {head}" for of in ("gender", "location") for head in heads)]
    assert [name for name, *_ in cells] == ["bm25", "refined", "fair-qr", "greedy"]
    for place, attribute in ((1, "gender"), (5, "location")):
        rows_of = json.loads(Path(attribute, "results.json").read_text())["rows"]
        figures = {(row["measure"], row["condition"]): row["value"] for row in rows_of}
        utility, fairness = figures["nDCG@20", "fair-qr"], figures["AWRF@20", "fair-qr"]
        for cell, value in zip(cells[2][place:], (utility, fairness, utility * fairness), strict=False):
            assert f"{value:.4f}" in cell
