"""What a setting is: its type and limits, default, meaning and panel, whether it changes a result; the one reader of
values, wherever they were given; and what all settings of a command can do."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import MISSING, Field, asdict, dataclass, field, fields
from functools import cache
from operator import ge, gt, le, lt
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args, get_origin, get_type_hints

from llmfair.errors import UsageError, did_you_mean
from llmfair.io import secrets
from llmfair.io.files import AGAIN
from llmfair.nouns import BETWEEN, Compared

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
        within = [f"{word} {bound:,}" for word, bound in bounds.items() if bound is not None]
        return " ".join([NAMES[wanted] if self.form is None else self.form.words, *within])

    def check(self, value: Any) -> None:
        """Raises ValueError for what lies beyond them, and for a text that no file or model can take."""
        if any("\0" in str(part) for part in (value if isinstance(value, tuple) else (value,))):
            raise ValueError(value)
        if value is None:
            return
        bounds = zip(self[:4], (ge, le, gt, lt), strict=True)
        outside = any(bound is not None and not holds(value, bound) for bound, holds in bounds)
        if outside or (isinstance(value, float) and not math.isfinite(value)):
            raise ValueError(value)
        if self.form is not None:
            self.form.read(value)


UNLIMITED = Limits()
NAMES: Mapping[Any, str] = {
    str: "a text", Path: "a path", int: "a whole number", float: "a number", bool: "true or false",
}  # fmt: skip
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
        self, default: Any, meaning: str, short: str = "", effect: Effect | None = None, **more: Any
    ) -> Any:
        """A field of a settings class.

        `effect`: what it does beyond the run folder, which is told where a file says it. `more`: `result` and
        `advanced`, where they are not the panel's, and what `Limits` has; every whole number is bounded, as beyond some
        number an audit would not fit into a machine or a lifetime.
        """
        own = {name: more.pop(name, getattr(self, name)) for name in ("result", "advanced")}
        metadata = {"meaning": meaning, "panel": self.name, "short": short, "effect": effect, **own}
        metadata["limits"] = Limits(**more)
        if isinstance(default, tuple):
            return field(default_factory=lambda: default, metadata=metadata)
        return field(default=default, metadata=metadata)


DATA, PROMPT, LISTS = Panel("Data"), Panel("Prompt"), Panel("Data", result=False, advanced=True)
MODEL, SAMPLING, TRAINING = (Panel(name, advanced=True) for name in ("Model", "Sampling", "Training"))
SERVER, SPENDING = (Panel(name, result=False, advanced=True) for name in ("Model", "Spending"))
STATISTICS, OUTPUT = (Panel(name, result=False) for name in ("Statistics", "Output"))


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
        limits.check(converted)
    except (ValidationError, ValueError, OverflowError):
        near = did_you_mean(str(value), get_args(wanted)) if get_origin(wanted) is Literal else ""
        quoted = repr(value) if isinstance(value, str) else secrets.written(value)
        raise UsageError(f"{where} is {quoted}, but takes {limits.words(hint)}.{near}", way_out) from None
    return converted


def _alone(hint: Any) -> Any:
    """The type that is not None."""
    return next(
        (part for part in get_args(hint) if NoneType in get_args(hint) and part is not NoneType), hint
    )


def _plain(value: Any, wanted: Any, text: bool) -> Any:
    """A value before its type is checked: one text in place of several, several in place of one, numbers in texts."""
    if value is None and get_origin(wanted) is tuple:
        return ()
    if isinstance(value, Path) and wanted is not Path:
        value = str(value)
    if isinstance(value, str):
        if get_origin(wanted) in (tuple, list):
            return [value]
        if text and wanted in (int, float):
            return wanted(value.encode("ascii"))  # not in the digits of other scripts, which files refuse too
        return TRUTH.get(value.strip().lower(), value) if text and wanted is bool else value
    if isinstance(value, Sequence):
        texts = all(isinstance(part, str) for part in value)
        return ",".join(value) if wanted is str and texts else [*value]
    return value


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
    low, high = (float(part) for part in text.split(".."))
    if not WIDEST_BAND[0] <= low <= 1 <= high <= WIDEST_BAND[1]:
        raise ValueError(text)
    return low, high


def contrast_of(text: str) -> tuple[Compared, str]:
    """How groups are compared, and with which one: `pairs`, or `reference:GROUP`. Raises ValueError."""
    word, _, group = text.partition(BETWEEN)
    how = next((of for of in get_args(Compared) if of == word and (of == "reference") == bool(group)), None)
    if how is None:
        raise ValueError(text)
    return how, group


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
CONTRAST = Form(contrast_of, "binary, pairs, rest or reference:GROUP")
TIME = Form(seconds, "a time such as 90s, 30m or 1h")
ODDS = Form(_unlike_parity, "odds other than 1, which is parity,")


def flag_of(name: str) -> str:
    """The name of a setting as flags write it."""
    return name.replace("_", "-")


def default_of(item: Field[Any]) -> Any:
    """The default of a settings field."""
    return item.default if item.default_factory is MISSING else item.default_factory()


# What all settings of a command can do

hints_of: Callable[[Any], Mapping[str, Any]] = cache(get_type_hints)
"""The types of all settings of a class, by name."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of one concern; a command's are composed of such. `preset_meaning` says what its presets are."""

    preset_meaning: ClassVar[str] = (
        "paper: lists by window 5, step 1, in one pass and order; no pair twice; adapters by its recipe. What the "
        "paper leaves open: paper+few-relevant (24 of 200), of lists also +deltr and +rankgpt."
    )

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Named bundles of settings; single settings override them."""
    preset_options: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Readings of what a preset's source leaves open, behind its name with a plus: `paper+deltr`."""
    idle: ClassVar[Set[str]] = frozenset()
    """Settings that change nothing here: taken, since commands share them, but left out of the help."""
    absent: ClassVar[Set[str]] = frozenset()
    """Settings that nobody can give here, though they are declared together with those of others."""

    def __init_subclass__(cls) -> None:
        """Adds what is idle and absent in the bases."""
        for of in cls.__mro__:
            if issubclass(of, Settings):
                cls.idle, cls.absent = cls.idle | of.idle, cls.absent | of.absent

    @classmethod
    def of_preset(cls, name: str) -> dict[str, Any]:
        """The settings of a preset, and over them those of the options named with it. Raises UsageError."""
        values: dict[str, Any] = {}
        what, offered = "preset", cls.presets
        for part in name.split("+"):
            if part not in offered:
                ways = f"known: {', '.join(offered) or 'none here'}"
                raise UsageError(f"no {what} '{part}'.{did_you_mean(part, offered)}", ways)
            values |= offered[part]
            what, offered = "preset option", cls.preset_options
        return values

    @classmethod
    def effects(cls, values: Mapping[str, Any]) -> list[str]:
        """What settings of these values do beyond the run folder, each in words; what is written comes last."""
        sentences = []
        for item in sorted(fields(cls), key=lambda item: item.metadata["effect"] is WRITTEN):
            effect: Effect | None = item.metadata["effect"]
            if effect is None or (value := values.get(item.name)) is None:
                continue
            texts = map(str, value if isinstance(value, tuple | list) else (value,))
            if safe := [secrets.written(text) for text in texts if re.search(effect.values, text)]:
                sentences.append(f"{item.name} = {', '.join(safe)} {effect.words}")
        return sentences

    @classmethod
    def given(cls) -> list[Field[Any]]:
        """The settings that a user can give."""
        return [item for item in fields(cls) if item.name not in cls.absent]

    def preset_name(self) -> str | None:
        """The preset these settings amount to, however they were given."""
        presets, settings = self.presets.items(), vars(self)
        return next((name for name, values in presets if values.items() <= settings.items()), None)

    @classmethod
    def make(cls, preset: str | None = None, **values: Any) -> Self:
        """Settings from what the user gave, over a preset, over defaults. Raises UsageError."""
        secrets.note([*values.values()])
        items = {item.name: item for item in fields(cls)}
        read = {
            name: cls.value_from(items[name], value, f"--{flag_of(name)}") for name, value in values.items()
        }
        settings = cls(**{**(cls.of_preset(preset) if preset is not None else {}), **read})
        settings.check()
        return settings

    @classmethod
    def value_from(cls, item: Field[Any], value: Any, where: str, text: bool = False) -> Any:
        """The value of a setting, given as `where` says. Raises UsageError."""
        default = default_of(item)
        way_out = f"--help-all explains --{flag_of(item.name)}"
        if default not in (None, False, True, "", ()):
            way_out = f"for example {' '.join(default) if isinstance(default, tuple) else default}"
        return value_of(value, hints_of(cls)[item.name], where, item.metadata["limits"], way_out, text)

    @classmethod
    def from_flags(cls, flags: Mapping[str, Any], where: str | Path) -> Self:
        """Settings from the flags of a manifest. Raises UsageError naming the file, and the flag that is wrong."""
        if unknown := flags.keys() - {item.name for item in fields(cls)}:
            raise UsageError(f"{where}: no flag `{min(unknown)}` is known here - at `$.flags`.", AGAIN)
        with named({name: f"{where}: flags.{name}" for name in flags}):
            return cls.make(**flags)

    def check(self) -> None:
        """Raises UsageError for settings that do not go together."""

    def as_flags(self, names: Iterable[str]) -> str:
        """Those of the named settings that are not at their default, as one would write them as flags."""
        defaults = {item.name: default_of(item) for item in fields(self)}
        words = []
        for name in names:
            value, flag = getattr(self, name), f"--{flag_of(name)}"
            if value == defaults[name]:
                continue
            if isinstance(value, bool):
                words.append(flag if value else f"--no-{flag[2:]}")
            else:
                for part in value if isinstance(value, tuple) else (value,):
                    words += [flag, shlex.quote(secrets.written(str(part)))]
        return " ".join(words)

    def of_result(self) -> dict[str, Any]:
        """The settings that can change a result, as they are written down."""
        written = self.written()
        return {item.name: written[item.name] for item in fields(self) if item.metadata["result"]}

    def written(self) -> dict[str, Any]:
        """All settings as they are written down: without what is secret in them."""
        return {name: secrets.written(value) for name, value in asdict(self).items()}


@dataclass(frozen=True, kw_only=True)
class CommandSettings(Settings):
    """What every command with settings shares; `makes_runs`: --output is the folder of a run."""

    makes_runs: ClassVar[bool] = False
    dataset: str | None = DATA(None, "Dataset id, or a folder of your own.", "-d")
    mixed: Literal["drop", "protected", "unprotected"] = DATA(
        "drop", "The group of items that are in both the protected and the reference one; drop: neither.",
        advanced=True,
    )  # fmt: skip
    level: float = STATISTICS(0.95, "Confidence level of intervals.", advanced=True, above=0, below=1)
    band: str = STATISTICS(
        "0.8..1.25", "Preference odds near parity: conclusions say whether the interval lies within.", advanced=True,
        form=BAND,
    )  # fmt: skip
    output: Path | None = OUTPUT(  # noqa: RUF009 - a field
        None, "Folder for metrics.csv, per_query.csv, results.json.", "-o", effect=WRITTEN
    )
    format: Literal["table", "tsv", "json", "md"] = OUTPUT("table", "What stdout gets.")

    @classmethod
    def giving_way(cls, flags: Set[str], runs: Sequence[Path]) -> Set[str]:
        """Settings that, unless they are flags, give way to these flags or to what the runs of the command bring."""
        return set()

    def check(self) -> None:
        super().check()
        if self.output is not None and not self.output.name:
            raise UsageError("--output names no folder.", "for example --output my-run")


@dataclass(frozen=True, kw_only=True)
class MeasureSettings(CommandSettings):
    """What everything that measures rankings shares."""

    measures: str | None = STATISTICS(None, "Measures, comma-separated (default: the task's).")
    ci: Literal["auto", "linear-t", "boot-t"] = STATISTICS(
        "auto", "How intervals of ratios of means are made; auto: boot-t for few queries or short lists.",
        advanced=True,
    )  # fmt: skip
    require: tuple[str, ...] = STATISTICS(
        (),
        "Gate, else exit 4: MEASURE[:CONDITION] then =LOW..HIGH, >=X or <=X; repeatable. A ratio of exposures has no "
        "band of its own: what it can be depends on lists and windows (--fail-on asks the verdict).", advanced=True,
    )  # fmt: skip
    fail_on: str | None = STATISTICS(
        None, "Verdicts that end in exit 4, comma-separated, such as disparity,inconclusive,'not assessable'."
    )
    junit: Path | None = OUTPUT(  # noqa: RUF009 - a field
        None, "Verdict and gates as JUnit XML, for continuous integration.", effect=WRITTEN, advanced=True
    )
    require_interval: bool = STATISTICS(
        False, "Ask --require of the whole interval, not of the value alone.", advanced=True
    )


@dataclass(frozen=True, kw_only=True)
class PromptSettings(Settings):
    """In which words a model is asked."""

    prompt: str | None = PROMPT(
        None,
        "Prompt template: general, wikiproject (the paper's), or a TOML file of your own (default: the dataset's, "
        "general of a folder).", result=False,
    )  # fmt: skip
