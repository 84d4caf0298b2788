"""A ranker that scores lists is asked for a list in several orders only where the order can make a difference.

The first lists are asked in every order, and again. Where each of them is ranked alike every time, every other list is
asked once, and its scores stand for all its chains. Which lists are first hangs on the seed, and what is asked of the
others on their answers alone: workers, interruptions and replays change nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

from llmfair.asking.dispatch import Program
from llmfair.io.files import encode
from llmfair.nouns import Chat, Completion, Finish, Probe, Steps, drive
from llmfair.rankers.listwise import ListwiseRanker
from llmfair.rankers.strategy import Ranked

FIRST_LISTS = 3
"""Lists whose every order is asked: shuffles of a hundred documents that are ranked alike six times are no chance."""
STAGE = "orders"
"""What is asked once it is known what the order of a list does."""
Listed = tuple[str, str]
"""A list and the words that it is asked with: query and variant of the prompt."""


@dataclass(frozen=True)
class Shuffles:
    """The chains of an audit of a ranker that scores lists."""

    ranker: ListwiseRanker
    probes: Sequence[Probe]

    @cached_property
    def first(self) -> Collection[str]:
        """The queries whose lists are asked in every order."""
        return [*dict.fromkeys(probe.candidates.query.query_id for probe in self.probes)][:FIRST_LISTS]

    @cached_property
    def one_of_each(self) -> Mapping[Listed, Probe]:
        """The first chain of every list."""
        return {_listed(probe): probe for probe in reversed(self.probes)}

    def at_once(self) -> Iterator[Probe]:
        """What is asked whatever the answers are."""
        for probe in self.probes:
            if probe.candidates.query.query_id in self.first or probe is self.one_of_each[_listed(probe)]:
                yield probe

    def later(self) -> Iterator[Probe]:
        """What is asked where the order of a list makes a difference."""
        known = {probe.probe_id for probe in self.at_once()}
        return (probe for probe in self.probes if probe.probe_id not in known)

    def programs(self, results: Mapping[str, Ranked]) -> Iterator[Program]:
        """The chains that are left: asked, or without a question where the first lists were ranked alike."""
        alike = self.alike(results)
        for probe in self.later():
            answered = results.get(self.one_of_each[_listed(probe)].probe_id)
            scores = _scores(answered) if alike and answered is not None else {}
            if scores:
                yield Program(probe.probe_id, lambda probe=probe, scores=scores: self._unasked(probe, scores))  # type: ignore[misc]
            else:
                yield Program(probe.probe_id, lambda probe=probe: self.ranker.steps(probe))  # type: ignore[misc]

    def alike(self, results: Mapping[str, Ranked]) -> bool:
        """Whether every order of each of the first lists was answered, and by one order of documents."""
        of_first = [probe for probe in self.probes if probe.candidates.query.query_id in self.first]
        return all(
            None not in orders and len({*orders}) == 1
            for _, chains in groupby(sorted(of_first, key=_listed), key=_listed)
            if (orders := [_order(results.get(probe.probe_id)) for probe in chains])
        )

    def said(self, results: Mapping[str, Ranked]) -> str:
        """What the run says of chains that were not asked; empty where all were."""
        spared = sum(not results[one.probe_id].asked for one in self.later() if one.probe_id in results)
        if not spared:
            return ""
        return (
            f"the first {len(self.first)} lists were ranked alike in every order, so that of each other one a single "
            f"order was asked: its scores stand for {spared:,} further requests"
        )

    def _unasked(self, probe: Probe, scores: Mapping[str, float]) -> Steps[Ranked]:
        """A chain that asks nothing: as the scores of its list make it."""

        def answer(chat: Chat) -> Completion:
            pairs = [[place, scores[doc_id]] for place, doc_id in enumerate(chat.about["doc_ids"])]
            return Completion(encode(pairs).decode(), Finish.STOP)

        yield from ()
        return replace(drive(self.ranker.steps(probe), answer), asked=False)


def _listed(probe: Probe) -> Listed:
    return probe.candidates.query.query_id, probe.variant


def _scores(ranked: Ranked | None) -> dict[str, float]:
    """The scores of all documents of a list; none where one of them lacks its own."""
    if ranked is None:
        return {}
    found = [pair for one in ranked.windows for pair in zip(one.shown, one.scores or (), strict=False)]
    shown = sum(len(one.shown) for one in ranked.windows)
    whole = {doc_id: score for doc_id, score in found if score is not None}
    return whole if len(whole) == shown else {}


def _order(ranked: Ranked | None) -> tuple[Any, ...] | None:
    """The documents of a list as their scores order them, equal ones together; None where there is no such answer."""
    scores = _scores(ranked)
    ordered = sorted(scores, key=lambda doc_id: (-scores[doc_id], doc_id))
    return tuple(tuple(equal) for _, equal in groupby(ordered, key=scores.__getitem__)) or None
