"""Run folders for reports, each made once: of every kind, whole and broken off, with hostile titles."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cli.command import llmfair
from tests.folders import balanced, write, write_folder

EVIL = "</script><img src=x onerror=alert(1)>"
TOPIC = "<b>bold</b> & {{ braces }} $x$"
BIASED = "fake:biased,malformed=0.05"
AUDITS: Mapping[str, tuple[tuple[str, ...], int]] = {
    "listwise": (("listwise", "--passes", "1", "-m", BIASED), 0),
    "no-model": (("listwise", "-m", "bm25"), 0),
    "given": (("listwise", "--initial", "given", "--orders", "1", "--passes", "1"), 0),
    "pairwise": (("pairwise", "--pairs", "20", "-m", BIASED), 0),
    "strong": (("pairwise", "--pairs", "20", "-m", "fake:biased,pairwise=-4,position=4"), 0),
    "sequential": (("pairwise", "--sequential", "--max-pairs", "60"), 0),
    "none-readable": (("pairwise", "--pairs", "5", "-m", "fake:biased,malformed=1"), 0),
    "stopped": (("pairwise", "--pairs", "20", "--max-calls", "30"), 3),
}
"""Audits by name, with the exit code that each has."""


def lists(folder: Path) -> Path:
    """A data set whose titles and topics are hostile; bm25 finds items of one."""
    made = balanced(8, 8, 8)
    titles = {"q0f0": EVIL, "q1m1": "a & b \"quoted\" 'twice' <i>", "q2f2": "日本語 $math$ \\n"}
    return write_folder(folder / "lists", made, titles, {"q0": TOPIC, "q1": "Title q1"})


def hostile_questions(path: Path) -> Path:
    """Questions, items and labels of markup, templates and words without a space."""
    evil, text = (
        "</script><img/src=x/onerror=alert(1)>",
        "<b>bold</b> </s> {{ braces }} {items} <|im_end|> $x$",
    )
    asked = [
        {
            "id": f"<i>q{n}" + "x" * 120 * (n == 1), "input": f"{text} {n} {'W' * 300 * (n == 2)}", "gold": evil,
            "items": [
                {"id": f"<script>{n}{m}", "title": text + "W" * 300 * (m == 3), "text": f"{text} {m}", "label": label}
                for m, label in enumerate((text, evil) * 4)
            ],
        }
        for n in range(6)
    ]  # fmt: skip
    write(path, map(json.dumps, asked))
    return path


def run(folder: Path, name: str) -> Path:
    """The run folder of that name below `folder`, made if it is not there; LLMFAIR_REPORT has to ask for reports."""
    path, (arguments, code) = folder / name, AUDITS[name]
    if not path.exists():
        data = folder / "lists"
        if not data.exists():
            lists(folder)
        found = llmfair(*arguments, "-d", data, "-o", path, "-q", "--max-invalid", "1")
        assert found.code == code, found.err
        assert (path / "report.html").is_file(), found.err
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(autouse=True)
def reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a module that imports it: audits leave their reports."""
    monkeypatch.setenv("LLMFAIR_REPORT", "1")
