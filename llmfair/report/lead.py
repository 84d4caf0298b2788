"""The first lines of everything: the verdict, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote

from llmfair import registry
from llmfair.io.text import in_markdown, wrapped
from llmfair.metrics.base import plain_name
from llmfair.report.tables import Table
from llmfair.results import RunVerdict

VERDICT, NEXT = "VERDICT", "NEXT"
WIDTH = 120
"""Where lines are wrapped that nothing else bounds."""
RUNS = Path("runs")
"""Where a run is found by its name alone."""
WHOLE_SENTENCES = 4
"""Of more runs than this, verdicts are told in short."""
Lead = tuple[tuple[str, str], ...]


def lead_of(verdicts: Iterable[tuple[str, RunVerdict | None]], following: str = "") -> Lead:
    """A line for the verdict of each run, by its name ("" of a single one), and one for what `following` says to do.

    Of many runs a verdict is told in short.
    """
    known = [(f"{name}: " if name else "", verdict) for name, verdict in verdicts if verdict is not None]
    short = len(known) > WHOLE_SENTENCES
    lines = [
        (VERDICT, name + (in_short(verdict) if short else f"{verdict.status}: {verdict.sentence}"))
        for name, verdict in known
    ]
    return (*lines, *[(NEXT, following)] * bool(lines and following))


def in_short(verdict: RunVerdict) -> str:
    """The status and the figure."""
    if verdict.estimate is None:
        return verdict.status
    low, high = ("…" if end is None else f"{end:.2f}" for end in (verdict.low, verdict.high))
    return f"{verdict.status}, {_spoken(str(verdict.measure))} {verdict.estimate:.2f} [{low}, {high}]"


def _spoken(measure: str) -> str:
    """A measure by the words that figures have for it."""
    name = plain_name(measure)
    return (registry.lookup("measure", name).label if registry.has("measure", name) else "") or name


def markdown_lead(lead: Lead) -> list[str]:
    """Named lines as paragraphs of Markdown."""
    return [f"**{name}** {in_markdown(text)}\n" for name, text in lead]


def headed(
    table: Table, verdict: RunVerdict | None, folder: Path | None = None, continued: str | None = None
) -> Table:
    """The table below its verdict; the next step names the run's `folder` where its name alone would not find it.

    Of a run that lacks answers it is the command that asks them, where one is known.
    """
    following = "" if verdict is None else continued or verdict.next
    if folder is not None and folder.parent != RUNS:
        named = rf"(llmfair (?:runs show|report|mitigate)) {re.escape(quote(folder.name))}(?=\s|$)"
        following = re.sub(named, lambda found: f"{found[1]} {quote(str(folder))}", following)
    return replace(table, lead=lead_of([("", verdict)], following))


def lead_lines(lead: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    """Named lines, aligned and wrapped at this width."""
    indent = max((len(name) for name, _ in lead), default=0) + 2
    for name, text in lead:
        yield from wrapped(text, max(width, 3 * indent), f"{name:<{indent}}", " " * indent)
