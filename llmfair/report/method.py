"""How figures came about: in words, in formulas, in settings; and what they cannot say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import isfunction
from typing import Any

from llmfair import registry
from llmfair.audits.kind import Kind, kind_of
from llmfair.metrics.base import Definition
from llmfair.report.exhibits import Declared, Exhibits
from llmfair.report.tables import capitalised, count
from llmfair.rundir import Manifest

LOPSIDED = (
    "With few queries or short lists the interval of an exposure ratio is a bootstrap-t interval over queries: it is "
    "not symmetric, but extends further to where single queries lie far out."
)
MARKUP = re.compile(r"(`+)(.*?)\1")
TITLES_ONLY = "The model saw titles only: it judged by names and by what it remembers of them."
SIMULATED = (
    "The model is simulated: its figures show what was injected, not how any model of the world behaves."
)


@dataclass(frozen=True)
class Method:
    """What stands under Method.

    `words` in paragraphs, `formulas` as (name, label, what it is), `facts` as (name, value), the rest as it is.
    """

    words: Sequence[str]
    formulas: Sequence[tuple[str, str, str]]
    facts: Sequence[tuple[str, str]]
    prompt: str
    command: str
    limits: Sequence[str]


def method_of(
    results: Any,
    manifest: Manifest | None,
    exhibits: Exhibits,
    words: Sequence[str],
    facts: Sequence[tuple[str, str]] = (),
) -> Method:
    """The method of a run: `words` and `facts` of its own among those of every run."""
    settings = {} if manifest is None else manifest.used()
    limits = limits_of([results])
    model = getattr(results, "model", "")
    # a ranker that asks nothing reads titles and texts, whatever a model would be shown
    if settings.get("input") == "title" and not registry.has("ranker", model.partition(":")[0]):
        limits.append(TITLES_ONLY)
    if model.startswith("fake:"):
        limits.append(SIMULATED)
    return Method(
        words=[*words, *lopsided([results])],
        formulas=formulas_of(exhibits.measures),
        facts=[(name, str(value)) for name, value in _facts(results, manifest, settings, facts) if value],
        prompt=manifest.prompt.text if manifest and manifest.prompt else "",
        command=exhibits.command or "",
        limits=limits,
    )


def limits_of(found: Iterable[Any]) -> list[str]:
    """What figures of these results cannot say; those of studies, adapters and rankings are of lists and pairs."""
    tasks = [results.task for results in found]
    kinds = [kind_of(task) if registry.has("audit", task) else Kind for task in tasks]
    return [*dict.fromkeys(said for kind in kinds for said in kind.limits)]


def lopsided(found: Iterable[Any]) -> list[str]:
    """Why some intervals of these results reach further on one side of the figure, where some may."""
    return [LOPSIDED] * any(
        "boot-t" in getattr(results, "intervals", {}).values()
        or (results.task == "score" and any(kind_of(run.task).lopsided for run in results.runs))
        for results in found
    )


def cost_of(manifest: Manifest | None) -> str:
    """What all commands on a run have cost, and the calls of them that were made without prices."""
    if manifest is None or manifest.cost is None:
        return ""
    unpriced = sum(one.calls or 0 for one in manifest.invocations if one.cost is None)
    return f"{manifest.cost:,.4f}" + f", and {count(unpriced, 'call')} made without prices" * bool(unpriced)


def formulas_of(measures: Declared) -> list[tuple[str, str, str]]:
    """Name, label and definition of every measure, as it declares them."""
    return [
        (name, measure.definition.label, _sentence(measure.definition)) for name, measure in measures.items()
    ]


def _sentence(definition: Definition) -> str:
    """What a measure is, and where it is from."""
    # functions of ours say in their first line what they give; a partial of another's would speak of itself
    says = definition.says or (isfunction(definition.values) and definition.values.__doc__) or ""
    says, cite = MARKUP.sub(r"\2", says.partition("\n")[0].strip()), definition.cite
    return f"{says.rstrip('.')}. {capitalised(cite)}" if says and cite else says or cite


def _facts(
    results: Any, manifest: Manifest | None, settings: Mapping[str, Any], own: Sequence[tuple[str, str]]
) -> list[tuple[str, Any]]:
    def of(name: str) -> Any:
        """A field of the results, or of their design, where they have it."""
        return getattr(results, name, getattr(getattr(results, "design", None), name, ""))

    words, versions = of("words"), manifest.versions if manifest else of("versions") or {}
    sides = f"{words.protected} (protected), {words.unprotected}" if words and words.protected else ""
    facts: list[tuple[str, Any]] = [
        *((("run", of("run")),) if results.task != "score" else _measured(results)),
        ("data set", of("dataset")),
        ("attribute", ": ".join(filter(None, (of("attribute"), sides)))),
        ("label", of("label")),
        ("model", of("model")),
        ("server", of("server")),
        ("reported as", ", ".join(manifest.models_reported) if manifest else ""),
        ("queries", of("queries")),
    ]
    prompt = manifest.prompt if manifest else None
    facts += [
        *own,
        ("cost", cost_of(manifest)),
        ("temperature", str(settings["temperature"]) if "temperature" in settings else ""),
        ("seed", str(of("seed"))),
        ("interval level", f"{100 * results.level:g} %"),
        ("band of conclusions", "{:g} to {:g}".format(*results.band) if sides else ""),
        ("the model sees", manifest.sees if manifest else ""),
        ("prompt", f"{prompt.file}, SHA-256 {prompt.sha256}" if prompt else ""),
        ("lists, SHA-256", settings.get("lists_sha256")),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
    ]
    return facts


def _measured(results: Any) -> list[tuple[str, Any]]:
    """Of rankings that exist: which ones, and what they were measured against, as the user named them."""
    named, runs = results.settings, results.runs
    whom = (f"{run.attribute}: {run.words.protected} (protected), {run.words.unprotected}" for run in runs)
    return [
        ("runs", ", ".join(named.get("runs", ()))),
        ("data set", "" if "qrels" in named else ", ".join(dict.fromkeys(run.dataset for run in runs))),
        *((name, named.get(name, "")) for name in ("qrels", "groups", "attributes")),
        ("attribute", ", ".join(dict.fromkeys(whom))),
        ("model", ", ".join(dict.fromkeys(run.model for run in runs))),
    ]
