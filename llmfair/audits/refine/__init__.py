"""Query refinement: keywords from a language model bring the groups on a search's first page nearer a target.

After Chen and Fang, "FAIR-QR: Enhancing Fairness-aware Information Retrieval through Query Refinement" (arXiv
2503.21092): is the page fairer, what does it cost in relevance, and which words did it?
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from llmfair.audits.kind import HELP, Help, Kind, called, named
from llmfair.audits.refine.settings import RefineSettings
from llmfair.registry import register

if TYPE_CHECKING:
    from llmfair.nouns import Chat


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
    statuses = (
        "no nearer",
        "no nearer than without a model",
        "not assessable",
        "inconclusive",
        "nearer at a loss",
        "nearer at open cost",
        "nearer",
    )
    numbered = "Which query, of those that have a first round."
    agree: ClassVar = {
        "objective": ("improve different measures", "run both with the same --objective"),
        "target": ("aim at different targets", "run both with the same --target"),
        "analyzer": ("search in different terms", "run both with the same --analyzer"),
    }
    gated = ("fair-qr",)
    of_conditions = ("baselines",)

    design = called("audits.refine.design:make_refine_design")
    results = named("audits.refine.results:RefineResults")
    verdict = called("audits.refine.words:refine_verdict")
    table = called("audits.refine.words:refine_table")
    section = called("audits.refine.words:refine_section")
    words = named("audits.refine.words:WORDS")
    group_plots = called("audits.refine.words:group_plots")
    group_tables = called("audits.refine.words:group_tables")
    concluded = called("audits.refine.words:conclusion")
    how_ended = called("audits.refine.words:how_ended")
    trail = called("audits.refine.measure:trail_text")
    reads = named("metrics.base:Judged")
    observations = called("audits.refine.measure:read_observations")
    score = called("audits.refine.measure:score_refine")
    changes = called("audits.refine.measure:refine_changes")

    def before(self, planned: Mapping[str, Any]) -> str:
        return f"at most {super().before(planned)}"

    def rendered(self, settings: RefineSettings) -> Iterator[Chat]:
        for program in self.design(settings).programs():
            yield from next(program.start(), ())

    def what_was_shown(self, about: Mapping[str, Any]) -> str:
        return f"round {about['iteration']}, for {about['subgroup']}"


REFINE = register("audit", "refine")(Refine())
