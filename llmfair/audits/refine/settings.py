"""What can be set of an audit of query refinement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from llmfair.errors import UsageError
from llmfair.settings.commands import AuditSettings
from llmfair.settings.declaration import DATA, IMPORTS, MODEL, PROMPT, SENT, STATISTICS, Form, PromptSettings

BASELINE = "bm25"
"""The page of the original query: every run has it."""
GREEDY, NAME, NAME_ALONE = "greedy", "name", "fake:name"
"""The control of every run, and the one that is the loop itself, with its spec."""
REFINED, FAIR_QR = "refined", "fair-qr"
METHODS = {BASELINE: "no", REFINED: "yes", FAIR_QR: "yes"}
"""The methods of every run, and whether they are told at run time what their figures are measured against."""
HEAVIEST = 1000
"""Scores are single precision: a weight far beyond would leave no digit of the query's own part."""


def _searches(engine: str) -> None:
    if engine == "ray":
        raise ValueError(engine)


INDEX = Form(_searches, "what searches: tantivy or an index of a server (--ray-workers N for models on Ray)")


@dataclass(frozen=True, kw_only=True)
class RefineSettings(PromptSettings, AuditSettings):
    """FAIR-QR: queries refined until the groups on the first page meet a target."""

    preset_meaning: ClassVar[str] = (
        "paper: no stems, no stop words, the appendix's prompt alone, unknown asked for, temperature 0.3, a threshold "
        "of 1e-6."
    )

    dataset: str = DATA("refine-sample", "Dataset id, or a folder of your own.", short="-d", result=False)
    model: tuple[str, ...] = MODEL(
        ("fake:refiner",),
        "Who writes keywords: openai:NAME, hf:NAME, vllm:NAME, fake:refiner, fake:name (the group's name alone); "
        "repeatable, one run each.", short="-m", effect=IMPORTS, result=False, advanced=False,
    )  # fmt: skip
    prompt: str | None = PROMPT(
        None, "Prompt template of your own, a TOML file (default: refine).", result=False
    )
    form: Literal["json", "paper"] = PROMPT(
        "json", "How a reply is asked for: json, or nothing said of it, as in the paper's prompt."
    )
    baseline: tuple[str, ...] = DATA(
        (BASELINE,),
        "What refinement is held against beside bm25 and greedy: fake:name (the group's name for keywords), mmr, "
        "fair-star:p=0.3, deltr, dlf-like, sbert or any other ranker; ALIAS=RANKER names it otherwise; all: those of "
        "the paper; repeatable.", result=False,
    )  # fmt: skip
    depth: int = DATA(
        1000, "How many documents the original query finds, of which baselines order the first.", least=1,
        most=1_000_000, result=False, advanced=True,
    )  # fmt: skip
    query_text: Literal["keywords", "title"] = DATA(
        "keywords", "What is searched of a topic: its keywords, where it has any (keywords.jsonl), or its title.",
        result=False,
    )  # fmt: skip
    analyzer: Literal["english", "standard"] = DATA(
        "english", "How text becomes terms: english cuts endings, standard leaves words whole.", advanced=True
    )
    engine: str = DATA(
        "tantivy",
        "Who searches: tantivy, on this machine, or an index of a server: elasticsearch:INDEX, opensearch:INDEX.",
        result=False, advanced=True, form=INDEX,
    )  # fmt: skip
    engine_url: str | None = DATA(
        None, "The server's address; its key is in LLMFAIR_SEARCH_API_KEY, or in LLMFAIR_SEARCH_USER and _PASSWORD.",
        effect=SENT, result=False, advanced=True,
    )  # fmt: skip
    engine_fields: str | None = DATA(
        None,
        "Fields that are searched of an index that llmfair did not fill, comma-separated, each by its own analyzer.",
        result=False, advanced=True,
    )  # fmt: skip
    objective: str = STATISTICS(
        "KL@20", "The measure of one page that the loop improves; its cutoff is the length of the page.", result=True,
    )  # fmt: skip
    target: str = STATISTICS(
        "empirical",
        "The groups' shares aimed at: empirical (those of the relevant documents), trec2021, trec2022, uniform, or a "
        "file as in ./shares.json; of all measures that name none.", result=True,
    )  # fmt: skip
    max_iterations: int = DATA(5, "Rounds of refinement, at most.", least=0, most=1_000)
    keep: Literal["added", "last"] = DATA(
        "added", "Words accumulate (added), or each round's replace those before (last)."
    )
    allow_unknown: bool = DATA(
        False,
        "A round may ask for documents of unknown group where they are furthest below the target, as the paper's does.",
        advanced=True,
    )
    rerank: str = DATA(
        "bm25",
        "Who orders the last page by the original query: bm25, a ranker such as sbert or dense:NAME, or none.",
    )
    weight: float = DATA(
        1.0, "What an added word counts beside one of the query.", advanced=True, least=1 / HEAVIEST, most=HEAVIEST,
    )  # fmt: skip
    kl_threshold: float = STATISTICS(
        0.0, "How far from the best that a page can have the loop is content, in units of the objective.", least=0,
        result=True, advanced=True,
    )  # fmt: skip
    floor: bool = STATISTICS(
        True, "Stop at the least divergence that a page of whole documents can have, not only at none.", result=True,
        advanced=True,
    )  # fmt: skip
    margin: float = STATISTICS(
        0.05, "Loss of nDCG that still counts as none.", advanced=True, least=0, below=1
    )
    fail_on: str | None = STATISTICS(
        None, "Verdicts that end in exit 4, comma-separated: 'no nearer', 'no nearer than without a model', "
        "'nearer at a loss', 'nearer at open cost', inconclusive, 'not assessable'.",
    )  # fmt: skip

    # Chen and Fang 2025, sections 2 and 3; the limit of 5 and the objective are the defaults
    presets = {
        "paper": {
            "analyzer": "standard",
            "form": "paper",
            "allow_unknown": True,
            "floor": False,
            "temperature": 0.3,
            "kl_threshold": 1e-6,
        }
    }
    preset_options = {}

    absent = {"contrast", "min_group", "adjust"}
    idle = absent | {
        "candidates", "buckets", "relevant", "min_relevant", "seed", "band", "ci", "input", "words", "constrain",
        "mixed", "batch", "permutations",
    }  # fmt: skip

    def check(self) -> None:
        super().check()
        if self.batch:
            raise UsageError(
                "--batch asks all at once, but a round of refinement needs the one before it.",
                "leave it out: topics are asked side by side",
            )
