"""The Python API: the commands as functions, with the same settings, run folders and resumption.

Keyword arguments are the settings' field names, with the settings' defaults; llmfair.toml and LLMFAIR_* are the
command line's alone. Functions raise the errors of `llmfair.errors` instead of exiting, and print nothing unless
`progress=True`, which shows a bar on stderr. They block, inside a running event loop too.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import structs

from llmfair import registry
from llmfair.audits import gates
from llmfair.audits.kind import GENERAL, Kind, Study, kind_of, studies, study_of
from llmfair.datasets.tables import stored_frame
from llmfair.errors import LlmfairError, RequirementFailed, UsageError, did_you_mean
from llmfair.io.files import plain, write_whole
from llmfair.io.tables import is_table
from llmfair.metrics.names import parse_measure
from llmfair.report.html import html_of, page_html
from llmfair.report.page import Page, Source, many_page, read_source, run_page, study_page
from llmfair.report.plots import FORMATS, write_plots
from llmfair.report.table import Table, headed, text_of
from llmfair.results import Exhibits, Row, RunVerdict, lines_of, query_figures
from llmfair.rundir import REPORT, RunDir, find_run, with_factors
from llmfair.settings import commands, named, value_of
from llmfair.settings.declaration import CommandSettings, default_of

if TYPE_CHECKING:
    import pandas

    from llmfair.audits.runs.run import Watch
    from llmfair.backends.base import Backend

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound=CommandSettings)


# Settings as keyword arguments

COMMAND_LINE = frozenset({"dry_run", "format", "open", "per_query", "merge"})
"""Settings of the command line alone: plans, results and reports have functions and members of their own here."""


def takes(settings: type[CommandSettings]) -> Callable[[F], F]:
    """Documents a function's settings in its signature and docstring, where help() and editors find them."""

    def documented(call: F) -> F:
        signature = inspect.signature(call)
        named = [item for item in signature.parameters.values() if item.kind is not item.VAR_KEYWORD]
        here = [item for item in settings.given() if item.name not in {*signature.parameters, *COMMAND_LINE}]
        keyword = partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
        others = [keyword(item.name, default=default_of(item), annotation=item.type) for item in here]
        call.__signature__ = signature.replace(parameters=[*named, *others])  # type: ignore[attr-defined]
        lines = "\n".join(f"        {item.name}: {item.metadata['meaning']}" for item in here)
        call.__doc__ = f"{call.__doc__}\n    Settings (`preset` names a bundle of them):\n{lines}\n"
        return call

    return documented


def make_settings(settings: type[S], values: Mapping[str, Any], preset: str | None = None) -> S:
    """The settings from keyword arguments. Raises UsageError for an unknown name and for a value of another type."""
    if is_table(values.get("dataset")):
        values = {**values, "dataset": stored_frame(values["dataset"])}
    names = [item.name for item in settings.given() if item.name not in COMMAND_LINE]
    if unknown := next((name for name in values if name not in names), None):
        hint = "help() of the function lists its settings"
        raise UsageError(f"no setting '{unknown}'.{did_you_mean(unknown, names)}", hint)
    with named({name: name for name in names}):
        return settings.make(preset, **values)


# What comes back

TABLES = {
    "score": "report.compare:score_table",
    "finetune-lora": "tuning.words:headed_table",
    "compare": "report.compare:compare_table",
    "mitigate": "mitigation.words:headed_table",
}
"""The table of each general command; kinds of audits and studies have those of their own."""
PAGES = {
    "score": "report.compare:score_page",
    "finetune-lora": "tuning.words:adapter_page",
    "mitigate": "mitigation.words:mitigation_page",
}
"""The same of their pages."""


@dataclass(frozen=True, repr=False)
class Result:
    """What was found; `print` shows the command's table, and a notebook the same.

    `kind` is the command's name, `found` its results, typed, and `results` the same as `--json` prints them.
    `result[measure, condition]`, or with a third text `result[measure, condition, group]`, is one row of all queries,
    by the name that the table gives it.
    """

    kind: str
    found: Any
    path: Path | None = None
    of_queries: Sequence[Row] | None = None

    @cached_property
    def results(self) -> Mapping[str, Any]:
        """The results as `--json` prints them."""
        document: Mapping[str, Any] = plain(self.found)
        return document

    @property
    def folder(self) -> Path:
        """Where everything was written. Raises UsageError where nothing was."""
        if self.path is None:
            raise UsageError(f"{self.kind} wrote no folder.", "give it one: output='FOLDER'")
        return self.path

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes an audit's figures doubtful as a whole: answers of other runs, queries a model was trained on."""
        return tuple(getattr(self.found, "warnings", ()))

    @property
    def verdict(self) -> RunVerdict:
        """What the run comes to: `status`, `sentence`, `next`, and the figure that it speaks of.

        Raises UsageError of what has none: plans, calibrations, studies.
        """
        verdict: RunVerdict | None = getattr(self.found, "verdict", None)
        if verdict is None:
            raise UsageError(f"{self.kind} has no verdict.", "audits, comparisons and score have one")
        return verdict

    @property
    def rows(self) -> list[Row]:
        """The figures of all queries together, as metrics.csv has them; none of a plan, calibration or comparison."""
        return list(self.found.rows) if self._measured else []

    @property
    def per_query(self) -> list[Row]:
        """The figures of each query, as per_query.csv has them. Raises UsageError where none are kept."""
        if self.of_queries is not None:
            return list(self.of_queries)
        if self.path is None or not (self.path / "per_query.csv").is_file():
            raise UsageError(
                f"{self.kind} keeps no figures of single queries.", "result.rows has those of all"
            )
        return query_figures(self.path)

    def __getitem__(self, key: tuple[str, ...]) -> Row:
        if not isinstance(key, tuple) or len(key) not in (2, 3):
            hint = 'a measure and a condition: result["ExpRatio", "female"]'
            raise UsageError(f"{key!r} names no figure.", hint)
        measure, condition, group = (*key, "")[:3]
        measure = gates.as_shown(measure, getattr(self.found, "shown", ()))
        contrasts = getattr(getattr(self.found, "design", None), "contrasts", ())
        wanted = {"measure": measure, "condition": condition, "group": group}
        rows = self.rows
        for what, name in wanted.items():
            of_rows = [row.key(contrasts) if what == "condition" else getattr(row, what) for row in rows]
            if name not in of_rows:
                names = dict.fromkeys(of_rows)
                hint = f"{what}s: {', '.join(map(repr, names))}.{did_you_mean(name, names)}"
                raise UsageError(f"no {measure} of {' '.join(filter(None, (condition, group)))}.", hint)
            rows = [row for row, of in zip(rows, of_rows, strict=True) if of == name]
        if len(rows) > 1:
            hint = "result.to_frame() tells them apart"
            raise UsageError(f"{len(rows)} runs have {measure} of {condition}.", hint)
        (row,) = rows
        # what is concluded of its condition, where that is what says whether it can be assessed
        finding = getattr(self.found, "findings", {}).get(condition)
        if finding is not None and row.conclusion is None:
            assessed, headline = (parse_measure(name).definition for name in (row.measure, finding.measure))
            if assessed.assessed_by == headline.name:
                return structs.replace(row, conclusion=finding.conclusion)
        return row

    def to_frame(self, per_query: bool = False) -> pandas.DataFrame:
        """The rows as a pandas DataFrame, undefined figures as NaN.

        Those of metrics.csv, or of per_query.csv; of a comparison, study or calibration those of its table.
        """
        import pandas

        if self._measured:
            factors = getattr(getattr(self.found, "design", None), "factors", None) or {}
            header, lines = with_factors(lines_of(self.per_query if per_query else self.rows), factors)
            frame = pandas.DataFrame(lines, columns=list(header))
            floats = dict.fromkeys(("value", "low", "high", "p", "p_adjusted"), float)
            return frame.astype({**floats, "n": "Int64"})
        if study := study_of(self.kind):
            columns, records = study.lines(self.found)
            return pandas.DataFrame(records, columns=list(columns))
        rows = self.results.get("rows", self.results.get("injected"))
        if rows is None:
            raise UsageError(f"{self.kind} has no rows.", "result.results has its figures")
        return pandas.DataFrame(list(rows))

    @property
    def _measured(self) -> bool:
        return self.kind in GENERAL or registry.has("audit", self.kind)

    def _table(self) -> Table:
        if study := study_of(self.kind):
            table = headed(study.words.table(self.found), self.found.verdict)
            return table if table.rows else Table(f"{table.title}: {', '.join(table.notes)}")
        if self.kind in TABLES:
            table_of: Callable[[Any], Table] = registry.at(f"llmfair.{TABLES[self.kind]}")
            return table_of(self.found)
        command, _, name = self.kind.rpartition(" ")
        words = kind_of(name).words
        if command == "plan":
            return words.plan_table(self.found) or Table(words.plan_text(self.found).strip())
        if command:
            return words.calibration_table(self.found)
        return headed(words.table(self.found), self.found.verdict)

    def __str__(self) -> str:
        return text_of(self._table())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_of(self._table())


# The commands

Name = str | Path
Call = Callable[..., Result]
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


def _audit_of(kind: Kind) -> Call:
    """One model's audit, or that of a ranker of the caller's own, run or continued, with its report."""
    usual = {item.name: default_of(item) for item in fields(kind.settings)}

    def call(
        dataset: Name = usual["dataset"],
        *,
        model: Any = usual["model"][0],
        ranker: Any = None,
        progress: bool = False,
        preset: str | None = None,
        **settings: Any,
    ) -> Result:
        from llmfair.audits.runs.run import perform
        from llmfair.audits.subject import subjects
        from llmfair.backends.python import CallerModel, Function

        values: dict[str, Any] = {"dataset": dataset, **settings}
        backend: CallerModel | Function | None = None
        if ranker is not None or not isinstance(model, str | Sequence):
            backend = CallerModel(model) if ranker is None else Function(ranker)
            # a name says too little to share answers with other runs, and a ranker may be made of more than its source
            if ranker is not None or not hasattr(model, "identity"):
                values = {"no_cache": True, **values}
            model = backend.spec
        options = make_settings(kind.settings, {"model": model, **values}, preset)
        runs = [subject for each in options.each() for subject in subjects(each)]
        if len(runs) > 1:
            raise UsageError(
                f"one call is one run, but {len(runs)} are named.",
                "one call for each model or strategy, then llmfair.compare; with an adapter add adapter_only=True",
            )
        subject = replace(runs[0], given=backend)
        watch = _watch(f"Asking {subject.label}", progress, options.batch)
        written = perform(
            kind.design(options, subject), watch, lambda run, _: _report(run) if options.report else None
        )
        if options.junit is not None:
            suite = gates.suite_of(subject.label, kind.name, written.results, written.error)
            gates.write_junit(
                options.junit, [suite], gates.statuses_of(options.fail_on, kind.words.statuses[:-1])
            )
        if written.error is not None:
            raise _readable(written.error, written.folder.path)
        return Result(kind.name, written.results, written.folder.path)

    call.__doc__ = f"{kind.help().does} `llmfair {kind.name}` of one model.\n{AUDIT}"
    return takes(kind.settings)(call)


def _about(kind: Kind, command: str) -> Call:
    """What plans or calibrates audits of a kind. Raises AttributeError where it cannot simulate them."""
    settings = kind.plan_settings if command == "plan" else kind.calibrated
    if settings is None:
        raise AttributeError(f"{kind.name} cannot simulate its audits")
    usual = default_of(settings.__dataclass_fields__["dataset"])

    def call(dataset: Name = usual, *, preset: str | None = None, **others: Any) -> Result:
        from llmfair.audits.plan import plan

        options: Any = make_settings(settings, {"dataset": dataset, **others}, preset)
        document = plan(kind, options) if command == "plan" else kind.calibrate(options, lambda: None)
        return Result(f"{command} {kind.name}", document)

    call.__doc__ = f"{kind.help(command).does}\n    "
    return takes(settings)(call)


def _study_of(kind: Kind, study: Study) -> Call:
    def call(
        dataset: Name = "sample", *, progress: bool = False, preset: str | None = None, **others: Any
    ) -> Result:
        from llmfair.audits.study import sweep, told

        options = make_settings(study.settings, {"dataset": dataset, **others}, preset)

        def watch_of(setting: str) -> Watch:
            return _watch(f"Asking {options.model[0]}, {setting}", progress, options.batch)

        results, gravest = told(kind, study, list(sweep(kind, study, options, watch_of)), options)
        if options.output is not None and options.report:
            _report(RunDir(options.output))
        if gravest is not None:
            raise gravest
        return Result(study.task, results, options.output)

    does = study.does.replace("\n", "\n    ")
    call.__doc__ = f"{does}\n\n    Raises the gravest of the settings' errors, after all were tried.\n    "
    return takes(study.settings)(call)


def __getattr__(name: str) -> Call:
    """`audit_NAME`, `plan_NAME` and `calibrate_NAME` of every kind of audit, and `study_NAME` of its studies."""
    command, _, of = name.partition("_")
    if command == "study" and of in studies():
        call = _study_of(*studies()[of])
    elif command == "audit" and registry.has("audit", of):
        call = _audit_of(kind_of(of))
    elif command in ("plan", "calibrate") and registry.has("audit", of):
        call = _about(kind_of(of), command)
    else:
        raise AttributeError(f"module 'llmfair' has no attribute {name!r}")
    call.__name__ = call.__qualname__ = name
    globals()[name] = call
    return call


@takes(commands.ScoreSettings)
def score(*runs: Runs, preset: str | None = None, **settings: Any) -> Result:
    """Measures of TREC run files (with `dataset`, or `qrels` and `groups`) and of run folders; no model is asked.

    One path, several of them, or a list.

    Raises UsageError for malformed files, RequirementFailed for `require` that does not hold. Files are written only
    with `output`.
    """
    from llmfair.audits.scoring import failing, require_all
    from llmfair.audits.scoring import score as measured

    options = make_settings(commands.ScoreSettings, settings, preset)
    paths = [run.folder if isinstance(run, Result) else Path(run) for run in _each(runs)]
    scored = measured(paths, options)
    if options.output is not None and options.report:
        _report(RunDir(options.output))
    if options.junit is not None:
        gates.write_junit(
            options.junit, gates.suites_of_score(scored.results), failing(options, scored.results.runs)
        )
    require_all(scored.results, options)
    return Result("score", scored.results, options.output, scored.per_query)


@takes(commands.RerankSettings)
def rerank(*runs: Name, ranker: str, **settings: Any) -> list[Path]:
    """TREC run files in the order of another ranker, such as `fair-star:p=0.3`; returns the paths of the new ones.

    `output` names the new file, or of several runs their folder. Raises UsageError for malformed files.
    """
    from llmfair.audits.rerank import rerank as ordered

    reranked = ordered([Path(run) for run in runs], ranker, make_settings(commands.RerankSettings, settings))
    for sentence in (warning for run in reranked.runs for warning in run.warnings):
        warnings.warn(sentence, stacklevel=2)
    return [Path(run.output) for run in reranked.runs]


@takes(commands.MitigateSettings)
def mitigate(
    run: Name | Result, *, progress: bool = False, runs_dir: Name = "runs", **settings: Any
) -> Result:
    """Remedies for a complete listwise run, side by side, each paired with the unmitigated rankings.

    `remedy` names some of them, `free` those that ask no model. Raises UsageError for what is no such run, and the
    gravest error of what was asked, after everything is written.
    """
    from llmfair.mitigation.mitigate import mitigate as held

    options = make_settings(commands.MitigateSettings, settings)

    def watch_of(remedy: str) -> Watch:
        return _watch(f"Asking, {remedy}", progress)

    done = held(_found(run, runs_dir), options, watch_of)
    if options.report:
        _report(RunDir(done.folder))
    if done.error is not None:
        raise _readable(done.error, done.folder)
    return Result("mitigate", done.results, done.folder)


def compare(*runs: Runs, measures: Any = None, margin: str | None = None, runs_dir: Name = "runs") -> Result:
    """Runs side by side, paired by query; the first is the base. Raises UsageError for runs of other lists or pairs.

    Odds that differ by a quotient within `margin`, such as "0.9..1.1", are equivalent; by default within the band.
    """
    from llmfair.audits.comparing import compare as compared_of

    wanted = None if measures is None else value_of(measures, str, "measures")
    return Result("compare", compared_of([_found(run, runs_dir) for run in _each(runs)], wanted, margin))


def open_run(run: Name, runs_dir: Name = "runs") -> Result:
    """The results of a run folder: by its path, or by its name's beginning below `runs_dir`.

    Also of a folder that `score`, a study or `finetune_lora` wrote. Raises UsageError where there are none.
    """
    source = read_source(_found(run, runs_dir)).finished()
    return Result(source.results.task, source.results, source.run.path)


def write_report(
    *runs: Runs,
    file: Name | None = None,
    figures: str | Iterable[str] = (),
    evidence: int = commands.EVIDENCE,
    runs_dir: Name = "runs",
) -> Path:
    """Writes the report of one run, or of several side by side, as one HTML file; returns its path.

    Without `file` it is report.html in the run's folder, of several runs in the current one. `figures` (svg, pdf,
    png) are written to plots/ beside it, `evidence` answers are shown. Raises UsageError for what is no run, and
    OSError.
    """
    sources = [read_source(_found(run, runs_dir)) for run in _each(runs)]
    formats = formats_of(figures)
    path = Path(file) if file is not None else (sources[0].run.path if len(sources) == 1 else Path()) / REPORT
    write_page(path, page_of(sources, evidence), formats)
    return path


def page_of(sources: Sequence[Source], evidence: int) -> Page:
    """One run's page, or one of several. Raises UsageError for a single run without results."""
    from llmfair.audits.runs.exhibits import declared, exhibits_of

    names: dict[str, None] = {}
    for results in filter(None, (source.results for source in sources)):
        if results.task in ("finetune-lora", "mitigate"):
            names |= dict.fromkeys(row.measure for row in results.rows)
        else:
            names |= dict.fromkeys(results.shown if study_of(results.task) else results.measures)
    measures = declared(list(names))

    def page(source: Source) -> Page:
        if source.is_audit:
            return run_page(source, exhibits_of(source.run, evidence))
        page_of_task: Callable[[Source, Exhibits], Page] = study_page
        if source.study is None:
            page_of_task = registry.at(f"llmfair.{PAGES[source.results.task]}")
        return page_of_task(source, Exhibits(measures=measures))

    if len(sources) > 1:
        return many_page(sources, measures, page)
    return page(sources[0].finished())


def formats_of(figures: str | Iterable[str]) -> list[str]:
    """The formats in which figures are wanted as files, too. Raises UsageError."""
    parts = figures.split(",") if isinstance(figures, str) else figures
    formats = [name for part in parts if (name := part.strip())]
    if unknown := next((name for name in formats if name not in FORMATS), None):
        raise UsageError(f"'{unknown}' is no format of figures.", f"known: {', '.join(FORMATS)}")
    return formats


def write_page(path: Path, page: Page, formats: Sequence[str] = ()) -> None:
    """The page, and its figures as files in plots/ beside it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, [page_html(page)])
    if formats:
        write_plots(page.plots, path.parent / "plots", formats)


@takes(commands.FinetuneSettings)
def finetune_lora(
    dataset: Name = "sample", *, progress: bool = False, preset: str | None = None, **settings: Any
) -> Result:
    """Trains a LoRA adapter that brings pairs of both groups nearer to parity, and measures what else it changes.

    `base_model` has to be given. Raises RequirementFailed, after everything is written, where no checkpoint kept the
    gates; MissingExtra without [local].
    """
    from llmfair.tuning.finetune import finetune
    from llmfair.tuning.words import NEAREST, TrainingProgress

    options = make_settings(commands.FinetuneSettings, {"dataset": dataset, **settings}, preset)
    done = finetune(options, TrainingProgress(silent=not progress))
    if done.results.status == "rejected":
        raise _readable(RequirementFailed(str(done.results.training.why), NEAREST), done.folder.path)
    return Result("finetune-lora", done.results, done.folder.path)


def parse_model(spec: str, **settings: Any) -> Backend:
    """The model that a spec names, as an object with `async complete(request)`. Raises UsageError.

    `settings` are those that say how it is reached: `base_url`, `timeout`, `system`, `backend_arg`, …
    """
    from llmfair.audits.subject import backend_of

    return backend_of(spec, make_settings(commands.AuditSettings, settings))


def schema() -> dict[str, Any]:
    """The JSON Schema of what `--json` prints, and of results.json."""
    from llmfair.documents import schema as schema_of

    return schema_of()


def _watch(name: str, visible: bool, batch: bool = False) -> Watch:
    """Shows a bar on stderr if that is wanted."""
    from llmfair.audits.runs.run import no_watch
    from llmfair.terminal import Watching

    return Watching(name, batch=batch) if visible else no_watch


def report_beside(run: RunDir) -> Path:
    """The report beside the results. Raises LlmfairError where there can be none, by which no run is lost."""
    try:
        return write_report(run.path)
    except Exception as error:
        why = error if isinstance(error, LlmfairError) else f"{type(error).__name__}: {error}"
        raise LlmfairError(f"no report was written, everything else was: {why}") from error


def _report(run: RunDir) -> None:
    """The same, with a warning that points to the caller's own line, however deep this is."""
    try:
        report_beside(run)
    except LlmfairError as error:
        ours = [Path(of.filename).is_relative_to(Path(__file__).parent) for of in inspect.stack(0)]
        warnings.warn(str(error), stacklevel=ours.index(False) + 1)


def _readable(error: LlmfairError, folder: Path) -> LlmfairError:
    """The error with the call that reads what there is."""
    error.add_note(f"llmfair.open_run({str(folder)!r}) reads what there is")
    return error


def _each(runs: Iterable[Runs]) -> list[Name | Result]:
    """The runs, whether they were named one by one or in lists. Raises UsageError for what names none, and for none."""
    several = (item if isinstance(item, Iterable) and not isinstance(item, Name) else [item] for item in runs)
    named = [*chain(*several)]
    if not named or not all(isinstance(run, Name | Result) for run in named):
        raise UsageError(f"no run is named: {named}.", "the path of a run, a result, or a list of them")
    return named


def _found(run: Name | Result, runs_dir: Name) -> RunDir:
    return RunDir(run.folder) if isinstance(run, Result) else find_run(str(run), Path(runs_dir))
