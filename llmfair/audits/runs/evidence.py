"""The evidence behind a run: its answers as they came, and what went wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from llmfair.asking.journal import read_rows
from llmfair.audits.kind import kind_in
from llmfair.errors import UsageError
from llmfair.manifest import Manifest
from llmfair.report.exhibits import Evidence
from llmfair.rundir import RunDir


def all_answers(run: RunDir, manifest: Manifest, query_id: str | None = None) -> Iterator[Evidence]:
    """The answers of a run's journals, each with what it was asked; those about one query, where it is given.

    Raises UsageError naming the journal and the probe of an answer that lacks what its kind of audit reads.
    """
    kind = kind_in(run.manifest, manifest.task)
    for journal in filter(Path.is_file, run.journals(manifest)):
        for row in read_rows(journal):
            if "key" not in row:
                continue
            with _known(journal, row):
                if query_id not in (None, row["about"].get("query_id")):
                    continue
                answer = Evidence(
                    key=row["key"],
                    probe=row["probe"],
                    shown=kind.what_was_shown(row["about"]),
                    ended=kind.how_ended(row, manifest.settings),
                    finish=row["finish"],
                    text=row["text"],
                    chat=row["chat"],
                )
            yield answer


@contextmanager
def _known(journal: Path, row: Mapping[str, Any]) -> Iterator[None]:
    """Raises UsageError naming journal and probe for what a row lacks, or has otherwise than its kind of audit."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise UsageError(
            f"{journal}: the line of probe {row.get('probe')!r} is none of this audit's: {error!r}.",
            "without that line, the command that began the run asks again",
        ) from error


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
    """Every failure the journals note, those of earlier invocations too; of all probes, or those named by a query.

    Raises UsageError as `all_answers` does.
    """
    found = []
    for journal in filter(Path.is_file, run.journals(run.read_manifest())):
        for row in read_rows(journal):
            if "failure" in row:
                with _known(journal, row):
                    if query_id is None or f"/{query_id}/" in f"/{row['probe']}/":
                        told = {"class": row["failure"], "message": row["message"], "at": row["at"]}
                        found.append({"probe": row["probe"], **told})
    return found
