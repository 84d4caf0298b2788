"""Reading a listwise answer: every answer has a class, and gives a permutation of the window or none.

Counts, years, list numbers, prose and thoughts must not become ranks, so the strict reader takes identifiers only
where they cannot be anything else. The rankgpt reader takes every digit, those of thoughts too, as the original does
(Sun et al. 2023). All work is linear in the length of the text, which a model and not we decide.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal, TypeVar

from llmfair.control_tokens import answer_of
from llmfair.errors import LlmfairError
from llmfair.records import Completion, Finish

T = TypeVar("T")

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

    def __init__(self, message: str) -> None:
        super().__init__(
            message, "--on-bad-answer repair counts such answers and goes on, retry:N asks again"
        )


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
_PLAIN = re.compile(r"\[[0-9]{1,9}\](?: > \[[0-9]{1,9}\])*")
_NUMBER = re.compile(r"\d+")
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
    answer_class, order = _strict(text, n)
    if answer_class is AnswerClass.TRUNCATED:
        return Reading(answer_class)
    # Numbers that hold 0 and lack n count from 0: a repair would shift every item.
    strict, named = (None, 0) if 0 in order and n not in order else _repaired(order, n)
    original = _repaired(_digits(text), n)  # RankGPT's: every number ranks, wherever it stands
    chosen = (strict, named) if reader == "strict" else original
    return Reading(answer_class, *chosen, readers_differ=strict != original[0])


def read_strict(text: str, n: int) -> Reading:
    """The strict reading of a text, its numbers repaired whatever they count from."""
    answer_class, numbers = _strict(text, n)
    return Reading(answer_class, *_repaired(numbers, n))


def _strict(text: str, n: int) -> tuple[AnswerClass, Sequence[int]]:
    """The class of an answer that ended by itself, and the numbers it puts in order: none where it is no order."""
    answer = answer_of(text)
    if answer is None:
        return AnswerClass.TRUNCATED, ()
    answer = undressed(answer)
    if not answer:
        return AnswerClass.EMPTY, ()
    rest, refused = without_refusals(answer)
    if numbers := _order(rest, n, chained=refused):
        return _class_of(numbers, n), numbers
    return (AnswerClass.REFUSED if rest != answer and _GROUP.search(answer) else AnswerClass.NO_IDS), ()


# What orders look like

NOUN = r"(?:passage|document|doc|item|candidate|option|answer|result|text|page|article|identifier|id|no\.)"
_GROUP = re.compile(r"\[([\d\s,;<>=]*)\]")
_WORD_CHARACTER = re.compile(r"[^\W_]")
_LIST_NUMBER = re.compile(r"^[ \t]*\d+[.)][ \t]", re.MULTILINE)
_BARE_NUMBERS = re.compile(r"[\d\s,;<>=]+")
_NAMED_NUMBERS = re.compile(
    rf"(?:(?:{NOUN}\s*+#?\s*+\d++|\(\d++\)|\{{\d++\}})[\s,;<>=.]*+){{2,}}", re.IGNORECASE
)
_ITEM = rf"(?:\b{NOUN}\s*+#?\s*+)?(?:\(\d++\)|(?<![\w.-])\d++(?![\w-]|\.\w))"
_CHAIN = re.compile(rf"{_ITEM}(?:\s*+[<>]\s*+{_ITEM})+", re.IGNORECASE)
_LED = re.compile(r"(?:[:=<>.!?]|\b(?:is|are|be|order|ranking|follows|answer|list))[^\w\n]*\Z", re.IGNORECASE)
_OVER = re.compile(r"[^\w\n.!?]*(?:[.!?]|\n|\Z|,\s*\w+\s*:)")
_NEAR = 80
"""Characters before and behind numbers that tell whether they stand apart."""
_BEST, _WORST = r"(?:best|most|highest|top)", r"(?:worst|least|lowest|bottom)"
_FROM_TO = r"{}(?:[ _-]\w+){{0,2}}[ _-]?to[ _-]?(?:the[ _-])?{}"
_WORST_FIRST = re.compile(
    rf"\b(?:{_FROM_TO.format(_WORST, _BEST)}|(?:worst|least)(?:[ _-]\w+)?[ _-]?first|"
    r"(?:ascending|increasing|reversed?) order)",
    re.IGNORECASE,
)
_BEST_FIRST = re.compile(
    rf"\b(?:{_FROM_TO.format(_BEST, _WORST)}|(?:best|most)(?:[ _-]\w+)?[ _-]?first|(?:descending|decreasing) order)",
    re.IGNORECASE,
)


def _order(text: str, n: int, chained: bool) -> Sequence[int]:
    """The numbers that an answer puts in order, best first, whether it is a permutation or not; none without an order.

    `chained`: only numbers between `>` or `<` are an order.
    """
    numbers, signs = _bracketed(text, n) if _GROUP.search(text) else _bare(text, n)
    return best_first(numbers, signs, contradicted_signs(text)) if signs or not chained else ()


def best_first(
    labels: Sequence[T], signs: Collection[str], contradicted: Collection[str] = ()
) -> Sequence[T]:
    """Labels with `>` or `<` between them, the best first: a chain of `<` ends with it.

    None of a chain of both, or of signs that the answer's words contradict: nobody can tell which is the best.
    """
    rising = "<" in signs
    if (rising and ">" in signs) or "><"[rising] in contradicted:
        return ()
    return labels[::-1] if rising else labels


def contradicted_signs(text: str) -> str:
    """`>` where a text says that the worst comes first, `<` where it says that the best does, both, or none."""
    return ">" * bool(_WORST_FIRST.search(text)) + "<" * bool(_BEST_FIRST.search(text))


def _bracketed(text: str, n: int) -> _Order:
    """The numbers in square brackets and the signs between them: the last run that is a permutation, else all.

    Groups belong to one run when no letter or digit stands between them, list numbers aside. A run is an order if signs
    chain it or it stands apart from prose; several runs are one where every group follows a sign or begins a line, as
    `[2] Ada > [1] Bob` does.
    """
    runs: list[_Run] = []
    joined = True
    for group in _GROUP.finditer(text):
        values = _values(group[1])
        if not values:
            continue
        between = text[runs[-1].end : group.start()] if runs else ""
        words = _WORD_CHARACTER.search(between) and _WORD_CHARACTER.search(_LIST_NUMBER.sub("", between))
        if not runs or words:
            runs.append(_Run([], group.start(), group.end(), _led_by(between)))
            joined = joined and (len(runs) == 1 or bool(runs[-1].sign))
        runs[-1].numbers += values
        runs[-1].end = group.end()
    signs = [_signs(text[run.start : run.end]) for run in runs]
    orders = [
        (run, among) for run, among in zip(runs, signs, strict=True) if among or _stands_apart(text, run)
    ]
    for run, among in reversed(orders):
        if _is_permutation(run.numbers, n):
            return run.numbers, among
    if not (orders if len(runs) == 1 else runs and joined and _is_led(text, runs[0])):
        return [], set()
    leading = {run.sign for run in runs if run.sign in ("<", ">")}
    return [number for run in runs for number in run.numbers], leading.union(*signs)


@dataclass(slots=True)
class _Run:
    """Neighbouring numbers, where they stand, and the sign before them."""

    numbers: list[int]
    start: int
    end: int
    sign: str


_Order = tuple[list[int], set[str]]
"""Numbers as they stand in a text, and the signs between them."""


def _signs(text: str) -> set[str]:
    return {sign for sign in "<>" if sign in text}


def _led_by(between: str) -> str:
    """The sign or line's end that stands between two groups, without a word behind it; empty without."""
    start = max(between.rfind(sign) for sign in "<>\n")
    words = start < 0 or _WORD_CHARACTER.search(_LIST_NUMBER.sub("", between[start + 1 :]))
    return "" if words else between[start]


def _is_led(text: str, run: _Run) -> bool:
    """Whether numbers begin a line or a sentence, or follow a colon."""
    before = text[max(run.start - _NEAR, 0) : run.start].rpartition("\n")[2]
    return not _WORD_CHARACTER.search(_LIST_NUMBER.sub("", before)) or bool(_LED.search(before))


def _stands_apart(text: str, run: _Run) -> bool:
    """Whether numbers are no part of a sentence, but what it says: `The order is [2], [1].`"""
    return _is_led(text, run) and bool(_OVER.match(text[run.end : run.end + _NEAR]))


def _bare(text: str, n: int) -> _Order:
    """Numbers without square brackets and the signs between them: where they are all, or a chain of all items."""
    whole = text.removesuffix(".").strip()
    unnumbered = _LIST_NUMBER.sub("", whole)
    for form, order in ((_BARE_NUMBERS, whole), (_NAMED_NUMBERS, unnumbered)):
        if form.fullmatch(order):
            return _values(order), _signs(order)
    orders = ((_values(chain[0]), _signs(chain[0])) for chain in _CHAIN.finditer(text))
    chains = [(numbers, signs) for numbers, signs in orders if _is_permutation(numbers, n)]
    return chains[-1] if chains else ([], set())


def _is_permutation(numbers: list[int], n: int) -> bool:
    return len(numbers) == n and set(numbers) == set(range(1, n + 1))


def _values(text: str) -> list[int]:
    """The numbers in a text; one of more than 9 digits becomes -1, which is out of range as well."""
    return [int(token) if len(token) <= _MOST_DIGITS else -1 for token in _NUMBER.findall(text)]


def _digits(text: str) -> list[int]:
    """All numbers of a text as RankGPT finds them; none where its `int` would fail."""
    if not text.isascii() and any(c.isdigit() and not c.isdecimal() for c in text):
        return []
    tokens = _NUMBER.findall(text)
    if any(len(token) > _MOST_DIGITS_OF_ORIGINAL for token in tokens):
        return []
    return [int(token) for token in tokens]


def _class_of(numbers: Sequence[int], n: int) -> AnswerClass:
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


# What answers wear, in lists and pairs

_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_SIGNS = str.maketrans("【〔〖⟦「】〕〗⟧」≻≺", "[[[[[]]]]]><")
_ENTITIES = {"gt": ">", "#62": ">", "#x3e": ">", "lt": "<", "#60": "<", "#x3c": "<", "quot": '"', "nbsp": " "}
_ENTITY = re.compile(rf"&(?:amp;)?({'|'.join(_ENTITIES)});", re.IGNORECASE)
_MACRO = re.compile(r"\$*\\(?:boxed|fbox|text|textbf|textrm|mathrm|mathbf)\s*\{([^{}]*)\}\$*")
_SIGN = re.compile(r"\\(gt|succ|lt|prec)(?![a-z])")
_ESCAPED = re.compile(r"\\([\[\](){}<>*_#.,=:;!\"'`-])")
_BREAK = re.compile(r"<br\s*+/?>", re.IGNORECASE)
_FENCE = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
_IN_BRACKETS = re.compile(
    rf"(?<=[\[,(])\s*+(?:{NOUN}\s*+[:#]?\s*+(?=(?:\d{{1,9}}|[a-z])\s*+[\],)<>])|[#PD]\s*+(?=\d{{1,9}}\s*+[\],)<>]))",
    re.IGNORECASE,
)
_TWICE = re.compile(r"\[\[\s*(\w{1,9})\s*\]\]")
_KEYS = re.compile(
    r"(?:final)?(?:answer|ranking|order(?:ing)?|choice|selection|result|response)s?|output|permutation|winner|best|"
    r"label|selected|preferred|preference|ranked(?:list|ids|order)?|(?:ranked)?(?:passage|document|item|identifier|id)s?|"
    r"(?:most|more)relevant",
    re.IGNORECASE,
)
"""What a JSON answer calls its order or its choice, letters alone."""
_LABEL = re.compile(rf"[\[({{]?\s*(?:{NOUN}\s*)?#?(?:\w{{1,9}})\s*[\])}}]?", re.IGNORECASE)
_MARKS = str.maketrans("", "", "*_`\"'“”‘’")


def undressed(text: str) -> str:
    """An answer without what stands around its labels and means nothing: JSON, markup, escapes, invisible characters.

    Brackets and digits of other scripts become their plain forms.
    """
    if not text.isascii():
        # Character by character: NFKC of a whole text takes quadratic time on a pile of combining marks.
        text = _NOT_ASCII.sub(_compatible, text).translate(_SIGNS)
    if "&" in text:
        text = _ENTITY.sub(lambda match: _ENTITIES[match[1].lower()], text)
    if (value := _of_json(text)) is not None:
        text = value
    if "\\" in text:
        for _ in range(2):  # \boxed{\text{A}}
            text = _MACRO.sub(r"\1", text)
        text = _ESCAPED.sub(r"\1", _SIGN.sub(lambda match: ">" if match[1] in ("gt", "succ") else "<", text))
    text = _IN_BRACKETS.sub("", _BREAK.sub("\n", text)).translate(_MARKS)
    return _TWICE.sub(r"[\1]", text).strip()


def _compatible(match: re.Match[str]) -> str:
    character = match[0]
    if unicodedata.category(character) == "Cf":
        return ""  # a byte order mark, a zero-width space
    return str(unicodedata.decimal(character, "")) or unicodedata.normalize("NFKC", character)


def _of_json(text: str) -> str | None:
    """What a JSON object, list or code fence that is or ends the answer says, as a chain; None where it is none."""
    fences = _FENCE.findall(text)
    source = (fences[0] if len(fences) == 1 else text).strip()
    if source[:1] not in ("{", "["):
        return None
    try:
        value = json.loads(source if '"' in source else source.replace("'", '"'))
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict):
        values = [of for key, of in value.items() if _KEYS.fullmatch(re.sub(r"[\W\d_]", "", key))]
        value = values[0] if len(values) == 1 else None
    return _chain(value)


def _chain(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    labels = [_label(of) for of in (value if isinstance(value, list) else [value])]
    return None if not labels or None in labels else " > ".join(map(str, labels))


def _label(value: Any) -> str | None:
    if isinstance(value, str):
        text = value.strip()
        return f"[{text}]" if text.isdecimal() else text if _LABEL.fullmatch(text) else None
    return f"[{value}]" if type(value) is int and value >= 0 else None


# Refusals

_SORRY = r"(?:(?:i['’]?m |i am )?(?:(?:so|very|truly) )?(?:sorry|afraid)|(?:i|my) apolog\w+|unfortunately|i regret)"
_AS_AI = r"as an? (?:\w{1,20} ){0,3}?(?:ai|artificial intelligence|language model|assistant)\b"
_GOOD = r"(?:appropriate|possible|ethical|fair|right|ok(?:ay)?)"
_BAD = rf"(?:in|un|im|not ){_GOOD}|wrong|discriminatory|harmful|against my"
_CANNOT = (
    r"(?:(?:i|we) (?:can(?:no|['’]?)t|can not|won['’]?t|will not|must not|should(?: not|n['’]?t)|"
    r"would (?:rather|prefer) not|(?:am|are) (?:not able|unable|not comfortable|not going)|"
    r"(?:(?:must|have to|need to|will) )?(?:\w+ly )?(?:decline|refuse|refrain)|"
    r"do(?: not|n['’]?t) (?:feel comfortable|think|believe|rank|compare|judge|order))\b|"
    r"(?:i['’]?m|we['’]re) (?:not able|unable|not comfortable|not going)\b|i['’]?d (?:rather|prefer) not\b|"
    r"(?:it|this|that|(?:ranking|comparing|ordering|judging|sorting|doing)\b[^.!?;\n]{0,80}?)"
    rf"(?:(?: is|['’]?s| would be|['’]d be) (?:{_BAD})|(?: isn['’]?t| would not be| wouldn['’]?t be) {_GOOD})\b)"
)
REFUSAL = re.compile(rf"\W{{0,9}}(?:{_SORRY}\W{{1,9}})?(?:but )?(?:{_AS_AI}|{_CANNOT})", re.IGNORECASE)
"""How a refusal begins."""
_REFUSING = re.compile(
    rf"(?:^\W{{0,9}}|(?<=[.!?;:])\W{{0,9}}|\b(?:but|however|so)\b\W{{1,9}})(?:{_SORRY}\W{{1,9}})?(?:but )?"
    rf"(?:{_AS_AI}[^.!?;\n]{{0,40}}?)?{_CANNOT}"
    r"(?:(?!\b(?:but|however|nevertheless|nonetheless|still|instead)\b)(?:e\.g\.|i\.e\.|[^.!?;\n])){0,2000}",
    re.IGNORECASE | re.MULTILINE,
)


def without_refusals(text: str) -> tuple[str, bool]:
    """A text without the clauses that refuse to answer, and whether it begins with one.

    A clause ends with its sentence or before `but`: what follows may be an answer all the same.
    """
    rest = _REFUSING.sub("\n", text)
    return rest, rest != text and REFUSAL.match(text) is not None
