"""TREC Fair as a source: labels by page id, canonical groups, sides, and what is said when nothing was fetched."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmfair.datasets import distill
from llmfair.datasets.base import attribute_of, load_dataset
from llmfair.datasets.distill import canonical_groups
from llmfair.datasets.trec_fair import COLLECTIONS, TrecFair
from llmfair.errors import UsageError
from llmfair.nouns import Document, MixedPolicy, Side
from tests.cli.command import llmfair, ran, table
from tests.datasets.trec_sources import (
    FETCH,
    ODD_TITLE,
    WITHOUT_TITLE,
    FileServer,
    Sources,
    alike,
    downloads,
    labels_of,
    large_2022,
    lines,
    metadata_2021,
    pointed_at,
    sources_2022,
)
from tests.fresh import loaded_by
from tests.shared import realdata

P, U = Side.PROTECTED, Side.UNPROTECTED


def fetched(sources: Sources, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrecFair:
    """A dataset of these sources, fetched over HTTP by the command."""
    with (
        FileServer(sources).running() as server,
        pointed_at(downloads(server), tmp_path / "home", monkeypatch),
    ):
        found = llmfair("datasets", "fetch", name, "--yes", "--quiet")
    assert found.code == 0, found.err
    source: TrecFair = load_dataset(name)
    return source


@pytest.fixture(scope="module")
def fetched_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of a fetch of the sources of 2022."""
    folder = tmp_path_factory.mktemp("fetched")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LLMFAIR_CACHE_DIR", str(folder / "cache"))
        fetched(sources_2022(), "trec-fair/2022/gender", folder, patch)
    return folder / "cache"


@pytest.fixture
def gender(fetched_once: Path, monkeypatch: pytest.MonkeyPatch) -> TrecFair:
    monkeypatch.setenv("LLMFAIR_CACHE_DIR", str(fetched_once))
    source: TrecFair = load_dataset("trec-fair/2022/gender")
    return source


def groups(source: TrecFair, *page_ids: int) -> list[dict[str, tuple[str, ...]]]:
    documents = source.load(map(str, page_ids))
    return [dict(documents[str(page_id)].groups) for page_id in page_ids]


# The traps of the source files


@pytest.mark.whole
def test_2022_labels_are_canonical_and_never_a_neighbours(gender: TrecFair) -> None:
    assert groups(gender, 12, 307, 339, 500, 501, 502, 503, 504, 507, WITHOUT_TITLE) == [
        {},  # no metadata, and first
        {"gender": ("male",), "location": ("Northern America",)},  # the repeated line says otherwise
        {"gender": ("female",), "location": ("Eastern Europe", "Northern America")},
        {"gender": ("female",), "location": ("Western Europe", "Southern Europe")},
        {"gender": ("male",), "location": ("Oceania",)},
        {"gender": ("nonbinary",), "location": ("Oceania",)},
        {},  # [] and null
        {"gender": ("female", "male"), "location": ("Eastern Asia",)},
        {},  # no metadata, between pages that have some
        {"gender": ("male",), "location": ("Eastern Asia",)},
    ]
    documents = gender.load(["339", "507", str(WITHOUT_TITLE)])
    assert [document.title for document in documents.values()] == ["Ayn Rand", "", ODD_TITLE]
    assert documents["507"].text == ""


@pytest.mark.whole
def test_topics_and_relevance_come_without_repeats(gender: TrecFair) -> None:
    assert [(topic.query_id, topic.text) for topic in gender.topics] == [
        ("84", "Agriculture"),
        ("187", "Women"),
    ]
    assert list(gender.relevant("84")) == ["12", "307", "339", "500", "501", str(WITHOUT_TITLE)]
    assert list(gender.relevant("187")) == ["307", "502", "503", "504", "507"]
    assert gender.grades("84", ["12", "504"]) == {"12": 1}


def test_sides_hold_pages_whose_title_and_side_are_known(gender: TrecFair) -> None:
    attribute = attribute_of(gender, None)
    assert gender.sides(attribute) == {"307": U, "339": P, "500": P, "501": U}
    assert gender.sides(replace(attribute, mixed="protected"))["504"] is P
    location: TrecFair = load_dataset("trec-fair/2022/location")
    attribute = attribute_of(location, "location")
    assert location.sides(attribute) == {"307": P, "500": U, "501": P, "502": P, "504": P}
    assert location.sides(replace(attribute, mixed="unprotected"))["339"] is U


def test_the_counts_say_what_was_dropped_and_what_is_unknown(gender: TrecFair) -> None:
    facts = gender.describe()
    assert facts["pages"]["gender"] == {
        "protected": 2, "unprotected": 3, "unknown": 3, "mixed": 1, "other": 1,
    }  # fmt: skip
    assert facts["pages"]["without title"] == 1
    record = facts["fetch"]
    assert record["topics"]["duplicate_rows"] == 1 and record["topics"]["pages"] == 10
    assert record["metadata"]["duplicate_lines"] == 1 and record["metadata"]["pages_without_metadata"] == 2
    assert record["metadata"]["unrecognised_labels"] == {"Atlantis": 1}
    assert record["pages"]["duplicate_lines"] == 1 and record["pages"]["pages_without_title"] == 1


# Groups and sides

GENDERS = {
    "female": P, "cisgender female": P, "transgender female": P, "male": U, "cisgender male": U,
    "transgender male": U, "non-binary": None, "intersex": None, "agender": None, "two-spiriit": None,
}  # fmt: skip
MIXED: tuple[MixedPolicy, ...] = ("drop", "protected", "unprotected")
EUROPE = {"Europe", "Eastern Europe", "Northern Europe", "Southern Europe", "Western Europe"}


def side(attribute: str, labels: list[str] | None, mixed: MixedPolicy = "drop") -> Side | None:
    (found,) = TrecFair(COLLECTIONS[2], attribute).attributes
    return replace(found, mixed=mixed).side(
        Document("1", "", groups={attribute: canonical_groups(attribute, labels)})
    )


def test_groups_and_sides_of_labels() -> None:
    for label, expected in GENDERS.items():
        assert canonical_groups("gender", [label]) == ({P: "female", U: "male", None: "nonbinary"}[expected],)
        assert side("gender", [label]) is expected
    assert len(distill.CONTINENTS) == 7 and len(distill.SUBREGIONS) == 20
    for region in {*distill.CONTINENTS, *distill.SUBREGIONS}:
        assert canonical_groups("location", [region]) == (region,)
        assert side("location", [region]) is (U if region in EUROPE else P), region
    pacific = ["Polynesia", "Oceania", "Australia and New Zealand", "Melanesia", "Micronesia"]
    assert canonical_groups("location", pacific) == ("Oceania",)
    for labels in (None, [], [""], ["@UNKNOWN"], ["Unknown"], ["Atlantis"]):
        assert canonical_groups("location", labels) == ()
        assert side("location", labels, "protected") is None
    mixed = ["Western Europe", "Eastern Asia"]
    assert [side("location", mixed, option) for option in MIXED] == [None, P, U]
    assert side("location", ["Western Europe", "Southern Europe"]) is U
    assert side("gender", ["female", "non-binary"], "protected") is None  # a group of neither side


# What is said


def test_a_dataset_never_fetched_names_the_command_the_download_and_the_space() -> None:
    with pytest.raises(UsageError) as error:
        attribute_of(load_dataset("trec-fair/2022/gender"), None)
    assert error.value.message == "dataset 'trec-fair/2022/gender' was never fetched."
    assert "llmfair datasets fetch trec-fair/2022 " in error.value.hint
    assert "7.9 GB" in error.value.hint and "8.2 GB of disk" in error.value.hint
    with pytest.raises(UsageError) as error:
        _ = load_dataset("trec-fair/2022/eval/location").topics
    assert FETCH in error.value.hint


@pytest.mark.whole
def test_the_list_names_all_datasets_with_size_and_state(gender: TrecFair) -> None:
    found = {row["dataset"]: row for row in llmfair("datasets", "list", "--json").json["datasets"]}
    assert {name: (row["attributes"], row["queries"], row["fetched"]) for name, row in found.items()} == {
        **{f"lamp/{number}": ([], None, False) for number in range(1, 8)},
        "rag-sample": ([], 8, None),
        "refine-sample": (["gender", "location"], 12, None),
        "sample": (["gender", "location"], 8, None),
        "trec-fair/2021/location": (["location"], 57, False),
        "trec-fair/2021/eval/location": (["location"], 49, False),
        "trec-fair/2022/gender": (["gender"], 50, True),
        "trec-fair/2022/location": (["location"], 50, True),
        "trec-fair/2022/eval/gender": (["gender"], 50, False),
        "trec-fair/2022/eval/location": (["location"], 50, False),
    }
    assert found["trec-fair/2021/location"]["size"].startswith("15.6 GB")


@pytest.mark.whole
def test_listing_datasets_loads_neither_ir_datasets_nor_pandas() -> None:
    listing = "from llmfair.cli.app import run\nassert run(['datasets', 'list']) == 0"
    assert not loaded_by(listing) & {"ir_datasets", "pandas", "requests"}


# Real records


def real_rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in realdata(name).read_text("utf-8").splitlines()]


def test_real_records_of_2022(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = real_rows("trec_fair_2022/real_records.jsonl")
    ids = [int(row["doc_id"]) for row in rows]
    sources = {
        "2022/train/topics": lines([{"id": 1, "title": "T", "url": "u", "rel_docs": ids}], pack=False),
        "2022/metadata": lines({"page_id": int(row["doc_id"])} | row for row in rows),
        "2022/docs": lines({"id": int(row["doc_id"]), "title": row["title"], "plain": "p"} for row in rows),
    }
    source = fetched(sources, "trec-fair/2022/gender", tmp_path, monkeypatch)
    assert [source.load([row["doc_id"]])[row["doc_id"]].title for row in rows] == [
        row["title"] for row in rows
    ]
    assert groups(source, *ids) == [
        {"gender": ("male",), "location": ("Northern America",)},
        {"gender": ("male",)},
        {"gender": ("female",), "location": ("Northern America",)},
    ]


def test_real_records_of_2021(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third record carries the labels of the page before it, as ir_datasets returns it; here it has none."""
    rows = real_rows("trec_fair_2021/real_records.jsonl")
    ids = [int(row["doc_id"]) for row in rows]
    sources = {
        "2021/train/topics": lines(
            [{"id": 1, "title": "T", "keywords": [], "scope": "", "homepage": "", "rel_docs": ids}]
        ),
        "2021/metadata": lines(
            metadata_2021(int(row["doc_id"]), row["geographic_locations"]) for row in rows[:2]
        ),
        "2021/docs": lines({"id": int(row["doc_id"]), "title": row["title"], "text": "w"} for row in rows),
    }
    source = fetched(sources, "trec-fair/2021/location", tmp_path, monkeypatch)
    assert groups(source, *ids) == [{}, {"location": ("Northern America",)}, {}]


def test_printed_labels_of_the_organisers_are_groups() -> None:
    for row in real_rows("trec_fair_2022/printed_labels.jsonl"):
        for attribute, key in (
            ("gender", "gender_2022"),
            ("location", "sub_geo_2022"),
            ("location", "geo_2021"),
        ):
            printed = [label for label in row.get(key, []) if label not in ("@UNKNOWN", "Unknown")]
            assert canonical_groups(attribute, row.get(key)) == tuple(printed), row


# Audits of drawn lists


def test_the_topics_of_the_official_results(tmp_path: Path) -> None:
    name = "trec-fair/2022/eval"
    copies = alike(tmp_path, name, (5, 1449, 1499, 6, 1685))
    ran("datasets", "fetch", name, "--yes", "--index", "pool", *copies)
    for audit, says in (("listwise", "2 queries ×"), ("refine", "2 queries\n")):
        assert says in ran(audit, "-d", f"{name}/gender", "--queries", "official", "--dry-run").out


@pytest.mark.whole
def test_an_audit_measures_against_all_relevant_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = fetched(large_2022(900, seed=3), "trec-fair/2022/gender", tmp_path, monkeypatch)
    shown = llmfair("datasets", "show", "trec-fair/2022/gender").out
    assert "kept 2 of 2 topics (the paper has 44)" in shown
    assert "all relevant pages · gender: protected" in shown
    arguments = (
        "listwise", "-d", "trec-fair/2022/gender", "--candidates", "20", "--orders", "1", "--max-invalid", "1",
        "--measures", "AWRF@20,AWRF(target=trec2022)@20,Share@20,ExpRatio",
    )  # fmt: skip
    ran(*arguments, "-o", "one/run")

    # By hand: system and target of one query from the files and the labels of all its relevant pages.
    ranked = [line.split() for line in Path("one/run/rankings/neutral.run").read_text().splitlines()]
    query_id = ranked[0][0]
    names = ("female", "male", "@UNKNOWN")
    system, target = np.zeros(3), np.zeros(3)
    labels = {doc_id: (labels_of(int(doc_id))[0] or ["@UNKNOWN"])[0] for _, _, doc_id, *_ in ranked}
    for row in ranked:
        if row[0] == query_id:
            system[names.index(labels[row[2]])] += 1 / np.log2(max(int(row[3]), 2))
    for page_id in map(int, source.relevant(query_id)):
        known = labels_of(page_id)[0] if page_id % 3 else []
        target[names.index((known or ["@UNKNOWN"])[0])] += 1
    p, t = system / system.sum(), target / target.sum()
    half = (p + t) / 2
    divergence = sum(0.5 * x * np.log(x / h) for side in (p, t) for x, h in zip(side, half, strict=True) if x)
    values = {
        (row["query_id"], row["measure"], row["condition"]): float(row["value"])
        for row in table(Path("one/run/per_query.csv"))
        if row["value"]
    }
    assert values[query_id, "AWRF@20", "neutral"] == pytest.approx(1 - divergence, abs=1e-12)
    assert values[query_id, "AWRF(target=trec2022)@20", "neutral"] != values[query_id, "AWRF@20", "neutral"]


def test_a_run_of_its_pages_is_reranked(gender: TrecFair) -> None:
    """Pages are loaded by id; 12 has no metadata, and 99 is nowhere."""
    ranked = ("307", "501", "12", "99", "339", "500")
    Path("my.run").write_text("".join(f"84 Q0 {page} {i} {-i} x\n" for i, page in enumerate(ranked)))
    found = ran(
        "rerank", "my.run", "--with", "fair-star:k=6,p=0.5,alpha=0.2,adjust=none", "-d", "trec-fair/2022/gender",
        "-o", "new.run",
    )  # fmt: skip
    order = [line.split()[2] for line in Path("new.run").read_text().splitlines()]
    assert order == ["307", "501", "339", "12", "500", "99"]
    assert "2 of 6 documents have no group of gender" in found.err
    assert found.out.splitlines()[1].endswith("llmfair score my.run new.run --qrels FILE --groups FILE")
    for ranker in ("mmr", "greedy"):
        ran("rerank", "my.run", "--with", ranker, "-d", "trec-fair/2022/gender", "-o", f"{ranker}.run")
