"""Runs followed as far as the answers to their questions are known, without asking anybody."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import starmap
from pathlib import Path
from typing import Any

from llmfair.asking.cache import FILE, Cache
from llmfair.asking.dispatch import Program
from llmfair.asking.journal import KeptAnswers, not_begun_by
from llmfair.asking.requests import Requests
from llmfair.audits.design import Design, versions
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
    """Replays a run from its journals alone and compares every file; `problems` says what does not fit.

    `notes`: what does but for the last digits of numbers, as on another machine.

    Raises UsageError without a manifest, Incomplete when the journals do not answer every chat.
    """
    manifest = run.read_manifest()
    given = manifest.stage_answers
    gone = [one.name for one in run.journals(manifest) if one == run.journal or given.get(one.stem)]
    if gone := [name for name in gone if not (run.path / name).is_file()]:
        return {"answers": 0, "problems": [f"{name} is missing" for name in gone], "notes": []}
    kind = kind_in(run.manifest, manifest.task)
    settings = kind.settings.from_flags(manifest.flags, run.manifest)
    design = kind.design(settings, Subject(manifest.model))
    known, now = manifest.settings, design.identity()
    problems = [
        f"{what} is not what it was at the time of the run"
        for what, key in (
            ("the data", "lists_sha256"),
            ("the prompt", "prompt_sha256"),
            ("a baseline", "baselines"),
        )
        if known.get(key) != now.get(key)
    ]
    if [stage.name for stage in design.stages()] != list(manifest.stages):
        problems.append("what is asked, stage by stage, is not what it was at the time of the run")
    if problems:
        return {"answers": 0, "problems": problems, "notes": []}

    # Who answered is on record; the models themselves need not be there any more.
    asked = [NoBackend(known["identity"], reads_about=manifest.simulated)]
    asked += [NoBackend(known["stages"][name], reads_about=reads) for name, reads in manifest.stages.items()]
    found, answers = _Followed(), 0
    for part, backend in zip(_parts(design, run), asked, strict=True):
        problems += _begun_otherwise(part.journal, backend.identity)
        answers += _follow_journal(found, part, backend, settings)
    if found.missing:
        probes = found.missing + len(found.results) + len(found.failures)
        raise Incomplete(
            f"{run.path.name} is incomplete: {found.missing} of {probes} probes lack answers.",
            "the command that began the run completes it",
        )
    rounded = list[str]()
    for name, contents in design.outcome(_called(run), found.results, found.failures).files.items():
        path = run.path / name
        if not path.is_file():
            problems.append(f"{name} is missing")
        elif (text := _otherwise_than(path, contents)) is not None:
            kept = _beginning(path, text).decode("utf-8", "surrogateescape")
            if agree(kept, text):
                rounded.append(name)
            else:
                problems.append(f"{name} does not follow from the journal's answers")
    problems += [f"{link.relative_to(run.path)} is {A_LINK}" for link in run.links()]
    problems += _edited(run.path / MITIGATION)
    notes = []
    if rounded:
        where = elsewhere(manifest.versions)
        notes = [f"compared to {DIGITS} digits, as made {where}: {', '.join(rounded)}"]
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


def _begun_otherwise(journal: Path, identity: str) -> Iterator[str]:
    """What is wrong with a journal's first line, by which the command that made it would refuse it."""
    if journal.is_file():
        with files.opened(journal) as file:
            if wrong := not_begun_by(file.readline(files.LONGEST_LINE), identity):
                yield f"{journal.name}:1: {wrong}"


def _follow_journal(found: _Followed, part: _Part, backend: Backend, settings: AuditSettings) -> int:
    """Follows a stage by its journal, whose answers are counted; of where they stand nothing is kept after it."""
    with _answers(part.journal) as journal:
        look = _nothing if journal is None else journal.get
        _follow(found, part.programs({**found.results}), backend, settings, look)
        return 0 if journal is None else len(journal)


def _otherwise_than(path: Path, contents: Contents) -> str | None:
    """The text of these contents where a file holds another; None where it holds the same.

    They are compared part by part: a large file and its text would take their room several times over.
    """
    texts = [contents] if isinstance(contents, str) else contents
    parts = (text.encode("utf-8", "backslashreplace") for text in texts)
    with path.open("rb") as file:
        same = 0
        for part in parts:
            if file.read(len(part)) != part:
                file.seek(0)
                return b"".join([file.read(same), part, *parts]).decode()
            same += len(part)
        if not file.read(1):
            return None
        file.seek(0)
        return file.read(same).decode()


def _beginning(path: Path, text: str) -> bytes:
    """What a file holds that should hold this text; of one that is far longer as much as tells that it does not."""
    with path.open("rb") as file:
        return file.read(2 * len(text.encode("utf-8", "backslashreplace")) + (1 << 20))


def _called(run: RunDir) -> str:
    """What a run was called when its files were written; the folder may be a copy."""
    try:
        named: str = results_of(run).run
    except UsageError:
        return run.path.name
    return named


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
    kept, shared, found = 0, 0, _Followed()
    backends = [first, *(stage.backend for stage in design.stages())]
    for part, backend in zip(_parts(design, folder_of(design, first)[1]), backends, strict=True):
        with (
            nullcontext() if design.settings.fresh else _answers(part.journal) as journal,
            shared_answers(design, backend) if there else nullcontext() as cache,
        ):
            if not journal and cache is None:
                break
            look = _Looked(journal.get if journal else _nothing, cache)
            _follow(found, part.programs({**found.results}), backend, design.settings, look)
        kept, shared = kept + look.kept, shared + look.shared
    return kept, shared


def _nothing(key: str) -> None:
    """Knows no answer."""


@dataclass
class _Looked:
    """Answers by request key, of a journal or else of the cache, and how many each gave."""

    journal: Look
    cache: Cache | None
    kept: int = 0
    shared: int = 0

    def __call__(self, key: str) -> Completion | None:
        if (kept := self.journal(key)) is not None:
            self.kept += 1
            return kept
        known = None if self.cache is None else self.cache.get(key)
        self.shared += known is not None
        return known


@dataclass(frozen=True)
class _Part:
    """One stage of a run, the first among them: its programs, made from the results before it, and its journal."""

    programs: Callable[[dict[str, Any]], Iterator[Program]]
    journal: Path


def _parts(design: Design[Any], run: RunDir) -> Iterator[_Part]:
    yield _Part(lambda results: design.programs(), run.journal)
    for stage in design.stages():
        yield _Part(stage.programs, run.journal_of(stage.name))


@contextmanager
def _answers(journal: Path) -> Iterator[KeptAnswers | None]:
    """Those of a journal, which may never have begun."""
    if not journal.is_file():
        yield None
        return
    with closing(KeptAnswers(journal)) as known:
        yield known


@dataclass
class _Followed:
    """What known answers give: results by probe_id, failures, and how many probes lack an answer."""

    results: dict[str, Any] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    missing: int = 0


def _follow(
    found: _Followed, programs: Iterable[Program], backend: Backend, settings: AuditSettings, look: Look
) -> None:
    """Programs as far as `look` knows the answer of a request by its key, added to what was `found`."""
    request = Requests(backend, sampling_of(settings))

    def answer(chat: Chat) -> Completion:
        known = look(request("", chat).key)
        if known is None:
            raise Unanswered
        return known

    for program in programs:
        try:
            found.results[program.probe_id] = drive(program.start(), answer)
        except Unanswered:
            found.missing += 1
        except LlmfairError as error:
            found.failures.append(Failure(program.probe_id, type(error).__name__, error.message, error.hint))
        except Exception as error:  # as a run has it: what a program makes of damaged answers is its failure
            found.failures.append(Failure(program.probe_id, type(error).__name__, str(error)))


DIGITS = 12
COUNTS = ("python", "platform", "numpy", "scipy")
"""What of the versions can change a last digit."""
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


def elsewhere(made_with: Mapping[str, str]) -> str:
    """Where a file was made and where it is checked, in words."""
    here = versions()
    there = [(name, made_with[name]) for name in COUNTS if made_with.get(name, here[name]) != here[name]]
    if not there:
        return "on another processor"
    told = "; ".join(f"{name} {before} there, {here[name]} here" for name, before in there)
    return f"elsewhere ({told})"
