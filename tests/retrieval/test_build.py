"""Indexes made from streams: bounded, resumed after a kill, told apart by what they were made of."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmfair.errors import RunConflict
from llmfair.nouns import Document
from llmfair.retrieval.bm25 import MANIFEST, entry, stored
from llmfair.retrieval.engine import ENGLISH, STANDARD, Engine

PATH = Path("made") / "index"


class BrokenStreamError(Exception):
    pass


def documents(count: int, fail_at: int | None = None) -> Iterator[Document]:
    """Documents of few words, so that many tie; the stream may break off."""
    chance = random.Random(4)
    for number in range(count):
        if number == fail_at:
            raise BrokenStreamError("the stream broke off")
        words = " ".join(f"w{chance.randrange(400)}" for _ in range(12))
        yield Document(f"d{chance.getrandbits(40)}", f"Title {number % 7}", words)


QUERIES = [" ".join(f"w{(7 * start + step) % 400}" for step in range(start + 1)) for start in range(0, 60, 3)]


def found(engine: Engine) -> list[object]:
    """What an engine answers: the first page, a thousand deep, and some scores."""
    tops = [engine.search(query, k) for query in QUERIES for k in (20, 1_000)]
    return [engine.count(), *tops, *(engine.scores(QUERIES[3], [hit.doc_id for hit in top]) for top in tops)]


@pytest.mark.whole
def test_a_build_that_broke_off_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BrokenStreamError):
        stored(PATH, documents(1_000, fail_at=777), "a" * 64, ENGLISH, commit_every=100)
    assert not PATH.exists()
    written = list[Document]()

    def counted(document: Document) -> object:
        written.append(document)
        return entry(document)

    monkeypatch.setattr("llmfair.retrieval.bm25.entry", counted)
    resumed = stored(PATH, documents(1_000), "a" * 64, ENGLISH, commit_every=100)
    assert len(written) == 1_000 - 700
    whole = stored(Path("whole"), documents(1_000), "a" * 64, ENGLISH)
    assert found(resumed) == found(whole) and resumed.identity == whole.identity


@pytest.mark.whole
def test_a_build_of_something_else_begins_anew() -> None:
    with pytest.raises(BrokenStreamError):
        stored(PATH, documents(1_000, fail_at=500), "a" * 64, ENGLISH, commit_every=100)
    (left,) = PATH.parent.glob("*.tmp")
    for source, analyzer in (("b" * 64, ENGLISH), ("b" * 64, STANDARD)):
        with pytest.raises(BrokenStreamError):
            stored(PATH, documents(1_000, fail_at=5), source, analyzer, commit_every=100)
        assert json.loads((left / MANIFEST).read_bytes())["source"] == source
    assert stored(PATH, documents(60), "b" * 64, STANDARD).count() == 60


def test_what_cannot_be_gone_on_with_begins_anew() -> None:
    with pytest.raises(BrokenStreamError):
        stored(PATH, documents(1_000, fail_at=500), "a" * 64, ENGLISH, commit_every=100)
    (left,) = PATH.parent.glob("*.tmp")
    (left / "meta.json").write_text("{")
    assert stored(PATH, documents(300), "a" * 64, ENGLISH).count() == 300


def test_an_index_that_stands_needs_no_documents() -> None:
    made = stored(PATH, documents(300), "a" * 64, ENGLISH)
    assert found(stored(PATH, documents(300, fail_at=0), "a" * 64, ENGLISH)) == found(made)


@pytest.mark.whole
def test_a_copy_is_as_good_and_a_damaged_one_is_made_anew(tmp_path: Path) -> None:
    made = stored(PATH, documents(300), "a" * 64, ENGLISH)
    for file in [file for file in PATH.iterdir() if file.suffix != ".lock"]:
        content = file.read_bytes()
        file.unlink()
        file.write_bytes(content)  # of another time
    assert found(stored(PATH, documents(300, fail_at=0), "a" * 64, ENGLISH)) == found(made)
    next(PATH.glob("*.term")).unlink()
    assert found(stored(PATH, documents(300), "a" * 64, ENGLISH)) == found(made)


@pytest.mark.parametrize("form", ["another form", "no manifest", "too deep"])
def test_an_index_of_another_form_is_made_anew(form: str) -> None:
    stored(PATH, documents(30), "a" * 64, ENGLISH)
    manifest = json.loads((PATH / MANIFEST).read_bytes())
    texts = {
        "another form": json.dumps({**manifest, "schema": 1}),
        "no manifest": "[]",
        "too deep": "[" * 100_000,
    }
    (PATH / MANIFEST).write_text(texts[form])
    assert stored(PATH, documents(50), "a" * 64, ENGLISH).count() == 50


def test_an_index_of_something_else_is_refused_by_name() -> None:
    stored(PATH, documents(30), "a" * 64, ENGLISH)
    for source, analyzer, named in (
        ("b" * 64, ENGLISH, "source is aaaaaaaaaaaa, not bbbbbbbbbbbb"),
        ("a" * 64, STANDARD, "tokenizer is en_stem, not standard"),
        (
            "b" * 64,
            STANDARD,
            "source is aaaaaaaaaaaa, not bbbbbbbbbbbb, tokenizer is en_stem, not standard",
        ),
    ):
        with pytest.raises(RunConflict, match=f"made/index is another one: {named}"):
            stored(PATH, documents(30), source, analyzer)
    assert stored(PATH, documents(0), "a" * 64, ENGLISH).count() == 30


def test_an_index_of_something_else_may_be_replaced_when_the_new_one_is_whole() -> None:
    before = found(stored(PATH, documents(30), "a" * 64, ENGLISH))
    with pytest.raises(BrokenStreamError):
        stored(PATH, documents(60, fail_at=50), "b" * 64, STANDARD, replaces=True)
    assert found(stored(PATH, documents(0), "a" * 64, ENGLISH)) == before
    assert stored(PATH, documents(60), "b" * 64, STANDARD, replaces=True).count() == 60
    assert stored(PATH, documents(0), "b" * 64, STANDARD, replaces=True).count() == 60


PROGRAM = """
from tests.retrieval.test_build import ENGLISH, PATH, documents, stored
stored(PATH, documents(20_000), "a" * 64, ENGLISH, commit_every=500)
"""


def killed_at_random(kills: int, seed: int) -> None:
    """Kills a build again and again until it is through; each goes on with all that those before had committed."""
    moments, left = random.Random(seed), PATH.with_name("index.tmp")
    committed, root = [0], Path(__file__).resolve().parents[2]
    for _ in range(kills):
        building = subprocess.Popen([sys.executable, "-c", PROGRAM], env={"PYTHONPATH": str(root)})
        enough = committed[-1] + moments.uniform(-1_000, 4_500)
        while building.poll() is None and held(left) < enough:
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.03))
        building.kill()
        if building.wait() == 0:
            break
        committed.append(held(left))
    assert committed == sorted(committed) and committed[-1] > 0, committed
    resumed = stored(PATH, documents(20_000), "a" * 64, ENGLISH, commit_every=500)
    whole = stored(Path("whole"), documents(20_000), "a" * 64, ENGLISH)
    assert found(resumed) == found(whole)


def held(path: Path) -> int:
    """How many documents the commits of an unfinished index hold."""
    try:
        meta = json.loads((path / "meta.json").read_bytes())
    except (OSError, ValueError):
        return 0
    return sum(segment["max_doc"] for segment in meta["segments"])


@pytest.mark.whole
def test_a_build_killed_at_random_moments_gives_the_same_answers() -> None:
    killed_at_random(4, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_a_build_killed_ten_times_gives_the_same_answers(seed: int) -> None:
    killed_at_random(10, seed)
