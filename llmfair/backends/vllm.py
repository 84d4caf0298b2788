"""`vllm:NAME`: vLLM in this process, every chain of questions at its own pace in one running batch.

Prompts are rendered and tokenized here and go to the engine as token ids, one `generate` a request. The engine
works in child processes, which import the main script anew: it needs `if __name__ == "__main__":`.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from llmfair import checkpoints
from llmfair.backends.base import BROKEN_OFF, BackendOptions, Transient, broken_off, require_room
from llmfair.backends.local import ChatTemplate, label_answers
from llmfair.backends.openai import finish_of, structured
from llmfair.errors import BackendError, MissingExtra, Rejected, UsageError, did_you_mean, line_of
from llmfair.io.net import in_thread
from llmfair.nouns import Completion, Finish, Request
from llmfair.registry import register

# vLLM's engine in child processes of this one: what it is started with, how it starts and how it ends.


INSTALL = (
    "pip install 'llmfair[vllm]' (it needs an NVIDIA GPU); without one try hf:, or a server with --base-url"
)
LOG_HINT = "the engine's own words are above; VLLM_LOGGING_LEVEL=INFO shows more of them"
LONGEST_CONTEXT = 8192
"""Keys and values of one whole context must fit the memory, and audits need no longer one."""
CPU_CACHE_BYTES = 4 << 30
STOP_SECONDS = 30.0  # a process that is killed before leaves shared memory behind
_ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # stdout has our results
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # a fork would copy the locks of our other threads
}


def import_vllm() -> Any:
    """The vllm package, told to be quiet. Raises BackendError for one that cannot be used here."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import vllm
        import vllm.v1.engine.async_llm
    except Exception as error:  # a torch that does not fit makes it raise anything
        raise BackendError(f"vLLM is installed but cannot be used: {line_of(error)}.", INSTALL) from error
    return vllm


def start_engine(arguments: Mapping[str, Any]) -> Any:
    """An engine, started in the calling thread; it belongs to the loop of its first request.

    Its processes inherit a mask that holds Ctrl-C back: answers in flight are still wanted then.
    """
    from multiprocessing import resource_tracker

    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    resource_tracker.ensure_running()  # it would lift the mask if it were started after
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def stop_engine(engine: Any) -> None:
    """Ends the engine's processes, which takes seconds; on the loop that the engine belongs to."""
    engine.shutdown(timeout=STOP_SECONDS)
    # Its finalizer does it again, when the interpreter ends and what it calls is gone.
    engine.shutdown = lambda timeout=None: None


LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # vLLM's MaxLoRARanks
# What answers are read from and where they come from; a user's own would make them another model's.
_OURS = {
    "model", "revision", "tokenizer", "tokenizer_revision", "enable_lora", "max_lora_rank", "logprobs_mode",
}  # fmt: skip
# Where and how fast a model runs, not which one it is: no part of its identity.
_PLACEMENT = {
    "block_size", "cpu_offload_gb", "disable_log_stats", "download_dir", "enable_chunked_prefill", "enforce_eager",
    "gpu_memory_utilization", "kv_cache_memory_bytes", "load_format", "max_model_len", "max_num_batched_tokens",
    "max_num_seqs", "pipeline_parallel_size", "tensor_parallel_size", "use_tqdm_on_load",
}  # fmt: skip
# What vLLM would leave out of an adapter, or cannot load.
_UNSERVED = (
    "use_dora", "lora_bias", "modules_to_save", "trainable_token_indices", "layer_replication",
    "alora_invocation_tokens", "use_bdlora", "use_qalora",
)  # fmt: skip
_CHANGES_BASE = ("pissa", "olora", "corda", "loftq")


@register("backend", "vllm")
def vllm(name: str, options: BackendOptions) -> VLLM:
    """A model by folder or repository. Raises MissingExtra, UsageError, and BackendError for one not to be had."""
    if find_spec("vllm") is None:
        raise MissingExtra("the vllm backend is not installed.", INSTALL)
    return VLLM(checkpoints.find_checkpoint(name), options)


class VLLM:
    """A model in vLLM's engine; `facts` say what runs and how, for the manifest, once it is open."""

    capabilities = frozenset(
        {"adapter", "backend_args", "constrain", "forced_margins", "margins", "seed", "system_role"}
    )
    max_workers = 256
    reads_about = False

    def __init__(self, checkpoint: checkpoints.Checkpoint, options: BackendOptions) -> None:
        self.checkpoint = checkpoint
        self.options = options
        self.arguments = read_arguments(options.backend_args)
        self.dtype = str(self.arguments.get("dtype", "auto"))
        if self.dtype == "auto" and checkpoint.dtype in checkpoints.DTYPES:
            self.dtype = checkpoint.dtype  # vLLM's own "auto" rounds float32 to 16 bits
        self.adapter: checkpoints.Adapter | None = None
        parts = ["vllm", checkpoint.identity, self.dtype]
        if options.system == "fold":
            parts.append("fold")
        parts += [
            f"{key}={json.dumps(value, sort_keys=True)}"
            for key, value in sorted(self.arguments.items())
            if key not in _PLACEMENT | {"dtype"}
        ]
        if options.adapter is not None:
            self.adapter = checkpoints.read_adapter(options.adapter, checkpoint)
            require_servable(self.adapter)
            # An engine with room for adapters rounds differently, so its base is another model than without.
            adapter = f"adapter={self.adapter.sha256[:16]}"
            parts.append(adapter if options.adapted else f"max_lora_rank={lora_rank(self.adapter)}")
        self.identity = " ".join(parts)
        self.facts = dict[str, Any]()
        self.gpus = int(self.arguments.get("tensor_parallel_size", 1))
        self._engine: Any = None
        self._lora: Any = None
        self._numbers = itertools.count()
        self._broken_off = set[str]()

    async def open(self) -> None:
        """Starts the engine. Raises BackendError, and UsageError for what it or the chat template does not take."""
        try:
            engine, tokenizer = await asyncio.wrap_future(in_thread(self._start))
        except asyncio.CancelledError:  # engines that are still starting would outlive the command
            for child in multiprocessing.active_children():
                if child.name.startswith("EngineCore"):
                    child.kill()
            raise
        self._engine = engine
        self._template = ChatTemplate(tokenizer, self.options.system, self.options.template_args)
        self._room: int = engine.model_config.max_model_len
        self.facts = {
            "checkpoint": self.checkpoint.identity,
            "place": f"{engine.vllm_config.device_config.device_type}; {self.dtype}, output layer in float32",
            "max_model_len": self._room,
            "system": "folded" if self._template.folded else "separate",
            "versions": {
                "vllm": import_vllm().__version__,  # some builds have another name
                **{package: version(package) for package in ("torch", "transformers")},
            },
        }
        if self.adapter is not None and self.options.adapted:
            self.adapter.require_template(self._template.sha256)
            self._lora = await self._load(self.adapter)

    async def close(self) -> None:
        engine, self._engine, self._lora = self._engine, None, None
        if engine is not None:
            stop_engine(engine)

    async def complete(self, request: Request) -> Completion:
        """One answer. Raises ContextTooLong before the engine sees the prompt, Transient, Rejected, BackendError."""
        messages, expects = request.chat.messages, request.chat.expects
        labels: Mapping[str, int] = {}
        if request.sampling.margins:
            ids, labels = self._template.label_ids(messages, label_answers(expects))
            parameters = margin_parameters(labels)
        else:
            ids = self._template.ids(messages)
            parameters = text_parameters(request)
        require_room(request, len(ids), parameters.max_tokens or 0, self._room, self.checkpoint.name)
        started = time.perf_counter()
        output = await self._generate(ids, parameters, self._lora)
        seconds = time.perf_counter() - started
        (answer,) = output.outputs
        if answer.finish_reason in BROKEN_OFF:
            raise broken_off(request.key, self._broken_off, "vLLM", LOG_HINT)
        if labels:
            # One token is the whole answer to a question for margins, and its limit is no end that came too soon.
            text, finish = self._template.tokenizer.decode(answer.token_ids).strip(), Finish.STOP
        else:
            text, finish = answer.text, finish_of(answer.finish_reason, answer.text, expects)
        return Completion(
            text,
            finish,
            prompt_tokens=len(ids),
            completion_tokens=len(answer.token_ids),
            cached_tokens=output.num_cached_tokens,
            logprobs=label_logprobs(output, labels) if labels else None,
            model=self.checkpoint.name,
            seconds=seconds,
        )

    async def _generate(self, ids: Sequence[int], parameters: Any, lora: Any) -> Any:
        """What the engine makes of one prompt. Raises Transient, Rejected, and BackendError when it has died."""
        from vllm.exceptions import VLLMClientError
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        assert self._engine is not None, "the backend is open"
        name = f"llmfair-{next(self._numbers)}"
        prompt = {"prompt_token_ids": list(ids)}
        result = None
        try:
            async for output in self._engine.generate(prompt, parameters, name, lora_request=lora):
                result = output
        except EngineDeadError:
            raise BackendError(
                "the vLLM engine has died.", f"{LOG_HINT}; the same command continues"
            ) from None
        except EngineGenerateError as error:
            raise Transient(f"vLLM fails: {line_of(error.__cause__ or error)}") from None
        except (VLLMClientError, ValueError) as error:
            raise Rejected(f"vLLM refuses the request: {line_of(error)}.") from None
        assert result is not None, "the engine ends a request with its output"
        return result

    def _start(self) -> tuple[Any, Any]:
        """The engine, started with our settings and over them what --backend-arg says, and the tokenizer."""
        import_vllm()
        from transformers import AutoTokenizer
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.platforms import current_platform

        checkpoint, settings = self.checkpoint, self.arguments
        names = AsyncEngineArgs.__dataclass_fields__
        if unknown := next((name for name in settings if name not in names), None):
            raise UsageError(
                f"vllm: has no --backend-arg '{unknown}'.{did_you_mean(unknown, names)}",
                "it takes the fields of vLLM's AsyncEngineArgs, for example tensor_parallel_size=2",
            )
        ours = {
            "model": checkpoint.source,
            "revision": checkpoint.revision,
            "tokenizer_revision": checkpoint.revision,
            "max_model_len": min(checkpoint.context or LONGEST_CONTEXT, LONGEST_CONTEXT),
            "seed": 0,
            "enable_prefix_caching": True,
            # By name: under "auto" the first request decides, and xgrammar cannot read a grammar of permutations.
            "structured_outputs_config": {"backend": "guidance", "disable_any_whitespace": True},
            "logprobs_mode": "raw_logprobs",
            "disable_log_stats": True,
            "enable_log_requests": False,
            "use_tqdm_on_load": False,
        }
        if current_platform.is_cpu():
            import psutil

            # By default vLLM wants nearly all the memory there is for keys and values.
            cache = min(CPU_CACHE_BYTES, int(psutil.virtual_memory().available) // 4)
            ours |= {"enforce_eager": True, "kv_cache_memory_bytes": cache, "block_size": 32}
            # A seeded request whose prompt is cut in two ends the engine: "CPU Generator does not use offset".
            ours |= {"enable_chunked_prefill": False}
        # Logits of 16 bits make the labels of a balanced model equal, and a tie goes to the lower token id.
        overrides = {"head_dtype": "float32", **(settings.get("hf_overrides") or {})}
        arguments = ours | settings | {"dtype": self.dtype, "hf_overrides": overrides}
        if self.adapter is not None:
            arguments |= {"enable_lora": True, "max_lora_rank": lora_rank(self.adapter)}
        try:
            tokenizer = AutoTokenizer.from_pretrained(checkpoint.source, revision=checkpoint.revision)
            tokenizer.model_max_length = sys.maxsize  # a prompt that is too long is said by ourselves
            return start_engine(arguments), tokenizer
        except Exception as error:  # of any kind, since the engine's own may come from anywhere
            raise BackendError(
                f"vLLM does not start {self.checkpoint.name}: {line_of(error)}.", LOG_HINT
            ) from error

    # The adapter

    async def _load(self, adapter: checkpoints.Adapter) -> Any:
        """The adapter, once it is seen to do something. Raises BackendError."""
        from vllm.lora.request import LoRARequest

        number = int(adapter.sha256[:7], 16) + 1  # what an engine knows an adapter by, from 1
        lora = LoRARequest(adapter.folder.name, number, str(adapter.folder.resolve()))

        async def margins_with(lora: Any) -> list[Mapping[str, float]]:
            """The probes' margins, asked alone and past the cache, so that nothing but the adapter can move them."""
            margins = list[Mapping[str, float]]()
            for messages in checkpoints.PROBES:
                ids, labels = self._template.label_ids(messages, label_answers(checkpoints.LABELS))
                parameters = margin_parameters(labels)
                parameters.skip_reading_prefix_cache = True
                margins.append(label_logprobs(await self._generate(ids, parameters, lora), labels))
            return margins

        # Both in one engine: two engines differ by more than a small adapter does.
        checkpoints.require_effect(adapter.folder, await margins_with(None), await margins_with(lora))
        return lora


def margin_parameters(labels: Mapping[str, int]) -> Any:
    """One token, and the log-probabilities of exactly these; never under a constraint, which renormalises them."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=0.0,
        max_tokens=1,
        logprob_token_ids=list(labels.values()),
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def label_logprobs(output: Any, labels: Mapping[str, int]) -> dict[str, float]:
    """Each label's log-probability as the next token, over the whole vocabulary."""
    (first,) = output.outputs[0].logprobs
    return {label: float(first[token].logprob) for label, token in labels.items()}


def text_parameters(request: Request) -> Any:
    """How a request's answer is drawn, made anew for each. Raises UsageError for an --extra that vLLM has not."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    sampling = request.sampling
    extra = {key: value for key, value in sampling.extra.items() if key != "chat_template_kwargs"}
    fields = {
        "temperature": sampling.temperature,
        "max_tokens": sampling.max_tokens,
        # A seed of the request's own: with one for all, prompts that resemble each other get the same draws.
        "seed": int.from_bytes(hashlib.sha256(request.key.encode()).digest()[:7]),
        "top_p": 1.0 if sampling.top_p is None else sampling.top_p,
        "stop": list(sampling.stop),
        "output_kind": RequestOutputKind.FINAL_ONLY,
    }
    if sampling.constrain:
        fields["structured_outputs"] = StructuredOutputsParams(**structured(request.chat.expects))
    try:
        return SamplingParams(**fields | extra)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"vLLM does not take these sampling settings: {line_of(error)}.",
            "--extra takes fields of vLLM's SamplingParams, for example top_k=5",
        ) from None


def read_arguments(settings: Mapping[str, str]) -> dict[str, Any]:
    """`--backend-arg` as the engine takes it: values that are JSON as such. Raises UsageError for one of ours."""
    arguments = dict[str, Any]()
    for key, text in settings.items():
        if key in _OURS:
            raise UsageError(
                f"--backend-arg {key} is not yours to set.",
                "name the model with -m and the adapter with --adapter",
            )
        try:
            arguments[key] = json.loads(text)
        except ValueError:
            arguments[key] = text
    return arguments


def lora_rank(adapter: checkpoints.Adapter) -> int:
    """The smallest room for an adapter's rank that vLLM has. Raises UsageError."""
    rank = next((rank for rank in LORA_RANKS if rank >= adapter.rank), None)
    if rank is None:
        raise UsageError(
            f"the adapter {adapter.folder} has rank {adapter.rank}; vLLM takes at most {LORA_RANKS[-1]}.",
            "use hf:",
        )
    return rank


def require_servable(adapter: checkpoints.Adapter) -> None:
    """Raises UsageError for an adapter that vLLM would refuse, or load in part."""
    settings = adapter.settings
    lora_rank(adapter)
    plain = {**dict.fromkeys(_UNSERVED), "peft_type": "LORA", "bias": "none"}
    reasons = [key for key, value in plain.items() if (settings.get(key) or value) != value]
    if str(settings.get("init_lora_weights")).lower().startswith(_CHANGES_BASE):
        reasons.append("init_lora_weights")
    listed = ", ".join(f"{key}={settings[key]}" for key in reasons)
    if reasons:
        raise UsageError(
            f"vLLM cannot serve the adapter {adapter.folder}: it has {listed}.",
            "use hf:, or train a plain LoRA adapter",
        )
