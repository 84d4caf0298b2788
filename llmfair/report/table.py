"""Tables of declared columns, and what they become: text, Markdown, LaTeX. Nothing is measured here."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from operator import methodcaller
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

from llmfair.io.text import in_markdown, visible, wrapped
from llmfair.metrics.base import CONTROLLED, plain_name
from llmfair.report.phrases import cell
from llmfair.results import Figure, RunVerdict

R = TypeVar("R")
Cell = str | int | Figure | None
"""What a column has for a row: a text, a number of things, a figure with its interval, or nothing."""
Column = tuple[str, Callable[[R], Cell]]
"""A heading, and the cell of a row."""
Place = tuple[str, str]
"""A measure, and the group that the figure is of: "" for a measure with one figure for all."""
Lead = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Table:
    """A table with a line above it and sentences below it; `said`: what it concludes of each condition, by name.

    `names`: how many columns, the first ones, name a row.

    `lead`: named lines before everything, such as the verdict. `sees`: what the model saw, told below the title.
    `strong`: the cells that stand out, (row, column). `below`: a table of something else about the same.
    """

    title: str
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()
    said: Mapping[str, str] = field(default_factory=dict)
    lead: Lead = ()
    sees: str = ""
    strong: frozenset[tuple[int, int]] = frozenset()
    below: Table | None = None
    names: int = 1

    @property
    def above(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.title, self.sees)))

    @classmethod
    def of(
        cls,
        title: str | Iterable[str],
        columns: Iterable[Column[R]],
        rows: Iterable[R],
        notes: Iterable[str] = (),
        band: Collection[float] = (),
        **beside: Any,
    ) -> Table:
        """A table of these rows, with the columns that have anything for any of them; a `title` may come in parts.

        Figures stand on their side of the `band`; `beside`: other fields of the table.
        """

        def text(value: Cell) -> str:
            if isinstance(value, Figure | None):
                return cell(value, band)
            return f"{value:,}" if isinstance(value, int) else value

        lines = [*rows]
        declared = [(heading, *(text(of(row)) for row in lines)) for heading, of in columns]
        shown = [column for column in declared if any(column[1:]) or not lines]
        header, *cells = zip(*shown, strict=True) if shown else [()]
        parts = title if isinstance(title, str) else " · ".join(filter(None, title))
        return cls(parts, header, tuple(cells), tuple(notes), **beside)

    @classmethod
    def of_texts(cls, title: str, rows: Iterable[Mapping[str, Cell]], *notes: str) -> Table:
        """The same of rows that name what they have by the headings of columns."""
        lines = [*rows]
        headings = dict.fromkeys(heading for row in lines for heading in row)
        return cls.of(
            title, [(name, methodcaller("get", name)) for name in headings], lines, filter(None, notes)
        )

    def texts(self, change: Callable[[str], str]) -> Table:
        """The table with every text of it changed, as what shows it needs."""
        return replace(
            self,
            title=change(self.title),
            header=tuple(map(change, self.header)),
            rows=tuple(tuple(map(change, row)) for row in self.rows),
            notes=tuple(map(change, self.notes)),
            lead=tuple((name, change(text)) for name, text in self.lead),
            sees=change(self.sees),
        )


# Columns of measures.


def figure_columns(
    results: Any,
    measures: Sequence[str],
    figures: Iterable[tuple[Place, Hashable, Cell]],
    verdict: RunVerdict | None = None,
    key: Callable[[Any], Hashable] = lambda row: row,
) -> list[Column[Any]]:
    """A column for each measure, or for each of its groups; `figures` say by its `key` of which row they are.

    The measure that the verdict speaks of comes first, the group that is not known last. `results` have `labels` of
    measures in words, and the `level` of intervals.
    """
    cells: dict[Place, dict[Hashable, Cell]] = {}
    for place, row, figure in figures:
        cells.setdefault(place, {})[row] = figure
    places = places_of(measures, cells, verdict)
    intervals = {
        place for place in places if any(getattr(of, "low", None) is not None for of in cells[place].values())
    }

    def of(place: Place) -> Callable[[Any], Cell]:
        return lambda row: cells[place].get(key(row))

    return [*zip(headings(places, results, intervals), map(of, places), strict=True)]


def places_of(
    measures: Sequence[str], places: Collection[Place], verdict: RunVerdict | None = None
) -> list[Place]:
    """Those of these measures, in the order of their columns."""
    first = None if verdict is None else re.sub(r"\(stratum=\w+\)|,stratum=\w+", "", verdict.measure or "")
    order = sorted(dict.fromkeys(measures), key=lambda name: name != first)
    of_measures = (place for place in places if place[0] in order)
    return sorted(of_measures, key=lambda place: (order.index(place[0]), place[1].startswith("@"), place[1]))


def headings(places: Sequence[Place], results: Any, intervals: Collection[Place]) -> list[str]:
    """Names of columns, in words where a measure has no other; the level stands with those in `intervals`."""
    plain = {measure: plain_name(results.labels.get(measure, measure), CONTROLLED) for measure, _ in places}
    names = list(plain.values())
    return [
        (plain[measure] if names.count(plain[measure]) == 1 else measure)
        + f", {group}" * bool(group)
        + f" [{results.level * 100:g} %]" * ((measure, group) in intervals)
        for measure, group in places
    ]


# The first lines of everything: the verdict, and what to do next.


VERDICT, NEXT = "VERDICT", "NEXT"
WIDTH = 120
"""Where lines are wrapped that nothing else bounds."""
RUNS = Path("runs")
"""Where a run is found by its name alone."""


def lead_of(verdicts: Iterable[tuple[str, RunVerdict | None]], following: str = "") -> Lead:
    """A line for the verdict of each run, by its name ("" of a single one), and one for what `following` says to do."""
    lines = [
        (VERDICT, f"{name}: " * bool(name) + f"{verdict.status}: {verdict.sentence}")
        for name, verdict in verdicts
        if verdict is not None
    ]
    return (*lines, *[(NEXT, following)] * bool(lines and following))


def headed(
    table: Table, verdict: RunVerdict | None, folder: Path | None = None, continued: str | None = None
) -> Table:
    """The table below its verdict; the next step names the run's `folder` where its name alone would not find it.

    Of a run that lacks answers it is the command that asks them, where one is known.
    """
    following = "" if verdict is None else continued or verdict.next
    if folder is not None and folder.parent != RUNS:
        named = rf"(llmfair (?:runs show|report|mitigate)) {re.escape(quote(folder.name))}(?=\s|$)"
        following = re.sub(named, lambda part: f"{part[1]} {quote(str(folder))}", following)
    return replace(table, lead=lead_of([("", verdict)], following))


# A table as text: folded where there is no room.


GAP = "  "
LEAST_FOLDED = 24
"""A word that is longer may be broken where a column has little room."""
Line = list[tuple[str, bool]]
"""A line of a terminal in parts, and which of them stand out."""


def drawing(table: Table, width: int = sys.maxsize) -> Iterator[Line]:
    """The table in lines of this width, with its lead and title above and its notes below.

    As many columns stand beside those that name rows as there is room for, the others below, table by table.
    """

    def part(lines: Iterable[str], strong: bool = False) -> list[Line]:
        return [[(line, strong)] for line in lines]

    table = table.texts(visible)
    indent = max((len(name) for name, _ in table.lead), default=0) + len(GAP)
    room = max(width if width < sys.maxsize else WIDTH, 3 * indent)
    named = (wrapped(text, room, f"{name:<{indent}}", " " * indent) for name, text in table.lead)
    lead = part(chain(*named))
    title = part(wrapped(table.title, width), strong=True) + part(wrapped(table.sees, width))
    for lines in filter(None, (lead, title)):
        yield from [*lines, []]
    for widths in _parts([*zip(table.header, *table.rows, strict=True)], width, table.names):
        for at, cells in enumerate([table.header, *table.rows], -1):
            strong = (at < 0 or (at, place) in table.strong for place in widths)
            yield from _lines([cells[place] for place in widths], [*widths.values()], [*strong], at < 0)
        yield []
    yield from part(line for note in table.notes for line in wrapped(note, width, GAP, GAP))
    if table.below:
        yield from [*part([""] * bool(table.notes)), *drawing(table.below, width)]


def text_of(table: Table) -> str:
    """The table in columns as wide as they are."""
    return "\n".join("".join(text for text, _ in line) for line in drawing(table)).rstrip("\n")


def _lines(
    cells: Sequence[str], rooms: Sequence[int], strong: Sequence[bool], header: bool = False
) -> Iterator[Line]:
    """A row of cells, each with the room that it has, in as many lines as the longest takes."""
    from rich.cells import cell_len, chop_cells

    folded = [
        [part for line in wrapped(cell, room, cell=True) for part in chop_cells(line, room)]
        if cell_len(cell) > room
        else [cell]
        for cell, room in zip(cells, rooms, strict=True)
    ]
    if header:  # which stands right above the rows
        most = max(map(len, folded), default=0)
        folded = [[""] * (most - len(lines)) + lines for lines in folded]
    for texts in zip_longest(*folded, fillvalue=""):
        last = max((place for place, text in enumerate(texts) if text), default=0)
        padding = [" " * (room - cell_len(text) + 1) for room, text in zip(rooms, texts, strict=True)]
        padding[last] = ""
        yield [(f" {texts[place]}{padding[place]}", strong[place]) for place in range(last + 1)]


def _parts(columns: Sequence[Sequence[str]], width: int, names: int = 1) -> Iterator[dict[int, int]]:
    """The widths of columns, by their places, table by table.

    None is narrower than its longest word, or `LEAST_FOLDED`, where there is room for so much.
    """
    from rich.cells import cell_len

    def longest(texts: Iterable[str]) -> int:
        return max(map(cell_len, texts), default=0)

    widest = [longest(cells) for cells in columns]
    least = widest
    if sum(widest) + len(GAP) * len(widest) > width:
        words = [[word for cell in cells for word in wrapped(cell, 1, cell=True)] for cells in columns]
        least = [min(longest(of), LEAST_FOLDED) for of in words]
    first = [*range(min(names, len(columns)))]
    parts = [[*first]] if columns else []
    for place in range(names, len(columns)):
        if len(parts[-1]) > names and sum(least[at] + len(GAP) for at in (*parts[-1], place)) > width:
            parts.append([*first])
        parts[-1].append(place)

    def widths(places: Sequence[int]) -> dict[int, int]:
        """The widest alone is folded where that leaves it a third of what it would take beyond the least, else what
        there is room for is shared by what each would take.
        """
        wanted = {place: widest[place] - least[place] for place in places}
        spare = width - sum(least[place] + len(GAP) for place in places)
        if spare < 0:
            return dict.fromkeys(places, max(width // len(places) - len(GAP), 1))
        most = max(wanted, key=wanted.__getitem__)
        left = spare - sum(wanted.values()) + wanted[most]
        if left >= wanted[most] / 3:
            return {place: widest[place] for place in places} | {most: min(widest[most], least[most] + left)}
        share = spare / sum(wanted.values())
        return {place: least[place] + int(share * wanted[place]) for place in places}

    return map(widths, parts)


# As Markdown and LaTeX.


def markdown(table: Table) -> str:
    """The table as GitHub-flavoured Markdown, for pull requests."""
    table = table.texts(in_markdown)

    def line(cells: Sequence[str], row: int = -1) -> str:
        escaped = (re.sub(r"([|*])", r"\\\1", cell) for cell in cells)
        marked = (f"**{cell}**" if (row, at) in table.strong else cell for at, cell in enumerate(escaped))
        return f"| {' | '.join(marked)} |"

    return "\n".join(
        [
            *markdown_lead(table.lead),
            "\n\n".join(table.above),
            "",
            line(table.header),
            f"| {' | '.join('---' for _ in table.header)} |",
            *(line(cells, row) for row, cells in enumerate(table.rows)),
            "",
            *(f"- {note}" for note in table.notes),
            *([markdown(table.below)] if table.below else [""]),
        ]
    )


def markdown_lead(lead: Lead) -> list[str]:
    """Named lines as paragraphs of Markdown."""
    return [f"**{name}** {in_markdown(text)}\n" for name, text in lead]


IN_LATEX = str.maketrans(
    {character: "\\" + character for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$"}
    | {"≤": r"$\leq$", "≥": r"$\geq$", "−": "$-$", "→": r"$\to$", "●": r"$\bullet$", "½": r"$\frac{1}{2}$"}
)  # fmt: skip


def latex(table: Table) -> str:
    """The table in LaTeX, whose document needs the package booktabs; what stands out is bold."""
    table = table.texts(lambda text: visible(text).translate(IN_LATEX))

    def line(cells: Sequence[str], row: int = -1) -> str:
        marked = (
            rf"\textbf{{{cell}}}" if (row, at) in table.strong else cell for at, cell in enumerate(cells)
        )
        # else the break of the line before would take a bracket for its argument
        return re.sub(r"^\[", "{[}", " & ".join(marked)) + r" \\"

    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{' · '.join(table.above)}}}",
            rf"\begin{{tabular}}{{{'l' * len(table.header)}}}",
            r"\toprule",
            line(table.header),
            r"\midrule",
            *(line(cells, row) for row, cells in enumerate(table.rows)),
            r"\bottomrule",
            r"\end{tabular}",
            *(rf"\par\footnotesize {note}" for note in table.notes),
            r"\end{table}",
            latex(table.below) if table.below else "",
        ]
    )
