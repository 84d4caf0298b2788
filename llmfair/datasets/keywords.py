"""Keywords of topics: what a search engine is asked in place of a topic's text, as TREC Fair's topics have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from llmfair.datasets.json_lines import objects
from llmfair.io.trec import Problems
from llmfair.nouns import Query

KEYWORDS = "keywords.jsonl"
KEYWORDS_HINT = f'lines of {KEYWORDS}: {{"query_id": "…", "keywords": ["…", "…"]}}, or "keywords": "…"'


@dataclass(frozen=True)
class _Line:
    query_id: str | int
    keywords: list[str] | str


def keywords_of(given: Iterable[str] | str) -> tuple[str, ...]:
    """Keywords, or a text of them, without blank ones and with single spaces."""
    words = (given,) if isinstance(given, str) else given
    return tuple(" ".join(word.split()) for word in words if word.strip())


def read_keywords(path: Path, queries: Mapping[str, Query], problems: Problems) -> dict[str, Query]:
    """The queries that the file has keywords of, with them."""
    found: dict[str, Query] = {}
    for number, row in objects(path, _Line, problems):
        query_id = str(row.query_id)
        if query_id not in queries:
            problems.add(path, number, "query_id", f"'{query_id}' is not in queries.tsv")
        elif query_id in found:
            problems.add(path, number, "query_id", f"'{query_id}' was already given")
        else:
            found[query_id] = replace(queries[query_id], keywords=keywords_of(row.keywords))
    return found


def searched(query: Query, by: str) -> Query:
    """The query with the text that is searched: its keywords, where it has any and they are asked for."""
    return replace(query, text=" ".join(query.keywords)) if by == "keywords" and query.keywords else query
