"""Tables of a user's own, row by row: every cell is a text as it stands, and none is taken for missing.

Parquet and frames are read by pandas. Delimited text and JSON lines are read a line at a time, however long a file is,
since pandas has no lines for errors. Raises UsageError naming file, line and column.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmfair.errors import MissingExtra, UsageError, line_of
from llmfair.io.files import json_lines, opened, whole_lines, wrong

if TYPE_CHECKING:
    import pandas

Row = tuple[int, Mapping[str, Any]]
"""The line of a row, or its number from 1 where a form has no lines, and its cells by column."""
PACKED = (".gz", ".bz2", ".xz", ".zst", ".lz4")
SEPARATOR = re.compile(r'"?sep=([^"\n])', re.IGNORECASE)
"""A line of Excel's before the names of columns that says what separates cells."""


def ending(path: Path) -> str:
    """The ending of a file's name before that of its packing."""
    return Path(path.stem).suffix if path.suffix in PACKED else path.suffix


def form_of(path: Path) -> str | None:
    """The ending that says how a file is read; None of one that is no table."""
    return form if (form := ending(path)) in FORMS else None


def rows_of(path: Path, hint: str, wanted: Collection[str] = ()) -> Iterator[Row]:
    """The rows of a file of a known form; of Parquet, cells of columns that are not `wanted` are None."""
    return FORMS[str(form_of(path))](path, hint, wanted)


def delimited(path: Path, hint: str, wanted: Collection[str] = ()) -> Iterator[Row]:
    """Rows of text, separated by tabs in .tsv, else by what stands most often between the names: , ; or tabs."""
    lines = chain.from_iterable(
        StringIO(line, newline=None) if "\r" in line else (line,) for _, line in whole_lines(path, hint)
    )
    head, first = next(lines, ""), 1
    if (said := SEPARATOR.match(head)) is not None:
        head, first = next(lines, ""), 2
    while head.isspace():
        head, first = next(lines, ""), first + 1
    if not head:
        raise wrong(path, 0, "", "is empty", hint)
    separator = "\t" if ending(path) == ".tsv" else said[1] if said else max(",;\t", key=head.count)
    reader = csv.reader(chain([head], lines), delimiter=separator, strict=True)
    names, begins = list[str](), first
    try:
        for cells in reader:
            line, begins = begins, first + reader.line_num
            if not any(map(str.strip, cells)):
                continue
            if not names:
                names = unique(path, line, map(str.strip, cells), hint)
            elif len(cells) != len(names):
                what = f"has {len(cells)} cells where the first line names {len(names)}"
                raise wrong(path, line, "", what, hint)
            else:
                yield line, {name: cell for name, cell in zip(names, cells, strict=True) if name}
    except csv.Error as error:  # what is open is not closed: nothing behind it can be told
        raise wrong(path, begins, "", f"not a row of {len(names) or 'column'} cells: {error}", hint) from None


def unique(path: Path | str, line: int, names: Iterable[str], hint: str) -> list[str]:
    """Names of columns, each of which is there once, but for "": such a column is left alone. Raises UsageError."""
    columns = [*names]
    if twice := next((name for place, name in enumerate(columns) if name and name in columns[:place]), None):
        raise wrong(path, line, twice, "names two columns", hint)
    return columns


def parquet(path: Path, hint: str, wanted: Collection[str]) -> Iterator[Row]:
    """Rows of Parquet, of the `wanted` columns; all others are None. Raises MissingExtra."""
    import pandas

    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import read_schema
    except ImportError:
        raise MissingExtra("pyarrow is not installed.", "pip install 'llmfair[parquet]'") from None
    try:
        with opened(path) as stored:
            names = unique(path, 0, read_schema(stored).names, hint)
            stored.seek(0)
            columns = [name for name in names if name in wanted]
            rows = [*records(pandas.read_parquet(stored, columns=columns, dtype_backend="numpy_nullable"))]
    except (ArrowException, OSError, ValueError, LookupError, OverflowError) as error:
        raise wrong(path, 0, "", f"cannot be read as Parquet: {line_of(error)}", hint) from None
    unread = dict.fromkeys(names)
    return ((number, unread | row) for number, row in enumerate(rows, start=1))


FORMS: Mapping[str, Callable[[Path, str, Collection[str]], Iterator[Row]]] = {
    ".csv": delimited, ".tsv": delimited,
    ".jsonl": lambda path, hint, wanted: json_lines(path, dict[str, Any], hint), ".parquet": parquet,
}  # fmt: skip
"""How tables are read, by the ending of their file; a text may be packed."""


# Tables in memory


def is_table(value: object) -> bool:
    """Whether a value is a frame of any library, or rows as a list of dicts or columns as a dict."""
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(row, Mapping) for row in value)
    return isinstance(value, Mapping) or hasattr(value, "__dataframe__") or hasattr(value, "to_dict")


def frame_of(value: Any) -> pandas.DataFrame:
    """A table in memory as a frame of pandas, its cells as they are. Raises UsageError."""
    import pandas

    if isinstance(value, pandas.DataFrame):
        return value
    if hasattr(value, "to_pylist"):  # pyarrow
        value = value.to_pylist()
    elif hasattr(value, "iter_rows"):  # polars
        value = [*value.iter_rows(named=True)]
    elif not isinstance(value, list | tuple | Mapping):
        value = value.to_dict()
    try:
        return pandas.DataFrame(value, dtype=object)
    except ValueError as error:
        raise UsageError(f"no table: {line_of(error)}.", "rows as a list of dicts, or a frame") from None


def records(frame: pandas.DataFrame) -> Iterator[dict[str, Any]]:
    """The rows of a frame by column, as values of Python; an empty cell is None."""
    names = unique("the frame", 0, map(str, frame.columns), "rename or drop one")
    for row in frame.astype(object).where(frame.notna(), None).itertuples(index=False, name=None):
        # numpy's numbers and lists
        cells = (cell.tolist() if hasattr(cell, "tolist") else cell for cell in row)
        yield dict(zip(names, cells, strict=True))
