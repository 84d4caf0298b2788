"""A whole audit of each kind through the installed command, as a user runs it: asked, not asked again, checked, reported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import only_run

CALLS = {"listwise": 8 * 4 * 3 * 9, "pairwise": 8 * 2 * (50 + 5) * 2}
"""Queries by conditions, orders and windows; queries by kinds, pairs (a tenth of them twice) and orders."""
EVERY = {
    "manifest.json", "journal.jsonl", "failures.csv", "metrics.csv", "per_query.csv", "results.json", "texts.jsonl", "report.html",
}  # fmt: skip
FILES = {
    "listwise": {"rankings", "candidates.jsonl", "qrels.txt", "groups.tsv"},
    "pairwise": {"verdicts.csv"},
}
"""Of a run folder, beside those that every one has."""


def console(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "llmfair"
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=100)


@pytest.mark.whole
@pytest.mark.parametrize("kind", CALLS)
def test_the_first_contact(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLMFAIR_REPORT")
    first = console(kind)
    assert first.returncode == 0, first.stderr
    run = only_run()
    manifest = json.loads((run / "manifest.json").read_text())
    assert (manifest["status"], manifest["calls"]) == ("complete", CALLS[kind])
    assert first.stdout.splitlines()[-1] == str(run / "report.html")
    kept = {path: path.read_bytes() for path in run.rglob("*") if path.name != ".lock" and path.is_file()}
    assert {path.name for path in run.iterdir() if not path.name.startswith(".")} == FILES[kind] | EVERY

    again = console(kind)
    assert (again.returncode, again.stdout) == (0, first.stdout)
    assert kept == {path: path.read_bytes() for path in kept}
    checked = console("runs", "check", run.name)
    assert checked.returncode == 0, checked.stdout
