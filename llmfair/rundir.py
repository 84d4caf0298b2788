"""The run folder and its manifest: what a run was, what it asked, what it found, what each command on it cost.

Only the manifest and the journal hold times; every other file of a run depends on its answers alone, so that an
interrupted and an undisturbed run leave equal bytes.
"""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta

from llmfair.errors import LlmfairError, RunConflict, UsageError, did_you_mean, warn
from llmfair.io import files
from llmfair.io.files import A_LINK, clear, json_text, make_inside, read_document, typed, write_whole
from llmfair.io.text import in_csv

Count = Annotated[int, Meta(ge=0)]
Cost = Annotated[float, Meta(ge=0)]
T = TypeVar("T", bound="RunSettings")
Stage = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,60}\Z")]
"""A stage's name, which its journal has too."""
RUNS_HINT = "llmfair runs list    shows the run folders"
Status = Literal["running", "incomplete", "complete"]
MANIFEST_SCHEMA = 1
"""The version of manifests, which results of another version can have."""


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """One command on a run; `calls` None: it left no word of what it asked, `cost` None: no prices were known."""

    command: Sequence[str]
    started: str
    ended: str | None = None
    calls: Count | None = None
    cost: Cost | None = None


@dataclass(frozen=True, kw_only=True)
class PromptRecord:
    """The prompt of a run: the file it comes from, and its text."""

    file: str
    sha256: str
    text: str


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """What names the work of a folder: all settings that can change a result."""

    settings: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Manifest(RunSettings):
    """manifest.json as far as it is read again; what it has besides is for people.

    `settings` name the run, the kind of audit (`task`) and who was asked (`identity`) among them; `flags` are all that
    the user could set. `simulated`: the model read what a chat is about. `stages`: the same of further stages' models,
    by name; `stage_answers`: how many answers those gave. `server`: which one
    answered, where it is not the model's only one; `label`: what the user calls the run. `unused`: settings
    that made no difference to who was asked. `sees`: the prompt, and what was shown of an item, in words. `made`: what
    results were made of, and sizes and times of the files.
    """

    status: Status
    task: str
    flags: Mapping[str, Any]
    model: str
    simulated: bool
    invocations: Annotated[Sequence[Invocation], Meta(min_length=1)]
    planned_calls: Count | None = None
    journal_answers: Count = 0
    prompt: PromptRecord | None = None
    warnings: Sequence[str] = ()
    sees: str = ""
    stages: Mapping[Stage, bool] = field(default_factory=dict)
    stage_answers: Mapping[str, Count] = field(default_factory=dict)
    models_reported: Sequence[str] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    made: Mapping[str, Any] = field(default_factory=dict)
    cost: Cost | None = None
    server: str = ""
    label: str = ""
    unused: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("task", "identity"):
            if not isinstance(self.settings.get(name), str):
                raise ValueError(f"Object missing required field `{name}` - at `$.settings`")
        if {*self.settings.get("stages", {})} != {*self.stages}:
            raise ValueError("names other stages at `$.stages` than at `$.settings`")

    def used(self) -> dict[str, Any]:
        """The settings that made a difference."""
        return {name: value for name, value in self.settings.items() if name not in self.unused}

    def told(self) -> dict[str, Any]:
        """What the run is told with beside its results, as far as there is any of it."""
        names = ("server", "label", "warnings", "sees")
        return {name: value for name in names if (value := getattr(self, name))}

    @property
    def named_model(self) -> str:
        """The label if there is one, the model, and the server."""
        return named_model(self.model, self.server, self.label)


def named_model(model: str, server: str = "", label: str = "") -> str:
    """`nightly: openai:NAME at SERVER`, as far as there is a label and a server."""
    where = f"{model} at {server}" if server else model
    return f"{label}: {where}" if label else where


def read_named(path: Path, of: type[T]) -> T:
    """A manifest as this class. Raises UsageError naming the file, and the field that is wrong or missing."""
    document = read_document(path, Any, RUNS_HINT)
    if not isinstance(document, dict) or document.get("schema") != MANIFEST_SCHEMA:
        raise UsageError(f"{path}: is not a manifest of schema {MANIFEST_SCHEMA}.", RUNS_HINT)
    return typed(document, of, path, RUNS_HINT)


# The folder


Contents = str | Iterable[str]
"""A file's text, or its parts, which are made while it is written."""
JOURNAL = "journal.jsonl"
LOCK = ".lock"
REPORT = "report.html"
MITIGATION = "mitigation"
"""The folder in a run of the remedies that were held against it."""
ONE_OF_SEVERAL = re.compile(r"\.o(\d+)\.r(\d+)$")
"""How the name of a single order's and repeat's ranking ends; what stands before it is its condition."""
COLUMNS = (
    "run", "dataset", "attribute", "model", "condition", "stratum", "contrast", "query_id", "measure", "group", "value",
    "low", "high", "n", "p", "p_adjusted", "conclusion", "reason",
)  # fmt: skip


def fingerprint(settings: Mapping[str, Any], content: Callable[[Any], object] = str) -> str:
    """SHA-256 over all that can change a result; its first six digits name the folder.

    `content`: what is written of a value that JSON does not know.
    """
    canonical = json.dumps(settings, sort_keys=True, separators=(",", ":"), default=content)
    return hashlib.sha256(canonical.encode()).hexdigest()


def folder_name(parts: Sequence[str], settings: Mapping[str, Any]) -> str:
    """`listwise-sample-gender-fake-biased-3f9a1c`: what was run, in words that any file system takes."""
    words = [re.sub(r"[^A-Za-z0-9._]+", "-", part).strip("-.") for part in parts]
    return "-".join([*(word for word in words if word), fingerprint(settings)[:6]])[-200:]


@dataclass(frozen=True)
class RunDir:
    """A run folder at `path`."""

    path: Path

    @property
    def manifest(self) -> Path:
        return self.path / "manifest.json"

    @property
    def journal(self) -> Path:
        return self.path / JOURNAL

    def journal_of(self, stage: str) -> Path:
        return self.path / f"{stage}.jsonl"

    @property
    def results(self) -> Path:
        return self.path / "results.json"

    def journals(self, manifest: Manifest) -> list[Path]:
        """All journals of a run, the first stage's first."""
        return [self.journal, *map(self.journal_of, manifest.stages)]

    def read_manifest(self) -> Manifest:
        """The manifest. Raises UsageError where there is none, naming the field where one is wrong or missing."""
        if not self.manifest.exists():
            raise UsageError(f"{self.path} is not a run folder: it has no manifest.json.", RUNS_HINT)
        return read_named(self.manifest, Manifest)

    def invocations(self) -> list[dict[str, Any]]:
        """The commands so far, as the manifest has them: a further one is noted behind them."""
        return list(read_document(self.manifest, Any)["invocations"]) if self.manifest.exists() else []

    def read_settings(self) -> RunSettings:
        """What names the work of the folder. Raises UsageError."""
        return self.read_manifest()

    def read_results(self) -> dict[str, Any]:
        """What `results.json` says, whatever wrote it. Raises UsageError where there is none that can be read."""
        if not self.results.exists():
            raise UsageError(
                f"{self.path} has no results yet.", "the command that began the run completes it"
            )
        document: dict[str, Any] = read_document(self.results, dict[str, Any])
        return document

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        self._write(name, [json_text(content)])

    def write_files(self, files: Mapping[str, Contents]) -> None:
        """Writes the files of a run; rankings that an earlier invocation left and this one lacks are removed."""
        self.drop_report()
        rankings = self.path / "rankings"
        for stale in () if rankings.is_symlink() else rankings.glob("*.run"):
            if f"rankings/{stale.name}" not in files:
                stale.unlink()
        for name, text in files.items():
            self._write(name, [text] if isinstance(text, str) else text)

    def _write(self, name: str, parts: Iterable[str]) -> None:
        path = self.path / name
        try:
            if path.parent != self.path:
                make_inside(path.parent)
            write_whole(path, parts)
        except OSError as error:
            raise LlmfairError(
                f"cannot write {path}: {error.strerror}.",
                "every answer is kept; make room, or remove what is in its place, and repeat",
            ) from None

    def drop_report(self) -> None:
        """Removes the page of earlier results, so that none contradicts those of now; it can be written anew."""
        report = self.path / REPORT
        if report.is_file() or report.is_symlink():
            report.unlink()

    def prepare(self, settings: Mapping[str, Any]) -> bool:
        """Makes the folder, or checks that it belongs to these settings; returns whether it was there.

        Raises RunConflict listing each difference, UsageError when the folder cannot be written.
        """
        try:
            files.make_folder(self.path)
            if not os.access(self.path, os.W_OK):
                raise PermissionError(errno.EACCES, "permission denied")
        except OSError as error:
            raise UsageError(
                f"cannot write the run folder {self.path}: {error.strerror}.",
                "choose another with --output or --runs-dir",
            ) from None
        if self.manifest.exists():
            try:
                theirs = self.read_settings().settings
            except UsageError as damaged:
                if not self.journal.is_file():
                    raise
                set_aside(self.manifest)
                aside = "It is set aside and made anew: the answers in"
                warn(f"{damaged.message.removesuffix('.')}. {aside} {self.journal} are kept.")
                return False
        else:
            # the same command goes on with all answers of a journal: it finds them by who was asked what
            strangers = sorted(path.name for path in self.path.iterdir() if path.name != LOCK)
            derived = self.path.name.endswith(fingerprint(settings)[:6])
            if strangers and not derived and not self.journal.is_file():
                raise RunConflict(
                    f"{self.path} holds {strangers[0]} but no manifest: it is not a run folder.",
                    "choose another --output folder",
                )
            return False
        ours = json.loads(json.dumps(settings, default=str))
        if different := sorted(key for key in {*theirs, *ours} if theirs.get(key) != ours.get(key)):
            differences = "; ".join(
                f"{key}: {theirs.get(key)!r} there, {ours.get(key)!r} now" for key in different
            )
            raise RunConflict(
                f"{self.path} belongs to other settings ({differences[:600]}).",
                "choose another --output folder, or leave --output out",
            )
        return True

    def refuse_run(self) -> None:
        """Raises RunConflict where a run is kept: what is none never writes beside it."""
        if self.manifest.exists():
            raise RunConflict(f"{self.path} is the folder of another run.", "choose another --output folder")

    def missing(self) -> list[Path]:
        """The folders that have to be made for this one, itself first."""
        return [folder for folder in (self.path, *self.path.parents) if not folder.exists()]

    @contextmanager
    def given_up(self, folders: Iterable[Path]) -> Iterator[None]:
        """Where what is done here fails before there is an answer, what this invocation made goes again.

        Held under the lock. `folders`: those that were `missing`. One that held anything before stays as it is.
        """
        lock = self.path / LOCK
        before = {*self.path.iterdir()} - {lock}
        try:
            yield
        except BaseException:
            ours = {self.manifest, self.journal, lock}
            there = self.path.is_dir()  # unless somebody removed it
            if there and not before and not self.answers() and {*self.path.iterdir()} <= ours:
                for file in ours:
                    file.unlink(missing_ok=True)
                with suppress(OSError):  # another run may be beside this one by now
                    for folder in folders:
                        folder.rmdir()
            raise

    def answers(self) -> int:
        try:
            journals = self.journals(self.read_manifest())
        except UsageError:
            journals = [self.journal]
        number = 0
        for journal in filter(Path.is_file, journals):
            with files.opened(journal) as file:
                number += sum(b'"key":' in line for line in files.pieces(file))
        return number

    def summary(self) -> dict[str, Any]:
        """One line about the run: status, model, answers on disk, start; a damaged one says so."""
        status, model, started = "damaged", "", ""
        with suppress(UsageError):
            manifest = self.read_manifest()
            status, model, started = manifest.status, manifest.named_model, manifest.invocations[0].started
            if status == "running" and not self.is_locked():
                status = "interrupted"
        facts = {"run": self.path.name, "status": status, "model": model}
        return facts | {"answers": self.answers(), "started": started}

    def is_locked(self) -> bool:
        return files.is_held(self.path / LOCK)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the folder against a second process, without what a killed one left. Raises RunConflict."""
        self.refuse_links()
        with files.held(self.path / LOCK, self.path, "wait for it, or choose another --output folder"):
            clear(self.path)
            yield

    def links(self) -> Iterator[Path]:
        """What in the folder is a link, at any depth."""
        for folder, folders, names in os.walk(self.path):
            yield from filter(Path.is_symlink, (Path(folder, name) for name in (*folders, *names)))

    def refuse_links(self) -> None:
        """Raises RunConflict for a link to another folder, and for any link below the first level: a file at the top is
        ours and replaced, further down libraries write theirs through what is there."""
        for link in self.links():
            if link.parent != self.path or link.is_dir():
                raise RunConflict(
                    f"{link} is {A_LINK}: what this command writes there would leave {self.path}.",
                    "remove it, or choose another --output folder",
                )


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Any]], delimiter: str = ",") -> str:
    """UTF-8, `\\n`, `repr` floats, empty for None."""
    return "".join(csv_lines(header, rows, delimiter))


def csv_lines(header: Sequence[str], rows: Iterable[Sequence[Any]], delimiter: str = ",") -> Iterator[str]:
    """The same line by line."""
    line = io.StringIO()
    writer = csv.writer(line, delimiter=delimiter, lineterminator="\n")
    for row in chain([header], rows):
        writer.writerow([repr(cell) if isinstance(cell, float) else in_csv(cell) for cell in row])
        yield line.getvalue()
        line.seek(0)
        line.truncate()


def with_factors(
    rows: Iterable[Sequence[Any]], factors: Mapping[str, Mapping[str, Any]]
) -> tuple[tuple[str, ...], list[list[Any]]]:
    """Header and tidy rows, each factor of a condition in a column of its own behind `condition`."""
    names = tuple(dict.fromkeys(name for of_it in factors.values() for name in of_it))
    place = COLUMNS.index("condition") + 1
    header = (*COLUMNS[:place], *names, *COLUMNS[place:])
    return header, [
        [*row[:place], *(factors.get(row[place - 1], {}).get(name) for name in names), *row[place:]]
        for row in rows
    ]


def find_run(name: str, runs_dir: Path) -> RunDir:
    """A run folder by path, or by name or unique beginning below `runs_dir`. Raises UsageError."""
    if Path(name).is_dir():
        return RunDir(Path(name))
    runs = {run.path.name: run for run in list_runs(runs_dir)}
    matches = [name] if name in runs else [run for run in runs if run.startswith(name)]
    if len(matches) == 1:
        return runs[matches[0]]
    what = f"{len(matches)} runs begin with" if matches else "no run"
    raise UsageError(f"{what} '{name}' in {runs_dir}.{did_you_mean(name, runs)}", RUNS_HINT)


def list_runs(runs_dir: Path) -> list[RunDir]:
    """All run folders below `runs_dir`, newest first; damaged ones too."""
    if not runs_dir.is_dir():
        return []
    marks = ("manifest.json", JOURNAL)
    folders = [path for path in runs_dir.iterdir() if any((path / mark).is_file() for mark in marks)]
    return [RunDir(path) for path in sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True)]


def set_aside(path: Path) -> None:
    """Renames a journal to the first free `journal.N.jsonl`, so that a fresh run loses nothing."""
    if path.exists():
        places = (path.with_name(f"{path.stem}.{number}{path.suffix}") for number in count(1))
        path.rename(next(place for place in places if not place.exists()))


def now() -> str:
    """The time in UTC, to the second; for manifests alone."""
    return datetime.now(UTC).isoformat(timespec="seconds")
