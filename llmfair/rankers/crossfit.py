"""Rankers that learn from judged lists, cross-fitted: no query is scored by a model that saw its judgements.

The queries are dealt into folds; those of one fold are scored by the model of the others. A query that is in no fold,
since nothing of it is judged, is scored by the model of all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock

import numpy as np

from llmfair.errors import UsageError
from llmfair.io.files import encode
from llmfair.nouns import Candidates
from llmfair.rankers.base import ScoringRanker

FOLDS = 5
POOL = 200
"""Documents of a searched topic that are learnt from, and ordered."""

Model = Callable[[Candidates], Sequence[float]]
"""Gives each candidate a score, in their order."""
Fit = Callable[[Sequence[Candidates]], Model]
"""Learns a model from lists with judgements."""


def folds(query_ids: Iterable[str], count: int = FOLDS, seed: int = 0) -> Mapping[str, int]:
    """The fold of each query: of sizes that differ by one at most, drawn from the seed whatever order they come in.

    With fewer queries than folds each has its own.
    """
    ordered = sorted(set(query_ids))
    drawn = np.random.default_rng(seed).permutation(len(ordered))
    return {ordered[query]: place % count for place, query in enumerate(drawn)}


class CrossFitted(ScoringRanker):
    """Scores each list by a model that was fitted without its fold's queries, when the first of them is scored.

    Who is in which group is part of what is learnt. `name` says in words what is fitted. Lists without a relevant
    document teach nothing and are left out. Of a list that comes with a first stage's scores the best `pool` are
    ordered, as many as a searched list is learnt from; the others follow as they are. Raises UsageError where fewer
    than two lists are left.
    """

    reads_groups = True

    def __init__(
        self, name: str, fit: Fit, lists: Iterable[Candidates], seed: int = 0, pool: int = POOL
    ) -> None:
        self.lists = tuple(one for one in lists if any(_relevant(one)))
        if len(self.lists) < 2:
            raise UsageError(
                f"{name.partition(' ')[0]} learns from judged queries, of which this has {len(self.lists)}.",
                "judgements (-d DATASET) of at least two queries: no list is ranked by a model that saw its own",
            )
        self.fold = folds((one.query.query_id for one in self.lists), seed=seed)
        self.identity = f"{name} folds={FOLDS} seed={seed} lists={_sha256(self.lists)[:12]}"
        self._fit, self._pool = fit, pool
        self._models: dict[int | None, Model] = {}
        self._fitting = Lock()

    def training(self, query_id: str) -> tuple[Candidates, ...]:
        """The lists that the model of a query learns from."""
        without = self.fold.get(query_id)
        return tuple(one for one in self.lists if self.fold[one.query.query_id] != without)

    def ordered(self, candidates: Candidates) -> tuple[Candidates, tuple[float, ...] | None]:
        given = candidates.scores
        if given is None or len(given) <= self._pool:
            return super().ordered(candidates)
        by_score = sorted(range(len(given)), key=lambda place: -given[place])
        best, others = by_score[: self._pool], by_score[self._pool :]
        scores = self.scores(candidates.at(best))
        first = sorted(range(len(best)), key=lambda place: -scores[place])
        return candidates.at([*(best[place] for place in first), *others]), None

    def scores(self, candidates: Candidates) -> Sequence[float]:
        """What the model without the query's fold gives; raises what fitting it raises."""
        query_id = candidates.query.query_id
        fold = self.fold.get(query_id)
        with self._fitting:
            if fold not in self._models:
                self._models[fold] = self._fit(self.training(query_id))
        return self._models[fold](candidates)


def _relevant(candidates: Candidates) -> list[bool]:
    return [candidates.relevance.get(doc_id, 0) >= 1 for doc_id in candidates.doc_ids]


def _sha256(lists: Sequence[Candidates]) -> str:
    """Of all that is learnt from, but for what documents say: judgements and groups."""
    digest = hashlib.sha256()
    for one in sorted(lists, key=lambda one: one.query.query_id):
        judged = [
            (document.doc_id, relevant, sorted(document.groups.items()))
            for document, relevant in zip(one.documents, _relevant(one), strict=True)
        ]
        digest.update(encode([one.query.query_id, one.query.text, sorted(judged)]))
    return digest.hexdigest()
