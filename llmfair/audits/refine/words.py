"""How an audit of query refinement is made and concluded, in the report's words."""

from __future__ import annotations

WORDS = (
    "Each topic's query finds a first page by BM25. The shares of the groups on it are held against a target; a model "
    "is asked for keywords about the group that is furthest below, the query with these words finds the next page, and "
    "so on while the objective improves [Chen & Fang 2025, FAIR-QR]. The page before the first that does not improve "
    "is kept. bm25 is the page of the original query, refined the page that was kept, fair-qr the documents of that "
    "page in the order of the original query.",
    "The loop ends when no page of whole documents could be nearer the target (attained), when no group is below its "
    "target (no_underrepresented_group) or unknown alone is, which no word names (unknown_underrepresented; with "
    "--allow-unknown, as in the paper, it is asked for), when neither a reply nor the one asked again names keywords, "
    "when all keywords stand in the query (no_keywords), when a round comes no nearer (no_decrease), or after the last "
    "round (max_iterations).",
    "The target is told to the loop and is what its figures are measured against. The empirical one comes from the "
    "judgements of these very topics, which no search engine has.",
    "Baselines order anew what the original query finds, by documents, groups and BM25 scores; those that learn are "
    "cross-fitted by query, so that no query is ordered by a model that saw its judgements.",
    "Conclusions are paired by query, fair-qr less bm25: nearer where the objective and AWRF improve with the whole of "
    "their intervals, at a loss where the whole interval of nDCG's change lies below 0. p-values flip the signs of the "
    "queries' changes, adjusted (Holm) over the methods that fair-qr is held against.",
)
