"""The page in a real browser: wide and narrow, light and dark, on paper; silent, without a horizontal bar.

Skipped where no Chromium is installed.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import ran
from tests.folders import balanced, write_folder
from tests.report.reading import Seen, View, chromium, visit
from tests.report.runs import AUDITS, EVIL, hostile_questions, run
from tests.report.runs import folder as folder
from tests.report.runs import reports as reports
from tests.tuning.answered import adapter

pytestmark = [pytest.mark.slow, pytest.mark.skipif(chromium() is None, reason="no Chromium is installed")]
OPEN = "document.querySelectorAll('details').forEach(one => { one.open = true })"
OVERFLOW = "document.documentElement.scrollWidth - window.innerWidth"
SMALLEST = """(() => {
  let least = 100;
  for (const text of document.querySelectorAll('svg text')) {
    const svg = text.ownerSVGElement, scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    least = Math.min(least, parseFloat(getComputedStyle(text).fontSize) * scale);
  }
  for (const one of document.querySelectorAll('body *')) {
    if (one.closest('svg') || !one.textContent.trim() || !one.getClientRects().length) continue;
    least = Math.min(least, parseFloat(getComputedStyle(one).fontSize));
  }
  return least })()"""
GEOMETRY = """[...document.querySelectorAll('svg, svg *')].filter(one => one.getBBox).map(one => {
  const box = one.getBoundingClientRect();
  return [one.tagName, box.x, box.y, box.width, box.height].join(' ') }).join('|')"""
CUT = """(() => {
  const cut = [];
  for (const svg of document.querySelectorAll('svg')) {
    const page = svg.closest('figure').getBoundingClientRect();
    for (const text of svg.querySelectorAll('text')) {
      const box = text.getBoundingClientRect();
      if (box.left < page.left - 1 || box.right > page.right + 1) cut.push(text.textContent);
    }
  }
  return cut })()"""
COLLIDING = """(() => {
  const found = [];
  for (const svg of document.querySelectorAll('svg')) {
    const texts = [...svg.querySelectorAll('text')].filter(one => !/rotate\\((?!-?0[ ,])/.test(one.getAttribute('transform') || ''));
    const boxes = texts.map(one => one.getBoundingClientRect());
    for (let i = 0; i < boxes.length; i++) for (let j = i + 1; j < boxes.length; j++) {
      const a = boxes[i], b = boxes[j];
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 1 && down > 4) found.push(texts[i].textContent + ' / ' + texts[j].textContent);
    }
  }
  return found })()"""
HIDDEN = """[...document.querySelectorAll('details > div')].filter(one => {
  const box = one.getBoundingClientRect();
  return !(box.height > 20) || !one.checkVisibility({contentVisibilityAuto: true}) }).length"""
OVERPRINTING = """[...document.querySelectorAll('th, td')].filter(one => {
  const box = one.getBoundingClientRect(), text = document.createRange();
  text.selectNodeContents(one);
  return one.checkVisibility() && one.closest('.box') &&
    [...text.getClientRects()].some(line => line.left < box.left - 1 || line.right > box.right + 1)
}).map(one => one.textContent)"""
"""Cells whose text runs out of them, into the next."""
BROKEN = r"""(() => {
  const broken = [];
  for (const cell of document.querySelectorAll('th, td')) {
    const style = getComputedStyle(cell), text = cell.firstChild;
    const room = cell.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    if (!text || text.nodeType != Node.TEXT_NODE) continue;
    for (const word of text.data.matchAll(/[^\s\/?-]+/g)) {
      const letters = document.createRange();
      letters.setStart(text, word.index);
      letters.setEnd(text, word.index + word[0].length);
      const lines = [...letters.getClientRects()];
      // lines of one word, side by side, are as wide as the word
      if (new Set(lines.map(line => Math.round(line.top))).size > 1 &&
        Math.max(room, 120) > lines.reduce((sum, line) => sum + line.width, 0))
        broken.push(word[0]);
    }
  }
  return broken })()"""
"""Words broken that a column of 120 px would hold."""
PAGES = ["listwise", "pairwise", "adapter", "several", "hostile", "mitigation"]
SCRIPTS = (OPEN, OVERFLOW, SMALLEST, CUT, COLLIDING, OVERPRINTING, BROKEN, GEOMETRY)


def page(folder: Path, name: str) -> Path:
    """A run's report, or that of several runs."""
    if name in AUDITS:
        return run(folder, name) / "report.html"
    if name == "mitigation":
        ran("mitigate", run(folder, "listwise"), "-q", "-o", folder / name)
        return folder / name / "report.html"
    if name == "hostile":
        flags = ("--retriever", "bm25", "--retriever", "bm25-okapi", "-q", "--no-cache", "--no-report")
        ran("rag", "-d", hostile_questions(folder / "hostile.jsonl"), "-o", folder / name, *flags)
        ran("report", folder / name, "-o", folder / f"{name}.html")
        return folder / f"{name}.html"
    if not (folder / "adapter").exists():
        adapter(folder / "adapter")
    audits = [run(folder, one) for one in ("listwise", "no-model", "pairwise", "sequential")]
    runs = [folder / "adapter"] if name == "adapter" else [*audits, folder / "adapter"]
    ran("report", *runs, "-o", folder / f"{name}.html")
    return folder / f"{name}.html"


@pytest.mark.parametrize("name", PAGES)
def test_it_fits_every_screen_and_says_nothing_to_anyone(folder: Path, name: str) -> None:
    views = [View(1280), View(1280, dark=True), View(360), View(360, dark=True)]
    seen = visit(page(folder, name), views, SCRIPTS)
    for view, one in zip(views, seen, strict=True):
        _, overflow, smallest, cut, colliding, overprinting, broken, _ = one.found
        assert (one.requests, one.console) == ([], []), view
        assert overflow <= 0, view
        assert smallest >= 12, view
        assert (cut, colliding) == ([], []), view
        assert (overprinting, broken) == ([], []), view
    assert seen[0].found[-1] == seen[1].found[-1] and seen[2].found[-1] == seen[3].found[-1]
    assert seen[0].png != seen[1].png


def test_on_paper_nothing_stays_folded(folder: Path) -> None:
    (seen,) = visit(page(folder, "listwise"), [View(1000, dark=True, print_media=True)], [HIDDEN])
    assert seen.found == [0]


# The page's one script: it sorts, filters and copies, and nothing that data holds becomes more than text


FORMULAS = ('=HYPERLINK("http://x","y")', "+1+1", "-2+3", "@SUM(1)", "\uff1d1+1", 'a "quoted", comma')
QUERIES = {f"q{place}": text for place, text in enumerate((*FORMULAS, EVIL, "plain"))}
HEARD = """navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve() }; 0"""
"""Clipboards are not read in tests."""
TABLE = "document.querySelector('#queries table')"
ROWS = f"[...{TABLE}.tBodies[0].rows].filter(row => !row.hidden).map(row => [...row.cells].map(cell => cell.textContent))"
SORTS = f"[...{TABLE}.tHead.rows[0].cells].map(cell => cell.getAttribute('aria-sort'))"
HEADER = f"[...{TABLE}.tHead.rows[0].cells].map(cell => cell.textContent)"
COPY = "document.querySelector('#queries .tools button').click(), new Promise(done => setTimeout(() => done(window.copied), 50))"
STATUS = "document.querySelector('#queries [role=status]').textContent"
ALIEN = "[document.querySelectorAll('img, b, i, iframe').length, typeof window.hit]"


def click(column: int) -> str:
    return f"{TABLE}.tHead.rows[0].cells[{column}].querySelector('button').click()"


def typed(text: str) -> str:
    field = "document.querySelector('#queries input')"
    return f"{field}.value = {json.dumps(text)}, {field}.dispatchEvent(new Event('input')), 0"


@pytest.fixture(scope="module")
def sortable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("script")
    data = write_folder(folder / "lists", balanced(8, 8, 8), {"q0f0": EVIL}, QUERIES)
    ran("listwise", "-d", data, "-o", folder / "run", "--orders", "1", "-q", "--report")
    return folder / "run" / "report.html"


def seen(sortable: Path, *scripts: str) -> list[Any]:
    (one,) = visit(sortable, [View(1280)], [HEARD, *scripts, ALIEN])
    assert isinstance(one, Seen) and (one.requests, one.console) == ([], [])
    assert one.found[-1] == [0, "undefined"]
    return one.found[1:-1]


def test_a_column_is_sorted_by_number_both_ways_and_back(sortable: Path) -> None:
    header, before, _, up, sorts, _, down, _, back, none = seen(
        sortable, HEADER, ROWS, click(4), ROWS, SORTS, click(4), ROWS, click(4), ROWS, SORTS
    )
    assert header[:3] == ["query", "id", "prompt"]
    numbers = [float(row[4]) for row in up]
    assert numbers == sorted(numbers) and sorts[4] == "ascending" and sorts.count(None) == len(sorts) - 1
    assert [float(row[4]) for row in down] == numbers[::-1]
    assert back == before and set(none) == {None}
    assert sorted(map(tuple, up)) == sorted(map(tuple, before))


def test_rows_are_filtered_by_words_and_counted(sortable: Path) -> None:
    everything, _, few, said, _, again, none = seen(
        sortable, ROWS, typed("NEUTRAL plain"), ROWS, STATUS, typed(""), ROWS, STATUS
    )
    assert few == [row for row in everything if row[0] == "plain" and "neutral" in row[2]]
    assert said == f"{len(few)} of {len(everything)} rows" and 0 < len(few) < len(everything)
    assert again == everything and none == ""


def test_what_is_copied_is_what_is_shown_and_no_formula(sortable: Path) -> None:
    header, _, _, rows, text, said = seen(sortable, HEADER, typed("q female"), click(1), ROWS, COPY, STATUS)
    assert said == "Copied" and text.endswith("\r\n")
    copied = list(csv.reader(io.StringIO(text)))
    assert copied[0] == header and len(copied) == len(rows) + 1
    told = {row[1]: row for row in copied[1:]}
    for query_id, query in QUERIES.items():
        assert told[query_id][0] == (query if query_id in ("q5", "q6", "q7") else f"'{query}")
    for line, row in zip(copied[1:], rows, strict=True):
        assert [float(cell) for cell in line[3:]] == [float(cell) for cell in row[3:]]


def test_hostile_text_is_text_after_sortable_too(sortable: Path) -> None:
    _, _, rows = seen(sortable, click(0), typed("onerror"), ROWS)
    assert rows and {row[0] for row in rows} == {EVIL}


def test_a_foreign_script_does_not_run(sortable: Path, tmp_path: Path) -> None:
    """The policy knows ours alone: what slipped in could not do anything."""
    text = sortable.read_text("utf-8")
    broken = tmp_path / "broken.html"
    slipped = "<script>window.hit = 1</script><svg onload='window.hit = 2'></svg>"
    broken.write_text(text.replace("</main>", f"{slipped}</main>"), "utf-8")
    (one,) = visit(
        broken, [View(1280)], ["typeof window.hit", "document.querySelectorAll('.tools').length > 2"]
    )
    assert one.found == ["undefined", True] and len(one.console) == 2


def test_without_the_script_all_is_there(sortable: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain.html"
    text = sortable.read_text("utf-8")
    begin = text.rindex("<script>")
    plain.write_text(text[:begin] + text[text.index("</script>", begin) + 9 :], "utf-8")
    (with_it,), (without,) = (
        visit(one, [View(1280)], [ROWS, "document.querySelectorAll('button').length"])
        for one in (sortable, plain)
    )
    assert with_it.found[0] == without.found[0] and without.found[1] == 0
