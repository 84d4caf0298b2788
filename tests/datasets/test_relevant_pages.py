"""Pages of a fetched collection as arrays: made once, made anew where they are damaged, and never in doubt."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmfair.datasets.base import cache_folder
from llmfair.datasets.page_store import GroupsOf, PageStore, written
from llmfair.errors import UsageError, warn
from llmfair.io.files import TABLE, note
from tests.cli.command import llmfair, ran, refuses
from tests.datasets.indexed_sources import FETCH, NAME, made

SHOW = ("datasets", "show", f"{NAME}/location")


def folder() -> Path:
    return cache_folder() / "datasets" / "trec-fair-2022-eval"


def arrays() -> Path:
    (found,) = folder().glob("pages-*")
    return found


def contents() -> dict[str, bytes]:
    """What the arrays hold; the table beside them, which has their times, tells of each."""
    found = {path.name: path.read_bytes() for path in arrays().iterdir()}
    assert {*json.loads(found.pop(TABLE))} == {*found}
    return found


def shown() -> Any:
    """What is drawn and counted, from the pages themselves."""
    shutil.rmtree(cache_folder() / "lists", ignore_errors=True)
    warn.cache_clear()
    return ran(*SHOW, "--json")


@pytest.fixture
def fetched(tmp_path: Path) -> None:
    ran("datasets", "fetch", NAME, "--yes", *made(300).copies(tmp_path), "--text-words", "3")


def saved(values: Any, **more: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, values, **more)
    return file.getvalue()


HARMS: dict[str, Callable[[bytes], bytes | None]] = {
    "gone": lambda content: None,
    "cut": lambda content: content[:-1],
    "half": lambda content: content[: len(content) // 2],
    "another": lambda content: b"PK\x03\x04" + content[4:],
    "of objects": lambda content: saved(np.array([{}, 1]), allow_pickle=True),
    "of large numbers": lambda content: saved(np.full((len(content) - 128) // 8, 1 << 60)),
    "of no JSON": lambda content: b'[["1", 3]]\n',
}


def hurt(path: Path, harm: str) -> None:
    content = HARMS[harm](path.read_bytes())
    path.unlink() if content is None else path.write_bytes(content)


def test_a_collection_fetched_before_gets_its_arrays_when_it_is_first_read(fetched: None) -> None:
    before, kept = shown().json, contents()
    shutil.rmtree(arrays())
    assert shown().json == before and contents() == kept
    (folder() / "pages-0123456789abcdef").mkdir()  # of a fetch before
    shutil.rmtree(next(path for path in folder().glob("pages-*") if (path / "ids.npy").exists()))
    assert shown().json == before and contents() == kept


@pytest.mark.whole
@pytest.mark.parametrize("harm", HARMS)
def test_damaged_arrays_are_made_anew_and_said(fetched: None, harm: str) -> None:
    before, kept = shown().json, contents()
    for name in ("ids.npy", "codes.npy", "starts.npy", "titled.npy", "texts.jsonl", "groups.json"):
        if (harm, name) in (("cut", "groups.json"), ("another", "texts.jsonl")):
            continue  # its last byte ends the line; its lines are looked at when they are drawn
        hurt(arrays() / name, harm)
        found = shown()
        assert "is damaged and made anew" in found.err and found.json == before, name
        assert contents() == kept, name


def test_where_nothing_can_be_kept_the_pages_are_read_all_the_same(fetched: None) -> None:
    before, place = shown().json, arrays()
    shutil.rmtree(place)
    place.write_text("in the way")
    for _ in range(2):
        assert shown().json == before
    assert arrays().read_text() == "in the way"


@pytest.mark.parametrize("harm", ["gone", "cut", "another"])
def test_damaged_pages_are_said(fetched: None, harm: str) -> None:
    shutil.rmtree(arrays())
    hurt(folder() / "pages.jsonl.gz", harm)
    found = llmfair(*SHOW)
    assert found.code == 2 and "pages.jsonl.gz" in found.err and "unexpected" not in found.err
    assert not [*folder().glob("pages-*")]


@pytest.mark.parametrize("harm", HARMS)
def test_damaged_judgements_are_said(fetched: None, harm: str) -> None:
    hurt(folder() / "relevance.npy", harm)
    found = llmfair(*SHOW)
    assert found.code == 2 and ("relevance.npy" in found.err or "lacks relevant pages" in found.err)


def test_a_damaged_line_of_a_page_is_said(fetched: None) -> None:
    texts = arrays() / "texts.jsonl"
    texts.write_bytes(texts.read_bytes().replace(b'["Page', b'{"Page'))
    note(arrays(), [texts.name])
    found = refuses("cannot be read", *SHOW)
    assert f"remove {arrays()}" in found.err
    shutil.rmtree(arrays())
    ran(*SHOW)


@pytest.mark.parametrize("harm", sorted(HARMS.keys() - {"of large numbers"}))
def test_damaged_pages_of_an_index_are_said_with_the_command_that_makes_them(
    tmp_path: Path, harm: str
) -> None:
    ran("datasets", "fetch", NAME, "--yes", *made(60).copies(tmp_path), "--index", "full")
    index = folder() / "index-full"
    whole = {path: path.read_bytes() for path in index.iterdir() if path.is_file()}
    for name in ("ids.npy", "codes.npy", "starts.npy", "groups.json"):
        if harm == "cut" and name == "groups.json":
            continue
        hurt(index / name, harm)
        found = refuses("the pages of", "refine", "-d", f"{NAME}/gender", "-q", "--no-report")
        assert f"datasets fetch {NAME}" in found.err and "--index full" in found.err, found.err
        (index / name).write_bytes(whole[index / name])


ALTERED: dict[str, Callable[[bytes], bytes]] = {
    "codes.npy": lambda content: content[:128] + content[128:228][::-1] + content[228:],
    "texts.jsonl": lambda content: content.replace(b"Page 1", b"Page 2"),
    "starts.npy": lambda content: content[:128] + content[136:144] + content[128:136] + content[144:],
    TABLE: lambda content: b"[1]",
}
"""Other files that can be read just as well."""


def one_bit(content: bytes) -> bytes:
    return content[:-8] + bytes([content[-8] ^ 1]) + content[-7:]


def altered(path: Path) -> None:
    before = path.read_bytes()
    path.write_bytes(ALTERED.get(path.name, one_bit)(before))
    assert path.read_bytes() != before


@pytest.mark.parametrize("name", ALTERED)
def test_altered_arrays_are_made_anew_and_said(fetched: None, name: str) -> None:
    before, kept = shown().json, contents()
    altered(arrays() / name)
    found = shown()
    assert f"{name} is " in found.err and "made anew" in found.err
    assert found.json == before and contents() == kept and "made anew" not in shown().err


@pytest.mark.parametrize("name", ALTERED)
def test_altered_pages_of_an_index_are_refused_until_they_are_fetched_again(
    tmp_path: Path, name: str
) -> None:
    fetch = ("datasets", "fetch", NAME, "--yes", *made(200).copies(tmp_path), "--index", "full", "--json")
    ran(*fetch)
    ran("refine", "-d", f"{NAME}/gender", "-n", "1", "-q", "--no-report", "-o", "run")
    altered(folder() / "index-full" / name)
    found = refuses(f"{name} is ", "runs", "check", "run")
    assert f"{FETCH} --index full    makes them" in found.err
    assert not ran(*fetch).json["already_fetched"]
    ran("runs", "check", "run")


@pytest.mark.parametrize("name", ["topics.json", "relevance.npy", "pages.jsonl.gz"])
def test_altered_files_of_a_fetch_are_refused_until_they_are_fetched_again(tmp_path: Path, name: str) -> None:
    fetch = ("datasets", "fetch", NAME, "--yes", *made(200).copies(tmp_path), "--json")
    ran(*fetch)
    before = shown().json
    altered(folder() / name)
    shutil.rmtree(cache_folder() / "lists")
    found = refuses(f"{name} is another file than the one that was made", *SHOW)
    assert f"{FETCH}    fetches it again" in found.err
    assert not ran(*fetch).json["already_fetched"]
    assert shown().json == before


def test_a_copy_of_a_collection_is_as_good_and_read_whole_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = ("datasets", "fetch", NAME, "--yes", *made(300).copies(tmp_path), "--index", "full", "--json")
    ran(*fetch)
    before = shown().json
    for path in folder().rglob("*"):
        os.utime(path, (1, 1))
    assert shown().json == before and ran(*fetch).json["already_fetched"]
    monkeypatch.delattr("llmfair.io.files.told")
    assert shown().json == before and ran(*fetch).json["already_fetched"]


def test_judgements_that_do_not_fit_their_topics_are_refused(fetched: None) -> None:
    path = folder() / "topics.json"
    topics = json.loads(path.read_bytes())
    for change in (1, -1, -10_000):
        first = topics[0] | {"relevant": topics[0]["relevant"] + change}
        path.write_text(json.dumps([first, *topics[1:]]))
        note(folder(), [path.name])
        found = refuses("judgements, and topics.json beside it counts others", *SHOW)
        assert f"remove {folder() / 'fetch.json'}, then llmfair datasets fetch {NAME} --topics" in found.err
    np.save(folder() / "relevance.npy", np.load(folder() / "relevance.npy") + 1)
    path.write_text(json.dumps(topics))
    note(folder(), [path.name, "relevance.npy"])
    found = refuses("lacks relevant pages of the topics beside it", *SHOW)
    assert f"then {FETCH}" in found.err


def test_an_index_of_relevant_pages_has_no_pages_of_its_own(tmp_path: Path) -> None:
    ran("datasets", "fetch", NAME, "--yes", *made(60).copies(tmp_path), "--index", "pool")
    assert [path.name for path in (folder() / "index-pool").iterdir() if path.suffix != ".lock"] == [
        "english"
    ]


def test_pages_whose_groups_are_of_another_collection_are_said_to_be_damaged(tmp_path: Path) -> None:
    ids = np.array([3, 5], dtype=np.int64)
    with written(tmp_path) as pages:
        for page_id in ids:
            pages.add(int(page_id), "Title", "")
        pages.save(tmp_path, GroupsOf(ids, np.array([0, 1], dtype=np.int32), [{}, {"gender": ["female"]}]))
    np.save(tmp_path / "codes.npy", np.array([0, 99], dtype=np.uint8))
    note(tmp_path, ["codes.npy"])
    with pytest.raises(UsageError, match=r"is damaged: a page has groups that groups\.json lacks"):
        PageStore(tmp_path).kinds(ids, "")
