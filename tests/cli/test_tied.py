"""Runs whose scores tie: what the order of ids does there is no preference of the ranker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.command import Outcome, kept, llmfair, ran
from tests.folders import balanced, write, write_folder

pytestmark = pytest.mark.whole

NAMES = {
    "men last": ("female", "male"),
    "men first": ("z_female", "male"),
    "mixed": ("", ""),
}


def write_run(names: str, score: Callable[[int, str], float], queries: int = 44, n: int = 40) -> None:
    """A run of lists whose every other item is female and whose grades are drawn, scored by grade and group."""
    rng = np.random.default_rng(7)
    run, qrels, groups = [], [], []
    for q in range(queries):
        for i in rng.permutation(n):
            group, grade = ("female", "male")[i % 2], int(rng.integers(0, 2))
            doc_id = f"{NAMES[names][i % 2]}_{q}_{rng.integers(10**9)}"
            run.append(f"{q} Q0 {doc_id} 1 {score(grade, group)} graded")
            qrels.append(f"{q} 0 {doc_id} {grade}")
            groups.append(f"{doc_id}\tgender\t{group}")
    write(Path("grades.run"), run)
    write(Path("qrels.txt"), qrels)
    write(Path("groups.tsv"), groups)


def scored(*arguments: str) -> Outcome:
    return llmfair("score", "grades.run", "--qrels", "qrels.txt", "--groups", "groups.tsv", *arguments)


@pytest.mark.parametrize("names", NAMES)
def test_grades_that_are_blind_to_groups_are_at_odds_of_1_whatever_the_ids(names: str) -> None:
    rng = np.random.default_rng(1)
    write_run(names, lambda grade, group: int(rng.integers(0, 3)) + grade)
    found = scored("--json", "--fail-on", "disparity")
    verdict = found.json["verdict"]
    assert found.code == 0 and verdict["status"] == "parity"
    assert 0.93 < verdict["estimate"] < 1.07


def test_a_preference_shows_through_ties() -> None:
    rng = np.random.default_rng(1)
    write_run("men last", lambda grade, group: int(rng.integers(0, 3)) + grade - (group == "female"))
    found = scored("--fail-on", "disparity")
    assert found.code == 4 and "disparity: female items" in " ".join(found.out.split())


@pytest.mark.parametrize("share", [1.0, 0.95])
def test_of_equal_scores_nothing_is_concluded(share: float) -> None:
    rng = np.random.default_rng(1)
    write_run("men last", lambda grade, group: 0 if rng.random() < share else grade + (group == "male"))
    found = scored("--fail-on", "disparity")
    assert found.code == 0
    said = " ".join(found.out.split())
    assert (
        "not assessable: " in said and "tied in score that no preference could leave the parity band" in said
    )
    assert "NEXT scores that tell more items apart" in said


def test_many_ties_are_said_first_of_all_runs_at_once() -> None:
    rng = np.random.default_rng(1)
    write_run("men last", lambda grade, group: int(rng.integers(0, 3)) + grade)
    write(Path("other.run"), Path("grades.run").read_text().splitlines()[:-40])
    (note,) = (line for line in scored("other.run", "-v").out.splitlines() if "tied in score" in line)
    assert note.startswith("  grades.run: 1,7") and ", other.run: 1,7" in note
    assert "tied in score" in scored("other.run").out  # among the few that are shown


def test_a_run_folder_of_a_ranker_that_scores_has_the_ties_of_its_audit() -> None:
    lists = balanced(12, 10, 10)
    titles = {
        d: f"topic {q[1:]} " * (1 + (int(d[-1]) + ("f" in d)) % 3 + int(q[1:]) % 2)
        for q, rows in lists.items()
        for d, *_ in rows
    }
    write_folder(Path("alike"), lists, titles, {q: f"topic {q[1:]}" for q in lists})
    ran("listwise", "-d", "alike", "-m", "bm25", "-o", "run", "--no-report")
    measure = "PreferenceOdds(of=ranking)"
    audited = [row for row in kept("results", "run")["rows"] if row["measure"] == measure]
    again = [row for row in llmfair("score", "run", "--json").json["rows"] if row["measure"] == measure]
    assert [(row["value"], row["low"]) for row in audited if row["condition"] == "neutral"] == [
        (row["value"], row["low"]) for row in again
    ]
