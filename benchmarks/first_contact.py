"""How long the first contact takes: `python -m benchmarks.first_contact`, run from the repository's root.

Prints the median of five runs after one warm-up, beside the same interpreter doing nothing.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile

from benchmarks.commands import median_seconds


def main() -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled, too
    llmfair = [sys.executable, "-m", "llmfair"]
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "llmfair --help": [*llmfair, "--help"],
        "llmfair listwise --fresh (864 simulated answers)": [*llmfair, "listwise", "--fresh"],
        "llmfair listwise (again: all from the journal)": [*llmfair, "listwise"],
    }
    print(f"Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    with tempfile.TemporaryDirectory() as folder:
        nothing = None
        for name, command in commands.items():
            seconds = median_seconds(command, cwd=folder, stderr=subprocess.DEVNULL)
            nothing = nothing or seconds
            print(f"{name:52} {seconds:6.2f} s  {seconds / nothing:6.1f} × python -c pass")


if __name__ == "__main__":
    main()
