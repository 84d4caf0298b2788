"""Candidate lists drawn from judgements: four buckets of relevant and others on both sides.

Experts are documents relevant to the query; the others are drawn from those relevant to other queries. A query's
list depends on the seed and its own pools alone: not on which queries are kept, nor on the order of work.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from llmfair.datasets.files import OwnData, Places
from llmfair.errors import UsageError
from llmfair.nouns import Attribute, Document

if TYPE_CHECKING:
    from llmfair.datasets.trec_fair import TrecFair

RELEVANT_FOR_PRECISION = 10  # with fewer on either side P@20 cannot reach 1
FOUR_COUNTS = re.compile(r"\s*[0-9]{1,9}\s*(,\s*[0-9]{1,9}\s*){3}")
Buckets = Sequence[list[int]]
"""Places of unprotected relevant documents, protected relevant, unprotected others, protected others."""


@dataclass(frozen=True)
class DrawPlan:
    """How lists are drawn: `equal`, `natural`, or four counts for the buckets; `relevant` documents of `size`."""

    size: int
    buckets: str | Sequence[int]
    relevant: int = 0
    fewest_relevant: int = 0


def draw_plan(
    size: int | None,
    buckets: str | None,
    relevant: int | None,
    fewest_relevant: int | None,
    default_fewest: int,
) -> DrawPlan:
    """The plan that flags ask for. Raises UsageError for numbers that cannot be halved."""
    text = buckets or "equal"
    if text not in ("equal", "natural"):
        numbers = tuple(map(int, text.split(","))) if FOUR_COUNTS.fullmatch(text) else ()
        if sum(numbers) < 2:
            raise UsageError(
                f"--buckets {text} is neither equal, natural nor four counts of what is ranked.",
                "for example 11,2,168,19: unprotected and protected relevant ones, unprotected and protected others",
            )
        if (size, relevant, fewest_relevant) != (None, None, None):
            raise UsageError(
                "--candidates, --relevant and --min-relevant have no meaning beside counts in --buckets.",
                "leave them out",
            )
        return DrawPlan(sum(numbers), numbers)
    size, divisor = 200 if size is None else size, 2 if relevant is not None else 4
    if size % divisor or size < divisor:
        raise UsageError(
            f"--candidates {size} cannot be shared out over the buckets.", f"a multiple of {divisor}"
        )
    if relevant is not None and (relevant % 2 or not 0 < relevant <= size):
        raise UsageError(
            f"--relevant {relevant} cannot be halved within {size} candidates.",
            f"an even number from 2 to {size}",
        )
    wanted = size // 2 if relevant is None else relevant
    fewest = min(default_fewest, wanted // 2) if fewest_relevant is None else fewest_relevant
    return DrawPlan(size, text, wanted, fewest)


class ListDraw(OwnData):
    """A dataset whose lists were drawn; queries whose buckets could not be filled are left out, and told.

    All relevant documents are too many to hold: `stand_ins` has one for each combination of groups, and
    `relevant_counts` says how many of a query's relevant documents each stands for. `shrunk`: the sizes of buckets that
    are smaller than was asked for; `source`: what they were drawn from.
    """

    def __init__(self, name: str, prompt: str, source: Mapping[str, Any]) -> None:
        super().__init__(name, prompt=prompt)
        self.source, self.shrunk = source, dict[str, list[int]]()

    def describe(self) -> dict[str, Any]:
        return {**self.source, "left_out": self.left_out, "shrunk": self.shrunk}


def taken(pools: Sequence[Places], seed: Sequence[int], number: int, count: int) -> list[int]:
    """The places of so many documents of a pool, each with its own stream: a smaller draw begins a larger one."""
    rng = np.random.default_rng([*seed, number])
    places: list[int] = pools[number][rng.permutation(len(pools[number]))[:count]].tolist()
    return places


def draw(source: OwnData | TrecFair, attribute: Attribute, plan: DrawPlan, seed: int) -> ListDraw:
    """Draws a list for every topic whose buckets can be filled. Raises UsageError when none can."""
    pools, data = source.pools(attribute), ListDraw(source.name, source.prompt, source.describe())
    available: dict[str, list[int]] = {}
    names: dict[str, str] = {}
    alike: dict[int, str] = {}  # documents of equal groups share them: many documents, but few kinds
    for topic in source.topics:
        query_id = topic.query_id
        drawn_from = pools.of(query_id)
        available[query_id] = [*map(len, drawn_from[:4])]
        take = partial(taken, drawn_from, [seed, zlib.crc32(query_id.encode())])
        buckets = filled(plan, available[query_id], take, pools.protected)
        if isinstance(buckets, str):
            data.left_out[query_id] = f"{topic.text}: {buckets}"
            continue
        sizes = [*map(len, buckets)]
        if sum(sizes) != plan.size or (plan.buckets == "equal" and sizes[0] < plan.relevant // 2):
            data.shrunk[query_id] = sizes
        data.by_id[query_id] = topic
        doc_ids = data.lists[query_id] = [str(pools.ids[place]) for place in chain(*buckets)]
        grades = source.grades(query_id, doc_ids[: sizes[0] + sizes[1]])
        data.qrels[query_id] = {doc_id: grades.get(doc_id, 0) for doc_id in doc_ids}
        counts = data.relevant_counts[query_id] = {}
        for groups, count in source.relevant_groups(query_id):
            if (name := alike.get(id(groups))) is None:
                kind, new = repr(sorted(groups.items())), f"@ {len(names)}"  # no id holds white space
                name = alike[id(groups)] = names.setdefault(kind, new)
                data.stand_ins.setdefault(name, Document(name, "", groups=groups))
            counts[name] = counts.get(name, 0) + count
    if not data.lists:
        best = sorted(available.items(), key=lambda item: min(item[1]), reverse=True)[:3]
        nearest = "; ".join(f"query '{q}': {'/'.join(map(str, counts))}" for q, counts in best)
        raise UsageError(
            f"no query of {source.name} has enough documents for its list (relevant documents unprotected/protected, "
            f"others unprotected/protected: {nearest}).",
            "ask for fewer with --candidates, --relevant or --min-relevant",
        )
    data.documents = {**source.load({*chain.from_iterable(data.lists.values())})}
    data.attributes = [*source.attributes]
    return data


def filled(
    plan: DrawPlan, sizes: Sequence[int], take: Callable[[int, int], list[int]], protected: NDArray[np.bool_]
) -> Buckets | str:
    """The buckets of a topic, of pools of these sizes; or why they cannot be filled. `take` a pool and a count.

    Equal are numbers of both sides among relevant and among others, so that relevance and side are unrelated. Natural
    is a draw without looking at sides, with shares as in the data. Of counts as written a shortage drops the query.
    """
    if not isinstance(plan.buckets, str):
        if any(size < count for size, count in zip(sizes, plan.buckets, strict=True)):
            return f"buckets hold {'/'.join(map(str, sizes))}, needs {'/'.join(map(str, plan.buckets))}"
        return [*map(take, range(4), plan.buckets)]
    if plan.buckets == "natural":
        split: Buckets = ([], [], [], [])
        relevant = take(4, plan.relevant)
        for first, places in ((0, relevant), (2, take(5, plan.size - len(relevant)))):
            for place in places:
                split[first + int(protected[place])].append(place)
        for number, side in enumerate(("unprotected", "protected")):
            if not split[number] + split[number + 2]:
                return f"no {side} document was drawn"
        return split
    number = min(plan.relevant // 2, *sizes[:2])
    if number < plan.fewest_relevant:
        return (
            f"{sizes[0]} unprotected and {sizes[1]} protected relevant documents, "
            f"needs {plan.fewest_relevant} of each (--min-relevant)"
        )
    others = min(plan.size // 2 - number, *sizes[2:])
    if number + others < 1:
        return "no document of one group"
    return take(0, number), take(1, number), take(2, others), take(3, others)
