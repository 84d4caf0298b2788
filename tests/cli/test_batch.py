"""`llmfair pairwise --batch` end to end: the same figures as one by one, whatever becomes of its batches."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from llmfair.asking.journal import read_rows
from tests.batch_server import BatchServer
from tests.batch_server import unwaiting as unwaiting
from tests.cli.command import Outcome, kept, llmfair, ran, well
from tests.cli.long_commands import BATCHED, OF_BATCHED, QUICK
from tests.folders import balanced, write_folder
from tests.servers import Respond, Server

pytestmark = pytest.mark.whole

CHATS = 2 * 3 * 11  # both orders, 3 queries, 10 pairs and one of them twice
CALM: dict[tuple[Respond, tuple[str, ...]], dict[str, bytes]] = {}
"""The files of an ordinary run, by how its server answers and by further flags: the same in every test."""


@pytest.fixture(autouse=True)
def lists(unwaiting: None) -> None:
    write_folder(Path("lists"), balanced(3, 20, 20))


def command(server: Server, output: str, *more: str) -> list[str]:
    return [*BATCHED, "-o", output, "--base-url", server.base_url, *more]


def batch(server: Server, output: str = "a/run", *more: str) -> Outcome:
    return llmfair(*command(server, output, "--batch", *more))


def assert_as_one_by_one(server: BatchServer, folder: str, *more: str) -> None:
    """The files in a run folder equal those of an ordinary run against the same server's chat completions."""
    if (server.respond, more) not in CALM:
        ran(*command(server, "calm/run", *more))
        assert len(server.requests) >= CHATS
        CALM[server.respond, more] = {name: (Path("calm/run") / name).read_bytes() for name in OF_BATCHED}
    for name, content in CALM[server.respond, more].items():
        assert (Path(folder) / name).read_bytes() == content, name


def sent(folder: str = "a/run") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = kept("batches", folder)["batches"]
    return rows


def rows(folder: str = "a/run") -> list[dict[str, Any]]:
    return [row for row in read_rows(Path(folder) / "journal.jsonl") if "key" in row]


def test_reversed_answers_are_matched_and_equal_those_one_by_one() -> None:
    with BatchServer() as server:
        found = well(batch(server))
        assert not server.requests and len(server.batches) == 1
        assert set(server.submitted.values()) == {1} and server.submitted.total() == CHATS
        assert f"Submitted {CHATS} questions as batch_1 to 127.0.0.1" in found.err
        assert "batch_1: in_progress, 0 of 66 answered" in found.err
        assert "batch_1: completed" in found.err and f"{CHATS} of {CHATS} answers collected" in found.err
        assert {row["source"] for row in rows()} == {"batch"} and len(rows()) == CHATS
        facts = kept("manifest", "a/run")
        assert (facts["calls"], facts["answered"], facts["replayed"]) == (CHATS, CHATS, 0)
        assert sent() == [
            {"file": "batch-1.jsonl", "lines": CHATS, "input_file_id": "file-1", "batch_id": "batch_1",
             "status": "completed", "answers": CHATS, "journal": "journal.jsonl"},
        ]  # fmt: skip
        assert not list(Path("a/run").glob("batch-*"))
        again = batch(server)
        assert (again.code, again.out) == (0, found.out) and len(server.batches) == 1
        ran("runs", "check", "a/run")
        assert_as_one_by_one(server, "a/run")


def test_what_expired_is_submitted_once_more() -> None:
    with BatchServer(expire=lambda row, times: times == 1 and row % 10 == 0) as server:
        found = well(batch(server))
        expired = {line["custom_id"] for line in server.batches[0].lines[::10]}
        assert {key for key, times in server.submitted.items() if times == 2} == expired
        assert server.submitted.total() == CHATS + len(expired)
        assert [(one["status"], one["lines"]) for one in sent()] == [
            ("expired", CHATS), ("completed", len(expired)),
        ]  # fmt: skip
        assert f"{len(expired)} of them again" in found.err
        assert kept("manifest", "a/run")["retries"] == len(expired)
        assert {row["attempts"] for row in rows() if row["key"] in expired} == {2}
        assert_as_one_by_one(server, "a/run")


def test_max_calls_counts_lines() -> None:
    with BatchServer() as server:
        first = batch(server, "a/run", "--max-calls", "40", "--json")
        assert first.code == 3 and "budget of 40 calls is spent" in first.json["error"]["message"]
        assert server.submitted.total() == 40 and not server.requests
        assert first.json["chains"]["relevant"]["ranked"] == 20
        assert batch(server).code == 0
        assert [len(made.lines) for made in server.batches] == [40, CHATS - 40]
        assert_as_one_by_one(server, "a/run")


def test_the_cache_answers_what_it_can() -> None:
    with BatchServer() as server:
        ordinary = [word for word in command(server, "first", "--limit", "2") if word != "--no-cache"]
        ran(*ordinary)
        more = [word for word in command(server, "a/run", "--batch") if word != "--no-cache"]
        ran(*more)
        assert server.submitted.total() == CHATS - 44
        assert {row["source"] for row in rows()} == {"cache", "batch"}
        third = [word for word in command(server, "third") if word != "--no-cache"]
        before = len(server.requests)
        assert llmfair(*third).code == 0 and len(server.requests) == before


MOMENTS = {
    "before the file is there": ("upload", 1, False),
    "after the upload": ("upload", 1, True),
    "before the batch is made": ("create", 1, False),
    "after the batch is made, before its id is known": ("created", 1, True),
    "before the second file is there": ("upload", 2, False),
    "between upload and batch of the second": ("create", 2, False),
    "after the second batch is made": ("created", 2, True),
    "while waiting": ("look", 3, True),
    "while answers are fetched": ("content", 1, True),
    "while answers of the second are fetched": ("content", 2, True),
}
DYING = """
import os, signal
from llmfair.asking.journal import Journal
put, left = Journal.put, [30]
def dying(*given, **named):
    put(*given, **named)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
Journal.put = dying
"""


def started(server: BatchServer, code: str = "") -> subprocess.Popen[str]:
    """The command in two files, as a process of its own."""
    program = [sys.executable, "-c", f"{code}\n{QUICK}", *command(server, "a/run", "--batch")]
    return subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Killer:
    """Kills a process when its server hears of something for the nth time."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.moment: tuple[str, int, bool] | None = None
        self.process: subprocess.Popen[str] | None = None

    def on(self, event: str) -> bool | None:
        self.heard.append(event)
        if self.moment is None or (event, self.heard.count(event)) != self.moment[:2]:
            return None
        while self.process is None:  # its first request may be quicker than its parent
            time.sleep(0.001)
        self.process.kill()
        return self.moment[2]

    def kill(self, server: BatchServer, moment: tuple[str, int, bool]) -> None:
        self.heard, self.moment, self.process = [], moment, None
        with started(server) as self.process:
            out, err = self.process.communicate(timeout=60)
        assert self.process.returncode == -signal.SIGKILL, (moment, out, err)
        self.moment = None


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS, ids=[name.replace(" ", "-") for name in MOMENTS])
def test_killed_at_one_moment_every_question_is_submitted_once(moment: str) -> None:
    killer = Killer()
    with BatchServer(on=killer.on) as server:
        killer.kill(server, MOMENTS[moment])
        assert batch(server).code == 0
        assert server.submitted.total() == CHATS and set(server.submitted.values()) == {1}
        assert len(rows()) == len({row["key"] for row in rows()}) == CHATS
        assert_as_one_by_one(server, "a/run")


def test_killed_again_and_again_and_then_collected() -> None:
    killer = Killer()
    with BatchServer(on=killer.on) as server:
        killer.kill(server, ("created", 1, True))
        killer.kill(server, ("look", 3, True))
        assert len(server.batches) == 2 and not rows()
        with started(server, DYING) as dying:
            dying.communicate(timeout=60)
        assert dying.returncode == -signal.SIGKILL and len(rows()) == 30
        assert batch(server).code == 0
        assert [len(made.lines) for made in server.batches] == [40, CHATS - 40]
        assert set(server.submitted.values()) == {1} and len(rows()) == CHATS
        assert_as_one_by_one(server, "a/run")


def interrupted(running: subprocess.Popen[str], number: int) -> tuple[str, str]:
    """Sends a signal as a person does: again, where nothing comes of it."""
    for _ in range(5):
        running.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return running.communicate(timeout=30)
    running.kill()
    raise AssertionError("the command does not end")


def test_an_interrupt_leaves_batches_running_and_says_how_to_collect() -> None:
    with BatchServer(looks=10**9) as server:
        with started(server) as running:
            while not any(made.looks for made in server.batches):
                assert running.poll() is None
                time.sleep(0.01)
            out, err = interrupted(running, signal.SIGINT)
        assert (running.returncode, out) == (130, "")
        assert "batch_1, batch_2 run on at 127.0.0.1" in err
        assert "the same command collects the answers" in err and "Traceback" not in err
        assert kept("manifest", "a/run")["status"] == "incomplete"
        refused = llmfair(*command(server, "a/run"))
        assert refused.code == 1 and "add --batch" in refused.err and not server.requests
        server.looks = 1
        found = batch(server)
        assert found.code == 0 and "Collecting batch_1, 40 questions." in found.err
        assert set(server.submitted.values()) == {1}
