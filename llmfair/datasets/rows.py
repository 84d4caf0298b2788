"""The rows of a table in a file, by the ending of its name: CSV, TSV, JSON lines, Parquet."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

from llmfair.errors import MissingExtra, line_of
from llmfair.io import files
from llmfair.io.files import FREELY, LONGEST_LINE, TIMES
from llmfair.io.trec import Problems, text_lines, whole_lines

Row = tuple[int, Mapping[str, Any]]
"""The line of a row, or its number where a form has no lines, and its cells by column."""
AT_ONCE = 64 << 20
"""Bytes of rows of a Parquet file that are read at once, about."""


def csv_rows(path: Path, problems: Problems, wanted: Collection[str] = ()) -> Iterator[Row]:
    """Rows below a line of column names, separated by commas, or by semicolons where the first line has these alone."""
    return _separated(path, problems, None)


def tsv_rows(path: Path, problems: Problems, wanted: Collection[str] = ()) -> Iterator[Row]:
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
            if _named_twice(path, number, names, problems):
                return
        elif len(cells) != len(names):
            problems.add(path, number, "", f"has {len(cells)} cells where the first line names {len(names)}")
        else:
            yield number, dict(zip(names, cells, strict=True))


def _named_twice(path: Path, number: int, names: Sequence[str], problems: Problems) -> bool:
    """Whether two columns have one name, which is a problem."""
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        problems.add(path, number, twice or "column", "names two columns")
    return twice is not None


def json_rows(path: Path, problems: Problems, wanted: Collection[str] = ()) -> Iterator[Row]:
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


def parquet_rows(path: Path, problems: Problems, wanted: Collection[str] = ()) -> Iterator[Row]:
    """The rows of a Parquet file, from 1; cells of columns that are not `wanted` are None. Raises MissingExtra."""
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise MissingExtra("pyarrow is not installed.", "pip install 'llmfair[parquet]'") from None
    number, column = 0, ""
    try:
        with files.opened(path) as stored, ParquetFile(stored) as file:
            names = file.schema_arrow.names
            if _named_twice(path, 0, names, problems):
                return
            unread = dict.fromkeys(names)
            read = [name for name in names if name in wanted]
            try:
                at_once = _rows_at_once(file.metadata, read, os.fstat(stored.fileno()).st_size)
            except ValueError as error:
                problems.add(path, 0, "", str(error))
                return
            for batch in file.iter_batches(at_once, columns=read):
                cells: dict[str, list[Any]] = {}
                for column in read:
                    cells[column] = batch.column(column).to_pylist()
                column = ""
                for row in zip(*cells.values(), strict=True) if cells else repeat((), batch.num_rows):
                    number += 1
                    yield number, unread | dict(zip(read, row, strict=True))
    except (ArrowException, OSError, ValueError, LookupError, OverflowError) as error:
        what = "holds what cannot be read" if column else "not a Parquet file"
        problems.add(path, number, column, f"{what}: {line_of(error)}")


def _rows_at_once(metadata: Any, columns: Collection[str], size: int) -> int:
    """How many rows fit into memory. Raises ValueError where those of a file of this size are too much for it."""
    whole, largest = 0, 1.0
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        chunks = map(group.column, range(group.num_columns))
        unpacked = sum(
            chunk.total_uncompressed_size
            for chunk in chunks
            if chunk.path_in_schema in columns or chunk.path_in_schema.partition(".")[0] in columns
        )
        whole, largest = whole + unpacked, max(largest, unpacked / max(group.num_rows, 1))
    if whole > FREELY + TIMES * size:
        raise ValueError(f"unpacks to more than {TIMES} times its size")
    if largest > LONGEST_LINE:
        raise ValueError(f"its rows have more than {LONGEST_LINE >> 20} MB")
    return int(min(256, AT_ONCE // largest))


FORMS: Mapping[str, Callable[[Path, Problems, Collection[str]], Iterator[Row]]] = {
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
