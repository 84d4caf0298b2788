"""`--preset paper` of `llmfair rag`: what it asks for, what of it a generator cannot do, and what it cannot tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llmfair.audits.rag.settings import RagSettings
from tests.cli.command import llmfair, ran, refuses, table
from tests.servers import Reply, Server

QUICK = ("rag", "--no-report", "--no-cache", "--preset", "paper", "--retriever", "bm25-okapi")
NO_BEAMS = "has no num_beams: num_beams=4 is left out"


def credits(folder: str) -> set[tuple[str, str, str]]:
    return {
        (row["value"], row["conclusion"], row["reason"])
        for row in table(Path(folder, "metrics.csv"))
        if row["measure"].startswith(("EAR", "EAE-D"))
    }


def test_the_preset_is_what_the_paper_did() -> None:
    made = RagSettings.make("paper")
    assert made.retriever == ("bm25-okapi", "splade", "contriever") and made.alphas() == [1, 2, 4, 8]
    assert (made.samples, made.k, made.max_tokens) == (100, 5, 128) and made.preset_name() == "paper"
    assert made.attribution == "nli:FacebookAI/roberta-large-mnli" and made.hypothesis == "bare"


@pytest.mark.whole
def test_of_labels_no_entailment_is_asked_and_beams_are_left_out_where_there_are_none() -> None:
    for flags in (("-o", "run", "-v"), ("--dry-run",)):
        found = ran(*QUICK, *flags)
        assert NO_BEAMS in found.out + found.err
    assert credits("run") == {("", "not_assessable", "label_output")}
    told = json.loads(Path("run/results.json").read_text())
    assert told["design"]["uncredited"] == "label_output"
    assert NO_BEAMS in json.loads(Path("run/manifest.json").read_text())["warnings"][0]
    assert "EAR and EAE-D are not assessable" in ran("runs", "show", "run", "-v").out
    assert llmfair("runs", "check", "run").code == 0
    ran("score", "run", "-o", "again", "--no-report", "-q")
    assert credits("again") == {("", "not_assessable", "label_output")}


def test_a_server_is_asked_without_beams_and_a_judge_of_the_bare_answer() -> None:
    items = [{"id": f"d{n}", "text": f"note {n} on {word}"} for n, word in enumerate(("bees", "wax", "bees"))]
    Path("q.jsonl").write_text(json.dumps({"id": "q", "input": "what?", "gold": "bees", "items": items}))
    claims = set()

    def answer(body: dict[str, Any], attempt: int) -> Reply:
        text = body["messages"][-1]["content"]
        if "Statement: " in text:
            claims.add(text.partition("Statement: ")[2].partition("\n")[0])
            return Reply("yes")
        return Reply("bees" if "bees" in text else "none")

    with Server(answer) as server:
        flags = ("-d", "q.jsonl", "-k", "2", "--samples", "3", *server.flags, "--attribution", "openai:judge")
        found = ran(*QUICK, *flags, "-o", "run")
    assert NO_BEAMS in found.err and claims == {"bees"}
    assert {row["measure"] for row in table(Path("run/metrics.csv"))} >= {
        "EAR(by=judge)",
        "EAE-D(by=judge,norm=fair-rag,of=samples)",
    }


@pytest.mark.whole
def test_what_a_model_is_wished_to_have_is_no_demand_but_what_is_asked_of_it_is() -> None:
    refuses("fake:reader cannot do --backend-arg", "rag", "--backend-arg", "num_beams=4")
    refuses("a value of --backend-arg is not k=v", "rag", "--backend-arg", "num_beams?")
    found = ran("listwise", "-n", "1", "--backend-arg", "num_beams?=4", "--no-report", "-o", "run", "-v")
    assert f"fake:biased {NO_BEAMS}" in found.out


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ((), "answers are credited by overlap here"),
        (("--attribution", "none"), "answers are credited by nobody here"),
    ],
)
def test_credit_bears_the_way_it_is_told(flags: tuple[str, ...], says: str) -> None:
    refuses(f"--measures EAR(by=nli): {says}", "rag", "--measures", "EE-D,EAR(by=nli)", *flags)
    if not flags:
        ran("rag", "-q", "--no-report", "--measures", "EAR", "-o", "run")
        assert "EAR(by=overlap)" in {row["measure"] for row in table(Path("run/metrics.csv"))}
