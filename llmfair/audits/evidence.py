"""The evidence behind a run: its answers as they came, and whether they still give what is on disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmfair.audits.design import make_design
from llmfair.audits.listwise import backend_for
from llmfair.audits.outcome import outcome_of
from llmfair.audits.running import sampling_of
from llmfair.backends.base import Backend
from llmfair.dispatch import Program, chat_sampling
from llmfair.errors import Incomplete, LlmfairError
from llmfair.journal import completion_of, read_rows, request_key
from llmfair.rankers.answers import AnswerClass, read
from llmfair.rankers.listwise import Ranked
from llmfair.records import Completion, Failure, Probe
from llmfair.rundir import RunDir
from llmfair.settings import ListwiseSettings


def answers_of(run: RunDir, query_id: str | None = None, only_bad: bool = False) -> list[dict[str, Any]]:
    """The answers of a run, each with its class; of one query, or only those that are not well-formed."""
    found = []
    for row in read_rows(run.journal):
        if "key" not in row or query_id not in (None, row["about"].get("query_id")):
            continue
        answer_class = read(completion_of(row), len(row["about"]["doc_ids"])).answer_class
        if only_bad and answer_class is AnswerClass.OK:
            continue
        found.append(
            {
                "probe": row["probe"],
                "window": "{}–{}".format(*row["about"]["window"]),
                "class": str(answer_class),
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
    settings, model = ListwiseSettings.make(**flags), str(manifest["model"])
    design = make_design(settings, model)
    known = manifest["settings"]
    problems = [
        f"{what} is not what it was at the time of the run"
        for what, key in (("the data", "lists_sha256"), ("the prompt", "prompt_sha256"))
        if design.identity()[key] != known[key]
    ]
    if problems:
        return {"answers": 0, "problems": problems}

    answers: dict[str, Completion] = {}
    for row in read_rows(run.journal):
        if "key" in row:
            answers.setdefault(row["key"], completion_of(row))
    backend = backend_for(design, model)
    chains: list[tuple[Probe, Ranked]] = []
    failures: list[Failure] = []
    missing = 0
    for probe, program in zip(design.probes(), design.programs(), strict=True):
        try:
            chains.append((probe, _replay(program, answers, backend, settings)))
        except KeyError:
            missing += 1
        except LlmfairError as error:
            failures.append(Failure(probe.probe_id, type(error).__name__, error.message))
    if missing:
        raise Incomplete(
            f"{run.path.name} is incomplete: {missing} of {missing + len(chains) + len(failures)} chains lack answers.",
            "the command that began the run completes it",
        )
    for name, text in outcome_of(design, run.path.name, model, chains, failures).files.items():
        path = run.path / name
        if not path.is_file():
            problems.append(f"{name} is missing")
        elif path.read_bytes() != text.encode("utf-8", "backslashreplace"):
            problems.append(f"{name} does not follow from the journal's answers")
    return {"answers": len(answers), "problems": problems}


def _replay(
    program: Program, answers: Mapping[str, Completion], backend: Backend, settings: ListwiseSettings
) -> Any:
    """One chain's result from answers on disk; KeyError when one is missing."""
    steps, sampling = program.start(), sampling_of(settings)
    try:
        chats = next(steps)
        while True:
            keys = [
                request_key(backend.identity, chat, chat_sampling(chat, sampling), about=backend.reads_about)
                for chat in chats
            ]
            chats = steps.send([answers[key] for key in keys])
    except StopIteration as end:
        return end.value
