"""Turns a settings class into the flags of a command, so that no flag is declared twice."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import Field, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from llmfair.cli import console
from llmfair.config import find_config, read_config
from llmfair.errors import UsageError
from llmfair.settings import (
    SETTINGS,
    MeasureSettings,
    default_of,
)

S = TypeVar("S", bound=MeasureSettings)
PANELS = ("Data", "Model", "Prompt", "Sampling", "Spending", "Statistics", "Output")
ENVIRONMENT = "LLMFAIR_"


def with_flags(settings: type[S], run: Callable[..., None]) -> Callable[..., None]:
    """A command whose flags are the fields of `settings`; `run(settings, ctx=…, **own)` gets them made.

    `run`'s own keyword parameters (beside `settings` and `ctx`) become flags as they stand.
    """
    own = [
        parameter
        for name, parameter in inspect.signature(run).parameters.items()
        if name not in ("settings", "ctx")
    ]
    own_hints = get_type_hints(run, include_extras=True)

    def command(**values: Any) -> None:
        ctx: typer.Context = values["ctx"]
        # A preset gives way to what was said as late as itself: on the command line only flags override it.
        least = max(_rank(ctx, "preset"), 1) if values.get("preset") else 1
        given = {
            item.name: tuple(value) if isinstance(value := values[item.name], list) else value
            for item in fields(settings)
            if _rank(ctx, item.name)
            >= (least if item.name in settings.presets().get(values.get("preset") or "", {}) else 1)
        }
        mine = {parameter.name: values[parameter.name] for parameter in own if parameter.name != "preset"}
        made = settings.make(values.get("preset"), **given)
        run(made, ctx=ctx, **mine)

    hints = get_type_hints(settings)
    parameters = [inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    in_panels = sorted(fields(settings), key=lambda item: PANELS.index(item.metadata["panel"]))
    parameters += [_parameter(item, hints[item.name]) for item in in_panels]
    parameters += [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=own_hints[parameter.name])
        for parameter in own
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = run.__doc__
    command.__name__ = run.__name__
    return command


def variable(name: str) -> str:
    """The environment variable of a flag."""
    return ENVIRONMENT + name.upper()


def _parameter(item: Field[Any], hint: Any) -> inspect.Parameter:
    meta = item.metadata
    default = default_of(item)
    flag = "--" + item.name.replace("_", "-")
    declaration = f"{flag}/--no-{flag[2:]}" if default is True else flag
    option = typer.Option(
        declaration,
        *meta["flags"],
        help=meta["meaning"],
        rich_help_panel=meta["panel"],
        envvar=variable(item.name),
        show_default=not (default is None or default is False or default == ()),
    )
    if isinstance(default, tuple):
        hint, default = list[str], list(default)
    return inspect.Parameter(
        item.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[hint, option]
    )


def _rank(ctx: typer.Context, name: str) -> int:
    """Where a value comes from: 0 its default, then configuration, variable, flag."""
    source = ctx.get_parameter_source(name)
    ranks = {"DEFAULT_MAP": 1, "ENVIRONMENT": 2, "COMMANDLINE": 3}
    return ranks.get(source.name, 0) if source is not None else 0


# Flags that every command has, beside its settings

Json = Annotated[
    bool,
    typer.Option(
        "--json", help="One JSON document on stdout.", rich_help_panel="Output", envvar=variable("json")
    ),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Results only.", rich_help_panel="Output", envvar=variable("quiet")),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", help="Tracebacks too.", rich_help_panel="Output", envvar=variable("verbose")
    ),
]
NoProgress = Annotated[
    bool,
    typer.Option(
        "--no-progress", help="No progress bar.", rich_help_panel="Output", envvar=variable("no_progress")
    ),
]
Color = Annotated[
    str,
    typer.Option(
        "--color", help="auto, always or never.", rich_help_panel="Output", envvar=variable("color")
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="Configuration file; the nearest llmfair.toml upwards.",
        rich_help_panel="Output",
        envvar=variable("config"),
        is_eager=True,
        callback=lambda ctx, value: _configure(ctx, value),
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        "--preset", help="paper: window 5, step 1, one pass, one order.", rich_help_panel="Prompt",
        envvar=variable("preset"),
    ),
]  # fmt: skip


def _configure(ctx: typer.Context, value: Path | None) -> Path | None:
    """Puts the configuration file under this command's flags and variables."""
    path = value or find_config(Path.cwd())
    if path is None:
        return None
    if value is not None and not path.is_file():
        raise UsageError(f"no configuration file {path}.", "name one with --config")
    everywhere = {
        "json": bool,
        "quiet": bool,
        "verbose": bool,
        "no_progress": bool,
        "color": str,
        "preset": str,
    }
    commands = {name: get_type_hints(settings) | everywhere for name, settings in SETTINGS.items()}
    found = read_config(path, commands)
    # A command without settings of its own still reads the shared ones, such as runs_dir.
    own = found.get(
        ctx.command.name or "", {key: value for keys in found.values() for key, value in keys.items()}
    )
    taken = {parameter.name for parameter in ctx.command.params}
    named = {{"json": "as_json"}.get(key, key): value for key, value in own.items()}
    ctx.default_map = {**(ctx.default_map or {}), **{k: v for k, v in named.items() if k in taken}}
    if own.get("json") or own.get("format") == "json":
        console.output.as_json = True
    return path
