"""What a report says of listwise audits."""

from __future__ import annotations

from llmfair.audits.listwise.results import ListwiseResults
from llmfair.report.tables import count

TITLES = {"initial": "initial ranking"}
"""Conditions that are not called by their names."""
WORDS = (
    "The model orders every candidate list under a neutral prompt and under prompts that name each group. A "
    "window slides from the end of the list to its head; what the model puts first in one window is carried "
    "into the next.",
    "Exposure of the item at rank a is 1 / ln(1 + a): the head weighs most. Each group's exposure is the mean "
    "over its items; the ratio of the protected group's to the other's is 1 at parity, wherever relevance is "
    "spread alike.",
    "Conclusions speak of preference odds: those with which the model puts a protected item ahead of an equally "
    "relevant other one where it sees both for the first time at once, whatever slots they stand in. They are "
    "fitted by a logistic model with a smooth effect of the slot, each query weighing alike; what later windows "
    "show together was chosen by earlier answers, so it does not count. That the odds lie within the band is said "
    "only of a ranker that orders by relevance better than its initial order does.",
    "Each query is one unit: intervals and tests go over queries. p is adjusted (Holm) over the family that "
    "the notes below the table name.",
)


def by_places(results: ListwiseResults, condition: str) -> str:
    """What it is that answers follow the position, counted."""
    first = results.answers[condition].first_pass
    return (
        f"{first.same:,} of {count(first.windows, 'answer')} of the first pass put the places in the same order, "
        "whatever stood there, so a ratio near 1 is no parity"
    )
