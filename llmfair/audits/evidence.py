"""The evidence behind a run: its answers as they came, and whether they still give what is on disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmfair.asking.dispatch import Program
from llmfair.asking.journal import completion_of, read_rows, request_key
from llmfair.asking.one_chat import chat_sampling
from llmfair.audits.kind import kind_of
from llmfair.audits.subject import Subject, sampling_of
from llmfair.audits.texts import TEXTS
from llmfair.backends.base import Backend, NoBackend
from llmfair.errors import Incomplete, LlmfairError
from llmfair.rankers.answers import AnswerClass
from llmfair.records import Chat, Completion, Failure
from llmfair.rundir import RunDir
from llmfair.settings import AuditSettings
from llmfair.steps import drive


def answers_of(run: RunDir, query_id: str | None = None, only_bad: bool = False) -> list[dict[str, Any]]:
    """The answers of a run, each with its class; of one query, or only those that are not well-formed."""
    found = []
    settings = run.read_manifest()["settings"]
    kind = kind_of(settings["task"])
    for row in read_rows(run.journal):
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
        for row in read_rows(run.journal)
        if "failure" in row
    ]


def check_run(run: RunDir) -> dict[str, Any]:
    """Replays a run from its journal alone and compares every file; `problems` says what does not fit.

    Raises UsageError without a manifest, Incomplete when the journal does not answer every chat.
    """
    manifest = run.read_manifest()
    if not run.journal.is_file():
        return {"answers": 0, "problems": ["journal.jsonl is missing"]}
    flags: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in manifest["flags"].items()
    }
    kind = kind_of(manifest["task"])
    settings = kind.settings.make(**flags)
    design = kind.design(settings, Subject(str(manifest["model"])))
    known, now = manifest["settings"], design.identity()
    problems = [
        f"{what} is not what it was at the time of the run"
        for what, key in (("the data", "lists_sha256"), ("the prompt", "prompt_sha256"))
        if now.get(key) != known.get(key)
    ]
    if problems:
        return {"answers": 0, "problems": problems}

    answers: dict[str, Completion] = {}
    for row in read_rows(run.journal):
        if "key" in row:
            answers.setdefault(row["key"], completion_of(row))
    # Who answered is on record; the model itself need not be there any more.
    asked = NoBackend(known["identity"], reads_about=manifest["simulated"])
    results: dict[str, Any] = {}
    failures: list[Failure] = []
    missing = 0
    for program in design.programs():
        try:
            results[program.probe_id] = _replay(program, answers, asked, settings)
        except KeyError:
            missing += 1
        except LlmfairError as error:
            failures.append(Failure(program.probe_id, type(error).__name__, error.message))
    if missing:
        raise Incomplete(
            f"{run.path.name} is incomplete: {missing} of {missing + len(results) + len(failures)} probes lack "
            "answers.",
            "the command that began the run completes it",
        )
    for name, text in design.outcome(run.path.name, results, failures).files.items():
        path = run.path / name
        if not path.is_file():
            if name != TEXTS:  # which older versions did not write
                problems.append(f"{name} is missing")
        elif path.read_bytes() != text.encode("utf-8", "backslashreplace"):
            problems.append(f"{name} does not follow from the journal's answers")
    return {"answers": len(answers), "problems": problems}


def _replay(
    program: Program, answers: Mapping[str, Completion], backend: Backend, settings: AuditSettings
) -> Any:
    """One chain's result from answers on disk; KeyError when one is missing."""
    sampling = sampling_of(settings)

    def answer(chat: Chat) -> Completion:
        return answers[
            request_key(backend.identity, chat, chat_sampling(chat, sampling), about=backend.reads_about)
        ]

    return drive(program.start(), answer)
