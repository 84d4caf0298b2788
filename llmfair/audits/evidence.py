"""The evidence behind a run: its answers as they came, and whether they still give what is on disk."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from llmfair.asking.dispatch import Program
from llmfair.asking.journal import completion_of, read_rows, request_key
from llmfair.asking.one_chat import chat_sampling
from llmfair.audits.kind import kind_in
from llmfair.audits.subject import Subject, sampling_of
from llmfair.audits.texts import TEXTS
from llmfair.backends.base import Backend, NoBackend
from llmfair.errors import Incomplete, LlmfairError
from llmfair.rankers.answers import AnswerClass
from llmfair.records import Chat, Completion, Failure
from llmfair.rundir import RunDir
from llmfair.settings import AuditSettings
from llmfair.steps import Unanswered, drive


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
        if only_bad and ended == AnswerClass.OK:
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


def check_run(run: RunDir) -> dict[str, Any]:
    """Replays a run from its journal alone and compares every file; `problems` says what does not fit.

    Raises UsageError without a manifest, Incomplete when the journal does not answer every chat.
    """
    manifest = run.read_manifest()
    given = manifest.stage_answers
    gone = [one.name for one in run.journals(manifest) if one == run.journal or given.get(one.stem)]
    if gone := [name for name in gone if not (run.path / name).is_file()]:
        return {"answers": 0, "problems": [f"{name} is missing" for name in gone]}
    kind = kind_in(run.manifest, manifest.task)
    settings = kind.settings.make(**manifest.set())
    design = kind.design(settings, Subject(manifest.model))
    known, now = manifest.settings, design.identity()
    problems = [
        f"{what} is not what it was at the time of the run"
        for what, key in (("the data", "lists_sha256"), ("the prompt", "prompt_sha256"))
        if now.get(key) != known.get(key)
    ]
    if problems:
        return {"answers": 0, "problems": problems}

    # Who answered is on record; the model itself need not be there any more.
    first = NoBackend(known["identity"], reads_about=manifest.simulated)
    found = _replayed(design.programs(), run.journal, first, settings)
    for stage in design.stages():
        asked = NoBackend(known["stages"][stage.name], reads_about=manifest.stages[stage.name])
        programs = stage.programs(found.results)
        found += _replayed(programs, run.journal_of(stage.name), asked, settings)
    if found.missing:
        probes = found.missing + len(found.results) + len(found.failures)
        raise Incomplete(
            f"{run.path.name} is incomplete: {found.missing} of {probes} probes lack answers.",
            "the command that began the run completes it",
        )
    for name, text in design.outcome(run.path.name, found.results, found.failures).files.items():
        path = run.path / name
        if not path.is_file():
            if name != TEXTS:  # which older versions did not write
                problems.append(f"{name} is missing")
        elif path.read_bytes() != text.encode("utf-8", "backslashreplace"):
            problems.append(f"{name} does not follow from the journal's answers")
    return {"answers": found.answers, "problems": problems}


@dataclass(frozen=True)
class _Replayed:
    """What answers on disk give: results by probe_id, failures, probes that lack an answer, and the answers."""

    results: dict[str, Any]
    failures: list[Failure]
    missing: int
    answers: int

    def __add__(self, other: _Replayed) -> _Replayed:
        return _Replayed(
            {**self.results, **other.results},
            [*self.failures, *other.failures],
            self.missing + other.missing,
            self.answers + other.answers,
        )


def _replayed(
    programs: Iterable[Program], journal: Path, backend: Backend, settings: AuditSettings
) -> _Replayed:
    """One stage's programs, answered from its journal alone."""
    answers: dict[str, Completion] = {}
    for row in read_rows(journal) if journal.is_file() else ():  # a stage may never have begun
        if "key" in row:
            answers.setdefault(row["key"], completion_of(row))
    sampling, missing = sampling_of(settings), 0
    results: dict[str, Any] = {}
    failures: list[Failure] = []

    def answer(chat: Chat) -> Completion:
        key = request_key(backend.identity, chat, chat_sampling(chat, sampling), about=backend.reads_about)
        if key not in answers:
            raise Unanswered
        return answers[key]

    for program in programs:
        try:
            results[program.probe_id] = drive(program.start(), answer)
        except Unanswered:
            missing += 1
        except LlmfairError as error:
            failures.append(Failure(program.probe_id, type(error).__name__, error.message))
    return _Replayed(results, failures, missing, len(answers))
