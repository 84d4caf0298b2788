"""Which of the items shown an answer is credited to, where that can be told without asking."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from llmfair.metrics.texts import EMPTY
from llmfair.nouns import Document
from llmfair.rankers.reader import Shown

MARKER = r"\[\d+(?:\s*,\s*\d+)*\]"
"""What names items in an output: [2], or several as [1, 3]."""
_MARKERS = re.compile(rf"\s*{MARKER}(?:[\s,;]*{MARKER})*")
Credit = Callable[[str, Shown], frozenset[str] | None]
"""Which of the items shown an output is credited to; None where nobody asked or can tell."""


def held(items: Mapping[str, Document]) -> Credit:
    """The items that hold the output: as their label, or anywhere in their title or text, whatever the case."""
    label_and_text = cache(lambda doc_id: _label_and_text(items[doc_id]))

    def credit(output: str, shown: Shown) -> frozenset[str]:
        said = _plain(output)
        if not said or output == EMPTY:
            return frozenset()
        return frozenset(doc_id for doc_id in shown if _holds(*label_and_text(doc_id), said))

    return credit


def cited(output: str, shown: Shown) -> frozenset[str]:
    """The items that the output names as [1], [2] …, by the slots in which they were shown."""
    slots = {int(number) for marker in re.findall(MARKER, output) for number in re.findall(r"\d+", marker)}
    return frozenset(doc_id for slot, doc_id in enumerate(shown, start=1) if slot in slots)


def without_markers(output: str) -> str:
    """The output without the markers of a citing generator, each row of them with the space before it."""
    return _MARKERS.sub("", output).strip()


ATTRIBUTORS: Mapping[str, Callable[[Mapping[str, Document]], Credit]] = {
    "overlap": held,
    "cited": lambda items: cited,
}
"""How credit is given among the items of a query."""


def _label_and_text(item: Document) -> tuple[str, str]:
    return _plain(" ".join(item.groups.get("label", ()))), _plain(f"{item.title} {item.text}")


def _holds(label: str, text: str, said: str) -> bool:
    return said == label if label else said in text


def _plain(text: str | Sequence[str]) -> str:
    return " ".join(str(text).casefold().split())
