"""The design of a listwise audit: which lists are shown, in which orders, under which prompts, at what cost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from llmfair.audits.lists import bucket, load_lists, selected_queries
from llmfair.audits.running import is_ranker, scoring_ranker
from llmfair.datasets.base import Dataset, cells
from llmfair.datasets.base import fingerprint as lists_fingerprint
from llmfair.dispatch import Program
from llmfair.errors import UsageError, did_you_mean
from llmfair.metrics.base import Groups, Judged, Measure, measure_all
from llmfair.metrics.names import parse_measures
from llmfair.probes import Arm, arms_of, initial_orders, listwise_probes
from llmfair.prompts import Prompt, load_prompt
from llmfair.rankers.base import ScoringRanker
from llmfair.rankers.listwise import ListwiseRanker
from llmfair.rankers.passages import clean, passage
from llmfair.rankers.windows import never_ranked
from llmfair.records import (
    Attribute,
    Candidates,
    Chat,
    Completion,
    Finish,
    Permutation,
    Probe,
    Query,
    Ranking,
    Side,
)
from llmfair.settings import ListwiseSettings, default_of

DEFAULT_MEASURES = "P@20,overlap@20,nDCG@20,ExpRatio"
INPUT = "input"
SHOWN_ALTERED = 100


@dataclass(frozen=True, slots=True)
class Shape:
    """How many documents a list has, of each side, relevant ones; and whether anything in it is judged."""

    n: int
    protected: int
    unprotected: int
    relevant: int
    judged: bool


@dataclass(frozen=True)
class Design:
    """Everything a listwise audit asks, known before anything is asked."""

    settings: ListwiseSettings
    dataset: Dataset
    attribute: Attribute
    prompt: Prompt
    measures: tuple[Measure, ...]
    queries: tuple[Query, ...]
    arms: tuple[Arm, ...]
    ranker: ListwiseRanker | ScoringRanker
    first_stage: ScoringRanker | None
    orders: Mapping[str, Sequence[Candidates]]
    sides: Mapping[str, Side | None]

    def probes(self) -> Iterator[Probe]:
        """The chains: queries in seeded shuffled order, so that a broken-off run has no systematic gap."""
        shuffled = np.random.default_rng(self.settings.seed).permutation(len(self.queries))
        for index in shuffled:
            query = self.queries[index]
            candidates = self.dataset.candidates(query)
            yield from listwise_probes(
                candidates, self.orders[query.query_id], self.arms, self.settings.repeats
            )

    def programs(self) -> Iterator[Program]:
        for probe in self.probes():
            yield Program(probe.probe_id, lambda probe=probe: self.ranker.steps(probe))  # type: ignore[misc]

    @cached_property
    def chains_per_query(self) -> int:
        return len(self.arms) * self.settings.orders * self.settings.repeats

    @cached_property
    def calls(self) -> int:
        """Requests planned: the same windows for every chain of a query."""
        return sum(self.calls_of(query) for query in self.queries) * self.chains_per_query

    def calls_of(self, query: Query) -> int:
        """Requests of one chain of this query: its critical path."""
        return self.ranker.calls(len(self.orders[query.query_id][0].documents))

    def windows(self, n: int) -> Sequence[tuple[int, int]]:
        """The windows asked in one pass over a list of n."""
        return self.ranker.plan(n)

    def asked_with(self) -> dict[str, Any]:
        """How a model is asked: windows and prompt; None each for a ranker that asks none."""
        settings = self.settings
        known = {
            "window": settings.window,
            "step": settings.step,
            "passes": settings.passes,
            "windows": settings.windows,
            "prompt_sha256": self.prompt.sha256,
        }
        return dict.fromkeys(known) if isinstance(self.ranker, ScoringRanker) else known

    def never_ranked(self) -> list[int]:
        """Positions (0 is the head) that the window plan leaves out in some list."""
        sizes = {len(orders[0].documents) for orders in self.orders.values()}
        return sorted(
            {position for n in sizes for position in never_ranked(self.windows(n), n, 0, self.settings.depth)}
        )

    def shapes(self) -> list[Shape]:
        """The sizes of every query's list."""
        found = []
        for query in self.queries:
            candidates = self.dataset.candidates(query)
            sides = [self.sides[doc_id] for doc_id in candidates.doc_ids]
            relevant = sum(candidates.relevance.get(doc_id, 0) >= 1 for doc_id in candidates.doc_ids)
            found.append(
                Shape(
                    len(sides),
                    sides.count(Side.PROTECTED),
                    sides.count(Side.UNPROTECTED),
                    relevant,
                    bool(candidates.relevance),
                )
            )
        return found

    def identity(self) -> dict[str, Any]:
        """All settings that can change a result, for the folder's name and against mixing runs."""
        attribute = asdict(self.attribute)
        return {
            **self.settings.of_result(),
            "attribute": {
                key: attribute[key] for key in ("name", "protected", "unprotected", "other", "words")
            },
            "queries": [query.query_id for query in self.queries],
            "arms": [arm.name for arm in self.arms],
            "lists_sha256": lists_fingerprint(self.dataset, self.queries),
            "prompt_sha256": self.prompt.sha256,
            **({"first_stage": self.first_stage.identity} if self.first_stage else {}),
        }

    def name_parts(self) -> tuple[str, ...]:
        """Words of the folder's name: the dataset, and the attribute unless the dataset's name says it."""
        dataset = self.dataset.name.removeprefix("trec-fair/")
        return (dataset,) if dataset.endswith(self.attribute.name) else (dataset, self.attribute.name)

    def describe(self) -> dict[str, Any]:
        """What the manifest says of the design, beside the settings."""
        altered = sorted(self.altered_texts())
        return {
            "task": "listwise",
            "flags": {
                key: value for key, value in asdict(self.settings).items() if not isinstance(value, Path)
            },
            "dataset": self.dataset.name,
            "lists": {
                **self.dataset.describe(),
                "cells": {
                    query.query_id: cells(self.dataset.candidates(query), self.attribute)
                    for query in self.queries
                },
            },
            "prompt": {"file": self.settings.prompt, "sha256": self.prompt.sha256, "text": self.prompt.text},
            "candidates_sha256": hashlib.sha256("".join(self.candidates_lines()).encode()).hexdigest(),
            "texts_altered": {"count": len(altered), "first": altered[:SHOWN_ALTERED]},
        }

    def altered_texts(self) -> set[str]:
        """Titles, texts and queries that a model sees otherwise than the dataset has them (listwise.md 3)."""
        if isinstance(self.ranker, ScoringRanker):
            return set()
        altered = {query.text for query in self.queries if clean(query.text) != query.text}
        for query in self.queries:
            for document in self.dataset.candidates(query).documents:
                titled = document.text and self.settings.input == "text"
                whole = f"{document.title}: {document.text}" if titled else document.title
                if passage(document, self.settings.input, self.settings.words) != whole:
                    altered.add(whole)
        return altered

    @cached_property
    def groups(self) -> Groups:
        attributes = {attribute.name: attribute for attribute in self.dataset.attributes}
        known = {**self.dataset.documents, **self.dataset.stand_ins}
        return Groups(self.attribute.name, attributes, known, self.dataset.relevant_counts)

    def judged(self, candidates: Candidates, rankings: Sequence[Ranking]) -> Judged:
        """A query with rankings of it, as measures see it."""
        return Judged(candidates, tuple(rankings), self.sides, groups=self.groups)

    def file_name(self, probe: Probe) -> str:
        """The run file a chain's ranking goes to: `neutral.run`, further orders and repeats beside it."""
        plain = probe.order == probe.repeat == 0
        return f"{probe.arm}.run" if plain else f"{probe.arm}.o{probe.order}.r{probe.repeat}.run"

    def candidates_lines(self) -> Iterator[str]:
        """`candidates.jsonl`: the lists as the dataset gave them, with relevance and side."""
        for query in sorted(self.queries, key=lambda query: query.query_id):
            candidates = self.dataset.candidates(query)
            row = {
                "query_id": query.query_id,
                "doc_ids": list(candidates.doc_ids),
                "relevance": [candidates.relevance.get(doc_id, 0) for doc_id in candidates.doc_ids],
                "side": [self.sides[doc_id] for doc_id in candidates.doc_ids],
                "bucket": [bucket(candidates, self.sides, doc_id) for doc_id in candidates.doc_ids],
            }
            yield json.dumps(row, ensure_ascii=False) + "\n"


def make_design(settings: ListwiseSettings, model: str = "") -> Design:
    """Loads what the settings name and fixes all that is drawn. Raises UsageError.

    A `model` that is a registered ranker orders the lists itself: once each, without prompts.
    """
    if is_ranker(model):
        settings = _without_prompts(settings, model)
    dataset, attribute = load_lists(settings)
    prompt = load_prompt(settings.prompt)
    queries = selected_queries(dataset, settings)
    variants = _variants(attribute, settings.variants)
    candidates = [dataset.candidates(query) for query in queries]
    first_stage = scoring_ranker("bm25", dataset) if settings.initial == "bm25" else None
    design = Design(
        settings=settings,
        dataset=dataset,
        attribute=attribute,
        prompt=prompt,
        measures=parse_measures(DEFAULT_MEASURES if settings.measures is None else settings.measures),
        queries=tuple(queries),
        arms=tuple(arms_of(variants, settings.repeats, settings.control)),
        ranker=scoring_ranker(model, dataset)
        if is_ranker(model)
        else ListwiseRanker(
            prompt=prompt,
            attribute=attribute,
            window=settings.window,
            step=settings.step,
            passes=settings.passes,
            depth=settings.depth,
            windows=settings.windows,
            reader=settings.read,
            on_bad_answer=settings.on_bad_answer,
            input=settings.input,
            words=settings.words,
        ),
        first_stage=first_stage,
        orders={
            listed.query.query_id: _orders(listed, attribute, settings, first_stage) for listed in candidates
        },
        sides={d.doc_id: attribute.side(d) for listed in candidates for d in listed.documents},
    )
    # what a measure cannot do with these data must be said before anything is asked
    as_given = Ranking(queries[0].query_id, candidates[0].doc_ids)
    measure_all(design.measures, {INPUT: [design.judged(candidates[0], [as_given])]})
    return design


def _without_prompts(settings: ListwiseSettings, model: str) -> ListwiseSettings:
    """The settings of a ranker that reads no prompt: one order, once. Raises UsageError for other variants."""
    if settings.variants not in (None, "neutral"):
        raise UsageError(
            f"{model} reads no prompt, so it cannot rank under --variants {settings.variants}.",
            "leave --variants out",
        )
    unread = {  # what only a model is told must not name the run
        item.name: default_of(item)
        for item in fields(settings)
        if item.metadata["panel"] in ("Prompt", "Sampling") or item.name in ("input", "words")
    } | {"initial": settings.initial}
    return replace(settings, **unread | {"variants": "neutral", "orders": 1, "repeats": 1, "control": False})


def _orders(
    candidates: Candidates,
    attribute: Attribute,
    settings: ListwiseSettings,
    first_stage: ScoringRanker | None,
) -> list[Candidates]:
    """The orders in which a list is first shown."""
    if settings.initial != "bm25":
        return initial_orders(candidates, attribute, settings.initial, settings.orders, settings.seed)
    assert first_stage is not None
    # Ties come in a random order: the dataset's own may tell what is relevant.
    (shuffled,) = initial_orders(candidates, attribute, "random", 1, settings.seed)
    return [first_stage.ordered(shuffled)[0]]


def _variants(attribute: Attribute, text: str | None) -> list[str]:
    known = attribute.variants
    if text is None:
        return list(known)
    wanted = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for variant in wanted:
        if variant not in known:
            raise UsageError(
                f"{attribute.name} has no prompt variant '{variant}'.{did_you_mean(variant, known)}",
                f"known: {', '.join(known)}",
            )
    if not wanted:
        raise UsageError("--variants names none.", f"known: {', '.join(known)}")
    return wanted


def first_order_chats(settings: ListwiseSettings) -> list[Chat]:
    """The chats of the first query's first chain, each window in its initial order."""
    design = make_design(replace(settings, limit=1))
    steps = next(design.programs()).start()
    chats = next(steps)
    found: list[Chat] = []
    while True:
        found += chats
        try:
            chats = steps.send([answer_in_shown_order(chat) for chat in chats])
        except StopIteration:
            return found


def answer_in_shown_order(chat: Chat) -> Completion:
    """The answer of a model that changes nothing, for counting and showing what would be asked."""
    n = chat.expects.n if isinstance(chat.expects, Permutation) else 0
    return Completion(" > ".join(f"[{place}]" for place in range(1, n + 1)), Finish.STOP)
