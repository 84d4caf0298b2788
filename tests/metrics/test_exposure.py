"""Mean exposures of the two sides, their ratio, and what relevance leaves of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfair.metrics.base import Judged, Ratio, complete
from llmfair.metrics.exposure import position_weights
from llmfair.nouns import Candidates, Document, Query, Ranking, Side
from tests.metrics import judged, lettered, raw, rows, value
from tests.shared import vectors

V = 1 / np.log(np.arange(2, 40))
"""v_1, v_2, … in natural logarithms."""


def queries_of(case: dict[str, Any]) -> list[Judged]:
    """The queries of a reference case, whichever of its shapes it has."""
    given = case["input"]
    if "queries" in given:
        return [
            judged(query["ranking"], sides=query["group_of"], query_id=query_id)
            for query_id, query in given["queries"].items()
        ]
    if "rankings" in given:
        return [judged(*given["rankings"], sides=given["group_of"], candidates=given["candidates"])]
    if "ranking_returned" in given:
        candidates = given["candidates_in_input_order"]
        return [judged(given["ranking_returned"], sides=given["group_of"], candidates=candidates)]
    return [judged(given["ranking"], sides=given["group_of"])]


def absent_side(case: dict[str, Any]) -> str | None:
    counts = case["expected"].get("n_protected", 1), case["expected"].get("n_unprotected", 1)
    return {(0, 0): "no_group", (0, 1): "no_protected", (1, 0): "no_unprotected"}.get(
        (min(counts[0], 1), min(counts[1], 1))
    )


def test_reference_figures_by_their_names() -> None:
    reference = vectors("exposure_ratio")
    tolerance = reference["meta"]["tolerance_abs"]
    seen = set()
    for case in reference["cases"]:
        queries = queries_of(case)
        for key, described in reference["meta"]["names"].items():
            if key not in case["expected"] or "not a measure" in described:
                continue
            name, _, rest = described.partition(" ")
            group = rest.removeprefix("group=") if "group=" in rest else ""
            row = rows(name, *queries)[queries[0].query_id if len(queries) == 1 else "all", group]
            seen.add(key)
            expected = case["expected"][key]
            assert row.value == (None if expected is None else pytest.approx(expected, abs=tolerance)), (
                case["id"],
                key,
            )
            if expected is None:
                reason = (
                    case["expected"].get(f"{key}_undefined_reason") or absent_side(case) or "zero_exposure"
                )
                assert row.reason == reason, (case["id"], key)
    assert seen == {key for key, text in reference["meta"]["names"].items() if "not a measure" not in text}


def test_reference_figures_of_lists_and_runs() -> None:
    reference = vectors("exposure_ratio")
    tolerance = reference["meta"]["tolerance_abs"]
    counted = 0
    for case in reference["cases"]:
        expected, queries = case["expected"], queries_of(case)
        for base, name in (("ln", "Exposure"), ("log2", "Exposure(log=2)")):
            for side in Side:
                if f"{side}_mean_exposure_{base}" in expected:
                    figure = expected[f"{side}_mean_exposure_{base}"]
                    got = value(name, queries[0], side)
                    assert got == (None if figure is None else pytest.approx(figure, abs=tolerance)), case[
                        "id"
                    ]
                    counted += 1
        if expected.get("top1_protected_mean_exposure_ln") is not None and not absent_side(case):
            top = raw("ExpRatio(weight=top1)", queries[0])
            assert isinstance(top, Ratio)
            assert top.numerator == pytest.approx(expected["top1_protected_mean_exposure_ln"], abs=tolerance)
            assert top.denominator == pytest.approx(
                expected["top1_unprotected_mean_exposure_ln"], abs=tolerance
            )
            assert top.reason == "zero_exposure"
            assert raw("ExpRatio@1", queries[0]) == top
            counted += 1
        if "completed_ranking" in expected:
            given = case["input"]
            completed = complete(given["ranking_returned"], given["candidates_in_input_order"])
            assert list(completed) == expected["completed_ranking"]
            counted += 1
        if "ratio_of_expected_exposures" in expected:
            ratio = value("ExpRatio", queries[0])
            assert ratio == pytest.approx(expected["ratio_of_expected_exposures"], abs=tolerance), case["id"]
            for side in Side:
                members = [
                    figure
                    for doc_id, figure in expected["expected_exposure_ln"].items()
                    if case["input"]["group_of"][doc_id] == side
                ]
                assert value("Exposure", queries[0], side) == pytest.approx(np.mean(members), abs=tolerance)
            single = [value("ExpRatio", replace(queries[0], rankings=(r,))) for r in queries[0].rankings]
            mean = np.mean([ratio for ratio in single if ratio is not None])
            assert mean == pytest.approx(expected["mean_of_per_sample_ratios_NOT_the_metric"], abs=tolerance)
            assert mean != pytest.approx(ratio, abs=1e-3)
            counted += 1
        if "per_query_ratio" in expected:
            found = rows("ExpRatio(agg=mean-of-ratios)", *queries)
            for query_id, figure in expected["per_query_ratio"].items():
                row = found[query_id, ""]
                assert row.value == (None if figure is None else pytest.approx(figure, abs=tolerance)), case[
                    "id"
                ]
                assert (row.reason is None) == (figure is not None)
            assert found["all", ""].n == expected["n_defined"]
            counted += 1
    assert counted > 100


def test_a_random_order_of_4_and_4_averages_above_1_unless_means_are_divided() -> None:
    # every assignment of the sides once: the mean of ratios is biased, the ratio of means is not
    masks = [mask for mask in range(256) if bin(mask).count("1") == 4]
    lists = [lettered("".join("pu"[mask >> i & 1] for i in range(8)), f"q{mask:03}") for mask in masks]
    assert rows("ExpRatio(agg=mean-of-ratios)", *lists)["all", ""].value == pytest.approx(1.0563, abs=5e-5)
    assert rows("ExpRatio", *lists)["all", ""].value == pytest.approx(1, abs=1e-12)
    assert rows("ExpRatio(agg=geometric)", *lists)["all", ""].value == pytest.approx(1, abs=1e-12)


TWO = judged("ab", "ba", "ba", sides={"a": "protected", "b": "unprotected"}, candidates="ab")
CUT = judged("cb", sides={"a": "protected", "b": "protected", "c": "unprotected"}, candidates="abc")


@pytest.mark.parametrize(
    ("name", "query", "group", "expected"),
    [
        ("ExpRatio", lettered("pu"), "", 1.5849625),
        ("ExpRatio", lettered("up"), "", 1 / 1.5849625),
        ("Exposure", lettered("pu"), "protected", 1 / np.log(2)),
        ("Exposure(log=2)", lettered("pu"), "unprotected", np.log(2) / np.log(3)),
        ("ExpRatio@2", lettered("pupu"), "", V[0] / V[1]),  # a cutoff counts the first ranks only
        ("ExpRatio@3", lettered("pupu"), "", (V[0] + V[2]) / V[1]),
        ("ExpRatio@99", lettered("pupu"), "", (V[0] + V[2]) / (V[1] + V[3])),
        ("Exposure@2", lettered("pupu"), "protected", V[0] / 2),
        ("ExpRatio", lettered("-p-u"), "", V[1] / V[3]),  # documents without a side
        ("ExpRatio(unknown=unprotected)", lettered("-p-u"), "", V[1] / ((V[0] + V[2] + V[3]) / 3)),
        ("ExpRatio(unknown=close)", lettered("-p-u"), "", V[0] / V[1]),
        ("ExpRatio", CUT, "", (V[1] + V[2]) / 2 / V[0]),  # missing documents follow or get nothing
        ("ExpRatio(missing=zero)", CUT, "", V[1] / 2 / V[0]),
        ("ExpRatio(missing=zero,unknown=close)@1", CUT, "", None),
        ("ExpRatio", TWO, "", (V[0] + 2 * V[1]) / (2 * V[0] + V[1])),  # averaged over runs before the ratio
        ("Exposure", TWO, "protected", (V[0] + 2 * V[1]) / 3),
        ("ExpRatio(weight=top1)", TWO, "", 1 / 2),
    ],
)
def test_by_hand(name: str, query: Judged, group: str, expected: float | None) -> None:
    assert value(name, query, group) == (None if expected is None else pytest.approx(expected, abs=1e-7))


def test_strata_keep_the_ranks_of_the_whole_list() -> None:
    query = lettered("pupu", relevant="0120")
    assert value("ExpRatio(stratum=relevant)", query) == pytest.approx(V[2] / V[1])
    assert value("ExpRatio(stratum=irrelevant)", query) == pytest.approx(V[0] / V[3])
    lacking = lettered("pupu", relevant="1000")
    assert rows("ExpRatio(stratum=relevant)", lacking)["q", ""].reason == "no_unprotected"


def test_top1_takes_the_softmax_of_log_weights() -> None:
    documents = tuple(Document(doc_id, doc_id) for doc_id in "abcd")
    sides = {"a": Side.PROTECTED, "b": Side.UNPROTECTED, "c": Side.UNPROTECTED, "d": Side.PROTECTED}
    ranking = Ranking("q", ("b", "a", "c", "a"), (-1000.0, -1001.0, -1002.0, 5.0))
    query = Judged(Candidates(Query("q", ""), documents, {}), (ranking,), sides, log_weights=True)
    chances = np.exp([0.0, -1.0, -2.0]) / np.exp([0.0, -1.0, -2.0]).sum()
    ratio = raw("ExpRatio(weight=top1)", query)
    assert isinstance(ratio, Ratio)
    assert ratio.numerator == pytest.approx(chances[1] / 2 / np.log(2))
    assert ratio.denominator == pytest.approx((chances[0] + chances[2]) / 2 / np.log(2))
    assert raw("ExpRatio(weight=top1)", replace(query, log_weights=False)) == raw("ExpRatio@1", query)
    empty = replace(query, rankings=(Ranking("q", (), ()),))
    assert raw("ExpRatio(weight=top1)", empty) == Ratio(0.0, 0.0, "zero_exposure")


@pytest.mark.parametrize(
    ("letters", "reason"),
    [("uu-", "no_protected"), ("pp-", "no_unprotected"), ("---", "no_group"), ("", "no_group")],
)
def test_a_side_without_documents_is_undefined(letters: str, reason: str) -> None:
    row = rows("ExpRatio", lettered(letters))["q", ""]
    assert (row.value, row.reason) == (None, reason)
    sides = rows("Exposure", lettered(letters))
    for side, letter in (("protected", "p"), ("unprotected", "u")):
        expected = (None, reason) if letter not in letters else (sides["q", side].value, None)
        assert (sides["q", side].value, sides["q", side].reason) == expected
    unranked = judged(candidates="ab", sides={"a": "protected", "b": "unprotected"})
    assert rows("ExpRatio", unranked)["q", ""].reason == "not_ranked"
    assert rows("Exposure", unranked)["q", "protected"].reason == "not_ranked"


def test_a_query_with_zero_exposure_stays_in_the_ratio_of_means() -> None:
    queries = [lettered("pu", "q1"), lettered("up", "q2"), lettered("up", "q3")]
    found = rows("ExpRatio@1", *queries)
    assert [found[f"q{i}", ""].reason for i in (1, 2, 3)] == ["zero_exposure"] * 3
    assert found["all", ""].value == pytest.approx(1 / 2)
    assert found["all", ""].n == 3
    other = rows("ExpRatio(agg=mean-of-ratios)@1", *queries)["all", ""]
    assert (other.value, other.n, other.reason) == (None, 0, "zero_exposure")


LETTERS = st.text("pu-", min_size=1, max_size=12)
LISTS = st.lists(LETTERS, min_size=1, max_size=6)
NAMES = st.sampled_from(
    [
        "ExpRatio", "ExpRatio@3", "ExpRatio(agg=geometric)", "ExpRatio(unknown=close)", "ExpRatio(weight=top1)",
        "ExpRatio(stratum=relevant)", "ExpRatio(stratum=irrelevant)@4", "ExpRatio(missing=zero)",
    ]
)  # fmt: skip


@st.composite
def judged_queries(draw: Callable[..., Any]) -> list[Judged]:
    """Queries with up to three runs, incomplete and with repeated ids, graded relevance, unknown sides."""
    queries = []
    for number, letters in enumerate(draw(LISTS)):
        doc_ids = [f"d{i}" for i in range(len(letters))]
        runs = draw(st.lists(st.lists(st.sampled_from([*doc_ids, "x"]), max_size=14), min_size=1, max_size=3))
        words = {"p": "protected", "u": "unprotected", "-": None}
        queries.append(
            judged(
                *runs,
                candidates=doc_ids,
                sides={doc_id: words[letter] for doc_id, letter in zip(doc_ids, letters, strict=True)},
                relevance={doc_id: draw(st.integers(0, 2)) for doc_id in doc_ids},
                query_id=f"q{number}",
            )
        )
    return queries


def swapped(query: Judged) -> Judged:
    other = {Side.PROTECTED: Side.UNPROTECTED, Side.UNPROTECTED: Side.PROTECTED, None: None}
    return replace(query, sides={doc_id: other[side] for doc_id, side in query.sides.items()})


@given(judged_queries(), NAMES)
@settings(deadline=None)
def test_swapped_sides_invert_ratios_and_intervals_or_keep_none(queries: list[Judged], name: str) -> None:
    before, after = rows(name, *queries), rows(name, *map(swapped, queries))
    assert before.keys() == after.keys()
    for key, row in before.items():
        opposite = after[key]
        if row.value is None:
            assert opposite.value is None
        else:
            assert opposite.value is not None
            assert row.value * opposite.value == pytest.approx(1)
        if row.low is not None and row.high is not None:
            assert opposite.low is not None
            assert opposite.high is not None
            assert row.low * opposite.high == pytest.approx(1)
            assert row.high * opposite.low == pytest.approx(1)
        assert row.n == opposite.n


def test_the_reference_of_relevance_and_excess() -> None:
    case = vectors("injected_bias")["golden_permutation"]
    letters = "".join("up"[flag] for flag in case["ranking_protected"])
    query = lettered(letters, relevant="".join(map(str, case["ranking_relevant"])))
    assert value("ExpRatio", query) == pytest.approx(case["ratio"], rel=1e-9)
    assert value("RelevanceRatio", query) == pytest.approx(case["relevance_ratio"], rel=1e-9)
    assert value("ExcessRatio", query) == pytest.approx(case["excess_ratio"], rel=1e-9)
    found = raw("RelevanceRatio", query)
    assert isinstance(found, Ratio)
    assert (found.numerator, found.denominator) == pytest.approx(
        (case["perm_mean_E1"], case["perm_mean_E0"]), rel=1e-9
    )


@given(st.data())
@settings(deadline=None, max_examples=30)
def test_what_relevance_gives_is_the_mean_over_shuffled_sides(data: st.DataObject) -> None:
    """Full enumeration: the mean of E1 over labels shuffled inside grades is M1."""
    n = data.draw(st.integers(2, 7))
    letters = data.draw(
        st.lists(st.sampled_from("pu"), min_size=n, max_size=n).filter(lambda x: len(set(x)) == 2)
    )
    grades = data.draw(st.lists(st.sampled_from("01"), min_size=n, max_size=n))
    expected = raw("RelevanceRatio", lettered("".join(letters), relevant="".join(grades)))
    assert isinstance(expected, Ratio)
    sums, shuffles = np.zeros(2), 0
    for order in permutations(range(n)):
        if all(grades[i] == grades[place] for i, place in enumerate(order)):
            ratio = raw("ExpRatio", lettered("".join(letters[place] for place in order)))
            assert isinstance(ratio, Ratio)
            sums += ratio.numerator, ratio.denominator
            shuffles += 1
    assert (sums / shuffles).tolist() == pytest.approx([expected.numerator, expected.denominator])


def from_orders(
    finals: Sequence[Sequence[str]], initials: Sequence[Sequence[str]], query_id: str = "q"
) -> Judged:
    """A query of the documents a, b (protected), c, d, ranked so from these initial orders."""
    sides: dict[str, str | None] = {
        "a": "protected", "b": "protected", "c": "unprotected", "d": "unprotected",
    }  # fmt: skip
    query = judged(*finals, sides=sides, candidates="abcd", query_id=query_id)
    return replace(query, beside=tuple(Ranking(query_id, tuple(order)) for order in initials))


def test_the_control_variate_takes_out_what_the_order_explains() -> None:
    """Rankings that mirror their input say nothing; those that forget it keep their ratio."""
    orders = ["abcd", "acbd", "cadb"]
    mirrored = [from_orders([order], [order], f"q{order}{copy}") for order in orders for copy in range(5)]
    plain = rows("ExpRatio", *mirrored)["all", ""].value
    v = position_weights(4)
    sides = np.array(
        [
            [v[[0, 1]].mean(), v[[2, 3]].mean()],
            [v[[0, 2]].mean(), v[[1, 3]].mean()],
            [v[[1, 3]].mean(), v[[0, 2]].mean()],
        ]
    )
    favour = sides - v.mean()
    slopes = (favour * (sides - sides.mean(axis=0))).sum(axis=0) / (favour**2).sum(axis=0)
    controlled = sides.mean(axis=0) - slopes * favour.mean(axis=0)
    found = rows("ExpRatio(control=order)", *mirrored)["all", ""].value
    assert (
        found
        == pytest.approx(controlled[0] / controlled[1])
        == rows("ExcessRatio(control=order)", *mirrored)["all", ""].value
    )
    assert plain is not None and found is not None and abs(found - 1) < 0.5 * abs(plain - 1)
    few = rows("ExpRatio(control=order)", *mirrored[:14])["all", ""].value  # fewer than 15 runs tell no slope
    assert few == rows("ExpRatio", *mirrored[:14])["all", ""].value
    forgotten = [from_orders(["abcd"], [order], f"q{order}{copy}") for order in orders for copy in range(5)]
    plain = rows("ExpRatio", *forgotten)["all", ""].value
    assert rows("ExpRatio(control=order)", *forgotten)["all", ""].value == pytest.approx(plain)


def test_a_controlled_ratio_is_of_all_queries_and_needs_the_orders() -> None:
    query = from_orders(["abcd", "acbd", "dcab"], ["abcd", "abcd", "dcba"])
    query = replace(query, runs=((0, 0), (0, 1), (1, 0)))
    found = raw("ExpRatio(control=order)", query)
    assert isinstance(found, Ratio)
    first, second = found.controlled  # the two runs of one initial order are averaged
    v = position_weights(4)
    assert first.initial == pytest.approx(((v[0] + v[1]) / 2, (v[2] + v[3]) / 2))
    assert first.mean == pytest.approx(v.mean())
    assert first.initial[0] - first.mean == pytest.approx(first.mean - first.initial[1])
    assert first.final[0] == pytest.approx(((v[0] + v[1]) / 2 + (v[0] + v[2]) / 2) / 2)
    assert second.initial == pytest.approx(((v[2] + v[3]) / 2, (v[0] + v[1]) / 2))
    assert list(rows("ExpRatio(control=order)", query)) == [("all", "")]
    assert rows("ExpRatio(control=order)", lettered("pu")) == {}


@settings(deadline=None, max_examples=15)
@given(st.permutations("abcd"), st.permutations("abcd"), st.permutations("abcd"))
def test_swapped_sides_invert_controlled_and_excess_ratios(a: list[str], b: list[str], c: list[str]) -> None:
    queries = [from_orders([x, y], [y, x], f"q{n}") for n, (x, y) in enumerate([(a, b), (b, c), (c, a)] * 3)]
    flipped = {Side.PROTECTED: Side.UNPROTECTED, Side.UNPROTECTED: Side.PROTECTED}
    swapped = [replace(q, sides={d: flipped[side] for d, side in q.sides.items() if side}) for q in queries]
    for name in ("ExpRatio(control=order)", "ExcessRatio", "ExcessRatio(control=order)", "RelevanceRatio"):
        one, other = rows(name, *queries)["all", ""].value, rows(name, *swapped)["all", ""].value
        assert one is not None and other is not None
        assert one * other == pytest.approx(1)


def test_who_is_of_neither_side_counts_in_no_grade() -> None:
    found = raw("RelevanceRatio", lettered("-p-u-pu", relevant="1100110"))
    assert isinstance(found, Ratio)
    relevant, others = V[[1, 5]].mean(), V[[3, 6]].mean()
    assert (found.numerator, found.denominator) == pytest.approx((relevant, others))
