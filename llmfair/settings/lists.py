"""Which lists of items are asked about: the data, what is said of them, and what a model sees of an item."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from llmfair.settings.base import MOST_NUMBERED, MOST_SEED, CommandSettings, setting


@dataclass(frozen=True, kw_only=True)
class ListSettings(CommandSettings):
    """Which lists of items are asked about, and what a model sees of an item."""

    dataset: str = setting(
        "sample",
        "Dataset id, or your own folder or table (.csv, .tsv, .jsonl, .parquet), hf:ORG/NAME, irds:NAME.",
        "Data",
        flags=("-d",),
        result=False,
    )
    columns: str | None = setting(
        None,
        "Of a table, what its columns are called: doc_id=id,gender=sex.",
        "Data",
        result=False,
        advanced=True,
    )
    attributes: str | None = setting(
        None,
        "Of a table or irds:NAME, a file that declares its attributes (default: attributes.toml beside it, else the "
        "built-in ones).",
        "Data",
        result=False,
        advanced=True,
    )
    groups: str | None = setting(
        None,
        "Of irds:NAME, the groups of its documents: lines of doc_id, attribute, group, separated by tabs.",
        "Data",
        result=False,
        advanced=True,
    )
    run: str | None = setting(
        None,
        "Of irds:NAME, a run whose rankings are the lists (default: the first 100 that BM25 finds).",
        "Data",
        result=False,
        advanced=True,
    )
    limit: int | None = setting(
        None, "Only the first N queries.", "Data", flags=("-n",), result=False, least=1, most=MOST_NUMBERED
    )
    queries: str | None = setting(
        None,
        "Only these query ids, comma-separated, or @FILE; of trec-fair/2022/eval also official, the 47 topics of "
        "the track's results.",
        "Data",
        result=False,
        advanced=True,
    )
    seed: int = setting(
        0, "Seed of orders and draws, derived per query.", "Data", advanced=True, least=0, most=MOST_SEED
    )
    # What is ranked shows in the lists, and their fingerprint names the run.
    candidates: int | None = setting(
        None, "Documents in a drawn list (default: 200).", "Data", result=False, advanced=True, most=100_000
    )
    buckets: str | None = setting(
        None,
        "Draw lists: equal (both groups alike in relevance), natural (whatever group), or four counts: unprotected and "
        "protected relevant ones, unprotected and protected others (default: a folder's own lists, else equal).",
        "Data",
        result=False,
        advanced=True,
    )
    relevant: int | None = setting(
        None,
        "Relevant documents in a drawn list (default: half).",
        "Data",
        result=False,
        advanced=True,
        most=100_000,
    )
    min_relevant: int | None = setting(
        None,
        "Leave queries out with fewer relevant documents of a group than this.",
        "Data",
        result=False,
        advanced=True,
        least=0,
        most=100_000,
    )
    allow_missing: bool = setting(
        False, "Drop judgements of documents that docs.jsonl lacks.", "Data", result=False, advanced=True
    )
    input: Literal["title", "text"] = setting("title", "What the model sees of an item.", "Data")
    words: int = setting(300, "Words kept of a longer item.", "Data", advanced=True, least=1, most=1_000_000)

    @classmethod
    def preset_options(cls) -> Mapping[str, Mapping[str, Any]]:
        # Wang et al. 2024 do not say how many of a list's 200 pages are relevant. Its Table 1 reads P@20 of about 0.125
        # where its windows change next to nothing, which is the share that 24 or 25 of 200 have; 100 would read 0.5.
        return {"few-relevant": {"candidates": 200, "relevant": 24}}

    def check(self) -> None:
        super().check()
