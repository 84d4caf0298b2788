"""Bad input: one sentence and a way out on stderr, the right exit code, no traceback."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.command import llmfair, refuses

SMALL_LINE = "listwise -n 1 --orders 1 --passes 1"
SMALL = SMALL_LINE.split()
NOWHERE = "-m openai:x --base-url http://127.0.0.1:9"
LINES: list[tuple[str, str]] = [
    ("listwize", "listwize"),
    (f"{SMALL_LINE} -o file/below", "cannot write the run folder"),
    ("study windows -n 2 -o file/below", "cannot write file/below"),
    ("listwise -d sampel", "no dataset 'sampel'. Did you mean 'sample'?"),
    ("listwise --preset paper+deltrr", "no preset option 'deltrr'. Did you mean 'deltr'?"),
    ("listwise -m gpt-4", "'gpt-4' is not a model."),
    ("listwise -m fake:biased,noize=1", "Did you mean 'noise'?"),
    ("listwise -m fake:biased,noise=x", "is not a number"),
    ("listwise --measures P@99999999999999999999", "P: cutoff cannot be '99999999999999999999'."),
    (f"listwise -d {'x' * 300}", "File name too long."),
    ("listwise --config /dev/zero", "no configuration file /dev/zero."),
    (f"{SMALL_LINE} --conditions femal", "gender has no prompt 'femal'. Did you mean 'female'?"),
    (f"{SMALL_LINE} -a gendr", "Did you mean 'gender'?"),
    (f"{SMALL_LINE} --queries phisics", "Did you mean 'physics'?"),
    (f"{SMALL_LINE} {NOWHERE} --extra a=b", "not JSON"),
    (f"{SMALL_LINE} {NOWHERE} --template-arg x", "a value of --template-arg is not k=v."),
    ("listwise -m fake:oracle -m fake:biased -o x --dry-run", "--output names one folder, but several runs"),
    ("rag --retriever x", "no ranker 'x'."),
    ("refine --objective x -m fake:refiner", "no measure 'x'."),
    (f"{SMALL_LINE} --dry-run --require ExpRatio", "--require 'ExpRatio' has no such bound."),
    ("pairwise --measures P@20", "P is a measure of lists"),
    ("pairwise --measures AdjustedOods", "Did you mean 'AdjustedOdds'?"),
    ("pairwise -m bm25", "bm25 ranks lists; it answers no questions"),
    ("pairwise --answers margin --constrain", "not those of --constrain"),
    ("pairwise --answers margin --form order -m openai:x", "cannot do --answers margin with --form order.\n  a server shows the first token only: add --form letter"),
    ("pairwise --constrain -m openai:gpt-4o-mini", "--constrain"),
    ("pairwise --fail-on disparty", "there is no verdict 'disparty' that fails a run. Did you mean 'disparity'?"),
    ("pairwise --sequential --repeats 2", "--repeats 2 does nothing with --sequential"),
    ("pairwise --sequential --on-bad-answer fail", "leaves gaps"),
    ("pairwise --max-pairs 10", "--max-pairs 10 does nothing without --sequential"),
    ("study windows --settings wide", "'wide' in --settings"),
    ("study windows --window 5", "--window names one setting"),
    ("study windows -m fake:oracle -m fake:random", "a study has one model"),
    ("study windows -m bm25", "takes a model that ranks, by one strategy that has windows"),
    ("plan listwise --price-in 1", "--price-in and --price-out go together."),
    ("calibrate listwise --initial given --orders 1", "calibrate draws random initial orders, but --initial is given."),
    ("calibrate listwise --junit x", "No such option: --junit"),
    ("listwise --batch -m openai:any", "each needs the answer of the one before"),
    ("listwise --strategy setwise:c=99", "setwise: c cannot be '99'."),
    ("listwise --strategy windows:c=3", "windows has no parameter 'c'."),
    ("pairwise --batch", "fake:biased cannot do --batch"),
    ("listwise --sequential", "--sequential stops between random windows"),
    ("listwise --design partition --batch --sequential -m openai:any", "--batch asks all at once"),
    ("pairwise --batch -m openai:any --max-cost=1 --price-in=1 --price-out=1", "a batch is paid as a whole"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "message"), LINES, ids=[line for line, _ in LINES])
def test_nothing_is_begun(line: str, message: str) -> None:
    Path("file").touch()
    found = llmfair(*line.split())
    assert found.code == 2, found.err
    lines = found.err.splitlines()
    while "calls; window" in lines[0] or "can be assessed" in lines[0]:
        del lines[0]  # what was about to be asked of a server that cannot be
    assert lines[0].startswith("Error: ") and message in found.err
    assert found.out == "" and "Traceback" not in found.err
    assert 2 <= len(lines) <= 3 and lines[-1].startswith("  ") and lines[-1].strip(), "an indented hint"
    assert not Path("runs").exists()


@pytest.mark.parametrize("command", ["score", "score -d sample", "compare", "runs show"])
@pytest.mark.parametrize(
    ("content", "score", "others"),
    [
        (None, "such file", "no run 'x.run' in runs."),
        (bytes(range(256)) * 9, "", "no run 'x.run' in runs."),
        ("folder", "x.run is not a run folder: it has no manifest.json.", "x.run"),
    ],
    ids=["missing", "binary", "folder"],
)
def test_what_is_no_run_is_named(command: str, content: bytes | str | None, score: str, others: str) -> None:
    runs = ["x.run", "y.run"] if command == "compare" else ["x.run"]
    for path in map(Path, runs):
        if content == "folder":
            path.mkdir()
        elif isinstance(content, bytes):
            path.write_bytes(content)
    found = llmfair(*command.split(), *runs)
    assert (found.code, found.out) == (2, ""), found
    assert (score if "score" in command else others) in found.err and "x.run" in found.err
    assert found.err.startswith("Error: ") and "Traceback" not in found.err
    assert found.err.splitlines()[-1].startswith("  "), "an indented hint"
    assert not Path("runs").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission() -> None:
    Path("locked").mkdir(mode=0o500)
    refuses("cannot write", *SMALL, "--runs-dir", "locked")


def test_v_shows_where_even_before_the_flags_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmfair.cli.options.find_config", lambda _: 1 / 0)
    assert "Traceback" not in refuses("unexpected ZeroDivisionError", "runs", "list", code=1).err
    for flag in ("-v", "--verbose"):
        assert "Traceback" in llmfair("runs", "list", flag).err
