"""The pairs that an adapter is trained and measured on: which, in which groups, towards which targets, as which tokens.

Everything is drawn query by query, so that another query moves no other query's pairs.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, cycle, islice, product
from math import ceil, log, sqrt
from statistics import harmonic_mean
from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from llmfair.backends.local import ChatTemplate, label_answers
from llmfair.errors import ContextTooLong, UsageError
from llmfair.nouns import JUDGED_STRATA, Attribute, Candidates, Chat, Document, Probe, Query, Side
from llmfair.probes import Grading, pair_pools, pair_schedule, pairwise_probes
from llmfair.rankers.pairwise import PairwiseRanker
from llmfair.settings.commands import ORDERS, FinetuneSettings
from llmfair.stats.intervals import FEWEST_QUERIES
from llmfair.stats.pair_plan import chance_in_band, plan_pairs
from llmfair.tuning.results import HeldOut, Overlap, PairCounts, Stratum

# Relevant and irrelevant pairs are those that the pairwise audit draws, so that measuring the adapter afterwards asks
# the very same questions. Mixed pairs, one item relevant and one not, keep relevance what it was.

STRATA: tuple[Stratum, ...] = get_args(Stratum)
COMBINATIONS = tuple(product(Side, Side))
"""Sides of the relevant and of the irrelevant item of a mixed pair."""


@dataclass(frozen=True, slots=True)
class TrainingPair:
    """Two items of a query: `a` is the protected one or, in a mixed pair, the relevant one; `target` is the probability
    that `a` wins, None before labels are made, `weight` its share in the loss."""

    pair_id: str
    query: Query
    stratum: Stratum
    a: Document
    b: Document
    target: float | None = None
    weight: float = 1.0

    @property
    def doc_ids(self) -> tuple[str, str]:
        return self.a.doc_id, self.b.doc_id


PairGroup = tuple[TrainingPair, ...]
"""Pairs of one query that are trained on together: what is shuffled, and what several devices share out."""
ByStratum = Mapping[Stratum, Sequence[TrainingPair]]


def stratum_pairs(
    candidates: Candidates, attribute: Attribute, stratum: Stratum, most: int, seed: int,
    text: Callable[[Document], str], grades: Grading = "match",
) -> list[TrainingPair]:  # fmt: skip
    """Up to `most` different pairs of one query, its items as equally often as possible; `text` is what prompts show.
    Of mixed pairs there are equally many of all four combinations, in turn; none where one combination has none."""
    query = candidates.query
    name, listed = f"{query.query_id}/{stratum}", candidates.documents
    if stratum != "mixed":
        probes = pairwise_probes(candidates, attribute, stratum, most, seed, text, grades=grades)
        return [
            TrainingPair(f"{name}/{number}", query, stratum, listed[a], listed[b])
            for number, a, b in probes.pairs.tolist()
        ]
    documents = {document.doc_id: document for document in listed}
    relevant, irrelevant = (pair_pools(candidates, attribute, pool, seed) for pool in JUDGED_STRATA)
    pools = dict(zip(COMBINATIONS, product(relevant, irrelevant), strict=True))

    def combined(ours: Side, theirs: Side) -> Iterator[TrainingPair]:
        for number, (a, b) in enumerate(pair_schedule(*pools[ours, theirs])):
            if text(documents[a]) != text(documents[b]):
                pair_id = f"{name}/{ours.name[0]}{theirs.name[0]}{number}"
                yield TrainingPair(pair_id, query, "mixed", documents[a], documents[b])

    each = most // len(COMBINATIONS)
    return [*chain(*zip(*(islice(combined(*sides), each) for sides in COMBINATIONS), strict=False))]


def combination(pair: TrainingPair, attribute: Attribute) -> tuple[Side | None, Side | None]:
    """The sides of a pair's items, `a` first."""
    return attribute.side(pair.a), attribute.side(pair.b)


def group_sign(pair: TrainingPair, attribute: Attribute) -> int:
    """1 where `a` alone is protected, −1 where `b` alone is, 0 where both are alike."""
    a, b = combination(pair, attribute)
    return (a is Side.PROTECTED) - (b is Side.PROTECTED)


# How many queries measure an adapter, and what verdict they allow: known before anything is asked.

CONSISTENT, ICC = 0.75, 0.05
"""Taken of an adapter at parity: the share of pairs with one answer in both orders, and the intraclass correlation."""
LIKELY = 0.8
MOST_QUERIES = 10_000
LEAST_SHARE, MOST_SHARE = 0.2, 0.5
"""Of the queries that are held out by default."""


class Precision(NamedTuple):
    """Of a stratum: the share of queries with pairs of it, and the standard deviation of one's part of ln odds."""

    share: float
    sd: float


def expected(pairs: Sequence[int]) -> Precision:
    """The precision at parity of a stratum with so many measured pairs in each query."""
    if not (present := [number for number in pairs if number]):
        return Precision(0.0, 0.0)
    plan = plan_pairs(FEWEST_QUERIES, round(harmonic_mean(present)), 1.0, 0.5, CONSISTENT, ICC)
    return Precision(len(present) / len(pairs), plan.error * sqrt(FEWEST_QUERIES))


def held_out(queries: int, strata: Sequence[Precision], band: tuple[float, float], level: float) -> HeldOut:
    """What so many test queries allow of odds of 1, and how many allow it in 80 %."""
    from scipy.special import stdtrit

    edges = (log(band[0]), log(band[1]))

    def chance(queries: int) -> float:
        """How often the intervals of all strata lie in the band where all odds are 1."""
        within = 1.0
        for share, sd in strata:
            if (count := round(queries * share)) < FEWEST_QUERIES:
                return 0.0
            t = float(stdtrit(count - 1, (1 + level) / 2))
            within *= chance_in_band(0.0, sd / sqrt(count), count - 1, t, edges)
        return within

    counts = range(MOST_QUERIES + 1)
    needed = bisect_left(counts, LIKELY, FEWEST_QUERIES, key=chance)
    return HeldOut(queries, chance(queries), needed if needed in counts else None)


def train_share(usable: int, needed: int | None) -> float:
    """The default: as many queries are held out as are needed, but a fifth of them at least and a half at most."""
    wanted = MOST_SHARE if needed is None else needed / usable
    return 1 - min(max(wanted, LEAST_SHARE), MOST_SHARE)


# Which queries are trained on, which decide when to stop, and which measure what came of it.

FEWEST_TO_SPLIT = 10
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


def balances(lists: Sequence[Candidates], attribute: Attribute) -> dict[str, float]:
    """By query with items of both sides, the share of protected ones among its relevant items, or among all."""
    shares = {}
    for listed in lists:
        sides = {document.doc_id: attribute.side(document) for document in listed.documents}
        if {*sides.values()} >= {*Side}:
            relevant = [sides[doc_id] for doc_id in sides if listed.relevance.get(doc_id, 0) >= 1]
            counted = [side for side in relevant if side] or [side for side in sides.values() if side]
            shares[listed.query.query_id] = counted.count(Side.PROTECTED) / len(counted)
    return shares


def split_queries(lists: Sequence[Candidates], attribute: Attribute, train_share: float, seed: int) -> Split:
    """Splits the queries that have items of both sides, alike in how many of their relevant items are protected: sorted
    into terciles of that share, shuffled in each, taken at even distances.

    A tenth of the training queries, at least three, validate. Raises UsageError for fewer than ten queries, and for a
    share that leaves nothing to train or to test on.
    """

    def at_even_distances(order: Sequence[str], count: int, start: float) -> set[str]:
        """`count` ids, the first one `start` (0 to 1) of a distance from the beginning."""
        return {order[int((number + start) * len(order) / count)] for number in range(count)}

    usable = balances(lists, attribute)
    if len(usable) < FEWEST_TO_SPLIT:
        raise UsageError(
            f"training and testing need {FEWEST_TO_SPLIT} queries with items of both groups, not {len(usable)}.",
            "choose a larger dataset: llmfair datasets    lists them",
        )
    query_ids, shares = [*usable], np.array([*usable.values()])
    terciles = np.searchsorted(np.quantile(shares, [1 / 3, 2 / 3]), shares)
    rng = np.random.default_rng(seed)
    order = [query_ids[place] for place in np.lexsort((rng.random(len(usable)), terciles))]
    test = at_even_distances(order, round(len(order) * (1 - train_share)), rng.random())
    rest = [query_id for query_id in order if query_id not in test]
    validating = max(FEWEST_VALIDATION, round(VALIDATION_SHARE * len(rest)))
    if not test or len(rest) <= validating:
        raise UsageError(
            f"--train-share {train_share} of {len(usable)} queries leaves {len(rest)} to train on, {validating} of "
            f"them for validation, and {len(test)} to test on.",
            "for example --train-share 0.8",
        )
    validation = at_even_distances(rest, validating, rng.random())
    every = [listed.query.query_id for listed in lists]
    parts = ({*rest} - validation, validation, test, {*every} - usable.keys())
    return Split(*(tuple(query_id for query_id in every if query_id in part) for part in parts))


PARTS: Mapping[Stratum, int] = {"relevant": 13, "irrelevant": 13, "mixed": 6}
"""Pairs of each stratum in a group of 32: shares of 40, 40 and 20 %."""
OF_A_GROUP = sum(PARTS.values())


@dataclass(frozen=True)
class PairDraw:
    """The pairs of every part of the split; `train` by query and stratum, `groups` as they are trained on, which have a
    pair twice where its query has too few."""

    split: Split
    train: Mapping[str, ByStratum]
    groups: tuple[PairGroup, ...]
    validation: tuple[PairGroup, ...]
    test: tuple[PairGroup, ...]

    @property
    def parts(self) -> dict[str, list[TrainingPair]]:
        """The pairs of each part, each once."""
        train = [pair for strata in self.train.values() for pair in chain(*strata.values())]
        return {"train": train, "validation": [*chain(*self.validation)], "test": [*chain(*self.test)]}

    def counts(self) -> dict[str, dict[str, PairCounts]]:
        """Queries and pairs of each stratum, by part."""
        counts: dict[str, dict[str, PairCounts]] = {}
        for (part, pairs), stratum in product(self.parts.items(), STRATA):
            query_ids = [pair.query.query_id for pair in pairs if pair.stratum == stratum]
            counts.setdefault(part, {})[stratum] = PairCounts(len({*query_ids}), len(query_ids))
        return counts

    def overlap(self) -> Overlap:
        """Items and pairs that are trained on and stand in a pair of validation or test as well."""
        train, validation, test = self.parts.values()
        parts = (train, [*validation, *test])
        items, measured_items = ({*chain(*(pair.doc_ids for pair in part))} for part in parts)
        pairs, measured = ({frozenset(pair.doc_ids) for pair in part} for part in parts)
        return Overlap(len(items & measured_items), len(items), len(pairs & measured))


def draw(
    lists: Sequence[Candidates], attribute: Attribute, split: Split, settings: FinetuneSettings,
    text: Callable[[Document], str],
) -> PairDraw:  # fmt: skip
    """Draws the pairs of every query: at most so many of a query and item, in groups, and in all.

    Mixed pairs are measured also where no anchor trains on them. With `--strict-items` no item of a validation or test
    pair is trained on. Raises UsageError where a part of the split has no pair of a stratum.
    """
    by_query = {listed.query.query_id: listed for listed in lists}
    size = settings.group_size // ORDERS
    pairs_of = partial(
        stratum_pairs, attribute=attribute, seed=settings.seed, text=text, grades=settings.grades
    )

    def part_of(query_ids: Sequence[str]) -> tuple[PairGroup, ...]:
        groups = list[PairGroup]()
        for query_id in query_ids:
            strata = (pairs_of(by_query[query_id], stratum=of, most=settings.pairs) for of in STRATA)
            groups += in_pieces([*chain(*strata)], size)
        return tuple(groups)

    validation, test = part_of(split.validation), part_of(split.test)
    measured = chain(*validation, *test) if settings.strict_items else ()
    barred = {doc_id for pair in measured for doc_id in pair.doc_ids}
    strata = STRATA[:2] if settings.anchor == "none" else STRATA
    whole = sum(PARTS[stratum] for stratum in strata)
    drawn = dict[str, ByStratum]()
    for query_id in split.train:
        listed, most = by_query[query_id], settings.pairs_per_query
        documents = tuple(document for document in listed.documents if document.doc_id not in barred)
        listed = replace(listed, documents=documents)
        pairs = {of: pairs_of(listed, stratum=of, most=most * PARTS[of] // whole) for of in strata}
        drawn[query_id] = _capped(pairs, settings.pairs_per_item)
    # groups are shared out among the queries one by one in turn, to each at most what it can fill
    turns = sorted(
        (turn, place)
        for place, pairs_of_it in enumerate(drawn.values())
        for turn in range(_most_groups(pairs_of_it, size))
    )
    budget = settings.max_prompts // ORDERS // size
    allotted, groups = Counter(place for _, place in turns[:budget]), list[PairGroup]()
    for place, by_stratum in enumerate(drawn.values()):
        groups += in_groups(by_stratum, size, allotted[place])
    used = {pair.pair_id for pair in chain(*groups)}
    train = {
        query_id: {stratum: [pair for pair in of if pair.pair_id in used] for stratum, of in pairs.items()}
        for query_id, pairs in drawn.items()
    }
    made = PairDraw(split, train, tuple(groups), validation, test)
    for (part, counts), stratum in product(made.counts().items(), strata):
        if not counts[stratum].pairs:
            raise UsageError(
                f"no {part} query has {stratum} pairs.",
                "choose lists with relevant and irrelevant items of both groups, a higher --max-prompts or "
                "--group-size, or no --strict-items",
            )
    return made


def in_groups(strata: ByStratum, size: int, groups: int) -> list[PairGroup]:
    """`groups` groups of `size` pairs, 13 relevant, 13 irrelevant and 6 mixed ones in 32, each pair once before any is
    used again; a stratum that the query lacks leaves its places to the others, and over all groups the four
    combinations of mixed pairs come equally often."""
    supply = {stratum: cycle(pairs) for stratum, pairs in strata.items() if pairs}
    mixed = size * groups * PARTS["mixed"] // OF_A_GROUP if "mixed" in supply else 0
    mixed -= mixed % len(COMBINATIONS)
    both = [stratum for stratum in STRATA[:2] if stratum in supply]
    made, before = list[PairGroup](), dict.fromkeys(supply, 0)
    for number in range(1, groups + 1):
        after: dict[Stratum, int] = {"mixed": min(mixed, size * number * PARTS["mixed"] // OF_A_GROUP)}
        rest = size * number - after["mixed"]
        after |= {stratum: (rest + place) // len(both) for place, stratum in enumerate(reversed(both))}
        pairs = [islice(supply[stratum], after[stratum] - before[stratum]) for stratum in supply]
        made.append(tuple(chain(*pairs)))
        before = after
    return made


def in_pieces(pairs: Sequence[TrainingPair], size: int) -> Iterator[PairGroup]:
    """All pairs once, up to `size` together."""
    return (tuple(pairs[start : start + size]) for start in range(0, len(pairs), size))


def _most_groups(strata: ByStratum, size: int) -> int:
    """So many groups that no pair of the scarcer stratum is used again but to complete the last one."""
    both = [len(strata[stratum]) for stratum in STRATA[:2] if strata[stratum]]
    if not both:
        return 0
    mixed = PARTS["mixed"] if strata.get("mixed") else 0
    return ceil(min(both) / (size * (1 - mixed / OF_A_GROUP) / len(both)))


def _capped(strata: ByStratum, most: int | None) -> ByStratum:
    """The pairs without those that would use an item more than `most` times, taken in the proportions of a group, so
    that no stratum uses up what another needs, and mixed ones four at a time, one of each combination."""
    if most is None:
        return strata
    turns = list[tuple[float, PairGroup]]()
    for stratum, pairs in strata.items():
        size = len(COMBINATIONS) if stratum == "mixed" else 1
        pieces = enumerate(in_pieces(pairs, size))
        turns += [(place * size / PARTS[stratum], piece) for place, piece in pieces]
    uses = Counter[str]()
    capped: dict[Stratum, list[TrainingPair]] = {stratum: [] for stratum in strata}
    for _, piece in sorted(turns, key=lambda turn: turn[0]):
        added = Counter(chain(*(pair.doc_ids for pair in piece)))
        if all(uses[item] + times <= most for item, times in added.items()):
            uses.update(added)
            capped[piece[0].stratum] += piece
    return capped


# What an adapter is to answer: a target for every pair, made from the model's own preferences. A prompt's margin is z =
# logit(the answer naming the first item) − logit(the one naming the second); z1: item `a` of the pair shown first, z2:
# `a` shown second. g = (z1 − z2)/2 is the preference for `a`, s = (z1 + z2)/2 the slot bias; the answers on a pair
# agree iff |g| > |s|. `shifted` moves each query's preferences by their median and keeps their order: the offset along
# the group direction is what an adapter of rank 1 can express, and what carries over to other queries. `random` labels
# and `equal-answers` are two readings of Wang et al. 2024, section 5.

Floats = NDArray[np.float64]
Margins = Mapping[str, tuple[float, float]]
"""z1 and z2 by pair id."""
RELEVANT_WINS = 0.9
"""The target of a mixed pair anchored in relevance."""
LABEL_STREAM = 48
"""Of a query's seed, with the stratum's number; lower ones draw lists, orders and pairs (`probes.py`)."""


def preference(margins: Floats) -> Floats:
    """g of margins of shape (pairs, 2)."""
    return (margins[:, 0] - margins[:, 1]) / 2


def slot_bias(margins: Floats) -> Floats:
    """s of margins of shape (pairs, 2)."""
    return (margins[:, 0] + margins[:, 1]) / 2


def sigmoid(x: Floats) -> Floats:
    return np.exp(-np.logaddexp(0.0, -x))


def label(
    train: Mapping[str, ByStratum], margins: Margins, attribute: Attribute, settings: FinetuneSettings
) -> dict[str, TrainingPair]:
    """Every training pair with its target and weight, by pair id; the margins are the base model's. Raises UsageError
    unless relevant pairs and irrelevant ones count in the loss: have a weight."""
    labelled = {}
    for query_id, strata in train.items():
        medians = list[float]()
        for stratum, pairs in strata.items():
            if not pairs:
                continue
            z = np.array([margins[pair.pair_id] for pair in pairs])
            g = preference(z)
            targets, weights = np.full(len(pairs), RELEVANT_WINS), np.ones(len(pairs))
            if stratum != "mixed":
                medians.append(float(np.median(g)))
                number = LABEL_STREAM + STRATA.index(stratum)
                rng = np.random.default_rng([settings.seed, zlib.crc32(query_id.encode()), number])
                targets, weights = _targets(pairs, z, settings, rng)
            elif settings.anchor == "base":  # preferred as it was without the bias
                offset = float(np.mean(medians)) if medians else 0.0
                targets = sigmoid(g - np.array([group_sign(pair, attribute) * offset for pair in pairs]))
            for pair, target, weight in zip(pairs, targets.tolist(), weights.tolist(), strict=True):
                labelled[pair.pair_id] = replace(pair, target=target, weight=weight)
    for stratum in STRATA[:2]:
        if not any(pair.weight for pair in labelled.values() if pair.stratum == stratum):
            raise UsageError(
                f"no {stratum} pair to train on counts: labels come in halves, for either group.",
                "choose --labels soft, or shifted with more than one pair of a query",
            )
    return labelled


def _targets(
    pairs: Sequence[TrainingPair], margins: Floats, settings: FinetuneSettings, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Targets and weights of the pairs of one query and stratum; half of those with weight are won, half are lost."""
    g, n, labels = preference(margins), len(pairs), settings.labels
    if labels == "soft":
        return np.full(n, 0.5), np.ones(n)
    if labels == "shifted" and settings.soft_labels:
        return sigmoid(g - np.median(g)), np.ones(n)
    if labels == "equal-answers":
        agreed = np.abs(g) > np.abs(slot_bias(margins))
        won, lost = (rng.permutation(np.flatnonzero(agreed & side)) for side in (g > 0, g < 0))
        each = min(len(won), len(lost))
    else:
        rising = sorted(range(n), key=lambda place: (g[place], pairs[place].pair_id))
        lost = rng.permutation(n) if labels == "random" else np.array(rising)
        won, each = lost[::-1], n // 2
    targets, weights = np.full(n, 0.5), np.zeros(n)
    targets[lost[:each]], targets[won[:each]] = 0.0, 1.0
    weights[[*lost[:each], *won[:each]]] = 1.0
    return targets, weights


# From pairs to token ids. A model is trained on exactly what it is audited with: the ranker makes the chats, the chat
# template the ids, and the two ids that a margin compares are those of the audit's margins (`ChatTemplate.label_ids`).

Ids = NDArray[np.int32]
"""Token ids of one prompt: (length,). An int in a tuple takes nine times the room."""


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One pair as the model sees it, up to where the answers part: item `a` shown `first`, and `second`. `answers`: the
    ids of the answer that names the item shown first and of the one that names the other. `target` 0.5: unlabelled."""

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
    """Every group's prompts as token ids. Raises ContextTooLong for a prompt of more than `context` tokens, and
    UsageError where the answers' ids differ from prompt to prompt, so that no two rows of the output matrix are meant.
    """

    def example(pair: TrainingPair) -> Example:
        prompts = list[Ids]()
        for chat in chats_of(pair, ranker):
            ids, labels = template.label_ids(chat.messages, label_answers(chat.expects))
            if context is not None and len(ids) > context:
                raise ContextTooLong(
                    f"a prompt of pair {pair.pair_id} has {len(ids):,} tokens, and the model has room for {context:,}.",
                    "choose fewer words with --words, or a model with more context",
                )
            first, second = labels.values()
            answers.add((first, second))
            prompts.append(np.array(ids, dtype=np.int32))
        if len(answers) > 1:
            raise UsageError(
                f"the answers have {len(answers)} different pairs of tokens, depending on the prompt.",
                "choose the other --form",
            )
        target = 0.5 if pair.target is None else pair.target
        return Example(prompts[0], prompts[1], (first, second), pair.stratum, target, pair.weight)

    answers = set[tuple[int, int]]()
    return [tuple(map(example, group)) for group in groups]


def chats_of(pair: TrainingPair, ranker: PairwiseRanker) -> tuple[Chat, Chat]:
    """The two questions about a pair: `a` shown first, then second."""
    candidates = Candidates(pair.query, (pair.a, pair.b), {})
    return ranker.chats(Probe(pair.pair_id, candidates, pair.stratum, "neutral"))
