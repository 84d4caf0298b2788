"""Fetching a TREC Fair collection: download, distil, remove; every step starts where the one before was left.

Three steps, each noted in `fetch.json` when it is done: topics and relevance, groups (metadata), pages (titles from
the corpus). What was fetched before stays as it is until a step has read all its sources; from then on, before the
first file is replaced, that step and those after it are noted as not done. Addresses, sizes and checksums are those of
ir_datasets.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import llmfair
from llmfair.datasets import distill
from llmfair.datasets.base import cache_folder
from llmfair.datasets.distill import Sought
from llmfair.datasets.download import DownloadProgress, Origin, Silent, download, read_lines
from llmfair.datasets.files import keywords_of
from llmfair.datasets.origins import given_copy, place_of, published
from llmfair.datasets.relevant_pages import keep_arrays
from llmfair.datasets.trec_fair import (
    COLLECTIONS,
    Collection,
    fetch_record,
    index_folder,
    is_indexed,
    is_unchanged,
)
from llmfair.errors import LlmfairError, UsageError, did_you_mean
from llmfair.io import files, secrets
from llmfair.io.files import FULL, clear, encode, write_whole
from llmfair.nouns import Fill, Query

Step = Literal["topics", "metadata", "pages"]
Scope = Literal["pool", "full"]
"""Which pages are indexed: those that are relevant to some topic, or all."""
STEPS: tuple[Step, ...] = ("topics", "metadata", "pages")
FILES: Mapping[Step, Sequence[str]] = {
    "topics": ("topics.json", "relevance.npy"),
    "metadata": ("groups.jsonl.gz", distill.EVERY_GROUP),
    "pages": ("pages.jsonl.gz",),
}
"""What each step leaves in the folder of its collection, beside arrays of the pages."""
KEPT_BYTES = 300_000_000  # what stays: about 1.5 million titles, groups, numbers and 2 million judgements
BYTES_PER_WORD = 15_000_000  # and per word of text kept of each page
INDEX_BYTES = {
    "pool": 1_000_000_000,
    "full": 6_000_000_000,
}  # an index, with the titles and groups of its pages
EXPANDED, SMALLEST = 10, 1_000_000
"""What is kept of source files, which are packed, takes at most so many times their bytes, or so many bytes."""
CORPUS = {2021: "2021/docs", 2022: "2022/docs"}
SMALL = 100_000_000
"""Bytes of a copy that is compared with what was read of it, however old it looks."""
METADATA = {2021: "2021/metadata", 2022: "2022/metadata"}


@dataclass(frozen=True)
class FetchOptions:
    """Other copies of the source files (path or URL, gzip or plain), and how to go about it."""

    topics: str | None = None
    metadata: str | None = None
    corpus: str | None = None
    titles: str | None = None
    text_words: int = 0
    stream: bool = False
    keep_downloads: bool = False
    index: Scope | None = None
    analyzer: str = "english"
    engine: str = "tantivy"

    @property
    def indexed(self) -> dict[str, str] | None:
        """What is to be indexed and how, as the record of a fetch has it; None where nothing is."""
        return (
            None
            if self.index is None
            else {"scope": self.index, "analyzer": self.analyzer, "engine": self.engine}
        )


@dataclass(frozen=True)
class FetchPlan:
    """What a fetch will do: the steps left, with the files each of them reads."""

    collection: Collection
    options: FetchOptions
    origins: Mapping[Step, Sequence[Origin]]

    @property
    def files(self) -> list[Origin]:
        """All files that are read."""
        return [origin for origins in self.origins.values() for origin in origins]

    @property
    def to_download(self) -> list[tuple[Origin, int | None]]:
        """Files that are not here, with the bytes that are missing (None: not known)."""
        return [(origin, origin.missing) for origin in self.files if not origin.here]

    @property
    def read_bytes(self) -> int | None:
        """How long all files are together; None where that of one is not known."""
        sizes = [origin.bytes for origin in self.files]
        return None if None in sizes else sum(size or 0 for size in sizes)

    @property
    def disk_bytes(self) -> int:
        """Space that is needed beside what is taken already: of small source files no more is kept than they hold."""
        kept = KEPT_BYTES + BYTES_PER_WORD * self.options.text_words
        kept += INDEX_BYTES[self.options.index] if self.options.index and "pages" in self.origins else 0
        if (read := self.read_bytes) is not None:
            kept = min(kept, max(SMALLEST, EXPANDED * read))
        return kept + (0 if self.options.stream else sum(missing or 0 for _, missing in self.to_download))


def collection_of(name: str) -> Collection:
    """The collection of a dataset id, with or without split and attribute. Raises UsageError with the nearest id."""
    known = {
        known: collection
        for collection in COLLECTIONS
        for base in (collection.name, collection.short_name)
        for known in (base, *(f"{base}/{attribute}" for attribute in collection.labels))
    }
    if name not in known:
        raise UsageError(
            f"there is nothing to fetch for '{name}'.{did_you_mean(name, known)}",
            f"can be fetched: {', '.join(collection.short_name for collection in COLLECTIONS)}, lamp/1 to lamp/7",
        )
    return known[name]


def plan_fetch(collection: Collection, options: FetchOptions) -> FetchPlan:
    """The steps left to do; none makes a request. Raises UsageError or MissingExtra for options that cannot work."""
    record = fetch_record(collection)
    if options.index is None and (earlier := record.get("pages", {}).get("index")):
        kept = {"index": earlier["scope"], "analyzer": earlier["analyzer"], "engine": earlier["engine"]}
        options = replace(options, **kept)
    _check(collection, options)
    left: list[Step] = [step for step in STEPS if not _is_done(step, collection, record, options)]
    left = [*STEPS[STEPS.index(left[0]) :]] if left else []  # a step rests on those before it
    return FetchPlan(collection, options, {step: _origins(step, collection, options) for step in left})


def _check(collection: Collection, options: FetchOptions) -> None:
    if not collection.topic_files and options.topics is None and "topics" not in fetch_record(collection):
        raise UsageError(
            f"the topics of {collection.name} are published by NIST only.",
            f"{collection.fetch_command}    or --topics FILE, where it was downloaded by hand",
        )
    if options.titles and (options.text_words or options.corpus or options.index):
        raise UsageError(
            "--titles replaces the corpus, so there is no text.",
            "leave --text-words, --corpus and --index out",
        )
    if options.text_words < 0:
        raise UsageError(f"--text-words {options.text_words} is negative.", "0 keeps no text")
    if (options.text_words or options.index) and collection.year == 2021:
        distill.textifier()


def _is_done(step: Step, collection: Collection, record: Mapping[str, Any], options: FetchOptions) -> bool:
    """Whether a step was finished, with the copies that are asked for now (if any are), and is as it was left."""
    if step not in record or not is_unchanged(collection.folder, FILES[step]):
        return False
    asked = {
        "topics": (options.topics,),
        "metadata": (options.metadata,),
        "pages": (options.corpus, options.titles),
    }[step]
    used = {secrets.written(source["from"]): source for source in record[step]["sources"]}
    noted = (collection.folder / "fetch.json").stat().st_mtime_ns
    same = all(given is None or _is_read(place_of(given), used, noted) for given in asked)
    match step:
        case "pages":
            indexed = options.indexed is None or (
                options.indexed == _indexed(record[step]) and is_indexed(collection)
            )
            return same and indexed and options.text_words <= record[step]["text_words"]
        case "metadata":
            return same and (options.index != "full" or record[step].get("full", False))
    return same


def _is_read(place: str, used: Mapping[str, Mapping[str, Any]], noted: int) -> bool:
    """Whether this copy was read as it is now: by its size, and its md5 where it is small or newer than the note."""
    source, path = used.get(secrets.written(place)), Path(place)
    if source is None or "://" in place or not path.is_file():
        return source is not None
    found = path.stat()
    if source.get("bytes") != found.st_size:
        return False
    if found.st_size > SMALL and found.st_mtime_ns < noted:
        return True
    return _md5(path) == source.get("md5")


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, partial(hashlib.md5, usedforsecurity=False)).hexdigest()


def _indexed(pages: Mapping[str, Any]) -> dict[str, str]:
    """What of the pages was indexed and how."""
    return {name: pages.get("index", {}).get(name) for name in ("scope", "analyzer", "engine")}


def _origins(step: Step, collection: Collection, options: FetchOptions) -> list[Origin]:
    given = {
        "topics": options.topics,
        "metadata": options.metadata,
        "pages": options.titles or options.corpus,
    }[step]
    if given:
        return [given_copy(given)]
    keys = {
        "topics": collection.topic_files,
        "metadata": (METADATA[collection.year],),
        "pages": (CORPUS[collection.year],),
    }[step]
    return [published(key, keep=step == "topics") for key in keys]


# The steps


def fetch(
    plan: FetchPlan, progress: DownloadProgress | None = None, fill: Fill | None = None
) -> dict[str, Any]:
    """Does what the plan says and returns the record of `fetch.json`; `fill` makes the index, where one is asked for.

    Raises LlmfairError when a connection fails for good, an md5 differs, the disk is full or another process is
    fetching; UsageError for a malformed file. The same command continues.
    """
    collection, watch = plan.collection, progress or Silent()
    if not plan.origins:
        return fetch_record(collection)
    with alone_in(collection.folder):
        free = shutil.disk_usage(collection.folder).free
        if free < plan.disk_bytes:
            raise disk_full(f"{plan.disk_bytes / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free")
        return _run(plan, watch, fill)


def _run(plan: FetchPlan, progress: DownloadProgress, fill: Fill | None) -> dict[str, Any]:
    done = fetch_record(plan.collection)
    record: dict[str, Any] = {step: done[step] for step in STEPS if step in done and step not in plan.origins}
    replacing = partial(_note, plan.collection, record)
    for step, origins in plan.origins.items():
        for origin in origins:
            if step == "topics" or not plan.options.stream:
                download(origin, progress)
        match step:
            case "topics":
                counts = _keep_topics(plan, origins, progress, replacing)
            case "metadata":
                counts = _keep_groups(plan, origins, progress, replacing)
            case "pages":
                counts = _keep_pages(plan, origins, progress, replacing, fill)
        files.note(plan.collection.folder, FILES[step])
        record[step] = {"sources": [_source(origin) for origin in origins], **counts}
        _note(plan.collection, record)
        if step == "pages" and (indexed := plan.options.indexed):
            _remove_other_indexes(plan.collection, indexed)
        for origin in origins:
            if origin.temporary and not plan.options.keep_downloads:
                origin.path.unlink(missing_ok=True)
    return fetch_record(plan.collection)


def _lines(origin: Origin, progress: DownloadProgress, replacing: Callable[[], None]) -> Iterator[bytes]:
    """The lines of a source; what is kept of them is written after the last one, when `replacing` was said."""
    yield from read_lines(origin, progress)
    replacing()


def _keep_topics(
    plan: FetchPlan, origins: Sequence[Origin], progress: DownloadProgress, replacing: Callable[[], None]
) -> dict[str, Any]:
    folder = plan.collection.folder
    if plan.options.topics:
        rows = distill.topic_rows(_lines(origins[0], progress, replacing), origins[0].place)
        relevant = ((topic.query_id, str(page)) for topic, pages in rows for page in pages)
        return distill.keep_topics(folder, [topic for topic, _ in rows], relevant)
    import ir_datasets

    for origin in origins:
        for _ in read_lines(origin, progress):
            pass  # for its md5; ir_datasets reads the rows
    replacing()
    dataset = ir_datasets.load(plan.collection.name)
    queries = (
        Query(query.query_id, query.text, keywords_of(getattr(query, "keywords", ())))
        for query in dataset.queries_iter()
    )
    judged = ((row.query_id, row.doc_id) for row in dataset.qrels_iter() if row.relevance >= 1)
    return distill.keep_topics(folder, queries, judged)


def _keep_groups(
    plan: FetchPlan, origins: Sequence[Origin], progress: DownloadProgress, replacing: Callable[[], None]
) -> dict[str, Any]:
    folder, (origin,) = plan.collection.folder, origins
    lines = _lines(origin, progress, replacing)
    wanted, full = distill.wanted_pages(folder), plan.options.index == "full"
    return distill.keep_groups(folder, wanted, lines, origin.place, plan.collection.labels, full)


def _keep_pages(
    plan: FetchPlan,
    origins: Sequence[Origin],
    progress: DownloadProgress,
    replacing: Callable[[], None],
    fill: Fill | None,
) -> dict[str, Any]:
    folder, (origin,), options = plan.collection.folder, origins, plan.options
    wanted, lines = distill.wanted_pages(folder), _lines(origin, progress, replacing)
    index: dict[str, Any] | None = None
    if options.titles:
        counts = distill.keep_titles(folder, wanted, lines, origin.place)
    else:
        sought = None
        if options.index is not None and fill is not None:
            index = {**(options.indexed or {}), "source": _source_of(origin, options.index, wanted)}
            sought = Sought(
                index_folder(plan.collection, options.index),
                options.index == "full",
                partial(fill, source=index["source"]),
            )
        text_of = None
        if options.text_words or sought:
            text_of = (
                distill.wikitext(distill.textifier()) if plan.collection.year == 2021 else distill.PLAIN_TEXT
            )
        words = options.text_words
        counts = distill.keep_pages(folder, wanted, lines, origin.place, text_of, words, sought)
    with (folder / "pages.jsonl.gz").open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    keep_arrays(folder / "pages.jsonl.gz", sha256)
    if index is not None:
        counts["index"] = {**index, "documents": counts.pop("indexed")}
    return {**counts, "text_words": options.text_words, "sha256": sha256}


def _remove_other_indexes(collection: Collection, indexed: Mapping[str, str]) -> None:
    """A collection is searched in one way: the record speaks of one index, of one analyzer."""
    for scope in INDEX_BYTES:
        folder = index_folder(collection, scope)
        if scope != indexed["scope"]:
            shutil.rmtree(folder, ignore_errors=True)
            continue
        kept = indexed["analyzer"] if indexed["engine"] == "tantivy" else None
        for other in folder.glob("*/"):
            if other.name.partition(".")[0] != kept:  # or what is left of one that was begun
                shutil.rmtree(other, ignore_errors=True)


def _source_of(origin: Origin, scope: Scope, wanted: array[int]) -> str:
    """SHA-256 of what is indexed: of which corpus, and which of its pages."""
    corpus = origin.md5 or secrets.written(origin.url or "")
    if origin.here and not origin.md5:
        corpus = _md5(origin.path)
    pages = hashlib.sha256(wanted.tobytes()).hexdigest() if scope == "pool" else "all"
    return hashlib.sha256(encode([corpus, pages])).hexdigest()


def _source(origin: Origin) -> dict[str, Any]:
    return {"name": origin.name, "from": secrets.written(origin.url or str(origin.path)), **origin.seen}


def _note(collection: Collection, record: Mapping[str, Any]) -> None:
    content = {"schema": 1, "collection": collection.name, "llmfair": llmfair.__version__, **record}
    write_whole(collection.folder / "fetch.json", [json.dumps(content, indent=1, ensure_ascii=False) + "\n"])


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """A folder to fetch into, held against a second fetch, which would write into the same files.

    Raises UsageError if it cannot be made, LlmfairError if another process holds it or the disk is full.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot write {folder}: {error.strerror}.", "name another folder in LLMFAIR_CACHE_DIR"
        ) from None
    waits = "wait for it; the same command then continues"
    try:
        with files.held(folder.parent / ".fetch.lock", folder.parent, waits):
            clear(folder)
            yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        free = shutil.disk_usage(folder).free
        raise disk_full(f"no space left, {free / 1e9:.1f} GB free") from None


def disk_full(what: str) -> LlmfairError:
    return LlmfairError(
        f"the disk is full: {what} under {cache_folder()}.",
        "free some or move the folder with LLMFAIR_CACHE_DIR, then repeat the command: it continues; "
        "--stream keeps no copy of a corpus",
    )
