"""Sets the wall clock of a Python process back, where this folder is on its path.

`CLOCK_SET_BACK=0:3600,0.5:315360000` says by how many seconds, from how many seconds after its start on.
"""

from __future__ import annotations

import datetime
import os
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path

_STEPS = [tuple(map(float, step.split(":"))) for step in os.environ["CLOCK_SET_BACK"].split(",")]
_BEGAN, _NOW = time.monotonic(), time.time


def _now() -> float:
    passed = time.monotonic() - _BEGAN
    return _NOW() - [back for since, back in _STEPS if since <= passed][-1]


class _DateTime(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> _DateTime:
        return cls.fromtimestamp(_now(), tz)


time.time, time.time_ns = _now, lambda: int(_now() * 1e9)
datetime.datetime = _DateTime  # type: ignore[misc]

sys.path.remove(str(Path(__file__).parent))  # another of this name may follow on the path
del sys.modules["sitecustomize"]
with suppress(ImportError):
    import_module("sitecustomize")
