"""Tables of measures: one column each, or one for each of their groups, and none that is empty."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from llmfair import terminal
from llmfair.metrics.names import parse_measure
from llmfair.nouns import Key
from llmfair.report.groups import AuditedRun, groups_of
from llmfair.report.html import html_of
from llmfair.report.phrases import cell
from llmfair.report.table import Table, latex, markdown, places_of, text_of
from llmfair.results import absent_row
from tests.cli.command import llmfair, ran
from tests.folders import balanced, write_folder
from tests.report.reading import grid


def test_a_table_that_is_too_wide_for_a_terminal_is_folded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "output", replace(terminal.output, color="always"))
    monkeypatch.setenv("COLUMNS", "40")
    rows = (("first", "preference odds below 0.8: 31 % less exposure"), ("second/0", "within"))
    terminal.print_table(Table("", ("run", "conclusion"), rows, ()))
    plain = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert [line.strip() for line in plain.splitlines()] == [
        "run       conclusion", "first     preference odds below 0.8:", "31 % less exposure", "second/0  within", "",
    ]  # fmt: skip


def test_only_columns_without_anything_go() -> None:
    columns: list[Any] = [(name, itemgetter(name)) for name in "abc"]
    rows: list[Any] = [{"a": "x", "b": "", "c": None}, {"a": "", "b": None, "c": 1000}]
    assert Table.of(["t", "", "u"], columns, rows, ("n",)) == Table(
        "t · u", ("a", "c"), (("x", ""), ("", "1,000")), ("n",)
    )
    assert Table.of("t", columns, []) == Table("t", ("a", "b", "c"))
    texts = [{"a": "x", "b": ""}, {"c": "1"}]
    assert Table.of_texts("t", texts, "n", "") == Table("t", ("a", "c"), (("x", ""), ("", "1")), ("n",))
    places = [("M", "@UNKNOWN"), ("M", "b"), ("L", ""), ("M", "a")]
    assert places_of(["N", "M"], places) == [("M", "a"), ("M", "b"), ("M", "@UNKNOWN")]


@pytest.mark.parametrize("form", [text_of, markdown, html_of, latex])
def test_a_further_table_stands_below_in_every_form(form: Callable[[Table], str]) -> None:
    text = form(Table("first", ("a",), (("x",),), ("note",), below=Table("second", ("b",), (("y",),))))
    assert (
        text.index("first")
        < text.index("note")
        < text.index("second")
        < text.index("y", text.index("second"))
    )


def test_a_table_in_latex_has_its_best_in_bold_and_no_sign_that_steers_it() -> None:
    rows = (("a_b & c", "0.17 [0.10, 0.21]"), ("[d] ~ {e}", "< 5 % → 1"))
    table = Table("50 % of #1", ("model^2", "odds $"), rows, ("≤ is at most",), strong=frozenset({(0, 1)}))
    assert latex(table).splitlines() == [
        r"\begin{table}",
        r"\caption{50 \% of \#1}",
        r"\begin{tabular}{ll}",
        r"\toprule",
        r"model\textasciicircum{}2 & odds \$ \\",
        r"\midrule",
        r"a\_b \& c & \textbf{0.17 [0.10, 0.21]} \\",
        r"{[}d] \textasciitilde{} \{e\} & $<$ 5 \% $\to$ 1 \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\par\footnotesize $\leq$ is at most",
        r"\end{table}",
    ]


def test_a_figure_that_is_missing_says_why_in_words() -> None:
    missing = absent_row("M", Key("neutral"))
    assert (
        cell(structs.replace(missing, reason="no_consistent_pair"))
        == "undefined (no pair that does not flip)"
    )
    assert cell(structs.replace(missing, reason="no_words_for_it")) == "undefined (no words for it)"


# How many queries are in a figure stands in its row wherever rows differ in it


@pytest.fixture
def data() -> Path:
    """Of seven queries one has no relevant item."""
    lists = balanced(7, 4, 4)
    lists["q0"] = [(doc_id, gender, 0) for doc_id, gender, _ in lists["q0"]]
    return write_folder(Path("lists"), lists)


def compared(data: Path, *arguments: str) -> tuple[str, list[str], list[list[str]]]:
    """The title, header and rows of two models' comparison."""
    for strength in ("0", "-1"):
        model = f"fake:biased,malformed=0,pairwise={strength}"
        ran(*arguments, "-q", "-d", data, "-m", model, "-o", f"run{strength}")
    told = llmfair("compare", "run0", "run-1", "--format", "md").out
    header, *rows = grid(told)
    title = next(line for line in told.splitlines() if line and not line.startswith("**"))
    return title, header, rows


@pytest.mark.whole
def test_rows_of_a_comparison_say_how_many_queries_are_in_them(data: Path) -> None:
    title, header, rows = compared(data, "pairwise", "--pairs", "4", "--noise-share", "0")
    assert title.endswith(" · 7 queries")
    queries = {(row[0], row[1]): row[header.index("queries")] for row in rows}
    assert queries["flips", "relevant"] == "6" and queries["flips", "irrelevant"] == "7"


def test_measured_runs_of_other_queries_say_how_many_each_ranks(data: Path) -> None:
    rankings = {
        query: [f"{query} Q0 {doc_id} {place} {-place} mine\n" for place, (doc_id, *_) in enumerate(rows, 1)]
        for query, rows in balanced(7, 4, 4).items()
    }
    for name, most in (("all", 7), ("few", 4), ("too", 7)):
        kept = [line for lines in list(rankings.values())[:most] for line in lines]
        Path(f"{name}.run").write_text("".join(kept))
    told = ran("score", "all.run", "few.run", "-d", data, "--measures", "ExpRatio", "--format", "md").out
    header, *rows = grid(told)
    assert " · 4 to 7 queries · 2 rankings\n" in told
    assert {row[0]: row[header.index("queries ranked")] for row in rows} == {"all.run": "7", "few.run": "4"}
    assert told.count("- only 4 queries: no intervals") == 1
    told = llmfair("score", "all.run", "too.run", "-d", data, "--measures", "ExpRatio", "--format", "md").out
    assert " · 7 queries · 2 rankings\n" in told and "queries ranked" not in told
    assert told.count("only 7 queries") == 1


SAMPLE, EVAL = "sample", "trec-fair/2022/eval"


def audited(model: str, attribute: str, lists: str, dataset: str = SAMPLE, **flags: Any) -> AuditedRun:
    results: Any = SimpleNamespace(
        task="listwise", dataset=dataset, attribute=attribute, named_model=model, short_name=model
    )
    return AuditedRun(Path(model), {"lists_sha256": lists, "queries": ["q"]}, flags, results)


A, B = audited("a", "gender", "1" * 64), audited("b", "gender", "2" * 64, relevant=24)
IN_EVAL, IN_PLACES = (audited("a", name, name, f"{EVAL}/{name}") for name in ("gender", "location"))


@pytest.mark.parametrize(
    ("runs", "tables"),
    [
        ([A, audited("b", "gender", "1" * 64)], [("sample", "", "a b")]),
        ([A, B], [("sample", "lists 111111", "a"), ("sample", "lists 222222, relevant 24", "b")]),
        ([A, audited("b", "gender", "2" * 64)], [("sample", "lists 111111", "a"), ("sample", "lists 222222", "b")]),
        # lists of another attribute are others, and stand beside those that the same settings drew
        ([A, B, audited("b", "location", "3" * 64, relevant=24)],
         [("sample", "lists 111111", "a"), ("sample", "lists 222222 and 333333, relevant 24", "b")]),
        ([IN_EVAL, IN_PLACES], [(EVAL, "", "a")]),
        ([audited("a", name, name, f"hf:org/{name}") for name in ("gender", "location")],
         [("hf:org/gender", "", "a"), ("hf:org/location", "", "a")]),
    ],
)  # fmt: skip
def test_a_table_is_of_one_collection_and_of_the_same_lists(
    runs: list[AuditedRun], tables: list[tuple[str, str, str]]
) -> None:
    groups = groups_of(runs)
    assert [(group.dataset, group.lists, " ".join(group.rows)) for group in groups] == tables


@pytest.mark.parametrize(
    ("name", "bounding"),
    [
        ("ExpRatio", "ExpRatio"),
        ("ExpRatio(agg=geometric,control=order,missing=zero)", "ExpRatio"),
        ("ExcessRatio(control=order)", "ExpRatio"),
        ("ExpRatio@20", ""),
        ("ExpRatio(stratum=relevant)", ""),
        ("P@20", ""),
        ("WinRatio", ""),
    ],
)
def test_the_attainable_range_bounds_exposure_over_the_whole_list(name: str, bounding: str) -> None:
    assert parse_measure(name).reach == bounding
