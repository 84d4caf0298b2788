"""How long a whole command takes beside its asking: `python -m benchmarks.whole`, from the repository's root.

`llmfair listwise` on 44 lists of 60 (windows of 5, step 1, one pass) against a server on loopback that answers after
50 ms: with one prompt, and with all of them. Of the fresh command: its wall time, the asking (first request to last
answer, beside the longest chain × delay), start-up (until the first request) and what follows the last answer, without
and with the report. Then the same command again, and how much journal it has to read. Medians of three (`--runs`), with
what the interpreter and the imports take in the same minute, and CPU times, which a busy machine stretches less.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from random import Random

from benchmarks.commands import median_seconds, spent
from benchmarks.dispatch import WORDS
from benchmarks.loopback import arguments_of

QUERIES, ITEMS, WINDOW, LATENCY = 44, 60, 5, 0.05
LISTWISE = [
    sys.executable, "-m", "llmfair", "listwise", "-d", "lists", "-a", "gender", "-m", "openai:loopback", "--no-cache",
    "--window", f"{WINDOW}", "--step", "1", "--passes", "1", "--orders", "1",
]  # fmt: skip


def write_lists(folder: Path) -> None:
    """Lists balanced in groups and relevance, an item's text of 60 words."""
    random = Random(1)
    folder.mkdir()
    items = [(query, item, f"d{query}-{item}") for query in range(QUERIES) for item in range(ITEMS)]
    lines = {
        "queries.tsv": [f"q{query}\tquery {query}" for query in range(QUERIES)],
        "docs.jsonl": [
            json.dumps(
                {
                    "doc_id": doc_id,
                    "title": f"Item {query}-{item} {' '.join(random.choices(WORDS, k=4))}",
                    "text": " ".join(random.choices(WORDS, k=60)),
                }
            )
            for query, item, doc_id in items
        ],
        "groups.tsv": [f"{d}\tgender\t{'female' if item % 2 else 'male'}" for _, item, d in items],
        "qrels.txt": [f"q{query} 0 {d} {item // 2 % 2}" for query, item, d in items],
    }
    for name, found in lines.items():
        (folder / name).write_text("".join(f"{line}\n" for line in found), encoding="utf-8")


def medians(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


def fresh(words: Sequence[str], folder: Path) -> tuple[dict[str, float], list[str]]:
    """Seconds of a fresh command by phase, with a server that nobody asked before; and the command."""
    serving = [sys.executable, "-m", "benchmarks.loopback", *arguments_of({"latency": LATENCY})]
    with subprocess.Popen(serving, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin and server.stdout
        address = f"http://127.0.0.1:{int(server.stdout.readline())}"
        command = [*LISTWISE, "--base-url", f"{address}/v1", *words]
        took = spent(command, cwd=folder, stderr=subprocess.DEVNULL)
        with urllib.request.urlopen(address) as reply:
            found = json.load(reply)
        server.stdin.close()
    first, last = found["first"], found["last"]
    phases = {"start-up": first - took.began, "asking": last - first, "after": took.ended - last}
    return {"wall": took.wall, "cpu": took.cpu, **phases, "requests": found["requests"]}, command


def measure(name: str, words: Sequence[str], folder: Path, runs: int) -> None:
    """Prints the fresh command without and with its report, and the same again."""
    bare, drawn = [], []
    for run in range(runs):
        bare.append(fresh([*words, "--no-report", "-o", f"{name} {run} bare"], folder)[0])
        found, command = fresh([*words, "-o", f"{name} {run}"], folder)
        drawn.append(found)
    plain, page = medians(bare), medians(drawn)
    beside = plain["start-up"] + plain["after"]
    print(
        f"{name}: {plain['requests']:,.0f} requests, critical path {(ITEMS - WINDOW + 1) * LATENCY:.2f} s\n"
        f"  fresh, no report    {plain['wall']:.2f} s ({plain['cpu']:.2f} of CPU): start-up {plain['start-up']:.2f}, "
        f"asking {plain['asking']:.2f}, statistics {plain['after']:.2f}; start-up and statistics {beside:.2f}\n"
        f"  fresh, with report  {page['wall']:.2f} s ({page['cpu']:.2f} of CPU): "
        f"after the last answer {page['after']:.2f}"
    )
    journal = (folder / command[-1] / "journal.jsonl").stat().st_size / 1e6
    repeats = [spent(command, cwd=folder, stderr=subprocess.DEVNULL) for _ in range(runs)]
    again = medians([{"wall": each.wall, "cpu": each.cpu} for each in repeats])
    print(
        f"  again               {again['wall']:.2f} s ({again['cpu']:.2f} of CPU): {journal:.1f} MB of journal"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.whole", description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    os.environ["OPENAI_API_KEY"] = "none"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled, too
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_lists(folder / "lists")
        for code in ("pass", "import numpy, scipy.special, matplotlib.figure"):
            print(f"python -c '{code}': {median_seconds([sys.executable, '-c', code], runs, cwd=name):.2f} s")
        measure("one prompt", ("--conditions", "neutral", "--no-repeat"), folder, runs)
        measure("all prompts", (), folder, runs)
        print(f"load over the last minute: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
