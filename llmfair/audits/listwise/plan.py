"""What a design would ask and can reach, counted and simulated before anything is asked."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import cycle
from math import ceil, fsum, inf, log, sqrt
from statistics import median
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from llmfair.audits.aggregates import Inference, preference
from llmfair.audits.design import CHARACTERS_PER_TOKEN
from llmfair.audits.lists import drawn_of
from llmfair.audits.listwise.design import ListwiseDesign, Shape
from llmfair.audits.listwise.settings import ListwiseSettings, PlanSettings
from llmfair.audits.listwise.simulate import (
    Items,
    Noise,
    PlayedAudits,
    items_of,
    kinds_of,
    play,
    rank_played,
    simulate,
)
from llmfair.nouns import (
    Chat,
    Completion,
    Finish,
    Labels,
    Permutation,
    Scores,
    Side,
    Steps,
    Unanswered,
    drive,
)
from llmfair.probes import REPEAT, listwise_probes
from llmfair.rankers.base import Ranker
from llmfair.rankers.listwise import ListwiseRanker
from llmfair.rankers.strategies import Partition, Ranked, Strategy, strategy_of
from llmfair.results import Count, Reach, Share
from llmfair.stats.power import (
    FEWEST_TESTED,
    Kinds,
    Meeting,
    Plan,
    Rank,
    attainable_precision,
    attainable_ratio,
    by_windows,
    first_shown,
    kind_exposures,
    power,
    queries_needed,
    query_sd,
    rank_injected,
    smallest_ratio,
)

# What a design can show at all, whatever the model: simulated on its own lists and windows, never asked.


REACH_DRAWS = 3000
REACH_CALLS, FEWEST_DRAWS, MOST_DRAWS = 60_000, 30, 1000
"""Where a program is played so many questions are answered in all, from so many initial orders at least and at most:
the more questions, the less is left to the order."""
INDIFFERENT_DRAWS = 100
Plans = tuple[tuple[int, tuple[tuple[int, int], ...]], ...]


def reach_of(design: ListwiseDesign) -> dict[str, dict[str, float]]:
    """ExpRatio of rankers that always put one side first, P@20 of a perfect ranker, both from random orders.

    Of other initial orders: the ExpRatio that a ranker without any preference makes of them (`indifferent`).
    """
    if design.partition:
        return {}
    if design.settings.initial not in ("random", "mirrored"):
        indifferent = _indifferent(design, np.random.default_rng(design.settings.seed))
        return {} if indifferent is None else {"ExpRatio": {"indifferent": indifferent}}
    return _reach(design.shapes, *_how(design), design.settings.seed)


def known_reach(design: ListwiseDesign) -> dict[str, Reach]:
    """The same, typed."""
    return {measure: Reach(**ends) for measure, ends in reach_of(design).items()}


@lru_cache(maxsize=32)
def _reach(
    shapes: tuple[Shape, ...], how: Plans | Strategy, passes: int, draws: int, seed: int
) -> dict[str, dict[str, float]]:
    rng = np.random.default_rng(seed)
    rank = _ranks(how, passes)
    found: dict[str, dict[str, float]] = {}
    if both := _two_sided(shapes):
        ratio = attainable_ratio(both, rank, draws, rng=rng)
        found["ExpRatio"] = {"low": ratio.low, "high": ratio.high}
    if judged := [(shape.n, shape.relevant) for shape in shapes if shape.judged]:
        found["P@20"] = {"high": attainable_precision(judged, rank, 20, draws, rng=rng)}
    return found


def _how(design: ListwiseDesign) -> tuple[Plans | Strategy, int, int]:
    """By what its lists are ranked, where that is windows in how many passes, and from how many initial orders."""
    plans, sizes = [], sorted({shape.n for shape in design.shapes})
    for n in sizes:
        windows = design.windows(n)
        if windows is None:
            assert isinstance(design.ranker, ListwiseRanker)
            strategy = design.ranker.strategy
            asked = max(strategy.plan(size).calls for size in sizes)
            return strategy, 1, min(MOST_DRAWS, max(FEWEST_DRAWS, REACH_CALLS // max(1, asked)))
        plans.append((n, tuple(windows)))
    return tuple(plans), design.passes, REACH_DRAWS


def _ranks(how: Plans | Strategy, passes: int) -> Rank:
    if isinstance(how, Strategy):
        return partial(rank_played, how)
    return by_windows(dict(how).__getitem__, passes)


def _indifferent(design: ListwiseDesign, rng: np.random.Generator) -> float | None:
    """The exposure ratio of a ranker that orders every window by chance, from the design's own initial orders."""
    kind_of = {Side.PROTECTED: 0, Side.UNPROTECTED: 1, None: 2}
    over = under = 0.0
    for query in design.queries:
        for order in design.orders[query.query_id]:
            kinds = np.array([kind_of[design.sides[doc_id]] for doc_id in order.doc_ids], dtype=np.uint8)
            if not {0, 1} <= set(kinds.tolist()):
                continue
            lists = np.tile(kinds, (INDIFFERENT_DRAWS, 1))
            windows = design.windows(len(kinds))
            if windows is None:
                ranked = _by_chance(design, lists, rng)
            else:
                ranked = rank_injected(lists, np.zeros(3), windows, design.passes, rng=rng)
            sides = kind_exposures(ranked, 2).mean(axis=0)
            over, under = over + float(sides[0]), under + float(sides[1])
    return over / under if under else None


def _by_chance(design: ListwiseDesign, lists: Kinds, rng: np.random.Generator) -> Kinds:
    """The same of a program whose questions hang on the answers."""
    assert isinstance(design.ranker, ListwiseRanker)
    strategy, n = design.ranker.strategy, lists.shape[1]
    played = (play(strategy, range(n), lambda items, alone: rng.random(len(items)).tolist()) for _ in lists)
    return np.array([row[final] for row, (final, _) in zip(lists, played, strict=True)])


def inference_of(design: ListwiseDesign) -> Inference:
    """How this design's figures of all queries are inferred."""
    settings = design.settings
    return Inference(
        level=settings.level,
        ci=settings.ci,
        seed=settings.seed,
        documents=median(shape.n for shape in design.shapes),
    )


def _two_sided(shapes: Iterable[Shape]) -> list[tuple[int, int, int]]:
    return [(s.n, s.protected, s.unprotected) for s in shapes if s.protected and s.unprotected]


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
        **({} if (drawn := drawn_of(design.dataset, settings)) is None else {"drawn": drawn}),
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


# What a listwise design can find of preference odds, counted from its lists and windows before anything is asked.


RELEVANCE = 2.0
"""The log-weight of each grade of the simulated ranker that orders by relevance."""
PLAYED_CALLS, FEWEST_AUDITS, MOST_AUDITS = 60_000, 2, 20
"""Questions that are answered in all where a program is simulated, and audits at least and at most."""
FEWEST_LISTS = 8
"""Lists at least that stand for all of them, where one audit of all would take more questions."""
MOST_ITEMS = 1_000_000
EXPECTED_DRAWS = 1000
"""Lists ranked in all, for each ratio that is expected."""
UNKNOWN = (
    "reason", "comparisons", "sd", "error", "error_fresh", "error_alike", "error_alike_thrice", "power",
    "queries_needed", "other_design", "expected",
)  # fmt: skip
"""What a plan cannot tell of a design of which nothing is known."""


@dataclass(frozen=True, slots=True)
class OtherDesign:
    """What the other design takes of one model, all prompts together, and how precise it is."""

    design: Literal["ranking", "partition"]
    orders: Count
    calls: Count
    error: float
    power: Share | None


@dataclass(frozen=True, slots=True)
class ExpectedRatio:
    """The ExpRatio to expect of preference odds if noise is fresh, of two simulated rankers.

    `agnostic` does not look at relevance, `relevant` gives every grade a log-weight of 2.
    """

    odds: float
    agnostic: float
    relevant: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ListwiseFindable:
    """What a t test over queries finds of preference odds; without `sd` nothing is known, and `reason` says why.

    `queries` have items to compare, on average `comparisons` first encounters each. `error` is the standard error
    of ln odds, `sd` that of one query, with the intra-item correlation `item_icc`: with fresh noise it is
    `error_fresh`, of a model that answers alike every time `error_alike`, and `error_alike_thrice`
    from three times the orders (None of a strategy that asks in one order only).
    `power` is that of finding `odds`, None where no test is made; `queries_needed` find them with power `target`,
    None: never. `smallest`: the least odds below and above 1 that are found so.
    """

    queries: Count
    target: float
    odds: float
    tau: float
    item_icc: float
    reason: str | None
    comparisons: float | None
    sd: float | None
    error: float | None
    error_fresh: float | None
    error_alike: float | None
    error_alike_thrice: float | None
    power: Share | None
    queries_needed: Count | None
    smallest: tuple[float, ...]
    other_design: OtherDesign | None
    expected: tuple[ExpectedRatio, ...] | None


class Precision(NamedTuple):
    """Expected first encounters a query, and the standard error of ln odds."""

    comparisons: float
    error: float


class Comparable(Protocol):
    """The lists of a design that have something to compare."""

    @property
    def queries(self) -> int: ...

    def precision(self, orders: int, icc: float) -> Precision:
        """That of so many initial orders, of a model with this intra-item correlation."""
        ...


@dataclass(frozen=True)
class CountedLists:
    """Counted from windows that are known beforehand; `spread` is the standard deviation of ln odds over queries."""

    meetings: tuple[Meeting, ...]
    spread: float

    @property
    def queries(self) -> int:
        return len(self.meetings)

    def precision(self, orders: int, icc: float) -> Precision:
        comparisons = fsum(one.comparisons(orders) for one in self.meetings) / self.queries
        return Precision(comparisons, query_sd(self.meetings, orders, icc, self.spread) / sqrt(self.queries))


@dataclass(frozen=True)
class PlayedLists:
    """Simulated by the strategy's own program, at parity, where its questions hang on the answers."""

    lists: tuple[Items, ...]
    strategy: Strategy
    spread: float
    seed: int

    @property
    def queries(self) -> int:
        return len(self.lists)

    def precision(self, orders: int, icc: float) -> Precision:
        """Over a few audits, of lists that stand for all; the error is infinite where no odds are finite."""
        strategy, noise = self.strategy, Noise(icc)
        calls = orders * sum(strategy.plan(one.n).calls for one in self.lists)
        lists = self.lists[:: max(1, min(calls // PLAYED_CALLS, self.queries // FEWEST_LISTS))]
        audits = min(MOST_AUDITS, max(FEWEST_AUDITS, PLAYED_CALLS // max(1, calls)))
        played = [
            PlayedAudits(one, strategy, orders, 1, noise, (self.seed, k)) for k, one in enumerate(lists)
        ]
        counts, squares = list[int](), list[float]()
        for audit in range(audits):
            found = preference([one.value(0.0, audit) for one in played])
            counts.append(0 if found is None else found.comparisons)
            if found is not None and found.estimate.error:
                squares.append(found.estimate.error**2 * len(lists))
        error = sqrt((float(np.mean(squares)) + self.spread**2) / self.queries) if squares else inf
        return Precision(float(np.mean(counts)) / len(lists), error)


def power_of(lists: Comparable, odds: float, error: float) -> float | None:
    """The power to find these odds; None where no test is made."""
    return power(log(odds), error, lists.queries) if lists.queries >= FEWEST_TESTED else None


def findable_of(design: ListwiseDesign, settings: PlanSettings) -> ListwiseFindable:
    """Power and smallest odds of the test at the 5 % level, from the expected first encounters and --tau."""
    strategy = _strategy(design)
    lists = _lists(design, strategy, settings)
    unknown = ListwiseFindable(
        queries=lists.queries,
        target=settings.power,
        odds=settings.odds,
        tau=settings.tau,
        item_icc=settings.item_icc,
        smallest=(),
        **dict.fromkeys(UNKNOWN),
    )
    if reason := _unknown(design, lists.queries):
        return replace(unknown, reason=reason)
    orders, icc = design.settings.orders, settings.item_icc
    found = {one: lists.precision(orders, one) for one in (icc, 0.0, 1.0)}
    error = found[icc].error
    sd = error * sqrt(lists.queries)
    below = smallest_ratio(sd, lists.queries, settings.power) if lists.queries >= FEWEST_TESTED else None
    smallest = () if below is None else (below, 1 / below)
    return replace(
        unknown,
        comparisons=found[icc].comparisons,
        sd=sd,
        error=error,
        error_fresh=found[0.0].error,
        error_alike=found[1.0].error,
        error_alike_thrice=None if strategy.orderless else lists.precision(3 * orders, 1).error,
        power=power_of(lists, settings.odds, error),
        queries_needed=queries_needed(settings.odds, sd, settings.power),
        smallest=smallest,
        other_design=_other_design(design, settings),
        expected=_expected(design, [settings.odds, *smallest]) if settings.expected_ratio else None,
    )


def _unknown(design: ListwiseDesign, queries: int) -> str | None:
    """Why nothing is known of a design."""
    if isinstance(design.ranker, Ranker):
        return "no_model_asked"
    if design.settings.initial != "random":
        return "order_not_random"
    if not any(shape.protected and shape.unprotected for shape in design.shapes):
        return "no_list_of_both_sides"
    return None if queries else "no_common_grade"


def _strategy(design: ListwiseDesign) -> Strategy:
    """How it asks; whole lists of a ranker that asks nothing."""
    return Partition(MOST_ITEMS) if isinstance(design.ranker, Ranker) else design.ranker.strategy


def _lists(design: ListwiseDesign, strategy: Strategy, settings: PlanSettings) -> Comparable:
    listed = [items_of(design.dataset.candidates(query), design.sides) for query in design.queries]
    if any(strategy.one_pass(one.n) is None for one in listed):
        compared = tuple(one for one in listed if one.compared)
        return PlayedLists(compared, strategy, settings.tau, settings.seed)
    meetings = (_meeting(shape, lambda n: strategy.one_pass(n) or ()) for shape in design.shapes)
    return CountedLists(tuple(one for one in meetings if one.comparisons()), settings.tau)


def _meeting(shape: Shape, windows: Plan) -> Meeting:
    counts: dict[int, list[int]] = {}
    for side, grade, count in shape.cells:
        if side < 2:
            counts.setdefault(grade, [0, 0])[side] = count
    groups = tuple(len(ranks) for ranks in first_shown(windows(shape.n)))
    return Meeting(shape.n, tuple((protected, other) for protected, other in counts.values()), groups)


def _other_design(design: ListwiseDesign, settings: PlanSettings) -> OtherDesign:
    """One partition beside rankings, and rankings from as many orders as by default beside partitions."""
    prompts = sum(condition.name != REPEAT for condition in design.prompts)
    strategy: Strategy = Partition(settings.window)
    name: Literal["ranking", "partition"] = "partition"
    orders, chains = 1, prompts
    if design.partition:
        name, orders, strategy = "ranking", ListwiseSettings.orders, strategy_of("windows", vars(settings))
        chains = orders * (prompts + ListwiseSettings.repeat)
    lists = _lists(design, strategy, settings)
    error = lists.precision(orders, settings.item_icc).error
    calls = chains * sum(strategy.plan(shape.n).calls for shape in design.shapes)
    return OtherDesign(name, orders, calls, error, power_of(lists, settings.odds, error))


def _expected(design: ListwiseDesign, odds: Sequence[float]) -> tuple[ExpectedRatio, ...] | None:
    """The ratio of means over all lists in their windows, of simulated rankers; None where nothing is
    ranked, or questions hang on the answers."""
    if design.partition or any(design.windows(shape.n) is None for shape in design.shapes):
        return None
    listed = [kinds_of(design.dataset.candidates(query), design.sides) for query in design.queries]
    shapes = Counter(replace(one, query_id="") for one in listed if one.two_sided)
    betas, rng = [log(one) for one in odds], np.random.default_rng(design.settings.seed)
    found = []
    for relevance in (0.0, RELEVANCE):
        sides = np.zeros((len(betas), 2))
        for kinds, count in shapes.items():
            draws = ceil(EXPECTED_DRAWS * count / shapes.total())
            weights, windows = kinds.log_weights(betas, relevance), design.windows(kinds.n) or ()
            ranked = simulate(kinds, weights, windows, design.passes, draws, 1, rng=rng)
            sides += count * ranked.final.mean(axis=(1, 2))
        found.append((sides[:, 0] / sides[:, 1]).tolist())
    return tuple(ExpectedRatio(*one) for one in zip(odds, *found, strict=True))
