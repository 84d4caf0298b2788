"""What `score` is given: run files and run folders, each with what its rankings are measured against."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from llmfair.audits.listwise.lists import Listed
from llmfair.audits.listwise.results import RelevantLine, WindowAnswers
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.pairwise.verdict_files import read_verdicts
from llmfair.datasets.attributes import data_folder, read_attributes
from llmfair.datasets.base import attribute_of
from llmfair.datasets.judgements import Judgements, of_dataset, of_files
from llmfair.errors import UsageError
from llmfair.metrics.base import Groups, Judged
from llmfair.rankers.base import Window, strategy_of
from llmfair.records import Attribute, Candidates, Document, PairKind, Query, Ranking, Side, Verdict
from llmfair.results import read_lines, typed
from llmfair.rundir import ONE_OF_SEVERAL, RunDir
from llmfair.settings import SCORE_FORMS, ScoreSettings
from llmfair.stats.sequential import Decision
from llmfair.trec import Problems, RunFile, read_run

ENDINGS = re.compile(r"(\.(run|trec|txt))?(\.gz)?$")
HINT = "a run has six columns: query_id Q0 doc_id rank score tag"
Watch = Callable[[Path], None]


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
        doc_ids = self.lists.get(query_id)
        if doc_ids is None:
            # by id: in the order of the ranking, measures that ask for the candidates' order would flatter it
            doc_ids = sorted({doc_id for ranking in rankings for doc_id in ranking.doc_ids})
        documents = self.judgements.documents
        return Judged(
            Candidates(
                Query(query_id, ""),
                tuple(documents.get(doc_id) or Document(doc_id, "") for doc_id in doc_ids),
                self.judgements.qrels.get(query_id, {}),
            ),
            tuple(rankings),
            self.sides,
            groups=self.groups,
        )


@dataclass(frozen=True)
class Target:
    """One RUN: the columns that name it, its run files by variant, and the windows its lists were ranked by.

    `answers`: how the model's answers ended, by variant, where a run folder says so; `incomplete`: what is known of
    a folder that is not through, of which the queries count that are ranked.
    """

    columns: Mapping[str, str]
    variants: Mapping[str, Sequence[RunFile]]
    against: Against
    windows: Callable[[int], Sequence[Window]] = lambda n: [(0, n)]
    passes: int = 1
    seed: int = 0
    initial: str = "random"
    answers: Mapping[str, WindowAnswers] = field(default_factory=dict)
    incomplete: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class PairTarget:
    """One RUN of pairs: the columns that name it, its verdicts by kind, and the settings they were asked with."""

    columns: Mapping[str, str]
    words: Mapping[str, str]
    verdicts: Mapping[str, Sequence[Verdict]]
    settings: Mapping[str, Any]
    measures: str
    shown: str
    decided: Mapping[PairKind, Decision | None] | None
    incomplete: Mapping[str, Any] | None


def targets(runs: Sequence[Path], settings: ScoreSettings, watch: Watch) -> Iterator[Target | PairTarget]:
    """One after the other, so that of many large files one is in memory. Raises UsageError."""
    named = settings.dataset is not None or settings.qrels is not None
    shared = _shared(settings) if named else None
    names = Counter(run.resolve().name for run in runs if run.is_dir())
    for run in runs:
        if run.is_dir() and named:
            raise UsageError(
                f"{run} is a folder and brings its own judgements.",
                f"with others: llmfair score {run}/rankings/*.run --qrels FILE --groups FILE",
            )
        if run.is_dir():
            target = _pairs(run, settings, watch) if _holds_pairs(run) else _folder(run, settings, watch)
            if names[run.resolve().name] > 1:
                target = replace(target, columns={**target.columns, "run": str(run)})
            yield target
        elif shared is None:
            raise UsageError(f"{run}: what is relevant, and who is in which group?", SCORE_FORMS)
        else:
            yield _file(run, shared, watch)


def _shared(settings: ScoreSettings) -> Against:
    """The judgements that the settings name."""
    if settings.dataset is not None:
        judgements = of_dataset(settings.dataset)
    else:
        assert settings.qrels is not None and settings.groups is not None
        judgements = of_files(settings.qrels, settings.groups, _declared(settings))
    return Against(judgements, attribute_of(judgements, settings.attribute, settings.mixed))


def _declared(settings: ScoreSettings) -> dict[str, Attribute]:
    """The attributes that are known by name: the user's, or those shipped."""
    return read_attributes(settings.attributes or data_folder() / "attributes.toml")


def _file(path: Path, against: Against, watch: Watch) -> Target:
    """A run file; its tag is the model, its name without endings the variant. Raises UsageError if none is judged."""
    file = _read(path, watch)
    judged = against.judgements.qrels
    if judged and not judged.keys() & file.rankings.keys():
        raise UsageError(
            f"{path} ranks none of the queries of {against.judgements.name} (here '{next(iter(file.rankings), '')}', "
            f"there '{next(iter(judged))}').",
            "a run and its qrels call queries by the same ids",
        )
    columns = {
        "run": str(path),
        "dataset": against.judgements.name,
        "attribute": against.attribute.name,
        "model": file.tag,
    }
    return Target(columns, {ENDINGS.sub("", path.name) or path.name: [file]}, against)


def _read(path: Path, watch: Watch) -> RunFile:
    """A run file. Raises UsageError with file and line."""
    watch(path)
    problems = Problems()
    file = read_run(path, problems)
    problems.raise_any(HINT)
    if not file.rankings:
        raise UsageError(f"{path}: holds no ranked document.", HINT)
    return file


def _folder(path: Path, settings: ScoreSettings, watch: Watch) -> Target:
    """The rankings of an audit, against its own qrels, groups, lists, attribute and rule for mixed items."""
    run = RunDir(path)
    manifest = run.read_manifest()
    asked = manifest["settings"]
    if settings.mixed not in ("drop", asked["mixed"]):
        raise UsageError(
            f"{path} was audited with --mixed {asked['mixed']}, which its lists and sides follow.",
            "leave --mixed out, or audit again",
        )
    results = run.read_results()
    arms = results["design"]["arms"]
    paths = sorted(
        (path / "rankings").glob("*.run"),
        key=lambda file: (*(arm != ONE_OF_SEVERAL.sub("", file.stem) for arm in arms), file.stem),
    )
    if not paths:
        way_out = "score measures the rankings of a listwise audit"
        if results["status"] != "complete":
            way_out = (
                "no list has all its answers; the command that began the run continues it (llmfair runs show)"
            )
        raise UsageError(f"{path} has no rankings.", way_out)
    known = _declared(settings)
    own = _attribute(asked["attribute"])
    like = known.get(own.name)
    if like is None or like != replace(own, backgrounds=like.backgrounds):
        known[own.name] = own  # declared by the dataset, in a way of its own
    judgements = of_files(path / "qrels.txt", path / "groups.tsv", known, undeclared=True)
    lists = _lists(path / "candidates.jsonl")
    listed = {doc_id: Document(doc_id, "") for doc_ids in lists.values() for doc_id in doc_ids}
    judgements = replace(judgements, documents={**listed, **judgements.documents})
    attribute = attribute_of(judgements, settings.attribute or own.name, asked["mixed"])
    columns = {
        "run": path.resolve().name,
        "dataset": results["dataset"],
        "attribute": attribute.name,
        "model": results["model"],
    }
    files = {file.stem: _read(file, watch) for file in paths}
    against = Against(judgements, attribute, lists, *_relevant(path / "relevant.jsonl"))
    target = Target(
        columns,
        _variants(files),
        against,
        seed=asked["seed"],
        answers={
            arm: typed(counts, WindowAnswers, path / "results.json")
            for arm, counts in results["answers"].items()
        },
        incomplete=_incomplete(manifest, results),
    )
    if results["design"]["prompt_sha256"] is None:
        return target  # it forgets the order it is given
    strategy = strategy_of(asked.get("strategy", ListwiseSettings.strategy), asked)
    return replace(target, windows=strategy.plan, passes=strategy.passes, initial=asked["initial"])


def _incomplete(manifest: Mapping[str, Any], results: Mapping[str, Any]) -> dict[str, Any] | None:
    """What is known of a run that is not through, or whose last command was not; None of a complete one."""
    if manifest["status"] == results["status"] == "complete":
        return None
    return {"status": manifest["status"], "chains": results["chains"], "failures": results["failures"]}


def _holds_pairs(path: Path) -> bool:
    return bool(RunDir(path).read_manifest()["settings"]["task"] == "pairwise")


def _pairs(path: Path, settings: ScoreSettings, watch: Watch) -> PairTarget:
    """The verdicts of a pairwise audit, from which all its figures follow."""
    run = RunDir(path)
    manifest, results = run.read_manifest(), run.read_results()
    asked = manifest["settings"]
    if settings.attribute not in (None, results["attribute"]):
        raise UsageError(
            f"{path} asked about pairs by {results['attribute']}, not by {settings.attribute}.",
            f"llmfair pairwise -a {settings.attribute} asks about those",
        )
    watch(path / "verdicts.csv")
    verdicts: dict[str, list[Verdict]] = {kind: [] for kind in asked["kinds"]}
    for verdict in read_verdicts(path / "verdicts.csv"):
        verdicts.setdefault(verdict.kind, []).append(verdict)
    columns = {
        "run": path.resolve().name,
        **{column: results[column] for column in ("dataset", "attribute", "model")},
    }
    decided = {
        kind: one["decision"] and Decision(one["decision"]) for kind, one in results["stopping"].items()
    }
    return PairTarget(
        columns,
        results["words"],
        verdicts,
        asked,
        ",".join(results["measures"]),
        ",".join(results["shown"]),
        decided or None,
        _incomplete(manifest, results),
    )


def _relevant(path: Path) -> tuple[dict[str, Document], dict[str, dict[str, int]]]:
    """What stands for the relevant documents outside drawn lists (`outcome.py`); nothing where lists are whole."""
    documents: dict[str, Document] = {}
    counts: dict[str, dict[str, int]] = {}
    for row in read_lines(path, RelevantLine) if path.is_file() else ():
        for number, one in enumerate(row.relevant):
            name = f"@ {row.query_id} {number}"
            groups = {attribute: tuple(found) for attribute, found in one.groups.items()}
            documents[name] = Document(name, "", groups=groups)
            counts.setdefault(row.query_id, {})[name] = one.count
    return documents, counts


def _attribute(row: Mapping[str, Any]) -> Attribute:
    """The attribute as a manifest has it."""
    return Attribute(
        row["name"],
        protected=tuple(row["protected"]),
        unprotected=tuple(row["unprotected"]),
        other=tuple(row["other"]),
        words={side: row["words"][side] for side in Side},
    )


def _lists(path: Path) -> dict[str, list[str]]:
    """The lists that were asked about. Raises UsageError."""
    return {row.query_id: list(row.doc_ids) for row in read_lines(path, Listed)}


def _variants(files: Mapping[str, RunFile]) -> dict[str, list[RunFile]]:
    """Named as in metrics.csv: an arm's orders and repeats together, then each by itself if there are several."""
    arms: dict[str, dict[str, RunFile]] = {}
    for stem, file in files.items():
        arm = ONE_OF_SEVERAL.sub("", stem)
        arms.setdefault(arm, {})[stem if stem != arm else f"{arm}.o0.r0"] = file
    variants = {arm: list(of_arm.values()) for arm, of_arm in arms.items()}
    for of_arm in arms.values():
        if len(of_arm) > 1:
            variants |= {name: [file] for name, file in of_arm.items()}
    return variants
