"""Documents that are too many to be looked at one by one, and what is asked of documents however many they are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from llmfair.records import Document


class ManyDocuments(Mapping[str, Document]):
    """Documents by id, looked up where they are stored: nobody goes through them all."""

    @abstractmethod
    def of_each_kind(self) -> Iterable[Document]:
        """One document of every combination of groups, without its texts."""


def of_each_kind(documents: Mapping[str, Document]) -> Iterable[Document]:
    """Documents that have all the groups that there are: at least one of every combination."""
    return documents.of_each_kind() if isinstance(documents, ManyDocuments) else documents.values()


class Fill(Protocol):
    """Takes documents, in the same order each time, into the index below a folder; one that was begun is gone on with.

    `source` names them: the same for the same documents.
    """

    def __call__(self, folder: Path, documents: Iterable[Document], *, source: str) -> None: ...
