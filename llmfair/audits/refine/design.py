"""The design of an audit of query refinement: a loop a topic, whose first page is the baseline's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection as Names
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import product
from math import isfinite
from pathlib import Path
from threading import Lock
from typing import Any

from llmfair.asking.dispatch import Program
from llmfair.asking.limits import Progress
from llmfair.audits.condition import Condition
from llmfair.audits.design import CHARACTERS_PER_TOKEN, Design
from llmfair.audits.refine.baselines import Baseline
from llmfair.audits.refine.hints import distinguishing, terms_of
from llmfair.audits.refine.observing import Pages
from llmfair.audits.refine.results import RefineFacts
from llmfair.audits.refine.settings import BASELINE, RefineSettings
from llmfair.datasets.attributes import shipped_backgrounds
from llmfair.datasets.collection import Collection
from llmfair.io import files
from llmfair.metrics.attention import least_divergence, shares_of
from llmfair.metrics.base import Measure
from llmfair.metrics.targets import UNKNOWN, Cells, cells, target_shares
from llmfair.metrics.values import Undefined
from llmfair.nouns import Candidates, Document, Query, Steps
from llmfair.prompts import Prompt
from llmfair.rankers.base import ScoringRanker
from llmfair.rankers.fair_qr import FairQr, Page, Refined, Stopping, Topic, refined_text
from llmfair.retrieval.engine import Engine, Patience

REFINED, FAIR_QR = "refined", "fair-qr"
TARGET_KNOWN = {BASELINE: "no", REFINED: "yes", FAIR_QR: "yes"}
"""Whether the methods of every run are told at run time what their figures are measured against."""
Ended = Refined | Candidates
"""What a program comes to: a topic's loop, or what a baseline makes of what its query finds, best first."""
MOST_REPLIES = 2
"""A round asks once more where the first reply cannot be read."""
TOKENS_ANSWERED = 40
MOST_HINTED = 10_000
"""Documents that a query finds, by whose words simulated models tell groups apart: as deep as servers search."""


def ordering(query: Query, baseline: str) -> str:
    """What the program is called in which a baseline orders what a query finds."""
    return f"{query.query_id}/{baseline}"


@dataclass(frozen=True, kw_only=True)
class RefineDesign(Design[Ended]):
    """Everything that is asked about a collection's topics."""

    task = "refine"
    settings: RefineSettings
    dataset: Collection
    prompt: Prompt
    engine: Engine
    patience: Patience = field(default_factory=Patience)
    objective: Measure
    aimed: Measure
    utility: Measure
    reranker: ScoringRanker | None = None
    baselines: Sequence[Baseline] = ()

    two_groups = False
    why_not_assessable = "the others have no target"

    @cached_property
    def conditions(self) -> Sequence[Condition]:
        of_baselines = {one.name: one.ranker.target_known for one in self.baselines}
        known = {**TARGET_KNOWN, **of_baselines}
        return [Condition(name, {"target_known": known[name]}) for name in known]

    @property
    def k(self) -> int:
        """The length of a page: the objective's cutoff."""
        return int(self.objective.cutoff or 0)

    @cached_property
    def _target_text(self) -> str | None:
        """What the target's file says, read once; None of a target that is a name."""
        path = Path(self.aimed_at)
        return files.text(path, files.MOST_BY_HAND) if path.is_file() else None

    @cached_property
    def targets(self) -> Mapping[str, Mapping[str, float]]:
        """The share that each group of a page should have, of every topic that has a target.

        Raises UsageError for a file that is none.
        """
        _ = self._target_text  # what names the run is what it aims at, should the file change meanwhile
        found = {query.query_id: self._target(query) for query in self.queries}
        return {query_id: of for query_id, of in found.items() if not isinstance(of, Undefined)}

    @cached_property
    def topics(self) -> Sequence[Query]:
        """Those that have a target."""
        return [query for query in self.queries if query.query_id in self.targets]

    @property
    def left_out(self) -> Mapping[str, Sequence[str]]:
        """The other topics, by the reason."""
        without = [query.query_id for query in self.queries if query.query_id not in self.targets]
        return {"no_target": without} if without else {}

    @property
    def assessable(self) -> int:
        return len(self.topics)

    @property
    def calls(self) -> int:
        """The most there can be: every round of every topic, each reply but the last unreadable at first."""
        return len(self.topics) * self.longest * MOST_REPLIES

    @property
    def longest(self) -> int:
        return self.settings.max_iterations

    def plan(self, models: int) -> dict[str, Any]:
        return {**super().plan(models), "at_most": True}

    @property
    def remarks(self) -> Sequence[str]:
        if not self.baselines:
            return self.warnings
        held_against = ", ".join([BASELINE, *(one.name for one in self.baselines)])
        return [f"held against {held_against}, which ask nobody", *self.warnings]

    def tokens(self) -> tuple[int, int]:
        """By the prompt's length and that of queries, which grow by a few words."""
        asked = sum(len(query.text) for query in self.topics) + len(self.topics) * len(self.prompt.text)
        rounds = self.longest * MOST_REPLIES
        return asked // CHARACTERS_PER_TOKEN * rounds, TOKENS_ANSWERED * self.calls

    @cached_property
    def pages(self) -> Pages:
        return Pages(self.attribute, self.groups, self.dataset.qrels)

    @cached_property
    def spread(self) -> Cells:
        """The groups that the objective is about, without a cell of what is unknown where it drops that."""
        arguments = self.objective.arguments
        over = arguments["over"]
        return cells(self.groups, None if over is None else str(over), str(arguments["unknown"]))

    @property
    def aimed_at(self) -> str:
        """Where the objective's target comes from: a name, or a file's path."""
        return str(self.objective.arguments["target"])

    def _target(self, query: Query) -> Mapping[str, float] | Undefined:
        arguments, judged = self.objective.arguments, self.pages.judged(query.query_id, ())
        shares = target_shares(judged, self.spread, self.aimed_at, str(arguments["membership"]))
        return (
            shares
            if isinstance(shares, Undefined)
            else dict(zip(self.spread.names, shares.tolist(), strict=True))
        )

    def stopping(self, target: Mapping[str, float]) -> Stopping:
        """When the topic's loop ends: at the best that a page can have, as far as that is known."""
        definition, settings = self.objective.definition, self.settings
        lower = definition.better == "lower"
        best = definition.bounds[0 if lower else 1]
        if self.objective.name == "KL" and settings.floor:
            best = self.least(target)
        content = best + settings.kl_threshold if lower else best - settings.kl_threshold
        return Stopping(
            settings.max_iterations, "lower" if lower else "higher", content if isfinite(content) else None
        )

    def page(self, query: Query, added: Sequence[str]) -> Page:
        """What the query finds with these words behind it."""
        hits = self.engine.search(query.text, self.k, " ".join(added), self.settings.weight)
        doc_ids = tuple(hit.doc_id for hit in hits)
        arguments = self.objective.arguments
        rows = self.spread.rows(doc_ids, str(arguments["membership"]), str(arguments["unlisted"]))
        shares = shares_of(rows[:, self.spread.kept])
        held = [0.0] * len(self.spread.names) if shares is None else (shares / shares.sum()).tolist()
        objective = self.pages.value(self.objective, query.query_id, doc_ids) if doc_ids else None
        return Page(doc_ids, dict(zip(self.spread.names, held, strict=True)), objective)

    def reorder(self, query: Query, doc_ids: Sequence[str]) -> Sequence[str]:
        """By the original query, ties by id; documents that bm25 does not find come last."""
        if self.settings.rerank == "none":
            return doc_ids
        scores = (
            self.engine.scores(query.text, doc_ids) if self.reranker is None else self._ranked(query, doc_ids)
        )
        return sorted(doc_ids, key=lambda doc_id: (-scores[doc_id], doc_id))

    def _ranked(self, query: Query, doc_ids: Sequence[str]) -> Mapping[str, float]:
        """The ranker's scores; one topic at a time, since it may hold a model."""
        assert self.reranker is not None
        documents = tuple(self.dataset.documents[doc_id] for doc_id in doc_ids)
        with self._ranking:
            scores = self.reranker.scores(Candidates(query, documents, {}))
        return dict(zip(doc_ids, scores, strict=True))

    @cached_property
    def _ranking(self) -> Lock:
        return Lock()

    def watched_by(self, progress: Progress) -> None:
        self.patience.waits = progress.waits

    def programs(self) -> Iterator[Program]:
        for query in self.topics:
            yield Program(query.query_id, partial(self._steps, query), threaded=True, condition=FAIR_QR)
        for one in self.baselines:
            for query in self.topics:
                start = partial(self._ordered, one, query)
                yield Program(ordering(query, one.name), start, threaded=True, condition=one.name)

    def _steps(self, query: Query) -> Steps[Refined]:
        return self.program.steps(self.topic(query))

    def _ordered(self, baseline: Baseline, query: Query) -> Steps[Candidates]:
        return baseline.steps(self.first_stage(query))

    def first_stage(self, query: Query) -> Candidates:
        """What the original query finds, as deep as baselines look, with its scores."""
        if query.query_id not in self._found:
            hits = self.engine.search(query.text, max(self.settings.depth, self.k))
            documents = tuple(self.dataset.document(hit.doc_id) for hit in hits)
            judged = self.dataset.qrels.get(query.query_id, {})
            self._found[query.query_id] = Candidates(
                query, documents, judged, tuple(hit.score for hit in hits)
            )
        return self._found[query.query_id]

    @cached_property
    def _found(self) -> dict[str, Candidates]:
        return {}

    @cached_property
    def program(self) -> FairQr:
        named = " and ".join(one.name for one in self.spread.attributes)
        settings = self.settings
        return FairQr(self.prompt, named, self.k, settings.form, settings.keep, settings.allow_unknown)

    def topic(self, query: Query) -> Topic:
        """The topic as the loop is told of it."""
        target = self.targets[query.query_id]
        return Topic(
            query,
            target,
            self.stopping(target),
            partial(self.page, query),
            partial(self.reorder, query),
            partial(self.hints, query) if self.subject.spec.startswith("fake:") else None,
        )

    def hints(self, query: Query, group: str, added: Names[str]) -> Sequence[str]:
        """What simulated models are told: the words that distinguish a group among what the query finds."""
        found = self.engine.search(query.text, min(self.engine.count(), MOST_HINTED))
        documents = [self.dataset.document(hit.doc_id) for hit in found]
        return distinguishing(
            {one.doc_id: self._cells_of(one) for one in documents},
            {one.doc_id: terms_of(one) for one in documents},
            group,
            refined_text(query, [*added]),
        )

    def _cells_of(self, document: Document) -> list[str]:
        """The groups of a document, or their combinations, as the target names them."""
        known = (document.groups.get(one.name) or (UNKNOWN,) for one in self.spread.attributes)
        return ["*".join(names) for names in product(*known)]

    def least(self, target: Mapping[str, float]) -> float:
        """The least divergence that a page of whole documents can have from the target."""
        import numpy as np

        arguments = self.objective.arguments
        direction, eps = str(arguments["direction"]), float(arguments["eps"] or 0)
        return least_divergence(np.array([*target.values()]), self.k, direction, eps)

    def unparseable(self, result: Ended) -> int:
        return sum(not reply.read.readable for reply in result.replies) if isinstance(result, Refined) else 0

    @property
    def query_text(self) -> dict[str, int] | None:
        """How many topics are searched by their keywords and by their title; None where none has keywords."""
        if not any(query.keywords for query in self.topics):
            return None
        by = self.settings.query_text
        return dict(Counter(by if query.keywords else "title" for query in self.topics))

    # What names it

    def cells(self) -> dict[str, dict[str, int]]:
        return {} if self.dataset.too_many else super().cells()

    def identity(self) -> dict[str, Any]:
        target = self._target_text
        return {
            **super().identity(),
            "engine": self.engine.identity,
            **({"reranker": self.reranker.identity} if self.reranker else {}),
            **({"baselines": self._baselines_identity()} if self.baselines else {}),
            **({} if target is None else {"target": target}),
        }

    def _baselines_identity(self) -> dict[str, Any]:
        return {"depth": self.settings.depth, **{one.name: one.ranker.identity for one in self.baselines}}

    def facts(self) -> RefineFacts:
        settings = self.settings
        return RefineFacts(
            preset=settings.preset_name(),
            queries=len(self.topics),
            conditions=[condition.name for condition in self.conditions],
            factors={one.name: one.factors for one in self.conditions},
            calls=self.calls,
            seed=settings.seed,
            documents=len(self.dataset.documents),
            k=self.k,
            objective=str(self.objective),
            target=Path(self.aimed_at).name,
            aimed=str(self.aimed),
            utility=str(self.utility),
            max_iterations=settings.max_iterations,
            keep=settings.keep,
            allow_unknown=settings.allow_unknown,
            rerank=settings.rerank,
            weight=settings.weight,
            form=settings.form,
            analyzer=settings.analyzer,
            query_text=self.query_text,
            baselines={one.name: one.spec for one in self.baselines} or None,
            backgrounds=None
            if self.attribute.backgrounds == shipped_backgrounds(self.attribute.name)
            else self.attribute.backgrounds,
        )
