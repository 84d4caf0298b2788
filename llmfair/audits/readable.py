"""Conclusions on answers too many of which cannot be read: there are none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from llmfair.results import AnswerCounts, Finding

UNPARSEABLE = "too_many_unparseable"
EQUAL_SCORES = "equal_scores"
"""All scores of every list or pair are equal."""
F = TypeVar("F", bound=Finding)


def as_readable(
    findings: Mapping[str, F], answers: Mapping[str, AnswerCounts], limit: float | None
) -> dict[str, F]:
    """The findings, nothing concluded of a condition of whose answers a larger share than the limit is unparseable."""
    return {
        name: one.barred(UNPARSEABLE)
        if name in answers and answers[name].too_many_unparseable(limit)
        else one
        for name, one in findings.items()
    }
