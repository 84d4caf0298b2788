"""Keyword arguments of the Python API: checked, made into settings, and documented where help() finds them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from llmfair.datasets.frames import is_frame, kept
from llmfair.errors import UsageError, did_you_mean
from llmfair.settings import CommandSettings, default_of, named

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
    if is_frame(given.get("dataset")):
        given = {**given, "dataset": kept(given["dataset"])}
    names = [item.name for item in settings.given() if item.name not in COMMAND_LINE]
    for name in given:
        if name in COMMAND_LINE and name in settings.__dataclass_fields__:
            raise UsageError(f"'{name}' is for the command line.", COMMAND_LINE[name])
        if name not in names:
            raise UsageError(f"no setting '{name}'.{did_you_mean(name, names)}", HELP)
    with named({name: name for name in names}):
        return settings.make(preset, **given)
