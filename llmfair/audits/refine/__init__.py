"""Query refinement: keywords from a language model bring the groups on a search's first page nearer a target.

After Chen and Fang, "FAIR-QR: Enhancing Fairness-aware Information Retrieval through Query Refinement" (arXiv
2503.21092): is the page fairer, what does it cost in relevance, and which words did it?
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from llmfair.audits.kind import HELP, Help, Kind
from llmfair.audits.refine.settings import RefineSettings
from llmfair.registry import register

if TYPE_CHECKING:
    from llmfair.audits.comparing import ComparedRun
    from llmfair.audits.documents import ChangeRow
    from llmfair.audits.refine.making import RefineAudit
    from llmfair.audits.refine.results import RefineResults
    from llmfair.audits.run_files import Announce
    from llmfair.audits.scoring import RemeasuredRun
    from llmfair.audits.subject import Subject
    from llmfair.audits.verdict import Conclusions
    from llmfair.metrics.base import Judged, Measure, Observation
    from llmfair.nouns import Chat
    from llmfair.report.exhibits import Declared, Exhibits
    from llmfair.report.groups import Group
    from llmfair.report.plots.base import Plot
    from llmfair.report.section import Section
    from llmfair.report.tables import Table
    from llmfair.results import Band, Figure, RunVerdict, Words
    from llmfair.rundir import RunDir
    from llmfair.settings import ScoreSettings


class Refine(Kind):
    name = "refine"
    title = "Query refinement"
    helps: ClassVar = {
        "": Help(
            "Queries refined by a model until the groups on the page meet a target: is it nearer, and at what cost?",
            (
                "llmfair refine -m openai:gpt-4o-mini --dry-run",
                "llmfair refine -d my-folder -a gender -m openai:any --base-url http://127.0.0.1:8000/v1",
            ),
        ),
        "plan": Help(
            HELP["plan"].format(name="refine"),
            (
                "llmfair plan refine -m openai:gpt-4o-mini --price-in 0.15 --price-out 0.6",
                "llmfair plan refine -a location --max-iterations 3",
            ),
        ),
        "render": Help(
            HELP["render"].format(name="refine", question="query's first round"),
            ("llmfair prompts render refine", "llmfair prompts render refine --form paper"),
        ),
    }
    settings = RefineSettings
    unit = "topics"
    question = "round"
    condition = "method"
    statuses = ("no nearer", "not assessable", "inconclusive", "nearer at a loss", "nearer")
    numbered = "Which query, of those that have a first round."
    agree: ClassVar = {
        "objective": ("improve different measures", "run both with the same --objective"),
        "target": ("aim at different targets", "run both with the same --target"),
        "analyzer": ("search in different terms", "run both with the same --analyzer"),
    }
    gated = ("fair-qr",)
    of_conditions = ("baselines",)

    def design(self, settings: RefineSettings, subject: Subject | None = None) -> RefineAudit:
        from llmfair.audits.design import NOBODY
        from llmfair.audits.refine.making import make_refine_design

        return make_refine_design(settings, subject or NOBODY)

    def before(self, planned: Mapping[str, Any]) -> str:
        return f"at most {super().before(planned)}"

    def rendered(self, settings: RefineSettings) -> Iterator[Chat]:
        for program in self.design(settings).programs():
            yield from next(program.start(), ())

    def results(self) -> type[RefineResults]:
        from llmfair.audits.refine.results import RefineResults

        return RefineResults

    def verdict(self, found: Conclusions) -> RunVerdict:
        from llmfair.audits.refine.words import refine_verdict

        return refine_verdict(found)

    def table(self, results: Any) -> Table:
        from llmfair.audits.refine.words import refine_table

        return refine_table(results, self.title, self.condition)

    def section(self, results: Any, folder: Path, exhibits: Exhibits) -> Section:
        from llmfair.audits.refine.words import refine_section

        return refine_section(results, folder, self.title, self.condition)

    def group_plots(self, group: Group, declared: Declared, number: int) -> Iterator[Plot]:
        from llmfair.audits.refine.words import group_plots

        return group_plots(group, number)

    def group_tables(self, group: Group) -> Iterator[Table]:
        from llmfair.audits.refine.words import group_tables

        return group_tables(group)

    def words(self) -> Sequence[str]:
        from llmfair.audits.refine.words import WORDS

        return WORDS

    def what_was_shown(self, about: Mapping[str, Any]) -> str:
        return f"round {about['iteration']}, for {about['subgroup']}"

    def how_ended(self, row: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
        """How the reply was read."""
        from llmfair.asking.journal import completion_of
        from llmfair.rankers.fair_qr import read_keywords

        plain = settings.get("form") == "paper"
        return str(read_keywords(completion_of(row), row["about"]["query"], plain).reply_class)

    def trail(self, run: RunDir, query_id: str | None) -> Iterator[str]:
        from llmfair.audits.kind import results_of
        from llmfair.audits.refine.files import read_trail, trail_text

        return trail_text(read_trail(run.path, query_id), results_of(run).design.objective)

    def reads(self) -> type[Judged]:
        from llmfair.metrics.base import Judged

        return Judged

    def observations(self, run: RunDir) -> Mapping[str, Sequence[Observation]]:
        from llmfair.audits.kind import results_of
        from llmfair.audits.refine.files import read_observations

        return read_observations(run, results_of(run))

    def score(self, run: RunDir, settings: ScoreSettings, announce: Announce) -> RemeasuredRun:
        from llmfair.audits.refine.score import score_refine

        return score_refine(run, settings, announce)

    def changes(
        self, base: ComparedRun, other: ComparedRun, chosen: Sequence[Measure] | None
    ) -> Iterator[ChangeRow]:
        """Of the refined pages alone: the original query's are the same. The objective is the headline."""
        from msgspec.structs import replace

        from llmfair.audits.comparing import changes_by_query

        for row in changes_by_query(base, other, chosen, self.condition):
            if row.condition in self.gated:
                yield replace(row, headline=row.measure == base.results.design.objective)

    def concluded(self, finding: Any, row: Figure | None, level: float, band: Band, words: Words) -> str:
        said = {True: "nearer at a loss" if finding.loss else "nearer", False: "no nearer"}
        if finding.conclusion == "inconclusive":
            return "inconclusive"
        return said.get(finding.nearer) or super().concluded(finding, row, level, band, words)


REFINE = register("audit", "refine")(Refine())
