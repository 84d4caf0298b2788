"""What all audits share: which lists are asked about, who answers, what is measured, and where the run goes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from llmfair.errors import UsageError
from llmfair.settings.asking import Asking
from llmfair.settings.base import WRITTEN, MeasureSettings, Settings, setting
from llmfair.settings.lists import ListSettings


@dataclass(frozen=True, kw_only=True)
class RunFolder(Settings):
    """Where a run goes, and what is written there."""

    output: Path | None = setting(
        None,
        "Run folder (default: below --runs-dir, named by the settings).",
        "Output",
        flags=("-o",),
        result=False,
        effect=WRITTEN,
    )
    runs_dir: Path = setting(
        Path("runs"),
        "Where run folders go that --output does not name.",
        "Output",
        result=False,
        advanced=True,
        effect=WRITTEN,
    )
    label: str | None = setting(
        None, "What tables, reports, lists and comparisons call the run.", "Output", result=False
    )
    report: bool = setting(True, "Write report.html into the run folder.", "Output", result=False)
    open: bool = setting(False, "Open the report in the browser.", "Output", result=False, advanced=True)
    fresh: bool = setting(
        False,
        "Set the run's answers aside; with --no-cache all is asked again.",
        "Output",
        result=False,
        advanced=True,
    )


@dataclass(frozen=True, kw_only=True)
class AuditSettings(RunFolder, Asking, ListSettings, MeasureSettings):
    """The settings of every audit; a kind adds its own."""

    makes_runs = True
    permutations: int = setting(
        9999,
        "Shuffles of the test over lists; 0: its closed form alone.",
        "Statistics",
        result=False,
        advanced=True,
        least=0,
        most=100_000,
    )
    max_invalid: float = setting(
        0.05,
        "Largest share of unparseable answers in any condition before exit 4.",
        "Statistics",
        result=False,
        advanced=True,
    )

    def each(self) -> list[Self]:
        """The settings of single runs, where a setting names several."""
        return [self]

    def called(self, model: str, among: Self) -> str:
        """What a run of a model is called among those of settings that name several."""
        return model

    @classmethod
    def idle(cls) -> frozenset[str]:
        return super().idle() | {"permutations"}  # a kind that shuffles takes it out

    def asked_with(self) -> Collection[str]:
        """The settings of asking that advice may name, if who is asked has a use for them: those that count here."""
        return ("input", "prompt", "thinking", "max_tokens", "constrain")

    def ways(self) -> Mapping[str, Mapping[str, Any]]:
        """By the reason that bars a conclusion, the settings that mend it, beside those of all audits."""
        return {}

    def check(self) -> None:
        super().check()
        if not 0 <= self.max_invalid <= 1:
            raise UsageError(f"--max-invalid is {self.max_invalid}, but is a share of 1.", "for example 0.05")


STOPPING_AT_ONCE = 10
"""Workers of an audit that stops when it is settled, if none are named: what is under way then was asked in vain.
They keep twice as many questions begun, and before 20 nothing is settled."""


def check_stopping(settings: AuditSettings, on_bad_answer: str) -> None:
    """Raises UsageError for what an audit cannot have that stops as soon as it is settled."""
    if settings.batch:
        raise UsageError(
            "--sequential stops between questions, but --batch asks all at once.", "leave one of them out"
        )
    if on_bad_answer == "fail":
        raise UsageError(
            "--on-bad-answer fail leaves gaps that --sequential cannot pass.",
            "repair counts unparseable answers and goes on",
        )
