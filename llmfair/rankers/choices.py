"""Reading which of two items an answer ranks first: the item shown first, the one shown second, or a reason.

Nothing is repaired and nothing defaults to an item: a reader that takes the first label it meets turns every
unparseable answer into a win of the item shown first. So prose gives no order, however clear it sounds. All
work is linear in the length of the text, which a model and not we decide.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from llmfair.control_tokens import answer_of
from llmfair.rankers.answers import NOUN, best_first, contradicted_signs, undressed, without_refusals
from llmfair.records import Completion, Finish

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

    From a margin also `margin`, the log-probability of the first item's label minus that of the second's, and
    `mass`, the probability of both labels together; where one label was not among the alternatives, the winner is
    known and the margin is not.
    """

    item: int | None
    problem: Problem | None = None
    margin: float | None = None
    mass: float | None = None

    @property
    def unparseable(self) -> bool:
        return self.problem not in (None, Problem.TIE)


_BY_FINISH: Mapping[Finish, Problem] = {
    Finish.LENGTH: Problem.TRUNCATED,
    Finish.UNFINISHED_THINKING: Problem.TRUNCATED,
    Finish.FILTERED: Problem.FILTERED,
    Finish.REFUSED: Problem.REFUSED,
    Finish.EMPTY: Problem.EMPTY,
}


def read_choice(completion: Completion, form: Form) -> Choice:
    """Reads an answer's text: first how it ended, then what it says."""
    if completion.finish is not Finish.STOP:
        return Choice(None, _BY_FINISH[completion.finish])
    return read_text(completion.text, form)


def read_margin(completion: Completion, labels: Sequence[str]) -> Choice:
    """Reads the log-probabilities of the two labels, `{label: natural logarithm}`, instead of the text.

    A label that is absent or −∞ was not among the alternatives. An answer cut off at its limit has them too. Labels
    that hold less than LEAST_MASS name no winner.
    """
    if completion.finish not in (Finish.STOP, Finish.LENGTH):
        return Choice(None, _BY_FINISH[completion.finish])
    sent, mass = labels_sent(completion, labels)
    first, second = (sent.get(label, -math.inf) for label in labels)
    margin = first - second if len(sent) == 2 else None
    if mass < LEAST_MASS:
        return Choice(None, Problem.NO_ORDER, margin, mass)
    if first == second:
        return Choice(None, Problem.TIE, margin, mass)
    return Choice(int(first < second), margin=margin, mass=mass)


LEAST_MASS = 0.001
"""Labels that together hold less of the first token's probability say nothing: the answer begins otherwise."""


def labels_sent(completion: Completion, labels: Sequence[str]) -> tuple[Mapping[str, float], float]:
    """The log-probabilities of the labels that an answer has, and how much of the first token's probability they hold.

    That is at most 1: what servers send is rounded, and some send numbers that are no log-probabilities.
    """
    found = completion.logprobs or {}
    sent = {label: found[label] for label in labels if math.isfinite(found.get(label, -math.inf))}
    return sent, min(1.0, math.fsum(math.exp(min(value, 0.0)) for value in sent.values()))


def read_text(text: str, form: Form, labels: Sequence[str] = ()) -> Choice:
    """Reads the text of an answer that ended by itself; the first rule that applies decides. `labels`: the form's two.

    1. Chains `label > label`, or `label < label` from their end, which must agree; an order that is said to begin with
    the worst is none. 2. The whole reply is one label. 3. `label = label` is a tie; two labels in a row are an order
    where they stand alone: from a line's start or after a colon to the line's end, since `[1], [2] are both relevant`
    is prose. 4. The reply ends in a label after a colon or `answer is`, and states no other label so: of `First: [2]`,
    `Second: [1]` the last is not the winner. The colon of a ratio or rank, `2:1` or `Rank 2: [1]`, leads to no answer.
    An answer that begins with a refusal can only be read by 1 and 4.
    """
    answer = answer_of(text)
    if answer is None:
        return Choice(None, Problem.TRUNCATED)
    if len(answer) > LONGEST:
        return Choice(None, Problem.NO_ORDER)
    text = undressed(answer)
    if not text:
        return Choice(None, Problem.EMPTY)
    grammar, labels = _GRAMMARS[form], labels or LABELS[form]
    rest, refused = without_refusals(text)
    contradicted = contradicted_signs(rest)
    if chains := [chain[0] for chain in grammar.chain.finditer(rest)]:
        orders = [best_first(grammar.named(chain), chain, contradicted) for chain in chains]
        return _choice(orders if all(orders) else [], labels)
    if not refused:
        if whole := grammar.whole.fullmatch(rest.strip()):
            return _choice([grammar.named(whole[0])[-1:]], labels)
        if ties := [grammar.named(tie[0]) for tie in grammar.tie.finditer(rest)]:
            problem = _choice(ties, labels).problem
            wrong = problem in (Problem.OUT_OF_RANGE, Problem.DUPLICATE)
            return Choice(None, problem if wrong else Problem.TIE)
        if rows := list(_rows(grammar, _LIST_NUMBER.sub("", rest))):
            return _choice(best_first(rows, "", contradicted), labels)
    if (end := grammar.end.search(rest)) and not end[1].islower():
        named = [grammar.named(said[1])[-1:] for said in grammar.said.finditer(rest) if not said[1].islower()]
        others = [label for label in named if label[0] in labels]
        return _choice([grammar.named(end[1])[-1:], *others], labels)
    names = refused and any(label in grammar.name.findall(text) for label in labels)
    return Choice(None, Problem.REFUSED if names else Problem.NO_ORDER)


def _rows(grammar: _Grammar, text: str) -> Iterator[list[str]]:
    for row in grammar.row.finditer(text):
        if row["before"] is not None and row["after"] is not None:
            yield grammar.named(row["row"])


def _choice(orders: Sequence[Sequence[str]], labels: Sequence[str]) -> Choice:
    """What orders of labels, best first, come to."""
    if not orders:
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
_NOUN = rf"\b(?i:{NOUN})\s*+"


@dataclass(frozen=True, slots=True)
class _Grammar:
    """The patterns of one form, none of which backtracks over more than a label.

    Repetition of characters is possessive. That of groups is not: Python before 3.11.5 loses its way in one.
    """

    name: re.Pattern[str]
    whole: re.Pattern[str]
    chain: re.Pattern[str]
    tie: re.Pattern[str]
    row: re.Pattern[str]
    said: re.Pattern[str]
    end: re.Pattern[str]

    def named(self, text: str) -> list[str]:
        """The labels in a matched text, in order, letters as capitals."""
        return [name.upper() for name in self.name.findall(text)]


def _grammar(name: str) -> _Grammar:
    """The patterns around a label's bare `name`: alone, not part of a word, a decimal or a range."""
    alone = rf"(?<![\w.-]){name}(?![\w-]|\.\w)"
    bracketed = "|".join(rf"\{left}\s*+{name}\s*+\{right}" for left, right in ("[]", "()", "{}"))
    bare = rf"(?:{bracketed}|{alone})"
    label = rf"(?:{_NOUN})?{bare}"
    is_answer = r"\b(?i:answer\s++is)\b"
    leads = rf"(?::|{is_answer})"
    led = rf"\s*+(?:{_NOUN})?({bare})[.!]?+"
    # A statement ends with its line or sentence, or runs into the next one: Winner: B, loser: A.
    over = r"(?=[,?]?+[^\S\n]*+$|(?<=[.!])\s|;|[^.!?;:\n]{0,80}+:)"
    # A row may stand in brackets as a whole, [2, 1]; those of [2], [1] belong to the labels.
    opened = rf"[\[({{](?={alone}[\s,;])"
    before = rf"(?:^|{leads})[^\S\n]*+(?:{opened}|(?!{opened}))"
    after = r"[\])}]?+[.!]?+[^\S\n]*+$"
    row = rf"(?P<before>{before})?(?P<row>{label}(?:[\s,;]++{label})+)(?P<after>{after})?"
    return _Grammar(
        name=re.compile(rf"(?<!\w){name}(?!\w)"),
        whole=re.compile(rf"(?:{_NOUN})*(?::\s*+(?:{_NOUN})*)?{bare}[.!]?+"),
        chain=re.compile(rf"{label}(?:\s*+[<>]\s*+{label})+"),
        tie=re.compile(rf"{label}(?:\s*+=\s*+{label})+"),
        row=re.compile(row, re.MULTILINE),
        said=re.compile(rf"{leads}{led}{over}", re.MULTILINE),
        end=re.compile(rf"(?:(?<!\d)(?<!\b\w):|{is_answer}){led}\Z"),
    )


_GRAMMARS: Mapping[Form, _Grammar] = {
    "order": _grammar("[0-9]++"),
    "letter": _grammar(r"[^\W\d_]"),
}
