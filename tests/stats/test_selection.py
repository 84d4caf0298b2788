"""Rates and impact ratios of groups on arrays: hand-worked, their variance, chance, and attainable ranges."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import kstest, t

from llmfair.stats.selection import (
    Entries,
    by_chance,
    impact_ratios,
    least_attainable,
    least_over_greatest,
    normalised_kl,
    normalised_kl_range,
    p_of_least,
    selection_rates,
)

Floats = NDArray[np.float64]


def first(k: int, size: int) -> Floats:
    """What ranks give where the first k are selected."""
    return (np.arange(size) < k).astype(float)


def drawn(
    rng: np.random.Generator, people: int, queries: int, weights: Floats, groups: int, grades: int = 1
) -> Entries:
    """Lists of people who recur, ranked by grade, a merit of their own and noise; labels say nothing."""
    merit, size = rng.normal(size=people), len(weights)
    label, grade = np.arange(people) % groups, rng.integers(grades, size=people)
    lists = [rng.choice(people, size, replace=False) for _ in range(queries)]
    ranks = [np.argsort(np.argsort(-(merit + grade)[of] - rng.normal(size=size))) for of in lists]
    held, person = np.unique(np.concatenate(lists), return_inverse=True)
    query, got = np.repeat(np.arange(queries), size), weights[np.concatenate(ranks)]
    return Entries(got, label[held][person], query, person, groups, grade[held][person])


def of_counts(*counts: tuple[int, int], lists: int = 10) -> Entries:
    """Lists alike, with so many people and so many selected of each group; nobody is in two."""
    group = np.repeat(np.arange(len(counts)), [people for people, _ in counts])
    amount = np.concatenate([first(selected, people) for people, selected in counts])
    query, person = np.repeat(np.arange(lists), len(group)), np.arange(lists * len(group))
    return Entries(np.tile(amount, lists), np.tile(group, lists), query, person, len(counts))


# The example in the README of aedt-audit 0.3: people, selected and impact ratio of those that set the bar.
PUBLISHED = [
    [(2441, 510, 0.544), (2409, 925, 1.0)],
    [
        (154, 43, 0.741),
        (600, 188, 0.831),
        (681, 195, 0.759),
        (933, 272, 0.773),
        (244, 92, 1.0),
        (2293, 682, 0.789),
    ],
]


@pytest.mark.parametrize("groups", PUBLISHED)
def test_ratios_are_those_of_a_published_example(groups: list[tuple[int, int, float]]) -> None:
    ratios = impact_ratios(of_counts(*((people, selected) for people, selected, _ in groups), lists=1))
    assert [ratio.value for ratio in ratios] == pytest.approx([ratio for _, _, ratio in groups], abs=5e-4)


def test_rates_and_ratios_by_hand() -> None:
    entries = of_counts((4, 2), (10, 2), (5, 0))
    assert [rate.value for rate in selection_rates(entries)] == [0.5, 0.2, 0.0]
    ratios = impact_ratios(entries)
    assert [ratio.value for ratio in ratios] == [1.0, pytest.approx(0.4), 0.0]
    assert (ratios[2].low, ratios[2].reason) == (None, "none_selected")
    fixed = impact_ratios(entries, reference=1)
    assert [ratio.value for ratio in fixed] == [pytest.approx(2.5), 1.0, 0.0]
    assert fixed[1].reason == "reference"


def test_the_interval_is_that_of_the_two_way_variance() -> None:
    entries = drawn(np.random.default_rng(3), 40, 12, first(5, 15), groups=3)
    rates, people = entries.rates, entries.person
    for g, ratio in enumerate(impact_ratios(entries)):
        lows, highs = [], []
        for h in {0, 1, 2} - {g}:
            sign = (entries.group == g) * 1.0 / entries.amounts[g] - (entries.group == h) / entries.amounts[h]
            u = sign * (entries.amount - rates[entries.group])
            some = np.isin(entries.group, (g, h))
            by = [
                (len(np.unique(way[some])), sum(u[way == each].sum() ** 2 for each in np.unique(way)))
                for way in (entries.query, people)
            ]
            query, person = (total * n / (n - 1) for n, total in by)
            s = max(query, query + person - float(u @ u)) ** 0.5
            ways = [way[entries.group == each] for each in (g, h) for way in (entries.query, people)]
            b, freedom = np.log(rates[g] / rates[h]), min(len(np.unique(way)) for way in ways) - 1
            lows.append(b - t.ppf(0.975, freedom) * s)
            highs.append(b + t.ppf(1 - 0.025 / 2, freedom) * s)
        assert ratio.low == pytest.approx(np.exp(min(lows)))
        assert ratio.high == pytest.approx(np.exp(min(0, *highs)))
        assert ratio.p_adjusted is not None and ratio.p is not None
        assert ratio.p_adjusted >= ratio.p


def test_swapped_labels_permute_the_ratios() -> None:
    entries = drawn(np.random.default_rng(4), 50, 10, first(6, 20), groups=4)
    order = np.array([2, 0, 3, 1])
    swapped = Entries(entries.amount, order[entries.group], entries.query, entries.person, 4)
    for g, ratio in enumerate(impact_ratios(entries)):
        other = impact_ratios(swapped)[order[g]]
        assert (other.value, other.low, other.high) == pytest.approx((ratio.value, ratio.low, ratio.high))


def test_no_interval_of_few_lists_and_of_one_group() -> None:
    few = drawn(np.random.default_rng(5), 20, 4, first(3, 10), groups=2)
    assert {ratio.reason for ratio in impact_ratios(few)} == {"too_few_queries"}
    assert [ratio.reason for ratio in impact_ratios(of_counts((4, 2), (0, 0)))] == ["one_group", "no_one"]
    none = impact_ratios(of_counts((4, 2), (3, 0)))
    assert [ratio.reason for ratio in none] == ["no_other_selected", "none_selected"]
    assert {ratio.reason for ratio in impact_ratios(of_counts((4, 0), (3, 0)))} == {"none_selected"}


def test_a_group_of_one_list_leaves_the_others_their_intervals() -> None:
    of = of_counts((4, 2), (4, 1))
    query, person = np.append(of.query, 0), np.append(of.person, of.person.max() + 1)
    once = Entries(np.append(of.amount, 1.0), np.append(of.group, 2), query, person, 3)
    assert selection_rates(once)[2].reason == impact_ratios(once)[2].reason == "too_few_queries"
    assert impact_ratios(once)[1].low is not None


def test_a_count_of_zero_leaves_the_other_ratios_their_intervals() -> None:
    ratios = impact_ratios(drawn(np.random.default_rng(6), 40, 8, first(6, 20), groups=3))
    assert all(ratio.low is not None for ratio in ratios)
    low, none = impact_ratios(of_counts((4, 2), (4, 1), (4, 0)))[1:]
    assert low.value == 0.5 and low.high is not None and none.high is None


def test_only_a_ratio_that_is_surely_below_four_fifths_is_said_to_be() -> None:
    ratios = impact_ratios(of_counts((10, 5), (10, 4), (10, 2)))
    p_values = [ratio.p_adjusted for ratio in ratios]
    assert p_values[0] == p_values[1] == 1 and p_values[2] is not None and p_values[2] < 0.001
    all_selected = impact_ratios(of_counts((4, 4), (3, 3)))[1]
    assert (all_selected.low, all_selected.high, all_selected.p) == (1, 1, 1)


def test_four_fair_groups_are_apart_by_chance_alone() -> None:
    entries = drawn(np.random.default_rng(7), 10_000, 20, first(10, 30), groups=4)
    chance = by_chance(entries, np.random.default_rng(0))
    # the range of four normal logarithms, each of sd √((1 − 1/3)/50), is 2.06 sd on average
    assert chance.mean() == pytest.approx(np.exp(-2.06 * np.sqrt(2 / 3 / 50)), abs=0.01)
    alone = np.arange(entries.person.max() + 1)
    # who has nobody to change labels with keeps theirs
    assert set(by_chance(entries, np.random.default_rng(0), 9, alone)) == {least_over_greatest(entries)}


def test_permutation_p_are_uniform_where_people_recur() -> None:
    def p_value(seed: int) -> float:
        rng = np.random.default_rng(seed)
        entries = drawn(rng, 60, 8, 1 / np.log1p(np.arange(1, 16)), groups=4, grades=3)
        least = least_over_greatest(entries)
        assert least is not None
        return p_of_least(least, by_chance(entries, rng, 99, entries.strata))

    p_values = np.array([p_value(seed) for seed in range(500)])
    # p have steps of one in a hundred
    assert kstest(p_values - np.random.default_rng(0).random(500) / 100, "uniform").pvalue > 0.01


@pytest.mark.parametrize("counts", [(3, 5), (2, 3, 3), (1, 2, 2, 2)])
def test_the_range_of_ndkl_is_that_of_all_orders(counts: tuple[int, ...]) -> None:
    codes, target = np.repeat(np.arange(len(counts)), counts), np.array(counts) / sum(counts)
    for k in (None, 3):
        every = {
            order: normalised_kl(np.array(order), target, k) for order in set(permutations(codes.tolist()))
        }
        assert normalised_kl_range(counts, tuple(target.tolist()), k) == pytest.approx(
            (min(every.values()), max(every.values()))  # type: ignore[type-var]
        )


def test_ndkl_by_hand() -> None:
    # A B, even target: KL of (1, 0) is ln 2, of (½, ½) 0; weights 1 and 1/log2 3
    expected = np.log(2) / (1 + 1 / np.log2(3))
    assert normalised_kl(np.array([0, 1]), np.array([0.5, 0.5])) == pytest.approx(expected)
    # an item without a group keeps its rank
    later = np.log(2) / np.log2(3) / (1 / np.log2(3) + 1 / 2)
    assert normalised_kl(np.array([-1, 0, 1]), np.array([0.5, 0.5])) == pytest.approx(later)


def test_the_least_ratio_is_that_of_all_orders() -> None:
    first, second = [0, 0, 1, 2, 2], [0, 1, 1, 2]
    weights = [np.array([1.0, 0.7, 0.5, 0.4, 0.3]), np.array([1.0, 0.5, 0.5, 0.1])]
    people = np.array([3, 3, 3])
    least = np.full(3, np.inf)
    for one in set(permutations(first)):
        for other in set(permutations(second)):
            got = np.bincount(one, weights[0], 3) + np.bincount(other, weights[1], 3)
            least = np.minimum(least, got / people / (got / people).max())
    counts = [np.bincount(each, minlength=3) for each in (first, second)]
    assert least_attainable(weights, counts) == pytest.approx(least)
