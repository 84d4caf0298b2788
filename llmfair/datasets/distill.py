"""What is kept of the source files of TREC Fair: relevance, and of the relevant pages groups, numbers and titles.

Each pass reads lines once and holds arrays over the relevant pages, so its memory does not grow with the file. A
line is parsed only when its page is wanted. Files join by page id: ir_datasets' own document iterators hand a page
without metadata the labels of the page before it. Where an id repeats, the first line counts.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any, TypeVar

import numpy as np
from msgspec import Meta, Struct, ValidationError, convert, defstruct

from llmfair.datasets.files import keywords_of
from llmfair.datasets.page_store import GroupsOf, PageWriter, by_name, written
from llmfair.datasets.relevant_pages import judgements, read_pages
from llmfair.errors import MissingExtra, UsageError
from llmfair.io import files
from llmfair.io.files import field_of, whole, write_whole, wrong
from llmfair.nouns import NO_NUMBERS, NUMBERS, Document, Query

TextOf = tuple[str, Callable[[str], str]]
"""Which field of a line has the text, and what makes it plain."""
Fill = Callable[[Path, Iterable[Document]], None]
"""Takes all documents, in their order, into an index below a folder."""
EVERY_GROUP = "groups-full.npz"
Characters = Annotated[str, Meta(pattern=r"^[^\ud800-\udfff]*$")]
"""A text without half of a character, which no file of ours holds."""


class TopicLine(Struct):
    """A line of a topics file."""

    id: int | Annotated[str, Meta(pattern=r"^[^\s\ud800-\udfff]+$")]
    title: Characters
    rel_docs: list[PageId]
    keywords: list[Characters] | None = None


@dataclass(frozen=True)
class Sought:
    """What is to be found of a corpus by searching: the relevant pages, or all; `fill` makes the index in `folder`."""

    folder: Path
    full: bool
    fill: Fill


# Step 1: topics and relevance


def keep_topics(
    folder: Path, queries: Iterable[Query], relevant: Iterable[tuple[str, str]]
) -> dict[str, Any]:
    """Writes topics.json and relevance.npy: the relevant page ids of one topic after another, without repeats."""
    topics = {query.query_id: query for query in queries}
    pages: dict[str, array[int]] = {query_id: array("q") for query_id in topics}
    for query_id, doc_id in relevant:
        if query_id in pages:
            pages[query_id].append(int(doc_id))
    given = sum(map(len, pages.values()))
    unique = {query_id: np.unique(np.array(found, dtype=np.int64)) for query_id, found in pages.items()}
    rows = np.concatenate([*unique.values(), np.empty(0, dtype=np.int64)])
    with whole(folder / "relevance.npy") as file:
        np.save(file, rows)
    listed = [
        {"query_id": q, "text": query.text, "relevant": len(unique[q])}
        | ({"keywords": query.keywords} if query.keywords else {})
        for q, query in topics.items()
    ]
    write_whole(folder / "topics.json", [json.dumps(listed, ensure_ascii=False) + "\n"])
    return {
        "queries": len(topics),
        "relevance_rows": len(rows),
        "duplicate_rows": given - len(rows),
        "pages": len(np.unique(rows)),
    }


def wanted_pages(folder: Path) -> array[int]:
    """The ids of all pages relevant to some topic, ascending."""
    return array("q", np.unique(judgements(folder / "relevance.npy")).tobytes())


def topic_rows(lines: Iterable[bytes], name: str) -> list[tuple[Query, array[int]]]:
    """The topic and the relevant pages of each line of a topics file.

    Raises UsageError for a malformed line, and for a second one of a topic.
    """
    rows, known = [], set[str]()
    for number, line in enumerate(lines, start=1):
        if line.strip():
            row = parsed(line, name, number)
            if isinstance(row.get("keywords"), str):
                row["keywords"] = [row["keywords"]]
            read = fields_of(row, TopicLine, name, number)
            topic = Query(str(read.id), read.title, keywords_of(read.keywords or ()))
            if topic.query_id in known:
                raise UsageError(
                    f"{name}:{number}: id: topic '{topic.query_id}' is there already.", "one line a topic"
                )
            known.add(topic.query_id)
            rows.append((topic, array("q", map(int, read.rel_docs))))
    return rows


# Step 2: groups


def keep_groups(
    folder: Path,
    wanted: array[int],
    lines: Iterable[bytes],
    name: str,
    labels: Mapping[str, str],
    full: bool = False,
) -> dict[str, Any]:
    """Writes groups.jsonl.gz: every wanted page with canonical groups and numbers, by id; of all pages too, if `full`.

    `labels` names the field of each attribute. Raises UsageError for a broken line.
    """
    counts: Counter[str] = Counter()
    unrecognised: Counter[str] = Counter()
    combinations: dict[tuple[tuple[str, ...], ...], int] = {((),) * len(labels): 0}
    codes = array("i", bytes(4 * len(wanted)))
    numbers = np.full((len(wanted), len(NUMBERS)), np.nan)
    seen = bytearray(len(wanted))
    ids, codes_of_all, numbers_of_all = array("q"), array("i"), array("d")
    keyed = by_id(lines, "page_id", name, counts)
    labelled = defstruct(
        "Labelled",
        [
            *((key, list[Characters] | None, None) for key in dict.fromkeys(labels.values())),
            *((key, float | None, None) for key in NUMBERS),
        ],
    )
    for place, page_id, number, line in firsts(wanted, keyed, seen, counts, full):
        row = fields_of(parsed(line, name, number), labelled, name, number)
        raw: dict[str, list[str]] = {attribute: getattr(row, key) or [] for attribute, key in labels.items()}
        groups = tuple(canonical_groups(attribute, found) for attribute, found in raw.items())
        code = combinations.setdefault(groups, len(combinations))
        own = [_number(getattr(row, key)) for key in NUMBERS]
        if place is not None:
            codes[place], numbers[place] = code, own
        if full:
            ids.append(page_id)
            codes_of_all.append(code)
            numbers_of_all.extend(own)
        for attribute, found in raw.items():
            unrecognised.update(
                label for label in found if label not in UNKNOWN and GROUP_OF[attribute](label) is None
            )
    groups_of = [
        {attribute: found for attribute, found in zip(labels, groups, strict=True) if found}
        for groups in combinations
    ]
    with _packed(folder / "groups.jsonl.gz") as file:
        for page_id, code, own in zip(wanted, codes, numbers.tolist(), strict=True):
            file.write(_page(page_id, "", groups_of[code], numbers=by_name(own)))
    if full:
        order = np.argsort(np.array(ids))
        rows = np.array(numbers_of_all).reshape(-1, len(NUMBERS))
        every = GroupsOf(np.array(ids)[order], np.array(codes_of_all)[order], groups_of, rows[order])
        every.save(folder / EVERY_GROUP)
    return {
        **_counted(counts),
        **({"full": True} if full else {}),
        "pages_without_metadata": seen.count(0),
        "pages_with_numbers": dict(zip(NUMBERS, (~np.isnan(numbers)).sum(axis=0).tolist(), strict=True)),
        "unrecognised_labels": dict(sorted(unrecognised.items())),
    }


def _number(value: float | None) -> float:
    """A number from 0; NaN where nothing is known."""
    return math.nan if value is None or not 0 <= value < math.inf else value


# Step 3: titles


def keep_pages(
    folder: Path,
    wanted: array[int],
    lines: Iterable[bytes],
    name: str,
    text_of: TextOf | None,
    words: int = 0,
    sought: Sought | None = None,
) -> dict[str, Any]:
    """Writes pages.jsonl.gz from a corpus: title and groups of the wanted pages, in its order; the first words of each.

    Pages that the corpus lacks come last, with a blank title. What is `sought` is indexed in the same pass. Raises
    UsageError for a broken line.
    """
    counts: Counter[str] = Counter()
    key_of_text, plain = text_of or NO_TEXT
    article = defstruct("Article", [(key, str | None, None) for key in ("title", key_of_text)])

    def read(number: int, line: bytes) -> tuple[str, str]:
        row = fields_of(parsed(line, name, number), article, name, number)
        title, text = (getattr(row, key) or "" for key in ("title", key_of_text))
        return title, plain(text)

    keyed = by_id(lines, "id", name, counts)
    with _every_page(folder, sought) as every:
        documents = _write_pages(folder, wanted, keyed, read, counts, words, every)
        if sought is not None:
            sought.fill(sought.folder, documents)
        for _ in documents:  # an index that was whole looks at none
            pass
    return _told(counts, wanted) | ({} if sought is None else {"indexed": counts["indexed"]})


@contextmanager
def _every_page(folder: Path, sought: Sought | None) -> Iterator[tuple[PageWriter, GroupsOf] | None]:
    """The writer of all pages, titles and first words beside their index, and their groups, where all are sought."""
    if sought is None or not sought.full:
        yield None
        return
    groups = GroupsOf.load(folder / EVERY_GROUP)
    with written(sought.folder) as pages:
        yield pages, groups
        pages.save(sought.folder, groups)


def keep_titles(folder: Path, wanted: array[int], lines: Iterable[bytes], name: str) -> dict[str, Any]:
    """Writes pages.jsonl.gz from lines `page_id<TAB>title`, where an underscore is a space."""
    counts: Counter[str] = Counter()

    def keyed() -> Iterator[Keyed]:
        for number, line in enumerate(lines, start=1):
            given, tab, title = line.rstrip(b"\r\n").partition(b"\t")
            if tab and given.strip().isdigit():
                counts["lines"] += 1
                yield id_of(given.decode().strip(), "page_id", name, number), number, title
            elif line.strip() and number > 1:  # the first line may name the columns
                raise UsageError(f"{name}:{number}: expected page_id, a tab, title.", "one page a line")

    def read(number: int, title: bytes) -> tuple[str, str]:
        return title.decode("utf-8", "replace").replace("_", " "), ""

    for _ in _write_pages(folder, wanted, keyed(), read, counts):
        pass
    return _told(counts, wanted)


def _write_pages(
    folder: Path,
    wanted: array[int],
    keyed: Iterator[Keyed],
    read: Callable[[int, bytes], tuple[str, str]],
    counts: Counter[str],
    words: int = 0,
    every: tuple[PageWriter, GroupsOf] | None = None,
) -> Iterator[Document]:
    """The pages as they are read, with whole texts; written when all were. For a writer of `every` all are read."""
    grouped, numbers = read_pages(folder / "groups.jsonl.gz"), NO_NUMBERS
    groups_of, codes = grouped.combinations, grouped.codes.tolist()
    seen = bytearray(len(wanted))
    with _packed(folder / "pages.jsonl.gz") as file:
        for place, page_id, number, line in firsts(wanted, keyed, seen, counts, every is not None):
            title, text = read(number, line)
            kept = first_words(text, words)
            if place is not None:
                counts["titled"] += bool(title.strip())
                numbers = grouped[str(page_id)].numbers
                file.write(_page(page_id, title, groups_of[codes[place]], kept, numbers))
            if every is not None:
                pages, groups = every
                pages.add(page_id, title, kept, groups.numbers_of(page_id))
            counts["indexed"] += 1
            yield Document(str(page_id), title, text)
        for place, found in enumerate(seen):
            if not found:
                numbers = grouped[str(wanted[place])].numbers
                file.write(_page(wanted[place], "", groups_of[codes[place]], numbers=numbers))
                if every is not None:
                    every[0].add(wanted[place], "", "", numbers)


def first_words(text: str, words: int) -> str:
    return " ".join(text.split(maxsplit=words)[:words]) if words else ""


PLAIN_TEXT: TextOf = ("plain", str)
"""A 2022 article."""
NO_TEXT: TextOf = ("plain", lambda _: "")


def textifier() -> Any:
    try:
        import pyautocorpus
    except ImportError:
        raise MissingExtra(
            "the articles of 2021 are wikitext; plain text of them needs pyautocorpus.",
            "pip install 'ir_datasets[pyautocorpus]'    titles alone need nothing: leave --text-words and --index out",
        ) from None
    return pyautocorpus.Textifier().textify


def wikitext(textify: Callable[[str], str]) -> TextOf:
    """A 2021 article, which is wikitext.

    An unclosed comment ends the article, as Wikipedia shows it (and ir_datasets reads it); the error names the byte.
    """

    def plain(markup: str) -> str:
        try:
            return textify(markup)
        except ValueError as error:
            message, position = (*error.args, None)[:2]
            if message != "Expected markup type 'comment'" or position is None:
                raise
            return textify(markup.encode()[:position].decode())

    return "text", plain


def _told(counts: Counter[str], wanted: array[int]) -> dict[str, Any]:
    return {**_counted(counts), "pages": len(wanted), "pages_without_title": len(wanted) - counts["titled"]}


def _counted(counts: Counter[str]) -> dict[str, int]:
    return {name: counts[name] for name in ("lines", "duplicate_lines")}


def _page(
    page_id: int,
    title: str,
    groups: Mapping[str, Any],
    text: str = "",
    numbers: Mapping[str, float] = NO_NUMBERS,
) -> str:
    row = {"doc_id": str(page_id), "title": title, "groups": groups, **numbers}
    return json.dumps(row | ({"text": text} if text else {}), ensure_ascii=False) + "\n"


@contextmanager
def _packed(path: Path) -> Iterator[IO[str]]:
    """A gzip file written beside and renamed; equal content is equal bytes (no time, no name inside)."""
    with (
        whole(path) as file,
        gzip.GzipFile("", "wb", 6, file, mtime=0) as packed,
        io.TextIOWrapper(packed, "utf-8", "surrogatepass", newline="\n") as text,
    ):
        yield text


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


GENDERS = {
    **dict.fromkeys(("female", "cisgender female", "transgender female"), "female"),
    **dict.fromkeys(("male", "cisgender male", "transgender male"), "male"),
}
CONTINENTS = (
    "Africa", "Antarctica", "Asia", "Europe", "Latin America and the Caribbean", "Northern America", "Oceania",
)  # fmt: skip
SUBREGIONS = (
    "Antarctica", "Caribbean", "Central America", "Central Asia", "Eastern Africa", "Eastern Asia", "Eastern Europe",
    "Middle Africa", "Northern Africa", "Northern America", "Northern Europe", "Oceania", "South America",
    "South-eastern Asia", "Southern Africa", "Southern Asia", "Southern Europe", "Western Africa", "Western Asia",
    "Western Europe",
)  # fmt: skip
REGIONS = {
    **{region: region for region in (*CONTINENTS, *SUBREGIONS)},
    **dict.fromkeys(("Australia and New Zealand", "Melanesia", "Micronesia", "Polynesia"), "Oceania"),
}
GROUP_OF: Mapping[str, Callable[[str], str | None]] = {
    "gender": lambda label: GENDERS.get(label, "nonbinary"),  # the organisers' rule: every other label
    "location": REGIONS.get,
}
UNKNOWN = frozenset({"", "@UNKNOWN", "Unknown", "UNK"})


def canonical_groups(attribute: str, labels: Sequence[str] | None) -> tuple[str, ...]:
    """The groups of raw labels in file order without repeats; none, `[]` and unknown places are the empty tuple."""
    found = (GROUP_OF[attribute](label) for label in labels or () if label not in UNKNOWN)
    return tuple(dict.fromkeys(group for group in found if group is not None))
