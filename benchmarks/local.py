"""How much micro-batching gains: `python -m benchmarks.local`, tiny models of random weights on the CPU.

The same questions are asked one after the other and 64 at a time: pairs of a decoder by margin and by text (16 tokens),
lists of `llmfair rag` of an encoder-decoder with 4 beams (32 tokens). `--gpu` asks the latter of a model as large as
Flan-T5-Base, in prompts cut to 512 tokens and up to 128 tokens an answer, on one GPU. A tiny model stands for the work
around a model, not for one: a real model's own batches gain as much or more, since its weights are read once for all
rows.
"""

from __future__ import annotations

import argparse
import asyncio
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers

from llmfair.asking.journal import chat_sampling
from llmfair.audits.pairwise.design import make_pair_design
from llmfair.audits.pairwise.settings import PairwiseSettings
from llmfair.audits.rag.design import make_rag_design
from llmfair.audits.rag.settings import RagSettings
from llmfair.audits.subject import Subject
from llmfair.backends.base import BackendOptions
from llmfair.backends.hf import hf
from llmfair.nouns import Chat, Request, Sampling
from tests import models

QUESTIONS, LISTS, IN_FLIGHT = 512, 128, 64
BASE = {"d_model": 768, "d_kv": 64, "d_ff": 2048, "num_layers": 12, "num_heads": 12, "vocab_size": 32128}
"""The measures of Flan-T5-Base."""


def pairs(sampling: Sampling) -> list[Request]:
    """The first questions of a pairwise audit of the sample, in both orders."""
    design = make_pair_design(PairwiseSettings.make(form="letter", pairs=100, noise_share=0.0))
    return requests([chat for probe in design.probes() for chat in design.ranker.chats(probe)], sampling)


def lists(model: Path, sampling: Sampling) -> list[Request]:
    """Questions of the sample beside five items each, cut in the model's own tokens."""
    spec = f"hf:{model}"
    design = make_rag_design(RagSettings.make(model=(spec,), samples=100), Subject(spec))
    chats = [
        design.asked(query).chat(shown)
        for query in design.queries
        for shown in design.lists(query, frozenset())
    ]
    return requests(chats, sampling)


def requests(chats: Sequence[Chat], sampling: Sampling) -> list[Request]:
    return [
        Request(chat, chat_sampling(chat, sampling), f"key {number}", f"probe {number}")
        for number, chat in enumerate(chats)
    ]


async def rate(
    model: Path, asked: Sequence[Request], in_flight: int, arguments: dict[str, str]
) -> tuple[float, float]:
    """Requests answered per second, and milliseconds of CPU for each; the model is loaded before."""
    backend = hf(str(model), BackendOptions(backend_args=arguments))
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


def compare(name: str, model: Path, asked: Sequence[Request], few: int, **arguments: str) -> None:
    """Prints the rates of the first `few` requests one at a time and of all of them together."""
    alone, alone_cpu = asyncio.run(rate(model, asked[:few], 1, arguments))
    together, cpu = asyncio.run(rate(model, asked, IN_FLIGHT, arguments))
    print(
        f"{name:22} one at a time {alone:7.2f}/s {alone_cpu:7.1f} ms CPU   {IN_FLIGHT} in flight "
        f"{together:7.2f}/s {cpu:7.1f} ms CPU   × {together / alone:.1f} ({alone_cpu / cpu:.1f} by CPU)",
        flush=True,
    )


def on_cpu(folder: Path) -> None:
    corpus = "\n".join(one.chat.messages[-1].content for one in pairs(Sampling())[:QUESTIONS])
    model = models.causal(folder / "model", "llama", corpus=corpus)
    for name, dtype, sampling in (
        ("margin", "float32", Sampling(margins=True)),
        ("margin", "bfloat16", Sampling(margins=True)),
        ("text", "float32", Sampling(temperature=1.0)),
    ):
        compare(f"{name} {dtype}", model, pairs(sampling)[:QUESTIONS], QUESTIONS // 8, dtype=dtype)
    model = models.t5(folder / "t5")
    asked = lists(model, Sampling(max_tokens=32))[:LISTS]
    compare("4 beams float32", model, asked, LISTS // 8, num_beams="4")


def on_gpu(folder: Path) -> None:
    model = models.t5(folder / "t5", size=BASE)
    asked = lists(model, Sampling(max_tokens=128))
    print(f"{torch.cuda.get_device_name()}: {len(asked)} prompts of at most 512 tokens")
    compare("4 beams bfloat16", model, asked, LISTS // 8, num_beams="4", dtype="bfloat16")
    print(f"{torch.cuda.max_memory_allocated() / 1e9:.1f} GB of its memory at most")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", action="store_true")
    gpu = parser.parse_args().gpu
    if gpu and not torch.cuda.is_available():
        sys.exit("--gpu: torch finds no GPU")
    print(
        f"Python {platform.python_version()}, torch {torch.__version__} ({torch.get_num_threads()} threads), "
        f"transformers {transformers.__version__}, {platform.system()} {platform.machine()}"
    )
    with tempfile.TemporaryDirectory() as folder:
        (on_gpu if gpu else on_cpu)(Path(folder))


if __name__ == "__main__":
    main()
