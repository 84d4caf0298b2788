"""Several groups in one fit: cases worked by hand, and what any such figures keep to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from math import log, sqrt

import numpy as np
import pytest

from llmfair.stats.significance import benjamini_hochberg, named_groups
from llmfair.stats.strata import (
    Choices,
    Compared,
    Comparisons,
    Figure,
    Stratum,
    change,
    effects,
    figure,
    group_fit,
    pair_counts,
    slots_of_groups,
    together,
)


def comparisons(
    seed: int, betas: Sequence[float], queries: int = 12, items: int = 12, pool: int = 0, window: int = 12
) -> Comparisons:
    """Lists shown whole, in which groups are preferred by these log odds, a third relevant; items of a `pool` recur."""
    rng = np.random.default_rng(seed)
    count = len(betas)
    quality = rng.normal(size=pool or queries * items)
    rows = list[tuple[int, bool, int, int, float, float, float, int, int]]()
    shown = Counter[tuple[int, Stratum]]()
    for number in range(queries):
        numbers = rng.choice(pool, items, replace=False) if pool else number * items + np.arange(items)
        z = np.linspace(-1, 1, items)[rng.permutation(items)]
        taste = [
            betas[i % count] + quality[i] * (pool > 0) - 0.3 * at for i, at in zip(numbers, z, strict=True)
        ]
        taste += rng.gumbel(size=items)
        for a, b in combinations(range(items), 2):
            one, other = sorted((a, b), key=lambda place: int(numbers[place]) % count)
            of_one, of_other = (int(numbers[place]) % count for place in (one, other))
            grade = numbers[one] // count % 3 == 0
            if of_one != of_other and grade == (numbers[other] // count % 3 == 0):
                won = float(taste[one] > taste[other])
                rows.append(
                    (number, grade, numbers[one], numbers[other], won, z[one], z[other], of_one, of_other)
                )
                shown[number, Stratum.RELEVANT if grade else Stratum.IRRELEVANT] += 1
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    slots, groups = np.stack(columns[5:7], axis=1), np.stack(columns[7:], axis=1)
    query, relevant, first, second, ahead = columns[:5]
    return Comparisons(query, relevant, shown, window, first, second, ahead, slots, groups=groups)


def counted(pairs: Comparisons) -> Compared:
    """The same without slots, counted by query."""
    queries = []
    for number in np.unique(pairs.query):
        part = replace(pairs.some(pairs.query == number), window=1)
        shown = {(0, stratum): pairs for (query, stratum), pairs in part.shown.items() if query == number}
        part = replace(part, query=0 * part.query, shown=shown, slots=0 * part.slots)
        queries.append((pair_counts(part, partial(replace, part)), [f"{item}" for item in range(1000)]))
    return together(queries)


def facts(of: Figure) -> tuple[float | None, ...]:
    return of.log_odds, of.error, of.freedom, of.clusters, of.comparisons, of.queries


STRATA = [None, *Stratum]


@pytest.mark.parametrize("stratum", STRATA)
@pytest.mark.parametrize("pool", [0, 40])
def test_pairs_of_two_groups_are_binary(pool: int, stratum: Stratum | None) -> None:
    of_two = comparisons(1, (0.4, 0.0), pool=pool)
    binary = replace(of_two, groups=None)
    for there, back in ((of_two, binary), (counted(of_two), counted(binary))):
        assert facts(figure(there, stratum, (0, 1))) == pytest.approx(facts(figure(back, stratum)), abs=1e-12)
        assert figure(there, stratum, (1, 0)).log_odds == pytest.approx(
            -(figure(back, stratum).log_odds or 0)
        )


def test_odds_by_hand() -> None:
    """A is ahead of B, and B of C, in two of three comparisons, and A of C in four of five: odds of 2, 2 and 4."""
    wins = [(0, 1, 20, 10), (1, 2, 20, 10), (0, 2, 24, 6)]
    rows = [(a, b, ahead) for a, b, won, lost in wins for ahead in [1.0] * won + [0.0] * lost]
    groups, ahead = np.array([row[:2] for row in rows]), np.array([row[2] for row in rows])
    many = len(rows)
    query = np.tile(np.arange(6), many)
    shown = {(number, stratum): many for number in range(6) for stratum in Stratum}
    first, second = np.arange(2 * many * 6).reshape(2, -1)
    hand = Comparisons(
        query, np.ones(many * 6, bool), shown, 1, first, second, ahead.repeat(6), np.zeros((many * 6, 2)),
        groups=groups.repeat(6, axis=0),
    )  # fmt: skip
    for contrast, odds in {(0, 1): 2, (1, 2): 2, (0, 2): 4, (2, 0): 1 / 4}.items():
        assert figure(hand, None, contrast).log_odds == pytest.approx(log(odds))
    of_each = [value.log_odds for value in effects(hand).values()]
    assert of_each == pytest.approx([log(2), 0, -log(2)], abs=1e-9)


@pytest.mark.parametrize("pool", [0, 40])
def test_other_numbers_of_groups_permute_effects(pool: int) -> None:
    there, moved = comparisons(2, (0.5, 0.0, -0.3, 0.1), pool=pool), np.array([2, 0, 3, 1])
    assert there.groups is not None
    back = replace(there, groups=moved[there.groups])
    for pair in combinations(range(4), 2):
        one, other = (
            figure(each, None, pair if each is there else tuple(moved[[*pair]])) for each in (there, back)
        )
        assert facts(one) == pytest.approx(facts(other), abs=1e-9)
    of_each = effects(back)
    for group, value in effects(there).items():
        assert facts(value) == pytest.approx(facts(of_each[int(moved[group])]), abs=1e-9)
    assert sum(value.log_odds or 0 for value in of_each.values()) == pytest.approx(0, abs=1e-8)


def test_items_count_on_whichever_side_they_stand() -> None:
    """The variance from its definition: products of scores that share a query, or an item, not both twice."""
    outcomes = comparisons(3, (0.5, 0.0, -0.3), queries=8, items=9, pool=14)
    value, of_all = figure(outcomes, None, (0, 2)), group_fit(outcomes)
    assert of_all is not None and value.recurs
    (rows,) = of_all.fit.rows()
    scores = rows.scores @ np.linalg.solve(of_all.fit.hessian, of_all.contrast(0, 2))
    query, first, second = rows.ways
    same = query[:, None] == query
    items = (first[:, None] == first) | (second[:, None] == second)
    items |= (first[:, None] == second) | (second[:, None] == first)
    by_query, by_item, both = (float(scores @ each @ scores) for each in (same, items, same & items))
    by_query *= 8 / 7
    expected = max(by_query, by_query + by_item * 14 / 13 - both)
    assert value.error == pytest.approx(sqrt(expected), abs=1e-9)


@pytest.mark.parametrize("pool", [0, 40])
@pytest.mark.parametrize("stratum", STRATA)
def test_counted_pairs_have_the_figures_of_all_comparisons(stratum: Stratum | None, pool: int) -> None:
    every = comparisons(4, (0.5, 0.0, -0.3), items=18, pool=pool)
    plain = replace(every, window=1, slots=0 * every.slots)
    counts = counted(every)
    here, there = (figure(each, stratum, (2, 1)) for each in (counts, plain))
    assert facts(here) == pytest.approx(facts(there), abs=1e-9) and here.recurs is (pool > 0)
    for one, other in zip(effects(counts, stratum).values(), effects(plain, stratum).values(), strict=True):
        assert facts(one) == pytest.approx(facts(other), abs=1e-9)


@pytest.mark.parametrize("pool", [0, 40])
def test_a_change_of_a_contrast_is_that_of_the_same_queries(pool: int) -> None:
    one, other = (comparisons(5, betas, pool=pool) for betas in ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0)))
    fits = [figure(each, None, (0, 1)).fit for each in (one, other, one)]
    assert fits[0] and fits[1] and fits[2]
    moved, alike = change(fits[1], fits[0]), change(fits[0], fits[2])
    assert moved and moved[0] == pytest.approx(fits[1].log_odds - fits[0].log_odds) and moved[1].error > 0
    assert alike and (alike[0], alike[1].error) == pytest.approx((0, 0), abs=1e-9)


def test_a_group_that_is_always_behind_leaves_the_fit_of_the_others_as_it_is() -> None:
    every = comparisons(6, (0.5, 0.0, -0.3, 0.0), items=16)
    assert every.groups is not None
    with_last = (every.groups == 3).any(axis=1)
    behind = replace(every, ahead=np.where(with_last, 1.0, every.ahead))
    without = every.some(~with_last)
    assert facts(figure(behind, None, (0, 1))) == pytest.approx(facts(figure(without, None, (0, 1))))
    bound = figure(behind, None, (3, 0))
    assert bound.always_ahead is False and bound.log_odds is None and (bound.outside() or 1) < 0.01
    values = effects(behind)
    assert values[3].always_ahead is False and values[0].log_odds is not None


def test_choices_of_several_groups() -> None:
    """Choices among two items, one of each of two groups, are comparisons."""
    pairs = comparisons(7, (0.5, 0.0, -0.3), pool=30)
    assert pairs.groups is not None
    won = pairs.ahead[:, None] > 0
    both = np.stack([pairs.first, pairs.second], axis=1)
    item, z, group = (
        np.where(won, each, each[:, ::-1]).reshape(-1) for each in (both, pairs.slots, pairs.groups)
    )
    starts = 2 * np.arange(pairs.size)
    chosen = Choices(pairs.query, pairs.relevant, pairs.shown, 2, starts, item, group == 0, z, groups=group)
    of_pairs, of_choices = (figure(each, None, (0, 2)) for each in (replace(pairs, window=2), chosen))
    assert of_choices.log_odds == pytest.approx(of_pairs.log_odds, abs=1e-9)
    assert (of_choices.queries, of_choices.comparisons) == (of_pairs.queries, of_pairs.comparisons)
    fits = [group_fit(each) for each in (replace(pairs, window=2), chosen)]
    assert fits[0] and fits[1]
    assert fits[0].moved.by_query == pytest.approx(fits[1].moved.by_query, rel=1e-6)


def test_pairs_that_met_too_seldom_have_no_figure() -> None:
    every = comparisons(8, (0.5, 0.0, -0.3))
    assert every.groups is not None
    few = every.some(~((every.groups == (0, 2)).all(axis=1) & (every.query > 3)))
    assert figure(few, None, (0, 2)).reason == "too_few_queries"
    assert figure(few, None, (0, 1)).reason is None


def test_groups_are_named_by_more_than_half_of_their_pairs() -> None:
    pairs = [*combinations("ABCD", 2)]
    assert named_groups({pair: -1 if pair[0] == "A" else 0 for pair in pairs}) == (["A"], [])
    assert named_groups({pair: 1 if pair[1] == "D" else 0 for pair in pairs}) == (["D"], [])
    assert named_groups({pair: 1 if pair == ("A", "B") else 0 for pair in pairs}) == ([], [])
    assert named_groups({("A", "C"): 1, ("B", "C"): 0}) == ([], ["A"])


def test_benjamini_hochberg_by_hand() -> None:
    assert benjamini_hochberg([0.03, None, 0.01, 0.5, 0.04]) == pytest.approx(
        [0.16 / 3, None, 0.04, 0.5, 0.16 / 3]
    )


def test_a_change_from_two_groups_alone_has_a_size() -> None:
    every = comparisons(3, (0.5, 0.0, -0.3, 0.1), pool=40, items=16)
    assert every.groups is not None
    of_two = every.some(np.flatnonzero((every.groups < 2).all(axis=1)))
    fits = [figure(each, None, (0, 1)).fit for each in (every, of_two)]
    assert fits[0] and fits[1]
    moved = change(fits[0], fits[1])
    assert moved and moved[0] == pytest.approx(fits[0].log_odds - fits[1].log_odds) and moved[1].error > 0


def test_slots_hang_on_no_pair_of_groups() -> None:
    every = comparisons(8, (0.5, 0.0, -0.3))
    assert every.groups is not None
    few = every.some(~((every.groups == (0, 1)).all(axis=1) & (every.query > 3)))
    of_all = group_fit(few)
    value = slots_of_groups(few)
    assert of_all and figure(few, None, (0, 1)).log_odds is None
    assert value.log_odds == pytest.approx(float(of_all.fit.coefficients @ of_all.fit.first_slot), abs=1e-9)
    assert value.error and (value.queries, value.freedom) == (12, 11)
