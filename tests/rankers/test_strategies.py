"""Strategies: one of someone else's through everything that windows do, each of ours by hand, and lists in windows asked at once."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfair import registry
from llmfair.audits.listwise.design import make_design
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.errors import UsageError
from llmfair.metrics.base import Declared, Free, number, read_parameters, spelled, whole
from llmfair.nouns import (
    Candidates,
    Chat,
    Completion,
    Encounter,
    Expects,
    Finish,
    Labels,
    Permutation,
    Ranking,
    Scores,
    Steps,
)
from llmfair.rankers.answers import AnswerClass
from llmfair.rankers.questions import OUT_OF_SIGHT, BestOf, Choice, YesNo, is_formed
from llmfair.rankers.strategies import (
    Ask,
    PairwiseSort,
    Partition,
    Pointwise,
    Setwise,
    Strategy,
    Tournament,
    Window,
    Windows,
    strategy_of,
)
from tests.batch_server import unwaiting as unwaiting
from tests.cli.command import kept, llmfair, ran, refuses
from tests.folders import balanced, write_folder
from tests.rankers.asking import as_shown, made, order_of, ordered, perfect, said
from tests.rankers.test_listwise import RANKER, numbered, rendered
from tests.shared import mockllm

RUN = Path("run")
SMALL = ("listwise", "--strategy", "toy", "-n", "6", "--orders", "2")
MEASURES = "P@20,ExpRatio,PreferenceOdds"
ASK = (*SMALL, "--measures", MEASURES, "-o", RUN)
ITEMS, CHAINS = 40, 6 * 4 * 2
CALLS = CHAINS * (ITEMS - 1)


@dataclass(frozen=True)
class Toy(Strategy):
    """Asks about each neighbouring pair once, from the tail: one pass of a bubble sort."""

    depth: int | None = None

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
    dry = ("listwise", "--dry-run", "--json")
    plain, named = (llmfair(*dry, *flags).json for flags in ((), ("--strategy", "windows")))
    assert plain == named and "strategy" not in plain
    toy = llmfair("listwise", "--strategy", "toy", "--dry-run", "--json").json["folder"]
    folders = {plain["folder"], toy}
    assert len(folders) == 2


def test_it_is_planned_and_counted() -> None:
    dry = llmfair(*SMALL, "--dry-run")
    assert dry.code == 0 and f"{CALLS:,} calls" in dry.out and "strategy toy" in dry.out
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
def test_it_runs_goes_on_and_is_checked() -> None:
    assert llmfair(*ASK, "--max-calls", f"{CALLS // 2}").code == 3
    results = ran(*ASK, "--json").json
    assert results["design"]["strategy"] == "toy" and results["design"]["window"] is None
    assert results["design"]["calls"] == CALLS
    assert sum(condition["windows"] for condition in results["answers"].values()) == CALLS
    manifest = kept("manifest", RUN)
    assert manifest["flags"]["strategy"] == ["toy"] and manifest["settings"]["strategy"] == "toy"
    again = ran(*ASK, "-v")
    assert "strategy toy" in again.out and "None" not in again.out
    ran("runs", "check", "run", "--runs-dir", ".")


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
    ranked, told = ordered(strategy, [0] * n, answer)
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
        _, told = ordered(strategy, grades, partial(said, chosen=chosen, margins=margins))
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
    ranked, _ = ordered(strategy, grades, partial(said, margins=margins))
    assert [grades[item] for item in order_of(ranked)[:k]] == list(range(39, 39 - k, -1))


@pytest.mark.parametrize("name", NAMES)
def test_a_model_that_sees_no_difference_leaves_the_documented_order(name: str) -> None:
    """The order shown, the first label or yes to all: the initial ranking, but that a heap's next is its last item."""
    spec = f"{name}:k=4" if name in HEAPS else name
    answer = partial(said, chosen=as_shown, margins=needs_margins(name))
    ranked, _ = ordered(made(spec), [0] * 10, answer)
    if name == "tournament":  # the first of random groups advance: who they are, is in its seed
        again, _ = ordered(made(name), [0] * 10, partial(said, chosen=as_shown))
        assert order_of(ranked) == order_of(again)
    else:
        assert order_of(ranked) == ([0, 9, 8, 7, 1, 2, 3, 4, 5, 6] if name in HEAPS else [*range(10)])


MODEL = ("-m", "fake:biased,listwise=-0.7,malformed=0.02")
FEW = ("-n", "6", "--conditions", "neutral", "--no-repeat", "--orders", "2")
ONCE = ("-n", "6", "--no-repeat", "--orders", "1")
NEUTRAL = ("--conditions", "neutral")


@pytest.mark.whole
@pytest.mark.parametrize("name", ["first", "tournament"])
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
def test_answers_are_read_as_asked() -> None:
    for read in ("text", "margin"):
        ran("listwise", *MODEL, *FEW, "--strategy", "pointwise", "--answers", read, "-o", read)
        assert kept("results", read)["design"].get("answers") == (read if read == "margin" else None)
        row = json.loads(Path(read, "journal.jsonl").read_text().splitlines()[1])
        assert bool(row.get("logprobs")) == (read == "margin")
    refuses("reads no log-probabilities", "listwise", "--answers", "margin", "-n", "1")


@pytest.mark.whole
def test_a_server_that_only_ranks_has_no_first() -> None:
    """One without log-probabilities of letters."""
    config = mockllm("config").MockConfig(latency_ms=0, policy="shuffle")
    with mockllm("server").serve_in_thread(config) as server:
        of_it = ("-m", "openai:mock", "--base-url", server.base_url, "--strategy", "first", "--json")
        found = llmfair("listwise", *of_it, *ONCE, *NEUTRAL)
    assert found.code == 4 and found.json["verdict"]["status"] == "not assessable"


def test_a_partition_has_windows_of_no_other_strategy() -> None:
    refuses("has no --strategy setwise", "listwise", "--design", "partition", "--strategy", "setwise")


@pytest.mark.whole
def test_evidence_reads_answers_as_the_strategy_does() -> None:
    asked = (*"-m fake:biased,malformed=0.1 -n 5 --conditions neutral --no-repeat --orders 1".split(),)
    run = ("--strategy", "setwise", "--max-invalid", "1", "-o", "run", "--json")
    results = llmfair("listwise", *asked, *run).json
    bad = sum(n for kind, n in results["answers"]["neutral"]["classes"].items() if kind != "ok")
    shown = ran("runs", "show", "run", "--runs-dir", ".", "--invalid", "--json").json
    assert 0 < len(shown["rows"]) == bad


DECLARED: Declared = {"k": whole(400, 2000), "p": number(0.3, 0, 1), "adjust": ("closest", "none")}


def test_what_is_written_stands_over_the_defaults() -> None:
    assert read_parameters("x", "", DECLARED) == {"k": 400, "p": 0.3, "adjust": "closest"}
    found = read_parameters("x", "p=.50, k=7,adjust=none", DECLARED)
    assert found == {"k": 7, "p": 0.5, "adjust": "none"} and spelled(found) == "k=7 p=0.5 adjust=none"


@pytest.mark.parametrize(
    "path", ["/models/my model", "dense:/a=b/c", "org/model(v1, small)", "/a)b", "dense:'x'"]
)
def test_a_value_is_any_text(path: str) -> None:
    declared: Declared = {"encoder": Free(None, str, "a path"), "k": whole(400, 2000)}
    assert read_parameters("x", f"encoder={path}, k=7", declared) == {"encoder": path, "k": 7}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("q=1", "x has no parameter 'q'."),
        ("p=", "x: 'p=' is not key=value"),
        ("p=0.3,", "x: 'p=0.3,' is not key=value"),
        ("p=0.1,p=0.2", "x: 'p=0.1,p=0.2' is not key=value"),
        ("p=1.2", "x: p cannot be '1.2'."),
        ("k=2001", "x: k cannot be '2001'."),
        ("adjust=nearest", "x: adjust cannot be 'nearest'."),
    ],
)
def test_what_cannot_be_read_is_said(text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        read_parameters("x", text, DECLARED)
    assert said in error.value.message and error.value.hint


# Tournaments, heaps, pairs and items alone, by hand


def of(group: int, best: int, rounds: int = 1) -> Tournament:
    return Tournament(group, best, rounds)


def test_a_tournament_by_hand() -> None:
    """Nine items in groups of up to four, the best half through: 3 + 3 + 3, 2 + 2 + 2 are 3 + 3, 4, 2."""
    grades = [3, 8, 0, 7, 5, 1, 6, 2, 4]
    tournament = of(4, 2)
    ranked, told = ordered(tournament, grades)
    assert [[len(group) for group in one] for one in told.rounds] == [[3, 3, 3], [3, 3], [4], [2]]
    assert (tournament.plan(9).calls, tournament.plan(9).rounds, tournament.plan(9).exact) == (7, 4, True)
    points = dict.fromkeys(range(9), 0)
    for one in told.rounds:
        for group in one:
            for item in sorted(group, key=lambda item: -grades[item])[: tournament.question.best(len(group))]:
                points[item] += 1
    assert order_of(ranked) == sorted(range(9), key=lambda item: -points[item])
    assert ranked.ranking is not None and ranked.ranking.scores is not None
    assert ranked.ranking.scores[0] == 4 and points[1] == 4
    first = ranked.encounters
    assert [len(one.shown) for one in first] == [3, 3, 3] and all(len(one.ranked) == 2 for one in first)
    assert {item for one in first for item in one.shown} == {str(item) for item in range(9)}


def test_rounds_are_asked_side_by_side_in_other_groups() -> None:
    grades = random.Random(3).sample(range(40), 40)
    ranked, told = ordered(of(10, 5, 3), grades)
    assert [len(one) for one in told.rounds] == [12, 6, 3, 3, 3, 3]
    groups = [frozenset(group) for group in told.rounds[0]]
    assert len({*groups}) == 12
    assert len(ranked.encounters) == 12  # the groups of a first stage hang on no answer
    assert order_of(ranked)[0] == grades.index(39)


@pytest.mark.parametrize(
    ("text", "answer_class", "order", "named"),
    [
        ("[3] > [1]", AnswerClass.OK, (2, 0, 1, 3), 2),
        ("[3], [1]", AnswerClass.OK, (2, 0, 1, 3), 2),
        ("[3] > [1] > [4] > [2]", AnswerClass.OK, (2, 0, 1, 3), 2),
        ("[3]", AnswerClass.MISSING, (2, 0, 1, 3), 1),
        ("[3] > [9]", AnswerClass.OUT_OF_RANGE, (2, 0, 1, 3), 1),
        ("None of them.", AnswerClass.NO_IDS, None, 0),
    ],
)
def test_what_an_answer_names(
    text: str, answer_class: AnswerClass, order: tuple[int, ...] | None, named: int
) -> None:
    reading = BestOf(4, 2).read(Completion(text, Finish.STOP), 4, "strict")
    assert (reading.answer_class, reading.permutation, reading.named) == (answer_class, order, named)


# Which of two is the more relevant


def test_a_heap_by_hand() -> None:
    """Five items, the best two: 1 of (1; 3, 4), then 0 of (0; 1, 2), then what sinks from the head."""
    ranked, told = ordered(PairwiseSort(k=2), [0, 1, 4, 3, 2])
    # (3, 4) gives 3, (1, 3) lifts 3 to place 1; (3, 2) gives 2, (0, 2) lifts 2 to the head; out goes 2, 4 comes:
    # (3, 0) gives 3, (4, 3) lifts 3, and 4 meets 1, the one child left.
    assert told.asked == [[3, 4], [1, 3], [3, 2], [0, 2], [3, 0], [4, 3], [4, 1]]
    assert order_of(ranked) == [2, 3, 0, 1, 4]
    assert ranked.encounters == (Encounter(("3", "4"), ("3",), ("4",)),)
    assert (PairwiseSort(k=2).plan(5).calls, PairwiseSort(k=2).plan(5).exact) == (2 + 4 + 3, False)


def test_in_both_orders_a_pair_that_is_not_agreed_on_stays() -> None:
    ranked, told = ordered(PairwiseSort(k=3, orders=2), [0, 1, 2], partial(said, chosen=as_shown))
    assert told.rounds == [[[1, 2], [2, 1]], [[0, 1], [1, 0]], [[2, 1], [1, 2]]]
    assert order_of(ranked) == [0, 2, 1]
    assert len(ranked.encounters) == 2  # both orders of the first pair: neither hung on the other
    grades = random.Random(1).sample(range(30), 30)
    ranked, told = ordered(PairwiseSort(k=10, orders=2), grades)
    assert [grades[item] for item in order_of(ranked)[:10]] == list(range(29, 19, -1))
    assert len(told.asked) == 2 * len(told.rounds) <= PairwiseSort(k=10, orders=2).plan(30).calls


def test_all_pairs_by_hand() -> None:
    ranked, told = ordered(PairwiseSort("allpairs"), [1, 0, 2])
    assert told.rounds == [[[0, 1], [1, 0], [0, 2], [2, 0], [1, 2], [2, 1]]]
    assert (PairwiseSort("allpairs").plan(3).calls, PairwiseSort("allpairs").plan(3).rounds) == (6, 1)
    assert order_of(ranked) == [2, 0, 1]
    assert ranked.ranking is not None and ranked.ranking.scores == (2.0, 1.0, 0.0)
    assert len(ranked.encounters) == 6


def test_half_a_point_each_where_the_orders_disagree() -> None:
    """A model that always says A: all items have the same points, and keep the initial ranking."""
    ranked, _ = ordered(PairwiseSort("allpairs"), [0, 5, 9, 1], partial(said, chosen=as_shown))
    assert order_of(ranked) == [0, 1, 2, 3]
    assert ranked.ranking is not None and ranked.ranking.scores == (1.5,) * 4

    def only_two_and_one(chat: Chat) -> Completion:
        return said(chat) if {*chat.about["doc_ids"]} == {"1", "2"} else Completion("A", Finish.STOP)

    ranked, _ = ordered(PairwiseSort("allpairs"), [0, 5, 9, 1], only_two_and_one)
    assert order_of(ranked) == [2, 0, 3, 1]


# Which of a few is the most relevant


def test_a_heap_of_sets_by_hand() -> None:
    """Seven items, two children each, the best three.

    Built: 2 of (2; 5, 6) becomes 6, 1 of (1; 3, 4) becomes 3, then 0 of (0; 3, 6): 6 rises, and 0 sinks below (2, 5):
    5 rises. Heap 6 3 5 1 4 0 2. Out goes 6, 2 takes its place: (2; 3, 5) gives 5, (2; 0) stays. Out goes 5,
    0 takes its place: (0; 3, 2) gives 3, (0; 1, 4) gives 4. Out goes 3.
    """
    ranked, told = ordered(Setwise(3, 3), [0, 1, 2, 3, 1, 4, 5])
    assert told.asked == [
        [2, 5, 6], [1, 3, 4], [0, 3, 6], [0, 5, 2], [2, 3, 5], [2, 0], [0, 3, 2], [0, 1, 4],
    ]  # fmt: skip
    assert order_of(ranked) == [6, 5, 3, 0, 1, 2, 4]
    plan = Setwise(3, 3).plan(7)
    assert (plan.calls, plan.rounds, plan.exact) == (1 + 1 + 2 + 2 + 2, 8, False)
    assert ranked.encounters == (
        Encounter(("2", "5", "6"), ("6",), ("2", "5")),
        Encounter(("1", "3", "4"), ("3",), ("1", "4")),
    )


@pytest.mark.parametrize(
    ("completion", "chosen"),
    [
        (Completion("B", Finish.STOP), 1),
        (Completion("Passage C", Finish.STOP), 2),
        (Completion("**passage b.**", Finish.STOP), 1),
        (Completion("A", Finish.STOP, logprobs={"A": -2.0, "C": -0.3}), 2),
        (Completion("A", Finish.LENGTH, logprobs={"B": -0.2}), 1),
        (Completion("Passage C", Finish.STOP, logprobs={"A": -9.0}), 2),
        (Completion("The", Finish.LENGTH, logprobs={"A": -9.0, "B": -5.0}), 1),
        (Completion("The", Finish.LENGTH, logprobs={"A": -9.0, "B": -8.0}), AnswerClass.TRUNCATED),
        (Completion("A", Finish.STOP, logprobs={"A": 800.0, "B": 801.0}), 1),
        (Completion("D", Finish.STOP), AnswerClass.OUT_OF_RANGE),
        (Completion("A and B are", Finish.STOP), AnswerClass.NO_IDS),
        (Completion("", Finish.EMPTY), AnswerClass.EMPTY),
        (Completion("B", Finish.LENGTH), AnswerClass.TRUNCATED),
        (Completion("Hm", Finish.STOP, logprobs={"Z": -0.1}), AnswerClass.NO_IDS),
        (Completion("Passage", Finish.LENGTH, logprobs={}), AnswerClass.TRUNCATED),
    ],
)
def test_what_is_chosen(completion: Completion, chosen: int | AnswerClass) -> None:
    reading = Choice("setwise").read(completion, 3, "strict")
    found = reading.answer_class if reading.permutation is None else reading.permutation[0]
    assert found == chosen


@pytest.mark.parametrize(
    ("spec", "settings", "strategy"),
    [
        ("tournament:rounds=5,group=8,best=2", {}, of(8, 2, 5)),
        ("pairwise-sort", {}, PairwiseSort()),
        ("pairwise-sort:k=5,orders=2", {}, PairwiseSort(k=5, orders=2)),
        ("pairwise-sort:method=allpairs", {"depth": 9}, PairwiseSort("allpairs", depth=9)),
        ("setwise:k=5,c=3", {"depth": 30}, Setwise(3, 5, 30)),
    ],
)
def test_parameters(spec: str, settings: dict[str, int], strategy: Strategy) -> None:
    assert made(spec, **settings) == strategy
    for wrong, says in (("tournament:group=5,best=5", "would be all"), ("setwise:c=1", "c cannot be '1'")):
        with pytest.raises(UsageError, match=says):
            made(wrong)


TWO, ONE_OF_TWO = Permutation(2), Labels(("A", "B"))


@pytest.mark.parametrize(
    ("text", "finish", "expects", "formed"),
    [
        ("[2] > [1]", Finish.STOP, TWO, True),
        (" [2] > [1]\n", Finish.STOP, TWO, True),
        ("[2] > [1", Finish.LENGTH, TWO, True),
        ("[2]", Finish.STOP, Permutation(2, 1), True),
        ("[2]", Finish.STOP, TWO, False),
        ("2 > 1", Finish.STOP, TWO, False),
        ("Sure: [2] > [1]", Finish.STOP, TWO, False),
        ("I think that", Finish.LENGTH, TWO, False),
        ("<think>", Finish.UNFINISHED_THINKING, TWO, False),
        ("", Finish.LENGTH, TWO, True),  # thoughts apart took all of it
        ("no", Finish.REFUSED, TWO, True),  # the server's word, not the model's
        ("A", Finish.STOP, ONE_OF_TWO, True),
        ("A.", Finish.STOP, ONE_OF_TWO, False),
        ("Passage", Finish.LENGTH, ONE_OF_TWO, False),
        ("[[0, 1.0]]", Finish.STOP, Scores(1), True),
    ],
)
def test_what_a_model_that_is_held_to_a_form_may_answer(
    text: str, finish: Finish, expects: Expects, formed: bool
) -> None:
    assert is_formed(Completion(text, finish), expects, read=True) is formed
    assert not (finish is Finish.STOP and is_formed(Completion("A", finish), ONE_OF_TWO, read=False))


POINTWISE = made("pointwise")


def test_all_items_are_asked_at_once_and_ordered_by_score() -> None:
    grades = [1, 3, 0, 2, 3]
    ranked, told = ordered(POINTWISE, grades, lambda chat: said(chat, margins=True))
    assert told.rounds == [[[0], [1], [2], [3], [4]]]
    assert (POINTWISE.plan(5).calls, POINTWISE.plan(5).rounds) == (5, 1)
    assert order_of(ranked) == [1, 4, 3, 0, 2]
    assert ranked.ranking is not None and ranked.ranking.scores == (3.0, 3.0, 2.0, 1.0, 0.0)


def test_without_margins_yes_is_one_and_ties_keep_the_initial_ranking() -> None:
    ranked, _ = ordered(POINTWISE, [0, 2, 0, 1])
    assert order_of(ranked) == [1, 3, 0, 2]
    (encounter,) = ranked.encounters
    assert encounter.scores == (1.0, 1.0, 0.0, 0.0) and encounter.shown == ()


def test_what_cannot_be_read_comes_last_and_is_compared_with_nothing() -> None:
    unread = Completion("Perhaps.", Finish.STOP)
    ranked, _ = ordered(
        POINTWISE, [1, 0, 1], lambda chat: unread if chat.about["doc_ids"] == ["0"] else said(chat)
    )
    assert order_of(ranked) == [2, 1, 0]
    assert ranked.encounters[0].ranked == ("2", "1") and ranked.ranking is not None
    assert ranked.ranking.scores is None


@pytest.mark.parametrize(
    ("completion", "score"),
    [
        (Completion("yes.", Finish.STOP), 1.0),
        (Completion("**No**", Finish.STOP), 0.0),
        (Completion("Yes", Finish.STOP, logprobs={"Yes": -0.5, "No": -2.0}), 1.5),
        (Completion("x", Finish.LENGTH, logprobs={"Yes": -1.0}), -1.0 - OUT_OF_SIGHT),
        (Completion("No, it", Finish.LENGTH, logprobs={"Yes": -9.0, "No": -9.0}), None),
        (Completion("No.", Finish.STOP, logprobs={"Yes": -9.0}), 0.0),
        (Completion("", Finish.EMPTY), None),
        (Completion("Yes and no", Finish.STOP), None),
    ],
)
def test_what_an_answer_scores(completion: Completion, score: float | None) -> None:
    reading = YesNo().read(completion, 1, "strict")
    assert reading.scores == (None if score is None else (score,))
    assert (reading.answer_class is AnswerClass.OK) == (score is not None)


def test_depth_leaves_the_tail() -> None:
    ranked, told = ordered(Pointwise(depth=2), [0, 1, 9])
    assert told.asked == [[0], [1]] and order_of(ranked) == [1, 0, 2]


# Lists cut into windows that are asked at once: every item shown once, no question waiting for another's answer


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
    "flags", [("--initial", "given"), ("--depth", "10"), ("--strategy", "windows", "--initial", "deltr")]
)
def test_what_only_rankings_have_is_refused(flags: tuple[str, ...]) -> None:
    refuses("--design partition makes no ranking", "listwise", "--design", "partition", *flags)


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
    assert found["answers"]["neutral"]["windows"] == stopped["windows"]
    assert stopped["windows"] <= kept("manifest", "calm/run")["calls"] < 72
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
