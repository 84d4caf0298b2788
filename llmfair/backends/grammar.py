"""Grammars of the answers that may be given, for engines that can hold a model to them (`--constrain`)."""

from __future__ import annotations

from collections.abc import Iterator

from llmfair.errors import UsageError

MOST_ITEMS = 64
"""The bits of an llguidance parameter: one for each item already named."""


def permutation_grammar(n: int, best: int | None = None) -> str:
    """An llguidance grammar of exactly the orders `[2] > [1] > …` of 1..n: each item once, none left out.

    With `best` of exactly so many of them.

    A parameter of the rules holds a bit for each item already named; a regular expression could fix the form only.
    Raises UsageError for n outside 2..64.
    """
    if not 2 <= n <= MOST_ITEMS:
        raise UsageError(
            f"--constrain takes windows of 2 to {MOST_ITEMS} items, not {n}.",
            f"choose --window {MOST_ITEMS} or less",
        )
    first = " | ".join(f'"[{item + 1}]" rest::set_bit({item})' for item in range(n))
    return (
        "\n".join(["start: p0::0x0", f"p0::_ : {first}", f"rest::_ : {' | '.join(_rest(n, best or n))}"])
        + "\n"
    )


def _rest(n: int, best: int) -> Iterator[str]:
    whole = f"is_ones([0:{n}])" if best == n else f"bit_count_eq([0:{n}], {best})"
    more = "bit_clear({0})" if best == n else f"and(bit_clear({{0}}), bit_count_lt([0:{n}], {best}))"
    yield f'"" %if {whole}'
    for item in range(n):
        yield f'" > [{item + 1}]" rest::set_bit({item}) %if {more.format(item)}'
