"""Control tokens in a text that somebody else wrote: they become plain text, so that no title speaks for the chat."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache

_COMMON = (
    r"<\|[^<>]*\|>",
    r"<\uff5c[^<>]*\uff5c>",  # the same with the wide bars of DeepSeek
    r"</?s>",
    r"</?think>",
    r"<(?:start|end)_of_turn>",
    r"<</?SYS>>",
    r"\[/?INST\]",
)
_ROUND = str.maketrans("<[>]", "(())")


def without_control_tokens(text: str, special: Collection[str] = ()) -> str:
    """The text with round brackets around what would be a control token: `</s>` becomes `(/s)`.

    `special` are a tokenizer's own besides the common ones; those without brackets cannot be told from words, and stay.
    """
    tokens = _pattern(tuple(special))
    text = tokens.sub(lambda match: match[0].translate(_ROUND), text)
    # A token inside a token leaves a new one behind; then no bracket of this text is to be trusted.
    return text.translate(_ROUND) if tokens.search(text) else text


@lru_cache(maxsize=8)
def _pattern(special: tuple[str, ...]) -> re.Pattern[str]:
    bracketed = [re.escape(token) for token in special if "<" in token or "[" in token]
    return re.compile("|".join((*_COMMON, *bracketed)), re.IGNORECASE)
