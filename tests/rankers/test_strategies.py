"""A strategy of someone else's goes through everything that windows do, without a line of the package changed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from llmfair import registry
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.errors import UsageError
from llmfair.nouns import Candidates, Ranking, Steps
from llmfair.rankers.strategies import Ask, Strategy, StrategyOptions, Window, Windows, strategy_of
from tests.cli.command import llmfair, ran, refuses

RUN = Path("run")
SMALL = ("listwise", "--strategy", "toy", "-n", "6", "--orders", "2")
MEASURES = "P@20,ExpRatio,PreferenceOdds"
ASK = (*SMALL, "--measures", MEASURES, "-o", RUN)
ITEMS, CHAINS = 40, 6 * 4 * 2
CALLS = CHAINS * (ITEMS - 1)


class Toy(Strategy):
    """Asks about each neighbouring pair once, from the tail: one pass of a bubble sort."""

    def __init__(self, options: StrategyOptions) -> None:
        self.depth = options.depth

    def one_pass(self, n: int) -> Sequence[Window]:
        return [(start, start + 2) for start in range(min(n, self.depth or n) - 2, -1, -1)]

    def steps(self, candidates: Candidates, ask: Ask) -> Steps[Ranking]:
        order = list(candidates.documents)
        for start, end in self.one_pass(len(order)):
            order[start:end] = yield from ask(order[start:end], start)
        return Ranking(candidates.query.query_id, tuple(document.doc_id for document in order))


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.names("strategy")  # ours are found once, and must not be forgotten with the toy
    monkeypatch.setitem(registry._found, "strategy", dict(registry._found["strategy"]))
    registry.register("strategy", "toy")(Toy)


def test_windows_is_made_from_what_the_settings_say() -> None:
    given = ListwiseSettings.make(window=6, step=3, passes=2, depth=30, windows="rankgpt")
    assert strategy_of(given.ordering, vars(given)) == Windows(6, 3, 2, 30, "rankgpt")


def test_an_unknown_strategy_is_told_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no strategy 'window'. Did you mean 'windows'") as raised:
        ListwiseSettings.make(strategy="window")
    assert "toy, windows" in raised.value.hint
    for command in (("listwise", "-m", "bm25"), ("plan", "listwise"), ("calibrate", "listwise")):
        refuses("Did you mean 'toy'?", *command, "--strategy", "tyo")


def test_windows_by_name_are_the_run_that_they_are_without() -> None:
    plain, named = (
        llmfair("listwise", *flags, "--dry-run", "--json").json for flags in ((), ("--strategy", "windows"))
    )
    assert plain == named and "strategy" not in plain
    folders = {
        plain["folder"],
        llmfair("listwise", "--strategy", "toy", "--dry-run", "--json").json["folder"],
    }
    assert len(folders) == 2


def test_it_is_planned_and_counted() -> None:
    dry = llmfair(*SMALL, "--dry-run")
    assert dry.code == 0 and f"{CALLS:,} calls" in dry.out and "strategy toy" in dry.out
    assert "--strategy toy" in dry.out.split("first prompt:")[1]
    planned = llmfair("plan", *SMALL, "--json").json
    assert (planned["calls"], planned["longest_chain"], planned["strategy"]) == (CALLS, ITEMS - 1, "toy")
    assert [planned[name] for name in ("window", "step", "passes", "windows")] == [None] * 4
    assert planned["prompt_tokens"] > 0 and planned["never_ranked"] == []
    assert planned["reach"]["ExpRatio"]["low"] < 1 < planned["reach"]["ExpRatio"]["high"]
    assert planned["other_windows"] is None
    assert llmfair("plan", *SMALL, "--depth", "10", "--json").json["calls"] == CHAINS * 9
    table = llmfair("plan", *SMALL)
    assert table.code == 0 and "None" not in table.out
    ran("prompts", "render", *SMALL[:3], "--json")
    calibrated = llmfair("calibrate", *SMALL, "--runs", "2")
    assert calibrated.code == 0 and "strategy toy, 2 random" in calibrated.out, calibrated.err


@pytest.mark.whole
def test_it_runs_resumes_replays_and_is_scored() -> None:
    results = ran(*ASK, "--json").json
    assert results["design"]["strategy"] == "toy" and results["design"]["window"] is None
    assert results["design"]["calls"] == CALLS
    assert sum(condition["windows"] for condition in results["answers"].values()) == CALLS
    ran("runs", "check", "run", "--runs-dir", ".")

    journal = RUN / "journal.jsonl"
    whole, kept = journal.read_bytes(), (RUN / "results.json").read_bytes()
    lines = whole.splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[: len(lines) // 2]))
    manifest = json.loads((RUN / "manifest.json").read_text())
    assert manifest["flags"]["strategy"] == ["toy"] and manifest["settings"]["strategy"] == "toy"
    manifest["journal_answers"] = 0  # else the loss is told
    (RUN / "manifest.json").write_text(json.dumps(manifest))
    again = ran(*ASK, "-v")
    assert "strategy toy" in again.out and "None" not in again.out
    assert (RUN / "results.json").read_bytes() == kept
    assert len(journal.read_bytes().splitlines()) == len(lines)
    checked = llmfair("runs", "check", "run", "--runs-dir", ".")
    assert checked.code == 0, checked.out + checked.err

    scored = ran("score", RUN, "--measures", "P@20,ExpRatio", "--json")
    of_run, of_score = (ratios_of(found) for found in (results, scored.json))
    assert len(of_run) == 5 and {
        condition: of_score[condition] for condition in of_run if condition != "initial"
    } == {condition: ratio for condition, ratio in of_run.items() if condition != "initial"}


def ratios_of(results: dict[str, Any]) -> dict[str, tuple[float, float, float]]:
    """The exposure ratio of each condition."""
    return {
        row["condition"]: (row["value"], row["low"], row["high"])
        for row in results["rows"]
        if row["measure"] == "ExpRatio" and row["query_id"] == "all" and " vs " not in row["condition"]
    }


def test_another_strategy_conflicts_with_the_folder() -> None:
    ran("listwise", "--strategy", "toy", "-n", "2", "--orders", "1", "-o", RUN)
    refuses("strategy", "listwise", "-n", "2", "--orders", "1", "-o", RUN, code=1)


def test_a_study_of_windows_needs_windows() -> None:
    refuses("toy has no windows to study", "study", "windows", "--strategy", "toy", "-n", "2")
