"""The figures of an audit of query refinement again, from the files of its run folder alone. No model is asked."""

from __future__ import annotations

from llmfair.audits.aggregates import Inference, summarise
from llmfair.audits.kind import results_of
from llmfair.audits.refine.files import read_observations
from llmfair.audits.refine.outcome import concluded
from llmfair.audits.refine.results import RefineResults
from llmfair.audits.run_files import Announce
from llmfair.audits.scoring import RemeasuredRun, ScoreFacts, facts_of, measures_of
from llmfair.errors import UsageError
from llmfair.metrics.base import Judged, measure_all
from llmfair.rundir import RunDir
from llmfair.settings import ScoreSettings


def score_refine(run: RunDir, settings: ScoreSettings, announce: Announce) -> RemeasuredRun:
    """A run folder: the figures of its audit, unless others are asked for. Raises UsageError."""
    results: RefineResults = results_of(run)
    if settings.attribute not in (None, results.attribute):
        raise UsageError(
            f"{run.path} was refined by {results.attribute}, not by {settings.attribute}.",
            f"llmfair refine -a {settings.attribute} asks about that",
        )
    design = results.design
    announce(run.path / "rankings")
    observations = read_observations(run, results)
    goals = (design.objective, design.aimed, design.utility)
    measures, shown = measures_of(settings, results, Judged, goals)
    columns = measure_all(measures, observations)
    inference = Inference(level=settings.level, seed=design.seed)
    rows, findings, family = concluded(columns, summarise(columns, inference), goals, inference)
    conditions = {name: ScoreFacts(queries=len(of)) for name, of in observations.items()}
    facts = facts_of(run, results, shown, conditions, columns, findings, family)
    return RemeasuredRun(facts, rows, list(observations))
