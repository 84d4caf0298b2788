"""What is measured of a run folder's files and of a log, and the curves of a run, worked by hand."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmfair.audits.design import Condition
from llmfair.audits.rag.design import Policies, conditions_of, scores_of
from llmfair.audits.rag.measure import lacking, observed, traded
from llmfair.audits.rag.results import Curve, Intervals
from llmfair.audits.rag.settings import DETERMINISTIC
from llmfair.datasets.answers import load_answers
from llmfair.metrics.base import measure_all
from llmfair.metrics.expected import ListSample, Retrieved
from llmfair.metrics.names import parse_measures
from llmfair.nouns import Candidates
from llmfair.rankers.base import ScoringRanker
from tests.audits.rag.test_rag import ran
from tests.cli.command import llmfair, refuses, table
from tests.cli.command import ran as done

Lines = list[str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """A run of two retrievers, copied."""
    folder = tmp_path_factory.mktemp("rag") / "run"

    def copied() -> Path:
        if not folder.exists():
            both = ("--retriever", "bm25", "--retriever", "bm25-okapi")
            ran("-n", "2", "--samples", "3", "--alpha", "1,8", *both, "-o", folder)
        return Path(shutil.copytree(folder, Path("run")))

    return copied


def edited(path: Path, change: Callable[[Lines], Lines]) -> None:
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))


def values(folder: str) -> dict[tuple[str, ...], str]:
    names = ("query_id", "measure", "condition", "group")
    return {tuple(row[name] for name in names): row["value"] for row in table(Path(folder, "per_query.csv"))}


def test_scores_belong_to_items_by_their_ids(made: Callable[[], Path]) -> None:
    """The second retriever's lines the other way round are the same scores."""

    def turned(lines: Lines) -> Lines:
        second = [line for line in lines if "okapi" in line]
        return [*(line for line in lines if line not in second), *second[::-1]]

    edited(made() / "scores.csv", turned)
    done("score", "run", "-o", "again", "--no-report")
    assert values("again") == values("run")


@pytest.mark.parametrize(
    ("file", "change", "says"),
    [
        ("scores.csv", lambda lines: lines[:-5], "1 of the run's 2 queries under bm25"),
        ("scores.csv", lambda lines: [line for line in lines if ",films," not in line], "of the run's 2 queries under bm25"),
        ("qrels.txt", lambda lines: lines[1:], "1 of the run's 2 queries under bm25"),
        ("outputs.csv", lambda lines: lines[:-2], "1 of the run's 2 queries under bm25"),
    ],
)  # fmt: skip
def test_lines_that_are_lost_or_contradict_others_are_named(
    made: Callable[[], Path], file: str, change: Callable[[Lines], Lines], says: str
) -> None:
    edited(made() / file, change)
    refuses(says, "score", "run")


def test_of_lists_of_one_item_the_label_s_output_may_stand_there_too() -> None:
    ran("-n", "2", "-k", "1", "--alpha", "1", "-o", "run")
    done("score", "run", "-o", "again", "--no-report")
    assert values("again") == values("run")


def test_scores_of_a_model_are_kept_and_whole() -> None:
    dataset = load_answers("rag-sample")
    queries = dataset.queries[:1]
    expected = [*map(float, range(len(dataset.candidates(queries[0]).documents)))]

    class Costly(ScoringRanker):
        identity, costly, asked = "a model", True, 0

        def scores(self, candidates: Candidates) -> list[float]:
            Costly.asked += 1
            return expected

    for _ in range(2):
        assert scores_of(Costly(), dataset, queries)[queries[0].query_id].tolist() == expected
    assert Costly.asked == 1


def test_the_best_of_a_query_is_the_best_of_its_lists() -> None:
    """A run folder has outputs beside single items, too, which no list is held against."""
    policies = Policies("q", ("a", "b", "c"), {"r": np.array([3.0, 2.0, 1.0])}, 2, 1, 0, {})
    outputs = {tuple(of): ListSample(tuple(of), 1, "x", worth) for of, worth in (("ab", 0.5), ("a", 1.0))}
    condition = Condition("r-deterministic", {"retriever": "r", "alpha": DETERMINISTIC})
    assert observed(policies, [condition], frozenset("ab"), outputs, None)[condition.name].ceiling == 0.5


# A log of requests: traffic that exists is measured as a run's own lists are


def lines(*rows: dict[str, Any] | str) -> Path:
    path = Path("log.jsonl")
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_a_log_by_hand_concludes_nothing() -> None:
    """Query q shows {a, b} and {a, c} of four items: ε̂ = (1, ½, ½, 0), so Σ ε̂² = 1.5 and unbiased (2·1.5 − 2)/1; of
    the useful ones a is always shown, and b half the time."""
    known = {"items": [*"abcd"], "useful": [*"ab"], "output": "x", "gold": "x"}
    path = lines(
        {"query_id": "q", "shown": ["a", "b"], **known},
        {"query_id": "q", "shown": ["a", "c"], "output": "y", "gold": ["x", "z"], "cited": ["c"]},
    )
    expected = {
        "EE-D(norm=raw,of=samples)": 1.5, "EE-D(norm=raw)": 1.0, "EE-R(norm=raw)": 1.5, "EU": 0.5,
        "EAR(by=cited)": 0.5, "EAE-D(by=cited,norm=raw,of=samples)": 1.0,
    }  # fmt: skip
    found = done("score", path, "--measures", ",".join(expected), "--per-query")
    rows = csv.DictReader(found.out.splitlines(), dialect="excel-tab")
    of_query = {row["measure"]: float(row["value"]) for row in rows if row["query_id"] == "q"}
    assert of_query == expected
    assert done("score", path).out.startswith("VERDICT  not assessable: a log says")


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"query_id": "q", "shown": ["a"], "cited": ["b"]}, "log.jsonl:1: cited: 'b' is not in `shown`"),
        ({"query_id": "q", "shown": ["a"], "utility": 7}, "log.jsonl:1: utility: expected `float` <= 4.0"),
        ("", "log.jsonl: holds no request"),
    ],
)
def test_bad_lines_are_named(row: dict[str, Any] | str, says: str) -> None:
    refuses(says, "score", lines(row))


# Intervals of disparity and curves, on queries of two items, of which one is shown


QUERIES = [f"q{number}" for number in range(6)]
BASELINE = (1.0, 1.0, 1.0, 0.0, 0.0, 0.0)
"""Utilities of the one list by score."""


def one(query_id: str, shown: float, utility: float) -> Retrieved:
    """A query whose useful item has this exposure: EE-D is (2ε − 1)², EE-R is ε."""
    lists = (ListSample(("a",), 1, "answer", utility, frozenset("a")),)
    return Retrieved(query_id, ("a", "b"), frozenset("a"), 1, {"a": shown, "b": 1 - shown}, lists)


def found(
    of: Mapping[str, list[tuple[float, float]]], measures: str = "EE-D,EE-R,EU"
) -> tuple[Intervals, Sequence[Curve]]:
    """Of exposure and utility by query, under every alpha."""
    conditions = conditions_of(["bm25"], [float(alpha) for alpha in of])
    observations = {
        "bm25-deterministic": [one(*of_it) for of_it in zip(QUERIES, [1.0] * 6, BASELINE, strict=True)],
        "gold": [one(query, 1.0, 1.0) for query in QUERIES],
        **{
            f"bm25-{alpha}": [one(query, *drawn) for query, drawn in zip(QUERIES, by_query, strict=True)]
            for alpha, by_query in of.items()
        },
    }
    asked = parse_measures(measures)
    columns = measure_all([*asked, *lacking(asked)], observations)
    cost = traded(conditions, columns, dict.fromkeys(QUERIES, 1), 0.95)
    return cost["intervals"]["bm25"], cost["tradeoff"]["bm25"]


def test_slopes_and_areas_over_observations_and_over_the_nearest_places() -> None:
    """EE-R is .5, .75, 1 at an EE-D of 0, .25, 1: .25 is nearest to .2."""
    of_relevance, of_utility, _ = found(
        {"1": [(0.5, 0.2)] * 6, "2": [(0.75, 0.2)] * 6, "8": [(1.0, 0.4)] * 6}
    )[1]
    assert (of_relevance.across, of_relevance.up) == ("EE-D", "EE-R")
    assert (of_relevance.observations, of_relevance.queries) == (18, 6)
    assert of_relevance.slope == pytest.approx(6 / 13)
    assert of_relevance.area == pytest.approx(0.2 * 0.625 + 0.8 * 0.875)
    assert of_relevance.deterministic == (1, 1) and of_utility.deterministic == (1, 0.5)
    assert [point.at for point in of_utility.points] == [0.0, 0.2, 1.0]
    assert [point.mean.value for point in of_utility.points] == pytest.approx([0.2, 0.2, 0.4])


def test_a_pooled_cell_is_held_against_all_queries_and_a_paired_one_against_its_own() -> None:
    table, _ = found({"1": [(0.5, 0.25)] * 5 + [(0.75, 0.25)], "8": [(1.0, 0.3), (1.0, 0.5)] * 3})
    low, second, empty, _, high = table.cells
    assert (table.disparity, table.utility, table.baseline) == ("EE-D", "EU", 0.5)
    assert [cell.observations for cell in table.cells] == [5, 1, 0, 0, 6]
    assert (empty.difference, empty.starred, empty.paired) == (None, False, None)
    assert low.paired and second.paired and high.paired
    assert low.difference == pytest.approx(0.25 - 0.5) and low.paired.value == pytest.approx(0.25 - 0.6)
    assert second.p_student is None and second.paired.value == pytest.approx(0.25)
    assert (high.difference, high.paired.value) == pytest.approx((-0.1, -0.1))


def test_the_first_measure_of_a_name_counts_and_raw_ones_lie_nowhere() -> None:
    of = {"8": [(1.0, 0.4)] * 6}
    table, (first, *_) = found(of, "EE-D(norm=raw),EE-D(norm=fair-rag),EE-D,EU(norm=ceiling),EU")
    assert (table.disparity, table.utility) == ("EE-D(norm=fair-rag)", "EU(norm=ceiling)")
    assert table.baseline is None and table.cells == [], "no ceiling is known here"
    assert first.up == "EE-R", "measured where nobody asked for it"


def test_credit_stands_over_disparity_of_the_same_greatest_value() -> None:
    curves = found({"8": [(1.0, 0.4)] * 6}, "EE-D,EE-R,EU,EAR(by=cited),EAE-D(by=cited)")[1]
    assert [(one.across, one.up) for one in curves[3:]] == [
        ("EE-D", "EAR(by=cited)"), ("EE-R", "EAR(by=cited)"), ("EE-D/k'", "EAE-D(by=cited)"),
    ]  # fmt: skip
    assert curves[4].deterministic == (1, 1)


@pytest.mark.whole
def test_a_run_says_what_fairer_lists_cost_and_of_which_measures() -> None:
    norms = "EE-D(norm=fair-rag,of=samples),EE-R(norm=fair-rag,of=samples),EU(norm=ceiling)"
    ran("-o", "run", "--measures", norms)
    results = json.loads(Path("run/results.json").read_text())
    assert results["intervals"]["bm25"]["disparity"] == "EE-D(norm=fair-rag,of=samples)"
    shown = {row["condition"]: row["value"] for row in results["rows"]
             if (row["measure"], row["query_id"]) == ("EE-D(norm=fair-rag,of=samples)", "all")}  # fmt: skip
    findings, verdict = results["findings"], results["verdict"]
    assert {name: finding["disparity"] for name, finding in findings.items()} == {
        name: shown[name] for name in findings
    }
    assert f"EE-D(norm=fair-rag,of=samples) {shown[verdict['condition']]:.3f}" in verdict["sentence"]
    assert sum(cell["observations"] for cell in results["intervals"]["bm25"]["cells"]) == 8 * 4
    assert llmfair("runs", "check", "run").code == 0
