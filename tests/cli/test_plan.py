"""`llmfair plan`: what a person reads before anything is spent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import llmfair, ran

PLAN = ("plan", "listwise")


def test_it_asks_nothing_and_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("a connection")

    monkeypatch.setattr("socket.socket.connect", refuse)
    ran(*PLAN, "-m", "openai:gpt-4o-mini", "--price-in", "0.15", "--price-out", "0.6")


@pytest.mark.parametrize(
    ("kind", "effect", "calls", "findable", "keys"),
    [
        ("listwise", "--odds", 864, {"odds", "smallest", "other_design"}, {"cost", "seconds", "reach", "other_windows", "seed", "render"}),
        ("pairwise", "--ratio", 1760, {"relevant", "irrelevant"}, {"cost", "seconds", "noise_calls", "prompt_tokens", "design"}),
    ],
)  # fmt: skip
def test_json_has_it_all_and_a_dry_run_begins_in_the_same_words(
    kind: str, effect: str, calls: int, findable: set[str], keys: set[str]
) -> None:
    planned = llmfair("plan", kind, effect, "0.9", "--json").json
    assert (planned["schema"], planned["calls"]) == (1, calls)
    assert planned["findable"].keys() >= findable and planned.keys() >= keys
    if kind == "listwise":
        assert planned["findable"]["odds"] == 0.9
    told = llmfair(kind, "--dry-run").out.splitlines()
    assert told[0] == llmfair("plan", kind, effect, "0.9").out.splitlines()[0]
    assert told[-1] == "Nothing was asked." and any(f"llmfair plan {kind}" in line for line in told)
    assert llmfair(kind, "--dry-run", "--json").json["calls"] == calls and not Path("runs").exists()


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
    assert (pairs["pairs"], pairs["findable"]["relevant"]["icc"]) == (7, 0.2)
