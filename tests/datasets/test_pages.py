"""Files of a fetched collection that are gone, cut or altered: refused in a sentence, and made again by the fetch."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from llmfair.datasets.base import cache_folder
from llmfair.datasets.pages import PageStore, written
from llmfair.errors import UsageError
from llmfair.io.files import note
from tests.cli.command import ran, refuses
from tests.datasets.indexed_sources import FETCH, NAME, made

SHOW = ("datasets", "show", f"{NAME}/location")
FILES = ("topics.json", "pages.db", "index-full/pages.db")
HARMS: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda content: content[: len(content) // 2],
    "another": lambda content: b"PK\x03\x04" + content[4:],
    "one bit": lambda content: content[:-8] + bytes([content[-8] ^ 1]) + content[-7:],
}


def folder() -> Path:
    return cache_folder() / "datasets" / "trec-fair-2022-eval"


@pytest.fixture
def fetch(tmp_path: Path) -> tuple[str, ...]:
    """The command that made the collection, and makes it again."""
    copies = made(200).copies(tmp_path)
    command = ("datasets", "fetch", NAME, "--yes", *copies, "--index", "full", "--json")
    ran(*command)
    return command


@pytest.mark.whole
@pytest.mark.parametrize("name", FILES)
def test_harmed_files_are_refused_until_they_are_fetched_again(fetch: tuple[str, ...], name: str) -> None:
    path = folder() / name
    reads = ("refine", "-d", f"{NAME}/gender", "-q", "--no-report", "--dry-run") if "/" in name else SHOW
    before, content = ran(*SHOW, "--json").json, path.read_bytes()
    for harm in (*HARMS, "gone"):
        path.unlink() if harm == "gone" else path.write_bytes(HARMS[harm](content))
        found = refuses(f"{path} cannot be used: ", *reads)
        assert f"{FETCH} --index full    fetches it again" in found.err
        if harm != "gone":
            path.write_bytes(content)
    assert not ran(*fetch).json["already_fetched"]
    assert ran(*SHOW, "--json").json == before


@pytest.mark.parametrize("harm", HARMS)
def test_damage_that_nobody_noted_is_said(fetch: tuple[str, ...], harm: str) -> None:
    for name in FILES[:2]:
        path = folder() / name
        path.write_bytes(HARMS["cut"](path.read_bytes()))
        note(folder(), [name])
        refuses(f"{path} cannot be read: ", *SHOW)


def test_a_copy_of_a_collection_is_as_good_and_read_whole_once(
    fetch: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ran(*SHOW, "--json").json
    for path in folder().rglob("*"):
        os.utime(path, (1, 1))
    assert ran(*SHOW, "--json").json == before and ran(*fetch).json["already_fetched"]
    monkeypatch.delattr("llmfair.io.files.told")
    assert ran(*SHOW, "--json").json == before and ran(*fetch).json["already_fetched"]


def test_a_page_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    path = tmp_path / "pages.db"
    with written(path) as pages:
        for page_id in range(2_000):
            pages.add(page_id, "Title " * 20)
    store = PageStore(path)
    with path.open("r+b") as file:
        file.seek(3 * 4096)
        file.write(bytes(100_000))
    with pytest.raises(UsageError, match=r"pages\.db cannot be read"):
        [store[doc_id] for doc_id in store]


def test_an_index_of_relevant_pages_has_no_pages_of_its_own(tmp_path: Path) -> None:
    ran("datasets", "fetch", NAME, "--yes", *made(60).copies(tmp_path), "--index", "pool")
    assert [path.name for path in (folder() / "index-pool").iterdir() if path.suffix != ".lock"] == [
        "english"
    ]
