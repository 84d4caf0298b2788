"""What is trained: a two-candidate cross-entropy on the answer, held level between the groups (`lora.md` 6).

Per group of prompts, one query in both orders:

    L = mean over relevant and irrelevant pairs of weight · ½[BCE(z1, t) + BCE(z2, 1 − t)]
      + anchor_weight · the same over mixed pairs
      + group_weight · Σ over the two strata of (mean of tanh(g / group_temperature))²
      + slot_weight · mean of s²,         g = (z1 − z2)/2, s = (z1 + z2)/2

With two logits a prompt the cross-entropy is BCE(z, t); with a vocabulary of them it is a language model's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from llmfair.tuning.pairs import STRATA

if TYPE_CHECKING:
    import torch

    from llmfair.tuning.layouts import Batch
    from llmfair.tuning.recipe import Recipe

PARTS = ("loss", "pairs", "anchor", "group", "slot")
"""The loss and what it is made of, before weighting."""


def loss_parts(
    logits: torch.Tensor, columns: tuple[int, int], batch: Batch, recipe: Recipe
) -> Mapping[str, torch.Tensor]:
    """The loss of one group and its parts, each a number.

    `logits`: (prompts, 2 or vocabulary); `columns`: those of the answers that name the item shown first and second.
    """
    target, weight, stratum = batch["target"], batch["weight"], batch["stratum"]
    both = logits.log_softmax(-1)[:, list(columns)]
    first, second = both.view(2, -1, 2)  # (pairs, 2): log-probabilities of the two answers
    wins = target * (first[:, 0] + second[:, 1])
    loses = (1 - target) * (first[:, 1] + second[:, 0])
    each = -0.5 * weight * (wins + loses)
    z1, z2 = (both[:, 0] - both[:, 1]).view(2, -1)
    level = ((z1 - z2) / 2 / recipe.group_temperature).tanh()
    relevant, irrelevant, mixed = (stratum == number for number in range(len(STRATA)))
    parts = {
        "pairs": _mean(each, ~mixed),
        "anchor": _mean(each, mixed),
        "group": _mean(level, relevant) ** 2 + _mean(level, irrelevant) ** 2,
        "slot": ((z1 + z2) / 2).square().mean(),
    }
    loss = (
        parts["pairs"]
        + recipe.anchor_weight * parts["anchor"]
        + recipe.group_weight * parts["group"]
        + recipe.slot_weight * parts["slot"]
    )
    return {"loss": loss, **parts}


def _mean(values: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """The mean of the chosen values; 0 where there are none, so that an absent stratum pulls nowhere."""
    return (values * chosen).sum() / chosen.sum().clamp(min=1)
