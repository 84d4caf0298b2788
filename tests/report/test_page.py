"""The page of every kind of run: whole, escaped, self-contained, the same bytes each time."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import shlex
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from llmfair.audits.commands import command_of
from llmfair.audits.listwise.settings import ListwiseSettings
from llmfair.audits.pairwise.settings import PairwiseSettings
from llmfair.pages import page_of
from llmfair.report.groups import Furthest
from llmfair.report.html import FOLDER, SCRIPT, page_html, rows_json
from llmfair.report.page import read_source
from llmfair.results import query_figures
from llmfair.rundir import RunDir
from tests.cli.command import llmfair, ran
from tests.report.reading import read
from tests.report.runs import AUDITS, BIASED, EVIL, TOPIC, lists, run
from tests.report.runs import folder as folder
from tests.report.runs import reports as reports

pytestmark = pytest.mark.whole


@pytest.mark.parametrize("name", AUDITS)
def test_a_page_is_whole_and_asks_nobody(folder: Path, name: str) -> None:
    page = read(run(folder, name) / "report.html")
    assert page.named("html") == [{"lang": "en"}] and len(page.named("h1")) == 1
    assert len(page.named("main")) == 1
    rows, script = page.scripts
    hashed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{hashed}'; style-src 'unsafe-inline'; img-src data:"
    assert script == (FOLDER / SCRIPT).read_text("utf-8") and json.loads(rows)
    assert {"http-equiv": "Content-Security-Policy", "content": policy} in page.named("meta")
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.named("meta")
    assert all("scope" in header for header in page.named("th"))
    assert [script.get("type") for script in page.named("script")] == ["application/json", None]
    for tag, attributes in page.tags:
        assert tag not in ("img", "link", "iframe", "object", "embed", "form", "base", "b", "i")
        for name_of, value in attributes.items():
            assert not name_of.startswith("on") and "http" not in value.replace("http-equiv", ""), (
                tag,
                value,
            )
            if name_of in ("href", "src"):
                assert value.startswith("#")
    assert not re.search(r"@import|url\((?!#)", "".join(page.styles))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    used = {attributes["href"][1:] for _, attributes in page.tags if "href" in attributes}
    used |= set(re.findall(r"url\(#([^)]*)\)", " ".join(v for _, a in page.tags for v in a.values())))
    assert used <= set(ids)
    for drawing in page.named("svg"):
        assert drawing["role"] == "img" and drawing["aria-label"].rstrip().endswith((".", "。"))


@pytest.mark.parametrize("name", ["listwise", "stopped"])
def test_equal_runs_give_equal_bytes(folder: Path, name: str, tmp_path: Path) -> None:
    here = run(folder, name)
    before = (here / "report.html").read_bytes()
    assert page_html(page_of([read_source(RunDir(here))], 20)).encode() == before
    shutil.copytree(here, tmp_path / "elsewhere" / name)
    moved = RunDir(tmp_path / "elsewhere" / name)
    assert page_html(page_of([read_source(moved)], 20)).encode() == before


@pytest.mark.parametrize("task", ["listwise", "pairwise"])
def test_an_interrupted_run_and_an_undisturbed_one_give_equal_bytes(tmp_path: Path, task: str) -> None:
    lists(tmp_path)
    few = ("--orders", "2", "--passes", "1") if task == "listwise" else ("--pairs", "20")
    asked = (task, "-d", tmp_path / "lists", "-m", BIASED, "--max-invalid", "1", "-q", "-n", "4", *few)
    broken, calm = tmp_path / "a" / "run", tmp_path / "b" / "run"
    assert llmfair(*asked, "-o", broken, "--max-calls", "25", "--workers", "1").code == 3
    partly = (broken / "report.html").read_bytes()
    assert b"Not complete." in partly
    ran(*asked, "-o", broken)
    ran(*asked, "-o", calm)
    whole = (calm / "report.html").read_bytes()
    assert (broken / "report.html").read_bytes() == whole != partly
    ran(*asked, "-o", calm)  # once more, with nothing to ask
    assert (calm / "report.html").read_bytes() == whole


def test_hostile_text_stays_text(folder: Path) -> None:
    for name in ("listwise", "pairwise"):
        page = read(run(folder, name) / "report.html")
        text = "".join(page.text)
        assert EVIL in text and TOPIC in text
        assert json.loads(page.scripts[0]) == RunDir(folder / name).read_results()["rows"]
    hostile = rows_json([{"title": EVIL, "other": "<!--"}])
    assert "<" not in hostile and json.loads(hostile) == [{"title": EVIL, "other": "<!--"}]


@pytest.mark.parametrize("name", ["listwise", "broken-off", "stopped"])
def test_it_says_what_the_table_says(folder: Path, name: str) -> None:
    """Numbers, sentences, notes and what is missing are those of the table on the command line."""
    path = run(folder, name)
    text = "".join(read(path / "report.html").text)
    printed = llmfair("report", path, "--format", "md").out
    for line in printed.splitlines():
        line = line.removeprefix("**VERDICT** ").removeprefix("**NEXT** ")
        for part in line.removeprefix("- ").removeprefix("> ").strip("| ").split(" | "):
            for said in part.rstrip(".").split("; ") if "Not complete" in part else [part]:
                said = said.removeprefix("**Not complete:** ")
                began = f"{said[:1].upper()}{said[1:]}"  # as a sentence of the page does
                assert said in text or began in text or set(said) <= {"-", " ", "|"}, said
    assert ("have no answer yet" in text and "Not complete." in text) is (name != "listwise")
    if name != "listwise":
        return
    figures = ["Utility and exposure", "Odds of answers against the band", "Ranks of protected items"]
    assert all(title in text for title in figures)


def test_measured_runs_are_drawn_and_have_every_query_as_the_table_names_them(
    folder: Path, tmp_path: Path
) -> None:
    ran("score", run(folder, "listwise"), "-o", tmp_path / "score")
    page = page_of([read_source(RunDir(tmp_path / "score"))], 0)
    utility = next(plot for plot in page.plots if plot.name == "utility-and-exposure")
    drawn = [said.split(" 0")[0] for said in utility.numbers.split("; ")]
    names = [row[0] for row in page.tables[0].rows]
    assert drawn == names
    assert page.queries is not None and len(page.queries.rows) == 8 * 4
    assert {row[1] for row in page.queries.rows} == {*names}


def test_queries_far_from_parity_show_both_rankings_with_their_sides(folder: Path) -> None:
    page = read(run(folder, "listwise") / "report.html")
    assert "The 8 of 8 queries furthest from parity" in "".join(page.text)
    items = [attributes["class"].split()[0] for attributes in page.named("li") if "class" in attributes]
    assert (items.count("p"), items.count("u"), items.count("x")) == (8 * 8 * 2, 8 * 8 * 2, 0)


def test_lists_side_by_side_say_of_which_prompt_and_initial_order_they_are(folder: Path) -> None:
    here = run(folder, "listwise")
    headings = [name for shown in furthest(here).queries for name, _ in shown.rankings]
    assert len(headings) == 16 and all(
        name.endswith(" prompt, random initial order 1 of 3") for name in headings
    )
    assert headings[0] in "".join(read(here / "report.html").text)
    names = {name for shown in furthest(run(folder, "one-prompt")).queries for name, _ in shown.rankings}
    assert names == {"neutral prompt, random initial order"}
    names = {name for shown in furthest(run(folder, "no-model")).queries for name, _ in shown.rankings}
    assert names == {"neutral prompt"}


def test_the_order_of_a_list_is_its_own_where_the_first_has_none(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(run(folder, "listwise"), tmp_path / "run")
    for file in (tmp_path / "run" / "rankings").glob("*.run"):
        if ".o" not in file.name:
            file.unlink()
    names = {name for shown in furthest(tmp_path / "run").queries for name, _ in shown.rankings}
    assert names and all(name.endswith("initial order 2 of 3") for name in names)


def test_how_many_queries_of_how_many_are_shown(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = run(folder, "listwise")
    assert furthest(run(folder, "one-query")).title == "The 1 of 1 query furthest from parity"
    shutil.copytree(here, tmp_path / "run")
    rows = (tmp_path / "run" / "per_query.csv").read_text().splitlines(keepends=True)
    kept = [row for row in rows if ",q0," not in row]
    (tmp_path / "run" / "per_query.csv").write_text("".join(kept))
    title = "The 7 of 8 queries furthest from parity"
    assert furthest(tmp_path / "run").title == title
    monkeypatch.setattr("llmfair.report.groups.FURTHEST", 3)
    assert furthest(here).title == "The 3 of 8 queries furthest from parity"


def test_the_script_is_small_and_asks_nobody() -> None:
    script = (FOLDER / SCRIPT).read_text("ascii")
    assert len(script) <= 15_000
    assert not re.search(
        r"https?:|fetch|XMLHttp|import|eval|Function|innerHTML|</script|<!--|cookie|Storage", script
    )


def test_every_query_has_a_row_for_each_condition_furthest_first(folder: Path) -> None:
    for name, column in (("listwise", "ExpRatio"), ("pairwise", "preference odds")):
        here = run(folder, name)
        table = page_of([read_source(RunDir(here))], 0).queries
        assert table is not None and len(table.rows) == 8 * (4 if name == "listwise" else 2)
        assert {TOPIC, "q0"} <= {cell for row in table.rows for cell in row[:2]}
        place = table.header.index(column)
        far = [abs(math.log(float(row[place]))) for row in table.rows if row[place]]
        assert all(one > other - 0.004 for one, other in pairwise(far))  # which were rounded
        titles = {"repeat": "repeat"}
        told = {(row[1], titles.get(row[2], row[2])): row[place] for row in table.rows}
        for row in query_figures(here):
            if row.measure == column and (row.query_id, row.condition) in told and row.value is not None:
                assert told[row.query_id, row.condition] == f"{row.value:.3f}"


def test_a_table_of_very_many_queries_says_where_the_others_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmfair.report.page.MOST", 5)
    table = page_of([read_source(RunDir(run(folder, "listwise")))], 0).queries
    assert table is not None and len(table.rows) == 5
    assert table.notes == ("27 more rows in per_query.csv",)


@pytest.mark.parametrize("name", ["one-prompt", "given"])
def test_ranks_are_drawn_from_the_order_that_the_model_was_given(folder: Path, name: str) -> None:
    """The exposure ratio of the ranks drawn is that of the input."""
    here = run(folder, name)
    told = {
        row.query_id: row.value
        for row in query_figures(here)
        if (row.condition, row.measure) == ("initial", "ExpRatio") and row.value is not None
    }
    drawn = []
    for shown in furthest(here).queries:
        _, items = shown.rankings[0]
        exposure: dict[str | None, list[float]] = {}
        for item in items:
            assert item.initial is not None
            exposure.setdefault(item.side, []).append(1 / math.log(1 + item.initial))
        protected, unprotected = (
            sum(of) / len(of) for of in (exposure["protected"], exposure["unprotected"])
        )
        drawn.append(protected / unprotected)
        assert sorted(item.initial or 0 for item in items) == [*range(1, len(items) + 1)]
    assert sorted(drawn) == pytest.approx(sorted(told.values()))


def test_nothing_is_drawn_where_no_model_was_given_an_order(folder: Path) -> None:
    page = read(run(folder, "no-model") / "report.html")
    assert "slopes" not in {drawing.get("class") for drawing in page.named("svg")}
    page = read(run(folder, "listwise") / "report.html")
    assert [drawing.get("class") for drawing in page.named("svg")].count("slopes") == 16


def furthest(folder: Path) -> Furthest:
    found = page_of([read_source(RunDir(folder))], 0).furthest
    assert found is not None
    return found


def test_evidence_is_drawn_bad_answers_first_with_all_that_was_sent(folder: Path) -> None:
    run_folder = RunDir(run(folder, "pairwise"))
    page = page_of([read_source(run_folder)], 20)
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
    path = run(folder, "one-prompt")
    page = page_of([read_source(RunDir(path))], 0)
    command = page.method.command
    assert "--window 5 --step 1 --passes 1 --orders 1" in command and "-m fake:oracle" in command
    assert str(path) not in command and "--max-invalid" not in command.replace("--max-invalid 1.0", "")
    text = "".join(read(path / "report.html").text)
    manifest = RunDir(path).read_manifest()
    assert manifest.prompt is not None
    assert manifest.prompt.text.strip() in text and manifest.prompt.sha256 in text
    assert all(version in text for version in manifest.versions.values())


def test_passwords_in_addresses_are_not_told(folder: Path) -> None:
    settings = ListwiseSettings.make(base_url=("http://me:hunter2@localhost:8000/v1",))
    told = command_of("listwise", settings, "openai:x")
    assert shlex.split(told)[-2:] == ["--base-url", "http://localhost:8000/v1"]


def test_a_run_without_its_data_set_has_titles(folder: Path, tmp_path: Path) -> None:
    here = run(folder, "listwise")
    shutil.copytree(here, tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    manifest["flags"]["dataset"] = str(tmp_path / "gone")
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(manifest))
    whole = page_of([read_source(RunDir(here))], 3).furthest
    assert furthest(tmp_path / "run") == whole and whole is not None


def test_an_adapter_is_asked_again_by_its_flags() -> None:
    told = command_of("pairwise", PairwiseSettings.make(pairs=5, extra=("a=1", "b=2")), "hf:my model + lora")
    assert told == (
        "llmfair pairwise -m 'hf:my model' --adapter lora --adapter-only --extra a=1 --extra b=2 --pairs 5"
    )
