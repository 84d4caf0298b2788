"""The commands of benchmarks that simulate audits: their options, their lines, and the seconds they take."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterable, Sequence
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


def print_lines(about: str | None, audits: int, lines: Callable[[int], Iterable[str]]) -> None:
    """The command of a benchmark: its `lines` of so many audits a row, as they come."""
    options = argparse.ArgumentParser(description=about)
    options.add_argument("--audits", type=int, default=audits, help="audits a row")
    given, began = options.parse_args(), time.perf_counter()
    for line in lines(given.audits):
        print(line, flush=True)
    print(f"{time.perf_counter() - began:.0f} s")


def print_rows(
    rows: Sequence[Row],
    audits: Callable[[Row, list[int]], list[Outcome]],
    line: Callable[[Row, Sequence[Outcome]], str],
    header: str,
    about: str | None,
    after: Callable[[Sequence[tuple[Row, list[Outcome]]]], Iterable[str]] = lambda results: (),
) -> None:
    """The command of a benchmark: a line of each row, from what its `audits` of some seeds come to, and lines `after`.

    Audits are shared out over processes.
    """
    options = argparse.ArgumentParser(description=about)
    options.add_argument("--audits", type=int, default=AUDITS, help="audits a row")
    options.add_argument("--only", default="", help="rows whose name has this")
    given, began, results = options.parse_args(), time.perf_counter(), []
    print(f"{given.audits:,} audits a row; shares in %, standard errors at most {50 / given.audits**0.5:.1f}")
    print(header)
    seeds = np.array_split(np.arange(given.audits), ceil(given.audits / AT_ONCE))
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for row in rows:
            if given.only in row.name:
                parts = pool.map(partial(audits, row), [part.tolist() for part in seeds])
                results.append((row, [each for part in parts for each in part]))
                print(line(*results[-1]), flush=True)
    for text in after(results):
        print(text)
    print(f"{time.perf_counter() - began:.0f} s")
