"""Makes an index on disk from a stream of documents, in bounded memory; a build that was killed goes on.

Beside its files an index has a manifest: what it was made of, by which analyzer and engine; and files.json, by which
each is known again (`io/files.py`). While one is made it stands under another name, so that a part of an index is never
read.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmfair.errors import RunConflict, UsageError, line_of
from llmfair.io import files
from llmfair.io.files import LEFTOVER, TABLE, write_whole
from llmfair.nouns import Document, MadeIndex
from llmfair.retrieval.analysis import Analyzer
from llmfair.retrieval.tantivy import TantivyEngine, described, entry, new_index

if TYPE_CHECKING:
    import tantivy

SCHEMA = 3
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
    plan = _plan(source, analyzer)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.held(path.with_name(path.name + ".lock"), path, "wait for it", wait=True):
            manifest = _manifest(path)
            if (replaces and manifest != plan) or not _is_whole(path):
                _build(path, documents, plan, analyzer, commit_every or COMMIT_EVERY)
            else:
                _refuse_other(path, manifest, plan, "")
            return _engine(path, source, analyzer)
    except (OSError, ValueError) as error:
        why = line_of(error)
        with suppress(OSError):  # of a full disk tantivy says only that one of its threads failed
            why = "the disk is full" if shutil.disk_usage(path.parent).free < NO_ROOM else why
        raise UsageError(
            f"the index {path} cannot be made: {why}.",
            "free its place, or name another cache folder with LLMFAIR_CACHE_DIR",
        ) from None


def opened(made: MadeIndex, analyzer: Analyzer) -> TantivyEngine:
    """The engine of an index that was made before, whatever its size, in a moment.

    Raises UsageError for one that is gone or damaged, RunConflict for one of something else, with the command that
    makes it.
    """
    path, command = made.path, made.command
    if not (path / MANIFEST).is_file():
        raise UsageError(f"the index {path} is gone.", f"{command}    makes it")
    _refuse_other(path, _manifest(path), _plan(made.source, analyzer), command)
    try:
        if _is_whole(path):
            return _engine(path, made.source, analyzer)
        why = "it is damaged"
    except (OSError, ValueError) as error:
        why = line_of(error)
    raise UsageError(f"the index {path} cannot be read: {why}.", f"remove it, then {command}")


def _engine(path: Path, source: str, analyzer: Analyzer) -> TantivyEngine:
    import tantivy

    return TantivyEngine(tantivy.Index.open(str(path)), analyzer, identity(source, analyzer))


def _plan(source: str, analyzer: Analyzer) -> dict[str, Any]:
    """What an index is made of, as its manifest has it."""
    return {
        "schema": SCHEMA,
        "source": source,
        "tokenizer": analyzer.tokenizer,
        "tantivy": version("tantivy"),
    }


def _refuse_other(path: Path, manifest: Mapping[str, Any], plan: Mapping[str, Any], command: str) -> None:
    """Raises RunConflict for an index that was made of something else, or by another version of tantivy."""
    differences = ", ".join(
        f"{name} is {str(manifest.get(name))[:12]}, not {str(wanted)[:12]}"
        for name, wanted in plan.items()
        if manifest.get(name) != wanted
    )
    if differences:
        raise RunConflict(
            f"the index {path} is another one: {differences}.",
            f"remove it, then {command}" if command else "another folder, or remove it",
        )


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
    files.note(beside, [file.name for file in _files(beside)])
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
    write_whole(beside / MANIFEST, [json.dumps(plan)])
    return new_index(str(beside), analyzer)


def _manifest(path: Path) -> dict[str, Any]:
    """What the manifest says; nothing without one."""
    with suppress(OSError, ValueError, RecursionError):
        manifest = json.loads(files.content(path / MANIFEST, files.MOST_RECORDED))
        if isinstance(manifest, dict):
            return manifest
    return {}


def _is_whole(path: Path) -> bool:
    """Whether every file is as it was written, and none is beside."""
    try:
        files.check(path)
        known = files.decode(files.content(path / TABLE))
        return _manifest(path).get("schema") == SCHEMA and {file.name for file in _files(path)} == {*known}
    except (OSError, ValueError):
        return False


def _files(path: Path) -> list[Path]:
    """The index's files without tantivy's locks, which come and go; a lock that is no file is none."""
    there = (file for file in path.iterdir() if file.name != TABLE and not LEFTOVER.fullmatch(file.name))
    return sorted(file for file in there if file.suffix != ".lock" or not file.is_file())
