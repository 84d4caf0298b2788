"""What settings are, those of everything that measures, and those that all audits share."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Self

from llmfair.errors import UsageError, did_you_mean

MOST_REPEATS = 49  # with the control arm, draws 0 to 97; from 100 on bad answers are asked again
WIDEST_BAND = (0.01, 100.0)


def setting(
    default: Any, meaning: str, panel: str, *, flags: tuple[str, ...] = (), result: bool = True
) -> Any:
    """A field of a settings class. `result` says that it can change a result: such settings name the run."""
    metadata = {"meaning": meaning, "panel": panel, "flags": flags, "result": result}
    if isinstance(default, tuple):
        return field(default_factory=lambda: default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class CommandSettings:
    """What every command with settings shares."""

    dataset: str | None = setting(None, "Dataset id, or a folder of your own.", "Data", flags=("-d",))
    attribute: str | None = setting(
        None, "Sensitive attribute, such as gender (default: the dataset's first).", "Data", flags=("-a",)
    )
    mixed: Literal["drop", "protected", "unprotected"] = setting(
        "drop", "The side of items that have groups on both sides; drop: none.", "Data"
    )
    level: float = setting(0.95, "Confidence level of intervals.", "Statistics", result=False)
    band: str = setting(
        "0.8..1.25",
        "Pair odds near parity: conclusions say whether the interval lies within.",
        "Statistics",
        result=False,
    )
    output: Path | None = setting(
        None, "Folder for metrics.csv, per_query.csv, results.json.", "Output", flags=("-o",), result=False
    )
    format: Literal["table", "tsv", "json", "md"] = setting(
        "table", "What stdout gets.", "Output", result=False
    )

    @classmethod
    def presets(cls) -> Mapping[str, Mapping[str, Any]]:
        """Named bundles of settings; single settings override them."""
        return {}

    @classmethod
    def idle(cls) -> frozenset[str]:
        """Settings that change nothing here: taken, since commands share them, but left out of the help."""
        return frozenset()

    def preset_name(self) -> str | None:
        """The preset these settings amount to, however they were given."""
        return next(
            (
                name
                for name, values in self.presets().items()
                if all(getattr(self, key) == value for key, value in values.items())
            ),
            None,
        )

    @classmethod
    def make(cls, preset: str | None = None, **given: Any) -> Self:
        """Settings from what the user gave, over a preset, over defaults. Raises UsageError."""
        if preset is not None and preset not in cls.presets():
            raise UsageError(
                f"no preset '{preset}'.{did_you_mean(preset, cls.presets())}",
                f"known: {', '.join(cls.presets())}",
            )
        made = cls(**{**(cls.presets()[preset] if preset else {}), **given})
        made.check()
        return made

    def check(self) -> None:
        """Raises UsageError for a value out of range."""
        if not 0 < self.level < 1:
            raise UsageError(f"--level is {self.level}, but lies between 0 and 1.", "for example 0.95")
        if self.output is not None and not self.output.name:
            raise UsageError("--output names no folder.", "for example --output my-run")
        low, high = band_of(self.band)
        if not WIDEST_BAND[0] <= low <= 1 <= high <= WIDEST_BAND[1]:
            raise UsageError(
                f"--band {self.band} does not lie around parity.",
                f"pair odds from {WIDEST_BAND[0]} to 1, then from 1 to {WIDEST_BAND[1]}: 0.8..1.25",
            )

    def as_flags(self, names: Iterable[str]) -> str:
        """Those of the named settings that are not at their default, as one would write them as flags."""
        defaults = {item.name: default_of(item) for item in fields(self)}
        words = []
        for name in names:
            value, flag = getattr(self, name), "--" + name.replace("_", "-")
            if value == defaults[name]:
                continue
            if isinstance(value, bool):
                words.append(flag if value else f"--no-{flag[2:]}")
            else:
                for one in value if isinstance(value, tuple) else (value,):
                    words += [flag, shlex.quote(str(one))]
        return " ".join(words)

    def of_result(self) -> dict[str, Any]:
        """The settings that can change a result."""
        names = {item.name for item in fields(self) if item.metadata["result"]}
        return {name: value for name, value in asdict(self).items() if name in names}


@dataclass(frozen=True, kw_only=True)
class MeasureSettings(CommandSettings):
    """What everything that measures rankings shares."""

    measures: str | None = setting(
        None, "Measures, comma-separated (default: the task's).", "Statistics", result=False
    )
    ci: Literal["auto", "linear-t", "boot-t"] = setting(
        "auto",
        "How intervals of exposure ratios are made; auto: boot-t for few queries or short lists.",
        "Statistics",
        result=False,
    )
    require: tuple[str, ...] = setting(
        (),
        "Gate, else exit 4: MEASURE[:VARIANT] then =LOW..HIGH, >=X or <=X; repeatable.",
        "Statistics",
        result=False,
    )
    require_interval: bool = setting(
        False, "Ask --require of the whole interval, not of the value alone.", "Statistics", result=False
    )


@dataclass(frozen=True, kw_only=True)
class ScoreSettings(MeasureSettings):
    """Rankings that exist: where their judgements and groups are."""

    qrels: Path | None = setting(None, "TREC qrels, instead of a dataset.", "Data")
    groups: Path | None = setting(
        None, "Lines of doc_id, attribute, group, separated by tabs; goes with --qrels.", "Data"
    )
    attributes: Path | None = setting(
        None, "Which groups are on which side; data/attributes.toml shows the form.", "Data"
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


SCORE_FORMS = "llmfair score RUN --qrels FILE --groups FILE, or llmfair score RUN -d DATASET"


@dataclass(frozen=True, kw_only=True)
class ListSettings(CommandSettings):
    """Which lists of items are asked about, and what a model sees of an item."""

    dataset: str = setting(
        "sample", "Dataset id, or a folder of your own.", "Data", flags=("-d",), result=False
    )
    limit: int | None = setting(None, "Only the first N queries.", "Data", flags=("-n",), result=False)
    queries: str | None = setting(
        None, "Only these query ids, comma-separated, or @FILE.", "Data", result=False
    )
    seed: int = setting(0, "Seed of orders and draws, derived per query.", "Data")
    # What is ranked shows in the lists, and their fingerprint names the run.
    candidates: int | None = setting(None, "Documents in a drawn list (default: 200).", "Data", result=False)
    buckets: str | None = setting(
        None,
        "Draw lists: equal (both sides alike in relevance), natural (whatever side), or four counts: unprotected and "
        "protected relevant ones, unprotected and protected others (default: a folder's own lists, else equal).",
        "Data",
        result=False,
    )
    experts: int | None = setting(
        None, "Relevant documents in a drawn list (default: half).", "Data", result=False
    )
    min_experts: int | None = setting(
        None, "Leave queries out with fewer relevant documents of a side than this.", "Data", result=False
    )
    allow_missing: bool = setting(
        False, "Drop judgements of documents that docs.jsonl lacks.", "Data", result=False
    )
    input: Literal["title", "text"] = setting("title", "What the model sees of an item.", "Data")
    words: int = setting(300, "Words kept of a longer item.", "Data")

    def check(self) -> None:
        super().check()
        at_least(self, {"limit": 1, "words": 1, "min_experts": 0, "seed": 0})


@dataclass(frozen=True, kw_only=True)
class AuditSettings(ListSettings, MeasureSettings):
    """What all audits share."""

    model: tuple[str, ...] = setting(
        ("fake:biased",),
        "openai:NAME, hf:NAME, vllm:NAME, fake:… (of lists also bm25, monot5, monobert); repeatable, one run each.",
        "Model",
        flags=("-m",),
        result=False,
    )
    base_url: str | None = setting(
        None,
        "Any OpenAI-compatible server, such as http://127.0.0.1:8000/v1 (default: OPENAI_BASE_URL).",
        "Model",
        result=False,
    )
    server_name: str | None = setting(
        None, "Name of the server in run folders (default: host:port).", "Model", result=False
    )
    system: Literal["auto", "separate", "fold"] = setting(
        "auto",
        "Where the system text goes; fold: into the first user message; auto: there if the template takes no other.",
        "Model",
        result=False,
    )
    adapter: Path | None = setting(
        None, "Folder of a LoRA adapter: it and its base are asked, one run each.", "Model", result=False
    )
    adapter_only: bool = setting(False, "Ask the adapter alone, not its base too.", "Model", result=False)
    backend_arg: tuple[str, ...] = setting(
        (),
        "k=v for the engine of a model in this process, such as dtype=float32; repeatable.",
        "Model",
        result=False,
    )
    template_arg: tuple[str, ...] = setting(
        (), "k=v for the model's chat template, such as enable_thinking=false; repeatable.", "Model"
    )
    extra: tuple[str, ...] = setting(
        (), "k=JSON merged into every request body, such as top_k=5; repeatable.", "Model"
    )

    temperature: float = setting(0.0, "Sampling temperature.", "Sampling")
    max_tokens: int | None = setting(
        None, "Longest answer, in tokens (default: by what is asked).", "Sampling"
    )
    model_seed: int = setting(0, "Seed sent to the model.", "Sampling")
    constrain: bool = setting(
        False,
        "Let the model emit nothing but well-formed answers: none is unreadable, none a refusal.",
        "Sampling",
    )
    thinking: bool = setting(False, "Room for 4,096 tokens of thoughts beside the answer.", "Sampling")

    workers: int | None = setting(
        None, "Requests in flight (default: the backend's own).", "Spending", flags=("-j",), result=False
    )
    adaptive: bool = setting(
        True,
        "Find out how many requests a server takes in flight, up to --workers.",
        "Spending",
        result=False,
    )
    rpm: float | None = setting(None, "Requests a minute, at most.", "Spending", result=False)
    tpm: float | None = setting(
        None, "Tokens a minute, at most: prompts and answers.", "Spending", result=False
    )
    retries: int = setting(
        8, "Further attempts after lost connections and errors of the server (5xx).", "Spending", result=False
    )
    timeout: float = setting(120.0, "Seconds until a request counts as lost.", "Spending", result=False)
    max_wait: str = setting(
        "30m",
        "Longest time under rate limits without an answer, such as 90s, 30m, 1h.",
        "Spending",
        result=False,
    )
    max_calls: int | None = setting(
        None,
        "Stop cleanly after N calls of this command; repeated, it continues with N more.",
        "Spending",
        result=False,
    )
    max_cost: float | None = setting(
        None,
        "Stop cleanly before this command costs more, at --price-in and --price-out; repeated, it may again.",
        "Spending",
        result=False,
    )
    price_in: float | None = setting(None, "Price of a million tokens sent.", "Spending", result=False)
    price_out: float | None = setting(None, "Price of a million tokens answered.", "Spending", result=False)
    no_cache: bool = setting(
        False, "Neither read nor write the answers that runs share.", "Spending", result=False
    )
    batch: bool = setting(
        False, "Ask through the Batch API: half the price, answers within a day.", "Spending", result=False
    )
    dry_run: bool = setting(False, "Count what would be asked; ask nothing.", "Spending", result=False)

    permutations: int = setting(
        9999, "Shuffles of the test over lists; 0: its closed form alone.", "Statistics", result=False
    )
    max_invalid: float = setting(
        0.05, "Largest share of unreadable answers in any variant before exit 4.", "Statistics", result=False
    )

    output: Path | None = setting(
        None,
        "Run folder (default: below --runs-dir, named by the settings).",
        "Output",
        flags=("-o",),
        result=False,
    )
    runs_dir: Path = setting(
        Path("runs"), "Where run folders go that --output does not name.", "Output", result=False
    )
    report: bool = setting(True, "Write report.html into the run folder.", "Output", result=False)
    open: bool = setting(False, "Open the report in the browser.", "Output", result=False)
    fresh: bool = setting(
        False, "Set the run's answers aside; with --no-cache all is asked again.", "Output", result=False
    )

    @property
    def margins(self) -> bool:
        """Whether log-probabilities of labels are read instead of text."""
        return False

    def needs(self) -> Iterator[tuple[str, str]]:
        """What a backend must be capable of, and the flag that asks for it."""
        if self.constrain:
            yield "constrain", "--constrain"
        if self.batch:
            yield "batch", "--batch"
        if self.adapter is not None:
            yield "adapter", "--adapter"
        if self.backend_arg:
            yield "backend_args", "--backend-arg"

    def check(self) -> None:
        super().check()
        at_least(self, {"max_tokens": 1, "workers": 1, "max_calls": 1, "permutations": 0})
        at_least(self, {"retries": 0, "temperature": 0})
        at_least(self, {"rpm": 1, "tpm": 1, "max_cost": 0, "price_in": 0, "price_out": 0})
        if (self.price_in is None) != (self.price_out is None):
            raise UsageError("--price-in and --price-out go together.", "each per million tokens")
        if self.max_cost is not None and self.price_in is None:
            raise UsageError("--max-cost needs prices.", "add --price-in and --price-out, per million tokens")
        if self.max_cost is not None and self.batch:
            raise UsageError(
                "--max-cost stops between calls, but a batch is paid as a whole.", "use --max-calls"
            )
        if not 0 <= self.max_invalid <= 1:
            raise UsageError(f"--max-invalid is {self.max_invalid}, but is a share of 1.", "for example 0.05")
        if not 0 < self.timeout < math.inf:
            raise UsageError(
                f"--timeout is {self.timeout}, but must be positive.", "seconds, for example 120"
            )
        seconds(self.max_wait)


def band_of(text: str) -> tuple[float, float]:
    """`0.8..1.25` as two numbers. Raises UsageError."""
    low, dots, high = text.partition("..")
    try:
        if dots:
            return float(low), float(high)
    except ValueError:
        pass
    raise UsageError(f"'{text}' is not a band.", "two numbers with two dots between: 0.8..1.25")


def seconds(text: str) -> float:
    """A time such as `90`, `90s`, `30m` or `1.5h` in seconds. Raises UsageError."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], text[-1]) if text[-1:] in units else (text, "s")
    try:
        found = float(number) * units[unit]
        if not 0 <= found < math.inf:
            raise ValueError
        return found
    except ValueError:
        raise UsageError(f"'{text}' is not a time.", "for example 90s, 30m or 1h") from None


def at_least(settings: CommandSettings, lowest: Mapping[str, float]) -> None:
    for name, least in lowest.items():
        value = getattr(settings, name)
        if value is not None and not least <= value < math.inf:
            flag = "--" + name.replace("_", "-")
            raise UsageError(f"{flag} is {value}, but is at least {least}.", f"--help explains {flag}")


def default_of(item: Field[Any]) -> Any:
    """The default of a settings field."""
    return item.default if item.default_factory is MISSING else item.default_factory()
