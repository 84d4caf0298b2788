"""The listwise audit: a model orders lists under a neutral prompt, and under prompts that name each side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from llmfair.audits.kind import Help, Kind
from llmfair.audits.listwise.settings import CalibrateSettings, ListwiseSettings, PlanSettings
from llmfair.audits.listwise.windows import WindowsStudy
from llmfair.registry import register
from llmfair.settings import injected_of

if TYPE_CHECKING:
    from llmfair.audits.comparing import ComparedRun
    from llmfair.audits.documents import ChangeRow
    from llmfair.audits.listwise.design import ListwiseDesign
    from llmfair.audits.listwise.results import ListwiseResults
    from llmfair.audits.run_files import Announce
    from llmfair.audits.scoring import RemeasuredRun, ScoredRun
    from llmfair.audits.subject import Subject
    from llmfair.audits.verdict import Conclusions
    from llmfair.metrics.base import Judged, Measure
    from llmfair.nouns import Chat
    from llmfair.rankers.questions import Question
    from llmfair.report.exhibits import Declared, Exhibits
    from llmfair.report.groups import Group
    from llmfair.report.plots.base import Plot
    from llmfair.report.section import Section
    from llmfair.report.tables import Table
    from llmfair.results import Band, Figure, RunVerdict, Words
    from llmfair.rundir import RunDir
    from llmfair.settings import ScoreSettings


class Listwise(Kind):
    name = "listwise"
    title = "Listwise audit"
    helps: ClassVar = {
        "": Help(
            "Exposure and utility of a ranker under neutral and sensitive prompts.",
            (
                "llmfair listwise -m openai:gpt-4o-mini --dry-run",
                "llmfair listwise -d my-folder -m openai:any --base-url http://127.0.0.1:8000/v1",
            ),
        ),
        "plan": Help(
            "What `llmfair listwise` with these flags would ask, cost and find; nothing is asked.",
            (
                "llmfair plan listwise -m openai:gpt-4o-mini --price-in 0.15 --price-out 0.6",
                "llmfair plan listwise --preset paper --odds 0.9 --power 0.9",
            ),
        ),
        "render": Help(
            "Exactly the messages that `llmfair listwise` with these flags sends for one window of its first chain.",
            (
                "llmfair prompts render listwise --queries physics --conditions female",
                "llmfair prompts render listwise --window 5 --step 1 --number 2",
            ),
        ),
        "calibrate": Help(
            "Simulated listwise audits of your own lists: recovery, coverage, false-positive rate, smallest effect.\n\n"
            "No model is asked.",
            (
                "llmfair calibrate listwise",
                "llmfair calibrate listwise -d trec-fair/2022/gender --injected -0.3,0.3 --runs 500 --alike 1",
            ),
        ),
    }
    settings = ListwiseSettings
    unit = "chains"
    question = "window"
    ranks = True

    def design(self, settings: ListwiseSettings, subject: Subject | None = None) -> ListwiseDesign:
        from llmfair.audits.design import NOBODY
        from llmfair.audits.listwise.design import make_design

        return make_design(settings, subject or NOBODY)

    plan_settings = PlanSettings

    def before(self, planned: Mapping[str, Any]) -> str:
        from llmfair.audits.listwise.words import before_text

        return before_text(planned)

    def beside(self, plans: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        from llmfair.audits.listwise.plan import beside

        return beside(plans)

    def plan_table(self, planned: Mapping[str, Any]) -> Table | None:
        from llmfair.audits.listwise.plan_words import plan_table

        return plan_table(planned)

    def plan_text(self, planned: Mapping[str, Any]) -> str:
        from llmfair.audits.listwise.plan_words import plan_text

        return plan_text(planned)

    numbered = "Which window of the list, from its tail."

    def rendered(self, settings: ListwiseSettings) -> Iterator[Chat]:
        """The windows of the first chain, each in its initial order."""
        from dataclasses import replace

        from llmfair.audits.listwise.plan import first_order_chats

        return first_order_chats(self.design(replace(settings, limit=1)))

    calibrated = CalibrateSettings

    def calibration(self, settings: CalibrateSettings) -> int:
        return len(injected_of(settings.injected)) * settings.runs

    def calibrate(self, settings: CalibrateSettings, advance: Callable[[], None]) -> dict[str, Any]:
        from llmfair.audits.listwise.calibrate import calibrate

        return calibrate(settings, advance)

    def calibration_table(self, found: Mapping[str, Any]) -> Table:
        from llmfair.audits.listwise.plan_words import calibrate_table

        return calibrate_table(found)

    def results(self) -> type[ListwiseResults]:
        from llmfair.audits.listwise.results import ListwiseResults

        return ListwiseResults

    def documents(self) -> Mapping[str, Any]:
        from llmfair.audits.listwise.calibrate import ListwiseCalibration
        from llmfair.audits.listwise.plan import ListwisePlan

        return {"plan": ListwisePlan, "calibrate": ListwiseCalibration}

    # Reported

    def verdict(self, found: Conclusions) -> RunVerdict:
        from llmfair.audits.listwise.words import ListwiseWords

        return ListwiseWords(self.condition, self.titles).verdict(found)

    aside = ("repeat",)
    of_conditions = ("conditions", "repeat")
    lopsided = True
    studies = (WindowsStudy(),)

    @property
    def titles(self) -> Mapping[str, str]:
        from llmfair.audits.listwise.words import TITLES

        return TITLES

    def table(self, results: Any) -> Table:
        from llmfair.audits.listwise.words import listwise_table

        return listwise_table(results)

    def words(self) -> Sequence[str]:
        from llmfair.audits.listwise.words import WORDS

        return WORDS

    def section(self, results: Any, folder: Path, exhibits: Exhibits) -> Section:
        from llmfair.audits.listwise.words import listwise_section

        return listwise_section(results, folder, exhibits)

    def group_plots(self, group: Group, declared: Declared, number: int) -> Iterator[Plot]:
        from llmfair.audits.listwise.words import group_plots

        yield from group_plots(group, declared, number)
        yield from super().group_plots(group, declared, number)

    def group_tables(self, group: Group) -> Iterator[Table]:
        from llmfair.audits.listwise.words import group_tables

        return group_tables(group)

    def how_ended(self, row: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
        from llmfair.asking.journal import completion_of

        told = tuple(settings.get(name, usual) for name, usual in _usual_ordering().items())
        question = _question(settings.get("strategy", "windows"), told)
        return str(question.read(completion_of(row), len(row["about"]["doc_ids"]), "strict").answer_class)

    def what_was_shown(self, about: Mapping[str, Any]) -> str:
        """A window's ranks."""
        return "{}–{}".format(*about["window"])

    # Measured again and compared

    condition = "prompt"
    asked_by = ("strategy", "design", "window", "step", "passes", "windows")

    def reads(self) -> type[Judged]:
        from llmfair.metrics.base import Judged

        return Judged

    def score(self, run: RunDir, settings: ScoreSettings, announce: Announce) -> RemeasuredRun:
        from llmfair.audits.listwise.score import score_folder

        return score_folder(run, settings, announce)

    def score_files(
        self, paths: Sequence[Path], settings: ScoreSettings, announce: Announce
    ) -> Iterator[RemeasuredRun]:
        from llmfair.audits.listwise.score import score_files

        return score_files(paths, settings, announce)

    def concluded(self, finding: Any, row: Figure | None, level: float, band: Band, words: Words) -> str:
        from llmfair.audits.listwise.words import conclusion

        return conclusion(finding, row, band, level)

    def told_apart(self, settings: Mapping[str, Any], differ: Sequence[str]) -> list[str]:
        """A strategy as it is spelled, else windows as `20/10x3`; then others by name."""
        windows = ("window", "step", "passes")
        told = ["{window}/{step}x{passes}".format_map(settings)] if {*windows} & {*differ} else []
        if "strategy" in differ:  # its prompt and what is read of answers go with it
            return [str(settings.get("strategy", "windows")), *told]
        return told + super().told_apart(settings, [name for name in differ if name not in windows])

    def scored_notes(self, rows: Sequence[tuple[ScoredRun, str, str]]) -> list[str]:
        from llmfair.audits.listwise.words import OF_RANKINGS, relevance_note

        relevance = {name: run.relevance.get(condition) for run, condition, name in rows}
        of_rankings = [OF_RANKINGS] * any(run.findings for run, *_ in rows)
        return [*of_rankings, *relevance_note(relevance)]

    def changes(
        self, base: ComparedRun, other: ComparedRun, chosen: Sequence[Measure] | None
    ) -> Iterator[ChangeRow]:
        from llmfair.audits.comparing import changes_by_query

        return changes_by_query(base, other, chosen, self.condition, "run both with the same --conditions")


@cache
def _usual_ordering() -> Mapping[str, Any]:
    """What settings say by default of how a list is ordered: what the manifests of older runs leave out."""
    from llmfair.rankers.strategies import StrategyOptions

    usual = ListwiseSettings()
    return {
        item.name: getattr(usual, item.name) for item in fields(StrategyOptions) if hasattr(usual, item.name)
    }


@lru_cache
def _question(spec: str, told: tuple[Any, ...]) -> Question:
    """What a strategy asks with these settings of ordering: the same for each of a million answers."""
    from llmfair.rankers.strategies import strategy_of

    return strategy_of(spec, dict(zip(_usual_ordering(), told, strict=True))).question


LISTWISE = register("audit", "listwise")(Listwise())
