"""Pairwise ranking: which of two items comes first, asked in both orders so that position can be told apart.

A program yields both chats of a pair at once and returns one PairVerdict (Wang et al. 2024, 3.3): chat 1 shows the
protected item first, chat 2 shows it second, and they differ in nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

from llmfair.nouns import (
    Chat,
    Completion,
    Document,
    Expects,
    Labels,
    PairStratum,
    PairVerdict,
    Permutation,
    Probe,
    Scores,
    Side,
    Steps,
    pair_answer,
)
from llmfair.prompts import Prompt
from llmfair.rankers.answers import AnswerClass, UnparseableAnswer
from llmfair.rankers.choices import LABELS, Choice, Form, Problem, read_choice, read_margin
from llmfair.rankers.listwise import RETRY_DRAWS, retries_of
from llmfair.rankers.passages import WORDS, Input, clean, passage
from llmfair.rankers.questions import SCORED, is_formed

AnswerKind = Literal["text", "margin"]
PairForm = Literal[Form, "scores"]
"""How the answer names the better item; `scores`: of a ranker that scores lists, which is given both."""
_EXPECTS: dict[PairForm, Expects] = {
    "order": Permutation(2), "letter": Labels(LABELS["letter"]), "scores": Scores(2),
}  # fmt: skip
_UNREAD = Choice(None)


@dataclass(frozen=True)
class PairwiseRanker:
    """The settings of a pairwise ranking. Raises UsageError for what cannot ask.

    `form`: the prompt's variant. `answers`: whether the text is read or the log-probabilities of the labels.
    """

    prompt: Prompt
    form: PairForm = "order"
    answers: AnswerKind = "text"
    on_bad_answer: str = "repair"
    input: Input = "title"
    words: int = WORDS

    def __post_init__(self) -> None:
        retries_of(self.on_bad_answer)
        needed = {"query", "first", "second"}
        self.prompt.expect(needed, needed, self.form)

    def shown(self, document: Document) -> str:
        """The line that stands for a document in the prompt."""
        return passage(document, self.input, self.words)

    def chats(self, probe: Probe) -> tuple[Chat, Chat]:
        """The two questions about a probe's pair: the protected item first, then second."""
        protected, unprotected = probe.candidates.documents
        sides = (Side.PROTECTED, Side.UNPROTECTED)
        return (
            self._chat(probe, (protected, unprotected), sides),
            self._chat(probe, (unprotected, protected), sides[::-1]),
        )

    def steps(self, probe: Probe) -> Steps[PairVerdict]:
        """Asks in both orders. Raises UnparseableAnswer for an unparseable answer if the policy is `fail`."""
        chats = self.chats(probe)
        completions = yield chats
        choices, formed, bad = [_UNREAD, _UNREAD], [True, True], [0, 1]
        draw, last = RETRY_DRAWS * (probe.draw + 1), retries_of(self.on_bad_answer)
        for attempt in range(last + 1):
            for place, completion in zip(bad, completions, strict=True):
                choices[place] = choice = read_answer(completion, self.form, self.answers)
                formed[place] &= is_formed(completion, _EXPECTS[self.form], choice.problem is None)
            bad = [place for place in bad if choices[place].unparseable]
            if not bad or attempt == last:
                break
            completions = yield [replace(chats[place], draw=draw + attempt) for place in bad]
        if self.on_bad_answer == "fail" and bad:
            raise UnparseableAnswer(
                f"query '{probe.candidates.query.query_id}', {probe.condition} pair {probe.order}, protected item "
                f"{('first', 'second')[bad[0]]}: an unparseable answer ({choices[bad[0]].problem})."
            )
        first, second = (
            pair_answer(
                None if choice.item is None else Side(chat.about["sides"][choice.item]),
                choice.problem,
                choice.margin,
                choice.mass,
                in_form,
            )
            for chat, choice, in_form in zip(chats, choices, formed, strict=True)
        )
        protected, unprotected = probe.candidates.doc_ids
        return PairVerdict(
            query_id=probe.candidates.query.query_id,
            stratum=cast(PairStratum, probe.condition),
            number=probe.order,
            draw=probe.draw,
            protected=protected,
            unprotected=unprotected,
            first=first,
            second=second,
        )

    def _chat(self, probe: Probe, documents: Sequence[Document], sides: Sequence[Side]) -> Chat:
        query, relevance = probe.candidates.query, probe.candidates.relevance
        first, second = (self.shown(document) for document in documents)
        values = {"query": clean(query.text), "first": first, "second": second}
        about = {
            "task": "pairwise",
            "query_id": query.query_id,
            "kind": probe.condition,
            "pair": probe.order,
            "variant": probe.variant,
            "names": None,
            "doc_ids": [document.doc_id for document in documents],
            "sides": [side.value for side in sides],
            "relevance": [relevance.get(document.doc_id, 0) for document in documents],
        }
        return Chat(self.prompt.render(values, self.form), _EXPECTS[self.form], probe.draw, about)


def read_answer(completion: Completion, form: PairForm, answers: AnswerKind) -> Choice:
    """Which item an answer ranks first, by its text, its margin, or its scores: equal ones are a tie."""
    if form == "scores":
        reading = SCORED.read(completion, 2, "strict")
        if reading.answer_class is not AnswerClass.OK or reading.scores is None:
            return Choice(None, Problem.__members__.get(reading.answer_class.name, Problem.NO_ORDER))
        first, second = (score for score in reading.scores if score is not None)
        return Choice(None, Problem.TIE) if first == second else Choice(int(second > first))
    if answers == "margin":
        return read_margin(completion, LABELS[form])
    return read_choice(completion, form)
