"""Finds kinds of audits, backends, rankers, strategies, measures and datasets by name, ours and other people's.

A module registers what it offers with `@register(kind, name)`; a module of that name is imported when it is
asked for, so nothing heavy is loaded for a name that is not used. Other packages join through the entry-point
groups `llmfair.audits`, `llmfair.backends`, `llmfair.rankers`, `llmfair.strategies`, `llmfair.measures`,
`llmfair.aggregates`, `llmfair.datasets`, `llmfair.engines`, `llmfair.remedies` and `llmfair.simulated` (how simulated
models answer a form of question).
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from operator import attrgetter
from typing import Any, Literal, TypeVar

from llmfair.errors import UsageError, did_you_mean, warn

What = Literal[
    "audit", "backend", "ranker", "strategy", "measure", "aggregate", "dataset", "engine", "simulated", "remedy"
]  # fmt: skip
F = TypeVar("F")
C = TypeVar("C", bound=Callable[[str, object, Iterable[Any]], None])

_PACKAGES: dict[What, str] = {
    "audit": "llmfair.audits",
    "backend": "llmfair.backends",
    "ranker": "llmfair.rankers",
    "strategy": "llmfair.rankers.strategies",
    "measure": "llmfair.metrics",
    "aggregate": "llmfair.audits.aggregates",
    "dataset": "llmfair.datasets",
    "engine": "llmfair.retrieval",
    "simulated": "llmfair.backends.simulated",
    "remedy": "llmfair.mitigation.remedies",
}
_PLURALS: dict[str, str] = {"strategy": "strategies", "simulated": "simulated", "remedy": "remedies"}
_GROUPS: dict[What, str] = {kind: f"llmfair.{_PLURALS.get(kind, kind + 's')}" for kind in _PACKAGES}
_found: dict[What, dict[str, Any]] = {kind: {} for kind in _PACKAGES}
_checks: dict[What, Callable[[str, object, Iterable[Any]], None]] = {}
_complete: set[What] = set()


def register(kind: What, name: str) -> Callable[[F], F]:
    """Offers the decorated object under `name`; registering a taken name is a programming error (ValueError)."""

    def offer(thing: F) -> F:
        if _found[kind].get(name, thing) is not thing:
            raise ValueError(f"{kind} {name!r} is registered twice")
        _found[kind][name] = thing
        return thing

    return offer


def check(kind: What) -> Callable[[C], C]:
    """Has what another package offers examined by the decorated function before it is registered.

    It is called with the name, what is offered, and what there is beside it; a ValueError leaves that out.
    """

    def examine(function: C) -> C:
        _checks[kind] = function
        return function

    return examine


def lookup(kind: What, name: str) -> Any:
    """What is registered under `name`. Raises UsageError with the nearest name."""
    if not has(kind, name):
        raise UsageError(
            f"no {kind} '{name}'.{did_you_mean(name, _found[kind])}", f"known: {', '.join(names(kind))}"
        )
    return _found[kind][name]


def has(kind: What, name: str) -> bool:
    """Whether something is registered under `name`; imports no more than it has to in order to tell."""
    # most of what is asked for stands in a module named like it
    if name not in _found[kind] and (module := name.replace("-", "_")) in _modules(kind):
        import_module(f"{_PACKAGES[kind]}.{module}")
    if name not in _found[kind]:
        _discover(kind)
    return name in _found[kind]


def names(kind: What) -> list[str]:
    """All registered names of a kind, sorted."""
    _discover(kind)
    return sorted(_found[kind])


@cache
def _points() -> Any:
    """What packages offer, of every kind: a look takes 13 ms, however little is asked for."""
    return entry_points()


def offered() -> dict[str, str]:
    """All that other packages offer, loaded or not: where in them it is, and the package with its version."""
    points = [point for group in _GROUPS.values() for point in _points().select(group=group)]
    return {
        point.value: "" if point.dist is None else f"{point.dist.name} {point.dist.version}"
        for point in points
    }


def at(where: str) -> Any:
    """What stands at `module:NAME`, or at `module:CLASS.NAME`."""
    module, _, name = where.partition(":")
    return attrgetter(name)(import_module(module))


def later(where: str) -> Any:
    """A member of a class whose values have what stands at `module:NAME`; it is loaded when it is asked for."""
    return property(lambda of: at(where))


@cache
def _modules(kind: What) -> frozenset[str]:
    """Our modules that may register something of this kind. A kind of audit is a folder; files beside it serve all."""
    path = getattr(import_module(_PACKAGES[kind]), "__path__", ())  # one file has none
    return frozenset(module.name for module in pkgutil.iter_modules(path) if module.ispkg or kind != "audit")


def _discover(kind: What) -> None:
    """Imports our modules of this kind and the entry points of other packages, once."""
    if kind in _complete:
        return
    for module in sorted(_modules(kind)):
        import_module(f"{_PACKAGES[kind]}.{module}")
    for point in _points().select(group=_GROUPS[kind]):
        try:
            offered = point.load()
            if kind in _checks:
                _checks[kind](point.name, offered, _found[kind].values())
            register(kind, point.name)(offered)
        except Exception as error:  # another package's fault, which must not cost the user ours
            warn(f"{point.value}, the {kind} '{point.name}' of another package, cannot be loaded: {error}")
    _complete.add(kind)
