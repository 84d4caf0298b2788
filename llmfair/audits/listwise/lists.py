"""The rankings of a run folder, as figures and side-by-side lists need them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from llmfair.errors import UsageError
from llmfair.io.files import read_lines
from llmfair.io.trec import Problems, read_run
from llmfair.rundir import ONE_OF_SEVERAL

SIDES = ("protected", "unprotected")
HINT = "the command that began the run writes it anew"


@dataclass(frozen=True)
class CandidatesLine:
    """A line of candidates.jsonl: a list as the dataset gave it, with relevance and side of each document."""

    query_id: str
    doc_ids: Sequence[str]
    relevance: Sequence[int]
    side: Sequence[str | None]


@dataclass(frozen=True)
class RankedLists:
    """Candidates by query_id with their sides and relevance, and what was ranked: `ranked[condition][query_id]`.

    Of several orders and repeats, every one is there, the first first; each is a tuple of doc_ids, best first, and
    `runs[condition][query_id]` numbers them from 0: (initial order, repeat).
    """

    sides: Mapping[str, Mapping[str, str | None]]
    relevance: Mapping[str, Mapping[str, int]]
    ranked: Mapping[str, Mapping[str, Sequence[tuple[str, ...]]]]
    runs: Mapping[str, Mapping[str, Sequence[tuple[int, int]]]]

    def ranks(self, condition: str, side: str) -> NDArray[np.int64]:
        """The ranks, from 1, of all items of a side over all queries and runs; shape (items,)."""
        return np.array(
            [
                rank
                for query_id, rankings in self.ranked[condition].items()
                for ranking in rankings
                for rank, doc_id in enumerate(ranking, start=1)
                if self.sides[query_id].get(doc_id) == side
            ],
            dtype=np.int64,
        )

    def protected_share(self, condition: str) -> NDArray[np.float64]:
        """Share of protected among the first r items that have a side, mean over queries and runs; shape (r,).

        As far as the shortest list reaches; rank 1 alone where an item without side comes first counts for none.
        """
        curves = []
        for query_id, rankings in self.ranked[condition].items():
            sides = self.sides[query_id]
            for ranking in rankings:
                on = np.array([[sides.get(doc_id) == side for side in SIDES] for doc_id in ranking])
                counts = np.cumsum(on.reshape(-1, 2), axis=0, dtype=float)
                with np.errstate(invalid="ignore"):
                    curves.append(counts[:, 0] / counts.sum(axis=1))
        if not curves:
            return np.array([])
        shortest = min(map(len, curves))
        stacked = np.array([curve[:shortest] for curve in curves])
        known = ~np.isnan(stacked)
        share: NDArray[np.float64] = np.where(known, stacked, 0).sum(axis=0) / np.maximum(
            known.sum(axis=0), 1
        )
        return share

    def pool_share(self) -> float | None:
        """Share of protected among all candidates that have a side, mean over queries."""
        shares = []
        for sides in self.sides.values():
            protected, unprotected = (list(sides.values()).count(side) for side in SIDES)
            if protected + unprotected:
                shares.append(protected / (protected + unprotected))
        return sum(shares) / len(shares) if shares else None


def read_lists(folder: Path, conditions: Sequence[str]) -> RankedLists | None:
    """The lists of a listwise run folder; None where it has none. Raises UsageError for files that are damaged."""
    path = folder / "candidates.jsonl"
    if not path.is_file():
        return None
    sides: dict[str, dict[str, str | None]] = {}
    relevance: dict[str, dict[str, int]] = {}
    for row in read_lines(path, CandidatesLine):
        if not len(row.doc_ids) == len(row.side) == len(row.relevance):
            raise UsageError(f"{path}: the list of {row.query_id} lacks a group or relevance.", HINT)
        sides[row.query_id] = dict(zip(row.doc_ids, row.side, strict=True))
        relevance[row.query_id] = dict(zip(row.doc_ids, row.relevance, strict=True))
    ranked: dict[str, dict[str, list[tuple[str, ...]]]] = {condition: {} for condition in conditions}
    runs: dict[str, dict[str, list[tuple[int, int]]]] = {condition: {} for condition in conditions}
    problems = Problems()
    for file in sorted((folder / "rankings").glob("*.run"), key=lambda file: (len(file.name), file.name)):
        name = file.name.removesuffix(".run")
        numbered = None if name in ranked else ONE_OF_SEVERAL.search(name)
        condition = name[: numbered.start()] if numbered else name
        number = (int(numbered[1]), int(numbered[2])) if numbered else (0, 0)
        if condition in ranked:
            for query_id, ranking in read_run(file, problems).rankings.items():
                if query_id not in sides:
                    raise UsageError(f"{file}: ranks the query {query_id}, which {path.name} lacks.", HINT)
                ranked[condition].setdefault(query_id, []).append(ranking.doc_ids)
                runs[condition].setdefault(query_id, []).append(number)
    problems.raise_any(HINT)
    return RankedLists(
        sides,
        relevance,
        {condition: dict(sorted(of_it.items())) for condition, of_it in ranked.items()},
        runs,
    )
