"""Query refinement: keywords from a language model bring the groups on a search's first page nearer a target.

After Chen and Fang, "FAIR-QR: Enhancing Fairness-aware Information Retrieval through Query Refinement" (arXiv
2503.21092): is the page fairer, what does it cost in relevance, and which words did it?
"""

from __future__ import annotations

from typing import ClassVar

from llmfair.audits.kind import Help, Kind
from llmfair.audits.refine.settings import RefineSettings
from llmfair.registry import later, register


class Refine(Kind):
    name = "refine"
    helps: ClassVar = {
        "": Help(
            "Queries refined by a model until the groups on the page meet a target: is it nearer, and at what cost?",
            (
                "llmfair refine -m openai:gpt-4o-mini --dry-run",
                "llmfair refine -d my-folder -a gender -m openai:any --base-url http://127.0.0.1:8000/v1",
            ),
        )
    }
    settings = RefineSettings
    question = "round"

    design = later("llmfair.audits.refine.design:make_refine_design")
    results = later("llmfair.audits.refine.results:RefineResults")
    measure = later("llmfair.audits.refine.measure:MEASURING")
    words = later("llmfair.audits.refine.words:WORDS")


REFINE = register("audit", "refine")(Refine())
