"""The trail: how each query was refined, round by round, as lines of JSON and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from llmfair.audits.refine.design import RefineDesign
from llmfair.errors import UsageError
from llmfair.io.files import AGAIN, encode, read_lines
from llmfair.rankers.fair_qr import Refined, Round, refined_text
from llmfair.results import Count

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
            replies=replies_of(one),
        )


def replies_of(one: Round) -> list[TrailReply]:
    return [
        TrailReply(
            reply.text, str(reply.read.reply_class), reply.read.parsed_by, reply.prompt_tokens, reply.completion_tokens
        )
        for reply in one.replies
    ]  # fmt: skip


def trail_lines(lines: Sequence[TrailLine]) -> Iterator[str]:
    for line in lines:
        yield encode(asdict(line)).decode() + "\n"


def read_trail(folder: Path, query_id: str | None = None) -> list[TrailLine]:
    """The trail of a run folder, or of one of its queries. Raises UsageError."""
    path = folder / TRAIL
    if not path.is_file():
        raise UsageError(f"{folder} has no trail.", AGAIN)
    found = [line for line in read_lines(path, TrailLine) if query_id in (None, line.query_id)]
    if not found and query_id is not None:
        raise UsageError(f"{path} has no query '{query_id}'.", "without --query all are shown")
    return found


def trail_text(lines: Sequence[TrailLine], objective: str) -> Iterator[str]:
    """The story of each query: added words behind a plus, shares of the group in question, what was kept."""
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
