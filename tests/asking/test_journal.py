"""The journal: nothing answered is lost, nothing torn is believed."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import pytest

from llmfair.asking.journal import Journal, JournalAnswers, Unwritable, read_rows
from llmfair.errors import LlmfairError, RunConflict
from llmfair.nouns import Chat, Completion, Failure, Finish, Message, Permutation, Request, Sampling
from tests.asking.scripted import request_key


def request(text: str, draw: int = 0) -> Request:
    chat = Chat((Message("user", text),), Permutation(2), draw, {"query_id": "q"})
    sampling = Sampling(max_tokens=32)
    return Request(chat, sampling, request_key("fake", chat, sampling), "q/neutral/o0/r0")


def written(path: Path, texts: list[str]) -> Path:
    with closing(Journal(path, "run", "fake")) as journal:
        for text in texts:
            answer = Completion(f"answer to {text}", Finish.STOP, prompt_tokens=3)
            journal.put(request(text), answer, attempts=1)
    return path


def opened(path: Path) -> closing[Journal]:
    return closing(Journal(path, "run", "fake"))


def text_of(journal: Journal, text: str) -> str | None:
    """What was answered to it."""
    found = journal.get(request(text).key)
    return found.text if found else None


def test_answers_are_found_again(tmp_path: Path) -> None:
    texts = ["a", "b", "\ud800 lone surrogate", "ü \u2028 [1]"]
    with opened(written(tmp_path / "journal.jsonl", texts)) as journal:
        assert len(journal) == 4
        for text in texts:
            found = journal.get(request(text).key)
            assert found is not None and found.text == f"answer to {text}" and found.prompt_tokens == 3
        assert text_of(journal, "never asked") is None


@pytest.mark.parametrize("kept", [1, 20, 150])
def test_a_torn_last_line_is_skipped_and_the_next_row_starts_its_own(tmp_path: Path, kept: int) -> None:
    path = written(tmp_path / "journal.jsonl", ["a", "b"])
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]) + lines[2][:kept])
    with opened(path) as journal:
        assert (len(journal), journal.skipped) == (1, [3])
        journal.put(request("c"), Completion("answer to c", Finish.STOP), attempts=1)
        assert text_of(journal, "c") == "answer to c"
    with opened(path) as again:
        assert text_of(again, "b") is None and text_of(again, "c") == "answer to c"


@pytest.mark.parametrize(
    "damage",
    [
        b"{not json",
        b"[" * 3000,
        b'{"key": ["x"], "text": "a", "finish": "stop"}',
        b'{"key": "x", "text": "a", "finish": "stop", "logprobs": [1]}',
    ],
)
def test_a_damaged_line_in_the_middle_costs_one_answer(tmp_path: Path, damage: bytes) -> None:
    path = written(tmp_path / "journal.jsonl", ["a", "b", "c"])
    lines = path.read_bytes().splitlines()
    lines[2] = damage
    path.write_bytes(b"\n".join(lines) + b"\n")
    with opened(path) as journal:
        assert (len(journal), journal.skipped) == (2, [3]) and text_of(journal, "c") == "answer to c"
    assert [row["text"] for row in read_rows(path)] == ["answer to a", "answer to c"]


def test_a_failure_is_noted_and_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with opened(path) as journal:
        journal.put_failure(Failure("q/neutral/o0/r0", "Rejected", "no"))
    with opened(path) as journal:
        assert (len(journal), journal.skipped) == (0, [])
    assert [row["failure"] for row in read_rows(path)] == ["Rejected"]


@pytest.mark.parametrize(
    "content", ["hello\n", "{}\n", "[1]\n", '{"journal": 1, "run": "r", "identity": "other"}\n']
)
def test_a_file_of_somebody_else_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(content)
    with pytest.raises(RunConflict, match=r"journal"):
        Journal(path, "run", "fake")
    assert path.read_text() == content


@pytest.mark.parametrize("text", ["rank", 'a "quoted"\n\ttitle', "\x00\x1f\u2028 ü 日本", "\ud800", ""])
@pytest.mark.parametrize(
    "sampling",
    [Sampling(), Sampling(0.5, 9, 0, 3, 0.9, ("\n", "ü"), {"b": {"d": 1, "c": [None]}, "a": 2}, "ab", True)],
)
@pytest.mark.parametrize("about", [False, True])
def test_a_key_is_the_hash_of_canonical_json(text: str, sampling: Sampling, about: bool) -> None:
    """What is pieced together for speed is what an encoder makes of the whole."""
    chat = Chat(
        (Message("system", "x"), Message("user", text)), Permutation(3), 2, {"z": [1, None], "a": "ü"}
    )
    drawn = asdict(sampling)
    apart = [drawn.pop(name) for name in ("adapter", "constrain", "margins")]
    messages = [[message.role, message.content] for message in chat.messages]
    shape = ["Permutation", 3] if sampling.constrain else "Permutation"
    whole = [
        1, 'a "name"', apart[0], messages, drawn, shape, *apart[1:], 2, dict(chat.about) if about else None,
    ]  # fmt: skip
    canonical = json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = hashlib.sha256(canonical.encode("utf-8", "backslashreplace")).hexdigest()
    assert request_key('a "name"', chat, sampling, about) == digest[:32]


def test_rows_hold_the_evidence(tmp_path: Path) -> None:
    path = written(tmp_path / "journal.jsonl", ["a"])
    header, row = (json.loads(line) for line in path.read_text().splitlines())
    assert header == {"journal": 1, "run": "run", "identity": "fake"}
    assert row["chat"] == [["user", "a"]] and row["about"] == {"query_id": "q"}
    assert {"probe", "draw", "finish", "source", "attempts", "at", "seconds"} <= row.keys()


def test_a_write_that_fails_midway_swallows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path / "journal.jsonl", "run", "fake")
    journal.put(request("a"), Completion("answer to a", Finish.STOP), attempts=1)
    real, calls = os.write, []

    def half(file: int, data: bytes) -> int:
        calls.append(file)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return real(file, bytes(data)[:30])

    monkeypatch.setattr("llmfair.asking.journal.os.write", half)
    with pytest.raises(LlmfairError, match="No space left"):
        journal.put(request("b"), Completion("answer to b", Finish.STOP), attempts=1)
    monkeypatch.undo()
    journal.put(request("c"), Completion("answer to c", Finish.STOP), attempts=1)
    assert text_of(journal, "c") == "answer to c"
    journal.close()
    with opened(tmp_path / "journal.jsonl") as again:
        assert (len(again), again.skipped) == (2, [])


def test_answers_reach_the_disk_itself_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr("llmfair.asking.journal.os.fsync", synced.append)
    monkeypatch.setattr("llmfair.asking.journal.FSYNC_SECONDS", 0.0)
    journal = Journal(tmp_path / "journal.jsonl", "run", "fake")
    for number, text in enumerate("ab", start=1):
        journal.put(request(text), Completion(f"answer to {text}", Finish.STOP), attempts=1)
        while len(synced) < number:  # in a thread of its own; without it the test would not end
            time.sleep(0.001)
        time.sleep(0.05)
    journal.close()
    assert len(synced) >= 3


def test_nobody_waits_for_a_slow_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free, begun = threading.Event(), []

    def slow(file: int) -> None:
        begun.append(file)
        assert free.wait(30)

    monkeypatch.setattr("llmfair.asking.journal.os.fsync", slow)
    monkeypatch.setattr("llmfair.asking.journal.FSYNC_SECONDS", 0.0)
    journal = Journal(tmp_path / "journal.jsonl", "run", "fake")
    for text in "abc":
        journal.put(request(text), Completion(f"answer to {text}", Finish.STOP), attempts=1)
    assert len(journal) == 3 and len(begun) <= 1  # one at a time
    free.set()
    journal.close()
    assert len(begun) == 2  # and what came meanwhile, on close


@pytest.mark.parametrize("later", ["put", "close"])
def test_a_disk_that_fails_later_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: str) -> None:
    def failing(_: int) -> None:
        raise OSError(5, "Input/output error")

    journal = Journal(tmp_path / "journal.jsonl", "run", "fake")
    monkeypatch.setattr("llmfair.asking.journal.os.fsync", failing)
    monkeypatch.setattr("llmfair.asking.journal.FSYNC_SECONDS", 0.0 if later == "put" else 60.0)
    journal.put(request("a"), Completion("answer to a", Finish.STOP), attempts=1)
    with pytest.raises(LlmfairError, match="Input/output error"):
        if later == "put":
            while True:
                journal.put(request("b"), Completion("answer to b", Finish.STOP), attempts=1)
        journal.close()


@pytest.mark.parametrize("later", ["put", "close"])
def test_a_journal_that_is_removed_while_it_is_written_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: str
) -> None:
    monkeypatch.setattr("llmfair.asking.journal.FSYNC_SECONDS", 0.0 if later == "put" else 60.0)
    journal = Journal(tmp_path / "journal.jsonl", "run", "fake")
    journal.path.unlink()
    with pytest.raises(Unwritable, match="was removed during the run"):
        if later == "put":
            journal.put(request("a"), Completion("answer to a", Finish.STOP), attempts=1)
        journal.close()


def test_kept_answers_are_those_that_were_filed_first(tmp_path: Path) -> None:
    texts = [f"t{number}" for number in range(200)]
    path = written(tmp_path / "journal.jsonl", texts)
    lines = path.read_bytes().splitlines(keepends=True)
    again = lines[1].replace(b"answer to t0", b"another")
    path.write_bytes(b"".join([*lines[:100], b"torn\n", *lines[100:], again, b'{"key": "k7", "text"']))
    with closing(JournalAnswers(path)) as kept:
        assert len(kept) == 200
        found = [kept.get(request(text).key) for text in texts]
        assert [one and one.text for one in found] == [f"answer to {text}" for text in texts]
        assert kept.get(request("never asked").key) is None
