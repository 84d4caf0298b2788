"""Settings of what reads run files: `llmfair score` and `llmfair rerank`."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from llmfair.errors import UsageError
from llmfair.settings.base import WRITTEN, CommandSettings, MeasureSettings, setting

LOG = ".jsonl"
"""How a log ends of what a generator was shown and said: like a run folder it brings its judgements."""
OF_DATASET, OF_FILES = frozenset({"dataset", "columns"}), frozenset({"qrels", "groups", "attributes"})
"""The two ways to say what is relevant, and who is in which group."""
SCORE_FORMS = "llmfair score RUN --qrels FILE --groups FILE, or llmfair score RUN -d DATASET"
RERANK_FORMS = (
    "llmfair rerank RUN --with fair-star -d DATASET -o NEW.run, or with --groups FILE in place of -d"
)


@dataclass(frozen=True, kw_only=True)
class JudgedSettings(CommandSettings):
    """Rankings that exist: where their judgements and groups are."""

    columns: str | None = setting(
        None,
        "Of a table as dataset, what its columns are called: doc_id=id,gender=sex.",
        "Data",
        advanced=True,
    )
    qrels: Path | None = setting(None, "TREC qrels, instead of a dataset.", "Data")
    groups: Path | None = setting(
        None, "Lines of doc_id, attribute, group, separated by tabs; goes with --qrels.", "Data"
    )
    attributes: Path | None = setting(
        None,
        "Which groups are protected, which the reference, in a file as llmfair datasets attributes prints it.",
        "Data",
    )

    @classmethod
    def giving_way(cls, flags: Set[str], runs: Sequence[Path], output: Path | None) -> frozenset[str]:
        others = OF_FILES if flags & OF_DATASET else OF_DATASET if flags & OF_FILES else frozenset()
        return super().giving_way(flags, runs, output) | others


@dataclass(frozen=True, kw_only=True)
class ScoreSettings(JudgedSettings, MeasureSettings):
    """What is measured of rankings that exist."""

    report: bool = setting(True, "Write report.html into the --output folder.", "Output", result=False)
    open: bool = setting(False, "Open the report in the browser.", "Output", result=False)
    per_query: bool = setting(
        False, "Every query's values as tab-separated rows, then those of all.", "Output", result=False
    )

    @classmethod
    def giving_way(cls, flags: Set[str], runs: Sequence[Path], output: Path | None) -> frozenset[str]:
        brought = OF_DATASET | OF_FILES | {"attribute", "mixed"}
        bring = all(run.is_dir() or run.suffix == LOG for run in runs)
        return super().giving_way(flags, runs, output) | (brought if bring else frozenset())

    def check(self) -> None:
        super().check()
        if (self.qrels is None) != (self.groups is None):
            raise UsageError("--qrels and --groups go together.", SCORE_FORMS)
        if self.dataset is not None and self.qrels is not None:
            raise UsageError("--dataset and --qrels both say what is relevant.", SCORE_FORMS)
        if self.dataset is not None and self.attributes is not None:
            raise UsageError("--attributes explains --groups; a dataset has its own.", SCORE_FORMS)


@dataclass(frozen=True, kw_only=True)
class RerankSettings(JudgedSettings):
    """Rankings that exist, to be ordered anew: where groups and texts are, and where the new ones go."""

    query_text: Literal["keywords", "title"] = setting(
        "keywords",
        "What rankers read of a topic: its keywords, where it has any (keywords.jsonl), or its title.",
        "Data",
        result=False,
    )

    output: Path | None = setting(
        None,
        "The new run, or of several runs the folder of the new ones; a name that ends in .gz is packed.",
        "Output",
        flags=("-o",),
        result=False,
        effect=WRITTEN,
    )

    @classmethod
    def idle(cls) -> frozenset[str]:
        return super().idle() | {"level", "band", "format"}

    def check(self) -> None:
        super().check()
        if self.output is None:
            raise UsageError("--output is missing: where does the new run go?", RERANK_FORMS)
        if self.dataset is None and self.groups is None:
            raise UsageError("who is in which group?", RERANK_FORMS)
        if self.dataset is not None and not (self.qrels is None and self.groups is None):
            raise UsageError("--dataset and --groups both say who is in which group.", RERANK_FORMS)
