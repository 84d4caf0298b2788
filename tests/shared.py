"""The reference figures and real data that stand beside the repository; tests that need them skip without."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(__file__).resolve().parents[1].parent / "shared"


def vectors(name: str) -> dict[str, Any]:
    """The reference figures `vectors/NAME.json`; skips the test when they are absent."""
    path = SHARED / "vectors" / f"{name.removesuffix('.json')}.json"
    if not path.is_file():
        pytest.skip(f"no reference figures at {path}")
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def realdata(name: str) -> Path:
    """A file or folder of `realdata`; skips the test when it is absent."""
    path = SHARED / "realdata" / name
    if not path.exists():
        pytest.skip(f"no real data at {path}")
    return path


def mockllm(module: str) -> Any:
    """A module of the mock server; skips the test when it is absent."""
    folder = SHARED / "mockllm"
    if not folder.is_dir():
        pytest.skip(f"no mock server at {folder}")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        return importlib.import_module(f"mockllm.{module}")
