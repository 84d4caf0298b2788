"""Keys, passwords and tokens: known by the names they stand under, and told to nobody.

What is written down has `***` in their place, by names alone, so that it is the same whatever the secret is. What is
said, and what a server sends back, is searched for their values as they were given, too.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from llmfair.io.files import is_deep

HIDDEN, PROPERTIES = "***", "properties"
LEAST_QUOTED, LEAST = 4, 8
"""Characters of a value that is looked for in a server's words about an error, and in anything else."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ENDS = ("key", "token", "secret", "password", "passwd", "credential", "authorization", "cookie", "signature")
_LAST = {"auth", "bearer", "credentials", "jwt", "keys", "pass", "passphrase", "pw", "pwd", "secrets", "sig"}
_FOLDERS = {"PWD", "OLDPWD"}
"""Variables of every shell."""
_COUNTS = {"max", "min", "num"}
"""What a name begins with that counts keys or tokens."""
_OF_TEXT = {"bos", "cls", "eos", "mask", "pad", "sep", "unk"}
"""What comes before `token` where a tokenizer's is meant."""
_SCHEMES = {"basic", "bearer", "token"}
_USERINFO = re.compile(r"(?<=://)[^\s/?#]*@")
_QUERY = re.compile(r"(?<=[?&;#])([\w.-]+)=([^\s&;#'\"]+)")
_PLAIN = re.compile(r"[a-z -]{,15}|[\d.-]{,15}")
"""Words and numbers, as stand-ins for keys are: an answer may hold them by chance."""


@lru_cache(maxsize=1024)
def is_secret(name: str) -> bool:
    """Whether a field, header or variable of this name holds a secret: `api_key`, `API_KEY_2`, but not `max_tokens`."""
    words = [word.lower() for word in _WORD.findall(name.rstrip("_0123456789"))]
    if not words or words[0] in _COUNTS or name in _FOLDERS:
        return False
    if words[-1] == "token" and words[-2:-1] and words[-2] in _OF_TEXT:
        return False
    return words[-1].endswith(_ENDS) or words[-1] in _LAST or bool({"secret", "password"} & {*words})


def hidden(value: Any, name: str = "", noting: set[str] | None = None) -> Any:
    """JSON with `***` for every secret text and number, however deep; what is hidden is added to `noting`.

    All that is under a secret name is as secret; what a JSON schema says of a property called `key` is none.
    """
    if isinstance(value, Mapping):
        safe = {}
        for key, part in value.items():
            schema = name == PROPERTIES and isinstance(part, Mapping)
            safe[key] = hidden(part, "" if schema else name if is_secret(name) else f"{key}", noting)
        return safe
    if isinstance(value, list | tuple):
        return [hidden(part, name, noting) for part in value]
    secret = is_secret(name) and isinstance(value, str | int | float) and not isinstance(value, bool)
    if noting is not None and isinstance(value, str):
        noting.update(_of_addresses(value), (value, *of_headers([(name, value)])) if secret else ())
    elif noting is not None and secret:
        noting.add(json.dumps(value))
    if secret:
        return HIDDEN
    return _address(value) if isinstance(value, str) else value


def written(value: Any) -> Any:
    """A setting, or a word of a command line, as it may be written down: `api_key=***`, `http://***@host`."""
    if isinstance(value, list | tuple):
        return type(value)(map(written, value))
    if not isinstance(value, str):
        return value
    name, text, read = _named(value)
    safe = hidden(read, name)
    if safe == read:
        return value
    return value.removesuffix(text) + (safe if read == text else json.dumps(safe, ensure_ascii=False))


def _named(word: str) -> tuple[str, str, Any]:
    """The name under which a word holds a value, the value, and what it is as JSON, if it is any that is not too deep.

    Of `--extra=api_key=1` these are `api_key`, `1` and 1.
    """
    name, equals, value = word.partition("=")
    if not equals or "://" in name or name.startswith(("{", "[")):  # a text, an address, JSON
        name, value = "", word
    elif name.startswith("-") and not is_secret(name):
        return _named(value)
    try:
        return name, value, value if is_deep(value) else json.loads(value)
    except (ValueError, RecursionError):
        return name, value, value


def _address(text: str) -> str:
    def query(match: re.Match[str]) -> str:
        return f"{match[1]}={HIDDEN}" if is_secret(match[1]) else match[0]

    return _QUERY.sub(query, _USERINFO.sub(f"{HIDDEN}@", text)) if "://" in text else text


noted = set[str]()
"""What was given as a secret, in settings or on the command line."""


def note(value: Any) -> None:
    """Remembers what is secret in a setting, or a word of a command line, to be looked for from now on."""
    if isinstance(value, list | tuple):
        for part in value:
            note(part)
    elif isinstance(value, str):
        name, _, read = _named(value)
        hidden(read, name, noted)


def said(text: str) -> str:
    """What is said to people, without any secret of the environment or of what was given."""
    return without(known())(_address(text))


def known() -> Iterator[str]:
    """The secrets there are: of the environment, and what was noted."""
    yield from noted
    for name, value in os.environ.items():
        if is_secret(name):
            yield from (value.strip(), *value.split())
        if name.upper().endswith("_HEADERS"):
            yield from of_headers(line.partition(":")[::2] for line in value.split("\n"))
        yield from _of_addresses(value)


def of_headers(headers: Iterable[tuple[str, str]], every: bool = False) -> Iterator[str]:
    """The values of headers that are secret, of an unknown name those that are long; `every`: all of them."""
    for name, value in headers:
        words = [word for word in value.split() if word.lower() not in _SCHEMES]
        if every or is_secret(name) or len(value.strip()) >= 2 * LEAST:
            yield from (" ".join(words), *(word.strip(";,") for word in words))


def _of_addresses(text: str) -> Iterator[str]:
    """Of every address in a text the password, what of it is sent to a server or a proxy, and keys of the query."""
    if "://" not in text:
        return
    for login in _USERINFO.findall(text):
        user, _, password = login[:-1].partition(":")
        yield from (password or user, unquote(password or user))
        if user:
            both = f"{unquote(user)}:{unquote(password)}"
            yield b64encode(both.encode("utf-8", "surrogatepass")).decode()
    for name, value in _QUERY.findall(text):
        if is_secret(name):
            yield from (value, unquote(value))


def without(secrets: Iterable[str]) -> Callable[[str], str]:
    """Puts `***` for these into a text, but for what may stand there by chance."""
    return quoted(secret for secret in secrets if len(secret) >= LEAST and not _PLAIN.fullmatch(secret))


def quoted(secrets: Iterable[str]) -> Callable[[str], str]:
    """Puts `***` for each of these into a text, wherever it stands there as it was given."""
    longest_first = sorted(
        {secret for secret in secrets if len(secret) >= LEAST_QUOTED},
        key=lambda secret: (-len(secret), secret),
    )

    def hide(text: str) -> str:
        for secret in longest_first:
            text = text.replace(secret, HIDDEN)
        return text

    return hide
