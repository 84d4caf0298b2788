"""The page of every kind of run: whole, escaped, self-contained, the same bytes each time; of an adapter; of a kind
that says nothing of its reports."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import shlex
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec import structs

from llmfair.api import page_of
from llmfair.audits.commands import command_of
from llmfair.audits.kind import kind_of
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.pairwise.settings import PairwiseSettings
from llmfair.audits.subject import adapter_warnings
from llmfair.report.groups import Furthest
from llmfair.report.html import FOLDER, SCRIPT, page_html
from llmfair.report.page import Page, Source, cost_of, read_source
from llmfair.report.words import METHOD, Wording
from llmfair.results import query_figures
from llmfair.rundir import RunDir
from tests.cli.command import llmfair, ran
from tests.manifests import invocation, manifest
from tests.report.reading import read
from tests.report.runs import BIASED, EVIL, TOPIC, lists, run
from tests.report.runs import folder as folder
from tests.report.runs import reports as reports
from tests.tuning.answered import adapter

pytestmark = pytest.mark.whole


def page_in(folder: Path, evidence: int = 0) -> Page:
    return page_of([read_source(RunDir(folder))], evidence)


def furthest(folder: Path) -> Furthest:
    found = page_in(folder).furthest
    assert found is not None
    return found


@pytest.mark.parametrize(
    "name", ["listwise", "no-model", "pairwise", "sequential", "none-readable", "stopped"]
)
def test_a_page_is_whole_and_asks_nobody(folder: Path, name: str) -> None:
    page = read(run(folder, name) / "report.html")
    assert page.named("html") == [{"lang": "en"}] and len(page.named("h1")) == len(page.named("main")) == 1
    (script,) = page.scripts
    hashed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{hashed}'; style-src 'unsafe-inline'; img-src data:"
    assert script == (FOLDER / SCRIPT).read_text("utf-8")
    assert {"http-equiv": "Content-Security-Policy", "content": policy} in page.named("meta")
    assert all("scope" in header for header in page.named("th"))
    for tag, attributes in page.tags:
        assert tag not in ("img", "link", "iframe", "object", "embed", "form", "base", "b", "i")
        for of, value in attributes.items():
            assert not of.startswith("on") and "http" not in value.replace("http-equiv", ""), (tag, value)
            assert of not in ("href", "src") or value.startswith("#")
    assert not re.search(r"@import|url\((?!#)", "".join(page.styles))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    used = {attributes["href"][1:] for _, attributes in page.tags if "href" in attributes}
    used |= set(re.findall(r"url\(#([^)]*)\)", " ".join(v for _, a in page.tags for v in a.values())))
    assert used <= set(ids) and len(ids) == len(set(ids))
    for drawing in page.named("svg"):
        assert drawing["role"] == "img" and drawing["aria-label"].rstrip().endswith((".", "。"))


def test_the_script_is_small_and_asks_nobody() -> None:
    script = (FOLDER / SCRIPT).read_text("ascii")
    forbidden = r"https?:|fetch|XMLHttp|import|eval|Function|innerHTML|</script|<!--|cookie|Storage"
    assert len(script) <= 15_000 and not re.search(forbidden, script)


def test_a_page_is_the_same_wherever_the_run_is(folder: Path, tmp_path: Path) -> None:
    here = run(folder, "pairwise")
    before = (here / "report.html").read_bytes()
    shutil.copytree(here, tmp_path / "elsewhere" / here.name)
    assert page_html(page_in(tmp_path / "elsewhere" / here.name, 20)).encode() == before


def test_an_interrupted_run_and_an_undisturbed_one_give_equal_bytes(tmp_path: Path) -> None:
    lists(tmp_path)
    flags = "--max-invalid 1 -q -n 4 --pairs 9".split()
    asked = ("pairwise", "-d", str(tmp_path / "lists"), "-m", BIASED, *flags)
    broken, calm = tmp_path / "a" / "run", tmp_path / "b" / "run"
    assert llmfair(*asked, "-o", broken, "--max-calls", "25", "--workers", "1").code == 3
    partly = (broken / "report.html").read_bytes()
    assert b"Not complete." in partly
    ran(*asked, "-o", broken)
    ran(*asked, "-o", calm)
    assert (broken / "report.html").read_bytes() == (calm / "report.html").read_bytes() != partly


def test_hostile_text_stays_text(folder: Path) -> None:
    for name in ("listwise", "pairwise"):
        page = read(run(folder, name) / "report.html")
        text = "".join(page.text)
        assert EVIL in text and TOPIC in text


@pytest.mark.parametrize("name", ["listwise", "stopped"])
def test_it_says_what_the_table_says(folder: Path, name: str) -> None:
    """Numbers, sentences, notes and what is missing are those of the table on the command line."""
    path = run(folder, name)
    text = "".join(read(path / "report.html").text)
    for line in llmfair("report", path, "--format", "md").out.splitlines():
        line = line.removeprefix("**VERDICT** ").removeprefix("**NEXT** ")
        for part in line.removeprefix("- ").removeprefix("> ").strip("| ").split(" | "):
            for said in part.rstrip(".").split("; ") if "Not complete" in part else [part]:
                said = said.removeprefix("**Not complete:** ")
                began = f"{said[:1].upper()}{said[1:]}"  # as a sentence of the page does
                assert said in text or began in text or set(said) <= {"-", " ", "|"}, said
    assert ("have no answer yet" in text and "Not complete." in text) is (name != "listwise")


def test_measured_runs_are_drawn_and_have_every_query_as_the_table_names_them(
    folder: Path, tmp_path: Path
) -> None:
    ran("score", run(folder, "listwise"), "-o", tmp_path / "score")
    page = page_in(tmp_path / "score")
    names = [row[0] for row in page.tables[0].rows]
    assert "utility-and-exposure" in {plot.name for plot in page.plots}
    assert page.queries is not None and len(page.queries.rows) == 8 * 4
    assert {row[1] for row in page.queries.rows} == {*names}


def test_queries_far_from_parity_show_both_rankings_with_their_sides(folder: Path) -> None:
    here = run(folder, "listwise")
    page = read(here / "report.html")
    assert "The 8 of 8 queries furthest from parity" in "".join(page.text)
    items = [attributes["class"].split()[0] for attributes in page.named("li") if "class" in attributes]
    assert (items.count("p"), items.count("u"), items.count("x")) == (8 * 8 * 2, 8 * 8 * 2, 0)
    headings = [name for shown in furthest(here).queries for name, _ in shown.rankings]
    assert len(headings) == 16 and all(of.endswith(" prompt, random initial order 1 of 3") for of in headings)


@pytest.mark.parametrize(
    ("name", "column", "conditions"), [("listwise", "ExpRatio", 4), ("pairwise", "preference odds", 2)]
)
def test_every_query_has_a_row_for_each_condition_furthest_first(
    folder: Path, name: str, column: str, conditions: int
) -> None:
    here = run(folder, name)
    table = page_in(here).queries
    assert table is not None and len(table.rows) == 8 * conditions
    assert {TOPIC, "q0"} <= {cell for row in table.rows for cell in row[:2]}
    place = table.header.index(column)
    far = [abs(math.log(float(row[place]))) for row in table.rows if row[place]]
    assert all(one > other - 0.004 for one, other in pairwise(far))  # which were rounded
    told = {(row[1], row[2]): row[place] for row in table.rows}
    for row in query_figures(here):
        if row.measure == column and (row.query_id, row.condition) in told and row.value is not None:
            assert told[row.query_id, row.condition] == f"{row.value:.3f}"


def test_evidence_is_drawn_bad_answers_first_with_all_that_was_sent(folder: Path) -> None:
    run_folder = RunDir(run(folder, "pairwise"))
    page = page_in(run_folder.path, 20)
    classes = [answer.ended for answer in page.evidence]
    assert len(classes) == 20 and classes[0] != "ok"
    assert classes == sorted(classes, key=lambda name: name == "ok")
    rows = [json.loads(line) for line in run_folder.journal.read_text().splitlines()[1:]]
    known = {row["key"]: row for row in rows}
    text = "".join(read(run_folder.path / "report.html").text)
    for answer in page.evidence:
        assert answer.text == known[answer.key]["text"] and answer.text.strip() in text
        assert all(sent in text for _, sent in known[answer.key]["chat"])


def test_method_names_what_asks_the_same_again(folder: Path) -> None:
    path = run(folder, "given")
    command = page_in(path).method.command
    assert "--initial given" in command and "--orders 1" in command
    assert str(path) not in command and "--max-invalid" not in command.replace("--max-invalid 1.0", "")
    text = "".join(read(path / "report.html").text)
    made = RunDir(path).read_manifest()
    assert made.prompt is not None and made.prompt.text.strip() in text and made.prompt.sha256 in text
    assert all(version in text for version in made.versions.values())
    settings = ListwiseSettings.make(base_url=("http://me:hunter2@localhost:8000/v1",))
    told = command_of("listwise", settings, "openai:x")
    assert shlex.split(told)[-2:] == ["--base-url", "http://localhost:8000/v1"], "without the password"
    told = command_of("pairwise", PairwiseSettings.make(pairs=5, extra=("a=1", "b=2")), "hf:my model + lora")
    flags = "--adapter lora --adapter-only --extra a=1 --extra b=2 --pairs 5"
    assert told == f"llmfair pairwise -m 'hf:my model' {flags}"


def test_a_run_without_its_data_set_has_titles(folder: Path, tmp_path: Path) -> None:
    here = run(folder, "listwise")
    shutil.copytree(here, tmp_path / "run")
    content = json.loads((tmp_path / "run" / "manifest.json").read_text())
    content["flags"]["dataset"] = str(tmp_path / "gone")
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(content))
    assert furthest(tmp_path / "run") == furthest(here)


# What stands beside figures so that they are read rightly: what they cost


def test_what_a_run_has_cost_is_among_its_facts(folder: Path) -> None:
    asked = ("pairwise", "-d", folder / "lists", "--pairs", "2", "-q", "--no-report", "--max-invalid", "1")
    ran(*asked, "-o", "run", "--price-in", "3", "--price-out", "12")
    cost = RunDir(Path("run")).read_manifest().cost
    assert cost is not None and cost > 0 and ("cost", f"{cost:,.4f}") in page_in(Path("run")).method.facts
    shutil.copytree("run", "again")
    both = page_of([read_source(RunDir(Path(name))) for name in ("run", "again")], 0)
    assert all(f" · cost {cost:,.4f} · " in said for _, said in both.method.facts)
    past = invocation(7, 0.5), invocation(3), invocation()
    assert cost_of(manifest(*past, cost=0.5)) == "0.5000, and 3 calls made without prices"
    assert cost_of(manifest(*past)) == cost_of(None) == ""


# The page of an adapter folder, from margins made by hand


@pytest.mark.parametrize("passed", [True, False])
def test_before_and_after_stand_side_by_side(passed: bool) -> None:
    found = json.loads((adapter(Path("small"), passed) / "results.json").read_text("utf-8"))
    told = llmfair("report", "small")
    assert (told.code, told.out) == (0, "small/report.html\n"), told.err
    page = read(Path("small/report.html"))
    text = "".join(page.text)
    rows = {(r["model"], r["measure"], r["stratum"], r["group"]): r for r in found["rows"]}
    for model in ("base", "adapter", "logit offset"):
        for kind in ("relevant", "irrelevant"):
            assert f"{rows[model, 'AdjustedOdds', kind, '']['value']:.3f}" in text
    assert ("Rejected: no checkpoint kept the gates" in text) is not passed
    gates = [*found["gates_on_test"].values(), *found["training"]["validation"]["gates"].values()]
    assert {gate["met"] for gate in gates} == {True, False}
    gain = found["gates_on_test"]["gain"]
    assert f"{gain['value']:.3f} ({'' if gain['met'] else 'not '}< {gain['limit']:.3f})" in text
    made = page_in(Path("small"))
    assert made.title == "hf:org/model with adapter small, gender"


def test_nothing_is_known_of_the_training_of_an_adapter_made_elsewhere() -> None:
    Path("made-elsewhere").mkdir()
    (warning,) = adapter_warnings(Path("made-elsewhere"), {}, "lists")
    assert warning.startswith(
        "nothing is known of the queries that made-elsewhere was trained on (it has no "
    )


# A kind that says nothing of its reports: a table, verdicts, figures, pages of one and of several


def test_any_kind_has_pages(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, words = kind_of("pairwise"), Wording(title="Silent audit", titles={"relevant": "asked relevant"})
    monkeypatch.setattr(type(kind), "measure", replace(kind.measure, aside=()))
    monkeypatch.setattr(type(kind), "words", words)
    source = read_source(RunDir(run(folder, "pairwise")))
    page, (table,) = page_in(source.run.path, 2), page_in(source.run.path).tables
    assert page_html(page) and len(page.evidence) == 2 and page.method.words == METHOD
    assert [row[0] for row in table.rows] == ["asked relevant", "irrelevant"]
    assert table.header[0] == "condition" and table.header[-1] == "conclusion"
    assert table.title.startswith("Silent audit · ") and [plot.name for plot in page.plots] == ["odds"]
    other = structs.replace(source.results, model=f"{source.results.model}-2")
    both = page_of([source, Source(source.run, source.manifest, other)], 0)
    assert page_html(both) and {plot.name for plot in both.plots} == {"odds-0"}
    (conclusions,) = (table for table in both.tables if table.title.startswith("Conclusions"))
    assert {*table.said.values()} - {""} <= {text for row in conclusions.rows for text in row}
