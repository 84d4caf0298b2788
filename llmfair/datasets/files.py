"""A folder of four files as a dataset: docs.jsonl, queries.tsv, qrels.txt, groups.tsv.

Optional: attributes.toml (attributes of one's own), candidates.run (the lists to rank, in order), keywords.jsonl (what
is searched for a query). Any of them may be packed, as NAME.gz. Every mistake is
named by file, line and field; the first five and the total are shown.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from llmfair.datasets.attributes import read_attributes, shipped_attributes
from llmfair.datasets.keywords import KEYWORDS, KEYWORDS_HINT, read_keywords
from llmfair.datasets.own import Content, OwnData
from llmfair.errors import UsageError
from llmfair.io import files
from llmfair.io.trec import (
    RESERVED_QUERY,
    UNKNOWN,
    Problems,
    columns,
    read_groups,
    read_qrels,
    read_ranks,
    text_lines,
)
from llmfair.nouns import NO_NUMBERS, NUMBERS, Attribute, Document, Query

FILES = ("docs.jsonl", "queries.tsv", "qrels.txt", "groups.tsv")
ATTRIBUTES = "attributes.toml"
HINT = (
    'lines of docs.jsonl: {"doc_id": "…", "title": "…"}; queries.tsv: query_id<TAB>text; qrels.txt: query_id 0 doc_id '
    "relevance; groups.tsv: doc_id<TAB>attribute<TAB>group"
)


class Folder(OwnData):
    """A dataset read from a folder: with lists of its own, or to draw lists from (`Dataset`, `Source`).

    Raises UsageError when a file is missing or malformed. `allow_missing` drops judgements of documents that
    docs.jsonl lacks, and counts them.
    """

    def __init__(
        self, path: Path, name: str | None = None, allow_missing: bool = False, prompt: str = "general"
    ) -> None:
        missing = [file for file in FILES if not files.stored(path / file).is_file()]
        if missing:
            raise UsageError(
                f"{path}: needs {', '.join(FILES[:-1])} and {FILES[-1]}; {' and '.join(missing)} "
                f"{'is' if len(missing) == 1 else 'are'} missing",
                HINT,
            )
        self.path, self.where = path, str(path)
        self.name = name or path.resolve().name
        self.allow_missing = allow_missing
        self.prompt = prompt

    def read(self) -> Content:
        return _read(self.path, self.allow_missing)


def _read(path: Path, allow_missing: bool) -> Content:
    problems = Problems()
    content = Content()

    def file(name: str) -> Path:
        return files.stored(path / name)

    own, run, keywords = file(ATTRIBUTES), file("candidates.run"), file(KEYWORDS)
    known = read_attributes(own if own.is_file() else shipped_attributes())
    groups = _read_groups(file("groups.tsv"), known, problems)
    content.documents = read_documents(file("docs.jsonl"), groups, problems)
    content.queries = read_queries(file("queries.tsv"), problems)
    judged = read_qrels(file("qrels.txt"), problems)
    ranked = read_ranks(run, problems) if run.is_file() else {}
    problems.raise_any(HINT)  # an id that a broken line lost would be reported all over
    if keywords.is_file():
        content.queries |= read_keywords(keywords, content.queries, problems)
        problems.raise_any(KEYWORDS_HINT)

    if allow_missing:
        for rows in judged.values():
            for doc_id in [doc_id for doc_id in rows if doc_id not in content.documents]:
                del rows[doc_id]
                content.missing += 1
    _check_ids(file("qrels.txt"), judged, content, problems)
    _check_ids(run, ranked, content, problems)
    for doc_id, by_attribute in groups.items():
        if doc_id not in content.documents:
            line = min(number for found in by_attribute.values() for number in found.values())
            problems.add(file("groups.tsv"), line, "doc_id", f"'{doc_id}' is not in docs.jsonl")
    problems.raise_any(HINT)

    content.qrels = {q: {d: relevance for d, (relevance, _) in rows.items()} for q, rows in judged.items()}
    used = {attribute for by_attribute in groups.values() for attribute in by_attribute}
    content.attributes = [attribute for name, attribute in known.items() if name in used]
    for query_id in content.queries:
        listed = _candidates(content.qrels.get(query_id, {}), ranked.get(query_id), bool(ranked))
        if listed is None:
            content.without_list.append(query_id)
        elif len(listed) < 2:
            content.left_out[query_id] = f"query '{query_id}' has {len(listed)} candidate(s)"
        else:
            content.lists[query_id] = listed
    if not content.lists and not content.without_list:
        raise UsageError(f"{path}: no query has two candidates or more.", HINT)
    return content


def _candidates(
    judged: Mapping[str, int], ranked: Mapping[str, tuple[int, int]] | None, has_run: bool
) -> list[str] | None:
    """The list of one query: the run's, else all judged documents if any is judged not relevant, else None."""
    if has_run:
        return sorted(ranked or {}, key=lambda doc_id: (ranked or {})[doc_id][0])
    if judged and all(relevance >= 1 for relevance in judged.values()):
        return None
    return list(judged)


def read_documents(
    path: Path,
    groups: Mapping[str, Mapping[str, Mapping[str, int]]],
    problems: Problems,
    needed: str = "title",
) -> dict[str, Document]:
    """The documents of docs.jsonl by id, in file order; of title and text, `needed` must be there and not blank."""
    documents: dict[str, Document] = {}
    lines: dict[str, int] = {}
    in_groups: dict[tuple[object, ...], Mapping[str, tuple[str, ...]]] = {}  # many documents are in the same
    for number, line in text_lines(path, problems):
        try:
            row = json.loads(line)
        except ValueError as error:
            why = f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else error
            problems.add(path, number, "", f"not a JSON object: {why}")
            continue
        except RecursionError:
            problems.add(path, number, "", "not a JSON object: nested too deeply")
            continue
        if not isinstance(row, dict):
            problems.add(path, number, "", f"not a JSON object but {type(row).__name__}")
            continue
        if twice := _named_twice(line, row):
            problems.add(path, number, twice, "is given twice")
            continue
        doc_id = identifier(row.get("doc_id"))
        title, text = row.get("title", ""), row.get("text", "")
        if gone := next((field for field in ("doc_id", needed) if field not in row), None):
            problems.add(path, number, gone, "is missing")
        elif doc_id is None:
            problems.add(path, number, "doc_id", "is not a string without white space, or an integer")
        elif doc_id in documents:
            problems.add(path, number, "doc_id", f"'{doc_id}' was already given on line {lines[doc_id]}")
        elif not isinstance(row[needed], str) or not row[needed].strip():
            problems.add(path, number, needed, "is empty" if row[needed] in (None, "") else "is not a text")
        elif not isinstance(title, str) or not isinstance(text, str):
            problems.add(path, number, "text" if isinstance(title, str) else "title", "is not a text")
        elif wrong := next((name for name in NUMBERS if not _is_number(row.get(name, 0))), None):
            problems.add(path, number, wrong, "is not a number from 0")
        else:
            lines[doc_id] = number
            of_it = {name: tuple(found) for name, found in groups.get(doc_id, {}).items()}
            documents[doc_id] = Document(
                doc_id,
                title,
                text,
                in_groups.setdefault(tuple(of_it.items()), of_it),
                {name: float(row[name]) for name in NUMBERS if row.get(name) is not None} or NO_NUMBERS,
            )
    return documents


def _named_twice(line: str, row: Mapping[str, object]) -> str | None:
    """A name that an object has twice, of which a parser keeps the last; looked for where the line may have one."""
    if line.count('":') == len(row):
        return None
    names = [name for name, _ in json.loads(line, object_pairs_hook=list)]
    return next((name for place, name in enumerate(names) if name in names[:place]), None)


def _is_number(value: object) -> bool:
    """Whether it is a finite number from 0, or None, for which nothing is known."""
    if value is None:
        return True
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= sys.float_info.max


def identifier(value: object) -> str | None:
    """A document or query id as `str`; white space would break every TREC file it appears in."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value.split() == [value] else None


def read_queries(path: Path, problems: Problems) -> dict[str, Query]:
    """The queries of queries.tsv by id, in file order."""
    queries: dict[str, Query] = {}
    lines: dict[str, int] = {}
    for number, (query_id, text) in columns(path, problems, ("query_id", "text"), "\t"):
        if identifier(query_id) is None:
            problems.add(path, number, "query_id", "is empty or holds white space")
        elif query_id == RESERVED_QUERY:
            problems.add(path, number, "query_id", "'all' stands for all queries in results; choose another")
        elif query_id in queries:
            problems.add(
                path, number, "query_id", f"'{query_id}' was already given on line {lines[query_id]}"
            )
        elif not text:
            problems.add(path, number, "text", "is empty")
        else:
            lines[query_id] = number
            queries[query_id] = Query(query_id, text)
    return queries


def _read_groups(
    path: Path, known: Mapping[str, Attribute], problems: Problems
) -> dict[str, dict[str, dict[str, int]]]:
    """Groups as `{doc_id: {attribute: {group: line}}}`, in file order without repeats or `@UNKNOWN`."""
    groups: dict[str, dict[str, dict[str, int]]] = {}
    own = files.stored(path.with_name(ATTRIBUTES))
    for number, doc_id, attribute, group in read_groups(path, problems, known, f"{own}"):
        if group != UNKNOWN:
            groups.setdefault(doc_id, {}).setdefault(attribute, {}).setdefault(group, number)
    return groups


def _check_ids(
    path: Path,
    rows: Mapping[str, Mapping[str, tuple[int, int]]],
    content: Content,
    problems: Problems,
) -> None:
    for query_id, by_doc in rows.items():
        if query_id not in content.queries:
            line = next(iter(by_doc.values()))[1]
            problems.add(path, line, "query_id", f"'{query_id}' is not in queries.tsv")
        for doc_id, (_, line) in by_doc.items():
            if doc_id not in content.documents:
                problems.add(path, line, "doc_id", f"'{doc_id}' is not in docs.jsonl")
