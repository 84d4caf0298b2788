"""How `--help` looks: flags and their variables whole, whatever the width; panels; examples at the end.

A command of many flags shows those of a first week, and says how many more `--help-all` shows.

Typer's own help is a table, which at 80 columns cuts long flags and variables off and says little in many lines.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from llmfair.terminal import draw

PANELS = (
    "Fetching", "Sources", "Data", "Model", "Prompt", "Sampling", "Training", "Spending", "Statistics", "Output",
)  # fmt: skip
GROUPS = ("Audit", "Mitigate", "Plan", "Read", "Look")
"""The panels of flags and of commands, in this order; what is in none comes first."""
NARROWEST, WIDEST = 40, 100
SHORT = 29
"""A command of so many flags shows them all."""
METAVARS = {"int": "N", "float": "X", "str": "TEXT", "path": "PATH", "list[str]": "TEXT", "int range": "N"}
UNBROKEN = "\N{NO-BREAK SPACE}"
METAVAR = re.compile(r"<([^<>]+)>")
EXTRA = re.compile(
    r"\s*\[(?:env var: [A-Z_0-9]+)?(?:; )?(?:default: (?P<default>[^;]+))?(?:; .*|required)?\]$"
)


class AdvancedPanel(str):
    """A panel's name, of a flag that only `--help-all` shows."""

    __slots__ = ()


def below(command: Any) -> Iterator[Any]:
    """The command and all below it."""
    yield command
    for item in getattr(command, "commands", {}).values():
        yield from below(item)


def with_help(command: Any) -> Any:
    """The command and all below it, helped by this module."""
    declaring = typer.Typer(add_completion=False)
    declaring.command()(_helps)
    helps = typer.main.get_command(declaring).params
    for flag in helps:
        flag.expose_value = False
    for item in below(command):
        item.params.extend(helps)
    return command


def _option(complete: bool, meaning: str, *names: str) -> Any:
    def show(ctx: typer.Context, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            width = min(max(shutil.get_terminal_size().columns, NARROWEST), WIDEST)
            draw("\n".join(_lines(ctx.command, ctx, width, complete)))
            raise typer.Exit

    return typer.Option(*names, is_eager=True, callback=show, help=meaning)


def _helps(
    help_all: Annotated[bool, _option(True, "Show every flag and exit.", "--help-all")] = False,
    help: Annotated[bool, _option(False, "Show this message and exit.", "--help", "-h")] = False,
) -> None:
    """Declares the flags that every command has."""


def _lines(command: Any, ctx: Any, width: int, complete: bool) -> Iterator[str]:
    group = getattr(command, "commands", None)
    arguments = [item for item in command.params if item.param_type_name == "argument"]
    words = [item.metavar or item.name.upper() for item in arguments]
    yield " ".join(["Usage:", ctx.command_path, "[OPTIONS]", *(["COMMAND …"] if group else words)])
    for paragraph in (command.help or "").split("\n\n"):
        yield from ("", *textwrap.wrap(" ".join(paragraph.split()), width, break_on_hyphens=False))
    if group:
        yield from _commands(group, width)
    if arguments:
        yield from ("", _bold("Arguments"))
        for name, item in zip(words, arguments, strict=True):
            yield from _entry(name, "", item.help or "", width)
    *options, help_all, help_of_it = (
        item for item in command.get_params(ctx) if item.param_type_name == "option" and not item.hidden
    )
    every = complete or len(options) <= SHORT
    visible = [item for item in options if every or not isinstance(item.rich_help_panel, AdvancedPanel)]
    panels: dict[str, list[Any]] = {}
    for item in visible:
        panels.setdefault(item.rich_help_panel or "Options", []).append(item)
    ordered = _in_order(panels, PANELS) or ["Options"]
    panels.setdefault(ordered[-1], []).extend([help_of_it, *[help_all] * (len(options) > SHORT)])
    for panel in ordered:
        yield from ("", _bold(panel))
        for item in panels[panel]:
            yield from _flag(item, ctx, width)
    if examples := _examples(command):
        yield from ("", _bold("Examples"), *(f"  {example}" for example in examples))
    if more := len(options) - len(visible):
        yield from ("", f"{more} more flags: {ctx.command_path} --help-all")


def _in_order(panels: Iterable[str], order: Sequence[str]) -> list[str]:
    """Panels in this order, those that are not in it first."""
    return sorted(panels, key=lambda panel: order.index(panel) if panel in order else -1)


def _commands(group: Mapping[str, Any], width: int) -> Iterator[str]:
    """Commands by panel, each with the first sentence of its help."""
    panels: dict[str, list[str]] = {}
    for name, item in group.items():
        panels.setdefault(item.rich_help_panel or "Commands", []).append(name)
    longest = max(map(len, group))
    for panel in _in_order(panels, GROUPS):
        yield from ("", _bold(panel))
        for name in panels[panel]:
            sentence = " ".join((group[name].help or "").partition("\n\n")[0].split())
            first, *others = textwrap.wrap(sentence, width - longest - 4, break_on_hyphens=False) or [""]
            yield f"  {name:<{longest}}  {first}"
            yield from (" " * (longest + 4) + other for other in others)


def _flag(item: Any, ctx: Any, width: int) -> Iterator[str]:
    declared, meaning = item.get_help_record(ctx)
    if (extra := EXTRA.search(meaning)) is not None:
        meaning, default = meaning[: extra.start()], extra["default"]
        if default is not None and item.secondary_opts:
            default = "on" if item.default else "off"
        if default is not None:
            meaning += f" (default: {default})".replace(" ", UNBROKEN).replace(UNBROKEN, " ", 1)
    name = METAVAR.sub(lambda match: METAVARS.get(match[1], match[1]), declared)
    yield from _entry(name, item.envvar or "", meaning, width)


def _entry(name: str, variable: str, meaning: str, width: int) -> Iterator[str]:
    """The name with its variable to the right, if there is room, and what it means below."""
    room, indent = width - 2 - len(name) - len(variable), " " * 6
    if not variable or room >= 2:
        yield f"  {name}{' ' * room}{variable}".rstrip()
    else:
        yield from (f"  {name}", f"{variable:>{width}}")
    for line in textwrap.wrap(
        meaning, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    ):
        yield line.replace(UNBROKEN, " ")


def _examples(command: Any) -> list[str]:
    """The command's own examples, never wrapped, so that they can be copied; of a group the first of each command."""
    if command.epilog:
        return [" ".join(part.split()) for part in command.epilog.split("\n\n")]
    return [_examples(item)[0] for item in getattr(command, "commands", {}).values() if _examples(item)]


def _bold(heading: str) -> str:
    plain = not sys.stdout.isatty() or bool(os.environ.get("NO_COLOR"))
    plain |= os.environ.get("TERM") == "dumb" or os.environ.get("LLMFAIR_COLOR") == "never"
    return heading if plain else typer.style(heading, bold=True)
