"""What the shell offers after a flag: ids, measures, models, runs; from names alone, since it has to be there at once.

`KNOWN` repeats what our modules register, because importing them takes longer than a person who pressed Tab waits (a
test holds both together); the few that register strategies are read as text. What other packages register is found by
their entry points' names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

import llmfair

KNOWN: Mapping[str, tuple[str, ...]] = {
    "backends": ("cross-encoder", "fake", "hf", "nli", "openai", "pyterrier", "python", "rerank", "vllm"),
    "rankers": (
        "bm25", "bm25-okapi", "contriever", "deltr", "dense", "dlf-like", "fair-star", "greedy", "mmr", "monobert",
        "monot5", "sbert", "sparse", "splade",
    ),
    "datasets": (
        "lamp/1", "lamp/2", "lamp/3", "lamp/4", "lamp/5", "lamp/6", "lamp/7", "rag-sample", "refine-sample", "sample",
        "trec-fair/2021/eval/location", "trec-fair/2021/location", "trec-fair/2022/eval/gender",
        "trec-fair/2022/eval/location", "trec-fair/2022/gender", "trec-fair/2022/location",
    ),
    "measures": (
        "AWRF", "AdjustedOdds", "AttributionAt", "BalancedRatio", "CitationPrecision", "CitationRecall", "Consistency",
        "EAE-D", "EAR", "EE-D", "EE-L", "EE-R",
        "EU", "EU-change", "EffectiveSources", "ExcessRatio", "ExpRatio", "Exposure", "FirstSlotRate",
        "FlipRate", "InvalidRate", "KL", "Kappa", "NoiseRate", "PositionIndex", "PositionOdds",
        "PreferenceOdds", "RBO", "RawRatio", "RelevanceOdds", "RelevanceRatio", "Share", "SlotOdds", "Tau",
        "TieRate", "WinRatio", "WinShare", "nDCG", "nDCGxAWRF", "overlap",
    ),
}  # fmt: skip
WITH_CUTOFF = ("P@20", "nDCG@20", "overlap@20")
FAKE = ("fake:biased", "fake:name", "fake:oracle", "fake:random", "fake:reader", "fake:refiner")


def strategies() -> list[str]:
    """Strategies, as the modules that may have one say in their text."""
    said = '@register("strategy", "'
    texts = (path.read_text("utf-8") for path in (Path(llmfair.__file__).parent / "rankers").glob("*.py"))
    own = [part.partition('"')[0] for text in texts for part in text.split(said)[1:]]
    return _names("strategies", own)


def _names(kind: str, own: Iterable[str] = ()) -> list[str]:
    from importlib.metadata import entry_points  # 20 ms that only completion spends

    return sorted({*KNOWN.get(kind, own), *(point.name for point in entry_points(group=f"llmfair.{kind}"))})


def datasets(incomplete: str) -> list[str]:
    """Dataset ids, and folders that hold one."""
    return [name for name in _names("datasets") if name.startswith(incomplete)] or list(
        _folders(incomplete, ("groups.tsv",))
    )


def attributes(ctx: typer.Context) -> list[str]:
    """Attributes that are shipped, and those that the folder named with --dataset declares."""
    import tomllib

    package, own = Path(llmfair.__file__).parent, Path(ctx.params.get("dataset") or "")
    found: dict[str, None] = {}
    for folder in (own, package / "data", package.parent / "data"):
        with suppress(OSError, ValueError):  # none there, or one that an audit will complain of
            found |= dict.fromkeys(tomllib.loads((folder / "attributes.toml").read_text("utf-8")))
    return list(found)


def measures(incomplete: str) -> list[str]:
    """Measures, also after a comma."""
    before, comma, _ = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in (*WITH_CUTOFF, *_names("measures"))]


def models() -> list[str]:
    """Prefixes of models that write, the simulated ones, and rankers that ask none."""
    prefixes = [f"{name}:" for name in _names("backends") if name not in ("fake", "nli")]
    return [*FAKE, *prefixes, *_names("rankers")]


def prompts() -> list[str]:
    from llmfair.prompts import WORDINGS, prompt_names

    return [*WORDINGS, *prompt_names()]


def runs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Run folders below --runs-dir, by name; else by path."""
    runs_dir = Path(ctx.params.get("runs_dir") or "runs")
    marks = ("manifest.json", "study.json", "results.json")
    names = [path.rpartition("/")[2] for path in _folders(f"{runs_dir}/", marks)]
    taken = ctx.params.get("runs") or ()
    matching = [name for name in names if name.startswith(incomplete) and name not in taken]
    return matching or list(_folders(incomplete, marks))


def _folders(beginning: str, marks: tuple[str, ...]) -> Iterator[str]:
    """Folders whose path begins so and that hold one of these files."""
    parent, slash, start = beginning.rpartition("/")
    folder = Path(parent or slash or ".")
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            if path.name.startswith(start) and any((path / mark).is_file() for mark in marks):
                yield f"{parent}{slash}{path.name}"


OFFERED: Mapping[str, Callable[..., Any]] = {
    "dataset": datasets,
    "attribute": attributes,
    "measures": measures,
    "model": models,
    "prompt": prompts,
    "preset": lambda: ["paper", "paper+deltr", "paper+few-relevant", "paper+rankgpt"],
    "ranker": lambda: _names("rankers"),
    "baseline": lambda: ["all", *_names("rankers")],
    "strategy": strategies,
}
"""What is offered after the flags of settings, by their names."""
