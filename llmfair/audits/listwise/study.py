"""`llmfair study windows` as the rest of the package knows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llmfair.audits.kind import Study

if TYPE_CHECKING:
    from llmfair.audits.listwise.sweep_results import StudyResults
    from llmfair.report.plots.base import Plot
    from llmfair.report.tables import Table


class WindowsStudy(Study):
    """One model under several windows and steps."""

    name = "study windows"
    title = "Windows study"

    @property
    def words(self) -> Sequence[str]:
        from llmfair.audits.listwise.words import STUDY

        return STUDY

    def results(self) -> type[StudyResults]:
        from llmfair.audits.listwise.sweep_results import StudyResults

        return StudyResults

    def planned(self) -> Any:
        from llmfair.audits.listwise.documents import StudyPlan

        return StudyPlan

    def table(self, found: Any) -> Table:
        from llmfair.audits.listwise.sweep_table import study_table

        return study_table(found)

    def plots(self, found: Any, declared: Mapping[str, Mapping[str, Any]]) -> Iterator[Plot]:
        from llmfair.audits.listwise.sweep_table import study_plots

        return study_plots(found, declared)

    def missing(self, found: Any) -> list[str]:
        """Settings without results, and why."""
        return [f"{one.setting}: {one.message}" for one in found.failed]

    def lines(self, document: Mapping[str, Any]) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
        from llmfair.audits.listwise.sweep import LINE, study_lines

        return LINE, study_lines(document)
