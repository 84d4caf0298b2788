"""A generator of answers, its judge, and the loop that refines queries."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfair.errors import UsageError
from llmfair.metrics.attention import kullback_leibler, least_divergence
from llmfair.metrics.targets import UNKNOWN
from llmfair.metrics.texts import EMPTY
from llmfair.nouns import LABEL, Chat, Completion, Document, Finish, Labels, Message, Query, drive
from llmfair.prompts import Prompt, load_prompt
from llmfair.rankers import fair_qr, reader
from tests.models import chat_tokenizer, needs_local

from ..shared import vectors

ITEMS = {name: Document(name, f"of {name}", groups={"label": (name[0],)}) for name in ("a1", "b1", "a2")}


def asked(
    useful: frozenset[str] | None = None, lists: Sequence[reader.Shown] = (("a1", "b1"), ("a2", "a1"))
) -> reader.QueryTask:
    return reader.QueryTask(
        query=Query("q", "which?"),
        items=ITEMS,
        render=lambda shown: (Message("user", " ".join(shown)),),
        lists=lambda useful: lists,
        utility=lambda text: float(text == "right"),
        gain=lambda text: float(text == "right"),
        useful=useful,
    )


def read(
    program: reader.QueryTask, answer: Callable[[reader.Shown], str | Completion]
) -> tuple[reader.Read, list[reader.Shown]]:
    """What comes of a program, and what it asked about, in order."""
    seen: list[reader.Shown] = []

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
    assert found.lists[("a1", "b1")] == reader.Output("right", Finish.STOP, 1.0)


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
    said: dict[reader.Shown, Completion] = {
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


@pytest.mark.parametrize("finish", [Finish.LENGTH, Finish.REFUSED, Finish.EMPTY, Finish.FILTERED])
def test_an_answer_that_ended_badly_says_nothing(finish: Finish) -> None:
    assert reader.read_support(Completion("yes", finish)) is None


def judging(prompt: str, *pairs: tuple[str, str]) -> reader.Judging:
    return reader.Judging("q", STATED, pairs, load_prompt(prompt), "Its score is {output}.")


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
    assert found == reader.Support("q", dict(zip(pairs, [True, None, False], strict=True)))
    assert found.unparseable == 1
    assert drive(judging("rag/support").steps(), lambda chat: Completion("yes", Finish.STOP)).supported == {}


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
    read = fair_qr.read_keywords(Completion(reply, Finish.STOP), QUERY)
    assert (read.reply_class, " ".join(read.words)) == (reply_class, words)
    assert read.readable or not read.words
    assert all(word.isprintable() and not set(word) & set('()"*:~<>/{}[]') for word in read.words)


def test_without_a_form_a_plain_list_is_well_formed() -> None:
    for reply in ("women, her", "- women\n- her", "Keywords: women, her"):
        read = fair_qr.read_keywords(Completion(reply, Finish.STOP), QUERY, plain=True)
        assert (read.reply_class, read.words) == ("ok", ("women", "her"))


@pytest.mark.parametrize("depth", [100, 900, 5000, 100_000])
def test_deep_json_is_read_or_is_no_json(depth: int) -> None:
    read = fair_qr.read_keywords(Completion("[" * depth + '"women"' + "]" * depth, Finish.STOP), QUERY)
    assert read.words == ("women",)


# Questions and items cut to a context


class Spaced:
    """A tokenizer of words with the space before them, so that tokens put together are the text."""

    name_or_path = "mine/words"

    def __init__(self, model_max_length: int) -> None:
        self.model_max_length = model_max_length
        self.asked: list[str] = []

    def tokenize(self, text: str) -> list[str]:
        self.asked.append(text)
        return re.findall(r"\s*\S+", text)

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        return "".join(tokens)


def words(count: int, of: str = "w") -> str:
    return " ".join(f"{of}{number}" for number in range(count))


def item(doc_id: str, count: int = 3, label: str = "red", title: str = "") -> Document:
    return Document(doc_id, title, words(count, doc_id), {LABEL: (label,)})


def said(fitting: reader.Fitting, *doc_ids: str) -> str:
    (message,) = fitting.messages(doc_ids)
    return message.content


def of(name: str, context: int, question: str | tuple[str, str], *items: Document) -> reader.Fitting:
    parts = question if isinstance(question, tuple) else ("", question)
    return reader.Fitting(load_prompt(name), reader.by_tokens(Spaced(context)), parts, items)


def test_a_question_of_256_tokens_stays_and_one_more_is_cut() -> None:
    for count in (reader.QUESTION_TOKENS, reader.QUESTION_TOKENS + 1):
        shown = said(of("rag/lamp-7", 512, words(count), item("a", 2)), "a")
        assert shown.endswith(f" w{reader.QUESTION_TOKENS - 1}")


def test_without_items_a_question_of_the_whole_context_stays_and_one_more_is_cut() -> None:
    for count in (512, 513):
        assert said(of("rag/lamp-7", 512, words(count))) == words(512)
    assert said(of("rag/lamp-7", 512, "a\n\nb ")) == "a\n\nb ", "what is not cut stays as it is"


def test_items_share_what_the_question_leaves_and_the_whole_is_cut_to_the_context() -> None:
    items = [item(name, 200) for name in "abc"]
    fitting = of("rag/lamp-7", 512, words(101), *items)
    lines = fitting.lines("abc")
    assert [len(line.split()) for line in lines] == [(512 - 101) // 3] * 3
    assert [len(line.split()) for line in fitting.lines("b")] == [200], "one item alone is not cut"
    shown = said(fitting, *"abc")
    assert len(shown.split()) == 512
    # What joins the lines and follows them counts for nothing, as in the published experiment: the question loses it.
    assert shown.startswith(
        ", and ".join(lines) + " are written by a person. Following the given patterns w0 "
    )
    assert not shown.endswith("w100")


@pytest.mark.parametrize("name", ["rag/question", "rag/cited", "rag/label"])
def test_a_prompt_of_our_own_keeps_all_that_stands_behind_its_items(name: str) -> None:
    items = [item(doc_id, 900) for doc_id in "abcde"]
    for context in (300, 512, 4096):
        shown = said(of(name, context, words(40), *items), *"abcde")
        assert context - len(items) < len(shown.split()) <= context
        assert "w39" in shown and (name != "rag/label" or shown.endswith("Answer with one label alone."))
        assert [int(k) for k in re.findall(r"^\[(\d)\]", shown, re.MULTILINE)] == [1, 2, 3, 4, 5]


def test_an_items_number_is_not_cut_and_each_item_is_split_once() -> None:
    tokenizer = Spaced(512)
    items = [item(name, 400) for name in "ab"]
    fitting = reader.Fitting(load_prompt("rag/question"), reader.by_tokens(tokenizer), ("", "why?"), items)
    orders = ["ab", "ba", "a", "b", "ab"]
    shown = [said(fitting, *order) for order in orders]
    assert re.findall(r"^\[(\d)\] (\w)0", shown[1], re.MULTILINE) == [("1", "b"), ("2", "a")]
    assert shown[0] == shown[4]
    longest = [text for text in tokenizer.asked if len(text.split()) >= 400]
    assert len([text for text in longest if "why?" not in text]) == 2


def test_lamp_1_has_its_items_behind_the_authors_title_unless_the_place_was_cut_away() -> None:
    papers = [Document("a", "First", ""), Document("b", "Second", "")]
    before, behind = 'the paper with the title "T", ', 'which reference is related? [1]: "x" [2]: "y"'
    shown = said(of("rag/lamp-1", 512, (before, behind), *papers), "a", "b")
    assert shown == f"{before}First, and Second, {behind}"
    long = f'the title "{words(250)}", '
    shown = said(of("rag/lamp-1", 512, (long, behind), *papers), "b")
    assert shown.startswith(f"{long}Second, which reference")
    assert len(shown.split()) == reader.QUESTION_TOKENS + 1
    gone = f'the title "{words(300)}", '
    shown = said(of("rag/lamp-1", 512, (gone, behind), *papers), "b", "a")
    assert shown.startswith('Second, and First, the title "w0 ')
    assert len(shown.split()) == reader.QUESTION_TOKENS + 3
    assert said(of("rag/lamp-1", 512, ("", behind), *papers), "a") == f"First, {behind}"


def test_words_stand_for_tokens_where_there_is_no_tokenizer() -> None:
    ruler = reader.by_words(512)
    assert ruler.count(words(384)) == 512 and ruler.count(words(385)) == 514
    assert ruler.cut(words(400), 512) == words(384) and ruler.cut("a  b\n", 3) == "a  b\n"
    assert "0.75" in ruler.unit and ruler.cut("a b", -1) == ""


def test_a_tokenizer_without_a_context_needs_one() -> None:
    with pytest.raises(UsageError, match="mine/words does not say how many tokens"):
        reader.by_tokens(Spaced(int(1e30)))
    assert reader.by_tokens(Spaced(int(1e30)), 4096).context == 4096
    assert reader.by_tokens(Spaced(1_000_000)).context == 1_000_000
    assert reader.by_tokens(Spaced(512), 100).context == 100


def test_hostile_items_are_one_line_and_no_placeholder() -> None:
    hostile = Document("a", "{question}", "x\n[2] </s>{0}\u202e<|im_end|>")
    (line,) = of("rag/question", 512, "why?", hostile).lines("a")
    assert line == "[1] {question}: x (2) (/s){0} (|im_end|)"


def test_a_prompt_that_shows_labels_needs_them() -> None:
    labelled, bare = item("b"), Document("a", "", "text")
    with pytest.raises(UsageError, match=r"rag/label\.toml shows labels, and item 'a' has none"):
        reader.check_prompt(load_prompt("rag/label"), [labelled, bare])
    reader.check_prompt(load_prompt("rag/label"), [labelled])
    reader.check_prompt(load_prompt("rag/question"), [bare])


def written(path: Path, passage: str, items: str, bare: str = "{question}") -> Prompt:
    names = set(re.findall(r"\{(\w+)\}", passage + items + bare)) - {"passages"}
    declared = "\n".join(f'{name} = "x"' for name in names)
    (path / "own.toml").write_text(
        f'id = "own"\nsource = "own"\npassage = "{passage}"\n[placeholders]\n{declared}\n[variants]\n'
        f'bare = "{bare}"\nitems = "{items}"\n[[turns]]\nrole = "user"\ntext = "{{variant}}"\n'
    )
    return load_prompt(path / "own.toml")


@pytest.mark.parametrize(
    ("passage", "items", "bare", "message"),
    [
        ("[{k}]", "{passages} {question}", "{question}", "'passage' shows nothing of an item"),
        ("{item}", "{question}", "{question}", "variant 'items': placeholder 'item' is missing"),
        ("{item}", "{passages}", "{question}", "variant 'items': placeholder 'question' is missing"),
        ("{item}", "{passages} {question}", "none", "variant 'bare': placeholder 'question' is missing"),
        ("{itm}", "{passages} {question}", "{question}", "'passage' shows nothing of an item"),
    ],
)
def test_a_slip_in_a_prompt_of_ones_own_is_named(
    tmp_path: Path, passage: str, items: str, bare: str, message: str
) -> None:
    with pytest.raises(UsageError) as raised:
        reader.check_prompt(written(tmp_path, passage, items, bare))
    assert message in raised.value.message and "own.toml" in raised.value.message


def test_all_prompts_that_are_shipped_are_fit_and_listwise_is_not() -> None:
    for name in ("question", "cited", "label", *(f"lamp-{number}" for number in range(1, 8))):
        reader.check_prompt(load_prompt(f"rag/{name}"))
    with pytest.raises(UsageError, match="no variant 'bare'"):
        reader.check_prompt(load_prompt("listwise"))


def test_a_number_behind_the_text_is_part_of_the_line(tmp_path: Path) -> None:
    prompt = written(tmp_path, "{item} [{k}]", "{passages} {question}")
    fitting = reader.Fitting(prompt, reader.by_words(512), ("", "why?"), [item("a", 2), item("b", 2)])
    assert fitting.lines("ba") == ["b0 b1 [1]", "a0 a1 [2]"]


@pytest.mark.whole
def test_a_tokenizer_of_transformers_cuts_at_the_very_token(capfd: pytest.CaptureFixture[str]) -> None:
    needs_local()
    tokenizer: Any = chat_tokenizer()
    tokenizer.model_max_length = 512
    ruler: reader.Ruler = reader.by_tokens(tokenizer)
    text = words(400)
    for limit in (reader.QUESTION_TOKENS, ruler.context):
        assert ruler.count(text) > limit
        exact = ruler.cut(text, limit)
        assert ruler.count(exact) == limit and text.startswith(exact)
        assert ruler.cut(exact, limit) == exact
    fitting = reader.Fitting(load_prompt("rag/lamp-7"), ruler, ("", text), [item("a", 900), item("b", 900)])
    assert ruler.count(said(fitting, "a", "b")) == 512
    assert ruler.count(fitting.lines("ab")[0]) == (512 - reader.QUESTION_TOKENS) // 2
    assert not capfd.readouterr().err, "that a text is too long is no news here"


QUERY_OF_LOOP = Query("q1", "physicist laboratory prize")
TARGET = {"female": 0.5, "male": 0.5, UNKNOWN: 0.0}
USUAL = fair_qr.Stopping()
PROGRAM = fair_qr.FairQr(load_prompt("refine"), "gender", 4)


def page(*docs: str) -> fair_qr.Page:
    """A page of documents `f1`, `m2`, `u3`: the letter is the group."""
    letters = {"female": "f", "male": "m", UNKNOWN: "u"}
    shares = {name: sum(d[0] == letter for d in docs) / max(len(docs), 1) for name, letter in letters.items()}
    if not docs:
        return fair_qr.Page((), shares, None)
    p, q = (np.array([of[name] for name in TARGET]) for of in (shares, TARGET))
    return fair_qr.Page(docs, shares, kullback_leibler(p, q, 1e-6))


def topic(pages: Mapping[tuple[str, ...], fair_qr.Page], stopping: fair_qr.Stopping = USUAL) -> fair_qr.Topic:
    """Its documents are reordered by name."""
    return fair_qr.Topic(QUERY_OF_LOOP, TARGET, stopping, lambda added: pages[tuple(added)], sorted)


def answering(*texts: str | Completion) -> tuple[Callable[[Chat], Completion], list[Chat]]:
    """Answers in turn, and the chats that they answered."""
    waiting, asked = iter(texts), list[Chat]()

    def answer(chat: Chat) -> Completion:
        asked.append(chat)
        text = next(waiting)
        return Completion(text, Finish.STOP) if isinstance(text, str) else text

    return answer, asked


def ended(
    of: fair_qr.Topic, *texts: str | Completion, program: fair_qr.FairQr = PROGRAM
) -> tuple[fair_qr.Refined, list[Chat]]:
    answer, asked = answering(*texts)
    return drive(program.steps(of), answer), asked


SKEWED, NEARER = page("m1", "m2", "m3", "m4"), page("m1", "m2", "m3", "f1")
EVEN = page("m2", "f2", "m1", "f1")
WOMEN, HER = '{"keywords": ["women"]}', '{"keywords": ["her"]}'


SORRY = "I'm sorry, but I can't help with that."
CUT = Completion("wom", Finish.LENGTH)
ENDS: list[tuple[Any, ...]] = [
    ({(): SKEWED, ("women",): EVEN}, [WOMEN], fair_qr.Stop.ATTAINED, 1, ["ok"]),
    ({(): SKEWED}, [SORRY, ""], fair_qr.Stop.UNPARSEABLE, 0, ["refused", "empty"]),
    ({(): SKEWED, ("women",): EVEN}, [CUT, WOMEN], fair_qr.Stop.ATTAINED, 1, ["truncated", "ok"]),
    ({(): SKEWED}, ['{"keywords": ["Physicist", "PRIZE"]}'], fair_qr.Stop.NO_KEYWORDS, 0, ["ok"]),
    ({(): page()}, [], fair_qr.Stop.NO_RESULT, 0, []),
]


@pytest.mark.parametrize(("pages", "texts", "stop", "kept", "classes"), ENDS)
def test_why_a_loop_ends_and_what_it_keeps(
    pages: dict[tuple[str, ...], fair_qr.Page],
    texts: list[str | Completion],
    stop: fair_qr.Stop,
    kept: int,
    classes: list[str],
) -> None:
    """The page that is kept is ordered by the original query; what cannot be read is asked again as another draw."""
    found, asked = ended(topic(pages), *texts)
    assert (found.stop, found.kept.iteration, [c.draw for c in asked]) == (stop, kept, [0, 100][: len(texts)])
    assert [reply.read.reply_class for step in found.rounds for reply in step.replies] == classes
    assert found.final == tuple(sorted(found.kept.page.doc_ids))


def test_no_underrepresented_group() -> None:
    even = topic({(): page("m1", "m2", "f1", "f2"), ("list",): page("u1", "m2", "f1", "f2")})
    found, asked = ended(replace(even, stopping=fair_qr.Stopping(attained=-1.0)))
    assert (found.stop, asked) == (fair_qr.Stop.NO_UNDERREPRESENTED_GROUP, [])


@pytest.mark.parametrize("allowed", [False, True])
def test_unknown_is_asked_for_where_that_is_allowed(allowed: bool) -> None:
    """By the name that the prompt's shares give it, as in the paper."""
    pages = {(): page("m1", "m2", "f1", "f2"), ("list",): page("u1", "m2", "f1", "f2")}
    target = {"female": 0.4, "male": 0.4, UNKNOWN: 0.2}
    behind = replace(topic(pages, fair_qr.Stopping(1, attained=-1.0)), target=target)
    program = replace(PROGRAM, form="paper", allow_unknown=allowed)
    found, asked = ended(behind, *["list"] * allowed, program=program)
    if not allowed:
        assert (found.stop, asked) == (fair_qr.Stop.UNKNOWN_UNDERREPRESENTED, [])
        return
    assert [one.subgroup for one in found.rounds] == [None, UNKNOWN]
    text = asked[0].messages[0].content
    assert '"Unknown": 0.200' in text and text.endswith("you might want to include keywords about Unknown.")
    assert UNKNOWN not in text and asked[0].about["subgroup"] == "Unknown"


@pytest.mark.parametrize("worse", [page("m4", "m3", "m2", "m1"), page()])
def test_overshoot_returns_the_list_before_it(worse: fair_qr.Page) -> None:
    found, _ = ended(topic({(): SKEWED, ("women",): NEARER, ("women", "her"): worse}), WOMEN, HER)
    assert found.stop is fair_qr.Stop.NO_DECREASE
    assert [one.accepted for one in found.rounds] == [True, True, False]
    assert found.kept.page is NEARER and found.final == tuple(sorted(NEARER.doc_ids))


def test_words_accumulate_or_the_latest_replace_them() -> None:
    pages = {(): SKEWED, ("women",): NEARER, ("women", "her"): EVEN, ("her",): EVEN}
    added, chats = ended(topic(pages), WOMEN, HER)
    assert added.kept.added == ("women", "her") and added.kept.new == ("her",)
    assert "query: physicist laboratory prize women are" in chats[1].messages[0].content
    last, _ = ended(topic(pages), WOMEN, HER, program=replace(PROGRAM, keep="last"))
    assert last.kept.added == ("her",)


def test_what_the_model_is_told() -> None:
    _, (chat,) = ended(topic({(): SKEWED, ("women",): EVEN}), WOMEN)
    said = chat.messages[0].content
    assert '{"female": 0.500, "male": 0.500}, which shows' in said
    assert 'distribution of: {"female": 0.000, "male": 1.000}.' in said
    assert "first 4 documents" in said and "keywords about female.\n\nReply with one JSON object" in said
    about = {"task": "refine", "query_id": "q1", "iteration": 1, "subgroup": "female"}
    assert chat.about == {**about, "query": "physicist laboratory prize"}


def test_ties_go_to_the_first_group() -> None:
    target = {"b": 0.4, "a": 0.4, UNKNOWN: 0.2}
    assert fair_qr.most_underrepresented(target, {"b": 0.1, "a": 0.1, UNKNOWN: 0.0}) == "b"
    assert fair_qr.most_underrepresented(target, {"b": 0.2, "a": 0.1, UNKNOWN: 0.0}) == "a"
    assert fair_qr.most_underrepresented(target, {"b": 0.5, "a": 0.5, UNKNOWN: 0.0}) == UNKNOWN
    even = {"b": 0.5, "a": 0.5, UNKNOWN: 0.0}
    assert fair_qr.most_underrepresented(target, even, allow_unknown=False) is None
    # 0.3 - 0.1 is a little less than 0.4 - 0.2 as computed
    target, current = {"b": 0.3, "a": 0.4, "c": 0.3}, {"b": 0.1, "a": 0.2, "c": 0.7}
    assert fair_qr.most_underrepresented(target, current) == "b"


def test_the_same_shares_summed_in_another_order_are_no_nearer() -> None:
    for better, first, second in (
        ("lower", 0.04649266051035899, 0.04649266051035883),
        ("higher", 0.92, 0.92 + 1e-15),
    ):
        stopping = fair_qr.Stopping(better=better, attained=None)  # type: ignore[arg-type]
        assert stopping.after([first, second]) is fair_qr.Stop.NO_DECREASE
        assert stopping.kept([first, second]) == 0


@given(st.lists(st.floats(0, 2) | st.none(), min_size=1, max_size=8), st.integers(0, 6))
def test_what_is_accepted_falls_strictly(values: Sequence[float | None], most: int) -> None:
    stopping = fair_qr.Stopping(max_iterations=most)
    seen = next((values[:n] for n in range(1, len(values) + 1) if stopping.after(values[:n])), values)
    accepted = [np.inf if value is None else value for value in seen[: stopping.kept(seen) + 1]]
    assert all(after < before for before, after in itertools.pairwise(accepted))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=4).filter(lambda shares: sum(shares) > 1e-3),
    st.integers(1, 8),
    st.sampled_from(["current-target", "target-current"]),
)
def test_the_least_attainable_divergence_is_of_all_pages(shares: list[float], k: int, direction: str) -> None:
    target = np.array(shares) / sum(shares)

    def kl(counts: Sequence[int]) -> float:
        current = np.array(counts) / k
        pair = (current, target) if direction == "current-target" else (target, current)
        return kullback_leibler(*pair, 1e-6)

    pages = (one for one in itertools.product(range(k + 1), repeat=len(shares)) if sum(one) == k)
    assert least_divergence(target, k, direction) == pytest.approx(min(map(kl, pages)), abs=1e-12)


def test_the_least_attainable_divergence_of_the_published_example() -> None:
    assert least_divergence(np.array([0.61, 0.22, 0.01, 0.16]), 20) == pytest.approx(0.0124, abs=5e-5)


def test_reference_stopping() -> None:
    found = [case for case in vectors("fairqr_loop")["cases"] if "stopping" in case["tags"]]
    assert len(found) == 9
    for case in found:
        given_, expected = case["input"], case["expected"]
        stopping = fair_qr.Stopping(given_["max_refinements"], attained=given_["threshold"])
        values = given_["divergence_by_iteration"]
        n = next((n for n in range(1, len(values) + 1) if stopping.after(values[:n])), len(values))
        reason = {fair_qr.Stop.ATTAINED: "threshold", None: "exhausted"}.get(
            stop := stopping.after(values[:n]), str(stop)
        )
        assert (n - 1, stopping.kept(values[:n]), reason) == (
            expected["stopped_after_refinements"], expected["kept_iteration"], expected["reason"],
        ), case["id"]  # fmt: skip


def test_reference_groups() -> None:
    found = [case for case in vectors("fairqr_loop")["cases"] if "kl" in case["tags"]]
    assert len(found) == 12
    for case in found:
        names = case["input"]["groups"]
        target, current = (dict(zip(names, case["input"][of], strict=True)) for of in ("target", "current"))
        behind = case["expected"]["most_underrepresented_by_difference"]
        assert fair_qr.most_underrepresented(target, current) == behind
