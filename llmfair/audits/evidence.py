"""The evidence behind a run: its answers as they came, and whether they still give what is on disk."""

from __future__ import annotations

from typing import Any

from llmfair.audits.design import make_design
from llmfair.audits.running import sampling_of
from llmfair.dispatch import Program, chat_sampling
from llmfair.errors import LlmfairError
from llmfair.journal import completion_of, read_rows, request_key
from llmfair.rankers.answers import AnswerClass, read
from llmfair.records import Completion, Ranking
from llmfair.rundir import RunDir
from llmfair.settings import ListwiseSettings
from llmfair.trec import run_lines


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
    """Replays a run from its journal alone and compares the rankings; `problems` says what does not fit."""
    manifest = run.read_manifest()
    settings = _settings(manifest)
    design = make_design(settings)
    problems = []
    if design.identity()["dataset_fingerprint"] != manifest["settings"]["dataset_fingerprint"]:
        problems.append(f"dataset {design.dataset.name} is not what it was at the time of the run")
    if design.prompt.sha256 != manifest["prompt"]["sha256"]:
        problems.append(f"prompt {design.prompt.id} is not what it was at the time of the run")
    if problems:
        return {"answers": 0, "problems": problems}

    answers = {row["key"]: completion_of(row) for row in read_rows(run.journal) if "key" in row}
    identity = manifest["settings"]["identity"]
    files: dict[str, list[Ranking]] = {}
    for probe, program in zip(design.probes(), design.programs(), strict=True):
        try:
            ranked = _replay(program, answers, identity, settings)
        except (LlmfairError, KeyError):
            problems.append(f"{probe.probe_id}: the journal lacks an answer of this chain")
            continue
        files.setdefault(design.file_name(probe), []).append(ranked.ranking)
    for name, rankings in files.items():
        path = run.path / "rankings" / name
        if not path.is_file():
            problems.append(f"rankings/{name} is missing")
        elif path.read_text("utf-8") != "".join(run_lines(rankings, tag="llmfair")):
            problems.append(f"rankings/{name} does not follow from the journal's answers")
    return {"answers": len(answers), "problems": problems}


def _settings(manifest: dict[str, Any]) -> ListwiseSettings:
    """The settings a run was made with, from its manifest."""
    return ListwiseSettings.make(
        **{
            key: tuple(value) if isinstance(value, list) else value
            for key, value in manifest["flags"].items()
        }
    )


def _replay(
    program: Program, answers: dict[str, Completion], identity: str, settings: ListwiseSettings
) -> Any:
    """One chain's result from answers on disk; KeyError when one is missing."""
    steps = program.start()
    sampling = sampling_of(settings)
    chats = next(steps)
    while True:
        keys = [request_key(identity, chat, chat_sampling(chat, sampling)) for chat in chats]
        try:
            chats = steps.send([answers[key] for key in keys])
        except StopIteration as end:
            return end.value
