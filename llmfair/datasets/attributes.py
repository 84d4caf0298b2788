"""Sensitive attributes as attributes.toml declares them: groups, sides, words, backgrounds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmfair.errors import UsageError
from llmfair.io import files
from llmfair.io.trec import declared_groups, nearest
from llmfair.nouns import ANY_GROUP, Attribute, Side

HINT = "llmfair datasets attributes    prints the built-in ones, to be copied"
# Names of prompt variants name files and rows; these are taken, and a file's name has 255 bytes at most.
RESERVED = {"neutral", "repeat", "initial"}
MOST_LETTERS = 40
VARIANT = re.compile(rf"\w[\w-]{{,{MOST_LETTERS - 1}}}")


def data_folder() -> Path:
    """The data shipped with the package: inside the wheel, or beside the package in a checkout."""
    inside = Path(__file__).parent.parent / "data"
    return inside if inside.is_dir() else inside.parent.parent / "data"


def shipped_attributes() -> Path:
    """The file of the attributes that are built in."""
    return data_folder() / "attributes.toml"


def shipped_backgrounds(name: str) -> tuple[Mapping[str, float], ...]:
    """Those of the attribute of this name that is built in; none where there is no such one."""
    shipped = read_attributes(shipped_attributes()).get(name)
    return shipped.backgrounds if shipped else ()


def read_attributes(path: Path) -> dict[str, Attribute]:
    """The attributes an attributes.toml declares, by name. Raises UsageError."""
    try:
        table = files.toml(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}.", HINT) from None
    except ValueError as error:
        raise UsageError(f"{path}: not valid TOML: {error}", HINT) from None
    return {name: _attribute(path, name, row) for name, row in table.items()}


def _attribute(path: Path, name: str, row: Any) -> Attribute:
    def fail(key: str, what: str) -> UsageError:
        return UsageError(f"{path}: {name}.{key}: {what}", HINT)

    if not isinstance(row, dict):
        raise UsageError(f"{path}: {name}: is not a table", HINT)
    lists: dict[str, tuple[str, ...]] = {}
    for key in ("protected", "unprotected", "other"):
        value = row.get(key, [] if key == "other" else None)
        if not isinstance(value, list) or not all(isinstance(group, str) for group in value):
            raise fail(key, "needs a list of group names")
        lists[key] = tuple(value)
    words = row.get("words", {side.value: _called(lists[side.value], side) for side in Side})
    if not isinstance(words, dict) or not all(isinstance(words.get(side.value), str) for side in Side):
        raise fail("words", 'needs { protected = "…", unprotected = "…" }')
    taken = [group for groups in lists.values() for group in groups]
    if len(set(taken)) < len(taken):
        twice = next(group for group in taken if taken.count(group) > 1)
        raise fail("protected", f"group '{twice}' is named twice")
    attribute = Attribute(
        name,
        protected=lists["protected"],
        unprotected=lists["unprotected"],
        other=lists["other"],
        words={side: words[side.value] for side in Side},
        worded="words" in row,
    )
    names = list(attribute.variants)
    badly = len(names) < 3 or set(names[1:]) & RESERVED or not all(VARIANT.fullmatch(name) for name in names)
    if attribute.worded and badly:
        raise fail(
            "words",
            f"need two different words of up to {MOST_LETTERS} letters, none of them {', '.join(sorted(RESERVED))}",
        )
    try:
        backgrounds = _backgrounds(row.get("background", []), declared_groups(attribute))
    except ValueError as error:
        raise fail("background", str(error)) from None
    return replace(attribute, backgrounds=backgrounds)


def _called(groups: Sequence[str], side: Side) -> str:
    """What a side is called that has no word: after its group, if that is one."""
    return groups[0] if len(groups) == 1 and groups[0] != ANY_GROUP else side.value


def _backgrounds(value: Any, declared: set[str] | None) -> tuple[dict[str, float], ...]:
    """One table of shares, or a list of them. Raises ValueError."""
    backgrounds = value if isinstance(value, list) else [value]
    for shares in backgrounds:
        if not isinstance(shares, dict) or not shares:
            raise ValueError("needs { group = share, … }")
        for group, share in shares.items():
            if declared is not None and group not in declared:
                raise ValueError(f"'{group}' is not a group of it{nearest(group, declared)}")
            if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
                raise ValueError(f"the share of '{group}' is not a number above 0 and up to 1")
        if not abs(sum(shares.values()) - 1) <= 1e-3:
            raise ValueError(f"the shares sum to {sum(shares.values()):g}, not to 1")
    return tuple(backgrounds)
