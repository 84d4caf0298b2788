"""BM25 scores by hand, and an index on disk that is never half, never stale, and shared by processes."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from llmfair.errors import UsageError
from llmfair.nouns import Document
from llmfair.retrieval import bm25
from llmfair.retrieval.bm25 import MANIFEST, Bm25Index, content, stored
from llmfair.retrieval.engine import ENGLISH, STANDARD, Analyzer, Engine, Hit
from tests.retrieval.search_stub import Exact

FIVE = [
    Document("d1", "Marie Curie", "Physics and chemistry of radium"),  # 7 terms
    Document("d2", "Lise Meitner", "Nuclear physics, more physics"),  # 6 terms
    Document("d3", "Clara Schumann", "Piano"),  # 3 terms
    Document("d4", "Béla Bartók"),  # 2 terms
    Document("d5", "Nobody's 2nd piano", "and violin"),  # 6 terms
]
PHYSICS = FIVE[:4]


def scored(text: str, documents: list[Document], folder: Path = Path("indexes")) -> dict[str, float]:
    return Bm25Index(folder, documents).scores(text, [document.doc_id for document in documents])


def test_only_the_asked_documents_with_the_statistics_of_all() -> None:
    index = Bm25Index(Path("indexes"), PHYSICS)
    everything = index.scores("physics", ["d1", "d2", "d3", "d4"])
    assert index.scores("physics", ["d2"]) == {"d2": everything["d2"]}
    assert index.scores("physics", []) == {}
    with pytest.raises(KeyError):
        index.scores("physics", ["d5"])


def test_endings_accents_and_scripts() -> None:
    documents = [
        Document("film", "Films"),
        Document("bartok", "Be\u0301la Barto\u0301k"),  # combining accents
        Document("tokyo", "東京"),
        Document("half", "broken \ud800 pair"),
    ]
    for query, doc_id in {"film": "film", "BÉLA": "bartok", "東京": "tokyo", "pair": "half"}.items():
        assert [d for d, value in scored(query, documents).items() if value] == [doc_id]
    assert not any(scored("Bela", documents).values())  # accents are letters of their own
    assert not any(scored("", documents).values()) and not any(scored("?!", documents).values())


def files(folder: Path) -> Mapping[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.suffix != ".lock"}


def test_an_index_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = scored("physics", PHYSICS)
    before = files(Path("indexes"))
    monkeypatch.setattr("llmfair.retrieval.bm25.build", None)
    assert scored("physics", PHYSICS) == scored("physics", PHYSICS[::-1]) == first
    assert files(Path("indexes")) == before


def replace(path: Path, content: bytes) -> None:
    """Damage as the next start finds it: cutting the file itself would pull mapped pages from under a reader."""
    beside = path.with_name("beside")
    beside.write_bytes(content)
    beside.replace(path)


@pytest.mark.parametrize("damage", ["flipped", "removed", "unlisted"])
def test_a_damaged_index_is_made_anew(damage: str) -> None:
    expected = scored("physics", PHYSICS)
    (index,) = (path for path in Path("indexes").iterdir() if path.is_dir())
    inverted = next(index.glob("*.idx"))
    content = inverted.read_bytes()
    match damage:
        case "flipped":
            replace(inverted, bytes([content[0] ^ 1]) + content[1:])
        case "removed":
            inverted.unlink()
        case "unlisted":
            (index / "manifest.json").write_text("{")
    assert scored("physics", PHYSICS) == expected
    assert Bm25Index(Path("indexes"), PHYSICS).scores("physics", ["d1"])["d1"] == expected["d1"]


PROGRAM = """
from pathlib import Path
from llmfair.nouns import Document
from llmfair.retrieval.bm25 import Bm25Index
documents = [Document(str(n), "title", f"word{n % 7} other words") for n in range(2000)]
print(Bm25Index(Path("indexes"), documents).scores("word3", ["3", "4"]))
"""


def test_processes_at_once_share_one_index() -> None:
    command = [sys.executable, "-c", PROGRAM]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = {process.communicate(timeout=60)[0] for process in running}
    assert len(answers) == 1 and "'3': 1." in answers.pop()
    assert [process.returncode for process in running] == [0, 0, 0]
    assert len([path for path in Path("indexes").iterdir() if path.is_dir()]) == 1


def test_a_folder_that_cannot_be_written_is_named() -> None:
    Path("file").touch()
    with pytest.raises(UsageError, match=r"file.*cannot be made") as caught:
        scored("physics", PHYSICS, Path("file"))
    assert "LLMFAIR_CACHE_DIR" in caught.value.hint


# Searches against the exact formula: scores, order, ties, weights, and text that is no query syntax


FACTOR = 2.2


def index(documents: Sequence[Document], analyzer: Analyzer = STANDARD) -> Engine:
    return Bm25Index(None, documents, analyzer)


def test_five_documents_by_hand() -> None:
    """N = 5, lengths 7, 6, 3, 2, 6, mean 24 / 5 = 4.8; `physics` and `piano` each stand in 2 documents."""
    idf = math.log(1 + 3.5 / 2.5)  # 0.875469
    parts = {
        "d1": idf * 1 / (1 + 1.2 * (0.25 + 0.75 * 7 / 4.8)),
        "d2": idf * 2 / (2 + 1.2 * (0.25 + 0.75 * 6 / 4.8)),
        "d3": idf * 1 / (1 + 1.2 * (0.25 + 0.75 * 3 / 4.8)),
        "d5": idf * 1 / (1 + 1.2 * (0.25 + 0.75 * 6 / 4.8)),
    }
    hits = index(FIVE).search("physics piano", 10)
    assert [hit.doc_id for hit in hits] == ["d2", "d3", "d5", "d1"]
    for hit in hits:
        assert hit.score / FACTOR == pytest.approx(parts[hit.doc_id], abs=1e-6)
    for hit in Exact(FIVE, STANDARD).search("physics piano", 10):
        assert hit.score == pytest.approx(parts[hit.doc_id], abs=1e-12)
    assert [hit.doc_id for hit in index(FIVE).search("physics piano", 2)] == ["d2", "d3"]


def test_added_words_count_so_many_times() -> None:
    engine, exact = index(FIVE), Exact(FIVE, STANDARD)
    for added, weight in (("piano", 1.0), ("piano", 2.5), ("piano Physics", 0.25), ("", 3.0)):
        hits = engine.search("physics", 5, added, weight)
        expected = exact.search("physics", 5, added, weight)
        assert [hit.doc_id for hit in hits] == [hit.doc_id for hit in expected]
        assert [h.score / FACTOR for h in hits] == pytest.approx([hit.score for hit in expected], abs=1e-6)
    assert engine.search("physics", 5, "piano") == engine.search("physics piano", 5)
    assert engine.search("", 5, "piano") == engine.search("piano", 5)


@pytest.mark.parametrize("folder", [None, Path("indexes")])
def test_400_tied_documents_come_in_the_order_of_their_ids(folder: Path | None) -> None:
    shuffled = np.random.default_rng(0).permutation(400)
    documents = [Document(f"t{number:03}", "film", "drama") for number in shuffled]
    documents += [Document("best", "film film", "")] + [Document(f"z{n}", "opera") for n in range(50)]
    engine = Bm25Index(folder, documents)
    tied = [f"t{number:03}" for number in range(400)]
    for k in (1, 2, 20, 300, 401, 1000):
        hits = engine.search("film drama", k)
        assert [hit.doc_id for hit in hits] == [*tied, "best"][:k]
    assert len({hit.score for hit in engine.search("film", 1000)}) == 2
    assert engine.search("film", 0) == []


@cache
def collection() -> tuple[list[Document], list[str]]:
    """2,000 documents of 1 to 5,000 words, some of the same text, and 50 queries of 1 to 150 words."""
    rng = np.random.default_rng(22)
    words = np.array([f"w{number}" for number in range(4_000)])
    share = 1 / np.arange(1, 4_001)

    def text(length: int) -> str:
        return " ".join(rng.choice(words, length, p=share / share.sum()))

    lengths = np.exp(rng.uniform(0, math.log(5_000), 2_000)).astype(int)
    lengths[:2] = 1, 5_000
    texts = [text(length) for length in lengths]
    texts[1_900:] = texts[:100]
    order = rng.permutation(2_000)
    documents = [Document(f"d{order[place]}", "", text) for place, text in enumerate(texts)]
    sizes = [1, 150, *np.exp(rng.uniform(0, math.log(150), 48)).astype(int)]
    return documents, [" ".join(rng.choice(words, size)) for size in sizes]


@pytest.mark.whole
def test_2000_documents_and_50_queries_equal_the_formula() -> None:
    documents, queries = collection()
    engine, exact = index(documents), Exact(documents, STANDARD)
    assert engine.count() == 2_000
    for query in queries:
        hits, expected = engine.search(query, 2_000), exact.search(query, 2_000)
        formula = dict(expected)
        for hit, one in zip(hits, expected, strict=True):
            assert hit.score / FACTOR == pytest.approx(formula[hit.doc_id], abs=1e-4)
            # the same place, but for what a score of 32 bits cannot tell apart
            assert hit.doc_id == one.doc_id or formula[hit.doc_id] == pytest.approx(one.score, rel=1e-7)
        assert hits[:20] == engine.search(query, 20)
        some = [hit.doc_id for hit in hits[::7]] + ["d0"]
        found = engine.scores(query, some)
        assert list(found) == list(dict.fromkeys(some))
        assert found.items() >= dict(hits[::7]).items()


ODD = [
    "(physics OR piano) AND NOT radium", '"physics', "doc_id:d1 text:physics", "physics^3 ~2 [a TO b]", "/ { ?",
    "Nobody's violin", "d'Artagnan’s", "\\physics\\", "* ? + - = && || > < !", "text:[* TO *]", "</script>", "\x00\x07", "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("query", ODD)
@pytest.mark.parametrize("analyzer", [ENGLISH, STANDARD])
def test_query_syntax_is_words(query: str, analyzer: Analyzer) -> None:
    words = "".join(character if character.isalnum() else " " for character in query)
    engine = index(FIVE, analyzer)
    assert engine.search(query, 5) == engine.search(words, 5)
    assert engine.search("", 5, query, 2.0) == engine.search("", 5, words, 2.0)


@pytest.mark.parametrize("query", ["", " ", "?!", "\n", "'", "東"])
def test_a_query_of_no_word_finds_nothing(query: str) -> None:
    engine = index(FIVE)
    assert list(engine.search(query, 5)) == []
    assert engine.scores(query, ["d2", "d1"]) == {"d2": 0.0, "d1": 0.0}
    with pytest.raises(KeyError):
        engine.scores(query, ["d9"])


def test_analyzers() -> None:
    text = "The Films of U.S.A., foo_bar: don't 3.14 Élodie’s " + "x" * 41 + " " + "y" * 256
    common = ["of", "u", "s", "a", "foo", "bar", "don", "t", "3", "14"]
    assert STANDARD.terms(text) == ["the", "films", *common, "élodie", "s", "x" * 41]
    assert ENGLISH.terms(text)[:2] == ["the", "film"] and "x" * 41 not in ENGLISH.terms(text)
    documents = [Document("a", "films")]
    assert index(documents, ENGLISH).search("film", 1) and not index(documents, STANDARD).search("film", 1)
    identities = {Bm25Index(None, documents, analyzer).identity for analyzer in (ENGLISH, STANDARD)}
    assert len({identity.split("index=")[1] for identity in identities}) == 2


def test_threads_share_an_engine() -> None:
    documents, queries = collection()
    engine = Bm25Index(Path("indexes"), documents)
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda query: engine.search(query, 20), queries))
    assert found == [engine.search(query, 20) for query in queries]
    assert all(isinstance(hit, Hit) for hits in found for hit in hits)


# Indexes made from streams: bounded, resumed after a kill, told apart by what they were made of


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


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bm25, "COMMIT_EVERY", 100)


@pytest.mark.whole
@pytest.mark.usefixtures("often")
def test_a_build_that_broke_off_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BrokenStreamError):
        stored(PATH, documents(1_000, fail_at=777), "a" * 64, ENGLISH)
    assert not PATH.exists()
    written = list[Document]()

    def counted(document: Document) -> str:
        written.append(document)
        return content(document)

    monkeypatch.setattr(bm25, "content", counted)
    resumed = stored(PATH, documents(1_000), "a" * 64, ENGLISH)
    assert len(written) == 1_000 - 700
    whole = stored(Path("whole"), documents(1_000), "a" * 64, ENGLISH)
    assert found(resumed) == found(whole) and resumed.identity == whole.identity


@pytest.mark.whole
@pytest.mark.usefixtures("often")
def test_a_build_of_something_else_begins_anew() -> None:
    with pytest.raises(BrokenStreamError):
        stored(PATH, documents(1_000, fail_at=500), "a" * 64, ENGLISH)
    (left,) = PATH.parent.glob("*.tmp")
    for source, analyzer in (("b" * 64, ENGLISH), ("b" * 64, STANDARD)):
        with pytest.raises(BrokenStreamError):
            stored(PATH, documents(1_000, fail_at=5), source, analyzer)
        assert json.loads((left / MANIFEST).read_bytes())["source"] == source
    assert stored(PATH, documents(60), "b" * 64, STANDARD).count() == 60


@pytest.mark.usefixtures("often")
def test_what_cannot_be_gone_on_with_begins_anew() -> None:
    with pytest.raises(BrokenStreamError):
        stored(PATH, documents(1_000, fail_at=500), "a" * 64, ENGLISH)
    (left,) = PATH.parent.glob("*.tmp")
    (left / "meta.json").write_text("{")
    assert stored(PATH, documents(300), "a" * 64, ENGLISH).count() == 300


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


def test_an_index_of_another_form_is_made_anew() -> None:
    stored(PATH, documents(30), "a" * 64, ENGLISH)
    manifest = json.loads((PATH / MANIFEST).read_bytes())
    (PATH / MANIFEST).write_text(json.dumps({**manifest, "schema": 1}))
    assert stored(PATH, documents(50), "a" * 64, ENGLISH).count() == 50


def test_an_index_of_something_else_is_replaced_when_the_new_one_is_whole() -> None:
    before = found(stored(PATH, documents(30), "a" * 64, ENGLISH))
    with pytest.raises(BrokenStreamError):
        stored(PATH, documents(60, fail_at=50), "b" * 64, STANDARD)
    assert found(stored(PATH, documents(0), "a" * 64, ENGLISH)) == before
    assert stored(PATH, documents(60), "b" * 64, STANDARD).count() == 60
    assert stored(PATH, documents(0), "b" * 64, STANDARD).count() == 60


BUILDING = """
from tests.retrieval.test_bm25 import ENGLISH, PATH, bm25, documents, stored
bm25.COMMIT_EVERY = 500
stored(PATH, documents(6_000), "a" * 64, ENGLISH)
"""


def held(path: Path) -> int:
    """How many documents the commits of an unfinished index hold."""
    try:
        meta = json.loads((path / "meta.json").read_bytes())
    except (OSError, ValueError):
        return 0
    return sum(segment["max_doc"] for segment in meta["segments"])


@pytest.mark.whole
def test_a_build_killed_at_random_moments_gives_the_same_answers() -> None:
    """Each goes on with all that those before had committed."""
    moments, left = random.Random(1), PATH.with_name("index.tmp")
    committed, root = [0], Path(__file__).resolve().parents[2]
    for _ in range(2):
        building = subprocess.Popen([sys.executable, "-c", BUILDING], env={"PYTHONPATH": str(root)})
        enough = committed[-1] + moments.uniform(-500, 2_500)
        while building.poll() is None and held(left) < enough:
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.03))
        building.kill()
        if building.wait() == 0:
            break
        committed.append(held(left))
    assert committed == sorted(committed) and committed[-1] > 0, committed
    resumed = stored(PATH, documents(6_000), "a" * 64, ENGLISH)
    whole = stored(Path("whole"), documents(6_000), "a" * 64, ENGLISH)
    assert found(resumed) == found(whole)
