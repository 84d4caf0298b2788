"""A collection of TREC Fair whose pages have words to search: files beside, ready for `datasets fetch --index`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.datasets.trec_sources import Sources, article_2022, labels_of, lines, metadata_2022, topic_2022

NAME = "trec-fair/2022/eval"
FETCH = (
    f"llmfair datasets fetch {NAME} --topics https://trec.nist.gov/data/fair/trec_2022_eval_reldocs.jsonl.gz"
)
"""What advice names: NIST alone publishes the topics."""


@dataclass(frozen=True)
class Made:
    """Pages by id, and the topics' relevant ones."""

    texts: dict[int, str]
    relevant: list[list[int]]

    @property
    def topics(self) -> list[dict[str, Any]]:
        return [
            topic_2022(100 + k, f"w{k} w{k + 1}", pages) | {"keywords": [f"w{k}", f"w{k + 3}", f"w{2 * k}"]}
            for k, pages in enumerate(self.relevant)
        ]

    def articles(self) -> Iterator[dict[str, Any]]:
        for page_id, text in self.texts.items():
            yield article_2022(page_id, f"Page {page_id}", text)
        first = next(iter(self.texts))
        yield article_2022(first, "Page again", "another text of an id that was there")

    def sources(self) -> Sources:
        """As ir_datasets' list of downloads names them."""
        labelled = (page_id for page_id in self.texts if page_id % 3)
        return {
            "2022/train/topics": lines(self.topics, pack=False),
            "2022/metadata": lines(metadata_2022(page_id, *labels_of(page_id)) for page_id in labelled),
            "2022/docs": lines(self.articles()),
        }

    def copies(self, folder: Path) -> list[str]:
        """The sources as files, and the flags that name them."""
        flags = []
        for flag, (key, content) in zip(
            ("--topics", "--metadata", "--corpus"), self.sources().items(), strict=True
        ):
            path = folder / key.replace("/", "-")
            path.write_bytes(content)
            flags += [flag, str(path)]
        return flags


def made(pages: int, seed: int = 0, words: int = 40) -> Made:
    """Pages that say `he` or `she` as their labels do, beside words that differ from page to page."""
    chance = random.Random(seed)
    ids = sorted(chance.sample(range(1, 1_000_000), pages))
    pronouns = {"female": "she her ", "male": "he his "}

    def text(page_id: int) -> str:
        gender = labels_of(page_id)[0]
        said = pronouns[gender[0]] if gender and page_id % 3 else ""
        return said + " ".join(f"w{chance.randrange(20 + page_id % 300)}" for _ in range(words))

    relevant = [[page_id for page_id in ids if chance.random() < 0.2] for _ in range(6)]
    return Made({page_id: text(page_id) for page_id in ids}, relevant)
