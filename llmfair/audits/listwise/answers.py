"""How answers ended, counted per condition: nothing unparseable, repaired or left out stays silent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from llmfair.audits.listwise.results import EqualScores, FirstPass, OmittedItems, WindowAnswers
from llmfair.audits.readable import EQUAL_SCORES
from llmfair.nouns import Side
from llmfair.rankers.strategy import Ranked, WindowAnswer

FEWEST_WINDOWS, NEARLY_ALL = 10, 0.9
MISSING_TELLS = 0.1
"""From so many items missing per answer on, it matters whose they are."""


def answer_counts(
    ranked: Iterable[tuple[str, Ranked]], sides: Mapping[str, Side | None], constrained: bool = False
) -> dict[str, WindowAnswers]:
    """Per condition, of `(condition, result)` pairs: classes, repaired, unparseable, identity, omissions by side.

    `first_pass.same`: windows of the first pass whose answer orders the places as most answers do, whatever stands
    there. `classes` are those of the answers that counted; `asked_again` those of bad answers that another replaced.

    `equal_scores` where there are some; `unformed` where answers were `constrained` to a form, and some have another.

    `omitted.protected_expected` is what the omitted items would hold if sides were left out alike: an answer
    that drops one group is repaired, but not into innocence.
    """
    lists: dict[str, list[Ranked]] = {}
    for condition, result in ranked:
        lists.setdefault(condition, []).append(result)
    return {condition: _counts(of_it, sides, constrained) for condition, of_it in sorted(lists.items())}


def _counts(lists: list[Ranked], sides: Mapping[str, Side | None], constrained: bool) -> WindowAnswers:
    windows = [window for result in lists for window in result.windows]
    unformed = sum(not window.formed for window in windows) if constrained else 0
    places: dict[str, Counter[str]] = {}
    omitted = protected = 0
    expected = 0.0
    for window in windows:
        places.setdefault(window.place, Counter())[window.answer_class] += 1
        if window.omitted:
            omitted += len(window.omitted)
            protected += _protected(window.omitted, sides)
            expected += len(window.omitted) * _protected(window.shown, sides) / len(window.shown)
    # of a list that is in order already, later passes rightly change nothing; an item alone has but one order
    first = [window for window in windows if window.pass_number == 1 and len(window.shown) > 1]
    return WindowAnswers(
        windows=len(windows),
        classes=dict(sorted(Counter(str(window.answer_class) for window in windows).items())),
        repaired=sum(window.repaired for window in windows),
        unparseable=sum(window.unparseable for window in windows),
        identity=sum(window.identity for window in windows),
        first_pass=FirstPass(len(first), sum(window.identity for window in first), _same(first)),
        asked_again=dict(sorted(Counter(str(bad) for w in windows for bad in w.replaced).items())),
        readers_differ=sum(window.readers_differ for window in windows),
        places={place: dict(sorted(counts.items())) for place, counts in sorted(places.items())},
        omitted=OmittedItems(omitted, protected, round(expected, 6)),
        equal_scores=_equal_scores(lists),
        unformed=unformed or None,
    )


def _equal_scores(lists: Iterable[Ranked]) -> EqualScores | None:
    """How many of the lists with two scores or more have but one; None where there are none."""
    scores = (
        [score for w in result.windows for score in w.scores or () if score is not None] for result in lists
    )
    equal = [len({*of_list}) == 1 for of_list in scores if len(of_list) > 1]
    return EqualScores(sum(equal), len(equal)) if any(equal) else None


def _same(windows: Iterable[WindowAnswer]) -> int:
    """How many answers give the commonest order of places; windows of other lengths for themselves."""
    orders: dict[int, Counter[tuple[int, ...]]] = {}
    for window in windows:
        if window.permutation is not None:
            orders.setdefault(len(window.permutation), Counter())[window.permutation] += 1
    return sum(max(found.values()) for found in orders.values())


def unassessed(counts: WindowAnswers) -> str | None:
    """Why a condition's answers say nothing of the sides, however near parity the lists are; None where they may.

    A model that always gives the same order of places, the window's own or another, reads nothing: its lists are the
    random ones it was shown, which are at parity.
    """
    if 0 < counts.windows == counts.unparseable:
        return "no_readable_answer"
    if counts.equal_scores and counts.equal_scores.lists == counts.equal_scores.of:
        return EQUAL_SCORES
    first = counts.first_pass
    if first.windows >= FEWEST_WINDOWS and first.same >= NEARLY_ALL * first.windows:
        return "position_driven"
    return None


def missing_unevenly(counts: WindowAnswers) -> bool:
    """Whether answers leave out items of one group more than chance would: they are put last and compared with none.

    Counted from one item in ten answers on, and where the share of a group is off by more than two standard errors
    and a tenth.
    """
    omitted = counts.omitted
    if not omitted.items or omitted.items < MISSING_TELLS * counts.windows:
        return False
    expected = omitted.protected_expected / omitted.items
    off = abs(omitted.protected / omitted.items - expected)
    return off > 0.1 and off > 2 * (expected * (1 - expected) / omitted.items) ** 0.5


def _protected(doc_ids: Iterable[str], sides: Mapping[str, Side | None]) -> int:
    return sum(sides[doc_id] is Side.PROTECTED for doc_id in doc_ids)
