"""A report as text: Markdown for pull requests, and a section for a model card."""

from __future__ import annotations

from collections.abc import Sequence

from llmfair.report.page import Page
from llmfair.report.tables import Table, markdown

HEADING = "## How the model ranks items of different groups"


def tables_markdown(tables: Sequence[Table], missing: Sequence[str]) -> str:
    """Every table, after what is missing."""
    lacking = [f"**Not complete:** {'; '.join(missing)}.\n"] if missing else []
    return "\n".join([*lacking, *map(markdown, tables)])


def model_card(page: Page) -> str:
    """What a model card says of the runs on a page: what was found, how it was asked, what it cannot say."""
    method = page.method
    asked = [f"```\n{method.command}\n```\n"] if method.command else []
    return "\n".join(
        [
            f"{HEADING}\n",
            *(f"> {warning}\n" for warning in page.warnings),
            *(f"{verdict.of}: {verdict.measure} {verdict.value} ({verdict.interval}): {verdict.sentence}.\n"
              for verdict in page.verdicts),
            tables_markdown(page.tables, page.missing),
            "### Method\n",
            *(f"{paragraph}\n" for paragraph in method.words),
            *asked,
            "### Limits\n",
            *(f"- {limit}" for limit in method.limits),
            "",
        ]
    )  # fmt: skip
