"""Rankings that exist: those of run files and run folders, each with what they are measured against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from llmfair.audits.kind import results_of
from llmfair.audits.lists import asked_of_lists
from llmfair.audits.listwise.lists import CandidatesLine
from llmfair.audits.listwise.results import ListwiseResults
from llmfair.audits.relevant import RELEVANT, read_relevant
from llmfair.audits.scoring.remeasured import Announce, check_settings, incomplete, named
from llmfair.audits.scoring.run_files import check_queries, declared, judged_by, own_scores, read_file, scored
from llmfair.datasets.base import attribute_of
from llmfair.datasets.judgements import Judgements, of_files
from llmfair.errors import UsageError
from llmfair.io.files import read_lines
from llmfair.io.trec import RunFile
from llmfair.metrics.base import Groups, Judged
from llmfair.nouns import Attribute, Candidates, Document, Query, Ranking, Side
from llmfair.rundir import ONE_OF_SEVERAL, RunDir
from llmfair.settings import ScoreSettings


@dataclass(frozen=True)
class Against:
    """What rankings are measured against; `lists` are candidate lists, where there are any."""

    judgements: Judgements
    attribute: Attribute
    lists: Mapping[str, Sequence[str]] = field(default_factory=dict)
    stand_ins: Mapping[str, Document] = field(default_factory=dict)
    relevant: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @cached_property
    def sides(self) -> Mapping[str, Side]:
        return self.judgements.sides(self.attribute)

    @cached_property
    def groups(self) -> Groups:
        attributes = {attribute.name: attribute for attribute in self.judgements.attributes}
        documents = {**self.judgements.documents, **self.stand_ins}
        return Groups(self.attribute.name, attributes, documents, self.relevant)

    def judged(self, query_id: str, rankings: Sequence[Ranking]) -> Judged:
        """One query with the rankings of it. Without a candidate list, what was ranked is the list."""
        doc_ids, missing = self.lists.get(query_id), tuple[str, ...]()
        judged = self.judgements.qrels.get(query_id, {})
        if doc_ids is None:
            # by id: in the order of the ranking, measures that ask for the candidates' order would flatter it
            doc_ids = sorted({doc_id for ranking in rankings for doc_id in ranking.doc_ids})
            missing = tuple(sorted(judged.keys() - {*doc_ids}))
        documents = self.judgements.documents
        return Judged(
            Candidates(
                Query(query_id, ""),
                tuple(documents.get(doc_id) or Document(doc_id, "") for doc_id in doc_ids),
                judged,
            ),
            tuple(rankings),
            self.sides,
            groups=self.groups,
            missing=missing,
        )


@dataclass(frozen=True)
class Rankings:
    """One RUN: the columns that name it, its run files by condition, and the kind of order its lists began with.

    `found`: of a run folder, what its audit found. `incomplete`: what is known of a folder that is not through, of
    which the queries count that are ranked.
    """

    columns: Mapping[str, str]
    conditions: Mapping[str, Sequence[RunFile]]
    against: Against
    seed: int = 0
    initial: str = "random"
    found: ListwiseResults | None = None
    incomplete: Mapping[str, Any] = field(default_factory=dict)


def judgements_of(settings: ScoreSettings) -> Against:
    """The judgements that the settings name."""
    return Against(*judged_by(settings))


def of_file(path: Path, against: Against, announce: Announce) -> Rankings:
    """A run file; its tag is the model, its path both run and condition. Raises UsageError if none is judged."""
    file = read_file(path, announce)
    check_queries(path, file, against.judgements)
    columns = {
        "run": str(path),
        "dataset": against.judgements.name,
        "attribute": against.attribute.name,
        "model": file.tag,
    }
    return Rankings(columns, {str(path): [file]}, against)


def of_folder(run: RunDir, settings: ScoreSettings, announce: Announce) -> Rankings:
    """The rankings of an audit, against its own qrels, groups, lists, attribute and rule for mixed items."""
    path, manifest = run.path, run.read_manifest()
    asked = asked_of_lists(run, manifest.settings)
    if settings.mixed not in ("drop", asked.mixed):
        raise UsageError(
            f"{path} was audited with --mixed {asked.mixed}, which its lists and groups follow.",
            "leave --mixed out, or audit again",
        )
    results: ListwiseResults = results_of(run)
    check_settings(run, results, ("seed",))
    conditions = results.design.conditions
    paths = sorted(
        (path / "rankings").glob("*.run"),
        key=lambda file: (
            *(condition != ONE_OF_SEVERAL.sub("", file.stem) for condition in conditions),
            file.stem,
        ),
    )
    if not paths:
        way_out = "score measures the rankings of a listwise audit"
        if results.status != "complete":
            way_out = (
                "no list has all its answers; the command that began the run continues it (llmfair runs show)"
            )
        raise UsageError(f"{path} has no rankings.", way_out)
    known = declared(settings)
    own = asked.attribute
    like = known.get(own.name)
    if like is None or like != replace(own, backgrounds=like.backgrounds):
        known[own.name] = own  # declared by the dataset, in a way of its own
    judgements = of_files(path / "qrels.txt", path / "groups.tsv", known, undeclared=True)
    lists = _lists(path / "candidates.jsonl")
    listed = {doc_id: Document(doc_id, "") for doc_ids in lists.values() for doc_id in doc_ids}
    judgements = replace(judgements, documents={**listed, **judgements.documents})
    attribute = attribute_of(judgements, settings.attribute or own.name, asked.mixed)
    columns = {**named(run, results), "attribute": attribute.name}
    scores = own_scores(path)
    files = {file.stem: scored(read_file(file, announce), scores) for file in paths}
    _check_whole(path, results, files)
    against = Against(judgements, attribute, lists, *read_relevant(path / RELEVANT))
    rankings = Rankings(
        columns,
        _conditions(files),
        against,
        seed=results.design.seed,
        found=results,
        incomplete=incomplete(manifest, results),
    )
    if results.design.prompt_sha256 is None:
        return rankings  # it forgets the order it is given
    return replace(rankings, initial=str(manifest.settings.get("initial")))


def _check_whole(path: Path, results: ListwiseResults, files: Mapping[str, RunFile]) -> None:
    """Raises UsageError where a run has fewer rankings than it says: figures would be of other queries or orders."""
    for condition, chains in results.chains.items():
        there = [file for stem, file in files.items() if ONE_OF_SEVERAL.sub("", stem) == condition]
        rankings = sum(len(file.rankings) for file in there)
        if rankings < chains.ranked:
            raise UsageError(
                f"{path / 'rankings'} has {rankings} of the run's {chains.ranked} rankings "
                f"under the {condition} prompt.",
                "the command that began the run writes them again",
            )


def _lists(path: Path) -> dict[str, list[str]]:
    """The lists that were asked about. Raises UsageError."""
    return {row.query_id: list(row.doc_ids) for row in read_lines(path, CandidatesLine)}


def _conditions(files: Mapping[str, RunFile]) -> dict[str, list[RunFile]]:
    """Named as in metrics.csv: a condition's orders and repeats together, then each by itself if there are several."""
    found: dict[str, dict[str, RunFile]] = {}
    for stem, file in files.items():
        condition = ONE_OF_SEVERAL.sub("", stem)
        found.setdefault(condition, {})[stem if stem != condition else f"{condition}.o0.r0"] = file
    conditions = {condition: list(of_condition.values()) for condition, of_condition in found.items()}
    for of_condition in found.values():
        if len(of_condition) > 1:
            conditions |= {name: [file] for name, file in of_condition.items()}
    return conditions
