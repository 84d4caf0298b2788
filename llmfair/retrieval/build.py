"""Makes an index on disk from a stream of documents, in bounded memory; a build that was killed goes on.

Beside its files an index has a manifest: what it was made of, by which analyzer and engine, and every file with size,
time and SHA-256. While one is made it stands under another name and its manifest lists no files, so that a part of
an index is never read.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmfair.errors import RunConflict, UsageError, line_of
from llmfair.io import files
from llmfair.io.files import LEFTOVER, told, touched, write_whole
from llmfair.nouns import Document, MadeIndex
from llmfair.retrieval.analysis import Analyzer
from llmfair.retrieval.tantivy import TantivyEngine, described, entry, new_index

if TYPE_CHECKING:
    import tantivy

SCHEMA = 2
MANIFEST = "manifest.json"
WRITER_BYTES = 64_000_000
NO_ROOM = 1_000_000
COMMIT_EVERY = 250_000
"""Documents: what a killed build has to do again at most."""


def stored(
    path: Path,
    documents: Iterable[Document],
    source: str,
    analyzer: Analyzer,
    commit_every: int | None = None,
    replaces: bool = False,
) -> TantivyEngine:
    """The engine of the index at this path, which is made when there is none, or a damaged one.

    `source` is the SHA-256 of what the documents are; they themselves, whose ids are distinct, are looked at only where
    an index is to be made, and come in the same order each time. Several processes may share a path. An index of
    something else is replaced when the new one is whole, if it may be (`replaces`). Raises RunConflict for one that may
    not, UsageError when none can be made.
    """
    made_of = _made_of(source, analyzer)
    plan = {"schema": SCHEMA, **made_of}
    try:
        with _locked(path):
            manifest = _manifest(path)
            if (replaces and _other(manifest, made_of)) or not _is_whole(path, manifest):
                _build(path, documents, plan, analyzer, commit_every or COMMIT_EVERY)
            else:
                _refuse_other(path, manifest, made_of)
            return TantivyEngine(_opened(path), analyzer, identity(source, analyzer))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the index {path} cannot be made: {_why(path, error)}.",
            "free its place, or name another cache folder with LLMFAIR_CACHE_DIR",
        ) from None


def _why(path: Path, error: OSError | ValueError) -> str:
    """What went wrong; of a full disk tantivy says only that one of its threads failed."""
    with suppress(OSError):
        if shutil.disk_usage(path.parent).free < NO_ROOM:
            return "the disk is full"
    return line_of(error)


def opened(made: MadeIndex, analyzer: Analyzer) -> TantivyEngine:
    """The engine of an index that was made before, whatever its size, in a moment.

    Raises UsageError for one that is gone or damaged, RunConflict for one of something else, with the command that
    makes it.
    """
    path, command = made.path, made.command
    if not (path / MANIFEST).is_file():
        raise UsageError(f"the index {path} is gone.", f"{command}    makes it")
    manifest = _manifest(path)
    _refuse_other(path, manifest, _made_of(made.source, analyzer), command)
    try:
        if not _is_whole(path, manifest):
            raise UsageError(f"the index {path} is damaged.", f"remove it, then {command}")
        return TantivyEngine(_opened(path), analyzer, identity(made.source, analyzer))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the index {path} cannot be read: {line_of(error)}.", f"remove it, then {command}"
        ) from None


def _made_of(source: str, analyzer: Analyzer) -> dict[str, str]:
    return {"source": source, "tokenizer": analyzer.tokenizer, "tantivy": version("tantivy")}


def _refuse_other(
    path: Path, manifest: Mapping[str, Any], made_of: Mapping[str, str], command: str = ""
) -> None:
    """Raises RunConflict for an index that was made of something else, or by another version of tantivy."""
    other = _other(manifest, made_of)
    if not other:
        return
    said = ", ".join(
        f"{name} is {_short(manifest.get(name))}, not {_short(wanted)}" for name, wanted in other.items()
    )
    raise RunConflict(
        f"the index {path} is another one: {said}.",
        f"remove it, then {command}" if command else "another folder, or remove it",
    )


def _other(manifest: Mapping[str, Any], made_of: Mapping[str, str]) -> dict[str, str]:
    """In what an index would have to be made of something else."""
    return {name: wanted for name, wanted in made_of.items() if manifest.get(name) != wanted}


def _short(value: object) -> str:
    """A sum by its first digits."""
    return str(value)[:12]


def identity(source: str, analyzer: Analyzer) -> str:
    """All that can change a score, in words."""
    return f"{described(analyzer)} index={source[:12]}"


def filled(index: tantivy.Index, documents: Iterable[Document], commit_every: int, writer_bytes: int) -> None:
    """Writes the documents that the index does not hold yet."""
    index.reload()
    held = index.searcher().num_docs
    writer = index.writer(heap_size=writer_bytes, num_threads=1)
    try:
        for number, document in enumerate(islice(documents, held, None), held + 1):
            writer.add_document(entry(document))
            if number % commit_every == 0:
                writer.commit()
        writer.commit()
    finally:
        writer.wait_merging_threads()  # lets go of the folder, too


def _build(
    path: Path, documents: Iterable[Document], plan: Mapping[str, Any], analyzer: Analyzer, commit_every: int
) -> None:
    """Makes the index beside its place and moves it there whole."""
    beside, damaged = (path.with_name(path.name + end) for end in (".tmp", ".old"))
    shutil.rmtree(damaged, ignore_errors=True)
    filled(_begun(beside, plan, analyzer), documents, commit_every, WRITER_BYTES)
    _write_manifest(beside, {**plan, "files": {file.name: told(file) for file in _files(beside)}})
    if path.exists():  # moved, since it may not be emptied while a thread of tantivy still locks it
        path.rename(damaged)
    beside.rename(path)
    shutil.rmtree(damaged, ignore_errors=True)


def _begun(beside: Path, plan: Mapping[str, Any], analyzer: Analyzer) -> tantivy.Index:
    """The index of a build of the same plan that was killed, with what it had committed; or a new one."""
    if _manifest(beside) == plan:
        with suppress(ValueError):
            return new_index(str(beside), analyzer)
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    _write_manifest(beside, plan)
    return new_index(str(beside), analyzer)


def _opened(path: Path) -> tantivy.Index:
    import tantivy

    return tantivy.Index.open(str(path))


def _manifest(path: Path) -> dict[str, Any]:
    """What the manifest says; nothing without one."""
    with suppress(OSError, ValueError, RecursionError):
        manifest = json.loads(files.content(path / MANIFEST, files.MOST_RECORDED))
        if isinstance(manifest, dict):
            return manifest
    return {}


def _write_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    write_whole(path / MANIFEST, [json.dumps(manifest)])


def _is_whole(path: Path, manifest: Mapping[str, Any]) -> bool:
    """Whether every file is as it was written: by size and time, and by its content where those differ."""
    expected = manifest.get("files")
    try:
        if manifest.get("schema") != SCHEMA or not isinstance(expected, dict):
            return False
        if {file.name for file in _files(path)} != set(expected):
            return False
        if now := touched(path, expected):  # a copy, which is not read whole again the next time
            with suppress(OSError):
                _write_manifest(path, {**manifest, "files": {**expected, **now}})
        return True
    except (OSError, ValueError):  # gone, another, or of a manifest of another form
        return False


def _files(path: Path) -> list[Path]:
    """The index's files without its manifest and tantivy's locks, which come and go; a lock that is no file is none."""
    files = (file for file in path.iterdir() if file.name != MANIFEST and not LEFTOVER.fullmatch(file.name))
    return sorted(file for file in files if file.suffix != ".lock" or not file.is_file())


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds an index against other processes; the kernel lets go of it when this one dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.held(path.with_name(path.name + ".lock"), path, "wait for it", wait=True):
        yield
