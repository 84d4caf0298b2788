"""Simulated audits measure what real ones measure, and recover what was injected; the benchmark's bands hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.coverage import RANKERS, Kinds, coverage, rejections, simulate
from llmfair.audits.listwise.design import make_design
from llmfair.audits.listwise.plan import audits, calibrate
from llmfair.audits.listwise.settings import CalibrateSettings
from llmfair.audits.listwise.simulate import items_of
from llmfair.audits.plan import share
from llmfair.metrics.base import Judged, QueryComparisons, Quotient
from llmfair.metrics.exposure import excess_ratio
from llmfair.nouns import Candidates, Document, Query, Ranking, Side
from llmfair.stats.power import random_lists
from tests.cli.command import llmfair, ran, refuses
from tests.folders import balanced, write_folder

pytestmark = pytest.mark.whole

P, U = Side.PROTECTED, Side.UNPROTECTED
LISTED = Kinds((2, 3, 1, 4, 2), (U, None, P, U, P), (0, 0, 0, 1, 2))


def quotient(found: Any) -> list[float]:
    return [side for ratio in (found.ratio, found.by) for side in (ratio.numerator, ratio.denominator)]


@pytest.mark.parametrize("control", ["order", "none"])
def test_a_simulated_audit_has_the_values_of_a_real_one(control: str) -> None:
    """Without windows the final lists are the initial ones, which the generator gives again."""
    orders, n = 3, LISTED.n
    kinds = np.repeat(np.arange(5), LISTED.counts)
    ids = [f"d{place:02d}" for place in range(n)]
    rankings = []
    for order in random_lists(LISTED.counts, orders, rng=np.random.default_rng(5)).tolist():
        left = {kind: [d for d, k in zip(ids, kinds, strict=True) if k == kind] for kind in range(5)}
        rankings.append(Ranking("q", tuple(left[kind].pop() for kind in order)))
    documents = tuple(Document(doc_id, "", "", {}) for doc_id in ids)
    relevance = {d: LISTED.grades[k] for d, k in zip(ids, kinds, strict=True) if LISTED.grades[k]}
    sides = {d: LISTED.sides[k] for d, k in zip(ids, kinds, strict=True)}
    candidates = Candidates(Query("q", ""), documents, relevance)
    judged = Judged(candidates, tuple(rankings), sides, beside=tuple(rankings))
    (real,) = excess_ratio.values(judged, None, control=control).values()

    weights = LISTED.log_weights([0.0], 2.0)
    simulated = simulate(LISTED, weights, [], 1, 1, orders, rng=np.random.default_rng(5))
    found = simulated.value(0, 0, control_variate=control == "order")
    assert isinstance(real, Quotient)
    assert quotient(found) == pytest.approx(quotient(real), rel=1e-12)
    assert len(found.ratio.controlled) == len(real.ratio.controlled) == (orders if control == "order" else 0)
    for one, other in zip(found.ratio.controlled, real.ratio.controlled, strict=True):
        assert (*one.final, *one.initial, one.mean) == pytest.approx(
            (*other.final, *other.initial, other.mean)
        )


def test_neither_more_runs_nor_more_queries_nor_more_preferences_move_a_draw() -> None:
    def found(betas: tuple[float, ...], limit: int, runs: int) -> list[Any]:
        settings = CalibrateSettings.make(runs=runs, limit=limit)
        design = make_design(settings)
        lists = [items_of(design.dataset.candidates(query), design.sides) for query in design.queries]
        first = lists[0].query_id
        return [
            [audit[first].outcomes.ahead.tolist(), audit[first].outcomes.slots.tolist()]  # type: ignore[union-attr]
            for place, audit in audits(design, settings, lists, betas)
            if betas[place] == 0.0
        ]

    few = found((0.0,), 1, 60)
    assert len(few) == 60
    assert found((-0.5, 0.0), 2, 110)[:60] == few


@pytest.mark.parametrize("how", [{"alike": 1.0, "slots": 3.0}, {"design": "partition"}])
@pytest.mark.parametrize("runs", [50, pytest.param(500, marks=pytest.mark.slow)])
def test_the_sample_recovers_what_is_injected(runs: int, how: dict[str, Any]) -> None:
    """The bars are those of 500 runs, as many standard errors wide with fewer."""
    wider = (500 / runs) ** 0.5
    ticks: list[None] = []
    settings = CalibrateSettings.make(runs=runs, injected="-0.5,0.5", **how)
    results = calibrate(settings, lambda: ticks.append(None))
    rows = {row["injected"]: row for row in results["injected"]}
    assert list(rows) == [-0.5, 0.0, 0.5] and len(ticks) == 3 * runs
    for row in rows.values():
        assert row["odds"] == pytest.approx(row["injected_odds"], rel=0.03 * wider)
        assert 0.95 - 0.025 * wider <= row["covered"] <= 1 and row["covered_n"] == runs
        assert row["within"] + row["outside"] + row["inconclusive"] == pytest.approx(1)
    assert rows[0.0]["rejected"] <= 0.05 + 0.025 * wider
    least = 0.5 if "alike" not in how else rows[0.0]["rejected"] + 0.1  # qualities recur with items
    assert all(rows[beta]["rejected"] > least and rows[beta]["within"] == 0 for beta in (-0.5, 0.5))
    below, above = results["smallest"]["odds"]
    assert 0.4 < below < 0.9 and below * above == pytest.approx(1)


def test_an_item_has_one_quality_in_all_lists() -> None:
    """Two lists of the same two items, in windows answered alike every time: whoever is ahead is so in both."""
    lists = {f"q{q}": [("f", "female", 1), ("m", "male", 1)] for q in range(2)}
    settings = CalibrateSettings.make(
        runs=50, alike=1.0, dataset=str(write_folder(Path("same"), lists)), window=2, step=1, passes=1
    )
    design = make_design(settings)
    listed = [items_of(design.dataset.candidates(query), design.sides) for query in design.queries]
    ahead = [
        [value.ahead for value in audit.values() if isinstance(value, QueryComparisons)]
        for _, audit in audits(design, settings, listed, (0.0,))
    ]
    assert all(one == other for one, other in ahead) and {0.0, 1.0} == {one for one, _ in ahead}


def test_few_queries_have_neither_test_nor_interval() -> None:
    results = calibrate(CalibrateSettings.make(runs=3, injected="0", limit=4))
    (row,) = results["injected"]
    assert row["covered"] is row["rejected"] is None
    assert (row["covered_n"], row["rejected_n"], row["not_assessable"]) == (0, 0, 1)
    assert row["undefined"] == {"too_few_queries": 3}
    assert results["smallest"]["odds"] == [None, None]


def test_a_share_and_its_error() -> None:
    assert share([]) == (None, None)
    value, error = share([True] * 96)
    assert value == 1 and error == pytest.approx((0.98 * 0.02 / 100) ** 0.5)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_coverage_and_size_at_full_length() -> None:
    for ranker in RANKERS:
        assert 0.93 <= coverage(ranker).value <= 0.97, ranker
    found = rejections()
    assert found["naive"].value > 0.5
    assert all(found[test].value <= 0.07 for test in ("t", "sign_flip", "permutation")), found


LISTS = ("calibrate", "listwise", "--runs", "10", "--injected", "-0.5")
PAIRS = ("calibrate", "pairwise", "--runs", "10", "--injected", "-0.3", "--conditions", "relevant")


@pytest.mark.parametrize("command", [LISTS, PAIRS], ids=["listwise", "pairwise"])
def test_a_seed_repeats_and_tsv_has_the_rows_of_json(command: tuple[str, ...]) -> None:
    results = llmfair(*command, "--json").json
    assert results["injected"] != llmfair(*command, "--seed", "1", "--json").json["injected"]
    header, *rows = [line.split("\t") for line in llmfair(*command, "--format", "tsv").out.splitlines()]
    injected = [row[header.index("injected")] for row in rows]
    assert injected == [str(row["injected"]) for row in results["injected"]] == [command[5], "0.0"]


def test_the_audit_s_configuration_is_simulated() -> None:
    Path("llmfair.toml").write_text("[pairwise]\npairs = 7\n[calibrate]\nposition = 1\nslots = 1\n")
    settings = llmfair(*PAIRS, "--json").json["settings"]
    assert (settings["pairs"], settings["position"]) == (7, 1.0)


def test_no_pairs() -> None:
    apart = {f"q{q}": [(f"f{q}", "female", 1), (f"m{q}", "male", 0)] for q in range(8)}
    folder = write_folder(Path("apart"), apart)
    refuses("no query has pairs of a protected and an unprotected item.", *PAIRS, "-d", folder)


def test_lists_of_one_side_are_left_out_and_counted() -> None:
    lists = balanced(7, 4, 4)
    lists["q6"] = [row for row in lists["q6"] if row[1] == "female"]
    folder = write_folder(Path("mine"), lists)
    told = ran(*LISTS, "-d", folder).out
    assert "1 query without equally relevant items of both groups left out" in told
    none = "no list has items of both groups with the same grade of relevance."
    refuses(none, *LISTS, "-d", folder, "--queries", "q6")
