"""What a design can show at all, whatever the model: simulated on its own lists and windows, never asked."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache, partial
from statistics import median

import numpy as np

from llmfair.audits.listwise.design import ListwiseDesign
from llmfair.audits.listwise.played import play, rank_played
from llmfair.audits.listwise.shapes import Shape
from llmfair.audits.summary import Inference
from llmfair.nouns import Side
from llmfair.rankers.listwise import ListwiseRanker
from llmfair.rankers.strategy import Strategy
from llmfair.results import Reach
from llmfair.stats.injected import Kinds, kind_exposures, rank_injected
from llmfair.stats.reach import Rank, attainable_precision, attainable_ratio, by_windows

REACH_DRAWS = 3000
PLAYED_CALLS, FEWEST_DRAWS, MOST_DRAWS = 60_000, 30, 1000
"""Where a program is played so many questions are answered in all, from so many initial orders at least and at most:
the more questions, the less is left to the order."""
INDIFFERENT_DRAWS = 100
Plans = tuple[tuple[int, tuple[tuple[int, int], ...]], ...]


def reach_of(design: ListwiseDesign) -> dict[str, dict[str, float]]:
    """ExpRatio of rankers that always put one side first, P@20 of a perfect ranker, both from random orders.

    Of other initial orders: the ExpRatio that a ranker without any preference makes of them (`indifferent`).
    """
    if design.partition:
        return {}
    if design.settings.initial not in ("random", "mirrored"):
        indifferent = _indifferent(design, np.random.default_rng(design.settings.seed))
        return {} if indifferent is None else {"ExpRatio": {"indifferent": indifferent}}
    return _reach(design.shapes, *_how(design), design.settings.seed)


def known_reach(design: ListwiseDesign) -> dict[str, Reach]:
    """The same, typed."""
    return {measure: Reach(**ends) for measure, ends in reach_of(design).items()}


@lru_cache(maxsize=32)
def _reach(
    shapes: tuple[Shape, ...], how: Plans | Strategy, passes: int, draws: int, seed: int
) -> dict[str, dict[str, float]]:
    rng = np.random.default_rng(seed)
    rank = _ranks(how, passes)
    found: dict[str, dict[str, float]] = {}
    if both := _two_sided(shapes):
        ratio = attainable_ratio(both, rank, draws, rng=rng)
        found["ExpRatio"] = {"low": ratio.low, "high": ratio.high}
    if judged := [(shape.n, shape.relevant) for shape in shapes if shape.judged]:
        found["P@20"] = {"high": attainable_precision(judged, rank, 20, draws, rng=rng)}
    return found


def _how(design: ListwiseDesign) -> tuple[Plans | Strategy, int, int]:
    """By what its lists are ranked, where that is windows in how many passes, and from how many initial orders."""
    plans, sizes = [], sorted({shape.n for shape in design.shapes})
    for n in sizes:
        windows = design.windows(n)
        if windows is None:
            assert isinstance(design.ranker, ListwiseRanker)
            strategy = design.ranker.strategy
            asked = max(strategy.plan(size).calls for size in sizes)
            return strategy, 1, min(MOST_DRAWS, max(FEWEST_DRAWS, PLAYED_CALLS // max(1, asked)))
        plans.append((n, tuple(windows)))
    return tuple(plans), design.passes, REACH_DRAWS


def _ranks(how: Plans | Strategy, passes: int) -> Rank:
    if isinstance(how, Strategy):
        return partial(rank_played, how)
    return by_windows(dict(how).__getitem__, passes)


def _indifferent(design: ListwiseDesign, rng: np.random.Generator) -> float | None:
    """The exposure ratio of a ranker that orders every window by chance, from the design's own initial orders."""
    kind_of = {Side.PROTECTED: 0, Side.UNPROTECTED: 1, None: 2}
    over = under = 0.0
    for query in design.queries:
        for order in design.orders[query.query_id]:
            kinds = np.array([kind_of[design.sides[doc_id]] for doc_id in order.doc_ids], dtype=np.uint8)
            if not {0, 1} <= set(kinds.tolist()):
                continue
            lists = np.tile(kinds, (INDIFFERENT_DRAWS, 1))
            windows = design.windows(len(kinds))
            if windows is None:
                ranked = _by_chance(design, lists, rng)
            else:
                ranked = rank_injected(lists, np.zeros(3), windows, design.passes, rng=rng)
            sides = kind_exposures(ranked, 2).mean(axis=0)
            over, under = over + float(sides[0]), under + float(sides[1])
    return over / under if under else None


def _by_chance(design: ListwiseDesign, lists: Kinds, rng: np.random.Generator) -> Kinds:
    """The same of a program whose questions hang on the answers."""
    assert isinstance(design.ranker, ListwiseRanker)
    strategy, n = design.ranker.strategy, lists.shape[1]
    played = (play(strategy, range(n), lambda items, alone: rng.random(len(items)).tolist()) for _ in lists)
    return np.array([row[final] for row, (final, _) in zip(lists, played, strict=True)])


def inference_of(design: ListwiseDesign) -> Inference:
    """How this design's figures of all queries are inferred."""
    settings = design.settings
    return Inference(
        level=settings.level,
        ci=settings.ci,
        seed=settings.seed,
        documents=median(shape.n for shape in design.shapes),
    )


def _two_sided(shapes: Iterable[Shape]) -> list[tuple[int, int, int]]:
    return [(s.n, s.protected, s.unprotected) for s in shapes if s.protected and s.unprotected]
