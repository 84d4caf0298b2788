"""What every audit does around its questions: hold the folder, ask, keep the books, share a budget."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from math import fsum
from pathlib import Path
from typing import Any, TypeVar

from llmfair import registry
from llmfair.asking.batch import FILE as BATCHES
from llmfair.asking.batch import Batches, dispatch_batch, refuse_open
from llmfair.asking.dispatch import Program, dispatch
from llmfair.asking.journal import Journal
from llmfair.asking.limits import GO_ON, Progress
from llmfair.audits.design import Design, Stage, remarks_of, versions
from llmfair.audits.gates import refused, require_met, require_readable, statuses_of
from llmfair.audits.kind import kind_of, results_of
from llmfair.audits.subject import Subject, adapter_warnings, left_out, limits_of, sampling_of
from llmfair.backends.base import Backend, members_of
from llmfair.backends.openai import is_alias
from llmfair.datasets.base import cache_folder
from llmfair.errors import (
    BackendError,
    Incomplete,
    LlmfairError,
    RequirementFailed,
    RunConflict,
    UsageError,
    warn,
)
from llmfair.io import secrets
from llmfair.io.files import plain, read_document
from llmfair.io.text import count
from llmfair.nouns import Failure, ManyDocuments, picked
from llmfair.results import Results
from llmfair.rundir import LOCK, MANIFEST_SCHEMA, REPORT, RunDir, fingerprint, folder_name, now, set_aside
from llmfair.settings.commands import AuditSettings

Watch = Callable[[Path, Mapping[str, Any], Progress, int], AbstractContextManager[None]]
"""Shows a run while it is asked: `with watch(folder, planned, progress, limit):`.

`planned` says how many `calls` there will be, and what the `design` can `reach`, before anything is asked.
"""


def no_watch(*_: object) -> AbstractContextManager[None]:
    """Shows nothing."""
    return nullcontext()


@dataclass
class ProbeResults:
    """What came back: results by probe, probes without one, and the error that broke the run off, if any."""

    results: dict[str, Any] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    error: LlmfairError | None = None
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class RunStart:
    """An audit that is about to ask: what names it and its folder, and the facts that its manifest begins with."""

    design: Design[Any]
    backend: Backend
    stages: Sequence[Stage]
    identity: Mapping[str, Any]
    folder: RunDir
    facts: Mapping[str, Any]
    remarks: Sequence[str]
    fail_on: Sequence[str]

    def watched(self, watch: Watch, progress: Progress, on_disk: int) -> AbstractContextManager[None]:
        """Tells what is planned, and what of it is on disk."""
        planned = {**self.design.planned(), "on_disk": on_disk, "remarks": [*self.remarks]}
        workers = limits_of(self.backend, self.design.settings).workers * len(members_of(self.backend))
        return watch(self.folder.path, planned, progress, workers)

    def judge(self, results: Results) -> None:
        """Raises RequirementFailed when too many answers are unparseable or a gate is not met."""
        require_readable(results)
        require_met(results.requirements, refused(results.verdict, self.fail_on))


def begin(design: Design[Any]) -> RunStart:
    """Makes an audit ready, and warns of what makes it doubtful; nothing is asked or written. Raises UsageError."""
    kind = kind_of(design.task)  # nothing is asked that no kind could tell
    settings, backend, subject = design.settings, design.backend(), design.subject
    fail_on = statuses_of(settings.fail_on, kind.words.statuses[:-1])
    identity, folder = folder_of(design, backend)
    sampling_of(settings)  # a malformed flag leaves no folder behind
    remarks = remarks_of(design)
    facts = design.describe()
    warnings: list[str] = [*facts.get("warnings", ()), *left_out(backend, subject.label, settings)]
    if subject.adapted and subject.adapter is not None:
        warnings += adapter_warnings(subject.adapter, identity, str(facts["dataset"]))
    for warning in warnings:
        warn(warning)
    stages = design.stages()
    facts |= {
        "model": subject.label,
        "simulated": backend.reads_about,
        "warnings": warnings,
        "sees": seen(design),
        "server": getattr(backend, "server_name", ""),  # where several could answer under the model's name
        "label": settings.label or "",
        "planned_calls": design.calls,  # a run that is killed has no word left
        "stages": {stage.name: stage.backend.reads_about for stage in stages},
    }
    return RunStart(design, backend, stages, identity, folder, facts, remarks, fail_on)


def carry_out(begun: RunStart, watch: Watch) -> None:
    """Runs or continues one model's audit; all of it ends in the run folder.

    Raises RunConflict, BackendError when the model cannot be asked, Incomplete when probes have no answer, and
    RequirementFailed when too many answers are unparseable or a gate is not met (in both what there is, is written).
    """
    design, backend, folder, facts = begun.design, begun.backend, begun.folder, begun.facts
    progress, warnings = Progress(), facts["warnings"]
    with session(folder, begun.identity, design.settings.fresh, facts) as (journal, manifest):
        on_disk = len(journal) + sum(manifest["stage_answers"].values())
        try:
            with begun.watched(watch, progress, on_disk):
                answered = ask(design.programs(), backend, journal, design, progress)
                for warning in of_replies(backend, design.subject.spec, progress):
                    warn(warning)
                    warnings.append(warning)
                warnings += from_other_runs(journal)
                for stage in begun.stages:
                    if answered.error is None and not design.stops:
                        answered = _further(stage, answered, folder, design, progress, manifest)
                        warnings += answered.warnings
        finally:
            charge(manifest, progress)
        outcome = design.outcome(folder.path.name, answered.results, answered.failures)
        if answered.error is not None:
            outcome = outcome.broken_off()
        warnings += outcome.results.warnings
        journal.refuse_removed()
        folder.write_files(outcome.files)
        manifest |= {
            "status": "complete" if answered.error is None and not design.stops else "incomplete",
            "answers": plain(outcome.results.answers),
            "warnings": warnings,
            "failed": len(answered.failures),
        }
        if model := getattr(backend, "facts", None):  # where a model of this process ran, and why there
            manifest["invocations"][-1]["model"] = model
    if answered.error is not None:
        raise answered.error
    if not design.stops:
        begun.judge(outcome.results)


@dataclass(frozen=True)
class RunOutcome:
    """What an audit left on disk: its results, and why they are half or under a gate, if so."""

    folder: RunDir
    results: Results
    error: LlmfairError | None


def perform(
    design: Design[Any], watch: Watch = no_watch, draw: Callable[[RunDir, Results], object] | None = None
) -> RunOutcome:
    """Runs or continues an audit, and reads what it wrote. Raises the errors after which there are no results.

    `draw` makes the page of the folder and its results, where the settings want one. Read as it stands is a run that
    has not changed, but for a page that is wanted and not there, and one that is complete where this would stop
    earlier.
    """
    begun, error = begin(design), None
    folder = begun.folder
    inputs = inputs_of(begun) if draw is not None and design.calls else ""
    complete = not design.settings.fresh and unchanged(begun, inputs)
    try:
        if complete:
            manifest = folder.read_manifest()
            on_disk = manifest.journal_answers + sum(manifest.stage_answers.values())
            with begun.watched(watch, Progress(), on_disk):
                begun.judge(results_of(folder))
        else:
            carry_out(begun, watch)
    except (Incomplete, RequirementFailed) as failure:
        error = failure
    manifest = folder.read_manifest()
    results = results_of(folder, manifest)
    if inputs and not complete and manifest.status == "complete":
        with suppress(OSError, LlmfairError):  # where it cannot be noted, it stays without
            made = {"inputs": inputs, "files": _files(folder)}
            folder.write_json(
                folder.manifest.name, {**read_document(folder.manifest, dict[str, Any]), "made": made}
            )
    if draw is not None and not (complete and (folder.path / REPORT).is_file()):
        draw(folder, results)
    return RunOutcome(folder, results, error)


def _further(
    stage: Stage,
    before: ProbeResults,
    folder: RunDir,
    design: Design[Any],
    progress: Progress,
    manifest: dict[str, Any],
) -> ProbeResults:
    """The results before a stage and its own. What ends it leaves the run incomplete: there are answers already."""
    counted: dict[str, int] = manifest["stage_answers"]
    path, given = folder.journal_of(stage.name), counted.get(stage.name, 0)
    with closing(_journal(path, folder, stage.backend.identity, given)) as journal:
        try:
            answered = ask(stage.programs(before.results), stage.backend, journal, design, progress)
        except (BackendError, UsageError) as error:
            answered = ProbeResults(error=Incomplete(f"{stage.name}: {error.message}", error.hint))
        finally:
            counted[stage.name] = len(journal)
            note_servers(manifest, journal)
        warnings = [f"{stage.name}: {warning}" for warning in from_other_runs(journal)]
    failures, results = [*before.failures, *answered.failures], {**before.results, **answered.results}
    return ProbeResults(results, failures, answered.error, [*warnings, *filter(None, [stage.said(results)])])


def _journal(path: Path, folder: RunDir, identity: str, given: int) -> Journal:
    """A journal of a run; warns of lines that cannot be read. Raises RunConflict for fewer answers than were given."""
    journal = Journal(path, folder.path.name, identity)
    for line in journal.skipped:
        warn(f"{path}:{line}: not readable, skipped; its answer was asked again if needed")
    if (lost := given - len(journal) - len(journal.skipped)) > 0:
        journal.close()
        raise RunConflict(
            f"{path} holds {len(journal):,} answers, {lost:,} fewer than were given.",
            "put the journal back, or ask again with --fresh",
        )
    return journal


def folder_of(design: Design[Any], backend: Backend) -> tuple[dict[str, Any], RunDir]:
    """What names a run, and its folder: the one that --output says, or one derived from the settings."""
    settings = design.settings
    identity = {"task": design.task, "identity": backend.identity, **design.identity()}
    if stages := design.stages():
        identity["stages"] = {stage.name: stage.backend.identity for stage in stages}
    if settings.output is not None:
        return identity, RunDir(settings.output)
    label = design.subject.label.removeprefix("openai:")
    words = (design.task, *design.name_parts(), label, getattr(backend, "server_name", ""))
    return identity, RunDir(settings.runs_dir / folder_name(words, identity))


def from_other_runs(journal: Journal) -> Iterator[str]:
    """How many of a run's answers it did not ask for itself."""
    if journal.shared:
        yield (
            f"{journal.shared:,} of {len(journal):,} answers came from other runs of this model "
            "(--fresh --no-cache asks them again)"
        )


def of_replies(backend: Backend, spec: str, progress: Progress) -> Iterator[str]:
    """What a server's replies say against what it was asked: another model's name, prompts that may be cut."""
    model = spec.partition(":")[2]
    others = sorted(name for name in progress.models if not is_alias(model, name))
    if getattr(backend, "server", "") and others:
        yield f"{model} was asked, and the server names the model of its answers {', '.join(others)}"
    if (full := progress.fullest).cut:
        yield (
            f"{full.prompts:,} prompts of {full.shortest:,} to {full.longest:,} characters have {full.tokens:,} tokens "
            "each, by the server's count: it may cut what is longer (Ollama does at num_ctx)"
        )


def ask(
    programs: Iterable[Program], backend: Backend, journal: Journal, design: Design[Any], progress: Progress
) -> ProbeResults:
    """Dispatches programs of a design and gathers what comes back. The cache of shared answers is open meanwhile, but
    where it is not wanted, and for simulated models, whose calls are free."""
    answered, settings, cache = ProbeResults(), design.settings, None
    limits, sampling, taken = limits_of(backend, settings), sampling_of(settings), dict[str, None]()
    asking: Callable[..., Iterator[tuple[str, Any | Failure]]] = dispatch
    # what intervals take is imported while a server thinks: beside a model of this process, which may fork, it hangs
    if getattr(backend, "server", ""):
        asking = partial(dispatch, meanwhile=partial(import_module, "scipy.special"))
    asked: Any = backend
    if settings.batch and "batch" in backend.capabilities:  # a further stage may have a model without
        asking, asked = dispatch_batch, Batches(asked, limits.retries, limits.max_wait, progress.waits)
    else:
        refuse_open(journal.path)
    design.watched_by(progress)
    try:
        with ExitStack() as closed:
            if not (settings.no_cache or backend.reads_about) and design.calls:
                from llmfair.asking.cache import FILE, Cache  # what asks no server needs no SQLite

                cache = closed.enter_context(closing(Cache(cache_folder() / FILE, backend.identity, warn)))
            once = design.once_each(programs, taken)
            for probe_id, result in asking(once, asked, journal, sampling, limits, progress, cache):
                progress.finished += 1
                if isinstance(result, Failure):
                    answered.failures.append(result)
                else:
                    answered.results[probe_id] = result
                    progress.unparseable += design.unparseable(result)
    except Incomplete as error:
        answered.error = error
    # as they were asked, whoever was answered first: what is made of them is the same for the same answers
    answered.results = {name: answered.results[name] for name in taken if name in answered.results}
    if answered.failures and answered.error is None:
        first = min(answered.failures, key=lambda failure: failure.probe_id)
        total = len(answered.failures) + len(answered.results)
        cause, again = first.message, "the same command asks them again"
        if type(progress.bug).__name__ == first.failure:  # whose words alone may say little
            cause, again = f"{first.failure}: {first.message}.", f"{again}, -v shows where it happens"
        elif {failure.hint for failure in answered.failures} == {first.hint} != {""}:
            again = first.hint
        answered.error = Incomplete(
            f"{len(answered.failures)} of {total} probes have no answer, {first.probe_id} first: {cause}",
            f"failures.csv lists them; {again}",
        )
        answered.error.__cause__ = progress.bug
    return answered


def seen(design: Design[Any]) -> str:
    """The prompt and what is shown of an item, where a model is asked by one, and how many items are not compared."""
    prompt, settings, parts = design.prompt, design.settings, list[str]()
    # a kind whose prompts say themselves what they show of an item has no use for --input
    shows_items = "input" not in settings.idle
    compares = bool(design.attribute.protected) and design.two_groups
    # of a corpus, which every query has, nothing is looked at that need not be
    queries = design.queries if compares or shows_items else ()
    lists = (design.dataset.candidates(query).documents for query in queries)
    items = {item.doc_id: item for documents in lists for item in documents}
    if prompt is not None and not design.subject.ranks:
        name = str(getattr(settings, "prompt", None) or prompt.id)
        if name.endswith(".toml"):  # which two prompts can be called
            name += f" {prompt.sha256[:8]}"
        parts.append(f"prompt {name}")
        number = sum(bool(item.text.strip()) for item in items.values())
        texts = f"{count(number, 'item')} {'has' if number == 1 else 'have'} text"
        if shows_items and settings.input == "title":
            parts[0] += ", titles only" + f" ({texts}: --input text shows it)" * bool(number)
        elif shows_items:
            some = f" ({texts}, of {len(items):,})" * (number < len(items))
            parts[0] += f", titles and texts, {settings.words} words at most{some}"
    others = sum(design.attribute.side(item) is None for item in items.values())
    if compares and others:
        ranked = "ranked, but " * registry.lookup("audit", design.task).ranks
        parts.append(f"{others:,} of {count(len(items), 'item')} {ranked}not compared")
    return "; ".join(parts)


# The books of a run while it is worked on: its folder held, its manifest kept honest, its costs noted.


@contextmanager
def session(
    folder: RunDir, identity: Mapping[str, Any], fresh: bool, facts: Mapping[str, Any]
) -> Iterator[tuple[Journal, dict[str, Any]]]:
    """Holds a run folder while it is worked on; yields its journal and the manifest to be completed.

    The manifest says `running` meanwhile and `incomplete` after anything but a clean end, so that what is on
    disk never claims more than there is. A run that ends before its first answer leaves no folder behind.
    """
    made, known = folder.missing(), folder.prepare(identity)
    with folder.locked(), folder.given_up(made):
        earlier = folder.read_manifest() if known else None
        if fresh:
            for path in (*(folder.journals(earlier) if earlier else [folder.journal]), folder.path / BATCHES):
                set_aside(path)
            earlier = None
        given = earlier.journal_answers if earlier else 0
        journal = _journal(folder.journal, folder, str(identity["identity"]), given)
        invocation = {"command": secrets.written(sys.argv), "started": now(), "ended": None}
        manifest: dict[str, Any] = {
            "schema": MANIFEST_SCHEMA,
            "status": "running",
            "settings": dict(identity),
            "versions": versions(),
            "journal_answers": len(journal),
            "invocations": [*folder.invocations(), invocation],
            "stage_answers": dict(earlier.stage_answers) if earlier else {},
            **facts,
        }
        folder.write_json("manifest.json", manifest)
        try:
            try:
                yield journal, manifest
            finally:
                manifest["journal_answers"] = len(journal)
                note_servers(manifest, journal)
                invocation["ended"] = now()
                journal.close()
        except BaseException:
            manifest["status"] = "incomplete"
            if journal.path.exists():  # else the folder may have been moved, and is not made anew
                with suppress(LlmfairError):  # what failed first is said
                    folder.write_json("manifest.json", manifest)
            raise
        folder.write_json("manifest.json", manifest)


def note_servers(manifest: dict[str, Any], journal: Journal) -> None:
    """Adds which of several servers gave a journal's answers."""
    if journal.servers:
        answers = Counter(manifest.get("servers", {})) + journal.servers
        manifest["servers"] = dict(sorted(answers.items()))


def charge(manifest: dict[str, Any], progress: Progress) -> None:
    """Notes what an invocation asked, however it ended; `cost` is the whole run's, None where no prices were known."""
    counts = (
        "answered", "calls", "replayed", "cached", "retries", "prompt_tokens", "completion_tokens", "cost",
    )  # fmt: skip
    facts: dict[str, Any] = {
        **picked(progress, counts),
        "models_reported": sorted(progress.models),
        "fingerprints_reported": sorted(progress.fingerprints),
    }
    manifest["invocations"][-1] |= facts
    costs = [cost for each in manifest["invocations"] if (cost := each.get("cost")) is not None]
    manifest |= {**facts, "cost": fsum(costs) if costs else None}


# A complete run repeated is neither measured nor drawn again: its manifest has a digest of all that results are made of
# beside the answers, and sizes and times of the files that came of it.


ELSEWHERE = {
    "output", "runs_dir", "fresh", "format", "open", "junit", "workers", "adaptive", "rpm", "tpm", "retries", "timeout",
    "max_wait", "outage", "max_reply", "max_calls", "max_cost", "ray_workers", "ray_address",
}  # fmt: skip
"""Settings that say where, how fast and as what, and change neither results nor page."""
SOURCES = {".py", ".j2", ".js"}


def inputs_of(begun: RunStart) -> str:
    """SHA-256 over settings, data and code; of what has other words in each process it is another each time."""
    design = begun.design
    data, offered, settings = design.dataset, registry.offered(), design.settings.written()
    code = [f"{part.__module__}.{part.__qualname__}" for part in (type(design), type(kind_of(design.task)))]
    packages = sorted({name.partition(".")[0] for name in ("llmfair", *code, *offered)})
    # of documents looked up where they are stored the sum of the lists has the record of their fetch
    listed = not isinstance(data.documents, ManyDocuments)
    inputs = {
        "run": begun.folder.path.name,
        "identity": begun.identity,
        "facts": {name: value for name, value in begun.facts.items() if name != "flags"},
        "settings": {name: value for name, value in settings.items() if name not in ELSEWHERE},
        "measures": [str(measure) for measure in design.measures],
        "attributes": data.attributes,
        "stand-ins": [(name, document.groups) for name, document in data.stand_ins.items()],
        "judgements": (data.qrels, data.relevant_counts) if listed else (),
        "code": (code, offered, versions(), [*map(newest, packages)]),
    }
    content = fingerprint(inputs, lambda value: dict(value) if isinstance(value, Mapping) else str(value))
    digest = hashlib.sha256(content.encode())
    for document in data.documents.values() if listed else ():
        digest.update(repr(document).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def newest(package: str) -> int | None:
    """When a source file of a package or module was last written; None where there is none to look at."""
    try:
        spec = find_spec(package)
    except ValueError:  # a script or a notebook
        spec = None
    if spec is None or spec.origin is None:
        return None
    origin = Path(spec.origin)
    paths = origin.parent.rglob("*") if spec.submodule_search_locations else [origin]
    return max((path.stat().st_mtime_ns for path in paths if path.suffix in SOURCES), default=None)


def unchanged(begun: RunStart, inputs: str) -> bool:
    """Whether the folder is as a command with these inputs left it, complete; or merely complete, of one that stops."""
    run = begun.folder
    try:
        manifest = run.read_manifest()
        if begun.design.stops and manifest.status == "complete":
            return fingerprint(manifest.settings) == fingerprint(begun.identity)
        return bool(inputs) and manifest.made == {"inputs": inputs, "files": _files(run)}
    except (OSError, LlmfairError):  # a damaged manifest is made anew
        return False


def _files(run: RunDir) -> dict[str, list[int]]:
    """Sizes and times of a run's files, without those of its page, which is drawn of them."""
    paths = (path for path in sorted(run.path.rglob("*")) if path.is_file())
    aside = {LOCK, run.manifest.name, REPORT, "plots"}
    return {
        str(path.relative_to(run.path)): [path.stat().st_size, path.stat().st_mtime_ns]
        for path in paths
        if path.relative_to(run.path).parts[0] not in aside
    }


# What a command has left for its next run.


S = TypeVar("S", bound=AuditSettings)


@dataclass
class Spending:
    """What the runs of a command have used: calls, and money at the prices given; `folder` of the last one begun."""

    calls: int = 0
    cost: float = 0.0
    folder: Path | None = None

    @contextmanager
    def run(self, settings: S, subject: Subject, watch: Watch) -> Iterator[tuple[S, Watch]]:
        """The next run's settings with what is left of the budget, and its watch. Raises Incomplete without any."""
        begun: list[Progress] = []
        self.folder = None

        def noting(
            folder: Path, planned: Mapping[str, Any], progress: Progress, limit: int
        ) -> AbstractContextManager[None]:
            begun.append(progress)
            self.folder = folder
            return watch(folder, planned, progress, limit)

        calls, cost = settings.max_calls, settings.max_cost
        if not subject.ranks:  # which asks nothing
            if calls is not None and self.calls >= calls:
                raise Incomplete(f"the budget of {calls} calls is spent.", GO_ON)
            if cost is not None and 0 < cost <= self.cost:
                raise Incomplete(f"the budget of {cost:g} is spent.", GO_ON)
        left = replace(
            settings,
            max_calls=None if calls is None else max(0, calls - self.calls),
            max_cost=None if cost is None else max(0.0, cost - self.cost),
        )
        try:
            yield left, noting
        finally:
            self.calls += sum(progress.calls for progress in begun)
            self.cost += fsum(progress.cost or 0.0 for progress in begun)
