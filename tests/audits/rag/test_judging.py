"""Attribution by a model that judges: a second stage with its journal, resumed, replayed and measured like the first."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from llmfair.audits.rag import design
from tests.cli.command import Outcome, llmfair, ran, refusal, table
from tests.servers import Reply, Server

QUICK = ("rag", "-q", "--no-report", "--no-cache")
CREDIT = "EAR(by={by}),EAE-D(by={by}),AttributionAt(by={by})"


def values(folder: str, by: str) -> dict[tuple[str, ...], str]:
    return {
        (line["condition"], line["measure"].partition("(")[0], line["group"]): line["value"] or line["reason"]
        for line in table(Path(folder, "metrics.csv"))
        if f"by={by}" in line["measure"]
    }


def attributed(folder: str, *more: str | Path, by: str = "judge") -> Outcome:
    return ran(*QUICK, "-o", folder, "--alpha", "1,8", "--measures", CREDIT.format(by=by), *more)


def journal(folder: str) -> list[dict[str, Any]]:
    lines = Path(folder, "attribution.jsonl").read_text().splitlines()
    return [row for line in lines if "key" in (row := json.loads(line))]


@pytest.mark.whole
def test_a_simulated_judge_finds_what_labels_say() -> None:
    attributed("judged", "--attribution", "fake:reader")
    attributed("held", by="overlap")
    found = values("judged", "judge")
    assert len(found) == 4 * 7 and found == values("held", "overlap")
    asked = Counter(
        (row["about"]["query_id"], *row["about"]["doc_ids"], row["about"]["output"])
        for row in journal("judged")
    )
    assert set(asked.values()) == {1}
    told = json.loads(Path("judged/results.json").read_text())
    assert told["judged"] | {"supported": 0} == {
        "model": "fake:reader", "by": "judge", "asked": len(asked), "supported": 0, "unparseable": 0,
    }  # fmt: skip
    outputs = len(Path("judged/journal.jsonl").read_text().splitlines()) - 1
    assert told["calls_made"] == told["design"]["calls"] == outputs + len(asked)


@pytest.mark.whole
def test_a_judged_run_is_resumed_and_replayed_without_the_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ("--attribution", "fake:reader")
    attributed("whole", *flags)
    outputs = len(Path("whole/journal.jsonl").read_text().splitlines()) - 1
    cut = llmfair(
        *QUICK,
        *"-o parts --alpha 1,8 --measures".split(),
        CREDIT.format(by="judge"),
        *flags,
        "--max-calls",
        f"{outputs + 9}",
    )
    assert cut.code == 3 and len(journal("parts")) == 9
    attributed("parts", *flags)
    for name in ("outputs.csv", "per_query.csv", "qrels.txt"):
        assert Path("parts", name).read_text().replace("parts", "whole") == Path("whole", name).read_text()
    assert len({row["key"] for row in journal("parts")}) == len(journal("parts")) == len(journal("whole"))
    monkeypatch.setattr(design, "backend_of", None)
    assert llmfair("runs", "check", "parts").code == 0
    path = Path("parts/attribution.jsonl")
    path.write_text(path.read_text().replace('"text":"yes"', '"text":"no"', 1))
    assert llmfair("runs", "check", "parts").code != 0


def test_what_cannot_be_read_is_left_out_and_counted_and_nothing_is_asked_of_no_answer() -> None:
    items = [{"id": name, "text": f"{name} says {text}"} for name, text in zip("abcd", "1100", strict=True)]
    Path("q.jsonl").write_text(json.dumps({"id": "q", "input": "one?", "gold": "one", "items": items}))
    judged = []

    def answer(body: dict[str, Any], attempt: int) -> Reply:
        text = body["messages"][-1]["content"]
        if "Statement:" not in text:
            return Reply("one" if "says 1" in text else " ... ")
        judged.append(text)
        return Reply("maybe" if "a says" in text else "yes")

    with Server(answer) as server:
        found = attributed(
            *"run -d q.jsonl -k 2".split(),
            *server.flags,
            *"--attribution openai:judge --max-invalid 1 --json".split(),
        )
    assert len(judged) == len({*judged}) <= 4 and all("Statement: one" in text for text in judged)
    told = found.json["judged"]
    assert (told["asked"], told["supported"], told["unparseable"]) == (len(judged), len(judged) - 1, 1)
    lists = [line for line in table(Path("run/outputs.csv")) if " " in line["doc_ids"]]
    for line in lists:
        shown = line["doc_ids"].split()
        empty = line["output"] == "<empty>"
        assert line["credited"] == ("" if empty else "-" if "a" in shown else " ".join(shown)), line
    assert "1 answer is neither yes nor no" in ran("runs", "show", "run", "-v").out
    assert llmfair("runs", "show", "run", "--invalid").out.count("neither yes nor no") == 1


def test_who_cannot_judge_is_refused_before_anything_is_asked() -> None:
    for given, says in (
        ("overlab", "Did you mean 'overlap'?"),
        ("openay:x", "--attribution openay:x is unknown."),
        ("fake:redaer", "no simulated model 'fake:redaer'"),
    ):
        refusal(llmfair(*QUICK, "--attribution", given), says)
    assert not Path("runs").exists()


@pytest.mark.whole
def test_a_run_s_judge_stays() -> None:
    attributed("run", "--attribution", "fake:reader")
    refusal(
        llmfair(*QUICK, "-o", "run", "--attribution", "fake:reader,malformed=0.5"),
        "run belongs to other settings",
        code=1,
    )
    attributed("other", by="overlap")
    refusal(llmfair("compare", "run", "other"), "credit answers in different ways")


def test_a_judge_beside_cited_is_asked_of_citations_alone() -> None:
    """a and c hold the answer, b does not; every answer cites its first two items."""
    items = [{"id": name, "text": f"{name} says {text}"} for name, text in zip("abc", "101", strict=True)]
    Path("q.jsonl").write_text(json.dumps({"id": "q", "input": "one?", "gold": "one", "items": items}))
    judged = []

    def answer(body: dict[str, Any], attempt: int) -> Reply:
        text = body["messages"][-1]["content"]
        if "Statement:" not in text:
            return Reply("one [1][2]" if "says 1" in text else "none [1]")
        judged.append(text)
        return Reply("yes" if "says 1" in text else "no")

    flags = ("-d", "q.jsonl", "-k", "3", "--samples", "3", "--attribution", "cited,openai:judge")
    with Server(answer) as server:
        ran(*QUICK, "-o", "run", "--alpha", "1", *flags, *server.flags)
    assert len(judged) == 3 and all("Statement: one\n" in text for text in judged)
    lists = [line for line in table(Path("run/outputs.csv")) if len(line["doc_ids"].split()) == 3]
    for line in lists:
        cited = line["doc_ids"].split()[:2]
        assert line["credited"].split() == cited
        assert line["supported"].split() == [name for name in cited if name != "b"]

    def figures(folder: str) -> dict[str, str]:
        return {
            line["measure"]: line["value"]
            for line in table(Path(folder, "metrics.csv"))
            if line["condition"] == "bm25-deterministic" and not line["group"]
        }

    found, first = figures("run"), lists[0]["supported"].split()
    assert float(found["CitationPrecision"]) == len(first) / 2 and float(found["CitationRecall"]) == 1
    assert float(found["EAR(by=cited)"]) == pytest.approx(2 / 3)
    ran("score", "run", "-o", "again", "--no-report", "-q")
    assert figures("again") == found
    assert llmfair("runs", "check", "run").code == 0
    refusal(llmfair(*QUICK, "--attribution", "cited,overlap"), "--attribution overlap is unknown")
