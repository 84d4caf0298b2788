"""How an adapter is trained, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How an adapter is trained. `prompts_per_step` counts those of all devices together."""

    rank: int = 1
    alpha: float = 2.0
    dropout: float = 0.0
    target_modules: str = "q_proj,k_proj,v_proj,o_proj"
    learning_rate: float = 1e-3
    schedule: Literal["cosine", "constant", "linear"] = "cosine"
    warmup: float = 0.05
    prompts_per_step: int = 256
    group_size: int = 64
    max_prompts: int = 40_000
    loss: Literal["choice", "lm"] = "choice"
    anchor_weight: float = 0.5
    group_weight: float = 0.5
    group_temperature: float = 1.0
    slot_weight: float = 0.0
    layout: Literal["auto", "padded", "shared"] = "auto"
    compile: bool = False
    clip: float = 1.0
    seed: int = 0
    eval_every: int = 2_500
    patience: int = 5
    report_to: Literal["none", "tensorboard", "wandb"] = "none"

    @property
    def steps(self) -> int:
        return max(1, self.max_prompts // self.prompts_per_step)

    @property
    def prompts(self) -> int:
        """Of all steps: what `max_prompts` has of whole ones."""
        return self.steps * self.prompts_per_step

    def steps_of(self, prompts: int) -> int:
        """The number of steps nearest to so many prompts."""
        return max(1, round(prompts / self.prompts_per_step))
