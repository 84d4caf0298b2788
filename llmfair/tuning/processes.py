"""Several processes as one, and what each of them does of a training.

`torchrun` or `accelerate launch` start them, and say so in the environment. Without them there is one process, and
nothing here imports torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from llmfair.errors import LlmfairError, UsageError
from llmfair.settings.commands import FinetuneSettings

T = TypeVar("T")
U = TypeVar("U")
Tell = Callable[[int, str], None]
"""Says how many prompts are done, and words on how it goes."""


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


def world() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def first(work: Callable[[], T]) -> T:
    """What `work` returns in the first process, in every process; its LlmfairError is raised in all."""
    if world() == 1:
        return work()
    import torch.distributed

    outcome: list[Any] = [None, None]
    if rank() == 0:
        try:
            outcome[0] = work()
        except LlmfairError as error:
            outcome[1] = error
    torch.distributed.broadcast_object_list(outcome, src=0)
    result: T
    result, failure = outcome
    if failure is not None:
        raise failure
    return result


def shared_out(things: Sequence[T], work: Callable[[Sequence[T]], Sequence[U]]) -> list[U]:
    """`work(things)`, one result a thing, each process doing its part; all of it in every process."""
    if world() == 1:
        return list(work(things))
    import torch.distributed

    parts: list[Any] = [None] * world()
    torch.distributed.all_gather_object(parts, list(work(things[rank() :: world()])))
    return [parts[place % world()][place // world()] for place in range(len(things))]


def steps_of(settings: FinetuneSettings) -> int:
    """How many whole steps a training has."""
    return settings.max_prompts // settings.prompts_per_step


def prompts_of(settings: FinetuneSettings) -> int:
    """The prompts of all steps: what `max_prompts` has of whole ones."""
    return steps_of(settings) * settings.prompts_per_step


def groups_at_a_time(settings: FinetuneSettings, devices: int) -> int:
    """How many groups each device takes after each other for a step. Raises UsageError where it is no whole number."""
    at_once = (settings.group_size + settings.group_size % 2) * devices
    if settings.group_size % 2 or settings.prompts_per_step % at_once:
        raise UsageError(
            f"--prompts-per-step {settings.prompts_per_step} is no multiple of --group-size {settings.group_size}, "
            f"which has to be even, times {devices} device(s).",
            f"choose an even --group-size, and a multiple of {at_once}",
        )
    return settings.prompts_per_step // at_once
