from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import llmfair.prompts
from llmfair.errors import UsageError
from llmfair.nouns import Message
from llmfair.prompts import load_prompt, prompt_names, wording_of, wordings

SMALL = """
id = "small"
source = "ours"
passage = "[{k}] {title}"
answer = "[2] > [1]"
[placeholders]
query = "topic"
k = "number"
title = "title"
[[turns]]
role = "user"
text = "Rank for {query}:\\n{passages}\\nLike {answer}, as {{json}}."
"""


SHA256 = {
    "first": "2288a213", "listwise": "944df3d9", "listwise-fair": "32a0f6ab", "listwise-general": "0a24fe13",
    "listwise-general-fair": "764980db", "neural": "6ad24740", "pairwise": "fa947e2a", "pairwise-general": "4d105c7d",
    "pairwise-scores": "ccc9062e", "pairwise-sort": "59ced2df", "pointwise": "aef9e01e", "rag/cited": "b5b54928",
    "rag/entailment": "83bb17b9", "rag/label": "51d58171", "rag/lamp-1": "0d172a72", "rag/lamp-2": "e2cea120",
    "rag/lamp-3": "3d6de164", "rag/lamp-4": "a5bc7992", "rag/lamp-5": "e64b21ef", "rag/lamp-6": "98eb4bf9",
    "rag/lamp-7": "e46b37d9", "rag/question": "9696dcf0", "rag/support": "19dec28b", "refine": "82eed617",
    "scores": "424dbd8a", "setwise": "2cd1f510", "tournament": "65c312e3",
}  # fmt: skip
"""How that of each shipped prompt begins: another text is another audit."""


def written(folder: Path, text: str, name: str = "mine.toml") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def refusal(folder: Path, text: str) -> str:
    """What is wrong with a prompt file; the message must name the file."""
    with pytest.raises(UsageError) as raised:
        load_prompt(written(folder, text))
    assert "mine.toml" in raised.value.message
    assert raised.value.hint
    return raised.value.message


def test_the_shipped_prompts_are_listed_and_load() -> None:
    assert {name: load_prompt(name).sha256[:8] for name in prompt_names()} == SHA256
    for name in prompt_names():
        prompt = load_prompt(name)
        assert prompt.id == name and prompt.source


def test_a_prompt_is_known_by_the_sha256_of_its_bytes(tmp_path: Path) -> None:
    prompt = load_prompt(written(tmp_path, SMALL))
    assert prompt.sha256 == hashlib.sha256((tmp_path / "mine.toml").read_bytes()).hexdigest()
    assert prompt.text == SMALL


@pytest.mark.parametrize("name", wordings("listwise"))
@pytest.mark.parametrize("word", ["male", "female", "European", "non-European"])
def test_the_sensitive_prompt_minus_its_word_is_the_neutral_one(word: str, name: str) -> None:
    prompt = load_prompt(name, "listwise")
    values = {"query": "physics", "n": 2}
    passages = [{"k": 1, "title": "Ada"}, {"k": 2, "title": "Bob"}]
    neutral = prompt.render(values, "neutral", passages)
    sensitive = prompt.render({**values, "word": word}, "sensitive", passages)
    assert sensitive[1:] == neutral[1:]
    assert sensitive[0].content.count(f"{word} ") == 1
    assert sensitive[0].content.replace(f"{word} ", "") == neutral[0].content


def test_filling_is_one_pass() -> None:
    prompt = load_prompt("listwise")
    passages = [{"k": 1, "title": "{query} {n} {0} {{x}}"}, {"k": 2, "title": "}{"}]
    messages = prompt.render({"query": "{title} }{", "n": 2}, "neutral", passages)
    assert messages[3].content == "[1] {query} {n} {0} {{x}}"
    assert messages[5].content == "[2] }{"
    assert messages[1].content.startswith("Search Query: {title} }{. Rank")


def test_another_wording_may_hold_all_passages_in_one_message(tmp_path: Path) -> None:
    prompt = load_prompt(written(tmp_path, SMALL))
    messages = prompt.render(
        {"query": "physics"}, passages=[{"k": 1, "title": "Ada"}, {"k": 2, "title": "Bob"}]
    )
    assert messages == (Message("user", "Rank for physics:\n[1] Ada\n[2] Bob\nLike [2] > [1], as {json}."),)


def test_a_prompt_may_have_neither_passages_nor_variants(tmp_path: Path) -> None:
    text = (
        'id = "x"\nsource = "y"\n[placeholders]\n"Target Share" = "JSON"\n'
        '[[turns]]\nrole = "user"\ntext = "Reach {Target Share}"\n'
    )
    prompt = load_prompt(written(tmp_path, text))
    assert prompt.render({"Target Share": '{"a": 0.5}'})[0].content == 'Reach {"a": 0.5}'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('id = "small"', "id = ", "line 2"),
        ('id = "small"', "", "Object missing required field `id`"),
        (
            "{query}",
            "{qeury}",
            "'qeury' has to be both in the text and under [placeholders]. Did you mean 'query'?",
        ),
        ("{query}", "it", "'query' has to be both in the text"),
        ("{query}", "{query!r}", "placeholder 'query' must be a bare name"),
        ("{query}", "{}", "placeholder '' must be a bare name"),
        ("{query}", "{query}}", "Single '}'"),
        ('query = "topic"', 'query = "topic"\nanswer = "x"', "'answer' has to be both"),
        ('role = "user"', "", "missing required field `role` - at `$.turns[0]`"),
        ('role = "user"', 'role = "user"\neach = "passage"', "{passages} cannot be filled"),
    ],
)
def test_a_slip_in_a_file_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert message in refusal(tmp_path, SMALL.replace(old, new, 1))


def test_other_broken_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.toml cannot be read: No such file"):
        load_prompt("absent.toml")
    (tmp_path / "latin.toml").write_bytes(b'id = "\xe9"')
    with pytest.raises(UsageError, match=r"latin\.toml is not TOML: 'utf-8'"):
        load_prompt(tmp_path / "latin.toml")
    assert "Expected `array` of length >= 1" in refusal(tmp_path, 'id = "x"\nsource = "y"\nturns = []\n')


@pytest.mark.parametrize("task", ["listwise", "pairwise"])
def test_a_task_has_a_prompt_for_items_of_any_sort_and_the_papers(task: str) -> None:
    assert wordings(task) == {"general": f"{task}-general", "wikiproject": task}
    for wording, name in wordings(task).items():
        assert load_prompt(wording, task) == load_prompt(name)
        assert wording_of(wording, task) == wording_of(name, task) == wording
    assert wording_of("mine.toml", task) == "mine.toml"


def test_a_wording_without_its_task_is_several_prompts() -> None:
    assert wordings("neural") == {}
    with pytest.raises(UsageError, match="'general' is a prompt of several tasks") as raised:
        load_prompt("general")
    assert raised.value.hint == "choose listwise-general or pairwise-general"
    with pytest.raises(UsageError, match=r"no prompt 'genral'\. Did you mean 'general'\?"):
        load_prompt("genral", "listwise")


def test_a_value_that_is_not_given_is_named() -> None:
    prompt = load_prompt("listwise")
    with pytest.raises(UsageError, match=r"listwise\.toml: placeholder 'word' has no value"):
        prompt.render({"query": "x", "n": 0}, "sensitive")
    with pytest.raises(UsageError, match=r"no variant 'neutra'\. Did you mean 'neutral'\?"):
        prompt.render({}, "neutra")


def test_passages_in_one_message_count_as_used(tmp_path: Path) -> None:
    prompt = load_prompt(written(tmp_path, SMALL))
    prompt.expect({"query", "k", "title"}, {"query", "k", "title"})
    with pytest.raises(UsageError, match="placeholder 'title' is unknown"):
        prompt.expect({"query", "k"})


def test_a_folder_beside_the_module_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "prompts" / "rag").mkdir(parents=True)
    written(tmp_path / "prompts" / "rag", SMALL, "one.toml")
    monkeypatch.setattr(llmfair.prompts, "__file__", str(tmp_path / "prompts.py"))
    assert prompt_names() == ["rag/one"]
    assert load_prompt("rag/one").file == "prompts/rag/one.toml"


LINES = [{"title": "T1", "text": "x1", "label": "a"}, {"title": "T2", "text": "x2", "label": "b"}]
LAMP = {
    1: "T1, and T2, Q",
    2: "the tag for the movie: x1 is a, and the tag for the movie: x2 is b. Q",
    3: "a is the score for x1, and b is the score for x2. Q",
    4: "T1 is the title for x1, and T2 is the title for x2. Q",
    5: "T1 is the title for x1, and T2 is the title for x2. Following the given patterns Q",
    6: "a is the title for x1, and b is the title for x2. Q",
    7: "x1, and x2 are written by a person. Following the given patterns Q",
}


@pytest.mark.parametrize("number", LAMP)
def test_lamp_prompts_join_items_as_published(number: int) -> None:
    prompt = load_prompt(f"rag/lamp-{number}")
    (message,) = prompt.render({"question": "Q"}, "items", LINES)
    assert message.content == LAMP[number]
    assert prompt.render({"question": "Q"}, "bare")[0].content == "Q"
    assert prompt.budget == "question"


def test_lamp_1_puts_items_behind_the_authors_title() -> None:
    values = {"before": 'the paper with the title "A", ', "behind": "which reference is related?"}
    (message,) = load_prompt("rag/lamp-1").render(values, "split", LINES)
    assert message.content == 'the paper with the title "A", T1, and T2, which reference is related?'


@pytest.mark.parametrize("line", ['hypothesis = "It is red."', 'hypothesis = "{output} {query}"'])
def test_a_slip_in_a_key_on_items_is_named(tmp_path: Path, line: str) -> None:
    assert "'hypothesis' has one placeholder, {output}" in refusal(tmp_path, f"{line}\n{SMALL}")


def test_what_stands_between_passages_can_be_chosen(tmp_path: Path) -> None:
    prompt = load_prompt(written(tmp_path, 'join = " | "\n' + SMALL))
    shown = prompt.render({"query": "q"}, passages=[{"k": 1, "title": "Ada"}, {"k": 2, "title": "Bob"}])
    assert shown[0].content.splitlines()[1] == "[1] Ada | [2] Bob"
