"""What a design would ask and can reach, counted and simulated before anything is asked."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import cycle
from math import inf, log
from typing import Any

from llmfair.audits.design import CHARACTERS_PER_TOKEN
from llmfair.audits.lists import drawn_of
from llmfair.audits.listwise.design import ListwiseDesign
from llmfair.audits.listwise.reach import reach_of
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.nouns import Chat, Completion, Finish, Labels, Permutation, Scores, Steps, Unanswered, drive
from llmfair.probes import listwise_probes
from llmfair.rankers.base import Ranker
from llmfair.rankers.strategy import Ranked, strategy_of

FURTHER = 1.01
"""How many times wider a reach must be, on the log scale, to be called further: it is simulated."""
MOST_RENDERED = 20_000
"""About how many prompts are written out to tell how long all are."""
BESIDE = (
    "window", "step", "passes", "calls", "prompt_tokens", "completion_tokens", "cost", "longest_chain", "folder",
)  # fmt: skip
"""What tells one strategy of several from the others."""
WORDS_OF_A_PROMPT = (
    "dataset", "attribute", "seed", "candidates", "buckets", "relevant", "min_relevant", "mixed", "input", "words",
    "prompt", "strategy", "design", "window", "step", "depth", "windows", "initial", "orders",
)  # fmt: skip


def plan_of(design: ListwiseDesign, models: int) -> dict[str, Any]:
    """Chains, windows and reach of a listwise audit of so many models."""
    settings, shapes = design.settings, design.shapes
    sizes, protected = [shape.n for shape in shapes], [shape.protected for shape in shapes]
    reach = reach_of(design)
    return {
        "queries": len(design.queries),
        "left_out": design.dataset.describe().get("left_out", {}),
        "candidates": [min(sizes), max(sizes)],
        **({} if (drawn := drawn_of(design.dataset, settings)) is None else {"drawn": asdict(drawn)}),
        "protected": [min(protected), max(protected)],
        "conditions": [condition.name for condition in design.prompts],
        **design.asked_with(),
        "initial": settings.initial,
        "orders": settings.orders,
        "seed": settings.seed,
        "chains": len(design.queries) * design.chains_per_query,
        "longest_chain": design.longest,
        "never_ranked": design.never_ranked(),
        "reach": reach,
        "render": _render_flags(design),
        "other_windows": _other_windows(design, models, reach.get("ExpRatio", {})),
    }


def beside(plans: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What each strategy takes, can reach and can find; calls may be at most so many where one's are."""
    rows = []
    for planned in plans:
        row: dict[str, Any] = {
            "strategy": planned.get("strategy", "windows"),
            "at_most": bool(planned.get("at_most")),
            **{name: planned[name] for name in BESIDE if name in planned},
            "reach": planned["reach"].get("ExpRatio", {}),
        }
        if found := planned.get("findable"):
            row |= {name: found[name] for name in ("comparisons", "error", "power", "queries_needed")}
        rows.append(row)
    return {"strategies": rows, **({"at_most": True} if any(row["at_most"] for row in rows) else {})}


def tokens_of(design: ListwiseDesign) -> tuple[int, int]:
    """Characters of all prompts and all answers, by 4 characters a token."""
    prompts, answers = _characters(design)
    return prompts // CHARACTERS_PER_TOKEN, answers // CHARACTERS_PER_TOKEN


def _characters(design: ListwiseDesign) -> tuple[int, int]:
    """Characters of all prompts and all answers, for one model.

    One chain a query is driven over one pass, each window answered in the order shown, and stands for the
    query's others: these differ in the condition's word, for which the queries take turns, and in the order of items.
    Of very many questions so do some queries for all.
    """
    prompts = answers = 0
    of_all = sum(design.plan_of(query).calls for query in design.queries)
    if not of_all:  # a ranker, which would order the lists here
        return 0, 0
    queries = design.queries[:: max(1, of_all // MOST_RENDERED)]
    for query, condition in zip(queries, cycle(design.prompts), strict=False):
        first_order = design.orders[query.query_id][:1]
        for probe in listwise_probes(design.dataset.candidates(query), first_order, (condition,), 1):
            if chats := _chats(design.ranker.steps(probe), passes=1):
                characters = sum(len(message.content) for chat in chats for message in chat.messages)
                prompts += characters * design.plan_of(query).calls // len(chats)
                characters = sum(len(answer_in_shown_order(chat).text) for chat in chats)
                answers += characters * design.plan_of(query).calls // len(chats)
    shown = max(1, sum(design.plan_of(query).calls for query in queries))
    all_chains = of_all * design.chains_per_query
    return prompts * all_chains // shown, answers * all_chains // shown


def _chats(steps: Steps[Ranked], passes: float = inf) -> list[Chat]:
    """What a program asks, in so many passes, of a model that changes nothing."""
    asked: list[Chat] = []

    def answer(chat: Chat) -> Completion:
        if chat.about["pass"] > passes:
            raise Unanswered
        asked.append(chat)
        return answer_in_shown_order(chat)

    with suppress(Unanswered):
        drive(steps, answer)
    return asked


def _other_windows(design: ListwiseDesign, models: int, reach: Mapping[str, float]) -> dict[str, Any] | None:
    """The default windows with their calls and reach, where they cost fewer calls or reach further."""
    default = ListwiseSettings()
    windows: dict[str, Any] = {"window": default.window, "step": default.step, "passes": default.passes}
    asked_with = design.asked_with()
    if isinstance(design.ranker, Ranker) or asked_with["window"] is None or "low" not in reach:
        return None
    settings = replace(design.settings, **windows)
    ranker = replace(design.ranker, strategy=strategy_of(settings.ordering, vars(settings)))
    other = replace(design, settings=settings, ranker=ranker)
    other_reach = reach_of(other)["ExpRatio"]
    fewer, further = other.calls < design.calls, _wider(other_reach, reach)
    if not other.calls or not (fewer or further):
        return None
    return {
        **windows,
        "calls": other.calls * models,
        "reach": other_reach,
        "fewer_calls": fewer,
        "further_reach": further,
    }


def _wider(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    return log(one["high"] / one["low"]) > FURTHER * log(other["high"] / other["low"])


def _render_flags(design: ListwiseDesign) -> str:
    """The flags under which `prompts render` shows the first prompt of this design."""
    unsaid = {"prompt"} if design.settings.prompt == design.dataset.prompt else set()
    flags = design.settings.as_flags(name for name in WORDS_OF_A_PROMPT if name not in unsaid)
    return f"{flags} --queries {shlex.quote(design.queries[0].query_id)}".strip()


def first_order_chats(design: ListwiseDesign) -> Iterator[Chat]:
    """The chats of the first query's first chain, each window in its initial order."""
    yield from _chats(next(design.programs()).start())


def answer_in_shown_order(chat: Chat) -> Completion:
    """The answer of a model that changes nothing, for counting and showing what would be asked."""
    if isinstance(chat.expects, Labels):
        return Completion(chat.expects.labels[0], Finish.STOP)
    if isinstance(chat.expects, Scores):
        return Completion(str([[place, -place] for place in range(chat.expects.n)]), Finish.STOP)
    expects = chat.expects if isinstance(chat.expects, Permutation) else Permutation(0)
    places = range(1, (expects.best or expects.n) + 1)
    return Completion(" > ".join(f"[{place}]" for place in places), Finish.STOP)
