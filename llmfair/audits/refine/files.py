"""The files of a run folder of `llmfair refine`, and what measures read of them again.

All figures follow from `rankings/` (the pages), `qrels.txt` and `groups.tsv`, which names the documents that are
ranked, the relevant ones, and one of every other group, so that it has all groups of the collection. The original
query's ranking goes on beyond its page, as deep as baselines look, and `scores.tsv` has its BM25 scores: of both
`llmfair rerank` makes the rankings of the baselines.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path

from llmfair.audits.design import RELEVANT, read_relevant, relevant_lines
from llmfair.audits.kind import results_of
from llmfair.audits.lists import ListsAsked, asked_of_lists
from llmfair.audits.refine.design import FAIR_QR, REFINED, Pages, RefineDesign
from llmfair.audits.refine.results import RefineFacts, RefineResults
from llmfair.audits.refine.settings import BASELINE
from llmfair.audits.run_files import SCORES
from llmfair.datasets.attributes import read_attributes, shipped_attributes, shipped_backgrounds
from llmfair.datasets.judgements import of_files
from llmfair.errors import UsageError
from llmfair.io.files import AGAIN, encode, read_lines
from llmfair.io.trec import groups_lines, qrels_lines, read_run, run_lines, scores_lines
from llmfair.metrics.base import Groups, Judged
from llmfair.metrics.targets import UNKNOWN
from llmfair.nouns import Attribute, Candidates, Ranking, of_each_kind
from llmfair.rankers.fair_qr import Refined, refined_text
from llmfair.results import Count
from llmfair.rundir import RunDir

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
    if not path.is_file():
        raise UsageError(f"{folder} has no trail.", AGAIN)
    found = [line for line in read_lines(path, TrailLine) if query_id in (None, line.query_id)]
    if not found and query_id is not None:
        raise UsageError(f"{path} has no query '{query_id}'.", "without --query all are shown")
    return found


def trail_text(run: RunDir, query_id: str | None) -> Iterator[str]:
    """The story of each query: added words behind a plus, shares of the group in question, what was kept."""
    lines, objective = read_trail(run.path, query_id), results_of(run).design.objective
    for query_id, of_query in groupby(lines, key=lambda line: line.query_id):
        rounds = list(of_query)
        first, last = rounds[0], rounds[-1]
        shares = "  ".join(f"{name} {share:.2f}" for name, share in first.target.items() if share > 0)
        yield f"query {query_id}  {first.attribute}, target: {shares}"
        width = min(max(len(_asked(line)) for line in rounds), WIDEST)
        for line in rounds:
            yield f"  {line.iteration}  {_asked(line):{width}}  {_told(line, objective)}"
        kept = next(line for line in reversed(rounds) if line.accepted)
        yield f"  stopped after round {last.iteration}: {last.stop}; kept: round {kept.iteration}"
        yield ""


def _asked(line: TrailLine) -> str:
    """The words that are searched: of a round, what it adds."""
    if line.iteration == 0:
        return line.query
    return f"… + {' '.join(line.new)}" if line.new else "… + nothing"


def _told(line: TrailLine, objective: str) -> str:
    """For which group, how the page stands, and what became of the round."""
    parts = [f"for {line.subgroup}:"] * (line.subgroup is not None)
    if line.doc_ids:
        groups = (
            [line.subgroup] if line.subgroup else [name for name, share in line.current.items() if share > 0]
        )
        parts += [f"{name} {line.current[name]:.2f}" for name in groups]
        values = {objective: line.objective, **line.measures}
        parts += [f"{name} {value:.3f}" for name, value in values.items() if value is not None]
    classes = ", ".join(reply.reply_class for reply in line.replies)
    if line.iteration:
        parts.append("kept" if line.accepted else f"dropped ({line.stop or 'no page'}; reply: {classes})")
    return "  ".join(parts)


QRELS, GROUPS, TAG = "qrels.txt", "groups.tsv", "llmfair"
HINT = "the command that began the run writes its files anew, without a call"

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
    design: RefineDesign, found: Sequence[Refined], reranked: Reranked, trail: Sequence[TrailLine]
) -> dict[str, str]:
    """Every file by name."""
    first_stage = [_ranking(design.first_stage(refined.query)) for refined in found]
    pages = {
        condition: [Ranking(one.query.query_id, rankings_of(one)[condition]) for one in found]
        for condition in (REFINED, FAIR_QR)
    }
    tags = {one.name: f"{TAG}+{''.join(one.spec.split())}" for one in design.baselines}
    runs = {
        BASELINE: run_lines(first_stage, TAG),
        **{name: run_lines(of, TAG) for name, of in pages.items()},
        **{name: run_lines(map(_ranking, of.values()), tags[name]) for name, of in reranked.items()},
    }
    reached = {refined.query.query_id for refined in found}
    qrels = {query_id: judged for query_id, judged in design.dataset.qrels.items() if query_id in reached}
    original = "".join(f"{one.query.query_id}\t{one.query.text}\n" for one in found)
    last = (f"{one.query.query_id}\t{refined_text(one.query, one.kept.added)}\n" for one in found)
    return {
        TRAIL: "".join(encode(asdict(line)).decode() + "\n" for line in trail),
        "queries/original.tsv": original,
        "queries/refined.tsv": "".join(last),
        **({QRELS: "".join(qrels_lines(qrels))} if any(qrels.values()) else {}),
        **({RELEVANT: "".join(_relevant_lines(design, reached))} if design.groups.relevant else {}),
        GROUPS: "".join(groups_lines(_groups(design, [*first_stage, *pages[REFINED]], qrels))),
        SCORES: "".join(scores_lines(first_stage)),
        **{f"rankings/{name}.run": "".join(lines) for name, lines in runs.items()},
    }


def _ranking(candidates: Candidates) -> Ranking:
    return Ranking(candidates.query.query_id, candidates.doc_ids, candidates.scores)


def _relevant_lines(design: RefineDesign, reached: Collection[str]) -> Iterator[str]:
    groups = design.groups
    relevant = {query_id: counts for query_id, counts in groups.relevant.items() if query_id in reached}
    return relevant_lines(replace(groups, relevant=relevant))


def _groups(
    design: RefineDesign, rankings: Sequence[Ranking], qrels: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, tuple[str, ...]]]:
    """By document and attribute; a document of unknown group says so, or nobody would know that it is listed."""
    documents = design.dataset.documents
    named = {doc_id for ranking in rankings for doc_id in ranking.doc_ids}
    if not design.groups.relevant:  # which else has what is known of relevant documents
        named |= {
            doc_id
            for judged in qrels.values()
            for doc_id, grade in judged.items()
            if grade >= 1 and doc_id in documents
        }
    named |= {*_of_each_group(design)}
    return {
        doc_id: {
            **documents[doc_id].groups,
            design.attribute.name: documents[doc_id].groups.get(design.attribute.name) or (UNKNOWN,),
        }
        for doc_id in sorted(named)
    }


def _of_each_group(design: RefineDesign) -> Iterator[str]:
    """The first document of every group there is."""
    seen = set[tuple[str, str]]()
    for document in sorted(of_each_kind(design.dataset.documents), key=lambda document: document.doc_id):
        groups = {(name, group) for name, of in document.groups.items() for group in of}
        if not groups <= seen:
            seen |= groups
            yield document.doc_id


# Read back


def read_observations(run: RunDir) -> dict[str, list[Judged]]:
    """What measures read, by condition, of a run folder's files. Raises UsageError naming file and line."""
    results: RefineResults = results_of(run)
    if not results.iterations:  # no query found a page
        return {condition: [] for condition in results.design.conditions}
    attribute = _attribute(asked_of_lists(run, run.read_manifest().settings), results.design)
    known = {**read_attributes(shipped_attributes()), attribute.name: attribute}
    qrels = run.path / QRELS  # of a run without judgements there is none
    judgements = of_files(qrels if qrels.is_file() else None, run.path / GROUPS, known, undeclared=True)
    attributes = {one.name: one for one in judgements.attributes} | {attribute.name: attribute}
    stand_ins, relevant = read_relevant(run.path / RELEVANT)
    groups = Groups(attribute.name, attributes, {**judgements.documents, **stand_ins}, relevant)
    pages = Pages(attribute, groups, judgements.qrels)
    found: dict[str, list[Judged]] = {}
    for condition in results.design.conditions:
        if not results.chains[condition].ranked:
            found[condition] = []
            continue
        file = read_run(run.path / "rankings" / f"{condition}.run", hint=HINT)
        found[condition] = [
            pages.judged(query_id, ranking.doc_ids[: results.design.k])
            for query_id, ranking in file.rankings.items()
        ]
    return found


def _attribute(asked: ListsAsked, design: RefineFacts) -> Attribute:
    """The attribute as manifest and results have it."""
    return replace(
        asked.attribute,
        mixed=asked.mixed,
        backgrounds=shipped_backgrounds(asked.attribute.name)
        if design.backgrounds is None
        else tuple(design.backgrounds),
    )
