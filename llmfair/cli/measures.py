"""`llmfair measures`: what can be measured, of lists, pairs and all else that audits make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from llmfair import terminal
from llmfair.cli.options import Json

if TYPE_CHECKING:
    from llmfair.metrics.base import Definition

measures = typer.Typer(name="measures", help="What can be measured.")


@measures.callback()
def _group() -> None: ...


@measures.command("list", epilog="llmfair measures list\n\nllmfair measures list --json")
def list_all(as_json: Json = False) -> None:
    """What --measures takes, with parameters, and which way is better."""
    from llmfair import registry
    from llmfair.report.tables import Table

    found = [_facts(name, registry.lookup("measure", name)) for name in registry.names("measure")]
    if as_json:
        terminal.print_json({"schema": 1, "measures": found})
        return
    header = ("measure", "of", "in words", "better", "cutoff", "parameters", "source")
    rows = tuple(
        (
            one["measure"],
            one["of"],
            one["label"] if one["label"] != one["measure"] else "",
            one["better"] or "",
            {"none": "", "optional": "@k or none", "required": "@k"}[one["cutoff"]],
            ", ".join(
                f"{name}={'|'.join(words)}" if words else name for name, words in one["parameters"].items()
            ),
            one["source"],
        )
        for one in found
    )
    notes = (
        "--measures NAME, NAME@20, NAME(key=value)@20, comma-separated; the first of several words is the default",
        "beside these, utility by ir_measures' names (P@20, nDCG@20, AP, RR)",
        "one of your own is one file, joined by the entry point llmfair.measures",
    )
    terminal.print_table(Table("", header, rows, notes))


def _facts(name: str, definition: Definition) -> dict[str, Any]:
    return {
        "measure": name,
        "of": definition.reads.about,
        "label": definition.label,
        "better": definition.better,
        "cutoff": definition.cutoff,
        "parameters": {
            key: [*words] if isinstance(words, tuple) else [] for key, words in definition.params.items()
        },
        "aggregate": definition.aggregate,
        "source": definition.cite,
    }


def add(app: typer.Typer) -> None:
    app.add_typer(measures, rich_help_panel="Look")
