"""The page's one script in a real browser: it sorts, filters and copies, and nothing that data holds becomes more than text.

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
from tests.report.browser import Seen, View, chromium, visit
from tests.report.runs import EVIL
from tests.report.runs import reports as reports

pytestmark = [pytest.mark.slow, pytest.mark.skipif(chromium() is None, reason="no Chromium is installed")]
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
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("script")
    data = write_folder(folder / "lists", balanced(8, 8, 8), {"q0f0": EVIL}, QUERIES)
    ran("listwise", "-d", data, "-o", folder / "run", "--orders", "1", "-q", "--report")
    return folder / "run" / "report.html"


def seen(page: Path, *scripts: str) -> list[Any]:
    (one,) = visit(page, [View(1280)], [HEARD, *scripts, ALIEN])
    assert isinstance(one, Seen) and (one.requests, one.console) == ([], [])
    assert one.found[-1] == [0, "undefined"]
    return one.found[1:-1]


def test_a_column_is_sorted_by_number_both_ways_and_back(page: Path) -> None:
    header, before, _, up, sorts, _, down, _, back, none = seen(
        page, HEADER, ROWS, click(4), ROWS, SORTS, click(4), ROWS, click(4), ROWS, SORTS
    )
    assert header[:3] == ["query", "id", "prompt"]
    numbers = [float(row[4]) for row in up]
    assert numbers == sorted(numbers) and sorts[4] == "ascending" and sorts.count(None) == len(sorts) - 1
    assert [float(row[4]) for row in down] == numbers[::-1]
    assert back == before and set(none) == {None}
    assert sorted(map(tuple, up)) == sorted(map(tuple, before))


def test_rows_are_filtered_by_words_and_counted(page: Path) -> None:
    everything, _, few, said, _, again, none = seen(
        page, ROWS, typed("NEUTRAL plain"), ROWS, STATUS, typed(""), ROWS, STATUS
    )
    assert few == [row for row in everything if row[0] == "plain" and "neutral" in row[2]]
    assert said == f"{len(few)} of {len(everything)} rows" and 0 < len(few) < len(everything)
    assert again == everything and none == ""


def test_what_is_copied_is_what_is_shown_and_no_formula(page: Path) -> None:
    header, _, _, rows, text, said = seen(page, HEADER, typed("q female"), click(1), ROWS, COPY, STATUS)
    assert said == "Copied" and text.endswith("\r\n")
    copied = list(csv.reader(io.StringIO(text)))
    assert copied[0] == header and len(copied) == len(rows) + 1
    told = {row[1]: row for row in copied[1:]}
    for query_id, query in QUERIES.items():
        assert told[query_id][0] == (query if query_id in ("q5", "q6", "q7") else f"'{query}")
    for line, row in zip(copied[1:], rows, strict=True):
        assert [float(cell) for cell in line[3:]] == [float(cell) for cell in row[3:]]


def test_hostile_text_is_text_after_sorting_too(page: Path) -> None:
    _, _, rows = seen(page, click(0), typed("onerror"), ROWS)
    assert rows and {row[0] for row in rows} == {EVIL}


def test_a_foreign_script_does_not_run(page: Path, tmp_path: Path) -> None:
    """The policy knows ours alone: what slipped in could not do anything."""
    text = page.read_text("utf-8")
    broken = tmp_path / "broken.html"
    slipped = "<script>window.hit = 1</script><svg onload='window.hit = 2'></svg>"
    broken.write_text(text.replace("</main>", f"{slipped}</main>"), "utf-8")
    (one,) = visit(
        broken, [View(1280)], ["typeof window.hit", "document.querySelectorAll('.tools').length > 2"]
    )
    assert one.found == ["undefined", True] and len(one.console) == 2


def test_headers_are_reached_and_pressed_by_keyboard(page: Path) -> None:
    focused = (
        f"{TABLE}.tHead.rows[0].cells[0].querySelector('button').focus(), document.activeElement.tagName"
    )
    (tag, outlined) = seen(page, focused, "getComputedStyle(document.activeElement).cursor")
    assert (tag, outlined) == ("BUTTON", "pointer")


def test_without_the_script_all_is_there(page: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain.html"
    text = page.read_text("utf-8")
    begin = text.rindex("<script>")
    plain.write_text(text[:begin] + text[text.index("</script>", begin) + 9 :], "utf-8")
    (with_it,), (without,) = (
        visit(one, [View(1280)], [ROWS, "document.querySelectorAll('button').length"])
        for one in (page, plain)
    )
    assert with_it.found[0] == without.found[0] and without.found[1] == 0
