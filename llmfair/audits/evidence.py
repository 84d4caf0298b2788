"""The evidence behind a run: its answers as they came, and what went wrong."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

from llmfair.asking.journal import read_rows
from llmfair.audits.kind import kind_in
from llmfair.rundir import RunDir


def answers_of(run: RunDir, query_id: str | None = None, only_bad: bool = False) -> list[dict[str, Any]]:
    """The answers of a run, each with its class; of one query, or only those that are not well-formed."""
    found = []
    manifest = run.read_manifest()
    settings = manifest.settings
    kind = kind_in(run.manifest, manifest.task)
    for row in chain.from_iterable(map(read_rows, filter(Path.is_file, run.journals(manifest)))):
        if "key" not in row or query_id not in (None, row["about"].get("query_id")):
            continue
        ended = kind.how_ended(row, settings)
        if only_bad and ended == "ok":
            continue
        found.append(
            {
                "probe": row["probe"],
                "shown": kind.what_was_shown(row["about"]),
                "class": ended,
                "finish": row["finish"],
                "text": row["text"],
            }
        )
    return found


def failures_of(run: RunDir) -> list[dict[str, Any]]:
    """Every failure the journal notes, those of earlier invocations too."""
    return [
        {"probe": row["probe"], "class": row["failure"], "message": row["message"], "at": row["at"]}
        for journal in filter(Path.is_file, run.journals(run.read_manifest()))
        for row in read_rows(journal)
        if "failure" in row
    ]
