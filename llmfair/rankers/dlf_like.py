"""DLF-like: BM25 beside a linear model that learns from a target of exposure instead of labels of fairness.

After Chen & Fang, "Learn to be Fair without Labels", ICTIR 2023: relevance and fairness are modelled apart, fairness by
the divergence of the exposure from its target, and both are merged by a weight. What features, model and schedule are
is ours, hence the name: f(d) = w · [vector of d, its memberships, cosine of q and d], P = softmax(f) over a list,
exposure of group g ε_g = Σ P_d m_g(d), loss KL(ε*, ε) = Σ ε*_g ln(ε*_g / ε_g), where ε* are the shares among relevant
documents. A list is ordered by α · BM25 + (1 − α) · f, either moved to [0, 1].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from llmfair.errors import UsageError
from llmfair.metrics.base import Free, Judged
from llmfair.metrics.targets import Cells, cells, target_shares
from llmfair.metrics.values import Undefined
from llmfair.nouns import Candidates
from llmfair.rankers.base import RankerOptions
from llmfair.rankers.bm25 import Bm25, bm25
from llmfair.rankers.crossfit import CrossFitted
from llmfair.rankers.encoders import SBERT, Vectors, named_encoder
from llmfair.rankers.parameters import Declared, number, read_parameters, spelled, whole
from llmfair.rankers.reranking import min_max
from llmfair.registry import register

Floats = NDArray[np.float64]

DECLARED: Declared = {
    "alpha": number(0.8, 0, 1),
    "pool": whole(100, 2000),
    "epochs": whole(100, 100_000),
    "rate": number(0.001, 0, 1),
    "encoder": Free(SBERT, str, "sbert, or a checkpoint of sentence-transformers"),
}
MEMBERSHIP = "split"
EPS = 1e-6
"""Added to every share, as `KL` has it by default."""
DECAYS, LEAST = (0.9, 0.999), 1e-8
"""Of Adam, as its authors have them [Kingma & Ba 2015]."""


@register("ranker", "dlf-like")
def dlf_like(options: RankerOptions) -> CrossFitted:
    """Cross-fitted on the judged lists. Raises MissingExtra, UsageError, and BackendError for no checkpoint."""
    parameters = read_parameters("dlf-like", options.checkpoint, DECLARED)
    if options.attribute is None:
        raise UsageError(
            "dlf-like aims at shares of groups, and here is no attribute that has any.", "-m bm25"
        )
    encoder = named_encoder(parameters["encoder"], options)
    first_stage, vectors = bm25(replace(options, checkpoint="")), Vectors(encoder)

    def fit(lists: Sequence[Candidates]) -> DlfLike:
        return DlfLike(
            lists,
            vectors,
            cells(options.groups),
            first_stage,
            parameters["alpha"],
            parameters["pool"],
            Schedule(parameters["epochs"], parameters["rate"]),
        )

    name = f"dlf-like {spelled(parameters)} {encoder.identity} over {first_stage.identity}"
    ranker = CrossFitted(name, fit, options.lists(), pool=parameters["pool"])
    ranker.target_known = "training topics"
    ranker.weighs_scores = True
    return ranker


@dataclass(frozen=True, slots=True)
class Lesson:
    """A list to learn from: `features` (n, columns), `members` (n, groups), `target` (groups,)."""

    features: Floats
    members: Floats
    target: Floats

    def loss(self, weights: Floats) -> float:
        """KL(ε*, ε), natural logarithm."""
        target, exposure = _smooth(self.target), _smooth(self._chances(weights) @ self.members)
        return float(target @ np.log(target / exposure))

    def slope(self, weights: Floats) -> Floats:
        """The loss's gradient by the weights; shape (columns,)."""
        chances = self._chances(weights)
        ratio = _smooth(self.target) / _smooth(chances @ self.members)
        gain = self.members @ ratio / (1 + self.target.size * EPS)
        found: Floats = (chances * (chances @ gain - gain)) @ self.features
        return found

    def _chances(self, weights: Floats) -> Floats:
        scores = self.features @ weights
        powers = np.exp(scores - scores.max())
        found: Floats = powers / powers.sum()
        return found


@dataclass(frozen=True, slots=True)
class Schedule:
    """Steps of Adam from zero: one a list, in an order drawn anew from the seed for every epoch."""

    epochs: int = 100
    rate: float = 0.001
    seed: int = 0

    def weights(self, lessons: Sequence[Lesson]) -> Floats:
        """The weights after all epochs, (columns,)."""
        found = np.zeros(lessons[0].features.shape[1])
        mean, square, random = np.zeros_like(found), np.zeros_like(found), np.random.default_rng(self.seed)
        places = (place for _ in range(self.epochs) for place in random.permutation(len(lessons)))
        for step, place in enumerate(places, start=1):
            slope = lessons[place].slope(found)
            mean = DECAYS[0] * mean + (1 - DECAYS[0]) * slope
            square = DECAYS[1] * square + (1 - DECAYS[1]) * slope**2
            moved = mean / (1 - DECAYS[0] ** step)
            found -= self.rate * moved / (np.sqrt(square / (1 - DECAYS[1] ** step)) + LEAST)
        return found


class DlfLike:
    """A model of judged lists, of which the best `pool` by the first stage are learnt from. Raises UsageError.

    `vectors` gives a list's features but for memberships, (candidates, columns).
    """

    def __init__(
        self,
        lists: Iterable[Candidates],
        vectors: Callable[[Candidates], Floats],
        spread: Cells,
        first_stage: Bm25,
        alpha: float = 0.8,
        pool: int = 100,
        schedule: Schedule = Schedule(),
    ) -> None:
        self._vectors, self._spread, self._first_stage, self.alpha = vectors, spread, first_stage, alpha
        lessons = []
        for one in lists:
            target = target_shares(Judged(one, (), {}, groups=spread.groups), spread, "empirical", MEMBERSHIP)
            if not isinstance(target, Undefined):
                best = first_stage.ordered(one)[0].at(range(min(pool, len(one.documents))))
                lessons.append(Lesson(self._features(best), self._members(best), target))
        if not lessons:
            raise UsageError("dlf-like has no list with a target to learn from.", "judge documents of groups")
        self.weights = schedule.weights(lessons)

    def __call__(self, candidates: Candidates) -> list[float]:
        """A score for each candidate, in their order."""
        given = candidates.scores
        relevance = min_max(np.array(self._first_stage.scores(candidates) if given is None else given))
        fairness = min_max(self._features(candidates) @ self.weights)
        found: list[float] = (self.alpha * relevance + (1 - self.alpha) * fairness).tolist()
        return found

    def _members(self, candidates: Candidates) -> Floats:
        return self._spread.rows(candidates.doc_ids, MEMBERSHIP)

    def _features(self, candidates: Candidates) -> Floats:
        return np.column_stack([self._vectors(candidates), self._members(candidates)])


def _smooth(shares: Floats) -> Floats:
    """Shares of a distribution, (groups,), none of them 0."""
    found: Floats = (shares + EPS) / (1 + shares.size * EPS)
    return found
