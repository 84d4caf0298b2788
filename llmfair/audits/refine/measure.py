"""The files of a run folder of `llmfair refine`, and what measures read of them again.

All figures follow from `rankings/` (the pages), `qrels.txt` and `groups.tsv`, which names the documents that are
ranked, the relevant ones, and one of every other group, so that it has all groups of the collection. The original
query's ranking goes on beyond its page, as deep as baselines look, and `scores.tsv` has its BM25 scores: of both
`llmfair rerank` makes the rankings of the baselines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby, product
from math import fsum
from pathlib import Path

import numpy as np
from msgspec import structs

from llmfair.audits.aggregates import ALL, Inference, row_of, summarise, value_of
from llmfair.audits.comparing import ComparedRun, changes_by_query
from llmfair.audits.design import RELEVANT, Outcome, read_relevant, relevant_lines
from llmfair.audits.documents import ChangeRow
from llmfair.audits.kind import results_of
from llmfair.audits.lists import asked_of_lists
from llmfair.audits.measuring import Measuring
from llmfair.audits.refine.design import (
    FAIR_QR,
    GREEDY,
    NAME_ALONE,
    REFINED,
    TARGET_KNOWN,
    Ended,
    Pages,
    RefineDesign,
    ordering,
)
from llmfair.audits.refine.results import PaperTest, RefineFinding, RefineResults, ReplyCounts, RoundMeans
from llmfair.audits.refine.settings import BASELINE
from llmfair.audits.run_files import SCORES, Announce
from llmfair.audits.scoring import RemeasuredRun, ScoreFacts, facts_of, measures_of
from llmfair.datasets.attributes import read_attributes, shipped_attributes, shipped_backgrounds
from llmfair.datasets.judgements import of_files
from llmfair.errors import UsageError
from llmfair.io.files import AGAIN, encode, read_lines
from llmfair.io.trec import groups_lines, qrels_lines, read_run, run_lines, scores_lines
from llmfair.metrics.base import Column, Groups, Judged, Measure, measure_all
from llmfair.metrics.names import parse_measure
from llmfair.metrics.targets import UNKNOWN
from llmfair.nouns import Candidates, Conclusion, Failure, Key, Measurement, Ranking, of_each_kind
from llmfair.rankers.base import remarks
from llmfair.rankers.fair_qr import ROUNDING, Refined, Stop, refined_text
from llmfair.results import Count, Family, ProbeCounts, Reach, as_readable
from llmfair.rundir import RunDir
from llmfair.settings import ScoreSettings
from llmfair.stats.paired import change_by_query, paired_t
from llmfair.stats.power import FEWEST_TESTED
from llmfair.stats.significance import holm
from llmfair.stats.tradeoff import STARRED

# The trail: how each query was refined, round by round, as lines of JSON and as text.


TRAIL = "trail.jsonl"
WIDEST = 60
"""Characters of words that figures stand in line behind: those of longer queries, up to 200 words, follow them."""


@dataclass(frozen=True)
class TrailReply:
    """What the model said, and how it was read."""

    text: str
    reply_class: str
    parsed_by: str
    prompt_tokens: Count | None
    completion_tokens: Count | None


@dataclass(frozen=True)
class TrailLine:
    """A round of one query, 0 the original query; `new` are the words of this round, `added` all beside the query.

    `current` and `target`: shares by group; `n`: documents found. `attained`: the objective at which the loop is
    content, of KL the least that a page of whole documents can have.
    `stop`: why the loop ended, in its last line. Measures are null without a page.
    """

    query_id: str
    attribute: str
    iteration: Count
    query: str
    original: str
    added: Sequence[str]
    new: Sequence[str]
    subgroup: str | None
    target: Mapping[str, float]
    current: Mapping[str, float]
    objective: float | None
    attained: float | None
    measures: Mapping[str, float | None]
    accepted: bool
    stop: str | None
    n: Count
    doc_ids: Sequence[str]
    final: Sequence[str]
    replies: Sequence[TrailReply]


def trail_of(design: RefineDesign, refined: Refined) -> Iterator[TrailLine]:
    """The rounds of a topic."""
    query, topic = refined.query, design.topic(refined.query)
    for one in refined.rounds:
        last = one is refined.rounds[-1]
        doc_ids = one.page.doc_ids
        yield TrailLine(
            query_id=query.query_id,
            attribute=design.attribute.name,
            iteration=one.iteration,
            query=refined_text(query, one.added),
            original=query.text,
            added=one.added,
            new=one.new,
            subgroup=one.subgroup,
            target=topic.target,
            current=one.page.shares if doc_ids else {},
            objective=one.page.objective,
            attained=topic.stopping.attained,
            measures={
                str(measure): design.pages.value(measure, query.query_id, doc_ids) if doc_ids else None
                for measure in (design.aimed, design.utility)
            },
            accepted=one.accepted,
            stop=str(refined.stop) if last else None,
            n=len(doc_ids),
            doc_ids=doc_ids,
            final=refined.final if last else (),
            replies=[
                TrailReply(
                    reply.text,
                    str(reply.read.reply_class),
                    reply.read.parsed_by,
                    reply.prompt_tokens,
                    reply.completion_tokens,
                )
                for reply in one.replies
            ],
        )


def read_trail(folder: Path, query_id: str | None = None) -> list[TrailLine]:
    """The trail of a run folder, or of one of its queries. Raises UsageError."""
    path = folder / TRAIL
    lines = [line for line in read_lines(path, TrailLine) if query_id in (None, line.query_id)]
    if not lines and query_id is not None:
        raise UsageError(f"{path} has no query '{query_id}'.", "without --query all are shown")
    return lines


def trail_text(run: RunDir, query_id: str | None) -> Iterator[str]:
    """The story of each query: added words behind a plus, shares of the group in question, what was kept."""
    lines, objective = read_trail(run.path, query_id), results_of(run).design.objective
    for query_id, of_query in groupby(lines, key=lambda line: line.query_id):
        rounds = list(of_query)
        first, last = rounds[0], rounds[-1]
        shares = "  ".join(f"{name} {share:.2f}" for name, share in first.target.items() if share > 0)
        yield f"query {query_id}  {first.attribute}, target: {shares}"
        words = [first.query, *(f"… + {' '.join(line.new) or 'nothing'}" for line in rounds[1:])]
        width = min(max(map(len, words)), WIDEST)
        for line, searched in zip(rounds, words, strict=True):
            yield f"  {line.iteration}  {searched:{width}}  {_became(line, objective)}"
        kept = next(line for line in reversed(rounds) if line.accepted)
        yield f"  stopped after round {last.iteration}: {last.stop}; kept: round {kept.iteration}"
        yield ""


def _became(line: TrailLine, objective: str) -> str:
    """For which group, how the page stands, and what became of the round."""
    parts = [f"for {line.subgroup}:"] * (line.subgroup is not None)
    if line.doc_ids:
        named = (
            [line.subgroup] if line.subgroup else [name for name, share in line.current.items() if share > 0]
        )
        values = {objective: line.objective, **line.measures}
        parts += [f"{name} {line.current[name]:.2f}" for name in named]
        parts += [f"{name} {value:.3f}" for name, value in values.items() if value is not None]
    classes = ", ".join(reply.reply_class for reply in line.replies)
    if line.iteration:
        parts.append("kept" if line.accepted else f"dropped ({line.stop or 'no page'}; reply: {classes})")
    return "  ".join(parts)


# The pages as files.


QRELS, GROUPS, TAG = "qrels.txt", "groups.tsv", "llmfair"
Reranked = Mapping[str, Mapping[str, Candidates]]
"""What baselines make of what queries find, best first, by baseline and query."""


def rankings_of(refined: Refined) -> dict[str, tuple[str, ...]]:
    """The page of a topic under every condition."""
    return {
        BASELINE: refined.rounds[0].page.doc_ids,
        REFINED: refined.kept.page.doc_ids,
        FAIR_QR: refined.final,
    }


def files_of(
    design: RefineDesign, topics: Sequence[Refined], reranked: Reranked, trail: Sequence[TrailLine]
) -> dict[str, str]:
    """Every file by name."""
    first_stage = [_ranking(design.first_stage(refined.query)) for refined in topics]
    pages = {
        condition: [Ranking(one.query.query_id, rankings_of(one)[condition]) for one in topics]
        for condition in (REFINED, FAIR_QR)
    }
    other = [_ranking(of) for orders in reranked.values() for of in orders.values()]
    tags = {one.name: f"{TAG}+{''.join(one.spec.split())}" for one in design.baselines}
    runs = {
        BASELINE: run_lines(first_stage, TAG),
        **{name: run_lines(of, TAG) for name, of in pages.items()},
        **{name: run_lines(map(_ranking, of.values()), tags[name]) for name, of in reranked.items()},
    }
    reached = {refined.query.query_id for refined in topics}
    qrels = {query_id: judged for query_id, judged in design.dataset.qrels.items() if query_id in reached}
    counts = {query_id: of for query_id, of in design.groups.relevant.items() if query_id in reached}
    texts = {
        "original": (one.query.text for one in topics),
        "refined": (refined_text(one.query, one.kept.added) for one in topics),
    }
    return {
        TRAIL: "".join(encode(asdict(line)).decode() + "\n" for line in trail),
        **{
            f"queries/{name}.tsv": "".join(
                f"{one.query.query_id}\t{text}\n" for one, text in zip(topics, of, strict=True)
            )
            for name, of in texts.items()
        },
        **({QRELS: "".join(qrels_lines(qrels))} if any(qrels.values()) else {}),
        **({RELEVANT: "".join(relevant_lines(replace(design.groups, relevant=counts)))} if counts else {}),
        GROUPS: "".join(groups_lines(_groups(design, [*first_stage, *pages[REFINED], *other], qrels))),
        SCORES: "".join(scores_lines(first_stage)),
        **{f"rankings/{name}.run": "".join(lines) for name, lines in runs.items()},
    }


def _ranking(candidates: Candidates) -> Ranking:
    return Ranking(candidates.query.query_id, candidates.doc_ids, candidates.scores)


def _groups(
    design: RefineDesign, rankings: Sequence[Ranking], qrels: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, tuple[str, ...]]]:
    """By document and attribute; a document of unknown group says so, or nobody would know that it is listed."""
    documents, attribute = design.dataset.documents, design.attribute.name
    named = {doc_id for ranking in rankings for doc_id in ranking.doc_ids}
    if not design.groups.relevant:  # which else has what is known of relevant documents
        grades = (grade for judged in qrels.values() for grade in judged.items())
        named |= {doc_id for doc_id, grade in grades if grade >= 1 and doc_id in documents}
    groups = set[tuple[str, str]]()
    for document in sorted(of_each_kind(documents), key=lambda document: document.doc_id):
        further = {(name, group) for name, of in document.groups.items() for group in of} - groups
        if further:  # the first document of a group
            groups |= further
            named.add(document.doc_id)
    return {
        doc_id: {**documents[doc_id].groups, attribute: documents[doc_id].groups.get(attribute) or (UNKNOWN,)}
        for doc_id in sorted(named)
    }


def read_observations(run: RunDir) -> dict[str, list[Judged]]:
    """What measures read, by condition, of a run folder's files. Raises UsageError naming file and line."""
    results: RefineResults = results_of(run)
    design = results.design
    pages: dict[str, list[Judged]] = {condition: [] for condition in design.conditions}
    if not results.iterations:  # no query has a page
        return pages
    asked = asked_of_lists(run, run.read_manifest().settings)
    backgrounds = (
        shipped_backgrounds(asked.attribute.name) if design.backgrounds is None else tuple(design.backgrounds)
    )
    attribute = replace(asked.attribute, mixed=asked.mixed, backgrounds=backgrounds)
    known = {**read_attributes(shipped_attributes()), attribute.name: attribute}
    qrels = run.path / QRELS  # of a run without judgements there is none
    judgements = of_files(qrels if qrels.is_file() else None, run.path / GROUPS, known, undeclared=True)
    attributes = {one.name: one for one in judgements.attributes} | {attribute.name: attribute}
    stand_ins, relevant = read_relevant(run.path / RELEVANT)
    groups = Groups(attribute.name, attributes, {**judgements.documents, **stand_ins}, relevant)
    judging = Pages(attribute, groups, judgements.qrels)
    for condition, of in pages.items():
        if results.chains[condition].ranked:
            file = read_run(run.path / "rankings" / f"{condition}.run", hint=AGAIN)
            of += [
                judging.judged(query_id, ranking.doc_ids[: design.k])
                for query_id, ranking in file.rankings.items()
            ]
    return pages


# What is concluded of refinement: whether pages come nearer their target, whether nearer than without a model, and what
# that costs in relevance. Paired by topic: fair-qr less the original query, and less each control, which aims at the
# same target and asks no model, in every measure with a direction. A change is certain where its whole interval lies on
# one side of 0, flipped signs agree, and at least six topics changed: the loop keeps what comes nearer by chance, and
# few or skewed changes mislead an interval. Nearer: the objective and AWRF are certainly better than the original
# query's, and the objective than any control's, AWRF being no worse; no nearer: one of them is certainly worse. p by
# flipped signs; adjusted (Holm) over all that a run tests.


SYMBOLS = {BASELINE: "*", "sbert": "◇", "dlf-like": "♣", "deltr": "§", "fair-star": "†", "mmr": "‡"}
"""The signs of the paper's table, of the methods that it holds refinement against."""
CONCLUDED = {True: Conclusion.WITHIN, False: Conclusion.OUTSIDE, None: Conclusion.INCONCLUSIVE}
"""By whether pages are nearer, and nearer than the controls' are."""
FEW_CHANGED = "few_changed"
Goals = tuple[str, str, str]
"""The names of the objective, of what nearness is told by too, and of what refinement costs."""


@dataclass(frozen=True)
class Asked:
    """What conclusions are held against: the loss of relevance that counts as none, and the controls."""

    margin: float
    controls: Sequence[str]


Values = Mapping[str, Mapping[str, float]]
"""Queries' own values of a measure by method; those without one are absent."""


def compared(method: str) -> str:
    """The condition of rows that hold fair-qr against a method."""
    return f"{FAIR_QR} vs {method}"


def held_against(conditions: Iterable[str]) -> list[str]:
    """The methods that fair-qr is held against: all but its own two pages."""
    return [name for name in dict.fromkeys(conditions) if name not in (REFINED, FAIR_QR)]


def controls_of(baselines: Mapping[str, str] | None) -> list[str]:
    """The baselines, by name and spec, that show what aiming at the target gives without a model."""
    return [
        name
        for name, spec in (baselines or {}).items()
        if spec == NAME_ALONE or spec.partition(":")[0] == GREEDY
    ]


@dataclass(frozen=True)
class Contrast:
    """fair-qr less another method in one measure: the row of all topics, and how many of them differ."""

    row: Measurement
    changed: int


Contrasts = Mapping[tuple[str, str], Contrast]
"""By measure and method."""


def concluded(
    columns: Sequence[Column], rows: Sequence[Measurement], goals: Goals, asked: Asked, inference: Inference
) -> tuple[list[Measurement], dict[str, RefineFinding], int]:
    """The rows with those of the changes and the conclusion, what is concluded, and how many p were adjusted."""
    methods = held_against(column.condition for column in columns)
    changes: list[Measurement] = []
    contrasts: dict[tuple[str, str], Contrast] = {}
    for measure, values in _directed(columns).items():
        for method in methods if FAIR_QR in values else ():
            if method in values:
                pairs, name = _pairs(values, FAIR_QR, method), str(measure)
                changes += [
                    Measurement(query_id, name, after - before, compared(method))
                    for query_id, (before, after) in pairs.items()
                ]
                contrasts[name, method] = contrast(name, method, [*pairs.values()], inference)
    adjusted = holm([each.row.p for each in contrasts.values()])
    contrasts = {
        place: replace(each, row=replace(each.row, p_adjusted=p))
        for (place, each), p in zip(contrasts.items(), adjusted, strict=True)
    }
    finding = finding_of(goals, contrasts, asked, inference.level)
    of_all = [
        replace(each.row, conclusion=finding.conclusion) if place == (goals[0], BASELINE) else each.row
        for place, each in contrasts.items()
    ]
    family = sum(p is not None for p in adjusted)
    return [*rows, *changes, *of_all], {FAIR_QR: finding}, family


def _directed(columns: Sequence[Column]) -> dict[Measure, dict[str, dict[str, float]]]:
    """The values of the measures of single queries of which more or less is better."""
    values: dict[Measure, dict[str, dict[str, float]]] = {}
    for column in columns:
        measure = column.measure
        if not column.group and measure.definition.better in ("higher", "lower") and not measure.of_all:
            values.setdefault(measure, {})[column.condition] = {
                query_id: figure
                for query_id, value in column.values.items()
                if (figure := value_of(value)[0]) is not None
            }
    return values


def _pairs(values: Values, method: str, against: str) -> dict[str, tuple[float, float]]:
    """The queries' values of the second method and of the first, where both have any."""
    before, after = values.get(against, {}), values.get(method, {})
    return {
        query_id: (before[query_id], after[query_id]) for query_id in sorted(before.keys() & after.keys())
    }


def contrast(
    measure: str, method: str, pairs: Sequence[tuple[float, float]], inference: Inference
) -> Contrast:
    """Of the queries' values by the method and by fair-qr."""
    if not pairs:
        return Contrast(Measurement(ALL, measure, None, compared(method), n=0, reason="no_common_query"), 0)
    before, after = np.array(pairs).T
    change = change_by_query(before, after, False, inference.level, np.random.default_rng(inference.seed))
    row = replace(row_of(measure, compared(method), change.estimate), p=change.p)
    return Contrast(row, int(np.count_nonzero(np.abs(after - before) > ROUNDING)))


def paper_tests(columns: Sequence[Column]) -> list[PaperTest]:
    """Both pages of refinement against each method, in every measure with a direction [Chen & Fang 2025, Table 1]."""
    methods = held_against(column.condition for column in columns)
    tests = []
    for measure, values in _directed(columns).items():
        better = 1 if measure.definition.better == "higher" else -1
        for method, against in product((REFINED, FAIR_QR), methods):
            changes = [after - before for before, after in _pairs(values, method, against).values()]
            if not changes:
                continue
            difference, tested = fsum(changes) / len(changes), paired_t(changes) if any(changes) else None
            p = None if tested is None else tested[1]
            signed = p is not None and p < STARRED and better * difference > 0
            tests.append(
                PaperTest(method=method, against=against, measure=str(measure), queries=len(changes),
                          difference=difference, p=p, symbol=SYMBOLS.get(against, "") if signed else "")
            )  # fmt: skip
    return tests


def finding_of(goals: Goals, contrasts: Contrasts, asked: Asked, level: float) -> RefineFinding:
    """What the changes from the original query and from the controls say."""
    objective, utility = contrasts.get((goals[0], BASELINE)), contrasts.get((goals[2], BASELINE))
    finding = RefineFinding(
        measure=goals[0],
        aimed=goals[1],
        utility=goals[2],
        conclusion=Conclusion.NOT_ASSESSABLE,
        reason="no_query_measured" if objective is None else objective.row.reason,
        margin=asked.margin,
    )
    if objective is None or objective.row.low is None:
        return finding
    of = dict.fromkeys(goals[:2])
    nearer = {name: contrasts[name, BASELINE] for name in of if (name, BASELINE) in contrasts}
    beyond = {
        by: {name: contrasts[name, by] for name in of if (name, by) in contrasts} for by in asked.controls
    }
    claims = (
        _all([_better(each, level) for each in nearer.values()]),
        _all([_beyond(by, goals, level) for by in beyond.values()]),
    )
    conclusion, changed = CONCLUDED[_all(claims)], min(each.changed for each in nearer.values())
    few = conclusion is Conclusion.INCONCLUSIVE and changed < FEWEST_TESTED
    return structs.replace(
        finding,
        conclusion=conclusion,
        reason=FEW_CHANGED if few else None,
        changed=changed,
        nearer=claims[0],
        beyond=claims[1],
        control=_nearest({by: of[goals[0]] for by, of in beyond.items() if goals[0] in of}),
        loss=None if utility is None else _loss(utility, asked.margin, level),
        p=objective.row.p,
        p_adjusted=objective.row.p_adjusted,
    )


def _all(claims: Sequence[bool | None]) -> bool | None:
    """Whether all hold; False where one certainly does not."""
    return True if all(claims) else False if False in claims else None


def _certain(contrast: Contrast, level: float) -> int:
    """The sign of a change that interval and flipped signs agree on; 0 where it is open."""
    row = contrast.row
    if row.low is None or row.high is None or row.p is None:
        return 0
    if contrast.changed < FEWEST_TESTED or row.p > 1 - level + ROUNDING:
        return 0
    return (row.low > 0) - (row.high < 0)


def _better(contrast: Contrast, level: float) -> bool | None:
    """Whether the change is for the better for certain, or for the worse; None where it is open."""
    better = 1 if parse_measure(contrast.row.measure).definition.better == "higher" else -1
    return {1: True, -1: False, 0: None}[better * _certain(contrast, level)]


def _beyond(contrasts: Mapping[str, Contrast], goals: Goals, level: float) -> bool | None:
    """Whether fair-qr is nearer than a control: in the objective for certain, and in AWRF not farther for certain.

    A control that orders pages by the target is nearly as near as can be in AWRF, which no keyword orders.
    """
    claims = {name: _better(each, level) for name, each in contrasts.items()}
    return _all([claims.get(goals[0]), claims.get(goals[1]) is not False])


def _loss(contrast: Contrast, margin: float, level: float) -> bool | None:
    """Whether relevance is lost for certain; False where at most the margin is, None where that is open."""
    if _certain(contrast, level) < 0:
        return True
    low = contrast.row.low
    return False if low is not None and low >= -margin and contrast.changed >= FEWEST_TESTED else None


def _nearest(contrasts: Mapping[str, Contrast]) -> str | None:
    """The control that comes nearest: fair-qr is ahead of it by least."""

    def ahead(control: str) -> float:
        row = contrasts[control].row
        value = row.value or 0.0
        return value if parse_measure(row.measure).definition.better == "higher" else -value

    return min(contrasts, key=ahead, default=None)


def outcome_of(
    design: RefineDesign, run: str, results: Mapping[str, Ended], failures: Sequence[Failure]
) -> Outcome:
    """Measures the topics whose loop ended and whose query finds anything; the others are counted and named."""
    settings = design.settings
    loops = (results.get(query.query_id) for query in design.topics)
    ended = [loop for loop in loops if isinstance(loop, Refined)]
    topics = [refined for refined in ended if refined.stop is not Stop.NO_RESULT]
    without = [refined.query.query_id for refined in ended if refined.stop is Stop.NO_RESULT]
    reranked: Reranked = {
        one.name: {
            refined.query.query_id: ordered
            for refined in topics
            if isinstance(ordered := results.get(ordering(refined.query, one.name)), Candidates)
        }
        for one in design.baselines
    }
    chains = {
        condition.name: len(ended)
        if condition.name in TARGET_KNOWN
        else sum(ordering(query, condition.name) in results for query in design.topics)
        for condition in design.conditions
    }
    observations = observed(design, topics, reranked)
    columns = measure_all(design.measures, observations)
    inference = Inference(level=settings.level, seed=settings.seed)
    goals = (str(design.objective), str(design.aimed), str(design.utility))
    asked = Asked(settings.margin, controls_of({one.name: one.spec for one in design.baselines}))
    rows, findings, family = concluded(columns, summarise(columns, inference), goals, asked, inference)
    answers = {FAIR_QR: _counted(ended)}
    trail = [line for refined in ended for line in trail_of(design, refined)]
    # what pages of whole documents can have
    targets = [design.targets[refined.query.query_id] for refined in topics]
    least = _mean([design.least(of) for of in targets] if design.objective.name == "KL" else [])
    counts = {name: ProbeCounts(len(design.topics), n) for name, n in chains.items()}
    told = RefineResults(
        **design.told(run, counts, failures, columns),
        reach={} if least is None else {str(design.objective): Reach(low=least)},
        left_out={**design.left_out, **({str(Stop.NO_RESULT): without} if without else {})},
        stops=dict(Counter(str(refined.stop) for refined in ended)),
        iterations={str(n): of for n, of in sorted(Counter(one.kept.iteration for one in topics).items())},
        rounds=_rounds(trail, [refined.query.query_id for refined in topics], str(design.aimed)),
        paper=paper_tests(columns),
        remarks=[
            f"{one.name}: {remark}"
            for one in design.baselines
            for remark in remarks(one.ranker, [*reranked[one.name].values()])
        ] or None,
        calls_made=answers[FAIR_QR].replies,
        answers=answers,
        findings=as_readable(findings, answers, settings.max_invalid),
        family=Family(family, None),
    )  # fmt: skip
    if told.status == "complete":  # the plan counted the most there can be
        told = structs.replace(told, design=structs.replace(told.design, calls=told.calls_made))
    documents = {doc_id for line in trail for doc_id in line.doc_ids}
    documents |= {doc_id for pages in observations.values() for page in pages for doc_id in page.doc_ids}
    return design.laid_out(
        told,
        rows,
        files_of(design, topics, reranked, trail),
        failures,
        queries=[refined.query for refined in ended],
        documents=[design.dataset.documents[doc_id] for doc_id in sorted(documents)],
        where="on these pages",
    )


def observed(design: RefineDesign, topics: Sequence[Refined], reranked: Reranked) -> dict[str, list[Judged]]:
    """What measures read of every topic's page, by condition."""
    orders: dict[str, dict[str, tuple[str, ...]]] = {
        condition: {refined.query.query_id: rankings_of(refined)[condition] for refined in topics}
        for condition in TARGET_KNOWN
    }
    for condition, of_queries in reranked.items():
        orders[condition] = {query_id: of.doc_ids[: design.k] for query_id, of in of_queries.items()}
    return {
        condition: [design.pages.judged(query_id, doc_ids) for query_id, doc_ids in of.items()]
        for condition, of in orders.items()
    }


def _counted(ended: Sequence[Refined]) -> ReplyCounts:
    rounds = [one for refined in ended for one in refined.rounds]
    read = [reply.read for one in rounds for reply in one.replies]
    return ReplyCounts(
        replies=len(read),
        unparseable=sum(not reply.readable for reply in read),
        classes=dict(sorted(Counter(str(reply.reply_class) for reply in read).items())),
        asked_again=sum(len(one.replies) > 1 for one in rounds),
    )


def _rounds(trail: Sequence[TrailLine], queries: Sequence[str], aimed: str) -> list[RoundMeans]:
    """Means over topics after 0, 1, … rounds, each topic with the page that it then had."""
    of_queries = [[line for line in trail if line.query_id == query_id] for query_id in queries]
    means = []
    for iteration in range(max((line.iteration + 1 for line in trail), default=0)):
        pages = [
            next(line for line in reversed(lines) if line.accepted and line.iteration <= iteration)
            for lines in of_queries
        ]
        means.append(
            RoundMeans(
                iteration=iteration,
                asked=sum(line.iteration == iteration for lines in of_queries for line in lines),
                objective=_mean([line.objective for line in pages]),
                aimed=_mean([line.measures[aimed] for line in pages]),
            )
        )
    return means


def _mean(values: Sequence[float | None]) -> float | None:
    defined = [value for value in values if value is not None]
    return fsum(defined) / len(defined) if defined else None


def score_refine(run: RunDir, settings: ScoreSettings, announce: Announce) -> RemeasuredRun:
    """A run folder from its files alone: the figures of its audit, unless others are asked for. Raises UsageError."""
    results: RefineResults = results_of(run)
    if settings.attribute not in (None, results.attribute):
        raise UsageError(
            f"{run.path} was refined by {results.attribute}, not by {settings.attribute}.",
            f"llmfair refine -a {settings.attribute} asks about that",
        )
    design = results.design
    announce(run.path / "rankings")
    observations = read_observations(run)
    goals = (design.objective, design.aimed, design.utility)
    measures, shown = measures_of(settings, results, Judged, goals)
    columns = measure_all(measures, observations)
    inference = Inference(level=settings.level, seed=design.seed)
    asked = Asked(design.margin, controls_of(design.baselines))
    rows, findings, family = concluded(columns, summarise(columns, inference), goals, asked, inference)
    conditions = {name: ScoreFacts(queries=len(of)) for name, of in observations.items()}
    facts = facts_of(run, results, shown, conditions, columns, findings, family)
    return RemeasuredRun(facts, rows, [*map(Key, observations)])


def refine_changes(
    base: ComparedRun, other: ComparedRun, chosen: Sequence[Measure] | None
) -> Iterator[ChangeRow]:
    """Of the refined pages alone: the original query's are the same. The objective is the headline."""
    for row in changes_by_query(base, other, chosen):
        if row.condition == FAIR_QR:
            yield structs.replace(row, headline=row.measure == base.results.design.objective)


MEASURING = Measuring(
    reads=Judged,
    gated=(FAIR_QR,),
    agree={
        "objective": ("improve different measures", "run both with the same --objective"),
        "target": ("aim at different targets", "run both with the same --target"),
        "analyzer": ("search in different terms", "run both with the same --analyzer"),
    },
    observations=read_observations,
    score=score_refine,
    changes=refine_changes,
)
