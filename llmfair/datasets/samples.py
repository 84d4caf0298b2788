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
        declared, content = read_attributes(shipped_attributes()), Content()
        content.attributes = [declared["gender"], declared["location"]]
        for topic in words["topics"]:
            name, rng = topic["id"], np.random.default_rng([words["seed"], crc32(topic["id"].encode())])
            documents = [
                Document(f"{name}-{number}", title, text, groups)
                for number, (title, text, groups) in enumerate(_articles(topic, words, rng))
            ]
            content.queries[name] = Query(name, " ".join(topic["keywords"]))
            content.qrels[name] = {of.doc_id: int(place < RELEVANT) for place, of in enumerate(documents)}
            order = rng.permutation(len(documents)).tolist()  # which tells nothing
            content.documents |= {documents[place].doc_id: documents[place] for place in order}
            content.lists[name] = [documents[place].doc_id for place in order]
        return content


Written = tuple[str, str, dict[str, tuple[str, ...]]]


def _articles(
    topic: Mapping[str, Any], words: Mapping[str, Any], rng: np.random.Generator
) -> Iterator[Written]:
    """The topic's relevant documents, then others, which mention it by the way and are mostly of the usual groups.

    Of the relevant ones as many are of women and of people from elsewhere as the topic says; theirs have fewer of the
    query's words.
    """
    most = len(topic["keywords"])
    women = _spread(topic["women"], RELEVANT, rng)
    for woman, elsewhere in zip(women, _spread(topic["abroad"], RELEVANT, rng), strict=True):
        missing = int(woman) + int(elsewhere)
        held = max(1, most - missing - int(rng.integers(0, 2)) + int(rng.random() < STRAY_SHARE))
        yield _article(topic, words, woman, elsewhere, min(held, most), rng)
    for _ in range(OTHERS):
        woman, elsewhere = (rng.random() < STRAY_SHARE * 2 for _ in range(2))
        held = max(1, most - 1 - int(rng.integers(0, 3)) - int(woman) - int(elsewhere))
        yield _article(topic, words, woman, elsewhere, held, rng)


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
    gender_known = rng.random() >= UNKNOWN_SHARE
    regions = words["regions"]
    region = one_of([name for name in regions if (name in USUAL_REGIONS) != elsewhere])
    place = int(rng.integers(len(regions[region]["nationalities"])))
    chosen = sorted(rng.permutation(len(topic["keywords"]))[:held].tolist())
    *first, last = (topic["keywords"][at] for at in chosen)
    they, their = words["pronouns"][gender]
    sentences = words["sentences"]
    pool = sentences["nothing"] if not gender_known else sentences["second"]
    if gender == "female" and gender_known and rng.random() < 0.3:
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
    if gender_known:
        groups["gender"] = (gender,)
    return title, text[:1].upper() + text[1:], groups
