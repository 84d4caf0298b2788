"""The figures of an audit of a generator again, from the files of its run folder alone. No model is asked."""

from __future__ import annotations

from llmfair.audits.aggregates import Inference, summarise
from llmfair.audits.design import Condition
from llmfair.audits.kind import results_of
from llmfair.audits.rag.design import GOLD
from llmfair.audits.rag.files import read_observations
from llmfair.audits.rag.outcome import CHANGE, DISPARITY, bounded, concluded
from llmfair.audits.run_files import Announce
from llmfair.audits.scoring import RemeasuredRun, ScoreFacts, facts_of, measures_of
from llmfair.metrics.base import measure_all
from llmfair.metrics.expected import Retrieved
from llmfair.rundir import RunDir
from llmfair.settings import ScoreSettings


def score_rag(run: RunDir, settings: ScoreSettings, announce: Announce) -> RemeasuredRun:
    """A run folder: the figures of its audit, unless others are asked for; before any answer those of what is shown.

    Raises UsageError.
    """
    results = results_of(run)
    design = results.design
    announce(run.path / "outputs.csv")
    observations = read_observations(run, results)
    measures, shown = measures_of(settings, results, Retrieved, [CHANGE, DISPARITY])
    if settings.measures is None and not any(
        one.output is not None for of in observations.values() for query in of for one in query.lists
    ):
        known = None if GOLD in observations else DISPARITY  # without labels nobody knows what is useful
        measures = [one for one in measures if one.definition.of_lists and known in (None, one.name)]
        shown = [name for name in shown if name in map(str, measures)]
    columns = measure_all(bounded(measures, design.utility), observations)
    rows = summarise(columns, Inference(level=settings.level, ci=settings.ci, seed=design.seed))
    conditions = [Condition(name, design.factors[name]) for name in observations]
    findings, rows = concluded(conditions, columns, rows, settings.level, design.margin)
    facts = facts_of(
        run,
        results,
        shown,
        {name: ScoreFacts(queries=len(of)) for name, of in observations.items()},
        columns,
        findings,
        sum(finding.p is not None for finding in findings.values()),
    )
    return RemeasuredRun(facts, rows, list(observations))
