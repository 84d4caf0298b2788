"""Forms of a page: HTML, Markdown for pull requests, LaTeX for papers, CSV for programs, a section for a model card.

HTML is one file that asks nobody for anything, readable in the dark, on a phone and on paper.

jinja2 escapes every value, and an unknown one is an error; the only text taken as it is are our own drawings and our
own script, which the page's policy knows by its hash: no other can run.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

from llmfair.io.text import in_lines, in_markdown, visible
from llmfair.nouns import picked
from llmfair.report.page import Page, Source
from llmfair.report.plots import inline_svg
from llmfair.report.table import Table, latex, lead_of, markdown, markdown_lead
from llmfair.results import ALL, lines_of
from llmfair.rundir import COLUMNS, csv_text

HEADING = "## How the model ranks items of different groups"
FOLDER, TEMPLATE, SCRIPT = Path(__file__).parent, "page.html.j2", "page.js"
BRACKET = re.compile(r" (?=[\[(])")


def rendered(template: str, **values: Any) -> str:
    """A template of this folder as a document; equal values give equal text."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["parts"] = BRACKET.split
    return in_lines(environment.get_template(template).render(values))


def page_html(page: Page) -> str:
    """The report as one HTML document."""
    from markupsafe import Markup

    script, first = (FOLDER / SCRIPT).read_text("utf-8"), page.first
    return rendered(
        TEMPLATE,
        page=page,
        opening=first and (first, Markup(inline_svg(first))),
        drawings=[(plot, Markup(inline_svg(plot))) for plot in page.plots if plot is not first],
        script=Markup(script),
        hashed=base64.b64encode(sha256(script.encode()).digest()).decode(),
    )


def html_of(table: Table) -> str:
    """The table as an HTML fragment, for notebooks."""
    return rendered("table.html.j2", table=table.texts(visible))


# A report as text


def tables_markdown(page: Page) -> str:
    """Every table, after what has to be known first and what is missing."""
    lacking = [f"**Not complete:** {in_markdown('; '.join(page.missing))}.\n"] if page.missing else []
    warnings = [f"> {in_markdown(warning)}\n" for warning in page.warnings]
    lead = markdown_lead(lead_of(page.outcome, page.following))
    return "\n".join([*lead, *warnings, *lacking, *map(markdown, page.tables)])


def tables_latex(page: Page) -> str:
    """Every table in LaTeX; what has to be known first, and what is missing, as comments."""
    warnings = [("WARNING", text) for text in (*page.warnings, *page.missing)]
    above = (*lead_of(page.outcome, page.following), *warnings)
    comments = [f"% {name} {visible(text)}" for name, text in above]
    return "\n".join([r"% \usepackage{booktabs}", *comments, "", *map(latex, page.tables)])


def figures_csv(sources: Sequence[Source]) -> str:
    """All figures of these results as CSV, one a line; what a study has besides in columns behind the others."""
    lines = list[dict[str, Any]]()
    for source in sources:
        if source.study is None:
            rows = [] if source.results is None else source.results.rows
            lines += [dict(zip(COLUMNS, line, strict=True)) for line in lines_of(rows)]
        else:
            shared = picked(source.results, ("dataset", "attribute", "model"))
            columns, rows = source.study.lines(source.results)
            lines += [shared | {"query_id": ALL} | dict(zip(columns, line, strict=True)) for line in rows]
    header = [*dict.fromkeys(chain(COLUMNS, *lines))]
    return csv_text(header, ([line.get(name) for name in header] for line in lines))


def model_card(page: Page) -> str:
    """What a model card says of the runs on a page: what was found, how it was asked, what it cannot say."""
    method = page.method
    asked = [f"```\n{visible(method.command)}\n```\n"] if method.command else []
    return "\n".join(
        [
            f"{HEADING}\n",
            tables_markdown(page),
            "### Method\n",
            *(f"{in_markdown(paragraph)}\n" for paragraph in method.words),
            *asked,
            "### Limits\n",
            *(f"- {in_markdown(limit)}" for limit in method.limits),
            "",
        ]
    )
