"""AWRF, shares and divergence over any number of groups: worked cases, properties, mistakes."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfair.audits.aggregates import summarise
from llmfair.audits.listwise import LISTWISE
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.subject import Subject
from llmfair.datasets.base import load_dataset
from llmfair.errors import UsageError
from llmfair.metrics.attention import attention_weights, jensen_shannon, kullback_leibler
from llmfair.metrics.base import Floats, Judged, Product, Undefined, measure_all
from llmfair.metrics.names import parse_measure
from llmfair.metrics.targets import UNKNOWN, cells, half_background, target_shares
from llmfair.nouns import Attribute, Ranking, Side
from tests.finished import audit
from tests.metrics import attribute_with, grouped, raw, rows, value
from tests.shared import realdata, vectors

LN2 = math.log(2)
GENDER = attribute_with("gender", "f", "m", "nonbinary")
BACKGROUND = {"f": 0.495, "m": 0.495, "nonbinary": 0.01}


def listed(
    groups: Sequence[Sequence[str]],
    relevant: Sequence[int] = (),
    attribute: Attribute = GENDER,
    unlisted: Sequence[int] = (),
) -> Judged:
    """Documents d0, d1, … ranked so, each with its groups; `relevant` and `unlisted` are places."""
    memberships = {f"d{i}": {attribute.name: tuple(n)} for i, n in enumerate(groups) if i not in unlisted}
    ranking = [f"d{place}" for place in range(len(groups))]
    return grouped(ranking, memberships, attribute, relevant=[f"d{place}" for place in relevant])


def test_divergences_of_two_groups() -> None:
    p, even = np.array([0.7, 0.3]), np.array([0.5, 0.5])
    assert jensen_shannon(p, even) == pytest.approx(0.0210059, abs=1e-7)
    assert jensen_shannon(p, even) / LN2 == pytest.approx(0.0303051, abs=1e-7)
    assert kullback_leibler(p, even, 1e-6) == pytest.approx(0.0822825396, abs=1e-7)
    assert kullback_leibler(even, p, 1e-6) == pytest.approx(0.0871762713, abs=1e-7)


TEN = [["f"]] * 7 + [["m"]] * 3 + [["m"]] * 9
QUARTER, HALVES = {"f": 2, "m": 6}, {"f": 0.5, "m": 0.5}
THREE = {"f": 0.5, "m": 0.3, "nonbinary": 0.2}


@pytest.mark.parametrize(
    ("groups", "target", "name", "expected"),
    [
        ([["m"], ["f"], ["m"], []], {"f": 0.25, "m": 0.5, UNKNOWN: 0.25}, "AWRF()@20", 0.9927562),
        ([["f"], ["m"], ["f"]], QUARTER, "AWRF()", 0.9285616),
        ([["f"], ["m"], ["f"]], QUARTER, "AWRF(log=2)", 0.8969362),
        ([["f"], ["m"], ["f"]], QUARTER, "AWRF(log=2,discount=log2)", 0.8453957),
        ([["f"], ["f"]], {"f": 1}, "AWRF()", 1),
        ([["f"], ["f"]], {"f": 1}, "KL()", 0),
        ([["f"], ["f"]], {"m": 1}, "AWRF()", 1 - LN2),
        ([["f"], ["f"]], {"m": 1}, "AWRF(log=2)", 0),
        (TEN, HALVES, "KL()@10", 0.0822825),
        (TEN, HALVES, "KL(direction=target-current)@10", 0.0871763),
        # eps decides where a group is missing
        ([["f"]] * 6 + [["m"]] * 4, THREE, "KL(direction=target-current,eps=1e-6,unknown=drop)@10", 2.26376),
        ([["f"]] * 6 + [["m"]] * 4, THREE, "KL(direction=target-current,eps=1e-10,unknown=drop)@10", 4.10582),
    ],
)
def test_against_a_stated_target(
    tmp_path: Path, groups: list[list[str]], target: dict[str, float], name: str, expected: float
) -> None:
    path = tmp_path / "target.json"
    path.write_text(json.dumps(target))
    stated = re.sub(r",?\)", f",target={path})", name).replace("(,", "(")
    assert value(stated, listed(groups)) == pytest.approx(expected, abs=5e-6)


def test_shares_are_unweighted_and_split() -> None:
    query = listed([["f", "m"], ["m"], [], ["nonbinary"]])
    assert {group: row.value for (query_id, group), row in rows("Share@3", query).items() if query_id == "q"} == {
        "f": pytest.approx(1 / 6), "m": pytest.approx(1 / 2), "nonbinary": 0, UNKNOWN: pytest.approx(1 / 3),
    }  # fmt: skip
    counted = rows("Share(membership=count,unknown=drop)@3", query)
    assert [counted["q", group].value for group in ("f", "m")] == [0.5, 1.0]
    assert ("q", UNKNOWN) not in counted


def test_targets_of_the_track_mix_the_background_in() -> None:
    gender = replace(GENDER, backgrounds=(BACKGROUND,))
    # relevant: f, f, m, unknown; known mass ¾
    query = listed([["f"], ["f"], ["m"], []], relevant=range(4), attribute=gender)
    attention = np.array([1, 1, 1 / math.log2(3), 1 / 2])
    p = np.array([2, attention[2], 0, attention[3]]) / attention.sum()
    known = np.array([0.495, 0.495, 0.01])
    t2022 = np.array([*(0.5 * np.array([0.5, 0.25, 0]) + 0.5 * 0.75 * known), 0.25])
    assert value("AWRF(target=trec2022)", query) == pytest.approx(1 - jensen_shannon(p, t2022), abs=1e-12)
    t2021 = 0.5 * np.array([2 / 3, 1 / 3, 0]) + 0.5 * known
    seen = p[:3] / p[:3].sum()
    assert value("AWRF(target=trec2021)", query) == pytest.approx(1 - jensen_shannon(seen, t2021), abs=1e-12)
    even = 1 - jensen_shannon(seen, np.full(3, 1 / 3))
    assert value("AWRF(target=uniform)", query) == pytest.approx(even, abs=1e-12)


def test_relevant_documents_outside_the_list_are_in_the_target() -> None:
    query = listed([["f"], ["m"]], relevant=[0])
    candidates = replace(query.candidates, documents=query.candidates.documents[:1])
    inside = replace(query, candidates=candidates, rankings=(Ranking("q", ("d0",)),))
    assert value("AWRF", inside) == 1
    both = replace(inside, candidates=replace(candidates, relevance={"d0": 1, "d1": 2, "d9": 1, "d0x": 0}))
    even = 1 - jensen_shannon(np.array([1.0, 0]), np.array([0.5, 0.5]))
    assert value("AWRF", both) == pytest.approx(even)  # d9 is not listed


def test_unlisted_documents_keep_their_rank_and_lose_their_weight() -> None:
    groups = [["f"], ["m"], ["m"]]
    query = listed(groups, relevant=[0, 2], unlisted=[1])
    weights = attention_weights(3)
    p = np.array([weights[0], weights[2]]) / (weights[0] + weights[2])
    assert value("AWRF", query) == pytest.approx(1 - jensen_shannon(p, np.array([0.5, 0.5])))
    p = np.array([weights[0], weights[2], weights[1]]) / weights.sum()
    expected = 1 - jensen_shannon(p, np.array([0.5, 0.5, 0]))
    assert value("AWRF(unlisted=unknown)", query) == pytest.approx(expected)
    assert value("Share(unlisted=unknown)", query, UNKNOWN) == pytest.approx(1 / 3)
    assert value("Share", query, UNKNOWN) == 0


def test_runs_of_one_query_are_averaged() -> None:
    query = listed([["f"], ["m"], ["m"]], relevant=[0, 1])
    turned = replace(query, rankings=(Ranking("q", ("d2", "d1", "d0")),))
    both = replace(query, rankings=(*query.rankings, *turned.rankings))
    for name in ("AWRF@1", "KL@1"):
        single = [value(name, each) or 0.0 for each in (query, turned)]
        assert value(name, both) == pytest.approx(np.mean(single))
    assert value("Share@2", both, "f") == pytest.approx(0.25)


def test_pairs_of_attributes_are_outer_products() -> None:
    place = attribute_with("place", "east", "west")
    pages: dict[str, dict[str, tuple[str, ...]]] = {
        "d0": {"gender": ("f",), "place": ("east", "west")},
        "d1": {"gender": ("m",)},
        "d2": {},
    }
    query = grouped(["d0", "d1", "d2"], pages, GENDER, place, relevant=pages)
    shares = {group: r.value for (q, group), r in rows("Share(over=place*gender)", query).items() if q == "q"}
    assert len(shares) == 3 * 4
    assert {name: share for name, share in shares.items() if share} == {
        "east*f": pytest.approx(1 / 6), "west*f": pytest.approx(1 / 6),
        f"{UNKNOWN}*m": pytest.approx(1 / 3), f"{UNKNOWN}*{UNKNOWN}": pytest.approx(1 / 3),
    }  # fmt: skip
    assert f"{UNKNOWN}*{UNKNOWN}" not in cells(query.groups, "place*gender", "drop").names


def test_groups_of_an_open_attribute() -> None:
    words = {Side.PROTECTED: "a", Side.UNPROTECTED: "b"}
    region = Attribute(
        "region", ("*",), ("east",), words, backgrounds=({"up": 0.5, "down": 0.5}, {"east": 1.0})
    )

    def names(*groups: str) -> list[str]:
        return cells(listed([groups], attribute=region).groups).names

    assert names("down") == ["up", "down", UNKNOWN]
    assert names("east") == ["east", UNKNOWN]
    assert names("west", "east") == ["east", "west", UNKNOWN]
    assert names() == ["up", "down", UNKNOWN]
    assert names(UNKNOWN, "down") == ["up", "down", UNKNOWN]
    assert value("Share", listed([[UNKNOWN, "down"], [UNKNOWN]], attribute=region), "down") == 0.5


def test_what_is_undefined_says_why() -> None:
    unknown = listed([[], []], relevant=[0])
    gender = replace(GENDER, backgrounds=(BACKGROUND,))
    known_late = listed([[], ["f"]], relevant=[1], attribute=gender)
    for query, name, reason in [
        (listed([["f"]]), "AWRF", "no_target"),
        (listed([["f"]], relevant=[0], unlisted=[0]), "AWRF", "no_target"),
        (unknown, "AWRF(unknown=drop)", "no_target"),
        (listed([[]], relevant=[0], attribute=gender), "AWRF(target=trec2021)", "no_target"),
        (known_late, "AWRF(target=trec2021)@1", "no_known_group"),
        (known_late, "KL(target=uniform)@1", "no_known_group"),
        (known_late, "nDCGxAWRF(unknown=drop)@1", "no_known_group"),
        (listed([["f"], ["m"]], relevant=[1], unlisted=[0]), "AWRF@1", "no_known_group"),
        (replace(listed([["f"]], relevant=[0]), rankings=()), "AWRF", "not_ranked"),
        (replace(listed([["f"]], relevant=[0]), rankings=()), "KL", "not_ranked"),
    ]:
        row = rows(name, query)["q", ""]
        assert (row.value, row.reason) == (None, reason), name
    assert value("AWRF", unknown) == 1
    assert value("AWRF(target=trec2022)", listed([[]], relevant=[0], attribute=gender)) == 1
    assert rows("Share(unknown=drop)", unknown)["q", "f"].reason == "no_known_group"
    assert rows("Share", replace(unknown, rankings=()))["q", UNKNOWN].reason == "not_ranked"


def test_a_product_of_means_is_the_product_of_the_columns() -> None:
    first = listed([["f"], ["m"], ["m"]], relevant=[0, 1])
    second = replace(
        first, candidates=replace(first.candidates, query=replace(first.candidates.query, query_id="r")),
        rankings=(Ranking("r", ("d2", "d1", "d0")),),
    )  # fmt: skip
    neither = replace(
        first, candidates=replace(first.candidates, query=replace(first.candidates.query, query_id="s"), relevance={})
    )  # fmt: skip
    names = ["nDCG@2", "AWRF@2", "nDCGxAWRF@2", "nDCGxAWRF(agg=mean-of-products)@2"]
    columns = measure_all([parse_measure(name) for name in names], {"neutral": [first, second, neither]})
    found = {(row.measure, row.query_id): row for row in summarise(columns)}
    figures: dict[tuple[str, str], float] = {key: row.value or 0.0 for key, row in found.items()}
    for q in "qr":
        assert figures["nDCGxAWRF@2", q] == pytest.approx(figures["nDCG@2", q] * figures["AWRF@2", q])
    assert figures[names[2], "all"] == pytest.approx(figures["nDCG@2", "all"] * figures["AWRF@2", "all"])
    assert figures[names[3], "all"] == pytest.approx(np.mean([figures[names[2], q] for q in "qr"]))
    together = found["nDCGxAWRF@2", "all"]
    assert (together.n, together.low, together.reason) == (2, None, "no_interval")
    assert found["nDCGxAWRF@2", "s"].reason == "no_relevant"


def test_parameters_go_to_both_factors() -> None:
    query = listed([["m"], ["f"], ["m"], ["f"]], relevant=[1, 2, 3])
    for product, utility, fairness in [
        ("nDCGxAWRF@3", "nDCG@3", "AWRF@3"),
        ("nDCGxAWRF(discount=log2)@3", "nDCG@3", "AWRF(discount=log2)@3"),
        ("nDCGxAWRF(discount=trec)@3", "nDCG(discount=trec)@3", "AWRF@3"),
        ("nDCGxAWRF(discount=trec,ideal=2)", "nDCG(discount=trec,ideal=2)", "AWRF"),
        ("nDCGxAWRF(log=2,target=uniform)@3", "nDCG@3", "AWRF(log=2,target=uniform)@3"),
    ]:
        assert raw(product, query) == Product(
            float(value(utility, query) or 0), float(value(fairness, query) or 0)
        )


TABLES = st.lists(
    st.lists(st.sampled_from(["f", "m", "nonbinary"]), max_size=2, unique=True), min_size=1, max_size=12
)
PARAMS = st.sampled_from(
    [
        "", "membership=count", "unknown=drop", "discount=log2", "target=uniform", "target=trec2021",
        "target=trec2022",
    ]
)  # fmt: skip


def with_params(name: str, *params: str, cutoff: int | None = None) -> str:
    written = ",".join(param for param in params if param)
    return f"{name}({written})" + ("" if cutoff is None else f"@{cutoff}")


@given(
    TABLES, st.sets(st.integers(0, 11)), PARAMS, st.none() | st.integers(1, 12), st.permutations(list(BACKGROUND)),
)  # fmt: skip
def test_properties(
    groups: list[list[str]], relevant: set[int], params: str, cutoff: int | None, permuted: list[str]
) -> None:
    gender = replace(GENDER, backgrounds=(BACKGROUND,))
    places = sorted(place for place in relevant if place < len(groups))
    query = listed(groups, relevant=places, attribute=gender)
    natural, binary = (
        value(with_params("AWRF", params, log, cutoff=cutoff), query) for log in ("log=e", "log=2")
    )
    assert (natural is None) == (binary is None)
    if natural is None or binary is None:
        return
    assert 0 <= binary <= 1
    assert natural == pytest.approx(1 - LN2 * (1 - binary), abs=1e-12)

    # other names of the groups
    name = dict(zip(BACKGROUND, permuted, strict=True))
    swapped = listed(
        [[name[group] for group in document] for document in groups],
        relevant=places,
        attribute=replace(gender, backgrounds=({name[group]: share for group, share in BACKGROUND.items()},)),
    )
    assert value(with_params("AWRF", params, cutoff=cutoff), swapped) == pytest.approx(natural, abs=1e-12)
    shares = rows(with_params("Share", cutoff=cutoff), query)
    total = sum(row.value or 0 for (query_id, _), row in shares.items() if query_id == "q")
    assert total == pytest.approx(1)
    divergence = value(with_params("KL", params.replace("discount=log2", ""), cutoff=cutoff), query)
    assert divergence is not None and divergence >= -1e-12


# Shares come from counts, so none is smaller than the smallest that a float can halve.
SHARE = st.floats(0, 1).map(lambda share: round(share, 12))


@given(st.lists(st.tuples(SHARE, SHARE), min_size=2, max_size=21))
def test_the_divergence_is_scipys(pairs: list[tuple[float, float]]) -> None:
    from scipy.spatial.distance import jensenshannon

    p, q = np.array(pairs).T
    if p.sum() < 1e-6 or q.sum() < 1e-6:
        return
    p, q = p / p.sum(), q / q.sum()
    with np.errstate(invalid="ignore"):  # of two equal distributions it may take the root of −1e-17
        distance = np.nan_to_num(jensenshannon(p, q))
    assert jensen_shannon(p, q) == pytest.approx(float(distance) ** 2, abs=1e-12)


def test_targets_imply_what_becomes_of_the_unknown() -> None:
    implied = {
        "empirical": "keep", "trec2021": "drop", "trec2022": "keep", "uniform": "drop", "./a.json": "keep",
    }  # fmt: skip
    for target, unknown in implied.items():
        assert parse_measure(f"AWRF(target={target})").arguments["unknown"] == unknown
    assert parse_measure("KL(eps=1e-3)").arguments["eps"] == 1e-3
    assert parse_measure("nDCGxAWRF").aggregate == "product-of-means"


def test_mistakes_that_only_the_data_show(tmp_path: Path) -> None:
    query = listed([["f"], ["m"]], relevant=[0])
    path = tmp_path / "shares.json"
    for text, says in [
        ('{"f": -1}', "float` >= 0"),
        ('{"f": 0}', "no group has a share"),
        ('{"nonbinry": 1}', "Did you mean 'nonbinary'"),
    ]:
        path.write_text(text)
        with pytest.raises(UsageError, match=says):
            value(f"AWRF(target={path})", query)
    for written, says in [
        ("AWRF(over=gendr)", "Did you mean 'gender'"),
        ("Share(over=gender*place)", "no attribute 'place'"),
        ("AWRF(target=trec2022)", "no background of gender has all groups of the data"),
        ("nDCGxAWRF(ideal=5)", "needs discount=trec"),
    ]:
        with pytest.raises(UsageError, match=says):
            value(written, query)


def test_what_the_data_cannot_give_is_said_before_anything_is_asked() -> None:
    for measure, says in [
        ("AWRF(over=gendre)", "Did you mean 'gender'"),
        ("AWRF(target=./none.json)", "cannot be read"),
    ]:
        with pytest.raises(UsageError, match=says):
            settings = ListwiseSettings.make(dataset="sample", measures=measure, orders=1)
            audit(LISTWISE.design(settings, Subject("fake:random")))
    assert not list(Path().glob("**/journal*"))


# AWRF and its targets against reference figures and the outputs of the official code


SHIPPED = {attribute.name: attribute for attribute in load_dataset("sample").attributes}


def goldens(name: str) -> list[dict[str, str]]:
    with realdata(f"golden/{name}").open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def target_by_name(query: Judged, target: str, unknown: str, **how: Any) -> dict[str, float]:
    spread = cells(query.groups, how.pop("over", None), unknown)
    shares = target_shares(query, spread, target, how.pop("membership", "split"))
    assert not isinstance(shares, Undefined)
    return dict(zip(spread.names, shares.tolist(), strict=True))


def hard(case: dict[str, Any], folder: Path) -> tuple[Judged, str] | None:
    """A case whose documents have one group each, and its target as a file; None where memberships are split."""
    given = case["input"]
    if any(sorted(row)[-1] != 1 for row in given["membership"].values()):
        return None
    names = given["groups"]
    memberships = {
        d: {"a": tuple(name for name, share in zip(names, row, strict=True) if share and name != UNKNOWN)}
        for d, row in given["membership"].items()
    }
    path = folder / f"{case['id']}.json"
    path.write_text(json.dumps(given["target"]))
    attribute = attribute_with("a", *(name for name in names if name != UNKNOWN))
    relevant = re.findall(r"d\d+", case.get("note", "")) if "target_from_relevant" in case["tags"] else ()
    return grouped(given["ranking"], memberships, attribute, relevant=relevant), str(path)


def test_reference_figures_of_documents_with_one_group(tmp_path: Path) -> None:
    reference = vectors("awrf")
    tolerance = reference["meta"]["tolerance_abs"]
    names = {
        "awrf_trec2022": "",
        "awrf_base2": ",log=2",
        "awrf_base2_discount_log2_1p": ",log=2,discount=log2",
    }
    assert names.keys() < reference["meta"]["names"].keys()
    checked = 0
    for case in reference["cases"]:
        if "membership" not in case["input"] or (found := hard(case, tmp_path)) is None:
            continue
        query, path = found
        at = f"@{case['input']['cutoff']}" if case["input"]["cutoff"] else ""
        for key, params in names.items():
            row = rows(f"AWRF(target={path}{params}){at}", query)["q", ""]
            expected = case["expected"][key]
            assert row.value == (None if expected is None else pytest.approx(expected, abs=tolerance)), case[
                "id"
            ]
            assert row.reason == ("no_known_group" if expected is None else None)
            checked += 1
            if "target_from_relevant" in case["tags"]:
                same = value(f"AWRF(target=empirical{params}){at}", query)
                assert same == pytest.approx(expected, abs=tolerance)
                checked += 1
    assert checked == 72


def test_reference_figures_of_split_and_crossed_memberships() -> None:
    # shares that are no fractions 1/g come from no document, so the arrays are checked
    reference = vectors("awrf")
    checked = 0
    for case in reference["cases"]:
        given, expected = case["input"], case["expected"]
        if "dimensions" in given:
            first, second = (given["dimensions"][name]["membership"] for name in ("sex", "geo"))
            members = {d: np.multiply.outer(first[d], second[d]).ravel() for d in first}
            target = np.ravel(given["target_sex_by_geo"])
        else:
            members = {d: np.array(row) for d, row in given["membership"].items()}
            target = np.array(list(given["target"].values()))
        ranked: Floats = np.array([members.get(d, np.zeros(len(target))) for d in given["ranking"]])
        ranked = ranked[: given.get("cutoff")]
        if not ranked.any():
            continue
        for discount, unit, key in [
            ("trec", 1.0, "awrf_trec2022"),
            ("trec", math.log(2), "awrf_base2"),
            ("log2", math.log(2), "awrf_base2_discount_log2_1p"),
        ]:
            if key in expected:
                mass = attention_weights(len(ranked), discount) @ ranked
                got = 1 - jensen_shannon(mass / mass.sum(), target / target.sum()) / unit
                assert got == pytest.approx(expected[key], abs=reference["meta"]["tolerance_abs"]), case["id"]
                checked += 1
    assert checked == 82


def test_reference_targets_of_the_track() -> None:
    found = [case for case in vectors("awrf")["cases"] if "target_averaged" in case["tags"]]
    assert len(found) == 2
    for case in found:
        unknown, *known = map(float, re.findall(r"\d\.\d+(?:e-\d+)?", case["note"].split("= [")[1]))
        target = half_background(np.array([*known, unknown]), [np.array([0.495, 0.495, 0.01])])
        expected = case["input"]["target"]
        assert target == pytest.approx([*list(expected.values())[1:], expected[UNKNOWN]], abs=1e-12)


def test_reference_divergences() -> None:
    found = [case for case in vectors("fairqr_loop")["cases"] if "kl" in case["tags"]]
    assert len(found) == 12
    for case in found:
        current, target = (np.array(case["input"][name]) for name in ("current", "target"))
        for key, pair in (("current_target", (current, target)), ("target_current", (target, current))):
            expected = case["expected"]
            smoothed = kullback_leibler(*pair, case["input"]["smoothing"])
            assert smoothed == pytest.approx(expected[f"KL_{key}_smoothed"], abs=1e-9)
            if expected[f"KL_{key}"] != "inf":
                assert kullback_leibler(*pair) == pytest.approx(expected[f"KL_{key}"], abs=1e-9)


def official_rows() -> list[dict[str, Any]]:
    path = realdata("golden/awrf_official_code_outputs.jsonl")
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def spoken(group: str) -> str:
    return {"NB": "nonbinary"}.get(group, group)


def official_queries() -> list[tuple[dict[str, Any], Judged]]:
    """The 88 lists; the labels of a topic's four rankings together name its relevant pages."""
    found = official_rows()
    labels: dict[tuple[int, str], dict[str, str | None]] = {}
    for row in found:
        labels.setdefault((row["topic_id"], row["dim"]), {}).update(row["labels"])
    continent = Attribute("continent", ("*",), ("Europe",), SHIPPED["location"].words)
    queries = []
    for row in found:
        background = {spoken(group): share for group, share in row["background"].items()}
        if row["dim"] == "gender":
            attribute = SHIPPED["gender"]
            assert attribute.backgrounds == (background,)
        else:
            attribute = Attribute(
                continent.name, continent.protected, continent.unprotected, continent.words, backgrounds=(background,)
            )  # fmt: skip
        memberships = {
            doc_id: {attribute.name: () if label is None else (spoken(label),)}
            for doc_id, label in labels[row["topic_id"], row["dim"]].items()
        }
        queries.append(
            (
                row,
                grouped(
                    [*map(str, row["ranking"])], memberships, attribute, relevant=[*map(str, row["relevant"])]
                ),
            )
        )
    return queries


def test_official_awrf_and_its_product_with_ndcg() -> None:
    queries = official_queries()
    assert len(queries) == 88
    for row, query in queries:
        for year, ideal in (("2021", 1000), ("2022", 500)):
            official = row["official"]
            fairness, utility = official[f"awrf_{year}"], official[f"ndcg_{year}"]
            assert value(f"AWRF(target=trec{year})", query) == pytest.approx(fairness, abs=1e-6)
            score = value(f"nDCGxAWRF(discount=trec,ideal={ideal},target=trec{year})", query)
            assert score == pytest.approx(utility * fairness, abs=2e-6)


def topic_1() -> tuple[dict[str, Any], Judged]:
    """The relevant pages of topic 1 of 2021, by gender and continent; "third" is our nonbinary."""
    golden = json.loads(realdata("golden/trec2021_task1_topic1_target.json").read_text("utf-8"))
    pages = [
        {
            "location": (continent,) if continent != "Unknown" else (),
            "gender": ("nonbinary" if gender == "third" else gender,) if gender != "unknown" else (),
        }
        for continent, counts in zip(golden["geo_order"], golden["intersectional_counts"], strict=True)
        for gender, count in zip(golden["gender_order"], counts, strict=True)
        for _ in range(count)
    ]
    memberships = {f"d{n}": page for n, page in enumerate(pages)}
    location, gender = SHIPPED["location"], SHIPPED["gender"]
    return golden, grouped(["d0"], memberships, location, gender, relevant=[*memberships])


def test_topic_1_of_2021_over_location_and_gender() -> None:
    golden, query = topic_1()
    assert SHIPPED["location"].backgrounds[0] == golden["world_pop"]
    target = target_by_name(query, "trec2021", "drop", over="location*gender", membership="count")
    names = [
        f"{UNKNOWN if continent == 'Unknown' else continent}*{ {'third': 'nonbinary', 'unknown': UNKNOWN}.get(gender, gender) }"
        for continent in golden["geo_order"]
        for gender in golden["gender_order"]
    ][1:]
    assert len(names) == 31
    assert target == pytest.approx(
        dict(zip(names, golden["target_ravel_without_first"], strict=True)), abs=1e-9
    )
    masses = {"all": 0.0, "geo_only": 0.0, "gender_only": 0.0}
    for name, share in target.items():
        continent, gender = name.split("*")
        masses["geo_only" if gender == UNKNOWN else "gender_only" if continent == UNKNOWN else "all"] += share
    assert masses == pytest.approx(golden["known_fractions"], abs=1e-8)


def test_geography_targets_of_2021() -> None:
    alignments = goldens("trec2021_task1_train_geo_alignment_head.tsv")
    targets = goldens("trec2021_task1_train_geo_target_head.tsv")
    assert len(alignments) == 5
    for alignment, target in zip(alignments, targets, strict=True):
        assert alignment.pop("id") == target.pop("id")
        prior = SHIPPED["location"].backgrounds[0]
        relevant = np.array([*(float(alignment[name]) for name in prior), 0.0])
        got = half_background(relevant, [np.array([*prior.values()])])
        assert got[:-1] == pytest.approx([float(target[name]) for name in prior], abs=1e-6)
