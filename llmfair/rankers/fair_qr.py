"""FAIR-QR: a query refined by a language model until the groups on its page meet a target (Chen & Fang 2025).

q ← q0, L ← the first k documents that q finds. Each round names the group that is furthest below its target, asks for
keywords, searches with them, and goes on while the objective improves. The list before the first that does not is
kept, and ordered by the original query. A round's question shows all that a model has to know, so each is a
conversation of its own; the trail has every round. The program knows neither engine nor measures: its topic does.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal

from llmfair.control_tokens import answer_of
from llmfair.metrics.targets import UNKNOWN
from llmfair.nouns import Chat, Completion, Finish, Query, Steps, Text
from llmfair.prompts import Prompt
from llmfair.rankers.answers import BY_FINISH, REFUSAL, unescaped
from llmfair.rankers.listwise import readings_of
from llmfair.rankers.passages import WHOLE, clean

# Keywords are taken from where a reply sets them apart, else what models say about them ("Here is a list of …") would
# be searched: JSON, a fence, a list, behind a label, in quotes, or its last line. What is searched are words alone.
# Linear in the reply's length.

MOST_KEYWORDS, MOST_WORDS = 8, 12
"""Keywords kept of a reply, and words; a reply that has more words is no list of keywords."""


class ReplyClass(StrEnum):
    """What became of one reply."""

    OK = "ok"  # in the form that was asked for
    REPAIRED = "repaired"  # found in another form, or cut to the first keywords
    ECHO = "echo"  # repeats the query, with or without further words
    TOO_LONG = "too_long"
    REFUSED = "refused"
    EMPTY = "empty"
    TRUNCATED = "truncated"


READABLE = frozenset({ReplyClass.OK, ReplyClass.REPAIRED, ReplyClass.ECHO})


@dataclass(frozen=True, slots=True)
class Keywords:
    """A reply as it was read: its class, by which form (`parsed_by`), and the words that the query lacks, in order."""

    reply_class: ReplyClass
    parsed_by: str = ""
    words: tuple[str, ...] = ()

    @property
    def readable(self) -> bool:
        """Whether it names keywords at all, new ones or not."""
        return self.reply_class in READABLE


_WORD = re.compile(r"[^\W_]+(?:['’.\-][^\W_]+)*")
_PART = re.compile(r"[^\W_]+")
_FENCE = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
_OBJECT = re.compile(r"\{[^{}]*\}|\[[^\[\]]*\]")
_QUOTED = re.compile(r"\"([^\"\n]{1,200})\"|“([^”\n]{1,200})”|`([^`\n]{1,200})`")
_BULLET = re.compile(r"\s{0,8}(?:[-*•–+]|\d{1,2}[.)])\s+(\S.*)")
_LABEL = re.compile(
    r"[^:\n]{0,80}\b(?:keywords?|terms?|words?|phrases?|query|answer)\b[^:\n]{0,40}:[*_\s]*(\S.*)",
    re.IGNORECASE,
)
_OPERATOR = re.compile(r"\b(?:AND|OR|NOT)\b")
_SENTENCE = re.compile(r"[.!?:][*_\"')\s]*$")
_NONE = re.compile(
    r"\W*(?:sorry\W+)?(?:none|no(?:thing)?|n/?a|no (?:\w+ )?(?:keyword|term|word)s?\b[^\n]{0,80})\W*",
    re.IGNORECASE,
)
_KEYS = re.compile("keyword", re.IGNORECASE), re.compile("term|word|phrase|synonym|quer", re.IGNORECASE)
"""What an object calls its keywords, the surest first."""
_BEGINNING = 100


def read_keywords(completion: Completion, query: str, plain: bool = False) -> Keywords:
    """Reads a reply to a query as it stands; `plain`: no form was asked for, so that a list or line is well-formed."""
    if completion.finish is not Finish.STOP:
        return Keywords(ReplyClass[BY_FINISH[completion.finish].name])
    answer = answer_of(completion.text)
    if answer is None:
        return Keywords(ReplyClass.TRUNCATED)
    text = unescaped(answer.replace("\ufeff", "")).strip()
    if not text:
        return Keywords(ReplyClass.EMPTY)
    parsed_by, keywords = _parsed(text)
    if REFUSAL.match((" ".join(keywords) if parsed_by == "json" else text)[:_BEGINNING]):
        return Keywords(ReplyClass.REFUSED)
    keywords = (
        [] if _NONE.fullmatch(text) else [keyword for keyword in keywords if not _NONE.fullmatch(keyword)]
    )
    all_parts = parts_of(_OPERATOR.sub(" ", query))
    phrases, echoed = list[tuple[str, ...]](), False
    for words in map(words_of, keywords):
        if all_parts and frozenset().union(*map(parts_of, words)) >= all_parts:  # the whole query again
            echoed, words = True, new_words(words, query)
        phrases += [words] * bool(words)
    if sum(map(len, phrases)) > MOST_WORDS:
        return Keywords(ReplyClass.TOO_LONG, parsed_by)
    if not phrases and not echoed:
        return Keywords(ReplyClass.EMPTY, parsed_by)
    new = new_words((word for words in phrases[:MOST_KEYWORDS] for word in words), query)
    forms = ("json",) if not plain else ("json", "list", "label", "line")
    as_asked = parsed_by in forms and len(phrases) <= MOST_KEYWORDS
    reply_class = ReplyClass.ECHO if echoed else ReplyClass.OK if as_asked else ReplyClass.REPAIRED
    return Keywords(reply_class, parsed_by, new)


def words_of(text: str) -> tuple[str, ...]:
    """The words of a text, joined by an apostrophe, a full stop or a hyphen; without operators in capitals."""
    return tuple(_WORD.findall(_OPERATOR.sub(" ", unicodedata.normalize("NFC", text))))


def parts_of(text: str) -> frozenset[str]:
    """What of a text can be found in another, whatever its letter case: `women's` is `women` and `s`."""
    return frozenset(_PART.findall(unicodedata.normalize("NFC", text).casefold()))


def new_words(words: Iterable[str], query: str) -> tuple[str, ...]:
    """The words that have a part which neither the query nor an earlier word has, in order."""
    earlier, new = set(parts_of(query)), []
    for word in words:
        if parts := parts_of(word) - earlier:
            earlier |= parts
            new.append(word)
    return tuple(new)


def _parsed(text: str) -> tuple[str, list[str]]:
    """The form that the keywords stand in, and they."""
    if (listed := _json(text)) is not None:
        return "json", listed
    for fence in _FENCE.findall(text):
        listed = _json(fence)
        return "fenced", _split(fence.split("\n")) if listed is None else listed
    for object_ in reversed(_OBJECT.findall(text)):
        if listed := _json(object_):
            return "embedded", listed
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if bullets := [match[1] for line in lines if (match := _BULLET.fullmatch(line))]:
        return "list", [_QUOTED.sub(_inner, bullet).partition(": ")[0] for bullet in bullets]
    if labelled := [match[1] for line in lines if (match := _LABEL.fullmatch(line))]:
        return "label", [*map(_inner, _QUOTED.finditer(labelled[-1]))] or _split(labelled[-1:])
    if (quoted := [*map(_inner, _QUOTED.finditer(text))]) and not _OPERATOR.search(text):
        return "quoted", quoted
    # what follows the keywords is mostly a sentence about them
    statements = [line for line in lines if not _SENTENCE.search(line)] or lines
    return "line", _split(statements[-1:])


def _json(text: str) -> list[str] | None:
    """The keywords of a JSON object or list, wherever their texts stand in it; None where it is neither."""
    try:
        value: Any = json.loads(text, strict=False)
        if isinstance(value, dict):
            value = next(([of] for key in _KEYS for name, of in value.items() if key.search(name)), value)
        return _texts(value) if isinstance(value, dict | list) else None
    except (ValueError, RecursionError):
        return None


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        return [text for part in parts for text in _texts(part)]
    return [value] if isinstance(value, str) else []


def _split(lines: Collection[str]) -> list[str]:
    return [part for line in lines for part in re.split(r"[,;|]", line) if part.strip()]


def _inner(match: re.Match[str]) -> str:
    return next(filter(None, match.groups()), "")


Form = Literal["json", "paper"]
Keep = Literal["added", "last"]
PLACEHOLDERS = (
    "Query", "Target Exposure Distribution", "Top_K", "Current Exposure Distribution", "subgroup", "attribute",
)  # fmt: skip
UNKNOWN_IN_PROMPT = "Unknown"
"""What the prompt calls the group of documents without a known one."""
ROUNDING = 1e-9
"""What is nearer than this is equal: the same shares in another order of documents or groups differ by less."""


class Stop(StrEnum):
    """Why a loop ended."""

    ATTAINED = "attained"  # no page of whole documents is nearer the target
    NO_UNDERREPRESENTED_GROUP = "no_underrepresented_group"
    UNKNOWN_UNDERREPRESENTED = "unknown_underrepresented"  # and nothing else, and it is not asked for
    UNPARSEABLE = "unparseable"  # twice
    NO_KEYWORDS = "no_keywords"  # all of them stand in the query already
    NO_RESULT = "no_result"  # the original query finds nothing
    NO_DECREASE = "no_decrease"
    MAX_ITERATIONS = "max_iterations"


@dataclass(frozen=True)
class Stopping:
    """When a loop ends by the objective of its pages: `attained` is what it need not go beyond, None if nothing is."""

    max_iterations: int = 5
    better: Literal["lower", "higher"] = "lower"
    attained: float | None = 0.0

    def after(self, values: Sequence[float | None]) -> Stop | None:
        """Why the loop ends after these objectives, the original query's first, None the worst; None: it goes on."""
        *before, last = values
        sign = 1 if self.better == "lower" else -1
        cost, *costs = (math.inf if value is None else sign * value for value in (last, *before[-1:]))
        if costs and not costs[0] - cost > ROUNDING:
            return Stop.NO_DECREASE
        if self.attained is not None and cost <= sign * self.attained + ROUNDING:
            return Stop.ATTAINED
        return Stop.MAX_ITERATIONS if len(before) >= self.max_iterations else None

    def kept(self, values: Sequence[float | None]) -> int:
        """Which of the pages is kept: the last, unless the loop ended since it was no better."""
        return len(values) - 1 - (self.after(values) is Stop.NO_DECREASE)


def most_underrepresented(
    target: Mapping[str, float], current: Mapping[str, float], allow_unknown: bool = True
) -> str | None:
    """The group whose share is furthest below its target, the first of equals, unknown only if allowed; or None."""
    behind = {
        name: share - current[name]
        for name, share in target.items()
        if allow_unknown or UNKNOWN not in name.split("*")
    }
    most = max(behind.values(), default=0.0)
    return None if most <= ROUNDING else next(name for name in behind if behind[name] >= most - ROUNDING)


@dataclass(frozen=True)
class Page:
    """What a query found: documents, best first, the share of each group among them, and the objective."""

    doc_ids: tuple[str, ...] = ()
    shares: Mapping[str, float] = field(default_factory=dict)
    objective: float | None = None


@dataclass(frozen=True)
class Topic:
    """A query with all that the loop is told of it.

    `target`: the share that each group should have. `find` gives the page of the original query with further words,
    `reorder` orders documents by the original query. `hints`, of simulated models alone: words that distinguish a
    group's documents.
    """

    query: Query
    target: Mapping[str, float]
    stopping: Stopping
    find: Callable[[Sequence[str]], Page]
    reorder: Callable[[Sequence[str]], Sequence[str]]
    hints: Callable[[str, Collection[str]], Sequence[str]] | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model said, and how it was read."""

    text: str
    read: Keywords
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


@dataclass(frozen=True)
class Round:
    """The words beside the original query, for which group, what was said, and the page that they found."""

    iteration: int
    added: tuple[str, ...]
    page: Page
    accepted: bool
    subgroup: str | None = None
    new: tuple[str, ...] = ()
    replies: tuple[Reply, ...] = ()


@dataclass(frozen=True)
class Refined:
    """A topic's loop: its rounds, why it ended, and the page that was kept, ordered by the original query."""

    query: Query
    rounds: tuple[Round, ...]
    stop: Stop
    final: tuple[str, ...] = ()

    @property
    def kept(self) -> Round:
        """The round whose page was kept."""
        return next(round_ for round_ in reversed(self.rounds) if round_.accepted)

    @property
    def replies(self) -> list[Reply]:
        return [reply for round_ in self.rounds for reply in round_.replies]


@dataclass(frozen=True)
class FairQr:
    """The settings of the loop, alike for all topics. Raises UsageError for a prompt that lacks what is asked.

    `keep`: words accumulate (`added`), or those of the latest round replace the ones before (`last`).
    `allow_unknown`: a round may ask for documents of unknown group, as the paper's does.
    """

    prompt: Prompt
    attribute: str
    k: int
    form: Form = "json"
    keep: Keep = "added"
    allow_unknown: bool = False

    def __post_init__(self) -> None:
        self.prompt.expect(PLACEHOLDERS, ("Query", "subgroup"), self.form)

    def steps(self, topic: Topic) -> Steps[Refined]:
        """One chat a round, two where the first reply cannot be read."""
        best = Round(0, (), topic.find(()), True)
        rounds, values = [best], [best.page.objective]
        if not best.page.doc_ids:
            return Refined(topic.query, (best,), Stop.NO_RESULT)
        while (stop := topic.stopping.after(values)) is None:
            shares = topic.target, best.page.shares
            subgroup = most_underrepresented(*shares, self.allow_unknown)
            if subgroup is None:
                none = most_underrepresented(*shares) is None
                stop = Stop.NO_UNDERREPRESENTED_GROUP if none else Stop.UNKNOWN_UNDERREPRESENTED
                break
            chats = [self.chat(topic, best, subgroup)]
            (replies,) = yield from readings_of(
                chats, "retry", self._replies, lambda of: not of[-1].read.readable
            )
            read = replies[-1].read
            added = (*(best.added if self.keep == "added" else ()), *read.words)
            tried = Round(len(rounds), added, Page(), False, subgroup, read.words, replies)
            if not read.words:
                rounds.append(replace(tried, added=best.added))
                stop = Stop.NO_KEYWORDS if read.readable else Stop.UNPARSEABLE
                break
            tried = replace(tried, page=topic.find(tried.added))
            values.append(tried.page.objective)
            if topic.stopping.kept(values) == tried.iteration:
                best = tried = replace(tried, accepted=True)
            rounds.append(tried)
        return Refined(topic.query, tuple(rounds), stop, tuple(topic.reorder(best.page.doc_ids)))

    def _replies(self, chat: Chat, answer: Completion, before: tuple[Reply, ...] | None) -> tuple[Reply, ...]:
        read = read_keywords(answer, chat.about["query"], self.form == "paper")
        return *(before or ()), Reply(answer.text, read, answer.prompt_tokens, answer.completion_tokens)

    def chat(self, topic: Topic, standing: Round, subgroup: str) -> Chat:
        """The question of a round, beside the page as it stands; `query` is the text that new words come behind."""
        page, named = standing.page, topic.target.items()
        names = [name for name, share in named if share > 0 or page.shares[name] > 0]
        values = {
            "Query": clean(refined_text(topic.query, standing.added), WHOLE),
            "Target Exposure Distribution": _shares(topic.target, names),
            "Current Exposure Distribution": _shares(page.shares, names),
            "Top_K": self.k,
            "subgroup": subgroup.replace(UNKNOWN, UNKNOWN_IN_PROMPT),
            "attribute": self.attribute,
        }
        about = {
            "task": "refine",
            "query_id": topic.query.query_id,
            "iteration": standing.iteration + 1,
            "subgroup": values["subgroup"],
            "query": refined_text(topic.query, standing.added if self.keep == "added" else ()),
        }
        if topic.hints is not None:
            about["hints"] = list(topic.hints(subgroup, standing.added))
        return Chat(self.prompt.render(values, self.form), Text(), about=about)


def refined_text(query: Query, added: Sequence[str]) -> str:
    """The original query with the words behind it."""
    return " ".join((query.text, *added))


def _shares(shares: Mapping[str, float], names: Sequence[str]) -> str:
    """JSON, the shares with three decimals."""
    named = ((name.replace(UNKNOWN, UNKNOWN_IN_PROMPT), shares[name]) for name in names)
    return "{" + ", ".join(f"{json.dumps(name)}: {share:.3f}" for name, share in named) + "}"
