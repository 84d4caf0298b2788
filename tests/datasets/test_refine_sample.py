"""The bundled collection for refinement: what was planted in it is there, for either attribute."""

from __future__ import annotations

import time
from collections import Counter

import pytest

import llmfair
from llmfair.datasets.base import load_dataset
from llmfair.datasets.refine_sample import RefineSample
from llmfair.retrieval.bm25 import Bm25Index


def test_topics_documents_and_groups() -> None:
    sample = load_dataset("refine-sample")
    assert len(sample.queries) == 12 and 650 <= len(sample.documents) <= 750
    assert all(3 <= len(query.text.split()) <= 6 for query in sample.queries)
    assert all(2 <= document.text.count(".") <= 3 for document in sample.documents.values())
    genders = Counter(document.groups.get("gender", ("",))[0] for document in sample.documents.values())
    assert set(genders) == {"female", "male", "nonbinary", ""}
    assert len({document.groups["location"] for document in sample.documents.values()}) == 5
    assert set(sample.qrels) == {query.query_id for query in sample.queries}
    assert all(sum(judged.values()) == 32 for judged in sample.qrels.values())


def test_it_is_the_same_each_time() -> None:
    one, other = RefineSample(), RefineSample()
    assert one.documents == other.documents and one.qrels == other.qrels


def test_it_is_loaded_and_indexed_at_once() -> None:
    RefineSample().documents  # noqa: B018  what is read and imported once
    began = time.perf_counter()
    Bm25Index(None, RefineSample().documents.values()).search("reef", 20)
    assert time.perf_counter() - began < 0.5 * 4  # other work may be under way on the machine


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, llmfair.Result]:
    folder = tmp_path_factory.mktemp("runs")
    return {
        name: llmfair.audit_refine(attribute=name, output=folder / name, report=False)
        for name in ("gender", "location")
    }


@pytest.mark.whole
@pytest.mark.parametrize("attribute", ["gender", "location"])
def test_the_first_page_is_skewed_and_refinement_brings_it_nearer(
    runs: dict[str, llmfair.Result], attribute: str
) -> None:
    run = runs[attribute]
    first = [row.value for row in run.per_query if row.measure == "KL@20" and row.condition == "bm25"]
    assert sum(value is not None and value >= 0.1 for value in first) >= 8

    def value(measure: str, condition: str) -> float:
        found = run[measure, condition].value
        assert found is not None
        return found

    assert value("KL@20", "fair-qr") < value("KL@20", "bm25")
    assert value("AWRF@20", "fair-qr") > value("AWRF@20", "bm25")
    assert value("nDCG@20", "fair-qr") >= value("nDCG@20", "bm25") - 0.1


def test_loops_end_for_several_reasons(runs: dict[str, llmfair.Result]) -> None:
    stops = {name for run in runs.values() for name in run.results["stops"]}
    assert stops >= {"no_decrease", "attained", "max_iterations"}
