"""Files of a run folder of `llmfair rag` that somebody or something damaged: no figure of another query or list."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llmfair.audits.design import Condition
from llmfair.audits.rag.design import DETERMINISTIC, Policies, scores_of
from llmfair.audits.rag.measure import observed
from llmfair.datasets.answers import load_answers
from llmfair.datasets.base import cache_folder
from llmfair.metrics.expected import ListSample
from llmfair.nouns import Candidates
from llmfair.rankers.base import ScoringRanker
from tests.audits.rag.test_rag import ran
from tests.cli.command import llmfair, refuses, table

Lines = list[str]
MADE = ("-n", "2", "--samples", "3", "--alpha", "1,8", "--retriever", "bm25", "--retriever", "bm25-okapi")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Where the run lies once a test has made it."""
    return {"folder": tmp_path_factory.mktemp("rag") / "run"}


@pytest.fixture
def run(made: dict[str, Path]) -> Iterator[Path]:
    if not made["folder"].exists():
        ran(*MADE, "-o", made["folder"])
    yield shutil.copytree(made["folder"], Path("run"))


def edited(path: Path, change: Callable[[Lines], Lines]) -> None:
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))


def values(folder: str) -> dict[tuple[str, ...], str]:
    names = ("query_id", "measure", "condition", "group")
    return {tuple(row[name] for name in names): row["value"] for row in table(Path(folder, "per_query.csv"))}


def test_scores_belong_to_items_by_their_ids(run: Path) -> None:
    """The second retriever's lines the other way round are the same scores."""
    path = run / "scores.csv"
    edited(path, lambda lines: [line for line in lines if "okapi" not in line] + [line for line in lines if "okapi" in line][::-1])  # fmt: skip
    found = llmfair("score", "run", "-o", "again", "--no-report")
    assert found.code == 0, found.err
    assert values("again") == values("run")


def worth(utility: str) -> Callable[[Lines], Lines]:
    return lambda lines: [
        *lines[:-1],
        ",".join([*lines[-1].split(",")[:4], utility, lines[-1].split(",")[5]]),
    ]


@pytest.mark.parametrize(
    ("file", "change", "says"),
    [
        ("scores.csv", lambda lines: lines[:-5], "scores.csv: query 'recipes' lacks scores of a retriever or of some items"),
        ("scores.csv", lambda lines: [one for one in lines if ",films," not in one], "of the run's 2 queries under bm25"),
        ("qrels.txt", lambda lines: lines[1:], "qrels.txt: query 'films' has other items than in scores.csv"),
        ("outputs.csv", lambda lines: lines[:-2], "1 of the run's 2 queries under bm25"),
        ("outputs.csv", worth("7.5"), "utility 7.5 is not from 0 to 1"),
        ("outputs.csv", lambda lines: [*lines[:-1], f"{lines[-1].rstrip()} x\n"], "'x' is credited, but was not shown"),
    ],
)  # fmt: skip
def test_lines_that_are_lost_or_contradict_others_are_named(
    run: Path, file: str, change: Callable[[Lines], Lines], says: str
) -> None:
    edited(run / file, change)
    refuses(says, "score", "run")


@pytest.mark.parametrize(
    ("design", "says"),
    [
        ({"factors": {}}, "Condition 'bm25-deterministic' is missing in `design.factors`"),
        ({"factors": {"bm25-1": {"retriever": "bm25", "alpha": "x"}}}, "$.design.factors"),
        ({"samples": 10**8}, "Expected `int` <= 10000 - at `$.design.samples`"),
    ],
)
def test_what_results_say_of_the_design_is_held_against_its_bounds(
    run: Path, design: dict[str, Any], says: str
) -> None:
    document = json.loads((run / "results.json").read_text())
    document["design"] |= design
    (run / "results.json").write_text(json.dumps(document))
    refuses(says, "score", "run")


def test_half_a_run_is_scored() -> None:
    ran("-n", "4", "--samples", "3", "--max-calls", "70", "--workers", "1", "-q", "-o", "half", code=3)
    assert llmfair("score", "half", "--no-report").code == 0


def test_of_lists_of_one_item_the_label_s_output_may_stand_there_too() -> None:
    ran("-n", "2", "-k", "1", "--alpha", "1", "-o", "run")
    found = llmfair("score", "run", "-o", "again", "--no-report")
    assert found.code == 0, found.err
    assert values("again") == values("run")


@pytest.mark.parametrize("text", ["", "[" * 100_000, "1e999"])
def test_kept_scores_that_are_damaged_are_made_anew(text: str) -> None:
    dataset = load_answers("rag-sample")
    queries = dataset.queries[:1]
    size = len(dataset.candidates(queries[0]).documents)

    class Costly(ScoringRanker):
        identity, costly = "a model", True

        def scores(self, candidates: Candidates) -> list[float]:
            return [*map(float, range(size))]

    expected = [*map(float, range(size))]
    assert scores_of(Costly(), dataset, queries)[queries[0].query_id].tolist() == expected
    (path,) = (cache_folder() / "scores").iterdir()
    path.write_text(path.read_text().replace("[0.0", f"[{text}"))
    assert scores_of(Costly(), dataset, queries)[queries[0].query_id].tolist() == expected
    Costly.scores = None  # type: ignore[assignment,method-assign]
    assert scores_of(Costly(), dataset, queries)[queries[0].query_id].tolist() == expected


def test_the_best_of_a_query_is_the_best_of_its_lists() -> None:
    """A run folder has outputs beside single items, too, which no list is held against."""
    import numpy as np

    policies = Policies("q", ("a", "b", "c"), {"r": np.array([3.0, 2.0, 1.0])}, 2, 1, 0)
    outputs = {tuple(of): ListSample(tuple(of), 1, "x", worth) for of, worth in (("ab", 0.5), ("a", 1.0))}
    one = Condition("r-deterministic", {"retriever": "r", "alpha": DETERMINISTIC})
    assert observed(policies, [one], frozenset("ab"), outputs)[one.name].ceiling == 0.5
