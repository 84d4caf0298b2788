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
from llmfair.settings.commands import (
    RERANK_FORMS,
    SCORE_FORMS,
    FinetuneSettings,
    JudgementSettings,
    MitigateSettings,
    RerankSettings,
    ScoreSettings,
)
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
    CommandSettings,
    Form,
    MeasureSettings,
    PromptSettings,
    band_of,
    default_of,
    named,
    seconds,
    setting,
    value_of,
)
