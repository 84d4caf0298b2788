"""The verdict of a training: is the preference gone on queries that it never saw, and is nothing else lost?"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from llmfair.audits.commands import SHARED_WITH_TRAINING
from llmfair.audits.pairwise.outcome import HEADLINE
from llmfair.audits.verdict import Case, Conclusions, VerdictWords, listed
from llmfair.nouns import Conclusion
from llmfair.report.reasons import in_words
from llmfair.report.tables import count
from llmfair.results import RunVerdict, absent_row
from llmfair.settings import FinetuneSettings
from llmfair.tuning.effects import PAIR_STRATA
from llmfair.tuning.outcome import ADAPTER
from llmfair.tuning.results import FinetuneResults
from llmfair.tuning.safeguards import missed

REPAIRED, REJECTED, INCONCLUSIVE = STATUSES = ("repaired", "rejected", "inconclusive")
GRAVEST = (Conclusion.OUTSIDE, Conclusion.NOT_ASSESSABLE, Conclusion.INCONCLUSIVE, Conclusion.WITHIN)
OTHERWISE = "another --labels or --anchor, or a lower --learning-rate"


def judged(results: FinetuneResults, audited: str) -> FinetuneResults:
    """The results with their verdict."""
    return replace(results, verdict=verdict_of(results, audited))


def verdict_of(results: FinetuneResults, audited: str) -> RunVerdict:
    """Rejected where a gate is not kept or the preference is still there, repaired where all odds lie in the band.

    `audited` is the command that audits the adapter.
    """
    rows = {
        (row.measure, row.condition): row for row in results.rows if row.model == ADAPTER and not row.group
    }
    known = results.findings[ADAPTER]
    found = Conclusions(
        task="pairwise", run=results.run, dataset=results.dataset, attribute=results.attribute, model=results.model,
        words=results.words, level=results.level, band=results.band, measures=[HEADLINE],
        conditions=[kind for kind in PAIR_STRATA if kind in known], findings=known, figures=rows,
    )  # fmt: skip
    cases = [Case(found, kind, known[kind]) for kind in found.conditions]
    gravest = min(cases, key=lambda case: GRAVEST.index(case.finding.conclusion), default=None)
    status, why = _status(results, gravest)
    few = "" if gravest is None else VerdictWords("").caution(gravest)
    figure = absent_row(HEADLINE, "") if gravest is None else gravest.figure or absent_row(HEADLINE, "")
    return RunVerdict(
        status=status,
        sentence=f"{why}; {_measured(results, cases)}{few}",
        next=_next(results, status, gravest, audited),
        condition=None if gravest is None else gravest.condition,
        measure=HEADLINE,
        group=_behind(gravest),
        estimate=figure.value,
        low=figure.low,
        high=figure.high,
        n=figure.n,
    )


def audit_of(settings: FinetuneSettings, model: str, folder: Path) -> str:
    """The command line that audits the adapter on the queries that it never saw."""
    return (
        f"llmfair pairwise -m {shlex.quote(model)} --adapter {shlex.quote(str(folder))} "
        f"--queries {shlex.quote(f'@{folder}/test-queries.txt')} --answers margin --form {settings.form} "
        + settings.as_flags(SHARED_WITH_TRAINING)
    ).rstrip()


def _status(results: FinetuneResults, gravest: Case | None) -> tuple[str, str]:
    """The status, and why it is this one."""
    if results.training.rejected:
        return REJECTED, str(results.training.why).rstrip(".")
    if lost := missed(results.gates_on_test):
        return REJECTED, f"gates are not kept on the test queries: {lost}"
    if gravest is None:
        return INCONCLUSIVE, "nothing was measured"
    of = f"{gravest.condition} pairs"
    match gravest.finding.conclusion:
        case Conclusion.OUTSIDE:
            return REJECTED, f"all gates are kept, but the odds of {of} still lie outside {gravest.band}"
        case Conclusion.WITHIN:
            return REPAIRED, f"all intervals of the odds lie in {gravest.band}, and all gates are kept"
        case Conclusion.INCONCLUSIVE:
            return (
                INCONCLUSIVE,
                f"all gates are kept, but the interval of {of} crosses an edge of {gravest.band}",
            )
    why = in_words(gravest.finding.reason, gravest.finding.measure)
    return INCONCLUSIVE, f"all gates are kept, but nothing can be said of {of}: {why}"


def _measured(results: FinetuneResults, cases: list[Case]) -> str:
    """The odds after training, of every kind of pairs."""
    queries = count(results.design.split["test"], "query that was", "queries that were")
    odds = listed([f"{case.interval} of {case.condition} pairs" for case in cases] or ["undefined"])
    return f"preference odds on {queries} not trained on: {odds} ({results.level * 100:g} % CI)"


def _behind(case: Case | None) -> str | None:
    """The group that is still at a disadvantage."""
    if case is None or case.groups is None or case.finding.conclusion is not Conclusion.OUTSIDE:
        return None
    return case.groups[0]


def _next(results: FinetuneResults, status: str, gravest: Case | None, audited: str) -> str:
    if results.training.rejected:
        return f"what came nearest is in rejected/; try {OTHERWISE}"
    if status == REJECTED:
        return f"try {OTHERWISE}"
    if gravest is not None and gravest.finding.conclusion == Conclusion.INCONCLUSIVE:
        return f"{VerdictWords('').settle(gravest)}; a lower --train-share leaves more to measure on"
    return audited or "llmfair pairwise with --adapter audits it"
