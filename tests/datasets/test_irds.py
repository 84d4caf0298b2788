"""Collections of ir_datasets: what they say, with groups and lists from files, or lists from BM25."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import ir_datasets
import pytest

from llmfair.datasets.base import load_dataset
from llmfair.datasets.files import Given
from llmfair.errors import UsageError
from tests.cli.command import llmfair, ran, refuses
from tests.folders import write

NAME = "small/test"


@pytest.fixture(autouse=True)
def collection(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A real one of files, known by its name in this process."""
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path / "home"))
    topics = ("steam engines", "iron bridges", "glass lenses", "paper mills", "clock towers", "rope walks")
    write(
        tmp_path / "docs.tsv",
        (f"d{i}\t{topics[i % 6]} and note {i} of {topics[(i + 1) % 6]}" for i in range(60)),
    )
    write(tmp_path / "queries.tsv", (f"q{i}\t{topic}" for i, topic in enumerate(topics)))
    write(tmp_path / "qrels.txt", (f"q{i % 6} 0 d{i} {int(i < 30)}" for i in range(60)))
    write(tmp_path / "groups.tsv", (f"d{i}\tgender\t{('female', 'male')[i // 6 % 2]}" for i in range(60)))
    write(tmp_path / "lists.run", (f"q{i % 6} Q0 d{i} {i} {60 - i} x" for i in range(60)))
    made = ir_datasets.create_dataset(
        docs_tsv=str(tmp_path / "docs.tsv"), queries_tsv=str(tmp_path / "queries.tsv"), qrels_trec=str(tmp_path / "qrels.txt")
    )  # fmt: skip
    known = ir_datasets.load
    monkeypatch.setattr(ir_datasets, "load", lambda name: made if name == NAME else known(name))
    monkeypatch.chdir(tmp_path)
    yield


def test_lists_are_those_of_a_run() -> None:
    dataset = load_dataset(f"irds:{NAME}", Given(groups="groups.tsv", run="lists.run"))
    first = dataset.candidates(dataset.queries[0])
    assert len(dataset.queries) == 6 and first.doc_ids[:3] == ("d0", "d6", "d12")
    assert first.relevance["d0"] == 1 and first.relevance["d54"] == 0
    assert first.documents[1].groups == {"gender": ("male",)} and "steam engines" in first.documents[0].title


@pytest.mark.whole
def test_without_a_run_bm25_finds_them() -> None:
    shown = ran(
        "listwise",
        "-d",
        f"irds:{NAME}",
        *"--groups groups.tsv -m fake:biased,malformed=0 -q --no-report -o run --orders 1".split(),
    )
    assert "irds:small/test" in shown.out
    lists = [json.loads(line) for line in Path("run/candidates.jsonl").read_text().splitlines()]
    assert len(lists) == 6 and all(len(one["doc_ids"]) >= 20 for one in lists)
    assert llmfair("runs", "check", "run").code == 0


def test_what_is_lacking_is_named() -> None:
    data = ("listwise", "-d", f"irds:{NAME}")
    refuses("irds:small/test says nothing of groups.", *data)
    refuses("ir_datasets has no 'none/such'", "listwise", "-d", "irds:none/such", "--groups", "groups.tsv")
    refuses("none.tsv: cannot be read", *data, "--groups", "none.tsv")
    write(Path("bad.tsv"), ["d1\tgender\tfemal"])
    refuses("bad.tsv:1: group: 'femal' is not a group of gender", *data, "--groups", "bad.tsv")
    write(Path("bad.run"), ["q0 Q0 d0 1 2 x", "q0 Q0 gone 2 1 x"])
    refuses(
        "bad.run: document 'gone' is not in irds:small/test",
        *data,
        *"--groups groups.tsv --run bad.run".split(),
    )
    write(Path("other.run"), ["q9 Q0 d0 1 2 x"])
    refuses("other.run ranks none of the queries", *data, "--groups", "groups.tsv", "--run", "other.run")
    refuses(
        "--run is said of collections of ir_datasets, and sample is none", "listwise", "--run", "lists.run"
    )


def test_a_collection_too_large_to_be_indexed_needs_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmfair.datasets.irds.MOST_INDEXED", 10)
    with pytest.raises(UsageError, match="has 60 documents, which are not indexed here"):
        _ = load_dataset(f"irds:{NAME}", Given(groups="groups.tsv")).queries
