"""FAIR-QR: a query refined by a language model until the groups on its page meet a target (Chen & Fang 2025).

q ← q0, L ← the first k documents that q finds. Each round names the group that is furthest below its target, asks for
keywords, searches with them, and goes on while the objective improves. The list before the first that does not is
kept, and ordered by the original query. A round's question shows all that a model has to know, so each is a
conversation of its own; the trail has every round. The program knows neither engine nor measures: its topic does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal

from llmfair.metrics.targets import UNKNOWN
from llmfair.nouns import Chat, Completion, Query, Steps, Text
from llmfair.prompts import Prompt
from llmfair.rankers.keywords import Keywords, read_keywords
from llmfair.rankers.listwise import RETRY_DRAWS
from llmfair.rankers.passages import clean

Form = Literal["json", "paper"]
Keep = Literal["added", "last"]
PLACEHOLDERS = (
    "Query", "Target Exposure Distribution", "Top_K", "Current Exposure Distribution", "subgroup", "attribute",
)  # fmt: skip
UNKNOWN_IN_PROMPT = "Unknown"
"""What the prompt calls the group of documents without a known one."""
ROUNDING = 1e-9
"""What is nearer than this is equal: the same shares in another order of documents or groups differ by less."""
WHOLE = 1_000_000
"""More words than any query has."""


class Stop(StrEnum):
    """Why a loop ended."""

    ATTAINED = "attained"  # no page of whole documents is nearer the target
    NO_UNDERREPRESENTED_GROUP = "no_underrepresented_group"
    UNKNOWN_UNDERREPRESENTED = "unknown_underrepresented"  # and nothing else, and it is not asked for
    UNREADABLE = "unreadable"  # twice
    NO_KEYWORDS = "no_keywords"  # all of them stand in the query already
    NO_RESULT = "no_result"  # the original query finds nothing
    NO_DECREASE = "no_decrease"
    MAX_ITERATIONS = "max_iterations"


@dataclass(frozen=True)
class Stopping:
    """When a loop ends by the objective of its pages: `attained` is what it need not go beyond, None if nothing is."""

    max_iterations: int = 5
    better: Literal["lower", "higher"] = "lower"
    attained: float | None = 0.0

    def after(self, values: Sequence[float | None]) -> Stop | None:
        """Why the loop ends after these objectives, that of the original query first; None where it goes on.

        None among them is the objective of a page that has none, which is worse than any.
        """
        *before, last = values
        if before and not self._improves(last, before[-1]):
            return Stop.NO_DECREASE
        if self.attained is not None and last is not None and self._beyond(last, self.attained):
            return Stop.ATTAINED
        return Stop.MAX_ITERATIONS if len(before) >= self.max_iterations else None

    def kept(self, values: Sequence[float | None]) -> int:
        """Which of the pages is kept: the last, unless the loop ended since it was no better."""
        return len(values) - 1 - (self.after(values) is Stop.NO_DECREASE)

    def _improves(self, value: float | None, on: float | None) -> bool:
        if value is None or on is None:
            return value is not None
        return (on - value if self.better == "lower" else value - on) > ROUNDING

    def _beyond(self, value: float, goal: float) -> bool:
        return value <= goal + ROUNDING if self.better == "lower" else value >= goal - ROUNDING


def most_underrepresented(
    target: Mapping[str, float], current: Mapping[str, float], allow_unknown: bool = True
) -> str | None:
    """The group whose share is furthest below its target, the first of equals; None where none is below.

    Shares by group, in the order of groups. Unless `allow_unknown`, what is unknown of documents is no group.
    """
    behind = {
        name: share - current[name]
        for name, share in target.items()
        if allow_unknown or UNKNOWN not in name.split("*")
    }
    most = max(behind.values(), default=0.0)
    return None if most <= ROUNDING else next(name for name in behind if behind[name] >= most - ROUNDING)


@dataclass(frozen=True)
class Page:
    """What a query found: documents, best first, the share of each group among them, and the objective."""

    doc_ids: tuple[str, ...] = ()
    shares: Mapping[str, float] = field(default_factory=dict)
    objective: float | None = None


@dataclass(frozen=True)
class Topic:
    """A query with all that the loop is told of it.

    `target`: the share that each group should have. `find` gives the page of the original query with further words,
    `reorder` orders documents by the original query. `hints`, of simulated models alone: words that distinguish a
    group's documents from the others that the query finds.
    """

    query: Query
    target: Mapping[str, float]
    stopping: Stopping
    find: Callable[[Sequence[str]], Page]
    reorder: Callable[[Sequence[str]], Sequence[str]]
    hints: Callable[[str, Collection[str]], Sequence[str]] | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model said, and how it was read."""

    text: str
    read: Keywords
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


@dataclass(frozen=True)
class Round:
    """One round: the words beside the original query, for which group, what was said, and the page they found.

    The first is that of the original query. One whose reply gives nothing to search has no page.
    """

    iteration: int
    added: tuple[str, ...]
    page: Page
    accepted: bool
    subgroup: str | None = None
    new: tuple[str, ...] = ()
    replies: tuple[Reply, ...] = ()


@dataclass(frozen=True)
class Refined:
    """A topic's loop: its rounds, why it ended, and the page that was kept, ordered by the original query."""

    query: Query
    rounds: tuple[Round, ...]
    stop: Stop
    final: tuple[str, ...] = ()

    @property
    def kept(self) -> Round:
        """The round whose page was kept."""
        return next(one for one in reversed(self.rounds) if one.accepted)

    @property
    def replies(self) -> Iterator[Reply]:
        return (reply for one in self.rounds for reply in one.replies)


@dataclass(frozen=True)
class FairQr:
    """The settings of the loop, alike for all topics. Raises UsageError for a prompt that lacks what is asked.

    `keep`: words accumulate (`added`), or those of the latest round replace the ones before (`last`).
    `allow_unknown`: a round may ask for documents of unknown group, as the paper's does, though no word names them.
    """

    prompt: Prompt
    attribute: str
    k: int
    form: Form = "json"
    keep: Keep = "added"
    allow_unknown: bool = False

    def __post_init__(self) -> None:
        self.prompt.expect(PLACEHOLDERS, ("Query", "subgroup"), self.form)

    def steps(self, topic: Topic) -> Steps[Refined]:
        """One chat a round, two where the first reply cannot be read."""
        best = Round(0, (), topic.find(()), True)
        rounds, values = [best], [best.page.objective]
        if not best.page.doc_ids:
            return Refined(topic.query, (best,), Stop.NO_RESULT)
        while (stop := topic.stopping.after(values)) is None:
            shares = topic.target, best.page.shares
            subgroup = most_underrepresented(*shares, self.allow_unknown)
            if subgroup is None:
                none = most_underrepresented(*shares) is None
                stop = Stop.NO_UNDERREPRESENTED_GROUP if none else Stop.UNKNOWN_UNDERREPRESENTED
                break
            replies = yield from self._asked(topic, best, subgroup)
            read, standing = replies[-1].read, best.added if self.keep == "added" else ()
            tried = Round(len(rounds), (*standing, *read.words), Page(), False, subgroup, read.words, replies)
            if not read.words:
                rounds.append(replace(tried, added=best.added))
                stop = Stop.NO_KEYWORDS if read.readable else Stop.UNREADABLE
                break
            tried = replace(tried, page=topic.find(tried.added))
            values.append(tried.page.objective)
            if topic.stopping.kept(values) == tried.iteration:
                best = tried = replace(tried, accepted=True)
            rounds.append(tried)
        return Refined(topic.query, tuple(rounds), stop, tuple(topic.reorder(best.page.doc_ids)))

    def chat(self, topic: Topic, standing: Round, subgroup: str) -> Chat:
        """The question of a round, beside the page as it stands."""
        page, named = standing.page, topic.target.items()
        shown = [name for name, share in named if share > 0 or page.shares[name] > 0]
        values = {
            "Query": clean(refined_text(topic.query, standing.added), WHOLE),
            "Target Exposure Distribution": _shares(topic.target, shown),
            "Current Exposure Distribution": _shares(page.shares, shown),
            "Top_K": self.k,
            "subgroup": _in_prompt(subgroup),
            "attribute": self.attribute,
        }
        about = {
            "task": "refine",
            "query_id": topic.query.query_id,
            "iteration": standing.iteration + 1,
            "subgroup": values["subgroup"],
            "query": self._known(topic, standing),
        }
        if topic.hints is not None:
            about["hints"] = list(topic.hints(subgroup, standing.added))
        return Chat(self.prompt.render(values, self.form), Text(), about=about)

    def _asked(self, topic: Topic, standing: Round, subgroup: str) -> Steps[tuple[Reply, ...]]:
        """The replies of a round: one, or one that cannot be read and the one after it."""
        chat, replies = self.chat(topic, standing, subgroup), list[Reply]()
        known = self._known(topic, standing)
        for draw in (0, RETRY_DRAWS):
            (completion,) = yield [replace(chat, draw=draw)]
            replies.append(self._read(completion, known))
            if replies[-1].read.readable:
                break
        return tuple(replies)

    def _known(self, topic: Topic, standing: Round) -> str:
        """The text that new words come behind."""
        return refined_text(topic.query, standing.added if self.keep == "added" else ())

    def _read(self, completion: Completion, known: str) -> Reply:
        read = read_keywords(completion, known, self.form == "paper")
        return Reply(completion.text, read, completion.prompt_tokens, completion.completion_tokens)


def refined_text(query: Query, added: Sequence[str]) -> str:
    """The original query with the words behind it."""
    return " ".join((query.text, *added))


def _shares(shares: Mapping[str, float], names: Sequence[str]) -> str:
    """JSON, the shares with three decimals."""
    return "{" + ", ".join(f"{json.dumps(_in_prompt(name))}: {shares[name]:.3f}" for name in names) + "}"


def _in_prompt(group: str) -> str:
    return group.replace(UNKNOWN, UNKNOWN_IN_PROMPT)
