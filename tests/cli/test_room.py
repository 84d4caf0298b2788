"""Commands with little room: on a disk that fills up nothing paid for is lost, and of an answer little is in memory."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.scale import SIDE, write_lists
from tests.cli.long_commands import COMMANDS, Long, Started, left_over, new_folder, run_to_draw, same_files
from tests.disks import PAGE, mounted

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SAYS = re.compile("no space left|the disk is full", re.IGNORECASE)
MOST_ATTEMPTS = 300
SHORT = {
    "score": Long(("score", "../drawn", "-o", "out"), ("out/*",), watched=run_to_draw),
    "rerank": Long(
        ("rerank", *(f"../drawn/rankings/{name}.run" for name in ("neutral", "male")), "-d", "sample", "--with", "fair-star", "-o", "out"),
        ("out/*",),
        watched=run_to_draw,
    ),
    "figures": Long(
        ("report", "../drawn", "-o", "out/page.html", "--figures", "svg,pdf,png"),
        ("out/*", "out/plots/*"),
        watched=run_to_draw,
        grows="out/**/*",
    ),
    "junit": Long(
        ("listwise", "-n", "2", "--orders", "1", "--no-repeat", "-o", "run", "--max-invalid", "1", "--junit", "suites.xml"),
        ("suites.xml", "run/results.json", "run/*.csv"),
    ),
}  # fmt: skip
"""Commands that are soon through, over a run that is there."""
NOT_HERE = ("calibrate", "fetch")
"""The first writes nothing; a fetch on a full disk stands in tests/datasets/test_indexed.py."""
WRITING = {name: long for name, long in COMMANDS.items() if name not in NOT_HERE} | SHORT
WRITING["finetune"] = replace(
    COMMANDS["finetune"], grows="out/**/*"
)  # by pages it would be begun a thousand times


@pytest.mark.parametrize("name", WRITING)
def test_a_disk_that_fills_up_from_the_beginning(name: str, tmp_path: Path) -> None:
    assert full_again_and_again(WRITING[name], tmp_path)


def full_again_and_again(long: Long, scratch: Path) -> list[str]:
    """Begins a command on a disk that is too small, until it is not; returns the file that each attempt names.

    Asserts that each attempt ends in one sentence, keeps what it wrote and leaves nothing half-written, that
    nothing is asked again, and that all equals what the command writes where there is room, byte for byte.
    """
    with long.watched(scratch) as watch, mounted(scratch / "small") as disk:
        calm = new_folder(long, scratch / "calm")
        watch.before(calm)
        code, expected, err = Started(long, calm, watch).end()
        assert code == 0, err
        files = [str(path.relative_to(calm)) for path in calm.rglob("*") if path.is_file()]
        long.prepare(disk.folder)
        size, at = disk.used() + PAGE, list[str]()
        while True:
            disk.resize(size)
            watch.before(disk.folder)
            code, out, err = Started(long, disk.folder, watch).end()
            watch.after(disk.folder, orderly=code == 0)  # answers in flight find no room
            if code == 0:
                break
            at.append(sentence(code, err, files))
            assert len(at) < MOST_ATTEMPTS, at
            assert not left_over(disk.folder), err
            size += max(PAGE, (long.written(calm) - long.written(disk.folder)) // 2)
        watch.through(disk.folder)
        assert out == expected or not long.prints
        same_files(long, disk.folder, calm)
    return at


def sentence(code: int, err: str, files: Sequence[str]) -> str:
    """The file that an attempt names which found no room, or what it says of none of these."""
    assert code in (1, 2, 3), (code, err)
    assert "Traceback" not in err and "Exception ignored" not in err, err
    errors = [line for line in err.splitlines() if line.startswith("Error: ")]
    assert errors and all(map(SAYS.search, errors)), err  # a study says it of each of its settings
    return max((file for file in files if file in errors[0]), key=len, default=errors[0])


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
