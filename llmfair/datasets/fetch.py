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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, dropwhile
from pathlib import Path
from typing import Any, Literal

import numpy as np

import llmfair
from llmfair.datasets import distill
from llmfair.datasets.base import cache_folder
from llmfair.datasets.distill import GROUPS, PAGES, TOPICS
from llmfair.datasets.download import (
    DownloadProgress,
    Origin,
    alone_in,
    disk_full,
    download,
    md5_of,
    read_lines,
)
from llmfair.datasets.trec_fair import COLLECTIONS, Collection, fetch_record, index_name, read_fetched
from llmfair.errors import UsageError, did_you_mean
from llmfair.io import files, secrets
from llmfair.io.files import encode, write_whole
from llmfair.nouns import Fill

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
LOGIN = re.compile(r"\A[^/:@]*:.+@")
"""A login, as the beginning of an address whose http:// is forgotten."""
INDEX_BYTES = {"pool": 1_000_000_000, "full": 6_000_000_000}  # an index, with titles and groups of its pages


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
        """Space that is needed beside what is taken already."""
        needed = KEPT_BYTES + BYTES_PER_WORD * self.options.text_words
        needed += INDEX_BYTES[self.options.index] if self.options.index and "pages" in self.origins else 0
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
    if not collection.topic_files and options.topics is None and "topics" not in record:
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
        distill.wikitext()
    keys = {"metadata": (f"{collection.year}/metadata",), "pages": (f"{collection.year}/docs",)}
    origins: dict[Step, Sequence[Origin]] = {}
    # a step rests on those before it
    for step in dropwhile(lambda step: _is_done(step, collection, record, options), STEPS):
        copies, published_files = options.copies(step), keys.get(step, collection.topic_files)
        origins[step] = [given_copy(copies[0])] if copies else [*map(published, published_files)]
    return FetchPlan(collection, options, origins)


def _is_done(step: Step, collection: Collection, record: Mapping[str, Any], options: FetchOptions) -> bool:
    """Whether a step was finished, with the copies that are asked for now (if any are), and is as it was left."""
    try:
        done = record[step]
        files.check(collection.folder, FILES[step])
        kept = [path for name in FILES[step] if (path := collection.folder / name).exists()]
        made = min(path.stat().st_mtime_ns for path in kept)
        sources = {source["from"]: (source["bytes"], source["md5"]) for source in done["sources"]}
    except (LookupError, OSError, TypeError, ValueError):
        return False
    for place in map(place_of, options.copies(step)):
        seen, path = sources.get(secrets.written(place)), Path(place)
        if seen is None:
            return False
        if "://" not in place:  # a file may say otherwise by now
            if not path.is_file() or (facts := path.stat()).st_size != seen[0]:
                return False
            if max(facts.st_mtime_ns, facts.st_ctime_ns) >= made and md5_of(path) != seen[1]:
                return False
    if step == "topics":
        return True
    if step == "metadata":
        return options.index != "full" or bool(done.get("full"))
    if wanted := options.indexed:
        index = collection.folder / index_name(wanted["scope"]) / wanted["analyzer"]
        there = wanted["engine"] != "tantivy" or index.is_dir()
        if not there or not wanted.items() <= done.get("index", {}).items():
            return False
    return bool(options.text_words <= done.get("text_words", 0))


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
        return Origin(name, downloads() / folder / name, url=text)
    path = Path(place_of(text))
    if not path.is_file():
        printed = LOGIN.sub(f"{secrets.HIDDEN}@", text)
        raise UsageError(f"{printed}: there is no such file.", "give a path or an http address")
    return Origin(path.name, path)


def published(key: str) -> Origin:
    """A file of ir_datasets' list: its own copy if it holds one, else downloaded."""
    import ir_datasets

    entry = ir_datasets.util.DownloadConfig.context("trec-fair").contents()[key]
    home, name = Path(ir_datasets.util.home_path()), Path(entry["cache_path"]).name
    for held in (home / "trec-fair" / entry["cache_path"], home / "downloads" / entry["expected_md5"]):
        if held.is_file():
            return Origin(name, held, entry["url"])
    path = downloads() / "trec-fair" / entry["cache_path"]
    return Origin(name, path, entry["url"], entry.get("size_hint"), entry["expected_md5"])


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
    collection, options = plan.collection, plan.options
    folder, record = collection.folder, fetch_record(collection)
    if not plan.origins:
        return record
    record = {step: record[step] for step in STEPS if step in record and step not in plan.origins}

    def note() -> None:
        content = {"schema": 1, "collection": collection.name, "llmfair": llmfair.__version__, **record}
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        write_whole(folder / "fetch.json", [text])

    def lines(origin: Origin, last: bool = True) -> Iterator[bytes]:
        """The lines of a source; what is kept of them is written after the last one, and counts as not done by then."""
        yield from read_lines(origin, progress)
        if last:
            note()

    with alone_in(folder):
        free = shutil.disk_usage(folder).free
        if free < plan.disk_bytes:
            raise disk_full(f"{plan.disk_bytes / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free")
        for step, origins in plan.origins.items():
            for origin in origins if not options.stream else ():
                download(origin, progress)
            first = origins[0]
            wanted = np.empty(0, np.int64)
            if step != "topics":
                wanted = distill.pages_of(read_fetched(folder / TOPICS, list[distill.Topic]))
            match step:
                case "topics":
                    sources = ((of.place, lines(of, of is origins[-1])) for of in origins)
                    counts = distill.keep_topics(folder, sources)
                case "metadata":
                    labels, full = collection.labels, options.index == "full"
                    counts = distill.keep_groups(folder, wanted, lines(first), first.place, labels, full)
                case "pages" if options.titles:
                    counts = distill.keep_pages(folder, wanted, lines(first), first.place, titles=True)
                case "pages":
                    counts = _keep_pages(plan, first, wanted, lines(first), fill)
            if step == "pages":
                counts["text_words"] = options.text_words
                if options.indexed:
                    _remove_other_indexes(collection, options.indexed)
            files.note(folder, FILES[step])
            read = [
                {"name": of.name, "from": secrets.written(of.url or str(of.path)), **of.seen}
                for of in origins
            ]
            record[step] = {"sources": read, **counts}
            note()
            for origin in origins:
                ours = origin.url is not None and origin.path.is_relative_to(downloads())
                if ours and not options.keep_downloads:
                    origin.path.unlink(missing_ok=True)
    return fetch_record(collection)


def _keep_pages(
    plan: FetchPlan, origin: Origin, wanted: distill.Pages, lines: Iterator[bytes], fill: Fill | None
) -> dict[str, Any]:
    collection, options = plan.collection, plan.options
    index = text_of = filling = None
    if options.index is not None and fill is not None:
        corpus = origin.md5 or (md5_of(origin.path) if origin.here else secrets.written(origin.url or ""))
        pages = hashlib.sha256(wanted.tobytes()).hexdigest() if options.index == "pool" else "all"
        source = hashlib.sha256(encode([corpus, pages])).hexdigest()
        index, filling = collection.folder / index_name(options.index), partial(fill, source=source)
    if options.text_words or index:
        text_of = distill.wikitext() if collection.year == 2021 else distill.PLAIN_TEXT
    words, full = options.text_words, options.index == "full"
    counts = distill.keep_pages(
        collection.folder, wanted, lines, origin.place, text_of, words, index, full, filling
    )
    if index:
        counts["index"] = {**(options.indexed or {}), "source": source, "documents": counts.pop("indexed")}
    return counts


def _remove_other_indexes(collection: Collection, indexed: Mapping[str, str]) -> None:
    """A collection is searched in one way: the record speaks of one index, of one analyzer."""
    folder = collection.folder / index_name(indexed["scope"])
    analyzer = indexed["analyzer"] if indexed["engine"] == "tantivy" else None
    others = [collection.folder / index_name(scope) for scope in INDEX_BYTES if scope != indexed["scope"]]
    # or what is left of one that was begun
    others += [other for other in folder.glob("*/") if other.name.partition(".")[0] != analyzer]
    for other in others:
        shutil.rmtree(other, ignore_errors=True)
