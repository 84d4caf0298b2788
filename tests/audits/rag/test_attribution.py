"""Which items an output is credited to, and what of it is an answer, against outputs read by hand."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from llmfair.audits.rag.design import cited, held, without_markers
from llmfair.nouns import Document
from tests.cli.command import llmfair, ran, refusal
from tests.servers import Reply, Server

SHOWN = ("a", "b", "c")
ITEMS = {
    "a": Document("a", "", "The river Rhine flows through Basel."),
    "b": Document("b", "Basel", "A town."),
    "c": Document("c", "", "basel", {"label": ("comedy",)}),
}


@pytest.mark.parametrize(
    ("output", "answer", "items"),
    [
        ("Basel [2]", "Basel", "b"),
        ("Basel [1][3].", "Basel.", "ac"),
        ("Basel [1], [3]", "Basel", "ac"),
        ("Basel [1, 2].", "Basel.", "ab"),
        ("The river [1] flows [2] on", "The river flows on", "ab"),
        ("[2] Basel", "Basel", "b"),
        ("Basel [7] [0]", "Basel", ""),
        ("Basel", "Basel", ""),
        ("Basel [see above] (2)", "Basel [see above] (2)", ""),
        ("[1]", "", "a"),
        ("<empty>", "<empty>", ""),
    ],
)
def test_markers_credit_items_and_are_no_part_of_the_answer(output: str, answer: str, items: str) -> None:
    assert without_markers(output) == answer
    assert cited(output, SHOWN) == frozenset(items)


@pytest.mark.parametrize(
    ("output", "items"), [("basel", "ab"), ("Comedy", "c"), ("RHINE  flows", "a"), ("", ""), ("<empty>", "")]
)
def test_items_hold_an_output_in_any_case_and_labelled_ones_by_their_label(output: str, items: str) -> None:
    assert held(ITEMS)(output, SHOWN) == frozenset(items)


FLAGS = ("-q", "--no-report", "--no-cache", "-k", "2", "--samples", "3", "--alpha", "1")


def questions(gold: str = "Basel") -> Path:
    texts = ["Basel lies on the Rhine.", "The Rhine flows through Basel.", "Bern is a town.", "A lamp."]
    items = [{"id": f"d{n}", "text": text} for n, text in enumerate(texts)]
    path = Path("questions.jsonl")
    path.write_text(json.dumps({"id": "q", "input": "Which town?", "gold": gold, "items": items}))
    return path


def citing(body: dict[str, Any], attempt: int) -> Reply:
    """Basel and the first item that holds it; nothing without one."""
    found = re.search(r"^\[(\d)\] .*Basel", body["messages"][-1]["content"], re.MULTILINE)
    return Reply(f"Basel [{found[1]}]" if found else "unknown")


def outputs(folder: str) -> list[dict[str, str]]:
    with Path(folder, "outputs.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_citing_generator_is_scored_without_its_markers_and_credited_by_them() -> None:
    with Server(citing) as server:
        ran("rag", "-d", questions(), "-o", "run", "--attribution", "cited", *server.flags, *FLAGS)
    assert Path("run/qrels.txt").read_text().splitlines() == ["q 0 d0 1", "q 0 d1 1", "q 0 d2 0", "q 0 d3 0"]
    lists = [line for line in outputs("run") if line["credited"] != "-"]
    assert lists and all((line["output"] == "unknown") == (line["utility"] == "0.0") for line in lists)
    for line in lists:
        shown = line["doc_ids"].split()
        assert line["credited"] == next((doc_id for doc_id in shown if doc_id in ("d0", "d1")), "")
    assert llmfair("runs", "check", "run").code == 0


def test_citing_needs_numbers_that_are_no_answers() -> None:
    asked = ("rag", "--attribution", "cited", "-d", questions())
    refusal(llmfair(*asked, "--prompt", "rag/lamp-7"), "prompt prompts/rag/lamp-7.toml numbers no items")
    asked = ("rag", "--attribution", "cited", "-d", questions("[1]"))
    refusal(llmfair(*asked), "the right answer '[1]' of query 'q' holds what would be cut")
