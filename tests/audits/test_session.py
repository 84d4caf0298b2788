"""A run folder while it is worked on: whatever ends the work, the manifest says what there is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from llmfair.audits.runs.session import session
from llmfair.errors import LlmfairError
from llmfair.nouns import Completion, Finish
from llmfair.rundir import RunDir
from tests.asking.test_journal import request


@pytest.mark.parametrize("fails", ["on the way", "at the end"])
def test_a_disk_that_fails_leaves_an_honest_manifest(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync
    failed: list[int] = []

    def failing_once(file: int) -> None:
        if not failed:
            failed.append(file)
            raise OSError(5, "Input/output error")
        real(file)

    monkeypatch.setattr("llmfair.asking.journal.FSYNC_SECONDS", 0.0 if fails == "on the way" else 60.0)
    folder = RunDir(tmp_path / "run")
    with (
        pytest.raises(LlmfairError, match="Input/output error"),
        session(folder, {"task": "listwise", "identity": "fake"}, False, {}) as (journal, manifest),
    ):
        monkeypatch.setattr("llmfair.asking.journal.os.fsync", failing_once)
        journal.put(request("a"), Completion("answer to a", Finish.STOP), attempts=1)
        while fails == "on the way":
            journal.put(request("b"), Completion("answer to b", Finish.STOP), attempts=1)
        manifest["status"] = "complete"
    found = json.loads((tmp_path / "run" / "manifest.json").read_text())
    answers = {
        json.loads(line)["key"] for line in (tmp_path / "run" / "journal.jsonl").read_text().splitlines()[1:]
    }
    assert found["status"] == "incomplete" and found["invocations"][-1]["ended"]
    assert found["journal_answers"] == len(answers) >= 1
