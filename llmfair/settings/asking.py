"""Settings of everything that asks a model: which, how, for how much, and where the run goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from llmfair.errors import UsageError
from llmfair.io import secrets
from llmfair.settings.declaration import (
    ENGINE,
    IMPORTS,
    MODEL,
    MOST_NUMBERED,
    MOST_SEED,
    SAMPLING,
    SENT,
    SPENDING,
    TIME,
    Form,
    Settings,
)

MOST_REPEATS = 49  # all asked a second time, draws 0 to 97; from 100 on bad answers are asked again


ENGINES = Form(("local", "ray").index, "local or ray")


def wished(backend_arg: str) -> bool:
    """Whether it is one of those, `k?=v`, that a model without such an argument leaves out."""
    return backend_arg.partition("=")[0].endswith("?")


@dataclass(frozen=True, kw_only=True)
class SpendingSettings(Settings):
    """How fast a model is asked, and for how much."""

    workers: int | None = SPENDING(
        None,
        "Requests in flight, at each server (default: the backend's own).",
        short="-j",
        least=1,
        most=1_000,
        advanced=False,
    )
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
        "60s",
        "How long servers that all stopped answering are waited for, however many attempts that takes.",
        form=TIME,
    )
    max_reply: float = SPENDING(
        1.0, "Longest reply that is read, in megabytes; a longer one is a failure.", above=0
    )
    max_calls: int | None = SPENDING(
        None,
        "Stop cleanly after N calls of this command; repeated, it continues with N more.",
        least=1,
        most=MOST_NUMBERED,
        advanced=False,
    )
    max_cost: float | None = SPENDING(
        None,
        "Stop cleanly before this command costs more, at --price-in and --price-out; repeated, it may again.",
        least=0,
    )
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

    model: tuple[str, ...] = MODEL(
        ("fake:biased",),
        "openai:NAME, hf:NAME, vllm:NAME, fake:… (of lists also bm25, mmr, monot5); repeatable, one run each.",
        short="-m",
        effect=IMPORTS,
        result=False,
        advanced=False,
    )
    base_url: tuple[str, ...] = MODEL(
        (),
        "Any OpenAI-compatible server, such as http://127.0.0.1:8000/v1 (default: OPENAI_BASE_URL); repeatable: "
        "servers of one model share its questions.",
        effect=SENT,
        result=False,
        advanced=False,
    )
    server_name: str | None = MODEL(
        None, "What names, tables and reports call the server (default: host:port).", result=False
    )
    wire: Literal["cohere", "voyage", "tei"] = MODEL(
        "cohere",
        "The form in which rerank:MODEL is asked: as Cohere, Jina, vLLM and most have it, as Voyage, or as TEI.",
        result=False,
    )
    system: Literal["auto", "separate", "fold"] = MODEL(
        "auto",
        "Where the system text goes; fold: into the first user message; auto: there if the template takes no other.",
        result=False,
    )
    adapter: Path | None = MODEL(
        None, "Folder of a LoRA adapter: it and its base are asked, one run each.", result=False
    )
    adapter_only: bool = MODEL(False, "Ask the adapter alone, not its base too.", result=False)
    backend_arg: tuple[str, ...] = MODEL(
        (),
        "k=v for the engine of a model in this process, such as dtype=float32; k?=v where it has one; repeatable.",
        effect=ENGINE,
        result=False,
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
        least=1,
        most=1_000,
    )
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
