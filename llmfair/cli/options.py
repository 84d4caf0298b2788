"""Flags of commands, each declared once: from settings classes and functions; their values from flags, variables and
llmfair.toml.

In llmfair.toml settings are named as flags with underscores: shared ones on top, `[listwise]` and the like for one
command. Paths are relative to the file, which may stand above the folder one works in. What looks like a secret is
refused, since secrets come from the environment only.
"""

from __future__ import annotations

import inspect
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, fields
from datetime import date
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_type_hints

import typer

from llmfair import registry, terminal
from llmfair.audits.kind import kinds, studies
from llmfair.cli.help import PANELS, AdvancedPanel, below
from llmfair.errors import UsageError, did_you_mean, warn
from llmfair.io import files, secrets
from llmfair.settings import commands, named, value_of
from llmfair.settings.commands import ABOUT_AUDITS
from llmfair.settings.declaration import CommandSettings, Limits, default_of, flag_of, hints_of

CONFIG_NAME = "llmfair.toml"
AUDIT = "audit"
"""The table of such a file that is of no command: what only people know of an audit."""
FILE, VARIABLE, FLAG = 1, 2, 3
"""Where a value comes from; 0 is its default."""


class View(NamedTuple):
    """What a command without settings shows: the document of --json, else a text, or a table by its title, header, rows
    and notes; and its exit code."""

    document: Mapping[str, Any]
    view: str | tuple[str, Sequence[str], Iterable[Iterable[str]], Iterable[str]] | None = None
    code: int = 0


class WithFlags:
    """A command whose flags are the parameters of `run` as they stand, and `shared` ones that commands have in common.

    With `settings` their fields are flags too, and `run(settings, style, **parameters)` gets them made, and what stdout
    is to get (`table`, `tsv`, `json`, `md`); without it returns a `View`. The flags are made when Typer asks for them,
    by the names that `inspect.signature` and `typing.get_type_hints` look for: a list of commands needs none.
    """

    def __init__(
        self,
        run: Callable[..., Any],
        settings: type[CommandSettings] | None,
        shared: Sequence[str],
        does: str,
    ) -> None:
        self.run, self.settings, self.shared, self.__doc__ = run, settings, shared, does or run.__doc__
        skipped = 0 if settings is None else len(("settings", "style"))
        self.parameters = [*inspect.signature(run).parameters.values()][skipped:]

    def __call__(self, ctx: typer.Context, **values: Any) -> None:
        parameters, output = {item.name: values[item.name] for item in self.parameters}, terminal.output
        output.as_json = values["as_json"] or values.get("format") == "json"
        output.quiet, output.progress = values.get("quiet", False), not values.get("no_progress", False)
        output.verbose |= values.get("verbose", False)
        output.color = values.get("color", output.color)
        if (kind := self.settings) is None:
            document, view, code = self.run(**parameters)
            if values["as_json"]:
                terminal.print_json({"schema": files.SCHEMA, **document})
            elif isinstance(view, str):
                print(view)
            elif view is not None:
                from llmfair.report.table import Table

                title, header, rows, notes = view
                terminal.print_table(Table(title, tuple(header), tuple(map(tuple, rows)), tuple(notes)))
            raise typer.Exit(code)
        # A preset gives way to what was said as late as itself: on the command line only flags override it.
        bundled = kind.of_preset(values["preset"]) if values.get("preset") else {}
        least = max(_rank(ctx, "preset"), 1) if bundled else 1
        ranks = {item.name: _rank(ctx, item.name) for item in kind.given()}
        flags = {name for name, rank in ranks.items() if rank == FLAG}
        giving_way = kind.giving_way(flags, parameters.get("runs", ())) - flags
        folder = values.get("output")
        if folder is not None and not kind.makes_runs and (folder / "manifest.json").exists():
            giving_way |= {"output"} - flags  # of a run that this command does not make
        chosen = {
            name: values[name]
            for name, rank in ranks.items()
            if rank >= (least if name in bundled else 1) and name not in giving_way
        }
        of_file = {name: value for name, value in chosen.items() if ranks[name] == FILE}
        if effects := kind.effects(of_file):
            terminal.warn(
                f"{values['config']} sets what reaches beyond the run folder: {'; '.join(effects)}."
            )
        params = {item.name: item for item in ctx.command.params}
        with named({name: _origin(ctx, params[name]) for name in chosen if ranks[name] != FLAG}):
            settings = kind.make(values.get("preset"), **chosen)
            style = "json" if values["as_json"] else settings.format
            terminal.output.as_json = style == "json"
            self.run(settings, style, **parameters)

    @cached_property
    def __signature__(self) -> inspect.Signature:
        settings, keyword = self.settings, inspect.Parameter.KEYWORD_ONLY
        run = getattr(self.run, "func", self.run)  # of a kind's command, whose first parameter is the kind
        hints = get_type_hints(common) | get_type_hints(run)
        parameters = [inspect.Parameter("ctx", keyword, annotation=typer.Context)]
        flags: dict[str, Flag] = {}
        if settings is not None:
            hints |= {"preset": str | None, **hints_of(settings)}
            in_panels = sorted(settings.given(), key=lambda item: PANELS.index(item.metadata["panel"]))
            flags = {item.name: _flag_of(item, item.name in settings.idle) for item in in_panels}
            if settings.presets:
                flags["preset"] = flag(None, settings.preset_meaning, panel="Prompt")
        beside = (*self.parameters, *map(COMMON.__getitem__, self.shared))
        for name, (default, names, called, more) in (flags | {of.name: of.default for of in beside}).items():
            hint: Any = list[str] if isinstance(default, list) else hints[name]
            if default is inspect.Parameter.empty:
                hint = Annotated[hint, typer.Argument(**more)]
            else:
                names = names or (f"--{flag_of(name)}",)
                envvar = f"LLMFAIR_{(called or names[0].removeprefix('--').replace('-', '_')).upper()}"
                hint = Annotated[hint, typer.Option(*names, envvar=envvar, **more)]
            parameters.append(inspect.Parameter(name, keyword, default=default, annotation=hint))
        return inspect.Signature(parameters)

    @property
    def __annotations__(self) -> dict[str, Any]:  # type: ignore[override]
        return {name: item.annotation for name, item in self.__signature__.parameters.items()}


def command(
    app: typer.Typer,
    *examples: str,
    name: str | None = None,
    panel: str | None = None,
    settings: type[CommandSettings] | None = None,
    shared: Sequence[str] = (),
    does: str = "",
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds the decorated function as a command to `app`; `does`: its help, unless it is the function's docstring.

    `shared`: the flags of `common` that a command without settings takes beside --json and -v; one with settings takes
    all.
    """

    def add(run: Callable[..., Any]) -> Callable[..., Any]:
        called = name or getattr(run, "__name__", "").replace("_", "-")
        takes = (*COMMON,) if settings is not None else ("as_json", "verbose", *shared)
        with_flags = WithFlags(run, settings, takes, does)
        app.command(called, rich_help_panel=panel, epilog="\n\n".join(examples))(with_flags)
        return run

    return add


def group(name: str, meaning: str, panel: str = "Look") -> typer.Typer:
    """An application of commands below a name, also where there is one alone."""
    app = typer.Typer(name=name, help=meaning, rich_help_panel=panel)
    app.callback()(lambda: None)
    return app


def with_one_reader(command: Any) -> Any:
    """The command and all below it, whose values are read as those of files and of Python are."""
    for each in below(command):
        settings = getattr(getattr(each.callback, "__wrapped__", None), "settings", None)
        items = {item.name: item for item in fields(settings)} if settings is not None else {}
        for param in each.params:
            param.process_value = partial(_read, param, settings, items.get(param.name))
    return command


def _read(param: Any, settings: Any, item: Field[Any] | None, ctx: typer.Context, value: Any) -> Any:
    """The value of a flag or argument. Raises UsageError for a wrong one and for one that is missing."""
    rank, where = _rank(ctx, param.name), _origin(ctx, param)
    if isinstance(value, FileValue):
        value = value.value
    way_out, text = f"{ctx.command_path} --help", rank != FILE
    if rank and value is not None and item is not None:
        value = settings.value_from(item, value, where, text=text)
    elif rank and value is not None:
        info, hint = param.type_descriptor.parameter_info, param.type_descriptor.annotation
        value = value_of(value, hint, where, Limits(info.min, info.max), way_out, text)
    if param.required and value in (None, (), []):
        raise UsageError(f"{where} is missing.", way_out)
    return value if param.callback is None else param.callback(ctx, param, value)


def _origin(ctx: typer.Context, param: Any) -> str:
    """Where a value comes from, as an error names it: flag, variable, or file and key."""
    rank = _rank(ctx, param.name)
    if rank == FILE:
        return str((ctx.default_map or {})[param.name].where)
    if param.param_type_name == "argument":
        return str(param.metavar or param.name.upper())
    return str(param.envvar) if rank == VARIABLE else max(param.opts, key=len)


def _rank(ctx: typer.Context, name: str) -> int:
    """Where a value comes from: 0 its default, then configuration, variable, flag."""
    source = ctx.get_parameter_source(name)
    ranks = {"DEFAULT_MAP": FILE, "ENVIRONMENT": VARIABLE, "COMMANDLINE": FLAG}
    return ranks.get(source.name, 0) if source is not None else 0


def variables(command: Any) -> set[str]:
    """The environment variables of all flags of a command and of those below it."""
    return {param.envvar for each in below(command) for param in each.params if param.envvar}


def _flag_of(item: Field[Any], hidden: bool) -> Flag:
    """The flag of a setting; a `hidden` one no help shows."""
    meta, default, name = item.metadata, default_of(item), flag_of(item.name)
    names = (f"--{name}/--no-{name}" if default is True else f"--{name}", *filter(None, [meta["short"]]))
    more = {
        "help": meta["meaning"],
        "rich_help_panel": AdvancedPanel(meta["panel"]) if meta["advanced"] else meta["panel"],
        "show_default": not (default is None or default is False or default == ()),
        "hidden": hidden,
    }
    return Flag(list(default) if isinstance(default, tuple) else default, names, item.name, more)


# Flags that commands have beside their settings


class Flag(NamedTuple):
    """A flag or argument as the default of a command's parameter; without `names` it is called as the parameter is."""

    default: Any
    names: Sequence[str]
    named: str
    more: Mapping[str, Any]


def flag(
    default: Any, meaning: str, *names: str, panel: str | None = None, named: str = "", **more: Any
) -> Any:
    """A flag of these names, the long one first, with a variable `named` so, or else as the flag is."""
    return Flag(default, names, named, {"help": meaning, "rich_help_panel": panel, **more})


def argument(metavar: str, meaning: str) -> Any:
    """An argument, which has no default."""
    return Flag(inspect.Parameter.empty, (), "", {"metavar": metavar, "help": meaning, "show_default": False})


def _share(shared: bool) -> bool:
    if shared:
        files.share()
    return shared


def _configure(ctx: typer.Context, value: Path | None) -> Path | None:
    """Puts the configuration file under this command's flags and variables."""
    if value is not None and not value.is_file():
        raise UsageError(f"no configuration file {value}.", "name one with --config")
    file = find_config(Path.cwd()) if value is None else (value, files.content(value, files.MOST_BY_HAND))
    if file is None:
        return None
    everywhere: dict[str, Any] = dict.fromkeys(("json", "quiet", "verbose", "no_progress", "shared"), bool)
    everywhere |= {"color": str, "preset": str}
    types = {
        name: {item.name: hints_of(kind)[item.name] for kind in kinds for item in kind.given()} | everywhere
        for name, kinds in settings_of_commands().items()
    }
    tables = read_config(*file, types)
    # `plan listwise` reads [listwise] and then [plan]; a command without settings of its own, all there are.
    words = ctx.command_path.split()[1:]
    mine = [tables[word] for word in reversed(words) if word in tables] or [*tables.values()]
    values = {{"json": "as_json"}.get(key, key): value for table in mine for key, value in table.items()}
    ctx.default_map = {item.name: values[item.name] for item in ctx.command.params if item.name in values}
    if any(key in values and values[key].value in (True, "json") for key in ("as_json", "format")):
        terminal.output.as_json = True
    return file[0]


_SELDOM = AdvancedPanel("Output")
RUNS_DIR = flag(Path("runs"), "Where run folders are.")
CONFIG = flag(
    None, "Configuration file; the nearest llmfair.toml upwards.", panel=_SELDOM, is_eager=True,
    callback=_configure,
)  # fmt: skip
SHARED = "Let others read what is written, as your umask says; else it is yours alone."


def common(
    as_json: bool = flag(False, "One JSON document on stdout.", "--json", panel="Output"),
    quiet: bool = flag(False, "Results only.", "--quiet", "-q", panel=_SELDOM),
    verbose: bool = flag(
        False, "All notes below a table, and tracebacks of errors.", "--verbose", "-v", panel="Output"
    ),
    no_progress: bool = flag(False, "No progress bar.", panel=_SELDOM),
    color: Literal["auto", "always", "never"] = flag("auto", "auto, always or never.", panel=_SELDOM),
    shared: bool = flag(False, SHARED, panel=_SELDOM, callback=_share),
    config: Path | None = CONFIG,
) -> None:
    """Declares the flags of every command that has settings."""


COMMON = inspect.signature(common).parameters


def settings_of_commands() -> dict[str, tuple[type[CommandSettings], ...]]:
    """The commands that have settings, those of their subcommands together, as `[command]` tables name them."""
    audits = kinds()
    return {
        **{kind.name: (kind.settings,) for kind in audits},
        "score": (commands.ScoreSettings,),
        "rerank": (commands.RerankSettings,),
        "mitigate": (commands.MitigateSettings,),
        "plan": tuple(kind.plan_settings for kind in audits),
        "calibrate": tuple(kind.calibrated for kind in audits if kind.calibrated is not None),
        "study": tuple(study.settings for _, study in studies().values()),
        "finetune-lora": (commands.FinetuneSettings,),
    }


# llmfair.toml


@dataclass(frozen=True)
class FileValue:
    """A value that a file gives, and where."""

    value: Any
    where: str

    def __str__(self) -> str:
        return str(self.value)


NAME_OR_PATH: Mapping[str, Callable[[Path], bool]] = {
    "base_model": Path.is_dir, "dataset": Path.is_dir, "prompt": Path.is_file,
}  # fmt: skip
"""Settings that take a name or a path: a path, where there is one."""


def find_config(start: Path) -> tuple[Path, bytes] | None:
    """The nearest llmfair.toml from `start` upwards that may be obeyed, with what it holds; others are told of.

    Nobody named it, so it has to belong to the user, to root or to the owner of `start`, and not everybody may write
    it. Asked is the file that is read, and a link to it, too.
    """
    trusted = {os.geteuid(), 0, start.stat().st_uid}
    for path in (folder / CONFIG_NAME for folder in (start, *start.parents)):
        if not os.path.isfile(path):  # noqa: PTH113 - which says no where a folder may not be looked into
            continue
        try:
            with files.opened(path) as file:
                read = os.fstat(file.fileno())
                if strangers := {read.st_uid, os.lstat(path).st_uid} - trusted:
                    why = f"belongs to somebody else (uid {min(strangers)})"
                elif read.st_mode & stat.S_IWOTH:
                    why = "may be written by everybody"
                else:
                    return path, files.content_of(file, path, files.MOST_BY_HAND)
        except OSError as error:
            why = f"cannot be read ({error.strerror})"
        warn(f"{path} {why}, so it is passed over; --config {path} obeys it.")
    return None


def read_config(
    path: Path, content: bytes, commands: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, FileValue]]:
    """The content of a configuration file as `{command: {setting: value}}`; shared keys stand on top, `[command]`
    tables below.

    `commands` gives the settings of each command, with their types. Raises UsageError naming file, key and the nearest
    name; keys that look like secrets are refused, since those come from the environment only.
    """
    table = _toml(path, content)
    if isinstance(table.get(AUDIT), dict):
        _settings(path, f"{AUDIT}.", table.pop(AUDIT), dict.fromkeys(ABOUT_AUDITS, str))
    on_top = {key: value for key, value in table.items() if not isinstance(value, dict)}
    for key in table.keys() - on_top.keys() - commands.keys():
        raise UsageError(
            f"{path}: [{key}] is not a command.{did_you_mean(key, commands)}",
            f"commands with settings: {', '.join(commands)}",
        )
    every = {name: hint for names in commands.values() for name, hint in names.items()}
    shared = _settings(path, "", on_top, every)
    return {
        command: {key: value for key, value in shared.items() if key in hints}
        | _settings(path, f"{command}.", table.get(command, {}), hints)
        for command, hints in commands.items()
    }


def _toml(path: Path, content: bytes) -> dict[str, Any]:
    try:
        return files.toml_of(files.decoded(content).removeprefix("\ufeff"))
    except ValueError as error:
        raise UsageError(
            f"{path}: not valid TOML: {error}", "mend it, or name another with --config"
        ) from None


def about_audits(config: Path | None) -> dict[str, str]:
    """What `[audit]` of a configuration file says, by key. Raises UsageError."""
    if config is None:
        return {}
    table = _toml(config, files.content(config, files.MOST_BY_HAND)).get(AUDIT, {})
    return {
        key: value_of(str(value) if isinstance(value, date) else value, str, f"{config}: {AUDIT}.{key}")
        for key, value in table.items()
    }


def _settings(
    path: Path, prefix: str, table: Mapping[str, Any], hints: Mapping[str, Any]
) -> dict[str, FileValue]:
    """A table's settings. Raises UsageError for a key that is none."""
    settings = {}
    for key, value in table.items():
        where = f"{path}: {prefix}{key}"
        if key in hints and not isinstance(value, dict):
            settings[key] = FileValue(_from(path.parent, key, value, hints[key]), where)
        elif secrets.is_secret(key):
            raise UsageError(f"{where} looks like a secret.", "set it in the environment: OPENAI_API_KEY")
        else:
            raise UsageError(
                f"{where} is not a setting.{did_you_mean(key, hints)}",
                "settings are flags with underscores; llmfair COMMAND --help-all lists them",
            )
    return settings


def _from(folder: Path, key: str, value: Any, hint: Any) -> Any:
    """A value as seen from the working folder, if it is a path, which is written as seen from the file's `folder`."""
    if not isinstance(value, str):
        return value
    if key == "queries" and value.startswith("@"):
        return "@" + _from(folder, key, value[1:], Path)
    there, is_there = folder / Path(value).expanduser(), NAME_OR_PATH.get(key)
    names_it = is_there is not None and is_there(there) and not registry.has("dataset", value)
    if Path(value).is_absolute() or not (Path in (hint, *get_args(hint)) or names_it):
        return value
    return os.path.relpath(there)
