"""`llmfair rag --batch`: labels are one batch, the lists that they call for another."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audits.rag.test_rag import question, questions
from tests.batch_server import BatchServer
from tests.batch_server import unwaiting as unwaiting
from tests.cli.command import llmfair

SAME = ("metrics.csv", "per_query.csv", "outputs.csv", "gains.tsv", "qrels.txt", "samples/bm25-1.tsv")


@pytest.mark.whole
def test_two_rounds_give_the_figures_of_questions_one_by_one(unwaiting: None) -> None:
    data = questions(*(question(f"q{n}", "aabbcc", gold="1") for n in range(3)))
    with BatchServer() as server:
        asked = (
            "rag", "-d", data, "--alpha", "1", "--samples", "5", "-k", "2", "--utility", "contains",
            "-m", "openai:any", "--base-url", server.base_url, "--server-name", "test", "--no-cache", "--no-report",
            "--max-invalid", "1",
        )  # fmt: skip
        batched = llmfair(*asked, "-o", "one/run", "--batch")
        assert batched.code == 0, batched.err
        assert len(server.batches) == 2 and not server.requests
        calm = llmfair(*asked, "-o", "two/run")
        assert calm.code == 0 and server.requests, calm.err
    for name in SAME:
        assert (Path("one/run") / name).read_bytes() == (Path("two/run") / name).read_bytes(), name
