"""Preference odds of lists: of two equally relevant items, one of each group, which one the ranker puts ahead.

They are measured where a model saw both for the first time at once (`first encounters`): what later questions show
together was chosen by earlier answers. The slots they stood in come along, since models prefer slots as well. Where a
model was asked for the best alone its choice counts, and where it scored items one by one, the scores' order.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from llmfair.metrics.base import (
    Flags,
    Floats,
    Judged,
    Places,
    QueryComparisons,
    Undefined,
    Value,
    Values,
    measure,
)
from llmfair.nouns import Encounter, Ranking, Side
from llmfair.stats.strata import Choices, Comparisons, Stratum, pair_counts

OF_ODDS: Mapping[str, Any] = {
    "parity": 1.0, "bounds": (0.0, math.inf), "scale": "log", "cutoff": "none", "of_all": True,
    "cite": "logistic model of first encounters, slots as a polynomial of degree 4; jackknife over queries",
}  # fmt: skip
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
    "items_left_out": "answers leave out more than 5 % of the items that they should name, which pulls odds to 1",
    "few_relevant": "relevant or irrelevant items of both groups were compared too seldom, fewer than 20 times or in "
    "fewer than 5 queries",
    "few_items": "so few items recur in so many lists that fewer than 4 of them bear the figure",
    "outside_alone": "outside the band by itself, not beside all else tested (Holm)",
    "stratum_open": "the odds of relevant or of irrelevant items by themselves are not near enough to 1",
    "too_many_unparseable": "more answers cannot be read than --max-invalid allows",
    "narrow_range": "windows carry items so little that answers which always put one group first leave odds of "
    "rankings in the band",
    "no_finite_odds": "in one of the two, slots or groups decide every comparison",
    "not_judged": "no relevance judgement says whether the ranker does its job",
}


@measure(
    "PreferenceOdds", params={"of": ("answers", "ranking"), "stratum": ("none", "relevant", "irrelevant")},
    **OF_ODDS, better="parity", aggregate="preference-odds", label="preference odds",
    labels={"answers": "odds of answers", "ranking": "odds of rankings"}, headline=True,
    assessed_by="PreferenceOdds", worded=True, undefined=REASONS,
)  # fmt: skip
def preference_odds(judged: Judged, cutoff: None, of: str, stratum: str) -> Values:
    """The odds that of two equally relevant items the protected one is put ahead of the unprotected one.

    Of `answers`: from first encounters, adjusted for the slots they were shown in. Of a `ranking`: over all such
    pairs of a list (Mann-Whitney, ties counting half), which shows what became of the preference on the way. Items
    that an answer or a cut ranking leaves out are behind all that it lists, and are not compared with each other.
    """
    if of == "answers" and judged.encounters is None:
        return {}
    if of not in judged.memo:  # the same comparisons whatever the stratum
        protected, unprotected = judged.on_side(Side.PROTECTED), judged.on_side(Side.UNPROTECTED)
        if of == "ranking":
            judged.memo[of] = _of_rankings(judged)
        elif not set(judged.grades[protected].tolist()) & set(judged.grades[unprotected].tolist()):
            judged.memo[of] = Undefined("no_common_grade")
        elif any(encounter.behind for encounter in judged.encounters or ()):
            judged.memo[of] = _of_choices(judged)
        else:
            judged.memo[of] = _compared(judged, protected, unprotected, np.equal)
    value = judged.memo[of]
    if stratum != "none" and isinstance(value, QueryComparisons):
        value = replace(value, stratum=Stratum(stratum))
    return value


def shared_strata(items: Iterable[tuple[Side | None, bool]]) -> list[Stratum]:
    """The strata that both groups have items of, where there are two; of the side of items, and whether relevant."""
    seen = {*items}
    shared = [
        stratum
        for stratum, relevant in ((Stratum.RELEVANT, True), (Stratum.IRRELEVANT, False))
        if {(Side.PROTECTED, relevant), (Side.UNPROTECTED, relevant)} <= seen
    ]
    return shared if len(shared) > 1 else []


def strata_of(values: Iterable[Value], strata: Iterable[Stratum]) -> dict[Stratum, list[Value]]:
    """The queries' values, each once a stratum."""
    values = [*values]
    return {
        stratum: [
            replace(value, stratum=stratum) if isinstance(value, QueryComparisons) else value
            for value in values
        ]
        for stratum in strata
    }


@measure("SlotOdds", **OF_ODDS, aggregate="slot-odds", label="slot odds", worded=True, undefined=REASONS)
def slot_odds(judged: Judged, cutoff: None) -> Values:
    """The odds that of two alike items the one shown first is put ahead of the one shown last."""
    return preference_odds.values(judged, None, of="answers", stratum="none")


@measure(
    "RelevanceOdds", **OF_ODDS, better="higher", aggregate="preference-odds", label="relevance odds",
    worded=True,
    undefined={**REASONS, "no_common_grade": "no list has items of different grades of relevance"},
)  # fmt: skip
def relevance_odds(judged: Judged, cutoff: None) -> Values:
    """The odds that of two items of different grade, shown together for the first time, the better one is ahead."""
    if judged.encounters is None:
        return {}
    if len(np.unique(judged.grades)) < 2:
        return Undefined("no_common_grade")
    everyone = np.ones(len(judged.doc_ids), dtype=bool)
    return _compared(judged, everyone, everyone, np.greater)


def _of_rankings(judged: Judged) -> QueryComparisons | Undefined:
    """All pairs of equal grade in all completed lists; of a cut list judged items alone, and those that it lacks."""
    if not judged.rankings and judged.encounters is None:
        return Undefined("not_ranked")
    doc_ids = (*judged.doc_ids, *judged.missing)
    sides = np.array([judged.sides.get(doc_id) for doc_id in doc_ids], object)
    grades = np.array([judged.candidates.relevance.get(doc_id, 0) for doc_id in doc_ids], np.int64)
    listed = np.arange(len(doc_ids)) < len(judged.doc_ids)
    if any(side is not None for side in sides[~listed]):
        compared = ~listed | np.array([doc_id in judged.candidates.relevance for doc_id in doc_ids])
    else:
        compared = listed
    places = np.full((len(judged.rankings), len(doc_ids)), float(len(doc_ids)))
    for row, ranking, order in zip(places, judged.rankings, judged.orders, strict=True):
        row[listed] = _places(ranking, judged.doc_ids, order)
    protected, other = (np.flatnonzero(compared & (sides == side)) for side in Side)
    make = partial(_pairs, protected, other, grades, listed, places)
    pairs = make()
    if not pairs.size or not judged.rankings:
        return Undefined("no_common_grade")
    tied = sum(int((row[pairs.first] == row[pairs.second]).sum()) for row in places)
    return QueryComparisons(pair_counts(pairs, make), doc_ids, tied=tied / (len(places) * pairs.size))


def _pairs(protected: Places, other: Places, grades: Places, listed: Flags, places: Floats) -> Comparisons:
    """All pairs of equal grade, of which one at least is listed, in rankings whose `places` have shape (runs, n)."""
    equal = grades[protected][:, None] == grades[other]
    first, second = np.nonzero(equal & (listed[protected][:, None] | listed[other]))
    first, second = protected[first], other[second]
    ahead = np.zeros(len(first))
    for row in places:
        ahead += (row[first] < row[second]) + (row[first] == row[second]) / 2
    relevant, query = grades[first] > 0, np.zeros(len(first), np.intp)
    slots = np.broadcast_to(0.0, (len(first), 2))
    ahead /= max(1, len(places))
    return Comparisons(query, relevant, pairs_shown(relevant), 1, first, second, ahead, slots)


def pairs_shown(relevant: Flags) -> dict[tuple[int, Stratum], int]:
    """How many pairs of each stratum a query showed."""
    return {(0, Stratum.RELEVANT): int(relevant.sum()), (0, Stratum.IRRELEVANT): int((~relevant).sum())}


def _places(ranking: Ranking, doc_ids: Sequence[str], order: Places) -> Floats:
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


def _compared(
    judged: Judged, firsts: Flags, seconds: Flags, compare: np.ufunc
) -> QueryComparisons | Undefined:
    """The comparisons of all first encounters: of `firsts` with those `seconds` whose grades `compare`.

    An item that is named is ahead of all named later, put behind or left out; of scored ones the higher, equal ones
    say nothing.
    """
    place_of = {doc_id: place for place, doc_id in enumerate(judged.doc_ids)}
    parts, window = [], 1
    for encounter in judged.encounters or ():
        doc_ids = (*encounter.ranked, *encounter.behind, *encounter.left_out)
        places = np.array([place_of[doc_id] for doc_id in doc_ids], dtype=np.intp)
        of_places = compare(judged.grades[places][:, None], judged.grades[places])
        first, second = np.nonzero(firsts[places][:, None] & seconds[places] & of_places)
        if encounter.scores is not None:
            rank = -np.array(encounter.scores)
        else:
            rank = np.minimum(np.arange(len(doc_ids)), len(encounter.ranked)).astype(float)
        slots = _slots(encounter, doc_ids)
        both = np.stack([slots[first], slots[second]], axis=1)
        parts.append((places[first], places[second], rank[first], rank[second], both))
        window = max(window, len(encounter.shown))
    if not parts:
        return _uncompared(judged)
    first, second, before, after, slots = (np.concatenate(part) for part in zip(*parts, strict=True))
    relevant, compared = judged.grades[first] > 0, before != after
    if not compared.any():
        return _uncompared(judged)
    query, ahead = np.zeros(len(first), np.intp), (before < after).astype(float)
    outcomes = Comparisons(query, relevant, pairs_shown(relevant), window, first, second, ahead, slots)
    return QueryComparisons(outcomes.some(compared), judged.doc_ids)


def _uncompared(judged: Judged) -> Undefined:
    if any(encounter.scores and len(encounter.scores) > 1 for encounter in judged.encounters or ()):
        return Undefined("tied")
    return Undefined("no_encounter" if judged.encounters else "no_readable_answer")


def _of_choices(judged: Judged) -> QueryComparisons | Undefined:
    """Who was chosen among equally relevant items of both groups, in all first encounters.

    What is named next is chosen among those that are left. Which one of some items is chosen does not hang on the
    others that were shown (Luce 1959), so items of other grades and of neither group are left out.
    """
    grades, window = judged.candidates.relevance, 1
    place_of = {doc_id: place for place, doc_id in enumerate(judged.doc_ids)}
    item, of_first, slots = list[int](), list[bool](), list[float]()
    starts, relevant, shown = list[int](), list[bool](), Counter[tuple[int, Stratum]]()
    for encounter in judged.encounters or ():
        doc_ids = (*encounter.ranked, *encounter.behind)
        met = Counter((grades.get(doc_id, 0), judged.sides.get(doc_id)) for doc_id in doc_ids)
        for grade in {grade for grade, _ in met}:
            pairs = met[grade, Side.PROTECTED] * met[grade, Side.UNPROTECTED]
            shown[0, Stratum.RELEVANT if grade > 0 else Stratum.IRRELEVANT] += pairs
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
            starts.append(len(item))
            relevant.append(grade > 0)
            for doc_id, side in zip(among, sides, strict=True):
                if side is not None:
                    item.append(place_of[doc_id])
                    of_first.append(side is Side.PROTECTED)
                    slots.append(stood[doc_id])
            window = max(window, len(encounter.shown))
    if not starts:
        return _uncompared(judged)
    query = np.zeros(len(starts), np.intp)
    alternatives = np.array(starts), np.array(item), np.array(of_first), np.array(slots)
    return QueryComparisons(Choices(query, np.array(relevant), shown, window, *alternatives), judged.doc_ids)


def _slots(encounter: Encounter, doc_ids: Sequence[str]) -> Floats:
    """Where items stood when shown: -1 first, 1 last; shape (items,). 0 each where they were not shown at once."""
    if not encounter.shown:
        return np.zeros(len(doc_ids))
    shown = {doc_id: slot for slot, doc_id in enumerate(encounter.shown)}
    slots = np.array([shown[doc_id] for doc_id in doc_ids], float)
    return 2 * slots / max(1, len(encounter.shown) - 1) - 1
