"""What measures read of a query, from its lists and outputs: of an audit, or of its run folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from llmfair.audits.condition import Condition
from llmfair.audits.rag.attribution import ATTRIBUTORS
from llmfair.audits.rag.design import RagDesign
from llmfair.audits.rag.judging import probe_of, supporting
from llmfair.audits.rag.policies import DETERMINISTIC, Policies
from llmfair.audits.rag.settings import CITED
from llmfair.metrics.retrieved import Retrieved, ShownList
from llmfair.nouns import Query
from llmfair.rankers.reader import Read, Shown
from llmfair.rankers.support import Judged


@dataclass(frozen=True, slots=True)
class Credited:
    """An output, its utility, and the shown items that it is credited to; None where nobody asked.

    `supported`: of those it cites, the ones that a judge says support it.
    """

    text: str
    utility: float
    credited: frozenset[str] | None
    supported: frozenset[str] | None = None


def answered_queries(design: RagDesign, results: Mapping[str, Read]) -> list[tuple[Query, Read]]:
    """The queries that have all their answers."""
    found = ((query, results.get(query.query_id)) for query in design.queries)
    return [(query, read) for query, read in found if read is not None]


def kept_queries(design: RagDesign, results: Mapping[str, Read]) -> list[tuple[Query, Read]]:
    """Those of them that are measured: with enough useful items, and asked about lists."""
    return [(query, read) for query, read in answered_queries(design, results) if read.kept and read.lists]


def observations_of(
    design: RagDesign, results: Mapping[str, Read], judged: Mapping[str, Judged]
) -> Iterator[tuple[str, Retrieved]]:
    """What measures read of an audit, query by query, each under every condition."""
    for query, read in kept_queries(design, results):
        outputs = credited_outputs(design, query, read, judged)
        yield from observed(
            design.policies(query), design.conditions, read.useful, outputs, design.uncredited
        ).items()


def credited_outputs(
    design: RagDesign, query: Query, read: Read, judged: Mapping[str, Judged]
) -> dict[Shown, Credited]:
    """The outputs for the lists of a query, with the items that they are credited to."""
    items = {item.doc_id: item for item in design.items(query)}
    attribute = ATTRIBUTORS.get(CITED if design.cites else design.settings.attribution)
    credit, asked = attribute(items) if attribute else None, judged.get(probe_of(query))
    found = {}
    for shown, output in read.lists.items():
        supported = supporting(asked, design.pairs(query, output.text, shown)) if asked else None
        credited = credit(design.meaning(query, output.text), shown) if credit else supported
        found[shown] = Credited(output.text, output.utility, credited, supported if credit else None)
    return found


def observed(
    policies: Policies,
    conditions: Sequence[Condition],
    useful: frozenset[str],
    outputs: Mapping[Shown, Credited] | None,
    uncredited: str | None = None,
) -> dict[str, Retrieved]:
    """One query under every condition, once it has the outputs of all its lists; {} before.

    `outputs` None: nobody asked for any, and what is shown is all there is. `uncredited`: why nothing is credited,
    where that is so.
    """
    drawn = policies.drawn(conditions, useful)
    if outputs is not None and any(shown not in outputs for lists in drawn.values() for shown in lists):
        return {}
    known = outputs or {}
    best = {
        one.factors["retriever"]: known[first].utility
        for one in conditions
        if one.factors["alpha"] == DETERMINISTIC and (first := next(iter(drawn[one.name]))) in known
    }
    # of its lists: a run folder has what was said beside single items, too
    utilities = (known[shown].utility for lists in drawn.values() for shown in lists if shown in known)
    ceiling = max(utilities, default=None)
    return {
        one.name: Retrieved(
            query_id=policies.query_id,
            doc_ids=policies.doc_ids,
            useful=useful,
            k=policies.k,
            exposure=policies.exposure(one, useful),
            lists=tuple(
                _shown_list(shown, count, known.get(shown)) for shown, count in drawn[one.name].items()
            ),
            baseline=best.get(one.factors["retriever"]),
            ceiling=ceiling,
            **({"uncredited": uncredited} if uncredited else {}),
        )
        for one in conditions
    }


def _shown_list(shown: Shown, count: int, output: Credited | None) -> ShownList:
    if output is None:
        return ShownList(shown, count, None, None)
    return ShownList(shown, count, output.text, output.utility, output.credited, output.supported)
