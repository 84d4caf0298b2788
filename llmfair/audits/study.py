"""A study is a value: several audits of one kind under named settings, and how what they find is told together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import asdict, replace

from llmfair.settings import AuditSettings, StudySettings

if TYPE_CHECKING:
    from llmfair.audits.subject import Subject
    from llmfair.report.exhibits import Declared
    from llmfair.report.plots.base import Plot
    from llmfair.report.tables import Table
    from llmfair.results import RunVerdict, StudyResults

S = TypeVar("S", bound=AuditSettings)


class Study(ABC):
    """One model under several settings. What has a default below is done for every study alike.

    `name` is that of the command, `llmfair study NAME`, and of `llmfair.study_NAME`; `does` and `examples` are its
    help, `words` how it is made, a paragraph each.
    """

    name: str
    title: str
    does: str
    examples: tuple[str, ...] = ()
    settings: type[StudySettings]
    words: Sequence[str] = ("The same model is asked under several settings; each is an audit of its own.",)

    @property
    def task(self) -> str:
        """What its results call it."""
        return f"study {self.name}"

    @abstractmethod
    def audits(self, settings: Any, subject: Subject) -> Mapping[str, AuditSettings]:
        """The settings of each audit, by name. Raises UsageError, also for a subject that cannot be studied."""

    def planned(self, setting: Mapping[str, Any]) -> Mapping[str, str]:
        """What the table of its dry run says of one setting's plan, beside calls and folder, by column."""
        return {}

    def plan_table(self, planned: Mapping[str, Any]) -> Table:
        """What a dry run says: calls of each setting, and how many are answered already."""
        from llmfair.report import tables

        first, *_ = settings = planned["settings"]
        rows = tuple(
            (
                one["setting"],
                f"{one['calls']:,}",
                f"{one['answered']:,}",
                *self.planned(one).values(),
                one["folder"],
            )
            for one in settings
        )
        header = ("setting", "calls", "answered already", *self.planned(first), "run folder")
        many, calls = tables.count(len(settings), "setting"), tables.count(planned["calls"], "call")
        title = (self.name.capitalize(), many, ", ".join(first.get("conditions", ())), calls)
        notes = (*tables.planned_note(first), "Nothing was asked.")
        return tables.Table(" · ".join(filter(None, title)), header, rows, notes)

    # What was found

    def results(self) -> type[StudyResults]:
        """The class of its `StudyResults`. A field that results of its audits, or their designs, have too is theirs."""
        from llmfair.results import PlainStudyResults

        return PlainStudyResults

    def rows(self, setting: str, results: Any) -> Iterator[Any]:
        """The rows that one audit's results come to."""
        from llmfair.results import SettingRow

        return (SettingRow(setting=setting, **asdict(row)) for row in results.rows)

    def lines(self, found: Any) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
        """The columns and lines of its CSV file, from its results."""
        from llmfair.rundir import COLUMNS

        columns = ("setting", *COLUMNS)
        return columns, [[getattr(row, column) for column in columns] for row in found.rows]

    def table(self, found: Any) -> Table:
        """Its results, one row a setting and condition; also where no setting has any yet."""
        from llmfair.report import tables

        if not found.rows:
            return tables.Table(self.title, ("setting",), (), ("no setting has results yet",))
        figures = {(row.measure, row.group, row.setting, row.condition): row for row in found.rows}
        columns = tables.columns_of(found.shown, found.rows)
        named = tables.headings(columns, found, tables.with_interval(found.rows))
        rows = tuple(
            (*place, *(tables.cell(figures.get((*column, *place))) for column in columns))
            for place in dict.fromkeys((row.setting, row.condition) for row in found.rows)
        )
        title = (self.title, *found.about, tables.count(found.queries, "query", "queries"))
        notes = (*tables.drawn_note(found.drawn), *tables.few_queries(found.queries))
        return tables.filled(tables.Table(" · ".join(title), ("setting", "condition", *named), rows, notes))

    def headed_table(self, found: Any) -> Table:
        """The same below the verdict."""
        from llmfair.report.tables import headed

        return headed(self.table(found), found.verdict)

    def plots(self, found: Any, declared: Declared) -> Iterator[Plot]:
        """Its figures."""
        return iter(())


def verdict_of_all(verdicts: Mapping[str, RunVerdict], statuses: Sequence[str]) -> RunVerdict | None:
    """The gravest of the settings' verdicts, the first of several, below which settings have which status."""
    from llmfair.audits.verdict import listed

    by_status = {
        status: names
        for status in statuses
        if (names := [name for name, one in verdicts.items() if one.status == status])
    }
    if not by_status:
        return None
    gravest, *milder = by_status
    name = by_status[gravest][0]
    found = verdicts[name]
    if len(verdicts) == 1:
        return found
    others = ", ".join(f"{status} with {listed(by_status[status])}" for status in milder)
    told = f"with {listed(by_status[gravest])}" + f" ({others})" * bool(others)
    first = f"; {name}" * (len(by_status[gravest]) > 1)
    return replace(found, sentence=f"{told}{first}: {found.sentence}")


def settings_of(of: type[S], study: StudySettings, **differs: Any) -> S:
    """The settings of one audit of a study: the study's, but for those in which it differs. Raises UsageError."""
    shared = {item.name: getattr(study, item.name) for item in fields(of)}
    return of.make(**shared | {"output": None} | differs)
