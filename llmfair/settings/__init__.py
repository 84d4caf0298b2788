"""Everything a user can set, once: name, default, what it means, and whether it can change a result.

The command line, the environment, `llmfair.toml` and the Python API all read these dataclasses, so a setting is
spelled, documented and checked the same everywhere. Precedence: defaults < llmfair.toml < LLMFAIR_* < flags.
"""

from __future__ import annotations

from collections.abc import Mapping

from llmfair.settings.asking import AuditSettings
from llmfair.settings.audits import ListwiseSettings, PairwiseSettings
from llmfair.settings.base import (
    CommandSettings,
    ListSettings,
    MeasureSettings,
    band_of,
    default_of,
    seconds,
    setting,
)
from llmfair.settings.designs import (
    CalibratePairwiseSettings,
    CalibrateSettings,
    PlanPairwiseSettings,
    PlanSettings,
    StudySettings,
    planted_of,
)
from llmfair.settings.score import SCORE_FORMS, ScoreSettings
from llmfair.settings.tuning import FinetuneSettings

__all__ = [
    "SCORE_FORMS",
    "SETTINGS",
    "AuditSettings",
    "CalibratePairwiseSettings",
    "CalibrateSettings",
    "CommandSettings",
    "FinetuneSettings",
    "ListSettings",
    "ListwiseSettings",
    "MeasureSettings",
    "PairwiseSettings",
    "PlanPairwiseSettings",
    "PlanSettings",
    "ScoreSettings",
    "StudySettings",
    "band_of",
    "default_of",
    "planted_of",
    "seconds",
    "setting",
]

SETTINGS: Mapping[str, tuple[type[CommandSettings], ...]] = {
    "listwise": (ListwiseSettings,),
    "pairwise": (PairwiseSettings,),
    "score": (ScoreSettings,),
    "plan": (PlanSettings, PlanPairwiseSettings),
    "calibrate": (CalibrateSettings, CalibratePairwiseSettings),
    "study": (StudySettings,),
    "finetune-lora": (FinetuneSettings,),
}
"""The commands that have settings, those of their subcommands together, as `[command]` tables name them."""
