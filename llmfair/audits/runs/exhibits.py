"""What a report shows of a run beside its figures: titles, the command, and answers drawn as evidence.

Nothing here depends on when or in which order a chat was asked, so that a report is the same bytes for the same
answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from heapq import nsmallest
from pathlib import Path
from typing import Any
from zlib import crc32

from llmfair.asking.journal import read_rows
from llmfair.audits.commands import command_of, settings_of
from llmfair.audits.design import read_texts
from llmfair.audits.kind import kind_in, results_of
from llmfair.backends.given import PREFIX as GIVEN
from llmfair.errors import UsageError
from llmfair.io.files import AGAIN
from llmfair.metrics.base import Measure
from llmfair.metrics.names import parse_measure
from llmfair.results import Evidence, Exhibits
from llmfair.rundir import Manifest, RunDir


def exhibits_of(run: RunDir, evidence: int) -> Exhibits:
    """Those of an audit's run folder, with so many answers as evidence. Raises UsageError."""
    manifest, results = run.read_manifest(), results_of(run)
    settings, command = settings_of(run, manifest), None
    if settings is not None and not manifest.model.startswith(f"{GIVEN}:"):  # no command names an object
        command = command_of(manifest.task, settings, manifest.model)
    queries, titles = read_texts(run.path)
    return Exhibits(
        command=command,
        measures=declared(results.measures),
        titles=titles,
        queries=queries,
        evidence=[
            replace(answer, query=shortened(queries.get(answer.query, answer.query), MOST_OF_A_QUERY))
            for answer in drawn_answers(run, manifest, evidence, results.design.seed)
        ],
    )


def declared(names: Iterable[str]) -> dict[str, Measure]:
    """Measures by name; those that nothing here defines are absent."""
    measures = {}
    for name in names:
        with suppress(UsageError):
            measures[name] = parse_measure(name)
    return measures


def drawn_answers(run: RunDir, manifest: Manifest, number: int, seed: int = 0) -> list[Evidence]:
    """Answers with their chats: unparseable ones first, then the others, each in an order of the run's seed."""

    def place(answer: Evidence) -> tuple[bool, int, str]:
        return answer.ended == "ok", crc32(answer.key.encode(), seed & 0xFFFFFFFF), answer.key

    return nsmallest(number, _once(all_answers(run, manifest)), key=place)


def _once(answers: Iterable[Evidence]) -> Iterator[Evidence]:
    seen = set()
    for answer in answers:
        if answer.key not in seen:
            seen.add(answer.key)
            yield answer


MOST_OF_A_QUERY, MOST_OF_AN_ANSWER, MOST_OF_A_PROMPT = 160, 4_000, 40_000
"""Characters that lists and pages show; the journal has it whole."""


def shortened(text: str, most: int) -> str:
    """The beginning of a long text, and how long it is."""
    return text if len(text) <= most else f"{text[:most]}… {len(text):,} characters"


def all_answers(run: RunDir, manifest: Manifest, query_id: str | None = None) -> Iterator[Evidence]:
    """The answers of a run's journals, or those about one query, with what was asked. Raises UsageError."""
    words = kind_in(run.manifest, manifest.task).words
    for journal in filter(Path.is_file, run.journals(manifest)):
        for row in read_rows(journal):
            if "key" not in row or query_id not in (None, row["about"].get("query_id")):
                continue
            try:
                shown = words.what_was_shown(row["about"])
                ended = words.how_ended(row, manifest.settings)
            except (AttributeError, LookupError, TypeError, ValueError):
                raise UsageError(
                    f"{journal}: the answer to {row['probe']} is about no question of this audit.", AGAIN
                ) from None
            yield Evidence(
                key=row["key"],
                probe=row["probe"],
                query=str(row["about"].get("query_id", "")),
                shown=shown,
                ended=ended,
                finish=row["finish"],
                text=shortened(row["text"], MOST_OF_AN_ANSWER),
                chat=[(role, shortened(text, MOST_OF_A_PROMPT)) for role, text in row["chat"]],
            )


def answers_of(run: RunDir, query_id: str | None = None, only_bad: bool = False) -> list[dict[str, Any]]:
    """The answers of a run, each with its class; of one query, or only those that are not well-formed."""
    names = {"probe": "probe", "shown": "shown", "class": "ended", "finish": "finish", "text": "text"}
    return [
        {name: getattr(answer, field) for name, field in names.items()}
        for answer in all_answers(run, run.read_manifest(), query_id)
        if not only_bad or answer.ended != "ok"
    ]


def failures_of(run: RunDir, query_id: str | None = None) -> list[dict[str, Any]]:
    """Every failure the journals note, those of earlier invocations too; of all probes, or those named by a query."""
    return [
        {"probe": row["probe"], "class": row["failure"], "message": row["message"], "at": row["at"]}
        for journal in filter(Path.is_file, run.journals(run.read_manifest()))
        for row in read_rows(journal)
        if "failure" in row and (query_id is None or f"/{query_id}/" in f"/{row['probe']}/")
    ]
