"""`llmfair prompts`: every word that is sent to a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from llmfair.cli import complete, console
from llmfair.cli.options import Json, variable, with_flags
from llmfair.errors import UsageError
from llmfair.settings import ListwiseSettings, PairwiseSettings

if TYPE_CHECKING:
    from llmfair.records import Chat

prompts = typer.Typer(name="prompts", help="List, show and render prompt templates.", no_args_is_help=True)
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Template name or TOML file.", autocompletion=complete.prompts)
]


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


render = typer.Typer(name="render", help="Exactly the messages that would be sent.", no_args_is_help=True)
prompts.add_typer(render)


def listwise(
    settings: ListwiseSettings,
    style: str,
    *,
    ctx: typer.Context,
    number: Annotated[
        int, typer.Option(help="Which window of the list, from its tail.", envvar=variable("number"))
    ] = 1,
) -> None:
    """Exactly the messages that `llmfair listwise` with these flags sends for one window of its first chain."""
    from llmfair.audits.listwise.plan import first_order_chats

    _print(first_order_chats(settings), number, "windows", style)


def pairwise(
    settings: PairwiseSettings,
    style: str,
    *,
    ctx: typer.Context,
    number: Annotated[
        int,
        typer.Option(
            help="Which question: each pair has two, one for either order.", envvar=variable("number")
        ),
    ] = 1,
) -> None:
    """Exactly the messages that `llmfair pairwise` with these flags sends for one of its questions."""
    from llmfair.audits.pairwise.design import make_pair_design

    design = make_pair_design(settings)
    _print(
        [chat for probe in design.probes() for chat in design.ranker.chats(probe)], number, "questions", style
    )


def _print(chats: Sequence[Chat], number: int, what: str, style: str) -> None:
    """The messages of one chat, as they are sent. Raises UsageError for a number that there is not."""
    if not 1 <= number <= len(chats):
        raise UsageError(f"there are {len(chats)} {what}, not {number}.", "choose a smaller --number")
    messages = chats[number - 1].messages
    if style == "json":
        shown = [{"role": message.role, "content": message.content} for message in messages]
        console.print_json({"schema": 1, "messages": shown})
        return
    for message in messages:
        print(f"{message.role}: {message.content}")


render.command(
    epilog="llmfair prompts render listwise --queries physics --variants female\n\n"
    "llmfair prompts render listwise --window 5 --step 1 --number 2"
)(with_flags(ListwiseSettings, listwise))
render.command(
    epilog="llmfair prompts render pairwise --queries physics\n\n"
    "llmfair prompts render pairwise --form letter --number 2"
)(with_flags(PairwiseSettings, pairwise))
