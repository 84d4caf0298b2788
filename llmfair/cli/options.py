"""Turns a settings class into the flags of a command, so that no flag is declared twice."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import Field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from llmfair import terminal
from llmfair.audits.kind import Help, kinds, studies
from llmfair.cli.complete import OFFERED
from llmfair.cli.help import PANELS, AdvancedPanel
from llmfair.config import find_config, read_config
from llmfair.errors import UsageError
from llmfair.io import files
from llmfair.settings import (
    CommandSettings,
    FinetuneSettings,
    MitigateSettings,
    RerankSettings,
    ScoreSettings,
    default_of,
)

ENVIRONMENT = "LLMFAIR_"
FILE, FLAG = 1, 3
"""Where a value comes from; 0 is its default, 2 a variable."""
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
        self._settings, self._run = settings, run
        self.__name__, self.__doc__ = run.__name__, run.__doc__

    def __call__(self, **values: Any) -> None:
        ctx: typer.Context = values["ctx"]
        # A preset gives way to what was said as late as itself: on the command line only flags override it.
        least = max(_rank(ctx, "preset"), 1) if values.get("preset") else 1
        bundled = self._settings.of_preset(values["preset"]) if values.get("preset") else {}
        ranks = {item.name: _rank(ctx, item.name) for item in self._settings.given()}
        flags = {name for name, rank in ranks.items() if rank == FLAG}
        own = {item.name: values[item.name] for item in self._own}
        giving_way = self._settings.giving_way(flags, own.get("runs", ()), values["output"]) - flags
        given = {
            name: tuple(value) if isinstance(value := values[name], list) else value
            for name, rank in ranks.items()
            if rank >= (least if name in bundled else 1) and name not in giving_way
        }
        of_file = {name: value for name, value in given.items() if ranks[name] == FILE}
        if effects := self._settings.effects(of_file):
            terminal.warn(
                f"{values['config']} sets what reaches beyond the run folder: {'; '.join(effects)}."
            )
        with _naming(given):
            made = self._settings.make(values.get("preset"), **given)
            style = "json" if values["as_json"] else made.format
            terminal.output = terminal.Output(
                values["quiet"],
                values["verbose"],
                not values["no_progress"],
                values["color"],
                style == "json",
            )
            self._run(made, style, ctx=ctx, **own)

    @property
    def _own(self) -> list[inspect.Parameter]:
        return [item for item in inspect.signature(self._run).parameters.values() if item.name not in GIVEN]

    @cached_property
    def __signature__(self) -> inspect.Signature:
        settings, keyword = self._settings, inspect.Parameter.KEYWORD_ONLY
        types, hints = get_type_hints(settings), get_type_hints(self._run, include_extras=True)
        in_panels = sorted(settings.given(), key=lambda item: PANELS.index(item.metadata["panel"]))
        preset = {"preset": (_preset(settings.preset_meaning), None)} if settings.presets() else {}
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


@contextmanager
def _naming(given: Mapping[str, Any]) -> Iterator[None]:
    """Errors that quote what was given to one flag alone, and name no flag, name it."""
    try:
        yield
    except UsageError as error:
        unnamed = {
            name: value for name, value in given.items() if name.replace("_", " ") not in error.message
        }
        quoting = [name for name, value in unnamed.items() if _quotes(error.message, value)]
        if len(quoting) == 1 and "--" not in error.message:
            error.message = f"--{quoting[0].replace('_', '-')}: {error.message}"
        raise


def _quotes(message: str, value: Any) -> bool:
    """Whether a text of a flag stands in a message, or one of several in it: `P@20,AP`, `bm25:k1=2`."""
    texts = [text for text in (value if isinstance(value, tuple) else (value,)) if isinstance(text, str)]
    words = {word for text in texts for word in (text, *re.split(r"[,@:=()\s]+", text))} - {""}
    return any(f"'{word}'" in message for word in words)


def add_command(
    app: typer.Typer,
    name: str,
    settings: type[CommandSettings],
    run: Callable[..., None],
    said: Help,
    panel: str | None = None,
) -> None:
    """A command with the flags of `settings`, as an audit's kind describes it."""
    run.__doc__ = said.does
    app.command(name, rich_help_panel=panel, epilog="\n\n".join(said.examples))(WithFlags(settings, run))


def variable(name: str) -> str:
    """The environment variable of a flag."""
    return ENVIRONMENT + name.upper()


def variables(command: Any) -> Iterator[str]:
    """The environment variables of all flags of a command and of those below it."""
    yield from (item.envvar for item in command.params if getattr(item, "envvar", None))
    for one in getattr(command, "commands", {}).values():
        yield from variables(one)


def no_settings(environment: Mapping[str, str], known: Collection[str]) -> Iterator[str]:
    """A sentence for each variable that is named like a setting and is none; of several processes the first says it."""
    if environment.get("RANK", "0") != "0":
        return
    for name in sorted(environment):
        if not name.startswith(ENVIRONMENT) or name in known:
            continue
        # by what follows the beginning that all have in common
        words = [one.removeprefix(ENVIRONMENT) for one in sorted(known)]
        nearest = difflib.get_close_matches(name.removeprefix(ENVIRONMENT), words, n=1)
        said = f"; did you mean {ENVIRONMENT}{nearest[0]}?" if nearest else "; nothing reads it"
        yield f"{name} is no setting{said}"


def _parameter(item: Field[Any], hint: Any, hidden: bool) -> inspect.Parameter:
    meta = item.metadata
    default = default_of(item)
    flag = "--" + item.name.replace("_", "-")
    declaration = f"{flag}/--no-{flag[2:]}" if default is True else flag
    option = typer.Option(
        declaration,
        *meta["flags"],
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
    ranks = {"DEFAULT_MAP": FILE, "ENVIRONMENT": 2, "COMMANDLINE": FLAG}
    return ranks.get(source.name, 0) if source is not None else 0


# Flags that every command has, beside its settings


def flag(said: str, *names: str, panel: str | None = None, named: str = "", **more: Any) -> Any:
    """A flag of these names, the long one first, with a variable `named` so, or else as the flag is."""
    name = named or names[0].removeprefix("--").replace("-", "_")
    return typer.Option(*names, help=said, rich_help_panel=panel, envvar=variable(name), **more)


Json = Annotated[bool, flag("One JSON document on stdout.", "--json", panel="Output")]
Quiet = Annotated[bool, flag("Results only.", "--quiet", "-q", panel=AdvancedPanel("Output"))]
Verbose = Annotated[
    bool,
    flag(
        "All notes below a table, and tracebacks of errors.",
        "--verbose",
        "-v",
        panel="Output",
        callback=lambda value: _speak(value),
    ),
]
NoProgress = Annotated[bool, flag("No progress bar.", "--no-progress", panel=AdvancedPanel("Output"))]
Color = Annotated[str, flag("auto, always or never.", "--color", panel=AdvancedPanel("Output"))]
Shared = Annotated[
    bool,
    flag(
        "Let others read what is written, as your umask says; else it is yours alone.",
        "--shared",
        panel=AdvancedPanel("Output"),
        callback=lambda value: _share(value),
    ),
]
RunsDir = Annotated[Path, flag("Where run folders are.", "--runs-dir")]
Config = Annotated[
    Path | None,
    flag(
        "Configuration file; the nearest llmfair.toml upwards.",
        "--config",
        panel=AdvancedPanel("Output"),
        is_eager=True,
        callback=lambda ctx, value: _configure(ctx, value),
    ),
]


def _preset(meaning: str) -> Any:
    return Annotated[str | None, flag(meaning, "--preset", panel="Prompt", autocompletion=OFFERED["preset"])]


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


def _speak(verbose: bool) -> bool:
    """Set at once, so that commands without settings need not."""
    terminal.output.verbose = verbose
    return verbose


def _share(shared: bool) -> bool:
    if shared:
        files.share()
    return shared


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
        name: {
            item.name: hints[item.name]
            for one in settings
            for hints in [get_type_hints(one)]
            for item in one.given()
        }
        | everywhere
        for name, settings in settings_of_commands().items()
    }
    found = read_config(path, commands, content)
    # `plan listwise` reads [listwise] and then [plan]; a command without settings of its own, all there are.
    words = ctx.command_path.split()[1:]
    tables = [found[word] for word in reversed(words) if word in found] or [*found.values()]
    own = {key: value for keys in tables for key, value in keys.items()}
    taken = {parameter.name for parameter in ctx.command.params}
    named = {{"json": "as_json"}.get(key, key): value for key, value in own.items()}
    ctx.default_map = {**(ctx.default_map or {}), **{k: v for k, v in named.items() if k in taken}}
    if own.get("json") or own.get("format") == "json":
        terminal.output.as_json = True
    return path
