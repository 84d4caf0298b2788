"""Flags of commands, each declared once: from settings classes and functions; their values from flags, variables and
llmfair.toml.

In llmfair.toml settings are named as flags with underscores: shared ones on top, `[listwise]` and the like for one
command. Paths are relative to the file, which may stand above the folder one works in. What looks like a secret is
refused, since secrets come from the environment only.
"""

from __future__ import annotations

import difflib
import inspect
import os
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import Field, dataclass, fields
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_type_hints

import typer

from llmfair import registry, terminal
from llmfair.audits.kind import Help, kinds, studies
from llmfair.cli.complete import OFFERED
from llmfair.cli.help import PANELS, AdvancedPanel
from llmfair.errors import UsageError, did_you_mean, warn
from llmfair.io import files, secrets
from llmfair.settings import (
    CommandSettings,
    FinetuneSettings,
    MitigateSettings,
    RerankSettings,
    ScoreSettings,
    default_of,
    named,
    value_of,
)
from llmfair.settings.declaration import Limits, flag_of, hints_of

ENVIRONMENT, CONFIG_NAME = "LLMFAIR_", "llmfair.toml"
FILE, VARIABLE, FLAG = 1, 2, 3
"""Where a value comes from; 0 is its default."""
ELSEWHERE = (
    "LLMFAIR_CACHE_DIR",
    "LLMFAIR_REQUIRE_VLLM",
    "LLMFAIR_SEARCH_API_KEY",
    "LLMFAIR_SEARCH_PASSWORD",
    "LLMFAIR_SEARCH_USER",
)
"""Variables that are no flag's: where fetched data and answers are kept, and what the tests must not skip."""
GIVEN = ("settings", "style", "ctx")
"""What a command's function is given, beside its own flags."""


class WithFlags:
    """A command whose flags are the fields of `settings`, and those that every command has.

    `run(settings, style, ctx=…, **own)` gets the settings made and what stdout is to get (`table`, `tsv`, `json`,
    `md`). Its own keyword parameters beside `ctx` become flags as they stand. The flags are made when Typer asks for
    them, by the names that `inspect.signature` and `typing.get_type_hints` look for: a list of commands needs none.
    """

    def __init__(self, settings: type[CommandSettings], run: Callable[..., None]) -> None:
        self.settings, self._run = settings, run
        self.__name__, self.__doc__ = run.__name__, run.__doc__

    def __call__(self, **values: Any) -> None:
        ctx: typer.Context = values["ctx"]
        # A preset gives way to what was said as late as itself: on the command line only flags override it.
        least = max(_rank(ctx, "preset"), 1) if values.get("preset") else 1
        bundled = self.settings.of_preset(values["preset"]) if values.get("preset") else {}
        ranks = {item.name: _rank(ctx, item.name) for item in self.settings.given()}
        flags = {name for name, rank in ranks.items() if rank == FLAG}
        parameters = {item.name: values[item.name] for item in self._own}
        giving_way = self.settings.giving_way(flags, parameters.get("runs", ()), values["output"]) - flags
        chosen = {
            name: values[name]
            for name, rank in ranks.items()
            if rank >= (least if name in bundled else 1) and name not in giving_way
        }
        of_file = {name: value for name, value in chosen.items() if ranks[name] == FILE}
        if effects := self.settings.effects(of_file):
            terminal.warn(
                f"{values['config']} sets what reaches beyond the run folder: {'; '.join(effects)}."
            )
        params = {item.name: item for item in ctx.command.params}
        with named({name: _origin(ctx, params[name]) for name in chosen if ranks[name] != FLAG}):
            settings = self.settings.make(values.get("preset"), **chosen)
            style = "json" if values["as_json"] else settings.format
            terminal.output = terminal.Output(
                values["quiet"],
                values["verbose"],
                not values["no_progress"],
                values["color"],
                style == "json",
            )
            self._run(settings, style, ctx=ctx, **parameters)

    @property
    def _own(self) -> list[inspect.Parameter]:
        return [item for item in inspect.signature(self._run).parameters.values() if item.name not in GIVEN]

    @cached_property
    def __signature__(self) -> inspect.Signature:
        settings, keyword = self.settings, inspect.Parameter.KEYWORD_ONLY
        types, hints = get_type_hints(settings), get_type_hints(self._run, include_extras=True)
        in_panels = sorted(settings.given(), key=lambda item: PANELS.index(item.metadata["panel"]))
        bundle: Any = Annotated[str | None, flag(settings.preset_meaning, "--preset", panel="Prompt")]
        preset = {"preset": (bundle, None)} if settings.presets() else {}
        return inspect.Signature(
            [
                inspect.Parameter("ctx", keyword, annotation=typer.Context),
                *(_parameter(item, types[item.name], item.name in settings.idle()) for item in in_panels),
                *(item.replace(kind=keyword, annotation=hints[item.name]) for item in self._own),
                *(
                    inspect.Parameter(name, keyword, default=default, annotation=hint)
                    for name, (hint, default) in (preset | COMMON).items()
                ),
            ]
        )

    @property
    def __annotations__(self) -> dict[str, Any]:  # type: ignore[override]
        return {name: item.annotation for name, item in self.__signature__.parameters.items()}


def with_one_reader(command: Any) -> Any:
    """The command and all below it, whose values are read as those of files and of Python are."""
    settings = getattr(getattr(command.callback, "__wrapped__", None), "settings", None)
    items = {item.name: item for item in fields(settings)} if settings is not None else {}
    for param in command.params:
        param.process_value = partial(_read, param, settings, items.get(param.name))
    for below in getattr(command, "commands", {}).values():
        with_one_reader(below)
    return command


def _read(param: Any, settings: Any, item: Field[Any] | None, ctx: typer.Context, value: Any) -> Any:
    """The value of a flag or argument. Raises UsageError for a wrong one and for one that is missing."""
    rank, where = _rank(ctx, param.name), _origin(ctx, param)
    if isinstance(value, FileValue):
        value = value.value
    if rank and value is not None:
        if item is not None:
            value = settings.value_from(item, value, where, text=rank != FILE)
        else:
            info = param.type_descriptor.parameter_info
            limits, way_out = Limits(info.min, info.max), f"{ctx.command_path} --help"
            value = value_of(
                value, param.type_descriptor.annotation, where, limits, way_out, text=rank != FILE
            )
    if param.required and value in (None, (), []):
        raise UsageError(f"{where} is missing.", f"{ctx.command_path} --help")
    return value if param.callback is None else param.callback(ctx, param, value)


def _origin(ctx: typer.Context, param: Any) -> str:
    """Where a value comes from, as an error names it: flag, variable, or file and key."""
    rank = _rank(ctx, param.name)
    if rank == FILE:
        return str((ctx.default_map or {})[param.name].where)
    if param.param_type_name == "argument":
        return str(param.metavar or param.name.upper())
    return str(param.envvar) if rank == VARIABLE else max(param.opts, key=len)


def add_command(
    app: typer.Typer,
    name: str,
    settings: type[CommandSettings],
    run: Callable[..., None],
    words: Help,
    panel: str | None = None,
) -> None:
    """A command with the flags of `settings`, as an audit's kind describes it."""
    run.__doc__ = words.does
    app.command(name, rich_help_panel=panel, epilog="\n\n".join(words.examples))(WithFlags(settings, run))


class View(NamedTuple):
    """What a command without settings shows: the document of --json, else a table or text; and its exit code."""

    document: Mapping[str, Any]
    view: Any = None
    code: int = 0


def look(
    app: typer.Typer, *examples: str, name: str | None = None, panel: str | None = None, runs: bool = False
) -> Callable[[Callable[..., View]], Callable[..., View]]:
    """Adds a command without settings to `app`, whose flags are the parameters of the decorated function and --json.

    `runs`: it reads run folders, and takes --verbose and --config, too.
    """

    def add(run: Callable[..., View]) -> Callable[..., View]:
        keyword, hints = inspect.Parameter.KEYWORD_ONLY, get_type_hints(run, include_extras=True)
        own_items = [
            item.replace(annotation=hints[item.name]) for item in inspect.signature(run).parameters.values()
        ]
        common = [
            inspect.Parameter(name, keyword, default=COMMON[name][1], annotation=COMMON[name][0])
            for name in ("as_json", *(("verbose", "config") if runs else ()))
        ]

        def call(**values: Any) -> None:
            terminal.output.as_json = values["as_json"] or values.get("format") == "json"
            document, view, code = run(**{item.name: values[item.name] for item in own_items})
            if values["as_json"]:
                terminal.print_json({"schema": files.SCHEMA, **document})
            elif isinstance(view, str):
                print(view)
            elif view is not None:
                terminal.print_table(view)
            if code:
                raise typer.Exit(code)

        parameters = [item.replace(kind=keyword) for item in own_items] + common
        call.__name__, call.__doc__ = run.__name__, run.__doc__
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {item.name: item.annotation for item in parameters}
        app.command(name, rich_help_panel=panel, epilog="\n\n".join(examples))(call)
        return run

    return add


def group(name: str, meaning: str) -> typer.Typer:
    """An application of commands below a name, also where there is one alone."""
    app = typer.Typer(name=name, help=meaning)
    app.callback()(lambda: None)
    return app


def variable(name: str) -> str:
    """The environment variable of a flag."""
    return ENVIRONMENT + name.upper()


def variables(command: Any) -> Iterator[str]:
    """The environment variables of all flags of a command and of those below it."""
    yield from (item.envvar for item in command.params if getattr(item, "envvar", None))
    for item in getattr(command, "commands", {}).values():
        yield from variables(item)


def no_settings(environment: Mapping[str, str], names: Collection[str]) -> Iterator[str]:
    """A sentence for each variable that is named like a setting and is none; of several processes the first says it."""
    if environment.get("RANK", "0") != "0":
        return
    for name in sorted(environment):
        if not name.startswith(ENVIRONMENT) or name in names:
            continue
        # by what follows the beginning that all have in common
        words = [name_of.removeprefix(ENVIRONMENT) for name_of in sorted(names)]
        nearest = difflib.get_close_matches(name.removeprefix(ENVIRONMENT), words, n=1)
        ending = f"; did you mean {ENVIRONMENT}{nearest[0]}?" if nearest else "; nothing reads it"
        yield f"{name} is no setting{ending}"


def _parameter(item: Field[Any], hint: Any, hidden: bool) -> inspect.Parameter:
    meta = item.metadata
    default = default_of(item)
    flag = flag_of(item.name)
    declaration = f"--{flag}/--no-{flag}" if default is True else f"--{flag}"
    option = typer.Option(
        declaration,
        *filter(None, [meta["short"]]),
        help=meta["meaning"],
        rich_help_panel=AdvancedPanel(meta["panel"]) if meta["advanced"] else meta["panel"],
        envvar=variable(item.name),
        show_default=not (default is None or default is False or default == ()),
        autocompletion=OFFERED.get(item.name),
        hidden=hidden,
    )
    if isinstance(default, tuple):
        hint, default = list[str], list(default)
    return inspect.Parameter(
        item.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[hint, option]
    )


def _rank(ctx: typer.Context, name: str) -> int:
    """Where a value comes from: 0 its default, then configuration, variable, flag."""
    source = ctx.get_parameter_source(name)
    ranks = {"DEFAULT_MAP": FILE, "ENVIRONMENT": VARIABLE, "COMMANDLINE": FLAG}
    return ranks.get(source.name, 0) if source is not None else 0


# Flags that every command has, beside its settings


def flag(meaning: str, *names: str, panel: str | None = None, named: str = "", **more: Any) -> Any:
    """A flag of these names, the long one first, with a variable `named` so, or else as the flag is."""
    name = named or names[0].removeprefix("--").replace("-", "_")
    return typer.Option(*names, help=meaning, rich_help_panel=panel, envvar=variable(name), **more)


def _speak(verbose: bool) -> bool:
    """Set at once, so that commands without settings need not."""
    terminal.output.verbose = verbose
    return verbose


def _share(shared: bool) -> bool:
    if shared:
        files.share()
    return shared


_SELDOM = AdvancedPanel("Output")
Json = Annotated[bool, flag("One JSON document on stdout.", "--json", panel="Output")]
Quiet = Annotated[bool, flag("Results only.", "--quiet", "-q", panel=_SELDOM)]
SPEAKING = "All notes below a table, and tracebacks of errors."
Verbose = Annotated[bool, flag(SPEAKING, "--verbose", "-v", panel="Output", callback=_speak)]
NoProgress = Annotated[bool, flag("No progress bar.", "--no-progress", panel=_SELDOM)]
Color = Annotated[
    Literal["auto", "always", "never"], flag("auto, always or never.", "--color", panel=_SELDOM)
]
SHARING = "Let others read what is written, as your umask says; else it is yours alone."
Shared = Annotated[bool, flag(SHARING, "--shared", panel=_SELDOM, callback=_share)]
RunsDir = Annotated[Path, flag("Where run folders are.", "--runs-dir")]
Config = Annotated[
    Path | None,
    flag(
        "Configuration file; the nearest llmfair.toml upwards.",
        "--config",
        panel=_SELDOM,
        is_eager=True,
        callback=lambda ctx, value: _configure(ctx, value),
    ),
]


COMMON: dict[str, tuple[Any, Any]] = {
    "as_json": (Json, False),
    "quiet": (Quiet, False),
    "verbose": (Verbose, False),
    "no_progress": (NoProgress, False),
    "color": (Color, "auto"),
    "shared": (Shared, False),
    "config": (Config, None),
}
"""The flags of every command that has settings, with their defaults."""


def settings_of_commands() -> dict[str, tuple[type[CommandSettings], ...]]:
    """The commands that have settings, those of their subcommands together, as `[command]` tables name them."""
    audits = kinds()
    return {
        **{kind.name: (kind.settings,) for kind in audits},
        "score": (ScoreSettings,),
        "rerank": (RerankSettings,),
        "mitigate": (MitigateSettings,),
        "plan": tuple(kind.plan_settings for kind in audits),
        "calibrate": tuple(kind.calibrated for kind in audits if kind.calibrated is not None),
        "study": tuple(study.settings for _, study in studies().values()),
        "finetune-lora": (FinetuneSettings,),
    }


def _configure(ctx: typer.Context, value: Path | None) -> Path | None:
    """Puts the configuration file under this command's flags and variables."""
    if value is not None and not value.is_file():
        raise UsageError(f"no configuration file {value}.", "name one with --config")
    file = find_config(Path.cwd()) if value is None else (value, None)
    if file is None:
        return None
    path, content = file
    everywhere = {
        **dict.fromkeys(("json", "quiet", "verbose", "no_progress", "shared"), bool),
        "color": str,
        "preset": str,
    }
    commands = {
        name: {item.name: hints_of(kind)[item.name] for kind in kinds for item in kind.given()} | everywhere
        for name, kinds in settings_of_commands().items()
    }
    tables = read_config(path, commands, content)
    # `plan listwise` reads [listwise] and then [plan]; a command without settings of its own, all there are.
    words = ctx.command_path.split()[1:]
    mine = [tables[word] for word in reversed(words) if word in tables] or [*tables.values()]
    values = {{"json": "as_json"}.get(key, key): value for table in mine for key, value in table.items()}
    ctx.default_map = {item.name: values[item.name] for item in ctx.command.params if item.name in values}
    if any(key in values and values[key].value in (True, "json") for key in ("as_json", "format")):
        terminal.output.as_json = True
    return path


# llmfair.toml


@dataclass(frozen=True)
class FileValue:
    """A value that a file gives, and where."""

    value: Any
    where: str

    def __str__(self) -> str:
        return str(self.value)


NAME_OR_PATH: Mapping[str, Callable[[Path], bool]] = {
    "base_model": Path.is_dir,
    "dataset": Path.is_dir,
    "prompt": Path.is_file,
}
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
    path: Path, commands: Mapping[str, Mapping[str, Any]], content: bytes | None = None
) -> dict[str, dict[str, FileValue]]:
    """A configuration file as `{command: {setting: value}}`; shared keys stand on top, `[command]` tables below.

    `commands` gives the settings of each command, with their types; `content`: what the file holds, where it was read.
    Raises UsageError naming file, key and the nearest name; keys that look like secrets are refused, since those come
    from the environment only.
    """
    try:
        if content is None:
            content = files.content(path, files.MOST_BY_HAND)
        table = files.toml_of(files.decoded(content).removeprefix("\ufeff"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}.", "name a file with --config") from None
    except ValueError as error:
        raise UsageError(
            f"{path}: not valid TOML: {error}", "mend it, or name another with --config"
        ) from None
    for key in table:
        if isinstance(table[key], dict) and key not in commands:
            raise UsageError(
                f"{path}: [{key}] is not a command.{did_you_mean(key, commands)}",
                f"commands with settings: {', '.join(commands)}",
            )
    everywhere = {name: hint for names in commands.values() for name, hint in names.items()}
    shared = _settings(
        path, "", {key: value for key, value in table.items() if not isinstance(value, dict)}, everywhere
    )
    return {
        command: {key: value for key, value in shared.items() if key in hints}
        | _settings(path, f"{command}.", table.get(command, {}), hints)
        for command, hints in commands.items()
    }


def _settings(
    path: Path, prefix: str, table: Mapping[str, Any], hints: Mapping[str, Any]
) -> dict[str, FileValue]:
    """A table's settings, each one that there is."""
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
    named = is_there is not None and is_there(there) and not registry.has("dataset", value)
    if hint is Path or Path in get_args(hint) or named:
        return value if Path(value).is_absolute() else os.path.relpath(there)
    return value
