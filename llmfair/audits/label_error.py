"""What relevance grades leave open: that they are wrong, or that there are none.

Wrong grades alone put a ranker without preference away from parity: how far, beside a disparity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from llmfair.errors import UsageError
from llmfair.nouns import BETWEEN, Attribute, Candidates, Side
from llmfair.results import LabelError
from llmfair.stats.label_error import Judgements, explaining_share, largest_wrong, odds_of_a_fair_ranker

Judged = Mapping[str, tuple[int, int]]
"""Items of each group, and how many of them are judged relevant."""


def judged_of(lists: Iterable[Candidates], attribute: Attribute) -> dict[str, tuple[int, int]]:
    """How many items of each side or group the lists have, and how many are relevant; an item counts in each list."""
    counts = {group: [0, 0] for group in attribute.groups or [side.value for side in Side]}
    for candidates in lists:
        for document in candidates.documents:
            if (group := attribute.group(document)) is not None:
                counts[group][0] += 1
                counts[group][1] += candidates.relevance.get(document.doc_id, 0) >= 1
    return {group: (items, relevant) for group, (items, relevant) in counts.items()}


def judged_between(judged: Judged, contrast: str) -> Judged:
    """The same of the two sides of a contrast of several groups, of which the second may be all others."""
    if not contrast:
        return judged
    first = next(group for group in judged if contrast.startswith(f"{group}{BETWEEN}"))
    second = contrast.removeprefix(f"{first}{BETWEEN}")
    others = [judged[second]] if second in judged else [of for group, of in judged.items() if group != first]
    sums = (sum(items for items, _ in others), sum(relevant for _, relevant in others))
    return dict(zip((side.value for side in Side), (judged[first], sums), strict=True))


def label_error(judged: Judged, better_ahead: float | None, stratum: str, limit: float) -> LabelError | None:
    """The share of wrong grades that alone would explain odds beyond this limit; None where shares are equal.

    `stratum`: of which items the odds are, "all" of both. `limit`: the nearer to 1 of their interval. `better_ahead`:
    in which share of pairs of unequal grade the better graded is ahead, None where none were compared.
    """
    groups = _groups(judged)
    if groups is None or groups[0].share == groups[1].share:
        return None
    share = explaining_share(
        lambda wrong: _odds(*groups, better_ahead, wrong)[stratum], limit, largest_wrong(*groups)
    )
    return LabelError(share, better_ahead is None)


def odds_with(wrong: float, judged: Judged, better_ahead: float | None) -> dict[str, float]:
    """The odds that a ranker without preference reads with this share of grades wrong. Raises UsageError."""
    groups = _groups(judged)
    most = 0.0 if groups is None else largest_wrong(*groups)
    if groups is None or wrong >= most:
        raise UsageError(
            f"--label-error {wrong:g}: of a group only {100 * most:.2g} % of items are relevant, or are not.",
            f"a share below {most:.2g}, or leave it out",
        )
    return _odds(*groups, better_ahead, wrong)


def odds_text(wrong: float, odds: str) -> str:
    """The odds that so large a share of wrong grades could make."""
    return (
        f"with {100 * wrong:g} % of relevance grades wrong a ranker without preference reads odds as far from 1 as "
        f"{odds}"
    )


def _odds(
    protected: Judgements, other: Judgements, better_ahead: float | None, wrong: float
) -> dict[str, float]:
    """A fair ranker's odds by stratum, and of "all" items: over the pairs of either stratum, one of each group."""
    odds = odds_of_a_fair_ranker(protected, other, better_ahead, wrong)
    pairs = (
        protected.relevant * other.relevant,
        (protected.items - protected.relevant) * (other.items - other.relevant),
    )
    ahead = sum(n * each / (1 + each) for n, each in zip(pairs, odds, strict=True)) / sum(pairs)
    return {"relevant": odds.relevant, "irrelevant": odds.irrelevant, "all": ahead / (1 - ahead)}


def _groups(judged: Judged) -> tuple[Judgements, Judgements] | None:
    """Both groups; None unless each has relevant items and others."""
    protected, other = (Judgements(*judged.get(side.value, (0, 0))) for side in Side)
    both = all(0 < group.relevant < group.items for group in (protected, other))
    return (protected, other) if both else None
