"""Greedy re-ranking of the run's rankings towards a target."""

from __future__ import annotations

from llmfair.mitigation.remedy import Reranking
from llmfair.registry import register


@register("remedy", "greedy")
class Greedy(Reranking):
    title = "greedy"
    ranker = "greedy"
    does = (
        "The next item is the one with the best of λ · place − (1 − λ) · KL of the page and the target (λ = 0.5). Its "
        "target is the share of groups among the query's relevant items, so it is told what others have to find out."
    )
