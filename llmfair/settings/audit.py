"""What audits are asked: which lists, of whom, what is measured, where the run goes; and what plans and studies add."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from llmfair.errors import UsageError
from llmfair.settings.asking import Asking
from llmfair.settings.declaration import (
    DATA,
    MOST_NUMBERED,
    MOST_SEED,
    OUTPUT,
    SPENDING,
    STATISTICS,
    WRITTEN,
    CommandSettings,
    Form,
    MeasureSettings,
)

MOST_SPREAD = 3.0
LEAST_POWER = 0.05
"""The chance of a false positive."""
MOST_INJECTED = 6.0  # e^6 is as good as always
OF_RUNS = frozenset({"dry_run", "fresh", "junit", "label", "open", "report"})
"""What only a run that asks something reads."""


@dataclass(frozen=True, kw_only=True)
class ListSettings(CommandSettings):
    """Which lists of items are asked about, and what a model sees of an item."""

    dataset: str = DATA(
        "sample",
        "Dataset id, or your own folder or table (.csv, .tsv, .jsonl, .parquet), hf:ORG/NAME, irds:NAME.",
        short="-d",
        result=False,
    )
    columns: str | None = DATA(
        None, "Of a table, what its columns are called: doc_id=id,gender=sex.", result=False, advanced=True
    )
    attributes: str | None = DATA(
        None,
        "Of a table or irds:NAME, a file that declares its attributes (default: attributes.toml beside it, else the "
        "built-in ones).",
        result=False,
        advanced=True,
    )
    groups: str | None = DATA(
        None,
        "Of irds:NAME, the groups of its documents: lines of doc_id, attribute, group, separated by tabs.",
        result=False,
        advanced=True,
    )
    run: str | None = DATA(
        None,
        "Of irds:NAME, a run whose rankings are the lists (default: the first 100 that BM25 finds).",
        result=False,
        advanced=True,
    )
    limit: int | None = DATA(
        None, "Only the first N queries.", short="-n", least=1, most=MOST_NUMBERED, result=False
    )
    queries: str | None = DATA(
        None,
        "Only these query ids, comma-separated, or @FILE; of trec-fair/2022/eval also official, the 47 topics of "
        "the track's results.",
        result=False,
        advanced=True,
    )
    seed: int = DATA(
        0, "Seed of orders and draws, derived per query.", least=0, most=MOST_SEED, advanced=True
    )
    # What is ranked shows in the lists, and their fingerprint names the run.
    candidates: int | None = DATA(
        None, "Documents in a drawn list (default: 200).", most=100_000, result=False, advanced=True
    )
    buckets: str | None = DATA(
        None,
        "Draw lists: equal (both groups alike in relevance), natural (whatever group), or four counts: unprotected and "
        "protected relevant ones, unprotected and protected others (default: a folder's own lists, else equal).",
        result=False,
        advanced=True,
    )
    relevant: int | None = DATA(
        None, "Relevant documents in a drawn list (default: half).", most=100_000, result=False, advanced=True
    )
    min_relevant: int | None = DATA(
        None,
        "Leave queries out with fewer relevant documents of a group than this.",
        least=0,
        most=100_000,
        result=False,
        advanced=True,
    )
    allow_missing: bool = DATA(
        False, "Drop judgements of documents that docs.jsonl lacks.", result=False, advanced=True
    )
    input: Literal["title", "text"] = DATA("title", "What the model sees of an item.")
    words: int = DATA(300, "Words kept of a longer item.", least=1, most=1_000_000, advanced=True)

    @classmethod
    def preset_options(cls) -> Mapping[str, Mapping[str, Any]]:
        # Wang et al. 2024 do not say how many of a list's 200 pages are relevant. Its Table 1 reads P@20 of about 0.125
        # where its windows change next to nothing, which is the share that 24 or 25 of 200 have; 100 would read 0.5.
        return {"few-relevant": {"candidates": 200, "relevant": 24}}


@dataclass(frozen=True, kw_only=True)
class AuditSettings(Asking, ListSettings, MeasureSettings):
    """The settings of every audit; a kind adds its own."""

    makes_runs = True
    output: Path | None = OUTPUT(
        None, "Run folder (default: below --runs-dir, named by the settings).", short="-o", effect=WRITTEN
    )
    runs_dir: Path = OUTPUT(
        Path("runs"), "Where run folders go that --output does not name.", effect=WRITTEN, advanced=True
    )
    label: str | None = OUTPUT(None, "What tables, reports, lists and comparisons call the run.")
    report: bool = OUTPUT(True, "Write report.html into the run folder.")
    open: bool = OUTPUT(False, "Open the report in the browser.", advanced=True)
    fresh: bool = OUTPUT(
        False, "Set the run's answers aside; with --no-cache all is asked again.", advanced=True
    )
    permutations: int = STATISTICS(
        9999,
        "Shuffles of the test over lists; 0: its closed form alone.",
        least=0,
        most=100_000,
        advanced=True,
    )
    max_invalid: float = STATISTICS(
        0.05,
        "Largest share of unparseable answers in any condition before exit 4.",
        advanced=True,
        least=0,
        most=1,
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


STOPPING_AT_ONCE = 10
"""Workers of an audit that stops when it is settled, if none are named: what is under way then was asked in vain.
They keep twice as many questions begun, and before 20 nothing is settled."""


def check_stopping(settings: AuditSettings, on_bad_answer: str) -> None:
    """Raises UsageError for what an audit cannot have that stops as soon as it is settled."""
    if settings.batch or on_bad_answer == "fail":
        flag = "--batch asks all at once" if settings.batch else "--on-bad-answer fail leaves gaps"
        raise UsageError(f"--sequential stops between questions, but {flag}.", "leave one of them out")


def injected_of(text: str) -> tuple[float, ...]:
    """Log pair odds such as `-0.5,0.5`, rising and with 0 among them. Raises ValueError."""
    betas = {float(part) for part in text.split(",")}
    if not all(abs(beta) <= MOST_INJECTED for beta in betas):
        raise ValueError(text)
    return tuple(sorted({0.0, *betas}))


INJECTED = Form(
    injected_of,
    f"log odds from -{MOST_INJECTED:g} to {MOST_INJECTED:g} with commas between, such as -0.5,-0.25,0.25",
)


@dataclass(frozen=True, kw_only=True)
class CalibrationSettings(AuditSettings):
    """What simulated audits of injected preferences share, whatever the audit."""

    injected: str = STATISTICS(
        "-0.5,-0.25,0,0.25,0.5",
        "Injected log pair odds, comma-separated; 0 is always among them.",
        form=INJECTED,
    )
    runs: int = STATISTICS(200, "Simulated audits of each injected preference.", least=2, most=100_000)
    power: float = STATISTICS(
        0.8, "Power with which the smallest effect is to be found.", above=LEAST_POWER, below=1
    )

    @classmethod
    def idle(cls) -> frozenset[str]:
        return super().idle() | OF_RUNS

    @classmethod
    def giving_way(cls, flags: Set[str], runs: Sequence[Path], output: Path | None) -> frozenset[str]:
        return frozenset({"output", "junit"})  # of audits that ask somebody

    def simulations(self) -> int:
        """How many audits are simulated."""
        return len(injected_of(self.injected)) * self.runs

    def check(self) -> None:
        super().check()
        flags = {"output": self.output, "junit": self.junit, "sequential": getattr(self, "sequential", False)}
        for flag in filter(flags.get, flags):
            raise UsageError(
                f"calibrate simulates whole audits and writes no files, so it takes no --{flag}.",
                "leave it out; --json > FILE keeps the figures",
            )


@dataclass(frozen=True, kw_only=True)
class PlanningSettings(AuditSettings):
    """What plans share, whatever the audit: the power wanted, and how long a call takes."""

    power: float = STATISTICS(0.8, "Power with which an effect is to be found.", above=LEAST_POWER, below=1)
    latency: float = SPENDING(1.0, "Seconds a call takes.", least=0, advanced=False)

    @classmethod
    def idle(cls) -> frozenset[str]:
        return super().idle() | OF_RUNS


@dataclass(frozen=True, kw_only=True)
class StudySettings(AuditSettings):
    """What studies share, whatever the audits.

    `varied` are settings in which the audits differ, each with what to say instead of it: named as flags they are
    refused, and what a file or variable has for other commands gives way.
    """

    varied: ClassVar[Mapping[str, str]] = {}
    makes_runs = False
    output: Path | None = OUTPUT(None, "Folder for study.json and study.csv.", short="-o", effect=WRITTEN)

    @classmethod
    def make(cls, preset: str | None = None, **values: Any) -> Self:
        return super().make(preset, **{name: values[name] for name in values if name not in cls.varied})
