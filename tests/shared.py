"""The reference figures and real data that stand beside the repository.

Without that folder the tests that need it skip; a file or folder of it that a test names and that is not there fails.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(__file__).resolve().parents[1].parent / "shared"


def shared(name: str) -> Path:
    """A file or folder of the shared one."""
    if not SHARED.is_dir():
        pytest.skip(f"no reference figures at {SHARED}")
    path = SHARED / name
    if not path.exists():
        pytest.fail(f"{path} is gone: was it given another name?", pytrace=False)
    return path


def vectors(name: str) -> dict[str, Any]:
    """The reference figures `vectors/NAME.json`."""
    path = shared(f"vectors/{name.removesuffix('.json')}.json")
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def realdata(name: str) -> Path:
    """A file or folder of `realdata`."""
    return shared(f"realdata/{name}")


def mockllm(module: str) -> Any:
    """A module of the mock server."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(shared("mockllm")))
        return importlib.import_module(f"mockllm.{module}")
