"""What commands that read a whole run again keep in memory of every answer, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.scale import SIDE, write_lists

STATUS = Path("/proc/self/status")
# the peak of the process itself: the figure that wait4 gives a child begins with its parent's
CALL = """
import sys
from llmfair.cli.app import run
code = run(sys.argv[1:])
print(*(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")), file=sys.stderr)
sys.exit(code)
"""


def peak(*arguments: str | Path) -> int:
    """Bytes of memory of a command at its peak."""
    ended = subprocess.run(
        [sys.executable, "-c", CALL, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return int(ended.stderr.split()[-1]) * 1024


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not STATUS.is_file(), reason="the kernel tells no process its peak of memory here")
def test_of_an_answer_little_is_kept(tmp_path: Path) -> None:
    """A run of a million answers is checked, and measured again, in 300 MB, 75 of which any takes."""
    peaks: dict[str, list[int]] = {"check": [], "score": []}
    answers = []
    for queries in (2, 8):
        lists, run = tmp_path / f"lists{queries}", tmp_path / f"run{queries}"
        write_lists(lists, queries)
        asked = (
            "--pairs",
            str(SIDE * SIDE),
            *"--noise-share 0 -m fake:oracle,malformed=0 --no-report".split(),
        )
        peak("pairwise", "-d", lists, *asked, "-q", "-o", run)
        peaks["check"].append(peak("runs", "check", run))
        peaks["score"].append(peak("score", run))
        with (run / "journal.jsonl").open("rb") as file:
            answers.append(sum(1 for _ in file) - 1)
    grown = {what: (more - less) / (answers[1] - answers[0]) for what, (less, more) in peaks.items()}
    assert max(grown.values()) < 280, grown
