"""Targets of every mode: exactly half of each query and stratum, and what is anchored stays where it was."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfair.errors import UsageError
from llmfair.nouns import Side
from llmfair.settings import FinetuneSettings
from llmfair.tuning.drawing import (
    STRATA,
    ByStratum,
    TrainingPair,
    combination,
    counting,
    group_sign,
    label,
    preference,
    sigmoid,
    slot_bias,
    stratum_pairs,
)
from tests.tuning.answered import GENDER, listed, shown

Margins = dict[str, tuple[float, float]]


def labelled_by(train: Mapping[str, ByStratum], margins: Margins, **settings: Any) -> dict[str, TrainingPair]:
    return label(train, margins, GENDER, FinetuneSettings(**settings))


def trained(sizes: tuple[int, int, int, int] = (5, 5, 4, 7), queries: int = 3) -> dict[str, ByStratum]:
    """Odd numbers of relevant pairs, even ones of irrelevant pairs."""
    return {
        f"q{number}": {
            stratum: stratum_pairs(listed(f"q{number}", sizes), GENDER, stratum, 100, 0, shown)
            for stratum in STRATA
        }
        for number in range(queries)
    }


def asked(
    train: Mapping[str, ByStratum], bias: float = -2.0, relevance: float = 3.0, seed: int = 0
) -> Margins:
    """A model that prefers unprotected and relevant items, and the first slot a little."""
    rng = np.random.default_rng(seed)
    found: Margins = {}
    for pair in chain(*(chain(*strata.values()) for strata in train.values())):
        g = bias * group_sign(pair, GENDER) + relevance * (pair.stratum == "mixed") + rng.normal()
        s = 0.3 + 0.3 * rng.normal()
        found[pair.pair_id] = (g + s, s - g)
    return found


def of_equal_relevance(labelled: Mapping[str, TrainingPair]) -> Collection[list[TrainingPair]]:
    """The pairs of each query and stratum but the mixed ones."""
    strata: dict[tuple[str, str], list[TrainingPair]] = {}
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
        g = preference(np.array([margins[pair.pair_id] for pair in pairs]))
        lost, won = ([x for x, pair in zip(g, pairs, strict=True) if pair.target == t] for t in (0.0, 1.0))
        assert max(lost) < min(won)


def test_soft_shifted_labels_are_probabilities_around_one_half() -> None:
    train = trained()
    margins = asked(train)
    for pairs in of_equal_relevance(labelled_by(train, margins, soft_labels=True)):
        g = preference(np.array([margins[pair.pair_id] for pair in pairs]))
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
            assert abs(preference(z)[0]) > abs(slot_bias(z)[0])
            assert pair.target == float(preference(z)[0] > 0)
        used += len(counting)
    assert used > 0


def test_pairs_that_count_are_counted_and_none_is_refused() -> None:
    train = trained()
    labelled = labelled_by(train, asked(train))
    counts = counting(labelled)
    assert counts == {"relevant": 3 * 24, "irrelevant": 3 * 28, "mixed": 3 * 4 * 20}
    # A model that always prefers the unprotected item has no answers for the other side.
    one_sided = dict.fromkeys(asked(train), (-5.0, 5.0))
    labelled = labelled_by(train, one_sided, labels="equal-answers")
    with pytest.raises(UsageError, match="no relevant pair to train on counts") as error:
        counting(labelled)
    assert "--labels soft" in error.value.hint
    # A single pair of each query is the middle one.
    few = trained((1, 1, 4, 7))
    with pytest.raises(UsageError, match="no relevant pair"):
        counting(labelled_by(few, asked(few)))
    counting(labelled_by(few, asked(few), labels="soft"))


def test_labels_of_a_query_depend_on_it_alone() -> None:
    few, many = trained(queries=2), trained(queries=3)
    margins = asked(many)
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
        for g in [-2.0 * group_sign(pair, GENDER) + 1.5 * (pair.stratum == "mixed")]
    }
    labelled = labelled_by(train, margins, anchor="base")
    mixed = [pair for pair in labelled.values() if pair.stratum == "mixed"]
    assert mixed and {round(pair.target or 0, 9) for pair in mixed} == {round(1 / (1 + math.exp(-1.5)), 9)}


@pytest.mark.parametrize("anchor", ["relevance", "base"])
def test_nothing_is_left_out(anchor: str) -> None:
    train = trained((1, 1, 1, 1))
    pairs = [pair for strata in train.values() for pair in chain(*strata.values())]
    for labels in ("shifted", "random", "soft", "equal-answers"):
        labelled = labelled_by(train, asked(train), labels=labels, anchor=anchor)
        assert labelled.keys() == {pair.pair_id for pair in pairs}
        assert all(pair.target is not None for pair in labelled.values())


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=40), st.floats(-30, 30))
def test_targets_are_antisymmetric_in_the_order_of_items(g: list[float], slot: float) -> None:
    """What is wanted of the pair shown as (a, b) and as (b, a) is one statement: t and 1 − t."""
    z = np.array([(one + slot, slot - one) for one in g])
    assert np.allclose(preference(z), g, atol=1e-9) and np.allclose(slot_bias(z), slot, atol=1e-9)
    turned = z[:, ::-1]  # the same two prompts, the pair named from its other item
    assert np.allclose(preference(turned), -preference(z)) and np.allclose(slot_bias(turned), slot_bias(z))
    assert np.allclose(sigmoid(preference(z)) + sigmoid(preference(turned)), 1)


def test_the_sign_of_a_pair_says_which_side_is_protected() -> None:
    pairs = stratum_pairs(listed("q"), GENDER, "mixed", 4, 0, shown)
    signs = {combination(pair, GENDER): group_sign(pair, GENDER) for pair in pairs}
    one, other = Side.PROTECTED, Side.UNPROTECTED
    assert signs == {(one, one): 0, (one, other): 1, (other, one): -1, (other, other): 0}
