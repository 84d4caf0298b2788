"""What a setting is: its type and limits, default, meaning and panel, whether it changes a result; and the one reader
of values, wherever they were given."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, get_origin

from llmfair.errors import UsageError, did_you_mean
from llmfair.io import secrets

WIDEST_BAND = (0.01, 100.0)
MOST_NUMBERED = 1_000_000_000
"""The most that anything is counted to: more pairs, prompts or calls take no machine and no purse."""
MOST_SEED = 2**63 - 1
"""As servers take a seed, in 64 bits with a sign."""


class Effect(NamedTuple):
    """What a setting does beyond the run folder, said after its value; `values`: which of them do it."""

    words: str
    values: str = ""


IMPORTS = Effect("imports code", r"\b(python|pyterrier):")
ENGINE = Effect(
    "goes to the engine, which may import code",
    r"^(?!(attention|batch_tokens|device|dtype|max_model_len|gpu_memory_utilization|num_beams|tensor_parallel_size)\??=)",
)
SENT = Effect("is sent what is asked, and your key")
LOSSES = Effect("gets the losses", "tensorboard|wandb")
WRITTEN = Effect("is written")


class Form(NamedTuple):
    """What a value has to be beyond its type: `read` raises ValueError for another; `words` say what is expected."""

    read: Callable[[Any], object]
    words: str


class Limits(NamedTuple):
    """The bounds of a number, `above` and `below` themselves excluded, and the form of a value."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    form: Form | None = None

    def words(self, hint: Any) -> str:
        """What a setting of this type takes, in words."""
        wanted = _alone(hint)
        if get_origin(wanted) is Literal:
            return f"one of {', '.join(map(str, get_args(wanted)))}"
        if get_origin(wanted) in (tuple, list):
            return "a list of texts"
        below = "below" if self.least is self.above is None else "and below"
        bounds = {"from": self.least, "above": self.above, "to": self.most, below: self.below}
        range_ = [f"{word} {bound:,}" for word, bound in bounds.items() if bound is not None]
        return " ".join([NAMES[wanted] if self.form is None else self.form.words, *range_])


UNLIMITED = Limits()
NAMES: Mapping[Any, str] = {
    str: "a text",
    Path: "a path",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}
TRUTH = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("0", "false", "no", "off"), False)
FLAG = re.compile(r"--([a-z][a-z0-9-]*)")


@dataclass(frozen=True)
class Panel:
    """Declares settings that one panel of the help shows, by being called.

    `result`: whether they can change a result unless they say otherwise; such settings name the run. `advanced`: no
    flags of a first week, which `--help-all` shows and `--help` does not.
    """

    name: str
    result: bool = True
    advanced: bool = False

    def __call__(
        self,
        default: Any,
        meaning: str,
        *,
        short: str = "",
        result: bool | None = None,
        advanced: bool | None = None,
        effect: Effect | None = None,
        **limits: Any,
    ) -> Any:
        """A field of a settings class.

        `limits`: what `Limits` has; every whole number is bounded, as beyond some number an audit would not fit into a
        machine or a lifetime. `effect`: what it does beyond the run folder, which is told where a file says it.
        """
        metadata = {
            "meaning": meaning,
            "panel": self.name,
            "short": short,
            "result": self.result if result is None else result,
            "advanced": self.advanced if advanced is None else advanced,
            "effect": effect,
            "limits": Limits(**limits),
        }
        if isinstance(default, tuple):
            return field(default_factory=lambda: default, metadata=metadata)
        return field(default=default, metadata=metadata)


DATA, PROMPT = Panel("Data"), Panel("Prompt")
MODEL, SAMPLING, TRAINING = (Panel(name, advanced=True) for name in ("Model", "Sampling", "Training"))
SPENDING = Panel("Spending", result=False, advanced=True)
STATISTICS, OUTPUT = Panel("Statistics", result=False), Panel("Output", result=False)


def setting(default: Any, meaning: str, panel: str, **more: Any) -> Any:
    """A field of a settings class, in a panel of this name."""
    return Panel(panel)(default, meaning, **more)


def value_of(
    value: Any, hint: Any, where: str, limits: Limits = UNLIMITED, way_out: str = "", text: bool = False
) -> Any:
    """A value as a setting of this type takes it; `text`: it was written on the command line or in a variable.

    Raises UsageError, the same wherever it was given, which `where` says.
    """
    from msgspec import ValidationError, convert

    wanted = _alone(hint)
    try:
        value = _plain(value, wanted, text)
        converted = convert(value, hint, dec_hook=lambda kind, raw: kind(raw))
        _check(converted, limits)
    except (ValidationError, ValueError, OverflowError):
        near = did_you_mean(str(value), get_args(wanted)) if get_origin(wanted) is Literal else ""
        quoted = repr(value) if isinstance(value, str) else secrets.written(value)
        raise UsageError(f"{where} is {quoted}, but takes {limits.words(hint)}.{near}", way_out) from None
    return converted


def _alone(hint: Any) -> Any:
    """The type that is not None."""
    parts = [part for part in get_args(hint) if part is not NoneType]
    return parts[0] if NoneType in get_args(hint) else hint


def _plain(value: Any, wanted: Any, text: bool) -> Any:
    """A value before its type is checked: one text in place of several, several in place of one, numbers in texts."""
    several = get_origin(wanted) in (tuple, list)
    if isinstance(value, Path) and wanted is not Path:
        value = str(value)
    if isinstance(value, str):
        if several:
            return [value]
        if text and wanted in (int, float):
            return wanted(value.encode("ascii"))  # not in the digits of other scripts, which files refuse too
        return TRUTH.get(value.strip().lower(), value) if text and wanted is bool else value
    if isinstance(value, Sequence):
        texts = all(isinstance(part, str) for part in value)
        return ",".join(value) if wanted is str and texts else [*value]
    return value


def _check(value: Any, limits: Limits) -> None:
    """Raises ValueError for what lies beyond the limits, and for a text that no file or model can take."""
    for part in value if isinstance(value, tuple) else (value,):
        if "\0" in str(part):
            raise ValueError(part)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(value)
    least, most, above, below, form = limits
    if value is not None and (
        (least is not None and value < least)
        or (most is not None and value > most)
        or (above is not None and value <= above)
        or (below is not None and value >= below)
    ):
        raise ValueError(value)
    if form is not None and value is not None:
        form.read(value)


@contextmanager
def named(names: Mapping[str, str]) -> Iterator[None]:
    """Errors within name settings as they were given: `--window` as a keyword, a variable, or the key of a file."""
    try:
        yield
    except UsageError as error:
        error.message = FLAG.sub(lambda flag: names.get(flag[1].replace("-", "_"), flag[0]), error.message)
        raise


def band_of(text: str) -> tuple[float, float]:
    """`0.8..1.25` as two numbers around 1. Raises ValueError."""
    low, _, high = text.partition("..")
    band = float(low), float(high)
    if not WIDEST_BAND[0] <= band[0] <= 1 <= band[1] <= WIDEST_BAND[1]:
        raise ValueError(text)
    return band


def seconds(text: str) -> float:
    """A time such as `90`, `90s`, `30m` or `1.5h` in seconds. Raises ValueError."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], text[-1]) if text[-1:] in units else (text, "s")
    time = float(number) * units[unit]
    if not 0 <= time < math.inf:
        raise ValueError(text)
    return time


def _unlike_parity(odds: float) -> None:
    if odds == 1:
        raise ValueError(odds)


BAND = Form(band_of, "preference odds from 0.01 to 1, then from 1 to 100, as in 0.8..1.25")
TIME = Form(seconds, "a time such as 90s, 30m or 1h")
ODDS = Form(_unlike_parity, "odds other than 1, which is parity,")


def flag_of(name: str) -> str:
    """The name of a setting as flags write it."""
    return name.replace("_", "-")


def default_of(item: Field[Any]) -> Any:
    """The default of a settings field."""
    return item.default if item.default_factory is MISSING else item.default_factory()
