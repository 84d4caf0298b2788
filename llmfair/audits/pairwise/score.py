"""The figures of a pairwise audit again, from its verdicts alone. No model is asked."""

from __future__ import annotations

from llmfair.audits.aggregates import Inference
from llmfair.audits.kind import results_of
from llmfair.audits.pairwise.design import concluded_of
from llmfair.audits.pairwise.measure import HowAsked, measure_verdicts, read_verdicts
from llmfair.audits.run_files import Announce
from llmfair.audits.scoring import RemeasuredRun, ScoreFacts, check_settings, facts_of, measures_of
from llmfair.errors import UsageError
from llmfair.io.files import AGAIN
from llmfair.metrics.pairs import JudgedPairs
from llmfair.nouns import PairVerdict
from llmfair.rundir import RunDir
from llmfair.settings import ScoreSettings, band_of
from llmfair.stats.sequential import Decision


def score_pairs(run: RunDir, settings: ScoreSettings, announce: Announce) -> RemeasuredRun:
    """A folder of pairs: the figures of its audit, unless others are asked for. Raises UsageError."""
    results = results_of(run)
    design = results.design
    check_settings(run, results, ("seed", "conditions", "repeats"))
    if settings.attribute not in (None, results.attribute):
        raise UsageError(
            f"{run.path} asked about pairs by {results.attribute}, not by {settings.attribute}.",
            f"llmfair pairwise -a {settings.attribute} asks about those",
        )
    announce(run.path / "verdicts.csv")
    by_stratum: dict[str, list[PairVerdict]] = {stratum: [] for stratum in design.conditions}
    for verdict in read_verdicts(run.path / "verdicts.csv"):
        by_stratum.setdefault(verdict.stratum, []).append(verdict)
    for stratum, verdicts in by_stratum.items():
        pairs = results.chains[stratum].ranked if stratum in results.chains else 0
        if len(verdicts) != pairs:
            raise UsageError(
                f"{run.path / 'verdicts.csv'} has {len(verdicts)} of the run's {pairs} verdicts on {stratum} pairs.",
                AGAIN,
            )
    decided = {stratum: one.decision and Decision(one.decision) for stratum, one in results.stopping.items()}
    measures, shown = measures_of(settings, results, JudgedPairs, [concluded_of(design.weights)])
    how = HowAsked(
        Inference(level=settings.level, seed=design.seed),
        band_of(settings.band),
        design.repeats,
        design.constrained and not any(answers.unformed for answers in results.answers.values()),
        decided or None,
        results.max_invalid,
        not design.prompted,
    )
    measured = measure_verdicts(measures, by_stratum, how)
    conditions = {
        stratum: ScoreFacts(queries=len({verdict.query_id for verdict in verdicts}), pairs=len(verdicts))
        for stratum, verdicts in by_stratum.items()
    }
    facts = facts_of(run, results, shown, conditions, measured.columns, measured.findings, measured.family)
    return RemeasuredRun(facts, measured.rows, list(by_stratum))
