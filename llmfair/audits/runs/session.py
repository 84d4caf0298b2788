"""The books of a run while it is worked on: its folder held, its manifest kept honest, its costs noted."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from math import fsum
from pathlib import Path
from typing import Any

from llmfair import registry
from llmfair.asking.batch import FILE as BATCHES
from llmfair.asking.journal import Journal
from llmfair.asking.limits import Progress
from llmfair.audits.design import Design, versions
from llmfair.audits.kind import kind_of
from llmfair.datasets.base import Dataset
from llmfair.errors import LlmfairError, RunConflict
from llmfair.io import secrets
from llmfair.io.files import SCHEMA, read_json
from llmfair.nouns import ManyDocuments
from llmfair.rundir import LOCK, REPORT, RunDir, clock, fingerprint, set_aside


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
        journal = Journal(folder.journal, folder.path.name, str(identity["identity"]))
        refuse_fewer(journal, earlier.journal_answers if earlier else 0)
        tell = clock()
        invocation = {"command": secrets.written(sys.argv), "started": tell(), "ended": None}
        manifest: dict[str, Any] = {
            "schema": SCHEMA,
            "status": "running",
            "settings": dict(identity),
            "versions": versions(),
            "journal_answers": len(journal),
            "journal_lines_skipped": journal.skipped,
            "invocations": [*folder.invocations(), invocation],
            **facts,
        }
        if "stages" in facts:
            manifest["stage_answers"] = dict(earlier.stage_answers) if earlier else {}
            manifest["stage_lines_skipped"] = {}
        folder.write_json("manifest.json", manifest)
        try:
            try:
                yield journal, manifest
            finally:
                manifest["journal_answers"] = len(journal)
                note_servers(manifest, journal)
                invocation["ended"] = tell()
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


def refuse_fewer(journal: Journal, given: int) -> None:
    """Raises RunConflict for a journal with fewer answers than were given."""
    lost = given - len(journal) - len(journal.skipped)
    if lost > 0:
        raise RunConflict(
            f"{journal.path} holds {len(journal):,} answers, {lost:,} fewer than were given.",
            "put the journal back, or ask again with --fresh",
        )


def charge(manifest: dict[str, Any], progress: Progress) -> None:
    """Notes what an invocation asked, however it ended; `cost` is the whole run's, None where no prices were known."""
    facts: dict[str, Any] = {
        "answered": progress.answered,
        "calls": progress.calls,
        "replayed": progress.replayed,
        "cached": progress.cached,
        "retries": progress.retries,
        "prompt_tokens": progress.prompt_tokens,
        "completion_tokens": progress.completion_tokens,
        "cost": progress.cost,
        "models_reported": sorted(progress.models),
        "fingerprints_reported": sorted(progress.fingerprints),
    }
    manifest["invocations"][-1] |= facts
    known = [cost for one in manifest["invocations"] if (cost := one.get("cost")) is not None]
    manifest |= {**facts, "cost": fsum(known) if known else None}


# A complete run that nothing has changed is neither measured nor drawn again by the same command: its manifest has a
# digest of all that results and page are made of beside the answers, and sizes and times of the files that came of it.


ELSEWHERE = {
    "output", "runs_dir", "fresh", "format", "open", "junit", "workers", "adaptive", "rpm", "tpm", "retries", "timeout",
    "max_wait", "outage", "max_reply", "max_calls", "max_cost", "ray_workers", "ray_address",
}  # fmt: skip
"""Settings that say where, how fast and as what, and change neither results nor page."""
SOURCES = {".py", ".j2", ".js"}


def inputs_of(run: RunDir, design: Design[Any], identity: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """A digest of settings, data and code; of what has other words in each process it is another each time."""
    data, offered = design.dataset, registry.offered()
    settings = design.settings.written().items()
    code = [f"{one.__module__}.{one.__qualname__}" for one in (type(design), type(kind_of(design.task)))]
    packages = sorted({name.partition(".")[0] for name in ("llmfair", *code, *offered)})
    return fingerprint(
        {
            "run": run.path.name,
            "identity": identity,
            "facts": {name: value for name, value in facts.items() if name != "flags"},
            "settings": {name: value for name, value in settings if name not in ELSEWHERE},
            "measures": [str(measure) for measure in design.measures],
            "attributes": data.attributes,
            "data": _data_sha256(data),
            "stand-ins": [(name, one.groups) for name, one in data.stand_ins.items()],
            "code": (code, offered, versions(), [*map(_newest, packages)]),
        },
        _content,
    )


def _content(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else str(value)


def _data_sha256(data: Dataset) -> str:
    """SHA-256 over judgements and documents, one by one: together they would take their room three times over."""
    if isinstance(data.documents, ManyDocuments):  # the sum of the lists has the record of their fetch
        return ""
    digest = hashlib.sha256(
        fingerprint({"judgements": (data.qrels, data.relevant_counts)}, _content).encode()
    )
    for document in data.documents.values():
        digest.update(repr(document).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _newest(package: str) -> int | None:
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


def unchanged(run: RunDir, inputs: str) -> tuple[bool, bool]:
    """Whether the folder is as a command with these inputs left it, complete, but for its page; and with its page."""
    try:
        made = run.read_manifest().made if run.manifest.is_file() else {}
        same = made.get("inputs") == inputs and made.get("files") == _files(run, False)
        return same, same and made.get("page") == _files(run, True)
    except (OSError, LlmfairError):  # a damaged manifest is made anew
        return False, False


def is_complete(run: RunDir, identity: Mapping[str, Any]) -> bool:
    """Whether a run of this identity is there with all its answers."""
    if not run.manifest.is_file():
        return False
    manifest = run.read_manifest()
    return manifest.status == "complete" and fingerprint(manifest.settings) == fingerprint(identity)


def note_made(run: RunDir, inputs: str) -> None:
    """Adds to the manifest of a complete run what its files were made of; where that cannot be, it stays without."""
    with suppress(OSError, LlmfairError):
        made = {"inputs": inputs, "files": _files(run, False), "page": _files(run, True)}
        run.write_json(run.manifest.name, {**read_json(run.manifest), "made": made})


def _files(run: RunDir, of_page: bool) -> dict[str, list[int]]:
    """Sizes and times of a run's files, or of those of its page."""
    states = {}
    for path in sorted(run.path.rglob("*")):
        name = path.relative_to(run.path)
        counts = path.is_file() and str(name) not in (LOCK, run.manifest.name)
        if counts and (name.parts[0] in (REPORT, "plots")) == of_page:
            states[str(name)] = [path.stat().st_size, path.stat().st_mtime_ns]
    return states
