"""What a remedy is: a value that makes other rankings of a run's lists, with no call or by asking anew.

A file of `remedies/` registers one, `@register("remedy", NAME)`; `llmfair mitigate` finds it. A remedy that a run or
this machine lacks something for raises an error that says what, and the way out: it is named in the table, and no more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from llmfair import registry
from llmfair.audits.kind import Kind
from llmfair.audits.subject import Subject
from llmfair.datasets.base import cache_folder
from llmfair.errors import UsageError
from llmfair.mitigation.unmitigated import Orders, Unmitigated
from llmfair.nouns import Ranking
from llmfair.rankers.base import Ranker, RankerOptions, remarks
from llmfair.rankers.parameters import read_parameters
from llmfair.settings import AuditSettings

Merger = Callable[[Sequence[Ranking]], Ranking]
OTHERS = "use remedies that order its rankings anew"
"""The way out where there is no model to ask otherwise."""
MOST_HALVES = 10
"""So many ways to deal orders into two halves are looked at."""


@dataclass(frozen=True)
class Remedied:
    """The rankings of each query after a remedy.

    `halves`: where the orders of a list are merged into one ranking, what two halves of them come to apart, so that it
    can be said how consistent such rankings are. `remarks` have to be known to read its figures.
    """

    orders: Orders
    halves: Mapping[str, Sequence[tuple[Ranking, Ranking]]] | None = None
    remarks: Sequence[str] = ()


@dataclass(frozen=True)
class Audit:
    """What has to be asked: an audit of its own, run as its command runs it, of which a condition is read.

    `own_lists`: it ranks other documents than the run, so that only figures of a page compare.
    """

    kind: Kind
    settings: AuditSettings
    subject: Subject
    condition: str
    own_lists: bool = False
    remarks: Sequence[str] = field(default=())


class Remedy(ABC):
    """A way to fairer rankings. `title` names it in words, `does` says what it is, in a sentence of the method.

    `asks`: whether it asks a model. `parameters` is what stands behind its name and a colon.
    """

    title: ClassVar[str]
    does: ClassVar[str]
    asks: ClassVar[bool] = False

    def __init__(self, parameters: str = "") -> None:
        if parameters:
            raise UsageError(
                f"this remedy takes no parameters, but ':{parameters}' is given.", "leave it out"
            )


class Reordering(Remedy):
    """A remedy that needs no more than the run's rankings."""

    @abstractmethod
    def apply(self, run: Unmitigated) -> Remedied:
        """The new rankings. Raises UsageError where the run lacks what it needs."""

    def calls(self, run: Unmitigated) -> int:
        """Calls behind its rankings beside those of the unmitigated ones."""
        return 0


class Asking(Remedy):
    """A remedy that asks a model."""

    asks = True

    @abstractmethod
    def audit(self, run: Unmitigated) -> Audit:
        """What is asked. Raises LlmfairError where it cannot be."""


class Merging(Reordering):
    """A remedy that makes one ranking of all the orders of a list."""

    @abstractmethod
    def merger(self, run: Unmitigated) -> tuple[Merger, Sequence[str]]:
        """What merges rankings of one list of the run, and what has to be known of it. Raises UsageError."""

    def apply(self, run: Unmitigated) -> Remedied:
        merged, said = self.merger(run)
        return Remedied(
            {query_id: [merged(orders)] for query_id, orders in run.orders.items()},
            {
                query_id: [
                    (merged([orders[k] for k in one]), merged([orders[k] for k in other]))
                    for one, other in halves(len(orders))
                ]
                for query_id, orders in run.orders.items()
            },
            said,
        )


class Reranking(Reordering):
    """A registered ranker that orders each ranking anew: it goes by groups, and by the places as scores."""

    ranker: ClassVar[str]

    def __init__(self, parameters: str = "") -> None:
        self.parameters = parameters
        read_parameters(self.ranker, parameters, registry.lookup("ranker", self.ranker).declared)

    def apply(self, run: Unmitigated) -> Remedied:
        against = run.found.against
        ranker: Ranker = registry.lookup("ranker", self.ranker)(
            RankerOptions(
                tuple(against.judgements.documents.values()),
                cache_folder(),
                against.attribute,
                self.parameters,
                groups=against.groups,
            )
        )
        ordered = {
            query_id: [ranker.ordered(run.candidates(ranking))[0] for ranking in orders]
            for query_id, orders in run.orders.items()
        }
        firsts = [of_query[0] for of_query in ordered.values()]
        return Remedied(
            {query_id: [Ranking(query_id, one.doc_ids) for one in of] for query_id, of in ordered.items()},
            remarks=remarks(ranker, firsts),
        )


def halves(count: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The ways to deal so many orders into two halves, each once; of an odd number one half has one more."""
    dealt = (
        (one, tuple(order for order in range(count) if order not in one))
        for one in combinations(range(count), count // 2)
        if one and (count % 2 or one[0] == 0)
    )
    return [*islice(dealt, MOST_HALVES)]


def ranks_of(rankings: Sequence[Ranking]) -> tuple[tuple[str, ...], NDArray[np.intp]]:
    """The documents as the first ranking has them, and their ranks in each, shape (orders, n)."""
    doc_ids = rankings[0].doc_ids
    places = [{doc_id: rank for rank, doc_id in enumerate(one.doc_ids)} for one in rankings]
    return doc_ids, np.array([[of[doc_id] for doc_id in doc_ids] for of in places], dtype=np.intp)
