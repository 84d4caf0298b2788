"""Splitting queries and drawing pairs: halves, groups and combinations come out even, and queries stay apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any

import pytest

from llmfair.errors import UsageError
from llmfair.nouns import Candidates
from llmfair.probes import pairwise_probes
from llmfair.settings import FinetuneSettings
from llmfair.tuning.drawing import (
    COMBINATIONS,
    DrawnPairs,
    PairGroup,
    combination,
    draw,
    evenly,
    in_groups,
    split_queries,
    stratum_pairs,
)
from tests.tuning.answered import GENDER, listed, shown


def drawn(lists: Sequence[Candidates], **settings: Any) -> DrawnPairs:
    return draw(lists, GENDER, split_queries(lists, GENDER, 0.8, 0), FinetuneSettings(**settings), shown)


# The split


@pytest.mark.parametrize("queries", [10, 11, 20, 57])
@pytest.mark.parametrize("seed", [0, 1])
def test_no_query_is_in_two_parts_and_three_validate(queries: int, seed: int) -> None:
    split = split_queries([listed(f"q{number}") for number in range(queries)], GENDER, 0.8, seed)
    parts = [*split.train, *split.validation, *split.test]
    assert len(parts) == len(set(parts)) == queries
    assert len(split.test) == round(queries * 0.2)
    assert len(split.validation) == max(3, round(0.1 * (queries - len(split.test))))


def test_parts_are_alike_in_group_balance() -> None:
    lists = [listed(f"q{number}", (2 + number % 3 * 4, 10 - number % 3 * 4, 6, 6)) for number in range(60)]
    split = split_queries(lists, GENDER, 0.8, 0)
    strata = {one.query.query_id: number % 3 for number, one in enumerate(lists)}
    assert Counter(strata[query_id] for query_id in split.test) == {0: 4, 1: 4, 2: 4}
    assert set(Counter(strata[query_id] for query_id in split.train).values()) <= {14, 15}
    assert split_queries(lists, GENDER, 0.8, 0) == split
    assert split_queries(lists, GENDER, 0.8, 1).test != split.test


def test_too_few_queries_with_both_sides_are_counted() -> None:
    lists = [listed(f"q{number}") for number in range(9)] + [listed("male", (0, 6, 0, 6))]
    with pytest.raises(UsageError, match="but there are 9") as error:
        split_queries(lists, GENDER, 0.8, 0)
    assert "llmfair datasets" in error.value.hint
    split = split_queries([*lists, listed("q9")], GENDER, 0.8, 0)
    assert split.unused == ("male",)


@pytest.mark.parametrize("share", [0.01, 0.99])
def test_a_share_that_leaves_nothing(share: float) -> None:
    with pytest.raises(UsageError, match="--train-share"):
        split_queries([listed(f"q{number}") for number in range(12)], GENDER, share, 0)


# The pairs


def test_pairs_are_those_of_the_audit() -> None:
    candidates = listed("q")
    for stratum in ("relevant", "irrelevant"):
        probes = pairwise_probes(candidates, GENDER, stratum, 30, 5, shown)
        pairs = stratum_pairs(candidates, GENDER, stratum, 30, 5, shown)
        assert [(pair.a, pair.b) for pair in pairs] == [probe.candidates.documents for probe in probes]


@pytest.mark.parametrize("sizes", [(6, 6, 6, 6), (1, 9, 4, 2), (3, 2, 1, 1)])
def test_mixed_pairs_have_all_four_combinations_equally_often(sizes: tuple[int, int, int, int]) -> None:
    pairs = stratum_pairs(listed("q", sizes), GENDER, "mixed", 90, 0, shown)
    counts = Counter(combination(pair, GENDER) for pair in pairs)
    assert set(counts) == set(COMBINATIONS) and len(set(counts.values())) == 1
    assert len({pair.pair_id for pair in pairs}) == len(pairs)
    assert len({(pair.a.doc_id, pair.b.doc_id) for pair in pairs}) == len(pairs)
    assert all(
        pair.a.doc_id.startswith("q-relevant") and pair.b.doc_id.startswith("q-other") for pair in pairs
    )


def test_a_query_without_one_combination_has_no_mixed_pairs_and_keeps_the_others() -> None:
    candidates = listed("q", (6, 6, 6, 0))
    assert stratum_pairs(candidates, GENDER, "mixed", 90, 0, shown) == []
    assert stratum_pairs(candidates, GENDER, "irrelevant", 90, 0, shown) == []
    (group,) = in_groups({"relevant": stratum_pairs(candidates, GENDER, "relevant", 90, 0, shown)}, 32, 1)
    assert len(group) == 32


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
        mixed = Counter(combination(pair, GENDER) for pair in chain(*groups) if pair.stratum == "mixed")
        assert set(mixed.values()) == {18}
    assert all(len({pair.query.query_id for pair in group}) == 1 for group in found.groups)


def test_a_last_group_of_an_odd_number_is_completed_and_keeps_combinations_even() -> None:
    found = drawn([listed(f"q{number}") for number in range(12)])
    for query_id in found.train:
        groups = [group for group in found.groups if group[0].query.query_id == query_id]
        assert [_shape(group) for group in groups] == [(13, 13, 6), (13, 13, 6), (14, 14, 4)]
        mixed = Counter(combination(pair, GENDER) for pair in chain(*groups) if pair.stratum == "mixed")
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


def _shape(group: PairGroup) -> tuple[int, ...]:
    counts = Counter(pair.stratum for pair in group)
    return counts["relevant"], counts["irrelevant"], counts["mixed"]


def test_what_is_shared_out_one_by_one() -> None:
    assert [evenly([3, 1, 5], 6), evenly([3, 1, 5], 100), evenly([], 5)] == [[3, 1, 2], [3, 1, 5], []]


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
        mixed = Counter(combination(pair, GENDER) for pair in strata["mixed"])
        assert set(mixed) == set(COMBINATIONS) and len(set(mixed.values())) == 1
        assert strata["relevant"] and strata["irrelevant"]


# What train and test have in common


def test_overlap_is_reported_and_strict_items_leave_none() -> None:
    lists = [listed(f"q{number}", shared=4) for number in range(12)]
    overlap = drawn(lists).overlap()
    assert overlap.items == 8 and overlap.pairs > 0 and overlap.dropped_items == 0
    strict = drawn(lists, strict_items=True).overlap()
    assert (strict.items, strict.pairs) == (0, 0)
    assert strict.dropped_items == 8 * len(drawn(lists).train)


def test_a_stratum_without_any_pair_is_named_and_strict_items_that_leave_none() -> None:
    with pytest.raises(UsageError, match="no train query has irrelevant pairs") as error:
        drawn([listed(f"q{number}", shared=6) for number in range(12)], strict_items=True)
    assert "--strict-items" in error.value.hint
    with pytest.raises(UsageError, match="no train query has irrelevant pairs"):
        drawn([listed(f"q{number}", (6, 6, 6, 0)) for number in range(12)])


def test_pairs_of_equal_texts_are_passed_over() -> None:
    candidates = listed("q")
    assert stratum_pairs(candidates, GENDER, "mixed", 90, 0, lambda document: "the same") == []
