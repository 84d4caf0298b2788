"""Runs followed as far as the answers to their questions are known, without asking anybody."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import starmap
from pathlib import Path
from typing import Any

from llmfair.asking.cache import FILE, Cache
from llmfair.asking.dispatch import Program
from llmfair.asking.journal import JournalAnswers, Requests, not_begun_by
from llmfair.audits.design import Design
from llmfair.audits.kind import kind_in, results_of
from llmfair.audits.runs.run import folder_of, shared_answers
from llmfair.audits.subject import Subject, sampling_of
from llmfair.backends.base import Backend, NoBackend
from llmfair.datasets.base import cache_folder
from llmfair.errors import Incomplete, LlmfairError, UsageError
from llmfair.io import files
from llmfair.io.files import A_LINK, read
from llmfair.nouns import Chat, Completion, Failure, Unanswered, drive
from llmfair.rundir import MITIGATION, Contents, RunDir
from llmfair.settings import AuditSettings

Look = Callable[[str], Completion | None]
"""Finds the answer of a request by its key."""


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
    problems = [
        f"{what} is not what it was at the time of the run"
        for key, what in inputs.items()
        if before.get(key) != now.get(key)
    ]
    if [stage.name for stage in design.stages()] != list(manifest.stages):
        problems.append("what is asked, stage by stage, is not what it was at the time of the run")
    if problems:
        return {"answers": 0, "problems": problems, "notes": []}

    # Who answered is on record; the models themselves need not be there any more.
    backends = [NoBackend(before["identity"], reads_about=manifest.simulated)]
    backends += [
        NoBackend(before["stages"][name], reads_about=reads) for name, reads in manifest.stages.items()
    ]
    followed, answers = _Followed(), 0
    for (programs, path), backend in zip(_parts(design, run), backends, strict=True):
        if path.is_file():
            with files.opened(path) as file:
                if wrong := not_begun_by(file.readline(files.LONGEST_LINE), backend.identity):
                    problems.append(f"{path.name}:1: {wrong}")
        with _answers(path) as journal:
            look = journal.get if journal else lambda key: None
            _follow(followed, programs({**followed.results}), backend, settings, look)
            answers += len(journal) if journal else 0
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
        path = run.path / name
        if not path.is_file():
            problems.append(f"{name} is missing")
        elif (differing := _differing(path, contents)) is not None:
            if agree(*differing):
                rounded.append(name)
            else:
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


def _differing(path: Path, contents: Contents) -> tuple[str, str] | None:
    """What a file holds from the first part on that differs, and what it should hold; None where it holds these."""
    parts = (
        text.encode("utf-8", "backslashreplace")
        for text in ([contents] if isinstance(contents, str) else contents)
    )
    with path.open("rb") as file:
        for part in parts:
            if (there := file.read(len(part))) != part:
                text = b"".join([part, *parts])
                there += file.read(len(text) + (1 << 20))  # of a file that is far longer, enough to tell so
                return there.decode("utf-8", "surrogateescape"), text.decode()
        rest = file.read(1 << 20)
    return (rest.decode("utf-8", "surrogateescape"), "") if rest else None


def shared_calls(designs: Iterable[Design[Any]]) -> dict[str, int]:
    """`cached`: calls that the cache would answer, beside those of the runs' own journals; `left`: neither does.

    A chain is followed as far as its answers are known; what it would ask then is not, so the cache may spare more.
    Nothing is asked, and nothing written.
    """
    cached = left = 0
    for design in designs:
        kept, shared = _known(design)
        cached, left = cached + shared, left + max(0, design.calls - kept - shared)
    return {"cached": cached, "left": left}


def _known(design: Design[Any]) -> tuple[int, int]:
    """The calls of one model's audit that its journals answer, and those that the cache alone does."""
    first = design.backend()
    there = (cache_folder() / FILE).is_file()  # looking must not make one
    answers, followed = Counter[int](), _Followed()
    backends = [first, *(stage.backend for stage in design.stages())]
    for (programs, path), backend in zip(_parts(design, folder_of(design, first)[1]), backends, strict=True):
        with (
            nullcontext() if design.settings.fresh else _answers(path) as journal,
            shared_answers(design, backend) if there else nullcontext() as cache,
        ):
            if not journal and cache is None:
                break

            def look(
                key: str, sources: Sequence[JournalAnswers | Cache | None] = (journal, cache)
            ) -> Completion | None:
                for place, source in enumerate(sources):
                    if source is not None and (answer := source.get(key)) is not None:
                        answers[place] += 1
                        return answer
                return None

            _follow(followed, programs({**followed.results}), backend, design.settings, look)
    return answers[0], answers[1]


def _parts(
    design: Design[Any], run: RunDir
) -> Iterator[tuple[Callable[[dict[str, Any]], Iterator[Program]], Path]]:
    """Each stage of a run: its programs, made from the results before it, and its journal."""
    yield lambda results: design.programs(), run.journal
    for stage in design.stages():
        yield stage.programs, run.journal_of(stage.name)


@contextmanager
def _answers(journal: Path) -> Iterator[JournalAnswers | None]:
    """Those of a journal, which may never have begun."""
    if not journal.is_file():
        yield None
        return
    with closing(JournalAnswers(journal)) as answers:
        yield answers


@dataclass
class _Followed:
    """What known answers give: results by probe_id, failures, and how many probes lack an answer."""

    results: dict[str, Any] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    missing: int = 0


def _follow(
    followed: _Followed, programs: Iterable[Program], backend: Backend, settings: AuditSettings, look: Look
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
        except LlmfairError as error:
            followed.failures.append(
                Failure(program.probe_id, type(error).__name__, error.message, error.hint)
            )
        except Exception as error:  # as a run has it: what a program makes of damaged answers is its failure
            followed.failures.append(Failure(program.probe_id, type(error).__name__, str(error)))


DIGITS = 12
_FRACTION = re.compile(r"-?\d+(?:\.\d+)?[eE][+-]?\d+|-?\d+\.\d+")


def agree(first: str, second: str) -> bool:
    """Whether two texts differ in nothing but fractions, and these beyond their twelfth digit or place."""
    if _FRACTION.split(first) != _FRACTION.split(second):
        return False
    pairs = zip(_FRACTION.findall(first), _FRACTION.findall(second), strict=True)
    close = 10.0**-DIGITS
    return all(
        starmap(lambda a, b: a == b or math.isclose(float(a), float(b), rel_tol=close, abs_tol=close), pairs)
    )
