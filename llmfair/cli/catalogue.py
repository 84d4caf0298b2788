"""What there is to choose from: `llmfair prompts`, `strategies`, `measures`, and on this machine: `doctor`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmfair import terminal
from llmfair.audits.kind import Kind, kinds
from llmfair.cli.complete import OFFERED
from llmfair.cli.options import View, add_command, flag, group, look
from llmfair.errors import UsageError
from llmfair.io.files import SCHEMA
from llmfair.settings import MOST_NUMBERED, AuditSettings

if TYPE_CHECKING:
    from llmfair.backends.base import Backend
    from llmfair.nouns import Completion, Request


prompts = group("prompts", "List, show and render prompt templates.")
SOURCE = 60
"""Letters of a prompt's source in the list."""
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Template name or TOML file.", autocompletion=OFFERED["prompt"])
]


@look(prompts, "llmfair prompts list", "llmfair prompts list --json", name="list")
def list_prompts() -> View:
    """The templates that can be named with --prompt."""
    from llmfair.prompts import load_prompt, prompt_names, wordings
    from llmfair.report.table import Table

    named = {name: wording for task in prompt_names() for wording, name in wordings(task).items()}
    rows: list[dict[str, Any]] = [
        {
            "prompt": prompt.id,
            "wording": named.get(prompt.id),
            "source": prompt.source,
            "sha256": prompt.sha256,
        }
        for prompt in map(load_prompt, prompt_names())
    ]
    cells = tuple(
        (
            row["prompt"],
            row["wording"] or "",
            row["sha256"][:16],
            shorten(row["source"], SOURCE, placeholder=" …"),
        )
        for row in rows
    )
    notes = (
        "--prompt takes a wording: general for items of any sort, the default of a folder of your own; wikiproject for "
        "the paper's articles, the default of sample, trec-fair/… and --preset paper",
        "the whole source, and every word: llmfair prompts show listwise",
        "one of your own: llmfair prompts show listwise-general > my.toml, change it, --prompt my.toml",
    )
    return View({"prompts": rows}, Table("", ("prompt", "--prompt", "sha256", "source"), cells, notes))


@look(prompts, "llmfair prompts show listwise", "llmfair prompts show my-prompt.toml --json")
def show(name: Name) -> View:
    """A template as it stands."""
    from llmfair.prompts import load_prompt

    prompt = load_prompt(name)
    document = {"prompt": prompt.id, "sha256": prompt.sha256, "text": prompt.text}
    return View(document, prompt.text.removesuffix("\n"))


render = typer.Typer(name="render", help="Exactly the messages that would be sent.")
prompts.add_typer(render)


def _rendering(kind: Kind) -> Callable[..., None]:
    """The messages of one kind of audits; a function of --number, too."""

    def run(settings: AuditSettings, style: str, *, ctx: typer.Context, number: int = 1) -> None:
        chats = list(kind.rendered(settings))
        if number > len(chats):
            raise UsageError(
                f"there are {len(chats)} {kind.question}s, not {number}.", "choose a smaller --number"
            )
        messages = chats[number - 1].messages
        if style == "json":
            rows = [{"role": message.role, "content": message.content} for message in messages]
            terminal.print_json({"schema": SCHEMA, "messages": rows})
            return
        for message in messages:
            print(f"{message.role}: {message.content}")

    run.__annotations__["number"] = Annotated[
        int, flag(kind.help("render").number, named="number", min=1, max=MOST_NUMBERED)
    ]
    return run


for _kind in kinds():
    add_command(render, _kind.name, _kind.settings, _rendering(_kind), _kind.help("render"))


strategies = group("strategies", "How lists can be ordered by asking.")
SIZES = (40, 100)
"""Lists whose cost is shown."""


@look(strategies, "llmfair strategies list", "llmfair strategies list --json", name="list")
def list_strategies() -> View:
    """What --strategy takes, with parameters, calls and rounds that wait for each other."""
    from llmfair import registry
    from llmfair.audits.listwise.settings import ListwiseSettings
    from llmfair.rankers.strategies import strategy_of
    from llmfair.report.table import Table

    facts: list[dict[str, Any]] = []
    reads = {"none": "text", "welcome": "log-probabilities, else text", "needed": "log-probabilities"}
    for name in registry.names("strategy"):
        strategy = strategy_of(name, vars(ListwiseSettings()))  # under the settings of windows that are usual
        plans = [(n, strategy.plan(n)) for n in SIZES]
        facts.append(
            {
                "strategy": name,
                "parameters": dict(strategy.parameters),
                "prompt": strategy.question.prompt,
                "reads": reads[strategy.question.margins],
                "plans": [
                    {"items": n, "calls": plan.calls, "rounds": plan.rounds, "at_most": not plan.exact}
                    for n, plan in plans
                ],
                "does": (registry.lookup("strategy", name).__doc__ or "").partition("\n")[0].strip(),
            }
        )
    costs = (f"calls (rounds), {n} items" for n in SIZES)
    rows = tuple(
        (
            row["strategy"],
            ",".join(f"{name}={value}" for name, value in row["parameters"].items()),
            *(f"{'≤ ' * plan['at_most']}{plan['calls']:,} ({plan['rounds']:,})" for plan in row["plans"]),
            row["reads"],
            row["does"],
        )
        for row in facts
    )
    notes = (
        "--strategy NAME:key=value,… in llmfair listwise, repeatable: one run each; llmfair plan listwise prices them "
        "side by side on your lists",
        "≤: at most, since what is asked hangs on the answers; windows by --window, --step and --passes",
        "one of your own is one file, joined by the entry point llmfair.strategies",
    )
    header = ("strategy", "parameters", *costs, "reads", "what it does")
    return View({"strategies": facts}, Table("", header, rows, notes))


measures = group("measures", "What can be measured.")


@look(measures, "llmfair measures list", "llmfair measures list --json", name="list")
def list_measures() -> View:
    """What --measures takes, with parameters, and which way is better."""
    from llmfair import registry
    from llmfair.report.table import Table

    facts = [
        {
            "measure": name,
            "of": of.reads.about,
            "label": of.label,
            "better": of.better,
            "cutoff": of.cutoff,
            "parameters": {
                key: [*words] if isinstance(words, tuple) else [] for key, words in of.params.items()
            },
            "aggregate": of.aggregate,
            "source": of.cite,
        }
        for name in registry.names("measure")
        for of in [registry.lookup("measure", name)]
    ]
    rows = tuple(
        (
            row["measure"],
            row["of"],
            row["label"] if row["label"] != row["measure"] else "",
            row["better"] or "",
            {"none": "", "optional": "@k or none", "required": "@k"}[row["cutoff"]],
            ", ".join(
                f"{name}={'|'.join(words)}" if words else name for name, words in row["parameters"].items()
            ),
            row["source"],
        )
        for row in facts
    )
    notes = (
        "--measures NAME, NAME@20, NAME(key=value)@20, comma-separated; the first of several words is the default",
        "beside these, utility by ir_measures' names (P@20, nDCG@20, AP, RR)",
        "one of your own is one file, joined by the entry point llmfair.measures",
    )
    header = ("measure", "of", "in words", "better", "cutoff", "parameters", "source")
    return View({"measures": facts}, Table("", header, rows, notes))


LOOK_AT = "Look at this model: where it would run, what it can do."
Model = Annotated[str | None, flag(LOOK_AT, "--model", "-m", autocompletion=OFFERED["model"])]
BaseUrl = Annotated[
    str | None, flag("Any OpenAI-compatible server (default: OPENAI_BASE_URL).", "--base-url")
]
Ask = Annotated[bool, flag("Ask the model one question.", "--ask")]


def doctor(model: Model = None, base_url: BaseUrl = None, ask: Ask = False) -> View:
    """What this machine can run, and what to set or install for the rest."""
    import os
    import platform

    import llmfair
    from llmfair import registry
    from llmfair.report.table import Table

    backends = dict.fromkeys(registry.names("backend"), ("ready", "added, in this package or another"))
    backends |= {name: (status, note) for name, status, note in _backends(base_url)}
    facts = {
        "llmfair": llmfair.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "gpu": _gpu(),
        "backends": {name: {"status": status, "note": note} for name, (status, note) in backends.items()},
        "rankers": registry.names("ranker"),
        "datasets": registry.names("dataset"),
    }
    seen = {} if model is None else _look_at(model, base_url, ask)
    title = (
        f"llmfair {facts['llmfair']} · Python {facts['python']} · {facts['platform']} · {facts['cores']} cores · "
        f"{facts['gpu'] or 'no GPU'}"
    )
    rows = tuple((name, status, note) for name, (status, note) in sorted(backends.items()))
    notes = (
        f"rankers that ask no model: {', '.join(registry.names('ranker'))}",
        f"data: {', '.join(registry.names('dataset'))}",
        *(f"{model}: {key} {value}" for key, value in seen.items()),
    )
    document = facts | ({"model": seen} if seen else {})
    return View(document, Table(title, ("backend", "status", ""), rows, notes))


LOCAL = "pip install 'llmfair[local]'"
NEEDED = {
    "hf": (("torch", "transformers", "peft", "llguidance"), LOCAL),
    "cross-encoder": (("torch", "transformers", "sentence_transformers"), LOCAL),
    "nli": (("torch", "transformers"), LOCAL),
    "pyterrier": (("pandas", "pyterrier"), "pip install 'llmfair[pandas]' python-terrier"),
}
"""What backends in this process import, and how it is installed."""


def _backends(base_url: str | None) -> Iterator[tuple[str, str, str]]:
    """Name, status and note of each of our backends; nothing is imported that takes long."""
    import os
    from importlib.util import find_spec

    yield (
        "fake",
        "ready",
        "offline: fake:biased, fake:oracle, fake:random, fake:reader, fake:refiner, fake:name; fake:biased,pairwise=-1 "
        "injects log odds of -1",
    )
    key, elsewhere = "OPENAI_API_KEY", "--base-url" if base_url else "OPENAI_BASE_URL"
    compatible = base_url or os.environ.get("OPENAI_BASE_URL")
    server = f"the server of {elsewhere}" if compatible else "api.openai.com"
    if os.environ.get(key):
        yield "openai", "ready", f"{key} is set · {server}"
    elif compatible:
        yield "openai", "ready", f"{key} is not set; {server} may need none"
    else:
        yield "openai", "no", f"set {key}, or name any compatible server with --base-url"
    yield "python", "ready", "python:MODULE:FUNCTION, a ranker of your own in this folder"
    if base_url or os.environ.get("RERANK_BASE_URL"):
        yield "rerank", "ready", f"the endpoint of {'--base-url' if base_url else 'RERANK_BASE_URL'}"
    else:
        yield "rerank", "no", "name the address of an endpoint with --base-url, or set RERANK_BASE_URL"
    for name, (packages, install) in NEEDED.items():
        versions = _versions(packages)
        if missing := [package for package in packages if find_spec(package) is None]:
            yield name, "no", f"{install} ({', '.join(missing)} missing)"
        elif "torch" in packages:
            place = (
                "the CPU, as this build of torch knows no GPU" if "+cpu" in versions and _gpu() else _gpu()
            )
            yield name, "ready", f"{versions} · on {place or 'the CPU'}"
        else:
            yield name, "ready", versions
    if find_spec("vllm") is not None:
        yield "vllm", "ready", _versions(("vllm",))
    elif _gpu() == NVIDIA:
        yield "vllm", "no", "pip install 'llmfair[vllm]'"
    else:
        yield "vllm", "no", "needs an NVIDIA GPU; a server works: --base-url http://HOST:8000/v1"


NVIDIA = "an NVIDIA GPU"


def _gpu() -> str | None:
    """The kind of GPU, by its driver: asking torch would take seconds."""
    import platform
    from pathlib import Path

    if Path("/proc/driver/nvidia/version").exists():
        return NVIDIA
    return "an Apple GPU" if (platform.system(), platform.machine()) == ("Darwin", "arm64") else None


def _versions(packages: tuple[str, ...]) -> str:
    from importlib.metadata import PackageNotFoundError, version

    names = []
    for package in packages:
        try:
            names.append(f"{package} {version(package)}")
        except PackageNotFoundError:  # a rebuild under another name
            names.append(package)
    return " · ".join(names)


def _look_at(model: str, base_url: str | None, ask: bool) -> dict[str, Any]:
    """What can be said of one model; with `ask`, what it answers to a first question. Raises what it raises."""
    import asyncio

    from llmfair.asking.journal import chat_sampling
    from llmfair.audits.kind import kinds
    from llmfair.audits.subject import backend_of, sampling_of
    from llmfair.nouns import Request
    from llmfair.settings import AuditSettings

    at = () if base_url is None else (base_url,)
    values: dict[str, Any] = {"model": (model,), "base_url": at, "limit": 1}
    settings = AuditSettings.make(**values)
    backend = backend_of(model, settings)
    seen: dict[str, Any] = {"is": backend.identity, "can": ", ".join(sorted(backend.capabilities))}
    if ask:
        # the shortest question that any audit would begin with; simulated models do not answer all forms
        askers = [kind for kind in kinds() if kind.name in getattr(backend, "forms", (kind.name,))]
        first = (next(iter(kind.rendered(kind.settings.make(**values)))) for kind in askers)
        chat = min(first, key=lambda chat: len(chat.said))
        request = Request(chat, chat_sampling(chat, sampling_of(settings)), "doctor", "doctor")
        answer = asyncio.run(_answer(backend, request))
        facts = getattr(backend, "facts", {})  # of a model in this process
        seen |= {key: value for key, value in facts.items() if isinstance(value, str)}
        seen |= {
            "answers": repr(answer.text),
            "ends by": str(answer.finish),
            "in seconds": round(answer.seconds, 2),
        }
    return seen


async def _answer(backend: Backend, request: Request) -> Completion:
    """The answer of one attempt. Raises Unavailable where a run would try again."""
    from llmfair.backends.base import RateLimited, Transient
    from llmfair.errors import Unavailable

    try:
        await backend.open()
        return await backend.complete(request)
    except (RateLimited, Transient) as error:
        raise Unavailable(f"no answer: {error}.", "a run would try again; check the server") from None
    finally:
        await backend.close()


def add_doctor(app: typer.Typer) -> None:
    look(app, "llmfair doctor", "llmfair doctor --json", panel="Look")(doctor)
