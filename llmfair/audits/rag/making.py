"""Makes an audit of a generator from what the user set.

The data's way: questions and items -> a retriever's scores -> one program per query (labels, then every distinct list
of all settings) -> dispatch -> outputs -> utility, credit, exposure -> measures -> intervals -> run folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from llmfair.asking.requests import chat_sampling
from llmfair.audits.design import NOBODY, Outcome
from llmfair.audits.gates import read_gates
from llmfair.audits.lists import selected_queries
from llmfair.audits.rag.design import (
    ATTRIBUTORS,
    BARE,
    RagDesign,
    conditions_of,
    judge_of,
    names_of,
    pooled,
    retriever_of,
    without_markers,
)
from llmfair.audits.rag.outcome import CHANGE, DISPARITY, bounded, outcome_of
from llmfair.audits.rag.settings import RagSettings
from llmfair.audits.subject import Subject, sampling_of
from llmfair.datasets.answers import AnswerDataset, load_answers
from llmfair.datasets.lamp import check_belongs, read_useful
from llmfair.errors import UsageError, did_you_mean
from llmfair.io import files
from llmfair.metrics.base import Measure
from llmfair.metrics.expected import Retrieved
from llmfair.metrics.generation import LABEL_OUTPUT
from llmfair.metrics.names import parse_measures
from llmfair.metrics.texts import UTILITIES, rating
from llmfair.nouns import Chat, Failure, Query, Text
from llmfair.prompts import Prompt, load_prompt
from llmfair.rankers.reader import Judged, Read, Ruler, by_checkpoint, by_words, check_prompt

SHOWN = "EE-D,EE-R,EU,EU-change"
MEASURED = f"{SHOWN},EE-L,EE-D(norm=fair-rag),EE-R(norm=fair-rag),EE-D(of=samples),EU(norm=ceiling)"
CONTEXT = 4096
"""Tokens that are taken for a generator's context where nobody knows it."""
LOCAL = ("hf", "vllm")
"""Whose tokenizers are on this machine."""
CITING = "rag/cited"
CITATIONS = ",CitationPrecision,CitationRecall"
CREDIT, SLOTS = "EAR(by={by}),EAE-D(by={by})", "AttributionAt(by={by})"


@dataclass(frozen=True, kw_only=True)
class RagAudit(RagDesign):
    """An audit of a generator made but not begun: what it asks, and what the answers come to."""

    def outcome(self, run: str, results: Mapping[str, Read | Judged], failures: Sequence[Failure]) -> Outcome:
        outcome = outcome_of(self, run, results, failures)
        return outcome.broken_off() if self.stops else outcome


def make_rag_design(settings: RagSettings, subject: Subject = NOBODY) -> RagAudit:
    """Loads what the settings name, and scores every item of every query. Raises UsageError."""
    if settings.useful not in ("gain", "qrels") and not Path(settings.useful).is_file():
        raise UsageError(
            f"--useful {settings.useful}: there is no such file.", "gain, qrels, or a file of labels"
        )
    dataset = load_answers(settings.dataset, settings.data, settings.useful == "qrels")
    queries = tuple(selected_queries(dataset, settings))
    citing = CITING if settings.cites else dataset.prompt
    settings = replace(settings, prompt=settings.prompt or citing)
    utility = settings.utility or dataset.utility
    if utility not in UTILITIES:
        raise UsageError(
            f"--utility {utility} is unknown.{did_you_mean(utility, UTILITIES)}",
            f"known: {', '.join(UTILITIES)}",
        )
    if utility == "mae":
        for query in queries:
            if wrong := [gold for gold in dataset.golds(query.query_id) if rating(gold) is None]:
                raise UsageError(
                    f"query '{query.query_id}': the right answer '{wrong[0]}' is no number.",
                    "--utility accuracy",
                )
    alone = settings.judging == settings.attribution
    judge = judge_of(settings.judging, (*ATTRIBUTORS, "none") if alone else ())
    if without := [query.query_id for query in queries if not dataset.golds(query.query_id)]:
        raise UsageError(
            f"query '{without[0]}' has no right answer, so that no utility can be told.",
            "give every question a gold",
        )
    prompt, uncredited = load_prompt(str(settings.prompt), "rag"), None
    by = judge.by if judge and not settings.cites else settings.attribution.partition(",")[0]
    by = "" if by == "none" else by
    citations = CITATIONS if judge and settings.cites else ""
    bare = settings.hypothesis == "bare" and not settings.cites
    if judge is not None and bare and prompt.hypothesis != BARE:
        judge, uncredited = None, LABEL_OUTPUT  # [1] or a tag: nobody is asked what follows from that
    given = _named_by(settings.measures, by) if settings.measures else ""
    shown, measured = (
        given or ((f"{names},{credit.format(by=by)}" if by else names) + citations)
        for names, credit in ((SHOWN, CREDIT), (MEASURED, f"{CREDIT},{SLOTS}"))
    )
    named = names_of(settings.retriever)
    gates = read_gates(
        settings.require,
        [one.name for one in conditions_of([*named], settings.alphas())],
        Retrieved,
    )
    asked_for = ",".join((measured, CHANGE, DISPARITY, *(gate.measure for gate in gates)))
    retrievers = {name: retriever_of(spec, dataset, queries, settings) for name, spec in named.items()}
    belong = partial(check_belongs, dataset=dataset.name)
    for spec in settings.retriever:
        if Path(spec).is_file():
            belong(Path(spec))
    dataset, scores = pooled(retrievers, dataset, queries, settings.pool)
    check_prompt(prompt, (item for query in queries for item in dataset.candidates(query).documents))
    if settings.cites:
        _check_citing(prompt, dataset, queries)
    return RagAudit(
        settings=settings,
        subject=subject,
        dataset=dataset,
        attribute=dataset.attributes[0],
        queries=queries,
        measures=bounded(parse_measures(asked_for, Retrieved), utility),
        # what is the same in every row is said once below the table
        shown=tuple(one for one in parse_measures(shown, Retrieved) if not (uncredited and _credits(one))),
        gates=gates,
        prompt=prompt,
        ruler=_ruler(settings, subject),
        utility=utility,
        gain=settings.utility or dataset.label_utility,
        retrievers={name: retriever.identity for name, retriever in retrievers.items()},
        scores=scores,
        judge=judge,
        uncredited=uncredited,
        **_known(settings, dataset, queries, subject.spec or settings.model[0]),
    )


def _known(
    settings: RagSettings, dataset: AnswerDataset, queries: Sequence[Query], model: str
) -> dict[str, Any]:
    """The useful items by query, where judgements or a file name them, and what tells them. Raises UsageError."""
    if settings.useful == "gain":
        return {}
    items = {query.query_id: dataset.candidates(query) for query in queries}
    if settings.useful == "qrels":
        known = {
            query_id: frozenset(doc_id for doc_id, grade in of.relevance.items() if grade >= 1)
            for query_id, of in items.items()
        }
        return {"known": known, "labels": "qrels"}
    path = Path(settings.useful)
    check_belongs(path, dataset.name, model)
    every = {query.query_id: dataset.candidates(query).doc_ids for query in dataset.queries}
    told = read_useful(path, every)
    known = {
        query_id: frozenset(doc_id for doc_id, useful in told.get(query_id, {}).items() if useful)
        for query_id in items
    }
    return {"known": known, "labels": files.sha256(path)}


def _named_by(measures: str, by: str) -> str:
    """The measures, those of credit with the way it is told. Raises UsageError for one that is told another way."""
    named = []
    for one in parse_measures(measures, Retrieved):
        if _credits(one):
            told = one.arguments["by"] or by
            if told != by:
                raise UsageError(
                    f"--measures {one}: answers are credited by {by or 'nobody'} here.",
                    f"{one.name} without by, or another --attribution",
                )
            one = replace(one, params=tuple(sorted({**dict(one.params), "by": by}.items()))) if by else one
        named.append(str(one))
    return ",".join(named)


def _credits(measure: Measure) -> bool:
    return "by" in measure.definition.params


def _ruler(settings: RagSettings, subject: Subject) -> Ruler:
    """In the generator's own tokens where it runs on this machine, else in words. Raises as `by_checkpoint` does."""
    # whoever only looks names nobody; of a run, an adapter may stand behind the model
    spec = subject.spec.partition(" + ")[0] or settings.model[0]
    prefix, _, name = spec.partition(":")
    if prefix not in LOCAL or subject.given is not None:
        return by_words(settings.context or CONTEXT)
    answer = chat_sampling(Chat((), Text()), sampling_of(settings)).max_tokens
    return by_checkpoint(name, settings.context, answer)


def _check_citing(prompt: Prompt, dataset: AnswerDataset, queries: Sequence[Query]) -> None:
    """Raises UsageError where an output cannot name items by number."""
    if "k" not in prompt.of_passage:
        raise UsageError(
            f"--attribution cited: prompt {prompt.file} numbers no items, so that no answer can name them.",
            'passage = "[{k}] {item}", or --attribution overlap',
        )
    for query in queries:
        if marked := [
            gold for gold in dataset.golds(query.query_id) if without_markers(gold) != gold.strip()
        ]:
            raise UsageError(
                f"--attribution cited: the right answer '{marked[0]}' of query '{query.query_id}' holds what would be "
                "cut as the number of an item.",
                "--attribution overlap",
            )
