"""The table: every way of a server to be wrong, by its name, and how often it is."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.server.answers import bodies, completions
from tests.fuzz.server.batches import batches
from tests.fuzz.server.refusals import statuses
from tests.fuzz.server.wires import wires

MODES = {mode.name: mode for mode in (*wires(), *statuses(), *bodies(), *completions(), *batches())}
FREQUENCIES: dict[str, Callable[[int], bool]] = {
    "always": lambda number: True,
    "every third": lambda number: number % 3 == 0,
    "the first five": lambda number: number <= 5,
    "from the 20th on": lambda number: number >= 20,
}
