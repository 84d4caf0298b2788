"""The page of an audit of a generator: tables of the trade-off, figures, and hostile text that stays text."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmfair.audits.kind import results_of
from llmfair.audits.runs.exhibits import exhibits_of
from llmfair.report.page import Page, Source, run_page
from llmfair.rundir import RunDir
from tests.audits.rag.test_rag import question, questions
from tests.cli.command import ran as done
from tests.cli.command import refuses
from tests.report.reading import grid, read
from tests.report.runs import hostile_questions

QUICK = ("rag", "-q", "--no-cache")
EVIL = "</script><img/src=x/onerror=alert(1)>"
TEXT = "<b>bold</b> </s> {{ braces }} {items} <|im_end|> $x$"
FIGURES = {
    "cost",
    "useful-shown",
    "useful-utility",
    "credited-share",
    "useful-credited",
    "credited-disparity",
}


def page_of(folder: Path) -> Page:
    run = RunDir(folder)
    return run_page(Source(run, run.read_manifest(), results_of(run)), exhibits_of(run, 3))


def ran(*more: str | Path) -> Path:
    done(*QUICK, "--no-report", "-o", "run", *more)
    return Path("run")


@pytest.mark.whole
def test_every_table_and_figure_of_a_run() -> None:
    page = page_of(ran("--retriever", "bm25", "--retriever", "bm25-okapi", "--alpha", "0,1,8"))
    assert {plot.name for plot in page.plots} == FIGURES
    assert page.first is not None and page.first.name == "cost"
    _, intervals, slopes = page.tables
    assert [row[0] for row in slopes.rows] == ["bm25", "bm25-okapi"]
    assert "paired by query" in intervals.title
    results = results_of(RunDir(Path("run")))
    assert len(intervals.rows) == sum(
        bool(cell.observations) for table in results.intervals.values() for cell in table.cells
    )


def test_queries_that_are_all_dropped_leave_a_page() -> None:
    page = page_of(ran("-d", questions(question("q1", "abbb"), question("q2", "bbbb"))))
    assert page.plots == [] and len(page.tables) == 1


def test_hostile_text_stays_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMFAIR_REPORT", "1")
    done(*QUICK, "-d", hostile_questions(Path("q.jsonl")), "-o", "run")
    page = read(Path("run/report.html"))
    text = "".join(page.text)
    assert EVIL in text and TEXT in text and "<i>q0" in text
    assert not page.named("img") and not page.named("link") and len(page.scripts) == 1
    done("report", "run", "-o", "again.html")
    assert Path("again.html").read_bytes() == Path("run/report.html").read_bytes()


# Several generators


@pytest.fixture
def generators() -> tuple[str, str]:
    """Runs of two generators, of which the second often does not follow what it reads."""
    both = ("--retriever", "bm25", "--retriever", "bm25-okapi", "--alpha", "1,8")
    for name, model in (("one", "fake:reader"), ("two", "fake:reader,follow=0.5")):
        done(*QUICK, "--no-report", "-o", name, "-m", model, *both)
    return "one", "two"


@pytest.mark.whole
def test_several_generators_stand_side_by_side(generators: tuple[str, str]) -> None:
    found = done("report", *generators, "--format", "md")
    assert "one: inconclusive" in found.out and "two: inconclusive" in found.out
    lines = grid(found.out)
    settings = next(line for line in lines if line[:2] == ["model", "bm25-deterministic"])
    assert settings[-2:] == ["gold", "queries"] and "undefined" not in found.out
    pooled = [line for line in lines if line[:2] == ["bm25", "fake:reader"]]
    assert len(pooled) == 2 + 1, "two intervals of Table 2, and Table 1"
    assert "EE-R of two generators is not of the same items" in found.out
    done("report", *generators, "-o", "both.html")
    titles = [text for text in read(Path("both.html")).text if text.startswith("What fairer lists cost")]
    assert titles == ["What fairer lists cost"]


def test_what_hangs_on_labels_is_left_out_where_they_differ(generators: tuple[str, str]) -> None:
    found = done("compare", *generators, "--json").json
    assert {row["measure"] for row in found["rows"]} == {"EE-D", "EU", "EU-change", "EAR(by=overlap)"}
    assert "gold" not in {row["condition"] for row in found["rows"]}
    assert found["runs"][1]["own"] == {"kept": 7, "other_labels": True}
    told = done("compare", *generators).out
    assert "other items are useful than for fake:reader" in told and "(protected: )" not in told
    refuses("find other items useful", "compare", *generators, "--measures", "EE-R,EU(norm=ceiling)")


@pytest.mark.whole
def test_with_the_same_labels_everything_compares() -> None:
    for name, samples in (("one", "20"), ("two", "10")):
        done(*QUICK, "--no-report", "-o", name, "--alpha", "1", "--samples", samples)
    found = done("compare", "one", "two", "--json").json
    assert {"EE-R", "EU"} <= {row["measure"] for row in found["rows"]}
    assert "gold" in {row["condition"] for row in found["rows"]}
    refuses("other numbers of lists", "compare", "one", "two", "--measures", "EE-D(of=samples)")
