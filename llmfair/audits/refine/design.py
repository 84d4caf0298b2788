"""The design of an audit of query refinement: a loop a topic, whose first page is the baseline's.

The data's way: topics and a collection -> its index -> one loop a topic -> dispatch -> pages -> measures -> intervals
-> run folder.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Collection as Names
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, product
from pathlib import Path
from threading import Lock
from typing import Any

from msgspec import structs

from llmfair import nouns, registry
from llmfair.asking.dispatch import Program
from llmfair.asking.limits import Progress
from llmfair.audits.aggregates import value_of
from llmfair.audits.design import CHARACTERS_PER_TOKEN, NOBODY, Condition, Design, Outcome
from llmfair.audits.gates import read_gates
from llmfair.audits.lists import (
    attribute_asked,
    check_two_groups,
    engine_of,
    given_of,
    selected_queries,
    training_lists,
)
from llmfair.audits.refine.results import RefineFacts
from llmfair.audits.refine.settings import (
    BASELINE,
    FAIR_QR,
    GREEDY,
    METHODS,
    NAME,
    NAME_ALONE,
    RefineSettings,
)
from llmfair.audits.subject import Subject
from llmfair.datasets.attributes import shipped_backgrounds
from llmfair.datasets.base import Collection, load_dataset, named_attribute
from llmfair.datasets.files import searched
from llmfair.errors import BackendError, UsageError, did_you_mean
from llmfair.io import files
from llmfair.metrics.attention import least_divergence, shares_of
from llmfair.metrics.base import Groups, Judged, Measure, Undefined
from llmfair.metrics.names import parse_measure, parse_measures
from llmfair.metrics.targets import TARGETS, UNKNOWN, Cells, cells, read_shares, target_shares
from llmfair.nouns import picked
from llmfair.prompts import Prompt, load_prompt
from llmfair.rankers.base import Ranker, ScoringRanker, scoring
from llmfair.rankers.fair_qr import FairQr, Page, Refined, Stopping, Topic, parts_of, refined_text
from llmfair.retrieval.engine import ANALYZERS, Engine, Patience
from llmfair.settings.declaration import seconds
from llmfair.stats.power import queries_needed

# Methods that refinement is held against: rankers that order anew what the original query finds. Each is what
# `llmfair rerank RUN/rankings/bm25.run --with SPEC` makes of the run's first stage.

ALL = "all"
PAPER = ("dlf-like", "deltr", "fair-star", "mmr", "sbert")
"""The methods of the paper's Table 1 beside BM25, in its order."""
TARGET = "target"


@dataclass(frozen=True)
class Baseline:
    """A ranker under the name that it has in tables; `spec` is what `llmfair rerank --with` takes."""

    name: str
    spec: str
    ranker: Ranker


class NameAlone(Ranker):
    """The loop, answered with the name of the group that it lacks: what aiming gives without any knowledge."""

    identity = "the loop answered with the group's name"
    target_known = "yes"

    def __init__(self, loop: Callable[[nouns.Query], nouns.Candidates]) -> None:
        self.loop = loop

    def ordered(self, candidates: nouns.Candidates) -> tuple[nouns.Candidates, None]:
        return self.loop(candidates.query), None


@dataclass(frozen=True)
class FirstStage:
    """What rankers order: the first documents that the engine finds for each topic's keywords or title."""

    engine: Engine
    dataset: Collection
    attribute: nouns.Attribute
    settings: RefineSettings

    def ranker(self, flag: str, spec: str) -> Ranker:
        """A ranker by its spec. Raises UsageError naming the flag, and as rankers do."""
        lists = partial(training_lists, self.dataset, self.settings.query_text, self.engine)
        try:
            reads_texts = getattr(registry.lookup("ranker", spec.partition(":")[0]), "reads_texts", True)
            documents = self.documents if reads_texts else ()  # scores come with what is found
            return Subject(spec).ranker(self.dataset, self.attribute, documents, lists=lists)
        except UsageError as error:
            raise UsageError(f"{flag} {spec}: {error.message}", error.hint) from None

    @cached_property
    def documents(self) -> tuple[nouns.Document, ...]:
        """All there are; where these are too many to hold, all that any topic finds."""
        if not self.dataset.too_many:
            return tuple(self.dataset.documents.values())
        settings = self.settings
        queries = (searched(query, settings.query_text) for query in self.dataset.queries)
        doc_ids = {hit.doc_id for query in queries for hit in self.engine.search(query.text, settings.depth)}
        return tuple(self.dataset.document(doc_id) for doc_id in sorted(doc_ids))


def baselines_of(
    target: str, first_stage: FirstStage, loop: Callable[[nouns.Query], nouns.Candidates]
) -> tuple[list[Baseline], list[str]]:
    """The baselines, and warnings: of those that need what is not here, too. Raises UsageError.

    `loop` makes a query's page with the name of the group alone.
    """
    specs = {**dict.fromkeys(METHODS, ""), BASELINE: BASELINE}
    baselines, warnings = list[Baseline](), list[str]()
    given = map(str.strip, first_stage.settings.baseline)
    texts = [*chain.from_iterable(PAPER if text == ALL else (text,) for text in given)]
    if not any(re.match(f"({GREEDY}=)?{GREEDY}(:|$)", text) for text in texts):
        texts.append(GREEDY)
    for text in texts:
        aliased = re.fullmatch(r"([\w.-]+)=(.+)", f"{NAME}={text}" if text == NAME_ALONE else text)
        name, spec = (aliased[1], aliased[2]) if aliased else (text.partition(":")[0], text)
        if specs.get(name) == spec:
            continue
        if name in specs:
            raise UsageError(f"--baseline {text}: {name} is there already.", f"another name: ALIAS={spec}")
        specs[name] = spec
        ranker_name, colon, parameters = spec.partition(":")
        there = registry.has("ranker", ranker_name)
        declared = getattr(registry.lookup("ranker", ranker_name), "declared", {}) if there else {}
        named = {parameter.partition("=")[0].strip() for parameter in parameters.split(",")}
        if TARGET in declared and TARGET not in named and target != declared[TARGET].default:
            spec += f"{',' if colon else ':'}{TARGET}={target}"
        try:
            ranker = NameAlone(loop) if spec == NAME_ALONE else first_stage.ranker("--baseline", spec)
        except BackendError as error:  # no package, or no checkpoint, of the models that it needs
            missing = f"{error.message.removesuffix('.')}: {error.hint}"
            warnings.append(f"--baseline {name} is left out: {missing}")
            continue
        baselines.append(Baseline(name, spec, ranker))
    return baselines, warnings


# What simulated models may know of a collection: the words that distinguish a group's documents from the rest.

HINTS, FEWEST = 3, 5
"""How many words are told, and in how many of the group's documents each stands at least."""
_STOP_WORDS = """
    a about after all also an and any are as at be been before but by can did do during for from had has have if in
    into is it its more most no not of on once one only or other over same since so some such than that the then
    there these this those through to under until up was were what when where which while who whose will with
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Words of no content. Pronouns are left: they tell a gender."""


# What measures read of a page: of an audit while it runs, and of its run folder.


@dataclass(frozen=True)
class Pages:
    """Judgements and groups, which make a page a judged list. Nothing of a document is looked at but its groups."""

    attribute: nouns.Attribute
    groups: Groups
    qrels: nouns.Qrels

    def judged(self, query_id: str, doc_ids: Sequence[str]) -> Judged:
        """A page, best first; its candidates are what it holds, by id."""
        documents = self.groups.documents
        listed = [documents.get(doc_id) or nouns.Document(doc_id, "") for doc_id in sorted(doc_ids)]
        return Judged(
            nouns.Candidates(nouns.Query(query_id, ""), tuple(listed), self.qrels.get(query_id, {})),
            (nouns.Ranking(query_id, tuple(doc_ids)),),
            {of.doc_id: side for of in listed if (side := self.attribute.side(of)) is not None},
            groups=self.groups,
        )

    def value(self, measure: Measure, query_id: str, doc_ids: Sequence[str]) -> float | None:
        """A measure of one page; None where it has none."""
        return value_of(measure.values(self.judged(query_id, doc_ids))[""])[0]


Ended = Refined | nouns.Candidates
"""What a program comes to: a topic's loop, or what a baseline makes of what its query finds, best first."""
OF_SETTINGS = (
    "margin", "max_iterations", "keep", "allow_unknown", "rerank", "weight", "form", "analyzer",
)  # fmt: skip
"""What results say of the settings as they are."""
MOST_REPLIES = 2
"""A round asks once more where the first reply cannot be read."""
TOKENS_ANSWERED = 40
SD = 0.1
"""Of a query's change of relevance, where nothing is known of it."""
MOST_HINTED = 10_000
"""Documents that a query finds, by whose words simulated models tell groups apart: as deep as servers search."""


def ordering(query: nouns.Query, baseline: str) -> str:
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
    patience: Patience
    objective: Measure
    aimed: Measure
    utility: Measure
    reranker: ScoringRanker | None
    baselines: Sequence[Baseline]
    first_stages: dict[str, nouns.Candidates] = field(default_factory=dict, init=False)
    turn: Lock = field(default_factory=Lock, init=False)

    two_groups = False
    why_not_assessable = "the others have no target"

    @cached_property
    def conditions(self) -> Sequence[Condition]:
        sources = METHODS | {of.name: of.ranker.target_known for of in self.baselines}
        return [Condition(name, {"target_known": source}) for name, source in sources.items()]

    @property
    def k(self) -> int:
        """The length of a page: the objective's cutoff."""
        return int(self.objective.cutoff or 0)

    @cached_property
    def targets(self) -> Mapping[str, Mapping[str, float]]:
        """The share that each group of a page should have, of every topic that has a target.

        Raises UsageError for a file that is none.
        """
        arguments, targets = self.objective.arguments, dict[str, Mapping[str, float]]()
        source, membership = str(arguments["target"]), str(arguments["membership"])
        for query in self.queries:
            judged = self.pages.judged(query.query_id, ())
            shares = target_shares(judged, self.spread, source, membership)
            if not isinstance(shares, Undefined):
                targets[query.query_id] = dict(zip(self.spread.names, shares.tolist(), strict=True))
        return targets

    @cached_property
    def topics(self) -> Sequence[nouns.Query]:
        """Those that have a target."""
        return [query for query in self.queries if query.query_id in self.targets]

    @property
    def assessable(self) -> int:
        return len(self.topics)

    @property
    def longest(self) -> int:
        return self.settings.max_iterations

    @property
    def calls(self) -> int:
        """The most there can be: every round of every topic, each reply but the last unreadable at first."""
        return len(self.topics) * self.longest * MOST_REPLIES

    def plan(self, models: int) -> dict[str, Any]:
        return {**super().plan(models), "at_most": True, "queries_for_nearer": self.queries_for_nearer}

    @property
    def queries_for_nearer(self) -> int | None:
        """How many rule out a loss beyond the margin in 80 %, where nDCG's changes have mean 0 and sd `SD`."""
        margin, level = self.settings.margin, self.settings.level
        return queries_needed(math.exp(margin), SD, max(0.8, 1 - level / 2), level) if margin else None

    @property
    def remarks(self) -> Sequence[str]:
        enough = "no number of" if self.queries_for_nearer is None else f"{self.queries_for_nearer:,}"
        return (
            *super().remarks,
            f"to rule out a loss of {self.utility} beyond {self.settings.margin:g} (--margin), as *nearer* does, takes "
            f"{enough} queries where its changes have mean 0 and sd {SD:g} (power 80 %; here are {len(self.topics):,})",
        )

    def tokens(self) -> tuple[int, int]:
        """By the prompt's length and that of queries, which grow by a few words."""
        asked = sum(len(query.text) + len(self.prompt.text) for query in self.topics)
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

    def stopping(self, target: Mapping[str, float]) -> Stopping:
        """When the topic's loop ends: at the best that a page can have, as far as that is known."""
        settings, (least, most) = self.settings, self.objective.bounds
        if self.objective.definition.better == "higher":
            return Stopping(settings.max_iterations, "higher", most - settings.kl_threshold)
        best = self.least(target) if self.objective.name == "KL" and settings.floor else least
        return Stopping(settings.max_iterations, "lower", best + settings.kl_threshold)

    def page(self, query: nouns.Query, added: Sequence[str]) -> Page:
        """What the query finds with these words behind it."""
        hits = self.engine.search(query.text, self.k, " ".join(added), self.settings.weight)
        doc_ids = tuple(hit.doc_id for hit in hits)
        arguments = self.objective.arguments
        rows = self.spread.rows(doc_ids, str(arguments["membership"]), str(arguments["unlisted"]))
        shares = shares_of(rows[:, self.spread.kept])
        names = self.spread.names
        parts = [0.0] * len(names) if shares is None else (shares / shares.sum()).tolist()
        objective = self.pages.value(self.objective, query.query_id, doc_ids) if doc_ids else None
        return Page(doc_ids, dict(zip(names, parts, strict=True)), objective)

    def reorder(self, query: nouns.Query, doc_ids: Sequence[str]) -> Sequence[str]:
        """By the original query, ties by id; documents that bm25 does not find come last."""
        if self.settings.rerank == "none":
            return doc_ids
        if self.reranker is None:
            scores = self.engine.scores(query.text, doc_ids)
        else:
            documents = tuple(self.dataset.documents[doc_id] for doc_id in doc_ids)
            candidates = nouns.Candidates(query, documents, {})
            with self.turn:  # one topic at a time, since rankers may hold a model
                scores = dict(zip(doc_ids, self.reranker.scores(candidates), strict=True))
        return sorted(doc_ids, key=lambda doc_id: (-scores[doc_id], doc_id))

    def watched_by(self, progress: Progress) -> None:
        self.patience.waits = progress.waits

    def by_name(self, query: nouns.Query) -> nouns.Candidates:
        """The page of a topic's loop that is answered with the group's name alone."""

        def reply(chat: nouns.Chat) -> nouns.Completion:
            text = json.dumps({"keywords": [chat.about["subgroup"]]})
            return nouns.Completion(text, nouns.Finish.STOP)

        refined = nouns.drive(self.program.steps(self.topic(query)), reply)
        return self.found(query, refined.final)

    def programs(self) -> Iterator[Program]:
        for query in self.topics:
            steps = partial(lambda query: self.program.steps(self.topic(query)), query)
            yield Program(query.query_id, steps, threaded=True, condition=FAIR_QR)
        for of, query in product(self.baselines, self.topics):
            order = partial(self.order, of.ranker, query)
            yield Program(ordering(query, of.name), order, threaded=True, condition=of.name)

    def order(self, ranker: Ranker, query: nouns.Query) -> nouns.Steps[Any]:
        """What a ranker makes of what the original query finds, which is searched in the program's own thread."""
        yield from ()
        candidates = self.first_stage(query)
        with nullcontext() if isinstance(ranker, NameAlone) else self.turn:
            return ranker.ordered(candidates)[0] if candidates.documents else candidates

    def first_stage(self, query: nouns.Query) -> nouns.Candidates:
        """What the original query finds, as deep as baselines look, with its scores."""
        if query.query_id not in self.first_stages:
            hits = self.engine.search(query.text, max(self.settings.depth, self.k))
            candidates = self.found(query, [hit.doc_id for hit in hits])
            self.first_stages[query.query_id] = replace(candidates, scores=tuple(hit.score for hit in hits))
        return self.first_stages[query.query_id]

    def found(self, query: nouns.Query, doc_ids: Sequence[str]) -> nouns.Candidates:
        """These documents in their order, as judged."""
        judged = self.dataset.qrels.get(query.query_id, {})
        return nouns.Candidates(query, tuple(map(self.dataset.document, doc_ids)), judged)

    @cached_property
    def program(self) -> FairQr:
        attributes, settings = " and ".join(of.name for of in self.spread.attributes), self.settings
        return FairQr(self.prompt, attributes, self.k, settings.form, settings.keep, settings.allow_unknown)

    def topic(self, query: nouns.Query) -> Topic:
        """The topic as the loop is told of it."""
        target = self.targets[query.query_id]
        hints = partial(self.hints, query) if self.subject.spec.startswith("fake:") else None
        page, reorder = partial(self.page, query), partial(self.reorder, query)
        return Topic(query, target, self.stopping(target), page, reorder, hints)

    def hints(self, query: nouns.Query, group: str, added: Names[str]) -> Sequence[str]:
        """What simulated models are told: the words, none of the query's, by which documents of a group are told from
        the others that the query finds, the best first.

        By the log odds ratio of standing in a document of the group and in another, each count with a half added; ties
        by the alphabet.
        """
        hits = self.engine.search(query.text, min(self.engine.count(), MOST_HINTED))
        inside, outside = list[Names[str]](), list[Names[str]]()
        for document in (self.dataset.document(hit.doc_id) for hit in hits):
            # its groups, or their combinations, as the target names them
            groups = product(*(document.groups.get(of.name) or (UNKNOWN,) for of in self.spread.attributes))
            side = inside if group in map("*".join, groups) else outside
            side.append(parts_of(f"{document.title} {document.text}") - STOP_WORDS)
        within, without = (Counter(term for of in terms for term in of) for terms in (inside, outside))

        def log_odds(term: str) -> float:
            odds = (within[term] + 0.5) / (len(inside) - within[term] + 0.5)
            return math.log(odds) - math.log((without[term] + 0.5) / (len(outside) - without[term] + 0.5))

        terms = {term for term, n in within.items() if n >= FEWEST} - parts_of(refined_text(query, [*added]))
        return sorted(terms, key=lambda term: (-log_odds(term), term))[:HINTS]

    def least(self, target: Mapping[str, float]) -> float:
        """The least divergence that a page of whole documents can have from the target."""
        import numpy as np

        arguments = self.objective.arguments
        direction, eps = str(arguments["direction"]), float(arguments["eps"] or 0)
        return least_divergence(np.array([*target.values()]), self.k, direction, eps)

    def outcome(self, run: str, results: Mapping[str, Ended], failures: Sequence[nouns.Failure]) -> Outcome:
        from llmfair.audits.refine.measure import outcome_of

        return outcome_of(self, run, results, failures)

    def unparseable(self, result: Ended) -> int:
        return sum(not reply.read.readable for reply in result.replies) if isinstance(result, Refined) else 0

    # What names it

    def cells(self) -> dict[str, dict[str, int]]:
        return {} if self.dataset.too_many else super().cells()

    def identity(self) -> dict[str, Any]:
        target = Path(str(self.objective.arguments["target"]))
        baselines = {of.name: of.ranker.identity for of in self.baselines}
        return {
            **super().identity(),
            "engine": self.engine.identity,
            **({"reranker": self.reranker.identity} if self.reranker else {}),
            **({"baselines": {"depth": self.settings.depth, **baselines}} if baselines else {}),
            **({"target": files.text(target, files.MOST_BY_HAND)} if target.is_file() else {}),
        }

    def facts(self) -> RefineFacts:
        settings, by = self.settings, self.settings.query_text
        shipped = self.attribute.backgrounds == shipped_backgrounds(self.attribute.name)
        return RefineFacts(
            **structs.asdict(structs.replace(super().facts(), queries=len(self.topics))),
            **picked(settings, OF_SETTINGS),
            documents=len(self.dataset.documents), k=self.k, objective=str(self.objective),
            target=Path(str(self.objective.arguments["target"])).name, aimed=str(self.aimed), utility=str(self.utility),
            query_text=dict(Counter(by if query.keywords else "title" for query in self.topics)),
            baselines={of.name: of.spec for of in self.baselines} or None,
            backgrounds=None if shipped else self.attribute.backgrounds,
        )  # fmt: skip


# The design from what the user set.

SHOWN = "nDCG@{k},AWRF@{k},nDCGxAWRF@{k}"
PRESET, PRODUCTS = "paper", ",nDCGxAWRF(agg=mean-of-products)@{k}"
"""What is shown under the paper's preset, too."""
EMPIRICAL = "empirical"
SUMS_TO_ONE = 1e-3
"""How far the shares of a file may be from 1 in sum: rounding."""


def make_refine_design(settings: RefineSettings, subject: Subject = NOBODY) -> RefineDesign:
    """Loads what the settings name; the collection is indexed when it is first searched. Raises UsageError."""
    if model := next((spec for spec in settings.model if Subject(spec).ranks), ""):
        raise UsageError(
            f"-m {model}: refine asks a model for keywords, and {model} writes none.",
            f"--baseline {model} holds refinement against it",
        )
    settings = replace(settings, prompt=settings.prompt or "refine")
    dataset = Collection(load_dataset(settings.dataset, given_of(settings)))
    attribute = named_attribute(dataset, attribute_asked(settings), settings.mixed)
    check_two_groups(attribute, RefineDesign.task)
    queries = tuple(searched(query, settings.query_text) for query in selected_queries(dataset, settings))
    # of a search server as of a model's
    patience = Patience(
        settings.timeout, settings.retries, seconds(settings.max_wait), seconds(settings.outage)
    )
    fields = [*filter(None, map(str.strip, (settings.engine_fields or "").split(",")))]
    engine = engine_of(
        dataset, ANALYZERS[settings.analyzer], settings.engine, settings.engine_url, fields, patience
    )
    first_stage = FirstStage(engine, dataset, attribute, settings)
    check_target(settings.target)
    objective = parse_measure(settings.objective, Judged)
    directed = objective.definition.better in ("lower", "higher")
    if "target" not in objective.definition.params or not directed or objective.cutoff is None:
        raise UsageError(
            f"--objective {objective}: it takes a measure with a target, a better direction and a cutoff.",
            "KL@20, AWRF@20, or KL(direction=target-current)@20",
        )

    def aim(measure: Measure) -> Measure:
        """The measure with the target of the settings, where it has one and names none."""
        named, target = dict(measure.params), settings.target
        if target == EMPIRICAL or TARGET not in measure.definition.params or TARGET in named:
            return measure
        return replace(measure, params=tuple(sorted({**named, TARGET: target}.items())))

    objective = aim(objective)
    target, k = str(objective.arguments["target"]), int(objective.cutoff or 0)
    check_target(target)
    baselines, warnings = baselines_of(target, first_stage, lambda query: design.by_name(query))
    products = PRODUCTS.format(k=k) * (settings.preset_name() == PRESET)
    usual = f"{SHOWN.format(k=k)}{products},{objective}"
    gates = tuple(
        replace(gate, measure=str(aim(parse_measure(gate.measure))))
        for gate in read_gates(settings.require, [*METHODS, *(of.name for of in baselines)], Judged)
    )
    shown = tuple(dict.fromkeys(map(aim, parse_measures(settings.measures or usual, Judged))))
    further = parse_measures(",".join((usual, *(gate.measure for gate in gates))), Judged)
    reranker = None
    if settings.rerank not in ("bm25", "none"):
        reranker = scoring(f"--rerank {settings.rerank}", first_stage.ranker("--rerank", settings.rerank))
    design = RefineDesign(
        settings=settings, subject=subject, dataset=dataset, attribute=attribute, queries=queries,
        measures=tuple(dict.fromkeys((*shown, *map(aim, further)))), shown=shown, gates=gates,
        prompt=load_prompt(str(settings.prompt), "refine"), engine=engine, patience=patience,
        objective=objective, aimed=aim(parse_measure(f"AWRF@{k}")), utility=parse_measure(f"nDCG@{k}"),
        reranker=reranker, baselines=baselines, warnings=tuple(warnings),
    )  # fmt: skip
    design.program  # noqa: B018  a prompt that lacks what is asked is said before anything else
    if not design.topics:
        raise UsageError(
            f"--target {settings.target} needs judgements, and no topic has a relevant document of groups to aim at.",
            "--target uniform, or a file of shares such as --target ./shares.json",
        )
    return design


def check_target(target: str) -> None:
    """Raises UsageError for a file whose shares are not those of one page; names are checked where it is read."""
    if target in TARGETS:
        return
    if not re.fullmatch(r"[^,()]*[./][^,()]*", target):
        raise UsageError(
            f"--target {target} is unknown.{did_you_mean(target, TARGETS)}",
            f"known: {', '.join(TARGETS)}, or a file as in ./shares.json, without a comma or bracket in its name",
        )
    total = sum(read_shares(target).values())
    if abs(total - 1) > SUMS_TO_ONE:
        raise UsageError(f"{target}: the shares sum to {total:g}, not to 1.", 'write { "group": share, … }')
