"""The page: one file that asks nobody for anything, readable in the dark, on a phone and on paper.

jinja2 escapes every value, and an unknown one is an error; the only text taken as it is are our own drawings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from llmfair.report.page import Page
from llmfair.report.plots.base import inline_svg
from llmfair.trec import write_whole

TEMPLATE = "page.html.j2"
BRACKET = re.compile(r" (?=[\[(])")


def page_html(page: Page) -> str:
    """The report as one HTML document; equal pages give equal text."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["parts"] = BRACKET.split
    drawings = [(plot, Markup(inline_svg(plot))) for plot in page.plots]
    return environment.get_template(TEMPLATE).render(
        page=page, drawings=drawings, rows=Markup(rows_json(page.rows))
    )


def write_page(path: Path, page: Page) -> None:
    """Writes the report. Raises OSError."""
    write_whole(path, [page_html(page)])


def rows_json(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as JSON that no parser of HTML takes for an end of the script."""
    text = json.dumps(rows, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=str)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
