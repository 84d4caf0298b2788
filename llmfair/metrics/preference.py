"""Preference odds of lists: of two equally relevant items, one of each group, which one the ranker puts ahead.

They are measured where a model saw both for the first time at once (`first encounters`): what later questions show
together was chosen by earlier answers. The slots they stood in come along, since models prefer slots as well. Where a
model was asked for the best alone its choice counts, and where it scored items one by one, the scores' order.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np

from llmfair.metrics.base import (
    Flags,
    Floats,
    Judged,
    Places,
    QueryComparisons,
    Undefined,
    Values,
    measure,
    once,
)
from llmfair.nouns import Encounter, Ranking, Side
from llmfair.stats.strata import Choices, Comparisons, Stratum, pair_counts

OF_ODDS = {
    "parity": 1.0, "bounds": (0.0, math.inf), "scale": "log", "cutoff": "none", "of_all": True,
    "cite": "logistic model of first encounters, slots as a polynomial of degree 4; jackknife over queries",
}  # fmt: skip
REASONS = {
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
    value = _of_rankings(judged) if of == "ranking" else _of_answers(judged)
    if not isinstance(value, QueryComparisons):
        return value
    contrast = None
    if judged.one_fit and judged.contrast:
        contrast = judged.names.index(judged.contrast[0]), judged.names.index(judged.contrast[1])
    return replace(value, contrast=contrast, stratum=None if stratum == "none" else Stratum(stratum))


# The same comparisons whatever the stratum, and in one fit whatever the contrast.


@once
def _of_answers(judged: Judged) -> QueryComparisons | Undefined:
    groups, grades = _groups(judged, judged.doc_ids), judged.grades
    # of equal grade and of different groups, the first of the one before; shape (n, n)
    pairs = (grades[:, None] == grades) & (groups[:, None] < groups) & (groups[:, None] >= 0)
    if not pairs.any():
        return Undefined("no_common_grade")
    if any(encounter.behind for encounter in judged.encounters or ()):
        return _of_choices(judged)
    return _compared(judged, pairs, groups if judged.one_fit else None)


def _groups(judged: Judged, doc_ids: Sequence[str]) -> Places:
    """Each item's group in the order of names, or side, protected ones before others; -1 of none; shape (n,)."""
    if judged.one_fit and judged.members is not None:
        names = {name: number for number, name in enumerate(judged.names)}
        return np.array([names.get(judged.members.get(doc_id) or "", -1) for doc_id in doc_ids], np.intp)
    sides = {None: -1, Side.PROTECTED: 0, Side.UNPROTECTED: 1}
    return np.array([sides[judged.sides.get(doc_id)] for doc_id in doc_ids], np.intp)


@measure(
    "GroupOdds", **OF_ODDS, aggregate="preference-odds", label="odds of a group", worded=True, undefined=REASONS
)  # fmt: skip
def group_odds(judged: Judged, cutoff: None) -> Values:
    """The odds of a group's items against the mean of all groups, from the one fit of all: each group weighs alike."""
    if not judged.one_fit:
        return {}
    value = preference_odds.values(judged, None, of="answers", stratum="none").get("")
    if not isinstance(value, QueryComparisons):
        return {}
    return {name: replace(value, contrast=(place, place)) for place, name in enumerate(judged.names)}


def shared_strata(items: Iterable[tuple[Side | None, bool]]) -> list[Stratum]:
    """The strata that both groups have items of, where there are two; of the side of items, and whether relevant."""
    seen = {*items}
    shared = [
        stratum
        for stratum, relevant in ((Stratum.RELEVANT, True), (Stratum.IRRELEVANT, False))
        if {(Side.PROTECTED, relevant), (Side.UNPROTECTED, relevant)} <= seen
    ]
    return shared if len(shared) > 1 else []


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
    return _compared(judged, np.greater(judged.grades[:, None], judged.grades))


@once
def _of_rankings(judged: Judged) -> QueryComparisons | Undefined:
    """All pairs of equal grade in all completed lists; of a cut list judged items alone, and those that it lacks."""
    if not judged.rankings and judged.encounters is None:
        return Undefined("not_ranked")
    doc_ids = (*judged.doc_ids, *judged.missing)
    groups = _groups(judged, doc_ids)
    grades = np.array([judged.candidates.relevance.get(doc_id, 0) for doc_id in doc_ids], np.int64)
    listed = np.arange(len(doc_ids)) < len(judged.doc_ids)
    if (groups[~listed] >= 0).any():
        compared = ~listed | np.array([doc_id in judged.candidates.relevance for doc_id in doc_ids])
    else:
        compared = listed
    places = np.full((len(judged.rankings), len(doc_ids)), float(len(doc_ids)))
    for row, ranking, order in zip(places, judged.rankings, judged.orders, strict=True):
        row[listed] = _places(ranking, judged.doc_ids, order)
    groups = np.where(compared, groups, -1)
    make = partial(_pairs, groups, grades, listed, places, judged.one_fit)
    pairs = make()
    if not pairs.size or not judged.rankings:
        return Undefined("no_common_grade")
    tied = sum(int((row[pairs.first] == row[pairs.second]).sum()) for row in places)
    return QueryComparisons(pair_counts(pairs, make), doc_ids, tied=tied / (len(places) * pairs.size))


def _pairs(groups: Places, grades: Places, listed: Flags, places: Floats, several: bool) -> Comparisons:
    """All pairs of equal grade, of which one at least is listed, in rankings whose `places` have shape (runs, n)."""
    before, after = np.flatnonzero((groups >= 0) & (groups < groups.max())), np.flatnonzero(groups > 0)
    pairs = (grades[before][:, None] == grades[after]) & (listed[before][:, None] | listed[after])
    first, second = np.nonzero(pairs & (groups[before][:, None] < groups[after]) if several else pairs)
    first, second = before[first], after[second]
    ahead = np.zeros(len(first))
    for row in places:
        ahead += (row[first] < row[second]) + (row[first] == row[second]) / 2
    relevant, query = grades[first] > 0, np.zeros(len(first), np.intp)
    slots = np.broadcast_to(0.0, (len(first), 2))
    ahead /= max(1, len(places))
    of_both = np.stack([groups[first], groups[second]], axis=1) if several else None
    return Comparisons(query, relevant, pairs_shown(relevant), 1, first, second, ahead, slots, groups=of_both)


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
    first = dict[float, float]()
    for place in order:
        score = scores.get(doc_ids[place])
        if score is not None:
            places[place] = first.setdefault(score, places[place])
    return places


def _compared(judged: Judged, pairs: Flags, groups: Places | None = None) -> QueryComparisons | Undefined:
    """The comparisons of all first encounters, of two candidates that are `pairs`, shape (n, n).

    An item that is named is ahead of all named later, put behind or left out; of scored ones the higher, equal ones
    say nothing.
    """
    parts, window = [], 1
    for encounter in judged.encounters or ():
        doc_ids = (*encounter.ranked, *encounter.behind, *encounter.left_out)
        places = np.array([judged.places[doc_id] for doc_id in doc_ids], dtype=np.intp)
        first, second = np.nonzero(pairs[np.ix_(places, places)])
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
    of_both = None if groups is None else np.stack([groups[first], groups[second]], axis=1)
    outcomes = Comparisons(
        query, relevant, pairs_shown(relevant), window, first, second, ahead, slots, groups=of_both
    )
    return QueryComparisons(outcomes.some(compared), judged.doc_ids)


def _uncompared(judged: Judged) -> Undefined:
    if any(encounter.scores and len(encounter.scores) > 1 for encounter in judged.encounters or ()):
        return Undefined("tied")
    return Undefined("no_encounter" if judged.encounters else "no_readable_answer")


def _of_choices(judged: Judged) -> QueryComparisons | Undefined:
    """Who was chosen among equally relevant items of different groups, in all first encounters.

    What is named next is chosen among those that are left. Which one of some items is chosen does not hang on the
    others that were shown (Luce 1959), so items of other grades and of neither group are left out.
    """
    grades, window = judged.candidates.relevance, 1
    group_of = dict(zip(judged.doc_ids, _groups(judged, judged.doc_ids).tolist(), strict=True))
    item, of_alternatives, slots = list[int](), list[int](), list[float]()
    starts, relevant, shown = list[int](), list[bool](), Counter[tuple[int, Stratum]]()
    for encounter in judged.encounters or ():
        doc_ids = (*encounter.ranked, *encounter.behind)
        met = Counter(
            (grades.get(doc_id, 0), group) for doc_id in doc_ids if (group := group_of[doc_id]) >= 0
        )
        for one, other in combinations(met, 2):
            if one[0] == other[0]:
                shown[0, Stratum.RELEVANT if one[0] > 0 else Stratum.IRRELEVANT] += met[one] * met[other]
        stood = dict(zip(encounter.shown, _slots(encounter, encounter.shown).tolist(), strict=True))
        for number, chosen in enumerate(encounter.ranked):
            if group_of[chosen] < 0:
                continue
            grade = grades.get(chosen, 0)
            among = [doc_id for doc_id in doc_ids[number:] if grades.get(doc_id, 0) == grade]
            groups = [group_of[doc_id] for doc_id in among]
            if len({*groups} - {-1}) < 2:
                continue
            starts.append(len(item))
            relevant.append(grade > 0)
            for doc_id, group in zip(among, groups, strict=True):
                if group >= 0:
                    item.append(judged.places[doc_id])
                    of_alternatives.append(group)
                    slots.append(stood[doc_id])
            window = max(window, len(encounter.shown))
    if not starts:
        return _uncompared(judged)
    query, of_each = np.zeros(len(starts), np.intp), np.array(of_alternatives)
    alternatives = np.array(starts), np.array(item), of_each == 0, np.array(slots)
    several = of_each if judged.one_fit else None
    outcomes = Choices(query, np.array(relevant), shown, window, *alternatives, groups=several)
    return QueryComparisons(outcomes, judged.doc_ids)


def _slots(encounter: Encounter, doc_ids: Sequence[str]) -> Floats:
    """Where items stood when shown: -1 first, 1 last; shape (items,). 0 each where they were not shown at once."""
    if not encounter.shown:
        return np.zeros(len(doc_ids))
    shown = {doc_id: slot for slot, doc_id in enumerate(encounter.shown)}
    slots = np.array([shown[doc_id] for doc_id in doc_ids], float)
    return 2 * slots / max(1, len(encounter.shown) - 1) - 1
