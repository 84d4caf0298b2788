"""Retrieval-augmented generation: lists drawn from a retriever's scores, and what a generator makes of them.

After Kim and Diaz, "Towards Fair RAG", ICTIR 2025: do equally useful items get an equal chance to be read and credited,
and what does a fairer retriever cost in answers?
"""

from __future__ import annotations

from typing import ClassVar

from llmfair.audits.kind import Help, Kind
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
        )
    }
    settings = RagSettings
    question = "label or list"

    design = later("llmfair.audits.rag.design:make_rag_design")
    results = later("llmfair.audits.rag.results:RagResults")
    measure = later("llmfair.audits.rag.measure:MEASURING")
    words = later("llmfair.audits.rag.words:WORDS")


RAG = register("audit", "rag")(Rag())
