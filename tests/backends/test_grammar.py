"""The grammar that holds a model to whole orders."""

from __future__ import annotations

import pytest

from llmfair.backends.grammar import permutation_grammar
from llmfair.errors import UsageError


def test_every_item_once() -> None:
    assert permutation_grammar(2).splitlines() == [
        "start: p0::0x0",
        'p0::_ : "[1]" rest::set_bit(0) | "[2]" rest::set_bit(1)',
        'rest::_ : "" %if is_ones([0:2])'
        ' | " > [1]" rest::set_bit(0) %if bit_clear(0) | " > [2]" rest::set_bit(1) %if bit_clear(1)',
    ]


@pytest.mark.parametrize("n", [1, 65])
def test_windows_that_no_grammar_holds(n: int) -> None:
    with pytest.raises(UsageError, match="2 to 64 items"):
        permutation_grammar(n)
