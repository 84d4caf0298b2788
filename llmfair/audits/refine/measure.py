"""What pages of refined queries come to, and the files of a run folder of `llmfair refine`.

All figures follow from `rankings/` (the pages), `qrels.txt` and `groups.tsv`, which names the documents that are
ranked, the relevant ones, and one of every other group, so that it has all groups of the collection. The original
query's ranking goes on beyond its page, as deep as baselines look, and `scores.tsv` has its BM25 scores: of both
`llmfair rerank` makes the rankings of the baselines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import structs

from llmfair.audits import scoring
from llmfair.audits.aggregates import ALL, Inference, mean_of, numbers_of, row_of, summarise
from llmfair.audits.comparing import ComparedRun, changes_by_query
from llmfair.audits.design import RELEVANT, Outcome, read_relevant, relevant_lines
from llmfair.audits.documents import ChangeRow
from llmfair.audits.kind import results_of
from llmfair.audits.lists import asked_of_lists
from llmfair.audits.refine.design import Ended, Pages, RefineDesign, ordering
from llmfair.audits.refine.results import PaperTest, RefineFacts, RefineFinding, RefineResults, ReplyCounts
from llmfair.audits.refine.settings import BASELINE, FAIR_QR, GREEDY, METHODS, NAME_ALONE, REFINED
from llmfair.datasets.attributes import read_attributes, shipped_attributes, shipped_backgrounds
from llmfair.datasets.judgements import of_files
from llmfair.errors import UsageError
from llmfair.io.files import AGAIN, encode, read_lines
from llmfair.io.trec import groups_lines, qrels_lines, read_run, run_lines, scores_lines
from llmfair.metrics.base import Column, Groups, Judged, Measure, measure_all
from llmfair.metrics.names import parse_measure
from llmfair.metrics.targets import UNKNOWN
from llmfair.nouns import Candidates, Conclusion, Failure, Measurement, Ranking, of_each_kind
from llmfair.rankers.base import remarks
from llmfair.rankers.fair_qr import ROUNDING, Refined, Stop, refined_text
from llmfair.results import Count, Family, Reach
from llmfair.rundir import RunDir
from llmfair.settings.commands import ScoreSettings
from llmfair.stats.paired import change_by_query, paired_t
from llmfair.stats.power import FEWEST_TESTED
from llmfair.stats.significance import holm
from llmfair.stats.tradeoff import STARRED

# The trail: how each query was refined, round by round, as lines of JSON and as text.

TRAIL = "trail.jsonl"
WIDEST = 60
"""Characters of words that figures stand in line behind: those of longer queries, up to 200 words, follow them."""


@dataclass(frozen=True)
class TrailLine:
    """A round of one query, 0 the original query; `new` are the words of this round, `added` all beside the query.

    `current` and `target`: shares by group; `n`: documents found. `attained`: the objective at which the loop is
    content, of KL the least that a page of whole documents can have. `stop`: why the loop ended, in its last line.
    Measures are null without a page. `replies`: the `text` of each, its `reply_class`, and by which form it was read.
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
    replies: Sequence[Mapping[str, str]]


def trail_of(design: RefineDesign, refined: Refined) -> Iterator[TrailLine]:
    """The rounds of a topic."""
    query, topic, measures = refined.query, design.topic(refined.query), (design.aimed, design.utility)
    for step in refined.rounds:
        page, last = step.page, step is refined.rounds[-1]
        values = {
            str(of): design.pages.value(of, query.query_id, page.doc_ids) if page.doc_ids else None
            for of in measures
        }
        yield TrailLine(
            query_id=query.query_id, attribute=design.attribute.name, iteration=step.iteration,
            query=refined_text(query, step.added), original=query.text, added=step.added, new=step.new,
            subgroup=step.subgroup, target=topic.target, current=page.shares if page.doc_ids else {},
            objective=page.objective, attained=topic.stopping.attained, measures=values, accepted=step.accepted,
            stop=str(refined.stop) if last else None, n=len(page.doc_ids), doc_ids=page.doc_ids,
            replies=[
                {"text": of.text, "reply_class": str(of.read.reply_class), "parsed_by": of.read.parsed_by}
                for of in step.replies
            ],
        )  # fmt: skip


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
    for name, of_query in groupby(lines, key=lambda line: line.query_id):
        rounds = list(of_query)
        first, last = rounds[0], rounds[-1]
        shares = "  ".join(f"{group} {share:.2f}" for group, share in first.target.items() if share > 0)
        yield f"query {name}  {first.attribute}, target: {shares}"
        words = [first.query, *(f"… + {' '.join(line.new) or 'nothing'}" for line in rounds[1:])]
        width = min(max(map(len, words)), WIDEST)
        for line, searched in zip(rounds, words, strict=True):
            parts = [f"for {line.subgroup}:"] * (line.subgroup is not None)
            if line.doc_ids:
                present = [group for group, share in line.current.items() if share > 0]
                groups = [line.subgroup] if line.subgroup else present
                values = {objective: line.objective, **line.measures}
                parts += [f"{group} {line.current[group]:.2f}" for group in groups]
                parts += [f"{of} {value:.3f}" for of, value in values.items() if value is not None]
            if line.iteration:
                classes = ", ".join(reply["reply_class"] for reply in line.replies)
                dropped = f"dropped ({line.stop or 'no page'}; reply: {classes})"
                parts.append("kept" if line.accepted else dropped)
            yield f"  {line.iteration}  {searched:{width}}  {'  '.join(parts)}"
        standing = max(line.iteration for line in rounds if line.accepted)
        yield f"  stopped after round {last.iteration}: {last.stop}; kept: round {standing}"
        yield ""


# The pages as files.

QRELS, GROUPS, TAG = "qrels.txt", "groups.tsv", "llmfair"
Rankings = Mapping[str, Sequence[Ranking]]
"""What each method ranks of the topics, of which its page is the beginning."""


def files_of(
    design: RefineDesign, topics: Sequence[Refined], rankings: Rankings, trail: Sequence[TrailLine]
) -> dict[str, str]:
    """Every file by name."""
    tags = {of.name: f"{TAG}+{''.join(of.spec.split())}" for of in design.baselines}
    reached = {refined.query.query_id for refined in topics}
    qrels = {query_id: of for query_id, of in design.dataset.qrels.items() if query_id in reached}
    counts = {query_id: of for query_id, of in design.groups.relevant.items() if query_id in reached}
    files: dict[str, Iterable[str]] = {
        TRAIL: [encode(line).decode() + "\n" for line in trail],
        "queries/original.tsv": [f"{of.query.query_id}\t{of.query.text}\n" for of in topics],
        "queries/refined.tsv": [
            f"{of.query.query_id}\t{refined_text(of.query, of.kept.added)}\n" for of in topics
        ],
        GROUPS: groups_lines(_groups(design, rankings, qrels)),
        scoring.SCORES: scores_lines(rankings[BASELINE]),
        **{f"rankings/{name}.run": run_lines(of, tags.get(name, TAG)) for name, of in rankings.items()},
    }
    if any(qrels.values()):
        files[QRELS] = qrels_lines(qrels)
    if counts:
        files[RELEVANT] = relevant_lines(replace(design.groups, relevant=counts))
    return {name: "".join(lines) for name, lines in files.items()}


def _groups(
    design: RefineDesign, rankings: Rankings, qrels: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, tuple[str, ...]]]:
    """By document and attribute; a document of unknown group says so, or nobody would know that it is listed."""
    documents, attribute = design.dataset.documents, design.attribute.name
    listed = {doc_id for of in rankings.values() for ranking in of for doc_id in ranking.doc_ids}
    if not design.groups.relevant:  # which else has what is known of relevant documents
        grades = (grade for judged in qrels.values() for grade in judged.items())
        listed |= {doc_id for doc_id, grade in grades if grade >= 1 and doc_id in documents}
    groups = set[tuple[str, str]]()
    for document in sorted(of_each_kind(documents), key=lambda document: document.doc_id):
        further = {(name, group) for name, of in document.groups.items() for group in of} - groups
        if further:  # the first document of a group
            groups |= further
            listed.add(document.doc_id)
    return {
        doc_id: {**documents[doc_id].groups, attribute: documents[doc_id].groups.get(attribute) or (UNKNOWN,)}
        for doc_id in sorted(listed)
    }


def read_observations(run: RunDir) -> dict[str, list[Judged]]:
    """What measures read, by condition, of a run folder's files. Raises UsageError naming file and line."""
    results: RefineResults = results_of(run)
    design = results.design
    pages: dict[str, list[Judged]] = {condition: [] for condition in design.conditions}
    if not results.iterations:  # no query has a page
        return pages
    asked, backgrounds = asked_of_lists(run, run.read_manifest().settings), design.backgrounds
    if backgrounds is None:
        backgrounds = shipped_backgrounds(asked.attribute.name)
    attribute = replace(asked.attribute, mixed=asked.mixed, backgrounds=tuple(backgrounds))
    attributes = {**read_attributes(shipped_attributes()), attribute.name: attribute}
    qrels = run.path / QRELS  # of a run without judgements there is none
    path = qrels if qrels.is_file() else None
    judgements = of_files(path, run.path / GROUPS, attributes, undeclared=True)
    attributes = {of.name: of for of in judgements.attributes} | {attribute.name: attribute}
    stand_ins, relevant = read_relevant(run.path / RELEVANT)
    groups = Groups(attribute.name, attributes, {**judgements.documents, **stand_ins}, relevant)
    judging = Pages(attribute, groups, judgements.qrels)
    for condition, of in pages.items():
        if results.chains[condition].ranked:
            rankings = read_run(run.path / "rankings" / f"{condition}.run", hint=AGAIN).rankings
            of += [judging.judged(name, ranking.doc_ids[: design.k]) for name, ranking in rankings.items()]
    return pages


# What is concluded, paired by topic: fair-qr less the original query, and less each control, which aims at the same
# target and asks no model. A change is certain where its whole interval lies on one side of 0, flipped signs agree, and
# at least six topics changed: the loop keeps what comes nearer by chance, and few or skewed changes mislead intervals.
# p by flipped signs; adjusted (Holm) over all that a run tests.

SYMBOLS = {BASELINE: "*", "sbert": "◇", "dlf-like": "♣", "deltr": "§", "fair-star": "†", "mmr": "‡"}
"""The signs of the paper's table, of the methods that it holds refinement against."""
CLAIMS = {1: True, -1: False, 0: None}
"""What certain changes say, by their sign; None where that is open."""
CONCLUDED = {1: Conclusion.WITHIN, -1: Conclusion.OUTSIDE, 0: Conclusion.INCONCLUSIVE}
"""By whether pages are nearer, and nearer than the controls' are."""
FEW_CHANGED = "few_changed"


class Contrast(NamedTuple):
    """fair-qr less another method in one measure: the row of all topics, and how many of them differ."""

    row: Measurement
    changed: int


Contrasts = Mapping[tuple[str, str], Contrast]
"""By measure and method."""


def compared(method: str) -> str:
    """The condition of rows that hold fair-qr against a method."""
    return f"{FAIR_QR} vs {method}"


def held_against(conditions: Iterable[str]) -> list[str]:
    """The methods that fair-qr is held against: all but its own two pages."""
    return [name for name in conditions if name not in (REFINED, FAIR_QR)]


def controls_of(baselines: Mapping[str, str] | None) -> list[str]:
    """The baselines, by name and spec, that show what aiming at the target gives without a model."""
    specs = (baselines or {}).items()
    return [name for name, spec in specs if spec == NAME_ALONE or spec.partition(":")[0] == GREEDY]


def concluded(
    design: RefineFacts, columns: Sequence[Column], rows: Sequence[Measurement], inference: Inference
) -> tuple[list[Measurement], dict[str, RefineFinding], int]:
    """The rows with those of the changes and the conclusion, what is concluded, and how many p were adjusted."""
    changes, contrasts = list[Measurement](), dict[tuple[str, str], Contrast]()
    for name, _, method, pairs in paired(columns, (FAIR_QR,)):
        contrasts[name, method] = contrast(name, method, [*pairs.values()], inference)
        for query_id, (before, after) in pairs.items():
            changes.append(Measurement(query_id, name, after - before, compared(method)))
    adjusted = holm([each.row.p for each in contrasts.values()])
    for place, p in zip(contrasts, adjusted, strict=True):
        row, changed = contrasts[place]
        contrasts[place] = Contrast(replace(row, p_adjusted=p), changed)
    rule = RefineFinding(
        measure=design.objective, aimed=design.aimed, utility=design.utility, margin=design.margin,
        conclusion=Conclusion.NOT_ASSESSABLE, reason="no_query_measured",
    )  # fmt: skip
    finding = finding_of(rule, controls_of(design.baselines), contrasts, inference.level)
    of_all = {each: contrast.row for each, contrast in contrasts.items()}
    if (place := (design.objective, BASELINE)) in of_all:
        of_all[place] = replace(of_all[place], conclusion=finding.conclusion)
    return [*rows, *changes, *of_all.values()], {FAIR_QR: finding}, sum(p is not None for p in adjusted)


def paired(
    columns: Sequence[Column], methods: Sequence[str]
) -> Iterator[tuple[str, str, str, dict[str, tuple[float, float]]]]:
    """Measure, method, and one that it is held against, with the queries' values by the other and by the method.

    Of the measures of single queries of which more or less is better, and the queries that have both values.
    """
    values: dict[str, dict[str, dict[str, float]]] = {}
    for column in columns:
        measure = column.measure
        if not column.group and measure.definition.better in ("higher", "lower") and not measure.of_all:
            values.setdefault(str(measure), {})[column.condition] = numbers_of(column.values)
    for name, of in values.items():
        for method, against in product(methods, held_against(of)):
            if method in of:
                before, after = of[against], of[method]
                both = sorted(before.keys() & after.keys())
                yield name, method, against, {query: (before[query], after[query]) for query in both}


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
    tests = []
    for measure, method, against, pairs in paired(columns, (REFINED, FAIR_QR)):
        changes = [after - before for before, after in pairs.values()]
        if (difference := mean_of(changes)) is not None:
            tested = any(changes) and paired_t(changes)
            p = tested[1] if tested else None
            starred = p is not None and p < STARRED and better(measure) * difference > 0
            tests.append(PaperTest(
                method=method, against=against, measure=measure, queries=len(changes), difference=difference, p=p,
                symbol=SYMBOLS.get(against, "") if starred else "",
            ))  # fmt: skip
    return tests


def better(measure: str) -> int:
    """1 where more is better, else −1."""
    return 1 if parse_measure(measure).definition.better == "higher" else -1


def certain(contrast: Contrast, level: float) -> int:
    """1 where fair-qr is better for certain, −1 where it is worse; 0 where interval or flipped signs leave it open."""
    row = contrast.row
    if row.low is None or row.high is None or row.p is None or contrast.changed < FEWEST_TESTED:
        return 0
    return 0 if row.p > 1 - level + ROUNDING else better(row.measure) * ((row.low > 0) - (row.high < 0))


def finding_of(
    rule: RefineFinding, controls: Sequence[str], contrasts: Contrasts, level: float
) -> RefineFinding:
    """What the changes from the original query and from the controls say, of a `rule` of which nothing is concluded:
    it has the objective, the measure that nearness is told by too, that of the cost, and what loss of it is none.

    A control that orders pages by the target is nearly as near as can be in AWRF, which no keyword orders: there it is
    enough not to be farther for certain.
    """
    objective, utility = contrasts.get((rule.measure, BASELINE)), contrasts.get((rule.utility, BASELINE))
    if objective is None:
        return rule
    if objective.row.low is None:
        return structs.replace(rule, reason=objective.row.reason)
    signs = {place: certain(each, level) for place, each in contrasts.items()}
    goals = [goal for measure in (rule.measure, rule.aimed) if (goal := (measure, BASELINE)) in contrasts]
    nearer, beyond = min(signs[goal] for goal in goals), 1
    for name in controls:
        farther = signs.get((rule.aimed, name)) == -1
        beyond = min(beyond, -1 if farther else signs.get((rule.measure, name), 0))
    conclusion, changed = CONCLUDED[min(nearer, beyond)], min(contrasts[goal].changed for goal in goals)
    few = conclusion is Conclusion.INCONCLUSIVE and changed < FEWEST_TESTED
    loss = None  # open
    if utility is not None and certain(utility, level) < 0:
        loss = True
    elif utility is not None and utility.row.low is not None and utility.changed >= FEWEST_TESTED:
        loss = None if utility.row.low < -rule.margin else False
    control = min(
        (name for name in controls if (rule.measure, name) in contrasts),
        key=lambda name: better(rule.measure) * (contrasts[rule.measure, name].row.value or 0.0),
        default=None,
    )
    return structs.replace(
        rule, conclusion=conclusion, reason=FEW_CHANGED if few else None, changed=changed, nearer=CLAIMS[nearer],
        beyond=CLAIMS[beyond], control=control, loss=loss, p=objective.row.p, p_adjusted=objective.row.p_adjusted,
    )  # fmt: skip


def outcome_of(
    design: RefineDesign, run: str, results: Mapping[str, Ended], failures: Sequence[Failure]
) -> Outcome:
    """Measures the topics whose loop ended and whose query finds anything; the others are counted and named."""
    loops = (results.get(query.query_id) for query in design.topics)
    ended = [loop for loop in loops if isinstance(loop, Refined)]
    topics = [refined for refined in ended if refined.stop is not Stop.NO_RESULT]
    left_out = {
        "no_target": [query.query_id for query in design.queries if query.query_id not in design.targets],
        str(Stop.NO_RESULT): [of.query.query_id for of in ended if of.stop is Stop.NO_RESULT],
    }
    chains, _ = design.counts(results)  # a loop has the pages of the first three conditions
    chains |= dict.fromkeys(METHODS, chains[FAIR_QR])
    in_order = {BASELINE: [design.first_stage(refined.query) for refined in topics]}
    for of in design.baselines:
        orders = (results.get(ordering(refined.query, of.name)) for refined in topics)
        in_order[of.name] = [order for order in orders if isinstance(order, Candidates)]
    rankings = {
        BASELINE: [],
        REFINED: [Ranking(refined.query.query_id, refined.kept.page.doc_ids) for refined in topics],
        FAIR_QR: [Ranking(refined.query.query_id, refined.final) for refined in topics],
    } | {
        name: [Ranking(of.query.query_id, of.doc_ids, of.scores) for of in candidates]
        for name, candidates in in_order.items()
    }
    observations = {
        condition: [design.pages.judged(ranking.query_id, ranking.doc_ids[: design.k]) for ranking in of]
        for condition, of in rankings.items()
    }
    columns = measure_all(design.measures, observations)
    inference = Inference(level=design.settings.level, seed=design.settings.seed)
    rows, findings, tests = concluded(design.facts(), columns, summarise(columns, inference), inference)
    trail = [line for refined in ended for line in trail_of(design, refined)]
    targets = [design.targets[refined.query.query_id] for refined in topics]
    least = mean_of(map(design.least, targets)) if design.objective.name == "KL" else None
    replies = [step.replies for refined in ended for step in refined.rounds]
    read = [reply.read for of in replies for reply in of]
    classes = dict(sorted(Counter(str(reply.reply_class) for reply in read).items()))
    unparseable, again = sum(not reply.readable for reply in read), sum(len(of) > 1 for of in replies)
    answers = ReplyCounts(replies=len(read), unparseable=unparseable, classes=classes, asked_again=again)
    document = design.resulting(
        RefineResults, design.told(run, chains, failures, columns), {FAIR_QR: answers}, findings,
        reach={} if least is None else {str(design.objective): Reach(low=least)},
        left_out={reason: queries for reason, queries in left_out.items() if queries},
        stops=dict(Counter(str(refined.stop) for refined in ended)),
        iterations={str(n): of for n, of in sorted(Counter(of.kept.iteration for of in topics).items())},
        paper=paper_tests(columns),
        remarks=[f"{of.name}: {text}" for of in design.baselines for text in remarks(of.ranker, in_order[of.name])],
        calls_made=answers.replies, family=Family(tests, None),
    )  # fmt: skip
    documents = {doc_id for line in trail for doc_id in line.doc_ids}
    documents |= {doc_id for pages in observations.values() for page in pages for doc_id in page.doc_ids}
    return design.laid_out(
        document, rows, files_of(design, topics, rankings, trail), failures,
        queries=[refined.query for refined in ended],
        documents=[design.dataset.documents[doc_id] for doc_id in sorted(documents)],
        where="on these pages",
    )  # fmt: skip


def score_refine(run: RunDir, settings: ScoreSettings) -> scoring.RunMeasurement:
    """A run folder from its files alone: the figures of its audit, unless others are asked for. Raises UsageError."""
    results: RefineResults = results_of(run)
    design, observations = results.design, read_observations(run)
    goals = (design.objective, design.aimed, design.utility)
    measures, shown = scoring.measures_of(run, results, settings, goals)
    return scoring.measured_by(
        run, results, settings, observations, measures, shown, partial(concluded, design)
    )


def refine_changes(
    base: ComparedRun, other: ComparedRun, chosen: Sequence[Measure] | None
) -> Iterator[ChangeRow]:
    """Of the refined pages alone: the original query's are the same. The objective is the headline."""
    for row in changes_by_query(base, other, chosen):
        if row.condition == FAIR_QR:
            yield structs.replace(row, headline=row.measure == base.results.design.objective)


MEASURING = scoring.Measuring(
    reads=Judged,
    gated=(FAIR_QR,),
    agree={
        "objective": "improve different measures",
        "target": "aim at different targets",
        "analyzer": "search in different terms",
    },
    observations=read_observations,
    score=score_refine,
    changes=refine_changes,
)
