"""TREC run files that exist, the scores of their ranker where a run folder has them, and who judges them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

from llmfair.datasets.attributes import read_attributes, shipped_attributes
from llmfair.datasets.base import attribute_of
from llmfair.datasets.files import DataOptions
from llmfair.datasets.judgements import HINT, Judgements, of_dataset, of_files, read_any_run
from llmfair.errors import UsageError
from llmfair.io.files import AGAIN
from llmfair.io.trec import RunFile, read_scores
from llmfair.nouns import Attribute
from llmfair.settings.commands import JudgementSettings

Announce = Callable[[Path], None]
"""Told of every file before it is read."""
SCORES = "scores.tsv"
Scores = Mapping[tuple[str, tuple[str, ...]], tuple[float, ...]]
"""A ranker's own scores, by query_id and the documents best first."""


def judged_by(settings: JudgementSettings, ranked: Collection[str] = ()) -> tuple[Judgements, Attribute]:
    """The judgements and the attribute that the settings name. Raises UsageError.

    `ranked` are the documents of the runs, without which a source that loads them by id has no judgements.
    """
    if settings.dataset is not None:
        judgements = of_dataset(settings.dataset, ranked, DataOptions(columns=settings.columns))
    else:
        assert settings.groups is not None
        judgements = of_files(settings.qrels, settings.groups, declared(settings))
    return judgements, attribute_of(judgements, settings.attribute, settings.mixed)


def declared(settings: JudgementSettings) -> dict[str, Attribute]:
    """The attributes that are known by name: the user's, or those shipped."""
    return read_attributes(settings.attributes or shipped_attributes())


def check_queries(path: Path, file: RunFile, judgements: Judgements) -> None:
    """Raises UsageError for a run that has none of the judged queries."""
    judged = judgements.qrels
    if judged and not judged.keys() & file.rankings.keys():
        raise UsageError(
            f"{path} ranks none of the queries of {judgements.name} (here '{next(iter(file.rankings), '')}', "
            f"there '{next(iter(judged))}').",
            "a run and its qrels call queries by the same ids",
        )


def read_file(path: Path, announce: Announce, scores_kept: bool = False) -> RunFile:
    """A run file. Raises UsageError with file and line."""
    announce(path)
    file = read_any_run(path, scores_kept)
    if not file.rankings:
        raise UsageError(f"{path}: holds no ranked document.", HINT)
    return file


def own_scores(folder: Path) -> Scores:
    """The scores of a run folder whose ranker has any. Raises UsageError with the line."""
    path = folder / SCORES
    return read_scores(path, AGAIN) if path.is_file() else {}


def scored(file: RunFile, scores: Scores) -> RunFile:
    """The run with its ranker's own scores, whose ties the strictly falling ones of the file do not show."""
    rankings = {
        query_id: replace(ranking, scores=scores.get((query_id, ranking.doc_ids), ranking.scores))
        for query_id, ranking in file.rankings.items()
    }
    return replace(file, rankings=rankings)
