"""What a kind that says nothing of its reports has all the same: a table, verdicts, figures, a whole page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from llmfair.audits.kind import kind_of
from llmfair.audits.runs.exhibits import exhibits_of
from llmfair.pages import page_of
from llmfair.report.html import page_html
from llmfair.report.page import Source, read_source
from llmfair.report.phrases import cell
from llmfair.report.words import METHOD, Wording
from llmfair.results import Results
from llmfair.rundir import RunDir
from tests.report.runs import folder as folder
from tests.report.runs import reports as reports
from tests.report.runs import run

pytestmark = pytest.mark.whole


def silenced(task: str, monkeypatch: pytest.MonkeyPatch, **words: Any) -> Wording:
    """The words of any kind, with these of its own, in the place of those of this kind; no condition is aside."""
    kind, silent = kind_of(task), Wording(title="Silent audit", **words)
    monkeypatch.setattr(type(kind), "measure", replace(kind.measure, aside=()))
    monkeypatch.setattr(type(kind), "words", silent)
    return silent


@pytest.mark.parametrize("task", ["listwise", "pairwise"])
def test_any_kind_has_a_section(folder: Path, task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = silenced(task, monkeypatch)
    source = read_source(RunDir(run(folder, task)))
    results, exhibits = source.results, exhibits_of(source.run, 0)
    section = words.section(results, source.run.path, exhibits)
    conditions = list(results.design.keys)
    assert [row[0] for row in section.table.rows] == conditions
    assert section.table.header[0] == "condition" and section.table.header[-1] == "conclusion"
    assert section.table.title.startswith(
        f"Silent audit · {results.dataset} · {results.attribute} (protected: "
    )
    cells = results.by_key()
    first = next(measure for measure in results.shown if (measure, conditions[0]) in cells)
    assert all(cell(cells[first, row[0]]) in row for row in section.table.rows)
    assert [verdict.of for verdict in section.verdicts] == conditions[:3]
    assert all(verdict.sentence for verdict in section.verdicts)
    assert [plot.name for plot in section.plots] == ["odds"] and section.furthest is None
    bare = words.section(structs.replace(results, findings={}), source.run.path, exhibits)
    assert "conclusion" not in bare.table.header and not any(one.conclusion for one in bare.verdicts)
    assert [plot.name for plot in bare.plots] == ["ratio"]
    linear = {
        name: replace(measure, definition=replace(measure.definition, scale="linear"))
        for name, measure in exhibits.measures.items()
    }
    drawn = words.section(results, source.run.path, replace(exhibits, measures=linear)).plots
    assert not drawn or {finding.measure for finding in results.findings.values()}.isdisjoint(linear)
    assert section.words == METHOD


@pytest.mark.parametrize("task", ["listwise", "pairwise"])
def test_a_kind_that_says_nothing_has_pages_of_one_and_of_several(
    folder: Path, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    silenced(task, monkeypatch)
    sources = [read_source(RunDir(run(folder, task)))]
    page = page_of(sources, 2)
    assert page_html(page) and page.verdicts and len(page.evidence) == 2
    twice = [*sources, Source(sources[0].run, sources[0].manifest, renamed(sources[0]))]
    both = page_of(twice, 0)
    assert page_html(both) and {plot.name for plot in both.plots} == {"odds-0"}
    assert any(table.title.endswith("by model and condition") for table in both.tables)


def renamed(source: Source) -> Results:
    """The results as if of another model."""
    results: Results = source.results
    return structs.replace(results, model=f"{results.model}-2")


@pytest.mark.parametrize("task", ["listwise", "pairwise"])
def test_conclusions_are_on_every_page_of_a_kind_whose_conditions_have_titles(
    folder: Path, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    silenced(task, monkeypatch)
    source = read_source(RunDir(run(folder, task)))
    twice = [source, Source(source.run, source.manifest, renamed(source))]

    def told() -> tuple[list[str], list[str]]:
        conclusions = [table for table in page_of(twice, 0).tables if table.title.startswith("Conclusions")]
        rows = [text for table in conclusions for row in table.rows for text in row]
        return [one.sentence for one in page_of([source], 0).verdicts], rows

    plain, found = told(), source.results
    titles = {condition: f"asked {condition}" for condition in found.design.keys}
    silenced(task, monkeypatch, titles=titles)
    (table,) = page_of([source], 0).tables
    assert table.rows[0][0] == f"asked {found.design.keys[0]}"
    assert told() == plain and all(plain)
    assert {*table.said.values()} - {""} <= {*plain[1]}
