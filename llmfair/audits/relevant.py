"""`relevant.jsonl` of a run folder: who is relevant to a query, where the documents are too many to be named.

Of each query, the combinations of groups among its relevant documents, and how many have each: targets are made of
them (`Groups.relevant`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from llmfair.io.files import read_lines
from llmfair.metrics.base import Groups
from llmfair.nouns import Document
from llmfair.results import Count

RELEVANT = "relevant.jsonl"


@dataclass(frozen=True)
class AlikeRelevant:
    """Relevant documents of the same groups, and how many they are."""

    groups: Mapping[str, Sequence[str]]
    count: Count


@dataclass(frozen=True)
class RelevantLine:
    """A line of relevant.jsonl: all relevant documents of a query."""

    query_id: str
    relevant: Sequence[AlikeRelevant]


def relevant_lines(groups: Groups) -> Iterator[str]:
    """The lines of the file."""
    for query_id, counts in sorted(groups.relevant.items()):
        rows = [{"groups": groups.documents[name].groups, "count": count} for name, count in counts.items()]
        yield json.dumps({"query_id": query_id, "relevant": rows}, ensure_ascii=False) + "\n"


def read_relevant(path: Path) -> tuple[dict[str, Document], dict[str, dict[str, int]]]:
    """A document for each combination, and how many it stands for by query; nothing where there is no such file."""
    documents: dict[str, Document] = {}
    counts: dict[str, dict[str, int]] = {}
    for row in read_lines(path, RelevantLine) if path.is_file() else ():
        for number, one in enumerate(row.relevant):
            name = f"@ {row.query_id} {number}"
            groups = {attribute: tuple(found) for attribute, found in one.groups.items()}
            documents[name] = Document(name, "", groups=groups)
            counts.setdefault(row.query_id, {})[name] = one.count
    return documents, counts
