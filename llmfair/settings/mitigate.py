"""Settings of `llmfair mitigate`: remedies for a finished run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from llmfair.errors import UsageError
from llmfair.settings.asking import SpendingSettings
from llmfair.settings.base import SENT, WRITTEN, CommandSettings, setting


@dataclass(frozen=True, kw_only=True)
class MitigateSettings(SpendingSettings, CommandSettings):
    """Which remedies are held against a run, and for how much; data, model and prompt are those of the run."""

    remedy: tuple[str, ...] = setting(
        (),
        "A remedy, with parameters as in fair-star:p=0.4,alpha=0.1; repeatable (default: all).",
        "Data",
        result=False,
    )
    free: bool = setting(False, "Only remedies that ask no model.", "Data", result=False)
    condition: str | None = setting(
        None,
        "The prompt of the run that is mitigated (default: neutral).",
        "Data",
        result=False,
    )
    adapter: Path | None = setting(
        None,
        "Folder of a LoRA adapter for the run's model (default: those trained beside the run).",
        "Model",
        result=False,
    )
    extra: tuple[str, ...] = setting(
        (),
        "An --extra of the run whose value is secret, so that no run folder keeps it; repeatable.",
        "Model",
        result=False,
        advanced=True,
    )
    base_url: tuple[str, ...] = setting(
        (),
        "A --base-url of the run with the password or key in it that no run folder keeps; repeatable.",
        "Model",
        result=False,
        advanced=True,
        effect=SENT,
    )
    margin: float = setting(
        0.02, "Loss of nDCG that still counts as none.", "Statistics", result=False, least=0
    )
    report: bool = setting(True, "Write report.html beside the results.", "Output", result=False)
    open: bool = setting(False, "Open the report in the browser.", "Output", result=False, advanced=True)
    output: Path | None = setting(
        None,
        "Folder of the results and of the new rankings (default: mitigation, in the run's folder).",
        "Output",
        flags=("-o",),
        result=False,
        effect=WRITTEN,
    )

    @classmethod
    def idle(cls) -> frozenset[str]:
        return super().idle() | {"dataset", "attribute", "mixed", "band", "level"}  # the run's own

    def check(self) -> None:
        super().check()
        if self.margin >= 1:
            raise UsageError(f"--margin is {self.margin}, but nDCG lies from 0 to 1.", "for example 0.02")
