"""Every document that a command prints with `--json`, and the JSON Schema of them all, made from their classes."""

from __future__ import annotations

from typing import Any, Literal

from llmfair.audits.documents import Comparison
from llmfair.audits.kind import kinds, studies
from llmfair.audits.rerank import RerankResults
from llmfair.audits.scoring import ScoreResults
from llmfair.io.files import SCHEMA
from llmfair.mitigation.results import MitigationPlan, MitigationResults
from llmfair.results import ExitCode, JsonDocument
from llmfair.tuning.results import FinetunePlan, FinetuneResults, MergeResults


class ReportWritten(JsonDocument, frozen=True, kw_only=True):
    """llmfair report; `missing`: what half-finished runs lack."""

    status: Literal["complete"]
    report: str
    missing: list[str]


class FailureDocument(JsonDocument, frozen=True, kw_only=True):
    """A command that failed before there were results, or was stopped.

    `run`: the folder in which the same command continues; `runs`: every run folder that a stopped command began.
    """

    status: Literal["failed", "incomplete"]
    exit_code: ExitCode
    run: str | None = None
    runs: list[str] | None = None


LOOK = {
    "type": "object",
    "properties": {"schema": {"const": SCHEMA}},
    "required": ["schema"],
    "not": {"anyOf": [{"required": [name]} for name in ("task", "status", "comparison")]},
}
"""What commands show that look at things, such as `runs list`: none has a task or a status."""
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
    of_studies = {f"study_{name}": study.results for name, (_, study) in studies().items()}
    return {**of_kinds, **about, **of_studies, **GENERAL}


def schema() -> dict[str, Any]:
    """The JSON Schema of what `--json` prints, and of results.json: one definition a kind of document."""
    from msgspec.json import schema_components

    classes = documents()
    refs, parts = schema_components(classes.values(), ref_template="#/$defs/{name}")
    of_names = {name: {"$ref": f"#/$defs/{name}"} for name in (*classes, "look", "study_plan", "several")}
    plans = [of_names[f"plan_{kind.name}"] for kind, _ in studies().values()]
    runs = [of_names[name] for name in (*(kind.name for kind in kinds()), "failure")]
    several = {
        "study_plan": {
            "task": {"enum": [study.task for _, study in studies().values()]},
            "calls": {"type": "integer", "minimum": 0},
            "settings": {"type": "array", "items": {"anyOf": plans, "required": ["setting"]}, "minItems": 1},
        },
        "several": {
            "runs": {"type": "array", "items": {"anyOf": runs, "required": ["model"]}, "minItems": 2},
            "comparison": {"anyOf": [of_names["comparison"], {"type": "null"}]},
        },
    }
    objects = {
        name: {"type": "object", "properties": fields, "required": [*fields]}
        for name, properties in several.items()
        for fields in [{"schema": {"const": SCHEMA}, **properties}]
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:llmfair:results:{SCHEMA}",
        "title": "What llmfair prints with --json, and its results.json",
        "description": "One document on stdout, also on failure. Documents may get further keys; those named here "
        "stay. Undefined numbers are null beside a reason, never 0.",
        "anyOf": [*of_names.values()],
        "$defs": {**parts, **dict(zip(classes, refs, strict=True)), "look": LOOK, **objects},
    }
