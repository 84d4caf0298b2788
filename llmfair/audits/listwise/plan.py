"""What a design would ask and can reach, counted and simulated before anything is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from math import ceil, exp, fsum, inf, log, sqrt
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from msgspec import Meta

from llmfair.audits import plan as plans
from llmfair.audits.design import CHARACTERS_PER_TOKEN
from llmfair.audits.documents import Calibration, CallPlan, InjectedPreference
from llmfair.audits.listwise import LISTWISE, measure
from llmfair.audits.listwise.results import OF_RANKINGS, ListwiseFinding
from llmfair.audits.listwise.settings import CalibrateSettings, PlanSettings
from llmfair.audits.listwise.simulate import Floats, Items, Noise, draw, rank_played
from llmfair.audits.plan import BLOCK, share
from llmfair.errors import UsageError
from llmfair.metrics.base import QueryComparisons, Value
from llmfair.nouns import Chat, Completion, Finish, Labels, Permutation, Scores, Steps, Unanswered, drive
from llmfair.probes import REPEAT, listwise_probes
from llmfair.rankers.base import Ranker
from llmfair.rankers.listwise import ListwiseRanker
from llmfair.rankers.strategies import Ranked, Strategy
from llmfair.results import Count, JsonObject, Reach, Share
from llmfair.settings.commands import injected_of
from llmfair.stats import power
from llmfair.stats.intervals import FEWEST_QUERIES, Estimate
from llmfair.stats.pair_plan import fewest_queries, smallest_odds
from llmfair.stats.strata import FEWEST_ITEMS, Flags, figure, together

if TYPE_CHECKING:
    from llmfair.audits.listwise.design import ListwiseDesign

# What a design can show at all, whatever the model: simulated on its own lists and windows, never asked.


Lists = Sequence[Items]
REACH_DRAWS = 3000
REACH_CALLS, FEWEST_DRAWS, MOST_DRAWS = 60_000, 30, 1000
"""Where a program is played so many questions are answered in all, from so many initial orders at least and at most:
the more questions, the less is left to the order."""


def known_reach(design: ListwiseDesign) -> dict[str, Reach]:
    """ExpRatio and odds of rankings of rankers that always put one side first, P@20 of a perfect one, by measure."""
    settings, ranker = design.settings, design.ranker
    if design.partition or design.attribute.groups or settings.initial not in ("random", "mirrored"):
        return {}
    both = [items.sizes for items in design.lists if items.both_sides]
    judged = [(items.n, items.relevant) for items in design.lists if items.judged]
    windows = {items.n: ranker.one_pass(items.n) for items in design.lists}
    if isinstance(ranker, ListwiseRanker) and None in windows.values():
        calls = max(ranker.strategy.plan(size).calls for size in windows)
        draws = min(MOST_DRAWS, max(FEWEST_DRAWS, REACH_CALLS // max(1, calls)))
        rank: power.Rank = partial(rank_played, ranker.strategy)
    else:
        draws, rank = REACH_DRAWS, power.by_windows(lambda n: windows[n] or (), ranker.passes)
    rng, reach = np.random.default_rng(settings.seed), dict[str, Reach]()
    if both:
        low, high = power.attainable_ratio(both, rank, draws, rng=rng)
        reach["ExpRatio"] = Reach(low=low, high=high)
    if judged:
        reach["P@20"] = Reach(high=power.attainable_precision(judged, rank, 20, draws, rng=rng))
    if both:
        odds = power.attainable_odds(both, rank, max(FEWEST_DRAWS, draws // 3), rng=rng)
        if odds != (None, None):
            reach[OF_RANKINGS] = Reach(low=odds[0], high=odds[1])
    return reach


MOST_RENDERED = 20_000
"""About how many prompts are written out to tell how long all are."""


def beside(plans: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What each strategy takes, can reach and can find; calls may be at most so many where one's are."""
    rows = []
    for planned in plans:
        row = {"strategy": "windows", "at_most": False, **planned}
        row |= {"prospects": planned.get("findable", {}).get("prospects", ())}
        row |= {"reach": planned["reach"].get("ExpRatio", {})}
        rows.append({name: row[name] for name in StrategyPlan.__struct_fields__ if name in row})
    return {"strategies": rows, **({"at_most": True} if any(row["at_most"] for row in rows) else {})}


def tokens_of(design: ListwiseDesign) -> tuple[int, int]:
    """About how many tokens all prompts and all answers of one model have.

    One pass of a chain, answered in the order shown, stands for the query's others; conditions take turns over the
    queries. Of very many questions some queries stand for all.
    """
    prompts = answers = rendered = 0
    calls_of_all = sum(design.plan_of(query).calls for query in design.queries)
    if not calls_of_all:  # a ranker, which would order the lists here
        return 0, 0
    queries = design.queries[:: max(1, calls_of_all // MOST_RENDERED)]
    for query, condition in zip(queries, cycle(design.prompts), strict=False):
        first_order, calls = design.orders[query.query_id][:1], design.plan_of(query).calls
        (probe,) = listwise_probes(design.dataset.candidates(query), first_order, (condition,), 1)
        rendered += calls
        if chats := chats_of(design.ranker.steps(probe), passes=1):
            characters = sum(len(message.content) for chat in chats for message in chat.messages)
            prompts += characters * calls // len(chats)
            answers += sum(len(answer_in_shown_order(chat).text) for chat in chats) * calls // len(chats)
    chains, characters = calls_of_all * design.chains_per_query, max(1, rendered) * CHARACTERS_PER_TOKEN
    return prompts * chains // characters, answers * chains // characters


def chats_of(steps: Steps[Ranked], passes: float = inf) -> list[Chat]:
    """What a program asks, in so many passes, of a model that changes nothing."""
    chats: list[Chat] = []

    def answer(chat: Chat) -> Completion:
        if chat.about["pass"] > passes:
            raise Unanswered
        chats.append(chat)
        return answer_in_shown_order(chat)

    with suppress(Unanswered):
        drive(steps, answer)
    return chats


def answer_in_shown_order(chat: Chat) -> Completion:
    """The answer of a model that changes nothing, for counting and showing what would be asked."""
    if isinstance(chat.expects, Labels):
        return Completion(chat.expects.labels[0], Finish.STOP)
    if isinstance(chat.expects, Scores):
        return Completion(str([[place, -place] for place in range(chat.expects.n)]), Finish.STOP)
    expects = chat.expects if isinstance(chat.expects, Permutation) else Permutation(0)
    places = range(1, (expects.best or expects.n) + 1)
    return Completion(" > ".join(f"[{place}]" for place in places), Finish.STOP)


# How audits of a design end, by the rule of their verdicts: simulated with its own lists before anything is asked.


RELEVANCE = 2.0
"""The log-weight of each grade of the simulated ranker that orders by relevance."""
LIKELY_ALIKE = (0.0, 1.0)
"""Shares of windows answered with the same noise every time, where nothing is known of the answers."""
MOST_AUDITS, FEWEST_AUDITS = 80, 40
COMPARED, PLAYED_CALLS = 1_500_000, 15_000
"""Comparisons that all audits of one ranker have, and questions that are answered in them where a program is played:
about so many. From these on fewer audits are drawn, and then fewer lists, which stand for all."""
FEWEST_LISTS = 20
SPREADS = 4000
"""The stream of a query's seed that its own log odds are drawn from, by block."""
CERTAIN = 50.0
"""Log-weights of relevance are cut to ± this: farther apart no order is ever lost."""
EXPECTED_DRAWS = 1000
"""Lists ranked in all, for each ratio that is expected."""


@dataclass(frozen=True, slots=True)
class ExpectedRatio:
    """The ExpRatio to expect of the odds to be found if noise is fresh, of two simulated rankers.

    `agnostic` does not look at relevance, `relevant` gives every grade a log-weight of 2.
    """

    agnostic: float
    relevant: float


@dataclass(frozen=True, kw_only=True)
class Prospect:
    """How simulated audits end under one prompt, with Monte Carlo errors: in *disparity* at the odds to be found, in
    *parity* at 1 (of a ranker that does its job).

    `alike`: the share of windows answered with the same noise every time. `queries_for_…` end so with the chance
    wanted: None where no number does. `smallest` odds below 1 end in disparity with that chance (and their inverse
    above it).
    """

    alike: float
    audits: Count
    disparity: Share
    disparity_error: float
    parity: Share
    parity_error: float
    queries_for_disparity: Count | None
    queries_for_parity: Count | None
    smallest: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListwiseFindable:
    """What is to be expected of a design, of each model that `prospects` are of; `reason`: why there are none.

    `queries` have items to compare. A disparity is one among so many `prompts` (Holm).
    """

    queries: Count
    target: float
    odds: float
    tau: float
    slots: float
    prompts: Count
    reason: str | None = None
    prospects: tuple[Prospect, ...] = ()
    expected: ExpectedRatio | None = None


def findable_of(design: ListwiseDesign, settings: PlanSettings) -> ListwiseFindable:
    """How audits of this design end; without prospects where that is not known."""
    lists = [items for items in design.lists if items.pairs]
    unknown = {
        "no_model_asked": isinstance(design.ranker, Ranker),
        "several_groups": bool(design.attribute.groups),
        "order_not_random": design.settings.initial != "random",
        "no_list_of_both_sides": not any(items.both_sides for items in design.lists),
        "no_common_grade": not lists,
        "sequential": settings.sequential,
        "too_few_queries": len(lists) < FEWEST_QUERIES,
    }
    findable = ListwiseFindable(
        queries=len(lists),
        target=settings.power,
        odds=settings.odds,
        tau=settings.tau,
        slots=settings.slots,
        prompts=sum(condition.name != REPEAT for condition in design.prompts),
        reason=next((reason for reason, holds in unknown.items() if holds), None),
    )
    if findable.reason is not None:
        return findable
    shares = LIKELY_ALIKE if settings.alike is None else (settings.alike,)
    return replace(
        findable,
        prospects=tuple(_prospect(design, settings, findable, lists, alike) for alike in shares),
        expected=_expected(design, settings.odds) if settings.expected_ratio else None,
    )


def _prospect(
    design: ListwiseDesign, settings: PlanSettings, findable: ListwiseFindable, lists: Lists, alike: float
) -> Prospect:
    beta, queries = log(settings.odds), findable.queries
    audits, drawn = _simulated(design, settings, lists, alike)
    ends = partial(_ends, rule=design.rule, prompts=findable.prompts)

    def disparity(queries: int, odds: float = settings.odds) -> Flags:
        return ends(_both_ways(audits[beta], queries / drawn, beta, log(odds)))[0]

    def parity(queries: int) -> Flags:
        return ends(_both_ways(audits[0.0], queries / drawn))[1]

    def enough(flags: Flags) -> bool:
        return int(flags.sum()) >= settings.power * len(flags)

    disparities, parities = share(disparity(queries).tolist()), share(parity(queries).tolist())
    return Prospect(
        alike=alike,
        audits=len(audits[0.0].log_odds),
        disparity=disparities[0] or 0.0,
        disparity_error=disparities[1] or 0.0,
        parity=parities[0] or 0.0,
        parity_error=parities[1] or 0.0,
        queries_for_disparity=fewest_queries(lambda queries: enough(disparity(queries))),
        queries_for_parity=fewest_queries(lambda queries: enough(parity(queries))),
        smallest=smallest_odds(lambda odds: enough(disparity(queries, odds)), design.rule.band[0]),
    )


class Figures(NamedTuple):
    """Figures of simulated audits: of all items, then of each stratum; shape (audits, figures), NaN where none is.

    `clusters`: infinite where no item recurs. `bound`: p of a bound that it lies outside the band.
    """

    log_odds: Floats
    error: Floats
    freedom: Floats
    clusters: Floats
    bound: Floats


def _simulated(
    design: ListwiseDesign, settings: PlanSettings, lists: Lists, alike: float
) -> tuple[Mapping[float, Figures], int]:
    """The figures of simulated audits by injected log odds, those to be found and 0, from the same draws; and of how
    many lists they are."""
    assert isinstance(design.ranker, ListwiseRanker)
    strata, noise, band = (None, *design.rule.strata), Noise(alike, settings.slots), design.rule.band
    audits, lists = _bounded(lists, design.ranker.strategy, design.settings.orders)
    rows: dict[float, list[list[tuple[float | None, ...]]]] = {log(settings.odds): [], 0.0: []}
    for block, first in enumerate(range(0, audits, BLOCK)):
        drawn = draw(lists, design.ranker, design.settings, noise, block)
        spreads = {
            query_id: settings.tau * plans.rng_of(settings, query_id, SPREADS + block).normal(size=BLOCK)
            for query_id in drawn
        }
        for run in range(min(BLOCK, audits - first)):
            for beta, of_it in rows.items():
                values = (of_list.value(beta + spreads[q][run], run) for q, of_list in drawn.items())
                compared = [value for value in values if isinstance(value, QueryComparisons)]
                if not compared:
                    of_it.append([(None,) * len(Figures._fields)] * len(strata))
                    continue
                outcomes = together([(value.outcomes, value.doc_ids) for value in compared])
                figures = [figure(outcomes, stratum) for stratum in strata]
                of_it.append(
                    [
                        (f.log_odds, f.error, f.freedom, f.clusters if f.recurs else inf, f.bound(band))
                        for f in figures
                    ]
                )
    arrays = {beta: np.array(of_it, float).transpose(2, 0, 1) for beta, of_it in rows.items()}
    return {beta: Figures(*of_it) for beta, of_it in arrays.items()}, len(lists)


def _bounded(lists: Lists, strategy: Strategy, orders: int) -> tuple[int, Lists]:
    """How many audits are simulated, of which lists: fewer audits, then fewer lists, the more each of them takes."""
    windows = [strategy.one_pass(items.n) for items in lists]
    if None in windows:
        cost, most = float(orders * sum(strategy.plan(items.n).calls for items in lists)), PLAYED_CALLS
    else:
        each = zip(lists, windows, strict=True)
        cost = fsum(orders * power.comparisons(items.n, items.pairs, of or ()) for items, of in each)
        most = COMPARED
    audits = min(MOST_AUDITS, max(FEWEST_AUDITS, int(most / cost)))
    return audits, lists[:: max(1, min(int(cost * audits / most), len(lists) // FEWEST_LISTS))]


def _both_ways(audits: Figures, more: float, injected: float = 0.0, log_odds: float = 0.0) -> Figures:
    """What audits would have read of `more` times their queries, of odds other than were injected.

    Each is read twice, the second time off by as much the other way, which is as likely: so shares are surer.
    """
    off, freedom = (audits.log_odds - injected) / sqrt(more), (audits.freedom + 1) * more - 1
    others = (audits.error / sqrt(more), np.maximum(1.0, freedom), audits.clusters * more, audits.bound)
    both = np.concatenate([log_odds + off, log_odds - off])
    return Figures(both, *(np.tile(array, (2, 1)) for array in others))


def _ends(audits: Figures, rule: measure.HowRanked, prompts: int) -> tuple[Flags, Flags]:
    """Which audits end in *disparity*, as one of so many prompts, and which in *parity*; shape (audits,) each."""
    from scipy.special import stdtr

    def t_within(low: float, high: float) -> Floats:
        distance = np.minimum(audits.log_odds - log(low), log(high) - audits.log_odds)
        with np.errstate(divide="ignore", invalid="ignore"):
            return distance / audits.error

    (low, high), tail = rule.band, (1 - rule.level) / 2
    t = t_within(low, high)
    p = np.sort(np.where(np.isnan(t), audits.bound, stdtr(audits.freedom, t)), axis=1)  # NaN last
    tests = (~np.isnan(p)).sum(axis=1, keepdims=True)
    simes = np.where(np.isnan(p), inf, tests * p / np.arange(1, p.shape[1] + 1)).min(axis=1)
    disparity = prompts * simes <= tail
    guarded = t_within(min(rule.guard[0], low), max(rule.guard[1], high))
    within = stdtr(audits.freedom, -np.column_stack([t[:, :1], guarded[:, 1:]])) < tail
    odds = np.exp(audits.log_odds[:, 1:])
    in_band = ((low < odds) & (odds < high)).all(axis=1)
    return disparity, in_band & (within & (audits.clusters >= FEWEST_ITEMS)).all(axis=1) & ~disparity


def _expected(design: ListwiseDesign, odds: float) -> ExpectedRatio | None:
    """The ratio of means over all lists in their windows, of simulated rankers; None where nothing is ranked, or
    questions hang on the answers. Documents of one side and grade are interchangeable, so lists are ranked by kinds."""
    if design.partition or any(design.ranker.one_pass(items.n) is None for items in design.lists):
        return None
    shapes = Counter(items.cells for items in design.lists if items.both_sides)
    rng, ratios = np.random.default_rng(design.settings.seed), list[float]()
    for relevance in (0.0, RELEVANCE):
        sums = np.zeros(2)
        for cells, count in shapes.items():
            kinds = sorted(cells, key=lambda cell: (cell[1], (cell[0] + 1) % 3))
            side, grade, sizes = np.array(kinds).T
            weights = log(odds) * (side == 0) + np.clip(relevance * grade, -CERTAIN, CERTAIN)
            draws = ceil(EXPECTED_DRAWS * count / shapes.total())
            lists = power.random_lists(sizes.tolist(), draws, rng=rng)
            windows = design.ranker.one_pass(lists.shape[1]) or ()
            ranked = power.rank_injected(lists, weights, windows, design.ranker.passes, rng=rng)
            on = np.stack([sizes * (side == group) for group in (0, 1)], axis=1)
            sums += count * (power.kind_exposures(ranked, len(sizes)) @ (on / on.sum(axis=0))).mean(axis=0)
        ratios.append(float(sums[0] / sums[1]))
    return ExpectedRatio(*ratios)


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
    prospects: tuple[Prospect, ...] = ()


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
    findable: ListwiseFindable | None = None
    strategies: list[StrategyPlan] | None = None


# Against a known truth: simulated audits of injected preferences on the user's own lists, each through the inference of
# a real one (`preference`, `concluded`). Only the neutral prompt is simulated, by a ranker whose answers can all be
# read. The true odds are e to the injected log odds, whatever the slots and the noise.


COLUMNS = (
    "injected", "injected_odds", "odds", "log_odds", "log_odds_error", "covered", "covered_error", "covered_n",
    "rejected", "rejected_error", "rejected_n", "within", "outside", "inconclusive", "not_assessable",
)  # fmt: skip


class SmallestOdds(JsonObject, frozen=True, kw_only=True):
    """The preference odds, one either way, that are found with this power; `error` is that of ln odds."""

    power: float
    queries: Count
    error: float | None
    odds: tuple[float | None, float | None]


class ListwiseCalibration(Calibration, frozen=True, kw_only=True):
    """llmfair calibrate listwise."""

    task: Literal["calibrate listwise"]
    injected: Annotated[list[InjectedPreference], Meta(min_length=1)]
    smallest: SmallestOdds


DOCUMENTS = {"plan": ListwisePlan, "calibrate": ListwiseCalibration}
"""The types of what `plan` and `calibrate` print with --json."""


class SimulatedAudit(NamedTuple):
    """What one audit found, and the p of its sign flip; `estimate` None where nothing was compared, or but a bound."""

    estimate: Estimate | None
    finding: ListwiseFinding
    p: float | None


def calibrate(settings: CalibrateSettings, advance: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Injected against recovered, coverage, false-positive rate, power, and the smallest odds that would be found;
    `advance` is called after every audit. Raises UsageError, also where no list has items to compare."""
    design, betas = LISTWISE.design(settings), injected_of(settings.injected)
    lists = [items for items in design.lists if items.pairs]
    if not lists:
        raise UsageError(
            "no list has items of both groups with the same grade of relevance.",
            f"llmfair datasets show {design.dataset.name}    counts them",
        )
    measured, values = partial(finding_of, rule=design.rule), plans.settings_of(settings)
    recovered = plans.found_by_preference(audits(design, settings, lists, betas), betas, measured, advance)
    sizes, rows = [items.n for items in design.lists], []
    for beta, outcomes in zip(betas, recovered, strict=True):
        intervals = [(e.low, e.high) for audit in outcomes if (e := audit.estimate)]
        covered = [
            low <= exp(beta) <= high for low, high in intervals if low is not None and high is not None
        ]
        p_values = [audit.p for audit in outcomes if audit.p is not None]
        findings = [audit.finding for audit in outcomes]
        odds = [exp(log_odds) for log_odds in _log_odds(outcomes)]
        rows.append(plans.row_of(COLUMNS, beta, odds, covered, p_values, findings, settings.level, {}))
    # odds, one either way, that a test at 5 % finds, from the scatter of ln odds at parity; none of too few queries
    logs, ends = _log_odds(recovered[betas.index(0)]), list[float | None]([None, None])
    error = float(np.std(logs, ddof=1)) if len(logs) > 1 else None
    if error and len(lists) >= power.FEWEST_TESTED:
        below = power.smallest_ratio(error * sqrt(len(lists)), len(lists), settings.power)
        ends = [below, 1 / below]
    return {
        **plans.about(design, settings),
        "design": {
            "queries": len(sizes),
            "without_comparison": len(sizes) - len(lists),
            "candidates": [min(sizes), max(sizes)],
        },
        "settings": {name: value for name, value in values.items() if name not in ("strategy", "answers")}
        | design.ordered_by(),
        "injected": rows,
        "smallest": {"power": settings.power, "queries": len(lists), "error": error, "odds": ends},
    }


def _log_odds(audits: Sequence[SimulatedAudit]) -> list[float]:
    """Of the audits that have odds with a size."""
    return [log(e.value) for audit in audits if (e := audit.estimate) and e.value is not None]


def audits(
    design: ListwiseDesign, settings: CalibrateSettings, lists: Lists, betas: Sequence[float]
) -> Iterator[tuple[int, Mapping[str, Value]]]:
    """Simulated audits, each with the place of its injected preference."""
    assert isinstance(design.ranker, ListwiseRanker)
    drawn = partial(draw, lists, design.ranker, design.settings, Noise(settings.alike, settings.slots))
    return plans.simulated(
        settings, betas, drawn, lambda _, of_list, place, run: of_list.value(betas[place], run)
    )


def finding_of(audit: Mapping[str, Value], rule: measure.HowRanked) -> SimulatedAudit:
    """What a real audit finds of these values, of a ranker that does its job."""
    odds = measure.list_odds(audit.values(), rule)
    if odds is None:
        return SimulatedAudit(None, measure.unassessable(measure.HEADLINE, "no_encounter"), None)
    conclusion, reason = measure.concluded(odds, rule)
    finding = ListwiseFinding(
        measure=measure.HEADLINE, conclusion=conclusion, reason=reason,
        p_outside=odds.figures.outside(rule.band),
    )  # fmt: skip
    (finding,) = measure.with_disparities({"neutral": finding}, rule.level).values()
    estimate = odds.pooled.estimate if odds.pooled.bound is None else None
    return SimulatedAudit(estimate, finding, measure.no_preference(odds.pooled, rule))
