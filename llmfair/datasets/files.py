"""A user's own data: a folder of four files, docs.jsonl, queries.tsv, qrels.txt, groups.tsv, and what all kinds share.

Optional: attributes.toml (attributes of one's own), candidates.run (the lists to rank, in order), keywords.jsonl (what
is searched for a query). Any of them may be packed, as NAME.gz. A mistake is named by file, line and field.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct, defstruct
from numpy.typing import NDArray

from llmfair.datasets.attributes import by_pairs, data_folder, read_attributes, shipped_attributes
from llmfair.errors import UsageError
from llmfair.io import files
from llmfair.io.files import json_lines, wrong
from llmfair.io.trec import RESERVED, RESERVED_QUERY, UNKNOWN, columns, read_groups, read_qrels, read_ranks
from llmfair.nouns import CROSSED, NO_NUMBERS, NUMBERS, Attribute, Candidates, Document, Query, Side
from llmfair.registry import register

FILES = ("docs.jsonl", "queries.tsv", "qrels.txt", "groups.tsv")
ATTRIBUTES, KEYWORDS = "attributes.toml", "keywords.jsonl"
HINT = (
    'lines of docs.jsonl: {"doc_id": "…", "title": "…"}; queries.tsv: query_id<TAB>text; qrels.txt: query_id 0 doc_id '
    "relevance; groups.tsv: doc_id<TAB>attribute<TAB>group"
)
KEYWORDS_HINT = f'lines of {KEYWORDS}: {{"query_id": "…", "keywords": ["…", "…"]}}, or "keywords": "…"'
Id = Annotated[int, Meta()] | Annotated[str, Meta(pattern=r"^\S+\Z")]
"""Of a query or item: white space would break every TREC file that it appears in."""
Words = Annotated[str, Meta(pattern=r"\S")]
"""A text that is not blank."""
Feature = Annotated[float, Meta(ge=0, le=sys.float_info.max)] | None
Lines = Mapping[str, Mapping[str, tuple[int, int]]]
"""A number and its line, by query and document."""

Groups = Mapping[str, tuple[str, ...]]
"""The groups of a document, by attribute."""
NO_GROUPS: Groups = {}
Places = NDArray[np.intp]
"""Of documents in the order of their ids, ascending."""


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """What is said of data beside their name: columns of a table by ours, and a file that declares attributes.

    `groups` and `run` are files of the groups and lists of a collection that has none; `allow_missing` drops judgements
    of documents that a folder lacks. `asked`: the attribute that is named, which nobody need
    declare, or an intersection.
    """

    allow_missing: bool = False
    columns: str | None = None
    attributes: str | None = None
    groups: str | None = None
    run: str | None = None
    asked: str | None = None

    @property
    def wanted(self) -> tuple[str, ...]:
        """The attributes that are asked about."""
        return tuple(self.asked.split(CROSSED)) if self.asked else ()


class OwnData:
    """Data of a user's own, once all files agree: a `Dataset` with lists, or a source to draw them from.

    `where` names it in errors. `lists` are those that there are, `without_list` the queries of which nothing says what
    is to be ranked, `left_out` why others have none; `missing` counts judgements that were dropped. `undeclared`: what
    can be asked about though nobody declares it.
    """

    def __init__(self, name: str, where: str = "", prompt: str = "general") -> None:
        self.name, self.where, self.prompt = name, where or name, prompt
        self.documents: dict[str, Document] = {}
        self.by_id: dict[str, Query] = {}
        self.qrels: dict[str, dict[str, int]] = {}
        self.attributes: list[Attribute] = []
        self.undeclared: list[str] = []
        self.lists: dict[str, list[str]] = {}
        self.left_out: dict[str, str] = {}
        self.without_list: list[str] = []
        self.missing = 0
        # Of its own lists every relevant document is at hand.
        self.stand_ins: dict[str, Document] = {}
        self.relevant_counts: dict[str, dict[str, int]] = {}

    def have(self, declared: Mapping[str, Attribute], used: Set[str]) -> None:
        """Takes the attributes that items have groups of."""
        self.attributes = attributes_of(declared, used)
        self.undeclared = sorted(used - declared.keys())

    def leave_out_short(self, hint: str) -> None:
        """Leaves out queries with fewer than two candidates. Raises UsageError where nothing is left to rank."""
        unlisted = {*self.without_list}
        for query_id in self.by_id:
            if query_id not in unlisted and (count := len(self.lists.get(query_id, ()))) < 2:
                self.left_out[query_id] = f"query '{query_id}' has {count} candidate(s)"
                self.lists.pop(query_id, None)
        if not self.lists and not self.without_list:
            raise UsageError(f"{self.where}: no query has two candidates or more.", hint)

    @property
    def has_lists(self) -> bool:
        """Whether it says what is to be ranked; else lists are drawn. Raises UsageError for a mixture."""
        if self.without_list and len(self.without_list) < len(self.by_id):
            raise UsageError(
                f"{self.where}: query '{self.without_list[0]}' has no candidate list: no judgement of it is 0 or "
                "negative, though other queries have some.",
                "judge the documents that are not relevant with 0, add candidates.run, or draw lists with --buckets",
            )
        return not self.without_list

    @property
    def topics(self) -> Sequence[Query]:
        """All queries, whether a list can be drawn for them or not."""
        return list(self.by_id.values())

    @property
    def queries(self) -> Sequence[Query]:
        return [self.by_id[query_id] for query_id in self.lists]

    def relevant(self, query_id: str) -> Sequence[str]:
        """The doc_ids judged relevant (1 or more) to a query; of any side."""
        return [doc_id for doc_id, relevance in self.qrels.get(query_id, {}).items() if relevance >= 1]

    def grades(self, query_id: str, doc_ids: Iterable[str]) -> Mapping[str, int]:
        """The relevance of some of a query's relevant documents."""
        judged = self.qrels.get(query_id, {})
        return {doc_id: judged[doc_id] for doc_id in doc_ids}

    def sides(self, attribute: Attribute) -> Mapping[str, Side]:
        return sides_of(self.documents, attribute)

    def pools(self, attribute: Attribute) -> Pools:
        """What lists are drawn from: documents of a side that are relevant to some topic."""
        sides = self.sides(attribute)
        relevant = {
            query_id: [doc_id for doc_id in self.relevant(query_id) if doc_id in sides]
            for query_id in self.by_id
        }
        ids = sorted({*chain.from_iterable(relevant.values())}, key=_by_number)
        place = {doc_id: index for index, doc_id in enumerate(ids)}
        on = {side: np.array([sides[doc_id] is side for doc_id in ids], dtype=bool) for side in Side}
        places = {
            query_id: np.array(sorted(map(place.__getitem__, doc_ids)), dtype=np.intp)
            for query_id, doc_ids in relevant.items()
        }
        return Pools(ids, on, places)

    def relevant_groups(self, query_id: str) -> Sequence[tuple[Groups, int]]:
        """The groups of a query's relevant documents, each combination with how many have it."""
        return [(self.documents[doc_id].groups, 1) for doc_id in self.relevant(query_id)]

    def load(self, doc_ids: Iterable[str]) -> Mapping[str, Document]:
        return {doc_id: self.documents[doc_id] for doc_id in doc_ids}

    def candidates(self, query: Query) -> Candidates:
        documents = tuple(self.documents[doc_id] for doc_id in self.lists[query.query_id])
        return Candidates(query, documents, self.qrels.get(query.query_id, {}))

    def describe(self) -> dict[str, Any]:
        return {"left_out": self.left_out, "judgements_without_document": self.missing}


def read_folder(
    path: Path,
    name: str | None = None,
    allow_missing: bool = False,
    prompt: str = "general",
    wanted: Collection[str] = (),
) -> OwnData:
    """The data of a folder: with lists of its own, or to draw lists from.

    Raises UsageError when a file is missing or malformed. `allow_missing` drops judgements of documents that
    docs.jsonl lacks, and counts them. `wanted` attributes are read whatever they are called.
    """
    check_files(path, FILES, HINT)
    data = OwnData(name or path.resolve().name, str(path), prompt)
    docs, queries, qrels, groups, declared_in, keywords, run = (
        files.stored(path / file) for file in (*FILES, ATTRIBUTES, KEYWORDS, "candidates.run")
    )
    declared = read_attributes(declared_in if declared_in.is_file() else shipped_attributes())
    by_doc, used = groups_of(groups, declared, f"{declared_in}", wanted)
    data.documents = documents = read_documents(docs, by_doc)
    data.by_id = read_queries(queries)
    if keywords.is_file():
        data.by_id |= read_keywords(keywords, data.by_id)
    judged = read_qrels(qrels)
    if allow_missing:
        there = {q: {d: of for d, of in rows.items() if d in documents} for q, rows in judged.items()}
        data.missing = sum(map(len, judged.values())) - sum(map(len, there.values()))
        judged = there
    data.qrels = numbers_of(qrels, judged, data.by_id, documents)
    ranked = numbers_of(run, read_ranks(run), data.by_id, documents) if run.is_file() else {}
    if not by_doc.keys() <= documents.keys():
        for line, doc_id, _, _ in read_groups(groups, None):
            if doc_id not in documents:
                raise wrong(groups, line, "doc_id", f"'{doc_id}' is not in docs.jsonl", HINT)
    data.have(declared, used)
    for query_id in data.by_id:
        grades, ranks = data.qrels.get(query_id, {}), ranked.get(query_id, {})
        if not ranked and grades and all(grade >= 1 for grade in grades.values()):
            data.without_list.append(query_id)  # nothing says what else is to be ranked
        else:
            data.lists[query_id] = sorted(ranks, key=ranks.__getitem__) if ranked else [*grades]
    data.leave_out_short(HINT)
    return data


def check_files(folder: Path, needed: Sequence[str], hint: str) -> None:
    """Raises UsageError for a folder without all of these files, packed or not."""
    if missing := [name for name in needed if not files.stored(folder / name).is_file()]:
        raise UsageError(f"{folder}: needs {', '.join(needed)}; missing: {', '.join(missing)}.", hint)


def attributes_of(declared: Mapping[str, Attribute], used: Set[str]) -> list[Attribute]:
    """Those declared that items have groups of, in their order; then those that nobody declared."""
    there = [of for of in declared.values() if used >= {*(of.crossed or (of.name,))}]
    return there + [by_pairs(name) for name in sorted(used - declared.keys())]


def groups_of(
    path: Path, declared: Mapping[str, Attribute] | None, declared_in: str, wanted: Collection[str] = ()
) -> tuple[dict[str, Groups], set[str]]:
    """Groups by document, and the attributes that are used. Documents of equal groups share one mapping."""
    by_doc: dict[str, Groups] = {}
    extended: dict[tuple[int, str, str], Groups] = {}
    for _, doc_id, attribute, group in read_groups(path, declared, declared_in, wanted):
        groups = by_doc.setdefault(doc_id, NO_GROUPS)
        if group == UNKNOWN or group in groups.get(attribute, ()):
            continue
        step = (id(groups), attribute, group)
        if step not in extended:
            extended[step] = {**groups, attribute: (*groups.get(attribute, ()), group)}
        by_doc[doc_id] = extended[step]
    return by_doc, {attribute for groups in extended.values() for attribute in groups}


def read_documents(path: Path, groups: Mapping[str, Groups], needed: str = "title") -> dict[str, Document]:
    """The documents of docs.jsonl by id, in file order; of title and text, `needed` must be there and not blank."""
    documents: dict[str, Document] = {}
    for line, row in json_lines(path, LINES[needed], HINT):
        doc_id = str(row.doc_id)
        if doc_id in documents:
            raise wrong(path, line, "doc_id", f"'{doc_id}' was already given", HINT)
        numbers = {name: float(number) for name in NUMBERS if (number := getattr(row, name)) is not None}
        of = groups.get(doc_id, NO_GROUPS)
        documents[doc_id] = Document(doc_id, row.title, row.text, of, numbers or NO_NUMBERS)
    return documents


LINES: Mapping[str, Any] = {
    needed: defstruct(
        "DocumentLine",
        [("doc_id", Id), (needed, Words), (other, str, ""), *((name, Feature, None) for name in NUMBERS)],
    )
    for needed, other in (("title", "text"), ("text", "title"))
}
"""A line of docs.jsonl of which this field must be there and not blank."""


def is_id(text: str) -> bool:
    """Whether a text can be the id of a document or query: white space would break every TREC file it appears in."""
    return text.split() == [text]


def read_queries(path: Path) -> dict[str, Query]:
    """The queries of queries.tsv by id, in file order. Raises UsageError."""
    queries: dict[str, Query] = {}
    for line, (query_id, text) in columns(path, ("query_id", "text"), "\t"):
        check_query_id(path, line, "query_id", query_id, queries)
        if not text:
            raise wrong(path, line, "text", "is empty", HINT)
        queries[query_id] = Query(query_id, text)
    return queries


def check_query_id(path: Path, line: int, field: str, query_id: str, earlier: Container[str]) -> None:
    """Raises UsageError for what is no id, and for one that is there already."""
    if not is_id(query_id):
        raise wrong(path, line, field, "is empty or holds white space", HINT)
    if query_id == RESERVED_QUERY:
        raise wrong(path, line, field, RESERVED, HINT)
    if query_id in earlier:
        raise wrong(path, line, field, f"'{query_id}' was already given", HINT)


def numbers_of(
    path: Path, rows: Lines, queries: Container[str], documents: Container[str]
) -> dict[str, dict[str, int]]:
    """The numbers alone. Raises UsageError for the first query or document that the other files lack."""
    for query_id, by_doc in rows.items():
        for doc_id, (_, line) in by_doc.items():
            if query_id not in queries:
                raise wrong(path, line, "query_id", f"'{query_id}' is not in queries.tsv", HINT)
            if doc_id not in documents:
                raise wrong(path, line, "doc_id", f"'{doc_id}' is not in docs.jsonl", HINT)
    return {q: {d: number for d, (number, _) in by_doc.items()} for q, by_doc in rows.items()}


class _Keywords(Struct):
    query_id: str | int
    keywords: list[str] | str


def keywords_of(keywords: Iterable[str] | str) -> tuple[str, ...]:
    """Keywords, or a text of them, without blank ones and with single spaces."""
    words = (keywords,) if isinstance(keywords, str) else keywords
    return tuple(" ".join(word.split()) for word in words if word.strip())


def read_keywords(path: Path, queries: Mapping[str, Query]) -> dict[str, Query]:
    """The queries that the file has keywords of, with them. Raises UsageError."""
    with_keywords: dict[str, Query] = {}
    for line, row in json_lines(path, _Keywords, KEYWORDS_HINT):
        query_id = str(row.query_id)
        if query_id not in queries or query_id in with_keywords:
            what = "was already given" if query_id in with_keywords else "is not in queries.tsv"
            raise wrong(path, line, "query_id", f"'{query_id}' {what}", KEYWORDS_HINT)
        with_keywords[query_id] = replace(queries[query_id], keywords=keywords_of(row.keywords))
    return with_keywords


def searched(query: Query, by: str) -> Query:
    """The query with the text that is searched: its keywords, where it has any and they are asked for."""
    return replace(query, text=" ".join(query.keywords)) if by == "keywords" and query.keywords else query


# The documents that lists are drawn from: relevant ones and others of a topic, by side, in the order of their ids


class Pools:
    """The pools of all topics.

    `ids`: of documents, in their order, an array or list. `on`: by side, which of them may be drawn. `relevant`: by
    topic, the places of its relevant ones, ascending.
    """

    def __init__(
        self, ids: Any, on: Mapping[Side, NDArray[np.bool_]], relevant: Mapping[str, Places]
    ) -> None:
        self.ids, self.protected, self._relevant = ids, on[Side.PROTECTED], relevant
        self._sides = on[Side.UNPROTECTED], self.protected, on[Side.UNPROTECTED] | self.protected

    def of(self, query_id: str) -> tuple[Places, ...]:
        """Unprotected relevant ones, protected relevant ones, unprotected others, protected others; all of either.

        Others are relevant to another topic.
        """
        relevant = self._relevant[query_id]
        others = np.ones(len(self.ids), dtype=bool)
        others[relevant] = False
        first, second, either = (
            (relevant[side[relevant]], np.flatnonzero(side & others)) for side in self._sides
        )
        return first[0], second[0], first[1], second[1], *either


def sides_of(documents: Mapping[str, Document], attribute: Attribute) -> dict[str, Side]:
    """The side of every document that has one, by id."""
    alike: dict[int, Side | None] = {}  # documents of equal groups share them: millions, but few kinds
    sides = {}
    for doc_id, document in documents.items():
        kind = id(document.groups)
        if kind not in alike:
            alike[kind] = attribute.side(document)
        if (side := alike[kind]) is not None:
            sides[doc_id] = side
    return sides


def _by_number(doc_id: str) -> tuple[bool, int, str]:
    """Numbers by value, then other ids as text: an order that no other document can change."""
    number = doc_id.isascii() and doc_id.isdigit()
    return not number, int(doc_id) if number else 0, doc_id


# The bundled samples, written for this project (CC0)


@register("dataset", "sample")
def sample() -> OwnData:
    """Eight topics, forty candidates each, both genders and both regions among relevant and irrelevant."""
    return read_folder(data_folder() / "sample", name="sample", prompt="wikiproject")


@register("dataset", "refine-sample")
def refine_sample() -> OwnData:
    """Twelve topics, some 700 articles with gender and location, skewed first pages; relevant ones of all groups."""
    return read_folder(data_folder() / "refine-sample", name="refine-sample")
