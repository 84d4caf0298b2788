"""Reading a listwise answer: every answer has a class, and gives a permutation of the window or none.

The strict reader takes identifiers only where they cannot be counts, years, list numbers, prose or thoughts. The
rankgpt reader takes every digit, as the original does (Sun et al. 2023). All work is linear in the text's length.
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
from llmfair.nouns import Completion, Finish

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

    `permutation` is 0-based, best first, after repair; None leaves the window as it is. Its first `named` items were
    named by the answer, the others appended in window order. `scores`: of the items in the order shown.
    """

    answer_class: AnswerClass
    permutation: tuple[int, ...] | None = None
    named: int = 0
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
    answer = answer_of(text)
    if answer is None:
        return Reading(AnswerClass.TRUNCATED)
    answer = undressed(answer)
    rest, refused = without_refusals(answer)
    order = _order(rest, n, refused)
    if not all(1 <= number <= n for number in order):
        answer_class = AnswerClass.OUT_OF_RANGE
    elif len(set(order)) < len(order):
        answer_class = AnswerClass.DUPLICATE
    elif order:
        answer_class = AnswerClass.MISSING if len(order) < n else AnswerClass.OK
    elif not answer:
        answer_class = AnswerClass.EMPTY
    else:
        named = rest != answer and _GROUP.search(answer)
        answer_class = AnswerClass.REFUSED if named else AnswerClass.NO_IDS
    # Numbers that hold 0 and lack n count from 0: a repair would shift every item.
    if 0 in order and n not in order:
        order = ()
    if reader == "rankgpt":  # every number ranks, wherever it stands; none where its `int` would fail
        tokens = _NUMBER.findall(text)
        odd = not text.isascii() and any(c.isdigit() and not c.isdecimal() for c in text)
        fails = odd or any(len(token) > 4300 for token in tokens)
        order = () if fails else [*map(int, tokens)]
    return Reading(answer_class, *_repaired(order, n))


# What orders look like

NOUN = r"(?:passage|document|doc|item|candidate|option|answer|result|text|page|article|identifier|id|no\.)"
_GROUP = re.compile(r"\[([\d\s,;<>=]*)\]")
_WORD_CHARACTER = re.compile(r"[^\W_]")
_LIST_NUMBER = re.compile(r"^[ \t]*\d+[.)][ \t]", re.MULTILINE)
_RANK = (
    r"(?:#?\d{1,3}[ \t]?[.):|]|(?:rank|place|position)[ \t]*#?\d{1,3}\b[.):]?|\d{1,3}(?:st|nd|rd|th)\b[.):]?|"
    r"(?:first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|last)[ \t]?[.):|])"
)
"""What stands before the item of a rank: `1.`, `Rank 1:`, `1st:`, `First:`, `| 1 |`."""
_NAMED = rf"(?:\b{NOUN}\s*+#?\s*+)?\(?"
_NUMBERS = r"\[[\s,;<>=]*+\d[\d\s,;<>=]*+\]\)?"
_BRACKETED = _NAMED + _NUMBERS
_NAME = r"(?-i:[A-Z\u00c0-\u00de\u0400-\u042f])[\w'’.-]{0,30}(?:[ \t]+[\w'’.-]{1,30}){0,4}"
_NO_GROUP = r"\[(?![\s,;<>=]*+\d)"
_RUN = re.compile(
    rf"{_NUMBERS}(?:(?:[^\w\[\]:]*+(?:{_RANK}[^\w\[\]]*+)?|(?:[ \t]+{_NAME})?[ \t]*[,;]\s*+|"
    rf"(?:[^\[\n<>=]*+(?:{_NO_GROUP}[^\[\n<>=]*+)*[<>=]++)+\s*+[^\n<>\[\].!?:=]{{0,80}}?){_BRACKETED})*"
    rf"(?:,?[ \t]+(?:and|then)[ \t]+{_BRACKETED})?(?:[ \t]+{_NAME}(?=\.?[ \t]*$))?",
    re.IGNORECASE | re.MULTILINE,
)
"""Items in a row or a chain, which holds names too."""
_BEFORE_ITEM = re.compile(r"([<>=])[^\[<>=]*+\[(?=[\s,;<>=]*+\d)|(?<=[\d\s])([<>=])(?=[\s\d]+[\]<>=,;])")
"""The signs before items, outside brackets and in them; names have signs, too."""
_NO_WORDS = re.compile(rf"\b{NOUN}|{_RANK}|\b(?:and|then)\b", re.IGNORECASE)
_NOUN_LAST = re.compile(rf"\b{NOUN}\s*#?\s*\(?\Z", re.IGNORECASE)
_LINE = re.compile(
    rf"^[ \t|>#•+–-]*+(?:(?P<rank>{_RANK})[ \t|:–-]*+)?"
    rf"(?:{_NAMED}|(?(rank)(?P<name>[^\n\[\]<>.:;!?]{{1,80}}?(?::[ \t]*)?)|(?!)))"
    rf"(?P<item>\[\s*+\d++\s*+\])\)?(?(name)(?=[^\w\n]*+$|[ \t]*[:–—(|-])|)"
    rf"(?![^\w\n]*+(?:{NOUN}[^\w\n]*+)?\[\d)(?P<rest>[^\n<>]*+)$",
    re.IGNORECASE | re.MULTILINE,
)
"""A line for each item, whatever follows it."""
_BARE_NUMBERS = re.compile(r"(?P<row>[\d\s,;<>=]+)")
_BARE_ITEMS = rf"(?:\b{NOUN}\s*+)?(?<![\w.-])#?\d++(?![\w-]|\.\w)", r"\(\d++\)", r"\{\d++\}"
_BARE_ITEM = "|".join(_BARE_ITEMS)
_BARE_ROWS = "|".join(rf"(?:{item})(?:[\s,;<>=]++(?:{item}))+" for item in _BARE_ITEMS)
_BARE_ROW = re.compile(
    r"(?:[^\n\d]{0,80}\b(?:ranking|order|answer)\b[^\n\d]{0,40}(?::|\b(?:is|are))\s*+)?[\[({$]*"
    rf"(?P<row>{_BARE_ROWS})[\])}}$]*\.?",
    re.IGNORECASE,
)
_BARE_CHAIN = re.compile(rf"(?:{_BARE_ITEM})(?:\s*+[<>]\s*+(?:{_BARE_ITEM}))+", re.IGNORECASE)
_LED = re.compile(r"(?:[:=<>.!?]|\b(?:is|are|be|order|ranking|follows|answer|list))[^\w\n]*\Z", re.IGNORECASE)
_OVER = re.compile(r"[^\w\n.!?]*(?:[.!?]|\n|\Z|,\s*\w+\s*:)")
_AS_ORDER = re.compile(r"[OoRr](?:rder|anking)\b[^\n.!?]{0,60}(?::|\b(?:is|are))[^\w\n]*\Z")
_OF_ORDERS = re.compile(
    r"\b(?:re)?(?:rank|order|sort|arrang)|\b(?:answer|result|final|best|most|highest|top)\b", re.IGNORECASE
)
_TIED = re.compile(r"\b(?:equal|tie[ds]?\b|same\b)", re.IGNORECASE)
_UNSURE = re.compile(
    r"(?:\b(?:not|whether|if|neither|unless|(?:is|are|do|does|did|would|should)n['’]?t)|"
    r"(?:\A|[.!?\n])\W*(?:is|are))(?: that)?[\s:(]*\Z",
    re.IGNORECASE,
)
_DENIED = re.compile(r"[\s)]*(?:\?|(?:is|are|would be) (?:not|wrong|false|incorrect|un\w+)\b)", re.IGNORECASE)
_NEAR = 200
_BEST = r"(?:best|most|highest|high|top|strongest)"
_WORST = r"(?:worst|least|lowest|low|bottom|weakest)"
_FROM_TO = r"\b{}\b(?:[ _-]\w+){{0,2}}(?:[ _-]*to[ _-]+(?:the[ _-])?|[ \t]*(?:[→>–—-]|->)+[ \t]*){}\b"
_FIRST = r"\b{0}\b(?:[ _-]\w+){{0,2}}[ _-]first\b|\b(?:start|begin)\w* (?:with|from|at) (?:the )?{0}\b"
_WORST_FIRST = re.compile(
    rf"{_FROM_TO.format(_WORST, _BEST)}|{_FIRST.format(_WORST)}|"
    r"(?<!non-)\b(?:ascending|increasing|rising|reversed?)\b|"
    r"(?:从|從|由)(?:最?低|最?差|最不)|升序|低い順|昇順|低いものから|"
    r"\bdu moins\b|\bcroissant|\bdu pire\b|\bde (?:menor|menos|peor)\b|"
    r"\bascendente|\baufsteigend|\bvo[nm] (?:schlecht|niedrig|am wenigsten)|\bпо возраст|\bот (?:худш|наименее|меньш)",
    re.IGNORECASE,
)
_LEAST = re.compile(rf"\W*{_WORST}\b", re.IGNORECASE)
_LED_BY_WORST = re.compile(r"\b(?:worst|least|lowest|weakest)\b[^.,;!?\n]{0,20}\Z", re.IGNORECASE)
_BEST_FIRST = re.compile(
    rf"{_FROM_TO.format(_BEST, _WORST)}|{_FIRST.format(_BEST)}|\b(?:descending|decreasing)\b", re.IGNORECASE
)
DIRECTED = re.compile(rf"{_WORST}|{_BEST_FIRST.pattern}|{_WORST_FIRST.pattern}", re.IGNORECASE)
"""Words that may say whether the best or the worst comes first."""


@dataclass(frozen=True, slots=True)
class _Order:
    """Numbers in a text, the signs between them, and where they stand; `echo`: items as shown, with prose between."""

    numbers: list[int]
    signs: str
    start: int
    end: int
    echo: bool = False


def _order(text: str, n: int, refused: bool = False) -> Sequence[int]:
    """The numbers that an answer orders, best first: the last permutation, else the only order; none without one."""
    orders = _bracketed(text, refused) if _GROUP.search(text) else _bare(text, n)
    permutations = [order for order in orders if _is_permutation(order.numbers, n)]
    if permutations:
        order = ([order for order in permutations if not order.echo] or permutations)[-1]
    elif len(orders) == 1 and not _GROUP.search(text[: orders[0].start] + text[orders[0].end :]):
        order = orders[0]
    else:
        return ()
    return best_first(order.numbers, order.signs, text, order.start, order.end)


def two_in_order(text: str) -> Sequence[int]:
    """The two numbers that an answer puts in order as a list would; none of any other."""
    numbers = _order(text, 2)
    return numbers if _is_permutation(numbers, 2) else ()


def best_first(labels: Sequence[T], signs: Collection[str], text: str, start: int, end: int) -> Sequence[T]:
    """Labels with `>` or `<` between them, best first; none of both signs, or of signs that words around contradict."""
    rising = "<" in signs
    if rising and ">" in signs:
        return ()
    if text:
        lead, behind = _lead(text, start), _BEHIND.match(text, end, end + _NEAR)
        around = f"{lead}\n{behind[0] if behind else ''}"
        best = _BEST_FIRST.search(around)
        worst = _WORST_FIRST.search(around) or (_LED_BY_WORST.search(lead) and not best)
        if best if rising else worst:
            return ()
    return labels[::-1] if rising else labels


_BEHIND = re.compile(r"[^\n.!?]*(?:\n+\([^\n]*)?")


def asserted(text: str, start: int, end: int) -> bool:
    """Whether a chain is neither asked nor denied: `Is A > B? No.`"""
    before = _NOUN_LAST.sub("", text[max(start - 20, 0) : start])
    return not _UNSURE.search(before) and not _DENIED.match(text, end)


def _lead(text: str, start: int) -> str:
    """The words before an order: those on its line, else the line above if that leads to it."""
    line = _before(text, start)
    if _WORD_CHARACTER.search(_LIST_NUMBER.sub("", line)):
        return line
    head = text[max(start - _NEAR, 0) : start].rpartition("\n")[0]
    above = head.rstrip().rpartition("\n")[2].strip()
    return (
        above if above.endswith(":") or _WORST_FIRST.match(re.sub(r"\A\W*(?:[Ff]rom )?", "", above)) else ""
    )


def _bracketed(text: str, refused: bool) -> list[_Order]:
    """Orders of numbers in square brackets: an item a line, or items in chains and rows."""
    orders, end = list[_Order](), 0
    for block in [*_blocks(text), []]:
        start = block[0].start() if block else len(text)
        for run in _RUN.finditer(text, end, start):
            orders += _of_run(text, run, refused)
        if not block:
            break
        # lines that each begin with an item, unless items are tied or gone through
        end = block[-1].end()
        numbers = [number for line in block for number in _values(line["item"])]
        shown, lead = _as_shown(numbers), _lead(text, start)
        echo = shown and any(_WORD_CHARACTER.search(line["rest"]) for line in block)
        gone_through = shown and not block[0]["rank"] and (echo or refused or not _leads_to_order(lead))
        if not gone_through and not _TIED.search(lead):
            orders.append(_Order(numbers, "<" * bool(_LEAST.match(block[0]["rest"])), start, end, echo))
    return orders


def _of_run(text: str, run: re.Match[str], refused: bool) -> list[_Order]:
    """Items in a row or a chain; none where they are tied, asked, denied, part of a sentence, or gone through."""
    items, (start, end) = run[0], run.span()
    signs = _signs("".join(map("".join, _BEFORE_ITEM.findall(items))))
    numbers = _once(_values(" ".join(_GROUP.findall(items))))
    # Within a sentence a chain of the items as shown may be an example: `An order such as [1] > [2] would be unfair.`
    apart = _stands_apart(text, start, end) if not signs or _as_shown(numbers) else True
    if "=" in signs or not apart or (signs and not asserted(text, start, end)):
        return []
    if not signs and _as_shown(numbers):
        words = _WORD_CHARACTER.search(_NO_WORDS.sub("", _GROUP.sub("", items)))
        if words or refused or not _leads_to_order(_lead(text, start)):
            return []
    return [_Order(numbers, signs, start, end)]


def _signs(text: str) -> str:
    return "".join(sign for sign in "<>=" if sign in text)


def _leads_to_order(lead: str) -> bool:
    """Whether words call what follows an order, or there are none: `The candidates are: [1], [2]` does not."""
    sentence = re.split(r"[.!?]\s", lead)[-1]
    return not _WORD_CHARACTER.search(sentence) or bool(_OF_ORDERS.search(sentence))


def _blocks(text: str) -> list[list[re.Match[str]]]:
    """Neighbouring lines that each begin with an item, two at least; between numbered ones other lines may stand."""
    blocks: list[list[re.Match[str]]] = []
    for line in _LINE.finditer(text):
        rank = line["rank"]
        follows = blocks and (
            not text[blocks[-1][-1].end() : line.start()].strip()
            or (rank and not re.match(r"\D*1\b|1st|first", rank, re.IGNORECASE))
        )
        if blocks and follows and bool(rank) == bool(blocks[-1][-1]["rank"]):
            blocks[-1].append(line)
        else:
            blocks.append([line])
    return [block for block in blocks if len(block) > 1]


def _as_shown(numbers: Sequence[int]) -> bool:
    return len(numbers) > 1 and all(number == place for place, number in enumerate(numbers, 1))


def _stands_apart(text: str, start: int, end: int) -> bool:
    """Whether numbers are no part of a sentence, but what it says: `The order is [2], [1].`"""
    alone = text.find("[", start + 1, end) < 0
    over = _OVER.match(text, end, end + _NEAR)
    if not over and (alone or not _AS_ORDER.search(text, max(start - _NEAR, 0), start)):
        return False
    before = _before(text, start)
    led = not _WORD_CHARACTER.search(_LIST_NUMBER.sub("", before)) or _LED.search(before)
    return bool(led) and not _TIED.search(before)


def _before(text: str, start: int) -> str:
    """What stands on its line before an item and the noun that names it."""
    before = text[max(start - _NEAR, 0) : start].rpartition("\n")[2]
    return before[:-20] + _NOUN_LAST.sub("", before[-20:])


def _bare(text: str, n: int) -> list[_Order]:
    """Orders without square brackets: numbers that are all of an answer but their lead, or chains of all items."""
    rows = [_BARE_ROW.fullmatch(of.strip()) for of in (text, _LIST_NUMBER.sub("", text))]
    for match in (_BARE_NUMBERS.fullmatch(text.removesuffix(".").strip()), *rows):
        if match is not None:
            numbers, signs = _once(_values(match["row"])), _signs(match["row"])
            return [] if "=" in signs else [_Order(numbers, signs, 0, 0)]
    return [
        _Order(numbers, _signs(chain[0]), chain.start(), chain.end())
        for chain in _BARE_CHAIN.finditer(text)
        if _is_permutation(numbers := _once(_values(chain[0])), n)
        and asserted(text, chain.start(), chain.end())
    ]


def _once(numbers: list[int]) -> list[int]:
    """Numbers of which the same order stands several times in a row, once."""
    size = len(set(numbers))
    return numbers[:size] if size > 1 and numbers == numbers[:size] * (len(numbers) // size) else numbers


def _is_permutation(numbers: Sequence[int], n: int) -> bool:
    return sorted(numbers) == [*range(1, n + 1)]


def _values(text: str) -> list[int]:
    """The numbers in a text; one of more than 9 digits becomes -1, which is out of range as well."""
    return [int(token) if len(token) <= _MOST_DIGITS else -1 for token in _NUMBER.findall(text)]


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
    rf"([\[,(]\s*+)(?:{NOUN}\s*+[:#]?\s*+(?=(?:\d{{1,9}}|[a-z])\s*+[\],)<>])|[#PD]\s*+(?=\d{{1,9}}\s*+[\],)<>]))",
    re.IGNORECASE,
)
_TWICE = re.compile(r"\[\[\s*(\w{1,9})\s*\]\]")
_KEYS = re.compile(
    r"(?:final)?(?:answer|ranking|order(?:ing)?|choice|selection|result|response)s?|output|permutation|winner|label|"
    rf"(?:best|better|selected|preferred|winning|ranked|(?:most|more)relevant)(?:{NOUN}s?|list|order)?|preference|supported|supports",
    re.IGNORECASE,
)
"""What a JSON answer calls its order or its choice, letters alone."""
_ID = re.compile(rf"(?:{NOUN}){{1,2}}s?", re.IGNORECASE)
"""What it calls an item, or items where it says nothing else."""
_OBJECT = re.compile(r"\{\s*[\"']")
_NO_ORDER = "{}"
_LABEL = re.compile(rf"[\[({{]?\s*(?:{NOUN}\s*)?#?(?:\w{{1,9}})\s*[\])}}]?", re.IGNORECASE)
_ANSWER_IS = re.compile(r"(?:答案|回答|答え)(?:是|为|為|は)?\s*:?\s*")
_HASHES = re.compile(r"^#{1,6}[ \t]+(?=\D)", re.MULTILINE)
_MARKS = str.maketrans("", "", "*_`\"'“”‘’")


def undressed(text: str) -> str:
    """An answer without JSON, markup, escapes and invisible characters; brackets and digits of other scripts plain."""
    if not text.isascii():
        # Character by character: NFKC of a whole text takes quadratic time on a pile of combining marks.
        text = _ANSWER_IS.sub("Answer: ", _NOT_ASCII.sub(_compatible, text).translate(_SIGNS))
    text = unescaped(text)
    if (value := _of_json(text)) is not None:
        text = unescaped(value)
    if "\\" in text:
        text = _ESCAPED.sub(r"\1", _SIGN.sub(lambda match: ">" if match[1] in ("gt", "succ") else "<", text))
    text = _IN_BRACKETS.sub(r"\1", _HASHES.sub("", _BREAK.sub("\n", text))).translate(_MARKS)
    return _TWICE.sub(r"[\1]", text).strip()


def unescaped(text: str) -> str:
    """A text without entities and without the macros of TeX around an answer."""
    if "&" in text:
        text = _ENTITY.sub(lambda match: _ENTITIES[match[1].lower()], text)
    if "\\" in text:
        for _ in range(2):  # \boxed{\text{A}}
            text = _MACRO.sub(r"\1", text)
    return text


def _compatible(match: re.Match[str]) -> str:
    if unicodedata.category(match[0]) == "Cf":
        return ""  # a byte order mark, a zero-width space
    return str(unicodedata.decimal(match[0], "")) or unicodedata.normalize("NFKC", match[0])


def _of_json(text: str) -> str | None:
    """What a JSON object, list or code fence says, as a chain; `{}` of one that names no single order; None of none."""
    fences = _FENCE.findall(text)
    source = (fences[0] if len(fences) == 1 else text).strip()
    if source[:1] not in ("{", "["):
        inner, end = _OBJECT.search(source), source.rfind("}") + 1
        if inner is None:
            return None
        source = source[inner.start() : end]
    try:
        value = json.loads(source if '"' in source else source.replace("'", '"'))
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict):
        chains = {_chain(of) for key, of in value.items() if _KEYS.fullmatch(re.sub(r"[\W\d_]", "", key))}
        return (chains.pop() if len(chains) == 1 else _chain(_of_item(value))) or _NO_ORDER
    return _chain(value)


def _of_item(value: Any) -> Any:
    """What an object holds whose only key names an item or items; else itself."""
    if isinstance(value, dict) and len(value) == 1:
        ((key, of),) = value.items()
        return of if _ID.fullmatch(re.sub(r"[\W\d_]", "", key)) else value
    return value


def _chain(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    labels = []
    for of in map(_of_item, value if isinstance(value, list) else [value]):
        text = str(of).lower() if isinstance(of, bool) else str(of).strip()
        if not isinstance(of, str | int) or not (text.isdecimal() or _LABEL.fullmatch(text)):
            return None
        labels.append(f"[{text}]" if text.isdecimal() else text)
    return " > ".join(labels) or None


# Refusals

_NOT = r"n(?:o|['’]?)t"
_SORRY = r"(?:(?:i['’]?m |i am )?(?:(?:so|very|truly) )?(?:sorry|afraid)|(?:i|my) apolog\w+|unfortunately|i regret|no)"
_AS_AI = r"as an? (?:\w{1,20} ){0,3}?(?:ai|artificial intelligence|language model|assistant)\b"
_RANK_IT = r"(?:rank|order|sort|compar|judg|rat|choos|pick|select|put|list|evaluat|assess)(?:e|ing|ed)?"
_GOOD = r"(?:appropriate|possible|ethical|fair|right|ok(?:ay)?)"
_BAD = rf"(?:(?:in|un|im|not ){_GOOD}|wrong|discriminatory|harmful|against my|not something)"
_CAN = rf"(?:can(?:no|['’]?)t|can not|could ?{_NOT}|won['’]?t|will not|must not|should ?{_NOT})"
_CANNOT = (
    rf"(?:(?:i|we) (?:{_CAN}|would (?:rather|prefer) not|(?:am|are) (?:not able|unable|not comfortable|not going)|"
    r"(?:(?:must|have to|need to|will) )?(?:\w+ly )?(?:decline|refuse|refrain)|"
    rf"do ?{_NOT} (?:feel comfortable|think|believe|want|wish|{_RANK_IT}))\b|"
    r"(?:i['’]?m|we['’]re) (?:not able|unable|not comfortable|not going)\b|i['’]?d (?:rather|prefer) not\b|"
    rf"(?:it|this|that|(?:{_RANK_IT}|doing)\b[^.!?;\n]{{0,80}}?)"
    rf"(?:(?: is|['’]?s| would be|['’]d be) {_BAD}|(?: isn['’]?t| would not be| wouldn['’]?t be) {_GOOD})\b|"
    r"no (?:meaningful |fair |objective )?(?:ranking|order|comparison|keywords)\b[^.!?;\n]{0,40}"
    r"\b(?:possible|given|provided)\b|"
    rf"(?:there (?:is ?{_NOT}|is no|are ?{_NOT})|(?:i|we) (?:do ?{_NOT}|lack)(?: have)?) (?:enough|sufficient)\b|"
    r"(?:unable to|not able to|can(?:no|['’]?)t|can not|won['’]?t|will not) \w|not (?=[\[(]?\d))"
)
_PASSIVE = re.compile(
    r"(?:[^.!?;:<>\n\[\]]{0,120}?|(?:[^.!?;:<>\n\[\]]{0,40}\[\d{1,9}\]){2,40}[^.!?;:<>\n\[\]]{0,40}?)"
    rf"\b(?:{_CAN}|should) be {_RANK_IT}\b",
    re.IGNORECASE,
)
_CANNOT_ELSEWHERE = (
    r"(?:非常|很|真的)?(?:抱歉|对不起|對不起|遗憾)|(?:我|我们|我們)?(?:无法|無法|不能|不会|不會)|申し訳|すみません|죄송|"
    r"je (?:ne (?:peux|puis)|suis désolé)|je regrette|désolée?|lo siento|no puedo|lamento|es tut mir leid|leider|"
    r"ich kann\b[^.!?:\n]{0,80}\bnicht|(?:я )?не могу|извините|к сожалению|мне жаль"
)
_BUT = r"\b(?:but|however|nevertheless|nonetheless|still|instead|so|mais|pero|aber|but)\b|(?:但|不过|でも|しかし|но )"
REFUSAL = re.compile(
    rf"\W{{0,9}}(?:(?:{_SORRY}\W{{1,9}})?(?:but )?(?:{_AS_AI}|{_CANNOT})|{_CANNOT_ELSEWHERE})", re.IGNORECASE
)
_CLAUSE = re.compile(
    r"[.!?;:,。\n](?:(?<!,)\W{0,9}|(?=\s?(?:but|however|so)\b))(?:\s?(?:but|however|so)\b\W{1,9})?"
)
_REFUSING = re.compile(
    rf"(?:{_SORRY}\W{{1,9}})?(?:but )?(?:{_AS_AI}[^.!?;\n]{{0,40}}?)?{_CANNOT}|{_CANNOT_ELSEWHERE}",
    re.IGNORECASE,
)
_REST = re.compile(rf"(?:(?!{_BUT})(?:e\.g\.|i\.e\.|[^.!?;:。\n])){{0,2000}}", re.IGNORECASE)
_NAMING = re.compile(rf"\b{_RANK_IT}\b|排|rang|class|orden|clasific|ранж|順", re.IGNORECASE)
_NAMED_BEHIND = re.compile(r"\s*:(?:[^\n]|\n(?!\s*\n))*")


def without_refusals(text: str) -> tuple[str, bool]:
    """A text without the clauses that refuse to answer, and whether it begins with one.

    A clause ends with its sentence, or before `but` or a colon; what it refuses to rank stands behind its colon.
    """
    parts, end = [], 0
    passive = " be " in text
    for start in (0, *(clause.end() for clause in _CLAUSE.finditer(text))):
        if start < end:
            continue
        if refusing := _REFUSING.match(text, start) or (passive and _PASSIVE.match(text, start)):
            parts.append(text[end:start])
            rest = _REST.match(text, refusing.end())
            end = rest.end() if rest else refusing.end()
            names = " should be " not in text[start:end] and _NAMING.search(text, start, end)
            if names and (items := _NAMED_BEHIND.match(text, end)):
                end = items.end()
    if not parts:
        return text, False
    return "\n".join((*parts, text[end:])), REFUSAL.match(text) is not None
