"""Every document that a command prints with `--json`, and the JSON Schema of them all, made from their classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta

from llmfair.audits.documents import Comparison
from llmfair.audits.kind import kinds, studies
from llmfair.audits.rerank import RerankResults
from llmfair.audits.scoring import ScoreResults
from llmfair.io.files import SCHEMA
from llmfair.mitigation.results import MitigationPlan, MitigationResults
from llmfair.results import Count, ExitCode, JsonDocument, JsonObject, Sha256
from llmfair.tuning.results import FinetunePlan, FinetuneResults, MergeResults


class ReportWritten(JsonDocument, frozen=True, kw_only=True):
    """llmfair report."""

    status: Literal["complete"]
    report: str
    missing: Annotated[list[str], Meta(description="What half-finished runs lack.")]


class FailureDocument(JsonDocument, frozen=True, kw_only=True):
    """A command that failed before there were results, or was stopped."""

    status: Literal["failed", "incomplete"]
    exit_code: ExitCode
    run: Annotated[str, Meta(description="The folder in which the same command continues.")] | None = None
    runs: Annotated[list[str], Meta(description="Every run folder that a stopped command began.")] | None = (
        None
    )


class DatasetListed(JsonObject, frozen=True, kw_only=True):
    """A dataset."""

    dataset: str
    attributes: list[str]
    queries: Count | None
    size: str
    fetched: bool | None


class Datasets(JsonDocument, frozen=True, kw_only=True):
    """llmfair datasets list."""

    datasets: list[DatasetListed]


class QueryShown(JsonObject, frozen=True, kw_only=True):
    """A query and its list."""

    query_id: str
    text: str
    candidates: Count
    cells: dict[str, Any]


class DatasetShown(JsonDocument, frozen=True, kw_only=True):
    """llmfair datasets show."""

    dataset: str
    attributes: dict[str, Any] | None = None
    queries: list[QueryShown] | None = None
    fingerprint: str | None = None


class FetchDocument(JsonDocument, frozen=True, kw_only=True):
    """llmfair datasets fetch."""

    folder: str
    already_fetched: bool
    collection: str


class PromptListed(JsonObject, frozen=True, kw_only=True):
    """A prompt file."""

    prompt: str
    wording: str | None
    source: str
    sha256: Sha256


class Prompts(JsonDocument, frozen=True, kw_only=True):
    """llmfair prompts list."""

    prompts: list[PromptListed]


class StrategyCost(JsonObject, frozen=True, kw_only=True):
    """What a list of so many items takes, and how many rounds of it wait for each other."""

    items: Count
    calls: Count
    rounds: Count
    at_most: bool


class StrategyListed(JsonObject, frozen=True, kw_only=True):
    strategy: str
    parameters: Mapping[str, str | int | float]
    prompt: str
    reads: str
    plans: list[StrategyCost]
    does: str


class Strategies(JsonDocument, frozen=True, kw_only=True):
    """llmfair strategies list."""

    strategies: list[StrategyListed]


class MeasureListed(JsonObject, frozen=True, kw_only=True):
    measure: str
    of: str
    label: str
    better: str | None
    cutoff: Literal["none", "optional", "required"]
    parameters: Mapping[str, list[str]]
    aggregate: str
    source: str


class Measures(JsonDocument, frozen=True, kw_only=True):
    """llmfair measures list."""

    measures: list[MeasureListed]


class AttributesShown(JsonDocument, frozen=True, kw_only=True):
    """llmfair datasets attributes."""

    text: str


class PromptShown(JsonDocument, frozen=True, kw_only=True):
    """llmfair prompts show."""

    prompt: str
    sha256: Sha256
    text: str


class MessageShown(JsonObject, frozen=True, kw_only=True):
    """A message of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


class RenderedPrompt(JsonDocument, frozen=True, kw_only=True):
    """llmfair prompts render."""

    messages: Annotated[list[MessageShown], Meta(min_length=1)]


class RunListed(JsonObject, frozen=True, kw_only=True):
    """A run folder."""

    run: str
    status: Literal["running", "interrupted", "incomplete", "complete", "damaged"]
    model: str
    answers: Count
    started: str
    verdict: str | None


class Runs(JsonDocument, frozen=True, kw_only=True):
    """llmfair runs list."""

    runs: list[RunListed]


class AnswerShown(JsonObject, frozen=True, kw_only=True):
    """An answer, or a probe without one."""

    probe: str


class AnswersDocument(JsonDocument, frozen=True, kw_only=True):
    """llmfair runs show, of answers."""

    run: str
    rows: list[AnswerShown]


class QueryFurthest(JsonObject, frozen=True, kw_only=True):
    """A query with its own figures."""

    query: str
    figures: str


class QueriesFurthest(JsonDocument, frozen=True, kw_only=True):
    """llmfair runs show --furthest."""

    run: str
    queries: list[QueryFurthest]


class CheckDocument(JsonDocument, frozen=True, kw_only=True):
    """llmfair runs check."""

    run: str
    answers: Count
    problems: list[str]
    notes: list[str]


class ModelCached(JsonObject, frozen=True, kw_only=True):
    """Answers of one model."""

    model: str
    entries: Count
    oldest: str
    newest: str


class CacheInfo(JsonDocument, frozen=True, kw_only=True):
    """llmfair cache info."""

    path: str
    entries: Count
    bytes: Count
    models: list[ModelCached]


class CacheCleared(JsonDocument, frozen=True, kw_only=True):
    """llmfair cache clear."""

    path: str
    removed: Count | None


class CachePath(JsonDocument, frozen=True, kw_only=True):
    """llmfair cache path."""

    path: str


class BackendReady(JsonObject, frozen=True, kw_only=True):
    """Whether a backend can be asked."""

    status: Literal["ready", "no"]
    note: str


class Doctor(JsonDocument, frozen=True, kw_only=True):
    """llmfair doctor."""

    llmfair: str
    python: str
    platform: str
    backends: dict[str, BackendReady]
    rankers: list[str]
    datasets: list[str]
    model: dict[str, Any] | None = None


LOOKS = (
    Datasets, DatasetShown, AttributesShown, FetchDocument, Prompts, PromptShown, RenderedPrompt, Runs,
    AnswersDocument, QueriesFurthest, CheckDocument, CacheInfo,
    CacheCleared, CachePath, Doctor, Strategies, Measures,
)  # fmt: skip
"""What commands show that look at things; none has a task or a status."""
GENERAL = {
    "score": ScoreResults, "rerank": RerankResults, "comparison": Comparison, "finetune_lora": FinetuneResults,
    "finetune_plan": FinetunePlan, "merge": MergeResults, "mitigation": MitigationResults,
    "mitigation_plan": MitigationPlan, "report": ReportWritten, "failure": FailureDocument,
}  # fmt: skip
"""The documents of commands that are no audits."""


def documents() -> dict[str, Any]:
    """The class of each document: those of audits, by their kinds, and those of the general commands."""
    of_kinds = {kind.name: kind.results() for kind in kinds()}
    about = {f"{name}_{kind.name}": of for kind in kinds() for name, of in kind.documents().items()}
    return {
        **of_kinds,
        **about,
        **{f"study_{name}": study.results() for name, (_, study) in studies().items()},
        **GENERAL,
    }


def schema() -> dict[str, Any]:
    """The JSON Schema of what `--json` prints, and of results.json: one definition a kind of document."""
    from msgspec.json import schema_components

    classes = documents()
    refs, parts = schema_components([*classes.values(), *LOOKS], ref_template="#/$defs/{name}")
    names: dict[str, Any] = dict(zip(classes, refs, strict=False))
    names["look"] = {"anyOf": list(refs[len(classes) :])}
    plans = [_defined(f"plan_{kind.name}") for kind, _ in studies().values()]
    names["study_plan"] = _object(
        {
            "schema": {"const": SCHEMA},
            "task": {"enum": [study.task for _, study in studies().values()]},
            "calls": {"type": "integer", "minimum": 0},
            "settings": {"type": "array", "items": {"anyOf": plans, "required": ["setting"]}, "minItems": 1},
        }
    )
    runs = [_defined(name) for name in (*(kind.name for kind in kinds()), "failure")]
    names["several"] = _object(
        {
            "schema": {"const": SCHEMA},
            "runs": {"type": "array", "items": {"anyOf": runs, "required": ["model"]}, "minItems": 2},
            "comparison": {"anyOf": [_defined("comparison"), {"type": "null"}]},
        }
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:llmfair:results:{SCHEMA}",
        "title": "What llmfair prints with --json, and its results.json",
        "description": "One document on stdout, also on failure. Documents may get further keys; those named here "
        "stay. Undefined numbers are null beside a reason, never 0.",
        "anyOf": list(map(_defined, names)),
        "$defs": {**parts, **names},
    }


def _defined(name: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{name}"}


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    """An object that has all of these."""
    return {"type": "object", "properties": properties, "required": list(properties)}
