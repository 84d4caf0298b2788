"""Keyword arguments of the Python API: checked, made into settings, and documented where help() finds them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, get_origin, get_type_hints

from llmfair.config import typed
from llmfair.datasets.frames import is_frame, kept
from llmfair.errors import UsageError, did_you_mean
from llmfair.settings import CommandSettings, default_of

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound=CommandSettings)
COMMAND_LINE = {
    "dry_run": "llmfair.plan_NAME counts what an audit of this kind would ask",
    "format": "str(result), result.results and result.to_frame() are its forms",
    "open": "llmfair.write_report returns the file that a browser opens",
    "per_query": "result.per_query has every query's figures",
    "merge": "llmfair finetune-lora --merge writes a merged model",
}
"""Settings of the command line alone, and what stands here for them."""
HELP = "help() of the function lists its settings"


def takes(settings: type[CommandSettings]) -> Callable[[F], F]:
    """Documents a function's settings in its signature and docstring, where help() and editors find them."""

    def documented(call: F) -> F:
        own = inspect.signature(call)
        named = [item for item in own.parameters.values() if item.kind is not item.VAR_KEYWORD]
        here = [item for item in settings.given() if item.name not in {*own.parameters, *COMMAND_LINE}]
        keyword = inspect.Parameter.KEYWORD_ONLY
        others = [
            inspect.Parameter(item.name, keyword, default=default_of(item), annotation=item.type)
            for item in here
        ]
        call.__signature__ = own.replace(parameters=[*named, *others])  # type: ignore[attr-defined]
        lines = "\n".join(f"        {item.name}: {item.metadata['meaning']}" for item in here)
        call.__doc__ = f"{call.__doc__}\n    Settings (`preset` names a bundle of them):\n{lines}\n"
        return call

    return documented


def defaults_of(settings: type[CommandSettings]) -> dict[str, Any]:
    """The default of every setting."""
    return {item.name: default_of(item) for item in fields(settings)}


def make_settings(settings: type[S], given: Mapping[str, Any], preset: str | None = None) -> S:
    """The settings from keyword arguments. Raises UsageError for an unknown name and for a value of another type."""
    hints = get_type_hints(settings)
    if is_frame(given.get("dataset")):
        given = {**given, "dataset": kept(given["dataset"])}
    known = [item.name for item in settings.given() if item.name not in COMMAND_LINE]
    for name in given:
        if name in COMMAND_LINE and name in hints:
            raise UsageError(f"'{name}' is for the command line.", COMMAND_LINE[name])
        if name not in known:
            raise UsageError(f"no setting '{name}'.{did_you_mean(name, known)}", HELP)
    return settings.make(preset, **{name: _value(name, given[name], hints[name]) for name in given})


def _value(name: str, value: Any, hint: Any) -> Any:
    """A keyword argument as its setting takes it."""
    if value is None and type(None) in getattr(hint, "__args__", ()):
        return None
    if get_origin(hint) is tuple and isinstance(value, str):  # one of several there may be
        value = [value]
    found = typed(name, plain(value), hint, HELP)
    if isinstance(found, list):
        return tuple(found)
    return Path(found) if Path in (hint, *getattr(hint, "__args__", ())) else found


def plain(value: Any) -> Any:
    """A path as a text, any sequence as a list."""
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
