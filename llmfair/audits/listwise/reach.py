"""What a design can show at all, whatever the model: simulated on its own lists and windows, never asked."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from statistics import median

import numpy as np

from llmfair.audits.listwise.design import ListwiseDesign, Shape
from llmfair.audits.summary import Inference
from llmfair.records import Side
from llmfair.results import Reach
from llmfair.stats.injected import kind_exposures, rank_injected
from llmfair.stats.reach import Plan, attainable_precision, attainable_ratio

REACH_DRAWS = 3000
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
    plans = _plans(design.windows, {shape.n for shape in design.shapes})
    return _reach(design.shapes, plans, design.passes, design.settings.seed)


def known_reach(design: ListwiseDesign) -> dict[str, Reach]:
    """The same, typed."""
    return {measure: Reach(**ends) for measure, ends in reach_of(design).items()}


@lru_cache(maxsize=32)
def _reach(shapes: tuple[Shape, ...], plans: Plans, passes: int, seed: int) -> dict[str, dict[str, float]]:
    rng, windows = np.random.default_rng(seed), dict(plans).__getitem__
    found: dict[str, dict[str, float]] = {}
    if both := _two_sided(shapes):
        ratio = attainable_ratio(both, windows, passes, REACH_DRAWS, rng=rng)
        found["ExpRatio"] = {"low": ratio.low, "high": ratio.high}
    if judged := [(shape.n, shape.relevant) for shape in shapes if shape.judged]:
        precision = attainable_precision(judged, windows, passes, 20, REACH_DRAWS, rng=rng)
        found["P@20"] = {"high": precision}
    return found


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
            ranked = rank_injected(lists, np.zeros(3), design.windows(len(kinds)), design.passes, rng=rng)
            sides = kind_exposures(ranked, 2).mean(axis=0)
            over, under = over + float(sides[0]), under + float(sides[1])
    return over / under if under else None


def inference_of(design: ListwiseDesign) -> Inference:
    """How this design's figures of all queries are inferred."""
    settings = design.settings
    return Inference(
        level=settings.level,
        ci=settings.ci,
        seed=settings.seed,
        documents=median(shape.n for shape in design.shapes),
    )


def _plans(windows: Plan, sizes: Iterable[int]) -> Plans:
    """The windows of one pass over every size of list."""
    return tuple((n, tuple(windows(n))) for n in sorted(sizes))


def _two_sided(shapes: Iterable[Shape]) -> list[tuple[int, int, int]]:
    return [(s.n, s.protected, s.unprotected) for s in shapes if s.protected and s.unprotected]
