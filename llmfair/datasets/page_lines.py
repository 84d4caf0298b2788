"""Lines of source files of TREC Fair by page id, the first of each page; parsed only where a page is wanted."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, TypeVar

from msgspec import Meta, ValidationError, convert

from llmfair.io import files
from llmfair.io.files import field_of, wrong

PageId = Annotated[int, Meta(ge=0, le=2**63 - 1)] | Annotated[str, Meta(pattern=r"^[0-9]{1,18}$")]
"""As lines have it."""
HINT = 'topics: {"id": 84, "title": "…", "rel_docs": [12, 307]}; pages: {"page_id": 12, "gender": ["female"]}'

T = TypeVar("T")
Keyed = tuple[int, int, bytes]
"""Page id, number of the line, the line."""
Placed = tuple[int | None, int, int, bytes]
"""The page's place among the wanted ones, if it is one; page id, number of the line, the line."""


def by_id(lines: Iterable[bytes], key: str, name: str, counts: Counter[str]) -> Iterator[Keyed]:
    """Lines of JSON with their page id, which is read without parsing the line where it stands first, as it does."""
    first = re.compile(rb'\s*\{\s*"%s"\s*:\s*"?(\d{1,18})"?\s*[,}]' % key.encode())
    number = 0
    for number, line in enumerate(lines, start=1):
        if match := first.match(line):
            yield int(match[1]), number, line
        elif line.strip():
            yield id_of(parsed(line, name, number).get(key), key, name, number), number, line
    counts["lines"] = number


def id_of(given: Any, key: str, name: str, number: int) -> int:
    """The page of a line. Raises UsageError."""
    if isinstance(given, str) and len(given) <= 18 and given.isascii() and given.isdecimal():
        return int(given)  # as nearly all are: at a tenth of what msgspec takes to look at the types
    try:
        return int(convert(given, PageId))
    except ValidationError:
        raise wrong(name, number, key, "is not a page id", "one page a line, by its number") from None


def firsts(
    wanted: array[int], keyed: Iterator[Keyed], seen: bytearray, counts: Counter[str], every: bool = False
) -> Iterator[Placed]:
    """The first line of every wanted page, or of every page at all."""
    met = Met()
    for page_id, number, line in keyed:
        place = bisect_left(wanted, page_id)
        is_wanted = place < len(wanted) and wanted[place] == page_id
        if not is_wanted and not every:
            continue
        if seen[place] if is_wanted else met.add(page_id):
            counts["duplicate_lines"] += 1
            continue
        if is_wanted:
            seen[place] = 1
        yield place if is_wanted else None, page_id, number, line


class Met:
    """Which pages were met: a bit each, since ids are numbers of no great size."""

    MOST = 1 << 30

    def __init__(self) -> None:
        self._bits, self._large = bytearray(), set[int]()

    def add(self, page_id: int) -> bool:
        """Notes a page; whether it was met before."""
        if page_id >= self.MOST:
            known = page_id in self._large
            self._large.add(page_id)
            return known
        at, bit = page_id >> 3, 1 << (page_id & 7)
        if at >= len(self._bits):
            self._bits.extend(bytes(at + (at >> 2) + 1 - len(self._bits)))
        known = bool(self._bits[at] & bit)
        self._bits[at] |= bit
        return known


def parsed(line: bytes, name: str, number: int) -> dict[str, Any]:
    try:
        return files.parsed(line, dict[str, Any])
    except ValueError as error:
        raise wrong(name, number, *field_of(error), HINT) from None


def fields_of(row: Mapping[str, Any], of: type[T], name: str, number: int) -> T:
    """A line as this class, of which msgspec looks only once at the types of its fields. Raises UsageError."""
    try:
        return convert(row, of)
    except UnicodeEncodeError as error:  # half of a character where a list or a number should be
        raise wrong(name, number, "", f"holds {error.object[:40]!r}, which is no text", HINT) from None
    except ValidationError as error:
        raise wrong(name, number, *field_of(error), HINT) from None
