"""Tables of the Hugging Face hub, or of a folder as the datasets package reads it: `hf:ORG/NAME[:split]`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from llmfair.datasets.files import ATTRIBUTES
from llmfair.datasets.own import Given
from llmfair.datasets.rows import Row
from llmfair.datasets.tables import Table
from llmfair.errors import MissingExtra, UsageError, line_of
from llmfair.io import files
from llmfair.io.trec import Problems

PREFIX = "hf:"


def hub_table(name: str, given: Given) -> Table:
    """A dataset of the hub by its name with the prefix; of several splits one has to be named."""
    source, _, split = name.removeprefix(PREFIX).partition(":")
    if not source:
        raise UsageError(f"'{name}' names no dataset.", "hf:ORG/NAME, or hf:ORG/NAME:split")

    def rows(problems: Problems, wanted: Collection[str]) -> Iterator[Row]:
        yield from enumerate(_split(name, source, split), start=1)

    return Table(name, Path(name), rows, given, files.stored(Path(ATTRIBUTES)))


@files.usual()
def _split(name: str, source: str, split: str) -> Any:
    """The rows of one split. Raises MissingExtra, and UsageError for what there is not."""
    try:
        from datasets import load_dataset
    except ImportError:
        raise MissingExtra("the datasets package is not installed.", "pip install 'llmfair[hub]'") from None
    try:
        found = load_dataset(source, split=split or None)
    except Exception as error:  # of the hub, of the network, or of the file's own form
        raise UsageError(
            f"{name}: {line_of(error)}", "hf:ORG/NAME[:split], as datasets.load_dataset takes them"
        ) from None
    if split or not hasattr(found, "keys"):
        return found
    if len(found) > 1:
        raise UsageError(
            f"{name} has several splits.", f"name one: {', '.join(f'{name}:{one}' for one in found)}"
        )
    return next(iter(found.values()))
