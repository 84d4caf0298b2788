"""`--stop-after`: what there is by then is written, counted and checked, and the same command without it goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.audits.rag.test_rag import corpus, question, questions
from tests.batch_server import BatchServer
from tests.batch_server import unwaiting as unwaiting
from tests.cli.command import llmfair, only_run, ran, refuses, table

FLAGS = ("rag", "-q", "--no-report", "--no-cache", "--alpha", "1,8", "--attribution", "fake:reader")
BYPRODUCTS = ("manifest.json", "journal.jsonl", "attribution.jsonl", ".lock")


def planned(*more: str) -> int:
    counted = ran(*FLAGS, "--dry-run", "--json", *more).json
    return int(counted["calls"])


def asked(folder: Path) -> int:
    journals = [path for path in folder.glob("*.jsonl") if path.name != "texts.jsonl"]
    return sum("key" in json.loads(line) for path in journals for line in path.read_text().splitlines())


def told(folder: Path, name: str = "results") -> Any:
    return json.loads((folder / f"{name}.json").read_text())


@pytest.mark.whole
def test_each_stop_has_what_there_is_by_then_and_the_whole_run_goes_on_in_its_folder() -> None:
    ran(*FLAGS, "-o", "whole")
    counts, disparities = [], []
    for stop in ("retrieval", "labels", "outputs"):
        found = ran(*[flag for flag in FLAGS if flag != "-q"], "--stop-after", stop)
        run = only_run()
        assert "Stopped where it was asked to. Without --stop-after the same command goes on" in found.err
        assert told(run)["status"] == told(run, "manifest")["status"] == "incomplete"
        assert llmfair("runs", "check", str(run)).code == 0
        scored = ran("score", str(run), "-o", f"again-{stop}", "--no-report", "-q", "--json").json
        shown = {(row["measure"], row["condition"]): row["value"] for row in scored["rows"]}
        assert ("EE-D", "bm25-8") in shown and (("EE-R", "gold") in shown) == (stop != "retrieval")
        assert (("EU", "bm25-8") in shown) == (stop == "outputs")
        disparities.append({key: value for key, value in shown.items() if key == ("EE-D", "bm25-8")})
        counts.append(asked(run))
        assert counts[-1] <= planned("--stop-after", stop)
        qrels = (run / "qrels.txt").read_text().splitlines()
        assert len(qrels) == (0 if stop == "retrieval" else 8 * 20)
        assert len(table(run / "scores.csv")) == 8 * 20 and (run / "rankings/bm25.run").is_file()
        assert bool(table(run / "metrics.csv")) == (stop == "outputs")
    assert counts[:2] == [0, 8 * 21] and counts[2] > 300
    assert disparities[0] == disparities[1] == disparities[2] != {}, "what is shown hangs on no answer"
    assert told(run)["collection"]["kept"] == 8 and told(run)["judged"]["asked"] == 0
    ran(*FLAGS)
    assert only_run() == run, "the same run"
    assert asked(run) == asked(Path("whole"))
    for path in Path("whole").rglob("*"):
        if path.is_file() and path.name not in BYPRODUCTS:
            ours = (run / path.relative_to("whole")).read_text().replace(run.name, "whole")
            assert ours == path.read_text(), path


@pytest.mark.whole
def test_a_finished_run_stays_finished() -> None:
    ran(*FLAGS, "-o", "whole")
    before = {
        path: path.read_bytes()
        for path in Path("whole").rglob("*")
        if path.is_file() and path.name != ".lock"
    }
    for stop in ("retrieval", "labels", "outputs"):
        found = ran(*FLAGS, "-o", "whole", "--stop-after", stop)
        assert "bm25-8" in found.out and "Stopped" not in found.err
        assert {path: path.read_bytes() for path in before} == before
    other = llmfair(*FLAGS, "-o", "whole", "--stop-after", "labels", "--seed", "9")
    assert other.code == 1 and "belongs to other settings" in other.err


def test_labels_that_are_known_ask_nobody() -> None:
    folder = corpus([f"note {n}" for n in range(4)], {"q": "what note?"}, "two")
    (folder / "qrels.txt").write_text("q 0 d1 1\nq 0 d2 1\n")
    flags = (*FLAGS, "-d", "corpus", "-k", "2", "--useful", "qrels")
    ran(*flags, "--stop-after", "labels", "-o", "run")
    assert asked(Path("run")) == 0 and Path("run/qrels.txt").read_text().count(" 1\n") == 2
    assert planned("-d", "corpus", "-k", "2", "--useful", "qrels", "--stop-after", "labels") == 0


def test_nothing_is_gated_that_is_not_there_yet() -> None:
    refuses(
        "--stop-after ends before there is anything for --require", *FLAGS, "--stop-after", "labels", "--require", "EU>=0"
    )  # fmt: skip


# With `--batch` labels are one batch, the lists that they call for another


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
