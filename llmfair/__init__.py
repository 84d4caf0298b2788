"""Measures whether a ranker built on a large language model treats groups of items alike.

The public names stand in `__init__.pyi`, once: type checkers read it, and so does this file. They are loaded when they
are first used, so that `import llmfair` imports nothing; `audit_NAME`, `plan_NAME` and `calibrate_NAME` are there
for every kind of audit that is registered, `study_NAME` for each of its studies.
"""

from __future__ import annotations

__version__ = "0.1.0"

_OF_KINDS = ("audit_", "plan_", "calibrate_", "study_")


def __getattr__(name: str) -> object:
    if name == "_home_of":
        value: object = _read_names()
    elif name == "__all__":
        value = [*__getattr__("_home_of"), "__version__"]
    else:
        home = globals().get("_home_of") or __getattr__("_home_of")
        where = home.get(name, "llmfair.api" if name.startswith(_OF_KINDS) else None)
        if where is None:
            raise AttributeError(f"module 'llmfair' has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(where), name)
    globals()[name] = value
    return value


def _read_names() -> dict[str, str]:
    """The module of each public name."""
    import re
    from pathlib import Path

    stub = Path(__file__).with_suffix(".pyi").read_text("utf-8")
    homes = {
        name: home for home, name in re.findall(r"^from (llmfair[\w.]+) import (\w+) as \2$", stub, re.M)
    }
    return homes | dict.fromkeys(re.findall(r"^def (\w+)\(", stub, re.M), "llmfair.api")


def __dir__() -> list[str]:
    return sorted({*__getattr__("__all__"), *(name for name in globals() if name.startswith("__"))})
