"""The Python API: the commands as functions, with the same settings, run folders and resumption.

Keyword arguments are the settings' field names, with the settings' defaults; llmfair.toml and LLMFAIR_* are the
command line's alone. Functions raise the errors of `llmfair.errors` instead of exiting, and print nothing unless
`progress=True`, which shows a bar on stderr. They block, inside a running event loop too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmfair import registry
from llmfair.arguments import defaults_of, make_settings, takes
from llmfair.audits.kind import Kind, kind_of, studies
from llmfair.audits.study import Study
from llmfair.errors import LlmfairError, RequirementFailed, UsageError
from llmfair.result import Result
from llmfair.settings import (
    AuditSettings,
    FinetuneSettings,
    MitigateSettings,
    RerankSettings,
    ScoreSettings,
    value_of,
)

if TYPE_CHECKING:
    from llmfair.asking.limits import Progress
    from llmfair.audits.runs.run import Watch
    from llmfair.backends.base import Backend
    from llmfair.rundir import RunDir

Name = str | Path
Runs = Name | Result | Iterable[Name | Result]
"""A run by its path or name, by the result of the call that made it; or several of them."""


AUDIT = """
    `model` is a spec such as `openai:gpt-4o-mini`, or an object with a `name` and `async complete(request)`, which
    gets an llmfair.Request and returns an llmfair.Completion, or the answer's text. Its answers are kept under its
    `identity`, or its name and the source of its class; change the identity or name when anything else changes them.
    With an adapter add `adapter_only=True`. `ranker`, in the place of a model that is asked in words: a function of
    (query, documents) that returns scores or the documents in order, plain or async, or an object with `rerank` or
    `rank`.

    The same call again continues, or asks nothing. Raises UsageError for wrong input, BackendError when the model
    cannot be asked; Incomplete and RequirementFailed after everything is written, so `llmfair.open_run` reads it.
    """

STUDY = """
    Raises the gravest of the settings' errors, after all were tried.
    """


def _audit_of(kind: Kind) -> Callable[..., Result]:
    usual = defaults_of(kind.settings)

    def call(
        dataset: Name = usual["dataset"],
        *,
        model: Any = usual["model"][0],
        ranker: Any = None,
        progress: bool = False,
        preset: str | None = None,
        **settings: Any,
    ) -> Result:
        return _audit(kind, preset, {"dataset": dataset, **settings}, model, ranker, progress)

    call.__doc__ = f"{kind.help().does} `llmfair {kind.name}` of one model.\n{AUDIT}"
    return takes(kind.settings)(call)


def _plan_of(kind: Kind) -> Callable[..., Result]:
    usual = defaults_of(kind.plan_settings)

    def call(dataset: Name = usual["dataset"], *, preset: str | None = None, **settings: Any) -> Result:
        from llmfair.audits.plan import plan

        planned = plan(kind, make_settings(kind.plan_settings, {"dataset": dataset, **settings}, preset))
        return Result(f"plan {kind.name}", planned)

    call.__doc__ = f"{kind.help('plan').does}\n    "
    return takes(kind.plan_settings)(call)


def _calibrate_of(kind: Kind) -> Callable[..., Result]:
    if kind.calibrated is None:
        raise AttributeError(f"{kind.name} cannot simulate its audits")
    calibrated = kind.calibrated

    def call(dataset: Name = "sample", *, preset: str | None = None, **settings: Any) -> Result:
        made = make_settings(calibrated, {"dataset": dataset, **settings}, preset)
        return Result(f"calibrate {kind.name}", kind.calibrate(made, lambda: None))

    call.__doc__ = f"{kind.help('calibrate').does}\n    "
    return takes(calibrated)(call)


def _study_of(kind: Kind, study: Study) -> Callable[..., Result]:
    def call(
        dataset: Name = "sample", *, progress: bool = False, preset: str | None = None, **others: Any
    ) -> Result:
        from llmfair.audits.sweep import sweep, told
        from llmfair.rundir import RunDir

        made = make_settings(study.settings, {"dataset": dataset, **others}, preset)

        def watch_of(setting: str) -> Watch:
            return _watch(f"Asking {made.model[0]}, {setting}", progress, made.batch)

        found, gravest = told(kind, study, list(sweep(kind, study, made, watch_of)), made)
        if made.output is not None and made.report:
            _report(RunDir(made.output))
        if gravest is not None:
            raise gravest
        return Result(study.task, found, made.output)

    call.__doc__ = study.does.replace("\n", "\n    ") + f"\n{STUDY}"
    return takes(study.settings)(call)


OF_KINDS = {"audit": _audit_of, "plan": _plan_of, "calibrate": _calibrate_of}
"""What there is of every kind of audit: `audit_NAME`, `plan_NAME`, `calibrate_NAME`. Its studies are `study_NAME`."""


def __getattr__(name: str) -> Callable[..., Result]:
    command, _, of = name.partition("_")
    if command == "study" and of in studies():
        call = _study_of(*studies()[of])
    elif command in OF_KINDS and registry.has("audit", of):
        call = OF_KINDS[command](kind_of(of))
    else:
        raise AttributeError(f"module 'llmfair' has no attribute {name!r}")
    call.__name__ = call.__qualname__ = name
    globals()[name] = call
    return call


@takes(ScoreSettings)
def score(*runs: Runs, preset: str | None = None, **settings: Any) -> Result:
    """Measures of TREC run files (with `dataset`, or `qrels` and `groups`) and of run folders; no model is asked.

    One path, several of them, or a list.

    Raises UsageError for malformed files, RequirementFailed for `require` that does not hold. Files are written only
    with `output`.
    """
    from llmfair.audits.junit import suites_of_score, write_junit
    from llmfair.audits.scoring import failing, require_all
    from llmfair.audits.scoring import score as measured
    from llmfair.rundir import RunDir

    made = make_settings(ScoreSettings, settings, preset)
    paths = [run.folder if isinstance(run, Result) else Path(run) for run in _each(runs)]
    if not paths:
        raise UsageError("no run is named, so nothing is measured.", 'llmfair.score("FOLDER"), or score([…])')
    scored = measured(paths, made)
    if made.output is not None and made.report:
        _report(RunDir(made.output))
    if made.junit is not None:
        write_junit(made.junit, suites_of_score(scored.results), failing(made, scored.results.runs))
    require_all(scored.results, made)
    return Result("score", scored.results, made.output, scored.per_query)


@takes(RerankSettings)
def rerank(*runs: Name, ranker: str, **settings: Any) -> list[Path]:
    """TREC run files in the order of another ranker, such as `fair-star:p=0.3`; returns the paths of the new ones.

    `output` names the new file, or of several runs their folder. Raises UsageError for malformed files.
    """
    from llmfair.audits.rerank import rerank as ordered

    found = ordered([Path(run) for run in runs], ranker, make_settings(RerankSettings, settings))
    for said in (warning for run in found.runs for warning in run.warnings):
        warnings.warn(said, stacklevel=2)
    return [Path(run.output) for run in found.runs]


@takes(MitigateSettings)
def mitigate(
    run: Name | Result, *, progress: bool = False, runs_dir: Name = "runs", **settings: Any
) -> Result:
    """Remedies for a complete listwise run, side by side, each paired with the unmitigated rankings.

    `remedy` names some of them, `free` those that ask no model. Raises UsageError for what is no such run, and the
    gravest error of what was asked, after everything is written.
    """
    from llmfair.mitigation.mitigate import mitigate as held
    from llmfair.rundir import RunDir

    made = make_settings(MitigateSettings, settings)

    def watch_of(remedy: str) -> Watch:
        return _watch(f"Asking, {remedy}", progress)

    done = held(_found(run, runs_dir), made, watch_of)
    if made.report:
        _report(RunDir(done.folder))
    if done.error is not None:
        raise _readable(done.error, done.folder)
    return Result("mitigate", done.results, done.folder)


def compare(*runs: Runs, measures: Any = None, runs_dir: Name = "runs") -> Result:
    """Runs side by side, paired by query; the first is the base. Raises UsageError for runs of other lists or pairs."""
    from llmfair.audits.comparing import compare as compared_of

    wanted = None if measures is None else value_of(measures, str, "measures")
    return Result("compare", compared_of([_found(run, runs_dir) for run in _each(runs)], wanted))


def open_run(run: Name, runs_dir: Name = "runs") -> Result:
    """The results of a run folder: by its path, or by its name's beginning below `runs_dir`.

    Also of a folder that `score`, a study or `finetune_lora` wrote. Raises UsageError where there are none.
    """
    from llmfair.report.page import read_source, unfinished

    source = read_source(_found(run, runs_dir))
    if source.results is None:
        raise UsageError(f"{unfinished(source)}.", "the call or command that began the run completes it")
    return Result(source.results.task, source.results, source.run.path)


def write_report(
    *runs: Runs,
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
    from llmfair.pages import formats_of, page_of, write_page
    from llmfair.report.page import read_source
    from llmfair.rundir import REPORT

    sources = [read_source(_found(run, runs_dir)) for run in _each(runs)]
    if not sources:
        raise UsageError("a report needs a run.", "llmfair.write_report(result), or the path of a run folder")
    formats = formats_of(figures)
    path = Path(file) if file is not None else (sources[0].run.path if len(sources) == 1 else Path()) / REPORT
    write_page(path, page_of(sources, evidence), formats)
    return path


@takes(FinetuneSettings)
def finetune_lora(
    dataset: Name = "sample", *, progress: bool = False, preset: str | None = None, **settings: Any
) -> Result:
    """Trains a LoRA adapter that brings pairs of both groups nearer to parity, and measures what else it changes.

    `base_model` has to be given. Raises RequirementFailed, after everything is written, where no checkpoint kept the
    gates; MissingExtra without [local].
    """
    from llmfair.tuning.finetune import finetune
    from llmfair.tuning.shown import REJECTED, TrainingProgress
    from llmfair.tuning.words import missed_on_test, model_card

    made = make_settings(FinetuneSettings, {"dataset": dataset, **settings}, preset)
    done = finetune(made, model_card, TrainingProgress() if progress else None)
    if done.results.status == "rejected":
        raise _readable(RequirementFailed(str(done.results.training.why), REJECTED), done.folder.path)
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


def _audit(
    kind: Kind, preset: str | None, given: Mapping[str, Any], model: Any, ranker: Any, progress: bool
) -> Result:
    """One model's audit, or that of a ranker of the caller's own, run or continued, with its report."""
    from llmfair.audits.gates import statuses_of
    from llmfair.audits.junit import suite_of, write_junit
    from llmfair.audits.runs.run import perform
    from llmfair.audits.subject import subjects
    from llmfair.backends.given import Given
    from llmfair.backends.python import Function

    backend: Given | Function | None = None
    if ranker is not None:
        backend = Function(ranker)
        given, model = (
            {"no_cache": True, **given},
            backend.spec,
        )  # it may be made of more than its source tells
    elif not isinstance(model, str | Sequence):
        backend = Given(model)
        if not hasattr(model, "identity"):  # a name says too little to share answers with other runs
            given = {"no_cache": True, **given}
        model = backend.spec
    made = make_settings(kind.settings, {"model": model, **given}, preset)
    asked = [subject for one in made.each() for subject in subjects(one)]
    if len(asked) > 1:
        raise UsageError(
            f"one call is one run, but {len(asked)} are named.",
            "one call for each model or strategy, then llmfair.compare; with an adapter add adapter_only=True",
        )
    subject = replace(asked[0], given=backend)
    watch = _watch(f"Asking {subject.label}", progress, made.batch)
    written = perform(kind.design(made, subject), watch, lambda run, _: not made.report or _report(run))
    for line in written.skipped:
        warnings.warn(line, stacklevel=3)
    if made.junit is not None:
        suite = suite_of(subject.label, kind.name, written.results, written.error)
        write_junit(made.junit, [suite], statuses_of(made.fail_on, kind.failures))
    if written.error is not None:
        raise _readable(written.error, written.folder.path)
    return Result(kind.name, written.results, written.folder.path)


def _watch(name: str, shown: bool, batch: bool = False) -> Watch:
    """Shows a bar on stderr if that is wanted."""

    def watch(
        folder: Path, planned: Mapping[str, Any], progress: Progress, limit: int
    ) -> AbstractContextManager[None]:
        from llmfair.terminal import asking

        if not shown or not planned["calls"]:
            return nullcontext()
        return asking(name, {}, folder, planned, progress, limit, batch=batch)

    return watch


def _report(run: RunDir) -> bool:
    """Whether the report is beside the results; a warning where there can be none, since no run is lost by it."""
    try:
        write_report(run.path)
    except Exception as error:
        warnings.warn(f"no report was written, everything else was: {error}", stacklevel=6)
        return False
    return True


def _readable(error: LlmfairError, folder: Path) -> LlmfairError:
    """The error with the call that reads what there is."""
    error.add_note(f"llmfair.open_run({str(folder)!r}) reads what there is")
    return error


def _each(runs: Iterable[Runs]) -> Iterator[Name | Result]:
    """The runs, whether they were named one by one or in lists. Raises UsageError for what names none."""
    for run in runs:
        if isinstance(run, Name | Result):
            yield run
        elif isinstance(run, Iterable):
            yield from _each(run)
        else:
            raise UsageError(f"{run!r} names no run.", "the path of a run, a result, or a list of them")


def _found(run: Name | Result, runs_dir: Name) -> RunDir:
    from llmfair.rundir import RunDir, find_run

    return RunDir(run.folder) if isinstance(run, Result) else find_run(str(run), Path(runs_dir))
