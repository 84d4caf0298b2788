"""How an audit of a generator is made and concluded, in the report's words."""

from __future__ import annotations

WORDS = (
    "A retriever scores every item of a query. Instead of always showing the same best k, lists are drawn from a "
    "Plackett-Luce model of its scores: alpha 0 shows every item alike often, a large alpha nearly always the best k. "
    "The generator answers each distinct list once.",
    "An item is useful where the answer is better with it alone than without any (its gain), or where it is judged "
    "relevant. Expected exposure is the exact probability that an item is shown. EE-D says how unequally exposure is "
    "spread over items (1: always the same ones, 0: all alike), EE-R how much of it useful items get.",
    "EU is the mean utility of the answers over the lists drawn, EU-change the same less that of the retriever's one "
    "list by score, paired by query. Utility is kept where the whole interval of the change is at least minus the "
    "margin; where fewer than 5 queries change at all, it takes that the share of queries that may change could "
    "lose no more than the margin.",
    "An answer is credited to shown items that hold it, or that it cites: EAR is their share of the slots, EAE-D how "
    "unequally credit is spread over items.",
)
