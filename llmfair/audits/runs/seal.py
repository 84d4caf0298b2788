"""A run folder that a command left sealed is neither measured nor drawn again by the same command.

The seal is a SHA-256 over all that makes results and page (settings, data, who answers, the code itself) and over every
file of the folder, and one over the page. Whatever differs, an edited file or an edited measure, breaks the first, and
all is made anew; a page that `llmfair report` drew otherwise breaks the second, and is drawn again without measuring.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from importlib.util import find_spec
from pathlib import Path, PurePath
from typing import Any
from uuid import uuid4

from llmfair import registry
from llmfair.audits.design import Design, versions
from llmfair.audits.kind import kind_of
from llmfair.datasets.base import Dataset
from llmfair.io.files import MOST_BY_HAND, content, write_whole
from llmfair.nouns import ManyDocuments
from llmfair.rundir import LOCK, REPORT, RunDir, fingerprint

SEAL = ".seal"
OF_PAGE = (REPORT, "plots")
UNCOUNTED = {
    "output", "runs_dir", "fresh", "format", "open", "junit", "workers", "adaptive", "rpm", "tpm", "retries", "timeout",
    "max_wait", "outage", "max_reply", "max_calls", "max_cost", "ray_workers", "ray_address",
}  # fmt: skip
"""Settings that say where, how fast and as what, and change neither results nor page."""
SOURCES = {".py", ".j2", ".js"}


def inputs_of(design: Design[Any], identity: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """All that results and page of a design are made of beside its answers, as one SHA-256."""
    data, offered = design.dataset, registry.offered()
    code = [f"{one.__module__}.{one.__qualname__}" for one in (type(design), type(kind_of(design.task)))]
    packages = {name.partition(".")[0] for name in ("llmfair", *code, *offered)}
    settings = design.settings.written().items()
    return fingerprint(
        {
            "identity": identity,
            "facts": {name: value for name, value in facts.items() if name != "flags"},
            "settings": {name: value for name, value in settings if name not in UNCOUNTED},
            "measures": [str(measure) for measure in design.measures],
            "attributes": data.attributes,
            "data": _data_sha256(data),
            "stand-ins": [(name, one.groups) for name, one in data.stand_ins.items()],
            "versions": versions(),
            "code": (code, offered, [_source(name) for name in sorted(packages)]),
        },
        _content,
    )


def _data_sha256(data: Dataset) -> str:
    """SHA-256 over judgements and all documents, one by one: together they would take their room three times over."""
    if isinstance(data.documents, ManyDocuments):  # the sum of the lists has the record of their fetch
        return ""
    digest = hashlib.sha256(
        fingerprint({"judgements": (data.qrels, data.relevant_counts)}, _content).encode()
    )
    for one in data.documents.values():
        digest.update(fingerprint({one.doc_id: (one.title, one.text, one.groups)}, _content).encode())
    return digest.hexdigest()


def _content(value: object) -> object:
    """What JSON does not know, as it is written. Raises TypeError: the words for anything else may be others each time,
    such as its address, and the seal would never hold.
    """
    match value:
        case PurePath():
            return str(value)
        case Mapping():
            return dict(value.items())
        case _ if is_dataclass(value) and not isinstance(value, type):
            return asdict(value)
    kind = type(value).__name__
    raise TypeError(f"a {kind} cannot be sealed: only what JSON knows, paths, mappings and dataclasses.")


def _source(package: str) -> str:
    """SHA-256 over the source of a package or module, which may be edited while its version stays."""
    try:
        spec = find_spec(package)
    except ValueError:  # a script or a notebook
        spec = None
    if spec is None or spec.origin is None:
        return uuid4().hex  # never the same twice
    origin = Path(spec.origin)
    files = origin.parent.rglob("*") if spec.submodule_search_locations else [origin]
    digest = hashlib.sha256()
    for path in sorted(path for path in files if path.suffix in SOURCES):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def unchanged(run: RunDir, inputs: str) -> tuple[bool, bool]:
    """Whether the folder is as a command with these inputs left it, complete, but for its page; and with its page.

    One that cannot be read is not.
    """
    try:
        there, now = content(run.path / SEAL, MOST_BY_HAND).split(), _seal(run, inputs).encode().split()
    except OSError:
        return False, False
    return there[:1] == now[:1], there == now


def is_complete(run: RunDir, identity: Mapping[str, Any]) -> bool:
    """Whether a run of this identity is there with all its answers, sealed or not."""
    if not run.manifest.is_file():
        return False
    found = run.read_manifest()
    return found.status == "complete" and fingerprint(found.settings) == fingerprint(identity)


def seal(run: RunDir, inputs: str) -> None:
    """Seals a complete run, with its page, if it has one; one that cannot be read or written stays without."""
    with suppress(OSError):
        write_whole(run.path / SEAL, [_seal(run, inputs)])


def _seal(run: RunDir, inputs: str) -> str:
    results, page = hashlib.sha256(f"{inputs} {run.path.name}".encode()), hashlib.sha256()
    for path in sorted(run.path.rglob("*")):
        name = path.relative_to(run.path)
        if path.is_file() and str(name) not in (LOCK, SEAL):
            with path.open("rb") as file:
                held = hashlib.file_digest(file, "sha256").hexdigest()
            of = page if name.parts[0] in OF_PAGE else results
            of.update(f"\n{held} {name}".encode("utf-8", "surrogateescape"))
    return f"{results.hexdigest()}\n{page.hexdigest()}\n"
