"""What comes from outside is printable wherever a person reads it, and unchanged where a program does."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from llmfair.io.files import write_whole
from llmfair.io.text import from_csv, in_csv, in_json, in_lines, in_markdown, visible
from llmfair.report.html import html_of
from llmfair.report.table import Table, markdown, text_of
from llmfair.rundir import csv_text
from tests.cli.command import refuses

EVIL = "\x1b[2J\x9b1m\u202e\x00\r\x7f"
TAME = r"\x1b[2J\x9b1m\u202e\x00\r\x7f"


def test_a_text_is_shown_as_what_it_is() -> None:
    assert visible(f"a{EVIL}\n\tb") == f"a{TAME}\\n\\tb"
    assert in_lines(f"a{EVIL}\n\tb") == f"a{TAME}\n\tb"
    assert json.loads(in_json(json.dumps({EVIL: 1}, ensure_ascii=False))) == {EVIL: 1}
    assert in_markdown("a <img src=x> [b](c) 1 < 2") == "a \\<img src=x> [b]\\(c) 1 < 2"


@pytest.mark.parametrize(
    "cell", ["=1+1", "+a", "-a", "@SUM(A1)", "'=x", "''-x", "'-", "=", EVIL, f"={EVIL}", "a\nb", "", "it's"]
)
def test_no_cell_is_a_formula_and_each_comes_back(cell: str) -> None:
    text = csv_text(("a", "b"), [(cell, 1.5)])
    (row,) = map(from_csv, csv.DictReader(io.StringIO(text, newline="")))
    assert row == {"a": cell, "b": "1.5"}
    shown = str(in_csv(cell))
    assert shown[:1] not in {*"=+-@"} and shown == in_lines(shown)


@pytest.mark.parametrize("cell", ["-1", "+0.5", "-1e-9", "-.5", "-inf", "@UNKNOWN", "-", -1, None, 0.5])
def test_numbers_and_texts_of_ours_stay(cell: object) -> None:
    assert in_csv(cell) == cell


def test_every_text_of_a_table() -> None:
    table = Table(EVIL, (EVIL, "b"), ((EVIL, "1"),), (EVIL,), lead=(("NEXT", EVIL),), sees=EVIL)
    for shown in (text_of(table), html_of(table), markdown(table)):
        assert in_lines(shown) == shown and TAME in shown


def test_errors_and_refusals() -> None:
    assert "no dataset '\\x1b[2J'." in refuses("no dataset", "listwise", "-d", "\x1b[2J").err


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    def lines() -> object:
        yield "a\n"
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "report.html", lines())  # type: ignore[arg-type]
    assert not [*tmp_path.iterdir()]


def command(redirection: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    line = f'exec "$0" -m llmfair {" ".join(arguments)} {redirection}'
    return subprocess.run(["sh", "-c", line, sys.executable], capture_output=True, text=True)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("redirection", "code", "says"),
    [
        ("<&- >&- 2>&-", 0, ""),
        ("2>/dev/full", 0, ""),
        (">/dev/full", 1, "Error: stdout cannot be written: No space left on device.\n"),
    ],
)
def test_streams_that_are_closed_or_full(redirection: str, code: int, says: str) -> None:
    found = command(redirection, "cache", "path")
    assert found.returncode == code
    assert found.stderr.startswith(says) and "Traceback" not in found.stderr
