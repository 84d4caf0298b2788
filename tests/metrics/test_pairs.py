"""Measures of pairs through their names: hand cases, reference figures, Table 3 of the paper, properties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfair.audits.aggregates import aggregate, joined, tallied_p, undefined_counts
from llmfair.metrics.base import measure_all
from llmfair.metrics.names import parse_measure
from llmfair.metrics.pairs import CELLS, KINDS, JudgedPairs
from llmfair.nouns import Measurement, PairAnswer, PairVerdict, Side
from tests.metrics import rows
from tests.shared import vectors

P, U, TIE, BAD = "protected", "unprotected", "tie", "no_order"
ANSWERS = {
    "PP": (P, P), "UU": (U, U), "FF": (P, U), "SS": (U, P), "T": (TIE, P), "M1": (BAD, U), "M2": (BAD, BAD),
}  # fmt: skip
RATIOS = ("WinRatio", "RawRatio", "BalancedRatio", "AdjustedOdds")
RATES = ("FlipRate", "FirstSlotRate", "PositionIndex", "TieRate", "InvalidRate")


def answer(text: str | None) -> PairAnswer:
    if text in (P, U):
        return PairAnswer(Side(text))
    return PairAnswer(None, text or "no_order")


def pairs(
    answers: Sequence[tuple[str | None, str | None]],
    query_id: str = "q",
    draws: Sequence[int] | None = None,
    numbers: Sequence[int] | None = None,
    repeats: int = 1,
) -> JudgedPairs:
    """A query with these answers, protected item shown first and second; every pair has its own items."""
    numbers = numbers or range(len(answers))
    verdicts = tuple(
        PairVerdict(
            query_id, "relevant", number, draw, f"{query_id}p{number}", f"{query_id}u{number}",
            answer(both[0]), answer(both[1]),
        )
        for number, draw, both in zip(numbers, draws or [0] * len(answers), answers, strict=True)
    )  # fmt: skip
    return JudgedPairs(query_id, verdicts, repeats)


def of(query_id: str = "q", **cells: int) -> JudgedPairs:
    """A query with so many pairs of every cell: `of(PP=3, FF=2)`."""
    return pairs([ANSWERS[cell] for cell, count in cells.items() for _ in range(count)], query_id)


def row(name: str, *queries: JudgedPairs, query_id: str = "all", group: str = "") -> Measurement:
    return rows(name, *queries)[query_id, group]


def figure(name: str, *queries: JudgedPairs) -> float | None:
    return row(name, *queries).value


def test_the_worked_case() -> None:
    query = of(PP=24, UU=8, FF=40, SS=8)
    expected = {
        "WinRatio": 3.0,
        "BalancedRatio": 1.5,
        "RawRatio": 1.5,
        "AdjustedOdds": 1.632993,
        "FlipRate": 0.6,
        "FirstSlotRate": 0.7,
        "PositionIndex": 0.4,
        "TieRate": 0,
        "InvalidRate": 0,
        # p1 = .8, p2 = .4: odds 4 and 2/3; e = .44
        "PositionOdds": np.sqrt(4 / (2 / 3)),
        "Kappa": (0.4 - 0.44) / 0.56,
    }
    for name, value in expected.items():
        assert figure(name, query) == pytest.approx(value, abs=1e-6)
        assert row(name, query, query_id="q").value == pytest.approx(value, abs=1e-6)
    assert row("WinShare", query, group="protected").value == pytest.approx(0.3)
    assert row("WinShare", query, group="unprotected").value == pytest.approx(0.1)


def test_a_cell_without_pairs_is_filled_with_halves() -> None:
    query = of(PP=30, UU=10, FF=60, SS=0)
    assert figure("WinRatio", query) == pytest.approx(3)
    assert figure("RawRatio", query) == pytest.approx(1.5)
    # 30.5, 10.5, 60.5 and 0.5: p1 = 91/102, p2 = 31/102
    assert figure("BalancedRatio", query) == pytest.approx(122 / 82)
    assert figure("AdjustedOdds", query) == pytest.approx(np.sqrt(91 / 11 * 31 / 71))
    assert figure("PositionOdds", query) == pytest.approx(np.sqrt(91 / 11 / (31 / 71)))
    # on shares as they are: p1 = .9, p2 = .3, e = .34
    assert figure("Kappa", query) == pytest.approx(0.06 / 0.66)
    many = [of(f"q{number}", PP=30, UU=10, FF=60) for number in range(6)]
    found = rows("AdjustedOdds", *many)
    assert found["all", ""].reason == found["q0", ""].reason == "half_added"
    assert found["all", ""].low is not None
    (column,) = measure_all([parse_measure("AdjustedOdds")], {"relevant": many})
    assert undefined_counts([column]) == {}


@pytest.mark.parametrize(
    ("names", "query", "reason"),
    [
        (("WinRatio",), of(PP=20, FF=5), "no_unprotected_win"),
        (("WinRatio",), of(UU=20, SS=5), "no_protected_win"),
        (("WinRatio", "BalancedRatio", "Kappa"), of(PP=20), "no_unprotected_win"),
        (("WinRatio", "BalancedRatio", "Kappa"), of(UU=20, M1=2), "no_protected_win"),
    ],
)
def test_a_side_that_never_wins_has_no_ratio(names: Sequence[str], query: JudgedPairs, reason: str) -> None:
    for name, query_id in product(names, ("all", "q")):
        found = row(name, query, query_id=query_id)
        assert (found.value, found.reason) == (None, reason)
    assert figure("AdjustedOdds", query) is not None


@pytest.mark.parametrize("query", [of(), of(M2=4)])
def test_without_a_readable_answer_there_is_no_figure(query: JudgedPairs) -> None:
    for name in (*RATIOS, "PositionOdds", "Kappa", "FirstSlotRate"):
        expected = "no_consistent_pair" if name == "WinRatio" else "no_valid_answer"
        assert (row(name, query).value, row(name, query).reason) == (None, expected)
    share = None if not query.verdicts else 0.0
    assert row("WinShare", query, group="protected").value == figure("FlipRate", query) == share


def test_unparseable_answers_count_for_nobody_and_stay_in_n() -> None:
    query = pairs([(P, P)] * 6 + [(U, U)] * 4 + [(TIE, P), (BAD, U), (BAD, TIE), (BAD, BAD)] * 5)
    assert figure("TieRate", query) == pytest.approx(5 / 30)
    assert figure("InvalidRate", query) == pytest.approx(15 / 30)
    assert row("WinShare", query, group="protected").value == pytest.approx(6 / 30)
    assert figure("WinRatio", query) == pytest.approx(1.5)
    # readable answers: 12 + 5 for the protected item, 8 + 5 for the other
    assert figure("RawRatio", query) == pytest.approx(17 / 13)
    # shown first and won: 6 + 4 of the pairs, 5 unprotected items shown first
    assert figure("FirstSlotRate", query) == pytest.approx((6 + 4 + 5) / 30)


def test_few_pairs_give_a_query_no_ratio_of_its_own() -> None:
    few, more = of("few", PP=5, UU=2, FF=2, M1=9), of("more", PP=5, UU=2, FF=2, SS=1)
    for name in RATIOS:
        assert row(name, few, more, query_id="few").reason == "too_few_pairs"
        assert row(name, few, more, query_id="more").value is not None
        assert row(name, few, more).n == 2
    assert row("FlipRate", few, query_id="few").value is not None


def test_few_consistent_pairs_give_no_interval() -> None:
    queries = [of(f"q{number}", PP=1, FF=10, SS=5) for number in range(8)]
    found = row("AdjustedOdds", *queries, of("u", UU=1, FF=9))
    assert (found.low, found.reason, found.n) == (None, "too_few_consistent_pairs", 9)
    assert row("FlipRate", *queries).low is not None
    assert row("AdjustedOdds", *queries, of("u", UU=2, FF=9)).low is not None
    assert row("AdjustedOdds", *queries[:4]).reason == "too_few_queries"


def test_queries_weigh_the_same_unless_pooled() -> None:
    queries = [of("a", PP=30, UU=10, FF=40, SS=20), of("b", PP=5, UU=10, FF=3, SS=2)]
    assert figure("WinRatio", *queries) == pytest.approx((0.3 + 0.25) / (0.1 + 0.5))
    assert figure("WinRatio(agg=pooled)", *queries) == pytest.approx(35 / 20)
    assert figure("FlipRate", *queries) == pytest.approx((0.6 + 0.25) / 2)
    assert figure("FlipRate(agg=pooled)", *queries) == pytest.approx(65 / 120)


def test_repeats_count_every_draw_and_noise_only_the_first() -> None:
    answers = [(P, P), (U, U), (P, U), (U, P)] * 5
    again = [(P, P), (P, P), (P, U), (BAD, P)] * 5
    numbers, draws = [*range(20)] * 2, [0] * 20 + [1] * 20
    noise = pairs(answers + again, draws=draws, numbers=numbers)
    assert figure("WinRatio", noise) == pytest.approx(1)
    assert figure("InvalidRate", noise) == 0
    both = pairs(answers + again, draws=draws, numbers=numbers, repeats=2)
    assert figure("WinRatio", both) == pytest.approx(15 / 5)
    assert figure("InvalidRate", both) == pytest.approx(5 / 40)
    for query in (noise, both):  # per four pairs: 2 of 7 answers that can be read twice
        assert figure("NoiseRate", query) == pytest.approx(2 / 7)
    assert parse_measure("NoiseRate").values(pairs(answers)) == {}
    unread = pairs([(P, BAD), (BAD, P)], draws=[0, 1], numbers=[0, 0])
    assert row("NoiseRate", unread).reason == "no_valid_answer"


def test_p_flips_signs_of_queries_unless_items_recur() -> None:
    measure = parse_measure("AdjustedOdds")
    queries = [of(f"q{number}", PP=10 + number, UU=5, FF=5, SS=2) for number in range(8)]
    tallies = [measure.values(query)[""] for query in queries]
    assert tallied_p(tallies, "macro", np.random.default_rng(0)) == pytest.approx(2 / 2**8)
    assert tallied_p(tallies[:5], "macro", np.random.default_rng(0)) is None
    assert tallied_p([measure.values(of(FF=30))[""]], "macro", np.random.default_rng(0)) is None
    assert joined([measure.values(of(M2=3))[""]]) is None
    assert aggregate("macro", []) is None


def test_known_counts_and_the_papers_shares() -> None:
    reference = vectors("pairwise_ratio")
    tolerance, names = reference["meta"]["tolerance_abs"], reference["meta"]["names"]
    assert len(reference["cases"]) == 31
    for case in reference["cases"]:
        given, expected = case["input"], case["expected"]
        if "pairs" not in given:
            query = of_shares(given["protected_share"], given["unprotected_share"])
            assert_of_table(query, expected, tolerance)
            continue
        answers = [(pair["protected_first"], pair["unprotected_first"]) for pair in given["pairs"]]
        query = pairs(answers)
        for key, name in names.items():
            measure, _, group = name.partition(" group=")
            for query_id in ("all", "q"):
                found = row(measure, query, query_id=query_id, group=group)
                assert found.value == (
                    None if expected[key] is None else pytest.approx(expected[key], abs=tolerance)
                ), (case["id"], name)
                if reason := expected.get(f"{key}_undefined_reason"):
                    assert found.reason == reason
        valid = expected["raw_protected_share_of_valid_calls"]
        if expected["raw_ratio"]:
            assert figure("RawRatio", query) == pytest.approx(valid / (1 - valid), abs=tolerance)
        if given["pairs"]:
            counts = expected["counts"]
            assert figure("TieRate", query) == pytest.approx(counts["with_tie"] / len(answers))
            assert figure("InvalidRate", query) == pytest.approx(counts["with_invalid"] / len(answers))


def of_shares(protected: float, unprotected: float) -> JudgedPairs:
    """10,000 pairs with these shares of consistent wins; the item shown first wins all others."""
    wins = round(10_000 * protected), round(10_000 * unprotected)
    cells = of(PP=1).verdicts, of(UU=1).verdicts, of(FF=1).verdicts
    counted = zip(cells, (*wins, 10_000 - sum(wins)), strict=True)
    return replace(of(), verdicts=tuple(verdict for (verdict,), c in counted for verdict in [verdict] * c))


def assert_of_table(query: JudgedPairs, expected: dict[str, Any], tolerance: float) -> None:
    """A printed row, its shares being pairs of 10,000 and all others flips."""
    ratio, (low, high) = figure("WinRatio", query), expected["ratio_interval_given_4dp_rounding"]
    assert ratio == pytest.approx(expected["ratio_from_shares"], abs=tolerance)
    reconciles = low - 5e-5 <= expected["ratio_reported"] <= high + 5e-5
    assert reconciles == expected["reported_is_consistent_with_protected_over_unprotected"]
    flips, raw = figure("FlipRate", query), figure("RawRatio", query)
    assert flips == pytest.approx(expected["order_inconsistent_or_invalid_share"], abs=tolerance)
    assert raw == pytest.approx(
        expected["raw_ratio_implied_if_all_the_rest_is_position_driven"], abs=tolerance
    )


answer_pairs = st.sampled_from([sorted(ANSWERS), ["FF", "PP", "SS", "UU"]]).flatmap(
    lambda cells: st.lists(st.sampled_from(cells), min_size=1, max_size=40)
)


@given(st.lists(answer_pairs, min_size=1, max_size=6))
@settings(deadline=None, max_examples=20)
def test_swapping_the_sides(cells_of_queries: list[list[str]]) -> None:
    other = {P: U, U: P}
    straight, swapped = [], []
    for number, cells in enumerate(cells_of_queries):
        answers = [ANSWERS[cell] for cell in cells]
        straight.append(pairs(answers, f"q{number}"))
        # the item that was unprotected is now shown first in what was the second chat
        swapped.append(pairs([(other.get(b, b), other.get(a, a)) for a, b in answers], f"q{number}"))
    for name in RATIOS:
        for agg in ("macro", "pooled"):
            before, after = (figure(f"{name}(agg={agg})", *queries) for queries in (straight, swapped))
            assert (before is None) == (after is None)
            if before is not None:
                assert before * (after or 0) == pytest.approx(1)
    for name in (*RATES, "PositionOdds", "Kappa"):
        before, after = (figure(name, *queries) for queries in (straight, swapped))
        assert before == (None if after is None else pytest.approx(after, abs=1e-12))
    sides = [row("WinShare", *queries, group=side).value for queries, side in ((straight, P), (swapped, U))]
    assert sides[0] == pytest.approx(sides[1])


@given(*[st.integers(0, 30) for _ in range(4)])
@settings(deadline=None)
def test_the_balanced_ratio_lies_between_1_and_the_adjusted_odds(pp: int, uu: int, ff: int, ss: int) -> None:
    query = of(PP=pp, UU=uu, FF=ff, SS=ss)
    balanced, odds = figure("BalancedRatio", query), figure("AdjustedOdds", query)
    if balanced is not None and odds is not None:
        assert min(1, odds) - 1e-12 <= balanced <= max(1, odds) + 1e-12


@given(answer_pairs)
@settings(deadline=None)
def test_shares_sum_to_1(cells: list[str]) -> None:
    query = pairs([ANSWERS[cell] for cell in cells])
    wins = [row("WinShare", query, group=side).value for side in Side]
    rates = [figure(name, query) for name in ("FlipRate", "TieRate", "InvalidRate")]
    assert sum(value for value in [*wins, *rates] if value is not None) == pytest.approx(1)
    if set(cells) == {"PP", "UU", "FF", "SS"}:
        assert figure("BalancedRatio", query) == pytest.approx(figure("RawRatio", query))


def test_every_pair_of_answers_is_of_one_kind() -> None:
    assert (KINDS.sum(axis=-1) == 1).all()
    names = ["PP", "UU", "FF", "SS", "T", "M"]
    texts = (P, U, TIE, BAD)
    for a, b in np.ndindex(4, 4):
        (verdict,) = pairs([(texts[a], texts[b])]).verdicts
        assert names[int(KINDS[a, b].argmax())] == verdict.cell.value.rstrip("12")
        assert list(CELLS[a, b]) == list(KINDS[a, b, :4])
