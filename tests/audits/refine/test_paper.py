"""What the paper prints of itself: its appendix is sent word for word, its products are those of its means."""

from __future__ import annotations

import csv

import pytest

from llmfair.audits.summary import aggregate
from llmfair.metrics.values import Product
from llmfair.prompts import load_prompt
from tests.shared import SHARED, realdata

VALUES = {
    "Query": "{Query}",
    "Target Exposure Distribution": "{Target Exposure Distribution}",
    "Top_K": "{Top_K}",
    "Current Exposure Distribution": "{Current Exposure Distribution}",
    "subgroup": "{subgroup}",
    "attribute": "gender",
}


def test_the_appendix_is_sent_word_for_word() -> None:
    page = SHARED / "spec" / "refine.md"
    if not page.is_file():
        pytest.skip(f"no text of the appendix at {page}")
    appendix = page.read_text("utf-8").partition("## 7. Prompt and reply")[2].split("```")[1]
    (message,) = load_prompt("refine").render(VALUES, "paper")
    assert message.content.split() == appendix.split()
    (asked,) = load_prompt("refine").render(VALUES, "json")
    assert asked.content.startswith(message.content)


def test_table_1_has_the_products_of_its_means() -> None:
    """But for SBERT, whose printed product follows from neither."""
    with (realdata("fairrag") / "paper_tables" / "fairqr_table1.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["system"] != "SBERT"]
    assert len(rows) == 7
    for row in rows:
        for attribute in ("gender", "geo"):
            means = Product(float(row["ndcg20"]), float(row[f"awrf20_{attribute}"]))
            found = aggregate("product-of-means", [means])
            assert found is not None
            assert found.value == pytest.approx(float(row[f"ndcgxawrf_{attribute}"]), abs=1.1e-4), row
