"""What is wrong with a reply, of whatever server: one table from its status and its words to a fault.

Providers, frameworks and the proxies before them say one thing in many places. So all words, codes and types of a reply
are read as one text, and the first row of FAULTS that speaks of it names the fault; what is done about it is the
backend's (`server.py`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum, auto
from itertools import islice

from llmfair.io.files import decode


class Fault(StrEnum):
    """What a reply without an answer comes to."""

    BLOCKED = auto()  # this prompt, or its answer, by a filter: an answer all the same, and a refused one
    SPENT = auto()  # a quota that is longer than anybody waits, or the credit
    LIMITED = auto()  # the rate
    KEY = auto()
    DENIED = auto()
    ELSEWHERE = auto()  # another address or model
    TOO_LONG = auto()
    TOO_MANY = auto()  # documents at once
    SYSTEM = auto()  # a system message
    FIELD = auto()  # of the request's body
    PASSING = auto()
    REFUSED = auto()  # this request, for what is not known


UNPARSEABLE = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
"""What reading a reply raises that is torn, very deep, or of some other form."""
LIMITS = {"max_tokens", "max_completion_tokens"}
"""The names of the limit on an answer's tokens."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reply without an answer. `words` are the server's on one line, `text` its codes, types and words together.

    `field`: the part of the request that is refused, if one is named; `wait`: seconds after which the body asks to come
    again.
    """

    fault: Fault
    words: str
    text: str
    field: str
    wait: float | None

    @property
    def unknown(self) -> bool:
        """Whether the field is not known at all, rather than its value not taken."""
        return bool(_UNKNOWN.search(self.text))


BLOCKED = re.compile(
    r"content_?(filter|policy)|content management policy|responsibleaipolicy|data_?inspection_?failed|moderation|"
    r"\b(prompt|input|output|content|request|quer(y|ies)|text|messages?)\b.{0,40}\b(flagged|blocked|inappropriate|"
    r"high.risk|unsafe|harmful)|content exists risk|sensitive ?(content|information)|new_sensitive|敏感|"
    r"usage (guidelines|polic(y|ies))|guardrail|prohibited_content|blocklist|\bspii\b|\bsafety\b(?! setting)",
    re.IGNORECASE,
)
"""Words of filters, in refusals and in reasons why an answer ended."""

_PERIOD = r"(?:\b(?:per|by|each|every|a)[-_ ]|/ ?)"
_SHORT, _LONG = (
    rf"{_PERIOD}(?:sec|min(?!im)|hour)",
    rf"{_PERIOD}(?:day|week|month|86400)|daily|weekly|monthly",
)
_ANY_REQUEST = {400, 403, 413, 422, 500}  # llama.cpp has 500 for what a chat template refuses
ELSEWHERE = {404, 405, 410, *range(300, 400)}

FAULTS = (
    (Fault.REFUSED, {400, 403}, r"\byour (account|organi[sz]ation|project)\b.{0,60}(flagged|suspended|banned)"),
    (Fault.BLOCKED, {*range(200, 300), 400, 403, 422, 451, 500}, BLOCKED.pattern),
    (Fault.SPENT, {402}, ""),
    (Fault.TOO_LONG, {429}, r"request too large"),  # for any minute
    (
        Fault.SPENT,
        {400, 403, 429},
        r"insufficient[_ ](user_)?(quota|balance|credits?|funds)|exceeded_current_quota|credit balance is too low|"
        r"billing_(hard_limit|not_active)|arrear|spending limit|out of credits|available credits|api usage limits",
    ),
    # quotaId of Google; else the period that is named first: "per minute … 500 per day" may well pass
    (Fault.SPENT, {429}, rf"(per|by)day|\A(?:(?!{_SHORT}|\b[tr]pm\b).)*?(?:{_LONG}|\b[tr]pd\b)"),
    (Fault.LIMITED, {429}, ""),
    (Fault.KEY, {401}, ""),
    (Fault.KEY, {400, 403, 422}, r"api[_ ]key[_ ](is )?(not valid|invalid)|(invalid|incorrect)[_ ]api[_ ]key"),
    (Fault.TOO_MANY, _ANY_REQUEST, r"too many (documents|texts|passages|inputs)|(documents|texts)\b.{0,60}(at most|"
        r"exceed|maximum|no more than|less than|limit)|batch[_ ]size|(maximum|max|limit).{0,40}\b(documents|texts)\b"),
    (
        Fault.TOO_LONG,
        _ANY_REQUEST,
        r"context_length|context (length|window|size)|exceed_context|(prompt|input|request|message)s? (is|are|was) too "
        r"(long|large)|(prompt|input)\b.{0,60}(too large|longer than|exceeds?)\b|input.{0,3} length|too many tokens|"
        r"input_tokens|input token count|reduce (the length|your (message|prompt))|string_above_max_length|"
        r"max_(new_tokens|model_len|seq_len).{0,20}(<=|must|of)|"
        r"\btokens?\b.{0,30}exceeds? .{0,40}(limit|maximum|max)\b",
    ),
    (Fault.TOO_LONG, {413}, ""),
    (
        Fault.SYSTEM,
        _ANY_REQUEST,
        r"system.{0,3} (roles?|messages?|prompts?|instructions?)\b|roles?\b(?!\W{0,4}:).{0,40}\bsystem\b|"
        r"developer (instruction|role|message)|roles must alternate|only user.{0,30} roles|"
        r"messages\W{1,3}\d+\W{1,3}role",
    ),
    (Fault.DENIED, {403}, ""),
    (Fault.ELSEWHERE, ELSEWHERE, ""),
    (
        Fault.ELSEWHERE,
        {400, 422},
        r"model[_ ]not[_ ](found|exist)|not a valid model|(invalid|unknown|no such) model\b|"
        r"\bmodel\b.{0,80}(not found|(does not|doesn't|not) exist)",
    ),
    (Fault.PASSING, {408, 409, 425, *range(500, 600), *range(200, 300)}, ""),
    (Fault.REFUSED, range(400, 600), ""),
)  # fmt: skip
"""Fault, statuses, and what the text says (a regular expression without case; "": anything). The first row counts."""

_UNKNOWN = re.compile(
    r"unsupported|not (be )?(support|permit|allow|recogni|accept)|n't (support|accept)|unknown|unrecogni|unexpected|"
    r"extra[_ ](input|field|forbidden)|deprecated|no longer|instead",
    re.IGNORECASE,
)
FIELDS = (
    "temperature", "seed", "top_logprobs", "logprobs", "max_completion_tokens", "max_tokens", "top_p",
    "structured_outputs", "stop", "top_n", "top_k",
)  # fmt: skip
_IN_WORDS = re.compile(rf"(?<![\w-])({'|'.join(FIELDS[:-3])})(?![\w-])|['`\"](stop|top_n|top_k)['`\"]")
_WORDS = {
    "message", "msg", "detail", "details", "error", "errors", "error_message", "error_msg", "error_description",
    "status_msg", "title", "raw", "fault", "faultstring", "errormessage",
}  # fmt: skip
_CODES = {
    "code", "type", "status", "reason", "error_type", "error_code", "status_code", "quotaid", "param",
    "finish_reason", "native_finish_reason", "finishreason",
}  # fmt: skip
_FILTERS = {"reasons", "flagged_input", "filtered", "blockreason", "block_reason"}
"""OpenRouter's, Azure's, Google's."""
LONGEST_TEXT = 4000
MOST_TEXTS = 60


def refusal_of(status: int, reply: bytes) -> Refusal:
    """What is wrong with a reply without an answer, by its status and its body, whatever that is."""
    texts = defaultdict[str, list[str]](list)
    with suppress(ValueError, RecursionError):
        for kind, text in islice(_texts(decode(reply), "error"), MOST_TEXTS):
            texts[kind].append(" ".join(text.split()))
    words = "; ".join(dict.fromkeys(filter(None, (text.rstrip(".") for text in texts["words"]))))
    text = " ".join([*texts["code"], *texts["field"], words])[:LONGEST_TEXT]
    meant = status
    if 200 <= status < 300:  # from a proxy that had begun to answer before it knew
        meant = next((int(code) for code in texts["code"] if re.fullmatch(r"[45]\d\d", code)), status)
    speaking = (
        of for of, statuses, words in FAULTS if meant in statuses and re.search(words, text, re.I | re.S)
    )
    fault = next(speaking, Fault.REFUSED)
    steps = [step for field in texts["field"] for step in re.split(r"[.\[\]]+", field) if step]
    field = next(filter(FIELDS.__contains__, steps), steps[-1] if steps else "")
    if not field and (match := _IN_WORDS.search(words)):
        field = match[1] or match[2]
    if fault is Fault.REFUSED and meant in (400, 422) and field in FIELDS:
        fault = Fault.FIELD
    wait = next((float(text[:-1]) for text in texts["wait"] if re.fullmatch(r"\d{1,7}(\.\d+)?s", text)), None)
    return Refusal(fault, words, text, field, wait)


def unknown_field(status: int, reply: bytes, names: Collection[str]) -> str:
    """Which of these fields of the request a server does not know; "" for any other reply."""
    if status not in (400, 422) or not any(name.encode() in reply for name in names):
        return ""
    refusal = refusal_of(status, reply)
    unknown = refusal.fault is Fault.FIELD and refusal.field in names and refusal.unknown
    return refusal.field if unknown else ""


def _texts(value: object, name: str) -> Iterator[tuple[str, str]]:
    """The kind and the text of all that speaks in a refusal: words, codes, fields of the request, times to wait."""
    match value:
        case {"loc": [*steps], "msg": str(words), **rest}:  # pydantic
            yield "words", f"{'.'.join(map(str, steps))}: {words}"
            yield "field", ".".join(step for step in map(str, steps) if step not in ("body", "query"))
            yield from _texts(rest.get("type"), "type")
        case _ if name in _FILTERS and value:
            yield "code", "content_filter"
        case dict():
            for key, part in value.items():
                yield from _texts(part, str(key).lower())
        case list():
            for part in value:
                yield from _texts(part, name)
        case str() if name in _WORDS:
            inner = None
            if value.lstrip()[:1] in ("{", "["):
                with suppress(ValueError):
                    inner = decode(value.encode("utf-8", "replace"))
            if isinstance(inner, dict | list):
                yield from _texts(inner, name)
            else:
                yield "words", value
        case str() if name == "param":
            yield "field", value
        case str() if name == "retrydelay":  # Google's, such as 44s
            yield "wait", value
        case str() | int() if name in _CODES and not isinstance(value, bool):
            yield "code", str(value)


def nature_of(reply: bytes) -> str:
    """What a body is that was to be JSON of some form, in words."""
    start = reply.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not start:
        return "an empty body"
    if start.startswith(b"<"):
        return "HTML or XML, not JSON"
    try:
        decode(reply)
    except (ValueError, RecursionError):
        return "not JSON"
    return "JSON of another form"
