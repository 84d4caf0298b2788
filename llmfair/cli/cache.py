"""`llmfair cache`: the answers that runs share, how much there is of them, and removing some."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from llmfair import terminal
from llmfair.cli.options import Json, flag
from llmfair.errors import UsageError

cache = typer.Typer(name="cache", help="Answers that runs share: where, how many, remove.")
AGE = re.compile(r"([0-9]{1,6})([hdw])")
HOURS = {"h": 1, "d": 24, "w": 168}


@cache.command("path", epilog="llmfair cache path\n\nLLMFAIR_CACHE_DIR=elsewhere llmfair cache path")
def show_path(as_json: Json = False) -> None:
    """The file that holds them."""
    if as_json:
        terminal.print_json({"schema": 1, "path": str(_path())})
    else:
        print(_path())


@cache.command(epilog="llmfair cache info\n\nllmfair cache info --json")
def info(as_json: Json = False) -> None:
    """How many answers of which models, and their size."""
    from llmfair.asking.cache import facts
    from llmfair.report.tables import Table

    found = facts(_path())
    if as_json:
        terminal.print_json({"schema": 1, **found})
        return
    rows = tuple(
        (row["model"], f"{row['entries']:,}", row["oldest"][:10], row["newest"][:10])
        for row in found["models"]
    )
    title = f"{_answers(found['entries'])}, {_size(found['bytes'])}"
    terminal.print_table(Table(title, ("model", "answers", "first", "last"), rows, (found["path"],)))


@cache.command(
    epilog="llmfair cache clear --older-than 30d\n\nllmfair cache clear --model openai:gpt-4o-mini --yes"
)
def clear(
    model: Annotated[
        str | None,
        flag("Only this model's: PREFIX:NAME, or as `info` shows it.", named="clear_model"),
    ] = None,
    older_than: Annotated[
        str | None,
        flag("Only answers older than this: 12h, 30d, 8w.", named="clear_older_than"),
    ] = None,
    yes: Annotated[bool, flag("Do not ask.", "--yes")] = False,
    as_json: Json = False,
) -> None:
    """Remove cached answers; run folders keep theirs."""
    from llmfair.asking import cache as answers

    path, before = _path(), _before(older_than)
    identity = None if model is None else model.replace(":", " ", 1) if " " not in model else model
    found = answers.count(path, identity, before)
    if found == 0:
        whose = "" if model is None else f" of {model}"
        terminal.say(f"Nothing to remove: no such answer{whose} in {path}.")
    elif not yes:
        what = "the damaged cache" if found is None else _answers(found)
        hint = "add --yes to remove without asking"
        if not terminal.agreed(f"Remove {what} from {path}?", False, f"remove {what}", hint):
            terminal.say("Nothing was removed.")
            raise typer.Exit(1)
    removed = answers.clear(path, identity, before) if found != 0 else 0
    if as_json:
        terminal.print_json({"schema": 1, "path": str(path), "removed": removed})
    elif found != 0:
        print("Removed the damaged cache." if removed is None else f"Removed {_answers(removed)}.")


def _path() -> Path:
    from llmfair.asking.cache import FILE
    from llmfair.datasets.base import cache_folder

    return cache_folder() / FILE


def _before(age: str | None) -> datetime | None:
    """The moment that lies so long ago. Raises UsageError."""
    if age is None:
        return None
    match = AGE.fullmatch(age)
    if match is None:
        raise UsageError(f"--older-than {age} is not an age.", "hours, days or weeks: 12h, 30d, 8w")
    try:
        return datetime.now(UTC) - timedelta(hours=int(match[1]) * HOURS[match[2]])
    except OverflowError:
        raise UsageError(f"--older-than {age} is before the calendar.", "for example 30d") from None


def _answers(count: int) -> str:
    return "1 answer" if count == 1 else f"{count:,} answers"


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count / 1e3:,.1f} kB"


def add(app: typer.Typer) -> None:
    app.add_typer(cache, rich_help_panel="Look")
