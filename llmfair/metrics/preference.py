"""Preference odds of lists: of two equally relevant items, one of each group, which one the ranker puts ahead.

They are measured where a model saw both for the first time at once (`first encounters`): what later questions show
together was chosen by earlier answers. The slots they stood in come along, since models prefer slots as well. Where a
model was asked for the best alone its choice counts, and where it scored items one by one, the scores' order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llmfair.metrics.base import Judged, QueryComparisons, Undefined, Value, measure
from llmfair.nouns import Encounter, Ranking, Side

Flags = NDArray[np.bool_]
OF_ODDS: Mapping[str, Any] = {
    "parity": 1.0,
    "bounds": (0.0, math.inf),
    "scale": "log",
    "cutoff": "none",
    "of_all": True,
    "cite": "logistic model of first encounters, slots as a polynomial of degree 4; jackknife over queries",
}
REASONS: Mapping[str, str] = {
    "no_common_grade": "no list has items of both groups with the same grade of relevance",
    "no_encounter": "no two equally relevant items met before an answer had moved them",
    "few_common_grades": "fewer than 5 lists have items of both groups with the same grade of relevance",
    "few_encounters": "in fewer than 5 queries two equally relevant items met before an answer had moved them",
    "no_readable_answer": "no answer could be read",
    "order_not_random": "the initial ranking is not random",
    "too_few_comparisons": "fewer than 20 comparisons",
    "equal_scores": "all scores of every list are equal, so nothing is ranked",
    "position_driven": "the answers follow the position",
    "slots_decide": "slots alone decide which of two equally relevant items is ahead",
    "separated": "slots and groups together decide every comparison, which leaves the odds without a size",
    "always_one_way": "one of the two is always ahead",
    "tied": "so many equally relevant items of the two groups are tied in score that no preference could leave the "
    "parity band",
    "no_better_than_input": "the ranker orders by relevance no better than its initial ranking, so nothing says that "
    "it does its job",
    "no_better_than_random": "the ranking orders by relevance no better than a random order of its lists, so nothing "
    "says that its ranker does its job",
    "no_better_than_chance": "the answers put the more relevant of two items ahead no more often than chance, so "
    "nothing says that the ranker does its job",
    "items_missing": "answers leave out items of one group more often than chance would",
    "too_many_unparseable": "more answers cannot be read than --max-invalid allows",
    "no_finite_odds": "in one of the two, slots or groups decide every comparison",
    "not_judged": "no relevance judgement says whether the ranker does its job",
}


@measure(
    "PreferenceOdds",
    params={"of": ("answers", "ranking")},
    **OF_ODDS,
    better="parity",
    aggregate="preference-odds",
    label="preference odds",
    headline=True,
    assessed_by="PreferenceOdds",
    worded=True,
    undefined=REASONS,
)
def preference_odds(judged: Judged, cutoff: None, of: str) -> Mapping[str, Value]:
    """The odds that of two equally relevant items the protected one is put ahead of the unprotected one.

    Of `answers`: from first encounters, adjusted for the slots they were shown in. Of a `ranking`: over all such
    pairs of a list (Mann-Whitney, ties counting half), which shows what became of the preference on the way. Items
    that a cut ranking leaves out are behind all that it lists, and are not compared with each other.
    """
    protected, unprotected = judged.on_side(Side.PROTECTED), judged.on_side(Side.UNPROTECTED)
    shared = set(judged.grades[protected].tolist()) & set(judged.grades[unprotected].tolist())
    if of == "answers" and judged.encounters is None:
        return {}
    if not judged.rankings and judged.encounters is None:
        return {"": Undefined("not_ranked")}
    if of == "ranking":
        return {"": _in_rankings(judged)}
    if not shared:
        return {"": Undefined("no_common_grade")}
    if any(encounter.behind for encounter in judged.encounters or ()):
        return {"": _in_choices(judged)}
    return {"": _in_answers(judged, protected, unprotected, np.equal)}


@measure("SlotOdds", **OF_ODDS, aggregate="slot-odds", label="slot odds", worded=True, undefined=REASONS)
def slot_odds(judged: Judged, cutoff: None) -> Mapping[str, Value]:
    """The odds that of two alike items the one shown first is put ahead of the one shown last."""
    return preference_odds.values(judged, None, of="answers")


@measure(
    "RelevanceOdds",
    **OF_ODDS,
    better="higher",
    aggregate="preference-odds",
    label="relevance odds",
    worded=True,
    undefined={**REASONS, "no_common_grade": "no list has items of different grades of relevance"},
)
def relevance_odds(judged: Judged, cutoff: None) -> Mapping[str, Value]:
    """The odds that of two items of different grade, shown together for the first time, the better one is ahead."""
    if judged.encounters is None:
        return {}
    if len(np.unique(judged.grades)) < 2:
        return {"": Undefined("no_common_grade")}
    everyone = np.ones(len(judged.doc_ids), dtype=bool)
    return {"": _in_answers(judged, everyone, everyone, np.greater)}


def _in_rankings(judged: Judged) -> QueryComparisons | Undefined:
    """All pairs of equal grade in all completed lists, and of listed items with those that a cut list lacks.

    Of a cut list only judged items are compared: of the others those alone are known that it put first.
    """
    missing = np.array([judged.sides.get(doc_id) for doc_id in judged.missing], object)
    grades = np.array([judged.candidates.relevance.get(doc_id, 0) for doc_id in judged.missing], np.int64)
    cut = any(side is not None for side in missing)
    known = np.array([not cut or doc_id in judged.candidates.relevance for doc_id in judged.doc_ids])
    ahead, count, tied = 0.0, 0, 0
    for places in map(_places, judged.rankings, repeat(judged.doc_ids), judged.orders):
        for grade in np.unique(judged.grades):
            alike = known & (judged.grades == grade)
            first, second = (places[alike & judged.on_side(side)] for side in Side)
            beyond, behind = (int(((missing == side) & (grades == grade)).sum()) for side in Side)
            won, drawn = _won(first, second)
            ahead += won + drawn / 2 + len(first) * behind
            tied += drawn
            count += len(first) * (len(second) + behind) + beyond * len(second)
    if not count:
        return Undefined("no_common_grade")
    return QueryComparisons(np.array([ahead]), np.array([float(count)]), tied=tied)


def _won(first: NDArray[np.float64], second: NDArray[np.float64]) -> tuple[int, int]:
    """Of all pairs of one from each, how many the first is ahead in, and how many are tied."""
    after = np.sort(second)
    start, end = np.searchsorted(after, first, side="left"), np.searchsorted(after, first, side="right")
    return int((len(after) - end).sum()), int((end - start).sum())


def _places(ranking: Ranking, doc_ids: Sequence[str], order: NDArray[np.intp]) -> NDArray[np.float64]:
    """The place of every candidate, the same for those of one score; shape (n,)."""
    places = np.empty(len(order))
    places[order] = np.arange(len(order))
    if ranking.scores is None:
        return places
    scores = dict(zip(reversed(ranking.doc_ids), reversed(ranking.scores), strict=True))
    first: dict[float, float] = {}
    for place in order:
        score = scores.get(doc_ids[place])
        if score is not None:
            places[place] = first.setdefault(score, places[place])
    return places


def _in_answers(
    judged: Judged, firsts: Flags, seconds: Flags, compare: np.ufunc
) -> QueryComparisons | Undefined:
    """The comparisons of all first encounters: of `firsts` with those `seconds` whose grades `compare`."""
    outcomes = [*_outcomes(judged, firsts, seconds, compare)]
    if not outcomes:
        return _uncompared(judged)
    ahead, slots = (np.concatenate([outcome[part] for outcome in outcomes]) for part in (0, 1))
    window = max(window for _, _, window in outcomes)
    return QueryComparisons(ahead, np.ones(len(ahead)), slots if window > 1 else None, window)


def _uncompared(judged: Judged) -> Undefined:
    if any(encounter.scores and len(encounter.scores) > 1 for encounter in judged.encounters or ()):
        return Undefined("tied")
    return Undefined("no_encounter" if judged.encounters else "no_readable_answer")


def _outcomes(
    judged: Judged, firsts: Flags, seconds: Flags, compare: np.ufunc
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64], int]]:
    """Of each encounter with something to compare: who was ahead, both slots, and how many items were shown.

    An item that is named is ahead of all named later, and of all that were put behind. Of items scored one by one the
    higher score is ahead; equal ones say nothing.
    """
    place_of = {doc_id: place for place, doc_id in enumerate(judged.doc_ids)}
    for encounter in judged.encounters or ():
        doc_ids = (*encounter.ranked, *encounter.behind)
        places = np.array([place_of[doc_id] for doc_id in doc_ids], dtype=np.intp)
        of_places = compare(judged.grades[places][:, None], judged.grades[places])
        first, second = np.nonzero(firsts[places][:, None] & seconds[places] & of_places)
        if encounter.scores is not None:
            rank = -np.array(encounter.scores)
        else:
            rank = np.minimum(np.arange(len(doc_ids)), len(encounter.ranked))
        told = rank[first] != rank[second]
        first, second = first[told], second[told]
        if len(first):
            slots = _slots(encounter, doc_ids)
            both = np.stack([slots[first], slots[second]], axis=1)
            yield (rank[first] < rank[second]).astype(float), both, max(1, len(encounter.shown))


def _in_choices(judged: Judged) -> QueryComparisons | Undefined:
    """Who was chosen among equally relevant items of both groups, in all first encounters.

    What is named first is chosen among all, what is named next among those that are left. Given that one of some items
    is chosen, which one does not hang on the others that were shown (Luce 1959), so items of other grades and of
    neither group are left out.
    """
    grades, window = judged.candidates.relevance, 1
    first, slots, starts = list[float](), list[float](), list[int]()
    for encounter in judged.encounters or ():
        doc_ids = (*encounter.ranked, *encounter.behind)
        last = max(1, len(encounter.shown) - 1)
        stood = {doc_id: 2 * slot / last - 1 for slot, doc_id in enumerate(encounter.shown)}
        for number, chosen in enumerate(encounter.ranked):
            if judged.sides.get(chosen) is None:
                continue
            grade = grades.get(chosen, 0)
            among = [doc_id for doc_id in doc_ids[number:] if grades.get(doc_id, 0) == grade]
            sides = [judged.sides.get(doc_id) for doc_id in among]
            if not {*Side} <= {*sides}:
                continue
            starts.append(len(first))
            for doc_id, side in zip(among, sides, strict=True):
                if side is not None:
                    first.append(float(side is Side.PROTECTED))
                    slots.append(stood[doc_id])
            window = max(window, len(encounter.shown))
    if not starts:
        return _uncompared(judged)
    whose, begins = np.array(first), np.array(starts)
    return QueryComparisons(
        whose[begins], np.ones(len(begins)), np.array(slots), window, chosen=(whose, begins)
    )


def _slots(encounter: Encounter, doc_ids: Sequence[str]) -> NDArray[np.float64]:
    """Where items stood when shown: -1 first, 1 last; shape (items,). 0 each where they were not shown at once."""
    if not encounter.shown:
        return np.zeros(len(doc_ids))
    shown = {doc_id: slot for slot, doc_id in enumerate(encounter.shown)}
    slots = np.array([shown[doc_id] for doc_id in doc_ids], float)
    return 2 * slots / (len(encounter.shown) - 1) - 1
