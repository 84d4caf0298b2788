"""vLLM for tests: whether it can be used here, and how it is kept small on a CPU."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar
from urllib.request import ProxyHandler, build_opener

import pytest

from llmfair.backends import vllm
from llmfair.errors import BackendError
from llmfair.io import net
from tests.servers import free_port

T = TypeVar("T")
ENVIRONMENT = {
    "TORCHDYNAMO_DISABLE": "1",
    "OMP_NUM_THREADS": "1",  # several threads for a tiny model's product only wait for each other
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # one process less to start: the engine's is the worker's, too
}
CACHE_BYTES = 64 << 20


def why_not() -> str:
    """Why the engine cannot be used here, or nothing. Whatever `import vllm` raises is a reason."""
    if find_spec("vllm") is None:
        return "vllm is not installed (.ci/vllm makes an environment that has it)"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            vllm.import_vllm()
    except BackendError as error:
        return error.message
    return ""


WHY_NOT = why_not()
needs_vllm = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


def on_loop(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns on dispatch's loop, where engines live."""
    return asyncio.run_coroutine_threadsafe(work, net.loop()).result(timeout=280)


@contextmanager
def shared_engine(**room: Any) -> Iterator[list[Mapping[str, Any]]]:
    """Lets all backends share the engine that the first of them starts; yields what each would have started it with."""
    started: list[Any] = []
    asked: list[Mapping[str, Any]] = []
    start, stop = vllm.start_engine, vllm.stop_engine

    def start_once(arguments: Mapping[str, Any]) -> Any:
        asked.append(arguments)
        if not started:
            started.append(start({**arguments, "kv_cache_memory_bytes": CACHE_BYTES, **room}))
        return started[0]

    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.setattr(vllm, "start_engine", start_once)
        patch.setattr(vllm, "stop_engine", lambda engine: None)
        yield asked
    while started:
        on_loop(_stopped(stop, started.pop()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of sockets that vLLM leaves to the garbage collector
        gc.collect()


async def _stopped(stop: Any, engine: Any) -> None:
    stop(engine)


@contextmanager
def serving(model: Path, flags: Sequence[str], log: Path) -> Iterator[str]:
    """vLLM's own server on loopback of a model, named `base`; yields the base URL."""
    port = free_port()
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model),
        "--served-model-name", "base", "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32",
        "--enforce-eager", "--kv-cache-memory-bytes", str(CACHE_BYTES), *flags,
    ]  # fmt: skip
    environment = {**os.environ, **ENVIRONMENT, "VLLM_NO_USAGE_STATS": "1"}
    with log.open("wb") as file:
        server = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
        try:
            _wait_until_ready(f"http://127.0.0.1:{port}/health", server, log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()
            server.wait(timeout=60)


def _wait_until_ready(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 540
    opener = build_opener(ProxyHandler({}))
    while time.monotonic() < until:
        assert server.poll() is None, log.read_text("utf-8", "replace")[-4000:]
        try:
            with opener.open(url, timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    raise AssertionError(f"the server is not ready: {log.read_text('utf-8', 'replace')[-4000:]}")
