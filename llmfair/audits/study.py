"""A study is a value: several audits of one kind under named settings, and how what they find is told together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import asdict, replace

from llmfair.io.text import listed
from llmfair.registry import later
from llmfair.settings.commands import AuditSettings, StudySettings

if TYPE_CHECKING:
    from llmfair.audits.subject import Subject
    from llmfair.report.words import StudyWording
    from llmfair.results import RunVerdict, StudyResults

S = TypeVar("S", bound=AuditSettings)


class Study(ABC):
    """One model under several settings. What has a default below is done for every study alike.

    `name` is that of the command, `llmfair study NAME`, and of `llmfair.study_NAME`; `does` and `examples` are its
    help, `words` what people read of its plan and its results.
    """

    name: str
    does: str
    examples: tuple[str, ...] = ()
    settings: type[StudySettings]
    results: type[StudyResults] = later("llmfair.results:PlainStudyResults")
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


def verdict_of_all(verdicts: Mapping[str, RunVerdict], statuses: Sequence[str]) -> RunVerdict | None:
    """The gravest of the settings' verdicts, the first of several, below which settings have which status."""
    by_status: dict[str, list[str]] = {}
    for name, verdict in sorted(verdicts.items(), key=lambda item: statuses.index(item[1].status)):
        by_status.setdefault(verdict.status, []).append(name)
    if not by_status:
        return None
    (first, *more), *milder = by_status.values()
    verdict = verdicts[first]
    if len(verdicts) == 1:
        return verdict
    others = ", ".join(f"{verdicts[names[0]].status} with {listed(names)}" for names in milder)
    where = f"with {listed([first, *more])}" + f" ({others})" * bool(others) + f"; {first}" * bool(more)
    return replace(verdict, sentence=f"{where}: {verdict.sentence}")


def settings_of(of: type[S], study: StudySettings, **differs: Any) -> S:
    """The settings of one audit of a study: the study's, but for those in which it differs. Raises UsageError."""
    shared = {item.name: getattr(study, item.name) for item in fields(of)}
    return of.make(**shared | {"output": None} | differs)
