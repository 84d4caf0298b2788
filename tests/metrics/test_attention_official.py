"""AWRF and its targets against reference figures and the outputs of the official code."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmfair.datasets.base import load_dataset
from llmfair.metrics.attention import attention_weights, jensen_shannon, kullback_leibler
from llmfair.metrics.base import Judged, Undefined
from llmfair.metrics.targets import UNKNOWN, Floats, cells, half_background, target_shares
from llmfair.nouns import Attribute
from tests.metrics import attribute_with, grouped, rows, value
from tests.shared import realdata, vectors

SHIPPED = {attribute.name: attribute for attribute in load_dataset("sample").attributes}


def table(name: str) -> list[dict[str, str]]:
    with realdata(f"golden/{name}").open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def target_by_name(query: Judged, target: str, unknown: str, **how: Any) -> dict[str, float]:
    spread = cells(query.groups, how.pop("over", None), unknown)
    shares = target_shares(query, spread, target, how.pop("membership", "split"))
    assert not isinstance(shares, Undefined)
    return dict(zip(spread.names, shares.tolist(), strict=True))


# Reference figures


def hard(case: dict[str, Any], folder: Path) -> tuple[Judged, str] | None:
    """A case whose documents have one group each, and its target as a file; None where memberships are split."""
    given = case["input"]
    if any(sorted(row)[-1] != 1 for row in given["membership"].values()):
        return None
    names = given["groups"]
    memberships = {
        doc_id: {
            "a": tuple(name for name, share in zip(names, row, strict=True) if share and name != UNKNOWN)
        }
        for doc_id, row in given["membership"].items()
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


# Official outputs


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


def test_official_targets_from_the_relevant_pages() -> None:
    for row, query in official_queries():
        for year, unknown in (("2021", "drop"), ("2022", "keep")):
            target = target_by_name(query, f"trec{year}", unknown)
            expected = {spoken(group): share for group, share in row[f"target_{year}"].items()}
            assert target.keys() == expected.keys()
            assert target == pytest.approx(expected, abs=1e-9)


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


def test_the_lowest_score_of_2021_is_reached_by_pages_whose_continent_is_unknown() -> None:
    # topics 107 and 123: no relevant page has a gender alone, so such pages share no cell with the target
    lowest = [row for row in table("trec2021_task1_topic_stats.tsv") if "0.306853" in row.values()]
    assert len(lowest) == 2
    pages: dict[str, dict[str, tuple[str, ...]]] = {
        "a": {"location": ("Asia",), "gender": ("female",)},
        "b": {"location": ("Europe",)},
        "c": {"gender": ("male",)},
    }
    query = grouped(["c"], pages, SHIPPED["location"], SHIPPED["gender"], relevant=["a", "b"])
    score = value("AWRF(over=location*gender,target=trec2021)", query)
    assert score == pytest.approx(1 - math.log(2), abs=1e-12)


def test_geography_targets_of_2021() -> None:
    alignments = table("trec2021_task1_train_geo_alignment_head.tsv")
    targets = table("trec2021_task1_train_geo_target_head.tsv")
    assert len(alignments) == 5
    for alignment, target in zip(alignments, targets, strict=True):
        assert alignment.pop("id") == target.pop("id")
        prior = SHIPPED["location"].backgrounds[0]
        relevant = np.array([*(float(alignment[name]) for name in prior), 0.0])
        got = half_background(relevant, [np.array([*prior.values()])])
        assert got[:-1] == pytest.approx([float(target[name]) for name in prior], abs=1e-6)


@pytest.mark.parametrize("file", ["train_gender", "eval_gender", "train_subgeo", "eval_subgeo"])
def test_printed_targets_of_2022_obey_the_rule(file: str) -> None:
    # the pages behind them are not at hand: what the rule leaves for the relevant pages must be a distribution
    # (never below 0) that gives the printed target back
    backgrounds: Mapping[str, float] = SHIPPED["gender"].backgrounds[0]
    if "geo" in file:
        backgrounds = SHIPPED["location"].backgrounds[1]
        population = table("world_population_subcontinent.tsv")
        assert backgrounds == {row["Name"]: float(row["fraction"]) for row in population}
    printed = table(f"trec2022_task1_{file}_target_head.tsv")
    assert len(printed) == 5
    prior = np.array([*backgrounds.values()])
    for row in printed:
        target = {spoken(name): float(share) for name, share in row.items() if name != "topic_id"}
        known = np.array([target[name] for name in backgrounds])
        relevant = 2 * known - known.sum() * prior
        assert relevant.min() > -2e-6
        assert known.sum() + target[UNKNOWN] == pytest.approx(1, abs=6e-4)
        again = half_background(np.array([*relevant.clip(0), target[UNKNOWN]]), [prior])
        assert again == pytest.approx([*known, target[UNKNOWN]], abs=1e-6)
