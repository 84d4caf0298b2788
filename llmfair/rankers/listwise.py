"""Listwise ranking: a model orders a few passages at a time, which ones a strategy says.

Here a question is worded, its answer read, and asked again where it is bad. What the model shows of itself on the way
is kept for every window.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from llmfair.errors import UsageError, did_you_mean
from llmfair.nouns import Attribute, Chat, Completion, Document, Probe, Steps
from llmfair.prompts import Prompt
from llmfair.rankers.answers import AnswerClass, ReaderName, UnparseableAnswer
from llmfair.rankers.passages import WORDS, Input, clean, passage
from llmfair.rankers.questions import OFFERED, is_formed
from llmfair.rankers.strategies import Plan, Ranked, Strategy, Window, WindowAnswer

RETRY_DRAWS = 100
POLICY = re.compile("repair|fail|retry(?::(0?[1-9]|[1-9][0-9]))?")
T = TypeVar("T")


@dataclass(frozen=True)
class ListwiseRanker:
    """A strategy and how its questions are asked. Raises UsageError for settings that cannot ask."""

    prompt: Prompt
    attribute: Attribute
    strategy: Strategy
    reader: ReaderName = "strict"
    on_bad_answer: str = "repair"
    input: Input = "title"
    words: int = WORDS

    def __post_init__(self) -> None:
        retries_of(self.on_bad_answer)
        needed = {*self.strategy.question.needed}
        self.prompt.expect(OFFERED | needed, needed, "neutral")
        self.prompt.expect({*OFFERED, *needed, "word"}, {*needed, "word"}, "sensitive")

    @property
    def passes(self) -> int:
        return self.strategy.passes

    def one_pass(self, n: int) -> Sequence[Window] | None:
        """The windows of one pass over n candidates, where they do not hang on the answers."""
        return self.strategy.one_pass(n)

    def plan(self, n: int) -> Plan:
        """What a probe of n candidates takes; retries of bad answers come on top."""
        return self.strategy.plan(n)

    def steps(self, probe: Probe) -> Steps[Ranked]:
        """Ranks a probe's candidates. Raises UnparseableAnswer for a bad answer if the policy is `fail`."""
        asking = _Asking(self, probe)
        ranking = yield from self.strategy.steps(probe.candidates, asking)
        return Ranked(ranking, tuple(asking.windows))


def retries_of(on_bad_answer: str) -> int:
    """How often a policy asks again after a bad answer. Raises UsageError for an unknown policy."""
    if (policy := POLICY.fullmatch(on_bad_answer)) is None:
        near = did_you_mean(on_bad_answer, ("repair", "retry", "fail"))
        raise UsageError(
            f"--on-bad-answer '{on_bad_answer}' is no policy.{near}",
            "repair, retry, retry:N (N from 1 to 99) or fail",
        )
    return int(policy[1] or on_bad_answer == "retry")


def readings_of(
    chats: Sequence[Chat],
    policy: str,
    read: Callable[[Chat, Completion, T | None], T],
    bad: Callable[[T], bool],
) -> Steps[list[T]]:
    """What is read of chats that are asked at once; bad answers are asked again as often as the policy says.

    `read` gets what was read of the answer before, if any. Draws 100, 101, … ask again; of draw 1 these are 200, 201,
    …, so repeats share no answer.
    """
    completions = yield chats
    readings = [read(chat, completion, None) for chat, completion in zip(chats, completions, strict=True)]
    for attempt in range(retries_of(policy)):
        places = [place for place, reading in enumerate(readings) if bad(reading)]
        if not places:
            break
        again = [replace(chats[n], draw=RETRY_DRAWS * (chats[n].draw + 1) + attempt) for n in places]
        completions = yield again
        for place, chat, completion in zip(places, again, completions, strict=True):
            readings[place] = read(chat, completion, readings[place])
    return readings


class _Asking:
    """Asks the questions of one probe. What they share is made once: a run asks 100,000 of them."""

    def __init__(self, ranker: ListwiseRanker, probe: Probe) -> None:
        query = probe.candidates.query
        group = ranker.attribute.named[probe.variant]
        self.ranker, self.relevance = ranker, probe.candidates.relevance
        self.question, self.round = ranker.strategy.question, 0
        self.items: dict[str, tuple[str, str | None, int]] = {}  # title, group and relevance
        self.windows: list[WindowAnswer] = []
        self.draw = probe.draw
        self.wording = "neutral" if group is None else "sensitive"
        self.values = {"query": clean(query.text)}
        if group is not None:
            self.values["word"] = ranker.attribute.word(group)
        self.about = {
            "task": "listwise",
            "query_id": query.query_id,
            "variant": probe.variant,
            "names": group and str(group),
        }

    def __call__(
        self, documents: Sequence[Document], start: int, pass_number: int = 1
    ) -> Steps[Sequence[Document]]:
        """The documents in the model's order; asked again while the answer is bad and the policy allows."""
        return (yield from self.together([(documents, start)], pass_number))[0]

    def together(
        self, windows: Sequence[tuple[Sequence[Document], int]], pass_number: int = 1
    ) -> Steps[Sequence[Sequence[Document]]]:
        """The documents of several windows in the model's orders, all asked at once."""
        answers = yield from self._ask(windows, pass_number)
        return [
            documents if answer.permutation is None else [documents[place] for place in answer.permutation]
            for (documents, _), answer in zip(windows, answers, strict=True)
        ]

    def scores(self, documents: Sequence[Document]) -> Steps[Sequence[float | None]]:
        of_one = [([item], rank) for rank, item in enumerate(documents)]
        answers = yield from self._ask([(documents, 0)] if self.question.per_list else of_one)
        lost = (None,) * (len(documents) if self.question.per_list else 1)
        return [score for answer in answers for score in answer.scores or lost]

    def _ask(
        self, windows: Sequence[tuple[Sequence[Document], int]], pass_number: int = 1
    ) -> Steps[Sequence[WindowAnswer]]:
        """What became of questions that are asked at once."""
        chats = [self._chat(documents, start, pass_number) for documents, start in windows]
        answers = yield from readings_of(chats, self.ranker.on_bad_answer, self._read, _is_bad)
        bad = next(filter(_is_bad, answers), None)
        if self.ranker.on_bad_answer == "fail" and bad is not None:
            raise UnparseableAnswer(
                f"query '{self.about['query_id']}', pass {bad.pass_number}, window "
                f"[{bad.start}, {bad.end}): a bad answer ({bad.answer_class})."
            )
        self.windows += answers
        self.round += 1
        return answers

    def _read(self, chat: Chat, completion: Completion, bad: WindowAnswer | None) -> WindowAnswer:
        """What an answer did, in the place of a bad one."""
        doc_ids, (start, end) = tuple(chat.about["doc_ids"]), chat.about["window"]
        reading = self.question.read(completion, len(doc_ids), self.ranker.reader)
        permutation, ok = reading.permutation, reading.answer_class is AnswerClass.OK
        of_all = self.question.best(len(doc_ids)) is None
        omitted = () if permutation is None or not of_all else permutation[reading.named :]
        return WindowAnswer(
            pass_number=chat.about["pass"],
            start=start,
            end=end,
            answer_class=reading.answer_class,
            repaired=permutation is not None and not ok,
            unparseable=permutation is None,
            permutation=permutation,
            shown=doc_ids,
            omitted=tuple(doc_ids[place] for place in omitted),
            draw=chat.draw,
            replaced=() if bad is None else (*bad.replaced, bad.answer_class),
            best=None if of_all else reading.named,
            scores=reading.scores,
            round=self.round,
            formed=is_formed(completion, chat.expects, ok) and (bad is None or bad.formed),
        )

    def _chat(self, documents: Sequence[Document], start: int, pass_number: int) -> Chat:
        """The question about some candidates."""
        items = []
        for document in documents:  # each when it is first shown: so the first question need not wait for all
            if (item := self.items.get(document.doc_id)) is None:
                group = self.ranker.attribute.group(document)
                title = passage(document, self.ranker.input, self.ranker.words)
                item = title, group and str(group), self.relevance.get(document.doc_id, 0)
                self.items[document.doc_id] = item
            items.append(item)
        label, n = self.question.label, len(documents)
        passages = [{"k": label(place), "title": title} for place, (title, _, _) in enumerate(items)]
        values = {**self.values, **self.question.values(n)}
        messages = self.ranker.prompt.render(values, self.wording, passages)
        about = {
            **self.about,
            "doc_ids": [document.doc_id for document in documents],
            "sides": [side for _, side, _ in items],
            "relevance": [relevance for _, _, relevance in items],
            "pass": pass_number,
            "window": [start, start + n],
        }
        return Chat(messages, self.question.expects(n), self.draw, about)


def _is_bad(answer: WindowAnswer) -> bool:
    # The rankgpt reader can fail on an answer that the strict one finds ok (superscript digits).
    return answer.answer_class is not AnswerClass.OK or answer.permutation is None
