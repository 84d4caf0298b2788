"""Code run in an interpreter of its own, which has imported nothing yet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def printed_by(code: str, *arguments: str | Path, **environment: str) -> str:
    """What it prints; it must end well and say nothing on stderr."""
    run = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
    )
    assert (run.returncode, run.stderr) == (0, ""), run.stderr
    return run.stdout


def loaded_by(code: str) -> set[str]:
    """Modules in memory after `code` ran, the packages that hold them among them."""
    probe = f"{code}\nimport sys\nprint('\\n' + ' '.join(sys.modules))"
    return set(printed_by(probe).splitlines()[-1].split())
