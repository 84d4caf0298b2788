"""Control tokens of chat models: taken out of what others write, and what they divide an answer into.

The tags of thoughts and of turns that models and their templates use stand here, once. All work is linear in the
length of the text, which a model and not we decide.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Any

_THOUGHT = (
    r"[\w:.-]{0,30}(?:think|thought|reason|reflect|analy[sz]|scratchpad|monologue|deliberat|rationale)"
    r"[\w:.-]{0,30}|cot"
)
"""A tag's name that says of what it holds that it is no answer, whatever the model calls its thoughts."""
_PROSE = r"plan(?:ning)?|critique|brainstorm(?:ing)?|details|drafts?|notes?|internal|ponder(?:ing)?"
"""Names of thoughts that prose has, too: such a tag opens thoughts at the beginning of a line, or where it closes."""
_ANSWER = r"(?:final[_ -]?)?(?:answer|response|output|result|ranking|solution|conclusion)"

_COMMON = (
    r"<\|[^<>]*\|>",
    r"<\uff5c[^<>]*\uff5c>",  # the same with the wide bars of DeepSeek
    r"<\|(?:turn|channel)>",
    r"<(?:turn|channel)\|>",
    r"</?s>",
    rf"</?(?:{_THOUGHT}|{_PROSE})(?:\s[^<>]*)?>",
    r"[\[◁]/?(?:think(?:ing)?|thoughts?|reasoning)[\]▷]",
    r"<(?:start|end)_of_turn>",
    r"<</?SYS>>",
    r"\[/?INST\]",
)
_ROUND = str.maketrans("<[◁>]▷", "((()))")


def without_control_tokens(text: str, special: Collection[str] = ()) -> str:
    """The text with round brackets around what would be a control token: `</s>` becomes `(/s)`.

    `special` are a tokenizer's own besides the common ones; those without brackets cannot be told from words, and stay.
    """
    tokens = _pattern(tuple(special))
    text = tokens.sub(lambda match: match[0].translate(_ROUND), text)
    # A token inside a token leaves a new one behind; then no bracket of this text is to be trusted.
    return text.translate(_ROUND) if tokens.search(text) else text


def plain(text: str, tokenizer: Any) -> str:
    """What a tokenizer can encode, and reads as nothing but text; half a surrogate pair becomes `?`."""
    encodable = text.encode("utf-8", "replace").decode("utf-8")
    return without_control_tokens(encodable, tuple(tokenizer.all_special_tokens))


@lru_cache(maxsize=8)
def _pattern(special: tuple[str, ...]) -> re.Pattern[str]:
    bracketed = [re.escape(token) for token in special if "<" in token or "[" in token]
    return re.compile("|".join((*_COMMON, *bracketed)), re.IGNORECASE)


_LEFT, _RIGHT = r"(?:[<＜][|｜]?|&lt;)", r"(?:[|｜]?[>＞]|&gt;)"  # as servers escape them, too
_HEADERS = (
    r"<\|im_start\|>\s{0,9}\w*",
    r"<\|im_\w{1,20}\|>\w*<\|im_middle\|>",
    r"<\|(?:start_header_id|header_start|start_of_role)\|>\s{0,9}\w*\s{0,9}(?:<\|\w{1,20}\|>)?",
    r"<start_of_turn>\s{0,9}\w*",
    r"<\|turn>\s{0,9}\w*",
    r"<\|(?:start|begin)\|>\w*",
    r"[<\[][|｜](?:user|assistant|system|model|observation|human)[|｜][>\]]",
    r"<\|start_of_turn_token\|>(?:<\|\w{1,20}_token\|>)?",
    r"\[/?INST\]",
    # without its tokens: alone on its line, glued to an answer, or as of a dialogue
    r"(?:^|(?<=[\]\d.}])|(?<=[\]}] )|(?<=\b(?-i:[A-Z])))assistant[ \t]{0,9}:?[ \t]{0,9}\n",
    r"(?<=\n)(?:###\s{0,3})?(?:assistant|user|human):",
)
_ENDS = (
    r"<[|｜](?:im_end|eo[tms](?:_id)?|end[_▁]?of[_▁]?(?:turn|text|sentence)(?:_token)?|endoftext|return|"
    r"(?:end|user|assistant|role)_(?:response|text|end))[|｜]>",
    r"<(?:end_of_turn|/s|eos|eot|eod|seed:eos|turn\|)>",
    r"\[(?:\|endofturn\||EOS)\]",
)
_TOKEN = re.compile(
    "|".join(
        (
            r"(?P<answer>(?:<\|end\|>\s{0,9})?(?:<\|start\|>assistant\s{0,9})?<\|channel\|>\s{0,9}final\b[^<]{0,99}"
            r"(?:<\|constrain\|>[^<]{0,99})?<\|message\|>|(?:<\|end\|>\s{0,9})?<\|begin\|>assistant\s{0,9}<\|content\|>|assistantfinal)",
            # channels of gpt-oss and of Gemma
            r"(?P<channel><\|channel\|?>|<unused94>)",
            r"(?P<channel_end><channel\|>|<unused95>)",
            r"(?P<over><\|(?:end|call)\|>)",
            r"(?P<inner><\|inner_prefix\|>)|(?P<inner_end><\|inner_suffix\|>)",
            r"(?P<bracket>[\[◁](?P<bracket_slash>/?)(?P<bracket_name>think(?:ing)?|thoughts?|reasoning)[\]▷])",
            rf"(?P<tag>{_LEFT}\s{{0,9}}(?P<slash>/?)\s{{0,9}}(?P<name>{_THOUGHT}|(?P<prose>{_PROSE}))"
            rf"(?:\s[^<>＜＞]{{0,200}}?)?(?P<whole>/?){_RIGHT})",
            rf"(?P<turn>{'|'.join(_HEADERS)})",
            rf"(?P<end>{'|'.join(_ENDS)})",
        )
    ),
    re.IGNORECASE | re.MULTILINE,
)
_FIRST = re.compile(
    r"[<＜&◁\[AaUuHh#](?:(?<=[<＜&◁\[])(?!\d)|(?<=[Aa])ssistant|(?<=[Uu])ser:|(?<=[Hh])uman:|(?<=A)SSISTANT|(?<=#)##)"
)
"""How tokens begin, quickly sought."""
_HEADING = re.compile(
    r"\s*(?:[#*_ ]{0,9}(?:thinking|thoughts?|reasoning|analysis)(?: process)?[*_ ]{0,4}(?::|[*_ ]*\n)|analysis:|"
    r"(?-i:analysis)(?=(?-i:[A-Z\"“'‘*\[]))|here(?:['’]s| is) my thought process:)",
    re.IGNORECASE,
)
_ANSWER_HEADING = re.compile(
    rf"(?:^|(?<=[.!?] ))(?:[#*_ ]{{0,9}}(?:my )?{_ANSWER}[*_ ]{{0,4}}(?::[*_]{{0,4}}|[*_ ]*\n)|"
    r"here(?:['’]s| is) my response:)",
    re.IGNORECASE | re.MULTILINE,
)
_INDENT = 20
_SIDE = re.compile(r"(?:^|_)(?:start|begin|(end))(?:_of)?(?:_|$)")
_ANSWERING = re.compile("assistant|model|chatbot|/inst", re.IGNORECASE)
_ANSWERED = re.compile(
    rf"{_LEFT}(?:begin_of_|start_)?{_ANSWER}{_RIGHT}(.*?)(?:{_LEFT}(?:/|end_of_|end_){_ANSWER}{_RIGHT}|\Z)",
    re.IGNORECASE | re.DOTALL,
)
_AROUND = re.compile(
    rf"{_LEFT}(?:/|begin_of_|start_|end_of_|end_)?{_ANSWER}{_RIGHT}|<(?:s|bos|pad|unk)>|<\|(?:begin_of_text|startoftext|"
    r"start_text|(?:begin|end)_of_box)\|>",
    re.IGNORECASE,
)


@lru_cache(maxsize=256)  # asked when an answer comes, and when it is read
def answer_of(text: str) -> str | None:
    """What a model answers: its text without thoughts and without what follows the end of its turn.

    Thoughts stand in tags of any family; a tag that only closes was opened by the template. The answer is what follows
    the last thoughts, or precedes them where nothing does. Tokens inside thoughts end no turn. None where thoughts are
    left open, behind an answer too, or where a tag only closes behind the end of the turn: then thoughts and
    answer cannot be told apart. `<answer>` and the like hold the answer where they hold anything.
    """
    answer = _behind_tags(text)
    heading = _HEADING.match(answer) if answer else None
    if answer is None or heading is None:
        return answer
    if heading[0].lstrip().startswith("Analysis:") and "\n" not in answer.strip():
        return answer  # a title
    endings = [*_ANSWER_HEADING.finditer(answer, heading.end())]
    if endings:
        return answer[endings[-1].end() :]
    _, apart, rest = answer[heading.end() :].lstrip().partition("\n\n")
    return rest if apart else None


def _behind_tags(text: str) -> str | None:
    """The text without thoughts in tags and without what follows the end of its turn; None of thoughts left open."""
    text = text.lstrip()
    answer, start, explicit, ended = "", 0, False, ""
    thoughts: list[str] = []  # the names of open tags, each once
    names: set[str] = set()
    closing: dict[str, int] = {}  # names that prose has, and where they close for the last time
    for token in _tokens(text):
        side, name = _side_of(token)
        if token["prose"]:
            if name not in closing:
                closing[name] = text.rfind(f"/{token['prose']}")
            above, _, before = text[max(start, token.start() - _INDENT) : token.start()].rpartition("\n")
            begins = not before.strip() and (above or token.start() - start <= len(before))
            if not (begins or closing[name] > token.start() or name in names):
                continue
        if side == "over":
            side = "close" if name in names else "end"
        before = "" if thoughts or ended else text[start : token.start()]
        if side == "open":
            answer = before if before.strip() else answer
            if name not in names:
                thoughts.append(name)
                names.add(name)
        elif side == "answer" or (side == "close" and (name in names or not thoughts)):
            if ended[:1] in ("<", "[") and (side == "answer" or not thoughts):
                return None
            if not thoughts or side == "answer":
                answer, ended = "", ""  # what precedes were thoughts, that may speak of users
            while thoughts and (side == "answer" or name in names):
                names.remove(thoughts.pop())
            if not thoughts:
                start, explicit = token.end(), True
        elif side in ("turn", "end") and not thoughts and not ended:
            if side == "turn" and not before.strip() and not answer:
                start = token.end()
                continue
            answer, ended = before if before.strip() else answer, token[0]
            if explicit:
                break  # else what precedes could be thoughts that hold this token
    if not ended:
        if thoughts:
            return None
        answer = text[start:] if text[start:].strip() else answer
    if not any(bracket in answer for bracket in ("<", "＜", "&lt;")):
        return answer
    parts = [part for part in _ANSWERED.findall(answer) if part.strip()]  # each on a line
    return _AROUND.sub("", "\n".join(parts) if parts else answer)


def _tokens(text: str) -> Iterator[re.Match[str]]:
    end = 0
    for first in _FIRST.finditer(text):
        if first.start() >= end and (token := _TOKEN.match(text, first.start())):
            end = token.end()
            yield token


def _side_of(token: re.Match[str]) -> tuple[str, str]:
    """What a token does, and the name of the thoughts that it opens or closes."""
    form = str(token.lastgroup)
    if form in ("tag", "bracket"):
        side = _SIDE.search(name := (token["name"] or token["bracket_name"]).lower().replace("-", "_"))
        closes = token["slash"] or token["bracket_slash"] or (side and side[1])
        return "" if token["whole"] else "close" if closes else "open", _SIDE.sub("", name)
    if form == "turn":
        return "turn" if _ANSWERING.search(token[0]) else "end", ""
    if form in ("channel", "inner"):
        return "open", form
    if form.endswith("_end"):
        return "close", form.removesuffix("_end")
    return form, "channel"
