"""What the shell is offered after Tab: every command, flag, registered name and run folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.whole


def offered(*words: str) -> list[str]:
    """What bash is told after these words, the last of which is being written."""
    asked = {
        "_LLMFAIR_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["llmfair", *words]),
        "COMP_CWORD": str(len(words)),
    }
    found = subprocess.run(
        [sys.executable, "-m", "llmfair"], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert (found.returncode, found.stderr) == (0, "")
    return found.stdout.split()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("pla", ["plan"]),
        ("listwise --max-c", ["--max-calls", "--max-cost"]),
        ("listwise --initial r", ["random"]),
        ("listwise -d trec-fair/2022/e", ["trec-fair/2022/eval/gender", "trec-fair/2022/eval/location"]),
        ("listwise --measures Exp", ["ExpRatio", "Exposure"]),
        ("listwise -m mono", ["monobert", "monot5"]),
        ("listwise --prompt ge", ["general"]),
        ("compare li", ["listwise-one", "listwise-two"]),
        ("report runs/o", ["runs/other"]),
        ("runs check --runs-dir nowhere li", []),
    ],
)
def test_what_is_offered(words: str, says: list[str]) -> None:
    for name in ("listwise-one", "listwise-two", "other"):
        Path("runs", name).mkdir(parents=True)
        Path("runs", name, "manifest.json").touch()
    Path("runs/listwise-nothing").mkdir()
    assert offered(*words.split()) == says


def test_the_script_that_a_shell_runs_asks_for_what_is_offered() -> None:
    asked = {**os.environ, "_LLMFAIR_COMPLETE": "source_bash"}
    found = subprocess.run(
        [sys.executable, "-m", "llmfair"], env=asked, capture_output=True, text=True, check=True
    )
    assert "_LLMFAIR_COMPLETE=complete_bash" in found.stdout and "complete -o default" in found.stdout
