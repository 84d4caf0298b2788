"""All benchmarks of estimators and verdicts on arrays: `python -m benchmarks`, at least 300 audits a row.

Each is a command of its own, `python -m benchmarks.NAME`; as many run at once as there are cores, each printed when it
is done, and its seconds of CPU. A name or several after the command: these alone.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks.commands import Spent, spent

NAMES = (
    "preference", "groups", "strata", "list_plan", "refinement", "means", "selection", "sources", "mitigated",
    "repaired", "coverage", "compare", "pair_plan", "kept", "wrong_grades",
)  # fmt: skip
"""The longest first, so that the last one is short."""


def measured(name: str) -> Spent:
    # one thread a process: those of BLAS wait for each other where matrices are narrow
    one_thread = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
    command = [sys.executable, "-m", f"benchmarks.{name}"]
    return spent(command, stdout=subprocess.PIPE, env={**os.environ, **one_thread})


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("names", nargs="*", default=NAMES, metavar="NAME", help=", ".join(NAMES))
    names, began, total = options.parse_args().names, time.perf_counter(), 0.0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, each in zip(names, pool.map(measured, names), strict=True):
            print(f"## benchmarks.{name}, {each.cpu:.0f} s of CPU\n\n{each.stdout}", flush=True)
            total += each.cpu
    print(f"{total:.0f} s of CPU in all, {time.perf_counter() - began:.0f} s by the clock")


if __name__ == "__main__":
    main()
