"""Fetching a TREC Fair collection: download, distil, remove; every step starts where the one before was left.

Three steps, each noted in `fetch.json` when it is done: topics and relevance, groups (metadata), pages (titles from
the corpus). Addresses, sizes and checksums are those of ir_datasets.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import llmfair
from llmfair import locks, secrets
from llmfair.datasets import distill
from llmfair.datasets.base import cache_folder
from llmfair.datasets.download import DownloadProgress, Origin, Silent, download, read_lines
from llmfair.datasets.keywords import keywords_of
from llmfair.datasets.trec_fair import COLLECTIONS, Collection, fetch_record
from llmfair.errors import LlmfairError, MissingExtra, UsageError, did_you_mean
from llmfair.records import Query
from llmfair.trec import write_whole

Step = Literal["topics", "metadata", "pages"]
STEPS: tuple[Step, ...] = ("topics", "metadata", "pages")
KEPT_BYTES = 100_000_000  # what stays: about 1.5 million titles, groups and 2 million judgements
BYTES_PER_WORD = 5_000_000  # and per word of text kept of each page
CORPUS = {2021: "2021/docs", 2022: "2022/docs"}
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


@dataclass(frozen=True)
class FetchPlan:
    """What a fetch will do: the steps left, with the files each of them reads."""

    collection: Collection
    options: FetchOptions
    origins: Mapping[Step, Sequence[Origin]]

    @property
    def to_download(self) -> list[tuple[Origin, int | None]]:
        """Files that are not here, with the bytes that are missing (None: not known)."""
        files = (origin for origins in self.origins.values() for origin in origins)
        return [(origin, origin.missing) for origin in files if not origin.here]

    @property
    def disk_bytes(self) -> int:
        """Space that is needed on top of what is taken already."""
        kept = KEPT_BYTES + BYTES_PER_WORD * self.options.text_words
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
    _check(collection, options)
    record = fetch_record(collection)
    left: list[Step] = [step for step in STEPS if not _is_done(step, record, options)]
    left = [*STEPS[STEPS.index(left[0]) :]] if left else []  # a step rests on those before it
    return FetchPlan(collection, options, {step: _origins(step, collection, options) for step in left})


def _check(collection: Collection, options: FetchOptions) -> None:
    if not collection.topic_files and options.topics is None and "topics" not in fetch_record(collection):
        raise UsageError(
            f"the topics of {collection.name} are published by NIST only.",
            f"{collection.fetch_command}    with trec_2022_eval_reldocs.jsonl.gz, downloaded by hand",
        )
    if options.titles and (options.text_words or options.corpus):
        raise UsageError(
            "--titles replaces the corpus, so there is no text.", "leave --text-words and --corpus out"
        )
    if options.text_words < 0:
        raise UsageError(f"--text-words {options.text_words} is negative.", "0 keeps no text")
    if options.text_words and collection.year == 2021:
        _textify()


def _textify() -> Any:
    try:
        import pyautocorpus
    except ImportError:
        raise MissingExtra(
            "the articles of 2021 are wikitext; plain text of them needs pyautocorpus.",
            "pip install 'ir_datasets[pyautocorpus]'    titles alone need nothing: leave --text-words out",
        ) from None
    return pyautocorpus.Textifier().textify


def _is_done(step: Step, record: Mapping[str, Any], options: FetchOptions) -> bool:
    """Whether a step was finished, with the copies that are asked for now (if any are)."""
    if step not in record:
        return False
    asked = {
        "topics": (options.topics,),
        "metadata": (options.metadata,),
        "pages": (options.corpus, options.titles),
    }[step]
    used = [secrets.written(source["from"]) for source in record[step]["sources"]]
    same = all(given is None or secrets.written(_place(given)) in used for given in asked)
    return same and (step != "pages" or options.text_words <= record[step]["text_words"])


def _place(given: str) -> str:
    return given if "://" in given else str(Path(given).expanduser().resolve())


# Where the files come from


def _origins(step: Step, collection: Collection, options: FetchOptions) -> list[Origin]:
    given = {
        "topics": options.topics,
        "metadata": options.metadata,
        "pages": options.titles or options.corpus,
    }[step]
    if given:
        return [_given(given)]
    keys = {
        "topics": collection.topic_files,
        "metadata": (METADATA[collection.year],),
        "pages": (CORPUS[collection.year],),
    }[step]
    return [_published(key, keep=step == "topics") for key in keys]


def _given(text: str) -> Origin:
    """A copy the user names. Raises UsageError when there is no such file."""
    if "://" in text:
        if not text.startswith(("http://", "https://")):
            raise UsageError(
                f"{secrets.written(text)}: only http and https addresses can be fetched.", "or give a file"
            )
        name = text.partition("?")[0].rstrip("/").rpartition("/")[2] or "download"
        folder = hashlib.sha256(secrets.written(text).encode()).hexdigest()[
            :12
        ]  # equal names from two servers stay apart
        return Origin(name, _downloads() / folder / name, url=text, temporary=True)
    path = Path(_place(text))
    if not path.is_file():
        raise UsageError(f"{text}: there is no such file.", "give a path or an http address")
    return Origin(path.name, path)


def _published(key: str, keep: bool) -> Origin:
    """A file of ir_datasets' list: its own copy if it holds one, else downloaded; topics to where it looks for them."""
    import ir_datasets

    entry = ir_datasets.util.DownloadConfig.context("trec-fair").contents()[key]
    home = Path(ir_datasets.util.home_path())
    name = Path(entry["cache_path"]).name
    own = home / "trec-fair" / entry["cache_path"]
    for held in (own, home / "downloads" / entry["expected_md5"]):
        if held.is_file():
            return Origin(name, held, entry["url"])
    path = own if keep else _downloads() / "trec-fair" / entry["cache_path"]
    return Origin(name, path, entry["url"], entry.get("size_hint"), entry["expected_md5"], temporary=not keep)


def _downloads() -> Path:
    return cache_folder() / "downloads"


# The steps


def fetch(plan: FetchPlan, progress: DownloadProgress | None = None) -> dict[str, Any]:
    """Does what the plan says and returns the record of `fetch.json`.

    Raises LlmfairError when a connection fails for good, an md5 differs, the disk is full or another process is
    fetching; UsageError for a malformed file. The same command continues.
    """
    collection, watch = plan.collection, progress or Silent()
    if not plan.origins:
        return fetch_record(collection)
    with alone_in(collection.folder):
        free = shutil.disk_usage(collection.folder).free
        if free < plan.disk_bytes:
            raise _disk_full(f"{plan.disk_bytes / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free")
        return _run(plan, watch)


def _run(plan: FetchPlan, progress: DownloadProgress) -> dict[str, Any]:
    done = fetch_record(plan.collection)
    record: dict[str, Any] = {step: done[step] for step in STEPS if step in done and step not in plan.origins}
    for step, origins in plan.origins.items():
        for origin in origins:
            if step == "topics" or not plan.options.stream:
                download(origin, progress)
        counts = _KEEP[step](plan, origins, progress)
        record[step] = {"sources": [_source(origin) for origin in origins], **counts}
        _note(plan.collection, record)
        for origin in origins:
            if origin.temporary and not plan.options.keep_downloads:
                origin.path.unlink(missing_ok=True)
    return fetch_record(plan.collection)


def _keep_topics(plan: FetchPlan, origins: Sequence[Origin], progress: DownloadProgress) -> dict[str, Any]:
    folder = plan.collection.folder
    if plan.options.topics:
        rows = distill.topic_rows(read_lines(origins[0], progress), origins[0].place)
        relevant = ((topic.query_id, str(page)) for topic, pages in rows for page in pages)
        return distill.keep_topics(folder, [topic for topic, _ in rows], relevant)
    import ir_datasets

    for origin in origins:
        for _ in read_lines(origin, progress):
            pass  # for its md5; ir_datasets reads the rows
    dataset = ir_datasets.load(plan.collection.name)
    queries = (
        Query(query.query_id, query.text, keywords_of(getattr(query, "keywords", ())))
        for query in dataset.queries_iter()
    )
    judged = ((row.query_id, row.doc_id) for row in dataset.qrels_iter() if row.relevance >= 1)
    return distill.keep_topics(folder, queries, judged)


def _keep_groups(plan: FetchPlan, origins: Sequence[Origin], progress: DownloadProgress) -> dict[str, Any]:
    folder, (origin,) = plan.collection.folder, origins
    lines = read_lines(origin, progress)
    return distill.keep_groups(
        folder, distill.wanted_pages(folder), lines, origin.place, plan.collection.labels
    )


def _keep_pages(plan: FetchPlan, origins: Sequence[Origin], progress: DownloadProgress) -> dict[str, Any]:
    folder, (origin,), words = plan.collection.folder, origins, plan.options.text_words
    wanted, lines = distill.wanted_pages(folder), read_lines(origin, progress)
    if plan.options.titles:
        counts = distill.keep_titles(folder, wanted, lines, origin.place)
    else:
        text_of = None
        if words:
            is_2021 = plan.collection.year == 2021
            text_of = distill.wikitext(words, _textify()) if is_2021 else distill.plain_text(words)
        counts = distill.keep_pages(folder, wanted, lines, origin.place, text_of)
    with (folder / "pages.jsonl.gz").open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return {**counts, "text_words": words, "sha256": sha256}


_KEEP = {"topics": _keep_topics, "metadata": _keep_groups, "pages": _keep_pages}


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
    lock = os.open(folder.parent / ".fetch.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not locks.lock(lock, folder.parent):
            raise LlmfairError(
                f"another process is fetching into {folder.parent}.",
                "wait for it; the same command then continues",
            )
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        free = shutil.disk_usage(folder).free
        raise _disk_full(f"no space left, {free / 1e9:.1f} GB free") from None
    finally:
        os.close(lock)


def _disk_full(what: str) -> LlmfairError:
    return LlmfairError(
        f"the disk is full: {what} under {cache_folder()}.",
        "free some or move the folder with LLMFAIR_CACHE_DIR, then repeat the command: it continues; "
        "--stream keeps no copy of a corpus",
    )
