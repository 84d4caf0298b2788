"""The settings that several commands share, and what all settings of a command can do."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import Field, asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_type_hints

from llmfair.errors import UsageError, did_you_mean
from llmfair.io import secrets
from llmfair.io.files import AGAIN
from llmfair.settings.declaration import (
    BAND,
    DATA,
    OUTPUT,
    PROMPT,
    STATISTICS,
    WRITTEN,
    Effect,
    default_of,
    flag_of,
    named,
    value_of,
)

hints_of: Callable[[Any], Mapping[str, Any]] = cache(get_type_hints)
"""The types of all settings of a class, by name."""


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
        for part, (what, known) in zip((preset, *options), kinds, strict=True):
            if part not in known:
                raise UsageError(
                    f"no {what} '{part}'.{did_you_mean(part, known)}",
                    f"known: {', '.join(known) or 'none here'}",
                )
            values |= known[part]
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
            texts = map(str, value if isinstance(value, tuple | list) else (value,))
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
        items = {item.name: item for item in fields(cls)}
        read = {
            name: cls.value_from(items[name], value, f"--{flag_of(name)}") for name, value in given.items()
        }
        made = cls(**{**(cls.of_preset(preset) if preset is not None else {}), **read})
        made.check()
        return made

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
    dataset: str | None = DATA(None, "Dataset id, or a folder of your own.", short="-d")
    attribute: str | None = DATA(
        None, "Sensitive attribute, such as gender (default: the dataset's first).", short="-a"
    )
    mixed: Literal["drop", "protected", "unprotected"] = DATA(
        "drop",
        "The group of items that are in both the protected and the reference one; drop: neither.",
        advanced=True,
    )
    level: float = STATISTICS(0.95, "Confidence level of intervals.", advanced=True, above=0, below=1)
    band: str = STATISTICS(
        "0.8..1.25",
        "Preference odds near parity: conclusions say whether the interval lies within.",
        advanced=True,
        form=BAND,
    )
    output: Path | None = OUTPUT(
        None, "Folder for metrics.csv, per_query.csv, results.json.", short="-o", effect=WRITTEN
    )
    format: Literal["table", "tsv", "json", "md"] = OUTPUT("table", "What stdout gets.")

    @classmethod
    def giving_way(cls, flags: Set[str], runs: Sequence[Path], output: Path | None) -> frozenset[str]:
        """Settings that, unless they are flags, give way to these flags or to what the runs of the command bring.

        So does `output`, if it is the folder of a run that this command does not make.
        """
        strange = not cls.makes_runs and output is not None and (output / "manifest.json").exists()
        return frozenset({"output"} if strange else ())

    def check(self) -> None:
        super().check()
        if self.output is not None and not self.output.name:
            raise UsageError("--output names no folder.", "for example --output my-run")


@dataclass(frozen=True, kw_only=True)
class MeasureSettings(CommandSettings):
    """What everything that measures rankings shares."""

    measures: str | None = STATISTICS(None, "Measures, comma-separated (default: the task's).")
    ci: Literal["auto", "linear-t", "boot-t"] = STATISTICS(
        "auto",
        "How intervals of ratios of means are made; auto: boot-t for few queries or short lists.",
        advanced=True,
    )
    require: tuple[str, ...] = STATISTICS(
        (),
        "Gate, else exit 4: MEASURE[:CONDITION] then =LOW..HIGH, >=X or <=X; repeatable. A ratio of exposures has no "
        "band of its own: what it can be depends on lists and windows (--fail-on asks the verdict).",
        advanced=True,
    )
    fail_on: str | None = STATISTICS(
        None, "Verdicts that end in exit 4, comma-separated, such as disparity,inconclusive,'not assessable'."
    )
    junit: Path | None = OUTPUT(
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
        "general of a folder).",
        result=False,
    )
