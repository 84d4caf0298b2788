"""Records what about 120 commands print and write, and compares two recordings: `python -m tests.recording`.

    python -m tests.recording record BEFORE        # in a checkout of the commit before
    python -m tests.recording record AFTER
    python -m tests.recording compare BEFORE AFTER

Figures have to be equal bit for bit; words that differ are printed, to be read. A figure is a number in a table of
figures (CSV), in a run's results (JSON), or a line of a ranking. Times and file names of one's own are no figures.
"""

from __future__ import annotations

import argparse
import csv
import difflib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from tests import models
from tests.cli.test_transcripts import PLANS, WHOLE
from tests.folders import balanced, write_folder

OTHERS = {
    "rag": (
        "rag -o run",
        "rag --preset paper -o preset",
        "rag --alpha 1,4 --retriever bm25 --attribution none -o alpha",
        "score run",
        "report run preset --format md",
        "rag --dry-run",
    ),
    "strategies": (
        *(
            f"listwise -n 3 --orders 1 --conditions neutral --strategy {name} -o {name.partition(':')[0]}"
            for name in ("pointwise", "setwise:k=10", "pairwise-sort:k=5", "tournament:group=10,best=5")
        ),
        "listwise -n 5 --design partition --sequential -o partition",
        "report pointwise setwise --format md",
        "strategies list",
        "measures list",
        "prompts list",
        "datasets list",
        "datasets show sample",
    ),
    "rankers": (
        *(f"listwise -m {name} -n 5 -o {name}" for name in ("mmr", "fair-star", "deltr", "bm25-okapi")),
        "report mmr fair-star --format md",
        "rerank mmr/rankings/initial.o0.run --with greedy -d sample -o out.run",
    ),
    "finetune": (
        "finetune-lora -d data -m model --pairs 96 --max-prompts 128 --prompts-per-step 16 --group-size 8 --eval-every 32 "
        "-o adapter",
        "pairwise -d data -m hf:model --answers margin --pairs 4 --max-invalid 1 -o before",
    ),
    "errors": (
        "listwise --windw 3",
        "listwise --window 0",
        "listwise -d nowhere",
        "listwise -m nowhere:x",
        "listwise --measures Nothing",
        "listwise --require Nothing>=1",
        "pairwise --pairs none",
        "score nowhere.run",
        "runs show nothing",
        "compare a b",
        "mitigate nothing",
        "report nothing",
        "plan",
        "doctor -m nowhere:x",
    ),
}
GROUPS = {**WHOLE, **PLANS, **OTHERS}
SKIPPED = ("manifest.json", "journal.jsonl", "texts.jsonl", ".lock")
WITHIN_CONDITION = ("contrast",)
"""Parts of a row's key that have one value in each condition and measure: recordings without them compare, too."""
ABOUT_TIME = re.compile(
    r"\b(started|finished|seconds|wall|created|date|time|version|elapsed|rate)", re.IGNORECASE
)


def record(folder: Path, names: list[str]) -> None:
    """Runs the commands of these groups, each group in a folder of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LLMFAIR_")}
    environment |= {
        "LLMFAIR_CACHE_DIR": str(folder / "cache"), "LLMFAIR_DATA": str(folder / "data"), "LLMFAIR_REPORT": "false",
        "COLUMNS": "120", "PYTHONPATH": str(Path.cwd()), "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
    for name in names:
        there = folder / name
        there.mkdir(parents=True)
        os.chdir(there)
        write_folder(Path("paper"), balanced(44, 20, 20))
        write_folder(
            Path("few"), balanced(9, 2, 4) | {f"small{q}": rows for q, rows in balanced(1, 2, 2).items()}
        )
        write_folder(Path("one-side"), balanced(3, 4, 0) | {"m": [("m", "male", 1), ("n", "male", 0)]})
        write_folder(
            Path("apart"), {f"q{q}": [(f"f{q}", "female", 1), (f"m{q}", "male", 0)] for q in range(8)}
        )
        if name == "finetune":
            models.causal(Path("model"))
            write_folder(Path("data"), balanced(12, 6, 6))
        screens = []
        for command in GROUPS[name]:
            done = subprocess.run(
                [sys.executable, "-m", "llmfair", *shlex.split(command)],
                env=environment, capture_output=True, text=True, timeout=900,
            )  # fmt: skip
            errors = "".join(f"! {line}\n" for line in done.stderr.splitlines())
            screens.append(f"$ llmfair {command}\n{errors}{done.stdout}exit code {done.returncode}\n\n")
        Path("screens.txt").write_text("".join(screens))
        print(name, len(screens), "commands", flush=True)


def figures(folder: Path) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every figure that a group's commands wrote, by where it stands and what it is of."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name in SKIPPED or "cache" in path.parts:
            continue
        name = str(path.relative_to(folder))
        if path.suffix == ".csv":
            with path.open(newline="", encoding="utf-8") as file:
                for row in csv.DictReader(file):
                    numbers = {column for column, cell in row.items() if _is_number(cell)} - {"query_id"}
                    of = tuple(
                        f"{column}={cell}"
                        for column, cell in row.items()
                        if column not in numbers and column not in WITHIN_CONDITION and cell
                    )
                    yield from (((name, *of, column), str(row[column])) for column in sorted(numbers))
        elif path.suffix == ".json":
            yield from (((name, *place), value) for place, value in _numbers(json.loads(path.read_text())))
        elif path.suffix in (".run", ".txt", ".tsv") and path.name != "screens.txt":
            yield (name,), path.read_text(encoding="utf-8", errors="replace")


def _numbers(value: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if not ABOUT_TIME.search(name):
                yield from _numbers(inner, (*place, name))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            of = (
                [
                    str(inner[key])
                    for key in ("measure", "condition", "stratum", "group", "query_id")
                    if key in inner
                ]
                if (isinstance(inner, Mapping))
                else []
            )
            yield from _numbers(inner, (*place, " ".join(of) or str(at)))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield place, repr(value)


def _is_number(cell: object) -> bool:
    return isinstance(cell, str) and bool(re.fullmatch(r"[+-]?[\d.]+(e[+-]?\d+)?", cell))


def compare(before: Path, after: Path) -> int:
    """Prints figures that differ and words that differ; returns how many figures do."""
    changed, equal = 0, 0
    for folder in sorted(path for path in before.iterdir() if (path / "screens.txt").is_file()):
        then, now = dict(figures(folder)), dict(figures(after / folder.name))
        wrong = [place for place, value in then.items() if now.get(place, value) != value]
        gone = [place for place in then if place not in now]
        equal += len(then) - len(wrong) - len(gone)
        changed += len(wrong)
        print(
            f"{folder.name}: {len(then)} figures, {len(wrong)} differ, {len(gone)} gone, {len(now.keys() - then)} new"
        )
        for place in islice(wrong, 10):
            print("  differs:", *place, then[place][:60], "->", now[place][:60])
        for place in islice(gone, 10):
            print("  gone:", *place)
        said, says = ((one / "screens.txt").read_text().splitlines() for one in (folder, after / folder.name))
        for line in difflib.unified_diff(said, says, n=0, lineterm=""):
            if line[:1] in "+-" and line[:3] not in ("+++", "---"):
                print(" ", line)
    print(f"{equal} figures are equal, {changed} differ")
    return changed


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("folder", type=Path)
    recording.add_argument("names", nargs="*", default=[*GROUPS])
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    given = parser.parse_args()
    if given.command == "record":
        record(given.folder.resolve(), given.names)
    else:
        sys.exit(compare(given.before, given.after) > 0)


if __name__ == "__main__":
    main()
