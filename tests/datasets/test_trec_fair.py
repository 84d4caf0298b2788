"""TREC Fair as a source of lists and as a collection: labels, groups and pages by id, an index, and what is said of it."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmfair.audits.lists import engine_of
from llmfair.datasets import pages as stored
from llmfair.datasets.base import Collection, attribute_of, cache_folder, load_dataset
from llmfair.datasets.pages import PageStore, PageValues, canonical_groups, written
from llmfair.datasets.trec_fair import COLLECTIONS, TrecFair
from llmfair.errors import UsageError
from llmfair.nouns import Document, MixedPolicy, Side, of_each_kind
from llmfair.retrieval.bm25 import MANIFEST
from tests.cli.command import llmfair, ran, refusal, refuses, table
from tests.datasets.trec_sources import (
    FETCH,
    NAME,
    ODD_TITLE,
    WITHOUT_TITLE,
    FileServer,
    Made,
    Sources,
    alike,
    downloads,
    labels_of,
    large_2022,
    lines,
    made,
    metadata_2021,
    numbers_of,
    pointed_at,
    sources_2022,
)
from tests.disks import SmallDisk
from tests.folders import write
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
    assert [(t.query_id, t.text) for t in gender.topics] == [("84", "Agriculture"), ("187", "Women")]
    assert list(gender.relevant("84")) == ["12", "307", "339", "500", "501", str(WITHOUT_TITLE)]
    assert list(gender.relevant("187")) == ["307", "502", "503", "504", "507"]


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
    assert record["topics"]["pages"] == 10 and record["metadata"]["pages_without_metadata"] == 2
    assert record["pages"]["pages_without_title"] == 1


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
    assert len(stored.CONTINENTS) == 7 and len(stored.SUBREGIONS) == 20
    for region in {*stored.CONTINENTS, *stored.SUBREGIONS}:
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
    assert [source.load([r["doc_id"]])[r["doc_id"]].title for r in rows] == [row["title"] for row in rows]
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
        "2021/metadata": lines(metadata_2021(int(r["doc_id"]), r["geographic_locations"]) for r in rows[:2]),
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


def test_the_topics_of_the_official_results(tmp_path: Path) -> None:
    name = "trec-fair/2022/eval"
    copies = alike(tmp_path, name, (5, 1449, 1499, 6, 1685))
    ran("datasets", "fetch", name, "--yes", "--index", "pool", *copies)
    for audit, says in (("listwise", "2 queries ×"), ("refine", "2 queries\n")):
        assert says in ran(audit, "-d", f"{name}/gender", "--queries", "official", "--dry-run").out


@pytest.mark.whole
def test_audits_measure_against_all_relevant_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = fetched(large_2022(900, seed=3), "trec-fair/2022/gender", tmp_path, monkeypatch)
    shown = llmfair("datasets", "show", "trec-fair/2022/gender").out
    assert "kept 2 of 2 topics" in shown
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


# Collections fetched with an index: every page found with its groups, titles and words, by whoever searches them


GENDER = f"{NAME}/gender"
QUICK = ("refine", "-d", GENDER, "--max-iterations", "1", "-q", "--no-report")


def from_files(folder: Path, given: Made, *flags: str) -> Any:
    """The record of a fetch from files beside."""
    return ran("datasets", "fetch", NAME, "--yes", "--json", *given.copies(folder), *flags).json


def index_of(scope: str) -> Path:
    return cache_folder() / "datasets" / "trec-fair-2022-eval" / f"index-{scope}"


def test_pages_are_looked_up_where_they_are_stored(tmp_path: Path) -> None:
    groups = {3: {"g": ["a"]}, 8: {"g": ["a", "b"]}}
    texts = {8: ("Eight", "of\nlines"), 3: ("Three", "名"), 500: ("", ""), 4: ("Four", "x")}
    with written(tmp_path / "pages.db") as pages:
        for page_id, text in texts.items():
            assert pages.add(page_id, *text, groups.get(page_id, {}))
        assert not pages.add(3, "Again")
    store = PageStore(tmp_path / "pages.db")
    assert list(store) == ["3", "4", "8", "500"] and len(store) == 4
    assert {int(one.doc_id): (one.title, one.text) for one in store.values()} == texts
    assert [dict(store[name].groups) for name in store] == [{"g": ("a",)}, {}, {"g": ("a", "b")}, {}]
    for absent in ("5", "03", "501", "-3", "x", "", "3 "):
        assert absent not in store and store.get(absent) is None
    assert {tuple(one.groups.get("g", ())) for one in of_each_kind(store)} == {(), ("a",), ("a", "b")}
    counts = store.counts(store.places(np.array([3, 4, 500])))
    assert {store[f"@ {c}"].groups.get("g", ()): n for c, n in enumerate(counts) if n} == {("a",): 1, (): 2}


def test_judged_pages_are_a_mapping_of_ones() -> None:
    of_topic = PageValues(np.array([3, 8, 500]), np.zeros(3, dtype=np.uint8), (1,))
    assert dict(of_topic) == {"3": 1, "8": 1, "500": 1} and of_topic.get("4") is of_topic.get("x") is None


def test_every_page_is_indexed_with_its_groups_and_first_words(tmp_path: Path) -> None:
    given = made(300)
    record = from_files(tmp_path, given, "--index", "full", "--text-words", "5")
    assert record["pages"]["index"]["documents"] == 300
    source = load_dataset(GENDER)
    found = Collection(source)
    assert {doc_id: page.text for doc_id, page in found.documents.items()} == {
        str(page_id): " ".join(text.split()[:5]) for page_id, text in given.texts.items()
    }
    for page_id in given.texts:
        page = found.documents[str(page_id)]
        raw = labels_of(page_id) if page_id % 3 else ((), ())
        assert page.groups.get("gender", ()) == canonical_groups("gender", raw[0])
        assert page.groups.get("location", ()) == canonical_groups("location", raw[1])
        assert page.title == f"Page {page_id}"
        assert page.numbers == (numbers_of(page_id) if page_id % 3 else {})
    engine = engine_of(found)
    assert engine.count() == 300
    said = {str(page_id) for page_id, text in given.texts.items() if "w7" in text.split()}
    assert {hit.doc_id for hit in engine.search("w7", 300)} == said  # of the whole text
    assert found.qrels["100"] == {str(page_id): 1 for page_id in given.relevant[0]}
    counted = {found.documents[name].groups.get("gender", ()): 0 for name in found.relevant_counts["100"]}
    for name, count in found.relevant_counts["100"].items():
        counted[found.documents[name].groups.get("gender", ())] += count
    assert sum(counted.values()) == len(given.relevant[0])
    assert counted[("female",)] == sum(
        page_id % 3 != 0 and labels_of(page_id)[0] == ["female"] for page_id in given.relevant[0]
    )


def test_a_fetch_from_files_says_what_it_reads_and_needs(tmp_path: Path) -> None:
    """Nothing is downloaded, so that nobody is asked."""
    found = llmfair(
        "datasets", "fetch", NAME, *made(60).copies(tmp_path), "--index", "full", "--text-words", "300"
    )
    assert found.code == 0
    reads, needs = found.err.splitlines()[:2]
    assert "reads 2022-train-topics 1" in reads and "downloads" not in reads
    assert "needs 10.8 GB of disk" in needs


def test_an_index_needs_the_corpus_and_a_server_its_address(tmp_path: Path) -> None:
    refuses("no engine 'tantivi'. Did you mean 'tantivy'?", "refine", "--engine", "tantivi")
    corpus = ("datasets", "fetch", NAME, "--yes", *made(50).copies(tmp_path), "--index", "pool")
    refuses("needs the address of its server", *corpus, "--engine", "opensearch:pages")
    refuses("are its own", *corpus, "--engine", "tantivy:pages")
    server = "--engine opensearch:p --engine-url http://127.0.0.1:1".split()
    refuses("connection refused", *corpus, *server, code=1)
    assert not index_of("pool").parent.exists()  # said before anything is read
    from_files(tmp_path, made(50))
    refuses("its pages were fetched without an index", *QUICK)


@pytest.mark.whole
def test_refinement_searches_and_measures_the_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = made(300)
    from_files(tmp_path, given, "--index", "full", "--text-words", "30")

    def none_of_all(self: PageStore) -> Any:
        raise AssertionError("nobody goes through millions of pages")

    monkeypatch.setattr(PageStore, "__iter__", none_of_all)
    ran(*QUICK, "--baseline", "greedy", "--baseline", "fair-star", "-o", "run")
    run = Path("run")
    listed = {line.split("\t")[0] for line in (run / "groups.tsv").read_text().splitlines()}
    assert len(listed) <= 300 and (run / "relevant.jsonl").is_file()
    results = json.loads((run / "results.json").read_text())
    assert results["design"]["documents"] == 300
    scored = ran("score", "run", "--json").json
    of_run = {(row["condition"], row["measure"]): row["value"] for row in results["rows"]}
    of_score = {(row["condition"], row["measure"]): row["value"] for row in scored["rows"]}
    for key in of_run.keys() & of_score.keys():
        assert of_score[key] == pytest.approx(of_run[key]), key
    ran("runs", "check", "run")


@pytest.mark.whole
def test_the_same_documents_in_a_folder_give_the_same_figures(tmp_path: Path) -> None:
    given = made(300)
    from_files(tmp_path, given, "--index", "full", "--text-words", "99")
    folder = tmp_path / "own"
    folder.mkdir()
    pages = Collection(load_dataset(GENDER)).documents
    documents = ({"doc_id": p.doc_id, "title": p.title, "text": p.text} for p in pages.values())
    write(folder / "docs.jsonl", map(json.dumps, documents))
    topics = [(str(topic["id"]), topic) for topic in given.topics]
    write(folder / "queries.tsv", (f"{q}\t{topic['title']}" for q, topic in topics))
    words = ({"query_id": q, "keywords": topic["keywords"]} for q, topic in topics)
    write(folder / "keywords.jsonl", map(json.dumps, words))
    write(folder / "qrels.txt", (f"{q} 0 {page} 1" for q, topic in topics for page in topic["rel_docs"]))
    groups = ((p.doc_id, name, one) for p in pages.values() for name, of in p.groups.items() for one in of)
    write(folder / "groups.tsv", map("\t".join, groups))
    ran(*QUICK, "-o", "fetched")
    ran("refine", "-d", str(folder), "-a", "gender", *QUICK[3:], "-o", "own-run")
    for file in ("rankings/bm25.run", "rankings/fair-qr.run", "queries/refined.tsv", "scores.tsv"):
        assert (Path("fetched") / file).read_text() == (Path("own-run") / file).read_text()
    rows = [json.loads((Path(name) / "results.json").read_text())["rows"] for name in ("fetched", "own-run")]
    values = [[(row["measure"], row["condition"], row["value"]) for row in of] for of in rows]
    for (measure, condition, value), other in zip(*values, strict=True):
        assert other == (measure, condition, pytest.approx(value))


@pytest.mark.whole
def test_an_index_that_is_gone_damaged_or_of_another_version_is_said_in_a_sentence(tmp_path: Path) -> None:
    from_files(tmp_path, made(100), "--index", "full")
    ran(*QUICK, "-o", "run")
    index, makes = index_of("full") / "english", FETCH
    manifest = (index / MANIFEST).read_text()
    other = json.dumps({**json.loads(manifest), "tantivy": "0.1.0"})
    (index / MANIFEST).write_text(other)
    found = refuses("is another one: tantivy is 0.1.0, not", "runs", "check", "run", code=1)
    assert makes in found.err
    (index / MANIFEST).write_text(manifest)
    (terms,) = index.glob("*.term")
    content = terms.read_bytes()
    terms.write_bytes(content[:-1])
    refuses("english is gone or damaged", "runs", "check", "run")
    terms.write_bytes(content)
    ran("runs", "check", "run")
    shutil.rmtree(index)
    found = refuses("english is gone or damaged", "runs", "check", "run")
    assert makes in found.err
    shutil.rmtree(index_of("full"))
    refuses("pages.db cannot be used", "runs", "check", "run")
    record = from_files(tmp_path, made(100))  # which the command makes again
    assert not record["already_fetched"]
    ran("runs", "check", "run")


# A fetch with an index that finds no room, or a broken corpus


def fetch(*flags: str) -> Any:
    return llmfair("datasets", "fetch", NAME, "--yes", "--index", "full", *flags)


@pytest.mark.slow
def test_a_full_disk_is_said_wherever_it_fills(
    small_disk: SmallDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from llmfair.datasets import fetch as fetching

    monkeypatch.setenv("LLMFAIR_CACHE_DIR", str(small_disk.folder / "cache"))
    monkeypatch.setattr(fetching, "KEPT_BYTES", 0)
    monkeypatch.setattr(fetching, "INDEX_BYTES", {"pool": 0, "full": 0})
    flags = made(1_500, words=300).copies(tmp_path)
    failed = 0
    for size in (*range(200, 900, 100), 4_000):
        small_disk.resize(size * 1024)
        found = fetch(*flags)
        if found.code == 0:
            break
        assert found.code and "Traceback" not in found.err
        assert re.search("disk is full|No space left", found.err), found
        failed += 1
        if size % 100:  # begun anew, or gone on with
            shutil.rmtree(small_disk.folder / "cache")
    assert found.code == 0 and failed > 3
    assert engine_of(Collection(load_dataset(f"{NAME}/gender"))).count() == 1_500


@pytest.mark.whole
def test_a_broken_corpus_is_refused_and_the_index_is_not_there(tmp_path: Path) -> None:
    given = made(400)
    sources = given.sources()
    flags = given.copies(tmp_path)
    corpus = Path(flags[-1])
    corpus.write_bytes(sources["2022/docs"][:-9])
    refusal(fetch(*flags), "not a complete packed file")
    corpus.write_bytes(gzip.compress(b'{"id": 12, "title": "A"}\n{"title": "B"}\n'))
    refusal(fetch(*flags), ":2: id: is missing")
    folder = cache_folder() / "datasets" / "trec-fair-2022-eval" / "index-full"
    assert not (folder / "english").exists() and not (folder / "pages.db").exists()
    corpus.write_bytes(sources["2022/docs"])
    assert fetch(*flags).code == 0
