"""Runs followed as far as the answers to their questions are known, without asking anybody."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

from llmfair.asking.dispatch import Program
from llmfair.asking.journal import JournalAnswers, Requests, not_begun_by
from llmfair.audits.kind import kind_in, results_of
from llmfair.audits.subject import Subject, sampling_of
from llmfair.backends.base import Backend, NoBackend
from llmfair.errors import Incomplete, LlmfairError, UsageError
from llmfair.io import files
from llmfair.io.files import A_LINK, read
from llmfair.nouns import Chat, Completion, Failure, Unanswered, drive
from llmfair.rundir import MITIGATION, Contents, RunDir
from llmfair.settings.commands import AuditSettings


def check_run(run: RunDir) -> dict[str, Any]:
    """What a run's journals do not give again, as `problems`; `notes`: what they do but for the last digits of numbers.

    Raises UsageError without a manifest, Incomplete when the journals do not answer every chat.
    """
    manifest = run.read_manifest()
    asked = [
        path
        for path in run.journals(manifest)
        if path == run.journal or manifest.stage_answers.get(path.stem)
    ]
    if missing := [f"{path.name} is missing" for path in asked if not path.is_file()]:
        return {"answers": 0, "problems": missing, "notes": []}
    kind = kind_in(run.manifest, manifest.task)
    settings = kind.settings.from_flags(manifest.flags, run.manifest)
    design = kind.design(settings, Subject(manifest.model))
    before, now = manifest.settings, design.identity()
    inputs = {"lists_sha256": "the data", "prompt_sha256": "the prompt", "baselines": "a baseline"}
    differing = [what for name, what in inputs.items() if before.get(name) != now.get(name)]
    if [stage.name for stage in design.stages()] != list(manifest.stages):
        differing.append("what is asked, stage by stage,")
    if differing:
        problems = [f"{what} is not what it was at the time of the run" for what in differing]
        return {"answers": 0, "problems": problems, "notes": []}

    # Who answered is on record; the models themselves need not be there any more.
    backends = [NoBackend(before["identity"], reads_about=manifest.simulated)]
    backends += [
        NoBackend(before["stages"][name], reads_about=reads) for name, reads in manifest.stages.items()
    ]
    problems, followed, answers = list[str](), _Followed(), 0
    stages = [lambda results: design.programs(), *(stage.programs for stage in design.stages())]
    for programs, path, backend in zip(stages, run.journals(manifest), backends, strict=True):
        if not path.is_file():  # a stage that was asked nothing
            _follow(followed, programs({**followed.results}), backend, settings, lambda key: None)
            continue
        with files.opened(path) as file:
            if wrong := not_begun_by(file.readline(files.LONGEST_LINE), backend.identity):
                problems.append(f"{path.name}:1: {wrong}")
        with closing(JournalAnswers(path)) as journal:
            _follow(followed, programs({**followed.results}), backend, settings, journal.get)
            answers += len(journal)
    if followed.missing:
        probes = followed.missing + len(followed.results) + len(followed.failures)
        raise Incomplete(
            f"{run.path.name} is incomplete: {followed.missing} of {probes} probes lack answers.",
            "the command that began the run completes it",
        )
    rounded, called = list[str](), run.path.name
    with suppress(UsageError):  # what it was called when its files were written: the folder may be a copy
        called = str(results_of(run).run)
    for name, contents in design.outcome(called, followed.results, followed.failures).files.items():
        match holds(run.path / name, contents):
            case None:
                problems.append(f"{name} is missing")
            case "rounded":
                rounded.append(name)
            case "other":
                problems.append(f"{name} does not follow from the journal's answers")
    problems += [f"{link.relative_to(run.path)} is {A_LINK}" for link in run.links()]
    problems += _edited(run.path / MITIGATION)
    notes = [f"compared to {DIGITS} digits: {', '.join(rounded)}"] if rounded else []
    return {"answers": answers, "problems": problems, "notes": notes}


@dataclass(frozen=True)
class _Remedies:
    """results.json of `llmfair mitigate`, as far as it says what else is there."""

    files: Mapping[str, str]


def _edited(folder: Path) -> Iterator[str]:
    """What of the folder of `llmfair mitigate` is not as its results.json has it. Raises UsageError."""
    if folder.is_symlink() or not folder.is_dir():
        return
    digests = read(folder / "results.json", _Remedies).files
    there = {str(path.relative_to(folder)) for path in folder.glob("rankings/*")}
    for name in sorted(there | digests.keys()):
        path = folder / name
        if name not in digests or not path.is_file() or files.sha256(path) != digests[name]:
            yield f"{folder.name}/{name} is not what llmfair mitigate wrote"


def holds(path: Path, contents: Contents) -> Literal["same", "rounded", "other"] | None:
    """Whether a file holds these contents, or others in the last digits of fractions alone; None without a file.

    Line by line: a file may be large, and contents are made as they are read.
    """
    if not path.is_file():
        return None
    parts = [contents] if isinstance(contents, str) else contents
    lines = (line for part in parts for line in BytesIO(part.encode("utf-8", "backslashreplace")))
    state: Literal["same", "rounded"] = "same"
    with path.open("rb") as file:
        there = iter(partial(file.readline, files.LONGEST_LINE), b"")
        for has, line in zip_longest(there, lines, fillvalue=b""):
            if has != line:
                state = "rounded"
                if not agree(has.decode("utf-8", "surrogateescape"), line.decode()):
                    return "other"
    return state


@dataclass
class _Followed:
    """What known answers give: results by probe_id, failures, and how many probes lack an answer."""

    results: dict[str, Any] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    missing: int = 0


def _follow(
    followed: _Followed,
    programs: Iterable[Program],
    backend: Backend,
    settings: AuditSettings,
    look: Callable[[str], Completion | None],
) -> None:
    """Programs as far as `look` knows the answer of a request by its key, added to what was `followed`."""
    request = Requests(backend, sampling_of(settings))

    def answer(chat: Chat) -> Completion:
        completion = look(request("", chat).key)
        if completion is None:
            raise Unanswered
        return completion

    for program in programs:
        try:
            followed.results[program.probe_id] = drive(program.start(), answer)
        except Unanswered:
            followed.missing += 1
        except Exception as error:  # as a run has it: what a program makes of damaged answers is its failure
            words = (error.message, error.hint) if isinstance(error, LlmfairError) else (str(error),)
            followed.failures.append(Failure(program.probe_id, type(error).__name__, *words))


DIGITS = 12
_FRACTION = re.compile(r"-?\d+(?:\.\d+)?[eE][+-]?\d+|-?\d+\.\d+")


def agree(first: str, second: str) -> bool:
    """Whether two texts differ in nothing but fractions, and these beyond their twelfth digit or place."""
    if _FRACTION.split(first) != _FRACTION.split(second):
        return False
    pairs = zip(_FRACTION.findall(first), _FRACTION.findall(second), strict=True)
    close = 10.0**-DIGITS
    return all(a == b or math.isclose(float(a), float(b), rel_tol=close, abs_tol=close) for a, b in pairs)
