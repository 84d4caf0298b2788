"""What a command takes: seconds by the clock and of CPU, its peak of memory; and what a function does."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Spent:
    """When a command began and ended, by the machine's monotonic clock, its seconds of CPU, MB at its peak; its stdout.

    `stdout` is empty unless it was piped.
    """

    began: float
    ended: float
    cpu: float
    peak: float
    stdout: str = ""

    @property
    def wall(self) -> float:
        return self.ended - self.began


def spent(command: Sequence[str], **how: Any) -> Spent:
    """Runs a command, `how` as `subprocess.Popen` takes it. Raises CalledProcessError where it fails.

    What this process holds is the least peak that can be seen.
    """
    began = time.monotonic()
    with subprocess.Popen(command, **{"stdout": subprocess.DEVNULL, "text": True, **how}) as process:
        stdout = process.stdout.read() if process.stdout else ""
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)  # waited for already
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Spent(began, time.monotonic(), used.ru_utime + used.ru_stime, used.ru_maxrss / 1000, stdout)


def median_seconds(command: Sequence[str], runs: int = 5, **how: Any) -> float:
    """Median of the seconds by the clock, after one run that is not counted."""
    return statistics.median([spent(command, **how).wall for _ in range(runs + 1)][1:])


def best(work: Callable[[], object]) -> float:
    """The least of three times by the clock, in seconds."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)
