"""The settings of commands: of everything that asks a model, of audits, plans and studies, of what reads what exists
(`llmfair score`, `rerank`, `mitigate`) and of `finetune-lora`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from llmfair.errors import UsageError
from llmfair.io import secrets
from llmfair.settings.declaration import (
    CONTRAST,
    DATA,
    ENGINE,
    IMPORTS,
    LISTS,
    LOSSES,
    MODEL,
    MOST_NUMBERED,
    MOST_SEED,
    OUTPUT,
    PROMPT,
    SAMPLING,
    SENT,
    SERVER,
    SPENDING,
    STATISTICS,
    TIME,
    TRAINING,
    WRITTEN,
    CommandSettings,
    Form,
    MeasureSettings,
    PromptSettings,
    Settings,
)  # fmt: skip

MOST_REPEATS = 49  # all asked a second time, draws 0 to 97; from 100 on bad answers are asked again
ATTRIBUTE = "Sensitive attribute, such as gender (default: the dataset's first)."
EVIDENCE = 20
"""Answers that a report shows."""
ABOUT_AUDITS: Mapping[str, str] = {
    "purpose": "what the audited system decides",
    "responsible": "who answers for it",
    "hazard": "what harm a disparity does",
    "review_after": "when, or after what, it is audited anew",
    "data_source": "where the data come from, and how they were obtained",
    "data_dates": "from when to when they are",
    "distribution_date": "since when the system is in use",
}
"""What only people know of an audit, which `[audit]` of llmfair.toml says for summaries."""
ENGINES = Form(("local", "ray").index, "local or ray")


def wished(backend_arg: str) -> bool:
    """Whether it is one of those, `k?=v`, that a model without such an argument leaves out."""
    return backend_arg.partition("=")[0].endswith("?")


@dataclass(frozen=True, kw_only=True)
class SpendingSettings(Settings):
    """How fast a model is asked, and for how much."""

    workers: int | None = SPENDING(
        None, "Requests in flight, at each server (default: the backend's own).", "-j", least=1, most=1_000,
        advanced=False,
    )  # fmt: skip
    adaptive: bool = SPENDING(True, "Find out how many requests a server takes in flight, up to --workers.")
    rpm: float | None = SPENDING(None, "Requests a minute of each server, at most.", least=1)
    tpm: float | None = SPENDING(
        None, "Tokens a minute of each server, at most: prompts and answers.", least=1
    )
    retries: int = SPENDING(
        8, "Further attempts after lost connections and errors of the server (5xx).", least=0, most=1_000
    )
    timeout: float = SPENDING(120.0, "Seconds until a request counts as lost.", above=0)
    max_wait: str = SPENDING(
        "30m",
        "Longest time without an answer under rate limits, or that a server asks to wait, such as 90s, 30m, 1h.",
        form=TIME,
    )
    outage: str = SPENDING(
        "60s", "How long servers that all stopped answering are waited for, however many attempts that takes.",
        form=TIME,
    )  # fmt: skip
    max_reply: float = SPENDING(
        1.0, "Longest reply that is read, in megabytes; a longer one is a failure.", above=0
    )
    max_calls: int | None = SPENDING(
        None, "Stop cleanly after N calls of this command; repeated, it continues with N more.", least=1,
        most=MOST_NUMBERED, advanced=False,
    )  # fmt: skip
    max_cost: float | None = SPENDING(
        None, "Stop cleanly before this command costs more, at --price-in and --price-out; repeated, it may again.",
        least=0,
    )  # fmt: skip
    price_in: float | None = SPENDING(None, "Price of a million tokens sent.", least=0)
    price_out: float | None = SPENDING(None, "Price of a million tokens answered.", least=0)
    no_cache: bool = SPENDING(False, "Neither read nor write the answers that runs share.")
    dry_run: bool = SPENDING(False, "Count what would be asked; ask nothing.", advanced=False)

    def check(self) -> None:
        super().check()
        if (self.price_in is None) != (self.price_out is None):
            raise UsageError("--price-in and --price-out go together.", "each per million tokens")
        if self.max_cost is not None and self.price_in is None:
            raise UsageError("--max-cost needs prices.", "add --price-in and --price-out, per million tokens")


@dataclass(frozen=True, kw_only=True)
class Asking(SpendingSettings):
    """Which model answers, how, and for how much."""

    model: tuple[str, ...] = SERVER(
        ("fake:biased",),
        "openai:NAME, hf:NAME, vllm:NAME, fake:… (of lists also bm25, mmr, monot5); repeatable, one run each.", "-m",
        effect=IMPORTS, advanced=False,
    )  # fmt: skip
    base_url: tuple[str, ...] = SERVER(
        (),
        "Any OpenAI-compatible server, such as http://127.0.0.1:8000/v1 (default: OPENAI_BASE_URL); repeatable: "
        "servers of one model share its questions.", effect=SENT, advanced=False,
    )  # fmt: skip
    server_name: str | None = SERVER(
        None, "What names, tables and reports call the server (default: host:port)."
    )
    wire: Literal["cohere", "voyage", "tei"] = SERVER(
        "cohere",
        "The form in which rerank:MODEL is asked: as Cohere, Jina, vLLM and most have it, as Voyage, or as TEI.",
    )
    system: Literal["auto", "separate", "fold"] = SERVER(
        "auto",
        "Where the system text goes; fold: into the first user message; auto: there if the template takes no other.",
    )
    adapter: Path | None = SERVER(None, "Folder of a LoRA adapter: it and its base are asked, one run each.")
    adapter_only: bool = SERVER(False, "Ask the adapter alone, not its base too.")
    backend_arg: tuple[str, ...] = SERVER(
        (),
        "k=v for the engine of a model in this process, such as dtype=float32; k?=v: ignored where the model has no "
        "such setting; repeatable.",
        effect=ENGINE,
    )
    template_arg: tuple[str, ...] = MODEL(
        (), "k=v for the model's chat template, such as enable_thinking=false; repeatable."
    )
    extra: tuple[str, ...] = MODEL((), "k=JSON merged into every request body, such as top_k=5; repeatable.")

    temperature: float = SAMPLING(0.0, "Sampling temperature.", least=0, advanced=False)
    max_tokens: int | None = SAMPLING(
        None, "Longest answer, in tokens (default: by what is asked).", least=1, most=10_000_000
    )
    model_seed: int = SAMPLING(0, "Seed sent to the model.", least=-MOST_SEED, most=MOST_SEED)
    constrain: bool = SAMPLING(
        False,
        "Let the model emit nothing but well-formed answers: none is unparseable, none a refusal "
        "(a server may pass it over).",
    )
    thinking: bool = SAMPLING(False, "Room for 4,096 tokens of thoughts beside the answer.")

    batch: bool = SPENDING(False, "Ask through the Batch API: half the price, answers within a day.")

    engine: str = SPENDING(
        "local",
        "Where the model answers: local, in this process or at its server, or ray, in processes of a Ray cluster.",
        form=ENGINES,
    )
    ray_workers: int | None = SPENDING(
        None,
        "Processes of the Ray cluster that answer, each with the model (default: 1); alone it means --engine ray.",
        least=1, most=1_000,
    )  # fmt: skip
    ray_address: str | None = SPENDING(
        None,
        "The Ray cluster, or local: one of this command's own (default: RAY_ADDRESS, or the one on this machine).",
        effect=SENT,
    )

    @property
    def on_ray(self) -> bool:
        """Whether models answer in processes of a Ray cluster; where `engine` names what searches, --ray-workers alone
        says it."""
        return self.engine == "ray" or self.ray_workers is not None or self.ray_address is not None

    @property
    def margins(self) -> bool:
        """Whether log-probabilities of labels are read instead of text."""
        return False

    @property
    def at_once(self) -> int | None:
        """The workers there are at most unless --workers says so; None: as many as the backend takes."""
        return None

    def needs(self) -> Iterator[tuple[str, str]]:
        """What a backend must be capable of, and the flag that asks for it."""
        if self.constrain:
            yield "constrain", "--constrain"
        if self.batch:
            yield "batch", "--batch"
        if self.adapter is not None:
            yield "adapter", "--adapter"
        if any(not wished(argument) for argument in self.backend_arg):
            yield "backend_args", "--backend-arg"

    def check(self) -> None:
        super().check()
        if not self.model:
            raise UsageError("--model names none.", "for example --model openai:gpt-4o-mini")
        if self.max_cost is not None and self.batch:
            raise UsageError(
                "--max-cost stops between calls, but a batch is paid as a whole.", "use --max-calls"
            )
        if self.on_ray and (self.batch or len(self.base_url) > 1):
            flag = "--batch" if self.batch else "a second --base-url"
            raise UsageError(f"{flag} and Ray do not go together.", "leave one of them out")
        secret = next(
            (argument.partition("=")[0] for argument in self.extra if secrets.written(argument) != argument),
            None,
        )
        if self.batch and secret is not None:
            raise UsageError(
                f"--batch sends a file that is kept, and --extra {secret} is secret.",
                "leave it out, or ask without --batch",
            )


MOST_SPREAD = 3.0
LEAST_POWER = 0.05
"""The chance of a false positive."""
MOST_INJECTED = 6.0  # e^6 is as good as always
OF_RUNS = {"dry_run", "fresh", "junit", "label", "open", "report"}
"""What only a run that asks something reads."""


COMPARED: Any = LISTS(
    None,
    "Which groups are compared: binary (protected with unprotected), pairs, reference:GROUP or rest (each with all "
    "others) (default: binary where both groups are declared, else pairs).", form=CONTRAST,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ListSettings(CommandSettings):
    """Which lists of items are asked about, and what a model sees of an item."""

    dataset: str = DATA(
        "sample", "Dataset id, or your own folder or table (.csv, .tsv, .jsonl, .parquet), hf:ORG/NAME, irds:NAME.",
        "-d", result=False,
    )  # fmt: skip
    attribute: tuple[str, ...] = DATA((), ATTRIBUTE, "-a")
    columns: str | None = LISTS(None, "Of a table, what its columns are called: doc_id=id,gender=sex.")
    attributes: str | None = LISTS(
        None,
        "Of a table or irds:NAME, a file that declares its attributes (default: attributes.toml beside it, else the "
        "built-in ones).",
    )
    groups: str | None = LISTS(
        None,
        "Of irds:NAME, the groups of its documents: lines of doc_id, attribute, group, separated by tabs.",
    )
    run: str | None = LISTS(
        None, "Of irds:NAME, a run whose rankings are the lists (default: the first 100 that BM25 finds)."
    )
    contrast: str | None = COMPARED
    min_group: int = LISTS(
        10, "Compare only groups of so many items in all lists, where contrasts are of several groups.", least=1,
        most=MOST_NUMBERED,
    )  # fmt: skip
    limit: int | None = DATA(
        None, "Only the first N queries.", "-n", least=1, most=MOST_NUMBERED, result=False
    )
    queries: str | None = LISTS(
        None,
        "Only these query ids, comma-separated, or @FILE; of trec-fair/2022/eval also official, the 47 topics of "
        "the track's results.",
    )
    seed: int = DATA(
        0, "Seed of orders and draws, derived per query.", least=0, most=MOST_SEED, advanced=True
    )
    # What is ranked shows in the lists, and their fingerprint names the run.
    candidates: int | None = LISTS(None, "Documents in a drawn list (default: 200).", most=100_000)
    buckets: str | None = LISTS(
        None,
        "Draw lists: equal (both groups alike in relevance), natural (whatever group), or four counts: unprotected and "
        "protected relevant ones, unprotected and protected others (default: a folder's own lists, else equal).",
    )
    relevant: int | None = LISTS(None, "Relevant documents in a drawn list (default: half).", most=100_000)
    min_relevant: int | None = LISTS(
        None, "Leave queries out with fewer relevant documents of a group than this.", least=0, most=100_000
    )
    allow_missing: bool = LISTS(False, "Drop judgements of documents that docs.jsonl lacks.")
    input: Literal["title", "text"] = DATA("title", "What the model sees of an item.")
    words: int = DATA(300, "Words kept of a longer item.", least=1, most=1_000_000, advanced=True)

    # Wang et al. 2024 do not say how many of a list's 200 pages are relevant. Its Table 1 reads P@20 of about 0.125
    # where its windows change next to nothing, which is the share that 24 or 25 of 200 have; 100 would read 0.5.
    preset_options = {"few-relevant": {"candidates": 200, "relevant": 24}}


@dataclass(frozen=True, kw_only=True)
class AuditSettings(Asking, ListSettings, MeasureSettings):
    """The settings of every audit; a kind adds its own."""

    makes_runs = True
    attribute: tuple[str, ...] = DATA(
        (),
        "Sensitive attribute, such as gender (default: the dataset's first), any column of a table, or 'gender*race' "
        "for all combinations; repeatable, one run each.", "-a",
    )  # fmt: skip
    output: Path | None = OUTPUT(
        None, "Run folder (default: below --runs-dir, named by the settings).", "-o", effect=WRITTEN
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
        9999, "Shuffles of the test over lists; 0: its closed form alone.", least=0, most=100_000, advanced=True,
    )  # fmt: skip
    adjust: Literal["holm", "bh"] = STATISTICS(
        "holm", "How p is adjusted for the number of conclusions; bh, for exploring many groups, is milder.",
        advanced=True,
    )  # fmt: skip
    max_invalid: float = STATISTICS(
        0.05, "Largest share of unparseable answers in any condition before exit 4.", advanced=True, least=0, most=1,
    )  # fmt: skip

    def each(self) -> list[Self]:
        """The settings of single runs, where a setting names several."""
        return [replace(self, attribute=(name,)) for name in self.attribute] or [self]

    def called(self, model: str, among: Self) -> str:
        """What a run of a model is called among those of settings that name several."""
        return model if len(among.attribute) < 2 else f"{model} by {self.attribute[0]}"

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
        "-0.5,-0.25,0,0.25,0.5", "Injected log pair odds, comma-separated; 0 is always among them.", form=INJECTED,
    )  # fmt: skip
    runs: int = STATISTICS(200, "Simulated audits of each injected preference.", least=2, most=100_000)
    power: float = STATISTICS(
        0.8, "Power with which the smallest effect is to be found.", above=LEAST_POWER, below=1
    )

    idle = OF_RUNS
    absent = {"output", "junit", "sequential"}  # whole audits are simulated, and no file is written

    def simulations(self) -> int:
        """How many audits are simulated."""
        return len(injected_of(self.injected)) * self.runs


@dataclass(frozen=True, kw_only=True)
class PlanningSettings(AuditSettings):
    """What plans share, whatever the audit: the power wanted, and how long a call takes."""

    power: float = STATISTICS(0.8, "Power with which an effect is to be found.", above=LEAST_POWER, below=1)
    latency: float = SPENDING(1.0, "Seconds a call takes.", least=0, advanced=False)
    idle = OF_RUNS


@dataclass(frozen=True, kw_only=True)
class StudySettings(AuditSettings):
    """What studies share, whatever the audits.

    `varied` are settings in which the audits differ, each with what to say instead of it: named as flags they are
    refused, and what a file or variable has for other commands gives way.
    """

    varied: ClassVar[Mapping[str, str]] = {}
    makes_runs = False
    output: Path | None = OUTPUT(None, "Folder for study.json and study.csv.", "-o", effect=WRITTEN)

    @classmethod
    def giving_way(cls, flags: Set[str], runs: Sequence[Path]) -> Set[str]:
        for name in flags & cls.varied.keys():
            raise UsageError(f"--{name} names one setting, but a study has several.", cls.varied[name])
        return super().giving_way(flags, runs)

    @classmethod
    def make(cls, preset: str | None = None, **values: Any) -> Self:
        return super().make(preset, **{name: values[name] for name in values if name not in cls.varied})


LOG = ".jsonl"
"""How a log ends of what a generator was shown and said: like a run folder it brings its judgements."""
OF_DATASET, OF_FILES = {"dataset", "columns"}, {"qrels", "groups", "attributes"}
"""The two ways to say what is relevant, and who is in which group."""
SCORE_FORMS = "llmfair score RUN --qrels FILE --groups FILE, or llmfair score RUN -d DATASET"
RERANK_FORMS = (
    "llmfair rerank RUN --with fair-star -d DATASET -o NEW.run, or with --groups FILE in place of -d"
)


@dataclass(frozen=True, kw_only=True)
class JudgementSettings(CommandSettings):
    """Rankings that exist: where their judgements and groups are."""

    attribute: str | None = DATA(None, ATTRIBUTE, "-a")
    columns: str | None = DATA(
        None, "Of a table as dataset, what its columns are called: doc_id=id,gender=sex.", advanced=True
    )
    qrels: Path | None = DATA(None, "TREC qrels, instead of a dataset.")
    groups: Path | None = DATA(
        None, "Lines of doc_id, attribute, group, separated by tabs; goes with --qrels, or with a log."
    )
    attributes: Path | None = DATA(
        None,
        "Which groups are protected, which the reference, in a file as llmfair datasets attributes prints it.",
    )

    @classmethod
    def giving_way(cls, flags: Set[str], runs: Sequence[Path]) -> Set[str]:
        return OF_FILES if flags & OF_DATASET else OF_DATASET if flags & OF_FILES else set()


@dataclass(frozen=True, kw_only=True)
class ScoreSettings(JudgementSettings, MeasureSettings):
    """What is measured of rankings that exist."""

    contrast: str | None = COMPARED
    min_group: int = LISTS(
        10, "Compare only groups that so many items are known to be in, where contrasts are of several groups.",
        least=1, most=MOST_NUMBERED,
    )  # fmt: skip
    report: bool = OUTPUT(True, "Write report.html into the --output folder.")
    open: bool = OUTPUT(False, "Open the report in the browser.")
    per_query: bool = OUTPUT(False, "Every query's values as tab-separated rows, then those of all.")

    @classmethod
    def giving_way(cls, flags: Set[str], runs: Sequence[Path]) -> Set[str]:
        brought = OF_DATASET | OF_FILES | {"attribute", "mixed", "contrast", "min_group"}
        bring = all(run.is_dir() or run.suffix == LOG for run in runs)
        return super().giving_way(flags, runs) | (brought if bring else set())

    def check(self) -> None:
        super().check()
        of_files = self.qrels or self.groups or self.attributes
        if (self.qrels and not self.groups) or (self.dataset and of_files):
            raise UsageError(
                "judgements and groups come from --dataset, or from --qrels, --groups and --attributes.",
                SCORE_FORMS,
            )


@dataclass(frozen=True, kw_only=True)
class RerankSettings(JudgementSettings):
    """Rankings that exist, to be ordered anew: where groups and texts are, and where the new ones go."""

    query_text: Literal["keywords", "title"] = DATA(
        "keywords", "What rankers read of a topic: its keywords, where it has any (keywords.jsonl), or its title.",
        result=False,
    )  # fmt: skip

    output: Path | None = OUTPUT(
        None, "The new run, or of several runs the folder of the new ones; a name that ends in .gz is packed.", "-o",
        effect=WRITTEN,
    )  # fmt: skip

    idle = {"level", "band", "format"}

    def check(self) -> None:
        super().check()
        if self.output is None:
            raise UsageError("--output is missing: where does the new run go?", RERANK_FORMS)
        if bool(self.dataset) == bool(self.groups or (self.dataset and self.qrels)):
            raise UsageError("either --dataset or --groups says who is in which group.", RERANK_FORMS)


@dataclass(frozen=True, kw_only=True)
class MitigateSettings(SpendingSettings, CommandSettings):
    """Which remedies are held against a run, and for how much; data, model and prompt are those of the run."""

    attribute: str | None = DATA(None, ATTRIBUTE, "-a")
    remedy: tuple[str, ...] = DATA(
        (), "A remedy, with parameters as in fair-star:p=0.4,alpha=0.1; repeatable (default: all).", result=False,
    )  # fmt: skip
    free: bool = DATA(False, "Only remedies that ask no model.", result=False)
    condition: str | None = DATA(
        None, "The prompt of the run that is mitigated (default: neutral).", result=False
    )
    adapter: Path | None = SERVER(
        None, "Folder of a LoRA adapter for the run's model: the remedy lora asks it.", advanced=False,
    )  # fmt: skip
    extra: tuple[str, ...] = SERVER(
        (), "An --extra of the run whose value is secret, so that no run folder keeps it; repeatable."
    )
    base_url: tuple[str, ...] = SERVER(
        (), "A --base-url of the run with the password or key in it that no run folder keeps; repeatable.",
        effect=SENT,
    )  # fmt: skip
    margin: float = STATISTICS(0.02, "Loss of nDCG that still counts as none.", least=0, below=1)
    report: bool = OUTPUT(True, "Write report.html beside the results.")
    open: bool = OUTPUT(False, "Open the report in the browser.", advanced=True)
    output: Path | None = OUTPUT(
        None, "Folder of the results and of the new rankings (default: mitigation, in the run's folder).", "-o",
        effect=WRITTEN,
    )  # fmt: skip

    idle = {"dataset", "attribute", "mixed", "band", "level"}  # the run's own


ORDERS = 2
"""Prompts of a pair: every pair is always asked in both orders."""


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings(PromptSettings, ListSettings):
    """A LoRA adapter that removes a measured preference, and the measure of what else it changes."""

    makes_runs = True

    train_share: float | None = DATA(
        None,
        "Share of the queries that are trained on; the rest measure (default: as many as an adapter at parity takes to "
        "be called repaired in 80 %, between a fifth and half of all).", above=0, below=1,
    )  # fmt: skip
    split_seed: int = DATA(0, "Seed of the split of queries.", least=0, most=MOST_SEED, advanced=True)
    pairs: int = DATA(50, "Pairs per query and relevance stratum.", least=1, most=MOST_NUMBERED)
    grades: Literal["match", "any"] = LISTS(
        "match", "Pairs of two items of the same relevance grade (match), or of any two of a stratum."
    )
    pairs_per_query: int = DATA(
        4000, "Most training pairs of a query.", least=1, most=MOST_NUMBERED, advanced=True
    )
    pairs_per_item: int | None = DATA(
        200, "Most training pairs of a query that an item is in.", least=1, most=MOST_NUMBERED, advanced=True
    )
    strict_items: bool = DATA(
        False, "Train on no item that stands in a pair of validation or test.", advanced=True
    )

    base_model: str | None = SERVER(
        None, "Model to adapt, which has to be named: ORG/NAME, or a folder.", "-m", advanced=False
    )
    system: Literal["auto", "separate", "fold"] = MODEL(
        "auto",
        "Where the system text goes; fold: into the first user message; auto: there if the template takes no other.",
    )
    backend_arg: tuple[str, ...] = SERVER(
        (), "k=v for the engine of a model in this process, such as device=cuda:1; repeatable.", effect=ENGINE
    )
    template_arg: tuple[str, ...] = MODEL(
        (), "k=v for the model's chat template, such as enable_thinking=false; repeatable."
    )
    dtype: Literal["auto", "bfloat16", "float32"] = MODEL(
        "auto", "Type of the base; auto: bfloat16 on a GPU, else the checkpoint's. The adapter's is float32.",
        advanced=False,
    )  # fmt: skip
    load_in_4bit: bool = MODEL(
        False, "Hold the base in 4 bits, where bfloat16 does not fit (needs bitsandbytes).", advanced=False
    )

    form: Literal["order", "letter"] = PROMPT(
        "letter", "What is answered: the two numbers in order, or a letter."
    )

    labels: Literal["shifted", "random", "soft", "equal-answers"] = TRAINING(
        "shifted",
        "What pairs are trained towards: the model's own preferences less their median (shifted), halves at random "
        "(random), none (soft), or as many of its own answers for either group (equal-answers).", advanced=False,
    )  # fmt: skip
    soft_labels: bool = TRAINING(False, "With shifted: probabilities instead of 0 and 1.")
    anchor: Literal["relevance", "base", "none"] = TRAINING(
        "relevance", "What pairs of unequal relevance hold on to: judgements, or the base's answers.", advanced=False,
    )  # fmt: skip
    anchor_weight: float = TRAINING(0.5, "Weight of these pairs in the loss.", least=0)
    group_weight: float = TRAINING(0.5, "Weight of the squared mean preference of a group.", least=0)
    group_temperature: float = TRAINING(1.0, "Margin that counts as a full preference there.", above=0)
    slot_weight: float = TRAINING(0.0, "Weight of the squared slot bias.", least=0)
    loss: Literal["choice", "lm"] = TRAINING(
        "choice", "Between the two answers, or over all tokens (lm: with --preset paper)."
    )
    rank: int = TRAINING(1, "Rank of the adapter.", least=1, most=10_000, advanced=False)
    lora_alpha: float = TRAINING(
        2.0, "Scale of the adapter: what it adds counts lora-alpha / rank times.", advanced=False, above=0
    )
    lora_dropout: float = TRAINING(0.0, "Dropout before the adapter.", least=0, below=1)
    target_modules: str = TRAINING(
        "q_proj,k_proj,v_proj,o_proj", "Modules of the language model that are adapted, comma-separated.",
        advanced=False,
    )  # fmt: skip
    learning_rate: float = TRAINING(1e-3, "Learning rate.", advanced=False, above=0)
    schedule: Literal["cosine", "constant", "linear"] = TRAINING(
        "cosine", "How the learning rate goes on after it rose."
    )
    warmup: float = TRAINING(0.05, "Share of the steps in which the learning rate rises.", least=0, below=1)
    prompts_per_step: int = TRAINING(
        256, "Prompts of a step, of all devices together.", least=1, most=1_000_000, advanced=False
    )
    group_size: int = TRAINING(64, "Prompts of one query that stay together.", least=2, most=1_000_000)
    max_prompts: int = TRAINING(
        40_000, "Prompts trained on in all; two a pair.", least=1, most=MOST_NUMBERED, advanced=False
    )
    layout: Literal["auto", "padded", "shared"] = TRAINING(
        "auto", "Prompts side by side, or their common beginning once."
    )
    compile: bool = TRAINING(False, "Compile the layers (padded only).")
    eval_every: int = TRAINING(
        2_500, "Prompts between validations; 0: at the end only.", least=0, most=MOST_NUMBERED
    )
    patience: int = TRAINING(
        5, "Validations without progress before training stops.", least=1, most=MOST_NUMBERED
    )
    clip: float = TRAINING(1.0, "Largest norm of the gradient.", above=0)
    report_to: Literal["none", "tensorboard", "wandb"] = TRAINING(
        "none", "Where losses are also sent; training.jsonl has them always.", effect=LOSSES, result=False
    )

    dry_run: bool = SPENDING(False, "Count what would be asked; ask nothing.", advanced=False)
    merge: Path | None = OUTPUT(None, "Write the base with this adapter merged into it to --output.")
    output: Path | None = OUTPUT(
        None, "Adapter folder (default: below adapters/, named by the settings).", "-o", effect=WRITTEN
    )

    fail_on: str | None = STATISTICS(
        None,
        "Verdicts that end in exit 4, comma-separated: rejected, inconclusive; a training without a checkpoint that "
        "kept its gates ends so anyway.", advanced=True,
    )  # fmt: skip

    absent = {"contrast", "min_group"}
    presets = {
        # Wang et al. 2024, section 5. It gives no alpha (8 is peft's default), and does not say whether its
        # 140,000 pairs count orders. The form is the one of its pairwise audit, which asks for a ranking of two.
        "paper": {
            "prompt": "wikiproject",
            "train_share": 0.8,
            "form": "order",
            "labels": "random",
            "anchor": "none",
            "group_weight": 0.0,
            "rank": 1,
            "lora_alpha": 8.0,
            "learning_rate": 3e-3,
            "schedule": "constant",
            "warmup": 0.0,
            "prompts_per_step": 4,
            "group_size": 4,
            "max_prompts": 140_000 * ORDERS,
            "pairs_per_item": None,
            "layout": "padded",
            "eval_every": 0,
        }
    }

    @classmethod
    def make(cls, preset: str | None = None, **values: Any) -> Self:
        settings = super().make(preset, **values)
        if settings.loss == "lm" and (preset or "").partition("+")[0] != "paper":
            raise UsageError(
                "--loss lm goes with --preset paper: it trains all of an answer's tokens, and the audit measures two.",
                "leave --loss out",
            )
        return settings

    def check(self) -> None:
        super().check()
        if self.max_prompts < self.prompts_per_step:
            raise UsageError(
                f"--max-prompts {self.max_prompts} is less than one step of {self.prompts_per_step} prompts.",
                "raise it, or lower --prompts-per-step",
            )
        if self.soft_labels and self.labels != "shifted":
            raise UsageError(f"--soft-labels does nothing with --labels {self.labels}.", "leave it out")
        if self.base_model is None and self.merge is None:
            raise UsageError("--base-model names no model.", "for example --base-model ORG/NAME, or a folder")
        if self.merge is not None and self.output is None:
            raise UsageError("--merge needs a folder to write to.", "add --output FOLDER")
