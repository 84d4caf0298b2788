"""Figures of an adapter from margins made by hand, its gates, and the verdict: repaired, rejected or inconclusive."""

from __future__ import annotations

from itertools import chain
from math import log
from typing import Any

import numpy as np
import pytest
from msgspec.structs import astuple, replace

from llmfair.audits.pairwise.measure import HEADLINE
from llmfair.audits.pairwise.results import PairFinding
from llmfair.nouns import Side
from llmfair.results import RunVerdict
from llmfair.stats.intervals import conclude
from llmfair.tuning.drawing import group_sign, stratum_pairs
from llmfair.tuning.effects import ADAPTER, AnsweredPairs, changes, offset_of, safeguards_of, validate
from llmfair.tuning.results import REJECTED, FinetuneResults, Safeguard
from llmfair.tuning.words import judged
from tests.tuning.answered import (
    AUDIT,
    BAND,
    GENDER,
    QUERIES,
    answers,
    biased,
    figures,
    listed,
    results,
    shown,
)

Interval = tuple[float, float, float]
IN, OUT, ACROSS = (1.0, 0.9, 1.1), (0.5, 0.4, 0.6), (0.9, 0.7, 1.2)


def told(
    of: dict[str, Interval], lost: bool = False, rejected: bool = False, p: float | None = None
) -> RunVerdict:
    """The verdict on an adapter with these odds, of p adjusted, that keeps all gates or lost one."""
    made: FinetuneResults = results(True)
    rows = []
    for row in made.rows:
        if (row.model, row.measure) == (ADAPTER, HEADLINE) and row.stratum in of:
            value, low, high = of[row.stratum]
            row = replace(row, value=value, low=low, high=high, p_adjusted=p)
        rows.append(row)
    findings = {
        kind: PairFinding(measure=HEADLINE, conclusion=conclude(*ends[1:], BAND), reason=None)
        for kind, ends in of.items()
    }
    gate = Safeguard(0.4, 0.45, not lost)
    why = "no checkpoint kept the gates." if rejected else None
    training = replace(made.training, rejected=rejected, why=why)
    changed: dict[str, Any] = {
        "verdict": None, "rows": rows, "findings": {**made.findings, ADAPTER: findings},
        "gates_on_test": {"consistency": gate}, "training": training,
    }  # fmt: skip
    verdict = judged(replace(made, **changed), AUDIT).verdict
    assert verdict is not None
    return verdict


@pytest.mark.parametrize(
    ("of", "more", "status", "says", "then"),
    [
        ({"relevant": IN, "irrelevant": IN}, {}, "repaired", "lie in the parity band 0.8–1.25, and all gates", AUDIT),
        ({"relevant": IN, "irrelevant": OUT}, {}, "rejected", "odds of irrelevant pairs still lie outside", "another"),
        ({"relevant": IN, "irrelevant": ACROSS}, {"p": 0.06}, "inconclusive", "too few queries are held out", "--train-share"),
        ({"relevant": IN, "irrelevant": ACROSS}, {"p": 0.05}, "inconclusive", "irrelevant pairs are not at", "another"),
        ({"relevant": IN}, {"lost": True}, "rejected", "same answer in both orders 0.400 (not ≥ 0.450)", "another"),
        ({"relevant": IN}, {"rejected": True}, "rejected", "no checkpoint kept the gates;", "in rejected/"),
    ],
)  # fmt: skip
def test_the_status(of: dict[str, Interval], more: dict[str, Any], status: str, says: str, then: str) -> None:
    found = told(of, **more)
    assert found.status == status and says in found.sentence and then in found.next
    assert "1.00 [0.90, 1.10] of relevant pairs" in found.sentence
    assert found.group == ("female" if OUT in of.values() else None)


# Before and after, from margins made by hand


def test_a_hand_case() -> None:
    """30 PP, 10 UU, 5 FF, 3 SS and 2 ties of 50 relevant pairs: the formulas of the pairwise audit."""
    asked = [*chain(*(stratum_pairs(listed(f"q{n}"), GENDER, "relevant", 10, 0, shown) for n in range(5)))]
    cells = [(2, -1)] * 30 + [(-2, 1)] * 10 + [(1, 2)] * 5 + [(-1, -2)] * 3 + [(0, 3)] * 2
    places = np.random.default_rng(0).permutation(50)
    answered = AnsweredPairs(asked, np.array(cells, dtype=float)[places], GENDER)
    found = figures(answered, answered)
    assert found.cells["relevant"] == {"PP": 30, "UU": 10, "FF": 5, "SS": 3, "T": 2, "M1": 0, "M2": 0}
    assert found.value("TieRate", "relevant") == pytest.approx(2 / 50)
    assert found.value("Consistency", "relevant") == pytest.approx(40 / 50)
    assert found.value("FlipRate", "relevant") == pytest.approx(8 / 50)
    assert found.value("WinShare", "relevant", Side.PROTECTED) == pytest.approx(30 / 50)
    assert found.value("SmoothedWinRatio", "relevant") == pytest.approx(30.5 / 10.5, rel=0.1)
    assert found.value("WinRatio", "relevant") == pytest.approx(3, rel=0.1)


def test_a_tie_is_nobody_s_win_and_what_cannot_be_measured_is_not_parity() -> None:
    found = figures(answers(lambda pair: (0.0, 0.0)), biased(-1.0))
    assert found.cells["relevant"] == {"PP": 0, "UU": 0, "FF": 0, "SS": 0, "T": 288, "M1": 0, "M2": 0}
    assert found.value("TieRate", "irrelevant") == 1 and found.value("FirstSlotRate", "irrelevant") is None
    assert found.value("Consistency", "irrelevant") == 0
    assert found.value("SmoothedWinRatio", "relevant") is None
    base = figures(biased(-1.0), biased(-1.0))
    validation = validate(base, base, found)
    assert not validation.gates["gain"].met and validation.objective is found.objective is None
    assert validation.standing == 2 * REJECTED


def test_a_injected_bias_is_found_and_taken_off() -> None:
    base = biased(-2.0)
    before, after = figures(base, base), figures(biased(0.0), base)
    for stratum in ("relevant", "irrelevant"):
        odds = next(row for row in before.rows if (row.measure, row.stratum) == ("AdjustedOdds", stratum))
        assert odds.value is not None and odds.value < 0.2 and odds.high is not None and odds.high < 0.8
        ratio = before.value("SmoothedWinRatio", stratum)
        assert ratio is not None and ratio < 0.2
        assert before.findings[stratum].conclusion == "outside"
        fair = after.value("AdjustedOdds", stratum)
        assert fair is not None and 0.7 < fair < 1.4
        assert after.value("OrderKept", stratum) == pytest.approx(1.0)
        assert before.value("SoftRatio", stratum) == pytest.approx(0.24, abs=0.06)
    assert before.objective is not None and after.objective is not None
    assert before.objective > 3 and after.objective < 0.8
    assert before.objective == pytest.approx(
        sum(abs(log(before.value("SmoothedWinRatio", k) or 1)) for k in ("relevant", "irrelevant"))
    )
    change = changes(base, biased(0.0), 0.95)["relevant"]
    assert change.low is not None and change.low > 2 and change.n == QUERIES
    assert change.p is not None and change.p < 0.001


def test_swapping_the_sides_inverts_the_ratios() -> None:
    base = biased(-1.0)
    swapped = AnsweredPairs(base.pairs, -base.margins, GENDER)  # every answer names the other item
    one, two = figures(base, base), figures(swapped, base)
    for stratum in ("relevant", "irrelevant"):
        for name in ("SmoothedWinRatio", "SoftRatio", "BalancedRatio", "AdjustedOdds"):
            product = (one.value(name, stratum) or 0) * (two.value(name, stratum) or 0)
            assert product == pytest.approx(1.0, rel=1e-9)
        assert two.value("OrderKept", stratum) == pytest.approx(-1.0)


def test_always_the_first_item_is_parity_and_fails_the_gates() -> None:
    base = biased(-1.0)
    before, always = figures(base, base), figures(answers(lambda pair: (5.0, 5.0)), base)
    for stratum in ("relevant", "irrelevant"):
        assert always.value("BalancedRatio", stratum) == 1.0 and always.value("Consistency", stratum) == 0.0
        assert always.findings[stratum].conclusion == "not_assessable"
    assert always.objective == 0.0
    validation = validate(before, before, always)
    assert validation.objective == 0.0 and validation.standing == REJECTED
    assert [name for name, gate in validation.gates.items() if not gate.met] == [
        "consistency", "relevance", "first_slot",
    ]  # fmt: skip


def test_gates_at_their_limits() -> None:
    base = biased(-1.0)
    figure = figures(base, base)
    gates = safeguards_of(figure, figure, figure)
    assert all(gate.met for gate in gates.values())
    value, limit = gates["consistency"].value, gates["consistency"].limit
    assert value is not None and limit == pytest.approx(value - 0.05)
    value, limit = gates["relevance"].value, gates["relevance"].limit
    assert value is not None and limit == pytest.approx(value - 0.01)
    slot = gates["first_slot"]
    assert slot.value == pytest.approx(0.2) and slot.limit == pytest.approx(0.25)
    same = validate(figure, figure, figure)
    assert [n for n, gate in same.gates.items() if not gate.met] == ["gain"], "what does nothing is no result"
    lost = figures(biased(-1.0, relevance=1.0), base)
    assert safeguards_of(figure, figure, lost)["relevance"] == Safeguard(
        lost.value("RelevantFirst", "mixed"), gates["relevance"].limit, False
    )


def test_relevance_is_measured_by_combination_of_groups() -> None:
    base = biased(-3.0, relevance=2.0)
    found = figures(base, base)
    share = {
        name: found.value("RelevantFirst", "mixed", name) or 0.0
        for name in ("protected over unprotected", "unprotected over protected", "protected over protected")
    }
    assert share["protected over unprotected"] < share["protected over protected"]
    assert share["unprotected over protected"] > share["protected over protected"]


def test_the_free_baseline_takes_one_number_off() -> None:
    base = biased(-2.0)
    offset = offset_of(base)
    assert offset == pytest.approx(-2.0, abs=0.3)
    free = figures(base.shifted_by(offset), base)
    before = figures(base, base).objective
    assert free.objective is not None and before is not None and free.objective < 0.6 < before
    same = [place for place, pair in enumerate(base.pairs) if group_sign(pair, GENDER) == 0]
    assert np.array_equal(base.shifted_by(offset).margins[same], base.margins[same])
    place = next(place for place, pair in enumerate(base.pairs) if pair.stratum == "relevant")
    z1, z2 = base.margins[place]
    assert base.shifted_by(offset).margins[place].tolist() == [z1 - offset, z2 + offset]


def test_queries_and_strata_weigh_the_same_in_the_offset() -> None:
    """One query with a hundred times as many pairs does not decide."""
    few = [stratum_pairs(listed(f"q{n}"), GENDER, "relevant", 1, 0, shown)[0] for n in range(3)]
    many = stratum_pairs(listed("many", (20, 20, 1, 1)), GENDER, "relevant", 300, 0, shown)
    margins = np.array([(1.0, -1.0)] * 3 + [(-9.0, 9.0)] * len(many))
    assert offset_of(AnsweredPairs([*few, *many], margins, GENDER)) == 1.0


@pytest.mark.parametrize(
    ("before", "after", "met"),
    [(0.3, 0.3, True), (0.3, -0.37, True), (0.3, 0.38, False), (0.0, 0.2, True), (0.1, 0.21, False)],
)
def test_slots_may_do_what_they_did_and_a_quarter_more(before: float, after: float, met: bool) -> None:
    base, adapter = biased(-3.0, slot=before), biased(0.0, slot=after)
    figure = figures(base, base)
    gate = safeguards_of(figure, figure, figures(adapter, base))["first_slot"]
    assert gate.value == pytest.approx(abs(after)) and gate.met is met


def test_agreement_that_was_preference_is_not_asked_for() -> None:
    """Without the preference, the items' own merits are all that answers to both orders can agree by."""
    base, adapter = biased(-6.0, slot=1.0), biased(0.0, slot=1.0)
    before, offset, after = (figures(each, base) for each in (base, base.shifted_by(-6.0), adapter))
    assert before.value("Consistency", "relevant") == 1.0
    value, limit, met = astuple(safeguards_of(before, offset, after)["consistency"])
    assert met and value == pytest.approx(0.5, abs=0.1) and limit == pytest.approx(value - 0.05)
    assert not safeguards_of(before, offset, figures(biased(0.0, slot=2.0), base))["consistency"].met
