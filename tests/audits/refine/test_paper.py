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
from llmfair.audits.refine.words import paper_table
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
ROUNDED = 1.1e-4
"""How far a product may be from that of means printed to four places."""


def published() -> list[dict[str, str]]:
    with (realdata("fairrag") / "paper_tables" / "fairqr_table1.csv").open(newline="") as file:
        return [*csv.DictReader(file)]


def name(row: Mapping[str, str]) -> str:
    return CALLED.get(row["system"], row["system"].lower())


COLUMNS = ("ndcg20", "awrf20_gender", "ndcgxawrf_gender", "awrf20_geo", "ndcgxawrf_geo")


def test_the_printed_products_are_those_of_the_printed_means() -> None:
    """But for SBERT, whose printed product follows from no mean that is printed."""
    unreconciled = set()
    for row in published():
        for attribute in ("gender", "geo"):
            means = Product(float(row["ndcg20"]), float(row[f"awrf20_{attribute}"]))
            product = aggregate("product-of-means", [means])
            assert product is not None and product.value is not None
            if abs(product.value - float(row[f"ndcgxawrf_{attribute}"])) > ROUNDED:
                unreconciled.add(row["system"])
    assert unreconciled == {"SBERT"}


def test_the_best_of_every_column_stand_out() -> None:
    rows = published()
    means = {head: {name(row): (float(row[head]), "") for row in rows} for head in COLUMNS}
    table = paper_table(means, "Table 1")
    assert table.header == ("method", *COLUMNS) and len(table.rows) == len(rows) == 8
    best = {(table.rows[row][0], column) for row, column in table.strong}
    assert best == {("mmr", 1), ("fair-qr", 2), ("fair-qr", 3), ("refined", 4), ("fair-qr", 5)}


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
    heads = ("nDCG@20", "AWRF@20", "product of means", "mean of products")
    assert header == ["method", *(f"{of}: {head}" for of in ("gender", "location") for head in heads)]
    cells = {
        line[0]: dict(zip(header[1:], line[1:], strict=True))
        for line in ([cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:8])
    }
    assert [*cells] == ["bm25", "refined", "fair-qr", "mmr", "deltr", "greedy"]
    for attribute in ("gender", "location"):
        results = json.loads(Path(attribute, "results.json").read_text())
        signs = {
            test["symbol"]
            for test in results["paper"]
            if (test["method"], test["measure"]) == ("fair-qr", "AWRF@20")
        }
        shown = cells["fair-qr"][f"{attribute}: AWRF@20"]
        assert all(sign.replace("*", "\\*") in shown for sign in signs)
        figures = {(row["measure"], row["condition"]): row["value"] for row in results["rows"]}
        utility, fairness = figures["nDCG@20", "fair-qr"], figures["AWRF@20", "fair-qr"]
        assert f"{fairness:.4f}" in shown and f"{utility:.4f}" in cells["fair-qr"][f"{attribute}: nDCG@20"]
        assert f"{utility * fairness:.4f}" in cells["fair-qr"][f"{attribute}: product of means"]
