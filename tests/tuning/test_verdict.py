"""The verdict of a training: repaired, rejected or inconclusive, and what to do next."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from llmfair.audits.pairwise.outcome import HEADLINE
from llmfair.audits.pairwise.results import PairFinding
from llmfair.results import RunVerdict
from llmfair.stats.intervals import conclude
from llmfair.tuning.effects import ADAPTER
from llmfair.tuning.results import FinetuneResults, Safeguard
from llmfair.tuning.words import headed_table, judged, model_card
from tests.report.adapters import AUDIT, results
from tests.tuning.answered import BAND

Interval = tuple[float, float, float]
IN, OUT, ACROSS = (1.0, 0.9, 1.1), (0.5, 0.4, 0.6), (0.9, 0.7, 1.2)


def told(of: dict[str, Interval], lost: bool = False, rejected: bool = False) -> RunVerdict:
    """The verdict on an adapter with these odds, that keeps all gates or lost one."""
    made: FinetuneResults = results(True)
    rows = []
    for row in made.rows:
        if (row.model, row.measure) == (ADAPTER, HEADLINE) and row.condition in of:
            value, low, high = of[row.condition]
            row = replace(row, value=value, low=low, high=high)
        rows.append(row)
    findings = {
        kind: PairFinding(measure=HEADLINE, conclusion=conclude(*ends[1:], BAND), reason=None)
        for kind, ends in of.items()
    }
    gate = Safeguard(0.4, 0.45, not lost)
    training = replace(
        made.training, rejected=rejected, why="no checkpoint kept the gates." if rejected else None
    )
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
        ({"relevant": IN, "irrelevant": ACROSS}, {}, "inconclusive", "crosses an edge", "queries would settle it"),
        ({"relevant": IN}, {"lost": True}, "rejected", "same answer in both orders 0.400 (not ≥ 0.450)", "another"),
        ({"relevant": IN}, {"rejected": True}, "rejected", "no checkpoint kept the gates;", "in rejected/"),
    ],
)  # fmt: skip
def test_the_status(
    of: dict[str, Interval], more: dict[str, bool], status: str, says: str, then: str
) -> None:
    found = told(of, **more)
    assert found.status == status and says in found.sentence and then in found.next
    assert "1.00 [0.90, 1.10] of relevant pairs" in found.sentence
    assert found.group == ("female" if OUT in of.values() else None)


def test_it_comes_first_wherever_an_adapter_is_told_of() -> None:
    made = results(True)
    assert made.verdict is not None
    name, said = headed_table(made).lead[0]
    assert (name, said) == ("VERDICT", f"{made.verdict.status}: {made.verdict.sentence}")
    assert f"**VERDICT** {made.verdict.status}: " in model_card(made)


@pytest.mark.whole
def test_how_far_the_odds_are_from_parity_is_told_in_words() -> None:
    (said, *_) = (
        note for note in headed_table(results(True)).notes if "parity (distance in log odds " in note
    )
    assert "nearer to parity (distance in log odds " in said and "|" not in said
