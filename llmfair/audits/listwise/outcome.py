"""What a listwise audit found, as the files of its run folder: made from the rankings alone.

Nothing here depends on when or how often a chat was asked, so an interrupted and an undisturbed run, and a
replay years later, give the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from llmfair.audits.aggregates import FEWEST_RUNS, Inference, aggregate, odds_by_query, summarise
from llmfair.audits.design import RELEVANT, Outcome, relevant_lines
from llmfair.audits.listwise.design import INITIAL, ListwiseDesign
from llmfair.audits.listwise.measure import (
    HEADLINE,
    WindowShare,
    answer_counts,
    assessed,
    beyond_initial,
    contrasts,
    findings_of,
    of_answers,
    settled,
    with_family,
)
from llmfair.audits.listwise.plan import inference_of, known_reach
from llmfair.audits.listwise.results import ListwiseFacts, ListwiseResults, Usefulness
from llmfair.audits.readable import as_readable
from llmfair.audits.runs.stopping import Stopping
from llmfair.io.trec import groups_lines, qrels_lines, run_lines, scores_lines
from llmfair.metrics.base import Column, Judged, Quotient, Ratio, limit_notes, measure_all
from llmfair.metrics.utility import TREC_EVAL
from llmfair.nouns import Encounter, Failure, Measurement, Probe, Ranking
from llmfair.rankers.base import Ranker
from llmfair.rankers.strategies import Ranked, are_places
from llmfair.results import Family, ProbeCounts
from llmfair.stats.intervals import Method

Chains = Sequence[tuple[Probe, Ranked]]


def outcome_of(
    design: ListwiseDesign,
    run: str,
    chains: Chains,
    failures: Sequence[Failure],
    stopping: Mapping[str, Stopping[WindowShare]],
) -> Outcome:
    """Measures the chains that have a ranking, in the design's order; the others are counted and named."""
    judged, inference = _judged(design, chains), inference_of(design)
    columns = measure_all(design.measures, judged)
    conditions = {condition.name: judged[condition.name] for condition in design.prompts}
    useful = {condition: _usefulness(condition, judged, columns) for condition in conditions}
    findings = findings_of(
        [c for c in columns if c.condition in conditions], conditions, useful, inference, design.asked()
    )
    asked_of = ((probe.condition, result) for probe, result in chains if result.asked)
    answers = answer_counts(asked_of, design.sides, design.settings.constrain)
    for condition, finding in findings.items():
        if condition in answers:
            findings[condition] = assessed(finding, answers[condition])
    findings = as_readable(findings, answers, design.settings.max_invalid)
    for condition, one in stopping.items():
        if condition in findings:
            findings[condition] = settled(findings[condition], one.process.decision)
    contrasted = next((str(m) for m in design.measures if m.name == HEADLINE), None)
    rows, family = with_family(
        [
            *summarise(columns, inference),
            *_odds_rows(columns),
            # of prompts that were stopped by what was seen no p would hold
            *(
                replace(row, p=None) if stopping else row
                for row in contrasts(columns, conditions, [*conditions], inference)
            ),
        ],
        findings,
        contrasted,
    )
    rows += _rows_of_files(design, chains, inference)
    asked = len(design.queries) * design.settings.orders * design.settings.repeats
    ranked = Counter(probe.condition for probe, _ in chains)
    counted = {condition: len(one.counted()) for condition, one in stopping.items()}
    ended = {
        condition.name: ProbeCounts(counted.get(condition.name, asked), ranked[condition.name])
        for condition in design.prompts
    }
    results = ListwiseResults(
        **design.told(run, ended, failures, columns),
        limits=limit_notes(design.measures, judged[INITIAL]),
        intervals=_intervals(columns, inference),
        controlled=any(_runs(column) >= FEWEST_RUNS for column in columns),
        reach=known_reach(design),
        answers=answers,
        stopping={condition: one.settled("windows") for condition, one in stopping.items()},
        findings=findings,
        family=Family(family, contrasted),
        warnings=[*_warnings(chains)] if design.subject.scores_lists else [],
    )
    where = windows_of(results.design)
    return design.laid_out(results, rows, dict(_files(design, chains)), failures, where=where)


def _usefulness(
    condition: str, judged: Mapping[str, Sequence[Judged]], columns: Sequence[Column]
) -> Usefulness | None:
    """How well a condition's ranker orders by relevance; by its answers where they make no ranking."""
    if any(query.rankings for query in judged[condition]):
        return beyond_initial(judged[condition], judged[INITIAL])
    values = [
        c.values.values() for c in columns if c.condition == condition and c.measure.name == "RelevanceOdds"
    ]
    return of_answers(values[0]) if values else None


def _warnings(chains: Chains) -> Iterator[str]:
    """What may be wrong with how answers were read."""
    scores = [one.scores for _, ranked in chains for one in ranked.windows if one.scores is not None]
    if scores and all(map(are_places, scores)):
        yield (
            "the scores of every list are 0 to n - 1, each once: if these are positions, best first, as argsort gives "
            "them, return the documents themselves in that order"
        )


def _odds_rows(columns: Sequence[Column]) -> Iterator[Measurement]:
    """What each query contributes to preference odds, so that prompts and runs can be paired by query."""
    for column in columns:
        if column.measure.name == HEADLINE:
            for query_id, odds in odds_by_query(column.values).items():
                yield Measurement(
                    query_id, str(column.measure), odds, column.condition, reason="pseudo_value"
                )


def _judged(design: ListwiseDesign, chains: Chains) -> dict[str, list[Judged]]:
    """Every query's rankings by condition, orders and repeats together; the initial orders are one of their own."""
    found: dict[str, dict[str, list[Ranking]]] = {condition.name: {} for condition in design.prompts}
    encounters: dict[tuple[str, str], list[Encounter]] = {}
    beside: dict[tuple[str, str], list[Ranking]] = {}
    runs: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for probe, ranked in chains:
        query_id = probe.candidates.query.query_id
        began = runs.setdefault((probe.condition, query_id), [])
        if (probe.order, probe.repeat) not in began:  # of which other windows were counted before
            began.append((probe.order, probe.repeat))
        rankings = found[probe.condition].setdefault(query_id, [])
        encounters.setdefault((probe.condition, query_id), []).extend(ranked.encounters)
        if ranked.ranking is None:
            continue
        rankings.append(ranked.ranking)
        if not isinstance(design.ranker, Ranker):  # which forgets the order it is given
            initial = Ranking(query_id, probe.candidates.doc_ids)
            beside.setdefault((probe.condition, query_id), []).append(initial)
    # Of an incomplete run the input speaks of the same queries as the conditions beside it.
    reached = {query_id for by_query in found.values() for query_id in by_query}
    found[INITIAL] = {
        query.query_id: [Ranking(query.query_id, order.doc_ids) for order in design.orders[query.query_id]]
        for query in design.queries
        if query.query_id in reached
    }
    return {
        condition: [
            design.judged(
                design.dataset.candidates(query),
                rankings[query.query_id],
                beside.get((condition, query.query_id), ()),
                runs.get((condition, query.query_id), ()),
                None if isinstance(design.ranker, Ranker) else encounters.get((condition, query.query_id)),
            )
            for query in design.queries
            if query.query_id in rankings
        ]
        for condition, rankings in found.items()
    }


def _rows_of_files(design: ListwiseDesign, chains: Chains, inference: Inference) -> Iterator[Measurement]:
    """Utility of each run file by itself, where a condition has several: what ir_measures prints for that file."""
    if design.settings.orders * design.settings.repeats == 1:
        return
    utility = [measure for measure in design.measures if measure.definition.cite == TREC_EVAL]
    judged: dict[str, list[Judged]] = {}
    for probe, ranked in chains:
        if ranked.ranking is not None:
            file = f"{probe.condition}.o{probe.order}.r{probe.repeat}"
            judged.setdefault(file, []).append(design.judged(probe.candidates, [ranked.ranking]))
    for row in summarise(measure_all(utility, judged), inference):
        if row.query_id == "all":
            yield row


def windows_of(design: ListwiseFacts) -> str:
    """How lists were ranked, as a gate says it that no ranker could fail."""
    return "on these lists" if design.window is None else f"at window {design.window}, step {design.step}"


def _intervals(columns: Sequence[Column], inference: Inference) -> dict[str, Method]:
    """How the intervals of exposure ratios were made, by measure; those without interval are absent."""
    found: dict[str, Method] = {}
    for column in columns:
        if column.measure.definition.better != "parity" or str(column.measure) in found:
            continue
        estimate = aggregate(column.measure.aggregate, list(column.values.values()), inference)
        if estimate is not None and estimate.low is not None:
            found[str(column.measure)] = estimate.method
    return found


def _runs(column: Column) -> int:
    """How many runs a control variate has to go by."""
    ratios = (value.ratio if isinstance(value, Quotient) else value for value in column.values.values())
    return sum(len(ratio.controlled) for ratio in ratios if isinstance(ratio, Ratio))


def _files(design: ListwiseDesign, chains: Chains) -> Iterator[tuple[str, str]]:
    """What rankings can be measured from again, by file name."""
    runs: dict[str, list[Ranking]] = {}
    for probe, ranked in chains:
        if ranked.ranking is not None:
            runs.setdefault(design.file_name(probe), []).append(ranked.ranking)
    for name, rankings in runs.items():
        yield f"rankings/{name}", "".join(run_lines(rankings, tag="llmfair"))
    scored = [ranked.ranking for _, ranked in chains if ranked.ranking and ranked.ranking.scores is not None]
    if scored:
        yield "scores.tsv", "".join(scores_lines(scored))
    # Judgements of the queries that were ranked, so that other tools read our files as we do.
    reached = {probe.candidates.query.query_id for probe, _ in chains}
    qrels = {q: judged for q, judged in design.dataset.qrels.items() if q in reached}
    yield "qrels.txt", "".join(qrels_lines(qrels))
    # Documents outside the lists too: targets and the axis of groups are made of them.
    yield "groups.tsv", "".join(groups_lines({d: doc.groups for d, doc in design.dataset.documents.items()}))
    if design.groups.relevant:
        yield RELEVANT, "".join(relevant_lines(design.groups))
    yield "candidates.jsonl", "".join(design.candidates_lines())
