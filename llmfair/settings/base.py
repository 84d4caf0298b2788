"""What settings are, and those that several commands share."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import MISSING, Field, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

from llmfair.errors import UsageError, did_you_mean
from llmfair.io import secrets
from llmfair.io.files import AGAIN, typed

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


def setting(
    default: Any,
    meaning: str,
    panel: str,
    *,
    flags: tuple[str, ...] = (),
    result: bool = True,
    advanced: bool = False,
    least: float | None = None,
    most: float | None = None,
    effect: Effect | None = None,
) -> Any:
    """A field of a settings class.

    `result` says that it can change a result: such settings name the run. `advanced`: no flag of a first week, which
    `--help-all` shows and `--help` does not. `least` and `most`: the bounds of a number, which every whole number
    has; beyond them an audit would not fit into a machine or a lifetime, or the number stands for nothing. `effect`:
    what it does beyond the run folder, which is told where a file says it.
    """
    metadata = {"meaning": meaning, "panel": panel, "flags": flags, "result": result, "advanced": advanced}
    metadata |= {"least": least, "most": most, "effect": effect}
    if isinstance(default, tuple):
        return field(default_factory=lambda: default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of one concern; a command's are composed of such. `preset_meaning` says what its presets are."""

    preset_meaning: ClassVar[str] = (
        "paper: lists by window 5, step 1, in one pass and order; no pair twice; adapters by its recipe. What the "
        "paper leaves open: paper+few-relevant (24 of 200), of lists also +deltr and +rankgpt."
    )

    @classmethod
    def presets(cls) -> Mapping[str, Mapping[str, Any]]:
        """Named bundles of settings; single settings override them."""
        return {}

    @classmethod
    def preset_options(cls) -> Mapping[str, Mapping[str, Any]]:
        """Readings of what a preset's source leaves open, behind its name with a plus: `paper+deltr`."""
        return {}

    @classmethod
    def of_preset(cls, name: str) -> dict[str, Any]:
        """The settings of a preset, and over them those of the options named with it. Raises UsageError."""
        preset, *options = name.split("+")
        values: dict[str, Any] = {}
        kinds = ("preset", cls.presets()), *[("preset option", cls.preset_options())] * len(options)
        for named, (what, known) in zip((preset, *options), kinds, strict=True):
            if named not in known:
                raise UsageError(
                    f"no {what} '{named}'.{did_you_mean(named, known)}",
                    f"known: {', '.join(known) or 'none here'}",
                )
            values |= known[named]
        return values

    @classmethod
    def effects(cls, values: Mapping[str, Any]) -> list[str]:
        """What settings of these values do beyond the run folder, each in words."""
        sentences = []
        items = sorted(fields(cls), key=lambda item: item.metadata["effect"] is WRITTEN)  # the least last
        for item in items:
            effect: Effect | None = item.metadata["effect"]
            value = values.get(item.name)
            if effect is None or value is None:
                continue
            texts = map(str, value if isinstance(value, tuple) else (value,))
            if shown := [secrets.written(text) for text in texts if re.search(effect.values, text)]:
                sentences.append(f"{item.name} = {', '.join(shown)} {effect.words}")
        return sentences

    @classmethod
    def idle(cls) -> frozenset[str]:
        """Settings that change nothing here: taken, since commands share them, but left out of the help."""
        return frozenset()

    @classmethod
    def absent(cls) -> frozenset[str]:
        """Settings that nobody can give here, though they are declared together with those of others."""
        return frozenset()

    @classmethod
    def given(cls) -> list[Field[Any]]:
        """The settings that a user can give."""
        return [item for item in fields(cls) if item.name not in cls.absent()]

    def preset_name(self) -> str | None:
        """The preset these settings amount to, however they were given."""
        return next(
            (
                name
                for name, values in self.presets().items()
                if all(getattr(self, key) == value for key, value in values.items())
            ),
            None,
        )

    @classmethod
    def make(cls, preset: str | None = None, **given: Any) -> Self:
        """Settings from what the user gave, over a preset, over defaults. Raises UsageError."""
        secrets.note([*given.values()])
        made = cls(**{**(cls.of_preset(preset) if preset is not None else {}), **given})
        made.check()
        return made

    @classmethod
    def from_flags(cls, flags: Mapping[str, Any], where: str | Path) -> Self:
        """Settings from the flags of a manifest. Raises UsageError naming the file, and the flag that is wrong."""
        if unknown := flags.keys() - {item.name for item in fields(cls)}:
            raise UsageError(f"{where}: no flag `{min(unknown)}` is known here - at `$.flags`.", AGAIN)
        read = typed(flags, cls, f"{where}: flags")
        try:
            return cls.make(**{name: getattr(read, name) for name in flags})
        except UsageError as error:
            raise UsageError(f"{where}: flags: {error.message}", error.hint) from None

    def check(self) -> None:
        """Raises UsageError for a value out of range."""
        for item in fields(self):
            check_value("--" + item.name.replace("_", "-"), getattr(self, item.name), item)

    def as_flags(self, names: Iterable[str]) -> str:
        """Those of the named settings that are not at their default, as one would write them as flags."""
        defaults = {item.name: default_of(item) for item in fields(self)}
        words = []
        for name in names:
            value, flag = getattr(self, name), "--" + name.replace("_", "-")
            if value == defaults[name]:
                continue
            if isinstance(value, bool):
                words.append(flag if value else f"--no-{flag[2:]}")
            else:
                for one in value if isinstance(value, tuple) else (value,):
                    words += [flag, shlex.quote(secrets.written(str(one)))]
        return " ".join(words)

    def of_result(self) -> dict[str, Any]:
        """The settings that can change a result, as they are written down."""
        names = {item.name for item in fields(self) if item.metadata["result"]}
        return {name: value for name, value in self.written().items() if name in names}

    def written(self) -> dict[str, Any]:
        """All settings as they are written down: without what is secret in them."""
        return {name: secrets.written(value) for name, value in asdict(self).items()}


@dataclass(frozen=True, kw_only=True)
class CommandSettings(Settings):
    """What every command with settings shares; `makes_runs`: --output is the folder of a run."""

    makes_runs: ClassVar[bool] = False
    dataset: str | None = setting(None, "Dataset id, or a folder of your own.", "Data", flags=("-d",))
    attribute: str | None = setting(
        None, "Sensitive attribute, such as gender (default: the dataset's first).", "Data", flags=("-a",)
    )
    mixed: Literal["drop", "protected", "unprotected"] = setting(
        "drop",
        "The group of items that are in both the protected and the reference one; drop: neither.",
        "Data",
        advanced=True,
    )
    level: float = setting(0.95, "Confidence level of intervals.", "Statistics", result=False, advanced=True)
    band: str = setting(
        "0.8..1.25",
        "Preference odds near parity: conclusions say whether the interval lies within.",
        "Statistics",
        result=False,
        advanced=True,
    )
    output: Path | None = setting(
        None,
        "Folder for metrics.csv, per_query.csv, results.json.",
        "Output",
        flags=("-o",),
        result=False,
        effect=WRITTEN,
    )
    format: Literal["table", "tsv", "json", "md"] = setting(
        "table", "What stdout gets.", "Output", result=False
    )

    @classmethod
    def giving_way(cls, flags: Set[str], runs: Sequence[Path], output: Path | None) -> frozenset[str]:
        """Settings that, unless they are flags, give way to these flags or to what the runs of the command bring.

        So does `output`, if it is the folder of a run that this command does not make.
        """
        strange = not cls.makes_runs and output is not None and (output / "manifest.json").exists()
        return frozenset({"output"} if strange else ())

    def check(self) -> None:
        super().check()
        if not 0 < self.level < 1:
            raise UsageError(f"--level is {self.level}, but lies between 0 and 1.", "for example 0.95")
        if self.output is not None and not self.output.name:
            raise UsageError("--output names no folder.", "for example --output my-run")
        low, high = band_of(self.band)
        if not WIDEST_BAND[0] <= low <= 1 <= high <= WIDEST_BAND[1]:
            raise UsageError(
                f"--band {self.band} does not lie around parity.",
                f"preference odds from {WIDEST_BAND[0]} to 1, then from 1 to {WIDEST_BAND[1]}: 0.8..1.25",
            )


@dataclass(frozen=True, kw_only=True)
class MeasureSettings(CommandSettings):
    """What everything that measures rankings shares."""

    measures: str | None = setting(
        None, "Measures, comma-separated (default: the task's).", "Statistics", result=False
    )
    ci: Literal["auto", "linear-t", "boot-t"] = setting(
        "auto",
        "How intervals of ratios of means are made; auto: boot-t for few queries or short lists.",
        "Statistics",
        result=False,
        advanced=True,
    )
    require: tuple[str, ...] = setting(
        (),
        "Gate, else exit 4: MEASURE[:CONDITION] then =LOW..HIGH, >=X or <=X; repeatable. A ratio of exposures has no "
        "band of its own: what it can be depends on lists and windows (--fail-on asks the verdict).",
        "Statistics",
        result=False,
        advanced=True,
    )
    fail_on: str | None = setting(
        None,
        "Verdicts that end in exit 4, comma-separated, such as disparity,inconclusive,'not assessable'.",
        "Statistics",
        result=False,
    )
    junit: Path | None = setting(
        None,
        "Verdict and gates as JUnit XML, for continuous integration.",
        "Output",
        result=False,
        advanced=True,
        effect=WRITTEN,
    )
    require_interval: bool = setting(
        False,
        "Ask --require of the whole interval, not of the value alone.",
        "Statistics",
        result=False,
        advanced=True,
    )


@dataclass(frozen=True, kw_only=True)
class PromptSettings(Settings):
    """In which words a model is asked."""

    prompt: str | None = setting(
        None,
        "Prompt template: general, wikiproject (the paper's), or a TOML file of your own (default: the dataset's, "
        "general of a folder).",
        "Prompt",
        result=False,
    )


def band_of(text: str) -> tuple[float, float]:
    """`0.8..1.25` as two numbers. Raises UsageError."""
    low, dots, high = text.partition("..")
    try:
        if dots:
            return float(low), float(high)
    except ValueError:
        pass
    raise UsageError(f"'{text}' is not a band.", "two numbers with two dots between: 0.8..1.25")


def seconds(text: str) -> float:
    """A time such as `90`, `90s`, `30m` or `1.5h` in seconds. Raises UsageError."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], text[-1]) if text[-1:] in units else (text, "s")
    try:
        found = float(number) * units[unit]
        if not 0 <= found < math.inf:
            raise ValueError
        return found
    except ValueError:
        raise UsageError(f"'{text}' is not a time.", "for example 90s, 30m or 1h") from None


def check_value(flag: str, value: Any, item: Field[Any]) -> None:
    """Raises UsageError for a number beyond the bounds of its field, and for a text that no file or model can take."""
    for text in value if isinstance(value, tuple) else (value,):
        if isinstance(text, str | Path) and "\0" in str(text):
            raise UsageError(f"{flag} holds a NUL character.", "leave it out")
    if not isinstance(value, int | float):
        return
    least, most = item.metadata["least"], item.metadata["most"]
    hint = f"--help-all explains {flag}"
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{flag} is {value}, but is a finite number.", hint)
    if least is not None and value < least:
        raise UsageError(f"{flag} is {value}, but is at least {least}.", hint)
    if most is not None and value > most:
        raise UsageError(f"{flag} is {value}, but is at most {most}.", hint)


def default_of(item: Field[Any]) -> Any:
    """The default of a settings field."""
    return item.default if item.default_factory is MISSING else item.default_factory()
