"""The design of a pairwise audit: which pairs of which queries are asked, how often, and in which order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from statistics import fmean
from typing import Any, get_args

import numpy as np

from llmfair.asking.dispatch import Program
from llmfair.audits.design import Condition, Design
from llmfair.audits.lists import drawn_of
from llmfair.audits.pairwise.findings import seen, share
from llmfair.audits.pairwise.results import PairGrades, PairwiseFacts
from llmfair.audits.pairwise.settings import PairwiseSettings
from llmfair.audits.runs.stopping import Stopping
from llmfair.nouns import PairStratum, PairVerdict, Probe
from llmfair.probes import PAIR_STREAM, PairProbes, pair_grades
from llmfair.prompts import Prompt
from llmfair.rankers.pairwise import PairwiseRanker
from llmfair.settings import band_of
from llmfair.stats.sequential import EProcess, rounds


@dataclass(frozen=True, kw_only=True)
class PairwiseDesign(Design[PairVerdict]):
    """Everything a pairwise audit asks, known before anything is asked."""

    task = "pairwise"
    settings: PairwiseSettings
    prompt: Prompt
    ranker: PairwiseRanker
    pairs: Mapping[PairStratum, Mapping[str, PairProbes]]

    @property
    def conditions(self) -> Sequence[Condition]:
        return [Condition(stratum) for stratum in self.strata]

    @property
    def strata(self) -> tuple[PairStratum, ...]:
        return tuple(self.pairs)

    why_not_assessable = "the others have no pair of items of both groups alike in relevance"

    @property
    def assessable(self) -> int:
        """Queries with pairs, of the stratum for which most have some."""
        return max(sum(bool(one) for one in of_it.values()) for of_it in self.pairs.values())

    def probes(self) -> Iterator[Probe]:
        """Every probe; queries in seeded shuffled order, so that a broken-off run has no systematic gap."""
        shuffled = np.random.default_rng(self.settings.seed).permutation(len(self.queries))
        for stratum in self.strata:
            for index in shuffled:
                yield from self.pairs[stratum][self.queries[index].query_id]

    def in_rounds(self, stratum: PairStratum) -> list[Probe]:
        """The schedule of a sequential audit: one pair a query in every round, queries in fresh random order."""
        by_query = [[*self.pairs[stratum][query.query_id]] for query in self.queries]
        rng = np.random.default_rng([self.settings.seed, PAIR_STREAM + get_args(PairStratum).index(stratum)])
        schedule = [by_query[query][pair] for query, pair in rounds([len(p) for p in by_query], rng)]
        return schedule[: self.settings.max_pairs]

    @cached_property
    def calls(self) -> int:
        """Requests planned: two a probe; under --sequential at most so many."""
        return 2 * sum(map(self._count, self.strata))

    def programs(self) -> Iterator[Program]:
        """One program per probe; under --sequential none past the pair at which its stratum was settled."""
        if not self.settings.sequential:
            for probe in self.probes():
                yield Program(probe.probe_id, lambda probe=probe: self.ranker.steps(probe))  # type: ignore[misc]
            return
        for stratum in self.strata:
            stopping = self.stopping(stratum)
            for probe in stopping.undecided():
                yield Program(
                    probe.probe_id,
                    lambda probe=probe, stopping=stopping: stopping.noting(  # type: ignore[misc]
                        probe, self.ranker.steps(probe), lambda verdict: verdict
                    ),
                )

    def stopping(self, stratum: PairStratum) -> Stopping[PairVerdict]:
        """A sequential audit of one stratum that has not begun."""
        settings, probes = self.settings, self.in_rounds(stratum)
        process = EProcess(band_of(settings.band), settings.level, len(probes))
        look = partial(seen, band=process.band, level=process.level, weights=settings.weights)
        return Stopping(probes, process, share, look)

    def identity(self) -> dict[str, Any]:
        return {
            **super().identity(),
            "conditions": list(self.strata),
            "pairs": self.settings.max_pairs if self.settings.sequential else self.settings.pairs,
            **({"grades": "match"} if self.settings.grades == "match" and self._graded else {}),
        }

    def facts(self) -> PairwiseFacts:
        """What results say of the design."""
        settings = self.settings
        return PairwiseFacts(
            preset=settings.preset_name(),
            queries=len(self.queries),
            conditions=list(self.strata),
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
            probes={stratum: self._count(stratum) for stratum in self.strata},
            pairs_asked={
                stratum: self._count(stratum)
                if settings.sequential
                else sum(len(one.pairs) for one in self.pairs[stratum].values())
                for stratum in self.strata
            },
            without_pairs={
                stratum: sorted(q for q, one in of_it.items() if not one)
                for stratum, of_it in self.pairs.items()
            },
            fewer_pairs={stratum: self._fewer(of_it) for stratum, of_it in self.pairs.items()},
            passed_over={
                stratum: sum(p.passed_over for p in of_it.values()) for stratum, of_it in self.pairs.items()
            },
            left_out=self.dataset.describe().get("left_out", {}),
            grades={stratum: self._grades(stratum) for stratum in self._graded} or None,
            drawn=drawn_of(self.dataset, settings),
            calls=self.calls,
            seed=settings.seed,
        )

    def _asked(self, stratum: PairStratum) -> Iterable[Probe]:
        """The probes of a stratum; under --sequential at most these, each pair once."""
        if self.settings.sequential:
            return self.in_rounds(stratum)
        return chain.from_iterable(self.pairs[stratum].values())

    def _count(self, stratum: PairStratum) -> int:
        """How many they are."""
        planned = sum(map(len, self.pairs[stratum].values()))
        return min(planned, self.settings.max_pairs) if self.settings.sequential else planned

    @cached_property
    def _graded(self) -> list[PairStratum]:
        """The relevance strata of which the items of some query have several grades."""
        return [
            stratum for stratum in self.strata if any(len(grades) > 1 for grades in self._grades_of(stratum))
        ]

    def _grades_of(self, stratum: PairStratum) -> Iterator[list[int]]:
        for query in self.queries:
            yield pair_grades(self.dataset.candidates(query), self.attribute, stratum)

    def _grades(self, stratum: PairStratum) -> PairGrades:
        grades = {*chain(*self._grades_of(stratum))}
        by_query: dict[str, list[int]] = {}
        for probe in self._asked(stratum):
            if not probe.draw:
                ours, theirs = (
                    probe.candidates.relevance.get(doc_id, 0) for doc_id in probe.candidates.doc_ids
                )
                by_query.setdefault(probe.candidates.query.query_id, []).append(ours - theirs)
        difference = fmean(map(fmean, by_query.values())) if by_query else None
        return PairGrades(min(grades), max(grades), self.settings.grades == "match", difference)

    def _fewer(self, by_query: Mapping[str, PairProbes]) -> int:
        """How many queries have some pairs, but fewer than asked."""
        counts = [len(one.pairs) for one in by_query.values()]
        return sum(0 < count < self.settings.pairs for count in counts)
