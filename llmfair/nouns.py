"""The nouns of llmfair: what is asked, what comes back, and what is measured.

Every record is frozen, and slotted but for the one that remembers its JSON; every identifier is a `str`, and of ours
nothing is imported here but JSON. A record that crosses a boundary (journal, run folder, CSV) is written by that
boundary's module.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from itertools import combinations, product
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, Self, TypeVar

from llmfair.io.files import encode

Names = tuple[str, ...]
"""Names of groups or attributes, or ids of documents, in an order that counts."""

# What is ranked


class Side(StrEnum):
    """One of the two sides a fairness question compares."""

    PROTECTED = "protected"
    UNPROTECTED = "unprotected"


@dataclass(frozen=True, slots=True)
class Query:
    """A topic: what the ranker is asked about; `keywords` are what a search engine may be asked instead."""

    query_id: str
    text: str
    keywords: Names = ()


NUMBERS = ("pred_qual", "num_sitelinks", "relative_pageviews")
"""What is known of a document in numbers, by the names of TREC's metadata: its predicted quality, in how many languages
it exists, and how often it is read."""
NO_NUMBERS: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class Document:
    """An article with its groups, n-ary: `{attribute: names of groups}`; an unknown attribute is absent.

    `numbers`: those of NUMBERS that are known.
    """

    doc_id: str
    title: str
    text: str = ""
    groups: Mapping[str, Names] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=lambda: NO_NUMBERS)


LABEL = "label"
"""Among a document's groups: the answer that goes with it, a film's genre or a review's stars."""
MixedPolicy = Literal["drop", "protected", "unprotected"]
ANY_GROUP = "*"
LEAST_GAIN = 1e-12
"""An item is useful whose gain is above this; less is rounding."""


Compared = Literal["binary", "pairs", "reference", "rest"]
"""Which groups are compared: protected ones with the others, all pairs, each with one, or each with all others."""
BETWEEN = ":"
"""Between the two groups of a contrast, `Black:White`."""
OTHERS = "others"
"""The second group of a contrast with all other groups."""
CROSSED = "*"
"""Between the attributes, or the groups, that an intersection is made of: `gender*race`, `female*Black`."""
MOST_LETTERS = 40
"""Of the name of a prompt variant, which names files: of 255 bytes at most."""
RESERVED = {"neutral", "repeat", "initial"}
"""Names that no variant of a group can have, since they name other files and rows."""


@dataclass(frozen=True)
class Attribute:
    """A sensitive attribute: which groups are on which side, and the word a prompt uses for each side.

    `protected` or `unprotected` may be `("*",)`: every group that is named nowhere else. A background is the
    share of every group in the world at large; there is one for each way of naming the groups. Where nobody gave words
    for prompts (`worded`), `words` are what tables call the sides, and the neutral prompt is the only one.

    `groups`: those that are compared with each other, where `compared` is not binary, in the order of tables;
    `reference`: the one that all others are compared with. `group_words`: what prompts call groups, where that is not
    their name. `crossed`: the attributes whose combinations are the groups of this one. `alone`: an item in several
    groups is on no side.
    """

    name: str
    protected: Names
    unprotected: Names
    words: Mapping[Side, str]
    other: Names = ()
    mixed: MixedPolicy = "drop"
    backgrounds: tuple[Mapping[str, float], ...] = ()
    worded: bool = True
    compared: Compared = "binary"
    groups: Names = ()
    reference: str = ""
    group_words: Mapping[str, str] = field(default_factory=dict)
    crossed: Names = ()
    alone: bool = False

    def groups_of(self, document: Document) -> Names:
        """All groups of the document, of an intersection the combinations; none where one of its parts is unknown."""
        if not self.crossed:
            return document.groups.get(self.name, ())
        parts = (document.groups.get(name, ()) for name in self.crossed)
        return tuple(map(CROSSED.join, product(*parts)))

    def group(self, document: Document) -> str | None:
        """The group that the document counts in, or None: unknown, in several, or in none that is compared.

        Of an attribute that is compared in binary it is the side.
        """
        if not self.groups:
            return self.side(document)
        groups = self.groups_of(document)
        return groups[0] if len(groups) == 1 and groups[0] in self.groups else None

    def side(self, document: Document) -> Side | None:
        """The document's side, or None: unknown, mixed (unless `mixed` says which) or of neither side."""
        groups = self.groups_of(document)
        sides = {self._side_of_group(group) for group in groups}
        if not sides or None in sides or (self.alone and len(groups) > 1):
            return None
        if len(sides) == 1:
            return sides.pop()
        return None if self.mixed == "drop" else Side(self.mixed)

    def _side_of_group(self, group: str) -> Side | None:
        for name in (group,) if group in self.other else (group, ANY_GROUP):
            if name in self.protected:
                return Side.PROTECTED
            if name in self.unprotected:
                return Side.UNPROTECTED
        return None

    @cached_property
    def contrasts(self) -> Mapping[str, Attribute]:
        """By name, the binary view of every pair of groups that is compared; `""` is the attribute itself."""
        if not self.groups:
            return {"": self}
        if self.compared == "rest":
            others = {group: [other for other in self.groups if other != group] for group in self.groups}
            return {f"{group}{BETWEEN}{OTHERS}": self._view((group,), of) for group, of in others.items()}
        pairs = [*combinations(self.groups, 2)]
        if self.compared == "reference":
            pairs = [(group, self.reference) for group in self.groups if group != self.reference]
        return {BETWEEN.join(pair): self._view(pair[:1], pair[1:]) for pair in pairs}

    def _view(self, first: Names, second: Sequence[str]) -> Attribute:
        """The attribute with these groups as its sides, and all others of neither."""
        words = {Side.PROTECTED: first[0], Side.UNPROTECTED: second[0] if len(second) == 1 else "other"}
        return replace(
            self,
            protected=first,
            unprotected=tuple(second),
            other=(),
            words=words,
            compared="binary",
            groups=(),
            alone=True,
        )

    @property
    def one_fit(self) -> bool:
        """Whether all contrasts are read from one model, which has an effect of every group."""
        return self.compared in ("pairs", "reference") and len(self.groups) > 2

    @property
    def named(self) -> dict[str, str | None]:
        """Prompt variants by name, with the side or the group each one names: neutral, unprotected, protected."""
        if not self.groups:
            sides = (Side.UNPROTECTED, Side.PROTECTED) if self.worded else ()
            return {"neutral": None} | {self.words[side].lower().replace(" ", "-"): side for side in sides}
        named: dict[str, str | None] = {"neutral": None}
        for group in self.groups:  # names of files, whatever a group is called
            name = re.sub(r"[^\w-]+", "-", self.word(group).lower()).strip("-")[:MOST_LETTERS]
            others = (name, *map("group-{}".format, range(len(named), 2 * len(named) + 1)))
            named[next(of for of in others if of and of not in (*named, *RESERVED))] = group
        return named

    def word(self, group: str) -> str:
        """What prompts and tables call a side or a group."""
        return self.group_words.get(group, group) if self.groups else self.words[Side(group)]


@dataclass(frozen=True, slots=True)
class Candidates:
    """The documents to rank for one query, in first-stage order, with their relevance (absent = 0).

    `scores`: what the first stage gave each document, where that is known; in their order.
    """

    query: Query
    documents: tuple[Document, ...]
    relevance: Mapping[str, int]
    scores: tuple[float, ...] | None = None

    @property
    def doc_ids(self) -> Names:
        return tuple(document.doc_id for document in self.documents)

    @property
    def grades(self) -> list[int]:
        """The relevance of every document, in their order."""
        return [self.relevance.get(document.doc_id, 0) for document in self.documents]

    def at(self, places: Sequence[int]) -> Candidates:
        """The documents at these places, in that order, each with its score."""
        scores = None if self.scores is None else tuple(self.scores[place] for place in places)
        return replace(self, documents=tuple(self.documents[place] for place in places), scores=scores)


Qrels = Mapping[str, Mapping[str, int]]
"""Relevance judgements as trec_eval has them: `{query_id: {doc_id: relevance}}`."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """One query's documents, best first. Scores are kept when the ranker has any, else None."""

    query_id: str
    doc_ids: Names
    scores: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Encounter:
    """What a model's answer says of items that it saw side by side for the first time.

    `shown`: all items of the question, in the order shown. `ranked`: those that no earlier question had shown and
    that the answer names, best first: no earlier answer chose which of them meet, and in which slots. `behind`: those
    that it puts behind all of these, without an order among themselves: it was asked for the best alone. `left_out`:
    those that it should have named and did not. `scores`: of the ranked ones, which were scored one by one and shown to
    nobody side by side; equal scores say nothing.
    """

    shown: Names
    ranked: Names
    behind: Names = ()
    scores: tuple[float, ...] | None = None
    left_out: Names = ()


Run = Mapping[str, Ranking]
"""A TREC run: `{query_id: Ranking}`."""


# What is asked

Role = Literal["system", "user", "assistant"]


class Message(NamedTuple):
    """One turn of a conversation. A tuple, which is made in a third of a dataclass's time: a request has many."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Text:
    """The answer is free text."""


@dataclass(frozen=True, slots=True)
class Permutation:
    """The answer orders the identifiers 1..n; with `best`, so many of them, the best first, and no others."""

    n: int
    best: int | None = None


@dataclass(frozen=True, slots=True)
class Labels:
    """The answer is one of these labels."""

    labels: Names


@dataclass(frozen=True, slots=True)
class Scores:
    """The answer scores n documents: JSON pairs of a document's place, from 0, and its score, as they came."""

    n: int


Expects = Text | Permutation | Labels | Scores


@dataclass(frozen=True)
class Chat:
    """A conversation to be answered.

    `expects` states the answer's shape. `draw` counts the times the same words are asked on purpose
    (repeats 0, 1, …; a bad answer asked again 100, 101, …). `about` is evidence for the journal and all
    that simulated models read; it is never sent to a model.
    """

    messages: tuple[Message, ...]
    expects: Expects
    draw: int = 0
    about: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def said(self) -> bytes:
        """The messages as JSON, `[[role, text], …]`; made once, since key and journal need them."""
        return encode([[role, content] for role, content in self.messages])


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a model draws its answer; `stop` and `extra` are sent only when given.

    `max_tokens` 0 means: by the shape of the expected answer. A Request always holds the number that is sent,
    `thinking_tokens` (room for thoughts beside the answer) included. `adapter`: the SHA-256 of the adapter that
    answers, None for the model itself. `constrain`: the model may emit nothing but
    an answer of the expected shape. `margins`: the log-probability of each label comes with the answer.
    """

    temperature: float = 0.0
    max_tokens: int = 0
    thinking_tokens: int = 0
    seed: int = 0
    top_p: float | None = None
    stop: Names = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    adapter: str | None = None
    constrain: bool = False
    margins: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """One chat on its way to a backend. `key` identifies its answer in the journal."""

    chat: Chat
    sampling: Sampling
    key: str
    probe_id: str


class Finish(StrEnum):
    """How an answer ended; only `STOP` may be read."""

    STOP = "stop"
    LENGTH = "length"
    UNFINISHED_THINKING = "unfinished_thinking"
    FILTERED = "filtered"
    REFUSED = "refused"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer. Token counts are the server's, None where it reports none; `seconds` is the last attempt's."""

    text: str
    finish: Finish
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning: str | None = None
    logprobs: Mapping[str, float] | None = None
    model: str | None = None
    fingerprint: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Probe:
    """One question put to a ranker: a query's candidates in an initial order, under a prompt variant.

    `condition` names what is compared (a variant, or `repeat`: neutral asked again); `order` and `repeat` count
    initial orders and repeats within it, `draw` keeps equal chats of different repeats apart. `contrast`: the groups of
    the items of a pair, of an attribute that has several contrasts.
    """

    probe_id: str
    candidates: Candidates
    condition: str
    variant: str
    order: int = 0
    repeat: int = 0
    draw: int = 0
    contrast: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A probe without an answer: the class and message of the error that ended it, and the way out."""

    probe_id: str
    failure: str
    message: str
    hint: str = ""


# What is measured


class Conclusion(StrEnum):
    """What is concluded of one headline figure."""

    WITHIN = "within"
    OUTSIDE = "outside"
    INCONCLUSIVE = "inconclusive"
    NOT_ASSESSABLE = "not_assessable"


@dataclass(frozen=True, slots=True)
class Measurement:
    """A measure of one query, or of all (`query_id == "all"`), under one condition, of one stratum and group.

    `value` is None when undefined, and `reason` says why. `n` counts the queries an aggregate speaks of. `contrast`:
    the two groups that are compared, of an attribute that has several contrasts.
    """

    query_id: str
    measure: str
    value: float | None
    condition: str
    group: str = ""
    low: float | None = None
    high: float | None = None
    n: int | None = None
    p: float | None = None
    p_adjusted: float | None = None
    conclusion: str | None = None
    reason: str | None = None
    stratum: str = "all"
    contrast: str = ""


PAIRS = "pairs"
"""The one condition of pairs."""


class Key(str):
    """What figures and findings are of: a condition, one stratum of relevance where findings are by strata, and the
    contrast where several are compared.

    As a text, which documents, tables and gates have it by: `neutral`, or `relevant`, as pairs have one condition, or
    `neutral, Black:White`.
    """

    condition: str
    stratum: str
    contrast: str

    def __new__(cls, condition: str, stratum: str = "all", contrast: str = "") -> Self:
        parts = [part for part in (condition, stratum, contrast) if part not in (PAIRS, "all", "")]
        key = super().__new__(cls, ", ".join(parts) or condition)
        key.condition, key.stratum, key.contrast = condition, stratum, contrast
        return key

    @property
    def of_all_contrasts(self) -> Key:
        """The same without the contrast."""
        return Key(self.condition, self.stratum)

    @property
    def groups(self) -> tuple[str, str]:
        """The two groups of the contrast, "" both without one."""
        first, _, second = self.contrast.partition(BETWEEN)
        return first, second


def condition_of(key: str) -> str:
    """The condition of a key, of one that is but a text the text."""
    return key.condition if isinstance(key, Key) else key


def picked(of: object, names: Iterable[str]) -> dict[str, Any]:
    """The attributes of an object that have these names."""
    return {name: getattr(of, name) for name in names}


def is_of(key: str, names: Collection[str]) -> bool:
    """Whether a key, or its condition, is among these names."""
    return key in names or condition_of(key) in names


# Documents that are too many to be looked at one by one, and what is asked of documents however many they are.


class ManyDocuments(Mapping[str, Document]):
    """Documents by id, looked up where they are stored: nobody goes through them all."""

    @abstractmethod
    def of_each_kind(self) -> Iterable[Document]:
        """One document of every combination of groups, without its texts."""


def of_each_kind(documents: Mapping[str, Document]) -> Iterable[Document]:
    """Documents that have all the groups that there are: at least one of every combination."""
    return documents.of_each_kind() if isinstance(documents, ManyDocuments) else documents.values()


class Fill(Protocol):
    """Takes documents, in the same order each time, into the index below a folder; one that was begun is gone on with.

    `source` names them: the same for the same documents.
    """

    def __call__(self, folder: Path, documents: Iterable[Document], *, source: str) -> None: ...


@dataclass(frozen=True)
class StoredIndex:
    """An index of a collection that was made before: by which engine, where if on this disk, by which analyzer.

    `source` is the SHA-256 of what its documents are, `command` makes it anew.
    """

    engine: str
    path: Path
    source: str
    command: str
    analyzer: str = "english"


# The nouns of pairs: what one answer chose, and what both answers on a pair come to.


PairStratum = Literal["relevant", "irrelevant", "unjudged"]
JUDGED_STRATA: tuple[Literal["relevant", "irrelevant"], ...] = ("relevant", "irrelevant")
"""The strata of lists with judgements; of others there is one, all items alike."""


class Cell(StrEnum):
    """What both answers on a pair come to; which item was shown first in either is the other way round.

    PP, UU: the same side's item won both times. FF: the item shown first won both times, SS: the one shown
    second. T: a tie and nothing unparseable. M1, M2: one or both answers unparseable.
    """

    PP = "PP"
    UU = "UU"
    FF = "FF"
    SS = "SS"
    T = "T"
    M1 = "M1"
    M2 = "M2"


class PairOutcome(StrEnum):
    """A pair's verdict in words: FLIPPED answers follow the position, INVALID ones cannot be read or are ties."""

    PROTECTED = "protected"
    UNPROTECTED = "unprotected"
    FLIPPED = "flipped"
    INVALID = "invalid"


OUTCOMES = {
    Cell.PP: PairOutcome.PROTECTED,
    Cell.UU: PairOutcome.UNPROTECTED,
    Cell.FF: PairOutcome.FLIPPED,
    Cell.SS: PairOutcome.FLIPPED,
}


@dataclass(frozen=True, slots=True)
class PairAnswer:
    """One answer on a pair: the side whose item won, or the problem (`tie` or why it is unparseable).

    `margin`: log-probability of the label of the item shown first minus that of the other, where it is known.
    `mass`: the probability of both labels together, likewise. `formed`: a model that is held to the form of its
    answers may have given it.
    """

    winner: Side | None
    problem: str | None = None
    margin: float | None = None
    mass: float | None = None
    formed: bool = True

    @property
    def unparseable(self) -> bool:
        return self.problem not in (None, "tie")


pair_answer = lru_cache(maxsize=64)(PairAnswer)
"""A PairAnswer, the very same for equal ones that follow each other closely: of words there are few."""


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """Both answers on one pair of documents: `first` with the protected item shown first, `second` with it second.

    `number` is the pair's place in its query's schedule; `draw` counts the times it was asked. `contrast`: the groups
    that are compared, of several; the first of them is then the protected one.
    """

    query_id: str
    stratum: PairStratum
    number: int
    draw: int
    protected: str
    unprotected: str
    first: PairAnswer
    second: PairAnswer
    contrast: str = ""

    @property
    def key(self) -> Key:
        return Key(PAIRS, self.stratum, self.contrast)

    @property
    def answers(self) -> tuple[PairAnswer, PairAnswer]:
        return self.first, self.second

    @property
    def cell(self) -> Cell:
        first, second = self.first, self.second
        if first.unparseable or second.unparseable:
            return Cell.M2 if first.unparseable and second.unparseable else Cell.M1
        if first.problem or second.problem:
            return Cell.T
        won_first, won_second = first.winner is Side.PROTECTED, second.winner is Side.PROTECTED
        if won_first == won_second:
            return Cell.PP if won_first else Cell.UU
        return Cell.FF if won_first else Cell.SS

    @property
    def outcome(self) -> PairOutcome:
        return OUTCOMES.get(self.cell, PairOutcome.INVALID)


def by_query(verdicts: Iterable[PairVerdict]) -> Iterator[tuple[str, list[PairVerdict]]]:
    """The verdicts of each query, by pair and draw; queries in the order of their names."""
    verdicts_of: dict[str, list[PairVerdict]] = {}
    for verdict in verdicts:
        verdicts_of.setdefault(verdict.query_id, []).append(verdict)
    for query_id in sorted(verdicts_of):
        yield query_id, sorted(verdicts_of.pop(query_id), key=attrgetter("number", "draw"))


# Ranking programs: generators that yield the chats they want answered and do not know who answers.


T = TypeVar("T")

Steps = Generator[Sequence[Chat], Sequence[Completion], T]
"""A ranking program: yields the chats it wants answered, receives their completions, returns its result."""


class Unanswered(Exception):
    """A chat has no answer yet: raised to end a program that is followed as far as its answers are known."""


def drive(steps: Steps[T], answer: Callable[[Chat], Completion]) -> T:
    """The result of a program whose chats `answer` answers, one after the other.

    What `answer` raises ends the program, but the chats of the same step are all put to it first, as `dispatch` does.
    """
    with closing(steps):
        answers: list[Completion] | None = None
        while True:
            try:
                chats = next(steps) if answers is None else steps.send(answers)
            except StopIteration as end:
                result: T = end.value
                return result
            answers, failed = [], list[Exception]()
            for chat in chats:
                try:
                    answers.append(answer(chat))
                except Exception as error:
                    failed.append(error)
            if failed:
                raise failed[0]
