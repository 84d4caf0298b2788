"""Settings of `llmfair score`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from llmfair.errors import UsageError
from llmfair.settings.base import MeasureSettings, setting

SCORE_FORMS = "llmfair score RUN --qrels FILE --groups FILE, or llmfair score RUN -d DATASET"


@dataclass(frozen=True, kw_only=True)
class ScoreSettings(MeasureSettings):
    """Rankings that exist: where their judgements and groups are."""

    qrels: Path | None = setting(None, "TREC qrels, instead of a dataset.", "Data")
    groups: Path | None = setting(
        None, "Lines of doc_id, attribute, group, separated by tabs; goes with --qrels.", "Data"
    )
    attributes: Path | None = setting(
        None,
        "Which groups are protected, which the reference, in a file as llmfair datasets attributes prints it.",
        "Data",
    )
    report: bool = setting(True, "Write report.html into the --output folder.", "Output", result=False)
    open: bool = setting(False, "Open the report in the browser.", "Output", result=False)
    per_query: bool = setting(
        False, "Every query's values as tab-separated rows, then those of all.", "Output", result=False
    )

    def check(self) -> None:
        super().check()
        if (self.qrels is None) != (self.groups is None):
            raise UsageError("--qrels and --groups go together.", SCORE_FORMS)
        if self.dataset is not None and self.qrels is not None:
            raise UsageError("--dataset and --qrels both say what is relevant.", SCORE_FORMS)
        if self.dataset is not None and self.attributes is not None:
            raise UsageError("--attributes explains --groups; a dataset has its own.", SCORE_FORMS)
