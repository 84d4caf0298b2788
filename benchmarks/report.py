"""What a report costs: `python -m benchmarks.report`, run from the repository's root.

Seconds of the first contact with and without its report; seconds and size of the report of a run of the paper's size
(44 queries × 200 items × 3 prompts, window 5, step 1); seconds for 50 runs on one page. Medians after one warm-up.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.commands import median_seconds
from tests.folders import balanced, write_folder

LLMFAIR = [sys.executable, "-m", "llmfair"]
RUNS = 50


def seconds(*arguments: str, times: int = 3) -> float:
    return median_seconds([*LLMFAIR, *arguments], times, stderr=subprocess.DEVNULL)


def line(what: str, value: str) -> None:
    print(f"{what:64} {value}", flush=True)


def main() -> None:
    print(
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    )
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        line("llmfair listwise --no-report", f"{seconds('listwise', '--no-report'):.2f} s")
        line("llmfair listwise", f"{seconds('listwise'):.2f} s")
        for task in ("listwise", "pairwise"):
            write_folder(Path("paper"), balanced(44, 100, 100))
            preset = ["--preset", "paper"] if task == "listwise" else []
            asked = [task, "-d", "paper", *preset, "-o", task, "--no-report"]
            subprocess.run([*LLMFAIR, *asked], check=True, capture_output=True)
            size = (Path(task) / "journal.jsonl").stat().st_size / 1e6
            took = seconds("report", task, times=1)
            kilobytes = (Path(task) / "report.html").stat().st_size / 1e3
            line(
                f"llmfair report, {task} of the paper's size, journal {size:.0f} MB",
                f"{took:.2f} s, {kilobytes:.0f} kB",
            )
        for number in range(RUNS):
            asked = [
                "listwise",
                "-m",
                f"fake:biased,listwise={number / RUNS}",
                "--passes",
                "1",
                "--no-report",
            ]
            subprocess.run([*LLMFAIR, *asked, "-o", f"many/{number}"], check=True, capture_output=True)
        runs = [f"many/{number}" for number in range(RUNS)]
        line(f"llmfair report, {RUNS} runs", f"{seconds('report', *runs, times=1):.2f} s")
        line("", f"{Path('report.html').stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
