"""The listwise audit: does a model, asked to order candidates, give both sides the same exposure?

The data's way: dataset -> probes -> one program per chain -> dispatch -> rankings -> measures -> intervals ->
run folder. Nothing goes back up.
"""

from __future__ import annotations

from llmfair.audits.answers import require_readable
from llmfair.audits.design import Design, make_design
from llmfair.audits.outcome import outcome_of
from llmfair.audits.running import (
    Result,
    Watch,
    ask,
    backend_of,
    is_ranker,
    limits_of,
    no_watch,
    session,
)
from llmfair.backends.base import Backend, NoBackend
from llmfair.dispatch import Progress
from llmfair.rankers.base import ScoringRanker
from llmfair.rankers.listwise import Ranked
from llmfair.rundir import RunDir, folder_name
from llmfair.settings import ListwiseSettings


def audit_listwise(settings: ListwiseSettings, model: str, watch: Watch = no_watch) -> Result:
    """Runs or continues one model's listwise audit; all of it ends in the run folder.

    Raises UsageError for wrong input, RunConflict for a folder of other settings, BackendError when the model
    cannot be asked, Incomplete when chains have no ranking (what there is, is written), and RequirementFailed
    when too many answers are unreadable (everything is written).
    """
    design = make_design(settings, model)
    backend = backend_for(design, model)
    identity = {"task": "listwise", "identity": backend.identity, **design.identity()}
    folder = RunDir(settings.output or settings.runs_dir / run_name(design, model, identity))
    progress = Progress()

    facts = {**design.describe(), "model": model}
    with session(folder, identity, settings.fresh, facts) as (journal, manifest):
        watched = watch(folder.path, design.calls, progress, limits_of(backend, settings).workers)
        answered = ask(design.programs(), backend, journal, settings, watched, progress, _unreadable)
        chains = [
            (probe, answered.results[probe.probe_id])
            for probe in design.probes()
            if probe.probe_id in answered.results
        ]
        outcome = outcome_of(design, folder.path.name, model, chains, answered.failures)
        folder.write_files(outcome.files)
        status = "complete" if answered.error is None else "incomplete"
        manifest |= {"status": status, "answers": outcome.results["answers"], **answered.facts()}
        manifest["invocations"][-1] |= answered.facts()
    if answered.error is not None:
        raise answered.error
    require_readable(outcome.results["answers"], settings.max_invalid)
    return Result(folder, outcome.results, outcome.rows)


def backend_for(design: Design, model: str) -> Backend:
    """What answers a design's chats; a ranker that asks none still says who it is."""
    ranker = design.ranker
    if isinstance(ranker, ScoringRanker):
        return NoBackend(ranker.identity)
    return backend_of(model, design.settings)


def run_name(design: Design, model: str, identity: dict[str, object]) -> str:
    """The name of the run's folder, derived from its settings."""
    return folder_name(("listwise", *design.name_parts(), model.removeprefix("openai:")), identity)


def check_models(settings: ListwiseSettings) -> None:
    """Raises UsageError for a model that cannot be named, before any other is asked."""
    for model in settings.model:
        if not is_ranker(model):
            backend_of(model, settings)


def _unreadable(ranked: Ranked) -> int:
    return sum(window.unreadable for window in ranked.windows)
