"""CSV files of run folders, read: every line typed, and one that is damaged named."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from llmfair import inputs
from llmfair.errors import UsageError
from llmfair.printable import from_csv

T = TypeVar("T")
AGAIN = "the command that began the run writes it anew"


def read_csv(path: Path, what: str, of: Callable[[dict[str, str]], T]) -> list[T]:
    """Each line of a file read by `of`, in order. Raises UsageError naming a line that is not `what`."""

    def whole(row: dict[str, str]) -> T:
        if None in (*row, *row.values()):  # so csv tells of fields too many, and too few
            raise ValueError("its fields are not those of the header")
        return of(row)

    try:
        with inputs.opened(path) as stored:
            rows = csv.DictReader(line.decode("utf-8") for line in inputs.pieces(stored))
            found: list[T] = []
            try:
                found.extend(map(whole, from_csv(rows)))
            except (ValueError, LookupError, TypeError, csv.Error) as error:
                raise UsageError(f"{path}:{rows.line_num}: is not {what}: {error}.", AGAIN) from None
            return found
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}.", AGAIN) from None


def number(text: str) -> float:
    """The finite number that a field holds, in plain digits. Raises ValueError."""
    if not text.isascii() or "_" in text or not math.isfinite(found := float(text)):
        raise ValueError(f"'{text}' is no finite number")
    return found


class QueryFigure(NamedTuple):
    """A measure's value of one query; `value` None is undefined."""

    run: str
    query_id: str
    measure: str
    condition: str
    group: str
    value: float | None
    reason: str


def query_figures(folder: Path, needed: bool = False) -> list[QueryFigure]:
    """The lines of per_query.csv; a file that is not there has none. Raises UsageError, of one that is `needed` too."""
    path = folder / "per_query.csv"
    return read_figures(path, _query_figure) if needed or path.is_file() else []


def read_figures(path: Path, of: Callable[[dict[str, str]], T]) -> list[T]:
    """Each line of a per_query.csv read by `of`. Raises UsageError, for a figure that is there twice too."""
    known = set[tuple[str, ...]]()

    def once(row: dict[str, str]) -> T:
        named = tuple(row[name] for name in ("run", "query_id", "measure", "condition", "group"))
        if named in known:
            raise ValueError("it is there twice")
        known.add(named)
        return of(row)

    return read_csv(path, "a figure of a query", once)


def _query_figure(row: dict[str, str]) -> QueryFigure:
    texts = {name: row[name] for name in QueryFigure._fields if name != "value"}
    return QueryFigure(**texts, value=number(row["value"]) if row["value"] else None)
