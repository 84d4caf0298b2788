"""Manifests of runs that tests speak of without asking anything."""

from __future__ import annotations

from llmfair.rundir import Invocation, Manifest


def invocation(calls: int | None = None, cost: float | None = None) -> Invocation:
    return Invocation(command=(), started="", calls=calls, cost=cost)


def manifest(*invocations: Invocation, cost: float | None = None) -> Manifest:
    return Manifest(
        status="complete",
        settings={"task": "listwise", "identity": "fake:biased"},
        task="",
        flags={},
        model="",
        simulated=False,
        invocations=invocations,
        cost=cost,
    )
