"""The design of a pairwise audit: which pairs of which queries are asked, how often, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import numpy as np

from llmfair.audits.gates import Gate, read_gates
from llmfair.audits.lists import drawn_of, load_lists, name_parts, selected_queries
from llmfair.audits.pairwise.results import PairwiseDesign
from llmfair.datasets.base import Dataset, cells
from llmfair.datasets.base import fingerprint as lists_fingerprint
from llmfair.metrics.base import Groups, Measure
from llmfair.metrics.names import parse_measures
from llmfair.probes import PAIR_STREAM, PairProbes, pairwise_probes
from llmfair.prompts import Prompt, load_prompt
from llmfair.rankers.pairwise import PairwiseRanker
from llmfair.records import Attribute, PairKind, Probe, Query, Side
from llmfair.settings import PairwiseSettings
from llmfair.stats.sequential import rounds

SHOWN = "WinShare,FlipRate,InvalidRate,AdjustedOdds,WinRatio"
MEASURED = f"{SHOWN},BalancedRatio,RawRatio,PositionOdds,Kappa,FirstSlotRate,PositionIndex,TieRate,NoiseRate"


@dataclass(frozen=True)
class PairDesign:
    """Everything a pairwise audit asks, known before anything is asked."""

    settings: PairwiseSettings
    dataset: Dataset
    attribute: Attribute
    prompt: Prompt
    ranker: PairwiseRanker
    measures: tuple[Measure, ...]
    shown: tuple[Measure, ...]
    gates: tuple[Gate, ...]
    queries: tuple[Query, ...]
    pairs: Mapping[PairKind, Mapping[str, PairProbes]]

    @property
    def kinds(self) -> tuple[PairKind, ...]:
        return tuple(self.pairs)

    def probes(self) -> Iterator[Probe]:
        """Every probe; queries in seeded shuffled order, so that a broken-off run has no systematic gap."""
        shuffled = np.random.default_rng(self.settings.seed).permutation(len(self.queries))
        for kind in self.kinds:
            for index in shuffled:
                yield from self.pairs[kind][self.queries[index].query_id].probes

    def in_rounds(self, kind: PairKind) -> list[Probe]:
        """The schedule of a sequential audit: one pair a query in every round, queries in fresh random order."""
        by_query = [self.pairs[kind][query.query_id].probes for query in self.queries]
        rng = np.random.default_rng([self.settings.seed, PAIR_STREAM + get_args(PairKind).index(kind)])
        schedule = [by_query[query][pair] for query, pair in rounds([len(p) for p in by_query], rng)]
        return schedule[: self.settings.max_pairs]

    @cached_property
    def calls(self) -> int:
        """Requests planned: two a probe; under --sequential at most so many."""
        return 2 * sum(len(self._asked(kind)) for kind in self.kinds)

    def identity(self) -> dict[str, Any]:
        """All settings that can change a result, for the folder's name and against mixing runs."""
        attribute = asdict(self.attribute)
        return {
            **self.settings.of_result(),
            "attribute": {
                key: attribute[key] for key in ("name", "protected", "unprotected", "other", "words")
            },
            "queries": [query.query_id for query in self.queries],
            "kinds": list(self.kinds),
            "pairs": self.settings.max_pairs if self.settings.sequential else self.settings.pairs,
            "lists_sha256": lists_fingerprint(self.dataset, self.queries),
            "prompt_sha256": self.prompt.sha256,
        }

    def name_parts(self) -> tuple[str, ...]:
        """Words of the folder's name."""
        return name_parts(self.dataset, self.attribute)

    def describe(self) -> dict[str, Any]:
        """What the manifest says of the design, beside the settings."""
        flags = {key: value for key, value in asdict(self.settings).items() if not isinstance(value, Path)}
        return {
            "task": "pairwise",
            "flags": flags,
            "dataset": self.dataset.name,
            "lists": {
                **self.dataset.describe(),
                "cells": {
                    q.query_id: cells(self.dataset.candidates(q), self.attribute) for q in self.queries
                },
            },
            "prompt": {"file": self.settings.prompt, "sha256": self.prompt.sha256, "text": self.prompt.text},
        }

    def facts(self) -> PairwiseDesign:
        """What results say of the design."""
        settings = self.settings
        return PairwiseDesign(
            preset=settings.preset_name(),
            queries=len(self.queries),
            arms=list(self.kinds),
            pairs=settings.pairs,
            form=settings.form,
            answers=settings.answers,
            constrained=settings.constrain,
            noise_share=settings.noise_share,
            repeats=settings.repeats,
            weights=settings.weights,
            sequential=settings.sequential,
            max_pairs=settings.max_pairs if settings.sequential else None,
            prompt_sha256=self.prompt.sha256,
            probes={kind: len(self._asked(kind)) for kind in self.kinds},
            pairs_asked={
                kind: len({(probe.candidates.query.query_id, probe.order) for probe in self._asked(kind)})
                for kind in self.kinds
            },
            without_pairs={
                kind: sorted(q for q, one in of_it.items() if not one.probes)
                for kind, of_it in self.pairs.items()
            },
            fewer_pairs={kind: self._fewer(of_it) for kind, of_it in self.pairs.items()},
            passed_over={
                kind: sum(p.passed_over for p in of_it.values()) for kind, of_it in self.pairs.items()
            },
            left_out=self.dataset.describe().get("left_out", {}),
            drawn=drawn_of(self.dataset, settings),
            calls=self.calls,
            seed=settings.seed,
        )

    def _asked(self, kind: PairKind) -> Sequence[Probe]:
        """The probes of a kind; under --sequential at most these."""
        if self.settings.sequential:
            return self.in_rounds(kind)
        return [probe for one in self.pairs[kind].values() for probe in one.probes]

    def _fewer(self, by_query: Mapping[str, PairProbes]) -> int:
        """How many queries have some pairs, but fewer than asked."""
        counts = [len({probe.order for probe in one.probes}) for one in by_query.values()]
        return sum(0 < count < self.settings.pairs for count in counts)

    @cached_property
    def groups(self) -> Groups:
        attributes = {attribute.name: attribute for attribute in self.dataset.attributes}
        return Groups(self.attribute.name, attributes, self.dataset.documents)

    @cached_property
    def sides(self) -> dict[str, Side | None]:
        documents = (d for query in self.queries for d in self.dataset.candidates(query).documents)
        return {document.doc_id: self.attribute.side(document) for document in documents}


def make_pair_design(settings: PairwiseSettings) -> PairDesign:
    """Loads what the settings name and fixes the pairs that are asked. Raises UsageError."""
    dataset, attribute = load_lists(settings)
    prompt = load_prompt(settings.prompt)
    queries = selected_queries(dataset, settings)
    kinds = settings.kinds()
    gates = read_gates(settings.require, kinds, "pairwise")
    shown, measured = settings.measures, settings.measures
    if shown is None or measured is None:
        shown, measured = (_weighted(names, settings.weights) for names in (SHOWN, MEASURED))
    ranker = PairwiseRanker(
        prompt=prompt,
        form=settings.form,
        answers=settings.answers,
        on_bad_answer=settings.on_bad_answer,
        input=settings.input,
        words=settings.words,
    )
    return PairDesign(
        settings=settings,
        dataset=dataset,
        attribute=attribute,
        prompt=prompt,
        ranker=ranker,
        measures=parse_measures(",".join((measured, *(gate.measure for gate in gates))), "pairwise"),
        shown=parse_measures(shown, "pairwise"),
        gates=gates,
        queries=tuple(queries),
        pairs={kind: _pairs(dataset, attribute, queries, kind, settings, ranker) for kind in kinds},
    )


def _weighted(names: str, weights: str) -> str:
    """The measures with the weights asked for; how often answers change is a mean over queries anyway."""
    if weights == "macro":
        return names
    return ",".join(name if name == "NoiseRate" else f"{name}(agg={weights})" for name in names.split(","))


def _pairs(
    dataset: Dataset,
    attribute: Attribute,
    queries: Sequence[Query],
    kind: PairKind,
    settings: PairwiseSettings,
    ranker: PairwiseRanker,
) -> dict[str, PairProbes]:
    """The pairs of every query; a sequential audit may ask as many of one as it asks in all."""
    return {
        query.query_id: pairwise_probes(
            dataset.candidates(query),
            attribute,
            kind,
            settings.max_pairs if settings.sequential else settings.pairs,
            settings.seed,
            ranker.shown,
            0.0 if settings.sequential else settings.noise_share,
            1 if settings.sequential else settings.repeats,
        )
        for query in queries
    }
