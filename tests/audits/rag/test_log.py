"""`llmfair score LOG.jsonl`: traffic that exists is measured as a run's own lists are."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.audits.rag.test_rag import ran, value
from tests.cli.command import llmfair

CONDITION = "bm25-2"
SAME = ("EE-D(of=samples)", "EE-R(of=samples)", "EAR(by={by})", "EAE-D(by={by})", "EU")


def logged(run: Path) -> Path:
    """A run's draws of one setting as the log of a service that showed them."""
    items, useful = defaultdict(list), defaultdict(list)
    for line in (run / "qrels.txt").read_text().splitlines():
        query_id, _, doc_id, grade = line.split()
        items[query_id].append(doc_id)
        if grade == "1":
            useful[query_id].append(doc_id)
    with (run / "outputs.csv").open(newline="") as file:
        outputs = {
            (row["query_id"], row["doc_ids"]): row for row in csv.DictReader(file) if row["credited"] != "-"
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


@pytest.mark.whole
def test_a_run_s_lists_as_a_log_have_the_run_s_figures() -> None:
    measures = ",".join(SAME)
    ran("-o", "run", "--alpha", "2", "--measures", measures.format(by="overlap"))
    found = llmfair("score", logged(Path("run")), "--measures", measures.format(by="cited"), "--json")
    assert found.code == 0, found.err
    figures = {row["measure"]: row["value"] for row in found.json["rows"]}
    for measure in SAME:
        expected = value("run", CONDITION, measure.format(by="overlap"))
        assert figures[measure.format(by="cited")] == pytest.approx(expected, abs=1e-12), measure


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
        ({"query_id": "q", "shown": ["a", "a"]}, "log.jsonl:1: shown: 'a' comes twice"),
        ({"query_id": "q", "shown": ["a"], "cited": ["b"]}, "log.jsonl:1: cited: 'b' was not shown"),
        (
            {"query_id": "q", "shown": ["a", "b"], "items": ["a"]},
            "log.jsonl:1: shown: 'b' is none of the items",
        ),
        (
            {"query_id": "q", "shown": ["a"], "items": ["a"], "useful": ["c"]},
            "log.jsonl:1: useful: 'c' is none of the items",
        ),
        ({"query_id": "q", "shown": ["a"], "utility": 7}, "log.jsonl:1: utility: 7 is not from 0 to 4"),
        ({"query_id": "q", "shown": ["a"], "utility": -1}, "log.jsonl:1: utility: -1 is not from 0 to 4"),
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
