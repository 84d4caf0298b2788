"""Everything a user can set, once: name, default, what it means, and whether it can change a result.

The command line, the environment, `llmfair.toml` and the Python API all read these dataclasses, so a setting is
spelled, documented and checked the same everywhere. Precedence: defaults < llmfair.toml < LLMFAIR_* < flags.
"""

from __future__ import annotations

from llmfair.settings.asking import MOST_REPEATS, Asking
from llmfair.settings.audit import (
    STOPPING_AT_ONCE,
    AuditSettings,
    CalibrationSettings,
    ListSettings,
    PlanningSettings,
    StudySettings,
    check_stopping,
    injected_of,
)
from llmfair.settings.base import CommandSettings, MeasureSettings, PromptSettings
from llmfair.settings.declaration import (
    DATA,
    MODEL,
    MOST_NUMBERED,
    MOST_SEED,
    OUTPUT,
    PROMPT,
    SAMPLING,
    SPENDING,
    STATISTICS,
    Form,
    band_of,
    default_of,
    named,
    seconds,
    setting,
    value_of,
)
from llmfair.settings.rankings import (
    RERANK_FORMS,
    SCORE_FORMS,
    JudgedSettings,
    MitigateSettings,
    RerankSettings,
    ScoreSettings,
)
from llmfair.settings.tuning import FinetuneSettings

__all__ = [
    "DATA",
    "MODEL",
    "MOST_NUMBERED",
    "MOST_REPEATS",
    "MOST_SEED",
    "OUTPUT",
    "PROMPT",
    "RERANK_FORMS",
    "SAMPLING",
    "SCORE_FORMS",
    "SPENDING",
    "STATISTICS",
    "STOPPING_AT_ONCE",
    "Asking",
    "AuditSettings",
    "CalibrationSettings",
    "CommandSettings",
    "FinetuneSettings",
    "Form",
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
    "named",
    "seconds",
    "setting",
    "value_of",
]
