"""What the verdict over remedies says of constructed figures, and which remedies are not dominated."""

from __future__ import annotations

from math import log
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfair.audits.documents import ChangeRow
from llmfair.mitigation import NONE, ODDS, UTILITY
from llmfair.mitigation.mitigate import distance, front
from llmfair.mitigation.remedies import halves
from llmfair.mitigation.results import MitigationResults, RemedyRow
from llmfair.mitigation.words import STATUSES, verdict_of
from llmfair.nouns import Conclusion
from llmfair.results import Figure, Words

KEPT, LOST, OPEN = (-0.01, 0.01), (-0.3, -0.1), (-0.1, 0.1)
OPEN_BAND = "nearer to parity, whether into the band is open"
Interval = tuple[float, float]


def figure(value: float | None, low: float | None = None, high: float | None = None) -> Figure:
    return Figure(value, low, high, 20, None, None, None, None if value is not None else "no_common_grade")


def remedy(
    name: str, odds: float, utility: Interval, p: float | None = 0.001, base: float = 0.5,
    p_inside: float | None = 0.001, lists: int | None = 48,
) -> RemedyRow:  # fmt: skip
    change, low, high = odds / base, odds / base * 0.9, odds / base * 1.1
    of_odds = ChangeRow(
        name, name, "all", ODDS, "log", "parity", True, base, odds, change, low, high, 20, p, p,
        base_low=base * 0.9, base_high=base * 1.1, other_low=odds * 0.9, other_high=odds * 1.1,
    )  # fmt: skip
    loss = sum(utility) / 2
    of_utility = ChangeRow(
        name, name, "all", UTILITY, "linear", "higher", True, 0.8, 0.8 + loss, loss, *utility, 20, p, p
    )
    return RemedyRow(
        name=name, remedy=name, title=name, does="", available=True, calls=0, rankings=[f"rankings/{name}.run"],
        figures={ODDS: figure(odds, odds * 0.9, odds * 1.1), UTILITY: figure(0.8 + loss)},
        changes={ODDS: of_odds, UTILITY: of_utility}, distance=abs(odds - 1), p_inside=p_inside,
        lists_needed=lists,
    )  # fmt: skip


def results(
    *remedies: RemedyRow,
    base: Figure | None = None,
    conclusion: Conclusion = Conclusion.OUTSIDE,
    queries: int = 20,
) -> MitigationResults:
    unmitigated = RemedyRow(
        name=NONE, remedy=NONE, title="unmitigated", does="", available=True, calls=0,
        figures={ODDS: base or figure(0.5, 0.45, 0.55), UTILITY: figure(0.8)},
        p_inside=0.001 if base is WITHIN else 0.9,
    )  # fmt: skip
    return MitigationResults(
        schema=5, task="mitigate", status="complete", run="runs/mine", dataset="d", attribute="gender", model="m",
        words=Words("female", "male"), condition="neutral", conclusion=conclusion, level=0.95, band=(0.8, 1.25),
        margin=0.02, seed=0, queries=queries, orders=3, prompted=True, measures=(), labels={}, measure_notes={},
        family=len(remedies), remedies=[unmitigated, *remedies], rows=(),
    )  # fmt: skip


AFAR = remedy("near", 0.6, KEPT, p_inside=1.0)


@pytest.mark.parametrize(
    ("status", "chosen", "remedies"),
    [
        ("mitigated at no loss", "near", [remedy("near", 0.95, KEPT), remedy("nearest", 1.0, LOST)]),
        ("mitigated at no loss", "nearest", [remedy("near", 0.95, KEPT), remedy("nearest", 1.0, KEPT)]),
        ("mitigated at a loss", "nearest", [AFAR, remedy("nearest", 1.0, LOST)]),
        ("inconclusive", "nearest", [remedy("nearest", 1.0, OPEN)]),
        ("partly mitigated", "near", [AFAR]),
        ("mitigated at no loss", "edge", [remedy("edge", 1.0, KEPT, p_inside=0.025)]),
        (OPEN_BAND, "open", [remedy("open", 1.0, KEPT, p_inside=0.026), AFAR]),
        ("mitigated at a loss", "near", [remedy("near", 0.9, LOST), remedy("open", 1.0, KEPT, p_inside=0.1)]),
        ("not mitigated", "chance", [remedy("chance", 1.0, KEPT, p=0.5)]),
        ("not mitigated", "beyond", [remedy("beyond", 4.0, KEPT)]),  # as far on the other side
        ("not mitigated", "worse", [remedy("worse", 0.3, KEPT)]),
    ],
)
def test_status(status: str, chosen: str, remedies: list[RemedyRow]) -> None:
    found = verdict_of(results(*remedies), Path("runs/mine/mitigation"))
    assert (found.status, found.condition) == (status, chosen)
    assert status in STATUSES and chosen in found.sentence
    assert found.next and found.group == "female"


WITHIN, AROUND = figure(0.95, 0.9, 1.0), figure(0.9, 0.6, 1.5)
CHANCE = remedy("chance", 1.0, KEPT, p=0.5)


@pytest.mark.parametrize(
    ("made", "status", "says", "following"),
    [
        (results(remedy("chance", 0.6, KEPT, p=0.5)), "not mitigated", "", "another remedy, or more queries"),
        (results(base=WITHIN, conclusion=Conclusion.WITHIN), "parity", "nothing is to be mitigated", "all side"),
        (results(base=WITHIN), "inconclusive", "the audit finds no parity", "rankings that follow the answers: more --passes"),
        (results(CHANCE, base=AROUND), "inconclusive", "0.90 [0.60, 1.50], which include 1: no pref", "more"),
        (results(remedy("near", 1.0, KEPT, base=0.7), base=figure(0.7, 0.4, 1.1)), "mitigated at no loss", "", "its"),
        (results(remedy("open", 1.0, KEPT, p_inside=0.2)), OPEN_BAND, "1.25 at p 0.2 (0.025 or less shows it)", "about 48 lists"),
        (results(remedy("open", 0.8, KEPT, p_inside=0.5, lists=None)), OPEN_BAND, "", "its odds are too near an edge"),
        (results(remedy("open", 1.0, KEPT, p_inside=None)), OPEN_BAND, "", "more items, shared by fewer lists"),
        (results(CHANCE, base=figure(None)), "not assessable", "no list has items of both groups", "all side"),
        (results(remedy("one", 1.0, KEPT, p=None)), "not assessable", "could be paired", "all side"),
        (
            results(*(remedy(f"r{n}", 1.0, KEPT, p=0.5) for n in range(7)), queries=7), "inconclusive",
            "7 queries are too few to tell 7 remedies", "more queries, or fewer remedies at once",
        ),
    ],
)  # fmt: skip
def test_what_stands_in_the_way(made: MitigationResults, status: str, says: str, following: str) -> None:
    verdict = verdict_of(made, Path("m"))
    assert verdict.status == status and says in verdict.sentence and verdict.next.startswith(following)


POINTS = st.dictionaries(
    st.sampled_from("abcdefg"), st.tuples(st.sampled_from((0.0, 0.1, 0.5)), st.sampled_from((0.2, 0.8, 0.9)))
)


def test_distance_is_the_same_for_odds_and_their_inverse() -> None:
    assert distance(0.5) == distance(2) == pytest.approx(log(2))
    assert distance(1) == 0
    assert distance(None) is distance(0) is None


@given(POINTS)
def test_what_is_left_out_is_dominated_by_what_is_kept(points: dict[str, tuple[float, float]]) -> None:
    best = front(points)
    assert bool(best) == bool(points)
    for name, (far, useful) in points.items():
        dominated = any(points[one][0] <= far and points[one][1] >= useful for one in best - {name})
        assert name in best or dominated


@given(st.integers(0, 12))
def test_orders_are_dealt_into_two_halves(count: int) -> None:
    found = halves(count)
    assert len({frozenset(map(frozenset, pair)) for pair in found}) == len(found) <= 10
    for one, other in found:
        assert sorted((*one, *other)) == [*range(count)] and abs(len(one) - len(other)) <= 1
    assert bool(found) == (count > 1)
