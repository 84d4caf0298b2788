"""How a group's prompts go through the model: side by side, or their common beginning once.

`padded`: one rectangle, padded on the right, without a mask, for causal attention never looks right; the logits are
read at each prompt's last token, by its length. `shared`: the tokens that all prompts of the group begin with run
once, their keys and values are repeated for every prompt, and only the rest runs per prompt; gradients are summed
back through the repetition. Both give the same gradients, which is tried out before a training begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from llmfair.checkpoints import already_read
from llmfair.errors import UsageError
from llmfair.tuning.examples import ExampleGroup, Ids
from llmfair.tuning.head import language_model
from llmfair.tuning.pairs import STRATA

if TYPE_CHECKING:
    import torch

Layout = Literal["padded", "shared"]
Batch = dict[str, Any]
"""`ids` (prompts, longest), `last` (prompts,): the place of each prompt's last token; `target`, `weight` and
`stratum` (pairs,). The first half of the prompts shows `a` first. `prefix` (1, length), if shared."""

FEWEST_SHARED = 16
"""Common tokens below which a second forward pass costs more than it saves."""
GRADIENTS_DIFFER = {"float32": 1e-3, "bfloat16": 2e-2}
"""The largest distance of two layouts' gradients, over the length of one."""


@dataclass(frozen=True)
class Collator:
    """Makes a batch of one group. `width`: pad to so many tokens, so that every batch has one shape."""

    layout: Layout
    width: int = 0

    def __call__(self, groups: Sequence[ExampleGroup]) -> Batch:
        import torch

        (group,) = groups
        prompts = [example.first for example in group] + [example.second for example in group]
        shared = common_prefix(prompts) if self.layout == "shared" else 0
        if shared < FEWEST_SHARED:
            shared = 0
        lengths = torch.tensor([len(ids) - shared for ids in prompts])
        ids = torch.zeros(len(prompts), max(self.width, int(lengths.max())), dtype=torch.long)
        for row, prompt in zip(ids, prompts, strict=True):
            row[: len(prompt) - shared] = torch.from_numpy(prompt[shared:])
        batch = {
            "ids": ids,
            "last": lengths - 1,
            "target": torch.tensor([example.target for example in group], dtype=torch.float32),
            "weight": torch.tensor([example.weight for example in group], dtype=torch.float32),
            "stratum": torch.tensor([STRATA.index(example.stratum) for example in group]),
        }
        if shared:
            batch["prefix"] = torch.from_numpy(prompts[0][None, :shared]).long()
        return batch


def common_prefix(prompts: Sequence[Ids]) -> int:
    """How many tokens all prompts begin with; at least one token of each is left over."""
    least = min(map(len, prompts)) - 1
    rows = np.stack([ids[:least] for ids in prompts])
    differs = (rows != rows[0]).any(axis=0)
    return int(differs.argmax()) if differs.any() else least


def answer_logits(model: Any, batch: Batch) -> torch.Tensor:
    """Logits after each prompt's last token: (prompts, 2) under an answer head, else (prompts, vocabulary).

    `model` is called as it is: reaching around a wrapper leaves gradients of several processes unsynchronised.
    """
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


def on_device(batch: Batch, device: Any) -> Batch:
    return {name: values.to(device, non_blocking=True) for name, values in batch.items()}


# Which one


def choose_layout(
    model: Any,
    groups: Sequence[ExampleGroup],
    asked: Literal["auto", "padded", "shared"],
    dtype: str,
    loss: Callable[[Any, Batch], torch.Tensor],
) -> tuple[Layout, str]:
    """The layout of a training, and why it is that one.

    `loss(model, batch)` is what is trained: before `shared` is taken, the gradients of the first group are compared.
    """
    if asked == "padded":
        return "padded", "as asked"
    group = max(groups[:8], key=len)
    length = common_prefix([*chain(*(example.prompts for example in group))])
    if length < FEWEST_SHARED:
        return "padded", f"a query's prompts share {length} tokens, too few to run them once"
    try:
        padded, shared = (_gradient(model, group, layout, loss) for layout in ("padded", "shared"))
    except (AttributeError, TypeError, ValueError, NotImplementedError, RuntimeError) as error:
        if _out_of_memory(error):
            raise
        line = next(iter(str(error).strip().splitlines()), type(error).__name__)
        return "padded", f"this model's cache cannot be shared ({line.rstrip('.')})"
    apart = float((padded - shared).norm() / padded.norm().clamp(min=1e-30))
    if not apart <= GRADIENTS_DIFFER[dtype]:
        return "padded", f"with a shared beginning the gradient differs by {apart:.1e}: not taken"
    return "shared", f"prompts of a query share {length} tokens; gradients differ by {apart:.1e}"


def _gradient(model: Any, group: ExampleGroup, layout: Layout, loss: Any) -> torch.Tensor:
    """The gradient of one group's loss, all of it in one row. Without dropout, which draws anew each time."""
    import torch

    inner = language_model(model)
    model.eval()
    batch = on_device(Collator(layout)((group,)), inner.device)
    trained = [weights for weights in model.parameters() if weights.requires_grad]
    found = torch.autograd.grad(loss(model, batch), trained)
    return torch.cat([one.flatten().double() for one in found])


def _out_of_memory(error: Exception) -> bool:
    import torch

    return isinstance(error, torch.OutOfMemoryError)


def require_padded(layout: str) -> None:
    """Raises UsageError: a cache makes every layer compile anew."""
    if layout == "shared":
        raise UsageError("--compile goes with padded prompts only.", "leave --layout shared out")


def compile_layers(inner: Any) -> Callable[[], None]:
    """Compiles each decoder layer for one shape of input; what undoes it."""
    layers = list(inner.get_decoder().layers)
    for layer in layers:
        layer.compile(dynamic=False)

    def undo() -> None:
        for layer in layers:
            layer._compiled_call_impl = None

    return undo
