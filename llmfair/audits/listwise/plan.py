"""What a design would ask and can reach, counted and simulated before anything is asked."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import cycle
from math import ceil, fsum, inf, log, sqrt
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from llmfair.audits.aggregates import preference
from llmfair.audits.design import CHARACTERS_PER_TOKEN
from llmfair.audits.documents import CallPlan
from llmfair.audits.listwise.settings import ListwiseSettings, PlanSettings
from llmfair.audits.listwise.simulate import Floats, Items, Noise, PlayedAudits, items_of, play, rank_played
from llmfair.io.files import plain
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
from llmfair.results import Count, JsonObject, Reach, Share
from llmfair.stats.power import (
    FEWEST_TESTED,
    Meeting,
    Rank,
    attainable_precision,
    attainable_ratio,
    by_windows,
    first_shown,
    kind_exposures,
    power,
    queries_needed,
    query_sd,
    random_lists,
    rank_injected,
    smallest_ratio,
)

if TYPE_CHECKING:
    from llmfair.audits.listwise.design import Cells, ListwiseDesign, Shape

# What a design can show at all, whatever the model: simulated on its own lists and windows, never asked.


REACH_DRAWS = 3000
REACH_CALLS, FEWEST_DRAWS, MOST_DRAWS = 60_000, 30, 1000
"""Where a program is played so many questions are answered in all, from so many initial orders at least and at most:
the more questions, the less is left to the order."""
INDIFFERENT_DRAWS = 100
Plans = tuple[tuple[int, tuple[tuple[int, int], ...]], ...]


def known_reach(design: ListwiseDesign) -> dict[str, Reach]:
    """ExpRatio of rankers that always put one side first, P@20 of a perfect ranker, both from random orders.

    Of other initial orders: the ExpRatio that a ranker without any preference makes of them (`indifferent`).
    """
    settings, strategy = design.settings, getattr(design.ranker, "strategy", None)
    if design.partition:
        return {}
    if settings.initial not in ("random", "mirrored"):
        indifferent = _indifferent(design, np.random.default_rng(settings.seed))
        return {} if indifferent is None else {"ExpRatio": Reach(indifferent=indifferent)}
    sizes = sorted({shape.n for shape in design.shapes})
    plans = [(n, windows) for n in sizes if (windows := design.ranker.one_pass(n)) is not None]
    if len(plans) == len(sizes):
        ways = tuple((n, tuple(windows)) for n, windows in plans)
        return _reach(design.shapes, ways, design.ranker.passes, REACH_DRAWS, settings.seed)
    assert strategy is not None
    asked = max(strategy.plan(size).calls for size in sizes)
    draws = min(MOST_DRAWS, max(FEWEST_DRAWS, REACH_CALLS // max(1, asked)))
    return _reach(design.shapes, strategy, 1, draws, settings.seed)


@lru_cache(maxsize=32)
def _reach(
    shapes: tuple[Shape, ...], how: Plans | Strategy, passes: int, draws: int, seed: int
) -> dict[str, Reach]:
    """By what lists are ranked: windows in so many passes, or a program; from so many initial orders."""
    rng, reach = np.random.default_rng(seed), dict[str, Reach]()
    rank: Rank = (
        partial(rank_played, how) if isinstance(how, Strategy) else by_windows(dict(how).__getitem__, passes)
    )
    if both := [(s.n, s.protected, s.unprotected) for s in shapes if s.protected and s.unprotected]:
        ratio = attainable_ratio(both, rank, draws, rng=rng)
        reach["ExpRatio"] = Reach(low=ratio.low, high=ratio.high)
    if judged := [(shape.n, shape.relevant) for shape in shapes if shape.judged]:
        reach["P@20"] = Reach(high=attainable_precision(judged, rank, 20, draws, rng=rng))
    return reach


def _indifferent(design: ListwiseDesign, rng: np.random.Generator) -> float | None:
    """The exposure ratio of a ranker that orders every window by chance, from the design's own initial orders."""
    kind_of = {Side.PROTECTED: 0, Side.UNPROTECTED: 1, None: 2}
    over = under = 0.0
    for query in design.queries:
        for shown in design.orders[query.query_id]:
            kinds = np.array([kind_of[design.sides[doc_id]] for doc_id in shown.doc_ids], dtype=np.uint8)
            if not {0, 1} <= set(kinds.tolist()):
                continue
            lists = np.tile(kinds, (INDIFFERENT_DRAWS, 1))
            windows = design.ranker.one_pass(len(kinds))
            if windows is None:  # questions hang on answers, each of which is chance
                assert isinstance(design.ranker, ListwiseRanker)
                strategy, order = design.ranker.strategy, range(len(kinds))
                finals = [
                    play(strategy, order, lambda items, _: rng.random(len(items)).tolist()) for _ in lists
                ]
                ranked = np.array([kinds[final] for final, _ in finals])
            else:
                ranked = rank_injected(lists, np.zeros(3), windows, design.ranker.passes, rng=rng)
            sides = kind_exposures(ranked, 2).mean(axis=0)
            over, under = over + float(sides[0]), under + float(sides[1])
    return over / under if under else None


MOST_RENDERED = 20_000
"""About how many prompts are written out to tell how long all are."""
WORDS_OF_A_PROMPT = (
    "dataset", "attribute", "seed", "candidates", "buckets", "relevant", "min_relevant", "mixed", "input", "words",
    "prompt", "strategy", "design", "window", "step", "depth", "windows", "initial", "orders",
)  # fmt: skip


def plan_of(design: ListwiseDesign) -> dict[str, Any]:
    """Chains, windows and reach of an audit; `render`: the flags with which `prompts render` shows its first prompt."""
    protected = [shape.protected for shape in design.shapes]
    unsaid = {"prompt"} if design.settings.prompt == design.dataset.prompt else set()
    flags = design.settings.as_flags(name for name in WORDS_OF_A_PROMPT if name not in unsaid)
    return {
        **plain(design.facts()),
        "protected": [min(protected), max(protected)],
        "longest_chain": design.longest,
        "reach": plain(known_reach(design)),
        "render": f"{flags} --queries {shlex.quote(design.queries[0].query_id)}".strip(),
    }


def beside(plans: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What each strategy takes, can reach and can find; calls may be at most so many where one's are."""
    rows = []
    for planned in plans:
        known = {"strategy": "windows", "at_most": False, **planned, **planned.get("findable", {})}
        known["reach"] = planned["reach"].get("ExpRatio", {})
        rows.append({name: known[name] for name in StrategyPlan.__struct_fields__ if name in known})
    return {"strategies": rows, **({"at_most": True} if any(row["at_most"] for row in rows) else {})}


def tokens_of(design: ListwiseDesign) -> tuple[int, int]:
    """About how many tokens all prompts and all answers of one model have.

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
        first_order, calls = design.orders[query.query_id][:1], design.plan_of(query).calls
        (probe,) = listwise_probes(design.dataset.candidates(query), first_order, (condition,), 1)
        if chats := chats_of(design.ranker.steps(probe), passes=1):
            characters = sum(len(message.content) for chat in chats for message in chat.messages)
            prompts += characters * calls // len(chats)
            answers += sum(len(answer_in_shown_order(chat).text) for chat in chats) * calls // len(chats)
    shown = max(1, sum(design.plan_of(query).calls for query in queries))
    chains = of_all * design.chains_per_query
    return (
        prompts * chains // shown // CHARACTERS_PER_TOKEN,
        answers * chains // shown // CHARACTERS_PER_TOKEN,
    )


def chats_of(steps: Steps[Ranked], passes: float = inf) -> list[Chat]:
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
CERTAIN = 50.0
"""Log-weights of relevance are cut to ± this: farther apart no order is ever lost."""
EXPECTED_DRAWS = 1000
"""Lists ranked in all, for each ratio that is expected."""


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
    reason: str | None = None
    comparisons: float | None = None
    sd: float | None = None
    error: float | None = None
    error_fresh: float | None = None
    error_alike: float | None = None
    error_alike_thrice: float | None = None
    power: Share | None = None
    queries_needed: Count | None = None
    smallest: tuple[float, ...] = ()
    other_design: OtherDesign | None = None
    expected: tuple[ExpectedRatio, ...] | None = None


Precision = Callable[[int, float], tuple[float, float]]
"""From so many orders, of a model with this intra-item correlation: first encounters a query, standard error of ln
odds."""


def _counted(
    meetings: Sequence[Meeting], settings: PlanSettings, orders: int, icc: float
) -> tuple[float, float]:
    """Of lists whose windows are known beforehand."""
    comparisons = fsum(meeting.comparisons(orders) for meeting in meetings) / len(meetings)
    return comparisons, query_sd(meetings, orders, icc, settings.tau) / sqrt(len(meetings))


def _played(
    listed: Sequence[Items], strategy: Strategy, settings: PlanSettings, orders: int, icc: float
) -> tuple[float, float]:
    """Of a few audits at parity by the strategy's own program, where its questions hang on the answers.

    Some lists may stand for all; the error is infinite where no odds are finite.
    """
    calls = orders * sum(strategy.plan(items.n).calls for items in listed)
    lists = listed[:: max(1, min(calls // PLAYED_CALLS, len(listed) // FEWEST_LISTS))]
    audits = min(MOST_AUDITS, max(FEWEST_AUDITS, PLAYED_CALLS // max(1, calls)))
    played = [
        PlayedAudits(items, strategy, orders, 1, Noise(icc), (settings.seed, k))
        for k, items in enumerate(lists)
    ]
    counts, squares = list[int](), list[float]()
    for audit in range(audits):
        odds = preference([of_list.value(0.0, audit) for of_list in played])
        counts.append(0 if odds is None else odds.comparisons)
        if odds is not None and odds.estimate.error:
            squares.append(odds.estimate.error**2 * len(lists))
    error = sqrt((float(np.mean(squares)) + settings.tau**2) / len(listed)) if squares else inf
    return float(np.mean(counts)) / len(lists), error


def _power(queries: int, odds: float, error: float) -> float | None:
    """The power to find these odds; None where no test is made."""
    return power(log(odds), error, queries) if queries >= FEWEST_TESTED else None


def findable_of(design: ListwiseDesign, settings: PlanSettings) -> ListwiseFindable:
    """Power and smallest odds of the test at the 5 % level, from the expected first encounters and --tau."""
    # a ranker that asks nothing has whole lists
    alone = isinstance(design.ranker, Ranker)
    strategy = Partition(MOST_ITEMS) if isinstance(design.ranker, Ranker) else design.ranker.strategy
    queries, precision = _precision(design, strategy, settings)
    unknown = {
        "no_model_asked": alone,
        "order_not_random": design.settings.initial != "random",
        "no_list_of_both_sides": not any(shape.protected and shape.unprotected for shape in design.shapes),
        "no_common_grade": not queries,
    }
    asked = ListwiseFindable(
        queries=queries,
        target=settings.power,
        odds=settings.odds,
        tau=settings.tau,
        item_icc=settings.item_icc,
        reason=next((reason for reason, holds in unknown.items() if holds), None),
    )
    if asked.reason is not None:
        return asked
    orders = design.settings.orders
    comparisons, error = precision(orders, settings.item_icc)
    sd = error * sqrt(queries)
    below = smallest_ratio(sd, queries, settings.power) if queries >= FEWEST_TESTED else None
    smallest = () if below is None else (below, 1 / below)
    return replace(
        asked,
        comparisons=comparisons,
        sd=sd,
        error=error,
        error_fresh=precision(orders, 0.0)[1],
        error_alike=precision(orders, 1.0)[1],
        error_alike_thrice=None if strategy.orderless else precision(3 * orders, 1.0)[1],
        power=_power(queries, settings.odds, error),
        queries_needed=queries_needed(settings.odds, sd, settings.power),
        smallest=smallest,
        other_design=_other_design(design, settings),
        expected=_expected(design, [settings.odds, *smallest]) if settings.expected_ratio else None,
    )


def _precision(design: ListwiseDesign, strategy: Strategy, settings: PlanSettings) -> tuple[int, Precision]:
    """How many lists have something to compare, and how precisely they tell odds."""
    listed = [items_of(design.dataset.candidates(query), design.sides) for query in design.queries]
    if any(strategy.one_pass(items.n) is None for items in listed):
        compared = [items for items in listed if items.compared]
        return len(compared), partial(_played, compared, strategy, settings)
    meetings = []
    for shape in design.shapes:
        counts: dict[int, list[int]] = {}
        for side, grade, count in shape.cells:
            if side < 2:
                counts.setdefault(grade, [0, 0])[side] = count
        groups = tuple(len(ranks) for ranks in first_shown(strategy.one_pass(shape.n) or ()))
        meeting = Meeting(shape.n, tuple((ours, theirs) for ours, theirs in counts.values()), groups)
        if meeting.comparisons():
            meetings.append(meeting)
    return len(meetings), partial(_counted, meetings, settings)


def _other_design(design: ListwiseDesign, settings: PlanSettings) -> OtherDesign:
    """One partition beside rankings, and rankings from as many orders as by default beside partitions."""
    prompts = sum(condition.name != REPEAT for condition in design.prompts)
    strategy: Strategy = Partition(settings.window)
    name: Literal["ranking", "partition"] = "partition"
    orders, chains = 1, prompts
    if design.partition:
        name, orders, strategy = "ranking", ListwiseSettings.orders, strategy_of("windows", vars(settings))
        chains = orders * (prompts + ListwiseSettings.repeat)
    queries, precision = _precision(design, strategy, settings)
    _, error = precision(orders, settings.item_icc)
    calls = chains * sum(strategy.plan(shape.n).calls for shape in design.shapes)
    return OtherDesign(name, orders, calls, error, _power(queries, settings.odds, error))


def _expected(design: ListwiseDesign, odds: Sequence[float]) -> tuple[ExpectedRatio, ...] | None:
    """The ratio of means over all lists in their windows, of simulated rankers; None where nothing is
    ranked, or questions hang on the answers."""
    if design.partition or any(design.ranker.one_pass(shape.n) is None for shape in design.shapes):
        return None
    shapes = Counter(shape.cells for shape in design.shapes if shape.protected and shape.unprotected)
    betas, rng = np.array([log(value) for value in odds]), np.random.default_rng(design.settings.seed)
    ratios = []
    for relevance in (0.0, RELEVANCE):
        sides = np.zeros((len(betas), 2))
        for cells, count in shapes.items():
            draws = ceil(EXPECTED_DRAWS * count / shapes.total())
            sides += count * _exposures(design, cells, betas, relevance, draws, rng)
        ratios.append((sides[:, 0] / sides[:, 1]).tolist())
    return tuple(ExpectedRatio(*of_odds) for of_odds in zip(odds, *ratios, strict=True))


def _exposures(
    design: ListwiseDesign,
    cells: Cells,
    betas: Floats,
    relevance: float,
    draws: int,
    rng: np.random.Generator,
) -> Floats:
    """Mean exposures of both sides in lists of this shape, by rankers with these log odds; shape (rankers, 2).

    Documents of one side and one grade are interchangeable, so lists are ranked by kinds.
    """
    kinds = sorted(cells, key=lambda cell: (cell[1], (cell[0] + 1) % 3))
    side, grade, counts = np.array(kinds).T
    weights = np.multiply.outer(betas, side == 0)[:, None, :] + np.clip(relevance * grade, -CERTAIN, CERTAIN)
    lists = random_lists(counts.tolist(), draws, rng=rng)
    shown = np.broadcast_to(lists, (len(betas), *lists.shape))
    windows = design.ranker.one_pass(lists.shape[1]) or ()
    ranked = rank_injected(shown, weights, windows, design.ranker.passes, rng=rng)
    on = np.stack([counts * (side == group) for group in (0, 1)], axis=1)
    exposures = kind_exposures(ranked, len(counts))[:, :, None] @ (on / on.sum(axis=0))
    means: Floats = exposures.mean(axis=(1, 2))
    return means


# What a plan prints with `--json`.


class StrategyPlan(JsonObject, frozen=True, kw_only=True):
    """One of several strategies: what it takes, the range of ExpRatio within reach, and what it can find."""

    strategy: str
    at_most: bool
    window: Count | None
    step: Count | None
    passes: Count | None
    calls: Count
    prompt_tokens: Count
    completion_tokens: Count
    cost: float | None = None
    longest_chain: Count
    folder: str
    reach: Reach
    comparisons: float | None = None
    error: float | None = None
    power: float | None = None
    queries_needed: Count | None = None


class ListwisePlan(CallPlan, frozen=True, kw_only=True):
    """llmfair plan listwise; llmfair listwise --dry-run has no findable, and cost only at given prices."""

    task: Literal["listwise"]
    candidates: tuple[Count, Count]
    protected: tuple[Count, Count]
    conditions: Annotated[list[str], Meta(min_length=1)]
    window: Count | None
    step: Count | None
    passes: Count | None
    initial: str
    orders: Count
    seed: Count
    chains: Count
    longest_chain: Count
    reach: Mapping[str, Reach]
    render: str
    findable: ListwiseFindable | None = None
    strategies: list[StrategyPlan] | None = None
