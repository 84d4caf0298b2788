"""Preference odds of lists, against known answers, cases worked by hand, and properties that any such figure has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import log
from typing import Any

import numpy as np
import pytest

from llmfair.audits.aggregates import Inference, aggregate, odds_by_query, preference, preference_change
from llmfair.audits.listwise.measure import HowRanked, ListOdds, concluded, list_odds, no_preference
from llmfair.metrics.base import Judged, QueryComparisons, Undefined, Value
from llmfair.metrics.names import parse_measure
from llmfair.metrics.preference import pairs_shown
from llmfair.nouns import (
    OTHERS,
    Attribute,
    Candidates,
    Compared,
    Conclusion,
    Document,
    Encounter,
    Query,
    Ranking,
    Side,
)
from llmfair.rankers.strategies import PartialOrder, encounters_of
from llmfair.stats.strata import Comparisons, Stratum
from tests.shared import vectors

SIDES = {"protected": Side.PROTECTED, "unprotected": Side.UNPROTECTED}


def judged(
    sides: Mapping[str, Side],
    grades: Mapping[str, int],
    encounters: Iterable[Encounter] | None,
    rankings: Sequence[Sequence[str]] = (),
    query_id: str = "q",
) -> Judged:
    documents = tuple(Document(doc_id, "") for doc_id in grades)
    return Judged(
        Candidates(Query(query_id, ""), documents, grades),
        tuple(Ranking(query_id, tuple(ranking)) for ranking in rankings),
        sides,
        encounters=None if encounters is None else tuple(encounters),
    )


def one_after_another(answers: Sequence[tuple[Sequence[str], Sequence[str]]]) -> tuple[Encounter, ...]:
    """The first encounters of questions: items shown, and those that the answer names."""
    return encounters_of(PartialOrder(number, *answer) for number, answer in enumerate(answers))


def of_vector(query: Mapping[str, Any]) -> Judged:
    """A query of the known answers: its chains as questions and answers."""
    encounters = [
        e
        for chain in query["chains"]
        for e in one_after_another([(asked["shown"], asked["answer"] or ()) for asked in chain["windows"]])
    ]
    sides = {doc_id: SIDES[side] for doc_id, side in query["side"].items()}
    return judged(sides, query["grade"], encounters, query_id=query["query_id"])


def odds_of(queries: Sequence[Judged], measure: str = "PreferenceOdds") -> list[Value]:
    return [parse_measure(measure).values(query)[""] for query in queries]


def test_known_answers() -> None:
    """Of raw windows, through questions, encounters and comparisons."""
    for case in vectors("preference_odds_strata")["cases"]:
        values = odds_of([of_vector(query) for query in case["input"]["queries"]])
        odds, expected = list_odds(values, HowRanked(strata=[*Stratum])), case["expected"]["figures"]
        assert odds is not None, case["id"]
        for name, of_it in [("pooled", odds.pooled), *odds.strata.items()]:
            known, where = expected[str(name)], (case["id"], name)
            assert of_it.figure.comparisons == known["comparisons"], where
            if known["status"] == "figure":
                limits = of_it.estimate.value, of_it.estimate.low, of_it.estimate.high
                assert limits == pytest.approx((known["odds"], known["low"], known["high"]), rel=1e-7), where
        p = odds.figures.outside()
        assert p == pytest.approx(case["expected"]["simes_outside"], rel=1e-7), case["id"]


def simulated(seed: int, queries: int = 12, odds: float = 0.6, slot: float = 1.0) -> list[Judged]:
    """Lists of 12 shown whole, protected items preferred by `odds`, first slots by e^slot."""
    found = []
    for number in range(queries):
        rng = np.random.default_rng([seed, number])
        ids = [f"{number}.{place}" for place in range(12)]
        sides = {one: [Side.PROTECTED, Side.UNPROTECTED][k % 2] for k, one in enumerate(ids)}
        grades = {one: k // 6 for k, one in enumerate(ids)}
        encounters = []
        for _ in range(3):
            shown = [ids[place] for place in rng.permutation(12)]
            taste = {
                one: log(odds) * (sides[one] is Side.PROTECTED) - slot * i / 11 + rng.gumbel() + grades[one]
                for i, one in enumerate(shown)
            }
            encounters.append(
                Encounter(tuple(shown), tuple(sorted(shown, key=taste.__getitem__, reverse=True)))
            )
        found.append(judged(sides, grades, encounters, [e.ranked for e in encounters], str(number)))
    return found


def test_swapping_the_groups_inverts_the_odds_and_their_limits() -> None:
    lists, measure = simulated(1), "PreferenceOdds(of=ranking)"
    swap = {Side.PROTECTED: Side.UNPROTECTED, Side.UNPROTECTED: Side.PROTECTED}
    swapped = [replace(one, sides={d: swap[s] for d, s in one.sides.items() if s}) for one in lists]
    there, back = preference(odds_of(lists, measure)), preference(odds_of(swapped, measure))
    assert there and back and there.estimate.low and there.estimate.high and back.estimate.high
    assert there.estimate.value == pytest.approx(1 / (back.estimate.value or 0))
    assert there.estimate.low == pytest.approx(1 / back.estimate.high)
    assert there.figure.comparisons == back.figure.comparisons
    assert there.null_scores == pytest.approx(-back.null_scores)


NAMES = ("a", "b", "c")


def of_three(query: Judged) -> Judged:
    """The query with three groups, every third item in each."""
    return replace(query, members=dict(zip(query.doc_ids, NAMES * 4, strict=True)), names=NAMES)


def as_contrast(query: Judged, first: str, second: str) -> Judged:
    """The same, read as a contrast of two of its groups, or of one and all others."""
    others, contrast = {*NAMES} if second == OTHERS else {second}, f"{first}:{second}"
    side = {**dict.fromkeys(others, Side.UNPROTECTED), first: Side.PROTECTED}
    compared: Compared = "rest" if second == OTHERS else "pairs"
    attribute = Attribute("group", (), (), {}, compared=compared, groups=NAMES)
    sides = {of: side.get(str(group)) for of, group in (query.members or {}).items()}
    return query.between(attribute, contrast, {contrast: sides})


@pytest.mark.parametrize("of", ["answers", "ranking"])
@pytest.mark.parametrize("behind", [False, True])
def test_contrasts_of_several_groups_are_read_from_one_fit(of: str, behind: bool) -> None:
    """Log odds of pairs add up; all contrasts share their comparisons; and the jackknife parts are those of a pair."""
    lists = simulated(3)
    if behind:
        of_best = [
            [Encounter(e.shown, e.ranked[:1], behind=e.ranked[1:]) for e in x.encounters or ()] for x in lists
        ]
        lists = [replace(x, encounters=tuple(e)) for x, e in zip(lists, of_best, strict=True)]
    lists = [as_contrast(of_three(query), "a", "b") for query in lists]
    measure = parse_measure(f"PreferenceOdds(of={of})")
    odds, parts = {}, {}
    for contrast in (("a", "b"), ("b", "c"), ("a", "c")):
        queries = [as_contrast(query, *contrast) for query in lists]
        values = {query.query_id: measure.values(query)[""] for query in queries}
        value = preference(values.values())
        assert (
            value is not None and value.estimate.value and value.estimate.low and not len(value.null_scores)
        )
        odds[contrast], parts[contrast] = value, odds_by_query(values)
        assert no_preference(value, HowRanked()) == value.figure.differs()
        again = preference_change(values, values)
        assert again is not None and again[0].value == pytest.approx(1) and again[2] is not None
    logs = [value.figure.log_odds or 0 for value in odds.values()]
    assert logs[0] + logs[1] == pytest.approx(logs[2], abs=1e-8)
    assert len(parts["a", "c"]) == len(lists)
    mean = np.mean([log(part) for part in parts["a", "c"].values()])
    assert mean == pytest.approx(logs[2], abs=0.1)


def test_a_group_against_all_others_is_compared_on_its_own_sides() -> None:
    query, measure = as_contrast(of_three(*simulated(3, 1)), "a", "b"), parse_measure("PreferenceOdds")
    of_each = []
    for group in ("a", "b"):
        value = measure.values(as_contrast(query, group, OTHERS))[""]
        assert isinstance(value, QueryComparisons) and value.contrast is None
        assert isinstance(value.outcomes, Comparisons)
        of_each.append({(query.doc_ids.index(value.doc_ids[i])) % 3 for i in value.outcomes.first})
    assert of_each == [{0}, {1}]


def test_odds_of_rankings_are_the_share_of_pairs_that_the_protected_item_wins() -> None:
    """By hand: p1 > u1 > p2 at grade 1 wins one of two pairs, u2 at grade 0 meets nobody; then three of four."""
    sides = {"p1": Side.PROTECTED, "p2": Side.PROTECTED, "u1": Side.UNPROTECTED, "u2": Side.UNPROTECTED}
    first = judged(sides, {"p1": 1, "u1": 1, "p2": 1, "u2": 0}, None, [["p1", "u1", "p2", "u2"]])
    second = judged(sides, dict.fromkeys(sides, 0), None, [["p1", "u2", "p2", "u1"]])
    values = odds_of([first, second], "PreferenceOdds(of=ranking)")
    assert [value.ahead for value in values if isinstance(value, QueryComparisons)] == [0.5, 0.75]
    odds = preference(values * 10)
    assert odds is not None and odds.estimate.value == pytest.approx(0.625 / 0.375)  # the mean of both shares
    few = preference(values)
    assert few is not None and few.estimate.reason == "too_few_comparisons" and few.estimate.value is None


def test_only_items_that_no_question_has_shown_meet_for_the_first_time() -> None:
    answers = [(["a", "b", "c"], ["c", "a"]), (["d", "e", "c"], ["c", "e", "d"]), (["f", "e"], ["f", "e"])]
    assert one_after_another(answers) == (
        Encounter(("a", "b", "c"), ("c", "a"), left_out=("b",)),
        Encounter(("d", "e", "c"), ("e", "d")),  # c has been ranked before
    )
    assert one_after_another([(["a", "b"], []), (["a", "b"], ["b", "a"])]) == ()


def test_a_slot_preference_is_told_from_one_for_groups() -> None:
    lists = simulated(3, queries=60, odds=0.6, slot=3.0)
    values = odds_of(lists)
    found, slots = preference(values), aggregate("slot-odds", values)
    assert found and slots and slots.low and slots.high
    assert found.estimate.low and found.estimate.high and found.estimate.low < 0.6 < found.estimate.high
    assert slots.low < np.exp(3) < slots.high
    better = aggregate("preference-odds", odds_of(lists, "RelevanceOdds"))
    assert better and better.low and better.high and better.low < np.e < better.high


def compared(
    ahead: Sequence[float], slots: Sequence[Sequence[float]], window: int, queries: int = 1, start: int = 0
) -> list[Value]:
    """Queries of which each compares irrelevant items, all of them others, with these outcomes."""
    n = len(ahead)
    query, relevant = np.zeros(n, np.intp), np.zeros(n, bool)
    outcomes = Comparisons(
        query, relevant, pairs_shown(relevant), window, np.arange(n), np.arange(n, 2 * n),
        np.array(ahead, float), np.array(slots, float),
    )  # fmt: skip
    ids = [[f"{start + number}.{item}" for item in range(2 * n)] for number in range(queries)]
    return [QueryComparisons(outcomes, of_it) for of_it in ids]


def everyone(prefers: float, queries: int = 8) -> list[Value]:
    """Comparisons that all end alike."""
    return compared(
        [prefers] * 5, [*zip(np.linspace(-1, 1, 5), np.linspace(1, -1, 5), strict=True)], 5, queries
    )


def test_where_one_group_always_wins_there_is_a_bound() -> None:
    below, above = preference(everyone(0.0)), preference(everyone(1.0))
    assert below and above
    assert (below.estimate.value, below.estimate.low, below.bound) == (None, None, "at most")
    # by hand: 8 queries without a win have a mean share below 1 - .025^(1/8) = .3694
    assert below.estimate.high == pytest.approx(0.3694 / 0.6306, rel=1e-3)
    assert above.estimate.low == pytest.approx(1 / (below.estimate.high or 0))
    assert (above.estimate.high, above.bound) == (None, "at least")
    few = preference(everyone(0.0, queries=4))
    assert few and (few.estimate.reason, few.bound) == ("too_few_queries", None)


def test_where_slots_decide_everything_the_odds_are_a_bound() -> None:
    """The item shown first always wins: of each query's pairs, the protected one stood first in two of five."""
    slots = np.array([[-1.0, 0.0], [-0.5, 0.5], [0.5, -1.0], [1.0, 0.0], [1.0, -0.5]])
    first = compared((slots[:, 0] < slots[:, 1]).tolist(), slots.tolist(), 5, 8)
    found = preference(first)
    assert found and (found.bound, found.estimate.reason) == ("at most", "slots_decide")
    assert found.estimate.value == pytest.approx(2 / 3)
    told = aggregate("slot-odds", first)
    assert told is not None and (told.value, told.n, told.reason) == (None, 8, "slots_decide")


def test_without_an_interval_the_reason_is_said() -> None:
    few = preference(odds_of(simulated(4, queries=1)))
    assert few and few.estimate.value is None and few.estimate.reason == "too_few_queries"
    sides = {"a": Side.PROTECTED, "b": Side.UNPROTECTED}
    shown = [Encounter(("a", "b"), ("a", "b"))]
    assert odds_of([judged(sides, {"a": 1, "b": 0}, shown)]) == [Undefined("no_common_grade")]
    assert odds_of([judged(sides, {"a": 1, "b": 1}, [])]) == [Undefined("no_readable_answer")]
    assert parse_measure("PreferenceOdds").values(judged(sides, {"a": 1, "b": 1}, None, [["a", "b"]])) == {}
    assert preference([]) is None and aggregate("preference-odds", [], Inference()) is None


def test_a_change_is_paired_by_query() -> None:
    lists = {one.query_id: one for one in simulated(5, queries=20)}
    values = dict(zip(lists, odds_of([*lists.values()]), strict=True))
    same = preference_change(values, values)
    assert same is not None
    estimate, parts, _ = same
    assert (estimate.value, estimate.low, estimate.high) == (1.0, 1.0, 1.0) and not parts.any()
    other = dict(zip(lists, odds_of(simulated(6, queries=20, odds=1.2)), strict=True))
    changed = preference_change(values, other)
    one, two = preference(values.values()), preference(other.values())
    assert changed and one and two
    assert changed[0].value == pytest.approx((one.estimate.value or 0) / (two.estimate.value or 1))
    assert changed[0].high is not None and changed[0].high < 1


def test_one_long_list_among_short_ones_is_no_position_bias() -> None:
    """Left out, what tells its slots apart is gone: fewer powers are fitted, and odds are odds."""
    rng = np.random.default_rng(8)
    queries: list[Value] = []
    for number in range(44):
        n = 6 if number == 7 else 3
        first, second = rng.permutation(np.linspace(-1, 1, n))[:2], rng.permutation(np.linspace(-1, 1, n))[:2]
        ahead = (rng.random(2) < 0.4).astype(float)
        queries += compared(ahead.tolist(), np.stack([first, second], axis=1).tolist(), n, start=number)
    found = preference(queries)
    assert found is not None and (found.bound, found.estimate.reason) == (None, None)
    assert found.estimate.low is not None


def test_slots_alone_that_decide_are_told_from_slots_that_favour_a_group() -> None:
    slots = np.array([[-1.0, 0.0], [-0.5, 0.5], [0.5, -1.0], [1.0, 0.0], [1.0, -0.5], [-0.5, 1.0]])
    earlier = (slots[:, 0] < slots[:, 1]).astype(float)
    alone = preference(compared(earlier.tolist(), slots.tolist(), 5, 8))
    assert alone is not None and alone.slots_decide


def test_ties_count_half() -> None:
    sides = {"p1": Side.PROTECTED, "u1": Side.UNPROTECTED, "u2": Side.UNPROTECTED}
    tied = replace(
        judged(sides, dict.fromkeys(sides, 1), None),
        rankings=(Ranking("q", ("p1", "u1", "u2"), (2.0, 2.0, 1.0)),),
    )
    (value,) = odds_of([tied], "PreferenceOdds(of=ranking)")
    assert isinstance(value, QueryComparisons) and pairs_ahead(value) == [0.5, 1]


def pairs_ahead(value: QueryComparisons) -> list[float]:
    """Of every pair, how often the protected item is ahead, sorted."""
    return sorted(ahead for part in value.outcomes.parts() for ahead in part.ahead.tolist())


@pytest.mark.parametrize(("grades", "expected"), [(4, None), (1, "tied")])
def test_of_a_ranker_without_windows_ties_are_no_preference(grades: int, expected: str | None) -> None:
    """Scores blind to groups, ties in an order that is not: protected items are last wherever the score is the same."""
    rng = np.random.default_rng(3)
    sides = {f"{side}{n}": SIDES[side] for side in SIDES for n in range(12)}
    queries = []
    for _ in range(44):
        scores = dict(zip(sides, rng.integers(0, grades, len(sides)).astype(float).tolist(), strict=True))
        best_first = sorted(sides, key=lambda name: (-scores[name], name[0] != "u"))
        ranking = Ranking("q", tuple(best_first), tuple(map(scores.__getitem__, best_first)))
        queries.append(replace(judged(sides, dict.fromkeys(sides, 1), None), rankings=(ranking,)))
    found = preference(odds_of(queries, "PreferenceOdds(of=ranking)"))
    assert found is not None and found.estimate.value == pytest.approx(1, abs=0.06)
    within = Conclusion.WITHIN if expected is None else Conclusion.NOT_ASSESSABLE
    assert concluded(ListOdds(found, {}, 0.0), HowRanked()) == (within, expected)


def test_a_cut_ranking_by_hand() -> None:
    """p1 is ahead of u2 and u3, and u1 behind it; u1 is ahead of p2; nothing missing, nor unjudged, is compared."""
    sides = {
        n: Side.PROTECTED if n[0] == "p" else Side.UNPROTECTED for n in ("p1", "p2", "u1", "u2", "u3", "u9")
    }
    whole = judged(sides, dict.fromkeys(("p1", "p2", "u1", "u2", "u3"), 1), None, [["u9", "p1", "u1"]])
    listed = tuple(Document(name, "") for name in ("p1", "u1", "u9"))
    cut = replace(whole, candidates=replace(whole.candidates, documents=listed), missing=("p2", "u2", "u3"))
    (value,) = odds_of([cut], "PreferenceOdds(of=ranking)")
    assert isinstance(value, QueryComparisons) and pairs_ahead(value) == [0, 1, 1, 1]
    none = replace(cut, candidates=replace(cut.candidates, documents=listed[2:]))
    assert odds_of([none], "PreferenceOdds(of=ranking)") == [Undefined("no_common_grade")]
