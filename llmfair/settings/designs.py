"""Audits that are planned, calibrated or studied, whatever is audited: what is wanted of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from llmfair.errors import UsageError
from llmfair.settings.audit import AuditSettings
from llmfair.settings.base import WRITTEN, setting

MOST_SPREAD = 3.0
MOST_INJECTED = 6.0  # e^6 is as good as always
OF_RUNS = frozenset({"dry_run", "fresh", "junit", "label", "open", "report"})
"""What only a run that asks something reads."""


@dataclass(frozen=True, kw_only=True)
class CalibrationSettings(AuditSettings):
    """What simulated audits of injected preferences share, whatever the audit."""

    injected: str = setting(
        "-0.5,-0.25,0,0.25,0.5",
        "Injected log pair odds, comma-separated; 0 is always among them.",
        "Statistics",
        result=False,
    )
    runs: int = setting(
        200,
        "Simulated audits of each injected preference.",
        "Statistics",
        result=False,
        least=2,
        most=100_000,
    )
    power: float = setting(
        0.8, "Power with which the smallest effect is to be found.", "Statistics", result=False
    )

    @classmethod
    def idle(cls) -> frozenset[str]:
        return super().idle() | OF_RUNS

    @classmethod
    def giving_way(cls, flags: Set[str], runs: Sequence[Path], output: Path | None) -> frozenset[str]:
        return frozenset({"output", "junit"})  # of audits that ask somebody

    def check(self) -> None:
        super().check()
        injected_of(self.injected)
        if not 0.05 < self.power < 1:
            raise UsageError(f"--power is {self.power}, but lies between 0.05 and 1.", "for example 0.8")
        for flag, named in (("--output names a folder", self.output), ("--junit names a file", self.junit)):
            if named is not None:
                raise UsageError(f"calibrate writes no files, but {flag}.", "use --json > FILE")
        if getattr(self, "sequential", False):
            raise UsageError(
                "calibrate simulates audits that ask all their questions, but --sequential stops early.",
                "leave --sequential out",
            )


@dataclass(frozen=True, kw_only=True)
class PlanningSettings(AuditSettings):
    """What plans share, whatever the audit: the power wanted, and how long a call takes."""

    power: float = setting(0.8, "Power with which an effect is to be found.", "Statistics", result=False)
    latency: float = setting(1.0, "Seconds a call takes.", "Spending", result=False, least=0)

    @classmethod
    def idle(cls) -> frozenset[str]:
        return super().idle() | OF_RUNS

    def check(self) -> None:
        super().check()
        if not 0.05 < self.power < 1:
            raise UsageError(
                f"--power is {self.power}, but lies between 0.05, the chance of a false positive, and 1.",
                "for example 0.8",
            )


@dataclass(frozen=True, kw_only=True)
class StudySettings(AuditSettings):
    """What studies share, whatever the audits.

    `varied` are settings in which the audits differ, each with what to say instead of it: named as flags they are
    refused, and what a file or variable has for other commands gives way.
    """

    varied: ClassVar[Mapping[str, str]] = {}
    makes_runs = False
    output: Path | None = setting(
        None,
        "Folder for study.json and study.csv.",
        "Output",
        flags=("-o",),
        result=False,
        effect=WRITTEN,
    )

    @classmethod
    def make(cls, preset: str | None = None, **given: Any) -> Self:
        return super().make(preset, **{name: given[name] for name in given if name not in cls.varied})


def injected_of(text: str) -> tuple[float, ...]:
    """Log pair odds such as `-0.5,0.5`, rising and with 0 among them. Raises UsageError."""
    try:
        betas = {float(part) for part in text.split(",")}
    except ValueError:
        betas = {math.nan}
    if not all(abs(beta) <= MOST_INJECTED for beta in betas):
        raise UsageError(
            f"--injected '{text}' is no list of log odds from -{MOST_INJECTED:g} to {MOST_INJECTED:g}.",
            "numbers with commas between: -0.5,-0.25,0.25",
        )
    return tuple(sorted({0.0, *betas}))
