"""A table as text for a terminal that is not ours, and as HTML for a notebook."""

from __future__ import annotations

from collections.abc import Sequence

from llmfair.io.text import visible
from llmfair.report.lead import WIDTH, lead_lines
from llmfair.report.tables import Table, with_texts


def text_of(table: Table) -> str:
    """The table in columns, with the line above it and the sentences below."""
    from rich.cells import cell_len

    table = with_texts(table, visible)
    lines = [table.header, *table.rows] if table.header else []
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]

    def padded(line: Sequence[str]) -> str:
        cells = (cell + " " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True))
        return "".join(f" {cell} " for cell in cells).rstrip()

    lead = "\n".join(lead_lines(table.lead, WIDTH))
    notes = "\n".join(f"  {note}" for note in table.notes)
    parts = (lead, "\n".join(table.above), "\n".join(map(padded, lines)), notes)
    return "\n\n".join(part for part in parts if part)


def html_of(table: Table) -> str:
    """The table as an HTML fragment; every cell is escaped."""
    from markupsafe import Markup

    def line(name: str, cells: Sequence[str]) -> Markup:
        tag = Markup(name)
        return Markup("<tr>{}</tr>").format(
            Markup("").join(Markup("<{0}>{1}</{0}>").format(tag, cell) for cell in cells)
        )

    table = with_texts(table, visible)
    head = line("th", table.header) if table.header else Markup("")
    body = Markup("\n").join(line("td", row) for row in table.rows)
    notes = Markup("\n").join(Markup("<li>{}</li>").format(note) for note in table.notes)
    lead = Markup("").join(
        Markup("<p><strong>{}</strong> {}</p>\n").format(name, text) for name, text in table.lead
    )
    return str(lead) + str(
        Markup(
            "<table>\n<caption>{}</caption>\n<thead>{}</thead>\n<tbody>\n{}\n</tbody>\n</table>\n<ul>\n{}\n</ul>"
        ).format(" · ".join(table.above), head, body, notes)
    )
