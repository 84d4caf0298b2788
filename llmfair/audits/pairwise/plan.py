"""What a pairwise audit would cost and can find, counted and computed before anything is asked."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import ceil, exp, log, sqrt
from statistics import harmonic_mean
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from llmfair.audits.calibrate import BLOCK, rng_of, simulated
from llmfair.audits.design import CHARACTERS_PER_TOKEN
from llmfair.audits.pairwise.design import PairwiseDesign
from llmfair.audits.pairwise.settings import CalibratePairwiseSettings, PlanPairwiseSettings
from llmfair.errors import UsageError
from llmfair.io.files import plain
from llmfair.metrics.base import Tally
from llmfair.metrics.pairs import ADJUSTED_ODDS, CELLS, PROTECTED, UNPARSEABLE, UNPROTECTED
from llmfair.nouns import PairAnswer, PairStratum, PairVerdict, Probe, Query
from llmfair.probes import PairProbes, by_grade, pair_pools
from llmfair.rankers.pairwise import PairForm
from llmfair.results import Count, Share
from llmfair.stats.power import (
    FEWEST_TESTED,
    Pairing,
    pairs_needed,
    power,
    queries_needed,
    smallest_pair_ratio,
)

MEASURED = 3
"""So many pairs of a query and stratum are rendered; the others are taken to be as long."""
UNKNOWN = (
    "reason", "error", "power", "pairs_needed", "queries_needed", "smallest", "all_pairs", "smallest_with_all",
)  # fmt: skip
"""What a plan cannot tell of pairs of which nothing is known."""
ANSWERS: Mapping[PairForm, str] = {"order": "[1] > [2]", "letter": "A", "scores": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class PairwiseFindable:
    """What a t test over queries finds with the pairs of one stratum, in position-adjusted odds.

    `queries` have such pairs, of which `pairs` each are asked and `all_pairs` could be (harmonic means);
    `items_recur` says that an item stands in pairs of several queries, which makes every figure here too good.
    `error`, `power` and what is needed are those of the odds `ratio`, tested at 1 − `level`: None where no test is
    made, or where no number is enough; `pairs_needed` are to be asked of these queries, as far as they have them.
    `smallest` odds below 1 are found with power `target` (and their inverse above it), `smallest_with_all` with all
    pairs; None: not even the most extreme ones.
    """

    queries: Count
    pairs: float
    items_recur: bool
    ratio: float
    level: float
    target: float
    icc: float
    consistent: float
    reason: str | None
    error: float | None
    power: Share | None
    pairs_needed: Count | None
    queries_needed: Count | None
    smallest: float | None
    all_pairs: float | None
    smallest_with_all: float | None


def plan_of(design: PairwiseDesign, models: int) -> dict[str, Any]:
    """Pairs of a pairwise audit of so many models, asked once and again."""
    settings = design.settings
    pairs = {stratum: _pairs(of_it.values()) for stratum, of_it in design.pairs.items()}
    once = 2 * settings.repeats * sum(map(sum, pairs.values()))
    return {
        "design": plain(design.facts()),
        "left_out": design.dataset.describe().get("left_out", {}),
        "queries": len(design.queries),
        "conditions": list(design.strata),
        "pairs": None if settings.sequential else settings.pairs,
        "pairs_asked": {stratum: sum(counts) for stratum, counts in pairs.items()},
        "repeats": settings.repeats,
        "noise_share": settings.noise_share,
        "sequential": settings.sequential,
        "max_pairs": settings.max_pairs if settings.sequential else None,
        "models": models,
        "noise_calls": 0 if settings.sequential else (design.calls - once) * models,
    }


def _pairs(probes: Iterable[PairProbes]) -> list[int]:
    """How many pairs each of these queries has; none are left out."""
    return [len(one.pairs) for one in probes if one]


def tokens_of(design: PairwiseDesign) -> tuple[int, int]:
    """About how many tokens all prompts and all answers have, for one model."""
    prompts, calls = 0.0, 0
    for probes in _groups(design):
        chats = [chat for probe in islice(probes, MEASURED) for chat in design.ranker.chats(probe)]
        characters = sum(len(message.content) for chat in chats for message in chat.messages)
        prompts += 2 * len(probes) * characters / max(len(chats), 1)
        calls += 2 * len(probes)
    answer = ceil(len(ANSWERS[design.ranker.form]) / CHARACTERS_PER_TOKEN)
    return round(prompts / CHARACTERS_PER_TOKEN), calls * answer


def _groups(design: PairwiseDesign) -> Sequence[Collection[Probe] | PairProbes]:
    """The probes in groups of equal prompts but for the items: all of a query and stratum, or a stratum's schedule."""
    if not design.settings.sequential:
        return [one for of_it in design.pairs.values() for one in of_it.values()]
    groups: dict[tuple[str, str], list[Probe]] = {}
    for stratum in design.strata:
        for probe in design.in_rounds(stratum):
            groups.setdefault((stratum, probe.candidates.query.query_id), []).append(probe)
    return list(groups.values())


def findable_of(
    design: PairwiseDesign, stratum: PairStratum, settings: PlanPairwiseSettings
) -> PairwiseFindable:
    """Power and smallest odds of one relevance stratum.

    Raises UsageError for odds that no answers could show, and for a power that the test has without any odds.
    """
    by_query, level, target = design.pairs[stratum], settings.level, settings.power
    counts, pairing = _pairs(by_query.values()), Pairing(settings.icc, settings.consistent)
    check_power(target, level)
    if abs(log(settings.ratio)) >= pairing.largest_log:
        most = exp(pairing.largest_log)
        raise UsageError(
            f"no answers show odds of {settings.ratio:g} when a share of {settings.consistent:g} is consistent.",
            f"a --ratio between {1 / most:.3g} and {most:.3g}, or more --consistent",
        )
    # Σ_q s²(m_q) depends on Σ 1/m_q alone, so queries of unequal pairs count as their harmonic mean.
    queries, pairs = len(counts), harmonic_mean(counts) if counts else 0.0
    unknown = PairwiseFindable(
        queries=queries,
        pairs=pairs,
        items_recur=_items_recur(by_query),
        ratio=settings.ratio,
        level=level,
        target=target,
        icc=settings.icc,
        consistent=settings.consistent,
        **dict.fromkeys(UNKNOWN),
    )
    if settings.sequential:
        return replace(unknown, reason="sequential")
    if not queries:
        return replace(unknown, reason="no_pairs")
    sd = pairing.query_sd(settings.ratio, pairs)
    needed = queries_needed(settings.ratio, sd, target, level)
    known = replace(unknown, error=sd / sqrt(queries), queries_needed=needed)
    if queries < FEWEST_TESTED:
        return replace(known, reason="too_few_queries")
    available = [_available(design, stratum, query) for query in design.queries if by_query[query.query_id]]
    all_pairs = harmonic_mean(available)
    return replace(
        known,
        power=power(log(settings.ratio), sd / sqrt(queries), queries, level),
        pairs_needed=_asked_for(pairs_needed(settings.ratio, queries, pairing, target, level), available),
        smallest=smallest_pair_ratio(pairs, queries, pairing, target, level),
        all_pairs=all_pairs,
        smallest_with_all=smallest_pair_ratio(all_pairs, queries, pairing, target, level),
    )


def check_power(target: float, level: float) -> None:
    """Raises UsageError for a power that a test has where there is nothing to find."""
    if target <= 1 - level:
        raise UsageError(
            f"--power {target:g} is no more than the chance of a false positive at --level {level:g}.",
            f"a --power above {1 - level:.3g}",
        )


def _available(design: PairwiseDesign, stratum: PairStratum, query: Query) -> int:
    """How many pairs of a query there are; two equal texts are none."""
    candidates = design.dataset.candidates(query)
    texts = {document.doc_id: design.ranker.shown(document) for document in candidates.documents}
    pools = pair_pools(candidates, design.attribute, stratum, design.settings.seed)
    available = 0
    for sides in by_grade(candidates, *pools).values() if design.settings.grades == "match" else [pools]:
        protected, unprotected = (Counter(texts[doc_id] for doc_id in side) for side in sides)
        equal = sum(number * unprotected[text] for text, number in protected.items())
        available += protected.total() * unprotected.total() - equal
    return available


def _asked_for(needed: int | None, available: Sequence[int]) -> int | None:
    """The fewest pairs to ask of each query, as far as it has them, that count as those needed; None: not even all."""
    if needed is None:
        return None
    asked, enough = range(needed, max(available) + 1), needed - 1e-9  # rounding
    found = bisect_left(asked, enough, key=lambda pairs: harmonic_mean([min(pairs, n) for n in available]))
    return asked[found] if found < len(asked) else None


def _items_recur(by_query: Mapping[str, PairProbes]) -> bool:
    items = [
        doc_id
        for one in by_query.values()
        for doc_id in {doc_id for probe in one for doc_id in probe.candidates.doc_ids}
    ]
    return len(set(items)) < len(items)


# Simulated answers on the pairs of an audit, and the truth that they are drawn from. P(protected wins | order) = σ(β
# + b_q + b_k ± γ): β injected, b_q of the query, b_k of the pair, +γ where the protected item is shown first; calls
# are independent given these (`pairwise.md` 12). Whole audits are drawn as arrays, query by query.


Audit = Mapping[str, Tally]
"""What one simulated audit measured, by query_id."""
Pairs = Mapping[str, tuple[PairVerdict, ...]]
"""The pairs of each query, by query_id, an entry for every time they are asked; their answers mean nothing."""
STREAM = 3000
"""The streams of a query's seed that its simulated answers are drawn from: one a block, from here on."""
GRID = np.linspace(-10, 10, 2001)
"""Standard normal deviates that an average over queries is taken on."""


def marginal_odds(beta: float, position: float, spread: float) -> float:
    """The position-adjusted odds over all pairs, e^((logit p1 + logit p2)/2), p the mean of σ(β + b ± γ).

    b is normal with the standard deviation `spread`, so the odds are nearer to 1 than e^β of the typical pair.
    """
    weights = np.exp(-(GRID**2) / 2)
    log_odds = np.array([[position], [-position]]) + beta + spread * GRID
    first, second = (_sigma(log_odds) @ weights / weights.sum()).tolist()
    return exp((log(first / (1 - first)) + log(second / (1 - second))) / 2)


def pairs_of(design: PairwiseDesign, stratum: PairStratum) -> Pairs:
    """The pairs of the design that count, of the queries that have any."""
    repeats = design.settings.repeats
    return {
        query_id: tuple(_unanswered(probe, stratum) for probe in one if probe.draw < repeats)
        for query_id, one in design.pairs[stratum].items()
        if one
    }


def _unanswered(probe: Probe, stratum: PairStratum) -> PairVerdict:
    protected, unprotected = probe.candidates.doc_ids
    nothing = PairAnswer(None, "simulated")
    query_id = probe.candidates.query.query_id
    return PairVerdict(query_id, stratum, probe.order, probe.draw, protected, unprotected, nothing, nothing)


def pair_audits(
    pairs: Pairs, stratum: PairStratum, settings: CalibratePairwiseSettings, betas: Sequence[float]
) -> Iterator[tuple[int, Audit]]:
    """Simulated audits, each with the place of its injected preference."""

    def draw(block: int) -> dict[str, NDArray[np.intp]]:
        stream = (STREAM + block, get_args(PairStratum).index(stratum))
        return {
            query_id: simulate_answers(
                betas,
                [verdict.number for verdict in asked],
                settings,
                rng=rng_of(settings, query_id, *stream),
            )
            for query_id, asked in pairs.items()
        }

    def value(query_id: str, answers: NDArray[np.intp], place: int, run: int) -> Tally:
        return _tally(pairs[query_id], answers[place, run], settings.repeats)

    return simulated(settings, betas, draw, value)


def simulate_answers(
    betas: Sequence[float],
    numbers: Sequence[int],
    settings: CalibratePairwiseSettings,
    *,
    rng: np.random.Generator,
) -> NDArray[np.intp]:
    """Answers of one query in BLOCK audits, as `JudgedPairs.answers` has them; shape (betas, BLOCK, pairs, 2).

    `numbers` says which pair each is: one asked several times stays the same.
    """
    own = settings.query_sd * rng.normal(size=(BLOCK, 1, 1))
    drawn, damaged = rng.random((2, BLOCK, len(numbers), 2))
    different, pair = np.unique(numbers, return_inverse=True)
    own = own + settings.pair_sd * rng.normal(size=(BLOCK, len(different), 1))[:, pair]
    order = settings.position * np.array([1, -1])
    wins = drawn < _sigma(np.reshape(betas, (-1, 1, 1, 1)) + own + order)
    read = np.where(wins, PROTECTED, UNPROTECTED)
    return np.where(damaged < settings.malformed, UNPARSEABLE, read)


def _tally(verdicts: tuple[PairVerdict, ...], answers: NDArray[np.intp], repeats: int) -> Tally:
    """The answers on a query's pairs, shape (pairs, 2), as the position-adjusted odds count them."""
    first, second = answers.T
    cells = CELLS[first, second].sum(axis=0)
    counts = ADJUSTED_ODDS.things[first, second]
    return Tally(ADJUSTED_ODDS, verdicts, counts, int(cells.sum()), int(cells[:2].sum()), repeats)


def _sigma(log_odds: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-log_odds))
