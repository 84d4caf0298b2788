"""How fast an adapter is trained: `python -m benchmarks.lora`, a tiny model of random weights on the CPU.

`--gpu` takes Mistral 7B's configuration with random weights in bfloat16 on the device: nothing is downloaded, and what
the weights are does not matter to the time. Both layouts run through `llmfair.tuning.lora.train`, checkpoint and log
included, and are timed by that log; `naive` is what a plain script does: four prompts a batch with an attention mask,
a language model's loss over every position and the whole vocabulary.

The floor of a layout is what the machine's own matrix product would take for the products of the model's layers:
forward and the gradient of the inputs, 4 operations a weight and token (the weights are frozen).
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
import peft
import torch
import transformers

from llmfair.backends.local import LocalModel
from llmfair.checkpoints import Checkpoint, Place
from llmfair.settings.commands import FinetuneSettings
from llmfair.tuning.drawing import STRATA, Example, ExampleGroup
from llmfair.tuning.head import attach
from llmfair.tuning.lora import LOG, train
from llmfair.tuning.results import Validation

ANSWERS = (3, 4)
WARM_UP = 2
"""Steps that are not timed."""
SIZES = {
    "tiny": {
        "vocab_size": 4096, "hidden_size": 256, "intermediate_size": 896, "num_hidden_layers": 4,
        "num_attention_heads": 8, "num_key_value_heads": 2,
    },
    "7b": {
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Work:
    """Prompts of a query share `prefix` tokens and have about `suffix` of their own; `group` of them stay together."""

    prefix: int = 68
    suffix: int = 43
    group: int = 64
    per_step: int = 256
    steps: int = 10

    def groups(self, vocabulary: int, count: int = 32) -> list[ExampleGroup]:
        """Groups of random tokens, with lengths as titles have them."""
        rng = np.random.default_rng(0)

        def prompt(shared: Any) -> Any:
            own = rng.integers(5, vocabulary, max(2, self.suffix + int(rng.integers(-4, 5))))
            return np.concatenate([shared, own]).astype(np.int32)

        made = []
        for _ in range(count):
            shared = rng.integers(5, vocabulary, self.prefix)
            made.append(
                tuple(
                    Example(prompt(shared), prompt(shared), ANSWERS, STRATA[place % 3], place % 2, 1.0)
                    for place in range(self.group // 2)
                )
            )
        return made


@dataclass(frozen=True)
class Row:
    """One way to train. `mfu`: the share of the ceiling that its products take, which is that of its floor."""

    name: str
    prompts_per_second: float
    mfu: float
    peak_gib: float | None
    note: str = ""


def load(size: str, device: str, dtype: str) -> LocalModel:
    """A model of random weights, as `load_model` would return it; without a tokenizer, for there are no texts."""
    from transformers import AutoModelForCausalLM, MistralConfig

    config = MistralConfig(
        **SIZES[size], max_position_embeddings=4096, sliding_window=None, tie_word_embeddings=False
    )
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(
            config, dtype=getattr(torch, dtype), attn_implementation="sdpa"
        )
    checkpoint = Checkpoint(f"random {size}", config.to_dict(), "", f"random {size}")
    tokenizer = SimpleNamespace(pad_token_id=0)
    return LocalModel(model.eval(), tokenizer, None, checkpoint, Place(device, dtype, "benchmark"))


def weights_of(size: str) -> int:
    """Weights in the matrix products of all layers."""
    sizes = SIZES[size]
    hidden, inner = sizes["hidden_size"], sizes["intermediate_size"]
    keys = hidden * sizes["num_key_value_heads"] // sizes["num_attention_heads"]
    return sizes["num_hidden_layers"] * (2 * hidden * (hidden + keys) + 3 * hidden * inner)


def ceiling(device: str, dtype: str, seconds: float = 2.0) -> float:
    """Operations per second of one large matrix product, the best of the repetitions."""
    width = 8192 if device.startswith("cuda") else 1024
    one, other = (torch.randn(width, width, device=device, dtype=getattr(torch, dtype)) for _ in range(2))
    best, until = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < until:
        started = time.perf_counter()
        for _ in range(10):
            one @ other
        _wait(device)
        best = min(best, (time.perf_counter() - started) / 10)
    return float(2 * width**3 / best)


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def product(
    model: LocalModel, groups: Sequence[ExampleGroup], work: Work, **changes: Any
) -> tuple[float, str]:
    """Prompts per second through the product's own training, and why its layout is the one it is."""
    recipe = replace(
        FinetuneSettings(
            prompts_per_step=work.per_step, group_size=work.group, eval_every=0,
            max_prompts=work.per_step * (work.steps + WARM_UP),
        ),
        **changes,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        ended = train(model, groups, lambda: Validation(1.0, {}), recipe, Path(folder))
        lines = [json.loads(line) for line in (Path(folder) / LOG).read_text().splitlines()]
    model.model = model.model.unload()
    seconds = [line["seconds"] for line in lines if "loss" in line][WARM_UP:]
    why = ended.layout_why if ended.layout != changes["layout"] or "differ" in ended.layout_why else ""
    return work.per_step / median(seconds), why


def naive(model: LocalModel, groups: Sequence[ExampleGroup], work: Work, batch: int = 4) -> float:
    """Prompts per second of a plain loop of small batches."""
    attach(model, FinetuneSettings())
    wrapped, device = model.model, model.place.device
    wrapped.train()
    prompts = [ids for group in groups for example in group for ids in example.prompts]
    weights = [values for values in wrapped.parameters() if values.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=1e-3)
    seconds = []
    for step in range(work.steps * 2 + WARM_UP):
        rows = [torch.from_numpy(ids).long() for ids in prompts[step * batch : (step + 1) * batch]]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device)
        mask = (torch.arange(ids.shape[1])[None] < torch.tensor([[len(row)] for row in rows])).to(device)
        started = time.perf_counter()
        low = model.place.dtype == "bfloat16"
        with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=low):
            labels = ids.masked_fill(~mask, -100)
            loss = wrapped(input_ids=ids, attention_mask=mask, labels=labels, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        _wait(device)
        seconds.append(time.perf_counter() - started)
    model.model = wrapped.unload()
    return batch / median(seconds[WARM_UP:])


def measure(size: str, device: str, dtype: str, work: Work, compiled: bool = False) -> dict[str, Any]:
    """Every way to train, beside the floors of this machine."""
    model = load(size, device, dtype)
    groups = work.groups(SIZES[size]["vocab_size"])
    peak, weights = ceiling(device, dtype), weights_of(size)
    whole, shared = work.prefix + work.suffix, work.suffix + work.prefix / work.group
    cuda = device.startswith("cuda")
    ways: dict[str, tuple[float, Any]] = {
        "naive": (whole, lambda: (naive(model, groups, work), "")),
        "padded": (whole, lambda: product(model, groups, work, layout="padded")),
        "shared": (shared, lambda: product(model, groups, work, layout="shared")),
    }
    if compiled:
        ways["compiled"] = (whole, lambda: product(model, groups, work, layout="padded", compile=True))
    rows = []
    for name, (tokens, way) in ways.items():
        if cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        rate, note = way()
        memory = torch.cuda.max_memory_allocated() / 2**30 if cuda else None
        # Without padding: what is padded away counts against a layout.
        rows.append(Row(name, rate, 4 * weights * tokens * rate / peak, memory, note))
        print(shown(rows[-1], rows[0]), flush=True)
    return {
        "device": torch.cuda.get_device_name() if cuda else platform.machine(),
        "size": size,
        "dtype": dtype,
        "work": asdict(work),
        "ceiling_tflops": peak / 1e12,
        "floors": {"padded": peak / (4 * weights * whole), "shared": peak / (4 * weights * shared)},
        "versions": {m.__name__: m.__version__ for m in (torch, transformers, peft)},
        "rows": [asdict(row) for row in rows],
    }


def shown(row: Row, first: Row) -> str:
    rate = row.prompts_per_second
    parts = [
        f"{row.name:9}{rate:8.1f} prompts/s",
        f"× naive {rate / first.prompts_per_second:5.1f}",
        f"MFU {row.mfu:4.0%}",
        f"140,000 prompts in {140_000 / rate / 60:7.1f} min",
    ]
    if row.peak_gib is not None:
        parts.append(f"peak {row.peak_gib:.1f} GiB")
    return "   ".join([*parts, f"({row.note})"] if row.note else parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--gpu", action="store_true", help="Mistral 7B's configuration in bfloat16 on the GPU"
    )
    parser.add_argument("--compile", action="store_true", help="compiled layers too")
    for name, value in asdict(Work()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    parser.add_argument("--json", type=Path, help="write everything measured here")
    asked = parser.parse_args()
    if asked.gpu and not torch.cuda.is_available():
        sys.exit("--gpu: torch finds no GPU")
    work = Work(**{name: getattr(asked, name) for name in asdict(Work())})
    if not asked.gpu:
        work = replace(work, steps=min(work.steps, 4), per_step=min(work.per_step, 2 * work.group))
    size, device, dtype = ("7b", "cuda", "bfloat16") if asked.gpu else ("tiny", "cpu", "float32")
    print(
        f"{size}: {weights_of(size) / 1e6:,.0f} M weights in the layers, {dtype} on "
        f"{torch.cuda.get_device_name() if asked.gpu else f'{torch.get_num_threads()} CPU threads'}; "
        f"{work.prefix} shared + {work.suffix} own tokens, groups of {work.group}\n"
        f"torch {torch.__version__}, transformers {transformers.__version__}, peft {peft.__version__}"
    )
    found = measure(size, device, dtype, work, asked.compile)
    floors = found["floors"]
    print(
        f"matrix product {found['ceiling_tflops']:.2f} TFLOP/s: floors {floors['padded']:.1f} prompts/s padded, "
        f"{floors['shared']:.1f} shared"
    )
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
