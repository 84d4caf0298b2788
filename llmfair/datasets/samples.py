"""The bundled samples, written for this project (CC0): `sample`, and `refine-sample`, whose first pages are skewed."""

from __future__ import annotations

from llmfair.datasets.attributes import data_folder
from llmfair.datasets.files import OwnData, read_folder
from llmfair.registry import register


@register("dataset", "sample")
def sample() -> OwnData:
    """Eight topics, forty candidates each, both genders and both regions among relevant and irrelevant."""
    return read_folder(data_folder() / "sample", name="sample", prompt="wikiproject")


@register("dataset", "refine-sample")
def refine_sample() -> OwnData:
    """Twelve topics, about 700 short articles with gender and location; relevant ones of all groups."""
    return read_folder(data_folder() / "refine-sample", name="refine-sample")
