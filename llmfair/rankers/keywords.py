"""Reading the keywords that a model adds to a query: every reply has a class, and gives new words or none.

Users of query refinement report that what models say about their keywords ("Here is a list of …") ends up in the
query. So keywords are taken from where a reply sets them apart: JSON, a fence, a list, behind a label, in quotes; only
a reply without any of these is read by its last line. What is searched are words alone: letters and digits, with the
marks that join them; no control character and no operator of a query language is left. Linear in the reply's length.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from llmfair.control_tokens import answer_of
from llmfair.nouns import Completion, Finish
from llmfair.rankers.answers import REFUSAL, unescaped

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
_BY_FINISH = {
    Finish.FILTERED: ReplyClass.REFUSED,
    Finish.REFUSED: ReplyClass.REFUSED,
    Finish.LENGTH: ReplyClass.TRUNCATED,
    Finish.UNFINISHED_THINKING: ReplyClass.TRUNCATED,
    Finish.EMPTY: ReplyClass.EMPTY,
}


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
"""Characters of a reply in which a refusal shows."""


def read_keywords(completion: Completion, query: str, plain: bool = False) -> Keywords:
    """Reads a reply to a query as it stands; `plain`: no form was asked for, so that a list or line is well-formed."""
    if completion.finish is not Finish.STOP:
        return Keywords(_BY_FINISH[completion.finish])
    answer = answer_of(completion.text)
    if answer is None:
        return Keywords(ReplyClass.TRUNCATED)
    text = unescaped(answer.replace("\ufeff", "")).strip()
    if not text:
        return Keywords(ReplyClass.EMPTY)
    parsed_by, keywords = _found(text)
    if REFUSAL.match((" ".join(keywords) if parsed_by == "json" else text)[:_BEGINNING]):
        return Keywords(ReplyClass.REFUSED)
    keywords = (
        [] if _NONE.fullmatch(text) else [keyword for keyword in keywords if not _NONE.fullmatch(keyword)]
    )
    phrases, echoed = _without_query([words for keyword in keywords if (words := words_of(keyword))], query)
    if sum(map(len, phrases)) > MOST_WORDS:
        return Keywords(ReplyClass.TOO_LONG, parsed_by)
    if not phrases and not echoed:
        return Keywords(ReplyClass.EMPTY, parsed_by)
    new = new_words((word for words in phrases[:MOST_KEYWORDS] for word in words), query)
    asked = ("json",) if not plain else ("json", "list", "label", "line")
    as_asked = parsed_by in asked and len(phrases) <= MOST_KEYWORDS
    found = ReplyClass.ECHO if echoed else ReplyClass.OK if as_asked else ReplyClass.REPAIRED
    return Keywords(found, parsed_by, new)


def words_of(text: str) -> tuple[str, ...]:
    """The words of a text: letters and digits of any script, joined by an apostrophe, a full stop or a hyphen.

    Without the operators of query languages, which are words in capitals.
    """
    return tuple(_WORD.findall(_OPERATOR.sub(" ", unicodedata.normalize("NFC", text))))


def parts_of(text: str) -> frozenset[str]:
    """What of a text can be found in another, whatever its letter case: `women's` is `women` and `s`."""
    return frozenset(_PART.findall(unicodedata.normalize("NFC", text).casefold()))


def new_words(words: Iterable[str], query: str) -> tuple[str, ...]:
    """The words that have a part which neither the query nor an earlier word has, in order."""
    known, new = set(parts_of(query)), []
    for word in words:
        if parts := parts_of(word) - known:
            known |= parts
            new.append(word)
    return tuple(new)


def _found(text: str) -> tuple[str, list[str]]:
    """By which form the keywords were found, and they."""
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
        return "list", [_QUOTED.sub(_inner, one).partition(": ")[0] for one in bullets]
    if labelled := [match[1] for line in lines if (match := _LABEL.fullmatch(line))]:
        return "label", _quoted(labelled[-1]) or _split(labelled[-1:])
    if (quoted := _quoted(text)) and not _OPERATOR.search(text):
        return "quoted", quoted
    # what follows the keywords is mostly a sentence about them
    said = [line for line in lines if not _SENTENCE.search(line)] or lines
    return "line", _split(said[-1:])


def _json(text: str) -> list[str] | None:
    """The keywords of a JSON object or list, wherever their texts stand in it; None where it is neither."""
    try:
        value: Any = json.loads(text, strict=False)
        if isinstance(value, dict):
            value = next(([of] for key in _KEYS for name, of in value.items() if key.search(name)), value)
        return [*_texts(value)] if isinstance(value, dict | list) else None
    except (ValueError, RecursionError):
        return None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)


def _split(lines: Collection[str]) -> list[str]:
    return [part for line in lines for part in re.split(r"[,;|]", line) if part.strip()]


def _quoted(text: str) -> list[str]:
    return [_inner(match) for match in _QUOTED.finditer(text)]


def _inner(match: re.Match[str]) -> str:
    return next(filter(None, match.groups()), "")


def _without_query(keywords: Sequence[tuple[str, ...]], query: str) -> tuple[list[tuple[str, ...]], bool]:
    """The keywords without the whole query where one repeats it, and whether one does."""
    whole = parts_of(_OPERATOR.sub(" ", query))
    kept, echoed = list[tuple[str, ...]](), False
    for words in keywords:
        parts = {part for word in words for part in parts_of(word)}
        if whole and parts >= whole:
            echoed = True
            words = new_words(words, query)
        if words:
            kept.append(words)
    return kept, echoed
