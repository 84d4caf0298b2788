"""Audits by every strategy whose answers a model is held to, and what these answers look like then."""

from __future__ import annotations

import json
import re

from tests.cli.command import Outcome, only_run

_ORDER = r"\[\d+\](?: > \[\d+\])*"
ANSWERS = {
    "windows": _ORDER,
    "pointwise": "Yes|No",
    "setwise:k=4": "[A-D]",
    "pairwise-sort:k=4": "[AB]",
    "pairwise-sort:method=allpairs": "[AB]",
    "first": "[A-F]",
    "tournament:group=6,best=3": _ORDER,
}
"""The form of an answer, by strategy."""


def asked_by(strategy: str) -> list[str]:
    """Flags of an audit of small lists whose answers are read as text, but for `first`, which reads none."""
    return [
        "--strategy", strategy, "--constrain", "--answers", "margin" if strategy == "first" else "text",
        "--window", "6", "--step", "3", "--passes", "1", "--orders", "1", "--no-repeat", "--conditions", "neutral",
        "--temperature", "1", "--max-invalid", "1",
    ]  # fmt: skip


def texts() -> list[str]:
    """What was answered in the only run."""
    rows = (json.loads(line) for line in (only_run() / "journal.jsonl").read_text().splitlines()[1:])
    return [row["text"] for row in rows]


def require_held(found: Outcome, strategy: str) -> None:
    """Every answer could be read as it stands; of orders not all are one."""
    (answers,) = found.json["answers"].values()
    assert answers["classes"] == {"ok": answers["windows"]}, answers
    if strategy != "first":  # one token of whatever the model says: its labels alone are read
        said = texts()
        assert len(said) <= answers["windows"]  # a heap may compare two items again, which is no new question
        assert len({*said}) > (ANSWERS[strategy] == _ORDER)
        assert all(re.fullmatch(ANSWERS[strategy], text) for text in said), said
