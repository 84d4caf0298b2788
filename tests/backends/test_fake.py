"""Simulated models answer as injected, and the figures that the plant implies are met."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from llmfair import nouns
from llmfair.asking.journal import chat_sampling
from llmfair.backends.base import Backend, BackendOptions
from llmfair.backends.fake import Fake, fake
from llmfair.backends.simulated import NOTHING, Pairs
from llmfair.errors import UsageError
from llmfair.prompts import load_prompt
from llmfair.rankers.choices import read_choice
from llmfair.rankers.pairwise import PairwiseRanker, read_answer
from tests.asking.scripted import request_key

pytestmark = pytest.mark.whole

RANKER = PairwiseRanker(load_prompt("pairwise"))
LETTER = PairwiseRanker(load_prompt("pairwise"), form="letter")
OFF = "malformed=0,position=0,query_sd=0,pairwise=0"


def model(name: str, seed: int = 0) -> Fake:
    return fake(name, BackendOptions(seed=seed))


def probe_of(
    query_id: str = "q", number: int = 0, draw: int = 0, grades: tuple[int, int] = (1, 1)
) -> nouns.Probe:
    documents = (nouns.Document("p", "Ada"), nouns.Document("u", "Charles"))
    relevance = dict(zip("pu", grades, strict=True))
    candidates = nouns.Candidates(nouns.Query(query_id, "computing"), documents, relevance)
    return nouns.Probe("p", candidates, "relevant", "neutral", order=number, draw=draw)


async def answers(backend: Backend, chats: Sequence[nouns.Chat]) -> list[nouns.Completion]:
    found = []
    for chat in chats:
        sampling = chat_sampling(chat, nouns.Sampling())
        key = request_key(backend.identity, chat, sampling, about=backend.reads_about)
        found.append(await backend.complete(nouns.Request(chat, sampling, key, "p")))
    return found


def verdict_of(backend: Backend, probe: nouns.Probe, ranker: PairwiseRanker = RANKER) -> nouns.PairVerdict:
    return nouns.drive(ranker.steps(probe), lambda chat: asyncio.run(answers(backend, [chat]))[0])


class Row(NamedTuple):
    """Expected shares of readable pairs and what follows from them; `malformed` is the share of damaged answers."""

    model: str
    shares: tuple[float, float, float, float]
    win_ratio: float
    balanced: float
    beta: float
    gamma: float
    kappa: float
    malformed: float = 0.0


ROWS = [
    Row("pairwise=0.2", (0.3023, 0.2027, 0.2475, 0.2475), 1.4918, 1.2214, 0.2, 0, 0),
    Row("pairwise=0.2,position=2", (0.1277, 0.0856, 0.7725, 0.0142), 1.4918, 1.0879, 0.2, 2, 0),
    Row("pairwise=0.5,position=0.5", (0.3655, 0.1345, 0.3655, 0.1345), 2.7183, 1.6010, 0.5, 0.5, 0),
    Row("pairwise=-0.5,position=0.5,malformed=0.05", (0.1345, 0.3655, 0.3655, 0.1345), 0.3679, 0.6246, -0.5, 0.5, 0, 0.05),
    Row("pairwise=-0.5,position=0.5,query_sd=0.5", (0.1511, 0.3716, 0.3490, 0.1284), 0.4065, 0.6386, -0.4737, 0.4737, 0.0454),
    Row("position=0.5,lapse=0.1,malformed=0.05,query_sd=0.5", (0.2492, 0.2492, 0.3552, 0.1464), 1, 1, 0, 0.4237, 0.0388, 0.05),
]  # fmt: skip
READABLE = (nouns.Cell.PP, nouns.Cell.UU, nouns.Cell.FF, nouns.Cell.SS)
SIDES = ([nouns.Side.PROTECTED, nouns.Side.UNPROTECTED], [nouns.Side.UNPROTECTED, nouns.Side.PROTECTED])


async def cells(backend: Fake, pairs: int) -> Counter[nouns.Cell]:
    """Cells of pairs of one query each, so that pairs are independent; only what a simulated model reads is made."""
    found, expects, sampling = Counter[nouns.Cell](), nouns.Permutation(2), nouns.Sampling()
    for number in range(pairs):
        read = []
        for sides in SIDES:
            about = {"task": "pairwise", "query_id": f"q{number}", "sides": sides}
            request = nouns.Request(
                nouns.Chat((), expects, about=about), sampling, f"{number} {sides[0]}", "p"
            )
            choice = read_choice(await backend.complete(request), "order")
            read.append(nouns.PairAnswer(None if choice.item is None else sides[choice.item], choice.problem))
        found[nouns.PairVerdict("q", "relevant", number, 0, "p", "u", read[0], read[1]).cell] += 1
    return found


def given(row: Row) -> str:
    """The row's model with everything else off."""
    off = {"pairwise": "0", "position": "0", "query_sd": "0", "malformed": "0"}
    on = dict(assignment.split("=") for assignment in row.model.split(","))
    return "biased," + ",".join(f"{key}={value}" for key, value in {**off, **on}.items())


@pytest.mark.parametrize("row", ROWS, ids=[row.model for row in ROWS])
def test_every_figure_is_met(row: Row) -> None:
    """Within four standard errors of so many pairs, and what printing to four places may add."""
    bad, pairs = row.malformed, 3_000
    counts = asyncio.run(cells(model(given(row), seed=3), pairs))
    readable = sum(counts[cell] for cell in READABLE)
    expected = {nouns.Cell.M1: 2 * bad * (1 - bad), nouns.Cell.M2: bad**2, nouns.Cell.T: 0.0}
    for cell, share in expected.items():
        assert abs(counts[cell] / pairs - share) <= 4 * math.sqrt(share * (1 - share) / pairs)
    for cell, share in zip(READABLE, row.shares, strict=True):
        assert abs(counts[cell] / readable - share) <= 4 * math.sqrt(share * (1 - share) / readable) + 1e-4

    pp, uu, ff, ss = (counts[cell] / readable for cell in READABLE)
    r_pp, r_uu, r_ff, r_ss = row.shares
    p, p1, p2 = r_pp + (r_ff + r_ss) / 2, r_pp + r_ff, r_pp + r_ss
    bounds = [
        4 * math.sqrt(variance / readable) + 1e-4
        for variance in (
            1 / r_pp + 1 / r_uu,
            (r_pp + (r_ff + r_ss) / 4 - p**2) / (p * (1 - p)) ** 2,
            (1 / (p1 * (1 - p1)) + 1 / (p2 * (1 - p2))) / 2,  # twice that of independent answers
            1.0,  # kappa is a share in the end
        )
    ]
    logits = [math.log(share / (1 - share)) for share in (pp + ff, pp + ss)]
    chance = (pp + ff) * (pp + ss) + (uu + ss) * (uu + ff)
    assert abs(math.log(pp / uu / row.win_ratio)) <= bounds[0]
    assert abs(math.log((2 * pp + ff + ss) / (2 * uu + ff + ss) / row.balanced)) <= bounds[1]
    assert abs((logits[0] + logits[1]) / 2 - row.beta) <= bounds[2]
    assert abs((logits[0] - logits[1]) / 2 - row.gamma) <= bounds[2]
    assert abs((pp + uu - chance) / (1 - chance) - row.kappa) <= bounds[3]


def test_a_query_has_one_effect_for_all_its_pairs() -> None:
    name = f"biased,{OFF},query_sd=1000"

    def won(seed: int) -> list[str]:
        found = []
        for query in range(20):
            outcomes = {verdict_of(model(name, seed), probe_of(f"q{query}", n)).outcome for n in range(3)}
            (outcome,) = outcomes
            found.append(str(outcome))
        return found

    one, other = won(0), won(1)
    assert set(one) == {"protected", "unprotected"} and one != other and one == won(0)


def test_the_oracle_prefers_relevance_then_the_item_shown_first() -> None:
    oracle = model("oracle,malformed=0")
    for grades, cell in [((2, 1), nouns.Cell.PP), ((0, 1), nouns.Cell.UU), ((1, 1), nouns.Cell.FF)]:
        assert verdict_of(oracle, probe_of(grades=grades)).cell is cell
        assert verdict_of(oracle, probe_of(grades=grades), LETTER).cell is cell


def test_the_random_model_chooses_by_chance() -> None:
    backend = model("random,malformed=0")
    found = Counter(verdict_of(backend, probe_of(number=n, grades=(3, 0))).cell for n in range(400))
    assert all(abs(found[cell] / 400 - 0.25) <= 4 * math.sqrt(0.25 * 0.75 / 400) for cell in READABLE)


def test_both_forms_are_answered_in_their_own_words() -> None:
    backend = model(f"biased,{OFF},pairwise=50")
    for ranker, texts in ((RANKER, ["[1] > [2]", "[2] > [1]"]), (LETTER, ["A", "B"])):
        assert [c.text for c in asyncio.run(answers(backend, ranker.chats(probe_of())))] == texts
        assert verdict_of(backend, probe_of(), ranker).cell is nouns.Cell.PP


@pytest.mark.parametrize("ranker", [RANKER, LETTER], ids=["order", "letter"])
def test_no_damaged_answer_names_a_winner(ranker: PairwiseRanker) -> None:
    damaged = Pairs().damaged(ranker.chats(probe_of())[0], "")
    choices = [read_answer(nouns.Completion(text, finish), ranker.form, "text") for text, finish in damaged]
    assert all(choice.problem not in (None, "tie") for choice in choices)
    problems = {str(choice.problem) for choice in choices}
    assert problems >= {"duplicate", "contradictory", "no_order", "truncated", "empty", "refused"}
    assert ("out_of_range" in problems) == (ranker is RANKER)
    assert verdict_of(model("oracle,malformed=1"), probe_of(), ranker).cell is nouns.Cell.M2


def test_a_run_over_lists_keeps_its_name() -> None:
    identity = "fake biased listwise=-0.5,malformed=0.01,noise=1,order=0,prompt=1,relevance=2 seed=0"
    assert model("biased").identity == model("biased,pairwise=-0.3").identity == identity
    assert "pairwise=-0.5," in model("biased,pairwise=-0.5").identity
    assert "pairwise" not in model("random").identity + model("oracle").identity


def listed(name: str) -> str:
    """How a model orders five items of three groups."""
    about = {
        "task": "listwise", "query_id": "q", "names": None, "relevance": [0, 0, 0, 0, 0],
        "sides": ["Asian", "Black", "White", None, "Black"],
    }  # fmt: skip
    chat = nouns.Chat((nouns.Message("user", "Rank."),), nouns.Permutation(5), about=about)
    return asyncio.run(answers(model(f"{name},noise=0,malformed=0"), [chat]))[0].text


def test_a_named_group_of_several_is_put_behind_and_none_without_a_name() -> None:
    assert listed("biased") == "[1] > [2] > [3] > [4] > [5]"
    assert listed("biased,behind=Black") == "[1] > [3] > [4] > [2] > [5]"
    assert listed("biased,behind=Black,listwise=1") == "[2] > [5] > [1] > [3] > [4]"
    assert model("biased,behind=Black").identity.endswith("relevance=2 behind=Black seed=0")


def pair_of(name: str, groups: Sequence[str], sides: Sequence[str]) -> int:
    """Which of two items shown a model puts first."""
    about = {"task": "pairwise", "query_id": "q", "contrast": "x", "groups": groups, "sides": sides}
    chat = nouns.Chat((nouns.Message("user", "Which?"),), nouns.Labels(("A", "B")), about=about)
    strong = model(f"{name},{OFF},pairwise=-50")
    return "AB".index(asyncio.run(answers(strong, [chat]))[0].text)


def test_a_group_is_put_behind_on_whichever_side_of_a_contrast_it_is() -> None:
    both = ["protected", "unprotected"]
    for sides in (both, both[::-1]):
        assert pair_of("biased,behind=Black", ["Black", "White"], sides) == 1
        assert pair_of("biased,behind=White", ["Black", "White"], sides) == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("biased,lapse=1.5", "lapse=1.5 is not a share of 1"),
        ("biased,query_sd=-1", "query_sd=-1 is not a number from 0"),
        ("biased,latency=-1", "latency=-1 is not a number from 0"),
        ("biased,positon=1", "no parameter 'positon'. Did you mean 'position'?"),
        ("oracle,pairwise=1", "fake:oracle has no parameter 'pairwise'"),
        ("reader,listwise=1", "fake:reader has no parameter 'listwise'"),
        ("nobody", "no simulated model 'fake:nobody'"),
    ],
)
def test_parameters_that_cannot_be(name: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        model(name)
    assert message in raised.value.message


COMEDY, CRIME = "comedy", "crime"


def read_from(labels: Sequence[str], times: int = 1, **parameters: float) -> list[str]:
    name = ",".join(["reader", *(f"{key}={value}" for key, value in parameters.items())])
    backend = fake(name, BackendOptions())
    chat = nouns.Chat(
        (nouns.Message("user", "Which?"),), nouns.Text(), about={"task": "rag", "labels": list(labels)}
    )

    async def ask() -> list[str]:
        requests = (
            nouns.Request(chat, nouns.Sampling(max_tokens=8), f"key {number}", "probe")
            for number in range(times)
        )
        return [(await backend.complete(request)).text for request in requests]

    return asyncio.run(ask())


def test_the_commonest_label_and_of_equals_the_first() -> None:
    assert read_from([CRIME, COMEDY, COMEDY]) == [COMEDY]
    assert read_from([CRIME, COMEDY]) == [CRIME]
    assert read_from(["", CRIME]) == [CRIME]
    assert read_from([]) == read_from([""]) == [NOTHING]


def test_shares_are_those_injected() -> None:
    shown = [CRIME, COMEDY, COMEDY]
    silent = read_from(shown, 1000, follow=0.7).count(NOTHING)
    assert abs(silent - 300) < 60
    first = read_from(shown, 1000, position=0.4).count(CRIME)
    assert abs(first - 400) < 65


def test_it_orders_no_lists_and_rankers_read_nothing() -> None:
    chat = nouns.Chat((nouns.Message("user", "Order."),), nouns.Text(), about={"task": "listwise"})
    with pytest.raises(UsageError, match="does not answer such questions") as caught:
        asked = nouns.Request(chat, nouns.Sampling(), "key", "probe")
        asyncio.run(fake("reader", BackendOptions()).complete(asked))
    assert "rag" in caught.value.hint


@pytest.mark.parametrize(("label", "output", "says"), [("a", "a", "yes"), ("a", "b", "no"), ("", "", "no")])
def test_an_item_supports_the_answer_that_is_its_label(label: str, output: str, says: str) -> None:
    about = {"task": "support", "label": label, "output": output}
    chat = nouns.Chat((nouns.Message("user", "Does it?"),), nouns.Labels(("yes", "no")), about=about)
    request = nouns.Request(chat, nouns.Sampling(), "key", "probe")
    assert asyncio.run(fake("reader", BackendOptions()).complete(request)).text == says
