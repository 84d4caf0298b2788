"""What the page of a run has of its kind's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmfair.report.groups import Furthest
from llmfair.report.plots import Plot
from llmfair.report.table import Table


@dataclass(frozen=True)
class Section:
    """What a kind tells of a run.

    `more`: tables below its own; `words` are paragraphs of the method, `facts` rows of its settings.
    """

    table: Table
    plots: Sequence[Plot] = ()
    furthest: Furthest | None = None
    words: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()
    more: Sequence[Table] = ()
