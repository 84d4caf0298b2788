"""Settings of everything that asks a model: which, how, for how much, and where the run goes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from llmfair.errors import UsageError
from llmfair.io import secrets
from llmfair.settings.base import ENGINE, IMPORTS, MOST_NUMBERED, MOST_SEED, SENT, Settings, seconds, setting

MOST_REPEATS = 49  # all asked a second time, draws 0 to 97; from 100 on bad answers are asked again


def wished(backend_arg: str) -> bool:
    """Whether it is one of those, `k?=v`, that a model without such an argument leaves out."""
    return backend_arg.partition("=")[0].endswith("?")


@dataclass(frozen=True, kw_only=True)
class SpendingSettings(Settings):
    """How fast a model is asked, and for how much."""

    workers: int | None = setting(
        None,
        "Requests in flight, at each server (default: the backend's own).",
        "Spending",
        flags=("-j",),
        result=False,
        least=1,
        most=1_000,
    )
    adaptive: bool = setting(
        True,
        "Find out how many requests a server takes in flight, up to --workers.",
        "Spending",
        result=False,
        advanced=True,
    )
    rpm: float | None = setting(
        None, "Requests a minute of each server, at most.", "Spending", result=False, advanced=True, least=1
    )
    tpm: float | None = setting(
        None,
        "Tokens a minute of each server, at most: prompts and answers.",
        "Spending",
        result=False,
        advanced=True,
        least=1,
    )
    retries: int = setting(
        8,
        "Further attempts after lost connections and errors of the server (5xx).",
        "Spending",
        result=False,
        advanced=True,
        least=0,
        most=1_000,
    )
    timeout: float = setting(
        120.0, "Seconds until a request counts as lost.", "Spending", result=False, advanced=True
    )
    max_wait: str = setting(
        "30m",
        "Longest time without an answer under rate limits, or that a server asks to wait, such as 90s, 30m, 1h.",
        "Spending",
        result=False,
        advanced=True,
    )
    outage: str = setting(
        "60s",
        "How long servers that all stopped answering are waited for, however many attempts that takes.",
        "Spending",
        result=False,
        advanced=True,
    )
    max_reply: float = setting(
        1.0,
        "Longest reply that is read, in megabytes; a longer one is a failure.",
        "Spending",
        result=False,
        advanced=True,
    )
    max_calls: int | None = setting(
        None,
        "Stop cleanly after N calls of this command; repeated, it continues with N more.",
        "Spending",
        result=False,
        least=1,
        most=MOST_NUMBERED,
    )
    max_cost: float | None = setting(
        None,
        "Stop cleanly before this command costs more, at --price-in and --price-out; repeated, it may again.",
        "Spending",
        result=False,
        advanced=True,
        least=0,
    )
    price_in: float | None = setting(
        None, "Price of a million tokens sent.", "Spending", result=False, advanced=True, least=0
    )
    price_out: float | None = setting(
        None, "Price of a million tokens answered.", "Spending", result=False, advanced=True, least=0
    )
    no_cache: bool = setting(
        False, "Neither read nor write the answers that runs share.", "Spending", result=False, advanced=True
    )
    dry_run: bool = setting(False, "Count what would be asked; ask nothing.", "Spending", result=False)

    def check(self) -> None:
        super().check()
        if (self.price_in is None) != (self.price_out is None):
            raise UsageError("--price-in and --price-out go together.", "each per million tokens")
        if self.max_cost is not None and self.price_in is None:
            raise UsageError("--max-cost needs prices.", "add --price-in and --price-out, per million tokens")
        if not 0 < self.timeout < math.inf:
            raise UsageError(
                f"--timeout is {self.timeout}, but must be positive.", "seconds, for example 120"
            )
        for time in (self.max_wait, self.outage):
            seconds(time)
        if not 0 < self.max_reply < math.inf:
            raise UsageError(
                f"--max-reply is {self.max_reply}, but must be positive.", "megabytes, for example 1"
            )


@dataclass(frozen=True, kw_only=True)
class Asking(SpendingSettings):
    """Which model answers, how, and for how much."""

    model: tuple[str, ...] = setting(
        ("fake:biased",),
        "openai:NAME, hf:NAME, vllm:NAME, fake:… (of lists also bm25, mmr, monot5); repeatable, one run each.",
        "Model",
        flags=("-m",),
        result=False,
        effect=IMPORTS,
    )
    base_url: tuple[str, ...] = setting(
        (),
        "Any OpenAI-compatible server, such as http://127.0.0.1:8000/v1 (default: OPENAI_BASE_URL); repeatable: "
        "servers of one model share its questions.",
        "Model",
        result=False,
        effect=SENT,
    )
    server_name: str | None = setting(
        None,
        "What names, tables and reports call the server (default: host:port).",
        "Model",
        result=False,
        advanced=True,
    )
    wire: Literal["cohere", "voyage", "tei"] = setting(
        "cohere",
        "The form in which rerank:MODEL is asked: as Cohere, Jina, vLLM and most have it, as Voyage, or as TEI.",
        "Model",
        result=False,
        advanced=True,
    )
    system: Literal["auto", "separate", "fold"] = setting(
        "auto",
        "Where the system text goes; fold: into the first user message; auto: there if the template takes no other.",
        "Model",
        result=False,
        advanced=True,
    )
    adapter: Path | None = setting(
        None,
        "Folder of a LoRA adapter: it and its base are asked, one run each.",
        "Model",
        result=False,
        advanced=True,
    )
    adapter_only: bool = setting(
        False, "Ask the adapter alone, not its base too.", "Model", result=False, advanced=True
    )
    backend_arg: tuple[str, ...] = setting(
        (),
        "k=v for the engine of a model in this process, such as dtype=float32; k?=v where it has one; repeatable.",
        "Model",
        result=False,
        advanced=True,
        effect=ENGINE,
    )
    template_arg: tuple[str, ...] = setting(
        (),
        "k=v for the model's chat template, such as enable_thinking=false; repeatable.",
        "Model",
        advanced=True,
    )
    extra: tuple[str, ...] = setting(
        (), "k=JSON merged into every request body, such as top_k=5; repeatable.", "Model", advanced=True
    )

    temperature: float = setting(0.0, "Sampling temperature.", "Sampling", least=0)
    max_tokens: int | None = setting(
        None,
        "Longest answer, in tokens (default: by what is asked).",
        "Sampling",
        advanced=True,
        least=1,
        most=10_000_000,
    )
    model_seed: int = setting(
        0, "Seed sent to the model.", "Sampling", advanced=True, least=-MOST_SEED, most=MOST_SEED
    )
    constrain: bool = setting(
        False,
        "Let the model emit nothing but well-formed answers: none is unparseable, none a refusal "
        "(a server may pass it over).",
        "Sampling",
        advanced=True,
    )
    thinking: bool = setting(
        False, "Room for 4,096 tokens of thoughts beside the answer.", "Sampling", advanced=True
    )

    batch: bool = setting(
        False,
        "Ask through the Batch API: half the price, answers within a day.",
        "Spending",
        result=False,
        advanced=True,
    )

    engine: str = setting(
        "local",
        "Where the model answers: local, in this process or at its server, or ray, in processes of a Ray cluster.",
        "Spending",
        result=False,
        advanced=True,
    )
    ray_workers: int | None = setting(
        None,
        "Processes of the Ray cluster that answer, each with the model (default: 1); alone it means --engine ray.",
        "Spending",
        result=False,
        advanced=True,
        least=1,
        most=1_000,
    )
    ray_address: str | None = setting(
        None,
        "The Ray cluster, or local: one of this command's own (default: RAY_ADDRESS, or the one on this machine).",
        "Spending",
        result=False,
        advanced=True,
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
        if any(not wished(one) for one in self.backend_arg):
            yield "backend_args", "--backend-arg"

    def check(self) -> None:
        super().check()
        if self.max_cost is not None and self.batch:
            raise UsageError(
                "--max-cost stops between calls, but a batch is paid as a whole.", "use --max-calls"
            )
        self.check_engine()
        if self.on_ray and (self.batch or len(self.base_url) > 1):
            flag = "--batch" if self.batch else "a second --base-url"
            raise UsageError(f"{flag} and Ray do not go together.", "leave one of them out")
        secret = next((one.partition("=")[0] for one in self.extra if secrets.written(one) != one), None)
        if self.batch and secret is not None:
            raise UsageError(
                f"--batch sends a file that is kept, and --extra {secret} is secret.",
                "leave it out, or ask without --batch",
            )

    def check_engine(self) -> None:
        """Raises UsageError for an engine that is none."""
        if self.engine not in ("local", "ray"):
            raise UsageError(
                f"--engine '{self.engine}' is neither local nor ray.", "for example --engine ray"
            )
