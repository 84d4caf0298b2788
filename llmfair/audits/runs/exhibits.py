"""A run as evidence: what a report shows of it beside its figures, and the run followed again, nobody asked."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from heapq import nsmallest
from io import BytesIO
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

from llmfair.asking.journal import JournalAnswers, not_begun_by, read_rows, requests
from llmfair.audits.commands import command_of, settings_of
from llmfair.audits.design import Design, read_texts
from llmfair.audits.kind import kind_in, results_of
from llmfair.audits.subject import Subject, sampling_of
from llmfair.backends.base import NoBackend
from llmfair.backends.python import GIVEN
from llmfair.errors import Incomplete, LlmfairError, UsageError
from llmfair.io import files
from llmfair.io.files import A_LINK, AGAIN, read_document
from llmfair.metrics.base import Measure
from llmfair.metrics.names import parse_measure
from llmfair.nouns import Chat, Completion, Failure, Unanswered, drive
from llmfair.results import Evidence, Exhibits
from llmfair.rundir import MITIGATION, Contents, Manifest, RunDir


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
    seen = set[str]()

    def first_answers() -> Iterator[Evidence]:
        for answer in all_answers(run, manifest):
            if answer.key not in seen:
                seen.add(answer.key)
                yield answer

    def place(answer: Evidence) -> tuple[bool, int, str]:
        return answer.ended == "ok", crc32(answer.key.encode(), seed & 0xFFFFFFFF), answer.key

    return nsmallest(number, first_answers(), key=place)


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


# Followed again: as far as the answers to its questions are known


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

    problems, results, failures, answers = _followed(run, manifest, design)
    rounded, called = list[str](), run.path.name
    with suppress(UsageError):  # what it was called when its files were written: the folder may be a copy
        called = str(results_of(run).run)
    for name, contents in design.outcome(called, results, failures).files.items():
        match holds(run.path / name, contents):
            case None:
                problems.append(f"{name} is missing")
            case "rounded":
                rounded.append(name)
            case "other":
                problems.append(f"{name} does not follow from the journal's answers")
    problems += [f"{link.relative_to(run.path)} is {A_LINK}" for link in run.links()]
    remedies = run.path / MITIGATION
    if remedies.is_dir() and not remedies.is_symlink():
        digests = read_document(remedies / "results.json", _Remedies).files
        for name in sorted(
            {str(path.relative_to(remedies)) for path in remedies.glob("rankings/*")} | digests.keys()
        ):
            path = remedies / name
            if name not in digests or not path.is_file() or files.sha256(path) != digests[name]:
                problems.append(f"{MITIGATION}/{name} is not what llmfair mitigate wrote")
    notes = [f"compared to {DIGITS} digits: {', '.join(rounded)}"] if rounded else []
    return {"answers": answers, "problems": problems, "notes": notes}


def _followed(
    run: RunDir, manifest: Manifest, design: Design[Any]
) -> tuple[list[str], dict[str, Any], list[Failure], int]:
    """What is wrong with the journals' first lines, results by probe_id, failures, and how many answers there are.

    Raises Incomplete where the journals do not answer every chat.
    """
    # Who answered is on record; the models themselves need not be there any more.
    backends = [NoBackend(manifest.settings["identity"], reads_about=manifest.simulated)]
    backends += [
        NoBackend(manifest.settings["stages"][name], reads_about=reads)
        for name, reads in manifest.stages.items()
    ]
    problems, answers, unanswered = list[str](), 0, 0
    results, failures = dict[str, Any](), list[Failure]()
    stages = [lambda results: design.programs(), *(stage.programs for stage in design.stages())]
    for programs, path, backend in zip(stages, run.journals(manifest), backends, strict=True):
        request = requests(backend, sampling_of(design.settings))
        journal = JournalAnswers(path) if path.is_file() else None  # of a stage that was asked nothing
        if journal is not None:
            answers += len(journal)
            with files.opened(path) as file:
                if wrong := not_begun_by(file.readline(files.LONGEST_LINE), backend.identity):
                    problems.append(f"{path.name}:1: {wrong}")

        def answer(
            chat: Chat, journal: JournalAnswers | None = journal, request: Any = request
        ) -> Completion:
            completion = None if journal is None else journal.get(request("", chat).key)
            if completion is None:
                raise Unanswered
            return completion

        with nullcontext() if journal is None else closing(journal):
            for program in programs({**results}):
                try:
                    results[program.probe_id] = drive(program.start(), answer)
                except Unanswered:
                    unanswered += 1
                except Exception as error:  # what a program makes of damaged answers is its failure
                    words = (error.message, error.hint) if isinstance(error, LlmfairError) else (str(error),)
                    failures.append(Failure(program.probe_id, type(error).__name__, *words))
    if unanswered:
        probes = unanswered + len(results) + len(failures)
        raise Incomplete(
            f"{run.path.name} is incomplete: {unanswered} of {probes} probes lack answers.",
            "the command that began the run completes it",
        )
    return problems, results, failures, answers


@dataclass(frozen=True)
class _Remedies:
    """results.json of `llmfair mitigate`, as far as it says what else is there."""

    files: Mapping[str, str]


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


DIGITS = 12
_FRACTION = re.compile(r"-?\d+(?:\.\d+)?[eE][+-]?\d+|-?\d+\.\d+")


def agree(first: str, second: str) -> bool:
    """Whether two texts differ in nothing but fractions, and these beyond their twelfth digit or place."""
    if _FRACTION.split(first) != _FRACTION.split(second):
        return False
    pairs = zip(_FRACTION.findall(first), _FRACTION.findall(second), strict=True)
    close = 10.0**-DIGITS
    return all(a == b or math.isclose(float(a), float(b), rel_tol=close, abs_tol=close) for a, b in pairs)
