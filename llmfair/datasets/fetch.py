"""Fetching a TREC Fair collection: download, distil, remove; every step starts where the one before was left.

Three steps, each noted in `fetch.json` when it is done: topics and relevance, groups (metadata), pages (titles from
the corpus). What was fetched before stays as it is until a step has read all its sources; from then on, before the
first file is replaced, that step and those after it are noted as not done. Addresses, sizes and checksums are those of
ir_datasets.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, dropwhile
from pathlib import Path
from typing import Any, Literal

import llmfair
from llmfair.datasets import distill
from llmfair.datasets.base import cache_folder
from llmfair.datasets.distill import GROUPS, PAGES, TOPICS, Sought
from llmfair.datasets.download import (
    DownloadProgress,
    Origin,
    alone_in,
    disk_full,
    download,
    md5_of,
    read_lines,
)
from llmfair.datasets.files import keywords_of
from llmfair.datasets.trec_fair import COLLECTIONS, Collection, fetch_record, index_name, read_fetched
from llmfair.errors import UsageError, did_you_mean
from llmfair.io import files, secrets
from llmfair.io.files import encode, write_whole
from llmfair.nouns import Fill, Query

Step = Literal["topics", "metadata", "pages"]
Scope = Literal["pool", "full"]
"""Which pages are indexed: those that are relevant to some topic, or all."""
STEPS: tuple[Step, ...] = ("topics", "metadata", "pages")
FILES: Mapping[Step, Sequence[str]] = {
    "topics": (TOPICS,),
    "metadata": (GROUPS,),
    "pages": (PAGES, f"{index_name('full')}/{PAGES}"),
}
"""What each step leaves in the folder of its collection."""
KEPT_BYTES = 300_000_000  # what stays: about 1.5 million titles, groups, numbers and 2 million judgements
BYTES_PER_WORD = 15_000_000  # and per word of text kept of each page
INDEX_BYTES = {
    "pool": 1_000_000_000,
    "full": 6_000_000_000,
}  # an index, with the titles and groups of its pages
EXPANDED, SMALLEST = 10, 1_000_000
"""What is kept of source files, which are packed, takes at most so many times their bytes, or so many bytes."""
SMALL = 100_000_000
"""Bytes of a copy that is compared with what was read of it, however old it looks."""
LOGIN = re.compile(r"\A[^/:@]*:.+@")
"""A login, as the beginning of an address whose http:// is forgotten."""


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
        if self.index is None:
            return None
        return {"scope": self.index, "analyzer": self.analyzer, "engine": self.engine}

    def copies(self, step: str) -> list[str]:
        """The copies that are named of a step's source: of titles before those of the corpus."""
        named = {"topics": [self.topics], "metadata": [self.metadata], "pages": [self.titles, self.corpus]}
        return [copy for copy in named[step] if copy]


@dataclass(frozen=True)
class FetchPlan:
    """What a fetch will do: the steps left, with the files each of them reads."""

    collection: Collection
    options: FetchOptions
    origins: Mapping[Step, Sequence[Origin]]

    @property
    def files(self) -> list[Origin]:
        return [*chain.from_iterable(self.origins.values())]

    @property
    def to_download(self) -> list[tuple[Origin, int | None]]:
        """Files that are not here, with the bytes that are missing (None: not known)."""
        return [(origin, origin.missing) for origin in self.files if not origin.here]

    @property
    def disk_bytes(self) -> int:
        """Space that is needed beside what is taken already: of small source files no more is kept than they hold."""
        needed = KEPT_BYTES + BYTES_PER_WORD * self.options.text_words
        needed += INDEX_BYTES[self.options.index] if self.options.index and "pages" in self.origins else 0
        sizes = [origin.bytes for origin in self.files]
        if None not in sizes:
            needed = min(needed, max(SMALLEST, EXPANDED * sum(size or 0 for size in sizes)))
        return needed + (0 if self.options.stream else sum(missing or 0 for _, missing in self.to_download))


def collection_of(name: str) -> Collection:
    """The collection of a dataset id, with or without split and attribute. Raises UsageError with the nearest id."""
    by_name = {
        dataset_id: collection
        for collection in COLLECTIONS
        for base in (collection.name, collection.short_name)
        for dataset_id in (base, *(f"{base}/{attribute}" for attribute in collection.labels))
    }
    if name not in by_name:
        raise UsageError(
            f"there is nothing to fetch for '{name}'.{did_you_mean(name, by_name)}",
            f"can be fetched: {', '.join(collection.short_name for collection in COLLECTIONS)}, lamp/1 to lamp/7",
        )
    return by_name[name]


def plan_fetch(collection: Collection, options: FetchOptions) -> FetchPlan:
    """The steps left to do; none makes a request. Raises UsageError or MissingExtra for options that cannot work."""
    record = fetch_record(collection)
    if options.index is None and (earlier := record.get("pages", {}).get("index")):
        as_before = {"index": earlier["scope"], "analyzer": earlier["analyzer"], "engine": earlier["engine"]}
        options = replace(options, **as_before)
    _check(collection, options)
    keys = {"metadata": (f"{collection.year}/metadata",), "pages": (f"{collection.year}/docs",)}
    origins: dict[Step, Sequence[Origin]] = {}
    # a step rests on those before it
    for step in dropwhile(lambda step: _is_done(step, collection, record, options), STEPS):
        copies, files_of_step = options.copies(step), keys.get(step, collection.topic_files)
        origins[step] = (
            [given_copy(copies[0])] if copies else [published(k, step == "topics") for k in files_of_step]
        )
    return FetchPlan(collection, options, origins)


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
    if (options.text_words or options.index) and collection.year == 2021:
        distill.textifier()


def _is_done(step: Step, collection: Collection, record: Mapping[str, Any], options: FetchOptions) -> bool:
    """Whether a step was finished, with the copies that are asked for now (if any are), and is as it was left."""
    try:
        done = record[step]
        files.check(collection.folder, FILES[step])
    except (LookupError, OSError, ValueError):
        return False
    used = {secrets.written(source["from"]): source for source in done["sources"]}
    noted = (collection.folder / "fetch.json").stat().st_mtime_ns
    same = all(_is_read(place_of(copy), used, noted) for copy in options.copies(step))
    if step == "metadata":
        return same and (options.index != "full" or done.get("full", False))
    if step == "pages":
        same = same and options.text_words <= done.get("text_words", 0)
        if wanted := options.indexed:
            folder = collection.folder / index_name(wanted["scope"]) / wanted["analyzer"]
            indexed = wanted.items() <= done.get("index", {}).items()
            same = same and indexed and (wanted["engine"] != "tantivy" or folder.is_dir())
    return same


def _is_read(place: str, used: Mapping[str, Mapping[str, Any]], noted: int) -> bool:
    """Whether this copy was read as it is now: by its size, and its md5 where it is small or newer than the note."""
    source, path = used.get(secrets.written(place)), Path(place)
    if source is None or "://" in place or not path.is_file():
        return source is not None
    file = path.stat()
    if source.get("bytes") != file.st_size:
        return False
    return (file.st_size > SMALL and file.st_mtime_ns < noted) or md5_of(path) == source.get("md5")


# Where the source files come from: a copy that the user names, ir_datasets' own, or its addresses


def given_copy(text: str) -> Origin:
    """A copy the user names. Raises UsageError when there is no such file."""
    if "://" in text:
        if not text.startswith(("http://", "https://")):
            raise UsageError(
                f"{secrets.written(text)}: only http and https addresses can be fetched.", "or give a file"
            )
        name = text.partition("?")[0].rstrip("/").rpartition("/")[2] or "download"
        # equal names from two servers stay apart
        folder = hashlib.sha256(secrets.written(text).encode()).hexdigest()[:12]
        return Origin(name, downloads() / folder / name, url=text, temporary=True)
    path = Path(place_of(text))
    if not path.is_file():
        printed = LOGIN.sub(f"{secrets.HIDDEN}@", text)
        raise UsageError(f"{printed}: there is no such file.", "give a path or an http address")
    return Origin(path.name, path)


def published(key: str, keep: bool) -> Origin:
    """A file of ir_datasets' list: its own copy if it holds one, else downloaded; topics to where it looks for them."""
    import ir_datasets

    entry = ir_datasets.util.DownloadConfig.context("trec-fair").contents()[key]
    home = Path(ir_datasets.util.home_path())
    name = Path(entry["cache_path"]).name
    original = home / "trec-fair" / entry["cache_path"]
    for held in (original, home / "downloads" / entry["expected_md5"]):
        if held.is_file():
            return Origin(name, held, entry["url"])
    path = original if keep else downloads() / "trec-fair" / entry["cache_path"]
    return Origin(name, path, entry["url"], entry.get("size_hint"), entry["expected_md5"], temporary=not keep)


def downloads() -> Path:
    return cache_folder() / "downloads"


def place_of(text: str) -> str:
    """The address, or the file behind all links; behind a circle of them none is."""
    return text if "://" in text else os.path.realpath(Path(text).expanduser())


# The steps


def fetch(plan: FetchPlan, progress: DownloadProgress, fill: Fill | None = None) -> dict[str, Any]:
    """Does what the plan says and returns the record of `fetch.json`; `fill` makes the index, where one is asked for.

    Raises LlmfairError when a connection fails for good, an md5 differs, the disk is full or another process is
    fetching; UsageError for a malformed file. The same command continues.
    """
    collection = plan.collection
    if not plan.origins:
        return fetch_record(collection)
    with alone_in(collection.folder):
        free = shutil.disk_usage(collection.folder).free
        if free < plan.disk_bytes:
            raise disk_full(f"{plan.disk_bytes / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free")
        return _run(plan, progress, fill)


def _run(plan: FetchPlan, progress: DownloadProgress, fill: Fill | None) -> dict[str, Any]:
    collection, options = plan.collection, plan.options
    done = fetch_record(collection)
    record: dict[str, Any] = {step: done[step] for step in STEPS if step in done and step not in plan.origins}
    replacing = partial(_note, collection, record)
    for step, origins in plan.origins.items():
        for origin in origins:
            if step == "topics" or not options.stream:
                download(origin, progress)
        match step:
            case "topics":
                counts = _keep_topics(plan, origins, progress, replacing)
            case "metadata":
                lines, full = _lines(origins[0], progress, replacing), options.index == "full"
                wanted, name = _wanted(collection), origins[0].place
                counts = distill.keep_groups(collection.folder, wanted, lines, name, collection.labels, full)
            case "pages":
                counts = _keep_pages(plan, origins[0], _lines(origins[0], progress, replacing), fill)
                if options.indexed:
                    _remove_other_indexes(collection, options.indexed)
        files.note(collection.folder, FILES[step])
        sources = [
            {"name": of.name, "from": secrets.written(of.url or str(of.path)), **of.seen} for of in origins
        ]
        record[step] = {"sources": sources, **counts}
        _note(collection, record)
        for origin in origins:
            if origin.temporary and not options.keep_downloads:
                origin.path.unlink(missing_ok=True)
    return fetch_record(collection)


def _wanted(collection: Collection) -> distill.Pages:
    """The ids of all pages relevant to some topic."""
    return distill.pages_of(read_fetched(collection.folder / TOPICS, list[distill.Topic]))


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
        relevant = ((topic.query_id, page) for topic, pages in rows for page in pages)
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
    judged = ((row.query_id, int(row.doc_id)) for row in dataset.qrels_iter() if row.relevance >= 1)
    return distill.keep_topics(folder, queries, judged)


def _keep_pages(plan: FetchPlan, origin: Origin, lines: Iterator[bytes], fill: Fill | None) -> dict[str, Any]:
    collection, options = plan.collection, plan.options
    folder, wanted, words = collection.folder, _wanted(collection), options.text_words
    if options.titles:
        counts = distill.keep_titles(folder, wanted, lines, origin.place)
        return {**counts, "text_words": words}
    sought = index = text_of = None
    if options.index is not None and fill is not None:
        corpus = origin.md5 or (md5_of(origin.path) if origin.here else secrets.written(origin.url or ""))
        pages = hashlib.sha256(wanted.tobytes()).hexdigest() if options.index == "pool" else "all"
        source = hashlib.sha256(encode([corpus, pages])).hexdigest()
        index = {**(options.indexed or {}), "source": source}
        place = folder / index_name(options.index)
        sought = Sought(place, options.index == "full", partial(fill, source=source))
    if words or sought:
        text_of = distill.wikitext(distill.textifier()) if collection.year == 2021 else distill.PLAIN_TEXT
    counts = distill.keep_pages(folder, wanted, lines, origin.place, text_of, words, sought)
    if index is not None:
        counts["index"] = {**index, "documents": counts.pop("indexed")}
    return {**counts, "text_words": words}


def _remove_other_indexes(collection: Collection, indexed: Mapping[str, str]) -> None:
    """A collection is searched in one way: the record speaks of one index, of one analyzer."""
    for scope in INDEX_BYTES:
        folder = collection.folder / index_name(scope)
        if scope != indexed["scope"]:
            shutil.rmtree(folder, ignore_errors=True)
            continue
        analyzer = indexed["analyzer"] if indexed["engine"] == "tantivy" else None
        for other in folder.glob("*/"):
            if other.name.partition(".")[0] != analyzer:  # or what is left of one that was begun
                shutil.rmtree(other, ignore_errors=True)


def _note(collection: Collection, record: Mapping[str, Any]) -> None:
    content = {"schema": 1, "collection": collection.name, "llmfair": llmfair.__version__, **record}
    write_whole(collection.folder / "fetch.json", [json.dumps(content, indent=1, ensure_ascii=False) + "\n"])
