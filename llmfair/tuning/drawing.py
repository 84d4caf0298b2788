"""Which pairs a training takes and a test measures: drawn for every part of the split, in groups of one query.

Everything is drawn query by query, so that another query moves no other query's pairs.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, cycle, islice, product
from math import ceil
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from llmfair.backends.local import ChatTemplate, label_answers
from llmfair.errors import ContextTooLong, UsageError
from llmfair.nouns import Attribute, Candidates, Chat, Document, PairStratum, Probe, Query, Side
from llmfair.probes import Grading, pair_pools, pair_schedule, pairwise_probes
from llmfair.rankers.pairwise import PairwiseRanker
from llmfair.tuning.results import Overlap, PairCounts

# A pair that an adapter is trained or measured on, and the pairs of one query. Relevant and irrelevant pairs are
# those that the pairwise audit draws (`probes.py`), so that measuring the adapter afterwards asks the very same
# questions. Mixed pairs, one item relevant and one not, keep relevance what it was: all four combinations of groups
# come equally often, so that relevance does not stand for a group.


Stratum = Literal["relevant", "irrelevant", "mixed"]
STRATA: tuple[Stratum, ...] = get_args(Stratum)
COMBINATIONS = tuple(product(Side, Side))
"""Sides of the relevant and of the irrelevant item of a mixed pair."""
Shown = Callable[[Document], str]


@dataclass(frozen=True, slots=True)
class TrainingPair:
    """Two items of a query: `a` is the protected one or, in a mixed pair, the relevant one.

    `target` is the probability that `a` wins, None before labels are made; `weight` is its share in the loss.
    """

    pair_id: str
    query: Query
    stratum: Stratum
    a: Document
    b: Document
    target: float | None = None
    weight: float = 1.0


PairGroup = tuple[TrainingPair, ...]
"""Pairs of one query that are trained on together: what is shuffled, and what several devices share out."""
ByStratum = Mapping[Stratum, Sequence[TrainingPair]]


def stratum_pairs(
    candidates: Candidates,
    attribute: Attribute,
    stratum: Stratum,
    most: int,
    seed: int,
    shown: Shown,
    grades: Grading = "match",
) -> list[TrainingPair]:
    """Up to `most` different pairs of one query, its items as equally often as possible.

    Of mixed pairs there are equally many of all four combinations, in turn; none where one combination has none.
    """
    if most < 1:
        return []
    if stratum == "mixed":
        return _mixed(candidates, attribute, most // len(COMBINATIONS), seed, shown)
    query, probes = (
        candidates.query,
        pairwise_probes(candidates, attribute, stratum, most, seed, shown, grades=grades),
    )
    return [
        TrainingPair(f"{query.query_id}/{stratum}/{probe.order}", query, stratum, protected, unprotected)
        for probe in probes
        for protected, unprotected in [probe.candidates.documents]
    ]


def _mixed(
    candidates: Candidates, attribute: Attribute, each: int, seed: int, shown: Shown
) -> list[TrainingPair]:
    documents = {document.doc_id: document for document in candidates.documents}
    pools = {
        stratum: dict(zip(Side, pair_pools(candidates, attribute, stratum, seed), strict=True))
        for stratum in get_args(PairStratum)
    }

    def combined(ours: Side, theirs: Side) -> Iterator[TrainingPair]:
        schedule = pair_schedule(pools["relevant"][ours], pools["irrelevant"][theirs])
        for number, (relevant, irrelevant) in enumerate(schedule):
            a, b = documents[relevant], documents[irrelevant]
            if shown(a) != shown(b):
                name = f"{candidates.query.query_id}/mixed/{ours.name[0]}{theirs.name[0]}{number}"
                yield TrainingPair(name, candidates.query, "mixed", a, b)

    found = [list(islice(combined(*sides), each)) for sides in COMBINATIONS]
    return [*chain(*zip(*found, strict=False))]


def combination(pair: TrainingPair, attribute: Attribute) -> tuple[Side, Side]:
    """The sides of a pair's items, `a` first."""
    sides = attribute.side(pair.a), attribute.side(pair.b)
    assert sides[0] is not None and sides[1] is not None
    return sides[0], sides[1]


def row(pair: TrainingPair, attribute: Attribute, relevance: Mapping[str, int]) -> dict[str, Any]:
    """A line of `pairs.jsonl`, but for its base margins."""

    def item(document: Document) -> dict[str, Any]:
        side = attribute.side(document)
        return {
            "doc_id": document.doc_id,
            "title": document.title,
            "group": list(document.groups.get(attribute.name, ())),
            "side": None if side is None else side.value,
            "relevance": relevance.get(document.doc_id, 0),
        }

    return {
        "pair_id": pair.pair_id,
        "query_id": pair.query.query_id,
        "query": pair.query.text,
        "stratum": pair.stratum,
        "a": item(pair.a),
        "b": item(pair.b),
        "target": pair.target,
        "weight": pair.weight,
    }


# Which queries are trained on, which decide when to stop, and which measure what came of it.


FEWEST_QUERIES = 10
FEWEST_VALIDATION = 3
VALIDATION_SHARE = 0.1
"""Of the training queries."""


@dataclass(frozen=True, slots=True)
class Split:
    """Query ids, each in one part, in the dataset's order; `unused` queries lack items of a side."""

    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]
    unused: tuple[str, ...] = ()


def split_queries(lists: Sequence[Candidates], attribute: Attribute, train_share: float, seed: int) -> Split:
    """Splits the queries that have items of both sides, alike in how many of their relevant items are protected.

    Queries are sorted into terciles of that share, shuffled in each, and every part takes them at even distances.
    A tenth of the training queries, at least three, validate. Raises UsageError for fewer than ten queries, and
    for a share that leaves nothing to train or to test on.
    """
    balance = {listed.query.query_id: _balance(listed, attribute) for listed in lists}
    usable = [query_id for query_id, share in balance.items() if share is not None]
    if len(usable) < FEWEST_QUERIES:
        raise UsageError(
            f"training and testing need {FEWEST_QUERIES} queries with items of both groups, but there "
            f"{'is' if len(usable) == 1 else 'are'} {len(usable)}.",
            "choose a larger dataset: llmfair datasets    lists them",
        )
    shares = np.array([balance[query_id] for query_id in usable])
    terciles = np.searchsorted(np.quantile(shares, [1 / 3, 2 / 3]), shares)
    rng = np.random.default_rng(seed)
    order = [usable[place] for place in np.lexsort((rng.random(len(usable)), terciles))]
    testing = round(len(order) * (1 - train_share))
    test = _at_even_distances(order, testing, rng.random())
    rest = [query_id for query_id in order if query_id not in test]
    validating = max(FEWEST_VALIDATION, round(VALIDATION_SHARE * len(rest)))
    if not test or len(rest) <= validating:
        raise UsageError(
            f"--train-share {train_share} of {len(usable)} queries leaves {len(rest)} to train on, {validating} of "
            f"them for validation, and {len(test)} to test on.",
            "for example --train-share 0.8",
        )
    validation = _at_even_distances(rest, validating, rng.random())
    return Split(
        tuple(query_id for query_id in usable if query_id not in test | validation),
        tuple(query_id for query_id in usable if query_id in validation),
        tuple(query_id for query_id in usable if query_id in test),
        tuple(query_id for query_id, share in balance.items() if share is None),
    )


def _balance(candidates: Candidates, attribute: Attribute) -> float | None:
    """The share of protected items among relevant ones (among all, without these); None without both sides."""
    sides = {document.doc_id: attribute.side(document) for document in candidates.documents}
    known = {doc_id: side for doc_id, side in sides.items() if side is not None}
    if len(set(known.values())) < 2:
        return None
    relevant = [side for doc_id, side in known.items() if candidates.relevance.get(doc_id, 0) >= 1]
    counted = relevant or [*known.values()]
    return sum(side is Side.PROTECTED for side in counted) / len(counted)


def _at_even_distances(order: Sequence[str], count: int, start: float) -> set[str]:
    """`count` ids at even distances, the first one `start` (0 to 1) of a distance from the beginning."""
    return {order[int((number + start) * len(order) / count)] for number in range(count)}


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
        both = (
            {frozenset((pair.a.doc_id, pair.b.doc_id)) for pair in pairs} for pairs in (trained, measured)
        )
        return Overlap(
            items=len(_items(trained) & _items(measured)),
            train_items=len(_items(trained)),
            pairs=len(set.intersection(*both)),
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


def _items(pairs: Iterable[TrainingPair]) -> set[str]:
    return {item.doc_id for pair in pairs for item in (pair.a, pair.b)}


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
            raise UsageError(f"no {part} query has {stratum} pairs.", hint)


# What an adapter is to answer: a target for every pair, made from the model's own preferences. A prompt shows two
# items; its margin is z = logit(the answer naming the first) − logit(the one naming the second). z1: item `a` of the
# pair shown first; z2: `a` shown second. g = (z1 − z2)/2 is the preference for `a`, s = (z1 + z2)/2 the slot bias;
# the answers on a pair agree iff |g| > |s|. `shifted` moves each query's preferences by their median and keeps their
# order: the offset along the group direction is what an adapter of rank 1 can express, and what carries over to other
# queries. `random` labels, one reading of Wang et al. 2024, section 5, ask it to forget the order of items as well;
# `equal-answers` is another.


Floats = NDArray[np.float64]
Labels = Literal["shifted", "random", "soft", "equal-answers"]
Anchor = Literal["relevance", "base", "none"]
RELEVANT_WINS = 0.9
"""The target of a mixed pair anchored in relevance."""
LABEL_STREAM = 48
"""Of a query's seed, with the stratum's number; lower ones draw lists, orders and pairs (`probes.py`)."""
UNUSED = {"target": 0.5, "weight": 0.0}


def preference(margins: Floats) -> Floats:
    """g of margins of shape (pairs, 2)."""
    return (margins[:, 0] - margins[:, 1]) / 2


def slot_bias(margins: Floats) -> Floats:
    """s of margins of shape (pairs, 2)."""
    return (margins[:, 0] + margins[:, 1]) / 2


def sigmoid(x: Floats) -> Floats:
    found: Floats = np.exp(-np.logaddexp(0.0, -x))
    return found


def label(
    train: Mapping[str, ByStratum],
    margins: Mapping[str, tuple[float, float]],
    attribute: Attribute,
    labels: Labels = "shifted",
    anchor: Anchor = "relevance",
    seed: int = 0,
    soft: bool = False,
) -> dict[str, TrainingPair]:
    """Every training pair with its target and weight, by pair id; `margins` are the base model's, by pair id.

    `soft`: targets of `shifted` labels are probabilities instead of 0 and 1.
    """
    labelled = {}
    for query_id, strata in train.items():
        asked: dict[str, Floats] = {
            stratum: np.array([margins[pair.pair_id] for pair in pairs]).reshape(-1, 2)
            for stratum, pairs in strata.items()
        }
        for stratum in STRATA[:2]:
            number = LABEL_STREAM + STRATA.index(stratum)
            rng = np.random.default_rng([seed, zlib.crc32(query_id.encode()), number])
            pairs = strata.get(stratum, ())
            for pair in _labelled(pairs, asked.get(stratum, np.empty((0, 2))), labels, soft, rng):
                labelled[pair.pair_id] = pair
        for pair in _anchored(strata.get("mixed", ()), asked, attribute, anchor):
            labelled[pair.pair_id] = pair
    return labelled


def counting(labelled: Mapping[str, TrainingPair]) -> dict[Stratum, int]:
    """Pairs of each stratum that count in the loss: those whose weight is not 0.

    Raises UsageError unless relevant pairs and irrelevant ones count.
    """
    counts = {
        stratum: sum(pair.stratum == stratum and pair.weight > 0 for pair in labelled.values())
        for stratum in STRATA
    }
    for stratum in STRATA[:2]:
        if not counts[stratum]:
            raise UsageError(
                f"no {stratum} pair to train on counts: labels come in halves, for either group.",
                "choose --labels soft, or shifted with more than one pair of a query",
            )
    return counts


def _labelled(
    pairs: Sequence[TrainingPair], margins: Floats, labels: Labels, soft: bool, rng: np.random.Generator
) -> list[TrainingPair]:
    """The pairs of one query and stratum."""
    g = preference(margins)
    if labels == "soft":
        return [replace(pair, target=0.5) for pair in pairs]
    if labels == "shifted" and soft:
        targets = sigmoid(g - np.median(g)) if len(g) else g
        return [replace(pair, target=target) for pair, target in zip(pairs, targets.tolist(), strict=True)]
    if labels == "shifted":
        ranked = sorted(range(len(pairs)), key=lambda place: (g[place], pairs[place].pair_id))
        return _halved([pairs[place] for place in ranked])
    if labels == "random":
        return _halved([pairs[place] for place in rng.permutation(len(pairs))])
    agreed = np.abs(g) > np.abs(slot_bias(margins))
    for_a, for_b = (rng.permutation(np.flatnonzero(agreed & side)) for side in (g > 0, g < 0))
    each = min(len(for_a), len(for_b))
    wins, losses = set(for_a[:each].tolist()), set(for_b[:each].tolist())
    return [
        replace(pair, target=float(place in wins)) if place in wins | losses else replace(pair, **UNUSED)  # type: ignore[arg-type]
        for place, pair in enumerate(pairs)
    ]


def _halved(ranked: Sequence[TrainingPair]) -> list[TrainingPair]:
    """The first half of the pairs is lost, the second won; one in the middle does not count."""
    half, middle = divmod(len(ranked), 2)
    return [
        *(replace(pair, target=0.0) for pair in ranked[:half]),
        *(replace(pair, **UNUSED) for pair in ranked[half : half + middle]),  # type: ignore[arg-type]
        *(replace(pair, target=1.0) for pair in ranked[half + middle :]),
    ]


def _anchored(
    pairs: Sequence[TrainingPair], asked: Mapping[str, Floats], attribute: Attribute, anchor: Anchor
) -> list[TrainingPair]:
    """The mixed pairs of one query: the relevant item is to win, or to be preferred as it was without the bias."""
    if anchor == "relevance":
        return [replace(pair, target=RELEVANT_WINS) for pair in pairs]
    medians = [np.median(preference(asked[s])) for s in STRATA[:2] if s in asked and len(asked[s])]
    offset = float(np.mean(medians)) if medians else 0.0
    shifts = np.array([group_sign(pair, attribute) * offset for pair in pairs])
    targets = sigmoid(preference(asked["mixed"]) - shifts) if pairs else shifts
    return [replace(pair, target=target) for pair, target in zip(pairs, targets.tolist(), strict=True)]


def group_sign(pair: TrainingPair, attribute: Attribute) -> int:
    """1 where `a` alone is protected, −1 where `b` alone is, 0 where both are alike."""
    a, b = combination(pair, attribute)
    return (a is Side.PROTECTED) - (b is Side.PROTECTED)


# From pairs to token ids: the chats, the prompts and the answers' tokens of the pairwise audit, and nothing else. A
# model is trained on exactly what it is audited with: the ranker makes the chats, the chat template makes the ids,
# and the two ids that a margin compares are those of the audit's margins (`ChatTemplate.label_ids`).


Ids = NDArray[np.int32]
"""Token ids of one prompt: (length,). An int in a tuple takes nine times the room."""


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One pair as the model sees it, in both orders, up to where the answers part.

    `first` shows item `a` first, `second` shows it second. `answers`: the ids of the answer that names the item shown
    first and of the one that names the other. `target` is the probability that `a` wins, 0.5 while unlabelled.
    """

    first: Ids
    second: Ids
    answers: tuple[int, int]
    stratum: Stratum
    target: float
    weight: float

    @property
    def prompts(self) -> tuple[Ids, Ids]:
        return self.first, self.second


ExampleGroup = tuple[Example, ...]
"""The examples of one `PairGroup`, in its order."""


def render(
    groups: Sequence[PairGroup], ranker: PairwiseRanker, template: ChatTemplate, context: int | None
) -> list[ExampleGroup]:
    """Every group's prompts as token ids. Raises ContextTooLong for a prompt of more than `context` tokens."""
    made: list[ExampleGroup] = []
    for group in groups:
        known: dict[str, Example] = {}  # a group may hold a pair twice
        for pair in group:
            if pair.pair_id not in known:
                known[pair.pair_id] = _example(pair, ranker, template, context)
        made.append(tuple(known[pair.pair_id] for pair in group))
    return made


def _example(
    pair: TrainingPair, ranker: PairwiseRanker, template: ChatTemplate, context: int | None
) -> Example:
    chats = chats_of(pair, ranker)
    found = [template.label_ids(chat.messages, label_answers(chat.expects)) for chat in chats]
    longest = max(len(ids) for ids, _ in found)
    if context is not None and longest > context:
        raise ContextTooLong(
            f"the prompt of pair {pair.pair_id} has {longest:,} tokens, and the model has room for {context:,}.",
            "choose fewer words with --words, or a model with more context",
        )
    first, second = (np.array(ids, dtype=np.int32) for ids, _ in found)
    labels = [tuple(named.values()) for _, named in found]
    return Example(
        first,
        second,
        _the_same((one, other) for one, other in labels),
        pair.stratum,
        0.5 if pair.target is None else pair.target,
        pair.weight,
    )


def chats_of(pair: TrainingPair, ranker: PairwiseRanker) -> tuple[Chat, Chat]:
    """The two questions about a pair: `a` shown first, then second."""
    candidates = Candidates(pair.query, (pair.a, pair.b), {})
    return ranker.chats(Probe(pair.pair_id, candidates, pair.stratum, "neutral"))


def answer_ids(groups: Iterable[ExampleGroup]) -> tuple[int, int]:
    """The ids of the answers that name the item shown first and second: the same two for all examples.

    Raises UsageError where they differ from prompt to prompt, so that no two rows of the output matrix are meant.
    """
    return _the_same(example.answers for group in groups for example in group)


def _the_same(found: Iterable[tuple[int, int]]) -> tuple[int, int]:
    first, *others = set(found)
    if others:
        raise UsageError(
            f"the answers have {1 + len(others)} different pairs of tokens, depending on the prompt.",
            "choose the other --form",
        )
    return first
