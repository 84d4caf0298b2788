"""Runs as ranx keeps them: the same figures as of the TREC run, and every slip with its place."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest

from llmfair.datasets.runs import read_any_run
from llmfair.io.trec import Problems
from tests.cli.command import llmfair, ran, refuses
from tests.folders import balanced, write_folder

SCORES = {
    f"q{query}": {f"q{query}{sex}{item}": 1 / (3 + item) + (sex == "m") / 7 for item in range(4) for sex in "fm"}
    for query in range(6)
}  # fmt: skip


def written(name: str) -> Path:
    path = Path(name)
    rows = [(query, doc, score) for query, scores in SCORES.items() for doc, score in scores.items()]
    text = {
        ".json": json.dumps(SCORES),
        ".csv": "q_id,doc_id,score\n" + "".join(f"{query},{doc},{score!r}\n" for query, doc, score in rows),
        ".run": "".join(f"{query} Q0 {doc} {place} {score!r} my\n" for place, (query, doc, score) in enumerate(rows, 1)),
    }[Path(name.removesuffix(".gz")).suffix]  # fmt: skip
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.fixture(autouse=True)
def data() -> Path:
    return write_folder(Path("data"), balanced(6, 4, 4))


@pytest.mark.parametrize("name", ["my.json", "my.csv", "my.csv.gz", "my.json.gz"])
def test_scores_read_the_same_in_every_form(name: str) -> None:
    def measured(path: Path) -> str:
        return ran("score", str(path), "-d", "data", "--json").out.replace(path.name, "my.run")

    assert measured(written(name)) == measured(written("my.run"))
    ran("rerank", name, "--with", "fair-star", "-d", "data", "-o", "new.run")
    ran("rerank", "my.run", "--with", "fair-star", "-d", "data", "-o", "same.run")
    assert Path("new.run").read_text() == Path("same.run").read_text()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("my.json", "", "my.json: is empty"),
        ("my.json", "{", "my.json:1: not a JSON object: Expecting property name"),
        ("my.json", "[1]", "my.json: not a JSON object but list"),
        ("my.json", '{"q1": [1]}', "my.json: q1: is no object of scores by doc_id"),
        ("my.json", '{"q1": {"d1": "high"}}', "my.json: q1.d1: 'high' is not a finite number"),
        ("my.json", '{"q1": {"d1": NaN}}', "my.json: q1.d1: 'nan' is not a finite number"),
        ("my.json", '{"q1": {"d1": true}}', "my.json: q1.d1: 'True' is not a finite number"),
        ("my.json", '{"q1": {"d1": 1, "d1": 2}}', "my.json: q1.d1: 'd1' was already ranked in query 'q1'"),
        ("my.json", '{"q 1": {"d1": 1}}', "my.json: q 1.d1: 'q 1' is no id"),
        ("my.json", '{"all": {"d1": 1}}', "my.json: query_id: 'all' stands for all queries"),
        ("my.csv", "q_id,doc_id\nq1,d1\n", "my.csv:2: score: there is no such column (q_id, doc_id)"),
        ("my.csv", "id,doc_id,score\nq1,d1,1\n", "my.csv:2: q_id: there is no such column"),
        ("my.csv", "q_id,doc_id,score\nq1,d1,1\nq1,d1,2\n", "my.csv:3: score: 'd1' was already ranked"),
        ("my.csv", "q_id,doc_id,score\nq1,d1,inf\n", "my.csv:2: score: 'inf' is not a finite number"),
        ("my.csv", "q_id,doc_id,score\nq1,,1\n", "my.csv:2: score: '' is no id"),
    ],
)  # fmt: skip
def test_a_slip_has_its_place(name: str, text: str, message: str) -> None:
    Path(name).write_text(text)
    refuses(message, "score", name, "-d", "data")


@pytest.mark.parametrize("form", ["json", "csv"])
def test_a_hundred_malformed_runs_are_one_sentence_each(form: str) -> None:
    whole, rng, refused = written(f"my.{form}").read_bytes(), random.Random(form), 0
    for number in range(100):
        at, length = rng.randrange(len(whole)), rng.randrange(1, 60)
        new = [b"", bytes(rng.randrange(256) for _ in range(9)), b'"', b"NaN", b"{", b",,\n"][number % 6]
        Path(f"bad.{form}").write_bytes(whole[:at] + new + whole[at + length :])
        problems = Problems()
        read_any_run(Path(f"bad.{form}"), problems)
        refused += problems.count > 0
        if number < 6:
            found = llmfair("score", f"bad.{form}", "-d", "data")
            assert found.code in (0, 2) and "Traceback" not in found.err
    assert refused > 60


def test_what_rerank_writes_is_called_a_run(data: Path) -> None:
    written("my.json"), written("other.csv.gz")
    refuses(
        "what is written are TREC's six columns",
        "rerank",
        "my.json",
        "--with",
        "fair-star",
        "-d",
        "data",
        "-o",
        "new.json",
    )
    ran("rerank", "my.json", "other.csv.gz", "--with", "fair-star", "-d", "data", "-o", "new")
    assert sorted(path.name for path in Path("new").iterdir()) == ["my.run", "other.run"]
    ran("score", "new/my.run", "new/other.run", "-d", "data")
