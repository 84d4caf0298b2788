"""Records what about 120 commands print and write, and compares two recordings: `python -m benchmarks.recording`.

    python -m benchmarks.recording record BEFORE        # in a checkout of the commit before
    python -m benchmarks.recording record AFTER
    python -m benchmarks.recording compare BEFORE AFTER

Figures have to be equal bit for bit; words that differ are printed, to be read. A figure is a number in a file of a
run, but for times.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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
        *(f"{what} list" for what in ("strategies", "measures", "prompts", "datasets")),
    ),
    "rankers": (
        *(f"listwise -m {name} -n 5 -o {name}" for name in ("mmr", "fair-star", "deltr", "bm25-okapi")),
        "report mmr fair-star --format md",
        "rerank mmr/rankings/initial.o0.run --with greedy -d sample -o out.run",
    ),
    "finetune": (
        "finetune-lora -d data -m model --pairs 96 --max-prompts 128 --prompts-per-step 16 --group-size 8 "
        "--eval-every 32 -o adapter",
        "pairwise -d data -m hf:model --answers margin --pairs 4 --max-invalid 1 -o before",
    ),
    "errors": (
        *(
            f"listwise {flags}"
            for flags in ("--windw 3", "--window 0", "-d nowhere", "-m nowhere:x", "--require X>=1")
        ),
        *(f"{command} nothing" for command in ("score", "runs show", "compare a", "mitigate", "report")),
        *("pairwise --pairs none", "plan", "doctor -m nowhere:x"),
    ),
}
GROUPS = {**WHOLE, **PLANS, **OTHERS}
SKIPPED = ("manifest.json", "journal.jsonl", "texts.jsonl", "screens.txt")
ABOUT_TIME = re.compile(
    r"\b(started|finished|seconds|wall|created|date|time|version|elapsed|rate)", re.IGNORECASE
)
NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def record(folder: Path, names: list[str]) -> None:
    """Runs the commands of these groups, each group in a folder of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LLMFAIR_")}
    environment |= {
        "LLMFAIR_CACHE_DIR": str(folder / "cache"), "LLMFAIR_REPORT": "false",
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


def figures(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """The numbers of every file that a group's commands wrote, in their order, but for those of lines about time."""
    for path in sorted(folder.rglob("*")):
        if path.suffix not in (".csv", ".json", ".run", ".txt", ".tsv") or path.name in SKIPPED:
            continue
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        timeless = (line for line in lines if not ABOUT_TIME.search(line))
        yield str(path.relative_to(folder)), [n for line in timeless for n in NUMBER.findall(line)]


def compare(before: Path, after: Path) -> int:
    """Prints the files whose figures differ, and words that do; returns how many files."""
    changed = 0
    for folder in sorted(path for path in before.iterdir() if (path / "screens.txt").is_file()):
        then, now = dict(figures(folder)), dict(figures(after / folder.name))
        wrong = [name for name, numbers in then.items() if now.get(name) != numbers]
        changed += len(wrong)
        print(f"{folder.name}: {len(then)} files, figures differ in {len(wrong)}:", *wrong)
        said, says = ((of / "screens.txt").read_text().splitlines() for of in (folder, after / folder.name))
        for line in difflib.unified_diff(said, says, n=0, lineterm=""):
            if line[:1] in "+-" and line[:3] not in ("+++", "---"):
                print(" ", line)
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
