"""Fetching a TREC Fair collection: download, distil, remove; every step starts where the one before was left.

Three steps, each noted in `fetch.json` when it is done: topics and relevance, groups (metadata), pages (titles from
the corpus). What was fetched before stays as it is until a step has read all its sources; from then on, before the
first file is replaced, that step and those after it are noted as not done. Addresses, sizes and checksums are those of
ir_datasets. A source file is downloaded from where it stopped, compared with its md5, hashed and counted as it is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from io import BufferedReader, RawIOBase
from itertools import chain, dropwhile
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import unquote, urljoin, urlsplit

import llmfair
from llmfair.datasets import pages as stored
from llmfair.datasets.base import cache_folder
from llmfair.datasets.pages import GROUPS, PAGES, TOPICS
from llmfair.datasets.trec_fair import COLLECTIONS, Collection, fetch_record, index_name, read_fetched
from llmfair.errors import LlmfairError, UsageError, did_you_mean, line_of
from llmfair.io import files, secrets
from llmfair.io.files import DAMAGE, FULL, LONGEST_LINE, clear, encode, itself, opened, unpacked, write_whole
from llmfair.io.net import Client, Stream, Transient, is_http_address, wait
from llmfair.nouns import Fill

# Source files


BLOCK = 1 << 16
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)  # seconds before the next attempt; so much that is new starts them anew:
LEAST = 10_000
TIMEOUT = 60.0
REDIRECTS, MOST_REDIRECTS = {301, 302, 303, 307, 308}, 10
ELSEWHERE = "another copy can be named: --topics, --metadata, --corpus, or --data DIR of an audit of lamp/N"
LONGEST = 2 * LONGEST_LINE  # all relevant pages of a topic stand in one line


class DownloadProgress(Protocol):
    """Hears what is going on; the command shows it as bars."""

    def step(self, name: str, total: int | None, done: int = 0) -> None:
        """A new step of `total` bytes, of which `done` lie there already."""

    def advance(self, count: int) -> None:
        """`count` more bytes of the step."""


@dataclass
class Origin:
    """A source file: where it lies or will lie, and the URL to get it from when it is not there."""

    name: str
    path: Path
    url: str | None = None
    size: int | None = None
    md5: str | None = None
    seen: dict[str, Any] = field(default_factory=dict)
    """What was read in the end: `bytes` and `md5`."""

    @property
    def part(self) -> Path:
        return self.path.with_name(self.path.name + ".part")

    @property
    def here(self) -> bool:
        return self.url is None or self.path.is_file()

    @property
    def place(self) -> str:
        """Where it is read, for messages."""
        return str(self.path) if self.here else secrets.written(self.url)

    @property
    def bytes(self) -> int | None:
        """How long the file is; None when that is not known."""
        return self.path.stat().st_size if self.here else self.size

    @property
    def missing(self) -> int | None:
        """Bytes still to be downloaded; None when the size is not known."""
        if self.here:
            return 0
        if self.size is None:
            return None
        return max(self.size - (self.part.stat().st_size if self.part.is_file() else 0), 0)


def download(origin: Origin, progress: DownloadProgress) -> None:
    """Gets a file that is not here, from its last byte on.

    Raises LlmfairError when the connection fails for good, or when the md5 differs (the file is kept as NAME.bad).
    """
    if origin.url is None or origin.here:
        return
    origin.path.parent.mkdir(parents=True, exist_ok=True)
    with open(origin.part, "ab", opener=itself) as file:
        have = file.tell()
        progress.step(f"{origin.name}: download", origin.size, have)
        for block in blocks(origin.url, have):
            file.write(block)
            file.flush()  # a killed process then loses no more than a block
            progress.advance(len(block))
        os.fsync(file.fileno())
    if origin.md5 and (digest := md5_of(origin.part)) != origin.md5:
        bad = origin.path.with_name(origin.path.name + ".bad")
        origin.part.replace(bad)
        raise LlmfairError(_differs(origin, digest), f"kept as {bad}; the same command downloads it anew")
    origin.part.replace(origin.path)


def md5_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, partial(hashlib.md5, usedforsecurity=False)).hexdigest()


def blocks(url: str, start: int) -> Iterator[bytes]:
    """The bytes of a URL from `start` on; a broken connection continues where it broke.

    A server that ignores Range sends everything again, and what is known of it is skipped. Raises LlmfairError
    when the server refuses or says what no server does, or after five attempts with less than `LEAST` new bytes.
    """
    position, failures, place = start, 0, secrets.written(url)
    while True:
        before = position
        try:
            with _reply(url, position, place) as reply:
                if reply.status == 416:
                    return  # nothing lies beyond what is known: the file was complete already
                if reply.status >= 500 or reply.status in (408, 429):
                    raise Transient(f"{reply.status}")
                if not 200 <= reply.status < 300:
                    raise LlmfairError(f"{place}: the server answers {reply.status}.", ELSEWHERE)
                skip = 0 if reply.status == 206 else position
                if not skip and position:
                    part = reply.headers.get("Content-Range", "")
                    if not part.startswith(f"bytes {position}-"):
                        raise LlmfairError(
                            f"{place}: the server sends another part than was asked for.", ELSEWHERE
                        )
                size = reply.headers.get("Content-Length")
                end = None if size is None else position - skip + int(size)
                for received in reply.blocks:
                    block = received[skip:]
                    skip -= min(skip, len(received))
                    if block:
                        position += len(block)
                        yield block
            if skip == 0 and (end is None or position >= end):
                return
            why = f"the connection ended after {position:,} bytes"
        except Transient as failure:
            why = failure.cause
        failures = 0 if position - before >= LEAST else failures
        if failures == len(PAUSES):
            raise LlmfairError(
                f"{place}: {secrets.said(why)}.", "the same command continues where it stopped"
            )
        time.sleep(PAUSES[failures])
        failures += 1


@contextmanager
def _reply(url: str, start: int, place: str) -> Iterator[Stream]:
    """The reply from byte `start` on, wherever it is redirected to; a login goes to the host of the address alone."""
    headers = {"user-agent": f"llmfair/{llmfair.__version__}", "accept-encoding": "identity"}
    if start:
        headers["range"] = f"bytes={start}-"
    address = ""
    for hop in range(MOST_REDIRECTS):
        try:
            parts = urlsplit(urljoin(address, url))
        except ValueError:
            parts = urlsplit("")
        who, _, host = parts.netloc.rpartition("@")
        address, who = parts._replace(netloc=host).geturl(), unquote(who)
        if not is_http_address(address):
            raise LlmfairError(f"{place}: leads to what is no address.", ELSEWHERE)
        login = {"authorization": f"Basic {b64encode(who.encode()).decode()}"} if who and not hop else {}
        client = Client("the server", address, {**headers, **login}, TIMEOUT, 0)
        try:
            with client.open(address, unpack=False) as reply:
                if reply.status not in REDIRECTS or "location" not in reply.headers:
                    yield reply
                    return
                url = reply.headers["location"]
        finally:
            wait(client.close())
    raise LlmfairError(f"{place}: the server redirects without end.", ELSEWHERE)


class Blocks(RawIOBase):
    """Blocks as a file, which says how many bytes were read of it, and their md5."""

    def __init__(self, blocks: Iterator[bytes], progress: DownloadProgress) -> None:
        self.blocks, self.progress, self.rest = blocks, progress, memoryview(b"")
        self.md5, self.size = hashlib.md5(usedforsecurity=False), 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size - len(self.rest)

    def readinto(self, buffer: Any) -> int:
        while len(self.rest) < 6 and (block := next(self.blocks, b"")):  # by so many a packed file is known
            self.rest = memoryview(bytes(self.rest) + block)
            self.md5.update(block)
            self.size += len(block)
            self.progress.advance(len(block))
        taken, self.rest = self.rest[: len(buffer)], self.rest[len(buffer) :]
        buffer[: len(taken)] = taken
        return len(taken)


def read_lines(origin: Origin, progress: DownloadProgress) -> Iterator[bytes]:
    """The lines of a source file without their ends, packed or plain, from disk or straight from its URL.

    Then its size and md5 stand in `seen`. Raises, before it ends, UsageError for a damaged file or an endless line, and
    LlmfairError when the md5 is not the expected one.
    """
    progress.step(f"{origin.name}: read", origin.bytes)
    with opened(origin.path) if origin.here else nullcontext() as file:
        received = blocks(origin.url or "", 0) if file is None else iter(partial(file.read, BLOCK), b"")
        source = Blocks(received, progress)
        raw = BufferedReader(source, BLOCK)
        try:
            for number, line in enumerate(
                iter(partial(unpacked(raw, origin.place).readline, LONGEST), b""), start=1
            ):
                if len(line) >= LONGEST:
                    what = f"longer than {LONGEST >> 20} MB."
                    raise UsageError(f"{origin.place}:{number}: {what}", "one JSON object a line")
                yield line.rstrip(b"\n")
            while raw.read(BLOCK):  # zeros that pad a packed file belong to it
                pass
        except DAMAGE as error:
            why = getattr(error, "strerror", None) or f"not a complete packed file: {line_of(error)}"
            raise UsageError(f"{origin.place}: {why}.", "get another copy of it") from None
    digest = source.md5.hexdigest()
    if origin.md5 and digest != origin.md5:
        remove = f"remove {origin.path} and " if origin.here else ""
        raise LlmfairError(_differs(origin, digest), f"{remove}repeat the command")
    origin.seen = {"bytes": source.size, "md5": digest}


def _differs(origin: Origin, digest: str) -> str:
    return f"{origin.name}: its md5 is {digest}, expected {origin.md5}."


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """A folder to fetch into, held against a second fetch, which would write into the same files.

    Raises UsageError if it cannot be made, LlmfairError if another process holds it or the disk is full.
    """
    with files.writing(folder, "name another folder in LLMFAIR_CACHE_DIR"):
        folder.mkdir(parents=True, exist_ok=True)
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


# The plan: the steps left


Step = Literal["topics", "metadata", "pages"]
Scope = Literal["pool", "full"]
"""Which pages are indexed: those that are relevant to some topic, or all."""
FILES: Mapping[Step, Sequence[str]] = {
    "topics": (TOPICS,),
    "metadata": (GROUPS,),
    "pages": (PAGES, f"{index_name('full')}/{PAGES}"),
}
"""What each step, in their order, leaves in the folder of its collection."""
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
        scope, analyzer, engine = earlier["scope"], earlier["analyzer"], earlier["engine"]
        options = replace(options, index=scope, analyzer=analyzer, engine=engine)
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
        stored.wikitext()
    keys = {"metadata": (f"{collection.year}/metadata",), "pages": (f"{collection.year}/docs",)}
    origins: dict[Step, Sequence[Origin]] = {}
    # a step rests on those before it
    for step in dropwhile(lambda step: _is_done(step, collection, record, options), FILES):
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
    record = {step: record[step] for step in FILES if step in record and step not in plan.origins}

    def note() -> None:
        content = {"schema": 1, "collection": collection.name, "llmfair": llmfair.__version__, **record}
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        write_whole(folder / "fetch.json", [text])

    def lines(origin: Origin) -> Iterator[bytes]:
        """The lines of a source; what is kept of them is written after the last one, and counts as not done by then."""
        yield from read_lines(origin, progress)
        if origin is origins[-1]:
            note()

    with alone_in(folder):
        free = shutil.disk_usage(folder).free
        if free < plan.disk_bytes:
            raise disk_full(f"{plan.disk_bytes / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free")
        for step, origins in plan.origins.items():
            for origin in origins if not options.stream else ():
                download(origin, progress)
            if step == "topics":
                counts = stored.keep_topics(folder, ((of.place, lines(of)) for of in origins))
            else:
                (origin,) = origins
                wanted = stored.pages_of(read_fetched(folder / TOPICS, list[stored.Topic]))
                if step == "metadata":
                    labels, full = collection.labels, options.index == "full"
                    counts = stored.keep_groups(folder, wanted, lines(origin), origin.place, labels, full)
                else:
                    counts = _keep_pages(plan, origin, wanted, lines(origin), fill)
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
    plan: FetchPlan, origin: Origin, wanted: stored.Pages, lines: Iterator[bytes], fill: Fill | None
) -> dict[str, Any]:
    """Titles, or articles and their index, in place of any other: the record speaks of one, of one analyzer."""
    collection, options = plan.collection, plan.options
    index = filling = None
    if options.index is not None and fill is not None:
        corpus = origin.md5 or (md5_of(origin.path) if origin.here else secrets.written(origin.url or ""))
        which = hashlib.sha256(wanted.tobytes()).hexdigest() if options.index == "pool" else "all"
        source = hashlib.sha256(encode([corpus, which])).hexdigest()
        index, filling = collection.folder / index_name(options.index), partial(fill, source=source)
    from_markup = collection.year == 2021 and (options.text_words or index)
    text_of = stored.wikitext() if from_markup else stored.PLAIN_TEXT
    counts = stored.keep_pages(
        collection.folder, wanted, lines, origin.place, text_of, options.text_words, index,
        options.index == "full", filling, bool(options.titles),
    )  # fmt: skip
    indexed = counts.pop("indexed")
    if index:
        counts["index"] = {**(options.indexed or {}), "source": source, "documents": indexed}
        analyzer = options.analyzer if options.engine == "tantivy" else None
        others = [collection.folder / index_name(scope) for scope in INDEX_BYTES if scope != options.index]
        # or what is left of one that was begun
        beside = index.glob("*/")
        for other in (*others, *(of for of in beside if of.name.partition(".")[0] != analyzer)):
            shutil.rmtree(other, ignore_errors=True)
    return {**counts, "text_words": options.text_words}
