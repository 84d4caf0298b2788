"""Preference odds by strata: known answers from raw windows, and what any such figure keeps to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from llmfair.metrics.base import QueryComparisons
from llmfair.stats.strata import (
    Choices,
    Comparisons,
    Figure,
    PairCounts,
    Strata,
    Stratum,
    change,
    figure,
    fitted,
    null_scores,
    pair_counts,
    simes,
    together,
)
from tests.metrics.test_preference import odds_of, of_vector
from tests.shared import vectors

NAMES = {"pooled": None, "irrelevant": Stratum.IRRELEVANT, "relevant": Stratum.RELEVANT}


def compared(queries: Sequence[Mapping[str, Any]]) -> tuple[Comparisons, float]:
    """The comparisons in raw windows, and the share of items that answers leave out."""
    values = odds_of([of_vector(query) for query in queries])
    comparisons = together([(v.outcomes, v.doc_ids) for v in values if isinstance(v, QueryComparisons)])
    assert isinstance(comparisons, Comparisons)
    windows = [part for query in queries for chain in query["chains"] for part in chain["windows"]]
    read = [part for part in windows if part["answer"] is not None]
    named, asked = (sum(len(part[of]) for part in read) for of in ("answer", "shown"))
    return comparisons, 1 - named / asked


def strata_of(comparisons: Comparisons, left_out: float = 0.0) -> Strata:
    figures = {stratum: figure(comparisons, stratum) for stratum in Stratum}
    return Strata(figure(comparisons), figures, left_out)


def status(value: Figure) -> str:
    if value.reason is None:
        return "figure"
    return "bound" if value.reason == "always_one_way" else "no figure"


def test_known_answers() -> None:
    for case in vectors("preference_odds_strata")["cases"]:
        comparisons, left_out = compared(case["input"]["queries"])
        expected = case["expected"]
        for name, known in expected["figures"].items():
            where, value = (case["id"], name), figure(comparisons, NAMES[name])
            assert (value.comparisons, value.queries) == (known["comparisons"], known["queries"]), where
            assert status(value) == known["status"], where
            if known["status"] == "bound":
                assert value.always_ahead is (known["bound"] == "at least"), where
                assert value.outside() == pytest.approx(known["p_outside"], rel=1e-7), where
            elif known["status"] == "figure":
                assert value.log_odds is not None and value.error is not None
                assert (value.recurs, value.fit is not None and value.fit.powers + value.fit.sign) == (
                    known["recurs"],
                    known["slot_columns"],
                ), where
                assert value.few_items is known.get("few_items", False), where
                figures = (
                    math.exp(value.log_odds),
                    value.freedom,
                    *(value.interval() or ()),
                    value.outside(),
                )
                names = "odds", "df", "low", "high", "p_outside"
                assert figures == pytest.approx([known[each] for each in names], rel=1e-7), where
                assert value.error == pytest.approx(known["se"], rel=1e-6), where
        strata = strata_of(comparisons, left_out)
        assert strata.left_out == pytest.approx(expected["left_out"]), case["id"]
        assert strata.outside() == pytest.approx(expected["simes_outside"], rel=1e-7), case["id"]
        assert strata.parity() == (expected["within_but_for_usefulness"], expected["reason"]), case["id"]


def lists(
    seed: int,
    odds: tuple[float, float] = (1.0, 1.0),
    queries: int = 44,
    items: int = 40,
    relevant: int = 12,
    window: int = 20,
    pool: int = 0,
) -> tuple[Comparisons, float]:
    """Lists of a ranker of these odds among irrelevant and relevant items, shown in parts that share no item.

    `pool`: items recur, from so many, with a quality of their own.
    """
    rng = np.random.default_rng(seed)
    quality = rng.standard_t(2, pool) if pool else None
    groups, grades = rng.permutation(pool) % 2, rng.random(pool) < relevant / items
    documents = []
    for number in range(queries):
        if quality is None:
            chosen = [(f"{number}.{i}", i % 2, i < relevant, 0.0) for i in range(items)]
        else:
            places = rng.choice(pool, items, replace=False)
            chosen = [(f"{i}", int(groups[i]), bool(grades[i]), float(quality[i])) for i in places]
        sides = {name: "protected" if female else "unprotected" for name, female, *_ in chosen}
        known = {name: (female, grade, own) for name, female, grade, own in chosen}
        windows = []
        order = [chosen[i][0] for i in rng.permutation(items)]
        for start in range(0, items, window):
            shown = order[start : start + window]
            tastes = {}
            for name in shown:
                female, grade, own = known[name]
                tastes[name] = 1.5 * grade + own + rng.gumbel() + female * math.log(odds[grade])
            answer = sorted(shown, key=tastes.__getitem__, reverse=True)
            windows.append({"shown": shown, "answer": answer})
        grades_of = {name: int(grade) for name, (_, grade, _) in known.items()}
        chains = [{"order": 0, "windows": windows}]
        documents.append({"query_id": f"{number}", "side": sides, "grade": grades_of, "chains": chains})
    return compared(documents)


def swapped(comparisons: Comparisons) -> Comparisons:
    return replace(
        comparisons,
        first=comparisons.second,
        second=comparisons.first,
        ahead=1 - comparisons.ahead,
        slots=comparisons.slots[:, ::-1],
    )


@pytest.mark.parametrize("pool", [0, 60])
@pytest.mark.parametrize("stratum", NAMES.values())
def test_swapping_the_groups_inverts_the_odds(stratum: Stratum | None, pool: int) -> None:
    comparisons, _ = lists(1, (0.7, 0.5), pool=pool)
    there, back = figure(comparisons, stratum), figure(swapped(comparisons), stratum)
    assert there.log_odds == pytest.approx(-(back.log_odds or 0), rel=1e-8)
    assert (there.error, there.outside()) == pytest.approx((back.error, back.outside()))


def test_neither_numbers_of_items_nor_the_order_of_rows_matter() -> None:
    comparisons, _ = lists(2, pool=60)
    order = np.random.default_rng(0).permutation(len(comparisons.query))
    moved = comparisons.some(order)
    moved = replace(moved, first=10_000 - moved.first, second=10_000 - moved.second)
    there, back = figure(comparisons), figure(moved)
    assert (there.log_odds, there.error) == pytest.approx((back.log_odds, back.error))


def test_relevant_items_alone_at_a_disadvantage_are_no_parity() -> None:
    strata = strata_of(*lists(3, (1.0, 0.1), items=60, relevant=6, window=60))
    assert strata.pooled.within(), "the pooled figure is in the band"
    assert (strata.outside() or 1) < 0.001
    assert not strata.parity()[0]
    assert math.exp(strata.strata[Stratum.RELEVANT].log_odds or 0) < 0.4


@pytest.mark.whole
@pytest.mark.parametrize(("pool", "most"), [(0, 0.09), (60, 0.12)])
def test_nine_in_ten_intervals_and_more_hold_a_fair_rankers_odds(pool: int, most: float) -> None:
    missed = 0
    for seed in range(50):
        limits = figure(lists(seed, pool=pool, items=20, window=20, relevant=6)[0]).interval()
        missed += limits is None or not limits[0] < 1 < limits[1]
    assert missed / 50 <= most


def choices(seed: int, queries: int, sizes: tuple[int, int], beta: float = 0.5) -> Choices:
    """Choices of the best of so many items, by a ranker that prefers the first group and late slots."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[int, bool, float]] = []
    starts, query = list[int](), list[int]()
    for number in range(queries):
        for _ in range(12):
            items = int(rng.integers(*sizes))
            groups, z = rng.permutation(items) % 2 == 0, np.linspace(-1, 1, items)[rng.permutation(items)]
            best = int(np.argmax(beta * groups + 0.4 * z + rng.gumbel(size=items)))
            query.append(number)
            starts.append(len(rows))
            order = [best, *(place for place in range(items) if place != best)]
            rows += [(len(rows) + place, bool(groups[place]), float(z[place])) for place in order]
    shown = {(number, Stratum.RELEVANT): 12 for number in range(queries)}
    item, of_first, slots = (np.array(column) for column in zip(*rows, strict=True))
    relevant = np.ones(len(query), bool)
    return Choices(np.array(query), relevant, shown, sizes[1] - 1, np.array(starts), item, of_first, slots)


def test_choices_among_two_are_comparisons() -> None:
    chosen = choices(5, 8, (2, 3))
    items, z = chosen.item.reshape(-1, 2), chosen.slots.reshape(-1, 2)
    won = chosen.ahead[:, None] > 0
    items, z = np.where(won, items, items[:, ::-1]), np.where(won, z, z[:, ::-1])
    first, second = items.T
    pairs = Comparisons(chosen.query, chosen.relevant, chosen.shown, 2, first, second, chosen.ahead, z)
    of_pairs, of_choices = figure(pairs), figure(chosen)
    assert of_pairs.fit is not None and of_choices.fit is not None
    assert of_choices.log_odds == pytest.approx(of_pairs.log_odds, abs=1e-9)
    assert of_choices.error == pytest.approx(of_pairs.error, rel=1e-7)
    nulls = [null_scores(outcomes, None, of_pairs.fit) for outcomes in (pairs, chosen)]
    assert nulls[0] == pytest.approx(nulls[1], abs=1e-9)


def test_it_maximises_the_likelihood_of_the_choices() -> None:
    outcomes = choices(4, 9, (3, 6))
    fit = fitted(outcomes, outcomes.weights(None))
    assert fit is not None and (fit.powers, fit.sign) == (4, False)
    design = outcomes.design([outcomes.of(None)], 4, False)

    def unlikely(coefficients: Any) -> float:
        sets = np.split(design @ coefficients, outcomes.starts[1:])
        return float(sum(np.log(np.exp(logs).sum()) - logs[0] for logs in sets))

    least = minimize(unlikely, np.zeros(5), method="BFGS", options={"gtol": 1e-9})
    assert fit.coefficients == pytest.approx(least.x, abs=1e-5)


def test_items_that_recur_among_choices_widen_the_interval() -> None:
    once = choices(6, 20, (4, 7))
    recurring = replace(once, item=once.item % 7 * 2 + once.of_first)
    there, back = figure(once), figure(recurring)
    assert there.log_odds == back.log_odds and back.recurs and not there.recurs
    assert (back.error or 0) >= (there.error or 0)


@pytest.mark.parametrize("pool", [0, 60])
def test_a_change_is_that_of_the_same_queries(pool: int) -> None:
    comparisons, _ = lists(1, (0.7, 0.5), pool=pool)
    one, other = figure(comparisons).fit, figure(swapped(swapped(comparisons))).fit
    assert one is not None and other is not None
    difference, spread = change(one, other) or (1.0, None)
    assert difference == 0 and spread is not None and spread.error == pytest.approx(0, abs=1e-9)
    few = figure(comparisons.some(comparisons.query > 0)).fit
    assert few is not None and change(one, few) is None


def counted(comparisons: Comparisons) -> tuple[PairCounts, Comparisons]:
    """The same comparisons without slots: counted by query and stratum, and all of them."""
    plain = replace(comparisons, window=1)
    queries = []
    for number in np.unique(plain.query):
        part = plain.some(plain.query == number)
        shown = {(0, stratum): pairs for (query, stratum), pairs in plain.shown.items() if query == number}
        part = replace(part, query=0 * part.query, shown=shown)
        counts = pair_counts(part, lambda part=part: part)  # type: ignore[misc]
        queries.append((counts, [str(item) for item in range(10_000)]))
    joined = together(queries)
    assert isinstance(joined, PairCounts)
    return joined, plain


@pytest.mark.parametrize("stratum", NAMES.values())
@pytest.mark.parametrize(("pool", "items", "relevant"), [(0, 20, 6), (60, 20, 6), (400, 20, 6), (60, 12, 4)])
def test_counted_pairs_have_the_figures_of_all_comparisons(
    stratum: Stratum | None, pool: int, items: int, relevant: int
) -> None:
    """Items that come once, in all lists, and some of which recur; a stratum that borrows from the other."""
    comparisons, _ = lists(1, (0.7, 0.5), 12, items, relevant, items, pool)
    both = [counted(x) for x in (comparisons, replace(comparisons, ahead=np.roll(comparisons.ahead, 7)))]
    figures = [[figure(each, stratum) for each in of_it] for of_it in both]
    for here, there in figures:
        facts = [(x.comparisons, x.queries, x.recurs, x.recurring) for x in (here, there)]
        assert facts[0] == facts[1]
        assert here.log_odds == pytest.approx(there.log_odds, abs=1e-9)
        assert (here.error, here.freedom) == pytest.approx((there.error, there.freedom), rel=1e-9)
    of_counts, of_all = ([each.fit for each in of_it] for of_it in zip(*figures, strict=True))
    assert of_counts[0] and of_counts[1] and of_all[0] and of_all[1]
    moved, expected = change(of_counts[0], of_counts[1]), change(of_all[0], of_all[1])
    assert moved and expected and moved[1].error == pytest.approx(expected[1].error, rel=1e-9)
    counts, every = both[0]
    nulls = null_scores(counts, stratum, of_counts[0]), null_scores(every, stratum, of_all[0])
    assert nulls[0] == pytest.approx(nulls[1], abs=1e-9)


def test_simes_by_hand() -> None:
    assert simes([0.04, 0.01, 0.5]) == pytest.approx(0.03)
    assert simes([]) is None


def test_odds_inside_the_band_by_hand() -> None:
    # ln 1.25 = .2231 is 2.231 errors away, and t of 7 degrees of freedom is beyond that in 3.04 %
    middle = Figure(400, 8, None, 0.0, 0.1, 7.0)
    assert middle.inside() == pytest.approx(0.0304, abs=5e-5)
    # the larger p, of the nearer edge, whichever that is
    assert replace(middle, log_odds=0.1).inside() == pytest.approx(replace(middle, log_odds=-0.1).inside())
    assert replace(middle, log_odds=math.log(0.8)).inside() == pytest.approx(0.5)
    assert replace(middle, recurs=True, clusters=3.9).inside() is None
    assert Figure(400, 8, "always_one_way", always_ahead=True, independent=9).inside() is None


@pytest.mark.parametrize("log_odds", [-0.5, -0.1, 0.0, 0.15])
@pytest.mark.parametrize("error", [0.01, 0.05, 0.1, 1.0])
def test_odds_are_inside_where_the_interval_is(log_odds: float, error: float) -> None:
    value = Figure(400, 8, None, log_odds, error, 7.0)
    low, high = value.interval() or (0.0, 0.0)
    inside, outside = value.inside(), value.outside()
    assert inside is not None and outside is not None
    assert value.within() == (inside < 0.025) == (low > 0.8 and high < 1.25)
    assert inside + outside == pytest.approx(1)
