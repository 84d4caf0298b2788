"""The application: its commands, and the one place where errors become sentences and exit codes."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import Annotated, Any, NoReturn, TextIO

import typer
from typer.exceptions import TyperException

import llmfair
from llmfair import beginning, registry, terminal
from llmfair.audits.kind import kind_of, kinds
from llmfair.cli import audits
from llmfair.cli.help import with_help
from llmfair.cli.options import variables, with_one_reader
from llmfair.errors import LlmfairError, UsageError, did_you_mean
from llmfair.io import files, secrets, text
from llmfair.io.files import FULL

MODULES = {
    "score": "rankings", "rerank": "rankings", "mitigate": "rankings", "finetune-lora": "rankings",
    "plan": "audits", "calibrate": "audits", "study": "audits", "report": "runs", "compare": "runs",
    "datasets": "datasets", "prompts": "catalogue", "strategies": "catalogue", "measures": "catalogue",
    "runs": "runs", "cache": "runs", "doctor": "catalogue",
}  # fmt: skip
"""The commands beside the audits, each with the module of this folder that declares it: as an application of commands
below that name, or in its `root`."""
ASKS_NOTHING = {"-h", "--help", "--help-all", "--version", "-V"}
COMPLETED = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")
"""What a shell sets to the line that it completes, whichever it is, beside _LLMFAIR_COMPLETE."""
ELSEWHERE = {
    "LLMFAIR_CACHE_DIR", "LLMFAIR_REQUIRE_VLLM", "LLMFAIR_SEARCH_API_KEY", "LLMFAIR_SEARCH_PASSWORD",
    "LLMFAIR_SEARCH_USER",
}  # fmt: skip
"""Variables that are no flag's."""
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
def command(*names: str, listed: bool = False) -> Any:
    """The application as Typer makes it of these commands, or all; `listed`: with what its own help says of them, and
    none of their flags."""
    app = typer.Typer(
        name="llmfair",
        help="Measures whether a ranker built on a large language model treats groups of items alike.",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode=None,
        epilog="llmfair listwise\n\nllmfair listwise -m openai:gpt-4o-mini --dry-run",
    )
    app.callback(invoke_without_command=True)(start)
    for name in names or (*(kind.name for kind in kinds()), *MODULES):
        if name not in MODULES:
            audits.add(app, kind_of(name))
            continue
        module = import_module(f"llmfair.cli.{MODULES[name]}")
        below = audits.about(name) if name in audits.ABOUT else getattr(module, name, None)
        if isinstance(below, typer.Typer):
            app.add_typer(below, rich_help_panel=below.rich_help_panel)
        else:
            app.registered_commands += [item for item in module.root.registered_commands if item.name == name]
    if listed:
        rows = [(item.name, item.callback.__doc__, item.rich_help_panel) for item in app.registered_commands]
        for item in app.registered_groups:
            info = (item.typer_instance or app).info
            rows.append((info.name, info.help, item.rich_help_panel))
        app.registered_commands, app.registered_groups = [], []
        for called, does, panel in rows:
            app.command(called, help=does, rich_help_panel=panel)(lambda: None)
    return with_one_reader(with_help(typer.main.get_command(app)))


def _asked_for(arguments: list[str]) -> Any:
    """As much of the application as a line is about, which may be one that a shell completes."""
    completed, words = "_LLMFAIR_COMPLETE" in os.environ, arguments
    if completed:
        words = next((os.environ[name].split()[1:] for name in COMPLETED if name in os.environ), [])
    if words and (words[0] in MODULES or registry.has("audit", words[0])):
        return command(words[0])
    return command(listed=completed or {*words} <= ASKS_NOTHING)


def run(arguments: list[str]) -> int:
    """Runs one command line and returns its exit code; every error is one sentence and a way out."""
    with text.streams(), files.private(), beginning.stoppable():
        return _run(arguments)


def _run(arguments: list[str]) -> int:
    flags, env = {*arguments, *map("=".join, pairwise(arguments))}, os.environ
    # known before the flags are parsed, since a wrong flag is told in JSON too
    as_json = bool(flags & {"--json", "--format=json"} or env.get("LLMFAIR_JSON")) or (
        env.get("LLMFAIR_FORMAT") == "json"
    )
    verbose, color = bool(flags & {"-v", "--verbose"}), env.get("LLMFAIR_COLOR", "auto")
    terminal.output = terminal.Output(as_json=as_json, verbose=verbose, color=color)
    secrets.note(arguments)
    try:
        strange = {name for name in env if name.startswith("LLMFAIR_")} - ELSEWHERE
        if strange and not {*arguments} & ASKS_NOTHING and "_LLMFAIR_COMPLETE" not in env:
            settings = variables(command())
            for name in sorted(strange - settings):  # lest a mistyped budget be none
                nearest = did_you_mean(name, settings)
                terminal.warn(f"{name} is no setting, so nothing reads it.{nearest}")
        code = _asked_for(arguments)(arguments, prog_name="llmfair", standalone_mode=False)
        if code == 130 and not terminal.output.stopped:  # what Typer makes of an interrupt
            return _stopped()
        return code if isinstance(code, int) else 0
    except LlmfairError as error:
        return terminal.fail(error)
    except TyperException as error:
        ctx: Any = getattr(error, "ctx", None)
        way_out = "llmfair --help" if ctx is None else f"{ctx.command_path} --help-all    lists what it takes"
        if ctx is not None and ctx.parent and hasattr(ctx.command, "commands"):
            way_out = f"{ctx.command_path} {'|'.join(ctx.command.commands)}"
        return terminal.fail(UsageError(error.format_message(), way_out))
    except (KeyboardInterrupt, typer.Abort):
        return _stopped()
    except (SystemExit, BrokenPipeError) as leaving:  # the first is how Typer and rich take a `| head`
        if not isinstance(leaving, BrokenPipeError) and not isinstance(leaving.__context__, BrokenPipeError):
            raise
        return _unread()
    except Exception as error:
        failure = LlmfairError(
            f"unexpected {type(error).__name__}: {error}", "repeat with -v for the traceback"
        )
        if isinstance(error, OSError) and error.filename is not None:
            refused = UsageError if error.errno in NO_PATH else LlmfairError
            hint = "make room there and repeat" if error.errno in FULL else "check the path"
            failure = refused(f"{error.filename}: {error.strerror}.", hint)
        failure.__cause__ = error
        return terminal.fail(failure)


def _unread() -> int:
    """Nobody reads stdout any more, which is their right: says nothing, and returns what a killed `cat` would."""
    _leave_unread(sys.stdout)
    return 128 + signal.SIGPIPE


def _leave_unread(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _stopped() -> int:
    """Says that an interrupt ended the command; returns its exit code."""
    code = beginning.stop_code()
    terminal.stopped(code)
    print("Stopped.", file=sys.stderr)
    return code


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
