"""A collection that is fetched again: from corrected copies, otherwise indexed, broken off; what was there works on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmfair.audits.lists import engine_of
from llmfair.datasets import distill, fetch
from llmfair.datasets import pages as stored
from llmfair.datasets.base import DocumentSource, cache_folder, load_dataset
from llmfair.datasets.collection import Collection
from llmfair.io.files import note, whole, write_whole
from tests.cli.command import Outcome, llmfair, ran, refusal, refuses
from tests.datasets.indexed_sources import FETCH, NAME, Made, made

GENDER = f"{NAME}/gender"
REFINE = ("refine", "-d", GENDER, "--max-iterations", "1", "-q", "--no-report")


def folder() -> Path:
    return cache_folder() / "datasets" / "trec-fair-2022-eval"


def fetched(place: Path, given: Made, *flags: str) -> Any:
    return ran(*command(place, given, *flags)).json


def command(place: Path, given: Made, *flags: str) -> tuple[str, ...]:
    place.mkdir(exist_ok=True)
    return ("datasets", "fetch", NAME, "--yes", "--json", *given.copies(place), *flags)


def corrected(given: Made) -> Made:
    """Other judgements: a third of them are withdrawn."""
    return Made(given.texts, [pages[::3] + pages[1::3] for pages in given.relevant])


def judged() -> list[list[int]]:
    source: DocumentSource = load_dataset(GENDER)
    return [[int(page) for page in source.relevant(topic.query_id)] for topic in source.topics]


def interrupted(monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], name: str) -> Outcome:
    """What is left when the command ends as a file is about to be written."""

    def stop(path: Path, *_: Any, **__: Any) -> Any:
        if path.name == name:
            raise KeyboardInterrupt
        return (write_whole if path.suffix == ".json" else whole)(path, *_, **__)

    with monkeypatch.context() as patch:
        patch.setattr(stored, "whole", stop)
        patch.setattr(distill, "write_whole", stop)
        return llmfair(*arguments)


@pytest.mark.whole
@pytest.mark.parametrize("name", ["topics.json", "groups.db", "pages.db"])
def test_a_fetch_that_ends_between_two_files_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    given = made(200)
    fetched(tmp_path / "a", given, "--index", "pool")
    again = command(tmp_path / "b", corrected(given), "--index", "pool")
    assert interrupted(monkeypatch, again, name).code == 130
    found = refuses("was not fetched completely", *REFINE)
    assert FETCH in found.err
    assert ran(*again).json["pages"]["index"]["documents"] == len(
        {page for pages in corrected(given).relevant for page in pages}
    )
    assert judged() == [sorted(pages) for pages in corrected(given).relevant]


@pytest.mark.whole
@pytest.mark.parametrize("flag", ["--topics", "--metadata", "--corpus"])
def test_a_broken_copy_takes_nothing_away(tmp_path: Path, flag: str) -> None:
    fetched(tmp_path / "a", made(200), "--index", "pool")
    ran(*REFINE, "-o", "run")
    record = (folder() / "fetch.json").read_bytes()
    broken = tmp_path / "broken"
    broken.write_text('{"id": 1, "page_id": 1, "title": "T", "rel_docs": [1]}\n[1]\n')
    flags = [*made(200).copies(tmp_path / "a")]
    flags[flags.index(flag) + 1] = str(broken)
    refusal(llmfair("datasets", "fetch", NAME, "--yes", *flags), "broken:2: ")
    assert (folder() / "fetch.json").read_bytes() == record
    ran("runs", "check", "run")


@pytest.mark.whole
@pytest.mark.parametrize("scope", ["pool", "full"])
@pytest.mark.parametrize("what", ["topics", "corpus"])
def test_corrected_copies_are_indexed_in_place_of_those_before(tmp_path: Path, scope: str, what: str) -> None:
    given = made(120)
    fetched(tmp_path / "a", given, "--index", scope)
    other = corrected(given) if what == "topics" else Made(made(120, words=50).texts, given.relevant)
    record = fetched(tmp_path / "b", other, "--index", scope)
    assert not record["already_fetched"]
    ran(*REFINE, "-o", "run")
    engine = engine_of(Collection(load_dataset(GENDER)))
    pool = {page for pages in other.relevant for page in pages}
    searched = [page for page in other.texts if scope == "full" or page in pool]
    assert engine.count() == len(searched)
    said = {str(page) for page in searched if "w7" in other.texts[page].split()}
    assert {hit.doc_id for hit in engine.search("w7", 300)} == said
    assert judged() == [sorted(pages) for pages in other.relevant]


@pytest.mark.whole
def test_an_index_of_another_analyzer_is_replaced(tmp_path: Path) -> None:
    given = made(60)
    for scope in ("pool", "full"):
        fetched(tmp_path, given, "--index", scope)
        (folder() / f"index-{scope}" / "english.tmp").mkdir()
        fetched(tmp_path, given, "--index", scope, "--analyzer", "standard")
        places = [path.name for path in (folder() / f"index-{scope}").iterdir() if path.is_dir()]
        assert places == ["standard"]
        ran(*REFINE, "--analyzer", "standard", "-o", scope)


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("of", ["topics", "metadata", "docs"])
def test_other_content_of_the_same_path_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: str, small: bool
) -> None:
    fetched(tmp_path, made(100))
    if not small:
        monkeypatch.setattr(fetch, "SMALL", 0)
    assert fetched(tmp_path, made(100))["already_fetched"]  # written anew, and the same
    place = next(path for path in tmp_path.iterdir() if path.name.endswith(of))
    content = place.read_bytes()
    if of == "topics":
        place.write_bytes(content.replace(b"w1 w2", b"w1 w9"))  # of the same size
    else:
        place.write_bytes(content + content)
    flags = json.loads((folder() / "fetch.json").read_text())
    paths = [flags[step]["sources"][0]["from"] for step in ("topics", "metadata", "pages")]
    again = [
        word for pair in zip(("--topics", "--metadata", "--corpus"), paths, strict=True) for word in pair
    ]
    record = ran("datasets", "fetch", NAME, "--yes", "--json", *again).json
    assert not record["already_fetched"]
    if of == "topics":
        assert [topic.text for topic in load_dataset(GENDER).topics][1] == "w1 w9"
    else:
        assert record["metadata" if of == "metadata" else "pages"]["duplicate_lines"] > 50
    assert ran("datasets", "fetch", NAME, "--yes", "--json", *again).json["already_fetched"]


# Files of a fetched collection that are gone, cut or altered: refused, and made again by the fetch


SHOW = ("datasets", "show", f"{NAME}/location")
FILES = ("topics.json", "pages.db", "index-full/pages.db")
HARMS: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda content: content[: len(content) // 2],
    "another": lambda content: b"PK\x03\x04" + content[4:],
    "one bit": lambda content: content[:-8] + bytes([content[-8] ^ 1]) + content[-7:],
}


@pytest.fixture
def fetching(tmp_path: Path) -> tuple[str, ...]:
    """The command that made the collection, and makes it again."""
    copies = made(200).copies(tmp_path)
    command = ("datasets", "fetch", NAME, "--yes", *copies, "--index", "full", "--json")
    ran(*command)
    return command


@pytest.mark.whole
@pytest.mark.parametrize("name", FILES)
def test_harmed_files_are_refused_until_they_are_fetched_again(fetching: tuple[str, ...], name: str) -> None:
    path = folder() / name
    reads = ("refine", "-d", f"{NAME}/gender", "-q", "--no-report", "--dry-run") if "/" in name else SHOW
    before, content = ran(*SHOW, "--json").json, path.read_bytes()
    for harm in (*HARMS, "gone"):
        path.unlink() if harm == "gone" else path.write_bytes(HARMS[harm](content))
        found = refuses(f"{path} cannot be used: ", *reads)
        assert f"{FETCH} --index full    fetches it again" in found.err
        if harm != "gone":
            path.write_bytes(content)
    assert not ran(*fetching).json["already_fetched"]
    assert ran(*SHOW, "--json").json == before


@pytest.mark.parametrize("harm", HARMS)
def test_damage_that_nobody_noted_is_said(fetching: tuple[str, ...], harm: str) -> None:
    for name in FILES[:2]:
        path = folder() / name
        path.write_bytes(HARMS["cut"](path.read_bytes()))
        note(folder(), [name])
        refuses(f"{path} cannot be read: ", *SHOW)


def test_an_index_of_relevant_pages_has_no_pages_of_its_own(tmp_path: Path) -> None:
    ran("datasets", "fetch", NAME, "--yes", *made(60).copies(tmp_path), "--index", "pool")
    assert [path.name for path in (folder() / "index-pool").iterdir() if path.suffix != ".lock"] == [
        "english"
    ]
