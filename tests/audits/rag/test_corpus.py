"""A stranger's corpus: 500 chunks, 20 questions, a server; answers cite their chunks, and their log says the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.audits.rag.test_log import logged
from tests.audits.rag.test_rag import ran, value
from tests.cli.command import llmfair
from tests.servers import Reply, Server

TOPICS = [f"topic{number:02}" for number in range(20)]
SAME = ("EE-D(of=samples)", "EE-R(of=samples)", "EAR(by=cited)", "EAE-D(by=cited)", "EU")


def write_corpus(folder: Path) -> Path:
    """The folder that docs/own-data.md describes: a fifth of a topic's chunks hold its fact."""
    random = Random(3)
    folder.mkdir()
    chunks = [
        {
            "doc_id": f"c{number:03}",
            "title": f"Note {number}",
            "text": " ".join(
                [TOPICS[number % 20]] * random.randrange(1, 4)
                + random.choices(["river", "stone", "cloud", "lamp"], k=6)
                + ["fact" if number // 20 % 5 == 0 else "rumour"]
            ),
        }
        for number in range(500)
    ]
    lines = {
        "docs.jsonl": [json.dumps(chunk) for chunk in chunks],
        "queries.tsv": [f"{topic}\tIs {topic} known?" for topic in TOPICS],
        "answers.jsonl": [json.dumps({"query_id": topic, "gold": "yes"}) for topic in TOPICS],
    }
    for name, told in lines.items():
        (folder / name).write_text("".join(f"{line}\n" for line in told))
    return folder


def answer(body: dict[str, Any], attempt: int) -> Reply:
    """Yes, citing the chunks that hold a fact of the topic; no where none does."""
    said = body["messages"][-1]["content"]
    topic = re.findall(r"Is (topic\d\d) known", said)[0]
    facts = [k for k, line in re.findall(r"\[(\d+)\] (.*)", said) if topic in line and "fact" in line]
    return Reply(f"Yes [{', '.join(facts)}]" if facts else "No")


@pytest.mark.whole
def test_a_corpus_asked_through_a_server_and_its_log_have_the_same_figures() -> None:
    corpus = write_corpus(Path("corpus"))
    with Server(answer) as server:
        asked: tuple[str | Path, ...] = (
            "-d",
            corpus,
            "--attribution",
            "cited",
            "--utility",
            "exact-match",
            *server.flags,
        )
        measures = ("--measures", ",".join((*SAME, "EU-change")))
        ran(*asked, "--pool", "25", "--samples", "8", "--alpha", "2", *measures, "-o", "run")
    assert value("run", "gold", "EU") == 1 and 0 < value("run", "bm25-2", "EAR(by=cited)") < 1
    assert llmfair("runs", "check", "run").code == 0
    found = llmfair("score", logged(Path("run")), "--measures", ",".join(SAME), "--json")
    assert found.code == 0, found.err
    for row in found.json["rows"]:
        assert row["value"] == pytest.approx(value("run", "bm25-2", row["measure"]), abs=1e-12), row[
            "measure"
        ]
