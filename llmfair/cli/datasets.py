"""`llmfair datasets`: what can be audited, and what a dataset holds."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from llmfair.cli import console
from llmfair.cli.options import Json

datasets = typer.Typer(name="datasets", help="List datasets and show what they hold.", no_args_is_help=True)


@datasets.command("list", epilog="llmfair datasets list  ·  llmfair datasets list --json")
def list_all(as_json: Json = False) -> None:
    """The datasets that can be named with -d."""
    from llmfair import registry
    from llmfair.datasets.base import FOUR_FILES, load_dataset
    from llmfair.report.tables import Table

    found = []
    for name in registry.names("dataset"):
        dataset = load_dataset(name)
        attributes = [attribute.name for attribute in dataset.attributes]
        found.append({"dataset": name, "attributes": attributes, "queries": len(dataset.queries)})
    if as_json:
        console.print_json({"schema": 1, "datasets": found})
        return
    rows = tuple((str(row["dataset"]), ", ".join(row["attributes"]), str(row["queries"])) for row in found)  # type: ignore[arg-type]
    console.print_table(Table("", ("dataset", "attributes", "queries"), rows, (FOUR_FILES,)))


@datasets.command("show", epilog="llmfair datasets show sample  ·  llmfair datasets show my-folder --json")
def show(
    name: Annotated[str, typer.Argument(metavar="ID", help="Dataset id or folder.")], as_json: Json = False
) -> None:
    """Queries, candidates per cell, and documents without a side."""
    from llmfair.datasets.base import facts, load_dataset

    found = facts(load_dataset(name))
    if as_json:
        console.print_json({"schema": 1, **found})
        return
    _print_facts(found)


def _print_facts(found: dict[str, Any]) -> None:
    from llmfair.report.tables import Table

    attributes = list(found["attributes"])
    header = ("query", "text", "candidates", *(f"{name}: relevant P/U, other P/U" for name in attributes))
    rows = []
    for query in found["queries"]:
        cells = []
        for name in attributes:
            count = query["cells"][name]
            cells.append(
                f"{count['relevant protected']}/{count['relevant unprotected']}, "
                f"{count['irrelevant protected']}/{count['irrelevant unprotected']}"
            )
        rows.append((query["query_id"], query["text"], str(query["candidates"]), *cells))
    notes = [
        f"{name}: " + ", ".join(f"{what} {count}" for what, count in sides.items())
        for name, sides in found["attributes"].items()
    ]
    notes += [f"left out: {why}" for why in found.get("left_out", {}).values()]
    notes.append(f"fingerprint {found['fingerprint'][:16]}")
    title = f"{found['dataset']} · {found['documents']} documents · {len(found['queries'])} queries"
    console.print_table(Table(title, header, tuple(rows), tuple(notes)))
