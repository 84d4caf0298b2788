"""The folder of `llmfair mitigate`: results.json, metrics.csv, per_query.csv, and the remedies' rankings as runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from llmfair.errors import UsageError
from llmfair.io.files import json_text, make_inside, read_json, write_whole
from llmfair.io.trec import run_lines
from llmfair.mitigation.results import MitigationResults
from llmfair.mitigation.unmitigated import Orders
from llmfair.nouns import Measurement
from llmfair.results import plain
from llmfair.rundir import COLUMNS, RunDir, csv_text, tidy

TASK = "mitigate"
UNSAFE = re.compile(r"[^A-Za-z0-9.=,_-]+")


def stem(spec: str) -> str:
    """What the files of a remedy are called."""
    return UNSAFE.sub("_", spec)


def files_of(spec: str, orders: Orders) -> dict[str, str]:
    """A run file for each ranking of a list: the first by the remedy's name, further ones as run folders name them."""
    most = max(map(len, orders.values()), default=0)
    found = {}
    for number in range(most):
        name = stem(spec) + (f".o{number}.r0" if number else "")
        rankings = [of_query[number] for of_query in orders.values() if number < len(of_query)]
        found[f"rankings/{name}.run"] = "".join(run_lines(rankings, tag=f"llmfair+{stem(spec)}"))
    return found


def write(
    folder: Path, results: MitigationResults, rows: Sequence[Measurement], orders: Mapping[str, Orders]
) -> MitigationResults:
    """Writes the folder, and returns the results with the digests of its files. Raises UsageError.

    Rankings of an earlier command that are none of these are removed.
    """
    named = {
        "run": Path(results.run).name,
        **{key: getattr(results, key) for key in ("dataset", "attribute", "model")},
    }
    texts = {name: text for spec, of in orders.items() for name, text in files_of(spec, of).items()}
    for name, of_queries in (("metrics.csv", False), ("per_query.csv", True)):
        kept = [row for row in rows if (row.query_id != "all") is of_queries]
        texts[name] = csv_text(COLUMNS, tidy(kept, named))
    digests = {
        name: sha256(text.encode("utf-8", "backslashreplace")).hexdigest() for name, text in texts.items()
    }
    results = replace(results, files=digests)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        make_inside(folder / "rankings")
        RunDir(folder).drop_report()
        for name in _earlier(folder) - texts.keys():
            (folder / name).unlink(missing_ok=True)
        for name, text in {**texts, "results.json": json_text(plain(results))}.items():
            write_whole(folder / name, [text])
    except OSError as error:
        raise UsageError(
            f"cannot write {error.filename or folder}: {error.strerror}.", "choose another --output"
        ) from None
    return results


def _earlier(folder: Path) -> set[str]:
    """The rankings that an earlier command left, as its results name them: nobody else's file is touched."""
    try:
        found = read_json(folder / "results.json")
        named = {name for one in found["remedies"] for name in one["rankings"] if found["task"] == TASK}
        return {name for name in named if Path(name).parent == Path("rankings")}
    except (UsageError, LookupError, TypeError):
        return set()
