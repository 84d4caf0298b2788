"""TREC Fair Ranking 2021 and 2022: topics, relevant Wikipedia pages and their groups, as `datasets fetch` left them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from msgspec import convert
from numpy.typing import NDArray

from llmfair.datasets.attributes import read_attributes, shipped_attributes
from llmfair.datasets.base import by_side, cache_folder
from llmfair.datasets.files import Pools
from llmfair.datasets.pages import KIND, PAGES, TOPICS, PageStore, PageValues, Topic, damaged
from llmfair.errors import UsageError, line_of
from llmfair.io import files
from llmfair.nouns import Attribute, Document, Query, Side, StoredIndex
from llmfair.registry import register

# How many topics the lists of "Do Large Language Models Rank Fairly?" (2024) came from
PAPER_QUERIES = {"trec-fair/2021/location": 57, "trec-fair/2022/gender": 44, "trec-fair/2022/location": 50}
T = TypeVar("T")
LICENCE = (
    "topics, relevance and labels MIT (TREC Fair Ranking track); titles and text CC BY-SA 3.0 (Wikipedia)"
)


@dataclass(frozen=True)
class Collection:
    """A year and split: one fetch serves all its datasets."""

    year: int
    split: str
    queries: int
    gigabytes: float
    """What a fetch downloads; exact sizes come with the addresses."""
    labels: Mapping[str, str]
    """Attribute -> field of the metadata file."""
    topic_files: tuple[str, ...]
    """Names in ir_datasets' list of downloads; none: published by NIST alone."""
    published_at: str = ""
    """NIST's address of such a file."""
    unscored: tuple[str, ...] = ()
    """Topics that the track's official results leave out."""

    @property
    def name(self) -> str:
        return f"trec-fair/{self.year}/{self.split}"

    @property
    def short_name(self) -> str:
        return self.name.removesuffix("/train")

    @property
    def folder(self) -> Path:
        return cache_folder() / "datasets" / self.name.replace("/", "-")

    @property
    def fetch_command(self) -> str:
        """What fetches it, or anew what is gone of it, with the index that it had."""
        topics = "" if self.topic_files else f" --topics {self.published_at}"
        return f"llmfair datasets fetch {self.short_name}{topics}"


_2021 = {"location": "geographic_locations"}
_2022 = {"gender": "gender", "location": "page_subcont_regions"}
COLLECTIONS = (
    Collection(2021, "train", 57, 15.64, _2021, ("2021/train/topics",)),
    Collection(2021, "eval", 49, 15.63, _2021, ("2021/eval/topics", "2021/eval/qrels")),
    Collection(2022, "train", 50, 7.93, _2022, ("2022/train/topics",)),
    Collection(
        2022, "eval", 50, 7.91, _2022, (),
        published_at="https://trec.nist.gov/data/fair/trec_2022_eval_reldocs.jsonl.gz",
        unscored=("1449", "1499", "1685"),
    ),
)  # fmt: skip


def unscored_topics(dataset: str) -> Sequence[str]:
    """Topics of a dataset, by its name, that the track's official results leave out."""
    return next((of.unscored for of in COLLECTIONS if dataset.startswith(f"{of.name}/")), ())


# The datasets


class TrecFair:
    """One attribute of a fetched collection, as a source that candidate lists are drawn from (`buckets.draw`).

    Raises UsageError with the fetch command, its download and disk space, when what is asked was never fetched.
    """

    has_lists = False
    prompt = "wikiproject"

    def __init__(self, collection: Collection, attribute: str) -> None:
        self.collection = collection
        self.name = f"{collection.short_name}/{attribute}"
        self._attribute = attribute

    @cached_property
    def attributes(self) -> Sequence[Attribute]:
        return [read_attributes(shipped_attributes())[self._attribute]]

    @cached_property
    def topics(self) -> Sequence[Query]:
        return [Query(topic.query_id, topic.text, tuple(topic.keywords)) for topic in self._topics]

    def relevant(self, query_id: str) -> Sequence[str]:
        return [str(page_id) for page_id in self._relevance[query_id].tolist()]

    def grades(self, query_id: str, doc_ids: Iterable[str]) -> Mapping[str, int]:
        """Every judgement of the track is 1."""
        return dict.fromkeys(doc_ids, 1)

    def sides(self, attribute: Attribute) -> Mapping[str, Side]:
        return self._pages.sides(attribute)

    def pools(self, attribute: Attribute) -> Pools:
        pages = self._pages
        on = pages.on(attribute)
        return Pools(pages.ids, {side: on[side] & pages.titled for side in Side}, self._places)

    def relevant_groups(self, query_id: str) -> Sequence[tuple[Mapping[str, tuple[str, ...]], int]]:
        pages = self._pages
        counts = pages.counts(self._places[query_id])
        return [(groups, n) for groups, n in zip(pages.combinations, counts, strict=True) if n]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the record of the fetch, which names every source by its own sum."""
        record = files.content(self._fetched("pages", "fetch.json"), files.MOST_RECORDED)
        return hashlib.sha256(self.name.encode() + record).hexdigest()

    def load(self, doc_ids: Iterable[str]) -> Mapping[str, Document]:
        return {doc_id: self._pages[doc_id] for doc_id in sorted({*doc_ids}) if doc_id in self._pages}

    # As a collection that is searched

    @cached_property
    def documents(self) -> PageStore:
        """All pages that were indexed. Raises UsageError when none was."""
        if (scope := self._indexed["scope"]) == "pool":
            return self._pages
        return PageStore(self._fetched("pages", f"{index_name(scope)}/{PAGES}"))

    @cached_property
    def index(self) -> StoredIndex:
        """The index of its documents. Raises UsageError when there is none."""
        indexed, analyzer = self._indexed, self._indexed["analyzer"]
        folder = self.collection.folder / index_name(indexed["scope"])
        command = self.collection.fetch_command
        return StoredIndex(indexed["engine"], folder / analyzer, indexed["source"], command, analyzer)

    @cached_property
    def judged(self) -> Mapping[str, PageValues[int]]:
        """The relevant pages of every topic, all with grade 1."""
        relevance = self._relevance.items()
        return {of: PageValues(pages, np.zeros(len(pages), dtype=np.uint8), (1,)) for of, pages in relevance}

    @property
    def relevant_counts(self) -> Mapping[str, Mapping[str, int]]:
        """By topic, how many of its relevant pages have each combination of groups, by its document's id."""
        documents, counted = self.documents, {}
        for query_id, pages in self._relevance.items():
            counts = documents.counts(documents.places(pages))
            counted[query_id] = {f"{KIND}{code}": count for code, count in enumerate(counts) if count}
        return counted

    def describe_searched(self) -> dict[str, Any]:
        """Facts of a collection that is searched, of which no page has to be looked at."""
        return {"licence": LICENCE, "topics": len(self.topics), "fetch": fetch_record(self.collection)}

    @property
    def _indexed(self) -> dict[str, Any]:
        indexed: dict[str, Any] | None = fetch_record(self.collection).get("pages", {}).get("index")
        if indexed is None:
            self._fetched("pages", "")
            raise UsageError(
                f"{self.name} cannot be searched: its pages were fetched without an index.",
                f"{self.collection.fetch_command} --index pool",
            )
        return indexed

    def describe(self) -> dict[str, Any]:
        """Licence, topics, pages by side and without one (unknown, mixed, other), and the record of the fetch."""
        pages = self._pages
        kinds, counts = pages.of_each_kind(), pages.counts(np.arange(len(pages)))
        on = {attribute.name: by_side(attribute, kinds, counts) for attribute in self.attributes}
        return self.describe_searched() | {
            "paper_queries": PAPER_QUERIES.get(self.name),
            "pages": {"relevant": len(pages), "without title": int((~pages.titled).sum())} | on,
        }

    def listing(self) -> dict[str, Any]:
        """What `datasets list` says, without reading any data."""
        folder, fetched = self.collection.folder, "pages" in fetch_record(self.collection)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if fetched else 0
        return {
            "attributes": [self._attribute],
            "queries": self.collection.queries,
            "size": f"{size / 1e6:,.0f} MB" if fetched else f"{self.collection.gigabytes:.1f} GB to fetch",
            "fetched": fetched,
        }

    @cached_property
    def _topics(self) -> list[Topic]:
        return read_fetched(self._fetched("topics", TOPICS), list[Topic])

    @cached_property
    def _relevance(self) -> dict[str, NDArray[np.int64]]:
        """By topic, its relevant pages; ids ascending."""
        return {topic.query_id: np.array(topic.relevant, dtype=np.int64) for topic in self._topics}

    @cached_property
    def _places(self) -> dict[str, NDArray[np.intp]]:
        """By topic, where its relevant pages stand among all of them; ascending."""
        return {query_id: self._pages.places(pages) for query_id, pages in self._relevance.items()}

    @cached_property
    def _pages(self) -> PageStore:
        return PageStore(self._fetched("pages", PAGES))

    def _fetched(self, step: str, file: str) -> Path:
        """A file of the collection's folder. Raises UsageError where its step is not done, and for another file."""
        collection = self.collection
        record = fetch_record(collection)
        if step in record:
            try:
                files.check(collection.folder, [file])
            except (OSError, ValueError) as error:
                raise UsageError(
                    f"{collection.folder / file} cannot be used: {line_of(error)}.",
                    f"{collection.fetch_command}    fetches it again",
                ) from None
            return collection.folder / file
        state = "not fetched completely" if record else "never fetched"
        raise UsageError(
            f"dataset '{self.name}' was {state}.",
            f"{collection.fetch_command}    downloads {collection.gigabytes:.1f} GB once, needs "
            f"{collection.gigabytes + 0.3:.1f} GB of disk meanwhile and about 0.3 GB afterwards",
        )


def index_name(scope: str) -> str:
    """The folder of a collection's index; of all pages, also for what is known of them."""
    return f"index-{scope}"


def read_fetched(path: Path, of: type[T]) -> T:
    """What such a file says, as this type. Raises UsageError."""
    try:
        return convert(files.decode(files.content(path)), of)
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path, error) from None


def fetch_record(collection: Collection) -> dict[str, Any]:
    """What `fetch.json` says of each finished step; empty when nothing was fetched. Raises UsageError."""
    path = collection.folder / "fetch.json"
    return read_fetched(path, dict[str, Any]) if os.path.lexists(path) else {}


for _collection in COLLECTIONS:
    for _attribute in _collection.labels:
        _make = partial(TrecFair, _collection, _attribute)
        register("dataset", f"{_collection.short_name}/{_attribute}")(_make)
