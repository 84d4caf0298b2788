"""What an audit of query refinement found, as the files of its run folder: made from the loops alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import fsum

from llmfair.audits.design import Outcome
from llmfair.audits.readable import as_readable
from llmfair.audits.refine.concluding import concluded, paper_tests
from llmfair.audits.refine.design import FAIR_QR, TARGET_KNOWN, Ended, RefineDesign, ordering
from llmfair.audits.refine.files import Reranked, files_of, rankings_of
from llmfair.audits.refine.results import RefineResults, ReplyCounts, RoundMeans
from llmfair.audits.refine.trail import TrailLine, trail_of
from llmfair.audits.summary import Inference, summarise
from llmfair.metrics.base import Judged
from llmfair.metrics.columns import measure_all
from llmfair.nouns import Candidates, Failure
from llmfair.rankers.base import remarks
from llmfair.rankers.fair_qr import Refined, Stop
from llmfair.results import Family, ProbeCounts, Reach


def outcome_of(
    design: RefineDesign, run: str, results: Mapping[str, Ended], failures: Sequence[Failure]
) -> Outcome:
    """Measures the topics whose loop ended and whose query finds anything; the others are counted and named."""
    settings = design.settings
    loops = (results.get(query.query_id) for query in design.topics)
    ended = [loop for loop in loops if isinstance(loop, Refined)]
    found = [refined for refined in ended if refined.stop is not Stop.NO_RESULT]
    reranked = _reranked(design, found, results)
    observations = observed(design, found, reranked)
    columns = measure_all(design.measures, observations)
    inference = Inference(level=settings.level, seed=settings.seed)
    goals = (str(design.objective), str(design.aimed), str(design.utility))
    rows, findings, family = concluded(columns, summarise(columns, inference), goals, inference)
    answers = {FAIR_QR: _counted(ended)}
    trail = [line for refined in ended for line in trail_of(design, refined)]
    told = RefineResults(
        **design.told(run, _chains(design, len(ended), results), failures, columns),
        reach=_reach(design, found),
        left_out=_left_out(design, ended),
        stops=dict(Counter(str(refined.stop) for refined in ended)),
        iterations={str(n): of for n, of in sorted(Counter(one.kept.iteration for one in found).items())},
        rounds=_rounds(trail, [refined.query.query_id for refined in found], str(design.aimed)),
        paper=paper_tests(columns),
        remarks=[
            f"{one.name}: {said}"
            for one in design.baselines
            for said in remarks(one.ranker, [*reranked[one.name].values()])
        ] or None,
        calls_made=answers[FAIR_QR].replies,
        answers=answers,
        findings=as_readable(findings, answers, settings.max_invalid),
        family=Family(family, str(design.objective)),
    )  # fmt: skip
    if told.status == "complete":  # the plan counted the most there can be
        told = replace(told, design=replace(told.design, calls=told.calls_made))
    documents = {doc_id for line in trail for doc_id in line.doc_ids}
    documents |= {
        doc_id
        for of in reranked.values()
        for ordered in of.values()
        for doc_id in ordered.doc_ids[: design.k]
    }
    return design.laid_out(
        told,
        rows,
        files_of(design, found, reranked, trail),
        failures,
        queries=[refined.query for refined in ended],
        documents=[design.dataset.documents[doc_id] for doc_id in sorted(documents)],
        where="on these pages",
    )


def _chains(design: RefineDesign, ended: int, results: Mapping[str, Ended]) -> dict[str, ProbeCounts]:
    """How many topics each condition was to have, and has."""
    asked = len(design.topics)
    of_loops = dict.fromkeys(TARGET_KNOWN, ProbeCounts(asked, ended))
    of_baselines = {
        one.name: ProbeCounts(asked, sum(ordering(query, one.name) in results for query in design.topics))
        for one in design.baselines
    }
    return of_loops | of_baselines


def _reranked(design: RefineDesign, found: Sequence[Refined], results: Mapping[str, Ended]) -> Reranked:
    """Of the topics that are measured, by baseline and query."""
    orders: dict[str, dict[str, Candidates]] = {one.name: {} for one in design.baselines}
    for name, of_name in orders.items():
        for refined in found:
            ordered = results.get(ordering(refined.query, name))
            if isinstance(ordered, Candidates):
                of_name[refined.query.query_id] = ordered
    return orders


def observed(design: RefineDesign, found: Sequence[Refined], reranked: Reranked) -> dict[str, list[Judged]]:
    """What measures read of every topic's page, by condition."""
    pages: dict[str, list[Judged]] = {condition.name: [] for condition in design.conditions}
    for refined in found:
        for condition, doc_ids in rankings_of(refined).items():
            pages[condition].append(design.pages.judged(refined.query.query_id, doc_ids))
    for condition, of_queries in reranked.items():
        for query_id, ordered in of_queries.items():
            pages[condition].append(design.pages.judged(query_id, ordered.doc_ids[: design.k]))
    return pages


def _reach(design: RefineDesign, found: Sequence[Refined]) -> dict[str, Reach]:
    """The mean of the least divergence that pages of whole documents can have."""
    targets = [design.topic(refined.query).target for refined in found]
    if not targets or design.objective.name != "KL":
        return {}
    return {str(design.objective): Reach(low=fsum(map(design.least, targets)) / len(targets))}


def _left_out(design: RefineDesign, ended: Sequence[Refined]) -> dict[str, Sequence[str]]:
    without = [refined.query.query_id for refined in ended if refined.stop is Stop.NO_RESULT]
    return {**design.left_out, **({str(Stop.NO_RESULT): without} if without else {})}


def _counted(ended: Sequence[Refined]) -> ReplyCounts:
    rounds = [one for refined in ended for one in refined.rounds]
    replies = [reply for one in rounds for reply in one.replies]
    return ReplyCounts(
        replies=len(replies),
        unparseable=sum(not reply.read.readable for reply in replies),
        classes=dict(sorted(Counter(str(reply.read.reply_class) for reply in replies).items())),
        asked_again=sum(len(one.replies) > 1 for one in rounds),
    )


def _rounds(trail: Sequence[TrailLine], queries: Sequence[str], aimed: str) -> list[RoundMeans]:
    """Means over topics after 0, 1, … rounds, each topic with the page that it then had."""
    of_queries = {query_id: [line for line in trail if line.query_id == query_id] for query_id in queries}
    most = max((line.iteration for line in trail), default=-1)
    means = []
    for iteration in range(most + 1):
        kept = [
            next(line for line in reversed(lines) if line.accepted and line.iteration <= iteration)
            for lines in of_queries.values()
        ]
        means.append(
            RoundMeans(
                iteration=iteration,
                asked=sum(line.iteration == iteration for lines in of_queries.values() for line in lines),
                objective=_mean([line.objective for line in kept]),
                aimed=_mean([line.measures[aimed] for line in kept]),
            )
        )
    return means


def _mean(values: Sequence[float | None]) -> float | None:
    held = [value for value in values if value is not None]
    return fsum(held) / len(held) if held else None
