from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfair.rankers.answers import AnswerClass, ReaderName, Reading, read, read_strict
from llmfair.records import Completion, Finish
from tests.pace import within
from tests.shared import mockllm, realdata, vectors


def stopped(text: str) -> Completion:
    return Completion(text, Finish.STOP)


def read_rankgpt(text: str, n: int) -> tuple[int, ...] | None:
    return read(stopped(text), n, "rankgpt").permutation


def one_based(reading: Reading) -> list[int] | None:
    return None if reading.permutation is None else [place + 1 for place in reading.permutation]


def reply_text(reply: dict[str, Any]) -> str:
    return "9" * 4301 + " 2" if reply["id"] == "digits_4301" else reply["response"] or ""


def test_the_strict_reader_on_every_reply() -> None:
    replies = [reply for reply in vectors("rankgpt_replies")["replies"] if "strict" in reply]
    assert len(replies) == 26
    for reply in replies:
        reading = read_strict(reply_text(reply), reply["n"])
        expected = reply["strict"]["permutation"]
        assert reading.answer_class == reply["strict"]["class"], reply["id"]
        assert reading.permutation == (None if expected is None else tuple(expected)), reply["id"]


def test_the_rankgpt_reader_on_every_reply() -> None:
    for reply in vectors("rankgpt_replies")["replies"]:
        permutation = read_rankgpt(reply_text(reply), reply["n"])
        if "error" in reply:
            assert permutation is None, reply["id"]
        else:
            # The original cannot tell an answer without a position from one that changes nothing.
            assert list(permutation or range(reply["n"])) == reply["permutation"], reply["id"]


def test_the_rankgpt_reader_refuses_what_names_no_position() -> None:
    assert read_rankgpt("", 4) is None
    assert read_rankgpt("no", 4) is None
    assert read_rankgpt("[9] > 0", 4) is None
    assert read_rankgpt("² 1", 4) is None
    assert read_rankgpt("1" * 4301, 4) is None
    assert read_rankgpt("1.5", 5) == (0, 4, 1, 2, 3)
    assert read_rankgpt("<think>3</think>[1]", 3) == (2, 0, 1)


@pytest.mark.parametrize(
    ("text", "n", "answer_class", "order"),
    [
        ("[2] > [1] > [4] > [3]", 4, "ok", [2, 1, 4, 3]),
        ("4 3 2 1", 4, "ok", [4, 3, 2, 1]),
        ("`4 > 3 > 2 > 1`.", 4, "ok", [4, 3, 2, 1]),
        ("**4, 3; 2 = 1**", 4, "ok", [4, 3, 2, 1]),
        ("1. [3]\n2. [1]\n3. [4]\n4. [2]", 4, "ok", [3, 1, 4, 2]),
        ("[2] Ada > [1] Bob, 1st Earl > [3] Cy", 3, "ok", [2, 1, 3]),
        ("[4, 3,\n2, 1]", 4, "ok", [4, 3, 2, 1]),
        ("[4] > [2]", 4, "missing", [4, 2, 1, 3]),
        ("[2] > [4] > [1", 5, "missing", [2, 4, 1, 3, 5]),
        ("[2] > [2] > [1] > [3]", 4, "duplicate", [2, 1, 3, 4]),
        ("[2] > [1]\n\n[1] > [2]", 2, "duplicate", [2, 1]),
        ("[1] > [2] is wrong, better: [2] > [1]", 2, "ok", [2, 1]),
        ("I compared [1], [2] and [3]. Best first: [3] > [1] > [2]\nSo [3] wins.", 3, "ok", [3, 1, 2]),
        ("From [1] to [3] in that order", 3, "missing", [1, 3, 2]),
        ("[4] > [3] > [2] > [1] > [0]", 4, "out_of_range", [4, 3, 2, 1]),
        ("[9] > [2]", 4, "out_of_range", [2, 1, 3, 4]),
        ("[0000000002] > [1]", 2, "out_of_range", [1, 2]),
        ("[000000002] > [1]", 2, "ok", [2, 1]),
        ("54321", 4, "out_of_range", None),
        ("I cannot rank these passages.", 4, "no_ids", None),
        ("B > A > D > C", 4, "no_ids", None),
        ("Passage 3 is best, then 1", 4, "no_ids", None),
        ("-3 > -1", 4, "no_ids", None),
        ("1.5 > 2.4", 5, "no_ids", None),
        ("1. 2\n2. 1", 2, "no_ids", None),
        ("= > ,", 4, "no_ids", None),
        ("[] [,]", 4, "no_ids", None),
        (" \n", 4, "empty", None),
        ("<think>[1] > [2]</think>", 2, "empty", None),
        ("<think>[1] > [2]</think> so\n</think>\n[2] > [1]", 2, "ok", [2, 1]),
        ("[²] > [¹]", 2, "ok", [2, 1]),
        ("［２］＞［１］", 2, "ok", [2, 1]),
        ("⁴ ³ ² ¹", 4, "ok", [4, 3, 2, 1]),
        ("[٢] > [١]", 2, "ok", [2, 1]),
    ],
)
def test_strict_reading(text: str, n: int, answer_class: str, order: list[int] | None) -> None:
    reading = read_strict(text, n)
    assert reading.answer_class == answer_class
    assert one_based(reading) == order


@pytest.mark.parametrize("reader", ["strict", "rankgpt"])
@pytest.mark.parametrize(
    ("finish", "answer_class"),
    [
        (Finish.FILTERED, "refused"),
        (Finish.REFUSED, "refused"),
        (Finish.LENGTH, "truncated"),
        (Finish.UNFINISHED_THINKING, "truncated"),
        (Finish.EMPTY, "empty"),
    ],
)
def test_only_an_answer_that_ended_by_itself_is_read(
    finish: Finish, answer_class: str, reader: ReaderName
) -> None:
    assert read(Completion("[2] > [1]", finish), 2, reader) == Reading(AnswerClass(answer_class))


def test_the_class_is_the_strict_readers_and_a_difference_is_told() -> None:
    counted = stopped("Here are the 2 passages: [1] > [2]")
    strict, original = read(counted, 2), read(counted, 2, "rankgpt")
    assert strict == Reading(AnswerClass.OK, (0, 1), 2, readers_differ=True)
    assert original == Reading(AnswerClass.OK, (1, 0), 2, readers_differ=True)
    assert not read(stopped("[2] > [1]"), 2).readers_differ
    assert not read(stopped("no"), 2).readers_differ
    assert read(stopped("Passage 1"), 2).readers_differ


def test_the_named_items_come_first() -> None:
    assert read(stopped("[4] > [2] > [2] > [9]"), 4).named == 2
    assert read(stopped("only 3"), 4, "rankgpt") == Reading(AnswerClass.NO_IDS, (2, 0, 1, 3), 1, True)
    assert read(stopped("only 3"), 4).named == 0


def test_real_answers_are_read_alike_by_both() -> None:
    lines = realdata("llm_responses/listwise_rankzephyr_train_100.jsonl").read_text("utf-8").splitlines()
    assert len(lines) == 100
    for line in lines:
        row = json.loads(line)
        reading = read(stopped(row["response"]), row["n_passages"])
        assert reading.answer_class is AnswerClass.OK
        assert not reading.readers_differ


def test_real_prose_is_no_ranking() -> None:
    lines = realdata("llm_responses/messy_issue_quotes.jsonl").read_text("utf-8").splitlines()
    assert len(lines) == 3
    for line in lines:
        reading = read(stopped(json.loads(line)["response"]), 10)
        assert reading == Reading(AnswerClass.NO_IDS, readers_differ=reading.readers_differ)


def test_damaged_answers_land_in_their_classes() -> None:
    damage = mockllm("answers").damage
    classes = {kind: kind for kind in ("duplicate", "missing", "out_of_range", "truncated", "empty")}
    classes |= {"zero_based": "out_of_range", "prose": "no_ids", "null": "empty"}
    classes |= dict.fromkeys(("commas", "newlines", "counted", "think", "superscript"), "ok")
    assert len(classes) == 13
    for seed in range(20):
        rng = random.Random(seed)
        for n in (2, 5, 20):
            ranking = rng.sample(range(n), n)
            for kind, answer_class in classes.items():
                damaged = damage(ranking, kind, rng)
                finish = Finish(damaged.finish_reason) if damaged.text else Finish.EMPTY
                reading = read(Completion(damaged.text or "", finish), n)
                assert reading.answer_class == answer_class, (kind, damaged)
                if answer_class == "ok":
                    assert reading.permutation == tuple(ranking), (kind, damaged)


@st.composite
def answers(draw: st.DrawFn) -> str:
    words = ["[1]", "[2]", "[3, 1]", " > ", "2. ", "<think>", "</think>", "99999999999", "[ ]"]
    pieces = st.sampled_from("1290[], \n²½٣a.*`->\u0301") | st.sampled_from(words)
    return draw(st.one_of(st.text(), st.lists(pieces).map("".join)))


@given(st.permutations(range(1, 9)), st.integers(0, 9), st.sampled_from([" > ", ">", ", "]), st.booleans())
def test_a_plain_order_is_read_as_any_other(order: list[int], named: int, between: str, twice: bool) -> None:
    text = between.join(f"[{number}]" for number in order[:named] + order[:1] * twice)
    strict = read_strict(text, 8)
    assert read(stopped(text), 8) == strict and read_rankgpt(text, 8) == strict.permutation


@given(answers(), st.integers(0, 12), st.sampled_from(["strict", "rankgpt"]))
def test_any_text_gives_a_permutation_or_none(text: str, n: int, reader: ReaderName) -> None:
    reading = read(stopped(text), n, reader)
    if reading.permutation is None:
        assert reading.named == 0
    else:
        assert sorted(reading.permutation) == list(range(n))
        assert 1 <= reading.named <= n
        rest = reading.permutation[reading.named :]
        assert list(rest) == sorted(rest)
    if reading.answer_class is AnswerClass.OK and reader == "strict":
        assert reading.named == n


@given(
    st.integers(1, 40).flatmap(lambda n: st.permutations(range(n))), st.sampled_from([" > ", "\n", ", ", " "])
)
def test_every_permutation_reads_back(order: list[int], between: str) -> None:
    text = between.join(f"[{place + 1}]" for place in order)
    assert read_strict(text, len(order)) == Reading(AnswerClass.OK, tuple(order), len(order))
    assert read_rankgpt(text, len(order)) == tuple(order)


@pytest.mark.parametrize(
    "text",
    [
        "[1] > [2]" + "\u0301\u0316" * 100_000, "[" * 500_000, "[1 " * 150_000, "[1," + " ," * 250_000 + "x",
        "9" * 500_000, "1" + " " * 500_000 + "x", "[1]" + "\n" * 500_000 + "[2]", "[1]\n2. " * 50_000,
        "[1]" * 150_000, "</think>" * 60_000,
    ],
    ids=lambda text: f"{text[:8]!r}",
)  # fmt: skip
def test_huge_answers_take_linear_time(text: str) -> None:
    within(2, lambda: read(stopped(text), 20))  # a quadratic reader needs minutes
