"""Tables of a user's own, row by row, over pandas: every cell is a text as it stands, and none is taken for missing.

Delimited text is read by pandas.read_csv, Parquet by pandas.read_parquet; JSON lines by the reader of all JSON here,
since pandas has no lines for errors and rounds long numbers. Raises UsageError naming file, line and column.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmfair.errors import MissingExtra, UsageError, line_of
from llmfair.io.files import LONGEST_LINE, json_lines, opened, whole_lines, wrong

if TYPE_CHECKING:
    import pandas

Row = tuple[int, Mapping[str, Any]]
"""The line of a row, or its number from 1 where a form has no lines, and its cells by column."""
PACKED = (".gz", ".bz2", ".xz", ".zst", ".lz4")
BEFORE = re.compile(r'(?:"?sep=(?P<separator>.)"?[^\n]*\n)?(?:[^\S\n]*\n)*', re.IGNORECASE)
"""What stands before the names of columns: a line of Excel's that says what separates cells, and blank lines."""


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
    """Rows of text, separated by what stands most often between the names: commas, semicolons or tabs."""
    import pandas
    from pandas.errors import EmptyDataError, ParserError

    text = "".join(line for _, line in whole_lines(path, hint)).replace("\r\n", "\n").replace("\r", "\n")
    before = BEFORE.match(text)
    assert before is not None
    line, body = 1 + before[0].count("\n"), text[before.end() :]
    separator = before["separator"] or max(",;\t", key=body.partition("\n")[0].count)
    csv.field_size_limit(LONGEST_LINE)

    try:
        frame = pandas.read_csv(
            StringIO(body), sep=separator, header=None, index_col=False, dtype=object, na_filter=False,
            skip_blank_lines=False, engine="python",  # which refuses a quote that stands where none fits
        )  # fmt: skip
    except EmptyDataError:
        raise wrong(path, 0, "", "is empty", hint) from None
    except ParserError as error:
        raise _no_row(
            path, line, csv.reader(StringIO(body), delimiter=separator, strict=True), error, hint
        ) from None
    names: list[str] = []
    for cells in frame.itertuples(index=False, name=None):
        begins, line = line, line + 1 + sum(cell.count("\n") for cell in cells if cell)
        there = [cell for cell in cells if cell is not None]
        if not any(map(str.strip, there)):
            continue
        if not names:
            names = unique(path, begins, map(str.strip, there), hint)
        elif len(there) != len(names):
            raise wrong(
                path, begins, "", f"has {len(there)} cells where the first line names {len(names)}", hint
            )
        else:
            yield begins, {name: cell for name, cell in zip(names, there, strict=True) if name}


def _no_row(path: Path, first: int, reader: Any, error: Exception, hint: str) -> UsageError:
    """Of a text that pandas refuses, which does not say where: on the line on which the row begins."""
    line, names = first, 0
    with suppress(csv.Error):
        for cells in reader:
            names = names or len(cells)
            if len(cells) > names:
                return wrong(
                    path, line, "", f"has {len(cells)} cells where the first line names {names}", hint
                )
            line = first + reader.line_num
    return wrong(path, line, "", f"not a row of {names or 'column'} cells: {line_of(error)}", hint)


def unique(path: Path | str, line: int, names: Iterable[str], hint: str) -> list[str]:
    """Names of columns, each of which is there once, but for "": such a column is left alone. Raises UsageError."""
    columns = [*names]
    if twice := next((name for place, name in enumerate(columns) if name and name in columns[:place]), None):
        raise wrong(path, line, twice, "names two columns", hint)
    return columns


def _json(path: Path, hint: str, wanted: Collection[str]) -> Iterator[Row]:
    return json_lines(path, dict[str, Any], hint)


def _parquet(path: Path, hint: str, wanted: Collection[str]) -> Iterator[Row]:
    """Raises MissingExtra."""
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
    ".csv": delimited, ".tsv": delimited, ".jsonl": _json, ".parquet": _parquet
}  # fmt: skip
"""How tables are read, by the ending of their file; a text may be packed."""


# Tables in memory


def is_table(value: object) -> bool:
    """Whether a value is a frame of any library, or rows as a list of dicts or columns as a dict."""
    rows = isinstance(value, list | tuple) and value and all(isinstance(row, Mapping) for row in value)
    return (
        bool(rows)
        or isinstance(value, Mapping)
        or hasattr(value, "__dataframe__")
        or hasattr(value, "to_dict")
    )


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
        cells = (
            cell.tolist() if hasattr(cell, "tolist") else cell for cell in row
        )  # numpy's numbers and lists
        yield dict(zip(names, cells, strict=True))
