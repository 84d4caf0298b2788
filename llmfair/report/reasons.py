"""Why a figure is missing or says nothing, in words."""

from __future__ import annotations

REASONS = {
    "order_not_random": "the input order is not random",
    "too_few_queries": "too few queries",
    "no_common_grade": "the sides share no grade of relevance",
    "no_readable_answer": "no readable answer",
    "position_driven": "the answers follow the position",
    "out_of_reach": "the interval is wider than what any preference shows here",
    "undefined": "undefined",
    "one_sided": "one side's items always win, so that their odds have no bound",
    "degenerate": "the answers do not vary",
    "too_few_consistent_pairs": "too few pairs that do not flip",
    "no_valid_answer": "no readable answer",
    "no_protected_win": "no consistent win of the protected side",
    "no_unprotected_win": "no consistent win of the unprotected side",
    "no_consistent_pair": "no pair that does not flip",
    "too_few_pairs": "too few readable pairs",
    "no_pairs": "no pairs",
    "interval_too_wide": "the interval has no bounds at this level",
    "forced": "answers were held to the labels",
}


def in_words(reason: str | None) -> str:
    """A reason of `results.json`; one that has no words stands as it is."""
    return REASONS.get(reason or "", str(reason))
