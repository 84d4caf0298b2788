"""Tables of simulated audits, a row each, whose audits are shared out over processes."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from math import ceil
from typing import Protocol, TypeVar

import numpy as np

AUDITS, AT_ONCE = 300, 25


class Named(Protocol):
    @property
    def name(self) -> str: ...


Row = TypeVar("Row", bound=Named)
Outcome = TypeVar("Outcome")


def print_rows(
    rows: Sequence[Row],
    audits: Callable[[Row, list[int]], list[Outcome]],
    line: Callable[[Row, Sequence[Outcome]], str],
    header: str,
    about: str | None,
) -> None:
    """The command of a benchmark: a line of each row, from what its `audits` of some seeds come to."""
    options = argparse.ArgumentParser(description=about)
    options.add_argument("--audits", type=int, default=AUDITS, help="audits a row")
    options.add_argument("--only", default="", help="rows whose name has this")
    given = options.parse_args()
    began = time.perf_counter()
    print(f"{given.audits:,} audits a row; standard errors at most {50 / given.audits**0.5:.1f}")
    print(header)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for row in rows:
            if given.only in row.name:
                seeds = np.array_split(np.arange(given.audits), ceil(given.audits / AT_ONCE))
                parts = pool.map(partial(audits, row), [[int(seed) for seed in part] for part in seeds])
                print(line(row, [each for part in parts for each in part]), flush=True)
    print(f"{time.perf_counter() - began:.0f} s")
