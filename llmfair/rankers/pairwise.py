"""Pairwise ranking: which of two items comes first, asked in both orders so that position can be told apart.

A program yields both chats of a pair at once and returns one PairVerdict (Wang et al. 2024, 3.3): chat 1 shows the
protected item first, chat 2 shows it second, and they differ in nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal, cast

from llmfair import nouns
from llmfair.nouns import PAIRS, Chat, Completion, Document, Probe, Side, Steps
from llmfair.prompts import Prompt
from llmfair.rankers.answers import AnswerClass, UnparseableAnswer
from llmfair.rankers.choices import LABELS, Choice, Form, Problem, read_choice, read_margin
from llmfair.rankers.listwise import readings_of, retries_of
from llmfair.rankers.passages import WORDS, Input, clean, passage
from llmfair.rankers.questions import LETTERS, ORDER, SCORED, Question, is_formed

AnswerKind = Literal["text", "margin"]
PairForm = Literal[Form, "scores"]
"""How the answer names the better item; `scores`: of a ranker that scores lists, which is given both."""
_FORMS: dict[PairForm, Question] = {"order": ORDER, "letter": LETTERS, "scores": SCORED}
UNPARSEABLE = attrgetter("unparseable")


@dataclass(frozen=True)
class PairwiseRanker:
    """The settings of a pairwise ranking. Raises UsageError for what cannot ask.

    `form`: the prompt's variant. `answers`: whether the text is read or the log-probabilities of the labels.
    `attribute`: of several groups, by which simulated models tell the items of a contrast apart.
    """

    prompt: Prompt
    form: PairForm = "order"
    answers: AnswerKind = "text"
    on_bad_answer: str = "repair"
    input: Input = "title"
    words: int = WORDS
    attribute: nouns.Attribute | None = None

    def __post_init__(self) -> None:
        retries_of(self.on_bad_answer)
        needed = {"query", "first", "second"}
        self.prompt.expect(needed, needed, self.form)

    def shown(self, document: Document) -> str:
        """The line that stands for a document in the prompt."""
        return passage(document, self.input, self.words)

    def chats(self, probe: Probe) -> tuple[Chat, Chat]:
        """The two questions about a probe's pair: the protected item first, then second."""
        protected, unprotected = zip(probe.candidates.documents, Side, strict=True)
        return self._chat(probe, protected, unprotected), self._chat(probe, unprotected, protected)

    def steps(self, probe: Probe) -> Steps[nouns.PairVerdict]:
        """Asks in both orders. Raises UnparseableAnswer for an unparseable answer if the policy is `fail`."""
        answers = yield from readings_of(self.chats(probe), self.on_bad_answer, self._read, UNPARSEABLE)
        for place, answer in enumerate(answers):
            if self.on_bad_answer == "fail" and answer.unparseable:
                key = nouns.Key(PAIRS, probe.condition, probe.contrast)
                raise UnparseableAnswer(
                    f"query '{probe.candidates.query.query_id}', {key} pair {probe.order}, protected item "
                    f"{('first', 'second')[place]}: an unparseable answer ({answer.problem})."
                )
        query_id, stratum = probe.candidates.query.query_id, cast(nouns.PairStratum, probe.condition)
        (protected, unprotected), (first, second) = probe.candidates.doc_ids, answers
        return nouns.PairVerdict(
            query_id, stratum, probe.order, probe.draw, protected, unprotected, first, second, probe.contrast
        )

    def _read(self, chat: Chat, completion: Completion, bad: nouns.PairAnswer | None) -> nouns.PairAnswer:
        choice = read_answer(completion, self.form, self.answers)
        formed = is_formed(completion, chat.expects, choice.problem is None)
        winner = None if choice.item is None else Side(chat.about["sides"][choice.item])
        formed = formed and (bad is None or bad.formed)
        return nouns.pair_answer(winner, choice.problem, choice.margin, choice.mass, formed)

    def _chat(self, probe: Probe, *shown: tuple[Document, Side]) -> Chat:
        query, relevance = probe.candidates.query, probe.candidates.relevance
        first, second = (self.shown(document) for document, _ in shown)
        values = {"query": clean(query.text), "first": first, "second": second}
        about: dict[str, Any] = {
            "task": "pairwise",
            "query_id": query.query_id,
            "kind": probe.condition,
            "pair": probe.order,
            "variant": probe.variant,
            "names": None,
            "doc_ids": [document.doc_id for document, _ in shown],
            "sides": [side.value for _, side in shown],
            "relevance": [relevance.get(document.doc_id, 0) for document, _ in shown],
        }
        if probe.contrast and self.attribute is not None:
            groups = [self.attribute.group(document) for document, _ in shown]
            about |= {"contrast": probe.contrast, "groups": groups}
        return Chat(self.prompt.render(values, self.form), _FORMS[self.form].expects(2), probe.draw, about)


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
