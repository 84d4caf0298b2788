"""`llmfair prompts`: every word that is sent to a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from llmfair import terminal
from llmfair.audits.kind import Kind, kinds
from llmfair.cli.complete import OFFERED
from llmfair.cli.options import Json, add_command, flag
from llmfair.errors import UsageError
from llmfair.settings import MOST_NUMBERED, AuditSettings

if TYPE_CHECKING:
    from llmfair.nouns import Chat

prompts = typer.Typer(name="prompts", help="List, show and render prompt templates.")
SOURCE = 60
"""Letters of a prompt's source in the list."""
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Template name or TOML file.", autocompletion=OFFERED["prompt"])
]


@prompts.command("list", epilog="llmfair prompts list\n\nllmfair prompts list --json")
def list_all(as_json: Json = False) -> None:
    """The templates that can be named with --prompt."""
    from llmfair.prompts import load_prompt, prompt_names, wordings
    from llmfair.report.tables import Table

    found = [load_prompt(name) for name in prompt_names()]
    named = {name: wording for task in prompt_names() for wording, name in wordings(task).items()}
    if as_json:
        rows = [
            {
                "prompt": prompt.id,
                "wording": named.get(prompt.id),
                "source": prompt.source,
                "sha256": prompt.sha256,
            }
            for prompt in found
        ]
        terminal.print_json({"schema": 1, "prompts": rows})
        return
    cells = tuple(
        (prompt.id, named.get(prompt.id, ""), prompt.sha256[:16], _in_short(prompt.source))
        for prompt in found
    )
    notes = (
        "--prompt takes a wording: general for items of any sort, the default of a folder of your own; wikiproject for "
        "the paper's articles, the default of sample, trec-fair/… and --preset paper",
        "the whole source, and every word: llmfair prompts show listwise",
        "one of your own: llmfair prompts show listwise-general > my.toml, change it, --prompt my.toml",
    )
    terminal.print_table(Table("", ("prompt", "--prompt", "sha256", "source"), cells, notes))


def _in_short(source: str) -> str:
    """A source on what is left of a line; `prompts show` has all of it."""
    return source if len(source) <= SOURCE else f"{source[: SOURCE - 1].rpartition(' ')[0].rstrip(' ,;:(')} …"


@prompts.command("show", epilog="llmfair prompts show listwise\n\nllmfair prompts show my-prompt.toml --json")
def show(name: Name, as_json: Json = False) -> None:
    """A template as it stands."""
    from llmfair.prompts import load_prompt

    prompt = load_prompt(name)
    if as_json:
        terminal.print_json({"schema": 1, "prompt": prompt.id, "sha256": prompt.sha256, "text": prompt.text})
        return
    print(prompt.text, end="")


render = typer.Typer(name="render", help="Exactly the messages that would be sent.")
prompts.add_typer(render)


def _of(kind: Kind) -> Callable[..., None]:
    """The messages of one kind of audits."""

    def run(
        settings: AuditSettings,
        style: str,
        *,
        ctx: typer.Context,
        number: int = 1,
    ) -> None:
        _print(list(kind.rendered(settings)), number, f"{kind.question}s", style)

    run.__annotations__["number"] = Annotated[
        int, flag(kind.numbered, named="number", min=1, max=MOST_NUMBERED)
    ]
    return run


def _print(chats: Sequence[Chat], number: int, what: str, style: str) -> None:
    """The messages of one chat, as they are sent. Raises UsageError for a number that there is not."""
    if not 1 <= number <= len(chats):
        raise UsageError(f"there are {len(chats)} {what}, not {number}.", "choose a smaller --number")
    messages = chats[number - 1].messages
    if style == "json":
        shown = [{"role": message.role, "content": message.content} for message in messages]
        terminal.print_json({"schema": 1, "messages": shown})
        return
    for message in messages:
        print(f"{message.role}: {message.content}")


for kind in kinds():
    add_command(render, kind.name, kind.settings, _of(kind), kind.help("render"))


def add(app: typer.Typer) -> None:
    app.add_typer(prompts, rich_help_panel="Look")
