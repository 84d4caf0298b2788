"""A flag that takes one value is given one: of two, one would be asked for and not be had."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from llmfair.errors import UsageError


def with_single_values(command: Any) -> Any:
    """The command and all below it, refusing two values of a flag that takes one."""
    make = command.make_parser

    def make_parser(ctx: Any) -> Any:
        parser = make(ctx)
        parse = parser.parse_args

        def parse_args(args: list[str]) -> Any:
            words = tuple(args)  # parsing takes them away
            options, rest, order = parse(args=args)
            if not ctx.resilient_parsing:  # as it is while a line is completed
                for item in dict.fromkeys(order):
                    if item.param_type_name == "option" and not item.multiple and order.count(item) > 1:
                        _check(item, words)
            return options, rest, order

        parser.parse_args = parse_args
        return parser

    command.make_parser = make_parser
    for one in getattr(command, "commands", {}).values():
        with_single_values(one)
    return command


def _check(item: Any, words: Sequence[str]) -> None:
    """Raises UsageError for values that differ."""
    given = list(dict.fromkeys(_switched(item, words) if item.is_flag else _values(item, words)))
    if len(given) > 1:
        flag = max(item.opts, key=len)
        raise UsageError(
            f"{flag} takes one value, but is given {' and '.join(given)}.",
            "give it once; for several values, run the command once for each",
        )


def _switched(item: Any, words: Sequence[str]) -> Iterator[str]:
    """The ways in which a switch is set: on, off."""
    for names in (item.opts, item.secondary_opts):
        yield from [name for name in names if name in words][:1]


def _values(item: Any, words: Sequence[str]) -> Iterator[str]:
    """The values of a flag: `--flag X`, `--flag=X`, `-fX`."""
    for place, word in enumerate(words):
        for name in item.opts:
            if word == name:
                yield from words[place + 1 : place + 2]
            elif name.startswith("--"):
                if word.startswith(f"{name}="):
                    yield word.partition("=")[2]
            elif word.startswith(name) and not word.startswith("--"):
                yield word.removeprefix(name)
