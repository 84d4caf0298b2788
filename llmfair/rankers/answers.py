"""Reading a listwise answer: every answer has a class, and gives a permutation of the window or none.

Counts, years, list numbers and thoughts must not become ranks, so the strict reader takes identifiers only
where they cannot be anything else. The rankgpt reader takes every digit, as the original does (Sun et al.
2023). All work is linear in the length of the text, which a model and not we decide.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Literal

from llmfair.errors import LlmfairError
from llmfair.records import Completion, Finish

ReaderName = Literal["strict", "rankgpt"]


class AnswerClass(StrEnum):
    """What became of one question; every class but `OK` is bad."""

    OK = "ok"
    MISSING = "missing"
    DUPLICATE = "duplicate"
    OUT_OF_RANGE = "out_of_range"
    NO_IDS = "no_ids"
    EMPTY = "empty"
    REFUSED = "refused"
    TRUNCATED = "truncated"


class UnparseableAnswer(LlmfairError):
    """A bad answer where the policy is to fail: the chain has no ranking."""


@dataclass(frozen=True, slots=True)
class Reading:
    """An answer's class (the strict reader's) and what it does to the window.

    `permutation` is 0-based, best first, after repair; None leaves the window as it is. Its first `named`
    items were named by the answer, the others appended in window order. `readers_differ` says that the two
    readers' permutations are not the same. `scores`: of the items in the order shown, None each of one without.
    """

    answer_class: AnswerClass
    permutation: tuple[int, ...] | None = None
    named: int = 0
    readers_differ: bool = False
    scores: tuple[float | None, ...] | None = None


BY_FINISH: Mapping[Finish, AnswerClass] = {
    Finish.FILTERED: AnswerClass.REFUSED,
    Finish.REFUSED: AnswerClass.REFUSED,
    Finish.LENGTH: AnswerClass.TRUNCATED,
    Finish.UNFINISHED_THINKING: AnswerClass.TRUNCATED,
    Finish.EMPTY: AnswerClass.EMPTY,
}
_THOUGHT_END = "</think>"
_PLAIN = re.compile(r"\[[0-9]{1,9}\](?: > \[[0-9]{1,9}\])*")
_GROUP = re.compile(r"\[([\d\s,]*)\]")
_NUMBER = re.compile(r"\d+")
_WORD_CHARACTER = re.compile(r"[^\W_]")
_LIST_NUMBER = re.compile(r"(?<=\n)[ \t]*\d+\.[ \t]")
_BARE_NUMBERS = re.compile(r"[\d\s,;>=]+")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_MOST_DIGITS = 9
_MOST_DIGITS_OF_ORIGINAL = 4300


def read(completion: Completion, n: int, reader: ReaderName = "strict") -> Reading:
    """Reads the answer to a window of n: first how it ended, then its text."""
    if completion.finish is not Finish.STOP:
        return Reading(BY_FINISH[completion.finish])
    return _read(completion.text, n, reader)


@lru_cache(maxsize=512)  # the answers to small windows recur: five items have 120 orders
def _read(text: str, n: int, reader: ReaderName) -> Reading:
    if _PLAIN.fullmatch(text) and _is_permutation(numbers := _values(text), n):
        # As it was asked for, and as most are: readers agree, and need not look for what else it might mean.
        return Reading(AnswerClass.OK, *_repaired(numbers, n))
    strict = read_strict(text, n)
    original, named = _repaired(_digits(text), n)  # RankGPT's: every number ranks, wherever it stands
    chosen = (strict.permutation, strict.named) if reader == "strict" else (original, named)
    return Reading(strict.answer_class, *chosen, readers_differ=strict.permutation != original)


def read_strict(text: str, n: int) -> Reading:
    """The strict reading of an answer that ended by itself."""
    text = text[text.rfind(_THOUGHT_END) + len(_THOUGHT_END) :] if _THOUGHT_END in text else text
    if not text.strip():
        return Reading(AnswerClass.EMPTY)
    if not text.isascii():
        # Character by character: NFKC of a whole text takes quadratic time on a pile of combining marks.
        text = _NOT_ASCII.sub(_compatible, text)
    numbers = _bracketed(text, n)
    if numbers is None:
        bare = text.replace("`", "").replace("*", "").strip().removesuffix(".")
        numbers = _values(bare) if _BARE_NUMBERS.fullmatch(bare) else []
    if not numbers:
        return Reading(AnswerClass.NO_IDS)
    return Reading(_class_of(numbers, n), *_repaired(numbers, n))


def _compatible(match: re.Match[str]) -> str:
    return unicodedata.normalize("NFKC", match[0])


def _bracketed(text: str, n: int) -> list[int] | None:
    """The numbers in square brackets: the last run that is a permutation, else all; None without any.

    Groups belong to one run when no letter or digit stands between them, list numbers aside.
    """
    everything: list[int] = []
    run: list[int] = []
    answer: list[int] | None = None
    last_end = 0
    for group in _GROUP.finditer(text):
        values = _values(group[1])
        if not values:
            continue
        between = text[last_end : group.start()]
        if run and _WORD_CHARACTER.search(between) and _WORD_CHARACTER.search(_LIST_NUMBER.sub("", between)):
            answer = run if _is_permutation(run, n) else answer
            run = []
        run += values
        everything += values
        last_end = group.end()
    if _is_permutation(run, n):
        return run
    return answer or everything or None


def _is_permutation(numbers: list[int], n: int) -> bool:
    return len(numbers) == n and set(numbers) == set(range(1, n + 1))


def _values(text: str) -> list[int]:
    """The numbers in a text; one of more than 9 digits becomes 0, which is out of range as well."""
    return [int(token) if len(token) <= _MOST_DIGITS else 0 for token in _NUMBER.findall(text)]


def _digits(text: str) -> list[int]:
    """All numbers of a text as RankGPT finds them; none where its `int` would fail."""
    if not text.isascii() and any(c.isdigit() and not c.isdecimal() for c in text):
        return []
    tokens = _NUMBER.findall(text)
    if any(len(token) > _MOST_DIGITS_OF_ORIGINAL for token in tokens):
        return []
    return [int(token) for token in tokens]


def _class_of(numbers: list[int], n: int) -> AnswerClass:
    if not all(1 <= number <= n for number in numbers):
        return AnswerClass.OUT_OF_RANGE
    distinct = len(set(numbers))
    if distinct < len(numbers):
        return AnswerClass.DUPLICATE
    return AnswerClass.MISSING if distinct < n else AnswerClass.OK


def _repaired(numbers: Iterable[int], n: int) -> tuple[tuple[int, ...] | None, int]:
    """Valid numbers in order of first occurrence, then the absent items; and how many of them were named."""
    named = dict.fromkeys(number - 1 for number in numbers if 1 <= number <= n)
    if not named:
        return None, 0
    return (*named, *(item for item in range(n) if item not in named)), len(named)
