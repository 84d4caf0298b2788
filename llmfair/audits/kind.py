"""An audit kind is a value: its settings, its design, and how what it finds is told.

Everything that happens to an audit (planned, run, resumed, replayed, shown, measured again, compared, reported) is
asked of its kind; nothing else knows which kinds there are. A kind is one folder, registered in its `__init__` by
`register("audit", NAME)(KIND)`, or an entry point `llmfair.audits` of another package. This file and the `__init__` of
kinds load nothing heavy, since `llmfair --help` asks all of them what they are called.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, get_type_hints

from msgspec.structs import replace

from llmfair import registry
from llmfair.audits.study import Study
from llmfair.errors import UsageError
from llmfair.settings import AuditSettings, CalibrationSettings, PlanningSettings

if TYPE_CHECKING:
    from llmfair.audits.comparing import ComparedRun
    from llmfair.audits.design import Design
    from llmfair.audits.documents import ChangeRow, ComparisonRun
    from llmfair.audits.run_files import Announce
    from llmfair.audits.scoring import RemeasuredRun, ScoredRun
    from llmfair.audits.subject import Subject
    from llmfair.audits.verdict import Conclusions
    from llmfair.metrics.base import Measure, Observation
    from llmfair.nouns import Chat
    from llmfair.report.exhibits import Declared, Exhibits
    from llmfair.report.groups import Group
    from llmfair.report.plots.base import Plot
    from llmfair.report.section import Section
    from llmfair.report.tables import Table
    from llmfair.results import Band, Figure, RunVerdict, Undefined, Words
    from llmfair.rundir import Manifest, RunDir
    from llmfair.settings import ScoreSettings


@dataclass(frozen=True)
class Help:
    """What a command says of itself, and its examples."""

    does: str
    examples: tuple[str, ...] = ()


HELP: Mapping[str, str] = {
    "plan": "What `llmfair {name}` with these flags would ask, cost and find; nothing is asked.",
    "render": "Exactly the messages that `llmfair {name}` with these flags sends for one {question}.",
    "calibrate": "Simulated audits with injected effects: recovery, coverage, false-positive rate.",
}
"""What commands about an audit say of themselves, unless its kind says it better."""
COMMANDS = {
    "cache", "calibrate", "compare", "datasets", "doctor", "measures", "mitigate", "plan", "prompts", "report",
    "rerank", "runs", "score", "strategies", "study",
}  # fmt: skip
"""Commands that are no audits."""
DOCUMENTS = {
    "comparison", "failure", "finetune_lora", "finetune_plan", "look", "merge", "mitigation", "mitigation_plan",
    "several", "study_plan",
}  # fmt: skip
"""What `--json` prints besides, as the schema names it: there a kind has its own name, and these with it behind."""
PREFIXES = ("plan_", "calibrate_", "study_")
GENERAL = {
    "score": "audits.scoring:ScoreResults",
    "finetune-lora": "tuning.results:FinetuneResults",
    "mitigate": "mitigation.results:MitigationResults",
}
"""The classes of results that are neither an audit's nor a study's, by task."""


def called(where: str) -> Any:
    """A method that is the function at `module:name`, which is not given the kind; it is loaded when it is called."""
    return lambda kind, *args: _at(where)(*args)


def named(where: str) -> Any:
    """A method that gives what is at `module:name`, such as a class; it is loaded when it is asked for."""
    return lambda kind: _at(where)


def _at(where: str) -> Any:
    module, _, name = where.partition(":")
    return getattr(import_module(f"llmfair.{module}"), name)


class Kind(ABC):
    """One kind of audit. What has a default below is done for every kind alike; a kind says otherwise where it must.

    `helps` holds what its command says (by ""), and those about it (by `plan`, `render`, `calibrate`). `unit` is what
    has to be answered whole for there to be a figure, `question` what one chat shows, `condition` what is compared.
    `ranks`: rankers that ask no model can be audited, too.
    """

    name: str
    title: str
    helps: ClassVar[Mapping[str, Help]]
    settings: type[AuditSettings]
    unit: str = "probes"
    question: str = "question"
    condition: str = "condition"
    ranks: bool = False

    def help(self, command: str = "") -> Help:
        """What the audit's command says of itself, or one about it."""
        if command in self.helps:
            return self.helps[command]
        return Help(HELP[command].format(name=self.name, question=self.question))

    @abstractmethod
    def design(self, settings: Any, subject: Subject | None = None) -> Design[Any]:
        """Loads what the settings name and fixes all that is asked. Raises UsageError.

        Without a subject the design is only looked at: nobody will be asked.
        """

    # Before anything is asked

    @cached_property
    def plan_settings(self) -> type[AuditSettings]:
        """The settings of `llmfair plan NAME`: those of the audit, and what is wanted of it."""
        return dataclass(frozen=True, kw_only=True)(type("Planned", (self.settings, PlanningSettings), {}))

    def before(self, planned: Mapping[str, Any]) -> str:
        """Said before the first question."""
        from llmfair.report.tables import count, on_disk

        return count(planned["calls"], "call") + on_disk(planned)

    def plan_table(self, planned: Mapping[str, Any]) -> Table | None:
        """A plan; None where nothing can be tabled, so that its text says all."""
        return None

    def beside(self, plans: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """What tells the plans of several runs apart that one command asks for."""
        return {}

    plan_text = called("report.tables:plan_text")
    """What a dry run says of what is planned, and a plan without table."""

    numbered: str = "Which question."
    """What `--number` of `llmfair prompts render NAME` counts."""

    def rendered(self, settings: Any) -> Iterator[Chat]:
        """The chats that `llmfair prompts render NAME` shows, as far as they are known before any answer."""
        for program in self.design(settings).programs():
            yield from next(program.start())

    # The audit procedure against injected effects

    calibrated: type[CalibrationSettings] | None = None
    """The settings of `llmfair calibrate NAME`, where the kind can simulate its audits."""

    calibration: Callable[[Any], int]
    """How many audits are simulated by these settings."""
    calibrate: Callable[[Any, Callable[[], None]], dict[str, Any]]
    """Injected against recovered effects by these settings; the callable is called after every simulated audit."""
    calibration_table: Callable[[Mapping[str, Any]], Table]
    """The table of what `calibrate` gives."""

    # What was found

    results = named("results:PlainResults")
    """The class of its results.json."""

    def documents(self) -> Mapping[str, Any]:
        """The types of what `plan` and `calibrate` print with --json, by these names."""
        from llmfair.audits.documents import AuditPlan

        return {"plan": AuditPlan}

    # Reported

    statuses: Sequence[str] = ("disparity", "not assessable", "inconclusive", "parity")
    """The statuses of its verdicts, the gravest first; the last, which `--fail-on` does not take, is hoped for."""

    def verdict(self, found: Conclusions) -> RunVerdict:
        """What a run comes to: one of the `statuses`, one sentence, one next step."""
        from llmfair.audits.verdict import VerdictWords

        return VerdictWords(self.condition, self.titles).verdict(found)

    aside: Collection[str] = ()
    """Conditions that only repeat another, to show how much answers vary: of several runs they are not shown."""
    gated: Collection[str] = ()
    """The conditions that gates speak of where they name none, if not all: of what these are held against, such as a
    baseline, they speak by name alone."""

    of_conditions: Collection[str] = ()
    """Settings that say which conditions there are: of several runs they do not make a model another row."""
    limits: Sequence[str] = (
        "The attribute is binary here: items that are in neither the protected nor the reference group, or in both, "
        "are left out of the ratios. Groups are what the data set records, not what people say of themselves.",
        "A distance from parity is a fact about these lists, prompts and answers. It names no cause, and passes no "
        "judgement.",
    )
    """What its figures cannot say, in sentences."""
    lopsided: bool = False
    """Whether intervals may be bootstrap-t intervals, which are not symmetric."""
    studies: Sequence[Study] = ()
    """Commands over several of its audits: `llmfair study NAME`."""

    def told_apart(self, settings: Mapping[str, Any], differ: Sequence[str]) -> list[str]:
        """The first settings in which runs of one model differ, in short; those that it has."""
        return [f"{name} {settings[name]}" for name in differ if name in settings][:2]

    @property
    def titles(self) -> Mapping[str, str]:
        """What conditions are called that are not called by their names."""
        return {}

    def table(self, results: Any) -> Table:
        """The table of a run, from its results."""
        from llmfair.report.tables import conditions_table

        return conditions_table(self.title, results, self.condition, self.titles, self.unit)

    def words(self) -> Sequence[str]:
        """How such audits are made and concluded, a paragraph each."""
        said = "is measured alike, and each query is one unit: intervals go over queries."
        return (f"{self.title}: each {self.condition} {said}",)

    def section(self, results: Any, folder: Path, exhibits: Exhibits) -> Section:
        """What the page of a run has of its own; `exhibits` is what `runs/exhibits.py` found beside the results."""
        from llmfair.report.figures import headline_plots, ratio_plots
        from llmfair.report.section import Section, condition_verdicts

        table, declared, conditions = self.table(results), exhibits.measures, results.design.conditions
        figures = {measure for measure, _ in results.by_condition()}
        plots = headline_plots if results.findings else ratio_plots
        first = next((measure for measure in results.shown if measure in figures), None)
        return Section(
            table=table,
            plots=list(plots(results, conditions, declared, self.titles)),
            verdicts=list(condition_verdicts(results, table, declared, first, conditions, "{}")),
            words=self.words(),
        )

    def group_plots(self, group: Group, declared: Declared, number: int) -> Iterator[Plot]:
        """Figures of several audits side by side; `number` keeps their names apart from other groups'."""
        from llmfair.report.groups import headlines

        return headlines(group, declared, number, self.titles)

    def group_tables(self, group: Group) -> Iterator[Table]:
        """Tables of several audits side by side, beside those of their measures and conclusions."""
        yield from ()

    # Shown answer by answer

    def how_ended(self, row: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
        """How an answer of the journal ended: `ok`, or what was wrong with it; by default what it says of itself."""
        return "ok" if row["finish"] == "stop" else str(row["finish"])

    def what_was_shown(self, about: Mapping[str, Any]) -> str:
        """What a question showed, in a word."""
        return ""

    def trail(self, run: RunDir, query_id: str | None) -> Iterator[str]:
        """How a run went about its queries, or one of them, step by step, a line each. Raises UsageError."""
        raise UsageError(
            f"{run.path}: {self.name} keeps no trail.",
            "its answers, one by one: llmfair runs show RUN --answers",
        )

    # Measured again and compared

    score_files: Callable[[Sequence[Path], ScoreSettings, Announce], Iterator[RemeasuredRun]] | None = None
    """Measures TREC run files, where the kind does."""
    score_log: Callable[[Path, ScoreSettings, Announce], RemeasuredRun] | None = None
    """Measures a log of requests, a file of JSON lines, where the kind does. Raises UsageError."""
    asked_by: ClassVar[Sequence[str]] = ()
    """Settings that say how a model is asked: figures with an attainable range compare where these agree."""
    agree: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """What runs must agree in to be compared, besides the general settings: what it means where they do not, and the
    way out."""
    how_changed: str = ""
    """How `changes` are made, said below a comparison; empty where they are paired by query, and signs flipped."""

    @abstractmethod
    def reads(self) -> type[Observation]:
        """What its measures read."""

    def observations(self, run: RunDir) -> Mapping[str, Sequence[Observation]]:
        """What a run folder keeps that measures read, by condition. Raises UsageError."""
        raise UsageError(f"{run.path}: {self.name} keeps nothing that could be measured again.")

    def score(self, run: RunDir, settings: ScoreSettings, announce: Announce) -> RemeasuredRun:
        """A run folder measured again, `announce` told of files before they are read. Raises UsageError."""
        from llmfair.audits.scoring import measured_again

        return measured_again(run, results_of(run), self.reads(), self.observations(run), settings)

    def concluded(self, finding: Any, row: Figure | None, level: float, band: Band, words: Words) -> str:
        """A conclusion in the table of measured runs; `row` is the figure that it speaks of."""
        from llmfair.report.tables import conclusion_text

        return conclusion_text(finding)

    def scored_notes(self, rows: Sequence[tuple[ScoredRun, str, str]]) -> list[str]:
        """What has to be known to read a table of measured runs; a row is a run, a condition and its name there."""
        return []

    def without_value(self, undefined: Undefined) -> Iterator[tuple[str, str]]:
        """Where measured runs have no value, and why: (condition, sentence), or ("", sentence) of them all."""
        from llmfair.report.tables import reasons

        for measure, conditions in undefined.items():
            said = {condition: reasons(found, measure) for condition, found in conditions.items()}
            if len(said) > 1 and len({*said.values()}) == 1:
                yield "", f"{measure} undefined in {', '.join(said)}: {next(iter(said.values()))}"
            else:
                yield from ((condition, f"{measure} undefined: {why}") for condition, why in said.items())

    def changes(
        self, base: ComparedRun, other: ComparedRun, chosen: Sequence[Measure] | None
    ) -> Iterator[ChangeRow]:
        """What changed from run to run, in the chosen measures or those with a direction. Raises UsageError."""
        from llmfair.audits.comparing import changes_by_query

        return changes_by_query(base, other, chosen, self.condition)

    def described(self, run: ComparedRun, base: ComparedRun) -> dict[str, Any]:
        """What a comparison says of a run, beside what it says of every kind."""
        return {}

    def compared_notes(self, runs: Sequence[ComparisonRun]) -> list[str]:
        """What else has to be known to read a comparison of these runs, the base first, as `described`."""
        return []


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


def found_of(document: Mapping[str, Any], where: str | Path = "results") -> Any:
    """Results, as JSON has them, as the class of their task. Raises UsageError naming the field that is wrong."""
    from llmfair.io.files import SCHEMA, typed

    if (schema := document.get("schema")) != SCHEMA:
        raise UsageError(
            f"{where}: is of schema {schema}, another format than {SCHEMA}.",
            "run the same command again, which writes it anew: its answers serve, and nothing is asked again",
        )
    task = document["task"]
    if study := study_of(task):
        results: Any = typed(document, study.results(), where)
    else:
        of = _at(GENERAL[task]) if task in GENERAL else kind_in(where, task).results()
        results = typed(document, of, where)
    if task != "score":
        return results
    hints = {run.task: get_type_hints(kind_in(where, run.task).results()) for run in results.runs}
    runs = [
        replace(run, findings=typed(run.findings, hints[run.task]["findings"], where)) for run in results.runs
    ]
    return replace(results, runs=runs)


def results_of(run: RunDir, manifest: Manifest | None = None) -> Any:
    """What a run found, as the class of its task, with what its manifest tells beside. Raises UsageError."""
    results = found_of(run.read_results(), run.results)
    return results if manifest is None else replace(results, **manifest.told())


@registry.check("audit")
def check_kind(name: str, offered: object, beside: Iterable[Kind] = ()) -> None:
    """Raises ValueError for what could not be used as a kind of this name beside the kinds there are."""
    if not isinstance(offered, Kind):
        raise ValueError("it is no value of a class of Kind")
    if offered.name != name:
        raise ValueError(f"the kind calls itself '{offered.name}'")
    if name in COMMANDS | DOCUMENTS or name.startswith(PREFIXES):
        raise ValueError(f"something else of llmfair is called {name}")
    taken = {"plan", *(study.name for kind in beside if kind is not offered for study in kind.studies)}
    studies = [study.name for study in offered.studies]
    # in the schema what begins with a capital is a class
    if not all(word.isidentifier() and word.islower() for word in (name, *studies)):
        raise ValueError("a name has to be a word of small letters, digits and _")
    if len({*studies} - taken) < len(studies):
        raise ValueError(f"another study is called as one of {', '.join(studies)}")
