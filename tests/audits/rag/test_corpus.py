"""A stranger's corpus: 500 chunks, 20 questions, a server; answers cite their chunks, and their log says the same."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.audits.rag.test_log import logged
from tests.audits.rag.test_rag import ran, value
from tests.cli.command import llmfair
from tests.servers import Reply, Server
from tests.shared import mockllm

TOPICS = [f"topic{number:02}" for number in range(20)]
SAME = ("EE-D(of=samples)", "EE-R(of=samples)", "EAR(by=cited)", "EAE-D(by=cited)", "EU")


def write_corpus(folder: Path, gold: str) -> Path:
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
        "answers.jsonl": [json.dumps({"query_id": topic, "gold": gold}) for topic in TOPICS],
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


def asked(flags: Sequence[str | Path], gold: str, utility: str) -> None:
    """A run of the corpus, whose files follow from its journal."""
    corpus = write_corpus(Path("corpus"), gold)
    few = ("--pool", "25", "--samples", "8", "--alpha", "2", "--measures", ",".join((*SAME, "EU-change")))
    ran("-d", corpus, *flags, "--attribution", "cited", "--utility", utility, *few, "-o", "run")
    assert llmfair("runs", "check", "run").code == 0


def its_log_says_the_same() -> None:
    found = llmfair("score", logged(Path("run")), "--measures", ",".join(SAME), "--json")
    assert found.code == 0, found.err
    rows = {row["measure"]: row["value"] for row in found.json["rows"]}
    assert rows == pytest.approx({measure: value("run", "bm25-2", measure) for measure in SAME}, abs=1e-12)


@pytest.mark.whole
def test_a_corpus_asked_through_a_server_and_its_log_have_the_same_figures() -> None:
    with Server(answer) as server:
        asked(server.flags, "yes", "exact-match")
    assert value("run", "gold", "EU") == 1 and 0 < value("run", "bm25-2", "EAR(by=cited)") < 1
    its_log_says_the_same()


@pytest.mark.whole
def test_so_they_have_through_a_server_that_fails_and_cites_at_random() -> None:
    """It says the five commonest words of what it is shown, and cites two of the items."""
    config = mockllm("config").MockConfig(text_policy="cite", rate_429=0.05, rate_500=0.05)
    with mockllm("server").serve_in_thread(config) as server:
        asked(("-m", "openai:any", "--base-url", server.base_url), "lamp", "contains")
        assert server.stats.statuses["429"] and server.stats.statuses["500"]
    assert value("run", "bm25-2", "EAR(by=cited)") == pytest.approx(2 / 5)
    assert 0 < value("run", "bm25-2", "EU") < 1
    its_log_says_the_same()
