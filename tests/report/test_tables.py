"""Tables of measures: one column each, or one for each of their groups, and none that is empty."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from llmfair import registry, terminal
from llmfair.audits.runs.exhibits import declared
from llmfair.metrics.base import measure as defined
from llmfair.report.page import with_reach
from llmfair.report.tables import Table, columns_of, filled, the_same, uncut_notes
from llmfair.results import Reach, absent_row
from tests.cli.command import kept, llmfair, ran
from tests.report.reading import grid, read

LISTS = ("listwise", "-n", "5", "--orders", "1", "--passes", "1", "--no-repeat", "-q", "-o", "run")
PAIRS = ("pairwise", "-n", "5", "--pairs", "4", "-q", "-o", "run")


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (
            80,
            " run       conclusion\n first     preference odds below 0.8: 31 % less exposure\n second/0  within\n",
        ),
        (
            40,
            " run       conclusion\n first     preference odds below 0.8:\n           31 % less exposure\n"
            " second/0  within\n",
        ),
        (
            30,
            " run       conclusion\n first     preference odds\n           below 0.8: 31 %\n           less exposure\n"
            " second/0  within\n",
        ),
    ],
)
def test_what_fits_a_terminal(
    width: int, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table; where it is too wide, cells are folded."""
    monkeypatch.setattr(terminal, "output", replace(terminal.output, color="always"))
    monkeypatch.setenv("COLUMNS", str(width))
    rows = (("first", "preference odds below 0.8: 31 % less exposure"), ("second/0", "within"))
    terminal.print_table(Table("", ("run", "conclusion"), rows, ()))
    plain = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert [line.rstrip() for line in plain.splitlines()] == [*shown.splitlines(), ""]


@pytest.mark.whole
def test_a_measure_of_groups_has_a_column_for_each_in_every_format() -> None:
    header, *rows = grid(llmfair(*LISTS, "--measures", "Share@20,Exposure", "--format", "md").out)
    groups = [("Share@20", group) for group in ("female", "male", "nonbinary", "@UNKNOWN")]
    groups += [("Exposure", side) for side in ("protected", "unprotected")]
    assert header[1:-1] == [f"{measure}, {group} [95 %]" for measure, group in groups]
    results = kept("results", "run")
    values = {(r["measure"], r["group"], r["condition"]): r["value"] for r in results["rows"]}
    assert {row[0] for row in rows} == {"neutral", "male", "female", "initial ranking"}
    for name, *cells in rows:
        condition = "initial" if name == "initial ranking" else name
        for place, (measure, group) in enumerate(groups):
            assert cells[place].startswith(f"{values[measure, group, condition]:.3f} [")
    told = llmfair(*LISTS, "-v", "--measures", "Share@20,Exposure").out
    ran("report", "run")
    page = "".join(read(Path("run/report.html")).text)
    assert all(heading in told and heading in page for heading in header)
    header, *rows = grid(llmfair("score", "run", "--measures", "Share@20", "--format", "md").out)
    assert header == ["run", *(f"{measure}, {group} [95 %]" for measure, group in groups[:4]), "conclusion"]
    assert {row[0]: row[1] for row in rows}["male"].startswith(
        f"{values['Share@20', 'female', 'male']:.3f} ["
    )


@pytest.mark.parametrize("asked", [PAIRS, ("study", "windows", "--settings", "10/5", *LISTS[1:7])])
def test_what_was_not_measured_has_no_column(asked: tuple[str, ...]) -> None:
    measures = "FlipRate" if asked is PAIRS else "Share@20"
    header, *rows = grid(ran(*asked, "--measures", measures, "--format", "md").out)
    assert not {"WinRatio", "ExpRatio [95 %]"} & {*header}
    assert all(any(column) for column in zip(*rows, strict=True))


def test_only_columns_without_anything_go() -> None:
    table = Table("t", ("a", "b", "c"), (("x", "", ""), ("", "", "1")), ("n",))
    assert filled(table) == Table("t", ("a", "c"), (("x", ""), ("", "1")), ("n",))
    none = Table("t", ("a", "b"), (), ())
    assert filled(none) == none
    rows = [structs.replace(absent_row("M", ""), group=group) for group in ("@UNKNOWN", "b", "a", "b")]
    assert columns_of(["N", "M"], rows) == [("M", "a"), ("M", "b"), ("M", "@UNKNOWN")]


def test_a_figure_that_is_missing_says_why_in_words() -> None:
    missing = absent_row("M", "neutral")
    assert (
        cell(structs.replace(missing, reason="no_consistent_pair"))
        == "undefined (no pair that does not flip)"
    )
    assert cell(structs.replace(missing, reason="no_words_for_it")) == "undefined (no words for it)"


def test_measures_are_the_same_where_some_figure_says_so() -> None:
    nothing = absent_row("M", "neutral")
    figures = {
        "A": nothing, "B": nothing, "bounded": structs.replace(nothing, high=0.1),
        "C": structs.replace(nothing, value=0.0), "D": structs.replace(nothing, value=0.0),
    }  # fmt: skip
    cells = {(measure, "neutral"): row for measure, row in figures.items()}
    assert the_same([*figures], ["neutral", "initial"], cells) == {"D": "C"}


def test_what_is_about_an_average_is_not_called_a_limit() -> None:
    said = llmfair(*LISTS, "-v").out
    assert (
        " on average over random orders for a perfect ranker in this setting" in said
        and "at most" not in said
    )
    row = with_reach(Table("t", ("a", "P@20", "b"), (), ()), {"P@20": Reach(high=0.75)}).rows[-1]
    assert row[:2] == ("attainable", "about 0.750")


def test_a_measure_says_whether_the_order_above_its_cutoff_counts() -> None:
    own = defined("OwnSet", cutoff="required", of_a_set=True)(lambda judged, cutoff: {"": 1.0})
    try:
        asked = declared(
            ["OwnSet@5", "P@5", "P(rel=2)@5", "R@5", "overlap@5", "nDCG@5", "AP", "P@6", "Nobody@5"]
        )
    finally:
        del registry._found["measure"][own.name]
    told = dict(uncut_notes(asked, 5))
    assert list(told) == ["OwnSet@5", "P@5", "P(rel=2)@5", "R@5", "overlap@5", "P@6"]
    assert told["P@6"] == "no list is longer than 6, so every order has the same"
    assert uncut_notes(asked, 7) == [] == uncut_notes(asked, 0)
