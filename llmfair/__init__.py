"""Measures whether a ranker built on a large language model treats groups of items alike.

The names below are loaded when they are first used, so that `import llmfair` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "llmfair.api": (
        "audit_listwise", "audit_pairwise", "calibrate_listwise", "calibrate_pairwise", "compare", "finetune_lora",
        "open_run", "parse_model", "plan_listwise", "plan_pairwise", "schema", "score", "study_windows",
        "write_report",
    ),
    "llmfair.datasets.base": ("load_dataset",),
    "llmfair.errors": (
        "BackendError", "ContextTooLong", "Incomplete", "LlmfairError", "MissingExtra", "MissingKey", "Rejected",
        "RequirementFailed", "RunConflict", "Unavailable", "UsageError",
    ),
    "llmfair.metrics.base": ("measure",),
    "llmfair.metrics.names": ("parse_measure",),
    "llmfair.records": (
        "Attribute", "Candidates", "Cell", "Chat", "Completion", "Document", "Failure", "Finish", "Labels",
        "Measurement", "Message", "Outcome", "PairAnswer", "Permutation", "Probe", "Qrels", "Query", "Ranking",
        "Request", "Run", "Sampling", "Side", "Text", "Verdict",
    ),
    "llmfair.registry": ("register",),
    "llmfair.result": ("Result",),
    "llmfair.steps": ("Steps",),
}  # fmt: skip
"""Where each public name is at home; `__all__` and the imports for type checkers say the same (a test compares)."""
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

if TYPE_CHECKING:
    from llmfair.api import (
        audit_listwise,
        audit_pairwise,
        calibrate_listwise,
        calibrate_pairwise,
        compare,
        finetune_lora,
        open_run,
        parse_model,
        plan_listwise,
        plan_pairwise,
        schema,
        score,
        study_windows,
        write_report,
    )
    from llmfair.datasets.base import load_dataset
    from llmfair.errors import (
        BackendError,
        ContextTooLong,
        Incomplete,
        LlmfairError,
        MissingExtra,
        MissingKey,
        Rejected,
        RequirementFailed,
        RunConflict,
        Unavailable,
        UsageError,
    )
    from llmfair.metrics.base import measure
    from llmfair.metrics.names import parse_measure
    from llmfair.records import (
        Attribute,
        Candidates,
        Cell,
        Chat,
        Completion,
        Document,
        Failure,
        Finish,
        Labels,
        Measurement,
        Message,
        Outcome,
        PairAnswer,
        Permutation,
        Probe,
        Qrels,
        Query,
        Ranking,
        Request,
        Run,
        Sampling,
        Side,
        Text,
        Verdict,
    )
    from llmfair.registry import register
    from llmfair.result import Result
    from llmfair.steps import Steps
else:

    def __getattr__(name: str) -> Any:
        if name not in _HOME_OF:
            raise AttributeError(f"module 'llmfair' has no attribute {name!r}")
        found = getattr(import_module(_HOME_OF[name]), name)
        globals()[name] = found
        return found


__all__ = [
    "Attribute", "BackendError", "Candidates", "Cell", "Chat", "Completion", "ContextTooLong", "Document", "Failure",
    "Finish", "Incomplete", "Labels", "LlmfairError", "Measurement", "Message", "MissingExtra", "MissingKey",
    "Outcome", "PairAnswer", "Permutation", "Probe", "Qrels", "Query", "Ranking", "Rejected", "Request",
    "RequirementFailed", "Result", "Run", "RunConflict", "Sampling", "Side", "Steps", "Text", "Unavailable",
    "UsageError", "Verdict", "__version__", "audit_listwise", "audit_pairwise", "calibrate_listwise",
    "calibrate_pairwise", "compare", "finetune_lora", "load_dataset", "measure", "open_run", "parse_measure",
    "parse_model", "plan_listwise", "plan_pairwise", "register", "schema", "score", "study_windows", "write_report",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
