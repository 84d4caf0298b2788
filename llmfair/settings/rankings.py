"""Settings of what reads rankings that exist: `llmfair score`, `llmfair rerank` and `llmfair mitigate`."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from llmfair.errors import UsageError
from llmfair.settings.asking import SpendingSettings
from llmfair.settings.base import CommandSettings, MeasureSettings
from llmfair.settings.declaration import DATA, MODEL, OUTPUT, SENT, STATISTICS, WRITTEN

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

    columns: str | None = DATA(
        None, "Of a table as dataset, what its columns are called: doc_id=id,gender=sex.", advanced=True
    )
    qrels: Path | None = DATA(None, "TREC qrels, instead of a dataset.")
    groups: Path | None = DATA(
        None, "Lines of doc_id, attribute, group, separated by tabs; goes with --qrels."
    )
    attributes: Path | None = DATA(
        None,
        "Which groups are protected, which the reference, in a file as llmfair datasets attributes prints it.",
    )

    @classmethod
    def giving_way(cls, flags: Set[str], runs: Sequence[Path], output: Path | None) -> frozenset[str]:
        others = OF_FILES if flags & OF_DATASET else OF_DATASET if flags & OF_FILES else frozenset()
        return super().giving_way(flags, runs, output) | others


@dataclass(frozen=True, kw_only=True)
class ScoreSettings(JudgedSettings, MeasureSettings):
    """What is measured of rankings that exist."""

    report: bool = OUTPUT(True, "Write report.html into the --output folder.")
    open: bool = OUTPUT(False, "Open the report in the browser.")
    per_query: bool = OUTPUT(False, "Every query's values as tab-separated rows, then those of all.")

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

    query_text: Literal["keywords", "title"] = DATA(
        "keywords",
        "What rankers read of a topic: its keywords, where it has any (keywords.jsonl), or its title.",
        result=False,
    )

    output: Path | None = OUTPUT(
        None,
        "The new run, or of several runs the folder of the new ones; a name that ends in .gz is packed.",
        short="-o",
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


@dataclass(frozen=True, kw_only=True)
class MitigateSettings(SpendingSettings, CommandSettings):
    """Which remedies are held against a run, and for how much; data, model and prompt are those of the run."""

    remedy: tuple[str, ...] = DATA(
        (),
        "A remedy, with parameters as in fair-star:p=0.4,alpha=0.1; repeatable (default: all).",
        result=False,
    )
    free: bool = DATA(False, "Only remedies that ask no model.", result=False)
    condition: str | None = DATA(
        None, "The prompt of the run that is mitigated (default: neutral).", result=False
    )
    adapter: Path | None = MODEL(
        None,
        "Folder of a LoRA adapter for the run's model (default: those trained beside the run).",
        result=False,
        advanced=False,
    )
    extra: tuple[str, ...] = MODEL(
        (),
        "An --extra of the run whose value is secret, so that no run folder keeps it; repeatable.",
        result=False,
    )
    base_url: tuple[str, ...] = MODEL(
        (),
        "A --base-url of the run with the password or key in it that no run folder keeps; repeatable.",
        effect=SENT,
        result=False,
    )
    margin: float = STATISTICS(0.02, "Loss of nDCG that still counts as none.", least=0, below=1)
    report: bool = OUTPUT(True, "Write report.html beside the results.")
    open: bool = OUTPUT(False, "Open the report in the browser.", advanced=True)
    output: Path | None = OUTPUT(
        None,
        "Folder of the results and of the new rankings (default: mitigation, in the run's folder).",
        short="-o",
        effect=WRITTEN,
    )

    @classmethod
    def idle(cls) -> frozenset[str]:
        return super().idle() | {"dataset", "attribute", "mixed", "band", "level"}  # the run's own
