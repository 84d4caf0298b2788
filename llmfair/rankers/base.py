"""What a ranker is: a program that asks its questions as steps and returns its result."""

from __future__ import annotations

from typing import Protocol, TypeVar

from llmfair.records import Probe, Steps

T_co = TypeVar("T_co", covariant=True)


class Ranker(Protocol[T_co]):
    """Orders a probe's candidates. It yields chats and receives completions; it never knows who answers."""

    def steps(self, probe: Probe) -> Steps[T_co]:
        """The probe's program, not yet begun."""
        ...
