"""The design of an audit of retrieval-augmented generation: which lists of which queries a generator is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from llmfair.asking.dispatch import Program
from llmfair.audits.condition import Condition
from llmfair.audits.design import Design, Stage
from llmfair.audits.rag.attribution import cited, without_markers
from llmfair.audits.rag.judging import BARE, STAGE, Judge, pairs_of, probe_of
from llmfair.audits.rag.policies import GOLD, Floats, Policies, conditions_of
from llmfair.audits.rag.results import RagFactors, RagFacts
from llmfair.audits.rag.settings import RagSettings
from llmfair.datasets.answers import AnswerDataset, questions_sha256
from llmfair.metrics.texts import utility
from llmfair.nouns import Document, Query, Steps
from llmfair.prompts import Prompt
from llmfair.rankers.fitting import Fitting, Ruler
from llmfair.rankers.reader import Asked, Read, Shown
from llmfair.rankers.support import Judged, Pair


@dataclass(frozen=True, kw_only=True)
class RagDesign(Design[Read | Judged]):
    """Everything an audit of a generator asks; what is useful is known only when labels are."""

    task = "rag"
    settings: RagSettings
    dataset: AnswerDataset
    prompt: Prompt
    ruler: Ruler
    utility: str
    gain: str
    retrievers: Mapping[str, str]
    scores: Mapping[str, Mapping[str, Floats]]
    judge: Judge | None = None
    uncredited: str | None = None
    known: Mapping[str, frozenset[str]] | None = None
    labels: str = "gain"

    why_not_assessable = "the others have fewer than two useful items"

    @cached_property
    def conditions(self) -> Sequence[Condition]:
        return conditions_of([*self.retrievers], self.settings.alphas())

    def items(self, query: Query) -> tuple[Document, ...]:
        """The items of a query, in the order that ties keep."""
        return self.dataset.candidates(query).documents

    def policies(self, query: Query) -> Policies:
        """How the query's items are drawn."""
        doc_ids = tuple(item.doc_id for item in self.items(query))
        scores = {retriever: of[query.query_id] for retriever, of in self.scores.items()}
        return Policies(
            query.query_id, doc_ids, scores, self.settings.k, self.settings.samples, self.settings.seed
        )

    def judged(self, query: Query) -> frozenset[str] | None:
        """The useful items where they are known beforehand; None where gains say it."""
        return None if self.known is None else self.known.get(query.query_id, frozenset())

    def drawn(self, query: Query, useful: frozenset[str]) -> dict[str, Counter[Shown]]:
        """The lists of every condition, with how many draws came to each."""
        return self.policies(query).drawn(self.conditions, useful)

    def lists(self, query: Query, useful: frozenset[str]) -> list[Shown]:
        """The distinct lists of all conditions, in their order."""
        return [*dict.fromkeys(one for lists in self.drawn(query, useful).values() for one in lists)]

    def asked(self, query: Query) -> Asked:
        """The query as the generator is asked about it."""
        golds, items = self.dataset.golds(query.query_id), self.items(query)
        fitting = Fitting(self.prompt, self.ruler, self.dataset.parts(query), items)
        return Asked(
            query=query,
            items={item.doc_id: item for item in items},
            render=fitting.messages,
            lists=partial(self.lists, query) if self.settings.stop_after != "labels" else lambda useful: [],
            utility=partial(self.worth, self.utility, golds),
            gain=partial(self.worth, self.gain, golds),
            useful=self.judged(query),
        )

    @property
    def cites(self) -> bool:
        """Whether outputs name the items that they rest on; such markers are no part of an answer."""
        return self.settings.cites

    def meaning(self, query: Query, output: str) -> str:
        """What an output is held against items as."""
        return output if self.bare else self.dataset.meaning(query, output)

    def pairs(self, query: Query, output: str, shown: Shown) -> list[Pair]:
        """What a judge is asked of an output: of every item shown, or of those alone that it cites."""
        if not self.cites:
            return pairs_of(self.meaning(query, output), shown)
        named = cited(output, shown)
        return pairs_of(without_markers(output), tuple(one for one in shown if one in named))

    @property
    def bare(self) -> bool:
        """Whether a judge is told the output alone."""
        return self.judge is not None and self.settings.hypothesis == "bare"

    @property
    def judges_citations(self) -> bool:
        """Whether a judge is asked of items that outputs cite."""
        return self.cites and self.judge is not None

    def worth(self, name: str, golds: Sequence[str], output: str) -> float:
        """The utility of an output by that name."""
        return utility(name, without_markers(output) if self.cites else output, golds)

    def programs(self) -> Iterator[Program]:
        """A program a query: what it asks of one list, other conditions need too."""
        for query in self.queries if self.settings.stop_after != "retrieval" else ():
            yield Program(query.query_id, partial(self._steps, query))

    def _steps(self, query: Query) -> Steps[Read]:
        """The program of a query; its items are cut to fit when it begins, and forgotten when it ends."""
        return (yield from self.asked(query).steps())

    @property
    def stops(self) -> bool:
        return self.settings.stop_after is not None

    def stages(self) -> Sequence[Stage]:
        return self._stages

    @cached_property
    def _stages(self) -> Sequence[Stage]:
        if self.judge is None:
            return ()
        return (Stage(STAGE, self._judging, partial(self.judge.backend, self.settings)),)

    def _judging(self, results: Mapping[str, Read]) -> Iterator[Program]:
        """A program a query whose lists were asked about."""
        for query in self.queries:
            read = results.get(query.query_id)
            if self.judge is not None and read is not None and read.kept and not self.stops:
                items = {item.doc_id: item for item in self.items(query)}
                hypothesis = BARE if self.bare else self.prompt.hypothesis
                judging = self.judge.judging(partial(self.pairs, query), read, items, hypothesis)
                yield Program(probe_of(query), judging.steps)

    @cached_property
    def calls(self) -> int:
        """Labels of every query, and its distinct lists, those of `gold` as many as there can be.

        Queries that labels drop ask fewer; so does a judge, where outputs are alike.
        """
        if self.settings.stop_after == "retrieval":
            return 0
        return sum(self._calls(query) for query in self.queries)

    def _calls(self, query: Query) -> int:
        judged, labels_only = self.judged(query), self.settings.stop_after == "labels"
        if judged is not None:
            return 0 if labels_only else self._calls_of(query, len(self.lists(query, judged)))
        if labels_only:
            return 1 + len(self.items(query))
        lists_of = self.drawn(query, frozenset())
        drawn = {one for name, lists in lists_of.items() if name != GOLD for one in lists}
        return 1 + len(self.items(query)) + self._calls_of(query, len(drawn) + self.settings.samples)

    def _calls_of(self, query: Query, lists: int) -> int:
        """An output for each list, and what a judge is asked of it at most."""
        return (
            lists
            if self.judge is None or self.stops
            else lists * (1 + min(self.settings.k, len(self.items(query))))
        )

    @property
    def longest(self) -> int:
        lists = self.settings.stop_after not in ("labels", "retrieval")
        return min(self.calls, (self.known is None) + lists + (self.judge is not None and not self.stops))

    def name_parts(self) -> tuple[str, ...]:
        return (self.dataset.name,)

    def identity(self) -> dict[str, Any]:
        return {
            **super().identity(),
            "lists_sha256": questions_sha256(self.dataset, self.queries),
            "alpha": self.settings.alphas(),
            "useful": self.labels,
            "retrievers": self.retrievers,
            "lines": [self.ruler.unit, self.ruler.context],
            # which tell useful items, and they what is drawn
            "utility": f"{self.utility} without markers" if self.cites else self.utility,
            **({"judge_sha256": self.judge.prompt.sha256} if self.judge else {}),
            **({"hypothesis": self.settings.hypothesis} if self.bare else {}),
        }

    def facts(self) -> RagFacts:
        settings = self.settings
        return RagFacts(
            preset=settings.preset_name(),
            queries=len(self.queries),
            conditions=[condition.name for condition in self.conditions],
            factors={
                one.name: RagFactors(retriever=one.factors["retriever"], alpha=one.factors["alpha"])
                for one in self.conditions
            },
            calls=self.calls,
            seed=settings.seed,
            k=settings.k,
            samples=settings.samples,
            useful=Path(settings.useful).name,
            utility=self.utility,
            attribution=settings.attribution,
            uncredited=self.uncredited,
            margin=settings.margin,
        )

    def unparseable(self, result: Read | Judged) -> int:
        if isinstance(result, Judged):
            return result.unparseable
        return sum(output.unparseable for output in (*result.alone.values(), *result.lists.values()))
