"""Several processes as one: who this one is, what the first alone does, and work shared out between all.

Started by `torchrun` or `accelerate launch`, which say so in the environment. Without them there is one process, and
nothing here imports torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from llmfair.errors import LlmfairError

T = TypeVar("T")
U = TypeVar("U")


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


def world() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def local_device(device: str) -> str:
    """The device of this process: each has a GPU of its own."""
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if device == "cuda" and world() > 1 else device


def join() -> None:
    """Makes the processes known to each other; nothing for a single one."""
    if world() > 1:
        from accelerate import PartialState

        PartialState()


def first(work: Callable[[], T]) -> T:
    """What `work` returns in the first process, in every process; its LlmfairError is raised in all."""
    if world() == 1:
        return work()
    import torch.distributed

    told: list[Any] = [None]
    if rank() == 0:
        try:
            told = [(work(), None)]
        except LlmfairError as error:
            told = [(None, error)]
    torch.distributed.broadcast_object_list(told, src=0)
    found, failure = told[0]
    if failure is not None:
        raise failure
    result: T = found
    return result


def shared_out(things: Sequence[T], work: Callable[[Sequence[T]], Sequence[U]]) -> list[U]:
    """`work(things)`, one result a thing, each process doing its part; all of it in every process."""
    if world() == 1:
        return list(work(things))
    import torch.distributed

    parts: list[Any] = [None] * world()
    torch.distributed.all_gather_object(parts, list(work(things[rank() :: world()])))
    return [parts[place % world()][place // world()] for place in range(len(things))]


def require_equal(text: str, what: str) -> None:
    """Raises LlmfairError unless every process has the same `text`."""
    found = shared_out([text] * world(), list) if world() > 1 else [text]
    if len(set(found)) > 1:
        raise LlmfairError(
            f"the processes do not agree on {what}.",
            "start all of them with the same command, data and library versions",
        )
