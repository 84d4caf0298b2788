"""`llmfair strategies`: how lists can be ordered by asking, with what each takes."""

from __future__ import annotations

from typing import Any

import typer

from llmfair import terminal
from llmfair.cli.options import Json

strategies = typer.Typer(name="strategies", help="How lists can be ordered by asking.")
SIZES = (40, 100)
"""Lists whose cost is shown."""


@strategies.callback()
def _group() -> None: ...


@strategies.command("list", epilog="llmfair strategies list\n\nllmfair strategies list --json")
def list_all(as_json: Json = False) -> None:
    """What --strategy takes, with parameters, calls and rounds that wait for each other."""
    from llmfair import registry
    from llmfair.report.tables import Table

    found = [_facts(name) for name in registry.names("strategy")]
    if as_json:
        terminal.print_json({"schema": 1, "strategies": found})
        return
    header = (
        "strategy",
        "parameters",
        *(f"calls (rounds), {n} items" for n in SIZES),
        "reads",
        "what it does",
    )
    rows = tuple(
        (
            one["strategy"],
            ",".join(f"{name}={value}" for name, value in one["parameters"].items()),
            *map(_cost, one["plans"]),
            one["reads"],
            one["does"],
        )
        for one in found
    )
    notes = (
        "--strategy NAME:key=value,… in llmfair listwise, repeatable: one run each; llmfair plan listwise prices them "
        "side by side on your lists",
        "≤: at most, since what is asked hangs on the answers; windows by --window, --step and --passes",
        "one of your own is one file, joined by the entry point llmfair.strategies",
    )
    terminal.print_table(Table("", header, rows, notes))


def _facts(name: str) -> dict[str, Any]:
    """A strategy as it is without parameters, under the settings of windows that are usual."""
    from llmfair import registry
    from llmfair.audits.listwise.settings import ListwiseSettings
    from llmfair.rankers.strategies import strategy_of

    strategy = strategy_of(name, vars(ListwiseSettings()))
    plans = [(n, strategy.plan(n)) for n in SIZES]
    margins = {"none": "text", "welcome": "log-probabilities, else text", "needed": "log-probabilities"}
    return {
        "strategy": name,
        "parameters": dict(strategy.parameters),
        "prompt": strategy.question.prompt,
        "reads": margins[strategy.question.margins],
        "plans": [
            {"items": n, "calls": plan.calls, "rounds": plan.rounds, "at_most": not plan.exact}
            for n, plan in plans
        ],
        "does": (registry.lookup("strategy", name).__doc__ or "").partition("\n")[0].strip(),
    }


def _cost(plan: dict[str, Any]) -> str:
    return f"{'≤ ' * plan['at_most']}{plan['calls']:,} ({plan['rounds']:,})"


def add(app: typer.Typer) -> None:
    app.add_typer(strategies, rich_help_panel="Look")
