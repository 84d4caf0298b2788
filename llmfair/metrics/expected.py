"""Expected exposure of Fair-RAG: how unequally items are shown (EE-D), how much of it falls on useful ones (EE-R), and
how far from the target it is (EE-L).

Notation: n items, m of them useful, k shown at a time, k' = min(k, n); ε_d the expected exposure of item d, Σ ε = k';
ε* the target, at which all useful items have the same exposure, and no useless one gets what a useful one could have.
Source: Diaz et al. 2020, "Evaluating Stochastic Rankings with Expected Exposure"; Kim & Diaz, "Towards Fair RAG",
ICTIR 2025, Eq. 4-6 and 3.3.5. Norms: `exact`, the paper's text, between the true bounds; `fair-rag`, what the released
code computes and the paper's tables hold.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmfair.metrics.base import Convention, Flags, Floats, Judged, Ratio, Undefined, Values, measure

CERTAIN = 1e-12
"""Exposures this close to 0 or 1 are never, or always; bounds this close are one number."""


@dataclass(frozen=True, slots=True)
class ListSample:
    """A list that a generator was shown under one condition, and what became of it; each distinct list once.

    `count`: how many of the samples drew it. `output`: the generator's answer, None where it was not asked or did not
    answer; `utility` of that answer against the gold, higher is better. `attributed`: the shown items that the answer
    is credited to; None where nobody asked. `supported`: of those that the answer cites, the ones that a judge says
    support it.
    """

    doc_ids: tuple[str, ...]
    count: int
    output: str | None
    utility: float | None
    attributed: frozenset[str] | None = None
    supported: frozenset[str] | None = None


@dataclass(frozen=True)
class Retrieved:
    """A query under one condition: all its n items, the useful ones, and what the generator was shown.

    `k` items are shown at a time, fewer where there are fewer. `exposure` is the exact expected exposure of the
    policy, by item; None where the policy is unknown, as in a log. `baseline`: mean utility of the same retriever's
    deterministic list. `ceiling`: the best utility of any list of this query with this generator. `uncredited`: why
    there is no attribution where there is none. `groups`: the group of each item that has one.
    """

    about: ClassVar[str] = "shown items"

    query_id: str
    doc_ids: tuple[str, ...]
    useful: frozenset[str]
    k: int
    exposure: Mapping[str, float] | None
    lists: tuple[ListSample, ...]
    baseline: float | None = None
    ceiling: float | None = None
    uncredited: str = "no_attribution"
    groups: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Where each item stands in arrays."""
        return {doc_id: place for place, doc_id in enumerate(self.doc_ids)}

    @cached_property
    def flags(self) -> Flags:
        """Which items are useful; shape (n,)."""
        return np.array([doc_id in self.useful for doc_id in self.doc_ids], dtype=bool)

    @cached_property
    def members(self) -> Mapping[str, Flags]:
        """Which items are in each group that an item has; shape (n,)."""
        groups = [self.groups.get(doc_id) for doc_id in self.doc_ids]
        names = dict.fromkeys(group for group in groups if group is not None)
        return {name: np.array([group == name for group in groups], dtype=bool) for name in names}

    def shown(self, which: ListSample) -> tuple[str, ...]:
        """What was shown of a list: its first k items, each once."""
        return tuple(dict.fromkeys(which.doc_ids))[: self.k]

    def shares(self, counted: Iterable[tuple[int, Iterable[str]]]) -> Floats:
        """ε̂: the share of samples that each item is in, of the counts and items of lists; shape (n,) [Eq. 5]."""
        exposure, lists = np.zeros(len(self.doc_ids)), [*counted]
        samples = sum(count for count, _ in lists)
        for count, doc_ids in lists:
            exposure[[*{self.places[doc_id] for doc_id in doc_ids}]] += count / samples
        return exposure


@dataclass(frozen=True, slots=True)
class Bounded:
    """A figure with its bounds, and what it is called between bounds that coincide."""

    value: float
    low: float
    high: float
    otherwise: float

    @property
    def degenerate(self) -> bool:
        return self.high - self.low <= CERTAIN

    @property
    def normalised(self) -> float:
        """Where the value lies between its bounds: 0 at the lower, 1 at the upper one."""
        return self.otherwise if self.degenerate else (self.value - self.low) / (self.high - self.low)


@dataclass(frozen=True, slots=True)
class ExpectedExposure:
    """EE-D, EE-R and EE-L of one query; the last two are None where no item is useful."""

    disparity: Bounded
    relevance: Bounded | None
    loss: Bounded | None


def unbiased_squares(exposure: ArrayLike, samples: int) -> float:
    """Σ ε² of the policy that `samples` lists were drawn from, estimated without bias from the shares ε̂ of them.

    Shares vary, so Σ ε̂² is Σ ε(1 − ε)/N too large on average. Takes two samples.
    """
    shares = np.asarray(exposure, dtype=np.float64)
    return float((samples * shares @ shares - shares.sum()) / (samples - 1))


def target(useful: ArrayLike, k: float) -> Floats:
    """ε*: exposure shared by useful items first, what is left of k' by the others; shape (n,) [Eq. 6]."""
    flags = np.asarray(useful, dtype=bool)
    n, m = len(flags), int(flags.sum())
    size = min(k, n)
    first = 1.0 if m <= size else size / m
    rest = (size - m) / (n - m) if m <= size and n > m else 0.0
    return np.where(flags, first, rest)


def exposed(
    exposure: ArrayLike, useful: ArrayLike, k: int, squares: float | None = None, norm: str = "exact"
) -> ExpectedExposure:
    """The three figures between their bounds; arrays of shape (n,). `squares` stands for Σ ε² where it is estimated.

    EE-D = Σ ε², EE-R = Σ ε ε*, EE-L = Σ (ε − ε*)². By `exact` between what exposures of k' items of n can reach, EE-D
    in [k'²/n, k']; where lists are shorter than k, k' is what they show on average, Σ ε.

    By `fair-rag` as the released code has them, for comparison with published ones: the useful items alone count above
    the line, the whole target below it, and k is not cut to n. So a perfect list with m < k gets less than 1, and EE-D
    of small collections cannot be near 0. Where it divides by 0, m = n, the useless items' share of the target is left
    out.
    """
    shares, flags = np.asarray(exposure, dtype=np.float64), np.asarray(useful, dtype=bool)
    n, m, released = len(shares), int(flags.sum()), norm == "fair-rag"
    size = k if released else min(float(shares.sum()), k)
    squares = float(shares @ shares) if squares is None else squares
    disparity = Bounded(squares, 0.0 if released else size**2 / n, size, 0.0)
    if not m:
        return ExpectedExposure(disparity, None, None)
    if released:
        each = 1.0 if m <= k else k / m
        reached = float(shares[flags].sum()) * each
        rest = (k - m) ** 2 / (n - m) if m <= k and n > m else 0.0
        high = m * each**2 + rest
        loss = Bounded(squares - 2 * reached + m * each**2, 0.0, high + k, 0.0)
        return ExpectedExposure(disparity, Bounded(reached, 0.0, high, 1.0), loss)
    aim = target(flags, size)
    first, rest = float(aim[flags][0]), float(aim.min())
    fewest, most = max(0.0, size - (n - m)), min(size, m)  # useful items shown
    low, high = (number * first + (size - number) * rest for number in (fewest, most))
    relevance, of_target = Bounded(float(shares @ aim), low, high, 1.0), float(aim @ aim)
    loss = Bounded(squares - 2 * relevance.value + of_target, 0.0, size - 2 * low + of_target, 0.0)
    return ExpectedExposure(disparity, relevance, loss)


def expected(retrieved: Retrieved, norm: str, of: str) -> ExpectedExposure | Undefined:
    """The three figures of a query.

    Of the policy: exact where its exposure is known, else estimated without bias from the lists it drew. Of the
    samples: of the shares of lists as they are, which are more unequal, the more so the fewer they are.
    """
    useful, k = retrieved.flags, retrieved.k
    if of == "policy" and retrieved.exposure is not None:
        return exposed([retrieved.exposure[doc_id] for doc_id in retrieved.doc_ids], useful, k, norm=norm)
    exposures = retrieved.shares((drawn.count, retrieved.shown(drawn)) for drawn in retrieved.lists)
    samples = sum(drawn.count for drawn in retrieved.lists)
    squares = squares_of(retrieved, exposures, samples, of)
    return squares if isinstance(squares, Undefined) else exposed(exposures, useful, k, squares, norm)


def squares_of(retrieved: Retrieved, shares: Floats, samples: int, of: str) -> float | Undefined:
    """Σ ε² of the shares of so many samples themselves, or an unbiased estimate of their policy's."""
    if not samples:
        return Undefined("no_samples")
    always_alike = retrieved.exposure is not None and all(
        min(exposure, 1 - exposure) < CERTAIN for exposure in retrieved.exposure.values()
    )
    if of == "samples" or always_alike:
        return float(shares @ shares)
    return Undefined("one_sample") if samples == 1 else unbiased_squares(shares, samples)


def orders_as_samples(judged: Judged, cutoff: int) -> Retrieved:
    """The orders and repeats of a list as samples of what its ranker shows: the first `cutoff` items of each."""
    lists = Counter(tuple(judged.doc_ids[place] for place in order[:cutoff]) for order in judged.orders)
    return Retrieved(
        query_id=judged.query_id,
        doc_ids=judged.doc_ids,
        useful=frozenset(np.array(judged.doc_ids)[judged.grades > 0].tolist()),
        k=cutoff,
        exposure=None,
        lists=tuple(ListSample(doc_ids, count, None, None) for doc_ids, count in lists.items()),
    )


OF_ITEMS: dict[str, Any] = {
    "reads": Retrieved, "cutoff": "none",
    "undefined": {
        "no_useful": "no item is useful",
        "no_useful_of_group": "no useful item",
        "no_share": "it gets nothing",
        "no_samples": "no list was drawn",
        "one_sample": "of one list nothing is known of the others",
        "nothing_attributed": "no answer rests on a shown item",
        "not_judged": "nobody judged what was cited",
        "nothing_cited": "no answer cites an item",
    },
}  # fmt: skip
_EXPOSED = {
    **OF_ITEMS, "of_lists": orders_as_samples, "bounds": (0.0, math.inf),
    "params": {"norm": ("exact", "fair-rag", "raw"), "of": ("policy", "samples")},
    "undefined": {**OF_ITEMS["undefined"], "degenerate": "every policy shows the same"},
}  # fmt: skip


def _exposed(figure: str, retrieved: Retrieved, cutoff: None, norm: str, of: str) -> Values:
    """One of the three figures."""
    figures = expected(retrieved, norm, of)
    if isinstance(figures, Undefined):
        return figures
    bounded = getattr(figures, figure)
    if bounded is None:
        return Undefined("no_useful")
    if bounded.degenerate and norm != "raw":
        return Convention(bounded.otherwise, "degenerate")
    return float(bounded.value if norm == "raw" else bounded.normalised)


for name, figure, label, better, cite, says in (
    ("EE-D", "disparity", "exposure disparity", "lower", "Σ ε², 0 when all items are shown alike",
        "How unequally items are shown: 0 when all alike, 1 when always the same list."),
    ("EE-R", "relevance", "exposure of useful items", "higher", "Σ ε ε*",
        "How much of what is shown is useful: 1 when nothing else could be, 0 when nothing less could."),
    ("EE-L", "loss", "expected exposure loss", "lower", "Σ (ε − ε*)²",
        "How far exposure is from equal exposure of equally useful items: 0 when it is that."),
):  # fmt: skip
    measure(name, label=label, better=better, cite=cite, says=says, **_EXPOSED)(partial(_exposed, figure))


# Whether groups of items, such as the sources they are from, get what their useful items are worth. Of each query the
# parts are shares, so that all queries weigh alike, and over all queries they are summed before they are divided. Items
# without a group count in the whole.


OF_GROUPS = {**OF_ITEMS, "bounds": (0.0, math.inf), "aggregate": "ratio-of-shares"}


@dataclass(frozen=True, slots=True)
class GroupShare(Ratio):
    """Of a group of items: `doc_ids` are theirs, and `parts` what each adds to both sides; shape (items, 2)."""

    doc_ids: NDArray[np.str_] = field(default_factory=lambda: np.array([], str))
    parts: Floats = field(default_factory=lambda: np.zeros((0, 2)))


def of_useful(retrieved: Retrieved, what: Floats, nothing: str) -> Values:
    """By group, its share of `what` items get over its share of useful items; undefined where nobody gets any."""
    whole, useful = float(what.sum()), int(retrieved.flags.sum())
    if not useful or not whole:
        return dict.fromkeys(retrieved.members, Undefined(nothing if useful else "no_useful"))
    doc_ids = np.array(retrieved.doc_ids)
    parts = np.column_stack([what / whole, retrieved.flags / useful])
    return {
        name: GroupShare(
            float(what[of].sum()) / whole,
            worth := int(retrieved.flags[of].sum()) / useful,
            None if worth else "no_useful_of_group",
            doc_ids=doc_ids[of],
            parts=parts[of],
        )
        for name, of in retrieved.members.items()
    }


@measure(
    "EE(group)", label="exposure of a group", parity=1.0, better="parity",
    cite="Σ ε of the group / Σ ε, over its share of useful items; after Diaz et al. 2020", **OF_GROUPS,
)  # fmt: skip
def exposure_by_group(retrieved: Retrieved, cutoff: None) -> Values:
    """A group's share of expected exposure over its share of useful items: 1 is parity."""
    if (exposure := retrieved.exposure) is not None:
        shown = np.array([exposure[doc_id] for doc_id in retrieved.doc_ids])
    else:
        shown = retrieved.shares((drawn.count, retrieved.shown(drawn)) for drawn in retrieved.lists)
    return of_useful(retrieved, shown, "no_samples")


@measure("Useful(group)", label="useful items of a group", cite="useful items / items", **OF_GROUPS)
def useful_by_group(retrieved: Retrieved, cutoff: None) -> Values:
    """Share of a group's items that are useful."""
    useful = retrieved.flags
    return {name: Ratio(int(useful[of].sum()), int(of.sum())) for name, of in retrieved.members.items()}


# How far answers rest on the items that they cite: of the items cited, those that support the answer (precision), and
# the answers that a cited item supports (recall). After ALCE (Gao et al. 2023, "Enabling Large Language Models to
# Generate Text with Citations"), where an answer's statements are held against their citations. Here an answer is one
# statement, and every item cited is judged by itself: that two items support an answer only together counts for
# neither.


_OF_CITATIONS = {
    **OF_ITEMS, "bounds": (0.0, 1.0), "better": "higher", "cite": "after ALCE [Gao et al. 2023]",
}  # fmt: skip


@measure("CitationPrecision", label="citations that support the answer", **_OF_CITATIONS)
def citation_precision(retrieved: Retrieved, cutoff: None) -> Values:
    """Share of the items cited that support the answer, each by itself; mean over the answers that cite any."""
    judged = _judged(retrieved)
    shares = [(count, len(supporting) / len(cited)) for count, cited, supporting in judged if cited]
    return mean_of_samples(shares, "nothing_cited" if judged else "not_judged")


@measure("CitationRecall", label="answers that a citation supports", **_OF_CITATIONS)
def citation_recall(retrieved: Retrieved, cutoff: None) -> Values:
    """Share of answers that an item which they cite supports; an answer without citation is none of them."""
    shares = [(count, float(bool(supporting))) for count, _, supporting in _judged(retrieved)]
    return mean_of_samples(shares, "not_judged")


def _judged(retrieved: Retrieved) -> list[tuple[int, frozenset[str], frozenset[str]]]:
    """How many samples drew each list, what its answer cites, and which of that supports it."""
    return [
        (drawn.count, drawn.attributed, drawn.supported)
        for drawn in retrieved.lists
        if drawn.attributed is not None and drawn.supported is not None
    ]


def mean_of_samples(counted: Sequence[tuple[int, float]], otherwise: str) -> float | Undefined:
    """The mean of figures, each of so many samples; undefined, for the reason `otherwise`, without a sample."""
    samples = sum(count for count, _ in counted)
    if not samples:
        return Undefined(otherwise)
    return math.fsum(count * figure for count, figure in counted) / samples
