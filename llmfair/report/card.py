"""A report as text: Markdown for pull requests, and a section for a model card."""

from __future__ import annotations

from llmfair.io.text import in_markdown, visible
from llmfair.report.page import Page
from llmfair.report.tables import markdown, markdown_lead

HEADING = "## How the model ranks items of different groups"


def tables_markdown(page: Page) -> str:
    """Every table, after what has to be known first and what is missing."""
    return "\n".join([*markdown_lead(page.lead), *_warnings(page), *_tables(page)])


def _warnings(page: Page) -> list[str]:
    return [f"> {in_markdown(warning)}\n" for warning in page.warnings]


def _tables(page: Page) -> list[str]:
    lacking = [f"**Not complete:** {in_markdown('; '.join(page.missing))}.\n"] if page.missing else []
    return [*lacking, *map(markdown, page.tables)]


def model_card(page: Page) -> str:
    """What a model card says of the runs on a page: what was found, how it was asked, what it cannot say."""
    method = page.method
    asked = [f"```\n{visible(method.command)}\n```\n"] if method.command else []
    return "\n".join(
        [
            f"{HEADING}\n",
            *markdown_lead(page.lead),
            *_warnings(page),
            *(in_markdown(f"{verdict.of}: {verdict.measure} {verdict.value} ({verdict.interval}): {verdict.sentence}.")
              + "\n" for verdict in page.verdicts),
            *_tables(page),
            "### Method\n",
            *(f"{in_markdown(paragraph)}\n" for paragraph in method.words),
            *asked,
            "### Limits\n",
            *(f"- {in_markdown(limit)}" for limit in method.limits),
            "",
        ]
    )  # fmt: skip
