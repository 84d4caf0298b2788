"""An attribute that nobody audits: neither does it begin another run, nor does it keep runs from being compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import kept, only_run, ran, refuses
from tests.folders import balanced, write, write_folder

LISTWISE = tuple("listwise -q -d mine --no-report --max-invalid 1 --conditions neutral --orders 1".split())
PAIRWISE = ("pairwise", "-q", "-d", "mine", "--no-report", "--max-invalid", "1", "--pairs", "2")


@pytest.fixture(autouse=True)
def folder() -> Path:
    return write_folder(Path("mine"), balanced(5, 4, 4))


def group(attribute: str, name: str = "Asia") -> None:
    """A group of one more attribute for some items."""
    path = Path("mine/groups.tsv")
    write(path, [*path.read_text().splitlines(), *(f"q{q}f0\t{attribute}\t{name}" for q in range(5))])


@pytest.mark.whole
@pytest.mark.parametrize("command", [LISTWISE, PAIRWISE])
def test_the_run_goes_on_and_is_compared(command: tuple[str, ...]) -> None:
    ran(*command)
    run = only_run()
    group("location")
    ran(*command)
    assert only_run() == run and kept("manifest")["calls"] == 0
    ran("runs", "check", run)
    ran(*command, "-m", "fake:oracle", "-o", "other")
    ran("compare", run, "other")
    group("gender", "male")  # an item of both sides is audited
    refuses("belongs to other settings (lists_sha256", *command, "-o", run, code=1)
