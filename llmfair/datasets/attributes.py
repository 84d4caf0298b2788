"""Sensitive attributes as attributes.toml declares them: groups, sides, words, backgrounds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, convert

from llmfair.errors import UsageError
from llmfair.io import files
from llmfair.io.files import field_of, wrong
from llmfair.io.trec import declared_groups, nearest
from llmfair.nouns import ANY_GROUP, MOST_LETTERS, RESERVED, Attribute, Side

HINT = "llmfair datasets attributes    prints the built-in ones, to be copied"
MOST_NAMED = 3
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


Shares = Annotated[dict[str, Annotated[float, Meta(gt=0, le=1)]], Meta(min_length=1)]


class _Declared(Struct):
    """A table of the file; `words` are of sides, and of groups. Without sides its groups are compared by pairs."""

    protected: list[str] = []
    unprotected: list[str] = []
    other: list[str] = []
    cross: Annotated[list[str], Meta(min_length=2)] | None = None
    words: dict[str, Annotated[str, Meta(pattern=r"\S")]] = {}
    background: Shares | list[Shares] = []


def read_attributes(path: Path) -> dict[str, Attribute]:
    """The attributes an attributes.toml declares, by name. Raises UsageError."""
    try:
        table = files.toml(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}.", HINT) from None
    except ValueError as error:
        raise UsageError(f"{path}: not valid TOML: {error}", HINT) from None
    attributes = {}
    for name, row in table.items():
        try:
            attributes[name] = _attribute(name, convert(row, _Declared))
        except (ValueError, OverflowError) as error:
            field, what = field_of(error)
            raise wrong(path, 0, f"{name}.{field}".rstrip("."), what, HINT) from None
    return attributes


def _attribute(name: str, of: _Declared) -> Attribute:
    """A table as an attribute. Raises ValueError, as msgspec words it."""
    lacks = [side.value for side in Side if not getattr(of, side)]
    if len(lacks) == 1:
        raise ValueError(f"is missing - at `$.{lacks[0]}`")
    groups = [*of.protected, *of.unprotected, *of.other]
    if twice := [group for group, count in Counter(groups).items() if count > 1]:
        raise ValueError(f"group '{twice[0]}' is named twice - at `$.protected`")
    spoken = [] if lacks else [side for side in Side if side in of.words]
    if len(spoken) == 1:
        raise ValueError(f"is missing - at `$.words.{({*Side} - {*spoken}).pop()}`")
    called = _called(of.protected, of.unprotected), _called(of.unprotected, of.protected)
    words = {side: of.words.get(side, word) for side, word in zip(Side, called, strict=True)}
    attribute = Attribute(
        name,
        protected=tuple(of.protected),
        unprotected=tuple(of.unprotected),
        other=tuple(of.other),
        words={} if lacks else words,
        worded=bool(spoken or lacks),
        compared="pairs" if lacks else "binary",
        group_words={group: word for group, word in of.words.items() if group not in spoken},
        crossed=tuple(of.cross or ()),
        backgrounds=tuple(of.background) if isinstance(of.background, list) else (of.background,),
    )
    names = [*attribute.named] if spoken else []
    badly = len(names) < 3 or set(names[1:]) & RESERVED or not all(map(VARIANT.fullmatch, names))
    if spoken and badly:
        taken = ", ".join(sorted(RESERVED))
        need = f"need two different words of up to {MOST_LETTERS} letters, none of them {taken}"
        raise ValueError(f"{need} - at `$.words`")
    declared = declared_groups(attribute)
    for field, named in (
        ("words", attribute.group_words),
        *(("background", of) for of in attribute.backgrounds),
    ):
        if declared is not None and (other := next((group for group in named if group not in declared), "")):
            raise ValueError(f"'{other}' is not a group of it{nearest(other, declared)} - at `$.{field}`")
    for shares in attribute.backgrounds:
        if not abs(sum(shares.values()) - 1) <= 1e-3:
            raise ValueError(f"the shares sum to {sum(shares.values()):g}, not to 1 - at `$.background`")
    return attribute


def by_pairs(name: str, crossed: tuple[str, ...] = ()) -> Attribute:
    """An attribute without sides, whose groups are those that items have; or those of an intersection."""
    return Attribute(name, protected=(), unprotected=(), words={}, compared="pairs", crossed=crossed)


def _called(groups: Sequence[str], others: Sequence[str]) -> str:
    """What a side is called that has no word: its groups, or whose others they are."""
    if ANY_GROUP in groups:
        return f"non-{others[0]}" if len(others) == 1 else "other"
    if len(groups) > MOST_NAMED:
        return ", ".join([*groups[: MOST_NAMED - 1], "…"])
    *first, last = groups or ("",)
    return f"{', '.join(first)} or {last}" if first else last
