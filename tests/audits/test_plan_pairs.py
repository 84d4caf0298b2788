"""A pairwise plan counts what a run asks, and says what its pairs can find, before anything is asked."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from llmfair.audits.pairwise import PAIRWISE
from llmfair.audits.pairwise.settings import PairwiseSettings, PlanPairwiseSettings
from llmfair.audits.plan import plan as plan_of
from llmfair.audits.subject import Subject
from llmfair.stats.power import Pairing, power
from tests.finished import audit
from tests.folders import balanced, folder_of, write_folder

APART: dict[str, list[tuple[str, str | None, int]]] = {
    f"q{q}": [(f"f{q}", "female", 1), (f"m{q}", "male", 0)] for q in range(8)
}
"""No query has relevant items of both sides, nor others."""


def found(queries: int, **given: Any) -> dict[str, Any]:
    """What a plan of relevant pairs finds."""
    settings = PlanPairwiseSettings.make(dataset=folder_of(queries), conditions="relevant", **given)
    findable: dict[str, Any] = plan_of(PAIRWISE, settings)["findable"]["relevant"]
    return findable


@pytest.mark.parametrize(
    ("icc", "smallest", "queries"),
    [
        (0.0, (0.872, 0.917, 0.941), (73, 17)),
        (0.05, (0.826, 0.852, 0.862), (140, 87)),
        (0.1, (0.792, 0.811, 0.817), (207, 157)),
    ],
)
def test_what_44_queries_find(icc: float, smallest: tuple[float, ...], queries: tuple[int, int]) -> None:
    """Section 9 of the statistics, with 20, 50 and 100 pairs a query."""
    plans = [found(44, icc=icc, ratio=0.9, pairs=pairs) for pairs in (20, 50, 100)]
    assert [plan["smallest"] for plan in plans] == pytest.approx(smallest, abs=0.0006)
    assert (plans[0]["queries_needed"], plans[2]["queries_needed"]) == queries
    assert all(plan["reason"] is None for plan in plans)


@pytest.mark.parametrize(
    ("icc", "ratio", "pairs"),
    [
        (0.0, 0.8, 8),
        (0.0, 0.9, 34),
        (0.02, 0.8, 9),
        (0.02, 0.9, 101),
        (0.05, 0.8, 12),
        (0.05, 0.9, None),
        (0.1, 0.95, None),
    ],
)
def test_pairs_needed(icc: float, ratio: float, pairs: int | None) -> None:
    plan = found(44, icc=icc, ratio=ratio)
    # there are 10 · 10
    assert plan["pairs_needed"] == (None if pairs == 101 else pairs)
    assert plan["all_pairs"] == 100 and plan["smallest_with_all"] > plan["smallest"]


def test_pairs_are_needed_of_queries_that_have_them() -> None:
    lists = balanced(40, 20, 20) | {f"small{q}": rows for q, rows in balanced(4, 4, 10).items()}
    dataset = str(write_folder(Path("some-small"), lists))
    settings = PlanPairwiseSettings.make(dataset=dataset, conditions="relevant", ratio=0.9, icc=0.0)
    relevant = plan_of(PAIRWISE, settings)["findable"]["relevant"]
    assert found(44, icc=0.0, ratio=0.9)["pairs_needed"] == 34
    needed = relevant["pairs_needed"]
    # four queries have but 10 pairs, so the others need more than 34
    assert 44 / (40 / needed + 4 / 10) >= 34 > 44 / (40 / (needed - 1) + 4 / 10)
    assert relevant["all_pairs"] == pytest.approx(44 / (40 / 100 + 4 / 10))


def test_pairs_of_equal_texts_are_none_that_could_be_asked() -> None:
    titles = {"q0f0": "The same", "q0f1": "The same", "q0m0": "The same"}
    dataset = str(write_folder(Path("same"), balanced(6, 20, 20), titles))
    plan = plan_of(PAIRWISE, PlanPairwiseSettings.make(dataset=dataset, conditions="relevant", pairs=100))
    relevant = plan["findable"]["relevant"]
    assert plan["pairs_asked"] == {"relevant": 598}
    assert relevant["pairs"] == relevant["all_pairs"] == pytest.approx(6 / (5 / 100 + 1 / 98))


def test_the_level_is_that_of_the_test() -> None:
    strict, usual = (found(44, icc=0.0, level=level) for level in (0.999, 0.95))
    assert strict["power"] == pytest.approx(power(0.2231436, usual["error"], 44, 0.999), abs=1e-6)
    assert strict["smallest"] < usual["smallest"] and strict["queries_needed"] > usual["queries_needed"]
    assert strict["pairs_needed"] > usual["pairs_needed"]


def test_power_is_that_of_the_formula() -> None:
    plan = found(44, pairs=20, ratio=0.85, icc=0.1, consistent=0.3, power=0.9)
    assert plan["error"] == pytest.approx(Pairing(0.1, 0.3).query_sd(0.85, 20) / 44**0.5)
    assert plan["power"] == pytest.approx(power(0.1625189, plan["error"], 44), abs=1e-6)
    assert found(44, pairs=20, ratio=1 / 0.85, icc=0.1, consistent=0.3)["power"] == pytest.approx(
        plan["power"]
    )


def test_queries_of_unequal_pools_count_as_their_harmonic_mean() -> None:
    lists = balanced(6, 20, 20) | {f"small{q}": rows for q, rows in balanced(3, 4, 10).items()}
    lists |= {"none": [("n", "female", 1), ("o", "male", 0)]}
    dataset = str(write_folder(Path("uneven"), lists))
    plan = plan_of(PAIRWISE, PlanPairwiseSettings.make(dataset=dataset))
    relevant = plan["findable"]["relevant"]
    assert (relevant["queries"], relevant["pairs"]) == (9, pytest.approx(9 / (6 / 50 + 3 / 10)))
    assert plan["pairs_asked"] == {"relevant": 6 * 50 + 3 * 10, "irrelevant": 6 * 50 + 3 * 10}
    # q0 and small-q0 share their items
    assert relevant["items_recur"] and not found(6)["items_recur"]


@pytest.mark.parametrize(
    "design",
    [
        {},
        {"pairs": 7, "noise_share": 0.3, "repeats": 2, "form": "letter"},
        {"pairs": 100, "noise_share": 0.0, "conditions": "irrelevant"},
        {"sequential": True, "max_pairs": 30},
    ],
)
def test_a_run_asks_what_was_planned(design: dict[str, Any]) -> None:
    lists = balanced(3, 8, 6) | {"short": [("s", "female", 1), ("t", "male", 1), ("u", "male", 0)]}
    titles = {"q0f0": "A very much longer title than all of the others"}
    dataset = str(write_folder(Path("mine"), lists, titles))
    settings = PairwiseSettings.make(dataset=dataset, output=Path("run"), **design)
    planned = plan_of(PAIRWISE, settings)
    audit(PAIRWISE.design(settings, Subject("fake:biased,malformed=0,pairwise=0,query_sd=0")))
    manifest = json.loads(Path("run/manifest.json").read_text())
    answered = [json.loads(line) for line in Path("run/journal.jsonl").read_text().splitlines()[1:]]
    tokens = fmean(sum(len(content) for _, content in line["chat"]) for line in answered) / 4
    if settings.sequential:
        assert planned["calls"] >= manifest["calls"] and planned["noise_calls"] == 0
    else:
        assert planned["calls"] == manifest["calls"] == len(answered)
        once = 2 * settings.repeats * sum(planned["pairs_asked"].values())
        assert planned["calls"] == once + planned["noise_calls"]
    assert planned["prompt_tokens"] == pytest.approx(planned["calls"] * tokens, rel=0.03)
    assert planned["completion_tokens"] == planned["calls"] * (1 if settings.form == "letter" else 3)


def test_cost_time_and_models() -> None:
    plan = plan_of(PAIRWISE, PlanPairwiseSettings.make(price_in=2.5, price_out=10.0, latency=0.5, workers=4))
    assert plan["cost"] == (plan["prompt_tokens"] * 2.5 + plan["completion_tokens"] * 10) / 1e6 > 0
    assert (plan["calls"], plan["noise_calls"], plan["seconds"]) == (1760, 160, 1760 / 4 / 2)
    two = plan_of(PAIRWISE, PairwiseSettings.make(model=("fake:biased", "fake:oracle"), workers=4))
    assert two["noise_calls"] == 2 * plan["noise_calls"] and "findable" not in two and "cost" not in two


def test_what_cannot_be_found() -> None:
    few = found(5)
    assert (few["reason"], few["power"], few["smallest"], few["queries_needed"]) == (
        "too_few_queries", None, None, 24,
    )  # fmt: skip
    assert found(44, sequential=True)["reason"] == "sequential"
    one_sided = str(write_folder(Path("apart"), APART))
    plan = plan_of(PAIRWISE, PlanPairwiseSettings.make(dataset=one_sided))
    assert (plan["calls"], plan["prompt_tokens"]) == (0, 0)
    assert {one["reason"] for one in plan["findable"].values()} == {"no_pairs"}
    hopeless = found(6, icc=1.0, consistent=0.05, ratio=0.95)
    assert (hopeless["smallest"], hopeless["pairs_needed"]) == (None, None)
