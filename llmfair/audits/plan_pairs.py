"""What a pairwise audit would cost and can find, counted and computed before anything is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from math import ceil, exp, log, sqrt
from typing import Any

from llmfair.audits.pairs import PairDesign
from llmfair.audits.pairwise import Pairwise
from llmfair.audits.plan import CHARACTERS_PER_TOKEN, spent
from llmfair.audits.running import backend_of, folder_of, limits_of
from llmfair.errors import UsageError
from llmfair.probes import PairProbes
from llmfair.rankers.choices import Form
from llmfair.records import Probe
from llmfair.settings import PairwiseSettings, PlanPairwiseSettings
from llmfair.stats.power import (
    FEWEST_TESTED,
    Pairing,
    pairs_needed,
    power,
    queries_needed,
    smallest_pair_ratio,
)

MEASURED = 3
"""So many pairs of a query and kind are rendered; the others are taken to be as long."""
MORE_PAIRS = 10
"""How many times the pairs are tried, to tell whether more of them help."""
ANSWERS: Mapping[Form, str] = {"order": "[1] > [2]", "letter": "A"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FindablePairs:
    """What a t test over queries finds with the pairs of one kind, in position-adjusted odds.

    `queries` have such pairs, on average (harmonic) `pairs` each; `items_recur` says that an item stands in pairs
    of several queries, which makes every figure here too good. `error`, `power` and what is needed are those of
    the odds `ratio`: None where no test is made, or never. `smallest` odds below 1 are found with power `target`
    (and their inverse above it), `smallest_with_more` with `more_pairs`; None: not even the most extreme ones.
    """

    queries: int
    pairs: int
    items_recur: bool
    ratio: float
    target: float
    icc: float
    consistent: float
    reason: str | None = None
    error: float | None = None
    power: float | None = None
    pairs_needed: int | None = None
    queries_needed: int | None = None
    smallest: float | None = None
    more_pairs: int | None = None
    smallest_with_more: float | None = None


def plan_pairwise(settings: PairwiseSettings) -> dict[str, Any]:
    """Calls, about how many tokens and the shortest possible time of a pairwise audit.

    With PlanPairwiseSettings also its cost, and what it can find by the power of a t test: a pair counts once
    there however often it is asked, and no unreadable answer is expected. Calls are exact for a model whose
    answers need no second asking; under --sequential they are the most there can be. Raises UsageError.
    """
    backends = [backend_of(model, settings) for model in settings.model]
    task = Pairwise.of(settings, settings.model[0])
    design, models = task.design, len(backends)
    workers = max(limits_of(backend, settings).workers for backend in backends)
    pairs = {kind: _pairs(of_it.values()) for kind, of_it in design.pairs.items()}
    once = 2 * settings.repeats * sum(map(sum, pairs.values()))
    prompts, answers = _tokens(design)
    _, folder = folder_of(task, task.model, backends[0])
    planned: dict[str, Any] = {
        "task": "pairwise",
        "design": design.facts(),
        "left_out": design.dataset.describe().get("left_out", {}),
        "queries": len(design.queries),
        "kinds": list(design.kinds),
        "pairs": None if settings.sequential else settings.pairs,
        "pairs_asked": {kind: sum(counts) for kind, counts in pairs.items()},
        "repeats": settings.repeats,
        "noise_share": settings.noise_share,
        "sequential": settings.sequential,
        "max_pairs": settings.max_pairs if settings.sequential else None,
        "models": models,
        "calls": design.calls * models,
        "noise_calls": 0 if settings.sequential else (design.calls - once) * models,
        "prompt_tokens": prompts * models,
        "completion_tokens": answers * models,
        "workers": workers,
        "seconds_at_1s_a_call": ceil(design.calls / workers) * models,
        "folder": str(folder.path),
        "answered": folder.summary()["answers"] if folder.manifest.is_file() else 0,
    }
    if isinstance(settings, PlanPairwiseSettings):
        planned |= spent(settings, planned)
        planned["findable"] = {
            kind: asdict(_findable(of_it, settings)) for kind, of_it in design.pairs.items()
        }
    return planned


def _pairs(probes: Iterable[PairProbes]) -> list[int]:
    """How many pairs each of these queries has; none are left out."""
    return [len({probe.order for probe in one.probes}) for one in probes if one.probes]


def _tokens(design: PairDesign) -> tuple[int, int]:
    """About how many tokens all prompts and all answers have, for one model."""
    prompts, calls = 0.0, 0
    for probes in _groups(design):
        chats = [chat for probe in probes[:MEASURED] for chat in design.ranker.chats(probe)]
        characters = sum(len(message.content) for chat in chats for message in chat.messages)
        prompts += 2 * len(probes) * characters / max(len(chats), 1)
        calls += 2 * len(probes)
    answer = ceil(len(ANSWERS[design.ranker.form]) / CHARACTERS_PER_TOKEN)
    return round(prompts / CHARACTERS_PER_TOKEN), calls * answer


def _groups(design: PairDesign) -> list[Sequence[Probe]]:
    """The probes in groups of equal prompts but for the items: all of a query and kind, or a kind's schedule."""
    if not design.settings.sequential:
        return [one.probes for of_it in design.pairs.values() for one in of_it.values()]
    groups: dict[tuple[str, str], list[Probe]] = {}
    for kind in design.kinds:
        for probe in design.in_rounds(kind):
            groups.setdefault((kind, probe.candidates.query.query_id), []).append(probe)
    return list(groups.values())


def _findable(by_query: Mapping[str, PairProbes], settings: PlanPairwiseSettings) -> FindablePairs:
    """Power and smallest odds of one kind of pairs. Raises UsageError for odds that no answers could show."""
    counts, pairing = _pairs(by_query.values()), Pairing(settings.icc, settings.consistent)
    if abs(log(settings.ratio)) >= pairing.largest_log:
        most = exp(pairing.largest_log)
        raise UsageError(
            f"no answers show odds of {settings.ratio:g} when a share of {settings.consistent:g} is consistent.",
            f"a --ratio between {1 / most:.3g} and {most:.3g}, or more --consistent",
        )
    queries = len(counts)
    # Σ_q s²(m_q) depends on Σ 1/m_q alone, so queries of unequal pairs count as their harmonic mean.
    pairs = int(queries / sum(Fraction(1, count) for count in counts)) if counts else 0
    unknown = FindablePairs(
        queries=queries,
        pairs=pairs,
        items_recur=_items_recur(by_query),
        ratio=settings.ratio,
        target=settings.power,
        icc=settings.icc,
        consistent=settings.consistent,
    )
    if settings.sequential:
        return replace(unknown, reason="sequential")
    if not queries:
        return replace(unknown, reason="no_pairs")
    sd = pairing.query_sd(settings.ratio, pairs)
    known = replace(
        unknown, error=sd / sqrt(queries), queries_needed=queries_needed(settings.ratio, sd, settings.power)
    )
    if queries < FEWEST_TESTED:
        return replace(known, reason="too_few_queries")
    return replace(
        known,
        power=power(log(settings.ratio), sd / sqrt(queries), queries),
        pairs_needed=pairs_needed(settings.ratio, queries, pairing, settings.power),
        smallest=smallest_pair_ratio(pairs, queries, pairing, settings.power),
        more_pairs=MORE_PAIRS * pairs,
        smallest_with_more=smallest_pair_ratio(MORE_PAIRS * pairs, queries, pairing, settings.power),
    )


def _items_recur(by_query: Mapping[str, PairProbes]) -> bool:
    items = [
        doc_id
        for one in by_query.values()
        for doc_id in {doc_id for probe in one.probes for doc_id in probe.candidates.doc_ids}
    ]
    return len(set(items)) < len(items)
