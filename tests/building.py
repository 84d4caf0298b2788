"""Builds what is published, as pip asks for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def built(stratum: str, checkout: Path, folder: Path) -> Path:
    """A `wheel` or `sdist` of a checkout, in the folder; skips where there is nothing to build with."""
    pytest.importorskip("hatchling", reason="building needs hatchling")
    code = f"import sys, hatchling.build; print(hatchling.build.build_{stratum}(sys.argv[1]))"
    made = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=checkout, check=True, capture_output=True, text=True
    )
    return folder / made.stdout.split()[-1]
