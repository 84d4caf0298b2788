"""BM25 scores by hand, and an index on disk that is never half, never stale, and shared by processes."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfair.errors import UsageError
from llmfair.nouns import Document
from llmfair.retrieval.bm25 import Bm25Index

PHYSICS = [
    Document("d1", "Marie Curie", "Physics and chemistry of radium"),  # 7 terms
    Document("d2", "Lise Meitner", "Nuclear physics, more physics"),  # 6 terms
    Document("d3", "Clara Schumann", "Piano"),  # 3 terms
    Document("d4", "Béla Bartók"),  # 2 terms
]


def score(tf: int, length: int, holding: int, documents: int, mean_length: float) -> float:
    """One term's part, as Lucene and tantivy have it, with the factor k1 + 1."""
    idf = math.log(1 + (documents - holding + 0.5) / (holding + 0.5))
    return idf * tf * (1.2 + 1) / (tf + 1.2 * (1 - 0.75 + 0.75 * length / mean_length))


def scored(text: str, documents: list[Document], folder: Path = Path("indexes")) -> dict[str, float]:
    return Bm25Index(folder, documents).scores(text, [document.doc_id for document in documents])


def test_scores_by_hand() -> None:
    """N = 4, lengths 7, 6, 3, 2, mean 18 / 4 = 4.5; `physics` stands in 2 documents, `piano` in 1."""
    assert scored("Physics", PHYSICS) == pytest.approx(
        # idf = ln(1 + 2.5/2.5) = 0.693147; d1: 1·2.2/(1 + 1.2·(0.25 + 0.75·7/4.5)) = 2.2/2.7; d2: 2·2.2/4.5
        {"d1": 0.693147 * 2.2 / 2.7, "d2": 0.693147 * 4.4 / 3.5, "d3": 0, "d4": 0},
        abs=1e-5,
    )
    both = scored("piano physics physics", PHYSICS)
    assert both == pytest.approx(
        {
            "d1": 2 * score(1, 7, 2, 4, 4.5),  # a repeated word counts twice
            "d2": 2 * score(2, 6, 2, 4, 4.5),
            "d3": score(1, 3, 1, 4, 4.5),
            "d4": 0,
        },
        abs=1e-5,
    )


def test_only_the_asked_documents_with_the_statistics_of_all() -> None:
    index = Bm25Index(Path("indexes"), PHYSICS)
    everything = index.scores("physics", ["d1", "d2", "d3", "d4"])
    assert index.scores("physics", ["d2"]) == {"d2": everything["d2"]}
    assert index.scores("physics", []) == {}
    with pytest.raises(KeyError):
        index.scores("physics", ["d5"])


def test_lengths_are_exact_below_40_terms_and_rounded_down_above() -> None:
    documents = [
        Document(f"n{length}", "rare" + " filler" * (length - 1)) for length in (2, 39, 40, 41, 57, 100)
    ]
    mean = (2 + 39 + 40 + 41 + 57 + 100) / 6
    found = scored("rare", documents)
    for length, counted in {2: 2, 39: 39, 40: 40, 41: 40, 57: 56, 100: 96}.items():
        assert found[f"n{length}"] == pytest.approx(score(1, counted, 6, 6, mean), abs=1e-5)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from("abcde"), max_size=12), min_size=1, max_size=6),
    st.lists(st.sampled_from("abcdef"), max_size=4),
)
def test_any_collection_scores_by_the_formula(texts: list[list[str]], query: list[str]) -> None:
    documents = [Document(str(n), "title", " ".join(text)) for n, text in enumerate(texts)]
    mean = sum(len(text) + 1 for text in texts) / len(texts)
    holding = {word: sum(word in text for text in texts) for word in "abcdef"}
    expected = {
        str(n): sum(
            score(text.count(word), len(text) + 1, holding[word], len(texts), mean)
            for word in query
            if word in text
        )
        for n, text in enumerate(texts)
    }
    with tempfile.TemporaryDirectory(
        ignore_cleanup_errors=True
    ) as folder:  # tantivy tidies up there meanwhile
        assert scored(" ".join(query), documents, Path(folder)) == pytest.approx(expected, abs=1e-5)


@settings(max_examples=15, deadline=None)
@given(st.text(st.characters(codec=None), max_size=40), st.text(st.characters(codec=None), max_size=40))
def test_any_text_is_words(text: str, query: str) -> None:
    with tempfile.TemporaryDirectory(
        ignore_cleanup_errors=True
    ) as folder:  # tantivy tidies up there meanwhile
        found = scored(query, [Document("a", text), Document("b", "", "")], Path(folder))
    assert found["b"] == 0 <= found["a"] < math.inf


@pytest.mark.parametrize(
    "query",
    [
        "[physics", "physics]", "physics AND piano", "NOT physics", "-physics", '"physics', "title:physics",
        "physics~2", "(physics", "phys*", "physics^3", "\\physics", "text:[a TO b] physics", "/physics/",
    ],
)  # fmt: skip
def test_query_syntax_is_words(query: str) -> None:
    words = "".join(character if character.isalnum() else " " for character in query)
    assert scored(query, PHYSICS) == scored(words.lower(), PHYSICS)
    assert ("physics" not in query) or scored(query, PHYSICS)["d2"] > 0


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
    monkeypatch.setattr("llmfair.retrieval.build._build", None)
    assert scored("physics", PHYSICS) == scored("physics", PHYSICS[::-1]) == first
    assert files(Path("indexes")) == before


def test_other_content_gets_an_index_of_its_own() -> None:
    scored("physics", PHYSICS)
    changed = [*PHYSICS[:3], Document("d4", "Béla Bartók", "Not physics")]
    assert scored("physics", changed)["d4"] > 0
    assert len([path for path in Path("indexes").iterdir() if path.is_dir()]) == 2
    assert Bm25Index(Path("x"), changed).identity != Bm25Index(Path("x"), PHYSICS).identity


def replace(path: Path, content: bytes) -> None:
    """Damage as the next start finds it: cutting the file itself would pull mapped pages from under a reader."""
    beside = path.with_name("beside")
    beside.write_bytes(content)
    beside.replace(path)


@pytest.mark.parametrize("damage", ["cut", "flipped", "removed", "unlisted", "emptied"])
def test_a_damaged_index_is_made_anew(damage: str) -> None:
    expected = scored("physics", PHYSICS)
    (index,) = (path for path in Path("indexes").iterdir() if path.is_dir())
    inverted = next(index.glob("*.idx"))
    content = inverted.read_bytes()
    match damage:
        case "cut":
            replace(inverted, content[:-3])
        case "flipped":
            replace(inverted, bytes([content[0] ^ 1]) + content[1:])
        case "removed":
            inverted.unlink()
        case "unlisted":
            (index / "manifest.json").write_text("{")
        case "emptied":
            shutil.rmtree(index)
            index.mkdir()
    assert scored("physics", PHYSICS) == expected
    assert Bm25Index(Path("indexes"), PHYSICS).scores("physics", ["d1"])["d1"] == expected["d1"]


def test_a_damaged_index_that_cannot_be_removed_is_in_nobodys_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of tantivy may still make a file in it while it is emptied."""
    expected = scored("physics", PHYSICS)
    (index,) = (path for path in Path("indexes").iterdir() if path.is_dir())
    next(index.glob("*.idx")).unlink()
    monkeypatch.setattr(shutil, "rmtree", lambda path, ignore_errors: None)
    assert scored("physics", PHYSICS) == expected


PROGRAM = """
import os, sys
from pathlib import Path
from llmfair.nouns import Document
from llmfair.retrieval import build
from llmfair.retrieval.bm25 import Bm25Index
if "killed" in sys.argv:
    build.files.note = lambda *of: os._exit(9)
documents = [Document(str(n), "title", f"word{n % 7} other words") for n in range(2000)]
print(Bm25Index(Path("indexes"), documents).scores("word3", ["3", "4"]))
"""


def program(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], stdout=subprocess.PIPE, text=True)


def test_a_killed_build_is_never_read() -> None:
    killed = program("killed")
    assert killed.communicate(timeout=60)[0] == "" and killed.returncode == 9
    (left,) = (path for path in Path("indexes").iterdir() if path.is_dir())
    assert left.suffix == ".tmp"
    after = program()
    out, _ = after.communicate(timeout=60)
    assert after.returncode == 0 and "'4': 0.0" in out
    assert not left.exists() and left.with_suffix("").is_dir()


def test_processes_at_once_share_one_index() -> None:
    running = [program() for _ in range(3)]
    answers = {process.communicate(timeout=60)[0] for process in running}
    assert len(answers) == 1 and "'3': 1." in answers.pop()
    assert [process.returncode for process in running] == [0, 0, 0]
    assert len([path for path in Path("indexes").iterdir() if path.is_dir()]) == 1


def test_a_folder_that_cannot_be_written_is_named() -> None:
    Path("file").touch()
    with pytest.raises(UsageError, match=r"file.*cannot be made") as caught:
        scored("physics", PHYSICS, Path("file"))
    assert "LLMFAIR_CACHE_DIR" in caught.value.hint
