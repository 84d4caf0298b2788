"""Audits that are planned, calibrated or swept: their own settings, and what is wanted of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from llmfair.errors import UsageError
from llmfair.settings.asking import AuditSettings
from llmfair.settings.audits import ListwiseSettings, PairwiseSettings
from llmfair.settings.base import WIDEST_BAND, at_least, setting

MOST_SPREAD = 3.0
MOST_PLANTED = 6.0  # there the curve of implied pair odds ends
OF_RUNS = frozenset({"dry_run", "fresh", "open", "report"})
"""What only a run that asks something reads."""


@dataclass(frozen=True, kw_only=True)
class Calibrated(AuditSettings):
    """What simulated audits of planted preferences share, whatever the audit."""

    planted: str = setting(
        "-0.5,-0.25,0,0.25,0.5",
        "Planted log pair odds, comma-separated; 0 is always among them.",
        "Statistics",
        result=False,
    )
    runs: int = setting(200, "Simulated audits of each planted preference.", "Statistics", result=False)
    power: float = setting(
        0.8, "Power with which the smallest effect is to be found.", "Statistics", result=False
    )

    @classmethod
    def idle(cls) -> frozenset[str]:
        return super().idle() | OF_RUNS

    def check(self) -> None:
        super().check()
        planted_of(self.planted)
        if self.runs < 2:
            raise UsageError(f"--runs is {self.runs}, but is at least 2.", "for example --runs 200")
        if not 0.05 < self.power < 1:
            raise UsageError(f"--power is {self.power}, but lies between 0.05 and 1.", "for example 0.8")
        if self.output is not None:
            raise UsageError("calibrate writes no files, but --output names a folder.", "use --json > FILE")


@dataclass(frozen=True, kw_only=True)
class CalibrateSettings(Calibrated, ListwiseSettings):
    """The listwise audit, simulated with planted preferences."""

    relevance: float = setting(
        2.0,
        "Planted log-weight of each grade of relevance, beside the preference.",
        "Statistics",
        result=False,
    )

    def check(self) -> None:
        super().check()
        if not math.isfinite(self.relevance):
            raise UsageError(f"--relevance is {self.relevance}, but is a log-weight.", "for example 2")
        if self.initial != "random":
            raise UsageError(
                f"calibrate draws random initial orders, but --initial is {self.initial}.",
                "only random orders allow a conclusion: leave --initial out",
            )


@dataclass(frozen=True, kw_only=True)
class CalibratePairwiseSettings(Calibrated, PairwiseSettings):
    """The pairwise audit, simulated: P(protected wins) = σ(planted + b ± position), b drawn for each query."""

    planted: str = setting(
        "-0.3,-0.1,0,0.1,0.3",
        "Planted log pair odds, comma-separated; 0 is always among them.",
        "Statistics",
        result=False,
    )
    position: float = setting(
        0.5, "Planted log odds of the item shown first, beside the preference.", "Statistics", result=False
    )
    query_sd: float = setting(
        0.3,
        "Standard deviation over queries of the planted log pair odds.",
        "Statistics",
        result=False,
    )
    malformed: float = setting(0.0, "Share of answers that cannot be read.", "Statistics", result=False)

    def check(self) -> None:
        super().check()
        if not abs(self.position) <= MOST_PLANTED:
            raise UsageError(
                f"--position is {self.position}, but is log odds from -{MOST_PLANTED:g} to {MOST_PLANTED:g}.",
                "for example 0.5",
            )
        if not 0 <= self.query_sd <= MOST_SPREAD:
            raise UsageError(
                f"--query-sd is {self.query_sd}, but is a standard deviation of at most {MOST_SPREAD:g}.",
                "for example 0.3",
            )
        if not 0 <= self.malformed < 1:
            raise UsageError(f"--malformed is {self.malformed}, but is a share below 1.", "for example 0.05")
        if self.sequential:
            raise UsageError(
                "calibrate simulates audits that ask all their pairs, but --sequential stops early.",
                "leave --sequential out",
            )


@dataclass(frozen=True, kw_only=True)
class Planned(AuditSettings):
    """What plans share, whatever the audit: the power wanted, and how long a call takes."""

    power: float = setting(0.8, "Power with which an effect is to be found.", "Statistics", result=False)
    latency: float = setting(1.0, "Seconds a call takes.", "Spending", result=False)

    @classmethod
    def idle(cls) -> frozenset[str]:
        return super().idle() | OF_RUNS

    def check(self) -> None:
        super().check()
        at_least(self, {"latency": 0})
        if not 0.05 < self.power < 1:
            raise UsageError(
                f"--power is {self.power}, but lies between 0.05, the chance of a false alarm, and 1.",
                "for example 0.8",
            )


@dataclass(frozen=True, kw_only=True)
class PlanSettings(Planned, ListwiseSettings):
    """A listwise audit that is planned."""

    ratio: float | None = setting(
        None,
        "Exposure ratio to be found (default: what pair odds of 0.8 of a useful ranker show on these lists).",
        "Statistics",
        result=False,
    )
    tau: float = setting(
        0.0, "Standard deviation over queries of the true ln ExpRatio.", "Statistics", result=False
    )

    def check(self) -> None:
        super().check()
        at_least(self, {"tau": 0})
        if self.tau > MOST_SPREAD:
            raise UsageError(
                f"--tau is {self.tau}, but a standard deviation of logarithms is at most {MOST_SPREAD:g} here.",
                "for example 0.1",
            )
        if self.ratio is not None and not (0 < self.ratio < math.inf and self.ratio != 1):
            raise UsageError(
                f"--ratio is {self.ratio}, but must be positive and other than 1, which is parity.",
                "for example --ratio 0.95",
            )


@dataclass(frozen=True, kw_only=True)
class PlanPairwiseSettings(Planned, PairwiseSettings):
    """A pairwise audit that is planned, with what is expected of its answers."""

    ratio: float = setting(0.8, "Position-adjusted odds to be found.", "Statistics", result=False)
    icc: float = setting(
        0.05, "Expected intraclass correlation of a query's pairs.", "Statistics", result=False
    )
    consistent: float = setting(
        0.5, "Expected share of pairs that do not flip with the order.", "Statistics", result=False
    )

    def check(self) -> None:
        super().check()
        low, high = WIDEST_BAND
        if not (low <= self.ratio <= high and self.ratio != 1):
            raise UsageError(
                f"--ratio is {self.ratio}, but must be odds from {low} to {high:g} other than 1, which is parity.",
                "for example --ratio 0.8",
            )
        if not 0 <= self.icc <= 1:
            raise UsageError(f"--icc is {self.icc}, but lies from 0 to 1.", "for example 0.05")
        if not 0 < self.consistent <= 1:
            raise UsageError(f"--consistent is {self.consistent}, but is a share above 0.", "for example 0.5")


@dataclass(frozen=True, kw_only=True)
class StudySettings(ListwiseSettings):
    """The windows study: listwise audits that differ in windows, step and passes alone."""

    settings: str = setting(
        "5/1,10/5,10/3,20/10",
        "WINDOW/STEP of each run, or WINDOW/STEPxPASSES; comma-separated.",
        "Prompt",
        result=False,
    )
    # Wang et al. 2024, Table 2: the neutral prompt, once, in one pass
    variants: str | None = setting("neutral", "Prompt variants, comma-separated.", "Prompt", result=False)
    passes: int = setting(1, "Passes over the list, as in the paper's Table 2.", "Prompt")
    control: bool = setting(
        False, "Ask the neutral prompt twice: how much the same question differs.", "Prompt"
    )
    window: int = setting(20, "Not here: --settings names windows.", "Prompt")
    step: int = setting(10, "Not here: --settings names steps.", "Prompt")
    output: Path | None = setting(
        None, "Folder for study.json and study.csv.", "Output", flags=("-o",), result=False
    )

    @classmethod
    def make(cls, preset: str | None = None, **given: Any) -> Self:
        """A window and a step that a file or variable has for other commands give way to `settings`."""
        return super().make(preset, **{k: v for k, v in given.items() if k not in ("window", "step")})


def planted_of(text: str) -> tuple[float, ...]:
    """Log pair odds such as `-0.5,0.5`, rising and with 0 among them. Raises UsageError."""
    try:
        betas = {float(part) for part in text.split(",")}
    except ValueError:
        betas = {math.nan}
    if not all(abs(beta) <= MOST_PLANTED for beta in betas):
        raise UsageError(
            f"--planted '{text}' is no list of log odds from -{MOST_PLANTED:g} to {MOST_PLANTED:g}.",
            "numbers with commas between: -0.5,-0.25,0.25",
        )
    return tuple(sorted({0.0, *betas}))
