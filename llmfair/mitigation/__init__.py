"""Remedies for a listwise run, side by side: what each buys and costs, on the same queries."""

NONE = "none"
"""What the unmitigated rankings are called among the remedies."""
ODDS, ANSWERS, RATIO, UTILITY, PAGE, CONSISTENCY = (
    "PreferenceOdds(of=ranking)", "PreferenceOdds", "ExpRatio", "nDCG@20", "AWRF@20", "Consistency",
)  # fmt: skip
"""Of the final rankings, of the answers behind them, and what else is told of each remedy."""
MEASURED = (ODDS, RATIO, UTILITY, PAGE, CONSISTENCY)
