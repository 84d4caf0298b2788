"""Files of two machines held against each other: numbers to twelve digits, all else to the letter.

Another Python, another numpy and a processor with narrower vectors add up in another order, and differ in the last
digit or two.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from itertools import starmap

from llmfair.audits.design import versions

DIGITS = 12
COUNTS = ("python", "platform", "numpy", "scipy")
"""What of the versions can change a last digit."""
_FRACTION = re.compile(r"-?\d+(?:\.\d+)?[eE][+-]?\d+|-?\d+\.\d+")


def agree(first: str, second: str) -> bool:
    """Whether two texts differ in nothing but fractions, and these beyond their twelfth digit or place."""
    if _FRACTION.split(first) != _FRACTION.split(second):
        return False
    pairs = zip(_FRACTION.findall(first), _FRACTION.findall(second), strict=True)
    close = 10.0**-DIGITS
    return all(
        starmap(lambda a, b: a == b or math.isclose(float(a), float(b), rel_tol=close, abs_tol=close), pairs)
    )


def elsewhere(made_with: Mapping[str, str]) -> str:
    """Where a file was made and where it is checked, in words."""
    here = versions()
    there = [(name, made_with[name]) for name in COUNTS if made_with.get(name, here[name]) != here[name]]
    if not there:
        return "on another processor"
    told = "; ".join(f"{name} {before} there, {here[name]} here" for name, before in there)
    return f"elsewhere ({told})"
