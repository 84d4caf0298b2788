"""The bundled sample: balanced by hand, correct by a second source."""

from __future__ import annotations

import gzip
import json
import re
import time
from collections import Counter

import pytest

import llmfair
from llmfair.datasets.attributes import data_folder
from llmfair.datasets.base import facts, load_dataset
from llmfair.datasets.samples import RefineSample
from llmfair.retrieval.bm25 import Bm25Index
from tests.pace import within
from tests.shared import realdata

GENDERED = re.compile(
    r"\b(he|she|his|hers?|him|himself|herself|actress|wom[ae]n|m[ae]n|females?|males?|king|queen|prince|princess"
    r"|mother|father|wife|husband|son|daughter|sister|brother)\b",
    re.IGNORECASE,
)


def test_eight_topics_of_forty_with_ten_in_every_cell_of_both_attributes() -> None:
    found = facts(load_dataset("sample"))
    assert len(found["queries"]) == 8 and found["documents"] <= 200
    for query in found["queries"]:
        assert query["candidates"] == 40
        for cells in query["cells"].values():
            assert {name: count for name, count in cells.items() if count} == dict.fromkeys(
                (
                    "relevant protected", "relevant unprotected", "irrelevant protected", "irrelevant unprotected",
                ),
                10,
            )  # fmt: skip


def test_documents_without_a_side_are_there_to_be_counted() -> None:
    attributes = facts(load_dataset("sample"))["attributes"]
    assert attributes["gender"]["other"] >= 2 and attributes["gender"]["unknown"] >= 1
    assert attributes["location"]["unknown"] >= 1 and attributes["location"]["mixed"] >= 1


def test_not_relevant_to_one_topic_means_relevant_to_another() -> None:
    qrels = load_dataset("sample").qrels
    relevant = {doc_id for rows in qrels.values() for doc_id, relevance in rows.items() if relevance}
    assert all(doc_id in relevant for rows in qrels.values() for doc_id in rows)


def test_texts_are_short_and_do_not_give_the_gender_away() -> None:
    documents = load_dataset("sample").documents.values()
    titles = [document.title for document in documents]
    assert len(set(titles)) == len(titles)
    for document in documents:
        assert 3 <= len(document.text.split()) <= 25, document.doc_id
        assert not GENDERED.search(document.text), document.text


def test_it_is_small_and_loads_at_once() -> None:
    assert sum(file.stat().st_size for file in (data_folder() / "sample").iterdir()) <= 100_000
    assert len(within(0.05, lambda: load_dataset("sample").queries)) == 8


def test_gender_and_continent_agree_with_pantheon() -> None:
    """Exceptions stand, with their reason, in the sample's README."""
    path = realdata("pantheon") / "pantheon_bios.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        known = {row["title"]: row for row in map(json.loads, file)}
    readme = (data_folder() / "sample" / "README.md").read_text("utf-8")
    checked = 0
    for document in load_dataset("sample").documents.values():
        person = known.get(document.title)
        if person is None or document.title in readme:
            continue
        checked += 1
        assert document.groups["gender"] == (person["gender"],), document.title
        if person["continent"]:
            (continent,) = document.groups["location"]
            assert (continent == "Europe") == (person["continent"] == "Europe"), document.title
    assert checked > 100


# The bundled collection for refinement


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
