"""How far wrong relevance grades alone would put a ranker without preference from parity, beside a disparity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from llmfair.errors import UsageError
from llmfair.nouns import Attribute, Candidates, Side
from llmfair.results import LabelError
from llmfair.stats.label_error import Judgements, explaining_share, largest_wrong, odds_of_a_fair_ranker

Judged = Mapping[str, tuple[int, int]]
"""Items of each group, and how many of them are judged relevant."""


def judged_of(lists: Iterable[Candidates], attribute: Attribute) -> dict[str, tuple[int, int]]:
    """How many items of each group the lists have, and how many are relevant; an item counts in each list."""
    counts = {side.value: [0, 0] for side in Side}
    for candidates in lists:
        for document in candidates.documents:
            if (side := attribute.side(document)) is not None:
                counts[side.value][0] += 1
                counts[side.value][1] += candidates.relevance.get(document.doc_id, 0) >= 1
    return {side: (items, relevant) for side, (items, relevant) in counts.items()}


def label_error(judged: Judged, better_ahead: float | None, stratum: str, limit: float) -> LabelError | None:
    """The share of wrong grades that alone would explain odds beyond this limit; None where shares are equal.

    `limit`: the nearer to 1 of the odds' interval. `better_ahead`: in which share of pairs of unequal grade the better
    graded is ahead, None where none were compared.
    """
    groups = _groups(judged)
    if groups is None or groups[0].share == groups[1].share:
        return None
    share = explaining_share(
        lambda wrong: getattr(odds_of_a_fair_ranker(*groups, better_ahead, wrong), stratum),
        limit,
        largest_wrong(*groups),
    )
    return LabelError(share, better_ahead is None)


def odds_with(wrong: float, judged: Judged, better_ahead: float | None) -> dict[str, float]:
    """The odds that a ranker without preference reads with this share of grades wrong. Raises UsageError."""
    groups = _groups(judged)
    if groups is None:
        raise UsageError(
            "--label-error: no grade can be wrong unless both groups have relevant items and others.",
            "leave it out",
        )
    most = largest_wrong(*groups)
    if wrong >= most:
        raise UsageError(
            f"--label-error {wrong:g}: of a group only {100 * most:.2g} % of items are relevant, or are not.",
            f"a share below {most:.2g}",
        )
    odds = odds_of_a_fair_ranker(*groups, better_ahead, wrong)
    return {"relevant": odds.relevant, "irrelevant": odds.irrelevant}


def _groups(judged: Judged) -> tuple[Judgements, Judgements] | None:
    """Both groups; None unless each has relevant items and others."""
    protected, other = (Judgements(*judged.get(side.value, (0, 0))) for side in Side)
    both = all(0 < group.relevant < group.items for group in (protected, other))
    return (protected, other) if both else None
