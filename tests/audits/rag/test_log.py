"""`llmfair score LOG.jsonl`: traffic that exists is measured as a run's own lists are."""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from llmfair.audits.rag.design import cited, held, without_markers
from llmfair.nouns import Document
from tests.audits.rag.test_rag import ran, value
from tests.cli.command import llmfair, refusal, table
from tests.cli.command import ran as done
from tests.servers import Reply, Server

CONDITION = "bm25-2"


def logged(run: Path) -> Path:
    """A run's draws of one setting as the log of a service that showed them."""
    items, useful = defaultdict(list), defaultdict(list)
    for line in (run / "qrels.txt").read_text().splitlines():
        query_id, _, doc_id, grade = line.split()
        items[query_id].append(doc_id)
        if grade == "1":
            useful[query_id].append(doc_id)
    outputs = {
        (row["query_id"], row["doc_ids"]): row for row in table(run / "outputs.csv") if row["credited"] != "-"
    }
    shown: dict[tuple[str, str], list[str]] = defaultdict(list)
    with (run / "samples" / f"{CONDITION}.tsv").open(newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            shown[row["qid"], row["sample"]].append(row["docno"])
    path = Path("traffic.jsonl")
    with path.open("w") as file:
        for (query_id, _), doc_ids in shown.items():
            output = outputs[query_id, " ".join(doc_ids)]
            request = {
                "query_id": query_id,
                "shown": doc_ids,
                "items": items[query_id],
                "useful": useful[query_id],
                "output": output["output"],
                "utility": float(output["utility"]),
                "cited": output["credited"].split(),
            }
            file.write(json.dumps(request) + "\n")
    return path


def lines(*rows: dict[str, Any] | str) -> Path:
    path = Path("log.jsonl")
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_by_hand() -> None:
    """Query q shows {a, b} and {a, c} of four items: ε̂ = (1, ½, ½, 0), so Σ ε̂² = 1.5 and unbiased (2·1.5 − 2)/1."""
    path = lines(
        {"query_id": "q", "shown": ["a", "b"], "items": ["a", "b", "c", "d"], "output": "x", "gold": "x"},
        {"query_id": "q", "shown": ["a", "c"], "output": "y", "gold": ["x", "z"], "cited": ["c"]},
    )
    found = llmfair("score", path, "--measures", "EE-D(norm=raw,of=samples),EE-D(norm=raw),EU", "--per-query")
    assert found.code == 0, found.err
    rows = csv.DictReader(found.out.splitlines(), dialect="excel-tab")
    of_query = {row["measure"]: float(row["value"]) for row in rows if row["query_id"] == "q"}
    assert of_query == {"EE-D(norm=raw,of=samples)": 1.5, "EE-D(norm=raw)": 1.0, "EU": 0.5}


def test_a_log_concludes_nothing_and_says_why() -> None:
    path = lines(*({"query_id": f"q{n}", "shown": ["a", "b"]} for n in range(6)))
    found = llmfair("score", path)
    assert found.code == 0 and found.out.startswith("VERDICT  not assessable: a log says")


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"query_id": "q", "shown": []}, "log.jsonl:1: shown: is empty"),
        ({"query_id": "q", "shown": ["a"], "cited": ["b"]}, "log.jsonl:1: cited: 'b' is not in `shown`"),
        ({"query_id": "q", "shown": ["a", "b"], "items": ["a"]}, "log.jsonl:1: shown: 'b' is not in `items`"),
        ({"query_id": "q", "shown": ["a"], "utility": 7}, "log.jsonl:1: utility: expected `float` <= 4.0"),
        ({"shown": ["a"]}, "log.jsonl:1: query_id: is missing"),
        ('{"query_id": "q", "sho', "log.jsonl:1: not JSON"),
        ("", "log.jsonl: holds no request"),
    ],
)
def test_bad_lines_are_named(row: dict[str, Any] | str, says: str) -> None:
    found = llmfair("score", lines(row))
    assert found.code == 2 and says in found.err and "Traceback" not in found.err


def test_logs_stand_by_themselves() -> None:
    ran("-o", "run", "--alpha", "2", "-n", "5")
    found = llmfair("score", lines({"query_id": "q", "shown": ["a"]}), "run")
    assert found.code == 2 and "logs are measured by themselves" in found.err


@pytest.mark.whole
def test_a_log_of_a_run_s_lists_has_its_figures() -> None:
    measures, credit = ["EE-D(of=samples)", "EE-R(of=samples)", "EU"], ["EAR(by={by})", "EAE-D(by={by})"]
    of_run, of_log = ([*measures, *(name.format(by=by) for name in credit)] for by in ("overlap", "cited"))
    ran("--alpha", "2", "--samples", "8", "--measures", ",".join(of_run), "-o", "run")
    scored = done("score", logged(Path("run")), "--measures", ",".join(of_log), "--json").json
    assert {row["measure"]: row["value"] for row in scored["rows"]} == pytest.approx(
        {name: value("run", CONDITION, of) for name, of in zip(of_log, of_run, strict=True)}, abs=1e-12
    )


# Which items an output is credited to, and what of it is an answer, against outputs read by hand


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


def test_a_citing_generator_is_scored_without_its_markers_and_credited_by_them() -> None:
    with Server(citing) as server:
        done("rag", "-d", questions(), "-o", "run", "--attribution", "cited", *server.flags, *FLAGS)
    assert Path("run/qrels.txt").read_text().splitlines() == ["q 0 d0 1", "q 0 d1 1", "q 0 d2 0", "q 0 d3 0"]
    lists = [line for line in table(Path("run/outputs.csv")) if line["credited"] != "-"]
    assert lists and all((line["output"] == "unknown") == (line["utility"] == "0.0") for line in lists)
    for line in lists:
        shown = line["doc_ids"].split()
        assert line["credited"] == next((doc_id for doc_id in shown if doc_id in ("d0", "d1")), "")
    assert llmfair("runs", "check", "run").code == 0


def test_citing_needs_numbers_that_are_no_answers() -> None:
    asked = ("rag", "--attribution", "cited", "-d", questions())
    refusal(llmfair(*asked, "--prompt", "rag/lamp-7"), "prompt prompts/rag/lamp-7.toml numbers no items")
    asked = ("rag", "--attribution", "cited", "-d", questions("[1]"))
    refusal(llmfair(*asked), "query 'q' lacks a right answer without a number as in [1]")
