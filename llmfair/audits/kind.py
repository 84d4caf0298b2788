"""An audit kind is a value: its settings, its design, and how what it finds is told.

Everything that happens to an audit (planned, run, resumed, replayed, shown, measured again, compared, reported) is
asked of its kind; nothing else knows which kinds there are. A kind is one folder, registered in its `__init__` by
`register("audit", NAME)(KIND)`, or an entry point `llmfair.audits` of another package. This file and the `__init__` of
kinds load nothing heavy, since `llmfair --help` asks all of them what they are called.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from llmfair import registry
from llmfair.settings import AuditSettings, Calibrated, Planned

if TYPE_CHECKING:
    from llmfair.audits.design import Design
    from llmfair.audits.subject import Subject
    from llmfair.records import Chat
    from llmfair.report.tables import Table
    from llmfair.results import Results


@dataclass(frozen=True)
class Condition:
    """What is compared within an audit: a prompt, a stratum of pairs, a retriever and its temperature.

    `name` stands in tables and gates; each of `factors` has a column of its own in the CSV files.
    """

    name: str
    factors: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Help:
    """What a command says of itself, and its examples."""

    does: str
    examples: tuple[str, ...] = ()


HELP: Mapping[str, str] = {
    "plan": "What `llmfair {name}` with these flags would ask, cost and find; nothing is asked.",
    "render": "Exactly the messages that `llmfair {name}` with these flags sends for one {question}.",
    "calibrate": "Simulated audits with injected effects: recovery, coverage, false alarms.",
}
"""What commands about an audit say of themselves, unless its kind says it better."""


class Kind(ABC):
    """One kind of audit. What has a default below is done for every kind alike; a kind says otherwise where it must.

    `helps` holds what its command says (by ""), and those about it (by `plan`, `render`, `calibrate`). `unit` is what
    has to be answered whole for there to be a figure, `question` what one chat shows. `ranks`: rankers that ask no
    model can be audited, too.
    """

    name: str
    title: str
    helps: ClassVar[Mapping[str, Help]]
    settings: type[AuditSettings]
    unit: str = "probes"
    question: str = "question"
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
    def planned(self) -> type[AuditSettings]:
        """The settings of `llmfair plan NAME`: those of the audit, and what is wanted of it."""
        return dataclass(frozen=True, kw_only=True)(type("Planned", (Planned, self.settings), {}))

    def before(self, planned: Mapping[str, Any]) -> str:
        """Said before the first question."""
        from llmfair.report.tables import count, on_disk

        return count(planned["calls"], "call") + on_disk(planned)

    def plan_table(self, planned: Mapping[str, Any]) -> Table | None:
        """A plan; None where nothing can be tabled, so that its text says all."""
        return None

    def plan_text(self, planned: Mapping[str, Any]) -> str:
        """What a dry run says, and a plan without table."""
        from llmfair.report.planned import plan_lines

        return "\n".join([*plan_lines(planned), "Nothing was asked.", ""])

    numbered: str = "Which question."
    """What `--number` of `llmfair prompts render NAME` counts."""

    def rendered(self, settings: Any) -> Iterator[Chat]:
        """The chats that `llmfair prompts render NAME` shows, as far as they are known before any answer."""
        for program in self.design(settings).programs():
            yield from next(program.start())

    # The audit procedure against injected effects

    calibrated: type[Calibrated] | None = None
    """The settings of `llmfair calibrate NAME`, where the kind can simulate its audits."""

    def calibration(self, settings: Any) -> int:
        """How many audits are simulated."""
        raise NotImplementedError

    def calibrate(self, settings: Any, advance: Callable[[], None]) -> dict[str, Any]:
        """Injected against recovered effects; `advance` is called after every simulated audit."""
        raise NotImplementedError

    def calibration_table(self, found: Mapping[str, Any]) -> Table:
        raise NotImplementedError

    def calibration_tsv(self, found: Mapping[str, Any]) -> str:
        raise NotImplementedError

    # What was found

    def results(self) -> type[Results]:
        """The class of its results.json."""
        from llmfair.results import Results

        return Results

    def documents(self) -> Mapping[str, Any]:
        """The types of what `plan` and `calibrate` print with --json, by these names."""
        from llmfair.audits.documents import Plan

        return {"plan": Plan}

    @abstractmethod
    def table(self, results: Any) -> Table:
        """The table of a run, from its results."""

    def how_ended(self, row: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
        """How an answer of the journal ended: `ok`, or what was wrong with it, by the settings of the run."""
        return "ok"

    def what_was_shown(self, about: Mapping[str, Any]) -> str:
        """What a question showed, in a word."""
        return ""


def kind_of(name: str) -> Kind:
    """The kind of this name. Raises UsageError for an unknown one."""
    kind: Kind = registry.lookup("audit", name)
    return kind


def kinds() -> list[Kind]:
    """All kinds of audits, by name."""
    return [kind_of(name) for name in registry.names("audit")]
