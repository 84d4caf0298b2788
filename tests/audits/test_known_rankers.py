"""Rankers whose preference is known, from their answers to the conclusion: what must be said of them, and what must not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np
import pytest

from llmfair.audits.aggregates import Inference
from llmfair.audits.listwise.measure import HowRanked, findings_of, with_disparities
from llmfair.audits.listwise.results import ListwiseFinding, Usefulness
from llmfair.metrics.base import Judged, measure_all
from llmfair.metrics.names import parse_measure
from llmfair.nouns import Candidates, Conclusion, Document, Query, Side
from llmfair.rankers.strategies import PartialOrder, encounters_of
from llmfair.stats.strata import Stratum

USEFUL = Usefulness("nDCG@20", 0.0, 0.3, 0.2, 0.4, 44)
WINDOW, STEP = 20, 10


@dataclass(frozen=True)
class Item:
    doc_id: str
    female: bool
    relevant: bool
    quality: float = 0.0


@dataclass(frozen=True)
class Ranker:
    """Prefers relevant items, an item's quality, and female ones by odds that differ by stratum.

    `drops`: the chance that a female item of an answer's lower half is left out. `leaves`: of windows, as they are.
    """

    relevant: float = 1.0
    irrelevant: float = 1.0
    drops: float = 0.0
    leaves: float = 0.0

    def answer(self, shown: Sequence[Item], rng: np.random.Generator) -> list[Item]:
        if rng.random() < self.leaves:
            return [*shown]
        scores = {
            item: 1.5 * item.relevant
            + item.quality
            + log(self.relevant if item.relevant else self.irrelevant) * item.female
            + rng.gumbel()
            for item in shown
        }
        order = sorted(shown, key=scores.__getitem__, reverse=True)
        upper, lower = order[: len(order) // 2], order[len(order) // 2 :]
        return upper + [item for item in lower if not item.female or rng.random() >= self.drops]


def lists_apart(queries: int, items: int, relevant: int) -> list[list[Item]]:
    """No item is in two of them; half of the relevant and of the others are female."""
    return [
        [Item(f"{query}.{place}", place % 2 == 0, place < relevant) for place in range(items)]
        for query in range(queries)
    ]


def lists_from(pool: int, queries: int, items: int, rng: np.random.Generator) -> list[list[Item]]:
    """All drawn from one pool, whose items have qualities of a heavy-tailed law that group has no part in."""
    female, quality = rng.permutation(pool) % 2 == 0, rng.standard_t(2, pool)
    every = [Item(f"{i}", bool(female[i]), i % 10 < 3, float(quality[i])) for i in range(pool)]
    return [[every[i] for i in rng.choice(pool, items, replace=False)] for _ in range(queries)]


def judged(query_id: str, items: Sequence[Item], asked: Sequence[PartialOrder]) -> Judged:
    documents = tuple(Document(item.doc_id, "") for item in items)
    grades = {item.doc_id: int(item.relevant) for item in items}
    sides = {item.doc_id: Side.PROTECTED if item.female else Side.UNPROTECTED for item in items}
    candidates = Candidates(Query(query_id, ""), documents, grades)
    return Judged(candidates, (), sides, encounters=encounters_of(asked))


def concluded_of(
    ranker: Ranker, lists: Sequence[Sequence[Item]], rng: np.random.Generator
) -> ListwiseFinding:
    """What an audit in sliding windows concludes, one random order a list."""
    queries, left_out, shown_items = [], 0, 0
    for number, items in enumerate(lists):
        order, asked = [items[place] for place in rng.permutation(len(items))], []
        for start in range(len(items) - WINDOW, -1, -STEP):
            shown = order[start : start + WINDOW]
            named = ranker.answer(shown, rng)
            asked.append(
                PartialOrder(
                    start, tuple(each.doc_id for each in shown), tuple(each.doc_id for each in named)
                )
            )
            order[start : start + WINDOW] = named + [item for item in shown if item not in named]
            left_out, shown_items = left_out + len(shown) - len(named), shown_items + len(shown)
        queries.append(judged(f"q{number}", items, asked))
    findings = findings_of(
        measure_all([parse_measure("PreferenceOdds")], {"neutral": queries}),
        {"neutral": queries},
        {"neutral": USEFUL},
        Inference(),
        HowRanked(strata=[*Stratum]),
        {"neutral": left_out / shown_items},
    )
    return with_disparities(findings)["neutral"]


def test_a_preference_among_relevant_items_alone_is_a_disparity_of_them() -> None:
    rng = np.random.default_rng(1)
    finding = concluded_of(Ranker(relevant=0.1), lists_apart(44, 60, 6), rng)
    assert finding.odds and finding.odds.low and finding.odds.low > 0.8, "all items together are in the band"
    assert (finding.conclusion, finding.decisive) == (Conclusion.OUTSIDE, "relevant")
    assert (finding.strata["relevant"].value or 1) < 0.3 < (finding.strata["irrelevant"].low or 0)


def test_a_ranker_that_drops_those_whom_it_puts_behind_prefers_the_others() -> None:
    rng = np.random.default_rng(2)
    finding = concluded_of(Ranker(0.77, 0.77, drops=0.8), lists_apart(44, 60, 20), rng)
    assert finding.left_out > 0.05 and finding.odds and (finding.odds.high or 9) < 1
    assert finding.conclusion is not Conclusion.WITHIN


@pytest.mark.parametrize("pool", [40, 60])
def test_a_fair_ranker_of_items_that_recur_is_at_no_disparity(pool: int) -> None:
    rng = np.random.default_rng(3)
    finding = concluded_of(Ranker(), lists_from(pool, 44, 40, rng), rng)
    assert finding.odds and finding.odds.recurring == pool and (finding.odds.p or 0) > 0.05
    assert finding.conclusion is not Conclusion.OUTSIDE


def test_a_ranker_that_leaves_most_windows_as_they_are_is_not_at_parity() -> None:
    rng = np.random.default_rng(4)
    finding = concluded_of(Ranker(0.7, 0.7, leaves=0.85), lists_apart(44, 40, 12), rng)
    assert finding.conclusion is not Conclusion.WITHIN


def test_a_fair_ranker_is_at_parity() -> None:
    rng = np.random.default_rng(5)
    fair = concluded_of(Ranker(), lists_apart(44, 60, 20), rng)
    assert (fair.conclusion, fair.reason) == (Conclusion.WITHIN, None)
    forgetful = lists_apart(44, 60, 20)
    assert concluded_of(Ranker(drops=0.3), forgetful, rng).conclusion is not Conclusion.WITHIN
