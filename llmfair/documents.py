"""Every document that a command prints with `--json`, and the JSON Schema of them all, made from their classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, defstruct

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


def _class(base: type, name: str, meaning: str, fields: Mapping[str, Any]) -> Any:
    """A class of JSON objects with these fields, each a type, or a type and a default."""
    declared = [(field, *(of if isinstance(of, tuple) else (of,))) for field, of in fields.items()]
    space = {"__doc__": meaning} if meaning else None
    return defstruct(name, declared, bases=(base,), namespace=space, frozen=True, kw_only=True)


def _objects(name: str, meaning: str = "", /, **fields: Any) -> Any:
    """A list of such objects."""
    return list[_class(JsonObject, name, meaning, fields)]  # type: ignore[misc]


STRATEGY_COSTS = _objects(
    "StrategyCost",
    "What a list of so many items takes, and how many rounds of it wait for each other.",
    items=Count,
    calls=Count,
    rounds=Count,
    at_most=bool,
)
MESSAGES = _objects(
    "MessageShown", "A message of a chat.", role=Literal["system", "user", "assistant"], content=str
)
RUN_STATUS = Literal["running", "interrupted", "incomplete", "complete", "damaged"]
BACKENDS: Any = Mapping[  # type: ignore[misc]
    str,
    _class(
        JsonObject,
        "BackendReady",
        "Whether a backend can be asked.",
        {"status": Literal["ready", "no"], "note": str},
    ),
]
DECLARED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "Datasets": (
        "datasets list",
        {
            "datasets": _objects(
                "DatasetListed",
                "A dataset.",
                dataset=str,
                attributes=list[str],
                queries=Count | None,
                size=str,
                fetched=bool | None,
            )
        },
    ),
    "DatasetShown": (
        "datasets show",
        {
            "dataset": str,
            "attributes": (dict[str, Any] | None, None),
            "queries": (
                _objects(
                    "QueryShown",
                    "A query and its list.",
                    query_id=str,
                    text=str,
                    candidates=Count,
                    cells=dict[str, Any],
                )
                | None,
                None,
            ),
            "fingerprint": (str | None, None),
        },
    ),
    "AttributesShown": ("datasets attributes", {"text": str}),
    "FetchDocument": ("datasets fetch", {"folder": str, "already_fetched": bool, "collection": str}),
    "Prompts": (
        "prompts list",
        {
            "prompts": _objects(
                "PromptListed", "A prompt file.", prompt=str, wording=str | None, source=str, sha256=Sha256
            )
        },
    ),
    "PromptShown": ("prompts show", {"prompt": str, "sha256": Sha256, "text": str}),
    "RenderedPrompt": ("prompts render", {"messages": Annotated[MESSAGES, Meta(min_length=1)]}),
    "Runs": (
        "runs list",
        {
            "runs": _objects(
                "RunListed",
                "A run folder.",
                run=str,
                status=RUN_STATUS,
                model=str,
                answers=Count,
                started=str,
                verdict=str | None,
            )
        },
    ),
    "AnswersDocument": (
        "runs show, of answers",
        {"run": str, "rows": _objects("AnswerShown", "An answer, or a probe without one.", probe=str)},
    ),
    "QueriesFurthest": (
        "runs show --furthest",
        {
            "run": str,
            "queries": _objects("QueryFurthest", "A query with its own figures.", query=str, figures=str),
        },
    ),
    "CheckDocument": (
        "runs check",
        {"run": str, "answers": Count, "problems": list[str], "notes": list[str]},
    ),
    "CacheInfo": (
        "cache info",
        {
            "path": str,
            "entries": Count,
            "bytes": Count,
            "models": _objects(
                "ModelCached", "Answers of one model.", model=str, entries=Count, oldest=str, newest=str
            ),
        },
    ),
    "CacheCleared": ("cache clear", {"path": str, "removed": Count | None}),
    "CachePath": ("cache path", {"path": str}),
    "Doctor": (
        "doctor",
        {
            "llmfair": str,
            "python": str,
            "platform": str,
            "backends": BACKENDS,
            "rankers": list[str],
            "datasets": list[str],
            "model": (dict[str, Any] | None, None),
        },
    ),
    "Strategies": (
        "strategies list",
        {
            "strategies": _objects(
                "StrategyListed",
                strategy=str,
                parameters=Mapping[str, str | int | float],
                prompt=str,
                reads=str,
                plans=STRATEGY_COSTS,
                does=str,
            )
        },
    ),
    "Measures": (
        "measures list",
        {
            "measures": _objects(
                "MeasureListed",
                measure=str,
                of=str,
                label=str,
                better=str | None,
                cutoff=Literal["none", "optional", "required"],
                parameters=Mapping[str, list[str]],
                aggregate=str,
                source=str,
            )
        },
    ),
}
LOOKS = [
    _class(JsonDocument, name, f"llmfair {command}.", fields) for name, (command, fields) in DECLARED.items()
]
"""What commands show that look at things, each with the command; none has a task or a status."""
GENERAL = {
    "score": ScoreResults, "rerank": RerankResults, "comparison": Comparison, "finetune_lora": FinetuneResults,
    "finetune_plan": FinetunePlan, "merge": MergeResults, "mitigation": MitigationResults,
    "mitigation_plan": MitigationPlan, "report": ReportWritten, "failure": FailureDocument,
}  # fmt: skip
"""The documents of commands that are no audits."""


def documents() -> dict[str, Any]:
    """The class of each document: those of audits, by their kinds, and those of the general commands."""
    of_kinds = {kind.name: kind.results for kind in kinds()}
    about = {f"{name}_{kind.name}": of for kind in kinds() for name, of in kind.documents.items()}
    return {
        **of_kinds,
        **about,
        **{f"study_{name}": study.results for name, (_, study) in studies().items()},
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
