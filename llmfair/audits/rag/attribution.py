"""Which of the items shown an answer is credited to, where that can be told without asking."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from llmfair.metrics.texts import EMPTY
from llmfair.rankers.reader import Shown
from llmfair.records import Document

MARKER = r"\[\d+(?:\s*,\s*\d+)*\]"
"""What names items in an output: [2], or several as [1, 3]."""
_MARKERS = re.compile(rf"\s*{MARKER}(?:[\s,;]*{MARKER})*")
Attributor = Callable[[str, Shown, Mapping[str, Document]], frozenset[str]]


def held(output: str, shown: Shown, items: Mapping[str, Document]) -> frozenset[str]:
    """The items that hold the output: as their label, or anywhere in their title or text, whatever the case."""
    said = _plain(output)
    if not said or output == EMPTY:
        return frozenset()
    return frozenset(doc_id for doc_id in shown if _holds(items[doc_id], said))


def cited(output: str, shown: Shown, items: Mapping[str, Document]) -> frozenset[str]:
    """The items that the output names as [1], [2] …, by the slots in which they were shown."""
    slots = {int(number) for marker in re.findall(MARKER, output) for number in re.findall(r"\d+", marker)}
    return frozenset(doc_id for slot, doc_id in enumerate(shown, start=1) if slot in slots)


def without_markers(output: str) -> str:
    """The output without the markers of a citing generator, each row of them with the space before it."""
    return _MARKERS.sub("", output).strip()


ATTRIBUTORS: Mapping[str, Attributor] = {"overlap": held, "cited": cited}


def _holds(item: Document, said: str) -> bool:
    label = _plain(" ".join(item.groups.get("label", ())))
    if label:
        return said == label
    return said in _plain(f"{item.title} {item.text}")


def _plain(text: str | Sequence[str]) -> str:
    return " ".join(str(text).casefold().split())
