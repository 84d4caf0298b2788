"""The application: its commands, and the one place where errors become sentences and exit codes."""

from __future__ import annotations

import io
import os
import signal
import sys
from functools import cache as cache_once
from itertools import pairwise as neighbours
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from typer.exceptions import TyperException

import llmfair
from llmfair import former, terminal
from llmfair.audits.kind import kinds
from llmfair.cli.audits import audit_command
from llmfair.cli.cache import cache
from llmfair.cli.calibrate import calibrate
from llmfair.cli.compare import compare
from llmfair.cli.complete import leave_values_unread
from llmfair.cli.datasets import datasets
from llmfair.cli.doctor import doctor
from llmfair.cli.finetune_lora import finetune_lora
from llmfair.cli.help import with_help
from llmfair.cli.once import with_single_values
from llmfair.cli.options import ELSEWHERE, add_command, no_settings, variables, with_flags
from llmfair.cli.plan import plan
from llmfair.cli.prompts import prompts
from llmfair.cli.report import report
from llmfair.cli.runs import runs
from llmfair.cli.score import score
from llmfair.cli.study import study
from llmfair.errors import LlmfairError, UsageError
from llmfair.settings import FinetuneSettings, ScoreSettings

HELP = {"help_option_names": ["-h", "--help"]}
ASKS_NOTHING = {*HELP["help_option_names"], "--help-all", "--version", "-V"}
COMPLETES = "_LLMFAIR_COMPLETE"
"""What a shell sets that asks how a line could go on."""
FIRST_STEPS = """\
llmfair listwise          audit a simulated model on the bundled sample, offline
llmfair plan listwise     what an audit would ask, cost and find; asks nothing
llmfair doctor            which models this machine can ask
llmfair COMMAND --help    flags with their meaning, and examples
README.md, docs/          how to read the numbers, how to ask your own model
"""

app = typer.Typer(
    name="llmfair",
    help="Measures whether a ranker built on a large language model treats groups of items alike.",
    pretty_exceptions_enable=False,
    context_settings=HELP,
    rich_markup_mode=None,
    epilog="llmfair listwise\n\nllmfair listwise -m openai:gpt-4o-mini --dry-run",
)
for kind in kinds():
    add_command(app, kind.name, kind.settings, audit_command(kind), kind.help(), "Audit")
app.command(
    rich_help_panel="Audit",
    epilog="llmfair score bm25.run monot5.run.gz --qrels qrels.txt --groups groups.tsv\n\n"
    "llmfair score my.run -d sample --measures P@20,ExpRatio --per-query",
)(with_flags(ScoreSettings, score))
app.command(
    "finetune-lora",
    rich_help_panel="Mitigate",
    epilog="llmfair finetune-lora -d my-folder --base-model mistralai/Mistral-7B-Instruct-v0.3 --dry-run\n\n"
    "torchrun --nproc-per-node 8 -m llmfair finetune-lora -d my-folder --base-model my-model",
)(with_flags(FinetuneSettings, finetune_lora))
app.add_typer(plan, rich_help_panel="Plan")
app.add_typer(calibrate, rich_help_panel="Plan")
app.add_typer(study, rich_help_panel="Plan")
app.command(
    rich_help_panel="Read",
    epilog="llmfair report listwise-sample --open\n\n"
    "llmfair report runs/one runs/two runs/three -o models.html --figures pdf",
)(report)
app.command(
    rich_help_panel="Read",
    epilog="llmfair compare pairwise-base pairwise-lora\n\n"
    "llmfair compare runs/one runs/two runs/three --measures P@20,ExpRatio --format md",
)(compare)
app.add_typer(datasets, rich_help_panel="Look")
app.add_typer(prompts, rich_help_panel="Look")
app.add_typer(runs, rich_help_panel="Look")
app.add_typer(cache, rich_help_panel="Look")
app.command(rich_help_panel="Look", epilog="llmfair doctor\n\nllmfair doctor --json")(doctor)


def _version(value: bool) -> None:
    if value:
        print(f"llmfair {llmfair.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def start(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", "-V", is_eager=True, callback=_version, help="Version in one line.")
    ] = False,
) -> None:
    """Measures whether a ranker built on a large language model treats groups of items alike."""
    if ctx.invoked_subcommand is None:
        print(FIRST_STEPS, end="")


_terminated: list[int] = []


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    _terminated.append(number)
    raise terminal.Terminated


@cache_once
def command() -> Any:
    """The application as Typer makes it of its commands, which takes a tenth of a second."""
    return with_single_values(with_help(typer.main.get_command(app)))


def run(arguments: list[str]) -> int:
    """Runs one command line and returns its exit code; every error is one sentence and a way out."""
    _terminated.clear()
    previous = signal.signal(signal.SIGTERM, _terminate)
    terminal.output = terminal.Output(as_json=_asks_json(arguments))
    given, arguments = arguments, [*map(former.flag, arguments)]
    try:
        for before, now in zip(given, arguments, strict=True):
            if before != now:
                terminal.warn(f"{before.partition('=')[0]} is called {now.partition('=')[0]} now.")
        if not ASKS_NOTHING & {*arguments} and COMPLETES not in os.environ:
            for said in no_settings(os.environ, {*variables(command()), *ELSEWHERE}):
                terminal.warn(said)
        code = command()(arguments, prog_name="llmfair", standalone_mode=False)
        if code == 130 and not terminal.output.stopped:  # what Typer makes of an interrupt
            return _stopped()
        return code if isinstance(code, int) else 0
    except LlmfairError as error:
        return terminal.fail(error)
    except TyperException as error:
        return terminal.fail(UsageError(error.format_message(), _usage_hint(error)))
    except (KeyboardInterrupt, typer.Abort):
        return _stopped()
    except SystemExit as leaving:  # how Typer and rich take a reader of stdout that went away (`| head`)
        if not isinstance(leaving.__context__, BrokenPipeError):
            raise
        return _unread()
    except BrokenPipeError:
        return _unread()
    except Exception as error:
        hint = "repeat with -v for the traceback" if terminal.output.verbose is not None else ""
        unexpected = LlmfairError(f"unexpected {type(error).__name__}: {error}", hint)
        unexpected.__cause__ = error
        return terminal.fail(unexpected)
    finally:
        signal.signal(signal.SIGTERM, previous)


def _unread() -> int:
    """Nobody reads stdout any more, which is their right: says nothing, and returns what a killed `cat` would."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 128 + signal.SIGPIPE


def _stopped() -> int:
    """Says that an interrupt ended the command; returns its exit code."""
    code = 143 if _terminated else 130
    terminal.stopped(code)
    print("Stopped.", file=sys.stderr)
    return code


def _asks_json(arguments: list[str]) -> bool:
    """Whether stdout is to be JSON, known before the flags are parsed: a wrong flag is told in JSON too."""
    flagged = (
        "--json" in arguments or "--format=json" in arguments or ("--format", "json") in neighbours(arguments)
    )
    return flagged or bool(os.environ.get("LLMFAIR_JSON")) or os.environ.get("LLMFAIR_FORMAT") == "json"


def _usage_hint(error: TyperException) -> str:
    ctx: Any = getattr(error, "ctx", None)
    if ctx is None:
        return "llmfair --help"
    if ctx.parent and hasattr(ctx.command, "commands"):
        return f"{ctx.command_path} {'|'.join(ctx.command.commands)}"
    return f"{ctx.command_path} --help-all    lists what it takes"


def main() -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        # A title or an answer may hold what a terminal's encoding cannot say.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if COMPLETES in os.environ:
        leave_values_unread()
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        unread = _unread()
        code = code or unread
    sys.exit(code)
