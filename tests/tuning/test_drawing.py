"""Queries are split, pairs drawn and labelled: halves, groups and combinations come out even."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from math import sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfair.errors import UsageError
from llmfair.nouns import Candidates
from llmfair.probes import pairwise_probes
from llmfair.settings.commands import FinetuneSettings
from llmfair.tuning import drawing
from tests.tuning.answered import GENDER, listed, shown


def drawn(lists: Sequence[Candidates], **settings: Any) -> drawing.PairDraw:
    parts = drawing.split_queries(lists, GENDER, 0.8, 0)
    return drawing.draw(lists, GENDER, parts, FinetuneSettings(**settings), shown)


@pytest.mark.parametrize("queries", [10, 11, 20, 57])
@pytest.mark.parametrize("seed", [0, 1])
def test_no_query_is_in_two_parts_and_three_validate(queries: int, seed: int) -> None:
    split = drawing.split_queries([listed(f"q{number}") for number in range(queries)], GENDER, 0.8, seed)
    parts = [*split.train, *split.validation, *split.test]
    assert len(parts) == len(set(parts)) == queries
    assert len(split.test) == round(queries * 0.2)
    assert len(split.validation) == max(3, round(0.1 * (queries - len(split.test))))


def test_parts_are_alike_in_group_balance() -> None:
    lists = [listed(f"q{number}", (2 + number % 3 * 4, 10 - number % 3 * 4, 6, 6)) for number in range(60)]
    split = drawing.split_queries(lists, GENDER, 0.8, 0)
    strata = {one.query.query_id: number % 3 for number, one in enumerate(lists)}
    assert Counter(strata[query_id] for query_id in split.test) == {0: 4, 1: 4, 2: 4}
    assert set(Counter(strata[query_id] for query_id in split.train).values()) <= {14, 15}
    assert drawing.split_queries(lists, GENDER, 0.8, 0) == split
    assert drawing.split_queries(lists, GENDER, 0.8, 1).test != split.test


def test_too_few_queries_with_both_sides_are_counted() -> None:
    lists = [listed(f"q{number}") for number in range(9)] + [listed("male", (0, 6, 0, 6))]
    with pytest.raises(UsageError, match="both groups, not 9") as error:
        drawing.split_queries(lists, GENDER, 0.8, 0)
    assert "llmfair datasets" in error.value.hint
    split = drawing.split_queries([*lists, listed("q9")], GENDER, 0.8, 0)
    assert split.unused == ("male",)


@pytest.mark.parametrize("share", [0.01, 0.99])
def test_a_share_that_leaves_nothing(share: float) -> None:
    with pytest.raises(UsageError, match="--train-share"):
        drawing.split_queries([listed(f"q{number}") for number in range(12)], GENDER, share, 0)


def test_pairs_are_those_of_the_audit() -> None:
    candidates = listed("q")
    for stratum in ("relevant", "irrelevant"):
        probes = pairwise_probes(candidates, GENDER, stratum, 30, 5, shown)
        pairs = drawing.stratum_pairs(candidates, GENDER, stratum, 30, 5, shown)
        assert [(pair.a, pair.b) for pair in pairs] == [probe.candidates.documents for probe in probes]


@pytest.mark.parametrize("sizes", [(6, 6, 6, 6), (1, 9, 4, 2), (3, 2, 1, 1)])
def test_mixed_pairs_have_all_four_combinations_equally_often(sizes: tuple[int, int, int, int]) -> None:
    pairs = drawing.stratum_pairs(listed("q", sizes), GENDER, "mixed", 90, 0, shown)
    counts = Counter(drawing.combination(pair, GENDER) for pair in pairs)
    assert set(counts) == set(drawing.COMBINATIONS) and len(set(counts.values())) == 1
    assert len({pair.pair_id for pair in pairs}) == len(pairs)
    assert len({(pair.a.doc_id, pair.b.doc_id) for pair in pairs}) == len(pairs)
    assert all(p.a.doc_id.startswith("q-relevant") and p.b.doc_id.startswith("q-other") for p in pairs)


def test_another_query_moves_no_pair_of_this_one() -> None:
    few, many = (drawn([listed(f"q{number}") for number in range(queries)]) for queries in (20, 21))
    both = few.train.keys() & many.train.keys()
    assert both
    for query_id in both:
        relevant = [found.train[query_id]["relevant"] for found in (few, many)]
        assert relevant[0] == relevant[1] != []


def test_a_group_holds_13_13_6_pairs_of_one_query() -> None:
    found = drawn([listed(f"q{number}", (12, 12, 12, 12)) for number in range(12)])
    for query_id in found.split.train:
        groups = [group for group in found.groups if group[0].query.query_id == query_id]
        # 144 relevant pairs by 13 a group; where the number of groups is odd, the last one makes combinations even
        assert len(groups) == 12
        assert {_shape(group) for group in groups} == {(13, 13, 6)}
        mixed = Counter(drawing.combination(p, GENDER) for p in chain(*groups) if p.stratum == "mixed")
        assert set(mixed.values()) == {18}
    assert all(len({pair.query.query_id for pair in group}) == 1 for group in found.groups)


def test_a_last_group_of_an_odd_number_is_completed_and_keeps_combinations_even() -> None:
    found = drawn([listed(f"q{number}") for number in range(12)])
    for query_id in found.train:
        groups = [group for group in found.groups if group[0].query.query_id == query_id]
        assert [_shape(group) for group in groups] == [(13, 13, 6), (13, 13, 6), (14, 14, 4)]
        mixed = Counter(drawing.combination(p, GENDER) for p in chain(*groups) if p.stratum == "mixed")
        assert set(mixed.values()) == {4}
        used = Counter(pair.pair_id for pair in chain(*groups[:-1]))
        assert set(used.values()) == {1}
        relevant = [pair for pair in chain(*groups) if pair.stratum == "relevant"]
        assert len({pair.pair_id for pair in relevant}) == 36 and len(relevant) == 40


def test_groups_of_two_pairs_alternate_and_reach_the_budget_evenly() -> None:
    lists = [listed(f"q{number}") for number in range(20)]
    found = drawn(lists, group_size=4, max_prompts=400, pairs_per_item=None, pairs=10, anchor="none")
    assert {_shape(group) for group in found.groups} == {(1, 1, 0)} and len(found.groups) == 100
    each = Counter(group[0].query.query_id for group in found.groups)
    assert max(each.values()) - min(each.values()) <= 1
    assert sum(pairs.pairs for pairs in found.counts()["train"].values()) == 200
    assert found.counts()["validation"]["mixed"].pairs > 0, "relevance is measured in any case"


def _shape(group: drawing.PairGroup) -> tuple[int, ...]:
    counts = Counter(pair.stratum for pair in group)
    return counts["relevant"], counts["irrelevant"], counts["mixed"]


@pytest.mark.parametrize(
    ("sizes", "most"), [((2, 20, 2, 20), 5), ((1, 9, 4, 2), 3), ((3, 300, 30, 300), 200)]
)
def test_no_item_is_used_more_often_than_allowed_and_combinations_stay_even(
    sizes: tuple[int, int, int, int], most: int
) -> None:
    found = drawn([listed(f"q{number}", sizes) for number in range(12)], pairs_per_item=most)
    for strata in found.train.values():
        uses = Counter(item.doc_id for pair in chain(*strata.values()) for item in (pair.a, pair.b))
        assert 0 < max(uses.values()) <= most
        mixed = Counter(drawing.combination(pair, GENDER) for pair in strata["mixed"])
        assert set(mixed) == set(drawing.COMBINATIONS) and len(set(mixed.values())) == 1
        assert strata["relevant"] and strata["irrelevant"]


# What train and test have in common


def test_overlap_is_reported_and_strict_items_leave_none() -> None:
    lists = [listed(f"q{number}", shared=4) for number in range(12)]
    overlap = drawn(lists).overlap()
    assert overlap.items == 8 and overlap.pairs > 0
    strict = drawn(lists, strict_items=True).overlap()
    assert (strict.items, strict.pairs) == (0, 0)


def test_a_stratum_without_any_pair_is_named_and_strict_items_that_leave_none() -> None:
    with pytest.raises(UsageError, match="no train query has irrelevant pairs") as error:
        drawn([listed(f"q{number}", shared=6) for number in range(12)], strict_items=True)
    assert "--strict-items" in error.value.hint
    with pytest.raises(UsageError, match="no train query has irrelevant pairs"):
        drawn([listed(f"q{number}", (6, 6, 6, 0)) for number in range(12)])


Margins = dict[str, tuple[float, float]]


def labelled_by(
    train: Mapping[str, drawing.ByStratum], margins: Margins, **settings: Any
) -> dict[str, drawing.TrainingPair]:
    return drawing.label(train, margins, GENDER, FinetuneSettings(**settings))


def trained(
    sizes: tuple[int, int, int, int] = (5, 5, 4, 7), queries: int = 3
) -> dict[str, drawing.ByStratum]:
    """Odd numbers of relevant pairs, even ones of irrelevant pairs."""
    return {
        f"q{number}": {
            stratum: drawing.stratum_pairs(listed(f"q{number}", sizes), GENDER, stratum, 100, 0, shown)
            for stratum in drawing.STRATA
        }
        for number in range(queries)
    }


def asked(
    train: Mapping[str, drawing.ByStratum], bias: float = -2.0, relevance: float = 3.0, seed: int = 0
) -> Margins:
    """A model that prefers unprotected and relevant items, and the first slot a little."""
    rng = np.random.default_rng(seed)
    found: Margins = {}
    for pair in chain(*(chain(*strata.values()) for strata in train.values())):
        g = bias * drawing.group_sign(pair, GENDER) + relevance * (pair.stratum == "mixed") + rng.normal()
        s = 0.3 + 0.3 * rng.normal()
        found[pair.pair_id] = (g + s, s - g)
    return found


def of_equal_relevance(
    labelled: Mapping[str, drawing.TrainingPair],
) -> Collection[list[drawing.TrainingPair]]:
    """The pairs of each query and stratum but the mixed ones."""
    strata: dict[tuple[str, str], list[drawing.TrainingPair]] = {}
    for pair in labelled.values():
        if pair.stratum != "mixed":
            strata.setdefault((pair.query.query_id, pair.stratum), []).append(pair)
    return strata.values()


@pytest.mark.parametrize(("labels", "alike"), [("shifted", False), ("random", False), ("shifted", True)])
def test_exactly_half_of_every_query_and_stratum_is_won(labels: str, alike: bool) -> None:
    """Of preferences that are all alike, too."""
    train = trained()
    margins = dict.fromkeys(asked(train), (0.5, 0.5)) if alike else asked(train)
    labelled = labelled_by(train, margins, labels=labels)
    for pairs in of_equal_relevance(labelled):
        counts = Counter(pair.target for pair in pairs if pair.weight)
        assert counts[0.0] == counts[1.0] > 0 and set(counts) == {0.0, 1.0}
        assert sum(not pair.weight for pair in pairs) == len(pairs) % 2
    assert any(not pair.weight for pair in labelled.values()), "25 relevant pairs have one in the middle"


def test_shifted_labels_keep_the_order_of_preferences() -> None:
    train = trained()
    margins = asked(train)
    for pairs in of_equal_relevance(labelled_by(train, margins)):
        g = drawing.preference(np.array([margins[pair.pair_id] for pair in pairs]))
        lost, won = ([x for x, pair in zip(g, pairs, strict=True) if pair.target == t] for t in (0.0, 1.0))
        assert max(lost) < min(won)


def test_soft_shifted_labels_are_probabilities_around_one_half() -> None:
    train = trained()
    margins = asked(train)
    for pairs in of_equal_relevance(labelled_by(train, margins, soft_labels=True)):
        g = drawing.preference(np.array([margins[pair.pair_id] for pair in pairs]))
        expected = 1 / (1 + np.exp(-(g - np.median(g))))
        assert [pair.target for pair in pairs] == pytest.approx(expected.tolist())
        assert np.median(expected) == pytest.approx(0.5, abs=0.1)


def test_soft_labels_are_one_half_and_an_anchor_in_relevance_wants_the_relevant_item() -> None:
    train = trained()
    labelled = labelled_by(train, asked(train), labels="soft").values()
    assert {pair.target for pair in labelled if pair.stratum != "mixed"} == {0.5}
    assert {pair.target for pair in labelled if pair.stratum == "mixed"} == {0.9}


def test_equal_answers_are_the_model_s_own_consistent_ones_in_equal_numbers() -> None:
    train = trained()
    margins = asked(train, bias=-1.0)
    used = 0
    for pairs in of_equal_relevance(labelled_by(train, margins, labels="equal-answers")):
        counting = [pair for pair in pairs if pair.weight]
        counts = Counter(pair.target for pair in counting)
        assert counts[0.0] == counts[1.0]
        for pair in counting:
            z = np.array([margins[pair.pair_id]])
            assert abs(drawing.preference(z)[0]) > abs(drawing.slot_bias(z)[0])
            assert pair.target == float(drawing.preference(z)[0] > 0)
        used += len(counting)
    assert used > 0


def test_pairs_that_count_are_counted_and_none_is_refused() -> None:
    train = trained()
    labelled = labelled_by(train, asked(train))
    counts = Counter(pair.stratum for pair in labelled.values() if pair.weight)
    assert counts == {"relevant": 3 * 24, "irrelevant": 3 * 28, "mixed": 3 * 4 * 20}
    # A model that always prefers the unprotected item has no answers for the other side.
    one_sided = dict.fromkeys(asked(train), (-5.0, 5.0))
    with pytest.raises(UsageError, match="no relevant pair to train on counts") as error:
        labelled_by(train, one_sided, labels="equal-answers")
    assert "--labels soft" in error.value.hint
    # A single pair of each query is the middle one.
    few = trained((1, 1, 4, 7))
    with pytest.raises(UsageError, match="no relevant pair"):
        labelled_by(few, asked(few))
    labelled_by(few, asked(few), labels="soft")


def test_labels_of_a_query_depend_on_it_alone() -> None:
    few, many = trained(queries=2), trained(queries=3)
    margins = asked(many, bias=-1.0)
    for labels in ("random", "equal-answers"):
        one, two = (labelled_by(train, margins, labels=labels) for train in (few, many))
        assert all(two[pair_id] == pair for pair_id, pair in one.items())
    other = labelled_by(many, margins, labels="random", seed=1)
    assert other != labelled_by(many, margins, labels="random", seed=0)


def test_an_anchor_in_the_base_does_not_pull_the_bias_back() -> None:
    """A model whose preferences are a group bias and relevance: without the bias, relevance alone is left."""
    train = trained()
    margins = {
        pair.pair_id: (g, -g)
        for pair in chain(*(chain(*strata.values()) for strata in train.values()))
        for g in [-2.0 * drawing.group_sign(pair, GENDER) + 1.5 * (pair.stratum == "mixed")]
    }
    labelled = labelled_by(train, margins, anchor="base")
    mixed = [pair for pair in labelled.values() if pair.stratum == "mixed"]
    assert mixed and {round(pair.target or 0, 9) for pair in mixed} == {round(1 / (1 + math.exp(-1.5)), 9)}


BAND = (0.8, 1.25)


def test_what_intervals_of_few_queries_do() -> None:
    """Of 40,000 samples of 20 queries, as often as it is said."""
    rng, sd = np.random.default_rng(0), 0.3
    values = rng.normal(0, sd, (40_000, 20))
    half = 2.093024 * values.std(axis=1, ddof=1) / sqrt(20)
    inside = np.abs(values.mean(axis=1)) + half < 0.2231436
    chance = drawing.held_out(20, [drawing.Precision(1.0, sd)], BAND, 0.95).chance
    assert chance == pytest.approx(inside.mean(), abs=0.006)


@settings(max_examples=8)
@given(st.floats(0.05, 2), st.floats(0.3, 1), st.integers(0, 200))
def test_more_queries_allow_more_and_what_is_needed_is_least(sd: float, share: float, queries: int) -> None:
    strata = [drawing.Precision(1.0, sd), drawing.Precision(share, sd)]
    held = drawing.held_out(queries, strata, BAND, 0.95)
    assert held.needed is not None
    assert (held.chance >= 0.8) == (queries >= held.needed)
    assert drawing.held_out(held.needed - 1, strata, BAND, 0.95).chance < 0.8
    assert drawing.held_out(2 * held.needed, strata, BAND, 0.95).chance > 0.8


def test_pairs_of_a_query_add_little() -> None:
    few, many = drawing.expected([6] * 10), drawing.expected([50] * 10)
    assert few.sd > many.sd > few.sd / 2
    assert drawing.expected([50, 0] * 5) == drawing.Precision(0.5, many.sd)


@pytest.mark.parametrize(
    ("usable", "needed", "share"),
    [(44, 57, 0.5), (200, 57, 0.715), (1000, 57, 0.8), (44, None, 0.5), (10, 163, 0.5)],
)
def test_the_default_split(usable: int, needed: int | None, share: float) -> None:
    assert drawing.train_share(usable, needed) == pytest.approx(share)
