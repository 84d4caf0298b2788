"""Reading which of two items an answer ranks first: the item shown first, the one shown second, or a reason.

Nothing is repaired and nothing defaults to an item: a reader that takes the first label it meets turns every
unparseable answer into a win of the item shown first. So prose gives no order. All work is linear in the text's length.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from llmfair.control_tokens import answer_of
from llmfair.nouns import Completion, Finish
from llmfair.rankers import answers

Form = Literal["order", "letter"]
LABELS: Mapping[Form, tuple[str, str]] = {"order": ("1", "2"), "letter": ("A", "B")}
"""How the two items are labelled in the prompt, the one shown first first."""
LONGEST = 50_000
"""Characters of an answer, thoughts aside: what is longer names no winner. It would take tenths of a second to read, in
which no other answer is taken from its connection."""


class Problem(StrEnum):
    """Why an answer names no winner. A tie can be read, every other one cannot."""

    TIE = "tie"
    NO_ORDER = "no_order"
    OUT_OF_RANGE = "out_of_range"
    DUPLICATE = "duplicate"
    CONTRADICTORY = "contradictory"
    EMPTY = "empty"
    TRUNCATED = "truncated"
    REFUSED = "refused"
    FILTERED = "filtered"


@dataclass(frozen=True, slots=True)
class Choice:
    """The place of the item ranked first, 0 or 1 as shown, or the problem.

    From a margin also `margin`, the log-probability of the first item's label minus that of the second's, None where
    one was not among the alternatives, and `mass`, the probability of both labels together.
    """

    item: int | None
    problem: Problem | None = None
    margin: float | None = None
    mass: float | None = None


_BY_FINISH = {finish: Problem[bad.name] for finish, bad in answers.BY_FINISH.items()} | {
    Finish.FILTERED: Problem.FILTERED
}


def read_choice(completion: Completion, form: Form) -> Choice:
    """Reads an answer's text: first how it ended, then what it says."""
    if completion.finish is not Finish.STOP:
        return Choice(None, _BY_FINISH[completion.finish])
    return read_text(completion.text, form)


def read_margin(completion: Completion, labels: Sequence[str]) -> Choice:
    """Reads the log-probabilities of the two labels instead of the text; one cut off at its limit has them."""
    if completion.finish not in ANSWERED:
        return Choice(None, _BY_FINISH[completion.finish])
    sent, mass = labels_sent(completion, labels)
    first, second = (sent.get(label, -math.inf) for label in labels)
    margin = first - second if len(sent) == 2 else None
    if mass < LEAST_MASS:
        return Choice(None, Problem.NO_ORDER, margin, mass)
    if first == second:
        return Choice(None, Problem.TIE, margin, mass)
    return Choice(int(first < second), margin=margin, mass=mass)


ANSWERED = (Finish.STOP, Finish.LENGTH)
"""How answers end whose first token has margins."""
LEAST_MASS = 0.001
"""Labels that together hold less of the first token's probability say nothing: the answer begins otherwise."""


def labels_sent(completion: Completion, labels: Sequence[str]) -> tuple[Mapping[str, float], float]:
    """The log-probabilities of the labels that an answer has, and their share of the first token's, at most 1."""
    logprobs = (completion.finish in ANSWERED and completion.logprobs) or {}
    sent = {label: logprobs[label] for label in labels if math.isfinite(logprobs.get(label, -math.inf))}
    return sent, min(1.0, math.fsum(math.exp(min(value, 0.0)) for value in sent.values()))


def read_text(text: str, form: Form, labels: Sequence[str] = ()) -> Choice:
    """Reads the text of an answer that ended by itself; the first rule that applies decides. `labels`: the form's two.

    1. Chains `label > label`, or `label < label` from their end, which must agree; an order that is said to begin with
    the worst is none, nor one that is asked or denied. 2. The reply, or its first line, is one label.
    3. `label = label` is a tie; two labels in a row are an order where they stand alone: from a line's start or after
    a colon to the line's end, since `[1], [2] are both relevant` is prose; and so are two numbers in order as in lists.
    4. The reply states a label after a colon or `answer is`, the words before call it the answer, and no other is.
    An answer that begins with a refusal can only be read by 1 and 4.
    """
    answer = answer_of(text)
    if answer is None:
        return Choice(None, Problem.TRUNCATED)
    if len(answer) > LONGEST:
        return Choice(None, Problem.NO_ORDER)
    text = answers.undressed(answer)
    if not text:
        return Choice(None, Problem.EMPTY)
    grammar, labels = _GRAMMARS[form], labels or LABELS[form]
    rest, refused = answers.without_refusals(text)
    chains = list(grammar.chain.finditer(rest))
    if stated := [chain for chain in chains if answers.asserted(rest, *chain.span())]:
        around = rest if answers.DIRECTED.search(rest) else ""
        return _choice(
            [
                answers.best_first(grammar.named(chain[0]), chain[0], around, *chain.span())
                for chain in stated
            ],
            labels,
        )
    if chains:
        return Choice(None, Problem.NO_ORDER)
    if not refused:
        if (reply := grammar.label.match(rest)) and not _TAKEN_BACK.search(rest, reply.end()):
            return _choice([grammar.named(reply[0])[-1:], *_stated(grammar, rest, labels)], labels)
        if ties := [grammar.named(tie[0]) for tie in grammar.tie.finditer(rest)]:
            problem = _choice(ties, labels).problem
            wrong = problem in (Problem.OUT_OF_RANGE, Problem.DUPLICATE)
            return Choice(None, problem if wrong else Problem.TIE)
        text = _LIST_NUMBER.sub("", rest)
        rows = [row for row in grammar.row.finditer(text) if None not in (row["before"], row["after"])]
        if rows := [row for row in rows if not row["before"].strip() or _leads(text, row.start("row"))]:
            return _choice(
                [answers.best_first(grammar.named(row["row"]), "", text, *row.span("row")) for row in rows],
                labels,
            )
        if form == "order" and (order := answers.two_in_order(rest)):
            return _choice([[str(number) for number in order]], labels)
    if statements := list(_stated(grammar, rest, labels)):
        choice = _choice(statements, labels)
        led = any(
            _leads(rest, statement.start("label")) and not _TAKEN_BACK.search(rest, statement.end())
            for statement in grammar.statement.finditer(rest)
        )
        return choice if led or choice.problem is Problem.CONTRADICTORY else Choice(None, Problem.NO_ORDER)
    names = refused and any(label in grammar.name.findall(text) for label in labels)
    return Choice(None, Problem.REFUSED if names else Problem.NO_ORDER)


_TAKEN_BACK = re.compile(r"\b(?:no|wait|actually|rather|instead|second thought)\b", re.IGNORECASE)
_NAMES_ANSWER = re.compile(
    r"\b(?:answer|winner|best|better|choice|choose|label|selected|selection|preferred|preference|say|"
    r"(?:more |most )?relevant|ranking|order|result|response|verdict|decision|conclusion)\b",
    re.IGNORECASE,
)
_NAMES_OTHER = re.compile(
    r"\b(?:less|least|not|worse|worst|wrong|in\w+|un\w+|second|(?:is|are|do|does|wo|ca)n['’]?t)\b",
    re.IGNORECASE,
)


def _leads(text: str, start: int) -> bool:
    """Whether the words before a label say that it is the answer: `Less relevant:` and `Score:` do not."""
    words = re.split(r"[.!?;,:]\s|\n", text[max(start - _NEAR, 0) : start].rstrip())[-1]
    return bool(_NAMES_ANSWER.search(words)) and not _NAMES_OTHER.search(words)


_NEAR = 80


def _stated(grammar: _Grammar, text: str, labels: Sequence[str]) -> Iterator[list[str]]:
    """What an answer states to be a label, whatever it says of it; of other names those that are called the answer."""
    for statement in grammar.statement.finditer(text):
        label = grammar.named(statement["label"])[-1:]
        if not statement["label"].islower() and (
            label[0] in labels or _leads(text, statement.start("label"))
        ):
            yield label


def _choice(orders: Sequence[Sequence[str]], labels: Sequence[str]) -> Choice:
    """What orders of labels, best first, come to; nothing where one of them is none."""
    if not orders or not all(orders):
        return Choice(None, Problem.NO_ORDER)
    if any(label not in labels for order in orders for label in order):
        return Choice(None, Problem.OUT_OF_RANGE)
    if any(len(set(order)) < len(order) for order in orders):
        return Choice(None, Problem.DUPLICATE)
    firsts = {order[0] for order in orders}
    if len(firsts) > 1:
        return Choice(None, Problem.CONTRADICTORY)
    return Choice(labels.index(firsts.pop()))


_LIST_NUMBER = re.compile(r"^[^\S\n]*[0-9]+\.[^\S\n]+", re.MULTILINE)
_NOUN = rf"\b(?i:{answers.NOUN})\s*+"


class _Grammar:
    """The patterns of one form around a label's bare `name`, none of which backtracks over more than a label.

    The name stands alone. Repetition of characters is possessive, that of groups is not: Python before 3.11.5 errs in
    one.
    """

    def __init__(self, name: str) -> None:
        alone = rf"(?<![\w.-]){name}(?![\w-]|\.\w)"
        bracketed = "|".join(rf"\{left}\s*+{name}\s*+\{right}" for left, right in ("[]", "()", "{}"))
        bare = rf"(?:{bracketed}|{alone})"
        label = rf"(?:{_NOUN})?{bare}"
        leads = r"(?:(?<!\d)(?<!\b\w)(?<!\]):|\b(?i:answer\s++is)\b)"
        # A statement ends with its line or sentence, or runs into the next one: Winner: B, loser: A.
        over = r"(?=[,?]?+[^\S\n]*+$|(?<=[.!])\s|;|[^.!?;:\n]{0,80}+:)"
        # A row may stand in brackets as a whole, [2, 1]; those of [2], [1] belong to the labels.
        opened = rf"[\[({{](?={alone}[\s,;])"
        before = rf"(?:^|{leads})[^\S\n]*+(?:{opened}|(?!{opened}))"
        after = r"[\])}]?+[.!]?+[^\S\n]*+$"
        row = rf"(?P<before>{before})?(?P<row>{label}(?:[\s,;]++{label})+)(?P<after>{after})?"
        behind = r"(?:\Z|(?<=\n)(?=[^\n]*[^\W\d_]{2}))"
        self.name = re.compile(rf"(?<!\w){name}(?!\w)")
        self.label = re.compile(
            rf"(?i:final\s++)?(?:{_NOUN})*(?::\s*+(?:{_NOUN})*)?{bare}[.!)。]?+\s*+{behind}"
        )
        self.chain = re.compile(rf"{label}(?:\s*+[<>]\s*+{label})+")
        self.tie = re.compile(rf"{label}(?:\s*+=\s*+{label})+")
        self.row = re.compile(row, re.MULTILINE)
        self.statement = re.compile(rf"{leads}\s*+(?:{_NOUN})?(?P<label>{bare})[.!]?+{over}", re.MULTILINE)

    def named(self, text: str) -> list[str]:
        """The labels in a matched text, in order, letters as capitals."""
        return [name.upper() for name in self.name.findall(text)]


_GRAMMARS: Mapping[Form, _Grammar] = {"order": _Grammar("[0-9]++"), "letter": _Grammar(r"[^\W\d_]")}
