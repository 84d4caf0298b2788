"""Names that run folders of earlier versions hold, and flags that these versions took, beside what they are called now.

An old folder is read under the names of today, and the command that made it goes on with its answers; what it writes
has the names of today.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

FLAGS: Mapping[str, str] = {
    "--variants": "--conditions",
    "--kind": "--conditions",
    "--control": "--repeat",
    "--no-control": "--no-repeat",
    "--experts": "--relevant",
    "--min-experts": "--min-relevant",
    "--planted": "--injected",
}
SETTINGS: Mapping[str, str] = {
    **{before[2:].replace("-", "_"): now[2:].replace("-", "_") for before, now in FLAGS.items()},
    "arms": "conditions",
    "kinds": "conditions",
}
FIELDS: Mapping[str, str] = {
    "variant": "condition",
    "kind": "condition",
    "arms": "conditions",
    "kinds": "conditions",
    "doubts": "warnings",
    "unreadable": "unparseable",
    "unreadable_by_order": "unparseable_by_order",
}
CONDITIONS: Mapping[str, str] = {"control": "repeat", "input": "initial"}


def flag(word: str) -> str:
    """A word of a command line: a flag under the name that it has today, anything else as it is."""
    name, equals, value = word.partition("=")
    return f"{FLAGS.get(name, name)}{equals}{value}"


def condition(name: str) -> str:
    """A condition's name, two with " vs " between them, or a run file's: `control.o0.r0`."""
    both = [part.partition(".") for part in name.split(" vs ")]
    return " vs ".join(f"{CONDITIONS.get(first, first)}{dot}{rest}" for first, dot, rest in both)


SEVERAL = ("strategy", "base_url")
"""Flags that named one thing, or none, and name several now."""


def settings(known: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by the names of today."""
    return {SETTINGS.get(name, name): value for name, value in known.items()}


def flags(known: Mapping[str, Any]) -> dict[str, Any]:
    """Flags of a manifest, or of a call in Python, by the names of today; None is the default of those in SEVERAL."""
    return {
        name: [value] if name in SEVERAL and isinstance(value, str) else value
        for name, value in settings(known).items()
        if not (name in SEVERAL and value is None)
    }


def manifest(document: Any) -> Any:
    """A manifest as it would be written today; anything else as it is."""
    if not isinstance(document, dict):
        return document
    told = {FIELDS.get(key, key): value for key, value in document.items()}
    renamed = {"settings": settings, "flags": flags}
    return told | {key: of(told[key]) for key, of in renamed.items() if isinstance(told.get(key), dict)}


def is_former(document: Any) -> bool:
    """Whether these are results under the names of an earlier version."""
    design = document.get("design") if isinstance(document, dict) else None
    return isinstance(design, dict) and "arms" in design


def results(document: Any) -> Any:
    """Results as they would be written today; anything else as it is."""
    return _renamed(document) if is_former(document) else document


def _renamed(value: Any) -> Any:
    if isinstance(value, list):
        return [_renamed(one) for one in value]
    if not isinstance(value, dict):
        return value
    told = {FIELDS.get(key, condition(key)): _renamed(one) for key, one in value.items()}
    return told | {key: condition(told[key]) for key in ("condition",) if isinstance(told.get(key), str)}


def rows(read: Iterable[dict[str, str]]) -> Iterator[dict[str, str]]:
    """Rows of a CSV file by the names of today."""
    for row in read:
        if "variant" in row or "kind" in row:
            row = {FIELDS.get(name, name): value for name, value in row.items()}
            row["condition"] = condition(row["condition"] or "")
        yield row
