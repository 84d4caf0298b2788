"""Replies as models give them: how each is read, and which words of it are searched."""

from __future__ import annotations

import time

import pytest

from llmfair.nouns import Completion, Finish
from llmfair.rankers.fair_qr import MOST_KEYWORDS, READABLE, read_keywords

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


def test_the_replies_are_of_every_class_but_what_a_server_says_itself() -> None:
    assert len(REPLIES) >= 30
    assert {of for _, of, _ in REPLIES} == {"ok", "repaired", "echo", "too_long", "refused", "empty"}


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
