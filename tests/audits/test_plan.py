"""A plan counts what a run asks, and says what its design can find, before anything is asked."""

from __future__ import annotations

import json
from itertools import pairwise
from math import hypot, log
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from llmfair.audits.listwise import LISTWISE, plan
from llmfair.audits.listwise.plan import calibrate
from llmfair.audits.listwise.settings import CalibrateSettings, ListwiseSettings, PlanSettings
from llmfair.audits.listwise.simulate import AuditSimulation
from llmfair.audits.pairwise import PAIRWISE
from llmfair.audits.pairwise.settings import PairwiseSettings, PlanPairwiseSettings
from llmfair.audits.plan import plan as plan_of
from llmfair.audits.subject import Subject
from llmfair.errors import MissingKey
from llmfair.metrics.base import Value
from llmfair.nouns import Chat, Completion
from llmfair.registry import _found, names
from tests.finished import audit
from tests.folders import balanced, folder_of, write_folder
from tests.outside.counter import Counter

pytestmark = pytest.mark.whole

ONE_PASS: dict[str, Any] = {"passes": 1, "orders": 1, "repeat": False}


def found(queries: int, protected: int, unprotected: int, **given: Any) -> dict[str, Any]:
    """What a plan of lists of that shape finds."""
    settings = PlanSettings.make(dataset=folder_of(queries, protected, unprotected), **given)
    findable: dict[str, Any] = plan_of(LISTWISE, settings)["findable"]
    return findable


def test_requests_for_lists_of_200() -> None:
    """One list takes 196 calls a chain under the paper's settings, three chains; 57 by default, twelve chains."""
    dataset = folder_of(3, 100, 100)
    make = ListwiseSettings.make
    designs = [make("paper", dataset=dataset), make(dataset=dataset), make(dataset=dataset, **ONE_PASS)]
    planned = [plan_of(LISTWISE, design) for design in designs]
    assert [plan["calls"] for plan in planned] == [3 * 3 * 196, 3 * 12 * 57, 3 * 3 * 19]
    assert [plan["chains"] for plan in planned] == [9, 36, 9]
    assert [plan["longest_chain"] for plan in planned] == [196, 57, 19]
    assert not Path("runs").exists()


def test_a_run_asks_what_was_planned() -> None:
    lists = balanced(2, 6, 5) | {"short": balanced(1, 4, 3)["q0"], "long": balanced(3, 12, 9)["q2"]}
    dataset = str(write_folder(Path("uneven"), lists, {"q0f0": "A very much longer title than the others"}))
    designs: list[dict[str, Any]] = [
        {},
        {"window": 7, "step": 3, "windows": "rankgpt", "repeats": 2, "passes": 1},
        {"window": 4, "step": 2, "passes": 2, "depth": 9, "orders": 2, "conditions": "neutral,female"},
    ]
    for number, design in enumerate(designs):
        output = Path(f"run{number}")
        settings = ListwiseSettings.make(dataset=dataset, output=output, permutations=0, **design)
        planned = plan_of(LISTWISE, settings)
        audit(LISTWISE.design(settings, Subject("fake:biased,malformed=0")))
        manifest = json.loads(Path(f"run{number}/manifest.json").read_text())
        # a chain that asks the very same chat again, as passes over a short list may, is answered by its journal
        assert planned["calls"] == manifest["answered"] >= manifest["calls"]
        answered = map(json.loads, Path(f"run{number}/journal.jsonl").read_text().splitlines()[1:])
        lengths = [sum(len(content) for _, content in line["chat"]) for line in answered]
        assert planned["prompt_tokens"] == pytest.approx(planned["calls"] * fmean(lengths) / 4, rel=0.02)


def test_models_are_counted_one_after_the_other_and_rankers_not_at_all() -> None:
    one = plan_of(LISTWISE, ListwiseSettings.make())
    two = plan_of(LISTWISE, ListwiseSettings.make(model=("fake:biased", "bm25", "fake:oracle")))
    for key in ("calls", "prompt_tokens", "completion_tokens", "seconds_at_1s_a_call"):
        assert two[key] == 2 * one[key] > 0
    alone = plan_of(LISTWISE, PlanSettings.make(model=("bm25",)))
    assert (alone["calls"], alone["prompt_tokens"]) == (0, 0)
    assert alone["findable"]["reason"] == "no_model_asked"


PARTITION: dict[str, Any] = {"design": "partition"}


def prospect(queries: int, protected: int, unprotected: int, **given: Any) -> dict[str, Any]:
    """Of models that answer alike every time, or as `alike` says, under one prompt."""
    asked = {"alike": 1.0, "conditions": "neutral", **given}
    (one,) = found(queries, protected, unprotected, **asked)["prospects"]
    return dict(one)


def test_a_plan_says_how_calibrated_audits_end() -> None:
    """Within five points and both Monte Carlo errors, of other draws."""
    design: dict[str, Any] = {"dataset": folder_of(15, 10, 10), "design": "partition", "window": 10}
    asked: dict[str, Any] = {"alike": 0.5, "slots": 1.5}
    planned = prospect(15, 10, 10, odds=0.5, design="partition", window=10, **asked)
    settings = CalibrateSettings.make(seed=7, runs=100, injected=str(log(0.5)), **design, **asked)
    at_odds, fair = calibrate(settings)["injected"]
    for name, row, end in (("disparity", at_odds, "outside"), ("parity", fair, "within")):
        error = hypot(planned[f"{name}_error"], (row[end] * (1 - row[end]) / 100) ** 0.5)
        assert planned[name] == pytest.approx(row[end], abs=0.05 + 2 * error)


def test_a_disparity_is_one_among_the_prompts() -> None:
    one, three = (prospect(12, 6, 6, conditions=names, odds=0.4) for names in ("neutral", None))
    assert three["disparity"] < one["disparity"] and three["parity"] == one["parity"]


def test_more_orders_more_queries_and_less_spread_find_more() -> None:
    asked: dict[str, Any] = {"alike": 0.0, "odds": 0.5}
    designs = [
        prospect(12, 6, 6, orders=1, tau=0.5, **asked), prospect(12, 6, 6, orders=1, **asked),
        prospect(12, 6, 6, orders=3, **asked), prospect(20, 6, 6, orders=3, **asked),
    ]  # fmt: skip
    for worse, better in pairwise(designs):
        assert worse["disparity"] <= better["disparity"] and worse["smallest"] < better["smallest"]
        assert worse["queries_for_parity"] > better["queries_for_parity"] - 3


def test_long_lists_are_simulated_less_often_and_then_fewer_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = prospect(40, 6, 6, odds=0.5)
    assert whole["audits"] == plan.MOST_AUDITS
    monkeypatch.setattr(plan, "COMPARED", 40 * 6 * 3 * 3 * plan.FEWEST_AUDITS // 2)
    some = prospect(40, 6, 6, odds=0.5)
    assert some["audits"] == plan.FEWEST_AUDITS
    assert some["queries_for_parity"] == pytest.approx(whole["queries_for_parity"], rel=0.25)


def test_some_queries_stand_for_very_many_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 40 queries whose titles are alike some are written out, and half played."""
    dataset, strategy = folder_of(40, 4, 4), "pairwise-sort:method=allpairs"
    settings = PlanSettings.make(dataset=dataset, strategy=strategy, alike=0.0)
    whole = plan_of(LISTWISE, settings)
    asked, shown, one_value = list[Chat](), plan.answer_in_shown_order, AuditSimulation.value
    played = list[str]()

    def answer(chat: Chat) -> Completion:
        asked.append(chat)
        return shown(chat)

    def value(self: AuditSimulation, log_odds: float, audit: int) -> Value:
        played.append(self.items.query_id)
        return one_value(self, log_odds, audit)

    monkeypatch.setattr(plan, "answer_in_shown_order", answer)
    monkeypatch.setattr(plan, "MOST_RENDERED", 40 * 56 // 8)
    monkeypatch.setattr(plan, "MOST_AUDITS", 2)
    monkeypatch.setattr(plan, "FEWEST_AUDITS", 2)
    monkeypatch.setattr(plan, "PLAYED_CALLS", 40 * 56)
    monkeypatch.setattr(AuditSimulation, "value", value)
    some = plan_of(LISTWISE, settings)
    assert (len({chat.about["query_id"] for chat in asked}), len(set(played))) == (5, 20)
    assert some["prompt_tokens"] == pytest.approx(whole["prompt_tokens"], rel=0.02)
    assert some["completion_tokens"] == whole["completion_tokens"]


def test_what_cannot_be_found() -> None:
    assert found(4, 10, 10)["reason"] == "too_few_queries"
    assert found(8, 10, 10, **PARTITION, sequential=True)["reason"] == "sequential"
    inside = prospect(8, 10, 10, odds=0.9)
    assert inside["queries_for_disparity"] is None and inside["disparity"] == 0
    given = found(8, 10, 10, initial="given", orders=1)
    assert (given["reason"], given["odds"], given["prospects"]) == ("order_not_random", 0.6, ())
    apart = balanced(3, 4, 0) | {"m": [("m", "male", 1), ("n", "male", 0)]}
    dataset = str(write_folder(Path("apart"), apart))
    apart = plan_of(LISTWISE, PlanSettings.make(dataset=dataset))["findable"]
    assert (apart["reason"], apart["queries"]) == ("no_list_of_both_sides", 0)
    graded = {f"q{q}": [(f"f{q}", "female", 1), (f"m{q}", "male", 0)] for q in range(8)}
    dataset = str(write_folder(Path("graded"), graded))
    apart = plan_of(LISTWISE, PlanSettings.make(dataset=dataset))["findable"]
    assert (apart["reason"], apart["queries"]) == ("no_common_grade", 0)


def test_exposure_ratios_are_expected_on_request() -> None:
    """Of whole lists without relevance: a ranker that prefers nobody reads 1, exposure compresses the others."""
    whole: dict[str, Any] = {"window": 10, "step": 5, "passes": 1, "orders": 1, "alike": 1.0}
    expected = found(6, 5, 5, odds=0.5, expected_ratio=True, **whole)["expected"]
    assert 0.5 < expected["agnostic"] < expected["relevant"] < 1


@pytest.mark.parametrize(
    ("kind", "plan", "settings", "first", "more"),
    [
        (LISTWISE, PlanSettings, ListwiseSettings, {"odds": 0.9}, {"tau": 0.2}),
        (PAIRWISE, PlanPairwiseSettings, PairwiseSettings, {"ratio": 0.9}, {"icc": 0.2}),
    ],
    ids=["listwise", "pairwise"],
)
def test_a_plan_and_its_run_share_a_folder(
    kind: Any, plan: Any, settings: Any, first: dict[str, Any], more: dict[str, Any]
) -> None:
    dataset, model = folder_of(2, 8, 8), "fake:biased,malformed=0"
    before = plan_of(kind, plan.make(dataset=dataset, model=(model,), **first))
    audit(kind.design(settings.make(dataset=dataset), Subject(model)))
    after = plan_of(kind, plan.make(dataset=dataset, model=(model,), **more))
    assert (before["answered"], after["answered"]) == (0, after["calls"])
    assert before["folder"] == after["folder"]


def test_a_backend_of_another_package_says_why_it_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Locked(Counter):
        def ready(self) -> None:
            raise MissingKey("parrots want a key.", "set PARROT_KEY")

    names("backend")
    monkeypatch.setitem(_found["backend"], "locked", Locked)
    plan = plan_of(LISTWISE, ListwiseSettings.make(dataset=folder_of(2, 8, 8), model=("locked:x",)))
    assert plan["unready"] == ["locked:x: parrots want a key: set PARROT_KEY"]
