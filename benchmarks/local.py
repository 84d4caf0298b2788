"""How much micro-batching gains: `python -m benchmarks.local`, a tiny model of random weights on the CPU.

The same questions of a pairwise audit are asked one after the other and 64 at a time; answers by margin and by text
(16 tokens). The tiny model stands for the work around a model, not for one: a real model's own batches gain as much
or more, since its weights are read once for all rows.
"""

from __future__ import annotations

import asyncio
import platform
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers

from llmfair.asking.one_chat import chat_sampling
from llmfair.audits.pairwise.making import make_pair_design
from llmfair.audits.pairwise.settings import PairwiseSettings
from llmfair.backends.base import BackendOptions
from llmfair.backends.hf import hf
from llmfair.records import Request, Sampling
from tests import models

QUESTIONS, IN_FLIGHT = 512, 64


def questions(sampling: Sampling) -> list[Request]:
    """The first questions of a pairwise audit of the sample, in both orders."""
    design = make_pair_design(PairwiseSettings.make(form="letter", pairs=100, noise_share=0.0))
    chats = [chat for probe in design.probes() for chat in design.ranker.chats(probe)][:QUESTIONS]
    return [
        Request(chat, chat_sampling(chat, sampling), f"key {number}", f"probe {number}")
        for number, chat in enumerate(chats)
    ]


async def rate(model: Path, asked: Sequence[Request], in_flight: int, dtype: str) -> tuple[float, float]:
    """Requests answered per second, and milliseconds of CPU for each; the model is loaded before."""
    backend = hf(str(model), BackendOptions(backend_args={"dtype": dtype}))
    await backend.open()
    room = asyncio.Semaphore(in_flight)

    async def ask(request: Request) -> None:
        async with room:
            await backend.complete(request)

    try:
        await asyncio.gather(*map(ask, asked[:in_flight]))  # loads and warms up
        started, worked = time.perf_counter(), time.process_time()
        await asyncio.gather(*map(ask, asked))
        seconds, cpu = time.perf_counter() - started, time.process_time() - worked
        return len(asked) / seconds, 1000 * cpu / len(asked)
    finally:
        await backend.close()


def main() -> None:
    print(
        f"Python {platform.python_version()}, torch {torch.__version__} ({torch.get_num_threads()} threads), "
        f"transformers {transformers.__version__}, {platform.system()} {platform.machine()}"
    )
    with tempfile.TemporaryDirectory() as folder:
        corpus = "\n".join(one.chat.messages[-1].content for one in questions(Sampling()))
        model = models.causal(Path(folder) / "model", "llama", corpus=corpus)
        for name, dtype, sampling in (
            ("margin", "float32", Sampling(margins=True)),
            ("margin", "bfloat16", Sampling(margins=True)),
            ("text", "float32", Sampling(temperature=1.0)),
        ):
            asked = questions(sampling)
            alone, alone_cpu = asyncio.run(rate(model, asked[: QUESTIONS // 8], 1, dtype))
            together, cpu = asyncio.run(rate(model, asked, IN_FLIGHT, dtype))
            print(
                f"{name:6} {dtype:9} one at a time {alone:7.1f}/s {alone_cpu:6.1f} ms CPU   {IN_FLIGHT} in flight "
                f"{together:7.1f}/s {cpu:6.1f} ms CPU   × {together / alone:.1f} ({alone_cpu / cpu:.1f} by CPU)"
            )


if __name__ == "__main__":
    main()
