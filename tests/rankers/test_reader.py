"""A generator's program, sent its answers by hand: labels first, then the lists of all settings, each once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest

from llmfair.metrics.texts import EMPTY
from llmfair.nouns import Chat, Completion, Document, Finish, Labels, Message, Query, drive
from llmfair.prompts import load_prompt
from llmfair.rankers.fair_qr import MOST_KEYWORDS, READABLE, read_keywords
from llmfair.rankers.reader import Asked, Judged, Judging, Output, Read, Shown, read_support

ITEMS = {
    name: Document(name, f"title of {name}", groups={"label": (name[0],)}) for name in ("a1", "b1", "a2")
}


def asked(
    useful: frozenset[str] | None = None, lists: Sequence[Shown] = (("a1", "b1"), ("a2", "a1"))
) -> Asked:
    return Asked(
        query=Query("q", "which?"),
        items=ITEMS,
        render=lambda shown: (Message("user", " ".join(shown)),),
        lists=lambda useful: lists,
        utility=lambda text: float(text == "right"),
        gain=lambda text: float(text == "right"),
        useful=useful,
    )


def read(program: Asked, answer: Callable[[Shown], str | Completion]) -> tuple[Read, list[Shown]]:
    """What comes of a program, and what it asked about, in order."""
    seen: list[Shown] = []

    def answered(chat: Chat) -> Completion:
        shown = tuple(chat.about["doc_ids"])
        seen.append(shown)
        said = answer(shown)
        return said if isinstance(said, Completion) else Completion(said, Finish.STOP)

    return drive(program.steps(), answered), seen


def test_gains_are_what_one_item_adds_and_lists_come_after() -> None:
    """a1 and a2 lead to the right answer alone, nothing and b1 do not."""
    found, seen = read(asked(), lambda shown: "right" if any(name[0] == "a" for name in shown) else "wrong")
    assert seen == [(), ("a1",), ("b1",), ("a2",), ("a1", "b1"), ("a2", "a1")]
    assert found.gains == {"a1": 1.0, "b1": 0.0, "a2": 1.0} and found.useful == {"a1", "a2"} and found.kept
    assert found.lists[("a1", "b1")] == Output("right", Finish.STOP, 1.0)


def test_an_item_that_changes_nothing_or_harms_is_not_useful() -> None:
    found, seen = read(asked(), lambda shown: "wrong" if shown == ("b1",) else "right")
    assert found.gains == {"a1": 0.0, "b1": -1.0, "a2": 0.0}
    assert not found.useful and not found.kept and len(seen) == 4


@pytest.mark.parametrize("useful", [1, 2])
def test_with_fewer_than_two_useful_items_no_list_is_asked_about(useful: int) -> None:
    helps = [("a1",), ("b1",)][:useful]
    found, seen = read(asked(), lambda shown: "right" if shown in helps else "wrong")
    assert len(found.useful) == useful and (len(seen) > 4) == found.kept == (useful == 2)


def test_judged_items_need_no_labels() -> None:
    found, seen = read(asked(frozenset({"a1", "b1"})), lambda shown: "right")
    assert seen == [("a1", "b1"), ("a2", "a1")] and found.gains == {} and found.kept
    found, seen = read(asked(frozenset({"a1"})), lambda shown: "right")
    assert seen == [] and not found.kept


def test_outputs_that_are_no_answers_count_as_they_stand() -> None:
    said: dict[Shown, Completion] = {
        ("a1", "b1"): Completion("right", Finish.LENGTH),
        ("a2", "a1"): Completion(" . .. ", Finish.STOP),
    }
    found, _ = read(asked(frozenset({"a1", "b1"})), lambda shown: said[shown])
    cut, empty = found.lists.values()
    assert (cut.unparseable, cut.utility) == (True, 1.0)
    assert (empty.text, empty.unparseable, empty.utility) == (EMPTY, True, 0.0)


def test_the_question_tells_a_simulated_reader_the_labels() -> None:
    chat = asked().chat(("b1", "a2"))
    assert chat.about == {"task": "rag", "query_id": "q", "doc_ids": ["b1", "a2"], "labels": ["b", "a"]}
    assert chat.messages[0].content == "b1 a2"


# What a judge is asked about items and outputs, and how its answers are read


STATED = {
    "a": Document("a", "Rhine", "It flows\nthrough Basel </s> [1]."),
    "b": Document("b", "", "A lamp.", {"label": ("4",)}),
}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("yes", True),
        ("No.", False),
        ("**Yes**", True),
        ("YES, the item says so.", True),
        ("no\nIt speaks of something else.", False),
        ("Answer: no", False),
        ("The answer is yes", True),
        ("<think>no, or yes?</think>yes", True),
        ("Yes and no", None),
        ("No doubt: yes", None),
        ("Nothing", None),
        ("", None),
        ("It does.", None),
        ('{"supported": true}', True),
        ("Yes, but no", None),
        ("Yes\n\nNo, actually", None),
    ],
)
def test_an_answer_is_yes_or_no_or_neither(text: str, says: bool | None) -> None:
    assert read_support(Completion(text, Finish.STOP)) is says


@pytest.mark.parametrize("finish", [Finish.LENGTH, Finish.REFUSED, Finish.EMPTY, Finish.FILTERED])
def test_an_answer_that_ended_badly_says_nothing(finish: Finish) -> None:
    assert read_support(Completion("yes", finish)) is None


def judging(prompt: str, *pairs: tuple[str, str]) -> Judging:
    return Judging("q", STATED, pairs, load_prompt(prompt), "Its score is {output}.")


def test_a_question_shows_the_item_and_what_the_output_claims() -> None:
    chat = judging("rag/support").chat(("a", "{k} 4\n<|end|>"))
    assert chat.expects == Labels(("yes", "no"))
    (message,) = chat.messages
    assert "Item: Rhine: It flows through Basel (/s) (1)." in message.content
    assert "Statement: Its score is {k} 4 (|end|)." in message.content
    premise, hypothesis = judging("rag/entailment").chat(("b", "4")).messages
    assert (premise.content, hypothesis.content) == ("A lamp.", "Its score is 4.")
    assert judging("rag/support").chat(("b", "4")).about == {
        "task": "support", "query_id": "q", "doc_ids": ["b"], "label": "4", "output": "4",
    }  # fmt: skip


def test_answers_go_with_their_pairs_and_those_that_cannot_be_read_are_counted() -> None:
    pairs = ("a", "4"), ("b", "4"), ("b", "5")
    said = iter(["yes", "perhaps", "no"])
    found = drive(judging("rag/support", *pairs).steps(), lambda chat: Completion(next(said), Finish.STOP))
    assert found == Judged("q", dict(zip(pairs, [True, None, False], strict=True)))
    assert found.unparseable == 1
    assert drive(judging("rag/support").steps(), lambda chat: Completion("yes", Finish.STOP)).supported == {}


# Replies as models give them


QUERY = "physicist laboratory prize"
FORTY = " ".join(f"word{n}" for n in range(40))

REPLIES: list[tuple[str, str, str]] = [
    # as asked
    ('{"keywords": ["women scientists", "her"]}', "ok", "women scientists her"),
    ('{"keywords": ["女性", "científica"]}', "ok", "女性 científica"),
    ('{"keywords": "women"}', "ok", "women"),
    ('["women", "female"]', "ok", "women female"),
    ('{"keywords": [{"word": "women", "weight": 2}, ["her"]]}', "ok", "women her"),
    ('{"terms": ["women"], "n": 1}', "ok", "women"),
    ('{"keywords": ["women\x00\x1b[31m", "her\n"]}', "ok", "women 31m her"),
    ('{"refined_keywords": ["women\'s"]}\n', "ok", "women's"),
    ("<think>Perhaps women?</think>\n{\"keywords\": [\"women\"]}", "ok", "women"),
    ('{"keywords": ["women) OR (title:*", "her\\u0000 AND\\u202e"]}', "ok", "women title her"),
    ('{"keywords": ["women prize", "Physicist", "her"]}', "ok", "women her"),
    ('{"keywords": ["</script>"]}', "ok", "script"),
    # in another form
    ('```json\n{"keywords": ["women scientists"]}\n```', "repaired", "women scientists"),
    ("```\nwomen, her\n```", "repaired", "women her"),
    ('Sure! Here are the keywords: {"keywords": ["women"]}. Hope this helps!', "repaired", "women"),
    ("Here is a list of relevant keywords:\n1. women scientists\n2. her", "repaired", "women scientists her"),
    ("Here is a list of relevant keywords:\n- **Women**: names the group\n- her", "repaired", "Women her"),
    ("Here are the refined keywords: women, female scientists", "repaired", "women female scientists"),
    ("**Keywords:** women | her", "repaired", "women her"),
    ('To reach more of that group I would add "women" and “her” to the query.', "repaired", "women her"),
    ("women, her\n\nThese keywords should bring more pages about women.", "repaired", "women her"),
    ("women scientists", "repaired", "women scientists"),
    ('women AND (her OR "female*")', "repaired", "women her female"),
    ('{"keywords": ["a","b","c","d","e","f","g","h","i"]}', "repaired", "a b c d e f g h"),
    # the query again
    (QUERY, "echo", ""),
    (f"Refined query: {QUERY} women scientists", "echo", "women scientists"),
    (f'{{"keywords": ["{QUERY} women"]}}', "echo", "women"),
    # nothing that could be searched
    (FORTY, "too_long", ""),
    (f'{{"keywords": ["{FORTY}"]}}', "too_long", ""),
    ("I'm sorry, but I can't help with that.", "refused", ""),
    ("As an AI, I do not target people by gender.", "refused", ""),
    ("I cannot assist with refining queries by gender.", "refused", ""),
    ('{"keywords": []}', "empty", ""),
    ("   \n\n", "empty", ""),
    ("…", "empty", ""),
]  # fmt: skip


@pytest.mark.parametrize(("reply", "reply_class", "words"), REPLIES)
def test_a_reply_and_what_of_it_is_searched(reply: str, reply_class: str, words: str) -> None:
    read = read_keywords(Completion(reply, Finish.STOP), QUERY)
    assert (read.reply_class, " ".join(read.words)) == (reply_class, words)
    assert read.readable or not read.words
    assert all(word.isprintable() and not set(word) & set('()"*:~<>/{}[]') for word in read.words)


@pytest.mark.parametrize(
    ("finish", "reply_class"),
    [
        (Finish.LENGTH, "truncated"),
        (Finish.UNFINISHED_THINKING, "truncated"),
        (Finish.FILTERED, "refused"),
        (Finish.REFUSED, "refused"),
        (Finish.EMPTY, "empty"),
    ],
)
def test_a_reply_that_did_not_end_by_itself(finish: Finish, reply_class: str) -> None:
    read = read_keywords(Completion('{"keywords": ["women"]}', finish), QUERY)
    assert read.reply_class == reply_class and read.reply_class not in READABLE


def test_without_a_form_a_plain_list_is_well_formed() -> None:
    for reply in ("women, her", "- women\n- her", "Keywords: women, her"):
        read = read_keywords(Completion(reply, Finish.STOP), QUERY, plain=True)
        assert (read.reply_class, read.words) == ("ok", ("women", "her"))


def test_keywords_beyond_the_most_are_cut() -> None:
    read = read_keywords(Completion(", ".join("abcdefghij"), Finish.STOP), QUERY)
    assert len(read.words) == MOST_KEYWORDS


@pytest.mark.parametrize("depth", [100, 900, 5000, 100_000])
def test_deep_json_is_read_or_is_no_json(depth: int) -> None:
    read = read_keywords(Completion("[" * depth + '"women"' + "]" * depth, Finish.STOP), QUERY)
    assert read.words == ("women",)


@pytest.mark.parametrize("mark", ["{", "[", '"', "```\n", "- ", "keywords: ", "“", "a:", "\n", "'", "*"])
def test_reading_is_linear_in_what_a_model_writes(mark: str) -> None:
    began = time.perf_counter()
    read_keywords(Completion(mark * 100_000, Finish.STOP), QUERY)
    assert time.perf_counter() - began < 2
