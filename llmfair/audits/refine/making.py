"""Makes an audit of query refinement from what the user set.

The data's way: topics and a collection -> its index -> one loop a topic -> dispatch -> pages -> measures -> intervals
-> run folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from llmfair import registry
from llmfair.audits.design import NOBODY, Outcome
from llmfair.audits.engines import engine_of
from llmfair.audits.gates import read_gates
from llmfair.audits.lists import given_of, selected_queries
from llmfair.audits.refine.design import (
    TARGET_KNOWN,
    Ended,
    FirstStage,
    RefineDesign,
    made_baselines,
    named_specs,
    with_target,
)
from llmfair.audits.refine.outcome import outcome_of
from llmfair.audits.refine.settings import RefineSettings
from llmfair.audits.subject import Subject
from llmfair.datasets.base import load_dataset, named_attribute
from llmfair.datasets.collection import Collection
from llmfair.datasets.files import searched
from llmfair.errors import UsageError, did_you_mean
from llmfair.metrics.base import Judged, Measure
from llmfair.metrics.names import parse_measure, parse_measures
from llmfair.metrics.targets import TARGETS, read_shares
from llmfair.nouns import Attribute, Failure
from llmfair.prompts import load_prompt
from llmfair.rankers.base import ScoringRanker
from llmfair.retrieval.analysis import ANALYZERS
from llmfair.retrieval.engine import Engine, Patience
from llmfair.settings import seconds

SHOWN = "nDCG@{k},AWRF@{k},nDCGxAWRF@{k}"
PRESET, PRODUCTS = "paper", ",nDCGxAWRF(agg=mean-of-products)@{k}"
"""What is shown under the paper's preset, too."""
EMPIRICAL = "empirical"
SUMS_TO_ONE = 1e-3
"""How far the shares of a file may be from 1 in sum: rounding."""


@dataclass(frozen=True, kw_only=True)
class RefineAudit(RefineDesign):
    """An audit of query refinement made but not begun: what it asks, and what the answers come to."""

    def outcome(self, run: str, results: Mapping[str, Ended], failures: Sequence[Failure]) -> Outcome:
        return outcome_of(self, run, results, failures)


def make_refine_design(settings: RefineSettings, subject: Subject = NOBODY) -> RefineAudit:
    """Loads what the settings name; the collection is indexed when it is first searched. Raises UsageError."""
    for model in settings.model:
        if model.partition(":")[0] in registry.names("ranker"):
            raise UsageError(
                f"-m {model}: refine asks a model for keywords, and {model} writes none.",
                f"--baseline {model.partition(':')[0]} holds refinement against it",
            )
    settings = replace(settings, prompt=settings.prompt or "refine")
    dataset = Collection(load_dataset(settings.dataset, given_of(settings)))
    attribute = named_attribute(dataset, settings.attribute, settings.mixed)
    queries = tuple(searched(query, settings.query_text) for query in selected_queries(dataset, settings))
    patience = patience_of(settings)
    engine = searching(settings, dataset, patience)
    first_stage = FirstStage(engine, dataset, settings.query_text, settings.depth)
    check_target(settings.target)
    objective = objective_of(settings)
    check_target(str(objective.arguments["target"]))
    k = int(objective.cutoff or 0)
    named = named_specs(settings.baseline, [*TARGET_KNOWN])
    specs = ((name, with_target(spec, str(objective.arguments["target"]))) for name, spec in named.items())
    baselines, warnings = made_baselines(specs, attribute, first_stage)
    products = PRODUCTS.format(k=k) * (settings.preset_name() == PRESET)
    usual = f"{SHOWN.format(k=k)}{products},{objective}"
    aimed, utility = aimed_at(parse_measure(f"AWRF@{k}"), settings.target), parse_measure(f"nDCG@{k}")
    gates = tuple(
        replace(gate, measure=str(aimed_at(parse_measure(gate.measure), settings.target)))
        for gate in read_gates(settings.require, [*TARGET_KNOWN, *(one.name for one in baselines)], Judged)
    )
    shown = measures_of(settings.measures or usual, settings.target)
    asked_for = measures_of(
        ",".join((usual, *map(str, shown), *(gate.measure for gate in gates))), settings.target
    )
    reranker = reranker_of(settings, dataset, attribute, first_stage)
    warnings += [f"--rerank {settings.rerank}: {said}" for said in (reranker.warnings if reranker else ())]
    design = RefineAudit(
        settings=settings,
        subject=subject,
        dataset=dataset,
        attribute=attribute,
        queries=queries,
        measures=tuple(dict.fromkeys((*shown, *asked_for))),
        shown=shown,
        gates=gates,
        prompt=load_prompt(str(settings.prompt), "refine"),
        engine=engine,
        patience=patience,
        objective=objective,
        aimed=aimed,
        utility=utility,
        reranker=reranker,
        baselines=baselines,
        warnings=tuple(warnings),
    )
    design.program  # noqa: B018  a prompt that lacks what is asked is said before anything else
    if not design.topics:
        raise UsageError(
            f"--target {settings.target} needs judgements, and no topic has a relevant document of groups to aim at.",
            "--target uniform, or a file of shares such as --target ./shares.json",
        )
    return design


def patience_of(settings: RefineSettings) -> Patience:
    """How long a search server is waited for: as long as a model's."""
    return Patience(settings.timeout, settings.retries, seconds(settings.max_wait), seconds(settings.outage))


def searching(settings: RefineSettings, dataset: Collection, patience: Patience) -> Engine:
    """The engine that the settings name. Raises UsageError, and as engines do."""
    given = (settings.engine_fields or "").split(",")
    fields = [field.strip() for field in given if field.strip()]
    analyzer = ANALYZERS[settings.analyzer]
    return engine_of(dataset, analyzer, settings.engine, settings.engine_url, fields, patience)


def reranker_of(
    settings: RefineSettings, dataset: Collection, attribute: Attribute, first_stage: FirstStage
) -> ScoringRanker | None:
    """Who orders the last page; None where the engine does, or nobody. Raises UsageError, and as rankers do."""
    spec = settings.rerank
    if spec in ("bm25", "none"):
        return None
    known = registry.names("ranker")
    if spec.partition(":")[0] not in known:
        raise UsageError(
            f"--rerank {spec} is unknown.{did_you_mean(spec, ['none', *known])}",
            f"known: none, {', '.join(known)}",
        )
    ranker = first_stage.ranker(spec, attribute)
    if not isinstance(ranker, ScoringRanker):
        raise UsageError(
            f"--rerank {spec}: {spec} gives an order and no scores, by which the last page is ordered.",
            f"--baseline {spec} holds refinement against it",
        )
    return ranker


def objective_of(settings: RefineSettings) -> Measure:
    """The measure that the loop improves, with the target aimed at. Raises UsageError for one that has none."""
    objective = parse_measure(settings.objective, Judged)
    hint = "KL@20, AWRF@20, or KL(direction=target-current)@20"
    if "target" not in objective.definition.params:
        raise UsageError(f"--objective {objective} has no target.", hint)
    if objective.definition.better not in ("lower", "higher"):
        raise UsageError(f"--objective {objective} has no direction in which it is better.", hint)
    if objective.cutoff is None:
        raise UsageError(
            f"--objective {objective} has no cutoff: how long is a page?", f"for example {objective}@20"
        )
    return aimed_at(objective, settings.target)


def check_target(target: str) -> None:
    """Raises UsageError for a file whose shares are not those of one page; names are checked where it is read."""
    if target in TARGETS:
        return
    if not re.search(r"[./]", target):
        raise UsageError(
            f"--target {target} is unknown.{did_you_mean(target, TARGETS)}",
            f"known: {', '.join(TARGETS)}, or a file as in ./shares.json",
        )
    if re.search(r"[,()]", target):
        raise UsageError(
            f"--target {target} has a comma or a bracket, which names of measures cannot hold.",
            "another name of the file, such as ./shares.json",
        )
    total = sum(read_shares(target).values())
    if abs(total - 1) > SUMS_TO_ONE:
        raise UsageError(f"{target}: the shares sum to {total:g}, not to 1.", 'write { "group": share, … }')


def aimed_at(measure: Measure, target: str) -> Measure:
    """The measure with this target, where it has one and names none."""
    named = dict(measure.params)
    if target == EMPIRICAL or "target" not in measure.definition.params or "target" in named:
        return measure
    params = ",".join(f"{name}={value}" for name, value in sorted({**named, "target": target}.items()))
    return parse_measure(
        f"{measure.name}({params})" + ("" if measure.cutoff is None else f"@{measure.cutoff:g}")
    )


def measures_of(names: str, target: str) -> tuple[Measure, ...]:
    """The measures of these names, each with the target where it names none."""
    return tuple(dict.fromkeys(aimed_at(measure, target) for measure in parse_measures(names, Judged)))
