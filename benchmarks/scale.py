"""What grows with the number of answers: `python -m benchmarks.scale --answers 1e3 1e4 1e5 1e6`.

Pairs of 50 × 50 items a query, relevant and irrelevant, in both orders, answered at once by `fake:oracle`: what is left
is the client's own work. Then the same command again, its statistics anew, its report, and its check. Each is a process
of its own; memory is at its peak.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from benchmarks.commands import spent

SIDE = 50
A_QUERY = 2 * 2 * SIDE * SIDE
"""Answers: two strata, two orders, every item of one group beside every one of the other."""


def write_lists(folder: Path, queries: int) -> None:
    """Lists of four times SIDE items: both groups, relevant and not."""
    folder.mkdir()
    items = [
        (f"q{query}d{place}", place % 2, int(place < 2 * SIDE))
        for query in range(queries)
        for place in range(4 * SIDE)
    ]
    texts = {
        "docs.jsonl": (json.dumps({"doc_id": name, "title": f"Title {name}"}) for name, _, _ in items),
        "queries.tsv": (f"q{query}\tTopic {query}" for query in range(queries)),
        "qrels.txt": (f"{name.partition('d')[0]} 0 {name} {grade}" for name, _, grade in items),
        "groups.tsv": (f"{name}\tgender\t{('female', 'male')[group]}" for name, group, _ in items),
    }
    for name, lines in texts.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--answers", type=float, nargs="+", default=[1e3, 1e4, 1e5])
    print("answers    what        clock s   CPU s  ms an answer   peak MB   journal MB")
    for answers in options.parse_args().answers:
        with tempfile.TemporaryDirectory() as name:
            lists, run = Path(name, "lists"), Path(name, "run")
            # what a query has, or less of it
            queries, a_query = max(4, round(answers / A_QUERY)), min(A_QUERY, round(answers / 4))
            write_lists(lists, queries)
            pairs = ("--pairs", str(a_query // 4))
            asking = ("pairwise", "-d", lists, *pairs, "-m", "fake:oracle,malformed=0", "-o", run, "-q")
            for what, command in (
                ("asked", (*asking, "--no-report")),
                ("again", (*asking, "--no-report")),
                ("score", ("score", run)),
                ("report", ("report", run)),
                ("runs check", ("runs", "check", run)),
            ):
                took = spent([sys.executable, "-m", "llmfair", *map(str, command)])
                size = (run / "journal.jsonl").stat().st_size / 1e6
                asked = queries * a_query
                print(
                    f"{asked:9,d}  {what:10s}  {took.wall:7,.1f} {took.cpu:7,.1f} {1000 * took.cpu / asked:13.3f} "
                    f"{took.peak:9,.0f} {size:12,.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
