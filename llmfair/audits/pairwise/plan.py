"""What a pairwise audit would cost and can find, counted and computed before anything is asked."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import ceil, exp, log, sqrt
from statistics import harmonic_mean
from typing import TYPE_CHECKING, Any, Literal

from llmfair.audits.design import CHARACTERS_PER_TOKEN
from llmfair.audits.documents import CallPlan
from llmfair.audits.pairwise.settings import PlanPairwiseSettings
from llmfair.errors import UsageError
from llmfair.io.files import plain
from llmfair.nouns import PairStratum, Probe, Query
from llmfair.probes import PairProbes, by_grade, pair_pools
from llmfair.rankers.pairwise import PairForm
from llmfair.results import Count, Counts, Share
from llmfair.stats.power import (
    FEWEST_TESTED,
    Pairing,
    pairs_needed,
    power,
    queries_needed,
    smallest_pair_ratio,
)

if TYPE_CHECKING:
    from llmfair.audits.pairwise.design import PairwiseDesign

MEASURED = 3
"""So many pairs of a query and stratum are rendered; the others are taken to be as long."""
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
    reason: str | None = None
    error: float | None = None
    power: Share | None = None
    pairs_needed: Count | None = None
    queries_needed: Count | None = None
    smallest: float | None = None
    all_pairs: float | None = None
    smallest_with_all: float | None = None


class PairwisePlan(CallPlan, frozen=True, kw_only=True):
    """llmfair plan pairwise; llmfair pairwise --dry-run has no findable, and cost only at given prices."""

    task: Literal["pairwise"]
    conditions: list[Literal["relevant", "irrelevant"]]
    pairs: Count | None
    pairs_asked: Counts
    repeats: Count
    noise_share: float
    noise_calls: Count
    sequential: bool
    models: Count
    design: dict[str, Any]
    findable: dict[str, PairwiseFindable] | None = None


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
    # probes of one query and stratum have equal prompts but for the items
    groups: list[Collection[Probe] | PairProbes] = []
    if design.settings.sequential:
        scheduled: dict[tuple[str, str], list[Probe]] = {}
        for stratum in design.strata:
            for probe in design.in_rounds(stratum):
                scheduled.setdefault((stratum, probe.candidates.query.query_id), []).append(probe)
        groups += scheduled.values()
    else:
        groups += [one for by_query in design.pairs.values() for one in by_query.values()]
    prompts, calls = 0.0, 0
    for probes in groups:
        chats = [chat for probe in islice(probes, MEASURED) for chat in design.ranker.chats(probe)]
        characters = sum(len(message.content) for chat in chats for message in chat.messages)
        prompts += 2 * len(probes) * characters / max(len(chats), 1)
        calls += 2 * len(probes)
    answer = ceil(len(ANSWERS[design.ranker.form]) / CHARACTERS_PER_TOKEN)
    return round(prompts / CHARACTERS_PER_TOKEN), calls * answer


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
    items = Counter(
        doc_id
        for one in by_query.values()
        for doc_id in {d for probe in one for d in probe.candidates.doc_ids}
    )
    unknown = PairwiseFindable(
        queries=queries,
        pairs=pairs,
        items_recur=max(items.values(), default=1) > 1,
        ratio=settings.ratio,
        level=level,
        target=target,
        icc=settings.icc,
        consistent=settings.consistent,
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
