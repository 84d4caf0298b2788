"""The shared cache: no row is lost between processes, nothing unfinished gets in, and it never stops a run."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from llmfair.asking import cache as module
from llmfair.asking.cache import FILE, Cache, count, facts
from llmfair.asking.journal import Journal, read_rows
from llmfair.asking.limits import Progress
from llmfair.errors import LlmfairError
from llmfair.nouns import Completion, Finish
from tests.asking.scripted import Scripted, chain, run, single
from tests.fresh import printed_by

ANSWER = Completion(
    "[2] > [1]", Finish.STOP, 10, 5, 2, 1, "thought", {"A": -0.25}, "any-2026-01-01", "fp_test", 0.5
)


@contextmanager
def opened(path: Path, model: str = "openai any test") -> Iterator[tuple[Cache, list[str]]]:
    warnings: list[str] = []
    with closing(Cache(path, model, warnings.append)) as cache:
        yield cache, warnings


def filled(path: Path, *keys: str, model: str = "openai any test") -> Path:
    with opened(path, model) as (cache, warnings):
        for key in keys:
            cache.put(key, replace(ANSWER, text=f"answer to {key}"))
    assert not warnings
    return path


def rows(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        return int(database.execute("SELECT count(*) FROM answers").fetchone()[0])


def test_an_answer_comes_back_as_it_was(tmp_path: Path) -> None:
    texts = ["[2] > [1]", "", "\ud800 lone surrogate", "ü \u2028 [1] \x00"]
    path = tmp_path / "deep" / "er" / FILE
    with opened(path, "openai \udcff named in another encoding") as (cache, _):
        for number, text in enumerate(texts):
            cache.put(f"{number}", replace(ANSWER, text=text))
    with opened(path) as (cache, warnings):
        for number, text in enumerate(texts):
            assert cache.get(f"{number}") == replace(ANSWER, text=text)
        assert cache.get("never asked") is None and warnings == []
    assert [part.name for part in path.parent.iterdir()] == [FILE], "write-ahead files are folded in on close"


@pytest.mark.parametrize("finish", [finish for finish in Finish if finish is not Finish.STOP])
def test_only_answers_that_came_to_their_end_are_kept(tmp_path: Path, finish: Finish) -> None:
    with opened(tmp_path / FILE) as (cache, _):
        cache.put("key", replace(ANSWER, finish=finish))
    assert rows(tmp_path / FILE) == 0


WRITER = """
import sys
from pathlib import Path
from llmfair.asking.cache import Cache
from llmfair.nouns import Completion, Finish
path, name, number = sys.argv[1:]
cache = Cache(Path(path), "openai any test", lambda text: sys.exit(text))
print("ready", flush=True)
sys.stdin.readline()
for i in range(int(number)):
    cache.put(f"{name}{i}", Completion(f"answer {name}{i}", Finish.STOP))
    cache.put(f"both{i}", Completion(f"answer both{i}", Finish.STOP))
cache.close()
"""


def test_processes_that_write_at_once_lose_no_row(tmp_path: Path) -> None:
    path, names, each = tmp_path / "new" / FILE, ("a", "b", "c"), 400
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), name, str(each)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for name in names
    ]  # fmt: skip
    for process in processes:  # all made the file at about the same time; now all write
        assert process.stdout is not None and process.stdout.readline() == "ready\n", process.communicate()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        assert process.communicate(timeout=60)[1] == "" and process.returncode == 0
    assert rows(path) == each * (len(names) + 1)
    with opened(path) as (cache, _):
        for key in [f"{name}{i}" for name in (*names, "both") for i in range(each)]:
            found = cache.get(key)
            assert found is not None and found.text == f"answer {key}"


# A cache that cannot be used


def damaged(path: Path) -> None:
    path.write_bytes(b"this is no database, but it is long enough to be read as if it were one " * 100)


def broken_inside(path: Path) -> None:
    filled(path, *(f"key{number}" for number in range(500)))
    content = path.read_bytes()
    path.write_bytes(content[:8192] + os.urandom(len(content) - 8192))


def a_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("harm", [damaged, broken_inside, a_folder])
def test_an_unusable_cache_is_said_once_and_left_alone(tmp_path: Path, harm: object) -> None:
    assert callable(harm)
    path = tmp_path / "folder" / FILE
    path.parent.mkdir()
    harm(path)
    with opened(path) as (cache, warnings):
        for number in range(500):
            assert cache.get(f"key{number}") is None or harm is broken_inside
            cache.put(f"new{number}", ANSWER)
    (warning,) = warnings
    assert str(path) in warning and "goes on without it" in warning


def test_a_locked_cache_is_waited_for_then_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUSY_SECONDS", 0.2)
    path = filled(tmp_path / FILE, "known")
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with opened(path) as (cache, warnings):
            assert cache.get("known") is not None, "reading needs no lock"
            cache.put("new", ANSWER)
        assert len(warnings) == 1 and "locked" in warnings[0]
        with pytest.raises(LlmfairError, match="locked"):
            count(path, remove=True)
        holder.execute("ROLLBACK")
        holder.execute("PRAGMA locking_mode = EXCLUSIVE")
        holder.execute("BEGIN EXCLUSIVE")
        with opened(path) as (cache, warnings):
            assert cache.get("known") is None
        assert len(warnings) == 1 and "locked" in warnings[0]


def test_a_lock_of_another_process_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GATHER_SECONDS", -1.0)
    path = filled(tmp_path / FILE, "known")
    with opened(path) as (cache, warnings), closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        cache.put("new", ANSWER)
        assert time.monotonic() < began + 1 and cache.get("new") == ANSWER and rows(path) == 1
        holder.execute("ROLLBACK")
        cache.put("newer", ANSWER)
        assert rows(path) == 3 and not warnings


def test_what_is_no_answer_is_asked_again(tmp_path: Path) -> None:
    path = filled(tmp_path / FILE, "torn", "other", "sound")
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE answers SET value = substr(value, 9) WHERE key = 'torn'")
        database.execute("UPDATE answers SET value = '[]' WHERE key = 'other'")
    with opened(path) as (cache, _):
        assert [key for key in ("torn", "other", "sound") if cache.get(key)] == ["sound"]
        cache.put("torn", ANSWER)
    with opened(path) as (cache, _):
        assert cache.get("torn") == ANSWER


# What is in it, and removing some of it


def test_facts_and_removing_by_model_and_age(tmp_path: Path) -> None:
    path = tmp_path / FILE
    assert facts(path) == {"path": str(path), "entries": 0, "bytes": 0, "models": []}
    assert count(path) == count(path, remove=True) == 0 and not path.exists()
    filled(path, "a", "b", model="openai gpt api.example")
    filled(path, "c", model="openai gpt-mini api.example")
    filled(path, "d", "e", "f", model="hf org/gp%")
    found = facts(path)
    assert found["entries"] == 6 and found["bytes"] == path.stat().st_size
    assert {row["model"]: row["entries"] for row in found["models"]} == {
        "openai gpt api.example": 2, "openai gpt-mini api.example": 1, "hf org/gp%": 3,
    }  # fmt: skip
    assert count(path, "openai gpt") == 2 and count(path, "openai") == 3 and count(path, "%") == 0
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "UPDATE answers SET created = ? WHERE key IN ('a', 'd')",
            ((hour_ago - timedelta(days=1)).isoformat(timespec="milliseconds"),),
        )
    assert count(path, before=hour_ago) == 2 and count(path, "openai gpt", hour_ago, remove=True) == 1
    with opened(path, "openai gpt api.example") as (cache, _):  # another process uses it meanwhile
        assert cache.get("a") is None and cache.get("b") is not None
        assert count(path, remove=True) == 5
        assert cache.get("b") is None
        cache.put("g", ANSWER)
    assert rows(path) == 1


def test_a_damaged_cache_goes_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / FILE
    damaged(path)
    for attempt in (
        facts,
        partial(count, model="openai any"),
        partial(count, model="openai any", remove=True),
    ):
        with pytest.raises(LlmfairError, match="cannot be used") as caught:
            attempt(path)
        assert "llmfair cache clear" in caught.value.hint
    assert count(path) is None and path.exists()
    assert count(path, remove=True) is None and not path.exists()


def test_dispatch_asks_what_neither_journal_nor_cache_answers(tmp_path: Path) -> None:
    programs = [chain(f"c{number}", 4) for number in range(3)]
    path, asked, runs = tmp_path / FILE, [], []
    for name, more in (("one", []), ("two", [single("new", "x")]), ("two", []), ("three", [])):
        journal = Journal(tmp_path / f"{name}.jsonl", name, "scripted")
        backend, progress = Scripted(), Progress()
        with opened(path, backend.identity) as (cache, _):
            runs.append(run([*programs, *more], backend, journal, progress=progress, cache=cache))
        journal.close()
        asked.append((sum(backend.asked.values()), progress.calls, progress.replayed, progress.cached))
    assert asked == [(12, 12, 0, 0), (1, 1, 0, 12), (0, 0, 12, 0), (0, 0, 0, 12)]
    assert runs[0] == runs[2] == runs[3] == {key: runs[1][key] for key in runs[0]}
    found = list(read_rows(tmp_path / "three.jsonl"))
    assert len(found) == 12 and {(row["source"], row["attempts"]) for row in found} == {("cache", 0)}
    ours = json.loads((tmp_path / "one.jsonl").read_text().splitlines()[1])
    theirs = next(row for row in found if row["key"] == ours["key"])
    assert {k for k in ours if ours[k] != theirs[k]} == {"source", "attempts", "at"}


FULL = """
import resource, sys
from pathlib import Path
from llmfair.asking.cache import Cache
from llmfair.nouns import Completion, Finish
path = Path(sys.argv[1])
warnings = []
cache = Cache(path, "openai any test", warnings.append)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
for number in range(2000):
    cache.put(f"new{number}", Completion("a long answer " * 50, Finish.STOP))
cache.close()
print(len(warnings), *warnings)
"""


def test_no_room_on_the_disk_is_said_once_and_harms_nothing(tmp_path: Path) -> None:
    path = filled(tmp_path / FILE, "known")
    assert printed_by(FULL, path).startswith("1 the answer cache ")
    with opened(path) as (cache, warnings):
        assert cache.get("known") is not None
        cache.put("later", ANSWER)
    assert not warnings and rows(path) == 2
