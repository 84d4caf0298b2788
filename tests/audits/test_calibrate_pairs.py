"""Simulated pairwise audits measure what real ones measure, and recover what was injected."""

from __future__ import annotations

import zlib
from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmfair.audits.aggregates import Inference, tallied
from llmfair.audits.pairwise.calibrate import (
    calibrate_pairwise,
    finding_in_pairs,
    marginal_odds,
    pair_audits,
    pairs_of,
    simulate_answers,
)
from llmfair.audits.pairwise.design import make_pair_design
from llmfair.audits.pairwise.measure import HowAsked, judged_of
from llmfair.audits.pairwise.settings import CalibratePairwiseSettings
from llmfair.metrics.base import measure_all
from llmfair.metrics.names import parse_measure
from llmfair.nouns import PairAnswer, Side
from tests.folders import balanced, write_folder
from tests.shared import vectors

pytestmark = pytest.mark.whole

MAKE = CalibratePairwiseSettings.make
ANSWERS = (
    PairAnswer(Side.PROTECTED),
    PairAnswer(Side.UNPROTECTED),
    PairAnswer(None, "tie"),
    PairAnswer(None, "empty"),
)
MEASURE = parse_measure("AdjustedOdds")


def test_the_truth_over_queries() -> None:
    for row in vectors("injected_bias.json")["pairwise_expected"]:
        if row["lapse"]:
            continue
        first, second = (row["cond_PP"] + row[f"cond_{flip}"] for flip in ("FF", "SS"))
        truth = (log(first / (1 - first)) + log(second / (1 - second))) / 2
        found = marginal_odds(row["beta"], row["gamma"], row["sigma_query"])
        assert log(found) == pytest.approx(truth, abs=1e-6), row


def test_the_truth_is_nearer_to_parity_than_the_typical_query() -> None:
    assert marginal_odds(0.3, 2.0, 0.0) == pytest.approx(exp(0.3))
    assert log(marginal_odds(-0.5, 0.5, 0.5)) == pytest.approx(-0.4737, abs=5e-5)
    assert marginal_odds(0, 6, 3) == pytest.approx(1)
    assert 1 < marginal_odds(0.3, 0.5, 1.0) < exp(0.3) < marginal_odds(0.3, 0.5, 0.0) + 1e-9


@pytest.mark.parametrize("repeats", [1, 2])
def test_a_simulated_audit_has_the_values_of_a_real_one(repeats: int) -> None:
    settings = MAKE(runs=2, pairs=20, repeats=repeats, malformed=0.1, conditions="irrelevant")
    design = make_pair_design(settings)
    pairs = pairs_of(design, "irrelevant")
    assert [len(of_it) for of_it in pairs.values()] == [20 * repeats] * 8
    _, audit = next(pair_audits(pairs, "irrelevant", settings, (-0.3, 0.0)))
    verdicts = []
    for query_id, of_it in pairs.items():
        answers = simulate_answers(
            (-0.3, 0.0), [one.number for one in of_it], settings, rng=rng_of(query_id, 0)
        )[0, 0]
        verdicts += [
            replace(one, first=ANSWERS[first], second=ANSWERS[second])
            for one, (first, second) in zip(of_it, answers.tolist(), strict=True)
        ]
    (real,) = measure_all((MEASURE,), {"irrelevant": judged_of(verdicts, repeats)})
    how = HowAsked(Inference(), (0.8, 1.25))
    odds, finding = finding_in_pairs("irrelevant", MEASURE, how, audit)
    same, theirs = finding_in_pairs("irrelevant", MEASURE, how, dict(sorted(real.values.items())))  # type: ignore[arg-type]
    assert (odds.value, odds.low) == pytest.approx((same.value, same.low))
    assert (finding.p, finding.consistent_share) == pytest.approx((theirs.p, theirs.consistent_share))
    for query_id, tally in audit.items():
        other: Any = real.values[query_id]
        assert (tally.readable, tally.consistent) == (other.readable, other.consistent)


def rng_of(query_id: str, block: int) -> np.random.Generator:
    return np.random.default_rng([0, zlib.crc32(query_id.encode()), 3000 + block, 1])


def test_neither_more_runs_nor_more_queries_nor_more_preferences_move_a_draw() -> None:
    def found(betas: tuple[float, ...], limit: int, runs: int, stratum: str) -> list[Any]:
        settings = MAKE(runs=runs, limit=limit, pairs=5, conditions=stratum)
        pairs = pairs_of(make_pair_design(settings), "relevant")
        first = next(iter(pairs))
        return [
            audit[first].counts.tolist()
            for place, audit in pair_audits(pairs, "relevant", settings, betas)
            if betas[place] == 0.0
        ]

    few = found((0.0,), 1, 60, "relevant")
    assert len(few) == 60
    assert found((-0.5, 0.0), 2, 110, "irrelevant,relevant")[:60] == few


def test_answers_have_the_injected_shares() -> None:
    settings = MAKE(query_sd=0.0, pair_sd=0.0, malformed=0.2, position=0.5)
    answers = simulate_answers((0.0, 1.0), range(4000), settings, rng=np.random.default_rng(1))
    assert answers.shape == (2, 50, 4000, 2)
    assert (answers == 3).mean() == pytest.approx(0.2, abs=0.003)
    for beta, of_it in zip((0.0, 1.0), answers, strict=True):
        for order, place in ((0.5, 0), (-0.5, 1)):
            readable = of_it[..., place][of_it[..., place] != 3]
            assert (readable == 0).mean() == pytest.approx(1 / (1 + exp(-beta - order)), abs=0.005)


def test_the_sample_recovers_what_is_injected() -> None:
    ticks: list[None] = []
    settings = MAKE(runs=60, injected="-0.5,0.5", conditions="relevant", query_sd=0.5)
    results = calibrate_pairwise(settings, lambda: ticks.append(None))
    rows = {row["injected"]: row for row in results["injected"]}
    assert list(rows) == [-0.5, 0.0, 0.5] and len(ticks) == 180
    for row in rows.values():
        assert row["log_odds"] == pytest.approx(log(row["marginal_odds"]), abs=4 * row["log_odds_error"])
        assert 0.88 <= row["covered"] <= 1 and row["covered_n"] == 60
        concluded = row["within"] + row["outside"] + row["inconclusive"] + row["not_assessable"]
        assert concluded == pytest.approx(1) and row["undefined"].keys() <= {"chance_answers"}
    assert rows[0.0]["rejected"] <= 0.12 and rows[-0.5]["rejected"] > 0.4
    assert rows[-0.5]["injected_odds"] < rows[-0.5]["marginal_odds"] < 1
    below, above = results["smallest"]["relevant"]["odds"]
    for odds, row in ((below, rows[-0.5]), (above, rows[0.5])):
        if row["rejected"] >= 0.8:
            part = (0.8 - rows[0.0]["rejected"]) / (row["rejected"] - rows[0.0]["rejected"])
            assert odds == pytest.approx(row["marginal_odds"] ** part)
        else:
            assert odds is None


def test_the_smallest_odds_are_those_that_audits_found() -> None:
    """The same two and eight items in all six queries: one degree of freedom, whatever the number of queries."""
    items: list[tuple[str, str | None, int]] = [(f"f{i}", "female", 1) for i in range(2)]
    items += [(f"m{i}", "male", 1) for i in range(8)]
    few = write_folder(Path("few"), {f"q{q}": items for q in range(6)})
    own = write_folder(Path("own"), balanced(6, 8, 20))
    usual: dict[str, Any] = {
        "runs": 40, "injected": "-1.2,1.2", "conditions": "relevant", "query_sd": 0.0, "pair_sd": 0.0, "position": 0.0,
    }  # fmt: skip
    found = calibrate_pairwise(MAKE(dataset=str(few), **usual))
    assert max(row["rejected"] for row in found["injected"]) < 0.1
    assert found["smallest"]["relevant"] == {"power": 0.8, "tested": True, "odds": [None, None]}
    below, above = calibrate_pairwise(MAKE(dataset=str(own), **usual))["smallest"]["relevant"]["odds"]
    assert exp(-1.2) < below < 1 < above < exp(1.2)
    # of six queries no p is below 1/32
    strict = calibrate_pairwise(MAKE(dataset=str(own), level=0.99, **usual))
    assert strict["smallest"]["relevant"]["odds"] == [None, None]


def test_audits_without_a_test_found_nothing() -> None:
    """Almost all answers are for one side, so that few audits have an interval; those that do reject."""
    settings = MAKE(
        runs=30, injected="6", pairs=20, conditions="relevant", query_sd=0.0, pair_sd=0.0, position=0.0
    )
    results = calibrate_pairwise(settings)
    row = results["injected"][-1]
    assert row["rejected_n"] < 24
    assert results["smallest"]["relevant"]["odds"] == [None, None]


def test_pairs_weigh_as_asked() -> None:
    lists = {
        f"q{q}": rows for q, rows in enumerate([*balanced(3, 4, 4).values(), *balanced(3, 20, 20).values()])
    }
    dataset = str(write_folder(Path("uneven"), lists))
    found = {}
    for weights in ("macro", "pooled"):
        settings = MAKE(
            dataset=dataset, runs=4, injected="0", conditions="relevant", query_sd=2.0, weights=weights
        )
        (row,) = calibrate_pairwise(settings)["injected"]
        pairs = pairs_of(make_pair_design(settings), "relevant")
        audits = [audit for _, audit in pair_audits(pairs, "relevant", settings, (0.0,))]
        odds = [tallied(list(audit.values()), weights, 0.95) for audit in audits]
        assert row["odds"] == pytest.approx(np.median([one.value for one in odds if one is not None]))
        found[weights] = row["odds"]
    assert found["macro"] != pytest.approx(found["pooled"], rel=0.01)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"position": 6.0}, "position_driven"),
        ({"limit": 4}, "too_few_queries"),
        ({"malformed": 0.9999, "pairs": 2}, "no_valid_answer"),
    ],
)
def test_what_says_nothing_is_counted(given: dict[str, Any], reason: str) -> None:
    results = calibrate_pairwise(MAKE(runs=4, injected="0", conditions="relevant", **given))
    (row,) = results["injected"]
    assert row["not_assessable"] == 1 and row["undefined"] == {reason: 4}
    if reason != "position_driven":
        assert row["covered"] is row["rejected"] is None
        assert (row["covered_n"], row["rejected_n"]) == (0, 0)
        assert results["smallest"]["relevant"] == {"power": 0.8, "tested": False, "odds": [None, None]}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("shared", [False, True])
def test_coverage_and_size_at_full_length(shared: bool, tmp_path: Any) -> None:
    """30 queries with items of their own, and with the same items in all."""
    lists = balanced(30, 40, 40)
    if shared:
        lists = dict.fromkeys(lists, lists["q0"])
    folder = write_folder(tmp_path / "lists", lists)
    settings = MAKE(dataset=str(folder), runs=600, injected="0,0.3", conditions="relevant", query_sd=0.5)
    for row in calibrate_pairwise(settings)["injected"]:
        assert 0.92 <= row["covered"] <= 0.985, row
        assert row["injected"] or 0.015 <= row["rejected"] <= 0.08, row
