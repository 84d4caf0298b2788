"""Keys, passwords and tokens: known by the names they stand under, and told to nobody.

What is written down (settings, command lines, what answers are filed under) has `***` in their place, by names alone,
so that it is the same whatever the secret is. What is said, and what a server sends back, is searched for their values,
too.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote, unquote, urlsplit

HIDDEN = "***"
LEAST_QUOTED, LEAST = 4, 8
"""Characters of a value that is looked for in a server's words about an error, and in anything else."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ENDS = ("key", "token", "secret", "password", "passwd", "credential", "authorization", "cookie", "signature")
_LAST = {"auth", "bearer", "credentials", "keys", "passphrase", "pw", "secrets", "sig"}
_OF_TEXT = {"bos", "cls", "eos", "mask", "pad", "sep", "unk"}
"""What comes before `token` where a tokenizer's is meant."""
_SCHEMES = {"basic", "bearer", "token"}
_USERINFO = re.compile(r"(?<=://)[^\s/?#]*@")
_QUERY = re.compile(r"(?<=[?&;])([\w.-]+)=[^\s&;#'\"]+")
_PLAIN = re.compile(r"[a-z -]{,15}|[\d.-]{,15}")
"""Words and numbers, as stand-ins for keys are: an answer may hold them by chance."""
_ESCAPED = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|[\\/])")


def is_secret(name: str) -> bool:
    """Whether a field, header or variable of this name holds a secret: `api_key`, `API_KEY_2`, but not `max_tokens`."""
    words = [word.lower() for word in _WORD.findall(name.rstrip("_0123456789"))]
    if not words or (words[-1] == "token" and words[-2:-1] and words[-2] in _OF_TEXT):
        return False
    return words[-1].endswith(_ENDS) or words[-1] in _LAST or bool({"secret", "password"} & {*words})


def hidden(value: Any, name: str = "") -> Any:
    """JSON with `***` for every text under a secret name, however deep."""
    if isinstance(value, Mapping):
        return {key: hidden(one, f"{key}") for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [hidden(one, name) for one in value]
    return HIDDEN if is_secret(name) and isinstance(value, str) else value


def written(value: Any) -> Any:
    """A setting, or a word of a command line, as it may be written down: `api_key=***`, `http://***@host`."""
    if isinstance(value, list | tuple):
        return type(value)(map(written, value))
    return _assignment(_address(value)) if isinstance(value, str) else value


def _assignment(text: str) -> str:
    name, equals, value = text.partition("=")
    if not equals:
        return text
    if name.startswith("-"):
        return f"{name}={HIDDEN if is_secret(name) else _assignment(value)}"
    read = _read(value)
    shown = hidden(read, name)
    if shown == read:
        return text
    return f"{name}={shown if read == value else json.dumps(shown, ensure_ascii=False)}"


def _read(value: str) -> Any:
    """A value as JSON, or as it stands."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _address(text: str) -> str:
    def query(match: re.Match[str]) -> str:
        return f"{match[1]}={HIDDEN}" if is_secret(match[1]) else match[0]

    return _QUERY.sub(query, _USERINFO.sub(f"{HIDDEN}@", text)) if "://" in text else text


_noted: set[str] = set()


def note(value: Any) -> None:
    """Remembers what is secret in a setting, or a word of a command line, to be looked for from now on."""
    if isinstance(value, list | tuple):
        for one in value:
            note(one)
    elif isinstance(value, str):
        _noted.update(_of_address(value) if "://" in value else ())
        flag, _, rest = value.partition("=")
        name, equals, text = (rest if flag.startswith("-") and not is_secret(flag) else value).partition("=")
        if equals:
            _noted.update(_texts(_read(text), name))


def _texts(value: Any, name: str) -> Iterator[str]:
    """The texts under secret names."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _texts(one, f"{key}")
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one, name)
    elif isinstance(value, str) and is_secret(name):
        yield value


def said(text: str) -> str:
    """What is said to people, without any secret of the environment or of what was given."""
    return without(known())(_address(text))


def known() -> Iterator[str]:
    """The secrets there are: of the environment, and what was noted."""
    yield from _noted
    for name, value in os.environ.items():
        if is_secret(name):
            yield from (value.strip(), *value.split())
        if name.upper().endswith("_HEADERS"):
            yield from of_headers(line.partition(":")[::2] for line in value.split("\n"))
        if "://" in value:
            yield from _of_address(value)


def of_headers(headers: Iterable[tuple[str, str]], every: bool = False) -> Iterator[str]:
    """The values of headers that are secret, of an unknown name those that are long; `every`: all of them."""
    for name, value in headers:
        words = [word for word in value.split() if word.lower() not in _SCHEMES]
        if every or is_secret(name) or len(value.strip()) >= 2 * LEAST:
            yield from (" ".join(words), *(word.strip(";,") for word in words))


def _of_address(address: str) -> Iterator[str]:
    """Passwords, what of them is sent to a server or a proxy, and keys of the query."""
    try:
        parts = urlsplit(address)
        who, password = unquote(parts.username or ""), parts.password or parts.username or ""
    except ValueError:
        return
    yield from (password, unquote(password))
    if who:
        yield b64encode(f"{who}:{unquote(parts.password or '')}".encode()).decode()
    for name, _, value in (one.partition("=") for one in parts.query.split("&")):
        if is_secret(name):
            yield from (value, unquote(value))


def without(secrets: Iterable[str]) -> Callable[[str], str]:
    """Puts `***` for these into a text, but for what may stand there by chance."""
    return quoted(one for one in secrets if len(one) >= LEAST and not _PLAIN.fullmatch(one))


def quoted(secrets: Iterable[str]) -> Callable[[str], str]:
    """Puts `***` for each of these into a text, in every spelling that JSON and addresses have of it."""
    forms = {form for one in secrets if len(one) >= LEAST_QUOTED for form in _spellings(one)}
    if not forms:
        return lambda text: text
    longest_first = sorted(forms, key=lambda form: (-len(form), form))
    return partial(re.compile("|".join(map(re.escape, longest_first))).sub, HIDDEN)


def _spellings(secret: str) -> Iterator[str]:
    yield from (secret, quote(secret, safe=""))
    yield from (json.dumps(secret, ensure_ascii=plain)[1:-1] for plain in (True, False))


def unescaped(text: str) -> str:
    """JSON whose strings have only the escapes that they need: some servers write `\\/`, or `\\u0026` for `&`."""

    def character(match: re.Match[str]) -> str:
        one = chr(int(match[1], 16)) if match[1] else match[0][1:]
        return json.dumps(one, ensure_ascii=False)[1:-1] if one.isprintable() else match[0]

    return _ESCAPED.sub(character, text)
