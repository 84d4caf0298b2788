"""Which of the items shown an answer is credited to, where that can be told without asking."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from llmfair.metrics.texts import EMPTY
from llmfair.rankers.reader import Shown
from llmfair.records import Document

MARKER = re.compile(r"\[(\d+)\]")
Attributor = Callable[[str, Shown, Mapping[str, Document]], frozenset[str]]


def held(output: str, shown: Shown, items: Mapping[str, Document]) -> frozenset[str]:
    """The items that hold the output: as their label, or anywhere in their title or text, whatever the case."""
    said = _plain(output)
    if not said or output == EMPTY:
        return frozenset()
    return frozenset(doc_id for doc_id in shown if _holds(items[doc_id], said))


def cited(output: str, shown: Shown, items: Mapping[str, Document]) -> frozenset[str]:
    """The items that the output names as [1], [2] …, by the slots in which they were shown."""
    slots = {int(number) for number in MARKER.findall(output)}
    return frozenset(doc_id for slot, doc_id in enumerate(shown, start=1) if slot in slots)


ATTRIBUTORS: Mapping[str, Attributor] = {"overlap": held, "cited": cited}


def _holds(item: Document, said: str) -> bool:
    label = _plain(" ".join(item.groups.get("label", ())))
    if label:
        return said == label
    return said in _plain(f"{item.title} {item.text}")


def _plain(text: str | Sequence[str]) -> str:
    return " ".join(str(text).casefold().split())
