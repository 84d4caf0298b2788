"""The evidence behind a run: its answers as they came, and what went wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llmfair.asking.journal import read_rows
from llmfair.audits.kind import kind_in
from llmfair.errors import warn
from llmfair.manifest import Manifest
from llmfair.report.exhibits import Evidence
from llmfair.rundir import RunDir

MOST_OF_AN_ANSWER, MOST_OF_A_PROMPT = 4_000, 40_000
"""Characters that lists and pages show; the journal has it whole."""


def shortened(text: str, most: int) -> str:
    """The beginning of a long text, and how long it is."""
    return text if len(text) <= most else f"{text[:most]}… {len(text):,} characters"


def all_answers(run: RunDir, manifest: Manifest, query_id: str | None = None) -> Iterator[Evidence]:
    """The answers of a run's journals, each with what it was asked; those about one query, where it is given.

    Lines that are damaged are left out and told of, and so are answers that lack what the kind of audit reads: those
    of another design, which found their way into the journal.
    """
    kind = kind_in(run.manifest, manifest.task)
    for journal in filter(Path.is_file, run.journals(manifest)):
        strangers: list[str] = []
        damaged: list[int] = []
        for row in read_rows(journal, damaged):
            if "key" not in row or query_id not in (None, row["about"].get("query_id")):
                continue
            try:
                shown = kind.what_was_shown(row["about"])
                ended = kind.how_ended(row, manifest.settings)
            except (AttributeError, LookupError, TypeError, ValueError):
                strangers.append(row["probe"])
                continue
            yield Evidence(
                key=row["key"],
                probe=row["probe"],
                shown=shown,
                ended=ended,
                finish=row["finish"],
                text=shortened(row["text"], MOST_OF_AN_ANSWER),
                chat=[(role, shortened(said, MOST_OF_A_PROMPT)) for role, said in row["chat"]],
            )
        if strangers:
            some = "1 answer is" if len(strangers) == 1 else f"{len(strangers):,} answers are"
            warn(f"{journal}: {some} of no probe of this audit and left out, that of {strangers[0]!r} first")
        if damaged:
            some = "1 line" if len(damaged) == 1 else f"{len(damaged):,} lines"
            warn(f"{journal}:{damaged[0]}: {some} cannot be read and left out, this one first")


def answers_of(run: RunDir, query_id: str | None = None, only_bad: bool = False) -> list[dict[str, Any]]:
    """The answers of a run, each with its class; of one query, or only those that are not well-formed."""
    return [
        {
            "probe": answer.probe,
            "shown": answer.shown,
            "class": answer.ended,
            "finish": answer.finish,
            "text": answer.text,
        }
        for answer in all_answers(run, run.read_manifest(), query_id)
        if not only_bad or answer.ended != "ok"
    ]


def failures_of(run: RunDir, query_id: str | None = None) -> list[dict[str, Any]]:
    """Every failure the journals note, those of earlier invocations too; of all probes, or those named by a query."""
    found = []
    for journal in filter(Path.is_file, run.journals(run.read_manifest())):
        for row in read_rows(journal):
            if "failure" in row and (query_id is None or f"/{query_id}/" in f"/{row['probe']}/"):
                told = {"class": row["failure"], "message": row["message"], "at": row["at"]}
                found.append({"probe": row["probe"], **told})
    return found
