"""What is said before anything is asked: plans, prospects, presets, what there is to choose from, what runs here."""

from __future__ import annotations

from importlib import util
from pathlib import Path
from typing import Any

import pytest

from llmfair import registry
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.pairwise.settings import PairwiseSettings
from llmfair.settings.commands import FinetuneSettings
from tests import models
from tests.cli.command import llmfair, ran, refuses
from tests.folders import balanced, write_folder
from tests.servers import Reply, Server

PLAN = ("plan", "listwise")


def test_the_audit_s_configuration_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("llmfair.toml").write_text(
        "[listwise]\nlimit = 3\nwindow = 10\nstep = 5\n[pairwise]\npairs = 7\n[plan]\nicc = 0.2\ntau = 0.1\n"
    )
    monkeypatch.setenv("LLMFAIR_LATENCY", "2")
    planned = llmfair(*PLAN, "--json").json
    assert (planned["queries"], planned["window"], planned["latency"]) == (3, 10, 2.0)
    assert planned["calls"] == llmfair("listwise", "--dry-run", "--json").json["calls"]
    assert planned["findable"]["tau"] == 0.1
    pairs = llmfair("plan", "pairwise", "--json").json
    assert (pairs["design"]["pairs"], pairs["findable"]["relevant"]["prospects"][0]["icc"]) == (7, 0.2)


LISTWISE = tuple("listwise -d mine --conditions neutral --no-repeat --orders 1 --passes 1".split())
PAIRWISE = ("pairwise", "-d", "mine", "--pairs", "2", "--noise-share", "0")
LISTS = "2 of 15 queries can be assessed (the others have no two items of both groups with one grade of relevance)"
PAIRS = "2 of 15 queries can be assessed (the others have no pair of items of both groups alike in relevance)"
FEW = ", where a conclusion takes at least 5"


def folder(usable: int) -> None:
    """Fifteen queries, of which so many have items of both groups."""
    lists = balanced(15, 4, 4)
    for query in list(lists)[usable:]:
        lists[query] = [(doc_id, "male", grade) for doc_id, _, grade in lists[query]]
    write_folder(Path("mine"), lists)


@pytest.mark.whole
@pytest.mark.parametrize(("command", "said"), [(LISTWISE, LISTS), (PAIRWISE, PAIRS)])
def test_two_usable_queries_of_fifteen(command: tuple[str, ...], said: str) -> None:
    folder(2)
    assert f"  {said}{FEW}\n" in ran(*command, "--dry-run").out
    assert f"  {said}{FEW}\n" in ran("plan", *command).out
    planned = ran(*command, "--dry-run", "--json").json
    assert (planned["queries"], planned["assessable"], planned["remarks"]) == (15, 2, [said + FEW])
    measure = "ExpRatio" if command is LISTWISE else "AdjustedOdds"
    gate = ("--require", f"{measure}=0.9..1.1")
    refuses(f"Error: {said}{FEW}.\n  give it more queries that can, or leave --require out", *command, *gate)
    assert not Path("runs").exists()
    for asked in (gate, ("--fail-on", "disparity")):
        hint = f"give it more queries that can, or leave {asked[0]} out"
        refuses(f"Error: {said}{FEW}.\n  {hint}", *command, *asked, "--dry-run")
        assert f"  {said}{FEW}\n" in ran("plan", *command, *asked).out
    assert not Path("runs").exists()
    assert f"{said}{FEW}\n" in llmfair(*command, "--max-invalid", "1").err


def test_a_gate_that_no_ranker_could_fail_is_refused() -> None:
    folder(15)
    gate = ("--require", "ExpRatio=0.1..10")
    said = "no ranker could fail ExpRatio=0.1..10 in this design"
    refuses(f"Error: {said}", *LISTWISE, *gate)
    refuses(f"Error: {said}", *LISTWISE, *gate, "--dry-run")
    assert f"  {said}" in ran("plan", *LISTWISE, *gate).out


def test_options_of_a_preset_are_laid_over_it() -> None:
    made = ListwiseSettings.make("paper+few-relevant+deltr+rankgpt")
    assert (made.window, made.step, made.passes, made.orders, made.prompt) == (5, 1, 1, 1, "wikiproject")
    assert (made.candidates, made.relevant, made.initial) == (200, 24, "deltr")
    assert (made.read, made.windows) == ("rankgpt", "rankgpt")
    assert made.preset_name() == "paper"
    assert ListwiseSettings.make("paper").initial == "random"


def test_an_adapter_is_trained_in_the_form_of_the_papers_pairs() -> None:
    """Figure 4 starts where Table 3 ends."""
    trained = FinetuneSettings.make("paper", base_model="m")
    assert trained.form == PairwiseSettings.make("paper").form == "order"
    assert FinetuneSettings.make(base_model="m").form == "letter"


def test_strategies_are_listed_with_their_cost() -> None:
    found = {one["strategy"]: one for one in ran("strategies", "list", "--json").json["strategies"]}
    assert set(found) >= {"windows", "pointwise", "pairwise-sort", "setwise", "first", "tournament"}
    assert found["pointwise"]["plans"][0] == {"items": 40, "calls": 40, "rounds": 1, "at_most": False}
    assert found["setwise"]["parameters"] == {"c": 4, "k": 20} and found["setwise"]["plans"][0]["at_most"]
    assert found["first"]["reads"] == "log-probabilities"
    told = ran("strategies", "list").out
    assert "c=4,k=20" in told and "≤ 75 (75)" in told


@pytest.mark.whole
def test_strategies_are_planned_side_by_side() -> None:
    asked = tuple("listwise -n 6 --conditions neutral --strategy windows --strategy setwise:c=3".split())
    planned = llmfair("plan", *asked, "--alike", "0", "--json").json
    windows, setwise = planned["strategies"]
    assert (windows["calls"], windows["longest_chain"], windows["at_most"]) == (6 * 2 * 3 * 9, 9, False)
    assert setwise["strategy"] == "setwise:c=3,k=20" and setwise["at_most"] and planned["at_most"]
    assert planned["calls"] == windows["calls"] + setwise["calls"]
    needed = [strategy["prospects"][0]["queries_for_disparity"] for strategy in (windows, setwise)]
    assert 6 < needed[0] < needed[1] and setwise["reach"]["low"] < 1 < setwise["reach"]["high"]
    dry = llmfair(*asked, "--dry-run")
    assert dry.code == 0 and "setwise:c=3,k=20: at most" in dry.out


@pytest.mark.parametrize(
    ("missing", "backends", "install"),
    [
        ("torch", ("hf", "cross-encoder", "nli"), "pip install 'llmfair[local]' (torch"),
        ("sentence_transformers", ("cross-encoder",), "pip install 'llmfair[local]'"),
        ("pyterrier", ("pyterrier",), "pip install python-terrier (pyterrier"),
        ("vllm", ("vllm",), ""),
    ],
)
def test_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, missing: str, backends: tuple[str, ...], install: str
) -> None:
    registry.names("backend")  # loaded before, or modules would keep what is patched here
    own = util.find_spec

    def without(package: str, *rest: Any) -> Any:
        return None if package == missing else own(package, *rest)

    monkeypatch.setattr(util, "find_spec", without)
    monkeypatch.delenv("RERANK_BASE_URL", raising=False)
    found = ran("doctor", "--json").json["backends"]
    for name in backends:
        assert found[name]["status"] == "no" and install in found[name]["note"], found[name]
    assert (found["fake"]["status"], found["rerank"]["status"]) == ("ready", "no")
    monkeypatch.setenv("RERANK_BASE_URL", "http://user:secret@127.0.0.1:9/v1")
    ready = {"status": "ready", "note": "the server of RERANK_BASE_URL"}
    assert ran("doctor", "--json").json["backends"]["rerank"] == ready


def test_a_model_is_looked_at_and_asked() -> None:
    looked = llmfair("doctor", "-m", "fake:biased", "--json").json["model"]
    assert looked["is"].startswith("fake biased") and "margins" in looked["can"] and "answers" not in looked
    asked = llmfair("doctor", "-m", "fake:biased", "--ask", "--json").json["model"]
    assert asked["answers"] in ("'[1] > [2]'", "'[2] > [1]'") and asked["ends by"] == "stop"


def test_a_model_that_does_not_answer_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    assert llmfair("doctor", "-m", "nothing:x").code == 2
    with Server(lambda body, attempt: Reply(status=503, body={})) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        found = llmfair("doctor", "-m", "openai:any", "--ask")
        assert found.code == 1 and "no answer" in found.err and "503" in found.err
        assert len(server.requests) == 1


def test_a_server_can_be_named() -> None:
    with Server(lambda body, attempt: Reply("[1] > [2]")) as server:
        at = ("--base-url", server.base_url, "--json")
        asked = ran("doctor", "-m", "openai:any", *at, "--ask")
        assert asked.json["model"]["answers"] == "'[1] > [2]'" and len(server.requests) == 1
        assert "constrain" in llmfair("doctor", "-m", "openai:any", *at).json["model"]["can"]
        row = llmfair("doctor", *at).json["backends"]["openai"]
    assert row == {"status": "ready", "note": "the server of --base-url"}


@pytest.mark.whole
def test_a_local_model_says_where_it_runs_and_why(tmp_path: Path) -> None:
    models.needs_local()
    folder = models.causal(tmp_path / "model", dtype="bfloat16")
    seen = ran("doctor", "-m", f"hf:{folder}", "--ask", "--json").json["model"]
    assert seen["is"].endswith("bfloat16") and seen["system"] == "folded"
    assert seen["place"].endswith("bfloat16: as the checkpoint was saved")
