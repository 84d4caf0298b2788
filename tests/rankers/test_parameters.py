"""Parameters of rankers: defaults, spellings, and one sentence for each that cannot be read."""

from __future__ import annotations

import pytest

from llmfair.errors import UsageError
from llmfair.rankers.parameters import Declared, number, read_parameters, spelled, whole

DECLARED: Declared = {"k": whole(400, 2000), "p": number(0.3, 0, 1), "adjust": ("closest", "none")}


def test_what_is_written_stands_over_the_defaults() -> None:
    assert read_parameters("x", "", DECLARED) == {"k": 400, "p": 0.3, "adjust": "closest"}
    found = read_parameters("x", "p=.50, k=7,adjust=none", DECLARED)
    assert found == {"k": 7, "p": 0.5, "adjust": "none"} and spelled(found) == "k=7 p=0.5 adjust=none"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("q=1", "x has no parameter 'q'."),
        ("adjsut=none", "Did you mean 'adjust'?"),
        ("p", "x: 'p' is not key=value."),
        ("p=", "x: 'p=' is not key=value."),
        ("p=0.1,", "x: '' is not key=value."),
        ("p=1.2", "x: p cannot be '1.2'."),
        ("p=nan", "x: p cannot be 'nan'."),
        ("p=x", "x: p cannot be 'x'."),
        ("k=0", "x: k cannot be '0'."),
        ("k=1e2", "x: k cannot be '1e2'."),
        ("k=2001", "x: k cannot be '2001'."),
        ("k=9999999999999", "x: k cannot be"),
        ("adjust=nearest", "x: adjust cannot be 'nearest'."),
    ],
)
def test_what_cannot_be_read_is_said(text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        read_parameters("x", text, DECLARED)
    assert said in error.value.message and error.value.hint
