"""The application: its commands, and the one place where errors become sentences and exit codes."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from itertools import pairwise as neighbours
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO

import typer
from typer.exceptions import TyperException

import llmfair
from llmfair import beginning, registry, terminal
from llmfair.audits.kind import kind_of, kinds
from llmfair.cli import audits
from llmfair.cli.help import with_help
from llmfair.cli.options import ELSEWHERE, ENVIRONMENT, no_settings, variables, with_one_reader
from llmfair.errors import LlmfairError, UsageError
from llmfair.io import files, secrets, text
from llmfair.io.files import FULL

MODULES = {
    "score": "rankings", "rerank": "rankings", "mitigate": "remedies", "finetune-lora": "remedies",
    "plan": "audits", "calibrate": "audits", "study": "audits", "report": "runs", "compare": "runs",
    "datasets": "datasets", "prompts": "catalogue", "strategies": "catalogue", "measures": "catalogue",
    "runs": "runs", "cache": "runs", "doctor": "catalogue",
}  # fmt: skip
"""The commands beside the audits, each with the module of this folder that adds it."""
HELP = {"help_option_names": ["-h", "--help"]}
ASKS_NOTHING = {*HELP["help_option_names"], "--help-all", "--version", "-V"}
COMPLETES = "_LLMFAIR_COMPLETE"
"""What a shell sets that asks how a line could go on."""
COMPLETED = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")
"""What it sets to the line, whichever shell it is."""
NO_PATH = (errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR)
FIRST_STEPS = """\
llmfair listwise          audit a simulated model on the bundled sample, offline
llmfair plan listwise     what an audit would ask, cost and find; asks nothing
llmfair doctor            which models this machine can ask
llmfair COMMAND --help    flags with their meaning, and examples
README.md, docs/          how to read the numbers, how to ask your own model
"""


def _version(value: bool) -> None:
    if value:
        print(f"llmfair {llmfair.__version__}")
        raise typer.Exit


def start(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", "-V", is_eager=True, callback=_version, help="Version in one line.")
    ] = False,
) -> None:
    """Measures whether a ranker built on a large language model treats groups of items alike."""
    if ctx.invoked_subcommand is None:
        print(FIRST_STEPS, end="")


@cache
def command(name: str | None = None) -> Any:
    """The application as Typer makes it of its commands; of one alone where only that is asked for."""
    return _made(_application((name,) if name else _names()))


@cache
def outline() -> Any:
    """The application with what its own help says of commands, and none of their flags."""
    complete, listing = _application(_names()), _application(())
    for item in complete.registered_commands:
        called = item.callback or _stands_in
        listing.command(
            item.name or called.__name__, help=called.__doc__, rich_help_panel=item.rich_help_panel
        )(_stands_in)
    for group in complete.registered_groups:
        info = (group.typer_instance or listing).info
        listing.command(info.name, help=info.help, rich_help_panel=group.rich_help_panel)(_stands_in)
    return _made(listing)


def _stands_in() -> None:
    """Is listed instead of a command."""


def _names() -> Iterable[str]:
    return (*(kind.name for kind in kinds()), *MODULES)


def _application(names: Iterable[str]) -> typer.Typer:
    app = typer.Typer(
        name="llmfair",
        help="Measures whether a ranker built on a large language model treats groups of items alike.",
        pretty_exceptions_enable=False,
        context_settings=HELP,
        rich_markup_mode=None,
        epilog="llmfair listwise\n\nllmfair listwise -m openai:gpt-4o-mini --dry-run",
    )
    app.callback(invoke_without_command=True)(start)
    for name in names:
        if name in MODULES:
            module = import_module(f"llmfair.cli.{MODULES[name]}")
            if isinstance(below := getattr(module, name, None), typer.Typer):
                app.add_typer(below, rich_help_panel="Look")
            else:
                getattr(module, f"add_{name.replace('-', '_')}")(app)
        else:
            audits.add(app, kind_of(name))
    return app


def _made(app: typer.Typer) -> Any:
    return with_one_reader(with_help(typer.main.get_command(app)))


def _asked_for(arguments: list[str]) -> Any:
    """As much of the application as a line is about, which may be one that a shell completes."""
    completed = COMPLETES in os.environ
    words = arguments
    if completed:
        words = next((os.environ[name].split()[1:] for name in COMPLETED if name in os.environ), [])
    name = words[0] if words else ""
    if name in MODULES or registry.has("audit", name):
        return command(name)
    return outline() if completed or {*words} <= ASKS_NOTHING else command()


def run(arguments: list[str]) -> int:
    """Runs one command line and returns its exit code; every error is one sentence and a way out."""
    with text.streams(), files.private(), beginning.stoppable():
        return _run(arguments)


def _work(arguments: list[str]) -> Any:
    """What a line asks for; what comes of it, as Typer has it."""
    set_here = {name for name in os.environ if name.startswith(ENVIRONMENT)} - {*ELSEWHERE}
    if set_here and not ASKS_NOTHING & {*arguments} and COMPLETES not in os.environ:
        for sentence in no_settings(os.environ, {*variables(command()), *ELSEWHERE}):
            terminal.warn(sentence)
    return _asked_for(arguments)(arguments, prog_name="llmfair", standalone_mode=False)


def _run(arguments: list[str]) -> int:
    color = os.environ.get("LLMFAIR_COLOR", "auto")
    terminal.output = terminal.Output(as_json=_asks_json(arguments), color=color)
    secrets.note(arguments)
    try:
        code = _work(arguments)
        if code == 130 and not terminal.output.stopped:  # what Typer makes of an interrupt
            return _stopped()
        return code if isinstance(code, int) else 0
    except LlmfairError as error:
        return terminal.fail(error)
    except TyperException as error:
        return terminal.fail(UsageError(error.format_message(), _usage_hint(error)))
    except (KeyboardInterrupt, typer.Abort):
        return _stopped()
    except (SystemExit, BrokenPipeError) as leaving:  # the first is how Typer and rich take a `| head`
        if not isinstance(leaving, BrokenPipeError) and not isinstance(leaving.__context__, BrokenPipeError):
            raise
        return _unread()
    except OSError as error:
        if not _somewhere():
            return terminal.fail(UsageError("the current folder was removed.", "cd elsewhere"))
        if error.filename is None:
            return terminal.fail(_unexpected(error, arguments))
        refused = UsageError if error.errno in NO_PATH else LlmfairError
        hint = "make room there and repeat" if error.errno in FULL else "check the path"
        return terminal.fail(refused(f"{error.filename}: {error.strerror}.", hint))
    except Exception as error:
        return terminal.fail(_unexpected(error, arguments))


def _somewhere() -> bool:
    """Whether the current folder is still there, which relative paths begin at."""
    try:
        return bool(Path.cwd())
    except FileNotFoundError:
        return False


def _unread() -> int:
    """Nobody reads stdout any more, which is their right: says nothing, and returns what a killed `cat` would."""
    _leave_unread(sys.stdout)
    return 128 + signal.SIGPIPE


def _unexpected(error: Exception, arguments: list[str]) -> LlmfairError:
    if not terminal.output.verbose and {"-v", "--verbose"} & {*arguments}:
        terminal.output.verbose = True  # it came before the flags were read
    hint = "repeat with -v for the traceback" if terminal.output.verbose is not None else ""
    unexpected = LlmfairError(f"unexpected {type(error).__name__}: {error}", hint)
    unexpected.__cause__ = error
    return unexpected


def _leave_unread(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _stopped() -> int:
    """Says that an interrupt ended the command; returns its exit code."""
    code = beginning.stop_code()
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
    beginning.open_streams()
    for stream in (sys.stdout, sys.stderr):
        # A title or an answer may hold what a terminal's encoding cannot say.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    code = run(sys.argv[1:])
    try:
        with text.streams():
            sys.stdout.flush()
    except BrokenPipeError:
        unread = _unread()
        code = code or unread
    except LlmfairError as error:
        _leave_unread(sys.stdout)
        code = code or terminal.fail(error)
    try:
        sys.stderr.flush()
    except OSError:  # of which nobody can be told: it changes no exit code
        _leave_unread(sys.stderr)
    sys.exit(code)
