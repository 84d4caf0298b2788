"""Fetching a task of LaMP: the development inputs and answers of its user split, from where they stopped.

Its authors publish neither sizes nor checksums, so that what came is read as a whole before it is kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llmfair.datasets.download import DownloadProgress, Origin, Silent, download
from llmfair.datasets.fetch import alone_in
from llmfair.datasets.lamp import FORMATS, Lamp, read_task
from llmfair.errors import LlmfairError, UsageError
from llmfair.io import files

PUBLISHED = "https://ciir.cs.umass.edu/downloads/LaMP/"
FOLDERS = {number: f"LaMP_{number}/dev/" for number in FORMATS} | {2: "LaMP_2/new/dev/"}
FILES = ("dev_questions.json", "dev_outputs.json")
LICENSED = 6
ELSEWHERE = "--data DIR    takes files that were downloaded otherwise"


def lamp_number(name: str) -> int | None:
    """The task that a dataset id names, None of any other dataset."""
    return next((number for number in FORMATS if name == f"lamp/{number}"), None)


def lamp_origins(number: int) -> list[Origin]:
    """The files of a task, here or not. Raises UsageError for the one that cannot be fetched."""
    if number == LICENSED:
        raise UsageError(
            "the e-mails of lamp/6 are those of the Avocado collection (LDC2015T03), which the Linguistic Data "
            "Consortium licenses.",
            "with it LaMP's own program (the folder avocado of github.com/LaMP-Benchmark/LaMP) makes the files; then "
            "--data DIR",
        )
    folder = Lamp(number).folder
    return [
        Origin(name, folder / name, f"{PUBLISHED}{FOLDERS[number]}{name}", elsewhere=ELSEWHERE)
        for name in FILES
    ]


def fetch_lamp(number: int, progress: DownloadProgress | None = None) -> dict[str, Any]:
    """Gets what is missing of a task, and says what it holds.

    Raises LlmfairError when a connection fails for good or the disk is full, UsageError for files that are no LaMP;
    these are removed, so that the same command begins anew.
    """
    origins = lamp_origins(number)
    with alone_in(origins[0].path.parent):
        for origin in origins:
            download(origin, progress or Silent())
        inputs, outputs = (origin.path for origin in origins)
        try:
            questions = read_task(number, inputs, outputs)
        except UsageError as error:
            for origin in origins:
                origin.path.unlink()
            raise LlmfairError(f"what came is no LaMP: {error.message}", "repeat the command") from None
    return {
        "collection": f"lamp/{number}",
        "queries": len(questions),
        "items": sum(len(question.items) for question in questions),
        "sources": [{"name": of.name, "from": of.url, **_seen(of.path)} for of in origins],
    }


def _seen(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": files.sha256(path)}
