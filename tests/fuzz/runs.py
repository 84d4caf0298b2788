"""Run folders that somebody or something damaged, read by every command that reads one."""

from __future__ import annotations

import random
from pathlib import Path

from tests.cli.command import ran
from tests.fuzz.harms import copy, harm
from tests.fuzz.running import CODES, Case
from tests.tuning.answered import adapter

LISTS = ("listwise", "-n", "3", "--orders", "2", "--conditions", "neutral,female", "--passes", "1")
MAKING: dict[str, tuple[str, ...]] = {
    "lists": LISTS,
    "pairs": ("pairwise", "-n", "2", "--pairs", "3"),
    "sequential": ("pairwise", "-n", "3", "--sequential", "--max-pairs", "12"),
    "rag": ("rag", "-n", "2", "--samples", "3", "--alpha", "1,8"),
    "judged": ("rag", "-n", "2", "--samples", "3", "--alpha", "1", "--attribution", "fake:reader"),
    "refine": ("refine", "-n", "2"),
    "no-model": ("listwise", "-n", "3", "-m", "bm25"),
    "study": ("study", "windows", "-n", "2", "--orders", "1", "--conditions", "neutral"),
    "scored": ("score", "lists"),
}
"""The commands that make what is harmed, each in a folder of its name."""
AUDITS = ("lists", "pairs", "sequential", "rag", "judged", "refine", "no-model")
LOOKS = (
    ("runs", "show"), ("runs", "show", "--json"), ("runs", "show", "--answers"), ("runs", "show", "--failures"),
    ("runs", "show", "--invalid"), ("runs", "show", "--query", "physics"), ("runs", "show", "--furthest"),
    ("runs", "show", "--trail"), ("runs", "check"), ("runs", "check", "--json"), ("score",), ("score", "-o", "new"),
    ("score", "--measures", "ExpRatio"), ("report",), ("report", "--format", "md"), ("report", "--format", "card"),
    ("report", "--json"),
)  # fmt: skip
"""Commands that read one folder."""
ADDED = ("batches.json", "study.json", "split.json", "attribution.jsonl", "failures.csv", "report.html")
"""Files that a folder may have, whatever made it."""


def prepare(folder: Path) -> None:
    for name, command in MAKING.items():
        ran(*command, "-o", name)
    ran("mitigate", "lists", "--free")
    adapter(folder / "adapter")


def case(rng: random.Random, folder: Path, base: Path) -> Case:
    name = rng.choice((*AUDITS, *MAKING, "adapter"))
    copy(base, folder, [name])
    files = sorted(str(path.relative_to(folder)) for path in (folder / name).rglob("*") if path.is_file())
    file = rng.choice((*files, *(f"{name}/{one}" for one in ("manifest.json", "results.json", *ADDED))))
    how = " and ".join(
        harm(rng, folder / file) for _ in range(rng.choice((1, 1, 1, 2))) if _harmable(folder / file)
    )
    command, codes = _command(rng, name, base, folder)
    return Case(command, f"{' '.join(command)}: {file}: {how}", codes, drawn=rng.random() < 0.1)


def _harmable(path: Path) -> bool:
    return not path.is_symlink() and (path.is_file() or not path.exists())


def _command(
    rng: random.Random, name: str, base: Path, folder: Path
) -> tuple[tuple[str, ...], frozenset[int]]:
    """One that reads the folder, and how it may end."""
    kind = rng.randrange(10)
    if kind == 0:
        return ("runs", "list", "--runs-dir", "."), frozenset({0})
    if kind == 1:
        copy(base, folder, others := [one for one in ("lists", "pairs") if one != name][:1])
        both = [name, *others]
        rng.shuffle(both)
        return (*rng.choice((("compare",), ("report", "-o", "both.html"))), *both), CODES
    if kind == 2 and name == "lists":
        return ("mitigate", name, *rng.choice((("--free",), ("--dry-run",)))), CODES
    if kind in (3, 4, 5) and name in MAKING:
        return (*MAKING[name], "-o", name), CODES
    look = rng.choice(LOOKS)
    place = 2 if look[0] == "runs" else 1
    return (*look[:place], name, *look[place:]), CODES
