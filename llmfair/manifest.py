"""What a run says of itself: who was asked what, by which settings, and what each command on it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta

from llmfair.errors import UsageError
from llmfair.io.files import SCHEMA, read_json, typed

Count = Annotated[int, Meta(ge=0)]
Cost = Annotated[float, Meta(ge=0)]
T = TypeVar("T", bound="RunSettings")
Stage = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,60}\Z")]
"""A stage's name, which its journal has too."""
RUNS_HINT = "llmfair runs list    shows the run folders"
Status = Literal["running", "incomplete", "complete"]


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """One command on a run; `calls` None: it left no word of what it asked, `cost` None: no prices were known."""

    command: Sequence[str]
    started: str
    ended: str | None = None
    calls: Count | None = None
    cost: Cost | None = None


@dataclass(frozen=True, kw_only=True)
class AskedWith:
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
    by name; `stage_answers`: how many answers those gave. Lines that are skipped could not be read. `server`: which one
    answered, where it is not the model's only one; `label`: what the user calls the run. `unused`: settings
    that made no difference to who was asked. `sees`: the prompt, and what was shown of an item, in words. `made`: what
    results and page were made of, and sizes and times of the files.
    """

    status: Status
    task: str
    flags: Mapping[str, Any]
    model: str
    simulated: bool
    invocations: Annotated[Sequence[Invocation], Meta(min_length=1)]
    journal_answers: Count = 0
    journal_lines_skipped: Sequence[int] = ()
    planned_calls: Count | None = None
    prompt: AskedWith | None = None
    warnings: Sequence[str] = ()
    sees: str = ""
    stages: Mapping[Stage, bool] = field(default_factory=dict)
    stage_answers: Mapping[str, Count] = field(default_factory=dict)
    stage_lines_skipped: Mapping[str, Sequence[int]] = field(default_factory=dict)
    models_reported: Sequence[str] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    made: Mapping[str, Any] = field(default_factory=dict)
    cost: Cost | None = None
    prompt_tokens: Count = 0
    completion_tokens: Count = 0
    server: str = ""
    label: str = ""
    unused: Sequence[str] = ()

    @property
    def answers_on_disk(self) -> int:
        """Those of all journals."""
        return self.journal_answers + sum(self.stage_answers.values())

    def used(self) -> dict[str, Any]:
        """The settings that made a difference."""
        return {name: value for name, value in self.settings.items() if name not in self.unused}

    def told(self) -> dict[str, Any]:
        """What the run is told with beside its results, as far as there is any of it."""
        told = {
            "server": self.server,
            "label": self.label,
            "warnings": list(self.warnings),
            "sees": self.sees,
        }
        return {key: value for key, value in told.items() if value}

    @property
    def named_model(self) -> str:
        """The label if there is one, the model, and the server."""
        return named_model(self.model, self.server, self.label)


def named_model(model: str, server: str = "", label: str = "") -> str:
    """`nightly: openai:NAME at SERVER`, as far as there is a label and a server."""
    asked = f"{model} at {server}" if server else model
    return f"{label}: {asked}" if label else asked


def read_named(path: Path, of: type[T]) -> T:
    """Raises UsageError naming the file, and the field that is wrong or missing."""
    document = read_json(path, RUNS_HINT)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise UsageError(f"{path}: is not a manifest of schema {SCHEMA}.", RUNS_HINT)
    return typed(document, of, path, RUNS_HINT)


def read_manifest(path: Path) -> Manifest:
    """A run's manifest. Raises UsageError naming the file, and the field that is wrong or missing."""
    found = read_named(path, Manifest)
    for name in ("task", "identity"):
        if not isinstance(found.settings.get(name), str):
            raise UsageError(f"{path}: Object missing required field `{name}` - at `$.settings`.", RUNS_HINT)
    stages = found.settings.get("stages", {})
    if not isinstance(stages, dict) or stages.keys() != found.stages.keys():
        raise UsageError(f"{path}: names other stages at `$.stages` than at `$.settings`.", RUNS_HINT)
    return found
