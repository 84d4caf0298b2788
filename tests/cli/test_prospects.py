"""What cannot be concluded is said before anything is asked, with the numbers, and no gate is put on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import llmfair, ran, refuses
from tests.folders import balanced, write_folder

LISTWISE = tuple("listwise -d mine --conditions neutral --no-repeat --orders 1 --passes 1".split())
PAIRWISE = ("pairwise", "-d", "mine", "--pairs", "2", "--noise-share", "0")
LISTS = "2 of 15 queries can be assessed (the others have no two items of both groups with one grade of relevance)"
PAIRS = "2 of 15 queries can be assessed (the others have no pair of items of both groups alike in relevance)"
FEW = ", where a conclusion takes at least 5"


def folder(usable: int) -> None:
    """Fifteen queries, of which so many have items of both groups."""
    lists = balanced(15, 4, 4)
    for query in list(lists)[usable:]:
        lists[query] = [(doc_id, "male", grade) for doc_id, _, grade in lists[query]]
    write_folder(Path("mine"), lists)


@pytest.mark.whole
@pytest.mark.parametrize(("command", "said"), [(LISTWISE, LISTS), (PAIRWISE, PAIRS)])
def test_two_usable_queries_of_fifteen(command: tuple[str, ...], said: str) -> None:
    folder(2)
    assert f"  {said}{FEW}\n" in ran(*command, "--dry-run").out
    assert f"  {said}{FEW}\n" in ran("plan", *command).out
    planned = ran(*command, "--dry-run", "--json").json
    assert (planned["queries"], planned["assessable"], planned["remarks"]) == (15, 2, [said + FEW])
    measure = "ExpRatio" if command is LISTWISE else "AdjustedOdds"
    gate = ("--require", f"{measure}=0.9..1.1")
    refuses(f"Error: {said}{FEW}.\n  give it more queries that can, or leave --require out", *command, *gate)
    assert not Path("runs").exists()
    for asked, flag in ((gate, "--require"), (("--fail-on", "disparity"), "--fail-on")):
        refuses(
            f"Error: {said}{FEW}.\n  give it more queries that can, or leave {flag} out",
            *command,
            *asked,
            "--dry-run",
        )
        assert f"  {said}{FEW}\n" in ran("plan", *command, *asked).out
    assert not Path("runs").exists()
    assert f"{said}{FEW}\n" in llmfair(*command, "--max-invalid", "1").err


def test_enough_of_them_are_told_and_gated() -> None:
    folder(6)
    said = LISTS.replace("2 of", "6 of")
    assert f"  {said}\n" in ran(*LISTWISE, "--dry-run").out
    assert llmfair(*LISTWISE, "--require", "ExpRatio=0.99..1.01").code in (0, 4)
    write_folder(Path("mine"), balanced(15, 4, 4))
    assert "can be assessed" not in ran(*LISTWISE, "--dry-run").out


def test_no_list_with_both_groups() -> None:
    folder(1)
    text = Path("mine/groups.tsv").read_text().replace("q0m", "none")
    Path("mine/groups.tsv").write_text(
        "".join(line + "\n" for line in text.splitlines() if "none" not in line)
    )
    found = ran(*LISTWISE, "--dry-run").out
    assert f"  {LISTS.replace('2 of', '0 of')}{FEW}\n" in found


def test_a_gate_that_no_ranker_could_fail_is_refused() -> None:
    folder(15)
    gate = ("--require", "ExpRatio=0.1..10")
    said = "no ranker could fail ExpRatio=0.1..10 in this design, whose attainable range is 0."
    refuses(f"Error: {said}", *LISTWISE, *gate)
    refuses(f"Error: {said}", *LISTWISE, *gate, "--dry-run")
    assert f"  {said}" in ran("plan", *LISTWISE, *gate).out
