"""The answer head: two rows of a model's output matrix, in float32, in the place of the whole.

Logits rounded to bfloat16 tie answers that a debiased model tells apart, and a vocabulary of logits costs memory that
two do not. What the model's own `forward` does to its logits (scaling, soft-capping) it does to these two as well; that
nothing else happens is checked against the margin that audits calculate.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from llmfair.backends.local import FEWEST_SHARED, LocalModel, common_prefix, quiet
from llmfair.checkpoints import already_read, batches, fits
from llmfair.errors import BackendError, UsageError
from llmfair.io.files import whole
from llmfair.settings.commands import FinetuneSettings
from llmfair.tuning.drawing import STRATA, Example, ExampleGroup, Floats, Ids
from llmfair.tuning.processes import Tell, shared_out, world
from llmfair.tuning.results import ADAPTER

if TYPE_CHECKING:
    import torch


def language_model(model: Any) -> Any:
    """The transformers model itself, under an adapter or not."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


@contextmanager
def answer_head(model: Any, answers: tuple[int, int]) -> Iterator[None]:
    """Meanwhile the model's logits have the shape (rows, length, 2): those of the two answers, in this order. Nests;
    the rows are no part of a state dict."""
    import torch

    inner = language_model(model)
    whole = inner.get_output_embeddings()
    if getattr(whole, "answers", None) == answers:
        yield
        return
    rows, bias = list(answers), getattr(whole, "bias", None)

    class AnswerHead(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.answers = answers
            biases = None if bias is None else bias[rows].detach().float()
            self.register_buffer("weight", whole.weight[rows].detach().float(), persistent=False)
            self.register_buffer("bias", biases, persistent=False)

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            # Outside autocast, which would round the product to bfloat16.
            with torch.autocast(hidden.device.type, enabled=False):
                return torch.nn.functional.linear(hidden.float(), self.weight, self.bias)

    inner.set_output_embeddings(AnswerHead())
    try:
        yield
    finally:
        inner.set_output_embeddings(whole)


def require_same_margin(model: LocalModel, example: Example) -> None:
    """Raises BackendError unless the two rows give the margin that audits calculate, but for rounding; inside
    `answer_head` there is nothing else to compare with."""
    import torch

    if hasattr(language_model(model.model).get_output_embeddings(), "answers"):
        return
    ids = example.first.tolist()
    ((logprobs, _),) = model.margins([(ids, dict(zip(("first", "second"), example.answers, strict=True)))])
    audited = logprobs["first"] - logprobs["second"]
    with answer_head(model.model, example.answers), torch.inference_mode():
        rows = torch.tensor([ids], device=model.model.device)
        logits = model.model(input_ids=rows, use_cache=False).logits[0, -1]
    margin = float(logits[0] - logits[1])
    allowed = 1e-3 if model.place.dtype == "float32" else 0.1
    if logits.dtype != torch.float32 or abs(margin - audited) > allowed * max(1.0, abs(audited)):
        raise BackendError(
            f"{model.checkpoint.name} does something to its logits that two of them alone do not show: "
            f"a margin is {margin:.4f} instead of {audited:.4f}.",
            "choose another --base-model",
        )


# How a group's prompts go through the model. `padded`: one rectangle, padded on the right, without a mask, for causal
# attention never looks right; the logits are read at each prompt's last token. `shared`: the tokens that all prompts of
# the group begin with run once, their keys and values are repeated for every prompt, and only the rest runs per prompt;
# gradients are summed back through the repetition. Both give the same logits, which is tried out before a training.

Layout = Literal["padded", "shared"]
Batch = dict[str, Any]
"""`ids` (prompts, longest), `last` (prompts,): the place of each prompt's last token; `target`, `weight` and
`stratum` (pairs,). The first half of the prompts shows `a` first. `prefix` (1, length), if shared."""

LOGITS_DIFFER = {"float32": 1e-3, "bfloat16": 2e-2}
"""The largest distance of two layouts' logits, over the length of one."""


@dataclass(frozen=True)
class Collator:
    """Makes a batch of one group. `width`: pad to so many tokens, so that every batch has one shape."""

    layout: Layout
    width: int = 0

    def __call__(self, groups: Sequence[ExampleGroup]) -> Batch:
        import torch

        (group,) = groups
        prompts = [example.first for example in group] + [example.second for example in group]
        common = common_prefix(prompts) if self.layout == "shared" else 0
        shared = common if common >= FEWEST_SHARED else 0
        batch = padded([ids[shared:] for ids in prompts], self.width)
        for name in ("target", "weight"):
            batch[name] = torch.tensor([getattr(example, name) for example in group], dtype=torch.float32)
        batch["stratum"] = torch.tensor([STRATA.index(example.stratum) for example in group])
        if shared:
            batch["prefix"] = torch.from_numpy(prompts[0][None, :shared]).long()
        return batch


def padded(prompts: Sequence[Ids], width: int = 0) -> Batch:
    """`ids` and `last` of these prompts."""
    import torch

    last = torch.tensor([len(prompt) - 1 for prompt in prompts])
    ids = torch.zeros(len(prompts), max(width, int(last.max()) + 1), dtype=torch.long)
    for row, prompt in zip(ids, prompts, strict=True):
        row[: len(prompt)] = torch.from_numpy(prompt)
    return {"ids": ids, "last": last}


def answer_logits(model: Any, batch: Batch) -> torch.Tensor:
    """Logits after each prompt's last token: (prompts, 2) under an answer head, else (prompts, vocabulary). `model` is
    called as it is: reaching around a wrapper leaves gradients of several processes unsynchronised."""
    import torch

    ids = batch["ids"]
    if (prefix := batch.get("prefix")) is None:
        logits = model(input_ids=ids, use_cache=False).logits
    else:
        cache = model(input_ids=prefix, use_cache=True).past_key_values
        cache.batch_repeat_interleave(len(ids))
        places = prefix.shape[1] + torch.arange(ids.shape[1], device=ids.device)[None]
        logits = model(input_ids=ids, position_ids=places, use_cache=True, **already_read(cache)).logits
    return logits[torch.arange(len(ids), device=ids.device), batch["last"]].float()


def choose_layout(
    model: LocalModel, groups: Sequence[ExampleGroup], asked: Literal["auto", "padded", "shared"]
) -> tuple[Layout, str]:
    """The layout of a training, and why it is that one: before `shared` is taken, its logits are compared."""
    import torch

    if asked == "padded":
        return "padded", "as asked"
    group = max(groups[:8], key=len)
    length = common_prefix([*chain(*(example.prompts for example in group))])
    if length < FEWEST_SHARED:
        return "padded", f"a query's prompts share {length} tokens, too few to run them once"

    def logits(layout: Layout) -> torch.Tensor:
        batch, device = Collator(layout)([group]), language_model(model.model).device
        return answer_logits(model.model, {name: values.to(device) for name, values in batch.items()})

    model.model.eval()
    try:
        with torch.inference_mode():
            plain, shared = logits("padded"), logits("shared")
    except torch.OutOfMemoryError:
        raise
    except (AttributeError, TypeError, ValueError, RuntimeError) as error:
        return "padded", f"this model's cache cannot be shared ({' '.join(str(error).split()).rstrip('.')})"
    apart = float((plain - shared).norm() / plain.norm().clamp(min=1e-30))
    if not apart <= LOGITS_DIFFER[model.place.dtype]:
        return "padded", f"with a shared beginning the logits differ by {apart:.1e}: not taken"
    return "shared", f"prompts of a query share {length} tokens; logits differ by {apart:.1e}"


@contextmanager
def compiled(inner: Any) -> Iterator[None]:
    """Each decoder layer is compiled for one shape of input meanwhile."""
    layers = inner.get_decoder().layers
    for layer in layers:
        layer.compile(dynamic=False)
    try:
        yield
    finally:
        for layer in layers:
            layer._compiled_call_impl = None


# The adapter itself: where it sits in a model, and its two files, which are peft's own.

SETTINGS, WEIGHTS = ADAPTER
NAME = "default"
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")


def attach(model: LocalModel, settings: FinetuneSettings) -> list[str]:
    """Puts a new adapter of float32 weights over the model, in place; the modules' full names. Raises UsageError."""
    from peft import LoraConfig, get_peft_model

    wanted = [name.strip() for name in settings.target_modules.split(",") if name.strip()]
    names = target_modules(model, wanted)
    everywhere = [name for name, _ in model.model.named_modules() if name.rpartition(".")[2] in wanted]
    alpha = settings.lora_alpha
    config = LoraConfig(
        r=settings.rank, lora_alpha=int(alpha) if alpha.is_integer() else alpha, bias="none",
        lora_dropout=settings.lora_dropout, task_type="CAUSAL_LM",
        # Short names wherever they mean the same: servers read them.
        target_modules=wanted if len(everywhere) == len(names) else names,
    )  # fmt: skip
    with quiet():
        model.model = get_peft_model(model.model, config)
    return names


def target_modules(model: LocalModel, wanted: Sequence[str]) -> list[str]:
    """The full names of the language model's modules with these last names. Raises UsageError for a name that none has,
    and where the attention's four are not found once in each layer."""
    inner = language_model(model.model)
    decoder = inner.get_decoder() if hasattr(inner, "get_decoder") else inner
    (part,) = (name for name, module in inner.named_modules() if module is decoder)
    modules = {
        f"{part}.{name}".strip("."): name.rpartition(".")[2]
        for name, module in decoder.named_modules()
        if hasattr(module, "in_features") and getattr(module, "weight", None) is not None
    }
    names = [name for name, last in modules.items() if last in wanted]
    layers = model.checkpoint.text_config.get("num_hidden_layers")
    problem = next((f"no module '{last}' to adapt" for last in wanted if last not in modules.values()), "")
    if not problem and tuple(wanted) == ATTENTION and isinstance(layers, int) and len(names) != 4 * layers:
        problem = f"{len(names)} of these modules in {layers} layers, not four in each"
    if problem:
        raise UsageError(
            f"{model.checkpoint.name} has {problem}.",
            f"name others with --target-modules; it has {', '.join(sorted({*modules.values()}))}",
        )
    return names


@contextmanager
def inputs_cast(model: Any, enabled: bool) -> Iterator[None]:
    """Whether the adapter casts what enters it to float32 meanwhile: under autocast two passes over the activations for
    nothing, since the small matrices are cast instead, with the same gradients."""
    layers = [module for module in model.modules() if hasattr(module, "cast_input_dtype_enabled")]
    before = [layer.cast_input_dtype_enabled for layer in layers]
    for layer in layers:
        layer.cast_input_dtype_enabled = enabled
    try:
        yield
    finally:
        for layer, was in zip(layers, before, strict=True):
            layer.cast_input_dtype_enabled = was


def save_adapter(model: Any, folder: Path) -> None:
    """Writes the adapter's weights and settings; nothing of the base, and no head."""
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    state = get_peft_model_state_dict(model, adapter_name=NAME, save_embedding_layers=False)
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    config = model.peft_config[NAME]
    if not isinstance(config.target_modules, str):
        config.target_modules = sorted(config.target_modules)  # a set's order would be another each time
    config.inference_mode = True
    config.save_pretrained(str(folder))
    config.inference_mode = False


def load_weights(model: Any, folder: Path) -> None:
    """Gives the model's adapter the weights of a folder."""
    from peft import set_peft_model_state_dict
    from safetensors.torch import load_file

    with quiet():
        set_peft_model_state_dict(model, load_file(folder / WEIGHTS), adapter_name=NAME)


def publish(source: Path, folder: Path) -> None:
    """Copies an adapter's two files to where they are used, the weights last and each at once."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (SETTINGS, WEIGHTS):
        with whole(folder / name) as file:
            file.write((source / name).read_bytes())


# Margins of pairs, by the head that training uses and with the arithmetic that audits use.


SMALLER = "a smaller {}, or --dtype bfloat16"
PIECE = 2048
"""Prompts that each process asks between two words on how far it is."""


def margins_of(model: LocalModel, groups: Sequence[ExampleGroup], batch_tokens: int, tell: Tell) -> Floats:
    """Margins (pairs, 2) of all groups, each process calculating its share of them."""
    margins, piece = list[Floats](), list[ExampleGroup]()
    for place, group in enumerate(groups, 1):
        piece.append(group)
        if 2 * sum(map(len, piece)) >= PIECE * world() or place == len(groups):
            margins += shared_out(piece, lambda share: pair_margins(model, share, batch_tokens))
            piece = []
            tell(2 * sum(map(len, margins)), "")
    return np.concatenate(margins)


def pair_margins(model: LocalModel, groups: Sequence[ExampleGroup], batch_tokens: int) -> list[Floats]:
    """Per group (pairs, 2): the margins z1 (`a` shown first) and z2, answer naming the first minus the other.

    In float32, without autocast; with the adapter, or without it inside `model.model.disable_adapter()`. Prompts of
    like length share a batch of up to `batch_tokens` positions, padded on the right, without a mask. Raises
    BackendError for a model whose logits two rows of its output matrix do not give, and for a batch that does not fit
    the memory.
    """
    import torch

    examples = [*chain(*groups)]
    prompts = [ids for example in examples for ids in example.prompts]
    if not prompts:
        return [np.zeros((0, 2)) for _ in groups]
    inner, margins = language_model(model.model), np.zeros(len(prompts))
    training = inner.training
    model.model.eval()
    try:
        large = f"a batch of {batch_tokens:,} tokens does not fit the memory of {model.place.device}."
        with inputs_cast(inner, True), fits(large, SMALLER.format("--backend-arg batch_tokens=N")):
            require_same_margin(model, examples[0])
            with answer_head(inner, examples[0].answers), torch.inference_mode():
                for rows in batches([*map(len, prompts)], batch_tokens):
                    batch = padded([prompts[row] for row in rows])
                    # `inner`, not the wrapped model: a training's autocast is none of an audit's
                    logits = answer_logits(inner, {name: of.to(inner.device) for name, of in batch.items()})
                    margins[rows] = (logits[:, 0].double() - logits[:, 1].double()).cpu().numpy()
    finally:
        model.model.train(training)
    return np.split(margins.reshape(-1, 2), np.cumsum([len(group) for group in groups])[:-1])


# A rank-1 change is smaller than the steps of bfloat16 over most of a weight matrix, so merged weights are not the
# adapter: how far off they are, and how many answers flip, is measured and said.


def merge(
    model: LocalModel, folder: Path, probes: Sequence[ExampleGroup], batch_tokens: int
) -> dict[str, Any]:
    """Writes the base with the adapter merged into it to `folder`, a new one, with its tokenizer; what that did.

    `change`: |ΔW|/|W| over all adapted matrices; `distortion`: the distance of the rounded sum from the exact one, over
    |ΔW|; of `answers` probe answers those that `flipped`. Added in float32 and rounded once, to the base's type. Raises
    UsageError for a folder that exists, BackendError for a base in 4 bits and for weights that cannot be written.
    """
    import torch
    from transformers import GenerationConfig

    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty.", "choose another --output")
    before = np.concatenate(pair_margins(model, probes, batch_tokens))
    modules = (module for module in model.model.modules() if hasattr(module, "get_delta_weight"))
    layers, sums = [layer for layer in modules if NAME in getattr(layer, "lora_A", {})], np.zeros(3)
    with torch.no_grad():
        for layer in layers:
            weight = layer.get_base_layer().weight
            if not weight.is_floating_point():
                raise BackendError(
                    "a base in 4 bits cannot take an adapter in.", "merge it into the whole base"
                )
            base, delta = weight.float(), layer.get_delta_weight(NAME).float()
            rounded = (base + delta).to(weight.dtype)
            lost = rounded.float() - base - delta
            sums += [float(part.double().square().sum()) for part in (base, delta, lost)]
            weight.copy_(rounded)
    model.model = model.model.unload()
    after = np.concatenate(pair_margins(model, probes, batch_tokens))
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    revision = {"revision": model.checkpoint.revision} if model.checkpoint.revision else {}
    with suppress(OSError, ValueError):  # the base's own, which many have none of: the model's are for audits
        model.model.generation_config = GenerationConfig.from_pretrained(model.checkpoint.source, **revision)
    try:
        partial.mkdir(parents=True)  # so that it is no link
        model.model.save_pretrained(partial)
        model.tokenizer.save_pretrained(partial)
        if folder.exists():
            folder.rmdir()
        partial.rename(folder)
    except OSError as error:
        raise BackendError(
            f"the merged model cannot be written to {folder}: {error.strerror or error}.",
            "choose another --output",
        ) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    whole, added, rest = np.sqrt(sums)
    return {
        "matrices": len(layers),
        "change": float(added / whole),
        "distortion": float(rest / added) if added else 0.0,
        "answers": before.size,
        "flipped": int((np.sign(before) != np.sign(after)).sum()),
    }
