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
from llmfair.errors import UsageError
from llmfair.stats.pair_plan import Rule, plan_pairs
from tests.finished import audit
from tests.folders import balanced, folder_of, write_folder

APART: dict[str, list[tuple[str, str | None, int]]] = {
    f"q{q}": [(f"f{q}", "female", 1), (f"m{q}", "male", 0)] for q in range(8)
}
"""No query has relevant items of both sides, nor others."""


def expected(queries: int, **given: Any) -> dict[str, Any]:
    """What a plan of relevant pairs says, of answers of which it knows how consistent they are."""
    answers = {} if "pilot" in given else {"consistent": 0.7}
    settings = PlanPairwiseSettings.make(
        dataset=folder_of(queries), conditions="relevant", **{**answers, **given}
    )
    findable: dict[str, Any] = plan_of(PAIRWISE, settings)["findable"]["relevant"]
    prospects = findable.pop("prospects")
    return {**findable, **(prospects[0] if prospects else {})}


def test_chances_are_those_of_the_formula() -> None:
    plan = expected(44, pairs=20, ratio=0.6, icc=0.1, first_slot=0.6, level=0.9, band="0.75..1.3333")
    low, high = 0.75, 1.3333
    known = plan_pairs(44, 20, 0.6, 0.6, 0.7, 0.1, Rule(0.9, (low, high)))
    assert (plan["error"], plan["disparity"]) == (known.error, known.disparity)
    assert plan["parity"] == plan_pairs(44, 20, 1.0, 0.6, 0.7, 0.1, Rule(0.9, (low, high))).parity > 0.1


def test_queries_and_odds_that_are_needed_are_enough_and_none_fewer() -> None:
    plan = expected(44, pairs=20)
    needed, smallest = plan["queries_for_disparity"], plan["smallest"]
    enough, fewer = (plan_pairs(n, 20, 0.6, 0.5, 0.7, 0.05).disparity for n in (needed, needed - 1))
    assert fewer < 0.8 <= enough
    assert plan_pairs(44, 20, smallest, 0.5, 0.7, 0.05).disparity == pytest.approx(0.8, abs=1e-4)
    needed = plan["queries_for_parity"]
    enough, fewer = (plan_pairs(n, 20, 1.0, 0.5, 0.7, 0.05).parity for n in (needed, needed - 1))
    assert fewer < 0.8 <= enough
    assert expected(44, ratio=0.9)["queries_for_disparity"] is None


def test_without_a_pilot_two_ends_are_planned() -> None:
    plan = plan_of(PAIRWISE, PlanPairwiseSettings.make(dataset=folder_of(44)))["findable"]
    for stratum in ("relevant", "irrelevant"):
        assert [each["consistent"] for each in plan[stratum]["prospects"]] == [0.6, 0.9]
        # two strata are tested
        known = plan_pairs(44, 50, 0.6, 0.5, 0.6, 0.05, Rule(tests=2))
        assert plan[stratum]["prospects"][0]["disparity"] == known.disparity


def test_answers_that_agree_no_better_than_coins_never_end_in_parity() -> None:
    plan = expected(44, consistent=0.5)
    assert plan["queries_for_parity"] is None and plan["parity"] < 0.001
    assert plan["queries_for_disparity"] > 5


def test_a_pilot_says_how_answers_will_be() -> None:
    settings = PairwiseSettings.make(dataset=folder_of(8), output=Path("small"), pairs=10)
    audit(PAIRWISE.design(settings, Subject("fake:biased")))
    results = json.loads(Path("small/results.json").read_text())
    plan = expected(44, pilot="small")
    finding = results["findings"]["relevant"]
    assert plan["consistent"] == finding["consistent_share"]
    assert plan["icc"] == max(0, finding["icc"])
    Path("small").rename("another")
    with pytest.raises(UsageError, match="small"):
        expected(44, pilot="small")


def test_queries_of_unequal_pools_count_as_their_harmonic_mean() -> None:
    lists = balanced(6, 20, 20) | {f"small{q}": rows for q, rows in balanced(3, 4, 10).items()}
    lists |= {"none": [("n", "female", 1), ("o", "male", 0)]}
    dataset = str(write_folder(Path("uneven"), lists))
    plan = plan_of(PAIRWISE, PlanPairwiseSettings.make(dataset=dataset))
    relevant = plan["findable"]["relevant"]
    assert (relevant["queries"], relevant["pairs"]) == (9, pytest.approx(9 / (6 / 50 + 3 / 10)))
    assert plan["design"]["pairs_asked"] == {"relevant": 6 * 50 + 3 * 10, "irrelevant": 6 * 50 + 3 * 10}
    # q0 and small-q0 share their items
    assert relevant["items_recur"] and not expected(6)["items_recur"]


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
        once = 2 * settings.repeats * sum(planned["design"]["pairs_asked"].values())
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
    assert expected(4)["reason"] == "too_few_queries"
    assert expected(44, sequential=True)["reason"] == "sequential"
    one_sided = str(write_folder(Path("apart"), APART))
    plan = plan_of(PAIRWISE, PlanPairwiseSettings.make(dataset=one_sided))
    assert (plan["calls"], plan["prompt_tokens"]) == (0, 0)
    assert {one["reason"] for one in plan["findable"].values()} == {"no_pairs"}
