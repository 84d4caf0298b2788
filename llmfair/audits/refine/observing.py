"""What measures read of a page: of an audit while it runs, and of its run folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmfair.audits.summary import value_of
from llmfair.metrics.base import Groups, Judged, Measure
from llmfair.nouns import Attribute, Candidates, Document, Qrels, Query, Ranking


@dataclass(frozen=True)
class Pages:
    """Judgements and groups, which make a page a judged list. Nothing of a document is looked at but its groups."""

    attribute: Attribute
    groups: Groups
    qrels: Qrels

    def judged(self, query_id: str, doc_ids: Sequence[str]) -> Judged:
        """A page, best first; its candidates are what it holds, by id."""
        listed = [self._document(doc_id) for doc_id in sorted(doc_ids)]
        sides = {document.doc_id: self.attribute.side(document) for document in listed}
        return Judged(
            Candidates(Query(query_id, ""), tuple(listed), self.qrels.get(query_id, {})),
            (Ranking(query_id, tuple(doc_ids)),),
            {doc_id: side for doc_id, side in sides.items() if side is not None},
            groups=self.groups,
        )

    def value(self, measure: Measure, query_id: str, doc_ids: Sequence[str]) -> float | None:
        """A measure of one page; None where it has none."""
        return value_of(measure.values(self.judged(query_id, doc_ids))[""])[0]

    def _document(self, doc_id: str) -> Document:
        return self.groups.documents.get(doc_id) or Document(doc_id, "")
