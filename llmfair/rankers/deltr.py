"""DELTR: a linear model trained to rank well, and to show the protected group no less than the other.

Of a query with rows x_i, flags of the protected group and judgements y: P = softmax(Xw), S = softmax(y),
L = −Σ S_i ln P_i; Exposure(G) = Σ_{i∈G} P_i / (|G| ln 2), the attention at the first place in natural logarithms;
U = max(0, Exposure(unprotected) − Exposure(protected))², 0 where a group is missing. What falls is L + γU over queries.
Source: Zehlike & Castillo, "Reducing Disparate Exposure in Ranking: A Learning to Rank Approach", WWW 2020; the
schedule is that of fairsearchdeltr 1.0.2, on whose scale γ is usually given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmfair.errors import UsageError
from llmfair.metrics.base import Free
from llmfair.nouns import Candidates
from llmfair.rankers.base import RankerOptions
from llmfair.rankers.crossfit import CrossFitted
from llmfair.rankers.encoders import named_encoder
from llmfair.rankers.features import Features
from llmfair.rankers.parameters import Declared, number, read_parameters, spelled, whole
from llmfair.registry import register

Floats = NDArray[np.float64]
Gradient = Literal["exact", "compat"]
Standardize = Literal["columns", "global"]

PROTECTED = 0
"""The column of the features that says who is protected: 1 or 0; standardizing leaves it as it is."""
START = 0.01
"""Weights start uniformly between 0 and this."""


NONE = "none"
DECLARED: Declared = {
    "gamma": number(500, 0, 1e9),
    "gradient": get_args(Gradient),
    "standardize": get_args(Standardize),
    "steps": whole(3000, 1_000_000),
    "rate": number(0.001, 0, 1),
    "encoder": Free(NONE, str, "none, sbert, or a checkpoint of sentence-transformers"),
}


@register("ranker", "deltr")
def deltr(options: RankerOptions) -> CrossFitted:
    """DELTR, cross-fitted on the judged lists.

    Raises UsageError without two groups or without judgements, and what `named_encoder` raises.
    """
    parameters = read_parameters("deltr", options.checkpoint, DECLARED)
    if options.attribute is None:
        raise UsageError("deltr compares two groups, and here is no attribute that tells them.", "-m bm25")
    named = parameters.pop("encoder")
    encoder = None if named == NONE else named_encoder(named, options)
    features = Features(options.documents, options.attribute, options.cache / "indexes", encoder)
    training = Training(
        **{one.name: parameters[one.name] for one in fields(Training) if one.name in parameters}
    )
    ranker = CrossFitted(
        f"deltr {spelled(parameters)} features={features.identity}",
        lambda lists: DeltrModel(lists, features, training, parameters["standardize"]),
        options.lists(),
    )
    if features.missing:
        ranker.warnings = (f"deltr learns without {', '.join(features.missing)}: no item has any",)
    return ranker


class TrainingRows:
    """Rows of judged queries: `features` (rows, columns), `protected` and `judgements` (rows,), query by query.

    `query_ids` says of every row whose it is; those of one query need not stand together. Raises UsageError for a
    feature or judgement that is not finite, and for fewer than two rows, whose order nothing can be learnt from.
    """

    def __init__(self, query_ids: ArrayLike, features: ArrayLike, judgements: ArrayLike) -> None:
        names, first, query = np.unique(np.asarray(query_ids), return_index=True, return_inverse=True)
        rank = np.argsort(np.argsort(first))[query]
        together = np.argsort(rank, kind="stable")
        self.query_ids = names[np.argsort(first)]
        """Each query once, in the order of its first row."""
        self.query = rank[together]
        self.sizes = np.bincount(self.query)
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.features = np.asarray(features, dtype=float)[together]
        self.judgements = np.asarray(judgements, dtype=float)[together]
        if len(together) < 2:
            raise UsageError("DELTR has no two judged items to learn from.", "give more judged queries")
        if not (np.isfinite(self.features).all() and np.isfinite(self.judgements).all()):
            raise UsageError(
                "DELTR's features and judgements have to be numbers.", "look for NaN and infinity"
            )
        protected = self.features[:, PROTECTED] > 0
        self.groups = tuple(_Group(self, members) for members in (~protected, protected))

    def sums(self, values: Floats) -> Floats:
        """Each query's sum of a value per row; shape (queries,)."""
        found: Floats = np.add.reduceat(values, self.starts)
        return found

    def softmax(self, values: Floats) -> Floats:
        """e^value, as a share of its query's; shape (rows,)."""
        powers = np.exp(values - np.maximum.reduceat(values, self.starts)[self.query])
        return powers / self.sums(powers)[self.query]


class _Group:
    """One of the two groups: `members` 1 or 0 by row, `sizes` |G| by query."""

    def __init__(self, rows: TrainingRows, members: NDArray[np.bool_]) -> None:
        self.rows, self.members = rows, members.astype(float)
        self.sizes = rows.sums(self.members)
        self._scale = 1 / (np.maximum(self.sizes, 1) * math.log(2))

    def exposure(self, chances: Floats) -> Floats:
        """Exposure(G) by query, 0 without a member."""
        return self.rows.sums(chances * self.members) * self._scale

    def factors(self, counted: bool) -> Floats:
        """1 / (|G| ln 2) of its rows, 0 of others; `counted`: times |G|."""
        return self.members * (self._scale * (self.sizes if counted else 1))[self.rows.query]


@dataclass(frozen=True, slots=True)
class Losses:
    """What the weights cost, by query, (queries,): `disparity` is U; an `exposure` without a member is NaN."""

    cross_entropy: Floats
    exposure_unprotected: Floats
    exposure_protected: Floats
    disparity: Floats

    def total(self, gamma: float) -> float:
        """Σ L + γU."""
        return float((self.cross_entropy + gamma * self.disparity).sum())


@dataclass(frozen=True, slots=True)
class Training:
    """How weights are found: `steps` of gradient descent over all queries at once, each by its number of rows.

    w ← w − rate · Σ_q n_q (∇L_q / ln N + γ ∇U_q), N all rows; without `divided` L counts whole, as in the authors' own
    experiments. `gradient`: `exact`, or `compat`, fairsearchdeltr's, in which a group's sum is taken |G| times and
    one number, x̄ summed over its columns, is subtracted from every column. Raises UsageError for what is no setting.
    """

    gamma: float = 500.0
    gradient: Gradient = "exact"
    steps: int = 3000
    rate: float = 0.001
    divided: bool = True

    def __post_init__(self) -> None:
        if self.gradient not in get_args(Gradient):
            raise UsageError(
                f"DELTR has no gradient '{self.gradient}'.", f"known: {', '.join(get_args(Gradient))}"
            )
        if not (math.isfinite(self.gamma) and self.gamma >= 0):
            raise UsageError(f"DELTR's gamma is {self.gamma:g}.", "gamma is a number from 0: gamma=500")

    def objective(self, rows: TrainingRows, weights: ArrayLike) -> float:
        """What the steps lower: Σ_q n_q (L_q / ln N + γ U_q)."""
        found = losses(rows, weights)
        return float(rows.sizes @ (found.cross_entropy / self._divisor(rows) + self.gamma * found.disparity))

    def slope(self, rows: TrainingRows, weights: Floats) -> Floats:
        """The objective's gradient by the weights, or what `compat` takes for it; shape (columns,).

        ∇L = Σ (P_i − S_i) x_i; ∇Exposure(G) = Σ_{i∈G} P_i (x_i − x̄) / (|G| ln 2) with x̄ = Σ P_i x_i. Both are sums
        of rows with a factor each, so that one product of factors and features is all of it.
        """
        chances, compat = rows.softmax(rows.features @ weights), self.gradient == "compat"
        factors = (chances - rows.softmax(rows.judgements)) * rows.sizes[rows.query] / self._divisor(rows)
        unprotected, protected = rows.groups
        gap = unprotected.exposure(chances) - protected.exposure(chances)
        pull = 2 * self.gamma * rows.sizes * np.maximum(0, gap) * (unprotected.sizes * protected.sizes > 0)
        of_members = unprotected.factors(compat) - protected.factors(compat)
        factors += chances * of_members * pull[rows.query]
        if not compat:
            factors -= chances * (gap * pull)[rows.query]
        found: Floats = factors @ rows.features
        if compat:
            found -= (gap * pull) @ rows.sums(chances * rows.features.sum(axis=1))
        return found

    def _divisor(self, rows: TrainingRows) -> float:
        return math.log(len(rows.query)) if self.divided else 1.0

    def weights(self, rows: TrainingRows, start: ArrayLike) -> Floats:
        """The weights after all steps, (columns,). Raises UsageError where they are not finite."""
        found = np.array(start, dtype=float)
        with np.errstate(all="ignore"):  # what overflows ends as NaN, which is refused below
            for _ in range(self.steps):
                found -= self.rate * self.slope(rows, found)
        if not np.isfinite(found).all():
            raise UsageError(
                f"DELTR's weights grew beyond all numbers (gamma {self.gamma:g}, rate {self.rate:g}).",
                "a smaller gamma or rate keeps the steps from overshooting",
            )
        return found


def losses(rows: TrainingRows, weights: ArrayLike) -> Losses:
    """L, exposures and U of every query."""
    scores = rows.features @ np.asarray(weights, dtype=float)
    chances = rows.softmax(scores)
    highest = np.maximum.reduceat(scores, rows.starts)[rows.query]
    logs = scores - highest - np.log(rows.sums(np.exp(scores - highest)))[rows.query]
    unprotected, protected = (
        np.where(group.sizes > 0, group.exposure(chances), np.nan) for group in rows.groups
    )
    gap = np.maximum(0, np.nan_to_num(unprotected - protected))
    return Losses(-rows.sums(rows.softmax(rows.judgements) * logs), unprotected, protected, gap**2)


def start_weights(columns: int, seed: int = 0) -> Floats:
    """Where training starts: drawn uniformly from 0 to 0.01; shape (columns,)."""
    return np.random.default_rng(seed).random(columns) * START


@dataclass(frozen=True, slots=True)
class Scale:
    """Means and deviations that features are standardized by, (columns,) each: those of the training rows."""

    mean: Floats
    deviation: Floats

    @classmethod
    def of(cls, features: Floats, how: Standardize = "columns") -> Scale:
        """`columns`: each column's own; `global`: one of the whole matrix, as fairsearchdeltr. Raises UsageError.

        The protected column stays as it is. A column that does not vary is moved to 0.
        """
        if how not in get_args(Standardize):
            raise UsageError(
                f"DELTR cannot standardize by '{how}'.", f"known: {', '.join(get_args(Standardize))}"
            )
        axis = 0 if how == "columns" else None
        mean = np.broadcast_to(features.mean(axis=axis), features.shape[1]).copy()
        deviation = np.broadcast_to(features.std(axis=axis), features.shape[1]).copy()
        deviation[deviation == 0] = 1
        mean[PROTECTED], deviation[PROTECTED] = 0, 1
        return cls(mean, deviation)

    def __call__(self, features: Floats) -> Floats:
        """The features standardized, (rows, columns)."""
        return (features - self.mean) / self.deviation


class DeltrModel:
    """A model of judged lists: weights, and the scale of the features that they stand on.

    `features` gives a list's, (candidates, columns), the protected column first; judged is who is relevant, 1, and who
    is not, 0. Raises UsageError as training does.
    """

    def __init__(
        self,
        lists: Sequence[Candidates],
        features: Callable[[Candidates], Floats],
        training: Training,
        standardize: Standardize = "columns",
        seed: int = 0,
    ) -> None:
        table = np.concatenate([features(one) for one in lists])
        self._features, self.scale = features, Scale.of(table, standardize)
        query_ids = [one.query.query_id for one in lists for _ in one.doc_ids]
        judgements = [one.relevance.get(doc_id, 0) >= 1 for one in lists for doc_id in one.doc_ids]
        rows = TrainingRows(query_ids, self.scale(table), judgements)
        self.weights = training.weights(rows, start_weights(table.shape[1], seed))

    def __call__(self, candidates: Candidates) -> list[float]:
        """A score for each candidate, in their order."""
        found: list[float] = (self.scale(self._features(candidates)) @ self.weights).tolist()
        return found
