"""FA*IR over the run's rankings."""

from __future__ import annotations

from llmfair.mitigation.remedy import Reranking
from llmfair.registry import register


@register("remedy", "fair-star")
class FairStar(Reranking):
    title = "FA*IR"
    ranker = "fair-star"
    does = (
        "No beginning of a ranking has fewer protected items than chance would leave of a share p (FA*IR, Zehlike et "
        "al. 2017; p = 0.3, α = 0.15, k = 400 unless fair-star:p=… says otherwise). It moves what a ranking has "
        "against a share, and reads no judgement."
    )
