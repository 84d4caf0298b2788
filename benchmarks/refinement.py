"""How often what is concluded of refined queries is false: `python -m benchmarks.refinement`.

Simulated audits on arrays. First the loop itself: documents with groups, relevance and a score, a page of the best 20,
and keywords that raise the scores of the group that is furthest below its target by `pull` and move all scores by
`drift`; rounds that come nearer are kept. Beside it the original query's page, greedy's, and the loop by the group's
name, whose pull is .2. Then the laws of changes that mislead: rare losses, few topics that change, skewed changes, and
tests of many methods. "Before" is the rule of intervals alone, against the original query alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.rows import print_lines
from llmfair.audits.aggregates import Inference
from llmfair.audits.refine.measure import Contrast, contrast, finding_of
from llmfair.audits.refine.results import RefineFinding
from llmfair.audits.refine.words import status_of
from llmfair.nouns import Conclusion
from llmfair.stats.significance import holm, sign_flip

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]
Number = TypeVar("Number", bound=np.generic)

AUDITS = 300
GOALS = ("KL@20", "AWRF@20", "nDCG@20")
MARGIN, LEVEL = 0.05, 0.95
RULE = RefineFinding(
    measure=GOALS[0],
    aimed=GOALS[1],
    utility=GOALS[2],
    margin=MARGIN,
    conclusion=Conclusion.NOT_ASSESSABLE,
    reason=None,
)
DOCUMENTS, PAGE, ROUNDS, POOL = 600, 20, 5, 100
GROUPS = (0.25, 0.65, 0.1)
"""Shares of the collection; the first group scores lower, the last is unknown, which no word names."""
EPS = 1e-6
NAME = 0.2
DISCOUNT = 1 / np.log2(np.arange(2, PAGE + 2))
ATTENTION = 1 / np.log2(np.maximum(np.arange(1, PAGE + 1), 2))


# The loop, all topics at once.


@dataclass(frozen=True)
class Topics:
    """Arrays of shape (topics, documents), and targets of shape (topics, groups)."""

    group: Integers
    relevant: NDArray[np.bool_]
    score: Floats
    target: Floats


def topics_of(n: int, rng: np.random.Generator) -> Topics:
    group = rng.choice(len(GROUPS), (n, DOCUMENTS), p=GROUPS)
    relevant = rng.random(group.shape) < np.where(group == 0, 0.17, 0.12)
    lean = 0.6 * rng.normal(1, 0.6, (n, 1)) * (group == 0)
    score = 1.2 * relevant + rng.normal(size=group.shape) - lean
    return Topics(group, relevant, score, _shares(group, relevant.astype(float)))


def _shares(group: Integers, weight: Floats) -> Floats:
    mass = np.stack([(weight * (group == one)).sum(axis=-1) for one in range(len(GROUPS))], axis=-1)
    shares: Floats = mass / mass.sum(axis=-1, keepdims=True)
    return shares


def _divergence(shares: Floats, target: Floats) -> Floats:
    p, q = ((of + EPS) / (1 + len(GROUPS) * EPS) for of in (shares, target))
    divergence: Floats = (p * np.log(p / q)).sum(axis=-1)
    return divergence


def best(score: Floats, n: int = PAGE) -> Integers:
    return np.argsort(-score, axis=-1)[..., :n]


def _on(page: Integers, of: NDArray[Number]) -> NDArray[Number]:
    return np.take_along_axis(of, page, axis=-1)


def values(topics: Topics, page: Integers) -> Floats:
    """KL, AWRF and nDCG of every topic's page; shape (3, topics)."""
    group, relevant = _on(page, topics.group), _on(page, topics.relevant)
    attention = _shares(group, np.broadcast_to(ATTENTION, group.shape))
    middle = (attention + topics.target) / 2
    apart = (_divergence(attention, middle) + _divergence(topics.target, middle)) / 2
    most = np.minimum(topics.relevant.sum(axis=-1), PAGE)
    gain = (relevant * DISCOUNT).sum(axis=-1) / np.cumsum(DISCOUNT)[most - 1]
    return np.stack([_objective(topics, page), 1 - apart, gain])


def _objective(topics: Topics, page: Integers) -> Floats:
    group = _on(page, topics.group)
    return _divergence(_shares(group, np.ones(group.shape)), topics.target)


def refined(topics: Topics, pull: float, drift: float, cost: float, rng: np.random.Generator) -> Integers:
    """The pages that are kept, ordered by the original query; `cost`: what words take from relevant documents."""
    score, page = topics.score, best(topics.score)
    value, going = _objective(topics, page), np.ones(len(page), bool)
    for _ in range(ROUNDS):
        group = _on(page, topics.group)
        behind = (topics.target - _shares(group, np.ones(group.shape)))[:, :2]
        wanted, going = behind.argmax(axis=-1), going & (behind.max(axis=-1) > 0)
        named = (topics.group == wanted[:, None]) & (rng.random(score.shape) < 0.6)
        tried = score + pull * named + drift * rng.normal(size=score.shape) - cost * topics.relevant
        found = best(tried)
        going &= _objective(topics, found) < value - 1e-9
        score, page = np.where(going[:, None], tried, score), np.where(going[:, None], found, page)
        value = _objective(topics, page)
    return np.take_along_axis(page, np.argsort(-_on(page, topics.score), axis=-1), axis=-1)


def greedy(topics: Topics) -> Integers:
    """The page of the control: half by the score, half by how near the target the page then is."""
    pool = best(topics.score, POOL)
    score, group = _on(pool, topics.score), _on(pool, topics.group)
    low, high = score.min(axis=-1, keepdims=True), score.max(axis=-1, keepdims=True)
    worth, rows = (score - low) / (high - low) / 2, np.eye(len(GROUPS))[group]
    mass, places = np.zeros((len(pool), 1, len(GROUPS))), []
    for length in range(1, PAGE + 1):
        distance = _divergence((mass + rows) / length, topics.target[:, None])
        place = (worth - distance / 2).argmax(axis=-1)[:, None]
        np.put_along_axis(worth, place, -np.inf, axis=-1)
        mass = mass + np.take_along_axis(rows, place[..., None], axis=1)
        places.append(place)
    return np.take_along_axis(pool, np.concatenate(places, axis=1), axis=-1)


@dataclass(frozen=True)
class Loop:
    name: str
    topics: int
    pull: float
    drift: float = 0.3
    cost: float = 0.0


LOOPS = (
    Loop("words without effect", 12, 0.0),
    Loop("words without effect", 44, 0.0),
    Loop("pages at random", 12, 0.0, 1.0),
    Loop("pages at random", 44, 0.0, 1.0),
    Loop("pages quite at random", 44, 0.0, 2.0),
    Loop("the group's name", 12, 0.2),
    Loop("the group's name", 44, 0.2),
    Loop("fair words", 12, 0.5),
    Loop("fair words", 44, 0.5),
    Loop("good words", 12, 1.0),
    Loop("good words", 44, 1.0),
    Loop("good words that cost", 44, 1.0, 0.3, 0.4),
)


METHODS = ("fair-qr", "bm25", "greedy", "name")


def pages(row: Loop, rng: np.random.Generator) -> dict[str, Floats]:
    """What every method's pages have: shape (3, topics)."""
    topics = topics_of(row.topics, rng)
    made = {
        "fair-qr": refined(topics, row.pull, row.drift, row.cost, rng),
        "bm25": best(topics.score),
        "greedy": greedy(topics),
        "name": refined(topics, NAME, 0.3, 0.0, rng),
    }
    return {method: values(topics, page) for method, page in made.items()}


def changes(fair: Floats, **methods: Floats) -> dict[tuple[str, str], Contrast]:
    return {
        (goal, method): contrast(goal, method, np.stack([of, by], axis=1).tolist(), Inference())
        for method, base in methods.items()
        for goal, of, by in zip(GOALS, base, fair, strict=True)
    }


def before(contrasts: Mapping[tuple[str, str], Contrast]) -> str:
    """The status by intervals alone, against the original query."""
    limits = [(row.low or 0.0, row.high or 0.0) for row in (contrasts[goal, "bm25"].row for goal in GOALS)]
    (least, most), (low, high), (_, utility) = limits
    if most < 0 < low:
        return "nearer at a loss" if utility < 0 else "nearer"
    return "no nearer" if least >= 0 or high <= 0 else "inconclusive"


def loops(audits: int) -> Iterable[str]:
    yield f"{'':42}KL@20 (AWRF@20) of means    nearer, without a loss: before; held against greedy; and name"
    yield f"{'':22}topics " + "".join(f"{name:>14}" for name in METHODS)
    for row in LOOPS:
        means, shares = np.zeros((len(METHODS), 3)), []
        for seed in range(audits):
            made = pages(row, np.random.default_rng([seed, row.topics]))
            means += [made[method].mean(axis=1) for method in METHODS]
            contrasts = changes(made.pop(METHODS[0]), **made)
            found = [finding_of(RULE, by, contrasts, LEVEL) for by in (["greedy"], ["greedy", "name"])]
            statuses = [before(contrasts), *map(status_of, found)]
            shares.append([holds for of in statuses for holds in (of.startswith("nearer"), of == "nearer")])
        figures = "".join(f" {kl:.3f} ({awrf:.3f})" for kl, awrf, _ in means / audits)
        yield f"{row.name:22}{row.topics:6} {figures} {_percent(shares)}"


# Laws of changes.


Law = Callable[[int, np.random.Generator], Floats]


def rare(share: float, loss: float, sd: float) -> Law:
    return lambda n, rng: -loss * (rng.random(n) < share) + rng.normal(0, sd, n)


COSTS: Sequence[tuple[str, Law]] = (
    ("-.05, sd .1", lambda n, rng: rng.normal(-0.05, 0.1, n)),
    ("-.05, sd .03", lambda n, rng: rng.normal(-0.05, 0.03, n)),
    ("a tenth lose .5, others 0", rare(0.1, 0.5, 0)),
    ("a tenth lose .5, sd .02", rare(0.1, 0.5, 0.02)),
    ("a tenth lose .5, sd .1", rare(0.1, 0.5, 0.1)),
    ("0, sd .1", lambda n, rng: rng.normal(0, 0.1, n)),
    ("0, sd .05", lambda n, rng: rng.normal(0, 0.05, n)),
)


def costs(audits: int) -> Iterable[str]:
    """nearer, and no loss said, of pages that are nearer for certain."""
    yield f"{'change of nDCG':28} said to cost nothing: before (12, 20, 47 topics), after"
    for name, law in COSTS:
        shares: list[list[bool]] = []
        for seed in range(audits):
            rng = np.random.default_rng(seed)
            row: tuple[list[bool], list[bool]] = [], []
            for n in (12, 20, 47):
                made = changes(np.stack([*_nearer(n, rng), law(n, rng)]), bm25=np.zeros((3, n)))
                row[0].append(before(made) == "nearer")
                row[1].append(status_of(finding_of(RULE, (), made, LEVEL)) == "nearer")
            shares.append(row[0] + row[1])
        yield f"{name:28} {_percent(shares)}"


def _nearer(n: int, rng: np.random.Generator) -> Floats:
    return np.stack([rng.normal(-0.2, 0.01, n), rng.normal(0.05, 0.002, n)])


def few(drawn: Law) -> Law:
    """Four topics change."""
    return lambda n, rng: np.append(drawn(4, rng), np.zeros(n - 4))


NULLS: Sequence[tuple[str, Law]] = (
    ("all change, normal", lambda n, rng: rng.normal(size=n)),
    ("4 change, normal", few(lambda n, rng: rng.normal(size=n))),
    ("4 change, skewed", few(lambda n, rng: 1 - rng.exponential(size=n))),
    ("all change, skewed", lambda n, rng: 1 - rng.exponential(size=n)),
    ("all change, skewed much", lambda n, rng: np.exp(0.5) - np.exp(rng.normal(size=n))),
)


def nulls(audits: int) -> Iterable[str]:
    """One measure without a mean change, the other better for certain."""
    yield f"{'AWRF, whose mean is unchanged':28} nearer or no nearer: before (8, 12, 44 topics), after"
    for name, law in NULLS:
        shares = []
        for seed in range(audits):
            rng = np.random.default_rng(seed)
            row: tuple[list[bool], list[bool]] = [], []
            for n in (8, 12, 44):
                objective = _nearer(n, rng)[0]
                made = changes(np.stack([objective, 0.1 * law(n, rng), objective]), bm25=np.zeros((3, n)))
                row[0].append(before(made) != "inconclusive")
                after = finding_of(RULE, (), made, LEVEL).conclusion
                row[1].append(after in (Conclusion.WITHIN, Conclusion.OUTSIDE))
            shares.append(row[0] + row[1])
        yield f"{name:28} {_percent(shares)}"


def families(audits: int) -> Iterable[str]:
    """Changes of one topic are alike in all methods and in none of the measures."""
    yield f"{'nothing differs, 47 topics':28} any p (Holm) < .05: each measure for itself, over all"
    for measures, methods in ((4, 2), (4, 7)):
        shares = []
        for seed in range(audits):
            rng = np.random.default_rng(seed)
            drawn = rng.normal(size=(measures, 1, 47)) + rng.normal(size=(measures, methods, 47))
            tests = [[sign_flip(of, rng=rng) for of in by] for by in drawn]
            families = (tests, [[p for of in tests for p in of]])
            shares.append([any((p or 0) < 1 - LEVEL for of in each for p in holm(of)) for each in families])
        yield f"{f'{measures} measures, {methods} methods':28} {_percent(shares)}"


def _percent(shares: Sequence[Sequence[bool]]) -> str:
    return " ".join(f"{100 * share:6.1f}" for share in np.mean(shares, axis=0))


def lines(audits: int) -> Iterable[str]:
    yield f"{audits:,} audits a row; shares in %, standard errors at most {50 / audits**0.5:.1f}"
    for part in (loops, costs, nulls, families):
        yield from part(audits)


if __name__ == "__main__":
    print_lines(__doc__, AUDITS, lines)
