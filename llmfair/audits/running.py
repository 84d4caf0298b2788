"""What every audit does around its questions: reach the model, hold the folder, ask, keep the books."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache as once
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import llmfair
from llmfair import registry
from llmfair.asking import Limits, Progress
from llmfair.audits.answers import require_readable
from llmfair.audits.gates import require_met
from llmfair.backends.adapters import MANIFEST, read_manifest
from llmfair.backends.base import Backend, BackendOptions
from llmfair.batch import dispatch_batch
from llmfair.datasets.base import Dataset, cache_folder
from llmfair.dispatch import Program, dispatch
from llmfair.errors import Incomplete, LlmfairError, RunConflict, UsageError, did_you_mean
from llmfair.journal import Journal
from llmfair.ledger import FILE as BATCHES
from llmfair.ledger import refuse_open
from llmfair.rankers.base import RankerOptions, ScoringRanker
from llmfair.records import Attribute, Failure, Measurement, Probe, Sampling
from llmfair.rundir import SCHEMA, RunDir, folder_name, now, set_aside
from llmfair.settings import AuditSettings, ListwiseSettings, seconds

if TYPE_CHECKING:
    from llmfair.cache import Cache

THINKING_TOKENS = 4096
CAPABILITY_HINTS = {
    "constrain": "a model in this process or a vLLM server can; without it unreadable answers are counted",
    "margins": "read the answers' text with --answers text",
    "forced_margins": "a server shows the first token only: add --form letter",
    "adapter": "a model in this process takes an adapter: hf: or vllm:",
    "batch": "OpenAI and servers with its Batch API can: openai:NAME",
    "backend_args": "only a model in this process has an engine: hf: or vllm:",
}


class Watch(Protocol):
    """Shows a run while it is asked: `with watch(folder, planned, progress, limit):`.

    `planned` says how many `calls` there will be, and what the `design` can `reach`, before anything is asked.
    """

    def __call__(
        self, folder: Path, planned: Mapping[str, Any], progress: Progress, limit: int
    ) -> AbstractContextManager[None]: ...


def no_watch(
    folder: Path, planned: Mapping[str, Any], progress: Progress, limit: int
) -> AbstractContextManager[None]:
    """Shows nothing."""
    return nullcontext()


@dataclass(frozen=True)
class Result:
    """A finished audit: its folder, its results as `results.json` has them, its rows."""

    folder: RunDir
    results: Mapping[str, Any]
    rows: Sequence[Measurement]


@dataclass(frozen=True)
class Outcome:
    """What a run found: results as `results.json` has them, all rows, and every file by name."""

    results: Mapping[str, Any]
    rows: Sequence[Measurement]
    files: Mapping[str, str]


class Task(Protocol):
    """An audit of one model, made but not begun: what it asks, and what the answers come to.

    `adapted`: the settings' adapter, if there is one, answers; else the base that it stands on, in the same engine.
    `identity` holds all that can change a result; `planned` what is told before the first question.
    """

    @property
    def name(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def adapted(self) -> bool: ...
    @property
    def calls(self) -> int: ...
    @property
    def settings(self) -> AuditSettings: ...
    def backend(self) -> Backend: ...
    def probes(self) -> Iterator[Probe]: ...
    def programs(self) -> Iterator[Program]: ...
    def identity(self) -> dict[str, Any]: ...
    def describe(self) -> dict[str, Any]: ...
    def planned(self) -> dict[str, Any]: ...
    def name_parts(self) -> tuple[str, ...]: ...
    def unreadable(self, result: Any) -> int: ...
    def outcome(self, run: str, results: Mapping[str, Any], failures: Sequence[Failure]) -> Outcome: ...


@dataclass
class Answered:
    """What came back: results by probe, probes without one, and the error that broke the run off, if any."""

    progress: Progress
    results: dict[str, Any] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    error: LlmfairError | None = None

    def facts(self) -> dict[str, Any]:
        """What the manifest says of the asking."""
        progress = self.progress
        return {
            "answered": progress.answered,
            "calls": progress.calls,
            "replayed": progress.replayed,
            "cached": progress.cached,
            "retries": progress.retries,
            "failed": len(self.failures),
            "prompt_tokens": progress.prompt_tokens,
            "completion_tokens": progress.completion_tokens,
            "cost": progress.cost,
            "models_reported": sorted(progress.models),
            "fingerprints_reported": sorted(progress.fingerprints),
        }


def audit(task: Task, watch: Watch = no_watch) -> Result:
    """Runs or continues one model's audit; all of it ends in the run folder.

    Raises RunConflict for a folder of other settings, BackendError when the model cannot be asked, Incomplete
    when probes have no answer (what there is, is written), and RequirementFailed when too many answers are
    unreadable or a gate is not met (everything is written).
    """
    settings, backend, progress = task.settings, task.backend(), Progress()
    identity, folder = folder_of(task, backend)
    sampling_of(settings)  # a malformed flag leaves no folder behind
    doubts: list[str] = []
    if task.adapted and settings.adapter is not None:
        doubts += adapter_doubts(settings.adapter, identity, str(task.describe()["dataset"]))
    for doubt in doubts:
        _warn(doubt)
    label = label_of(task.model, settings, task.adapted)
    facts = {**task.describe(), "model": label, "simulated": backend.reads_about, "doubts": doubts}
    facts["planned_calls"] = task.calls  # a run that is killed has no word left
    with session(folder, identity, settings.fresh, facts) as (journal, manifest):
        planned = {**task.planned(), "on_disk": len(journal)}
        watched = watch(folder.path, planned, progress, limits_of(backend, settings).workers)
        with shared_answers(task, backend) as cache:
            answered = ask(
                task.programs(), backend, journal, cache, settings, watched, progress, task.unreadable
            )
        outcome = task.outcome(folder.path.name, answered.results, answered.failures)
        folder.write_files(outcome.files)
        status = "complete" if answered.error is None else "incomplete"
        manifest |= {"status": status, "answers": outcome.results["answers"], **answered.facts()}
        manifest["invocations"][-1] |= answered.facts()
        if found := getattr(backend, "facts", None):  # where a model of this process ran, and why there
            manifest["invocations"][-1]["model"] = found
    if answered.error is not None:
        raise answered.error
    require_readable(outcome.results["answers"], settings.max_invalid)
    require_met(outcome.results["requirements"])
    results = {**outcome.results, "doubts": doubts} if doubts else outcome.results
    return Result(folder, results, outcome.rows)


def label_of(model: str, settings: AuditSettings, adapted: bool = True) -> str:
    """Whom an audit asks, as results name it: the model's spec, and the adapter's folder if one answers."""
    adapter = settings.adapter if adapted else None
    return model if adapter is None else f"{model} + {adapter.resolve().name}"


def adapter_doubts(adapter: Path, identity: Mapping[str, Any], dataset: str) -> Iterator[str]:
    """Why figures may flatter an adapter: queries it was trained on, or a question it was not trained to answer."""
    if (manifest := read_manifest(adapter)) is None:
        yield (
            f"nothing is known of the queries that {adapter.name} was trained on (it has no {MANIFEST}): on those its "
            "figures would flatter it"
        )
        return
    split, asked = manifest["split"], identity["queries"]
    if manifest["dataset"]["name"] == dataset:
        trained, chose = (len({*asked} & {*split[part]}) for part in ("train", "validation"))
        if trained or chose:
            yield (
                f"of {len(asked)} queries {adapter.name} was trained on {trained}, and {chose} chose its checkpoint; "
                f"--queries @{adapter / 'test-queries.txt'} asks those it never saw"
            )
    for key, name in (("form", "--form"), ("input", "--input")):
        there, here = manifest["prompt"][key], identity.get(key)
        if here is not None and there != here:
            yield f"{adapter.name} was trained with {name} {there}, and is asked with {name} {here}"


def folder_of(task: Task, backend: Backend) -> tuple[dict[str, Any], RunDir]:
    """What names a run, and its folder: the one that --output says, or one derived from the settings."""
    identity = {"task": task.name, "identity": backend.identity, **task.identity()}
    label = label_of(task.model, task.settings, task.adapted)
    named = folder_name((task.name, *task.name_parts(), label.removeprefix("openai:")), identity)
    return identity, RunDir(task.settings.output or task.settings.runs_dir / named)


def subjects(settings: AuditSettings) -> list[tuple[str, bool]]:
    """Whom the settings ask, one run each: every model, and with an adapter both its base and itself."""
    if settings.adapter is None or settings.adapter_only:
        return [(model, True) for model in settings.model]
    return [(model, adapted) for model in settings.model for adapted in (False, True)]


def check_models(settings: AuditSettings) -> None:
    """Raises UsageError for a model that cannot be named, before any other is asked."""
    for model in settings.model:
        if not (is_ranker(model) and isinstance(settings, ListwiseSettings)):
            backend_of(model, settings)


def backend_of(model: str, settings: AuditSettings, adapted: bool = True) -> Backend:
    """The backend a model spec names. Raises UsageError for an unknown prefix or model."""
    prefix, colon, name = model.partition(":")
    rankers, example = registry.names("ranker"), "for example openai:gpt-4o-mini or fake:biased"
    if prefix in rankers:
        raise UsageError(f"{prefix} ranks lists; pairwise needs a model.", example)
    if not colon or not name:
        raise UsageError(
            f"'{model}' is not a model.{did_you_mean(model, rankers)}",
            f"write PREFIX:NAME, {example}; lists can also be ranked by {', '.join(rankers)}",
        )
    options = BackendOptions(
        base_url=settings.base_url,
        server_name=settings.server_name,
        timeout=settings.timeout,
        system=settings.system,
        seed=settings.seed,
        adapter=settings.adapter,
        adapted=adapted,
        backend_args=backend_args(settings.backend_arg),
        template_args=template_args(settings.template_arg),
    )
    backend: Backend = registry.lookup("backend", prefix)(name, options)
    return capable(backend, model, settings)


def capable(backend: Backend, model: str, settings: AuditSettings) -> Backend:
    """The backend, if it can do all that the settings ask of it. Raises UsageError."""
    for capability, flag in settings.needs():
        if capability not in backend.capabilities:
            raise UsageError(f"{model} cannot do {flag}.", CAPABILITY_HINTS[capability])
    return backend


def is_ranker(model: str) -> bool:
    """Whether a model spec names a ranker that asks no model, such as `bm25` or `monot5:CHECKPOINT`."""
    return model.partition(":")[0] in registry.names("ranker")


def scoring_ranker(
    model: str, dataset: Dataset, attribute: Attribute, settings: ListwiseSettings | None = None
) -> ScoringRanker:
    """A registered ranker over the dataset's documents. Raises UsageError for an unknown name."""
    name, _, checkpoint = model.partition(":")
    options = RankerOptions(tuple(dataset.documents.values()), cache_folder(), attribute, checkpoint)
    if settings is not None:
        options = replace(
            options, passages=settings.passages, backend_args=backend_args(settings.backend_arg)
        )
    ranker: ScoringRanker = registry.lookup("ranker", name)(options)
    return ranker


def sampling_of(settings: AuditSettings) -> Sampling:
    """The sampling that the settings ask for. Raises UsageError for a malformed `--extra` or `--template-arg`."""
    extra = {}
    for assignment in settings.extra:
        key, value = _assignment("--extra", assignment)
        try:
            extra[key] = json.loads(value)
        except ValueError:
            raise UsageError(f"--extra {assignment}: the value is not JSON.", "for example top_k=5") from None
    if template := template_args(settings.template_arg):
        extra["chat_template_kwargs"] = template
    return Sampling(
        temperature=settings.temperature,
        max_tokens=settings.max_tokens or 0,
        thinking_tokens=THINKING_TOKENS if settings.thinking else 0,
        seed=settings.model_seed,
        extra=extra,
        constrain=settings.constrain,
        margins=settings.margins,
    )


def backend_args(given: Iterable[str]) -> dict[str, str]:
    """`--backend-arg` as settings of an engine. Raises UsageError."""
    return dict(_assignment("--backend-arg", one, "dtype=float32") for one in given)


def template_args(given: Iterable[str]) -> dict[str, Any]:
    """`--template-arg` as what a chat template is given. Raises UsageError."""
    return {key: _plain(value) for key, value in (_assignment("--template-arg", one) for one in given)}


def _assignment(flag: str, text: str, example: str = "enable_thinking=false") -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise UsageError(f"{flag} {text} is not k=v.", f"for example {flag} {example}")
    return key, value


def _plain(value: str) -> Any:
    """`false`, `3` as JSON has them; any other text as it stands."""
    try:
        return json.loads(value)
    except ValueError:
        return value


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
        earlier = folder.read_manifest() if known else {}
        if fresh:
            set_aside(folder.journal)
            set_aside(folder.path / BATCHES)
        journal = Journal(folder.journal, folder.path.name, str(identity["identity"]))
        lost = earlier.get("journal_answers", 0) - len(journal) - len(journal.skipped)
        if lost > 0 and not fresh:
            raise RunConflict(
                f"{folder.journal} holds {len(journal):,} answers, {lost:,} fewer than were given.",
                "put the journal back, or ask again with --fresh",
            )
        invocation = {"command": sys.argv, "started": now(), "ended": None}
        manifest: dict[str, Any] = {
            "schema": SCHEMA,
            "status": "running",
            "settings": dict(identity),
            "versions": _versions(),
            "journal_answers": len(journal),
            "journal_lines_skipped": journal.skipped,
            "invocations": [*earlier.get("invocations", []), invocation],
            **facts,
        }
        folder.write_json("manifest.json", manifest)
        try:
            yield journal, manifest
        except BaseException:
            manifest["status"] = "incomplete"
            raise
        finally:
            manifest["journal_answers"] = len(journal)
            journal.close()
            invocation["ended"] = now()
            folder.write_json("manifest.json", manifest)


@contextmanager
def shared_answers(task: Task, backend: Backend) -> Iterator[Cache | None]:
    """The cache while a run is asked; None where it is not wanted, and for simulated models, whose calls are free."""
    if task.settings.no_cache or backend.reads_about or not task.calls:
        yield None
        return
    from llmfair.cache import FILE, Cache  # what asks no server needs no SQLite

    with closing(Cache(cache_folder() / FILE, backend.identity, _warn)) as cache:
        yield cache


@once
def _warn(text: str) -> None:
    """Says at once, and only once, what is no error."""
    print(f"Warning: {text}", file=sys.stderr)


def _versions() -> dict[str, str]:
    packages = ("numpy", "scipy", "ir-measures", "aiohttp", "openai", "tantivy")
    return {
        "llmfair": llmfair.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        **{package: version(package) for package in packages},
    }


def ask(
    programs: Iterable[Program],
    backend: Backend,
    journal: Journal,
    cache: Cache | None,
    settings: AuditSettings,
    watch: AbstractContextManager[None],
    progress: Progress,
    unreadable: Callable[[Any], int],
) -> Answered:
    """Dispatches the programs and gathers what comes back; `unreadable` counts a result's unreadable answers."""
    answered = Answered(progress)
    limits, sampling = limits_of(backend, settings), sampling_of(settings)
    asking: Callable[..., Iterator[tuple[str, Any | Failure]]] = (
        dispatch_batch if settings.batch else dispatch
    )
    if not settings.batch:
        refuse_open(journal.path.parent)
    with watch:
        try:
            for probe_id, result in asking(programs, backend, journal, sampling, limits, progress, cache):
                progress.finished += 1
                if isinstance(result, Failure):
                    answered.failures.append(result)
                else:
                    answered.results[probe_id] = result
                    progress.unreadable += unreadable(result)
        except Incomplete as error:
            answered.error = error
    if answered.failures and answered.error is None:
        first = min(answered.failures, key=lambda failure: failure.probe_id)
        total = len(answered.failures) + len(answered.results)
        again = "the same command asks them again"
        if all(failure.failure == "UnreadableAnswer" for failure in answered.failures):
            again = "--on-bad-answer repair counts such answers and goes on, retry:N asks again"
        answered.error = Incomplete(
            f"{len(answered.failures)} of {total} probes have no answer, {first.probe_id} first: "
            f"{first.message}",
            f"failures.csv lists them; {again}",
        )
        answered.error.__cause__ = progress.bug
    return answered


def limits_of(backend: Backend, settings: AuditSettings) -> Limits:
    return Limits(
        workers=settings.workers or backend.max_workers,
        retries=settings.retries,
        max_wait=seconds(settings.max_wait),
        max_calls=settings.max_calls,
        adaptive=settings.adaptive,
        rpm=settings.rpm,
        tpm=settings.tpm,
        max_cost=settings.max_cost,
        price_in=settings.price_in,
        price_out=settings.price_out,
    )
