"""What the report of an audit of query refinement has of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from llmfair.audits.refine.contrasts import contrasts_table
from llmfair.audits.refine.figures import refine_plots
from llmfair.audits.refine.results import RefineResults
from llmfair.audits.refine.table import STOPS, refine_table, searched_text
from llmfair.audits.refine.trail import TrailLine, read_trail
from llmfair.audits.refine.words import WORDS
from llmfair.report.section import Section
from llmfair.report.tables import Table

if TYPE_CHECKING:
    from markupsafe import Markup

SHOWN = 200
"""Letters of a reply."""


def refine_section(results: RefineResults, folder: Path, title: str, called: str) -> Section:
    """The methods, why loops ended, the trail, and the figures."""
    design, trail = results.design, read_trail(folder)
    return Section(
        table=refine_table(results, title, called),
        more=[
            *filter(None, [contrasts_table(results)]),
            _stops(results),
            *([_trail(trail, design.objective)] if trail else []),
        ],
        plots=list(refine_plots(results, folder)),
        words=WORDS,
        facts=[
            ("collection", f"{design.documents:,} documents, {design.analyzer} terms"),
            *([("query", searched_text(design.query_text))] if design.query_text else []),
            ("page", f"{design.k} documents"),
            ("objective", design.objective),
            ("target", design.target),
            (
                "rounds",
                f"at most {design.max_iterations}, words {design.keep}, weight {design.weight:g}"
                + ", unknown asked for" * design.allow_unknown,
            ),
            (
                "last page",
                "as it was found" if design.rerank == "none" else f"by the original query, {design.rerank}",
            ),
        ],
    )


def _stops(results: RefineResults) -> Table:
    """Why loops ended, and after how many rounds that were kept."""
    rows = [(name, str(n), STOPS.get(name, "")) for name, n in results.stops.items()]
    kept = ", ".join(f"{rounds}: {n}" for rounds, n in results.iterations.items())
    return Table(
        "Why loops ended",
        ("stop", "queries", "what it means"),
        tuple(rows),
        (f"queries by rounds kept: {kept}",),
    )


def _trail(trail: Sequence[TrailLine], objective: str) -> Table:
    """Every round of every query; words that a round adds have a plus and weight."""
    measures = [*trail[0].measures]
    rows = [
        row
        for _, rounds in groupby(trail, key=lambda line: line.query_id)
        for row in _rounds([*rounds], measures)
    ]
    header = ("query", "round", "for", "words", objective, *measures, "what became of it", "reply")
    return Table("Round by round", header, tuple(rows), ("words behind a + are those that the round adds",))


def _rounds(rounds: Sequence[TrailLine], measures: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for line in rounds:
        became = "" if line.iteration == 0 else "kept" if line.accepted else "dropped"
        figures = (line.objective, *(line.measures[name] for name in measures))
        yield (
            line.query_id if line.iteration == 0 else "",
            str(line.iteration),
            line.subgroup or "",
            _words(line),
            *("–" if value is None else f"{value:.3f}" for value in figures),
            became + (f" · {line.stop}" if line.stop else ""),
            " · ".join(f"{reply.reply_class}: {_shortened(reply.text)}" for reply in line.replies),
        )


def _shortened(text: str) -> str:
    """A reply on one line; the journal has it whole."""
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}…"


def _words(line: TrailLine) -> Markup:
    """The words that are searched, the new ones strong; whatever they hold is text."""
    from markupsafe import Markup, escape

    standing = [word for word in line.added if word not in line.new]
    said = escape(" ".join([line.original if line.iteration == 0 else "…", *standing]))
    return said + Markup("").join(Markup(" <b>+ {}</b>").format(word) for word in line.new)
