"""What an audit would ask, cost and can find, counted before anything is asked."""

from __future__ import annotations

from itertools import chain
from math import ceil
from typing import Any

from llmfair.audits.design import prospects_of
from llmfair.audits.gates import statuses_of
from llmfair.audits.kind import Kind
from llmfair.audits.runs.run import folder_of, seen
from llmfair.audits.subject import left_out, limits_of, subjects, unready
from llmfair.io.files import SCHEMA
from llmfair.settings.commands import AuditSettings, PlanningSettings

SUMMED = (
    "calls", "prompt_tokens", "completion_tokens", "seconds_at_1s_a_call", "seconds", "cost", "answered",
)  # fmt: skip
"""What several runs take together."""


def plan(kind: Kind, settings: AuditSettings) -> dict[str, Any]:
    """An audit before it runs; of settings that name several runs the first, with what all take, and each beside it."""
    plans = [_plan(kind, each) for each in settings.each()]
    if len(plans) == 1:
        return plans[0]
    names = [name for name in SUMMED if all(each.get(name) is not None for each in plans)]
    return {**plans[0], **{name: sum(each[name] for each in plans) for name in names}, **kind.beside(plans)}


def _plan(kind: Kind, settings: AuditSettings) -> dict[str, Any]:
    """Calls, about how many tokens and the shortest possible time of an audit of all models that the settings name.

    With settings of a plan (`Kind.plan_settings`) also its cost, and what it can find. Calls are exact for a model
    whose answers are all readable, or the most there can be; tokens are characters / 4. Rankers that ask no model
    cost nothing. Raises UsageError.
    """
    statuses_of(settings.fail_on, kind.words.statuses[:-1])
    named = subjects(settings)
    asked = [subject for subject in named if not (kind.ranks and subject.ranks)]
    backends = [subject.backend(settings) for subject in asked]
    workers = max((limits_of(backend, settings).workers for backend in backends), default=1)
    design = kind.design(settings, (asked or named)[0])
    # what a gate bars is barred here, too, but a plan tells what would have to change
    prospects = prospects_of(design, refuses=not isinstance(settings, PlanningSettings))
    tokens = [None if each is None else each * len(asked) for each in design.tokens() or (None, None)]
    _, folder = folder_of(design, design.backend())
    wishes = (
        left_out(backend, subject.label, settings) for subject, backend in zip(asked, backends, strict=True)
    )
    planned = {
        "schema": SCHEMA,
        "task": kind.name,
        **design.plan(len(asked)),
        "sees": seen(design),
        "calls": design.calls * len(asked),
        **dict(zip(("prompt_tokens", "completion_tokens"), tokens, strict=True)),
        "workers": workers,
        "seconds_at_1s_a_call": max(design.longest, ceil(design.calls / workers)) * len(asked),
        "folder": str(folder.path),
        "answered": folder.summary()["answers"] if folder.manifest.is_file() else 0,
        "unready": unready(settings),
        "assessable": prospects.assessable,
        "remarks": [*design.remarks, *prospects.said, *chain.from_iterable(wishes)],
    }
    if isinstance(settings, PlanningSettings):
        planned |= {
            "latency": settings.latency,
            "seconds": planned["seconds_at_1s_a_call"] * settings.latency,
            "findable": design.findable(settings),
        }
    price_in, price_out, (prompts, answers), cost = settings.price_in, settings.price_out, tokens, None
    if price_in is not None and price_out is not None and prompts is not None and answers is not None:
        cost = (prompts * price_in + answers * price_out) / 1e6  # prices are per million tokens
    if isinstance(settings, PlanningSettings) or price_in is not None:
        planned |= {"price_in": price_in, "price_out": price_out, "cost": cost}
    return planned
