"""Code run in an interpreter of its own, which has imported nothing yet."""

from __future__ import annotations

import subprocess
import sys


def loaded_by(code: str) -> set[str]:
    """Top-level modules in memory after `code` ran in a fresh interpreter."""
    probe = f"{code}\nimport sys\nprint('\\n' + ' '.join(sorted({{m.split('.')[0] for m in sys.modules}})))"
    run = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return set(run.stdout.splitlines()[-1].split())
