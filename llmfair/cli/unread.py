"""Values that Typer need not convert: for the first it imports pydantic (0.1 s), for each it makes an adapter (1 ms).

A process that completes a line looks at none. Any other leaves defaults as they are, which are of their types.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partialmethod
from typing import Any

import typer
from typer.core import TyperArgument, TyperOption

KINDS = (TyperOption, TyperArgument)


def leave_values_unread() -> None:
    for kind in KINDS:
        kind.process_value = lambda self, ctx, value: value  # type: ignore[method-assign]


def leave_defaults_unread() -> None:
    for kind in KINDS:
        kind.process_value = partialmethod(_unless_default, kind.process_value)  # type: ignore[assignment]


def _unless_default(self: Any, convert: Callable[..., Any], ctx: typer.Context, value: Any) -> Any:
    source = ctx.get_parameter_source(self.name)
    if self.required or source is None or source.name != "DEFAULT":
        return convert(self, ctx, value)
    return value if self.callback is None else self.callback(ctx, self, value)
