"""vLLM's engine in child processes of this one: what it is started with, how it starts and how it ends."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from llmfair.checkpoints import Checkpoint
from llmfair.errors import BackendError, UsageError, did_you_mean, line_of

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

T = TypeVar("T")

INSTALL = (
    "pip install 'llmfair[vllm]' (it needs an NVIDIA GPU); without one try hf:, or a server with --base-url"
)
LOG_HINT = "the engine's own words are above; VLLM_LOGGING_LEVEL=INFO shows more of them"
LONGEST_CONTEXT = (
    8192  # keys and values of one whole context must fit the memory, and audits need no longer one
)
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


def engine_arguments(checkpoint: Checkpoint, dtype: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What the engine is started with: ours, and over it what --backend-arg says. Raises UsageError."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms import current_platform

    known = set(AsyncEngineArgs.__dataclass_fields__)
    for key in given:
        if key not in known:
            raise UsageError(
                f"vllm: has no --backend-arg '{key}'.{did_you_mean(key, known)}",
                "it takes the settings of vLLM's AsyncEngineArgs, for example tensor_parallel_size=2",
            )
    ours: dict[str, Any] = {
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
        ours |= {"enforce_eager": True, "kv_cache_memory_bytes": cpu_cache_bytes(), "block_size": 32}
        # A seeded request whose prompt is cut in two ends the engine: "CPU Generator does not use offset".
        ours |= {"enable_chunked_prefill": False}
    # Logits of 16 bits make the labels of a balanced model equal, and a tie goes to the lower token id.
    overrides = {"head_dtype": "float32", **(given.get("hf_overrides") or {})}
    return ours | dict(given) | {"dtype": dtype, "hf_overrides": overrides}


def start_engine(arguments: Mapping[str, Any]) -> AsyncLLM:
    """An engine, started in the calling thread; it belongs to the loop of its first request.

    A terminal sends Ctrl-C to all its processes, but answers in flight are still wanted then. So the engine's
    processes inherit a mask that holds it back.
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


def stop_engine(engine: AsyncLLM) -> None:
    """Ends the engine's processes, which takes seconds; on the loop that the engine belongs to."""
    engine.shutdown(timeout=STOP_SECONDS)
    # Its finalizer does it again, when the interpreter ends and what it calls is gone.
    engine.shutdown = lambda timeout=None: None


async def in_thread(start: Callable[[], T]) -> T:
    """What `start` returns, from a thread that the end of the process does not wait for.

    When this is cancelled, engines that are still starting are killed.
    """
    loop = asyncio.get_running_loop()
    started: asyncio.Future[T] = loop.create_future()

    def settle(settled: Callable[[], None]) -> None:
        if not started.done():
            settled()

    def run() -> None:
        try:
            result = start()
        except BaseException as error:
            loop.call_soon_threadsafe(settle, lambda error=error: started.set_exception(error))
        else:
            loop.call_soon_threadsafe(settle, lambda: started.set_result(result))

    threading.Thread(target=run, name="llmfair-vllm", daemon=True).start()
    try:
        return await started
    except asyncio.CancelledError:
        for child in multiprocessing.active_children():
            if child.name.startswith("EngineCore"):
                child.kill()
        raise


def cpu_cache_bytes() -> int:
    """Memory for keys and values on a CPU; by default vLLM wants nearly all there is."""
    import psutil

    return min(CPU_CACHE_BYTES, int(psutil.virtual_memory().available) // 4)
