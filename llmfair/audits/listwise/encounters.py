"""First encounters of simulated audits: who is ahead when two items meet, of rankers with an injected preference.

A ranker puts an item ahead by its log-weight, its slot, and Gumbel noise: fresh in every window, or the item's own in
the windows that are answered alike. Two equally relevant items of both groups differ in none but the preference, so
what else a window holds does not matter, nor does what earlier windows carried on; one draw serves any preference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from llmfair.metrics.values import QueryComparisons, Undefined
from llmfair.nouns import Candidates, Side
from llmfair.stats.encounters import Windows, first_shown

Floats = NDArray[np.float64]
Places = NDArray[np.intp]


@dataclass(frozen=True)
class Items:
    """A query's list: the group of every item (1 protected, -1 unprotected, 0 neither) and its grade; shape (n,)."""

    query_id: str
    groups: Places
    grades: Places

    @property
    def n(self) -> int:
        return len(self.groups)

    @property
    def compared(self) -> bool:
        """Whether any two items could be compared."""
        protected, unprotected = (set(self.grades[self.groups == group].tolist()) for group in (1, -1))
        return bool(protected & unprotected)


@dataclass(frozen=True)
class Noise:
    """How the injected rankers answer: the share of windows that get the item's own noise, log odds of the slots."""

    alike: float = 0.0
    slots: float = 0.0


@dataclass(frozen=True)
class Encounters:
    """A query's first encounters in every audit: how far the protected item is ahead where nothing is preferred.

    `margins` has shape (c,) for an audit, `slots` (c, 2): those of the protected and of the other item.
    """

    margins: Sequence[Floats]
    slots: Sequence[Floats]
    window: int

    def value(self, log_odds: float, audit: int) -> QueryComparisons | Undefined:
        """One audit of a ranker with this preference, as the measure PreferenceOdds has it."""
        margins = self.margins[audit]
        if not len(margins):
            return Undefined("no_encounter")
        ahead = (margins > -log_odds).astype(float)
        return QueryComparisons(ahead, np.ones(len(margins)), self.slots[audit], self.window)


def items_of(candidates: Candidates, sides: Mapping[str, Side | None]) -> Items:
    """A candidate list as its groups and grades."""
    group = {Side.PROTECTED: 1, Side.UNPROTECTED: -1, None: 0}
    return Items(
        candidates.query.query_id,
        np.array([group[sides[doc_id]] for doc_id in candidates.doc_ids], np.intp),
        np.array([candidates.relevance.get(doc_id, 0) for doc_id in candidates.doc_ids], np.intp),
    )


def simulate_encounters(
    items: Items,
    windows: Windows,
    audits: int,
    orders: int,
    repeats: int = 1,
    noise: Noise = Noise(),
    *,
    rng: np.random.Generator,
) -> Encounters:
    """So many audits of one list, each from `orders` random initial orders, asked `repeats` times."""
    first, second, slot_of, window_of = _places(windows, items.n)
    shown = rng.permuted(np.tile(np.arange(items.n), (audits, orders, 1)), axis=-1)
    shown = shown.repeat(repeats, axis=1)
    audit = np.arange(audits)[:, None, None]
    alike = rng.random((audits, orders * repeats, len(windows))) < noise.alike
    always, fresh = rng.gumbel(size=(audits, items.n)), rng.gumbel(size=shown.shape)
    scores = np.where(alike[..., window_of], always[audit, shown], fresh) - noise.slots / 2 * slot_of
    groups, grades = items.groups[shown], items.grades[shown]
    met = (groups[..., first] * groups[..., second] == -1) & (grades[..., first] == grades[..., second])
    run, chain, pair = np.nonzero(met)
    one, other = first[pair], second[pair]
    leads = groups[run, chain, one] == 1
    protected, unprotected = np.where(leads, one, other), np.where(leads, other, one)
    margins = scores[run, chain, protected] - scores[run, chain, unprotected]
    slots = np.stack([slot_of[protected], slot_of[unprotected]], axis=1)
    ends = np.cumsum(np.bincount(run, minlength=audits))[:-1]
    return Encounters(
        np.split(margins, ends),
        np.split(slots, ends),
        max((end - start for start, end in windows), default=1),
    )


def _places(windows: Windows, n: int) -> tuple[Places, Places, Floats, Places]:
    """Of a pass: both ranks of every two items that meet first, and of every rank its slot z and its window."""
    pairs: list[tuple[int, int]] = []
    slot_of, window_of = np.zeros(n), np.zeros(n, np.intp)
    for number, ((start, end), ranks) in enumerate(zip(windows, first_shown(windows), strict=True)):
        pairs += combinations(ranks, 2)
        slot_of[ranks] = 2 * (np.array(ranks) - start) / (end - start - 1) - 1
        window_of[ranks] = number
    first, second = np.array(pairs, np.intp).reshape(-1, 2).T
    return first, second, slot_of, window_of
