"""What can be set of an audit of retrieval-augmented generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from llmfair.errors import UsageError
from llmfair.settings import declaration
from llmfair.settings.commands import AuditSettings
from llmfair.settings.declaration import DATA, IMPORTS, MODEL, PROMPT, SPENDING, STATISTICS, PromptSettings

LARGEST_ALPHA = 1000.0
LARGEST_K, MOST_SAMPLES = 1_000, 10_000
CITED = "cited"
DETERMINISTIC, GOLD = "deterministic", "gold"
"""The alpha of the one list by score, and who retrieves by usefulness itself."""
CHANGE, DISPARITY = "EU-change", "EE-D"
BY_GROUP = "EE(group),Useful(group)"
"""Measures: what is concluded of, what is traded for it, and those of groups."""
Utility = Literal["accuracy", "exact-match", "contains", "token-f1", "rouge-l", "rouge-l-standard", "mae"]


def alphas_of(text: str) -> Sequence[float]:
    """`1,2,4` as numbers, each once. Raises ValueError."""
    alphas = [*dict.fromkeys(float(part) for part in text.split(","))]
    if not all(0 <= alpha <= LARGEST_ALPHA for alpha in alphas):
        raise ValueError(text)
    return alphas


ALPHAS = declaration.Form(
    alphas_of, f"numbers from 0 to {LARGEST_ALPHA:g} with commas between, such as 1,2,4,8"
)


@dataclass(frozen=True, kw_only=True)
class RagSettings(PromptSettings, AuditSettings):
    """Fair retrieval for a generator: lists drawn from a retriever's scores, and what is made of them."""

    preset_meaning: ClassVar[str] = (
        "paper: bm25-okapi, splade and contriever, 100 lists a query, beams of 4 where the generator has such, at most "
        "128 tokens, entailment of bare answers, and the bounds of the paper's own code."
    )

    dataset: str = DATA(
        "rag-sample",
        "Questions with answers: rag-sample, a .jsonl file, a folder, or lamp/1 to lamp/7 with --data.",
        short="-d", result=False,
    )  # fmt: skip
    attribute: tuple[str, ...] = DATA(
        (), "Groups of items, such as source: which get more or less than the share of their useful items.", "-a",
    )  # fmt: skip
    band: str = STATISTICS(
        "0.8..1.25", "Of groups, shares near parity.", advanced=True, form=declaration.BAND
    )
    data: Path | None = DATA(
        None,
        "Folder of the files of a dataset that users bring, such as lamp/4.",
        result=False,
        advanced=True,
    )
    model: tuple[str, ...] = MODEL(
        ("fake:reader",),
        "The generator: openai:NAME, hf:NAME, vllm:NAME, fake:reader; repeatable, one run each.", short="-m",
        effect=IMPORTS, result=False, advanced=False,
    )  # fmt: skip
    prompt: str | None = PROMPT(
        None, "Prompt template of your own, a TOML file (default: the dataset's).", result=False
    )
    retriever: tuple[str, ...] = DATA(
        ("bm25",),
        "Who scores the items: bm25, bm25-okapi, dense:NAME, sparse:NAME, contriever, sbert, splade; repeatable.",
    )
    alpha: str = DATA(
        "1,2,4,8",
        "How closely lists follow the scores, comma-separated: 0 is uniform, large ones the one best list.",
        form=ALPHAS,
    )
    k: int = DATA(5, "Items that the generator is shown.", short="-k", least=1, most=LARGEST_K)
    pool: int = DATA(
        100,
        "Of a corpus that all questions share: items per question, those that the first retriever finds.",
        least=1, most=100_000, advanced=True,
    )  # fmt: skip
    samples: int = DATA(20, "Lists drawn per query, retriever and alpha.", least=1, most=MOST_SAMPLES)
    useful: str = DATA(
        "gain",
        "Which items are useful: those that alone improve the answer (gain), those judged relevant (qrels), or those "
        "that a file of labels names, in the form of Fair-RAG's.",
        result=False,
    )
    context: int | None = PROMPT(
        None,
        "Tokens that the generator reads: items are cut to fit (default: those of hf: and vllm: models, else 4096).",
        least=64, most=10_000_000, advanced=True,
    )  # fmt: skip
    utility: Utility | None = STATISTICS(None, "What an answer is worth (default: the dataset's).")
    attribution: str = STATISTICS(
        "overlap",
        "Which items an answer is credited to: overlap (those that hold it), cited (those it names), those "
        "that a model says support it (openai:NAME, nli:NAME), none; cited,MODEL: which citations hold, too.",
        effect=IMPORTS,
    )
    hypothesis: Literal["prompt", "bare"] = STATISTICS(
        "prompt",
        "What a model that judges is told an answer claims: the prompt's sentence with it, or the bare answer.",
        advanced=True,
    )
    stop_after: Literal["labels", "retrieval", "outputs"] | None = SPENDING(
        None,
        "End early: with each retriever's scores (retrieval, which asks nobody), with what is useful (labels), or "
        "before a model judges (outputs). The same command without it goes on.",
    )
    fail_on: str | None = STATISTICS(
        None, "Verdicts that end in exit 4, comma-separated: lost, inconclusive, 'not assessable'."
    )
    margin: float = STATISTICS(0.05, "Mean loss of utility that still counts as kept.", least=0)
    worst_loss: float | None = STATISTICS(
        None,
        "Largest loss of utility that a query can have, where it is less than the utility's range: fewer queries do.",
        above=0, advanced=True,
    )  # fmt: skip

    # Kim and Diaz 2025, section 4; 128 tokens and the norm are those of their code
    presets = {
        "paper": {
            "retriever": ("bm25-okapi", "splade", "contriever"),
            "samples": 100,
            "max_tokens": 128,
            "backend_arg": ("num_beams?=4",),
            "attribution": "nli:FacebookAI/roberta-large-mnli",
            "hypothesis": "bare",
            "measures": "EE-D(norm=fair-rag,of=samples),EE-R(norm=fair-rag,of=samples),EU(norm=ceiling),EAR,"
            "EAE-D(norm=fair-rag,of=samples)",
        }
    }

    absent = {"mixed", "contrast", "min_group", "adjust"}  # no two groups are compared
    idle = absent | {
        "candidates", "buckets", "relevant", "min_relevant", "allow_missing", "columns", "attributes", "groups", "run",
        "ci", "input", "words", "constrain", "permutations",
    }  # fmt: skip

    @property
    def cites(self) -> bool:
        """Whether answers name the items that they rest on."""
        return self.attribution.partition(",")[0] == CITED

    def check(self) -> None:
        super().check()
        if self.stop_after and (self.require or self.fail_on):
            gate = "--require" if self.require else "--fail-on"
            raise UsageError(
                f"--stop-after ends before there is anything for {gate} to judge.", "leave one out"
            )

    def ways(self) -> Mapping[str, Mapping[str, Any]]:
        larger = min(2 * max(self.alphas()), LARGEST_ALPHA)
        return {"alpha": {"alpha": f"{self.alpha},{larger:g}"}}

    def alphas(self) -> Sequence[float]:
        """The alphas asked for, in the order given."""
        return alphas_of(self.alpha)
