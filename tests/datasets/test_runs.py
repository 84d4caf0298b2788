"""Runs as ranx keeps them: the same figures as of the TREC run, and every slip with its place."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.cli.command import ran, refuses
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
        ("my.json", "{", "my.json: not JSON: Expecting property name"),
        ("my.json", "[1]", "my.json: expected `object`, got `array`"),
        ("my.json", '{"q1": {"d1": "high"}}', "my.json: [...][...]: expected `float`, got `str`"),
        ("my.json", '{"q1": {"d1": NaN}}', "my.json: [...][...]: expected `float`"),
        ("my.json", '{"q 1": {"d1": 1}}', "is empty or holds white space"),
        ("my.json", '{"all": {"d1": 1}}', "my.json: query_id: 'all' stands for all queries"),
        ("my.csv", "q_id,doc_id\nq1,d1\n", "my.csv:2: score: there is no such column (q_id, doc_id)"),
        ("my.csv", "q_id,doc_id,score\nq1,d1,1\nq1,d1,2\n", "my.csv:3: doc_id: 'd1' was already ranked"),
        ("my.csv", "q_id,doc_id,score\nq1,d1,inf\n", "my.csv:2: score: 'inf' is not a finite number"),
        ("my.csv", "q_id,doc_id,score\nq1,,1\n", "my.csv:2: doc_id: '' is no id"),
    ],
)  # fmt: skip
def test_a_slip_has_its_place(name: str, text: str, message: str) -> None:
    Path(name).write_text(text)
    refuses(message, "score", name, "-d", "data")


def test_what_rerank_writes_is_called_a_run(data: Path) -> None:
    written("my.json"), written("other.csv.gz")
    refuses(
        "what is written are TREC's six columns",
        *"rerank my.json --with fair-star -d data -o new.json".split(),
    )
    ran("rerank", "my.json", "other.csv.gz", "--with", "fair-star", "-d", "data", "-o", "new")
    assert sorted(path.name for path in Path("new").iterdir()) == ["my.run", "other.run"]
    ran("score", "new/my.run", "new/other.run", "-d", "data")
