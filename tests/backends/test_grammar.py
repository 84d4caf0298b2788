"""The grammar that holds a model to whole orders."""

from __future__ import annotations

import pytest

from llmfair.backends.local import permutation_grammar
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


def test_the_best_few_and_no_others() -> None:
    assert permutation_grammar(3, 2).splitlines()[2] == (
        'rest::_ : "" %if bit_count_eq([0:3], 2)'
        ' | " > [1]" rest::set_bit(0) %if and(bit_clear(0), bit_count_lt([0:3], 2))'
        ' | " > [2]" rest::set_bit(1) %if and(bit_clear(1), bit_count_lt([0:3], 2))'
        ' | " > [3]" rest::set_bit(2) %if and(bit_clear(2), bit_count_lt([0:3], 2))'
    )
