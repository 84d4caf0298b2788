"""What can be set of an audit of query refinement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from llmfair.errors import UsageError
from llmfair.settings import AuditSettings, PromptSettings, setting
from llmfair.settings.base import IMPORTS, SENT

BASELINE = "bm25"
"""The page of the original query: every run has it."""
HEAVIEST = 1000
"""Scores are single precision: a weight far beyond would leave no digit of the query's own part."""


@dataclass(frozen=True, kw_only=True)
class RefineSettings(PromptSettings, AuditSettings):
    """FAIR-QR: queries refined until the groups on the first page meet a target."""

    preset_meaning: ClassVar[str] = (
        "paper: no stems, no stop words, the appendix's prompt alone, unknown asked for, temperature 0.3, a threshold "
        "of 1e-6."
    )

    dataset: str = setting(
        "refine-sample", "Dataset id, or a folder of your own.", "Data", flags=("-d",), result=False
    )
    model: tuple[str, ...] = setting(
        ("fake:refiner",),
        "Who writes keywords: openai:NAME, hf:NAME, vllm:NAME, fake:refiner, fake:name (the group's name alone); "
        "repeatable, one run each.",
        "Model",
        flags=("-m",),
        result=False,
        effect=IMPORTS,
    )
    prompt: str | None = setting(
        None, "Prompt template of your own, a TOML file (default: refine).", "Prompt", result=False
    )
    form: Literal["json", "paper"] = setting(
        "json", "How a reply is asked for: json, or nothing said of it, as in the paper's prompt.", "Prompt"
    )
    baseline: tuple[str, ...] = setting(
        (BASELINE,),
        "What refinement is held against beside bm25: mmr, fair-star:p=0.3, greedy, deltr, dlf-like, sbert or any "
        "other ranker; ALIAS=RANKER names it otherwise; all: those of the paper; repeatable.",
        "Data",
        result=False,
    )
    depth: int = setting(
        1000,
        "How many documents the original query finds, of which baselines order the first.",
        "Data",
        result=False,
        advanced=True,
        least=1,
        most=1_000_000,
    )
    query_text: Literal["keywords", "title"] = setting(
        "keywords",
        "What is searched of a topic: its keywords, where it has any (keywords.jsonl), or its title.",
        "Data",
        result=False,
    )
    analyzer: Literal["english", "standard"] = setting(
        "english",
        "How text becomes terms: english cuts endings, standard leaves words whole.",
        "Data",
        advanced=True,
    )
    engine: str = setting(
        "tantivy",
        "Who searches: tantivy, on this machine, or an index of a server: elasticsearch:INDEX, opensearch:INDEX.",
        "Data",
        result=False,
        advanced=True,
    )
    engine_url: str | None = setting(
        None,
        "The server's address; its key is in LLMFAIR_SEARCH_API_KEY, or in LLMFAIR_SEARCH_USER and _PASSWORD.",
        "Data",
        result=False,
        advanced=True,
        effect=SENT,
    )
    engine_fields: str | None = setting(
        None,
        "Fields that are searched of an index that llmfair did not fill, comma-separated, each by its own analyzer.",
        "Data",
        result=False,
        advanced=True,
    )
    objective: str = setting(
        "KL@20",
        "The measure of one page that the loop improves; its cutoff is the length of the page.",
        "Statistics",
    )
    target: str = setting(
        "empirical",
        "The groups' shares aimed at: empirical (those of the relevant documents), trec2021, trec2022, uniform, or a "
        "file as in ./shares.json; of all measures that name none.",
        "Statistics",
    )
    max_iterations: int = setting(5, "Rounds of refinement, at most.", "Data", least=0, most=1_000)
    keep: Literal["added", "last"] = setting(
        "added", "Words accumulate (added), or each round's replace those before (last).", "Data"
    )
    allow_unknown: bool = setting(
        False,
        "A round may ask for documents of unknown group where they are furthest below the target, as the paper's does.",
        "Data",
        advanced=True,
    )
    rerank: str = setting(
        "bm25",
        "Who orders the last page by the original query: bm25, a ranker such as sbert or dense:NAME, or none.",
        "Data",
    )
    weight: float = setting(1.0, "What an added word counts beside one of the query.", "Data", advanced=True)
    kl_threshold: float = setting(
        0.0,
        "How far from the best that a page can have the loop is content, in units of the objective.",
        "Statistics",
        advanced=True,
        least=0,
    )
    floor: bool = setting(
        True,
        "Stop at the least divergence that a page of whole documents can have, not only at none.",
        "Statistics",
        advanced=True,
    )
    fail_on: str | None = setting(
        None,
        "Verdicts that end in exit 4, comma-separated: 'no nearer', 'nearer at a loss', inconclusive, "
        "'not assessable'.",
        "Statistics",
        result=False,
    )

    @classmethod
    def presets(cls) -> Mapping[str, Mapping[str, Any]]:
        # Chen and Fang 2025, sections 2 and 3; the limit of 5 and the objective are the defaults
        return {
            "paper": {
                "analyzer": "standard",
                "form": "paper",
                "allow_unknown": True,
                "temperature": 0.3,
                "kl_threshold": 1e-6,
                "floor": False,
            }
        }

    @classmethod
    def preset_options(cls) -> Mapping[str, Mapping[str, Any]]:
        return {}

    @classmethod
    def idle(cls) -> frozenset[str]:
        drawn = {"candidates", "buckets", "relevant", "min_relevant", "seed"}
        return super().idle() | drawn | {"band", "ci", "input", "words", "constrain", "mixed", "batch"}

    def check(self) -> None:
        super().check()
        if not 1 / HEAVIEST <= self.weight <= HEAVIEST:
            raise UsageError(
                f"--weight is {self.weight}, but lies between {1 / HEAVIEST:g} and {HEAVIEST}.",
                "1: as a word of the query",
            )
        if self.batch:
            raise UsageError(
                "--batch asks all at once, but a round of refinement needs the one before it.",
                "leave it out: topics are asked side by side",
            )

    def check_engine(self) -> None:
        if self.engine == "ray":
            raise UsageError(
                "--engine names what searches here, and ray does not.", "--ray-workers N for models on Ray"
            )
