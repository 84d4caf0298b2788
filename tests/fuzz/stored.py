"""What a machine keeps between commands, harmed: fetched collections with their index, drawn lists, the answer cache.

Beside it the files of which a collection is fetched.

A case of the answer cache does not come again to the byte: the file has the times of its answers.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from llmfair.io import files
from tests.cli.command import ran
from tests.datasets.trec_sources import NAME, made
from tests.folders import balanced, write_folder
from tests.fuzz.harms import copy, harm
from tests.fuzz.inputs import LISTS, OWN
from tests.fuzz.running import Case
from tests.servers import Server

LISTED = tuple(word for word in LISTS if word != "--no-cache")
COLLECTION = f"{NAME}/gender"
FEW = ("--candidates", "4", "--relevant", "2", "--min-relevant", "1")
KEPT = "cache"
SOURCES = {"--topics": "topics.jsonl", "--metadata": "metadata.jsonl", "--corpus": "corpus.jsonl"}


def _commands(base: Path) -> Mapping[str, tuple[tuple[str, ...], ...]]:
    """Those that read what lies below a folder of the cache, by the folder's name."""
    copies = (base / "copies.txt").read_text().splitlines()
    asked = ("listwise", "-d", str(base / "data"), *LISTED, *(base / "server.txt").read_text().split())
    return {
        "datasets": (
            ("datasets", "show", COLLECTION),
            ("datasets", "list"),
            ("listwise", "-d", COLLECTION, *FEW, *LISTS),
            ("plan", "listwise", "-d", COLLECTION),
            ("refine", "-d", COLLECTION, "-n", "1", "--no-cache"),
            ("refine", "-d", COLLECTION, "-n", "2", "-m", "bm25", "--no-cache", "-o", "new"),
            ("datasets", "fetch", NAME, "--yes", "--index", "full", *copies),
        ),
        "answers.sqlite": (asked, (*asked, "-o", "new"), ("cache", "info"), ("cache", "info", "--json"), ("cache", "clear"), ("cache", "clear", "--older-than", "1h")),
    }  # fmt: skip


def prepare(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LLMFAIR_CACHE_DIR", str(folder / KEPT))
        copies = made(200).copies(folder)
        (folder / "copies.txt").write_text("\n".join(copies))
        ran("datasets", "fetch", NAME, "--yes", "--index", "full", *copies)
        (folder / "sources").mkdir()
        for flag, path in zip(copies[::2], copies[1::2], strict=True):
            (folder / "sources" / SOURCES[flag]).write_bytes(files.text(path).encode())
        ran("listwise", "-d", COLLECTION, *FEW, *LISTS, "-o", "drawn")
        write_folder(folder / "data", balanced(2, 4, 4))
        with Server() as server:
            flags = ("-m", "openai:any", "--base-url", server.base_url, "--max-calls", "1")
            ran("listwise", "-d", str(folder / "data"), *LISTED, *flags[:4], "-o", "asked")
        (folder / "server.txt").write_text(" ".join(flags))


def case(rng: random.Random, folder: Path, base: Path) -> Case:
    if rng.random() < 0.25:
        return _fetched(rng, folder, base)
    copy(base, folder, [KEPT])
    commands = _commands(base)
    part = rng.choice(("datasets", "datasets", "answers.sqlite"))
    place = folder / KEPT / part
    files = sorted(path for path in place.rglob("*") if path.is_file()) or [place]
    path = rng.choice(files)
    how = _harmed(rng, path)
    command = rng.choice(commands[part])
    kind = f"{path.relative_to(folder / KEPT)}: {how}: {' '.join(command[:2])}"
    return Case(command, kind, environment={"LLMFAIR_CACHE_DIR": KEPT})


def _fetched(rng: random.Random, folder: Path, base: Path) -> Case:
    """A collection that is fetched of files one of which is harmed."""
    copy(base, folder, ["sources"])
    name = rng.choice([*SOURCES.values()])
    how = _harmed(rng, folder / "sources" / name)
    given = [word for flag, file in SOURCES.items() for word in (flag, f"sources/{file}")]
    kept = rng.choice(((), ("--text-words", "5"), ("--index", "pool"), ("--index", "full")))
    command = ("datasets", "fetch", NAME, "--yes", *given, *kept)
    return Case(command, f"{name}: {how}: datasets fetch", environment={"LLMFAIR_CACHE_DIR": "fresh"})


def _harmed(rng: random.Random, path: Path) -> str:
    if rng.random() < 0.25 and path.stat().st_size:
        change = rng.choice(OWN)
        path.write_bytes(change(rng, path.read_bytes()))
        return change.__name__
    return harm(rng, path)
