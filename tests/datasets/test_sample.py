"""The bundled sample: balanced by hand, correct by a second source."""

from __future__ import annotations

import gzip
import json
import re

from llmfair.datasets.attributes import data_folder
from llmfair.datasets.base import facts, load_dataset
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
