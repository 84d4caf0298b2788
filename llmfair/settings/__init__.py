"""Everything a user can set, once: name, default, what it means, and whether it can change a result.

The command line, the environment, `llmfair.toml` and the Python API all read these dataclasses, so a setting is
spelled, documented and checked the same everywhere. Precedence: defaults < llmfair.toml < LLMFAIR_* < flags.
"""

from __future__ import annotations

from llmfair.settings.asking import MOST_REPEATS, Asking
from llmfair.settings.audit import STOPPING_AT_ONCE, AuditSettings, check_stopping
from llmfair.settings.base import (
    MOST_NUMBERED,
    MOST_SEED,
    CommandSettings,
    MeasureSettings,
    PromptSettings,
    band_of,
    default_of,
    seconds,
    setting,
)
from llmfair.settings.designs import CalibrationSettings, PlanningSettings, StudySettings, injected_of
from llmfair.settings.lists import ListSettings
from llmfair.settings.mitigate import MitigateSettings
from llmfair.settings.score import RERANK_FORMS, SCORE_FORMS, JudgedSettings, RerankSettings, ScoreSettings
from llmfair.settings.tuning import FinetuneSettings

__all__ = [
    "MOST_NUMBERED",
    "MOST_REPEATS",
    "MOST_SEED",
    "RERANK_FORMS",
    "SCORE_FORMS",
    "STOPPING_AT_ONCE",
    "Asking",
    "AuditSettings",
    "CalibrationSettings",
    "CommandSettings",
    "FinetuneSettings",
    "JudgedSettings",
    "ListSettings",
    "MeasureSettings",
    "MitigateSettings",
    "PlanningSettings",
    "PromptSettings",
    "RerankSettings",
    "ScoreSettings",
    "StudySettings",
    "band_of",
    "check_stopping",
    "default_of",
    "injected_of",
    "seconds",
    "setting",
]
