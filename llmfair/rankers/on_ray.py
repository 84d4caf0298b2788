"""A ranker whose scores are made by processes of a Ray cluster, each with the same ranker: lists are dealt among them.

Of one list that all queries share each process scores a part: what takes the time is to read its items.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any

from llmfair.cluster import LOGS, START_SECONDS, check_same, joined, library, no_place
from llmfair.errors import BackendError, LlmfairError, line_of
from llmfair.nouns import Candidates
from llmfair.rankers.base import ScoringRanker

MOST_DEATHS = 3
"""How often a process is started again in all, and what it was scoring is scored again."""
PARTS = 4
"""Of a shared list for each process, so that none waits long for the last one."""

Scores = list[list[float]]
"""Of each list, of each of its items."""


class Scoring:
    """What runs in a process of the cluster: a ranker, made by `make`, that scores lists."""

    def __init__(self, make: Callable[[], ScoringRanker], folder: str) -> None:
        with suppress(OSError):  # a node that does not have it has the model elsewhere
            os.chdir(folder)
        self.make = make

    @cached_property
    def ranker(self) -> ScoringRanker:
        return self.make()

    def identity(self) -> str | LlmfairError:
        """Which ranker it is, or why there is none."""
        try:
            return self.ranker.identity
        except LlmfairError as error:
            return error

    def scores(self, place: int, lists: Sequence[Candidates]) -> tuple[int, Scores | LlmfairError]:
        """Those of the part at this place."""
        try:
            return place, [list(self.ranker.scores(one)) for one in lists]
        except LlmfairError as error:
            return place, error


class OnRay(ScoringRanker):
    """`here` is the ranker as it would be in this process, which loads no model; `make` makes the same elsewhere."""

    costly = True

    def __init__(
        self, make: Callable[[], ScoringRanker], here: ScoringRanker, processes: int, address: str | None
    ) -> None:
        self.identity, self.scored_together = here.identity, here.scored_together
        self._make, self._processes, self._address = make, processes, address

    def scores(self, candidates: Candidates) -> Sequence[float]:
        (found,) = self.scores_of_each([candidates])
        return found

    def scores_of_each(self, lists: Iterable[Candidates]) -> Iterator[Sequence[float]]:
        """The scores of each list.

        Raises UsageError for no cluster or another model, BackendError for processes that die, MissingExtra.
        """
        lists = [*lists]
        parts = self._parts(lists)
        found: list[list[float]] = [[] for _ in lists]
        for (places, _), scores in zip(parts, self._scored([of for _, of in parts]), strict=True):
            for place, some in zip(places, scores, strict=True):
                found[place] += some
        return iter(found)

    def _parts(self, lists: Sequence[Candidates]) -> list[tuple[range, list[Candidates]]]:
        """What is scored at once: whose lists, and the lists or parts of them."""
        if (
            not lists
            or not self.scored_together
            or any(of.documents is not lists[0].documents for of in lists)
        ):
            return [(range(place, place + 1), [one]) for place, one in enumerate(lists)]
        documents, each = lists[0].documents, self.scored_together
        size = each * max(1, -(-len(documents) // (each * PARTS * self._processes)))
        parts = (documents[start : start + size] for start in range(0, len(documents), size))
        return [
            (range(len(lists)), [replace(one, documents=part, scores=None) for one in lists])
            for part in parts
        ]

    def _scored(self, parts: Sequence[list[Candidates]]) -> list[Scores]:
        """The scores of each part, by as many processes as there are: each takes the next part when it has done one."""
        joined(self._address).result()
        ray = library()
        from ray.util import ActorPool

        processes = max(1, min(self._processes, len(parts)))
        gpus = int(ray.cluster_resources().get("GPU", 0))
        remote = ray.remote(Scoring).options(
            num_gpus=1 / ceil(processes / gpus) if gpus else 0,  # a process's share lies on one of them
            num_cpus=0,  # else each would hold a core for good, and those beyond the cores would wait for ever
            max_restarts=MOST_DEATHS,
            max_task_retries=MOST_DEATHS,
            scheduling_strategy="SPREAD",
        )
        actors = [remote.remote(self._make, str(Path.cwd())) for _ in range(processes)]
        found: list[Scores] = [[] for _ in parts]
        try:
            try:
                ray.get([actor.__ray_ready__.remote() for actor in actors], timeout=START_SECONDS)
            except ray.exceptions.GetTimeoutError:
                raise no_place(START_SECONDS) from None
            for identity in map(_answer, ray.get([actor.identity.remote() for actor in actors])):
                check_same(identity, self.identity)
            pool = ActorPool(actors)
            for place, scores in pool.map_unordered(
                lambda actor, numbered: actor.scores.remote(*numbered), enumerate(parts)
            ):
                found[place] = _answer(scores)
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None) or error
            raise BackendError(f"no process of the Ray cluster scores: {line_of(cause)}.", LOGS) from None
        finally:
            for actor in actors:
                ray.kill(actor)
        return found


def _answer(told: Any) -> Any:
    """What a process told. Raises what it told of."""
    if isinstance(told, LlmfairError):
        raise told
    return told
