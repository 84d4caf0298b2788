"""DELTR: a linear model trained to rank well, and to show the protected group no less than the other.

Of a query with rows x_i, flags of the protected group and judgements y: P = softmax(Xw), S = softmax(y),
L = −Σ S_i ln P_i; Exposure(G) = Σ_{i∈G} P_i / (|G| ln 2), the attention at the first place in natural logarithms;
U = max(0, Exposure(unprotected) − Exposure(protected))², 0 where a group is missing. What falls is L + γU over queries.
Source: Zehlike & Castillo, "Reducing Disparate Exposure in Ranking: A Learning to Rank Approach", WWW 2020; the
schedule is that of fairsearchdeltr 1.0.2, on whose scale γ is usually given.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmfair.errors import UsageError
from llmfair.io.files import encode
from llmfair.metrics.attention import smoothed
from llmfair.metrics.base import Declared, Free, Judged, Undefined, number, read_parameters, spelled, whole
from llmfair.metrics.targets import Cells, cells, target_shares
from llmfair.nouns import Attribute, Candidates, Document, Side
from llmfair.rankers.base import RankerOptions, ScoringRanker, best_first
from llmfair.rankers.bm25 import Bm25, bm25
from llmfair.rankers.neural import SBERT, Encoder, named_encoder, vectors_of
from llmfair.rankers.reranking import EPS, MEMBERSHIP, min_max
from llmfair.registry import register
from llmfair.retrieval.bm25 import Bm25Index

# Cross-fitting: no query is scored by a model that saw its judgements; those of one fold are scored by the model of
# the others, a query that is in no fold by the model of all.

FOLDS = 5
POOL = 200
"""Documents of a searched topic that are learnt from, and ordered."""

Floats = NDArray[np.float64]
Model = Callable[[Candidates], Sequence[float]]
"""Gives each candidate a score, in their order."""
Fit = Callable[[Sequence[Candidates]], Model]
"""Learns a model from lists with judgements."""


def folds(query_ids: Iterable[str], seed: int = 0) -> Mapping[str, int]:
    """The fold of each query, of sizes that differ by one at most: drawn from the seed whatever order they come in."""
    ordered = sorted(set(query_ids))
    drawn = np.random.default_rng(seed).permutation(len(ordered))
    return {ordered[query]: place % FOLDS for place, query in enumerate(drawn)}


class CrossFitted(ScoringRanker):
    """Scores each list by a model that was fitted without its fold's queries, when the first of them is scored.

    `name` says in words what is fitted. Lists without a relevant document teach nothing and are left out. Of a list
    that comes with a first stage's scores the best `pool` are ordered; the others follow as they are. Raises
    UsageError where fewer than two lists are left.
    """

    reads_groups = True

    def __init__(self, name: str, fit: Fit, lists: Iterable[Candidates], pool: int = POOL) -> None:
        self.lists = tuple(candidates for candidates in lists if any(_relevant(candidates)))
        if len(self.lists) < 2:
            raise UsageError(
                f"{name.partition(' ')[0]} learns from judged queries, of which this has {len(self.lists)}.",
                "judgements (-d DATASET) of at least two queries: no list is ranked by a model that saw its own",
            )
        self.fold = folds(candidates.query.query_id for candidates in self.lists)
        digest = hashlib.sha256()  # of all that is learnt from, but for what documents say
        for candidates in sorted(self.lists, key=lambda candidates: candidates.query.query_id):
            judged = [
                (document.doc_id, relevant, sorted(document.groups.items()))
                for document, relevant in zip(candidates.documents, _relevant(candidates), strict=True)
            ]
            digest.update(encode([candidates.query.query_id, candidates.query.text, sorted(judged)]))
        self.identity = f"{name} folds={FOLDS} seed=0 lists={digest.hexdigest()[:12]}"
        self._fit, self._pool = fit, pool
        self._models: dict[int | None, Model] = {}
        self._fitting = Lock()

    def training(self, query_id: str) -> tuple[Candidates, ...]:
        """The lists that the model of a query learns from."""
        return tuple(of for of in self.lists if self.fold[of.query.query_id] != self.fold.get(query_id))

    def ordered(self, candidates: Candidates) -> tuple[Candidates, tuple[float, ...] | None]:
        first_stage = candidates.scores
        if first_stage is None or len(first_stage) <= self._pool:
            return super().ordered(candidates)
        pool = candidates.at(best_first(first_stage))
        best = best_first(self.scores(pool.at(range(self._pool))))
        return pool.at([*best, *range(self._pool, len(first_stage))]), None

    def scores(self, candidates: Candidates) -> Sequence[float]:
        """What the model without the query's fold gives; raises what fitting it raises."""
        query_id = candidates.query.query_id
        fold = self.fold.get(query_id)
        with self._fitting:
            if fold not in self._models:
                self._models[fold] = self._fit(self.training(query_id))
        return self._models[fold](candidates)


def _relevant(candidates: Candidates) -> list[bool]:
    return [grade >= 1 for grade in candidates.grades]


TEXT_COLUMNS = {"title": "BM25(query, title)", "text": "BM25(query, text)"}
NUMBER_COLUMNS: Mapping[str, tuple[str, Callable[[float], float]]] = {
    "pred_qual": ("predicted quality", float),
    "num_sitelinks": ("ln sitelinks", math.log1p),
    "relative_pageviews": ("relative page views", float),
}
"""What parts of documents, and the numbers they may come with, are called as features; what is made of numbers."""
COSINE = "cosine(query, title and text)"


class Features:
    """Whether a document is protected, BM25 of the query with title and text, ln(1 + words), metadata, and a cosine.

    What no document has is left out: `names` are those of the columns. Where only some have a number, the others get
    the mean. Words are counted in `documents`; the indexes are kept in `folder`. `identity`: the columns in words, with
    the indexes and numbers that they are read from.
    """

    def __init__(
        self,
        documents: Sequence[Document],
        attribute: Attribute,
        folder: Path,
        encoder: Encoder | None = None,
    ) -> None:
        self._attribute = attribute
        self._indexes = {
            name: Bm25Index(folder, [Document(item.doc_id, getattr(item, part), "") for item in documents])
            for part, name in TEXT_COLUMNS.items()
            if any(getattr(document, part).strip() for document in documents)
        }
        self._means: dict[str, float] = {}
        columns = {"protected": f"{attribute.name} protected"}
        columns |= {name: f"{name} {index.identity}" for name, index in self._indexes.items()}
        columns["ln length"] = "ln length"
        for field, (name, transform) in NUMBER_COLUMNS.items():
            if numbered := sorted((d.doc_id, d.numbers[field]) for d in documents if field in d.numbers):
                self._means[field] = float(np.mean([transform(value) for _, value in numbered]))
                columns[name] = f"{name} {hashlib.sha256(encode(numbered)).hexdigest()[:12]}"
        if encoder is not None:
            columns[COSINE] = f"{COSINE} {encoder.identity}"
        self._vectors = None if encoder is None else vectors_of(encoder)
        self.names, self.identity = tuple(columns), ", ".join(columns.values())

    def __call__(self, candidates: Candidates) -> Floats:
        """A row for each candidate, in their order: (candidates, columns). Raises UsageError (`Bm25Index`)."""
        documents = candidates.documents
        columns: list[Sequence[float] | Floats] = [
            [float(self._attribute.side(document) is Side.PROTECTED) for document in documents]
        ]
        for index in self._indexes.values():
            scores = index.scores(candidates.query.text, candidates.doc_ids)
            columns.append([scores[doc_id] for doc_id in candidates.doc_ids])
        columns.append([np.log1p(len(f"{document.title} {document.text}".split())) for document in documents])
        for field, mean in self._means.items():
            _, transform = NUMBER_COLUMNS[field]
            values = (document.numbers.get(field) for document in documents)
            columns.append([mean if value is None else float(transform(value)) for value in values])
        if self._vectors is not None:
            columns.append(self._vectors(candidates)[:, -1])
        return np.array(columns, dtype=float).T


Gradient = Literal["exact", "compat"]
Standardize = Literal["columns", "global"]

PROTECTED = 0
"""The column of the features that says who is protected: 1 or 0; standardizing leaves it as it is."""
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
    """DELTR, cross-fitted on the judged lists. Raises UsageError without two groups or judgements."""
    parameters = read_parameters("deltr", options.checkpoint, DECLARED)
    if options.attribute is None:
        raise UsageError("deltr compares two groups, and here is no attribute that tells them.", "-m bm25")
    named = parameters.pop("encoder")
    encoder = None if named == NONE else named_encoder(named, options)
    features = Features(options.documents, options.attribute, options.cache / "indexes", encoder)
    training = Training(*(parameters[name] for name in ("gamma", "gradient", "steps", "rate")))

    def fit(lists: Sequence[Candidates]) -> Model:
        table = np.concatenate([features(candidates) for candidates in lists])
        mean, deviation = scale_of(table, parameters["standardize"])
        query_ids = [candidates.query.query_id for candidates in lists for _ in candidates.doc_ids]
        judgements = [relevant for candidates in lists for relevant in _relevant(candidates)]
        rows = TrainingRows(query_ids, (table - mean) / deviation, judgements)
        weights = training.weights(rows, start_weights(table.shape[1]))
        return lambda candidates: ((features(candidates) - mean) / deviation @ weights).tolist()

    return CrossFitted(f"deltr {spelled(parameters)} features={features.identity}", fit, options.lists())


class TrainingRows:
    """Rows of judged queries, those of a query together: `features` (rows, columns) and `judgements` (rows,).

    `members` (2, rows) of the unprotected and of the protected: 1 or 0; `factors`, by gradient: 1 / (|G| ln 2) of the
    rows of the unprotected, less the same of the protected, in `compat` times |G|; `of_both`: which queries have both.
    """

    def __init__(self, query_ids: ArrayLike, features: ArrayLike, judgements: ArrayLike) -> None:
        _, first, sizes = np.unique(np.asarray(query_ids), return_index=True, return_counts=True)
        order = np.argsort(first)
        self._starts, self.sizes = first[order], sizes[order]
        self.query = np.repeat(np.arange(len(order)), self.sizes)
        self.features = np.array(features, dtype=float, order="C")  # last bits of sums hang on the layout
        self.judgements = np.asarray(judgements, dtype=float)
        protected = self.features[:, PROTECTED] > 0
        self.members = np.stack([~protected, protected]).astype(float)
        counts = self.sums(self.members)
        self.of_both = counts.all(axis=0)
        self._scales = 1 / (np.maximum(counts, 1) * math.log(2))
        exact = self.members * self._scales[:, self.query]
        self.factors: dict[Gradient, Floats] = {
            "exact": np.subtract(*exact), "compat": np.subtract(*(exact * counts[:, self.query])),
        }  # fmt: skip

    def sums(self, values: Floats) -> Floats:
        """Each query's sum of a value per row; shape (…, queries)."""
        return np.add.reduceat(values, self._starts, axis=-1)

    def softmax(self, values: Floats) -> Floats:
        """e^value, as a share of its query's; shape (rows,)."""
        powers = np.exp(values - np.maximum.reduceat(values, self._starts)[self.query])
        return powers / self.sums(powers)[self.query]

    def gap(self, chances: Floats) -> Floats:
        """Exposure(unprotected) − Exposure(protected) by query, where a group without a member has none."""
        gap: Floats = np.subtract(*(self.sums(chances * self.members) * self._scales))
        return gap


@dataclass(frozen=True, slots=True)
class Training:
    """How weights are found: `steps` of gradient descent over all queries at once, each by its number of rows.

    w ← w − rate · Σ_q n_q (∇L_q / ln N + γ ∇U_q), N all rows. `gradient`: `exact`, or `compat`, fairsearchdeltr's, in
    which a group's sum is taken |G| times and one number, x̄ summed over its columns, is subtracted from every column.
    """

    gamma: float = 500.0
    gradient: Gradient = "exact"
    steps: int = 3000
    rate: float = 0.001

    def slope(self, rows: TrainingRows, weights: Floats) -> Floats:
        """The gradient of Σ_q n_q (L_q / ln N + γ U_q), or what `compat` takes for it; shape (columns,).

        ∇L = Σ (P_i − S_i) x_i; ∇Exposure(G) = Σ_{i∈G} P_i (x_i − x̄) / (|G| ln 2) with x̄ = Σ P_i x_i. Both are sums
        of rows with a factor each, so that one product of factors and features is all of it.
        """
        chances = rows.softmax(rows.features @ weights)
        factors = (chances - rows.softmax(rows.judgements)) * rows.sizes[rows.query]
        factors /= math.log(len(rows.query))
        gap = rows.gap(chances)
        pull = 2 * self.gamma * rows.sizes * np.maximum(0, gap) * rows.of_both
        factors += chances * rows.factors[self.gradient] * pull[rows.query]
        if self.gradient == "exact":
            factors -= chances * (gap * pull)[rows.query]
        slope: Floats = factors @ rows.features
        if self.gradient == "compat":
            slope -= (gap * pull) @ rows.sums(chances * rows.features.sum(axis=1))
        return slope

    def weights(self, rows: TrainingRows, start: ArrayLike) -> Floats:
        """The weights after all steps, (columns,). Raises UsageError where they are not finite."""
        weights = np.array(start, dtype=float)
        with np.errstate(all="ignore"):  # what overflows ends as NaN, which is refused below
            for _ in range(self.steps):
                weights -= self.rate * self.slope(rows, weights)
        if not np.isfinite(weights).all():
            raise UsageError(
                f"DELTR's weights grew beyond all numbers (gamma {self.gamma:g}, rate {self.rate:g}).",
                "a smaller gamma or rate keeps the steps from overshooting",
            )
        return weights


def start_weights(columns: int) -> Floats:
    """Where training starts: drawn uniformly from 0 to 0.01; shape (columns,)."""
    return np.random.default_rng(0).random(columns) * 0.01


def scale_of(features: Floats, how: Standardize = "columns") -> tuple[Floats, Floats]:
    """Means and deviations that features are standardized by, (columns,) each: those of the training rows.

    `columns`: each column's own; `global`: one of the whole matrix, as fairsearchdeltr. The protected column stays as
    it is. A column that does not vary is moved to 0.
    """
    axis, columns = 0 if how == "columns" else None, features.shape[1]
    mean = np.broadcast_to(features.mean(axis=axis), columns).copy()
    deviation = np.broadcast_to(features.std(axis=axis), columns).copy()
    deviation[deviation == 0] = 1
    mean[PROTECTED], deviation[PROTECTED] = 0, 1
    return mean, deviation


# DLF-like: BM25 beside a linear model that learns from a target of exposure instead of labels of fairness. After Chen
# & Fang, "Learn to be Fair without Labels", ICTIR 2023: relevance and fairness are modelled apart, fairness by the
# divergence of the exposure from its target, and both are merged by a weight. What features, model and schedule are
# is ours, hence the name: f(d) = w · [vector of d, its memberships, cosine of q and d], P = softmax(f) over a list,
# exposure of group g ε_g = Σ P_d m_g(d), loss KL(ε*, ε) = Σ ε*_g ln(ε*_g / ε_g), where ε* are the shares among
# relevant documents. A list is ordered by α · BM25 + (1 − α) · f, either moved to [0, 1].


DLF_DECLARED: Declared = {
    "alpha": number(0.8, 0, 1),
    "pool": whole(100, 2000),
    "epochs": whole(100, 100_000),
    "rate": number(0.001, 0, 1),
    "encoder": Free(SBERT, str, "sbert, or a checkpoint of sentence-transformers"),
}
DECAYS, LEAST = (0.9, 0.999), 1e-8
"""Of Adam, as its authors have them [Kingma & Ba 2015]."""


@register("ranker", "dlf-like")
def dlf_like(options: RankerOptions) -> CrossFitted:
    """Cross-fitted on the judged lists. Raises MissingExtra, UsageError, and BackendError for no checkpoint."""
    parameters = read_parameters("dlf-like", options.checkpoint, DLF_DECLARED)
    *settings, named = parameters.values()
    encoder = named_encoder(named, options)
    first_stage, vectors = bm25(replace(options, checkpoint="")), vectors_of(encoder)
    ranker = CrossFitted(
        f"dlf-like {spelled(parameters)} {encoder.identity} over {first_stage.identity}",
        lambda lists: dlf_model(lists, vectors, cells(options.groups), first_stage, *settings),
        options.lists(),
        pool=parameters["pool"],
    )
    ranker.target_known = "training topics"
    ranker.weighs_scores = True
    return ranker


@dataclass(frozen=True, slots=True)
class Lesson:
    """A list to learn from: `features` (n, columns), `members` (n, groups), `target` (groups,)."""

    features: Floats
    members: Floats
    target: Floats

    def slope(self, weights: Floats) -> Floats:
        """The gradient of KL(ε*, ε), natural logarithm, by the weights; shape (columns,)."""
        scores = self.features @ weights
        powers = np.exp(scores - scores.max())
        chances = powers / powers.sum()
        ratio = smoothed(self.target, EPS) / smoothed(chances @ self.members, EPS)
        gain = self.members @ ratio / (1 + self.target.size * EPS)
        slope: Floats = (chances * (chances @ gain - gain)) @ self.features
        return slope


def learnt(lessons: Sequence[Lesson], epochs: int, rate: float) -> Floats:
    """The weights after steps of Adam from zero, (columns,): one a list, in an order drawn anew for every epoch."""
    weights = np.zeros(lessons[0].features.shape[1])
    mean, square, random = np.zeros_like(weights), np.zeros_like(weights), np.random.default_rng(0)
    places = (place for _ in range(epochs) for place in random.permutation(len(lessons)))
    for step, place in enumerate(places, start=1):
        slope = lessons[place].slope(weights)
        mean = DECAYS[0] * mean + (1 - DECAYS[0]) * slope
        square = DECAYS[1] * square + (1 - DECAYS[1]) * slope**2
        moved = mean / (1 - DECAYS[0] ** step)
        weights -= rate * moved / (np.sqrt(square / (1 - DECAYS[1] ** step)) + LEAST)
    return weights


def dlf_model(
    lists: Iterable[Candidates],
    vectors: Callable[[Candidates], Floats],
    spread: Cells,
    first_stage: Bm25,
    alpha: float = 0.8,
    pool: int = 100,
    epochs: int = 100,
    rate: float = 0.001,
) -> Model:
    """A model of the best `pool` of judged lists by the first stage; `vectors` gives a list's (candidates, columns)."""

    def features_of(candidates: Candidates) -> tuple[Floats, Floats]:
        """Features, (candidates, columns), and the memberships among them, (candidates, groups)."""
        members = spread.rows(candidates.doc_ids, MEMBERSHIP)
        return np.column_stack([vectors(candidates), members]), members

    lessons = []
    for candidates in lists:
        target = target_shares(
            Judged(candidates, (), {}, groups=spread.groups), spread, "empirical", MEMBERSHIP
        )
        if not isinstance(target, Undefined):
            best = first_stage.ordered(candidates)[0].at(range(min(pool, len(candidates.documents))))
            lessons.append(Lesson(*features_of(best), target))
    if not lessons:
        raise UsageError("dlf-like has no list with a target to learn from.", "judge documents of groups")
    weights = learnt(lessons, epochs, rate)

    def scores(candidates: Candidates) -> list[float]:
        given = candidates.scores
        relevance = min_max(np.array(first_stage.scores(candidates) if given is None else given))
        fairness = min_max(features_of(candidates)[0] @ weights)
        merged: list[float] = (alpha * relevance + (1 - alpha) * fairness).tolist()
        return merged

    return scores
