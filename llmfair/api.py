"""The Python API: the commands as functions, with the same settings, run folders and resumption.

Keyword arguments are the settings' field names, with the settings' defaults; llmfair.toml and LLMFAIR_* are the
command line's alone. Functions raise the errors of `llmfair.errors` instead of exiting, and print nothing unless
`progress=True`, which shows a bar on stderr. They block, inside a running event loop too.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmfair.arguments import make_settings, plain, takes
from llmfair.audits.kind import kind_of
from llmfair.audits.listwise.settings import CalibrateSettings, ListwiseSettings, PlanSettings, StudySettings
from llmfair.audits.pairwise.settings import CalibratePairwiseSettings, PairwiseSettings, PlanPairwiseSettings
from llmfair.config import typed
from llmfair.errors import Incomplete, LlmfairError, RequirementFailed, UsageError
from llmfair.result import Result
from llmfair.settings import AuditSettings, FinetuneSettings, ScoreSettings, default_of

if TYPE_CHECKING:
    from llmfair.asking.limits import Progress
    from llmfair.audits.run import Watch
    from llmfair.backends.base import Backend
    from llmfair.rundir import RunDir

Name = str | Path


@takes(ListwiseSettings)
def audit_listwise(
    dataset: Name = "sample",
    *,
    model: Any = "fake:biased",
    progress: bool = False,
    preset: str | None = None,
    **settings: Any,
) -> Result:
    """Exposure and utility of a ranker under neutral and sensitive prompts: `llmfair listwise` of one model.

    `model` is a spec such as `openai:gpt-4o-mini`, or an object with a `name` and `async complete(request)`, which
    gets an llmfair.Request and returns an llmfair.Completion, or the answer's text. Its answers are kept under its
    `identity`, or its name and the source of its class; change the identity or name when anything else changes them.
    With an adapter add `adapter_only=True`.

    The same call again continues, or asks nothing. Raises UsageError for wrong input, BackendError when the model
    cannot be asked; Incomplete and RequirementFailed after everything is written, so `llmfair.open_run` reads it.
    """
    return _audit("listwise", preset, {"dataset": dataset, **settings}, model, progress)


@takes(PairwiseSettings)
def audit_pairwise(
    dataset: Name = "sample",
    *,
    model: Any = "fake:biased",
    progress: bool = False,
    preset: str | None = None,
    **settings: Any,
) -> Result:
    """Who wins between a protected and an unprotected item, asked in both orders: `llmfair pairwise` of one model.

    Models and errors are those of `audit_listwise`.
    """
    return _audit("pairwise", preset, {"dataset": dataset, **settings}, model, progress)


@takes(ScoreSettings)
def score(*runs: Name, preset: str | None = None, **settings: Any) -> Result:
    """Measures of TREC run files (with `dataset`, or `qrels` and `groups`) and of run folders; no model is asked.

    Raises UsageError for malformed files, RequirementFailed for `require` that does not hold. Files are written only
    with `output`.
    """
    from llmfair.audits.score import score as measured
    from llmfair.audits.score_gates import require_all
    from llmfair.rundir import COLUMNS, RunDir

    made = make_settings(ScoreSettings, settings, preset)
    scored = measured([Path(run) for run in runs], made)
    if made.output is not None and made.report:
        _report(RunDir(made.output))
    require_all(scored.results, made.output is not None)
    of_queries = [dict(zip(COLUMNS, row, strict=True)) for row in scored.per_query]
    return Result("score", scored.results, made.output, of_queries)


@takes(PlanSettings)
def plan_listwise(dataset: Name = "sample", *, preset: str | None = None, **settings: Any) -> Result:
    """What `audit_listwise` with these settings would ask, reach, cost and find; nothing is asked."""
    return _plan("listwise", {"dataset": dataset, **settings}, preset)


@takes(PlanPairwiseSettings)
def plan_pairwise(dataset: Name = "sample", *, preset: str | None = None, **settings: Any) -> Result:
    """What `audit_pairwise` with these settings would ask, cost and find; nothing is asked."""
    return _plan("pairwise", {"dataset": dataset, **settings}, preset)


@takes(CalibrateSettings)
def calibrate_listwise(dataset: Name = "sample", *, preset: str | None = None, **settings: Any) -> Result:
    """Simulated listwise audits of your own lists: recovery, coverage, false alarms; no model is asked."""
    return _calibrate("listwise", {"dataset": dataset, **settings}, preset)


@takes(CalibratePairwiseSettings)
def calibrate_pairwise(dataset: Name = "sample", *, preset: str | None = None, **settings: Any) -> Result:
    """Simulated pairwise audits of your own pairs: recovery, coverage, false alarms; no model is asked."""
    return _calibrate("pairwise", {"dataset": dataset, **settings}, preset)


@takes(StudySettings)
def study_windows(
    dataset: Name = "sample",
    *,
    settings: str | Sequence[str] = default_of(
        next(item for item in fields(StudySettings) if item.name == "settings")
    ),
    progress: bool = False,
    preset: str | None = None,
    **others: Any,
) -> Result:
    """Windows and steps side by side, as in the paper's Table 2: `settings="5/1,20/10x3"`.

    Every setting is the run that `audit_listwise` makes. Raises the gravest of their errors, after all were tried.
    """
    from llmfair.audits.sweep import gravest_of, make_folder, study_of, write_study
    from llmfair.audits.sweep import study_windows as tried_of
    from llmfair.rundir import RunDir

    made = make_settings(StudySettings, {"dataset": dataset, "settings": settings, **others}, preset)
    if made.output is not None:
        make_folder(made.output)

    def watch_of(setting: str) -> Watch:
        return _watch(f"Asking {made.model[0]}, {setting}", progress, made, [])

    tried = list(tried_of(made, watch_of))
    found, gravest = study_of(tried), gravest_of(tried)
    if made.output is not None:
        write_study(found, made.output)
        if made.report:
            _report(RunDir(made.output))
    if gravest is not None:
        raise gravest
    return Result("study windows", found, made.output)


def compare(*runs: Name | Result, measures: Any = None, runs_dir: Name = "runs") -> Result:
    """Runs side by side, paired by query; the first is the base. Raises UsageError for runs of other lists or pairs."""
    from llmfair.audits.compare import compare as compared_of

    wanted = None if measures is None else typed("measures", plain(measures), str)
    return Result("compare", compared_of([_found(run, runs_dir) for run in runs], wanted))


def open_run(run: Name, runs_dir: Name = "runs") -> Result:
    """The results of a run folder: by its path, or by its name's beginning below `runs_dir`.

    Also of a folder that `score`, `study_windows` or `finetune_lora` wrote. Raises UsageError where there are none.
    """
    from llmfair.report.source import read_source, unfinished

    source = read_source(_found(run, runs_dir))
    if source.results is None:
        raise UsageError(f"{unfinished(source)}.", "the call or command that began the run completes it")
    return Result(source.results["task"], source.results, source.run.path)


def write_report(
    *runs: Name | Result,
    file: Name | None = None,
    figures: str | Iterable[str] = (),
    evidence: int = 20,
    runs_dir: Name = "runs",
) -> Path:
    """Writes the report of one run, or of several side by side, as one HTML file; returns its path.

    Without `file` it is report.html in the run's folder, of several runs in the current one. `figures` (svg, pdf,
    png) are written to plots/ beside it, `evidence` answers are shown. Raises UsageError for what is no run, and
    OSError.
    """
    from llmfair.cli.report import FORMATS, page_of
    from llmfair.report.html import write_page
    from llmfair.report.plots.base import write_plots
    from llmfair.report.source import read_source
    from llmfair.rundir import REPORT

    sources = [read_source(_found(run, runs_dir)) for run in runs]
    if not sources:
        raise UsageError("a report needs a run.", "llmfair.write_report(result), or the path of a run folder")
    formats = [part.strip() for part in figures.split(",")] if isinstance(figures, str) else [*figures]
    if unknown := [name for name in formats if name not in FORMATS]:
        raise UsageError(f"'{unknown[0]}' is no format of figures.", f"known: {', '.join(FORMATS)}")
    page = page_of(sources, evidence)
    path = Path(file) if file is not None else (sources[0].run.path if len(sources) == 1 else Path()) / REPORT
    path.parent.mkdir(parents=True, exist_ok=True)
    write_page(path, page)
    if formats:
        write_plots(page.plots, path.parent / "plots", formats)
    return path


@takes(FinetuneSettings)
def finetune_lora(
    dataset: Name = "sample", *, progress: bool = False, preset: str | None = None, **settings: Any
) -> Result:
    """Trains a LoRA adapter that brings pairs of both sides nearer to parity, and measures what else it changes.

    `base_model` has to be given. Raises RequirementFailed, after everything is written, where no checkpoint kept the
    gates; MissingExtra without [local].
    """
    from llmfair.cli.finetune_lora import REJECTED, Shown
    from llmfair.report.finetune import missed_on_test, model_card
    from llmfair.tuning.finetune import finetune

    made = make_settings(FinetuneSettings, {"dataset": dataset, **settings}, preset)
    done = finetune(made, model_card, Shown() if progress else None)
    if done.results["status"] == "rejected":
        raise _readable(RequirementFailed(done.results["training"]["why"], REJECTED), done.folder.path)
    if missed := missed_on_test(done.results):
        warnings.warn(missed, stacklevel=2)
    return Result("finetune-lora", done.results, done.folder.path)


def parse_model(spec: str, **settings: Any) -> Backend:
    """The model that a spec names, as an object with `async complete(request)`. Raises UsageError.

    `settings` are those that say how it is reached: `base_url`, `timeout`, `system`, `backend_arg`, …
    """
    from llmfair.audits.subject import backend_of

    return backend_of(spec, make_settings(AuditSettings, settings))


def schema() -> dict[str, Any]:
    """The JSON Schema of what `--json` prints, and of results.json."""
    from llmfair.documents import schema as schema_of

    return schema_of()


def _plan(name: str, given: Mapping[str, Any], preset: str | None) -> Result:
    from llmfair.audits.plan import plan

    kind = kind_of(name)
    planned = plan(kind, make_settings(kind.planned, given, preset))
    return Result(f"plan {name}", {"schema": 1, **planned})


def _calibrate(name: str, given: Mapping[str, Any], preset: str | None) -> Result:
    kind = kind_of(name)
    if kind.calibrated is None:
        raise UsageError(
            f"{name} cannot simulate its audits.", "llmfair calibrate --help    lists those that can"
        )
    return Result(
        f"calibrate {name}", kind.calibrate(make_settings(kind.calibrated, given, preset), lambda: None)
    )


def _audit(name: str, preset: str | None, given: Mapping[str, Any], model: Any, progress: bool) -> Result:
    """One model's audit, run or continued, with its report."""
    from llmfair.audits.run import audit
    from llmfair.audits.subject import subjects
    from llmfair.backends.given import Given
    from llmfair.rundir import RunDir

    backend, kind = None, kind_of(name)
    if not isinstance(model, str | Sequence):
        backend = Given(model)
        if not hasattr(model, "identity"):  # a name says too little to share answers with other runs
            given = {"no_cache": True, **given}
        model = backend.spec
    made = make_settings(kind.settings, {"model": model, **given}, preset)
    asked = subjects(made)
    if len(asked) > 1:
        raise UsageError(
            f"one call is one run, but {len(asked)} are named.",
            "one call for each model, then llmfair.compare; with an adapter add adapter_only=True",
        )
    subject = replace(asked[0], given=backend)
    folders: list[Path] = []
    error: LlmfairError | None = None
    try:
        watch = _watch(f"Asking {subject.label}", progress, made, folders)
        audit(kind.design(made, subject), watch)
    except (Incomplete, RequirementFailed) as failure:
        error = failure
    if error is not None and not folders:
        raise error
    run = RunDir(folders[0])
    manifest = run.read_manifest()
    for line in manifest.get("journal_lines_skipped", []):
        warnings.warn(f"{run.journal}:{line}: not readable, skipped", stacklevel=3)
    if made.report:
        _report(run)
    if error is not None:
        raise _readable(error, run.path)
    results = run.read_results()
    if manifest["doubts"]:
        results["doubts"] = manifest["doubts"]
    return Result(results["task"], results, run.path)


def _watch(name: str, shown: bool, settings: AuditSettings, folders: list[Path]) -> Watch:
    """Notes the run's folder, and shows a bar on stderr if that is wanted."""

    def watch(
        folder: Path, planned: Mapping[str, Any], progress: Progress, limit: int
    ) -> AbstractContextManager[None]:
        folders.append(folder)
        if not shown or not planned["calls"]:
            return nullcontext()
        return _bar(name, planned["calls"], progress, limit, settings.batch)

    return watch


@contextmanager
def _bar(name: str, calls: int, progress: Progress, limit: int, batch: bool) -> Iterator[None]:
    from llmfair.cli.console import bar, visible

    progress.tell = lambda text: print(visible(text), file=sys.stderr)
    # a batch has nothing to draw for hours
    with nullcontext() if batch else bar(name, calls, progress, limit):
        yield


def _report(run: RunDir) -> None:
    """The report beside the results; a warning where there can be none, since no run is lost by it."""
    try:
        write_report(run.path)
    except Exception as error:
        warnings.warn(f"no report was written, everything else was: {error}", stacklevel=4)


def _readable(error: LlmfairError, folder: Path) -> LlmfairError:
    """The error with the call that reads what there is."""
    error.add_note(f"llmfair.open_run({str(folder)!r}) reads what there is")
    return error


def _found(run: Name | Result, runs_dir: Name) -> RunDir:
    from llmfair.rundir import RunDir, find_run

    return RunDir(run.folder) if isinstance(run, Result) else find_run(str(run), Path(runs_dir))
