"""A user's own data, however they are stored: with lists of their own, or to draw lists from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from llmfair.datasets.pools import Pools, pools_of
from llmfair.errors import UsageError
from llmfair.nouns import Attribute, Candidates, Document, Query, Side

LISTS_HINT = (
    "judge the documents that are not relevant with 0, add candidates.run, or draw lists with --buckets"
)


@dataclass(frozen=True, kw_only=True)
class Given:
    """What is said of data beside their name: columns of a table by ours, and a file that declares attributes.

    `groups` and `run` are files of the groups and lists of a collection that has none; `allow_missing` drops judgements
    of documents that a folder lacks.
    """

    allow_missing: bool = False
    columns: str | None = None
    attributes: str | None = None
    groups: str | None = None
    run: str | None = None


class OwnData(ABC):
    """A dataset that is read whole when it is first looked at (`Dataset`, `DocumentSource`).

    `where` names it in errors.
    """

    name: str
    prompt = "general"
    where: str

    @cached_property
    def _content(self) -> Content:
        return self.read()

    @abstractmethod
    def read(self) -> Content:
        """All that is stored. Raises UsageError naming file, line and field."""

    @property
    def has_lists(self) -> bool:
        """Whether the folder says what is to be ranked; else lists are drawn. Raises UsageError for a mixture."""
        content = self._content
        if content.without_list and len(content.without_list) < len(content.queries):
            raise UsageError(
                f"{self.where}: query '{content.without_list[0]}' has no candidate list: no judgement of it is 0 or "
                "negative, though other queries have some.",
                LISTS_HINT,
            )
        return not content.without_list

    @property
    def topics(self) -> Sequence[Query]:
        return list(self._content.queries.values())

    def relevant(self, query_id: str) -> Sequence[str]:
        return [d for d, relevance in self._content.qrels.get(query_id, {}).items() if relevance >= 1]

    def grades(self, query_id: str, doc_ids: Iterable[str]) -> Mapping[str, int]:
        judged = self._content.qrels.get(query_id, {})
        return {doc_id: judged[doc_id] for doc_id in doc_ids}

    def sides(self, attribute: Attribute) -> Mapping[str, Side]:
        found = {d: attribute.side(document) for d, document in self._content.documents.items()}
        return {doc_id: side for doc_id, side in found.items() if side is not None}

    def pools(self, attribute: Attribute) -> Pools:
        return pools_of(
            self.sides(attribute), {query_id: self.relevant(query_id) for query_id in self._content.queries}
        )

    fingerprint = None  # small enough to draw from again
    # Of its own lists every relevant document is at hand.
    stand_ins: Mapping[str, Document] = {}
    relevant_counts: Mapping[str, Mapping[str, int]] = {}

    def relevant_groups(self, query_id: str) -> Sequence[tuple[Mapping[str, tuple[str, ...]], int]]:
        return [(self._content.documents[doc_id].groups, 1) for doc_id in self.relevant(query_id)]

    def load(self, doc_ids: Iterable[str]) -> Mapping[str, Document]:
        return {doc_id: self._content.documents[doc_id] for doc_id in doc_ids}

    @property
    def queries(self) -> Sequence[Query]:
        return [self._content.queries[query_id] for query_id in self._content.lists]

    @property
    def qrels(self) -> Mapping[str, Mapping[str, int]]:
        return self._content.qrels

    @property
    def documents(self) -> Mapping[str, Document]:
        return self._content.documents

    @property
    def attributes(self) -> Sequence[Attribute]:
        return self._content.attributes

    def candidates(self, query: Query) -> Candidates:
        content = self._content
        return Candidates(
            query,
            tuple(content.documents[doc_id] for doc_id in content.lists[query.query_id]),
            content.qrels.get(query.query_id, {}),
        )

    def describe(self) -> dict[str, Any]:
        content = self._content
        return {"left_out": content.left_out, "judgements_without_document": content.missing}


class Content:
    """What the files hold, once all of them agree."""

    def __init__(self) -> None:
        self.documents: dict[str, Document] = {}
        self.queries: dict[str, Query] = {}
        self.qrels: dict[str, dict[str, int]] = {}
        self.attributes: list[Attribute] = []
        self.lists: dict[str, list[str]] = {}
        self.left_out: dict[str, str] = {}
        self.without_list: list[str] = []
        self.missing = 0
