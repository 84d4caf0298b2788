"""The design of an audit of retrieval-augmented generation: which lists of which queries a generator is shown."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llmfair import registry
from llmfair.asking.dispatch import Program
from llmfair.audits.design import Condition, Design, Stage
from llmfair.audits.rag.results import RagFactors, RagFacts
from llmfair.audits.rag.settings import RagSettings
from llmfair.audits.subject import backend_of
from llmfair.backends.base import Backend
from llmfair.datasets.answers import AnswerDataset, questions_sha256
from llmfair.datasets.base import cache_folder
from llmfair.datasets.lamp import read_retrieval
from llmfair.errors import UsageError, did_you_mean
from llmfair.io import files
from llmfair.io.files import write_whole
from llmfair.metrics.texts import EMPTY, cleaned, utility
from llmfair.nouns import Candidates, Document, Query, Steps
from llmfair.prompts import Prompt, load_prompt
from llmfair.rankers import plackett_luce
from llmfair.rankers.base import RankerOptions, ScoringRanker, scoring
from llmfair.rankers.on_ray import OnRay
from llmfair.rankers.plackett_luce import deterministic
from llmfair.rankers.reader import Asked, Fitting, Judged, Judging, Pair, Read, Ruler, Shown
from llmfair.settings.asking import Asking

# Attribution by a model that judges: the second stage of an audit of a generator, asked about its outputs.


STAGE = "attribution"
NLI = "nli"
MODELS = {NLI: "nli:FacebookAI/roberta-large-mnli"}
"""What a word alone stands for."""
BARE = "{output}"
"""The hypothesis of an output that is claimed as it stands."""


@dataclass(frozen=True)
class Judge:
    """The model that is asked, and what it is asked with."""

    spec: str
    prompt: Prompt

    @property
    def by(self) -> str:
        """What names its figures."""
        return NLI if self.spec.startswith(f"{NLI}:") else "judge"

    def backend(self, settings: RagSettings) -> Backend:
        """What answers: the generator's adapter, engine and batches are not the judge's. Raises UsageError."""
        return backend_of(self.spec, replace(settings, adapter=None, backend_arg=(), batch=False))

    def judging(
        self,
        pairs: Callable[[str, Shown], Sequence[Pair]],
        read: Read,
        items: Mapping[str, Document],
        hypothesis: str,
    ) -> Judging:
        """The `pairs` of every output and the items that it was shown, each once."""
        asked = dict.fromkeys(
            pair for shown, output in read.lists.items() for pair in pairs(output.text, shown)
        )
        return Judging(read.query_id, items, [*asked], self.prompt, hypothesis)


def judge_of(attribution: str, others: tuple[str, ...]) -> Judge | None:
    """The model that is asked; None where an output itself tells, by one of the `others`. Raises UsageError."""
    spec = MODELS.get(attribution, attribution)
    if spec in others:
        return None
    prefix, colon, name = spec.partition(":")
    if not colon or not name or not registry.has("backend", prefix):
        known = (*others, *MODELS)
        raise UsageError(
            f"--attribution {attribution} is unknown.{did_you_mean(attribution, known)}",
            f"known: {', '.join(known)}; or a model that judges, such as nli:NAME or openai:NAME",
        )
    return Judge(spec, load_prompt("rag/entailment" if prefix == NLI else "rag/support"))


def probe_of(query: Query) -> str:
    """What the second stage calls its program of a query."""
    return f"{query.query_id}/{STAGE}"


def pairs_of(meaning: str, shown: Shown) -> list[Pair]:
    """What is asked of one output; nothing of an empty one."""
    return [] if cleaned(meaning) == EMPTY else [(doc_id, meaning) for doc_id in shown]


def supporting(judged: Judged | None, pairs: Sequence[Pair]) -> frozenset[str] | None:
    """The items of these pairs that support an output; None where nobody asked, or an answer cannot be read."""
    if judged is None or any(judged.supported.get(pair) is None for pair in pairs):
        return None
    return frozenset(pair[0] for pair in pairs if judged.supported[pair])


# Which of the items shown an answer is credited to, where that can be told without asking.


MARKER = r"\[\d+(?:\s*,\s*\d+)*\]"
"""What names items in an output: [2], or several as [1, 3]."""
_MARKERS = re.compile(rf"\s*{MARKER}(?:[\s,;]*{MARKER})*")
Credit = Callable[[str, Shown], frozenset[str] | None]
"""Which of the items shown an output is credited to; None where nobody asked or can tell."""


def held(items: Mapping[str, Document]) -> Credit:
    """The items that hold the output: as their label, or anywhere in their title or text, whatever the case."""
    label_and_text = cache(lambda doc_id: _label_and_text(items[doc_id]))

    def credit(output: str, shown: Shown) -> frozenset[str]:
        said = _plain(output)
        if not said or output == EMPTY:
            return frozenset()
        return frozenset(doc_id for doc_id in shown if _holds(*label_and_text(doc_id), said))

    return credit


def cited(output: str, shown: Shown) -> frozenset[str]:
    """The items that the output names as [1], [2] …, by the slots in which they were shown."""
    slots = {int(number) for marker in re.findall(MARKER, output) for number in re.findall(r"\d+", marker)}
    return frozenset(doc_id for slot, doc_id in enumerate(shown, start=1) if slot in slots)


def without_markers(output: str) -> str:
    """The output without the markers of a citing generator, each row of them with the space before it."""
    return _MARKERS.sub("", output).strip()


ATTRIBUTORS: Mapping[str, Callable[[Mapping[str, Document]], Credit]] = {
    "overlap": held,
    "cited": lambda items: cited,
}
"""How credit is given among the items of a query."""


def _label_and_text(item: Document) -> tuple[str, str]:
    return _plain(" ".join(item.groups.get("label", ()))), _plain(f"{item.title} {item.text}")


def _holds(label: str, text: str, said: str) -> bool:
    return said == label if label else said in text


def _plain(text: str | Sequence[str]) -> str:
    return " ".join(str(text).casefold().split())


# What lists a condition shows of a query, and how much exposure each item gets by it.


Floats = NDArray[np.float64]
DETERMINISTIC, GOLD = "deterministic", "gold"
GOLD_ALPHA = 8.0


def conditions_of(retrievers: Sequence[str], alphas: Sequence[float | str]) -> list[Condition]:
    """For each retriever its one list by score and its draws by alpha; then draws by usefulness itself, `gold`."""
    found = []
    for retriever in retrievers:
        for alpha in (DETERMINISTIC, *alphas):
            told = alpha if isinstance(alpha, str) else f"{alpha:g}"
            found.append(Condition(f"{retriever}-{told}", {"retriever": retriever, "alpha": alpha}))
    return [*found, Condition(GOLD, {"retriever": GOLD, "alpha": GOLD_ALPHA})]


def names_of(retrievers: Sequence[str]) -> dict[str, str]:
    """Retrievers by what their conditions and files are called: the last part of a checkpoint's name.

    Raises UsageError where two are called alike.
    """
    found = {GOLD: GOLD}
    for spec in retrievers:
        ranker, _, checkpoint = spec.partition(":")
        last = checkpoint.rstrip("/").rpartition("/")[2].partition("@")[0]
        if Path(spec).is_file():
            ranker, last = "", Path(spec).stem
        name = re.sub(r"[^\w.-]+", "-", last) or ranker
        if name in found:
            raise UsageError(
                f"--retriever {spec} would be called {name}, as {found[name]} is.", "rename its folder"
            )
        found[name] = spec
    del found[GOLD]
    return found


@dataclass(frozen=True)
class Policies:
    """How the items of one query are drawn: `doc_ids` in the order that ties keep, `scores` of shape (n,) by retriever.

    Draws of all conditions share their noise, so that what differs between conditions is not chance alone, and none
    of them moves when another is added.
    """

    query_id: str
    doc_ids: Shown
    scores: Mapping[str, Floats]
    k: int
    samples: int
    seed: int

    def drawn(self, conditions: Sequence[Condition], useful: frozenset[str]) -> dict[str, Counter[Shown]]:
        """The lists that each condition shows, with how many of its draws came to them."""
        noise = plackett_luce.noise(self.seed, self.query_id, self.samples, len(self.doc_ids))
        found = {}
        for condition in conditions:
            weights = self._log_weights(condition, useful)
            if weights is None:
                lists = [plackett_luce.deterministic(self.scores[condition.factors["retriever"]], self.k)]
            else:
                lists = list(plackett_luce.draws(weights, self.k, noise))
            found[condition.name] = Counter(tuple(self.doc_ids[place] for place in one) for one in lists)
        return found

    def exposure(self, condition: Condition, useful: frozenset[str]) -> dict[str, float]:
        """The probability that each item is shown (Kim and Diaz 2025, Eq. 5)."""
        weights = self._log_weights(condition, useful)
        if weights is None:
            chances = np.zeros(len(self.doc_ids))
            chances[plackett_luce.deterministic(self.scores[condition.factors["retriever"]], self.k)] = 1.0
        else:
            chances = plackett_luce.inclusion(weights, self.k)
        return dict(zip(self.doc_ids, chances.tolist(), strict=True))

    def _log_weights(self, condition: Condition, useful: frozenset[str]) -> Floats | None:
        """None of a condition that draws nothing."""
        retriever, alpha = condition.factors["retriever"], condition.factors["alpha"]
        if alpha == DETERMINISTIC:
            return None
        if retriever == GOLD:
            scores = plackett_luce.gold_scores([doc_id in useful for doc_id in self.doc_ids])
        else:
            scores = self.scores[retriever]
        return plackett_luce.log_weights(scores, alpha)


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


# Scores of every item of a query, by a retriever that asks nobody.


class Retrieved(ScoringRanker):
    """What a retriever found once: a TREC run, or JSON as Fair-RAG released it. Items it did not find come last."""

    def __init__(self, path: Path, dataset: AnswerDataset, queries: Sequence[Query]) -> None:
        self.identity = f"file {files.sha256(path)}"
        lists = {query.query_id: dataset.candidates(query).doc_ids for query in dataset.queries}
        needed = [query.query_id for query in queries]
        self._scores = read_retrieval(path, lists, needed, whole=not dataset.shared)

    def scores(self, candidates: Candidates) -> list[float]:
        found = self._scores[candidates.query.query_id]
        least = min(found.values(), default=0.0) - 1
        return [found.get(doc_id, least) for doc_id in candidates.doc_ids]


def retriever_of(
    name: str, dataset: AnswerDataset, queries: Sequence[Query], settings: Asking
) -> ScoringRanker:
    """A retriever of a query's own items, among which words are counted where it counts any; or what one found.

    One that takes a model scores where models answer: here, or in processes of a Ray cluster. Raises UsageError for an
    unknown name, for a ranker without scores, and what its model raises.
    """
    if Path(name).is_file():
        return Retrieved(Path(name), dataset, queries)
    here = _named(name)
    if settings.on_ray and here.costly:
        return OnRay(partial(_named, name), here, settings.ray_workers or 1, settings.ray_address)
    return here


def _named(name: str) -> ScoringRanker:
    """A ranker that scores, as `dense:CHECKPOINT` names it. Raises UsageError, and what its model raises."""
    kind, _, checkpoint = name.partition(":")
    options = RankerOptions((), cache_folder(), checkpoint=checkpoint, each_list=True)
    return scoring(kind, registry.lookup("ranker", kind)(options))


def scores_of(
    retriever: ScoringRanker, dataset: AnswerDataset, queries: Sequence[Query]
) -> dict[str, Floats]:
    """The scores of each query's items, in their order; shape (items,). Raises UsageError if one is not finite.

    Those that take a model are kept on this machine: whatever asks for the same ones again loads none.
    """
    from msgspec import MsgspecError
    from msgspec.json import decode

    if not retriever.costly:
        return _scored(retriever, dataset, queries)
    of_what = f"{retriever.identity} {questions_sha256(dataset, queries)}"
    path = cache_folder() / "scores" / f"{sha256(of_what.encode()).hexdigest()[:32]}.json"
    sizes = {query.query_id: len(dataset.candidates(query).documents) for query in queries}
    with suppress(OSError, ValueError, MsgspecError):  # none are kept, or they are damaged
        kept = decode(files.document(path), type=dict[str, list[float]])  # of which none is infinite
        if {query_id: len(of) for query_id, of in kept.items()} == sizes:
            return {query_id: np.array(of) for query_id, of in kept.items()}
    found = _scored(retriever, dataset, queries)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, [json.dumps({query_id: of.tolist() for query_id, of in found.items()})])
    return found


def pooled(
    retrievers: Mapping[str, ScoringRanker], dataset: AnswerDataset, queries: Sequence[Query], pool: int
) -> tuple[AnswerDataset, dict[str, dict[str, Floats]]]:
    """The dataset with the items that are drawn from, and each retriever's scores of them.

    Of a corpus those are the first retriever's best `pool` of each query, with their scores in the whole corpus; the
    other retrievers score these alone.
    """
    scores: dict[str, dict[str, Floats]] = {}
    if dataset.shared:
        first = next(iter(retrievers))
        whole, items = scores_of(retrievers[first], dataset, queries), {}
        for query in queries:
            best, documents = deterministic(whole[query.query_id], pool), dataset.candidates(query).documents
            items[query.query_id] = tuple(documents[place] for place in best)
            whole[query.query_id] = whole[query.query_id][best]
        dataset, scores[first] = dataset.with_items(items), whole
    others = {
        name: scores_of(one, dataset, queries) for name, one in retrievers.items() if name not in scores
    }
    return dataset, {name: (scores | others)[name] for name in retrievers}


def _scored(retriever: ScoringRanker, dataset: AnswerDataset, queries: Sequence[Query]) -> dict[str, Floats]:
    found = {}
    lists = {query.query_id: dataset.candidates(query) for query in queries}
    searched = (
        replace(lists[query.query_id], query=replace(query, text=dataset.searched(query)))
        for query in queries
    )
    for (query_id, candidates), scored in zip(lists.items(), retriever.scores_of_each(searched), strict=True):
        scores = np.asarray(scored, dtype=np.float64)
        if not np.isfinite(scores).all():
            item = candidates.documents[int(np.argmin(np.isfinite(scores)))].doc_id
            raise UsageError(
                f"{retriever.identity.split()[0]} has no finite score for item '{item}' of query '{query_id}'.",
                "another --retriever",
            )
        found[query_id] = scores
    return found
