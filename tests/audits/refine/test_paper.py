"""What the paper prints of itself: its appendix is sent word for word, its products are those of its means."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_rel

from llmfair.audits.aggregates import aggregate
from llmfair.audits.refine.measure import paper_tests
from llmfair.audits.refine.words import of_means, paper_table
from llmfair.metrics.base import Column, Product
from llmfair.metrics.names import parse_measure
from llmfair.prompts import load_prompt
from tests.cli.command import ran
from tests.shared import realdata, shared

VALUES = {
    "Query": "{Query}",
    "Target Exposure Distribution": "{Target Exposure Distribution}",
    "Top_K": "{Top_K}",
    "Current Exposure Distribution": "{Current Exposure Distribution}",
    "subgroup": "{subgroup}",
    "attribute": "gender",
}


def test_the_appendix_is_sent_word_for_word() -> None:
    appendix = (
        shared("spec/refine.md").read_text("utf-8").partition("## 7. Prompt and reply")[2].split("```")[1]
    )
    (message,) = load_prompt("refine").render(VALUES, "paper")
    assert message.content.split() == appendix.split()
    (asked,) = load_prompt("refine").render(VALUES, "json")
    assert asked.content.startswith(message.content)


CALLED = {
    "BM25": "bm25",
    "DLF": "dlf-like",
    "FA*IR": "fair-star",
    "FAIR-QR": "fair-qr",
    "FAIR-QR-no-rerank": "refined",
}
ATTRIBUTES = {"gender": "gender", "geo": "location"}
ROUNDED = 1.1e-4
"""How far a product may be from that of means printed to four places."""


def published() -> list[dict[str, str]]:
    with (realdata("fairrag") / "paper_tables" / "fairqr_table1.csv").open(newline="") as file:
        return [*csv.DictReader(file)]


def name(row: Mapping[str, str]) -> str:
    return CALLED.get(row["system"], row["system"].lower())


def test_table_1_of_the_published_means_has_its_products() -> None:
    """But for SBERT, whose printed product follows from no mean that is printed."""
    rows = published()
    blocks = {
        called: {name(row): of_means(float(row["ndcg20"]), float(row[f"awrf20_{short}"])) for row in rows}
        for short, called in ATTRIBUTES.items()
    }
    table = paper_table(blocks, "Table 1")
    assert table.header == (
        "method", "nDCG@20", "gender: AWRF@20", "gender: product of means", "location: AWRF@20",
        "location: product of means",
    )  # fmt: skip
    assert len(table.rows) == len(rows) == 8
    unreconciled = set()
    for row, cells in zip(rows, table.rows, strict=True):
        assert cells[0] == name(row)
        printed = [row[key] for key in ("ndcg20", "awrf20_gender", "awrf20_geo")]
        assert [cells[1], cells[2], cells[4]] == printed
        for cell, key in ((cells[3], "ndcgxawrf_gender"), (cells[5], "ndcgxawrf_geo")):
            if abs(float(cell) - float(row[key])) > ROUNDED:
                unreconciled.add(cells[0])
    assert unreconciled == {"sbert"}
    best = {(table.rows[row][0], column) for row, column in table.strong}
    assert best == {("mmr", 1), ("fair-qr", 2), ("fair-qr", 3), ("refined", 4), ("fair-qr", 5)}


def test_the_product_of_means_is_that_of_the_measure() -> None:
    for row in published():
        means = of_means(float(row["ndcg20"]), float(row["awrf20_gender"]))
        found = aggregate("product-of-means", [Product(means["utility"].value, means["fairness"].value)])
        assert found is not None and found.value == pytest.approx(means["product"].value, abs=1e-12)


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
        ran("refine", "-q", "--no-report", "--preset", "paper", "-a", attribute, "--baseline", "mmr",
            "--baseline", "deltr", "-o", attribute)  # fmt: skip
    page = ran("report", "gender", "location", "--runs-dir", ".", "--format", "md").out
    rows = [line for line in page.partition("Table 1 of the paper")[2].splitlines() if line.startswith("|")]
    header = [cell.strip() for cell in rows[0].strip("|").split("|")]
    assert header[:5] == ["method", "nDCG@20", "gender: AWRF@20", "gender: product of means",
                          "gender: mean of products"]  # fmt: skip
    assert [name for name in header if "nDCG" in name] == ["nDCG@20"]
    cells = {
        found[0]: dict(zip(header[1:], found[1:], strict=True))
        for line in rows[2:8]
        for found in [[cell.strip() for cell in line.strip("|").split("|")]]
    }
    assert [*cells] == ["bm25", "refined", "fair-qr", "mmr", "deltr", "greedy"]
    utility = {name: of["nDCG@20"].strip("*").split(" / ") for name, of in cells.items()}
    assert [len(utility[name]) for name in ("bm25", "fair-qr")] == [1, 2]
    for place, attribute in enumerate(("gender", "location")):
        results = json.loads(Path(attribute, "results.json").read_text())
        signs = {
            one["symbol"]
            for one in results["paper"]
            if (one["method"], one["measure"]) == ("fair-qr", "AWRF@20")
        }
        shown = cells["fair-qr"][f"{attribute}: AWRF@20"]
        assert all(sign.replace("*", "\\*") in shown for sign in signs)
        figures = {(row["measure"], row["condition"]): row["value"] for row in results["rows"]}
        assert f"{figures['AWRF@20', 'fair-qr']:.4f}" in shown
        product = figures["nDCG@20", "fair-qr"] * figures["AWRF@20", "fair-qr"]
        assert f"{product:.4f}" in cells["fair-qr"][f"{attribute}: product of means"]
        assert utility["fair-qr"][place].startswith(f"{figures['nDCG@20', 'fair-qr']:.4f}")
    assert "- nDCG@20 of two figures: of gender / location; the best by their mean" in page
