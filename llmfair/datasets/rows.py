"""The rows of a table in a file, by the ending of its name: CSV, TSV, JSON lines, Parquet."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from llmfair import inputs
from llmfair.errors import MissingExtra
from llmfair.inputs import LONGEST_LINE
from llmfair.trec import Problems, text_lines, whole_lines

Row = tuple[int, Mapping[str, Any]]
"""The line of a row, or its number where a form has no lines, and its cells by column."""


def csv_rows(path: Path, problems: Problems) -> Iterator[Row]:
    """Rows below a line of column names, separated by commas, or by semicolons where the first line has these alone."""
    return _separated(path, problems, None)


def tsv_rows(path: Path, problems: Problems) -> Iterator[Row]:
    """The same, separated by tabs."""
    return _separated(path, problems, "\t")


def _separated(path: Path, problems: Problems, separator: str | None) -> Iterator[Row]:
    lines = (line for _, line in whole_lines(path, problems))
    first = next(lines, "")
    delimiter = separator or (";" if ";" in first and "," not in first else ",")

    def all_lines() -> Iterator[str]:
        yield first
        yield from lines

    csv.field_size_limit(LONGEST_LINE)
    reader = csv.reader(all_lines(), delimiter=delimiter, strict=True)
    names: list[str] = []
    begins = 1
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            problems.add(path, begins, "", f"not a row of {len(names) or 'column'} cells: {error}")
            return  # what is open is not closed: nothing behind it can be told
        if cells is None:
            return
        number, begins = begins, reader.line_num + 1
        if not any(map(str.strip, cells)):
            continue
        if not names:
            names = [cell.strip() for cell in cells]
            if twice := next((name for place, name in enumerate(names) if name in names[:place]), None):
                problems.add(path, number, twice or "column", "names two columns")
                return
        elif len(cells) != len(names):
            problems.add(path, number, "", f"has {len(cells)} cells where the first line names {len(names)}")
        else:
            yield number, dict(zip(names, cells, strict=True))


def json_rows(path: Path, problems: Problems) -> Iterator[Row]:
    """A JSON object a line."""
    for number, line in text_lines(path, problems):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            why = f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else error
            problems.add(path, number, "", f"not a JSON object: {why}")
            continue
        if isinstance(row, dict):
            yield number, row
        else:
            problems.add(path, number, "", f"not a JSON object but {type(row).__name__}")


def parquet_rows(path: Path, problems: Problems) -> Iterator[Row]:
    """The rows of a Parquet file, from 1. Raises MissingExtra."""
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise MissingExtra("pyarrow is not installed.", "pip install 'llmfair[parquet]'") from None
    number = 0
    try:
        with inputs.opened(path) as stored, ParquetFile(stored) as file:
            for batch in file.iter_batches():
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (ArrowException, OSError, ValueError) as error:
        problems.add(path, number, "", f"not a Parquet file: {str(error).splitlines()[0]}")


FORMS: Mapping[str, Callable[[Path, Problems], Iterator[Row]]] = {
    ".csv": csv_rows,
    ".tsv": tsv_rows,
    ".jsonl": json_rows,
    ".parquet": parquet_rows,
}
"""How tables are read, by the ending of their file; a text may be packed (.gz)."""


def form_of(path: Path) -> str | None:
    """The ending that says how a file is read; None of one that is no table."""
    ending = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    return ending if ending in FORMS else None
