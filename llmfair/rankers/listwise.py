"""Listwise ranking with a sliding window: a model orders a few passages at a time, from the tail to the head.

Each window stands on the result of the one before, each pass on the result of the last (Sun et al. 2023; as
used by Wang et al. 2024, 3.2.1). What the model shows of itself on the way is kept for every window.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from llmfair.errors import UsageError, did_you_mean
from llmfair.prompts import Prompt
from llmfair.rankers.answers import (
    READERS,
    AnswerClass,
    ReaderName,
    Reading,
    UnreadableAnswer,
    read,
)
from llmfair.rankers.passages import WORDS, Input, clean, passage
from llmfair.rankers.windows import PLANS, Window, check_window, sent
from llmfair.records import (
    Attribute,
    Chat,
    Permutation,
    Probe,
    Ranking,
    Side,
)
from llmfair.steps import Steps

Place = Literal["tail", "middle", "head"]
# A bad answer is asked again with draws 100, 101, …; of draw 1 with 200, 201, …, so repeats share no answer.
RETRY_DRAWS = 100


@dataclass(frozen=True, slots=True)
class WindowAnswer:
    """One window and what its answer did.

    `place`: the first window of a pass is its tail, the last (and an only one) its head. `repaired`: a bad
    answer of which something could be used; `unreadable`: one that left the window as it was. `permutation`: the
    places of the window in the order that the readable answer gives them. `omitted`: shown, but not named by it.
    `replaced`: the classes of the bad answers that this one, a later draw, stands in for.
    """

    pass_number: int
    start: int
    end: int
    place: Place
    answer_class: AnswerClass
    repaired: bool
    unreadable: bool
    permutation: tuple[int, ...] | None
    readers_differ: bool
    shown: tuple[str, ...]
    omitted: tuple[str, ...]
    draw: int
    replaced: tuple[AnswerClass, ...] = ()

    @property
    def identity(self) -> bool:
        """Whether a readable answer is the window's own order."""
        return self.permutation == tuple(range(len(self.shown)))


@dataclass(frozen=True, slots=True)
class Ranked:
    """A probe's final order, and every window on the way to it."""

    ranking: Ranking
    windows: tuple[WindowAnswer, ...]


@dataclass(frozen=True)
class ListwiseRanker:
    """The settings of a listwise ranking; `steps` makes the program of one probe.

    `depth` ranks the first N candidates only, the others keep their place. `on_bad_answer`: `repair`,
    `retry`, `retry:N` or `fail`. Raises UsageError for settings that cannot rank.
    """

    prompt: Prompt
    attribute: Attribute
    window: int = 20
    step: int = 10
    passes: int = 3
    depth: int | None = None
    windows: str = "covering"
    reader: ReaderName = "strict"
    on_bad_answer: str = "repair"
    input: Input = "title"
    words: int = WORDS

    def __post_init__(self) -> None:
        check_window(self.window, self.step)
        for flag, number in [("passes", self.passes), ("depth", self.depth), ("words", self.words)]:
            if number is not None and number < 1:
                raise UsageError(f"--{flag} {number} leaves nothing to rank.", f"use --{flag} 1 or more")
        _check_choice("windows", self.windows, PLANS)
        _check_choice("read", self.reader, READERS)
        _check_choice("input", self.input, ("title", "text"))
        retries_of(self.on_bad_answer)
        needed = {"query", "k", "title"}
        self.prompt.expect({*needed, "n"}, needed, "neutral")
        self.prompt.expect({*needed, "n", "word"}, {*needed, "word"}, "sensitive")

    def plan(self, n: int) -> list[Window]:
        """The windows of one pass over n candidates that are sent to the model."""
        return sent(PLANS[self.windows](n, self.window, self.step, 0, self.depth), n)

    def calls(self, n: int) -> int:
        """Chats per probe of n candidates; retries of bad answers come on top."""
        return self.passes * len(self.plan(n))

    def steps(self, probe: Probe) -> Steps[Ranked]:
        """Ranks a probe's candidates. Raises UnreadableAnswer for a bad answer if the policy is `fail`."""
        questions = _Questions(self, probe)
        documents = probe.candidates.documents
        order = list(range(len(documents)))
        plan = self.plan(len(documents))
        answers = []
        for pass_number in range(1, self.passes + 1):
            for number, (start, end) in enumerate(plan):
                shown = order[start:end]
                asked = yield from self._ask(questions.chat(shown, pass_number, start, end))
                if asked.reading.permutation is not None:
                    order[start:end] = [shown[place] for place in asked.reading.permutation]
                answers.append(_window_answer(asked, _place(number, len(plan))))
        doc_ids = tuple(documents[index].doc_id for index in order)
        return Ranked(Ranking(probe.candidates.query.query_id, doc_ids), tuple(answers))

    def _ask(self, chat: Chat) -> Steps[_Asked]:
        """Asks once, and again while the answer is bad and the policy allows; the last answer counts."""
        n = len(chat.about["doc_ids"])
        (completion,) = yield [chat]
        reading = read(completion, n, self.reader)
        replaced: tuple[AnswerClass, ...] = ()
        first_retry = RETRY_DRAWS * (chat.draw + 1)
        for draw in range(first_retry, first_retry + retries_of(self.on_bad_answer)):
            if not _is_bad(reading):
                break
            replaced += (reading.answer_class,)
            chat = replace(chat, draw=draw)
            (completion,) = yield [chat]
            reading = read(completion, n, self.reader)
        if self.on_bad_answer == "fail" and _is_bad(reading):
            start, end = chat.about["window"]
            raise UnreadableAnswer(
                f"query '{chat.about['query_id']}', pass {chat.about['pass']}, window [{start}, {end}): "
                f"a bad answer ({reading.answer_class}).",
                "--on-bad-answer repair counts it and goes on",
            )
        return _Asked(chat, reading, replaced)


def retries_of(on_bad_answer: str) -> int:
    """How often a policy asks again after a bad answer. Raises UsageError for an unknown policy."""
    match on_bad_answer.split(":"):
        case ["repair"] | ["fail"]:
            return 0
        case ["retry"]:
            return 1
        case ["retry", count] if count.isdecimal() and len(count) <= 2 and int(count):
            return int(count)
    known = ("repair", "retry", "fail")
    raise UsageError(
        f"--on-bad-answer '{on_bad_answer}' is no policy.{did_you_mean(on_bad_answer, known)}",
        "repair, retry, retry:N (N from 1 to 99) or fail",
    )


class _Item(NamedTuple):
    """A candidate as a question shows it, and what is noted about it."""

    doc_id: str
    title: str
    side: str | None
    relevance: int


class _Questions:
    """The chats of one probe. What its windows share is made once: a run asks 100,000 of them."""

    def __init__(self, ranker: ListwiseRanker, probe: Probe) -> None:
        query = probe.candidates.query
        side = _side_named_by(probe.variant, ranker.attribute)
        self.ranker, self.candidates = ranker, probe.candidates
        self.items: dict[int, _Item] = {}
        self.draw = probe.draw
        self.wording = "neutral" if side is None else "sensitive"
        self.values = {"query": clean(query.text)}
        if side is not None:
            self.values["word"] = ranker.attribute.words[side]
        self.about = {
            "task": "listwise",
            "query_id": query.query_id,
            "variant": probe.variant,
            "names": side and side.value,
        }

    def chat(self, shown: Sequence[int], pass_number: int, start: int, end: int) -> Chat:
        """The question about the candidates `shown`, by their index in the probe."""
        items = [self.items.get(index) or self._item(index) for index in shown]
        passages = [{"k": k, "title": item.title} for k, item in enumerate(items, start=1)]
        messages = self.ranker.prompt.render({**self.values, "n": len(shown)}, self.wording, passages)
        about = {
            **self.about,
            "doc_ids": [item.doc_id for item in items],
            "sides": [item.side for item in items],
            "relevance": [item.relevance for item in items],
            "pass": pass_number,
            "window": [start, end],
        }
        return Chat(messages, Permutation(len(shown)), self.draw, about)

    def _item(self, index: int) -> _Item:
        """A candidate when it is first shown: so the first question need not wait for all."""
        ranker, document = self.ranker, self.candidates.documents[index]
        side = ranker.attribute.side(document)
        self.items[index] = item = _Item(
            document.doc_id,
            passage(document, ranker.input, ranker.words),
            side and side.value,
            self.candidates.relevance.get(document.doc_id, 0),
        )
        return item


@dataclass(frozen=True, slots=True)
class _Asked:
    """The chat whose answer counts, what was read, and the bad answers it replaced."""

    chat: Chat
    reading: Reading
    replaced: tuple[AnswerClass, ...]


def _window_answer(asked: _Asked, place: Place) -> WindowAnswer:
    reading, about = asked.reading, asked.chat.about
    shown, permutation = tuple(about["doc_ids"]), reading.permutation
    return WindowAnswer(
        pass_number=about["pass"],
        start=about["window"][0],
        end=about["window"][1],
        place=place,
        answer_class=reading.answer_class,
        repaired=permutation is not None and reading.answer_class is not AnswerClass.OK,
        unreadable=permutation is None,
        permutation=permutation,
        readers_differ=reading.readers_differ,
        shown=shown,
        omitted=() if permutation is None else tuple(shown[place] for place in permutation[reading.named :]),
        draw=asked.chat.draw,
        replaced=asked.replaced,
    )


def _place(number: int, count: int) -> Place:
    if number == count - 1:
        return "head"
    return "tail" if number == 0 else "middle"


def _is_bad(reading: Reading) -> bool:
    # The rankgpt reader can fail on an answer that the strict one finds ok (superscript digits).
    return reading.answer_class is not AnswerClass.OK or reading.permutation is None


def _side_named_by(variant: str, attribute: Attribute) -> Side | None:
    """The side a prompt variant names, None for neutral. Raises UsageError for an unknown variant."""
    if variant not in attribute.variants:
        raise UsageError(
            f"attribute '{attribute.name}' has no prompt variant '{variant}'."
            f"{did_you_mean(variant, attribute.variants)}",
            f"known: {', '.join(attribute.variants)}",
        )
    return attribute.variants[variant]


def _check_choice(flag: str, choice: str, known: Collection[str]) -> None:
    if choice not in known:
        raise UsageError(
            f"--{flag} '{choice}' is unknown.{did_you_mean(choice, known)}", f"known: {', '.join(known)}"
        )
