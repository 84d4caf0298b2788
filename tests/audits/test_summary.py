"""Tidy rows: one per query, then the aggregate; undefined values counted."""

from __future__ import annotations

import pytest
from msgspec import structs

from llmfair.audits.aggregates import Inference, aggregate, summarise, undefined_counts
from llmfair.audits.gates import GatedFigures, check_gates, parse_gate
from llmfair.metrics.base import Column, Measure, Ratio, Undefined, Value, measure_all
from llmfair.metrics.names import parse_measure
from llmfair.nouns import Key, Measurement
from llmfair.results import absent_row
from tests.metrics import lettered

RATIO = parse_measure("ExpRatio")
MEAN_OF_RATIOS = parse_measure("ExpRatio(agg=mean-of-ratios)")
GEOMETRIC = parse_measure("ExpRatio(agg=geometric)")
PRECISION = parse_measure("P@20")


def column(measure: Measure, *values: Value, condition: str = "neutral", group: str = "") -> Column:
    return Column(measure, condition, group, {f"q{number}": value for number, value in enumerate(values)})


def last(*columns: Column) -> Measurement:
    return summarise(columns)[-1]


def test_rows_of_queries_then_all() -> None:
    found = summarise([column(PRECISION, 0.5, Undefined("no_relevant"), 0.25)])
    assert found == [
        Measurement("q0", "P@20", 0.5, "neutral"),
        Measurement("q1", "P@20", None, "neutral", reason="no_relevant"),
        Measurement("q2", "P@20", 0.25, "neutral"),
        Measurement("all", "P@20", 0.375, "neutral", n=2, reason="too_few_queries"),
    ]


def test_five_queries_have_an_interval() -> None:
    row = last(column(PRECISION, 0.1, 0.2, 0.3, 0.4, 0.5))
    assert row.value == pytest.approx(0.3)
    assert row.low == pytest.approx(0.3 - 2.776445 * 0.1 * 0.5**0.5, abs=1e-6)
    assert row.high == pytest.approx(0.3 + 2.776445 * 0.1 * 0.5**0.5, abs=1e-6)
    assert (row.n, row.reason) == (5, None)


def test_eight_perfect_queries_do_not_show_a_mean_of_almost_1() -> None:
    row = last(column(parse_measure("P@5"), *[1.0] * 8))
    assert (row.value, row.high, row.reason) == (1, 1, "nearly_all_same")
    assert row.low == pytest.approx(0.594, abs=1e-3)
    of_all = {"query_id": "all", "value": row.value, "low": row.low, "high": row.high, "reason": row.reason}
    figure = structs.replace(absent_row("P@5", Key("neutral")), **of_all)
    figures = GatedFigures([Key("neutral")], [], [figure], {}, asked=" prompt")
    (entry,) = check_gates([parse_gate("P@5>=0.999")], figures, interval=True)
    assert entry.reason == "P@5 (neutral prompt) [0.594, 1.000] reaches below 0.999"


def test_without_known_bounds_queries_that_are_all_the_same_have_no_interval() -> None:
    row = last(column(parse_measure("KL"), *[0.0] * 149))
    assert (row.value, row.low, row.high, row.reason) == (0, None, None, "all_same")
    assert last(column(parse_measure("KL"), *[0.0] * 150)).high == 0


@pytest.mark.parametrize(
    ("lists", "reason"), [(["puu", "upu"] * 3, "single_items"), (["pupu"] * 3 + ["uppu"] * 3, None)]
)
def test_an_excess_ratio_of_single_items_has_no_interval(lists: list[str], reason: str | None) -> None:
    judged = [lettered(letters, f"q{place}", "1" * place) for place, letters in enumerate(lists)]
    (of_lists,) = measure_all([parse_measure("ExcessRatio")], {"neutral": judged})
    row = last(of_lists)
    assert row.value is not None and row.reason == reason and (row.low is None) is (reason is not None)


@pytest.mark.parametrize(
    ("measure", "values", "low", "high"),
    [
        ("P@20", [0.1, 0.2, 0.3, 0.4, 0.5], 0.0, 0.3 + 4.604095 * 0.1 * 0.5**0.5),
        ("P@20", [0.9, 0.8, 0.7, 0.6, 0.5], 0.7 - 4.604095 * 0.1 * 0.5**0.5, 1.0),
        ("Tau", [-1.0, -0.8, -0.6, -0.4, -0.2], -1.0, -0.6 + 4.604095 * 0.2 * 0.5**0.5),
        ("nDCG(discount=trec,ideal=1)@5", [3.0, 3.1, 3.2, 3.3, 3.4], 3.2 - 4.604095 * 0.1 * 0.5**0.5, 3.2 + 4.604095 * 0.1 * 0.5**0.5),
        ("KL", [3.0, 0.0, 0.0, 0.0, 0.0], 0.0, 0.6 + 4.604095 * 0.6),
    ],
)  # fmt: skip
def test_no_interval_leaves_the_range(measure: str, values: list[Value], low: float, high: float) -> None:
    row = summarise([column(parse_measure(measure), *values)], Inference(level=0.99))[-1]
    assert (row.low, row.high) == pytest.approx((low, high), abs=1e-6)


def test_each_aggregate_of_ratios() -> None:
    ratios: list[Value] = [Ratio(1.0, 2.0), Ratio(6.0, 3.0)]
    assert last(column(RATIO, *ratios)).value == pytest.approx(7 / 5)
    assert last(column(MEAN_OF_RATIOS, *ratios)).value == pytest.approx((0.5 + 2) / 2)
    assert last(column(GEOMETRIC, *ratios)).value == pytest.approx(1)
    assert [row.value for row in summarise([column(RATIO, *ratios)])[:2]] == [0.5, 2.0]


def test_zero_sides_count_in_the_ratio_of_means_only() -> None:
    values: list[Value] = [Ratio(0.0, 1.0, "zero_exposure"), Ratio(3.0, 1.0), Undefined("no_protected")]
    rows = summarise([column(RATIO, *values)])
    found = [(row.value, row.reason) for row in rows[:3]]
    assert found == [(None, "zero_exposure"), (3.0, None), (None, "no_protected")]
    assert (rows[3].value, rows[3].n) == (1.5, 2)
    for measure in (MEAN_OF_RATIOS, GEOMETRIC):
        row = last(column(measure, *values))
        assert row.value == pytest.approx(3)
        assert row.n == 1


def test_nothing_defined_gives_the_most_frequent_reason() -> None:
    undefined = [Undefined("no_unprotected"), Undefined("no_protected"), Undefined("no_unprotected")]
    row = last(column(RATIO, *undefined))
    assert (row.value, row.n, row.reason) == (None, 0, "no_unprotected")
    tied = last(column(RATIO, *undefined[:2]))
    assert tied.reason == "no_protected"
    zero = last(column(RATIO, Ratio(0.0, 1.0, "zero_exposure"), Ratio(0.0, 2.0, "zero_exposure")))
    assert (zero.value, zero.n, zero.reason) == (None, 0, "zero_exposure")
    assert aggregate("mean", []) is None


def test_undefined_queries_are_counted_once_per_reason() -> None:
    queries = [lettered("uu", "q1"), lettered("--", "q2"), lettered("uu", "q3"), lettered("pu", "q4")]
    measures = [parse_measure("Exposure"), RATIO, parse_measure("ExpRatio@1"), parse_measure("overlap@1")]
    columns = measure_all(measures, {"neutral": queries, "female": queries[3:]})
    assert undefined_counts(columns) == {
        "Exposure": {"neutral": {"no_group": 1, "no_protected": 2}},
        "ExpRatio": {"neutral": {"no_group": 1, "no_protected": 2}},
        "ExpRatio@1": {
            "neutral": {"no_group": 1, "no_protected": 2, "zero_exposure": 1},
            "female": {"zero_exposure": 1},
        },
    }
