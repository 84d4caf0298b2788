"""What measures read of a query, from its lists and outputs: of an audit, or of its run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llmfair.audits.condition import Condition
from llmfair.audits.rag.policies import DETERMINISTIC, Policies
from llmfair.metrics.retrieved import Retrieved, ShownList
from llmfair.rankers.reader import Shown


@dataclass(frozen=True, slots=True)
class Credited:
    """An output, its utility, and the shown items that it is credited to; None where nobody asked."""

    text: str
    utility: float
    credited: frozenset[str] | None


def observed(
    policies: Policies,
    conditions: Sequence[Condition],
    useful: frozenset[str],
    outputs: Mapping[Shown, Credited],
    uncredited: str | None = None,
) -> dict[str, Retrieved]:
    """One query under every condition; `outputs` has those of all its lists, `uncredited` why none is credited."""
    drawn = policies.drawn(conditions, useful)
    best = {
        one.factors["retriever"]: outputs[next(iter(drawn[one.name]))].utility
        for one in conditions
        if one.factors["alpha"] == DETERMINISTIC
    }
    ceiling = max(output.utility for output in outputs.values())
    return {
        one.name: Retrieved(
            query_id=policies.query_id,
            doc_ids=policies.doc_ids,
            useful=useful,
            k=policies.k,
            exposure=policies.exposure(one, useful),
            lists=tuple(
                _shown_list(shown, count, outputs[shown]) for shown, count in drawn[one.name].items()
            ),
            baseline=best.get(one.factors["retriever"]),
            ceiling=ceiling,
            **({"uncredited": uncredited} if uncredited else {}),
        )
        for one in conditions
    }


def _shown_list(shown: Shown, count: int, output: Credited) -> ShownList:
    return ShownList(shown, count, output.text, output.utility, output.credited)
