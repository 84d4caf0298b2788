"""Retrieval-augmented generation: lists drawn from a retriever's scores, and what a generator makes of them.

After Kim and Diaz, "Towards Fair RAG", ICTIR 2025: do equally useful items get an equal chance to be read and credited,
and what does a fairer retriever cost in answers?
"""

from __future__ import annotations

from typing import ClassVar

from llmfair.audits.kind import HELP, Help, Kind
from llmfair.audits.rag.settings import RagSettings
from llmfair.registry import later, register


class Rag(Kind):
    name = "rag"
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
            "Which question, of those for labels: the first shows no item, the others one each.",
        ),
    }
    settings = RagSettings
    question = "list"

    design = later("llmfair.audits.rag.design:make_rag_design")
    rendered = later("llmfair.audits.rag.design:rendered")
    results = later("llmfair.audits.rag.results:RagResults")
    measure = later("llmfair.audits.rag.measure:MEASURING")
    words = later("llmfair.audits.rag.words:WORDS")


RAG = register("audit", "rag")(Rag())
