"""Which pairs a training takes and a test measures: drawn for every part of the split, in groups of one query.

Everything is drawn query by query, so that another query moves no other query's pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, cycle, islice
from math import ceil

from llmfair.errors import UsageError
from llmfair.nouns import Attribute, Candidates
from llmfair.probes import Grading
from llmfair.tuning.pairs import (
    COMBINATIONS,
    STRATA,
    ByStratum,
    PairGroup,
    Shown,
    Stratum,
    TrainingPair,
    stratum_pairs,
)
from llmfair.tuning.results import Overlap, PairCounts
from llmfair.tuning.split import Split

PARTS: Mapping[Stratum, int] = {"relevant": 13, "irrelevant": 13, "mixed": 6}
"""Pairs of each stratum in a group of 32: shares of 40, 40 and 20 %."""


@dataclass(frozen=True)
class PairLimits:
    """Which pairs there may be: `group` of them together, `total` trained on, so many of a query and an item."""

    group: int
    total: int
    per_query: int
    per_item: int | None
    measured: int
    grades: Grading = "match"


@dataclass(frozen=True)
class DrawnPairs:
    """The pairs of every part of the split; `train` by query and stratum, and in groups as they are trained on.

    A group holds a pair twice where its query has too few. `dropped` counts the items of training queries that
    `strict`, that is `--strict-items`, left out.
    """

    split: Split
    train: Mapping[str, ByStratum]
    groups: tuple[PairGroup, ...]
    validation: tuple[PairGroup, ...]
    test: tuple[PairGroup, ...]
    dropped: int
    strict: bool

    def counts(self) -> dict[str, dict[str, PairCounts]]:
        """Queries and pairs of each stratum, by part."""
        parts = {
            "train": [pair for strata in self.train.values() for pairs in strata.values() for pair in pairs],
            "validation": [*chain(*self.validation)],
            "test": [*chain(*self.test)],
        }
        return {
            part: {
                stratum: PairCounts(
                    queries=len({pair.query.query_id for pair in pairs if pair.stratum == stratum}),
                    pairs=sum(pair.stratum == stratum for pair in pairs),
                )
                for stratum in STRATA
            }
            for part, pairs in parts.items()
        }

    def overlap(self) -> Overlap:
        """Items and pairs that are trained on and stand in a pair of validation or test as well."""
        trained = [pair for strata in self.train.values() for pair in chain(*strata.values())]
        measured = [*chain(*self.validation, *self.test)]
        return Overlap(
            items=len(_items(trained) & _items(measured)),
            train_items=len(_items(trained)),
            pairs=len(_pair_ids(trained) & _pair_ids(measured)),
            dropped_items=self.dropped,
            strict=self.strict,
        )


def draw(
    lists: Sequence[Candidates],
    attribute: Attribute,
    split: Split,
    limits: PairLimits,
    seed: int,
    shown: Shown,
    anchored: bool = True,
    strict_items: bool = False,
) -> DrawnPairs:
    """Draws the pairs of every query; `shown` is what a prompt shows of an item.

    `anchored`: mixed pairs are trained on, too (they are measured in any case). `strict_items`: no item of a
    validation or test pair is trained on. Raises UsageError where a part of the split has no pair of a stratum.
    """
    by_query = {listed.query.query_id: listed for listed in lists}

    def measured(query_ids: Sequence[str]) -> tuple[PairGroup, ...]:
        groups = list[PairGroup]()
        for query_id in query_ids:
            strata = {
                stratum: stratum_pairs(
                    by_query[query_id], attribute, stratum, limits.measured, seed, shown, limits.grades
                )
                for stratum in STRATA
            }
            groups += in_pieces([*chain(*strata.values())], limits.group)
        return tuple(groups)

    validation, test = measured(split.validation), measured(split.test)
    held_out = _items(chain(*validation, *test)) if strict_items else set()
    train, dropped = dict[str, ByStratum](), 0
    for query_id in split.train:
        listed = by_query[query_id]
        kept = tuple(document for document in listed.documents if document.doc_id not in held_out)
        dropped += len(listed.documents) - len(kept)
        strata = _capped(
            {
                stratum: stratum_pairs(
                    replace(listed, documents=kept),
                    attribute,
                    stratum,
                    _part(stratum, limits.per_query, anchored),
                    seed,
                    shown,
                    limits.grades,
                )
                for stratum in STRATA[: 3 if anchored else 2]
            },
            limits.per_item,
        )
        train[query_id] = strata
    sizes = [_most_groups(strata, limits.group) for strata in train.values()]
    allotted = evenly(sizes, limits.total // limits.group)
    grouped = {
        query_id: in_groups(strata, limits.group, groups)
        for (query_id, strata), groups in zip(train.items(), allotted, strict=True)
    }
    used = {pair.pair_id for groups in grouped.values() for pair in chain(*groups)}
    drawn = DrawnPairs(
        split,
        {
            query_id: {s: [pair for pair in pairs if pair.pair_id in used] for s, pairs in strata.items()}
            for query_id, strata in train.items()
        },
        tuple(chain(*grouped.values())),
        validation,
        test,
        dropped,
        strict_items,
    )
    _require_all_strata(drawn, [*train.values()], anchored)
    return drawn


# Groups


def in_groups(strata: ByStratum, size: int, groups: int) -> list[PairGroup]:
    """`groups` groups of `size` pairs, 13 relevant, 13 irrelevant and 6 mixed ones in 32.

    A stratum that the query lacks leaves its places to the others. Each pair is used once before any is used
    again; over all groups the four combinations of mixed pairs come equally often.
    """
    supply = {stratum: cycle(pairs) for stratum, pairs in strata.items() if pairs}
    mixed = size * groups * PARTS["mixed"] // sum(PARTS.values()) if "mixed" in supply else 0
    mixed -= mixed % len(COMBINATIONS)
    both = [stratum for stratum in STRATA[:2] if stratum in supply]
    made, before = [], dict.fromkeys(supply, 0)
    for number in range(1, groups + 1):
        after: dict[Stratum, int] = {
            "mixed": min(mixed, size * number * PARTS["mixed"] // sum(PARTS.values()))
        }
        rest = size * number - after["mixed"]
        after |= {stratum: (rest + place) // len(both) for place, stratum in enumerate(reversed(both))}
        pairs = [islice(supply[stratum], after[stratum] - before[stratum]) for stratum in supply]
        made.append(tuple(chain(*pairs)))
        before = after
    return made


def in_pieces(pairs: Sequence[TrainingPair], size: int) -> Iterator[PairGroup]:
    """All pairs once, up to `size` together."""
    for start in range(0, len(pairs), size):
        yield tuple(pairs[start : start + size])


def evenly(most: Sequence[int], total: int) -> list[int]:
    """`total` things shared out one by one in turn, to each at most what it can take."""
    given, level = [0] * len(most), 0
    while total > 0 and level < max(most, default=0):
        for place, limit in enumerate(most):
            if limit > level and total > 0:
                given[place] += 1
                total -= 1
        level += 1
    return given


def _most_groups(strata: ByStratum, size: int) -> int:
    """So many groups that no pair of the scarcer stratum is used again but to complete the last one."""
    parts = {stratum: PARTS[stratum] for stratum, pairs in strata.items() if pairs}
    both = [stratum for stratum in parts if stratum != "mixed"]
    if not both:
        return 0
    share = size * (1 - parts.get("mixed", 0) / sum(PARTS.values())) / len(both)
    return ceil(min(len(strata[stratum]) for stratum in both) / share)


def _part(stratum: Stratum, most: int, anchored: bool) -> int:
    """A stratum's part of the pairs that a query may have."""
    parts = {s: part for s, part in PARTS.items() if anchored or s != "mixed"}
    return most * parts[stratum] // sum(parts.values())


def _capped(strata: ByStratum, most: int | None) -> ByStratum:
    """The pairs without those that would use an item more than `most` times.

    They are taken in the proportions of a group, so that no stratum uses the items up that another needs, and mixed
    pairs four at a time, one of each combination.
    """
    if most is None:
        return strata
    taken = list[tuple[float, PairGroup]]()
    for stratum, pairs in strata.items():
        size = len(COMBINATIONS) if stratum == "mixed" else 1
        taken += [
            (place * size / PARTS[stratum], together) for place, together in enumerate(in_pieces(pairs, size))
        ]
    uses = Counter[str]()
    kept: dict[Stratum, list[TrainingPair]] = {stratum: [] for stratum in strata}
    for _, together in sorted(taken, key=lambda one: one[0]):
        added = Counter(item.doc_id for pair in together for item in (pair.a, pair.b))
        if all(uses[item] + times <= most for item, times in added.items()):
            uses.update(added)
            kept[together[0].stratum] += together
    return kept


def _items(pairs: Collection[TrainingPair] | Iterator[TrainingPair]) -> set[str]:
    return {item.doc_id for pair in pairs for item in (pair.a, pair.b)}


def _pair_ids(pairs: Sequence[TrainingPair]) -> set[frozenset[str]]:
    return {frozenset((pair.a.doc_id, pair.b.doc_id)) for pair in pairs}


def _require_all_strata(drawn: DrawnPairs, train: Sequence[ByStratum], anchored: bool) -> None:
    """`train` holds the pairs that there are, before any are chosen."""
    for part, strata in drawn.counts().items():
        for stratum in STRATA:
            if strata[stratum].pairs or (stratum == "mixed" and not anchored):
                continue
            hint = "choose lists that hold relevant and irrelevant items of both groups"
            if part == "train" and any(there.get(stratum) for there in train):
                hint = "raise --max-prompts or --group-size: a query's share has no room for all combinations"
            elif drawn.strict and part == "train":
                hint = "leave --strict-items out, or choose data whose queries share fewer items"
            elif stratum == "mixed":
                hint += ", or leave mixed pairs out with --anchor none"
            raise UsageError(f"no {part} query has {stratum} pairs.", hint)
