"""What a design would cost and can find, counted and simulated before anything is asked."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import cycle
from math import ceil, log, sqrt
from typing import Any

from llmfair.audits.known import shared_calls
from llmfair.audits.lists import drawn_of
from llmfair.audits.listwise.design import Design
from llmfair.audits.listwise.making import make_design
from llmfair.audits.listwise.reach import inference_of, reach_of
from llmfair.audits.listwise.task import Listwise
from llmfair.audits.run import folder_of
from llmfair.audits.subject import backend_of, is_ranker, limits_of, subjects, unready
from llmfair.probes import listwise_probes
from llmfair.rankers.base import ScoringRanker
from llmfair.rankers.listwise import Ranked
from llmfair.records import Chat, Completion, Finish, Permutation, Steps
from llmfair.settings import AuditSettings, ListwiseSettings, PlanSettings
from llmfair.settings.designs import Planned
from llmfair.stats.power import FEWEST_TESTED, power, queries_needed, query_sd, smallest_ratio

CHARACTERS_PER_TOKEN = 4
ENOUGH = 1e9
"""A usefulness beyond every ranker's: stands for the most useful one that is simulated."""
PLANNED_ODDS = 0.8
"""The pair odds to be found unless --ratio names an exposure ratio: the lower edge of the usual band."""
FURTHER = 1.01
"""How many times wider a reach must be, on the log scale, to be called further: it is simulated."""
WORDS_OF_A_PROMPT = (
    "dataset", "attribute", "seed", "candidates", "buckets", "experts", "min_experts", "mixed", "input", "words",
    "prompt", "window", "step", "depth", "windows", "initial", "orders",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Effect:
    """An exposure ratio with its implied pair odds: of a ranker blind to relevance, and of one that finds it all.

    None is beyond what any odds show.
    """

    ratio: float
    odds: float | None
    useful_odds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Findable:
    """What a t test over queries finds with a design; without `sd` nothing is known, and `reason` says why.

    `queries` have items of both sides. `error` is the standard error of ln R, `sd` that of one query. `power`
    is that of finding `effect`, None where no test is made or no ranker could show it; `queries_needed` find
    it with power `target`, None: never. `smallest`: the least effects below and above 1 that are found so.
    """

    queries: int
    target: float
    tau: float
    reason: str | None = None
    sd: float | None = None
    error: float | None = None
    effect: Effect | None = None
    power: float | None = None
    queries_needed: int | None = None
    smallest: tuple[Effect, ...] = ()


def plan_listwise(settings: ListwiseSettings) -> dict[str, Any]:
    """Chains, calls, about how many tokens, the shortest possible time and the reach of a listwise audit.

    With PlanSettings also its cost, and what it can find. The calls are exact for a model whose answers are all
    readable; a chat that a chain repeats word for word counts, though the journal answers it. Tokens are
    characters / 4, measured on one chain a query. Rankers that ask no model cost nothing.
    """
    asked = [model for model, _ in subjects(settings) if not is_ranker(model)]
    model = (asked or settings.model)[0]
    design = make_design(settings, model)
    workers = max((limits_of(backend_of(model, settings), settings).workers for model in asked), default=1)
    longest = max(map(design.calls_of, design.queries))
    prompts, answers = _characters(design)
    shapes = design.shapes
    sizes, protected = [shape.n for shape in shapes], [shape.protected for shape in shapes]
    planned = {
        "task": "listwise",
        "queries": len(design.queries),
        "left_out": design.dataset.describe().get("left_out", {}),
        "candidates": [min(sizes), max(sizes)],
        **({} if (drawn := drawn_of(design.dataset, settings)) is None else {"drawn": asdict(drawn)}),
        "protected": [min(protected), max(protected)],
        "arms": [arm.name for arm in design.arms],
        **design.asked_with(),
        "initial": design.settings.initial,
        "orders": design.settings.orders,
        "seed": design.settings.seed,
        "chains": len(design.queries) * design.chains_per_query,
        "longest_chain": longest,
        "calls": design.calls * len(asked),
        "prompt_tokens": prompts // CHARACTERS_PER_TOKEN * len(asked),
        "completion_tokens": answers // CHARACTERS_PER_TOKEN * len(asked),
        "workers": workers,
        "seconds_at_1s_a_call": max(longest, ceil(design.calls / workers)) * len(asked),
        "never_ranked": design.never_ranked(),
        "reach": reach_of(design),
        **_known(design, settings, model),
        **shared_calls(
            Listwise(design, name, adapted) for name, adapted in subjects(settings) if name in asked
        ),
        "render": _render_flags(design),
        "unready": unready(settings),
    }
    planned["other_windows"] = _other_windows(design, planned)
    if isinstance(settings, PlanSettings):
        planned |= spent(settings, planned)
        planned["findable"] = asdict(_findable(design, settings, planned["reach"]))
    elif settings.price_in is not None:
        planned |= cost_of(settings, planned)
    return planned


def _characters(design: Design) -> tuple[int, int]:
    """Characters of all prompts and all answers, for one model.

    One chain a query is driven over one pass, each window answered in the order shown, and stands for the
    query's others: these differ in the arm's word, for which the queries take turns, and in the order of items.
    """
    if isinstance(design.ranker, ScoringRanker):
        return 0, 0
    prompts = answers = 0
    ranker = replace(design.ranker, passes=1)
    for query, arm in zip(design.queries, cycle(design.arms), strict=False):
        first_order = design.orders[query.query_id][:1]
        for probe in listwise_probes(design.dataset.candidates(query), first_order, (arm,), 1):
            for chat in _chats(ranker.steps(probe)):
                prompts += sum(len(message.content) for message in chat.messages)
                answers += len(answer_in_shown_order(chat).text)
    times = design.settings.passes * design.chains_per_query
    return prompts * times, answers * times


def _chats(steps: Steps[Ranked]) -> Iterator[Chat]:
    """What a program asks of a model that changes nothing."""
    try:
        chats = next(steps)
        while True:
            yield from chats
            chats = steps.send([answer_in_shown_order(chat) for chat in chats])
    except StopIteration:
        return


def spent(settings: Planned, planned: Mapping[str, Any]) -> dict[str, Any]:
    """Time at the latency given, and the cost."""
    return {
        "latency": settings.latency,
        "seconds": planned["seconds_at_1s_a_call"] * settings.latency,
        **cost_of(settings, planned),
    }


def cost_of(settings: AuditSettings, planned: Mapping[str, Any]) -> dict[str, Any]:
    """Cost at the prices given per million tokens (None without them)."""
    cost = None
    if settings.price_in is not None and settings.price_out is not None:
        tokens_in, tokens_out = planned["prompt_tokens"], planned["completion_tokens"]
        cost = (tokens_in * settings.price_in + tokens_out * settings.price_out) / 1e6
    return {"price_in": settings.price_in, "price_out": settings.price_out, "cost": cost}


def _other_windows(design: Design, planned: dict[str, Any]) -> dict[str, Any] | None:
    """The default windows with their calls and reach, where they cost fewer calls or reach further."""
    default = ListwiseSettings()
    windows: dict[str, Any] = {"window": default.window, "step": default.step, "passes": default.passes}
    reach = planned["reach"].get("ExpRatio", {})
    if isinstance(design.ranker, ScoringRanker) or "low" not in reach:
        return None
    other = replace(
        design, settings=replace(design.settings, **windows), ranker=replace(design.ranker, **windows)
    )
    calls, other_reach = other.calls * planned["calls"] // design.calls, reach_of(other)["ExpRatio"]
    fewer, further = calls < planned["calls"], _wider(other_reach, reach)
    if not calls or not (fewer or further):
        return None
    return {**windows, "calls": calls, "reach": other_reach, "fewer_calls": fewer, "further_reach": further}


def _wider(one: dict[str, float], other: dict[str, float]) -> bool:
    return log(one["high"] / one["low"]) > FURTHER * log(other["high"] / other["low"])


def _findable(design: Design, settings: PlanSettings, reach: dict[str, dict[str, float]]) -> Findable:
    """Power and smallest effects of the test at the 5 % level, from the noise of random orders and --tau.

    Nothing is counted on the control variate, which makes the noise smaller, not larger.
    """
    shapes = [(shape.n, shape.protected, shape.unprotected) for shape in design.shapes]
    queries = sum(bool(protected and unprotected) for _, protected, unprotected in shapes)
    inference = inference_of(design)
    blind, useful = inference.curve(), inference.curve(ENOUGH)
    unknown = Findable(queries=queries, target=settings.power, tau=settings.tau)
    if isinstance(design.ranker, ScoringRanker):
        return replace(unknown, reason="no_model_asked")
    if settings.initial != "random":
        return replace(unknown, reason="order_not_random")
    if blind is None or useful is None:
        return replace(unknown, reason="no_list_of_both_sides")
    sd = query_sd(shapes, settings.orders, settings.tau)
    ratio = useful.ratio(PLANNED_ODDS) if settings.ratio is None else settings.ratio
    error, tested = sd / sqrt(queries), queries >= FEWEST_TESTED
    within = reach["ExpRatio"]["low"] <= ratio <= reach["ExpRatio"]["high"]
    return replace(
        unknown,
        reason=None if within else "out_of_reach",
        sd=sd,
        error=error,
        effect=Effect(ratio, blind.odds(ratio), useful.odds(ratio)),
        power=power(log(ratio), error, queries) if within and tested else None,
        queries_needed=queries_needed(ratio, sd, settings.power) if within else None,
        smallest=tuple(
            Effect(found, blind.odds(found), useful.odds(found))
            for found in (_smallest(sd, queries, settings.power) if tested else ())
        ),
    )


def _smallest(sd: float, queries: int, target: float) -> tuple[float, float]:
    """The ratios nearest to parity, one either way, that are found with this power."""
    below = smallest_ratio(sd, queries, target)
    return below, 1 / below


def _known(design: Design, settings: ListwiseSettings, model: str) -> dict[str, Any]:
    """The run folder of this design, and how many answers it holds already."""
    task = Listwise(design, model)
    _, folder = folder_of(task, task.backend())
    answers = folder.summary()["answers"] if folder.manifest.is_file() else 0
    return {"folder": str(folder.path), "answered": answers}


def _render_flags(design: Design) -> str:
    """The flags under which `prompts render` shows the first prompt of this design."""
    flags = design.settings.as_flags(WORDS_OF_A_PROMPT)
    return f"{flags} --queries {shlex.quote(design.queries[0].query_id)}".strip()


def first_order_chats(settings: ListwiseSettings) -> list[Chat]:
    """The chats of the first query's first chain, each window in its initial order."""
    design = make_design(replace(settings, limit=1))
    steps = next(design.programs()).start()
    chats = next(steps)
    found: list[Chat] = []
    while True:
        found += chats
        try:
            chats = steps.send([answer_in_shown_order(chat) for chat in chats])
        except StopIteration:
            return found


def answer_in_shown_order(chat: Chat) -> Completion:
    """The answer of a model that changes nothing, for counting and showing what would be asked."""
    n = chat.expects.n if isinstance(chat.expects, Permutation) else 0
    return Completion(" > ".join(f"[{place}]" for place in range(1, n + 1)), Finish.STOP)
