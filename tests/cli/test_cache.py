"""The shared cache from the command line: what is never asked twice, and that nothing else changes by it."""

from __future__ import annotations

import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Outcome, llmfair, ran, refuses, well
from tests.folders import balanced, write_folder
from tests.report.reading import read
from tests.servers import Server, faulty, rank

pytestmark = pytest.mark.whole

CACHE = Path("cache") / "answers.sqlite"
SMALL = "--orders 1 --passes 1 --conditions neutral --server-name test".split()
NOT_RESULTS = ("manifest.json", "journal.jsonl", ".lock")
"""They hold times, and where an answer came from."""


def lists() -> Path:
    return write_folder(Path("lists"), balanced(3, 20, 20))


def audit(server: Server, output: str, *more: str, model: str = "any") -> Outcome:
    """A run in the folder `output`/run, so that results do not differ by its name."""
    asked = ("-d", str(lists()), "-m", f"openai:{model}", "--base-url", server.base_url, *SMALL)
    return llmfair("listwise", *asked, "-o", Path(output) / "run", *more)


def manifest(output: str) -> Any:
    return json.loads((Path(output) / "run" / "manifest.json").read_text())


def results(output: str) -> dict[str, bytes]:
    run = Path(output) / "run"
    files = (path for path in run.rglob("*") if path.is_file() and path.name not in NOT_RESULTS)
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


def sources(output: str) -> set[str]:
    lines = (Path(output) / "run" / "journal.jsonl").read_text().splitlines()[1:]
    return {json.loads(line)["source"] for line in lines}


def rows() -> int:
    with closing(sqlite3.connect(CACHE)) as database:
        return int(database.execute("SELECT count(*) FROM answers").fetchone()[0])


def test_another_folder_asks_nothing_and_finds_the_same_with_and_without_the_cache() -> None:
    with Server() as server:
        without = well(audit(server, "without", "-v", "--no-cache"))
        calls = len(server.requests)
        assert not CACHE.exists()
        cold = audit(server, "cold", "-v")
        assert len(server.requests) == 2 * calls and rows() == calls
        warm = audit(server, "warm", "-v")
        assert len(server.requests) == 2 * calls
    assert (manifest("warm")["calls"], manifest("warm")["cached"]) == (0, calls)
    assert (manifest("cold")["calls"], manifest("cold")["cached"]) == (calls, 0)
    assert manifest("warm")["answered"] == manifest("without")["answered"] == calls
    assert (sources("cold"), sources("warm")) == ({"backend"}, {"cache"})
    assert len(results("cold")) > 4 and results("without") == results("cold") == results("warm")
    told = f"  {calls} of {calls} answers came from other runs of this model (--fresh --no-cache asks them again)\n"
    assert told in warm.out and told not in cold.out + without.out
    tables = {
        run.out.replace(name, "").replace(told, "")
        for run, name in ((without, "without"), (cold, "cold"), (warm, "warm"))
    }
    assert len(tables) == 1
    ran("runs", "check", "warm/run")
    Path("warm", "run", "results.json").touch()
    assert audit(server, "warm").code == 0, "from its journal alone: the server is gone"
    assert manifest("warm")["cached"] == 0 and manifest("warm")["replayed"] == calls
    assert manifest("warm")["warnings"] == [told.strip()], "wherever the answers are read from"


@pytest.mark.usefixtures("undrawn")
def test_fresh_sets_the_journal_aside_and_no_cache_asks_again() -> None:
    with Server() as server:
        audit(server, "one")
        calls = len(server.requests)
        assert audit(server, "one", "--fresh").code == 0 and len(server.requests) == calls
        assert (Path("one") / "run" / "journal.1.jsonl").is_file() and manifest("one")["cached"] == calls
        (doubt,) = manifest("one")["warnings"]
        assert doubt.endswith("(--fresh --no-cache asks them again)")
        ran("report", "one/run")
        assert doubt in "".join(read(Path("one/run/report.html")).text)
        assert audit(server, "one", "--fresh", "--no-cache").code == 0
        assert len(server.requests) == 2 * calls and manifest("one")["cached"] == 0
        assert manifest("one")["warnings"] == [] and not Path("one/run/report.html").exists()


def test_where_it_is_and_what_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / CACHE
    assert llmfair("cache", "path").out == f"{path}\n"
    assert llmfair("cache", "path", "--json").json == {"schema": 5, "path": str(path)}
    assert llmfair("cache", "info").out.startswith("0 answers, 0.0 kB") and not path.exists()
    with Server() as server:
        audit(server, "one")
        calls = len(server.requests)
    found = llmfair("cache", "info", "--json").json
    assert (found["schema"], found["path"], found["entries"]) == (5, str(path), calls)
    assert found["bytes"] == path.stat().st_size
    (model,) = found["models"]
    assert (model["model"], model["entries"]) == ("openai any test", calls)
    assert model["oldest"] <= model["newest"]
    shown = llmfair("cache", "info").out
    assert shown.startswith(f"{calls} answers, ") and "openai any test" in shown and str(path) in shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_clearing_asks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server() as server:
        audit(server, "one")
        audit(server, "two", model="other")
    calls = manifest("one")["calls"]
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    refused = refuses("--yes", "cache", "clear")
    for said in ("\n", "n\n", ""):
        monkeypatch.setattr("sys.stdin", Terminal(said))
        refused = llmfair("cache", "clear")
        assert refused.code == 1 and refused.out == "" and f"Remove {2 * calls} answers from" in refused.err
    assert rows() == 2 * calls
    assert llmfair("cache", "clear", "--older-than", "1h", "--yes").out == ""
    none = llmfair("cache", "clear", "--model", "openai:nobody", "--yes", "--json")
    assert none.code == 0 and none.json["removed"] == 0 and "Nothing to remove" in none.err
    assert llmfair("cache", "clear", "--model", "openai:other", "--yes").out == f"Removed {calls} answers.\n"
    assert llmfair("cache", "info", "--json").json["models"][0]["model"] == "openai any test"
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert llmfair("cache", "clear", "--json").json["removed"] == calls and rows() == 0
    before = CACHE.stat().st_size
    assert before < 20_000, "the room is given back"
    assert audit(server, "one").code == 0, "a run folder keeps its own answers"


@pytest.mark.parametrize("age", ["30", "-1d", "٣d"])
def test_what_is_no_age(age: str) -> None:
    found = llmfair("cache", "clear", f"--older-than={age}", "--yes")
    assert found.code == 2 and "is not an age" in found.err and "30d" in found.err


def test_a_damaged_cache_costs_one_warning_and_no_result() -> None:
    content = b"not a database " * 1000
    with Server(faulty(rank, rate_malformed=0.1)) as server:
        calm = audit(server, "calm", "--no-cache", "--max-invalid", "1")
        assert calm.code == 0 and "Warning" not in calm.err
        CACHE.parent.mkdir(exist_ok=True)
        CACHE.write_bytes(content)
        found = audit(server, "found", "--max-invalid", "1")
        assert found.code == 0 and found.err.count("Warning") == 1
        assert "answers.sqlite cannot be used" in found.err and "llmfair cache clear" in found.err
        assert results("calm") == results("found") and CACHE.read_bytes() == content
        refuses("llmfair cache clear", "cache", "info", code=1)
        assert llmfair("cache", "clear", "--yes").out == "Removed the damaged cache.\n"
        again = audit(server, "again", "--max-invalid", "1")
        assert "Warning" not in again.err and rows() == len(server.requests) // 3


def test_a_table_of_others_is_cleared_like_any_damage() -> None:
    CACHE.parent.mkdir(exist_ok=True)
    with closing(sqlite3.connect(CACHE)) as database:
        database.execute("CREATE TABLE answers (x)")
    assert llmfair("cache", "clear", "--yes").out == "Removed the damaged cache.\n"


def test_neither_key_nor_question_is_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    canary = "sk-canary-0123456789"
    monkeypatch.setenv("OPENAI_API_KEY", canary)
    with Server() as server:
        audit(server, "one")
        assert server.requests[0].headers["Authorization"] == f"Bearer {canary}"
        question = server.bodies[0]["messages"][1]["content"].encode()
    content = b"".join(path.read_bytes() for path in CACHE.parent.rglob("answers*"))
    assert rows() > 0 and canary.encode() not in content and question not in content
    assert b"Title q0f0" not in content
