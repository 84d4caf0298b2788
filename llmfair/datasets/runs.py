"""Run files by the ending of their name: TREC's six columns, or scores as ranx keeps them, in JSON or CSV."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llmfair.datasets.files import identifier
from llmfair.datasets.rows import csv_rows
from llmfair.io.trec import Problems, RunFile, finite_number, read_run, run_of, whole_lines

HINT = (
    "a run has six columns: query_id Q0 doc_id rank score tag; in .json it is {query_id: {doc_id: score}}, in .csv it "
    "has the columns q_id, doc_id and score"
)
QUERY_IDS = ("q_id", "query_id")
Scored = tuple[int, str, str, str, Any]
"""The line, if there is one, the field, query_id, doc_id and score."""


def read_any_run(path: Path, problems: Problems, scores_kept: bool = False) -> RunFile:
    """A run in the order that trec_eval gives its scores; see `read_run`."""
    rows = {".json": _of_json, ".csv": _of_csv}.get(scores_form(path))
    if rows is None:
        return read_run(path, problems, scores_kept)
    scored: dict[str, dict[str, float]] = {}
    for number, field, query_id, doc_id, value in rows(path, problems):
        score = None if isinstance(value, bool) else finite_number(str(value))
        if identifier(query_id) is None or identifier(doc_id) is None:
            wrong = query_id if identifier(query_id) is None else doc_id
            problems.add(path, number, field, f"'{wrong}' is no id: it is empty or holds white space")
        elif score is None:
            problems.add(path, number, field, f"'{value}' is not a finite number")
        elif doc_id in scored.setdefault(query_id, {}):
            problems.add(path, number, field, f"'{doc_id}' was already ranked in query '{query_id}'")
        else:
            scored[query_id][doc_id] = score
    return run_of(path, scored, path.name.partition(".")[0], problems, scores_kept)


def scores_form(path: Path) -> str:
    """The ending of a file that has scores as ranx keeps them; "" of any other."""
    ending = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    return ending if ending in (".json", ".csv") else ""


def _of_json(path: Path, problems: Problems) -> Iterator[Scored]:
    text = "".join(line for _, line in whole_lines(path, problems))
    if problems.count:
        return
    try:
        found = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError) as error:
        where = error.lineno if isinstance(error, json.JSONDecodeError) else 0
        problems.add(path, where, "", f"not a JSON object: {getattr(error, 'msg', error)}")
        return
    if not isinstance(found, _Pairs):
        problems.add(path, 0, "", f"not a JSON object but {type(found).__name__}")
        return
    for query_id, scores in found:
        if not isinstance(scores, _Pairs):
            problems.add(path, 0, query_id, "is no object of scores by doc_id")
            continue
        for doc_id, score in scores:
            yield 0, f"{query_id}.{doc_id}", query_id, doc_id, score


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with keys that come again."""


def _of_csv(path: Path, problems: Problems) -> Iterator[Scored]:
    for number, row in csv_rows(path, problems):
        query = next((name for name in QUERY_IDS if name in row), None)
        if missing := [name for name in ("doc_id", "score") if name not in row] + ["q_id"] * (query is None):
            problems.add(path, number, missing[0], f"there is no such column ({', '.join(row)})")
            return
        yield number, "score", row[str(query)].strip(), row["doc_id"].strip(), row["score"].strip()
