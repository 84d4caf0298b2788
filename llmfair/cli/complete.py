"""What the shell offers after a flag: what is registered under its name, prompts, and run folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import typer

from llmfair import registry

MARKS = ("manifest.json", "study.json", "results.json")
"""One of them stands in every run folder."""


def models() -> list[str]:
    """Prefixes of models, and rankers that ask none."""
    return [*(f"{name}:" for name in registry.names("backend")), *registry.names("ranker")]


def prompts() -> list[str]:
    from llmfair.prompts import WORDINGS, prompt_names

    return [*WORDINGS, *prompt_names()]


def runs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Run folders below --runs-dir, by name; else by path."""
    below = Path(ctx.params.get("runs_dir") or "runs")
    names = [Path(path).name for path in _run_folders(f"{below}/")]
    return [name for name in names if name.startswith(incomplete)] or [*_run_folders(incomplete)]


def _run_folders(beginning: str) -> Iterator[str]:
    parent, slash, start = beginning.rpartition("/")
    for path in sorted(Path(parent or slash or ".").glob("*")):
        if path.name.startswith(start) and any((path / mark).is_file() for mark in MARKS):
            yield f"{parent}{slash}{path.name}"


OFFERED: Mapping[str, Callable[..., list[str]]] = {
    "model": models,
    "prompt": prompts,
    "dataset": lambda: registry.names("dataset"),
    "ranker": lambda: registry.names("ranker"),
    "baseline": lambda: registry.names("ranker"),
    "strategy": lambda: registry.names("strategy"),
    "measures": lambda: registry.names("measure"),
}
"""What is offered after the flags of settings, by their names."""
