"""What a dataset is: queries, the documents to rank for each, who belongs to which group."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, Protocol

from llmfair import registry
from llmfair.datasets.attributes import by_pairs
from llmfair.datasets.files import DataOptions, read_folder
from llmfair.errors import UsageError, did_you_mean
from llmfair.io.files import beside, encode
from llmfair.io.tables import FORMS, form_of, is_table
from llmfair.io.trec import DECLARATION
from llmfair.nouns import (
    CROSSED,
    Attribute,
    Candidates,
    Document,
    ManyDocuments,
    MixedPolicy,
    Qrels,
    Query,
    Side,
    StoredIndex,
)

FOUR_FILES = (
    "your own folder (docs.jsonl, queries.tsv, qrels.txt, groups.tsv) or table (.csv, .parquet …) works too"
)


def cache_folder() -> Path:
    """Where fetched data and cached answers are kept: LLMFAIR_CACHE_DIR, else XDG_CACHE_HOME/llmfair, else ~/.cache."""
    if folder := os.environ.get("LLMFAIR_CACHE_DIR"):
        return Path(folder).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llmfair"


class Dataset(Protocol):
    """A source of ranking questions."""

    @property
    def name(self) -> str: ...

    @property
    def prompt(self) -> str:
        """Which wording of prompts its items call for, unless the user names another (`prompts.WORDINGS`)."""

    @property
    def queries(self) -> Sequence[Query]:
        """Queries with at least two candidates, in the dataset's order."""

    @property
    def qrels(self) -> Qrels: ...

    @property
    def documents(self) -> Mapping[str, Document]: ...

    @property
    def attributes(self) -> Sequence[Attribute]:
        """The attributes its documents have groups of; the first is the default."""

    def candidates(self, query: Query) -> Candidates:
        """The list to rank, in the order the dataset gives it."""

    @property
    def stand_ins(self) -> Mapping[str, Document]:
        """Of drawn lists: one document for each combination of groups among all relevant ones."""

    @property
    def relevant_counts(self) -> Mapping[str, Mapping[str, int]]:
        """Of drawn lists: how many of a query's relevant documents each stands for."""

    def describe(self) -> dict[str, Any]:
        """Facts for `datasets show`, beyond those `facts` counts for every dataset."""


class GroupedDocuments(Protocol):
    """Documents of which the groups are known."""

    @property
    def name(self) -> str: ...

    @property
    def attributes(self) -> Sequence[Attribute]: ...

    def sides(self, attribute: Attribute) -> Mapping[str, Side]:
        """The side of every document whose title and side are known; at least of those relevant to a query."""


def load_dataset(name: Any, options: DataOptions | None = None) -> Any:
    """A Dataset, or a source to draw one from (`buckets.draw`), by id; a user's own folder or table is both.

    `name` may be a table in memory: a frame, or rows as a list of dicts. Raises UsageError with the nearest ids, and
    for what is given and says nothing of such data.
    """
    from llmfair.datasets.tables import hub_table, ir_collection, stored_frame, table_of

    options = options or DataOptions()
    if is_table(name):
        name = stored_frame(name)
    if not isinstance(name, str | Path):
        raise UsageError(
            f"{type(name).__name__} is no dataset.", "its name, its path, a frame, or rows as dicts"
        )
    path, name = Path(name), str(name)
    collection, hub = name.startswith("irds:"), name.startswith("hf:")
    table = hub or (form_of(path) is not None and path.is_file())
    for flag, value, fits, of in (
        ("columns", options.columns, table, "tables"),
        ("attributes", options.attributes, table or collection, "tables and collections"),
        ("groups", options.groups, collection, "collections of ir_datasets"),
        ("run", options.run, collection, "collections of ir_datasets"),
    ):
        if value and not fits and (form_of(path) is None or path.exists()):
            raise UsageError(f"--{flag} is said of {of}, and {name} is none.", "leave it out")
    if collection:
        return ir_collection(name, options, cache_folder() / "indexes")
    if table:
        return hub_table(name, options) if hub else table_of(path, options)
    if registry.has("dataset", name):
        return registry.lookup("dataset", name)()
    if path.is_dir():
        return read_folder(path, allow_missing=options.allow_missing, wanted=options.wanted)
    raise no_dataset(name, f"llmfair datasets list    lists them all; {FOUR_FILES}")


def no_dataset(name: str, hint: str) -> UsageError:
    """Of a name that no dataset has, and no file or folder that could be read as one."""
    path = Path(name)
    if path.is_file():
        return UsageError(f"{name} is no table: its name ends in none of {', '.join(FORMS)}.", hint)
    if form_of(path):
        hint = "a table of your own, by its path from here"
        return UsageError(f"{name}: there is no such file.{beside(path)}", hint)
    near = did_you_mean(name, registry.names("dataset")) or beside(path)
    return UsageError(f"no dataset '{name}'.{near}", hint)


def attribute_of(dataset: GroupedDocuments, name: str | None, mixed: MixedPolicy = "drop") -> Attribute:
    """The dataset's attribute of this name, or its first, if its two sides, or the groups that it has, can be compared.

    Raises UsageError, also when a side has no document.
    """
    attribute = named_attribute(dataset, name, mixed)
    if attribute.groups:
        return attribute
    if not attribute.protected:
        raise UsageError(
            f"{attribute.name} has no protected and no unprotected group, which are compared here.",
            f"declare [{attribute.name}] in attributes.toml: {DECLARATION}",
        )
    sides = set(dataset.sides(attribute).values())
    for side in Side:
        if side not in sides:
            raise UsageError(
                f"no document is in the {side} group of {attribute.name}.",
                f"its groups are {', '.join(getattr(attribute, side.value))} (attributes.toml)",
            )
    return attribute


def check_one(name: str) -> None:
    """Raises UsageError for what could mean each of several attributes, or their intersection."""
    if "," in name:
        parts = [part.strip() for part in name.split(",")]
        raise UsageError(
            f"-a {name} could mean each attribute by itself, or their intersection.",
            f"{' '.join(f'-a {part}' for part in parts)}, or -a '{CROSSED.join(parts)}'",
        )


def named_attribute(dataset: GroupedDocuments, name: str | None, mixed: MixedPolicy = "drop") -> Attribute:
    """The dataset's attribute of this name, an intersection of some, `gender*race`, or the first that is declared.

    Raises UsageError with the nearest name.
    """
    by_name = {attribute.name: attribute for attribute in compared(dataset.attributes)}
    undeclared: Sequence[str] = getattr(dataset, "undeclared", ())
    if not by_name:
        raise UsageError(
            f"dataset '{dataset.name}' has no attribute: no document has a group.",
            "add lines doc_id, attribute, group to groups.tsv",
        )
    if name is None and (name := next((of for of in by_name if of not in undeclared), None)) is None:
        raise UsageError(
            f"dataset '{dataset.name}' declares none of its attributes.", f"-a {' or -a '.join(by_name)}"
        )
    if name in by_name:
        return replace(by_name[name], mixed=mixed)
    if CROSSED in name:
        parts = (named_attribute(dataset, part, mixed) for part in name.split(CROSSED))
        return by_pairs(name, tuple(chain.from_iterable(of.crossed or (of.name,) for of in parts)))
    check_one(name)
    known = dict.fromkeys((*by_name, *undeclared))
    raise UsageError(
        f"no item of {dataset.name} has a group of '{name}'.{did_you_mean(name, known)}",
        f"known: {', '.join(known)}",
    )


def compared(attributes: Iterable[Attribute]) -> list[Attribute]:
    """Those whose groups can be compared; questions with answers have none."""
    return [of for of in attributes if of.compared != "binary" or (of.protected and of.unprotected)]


def fingerprint(dataset: Dataset, queries: Sequence[Query] | None = None, *attributes: str) -> str:
    """SHA-256 over all that a model or a measure can see of these queries, of groups those of the attributes alone."""
    digest = hashlib.sha256()
    for query in dataset.queries if queries is None else queries:
        judged = sorted(dataset.qrels.get(query.query_id, {}).items())
        rows = []
        for document in dataset.candidates(query).documents:
            groups = [of for of in sorted(document.groups.items()) if not attributes or of[0] in attributes]
            rows.append([document.doc_id, document.title, document.text, groups])
        digest.update(json.dumps([query.query_id, query.text, judged, rows], ensure_ascii=True).encode())
    return digest.hexdigest()


def cells(candidates: Candidates, attribute: Attribute) -> dict[str, int]:
    """How many candidates are relevant or not, by side or group, `{"relevant protected": 10, …}`, none left out."""
    groups = (*(attribute.groups or Side), "neither")
    counts = {f"{relevance} {group}": 0 for relevance in ("relevant", "irrelevant") for group in groups}
    for document in candidates.documents:
        relevance = "relevant" if candidates.relevance.get(document.doc_id, 0) >= 1 else "irrelevant"
        counts[f"{relevance} {attribute.group(document) or 'neither'}"] += 1
    return counts


def facts(dataset: Dataset) -> dict[str, Any]:
    """What `datasets show` says: counts per query and cell, unknown, mixed and other pages, fingerprint."""
    documents, attributes = dataset.documents.values(), compared(dataset.attributes)
    lists = {query: dataset.candidates(query) for query in dataset.queries}
    return {
        "dataset": dataset.name,
        "documents": len(documents),
        "queries": [
            {
                "query_id": query.query_id,
                "text": query.text,
                "candidates": len(listed.documents),
                "cells": {of.name: cells(listed, of) for of in attributes if of.protected},
            }
            for query, listed in lists.items()
        ],
        "attributes": {attribute.name: by_side(attribute, documents) for attribute in attributes},
        "words": {of.name: {side.value: word for side, word in of.words.items()} for of in attributes},
        "fingerprint": fingerprint(dataset),
        **dataset.describe(),
    }


def by_side(
    attribute: Attribute, documents: Iterable[Document], counts: Iterable[int] = repeat(1)
) -> dict[str, int]:
    """How many documents, each standing for so many, are on each side, unknown, on both (mixed), or of other groups.

    Of an attribute without sides: in each group, unknown, and in several (mixed).
    """
    if_mixed, total = replace(attribute, mixed="protected"), Counter[str]()
    for document, count in zip(documents, counts, strict=False):
        if not (groups := attribute.groups_of(document)):
            kind = "unknown"
        elif not attribute.protected:
            kind = groups[0] if len(groups) == 1 else "mixed"
        else:
            kind = attribute.side(document) or ("mixed" if if_mixed.side(document) else "other")
        total[kind] += count
    others = ["unknown", "mixed"]
    if attribute.protected:
        return {kind: total[kind] for kind in (*map(str, Side), *others, "other")}
    return {kind: total[kind] for kind in (*sorted(total.keys() - others), *others)}


# A dataset as a collection that is searched: every document can be found, for every topic that there is


LOOKED_AT = 100
"""Documents of a query that tell what the others are like, where there are too many."""


class Collection:
    """The topics of a dataset or source, its judgements, and all its documents; a Dataset itself.

    Raises UsageError for a source without any text.
    """

    def __init__(self, source: Any) -> None:
        self.source = source
        self.name, self.prompt = source.name, source.prompt
        self.documents: Mapping[str, Document] = source.documents
        self.too_many = isinstance(self.documents, ManyDocuments)
        if not self.too_many and not any(document.text.strip() for document in self.documents.values()):
            raise UsageError(
                f"{self.name} cannot be searched: none of its {len(self.documents):,} documents has a text.",
                'lines of docs.jsonl: {"doc_id": "…", "title": "…", "text": "…"}',
            )
        # What it was fetched with; None where its documents are at hand to be indexed.
        self.index: StoredIndex | None = source.index if self.too_many else None
        self.attributes: Sequence[Attribute] = source.attributes
        # All topics, whether they have lists to rank or not.
        self.queries: Sequence[Query] = getattr(source, "topics" if hasattr(source, "topics") else "queries")

    stand_ins: Mapping[str, Document] = {}
    """None: documents stand for themselves, or are found by the names that `relevant_counts` has."""

    @cached_property
    def relevant_counts(self) -> Mapping[str, Mapping[str, int]]:
        """Of relevant documents that are too many to be looked at: how many each combination of groups has."""
        return dict(getattr(self.source, "relevant_counts", {}))

    @cached_property
    def qrels(self) -> Qrels:
        """By document id, as files have them."""
        if self.too_many:
            return dict(self.source.judged)
        return {query_id: dict(sorted(judged.items())) for query_id, judged in self.source.qrels.items()}

    def document(self, doc_id: str) -> Document:
        """A document that an engine found. Raises UsageError for one that the collection does not have."""
        try:
            return self.documents[doc_id]
        except KeyError:
            raise UsageError(
                f"the index that is searched has a document '{doc_id}', and {self.name} has not.",
                "an index of this collection, whose ids are those of its documents",
            ) from None

    def sides(self, attribute: Attribute) -> Mapping[str, Side]:
        """The side of every document that has one; of too many, of those relevant to a topic."""
        sides: Mapping[str, Side] = self.source.sides(attribute)
        return sides

    def candidates(self, query: Query) -> Candidates:
        """The documents that were judged; of too many, the first."""
        judged = self.qrels.get(query.query_id, {})
        looked_at = islice(judged, LOOKED_AT if self.too_many else None)
        documents = (self.documents.get(doc_id) for doc_id in looked_at)
        return Candidates(query, tuple(document for document in documents if document is not None), judged)

    def describe(self) -> dict[str, Any]:
        return dict(self.source.describe_searched() if self.too_many else self.source.describe())

    def fingerprint(self, queries: Sequence[Query], *attributes: str) -> str:
        """SHA-256 of all that can be found, of who is in which group, of topics and judgements."""
        digest = hashlib.sha256()
        if (fetched := getattr(self.source, "fingerprint", None)) is not None:
            digest.update(encode([fetched, [[query.query_id, query.text] for query in queries]]))
            return digest.hexdigest()
        for doc_id in sorted(self.documents):
            document = self.documents[doc_id]
            groups = [group for of in attributes for group in document.groups.get(of, ())]
            digest.update(encode([doc_id, document.title, document.text, groups]))
        for query in queries:
            judged = [*self.qrels.get(query.query_id, {}).items()]
            digest.update(encode([query.query_id, query.text, judged]))
        return digest.hexdigest()
