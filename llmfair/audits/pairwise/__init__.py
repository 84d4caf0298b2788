"""The pairwise audit: a model is asked which of two items comes first, in both orders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from llmfair.audits.kind import Help, Kind
from llmfair.audits.pairwise.settings import (
    CalibratePairwiseSettings,
    PairwiseSettings,
    PlanPairwiseSettings,
)
from llmfair.registry import register
from llmfair.settings import injected_of

if TYPE_CHECKING:
    from llmfair.audits.comparing import ComparedRun
    from llmfair.audits.documents import ChangeRow, ComparisonRun
    from llmfair.audits.pairwise.design import PairwiseDesign
    from llmfair.audits.pairwise.results import PairwiseResults
    from llmfair.audits.run_files import Announce
    from llmfair.audits.scoring import RemeasuredRun
    from llmfair.audits.subject import Subject
    from llmfair.audits.verdict import Conclusions
    from llmfair.metrics.base import Measure
    from llmfair.metrics.pairs import JudgedPairs
    from llmfair.nouns import Chat
    from llmfair.report.exhibits import Declared, Exhibits
    from llmfair.report.groups import Group
    from llmfair.report.plots.base import Plot
    from llmfair.report.section import Section
    from llmfair.report.tables import Table
    from llmfair.results import Band, Figure, RunVerdict, Undefined, Words
    from llmfair.rundir import RunDir
    from llmfair.settings import ScoreSettings


class Pairwise(Kind):
    name = "pairwise"
    title = "Pairwise audit"
    of_conditions = ("conditions",)
    helps: ClassVar = {
        "": Help(
            "Who wins between a protected and an unprotected item, asked in both orders.",
            (
                "llmfair pairwise -m openai:gpt-4o-mini --pairs 20",
                "llmfair pairwise -d my-folder -m openai:any --base-url http://127.0.0.1:8000/v1 --sequential",
            ),
        ),
        "plan": Help(
            "What `llmfair pairwise` with these flags would ask, cost and find; nothing is asked.",
            (
                "llmfair plan pairwise --ratio 0.9",
                "llmfair plan pairwise -m openai:gpt-4o-mini --icc 0.1 --price-in 0.15 --price-out 0.6",
            ),
        ),
        "render": Help(
            "Exactly the messages that `llmfair pairwise` with these flags sends for one of its questions.",
            (
                "llmfair prompts render pairwise --queries physics",
                "llmfair prompts render pairwise --form letter --number 2",
            ),
        ),
        "calibrate": Help(
            "Simulated pairwise audits of your own pairs: recovery, coverage, false-positive rate, smallest odds "
            "found.\n\nNo model is asked.",
            (
                "llmfair calibrate pairwise",
                "llmfair calibrate pairwise -d my-folder --pairs 20 --injected -0.5,0.5 --position 2 --query-sd 0.5",
            ),
        ),
    }
    settings = PairwiseSettings

    def design(self, settings: PairwiseSettings, subject: Subject | None = None) -> PairwiseDesign:
        from llmfair.audits.design import NOBODY
        from llmfair.audits.pairwise.design import make_pair_design

        return make_pair_design(settings, subject or NOBODY)

    plan_settings = PlanPairwiseSettings

    def before(self, planned: Mapping[str, Any]) -> str:
        from llmfair.audits.pairwise.words import before_text

        return before_text(planned)

    def plan_table(self, planned: Mapping[str, Any]) -> Table:
        from llmfair.audits.pairwise.words import plan_pairs_table

        return plan_pairs_table(planned)

    def plan_text(self, planned: Mapping[str, Any]) -> str:
        from llmfair.audits.pairwise.words import plan_pairs_text

        return plan_pairs_text(planned)

    numbered = "Which question: each pair has two, one for either order."

    def rendered(self, settings: PairwiseSettings) -> Iterator[Chat]:
        """Both questions of every pair."""
        design = self.design(settings)
        for probe in design.probes():
            yield from design.ranker.chats(probe)

    calibrated = CalibratePairwiseSettings

    def calibration(self, settings: CalibratePairwiseSettings) -> int:
        return len(settings.strata()) * len(injected_of(settings.injected)) * settings.runs

    def calibrate(self, settings: CalibratePairwiseSettings, advance: Callable[[], None]) -> dict[str, Any]:
        from llmfair.audits.pairwise.calibrate import calibrate_pairwise

        return calibrate_pairwise(settings, advance)

    def calibration_table(self, found: Mapping[str, Any]) -> Table:
        from llmfair.audits.pairwise.words import calibrate_pairs_table

        return calibrate_pairs_table(found)

    def results(self) -> type[PairwiseResults]:
        from llmfair.audits.pairwise.results import PairwiseResults

        return PairwiseResults

    def documents(self) -> Mapping[str, Any]:
        from llmfair.audits.pairwise.calibrate import PairwiseCalibration
        from llmfair.audits.pairwise.plan import PairwisePlan

        return {"plan": PairwisePlan, "calibrate": PairwiseCalibration}

    # Reported

    def verdict(self, found: Conclusions) -> RunVerdict:
        from llmfair.audits.pairwise.words import PairWords

        return PairWords().verdict(found)

    def table(self, results: Any) -> Table:
        from llmfair.audits.pairwise.words import pairwise_table

        return pairwise_table(results)

    def words(self) -> Sequence[str]:
        from llmfair.audits.pairwise.words import WORDS

        return WORDS

    def section(self, results: Any, folder: Path, exhibits: Exhibits) -> Section:
        from llmfair.audits.pairwise.words import pairwise_section

        return pairwise_section(results, folder, exhibits)

    def group_plots(self, group: Group, declared: Declared, number: int) -> Iterator[Plot]:
        from llmfair.audits.pairwise.words import group_plots

        yield from group_plots(group, number)
        yield from super().group_plots(group, declared, number)

    def how_ended(self, row: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
        from llmfair.asking.journal import completion_of
        from llmfair.rankers.answers import AnswerClass
        from llmfair.rankers.pairwise import read_answer

        choice = read_answer(completion_of(row), settings["form"], settings["answers"])
        return str(choice.problem or AnswerClass.OK)

    def what_was_shown(self, about: Mapping[str, Any]) -> str:
        """Which side's item came first."""
        return f"{about['sides'][0]} first"

    # Measured again and compared

    condition = "pairs"
    agree: ClassVar = {
        "form": ("asked in different forms", "run both with the same --form"),
        "answers": ("were read in different ways", "run both with the same --answers"),
        "grades": ("pair items of other relevance grades", "run both with the same --grades"),
        "weights": ("weigh pairs differently", "run both with the same --weights; the answers serve again"),
    }
    how_changed = (
        "change: of the figures of all queries (× for ratios); t over the clusters of both runs together"
    )

    def reads(self) -> type[JudgedPairs]:
        from llmfair.metrics.pairs import JudgedPairs

        return JudgedPairs

    def score(self, run: RunDir, settings: ScoreSettings, announce: Announce) -> RemeasuredRun:
        from llmfair.audits.pairwise.score import score_pairs

        return score_pairs(run, settings, announce)

    def concluded(self, finding: Any, row: Figure | None, level: float, band: Band, words: Words) -> str:
        from llmfair.audits.pairwise.words import pair_conclusion

        return pair_conclusion(finding, row, level, band, words)

    def without_value(self, undefined: Undefined) -> Iterator[tuple[str, str]]:
        """Nothing: single queries alone lack figures, and those of all count their pairs."""
        return iter(())

    def changes(
        self, base: ComparedRun, other: ComparedRun, chosen: Sequence[Measure] | None
    ) -> Iterator[ChangeRow]:
        from llmfair.audits.pairwise.measure import pair_changes

        return pair_changes(base, other, chosen)

    def described(self, run: ComparedRun, base: ComparedRun) -> dict[str, Any]:
        from llmfair.audits.pairwise.measure import described_pairs

        return described_pairs(run, base)

    def compared_on(self, base: ComparisonRun, run: ComparisonRun) -> tuple[str, str] | None:
        from llmfair.report.tables import count

        common, pairs = run.own["pairs_in_common"], (base.own["pairs"], run.own["pairs"])
        if common == max(pairs):
            return None
        return "pairs", f"{count(common, 'answered pair')} in common, of {pairs[0]:,} and {pairs[1]:,}"

    def compared_notes(self, runs: Sequence[ComparisonRun]) -> list[str]:
        stopped = "an audit that stopped when settled: its figures are not adjusted for stopping"
        return [stopped] if any(run.own["sequential"] for run in runs) else []


PAIRWISE = register("audit", "pairwise")(Pairwise())
