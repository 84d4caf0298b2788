"""The central ranking of the orders that are asked anyway."""

from __future__ import annotations

from collections.abc import Sequence

from llmfair.errors import UsageError
from llmfair.mitigation.remedy import OTHERS, Merger, Merging
from llmfair.mitigation.unmitigated import Unmitigated
from llmfair.rankers.consensus import consensus
from llmfair.registry import register


@register("remedy", "consensus")
class Consensus(Merging):
    title = "consensus"
    does = (
        "The rankings of a list from its different initial orders become one, that with the least sum of Kendall "
        "distances to them (permutation self-consistency, Tang et al., arXiv 2310.07712). Noise cancels; what all "
        "orders share stays, a preference too."
    )

    def merger(self, run: Unmitigated) -> tuple[Merger, Sequence[str]]:
        if not run.prompted:
            raise UsageError(
                f"{run.model} ranks a list alike in whatever order it comes: nothing is to be merged.", OTHERS
            )
        if max(map(len, run.orders.values())) < 2:
            raise UsageError(
                "the run ranked each list once, and a consensus takes several orders.", run.again(orders=3)
            )
        return consensus, ()
