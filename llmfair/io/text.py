"""Text from outside made printable: of files, flags, servers and models, wherever a person reads it.

What steers a terminal or turns the direction of text is shown as what it is, such as `\\x1b`; in a CSV file no cell
is a formula, and in Markdown no text a tag or a link. Run files, journals and JSON keep every text as it came.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, TextIO, cast

from llmfair.errors import LlmfairError

TURNS = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
CONTROL = re.compile(rf"[\x00-\x1f\x7f-\x9f{TURNS}]")
IN_LINES = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{TURNS}]")
IN_JSON = re.compile(rf"[\x7f-\x9f{TURNS}]")
SHOWN = re.compile(r"\\r|\\x[01789][0-9a-f]|\\u[0-9a-f]{4}")
FORMULA = re.compile(r"'*[=+\-@]")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|-inf", re.ASCII | re.IGNORECASE)
OURS = {"@UNKNOWN", "-"}
"""Texts of ours that no spreadsheet computes: a group that is not known, and nothing."""
UNBROKEN = "\N{NO-BREAK SPACE}"
FIGURE = re.compile(r" %|\[[^\[\]]{1,30}\]")
SEAM, SEAMS = " \0", re.compile(r"(?<=,)(?=[a-z])|(?<=\w/)(?=\w)")
"""Where a cell may be broken within a word: between parts of a path, or of the parameters of a name."""


def visible(text: str) -> str:
    """A text in one line."""
    return CONTROL.sub(_shown, text)


def in_lines(text: str) -> str:
    """A text of several lines, and tabs."""
    return IN_LINES.sub(_shown, text)


def in_json(text: str) -> str:
    """A JSON document, which means the same."""
    return IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def in_markdown(text: str) -> str:
    """A text in one line of Markdown."""
    return re.sub(r"<(?=[a-zA-Z/!?])", r"\\<", visible(text)).replace("](", "]\\(")


def in_csv(cell: Any) -> Any:
    """A cell of a CSV file, a text that a spreadsheet would compute behind a quote."""
    if not isinstance(cell, str):
        return cell
    formula = FORMULA.match(cell) and not NUMBER.fullmatch(cell) and cell not in OURS
    return in_lines(f"'{cell}" if formula else cell)


def from_csv(row: Mapping[str, str]) -> dict[str, str]:
    """A row of such a file, its cells as they were."""

    def meant(match: re.Match[str]) -> str:
        letter = "\r" if match[0] == "\\r" else chr(int(match[0][2:], 16))
        return letter if IN_LINES.match(letter) else match[0]

    cells = {name: SHOWN.sub(meant, cell) if "\\" in cell else cell for name, cell in row.items()}
    return {
        name: cell[1:] if cell[:1] == "'" and FORMULA.match(cell) else cell for name, cell in cells.items()
    }


@lru_cache(maxsize=1 << 14)  # a table tries many widths
def wrapped(
    text: str, width: int, first: str = "", indent: str = "", *, cell: bool = False
) -> tuple[str, ...]:
    """Lines of at most this width, broken between words; a number stays beside its unit, an interval whole.

    `first`, `indent`: what the first and every other line begins with. No word is broken, however long; a `cell` is at
    hyphens, slashes and commas.
    """
    text = FIGURE.sub(lambda figure: figure[0].replace(" ", UNBROKEN), text)
    lines = textwrap.wrap(
        SEAMS.sub(SEAM, text) if cell else text, max(width, 2 * len(indent) + 1),
        initial_indent=first, subsequent_indent=indent, break_long_words=False, break_on_hyphens=cell,
    )  # fmt: skip
    return tuple(line.replace(UNBROKEN, " ").replace(SEAM, "").replace(SEAM[1:], "") for line in lines)


def _shown(match: re.Match[str]) -> str:
    return repr(match[0])[1:-1]


_aside = ContextVar("_aside", default=False)


@contextmanager
def aside() -> Iterator[None]:
    """What code of the user's own prints in this thread or task meanwhile goes to stderr: stdout is for results."""
    before = _aside.set(True)
    try:
        yield
    finally:
        _aside.reset(before)


class Printable:
    """A stream on which every text is printable; what draws on a terminal takes `as_it_is`."""

    def __init__(self, stream: TextIO, named: str, change: Callable[[str], str] = in_lines) -> None:
        self.stream, self.named, self.change = stream, named, change

    @property
    def as_it_is(self) -> TextIO:
        """The same with escape sequences of its own."""
        return cast(TextIO, Printable(self.stream, self.named, str))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        if self.named == "stdout" and _aside.get():
            return sys.stderr.write(text)
        with self._written():
            self.stream.write(self.change(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        with self._written():
            self.stream.flush()

    @contextmanager
    def _written(self) -> Iterator[None]:
        """A full disk behind stdout is an error like any other, and a reader that went away ends the command."""
        try:
            yield
        except OSError as error:
            if self.named != "stdout":
                return
            if isinstance(error, BrokenPipeError):
                raise
            raise LlmfairError(
                f"stdout cannot be written: {error.strerror}.", "what a run wrote into its folder is whole"
            ) from None


@contextmanager
def streams() -> Iterator[None]:
    """Makes all that is printed printable."""
    before = sys.stdout, sys.stderr
    sys.stdout = cast(TextIO, Printable(before[0], "stdout"))
    sys.stderr = cast(TextIO, Printable(before[1], "stderr"))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


# Phrases that every sentence shares.


def listed(names: Sequence[str]) -> str:
    """`one, two and three`."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def parts(text: str) -> list[str]:
    """What stands between commas, each once; of nothing between two commas nothing."""
    return [*dict.fromkeys(filter(None, map(str.strip, text.split(","))))]


def count(n: int, noun: str, many: str = "") -> str:
    return f"{n:,} {plural(n, noun, many)}"


def plural(n: int, noun: str, many: str = "") -> str:
    return noun if n == 1 else many or noun + "s"


def p_text(p: float) -> str:
    """A p-value to two digits, never as 0."""
    return "< 0.001" if p < 0.001 else f"{p:.2g}"


def setting_text(key: str, value: Any) -> str:
    """The value of a setting in words; a hash by its beginning."""
    if value is None or value in ([], (), {}):
        return "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {setting_text(name, of)}" for name, of in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(setting_text(key, of) for of in value)
    return str(value)[:6] if key.endswith("sha256") else str(value)
