"""`llmfair prompts`: every word that is sent to a model."""

from __future__ import annotations

from typing import Annotated

import typer

from llmfair.cli import console
from llmfair.cli.options import Json

prompts = typer.Typer(name="prompts", help="List, show and render prompt templates.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="Template name or TOML file.")]


@prompts.command("list", epilog="llmfair prompts list  ·  llmfair prompts list --json")
def list_all(as_json: Json = False) -> None:
    """The templates that can be named with --prompt."""
    from llmfair.prompts import load_prompt, prompt_names
    from llmfair.report.tables import Table

    found = [load_prompt(name) for name in prompt_names()]
    if as_json:
        rows = [{"prompt": prompt.id, "source": prompt.source, "sha256": prompt.sha256} for prompt in found]
        console.print_json({"schema": 1, "prompts": rows})
        return
    cells = tuple((prompt.id, prompt.sha256[:16], prompt.source) for prompt in found)
    console.print_table(Table("", ("prompt", "sha256", "source"), cells, ()))


@prompts.command(
    "show", epilog="llmfair prompts show listwise  ·  llmfair prompts show my-prompt.toml --json"
)
def show(name: Name, as_json: Json = False) -> None:
    """A template as it stands."""
    from llmfair.prompts import load_prompt

    prompt = load_prompt(name)
    if as_json:
        console.print_json({"schema": 1, "prompt": prompt.id, "sha256": prompt.sha256, "text": prompt.text})
        return
    print(prompt.text, end="")


@prompts.command(
    epilog="llmfair prompts render listwise -d sample --query physics --variant female  ·  "
    "llmfair prompts render listwise --window-number 2"
)
def render(
    task: Annotated[str, typer.Argument(metavar="TASK", help="listwise")] = "listwise",
    dataset: Annotated[str, typer.Option("--dataset", "-d", help="Dataset id or folder.")] = "sample",
    attribute: Annotated[str | None, typer.Option("--attribute", "-a", help="Sensitive attribute.")] = None,
    query: Annotated[str | None, typer.Option(help="Query id; the first.")] = None,
    variant: Annotated[str, typer.Option(help="Prompt variant.")] = "neutral",
    window: Annotated[int, typer.Option(help="Items in one window.")] = 20,
    window_number: Annotated[int, typer.Option(help="Which window of the list, from its tail.")] = 1,
    prompt: Annotated[str, typer.Option(help="Template name or TOML file.")] = "listwise",
    seed: Annotated[int, typer.Option(help="Seed of the initial order.")] = 0,
    as_json: Json = False,
) -> None:
    """Exactly the messages that would be sent for one window of the initial order."""
    from llmfair.audits.design import first_order_chats
    from llmfair.errors import UsageError
    from llmfair.settings import ListwiseSettings

    if task != "listwise":
        raise UsageError(f"no task '{task}'.", "known: listwise")
    settings = ListwiseSettings.make(
        dataset=dataset, attribute=attribute, queries=query, variants=variant, prompt=prompt, seed=seed,
        window=window, step=min(window, 10), limit=1, orders=1, passes=1, control=False,
    )  # fmt: skip
    chats = first_order_chats(settings)
    if not 1 <= window_number <= len(chats):
        raise UsageError(
            f"there are {len(chats)} windows, not {window_number}.", "choose a smaller --window-number"
        )
    messages = chats[window_number - 1].messages
    if as_json:
        shown = [{"role": message.role, "content": message.content} for message in messages]
        console.print_json({"schema": 1, "messages": shown})
        return
    for message in messages:
        print(f"{message.role}: {message.content}")
