"""The bundled sample: eight topics over biographies, written by hand for this project (CC0)."""

from __future__ import annotations

from llmfair.datasets.attributes import data_folder
from llmfair.datasets.files import Folder
from llmfair.registry import register


@register("dataset", "sample")
def sample() -> Folder:
    """Eight topics, forty candidates each, both genders and both regions among relevant and irrelevant."""
    return Folder(data_folder() / "sample", name="sample", prompt="wikiproject")
