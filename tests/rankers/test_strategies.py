"""A strategy of someone else's goes through everything that windows do, without a line of the package changed."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfair import registry
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.runs.exhibits import all_answers
from llmfair.errors import UsageError
from llmfair.metrics.base import number, whole
from llmfair.nouns import Candidates, Chat, Completion, Finish, Ranking, Scores, Steps
from llmfair.rankers.parameters import Declared, read_parameters, spelled
from llmfair.rankers.strategies import Ask, Strategy, StrategyOptions, Window, Windows, strategy_of
from llmfair.rundir import RunDir
from tests.cli.command import kept, llmfair, ran, refuses
from tests.rankers.asking import as_shown, driven, made, order_of, perfect, probe_of, ranker_of, said
from tests.shared import mockllm

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
    assert llmfair("plan", *SMALL, "--depth", "10", "--json").json["calls"] == CHAINS * 9
    table = llmfair("plan", *SMALL)
    assert table.code == 0 and "None" not in table.out
    ran("prompts", "render", *SMALL[:3], "--json")
    calibrated = llmfair("calibrate", *SMALL, "--runs", "2")
    assert calibrated.code == 0 and "strategy toy, 2 random" in calibrated.out, calibrated.err


@pytest.mark.whole
def test_it_runs_resumes_and_replays() -> None:
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


def test_another_strategy_conflicts_with_the_folder() -> None:
    ran("listwise", "--strategy", "toy", "-n", "2", "--orders", "1", "-o", RUN)
    refuses("strategy", "listwise", "-n", "2", "--orders", "1", "-o", RUN, code=1)


def test_a_study_of_windows_needs_windows() -> None:
    refuses("by one strategy that has windows", "study", "windows", "--strategy", "toy", "-n", "2")


# What holds of every strategy there is


NAMES = [
    name
    for name in registry.names("strategy")
    if not isinstance(made(name).question.expects(2), Scores)  # put to rankers, which answer with numbers
]

HEAPS = ("pairwise-sort", "setwise")


def needs_margins(name: str) -> bool:
    return made(name).question.margins == "needed"


@pytest.mark.parametrize("name", NAMES)
@given(st.integers(1, 24), st.randoms(use_true_random=False), st.booleans())
def test_any_answers_give_a_permutation(name: str, n: int, chance: random.Random, margins: bool) -> None:
    def answer(chat: Chat) -> Completion:
        if chance.random() < 0.1:
            damaged = ("", "Sorry, I cannot.", "[99] > [1] > [1]", "Passage Z", "A", "yes and no", "[2], [1]")
            return Completion(chance.choice(damaged), chance.choice([Finish.STOP, Finish.LENGTH]))
        return said(chat, lambda grades: chance.sample(range(len(grades)), len(grades)), margins)

    strategy = made(name)
    ranked, told = driven(ranker_of(strategy).steps(probe_of([0] * n)), answer)
    assert sorted(order_of(ranked)) == list(range(n))
    plan = strategy.plan(n)
    assert len(told.asked) <= plan.calls and len(told.rounds) <= plan.rounds
    shown = [set(one.shown) for one in ranked.encounters]
    assert all({*one.ranked, *one.behind} <= {*one.shown} or one.scores for one in ranked.encounters), shown


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [2, 7, 20, 41])
def test_as_many_calls_as_planned(name: str, n: int) -> None:
    strategy, margins = made(name), needs_margins(name)
    for chosen in (perfect, as_shown):
        grades = random.Random(n).sample(range(n), n)
        _, told = driven(
            ranker_of(strategy).steps(probe_of(grades)), partial(said, chosen=chosen, margins=margins)
        )
        plan = strategy.plan(n)
        assert (len(told.asked) == plan.calls) >= plan.exact and len(told.asked) <= plan.calls
        assert (len(told.rounds) == plan.rounds) >= plan.exact and len(told.rounds) <= plan.rounds


@pytest.mark.parametrize(
    ("spec", "k"),
    [
        ("windows", 20),
        ("first", 20),
        ("pointwise", 40),
        ("setwise:k=10", 10),
        ("pairwise-sort:k=10", 10),
        ("pairwise-sort:method=allpairs", 40),
    ],
)
def test_a_perfect_model_gives_the_perfect_top(spec: str, k: int) -> None:
    strategy = made(spec, passes=3)
    margins = strategy.question.margins == "needed" or spec == "pointwise"
    grades = random.Random(3).sample(range(40), 40)
    ranked, _ = driven(ranker_of(strategy).steps(probe_of(grades)), partial(said, margins=margins))
    assert [grades[item] for item in order_of(ranked)[:k]] == list(range(39, 39 - k, -1))


def test_a_perfect_model_sends_the_best_to_every_stage_of_a_tournament() -> None:
    """Of 40, groups of 20 send on ten each, and then the best 10, 5, 3, 2 and 1 of all: the top up to order within."""
    grades = random.Random(3).sample(range(40), 40)
    ranked, _ = driven(ranker_of(made("tournament")).steps(probe_of(grades)), said)
    top = [grades[item] for item in order_of(ranked)]
    for k in (1, 2, 3, 5, 10):
        assert {*top[:k]} == {*range(40 - k, 40)}


@pytest.mark.parametrize("name", NAMES)
def test_a_model_that_sees_no_difference_leaves_the_documented_order(name: str) -> None:
    """The order shown, the first label or yes to all: the initial ranking, but that a heap's next is its last item."""
    ranked, _ = driven(
        ranker_of(made(f"{name}:k=4" if name in HEAPS else name)).steps(probe_of([0] * 10)),
        partial(said, chosen=as_shown, margins=needs_margins(name)),
    )
    if name == "tournament":  # the first of random groups advance: who they are, is in its seed
        again, _ = driven(ranker_of(made(name)).steps(probe_of([0] * 10)), partial(said, chosen=as_shown))
        assert order_of(ranked) == order_of(again)
    else:
        assert order_of(ranked) == ([0, 9, 8, 7, 1, 2, 3, 4, 5, 6] if name in HEAPS else [*range(10)])


# Strategies through the whole command


MODEL = ("-m", "fake:biased,listwise=-0.7,malformed=0.02")
FEW = ("-n", "6", "--conditions", "neutral", "--no-repeat", "--orders", "2")
SHOWN = ("windows", "pointwise", "pairwise-sort", "setwise", "first", "tournament")
STRATEGIES = tuple(word for name in SHOWN for word in ("--strategy", name))
ONCE = ("-n", "6", "--no-repeat", "--orders", "1")
NEUTRAL = ("--conditions", "neutral")


@pytest.mark.whole
@pytest.mark.parametrize("name", SHOWN)
def test_it_is_planned_run_checked_and_scored(name: str) -> None:
    asked = ("listwise", *MODEL, *FEW, "--strategy", name, "-o", "run")
    planned = llmfair(*asked, "--dry-run", "--json").json
    results = ran(*asked, "--json").json
    made = sum(condition["windows"] for condition in results["answers"].values())
    assert made <= planned["calls"] and (made == planned["calls"] or planned["at_most"])
    assert results["design"].get("strategy", "windows").partition(":")[0] == name
    odds = results["findings"]["neutral"]["odds"]
    assert odds["n"] == 6 and odds["comparisons"] >= 20
    ran("runs", "check", "run", "--runs-dir", ".")
    ran("score", "run")


@pytest.mark.whole
def test_several_strategies_are_runs_of_their_own_side_by_side() -> None:
    asked = ("listwise", *MODEL, *FEW, "--strategy", "windows", "--strategy", "setwise:c=3")
    found = llmfair(*asked, "--json").json
    assert [one["design"].get("strategy") for one in found["runs"]] == [None, "setwise:c=3,k=20"]
    compared = found["comparison"]
    assert [one["name"].rpartition(" ")[2] for one in compared["runs"]][1] == "setwise:c=3,k=20"
    rows = {row["measure"]: row for row in compared["rows"]}
    assert rows["PreferenceOdds"]["low"] is not None and rows["PreferenceOdds"]["headline"]
    ratio = rows["ExpRatio(control=order)"]
    assert ratio["low"] is None and ratio["reason"] in ("other_design", "other_reach")
    assert "odds of answers" in compared["verdict"]["sentence"]
    refuses("several runs", *asked, "-o", "one")
    refuses("names none, or one twice", "listwise", "--strategy", "first", "--strategy", "first")


@pytest.mark.whole
def test_designs_that_reach_alike_do_not_compare_by_exposure() -> None:
    for strategy, folder in (("windows", "one"), ("first", "other")):
        ran("listwise", *MODEL, *FEW, "--strategy", strategy, "-o", folder)
    compared = llmfair("compare", "one", "other", "--json").json
    (row,) = [row for row in compared["rows"] if row["measure"].startswith("ExpRatio")]
    assert row["reason"] == "other_design" and row["p"] is None
    told = llmfair("compare", "one", "other", "-v").out
    assert "since exposure ratios of different designs do not compare" in " ".join(told.split())


@pytest.mark.whole
def test_answers_are_read_as_asked() -> None:
    for read in ("text", "margin"):
        ran("listwise", *MODEL, *FEW, "--strategy", "pointwise", "--answers", read, "-o", read)
        assert kept("results", read)["design"].get("answers") == (read if read == "margin" else None)
        row = json.loads(Path(read, "journal.jsonl").read_text().splitlines()[1])
        assert bool(row.get("logprobs")) == (read == "margin")
    refuses("reads no log-probabilities", "listwise", "--answers", "margin", "-n", "1")


HEADER = "| model | nDCG@20 [95 %] | odds of answers [95 %] | verdict | calls | tokens | seconds |"


@pytest.mark.whole
def test_a_report_has_all_strategies_in_one_table() -> None:
    """A simulated model counts no tokens, and none are made up."""
    ran("listwise", "-m", "fake:biased,listwise=-0.7,malformed=0", *ONCE, *NEUTRAL, *STRATEGIES)
    rows = table_of_runs()
    assert all(row.split(" | ")[-2] == "" for row in rows.values())


@pytest.mark.whole
def test_strategies_stand_side_by_side_under_one_prompt() -> None:
    """Each run's verdict may speak of another prompt: then it names it."""
    model = ("-m", "fake:biased,listwise=-0.5,prompt=1.5,malformed=0")
    for name in ("windows", "pointwise"):
        asked = (*ONCE, "--conditions", "neutral,male", "--strategy", name, "-o", name, "--no-report")
        ran("listwise", *model, *asked)
    table = next(
        part
        for part in ran("report", "windows", "pointwise", "--format", "md").out.split("\n\n")
        if HEADER in part
    )
    for name, row in zip(("windows", "pointwise"), table.splitlines()[2:], strict=True):
        results = kept("results", name)
        (odds,) = [
            one["value"]
            for one in results["rows"]
            if (one["measure"], one["condition"]) == ("PreferenceOdds", "neutral")
        ]
        assert f"| {odds:.3f} [" in row
        assert (results["verdict"]["condition"] == "male") == ("(male) |" in row)
    assert "(male) |" in table


@pytest.mark.whole
def test_a_server_that_only_ranks_has_its_row_for_every_strategy() -> None:
    """One without log-probabilities of letters answers neither `first` nor yes or no: not assessable, and it says so."""
    config = mockllm("config").MockConfig(latency_ms=0, policy="shuffle")
    with mockllm("server").serve_in_thread(config) as server:
        of_it = ("-m", "openai:mock", "--base-url", server.base_url)
        assert llmfair("listwise", *of_it, *ONCE, *NEUTRAL, *STRATEGIES).code == 4
    rows = table_of_runs()
    assert all(int(row.split(" | ")[-2].replace(",", "")) > 1000 for row in rows.values())
    unread = {
        name for name, row in rows.items() if "undefined (no answer could be read) | not assessable" in row
    }
    assert unread == {"first", "pointwise"}


def table_of_runs() -> dict[str, str]:
    """The rows of the table of all runs by strategy, which say what results.json and manifest.json of each run hold."""
    runs = sorted(path.name for path in Path("runs").iterdir())
    (table,) = [part for part in ran("report", *runs, "--format", "md").out.split("\n\n") if HEADER in part]
    lines = {
        re.match(r"\| \S+(?: at \S+)? ([a-z-]+)", row)[1]: row  # type: ignore[index]
        for row in table.splitlines()[2:]
    }
    assert table.splitlines()[0] == HEADER and {*lines} == {*SHOWN}
    for run in runs:
        results, manifest = (
            json.loads(Path("runs", run, f"{file}.json").read_text()) for file in ("results", "manifest")
        )
        row = lines[results["design"].get("strategy", "windows").partition(":")[0]].strip("| ").split(" | ")
        figures = {
            one["measure"]: one
            for one in results["rows"]
            if one["condition"] == "neutral" and one.get("group") in (None, "", "all")
        }
        for shown, measure in zip(row[1:3], ("nDCG@20", "PreferenceOdds"), strict=True):
            told = [figures[measure][name] for name in ("value", "low", "high")]
            numbers = [f"{one:.3f}" for one in told if one is not None]
            said = re.findall(r"[\d.]+\d", shown.partition("undefined")[0])
            assert said == numbers and shown.startswith("undefined") != bool(numbers)
        answers = [
            json.loads(line) for line in Path("runs", run, "journal.jsonl").read_text().splitlines()[1:]
        ]
        calls, tokens = len({one["key"] for one in answers}), sum(map(tokens_of, answers))
        assert tokens == manifest["prompt_tokens"] + manifest["completion_tokens"]
        assert row[3:6] == [
            results["verdict"]["status"],
            f"{calls:,}",
            f"{tokens:,}" if tokens else "",
        ]
        (one,) = manifest["invocations"]
        began, ended = (datetime.fromisoformat(one[name]) for name in ("started", "ended"))
        assert row[6] == f"{(ended - began).total_seconds():,.0f}"
    return lines


def tokens_of(answer: dict[str, Any]) -> int:
    return (answer["prompt_tokens"] or 0) + (answer["completion_tokens"] or 0)


def test_no_next_step_asks_for_what_is_refused() -> None:
    """Partitions are windows: a run of another strategy is not told to ask the same by a partition."""
    assert "slots" in ListwiseSettings.make().ways()
    assert "slots" not in ListwiseSettings.make(strategy="setwise").ways()
    refuses("has no --strategy setwise", "listwise", "--design", "partition", "--strategy", "setwise")


@pytest.mark.whole
@pytest.mark.parametrize("name", ["setwise", "pointwise", "first"])
def test_evidence_reads_answers_as_the_strategy_does(name: str) -> None:
    asked = (*"-m fake:biased,malformed=0.1 -n 5 --conditions neutral --no-repeat --orders 1".split(),)
    results = llmfair(
        "listwise", *asked, "--strategy", name, "--max-invalid", "1", "-o", "run", "--json"
    ).json
    bad = sum(n for kind, n in results["answers"]["neutral"]["classes"].items() if kind != "ok")
    shown = ran("runs", "show", "run", "--runs-dir", ".", "--invalid", "--json").json
    assert 0 < len(shown["rows"]) == bad


@pytest.mark.whole
def test_a_thousand_answers_are_read_by_one_strategy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings read again for every answer took nine tenths of a report of 34,000."""
    ran("listwise", *MODEL, *FEW, "--window", "5", "--step", "5", "-o", "run")
    made: list[str] = []

    def counting(spec: str, settings: Mapping[str, Any]) -> Strategy:
        made.append(spec)
        return strategy_of(spec, settings)

    monkeypatch.setattr("llmfair.rankers.strategies.strategy_of", counting)
    run = RunDir(Path("run"))
    answers = list(all_answers(run, run.read_manifest()))
    assert len(answers) > 50 and len(made) <= 1


# Parameters of rankers


DECLARED: Declared = {"k": whole(400, 2000), "p": number(0.3, 0, 1), "adjust": ("closest", "none")}


def test_what_is_written_stands_over_the_defaults() -> None:
    assert read_parameters("x", "", DECLARED) == {"k": 400, "p": 0.3, "adjust": "closest"}
    found = read_parameters("x", "p=.50, k=7,adjust=none", DECLARED)
    assert found == {"k": 7, "p": 0.5, "adjust": "none"} and spelled(found) == "k=7 p=0.5 adjust=none"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("q=1", "x has no parameter 'q'."),
        ("adjsut=none", "Did you mean 'adjust'?"),
        ("p", "x: 'p' is not key=value."),
        ("p=", "x: 'p=' is not key=value."),
        ("p=0.1,", "x: '' is not key=value."),
        ("p=1.2", "x: p cannot be '1.2'."),
        ("p=nan", "x: p cannot be 'nan'."),
        ("p=x", "x: p cannot be 'x'."),
        ("k=0", "x: k cannot be '0'."),
        ("k=1e2", "x: k cannot be '1e2'."),
        ("k=2001", "x: k cannot be '2001'."),
        ("k=9999999999999", "x: k cannot be"),
        ("adjust=nearest", "x: adjust cannot be 'nearest'."),
    ],
)
def test_what_cannot_be_read_is_said(text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        read_parameters("x", text, DECLARED)
    assert said in error.value.message and error.value.hint
