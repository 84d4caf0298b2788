"""Measures whether a ranker built on a large language model treats groups of items alike.

The public names stand in `__init__.pyi`, once: type checkers read it, and so does this file. They are loaded when they
are first used, so that `import llmfair` costs next to nothing; `audit_NAME`, `plan_NAME` and `calibrate_NAME` are there
for every kind of audit that is registered, `study_NAME` for each of its studies.
"""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

_stub = Path(__file__).with_suffix(".pyi").read_text("utf-8")
_HOME_OF = {
    name: home for home, name in re.findall(r"^from (llmfair[\w.]+) import (\w+) as \2$", _stub, re.M)
}
_HOME_OF |= dict.fromkeys(re.findall(r"^def (\w+)\(", _stub, re.M), "llmfair.api")
_OF_KINDS = ("audit_", "plan_", "calibrate_", "study_")
__all__ = [*_HOME_OF, "__version__"]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name, "llmfair.api" if name.startswith(_OF_KINDS) else None)
    if home is None:
        raise AttributeError(f"module 'llmfair' has no attribute {name!r}")
    found = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
