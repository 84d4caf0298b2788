"""`llmfair prompts`: every word that is sent to a model."""

from __future__ import annotations

from typing import Annotated

import typer

from llmfair.cli import console
from llmfair.cli.options import Config, Json, with_flags
from llmfair.errors import UsageError
from llmfair.settings import ListwiseSettings

prompts = typer.Typer(name="prompts", help="List, show and render prompt templates.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="Template name or TOML file.")]


@prompts.command("list", epilog="llmfair prompts list\n\nllmfair prompts list --json")
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


@prompts.command("show", epilog="llmfair prompts show listwise\n\nllmfair prompts show my-prompt.toml --json")
def show(name: Name, as_json: Json = False) -> None:
    """A template as it stands."""
    from llmfair.prompts import load_prompt

    prompt = load_prompt(name)
    if as_json:
        console.print_json({"schema": 1, "prompt": prompt.id, "sha256": prompt.sha256, "text": prompt.text})
        return
    print(prompt.text, end="")


def render(
    settings: ListwiseSettings,
    *,
    ctx: typer.Context,
    task: Annotated[str, typer.Argument(metavar="TASK", help="listwise")] = "listwise",
    number: Annotated[int, typer.Option(help="Which window of the list, from its tail.")] = 1,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Exactly the messages that `llmfair TASK` with these flags sends for one window of its first chain."""
    from llmfair.audits.design import first_order_chats

    if task != "listwise":
        raise UsageError(f"no task '{task}'.", "known: listwise")
    chats = first_order_chats(settings)
    if not 1 <= number <= len(chats):
        raise UsageError(f"there are {len(chats)} windows, not {number}.", "choose a smaller --number")
    messages = chats[number - 1].messages
    if as_json:
        shown = [{"role": message.role, "content": message.content} for message in messages]
        console.print_json({"schema": 1, "messages": shown})
        return
    for message in messages:
        print(f"{message.role}: {message.content}")


prompts.command(
    epilog="llmfair prompts render listwise --queries physics --variants female\n\n"
    "llmfair prompts render listwise --window 5 --step 1 --number 2"
)(with_flags(ListwiseSettings, render))
