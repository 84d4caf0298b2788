"""The error tree: every failure a user can meet, with its exit code.

LlmfairError                     exit 1   one sentence and a hint
├─ UsageError                    exit 2   bad flag value, unknown id, malformed file (file, line, field)
├─ BackendError                  exit 1   the model cannot be asked at all: the run stops
│  ├─ MissingExtra               an optional dependency is not installed
│  ├─ MissingKey                 a key is not set, or was refused
│  ├─ Unavailable                no answer after retries: ends its probe
│  ├─ Rejected                   the server refuses this request: ends its probe
│  └─ ContextTooLong             the prompt does not fit: ends its probe
├─ RunConflict                   exit 1   the run folder belongs to other settings, or to a running process
├─ Incomplete                    exit 3   some probes have no answer; the same command resumes
└─ RequirementFailed             exit 4   a gate was not met; everything is written
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable
from functools import cache as once
from typing import ClassVar

LONG_WORD = re.compile(r"(?<!\S)(\S{200})\S{200,}(\S{100})(?!\S)")
LONG_LINE = re.compile(r"^(.{1500}).+(.{500})$", re.MULTILINE)


def line_of(error: BaseException) -> str:
    """The first line of a library's error that says something."""
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__).rstrip(".")


def shortened(text: str) -> str:
    """A text with what is too long to be looked at, be it a word or a line, cut in its middle: both ends say where."""
    return LONG_LINE.sub(r"\1 … \2", LONG_WORD.sub(r"\1…\2", text))


class LlmfairError(Exception):
    """A failure said in one sentence (`message`) with the way out (`hint`)."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint:
            self.add_note(hint)  # tracebacks show it too

    def __str__(self) -> str:
        return self.message


class UsageError(LlmfairError):
    """The user's flag, id or file is wrong; nothing was asked."""

    exit_code = 2


class BackendError(LlmfairError):
    """The model cannot be asked; unless a subclass says otherwise, no other probe can be either."""

    stops_run: ClassVar[bool] = True


class MissingExtra(BackendError):
    """An optional dependency is not installed; the hint is the install line."""


class MissingKey(BackendError):
    """A key is missing or was refused; the hint names the variable to set."""


class Unavailable(BackendError):
    """No answer after all retries."""

    stops_run = False


class Rejected(BackendError):
    """The server refuses this one request."""

    stops_run = False


class ContextTooLong(BackendError):
    """The prompt does not fit the model's context."""

    stops_run = False


class RunConflict(LlmfairError):
    """The run folder cannot be used by this command."""


class Incomplete(LlmfairError):
    """Some probes have no answer; what was answered is kept."""

    exit_code = 3


class RequirementFailed(LlmfairError):
    """A gate was not met; everything is written."""

    exit_code = 4


def did_you_mean(name: str, names: Iterable[str], alike: float = 0.5) -> str:
    """` Did you mean 'x'?` for the nearest known name, or nothing."""
    nearest = difflib.get_close_matches(name, sorted(names), n=1, cutoff=alike)
    return f" Did you mean '{nearest[0]}'?" if nearest else ""


@once
def warn(text: str) -> None:
    """Says at once, and only once, what is no error."""
    print(shortened(f"Warning: {text}"), file=sys.stderr)
