"""Retrieval-augmented generation: lists drawn from a retriever's scores, and what a generator makes of them.

After Kim and Diaz, "Towards Fair RAG", ICTIR 2025: do equally useful items get an equal chance to be read and credited,
and what does a fairer retriever cost in answers?
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from llmfair.audits.kind import HELP, Help, Kind
from llmfair.audits.rag.settings import RagSettings
from llmfair.registry import register

if TYPE_CHECKING:
    from llmfair.audits.comparing import ComparedRun
    from llmfair.audits.documents import ChangeRow, ComparisonRun
    from llmfair.audits.rag.making import RagAudit
    from llmfair.audits.rag.results import RagResults
    from llmfair.audits.run_files import Announce
    from llmfair.audits.scoring import RemeasuredRun
    from llmfair.audits.subject import Subject
    from llmfair.audits.verdict import Conclusions
    from llmfair.metrics.base import Measure, Observation
    from llmfair.metrics.expected import Retrieved
    from llmfair.nouns import Chat
    from llmfair.report.exhibits import Declared, Exhibits
    from llmfair.report.groups import Group
    from llmfair.report.plots.base import Plot
    from llmfair.report.section import Section
    from llmfair.report.tables import Table
    from llmfair.results import Band, Figure, RunVerdict, Words
    from llmfair.rundir import RunDir
    from llmfair.settings import ScoreSettings


class Rag(Kind):
    name = "rag"
    title = "Retrieval-augmented generation"
    helps: ClassVar = {
        "": Help(
            "Fair retrieval for a generator: whether useful items get an equal chance, and what that costs in answers.",
            (
                "llmfair rag -m openai:gpt-4o-mini --dry-run",
                "llmfair rag -d questions.jsonl -m openai:any --base-url http://127.0.0.1:8000/v1",
            ),
        ),
        "plan": Help(
            HELP["plan"].format(name="rag"),
            (
                "llmfair plan rag -m openai:gpt-4o-mini --price-in 0.15 --price-out 0.6",
                "llmfair plan rag --samples 100 --alpha 0,1,2,4,8",
            ),
        ),
        "render": Help(
            HELP["render"].format(name="rag", question="label or list"),
            (
                "llmfair prompts render rag",
                "llmfair prompts render rag --useful qrels -d my-folder --number 2",
            ),
        ),
    }
    settings = RagSettings
    unit = "queries"
    question = "list"
    condition = "setting"
    statuses = ("lost", "not assessable", "inconclusive", "kept")
    numbered = "Which question, of those for labels: the first shows no item, the others one each."
    limits = (
        "An equal chance is one among the items that are useful to this generator for a question, whoever made them.",
        "What a setting keeps or loses is a fact about these questions, this generator and this score of answers. It "
        "names no cause, and passes no judgement.",
    )
    agree: ClassVar = {
        "k": ("show different numbers of items", "run both with the same -k"),
        "useful": ("tell useful items in different ways", "run both with the same --useful"),
        "utility": ("score answers in different ways", "run both with the same --utility"),
        "attribution": ("credit answers in different ways", "run both with the same --attribution"),
        "hypothesis": (
            "hold answers against items in different words",
            "run both with the same --hypothesis",
        ),
    }

    def design(self, settings: RagSettings, subject: Subject | None = None) -> RagAudit:
        from llmfair.audits.design import NOBODY
        from llmfair.audits.rag.making import make_rag_design

        return make_rag_design(settings, subject or NOBODY)

    def rendered(self, settings: RagSettings) -> Iterator[Chat]:
        """The questions for labels, which need no answer to be known."""
        design = self.design(settings)
        for query in design.queries:
            asked = design.asked(query)
            shown = asked.labelled() or design.lists(query, asked.useful or frozenset())
            yield from map(asked.chat, shown)

    def results(self) -> type[RagResults]:
        from llmfair.audits.rag.results import RagResults

        return RagResults

    def verdict(self, found: Conclusions) -> RunVerdict:
        from llmfair.audits.rag.words import rag_verdict

        return rag_verdict(found)

    def table(self, results: Any) -> Table:
        from llmfair.audits.rag.words import rag_table

        return rag_table(results, self.title, self.condition)

    def section(self, results: Any, folder: Path, exhibits: Exhibits) -> Section:
        from llmfair.audits.rag.words import rag_section

        return rag_section(results, folder, self.title, self.condition)

    def words(self) -> Sequence[str]:
        from llmfair.audits.rag.words import WORDS

        return WORDS

    def what_was_shown(self, about: Mapping[str, Any]) -> str:
        """How many items, or which output beside which."""
        if about["task"] == "support":
            return f"'{about['output']}' beside {about['doc_ids'][0]}"
        return f"{len(about['doc_ids'])} items"

    def how_ended(self, row: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
        """As it says of itself, and of a judge's answer whether it can be read."""
        from llmfair.asking.journal import completion_of
        from llmfair.rankers.reader import read_support

        ended = super().how_ended(row, settings)
        if ended == "ok" and row["about"]["task"] == "support" and read_support(completion_of(row)) is None:
            return "neither yes nor no"
        return ended

    def reads(self) -> type[Retrieved]:
        from llmfair.metrics.expected import Retrieved

        return Retrieved

    def observations(self, run: RunDir) -> Mapping[str, Sequence[Observation]]:
        from llmfair.audits.kind import results_of
        from llmfair.audits.rag.files import read_observations

        return read_observations(run, results_of(run))

    def score(self, run: RunDir, settings: ScoreSettings, announce: Announce) -> RemeasuredRun:
        from llmfair.audits.rag.score import score_rag

        return score_rag(run, settings, announce)

    def changes(
        self, base: ComparedRun, other: ComparedRun, chosen: Sequence[Measure] | None
    ) -> Iterator[ChangeRow]:
        from llmfair.audits.rag.outcome import rag_changes

        return rag_changes(base, other, chosen, self.condition)

    def described(self, run: ComparedRun, base: ComparedRun) -> dict[str, Any]:
        from llmfair.audits.rag.outcome import described_labels

        return described_labels(run, base)

    def compared_notes(self, runs: Sequence[ComparisonRun]) -> list[str]:
        from llmfair.audits.rag.outcome import labels_notes

        return labels_notes(runs)

    def group_plots(self, group: Group, declared: Declared, number: int) -> Iterator[Plot]:
        from llmfair.audits.rag.words import group_plots

        return group_plots(group, number)

    def group_tables(self, group: Group) -> Iterator[Table]:
        from llmfair.audits.rag.words import group_tables

        return group_tables(group)

    reads_logs = True

    def score_log(self, path: Path, settings: ScoreSettings, announce: Announce) -> RemeasuredRun:
        from llmfair.audits.rag.files import score_log

        return score_log(path, settings, announce)

    def concluded(self, finding: Any, row: Figure | None, level: float, band: Band, words: Words) -> str:
        from llmfair.audits.rag.words import SAID

        return SAID.get(finding.conclusion) or super().concluded(finding, row, level, band, words)


RAG = register("audit", "rag")(Rag())
