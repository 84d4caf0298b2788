"""The design of an audit of retrieval-augmented generation: which lists of which queries a generator is shown.

Questions and items -> a retriever's scores -> one program per query (labels, then every distinct list of all settings)
-> a second stage, in which a model judges the outputs, where one is asked.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from llmfair import registry
from llmfair.asking.dispatch import Program
from llmfair.asking.journal import chat_sampling
from llmfair.audits.design import NOBODY, Condition, Design, Outcome, Stage
from llmfair.audits.gates import read_gates
from llmfair.audits.lists import attribute_asked, group_counts, listed_items, selected_queries
from llmfair.audits.rag.results import RagFacts
from llmfair.audits.rag.settings import BY_GROUP, CHANGE, CITED, DETERMINISTIC, DISPARITY, GOLD, RagSettings
from llmfair.audits.subject import Subject, backend_of, sampling_of
from llmfair.datasets.answers import ITEM, QuestionSet, load_answers, questions_sha256
from llmfair.datasets.base import cache_folder
from llmfair.datasets.lamp import read_retrieval, read_useful
from llmfair.errors import UsageError, did_you_mean
from llmfair.io import files
from llmfair.metrics.base import Measure
from llmfair.metrics.expected import Retrieved
from llmfair.metrics.generation import LABEL_OUTPUT
from llmfair.metrics.names import parse_measures
from llmfair.metrics.texts import EMPTY, GREATEST, cleaned, rating, utility
from llmfair.nouns import CROSSED, Attribute, Candidates, Chat, Document, Failure, Query, Text, picked
from llmfair.on_ray import RankerOnRay
from llmfair.prompts import Prompt, load_prompt
from llmfair.rankers import plackett_luce
from llmfair.rankers.base import RankerOptions, ScoringRanker, scoring
from llmfair.rankers.plackett_luce import deterministic
from llmfair.rankers.reader import (
    Fitting,
    Judging,
    Pair,
    QueryTask,
    Read,
    Ruler,
    Shown,
    Support,
    by_checkpoint,
    by_words,
    check_prompt,
)
from llmfair.settings.commands import Asking
from llmfair.stats.betting import fewest_queries

# Which of the items shown an answer is credited to: what the output itself says, or a model that judges it.

STAGE, NLI = "attribution", "nli"
MODELS = {NLI: "nli:FacebookAI/roberta-large-mnli"}
"""What a word alone stands for."""
BARE = "{output}"
"""The hypothesis of an output that is claimed as it stands."""
MARKER = r"\[\d+(?:\s*,\s*\d+)*\]"
"""What names items in an output: [2], or several as [1, 3]."""
Credit = Callable[[str, Shown], frozenset[str]]
"""Which of the items shown an output is credited to."""


def held(items: Mapping[str, Document]) -> Credit:
    """The items that hold the output: as their label, or anywhere in their title or text, whatever the case."""

    def plain(text: str) -> str:
        return " ".join(text.casefold().split())

    labels = {doc_id: plain(" ".join(item.groups.get("label", ()))) for doc_id, item in items.items()}
    texts = {doc_id: plain(f"{item.title} {item.text}") for doc_id, item in items.items()}

    def credit(output: str, shown: Shown) -> frozenset[str]:
        answer = "" if output == EMPTY else plain(output)
        holds = (d for d in shown if (answer == labels[d] if labels[d] else answer in texts[d]))
        return frozenset(holds if answer else ())

    return credit


def cited(output: str, shown: Shown) -> frozenset[str]:
    """The items that the output names as [1], [2] …, by the slots in which they were shown."""
    slots = {int(number) for marker in re.findall(MARKER, output) for number in re.findall(r"\d+", marker)}
    return frozenset(doc_id for slot, doc_id in enumerate(shown, start=1) if slot in slots)


def without_markers(output: str) -> str:
    """The output without the markers of a citing generator, each row of them with the space before it."""
    return re.sub(rf"\s*{MARKER}(?:[\s,;]*{MARKER})*", "", output).strip()


ATTRIBUTORS: Mapping[str, Callable[[Mapping[str, Document]], Credit]] = {
    "overlap": held,
    "cited": lambda items: cited,
}
"""How credit is given among the items of a query."""


class Judge(NamedTuple):
    """The model that is asked whether items support outputs; `by` names its figures."""

    spec: str
    prompt: Prompt
    by: str


def judge_of(settings: RagSettings) -> Judge | None:
    """The model that is asked; None where an output itself says it, or nobody does. Raises UsageError."""
    if settings.attribution in (*ATTRIBUTORS, "none"):
        return None
    attribution = settings.attribution.removeprefix(f"{CITED},")
    spec = MODELS.get(attribution, attribution)
    prefix, _, name = spec.partition(":")
    if not name or not registry.has("backend", prefix):
        words = (*(() if settings.cites else (*ATTRIBUTORS, "none")), *MODELS)
        raise UsageError(
            f"--attribution {attribution} is unknown.{did_you_mean(attribution, words)}",
            f"known: {', '.join(words)}; or a model that judges, such as nli:NAME or openai:NAME",
        )
    by, prompt = (NLI, "rag/entailment") if prefix == NLI else ("judge", "rag/support")
    return Judge(spec, load_prompt(prompt), by)


def probe_of(query: Query) -> str:
    """What the second stage calls its program of a query."""
    return f"{query.query_id}/{STAGE}"


# Groups of items, such as the sources they are from; they have no sides.


def grouping(name: str, known: Collection[str], data: str, hint: str) -> Attribute:
    """The attribute of this name, `gender*race` for combinations of two. Raises UsageError for one that no item has."""
    parts = name.split(CROSSED)
    if missing := next((part for part in parts if part not in known), None):
        raise UsageError(
            f"no item of {data} has a group of '{missing}'.{did_you_mean(missing, known)}",
            f"known: {', '.join(sorted(known))}" if known else hint,
        )
    return replace(ITEM, name=name, crossed=tuple(parts) if len(parts) > 1 else ())


def grouped(attribute: Attribute, items: Iterable[Document]) -> dict[str, str]:
    """By id the group of every item that has one alone."""
    return {item.doc_id: of[0] for item in items if len(of := attribute.groups_of(item)) == 1 and of[0]}


# What lists a condition shows of a query, and how much exposure each item gets by it.

Floats = NDArray[np.float64]
Useful = frozenset[str]
"""The ids of a query's useful items."""
GOLD_ALPHA = 8.0


def conditions_of(retrievers: Sequence[str], alphas: Sequence[float]) -> list[Condition]:
    """For each retriever its one list by score and its draws by alpha; then draws by usefulness itself, `gold`."""
    levels = {DETERMINISTIC: DETERMINISTIC, **{f"{alpha:g}": alpha for alpha in alphas}}
    conditions = [
        Condition(f"{retriever}-{name}", {"retriever": retriever, "alpha": alpha})
        for retriever in retrievers
        for name, alpha in levels.items()
    ]
    return [*conditions, Condition(GOLD, {"retriever": GOLD, "alpha": GOLD_ALPHA})]


def names_of(retrievers: Sequence[str]) -> dict[str, str]:
    """Retrievers by what their conditions and files are called: the last part of a checkpoint's name.

    Raises UsageError where two are called alike.
    """
    names: dict[str, str] = {}
    for spec in retrievers:
        ranker, _, checkpoint = spec.partition(":")
        last = checkpoint.rstrip("/").rpartition("/")[2].partition("@")[0]
        name = re.sub(r"[^\w.-]+", "-", Path(spec).stem if Path(spec).is_file() else last) or ranker
        if name in (GOLD, *names):
            other = names.get(name, GOLD)
            raise UsageError(
                f"--retriever {spec} would be called {name}, as {other} is.", "rename its folder"
            )
        names[name] = spec
    return names


@dataclass(frozen=True)
class Policies:
    """How the items of one query are drawn: `doc_ids` in the order that ties keep, `scores` of shape (n,) by retriever;
    `groups`: those of the items that have one.

    Draws of all conditions share their noise, so that what differs between conditions is not chance alone, and none
    of them moves when another is added.
    """

    query_id: str
    doc_ids: Shown
    scores: Mapping[str, Floats]
    k: int
    samples: int
    seed: int
    groups: Mapping[str, str]

    def draws(self, conditions: Sequence[Condition], useful: Useful) -> dict[str, Counter[Shown]]:
        """The lists that each condition shows, with how many of its draws came to them."""
        noise = plackett_luce.noise(self.seed, self.query_id, self.samples, len(self.doc_ids))
        lists = {}
        for condition in conditions:
            scores, weights = self._weighed(condition, useful)
            best = [deterministic(scores, self.k)]
            draws = best if weights is None else plackett_luce.draws(weights, self.k, noise)
            lists[condition.name] = Counter(tuple(self.doc_ids[place] for place in of) for of in draws)
        return lists

    def exposure(self, condition: Condition, useful: Useful) -> dict[str, float]:
        """The probability that each item is shown (Kim and Diaz 2025, Eq. 5)."""
        scores, weights = self._weighed(condition, useful)
        if weights is None:
            chances = np.zeros(len(self.doc_ids))
            chances[deterministic(scores, self.k)] = 1.0
        else:
            chances = plackett_luce.inclusion(weights, self.k)
        return dict(zip(self.doc_ids, chances.tolist(), strict=True))

    def _weighed(self, condition: Condition, useful: Useful) -> tuple[Floats, Floats | None]:
        """The scores behind a condition, and its log-weights; None of one that draws nothing."""
        retriever, alpha = condition.factors["retriever"], condition.factors["alpha"]
        if retriever == GOLD:
            scores = plackett_luce.gold_scores([doc_id in useful for doc_id in self.doc_ids])
        else:
            scores = self.scores[retriever]
        return scores, None if alpha == DETERMINISTIC else plackett_luce.log_weights(scores, alpha)


@dataclass(frozen=True, kw_only=True)
class RagDesign(Design[Read | Support]):
    """Everything an audit of a generator asks; what is useful is known only when labels are.

    `scores`: by retriever and query, shape (items,). `useful`: by query, where judgements or a file name them, and
    `labels` what tells them. `uncredited`: why answers are credited to nothing.
    """

    task = "rag"
    settings: RagSettings
    dataset: QuestionSet
    prompt: Prompt
    ruler: Ruler
    utility: str
    gain: str
    retrievers: Mapping[str, str]
    scores: Mapping[str, Mapping[str, Floats]]
    judge: Judge | None
    uncredited: str | None
    useful: Mapping[str, Useful] | None
    labels: str

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
        settings, groups = self.settings, self.groups_of(query)
        return Policies(query.query_id, doc_ids, scores, settings.k, settings.samples, settings.seed, groups)

    def groups_of(self, query: Query) -> Mapping[str, str]:
        """By id the group of every item of a query that has one; none where groups are not asked about."""
        return grouped(self.attribute, self.items(query)) if self.settings.attribute else {}

    def draws(self, query: Query, useful: Useful) -> dict[str, Counter[Shown]]:
        """The lists of every condition, with how many draws came to each."""
        return self.policies(query).draws(self.conditions, useful)

    def lists(self, query: Query, useful: Useful) -> list[Shown]:
        """The distinct lists of all conditions, in their order."""
        return [*dict.fromkeys(doc_ids for lists in self.draws(query, useful).values() for doc_ids in lists)]

    def asked(self, query: Query) -> QueryTask:
        """The query as the generator is asked about it."""
        question, items = self.dataset.questions[query.query_id], self.items(query)
        return QueryTask(
            query=query,
            items={item.doc_id: item for item in items},
            render=Fitting(self.prompt, self.ruler, question.parts, items).messages,
            lists=partial(self.lists, query) if self.settings.stop_after != "labels" else lambda useful: [],
            utility=partial(self.worth, self.utility, question.golds),
            gain=partial(self.worth, self.gain, question.golds),
            useful=None if self.useful is None else self.useful[query.query_id],
        )

    def worth(self, name: str, golds: Sequence[str], output: str) -> float:
        """The utility of an output by that name."""
        return utility(name, without_markers(output) if self.settings.cites else output, golds)

    @property
    def bare(self) -> bool:
        """Whether a judge is told the output alone."""
        return self.judge is not None and self.settings.hypothesis == "bare"

    def meaning(self, query: Query, output: str) -> str:
        """What an output is held against items as."""
        return output if self.bare else self.dataset.questions[query.query_id].meanings.get(output, output)

    def pairs(self, query: Query, output: str, shown: Shown) -> list[Pair]:
        """What a judge is asked of an output: of every item shown, or of those alone that it cites."""
        cites = self.settings.cites
        named = cited(output, shown) if cites else shown
        meaning = without_markers(output) if cites else self.meaning(query, output)
        return [] if cleaned(meaning) == EMPTY else [(doc_id, meaning) for doc_id in shown if doc_id in named]

    def programs(self) -> Iterator[Program]:
        """A program a query: what it asks of one list, other conditions need too."""
        for query in self.queries if self.settings.stop_after != "retrieval" else ():
            # items are cut to fit when a program begins, and forgotten when it ends
            yield Program(query.query_id, partial(lambda query: self.asked(query).steps(), query))

    @property
    def stops(self) -> bool:
        return self.settings.stop_after is not None

    def stages(self) -> Sequence[Stage]:
        return self._stages

    @cached_property
    def _stages(self) -> Sequence[Stage]:
        """A program a query whose lists were asked about: every output beside the items that it was shown."""
        if (judge := self.judge) is None:
            return ()
        hypothesis = BARE if self.bare else self.prompt.hypothesis

        def programs(results: Mapping[str, Read]) -> Iterator[Program]:
            for query in () if self.stops else self.queries:
                read = results.get(query.query_id)
                if read is not None and read.kept:
                    pairs = (self.pairs(query, output.text, shown) for shown, output in read.lists.items())
                    each = [*dict.fromkeys(chain.from_iterable(pairs))]
                    items = {item.doc_id: item for item in self.items(query)}
                    judging = Judging(query.query_id, items, each, judge.prompt, hypothesis)
                    yield Program(probe_of(query), judging.steps)

        # the generator's adapter, engine and batches are not the judge's
        settings = replace(self.settings, adapter=None, backend_arg=(), batch=False)
        return (Stage(STAGE, programs, lambda: backend_of(judge.spec, settings)),)

    @cached_property
    def calls(self) -> int:
        """Labels of every query, and its distinct lists, those of `gold` as many as there can be.

        Queries that labels drop ask fewer; so does a judge, where outputs are alike.
        """
        stop, calls = self.settings.stop_after, 0
        for query in self.queries if stop != "retrieval" else ():
            items, labelled = len(self.items(query)), self.useful is not None
            draws = self.draws(query, self.useful[query.query_id] if self.useful else frozenset())
            lists = len({doc_ids for name, of in draws.items() if name != GOLD or labelled for doc_ids in of})
            if not labelled:
                calls, lists = calls + 1 + items, lists + self.settings.samples
            judging = 0 if self.judge is None or self.stops else min(self.settings.k, items)
            calls += lists * (1 + judging) * (stop != "labels")
        return calls

    def name_parts(self) -> tuple[str, ...]:
        return (self.dataset.name, *[self.attribute.name] * bool(self.settings.attribute))

    def identity(self) -> dict[str, Any]:
        return {
            **super().identity(),
            "lists_sha256": questions_sha256(self.dataset, self.queries),
            "alpha": self.settings.alphas(),
            "useful": self.labels,
            "retrievers": self.retrievers,
            "lines": [self.ruler.unit, self.ruler.context],
            # which tell useful items, and they what is drawn
            "utility": f"{self.utility} without markers" if self.settings.cites else self.utility,
            **({"judge_sha256": self.judge.prompt.sha256} if self.judge else {}),
            **({"hypothesis": self.settings.hypothesis} if self.bare else {}),
        }

    def facts(self) -> RagFacts:
        settings, documents = self.settings, self.dataset.documents
        items = [*listed_items(self.dataset, self.queries if settings.attribute else ())]
        counts = group_counts(self.attribute, items)
        return RagFacts(
            **structs.asdict(super().facts()) | {"groups": counts.few, "unknown": counts.unknown},
            **picked(settings, ("k", "samples", "attribution", "margin")),
            useful=Path(settings.useful).name,
            utility=self.utility,
            uncredited=self.uncredited,
            recurring=all(documents[item.doc_id] == item for item in items),
            worst_loss=min(settings.worst_loss or inf, GREATEST[self.utility]),
        )

    @cached_property
    def fewest(self) -> str:
        """How many queries the conclusion takes."""
        facts = self.facts()
        takes = queries_for(facts.margin, facts.worst_loss, self.settings.level)
        return f"{takes}; here are {len(self.queries):,}"

    @property
    def remarks(self) -> Sequence[str]:
        return (*super().remarks, self.fewest)

    def planned(self) -> dict[str, Any]:
        return {**super().planned(), "fewest": self.fewest}

    def outcome(
        self, run: str, results: Mapping[str, Read | Support], failures: Sequence[Failure]
    ) -> Outcome:
        from llmfair.audits.rag.measure import outcome_of

        return outcome_of(self, run, results, failures)

    def unparseable(self, result: Read | Support) -> int:
        if isinstance(result, Support):
            return result.unparseable
        return sum(output.unparseable for output in (*result.alone.values(), *result.lists.values()))


# Scores of every item of a query, by a retriever that asks nobody.


class RecordedScores(ScoringRanker):
    """What a retriever scored once: a TREC run, or JSON as Fair-RAG released it. Items without a score come last."""

    def __init__(self, path: Path, dataset: QuestionSet, queries: Sequence[Query]) -> None:
        self.identity = f"file {files.sha256(path)}"
        lists = {query.query_id: dataset.candidates(query).doc_ids for query in dataset.queries}
        needed = [query.query_id for query in queries]
        self._scores = read_retrieval(path, lists, needed, complete=not dataset.shared)

    def scores(self, candidates: Candidates) -> list[float]:
        scores = self._scores[candidates.query.query_id]
        least = min(scores.values(), default=0.0) - 1
        return [scores.get(doc_id, least) for doc_id in candidates.doc_ids]


def retriever_of(
    spec: str, dataset: QuestionSet, queries: Sequence[Query], settings: Asking
) -> ScoringRanker:
    """A retriever of a query's own items, among which words are counted where it counts any; or recorded scores.

    `spec`: a file, or a ranker that scores, as `dense:CHECKPOINT` names it. One that takes a model scores where models
    answer: here, or in processes of a Ray cluster. Raises UsageError for an unknown name, for a ranker without scores,
    and what its model raises.
    """
    if Path(spec).is_file():
        return RecordedScores(Path(spec), dataset, queries)
    here = scoring_ranker(spec)
    if settings.on_ray and here.costly:
        make = partial(scoring_ranker, spec)
        return RankerOnRay(make, here, settings.ray_workers or 1, settings.ray_address)
    return here


def scoring_ranker(spec: str) -> ScoringRanker:
    """One that scores here."""
    name, _, checkpoint = spec.partition(":")
    options = RankerOptions((), cache_folder(), checkpoint=checkpoint, each_list=True)
    return scoring(name, registry.lookup("ranker", name)(options))


def scores_of(retriever: ScoringRanker, dataset: QuestionSet, queries: Sequence[Query]) -> dict[str, Floats]:
    """The scores of each query's items, in their order; shape (items,). Raises UsageError if one is not finite.

    Those that take a model are kept on this machine: whatever asks for the same ones again loads none.
    """
    lists = {query.query_id: dataset.candidates(query) for query in queries}
    identity = f"{retriever.identity} {questions_sha256(dataset, queries)}"
    path = cache_folder() / "scores" / f"{sha256(identity.encode()).hexdigest()[:32]}.json"
    if retriever.costly:
        with suppress(UsageError, LookupError):  # none, or damaged
            stored = files.read_document(path, dict[str, list[float]], most=files.MOST_WHOLE)
            if all(len(stored[name]) == len(of.documents) for name, of in lists.items()):
                return {name: np.array(stored[name], dtype=np.float64) for name in lists}
    texts = {query.query_id: replace(query, text=dataset.searched(query)) for query in queries}
    searched = (replace(of, query=texts[name]) for name, of in lists.items())
    scored = zip(lists, retriever.scores_of_each(searched), strict=True)
    scores = {query_id: np.asarray(of, dtype=np.float64) for query_id, of in scored}
    if infinite := next((name for name, of in scores.items() if not np.isfinite(of).all()), None):
        raise UsageError(
            f"{retriever.identity.split()[0]} has no finite score for an item of query '{infinite}'.",
            "another --retriever",
        )
    if retriever.costly:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_whole(path, [json.dumps({query_id: of.tolist() for query_id, of in scores.items()})])
    return scores


def pooled(
    retrievers: Mapping[str, ScoringRanker], dataset: QuestionSet, queries: Sequence[Query], pool: int
) -> tuple[QuestionSet, dict[str, dict[str, Floats]]]:
    """The dataset with the items that are drawn from, and each retriever's scores of them.

    Of a corpus those are the first retriever's best `pool` of each query, with their scores in the whole corpus; the
    other retrievers score these alone.
    """
    scores: dict[str, dict[str, Floats]] = {}
    if dataset.shared:
        first = next(iter(retrievers))
        scores[first], items = scores_of(retrievers[first], dataset, queries), {}
        for query in queries:
            query_id, documents = query.query_id, dataset.candidates(query).documents
            best = deterministic(scores[first][query_id], pool)
            items[query_id] = tuple(documents[place] for place in best)
            scores[first][query_id] = scores[first][query_id][best]
        dataset = dataset.with_items(items)
    for name, retriever in retrievers.items():
        if name not in scores:
            scores[name] = scores_of(retriever, dataset, queries)
    return dataset, scores


# The design from what the user set.

SPREAD = 0.1
"""Of changes of utility, as a share of the largest loss, for plans."""
SHOWN = "EE-D,EE-R,EU,EU-change"
MEASURED = f"{SHOWN},EE-L,EE-D(norm=fair-rag),EE-R(norm=fair-rag),EE-D(of=samples),EU(norm=ceiling)"
CREDIT, SLOTS, CITATIONS = ",EAR,EAE-D", ",AttributionAt", ",CitationPrecision,CitationRecall"
CONTEXT = 4096
"""Tokens that are taken for a generator's context where nobody knows it."""
LOCAL = ("hf", "vllm")
"""Whose tokenizers are on this machine."""
CITING = "rag/cited"
GROUPS_HINT = (
    '{"id": "d1", "text": "…", "source": "Acme"} is an item with one; of a folder groups.tsv has them'
)
NORMED = ("EE-D", "EE-R", "EE-L")


def bounded(measures: Sequence[Measure], utility: str) -> tuple[Measure, ...]:
    """The measures with the bounds that the utility and their norm give them: their intervals go no further."""
    greatest = GREATEST.get(utility, inf)
    of_utility = {"EU": (0.0, greatest), "EU-change": (-greatest, greatest)} if utility in GREATEST else {}

    def bounds(measure: Measure) -> tuple[float, float]:
        norm = measure.arguments.get("norm")
        normed = (measure.name in NORMED and norm != "raw") or (measure.name == "EU" and norm == "ceiling")
        return (0.0, 1.0) if normed else of_utility.get(measure.name, measure.definition.bounds)

    return tuple(
        replace(measure, definition=replace(measure.definition, bounds=bounds(measure)))
        for measure in measures
    )


def queries_for(margin: float, worst_loss: float, level: float) -> str:
    """How many queries it takes to say that utility is kept, in a sentence."""
    steady, spread = (
        fewest_queries(margin, worst_loss, 1 - level, share * worst_loss) for share in (0.0, SPREAD)
    )
    if steady is None:
        return f"no number of queries rules every loss of more than {margin:g} out (--margin)"
    others = "" if spread is None else f", {spread:,} where changes have sd {SPREAD * worst_loss:g}"
    return f"to say that utility is kept takes {steady:,} queries where no answer changes{others} (--margin {margin:g})"


def make_rag_design(settings: RagSettings, subject: Subject = NOBODY) -> RagDesign:
    """Loads what the settings name, and scores every item of every query. Raises UsageError."""
    name = attribute_asked(settings)
    dataset = load_answers(settings.dataset, settings.data, settings.useful == "qrels", name is not None)
    known = {of for item in dataset.documents.values() for of in item.groups} if name else set()
    attribute = grouping(name, known, dataset.name, GROUPS_HINT) if name else dataset.attributes[0]
    queries = tuple(selected_queries(dataset, settings))
    settings = replace(settings, prompt=settings.prompt or (CITING if settings.cites else dataset.prompt))
    if settings.useful not in ("gain", "qrels") and not Path(settings.useful).is_file():
        raise UsageError(
            f"--useful {settings.useful}: there is no such file.", "gain, qrels, or a file of labels"
        )
    prompt, utility = load_prompt(str(settings.prompt), "rag"), settings.utility or dataset.task.utility
    check_golds(
        {query.query_id: dataset.questions[query.query_id].golds for query in queries}, utility, settings
    )
    judge = judge_of(settings)
    by = judge.by if judge and not settings.cites else settings.attribution.partition(",")[0]
    credit, slots = ("", "") if by == "none" else (CREDIT, SLOTS)
    citations, uncredited = CITATIONS * (judge is not None and settings.cites), None
    if judge and settings.hypothesis == "bare" and not settings.cites and prompt.hypothesis != BARE:
        judge, uncredited = None, LABEL_OUTPUT  # [1] or a tag: nobody is asked what follows from that
    shown, measured = (
        credited_by(by, settings.measures or names)
        for names in (f"{SHOWN}{credit}{citations}", f"{MEASURED}{credit}{slots}{citations}")
    )
    by_group = credited_by(by, BY_GROUP + ",Credit(group)" * bool(credit)) if name else ()
    specs = names_of(settings.retriever)
    conditions = [condition.name for condition in conditions_of([*specs], settings.alphas())]
    gates = read_gates(settings.require, conditions, Retrieved)
    further = parse_measures(",".join((CHANGE, DISPARITY, *(gate.measure for gate in gates))), Retrieved)
    retrievers = {name: retriever_of(spec, dataset, queries, settings) for name, spec in specs.items()}
    dataset, scores = pooled(retrievers, dataset, queries, settings.pool)
    useful, labels = known_useful(settings, dataset, queries)
    check_prompt(prompt, (item for query in queries for item in dataset.candidates(query).documents))
    if settings.cites and "k" not in prompt.of_passage:
        raise UsageError(
            f"--attribution cited: prompt {prompt.file} numbers no items, so that no answer can name them.",
            'passage = "[{k}] {item}", or --attribution overlap',
        )
    if uncredited:  # what is the same in every row is said once below the table
        shown = [measure for measure in shown if "by" not in measure.definition.params]
    return RagDesign(
        settings=settings, subject=subject, dataset=dataset, attribute=attribute, queries=queries,
        measures=bounded([*dict.fromkeys((*measured, *further, *by_group))], utility), shown=tuple(shown), gates=gates,
        prompt=prompt, ruler=_ruler(settings, subject), utility=utility, scores=scores, judge=judge,
        gain=settings.utility or dataset.task.label_utility or utility, uncredited=uncredited, useful=useful,
        labels=labels,
        retrievers={name: retriever.identity for name, retriever in retrievers.items()},
    )  # fmt: skip


def check_golds(golds: Mapping[str, Sequence[str]], utility: str, settings: RagSettings) -> None:
    """Raises UsageError for a query without a right answer that the utility and the attribution can do with."""
    for query_id, of in golds.items():
        lacks = "" if of else "right answer"
        if utility == "mae" and any(rating(gold) is None for gold in of):
            lacks = f"right answer that is a number, which --utility {utility} takes"
        if settings.cites and any(without_markers(gold) != gold.strip() for gold in of):
            lacks = "right answer without a number as in [1], which --attribution cited cuts off"
        if lacks:
            raise UsageError(
                f"query '{query_id}' lacks a {lacks}.",
                "give every question a gold, or choose another --utility or --attribution",
            )


def known_useful(
    settings: RagSettings, dataset: QuestionSet, queries: Sequence[Query]
) -> tuple[Mapping[str, Useful] | None, str]:
    """The useful items by query, where judgements or a file name them, and what tells them. Raises UsageError."""
    labels = settings.useful
    if labels == "gain":
        return None, labels
    grades: Mapping[str, Mapping[str, float]]
    if labels == "qrels":
        grades = {query.query_id: dataset.candidates(query).relevance for query in queries}
    else:
        path = Path(labels)
        lists = {query.query_id: dataset.candidates(query).doc_ids for query in dataset.queries}
        grades, labels = read_useful(path, lists), files.sha256(path)
    return {
        query.query_id: frozenset(d for d, grade in grades.get(query.query_id, {}).items() if grade >= 1)
        for query in queries
    }, labels


def credited_by(by: str, names: str) -> Sequence[Measure]:
    """The measures, those of credit with the way it is given. Raises UsageError for one that names another way."""
    measures = list[Measure]()
    for measure in parse_measures(names, Retrieved):
        if "by" in measure.definition.params:
            if measure.arguments["by"] not in (None, by):
                raise UsageError(
                    f"--measures {measure}: answers are credited by {'nobody' if by == 'none' else by} here.",
                    f"{measure.name} without by, or another --attribution",
                )
            if by != "none":
                measure = replace(measure, params=tuple(sorted({**dict(measure.params), "by": by}.items())))
        measures.append(measure)
    return measures


def _ruler(settings: RagSettings, subject: Subject) -> Ruler:
    """In the generator's own tokens where it runs on this machine, else in words. Raises as `by_checkpoint` does."""
    # whoever only looks names nobody; of a run, an adapter may stand behind the model
    spec = subject.spec.partition(" + ")[0] or settings.model[0]
    prefix, _, name = spec.partition(":")
    if prefix not in LOCAL or subject.given is not None:
        return by_words(settings.context or CONTEXT)
    answer = chat_sampling(Chat((), Text()), sampling_of(settings)).max_tokens
    return by_checkpoint(name, settings.context, answer)
