"""Run files by the ending of their name: TREC's six columns, or scores as ranx keeps them, in JSON or CSV."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from llmfair.datasets.files import identifier
from llmfair.io.files import csv_rows, number, read_document, wrong
from llmfair.io.trec import RunFile, cell, read_run, run_of

HINT = (
    "a run has six columns: query_id Q0 doc_id rank score tag; in .json it is {query_id: {doc_id: score}}, in .csv it "
    "has the columns q_id, doc_id and score"
)
QUERY_IDS = ("q_id", "query_id")
Word = Annotated[str, Meta(pattern=r"^\S+\Z")]
Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]


def read_any_run(path: Path, scores_kept: bool = False) -> RunFile:
    """A run in the order that trec_eval gives its scores; see `read_run`. Raises UsageError."""
    match scores_form(path):
        case ".json":
            scored = _of_json(path)
        case ".csv":
            scored = _of_csv(path)
        case _:
            return read_run(path, scores_kept)
    return run_of(path, scored, path.name.partition(".")[0], scores_kept)


def scores_form(path: Path) -> str:
    """The ending of a file that has scores as ranx keeps them; "" of any other."""
    ending = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    return ending if ending in (".json", ".csv") else ""


def _of_json(path: Path) -> dict[str, dict[str, float]]:
    scored: dict[str, dict[str, float]] = read_document(path, dict[Word, dict[Word, Finite]], HINT)
    return scored


def _of_csv(path: Path) -> dict[str, dict[str, float]]:
    scored: dict[str, dict[str, float]] = {}
    for line, row in csv_rows(path, HINT):
        query = next((name for name in QUERY_IDS if name in row), None)
        if missing := [name for name in ("doc_id", "score") if name not in row] + ["q_id"] * (query is None):
            raise wrong(path, line, missing[0], f"there is no such column ({', '.join(row)})", HINT)
        query_id, doc_id = row[str(query)].strip(), row["doc_id"].strip()
        for field, given in (("query_id", query_id), ("doc_id", doc_id)):
            if identifier(given) is None:
                raise wrong(path, line, field, f"'{given}' is no id: it is empty or holds white space", HINT)
        if doc_id in scored.setdefault(query_id, {}):
            raise wrong(path, line, "doc_id", f"'{doc_id}' was already ranked in query '{query_id}'", HINT)
        scored[query_id][doc_id] = cell(path, line, "score", number, row["score"].strip())
    return scored
