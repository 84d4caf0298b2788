"""The bundled samples, written for this project (CC0): `sample`, biographies by hand, and `refine-sample`.

The latter is generated when it is loaded, of people who never lived. Each topic has documents of its usual groups,
written with most of the query's words, and as relevant ones of the others with few of them: the first page is skewed,
and what is missing stands below it. Words are in data/refine-sample.toml.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from zlib import crc32

import numpy as np

from llmfair.datasets.attributes import data_folder, read_attributes, shipped_attributes
from llmfair.datasets.files import Content, Folder, OwnData
from llmfair.nouns import Document, Query
from llmfair.registry import register

RELEVANT, OTHERS = 32, 26
"""Documents of a topic, and how many of them are relevant besides those that are not."""
USUAL_REGIONS = ("Europe", "Northern America")
UNKNOWN_SHARE, NONBINARY_SHARE, STRAY_SHARE = 0.06, 0.04, 0.12
"""Of all documents those of unknown and of nonbinary gender; and those that are as the other groups mostly are."""


@register("dataset", "sample")
def sample() -> Folder:
    """Eight topics, forty candidates each, both genders and both regions among relevant and irrelevant."""
    return Folder(data_folder() / "sample", name="sample", prompt="wikiproject")


@register("dataset", "refine-sample")
class RefineSample(OwnData):
    """Twelve topics, about 700 short articles with gender and location; relevant ones of all groups."""

    name = where = "refine-sample"

    def read(self) -> Content:
        """Each topic with all its documents."""
        words = tomllib.loads((data_folder() / "refine-sample.toml").read_text("utf-8"))
        known, content = read_attributes(shipped_attributes()), Content()
        content.attributes = [known["gender"], known["location"]]
        for topic in words["topics"]:
            query, documents, judged = _topic(topic, words)
            content.queries[query.query_id] = query
            content.documents |= {document.doc_id: document for document in documents}
            content.lists[query.query_id] = [document.doc_id for document in documents]
            content.qrels[query.query_id] = judged
        return content


def _topic(
    topic: Mapping[str, Any], words: Mapping[str, Any]
) -> tuple[Query, tuple[Document, ...], dict[str, int]]:
    """The topic's query, its documents in an order that tells nothing, and their relevance."""
    rng = np.random.default_rng([words["seed"], crc32(topic["id"].encode())])
    written = [*_relevant(topic, words, rng), *_others(topic, words, rng)]
    documents = tuple(
        Document(f"{topic['id']}-{number}", title, text, groups)
        for number, (title, text, groups) in enumerate(written)
    )
    judged = {document.doc_id: int(place < RELEVANT) for place, document in enumerate(documents)}
    order = rng.permutation(len(documents)).tolist()
    query = Query(topic["id"], " ".join(topic["keywords"]))
    return query, tuple(documents[place] for place in order), judged


Written = tuple[str, str, dict[str, tuple[str, ...]]]


def _relevant(
    topic: Mapping[str, Any], words: Mapping[str, Any], rng: np.random.Generator
) -> Iterator[Written]:
    """As many women and people from elsewhere as the topic says; theirs have fewer of the query's words."""
    women = _spread(topic["women"], RELEVANT, rng)
    abroad = _spread(topic["abroad"], RELEVANT, rng)
    most = len(topic["keywords"])
    for woman, elsewhere in zip(women, abroad, strict=True):
        missing = int(woman) + int(elsewhere)
        held = max(1, most - missing - int(rng.integers(0, 2)) + int(rng.random() < STRAY_SHARE))
        yield _article(topic, words, bool(woman), bool(elsewhere), min(held, most), rng)


def _others(
    topic: Mapping[str, Any], words: Mapping[str, Any], rng: np.random.Generator
) -> Iterator[Written]:
    """Documents that mention the topic by the way: mostly of the usual groups."""
    most = len(topic["keywords"])
    for _ in range(OTHERS):
        woman, elsewhere = (rng.random() < STRAY_SHARE * 2 for _ in range(2))
        held = max(1, most - 1 - int(rng.integers(0, 3)) - int(woman) - int(elsewhere))
        yield _article(topic, words, bool(woman), bool(elsewhere), held, rng)


def _spread(share: float, n: int, rng: np.random.Generator) -> list[bool]:
    """Of n, this share true, in random order."""
    held: list[bool] = rng.permutation(np.arange(n) < round(share * n)).tolist()
    return held


def _article(
    topic: Mapping[str, Any],
    words: Mapping[str, Any],
    woman: bool,
    elsewhere: bool,
    held: int,
    rng: np.random.Generator,
) -> Written:
    """Name, two sentences that hold so many of the query's words, and groups."""

    def one_of(options: Sequence[str]) -> str:
        return options[int(rng.integers(len(options)))]

    gender = "female" if woman else "male"
    if rng.random() < NONBINARY_SHARE:
        gender = "nonbinary"
    known = rng.random() >= UNKNOWN_SHARE
    regions = words["regions"]
    region = one_of([name for name in regions if (name in USUAL_REGIONS) != elsewhere])
    place = int(rng.integers(len(regions[region]["nationalities"])))
    chosen = sorted(rng.permutation(len(topic["keywords"]))[:held].tolist())
    *first, last = (topic["keywords"][at] for at in chosen)
    they, their = words["pronouns"][gender]
    sentences = words["sentences"]
    pool = sentences["nothing"] if not known else sentences["second"]
    if gender == "female" and known and rng.random() < 0.3:
        pool = sentences["women"]
    text = f"{one_of(sentences['first'])} {one_of(pool)}".format(
        nationality=regions[region]["nationalities"][place],
        place=regions[region]["places"][place],
        region=regions[region]["called"],
        role=topic["role"],
        words=f"{', '.join(first)} and {last}" if first else last,
        They=they.capitalize(),
        they=they,
        their=their,
    )
    title = f"{one_of(words['given'][gender])} {one_of(regions[region]['families'])}"
    groups: dict[str, tuple[str, ...]] = {"location": (region,)}
    if known:
        groups["gender"] = (gender,)
    return title, text[:1].upper() + text[1:], groups
