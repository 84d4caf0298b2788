"""Every document that a command prints with `--json`, and the JSON Schema of them all, made from their classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta

from llmfair.audits.documents import Comparison
from llmfair.audits.kind import kinds, studies
from llmfair.audits.rerank import RerankResults
from llmfair.audits.scoring.score_results import ScoreResults
from llmfair.mitigation.results import MitigationPlan, MitigationResults
from llmfair.results import Count, ErrorSaid, ExitCode, Sha256, Version
from llmfair.tuning.results import FinetunePlan, FinetuneResults, MergeResults


class ReportWritten(TypedDict):
    """llmfair report."""

    schema: Version
    status: Literal["complete"]
    report: str
    missing: Annotated[list[str], Meta(description="What half-finished runs lack.")]


class FailureDocument(TypedDict):
    """A command that failed before there were results, or was stopped."""

    schema: Version
    status: Literal["failed", "incomplete"]
    exit_code: ExitCode
    error: NotRequired[ErrorSaid]
    run: NotRequired[Annotated[str, Meta(description="The folder in which the same command continues.")]]
    runs: NotRequired[
        Annotated[list[str], Meta(description="Every run folder that a stopped command began.")]
    ]


class DatasetListed(TypedDict):
    """A dataset."""

    dataset: str
    attributes: list[str]
    queries: Count | None
    size: str
    fetched: bool | None


class Datasets(TypedDict):
    """llmfair datasets list."""

    schema: Version
    datasets: list[DatasetListed]


class QueryShown(TypedDict):
    """A query and its list."""

    query_id: str
    text: str
    candidates: Count
    cells: dict[str, Any]


class DatasetShown(TypedDict):
    """llmfair datasets show."""

    schema: Version
    dataset: str
    attributes: NotRequired[dict[str, Any]]
    queries: NotRequired[list[QueryShown]]
    fingerprint: NotRequired[str]


class FetchDocument(TypedDict):
    """llmfair datasets fetch."""

    schema: Version
    folder: str
    already_fetched: bool
    collection: str


class PromptListed(TypedDict):
    """A prompt file."""

    prompt: str
    wording: str | None
    source: str
    sha256: Sha256


class Prompts(TypedDict):
    """llmfair prompts list."""

    schema: Version
    prompts: list[PromptListed]


class StrategyCost(TypedDict):
    """What a list of so many items takes, and how many rounds of it wait for each other."""

    items: Count
    calls: Count
    rounds: Count
    at_most: bool


class StrategyListed(TypedDict):
    strategy: str
    parameters: Mapping[str, str | int | float]
    prompt: str
    reads: str
    plans: list[StrategyCost]
    does: str


class Strategies(TypedDict):
    """llmfair strategies list."""

    schema: Version
    strategies: list[StrategyListed]


class MeasureListed(TypedDict):
    measure: str
    of: str
    label: str
    better: str | None
    cutoff: Literal["none", "optional", "required"]
    parameters: Mapping[str, list[str]]
    aggregate: str
    source: str


class Measures(TypedDict):
    """llmfair measures list."""

    schema: Version
    measures: list[MeasureListed]


class AttributesShown(TypedDict):
    """llmfair datasets attributes."""

    schema: Version
    text: str


class PromptShown(TypedDict):
    """llmfair prompts show."""

    schema: Version
    prompt: str
    sha256: Sha256
    text: str


class MessageShown(TypedDict):
    """A message of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


class RenderedPrompt(TypedDict):
    """llmfair prompts render."""

    schema: Version
    messages: Annotated[list[MessageShown], Meta(min_length=1)]


class RunListed(TypedDict):
    """A run folder."""

    run: str
    status: Literal["running", "interrupted", "incomplete", "complete", "damaged"]
    model: str
    answers: Count
    started: str
    verdict: str | None


class Runs(TypedDict):
    """llmfair runs list."""

    schema: Version
    runs: list[RunListed]


class AnswerShown(TypedDict):
    """An answer, or a probe without one."""

    probe: str


class AnswersDocument(TypedDict):
    """llmfair runs show, of answers."""

    schema: Version
    run: str
    rows: list[AnswerShown]


class QueryFurthest(TypedDict):
    """A query with its own figures."""

    query: str
    figures: str


class QueriesFurthest(TypedDict):
    """llmfair runs show --furthest."""

    schema: Version
    run: str
    queries: list[QueryFurthest]


class CheckDocument(TypedDict):
    """llmfair runs check."""

    schema: Version
    run: str
    answers: Count
    problems: list[str]
    notes: list[str]


class ModelCached(TypedDict):
    """Answers of one model."""

    model: str
    entries: Count
    oldest: str
    newest: str


class CacheInfo(TypedDict):
    """llmfair cache info."""

    schema: Version
    path: str
    entries: Count
    bytes: Count
    models: list[ModelCached]


class CacheCleared(TypedDict):
    """llmfair cache clear."""

    schema: Version
    path: str
    removed: Count | None


class CachePath(TypedDict):
    """llmfair cache path."""

    schema: Version
    path: str


class BackendReady(TypedDict):
    """Whether a backend can be asked."""

    status: Literal["ready", "no"]
    note: str


class Doctor(TypedDict):
    """llmfair doctor."""

    schema: Version
    llmfair: str
    python: str
    platform: str
    backends: dict[str, BackendReady]
    rankers: list[str]
    datasets: list[str]
    model: NotRequired[dict[str, Any]]


@dataclass(frozen=True)
class JsonDocument:
    """A kind of document: its class, the keys it never has, those that go together, and whether a gate may fail it."""

    of: Any
    without: Sequence[str] = ()
    together: Mapping[str, Sequence[str]] = field(default_factory=dict)
    may_fail: bool = False


PRICED = {
    "findable": ("latency", "seconds", "price_in", "price_out", "cost"),
    "latency": ("findable",),
    "seconds": ("findable",),
    "cost": ("price_in", "price_out"),
}
LOOKS = (
    Datasets, DatasetShown, AttributesShown, FetchDocument, Prompts, PromptShown, RenderedPrompt, Runs,
    AnswersDocument, QueriesFurthest, CheckDocument, CacheInfo,
    CacheCleared, CachePath, Doctor, Strategies, Measures,
)  # fmt: skip
"""What commands show that look at things; none has a task or a status."""
GENERAL = {
    "score": JsonDocument(ScoreResults, may_fail=True),
    "rerank": JsonDocument(RerankResults, ("rows",)),
    "comparison": JsonDocument(Comparison),
    "finetune_lora": JsonDocument(FinetuneResults, may_fail=True),
    "finetune_plan": JsonDocument(FinetunePlan, ("rows",)),
    "merge": JsonDocument(MergeResults),
    "mitigation": JsonDocument(MitigationResults, may_fail=True),
    "mitigation_plan": JsonDocument(MitigationPlan, ("rows",)),
    "report": JsonDocument(ReportWritten),
    "failure": JsonDocument(FailureDocument, ("task", "rows")),
}


def documents() -> dict[str, JsonDocument]:
    """All kinds of documents: those of audits, by their kinds, and those of the general commands."""
    found = {kind.name: JsonDocument(kind.results(), may_fail=True) for kind in kinds()}
    for kind in kinds():
        for name, of in kind.documents().items():
            rules = (("rows",), PRICED) if name == "plan" else ()
            found[f"{name}_{kind.name}"] = JsonDocument(of, *rules)
    for name, (_, study) in studies().items():
        found[f"study_{name}"] = JsonDocument(study.results(), may_fail=True)
    return {**found, **GENERAL}


def schema() -> dict[str, Any]:
    """The JSON Schema of what `--json` prints, and of results.json: one definition a kind of document."""
    from msgspec.json import schema_components

    known = documents()
    classes = [document.of for document in known.values()]
    refs, found = schema_components([*classes, *LOOKS], ref_template="#/$defs/{name}")
    parts = [found[ref["$ref"].removeprefix("#/$defs/")] for ref in refs]  # not always called like its class
    names = {
        name: {**_ruled(part, one), "title": one.of.__doc__}
        for (name, one), part in zip(known.items(), parts, strict=False)
    }
    looks = list(refs[len(classes) :])
    names["look"] = {"anyOf": looks, **_never("task", "status")}
    planned = [_planned(study.task, names[f"plan_{kind.name}"]) for kind, study in studies().values()]
    names["study_plan"] = {"title": "llmfair study, --dry-run", "anyOf": planned, **_never("rows")}
    of_one = [{"$ref": f"#/$defs/{name}"} for name in (kind.name for kind in kinds())]
    named = {"properties": {"model": {"type": "string"}}, "required": ["model"]}
    failed = {"allOf": [{"$ref": "#/$defs/failure"}, named]}
    several = {
        "schema": {"const": 1},
        "runs": {"type": "array", "items": {"anyOf": [*of_one, failed]}, "minItems": 2},
    }
    several["comparison"] = {"anyOf": [{"$ref": "#/$defs/comparison"}, {"type": "null"}]}
    title = "An audit of several models: one entry each, in the order given"
    names["several"] = {"title": title, **_object(several)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:llmfair:results:1",
        "title": "What llmfair prints with --json, and its results.json",
        "description": "One document on stdout, also on failure. Documents may get further keys; those named here "
        "stay. Undefined numbers are null beside a reason, never 0.",
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in names],
        "$defs": {**found, **names},
    }


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    """An object that has all of these."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def _planned(task: str, plan: Mapping[str, Any]) -> dict[str, Any]:
    """The plan of a study: a plan of its kind for each setting."""
    setting = {"setting": {"type": "string"}}
    always = [*setting, *(name for name in plan["required"] if name != "schema")]
    each = {**plan, "properties": {**plan["properties"], **setting}, "required": always}
    calls, settings = {"type": "integer", "minimum": 0}, {"type": "array", "items": each, "minItems": 1}
    return _object({"schema": {"const": 1}, "task": {"const": task}, "calls": calls, "settings": settings})


def _never(*keys: str) -> dict[str, Any]:
    return {"not": {"anyOf": [{"required": [key]} for key in keys]}} if keys else {}


def _ruled(part: Mapping[str, Any], one: JsonDocument) -> dict[str, Any]:
    """A class's schema with what its fields alone do not say."""
    always = [name for name in ("schema", "task") if name in part["properties"]]  # though they have a default
    made = {**part, **_never(*one.without), "required": list(dict.fromkeys([*always, *part["required"]]))}
    if one.together:
        made["dependentRequired"] = {key: list(others) for key, others in one.together.items()}
    if one.of is FailureDocument:
        made["if"], made["then"] = {"properties": {"exit_code": {"maximum": 4}}}, {"required": ["error"]}
    if one.may_fail:
        made["properties"] = {
            **part["properties"],
            **{key: {"$ref": f"#/$defs/failure/properties/{key}"} for key in ("exit_code", "error")},
        }
        made["if"] = {"properties": {"status": {"const": "failed"}}, "required": ["status"]}
        made["then"] = {"required": ["exit_code", "error"]}
        made["dependentRequired"] = {"error": ["exit_code"]}
    return made
