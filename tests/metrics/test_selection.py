"""Selection, impact ratios, NDKL and GFR of any number of groups, through the public functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from llmfair.errors import UsageError
from llmfair.metrics.base import Groups, Judged
from llmfair.metrics.exposure import position_weights
from llmfair.metrics.names import parse_measure
from llmfair.nouns import Measurement, Ranking
from tests.metrics import attribute_with, judged, rows, value

NAMES = ("A", "B", "C")


def listed(letters: str, query_id: str = "q", relevant: str = "", first: int = 0) -> Judged:
    """A list ranked as written, each letter a person's group, - for none; `relevant`: grades by rank."""
    ids = [f"d{first + rank}" for rank in range(len(letters))]
    members = {doc_id: None if group == "-" else group for doc_id, group in zip(ids, letters, strict=True)}
    query = judged(ids, relevance=dict(zip(ids, map(int, relevant), strict=False)), query_id=query_id)
    return replace(query, members=members, names=NAMES)


def of_all(name: str, *queries: Judged) -> dict[str, Measurement]:
    return {group: row for (query_id, group), row in rows(name, *queries).items() if query_id == "all"}


LISTS = [listed("AABC-BBCCC"[turn:] + "AABC-BBCCC"[:turn], f"q{turn}", first=10 * turn) for turn in range(6)]


def test_people_are_pooled_over_lists() -> None:
    # the first two are AA, AB, BC, C-, -B, BB: of 12 people 3 A, of 18 4 B, of 24 2 C
    rates = of_all("SelectionRate@2", *LISTS)
    assert [rates[name].value for name in NAMES] == pytest.approx([3 / 12, 5 / 18, 2 / 24])
    ratios = of_all("ImpactRatio@2", *LISTS)
    assert [ratios[name].value for name in NAMES] == pytest.approx([0.9, 1, 0.3])
    for row in (*rates.values(), *ratios.values()):
        assert row.low is not None and row.value is not None and row.high is not None and row.n == 6
        assert row.low <= row.value <= row.high <= 1
    assert [ratios[name].p_adjusted is None for name in NAMES] == [False] * 3


def test_a_fixed_reference_and_a_query_without_a_ranking() -> None:
    attribute = replace(attribute_with("race", *NAMES), compared="reference", groups=NAMES, reference="C")
    groups = Groups("race", {"race": attribute})
    queries = [replace(query, groups=groups) for query in LISTS]
    ratios = of_all("ImpactRatio@2", *queries, replace(listed("AC", "q9"), rankings=()))
    assert ratios["A"].value == pytest.approx(3)
    assert (ratios["C"].value, ratios["C"].reason) == (1, "reference")


def test_sides_are_the_groups_of_a_binary_attribute() -> None:
    query = judged(["a", "b", "c"], sides={"a": "protected", "b": "unprotected", "c": "unprotected"})
    assert {group: row.value for group, row in of_all("ImpactRatio@2", query).items()} == {
        "protected": 1, "unprotected": 0.5,
    }  # fmt: skip


def test_chance_stands_beside_the_least_ratio() -> None:
    row = of_all("ImpactRatio(chance)@2", *LISTS)[""]
    assert row.value is not None and row.low is not None and row.high is not None and row.p is not None
    assert row.low < 0.3 < row.value < row.high and row.p > 0.05
    assert of_all("ImpactRatio(chance)@2", *LISTS)[""] == row
    assert of_all("ImpactRatio(chance)@2", listed("AAA"))[""].reason == "one_group"
    assert of_all("ImpactRatio(least)@2", listed("AABBB"))["A"].value == 0
    assert of_all("ImpactRatio(least)@4", listed("AABBB"))["A"].value == 0.5


def test_scores_above_the_median_of_all() -> None:
    query = listed("ABAB-")
    scored = replace(query, rankings=(Ranking("q", query.doc_ids, (9.0, 8.0, 7.0, 2.0, 1.0)),))
    assert {group: row.value for group, row in of_all("ImpactRatio(score)", scored).items()} == {
        "A": 1, "B": 1, "C": None,
    }  # fmt: skip
    assert of_all("ImpactRatio(score)", query)["A"].reason == "no_scores"
    # two of four are above: 1 in four of six ways to deal the labels, else 0
    assert of_all("ImpactRatio(chance)", scored)[""].value == pytest.approx(2 / 3, abs=0.05)


def test_the_worst_exposure_ratio_by_hand() -> None:
    query = listed("ABC-C")
    weights = position_weights(5)
    means = [weights[0], weights[1], (weights[2] + weights[4]) / 2]
    worst = of_all("ExpRatio(worst)", query)[""]
    assert worst.value == pytest.approx(means[2] / means[0]) and worst.reason == "no_interval"
    assert value(
        "ExpRatio", judged(["a", "b"], sides={"a": "unprotected", "b": "protected"})
    ) == pytest.approx(of_all("ExpRatio(worst)", listed("AB"))[""].value)
    chance = of_all("ExpRatio(chance)", *LISTS)[""]
    assert chance.value is not None and chance.low is not None and chance.low < chance.value < 1
    assert of_all("ExpRatio(worst)", *LISTS)[""].p == chance.p
    assert of_all("ExpRatio(least)", listed("AB"))[""].value == pytest.approx(weights[1] / weights[0])


def test_ndkl_and_its_range() -> None:
    query = listed("AABB")
    assert value("NDKL@1", query) == pytest.approx(math.log(2))
    assert value("NDKL(greatest)", query) == value("NDKL", query) == value("NDKL(greatest)", listed("ABBA"))
    assert value("NDKL(least)", query) == pytest.approx(value("NDKL", listed("ABBA")))
    assert value("NDKL(target=uniform)@1", query) == pytest.approx(math.log(3))
    assert rows("NDKL(least)", listed("A-B"))["q", ""].reason == "unknown_items"


def test_gfr_by_hand() -> None:
    # grades 1 of 1: a user stops at each rank with ½; shares (1, 0) and (½, ½) of an even target
    query = listed("AB", relevant="11")
    half = 1 - (0.5 * math.log2(1 / 0.75) + 0.5 * (0.5 * math.log2(0.5 / 0.75) + 0.5 * math.log2(0.5 / 0.25)))
    assert value("GFR(relevance=0)", query) == pytest.approx(half / 2 + 1 / 4)
    assert value("GFR(relevance=1)", query) == pytest.approx(1 / 2 + 1 / 4 / 2)
    assert value("GFR(relevance=1,user=iRBU)", query) == pytest.approx(0.99 / 2 + 0.99**2 / 4)
    assert value("GFR", query) == pytest.approx((half / 2 + 1 / 4 + 5 / 8) / 2)
    assert value("GFR(relevance=1,highest=2)@1", query) == pytest.approx(1 / 4)
    assert rows("GFR", listed("AB"))["q", ""].reason == "no_relevant"


@pytest.mark.parametrize(
    "name",
    [
        "SelectionRate@2",
        "ImpactRatio@2",
        "ImpactRatio(chance)@2",
        "ImpactRatio(least)@9",
        "ExpRatio(worst)",
        "ExpRatio(chance)",
        "ExpRatio(least)",
        "NDKL@3",
        "NDKL(least)@3",
        "NDKL(greatest)@3",
        "GFR@3",
    ],
)
def test_figures_are_plain_numbers_that_files_can_hold(name: str) -> None:
    queries = [listed("ABCAB"[turn:] + "ABCAB"[:turn], f"q{turn}", "10200") for turn in range(5)]
    for row in rows(name, *queries).values():
        assert type(row.value) is float
        assert {type(x) for x in (row.low, row.high, row.p, row.p_adjusted)} <= {float, type(None)}


def test_words_in_brackets_name_measures_of_their_own() -> None:
    for name in (
        "ExpRatio(worst)",
        "ImpactRatio(score)",
        "ImpactRatio(chance)@10",
        "NDKL(least)(target=uniform)@3",
    ):
        assert str(parse_measure(name)) == name
    assert str(parse_measure("expratio(WORST)")) == "ExpRatio(worst)"
    with pytest.raises(UsageError, match=r"no measure 'ExpRatio\(wurst\)'. Did you mean 'ExpRatio\(worst\)'"):
        parse_measure("ExpRatio(wurst)")


def vacancies(
    people: Mapping[str, tuple[str, str]], names: Sequence[str], member: Mapping[str, str | None]
) -> list[Judged]:
    rng, queries = np.random.default_rng(11), []
    for vacancy in range(12):
        ids = rng.choice([*people], 40, replace=False).tolist()
        scores = np.sort(rng.normal(size=40))[::-1].tolist()
        query = judged(ids, query_id=f"v{vacancy}")
        ranking = Ranking(f"v{vacancy}", tuple(ids), tuple(scores))
        queries.append(replace(query, rankings=(ranking,), members=member, names=tuple(names)))
    return queries


@pytest.mark.parametrize("by", [["sex"], ["race"], ["sex", "race"]])
def test_rates_and_ratios_are_those_of_aedt_audit(by: list[str]) -> None:
    aedt = pytest.importorskip("aedt_audit", reason="aedt-audit 0.3 is of the [test] extra")
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(10)
    sexes, races = (
        ["female", "male", "unknown"],
        ["Asian", "Black", "Hispanic", "White", "Islander", "unknown"],
    )
    people = {
        f"p{i}": (
            rng.choice(sexes, p=[0.45, 0.5, 0.05]),
            rng.choice(races, p=[0.2, 0.2, 0.2, 0.32, 0.01, 0.07]),
        )
        for i in range(300)
    }
    group = {
        doc_id: "*".join(part for name, part in zip(("sex", "race"), of, strict=True) if name in by)
        for doc_id, of in people.items()
    }
    entries = [
        {"sex": people[d][0], "race": people[d][1], "on": rank < 7, "score": score, "group": group[d]}
        for query in vacancies(people, (), {})
        for rank, (d, score) in enumerate(zip(query.doc_ids, query.rankings[0].scores or (), strict=True))
    ]
    frame = pandas.DataFrame(entries)
    for table, rate, ratio in (
        (aedt.selection_rates(frame, by=by, outcome="on"), "SelectionRate@7", "ImpactRatio@7"),
        (aedt.scoring_rates(frame, by=by, score="score"), "", "ImpactRatio(score)"),
    ):
        expected = aedt.impact_ratios(table, by=by)
        expected.index = expected[by].agg("*".join, axis=1)
        listed_groups = expected[aedt.benchmark_mask(expected, by)]
        assert 0 < len(listed_groups) < len(expected)  # a small group and the unknown stand aside
        queries = vacancies(people, [*listed_groups.index], group)
        ours = of_all(ratio, *queries)
        assert {name: ours[name].value for name in listed_groups.index} == pytest.approx(
            dict(listed_groups["impact_ratio"])
        )
        if rate:
            rates = of_all(rate, *queries)
            assert {name: rates[name].value for name in listed_groups.index} == pytest.approx(
                dict(listed_groups["rate"])
            )
