"""Any number of groups over lists: their rates, impact ratios with intervals, and what chance or an order can do.

An amount is what a person got in a list: selected or not, or the share of attention. A group's rate is the amount of
its people over their number, in all lists together. Sources: 6 RCNY 5-301 (rates, impact ratios), 29 CFR 1607.4(D)
(four fifths), Cameron, Gelbach & Miller 2011 (variance by two ways), Geyik, Ambler & Kenthapadi 2019 (NDKL).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import comb, exp, inf, log

import numpy as np
from numpy.typing import NDArray

from llmfair.stats.intervals import FEWEST_QUERIES, Estimate, t_quantile
from llmfair.stats.significance import TIE, holm

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

FOUR_FIFTHS = 0.8
"""The ratio that 29 CFR 1607.4(D) speaks of; Local Law 144 sets none."""
DRAWS = 1000
MOST_STATES = 2_000
"""Up to so many ways to fill a page by groups a range is found among all of them."""


@dataclass(frozen=True, eq=False)
class Entries:
    """What people got in lists, an entry for a person in a list; every array has shape (entries,).

    `group`, `query` and `person` are codes 0, 1, …; all entries have a group, one of `groups` in number. A person has
    one group in all lists. `grade` is needed for `strata` alone.
    """

    amount: Floats
    group: Codes
    query: Codes
    person: Codes
    groups: int
    grade: Codes | None = None

    @cached_property
    def people(self) -> Floats:
        """How many entries each group has; shape (groups,)."""
        return np.bincount(self.group, minlength=self.groups).astype(float)

    @cached_property
    def amounts(self) -> Floats:
        """What each group got in all; shape (groups,)."""
        return np.bincount(self.group, self.amount, self.groups).astype(float)

    @cached_property
    def rates(self) -> Floats:
        """The amount of each group over its entries, NaN of a group without any; shape (groups,)."""
        with np.errstate(invalid="ignore"):
            return self.amounts / self.people

    @cached_property
    def queries(self) -> int:
        """How many lists there are."""
        return len(np.unique(self.query))

    @cached_property
    def strata(self) -> Codes:
        """Who may change labels with whom, by person: those of one grade and the same single list, and of people in
        several lists those whose highest grade is the same; shape (people,)."""
        assert self.grade is not None
        count = int(self.person.max()) + 1
        grade, query = np.full(count, np.iinfo(np.intp).min), np.full(count, -1)
        np.maximum.at(grade, self.person, self.grade)
        query[self.person] = self.query
        query[np.bincount(self.person, minlength=count) > 1] = -1
        return np.unique(np.stack([query, grade]), axis=1, return_inverse=True)[1].ravel()


def _spread(entries: Entries) -> tuple[Floats, Floats]:
    """Errors of ln rate_g − ln rate_h, on the diagonal of ln rate_g, and degrees of freedom; shape (groups, groups).

    By query and person: V_query + V_person − V_both, at least V_query; t on the fewest of either group less one.
    """
    amounts, rates = entries.amounts[entries.group], entries.rates[entries.group]
    parts = np.divide(entries.amount - rates, amounts, out=np.zeros(len(amounts)), where=amounts > 0)
    variances, numbers = [], []
    for clusters in (entries.query, entries.person):
        _, codes = np.unique(clusters, return_inverse=True)
        count = int(codes.max()) + 1
        place = codes * entries.groups + entries.group
        sums = np.bincount(place, parts, count * entries.groups).reshape(count, -1).astype(float)
        held = np.bincount(place, minlength=count * entries.groups).reshape(count, -1) > 0
        either = held.astype(float).sum(axis=0)
        number = np.add.outer(either, either) - held.T.astype(float) @ held
        variances.append(_of_differences(sums.T @ sums) * number / np.maximum(number - 1, 1))
        numbers.append(either)
    both = _of_differences(np.diag(np.bincount(entries.group, parts**2, entries.groups).astype(float)))
    variance = np.maximum(variances[0], variances[0] + variances[1] - both)
    fewest = np.minimum(*numbers)
    return np.sqrt(np.maximum(variance, 0)), np.minimum.outer(fewest, fewest) - 1


def _of_differences(products: Floats) -> Floats:
    """Variances of x_g − x_h from the products x_g x_h, and on the diagonal of x_g."""
    squares = np.diag(products)
    return np.add.outer(squares, squares) - 2 * products + np.diag(squares)


def selection_rates(entries: Entries, level: float = 0.95) -> list[Estimate]:
    """Every group's rate with its t interval on the log scale; no interval where nobody got anything."""
    errors, freedoms = (of.diagonal().tolist() for of in _spread(entries))
    rates, n = list[Estimate](), entries.queries
    for rate, people, error, freedom in zip(entries.rates, entries.people, errors, freedoms, strict=True):
        if not people:
            rates.append(Estimate(None, None, None, n, "no_one"))
        elif not rate or n < FEWEST_QUERIES or freedom < 1:
            rates.append(Estimate(float(rate), None, None, n, "too_few_queries" if rate else "none_selected"))
        else:
            half = error * t_quantile(freedom, level)
            low, high = float(rate) * exp(-half), min(1.0, float(rate) * exp(half))
            rates.append(Estimate(float(rate), low, high, n, error=error))
    return rates


def impact_ratios(entries: Entries, reference: int | None = None, level: float = 0.95) -> list[Estimate]:
    """Every group's rate over the highest group's, r_g, or over that of a fixed `reference`.

    For h ≠ g: b_gh = ln(rate_g / rate_h), with error s_gh by query and person. r_g is the least of e^b and 1, so its
    interval holds whichever group is highest: lower = min_h(b − t s) at level, upper = min(0, min_h(b + t s)) with
    each t at 1 − (1 − level)/2/(groups − 1). Over a reference the interval is the plain one of b. A group whose
    count is 0, or that is in one list alone, has no interval, and bounds no other one's. p is one-sided, of a ratio of
    at least four fifths, and adjusted for all groups (Holm).
    """
    from scipy.special import stdtr, stdtrit

    (errors, freedoms), rates, tail = _spread(entries), entries.rates, (1 - level) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.subtract.outer(np.log(rates), np.log(rates))
    there = np.flatnonzero(entries.people > 0).tolist()
    highest = np.nanmax(rates) if reference is None else rates[reference]
    ratios = list[Estimate]()
    for group in range(entries.groups):
        others = [h for h in there if h != group] if reference is None else [reference]
        value = float(rates[group] / highest) if entries.people[group] and highest > 0 else None
        if reason := _no_interval(entries, group, others, freedoms, reference):
            ratios.append(Estimate(value, None, None, entries.queries, reason))
            continue
        counted = [h for h in others if entries.amounts[h] > 0 and freedoms[group, h] > 0]
        b, s, freedom = (of[group, counted] for of in (apart, errors, freedoms))
        low = float((b - stdtrit(freedom, 1 - tail) * s).min())
        high = float((b + stdtrit(freedom, 1 - tail / len(others)) * s).min())
        if reference is None:
            low, high = min(0.0, low), min(0.0, high)
        above = b - log(FOUR_FIFTHS)
        beyond = np.divide(above, s, out=np.where(above < 0, -inf, inf), where=s > 0)
        p = min(1.0, len(others) * float(stdtr(freedom, beyond).min()))
        ratios.append(Estimate(value, exp(low), exp(high), entries.queries, error=float(s[b.argmin()]), p=p))
    adjusted = holm([ratio.p for ratio in ratios])
    return [replace(ratio, p_adjusted=p) for ratio, p in zip(ratios, adjusted, strict=True)]


def _no_interval(
    entries: Entries, group: int, others: Sequence[int], freedoms: Floats, reference: int | None
) -> str | None:
    """Why the ratio of a group has no interval, if it has none."""
    if not entries.people[group]:
        return "no_one"
    if reference is not None and not entries.amounts[reference]:
        return "reference_not_selected"
    if not entries.amounts[group]:
        return "none_selected"
    if group == reference:
        return "reference"
    if not others:
        return "one_group"
    counted = [h for h in others if entries.amounts[h] > 0]
    if not counted:
        return "no_other_selected"
    few = entries.queries < FEWEST_QUERIES or not (freedoms[group, counted] > 0).any()
    return "too_few_queries" if few else None


def least_over_greatest(entries: Entries) -> float | None:
    """The least rate over the greatest; None with fewer than two groups, or where nobody got anything."""
    rates = entries.rates[entries.people > 0]
    return float(rates.min() / rates.max()) if len(rates) > 1 and rates.max() > 0 else None


def by_chance(
    entries: Entries, rng: np.random.Generator, draws: int = DRAWS, strata: Codes | None = None
) -> Floats:
    """The least rate over the greatest when labels are dealt at random, one a person over all lists; shape (draws,).

    Within `strata`, shape (people,), if given. Groups keep their numbers of people.
    """
    count = int(entries.person.max()) + 1
    amount = np.bincount(entries.person, entries.amount, count)
    lists = np.bincount(entries.person, minlength=count).astype(float)
    stratum = np.zeros(count, np.intp) if strata is None else strata
    labels = np.zeros(count, np.intp)
    labels[entries.person] = entries.group
    there, order = entries.people > 0, np.argsort(stratum, kind="stable")
    dealt, least = np.empty_like(labels), np.empty(draws)
    for draw in range(draws):
        dealt[np.lexsort((rng.random(count), stratum))] = labels[order]
        sums, people = (np.bincount(dealt, of, entries.groups)[there] for of in (amount, lists))
        rates = sums / people
        least[draw] = rates.min() / rates.max()
    return least


def p_of_least(least: float, chance: Floats) -> float:
    """The one-sided p of a ratio as small as this one, from the draws of `by_chance`."""
    return (1 + int(np.count_nonzero(chance <= least + TIE))) / (len(chance) + 1)


# What orders of the lists at hand can come to.


def least_attainable(weights: Sequence[Floats], counts: Sequence[Codes]) -> Floats:
    """The least ratio of each group to the highest one that any orders of these lists have; shape (groups,).

    `weights`: what each rank of a list gives, falling, shape (n,); `counts`: items of each group in it. Exact: the
    group stands last in all lists and the highest one first, which of them leaves the least ratio. NaN of a group
    without items, and of all where no rank gives anything.
    """
    sums = [np.concatenate([[0.0], np.cumsum(of)]) for of in weights]
    people = np.sum(counts, axis=0)
    first = np.sum([of[held] for of, held in zip(sums, counts, strict=True)], axis=0)
    last = np.sum([of[-1] - of[len(of) - 1 - held] for of, held in zip(sums, counts, strict=True)], axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.divide.outer(last / people, first / people)
    np.fill_diagonal(ratios, 1.0)
    ratios[:, people == 0] = np.nan
    ratios[people == 0] = np.nan
    return np.array([np.nan if np.isnan(of).all() else np.nanmin(of) for of in ratios])


def normalised_kl(order: Codes, target: Floats, k: int | None = None) -> float | None:
    """NDKL of a list: Σ_i KL(shares of the first i ‖ target) / log2(i + 1) over Σ_i 1/log2(i + 1), i = 1..k, in nats.

    `order` are codes of groups, best first, -1 for none: such an item keeps its rank and has no share. Ranks before
    the first item with a group are left out; None without any. Source: Geyik et al. 2019.
    """
    held = np.cumsum(order[:k, None] == np.arange(len(target)), axis=0)
    weights = 1 / np.log2(np.arange(len(held)) + 2)
    seen = held.any(axis=1)
    return (
        float(weights[seen] @ _divergences(held[seen], target) / weights[seen].sum()) if seen.any() else None
    )


def _divergences(pages: Codes, target: Floats) -> Floats:
    """KL of each page's shares and the target, in nats, of counts of shape (pages, groups), none of them all 0."""
    shares = pages / pages.sum(axis=1, keepdims=True)
    divergences: Floats = (
        shares * np.log(np.divide(shares, target, out=np.ones(shares.shape), where=shares > 0))
    ).sum(axis=1)
    return divergences


@lru_cache(maxsize=1024)
def normalised_kl_range(
    counts: tuple[int, ...], target: tuple[float, ...], k: int | None
) -> tuple[float, float]:
    """The least and the greatest NDKL of all orders of a list with these items of each group, first k.

    Exact, by the counts that a page can have at each rank, where these are not too many; else what the orders reach
    that put next whichever group gives the least, or the most.
    """
    k = min(sum(counts), k or sum(counts))
    exact = comb(k + len(counts) - 1, len(counts) - 1) <= MOST_STATES
    weights, ends = 1 / np.log2(np.arange(k) + 2), list[float]()
    for sign in (1, -1):
        reached = {(0,) * len(counts): 0.0}
        for weight in weights:
            before = dict[tuple[int, ...], float]()
            for page, total in reached.items():
                for group, (held, there) in enumerate(zip(page, counts, strict=True)):
                    if held < there:
                        grown = (*page[:group], held + 1, *page[group + 1 :])
                        before[grown] = min(total, before.get(grown, inf))
            steps = sign * weight * _divergences(np.array([*before]), np.array(target))
            totals = (np.array([*before.values()]) + steps).tolist()
            reached = dict(zip(before, totals, strict=True))
            if not exact:
                reached = dict([min(reached.items(), key=lambda each: each[1])])
        ends.append(sign * min(reached.values()) / float(weights.sum()))
    return ends[0], ends[1]
