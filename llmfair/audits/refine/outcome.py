"""What an audit of query refinement found, as the files of its run folder: made from the loops alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import fsum

from llmfair.audits.design import Outcome
from llmfair.audits.readable import as_readable
from llmfair.audits.refine.concluding import concluded, paper_tests
from llmfair.audits.refine.design import FAIR_QR, RefineDesign
from llmfair.audits.refine.files import files_of, rankings_of
from llmfair.audits.refine.results import RefineResults, ReplyCounts, RoundMeans
from llmfair.audits.refine.trail import TrailLine, trail_of
from llmfair.audits.summary import Inference, summarise
from llmfair.metrics.base import Judged
from llmfair.metrics.columns import measure_all
from llmfair.rankers.fair_qr import Refined, Stop
from llmfair.records import Failure
from llmfair.results import Family, ProbeCounts, Reach


def outcome_of(
    design: RefineDesign, run: str, results: Mapping[str, Refined], failures: Sequence[Failure]
) -> Outcome:
    """Measures the topics whose loop ended and whose query finds anything; the others are counted and named."""
    settings, names = design.settings, [condition.name for condition in design.conditions]
    ended = [results[query.query_id] for query in design.topics if query.query_id in results]
    found = [refined for refined in ended if refined.stop is not Stop.NO_RESULT]
    observations = observed(design, found)
    columns = measure_all(design.measures, observations)
    inference = Inference(level=settings.level, seed=settings.seed)
    goals = (str(design.objective), str(design.aimed), str(design.utility))
    rows, findings, family = concluded(columns, summarise(columns, inference), goals, inference)
    answers = {FAIR_QR: _counted(ended)}
    trail = [line for refined in ended for line in trail_of(design, refined)]
    told = RefineResults(
        **design.told(run, dict.fromkeys(names, ProbeCounts(len(design.topics), len(ended))), failures, columns),
        reach=_reach(design, found),
        left_out=_left_out(design, ended),
        stops=dict(Counter(str(refined.stop) for refined in ended)),
        iterations={str(n): of for n, of in sorted(Counter(one.kept.iteration for one in found).items())},
        rounds=_rounds(trail, [refined.query.query_id for refined in found], str(design.aimed)),
        paper=paper_tests(columns),
        calls_made=answers[FAIR_QR].replies,
        answers=answers,
        findings=as_readable(findings, answers, settings.max_invalid),
        family=Family(family, str(design.objective)),
    )  # fmt: skip
    if told.status == "complete":  # the plan counted the most there can be
        told = replace(told, design=replace(told.design, calls=told.calls_made))
    documents = {doc_id for line in trail for doc_id in line.doc_ids}
    return design.laid_out(
        told,
        rows,
        files_of(design, found, trail),
        failures,
        queries=[refined.query for refined in ended],
        documents=[design.dataset.documents[doc_id] for doc_id in sorted(documents)],
        where="on these pages",
    )


def observed(design: RefineDesign, found: Sequence[Refined]) -> dict[str, list[Judged]]:
    """What measures read of every topic, by condition."""
    pages: dict[str, list[Judged]] = {condition.name: [] for condition in design.conditions}
    for refined in found:
        for condition, doc_ids in rankings_of(refined).items():
            pages[condition].append(design.pages.judged(refined.query.query_id, doc_ids))
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
