"""Drawn lists: what each bucket holds, what a shortage does, what a list may depend on."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from llmfair.audits.listwise.design import make_design
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.pairwise.design import make_pair_design
from llmfair.audits.pairwise.settings import PairwiseSettings
from llmfair.datasets.attributes import read_attributes, shipped_attributes
from llmfair.datasets.base import attribute_of, cells
from llmfair.datasets.buckets import DrawPlan, ListDraw, draw, draw_plan
from llmfair.datasets.files import OwnData, read_folder
from llmfair.errors import UsageError
from llmfair.metrics.base import Ratio, measure_all
from llmfair.metrics.names import parse_measures
from llmfair.nouns import Query, Ranking
from llmfair.stats.power import rank_exposures
from tests.cli.command import kept, llmfair, only_run, ran, refuses
from tests.folders import balanced, write, write_folder


def pools(
    path: Path, topics: Mapping[str, tuple[int, int]], prefix: Mapping[str, int] | None = None
) -> OwnData:
    """A folder without lists: each topic has so many unprotected and protected relevant documents, numbered."""
    lists = {}
    for number, (query_id, (unprotected, protected)) in enumerate(topics.items(), start=1):
        start = (prefix or {}).get(query_id, number) * 100_000
        lists[query_id] = [
            *((str(start + i), "male", 1) for i in range(unprotected)),
            *((str(start + 50_000 + i), "female", 1) for i in range(protected)),
        ]
    return read_folder(write_folder(path, lists))


def drawn(folder: OwnData, plan: DrawPlan | None = None, seed: int = 0) -> ListDraw:
    plan = plan or draw_plan(None, None, None, None, 10)
    return draw(folder, attribute_of(folder, "gender"), plan, seed)


def sizes(dataset: ListDraw, query_id: str) -> list[int]:
    gender = read_attributes(shipped_attributes())["gender"]
    counts = cells(dataset.candidates(dataset.by_id[query_id]), gender)
    return [
        counts["relevant unprotected"], counts["relevant protected"],
        counts["irrelevant unprotected"], counts["irrelevant protected"],
    ]  # fmt: skip


RICH = {"a": (300, 250), "b": (280, 260), "c": (240, 220)}


def test_fifty_of_each_by_default(tmp_path: Path) -> None:
    dataset = drawn(pools(tmp_path / "f", RICH))
    assert [query.query_id for query in dataset.queries] == ["a", "b", "c"]
    for query in dataset.queries:
        assert sizes(dataset, query.query_id) == [50, 50, 50, 50]
        listed = dataset.candidates(query).doc_ids
        assert len(set(listed)) == 200
        relevant = [dataset.qrels[query.query_id][doc_id] for doc_id in listed]
        assert relevant == [1] * 100 + [0] * 100, "relevant documents first: the DELTR order"


def test_the_documented_stream_over_numerically_sorted_pools(tmp_path: Path) -> None:
    dataset = drawn(pools(tmp_path / "f", RICH, prefix={"a": 1, "b": 20, "c": 3}), seed=7)
    pool = np.array([str(2_000_000 + i) for i in range(280)], dtype=object)
    rng = np.random.default_rng([7, zlib.crc32(b"b"), 0])
    assert dataset.lists["b"][:50] == list(pool[rng.permutation(280)[:50]])
    others = sorted([100_000 + i for i in range(300)] + [300_000 + i for i in range(240)])
    rng = np.random.default_rng([7, zlib.crc32(b"b"), 2])
    assert dataset.lists["b"][100:150] == [str(others[i]) for i in rng.permutation(540)[:50]]


def test_a_smaller_list_is_part_of_a_larger_one_and_seeds_differ(tmp_path: Path) -> None:
    folder = pools(tmp_path / "f", RICH)
    small, large = drawn(folder, draw_plan(100, None, None, 10, 10)), drawn(folder)
    assert set(small.lists["a"]) < set(large.lists["a"])
    assert drawn(folder, seed=1).lists["a"] != large.lists["a"]


def test_another_query_and_the_order_of_rows_leave_expert_buckets_alone(tmp_path: Path) -> None:
    base = drawn(pools(tmp_path / "f", RICH))
    more = drawn(pools(tmp_path / "g", {**RICH, "d": (200, 200)}))
    for query_id in RICH:
        assert more.lists[query_id][:100] == base.lists[query_id][:100]
    shuffled = tmp_path / "f" / "qrels.txt"
    rows = shuffled.read_text().splitlines()
    write(shuffled, sorted(rows, key=lambda row: hashlib.sha256(row.encode()).digest()))
    again = drawn(read_folder(tmp_path / "f"))
    assert again.lists == base.lists


def test_a_document_relevant_to_several_topics_is_never_another_one_and_never_twice(tmp_path: Path) -> None:
    folder = pools(tmp_path / "f", RICH)
    shared = (tmp_path / "f" / "qrels.txt").read_text().replace("b 0 2", "c 0 2")
    with (tmp_path / "f" / "qrels.txt").open("a") as file:
        file.write(shared)
    dataset = drawn(read_folder(Path(folder.where)))
    for query in dataset.queries:
        relevant = set(folder.relevant(query.query_id))
        listed = dataset.candidates(query).doc_ids
        assert len(set(listed)) == len(listed) == 200
        assert not relevant & set(listed[100:])


def test_a_shortage_of_experts_shrinks_both_sides_and_keeps_the_halves(tmp_path: Path) -> None:
    dataset = drawn(pools(tmp_path / "f", {**RICH, "short": (12, 30)}))
    assert sizes(dataset, "short") == [12, 12, 88, 88]
    assert dataset.shrunk == {"short": [12, 12, 88, 88]}


def test_nine_experts_of_a_side_drop_the_query_and_name_it(tmp_path: Path) -> None:
    dataset = drawn(pools(tmp_path / "f", {**RICH, "few": (9, 30)}))
    assert "few" not in dataset.lists
    assert dataset.left_out == {
        "few": "Topic few: 9 unprotected and 30 protected relevant documents, needs 10 of each (--min-relevant)"
    }


def test_a_shortage_of_others_shortens_both_sides_alike(tmp_path: Path) -> None:
    dataset = drawn(pools(tmp_path / "f", {"a": (300, 250), "b": (20, 60)}))
    assert sizes(dataset, "a") == [50, 50, 20, 20]


def test_counts_are_met_or_the_query_is_dropped(tmp_path: Path) -> None:
    folder = pools(tmp_path / "f", {**RICH, "short": (11, 1)})
    dataset = drawn(folder, draw_plan(None, "11,2,168,19", None, None, 10))
    assert sizes(dataset, "a") == [11, 2, 168, 19]
    assert dataset.left_out == {"short": "Topic short: buckets hold 11/1/820/730, needs 11/2/168/19"}


def test_natural_lists_have_the_shares_of_the_data(tmp_path: Path) -> None:
    folder = pools(tmp_path / "f", {"a": (900, 100), "b": (900, 100), "one": (40, 0)})
    dataset = drawn(folder, draw_plan(200, "natural", None, None, 10))
    found = sizes(dataset, "a")
    assert found[0] + found[1] == 100 and found[2] + found[3] == 100
    assert 2 <= found[1] <= 22 and 2 <= found[3] <= 22
    assert sum(sizes(dataset, "one")) == 200 and sizes(dataset, "one")[0] == 40


def test_nothing_to_draw_says_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="query 'b': 5/6/3/4") as caught:
        drawn(pools(tmp_path / "f", {"a": (3, 4), "b": (5, 6)}))
    assert "--min-relevant" in caught.value.hint


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((201, None, None, None), "--candidates 201 cannot be shared out"),
        ((3, None, None, None), "a multiple of 4"),
        ((200, None, 33, None), "--relevant 33 cannot be halved"),
        ((200, None, 202, None), "--relevant 202"),
        ((200, "equl", None, None), "--buckets equl is neither"),
        ((200, "1,2,3", None, None), "--buckets 1,2,3 is neither"),
        ((200, "1,2,3,4", 2, None), "--relevant and --min-relevant have no meaning"),
    ],
)
def test_wrong_sizes(arguments: tuple[int | None, str | None, int | None, int | None], message: str) -> None:
    size, buckets, relevant, fewest = arguments
    with pytest.raises(UsageError) as caught:
        draw_plan(size, buckets, relevant, fewest, default_fewest=10)
    assert message in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.whole
def test_an_audit_on_drawn_lists_keeps_them_and_their_counts(tmp_path: Path) -> None:
    pools(tmp_path / "f", {"a": (30, 25), "b": (28, 26), "c": (24, 22), "few": (0, 30)})
    found = ran("listwise", "-d", tmp_path / "f", *"--candidates 40 --orders 1 --passes 1 --json".split())
    folder = only_run()
    ran("runs", "check", folder)
    rows = [json.loads(line) for line in (folder / "candidates.jsonl").read_text().splitlines()]
    assert [row["query_id"] for row in rows] == ["a", "b", "c"]
    assert all(row["bucket"] == [1] * 10 + [2] * 10 + [3] * 10 + [4] * 10 for row in rows)
    lists = kept("manifest", folder)["lists"]
    assert lists["left_out"].keys() == found.json["design"]["left_out"].keys() == {"few"}
    assert lists["cells"]["a"]["relevant protected"] == 10


def test_missing_documents_are_an_error_unless_allowed(tmp_path: Path) -> None:
    folder = Path(pools(tmp_path / "f", RICH).where)
    with (folder / "qrels.txt").open("a") as file:
        file.write("a 0 999 1\n")
    refuses("qrels.txt:1551: doc_id: '999' is not in docs.jsonl", "datasets", "show", folder)
    dataset = read_folder(folder, allow_missing=True)
    assert dataset.describe()["judgements_without_document"] == 1
    assert Query("a", "Topic a") in dataset.topics


def test_score_of_drawn_lists_measures_against_all_relevant_documents(tmp_path: Path) -> None:
    pools(tmp_path / "f", RICH)
    measures = "AWRF@20,AWRF(target=trec2022)@20,KL@20,Share@20,nDCGxAWRF@20,P@20,ExpRatio"
    audited = ran(
        "listwise", "-d", tmp_path / "f", "--candidates", "20", "--measures", measures,
        "--orders", "1", "--passes", "1", "-m", "fake:oracle,malformed=0", "-o", "run", "--json",
    )  # fmt: skip
    scored = llmfair("score", "run", "--measures", measures, "--json").json
    ours = {(r["condition"], r["measure"], r["group"]): (r["value"], r["n"]) for r in audited.json["rows"]}
    theirs = {(r["condition"], r["measure"], r["group"]): (r["value"], r["n"]) for r in scored["rows"]}
    ours, theirs = (  # without what is concluded from, of answers here and of rankings there
        {key: value for key, value in of_it.items() if "Odds" not in key[1] and "Excess" not in key[1]}
        for of_it in (ours, theirs)
    )
    asked = {key: value for key, value in ours.items() if key[0] != "initial" and " vs " not in key[0]}
    assert theirs == asked and len(theirs) > 20
    awrf = theirs["neutral", "AWRF@20", ""][0]
    assert awrf is not None and awrf < 1, "the relevant documents are 540 men and 500 women, not 5 and 5"


def test_ids_of_equal_number_and_ids_that_are_none_have_one_order(tmp_path: Path) -> None:
    lists = {
        "a": [*((str(i), "male", 1) for i in range(30)), *((f"0{i}", "female", 1) for i in range(1, 31))],
        "b": [*((str(1000 + i), "male", 1) for i in range(30)), *((f"x{i}", "female", 1) for i in range(30))],
    }
    base = drawn(read_folder(write_folder(tmp_path / "f", lists)), draw_plan(20, None, None, 1, 10))
    lists["c"] = [("1e3", "male", 1), ("@0", "female", 1)]
    more = drawn(read_folder(write_folder(tmp_path / "g", lists)), draw_plan(20, None, None, 1, 10))
    for query_id in "ab":
        assert more.lists[query_id][:10] == base.lists[query_id][:10]
    assert not set(more.stand_ins) & set(more.documents)


OTHERS = {"q0f0": ("nonbinary",), "q0f1": (), "q0f2": ("female", "nonbinary"), "q0f3": ("female", "male")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two lists of eight women and eight men; of the first list, four women are on neither side, each in a way."""
    lists = balanced(2, 8, 8)
    path = write_folder(tmp_path / "mine", lists)
    groups = [line.split("\t") for line in (path / "groups.tsv").read_text().splitlines()]
    rows = [row for row in groups if row[0] not in OTHERS]
    rows += [[doc_id, "gender", group] for doc_id, found in OTHERS.items() for group in found]
    (path / "groups.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    return path


def test_they_keep_their_places_and_are_in_neither_mean(folder: Path) -> None:
    design = make_design(ListwiseSettings.make(dataset=str(folder), conditions="neutral", repeat=False))
    listed = design.dataset.candidates(design.queries[0])
    assert {*OTHERS} <= {*listed.doc_ids} and len(listed.doc_ids) == 16
    placed = Ranking("q0", (*OTHERS, *sorted({*listed.doc_ids} - {*OTHERS})))
    (column,) = measure_all(parse_measures("ExpRatio"), {"neutral": [design.judged(listed, [placed])]})
    found = column.values["q0"]
    assert isinstance(found, Ratio)
    exposures = rank_exposures(16)  # the four at the top, then four women, then eight men
    assert found.numerator == pytest.approx(exposures[4:8].mean())
    assert found.denominator == pytest.approx(exposures[8:].mean())


def test_they_are_in_no_pair_unless_mixed_ones_are_taken(folder: Path) -> None:
    def paired(mixed: str) -> set[str]:
        design = make_pair_design(PairwiseSettings.make(dataset=str(folder), mixed=mixed, pairs=999))
        return {doc_id for probe in design.probes() for doc_id in probe.candidates.doc_ids}

    assert not paired("drop") & {*OTHERS}
    assert paired("protected") & {*OTHERS} == {"q0f3"}


@pytest.mark.parametrize("buckets", ["equal", "natural"])
def test_they_are_in_no_drawn_list(folder: Path, buckets: str) -> None:
    settings = ListwiseSettings.make(dataset=str(folder), buckets=buckets, candidates=16, relevant=8)
    design = make_design(settings)
    assert design.queries
    for query in design.queries:
        assert not {*design.dataset.candidates(query).doc_ids} & {*OTHERS}


def test_a_group_that_is_declared_nowhere_is_refused_with_the_way_to_declare_it(folder: Path) -> None:
    groups = folder / "groups.tsv"
    groups.write_text(groups.read_text().replace("q1m0\tgender\tmale", "q1m0\tgender\tagender"))
    said = (
        "'agender' is not a group of gender; it has female, male, nonbinary\n  declare it protected, unprotected "
        'or, of neither group, other = ["agender"] in '
    )
    refuses(said, "datasets", "show", folder)
    shipped = ran("datasets", "attributes").out
    declared = shipped.replace('other = ["nonbinary"]', 'other = ["nonbinary", "agender"]')
    (folder / "attributes.toml").write_text(declared[: declared.index("[location]")])
    counted = "gender: protected (female) 12, unprotected (male) 15, unknown 1, mixed 1, other 3"
    assert counted in ran("datasets", "show", folder).out


def test_a_natural_list_of_one_group_is_left_out_and_names_the_other(tmp_path: Path) -> None:
    folder = pools(tmp_path / "f", {"men": (900, 0), "more": (900, 0), "both": (1, 1)})
    dataset = drawn(folder, draw_plan(4, "natural", 2, None, 10))
    said = {name: f"Topic {name}: no protected document was drawn" for name in ("men", "more")}
    assert dataset.left_out == said
