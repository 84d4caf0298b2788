"""Which groups documents belong to, and the distribution over groups that a ranking should have.

Notation: m(d) = membership row of document d over the cells, that is an attribute's groups and @UNKNOWN, or the
pairs of two attributes (`over=A*B`); t = target, normalised to sum 1. Sources: the code of TREC Fair Ranking
2021 and 2022 (their targets); [paper C: Chen & Fang 2025, FAIR-QR] (empirical target, unknown as a group).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from llmfair.errors import UsageError, did_you_mean
from llmfair.io import files
from llmfair.io.trec import UNKNOWN as UNKNOWN
from llmfair.metrics.base import Flags, Floats, Free, Groups, Judged, Undefined
from llmfair.nouns import ANY_GROUP, Attribute

TARGETS = ("empirical", "trec2021", "trec2022", "uniform")


def _target(text: str) -> str:
    if text not in TARGETS and not re.search(r"[./]", text):  # else a mistyped word would be a missing file
        raise ValueError(text)
    return text


def _over(text: str) -> str:
    names = text.split("*")
    if not all(names) or len(names) > 2 or len(set(names)) < len(names):
        raise ValueError(text)
    return text


SPREAD = {
    "unknown": ("keep", "drop"),
    "over": Free(None, _over, "an attribute, or two different ones as A*B"),
    "membership": ("split", "count"),
    "unlisted": ("drop", "unknown"),
}
SPREAD_TO_TARGET: dict[str, Any] = {
    "target": Free("empirical", _target, f"{', '.join(TARGETS)} or a file as in ./shares.json", TARGETS),
    **SPREAD,
}
IMPLIES = {
    ("target", "trec2021"): ("unknown", "drop"),
    ("target", "trec2022"): ("unknown", "keep"),
    ("target", "uniform"): ("unknown", "drop"),
}


@dataclass(frozen=True, slots=True)
class Cells:
    """What mass is spread over: one axis per attribute, its groups, then @UNKNOWN, the group of documents without a
    known one; `kept` has the axes' shape."""

    groups: Groups
    attributes: tuple[Attribute, ...]
    axes: tuple[tuple[str, ...], ...]
    kept: Flags

    @property
    def names(self) -> list[str]:
        """Names of the kept cells, such as `female` or `Asia*female`."""
        named = map("*".join, product(*self.axes))
        return [name for name, kept in zip(named, self.kept.ravel(), strict=True) if kept]

    def rows(self, doc_ids: Sequence[str], membership: str, unlisted: str = "drop") -> Floats:
        """m(d) of every document: 1/g in each of its g groups (`split`) or 1 (`count`); shape (n, *axes).

        An unlisted document has no mass, or is @UNKNOWN; pairs are the outer product of two rows.
        """
        tables = []
        for attribute, axis in zip(self.attributes, self.axes, strict=True):
            column = {name: place for place, name in enumerate(axis)}
            tables.append(table := np.zeros((len(doc_ids), len(axis))))
            for row, doc_id in zip(table, doc_ids, strict=True):
                document = self.groups.documents.get(doc_id)
                if document is None and unlisted == "drop":
                    continue
                names = document.groups.get(attribute.name, ()) if document else ()
                columns = [column[name] for name in names if name != UNKNOWN] or [column[UNKNOWN]]
                row[columns] = 1 / len(columns) if membership == "split" else 1.0
        first, *second = tables
        return np.einsum("na,nb->nab", first, second[0]) if second else first


def cells(groups: Groups, over: str | None = None, unknown: str = "keep") -> Cells:
    """The cells of the audit's attribute, of another, or of two. Raises UsageError for an unknown name.

    Groups are the declared ones; where a side is open (`*`), those of the background that has every group of
    the documents, else the groups of the documents.
    """
    attributes, axes = list[Attribute](), list[tuple[str, ...]]()
    for name in (over or groups.attribute).split("*"):
        if name not in groups.attributes:
            raise UsageError(
                f"the data have no attribute '{name}' to measure over.{did_you_mean(name, groups.attributes)}",
                f"known: {', '.join(groups.attributes) or 'none'}",
            )
        attribute = groups.attributes[name]
        declared = (*attribute.protected, *attribute.unprotected, *attribute.other)
        if ANY_GROUP in declared:
            declared = tuple(_background(groups, attribute) or ())
        attributes.append(attribute)
        names = dict.fromkeys((*declared, *sorted(groups.of_documents[attribute.name])))
        axes.append((*names, UNKNOWN))
    held = np.ones([len(axis) for axis in axes], dtype=bool)
    held[(-1,) * held.ndim] = unknown == "keep"
    return Cells(groups, tuple(attributes), tuple(axes), held)


def _background(groups: Groups, attribute: Attribute) -> Mapping[str, float] | None:
    """The first background that has every group of the documents: one per way of naming the groups."""
    names = groups.of_documents[attribute.name]
    return next((shares for shares in attribute.backgrounds if names <= shares.keys()), None)


def target_shares(judged: Judged, spread: Cells, target: str, membership: str) -> Floats | Undefined:
    """t over the kept cells, summing to 1; shape (kept cells,).

    empirical: mean m(d) of the listed relevant documents [paper C]; trec2021, trec2022: that, averaged with the
    background; uniform: equal over cells in which all is known; a path: JSON object of shares by name. `no_target`
    without a listed relevant document where one is needed, and without mass. Raises UsageError.
    """
    if target == "uniform":
        shares = np.zeros(spread.kept.shape)
        shares[(slice(None, -1),) * shares.ndim] = 1
    elif target not in TARGETS:
        named = [*map("*".join, product(*spread.axes))]
        stated = read_shares(target)
        for name in stated:
            if name not in named:
                raise UsageError(
                    f"{target}: '{name}' is no group of {'*'.join(a.name for a in spread.attributes)}."
                    f"{did_you_mean(name, named)}",
                    f"known: {', '.join(named)}",
                )
        shares = np.array([stated.get(name, 0.0) for name in named]).reshape(spread.kept.shape)
    else:
        relevant = spread.groups.relevant.get(judged.query_id) or {
            doc_id: 1 for doc_id, grade in judged.candidates.relevance.items() if grade >= 1
        }
        shares = np.tensordot([*relevant.values()], spread.rows([*relevant], membership), axes=1)
        if target != "empirical":
            shares = half_background(shares, _backgrounds(spread))
    shares = shares[spread.kept]
    return shares / shares.sum() if shares.any() else Undefined("no_target")


def half_background(relevant: Floats, backgrounds: Sequence[Floats]) -> Floats:
    """What is relevant averaged half and half with the world at large [TREC Fair Ranking 2021, 2022].

    `relevant` has an axis per attribute, the unknown last: shape (groups + 1, …); `backgrounds` are of shape
    (groups,). Each block (both known, only A, only B) keeps its mass, and its background is the outer product of
    those of the known attributes. Where nothing is known nothing changes: the rule of 2021 drops that cell.
    """
    target = relevant.copy()
    for mask in product((True, False), repeat=relevant.ndim):
        if any(mask):
            block = tuple(slice(None, -1) if here else slice(-1, None) for here in mask)
            priors = [prior if here else np.ones(1) for prior, here in zip(backgrounds, mask, strict=True)]
            prior = reduce(np.multiply.outer, priors)
            target[block] = (relevant[block] + relevant[block].sum() * prior / prior.sum()) / 2
    return target


def _backgrounds(spread: Cells) -> list[Floats]:
    """The background over the groups of each axis, without @UNKNOWN. Raises UsageError when there is none."""
    backgrounds = []
    for attribute, axis in zip(spread.attributes, spread.axes, strict=True):
        background = _background(spread.groups, attribute)
        if background is None:
            raise UsageError(
                f"no background of {attribute.name} has all groups of the data, as targets of TREC need one: "
                f"{', '.join(sorted(spread.groups.of_documents[attribute.name]))}.",
                f"add [{attribute.name}.background] to attributes.toml, or write target=empirical",
            )
        backgrounds.append(np.array([background.get(name, 0.0) for name in axis[:-1]]))
    return backgrounds


def read_shares(path: str) -> Mapping[str, float]:
    """The shares of a file by name, as they stand there. Raises UsageError."""
    hint = 'write { "group": share, … } with shares from 0 that are not all 0'
    shares: dict[str, float] = files.read_document(
        Path(path), dict[str, Annotated[float, Meta(ge=0, lt=1e300)]], hint
    )
    if not any(shares.values()):
        raise UsageError(f"{path}: no group has a share.", hint)
    return shares
