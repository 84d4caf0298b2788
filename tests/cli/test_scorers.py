"""Rankers that people have, audited from end to end: a rerank endpoint, a function of their own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import llmfair as api
from llmfair.audits.listwise import design
from tests.cli.command import llmfair, only_run, ran, refuses
from tests.servers import Endpoint, by_length

pytestmark = pytest.mark.whole

RANKER = """
async def by_length(query, documents):
    return [len(text) / 100 for text in documents]

def broken(query, documents):
    raise RuntimeError("out of memory")

def places(query, documents):
    print("a line of the ranker's own")
    return sorted(range(len(documents)), key=lambda place: len(documents[place]))

async def later(query, documents):
    return places(query, documents)
"""


def audit(url: str, *more: str) -> tuple[str, ...]:
    return ("listwise", "-m", "rerank:m", "--base-url", url, "--server-name", "test", "--no-cache", *more)


def test_an_endpoint_orders_by_its_scores_and_is_asked_once() -> None:
    with Endpoint(by_length) as server:
        assert llmfair(*audit(server.url, "--max-calls", "12")).code == 3
        found = ran(*audit(server.url, "--json"))
        lists = {body["query"] for body in server.asked}
        assert len(server.asked) == 3 * 3 * 2 + 5 and len(lists) == 8
        assert (found.json["design"]["calls"], found.json["design"]["at_most"]) == (8 * 3 * 2, True)
        assert llmfair(*audit(server.url, "--json")).out == found.out and len(server.asked) == 23
    assert found.json["design"]["strategy"] == "scores"
    texts = map(json.loads, (only_run() / "texts.jsonl").read_text().splitlines())
    titles = {row["doc_id"]: row["title"] for row in texts if "doc_id" in row}
    ranked: dict[str, list[tuple[int, str]]] = {}
    for line in next(iter((only_run() / "rankings").glob("neutral*.run"))).read_text().splitlines():
        query_id, _, doc_id, rank, *_ = line.split()
        ranked.setdefault(query_id, []).append((int(rank), doc_id))
    for rows in ranked.values():
        lengths = [len(titles[doc_id]) for _, doc_id in sorted(rows)]
        assert lengths == sorted(lengths, reverse=True)
    assert llmfair("runs", "check", only_run()).code == 0


def test_an_endpoint_is_asked_in_several_orders_where_they_matter() -> None:
    """One that adds a little to what is shown first is asked all; what is measured of one that does not is the same."""

    def by_slot(body: dict[str, Any], number: int) -> list[dict[str, Any]]:
        return [{**row, "relevance_score": row["relevance_score"] - row["index"]} for row in by_length(body)]

    with Endpoint(by_slot) as server:
        found = ran(*audit(server.url, "--json", "-o", "slots")).json
        assert len(server.asked) == 8 * 3 * 2 and sum(a["windows"] for a in found["answers"].values()) == 48
        assert not json.loads(Path("slots/manifest.json").read_text())["warnings"]
    with Endpoint(by_length) as server:
        found = ran(*audit(server.url, "--json", "-o", "blind/run")).json
        assert found["answers"]["neutral"]["windows"] == 3 * 3 + 5
        assert found["answers"]["repeat"]["windows"] == 9
        asked = len(server.asked)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(design, "FIRST_LISTS", 8)
            ran(*audit(server.url, "-o", "all/run"))
        assert len(server.asked) - asked == 48
    (said,) = json.loads(Path("blind/run/manifest.json").read_text())["warnings"]
    assert said == (
        "the first 3 lists were ranked alike in every order, so that of each other one a single order was asked: its "
        "scores stand for 25 further requests"
    )
    assert [warning for warning in found["warnings"] if warning == said]
    assert llmfair("runs", "check", "blind/run").code == 0
    files = [path.relative_to("all/run") for path in Path("all/run").glob("rankings/*")]
    assert len(files) == 6
    for name in (*files, Path("per_query.csv"), Path("scores.tsv")):
        assert Path("blind/run", name).read_bytes() == Path("all/run", name).read_bytes(), name


def test_a_function_on_the_command_line_and_in_python_agree_with_an_endpoint() -> None:
    Path("own.py").write_text(RANKER)
    with Endpoint(by_length) as server:
        of_endpoint = ran(*audit(server.url, "--json")).json
    of_function = ran("listwise", "-m", "python:own:by_length", "--json").json
    of_api = api.audit_listwise(ranker=lambda query, documents: [len(t) / 100 for t in documents]).results

    def figures(results: Mapping[str, Any]) -> list[Any]:
        keys = ("measure", "condition", "value", "low", "high")
        return [{key: row[key] for key in keys} for row in results["rows"]]

    assert figures(of_endpoint) == figures(of_function) == figures(of_api)


def test_a_ranker_that_scores_answers_pairs_too() -> None:
    """The longer title wins whatever comes first, equal lengths tie."""
    Path("own.py").write_text(RANKER)
    with Endpoint(by_length) as server:
        asked = (*"pairwise --pairs 5 -m rerank:m --base-url".split(), server.url, "--server-name", "test")
        found = ran(*asked, "--json").json
        calls = len(server.asked)
        assert all(len(body["documents"]) == 2 for body in server.asked)
        assert llmfair(*asked).code == 0 and len(server.asked) == calls
    assert llmfair("runs", "check", only_run()).code == 0
    rows = {(row["measure"], row["stratum"]): row["value"] for row in found["rows"]}
    assert rows["FlipRate", "relevant"] == rows["InvalidRate", "relevant"] == 0
    of_function = ran("pairwise", "--pairs", "5", "-m", "python:own:by_length", "--json").json
    assert of_function["rows"]
    assert {(r["measure"], r["stratum"]): r["value"] for r in of_function["rows"]} == rows


def test_what_cannot_be_asked_is_said_before_anything() -> None:
    Path("own.py").write_text(RANKER)
    refuses("--base-url", "listwise", "-m", "rerank:m")
    refuses("has no --strategy setwise", "listwise", "-m", "python:own:by_length", "--strategy", "setwise")
    refuses("scores whole lists", "listwise", "-m", "python:own:by_length", "--design", "partition")
    refuses("score lists", "listwise", "-m", "fake:biased", "--strategy", "scores")
    refuses("RuntimeError: out of memory", "listwise", "-m", "python:own:broken", code=1)


@pytest.mark.parametrize("name", ["places", "later"])
def test_what_a_ranker_prints_stays_off_stdout_and_positions_are_told_from_scores(name: str) -> None:
    Path(f"mine_{name}.py").write_text(f"print('a line of the module')\n{RANKER}")
    found = ran(
        "listwise", "-m", f"python:mine_{name}:{name}", "-n", "2", "--no-report", "--no-cache", "--json"
    )
    assert {"a line of the module", "a line of the ranker's own"} <= {*found.err.splitlines()}
    (warning,) = found.json["warnings"]
    assert warning.startswith("the scores of every list are 0 to n - 1")
    assert llmfair("runs", "check", only_run()).code == 0
