"""Preference odds of lists by strata of relevance: who is ahead of two items of equal grade, one of each group.

Of all comparisons of a stratum, or of both together, the model is logistic,

    logit P(first group's item ahead) = β + Σ_{j=1..J} γ_j (z_1^j − z_2^j) + δ sign(z_1 − z_2),

with z the places in the window from −1 to 1, J = min(4, m − 1) in windows of up to m items, and δ, which is what a list
left as it was looks like, from m = 3 on. Where the best of several items was chosen, the same coefficients are those of
a conditional logit (McFadden 1974). A comparison weighs 1 / the pairs of equal grade that first encounters of its query
and stratum showed, whether an answer told them apart or not. Items that come once leave queries independent: the error
of β is the jackknife's over queries. Where items recur, their qualities recur with them, and the error is that of
three ways of clusters: queries, items of either group (Cameron, Gelbach and Miller 2011), with as many degrees of
freedom as the way of fewest effective clusters has, less one.

Of several groups there is one fit, β_g − β_h in the place of β, of groups that are linked: each is put ahead of the
other somewhere, be it by way of further groups. An item counts on whichever side it stands, so that the error is that
of queries and of dyads of items (Fafchamps and Gubert 2007; Aronow, Samii and Assenova 2015).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, partial
from itertools import accumulate, combinations
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from llmfair.stats.intervals import FEWEST_QUERIES, t_quantile, two_sided
from llmfair.stats.pairs import count as _count

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]
Flags = NDArray[np.bool_]
Of = TypeVar("Of", bound=np.generic)

MOST_POWERS = 4
"""Slots have a polynomial effect of this degree at most: enough for what is lost in the middle, and still smooth."""
FEWEST_COMPARISONS = 20
"""From fewer comparisons, over all queries, no preference has an interval."""
STEPS, TOLERANCE = 50, 1e-12
DECIMALS = 10
"""Of all that is fitted: the last digits hang on the processor, and equal answers give equal files everywhere."""
FARTHEST = 500.0
"""Log odds beyond this are no longer numbers that can be told apart: nothing is fitted."""
FEWEST_ALONE = 60
"""A stratum of fewer comparisons has its slots' effect from both strata."""
FEWEST_ITEMS = 4.0
"""Effective clusters: an interval from fewer says nothing of parity."""
FEWEST_LINKED = 2
"""Groups are linked by comparisons of so many queries, so that no single one of them holds a fit together."""
Contrast = tuple[int, int]
"""The numbers of two groups, the first of which is put ahead of the second."""
Band = tuple[float, float]
BAND = (0.8, 1.25)
GUARD = (0.5, 2.0)
"""Where the interval of each stratum has to lie for parity, whose estimate is in the band."""
MOST_LEFT_OUT = 0.05


class Stratum(StrEnum):
    RELEVANT = "relevant"
    IRRELEVANT = "irrelevant"


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Outcomes of one condition, arrays of shape (c,).

    `query`: its number; `relevant`: whether the items' grade is above 0. `shown`: by query number and stratum, the
    pairs of equal grade and both groups that first encounters showed. `window`: items of the largest; 1 where they were
    not shown side by side. `groups`: of several groups, the number of each item's, as arrays of items are shaped;
    `effects`: those that have a coefficient of their own.
    """

    query: Integers
    relevant: Flags
    shown: Mapping[tuple[int, Stratum], int]
    window: int
    groups: Integers | None = field(default=None, kw_only=True)
    effects: tuple[int, ...] = field(default=(), kw_only=True)
    signed: ClassVar[bool] = True
    arrays: ClassVar[tuple[str, ...]] = ("query", "relevant", "first", "second", "ahead", "slots")

    @property
    def numbers(self) -> Integers:
        """`groups`, where there are several."""
        assert self.groups is not None
        return self.groups

    def some(self, rows: Flags | Integers) -> Self:
        """These outcomes alone."""
        names = self.arrays if self.groups is None else (*self.arrays, "groups")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def of(self, stratum: Stratum | None) -> Flags:
        """Which are of the stratum; of both where it is None."""
        if stratum is None:
            return np.ones(len(self.query), bool)
        return self.relevant if stratum is Stratum.RELEVANT else ~self.relevant

    def of_stratum(self, stratum: Stratum | None) -> Self:
        """Those of the stratum alone; of None, these."""
        return self if stratum is None else self.some(self.of(stratum))

    @property
    def size(self) -> int:
        """How many outcomes there are."""
        return len(self.query)

    def parts(self) -> Iterator[Any]:
        """All rows, in parts of whole queries."""
        yield self

    def of_rows(self, of_outcomes: NDArray[Of]) -> NDArray[Of]:
        """What is known of outcomes, of each row of the design."""
        return of_outcomes

    def weights(self, stratum: Stratum | None) -> Floats:
        """1 / the pairs shown in the query: of the stratum, or of both."""
        strata = [*Stratum] if stratum is None else [stratum]
        numbers, rows = np.unique(self.query, return_inverse=True)
        pairs = [sum(self.shown.get((int(number), each), 0) for each in strata) for number in numbers]
        return 1 / np.array(pairs, float)[rows]

    def nodes(self, stratum: Stratum | None, groups: int) -> Integers:
        """The groups' numbers, those of the other stratum, if one is given, from so many `groups` on."""
        if stratum is None:
            return self.numbers
        other = self.of_rows(~self.of(stratum)).reshape(-1, *[1] * (self.numbers.ndim - 1))
        return self.numbers + groups * other

    @cached_property
    def several(self) -> bool:
        """Whether there are more groups than two."""
        return self.groups is not None and bool(np.count_nonzero(np.bincount(self.groups.reshape(-1))) > 2)

    @cached_property
    def without_slots(self) -> Self:
        """The same as if nothing had been shown side by side."""
        return replace(self, window=1)

    @cached_property
    def fits(self) -> dict[Stratum | None, GroupFit | None]:
        """Those of several groups that were made."""
        return {}

    @cached_property
    def rows_of_pairs(self) -> Mapping[Contrast, Integers]:
        """The rows of every two groups, the lower number first."""
        low, high = self.numbers.min(axis=1), self.numbers.max(axis=1)
        several = int(self.numbers.max(initial=0)) + 1
        key = low * several + high
        order = np.argsort(key, kind="stable")
        pairs, starts = np.unique(key[order], return_index=True)
        rows = np.split(order, starts[1:])
        return {divmod(int(pair), several): each for pair, each in zip(pairs, rows, strict=True)}

    def _of_two(self, contrast: Contrast) -> Self:
        first, second = contrast
        none = np.zeros(0, np.intp)
        return self.some(self.rows_of_pairs.get((min(first, second), max(first, second)), none))

    def among(self, component: Integers, stratum: Stratum | None = None) -> Self:
        """The outcomes within components, one of which each node has: groups, of two strata where one is given."""
        nodes = self.nodes(stratum, len(component) // 2)
        effects = tuple(np.flatnonzero(component != np.arange(len(component))).tolist())
        within = component[nodes[:, 0]] == component[nodes[:, 1]]
        of_nodes = replace(self, groups=nodes, effects=effects)
        return of_nodes if within.all() else of_nodes.some(within)

    def _effects(self, intercepts: Sequence[Flags]) -> Sequence[Flags | Floats]:
        """Columns of β, or of every group's."""
        if self.groups is None or not intercepts:
            return intercepts
        first, second = self.groups.T
        return [(first == group) - 1.0 * (second == group) for group in self.effects]


@dataclass(frozen=True, eq=False)
class Comparisons(Outcomes):
    """Of two items each: `first`, `second`: their numbers; `ahead`: whether the first group's item is, or how often.

    `slots`, shape (c, 2): z of both, from −1 to 1.
    """

    first: Integers
    second: Integers
    ahead: Floats
    slots: Floats

    @property
    def ways(self) -> tuple[Integers, ...]:
        """What outcomes may share their luck by: query, and either item."""
        return self.query, self.first, self.second

    def design(self, intercepts: Sequence[Flags], powers: int, sign: bool) -> Floats:
        """Columns of β, one for each of `intercepts`, of so many powers of z, and of its sign."""
        columns = [first - second for first, second in map(np.transpose, _powers(self.slots, powers))]
        signs = [np.sign(self.slots[:, 0] - self.slots[:, 1])] * sign
        return np.stack([*self._effects(intercepts), *columns, *signs], axis=1).astype(float)

    def pair(self, contrast: Contrast) -> Comparisons:
        """Those of two groups alone, as where there are no others."""
        rows = self._of_two(contrast)
        back = rows.numbers[:, 0] != contrast[0]
        return replace(
            rows,
            first=np.where(back, rows.second, rows.first),
            second=np.where(back, rows.first, rows.second),
            ahead=np.where(back, 1 - rows.ahead, rows.ahead),
            slots=np.where(back[:, None], rows.slots[:, ::-1], rows.slots),
            groups=None,
        )


Make = Callable[[], Comparisons]
"""Makes a query's own comparisons, whenever an error asks for them."""


@dataclass(frozen=True, eq=False)
class PairCounts(Outcomes):
    """Comparisons in no slots, of which each query and stratum has one row: long lists have more than can be held.

    `count`: how many they are; `ahead`: the share of them that the first group's item is ahead in. `make`: a query's
    own comparisons, by its number.
    """

    count: Integers
    ahead: Floats
    make: Mapping[int, Make]
    signed = False
    arrays = ("query", "relevant", "count", "ahead")

    @property
    def size(self) -> int:
        return int(self.count.sum())

    def weights(self, stratum: Stratum | None) -> Floats:
        return self.count * super().weights(stratum)

    def design(self, intercepts: Sequence[Flags], powers: int, sign: bool) -> Floats:
        return np.stack(self._effects(intercepts), axis=1).astype(float)

    def parts(self) -> Iterator[Comparisons]:
        for number in np.unique(self.query).tolist():
            part, strata = self.make[number](), np.unique(self.relevant[self.query == number])
            yield part if len(strata) > 1 else part.some(part.relevant == strata[0])

    def among(self, component: Integers, stratum: Stratum | None = None) -> Self:
        return super().among(component, stratum)._made(lambda part: part.among(component, stratum))

    def pair(self, contrast: Contrast) -> PairCounts:
        rows = self._of_two(contrast)
        ahead = np.where(rows.numbers[:, 0] != contrast[0], 1 - rows.ahead, rows.ahead)
        return replace(rows, ahead=ahead, groups=None)._made(lambda part: part.pair(contrast))

    def _made(self, change: Callable[[Comparisons], Comparisons]) -> Self:
        """The same, with every query's own comparisons changed, too."""

        def changed(make: Make) -> Comparisons:
            return change(make())

        return replace(self, make={number: partial(changed, make) for number, make in self.make.items()})


def pair_counts(pairs: Comparisons, make: Make) -> PairCounts:
    """Of one query's comparisons, which `make` makes again."""
    kind: NDArray[Any] = pairs.relevant
    if pairs.groups is not None:
        several = int(pairs.groups.max(initial=0)) + 1
        kind = (kind * several + pairs.groups[:, 0]) * several + pairs.groups[:, 1]
    _, place, row = np.unique(kind, return_index=True, return_inverse=True)
    count, query = np.bincount(row), np.zeros(len(place), np.intp)
    ahead = np.bincount(row, pairs.ahead) / count
    groups = None if pairs.groups is None else pairs.groups[place]
    relevant = pairs.relevant[place]
    return PairCounts(query, relevant, pairs.shown, pairs.window, count, ahead, {0: make}, groups=groups)


@dataclass(frozen=True, eq=False)
class Choices(Outcomes):
    """Of the best among several items each: where each choice `starts` in arrays of all alternatives, of shape (r,).

    `item`: numbers of the items, the chosen one of every choice first; `of_first`: whether they are of the first group;
    `slots`: z. One alternative has no sign to fit.
    """

    starts: Integers
    item: Integers
    of_first: Flags
    slots: Floats
    signed = False

    @property
    def ahead(self) -> Floats:
        return self.of_first[self.starts].astype(float)

    @property
    def first(self) -> Integers:
        return self.item[self.of_first]

    @property
    def second(self) -> Integers:
        return self.item[~self.of_first]

    @property
    def ways(self) -> tuple[Integers, ...]:
        return self.of_rows(self.query), self.item

    def some(self, rows: Flags | Integers) -> Self:
        kept = self.of_rows(rows)
        starts = np.cumsum([0, *self._sizes[rows]])[:-1]
        names = ("item", "of_first", "slots", *["groups"] * (self.groups is not None))
        alternatives = {name: getattr(self, name)[kept] for name in names}
        return replace(
            self, query=self.query[rows], relevant=self.relevant[rows], starts=starts, **alternatives
        )

    @property
    def _sizes(self) -> Integers:
        return np.diff([*self.starts, len(self.item)])

    def of_rows(self, of_outcomes: NDArray[Of]) -> NDArray[Of]:
        return of_outcomes.repeat(self._sizes, axis=0)

    def design(self, intercepts: Sequence[Flags], powers: int, sign: bool) -> Floats:
        columns = _powers(self.slots, powers)
        groups = [self.of_first & self.of_rows(each) for each in intercepts]
        if self.groups is not None and intercepts:
            groups = [self.groups == group for group in self.effects]
        return np.stack([*groups, *columns], axis=1).astype(float)

    def among(self, component: Integers, stratum: Stratum | None = None) -> Self:
        nodes = self.nodes(stratum, len(component) // 2)
        chosen = self.of_rows(nodes[self.starts])
        stay = component[nodes] == component[chosen]
        rows = np.logical_or.reduceat(stay & (nodes != chosen), self.starts)
        stay &= self.of_rows(rows)
        sizes = np.add.reduceat(stay.astype(np.intp), self.starts)[rows]
        return replace(
            self, query=self.query[rows], relevant=self.relevant[rows], starts=np.cumsum([0, *sizes])[:-1],
            item=self.item[stay], of_first=self.of_first[stay], slots=self.slots[stay], groups=nodes[stay],
            effects=tuple(np.flatnonzero(component != np.arange(len(component))).tolist()),
        )  # fmt: skip

    def pair(self, contrast: Contrast) -> Choices:
        alone = np.arange(max(int(self.numbers.max(initial=0)), *contrast) + 1)
        alone[max(contrast)] = min(contrast)
        rows = self.among(alone)
        return replace(rows, of_first=rows.numbers == contrast[0], groups=None)


Compared = Comparisons | Choices | PairCounts


def _duels(outcomes: Compared, stratum: Stratum | None, groups: int) -> tuple[Integers, Integers, Floats]:
    """By query and the nodes of two, shape (d, 2): whether the first is ahead; of a choice with each other item."""
    nodes = outcomes.nodes(stratum, groups)
    if not isinstance(outcomes, Choices):
        return outcomes.query, nodes, outcomes.ahead
    pairs = np.stack([outcomes.of_rows(nodes[outcomes.starts]), nodes], axis=1)
    others = pairs[:, 0] != pairs[:, 1]
    return outcomes.of_rows(outcomes.query)[others], pairs[others], np.ones(int(others.sum()))


def _linked(outcomes: Compared, stratum: Stratum | None, groups: int) -> Integers:
    """Of each node, the first one that it is linked with both ways: each is ahead of the other, be it by way of others.

    Between nodes that are not, no finite odds are the likeliest (Ford 1957).
    """
    count = groups if stratum is None else 2 * groups
    query, pairs, ahead = _duels(outcomes, stratum, groups)
    key = pairs.min(axis=1, initial=count) * count + pairs.max(axis=1, initial=0)
    queries = np.bincount(np.unique(query * count**2 + key) % count**2, minlength=count**2)
    often = queries[key] >= FEWEST_LINKED
    first, second = pairs.T
    reached = np.eye(count, dtype=bool)
    reached[first[often & (ahead > 0)], second[often & (ahead > 0)]] = True
    reached[second[often & (ahead < 1)], first[often & (ahead < 1)]] = True
    for _ in range(count.bit_length()):
        reached = reached @ reached
    component: Integers = (reached & reached.T).argmax(axis=1)
    return component


def _powers(slots: Floats, most: int) -> list[Floats]:
    """z, z², and so on: by multiplication, which is several times as fast as powers."""
    return list(accumulate([slots] * most, np.multiply))


def together(
    queries: Sequence[tuple[Compared, Sequence[str]]], numbers: dict[str, int] | None = None
) -> Compared:
    """Of all queries together: each one's outcomes, whose items are places in the ids beside them.

    `numbers`: of items that were numbered before; it takes in the others.
    """
    numbers = {} if numbers is None else numbers
    shown: dict[tuple[int, Stratum], int] = {}
    columns: dict[str, list[NDArray[Any]]] = {}
    make = dict[int, Make]()
    alternatives = 0
    for number, (outcomes, ids) in enumerate(queries):
        item = np.array([numbers.setdefault(name, len(numbers)) for name in ids], np.intp)
        shown |= {(number, stratum): count for (_, stratum), count in outcomes.shown.items()}
        own: dict[str, NDArray[Any]] = {
            "query": np.full(len(outcomes.query), number),
            "relevant": outcomes.relevant,
        }
        if outcomes.groups is not None:
            own["groups"] = outcomes.groups
        if isinstance(outcomes, PairCounts):
            own |= {"count": outcomes.count, "ahead": outcomes.ahead}
            make[number] = partial(_numbered, outcomes, number, item)
        elif isinstance(outcomes, Comparisons):
            own |= {"first": item[outcomes.first], "second": item[outcomes.second]}
            own |= {"ahead": outcomes.ahead, "slots": outcomes.slots}
        else:
            own |= {"starts": outcomes.starts + alternatives, "item": item[outcomes.item]}
            own |= {"of_first": outcomes.of_first, "slots": outcomes.slots}
            alternatives += len(outcomes.item)
        for name, column in own.items():
            columns.setdefault(name, []).append(column)
    arrays: dict[str, Any] = {name: np.concatenate(parts) for name, parts in columns.items()}
    arrays |= {"make": make} if make else {}
    return type(queries[0][0])(shown=shown, window=max(outcomes.window for outcomes, _ in queries), **arrays)


def _numbered(outcomes: PairCounts, number: int, item: Integers) -> Comparisons:
    """A query's comparisons under its number and those of its items."""
    (make,) = outcomes.make.values()
    part = make()
    query = np.full(len(part.query), number)
    return replace(part, query=query, first=item[part.first], second=item[part.second])


class _Slopes(NamedTuple):
    """At some coefficients, of each row: what its score is in the direction of, shape (rows, k), how far what was
    observed is from its chance, and its information; and the largest log odds.
    """

    base: Floats
    residuals: Floats
    information: Floats
    far: float

    @property
    def scores(self) -> Floats:
        return self.base * self.residuals[:, None]

    @property
    def hessian(self) -> Floats:
        return self.base.T @ (self.base * self.information[:, None])


@dataclass(frozen=True)
class Figure:
    """Log odds with error and degrees of freedom, or why there are none.

    `reason`: None where there is a figure; `too_few_comparisons`, `too_few_queries`, `always_one_way`, `separated`.
    `independent`: of the comparisons that all went one way. `recurs`: items are in several queries, so many as are
    `recurring`; `clusters`: effective ones, of the way that has fewest.
    """

    comparisons: int
    queries: int
    reason: str | None = None
    log_odds: float | None = None
    error: float | None = None
    freedom: float | None = None
    always_ahead: bool | None = None
    independent: int = 0
    recurs: bool = False
    clusters: float | None = None
    fit: Fit | None = None
    recurring: int = 0

    @property
    def few_items(self) -> bool:
        return self.recurs and self.clusters is not None and self.clusters < FEWEST_ITEMS

    def interval(self, level: float = 0.95) -> tuple[float, float] | None:
        """Limits of the odds."""
        if self.log_odds is None or self.error is None or self.freedom is None:
            return None
        half = t_quantile(self.freedom, level) * self.error
        return math.exp(self.log_odds - half), math.exp(self.log_odds + half)

    def differs(self) -> float | None:
        """Two-sided p of odds of 1, by t."""
        if self.log_odds is None or self.error is None or self.freedom is None:
            return None
        return two_sided(_t(self.log_odds, self.error), self.freedom)

    def outside(self, band: Band = BAND) -> float | None:
        """One-sided p against the nearer edge of the band, of a bound, too; None where there is neither."""
        from scipy.special import stdtr

        t = self._within(band)
        return self.bound(band) if t is None else float(stdtr(self.freedom, t))

    def bound(self, band: Band = BAND) -> float | None:
        """The same p where all comparisons went one way, as each does with one chance at the nearer edge; else None."""
        if self.always_ahead is None:
            return None
        low, high = (math.log(edge) for edge in band)
        edge = high if self.always_ahead else -low
        return float((1 / (1 + math.exp(-edge))) ** self.independent)

    def inside(self, band: Band = BAND) -> float | None:
        """One-sided p of odds inside the band, the larger of those against its edges; None from too few items."""
        from scipy.special import stdtr

        t = self._within(band)
        return None if t is None or self.few_items else float(stdtr(self.freedom, -t))

    def _within(self, band: Band) -> float | None:
        """t of how far the odds lie within the nearer edge of the band; None where there are none."""
        if self.log_odds is None or self.error is None:
            return None
        low, high = (math.log(edge) for edge in band)
        return _t(min(self.log_odds - low, high - self.log_odds), self.error)

    def within(self, band: Band = BAND, level: float = 0.95) -> bool:
        """Whether the whole interval lies in the band; never from too few items."""
        p = self.inside(band)
        return p is not None and p < (1 - level) / 2


def figure(outcomes: Compared, stratum: Stratum | None = None, contrast: Contrast | None = None) -> Figure:
    """The odds of a stratum, or of both together, with the error that their items' recurrence asks for.

    Of several groups those of the first of `contrast` against the second, from the fit of all; where only these two
    were compared, as where there are no others.
    """
    pair = outcomes if contrast is None or outcomes.groups is None else outcomes.pair(contrast)
    own = pair.of_stratum(stratum)
    count, queries, without = own.size, len(np.unique(own.query)), _without(own)
    if contrast is not None and outcomes.several and (without is None or without.always_ahead is not None):
        linked = group_fit(outcomes, stratum)
        if linked is None or linked.component[contrast[0]] != linked.component[contrast[1]]:
            return without or Figure(count, queries, "separated")
        return linked.figure(linked.contrast(*contrast), count, queries, contrast)
    if without is not None:
        return without
    fit, rows = None, own
    if stratum is None or count >= FEWEST_ALONE:
        fit = fitted(own, own.weights(stratum))
    if stratum is not None and fit is None:
        rows = pair
        fit = fitted(rows, rows.weights(None), stratum)
    if fit is None:
        return Figure(count, queries, "separated")
    spread = fit.spread(fit.beta_alone)
    recurring = 0
    if spread.recurs:
        numbers = []
        for part in own.parts():
            query, *items = part.ways
            several = int(query.max()) + 1
            numbers += [np.unique(way * several + query) // several for way in items]
        recurring = int((np.bincount(np.concatenate(numbers)) > 1).sum())
    freedom = max(1.0, spread.clusters - 1) if spread.recurs else queries - 1.0
    return Figure(
        count, queries, None, fit.log_odds, round(spread.error, DECIMALS), freedom, recurs=spread.recurs,
        clusters=spread.clusters, fit=fit, recurring=recurring,
    )  # fmt: skip


def _without(own: Compared) -> Figure | None:
    """What stands for the odds of these outcomes where there are too few, or all go one way."""
    count, queries = own.size, len(np.unique(own.query))
    if few := _few(count, queries):
        return Figure(count, queries, few)
    if own.ahead.min() == own.ahead.max() in (0, 1):
        ways = zip(*((part.query, part.first, part.second) for part in own.parts()), strict=True)
        fewest = min(len(np.unique(np.concatenate(way))) for way in ways)
        return Figure(count, queries, "always_one_way", always_ahead=bool(own.ahead[0]), independent=fewest)
    return None


def _few(comparisons: int, queries: int) -> str | None:
    if comparisons < FEWEST_COMPARISONS:
        return "too_few_comparisons"
    return "too_few_queries" if queries < FEWEST_QUERIES else None


def effects(outcomes: Compared, stratum: Stratum | None = None) -> dict[int, Figure]:
    """Of each group, the log odds of its items against the mean of all groups, each of which weighs alike.

    Groups that are not linked with most of the others have none, and are not in the mean.
    """
    own = outcomes.of_stratum(stratum)
    fit, figures = group_fit(outcomes, stratum), dict[int, Figure]()
    query, pairs, ahead = _duels(own, None, 0)
    count_of = own.count if isinstance(own, PairCounts) else np.ones(len(query))
    component = np.arange(int(pairs.max(initial=-1)) + 1) if fit is None else fit.component
    among = np.flatnonzero(component == np.bincount(component, minlength=1).argmax()).tolist()
    for group in np.unique(pairs).tolist():
        rows = (pairs == group).any(axis=1)
        won = np.where(pairs[rows, 0] == group, ahead[rows], 1 - ahead[rows])
        count, queries = int(count_of[rows].sum()), len(np.unique(query[rows]))
        if few := _few(count, queries):
            figures[group] = Figure(count, queries, few)
        elif fit is not None and group in among and len(among) > 1:
            mean = np.mean([fit.contrast(group, other) for other in among], axis=0)
            figures[group] = fit.figure(mean, count, queries, (group,))
        elif won.min() == won.max() in (0, 1):
            figures[group] = Figure(count, queries, "always_one_way", always_ahead=bool(won[0]))
        else:
            figures[group] = Figure(count, queries, "separated")
    return figures


@dataclass(frozen=True, eq=False)
class GroupFit:
    """One fit of all groups: `component` of each, within which they are linked, and those that have a coefficient."""

    fit: Fit
    effects: tuple[int, ...]
    component: Integers

    @cached_property
    def moved(self) -> _Moved:
        return _moved(self.fit.rows)

    def contrast(self, first: int, second: int) -> Floats:
        """What times coefficients is the log odds of the first group against the second, shape (k,)."""
        contrast = np.zeros(len(self.fit.coefficients))
        for sign, group in ((1, first), (-1, second)):
            if group in self.effects:
                contrast[self.effects.index(group)] += sign
        return contrast

    def figure(self, contrast: Floats, comparisons: int, queries: int, groups: Sequence[int]) -> Figure:
        """Of coefficients times a contrast of these groups, by t of the fewest of queries and effective items."""
        moved, clusters = self.moved, float(queries)
        if moved.recurs:
            clusters = min(clusters, *map(moved.effective, groups))
        fit = replace(self.fit, beta=contrast, clusters=clusters)
        jackknife = _jackknife_variance(fit.changes @ contrast)
        error = moved.error(np.linalg.solve(fit.hessian, contrast).astype(float), jackknife)
        return Figure(
            comparisons, queries, None, fit.log_odds, round(error, DECIMALS), max(1.0, clusters - 1),
            recurs=moved.recurs, clusters=clusters, fit=fit,
            recurring=int(np.isin(moved.group[moved.lists > 1], [*groups]).sum()),
        )  # fmt: skip


def slots_of_groups(outcomes: Compared) -> Figure:
    """What the first slot is worth against the last, in the fit of several groups, whichever of them are compared."""
    count, queries, fit = outcomes.size, len(np.unique(outcomes.query)), group_fit(outcomes)
    if few := _few(count, queries):
        return Figure(count, queries, few)
    if fit is None:
        return Figure(count, queries, "separated")
    return fit.figure(fit.fit.first_slot, count, queries, np.unique(fit.moved.group).tolist())


def group_fit(outcomes: Compared, stratum: Stratum | None = None) -> GroupFit | None:
    """The fit of several groups, once for all contrasts between them; None without a finite one."""
    if stratum in outcomes.fits:
        return outcomes.fits[stratum]
    outcomes.fits[stratum] = None
    groups = int(outcomes.numbers.max(initial=-1)) + 1
    own = outcomes.of_stratum(stratum)
    component = _linked(own, None, groups)
    rows = own.among(component)
    if not rows.size:
        return None
    fit = fitted(rows, rows.weights(stratum)) if stratum is None or rows.size >= FEWEST_ALONE else None
    if fit is None and stratum is not None:
        rows = outcomes.among(_linked(outcomes, stratum, groups), stratum)
        fit = fitted(rows, rows.weights(None), stratum)
    if fit is not None:
        outcomes.fits[stratum] = GroupFit(fit, rows.effects, component)
    return outcomes.fits[stratum]


def _t(distance: float, error: float) -> float:
    """Queries that are all alike have no error."""
    return distance / error if error else math.copysign(math.inf, distance) if distance else 0.0


@dataclass(frozen=True, eq=False)
class Spread:
    """The error of an estimate, the effective clusters of the way that has fewest, and whether items recur."""

    error: float
    clusters: float
    recurs: bool


class Rows(NamedTuple):
    """Of whole queries: the scores of coefficients, shape (rows, k), or what each row moves an estimate by, (rows,).

    `ways`: clusters of the rows; `own`: which are of the stratum; `groups`: of several, those of each way but queries.
    """

    scores: Floats
    information: Floats
    ways: tuple[Integers, ...]
    own: Flags
    groups: Integers | None = None


Parts = Callable[[], Iterable[Rows]]
"""Makes all rows, in whole queries."""


@dataclass(frozen=True, eq=False)
class Fit:
    """The likeliest coefficients, β first, then slots' powers, then the sign.

    `rows` and `hessian`: those of the likelihood; `changes`, shape (queries, k): what leaving out each of `queries`
    does, by one step of Newton's method. Of several groups, whose effects come first, `beta` times the coefficients is
    β of two, and `clusters` the effective ones that it hangs on.
    """

    coefficients: Floats
    rows: Parts
    hessian: Floats
    queries: Integers
    changes: Floats
    powers: int
    sign: bool
    beta: Floats | None = None
    clusters: float = 0.0

    @property
    def log_odds(self) -> float:
        return round(float(self.coefficients @ self.beta_alone), DECIMALS)

    @property
    def parts(self) -> Floats:
        """Each query's part of β: its jackknife pseudo-value, shape (queries,)."""
        return self.log_odds + (len(self.changes) - 1) * (self.changes @ self.beta_alone)

    @property
    def beta_alone(self) -> Floats:
        return np.eye(len(self.coefficients))[0] if self.beta is None else self.beta

    @property
    def first_slot(self) -> Floats:
        """The contrast of two alike items, one in the first slot and one in the last."""
        odd = [-2.0 * (power % 2) for power in range(1, self.powers + 1)]
        others = len(self.coefficients) - self.powers - self.sign
        return np.array([*[0.0] * others, *odd, *[-1.0] * self.sign])

    def spread(self, contrast: Floats) -> Spread:
        """The error of coefficients times a contrast, shape (k,)."""
        return spread(self.changes @ contrast, partial(self.influence, contrast), self.clusters)

    def influence(self, contrast: Floats) -> Iterator[Rows]:
        """What rows move coefficients times a contrast by."""
        direction = np.linalg.solve(self.hessian, contrast)
        for rows in self.rows():
            yield rows._replace(scores=rows.scores @ direction)


def _slopes(outcomes: Compared, design: Floats, weights: Floats, coefficients: Floats) -> _Slopes:
    logits = design @ coefficients
    if isinstance(outcomes, Choices):
        starts, of_rows = outcomes.starts, outcomes.of_rows
        behind = logits - of_rows(np.maximum.reduceat(logits, starts))
        odds = np.exp(behind)
        chances = odds / of_rows(np.add.reduceat(odds, starts))
        means = np.add.reduceat(design * chances[:, None], starts)
        chosen = np.zeros(len(design))
        chosen[starts] = 1
        weights = of_rows(weights)
        moved = weights * (chosen - chances)
        return _Slopes(design - of_rows(means), moved, weights * chances, float(-behind.min()))
    smaller = np.exp(-np.abs(logits))
    chances = np.where(logits < 0, smaller, 1) / (1 + smaller)
    information = weights * chances * (1 - chances)
    return _Slopes(design, weights * (outcomes.ahead - chances), information, float(np.abs(logits).max()))


def fitted(outcomes: Compared, weights: Floats, stratum: Stratum | None = None) -> Fit | None:
    """The fit with as many effects of slots as the outcomes can tell apart; with `stratum`, each stratum has a β.

    Where outcomes are separated the highest powers are dropped one by one, and the sign last. None where they are
    separated even so.
    """
    for powers, sign in _slot_effects(outcomes):
        design = outcomes.design(_intercepts(outcomes, stratum), powers, sign)
        if (maximum := _maximum(outcomes, design, weights)) is not None:
            coefficients, slopes = maximum
            if (changes := _jackknife(outcomes.of_rows(outcomes.query), slopes)) is not None:
                rows: Parts
                if isinstance(outcomes, PairCounts) or outcomes.groups is not None:
                    each = weights / outcomes.count if isinstance(outcomes, PairCounts) else weights
                    rows = partial(_rows_anew, outcomes, each, stratum, coefficients, powers, sign)
                else:
                    own = outcomes.of_rows(outcomes.of(stratum))
                    rows = partial(iter, (Rows(slopes.scores, slopes.information, outcomes.ways, own),))
                queries = np.unique(outcomes.query)
                return Fit(coefficients, rows, slopes.hessian, queries, changes, powers, sign)
    return None


def _intercepts(outcomes: Compared, stratum: Stratum | None) -> list[Flags]:
    own = outcomes.of(stratum)
    return [own] if stratum is None else [own, ~own]


def _rows_anew(
    outcomes: Compared,
    weights: Floats,
    stratum: Stratum | None,
    coefficients: Floats,
    powers: int,
    sign: bool,
) -> Iterator[Rows]:
    """Rows that are not held, made anew part by part; `weights`: of one comparison, by query and stratum."""
    weight_of = dict(zip(outcomes.query.tolist(), weights.tolist(), strict=True))
    for part in outcomes.parts():
        design = part.design(_intercepts(part, stratum), powers, sign)
        of_part = np.array([*map(weight_of.__getitem__, part.query.tolist())])
        slopes = _slopes(part, design, of_part, coefficients)
        yield Rows(slopes.scores, slopes.information, part.ways, part.of_rows(part.of(stratum)), part.groups)


def _slot_effects(outcomes: Compared) -> Iterator[tuple[int, bool]]:
    """Powers of z and whether its sign is fitted, from most to least."""
    most, sign = min(MOST_POWERS, outcomes.window - 1), outcomes.signed and outcomes.window >= 3
    yield from ((powers, sign) for powers in range(most, 0, -1))
    if sign or not most:
        yield min(most, 1), False


def _maximum(outcomes: Compared, design: Floats, weights: Floats) -> tuple[Floats, _Slopes] | None:
    """The coefficients of greatest likelihood, by Newton's method; None where there are no finite ones."""
    coefficients = np.zeros(design.shape[1])
    for _ in range(STEPS):
        slopes = _slopes(outcomes, design, weights, coefficients)
        if slopes.information.max() < TOLERANCE * weights.max() or not slopes.far < FARTHEST:
            return None
        try:
            step = np.linalg.solve(slopes.hessian, slopes.scores.sum(axis=0))
        except np.linalg.LinAlgError:
            return None
        if np.abs(step).max() < TOLERANCE:
            return coefficients, slopes
        coefficients = coefficients + step
    return None


def _jackknife(queries: Integers, slopes: _Slopes) -> Floats | None:
    """What leaving out each query changes; None where one of them alone tells coefficients apart."""
    order, counts = np.argsort(queries, kind="stable"), np.bincount(queries)
    ends = np.cumsum(counts[counts > 0])[:-1]
    informed = slopes.base * slopes.information[:, None]
    by_query = zip(np.split(slopes.base[order], ends), np.split(informed[order], ends), strict=True)
    hessian = slopes.hessian
    left = np.array([hessian - base.T @ information for base, information in by_query])
    if not (np.linalg.cond(left) < 1 / TOLERANCE).all():
        return None
    return np.linalg.solve(left, _sums(queries, slopes.scores)[..., None])[..., 0].astype(float)


def change(one: Fit, other: Fit) -> tuple[float, Spread] | None:
    """The difference of two log odds over the same queries and items; None where their queries differ."""
    if not np.array_equal(one.queries, other.queries):
        return None

    def rows() -> Iterator[Rows]:
        both = one.influence(one.beta_alone), other.influence(-other.beta_alone)
        for ours, theirs in zip(*both, strict=True):
            ways = tuple(np.concatenate(way) for way in zip(ours.ways, theirs.ways, strict=True))
            scores, information, own = (
                np.concatenate([getattr(ours, name), getattr(theirs, name)])
                for name in ("scores", "information", "own")
            )
            several = ours.groups is not None and theirs.groups is not None
            groups = np.concatenate([ours.groups, theirs.groups]) if several else None
            yield Rows(scores, information, ways, own, groups)

    changes = one.changes @ one.beta_alone - other.changes @ other.beta_alone
    return one.log_odds - other.log_odds, spread(changes, rows, min(one.clusters, other.clusters))


def null_scores(outcomes: Compared, stratum: Stratum | None, fit: Fit) -> Floats:
    """The queries' scores for β at β = 0, less what all else that is fitted accounts for; shape (queries,).

    Under odds of 1 their signs are those of coins. Without a finite maximum of what else is fitted, those at 0.
    """
    shared = len(fit.coefficients) - fit.powers - fit.sign > 1
    rows = outcomes if shared else outcomes.of_stratum(stratum)
    weights = rows.weights(None if shared else stratum)
    design = rows.design(_intercepts(rows, stratum if shared else None), fit.powers, fit.sign)
    others = _maximum(rows, design[:, 1:], weights) if design.shape[1] > 1 else None
    rest = np.zeros(design.shape[1] - 1) if others is None else others[0]
    slopes = _slopes(rows, design, weights, np.array([0.0, *rest]))
    information, scores = slopes.hessian, _sums(rows.of_rows(rows.query), slopes.scores)
    accounted = np.linalg.lstsq(information[1:, 1:], information[1:, 0], rcond=None)[0]
    return scores[:, 0] - scores[:, 1:] @ accounted


def slots_decide(outcomes: Compared, stratum: Stratum | None) -> bool:
    """Whether the slots alone separate the outcomes, whatever the items: no finite effect of them is the likeliest."""
    own = outcomes.of_stratum(stratum)
    powers, sign = next(_slot_effects(own))
    return bool(powers) and _maximum(own, own.design([], powers, sign), own.weights(stratum)) is None


def _jackknife_variance(changes: Floats) -> float:
    return (len(changes) - 1) / len(changes) * float(changes @ changes)


class _Moved(NamedTuple):
    """What clusters move coefficients by: their squares, of the queries and of all ways, shape (k, k), or of one
    estimate; whether items recur; and of each item its information, its group and in how many queries it is.
    """

    by_query: Floats
    every: Floats
    recurs: bool
    information: Floats
    group: Integers
    lists: Integers

    def error(self, direction: Floats, jackknife: float) -> float:
        """Of coefficients times a contrast, by the direction that it has in their scores."""
        if not self.recurs:
            return math.sqrt(jackknife)
        variances = [float(direction @ squares @ direction) for squares in (self.by_query, self.every)]
        return math.sqrt(max(*variances, jackknife))

    def effective(self, group: int) -> float:
        """Effective items of a group."""
        squares = self.information[self.group == group] ** 2
        return float(squares.sum() ** 2 / (squares**2).sum())


def _moved(parts: Parts) -> _Moved:
    """Of queries and of items, on whichever side of a comparison they stand: V_q + V_items − V_both, where V_items is
    Σ (an item's sum)² − Σ (that of two items)² of dyads, and so is V_both of those of a query.
    """
    queries, seen, owned = 0, list[Integers](), list[Integers]()
    for rows in parts():
        query, *items = rows.ways
        both = np.concatenate(items) * (several := int(query.max()) + 1) + np.tile(query, len(items))
        seen.append(np.unique(both) // several)
        owned.append(np.unique(both[np.tile(rows.own, len(items))]) // several)
        queries += _count(query[rows.own])
    lists = np.bincount(np.concatenate(seen))
    own_lists = np.bincount(np.concatenate(owned), minlength=len(lists))
    if not (own_lists > 1).any():
        return _Moved(np.zeros((1, 1)), np.zeros((1, 1)), False, np.zeros(0), *[np.zeros(0, np.intp)] * 2)
    of_items, of_dyads = list[tuple[Integers, Floats]](), list[tuple[Integers, Floats]]()
    information, group = np.zeros(len(lists)), np.zeros(len(lists), np.intp)
    by_query = dyads = others = np.zeros((1, 1))
    for rows in parts():
        assert rows.groups is not None
        query, *items = rows.ways
        several, item = int(query.max()) + 1, np.concatenate(items)
        moves = rows.scores.reshape(len(query), -1)
        scores, own = (np.concatenate([each] * len(items)) for each in (moves, rows.own))
        by_query = by_query + _squares(_sums(query, moves))
        others = others - _squares(_sums(item * several + np.tile(query, len(items)), scores))
        of_items.append(_by_cluster(item, scores))
        if len(items) > 1:
            dyad, place = np.unique(np.minimum(*items) << 31 | np.maximum(*items), return_inverse=True)
            others = others + _squares(_sums(place * several + query, moves))
            again, sums = (lists[dyad >> 31] > 1) & (lists[dyad & 2**31 - 1] > 1), _sums(place, moves)
            dyads = dyads - _squares(sums[~again])
            of_dyads.append((dyad[again], sums[again]))
        informed = np.concatenate([rows.information] * len(items))
        information += np.bincount(item[own], informed[own], len(lists))
        group[item[own]] = rows.groups.T.reshape(-1)[own]
    for of_parts, sign in ((of_items, 1), (of_dyads, -1)):
        if of_parts:
            dyads = dyads + sign * _squares(_by_cluster(*map(np.concatenate, zip(*of_parts, strict=True)))[1])
    by_query, count = by_query * queries / (queries - 1), np.count_nonzero(own_lists)
    every = by_query + dyads * count / (count - 1) + others
    mine = own_lists > 0
    return _Moved(by_query, every, True, information[mine], group[mine], own_lists[mine])


def _squares(sums: Floats) -> Floats:
    return sums.T @ sums


def spread(changes: Floats, parts: Parts, clusters_of_pair: float = 0.0) -> Spread:
    """The error of an estimate from what rows and queries move it by; `parts` gives the rows, in whole queries.

    Where no item is in two queries, the jackknife's. Else that of clusters of all ways, no less than of any of them nor
    than the jackknife's; clusters are counted among the stratum's own rows. Of several groups, whose fit has counted
    them, by queries and dyads.
    """
    jackknife = _jackknife_variance(changes)
    if clusters_of_pair:
        moved = _moved(parts)
        return Spread(moved.error(np.ones(1), jackknife), clusters_of_pair, moved.recurs)
    queries, total, recurs = 0, 0.0, False
    clusters = list[list[_Clusters]]()
    for rows in parts():
        query, *items = rows.ways
        information = np.where(rows.own, rows.information, 0.0)
        queries, total = queries + _count(query[rows.own]), total + float(rows.information[rows.own].sum())
        recurs |= any(_recurs(way[rows.own], query[rows.own]) for way in items)
        numbers = [np.flatnonzero(np.bincount(way)) for way in items]
        clusters.append(
            [
                _Clusters(n, *(np.bincount(way, each)[n].astype(float) for each in (rows.own, information)))
                for n, way in zip(numbers, items, strict=True)
            ]
        )
    by_way = [
        _Clusters(*map(np.concatenate, zip(*of_way, strict=True))) for of_way in zip(*clusters, strict=True)
    ]
    if not recurs and not any((np.bincount(of_way.number[of_way.own > 0]) > 1).any() for of_way in by_way):
        return Spread(math.sqrt(jackknife), float(queries), False)
    variances = _variances(parts(), [np.bincount(of_way.number) > 1 for of_way in by_way])
    counts, fewest = [queries], float(queries)
    for number, own, of_cluster in by_way:
        mine = own > 0
        counts.append(_count(number[mine]))
        squares = (_sums(number[mine], of_cluster[mine]) / total) ** 2
        fewest = min(fewest, float(squares.sum() ** 2 / (squares**2).sum()))  # effective clusters
    single, crossed = variances[: len(counts)], variances[len(counts) :]
    each = [variance * count / (count - 1) for variance, count in zip(single, counts, strict=True)]
    return Spread(math.sqrt(max(sum(each) + sum(crossed), *each, jackknife)), fewest, True)


class _Clusters(NamedTuple):
    """Clusters of one way in one part of the rows: how many of their rows are the stratum's, and the information of
    these.
    """

    number: Integers
    own: Floats
    information: Floats


def _variances(parts: Iterable[Rows], several: Sequence[Flags]) -> list[float]:
    """Sums of squares of what clusters move: of each way, then of those crossed, the even ones negative.

    `several`: which items are in several parts. Their clusters end with the last part, all others with their own.
    """
    ways = range(1 + len(several))
    crossings = [some for size in range(1, len(ways) + 1) for some in combinations(ways, size)]
    variances = dict.fromkeys(crossings, 0.0)
    later: dict[tuple[int, ...], list[tuple[Integers, Floats]]] = {some: [] for some in crossings}
    for rows in parts:
        numbers = [np.flatnonzero(np.bincount(way)) for way in rows.ways]
        places = [np.searchsorted(number, way) for number, way in zip(numbers, rows.ways, strict=True)]
        for some in crossings:
            sizes = [len(numbers[way]) for way in some]
            joint, sums = _by_cluster(np.ravel_multi_index([places[way] for way in some], sizes), rows.scores)
            if 0 not in some and any(flags.any() for flags in several):
                items = [
                    numbers[way][place]
                    for way, place in zip(some, np.unravel_index(joint, sizes), strict=True)
                ]
                recurs = np.logical_and.reduce(
                    [several[way - 1][item] for way, item in zip(some, items, strict=True)]
                )
                joint = np.ravel_multi_index(items, [len(several[way - 1]) for way in some])
                later[some].append((joint[recurs], sums[recurs]))
                sums = sums[~recurs]
            variances[some] += float((sums**2).sum())
    for some, of_parts in later.items():
        if of_parts:
            _, sums = _by_cluster(*map(np.concatenate, zip(*of_parts, strict=True)))
            variances[some] += float((sums**2).sum())
    return [(-1) ** (len(some) + 1) * variance for some, variance in variances.items()]


def _recurs(way: Integers, queries: Integers) -> bool:
    """Whether any item is in two queries."""
    last = np.zeros(int(way.max(initial=0)) + 1, queries.dtype)
    last[way] = queries
    return bool((last[way] != queries).any())


def _sums(clusters: Integers, values: Floats) -> Floats:
    """Of values of shape (n,) or (n, k), those of each cluster together."""
    return _by_cluster(clusters, values)[1]


def _by_cluster(clusters: Integers, values: Floats) -> tuple[Integers, Floats]:
    """The clusters that there are, ascending, and their sums of values of shape (n,) or (n, k)."""
    if clusters.max(initial=0) < 4 * len(clusters):
        number = np.flatnonzero(np.bincount(clusters))
        place, present = clusters, number
    else:
        number, place = np.unique(clusters, return_inverse=True)
        place, present = place.reshape(-1), np.arange(len(number))
    columns = [np.bincount(place, column)[present] for column in np.atleast_2d(values.T)]
    sums = np.stack(columns, axis=1).astype(float)
    return number, sums if values.ndim > 1 else sums[:, 0]


class Strata(NamedTuple):
    """The figures of one condition: of both strata together, and of each that both groups have items of."""

    pooled: Figure
    strata: Mapping[Stratum, Figure]
    left_out: float

    def outside(self, band: Band = BAND) -> float | None:
        """p that the odds are outside the band: Simes over the figures that there are, of bounds, too."""
        p_values = [each.outside(band) for each in (self.pooled, *self.strata.values())]
        return simes([p for p in p_values if p is not None])

    def parity(self, band: Band = BAND, guard: Band = GUARD, level: float = 0.95) -> tuple[bool, str | None]:
        """Whether this is parity but for the ranker's usefulness, and what keeps it from being known.

        `few_relevant`: a stratum without a figure; `items_left_out`: more than 5 %.
        """
        figures = self.strata.values()
        guard = min(guard[0], band[0]), max(guard[1], band[1])
        if any(figure.reason in ("too_few_comparisons", "too_few_queries") for figure in figures):
            return False, "few_relevant"
        if not self.pooled.within(band, level) or not all(figure.within(guard, level) for figure in figures):
            return False, None
        if not all(band[0] < math.exp(figure.log_odds or 0.0) < band[1] for figure in figures):
            return False, None
        return (False, "items_left_out") if self.left_out > MOST_LEFT_OUT else (True, None)


def simes(p_values: Sequence[float]) -> float | None:
    """Simes's p of all hypotheses at once: the least m·p_(i)/i; None without any."""
    m = len(p_values)
    return min((m * p / rank for rank, p in enumerate(sorted(p_values), 1)), default=None)


def one_way_bound(comparisons: int, level: float) -> float:
    """The odds above which so many independent comparisons with no item ahead at all are too unlikely.

    With a chance μ of one ahead, P(none ahead) = (1 − μ)^k: μ < 1 − ((1 − level)/2)^(1/k).
    """
    missed: float = ((1 - level) / 2) ** (1 / comparisons)
    return (1 - missed) / missed
