"""Retrieval-augmented generation: lists drawn from a retriever's scores, and what a generator makes of them.

After Kim and Diaz, "Towards Fair RAG", ICTIR 2025: do equally useful items get an equal chance to be read and credited,
and what does a fairer retriever cost in answers?
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from llmfair.audits.kind import HELP, Help, Kind, called, named
from llmfair.audits.rag.settings import RagSettings
from llmfair.registry import register


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

    def before(self, planned: Mapping[str, Any]) -> str:
        return f"{super().before(planned)}\n{planned['fewest']}"

    design = called("audits.rag.design:make_rag_design")
    rendered = called("audits.rag.design:rendered")
    results = named("audits.rag.results:RagResults")
    verdict = called("audits.rag.words:rag_verdict")
    table = called("audits.rag.words:rag_table")
    section = called("audits.rag.words:rag_section")
    words = named("audits.rag.words:WORDS")
    group_plots = called("audits.rag.words:group_plots")
    group_tables = called("audits.rag.words:group_tables")
    concluded = called("audits.rag.words:conclusion")
    what_was_shown = called("audits.rag.words:what_was_shown")
    how_ended = called("audits.rag.words:how_ended")
    reads = named("metrics.expected:Retrieved")
    observations = called("audits.rag.measure:read_observations")
    score = called("audits.rag.measure:score_rag")
    score_log = called("audits.rag.measure:score_log")
    changes = called("audits.rag.measure:rag_changes")
    described = called("audits.rag.measure:described_labels")
    compared_notes = called("audits.rag.measure:labels_notes")


RAG = register("audit", "rag")(Rag())
