"""Remedies for a finished run: each tried, measured on the same queries, and held against the unmitigated rankings.

The data's way: a run folder -> rankings -> each remedy's rankings, with no call or from an audit of its own in a run
folder of its own -> figures -> changes, paired by query -> the front and the verdict -> the output folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from llmfair import registry
from llmfair.asking.limits import Progress
from llmfair.audits.comparing import ComparedRun
from llmfair.audits.kind import results_of
from llmfair.audits.listwise.score import of_folder
from llmfair.audits.plan import plan
from llmfair.audits.runs.run import Spending, Watch, perform
from llmfair.errors import LlmfairError, UsageError, warn
from llmfair.io import secrets
from llmfair.io.files import SCHEMA
from llmfair.metrics.base import Judged
from llmfair.mitigation.outcome import (
    NOT_HERE,
    Tried,
    answers_of,
    document_of,
    measured,
    outcome_of,
    write,
)
from llmfair.mitigation.remedies import (
    SECRET,
    Asking,
    Audit,
    Orders,
    Remedy,
    Reordering,
    Unmitigated,
    unmitigated,
)
from llmfair.mitigation.results import (
    MitigationPlan,
    MitigationResults,
    RemedyPlanned,
)
from llmfair.results import ErrorDocument
from llmfair.rundir import MITIGATION, RunDir
from llmfair.settings import AuditSettings, MitigateSettings, ScoreSettings
from llmfair.settings.asking import SpendingSettings
from llmfair.settings.declaration import WRITTEN

FIRST = ("named-prompt", "fair-prompt", "consensus", "offset", "fair-star", "greedy", "fair-qr", "lora")
"""The order in which remedies are told; others follow by name."""


@dataclass(frozen=True)
class Mitigated:
    """What the remedies came to, the folder that has it, and the gravest error of those that asked."""

    results: MitigationResults
    folder: Path
    error: LlmfairError | None


def mitigate(run: RunDir, settings: MitigateSettings, watch_of: Callable[[str], Watch]) -> Mitigated:
    """Tries the remedies and writes what they come to.

    `watch_of(remedy)` shows each that asks. A remedy that this run or machine lacks something for is told, and no
    error. Raises UsageError for what is no complete listwise run, for an unknown remedy and malformed parameters.
    """
    base, remedies = _begun(run, settings)
    folder = settings.output or run.path / MITIGATION
    run.refuse_links()
    RunDir(folder).refuse_run()
    spending = Spending()
    tried = [_try(base, spec, remedy, spending, watch_of(spec)) for spec, remedy in remedies.items()]
    results, rows = outcome_of(base, tried, answers_of(_compared(run), base.condition), folder)
    results = write(folder, results, rows, {of.spec: of.orders for of in tried if of.orders is not None})
    errors = []
    for of in tried:
        if of.failed and of.error is not None:
            of.error.message = f"{of.spec}: {of.error.message}"
            errors.append(of.error)
    return Mitigated(results, folder, max(errors, key=lambda error: error.exit_code, default=None))


def plan_mitigation(run: RunDir, settings: MitigateSettings) -> MitigationPlan:
    """What each remedy would ask; nothing is asked or written. Raises UsageError as `mitigate` does."""
    base, remedies = _begun(run, settings)
    planned = [_planned(base, spec, remedy) for spec, remedy in remedies.items()]
    return MitigationPlan(
        schema=SCHEMA,
        task="mitigate",
        run=str(run.path),
        calls=sum(one.calls or 0 for one in planned),
        remedies=planned,
    )


def _begun(run: RunDir, settings: MitigateSettings) -> tuple[Unmitigated, dict[str, Remedy]]:
    """The run and its remedies, after what the run says of whom to ask is told: somebody else may have made it."""
    base, remedies = unmitigated(run, settings), remedies_of(settings)
    if any(isinstance(remedy, Asking) for remedy in remedies.values()):
        items = (item for item in fields(base.settings) if item.metadata["effect"] is not WRITTEN)
        values = {item.name: getattr(base.settings, item.name) for item in items}
        if effects := base.settings.effects(values | {"model": (base.model,)}):
            warn(f"{run.manifest} sets what reaches beyond the run folder: {'; '.join(effects)}.")
    return base, remedies


def remedies_of(settings: MitigateSettings) -> dict[str, Remedy]:
    """The remedies asked for, or all. Raises UsageError for an unknown one, and for parameters it does not take."""
    every = sorted(
        registry.names("remedy"), key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST)
    )
    found: dict[str, Remedy] = {}
    for spec in settings.remedy or every:
        name, _, parameters = spec.partition(":")
        try:
            remedy: Remedy = registry.lookup("remedy", name)(parameters)
        except UsageError as error:
            raise UsageError(f"--remedy {spec}: {error.message}", error.hint) from None
        if not (settings.free and remedy.asks):
            found[spec] = remedy
    if not found:
        raise UsageError("--free leaves no remedy: all that are named ask a model.", "leave --free out")
    return found


def _try(base: Unmitigated, spec: str, remedy: Remedy, spending: Spending, watch: Watch) -> Tried:
    tried = Tried(spec, remedy)
    try:
        if isinstance(remedy, Asking):
            return _asked(tried, base, remedy.audit(base), spending, watch)
        assert isinstance(remedy, Reordering)
        made = remedy.apply(base)
        orders, calls = base.completed(made.orders), remedy.calls(base)
    except LlmfairError as error:
        return replace(tried, error=error)
    condition = getattr(remedy, "condition", None)  # where the answers are the run's own
    answers = None if condition is None else answers_of(_compared(base.run), condition(base))
    figures = measured(spec, base.all_judged(orders), made.halves, answers=answers)
    return replace(tried, found=figures, orders=orders, calls=calls, remarks=made.remarks)


def _asked(tried: Tried, base: Unmitigated, audit: Audit, spending: Spending, watch: Watch) -> Tried:
    """A remedy whose audit is run, or continued; what is written already is not asked again."""
    begun: list[Path] = []

    def seeing(
        folder: Path, planned: Mapping[str, Any], progress: Progress, limit: int
    ) -> AbstractContextManager[None]:
        begun.append(folder)
        return watch(folder, planned, progress, limit)

    try:
        with spending.run(_settings_of(base, audit), audit.subject, seeing) as (left, noting):
            written = perform(audit.kind.design(left, audit.subject), noting)
        if written.error is not None:
            raise written.error
    except LlmfairError as error:
        return replace(tried, run=begun[0] if begun and begun[0].is_dir() else None, error=error)
    run = written.folder
    compared = _compared(run)
    orders: Orders
    if audit.own_lists:
        pages = [
            page
            for page in audit.kind.observations(run)[audit.condition]
            if isinstance(page, Judged) and page.query_id in base.orders
        ]
        judged, answers = pages, None
        orders = {page.query_id: page.rankings for page in pages}
    else:
        if run.read_manifest().settings["lists_sha256"] != base.manifest.settings["lists_sha256"]:
            raise UsageError(
                "the lists are not what they were at the time of the run.",
                f"{base.again()}    audits them as they are now",
            )
        files = of_folder(run, ScoreSettings(), lambda path: None).conditions[audit.condition]
        orders = base.completed({query: [file.rankings[query] for file in files] for query in base.orders})
        judged, answers = base.all_judged(orders), answers_of(compared, audit.condition)
    return replace(
        tried,
        found=measured(tried.spec, judged, own_lists=audit.own_lists, answers=answers),
        orders=orders,
        calls=compared.results.calls,
        cost=compared.manifest.cost,
        run=run.path,
        remarks=audit.remarks,
    )


def _settings_of(base: Unmitigated, audit: Audit) -> AuditSettings:
    """The audit's settings in the run folder that its own command would take, with the budget of this command.

    Raises UsageError where they lack a secret.
    """
    for name in SECRET:
        if lacks := next((one for one in getattr(audit.settings, name) if secrets.HIDDEN in one), None):
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"the run was asked with {flag} {lacks}, and no run folder keeps what is secret.",
                f"give it again: llmfair mitigate {base.run.path} {flag} …",
            )
    budget = {item.name: getattr(base.chosen, item.name) for item in fields(SpendingSettings)}
    return replace(
        audit.settings,
        **budget | {"dry_run": False, "batch": False, "output": None, "runs_dir": base.run.path.parent},
        model=(audit.subject.spec,),
        measures=None,
        require=(),
        fail_on=None,
        junit=None,
        label=None,
        fresh=False,
        report=False,
    )


def _compared(run: RunDir) -> ComparedRun:
    return ComparedRun("", run, run.read_manifest(), results_of(run))


def _planned(base: Unmitigated, spec: str, remedy: Remedy) -> RemedyPlanned:
    counts: dict[str, Any] = {"calls": 0, "answered": 0, "folder": None}
    error = None
    try:
        if isinstance(remedy, Asking):
            audit = remedy.audit(base)
            planned = plan(audit.kind, _settings_of(base, audit))
            counts = {key: planned[key] for key in counts}
            if planned["unready"]:
                error = ErrorDocument(kind="MissingKey", message=planned["unready"][0], hint="")
        else:
            assert isinstance(remedy, Reordering)
            remedy.apply(base)
    except NOT_HERE as absent:
        counts, error = dict.fromkeys(counts), document_of(absent)
    return RemedyPlanned(remedy=spec, title=remedy.title, **counts, error=error)
