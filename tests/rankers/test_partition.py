"""Lists cut into windows that are asked at once: every item shown once, no question waiting for another's answer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llmfair as api
from llmfair.audits.listwise.design import make_design
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.nouns import Chat, Completion, Finish, Request
from llmfair.rankers.strategies import Partition
from tests.batch_server import unwaiting as unwaiting
from tests.cli.command import kept, llmfair, ran, refuses
from tests.cli.long_commands import KILL, PARTITION, audit, stop_again_and_again
from tests.folders import balanced, write_folder
from tests.rankers.test_listwise import RANKER, numbered, rendered

PARTITIONED = replace(RANKER, strategy=Partition(4))


@pytest.mark.parametrize(
    ("n", "sizes"), [(40, [20, 20]), (23, [11, 12]), (20, [20]), (61, [15, 15, 15, 16]), (2, [2]), (1, [])]
)
def test_windows_hold_every_item_once_and_are_alike_in_size(n: int, sizes: list[int]) -> None:
    windows = Partition(20).one_pass(n)
    assert [end - start for start, end in windows] == sizes
    assert [rank for start, end in windows for rank in range(start, end)] == [*range(n if n > 1 else 0)]


def answered(chats: list[Chat], said: list[str]) -> list[Completion]:
    return [Completion(text, Finish.STOP) for text in said]


def test_all_windows_are_asked_at_once_and_only_bad_answers_again() -> None:
    ranker = replace(PARTITIONED, on_bad_answer="retry:2")
    steps = ranker.steps(numbered(11))
    chats = list(next(steps))
    assert [len(chat.about["doc_ids"]) for chat in chats] == [3, 4, 4]
    good = rendered([2, 0, 1])
    again = list(steps.send(answered(chats, [good, "I cannot", "[2] > [1] > [4] > [3]"])))
    assert [chat.about["doc_ids"] for chat in again] == [chats[1].about["doc_ids"]]
    with pytest.raises(StopIteration) as ended:
        steps.send(answered(again, ["[4] > [3] > [1] > [2]"]))
    ranked = ended.value.value
    assert ranked.ranking is None
    assert [window.draw for window in ranked.windows] == [0, 100, 0]
    shown = [doc_id for window in ranked.windows for doc_id in window.shown]
    assert sorted(shown, key=int) == [str(n) for n in range(11)]
    assert [encounter.ranked for encounter in ranked.encounters] == [
        ("2", "0", "1"), ("6", "5", "3", "4"), ("8", "7", "10", "9"),
    ]  # fmt: skip


def test_it_takes_a_call_a_window_and_the_time_of_one() -> None:
    settings = ListwiseSettings.make(
        design="partition", dataset=str(write_folder(Path("lists"), balanced(3, 25, 25)))
    )
    design = make_design(settings)
    assert (design.calls, design.longest) == (3 * 3 * 3, 1)  # queries × windows of at most 20 × prompts
    assert [condition.name for condition in design.prompts] == ["neutral", "male", "female"]
    other = make_design(ListwiseSettings.make(dataset="lists"))
    assert design.identity() != other.identity() and "design" not in other.identity()


@pytest.mark.whole
def test_a_run_gives_odds_and_says_what_it_has_not() -> None:
    found = llmfair("listwise", "--design", "partition", "-m", "fake:biased,malformed=0", "-o", "run")
    assert found.code == 0 and "nothing is ranked, so there is no P@20, nDCG or ExpRatio" in found.out
    results = kept("results", "run")
    assert results["shown"] == ["PreferenceOdds", "SlotOdds", "RelevanceOdds"] and results["reach"] == {}
    finding = results["findings"]["neutral"]
    assert finding["odds"]["n"] == 8 and finding["useful"]["measure"] == "RelevanceOdds"
    assert not [*Path("run/rankings").glob("*")]
    assert kept("manifest", "run")["calls"] == 48
    ran("runs", "check", "run")
    assert "female vs male" in {row["condition"] for row in results["rows"]}
    Path("run/results.json").touch()  # else nothing is measured again
    again = llmfair("listwise", "--design", "partition", "-m", "fake:biased,malformed=0", "-o", "run")
    assert again.out == found.out and kept("manifest", "run")["calls"] == 0
    ran("report", "run")
    assert Path("run/report.html").is_file()


@pytest.mark.whole
def test_a_partition_of_no_use_is_held_against_chance() -> None:
    """At a wide band, that noise prefers nobody would be parity."""
    found = llmfair(
        "listwise", "--design", "partition", "-m", "fake:random,malformed=0", "--band", "0.1..10", "-o", "run"
    )
    said = " ".join(found.out.split())
    assert "ahead no more often than chance" in said and "its initial ranking" not in said
    assert kept("results", "run")["findings"]["neutral"]["reason"] == "no_better_than_chance"


@pytest.mark.parametrize(
    "flags",
    [("--initial", "given"), ("--depth", "10"), ("--strategy", "windows", "--initial", "deltr")],
)
def test_what_only_rankings_have_is_refused(flags: tuple[str, ...]) -> None:
    refuses("--design partition makes no ranking", "listwise", "--design", "partition", *flags)


def test_what_a_partition_has_no_use_for_neither_names_it_nor_is_measured() -> None:
    folder = str(write_folder(Path("lists"), balanced(2, 6, 6)))
    usual = make_design(ListwiseSettings.make(design="partition", dataset=folder))
    other = make_design(ListwiseSettings.make(design="partition", dataset=folder, step=3, passes=2))
    assert usual.identity() == other.identity()
    refuses("so it has no ExpRatio", "listwise", "--design", "partition", "--require", "ExpRatio=0.9..1.1")


@pytest.mark.whole
def test_killed_it_goes_on(tmp_path: Path) -> None:
    assert len(stop_again_and_again(audit(PARTITION), [KILL], 1, tmp_path)) == 1


class SameAnswer:
    """A model of temperature 0 with a taste for every item, whatever else is shown; protected ones by odds of 0.6."""

    name = "same answer"

    async def complete(self, request: Request) -> str:
        about = request.chat.about
        tastes = [
            np.random.default_rng([*doc_id.encode()]).gumbel()
            + np.log(0.6) * (side == "protected")
            + 2.0 * grade
            for doc_id, side, grade in zip(about["doc_ids"], about["sides"], about["relevance"], strict=True)
        ]
        best_first = sorted(range(len(tastes)), key=tastes.__getitem__, reverse=True)
        return " > ".join(f"[{place + 1}]" for place in best_first)


@pytest.mark.whole
def test_lists_partitions_and_pairs_of_one_model_agree() -> None:
    """A model that answers alike every time has the same odds however it is asked."""
    folder = str(write_folder(Path("lists"), balanced(12, 16, 16)))
    common: dict[str, Any] = {"model": SameAnswer(), "report": False, "no_cache": True}
    alone: dict[str, Any] = {"conditions": "neutral", "repeat": False, "passes": 1, "step": 5, "window": 10}
    lists = api.audit_listwise(folder, **alone, orders=4, output="lists-run", **common)
    parts = api.audit_listwise(
        folder, design="partition", window=10, conditions="neutral", orders=4, output="parts", **common
    )
    pairs = api.audit_pairwise(folder, conditions="irrelevant", pairs=60, output="pairs", **common)
    found = {
        "lists": kept("results", "lists-run")["findings"]["neutral"]["odds"],
        "partition": kept("results", "parts")["findings"]["neutral"]["odds"],
    }
    row = pairs["AdjustedOdds", "irrelevant"]
    found["pairs"] = {"value": row.value, "low": row.low, "high": row.high}
    for odds in found.values():
        assert odds["low"] < 0.6 < odds["high"], json.dumps(found)
        assert all(other["low"] < odds["value"] < other["high"] for other in found.values()), found
    assert lists.folder and parts.folder


ROUNDS = ("listwise", "-d", "rounds", "--design", "partition", "--sequential", "--conditions", "neutral")


def rounds_of(queries: int) -> None:
    write_folder(Path("rounds"), balanced(queries, 20, 20))


def test_one_window_alone_is_the_question_that_it_is_among_all() -> None:
    rounds_of(2)
    settings = ListwiseSettings.make(design="partition", dataset="rounds", orders=2, conditions="neutral")
    whole, alone = make_design(settings), make_design(replace(settings, sequential=True))
    asked = {chat.messages for program in whole.programs() for chat in next(program.start())}
    begun = [program.start() for program in alone.programs()]
    single = [list(next(steps)) for steps in begun]
    assert [len(chats) for chats in single] == [1] * 8 and {chat.messages for (chat,) in single} == asked
    assert whole.calls == alone.calls == 8 and whole.identity() != alone.identity()
    in_rounds = [probe.candidates.query.query_id for probe in alone.in_rounds(alone.prompts[0])]
    assert all(len({*in_rounds[first : first + 2]}) == 2 for first in range(0, 8, 2))


def test_it_stops_at_the_same_window_whatever_happens_and_asks_nothing_twice() -> None:
    rounds_of(12)
    asked = (*ROUNDS, "--orders", "3", "-m", "fake:biased,listwise=-2,malformed=0")
    calm = ran(*asked, "-o", "calm/run", "-j", "7", "-v")
    found = kept("results", "calm/run")
    stopped = found["stopping"]["neutral"]
    assert stopped["decision"] == "below" and stopped["cap"] == 72 and stopped["windows"] < 50
    assert found["findings"]["neutral"]["conclusion"] == "outside"
    assert "sign_flip" not in found["findings"]["neutral"]
    assert (
        found["answers"]["neutral"]["windows"]
        == stopped["windows"]
        <= kept("manifest", "calm/run")["calls"]
        < 72
    )
    assert f"after {stopped['windows']} windows the odds are below 0.8" in calm.out
    assert "at most 72 calls" in calm.out + calm.err
    ran("runs", "check", "calm/run")
    broken = llmfair(*asked, "-o", "broken/run", "--max-calls", "15", "-j", "2")
    assert broken.code == 3 and kept("results", "broken/run")["status"] == "incomplete"
    ran(*asked, "-o", "broken/run", "-j", "1")
    assert kept("results", "broken/run") == found
    journal = Path("broken/run/journal.jsonl").read_bytes()
    Path("broken/run/results.json").unlink()  # so that it is followed through again
    ran(*asked, "-o", "broken/run")
    assert Path("broken/run/journal.jsonl").read_bytes() == journal
    assert kept("results", "broken/run") == found


def test_what_is_not_settled_is_not_concluded() -> None:
    rounds_of(6)
    ran(*ROUNDS, "-m", "fake:biased,malformed=0", "-o", "run")
    found = kept("results", "run")
    assert found["stopping"]["neutral"]["decision"] is None and found["verdict"]["status"] == "inconclusive"
    assert found["stopping"]["neutral"]["windows"] == 12
    assert "at most 12 calls" in llmfair(*ROUNDS, "--dry-run").out
