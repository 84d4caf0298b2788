"""An audit kind is a value of four parts: its settings, its design, its measure and its words.

Everything that happens to an audit is asked of its kind; nothing else knows which kinds there are. A kind is one
folder, registered in its `__init__` by `register("audit", NAME)(KIND)`, or an entry point `llmfair.audits` of another
package. This file and the `__init__` of kinds load nothing heavy, since `llmfair --help` asks all of them what they are
called: the parts are loaded `later`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_type_hints

from msgspec.structs import asdict, replace

from llmfair import registry
from llmfair.errors import UsageError
from llmfair.registry import at, later
from llmfair.settings.commands import AuditSettings, CalibrationSettings, PlanningSettings, StudySettings

if TYPE_CHECKING:
    from llmfair.audits.design import Design
    from llmfair.audits.scoring import Measuring
    from llmfair.audits.subject import Subject
    from llmfair.nouns import Chat
    from llmfair.report.words import StudyWording, Wording
    from llmfair.results import StudyResults
    from llmfair.rundir import Manifest, RunDir


@dataclass(frozen=True)
class Help:
    """What a command says of itself, and its examples; `number`: what `--number` counts where it has one."""

    does: str
    examples: tuple[str, ...] = ()
    number: str = "Which question."


HELP: Mapping[str, str] = {
    "plan": "What `llmfair {name}` with these flags would ask, cost and find; nothing is asked.",
    "render": "Exactly the messages that `llmfair {name}` with these flags sends for one {question}.",
    "calibrate": "Simulated audits with injected effects: recovery, coverage, false-positive rate.",
}
"""What commands about an audit say of themselves, unless its kind says it better."""
EXAMPLES = {
    "plan": ("{name} -m openai:gpt-4o-mini --price-in 0.15 --price-out 0.6", "{name} --dataset mine"),
    "render": ("{name}", "{name} --dataset mine"),
    "calibrate": ("{name}",),
}
PARTS = ("settings", "design", "measure", "words")
GENERAL = {
    "score": "llmfair.audits.scoring:ScoreResults",
    "finetune-lora": "llmfair.tuning.results:FinetuneResults",
    "mitigate": "llmfair.mitigation.results:MitigationResults",
}
"""The classes of results that are neither an audit's nor a study's, by task."""


S = TypeVar("S", bound=AuditSettings)


class Study(ABC):
    """Several audits of one kind and model under named settings, and how what they find is told together.

    `name` is that of the command, `llmfair study NAME`, and of `llmfair.study_NAME`; `does` and `examples` are its
    help, `words` what people read of its plan and its results.
    """

    name: str
    does: str
    examples: tuple[str, ...] = ()
    settings: type[StudySettings]
    results: type[StudyResults] = later("llmfair.results:StudyResults")
    """The class of its `StudyResults`. A field that results of its audits, or their designs, have too is theirs."""
    words: StudyWording = later("llmfair.report.words:STUDY")

    @property
    def task(self) -> str:
        """What its results call it."""
        return f"study {self.name}"

    @abstractmethod
    def audits(self, settings: Any, subject: Subject) -> Mapping[str, AuditSettings]:
        """The settings of each audit, by name. Raises UsageError, also for a subject that cannot be studied."""

    def rows(self, setting: str, results: Any) -> Iterator[Any]:
        """The rows that one audit's results come to."""
        from llmfair.results import SettingRow

        return (SettingRow(setting=setting, **asdict(row)) for row in results.rows)

    def lines(self, results: Any) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
        """The columns and lines of its CSV file, from its results."""
        from llmfair.rundir import COLUMNS

        columns = ("setting", *COLUMNS)
        return columns, [[getattr(row, column) for column in columns] for row in results.rows]


def settings_of(of: type[S], study: StudySettings, **differs: Any) -> S:
    """The settings of one audit of a study: the study's, but for those in which it differs. Raises UsageError."""
    shared = {item.name: getattr(study, item.name) for item in fields(of)}
    return of.make(**shared | {"output": None} | differs)


class Kind:
    """One kind of audit: what its commands need.

    `helps` holds what its command says (by ""), and those about it (by `plan`, `render`, `calibrate`). `question` is
    what one chat shows. `ranks`: rankers that ask no model can be audited, too. `calibrated` are the settings of
    `llmfair calibrate NAME`, where the kind can simulate its audits.
    """

    name: str
    helps: ClassVar[Mapping[str, Help]]
    settings: type[AuditSettings]
    design: Callable[..., Design[Any]]
    """By its settings, and a `Subject` where somebody will be asked: loads what they name and fixes all that is
    asked, as `Design.make` does. Raises UsageError."""
    measure: Measuring
    """How runs are measured again and compared."""
    words: Wording
    """What people read of it."""
    results: type[Any] = later("llmfair.results:PlainResults")
    """The class of its results.json."""
    documents: Mapping[str, Any] = later("llmfair.audits.documents:DOCUMENTS")
    """The types of what `plan` and `calibrate` print with --json, by these names."""
    question: str = "question"
    ranks: bool = False
    studies: Sequence[Study] = ()
    """Commands over several of its audits: `llmfair study NAME`."""
    calibrated: type[CalibrationSettings] | None = None
    calibrate: Callable[[Any, Callable[[], None]], dict[str, Any]]
    """Injected against recovered effects by these settings; the callable is called after every simulated audit."""

    def help(self, command: str = "") -> Help:
        """What the audit's command says of itself, or one about it."""
        if command in self.helps:
            return self.helps[command]
        begins = "llmfair prompts render" if command == "render" else f"llmfair {command}"
        examples = tuple(f"{begins} {line.format(name=self.name)}" for line in EXAMPLES[command])
        return Help(HELP[command].format(name=self.name, question=self.question), examples)

    @cached_property
    def plan_settings(self) -> type[AuditSettings]:
        """The settings of `llmfair plan NAME`: those of the audit, and what is wanted of it."""
        bases = (PlanningSettings,) if self.settings is AuditSettings else (self.settings, PlanningSettings)
        return dataclass(frozen=True, kw_only=True)(type("Planned", bases, {}))

    def rendered(self, settings: Any) -> Iterator[Chat]:
        """The chats that `llmfair prompts render NAME` shows, as far as they are known before any answer."""
        for program in self.design(settings).programs():
            yield from next(program.start(), ())

    def beside(self, plans: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """What tells the plans of several runs apart that one command asks for."""
        return {}


def kind_of(name: str) -> Kind:
    """The kind of this name. Raises UsageError for an unknown one."""
    kind: Kind = registry.lookup("audit", name)
    return kind


def kind_in(file: str | Path, task: str) -> Kind:
    """The kind that a file of a run folder names. Raises UsageError naming the file."""
    if not registry.has("audit", task):
        raise UsageError(
            f"{file}: there is no audit '{task}' here.", "install the package that brings it beside llmfair"
        )
    return kind_of(task)


def kinds() -> list[Kind]:
    """All kinds of audits, by name."""
    return [kind_of(name) for name in registry.names("audit")]


def studies() -> dict[str, tuple[Kind, Study]]:
    """All studies with their kinds, by name."""
    return {study.name: (kind, study) for kind in kinds() for study in kind.studies}


def study_of(task: str) -> Study | None:
    """The study that results of this task are of; None where they are of none."""
    return next((study for _, study in studies().values() if study.task == task), None)


def found_of(document: Mapping[str, Any], where: str | Path) -> Any:
    """Results, as JSON has them, as the class of their task. Raises UsageError naming the field that is wrong."""
    from llmfair.io.files import SCHEMA, typed

    if (schema := document.get("schema")) != SCHEMA:
        raise UsageError(
            f"{where}: is of schema {schema}, another format than {SCHEMA}.",
            "run the same command again, which writes it anew: its answers serve, and nothing is asked again",
        )
    task = str(document.get("task"))
    if study := study_of(task):
        return typed(document, study.results, where)
    results: Any = typed(
        document, at(GENERAL[task]) if task in GENERAL else kind_in(where, task).results, where
    )
    if task != "score":
        return results
    of = {run.task: get_type_hints(kind_in(where, run.task).results)["findings"] for run in results.runs}
    runs = [replace(run, findings=typed(run.findings, of[run.task], where)) for run in results.runs]
    return replace(results, runs=runs)


def results_of(run: RunDir, manifest: Manifest | None = None) -> Any:
    """What a run found, as the class of its task, with what its manifest tells beside. Raises UsageError."""
    results = found_of(run.read_results(), run.results)
    return results if manifest is None else replace(results, **manifest.told())


@registry.check("audit")
def check_kind(name: str, offered: object, beside: Iterable[Kind] = ()) -> None:
    """Raises ValueError for what could not be used as a kind of this name."""
    if not isinstance(offered, Kind):
        raise ValueError("it is no value of a class of Kind")
    if lacking := [part for part in ("name", "helps", *PARTS) if not hasattr(type(offered), part)]:
        raise ValueError(f"it has no {' and no '.join(lacking)}")
    if offered.name != name:
        raise ValueError(f"the kind calls itself '{offered.name}'")
