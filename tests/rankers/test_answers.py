from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfair.rankers.answers import AnswerClass, ReaderName, Reading, read, read_strict
from llmfair.rankers.choices import LABELS, Form, read_text
from llmfair.rankers.keywords import read_keywords
from llmfair.rankers.questions import Choice
from llmfair.rankers.reader import output_of
from llmfair.rankers.support import read_support
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


THINKS = "<think>Perhaps [1] > [2] > [3]? Or A, yes, women.</think>"
HARMONY = (
    "<|channel|>analysis<|message|>[1] first, A, yes<|end|><|start|>assistant<|channel|>final<|message|>"
)
READINGS: dict[str, dict[str, list[str]]] = {
    "list of 4": {
        "ok 2 1 4 3": ["[2] > [1] > [4] > [3]", "[3] < [4] < [1] < [2]", "[3] &lt; [4] &lt; [1] &lt; [2]", "3 < 4 < 1 < 2"],
        "ok 4 3 2 1": ["4 3 2 1", "`4 > 3 > 2 > 1`.", "**4, 3; 2 = 1**", "[4, 3,\n2, 1]", "⁴ ³ ² ¹", "[4 > 3 > 2 > 1]"],
        "ok 3 1 4 2": ["1. [3]\n2. [1]\n3. [4]\n4. [2]", "1. Passage 3\n2. Passage 1\n3. Passage 4\n4. Passage 2"],
        "missing 4 2 1 3": ["[4] > [2]", "1. [4]\n2. [2]", "The most relevant are: [4], [2]."],
        "missing 4 1 2 3": ["[4]", "The answer is [4]."],
        "duplicate 2 1 3 4": ["[2] > [2] > [1] > [3]", '{"ranking": [2, 2, 1, 3]}'],
        "out_of_range 2 1 3 4": ["[9] > [2]"],
        "out_of_range 4 3 2 1": ["[4] > [3] > [2] > [1] > [0]"],
        # from 0: a repair would shift every item
        "out_of_range": ["54321", "[0] > [2] > [1] > [3]", "3, 1, 0, 2", '{"ranking": [3, 2, 1, 0]}', "[3] > [0]"],
        "no_ids": [
            "I cannot rank these passages.", "B > A > D > C", "Passage 3 is best, then 1", "-3 > -1", "= > ,", "[] [,]", "(1) 3\n(2) 1",
            '{"scores": {"1": 0.2, "2": 0.1}}', '{"ranking": [{"id": 3}, {"id": 1}]}', '{"ranking": null}', "[3] or [4]", "[4] is better than [2] and [1].",
        ],
        "empty": [" \n", "\ufeff", "</s>", "<|im_end|>[4] > [3] > [2] > [1]"],
    },
    "list of 3": {
        "ok 3 1 2": [
            "[3] > [1] > [2]", "[3]>[1]>[2]", "I compared [1], [2] and [3]. Best first: [3] > [1] > [2]\nSo [3] wins.", "[3] → [1] → [2]", "[3] ≻ [1] ≻ [2]",
            "[3], [1], [2]\n\nThe first names the topic.", "Sure! [3], [1], [2]", "The ranking is [3], [1], [2].", "[3]<br>[1]<br>[2]", "- [3]\n- [1]\n- [2]",
            "Final ranking: 3 > 1 > 2", "[3] = [1] > [2]", "Best to worst: [3] > [1] > [2]", "From worst to best: [2] < [1] < [3]",
            # thoughts: R1 and Qwen3, their templates, Magistral, Kimi, Seed, gpt-oss, Cohere, OpenThinker, Gemma, Granite, Solar, Apertus
            f"{THINKS}[3] > [1] > [2]", f"{THINKS}\n\n{THINKS} So:\n[3] > [1] > [2]", "[1] is off. </think>\n\n[3] > [1] > [2]", "<think>\n<think>[1]</think>\n[3] > [1] > [2]",
            "<thinking>[1]<reflection>[2]</reflection>[3]</thinking>\n[3] > [1] > [2]", "<Thought >[1]</THOUGHT>[3] > [1] > [2]", "<reasoning id='1'>[1]</reasoning>[3] > [1] > [2]",
            "[THINK][1][/THINK][3] > [1] > [2]</s>", "[Reasoning]\n[1]\n[/Reasoning][3] > [1] > [2]", '<details type="reasoning" done="true">\n[1]\n</details>\n[3] > [1] > [2]', "◁think▷[1]◁/think▷[3] > [1] > [2]", f"{HARMONY}[3] > [1] > [2]<|return|>", "[1], hm<|end|><|start|>assistant<|channel|>final<|message|>[3] > [1] > [2]",
            "<seed:think>[1]<seed:cot_budget_reflect>[2]</seed:cot_budget_reflect></seed:think>[3] > [1] > [2]<seed:eos>", "analysisWe rank [1] first.assistantfinal[3] > [1] > [2]",
            "<|START_THINKING|>[1]<|END_THINKING|><|START_RESPONSE|>[3] > [1] > [2]<|END_RESPONSE|>", "<|channel>thought\n[1]\n<channel|>[3] > [1] > [2]<turn|>",
            "<|begin_of_thought|>[1]<|end_of_thought|>\n\n<|begin_of_solution|>[3] > [1] > [2]<|end_of_solution|>", "Here is my thought process: [1]\nHere is my response: [3] > [1] > [2]",
            "<|think|>[1]<|end|><|begin|>assistant<|content|>[3] > [1] > [2]<|end|>", "<|inner_prefix|>[1]<|inner_suffix|>[3] > [1] > [2]", "&lt;think&gt;[1]&lt;/think&gt;[3] > [1] > [2]",
            "<think>[1] <|im_end|> [2]</think>[3] > [1] > [2]", "[3] > [1] > [2]\n<reasoning>[1] is off.</reasoning>", f"{THINKS}<answer>[3] > [1] > [2]</answer>", "<analysis>\n[1]\n</analysis>\n<ranking>\n[3] > [1] > [2]\n</ranking>",
            # what follows the end of a turn
            "[3] > [1] > [2]<|im_end|>\n<|im_start|>assistant\n<think>x</think>[1] > [2] > [3]", "[3] > [1] > [2]<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n[1] > [2] > [3]",
            "[3] > [1] > [2]<end_of_turn>\n<start_of_turn>model\n[1] > [2] > [3]", "[3] > [1] > [2]</s>[1] > [2] > [3]", "[3] > [1] > [2]<|endoftext|>Human: [1]", "[3] > [1] > [2]<｜end▁of▁sentence｜>[1]",
            "[3] > [1] > [2]<|end|><|user|>[1] > [2] > [3]", "[3] > [1] > [2]<|eom_id|>[1]", "[3] > [1] > [2]assistant\n\n[1] > [2] > [3]", "[3] > [1] > [2]\nUser: and now?\nAssistant: [1] > [2] > [3]",
            "<|im_start|>assistant\n[3] > [1] > [2]", "<|start_header_id|>assistant<|end_header_id|>\n\n[3] > [1] > [2]", "<s>[3] > [1] > [2]</s>", "[3] > [1] > [2][|endofturn|][1]",
            # other dress
            '{"ranking": [3,1,2]}', '{"ranking": ["3","1","2"]}', '{"order":["[3]","[1]","[2]"]}', '{"ranking": "[3] > [1] > [2]"}', "{'ranked_ids': ['3', '1', '2']}", '["3","1","2"]', "[[3], [1], [2]]",
            '```json\n{"ranking": [3, 1, 2]}\n```', 'Here it is:\n```json\n["3", "1", "2"]\n```', '{"reasoning": "[1] is off", "ranking": [3,1,2]}', '{"ranking": ["Passage 3","Passage 1","Passage 2"]}',
            "【3】 > 【1】 > 【2】", "(3) > (1) > (2)", "(3), (1), (2)", "[Passage 3] > [Passage 1] > [Passage 2]", "[doc 3], [doc 1], [doc 2]", "[#3] > [#1] > [#2]", "Passage 3 > Passage 1 > Passage 2", "[[3]] > [[1]] > [[2]]",
            "[٣] > [١] > [٢]", "［３］ ＞ ［１］ ＞ ［２］", "[३] > [१] > [२]", "③ > ① > ②", "[3] &gt; [1] &gt; [2]", r"\[3\] \> \[1\] \> \[2\]", "\ufeff[\u200b3] > [1] > [2]", r"$\boxed{3 > 1 > 2}$", r"\[ \boxed{3 \succ 1 \succ 2} \]",
        ],
        "ok 2 1 3": [
            "[2] Ada > [1] Bob, 1st Earl > [3] Cy", "[2] Ada\n[1] Bob\n[3] Cy", "[2] I can't stop loving you > [1] We will not be moved > [3] It is wrong",
            "I can't judge people by who they are, but here is an order: [2] > [1] > [3]", "I’m sorry, I can’t judge them. By relevance:\n[2] > [1] > [3]", "As an AI I rank by relevance alone: [2] > [1] > [3]",
            "[2] > [1] > [3]\n\nI'm sorry, but I can't say more about [1].", "1. [2]\n2. [1]\n3. [3]\nI cannot verify dates.",
        ],
        "refused": [
            "I can't rank people like [1], [2] or [3].", "I can’t rank people like [1], [2], [3].", "I'm sorry, but I can't rank these people:\n1. [1]\n2. [2]\n3. [3]", "I cannot rank the following: [1], [2], [3].",
            "As an AI language model, I cannot rank people, e.g. [1] > [2] > [3].", "It would be inappropriate to rank people such as [1], [2] or [3].", "Ranking people such as [1], [2], [3] would be unethical.",
            "Unfortunately, I am unable to compare [1], [2], [3].", "I won't put [1], [2] and [3] in an order.", "I'm afraid I can't order [1], [2], [3].", "I must respectfully decline to rank [1], [2], [3].", "As a responsible assistant, I must decline to order [1], [2], [3].", f"{THINKS}I will not rank [1], [2], [3].",
        ],
        "no_ids": [
            "The passages [1], [2], and [3] are all relevant.", "Passages [1], [2], [3] are about nursing.", "I looked at [1], [2], [3].", "[1] and [2] and [3]", "From [1] to [3] in that order", "[2] Ada, [1] Bob, [3] Cy",
            "[3] < [1] > [2]", "From worst to best: [3], [1], [2]", "Least relevant to most relevant: 3, 1, 2", "From best to worst: [3] < [1] < [2]", '{"worst_to_best": [3, 1, 2]}', f"{THINKS}I will not rank people by who they are.",
        ],
        "truncated": [
            "<think>[3] > [1] > [2]", "[3] > [1] > [2]\n<thinking>Wait, [1]", "[THINK][3] > [1] > [2]", "<|channel|>analysis<|message|>[3] > [1] > [2]", "analysisWe rank [3] > [1] > [2]", "<seed:think>[3] > [1] > [2]</s>",
            "<think>[1]</thinking>[3] > [1] > [2]", "[3] > [1] > [2]<|im_end|>hm</think>[1] > [2] > [3]",
        ],
        "empty": [THINKS, "[3] > [1] > [2]</think>", f"{HARMONY}<|return|>"],
    },
    "list of 2": {
        "ok 2 1": ["[1] > [2] is wrong, better: [2] > [1]", f"{THINKS} so\n</think>\n[2] > [1]", "[²] > [¹]", "［２］＞［１］", "[٢] > [١]", "[000000002] > [1]"],
        "out_of_range 1 2": ["[0000000002] > [1]"],
        "duplicate 2 1": ["[2] > [1]\n\n[1] > [2]"],
        "no_ids": ["1. 2\n2. 1", "1.5 > 2.4"],
    },
    "pair": {
        "2": [
            f"{THINKS}[2] > [1]", f"{HARMONY}2<|return|>", "[2] > [1]<|eot_id|>[1] > [2]", "[1] < [2]", "[1] &lt; [2]", "[٢] > [١]", "【2】 > 【1】", r"\[2\] > \[1\]", "[2] &gt; [1]", "[doc 2]", '{"ranking": [2, 1]}', '["2","1"]',
            '{"order":["[2]","[1]"]}', '{"reason": "[1] is off", "answer": 2}', '```json\n{"ranking": [2, 1]}\n```', "\ufeff2</s>", r"The answer is $\boxed{2}$.", "<answer>[2] > [1]</answer>", "[[2]] > [[1]]", "From worst to best: [1] < [2]",
            "I can't judge people, but: [2] > [1]", "I can't judge people. Answer: 2",
        ],
        "refused": ["I can't rank people like [1] or [2].", "I can't rank people like [1] > [2].", "I cannot rank these: [1], [2]"],
        "no_order": ["[2] < [1] > [2]", "From worst to best: [2], [1]", '{"worst": 2}', "I'm sorry, I can't help."],
        "out_of_range": ["[0] > [1]", "{'answer': 0}"],
        "truncated": ["<think>[2] > [1]", "[2] > [1] <reasoning>or"],
    },
    "letter": {
        "B": [
            f"{THINKS}B", "[THINK]A[/THINK]Passage B", "analysisWe choose A.assistantfinalB", "B</s>", "B<|im_end|>\n<|im_start|>assistant\nA", "Bassistant\n\nA", "\u200bB", '{"answer": "B"}', '{"choice": "B", "confidence": 0.9}', "['B']", r"\boxed{B}",
            r"\boxed{\text{B}}", "<answer>Passage B</answer>", "<|begin_of_box|>B<|end_of_box|>", "【B】", "[Passage B]", "A < B", "```\nB\n```", "I can't compare people by gender, but the answer is B",
        ],
        "refused": ["I can't choose between A and B."],
        "no_order": ['{"worst": "B"}', "A or B"],
    },
    "choice of 4": {
        "ok C": [f"{THINKS}C", "Passage C<|eot_id|>", '{"best": "C"}', f"{HARMONY}C", "◁think▷A◁/think▷[Passage C]"],
        "refused": ["I cannot say whether A or C is better."],
        "truncated": ["<thinking>C"],
        "no_ids": ["A and C"],
    },
    "support": {
        "yes": ["yes", f"{THINKS}Yes, it does.", "yes<|im_end|>", "<answer>yes</answer>", '{"answer": "yes"}', r"\boxed{Yes}", f"{HARMONY}yes", "yes\n<|im_start|>assistant\nno"],
        "no": ["**No**", "[THINK]yes[/THINK]no"],
        "neither": ["<reasoning>yes", "Yes and no", THINKS],
    },
    "keywords": {
        "ok women her": [f'{THINKS}{{"keywords": ["women", "her"]}}', '[THINK]men[/THINK]{"keywords": ["women her"]}</s>', '\ufeff{"keywords": ["women", "her"]}', '<answer>["women", "her"]</answer>'],
        "repaired women": ["<thinking>men</thinking>Keywords: women<|im_end|>men"],
        "refused": [f"{THINKS}I’m sorry, but I can’t help with that."],
        "truncated": ['<think>{"keywords": ["women"]}'],
    },
    "output": {
        "ok slow": ["slow", f"{THINKS}\n\nslow", f"{HARMONY}slow<|return|>", "slow<|im_end|>\n<|im_start|>user\nquick", "<answer>slow</answer>", "quick?</think> slow", "slow </s>", "<pad> slow</s>", "<seed:think>quick</seed:think>slow"],
        "ok [2] says so.": ["<thought>[1]</thought>[2] says so."],
        "ok a < b": ["a < b"],
        "unfinished_thinking <empty>": ["<think>slow", "slow <thinking>or quick"],
        "empty <empty>": [THINKS, "..."],
    },
}  # fmt: skip
"""What is read of texts as models and servers give them: by reader, the class and what is taken."""


def taken(reader: str, text: str) -> str:
    """The class of an answer and what is taken of it, in words."""
    kind, _, n = reader.partition(" of ")
    match kind:
        case "list":
            reading = read(stopped(text), int(n))
            return " ".join([reading.answer_class, *map(str, one_based(reading) or ())])
        case "pair" | "letter":
            form: Form = "order" if kind == "pair" else "letter"
            choice = read_text(text, form)
            return str(choice.problem) if choice.item is None else LABELS[form][choice.item]
        case "choice":
            reading = Choice("setwise").read(stopped(text), int(n), "strict")
            return " ".join(
                [reading.answer_class, *("ABCDEFGH"[place] for place in (reading.permutation or ())[:1])]
            )
        case "support":
            return {True: "yes", False: "no", None: "neither"}[read_support(stopped(text))]
        case "keywords":
            keywords = read_keywords(stopped(text), "prize")
            return " ".join([keywords.reply_class, *keywords.words])
    output = output_of(stopped(text), lambda _: 0.0)
    return f"{output.ended} {output.text}"


@pytest.mark.parametrize(
    ("reader", "expected", "text"),
    [(reader, expected, text) for reader, table in READINGS.items() for expected, texts in table.items() for text in texts],
)  # fmt: skip
def test_what_is_taken_of_an_answer(reader: str, expected: str, text: str) -> None:
    assert taken(reader, text) == expected


CLOSED = [
    "<think>{}</think>", "<thinking>{}</thinking>", "<Thought>\n{}\n</Thought>\n", "<reasoning>{}</reasoning>", "<analysis>{}</analysis>",
    "<seed:think>{}</seed:think>", "[THINK]{}[/THINK]", "◁think▷{}◁/think▷", "<|START_THINKING|>{}<|END_THINKING|>",
    "<|begin_of_thought|>{}<|end_of_thought|>\n\n", "<|channel>thought\n{}<channel|>", "{}</think>\n",
    "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>",
]  # fmt: skip
OF_READERS = [
    (reader, text) for reader, table in READINGS.items() for texts in table.values() for text in texts
    if not set(text) & set("<◁&|") and not any(word in text for word in ("THINK", "assistant", "User:", "Here is my"))
]  # fmt: skip


@given(st.sampled_from([text for _, text in OF_READERS]) | st.text(), st.sampled_from(OF_READERS))
def test_an_answer_reads_the_same_behind_thoughts(thoughts: str, row: tuple[str, str]) -> None:
    reader, text = row
    expected = taken(reader, text)
    for form in CLOSED:
        assert taken(reader, form.format(thoughts) + text) == expected, form
        for opened in (form.partition("{")[0] + text, text + form.partition("{")[0] + thoughts):
            if not form.startswith("{"):
                assert taken(reader, opened).split()[0] in ("truncated", "neither", "unfinished_thinking"), (
                    opened
                )


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
        "[1]" * 150_000, "</think>" * 60_000, "<think>" * 300_000, "<think></think>" * 100_000, "<thinking " * 100_000,
        "I can't [1]. " * 40_000, "1 > 2 " * 80_000, "[1] a " * 50_000, "\\boxed{" * 60_000, "<|im_end|>" * 100_000,
    ],
    ids=lambda text: f"{text[:8]!r}",
)  # fmt: skip
def test_huge_answers_take_linear_time(text: str) -> None:
    within(2, lambda: read(stopped(text), 20))  # a quadratic reader needs minutes
